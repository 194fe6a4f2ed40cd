//! Refuses settings of a repository that cannot be switched off.
//!
//! Settings with a fixed name are overridden on the command line (`run/mod.rs`). These have names that the repository
//! chooses, or change which files are read. They are refused rather than overridden: without its filter, a file that
//! should be encrypted would silently be committed as plain text, and without its driver, a merge would silently be
//! wrong. Git has no way to read a repository without its configuration.
//!
//! They are read before each operation, since a user may add one at any time. Sessions cannot add any: they do not
//! write into `.git`, and a configuration that includes files is refused.

use std::path::Path;

use super::rules::{check_file, configured};
use crate::{error::GitError, run::Git};

const PROGRAM: &str =
    "which runs a program on the project's files; projects that need it are not supported: git config --unset KEY";
const INCLUDE: &str = "and what it includes can change unseen; copy its settings into .git/config";
const MOVED: &str = "which puts the working tree elsewhere; register a repository without it";
const PARTIAL: &str = "so it lacks files; fetch all: git fetch --refetch --no-filter, then unset KEY";

/// The reason that a key is refused.
fn refused(key: &str) -> Option<&'static str> {
    let (section, rest) = key.split_once('.')?;
    let name = rest.rsplit('.').next()?;
    // Git writes section and name in lower case.
    match (section, name) {
        ("filter", "clean" | "smudge" | "process") | ("merge", "driver") => Some(PROGRAM),
        // Hooks in the configuration, of git 2.54.
        ("hook", "command") => Some(PROGRAM),
        ("include" | "includeif", "path") => Some(INCLUDE),
        ("core", "worktree") => Some(MOVED),
        ("extensions", "partialclone") | ("remote", "promisor" | "partialclonefilter") => Some(PARTIAL),
        _ => None,
    }
}

/// Checks the settings of a worktree, and the repository's own files of patterns.
///
/// # Errors
///
/// [`GitError::RefusedSetting`], [`GitError::Rules`], or the settings cannot be read.
pub(crate) async fn check(git: &Git, worktree: &Path) -> Result<(), GitError> {
    let list = git.call(worktree, &["config", "--list", "-z"]).run().await?;
    for entry in String::from_utf8_lossy(&list).split('\0') {
        let (key, value) = entry.split_once('\n').unwrap_or((entry, ""));
        if let Some(why) = refused(key) {
            let (path, key) = (worktree.to_owned(), key.to_owned());
            return Err(GitError::RefusedSetting { path, key, why });
        }
        if matches!(key, "core.excludesfile" | "core.attributesfile") {
            check_file(&configured(key, value, worktree)?, worktree)?;
        }
    }
    Ok(())
}
