//! Makes this process a member's owner, also where another host still has the lock.
//!
//! Guild Hall can start a second host on a directory whose first still lives, and never ends the first. The newcomer
//! gives the owner a moment to end by itself, then looks whether it lives: one that answers keeps the member; so does
//! one whose `.owner` is touched each second, since one that has no connection left for the newcomer is not hung. One
//! that does neither is ended, since otherwise the member would not be served any more.

use std::{
    future::pending,
    io,
    net::{IpAddr, UdpSocket},
    sync::OnceLock,
    thread,
    time::Duration,
};

use cap_std::fs::Dir;
use guild_contract::MemberKey;
use guild_jobs::{Owner, OwnerLock, Pulse};
use serde_json::{Value, json};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    time::{Instant, MissedTickBehavior},
};

/// How long to wait for an owner that may be ending.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the owner may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// The interval of an owner's sign of life, and how long it may be missing.
const BEAT: Duration = Duration::from_secs(1);
const BEAT_PATIENCE: Duration = Duration::from_secs(3);
/// How long it has between SIGTERM and SIGKILL; also how long the lock may take to come free after that.
const GRACE: Duration = Duration::from_secs(2);
/// The pause between two attempts to take the lock.
const POLL: Duration = Duration::from_millis(25);

/// The reason that this process is not the member's owner.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// Another host serves the member, and lives.
    #[error("member {key} is already served by process {pid} at {url}; stop that process, or use it")]
    Served {
        /// The member.
        key: MemberKey,
        /// The owner's process.
        pid: u32,
        /// The address at which it answers.
        url: String,
    },
    /// Another process works on the member without serving it, as `guild run` does.
    #[error("member {key} is in use by process {pid}; wait until it ends, or stop it")]
    InUse {
        /// The member.
        key: MemberKey,
        /// The owner's process.
        pid: u32,
    },
    /// The lock is another user's or an unknown process's, or it could not be taken.
    #[error("member {key}{why}")]
    Failed {
        /// The member.
        key: MemberKey,
        /// The rest of the sentence.
        why: String,
    },
}

impl OwnerError {
    fn io(key: &MemberKey, error: &io::Error) -> Self {
        Self::Failed { key: key.clone(), why: format!(": could not become its owner: {error}") }
    }
}

/// Takes a member over: at once where it has no owner, after 3 s where the owner keeps the lock, and shows no life for
/// 3 s more. `url` is where this process is going to serve it; empty where it is not. The owner says that it lives for
/// as long as it is not dropped.
///
/// Nothing of the member may be touched before this succeeds.
pub async fn own(member: &Dir, key: &MemberKey, url: &str) -> Result<OwnerLock, OwnerError> {
    let lock = acquire(member, key, url).await?;
    heartbeats().map_err(|e| OwnerError::io(key, &e))?.spawn(live(lock.pulse()));
    Ok(lock)
}

/// The thread that says of all members' owners in this process that they live. No request and no component occupies it,
/// so that however busy those keep the host, no other host takes it for hung.
fn heartbeats() -> io::Result<&'static Handle> {
    static THREAD: OnceLock<&Handle> = OnceLock::new();
    if let Some(handle) = THREAD.get() {
        return Ok(handle);
    }
    // It is never dropped, which a caller on another runtime could not do.
    let runtime: &Runtime = Box::leak(Box::new(Builder::new_current_thread().enable_time().build()?));
    thread::Builder::new().name("heartbeat".to_owned()).spawn(move || runtime.block_on(pending::<()>()))?;
    // Where two begin at once, there are two threads, of which one has nothing to do.
    Ok(THREAD.get_or_init(|| runtime.handle()))
}

/// Shows repeatedly that the owner is alive, until it is dropped.
async fn live(pulse: Pulse) {
    let mut beats = tokio::time::interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        if !pulse.beat() {
            return;
        }
    }
}

async fn acquire(member: &Dir, key: &MemberKey, url: &str) -> Result<OwnerLock, OwnerError> {
    let failed = |e: io::Error| OwnerError::io(key, &e);
    let owner = match wait(member, url, PATIENCE).await.map_err(failed)? {
        Ok(lock) => return Ok(lock),
        Err(owner) => owner,
    };
    if owner.is_alive() {
        if owner.url.is_empty() {
            return Err(OwnerError::InUse { key: key.clone(), pid: owner.pid });
        }
        if is_alive(member, &owner.url).await {
            return Err(OwnerError::Served { key: key.clone(), pid: owner.pid, url: owner.url });
        }
        if !owner.has_open(member) {
            return Err(locked(member, key));
        }
        tracing::warn!(member = %key, pid = owner.pid, url = owner.url, "the member's owner shows no life; it is ended");
        let hung = owner.clone();
        let ended = tokio::task::spawn_blocking(move || hung.terminate(GRACE)).await;
        ended.map_err(io::Error::other).and_then(|ended| ended).map_err(failed)?;
    }
    wait(member, url, GRACE).await.map_err(failed)?.map_err(|_| locked(member, key))
}

/// Why a member cannot be owned whose present owner is not known.
fn locked(member: &Dir, key: &MemberKey) -> OwnerError {
    let why = match Owner::other_user(member) {
        Some(user) => format!(" is {user}"),
        None => " stays locked by a process that its file .owner does not name; stop the one that has the member's \
                 directory open"
            .to_owned(),
    };
    OwnerError::Failed { key: key.clone(), why }
}

/// Tries for the lock until it is free or the time is over; then the owner.
async fn wait(member: &Dir, url: &str, patience: Duration) -> io::Result<Result<OwnerLock, Owner>> {
    let until = Instant::now() + patience;
    loop {
        let tried = OwnerLock::try_acquire(member, url)?;
        if tried.is_ok() || Instant::now() >= until {
            return Ok(tried);
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Whether the owner shows any sign of life.
async fn is_alive(member: &Dir, url: &str) -> bool {
    tokio::select! {
        true = answers(url) => true,
        true = beats(member) => true,
        else => false,
    }
}

/// Whether the owner shows from now on that it is alive.
async fn beats(member: &Dir) -> bool {
    let (before, until) = (Owner::last_beat(member), Instant::now() + BEAT_PATIENCE);
    while Instant::now() < until {
        tokio::time::sleep(POLL).await;
        if Owner::last_beat(member) != before {
            return true;
        }
    }
    false
}

/// Whether a host answers `initialize` at that url, which has to be one of this machine. A refusal, of a request
/// without a token say, is an answer too: the process is not hung, and may serve other members.
async fn answers(url: &str) -> bool {
    let ask = async {
        let url = reqwest::Url::parse(url).ok()?;
        let host = url.host_str()?.trim_matches(['[', ']']);
        let is_own = |address: IpAddr| address.is_loopback() || UdpSocket::bind((address, 0)).is_ok();
        if !host.parse::<IpAddr>().is_ok_and(is_own) {
            return None;
        }
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "guild", "version": env!("CARGO_PKG_VERSION")}
        });
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            // The request has no secret, and its answer shows only that the process lives: any certificate will do.
            .tls_danger_accept_invalid_certs(true);
        let client = client.build().ok()?;
        let request = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let response = client.post(url).json(&request).send().await.ok()?;
        if matches!(response.status().as_u16(), 401 | 403 | 429 | 503) {
            return Some(());
        }
        let response: Value = response.json().await.ok()?;
        response.get("jsonrpc").map(|_| ())
    };
    matches!(tokio::time::timeout(ANSWER, ask).await, Ok(Some(())))
}
