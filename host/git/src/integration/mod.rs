//! The integration worktree: attempts start from it, and are merged into it.
//!
//! Three things belong together: the tip of `claude/main`, the files of the worktree, and the commit that those files
//! were made from, which is the ref `refs/worktree/guild-base` of that worktree. A merge moves the tip first, in one step
//! that compares and swaps, then the files, then the base. So whatever the moment of a crash, what is loose in the worktree
//! is what it has beyond its *base*. Compared with the tip, a merge whose files are not there yet would look like the wish
//! to undo it.
//!
//! [`Integration::sync`] brings the three together and is the first step of each operation: it commits what is loose as
//! a change of the base, merged with the tip if that is another commit, then moves files and base to the tip. If a crash
//! left some files new and others old, the new ones are the same change on both sides of that merge. A file that git was
//! killed in the middle of writing is a change of its own: of code, it is a conflict that names the file; below `.lore` it is
//! committed, and the commit before has it whole.

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
/// The message of a commit of what was loose.
const LOOSE: &str = "Save changes of the integration worktree\n";
/// What the paths of documents begin with.
const LORE: &str = ".lore/";
/// What stands in a squash commit before the commit that it took its changes from. It tells a merge that is done from one
/// that is not, when the host ended in between.
const SQUASHED_FROM: &str = "Squashed-From: ";
/// How often an operation begins again because somebody else changed the branch or the worktree.
const TRIES: usize = 5;

/// The worktree of [`INTEGRATION_BRANCH`]. Have one of each project: operations that change it wait for each other.
#[derive(Debug)]
pub struct Integration {
    repository: Repository,
    dir: PathBuf,
    alone: Mutex<()>,
}

/// What belongs together, as it is now.
struct State {
    /// The branch's tip.
    main: Tip,
    base: Tip,
    /// The tree of the files.
    files: String,
}

/// What became of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The branch's changes are one commit on [`INTEGRATION_BRANCH`].
    Merged {
        /// The commit, which has one parent.
        commit: CommitId,
    },
    /// [`INTEGRATION_BRANCH`] has all changes of the branch already.
    NothingToMerge,
    /// Files outside of `.lore/` were changed on both sides. Nothing was merged.
    Conflicts {
        /// Their paths in the project.
        files: Vec<String>,
    },
}

impl Repository {
    /// The integration worktree at `dir`, an absolute path. The branch begins at the default branch's tip if it is missing.
    /// The worktree is made if it is missing, also where it was once.
    ///
    /// # Errors
    /// [`GitError::CheckedOutElsewhere`], [`GitError::NotAWorktree`] or [`GitError::OtherBranch`] where something else is in the
    /// way, and those of committing what is loose there.
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

    /// Starts an attempt: commits what is loose on the integration worktree, has the branch begin from there, and makes
    /// a worktree of it at `dir`, an absolute path.
    ///
    /// After a crash at any point the same call goes on: a branch that exists stays as it is, and a worktree that is whole
    /// keeps what is in it.
    ///
    /// # Errors
    /// As [`Repository::integration`].
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

