//! Implements `guild serve`: binds the address, opens the members, and serves them.

pub(crate) mod service_manager;
mod webhooks;

use std::{
    future::pending,
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, OnceLock},
    thread,
};

use guild_auth::{Ingress, IngressError, audit_log::Event, private::PrivateHost};
use guild_config::{Config, Runtime};
use guild_roster::{
    OpenError,
    host::{Host, HostOptions, Target, reload::Reloads},
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::oneshot;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use self::service_manager::PassedSockets;
use crate::{
    hall::{Api, socket::Socket},
    http::Service,
    listen::{self, BindError, Bound, Signals},
};

/// The options of `guild serve`.
#[derive(Debug)]
pub struct ServeOptions {
    /// The configuration from `guild.toml`.
    pub config: Config,
    /// The served members, which also determine the jobs that the host keeps.
    pub target: Target,
    /// The value of `--port`, if it overrides the configuration.
    pub port: Option<u16>,
    /// The sockets of the service manager, which go before all configured addresses.
    pub passed: PassedSockets,
    /// The directories of `--sources`.
    pub sources: Vec<PathBuf>,
    /// The runtime of `--agent`.
    pub agent: Option<Runtime>,
    /// The home of the hall whose commissions the members carry out, if there is one.
    pub hall: Option<PathBuf>,
    /// Reloads `guild.toml`.
    pub reloads: Reloads,
    /// Whether the host is private: each request needs its token, and it ends once stdin has ended and no client uses
    /// it.
    pub private: bool,
}

/// The reason that the host does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be bound. A port in use has an error of its own.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The rules for callers cannot be applied.
    #[error(transparent)]
    Ingress(#[from] IngressError),
    /// The members cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The other hosts of the cluster have taken its jobs.
    #[error("the other hosts of the cluster have taken this host's jobs: {0}; start it again")]
    Died(String),
    /// The host ended before it served.
    #[error("{0}")]
    Ended(#[from] io::Error),
}

/// The port if neither `--port` nor `guild.toml` sets one.
pub const DEFAULT_PORT: u16 = 7433;

/// Serves until SIGTERM or SIGINT, or until a private host is unused, and reloads `guild.toml` at each SIGHUP:
/// `signals` has been installed since the process began. `ready` is called with the address, as
/// `http://127.0.0.1:7433`, once clients can connect.
///
/// The address is bound first, so that a port in use is reported at once, and listened on last, when every member is
/// open: a client that can connect never has to retry.
///
/// # Errors
///
/// See [`ServeError`].
pub async fn serve(
    options: ServeOptions,
    mut signals: Signals,
    ready: impl FnOnce(&str, &Host),
) -> Result<(), ServeError> {
    guild_telemetry::begin();
    let ServeOptions { config, target, port, passed, sources, agent, hall, reloads, private } = options;
    more_descriptors();
    let address = SocketAddr::new(config.auth.bind, port.or(config.port).unwrap_or(DEFAULT_PORT));
    let bound = match passed.port {
        Some(listener) => Bound::passed(listener, config.auth.bind)?,
        None => Bound::bind(address)?,
    };
    let address = bound.address();
    // The file exists before any `.owner` names the address.
    let private = if private { Some(Arc::new(PrivateHost::create(address.port())?)) } else { None };
    let _token = private.as_ref().map(PrivateHost::guard);
    let ingress = Ingress::open(&config, address)?;
    let ingress = Arc::new(match &private {
        Some(private) => ingress.with_private(private.clone()),
        None => ingress,
    });
    let has_passed_socket = passed.hall.is_some();
    if has_passed_socket && hall.is_none() {
        let why = "the service manager passes a Unix socket, which only a host with --hall serves";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why).into());
    }
    let options = HostOptions { config, target, sources, agent, hall, has_passed_socket, fakes: None };
    let host = tokio::select! {
        opened = Host::open(options, Some(ingress.clone())) => opened?,
        // A host of a cluster may wait for its servers, or for another host of its name. Others wait for its silence then.
        () = signals.ended(&reloads.asked) => return Ok(()),
    };
    let limits = host.limits();
    let listener = bound.listen(&limits)?;
    let at = format!("{}://{address}", ingress.scheme());
    let tell = |event| ingress.record(&Event { event, detail: Some(at.as_str().into()), ..Event::default() });
    let socket = match host.hall().map(|hall| Socket::open(hall, passed.hall)).transpose() {
        Ok(socket) => socket,
        Err(error) => {
            host.end().await;
            return Err(error.into());
        }
    };
    tell("host-started");
    let _webhooks = AbortOnDropHandle::new(tokio::spawn(webhooks::send(host.events().clone(), Arc::downgrade(&host))));
    ready(&at, &host);
    let status = format!("listening at {at}");
    service_manager::ready(&status);
    let _watchdog = service_manager::watchdog();
    let service = Service::new(host.clone());
    let (stopping, died) = (CancellationToken::new(), OnceLock::new());
    let stop = async {
        tokio::select! {
            () = signals.ended(&reloads.asked) => {}
            () = unused(private) => {}
            why = host.died() => {
                tracing::error!("the host ends, since {why}");
                let _ = died.set(why);
            }
        }
        service_manager::stopping();
        if died.get().is_none() {
            // A second signal does not wait.
            tokio::select! {
                () = host.drain() => {}
                () = signals.ended(&reloads.asked) => {}
            }
        }
    };
    let hall = async {
        if let (Some(socket), Some(api)) = (&socket, Api::of(&host)) {
            socket.serve(&api, &limits, stopping.cancelled()).await;
        }
    };
    let members = async {
        tokio::select! {
            () = listen::serve(listener, service, &limits, stop) => {}
            () = reloads.run(&host, service_manager::reloading, || service_manager::ready(&status)) => {}
        }
        stopping.cancel();
    };
    tokio::join!(hall, members);
    drop(socket);
    host.end().await;
    tell("host-stopped");
    died.into_inner().map_or(Ok(()), |why| Err(ServeError::Died(why)))
}

/// Ready when the process that started a private host has closed stdin, and no client uses the host; never for other
/// hosts.
async fn unused(private: Option<Arc<PrivateHost>>) {
    let Some(private) = private else { return pending().await };
    let (done, is_done) = oneshot::channel::<()>();
    let wait = move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        if let Err(e) = private.wait_until_unused() {
            tracing::error!("the host stops, since it cannot determine whether a client uses it: {e}");
        }
        drop(done);
    };
    // The thread is separate, since the process must be able to end while it waits.
    if let Err(e) = thread::Builder::new().name("clients".to_owned()).spawn(wait) {
        tracing::error!("the host stops, since it cannot wait for its clients: {e}");
    }
    let _ = is_done.await;
}

/// Raises the limit of open files to the system's maximum: thousands of sessions have a connection each, and
/// connections and job files share the limit.
fn more_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(e) = setrlimit(Resource::Nofile, most) {
        let current = limit.current.map_or_else(|| "unchanged".to_owned(), |current| current.to_string());
        tracing::warn!("cannot raise the limit of file descriptors, which is {current}: {e}");
    }
}
