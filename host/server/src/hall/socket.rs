//! Serves the hall's API on a Unix socket in the hall's home.
//!
//! Every process that can connect belongs to the user: the socket's mode is 0600, the home's 0700, and the user of the
//! peer is checked. So no token is required; the original's clients have none. Components have no sockets at all.
//! Programs that the host starts (`claude`, `git`, `gh`) run as the user and count as the user.

use std::{
    fs, io,
    os::unix::{fs::PermissionsExt as _, net},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{Router, extract::Request, response::Response};
use futures::FutureExt as _;
use guild_auth::{Caller, Connection, Process};
use guild_contract::Limits;
use guild_hall::{Hall, PID, SOCKET};
use hyper_util::{rt::TokioIo, server::graceful::Watcher};
use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};

use super::Api;
use crate::{
    connections::{self, Activity, write_timeout::TimedConnection},
    declined::{Declined, Shape},
    layers::{Admitted, Layers, Listener, route},
};

/// Bytes of a socket's path, including the terminating zero.
const PATH_BYTES: usize = 108;

/// A listening socket. The files that it made are removed on drop.
pub struct Socket {
    listener: Arc<UnixListener>,
    files: Vec<PathBuf>,
}

impl Socket {
    /// Listens in the home of a hall that this process owns, on the socket that the service manager passed, if there is
    /// one. A socket that a crash left behind is replaced.
    ///
    /// # Errors
    ///
    /// Returns an error that names the path when the socket cannot be created, or was passed at another path.
    pub fn open(hall: &Hall, passed: Option<net::UnixListener>) -> io::Result<Self> {
        let home = hall.home().path();
        let path = home.join(SOCKET);
        let mut socket = match passed {
            Some(passed) => Self::passed(passed, &path)?,
            None => Self::listen(home, path)?,
        };
        let pid = home.join(PID);
        fs::write(&pid, std::process::id().to_string())
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", pid.display())))?;
        socket.files.push(pid);
        Ok(socket)
    }

    /// The socket at `path`, which the service manager made and keeps. Clients that connect to it are checked as on any
    /// other.
    fn passed(passed: net::UnixListener, path: &Path) -> io::Result<Self> {
        let address = passed.local_addr()?;
        let is_at = |at: &Path| {
            at == path || matches!((at.canonicalize(), path.canonicalize()), (Ok(at), Ok(path)) if at == path)
        };
        if !address.as_pathname().is_some_and(is_at) {
            let at = address.as_pathname().map_or_else(|| "no path".to_owned(), |at| at.display().to_string());
            let why = format!(
                "the service manager passes a Unix socket at {at}, and clients of the hall look for {}; name that in \
                 the socket unit",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        passed.set_nonblocking(true)?;
        Ok(Self { listener: Arc::new(UnixListener::from_std(passed)?), files: Vec::new() })
    }

    fn listen(home: &Path, path: PathBuf) -> io::Result<Self> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        if path.as_os_str().len() >= PATH_BYTES {
            let why = format!("a socket's path has at most {} bytes; choose a home with a shorter one", PATH_BYTES - 1);
            return Err(named(io::Error::new(io::ErrorKind::InvalidFilename, why)));
        }
        // The socket is made in a private directory, so that it has its mode from the first moment.
        let new = home.join("state/new/s");
        let _ = fs::remove_file(&new);
        let listener = UnixListener::bind(&new).map_err(named)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).map_err(named)?;
        fs::rename(&new, &path).map_err(named)?;
        Ok(Self { listener: Arc::new(listener), files: vec![path] })
    }

    /// Serves connections until `stop` is ready. A running response then gets 100 ms, as on the port.
    pub async fn serve(&self, api: &Api, limits: &Limits, stop: impl Future<Output = ()>) {
        let patience = Duration::from_secs(limits.client_seconds.into());
        let (http, layers) = (connections::http(limits), Layers::new(Arc::new(OwnUser(api.clone().router()))));
        let begin = |(stream, _), activity, graceful: Watcher| match process_of_user(&stream) {
            Ok(process) => {
                let from = Connection::of_process(api.ingress.clone(), process);
                let service = layers.service(from, activity);
                let connection = http.serve_connection(TokioIo::new(TimedConnection::new(stream, patience)), service);
                let serving = async move {
                    if let Err(error) = graceful.watch(connection).await {
                        tracing::debug!(%error, "a connection to the hall ended");
                    }
                };
                Some(serving.boxed())
            }
            Err(user) => {
                let who = user.map_or_else(|| "an unknown user".to_owned(), |user| format!("user {user}"));
                tracing::warn!("{who} connected to the hall's socket, and was rejected");
                api.ingress.rules().record_stranger(user);
                None
            }
        };
        let accept = || {
            let listener = self.listener.clone();
            async move { listener.accept().await }.boxed()
        };
        connections::serve(limits, accept, begin, stop).await;
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
    }
}

/// The peer's process if it is the user's; else its user, if the system reports one.
fn process_of_user(stream: &UnixStream) -> Result<Process, Option<u32>> {
    let peer = stream.peer_cred().map_err(|_| None)?;
    match peer.uid() == geteuid().as_raw() {
        // If the system does not report process ids, all processes count as one.
        true => Ok(Process { pid: peer.pid().unwrap_or_default(), user: peer.uid() }),
        false => Err(Some(peer.uid())),
    }
}

/// The routes of the hall's API, for each request, since only the user's processes can connect.
struct OwnUser(Router);

impl Listener for OwnUser {
    type Admission = Caller;

    fn shape(&self, _: &str) -> Shape {
        Shape::Hall
    }

    fn admit(&self, _: Shape, from: &Arc<Connection>, _: &Request) -> Result<Caller, Declined> {
        Ok(from.admit_user())
    }

    async fn answer(&self, caller: Caller, activity: Arc<Activity>, mut request: Request) -> Response {
        request.extensions_mut().insert(Admitted { caller, activity });
        route(&self.0, request).await
    }
}
