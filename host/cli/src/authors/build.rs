//! `guild build`: makes a member's component from its source.

use std::path::Path;

use guild_build::Project;
use guild_config::Config;
use guild_contract::{manifest::FILE_NAME, text::size};
use guild_roster::discovery::single;

use crate::{args::Build, failure::Failure, output::tell};

/// `guild build`.
pub(crate) fn build(args: &Build) -> Result<(), Failure> {
    let built = project(&args.directory)?.build().map_err(|e| Failure::error(e.to_string()))?;
    let what = if built.is_new { "" } else { ", as it was" };
    tell(format_args!("{} ({}){what}", built.file.display(), size(built.bytes)));
    Ok(())
}

/// The source of the member in a directory. The operator's policy has no part in it.
pub(crate) fn project(directory: &Path) -> Result<Project, Failure> {
    let found = single(directory, None, &Config::default()).map_err(Failure::error)?;
    let none = || Failure::error(format!("{FILE_NAME} has no `component`: its own process serves this member"));
    let spec = found.manifest.component.ok_or_else(none)?;
    Project::open(directory, spec).map_err(|e| Failure::error(e.to_string()))
}
