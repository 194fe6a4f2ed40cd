//! The host's part: it starts children, sends them requests, and ends them.

use std::{
    env,
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream as Socket,
    },
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use rustix::{
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
    process::Signal,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    process::{self, Command},
    runtime::Builder,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time,
};

use crate::{
    Bounds, Ended, Task,
    child::{self, COMMAND, MAX_DIRECTORIES, MESSAGE_BYTES},
};

/// The maximum size of a failed child's stderr that is read.
const STDERR_BYTES: u64 = 4096;
/// How long a child that closed the connection may take to exit.
const EXIT_WAIT: Duration = Duration::from_secs(2);

/// The default of [`set_room`]: 8 GiB.
const ALL_BYTES: u64 = 8 << 30;
/// How long a request waits for room for its child.
const PATIENCE: Duration = Duration::from_secs(30);

/// The room for all children, in MiB.
static ROOM: OnceLock<(u32, Arc<Semaphore>)> = OnceLock::new();

/// Sets the maximum memory of all children of this process together: the sum of their [`Bounds::memory_bytes`]. It must
/// be called before the first child starts. A request waits until there is room for its child; a child with a larger
/// limit than the sum waits until it is the only one.
pub fn set_room(bytes: u64) {
    let _ = room_of(bytes);
}

fn room_of(bytes: u64) -> &'static (u32, Arc<Semaphore>) {
    ROOM.get_or_init(|| {
        let units = mebibytes(bytes).max(1);
        (units, Arc::new(Semaphore::new(units as usize)))
    })
}

fn mebibytes(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX)
}

async fn room_for(bytes: u64) -> Result<OwnedSemaphorePermit, Ended> {
    let (all, room) = room_of(ALL_BYTES);
    let permit = time::timeout(PATIENCE, room.clone().acquire_many_owned(mebibytes(bytes).min(*all))).await;
    // The semaphore is never closed.
    permit
        .ok()
        .and_then(Result::ok)
        .ok_or_else(|| Ended::Failed("too many others are under way (limits.processes_bytes); try again".to_owned()))
}

/// Sends one request to a new child. Dropping the future ends the child.
///
/// # Panics
/// Panics outside of a Tokio runtime with IO enabled.
///
/// # Errors
/// See [`Ended`].
pub async fn run(task: &'static Task, bounds: Bounds, request: Vec<u8>) -> Result<Vec<u8>, Ended> {
    Worker::new(task, bounds).ask(request).await
}

/// [`run`] for callers in blocking code, inside or outside of a runtime.
///
/// # Errors
/// See [`Ended`].
pub fn run_blocking(task: &'static Task, bounds: Bounds, request: Vec<u8>) -> Result<Vec<u8>, Ended> {
    let waits = || {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| Ended::Failed(e.to_string()))?;
        let answer = runtime.block_on(run(task, bounds, request));
        runtime.shutdown_background();
        answer
    };
    // The caller's thread may not be allowed to block on other work.
    thread::scope(|scope| {
        let waiting = thread::Builder::new().name("confined-task".to_owned()).spawn_scoped(scope, waits);
        let waiting = waiting.map_err(|e| Ended::Failed(e.to_string()))?;
        waiting.join().unwrap_or_else(|_| Err(Ended::Failed("waiting for it failed".to_owned())))
    })
}

/// A child that handles requests of one kind, one after another. The first request starts it. Dropping the worker ends
/// it.
///
/// A program that does not call [`crate::serve_if_asked`], such as the tests of some crates, has no children: there the
/// work runs on a thread of the process itself, with no memory limit, and cannot be ended.
#[derive(Debug)]
pub struct Worker {
    task: &'static Task,
    bounds: Bounds,
    directories: Vec<Arc<OwnedFd>>,
    child: Option<Child>,
}

/// A child with the socket on its stdin, which carries requests and can carry open directories.
#[derive(Debug)]
struct Child {
    process: process::Child,
    requests: UnixStream,
    _room: OwnedSemaphorePermit,
}

impl Worker {
    /// A worker for this kind of request. The time limit applies to each request, the memory limit to all together.
    pub fn new(task: &'static Task, bounds: Bounds) -> Self {
        Self { task, bounds, directories: Vec::new(), child: None }
    }

    /// Sends the child these open directories, at most 253. The child finds them in the same order with
    /// [`crate::directories`].
    #[must_use]
    pub fn with_directories(mut self, directories: Vec<Arc<OwnedFd>>) -> Self {
        self.directories = directories;
        self
    }

