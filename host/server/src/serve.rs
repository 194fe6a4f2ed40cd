//! `guild serve`: the way from an address to a host that answers there.

use std::{io, net::SocketAddr, path::PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    config::{Config, Runtime},
    host::{Host, HostOptions, OpenError, Target},
    http::Service,
    listen::{self, BindError, Bound},
};

/// What `guild serve` was asked for.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// `guild.toml`.
    pub config: Config,
    /// Whose jobs to keep.
    pub target: Target,
    /// `--port`, where it is not the configuration's.
    pub port: Option<u16>,
    /// `--sources`.
    pub sources: Vec<PathBuf>,
    /// `--agent`.
    pub agent: Option<Runtime>,
}

/// Why the host does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be had; a port that is taken is told apart.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The members cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The process cannot be told to stop.
    #[error("no signal handlers: {0}")]
    Signals(#[from] io::Error),
}

/// The port where neither `--port` nor `guild.toml` names one.
pub const DEFAULT_PORT: u16 = 7433;

/// Serves until SIGTERM or SIGINT. `ready` is told the address once clients can connect.
///
/// The address is bound first, so that a port that is taken is known at once, and listened on last, when every member
/// answers: a client that can connect is never told to come back.
///
/// # Errors
/// See [`ServeError`].
pub async fn serve(options: ServeOptions, ready: impl FnOnce(SocketAddr, &Host)) -> Result<(), ServeError> {
    let ServeOptions { config, target, port, sources, agent } = options;
    let stop = listen::stop_signal()?;
    more_descriptors();
    let address = SocketAddr::new(config.bind, port.or(config.port).unwrap_or(DEFAULT_PORT));
    let bound = Bound::bind(address)?;
    let address = bound.address();
    let host = Host::open(HostOptions { config, target, sources, agent }, Some(address)).await?;
    let listener = bound.listen(host.limits())?;
    ready(address, &host);
    listen::serve(listener, Service::new(host.clone()), host.limits(), stop).await;
    Ok(())
}

/// Takes as many file descriptors as the system lets this process have: thousands of sessions have a connection each.
fn more_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(e) = setrlimit(Resource::Nofile, most) {
        tracing::warn!("the limit of file descriptors stays at {:?}: {e}", limit.current);
    }
}
