//! Runs a child process, bounded in time and output, and ends it with all processes that it started.

use std::{future::pending, io, process::Stdio, time::Duration};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getrlimit, kill_process_group, prlimit, waitid,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, copy, sink},
    process::{Child, Command},
    sync::oneshot,
    time::{sleep, timeout},
};

/// The most bytes of its stderr that are kept: the beginning, which names the cause.
const STDERR_BYTES: usize = 4096;
/// How long a run has to remove its lock files between SIGTERM and SIGKILL.
pub(crate) const TERM_GRACE: Duration = Duration::from_secs(2);

/// The bounds of one run.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) time: Duration,
    /// Bytes of stdout.
    pub(crate) output: usize,
    /// Bytes that each of its processes may allocate (`RLIMIT_DATA`). Files that are mapped to be read, as git does
    /// with packs and the index, do not count.
    pub(crate) memory: u64,
}

/// The end of a run that ended by itself.
pub(crate) struct Finished {
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Finished {
    /// Whether it failed for lack of memory, by its own message or its runtime's.
    pub(crate) fn lacked_memory(&self) -> bool {
        let said = String::from_utf8_lossy(&self.stderr);
        let words = ["Out of memory", "out of memory", "Cannot allocate memory", "cannot allocate memory"];
        self.code != Some(0) && words.iter().any(|word| said.contains(word))
    }

    /// The reason of its failure, in its own words.
    pub(crate) fn said(&self) -> String {
        match (plain(&self.stderr), self.code) {
            (said, _) if !said.is_empty() => said,
            (_, Some(code)) => format!("exit code {code}"),
            (_, None) => "a signal ended it".to_owned(),
        }
    }
}

/// The reason that a run did not end by itself.
pub(crate) enum Cut {
    Time,
    Output,
    System(io::Error),
}

/// Runs a command, which has its arguments, environment and directory.
pub(crate) async fn execute(mut command: Command, input: Vec<u8>, bounds: Bounds) -> Result<Finished, Cut> {
    command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true);
    let group = Group(command.spawn().map_err(Cut::System)?);
    group.limit_memory(bounds.memory).map_err(Cut::System)?;
    // A separate task ends the run in an orderly way even if the caller is dropped, so that git removes its lock files.
    let (_caller, gone) = oneshot::channel();
    match tokio::spawn(supervise(group, input, bounds, gone)).await {
        Ok(ended) => ended,
        // The host stops and the caller with it, which must not count as a failure of the run.
        Err(e) if e.is_cancelled() => pending().await,
        Err(e) => Err(Cut::System(io::Error::other(e))),
    }
}

/// A child and the process group that it leads. Dropping it before its end kills the group.
struct Group(Child);

impl Group {
    /// The child's id; `None` once the child was reaped, since another process may get the id.
    fn id(&self) -> Option<Pid> {
        self.0.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
    }

    /// Limits the memory of the child and of all processes that it starts. The child has just begun, and has allocated
    /// next to nothing. A lower limit that it inherited from the host stays, since only a privileged process can raise
    /// one.
    fn limit_memory(&self, bytes: u64) -> io::Result<()> {
        let bytes = getrlimit(Resource::Data).maximum.map_or(bytes, |hard| hard.min(bytes));
        let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        match self.id().map(|id| prlimit(Some(id), Resource::Data, limit)) {
            // A process that has ended already needs no limit.
            None | Some(Ok(_) | Err(rustix::io::Errno::SRCH)) => Ok(()),
            Some(Err(e)) => Err(e.into()),
        }
    }

    fn signal(&self, signal: Signal) {
        // An error means that no process of the group is left.
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
    bounds: Bounds,
    gone: oneshot::Receiver<()>,
) -> Result<Finished, Cut> {
    let ended = tokio::select! {
        ended = exchange(&mut group.0, input, bounds.output) => ended,
        () = sleep(bounds.time) => Err(Cut::Time),
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

async fn exchange(child: &mut Child, input: Vec<u8>, most: usize) -> Result<Finished, Cut> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // Writing fails if the program ended early; its exit code tells why.
            let _ = stdin.write_all(&input).await;
        }
        Ok(())
    };
    let read_stdout = async {
        let stdout = read(stdout, most.saturating_add(1)).await?;
        if stdout.len() > most { Err(Cut::Output) } else { Ok(stdout) }
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

/// A program's output on one line, without control characters for a terminal.
pub(crate) fn plain(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let lines = said.lines().map(|line| line.replace(char::is_control, " ").trim().to_owned());
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::runtime::Builder;

    use super::*;

    /// The caller of a run must not record a failure when the host stops.
    #[test]
    fn a_run_does_not_fail_where_the_runtime_ends() {
        let failed = Arc::new(AtomicUsize::new(0));
        for _ in 0..20 {
            let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
            for _ in 0..20 {
                let failed = failed.clone();
                runtime.spawn(async move {
                    let mut command = Command::new("sleep");
                    command.arg("600");
                    let bounds = Bounds { time: Duration::from_secs(600), output: 1, memory: 1 << 30 };
                    let _ = execute(command, Vec::new(), bounds).await;
                    failed.fetch_add(1, Ordering::Relaxed);
                });
            }
            runtime.block_on(async {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            });
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
        assert_eq!(failed.load(Ordering::Relaxed), 0);
    }
}
