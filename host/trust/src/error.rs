//! Why `guild.lock` or `guild.trust` cannot be used.

use std::io;

/// Why `guild.lock` or `guild.trust` cannot be used. The files are named without their directory: callers see it too.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("{file} beside guild.toml cannot be read, so no member is loaded: {why}")]
    Unreadable {
        /// Which one.
        file: &'static str,
        /// Why.
        why: io::Error,
    },
    /// Its content is invalid.
    #[error("{file}:{line}: {text}; until that is put right, no member is loaded")]
    Invalid {
        /// Which one.
        file: &'static str,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        text: String,
    },
}

impl FileError {
    pub(crate) fn unreadable(file: &'static str) -> impl Fn(io::Error) -> Self + Copy {
        move |why| Self::Unreadable { file, why }
    }
}
