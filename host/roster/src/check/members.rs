//! Checks members and their components without serving them.

use std::{io, path::Path, sync::Arc};

use cap_std::fs::Dir;
use guild_config::Config;
use guild_fs::durable::open_directory;
use guild_sandbox::{Candidate, Effort};
use guild_session::tools::ToolDefinition;
use guild_trust::{Approval, Standing};

use crate::{
    discovery::{self, Found, FoundMember, granted::Granted},
    members::{
        component_loader::{self, WantedComponent},
        error::OpenError,
    },
    tools::schema::check_config_schema,
};

/// A member as `guild members` shows it.
pub struct Surveyed {
    /// The found directory.
    pub found: Found,
    /// `Ok` with whether it has a component; else the reason that it cannot be served.
    pub state: Result<bool, String>,
    /// Its grants, if it has a component and its manifest is valid.
    pub granted: Option<Granted>,
    /// Its trust, if its component can be read.
    pub standing: Option<Standing>,
    /// Warnings about its manifest, which do not prevent serving it ([`FoundMember::warnings`]).
    pub warnings: Vec<String>,
}

/// Finds the members of a directory and checks each one's component, without becoming the owner of one. It blocks;
/// `compiling` is called with the file of each component that has to be compiled.
///
/// # Errors
///
/// Returns an error when the directory cannot be read.
pub fn survey_all(path: &Path, config: &Config, compiling: &dyn Fn(&str)) -> Result<Vec<Surveyed>, OpenError> {
    let unreadable = |source| OpenError::Members { path: path.to_owned(), source };
    let found = discovery::discover(&open_directory(path).map_err(unreadable)?).map_err(unreadable)?;
    let approval = Arc::new(Approval::new(config));
    let sandbox =
        component_loader::sandbox(&Arc::new(config.limits.clone()), config.dev.is_some()).map_err(|e| e.to_string());
    let survey = |found| survey(found, config, &approval, sandbox.as_ref(), compiling);
    Ok(found.into_iter().map(survey).collect())
}

/// Like [`survey_all`], for one member.
pub fn survey_one(member: FoundMember, config: &Config, compiling: &dyn Fn(&str)) -> Surveyed {
    let approval = Arc::new(Approval::new(config));
    let sandbox =
        component_loader::sandbox(&Arc::new(config.limits.clone()), config.dev.is_some()).map_err(|e| e.to_string());
    let found = Found { path: member.key.to_string(), member: Ok(member) };
    survey(found, config, &approval, sandbox.as_ref(), compiling)
}

/// The tools that a member's component offers: it is compiled, and lists them in the sandbox, where it reaches nothing.
/// It need not be approved. This blocks.
///
/// # Errors
///
/// Returns an error when the component cannot be loaded or lists no tools.
pub fn tools_of(
    member: &FoundMember,
    config: &Config,
    compiling: &dyn Fn(&str),
) -> Result<Vec<Arc<ToolDefinition>>, String> {
    let Some(spec) = &member.manifest.component else { return Ok(Vec::new()) };
    let (wanted, _) = WantedComponent::new(member, spec.clone(), config, Arc::new(Approval::new(config)))?;
    let sandbox =
        component_loader::sandbox(&Arc::new(config.limits.clone()), config.dev.is_some()).map_err(|e| e.to_string())?;
    let candidate =
        Candidate::read(&member.dir, &spec.file, wanted.limits.component_bytes).map_err(|e| e.to_string())?;
    compiling(&spec.file);
    let (grants, limits) = (wanted.grants.clone(), wanted.limits.clone());
    let unlisted = sandbox.prepare_unlisted(&wanted.key, &candidate, spec, grants, limits, Effort::Full);
    let plugin = unlisted.and_then(guild_sandbox::Unlisted::with_tools).map_err(|e| e.to_string())?;
    Ok(plugin.tools().to_vec())
}

/// Checks a member as a host would check it.
fn survey(
    found: Found,
    config: &Config,
    approval: &Arc<Approval>,
    sandbox: Result<&Arc<guild_sandbox::Sandbox>, &String>,
    compiling: &dyn Fn(&str),
) -> Surveyed {
    let (mut granted, mut standing) = (None, None);
    let state = found.member.as_ref().map_err(Clone::clone).and_then(|member| {
        let Some(spec) = &member.manifest.component else { return Ok(false) };
        let (wanted, found) = WantedComponent::new(member, spec.clone(), config, approval.clone())?;
        granted = Some(found);
        // Errors of the member itself are reported first.
        let read = component_loader::read(&wanted).map(|(candidate, found)| (candidate, standing.insert(found)));
        check_config_schema(spec, &wanted.limits)?;
        check_directories(&member.dir)?;
        let sandbox = sandbox.map_err(Clone::clone)?;
        read.and_then(|(candidate, standing)| {
            component_loader::prepare(sandbox, &wanted, &candidate, standing, compiling)
        })
        .map_err(|e| match e.command() {
            Some(command) => format!("{}; the command is `{command}`", component_loader::refusal(&wanted, &e)),
            None => component_loader::refusal(&wanted, &e),
        })?;
        Ok(true)
    });
    let warnings = found.member.as_ref().map(FoundMember::warnings).unwrap_or_default();
    Surveyed { found, state, granted, standing, warnings }
}

/// Checks the directories that a host makes if they are missing, and that must be no symlinks or files.
fn check_directories(member: &Dir) -> Result<(), String> {
    for name in ["jobs", "memory"] {
        match member.symlink_metadata(name) {
            Ok(found) if found.is_dir() => {}
            Ok(found) if found.is_symlink() => {
                return Err(format!("{name} is a symlink, and none is followed; put a directory there"));
            }
            Ok(_) => return Err(format!("{name} is not a directory; remove it, or put a directory there")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{name} cannot be looked at: {error}")),
        }
    }
    Ok(())
}
