//! Binds the host's port, serves its connections, and receives the process's signals.
//!
//! A host binds its port first, so that a port in use is reported at once, and listens last: a client that can connect
//! finds a host that responds.

use std::{
    collections::HashMap,
    fs::{self, File},
    future::Future,
    io,
    net::{self, IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use futures::{FutureExt as _, future::BoxFuture};
use guild_auth::Connection;
use guild_contract::Limits;
use guild_fs::clock;
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, server::graceful::Watcher};
use socket2::{Domain, Socket, Type};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
    time::timeout,
};

use crate::{
    connections::{
        self, Activity,
        write_timeout::{PIECE, SHUTDOWN_GRACE, TimedConnection, Transport},
    },
    http::Service,
};

/// Connections that the system queues until they are accepted.
const BACKLOG: i32 = 4096;

/// The maximum number of connections that are reserved for this machine.
const OWN: u32 = 16;

/// The reason that the host cannot bind its address.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process has the address. The command ends with exit code 2, so that its caller can try the next port.
    #[error("port {} is already in use on {}", .0.port(), .0.ip())]
    InUse(SocketAddr),
    /// The system refuses the address.
    #[error("cannot listen on {address}: {source}")]
    Other {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

/// A bound address that does not accept connections yet.
#[derive(Debug)]
pub struct Bound {
    socket: Socket,
    address: SocketAddr,
}

impl BindError {
    fn of(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(address),
            _ => Self::Other { address, source },
        }
    }
}

