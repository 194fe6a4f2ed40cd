//! The Unix socket in the hall's home. Whoever can connect to it is the user: its mode is 0600, the home's 0700, and the peer's
//! user is looked at. So no token is asked; the original's clients have none. No session and no component reaches its path,
//! and a process that this host started, or that one of those did, is sent away: what runs there is not the user.

use std::{
    convert::Infallible,
    fs, io, iter,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{http::StatusCode, response::Response};
use guild_contract::Limits;
use guild_hall::{Hall, PID, SOCKET};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use rustix::process::{geteuid, getpid};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};

use super::routes::{self, Asked};
use crate::patience::{LAST_WORDS, Patient};

/// Bytes of a socket's path, with a zero at the end.
const PATH_BYTES: usize = 108;

/// How far a peer's parents are looked at.
const MAX_ANCESTORS: usize = 64;

/// A socket that clients can connect to. Its files are removed with it.
pub struct Socket {
    listener: UnixListener,
    files: [PathBuf; 2],
}

impl Socket {
    /// Listens in the home of a hall that this process owns. A socket that a crash left is replaced.
    ///
    /// # Errors
    /// A sentence that names the path.
    pub fn listen(hall: &Hall) -> io::Result<Self> {
        let home = hall.home().path();
        let path = home.join(SOCKET);
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        if path.as_os_str().len() >= PATH_BYTES {
            let why = format!("a socket's path has at most {} bytes; choose a home with a shorter one", PATH_BYTES - 1);
            return Err(named(io::Error::new(io::ErrorKind::InvalidFilename, why)));
        }
        // Made where nobody looks for it, so that it has its mode from the first moment.
        let new = home.join("state/new/s");
        let _ = fs::remove_file(&new);
        let listener = UnixListener::bind(&new).map_err(named)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).map_err(named)?;
        fs::rename(&new, &path).map_err(named)?;
        let socket = Self { listener, files: [path.clone(), home.join(PID)] };
        let [_, pid] = &socket.files;
        fs::write(pid, std::process::id().to_string()).map_err(named)?;
        Ok(socket)
    }

    /// Serves connections until `stop` is ready. Then an answer under way gets 100 ms, as on the port.
    pub async fn serve(&self, hall: &Arc<Hall>, limits: &Arc<Limits>, stop: impl Future<Output = ()>) {
        let slots =
            Arc::new(Semaphore::new(usize::try_from(limits.connections).unwrap_or(1).min(Semaphore::MAX_PERMITS)));
        let since = Instant::now();
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            let Ok(slot) = slots.clone().acquire_owned().await else { return };
            let accepted = loop {
                tokio::select! {
                    accepted = self.listener.accept() => break accepted,
                    () = &mut stop => {
                        // What is not answered then is closed.
                        let _ = timeout(LAST_WORDS, graceful.shutdown()).await;
                        return connections.shutdown().await;
                    }
                    _ = connections.join_next(), if !connections.is_empty() => {}
                }
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(e) => {
                    tracing::warn!("no connection to the hall can be accepted at the moment: {e}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            if let Err(who) = is_user(&stream) {
                tracing::warn!("{who} connected to the hall's socket, and was sent away");
                continue;
            }
            let (hall, limits, graceful) = (hall.clone(), limits.clone(), graceful.watcher());
            connections.spawn(async move {
                serve_one(stream, hall, limits, (since, graceful)).await;
                drop(slot);
            });
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
    }
}

/// Whether the peer is the user; else who it is.
fn is_user(stream: &UnixStream) -> Result<(), &'static str> {
    let peer = stream.peer_cred().map_err(|_| "somebody unknown")?;
    if peer.uid() != geteuid().as_raw() {
        return Err("another user");
    }
    match peer.pid().is_some_and(|pid| ancestors(pid).skip(1).any(|pid| pid == own_pid())) {
        true => Err("a process of this host's own"),
        false => Ok(()),
    }
}

fn own_pid() -> i32 {
    getpid().as_raw_nonzero().get()
}

/// A process, its parent, and so on, as far as the system tells.
fn ancestors(pid: i32) -> impl Iterator<Item = i32> {
    let parent = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    };
    iter::successors(Some(pid), parent).take(MAX_ANCESTORS)
}

async fn serve_one(stream: UnixStream, hall: Arc<Hall>, limits: Arc<Limits>, (since, graceful): (Instant, Watcher)) {
    let patience = Duration::from_secs(limits.client_seconds.into());
    let service = service_fn(|request: Request<Incoming>| {
        let (hall, limits) = (hall.clone(), limits.clone());
        async move { Ok::<_, Infallible>(respond(&hall, &limits, request, since).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience).max_headers(limits.headers as usize);
    let connection = http.serve_connection(TokioIo::new(Patient::new(stream, patience)), service);
    if let Err(error) = graceful.watch(connection).await {
        tracing::debug!(%error, "a connection to the hall ended");
    }
}

async fn respond(hall: &Arc<Hall>, limits: &Limits, request: Request<Incoming>, since: Instant) -> Response {
    let (head, body) = request.into_parts();
    let most = usize::try_from(limits.body_bytes).unwrap_or(usize::MAX);
    let patience = Duration::from_secs(limits.client_seconds.into());
    let body = match timeout(patience, Limited::new(body, most).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let why = format!("a request's body is at most {most} bytes");
            return routes::error(StatusCode::PAYLOAD_TOO_LARGE, &why);
        }
        Ok(Err(_)) => return routes::error(StatusCode::BAD_REQUEST, "the body is broken off"),
        Err(_) => return routes::error(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
    };
    let hall = hall.clone();
    // It goes on where its client goes away: a change is made whole, or not at all.
    let answered = tokio::spawn(async move {
        let query = head.uri.query().unwrap_or_default();
        let asked = Asked { method: &head.method, path: head.uri.path(), query, body: &body, since };
        routes::answer(&hall, asked).await
    });
    answered.await.unwrap_or_else(|_| routes::error(StatusCode::INTERNAL_SERVER_ERROR, "the host failed to answer"))
}
