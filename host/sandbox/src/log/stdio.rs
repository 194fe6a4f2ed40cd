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
    excerpt: Arc<Mutex<Excerpt>>,
}

/// The first and the last lines of a stream: some languages say first what went wrong, and then where; others last.
#[derive(Default)]
struct Excerpt {
    first: Vec<String>,
    last: VecDeque<String>,
    last_bytes: usize,
    /// The lines before the last.
    before: usize,
}

/// The lines of a stream's beginning that are kept, and the bytes of each.
const FIRST_LINES: usize = 2;
const FIRST_BYTES: usize = 256;
/// The lines of a stream's end that are kept, and their bytes together.
const LAST_LINES: usize = 8;
const LAST_BYTES: usize = 1024;

impl Excerpt {
    fn push(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        let within = |most| line.get(..line.floor_char_boundary(most)).unwrap_or_default().to_owned();
        if self.first.len() < FIRST_LINES {
            self.first.push(within(FIRST_BYTES));
        }
        let last = within(LAST_BYTES);
        self.last_bytes += last.len();
        self.last.push_back(last);
        while self.last.len() > LAST_LINES || self.last_bytes > LAST_BYTES {
            self.last_bytes -= self.last.pop_front().map_or(0, |line| line.len());
            self.before += 1;
        }
    }

    fn quoted(&self) -> Option<String> {
        let lines = |lines: Vec<&str>| format!("{:?}", lines.join("\n"));
        let last = lines(self.last.iter().map(String::as_str).collect());
        let first: Vec<&str> = self.first.iter().take(self.before).map(String::as_str).collect();
        match (self.last.is_empty(), first.is_empty()) {
            (true, _) => None,
            (false, true) => Some(format!("ended with {last}")),
            (false, false) => Some(format!("began with {} and ended with {last}", lines(first))),
        }
    }
}

impl Lines {
    pub(crate) fn new(name: &'static str, sink: LogSink) -> Self {
        Self { name, sink, part: Arc::default(), excerpt: Arc::default() }
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
        self.excerpt.lock().unwrap_or_else(PoisonError::into_inner).push(line);
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

    /// The first two and the last eight lines that are not empty, up to 1.5 KiB, quoted as the end of a sentence; none
    /// if there is no such line. An unfinished line is written first.
    pub(crate) fn quoted(&self) -> Option<String> {
        self.finish();
        self.excerpt.lock().unwrap_or_else(PoisonError::into_inner).quoted()
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
