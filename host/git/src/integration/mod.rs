//! Keeps the integration worktree, which attempts start from and are merged into.
//!
//! Three things belong together: the tip of `claude/main`, the files of the worktree, and the commit that those files
//! were made from, which is the ref `refs/worktree/guild-base` of that worktree. A merge moves the tip first, in one
//! step that compares and swaps, then the files, then the base. So after a crash at any moment, the loose changes of
//! the worktree are its differences from its *base*. Compared with the tip, a merge whose files are not written yet
//! would look like a change that reverts it.
//!
//! [`Integration::sync`] brings the three together and is the first step of each operation: it commits loose changes as
//! a change of the base, merged with the tip if that is another commit, then moves files and base to the tip. If a
//! crash left some files new and others old, the new ones are the same change on both sides of that merge. A file that
//! git was killed in the middle of writing is a change of its own: of code, it is a conflict that names the file; below
//! `.lore` it is committed, and the commit before has it whole.

pub(crate) mod follow;
mod merge;

use std::path::{Path, PathBuf};

use tokio::sync::{Mutex, MutexGuard};

use self::merge::Merged;
use crate::{
    error::GitError,
    names::{AttemptBranch, CommitId, INTEGRATION_BRANCH, INTEGRATION_REF},
    repository::{Repository, Tip, rules::Whose},
    worktree::{Checkout, Worktree},
};

/// The commit that the files of the integration worktree were made from.
const BASE_REF: &str = "refs/worktree/guild-base";
/// The message of a commit of loose changes.
const LOOSE: &str = "Save changes of the integration worktree\n";
/// The prefix of the paths of documents.
const LORE: &str = ".lore/";
/// The word in a squash commit before the commit that it took its changes from. It tells a finished merge from an
/// unfinished one if the host ended in between.
const SQUASHED_FROM: &str = "Squashed-From: ";
/// How often an operation begins again because another process changed the branch or the worktree.
const TRIES: usize = 5;

/// The worktree of [`INTEGRATION_BRANCH`]. There must be one value for each project: operations that change the
/// worktree wait for each other.
#[derive(Debug)]
pub struct Integration {
    repository: Repository,
    dir: PathBuf,
    alone: Mutex<()>,
}

/// The current state of the branch and the worktree.
struct State {
    /// The branch's tip.
    main: Tip,
    base: Tip,
    /// The tree of the files.
    files: String,
}

/// The result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The branch's changes are one commit on [`INTEGRATION_BRANCH`].
    Merged {
        /// The commit, which has one parent.
        commit: CommitId,
    },
    /// [`INTEGRATION_BRANCH`] has all changes of the branch already.
    NothingToMerge,
    /// Both sides changed files outside of `.lore/` in the same places. Nothing was merged.
    Conflicts {
        /// Their paths in the project.
        files: Vec<String>,
    },
}

impl Repository {
    /// The integration worktree at `dir`, an absolute path. The branch begins at the default branch's tip if it is
    /// missing. A missing worktree is made, also again.
    ///
    /// # Errors
    ///
    /// [`GitError::CheckedOutElsewhere`], [`GitError::NotAWorktree`] or [`GitError::OtherBranch`] if another worktree
    /// or file is in the way, and the errors of committing loose changes.
    pub async fn integration(&self, dir: &Path) -> Result<Integration, GitError> {
        let integration = Integration { repository: self.clone(), dir: dir.to_owned(), alone: Mutex::default() };
        integration.sync().await?;
        Ok(integration)
    }
}

impl Integration {
    /// The repository.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// The worktree's top directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts an attempt: commits the loose changes of the integration worktree, makes the branch from there, and makes
    /// its worktree at `dir`, an absolute path.
    ///
    /// After a crash at any point the same call continues: an existing branch is unchanged, and a whole worktree keeps
    /// its files.
    ///
    /// # Errors
    /// Returns the errors of [`Repository::integration`].
    pub async fn start_attempt(&self, branch: &AttemptBranch, dir: &Path, checkout: Checkout) -> Result<(), GitError> {
        let (repository, full) = (&self.repository, branch.full());
        if let Some(whole) = repository.worktree(dir)? {
            return repository.on_branch(&whole.dir, &full).await.map(drop);
        }
        let alone = self.alone.lock().await;
        let main = self.sync().await?;
        let is_new = repository.update_ref(&repository.path, &full, &main.commit, None).await?;
        drop(alone);
        if !is_new && let Some(tip) = repository.tip(&full).await? {
            repository.check(&tip).await?;
        }
        repository.make_worktree(dir, &full, checkout, async |_| Ok(())).await.map(drop)
    }

