//! The host's own places in the user's directories: outside of every member.

use std::{env, path::PathBuf};

/// Compiled components.
pub fn cache() -> Option<PathBuf> {
    of_user("XDG_CACHE_HOME", ".cache").map(|caches| caches.join("components"))
}

/// What outlives a host and is no configuration: the audit log, and what is below.
pub fn state() -> Option<PathBuf> {
    of_user("XDG_STATE_HOME", ".local/state")
}

/// What running hosts leave for other processes of the user. It is not `$XDG_RUNTIME_DIR`: clients of MCP start their servers
/// with few variables, and all processes have to find the same directory.
pub fn running() -> Option<PathBuf> {
    state().map(|state| state.join("run"))
}

/// The sessions of the Claude Code CLI.
pub fn claude() -> Option<PathBuf> {
    state().map(|state| state.join("claude"))
}

/// `guild` in the directory that a variable names, else in its usual place at home. A relative path would lead to the
/// working directory; the base directory specification has it ignored.
fn of_user(variable: &str, usual: &str) -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = absolute(variable).or_else(|| Some(absolute("HOME")?.join(usual)))?;
    Some(directory.join("guild"))
}
