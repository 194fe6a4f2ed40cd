//! Ends connections whose clients do not read the data that they are sent.
//!
//! An unread response holds memory for as long as its connection lives. The system ends connections whose other end is
//! gone, but a connection that reads a byte now and then lives for ever. Here a client must read 64 KiB of a response,
//! or its rest, in each span of patience.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
    time::{Sleep, sleep},
};
use tokio_rustls::server::TlsStream;

/// The time for a running response after the host was told to stop.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_millis(100);
/// The number of bytes that a client must read in each span of patience.
pub(crate) const PIECE: u32 = guild_auth::LARGE as u32;

/// A client's connection: encrypted, plain, or local.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Makes the connection reset when it is closed, so that the system frees its buffers instead of sending them.
    fn reset(&self);
}

impl Transport for TcpStream {
    fn reset(&self) {
        let _ = self.set_zero_linger();
    }
}

impl Transport for TlsStream<TcpStream> {
    fn reset(&self) {
        self.get_ref().0.reset();
    }
}

impl Transport for UnixStream {
    /// The system buffers no data for a closed Unix socket.
    fn reset(&self) {}
}

/// A connection that ends if its client does not read.
pub(crate) struct TimedConnection<S> {
    stream: S,
    patience: Duration,
    /// The deadline for the next piece, and the bytes read so far. Set while the client has unread data.
    waiting: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<S: Transport> TimedConnection<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, waiting: None }
    }

    /// Handles the result of a write. A blocked write may wait only until the deadline.
    fn written(&mut self, written: Poll<io::Result<usize>>, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match (written, &mut self.waiting) {
            (Poll::Ready(Ok(count)), Some((_, moved))) => {
                *moved = moved.saturating_add(count);
                if *moved >= PIECE as usize {
                    self.waiting = None;
                }
                Poll::Ready(Ok(count))
            }
            (Poll::Ready(result), _) => Poll::Ready(result),
            (Poll::Pending, _) => self.wait(context).map(Err),
        }
    }

    fn wait(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let patience = self.patience;
        let (until, _) = self.waiting.get_or_insert_with(|| (Box::pin(sleep(patience)), 0));
        ready!(until.as_mut().poll(context));
        self.stream.reset();
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answer"))
    }
}

impl<S: Transport> AsyncRead for TimedConnection<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: Transport> AsyncWrite for TimedConnection<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.written(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Ready when the system has all data: hyper flushes once it has nothing left to write.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(result) => {
                self.waiting = None;
                Poll::Ready(result)
            }
            Poll::Pending => self.wait(context).map(Err),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(context) {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending => self.wait(context).map(Err),
        }
    }
}
