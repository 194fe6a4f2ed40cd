//! A proxy of TCP connections on a loopback address, whose mode a test sets while it runs.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::sleep,
};

/// Bytes that are forwarded at once.
const BUFFER: usize = 64 * 1024;

/// The treatment of the bytes of a [`Proxy`]'s connections, present and new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// All bytes are forwarded.
    #[default]
    Pass,
    /// The bytes of these directions are not forwarded before the mode changes, and neither is the end of a connection,
    /// as if the packets were lost.
    BlackHole {
        /// The direction from clients to the server.
        to_server: bool,
        /// The direction from the server to clients.
        to_client: bool,
    },
    /// All bytes are forwarded after this time.
    Delay(Duration),
}

#[derive(Clone, Copy)]
enum Direction {
    ToServer,
    ToClient,
}

impl Mode {
    fn forwards(self, direction: Direction) -> bool {
        match (self, direction) {
            (Self::BlackHole { to_server, .. }, Direction::ToServer) => !to_server,
            (Self::BlackHole { to_client, .. }, Direction::ToClient) => !to_client,
            _ => true,
        }
    }
}

/// A proxy that runs until it is dropped.
pub struct Proxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    resets: watch::Sender<u64>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy of the server at `target`, in [`Mode::Pass`], on the runtime of the caller.
    ///
    /// # Errors
    ///
    /// Returns an error when it cannot listen on a loopback address.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (mode, resets) = (watch::Sender::default(), watch::Sender::default());
        let (modes, reset) = (mode.subscribe(), resets.subscribe());
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A connection that does not end with the proxy ends with the test's runtime.
                tokio::spawn(connect(client, target, modes.clone(), reset.clone()));
            }
        });
        Ok(Self { address, mode, resets, accepting })
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the mode of all connections, present and new.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Resets the present connections: both ends are told that the other one broke off.
    pub fn reset(&self) {
        self.resets.send_modify(|resets| *resets += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.reset();
    }
}

/// Forwards a connection until an end of it closes or it is reset.
async fn connect(
    mut client: TcpStream,
    target: SocketAddr,
    mode: watch::Receiver<Mode>,
    mut reset: watch::Receiver<u64>,
) {
    reset.mark_unchanged();
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    // Each write of an end is sent as it is.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let is_reset = {
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        tokio::select! {
            _ = forward(from_client, to_server, mode.clone(), Direction::ToServer) => false,
            _ = forward(from_server, to_client, mode, Direction::ToClient) => false,
            _ = reset.changed() => true,
        }
    };
    if is_reset {
        // A connection that is closed so is reset.
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
}

/// Forwards one direction of a connection until its end.
async fn forward(
    mut from: tokio::net::tcp::ReadHalf<'_>,
    mut to: tokio::net::tcp::WriteHalf<'_>,
    mut mode: watch::Receiver<Mode>,
    direction: Direction,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await?;
        let present = mode.wait_for(|mode| mode.forwards(direction)).await.map(|mode| *mode);
        if let Ok(Mode::Delay(time)) = present {
            sleep(time).await;
        }
        match buffer.get(..count) {
            Some(bytes) if !bytes.is_empty() => to.write_all(bytes).await?,
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    const MOMENT: Duration = Duration::from_millis(100);

    /// A server that answers with what it is sent, and a connection to it through a proxy.
    async fn echo() -> (Proxy, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let target = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        let proxy = Proxy::start(target).await.unwrap();
        let stream = TcpStream::connect(proxy.address()).await.unwrap();
        (proxy, stream)
    }

    async fn ask(stream: &mut TcpStream, text: &str) -> String {
        stream.write_all(text.as_bytes()).await.unwrap();
        answer(stream, text.len()).await
    }

    async fn answer(stream: &mut TcpStream, bytes: usize) -> String {
        let mut answer = vec![0; bytes];
        stream.read_exact(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn a_black_hole_keeps_a_direction_back_until_the_mode_changes() {
        let (proxy, mut stream) = echo().await;
        assert_eq!(ask(&mut stream, "one").await, "one");
        for (to_server, to_client) in [(true, false), (false, true), (true, true)] {
            proxy.set(Mode::BlackHole { to_server, to_client });
            stream.write_all(b"two").await.unwrap();
            assert!(timeout(MOMENT, answer(&mut stream, 1)).await.is_err());
            proxy.set(Mode::Pass);
            assert_eq!(answer(&mut stream, 3).await, "two");
        }
    }

    #[tokio::test]
    async fn a_delay_and_a_reset_reach_connections_that_are_there() {
        let (proxy, mut stream) = echo().await;
        proxy.set(Mode::Delay(MOMENT));
        let begun = Instant::now();
        assert_eq!(ask(&mut stream, "slow").await, "slow");
        assert!(begun.elapsed() >= 2 * MOMENT);
        proxy.reset();
        let end = stream.read(&mut [0]).await;
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        let mut again = TcpStream::connect(proxy.address()).await.unwrap();
        proxy.set(Mode::Pass);
        assert_eq!(ask(&mut again, "again").await, "again");
    }
}
