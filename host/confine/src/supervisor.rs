//! Runs a program that the host does not control, and ends it with all processes that it started.
//!
//! The program is the child of a supervisor, which is this executable again. The supervisor is a subreaper: a process
//! that forks twice, begins its own session or drops its environment becomes the supervisor's child as soon as its
//! parent ends. A process can escape only by killing the supervisor. When the program has ended, or the host closes the
//! connection or is killed, the supervisor kills its children until it has none.

use std::{
    ffi::OsString,
    fs, io,
    io::PipeWriter,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{net::UnixStream as Socket, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group, pidfd_open,
        set_child_subreaper, wait,
    },
};

use crate::{
    child::{has_children, receive},
    parent::{executable, hand_over},
};

/// The first argument of a supervisor.
pub(crate) const COMMAND: &str = "supervised-program";
/// The program's time between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// How often ended orphans are reaped while the program runs.
const REAP: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// The pause between two checks whether all children have ended.
const POLL: Duration = Duration::from_millis(5);
/// The exit code if the program cannot be started, as in shells.
const NOT_STARTED: u8 = 127;

static SUPERVISOR: OnceLock<PathBuf> = OnceLock::new();

/// Sets the executable of supervisors, whose main function must call [`crate::serve_if_asked`]. It is for programs that
/// cannot call it, such as tests with a harness. Only the first call has an effect.
pub fn set_supervisor(executable: PathBuf) {
    let _ = SUPERVISOR.set(executable);
}

/// A program that will be started below a supervisor.
#[derive(Debug)]
pub struct Supervised {
    /// The command of the supervisor. The program gets its further arguments, environment, directory, stdout and
    /// stderr. The supervisor exits with the program's code, or with 128 plus the number of the signal that ended the
    /// program.
    pub command: Command,
    /// The program's stdin.
    pub stdin: PipeWriter,
    /// Keeps the program alive.
    pub lifeline: Lifeline,
}

/// Keeps the program running. Once it is dropped, or this process has ended in any way, the supervisor sends the
/// program SIGTERM, and 2 s later kills the program and all processes that it started.
#[derive(Debug)]
pub struct Lifeline(#[expect(dead_code, reason = "its drop closes the connection")] Socket);

impl Supervised {
    /// Prepares a program, given by its absolute path.
    ///
    /// # Errors
    /// The system has no descriptors left, or this process cannot start a supervisor.
    pub fn new(program: &Path) -> io::Result<Self> {
        let own = match SUPERVISOR.get() {
            Some(supervisor) => supervisor.clone(),
            None if has_children() => executable()?,
            None => return Err(io::Error::other("this program's main function serves no supervisors")),
        };
        let (lifeline, connection) = Socket::pair()?;
        let (input, stdin) = io::pipe()?;
        hand_over(&lifeline, &[Arc::new(OwnedFd::from(input))])?;
        let mut command = Command::new(own);
        command.arg0("guild").arg(COMMAND).arg(program).stdin(Stdio::from(OwnedFd::from(connection)));
        // A Ctrl-C in the terminal is for the host only, which then ends the program in order.
        command.process_group(0);
        Ok(Self { command, stdin, lifeline: Lifeline(lifeline) })
    }
}

/// Supervises the program in the command line until it and all processes that it started have ended.
pub(crate) fn supervise(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(program) = arguments.next() else { return ExitCode::from(2) };
    match run(&program, arguments) {
        Ok(code) => code,
        Err(e) => {
            use io::Write as _;
            let _ = writeln!(io::stderr(), "cannot start {}: {e}", program.display());
            ExitCode::from(NOT_STARTED)
        }
    }
}

fn run(program: &OsString, arguments: impl Iterator<Item = OsString>) -> io::Result<ExitCode> {
    let stdin = receive(1)?.pop().ok_or(io::ErrorKind::BrokenPipe)?;
    set_child_subreaper(Some(getpid()))?;
    let mut started = Command::new(program).args(arguments).stdin(stdin).process_group(0).spawn()?;
    let child = i32::try_from(started.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    let process = pidfd_open(child, PidfdFlags::empty()).inspect_err(|_| drop(started.kill()))?;
    let lifeline = io::stdin();
    let mut status = None;
    let mut ended = |wanted: Pid| {
        while let Ok(Some((pid, how))) = wait(WaitOptions::NOHANG) {
            if pid == wanted {
                status = Some(how);
            }
        }
        status
    };
    let mut until: Option<Instant> = None;
    while ended(child).is_none() && until.is_none_or(|until| Instant::now() < until) {
        let process = PollFd::new(&process, PollFlags::IN);
        match until {
            // `poll` always reports a hang-up.
            None => {
                let mut watched = [process, PollFd::from_borrowed_fd(lifeline.as_fd(), PollFlags::empty())];
                let _ = poll(&mut watched, Some(&REAP));
                if watched.last().is_some_and(|lifeline| !lifeline.revents().is_empty()) {
                    until = Some(Instant::now() + TERM_GRACE);
                    let _ = kill_process_group(child, Signal::TERM);
                }
            }
            Some(_) => drop(poll(&mut [process], Some(&REAP))),
        }
    }
    let status = ended(child).or_else(|| end_children(child));
    end_children(child);
    Ok(exit_code(status))
}

/// Kills all children until none is left, and returns how `child` ended if it is one of them. The children of an ended
/// child become children of this process. Only this process reaps its children, so no id is reused between listing and
/// killing it.
fn end_children(child: Pid) -> Option<WaitStatus> {
    let mut status = None;
    loop {
        for pid in children() {
            let _ = kill_process(pid, Signal::KILL);
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, how))) if pid == child => status = Some(how),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return status,
            }
        }
        thread::sleep(POLL);
    }
}

fn children() -> impl Iterator<Item = Pid> {
    let own = getpid();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(move |pid| parent(*pid) == Some(own))
}

/// The parent of a process: field 4 of its `stat`. The name before it may contain any character.
fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (_, after_name) = stat.rsplit_once(") ")?;
    Pid::from_raw(after_name.split_ascii_whitespace().nth(1)?.parse().ok()?)
}

fn exit_code(status: Option<WaitStatus>) -> ExitCode {
    let code = status.and_then(|status| status.exit_status().or_else(|| Some(128 + status.terminating_signal()?)));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
