//! Finds the host's own directories among the user's directories, outside of every member.

use std::{env, path::PathBuf};

/// The directory of compiled components, of hosts that serve.
pub fn cache() -> Option<PathBuf> {
    of_user("XDG_CACHE_HOME", ".cache").map(|caches| caches.join("components"))
}

/// The directory of compiled components of `guild dev` and `guild test`. Each build makes other ones, which would evict
/// those of hosts that serve.
pub fn dev_cache() -> Option<PathBuf> {
    of_user("XDG_CACHE_HOME", ".cache").map(|caches| caches.join("components-dev"))
}

/// The directory of state that outlives a host: the audit log, and the directories of the next two functions.
pub fn state() -> Option<PathBuf> {
    of_user("XDG_STATE_HOME", ".local/state")
}

/// The directory in which running hosts leave files for other processes of the user. It is not in `$XDG_RUNTIME_DIR`:
/// MCP clients start their servers with few variables, and all processes have to find the same directory.
pub fn running() -> Option<PathBuf> {
    state().map(|state| state.join("run"))
}

/// The directory of sessions of the Claude Code CLI.
pub fn claude() -> Option<PathBuf> {
    state().map(|state| state.join("claude"))
}

/// `guild` in the directory that a variable names, else in the usual place in the home directory. A relative path would
/// lead to the working directory, and the base directory specification requires ignoring it.
fn of_user(variable: &str, usual: &str) -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = absolute(variable).or_else(|| Some(absolute("HOME")?.join(usual)))?;
    Some(directory.join("guild"))
}
