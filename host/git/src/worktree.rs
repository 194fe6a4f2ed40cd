//! Worktrees: making one so that a half-made one is known, removing it at once, and what is in it as a tree.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    error::GitError,
    lock::free,
    names::{AttemptBranch, CommitId, INTEGRATION_REF, OURS},
    repository::Repository,
    settings,
};

/// What a worktree has of its branch's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkout {
    /// `.lore/` and nothing else, not even files at the root.
    Sparse,
    /// All files.
    Full,
}

/// A worktree that is whole.
#[derive(Debug)]
pub(crate) struct Worktree {
    /// Its top directory.
    pub(crate) dir: PathBuf,
    /// Where git keeps its index and its HEAD.
    pub(crate) own: PathBuf,
}

/// What there is at the place of a worktree.
enum Found {
    /// Nothing, or an empty directory.
    Nothing,
    /// A worktree of the repository without an index: its making was interrupted. The checkout writes the index last.
    Half,
    Whole(Worktree),
    Other,
}

/// The changes of a worktree that are not committed.
#[derive(Default)]
struct Changes {
    some: bool,
    /// Files below `.lore` that the repository's rules ignore.
    ignored_lore: bool,
}

impl Repository {
    /// The worktree at this place, which has to be whole.
    pub(crate) fn worktree(&self, dir: &Path) -> Result<Worktree, GitError> {
        match self.found(dir)? {
            Found::Whole(worktree) => Ok(worktree),
            Found::Nothing | Found::Half | Found::Other => Err(self.not_a_worktree(dir)),
        }
    }

    fn not_a_worktree(&self, dir: &Path) -> GitError {
        GitError::NotAWorktree { dir: dir.to_owned(), path: self.path.clone() }
    }

