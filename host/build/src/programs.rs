//! Finds and runs the programs of languages.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::BuildError;

/// A program that a language needs.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// The way to install it.
    pub(crate) remedy: &'static str,
}

impl Program {
    /// The program in one of these directories, or else on the path.
    ///
    /// # Errors
    ///
    /// Returns [`BuildError::Program`] with the remedy if the program is not installed.
    pub(crate) fn find(&self, directories: &[PathBuf]) -> Result<PathBuf, BuildError> {
        let local = directories.iter().map(|directory| directory.join(self.name)).find(|path| path.is_file());
        match local {
            Some(path) => Ok(path),
            None => which::which(self.name).map_err(|_| BuildError::Program {
                program: self.name.to_owned(),
                why: "is not installed".to_owned(),
                remedy: self.remedy.to_owned(),
            }),
        }
    }
}

/// The command as a person would type it.
pub(crate) fn command_line(command: &Command) -> String {
    let quoted = |word: &OsStr| {
        let word = word.to_string_lossy();
        let is_plain = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=:,@+".contains(c));
        if is_plain { word.into_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    let variables =
        command.get_envs().filter_map(|(name, value)| Some(format!("{}={}", name.to_string_lossy(), quoted(value?))));
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = [program].into_iter().chain(command.get_args()).map(quoted);
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

/// Runs a command. Its output goes to the output of this process.
pub(crate) fn run(command: &mut Command) -> Result<(), BuildError> {
    let line = command_line(command);
    let program = command.get_program().to_owned();
    // `guild dev` reads tasks from stdin.
    let status =
        command.stdin(Stdio::null()).status().map_err(|error| BuildError::File { path: program.into(), error })?;
    if status.success() { Ok(()) } else { Err(BuildError::Command { command: line, status }) }
}
