//! Makes, reads and removes worktrees. A half-made worktree is recognised, and a removal is atomic.

pub(crate) mod ignored;

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::{
    error::GitError,
    names::{AttemptBranch, CommitId, INTEGRATION_REF, OURS},
    repository::{Repository, Tip, rules::Whose, stale_locks::free},
};

/// How often an operation begins again because files appeared or vanished.
const TRIES: usize = 5;

/// The prefix of the name of a worktree that is being removed.
const REMOVED: &str = ".removed-";

/// Removes the rest of worktrees in a directory whose removal a crash interrupted. It blocks.
///
/// # Errors
///
/// The directory cannot be read. A worktree that cannot be removed is logged.
pub fn sweep_removed(worktrees: &Path) -> io::Result<()> {
    for entry in fs::read_dir(worktrees)? {
        let entry = entry?;
        let is_removed = entry.file_name().to_str().is_some_and(|name| name.starts_with(REMOVED));
        if is_removed && entry.file_type()?.is_dir() {
            let path = entry.path();
            match fs::remove_dir_all(&path) {
                Ok(()) => tracing::info!("removed {}, which a crash left behind", path.display()),
                Err(e) => tracing::warn!("{} cannot be removed: {e}", path.display()),
            }
        }
    }
    Ok(())
}

/// The part of its branch's files that a worktree has (REQ-SYS-29).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkout {
    /// Only `.lore/`, without files at the root.
    Sparse,
    /// All files.
    Full,
}

/// A whole worktree.
#[derive(Debug)]
pub(crate) struct Worktree {
    /// Its top directory.
    pub(crate) dir: PathBuf,
    /// The directory of its index and its HEAD.
    pub(crate) own: PathBuf,
}

/// The state of a worktree's place.
enum Found {
    /// Nothing, or an empty directory.
    Nothing,
    /// A worktree of the repository without an index, whose creation was interrupted, with the directory of its data.
    /// The checkout writes the index last.
    Half(PathBuf),
    Whole(Worktree),
    Other,
}

impl Repository {
    /// The worktree at this place; `None` if it is missing or half-made.
    pub(crate) fn worktree(&self, dir: &Path) -> Result<Option<Worktree>, GitError> {
        let dir = &place(dir)?;
        match self.found(dir)? {
            Found::Whole(worktree) => Ok(Some(worktree)),
            Found::Nothing | Found::Half(_) => Ok(None),
            Found::Other => Err(self.not_a_worktree(dir)),
        }
    }

    pub(crate) fn not_a_worktree(&self, dir: &Path) -> GitError {
        GitError::NotAWorktree { dir: dir.to_owned(), path: self.path.clone() }
    }

