//! Running git: a fixed environment, fixed settings, and bounds of time and output.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, copy, sink},
    process::{Child, Command},
    sync::oneshot,
    time::{sleep, timeout},
};

use crate::{
    error::GitError,
    version::{OLDEST, Version},
};

/// The most that is read of one run's output: the list of half a million files.
const STDOUT_BYTES: usize = 64 << 20;
/// The most that is kept of what it says on stderr: its begin, which names the cause.
const STDERR_BYTES: usize = 4096;
/// How long a run has to remove its lock files between SIGTERM and SIGKILL.
pub(crate) const TERM_GRACE: Duration = Duration::from_secs(2);

/// What is set for each run. The command line has precedence over each file of the repository.
///
/// Settings with a driver's name in them (filters, merge drivers) cannot be listed here: `settings.rs` refuses them. Those
/// for the network are not needed: `GIT_ALLOW_PROTOCOL` allows none. Those for diffs, pagers, editors and signatures of
/// commands that are never run have no effect.
const SETTINGS: [&str; 19] = [
    // What runs programs.
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.pager=cat",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    // A tree that has the files of a bare repository is not one.
    "safe.bareRepository=explicit",
    // No path of a worktree leads out of it.
    "core.symlinks=false",
    // Each worktree has patterns of its own, or none. `git sparse-checkout` would write into the user's configuration.
    "core.sparseCheckout=true",
    "core.sparseCheckoutCone=false",
    "index.sparse=false",
    // A split index leaves files in the repository, also that of a temporary index.
    "core.splitIndex=false",
    // So that what is written is what is there, whatever the user prefers.
    "core.safecrlf=false",
    "i18n.commitEncoding=UTF-8",
    "merge.renames=true",
    // Its conflicts name files that only one side has; to take the other side would lose them.
    "merge.directoryRenames=false",
    "merge.conflictStyle=merge",
    "worktree.useRelativePaths=false",
];

/// The environment of each run, beside `PATH`.
const ENVIRONMENT: [(&str, &str); 16] = [
    // Not unset, so that `~` in a path of the configuration is no error.
    ("HOME", "/dev/null"),
    ("LC_ALL", "C"),
    ("TZ", "UTC"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    // None is allowed. A partial clone would otherwise fetch what it lacks through a program that it names.
    ("GIT_ALLOW_PROTOCOL", ""),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_AUTHOR_NAME", "Guild Hall"),
    ("GIT_AUTHOR_EMAIL", "guild-hall@localhost"),
    ("GIT_COMMITTER_NAME", "Guild Hall"),
    ("GIT_COMMITTER_EMAIL", "guild-hall@localhost"),
    ("GIT_EDITOR", "false"),
];

/// How git is run.
#[derive(Clone, Debug)]
pub struct GitOptions {
    /// The program, as an absolute path; `None` looks for `git` on `PATH`.
    pub program: Option<PathBuf>,
    /// The time that one run may take. An operation is some ten runs.
    pub limit: Duration,
    /// The time that commits get.
    pub now: fn() -> SystemTime,
}

/// The program `git`. A clone is the same program.
#[derive(Clone, Debug)]
pub struct Git {
    program: Arc<Path>,
    version: Version,
    limit: Duration,
    now: fn() -> SystemTime,
}

impl Git {
    /// Finds the program and asks for its version.
    ///
    /// # Errors
    /// [`GitError::NotInstalled`], [`GitError::TooOld`], [`GitError::NotGit`], or why it cannot be run.
    pub async fn find(options: GitOptions) -> Result<Self, GitError> {
        let program = match options.program {
            Some(program) => program,
            None => which::which("git").map_err(|_| GitError::NotInstalled)?,
        };
        let program: Arc<Path> = program.into();
        let git = Self { program: Arc::clone(&program), version: OLDEST, limit: options.limit, now: options.now };
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

    /// The time after which no run of this host holds a lock file any more.
    pub(crate) fn longest_run(&self) -> Duration {
        self.limit + TERM_GRACE
    }

    /// A run in a directory, which has to be the top of a worktree where a repository is needed.
    pub(crate) fn call<'a>(&'a self, dir: &'a Path, args: &[&str]) -> Call<'a> {
        let args = args.iter().map(OsString::from).collect();
        Call { git: self, dir, args, input: Vec::new(), index: None }
    }
}

/// One run of git, which is still to be started.
pub(crate) struct Call<'a> {
    git: &'a Git,
    dir: &'a Path,
    args: Vec<OsString>,
    input: Vec<u8>,
    index: Option<PathBuf>,
}

/// How a run ended by itself.
struct Finished {
    /// `None` where a signal ended it.
    code: Option<i32>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Why a run did not end by itself.
enum Cut {
    Time,
    Output,
    System(io::Error),
}

impl Call<'_> {
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// What it reads from stdin.
    pub(crate) fn input(mut self, input: Vec<u8>) -> Self {
        self.input = input;
        self
    }

    /// Uses this file in place of the worktree's index.
    pub(crate) fn index(mut self, index: &Path) -> Self {
        self.index = Some(index.to_owned());
        self
    }

    /// What it said. Any exit code but 0 is an error.
    pub(crate) async fn run(self) -> Result<Vec<u8>, GitError> {
        self.codes(&[0]).await.map(|(_, said)| said)
    }

    /// What it said, without the last line's end.
    pub(crate) async fn line(self) -> Result<String, GitError> {
        let said = self.run().await?;
        Ok(String::from_utf8_lossy(&said).trim_end_matches('\n').to_owned())
    }

    /// Its exit code, which has to be one of these, and what it said.
    pub(crate) async fn codes(self, expected: &[i32]) -> Result<(i32, Vec<u8>), GitError> {
        let mut words = self.args.iter().map(|arg| arg.to_string_lossy());
        let command = words.find(|word| !word.starts_with('-')).unwrap_or_default().into_owned();
        let (dir, limit, program) = (self.dir.to_owned(), self.git.limit, self.git.program.to_path_buf());
        match self.finish().await {
            Ok(Finished { code: Some(code), stdout, .. }) if expected.contains(&code) => Ok((code, stdout)),
            Ok(Finished { code, stderr, .. }) => {
                let mut said = plain(&stderr);
                if said.is_empty() {
                    said = code.map_or("a signal ended it".to_owned(), |code| format!("exit code {code}"));
                }
                Err(GitError::Failed { command, dir, said })
            }
            Err(Cut::Time) => Err(GitError::TimedOut { command, dir, limit }),
            Err(Cut::Output) => Err(GitError::TooMuchOutput { command, dir, bytes: STDOUT_BYTES }),
            Err(Cut::System(source)) => Err(GitError::Start { program, source }),
        }
    }

    async fn finish(self) -> Result<Finished, Cut> {
        let mut command = Command::new(&*self.git.program);
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path))).envs(ENVIRONMENT);
        let seconds = (self.git.now)().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        for date in ["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"] {
            command.env(date, format!("@{seconds} +0000"));
        }
        // The repository is that of this directory or there is none: never one that the directory is inside of.
        command.envs(self.dir.parent().map(|above| ("GIT_CEILING_DIRECTORIES", above)));
        command.envs(self.index.map(|index| ("GIT_INDEX_FILE", index)));
        command.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
        command.arg("--no-pager").args(&self.args).current_dir(self.dir);
        command.stdin(if self.input.is_empty() { Stdio::null() } else { Stdio::piped() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let group = Group(command.spawn().map_err(Cut::System)?);
        // A task of its own ends the run in order where the caller is dropped, too: git then removes its lock files.
        let (_caller, gone) = oneshot::channel();
        let supervised = tokio::spawn(supervise(group, self.input, self.git.limit, gone));
        supervised.await.unwrap_or_else(|e| Err(Cut::System(io::Error::other(e))))
    }
}

