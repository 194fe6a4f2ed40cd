//! A job's `log.txt` and `transcript.jsonl`: appended to line by line, up to a limit, until the job ends.

use std::io::{self, Write as _};

use cap_std::fs::Dir;
use guild_session::fingerprint::Fingerprint;

use crate::durable::{append, ends_with_newline};

/// One of the two.
#[derive(Debug)]
pub(crate) struct Journal {
    /// The file, from `jobs/`.
    path: String,
    limit: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Lines are taken; so many bytes are written.
    Open(u64),
    /// A line could not be written: what follows is dropped, and the file is to say so.
    Broken,
    /// Over the limit or closed: lines are dropped.
    Closed,
}

impl Journal {
    pub(crate) fn new(path: String, limit: u64) -> Self {
        Self { path, limit, state: State::Open(0) }
    }

    /// Goes on with what is there. A line that a crash cut in two stays one of its own, which nobody can read.
    pub(crate) fn continue_after(&mut self, jobs: &Dir) -> io::Result<()> {
        let Some(file) = Fingerprint::at(jobs, &self.path)? else { return Ok(()) };
        let mut size = file.size();
        if size > 0 && !ends_with_newline(jobs, &self.path, size)? {
            append(jobs, &self.path)?.write_all(b"\n")?;
            size += 1;
        }
        self.state = if size < self.limit { State::Open(size) } else { State::Closed };
        Ok(())
    }

    /// Appends a line, which must not contain a newline. The first one that would exceed the limit is replaced by
    /// `last`, and nothing follows that.
    pub(crate) fn append(&mut self, jobs: &Dir, mut line: String, last: impl FnOnce(u64) -> String) {
        let written = match self.state {
            State::Open(written) => written,
            State::Broken => return self.say_broken(jobs, last),
            State::Closed => return,
        };
        line.push('\n');
        let after = written.saturating_add(line.len() as u64);
        self.state = State::Open(after);
        if after > self.limit {
            line = last(self.limit) + "\n";
            self.state = State::Closed;
        }
        // The file is opened for each line: ten thousand running jobs would not leave a descriptor to others.
        if let Err(e) = append(jobs, &self.path).and_then(|mut file| file.write_all(line.as_bytes())) {
            self.state = State::Broken;
            tracing::warn!(file = self.path, "lines are dropped from here on: {e}");
        }
    }

    /// Whoever reads the file must know that lines are missing. Where that cannot be written either, it is tried again
    /// with the next line.
    fn say_broken(&mut self, jobs: &Dir, last: impl FnOnce(u64) -> String) {
        let line = format!("\n{}\n", last(self.limit));
        if append(jobs, &self.path).and_then(|mut file| file.write_all(line.as_bytes())).is_ok() {
            self.state = State::Closed;
        }
    }

    /// Drops all that follows.
    pub(crate) fn close(&mut self) {
        self.state = State::Closed;
    }
}
