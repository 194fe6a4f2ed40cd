//! Makes [`INTEGRATION_BRANCH`] follow the default branch, once the user merged there.
//!
//! The new tip is made of objects alone, by merges without a worktree, and the branch moves to it in one step that
//! compares and swaps. The worktree follows as after each merge, see [`Integration`]. So a crash leaves the branch at
//! its old or its new tip, a conflict changes nothing, and the next call continues from there. The default branch is
//! only read.

use super::{Integration, merge::Merged};
use crate::{
    error::GitError,
    gh::PullState,
    names::{CommitId, INTEGRATION_BRANCH},
    remote::PUSHED_REF,
    repository::{Tip, rules::Whose},
};

/// How often a sync begins again because another process moved the branch.
const TRIES: usize = 5;

/// A pull request that was made of the branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposed {
    /// The branch's tip when it was made.
    pub tip: CommitId,
    /// Its state.
    pub state: PullState,
}

/// The result of a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// Nothing changed: the caller gave the sync up.
    Refused,
    /// Nothing changed: both are at the same commit.
    Current,
    /// Nothing changed: the branch has all of the default branch, and further commits.
    Ahead,
    /// Nothing changed: the default branch moved, but the pull request is open, and the user decides on merging it.
    Open,
    /// The branch is at the default branch, which has all of its changes.
    Reset,
    /// The branch had no commits of its own, and was forwarded to the default branch.
    Forwarded,
    /// The pull request is merged. Later commits are now on top of the default branch.
    Rebased {
        /// The number of these commits.
        commits: usize,
    },
    /// The default branch is merged into the branch.
    Merged,
    /// Nothing changed: both branches changed these files in the same places.
    Conflicts {
        /// Their paths in the project.
        files: Vec<String>,
    },
}

impl Followed {
    /// Whether the pull request of the branch is over, so that it has no effect any more.
    pub fn is_over(&self, proposed: &Proposed) -> bool {
        match self {
            Self::Current | Self::Reset | Self::Forwarded | Self::Rebased { .. } => true,
            Self::Merged => proposed.state == PullState::Closed,
            Self::Refused | Self::Ahead | Self::Open | Self::Conflicts { .. } => false,
        }
    }
}

/// The next tip of the branch.
enum Next {
    Stays(Followed),
    Moves(Tip, Followed),
}

/// The result of applying a commit to another one.
struct Applied {
    commit: CommitId,
    parent: CommitId,
    author: [String; 3],
    message: String,
}

impl Integration {
    /// Makes the branch follow a commit of the default branch. `proposed` is the pull request of the branch. `pushed`
    /// is the tip of the branch at `origin`, which a push may replace from now on. `begin` is called once no other
    /// operation changes the project: attempts under way are merged by their difference from the commit that they began
    /// at, so the branch has to keep that commit until they are over.
    ///
    /// - If the default branch has all changes of the branch, or of the pull request that was its tip, the branch is
    ///   *reset* there.
    /// - If the pull request is merged and commits followed, these are *rebased*: `git rebase --onto`, commit by
    ///   commit.
    /// - If only the default branch moved, the branch is forwarded there.
    /// - If both moved, the default branch is *merged*.
    ///
    /// A conflict changes nothing, also below `.lore/`, since the default branch has the user's decisions there, too.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`crate::Repository::integration`], and those of a tree with forbidden files. The branch is
    /// unchanged then.
    pub async fn follow(
        &self,
        default: &CommitId,
        proposed: Option<&Proposed>,
        pushed: Option<&CommitId>,
        begin: impl FnOnce() -> bool,
    ) -> Result<Followed, GitError> {
        let repository = self.repository();
        let _alone = self.alone().await;
        if !begin() {
            return Ok(Followed::Refused);
        }
        let default = repository.tip_of(default).await?;
        for _ in 0..TRIES {
            let main = self.sync().await?;
            let (next, followed) = match self.next(&main, &default, proposed).await? {
                Next::Stays(followed) => return Ok(followed),
                Next::Moves(next, followed) => (next, followed),
            };
            repository.check_tree(&next.tree, Some(&main.tree), Whose::Project).await?;
            // The note is written before the branch loses the commits: after a crash in between, it is still true.
            if let Some(pushed) = pushed
                && repository.contains(&main.commit, pushed).await?
            {
                let old = repository.tip(PUSHED_REF).await?.map(|tip| tip.commit);
                if old.as_ref() != Some(pushed) {
                    repository.update_ref(repository.path(), PUSHED_REF, pushed, old.as_ref()).await?;
                }
            }
            if self.advance(&main, &next.commit).await? {
                self.show_moved(&main, &next).await;
                return Ok(followed);
            }
        }
        Err(self.busy())
    }

