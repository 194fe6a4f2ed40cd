//! Merges two commits into a tree. No worktree, index or ref takes part.

use std::{collections::BTreeMap, path::Path};

use crate::{error::GitError, names::CommitId, repository::Repository};

/// The tree of a merge.
pub(crate) enum Merged {
    Tree(String),
    /// The files with unresolved conflicts.
    Conflicts(Vec<String>),
}

/// The entry of `theirs` for each file with conflicts: `<mode> <object>`, or nothing.
type Conflicts = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

impl Repository {
    /// Merges two commits since their common ancestor. If only files below `.lore` have conflicts, these files are
    /// taken from `theirs`. The attributes are those of the files in `dir`.
    pub(crate) async fn merge_trees(&self, dir: &Path, ours: &CommitId, theirs: &CommitId) -> Result<Merged, GitError> {
        let (tree, conflicts) = self.try_merge(dir, ours, theirs).await?;
        if conflicts.is_empty() {
            return Ok(Merged::Tree(tree));
        }
        let outside = named(conflicts.keys().filter(|file| !file.starts_with(b".lore/")));
        if !outside.is_empty() {
            return Ok(Merged::Conflicts(outside));
        }
        let mut changed = Vec::new();
        let nothing = format!("0 {}", "0".repeat(tree.len()));
        for (file, theirs) in conflicts {
            changed.extend_from_slice(theirs.as_deref().unwrap_or(nothing.as_bytes()));
            changed.push(b'\t');
            changed.extend_from_slice(&file);
            changed.push(0);
        }
        self.change_tree(&tree, changed).await.map(Merged::Tree)
    }

    /// Merges trees like [`Self::merge_trees`], but every conflict stays unresolved, since both sides may be a person's.
    pub(crate) async fn merge_cleanly(
        &self,
        dir: &Path,
        ours: &CommitId,
        theirs: &CommitId,
    ) -> Result<Merged, GitError> {
        let (tree, conflicts) = self.try_merge(dir, ours, theirs).await?;
        Ok(if conflicts.is_empty() { Merged::Tree(tree) } else { Merged::Conflicts(named(conflicts.keys())) })
    }

    /// The tree of a merge, with conflict markers in the files that have conflicts.
    async fn try_merge(&self, dir: &Path, ours: &CommitId, theirs: &CommitId) -> Result<(String, Conflicts), GitError> {
        let merge = ["merge-tree", "--write-tree", "--no-messages", "-z", ours.as_str(), theirs.as_str()];
        let (_, said) = self.git.call(dir, &merge).codes(&[0, 1]).await?;
        let mut fields = said.split(|&byte| byte == 0).filter(|field| !field.is_empty());
        let tree = String::from_utf8_lossy(fields.next().unwrap_or_default()).into_owned();
        let mut conflicts = Conflicts::new();
        for field in fields {
            // `<mode> <object> <stage>` and the file. Stage 3 is of `theirs`.
            let Some(tab) = field.iter().position(|&byte| byte == b'\t') else { continue };
            let (about, file) = (field.get(..tab).unwrap_or_default(), field.get(tab + 1..).unwrap_or_default());
            let entry = conflicts.entry(file.to_owned()).or_default();
            if let Some(theirs) = about.strip_suffix(b" 3") {
                *entry = Some(theirs.to_owned());
            }
        }
        Ok((tree, conflicts))
    }

    /// A tree with other entries, as `git update-index --index-info -z` reads them. Mode 0 removes one.
    async fn change_tree(&self, tree: &str, entries: Vec<u8>) -> Result<String, GitError> {
        let failed = |source| GitError::File { path: std::env::temp_dir(), source };
        let temporary = tempfile::tempdir().map_err(failed)?;
        let index = &temporary.path().join("index");
        self.call(&["read-tree", tree]).index(index).run().await?;
        self.call(&["update-index", "-z", "--index-info"]).index(index).input(entries).run().await?;
        self.call(&["write-tree"]).index(index).line().await
    }
}

fn named<'a>(files: impl Iterator<Item = &'a Vec<u8>>) -> Vec<String> {
    files.map(|file| String::from_utf8_lossy(file).into_owned()).collect()
}