    /// Runs `work` on the worktree's top directory while no operation changes the files. The next operation commits its
    /// changes.
    ///
    /// # Errors
    /// Returns the errors of [`Repository::integration`].
    pub async fn with_files<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> T + Send + 'static,
    ) -> Result<T, GitError> {
        let _alone = self.alone.lock().await;
        self.work(work).await
    }

    /// Works like [`Self::with_files`], and commits the changes that `work` made. `work` returns the message of the commit,
    /// too. Earlier loose changes become a commit of their own.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::commit_loose`]. The changes stay there then, and the next operation commits them.
    pub async fn edit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> (T, String) + Send + 'static,
    ) -> Result<T, GitError> {
        let _alone = self.alone.lock().await;
        self.sync().await?;
        let (done, message) = self.work(work).await?;
        self.sync_as(&quoted(&message)).await?;
        Ok(done)
    }

    /// The uncommitted files of the worktree.
    ///
    /// # Errors
    /// Returns the errors of [`Repository::integration`].
    pub async fn loose(&self) -> Result<Vec<String>, GitError> {
        let _alone = self.alone.lock().await;
        self.list_loose().await
    }

    /// Commits the loose changes with this message, if some are below `.lore/`. Otherwise this changes nothing and
    /// returns `false`.
    ///
    /// # Errors
    /// Returns the errors of [`Self::commit_loose`].
    pub async fn commit_lore(&self, message: &str) -> Result<bool, GitError> {
        let _alone = self.alone.lock().await;
        let some = self.list_loose().await?.iter().any(|file| file.starts_with(LORE));
        if some {
            self.sync_as(&quoted(message)).await?;
        }
        Ok(some)
    }

    /// The tip of [`INTEGRATION_BRANCH`] after the loose changes were committed.
    ///
    /// # Errors
    /// Returns the errors of [`Self::commit_loose`].
    pub async fn tip(&self) -> Result<CommitId, GitError> {
        let _alone = self.alone.lock().await;
        Ok(self.sync().await?.commit)
    }

    /// Commits the loose changes of the integration worktree, and moves it to the tip of [`INTEGRATION_BRANCH`] if a
    /// crash left it behind. Other operations do this first.
    ///
    /// # Errors
    /// Returns the errors of [`Repository::integration`] and [`GitError::LooseConflict`].
    pub async fn commit_loose(&self) -> Result<(), GitError> {
        let _alone = self.alone.lock().await;
        self.sync().await.map(drop)
    }

    /// Merges an attempt's branch as one commit with this message, to which a line with the branch's commit is added.
    ///
    /// If both sides changed the same places only in files below `.lore/`, the attempt's files are taken. For a branch
    /// that was merged before, this returns that commit.
    ///
    /// # Errors
    ///
    /// [`GitError::NoBranch`], the errors of a tree with forbidden files, [`GitError::DocumentQuota`], and as
    /// [`Repository::integration`]. Nothing was merged then.
    pub async fn merge_squash(&self, branch: &AttemptBranch, message: &str) -> Result<Merge, GitError> {
        let repository = &self.repository;
        let _alone = self.alone.lock().await;
        for _ in 0..TRIES {
            let main = self.sync().await?;
            let Some(attempt) = repository.tip(&branch.full()).await? else {
                return Err(GitError::NoBranch { path: repository.path.clone(), branch: branch.to_string() });
            };
            if let Some(commit) = self.squashed(&main, &attempt).await? {
                return Ok(Merge::Merged { commit });
            }
            let tree = match repository.merge_trees(&self.dir, &main.commit, &attempt.commit).await? {
                Merged::Conflicts(files) => return Ok(Merge::Conflicts { files }),
                Merged::Tree(tree) if tree == main.tree => return Ok(Merge::NothingToMerge),
                Merged::Tree(tree) => tree,
            };
            repository.check_tree(&tree, Some(&main.tree), Whose::Attempt).await?;
            repository.check_documents(&main.tree, &tree).await?;
            let message = format!("{}\n\n{SQUASHED_FROM}{}\n", message.trim_end(), attempt.commit);
            let commit = repository.commit_tree(&tree, &main.commit, &message).await?;
            if self.advance(&main, &commit).await? {
                self.show_moved(&main, &Tip { commit: commit.clone(), tree }).await;
                return Ok(Merge::Merged { commit });
            }
        }
        Err(self.busy())
    }

    /// Moves the worktree to the branch, which was moved.
    pub(crate) async fn show_moved(&self, from: &Tip, to: &Tip) {
        // A file that was written since is merged first.
        if !matches!(self.show(&self.dir, &from.tree, from, to).await, Ok(true))
            && let Err(e) = self.sync().await
        {
            let dir = self.dir.display();
            tracing::warn!("{dir} does not show the last merge yet, and will after the next operation: {e}");
        }
    }

    /// Held while an operation changes the branch or the worktree.
    pub(crate) async fn alone(&self) -> MutexGuard<'_, ()> {
        self.alone.lock().await
    }

    async fn work<T: Send + 'static>(&self, work: impl FnOnce(&Path) -> T + Send + 'static) -> Result<T, GitError> {
        let dir = self.dir.clone();
        let done = tokio::task::spawn_blocking(move || work(&dir)).await;
        done.map_err(|e| GitError::File { path: self.dir.clone(), source: std::io::Error::other(e) })
    }

    async fn list_loose(&self) -> Result<Vec<String>, GitError> {
        let repository = &self.repository;
        let Some(worktree) = repository.worktree(&self.dir)? else { return Ok(Vec::new()) };
        let State { main, base, files } = self.state(&worktree).await?;
        if files == base.tree || files == main.tree {
            return Ok(Vec::new());
        }
        let compare = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", &base.tree, &files];
        let listed = repository.call(&compare).run().await?;
        let files = listed.split(|&byte| byte == 0).filter(|file| !file.is_empty());
        Ok(files.map(|file| String::from_utf8_lossy(file).into_owned()).collect())
    }

    pub(crate) fn busy(&self) -> GitError {
        GitError::Busy { dir: self.dir.clone() }
    }

    /// The commit by which the attempt's commit was merged.
    async fn squashed(&self, main: &Tip, attempt: &Tip) -> Result<Option<CommitId>, GitError> {
        let since = format!("{}..{}", attempt.commit, main.commit);
        let list = ["rev-list", "--no-commit-header", "--format=%H%n%B%x00", &since];
        let list = self.repository.call(&list).run().await?;
        let wanted = format!("{SQUASHED_FROM}{}", attempt.commit);
        Ok(String::from_utf8_lossy(&list).split('\0').find_map(|entry| {
            let (commit, message) = entry.trim_start().split_once('\n')?;
            // Only the last line is certainly not the attempt's.
            (message.trim_end().lines().next_back() == Some(&wanted)).then(|| CommitId(commit.to_owned()))
        }))
    }

    /// Moves the branch to a new tip. `false`: another process moved it.
    pub(crate) async fn advance(&self, main: &Tip, commit: &CommitId) -> Result<bool, GitError> {
        let repository = &self.repository;
        repository.update_ref(&repository.path, INTEGRATION_REF, commit, Some(&main.commit)).await
    }

    /// Brings the branch, the worktree and its base together, see the top of this file. Returns the branch's new tip.
    pub(crate) async fn sync(&self) -> Result<Tip, GitError> {
        self.sync_as(LOOSE).await
    }

    /// Works like [`Self::sync`], with this message for the commit of loose changes.
    async fn sync_as(&self, message: &str) -> Result<Tip, GitError> {
        let repository = &self.repository;
        let worktree = match repository.worktree(&self.dir)? {
            Some(worktree) => worktree,
            None => self.make().await?,
        };
        let dir = &worktree.dir;
        let mut trouble = None;
        for _ in 0..TRIES {
            let State { main, base, files } = self.state(&worktree).await?;
            let tip = if files == base.tree || files == main.tree {
                main
            } else {
                match self.save(&main, &base, &files, message).await? {
                    Some(tip) => tip,
                    None => continue,
                }
            };
            match self.show(dir, &files, &base, &tip).await {
                Ok(true) => return Ok(tip),
                Ok(false) => {}
                Err(e) => trouble = Some(e),
            }
        }
        Err(trouble.unwrap_or_else(|| self.busy()))
    }

    /// Reads the branch, the files and the base. All files of the worktree are in its index afterwards.
    async fn state(&self, worktree: &Worktree) -> Result<State, GitError> {
        let (repository, dir) = (&self.repository, &worktree.dir);
        // The base is read before the files: a base older than the files is harmless, a newer one reverts a merge.
        let (mut main, mut base) = (None, None);
        for found in repository.refs(dir, &[INTEGRATION_REF, BASE_REF]).await? {
            match found.name == BASE_REF {
                true => base = Some(found.tip),
                false => main = found.is_head.then_some(found.tip),
            }
        }
        let branch = || INTEGRATION_BRANCH.to_owned();
        let main = main.ok_or_else(|| GitError::OtherBranch { dir: dir.clone(), branch: branch() })?;
        let base = base.unwrap_or_else(|| main.clone());
        if main.tree != base.tree {
            repository.check_tree(&main.tree, Some(&base.tree), Whose::Project).await?;
        }
        let files = repository.current_tree(worktree, &main.tree, Whose::Project).await?;
        Ok(State { main, base, files })
    }

    /// Moves the files from their tree to the branch's tip, and then the base. `false`: another process moved the base.
    ///
    /// # Errors
    ///
    /// A file was written since. No file was changed then.
    async fn show(&self, dir: &Path, files: &str, base: &Tip, tip: &Tip) -> Result<bool, GitError> {
        let repository = &self.repository;
        let read = || repository.git.call(dir, &["read-tree", "-m", "-u", files, &tip.tree]).run();
        if files != tip.tree && read().await.is_err() {
            // Without this, a file that was only touched counts as changed.
            repository.git.call(dir, &["update-index", "-q", "--refresh"]).codes(&[0, 1]).await?;
            read().await?;
        }
        Ok(base == tip || repository.update_ref(dir, BASE_REF, &tip.commit, Some(&base.commit)).await?)
    }

    /// Commits the files of the worktree as a change of their base. `None`: another process moved the branch.
    async fn save(&self, main: &Tip, base: &Tip, files: &str, message: &str) -> Result<Option<Tip>, GitError> {
        let repository = &self.repository;
        let mut commit = repository.commit_tree(files, &base.commit, message).await?;
        let mut tree = files.to_owned();
        if base.commit != main.commit {
            // The branch is treated as one commit since the base, so that the base is the merge base.
            let since = repository.commit_tree(&main.tree, &base.commit, "").await?;
            tree = match repository.merge_trees(&self.dir, &since, &commit).await? {
                Merged::Conflicts(files) => return Err(GitError::LooseConflict { dir: self.dir.clone(), files }),
                Merged::Tree(tree) if tree == main.tree => return Ok(Some(main.clone())),
                Merged::Tree(tree) => tree,
            };
            commit = repository.commit_tree(&tree, &main.commit, message).await?;
        }
        Ok(self.advance(main, &commit).await?.then_some(Tip { commit, tree }))
    }

    /// Makes the worktree, and the branch if it is missing.
    async fn make(&self) -> Result<Worktree, GitError> {
        let repository = &self.repository;
        let tip = repository.tip(INTEGRATION_REF).await?;
        let is_new = tip.is_none();
        let tip = if let Some(tip) = tip { tip } else { repository.default_tip().await? };
        repository.check(&tip).await?;
        if is_new {
            repository.update_ref(&repository.path, INTEGRATION_REF, &tip.commit, None).await?;
        }
        let set_base = async |dir: &Path| {
            let set = repository.git.call(dir, &["update-ref", BASE_REF, "HEAD"]);
            set.run().await.map(drop)
        };
        repository.make_worktree(&self.dir, INTEGRATION_REF, Checkout::Full, set_base).await
    }
}

/// A caller's message. A line that looks like the last line of a squash commit is quoted.
fn quoted(message: &str) -> String {
    let quote = |line: &str| if line.starts_with(SQUASHED_FROM) { format!("> {line}\n") } else { format!("{line}\n") };
    message.trim_end().lines().map(quote).collect()
}
