//! What a job wrote down, read as it grows, beside whoever owns the job.

use std::io::{self, BufRead as _, BufReader};

use cap_std::fs::{Dir, File};
use guild_contract::{JobId, JobStatus, Limits};

use crate::{
    durable::{if_there, open, open_dir},
    record::{self, JOBS, LOG, TRANSCRIPT},
};

/// No transcript, and no log, has a longer line: each entry is bounded by limits far below.
const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;

/// Reads one job's transcript, and its log, from their begin.
pub struct Follow {
    jobs: Dir,
    id: JobId,
    dir: Dir,
    transcript: Tail,
    log: Tail,
}

impl Follow {
    /// A job of a member, whose directory `member` is; none where it has no such job.
    ///
    /// # Errors
    /// Where directories cannot be opened; a symlink is not followed.
    pub fn open(member: &Dir, id: &JobId) -> io::Result<Option<Self>> {
        let Some(jobs) = if_there(open_dir(member, JOBS))? else { return Ok(None) };
        let Some(dir) = if_there(open_dir(&jobs, id.as_str()))? else { return Ok(None) };
        Ok(Some(Self { jobs, id: id.clone(), dir, transcript: Tail::of(TRANSCRIPT), log: Tail::of(LOG) }))
    }

    /// Whether the job is running, by its record.
    ///
    /// # Errors
    /// Where there is none, as after the job was deleted, or it cannot be read.
    pub fn is_running(&self, limits: &Limits) -> io::Result<bool> {
        record::read_meta(&self.jobs, &self.id, limits).map(|(meta, _)| meta.status == JobStatus::Running)
    }

    /// The error that ended the job, by its record; none where none did.
    ///
    /// # Errors
    /// As [`Self::is_running`].
    pub fn error(&self, limits: &Limits) -> io::Result<Option<String>> {
        record::read_meta(&self.jobs, &self.id, limits).map(|(meta, _)| meta.error)
    }

    /// The next whole line of the transcript, without its end. None where there is none yet: a line that is being written is
    /// given when it is whole.
    ///
    /// # Errors
    /// Where the transcript cannot be read.
    pub fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.transcript.next(&self.dir)
    }

    /// The next whole line of `log.txt`, as [`Self::next_line`]: a time, a space, and what was logged.
    ///
    /// # Errors
    /// Where the log cannot be read.
    pub fn next_log(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.log.next(&self.dir)
    }
}

/// A file that grows line by line.
struct Tail {
    name: &'static str,
    /// The file, once there is one.
    file: Option<BufReader<File>>,
    /// The start of a line that is being written.
    begun: Vec<u8>,
}

impl Tail {
    fn of(name: &'static str) -> Self {
        Self { name, file: None, begun: Vec::new() }
    }

    fn next(&mut self, dir: &Dir) -> io::Result<Option<Vec<u8>>> {
        let file = match &mut self.file {
            Some(file) => file,
            None => match open(dir, self.name)? {
                Some((file, _)) => self.file.insert(BufReader::new(file)),
                None => return Ok(None),
            },
        };
        loop {
            let read = file.fill_buf()?;
            let (bytes, is_whole) = match read.iter().position(|byte| *byte == b'\n') {
                Some(end) => (read.split_at(end).0, true),
                None => (read, false),
            };
            let used = bytes.len() + usize::from(is_whole);
            self.begun.extend_from_slice(bytes);
            file.consume(used);
            if is_whole {
                return Ok(Some(std::mem::take(&mut self.begun)));
            }
            if self.begun.len() > MAX_LINE_BYTES {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a line of it has no end"));
            }
            if used == 0 {
                return Ok(None);
            }
        }
    }
}
