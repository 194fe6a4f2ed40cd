//! A project's repository: what it has to be, its branches, and what its trees may have.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    error::GitError,
    lock::free,
    names::{AttemptBranch, CommitId, OURS},
    run::{Call, Git},
    settings,
};

/// A project's repository, which was examined. A clone is the same repository.
#[derive(Clone, Debug)]
pub struct Repository {
    pub(crate) git: Git,
    /// The user's working tree. Nothing is written there.
    pub(crate) path: PathBuf,
    /// The repository's data, which all worktrees share.
    pub(crate) data: PathBuf,
    default_branch: String,
}

/// A commit and its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tip {
    pub(crate) commit: CommitId,
    pub(crate) tree: String,
}

impl Repository {
    /// Examines the repository whose top directory is `path`. `default_branch` is what work begins from; `None` chooses the
    /// first that exists of: the branch that `origin/HEAD` names, `main`, `master`, the branch that is checked out.
    ///
    /// # Errors
    /// [`GitError`] has a variant for each reason why it cannot be a project.
    pub async fn open(git: &Git, path: &Path, default_branch: Option<&str>) -> Result<Self, GitError> {
        let path = fs::canonicalize(path).map_err(|source| GitError::File { path: path.to_owned(), source })?;
        has_dot_git(&path)?;
        // Outside of a repository git would list no settings, and not fail.
        let bare = git.call(&path, &["rev-parse", "--is-bare-repository"]).line().await;
        let bare = bare.map_err(|error| match error {
            GitError::Failed { said, .. } if said.contains("dubious ownership") => {
                GitError::OtherOwner { path: path.clone() }
            }
            GitError::Failed { said, .. } if said.contains("not a git repository") => {
                GitError::NotARepository { path: path.clone() }
            }
            other => other,
        })?;
        if bare == "true" {
            return Err(GitError::Bare { path });
        }
        settings::check(git, &path).await?;
        let places = ["rev-parse", "--path-format=absolute", "--git-common-dir", "--git-dir", "--show-toplevel"];
        let places = git.call(&path, &places).line().await?;
        let mut places = places.lines().map(|place| fs::canonicalize(place).unwrap_or_else(|_| place.into()));
        let (data, own, top) = (places.next().unwrap_or_default(), places.next(), places.next().unwrap_or_default());
        if own.as_ref() != Some(&data) {
            return Err(GitError::LinkedWorktree { path, repository: data });
        }
        if top != path {
            return Err(GitError::NotTheTop { path, top });
        }
        let mut this = Self { git: git.clone(), path, data, default_branch: String::new() };
        if this.call(&["for-each-ref", "--count=1", "refs/heads"]).run().await?.is_empty() {
            return Err(GitError::NoCommit { path: this.path });
        }
        if this.tip("refs/heads/claude").await?.is_some() {
            return Err(GitError::ClaudeBranch { path: this.path });
        }
        this.default_branch = match default_branch {
            Some(branch) => branch.to_owned(),
            None => this.find_default_branch().await?,
        };
        let tip = this.default_tip().await?;
        this.check_tree(&tip.tree).await?;
        Ok(this)
    }

    /// The top directory of the user's working tree, canonical.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The branch that [`INTEGRATION_BRANCH`] begins from, without `refs/heads/`.
    pub fn default_branch(&self) -> &str {
        &self.default_branch
    }

    /// Whether the user's working tree or index has changes that are not committed, files included that are not tracked.
    ///
    /// # Errors
    /// Why git cannot tell.
    pub async fn is_dirty(&self) -> Result<bool, GitError> {
        settings::check(&self.git, &self.path).await?;
        let status = ["status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=all"];
        Ok(!self.call(&status).run().await?.is_empty())
    }

    /// Whether the branch of an attempt exists.
    ///
    /// # Errors
    /// Why git cannot tell.
    pub async fn branch_exists(&self, branch: &AttemptBranch) -> Result<bool, GitError> {
        Ok(self.tip(&branch.full()).await?.is_some())
    }

