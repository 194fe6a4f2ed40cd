//! One running CLI: its process group, its lines, its stderr, and its end.

use std::{
    io,
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt as _;
use rustix::process::{Pid, Signal as Kill, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

use super::{protocol::plain, redact::Secrets, scratch::Scratch, spawner};

/// The longest line. Lines of 3 MB occur.
const MAX_LINE_BYTES: usize = 32 << 20;
/// What is shown of stderr: its end.
const STDERR_BYTES: usize = 4096;
/// Lines that wait to be written. The CLI reads them at once; one that does not has failed.
const OUTBOX_LINES: usize = 1024;
/// How long the group has between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// How long it may take the system to end a process that was killed.
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// How long the rest of stderr may take once the group was killed: what left the group may hold it open.
const REST: Duration = Duration::from_millis(200);

/// A running CLI. Dropped before its end, its group is killed.
pub(super) struct Process {
    child: Child,
    /// Says that some child may have ended.
    children: Signal,
    /// The process group: the child's id. `None` once there is nothing left of it to be signalled.
    group: Option<Pid>,
    stderr: Stderr,
    reading_stderr: JoinHandle<()>,
    scratch: Option<Scratch>,
}

/// What the CLI says, line by line.
pub(super) struct Lines(FramedRead<ChildStdout, LinesCodec>);

/// Where lines for the CLI go. Its stdin is closed with the last of them.
pub(super) type Outbox = mpsc::Sender<String>;

impl Process {
    /// Starts the CLI in the scratch directory.
    pub(super) async fn start(
        mut command: Command,
        program: &Path,
        mut scratch: Scratch,
        secrets: Secrets,
    ) -> Result<(Self, Lines, Outbox), String> {
        let failed = |e: io::Error| format!("cannot start {}: {e}", program.display());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let children = signal(SignalKind::child()).map_err(failed)?;
        let mut child = spawner::spawn(command).await.map_err(failed)?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(group), Some(stdin), Some(stdout), Some(stderr)) = (group, stdin, stdout, stderr) else {
            return Err(failed(io::Error::other("it ended at once")));
        };
        let recorded = scratch.record(group.as_raw_pid().unsigned_abs());
        let said = Stderr { tail: Arc::default(), secrets };
        let reading_stderr = tokio::spawn(said.clone().keep_end(stderr));
        let process =
            Self { child, children, group: Some(group), stderr: said, reading_stderr, scratch: Some(scratch) };
        // Without a record it would not be found after the host was killed; dropped here, it is ended.
        recorded.map_err(failed)?;
        let (outbox, lines) = mpsc::channel(OUTBOX_LINES);
        tokio::spawn(write(stdin, lines));
        let codec = LinesCodec::new_with_max_length(MAX_LINE_BYTES);
        Ok((process, Lines(FramedRead::new(stdout, codec)), outbox))
    }

    /// Waits until the child has ended, without reaping it, so that its id, which is also that of its group, is not reused.
    pub(super) async fn ended(&mut self) {
        let looked = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while let Some(group) = self.group
            && let Ok(None) = waitid(WaitId::Pid(group), looked)
        {
            self.children.recv().await;
        }
    }

    /// Kills what is left of the group.
    pub(super) fn kill(&self) {
        self.signal(Kill::KILL);
    }

    fn signal(&self, signal: Kill) {
        if let Some(group) = self.group {
            // An error says that there is nothing left of it.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Ends the CLI: waits for it for `patience`, then sends SIGTERM, then SIGKILL to its whole group. The status is `None`
    /// where the system does not let it end.
    pub(super) async fn finish(mut self, patience: Duration) -> Option<ExitStatus> {
        if timeout(patience, self.ended()).await.is_err() {
            self.signal(Kill::TERM);
            let _ = timeout(TERM_GRACE, self.ended()).await;
        }
        // Also where the child has ended: what it started may not have.
        self.kill();
        let status = timeout(KILL_PATIENCE, self.child.wait()).await.ok().and_then(Result::ok);
        self.group = None;
        let _ = timeout(REST, &mut self.reading_stderr).await;
        let scratch = self.scratch.take();
        // With it ends what left the group; and what the CLI leaves there may be much.
        let _ = tokio::task::spawn_blocking(move || drop(scratch)).await;
        status
    }

    /// The end of stderr, which is still being read.
    pub(super) fn stderr(&self) -> Stderr {
        self.stderr.clone()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        self.reading_stderr.abort();
    }
}

/// The end of what the CLI says on stderr.
#[derive(Clone)]
pub(super) struct Stderr {
    tail: Arc<Mutex<Vec<u8>>>,
    secrets: Secrets,
}

impl Stderr {
    pub(super) fn text(&self) -> String {
        let tail = locked(&self.tail);
        let text = self.secrets.redact(plain(&tail));
        // Where it was cut, it may begin with the end of a secret.
        let unsure = if tail.len() < self.kept() { 0 } else { self.secrets.longest() };
        text.chars().skip(unsure).collect::<String>().trim().to_owned()
    }

    /// Bytes that are kept: those that are shown, and as many before them as a secret may have.
    fn kept(&self) -> usize {
        STDERR_BYTES + self.secrets.longest()
    }

    async fn keep_end(self, mut stderr: ChildStderr) {
        let mut buffer = vec![0; STDERR_BYTES];
        while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
            let mut tail = locked(&self.tail);
            tail.extend_from_slice(buffer.get(..read).unwrap_or_default());
            let over = tail.len().saturating_sub(self.kept());
            tail.drain(..over);
        }
    }
}

impl Lines {
    /// The next line; `None` at the end. The error says what is wrong with it.
    pub(super) async fn next(&mut self) -> Option<Result<String, String>> {
        let line = self.0.next().await?;
        Some(line.map_err(|e| match e {
            LinesCodecError::MaxLineLengthExceeded => {
                format!("a line of more than {} MiB", MAX_LINE_BYTES >> 20)
            }
            LinesCodecError::Io(e) if e.kind() == io::ErrorKind::InvalidData => "a line that is not text".to_owned(),
            LinesCodecError::Io(e) => format!("what cannot be read: {e}"),
        }))
    }
}

async fn write(mut stdin: ChildStdin, mut lines: mpsc::Receiver<String>) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        // It fails where the CLI has ended or closed its stdin: its own end says why.
        if stdin.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn locked(tail: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    tail.lock().unwrap_or_else(PoisonError::into_inner)
}
