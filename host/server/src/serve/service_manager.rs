//! The service manager, such as systemd: the sockets that it passes, and what the host reports to it.
//!
//! The protocols are `sd_listen_fds(3)` and `sd_notify(3)`. Without a service manager, no socket is passed and reports
//! go nowhere.

use std::{io, net::TcpListener, os::unix::net::UnixListener, time::Duration};

use listenfd::ListenFd;
use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;

/// The listening sockets that the service manager opened for the host. Connections that were made before the host
/// started wait in them, and they stay open while another process takes the place of this one.
#[derive(Debug, Default)]
pub struct PassedSockets {
    pub(crate) port: Option<TcpListener>,
    pub(crate) hall: Option<UnixListener>,
}

impl PassedSockets {
    /// Takes the sockets, each by its kind: TCP is the port, Unix is the hall's.
    ///
    /// Must be called while the process has one thread, since it removes variables from the environment.
    ///
    /// # Errors
    ///
    /// Returns an error when a descriptor is no listening stream socket, or two are of one kind.
    pub fn take() -> io::Result<Self> {
        let (mut passed, mut sockets) = (ListenFd::from_env(), Self::default());
        for index in 0..passed.len() {
            let is_second = match passed.take_unix_listener(index) {
                Ok(hall) => sockets.hall.replace(hall.ok_or(io::ErrorKind::NotFound)?).is_some(),
                Err(_) => {
                    let port = passed.take_tcp_listener(index)?.ok_or(io::ErrorKind::NotFound)?;
                    sockets.port.replace(port).is_some()
                }
            };
            if is_second {
                let why = "the service manager passes two sockets of one kind; a host listens on one TCP socket, and \
                           on one Unix socket for its hall";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
        }
        Ok(sockets)
    }
}

/// Reports that clients can connect, at the start and after a reload.
pub(crate) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that `guild.toml` is being read again; [`ready`] follows.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!("cannot report the reload to the service manager: {error}"),
    }
}

/// Reports that the host ends.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

/// Reports at half of the service manager's interval that the host works; `None` if no reports are expected.
///
/// The task runs on the workers of the runtime, so that the reports end when all of them are blocked.
pub(crate) fn watchdog() -> Option<AbortOnDropHandle<()>> {
    let every = sd_notify::watchdog_enabled()? / 2;
    let mut interval = tokio::time::interval(every.max(Duration::from_millis(1)));
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let task = async move {
        loop {
            interval.tick().await;
            notify(&[NotifyState::Watchdog]);
        }
    };
    Some(AbortOnDropHandle::new(tokio::spawn(task)))
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("cannot report to the service manager at $NOTIFY_SOCKET: {error}");
    }
}