impl Bound {
    /// Binds an address that no other process has. Port 0 selects a free port.
    ///
    /// Closed connections of an earlier host block the address for a minute, but only for a socket without address
    /// reuse. So the address is tried without reuse, and then with it. The bound socket itself has no reuse until it
    /// listens; otherwise a second host could bind the same address before the first listens.
    ///
    /// # Errors
    ///
    /// Returns [`BindError::InUse`] if another process has the address, whether or not it listens yet.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let bind = |reuse| {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            socket.set_nonblocking(true)?;
            socket.set_reuse_address(reuse)?;
            socket.bind(&address.into())?;
            socket.set_reuse_address(false)?;
            let bound = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
            Ok(Self { socket, address: bound })
        };
        let bound = bind(false).or_else(|error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => bind(true),
            _ => Err(error),
        });
        bound.map_err(|source| BindError::of(address, source))
    }

    /// Takes a socket on which the service manager already listens. Clients that connect wait until the host accepts.
    ///
    /// # Errors
    ///
    /// Returns an error when the socket listens elsewhere than `bind` of `guild.toml` says: what an address requires,
    /// as encryption, is checked where that file is read.
    pub(crate) fn passed(listener: net::TcpListener, bind: IpAddr) -> io::Result<Self> {
        let address = listener.local_addr()?;
        if address.ip() != bind {
            let why = format!(
                "the service manager listens at {address}, and `bind` in guild.toml is {bind}; name one address in both"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        listener.set_nonblocking(true)?;
        Ok(Self { socket: listener.into(), address })
    }

    /// The address, with the port that the system chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets clients connect. Must be called in a runtime.
    ///
    /// # Errors
    ///
    /// Returns [`BindError::InUse`] if another host that started at the same moment already listens.
    pub fn listen(self, limits: &Limits) -> Result<TcpListener, BindError> {
        let listen = || {
            // Connections inherit these options. A response is one write, so waiting to fill a packet would only delay
            // it. A response that its client does not read must not stay in memory for ever.
            self.socket.set_tcp_nodelay(true)?;
            #[cfg(target_os = "linux")]
            {
                self.socket.set_tcp_user_timeout(Some(Duration::from_secs(limits.client_seconds.into())))?;
                // The buffer must be half empty before it takes more, so the host notices when a client reads, and the
                // system does not hold megabytes for a client that reads nothing.
                self.socket.set_tcp_notsent_lowat(2 * PIECE)?;
            }
            // Closed connections of a socket with address reuse do not block the address for a later host.
            self.socket.set_reuse_address(true)?;
            self.socket.listen(BACKLOG)?;
            TcpListener::from_std(self.socket.into())
        };
        let address = self.address;
        listen().map_err(|source| BindError::of(address, source))
    }
}

/// Serves connections until `stop` is ready. The host then accepts no more connections, a running response gets 100 ms,
/// and all connections are closed.
///
/// At most `limits.connections` are served at a time; if all are taken, the connection that has waited longest for its
/// client is closed. At most `limits.connections_per_address` belong to one remote address, and a few places are
/// reserved for this machine; connections beyond these are closed at once. A connection is also closed if its client
/// takes longer than `limits.client_seconds` for a handshake, a request or 64 KiB of a response, or is silent for as
/// long.
pub async fn serve(listener: TcpListener, service: Service, limits: &Limits, stop: impl Future<Output = ()>) {
    let addresses = Arc::new(AddressLimits::new(limits));
    let patience = Duration::from_secs(limits.client_seconds.into());
    let served = Arc::new(Served { http: connections::http(limits), service, patience });
    let begin = |(stream, peer): (TcpStream, SocketAddr), activity, graceful| {
        let Some(counted) = addresses.count(peer.ip().to_canonical()) else {
            tracing::debug!(%peer, "the connection is closed: its address, or all remote addresses, have reached \
                their limit of connections");
            return None;
        };
        Some(served.clone().begin(stream, peer, counted, activity, graceful))
    };
    let listener = Arc::new(listener);
    let accept = move || {
        let listener = listener.clone();
        async move { listener.accept().await }.boxed()
    };
    connections::serve(limits, accept, begin, stop).await;
}

/// The state that all connections of the port share.
struct Served {
    http: http1::Builder,
    service: Service,
    patience: Duration,
}

impl Served {
    /// Boxed here, where no type is generic, so that other crates need not compile all that a request does.
    fn begin(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        counted: Option<AddressPermit>,
        activity: Arc<Activity>,
        graceful: Watcher,
    ) -> BoxFuture<'static, ()> {
        let serving = async move {
            self.serve(stream, peer, activity, graceful).await;
            drop(counted);
        };
        serving.boxed()
    }

    async fn serve(&self, stream: TcpStream, peer: SocketAddr, activity: Arc<Activity>, graceful: Watcher) {
        let ingress = self.service.ingress();
        // The local address is looked up only if needed, since that costs a system call.
        let at = if ingress.own_address() { stream.local_addr().ok() } else { None };
        let from = Connection::new(ingress.clone(), peer, at);
        let Some(tls) = ingress.tls() else { return self.serve_http(stream, from, activity, graceful).await };
        match timeout(self.patience, tls.acceptor().accept(stream)).await {
            Ok(Ok(stream)) => self.serve_http(stream, from, activity, graceful).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "the TLS handshake with a client failed"),
            Err(_) => tracing::debug!(%peer, "a client took too long for its handshake"),
        }
    }

    async fn serve_http(&self, stream: impl Transport, from: Connection, activity: Arc<Activity>, graceful: Watcher) {
        if clock::check(SystemTime::now()).is_err() {
            return refuse_without_clock(stream).await;
        }
        let service = self.service.layers().service(from, activity);
        let connection = self.http.serve_connection(TokioIo::new(TimedConnection::new(stream, self.patience)), service);
        if let Err(error) = graceful.watch(connection).await {
            tracing::debug!(%error, "a connection ended");
        }
    }
}

/// Refuses all requests while the clock shows a time that no `Date` header can hold, for which hyper would panic.
async fn refuse_without_clock(mut stream: impl Transport) {
    const ANSWER: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n\
                          the clock of this host's machine shows a time before 1970 or after 9999; set the clock\n";
    // A client that has gone needs no response.
    let _ = timeout(SHUTDOWN_GRACE, stream.write_all(ANSWER.as_bytes())).await;
    let _ = timeout(SHUTDOWN_GRACE, stream.shutdown()).await;
}

/// The number of connections of each remote address.
struct AddressLimits {
    /// The limit for one address.
    most: u32,
    /// The limit for all remote addresses together, so that remote clients cannot crowd out clients on this machine.
    most_of_all: u32,
    now: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    of: HashMap<IpAddr, u32>,
    all: u32,
}

/// A counted connection of a remote address, released on drop.
struct AddressPermit {
    all: Arc<AddressLimits>,
    address: IpAddr,
}

impl AddressLimits {
    /// An eighth of all connections, and at most `OWN`, is reserved for this machine.
    fn new(limits: &Limits) -> Self {
        let own = limits.connections.div_ceil(8).min(OWN);
        let most_of_all = limits.connections.saturating_sub(own).max(1);
        Self { most: limits.connections_per_address, most_of_all, now: Mutex::default() }
    }

