//! Makes [`INTEGRATION_BRANCH`] follow the default branch, once the user merged there.
//!
//! The new tip is made of objects alone, by merges without a worktree, and the branch moves to it in one step that compares and
//! swaps. The worktree follows as after each merge, see [`Integration`]. So a crash leaves the branch as it was or as it is to
//! be, a conflict leaves all as it was, and the next call goes on from what there is. The default branch is only read.

use super::{Integration, merge::Merged};
use crate::{
    error::GitError,
    gh::PullState,
    names::{CommitId, INTEGRATION_BRANCH},
    remote::PUSHED_REF,
    repository::{Tip, rules::Whose},
};

/// How often it begins again because somebody else moved the branch.
const TRIES: usize = 5;

/// A pull request that was made of the branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposed {
    /// The branch's tip when it was made.
    pub tip: CommitId,
    /// What became of it.
    pub state: PullState,
}

/// What a sync did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// Nothing: the caller did not want it any more.
    Refused,
    /// Nothing: both are at the same commit.
    Current,
    /// Nothing: the branch has all of the default branch, and commits beyond.
    Ahead,
    /// Nothing: the default branch moved on, but the pull request is open. Merging it is up to the user.
    Open,
    /// The branch is at the default branch, which has all of its changes.
    Reset,
    /// The branch had nothing of its own, and followed the default branch.
    Forwarded,
    /// The pull request is merged. What was committed since is now on top of the default branch.
    Rebased {
        /// How many commits that is.
        commits: usize,
    },
    /// The default branch is merged into the branch.
    Merged,
    /// Nothing: both changed these files in the same places.
    Conflicts {
        /// Their paths in the project.
        files: Vec<String>,
    },
}

impl Followed {
    /// Whether the pull request that was made of the branch is over, so that it decides nothing any more.
    pub fn is_over(&self, proposed: &Proposed) -> bool {
        match self {
            Self::Current | Self::Reset | Self::Forwarded | Self::Rebased { .. } => true,
            Self::Merged => proposed.state == PullState::Closed,
            Self::Refused | Self::Ahead | Self::Open | Self::Conflicts { .. } => false,
        }
    }
}

/// What the branch is to be.
enum Next {
    Stays(Followed),
    Moves(Tip, Followed),
}

/// A commit that is applied to another one.
struct Applied {
    commit: CommitId,
    parent: CommitId,
    author: [String; 3],
    message: String,
}

impl Integration {
    /// Has the branch follow a commit of the default branch. `proposed` is the pull request that was made of it. `pushed` is what
    /// `origin` has of the branch: it may be replaced by a push from now on. `begin` is asked once nothing else changes the
    /// project: attempts that are under way are merged by their difference from the commit that they began at, so the branch
    /// has to keep that one until they are over.
    ///
    /// - Where the default branch has all changes of the branch, or of the pull request that was its tip, it is *reset* there.
    /// - Where the pull request is merged and commits came since, these are *rebased*: `git rebase --onto`, commit by commit.
    /// - Where only the default branch moved on, the branch goes there.
    /// - Where both did, the default branch is *merged*.
    ///
    /// A conflict changes nothing, also one below `.lore/`: there, too, the default branch has what the user decided.
    ///
    /// # Errors
    /// As [`crate::Repository::integration`], and what a tree must not have. The branch is as it was then.
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
            // Before the branch loses them: a crash in between leaves a note that is true of the branch as it is, too.
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

    /// What the branch is to be. Only objects are made.
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
        // Also where the default branch moved on since, and where nobody here knows of a pull request.
        if self.has_all(default, &main.commit).await? {
            return Ok(Next::Moves(default.clone(), Followed::Reset));
        }
        if let Some(Proposed { tip, state }) = proposed
            && repository.contains(&main.commit, tip).await?
        {
            // That its tip is the branch's says nothing: the default branch may have moved on without it.
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

    /// Whether a commit has all changes of another one, in whatever commits they came there.
    async fn has_all(&self, all: &Tip, of: &CommitId) -> Result<bool, GitError> {
        let repository = self.repository();
        if repository.contains(&all.commit, of).await? {
            return Ok(true);
        }
        let merged = repository.merge_cleanly(self.dir(), &all.commit, of).await?;
        Ok(matches!(merged, Merged::Tree(tree) if tree == all.tree))
    }

    /// Applies the commits since `since` to the default branch, one by one. What changes nothing there is left out.
    async fn rebase(&self, main: &Tip, default: &Tip, since: &CommitId) -> Result<Next, GitError> {
        let repository = self.repository();
        let (mut tip, mut commits) = (default.clone(), 0);
        for applied in self.commits_since(&main.commit, since).await? {
            // As if the branch had come here by one commit since the parent: so the parent is what both come from.
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

    /// The commits by which the branch came from one to another, the oldest first. A merge counts as what it changed of the
    /// branch.
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
