//! Writes a component's stdout and stderr to the job's log, in bounded lines, never to the host's own terminal.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::{
    async_trait,
    cli::{IsTerminal, StdoutStream},
    p2::{OutputStream, Pollable, StreamResult},
};

use super::{LINE_BYTES, LogSink};

/// One of the two streams, split into lines.
#[derive(Clone)]
pub(crate) struct Lines {
    name: &'static str,
    sink: LogSink,
    part: Arc<Mutex<Vec<u8>>>,
    tail: Arc<Mutex<Tail>>,
}

/// The last lines of a stream.
#[derive(Default)]
struct Tail {
    lines: VecDeque<String>,
    bytes: usize,
}

/// The lines of a stream's end that are kept.
const TAIL_LINES: usize = 8;
const TAIL_BYTES: usize = 1024;

impl Tail {
    fn push(&mut self, line: &str) {
        let line = line.get(..line.floor_char_boundary(TAIL_BYTES)).unwrap_or_default();
        if line.trim().is_empty() {
            return;
        }
        self.bytes += line.len();
        self.lines.push_back(line.to_owned());
        while self.lines.len() > TAIL_LINES || self.bytes > TAIL_BYTES {
            self.bytes -= self.lines.pop_front().map_or(0, |line| line.len());
        }
    }
}

impl Lines {
    pub(crate) fn new(name: &'static str, sink: LogSink) -> Self {
        Self { name, sink, part: Arc::default(), tail: Arc::default() }
    }

    fn push(&self, bytes: &[u8]) {
        let mut part = self.part.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            for chunk in piece.chunks(LINE_BYTES) {
                part.extend_from_slice(chunk);
                if part.ends_with(b"\n") || part.len() >= LINE_BYTES {
                    self.emit(&mut part);
                }
            }
        }
    }

    fn emit(&self, part: &mut Vec<u8>) {
        let line = String::from_utf8_lossy(part);
        let line = line.trim_end_matches(['\n', '\r']);
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        self.sink.line(&format!("{}: {line}", self.name));
        part.clear();
    }

    /// Writes the unfinished line.
    pub(crate) fn finish(&self) {
        let mut part = self.part.lock().unwrap_or_else(PoisonError::into_inner);
        if !part.is_empty() {
            self.emit(&mut part);
        }
    }

    /// The last lines that are not empty: at most 8 of them, and 1 KiB. An unfinished line is written first.
    pub(crate) fn last(&self) -> String {
        self.finish();
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

impl IsTerminal for Lines {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Lines {
    /// Only WASI 0.3 uses this, which is not linked.
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for Lines {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for Lines {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.push(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(64 * 1024)
    }
}
