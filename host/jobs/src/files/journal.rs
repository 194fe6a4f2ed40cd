//! Appends lines to a job's `log.txt` and `transcript.jsonl`, up to a limit, until the job ends.

use std::io::{self, BufRead as _, BufReader, Write as _};

use cap_std::fs::Dir;
use guild_fs::{
    durable::{append, ends_with_newline},
    fingerprint::Fingerprint,
};

/// One of the two files.
#[derive(Debug)]
pub(crate) struct Journal {
    /// The path of the file in `jobs/`.
    path: String,
    limit: u64,
    state: State,
    /// The number of lines of the file.
    lines: u64,
}

/// The beginning of a line of a file, as the number of lines and bytes before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Lines.
    pub lines: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The reason that a journal drops further lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The journal reached its limit of so many bytes.
    Full(u64),
    /// A line could not be written.
    Unwritten,
}

#[derive(Debug)]
enum State {
    /// Lines are written. The file has so many bytes.
    Open(u64),
    /// A line could not be written behind so many bytes: further lines are dropped, which the file has to tell.
    Broken(u64),
    /// Over the limit or closed: lines are dropped.
    Closed,
}

impl Journal {
    pub(crate) fn new(path: String, limit: u64) -> Self {
        Self { path, limit, state: State::Open(0), lines: 0 }
    }

    /// Continues an existing file. A line that a crash cut is ended, and stays unreadable.
    pub(crate) fn continue_after(&mut self, jobs: &Dir) -> io::Result<()> {
        let Some(file) = Fingerprint::at(jobs, &self.path)? else { return Ok(()) };
        let mut size = file.size();
        if size > 0 && !ends_with_newline(jobs, &self.path, size)? {
            append(jobs, &self.path)?.write_all(b"\n")?;
            size += 1;
        }
        self.lines = count_lines(jobs, &self.path)?;
        self.state = if size < self.limit { State::Open(size) } else { State::Closed };
        Ok(())
    }

    /// Appends a line, which must not contain a newline, and returns what was written. The first line that would exceed
    /// the limit, and the first after one that could not be written, is replaced by `last`, and nothing follows that.
    pub(crate) fn append(&mut self, jobs: &Dir, line: String, last: impl FnOnce(End) -> String) -> Option<String> {
        let (line, next) = match self.state {
            State::Open(written) => {
                let size = written.saturating_add(line.len() as u64 + 1);
                if size > self.limit { (last(End::Full(self.limit)), State::Closed) } else { (line, State::Open(size)) }
            }
            // The file has to tell that lines are missing. If that fails too, it is tried again with the next line.
            State::Broken(_) => (format!("\n{}", last(End::Unwritten)), State::Closed),
            State::Closed => return None,
        };
        let line = line + "\n";
        // The file is opened for each line, so that ten thousand running jobs keep no descriptors.
        match append(jobs, &self.path).and_then(|mut file| file.write_all(line.as_bytes())) {
            Ok(()) => {
                self.lines += 1 + u64::from(matches!(self.state, State::Broken(_)));
                self.state = next;
                Some(line)
            }
            Err(e) => {
                if let State::Open(written) = self.state {
                    tracing::warn!(file = self.path, "a line could not be written, so further lines are dropped: {e}");
                    self.state = State::Broken(written);
                }
                None
            }
        }
    }

    /// The beginning of the next line, or the file's end if there will be none.
    pub(crate) fn end(&self, jobs: &Dir) -> Position {
        let bytes = match self.state {
            State::Open(bytes) | State::Broken(bytes) => bytes,
            State::Closed => Fingerprint::at(jobs, &self.path).ok().flatten().map_or(0, |file| file.size()),
        };
        Position { lines: self.lines, bytes }
    }

    /// Makes the written lines survive a power cut.
    pub(crate) fn sync(&self, jobs: &Dir) -> io::Result<()> {
        append(jobs, &self.path)?.sync_data()
    }

    /// Whether all further lines are dropped.
    pub(crate) fn drops_lines(&self) -> bool {
        !matches!(self.state, State::Open(_))
    }

    /// Drops all further lines.
    pub(crate) fn close(&mut self) {
        self.state = State::Closed;
    }
}

/// The number of lines of a file.
fn count_lines(jobs: &Dir, path: &str) -> io::Result<u64> {
    let mut file = BufReader::with_capacity(64 * 1024, jobs.open(path)?);
    let mut lines = 0;
    loop {
        let read = file.fill_buf()?;
        if read.is_empty() {
            return Ok(lines);
        }
        lines += read.iter().filter(|byte| **byte == b'\n').count() as u64;
        let read = read.len();
        file.consume(read);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use cap_std::ambient_authority;

    use super::*;

    #[test]
    fn behind_a_line_that_could_not_be_written_the_file_says_so_and_ends() {
        let dir = tempfile::tempdir().unwrap();
        let (path, aside) = (dir.path().join("log"), dir.path().join("aside"));
        let jobs = Dir::open_ambient_dir(dir.path(), ambient_authority()).unwrap();
        let mut journal = Journal::new("log".to_owned(), 1000);
        let mut append = |line: &str| {
            journal.append(&jobs, line.to_owned(), |end| format!("{end:?}"));
            (journal.drops_lines(), journal.end(&jobs))
        };
        assert_eq!(append("one"), (false, Position { lines: 1, bytes: 4 }));
        fs::rename(&path, &aside).unwrap();
        fs::create_dir(&path).unwrap();
        // Readers do not wait for lines that are dropped.
        assert_eq!(append("two"), (true, Position { lines: 1, bytes: 4 }));
        assert_eq!(append("three"), (true, Position { lines: 1, bytes: 4 }));
        fs::remove_dir(&path).unwrap();
        fs::rename(&aside, &path).unwrap();
        // Half of a line may be in the file.
        fs::write(&path, "one\ntw").unwrap();
        assert_eq!(append("four"), (true, Position { lines: 3, bytes: 17 }));
        append("five");
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntw\nUnwritten\n");
    }
}
