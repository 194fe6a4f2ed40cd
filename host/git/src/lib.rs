//! Runs `git` for projects, and `gh` for their pull requests, and no other program.
//!
//! Workers change a project only through git: each attempt has a branch and a worktree of its own, and what an attempt
//! completed becomes one commit on [`INTEGRATION_BRANCH`]. The user's working tree, index and branches are never
//! written; all branches that are written begin with `claude/`.
//!
//! - [`Git`] is the program: found once, its version checked, each run bounded in time, memory and output.
//! - [`Repository`] is a project's repository that was examined and can be worked on.
//! - [`Integration`] is the worktree of [`INTEGRATION_BRANCH`]: it starts attempts, commits and merges them, and
//!   follows the default branch once the user merged there.
//! - [`Origin`] is the remote repository that the branch is pushed to, and where pull requests are made of it.
//!
//! A repository is hostile input. `run/mod.rs` lists the parts of its configuration that are switched off, and
//! `repository/settings.rs` those that are refused because they cannot be switched off. Hooks, filters, merge drivers,
//! signing and prompts are never used, and the network only by [`Origin`]. Symbolic links are checked out as files that
//! hold their target, so that no path in a worktree leads elsewhere.
//!
//! A crash at any point leaves a state that the next call completes: a ref changes atomically and last, a worktree
//! counts as made only once it has an index, and it leaves its directory by one rename.

mod documents;
mod error;
mod gh;
mod inspect;
mod integration;
mod names;
mod remote;
mod repository;
mod run;
mod tidy;
mod version;
mod worktree;

pub use documents::{DocumentQuota, DocumentUsage};
pub use error::GitError;
pub use gh::{PullRequest, PullState};
pub use inspect::{
    BranchOptions, BranchView, CommitView, DiffOptions, LogOptions, ShowOptions, ShowView, ShownDiff, StatusView,
};
pub use integration::{
    Integration, Merge,
    follow::{Followed, Proposed},
};
pub use names::{AttemptBranch, CommitId, INTEGRATION_BRANCH};
pub use remote::{Origin, Upstream};
pub use repository::{
    Repository,
    rules::{RULES_BYTES, RULES_LINES, RulesUsage, check_rules, is_rules_file},
};
pub use run::{Git, GitOptions};
pub use tidy::FoundBranch;
pub use version::{OLDEST, Version};
pub use worktree::{Checkout, ignored::IgnoreRule, sweep_removed};
