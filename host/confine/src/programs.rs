//! Where programs that the host starts are looked for, by the host and by the programs themselves.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::PathBuf,
};

/// `PATH` without its empty and relative elements. Those depend on the directory where a program works, which can be one
/// that others write, such as a worktree. `None` where nothing is left: an empty `PATH` would mean the working directory.
pub fn search_path() -> Option<OsString> {
    let path = env::var_os("PATH")?;
    let absolute = env::join_paths(env::split_paths(&path).filter(|directory| directory.is_absolute()));
    absolute.ok().filter(|path| !path.is_empty())
}

/// The absolute path of a program: a name is looked up on the [`search_path`], a path is one from the working directory.
pub fn find_program(program: impl AsRef<OsStr>) -> Option<PathBuf> {
    which::which_in(program, search_path(), env::current_dir().unwrap_or_default()).ok()
}
