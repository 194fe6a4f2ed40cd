//! Starting children so that none outlives the host, not even one that is killed with SIGKILL.
//!
//! Linux sends a child its parent-death signal when the *thread* that started it ends. The threads of a runtime come and
//! go, so all children are started by one thread that lives as long as the process.

use std::{
    io,
    sync::{LazyLock, mpsc},
};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use tokio::{
    process::{Child, Command},
    runtime::Handle,
    sync::oneshot,
};

struct SpawnRequest {
    command: Command,
    runtime: Handle,
    done: oneshot::Sender<io::Result<Child>>,
}

static SPAWNER: LazyLock<io::Result<mpsc::Sender<SpawnRequest>>> = LazyLock::new(|| {
    let (requests, received) = mpsc::channel::<SpawnRequest>();
    std::thread::Builder::new().name("spawner".to_owned()).spawn(move || {
        for SpawnRequest { mut command, runtime, done } in received {
            // The child's pipes are registered with the runtime.
            let _within = runtime.enter();
            // Where the caller was dropped, the child is dropped too, and killed.
            let _ = done.send(command.spawn());
        }
    })?;
    Ok(requests)
});

/// Starts a child in its own process group. It is killed when it is dropped, and when this process ends in any way.
pub(super) async fn spawn(mut command: Command) -> io::Result<Child> {
    command.process_group(0).kill_on_drop(true);
    die_with_this_process(&mut command);
    let (done, started) = oneshot::channel();
    let requests = SPAWNER.as_ref().map_err(|e| io::Error::new(e.kind(), e.to_string()))?;
    let ended = |_| io::Error::other("the thread that starts processes has ended");
    requests.send(SpawnRequest { command, runtime: Handle::current(), done }).map_err(|_| ended(()))?;
    started.await.map_err(|_| ended(()))?
}

#[allow(
    unsafe_code,
    reason = "the parent-death signal can be set only between fork and exec. That code runs in a copy of a process with \
              many threads, so it must neither allocate nor lock: it makes two system calls and compares two numbers"
)]
fn die_with_this_process(command: &mut Command) {
    let host = rustix::process::getpid();
    let hook = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A host that ended before the signal was set sends none.
        if getppid() == Some(host) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    };
    // SAFETY: the hook is async-signal-safe: it makes system calls, and neither allocates nor locks.
    unsafe { command.pre_exec(hook) };
}
