//! `guild build`: builds a member's component from its source.

use std::path::Path;

use guild_build::{BuildError, Project};
use guild_config::Config;
use guild_contract::{manifest::FILE_NAME, text::size};
use guild_roster::discovery::{FoundMember, single};

use crate::{args::authors::Build, failure::Failure, output::tell};

/// `guild build`.
pub(crate) fn build(args: &Build) -> Result<(), Failure> {
    let built = project(&args.directory)?.build()?;
    let change = if built.is_new { "" } else { ", unchanged" };
    tell(format_args!("{} ({}){change}", built.file.display(), size(built.bytes)));
    Ok(())
}

/// The source of the member in a directory. The operator's policy does not matter.
pub(crate) fn project(directory: &Path) -> Result<Project, Failure> {
    let none = || Failure::error(format!("{FILE_NAME} has no `component`: its own process serves this member"));
    let spec = found(directory)?.manifest.component.ok_or_else(none)?;
    Ok(Project::open(directory, spec)?)
}

/// The member in a directory.
pub(crate) fn found(directory: &Path) -> Result<FoundMember, Failure> {
    single(directory, None, &Config::default()).map_err(Failure::error)
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        Self::error(error.to_string())
    }
}
