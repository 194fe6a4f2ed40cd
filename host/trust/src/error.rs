//! Defines the error of an unusable `guild.lock` or `guild.trust`.

use std::io;

/// The error of an unusable `guild.lock` or `guild.trust`. It names the file without its directory, since callers see
/// it too.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("{file} beside guild.toml cannot be read, so no member is loaded: {why}")]
    Unreadable {
        /// The file's name.
        file: &'static str,
        /// The reason.
        why: io::Error,
    },
    /// Its content is invalid.
    #[error("{file}:{line}: {text}; no member is loaded until this is corrected")]
    Invalid {
        /// The file's name.
        file: &'static str,
        /// The line, from 1.
        line: usize,
        /// The error of the line.
        text: String,
    },
}

impl FileError {
    pub(crate) fn unreadable(file: &'static str) -> impl Fn(io::Error) -> Self + Copy {
        move |why| Self::Unreadable { file, why }
    }
}
