//! Reads a project, within bounds: its state, commits, differences and branches, as the integration worktree has them.
//! Revisions from callers are resolved to commit ids first, and a file is a literal path, so neither is ever an option.
//! Programs that the configuration names for differences are switched off.

use std::path::Path;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    error::GitError,
    integration::Integration,
    names::{AttemptBranch, CommitId},
    repository::{Repository, empty_tree},
    run::Call,
};

/// The most bytes of git's output for a difference.
const DIFF_BYTES: usize = 8 << 20;
/// The most bytes of git's output otherwise.
const LIST_BYTES: usize = 1 << 20;
/// The default bytes of one file's difference.
const FILE_BYTES: usize = 20_480;
/// The bytes of a whole difference that are shown.
const SHOWN_BYTES: usize = 102_400;
/// The default and the greatest number of commits in a log.
const COMMITS: u32 = 20;
const MOST_COMMITS: u32 = 200;
/// Branches in a list.
const BRANCHES: u32 = 500;
/// The most characters of a commit's message, without its first line.
const BODY_CHARS: usize = 4096;
/// The most bytes of a caller's name.
const NAME_BYTES: usize = 1024;

/// Lock files, build results and caches.
const GENERATED: [&str; 12] = [
    "**/*.lock",
    "**/package-lock.json",
    "**/bun.lockb",
    "**/*.min.js",
    "**/*.min.css",
    "dist/**",
    "build/**",
    ".next/**",
    "out/**",
    "target/**",
    "**/__pycache__/**",
    ".cache/**",
];

/// Which commits a log has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogOptions {
    /// Number of commits (default: 20, at most 200)
    pub count: Option<u32>,
    /// Only commits after this date, such as 2026-01-31
    pub since: Option<String>,
    /// Only commits whose author's name or address has this text
    pub author: Option<String>,
}

/// Which differences are shown, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiffOptions {
    /// Changes that are staged, in place of those that are not
    #[serde(default)]
    pub staged: bool,
    /// Compare with a commit, or two commits: HEAD~3, main..claude/main, main...claude/main
    #[serde(rename = "ref")]
    pub rev: Option<String>,
    /// Only this file
    pub file: Option<String>,
    /// Names of files and numbers of lines only
    #[serde(default)]
    pub stat: bool,
    /// With the contents of binary files
    #[serde(default)]
    pub include_binary: bool,
    /// With lock files and what builds make
    #[serde(default)]
    pub include_generated: bool,
    /// Bytes of one file's difference (default: 20480); 0 for no bound of its own
    pub max_file_size: Option<usize>,
}

/// How much of a commit's changes is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShownDiff {
    /// Nothing
    None,
    /// Names of files and numbers of lines
    #[default]
    Stat,
    /// The whole patch
    Full,
}

/// Which commit is shown, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowOptions {
    /// The commit: HEAD, main~2, or its id
    #[serde(rename = "ref")]
    pub rev: String,
    /// How much of its changes (default: stat)
    #[serde(default)]
    pub diff: ShownDiff,
    /// With the contents of binary files
    #[serde(default)]
    pub include_binary: bool,
    /// With lock files and what builds make
    #[serde(default)]
    pub include_generated: bool,
    /// Bytes of one file's difference (default: 20480); 0 for no bound of its own
    pub max_file_size: Option<usize>,
}

/// Which branches are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchOptions {
    /// Also those of remotes
    #[serde(default)]
    pub all: bool,
    /// Only those of remotes
    #[serde(default)]
    pub remote: bool,
}

/// Files that differ from the last commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StatusView {
    /// In the index.
    pub staged: Vec<String>,
    /// In the worktree.
    pub unstaged: Vec<String>,
    /// Files that git does not track.
    pub untracked: Vec<String>,
}

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommitView {
    /// Its id.
    pub hash: String,
    /// Its author's name.
    pub author: String,
    /// When it was written.
    pub date: String,
    /// The first line of its message.
    pub subject: String,
    /// The rest.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub body: String,
}

/// A commit and its changes, from its first parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShowView {
    /// The commit.
    #[serde(flatten)]
    pub commit: CommitView,
    /// Names of files and numbers of lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stat: Option<String>,
    /// The number of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_files: Option<usize>,
    /// The patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// A branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BranchView {
    /// Its name.
    pub name: String,
    /// Whether the integration worktree is on it.
    pub current: bool,
}