    /// Counts one more connection of an address; `None` if a limit is reached. Connections of this machine are not
    /// counted.
    fn count(self: &Arc<Self>, address: IpAddr) -> Option<Option<AddressPermit>> {
        if address.is_loopback() {
            return Some(None);
        }
        let address = network(address);
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let Counts { of, all } = &mut *now;
        if *all >= self.most_of_all || of.get(&address).is_some_and(|count| *count >= self.most) {
            return None;
        }
        *all += 1;
        *of.entry(address).or_default() += 1;
        Some(Some(AddressPermit { all: self.clone(), address }))
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut now = self.all.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.all -= 1;
        if let Some(count) = now.of.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                now.of.remove(&self.address);
            }
        }
    }
}

/// The unit by which connections are counted. The holder of an IPv6 address usually has the whole /64.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        v4 => v4,
    }
}

/// The signals that end a process: SIGTERM and SIGINT.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Installs the handlers before it returns.
    ///
    /// # Errors
    ///
    /// Returns an error when the system does not let the process install the handlers.
    pub fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next signal. A signal that arrives while no task waits is not lost.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The signals that a host handles: SIGTERM, SIGINT and SIGHUP.
pub struct Signals {
    stop: StopSignals,
    hangup: Signal,
    /// Whether the process has a terminal, and must end with it.
    has_terminal: bool,
}

impl Signals {
    /// Installs the handlers before it returns.
    ///
    /// # Errors
    ///
    /// Returns an error when the system does not let the process install the handlers.
    pub fn new() -> io::Result<Self> {
        // This must be read before a handler is installed. Under `nohup` the process outlives its terminal.
        let has_terminal = is_on_terminal() && !ignores_hangups();
        Ok(Self { stop: StopSignals::new()?, hangup: signal(SignalKind::hangup())?, has_terminal })
    }

    /// Ready when the process must end: on SIGTERM, on SIGINT, or on SIGHUP after its terminal is gone. Any other
    /// SIGHUP notifies `hangup`.
    pub async fn ended(&mut self, hangup: &Notify) {
        loop {
            tokio::select! {
                () = self.stop.next() => return,
                _ = self.hangup.recv() => {
                    if self.has_terminal && !is_on_terminal() {
                        return;
                    }
                    hangup.notify_one();
                }
            }
        }
    }
}

/// Whether the process has a controlling terminal. A closed terminal no longer controls it.
fn is_on_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Whether the process was started with SIGHUP ignored, as by `nohup`. This is known on Linux only.
fn ignores_hangups() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The bit of signal N is N - 1; SIGHUP is 1.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_elsewhere_has_so_many_connections_and_no_more_and_this_machine_as_many_as_it_likes() {
        let limits = Limits { connections: 100, connections_per_address: 2, ..Limits::default() };
        let all = Arc::new(AddressLimits::new(&limits));
        let count = |address: &str| all.count(address.parse().unwrap());
        let first = count("192.0.2.1").unwrap();
        let _second = count("192.0.2.1").unwrap();
        assert!(count("192.0.2.1").is_none());
        assert!(count("192.0.2.2").is_some());
        drop(first);
        assert!(count("192.0.2.1").is_some());

        let _of_one_network = [count("2001:db8::1").unwrap(), count("2001:db8::2").unwrap()];
        assert!(count("2001:db8::3").is_none());
        assert!(count("2001:db8:0:1::3").is_some());

        let _own: Vec<_> = (0..9).map(|_| count("127.0.0.1").unwrap()).collect();
        drop(_of_one_network);
        assert!(count("2001:db8::3").is_some());
    }

    #[test]
    fn all_elsewhere_together_leave_some_connections_to_this_machine() {
        let limits = Limits { connections: 8, connections_per_address: 100, ..Limits::default() };
        let all = Arc::new(AddressLimits::new(&limits));
        let count = |n: u8| all.count(IpAddr::from([192, 0, 2, n]));
        let mut elsewhere: Vec<_> = (0..7).map(|n| count(n).unwrap()).collect();
        assert!(count(7).is_none());
        assert!(all.count(IpAddr::from([127, 0, 0, 1])).is_some());
        elsewhere.pop();
        assert!(count(7).is_some());
    }
}
