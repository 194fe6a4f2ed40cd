//! Where the operator's policy and the members are.

use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use guild_contract::manifest::FILE_NAME;
use guild_server::{
    config::Config,
    discovery::{Found, discover, open_directory},
};

use crate::{args::House, failure::Failure};

/// The directory of members where neither an option nor `guild.toml` names one.
const MEMBERS: &str = "guild-members";

/// The operator's `guild.toml`.
pub(crate) fn config(option: Option<&Path>) -> Result<Config, Failure> {
    Config::load(option).map_err(|e| Failure::error(e.to_string()))
}

/// The directory of members: the option's, else `guild.toml`'s, else `guild-members` where that exists.
pub(crate) fn members_directory(option: Option<&Path>, config: &Config) -> Result<PathBuf, Failure> {
    let named = option.or(config.members.as_deref());
    let directory = named.unwrap_or(Path::new(MEMBERS));
    if directory.is_dir() {
        return Ok(directory.to_owned());
    }
    Err(Failure::error(match named {
        Some(named) => format!("the directory of members {} does not exist", named.display()),
        None => format!(
            "there is no ./{MEMBERS} here; name the directory of members with --members DIR, or `members` in guild.toml"
        ),
    }))
}

/// The directory of one member: a directory with a manifest, or a key in the directory of members.
pub(crate) fn member_directory(member: &str, house: &House, config: &Config) -> Result<PathBuf, Failure> {
    let itself = PathBuf::from(member);
    if itself.join(FILE_NAME).is_file() {
        return Ok(itself);
    }
    let found = members_directory(house.members.as_deref(), config).ok().map(|members| members.join(member));
    match found {
        Some(found) if found.join(FILE_NAME).is_file() => Ok(found),
        Some(looked) => Err(Failure::error(format!(
            "no member {member:?}: there is a {FILE_NAME} neither in {} nor in {}; `guild members` shows the keys",
            itself.display(),
            looked.display()
        ))),
        None => Err(Failure::error(format!(
            "no member {member:?}: {} has no {FILE_NAME}, and no directory of members is known (--members DIR)",
            itself.display()
        ))),
    }
}

/// What is in the directory of members.
pub(crate) fn discovered(directory: &Path) -> Result<Vec<Found>, Failure> {
    open(directory)
        .and_then(|dir| discover(&dir).map_err(|e| Failure::error(format!("cannot read {}: {e}", directory.display()))))
}

/// Opens a directory that the person named.
pub(crate) fn open(directory: &Path) -> Result<Dir, Failure> {
    open_directory(directory).map_err(|e| Failure::error(format!("cannot open {}: {e}", directory.display())))
}
