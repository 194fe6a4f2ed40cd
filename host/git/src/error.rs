//! Defines the errors of git operations.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::version::{OLDEST, Version};

/// The error of a git operation. Its text tells the user what to do.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The program is not on `PATH`.
    #[error("git is not on PATH; install git {OLDEST} or newer")]
    NotInstalled,
    /// The program is older than this crate needs.
    #[error("{} is git {found}; install git {OLDEST} or newer", program.display())]
    TooOld {
        /// The program.
        program: PathBuf,
        /// Its version.
        found: Version,
    },
    /// The program does not tell its version of git.
    #[error("{} is not git: it answers {said:?} to `version`", program.display())]
    NotGit {
        /// The program.
        program: PathBuf,
        /// Its output.
        said: String,
    },
    /// The program cannot be started.
    #[error("{} cannot be started: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The run took longer than its limit, and was ended.
    #[error("git {command} in {} took longer than {} seconds and was ended", dir.display(), limit.as_secs())]
    TimedOut {
        /// The subcommand.
        command: String,
        /// Where it ran.
        dir: PathBuf,
        /// The limit.
        limit: Duration,
    },
    /// The run wrote more output than is read, and was ended.
    #[error("git {command} in {} said more than {bytes} bytes and was ended", dir.display())]
    TooMuchOutput {
        /// The subcommand.
        command: String,
        /// Where it ran.
        dir: PathBuf,
        /// The limit.
        bytes: usize,
    },
    /// The run needed more memory than its limit.
    #[error("git {command} in {} needs more than {bytes} bytes of memory; raise limits.git_memory_bytes if the project \
        is that large", dir.display())]
    TooMuchMemory {
        /// The subcommand.
        command: String,
        /// Where it ran.
        dir: PathBuf,
        /// The limit.
        bytes: u64,
    },
    /// The run failed in a way that has no variant of its own.
    #[error("git {command} in {} failed: {said}", dir.display())]
    Failed {
        /// The subcommand.
        command: String,
        /// Where it ran.
        dir: PathBuf,
        /// The beginning of its output, on one line.
        said: String,
    },
    /// A file or directory cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },

    /// The directory has no repository.
    #[error("{} is not a git repository; run `git init` there, and commit", path.display())]
    NotARepository {
        /// The directory.
        path: PathBuf,
    },
    /// The directory is inside of a repository, and not its top.
    #[error("{} is inside of the git repository {}; register that directory", path.display(), top.display())]
    NotTheTop {
        /// The directory.
        path: PathBuf,
        /// The repository's top directory.
        top: PathBuf,
    },
    /// The directory is a linked worktree. Two projects would share one `claude/main`.
    #[error("{} is a linked worktree; register the main working tree of {}", path.display(), repository.display())]
    LinkedWorktree {
        /// The directory.
        path: PathBuf,
        /// The directory of the repository's data.
        repository: PathBuf,
    },
    /// The repository has no working tree.
    #[error("{} is a bare repository; register a clone that has a working tree", path.display())]
    Bare {
        /// The directory.
        path: PathBuf,
    },
    /// The repository is another user's, who could have git run commands.
    #[error("{} belongs to another user; give it to the user that the host runs as (chown)", path.display())]
    OtherOwner {
        /// The directory.
        path: PathBuf,
    },
    /// The repository's configuration has a setting that cannot be used safely, see `repository/settings.rs`.
    #[error("{}: the repository's git configuration sets `{key}`, {why}", path.display())]
    RefusedSetting {
        /// The directory.
        path: PathBuf,
        /// The key.
        key: String,
        /// The reason and the remedy.
        why: &'static str,
    },
    /// A file of patterns that git reads for each file is too large, or several of them are together.
    #[error("{}: {file} {why}", path.display())]
    Rules {
        /// The directory.
        path: PathBuf,
        /// The file, or one of several and how many more.
        file: String,
        /// The error and its remedy.
        why: String,
    },
    /// The documents would take more than the project's quota.
    #[error("{}: {why}", path.display())]
    DocumentQuota {
        /// The directory.
        path: PathBuf,
        /// The limit and the remedy.
        why: String,
    },
    /// The repository has no commit.
    #[error("{} has no commit; commit something first", path.display())]
    NoCommit {
        /// The directory.
        path: PathBuf,
    },
    /// The branch does not exist.
    #[error("{} has no branch {branch}; `git branch` lists those that it has", path.display())]
    NoBranch {
        /// The directory.
        path: PathBuf,
        /// The branch.
        branch: String,
    },
    /// No branch is an obvious default.
    #[error("{} has no branch main or master, and its HEAD is on none of yours; name a branch", path.display())]
    NoDefaultBranch {
        /// The directory.
        path: PathBuf,
    },
    /// A branch leaves no room for the host's branches: git has no branch `a/b` beside a branch `a`.
    #[error("{} has a branch `{branch}`, beside which git can have no branch {blocked}; rename it: git -C {} branch -m \
        {branch} my-{}, or delete it: git -C {} branch -D {branch}", path.display(), quoted(path), branch.replace('/', "-"),
        quoted(path))]
    ClaudeBranch {
        /// The directory.
        path: PathBuf,
        /// The branch.
        branch: String,
        /// The branch that cannot be made, or the prefix of such branches.
        blocked: &'static str,
    },
    /// The project has submodules.
    #[error("{}: {file} is a submodule; projects with submodules are not supported", path.display())]
    Submodules {
        /// The directory.
        path: PathBuf,
        /// The submodule, or `.gitmodules`.
        file: String,
    },
    /// The project keeps files in LFS.
    #[error("{}: {file} has files stored by Git LFS; projects with LFS are not supported", path.display())]
    Lfs {
        /// The directory.
        path: PathBuf,
        /// The file of attributes with LFS.
        file: String,
    },
    /// `.lore` is a symbolic link or a file.
    #[error("{}: {file} must be a directory, and is a symbolic link or a file; replace it, and commit", path.display())]
    LoreNotADirectory {
        /// The directory.
        path: PathBuf,
        /// `.lore`, as the tree spells it.
        file: String,
    },

    /// The branch of an attempt is named so that git or the host could misread it.
    #[error("{name:?} is no branch of an attempt: `claude/`, then letters, digits, `-`, `_`, `.` and `/`")]
    InvalidBranch {
        /// The name.
        name: String,
    },
    /// The branch is checked out in a worktree that is not the host's.
    #[error("the branch {branch} is checked out in {}; check out another one there", at.display())]
    CheckedOutElsewhere {
        /// The branch.
        branch: String,
        /// The worktree.
        at: PathBuf,
    },
    /// The worktree is on another branch than its own.
    #[error("{} is not on the branch {branch}; run `git checkout {branch}` there", dir.display())]
    OtherBranch {
        /// The worktree.
        dir: PathBuf,
        /// The worktree's own branch.
        branch: String,
    },
    /// The directory is no worktree of the repository.
    #[error("{} is not a worktree of {}; if it was one, run `git -C {} worktree repair`; else move what is there to another \
        place, and the worktree is made anew", dir.display(), path.display(), quoted(path))]
    NotAWorktree {
        /// The directory.
        dir: PathBuf,
        /// The repository.
        path: PathBuf,
    },
    /// The directory is a copy of a worktree that is still at its place, and git has one place of each.
    #[error("{} is a copy of the worktree {} of {}, which git knows: serve the home that has that one, or remove the copy, \
             whose files are in it",
        dir.display(), original.display(), path.display())]
    CopiedWorktree {
        /// The directory.
        dir: PathBuf,
        /// The original worktree.
        original: PathBuf,
        /// The repository.
        path: PathBuf,
    },
    /// The worktree has another repository in it.
    #[error("{}: {file} is a repository of its own; move it out of the worktree", dir.display())]
    NestedRepository {
        /// The worktree.
        dir: PathBuf,
        /// The repository in it.
        file: String,
    },
    /// A merge is under way in the worktree.
    #[error("{}: {file} has conflicts that are not resolved; resolve them there, and commit", dir.display())]
    Unmerged {
        /// The worktree.
        dir: PathBuf,
        /// The first file with conflicts.
        file: String,
    },
    /// The integration worktree has uncommitted changes, and `claude/main` has other changes in the same places.
    #[error("{}: changes that are not committed conflict with claude/main in {}; commit or undo them there",
        dir.display(), files.join(", "))]
    LooseConflict {
        /// The integration worktree.
        dir: PathBuf,
        /// The files.
        files: Vec<String>,
    },
    /// Another process changed `claude/main` or its worktree at each attempt to change it.
    #[error("somebody else keeps changing {}; try again", dir.display())]
    Busy {
        /// The integration worktree.
        dir: PathBuf,
    },

    /// `origin` lacks the default branch.
    #[error("origin of {} has no branch {branch}; push it there first: git push origin {branch}", path.display())]
    NotAtOrigin {
        /// The directory.
        path: PathBuf,
        /// The branch.
        branch: String,
    },
    /// `claude/main` at `origin` has commits that the local branch never had.
    #[error("claude/main at origin of {} has commits that it never had here, up to {commit}; merge its pull request, or \
        delete the branch: git push origin --delete claude/main", path.display())]
    OthersCommits {
        /// The directory.
        path: PathBuf,
        /// The commit at `origin`.
        commit: String,
    },
    /// There is no `gh`, which makes pull requests.
    #[error("gh is not on PATH; install the GitHub CLI (https://cli.github.com), and run `gh auth login`")]
    GhNotInstalled,
    /// `gh` failed.
    #[error("gh {command} failed: {said}")]
    GhFailed {
        /// The subcommand.
        command: String,
        /// The beginning of its output, on one line.
        said: String,
    },
    /// `gh` did not name the pull request that it made.
    #[error("gh made a pull request and did not name it, but said {said:?}; look for it at the host, and try again")]
    GhAnswer {
        /// Its output.
        said: String,
    },
    /// The caller's name does not name a commit.
    #[error("{rev:?} is no commit of the project; name a branch, or a commit by its id")]
    NoCommitOfThatName {
        /// The caller's words.
        rev: String,
    },
}

impl GitError {
    /// The kind of failure, without a path of the host, for sessions and for committed files.
    pub fn kind(&self) -> String {
        match self {
            Self::TooMuchMemory { bytes, .. } => format!("it needs more than limits.git_memory_bytes = {bytes}"),
            Self::TimedOut { limit, .. } => format!("it takes more than {} s", limit.as_secs()),
            _ => "the host's log says why".to_owned(),
        }
    }
}

/// A path quoted for a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}
impl From<GitError> for guild_contract::OperationError {
    fn from(error: GitError) -> Self {
        match error {
            GitError::NoCommitOfThatName { .. } => Self::Invalid(error.to_string()),
            error => Self::Internal(error.to_string()),
        }
    }
}
