//! A second host on a member's directory: the first alive, hung, dead, or working without serving.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use guild_contract::Limits;
use guild_fs::durable::open_directory;
use guild_jobs::OwnerLock;
use guild_roster::members::takeover::{OwnerError, own};
use tokio::net::TcpListener;

use crate::harness::{PATIENCE, Server, host, manifest};

/// Set in a process of this test program that must own the directory it names; the URL follows.
const OWNED: &str = "GUILD_TEST_OWNED_DIRECTORY";
const URL: &str = "GUILD_TEST_OWNER_URL";

/// Not a test of its own, but the other process. It owns a directory until it is ended.
#[test]
fn owner_process() {
    let Some(directory) = std::env::var_os(OWNED) else { return };
    let directory = open_directory(Path::new(&directory)).unwrap();
    let url = std::env::var(URL).unwrap();
    // A process that waits for this one tries the lock, and may hold it for a moment.
    let _lock = loop {
        if let Ok(lock) = OwnerLock::try_acquire(&directory, &url).unwrap() {
            break lock;
        }
        std::thread::yield_now();
    };
    loop {
        std::thread::park();
    }
}

struct Other(Child);

impl Other {
    /// Starts a process that owns the directory, and waits until it does.
    fn owning(directory: &Path, url: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "takeover::owner_process", "--nocapture"])
            .env(OWNED, directory)
            .env(URL, url)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (other, dir, begin) = (Self(child), open_directory(directory).unwrap(), Instant::now());
        while !OwnerLock::try_acquire(&dir, "").unwrap().is_err_and(|owner| owner.pid == other.0.id()) {
            assert!(begin.elapsed() < PATIENCE, "the other process does not own the directory");
            std::thread::yield_now();
        }
        other
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn take(directory: &Path) -> Result<OwnerLock, OwnerError> {
    own(&open_directory(directory).unwrap(), &"tester".parse().unwrap(), "http://127.0.0.1:1/mcp").await
}

#[tokio::test]
async fn a_member_without_owner_is_taken_at_once() {
    let home = tempfile::tempdir().unwrap();
    let begin = Instant::now();
    let _lock = take(home.path()).await.unwrap();
    assert!(begin.elapsed().as_millis() < 1000);
}

#[tokio::test]
async fn an_owner_that_answers_keeps_the_member_and_is_named() {
    let home = tempfile::tempdir().unwrap();
    // A member's key is its directory's name.
    let jobs = tempfile::Builder::new().prefix("member-").tempdir().unwrap();
    let server = Server::start(host(jobs.path(), &manifest("tester"), Limits::default()).await);
    let url = format!("http://{}/mcp", server.address);
    let mut other = Other::owning(home.path(), &url);
    let error = take(home.path()).await.map(drop).unwrap_err().to_string();
    assert!(error.contains(&format!("by process {} at {url}", other.0.id())), "{error}");
    assert!(other.is_running());
}

#[tokio::test]
async fn an_owner_that_hangs_is_ended_and_the_member_taken() {
    let home = tempfile::tempdir().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut other = Other::owning(home.path(), &format!("http://{}/mcp", silent.local_addr().unwrap()));
    let _lock = take(home.path()).await.unwrap();
    assert!(!other.is_running());
}

#[tokio::test]
async fn an_owner_that_answers_with_an_error_is_alive() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::of_a_broken_member(Limits::default()).await;
    let mut other = Other::owning(home.path(), &format!("http://{}/members/broken/mcp", server.address));
    assert!(matches!(take(home.path()).await, Err(OwnerError::Served { .. })));
    assert!(other.is_running());
}

#[tokio::test]
async fn an_owner_that_died_is_nobodys_trouble() {
    let home = tempfile::tempdir().unwrap();
    drop(Other::owning(home.path(), "http://127.0.0.1:1/mcp"));
    let begin = Instant::now();
    let _lock = take(home.path()).await.unwrap();
    assert!(begin.elapsed().as_millis() < 1000);
}

#[tokio::test]
async fn an_owner_that_lets_go_in_time_is_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let other = Other::owning(home.path(), "http://127.0.0.1:1/mcp");
    let taking = take(home.path());
    tokio::pin!(taking);
    assert!(futures::poll!(taking.as_mut()).is_pending());
    drop(other);
    taking.await.unwrap();
}

#[tokio::test]
async fn an_owner_that_does_not_serve_is_never_ended() {
    let home = tempfile::tempdir().unwrap();
    let mut other = Other::owning(home.path(), "");
    let error = take(home.path()).await.map(drop).unwrap_err();
    assert!(matches!(error, OwnerError::InUse { pid, .. } if pid == other.0.id()), "{error}");
    assert!(other.is_running());
}
