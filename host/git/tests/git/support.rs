//! A project, the host's directories for it, and git as its user runs it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub(crate) use guild_fakes::git as user_git;
use guild_git::{AttemptBranch, Checkout, DocumentQuota, Git, GitError, GitOptions, Integration, Merge, Repository};
use tempfile::TempDir;

pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// When all commits of the host are made.
pub(crate) const NOW: u64 = 1_800_000_000;

pub(crate) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

pub(crate) fn options() -> GitOptions {
    let documents = DocumentQuota { files: 1000, bytes: 16 << 20 };
    GitOptions { program: None, limit: LIMIT, memory_bytes: 1 << 30, documents, now }
}

pub(crate) async fn git() -> Git {
    Git::find(options()).await.unwrap()
}

pub(crate) fn write(dir: &Path, file: &str, text: &str) {
    let path = dir.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A shell script that can be run.
pub(crate) fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// All files below a directory, but `.git`, in order.
pub(crate) fn files(dir: &Path) -> Vec<String> {
    fn walk(dir: &Path, top: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                walk(&path, top, found);
            } else if path.file_name().unwrap() != ".git" {
                found.push(path.strip_prefix(top).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    let mut found = Vec::new();
    walk(dir, dir, &mut found);
    found.sort();
    found
}

pub(crate) fn branch(name: &str) -> AttemptBranch {
    AttemptBranch::new(&format!("claude/commission/{name}")).unwrap()
}

/// A project with one commit on `main`, and beside it the host's directories.
pub(crate) struct Project {
    root: TempDir,
}

impl Project {
    pub(crate) fn new() -> Self {
        let this = Self::empty();
        for (file, text) in [
            (".lore/notes.md", "notes\n"),
            (".lore/plan.md", "one\ntwo\nthree\n"),
            ("README.md", "readme\n"),
            ("src/code.rs", "one\ntwo\nthree\n"),
        ] {
            write(&this.path(), file, text);
        }
        this.commit("Begin");
        this
    }

    /// Without a commit.
    pub(crate) fn empty() -> Self {
        let root = tempfile::tempdir().unwrap();
        let this = Self { root };
        fs::create_dir(this.path()).unwrap();
        this.git(&["init", "--quiet", "--initial-branch=main"]);
        this
    }

    pub(crate) fn root(&self) -> PathBuf {
        fs::canonicalize(self.root.path()).unwrap()
    }

    /// The user's working tree.
    pub(crate) fn path(&self) -> PathBuf {
        self.root().join("project")
    }

    pub(crate) fn integration_dir(&self) -> PathBuf {
        self.root().join("hall/projects/project")
    }

    pub(crate) fn attempt_dir(&self, name: &str) -> PathBuf {
        self.root().join("hall/worktrees/project").join(name)
    }

    /// A file that hostile programs would make.
    pub(crate) fn canary(&self) -> PathBuf {
        self.root().join("canary")
    }

    /// A program that makes the canary.
    pub(crate) fn hostile_program(&self) -> PathBuf {
        let program = self.root().join("hostile");
        script(&program, &format!("touch '{}'\ncat", self.canary().display()));
        program
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        user_git(&self.path(), args)
    }

    /// A project whose `origin` is a bare repository beside it.
    pub(crate) fn with_origin() -> Self {
        let this = Self::new();
        user_git(&this.root(), &["init", "--quiet", "--bare", "--initial-branch=main", "origin.git"]);
        this.git(&["remote", "add", "origin", this.origin().to_str().unwrap()]);
        this.git(&["push", "--quiet", "origin", "main"]);
        this
    }

    pub(crate) fn origin(&self) -> PathBuf {
        self.root().join("origin.git")
    }

    /// What a user does elsewhere with `origin`, in a clone of it.
    pub(crate) fn elsewhere(&self, commands: &[&[&str]]) {
        let clone = self.root().join("elsewhere");
        if !clone.exists() {
            user_git(&self.root(), &["clone", "--quiet", "origin.git", "elsewhere"]);
        }
        user_git(&clone, &["fetch", "--quiet", "origin"]);
        user_git(&clone, &["checkout", "--quiet", "-B", "main", "origin/main"]);
        commands.iter().for_each(|args| drop(user_git(&clone, args)));
        user_git(&clone, &["push", "--quiet", "origin", "main"]);
    }

    /// The user merges `claude/main` of `origin` there, as one commit.
    pub(crate) fn squash_elsewhere(&self) {
        let merge: &[&str] = &["merge", "--quiet", "--squash", "origin/claude/main"];
        self.elsewhere(&[merge, &["commit", "--quiet", "--message=Squashed"]]);
    }

    /// The user commits a file of `main` elsewhere.
    pub(crate) fn write_elsewhere(&self, file: &str, text: &str) {
        self.elsewhere(&[]);
        write(&self.root().join("elsewhere"), file, text);
        self.elsewhere(&[&["checkout", "--quiet", "main"]]);
        let clone = self.root().join("elsewhere");
        user_git(&clone, &["add", "--all"]);
        user_git(&clone, &["commit", "--quiet", "--message=Elsewhere"]);
        user_git(&clone, &["push", "--quiet", "origin", "main"]);
    }

    /// Git, with this `gh` beside it.
    pub(crate) async fn git_and_gh(&self, gh: &str) -> Git {
        let bin = self.root().join("bin");
        fs::create_dir_all(&bin).unwrap();
        script(&bin.join("git"), "exec git \"$@\"");
        script(&bin.join("gh"), gh);
        Git::find(GitOptions { program: Some(bin.join("git")), ..options() }).await.unwrap()
    }

    pub(crate) fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", message]);
    }

    pub(crate) async fn open(&self) -> Result<Repository, GitError> {
        Repository::open(&git().await, &self.path(), None).await
    }

    pub(crate) async fn integration(&self) -> Result<Integration, GitError> {
        self.open().await?.integration(&self.integration_dir()).await
    }

    /// An attempt, started, that wrote these files, committed.
    pub(crate) async fn attempt(
        &self,
        integration: &Integration,
        name: &str,
        written: &[(&str, &str)],
    ) -> AttemptBranch {
        let (branch, dir) = (branch(name), self.attempt_dir(name));
        integration.start_attempt(&branch, &dir, Checkout::Full).await.unwrap();
        written.iter().for_each(|(file, text)| write(&dir, file, text));
        integration.repository().commit_all(&branch, &dir, "Work").await.unwrap();
        branch
    }

    /// A file as a commit has it.
    pub(crate) fn show(&self, commit: &str, file: &str) -> String {
        self.git(&["show", &format!("{commit}:{file}")])
    }

    /// The messages of `claude/main`, the newest first, by their first lines.
    pub(crate) fn log(&self) -> Vec<String> {
        self.git(&["log", "--format=%s", "claude/main"]).lines().map(str::to_owned).collect()
    }

    /// What is on the integration worktree and not on its branch.
    pub(crate) fn loose(&self) -> String {
        user_git(&self.integration_dir(), &["-c", "core.symlinks=false", "status", "--porcelain"])
    }
}

/// The commit of a merge that was one.
pub(crate) fn merged(merge: Merge) -> String {
    match merge {
        Merge::Merged { commit } => commit.to_string(),
        other => panic!("{other:?}"),
    }
}
