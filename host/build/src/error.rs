use std::{io, path::PathBuf, process::ExitStatus};

use guild_inspect::InspectError;

/// The reason that there is no component. Its text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A new member cannot be written; the text is the reason.
    #[error("{0}")]
    New(String),
    /// `guild.build.toml` is not valid.
    #[error("guild.build.toml: {0}")]
    Settings(String),
    /// Nothing in the directory says which language the member is written in.
    #[error(
        "{} has no source that `guild build` knows: a Cargo.toml, go.mod, package.json, *.py or *.c; name the language or \
         the command in guild.build.toml", .0.display()
    )]
    NoSource(PathBuf),
    /// A program is missing, or too old.
    #[error("{program} {why}; {remedy}")]
    Program {
        /// The program.
        program: String,
        /// The defect, such as "is not installed".
        why: String,
        /// The way to install it.
        remedy: String,
    },
    /// The language's command failed, and printed the reason itself.
    #[error("`{command}` ended with {status}")]
    Command {
        /// The command, as a person would type it.
        command: String,
        /// Its exit status.
        status: ExitStatus,
    },
    /// The command wrote no component.
    #[error("`{command}` wrote no {}", path.display())]
    NoOutput {
        /// The command, as a person would type it.
        command: String,
        /// The file that the command should have written.
        path: PathBuf,
    },
    /// The output of the command cannot become a component.
    #[error("{} cannot become a component of the world {world}: {why}", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// The manifest's world.
        world: &'static str,
        /// The reason.
        why: String,
    },
    /// The component does not fit the manifest.
    #[error(transparent)]
    Inspect(#[from] InspectError),
}
