//! Runs git with a fixed environment, fixed settings, and bounds of time, memory and output.

pub(crate) mod process;

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use guild_confine::{find_program, search_path};
use tokio::process::Command;
use tracing::Instrument as _;

use self::process::{Bounds, Cut, Finished, TERM_GRACE, execute};
use crate::{
    documents::DocumentQuota,
    error::GitError,
    version::{OLDEST, Version},
};

/// The most bytes of one run's output that are read, enough for the list of half a million files.
const STDOUT_BYTES: usize = 64 << 20;

/// The settings of each run. The command line takes precedence over each file of the repository.
///
/// Settings with a driver's name in them (filters, merge drivers) cannot be listed here: `repository/settings.rs`
/// refuses them. Those for the network are in `remote.rs`: else `GIT_ALLOW_PROTOCOL` allows none. Those for diffs,
/// pagers, editors and signatures of commands that are never run have no effect.
const SETTINGS: [&str; 19] = [
    // These settings could run programs.
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.pager=cat",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    // A tree with the files of a bare repository does not count as one.
    "safe.bareRepository=explicit",
    // No path of a worktree leads out of it.
    "core.symlinks=false",
    // Each worktree has patterns of its own, or none. `git sparse-checkout` would write into the user's configuration.
    "core.sparseCheckout=true",
    "core.sparseCheckoutCone=false",
    "index.sparse=false",
    // A split index leaves files in the repository, also that of a temporary index.
    "core.splitIndex=false",
    // Files are written unchanged, without regard to the user's preferences.
    "core.safecrlf=false",
    "i18n.commitEncoding=UTF-8",
    "merge.renames=true",
    // Its conflicts name files that only one side has, and taking the other side would lose them.
    "merge.directoryRenames=false",
    "merge.conflictStyle=merge",
    "worktree.useRelativePaths=false",
];

