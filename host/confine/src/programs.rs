//! Finds the programs that the host starts.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::PathBuf,
};

/// `PATH` without its empty and relative elements, which depend on the working directory of a program: other users may
/// be able to write there, as in a worktree. `None` if no element is left, since an empty `PATH` would mean the working
/// directory.
pub fn search_path() -> Option<OsString> {
    let path = env::var_os("PATH")?;
    let absolute = env::join_paths(env::split_paths(&path).filter(|directory| directory.is_absolute()));
    absolute.ok().filter(|path| !path.is_empty())
}

/// The absolute path of a program: a name is looked up on the [`search_path`], a path is relative to the working
/// directory.
pub fn find_program(program: impl AsRef<OsStr>) -> Option<PathBuf> {
    which::which_in(program, search_path(), env::current_dir().unwrap_or_default()).ok()
}