    /// A run that concerns no worktree but the user's, which it only reads.
    pub(crate) fn call(&self, args: &[&str]) -> Call<'_> {
        self.git.call(&self.path, args)
    }

    /// The commit of a ref; `None` where there is no such ref.
    pub(crate) async fn tip(&self, full_name: &str) -> Result<Option<Tip>, GitError> {
        self.tip_in(&self.path, full_name).await
    }

    /// The commit of a ref that may be of this worktree alone.
    pub(crate) async fn tip_in(&self, dir: &Path, full_name: &str) -> Result<Option<Tip>, GitError> {
        let format = "--format=%(refname) %(objectname) %(tree)";
        // The name is a pattern to git, but no revision. The end of the options is for what `rev-parse` said.
        let listed = self.git.call(dir, &["for-each-ref", format, "--end-of-options", full_name]).line().await?;
        Ok(listed.lines().find_map(|line| {
            let (name, rest) = line.split_once(' ')?;
            let (commit, tree) = rest.split_once(' ')?;
            (name == full_name).then(|| Tip { commit: CommitId(commit.to_owned()), tree: tree.to_owned() })
        }))
    }

    pub(crate) async fn default_tip(&self) -> Result<Tip, GitError> {
        let tip = self.tip(&format!("refs/heads/{}", self.default_branch)).await?;
        tip.ok_or_else(|| GitError::NoBranch { path: self.path.clone(), branch: self.default_branch.clone() })
    }

    async fn find_default_branch(&self) -> Result<String, GitError> {
        let target = async |name: &str| {
            let (_, target) = self.call(&["symbolic-ref", "--quiet", name]).codes(&[0, 1]).await?;
            Ok::<_, GitError>(String::from_utf8_lossy(&target).trim_end().to_owned())
        };
        let remote = target("refs/remotes/origin/HEAD").await?;
        let candidates = [
            remote.strip_prefix("refs/remotes/origin/").map(|name| format!("refs/heads/{name}")).unwrap_or_default(),
            "refs/heads/main".to_owned(),
            "refs/heads/master".to_owned(),
            target("HEAD").await?,
        ];
        for candidate in candidates {
            if let Some(name) = candidate.strip_prefix("refs/heads/")
                && !candidate.starts_with(OURS)
                && self.tip(&candidate).await?.is_some()
            {
                return Ok(name.to_owned());
            }
        }
        Err(GitError::NoDefaultBranch { path: self.path.clone() })
    }

    /// Checks that a tree can be checked out and worked on: no submodules, no LFS, `.lore` no symbolic link.
    pub(crate) async fn check_tree(&self, tree: &str) -> Result<(), GitError> {
        let path = || self.path.clone();
        let listed = self.call(&["ls-tree", "-r", "-z", "--full-tree", tree]).run().await?;
        let mut attributes = false;
        for entry in listed.split(|&byte| byte == 0) {
            let entry = String::from_utf8_lossy(entry);
            let Some((about, file)) = entry.split_once('\t') else { continue };
            if about.starts_with("160000") || file == ".gitmodules" {
                return Err(GitError::Submodules { path: path(), file: file.to_owned() });
            }
            // In a list of files, a directory is none. Some file systems do not tell case apart.
            if file.eq_ignore_ascii_case(".lore") {
                return Err(GitError::LoreNotADirectory { path: path(), file: file.to_owned() });
            }
            attributes |= file.rsplit('/').next() == Some(".gitattributes");
        }
        if !attributes {
            return Ok(());
        }
        let search = ["grep", "--no-textconv", "--text", "--files-with-matches", "-z", "-E", "-e", "^[^#].*filter=lfs"];
        let found = self.call(&search).arg(tree).arg("--").arg(":(glob)**/.gitattributes").codes(&[0, 1]).await?.1;
        match found.split(|&byte| byte == 0).next().filter(|file| !file.is_empty()) {
            None => Ok(()),
            Some(file) => {
                let file = String::from_utf8_lossy(file);
                // Each is written behind its tree and a colon.
                let file = file.split_once(':').map_or(&*file, |(_, file)| file).to_owned();
                Err(GitError::Lfs { path: path(), file })
            }
        }
    }

    /// Makes a commit, which no branch has yet.
    pub(crate) async fn commit_tree(&self, tree: &str, parent: &CommitId, message: &str) -> Result<CommitId, GitError> {
        let call = self.call(&["commit-tree", tree, "-p", parent.as_str(), "-F", "-"]);
        call.input(message.as_bytes().to_vec()).line().await.map(CommitId)
    }

    /// Has a ref of ours name another commit. `old` is what it names now, `None` if it is new. `false`: it names something
    /// else. `dir` decides for refs of one worktree.
    pub(crate) async fn update_ref(
        &self,
        dir: &Path,
        full_name: &str,
        new: &CommitId,
        old: Option<&CommitId>,
    ) -> Result<bool, GitError> {
        free(&self.data.join(format!("{full_name}.lock")), self.git.longest_run()).await?;
        let old_id = old.map(CommitId::as_str).unwrap_or_default();
        match self.git.call(dir, &["update-ref", full_name, new.as_str(), old_id]).run().await {
            Ok(_) => Ok(true),
            Err(error) => {
                let now = self.tip_in(dir, full_name).await?.map(|tip| tip.commit);
                if now.as_ref() == old { Err(error) } else { Ok(false) }
            }
        }
    }

    /// A branch as people call it.
    pub(crate) fn short(full_name: &str) -> &str {
        full_name.strip_prefix("refs/heads/").unwrap_or(full_name)
    }
}

/// Looks for the repository without git: what is above the directory, or bare, is not examined by git at all.
fn has_dot_git(path: &Path) -> Result<(), GitError> {
    if path.join(".git").symlink_metadata().is_ok() {
        return Ok(());
    }
    let owned = path.to_owned();
    if path.join("HEAD").is_file() && path.join("objects").is_dir() {
        return Err(GitError::Bare { path: owned });
    }
    Err(match path.ancestors().find(|above| above.join(".git").exists()) {
        Some(top) => GitError::NotTheTop { path: owned, top: top.to_owned() },
        None => GitError::NotARepository { path: owned },
    })
}