    /// Does something with the files of the worktree while no operation of this one changes them. It gets the top directory.
    /// What it leaves there is committed by the next operation.
    ///
    /// # Errors
    /// As [`Repository::integration`].
    pub async fn with_files<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> T + Send + 'static,
    ) -> Result<T, GitError> {
        let _alone = self.alone.lock().await;
        self.work(work).await
    }

    /// As [`Self::with_files`], and commits the changes that `work` made. `work` returns the message of the commit, too. What
    /// was loose before is a commit of its own.
    ///
    /// # Errors
    /// As [`Self::commit_loose`]. What was changed then stays there, and is committed by the next operation.
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

    /// The files of the worktree that are not committed.
    ///
    /// # Errors
    /// As [`Repository::integration`].
    pub async fn loose(&self) -> Result<Vec<String>, GitError> {
        let _alone = self.alone.lock().await;
        self.list_loose().await
    }

    /// Commits what is loose with this message, if some of it is below `.lore/`. Otherwise nothing happens, and it is `false`.
    ///
    /// # Errors
    /// As [`Self::commit_loose`].
    pub async fn commit_lore(&self, message: &str) -> Result<bool, GitError> {
        let _alone = self.alone.lock().await;
        let some = self.list_loose().await?.iter().any(|file| file.starts_with(LORE));
        if some {
            self.sync_as(&quoted(message)).await?;
        }
        Ok(some)
    }

    /// The tip of [`INTEGRATION_BRANCH`], with what was loose committed.
    ///
    /// # Errors
    /// As [`Self::commit_loose`].
    pub async fn tip(&self) -> Result<CommitId, GitError> {
        let _alone = self.alone.lock().await;
        Ok(self.sync().await?.commit)
    }

    /// Commits what is loose on the integration worktree, and moves it to the tip of [`INTEGRATION_BRANCH`] where a crash left
    /// it behind. Other operations do this first.
    ///
    /// # Errors
    /// As [`Repository::integration`], and [`GitError::LooseConflict`].
    pub async fn commit_loose(&self) -> Result<(), GitError> {
        let _alone = self.alone.lock().await;
        self.sync().await.map(drop)
    }

    /// Merges an attempt's branch as one commit with this message, to which a line with the branch's commit is added.
    ///
    /// Where both sides changed the same places of files below `.lore/` only, the attempt's are taken. A branch that was
    /// merged before answers with the commit of then.
    ///
    /// # Errors
    /// [`GitError::NoBranch`], what a tree must not have, [`GitError::DocumentQuota`], and as [`Repository::integration`].
    /// Nothing was merged then.
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

    /// Has the worktree show the branch, which was moved.
    pub(crate) async fn show_moved(&self, from: &Tip, to: &Tip) {
        // Where a file was written since, it is merged first.
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
            // Only the last line was not written by the attempt.
            (message.trim_end().lines().next_back() == Some(&wanted)).then(|| CommitId(commit.to_owned()))
        }))
    }

    /// Moves the branch on. `false`: somebody else did.
    pub(crate) async fn advance(&self, main: &Tip, commit: &CommitId) -> Result<bool, GitError> {
        let repository = &self.repository;
        repository.update_ref(&repository.path, INTEGRATION_REF, commit, Some(&main.commit)).await
    }

    /// Brings the branch, the worktree and its base together, see the top of this file. The branch's tip afterwards.
    pub(crate) async fn sync(&self) -> Result<Tip, GitError> {
        self.sync_as(LOOSE).await
    }

    /// As [`Self::sync`], with this message for what is loose.
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

    /// Looks at the three. What is in the worktree is in its index then.
    async fn state(&self, worktree: &Worktree) -> Result<State, GitError> {
        let (repository, dir) = (&self.repository, &worktree.dir);
        // Before the files: a base that is older than they are is harmless, one that is newer undoes a merge.
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

    /// Moves the files, which are those of a tree, to the branch's tip, and then the base. `false`: somebody else moved it.
    ///
    /// # Errors
    /// Where a file was written since; no file was changed then.
    async fn show(&self, dir: &Path, files: &str, base: &Tip, tip: &Tip) -> Result<bool, GitError> {
        let repository = &self.repository;
        let read = || repository.git.call(dir, &["read-tree", "-m", "-u", files, &tip.tree]).run();
        if files != tip.tree && read().await.is_err() {
            // A file that was only touched is taken for a changed one.
            repository.git.call(dir, &["update-index", "-q", "--refresh"]).codes(&[0, 1]).await?;
            read().await?;
        }
        Ok(base == tip || repository.update_ref(dir, BASE_REF, &tip.commit, Some(&base.commit)).await?)
    }

    /// Commits the files of the worktree as a change of their base. `None`: the branch was moved by somebody else.
    async fn save(&self, main: &Tip, base: &Tip, files: &str, message: &str) -> Result<Option<Tip>, GitError> {
        let repository = &self.repository;
        let mut commit = repository.commit_tree(files, &base.commit, message).await?;
        let mut tree = files.to_owned();
        if base.commit != main.commit {
            // As if the branch had one commit since the base, so that the merge is one since the base.
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

/// A message of a caller's. A line that says what squash commits say of themselves is quoted.
fn quoted(message: &str) -> String {
    let quote = |line: &str| if line.starts_with(SQUASHED_FROM) { format!("> {line}\n") } else { format!("{line}\n") };
    message.trim_end().lines().map(quote).collect()
}