/// A child and the process group that it leads. Dropped before its end, the group is killed.
struct Group(Child);

impl Group {
    /// The child's id; `None` once it was reaped and the id may be another's.
    fn id(&self) -> Option<Pid> {
        self.0.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
    }

    fn signal(&self, signal: Signal) {
        // An error says that there is nothing left of it.
        let _ = self.id().map(|id| kill_process_group(id, signal));
    }

    /// Waits until the child has ended, without reaping it, so that its id stays that of its group.
    async fn ended(&self) {
        let looked = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while let Some(id) = self.id()
            && let Ok(None) = waitid(WaitId::Pid(id), looked)
        {
            sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

async fn supervise(
    mut group: Group,
    input: Vec<u8>,
    limit: Duration,
    gone: oneshot::Receiver<()>,
) -> Result<Finished, Cut> {
    let ended = tokio::select! {
        ended = exchange(&mut group.0, input) => ended,
        () = sleep(limit) => Err(Cut::Time),
        _ = gone => Err(Cut::Time),
    };
    if ended.is_err() {
        group.signal(Signal::TERM);
        let _ = timeout(TERM_GRACE, group.ended()).await;
        group.signal(Signal::KILL);
        let _ = group.0.wait().await;
    }
    ended
}

async fn exchange(child: &mut Child, input: Vec<u8>) -> Result<Finished, Cut> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // It fails where git ended early; its exit code says why.
            let _ = stdin.write_all(&input).await;
        }
        Ok(())
    };
    let read_stdout = async {
        let stdout = read(stdout, STDOUT_BYTES + 1).await?;
        if stdout.len() > STDOUT_BYTES { Err(Cut::Output) } else { Ok(stdout) }
    };
    let read_stderr = async {
        let Some(mut stderr) = stderr else { return Ok(Vec::new()) };
        let kept = read(Some(&mut stderr), STDERR_BYTES).await?;
        copy(&mut stderr, &mut sink()).await.map_err(Cut::System)?;
        Ok(kept)
    };
    let ((), stdout, stderr) = tokio::try_join!(write, read_stdout, read_stderr)?;
    let status = child.wait().await.map_err(Cut::System)?;
    Ok(Finished { code: status.code(), stdout, stderr })
}

/// The first bytes of a stream.
async fn read(stream: Option<impl AsyncRead + Unpin>, most: usize) -> Result<Vec<u8>, Cut> {
    let mut kept = Vec::new();
    if let Some(stream) = stream {
        stream.take(most as u64).read_to_end(&mut kept).await.map_err(Cut::System)?;
    }
    Ok(kept)
}

/// What git said, on one line, without what would steer a terminal.
fn plain(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let lines = said.lines().map(|line| line.replace(char::is_control, " ").trim().to_owned());
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
