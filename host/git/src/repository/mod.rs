//! Examines a project's repository: its requirements, its branches, and the bounds of its trees.

pub(crate) mod rules;
mod settings;
pub(crate) mod stale_locks;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::sync::Mutex;

use self::{
    rules::{RULES_BYTES, RulesUsage, Whose, check_file, check_rules, is_rules_file, too_large},
    stale_locks::free,
};
use crate::{
    documents::DocumentUsage,
    error::GitError,
    names::{AttemptBranch, CommitId, OURS},
    run::{Call, Git},
};

/// An examined repository of a project. A clone of the value is the same repository.
#[derive(Clone, Debug)]
pub struct Repository {
    pub(crate) git: Git,
    /// The user's working tree. Nothing is written there.
    pub(crate) path: PathBuf,
    /// The repository's data, which all worktrees share.
    pub(crate) data: PathBuf,
    /// Held by runs of `git worktree`: one fails where it reads the data of a worktree that another one is making.
    pub(crate) worktrees: Arc<Mutex<()>>,
    default_branch: String,
}

/// A commit and its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tip {
    pub(crate) commit: CommitId,
    pub(crate) tree: String,
}

/// A ref as one worktree sees it.
pub(crate) struct Ref {
    pub(crate) name: String,
    pub(crate) tip: Tip,
    /// Whether the worktree has it checked out.
    pub(crate) is_head: bool,
}

/// Branches beside which git can have none of the host's, as patterns of `for-each-ref`, with the blocked branches.
/// Without its brackets a pattern would match all branches below that name, too.
const BLOCKING: [(&str, &str); 4] = [
    ("refs/heads/claud[e]", "`claude/main`"),
    ("refs/heads/claude/commissio[n]", "`claude/commission/...` of a commission"),
    ("refs/heads/claude/meetin[g]", "`claude/meeting/...` of a meeting"),
    ("refs/heads/claude/main/", "`claude/main`"),
];

/// The empty tree, which each repository has.
const EMPTY_TREE_SHA1: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
const EMPTY_TREE_SHA256: &str = "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321";

