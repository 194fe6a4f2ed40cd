//! Follows the transcript and the log of a job in their files, for a process that need not own the member.

use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};

use cap_std::fs::{Dir, File};
use guild_contract::{JobId, Limits, Meta, rpc::LogPosition};
use guild_fs::durable::{if_there, open, open_dir};

use super::record::{self, JOBS, LOG, TRANSCRIPT};

/// More bytes than any line of a transcript or a log has, since limits bound each entry far below.
const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;

/// Reads one job's transcript and its log, from their start.
pub struct Follow {
    jobs: Dir,
    id: JobId,
    dir: Dir,
    transcript: Tail,
    log: Tail,
}

impl Follow {
    /// A job of the member in the directory `member`; `None` if it has no such job.
    ///
    /// # Errors
    ///
    /// Returns an error when the directories cannot be opened; a symlink is not followed.
    pub fn open(member: &Dir, id: &JobId) -> io::Result<Option<Self>> {
        match if_there(open_dir(member, JOBS))? {
            Some(jobs) => Self::of(jobs, id),
            None => Ok(None),
        }
    }

    /// A job in a directory of jobs.
    pub(crate) fn of(jobs: Dir, id: &JobId) -> io::Result<Option<Self>> {
        let Some(dir) = if_there(open_dir(&jobs, id.as_str()))? else { return Ok(None) };
        Ok(Some(Self { jobs, id: id.clone(), dir, transcript: Tail::of(TRANSCRIPT), log: Tail::of(LOG) }))
    }

    /// Continues after so many bytes of each.
    #[must_use]
    pub fn after(mut self, LogPosition { transcript, log }: LogPosition) -> Self {
        (self.transcript.at, self.log.at) = (transcript, log);
        self
    }

    /// The number of bytes of each that were read.
    pub fn position(&self) -> LogPosition {
        LogPosition { transcript: self.transcript.at, log: self.log.at }
    }

    /// The job's record.
    ///
    /// # Errors
    ///
    /// Returns an error when the record is missing, for example because the job was deleted, or cannot be read.
    pub fn meta(&self, limits: &Limits) -> io::Result<Meta> {
        record::read_meta(&self.jobs, &self.id, limits).map(|(meta, _)| meta)
    }

    /// The next whole line of the transcript, without the newline; `None` if there is none yet.
    ///
    /// # Errors
    ///
    /// Returns an error when the transcript cannot be read.
    pub fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.transcript.next(&self.dir)
    }

    /// The next whole line of `log.txt`, as [`Self::next_line`]: a time, a space, and the logged text.
    ///
    /// # Errors
    ///
    /// Returns an error when the log cannot be read.
    pub fn next_log(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.log.next(&self.dir)
    }
}

/// A file that grows line by line.
struct Tail {
    name: &'static str,
    /// The file, once it exists.
    file: Option<BufReader<File>>,
    /// The number of bytes of its whole lines so far.
    at: u64,
    /// The start of a line that is not complete yet.
    begun: Vec<u8>,
}

impl Tail {
    fn of(name: &'static str) -> Self {
        Self { name, file: None, at: 0, begun: Vec::new() }
    }

    fn next(&mut self, dir: &Dir) -> io::Result<Option<Vec<u8>>> {
        let file = match &mut self.file {
            Some(file) => file,
            None => match open(dir, self.name)? {
                Some((mut file, _)) => {
                    file.seek(SeekFrom::Start(self.at))?;
                    self.file.insert(BufReader::new(file))
                }
                None => return Ok(None),
            },
        };
        let room = (MAX_LINE_BYTES + 1).saturating_sub(self.begun.len());
        file.take(room as u64).read_until(b'\n', &mut self.begun)?;
        let bytes = self.begun.len() as u64;
        if self.begun.pop_if(|byte| *byte == b'\n').is_some() {
            self.at = self.at.saturating_add(bytes);
            return Ok(Some(std::mem::take(&mut self.begun)));
        }
        if self.begun.len() > MAX_LINE_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a line of it has no end"));
        }
        Ok(None)
    }
}
