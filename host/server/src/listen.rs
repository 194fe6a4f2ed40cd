//! Listening: the port first, the connections last.
//!
//! A host takes its port as the first thing it does, so that one that is in use is known at once, and listens as
//! the last: a client that can connect finds a host that answers.

use std::{
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use futures::poll;
use guild_contract::Limits;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};
use tokio::{
    net::{TcpListener, TcpStream},
    signal::unix::{SignalKind, signal},
    sync::Semaphore,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::http::Service;

/// Connections that the system holds until they are accepted.
const BACKLOG: i32 = 4096;
/// How long an answer under way may take once the host is to stop.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// How long to wait where the system has nothing left for another connection.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);

/// Why the host cannot have its address.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process has it. The command ends with exit code 2, upon which the next port is tried.
    #[error("port {} is already in use on {}", .0.port(), .0.ip())]
    InUse(SocketAddr),
    /// The system does not give it.
    #[error("cannot listen on {address}: {source}")]
    Other {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// An address that is this host's, and at which nobody can connect yet.
#[derive(Debug)]
pub struct Bound {
    socket: Socket,
    address: SocketAddr,
}

impl Bound {
    /// Takes an address, without address reuse: two hosts can never share a port. Port 0 takes a free one.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let bind = || {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            socket.set_nonblocking(true)?;
            socket.bind(&address.into())?;
            let bound = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
            Ok(Self { socket, address: bound })
        };
        bind().map_err(|source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse(address),
            _ => BindError::Other { address, source },
        })
    }

    /// The address, with the port that the system chose where 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets clients connect. Must be called in a runtime.
    pub fn listen(self, limits: &Limits) -> Result<TcpListener, BindError> {
        let listen = || {
            // Connections inherit both. An answer is one write, which waiting to fill a packet would only delay; one
            // that its client does not take must not be kept for ever.
            self.socket.set_tcp_nodelay(true)?;
            #[cfg(target_os = "linux")]
            self.socket.set_tcp_user_timeout(Some(Duration::from_secs(limits.client_seconds.into())))?;
            self.socket.listen(BACKLOG)?;
            TcpListener::from_std(self.socket.into())
        };
        let address = self.address;
        listen().map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse(address),
            _ => BindError::Other { address, source },
        })
    }
}

/// Serves connections until `stop` is ready. Then nobody can connect any more, an answer under way gets 100 ms, and
/// all connections are closed.
///
/// At most `limits.connections` are served at a time; others wait to be accepted. One whose
/// client does nothing for `limits.client_seconds` is closed.
pub async fn serve(listener: TcpListener, service: Service, limits: &Limits, stop: impl Future<Output = ()>) {
    raise_descriptor_limit();
    let most = usize::try_from(limits.connections).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
    let slots = Arc::new(Semaphore::new(most));
    let stopping = CancellationToken::new();
    let connections = TaskTracker::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(limits.client_seconds.into()));

    let accepting = async {
        loop {
            let Ok(slot) = slots.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (http, service, stopping) = (http.clone(), service.clone(), stopping.clone());
                    connections.spawn(async move {
                        serve_connection(stream, &http, service, &stopping).await;
                        drop(slot);
                    });
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted at the moment");
                    tokio::time::sleep(EXHAUSTED_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        () = stop => {}
    }
    drop(listener);
    stopping.cancel();
    connections.close();
    connections.wait().await;
}

async fn serve_connection(stream: TcpStream, http: &http1::Builder, service: Service, stopping: &CancellationToken) {
    let mut connection = http.serve_connection(TokioIo::new(stream), service);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stopping.cancelled() => return end_connection(connection).await,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Ends a connection since the host ends. Unless an answer was under way it is reset: closed by this side, it would
/// keep the host's port from the next host for a minute.
async fn end_connection(mut connection: http1::Connection<TokioIo<TcpStream>, Service>) {
    Pin::new(&mut connection).graceful_shutdown();
    let mut rest = pin!(poll_fn(|context| connection.poll_without_shutdown(context)));
    let answered = poll!(rest.as_mut()).is_pending() && timeout(LAST_WORDS, rest).await.is_ok();
    let stream = connection.into_parts().io.into_inner();
    if !answered {
        // Where it cannot be, the port is free a minute later.
        let _ = stream.set_zero_linger();
    }
}

/// Ready when the process is told to end, by SIGTERM or SIGINT. The handlers stand when this function returns.
pub fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// Connections and job files share the process's descriptors; the usual soft limit of 1,024 is for programs that
/// use `select`.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
}