/// The options of showing a difference.
struct Shown<'a> {
    /// The compared commits: options and ids.
    compared: Vec<String>,
    file: Option<&'a str>,
    include_binary: bool,
    include_generated: bool,
    max_file_size: Option<usize>,
}

impl<'a> Shown<'a> {
    /// The texts of all files but generated ones, or of one file.
    fn plainly(compared: Vec<String>, file: Option<&'a str>) -> Self {
        Self { compared, file, include_binary: false, include_generated: false, max_file_size: None }
    }
}

impl Integration {
    /// The files that differ from the last commit.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn status_view(&self) -> Result<StatusView, GitError> {
        let status = ["status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal"];
        let said = self.look(&status).await?.arg("--ignore-submodules=all").run().await?;
        let mut view = StatusView::default();
        for entry in String::from_utf8_lossy(&said).split('\0') {
            let mut kinds = entry.chars();
            let (Some(index), Some(worktree), Some(file)) = (kinds.next(), kinds.next(), entry.get(3..)) else {
                continue;
            };
            if index == '?' {
                view.untracked.push(file.to_owned());
                continue;
            }
            if index != ' ' {
                view.staged.push(file.to_owned());
            }
            if worktree != ' ' {
                view.unstaged.push(file.to_owned());
            }
        }
        Ok(view)
    }

    /// The last commits, the newest first.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn log_view(&self, options: &LogOptions) -> Result<Vec<CommitView>, GitError> {
        let mut filters = vec![format!("--max-count={}", options.count.unwrap_or(COMMITS).min(MOST_COMMITS))];
        for (option, value) in [("since", &options.since), ("author", &options.author)] {
            if let Some(value) = value {
                filters.push(format!("--{option}={}", plain(value)?));
            }
        }
        self.commits(&filters, "HEAD").await
    }

    /// Differences, as a patch or as a table.
    ///
    /// # Errors
    ///
    /// [`GitError::NoCommitOfThatName`], or git failed.
    pub async fn diff_view(&self, options: &DiffOptions) -> Result<String, GitError> {
        let mut compared = Vec::new();
        if options.staged {
            compared.push("--cached".to_owned());
        }
        if let Some(rev) = &options.rev {
            compared.extend(self.range(rev).await?);
        }
        let shown = Shown {
            compared,
            file: options.file.as_deref(),
            include_binary: options.include_binary,
            include_generated: options.include_generated,
            max_file_size: options.max_file_size,
        };
        let said = if options.stat { self.stat(&shown).await? } else { self.patch(&shown).await? };
        Ok(if said.is_empty() { "(no differences)".to_owned() } else { said })
    }

    /// The changes on an attempt's branch since it left the integration branch, as a patch; empty if there are none.
    ///
    /// # Errors
    ///
    /// [`GitError::NoCommitOfThatName`] if the branch was removed, or git failed.
    pub async fn attempt_changes(&self, branch: &AttemptBranch, file: Option<&str>) -> Result<String, GitError> {
        let compared = self.range(&format!("...{}", branch.full())).await?;
        self.patch(&Shown::plainly(compared, file)).await
    }

    /// The changes of an attempt under way since its branch left the integration branch: those in its worktree at `dir`
    /// too, which are not committed yet.
    ///
    /// # Errors
    ///
    /// [`GitError::NotAWorktree`], [`GitError::OtherBranch`], or git failed.
    pub async fn changes_so_far(
        &self,
        branch: &AttemptBranch,
        dir: &Path,
        file: Option<&str>,
    ) -> Result<String, GitError> {
        let repository = self.repository();
        let worktree = repository.worktree(dir)?.ok_or_else(|| repository.not_a_worktree(dir))?;
        let head = repository.on_branch(&worktree.dir, &branch.full()).await?;
        let tree = repository.tree_so_far(&worktree, &head.tree).await?;
        let common = self.look(&["merge-base", "HEAD"]).await?.arg(head.commit.as_str()).line().await?;
        self.patch(&Shown::plainly(vec![common, tree], file)).await
    }

    /// A commit.
    ///
    /// # Errors
    ///
    /// [`GitError::NoCommitOfThatName`], or git failed.
    pub async fn show_view(&self, options: &ShowOptions) -> Result<ShowView, GitError> {
        let id = self.resolve(&options.rev).await?;
        let commit = self.commits(&["--max-count=1".to_owned()], id.as_str()).await?.into_iter().next();
        let commit = commit.ok_or_else(|| GitError::NoCommitOfThatName { rev: options.rev.clone() })?;
        let parents = self.look(&["rev-list", "--max-count=1", "--no-commit-header", "--format=%P"]).await?;
        let parents = parents.arg(id.as_str()).line().await?;
        let parent = parents.split(' ').next().filter(|parent| !parent.is_empty());
        let parent = parent.unwrap_or_else(|| empty_tree(id.as_str().len())).to_owned();
        let shown = Shown {
            compared: vec![parent, id.to_string()],
            file: None,
            include_binary: options.include_binary,
            include_generated: options.include_generated,
            max_file_size: options.max_file_size,
        };
        let mut view = ShowView { commit, stat: None, total_files: None, diff: None };
        match options.diff {
            ShownDiff::None => {}
            ShownDiff::Stat => {
                let stat = self.stat(&shown).await?;
                // The last line sums up.
                view.total_files = Some(stat.lines().count().saturating_sub(1));
                view.stat = Some(stat);
            }
            ShownDiff::Full => view.diff = Some(self.patch(&shown).await?),
        }
        Ok(view)
    }

    /// The branches.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn branch_view(&self, options: BranchOptions) -> Result<Vec<BranchView>, GitError> {
        let places: &[&str] = match options {
            BranchOptions { all: true, .. } => &["refs/heads/", "refs/remotes/"],
            BranchOptions { remote: true, .. } => &["refs/remotes/"],
            BranchOptions { .. } => &["refs/heads/"],
        };
        let count = format!("--count={BRANCHES}");
        let list = self.look(&["for-each-ref", &count, "--format=%(HEAD)%(refname)"]).await?;
        let said = places.iter().fold(list, |list, place| list.arg(place)).line().await?;
        let read = |line: &str| {
            let (head, name) = line.split_at_checked(1)?;
            let name = name.strip_prefix("refs/remotes/").unwrap_or_else(|| Repository::short(name));
            Some(BranchView { name: name.to_owned(), current: head == "*" })
        };
        Ok(said.lines().filter_map(read).collect())
    }

    /// A run that only reads.
    async fn look(&self, args: &[&str]) -> Result<Call<'_>, GitError> {
        let repository = self.repository();
        let worktree = repository.worktree(self.dir())?.ok_or_else(|| repository.not_a_worktree(self.dir()))?;
        repository.check_settings(&worktree.dir).await?;
        Ok(repository.git.call(self.dir(), args).at_most(LIST_BYTES))
    }

    async fn commits(&self, filters: &[String], from: &str) -> Result<Vec<CommitView>, GitError> {
        const FIELDS: usize = 5;
        let format = "--format=%H%x00%an%x00%aI%x00%s%x00%b%x00";
        // An author is a literal text, and no pattern.
        let list = self.look(&["rev-list", "--no-commit-header", "--fixed-strings", format]).await?;
        let said = filters.iter().fold(list, |list, filter| list.arg(filter)).arg(from).arg("--").run().await?;
        let said = String::from_utf8_lossy(&said);
        let fields: Vec<&str> = said.split('\0').collect();
        let read = |fields: &[&str]| {
            let [hash, author, date, subject, body]: [&str; FIELDS] = fields.try_into().ok()?;
            let body = body.trim().chars().take(BODY_CHARS).collect();
            let [hash, author, date, subject] = [hash, author, date, subject].map(|text| text.trim().to_owned());
            Some(CommitView { hash, author, date, subject, body })
        };
        Ok(fields.chunks_exact(FIELDS).filter_map(read).collect())
    }

    /// The commit that a caller names.
    async fn resolve(&self, rev: &str) -> Result<CommitId, GitError> {
        let missing = || GitError::NoCommitOfThatName { rev: rev.chars().take(100).collect() };
        let is_name = !rev.is_empty()
            && rev.len() <= NAME_BYTES
            && !rev.starts_with('-')
            && rev.chars().all(|c| c.is_alphanumeric() || "._-/@{}~^+#".contains(c));
        if !is_name {
            return Err(missing());
        }
        let ask = self.look(&["rev-parse", "--verify", "--quiet", "--end-of-options"]).await?;
        let (_, said) = ask.arg(format!("{rev}^{{commit}}")).codes(&[0, 1, 128]).await?;
        CommitId::parse(String::from_utf8_lossy(&said).trim()).ok_or_else(missing)
    }

    /// The compared commits: one, or two.
    async fn range(&self, rev: &str) -> Result<Vec<String>, GitError> {
        let (from, to, since_common) = match (rev.split_once("..."), rev.split_once("..")) {
            (Some((from, to)), _) => (from, to, true),
            (None, Some((from, to))) => (from, to, false),
            (None, None) => return Ok(vec![self.resolve(rev).await?.to_string()]),
        };
        let side = |side: &str| if side.is_empty() { "HEAD".to_owned() } else { side.to_owned() };
        let (from, to) = (self.resolve(&side(from)).await?, self.resolve(&side(to)).await?);
        Ok(if since_common { vec![format!("{from}...{to}")] } else { vec![from.to_string(), to.to_string()] })
    }

    /// A difference in some form. Without `all`, generated files are left out.
    async fn diff(&self, form: &[&str], shown: &Shown<'_>, all: bool) -> Result<String, GitError> {
        let fixed = [
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--no-relative",
            "--find-renames",
            "--ignore-submodules=all",
            "--src-prefix=a/",
            "--dst-prefix=b/",
            "--inter-hunk-context=0",
            "-O/dev/null",
        ];
        let mut call = self.look(&fixed).await?.at_most(DIFF_BYTES);
        for arg in form.iter().copied().chain(shown.compared.iter().map(String::as_str)) {
            call = call.arg(arg);
        }
        call = call.arg("--");
        if let Some(file) = shown.file {
            call = call.arg(format!(":(top,literal){}", plain(file)?));
        } else if !all {
            call = GENERATED.iter().fold(call, |call, glob| call.arg(format!(":(top,exclude,glob){glob}")));
        }
        Ok(String::from_utf8_lossy(&call.run().await?).into_owned())
    }

    async fn stat(&self, shown: &Shown<'_>) -> Result<String, GitError> {
        let mut stat = self.diff(&["--stat=120"], shown, true).await?;
        cut(&mut stat, SHOWN_BYTES);
        Ok(stat.trim_end().to_owned())
    }

    /// A patch, bounded for each file and as a whole, and the parts that were left out.
    async fn patch(&self, shown: &Shown<'_>) -> Result<String, GitError> {
        let form: &[&str] = if shown.include_binary { &["--unified=3", "--binary"] } else { &["--unified=3"] };
        let mut patch = self.diff(form, shown, shown.include_generated).await?;
        if shown.file.is_some() {
            cut(&mut patch, shown.max_file_size.filter(|most| *most > 0).unwrap_or(SHOWN_BYTES).min(SHOWN_BYTES));
            return Ok(patch);
        }
        let most = match shown.max_file_size.unwrap_or(FILE_BYTES) {
            0 => usize::MAX,
            most => most,
        };
        let (mut text, mut left) = (String::new(), Vec::new());
        for part in files(&patch) {
            let file = part.lines().next().and_then(|line| line.rsplit_once(" b/")).map_or("", |(_, file)| file);
            if part.len() <= most && text.len() + part.len() <= SHOWN_BYTES {
                text.push_str(part);
            } else {
                left.push(format!("{file} ({} bytes)", part.len()));
            }
        }
        if !left.is_empty() {
            text.push_str(&format!("[too large to show here; ask for each with `file`: {}]\n", left.join(", ")));
        }
        if !shown.include_generated {
            let names = |said: String| said.split('\0').map(str::to_owned).collect::<BTreeSet<_>>();
            let all = names(self.diff(&["--name-only", "-z"], shown, true).await?);
            let own = names(self.diff(&["--name-only", "-z"], shown, false).await?);
            let mut generated: Vec<_> = all.difference(&own).filter(|file| !file.is_empty()).cloned().collect();
            let count = generated.len();
            generated.truncate(50);
            if count > 0 {
                let generated = generated.join(", ");
                text.push_str(&format!("[{count} generated files left out; see `include_generated`: {generated}]\n"));
            }
        }
        cut(&mut text, 2 * SHOWN_BYTES);
        Ok(text)
    }
}

/// The parts of a patch, one for each file. A line of a file's contents never begins so.
fn files(patch: &str) -> impl Iterator<Item = &str> {
    let mut rest = patch;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.find("\ndiff --git ").map_or(rest.len(), |at| at + 1);
        let (part, after) = rest.split_at_checked(end)?;
        rest = after;
        Some(part)
    })
}

fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push_str("\n[cut off here]\n");
    }
}

/// A caller's text as a part of an argument.
fn plain(text: &str) -> Result<&str, GitError> {
    match text.len() <= NAME_BYTES && !text.contains(char::is_control) {
        true => Ok(text),
        false => Err(GitError::NoCommitOfThatName { rev: text.chars().take(100).collect() }),
    }
}
