//! Streams files: data that a component writes is bounded before it is stored, and data that is read ahead for it is
//! counted.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    sync::Arc,
};

use bytes::Bytes;
use guild_jobs::files::quota::Room;
use rustix::io::Errno;
use tokio::task::JoinHandle;
use wasmtime_wasi::{
    async_trait,
    p2::{DynInputStream, InputStream, OutputStream, Pollable, StreamError, StreamResult},
};

use super::artifacts::Artifacts;
use crate::usage::{Memory, OpenFilePermit};

/// The most bytes of one write, and the bytes that are read ahead.
pub(crate) const BUFFER: usize = 64 * 1024;

/// The host's resources of a stream, until it is dropped.
pub(crate) struct StreamReservation {
    pub(crate) _file: OpenFilePermit,
    pub(crate) _memory: Memory,
}

/// Writes to a file below `/job/artifacts`: one write at a time, wholly or not at all.
pub(crate) struct Writer {
    artifacts: Arc<Artifacts>,
    file: Arc<File>,
    /// The offset of the next write; `None` is the file's end, for a stream that appends.
    at: Option<u64>,
    state: State,
    _reservation: StreamReservation,
}

enum State {
    Ready,
    Writing(JoinHandle<io::Result<u64>>),
    Failed(io::Error),
    Closed,
}

impl Writer {
    pub(crate) fn new(
        artifacts: Arc<Artifacts>,
        file: Arc<File>,
        at: Option<u64>,
        reservation: StreamReservation,
    ) -> Self {
        Self { artifacts, file, at, state: State::Ready, _reservation: reservation }
    }

    /// Reports a failure once; afterwards the stream is closed.
    fn check(&mut self) -> StreamResult<()> {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Failed(error) => Err(StreamError::LastOperationFailed(error.into())),
            State::Closed => Err(StreamError::Closed),
            open => {
                self.state = open;
                Ok(())
            }
        }
    }
}

/// Writes all bytes, or none if they do not fit. Returns the offset behind them.
pub(crate) async fn write_at(
    artifacts: Arc<Artifacts>,
    file: Arc<File>,
    bytes: Bytes,
    at: Option<u64>,
) -> io::Result<u64> {
    let write = move |room: &mut Room<'_>| {
        let at = match at {
            Some(at) => at,
            None => file.metadata()?.size(),
        };
        let end = at.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?;
        if !bytes.is_empty() {
            room.grow(&file, end)?;
            file.write_all_at(&bytes, at)?;
        }
        Ok(end)
    };
    artifacts.change(write).await
}

#[async_trait]
impl Pollable for Writer {
    async fn ready(&mut self) {
        if let State::Writing(task) = &mut self.state {
            let written = task.await.unwrap_or_else(|e| Err(io::Error::other(e)));
            self.state = match written {
                Ok(end) => {
                    self.at = self.at.map(|_| end);
                    State::Ready
                }
                Err(error) => State::Failed(error),
            };
        }
    }
}

#[async_trait]
impl OutputStream for Writer {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.check()?;
        if bytes.len() > BUFFER || matches!(self.state, State::Writing(_)) {
            return Err(StreamError::trap("a write beyond what `check-write` permits"));
        }
        if !bytes.is_empty() {
            let (artifacts, file, at) = (self.artifacts.clone(), self.file.clone(), self.at);
            self.state = State::Writing(tokio::spawn(write_at(artifacts, file, bytes, at)));
        }
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.check()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.check()?;
        Ok(if matches!(self.state, State::Writing(_)) { 0 } else { BUFFER })
    }

    async fn cancel(&mut self) {
        self.ready().await;
        self.state = State::Closed;
    }
}

/// A stream that reads a file, and its reservation.
pub(crate) struct Reader {
    pub(super) inner: DynInputStream,
    pub(super) _reservation: StreamReservation,
}

#[async_trait]
impl Pollable for Reader {
    async fn ready(&mut self) {
        self.inner.ready().await;
    }
}

#[async_trait]
impl InputStream for Reader {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.inner.read(size)
    }

    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.inner.blocking_read(size).await
    }

    async fn cancel(&mut self) {
        self.inner.cancel().await;
    }
}