    /// Looks without git, which could mistake a directory above for the worktree.
    fn found(&self, dir: &Path) -> Result<Found, GitError> {
        let failed = |source| GitError::File { path: dir.to_owned(), source };
        match dir.symlink_metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(e) => return Err(failed(e)),
            Ok(about) if !about.is_dir() => return Ok(Found::Other),
            Ok(_) if fs::read_dir(dir).map_err(failed)?.next().is_none() => return Ok(Found::Nothing),
            Ok(_) => {}
        }
        Ok(match self.own_of(dir)? {
            None => Found::Other,
            Some(own) if own.join("index").exists() => Found::Whole(Worktree { dir: dir.to_owned(), own }),
            Some(own) => Found::Half(own),
        })
    }

    /// The directory of git's data of the worktree at `dir`; `None` if it is no worktree of this repository. A worktree
    /// and its repository name each other by absolute paths: if one of them or both were moved, the paths are written
    /// again.
    fn own_of(&self, dir: &Path) -> Result<Option<PathBuf>, GitError> {
        let file = dir.join(".git");
        let Some(named) = linked(&file) else { return Ok(None) };
        let Some(name) = named.file_name() else { return Ok(None) };
        let own = self.data.join("worktrees").join(name);
        let is_ours = fs::canonicalize(&named).ok().as_ref() == Some(&own);
        if !own.is_dir() || (!is_ours && named.exists()) {
            return Ok(None);
        }
        let back = fs::read_to_string(own.join("gitdir")).unwrap_or_default();
        let back = own.join(back.trim_end());
        // A copy of the directory can have hard links to the file, but not to the directory.
        let is_here = back == file || back.parent().is_some_and(|original| is_same(original, dir));
        if is_ours && is_here {
            return Ok(Some(own));
        }
        let original = back.parent().unwrap_or(&back);
        if !is_here && linked(&back).and_then(|own| fs::canonicalize(own).ok()).as_ref() == Some(&own) {
            let (dir, original, path) = (dir.to_owned(), original.to_owned(), self.path.clone());
            return Err(GitError::CopiedWorktree { dir, original, path });
        }
        // If neither names the other any more, the ends of the paths have to match.
        if !is_ours && !is_here && !end(original).eq(end(dir)) {
            return Ok(None);
        }
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| GitError::File { path, source }
        };
        if !is_here {
            let (to, new) = (own.join("gitdir"), own.join("gitdir.new"));
            let written = fs::write(&new, format!("{}\n", file.display())).and_then(|()| fs::rename(&new, &to));
            written.map_err(failed(&to))?;
        }
        if !is_ours {
            // The file is written beside the worktree, since all files in it are committed.
            let new = dir.with_file_name(format!(".link-{}", dir.file_name().unwrap_or_default().display()));
            let written =
                fs::write(&new, format!("gitdir: {}\n", own.display())).and_then(|()| fs::rename(&new, &file));
            written.map_err(failed(&file))?;
        }
        tracing::info!("{} and {} were moved apart, and know each other again", dir.display(), self.path.display());
        Ok(Some(own))
    }

    /// Makes the worktree of a branch if it is missing or half-made. `begun` is called with its directory before the
    /// checkout. The caller has checked the branch and the settings.
    pub(crate) async fn make_worktree(
        &self,
        dir: &Path,
        branch: &str,
        checkout: Checkout,
        begun: impl AsyncFnOnce(&Path) -> Result<(), GitError>,
    ) -> Result<Worktree, GitError> {
        let dir = &place(dir)?;
        if let Found::Half(_) = self.found(dir)? {
            self.discard(dir).await?;
        }
        let add = async || {
            let _alone = self.worktrees.lock().await;
            let add = self.call(&["worktree", "add", "--no-checkout", "--quiet", "--"]);
            add.arg(dir).arg(Self::short(branch)).run().await
        };
        if let Err(error) = add().await {
            self.make_room(dir, branch, error).await?;
            add().await?;
        }
        let Found::Half(own) = self.found(dir)? else { return Err(self.not_a_worktree(dir)) };
        // Git may have copied patterns and settings of the user's working tree.
        let patterns = own.join("info/sparse-checkout");
        let written = match checkout {
            Checkout::Sparse => fs::create_dir_all(own.join("info")).and_then(|()| fs::write(&patterns, "/.lore/\n")),
            Checkout::Full => gone(fs::remove_file(&patterns)),
        };
        written.map_err(|source| GitError::File { path: patterns, source })?;
        if own.join("config.worktree").exists() {
            self.check_settings(dir).await?;
        }
        begun(dir).await?;
        self.git.call(dir, &["read-tree", "-m", "-u", "HEAD"]).run().await?;
        Ok(Worktree { dir: dir.clone(), own })
    }

    /// Removes git's data of missing worktrees that are in the way of a new one.
    ///
    /// # Errors
    ///
    /// [`GitError::CheckedOutElsewhere`]; `error` if no worktree is in the way.
    async fn make_room(&self, dir: &Path, branch: &str, error: GitError) -> Result<(), GitError> {
        let mut error = Some(error);
        for (at, on) in self.listed_worktrees().await? {
            if at != dir && on.as_deref() == Some(branch) {
                // It may be the worktree's place before the host's directory was moved.
                if at.exists() || at == self.path {
                    return Err(GitError::CheckedOutElsewhere { branch: Self::short(branch).to_owned(), at });
                }
            } else if at != dir {
                continue;
            }
            self.forget(&at).await?;
            error = None;
        }
        error.map_or(Ok(()), Err)
    }

    /// Removes the worktree of an attempt, whole or half-made, with its uncommitted changes. The branch stays. A
    /// missing worktree is no error.
    ///
    /// # Errors
    ///
    /// [`GitError::NotAWorktree`] if the directory is no worktree of an attempt.
    pub async fn remove_worktree(&self, dir: &Path) -> Result<(), GitError> {
        let dir = &place(dir)?;
        // This comes first, since git lists the worktree at its place only then.
        let found = self.found(dir)?;
        let listed = self.listed_worktrees().await?;
        let registered = listed.iter().find(|(at, _)| at == dir);
        // The user's worktrees have other branches, or none. A half-made worktree may have none yet.
        let on = registered.and_then(|(_, on)| on.as_deref());
        let attempts = on.map(|on| on.starts_with(OURS) && on != INTEGRATION_REF);
        match found {
            Found::Nothing if registered.is_some() => self.forget(dir).await,
            Found::Nothing => Ok(()),
            Found::Whole(_) if attempts == Some(true) => self.discard(dir).await,
            Found::Half(_) if attempts != Some(false) => self.discard(dir).await,
            Found::Whole(_) | Found::Half(_) | Found::Other => Err(self.not_a_worktree(dir)),
        }
    }

    /// Removes a worktree. Its directory is renamed first, so that no worktree is ever half-removed.
    async fn discard(&self, dir: &Path) -> Result<(), GitError> {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let aside = dir.with_file_name(format!("{REMOVED}{name}"));
        let (from, to) = (dir.to_owned(), aside.clone());
        let removed = tokio::task::spawn_blocking(move || {
            gone(fs::remove_dir_all(&to))?;
            fs::rename(from, &to)?;
            fs::remove_dir_all(&to)
        });
        let removed = removed.await.unwrap_or_else(|e| Err(io::Error::other(e)));
        removed.map_err(|source| GitError::File { path: aside, source })?;
        self.forget(dir).await
    }

    /// Makes git forget a worktree whose directory is gone, also one whose creation was interrupted. `git worktree
    /// prune` would also forget the user's own on a disk that is not mounted.
    async fn forget(&self, dir: &Path) -> Result<(), GitError> {
        // Git does not consider an empty directory as gone. A directory that is not empty stays.
        let _ = fs::remove_dir(dir);
        let _alone = self.worktrees.lock().await;
        self.call(&["worktree", "remove", "-f", "-f", "--"]).arg(dir).run().await.map(drop)
    }

    /// All worktrees with the full names of their branches.
    async fn listed_worktrees(&self) -> Result<Vec<(PathBuf, Option<String>)>, GitError> {
        let _alone = self.worktrees.lock().await;
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

    /// The symbolic links of the commit that is checked out in a worktree, from its top. They are checked out as files
    /// that hold their targets: writing such a file changes the link.
    ///
    /// # Errors
    /// [`GitError::NotAWorktree`].
    pub async fn links(&self, dir: &Path) -> Result<Vec<String>, GitError> {
        let worktree = self.worktree(dir)?.ok_or_else(|| self.not_a_worktree(dir))?;
        let listed = self.git.call(&worktree.dir, &["ls-files", "--stage", "-z"]).run().await?;
        // `<mode> <object> <stage>`, a tab, and the file.
        let links = listed.split(|&byte| byte == 0).filter(|entry| entry.starts_with(b"120000 "));
        let files = links.filter_map(|entry| entry.splitn(2, |&byte| byte == b'\t').nth(1));
        Ok(files.map(|file| String::from_utf8_lossy(file).into_owned()).collect())
    }

    /// Commits all changes in the worktree of an attempt. `None`: there are none.
    ///
    /// Files that the project ignores are left out, except below `.lore`, where all files are work.
    ///
    /// # Errors
    ///
    /// [`GitError::NotAWorktree`], [`GitError::OtherBranch`], and the errors of a tree with submodules, files in LFS,
    /// other repositories, `.lore` as a link, or ignore and attribute files beyond their bounds.
    pub async fn commit_all(
        &self,
        branch: &AttemptBranch,
        dir: &Path,
        message: &str,
    ) -> Result<Option<CommitId>, GitError> {
        let worktree = self.worktree(dir)?.ok_or_else(|| self.not_a_worktree(dir))?;
        let dir = &worktree.dir;
        let head = self.on_branch(dir, &branch.full()).await?;
        let tree = self.current_tree(&worktree, &head.tree, Whose::Attempt).await?;
        if tree == head.tree {
            return Ok(None);
        }
        let commit = self.commit_tree(&tree, &head.commit, message).await?;
        match self.update_ref(&self.path, &branch.full(), &commit, Some(&head.commit)).await? {
            true => Ok(Some(commit)),
            false => Err(GitError::Busy { dir: dir.clone() }),
        }
    }

    /// The commit of a worktree, which has to be on this branch.
    pub(crate) async fn on_branch(&self, dir: &Path, branch: &str) -> Result<Tip, GitError> {
        let refs = self.refs(dir, &[branch]).await?;
        let head = refs.into_iter().find(|found| found.is_head).map(|found| found.tip);
        head.ok_or_else(|| GitError::OtherBranch { dir: dir.to_owned(), branch: Self::short(branch).to_owned() })
    }

    /// All files of a worktree as a tree, which its index has afterwards, too. `head` is the tree of the commit that is
    /// checked out; the differences from it are checked by [`Self::check_tree`] with `whose`.
    pub(crate) async fn current_tree(&self, worktree: &Worktree, head: &str, whose: Whose) -> Result<String, GitError> {
        let dir = &worktree.dir;
        self.check_settings(dir).await?;
        if dir.join(".lore").symlink_metadata().is_ok_and(|about| !about.is_dir()) {
            return Err(GitError::LoreNotADirectory { path: dir.clone(), file: ".lore".to_owned() });
        }
        free(&worktree.own.join("index.lock"), self.git.longest_run()).await?;
        let Some(tree) = self.add_all(dir, &worktree.own.join("index")).await? else { return Ok(head.to_owned()) };
        if tree != head
            && let Err(refused) = self.check_tree(&tree, Some(head), whose).await
        {
            // The next run must not treat a repository in the worktree as a submodule.
            self.git.call(dir, &["read-tree", "HEAD"]).run().await?;
            return Err(refused);
        }
        Ok(tree)
    }

    /// All files of a worktree whose attempt is under way, as a tree. The worktree's index stays as it is. `head` is the
    /// tree of the commit that is checked out.
    pub(crate) async fn tree_so_far(&self, worktree: &Worktree, head: &str) -> Result<String, GitError> {
        self.check_settings(&worktree.dir).await?;
        let own = worktree.own.join("index");
        let copied = tempfile::tempdir().and_then(|temporary| {
            let index = temporary.path().join("index");
            fs::copy(&own, &index).map(|_| (temporary, index))
        });
        let (_temporary, index) = copied.map_err(|source| GitError::File { path: own, source })?;
        Ok(self.add_all(&worktree.dir, &index).await?.unwrap_or_else(|| head.to_owned()))
    }

    /// Adds all files of a worktree to an index, and writes its tree. `None`: there are no changes.
    async fn add_all(&self, dir: &Path, index: &Path) -> Result<Option<String>, GitError> {
        let mut tries = 0;
        loop {
            let Some(changed) = self.changes(dir, index).await? else { return Ok(None) };
            let add = ["--literal-pathspecs", "add", "--all", "--force", "--sparse", "--pathspec-from-file=-"];
            let add = self.git.call(dir, &add).arg("--pathspec-file-nul").input(changed).index(index);
            match add.run().await {
                Ok(_) => break Ok(Some(self.git.call(dir, &["write-tree"]).index(index).line().await?)),
                // A file that vanished meanwhile is an error.
                Err(GitError::Failed { .. }) if tries < TRIES => tries += 1,
                Err(error) => break Err(error),
            }
        }
    }

    /// The files that differ from the index, each with a zero byte behind it. `None`: nothing differs, not even the
    /// index from the commit.
    async fn changes(&self, dir: &Path, index: &Path) -> Result<Option<Vec<u8>>, GitError> {
        let status = ["status", "--porcelain=v2", "-z", "--untracked-files=all", "--ignored=matching", "--no-renames"];
        let listed = self.git.call(dir, &status).arg("--ignore-submodules=all").index(index).run().await?;
        let (mut changed, mut some) = (Vec::new(), false);
        for entry in listed.split(|&byte| byte == 0) {
            // `<kind> <index><worktree> ...`. The file stands behind the last of so many fields, and may have blanks.
            let fields = match entry.first() {
                Some(b'1') => 9,
                Some(b'u') => 11,
                Some(b'?' | b'!') => 2,
                _ => continue,
            };
            let file = entry.splitn(fields, |&byte| byte == b' ').last().unwrap_or_default();
            let named = || (dir.to_owned(), String::from_utf8_lossy(file).into_owned());
            match entry.first() {
                // With its conflict markers, it would be committed as if it were resolved.
                Some(b'u') => {
                    let (dir, file) = named();
                    return Err(GitError::Unmerged { dir, file });
                }
                // Files are listed one by one, except another repository, whose own configuration would apply in it.
                Some(b'?') if file.ends_with(b"/") => {
                    let (dir, file) = named();
                    return Err(GitError::NestedRepository { dir, file });
                }
                Some(b'!') if !file.starts_with(b".lore/") => continue,
                _ => some = true,
            }
            // A change that is only in the index is there already, and may be nowhere else.
            if entry.first() != Some(&b'1') || entry.get(3) != Some(&b'.') {
                changed.extend_from_slice(file);
                changed.push(0);
            }
        }
        Ok(some.then_some(changed))
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

/// The target of a worktree's `.git`, which need not exist.
fn linked(file: &Path) -> Option<PathBuf> {
    let link = fs::read_to_string(file).ok()?;
    let own = link.strip_prefix("gitdir: ")?.trim_end();
    file.parent().map(|dir| dir.join(own))
}

/// Whether both paths are of the same existing file.
fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.metadata(), other.metadata()), (Ok(one), Ok(other)) if (one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// The last names of the path of a worktree: its own, and that of its directory.
fn end(dir: &Path) -> impl Iterator<Item = &OsStr> {
    dir.iter().rev().take(2)
}

/// Ignores the error of removing a missing file.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
}
