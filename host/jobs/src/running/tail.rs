//! Reads the transcript of a running job as it grows.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom},
    sync::Arc,
};

use guild_fs::durable::open;
use guild_session::transcript::Line;
use tokio::{sync::watch, task::spawn_blocking};

use super::RunningJob;
use crate::files::{journal::Position, record::TRANSCRIPT};

/// Bytes that are read at once. A longer line is read as a whole.
const CHUNK: u64 = 64 * 1024;

/// Reads the transcript of a job from some line on, as it grows, and ends with the job's work here. The file is the queue: a slow
/// reader delays nobody, and takes no memory.
pub struct Tail {
    job: Arc<RunningJob>,
    at: Position,
    end: watch::Receiver<Position>,
}

impl Tail {
    /// Reads from `at` on, at which a line begins.
    pub fn of(job: Arc<RunningJob>, at: Position) -> Self {
        Self { end: job.written(), job, at }
    }

    /// Whether all written lines were read.
    pub fn is_at_end(&self) -> bool {
        self.end.borrow().bytes <= self.at.bytes
    }

    /// The next lines, each with its number, from 1: at least one, or none at the end. Lines that cannot be parsed are
    /// left out.
    ///
    /// # Errors
    ///
    /// Returns an error when the transcript cannot be read.
    pub async fn next(&mut self) -> io::Result<Vec<(u64, Line)>> {
        loop {
            let has_ended = self.job.is_over();
            if self.end.borrow_and_update().bytes > self.at.bytes {
                let (job, at) = (self.job.clone(), self.at);
                let read = spawn_blocking(move || read(&job, at)).await;
                let (lines, at) = read.map_err(io::Error::other)??;
                let moved = at != self.at;
                self.at = at;
                if !lines.is_empty() {
                    return Ok(lines);
                }
                if moved {
                    continue;
                }
            }
            if has_ended || self.end.changed().await.is_err() {
                return Ok(Vec::new());
            }
        }
    }
}

/// The whole lines from a position on, up to about [`CHUNK`], and the position of the next line.
fn read(job: &RunningJob, mut at: Position) -> io::Result<(Vec<(u64, Line)>, Position)> {
    let Some((file, _)) = open(&job.dir()?, TRANSCRIPT)? else { return Ok((Vec::new(), at)) };
    let mut file = BufReader::with_capacity(usize::try_from(CHUNK).unwrap_or(usize::MAX), file);
    file.seek(SeekFrom::Start(at.bytes))?;
    let (mut lines, mut line, from) = (Vec::new(), Vec::new(), at.bytes);
    while at.bytes - from < CHUNK {
        line.clear();
        // This is more than any line has, since limits bound each entry far below.
        (&mut file).take(CHUNK * 1024).read_until(b'\n', &mut line)?;
        if line.pop_if(|byte| *byte == b'\n').is_none() {
            break;
        }
        at = Position { lines: at.lines + 1, bytes: at.bytes + line.len() as u64 + 1 };
        lines.extend(serde_json::from_slice(&line).ok().map(|line| (at.lines, line)));
    }
    Ok((lines, at))
}