    /// Sends a request to the child, and returns its response. Without a response, or if this future is dropped, the
    /// child is ended, and the next request starts another one.
    ///
    /// # Errors
    /// See [`Ended`].
    pub async fn ask(&mut self, request: Vec<u8>) -> Result<Vec<u8>, Ended> {
        let deadline = Duration::from_secs(self.bounds.seconds.into());
        let task = self.task;
        if !child::has_children() {
            let work = spawn_blocking(move || (task.run)(&request));
            let done = time::timeout(deadline, work).await.map_err(|_| Ended::TooLong)?;
            return done.map_err(|e| Ended::Failed(e.to_string()));
        }
        // The child is put back only after a complete response.
        let mut child = match self.child.take() {
            Some(child) => child,
            None => {
                let room = room_for(self.bounds.memory_bytes).await?;
                start(task, self.bounds, &self.directories, room).map_err(|e| Ended::Failed(e.to_string()))?
            }
        };
        match time::timeout(deadline, exchange(&mut child, &request)).await {
            Ok(Ok(answer)) => {
                self.child = Some(child);
                Ok(answer)
            }
            Ok(Err(_)) => Err(why(child).await),
            Err(_) => Err(Ended::TooLong),
        }
    }
}

fn start(task: &Task, bounds: Bounds, directories: &[Arc<OwnedFd>], room: OwnedSemaphorePermit) -> io::Result<Child> {
    let (requests, input) = Socket::pair()?;
    hand_over(&requests, directories)?;
    requests.set_nonblocking(true)?;
    let numbers =
        [bounds.seconds.into(), bounds.memory_bytes, directories.len() as u64].map(|number| number.to_string());
    let process = Command::new(executable()?)
        .arg0("guild")
        .args([COMMAND, task.name])
        .args(numbers)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(input)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        // A signal for the host's process group, as of a terminal that is closed, is for the host only, and a child ends
        // with its host.
        .process_group(0)
        .spawn()?;
    Ok(Child { process, requests: UnixStream::from_std(requests)?, _room: room })
}

/// The executable of this process.
///
/// # Errors
/// The system does not report the path.
pub fn executable() -> io::Result<PathBuf> {
    // On Linux this is the file that runs, even if it was replaced on disk.
    let own = Path::new("/proc/self/exe");
    if own.exists() { Ok(own.to_owned()) } else { env::current_exe() }
}

/// Sends open descriptors, which wait in the socket until the child receives them.
pub(crate) fn hand_over(requests: &Socket, directories: &[Arc<OwnedFd>]) -> io::Result<()> {
    if directories.is_empty() {
        return Ok(());
    }
    let handed: Vec<BorrowedFd<'_>> = directories.iter().map(|directory| directory.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DIRECTORIES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&handed)) {
        return Err(io::Error::other(format!("more than {MAX_DIRECTORIES} directories")));
    }
    sendmsg(requests, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

async fn exchange(child: &mut Child, request: &[u8]) -> io::Result<Vec<u8>> {
    let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
    child.requests.write_all(&(request.len() as u64).to_le_bytes()).await?;
    child.requests.write_all(request).await?;
    let answers = child.process.stdout.as_mut().ok_or_else(gone)?;
    let length = answers.read_u64_le().await?;
    let mut answer = Vec::new();
    answers.take(length.min(MESSAGE_BYTES)).read_to_end(&mut answer).await?;
    if answer.len() as u64 == length { Ok(answer) } else { Err(gone()) }
}

/// Finds out why a child closed the connection.
async fn why(child: Child) -> Ended {
    let Child { process: mut child, requests, _room } = child;
    // The child then does not wait for another request.
    drop((requests, child.stdout.take()));
    let mut said = Vec::new();
    let last = async {
        if let Some(stderr) = child.stderr.as_mut() {
            let _ = stderr.take(STDERR_BYTES).read_to_end(&mut said).await;
        }
        child.wait().await
    };
    let status = time::timeout(EXIT_WAIT, last).await;
    let said = String::from_utf8_lossy(&said);
    match status {
        _ if said.contains("memory allocation of") => Ended::TooMuchMemory,
        Ok(Ok(status)) if signal(status) == Some(Signal::XCPU.as_raw()) => Ended::TooLong,
        Ok(Ok(status)) => {
            tracing::debug!(%status, %said, "a process for untrusted input failed");
            Ended::Failed(status.to_string())
        }
        Ok(Err(e)) => Ended::Failed(e.to_string()),
        Err(_) => Ended::TooLong,
    }
}

fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}
