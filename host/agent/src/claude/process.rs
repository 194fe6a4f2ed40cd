//! Runs one process of the CLI: its supervisor, its lines, its stderr, and its end.

use std::{
    io,
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt as _;
use guild_confine::{Lifeline, Supervised};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe::Sender,
    process::{Child, ChildStderr, ChildStdout, Command},
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, FramedRead};

use super::{protocol::plain, redact::Secrets, scratch::Scratch};

/// The longest line. Lines of 3 MB occur.
const MAX_LINE_BYTES: usize = 32 << 20;
/// The number of bytes at the end of stderr that are shown.
const STDERR_BYTES: usize = 4096;
/// The most lines that wait to be written. A CLI that does not read them at once has failed.
const OUTBOX_LINES: usize = 1024;
/// The longest time for the supervisor to end the CLI and all processes that it started. It gives them 2 s to end by
/// themselves.
const END_PATIENCE: Duration = Duration::from_secs(7);
/// The longest time for the rest of stderr once no process has it open.
const REST: Duration = Duration::from_millis(200);

/// A running CLI. Dropping it ends the CLI and all processes that it started.
pub(super) struct Process {
    /// The supervisor, which ends after the CLI and all processes that it started, with the CLI's exit code.
    supervisor: Child,
    lifeline: Lifeline,
    stderr: Stderr,
    reading_stderr: JoinHandle<()>,
    scratch: Option<Scratch>,
}

/// The CLI's stdout, line by line.
pub(super) struct Lines(FramedRead<ChildStdout, AnyDelimiterCodec>);

/// Sends lines to the CLI. Its stdin is closed when the last sender is dropped.
pub(super) type Outbox = mpsc::Sender<String>;

impl Process {
    /// Starts the CLI in the scratch directory.
    pub(super) fn start(
        supervised: Supervised,
        program: &Path,
        scratch: Scratch,
        secrets: Secrets,
    ) -> Result<(Self, Lines, Outbox), String> {
        let failed = |e: io::Error| format!("cannot start {}: {e}", program.display());
        let Supervised { mut command, stdin, lifeline } = supervised;
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let stdin = Sender::from_owned_fd(stdin.into()).map_err(failed)?;
        let mut supervisor = Command::from(command).spawn().map_err(failed)?;
        let (Some(stdout), Some(stderr)) = (supervisor.stdout.take(), supervisor.stderr.take()) else {
            return Err(failed(io::Error::other("it has no pipes")));
        };
        let said = Stderr { tail: Arc::default(), secrets };
        let reading_stderr = tokio::spawn(said.clone().keep_end(stderr));
        let process = Self { supervisor, lifeline, stderr: said, reading_stderr, scratch: Some(scratch) };
        let (outbox, lines) = mpsc::channel(OUTBOX_LINES);
        tokio::spawn(write(stdin, lines));
        let codec = AnyDelimiterCodec::new_with_max_length(b"\n".into(), Vec::new(), MAX_LINE_BYTES);
        Ok((process, Lines(FramedRead::new(stdout, codec)), outbox))
    }

    /// Waits until the CLI and all processes that it started have ended.
    pub(super) async fn ended(&mut self) -> Option<ExitStatus> {
        self.supervisor.wait().await.ok()
    }

    /// Ends the CLI: waits for it for `patience`, then has the supervisor end it. The status is `None` if the system
    /// does not let it end.
    pub(super) async fn finish(self, patience: Duration) -> Option<ExitStatus> {
        let Self { mut supervisor, lifeline, stderr: _, mut reading_stderr, scratch } = self;
        let mut status = timeout(patience, supervisor.wait()).await.ok();
        drop(lifeline);
        if status.is_none() {
            status = timeout(END_PATIENCE, supervisor.wait()).await.ok();
        }
        if timeout(REST, &mut reading_stderr).await.is_err() {
            reading_stderr.abort();
        }
        // The CLI may leave much data there.
        let _ = tokio::task::spawn_blocking(move || drop(scratch)).await;
        status.and_then(Result::ok)
    }

    /// The end of stderr, which is still being read.
    pub(super) fn stderr(&self) -> Stderr {
        self.stderr.clone()
    }
}

/// The end of the CLI's stderr.
#[derive(Clone)]
pub(super) struct Stderr {
    tail: Arc<Mutex<Vec<u8>>>,
    secrets: Secrets,
}

impl Stderr {
    pub(super) fn text(&self) -> String {
        let tail = locked(&self.tail);
        let text = self.secrets.redact(plain(&tail));
        // A text that was cut may begin with the end of a secret.
        let unsure = if tail.len() < self.kept() { 0 } else { self.secrets.longest() };
        text.chars().skip(unsure).collect::<String>().trim().to_owned()
    }

    /// The number of bytes kept: the bytes that are shown, and before them as many as the longest secret has.
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
    /// The next line; `None` at the end. The error has the reason that the line is invalid. Bytes that are not UTF-8
    /// are replaced, so that the rest of such a line can be read.
    pub(super) async fn next(&mut self) -> Option<Result<String, String>> {
        let line = self.0.next().await?;
        let line = line.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Some(line.map_err(|e| match e {
            AnyDelimiterCodecError::MaxChunkLengthExceeded => {
                format!("a line of more than {} MiB", MAX_LINE_BYTES >> 20)
            }
            AnyDelimiterCodecError::Io(e) => format!("a line that cannot be read: {e}"),
        }))
    }
}

async fn write(mut stdin: Sender, mut lines: mpsc::Receiver<String>) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        // Writing fails after the CLI ended or closed its stdin; the CLI's end has the reason.
        if stdin.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn locked(tail: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    tail.lock().unwrap_or_else(PoisonError::into_inner)
}