impl Repository {
    /// Examines the repository whose top directory is `path`. `default_branch` is the branch that work begins from;
    /// `None` chooses the first that exists of: the branch that `origin/HEAD` names, `main`, `master`, the branch that
    /// is checked out.
    ///
    /// # Errors
    ///
    /// [`GitError`] has a variant for each reason that it cannot be a project.
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
        let mut this = Self { git: git.clone(), path, data, worktrees: Arc::default(), default_branch: String::new() };
        this.check_info()?;
        if this.call(&["for-each-ref", "--count=1", "refs/heads"]).run().await?.is_empty() {
            return Err(GitError::NoCommit { path: this.path });
        }
        this.check_names().await?;
        this.default_branch = match default_branch {
            Some(branch) => branch.to_owned(),
            None => this.find_default_branch().await?,
        };
        let tip = this.default_tip().await?;
        this.check_tree(&tip.tree, None, Whose::Project).await?;
        Ok(this)
    }

    /// The top directory of the user's working tree, canonical.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The branch that [`crate::INTEGRATION_BRANCH`] begins from, without `refs/heads/`.
    pub fn default_branch(&self) -> &str {
        &self.default_branch
    }

    /// Checks that no branch leaves no room for those of the host.
    async fn check_names(&self) -> Result<(), GitError> {
        let list = ["for-each-ref", "--count=1", "--format=%(refname)"];
        let found = BLOCKING.iter().fold(self.call(&list), |call, (pattern, _)| call.arg(pattern)).line().await?;
        if found.is_empty() {
            return Ok(());
        }
        let branch = Self::short(&found).to_owned();
        let is_it = |pattern: &str| found == pattern.replace(['[', ']'], "");
        let known = BLOCKING.iter().find(|(pattern, _)| is_it(pattern)).or(BLOCKING.last());
        let blocked = known.map_or_else(Default::default, |(_, blocked)| *blocked);
        Err(GitError::ClaudeBranch { path: self.path.clone(), branch, blocked })
    }

    /// Whether the user's working tree or index has uncommitted changes or untracked files.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn is_dirty(&self) -> Result<bool, GitError> {
        self.check_settings(&self.path).await?;
        let status = ["status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=all"];
        Ok(!self.call(&status).run().await?.is_empty())
    }

    /// Whether the branch of an attempt exists.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn branch_exists(&self, branch: &AttemptBranch) -> Result<bool, GitError> {
        Ok(self.tip(&branch.full()).await?.is_some())
    }

    /// A run in the user's worktree, which it only reads.
    pub(crate) fn call(&self, args: &[&str]) -> Call<'_> {
        self.git.call(&self.path, args)
    }

    /// The commit of a ref; `None` if the ref does not exist.
    pub(crate) async fn tip(&self, full_name: &str) -> Result<Option<Tip>, GitError> {
        Ok(self.refs(&self.path, &[full_name]).await?.into_iter().next().map(|found| found.tip))
    }

    /// The existing ones of these refs, as a worktree sees them, in the order of their names.
    pub(crate) async fn refs(&self, dir: &Path, full_names: &[&str]) -> Result<Vec<Ref>, GitError> {
        let call = self.git.call(dir, &["for-each-ref", "--format=%(HEAD)%(refname) %(objectname) %(tree)"]);
        // Git reads them as patterns, and not as revisions or options, since they begin with `refs/`.
        let listed = full_names.iter().fold(call, |call, name| call.arg(name)).line().await?;
        let read = |line: &str| {
            let (name, rest) = line.split_at_checked(1)?.1.split_once(' ')?;
            let (commit, tree) = rest.split_once(' ')?;
            let tip = Tip { commit: CommitId(commit.to_owned()), tree: tree.to_owned() };
            let is_head = line.starts_with('*');
            full_names.contains(&name).then(|| Ref { name: name.to_owned(), tip, is_head })
        };
        Ok(listed.lines().filter_map(read).collect())
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

    /// Checks that a commit can be checked out and worked on, see [`Self::check_tree`] and `settings.rs`.
    pub(crate) async fn check(&self, tip: &Tip) -> Result<(), GitError> {
        self.check_settings(&self.path).await?;
        self.check_tree(&tip.tree, None, Whose::Project).await
    }

    /// Checks the repository's own settings and files of patterns, which git reads in each run in a worktree.
    pub(crate) async fn check_settings(&self, worktree: &Path) -> Result<(), GitError> {
        settings::check(&self.git, worktree).await?;
        self.check_info()
    }

    /// Checks the files of patterns beside the repository's configuration.
    fn check_info(&self) -> Result<(), GitError> {
        let both = ["info/exclude", "info/attributes"];
        both.into_iter().try_for_each(|file| check_file(&self.data.join(file), &self.path))
    }

    /// Checks a tree: no submodules, no LFS, `.lore` no symbolic link, no large files of patterns, and not too many of
    /// them. Only its differences from `checked`, a tree that passed, are examined. `whose` selects the bounds of all
    /// files of patterns together. After an attempt's changes, the whole tree has to be within the bounds of a project,
    /// so that many attempts together cannot exceed them.
    pub(crate) async fn check_tree(&self, tree: &str, checked: Option<&str>, whose: Whose) -> Result<(), GitError> {
        let path = || self.path.clone();
        let checked = checked.unwrap_or_else(|| empty_tree(tree.len()));
        let compare = ["diff-tree", "-r", "-z", "--no-renames", "--ignore-submodules=none", checked, tree];
        let changed = self.call(&compare).run().await?;
        // `:<old mode> <new mode> <old object> <new object> <status>`, then the file.
        let mut fields = changed.split(|&byte| byte == 0).map(String::from_utf8_lossy);
        let (mut attributes, mut rules) = (false, Vec::new());
        while let (Some(about), Some(file)) = (fields.next(), fields.next()) {
            let mode = about.split(' ').nth(1).unwrap_or_default();
            if mode == "000000" {
                continue;
            }
            if mode == "160000" || file == ".gitmodules" {
                return Err(GitError::Submodules { path: path(), file: file.into_owned() });
            }
            // A directory is not listed, only what is in it. Some file systems do not tell case apart.
            if file.eq_ignore_ascii_case(".lore") {
                return Err(GitError::LoreNotADirectory { path: path(), file: file.into_owned() });
            }
            let name = file.rsplit('/').next().unwrap_or_default();
            attributes |= name == ".gitattributes";
            if is_rules_file(name) && mode != "120000" {
                let object = about.split(' ').nth(3).unwrap_or_default();
                rules.push((file.into_owned(), object.to_owned()));
            }
        }
        if !rules.is_empty() {
            self.check_rules(&rules, whose).await?;
            if whose == Whose::Attempt {
                self.check_rules(&self.rules_of(tree).await?, Whose::Project).await?;
            }
        }
        if !attributes {
            return Ok(());
        }
        let search = ["grep", "--no-textconv", "--text", "--files-with-matches", "-z", "-E", "-e", "^[^#].*filter=lfs"];
        let found = self.call(&search).arg(tree).arg("--").arg(":(glob)**/.gitattributes").codes(&[0, 1]).await?.1;
        // Each file stands behind its tree and a colon.
        match String::from_utf8_lossy(&found).split('\0').find_map(|file| file.split_once(':')) {
            Some((_, file)) => Err(GitError::Lfs { path: path(), file: file.to_owned() }),
            None => Ok(()),
        }
    }

    /// The ignore and attribute files of a tree, with their objects.
    async fn rules_of(&self, tree: &str) -> Result<Vec<(String, String)>, GitError> {
        let listed = self.call(&["ls-tree", "-r", "-z", "--full-tree", tree]).run().await?;
        let read = |entry: &[u8]| {
            // `<mode> <kind> <object>`, a tab, and the file.
            let entry = String::from_utf8_lossy(entry);
            let (about, file) = entry.split_once('\t')?;
            let is_read = file.rsplit('/').next().is_some_and(is_rules_file) && !about.starts_with("120000 ");
            is_read.then(|| (file.to_owned(), about.rsplit(' ').next().unwrap_or_default().to_owned()))
        };
        Ok(listed.split(|&byte| byte == 0).filter_map(read).collect())
    }

    /// Checks the ignore and attribute files of a tree, which are given with their objects, each and all together.
    async fn check_rules(&self, files: &[(String, String)], whose: Whose) -> Result<(), GitError> {
        let refused = |file: &str, why: String| GitError::Rules {
            path: self.path.clone(),
            file: file.to_owned(),
            why: format!("{why}; make it smaller, and commit"),
        };
        let objects: Vec<u8> = files.iter().flat_map(|(_, object)| object.bytes().chain([b'\n'])).collect();
        let ask = ["cat-file", "--batch-check=%(objectsize)"];
        let sizes = self.call(&ask).input(objects.clone()).line().await?;
        let (mut bytes, mut largest) = (0_usize, ("", 0));
        for ((file, _), size) in files.iter().zip(sizes.lines()) {
            let size = size.parse().unwrap_or(usize::MAX);
            if size > RULES_BYTES {
                return Err(refused(file, too_large(size)));
            }
            bytes = bytes.saturating_add(size);
            if size >= largest.1 {
                largest = (file.as_str(), size);
            }
        }
        let together = |used: RulesUsage| {
            let others = files.len().saturating_sub(1);
            used.within(whose).map_err(|why| GitError::Rules {
                path: self.path.clone(),
                file: format!("{} and {others} more ignore and attribute files", largest.0),
                why: format!("{why}; make them smaller, and commit"),
            })
        };
        // The sum of sizes is checked before any file is read.
        together(RulesUsage { bytes, lines: 0 })?;
        let contents = self.call(&["cat-file", "--batch=%(objectsize)"]).input(objects).run().await?;
        // Each: its size, a newline, its contents, a newline.
        let (mut rest, mut used) = (contents.as_slice(), RulesUsage::default());
        for (file, _) in files {
            let line = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
            let (size, behind) = (rest.get(..line).unwrap_or_default(), rest.get(line + 1..).unwrap_or_default());
            let size: usize = String::from_utf8_lossy(size).parse().unwrap_or_default();
            let contents = behind.get(..size).unwrap_or_default();
            check_rules(contents).map_err(|why| refused(file, why))?;
            used.add(contents);
            rest = behind.get(size + 1..).unwrap_or_default();
        }
        together(used)
    }

    /// Checks that the documents of a tree are within the project's quota, or no more than those of `before`.
    pub(crate) async fn check_documents(&self, before: &str, after: &str) -> Result<(), GitError> {
        let used = self.documents_of(after).await?;
        let quota = self.git.documents;
        if used.files <= quota.files && used.bytes <= quota.bytes {
            return Ok(());
        }
        let checked = quota.check(self.documents_of(before).await?, used);
        checked.map_err(|why| GitError::DocumentQuota { path: self.path.clone(), why })
    }

    async fn documents_of(&self, tree: &str) -> Result<DocumentUsage, GitError> {
        let listed = self.call(&["ls-tree", "-r", "-l", "-z", "--full-tree", tree, "--", ".lore/"]).run().await?;
        let mut used = DocumentUsage::default();
        for entry in listed.split(|&byte| byte == 0) {
            // `<mode> <kind> <object> <size>`, a tab, and the file.
            let entry = String::from_utf8_lossy(entry);
            let Some((about, file)) = entry.split_once('\t') else { continue };
            used.add(file, about.rsplit(' ').next().and_then(|size| size.parse().ok()).unwrap_or_default());
        }
        Ok(used)
    }

    /// Makes a commit, which no branch has yet.
    pub(crate) async fn commit_tree(&self, tree: &str, parent: &CommitId, message: &str) -> Result<CommitId, GitError> {
        self.commit_trees(tree, &[parent], message, None).await
    }

    /// Commits a tree like [`Self::commit_tree`], with all parents. `author` is another author: name, address and time.
    pub(crate) async fn commit_trees(
        &self,
        tree: &str,
        parents: &[&CommitId],
        message: &str,
        author: Option<&[String; 3]>,
    ) -> Result<CommitId, GitError> {
        let mut call = self.call(&["commit-tree", tree]);
        for parent in parents {
            call = call.arg("-p").arg(parent.as_str());
        }
        if let Some(author) = author {
            let names = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"];
            // Git refuses an empty name.
            let given = names.into_iter().zip(author).filter(|(_, value)| !value.is_empty());
            call = given.fold(call, |call, (name, value)| call.env(name, value));
        }
        call.arg("-F").arg("-").input(message.as_bytes().to_vec()).line().await.map(CommitId)
    }

    /// A commit with its tree.
    pub(crate) async fn tip_of(&self, commit: &CommitId) -> Result<Tip, GitError> {
        let tree = self.call(&["rev-parse", "--verify", &format!("{commit}^{{tree}}")]).line().await?;
        Ok(Tip { commit: commit.clone(), tree })
    }

    /// Moves a ref of the host to another commit. `old` is its present commit, `None` for a new ref. `false`: it has
    /// another commit. `dir` selects the worktree for refs of one worktree.
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
                let now = self.refs(dir, &[full_name]).await?.into_iter().next().map(|found| found.tip.commit);
                if now.as_ref() != old {
                    return Ok(false);
                }
                // The user may have made a branch since the repository was opened.
                self.check_names().await?;
                Err(error)
            }
        }
    }

    /// The short name of a branch.
    pub(crate) fn short(full_name: &str) -> &str {
        full_name.strip_prefix("refs/heads/").unwrap_or(full_name)
    }
}

/// The empty tree, in a repository whose ids have so many digits.
pub(crate) fn empty_tree(digits: usize) -> &'static str {
    if digits == EMPTY_TREE_SHA1.len() { EMPTY_TREE_SHA1 } else { EMPTY_TREE_SHA256 }
}

/// Looks for the repository without git, so that git never examines a repository above the directory or a bare one.
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
