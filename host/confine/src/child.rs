//! The child: it limits its own resources, then handles requests until the host closes the connection.

use std::{
    ffi::OsString,
    io::{self, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    process::ExitCode,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
    process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit},
    thread::set_no_new_privs,
    time::{ClockId, clock_gettime},
};

use crate::{Bounds, Task};

/// The first argument of a child.
pub(crate) const COMMAND: &str = "confined-task";
/// The maximum number of open files in a child: its standard streams, and the files that its runtime opens to count the
/// cores.
const OPEN_FILES: u64 = 16;
/// Further files that a child with directories may have open, to walk them.
const OPEN_BELOW: u64 = 256;
/// The maximum number of directories that a child can receive. The system sends no more in one message.
pub(crate) const MAX_DIRECTORIES: usize = 253;
/// The maximum size of a message in both directions: more than any real one has, and little enough to allocate.
pub(crate) const MESSAGE_BYTES: u64 = 1 << 30;

/// Whether this program's main function serves tasks.
static SERVED: AtomicBool = AtomicBool::new(false);

/// The directories that this process received.
static DIRECTORIES: OnceLock<Vec<OwnedFd>> = OnceLock::new();

/// Whether this program can start children: whether its main function called [`crate::serve_if_asked`].
pub fn has_children() -> bool {
    SERVED.load(Ordering::Relaxed)
}

/// The directories that this child received, see [`crate::Worker::with_directories`].
pub fn directories() -> &'static [OwnedFd] {
    DIRECTORIES.get().map_or(&[], Vec::as_slice)
}

/// Records that the main function of this program serves tasks.
pub(crate) fn set_served() {
    SERVED.store(true, Ordering::Relaxed);
}

/// Runs the task in the command line until the host closes the connection.
pub(crate) fn serve_task(tasks: &[&Task], arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.filter_map(|argument| argument.into_string().ok());
    let number = |arguments: &mut dyn Iterator<Item = String>| arguments.next()?.parse::<u64>().ok();
    let task = arguments.next().and_then(|name| tasks.iter().find(|task| task.name == name));
    let (seconds, memory_bytes, handed) = (number(&mut arguments), number(&mut arguments), number(&mut arguments));
    let (Some(task), Some(seconds), Some(memory_bytes), Some(handed)) = (task, seconds, memory_bytes, handed) else {
        return ExitCode::from(2);
    };
    let bounds = Bounds { seconds: u32::try_from(seconds).unwrap_or(u32::MAX), memory_bytes };
    // A closed pipe is the usual end, and no other error can be reported.
    if limit_itself(bounds, handed).and_then(|()| take(handed)).and_then(|()| serve(task, bounds)).is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn limit_itself(bounds: Bounds, handed: u64) -> io::Result<()> {
    // The system then kills this process first if it runs out of memory. Not every system supports this.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    set_no_new_privs(true)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set(Resource::Data, bounds.memory_bytes)?;
    set(Resource::Core, 0)?;
    set(Resource::Fsize, 0)?;
    let below = if handed > 0 { handed + OPEN_BELOW } else { 0 };
    set(Resource::Nofile, OPEN_FILES + below)
}

/// Receives the directories that the host sent before the first request.
fn take(handed: u64) -> io::Result<()> {
    if handed > 0 {
        let taken = receive(handed)?;
        DIRECTORIES.get_or_init(|| taken);
    }
    Ok(())
}

/// Receives open descriptors through the socket on this process's stdin.
pub(crate) fn receive(handed: u64) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DIRECTORIES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    recvmsg(io::stdin(), &mut [IoSliceMut::new(&mut [0])], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let messages = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(taken) => Some(taken),
        _ => None,
    });
    let taken: Vec<OwnedFd> = messages.flatten().collect();
    if taken.len() as u64 != handed {
        return Err(io::Error::other("not all descriptors were handed over"));
    }
    Ok(taken)
}

fn set(resource: Resource, most: u64) -> io::Result<()> {
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// Makes the system kill this process if the next request uses more CPU time than its share.
fn limit_time(bounds: Bounds) -> io::Result<()> {
    let used = u64::try_from(clock_gettime(ClockId::ProcessCPUTime).tv_sec).unwrap_or_default();
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let most = used + u64::from(bounds.seconds) * cores + 1;
    Ok(setrlimit(Resource::Cpu, Rlimit { current: Some(most), maximum: None })?)
}

/// Ends this process as soon as the host is gone, even during a request.
fn end_with_host() -> io::Result<()> {
    const STACK: usize = 64 * 1024;
    let watch = || loop {
        let stdin = io::stdin();
        // `poll` always reports a hang-up.
        let hung_up = poll(&mut [PollFd::new(&stdin, PollFlags::empty())], None);
        if hung_up.is_ok() {
            std::process::exit(0);
        }
    };
    thread::Builder::new().stack_size(STACK).spawn(watch).map(drop)
}

fn serve(task: &Task, bounds: Bounds) -> io::Result<()> {
    end_with_host()?;
    let (mut requests, mut answers) = (io::stdin().lock(), io::stdout().lock());
    loop {
        let mut length = [0; 8];
        if let Err(e) = requests.read_exact(&mut length) {
            return if e.kind() == io::ErrorKind::UnexpectedEof { Ok(()) } else { Err(e) };
        }
        limit_time(bounds)?;
        let mut request = Vec::new();
        requests.by_ref().take(u64::from_le_bytes(length).min(MESSAGE_BYTES)).read_to_end(&mut request)?;
        let answer = (task.run)(&request);
        drop(request);
        answers.write_all(&(answer.len() as u64).to_le_bytes())?;
        answers.write_all(&answer)?;
        answers.flush()?;
    }
}