/// The environment of each run, besides `PATH`.
const ENVIRONMENT: [(&str, &str); 16] = [
    // The variable is set, so that `~` in a path of the configuration is no error.
    ("HOME", "/dev/null"),
    ("LC_ALL", "C"),
    ("TZ", "UTC"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    // No protocol is allowed. A partial clone would otherwise fetch missing objects through a program that it names.
    ("GIT_ALLOW_PROTOCOL", ""),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_AUTHOR_NAME", "Guild Hall"),
    ("GIT_AUTHOR_EMAIL", "guild-hall@localhost"),
    ("GIT_COMMITTER_NAME", "Guild Hall"),
    ("GIT_COMMITTER_EMAIL", "guild-hall@localhost"),
    ("GIT_EDITOR", "false"),
];

/// The options of running git.
#[derive(Clone, Debug)]
pub struct GitOptions {
    /// The program, as an absolute path; `None` looks for `git` on `PATH`. `gh` is looked for beside this program, and
    /// on `PATH`.
    pub program: Option<PathBuf>,
    /// The time that one run may take. An operation is some ten runs.
    pub limit: Duration,
    /// Bytes that one run may allocate (`limits.git_memory_bytes`).
    pub memory_bytes: u64,
    /// The quota of a project's documents.
    pub documents: DocumentQuota,
    /// The source of the time of commits.
    pub now: fn() -> SystemTime,
}

/// The program `git`. A clone is the same program.
#[derive(Clone, Debug)]
pub struct Git {
    program: Arc<Path>,
    /// The directory in which `gh` is looked for first.
    beside: Option<Arc<Path>>,
    version: Version,
    limit: Duration,
    memory_bytes: u64,
    pub(crate) documents: DocumentQuota,
    now: fn() -> SystemTime,
}

impl Git {
    /// Finds the program and asks for its version.
    ///
    /// # Errors
    ///
    /// [`GitError::NotInstalled`], [`GitError::TooOld`], [`GitError::NotGit`], or the program cannot be run.
    pub async fn find(options: GitOptions) -> Result<Self, GitError> {
        let beside = options.program.as_deref().and_then(Path::parent).map(Arc::from);
        let program = match options.program {
            Some(program) => program,
            None => find_program("git").ok_or(GitError::NotInstalled)?,
        };
        let program: Arc<Path> = program.into();
        let git = Self {
            program: Arc::clone(&program),
            beside,
            version: OLDEST,
            limit: options.limit,
            memory_bytes: options.memory_bytes,
            documents: options.documents,
            now: options.now,
        };
        let said = git.call(Path::new("/"), &["version"]).line().await?;
        let program = program.to_path_buf();
        match Version::read(&said) {
            Some(version) if version >= OLDEST => Ok(Self { version, ..git }),
            Some(found) => Err(GitError::TooOld { program, found }),
            None => Err(GitError::NotGit { program, said }),
        }
    }

    /// The program's path.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The program's version: [`OLDEST`] or newer.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The program `gh`.
    ///
    /// # Errors
    /// [`GitError::GhNotInstalled`].
    pub fn gh_program(&self) -> Result<PathBuf, GitError> {
        self.gh().ok_or(GitError::GhNotInstalled)
    }

    /// The program `gh`, if there is one.
    pub(crate) fn gh(&self) -> Option<PathBuf> {
        let beside = self.beside.as_ref().map(|dir| dir.join("gh")).filter(|gh| gh.is_file());
        beside.or_else(|| find_program("gh"))
    }

    /// The time that one run may take.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Bytes that one run may allocate.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// The time after which no run of this host holds a lock file any more.
    pub(crate) fn longest_run(&self) -> Duration {
        self.limit + TERM_GRACE
    }

    /// A run in a directory, which has to be the top of a worktree if the command needs a repository.
    pub(crate) fn call<'a>(&'a self, dir: &'a Path, args: &[&str]) -> Call<'a> {
        let args = args.iter().map(OsString::from).collect();
        Call {
            git: self,
            dir,
            args,
            input: Vec::new(),
            settings: Vec::new(),
            environment: Vec::new(),
            most: STDOUT_BYTES,
        }
    }
}

/// One run of git, before it is started.
pub(crate) struct Call<'a> {
    git: &'a Git,
    dir: &'a Path,
    args: Vec<OsString>,
    input: Vec<u8>,
    settings: Vec<String>,
    environment: Vec<(&'static str, OsString)>,
    most: usize,
}

impl Call<'_> {
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Sets its stdin.
    pub(crate) fn input(mut self, input: Vec<u8>) -> Self {
        self.input = input;
        self
    }

    /// Uses this file in place of the worktree's index.
    pub(crate) fn index(self, index: &Path) -> Self {
        self.env("GIT_INDEX_FILE", index)
    }

    /// Sets a variable of its environment.
    pub(crate) fn env(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name, value.as_ref().to_owned()));
        self
    }

    /// Sets one more of [`SETTINGS`].
    pub(crate) fn setting(mut self, setting: impl Into<String>) -> Self {
        self.settings.push(setting.into());
        self
    }

    /// Reads at most so many bytes of its output.
    pub(crate) fn at_most(mut self, bytes: usize) -> Self {
        self.most = bytes;
        self
    }

    /// Runs it, and returns its output. Any exit code but 0 is an error.
    pub(crate) async fn run(self) -> Result<Vec<u8>, GitError> {
        self.codes(&[0]).await.map(|(_, said)| said)
    }

    /// Runs it, and returns its output without the last line's end.
    pub(crate) async fn line(self) -> Result<String, GitError> {
        let said = self.run().await?;
        Ok(String::from_utf8_lossy(&said).trim_end_matches('\n').to_owned())
    }

    /// Runs it, and returns its exit code, which has to be one of these, and its output.
    pub(crate) async fn codes(self, expected: &[i32]) -> Result<(i32, Vec<u8>), GitError> {
        let mut words = self.args.iter().map(|arg| arg.to_string_lossy());
        let command = words.find(|word| !word.starts_with('-')).unwrap_or_default().into_owned();
        let (dir, limit, program) = (self.dir.to_owned(), self.git.limit, self.git.program.to_path_buf());
        let (bytes, memory) = (self.most, self.git.memory_bytes);
        let span = tracing::debug_span!("git", otel.name = %format_args!("git {command}"));
        match self.finish().instrument(span).await {
            Ok(Finished { code: Some(code), stdout, .. }) if expected.contains(&code) => Ok((code, stdout)),
            Ok(finished) if finished.lacked_memory() => Err(GitError::TooMuchMemory { command, dir, bytes: memory }),
            Ok(finished) => Err(GitError::Failed { command, dir, said: finished.said() }),
            Err(Cut::Time) => Err(GitError::TimedOut { command, dir, limit }),
            Err(Cut::Output) => Err(GitError::TooMuchOutput { command, dir, bytes }),
            Err(Cut::System(source)) => Err(GitError::Start { program, source }),
        }
    }

    async fn finish(self) -> Result<Finished, Cut> {
        let mut command = Command::new(&*self.git.program);
        command.env_clear().envs(search_path().map(|path| ("PATH", path))).envs(ENVIRONMENT);
        let seconds = (self.git.now)().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        for date in ["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"] {
            command.env(date, format!("@{seconds} +0000"));
        }
        // The repository is that of this directory or there is none: git never uses a repository above it.
        command.envs(self.dir.parent().map(|above| ("GIT_CEILING_DIRECTORIES", above)));
        command.envs(self.environment);
        let settings = SETTINGS.into_iter().chain(self.settings.iter().map(String::as_str));
        command.args(settings.flat_map(|setting| ["-c", setting]));
        command.arg("--no-pager").args(&self.args).current_dir(self.dir);
        execute(command, self.input, Bounds { time: self.git.limit, output: self.most, memory: self.git.memory_bytes })
            .await
    }
}