    /// Looks without git, which would take a directory above for the worktree.
    fn found(&self, dir: &Path) -> Result<Found, GitError> {
        let failed = |source| GitError::File { path: dir.to_owned(), source };
        match dir.symlink_metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(e) => return Err(failed(e)),
            Ok(about) if !about.is_dir() => return Ok(Found::Other),
            Ok(_) if fs::read_dir(dir).map_err(failed)?.next().is_none() => return Ok(Found::Nothing),
            Ok(_) => {}
        }
        let link = fs::read_to_string(dir.join(".git")).unwrap_or_default();
        let own = link.strip_prefix("gitdir: ").and_then(|own| fs::canonicalize(dir.join(own.trim_end())).ok());
        Ok(match own.filter(|own| own.parent() == Some(&self.data.join("worktrees"))) {
            None => Found::Other,
            Some(own) if own.join("index").exists() => Found::Whole(Worktree { dir: dir.to_owned(), own }),
            Some(_) => Found::Half,
        })
    }

    /// The worktree of a branch, which is made where it is missing or half-made. The branch exists and has this tree. `begun`
    /// is called with the worktree's directory before the checkout.
    pub(crate) async fn make_worktree(
        &self,
        dir: &Path,
        branch: &str,
        tree: &str,
        checkout: Checkout,
        begun: impl AsyncFnOnce(&Path) -> Result<(), GitError>,
    ) -> Result<Worktree, GitError> {
        let dir = &place(dir)?;
        let listed = self.listed_worktrees().await?;
        if let Some((at, _)) = listed.iter().find(|(at, on)| at != dir && on.as_deref() == Some(branch)) {
            // It may be where the worktree was before the host's directory was moved.
            if at.exists() || *at == self.path {
                let branch = Self::short(branch).to_owned();
                return Err(GitError::CheckedOutElsewhere { branch, at: at.clone() });
            }
            self.forget(at).await?;
        }
        let registered = listed.iter().find(|(at, _)| at == dir);
        match self.found(dir)? {
            Found::Other => return Err(self.not_a_worktree(dir)),
            Found::Whole(worktree) => {
                if registered.is_some_and(|(_, on)| on.as_deref() == Some(branch)) {
                    return Ok(worktree);
                }
                return Err(GitError::OtherBranch { dir: dir.clone(), branch: Self::short(branch).to_owned() });
            }
            Found::Half => self.discard(dir).await?,
            Found::Nothing if registered.is_some() => self.forget(dir).await?,
            Found::Nothing => {}
        }
        self.check_tree(tree).await?;
        self.call(&["worktree", "add", "--no-checkout", "--quiet", "--"])
            .arg(dir)
            .arg(Self::short(branch))
            .run()
            .await?;
        let Found::Half = self.found(dir)? else { return Err(self.not_a_worktree(dir)) };
        let own = self.git.call(dir, &["rev-parse", "--path-format=absolute", "--git-dir"]).line().await?;
        let own = PathBuf::from(own);
        // Git may have copied patterns, and settings, from the user's working tree.
        let patterns = match checkout {
            Checkout::Sparse => "/.lore/\n",
            Checkout::Full => "/*\n",
        };
        let info = own.join("info");
        let written = fs::create_dir_all(&info).and_then(|()| fs::write(info.join("sparse-checkout"), patterns));
        written.map_err(|source| GitError::File { path: info, source })?;
        settings::check(&self.git, dir).await?;
        begun(dir).await?;
        self.git.call(dir, &["read-tree", "-m", "-u", "HEAD"]).run().await?;
        self.worktree(dir)
    }

    /// Removes the worktree of an attempt, whole or half-made, with what is not committed in it. The branch stays. Nothing
    /// happens where there is none.
    ///
    /// # Errors
    /// [`GitError::NotAWorktree`] where the directory is something else, or a worktree that is not an attempt's.
    pub async fn remove_worktree(&self, dir: &Path) -> Result<(), GitError> {
        let dir = &place(dir)?;
        let listed = self.listed_worktrees().await?;
        let registered = listed.iter().find(|(at, _)| at == dir);
        // The user's have other branches, or none. A half-made one may have none yet.
        let on = registered.and_then(|(_, on)| on.as_deref());
        let attempts = on.map(|on| on.starts_with(OURS) && on != INTEGRATION_REF);
        match self.found(dir)? {
            Found::Nothing if registered.is_some() => self.forget(dir).await,
            Found::Nothing => Ok(()),
            Found::Whole(_) if attempts == Some(true) => self.discard(dir).await,
            Found::Half if attempts != Some(false) => self.discard(dir).await,
            Found::Whole(_) | Found::Half | Found::Other => Err(self.not_a_worktree(dir)),
        }
    }

    /// Removes a worktree. Its directory leaves by one rename, so that none is ever half-removed.
    async fn discard(&self, dir: &Path) -> Result<(), GitError> {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let aside = dir.with_file_name(format!(".removed-{name}"));
        let (from, to) = (dir.to_owned(), aside.clone());
        let removed = tokio::task::spawn_blocking(move || {
            remove_all(&to)?;
            fs::rename(from, &to)?;
            remove_all(&to)
        });
        let removed = removed.await.unwrap_or_else(|e| Err(io::Error::other(e)));
        removed.map_err(|source| GitError::File { path: aside, source })?;
        self.forget(dir).await
    }

    /// Has git forget a worktree whose directory is gone, one whose making was interrupted too. `git worktree prune` would
    /// forget the user's own on a disk that is not mounted.
    async fn forget(&self, dir: &Path) -> Result<(), GitError> {
        // Git does not take an empty one for gone. One that is not empty stays.
        let _ = fs::remove_dir(dir);
        self.call(&["worktree", "remove", "-f", "-f", "--"]).arg(dir).run().await.map(drop)
    }

    /// All worktrees with the full names of their branches.
    async fn listed_worktrees(&self) -> Result<Vec<(PathBuf, Option<String>)>, GitError> {
        let listed = self.call(&["worktree", "list", "--porcelain", "-z"]).run().await?;
        let mut worktrees = Vec::new();
        for field in String::from_utf8_lossy(&listed).split('\0') {
            if let Some(path) = field.strip_prefix("worktree ") {
                worktrees.push((PathBuf::from(path), None));
            } else if let (Some(branch), Some((_, on))) = (field.strip_prefix("branch "), worktrees.last_mut()) {
                *on = Some(branch.to_owned());
            }
        }
        Ok(worktrees)
    }

    /// Commits all that is in the worktree of an attempt. `None`: it is all committed.
    ///
    /// Files that the project ignores are left out, except below `.lore`, where all files are work.
    ///
    /// # Errors
    /// [`GitError::NotAWorktree`], [`GitError::OtherBranch`], and those for what the tree must not have: submodules, files in
    /// LFS, other repositories, `.lore` as a link.
    pub async fn commit_all(
        &self,
        branch: &AttemptBranch,
        dir: &Path,
        message: &str,
    ) -> Result<Option<CommitId>, GitError> {
        let worktree = self.worktree(&place(dir)?)?;
        let dir = &worktree.dir;
        let on = self.git.call(dir, &["rev-parse", "--symbolic-full-name", "HEAD"]).line().await?;
        let head = self.tip(&on).await?.filter(|_| on == branch.full());
        let Some(head) = head else {
            return Err(GitError::OtherBranch { dir: dir.clone(), branch: branch.to_string() });
        };
        let tree = self.current_tree(&worktree, &head.tree).await?;
        if tree == head.tree {
            return Ok(None);
        }
        let commit = self.commit_tree(&tree, &head.commit, message).await?;
        match self.update_ref(&self.path, &on, &commit, Some(&head.commit)).await? {
            true => Ok(Some(commit)),
            false => Err(GitError::Busy { dir: dir.clone() }),
        }
    }

    /// All that is in a worktree as a tree, which is then what its index has, too. It is checked unless it is `head`, the
    /// tree of the commit that is checked out.
    pub(crate) async fn current_tree(&self, worktree: &Worktree, head: &str) -> Result<String, GitError> {
        let dir = &worktree.dir;
        settings::check(&self.git, dir).await?;
        free(&worktree.own.join("index.lock"), self.git.longest_run()).await?;
        let changes = self.changes(dir).await?;
        if !changes.some {
            return Ok(head.to_owned());
        }
        self.git.call(dir, &["add", "--all", "--sparse", "--", "."]).run().await?;
        if changes.ignored_lore {
            self.git.call(dir, &["add", "--all", "--sparse", "--force", "--", ".lore"]).run().await?;
        }
        let tree = self.git.call(dir, &["write-tree"]).line().await?;
        if tree != head
            && let Err(refused) = self.check_tree(&tree).await
        {
            // The next run must not look into a repository in the worktree as into a submodule.
            self.git.call(dir, &["read-tree", "HEAD"]).run().await?;
            return Err(refused);
        }
        Ok(tree)
    }

    /// Whether something is not committed.
    async fn changes(&self, dir: &Path) -> Result<Changes, GitError> {
        let status = ["status", "--porcelain=v2", "-z", "--untracked-files=all", "--ignored=matching", "--no-renames"];
        let listed = self.git.call(dir, &status).arg("--ignore-submodules=all").run().await?;
        let mut changes = Changes::default();
        for entry in String::from_utf8_lossy(&listed).split('\0') {
            let Some((kind, rest)) = entry.split_once(' ') else { continue };
            let dir = || dir.to_owned();
            match kind {
                // With conflict markers, it would be committed as if it were resolved.
                "u" => {
                    let file = rest.splitn(10, ' ').last().unwrap_or_default().to_owned();
                    return Err(GitError::Unmerged { dir: dir(), file });
                }
                "!" if rest.starts_with(".lore/") => changes.ignored_lore = true,
                "!" => continue,
                // Files are listed one by one, but for another repository. Its own configuration would apply in it.
                "?" if rest.ends_with('/') => {
                    return Err(GitError::NestedRepository { dir: dir(), file: rest.to_owned() });
                }
                _ => {}
            }
            changes.some = true;
        }
        Ok(changes)
    }
}

/// The place of a worktree as git writes it: its parent is made, and canonical.
fn place(dir: &Path) -> Result<PathBuf, GitError> {
    let failed = |source| GitError::File { path: dir.to_owned(), source };
    let (Some(parent), Some(name), true) = (dir.parent(), dir.file_name(), dir.is_absolute()) else {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "not an absolute path of a directory")));
    };
    fs::create_dir_all(parent).and_then(|()| fs::canonicalize(parent)).map(|parent| parent.join(name)).map_err(failed)
}

fn remove_all(dir: &Path) -> io::Result<()> {
    fs::remove_dir_all(dir).or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
}
