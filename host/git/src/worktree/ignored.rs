//! Finds the files of a worktree that a project's ignore files exclude from commits.

use std::path::Path;

use super::Worktree;
use crate::{error::GitError, repository::Repository};

/// The prefix that makes a path literal and relative to the top of a worktree.
const HERE: &str = "./";

/// The rule that excludes a file from commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoreRule {
    /// The excluded file, from the top of the worktree.
    pub path: String,
    /// The pattern.
    pub pattern: String,
    /// The file that has the rule, as git names it.
    pub source: String,
    /// The rule's line there.
    pub line: String,
}

impl Repository {
    /// The files among `paths` that git excludes from a commit of a worktree, each with its rule. Tracked files are
    /// never excluded.
    ///
    /// # Errors
    ///
    /// [`GitError::NotAWorktree`], or git failed.
    pub async fn ignored(&self, dir: &Path, paths: &[&str]) -> Result<Vec<IgnoreRule>, GitError> {
        let Worktree { dir, .. } = self.worktree(dir)?.ok_or_else(|| self.not_a_worktree(dir))?;
        self.check_settings(&dir).await?;
        // Git would interpret a colon at the beginning.
        let input = paths.iter().flat_map(|path| HERE.bytes().chain(path.bytes()).chain([0])).collect();
        let ask = self.git.call(&dir, &["check-ignore", "--verbose", "-z", "--stdin"]).input(input);
        // Exit code 1: none is excluded.
        let (_, said) = ask.codes(&[0, 1]).await?;
        let said = String::from_utf8_lossy(&said);
        let fields: Vec<&str> = said.split('\0').collect();
        let read = |fields: &[&str]| {
            let [source, line, pattern, path]: [&str; 4] = fields.try_into().ok()?;
            let path = path.strip_prefix(HERE).unwrap_or(path);
            let [source, line, pattern, path] = [source, line, pattern, path].map(str::to_owned);
            // The last rule that matches may be one that keeps the file.
            (!pattern.starts_with('!')).then_some(IgnoreRule { path, pattern, source, line })
        };
        Ok(fields.chunks_exact(4).filter_map(read).collect())
    }

    /// The files and directories of a worktree that its rules exclude from commits, from its top. Documents are not
    /// among them, since all are committed.
    ///
    /// # Errors
    /// Returns the errors of [`Self::ignored`].
    pub async fn left_out(&self, dir: &Path) -> Result<Vec<String>, GitError> {
        let Worktree { dir, .. } = self.worktree(dir)?.ok_or_else(|| self.not_a_worktree(dir))?;
        self.check_settings(&dir).await?;
        let list = ["status", "--porcelain", "-z", "--ignored=matching", "--untracked-files=all", "--no-renames"];
        let listed = self.git.call(&dir, &list).arg("--ignore-submodules=all").run().await?;
        let entries = listed.split(|&byte| byte == 0).map(String::from_utf8_lossy);
        let files = entries.filter_map(|entry| entry.strip_prefix("!! ").map(str::to_owned));
        Ok(files.filter(|file| !file.starts_with(".lore/")).collect())
    }
}