    /// The next tip of the branch. Only objects are made.
    async fn next(&self, main: &Tip, default: &Tip, proposed: Option<&Proposed>) -> Result<Next, GitError> {
        let repository = self.repository();
        if main.commit == default.commit {
            return Ok(Next::Stays(Followed::Current));
        }
        if repository.contains(&main.commit, &default.commit).await? {
            return Ok(Next::Stays(Followed::Ahead));
        }
        if main.tree == default.tree {
            return Ok(Next::Moves(default.clone(), Followed::Reset));
        }
        if repository.contains(&default.commit, &main.commit).await? {
            let is_of_pull_request = proposed.is_some_and(|proposed| proposed.tip == main.commit);
            let followed = if is_of_pull_request { Followed::Reset } else { Followed::Forwarded };
            return Ok(Next::Moves(default.clone(), followed));
        }
        // This includes a default branch that moved on, and a pull request that is unknown here.
        if self.has_all(default, &main.commit).await? {
            return Ok(Next::Moves(default.clone(), Followed::Reset));
        }
        if let Some(Proposed { tip, state }) = proposed
            && repository.contains(&main.commit, tip).await?
        {
            // An equal tip proves nothing: the default branch may have moved on without the pull request.
            let is_merged = *state == PullState::Merged || self.has_all(default, tip).await?;
            if is_merged && *tip == main.commit {
                return Ok(Next::Moves(default.clone(), Followed::Reset));
            }
            if is_merged {
                return self.rebase(main, default, tip).await;
            }
            if *state == PullState::Open {
                return Ok(Next::Stays(Followed::Open));
            }
        }
        let tree = match repository.merge_cleanly(self.dir(), &default.commit, &main.commit).await? {
            Merged::Conflicts(files) => return Ok(Next::Stays(Followed::Conflicts { files })),
            Merged::Tree(tree) => tree,
        };
        let message = format!("Merge {} into {INTEGRATION_BRANCH}\n", repository.default_branch());
        let parents = [&main.commit, &default.commit];
        let commit = repository.commit_trees(&tree, &parents, &message, None).await?;
        Ok(Next::Moves(Tip { commit, tree }, Followed::Merged))
    }

    /// Whether a commit has all changes of another one, in any commits.
    async fn has_all(&self, all: &Tip, of: &CommitId) -> Result<bool, GitError> {
        let repository = self.repository();
        if repository.contains(&all.commit, of).await? {
            return Ok(true);
        }
        let merged = repository.merge_cleanly(self.dir(), &all.commit, of).await?;
        Ok(matches!(merged, Merged::Tree(tree) if tree == all.tree))
    }

    /// Applies the commits since `since` to the default branch, one by one. Commits without an effect there are left
    /// out.
    async fn rebase(&self, main: &Tip, default: &Tip, since: &CommitId) -> Result<Next, GitError> {
        let repository = self.repository();
        let (mut tip, mut commits) = (default.clone(), 0);
        for applied in self.commits_since(&main.commit, since).await? {
            // The merge treats the branch as one commit since the parent, so the parent is the merge base.
            let here = repository.commit_trees(&tip.tree, &[&applied.parent], "", None).await?;
            let tree = match repository.merge_cleanly(self.dir(), &here, &applied.commit).await? {
                Merged::Conflicts(files) => return Ok(Next::Stays(Followed::Conflicts { files })),
                Merged::Tree(tree) if tree == tip.tree => continue,
                Merged::Tree(tree) => tree,
            };
            let (message, author) = (&applied.message, Some(&applied.author));
            let commit = repository.commit_trees(&tree, &[&tip.commit], message, author).await?;
            tip = Tip { commit, tree };
            commits += 1;
        }
        Ok(Next::Moves(tip, Followed::Rebased { commits }))
    }

    /// The commits of the branch since `since`, oldest first. A merge counts as its change of the branch.
    async fn commits_since(&self, tip: &CommitId, since: &CommitId) -> Result<Vec<Applied>, GitError> {
        const FIELDS: usize = 6;
        let format = "--format=%H%x00%P%x00%an%x00%ae%x00%at%x00%B%x00";
        let range = format!("{since}..{tip}");
        let list = ["rev-list", "--first-parent", "--reverse", "--no-commit-header", format, &range];
        let said = self.repository().call(&list).run().await?;
        let said = String::from_utf8_lossy(&said).into_owned();
        let fields: Vec<&str> = said.split('\0').collect();
        let read = |fields: &[&str]| {
            let [commit, parents, name, email, time, message] = fields.try_into().ok()?;
            Some(Applied {
                commit: CommitId(commit.trim_start().to_owned()),
                parent: CommitId(parents.split(' ').next()?.to_owned()),
                author: [name.to_owned(), email.to_owned(), format!("@{time} +0000")],
                message: message.to_owned(),
            })
        };
        Ok(fields.chunks_exact(FIELDS).filter_map(read).collect())
    }
}
