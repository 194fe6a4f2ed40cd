//! A connection whose client has to take what it is sent.
//!
//! An answer that nobody takes holds memory for as long as its connection lives. The system ends connections whose
//! other end is gone; one that takes a byte now and then lives for ever. Here an answer has to move: 64 KiB, or what
//! is left of it, in each span of patience.

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

/// How long an answer under way may take once the host is to stop.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(100);
/// How many bytes have to move.
pub(crate) const PIECE: u32 = guild_auth::LARGE as u32;

/// A connection of a client: encrypted, or not, or of this machine.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Has the connection reset once it is closed: what the system still holds for it is given back, too, in place of being
    /// offered on.
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
    /// The system holds nothing for a socket that is closed.
    fn reset(&self) {}
}

/// A connection that is ended where its client does not take what it is sent.
pub(crate) struct Patient<S> {
    stream: S,
    patience: Duration,
    /// Since the client has not taken all that there is: when it must have taken more, and how much it has meanwhile.
    waiting: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<S: Transport> Patient<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, waiting: None }
    }

    /// What a write comes to: one that would block may do so only as long as patience lasts.
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
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the client does not take its answer"))
    }
}

impl<S: Transport> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: Transport> AsyncWrite for Patient<S> {
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

    /// Ready when all that was written is with the system: hyper asks once it has nothing left to write.
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
