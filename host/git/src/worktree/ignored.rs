//! Finds the files of a worktree that the rules of a project leave out of commits.

use std::path::Path;

use super::Worktree;
use crate::{error::GitError, repository::Repository};

/// What a path begins with that is from the top of a worktree and nothing else.
const HERE: &str = "./";

/// The rule by which a file is left out of commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoreRule {
    /// The file that is left out, from the top of the worktree.
    pub path: String,
    /// The pattern.
    pub pattern: String,
    /// The file that has the rule, as git names it.
    pub source: String,
    /// The rule's line there.
    pub line: String,
}

impl Repository {
    /// Those of these files that git leaves out of a commit of a worktree, each with its rule. Files that are tracked are never
    /// left out, whatever the rules say.
    ///
    /// # Errors
    /// [`GitError::NotAWorktree`], or why git cannot tell.
    pub async fn ignored(&self, dir: &Path, paths: &[&str]) -> Result<Vec<IgnoreRule>, GitError> {
        let Worktree { dir, .. } = self.worktree(dir)?.ok_or_else(|| self.not_a_worktree(dir))?;
        self.check_settings(&dir).await?;
        // A colon at the beginning would have a meaning to git.
        let input = paths.iter().flat_map(|path| HERE.bytes().chain(path.bytes()).chain([0])).collect();
        let ask = self.git.call(&dir, &["check-ignore", "--verbose", "-z", "--stdin"]).input(input);
        // 1: none is left out.
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

    /// The files and directories of a worktree that its rules leave out of commits, from its top. All documents are committed,
    /// so none of those is among them.
    ///
    /// # Errors
    /// As [`Self::ignored`].
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
