//! Reads the audit log from its end, through the files that rotations left: `audit.jsonl`, `audit.jsonl.1`, and so on.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use guild_contract::host::{AUDIT_PAGE, AuditLine, AuditParams, AuditView};

use crate::audit_log::{Log, open_existing};

/// The number of lines in a page that no limit was given for.
const DEFAULT_PAGE: u32 = 50;
/// Bytes that are read for one page.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Bytes that are read at once. A longer line is left out.
const BLOCK_BYTES: usize = 64 * 1024;
/// The most rotated files.
const ROTATED: u32 = 99;

/// The reason that a page cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    /// The parameters are invalid.
    #[error("{0}")]
    Invalid(String),
    /// A file cannot be read.
    #[error("the audit log {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// A position: the inode of a file, whose name changes by rotation, and the end of the lines before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    inode: u64,
    end: u64,
}

impl Position {
    fn parse(text: &str) -> Option<Self> {
        let (inode, end) = text.split_once('-')?;
        Some(Self { inode: inode.parse().ok()?, end: end.parse().ok()? })
    }

    fn shown(self) -> String {
        format!("{}-{}", self.inode, self.end)
    }
}

impl Log {
    /// A page of the log, newest first. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when a parameter is invalid or a file cannot be read.
    pub fn page(&self, params: &AuditParams) -> Result<AuditView, TailError> {
        let limit = params.limit.unwrap_or(DEFAULT_PAGE);
        if !(1..=AUDIT_PAGE).contains(&limit) {
            return Err(TailError::Invalid(format!("limit is {limit}; it can be from 1 to {AUDIT_PAGE}")));
        }
        let mut files = Files { log: self.path().to_owned(), nth: 0 };
        let mut at = match &params.before {
            None => files.next()?,
            Some(before) => {
                let position = Position::parse(before);
                Some(position.map(|position| files.find(position)).transpose()?.flatten().ok_or_else(|| {
                    TailError::Invalid("before is no position in this log, or its file was removed".to_owned())
                })?)
            }
        };
        let (mut lines, mut budget, limit) = (Vec::new(), PAGE_BYTES, limit as usize);
        while let Some((file, path, position)) = at {
            let unreadable = |source| TailError::Unreadable { path: path.clone(), source };
            let end = read_back(&file, position.end, &mut budget, |line| {
                lines.extend(serde_json::from_slice(line).ok().filter(|line: &AuditLine| params.matches(line)));
                lines.len() < limit
            });
            match end.map_err(unreadable)? {
                0 => at = files.next()?,
                end => {
                    at = Some((file, path, Position { end, ..position }));
                    break;
                }
            }
            if lines.len() >= limit {
                break;
            }
        }
        let next = at.map(|(_, _, position)| position.shown());
        Ok(AuditView { file: Some(self.path().display().to_string()), lines, next })
    }
}

/// The log's files, newest first.
struct Files {
    log: PathBuf,
    nth: u32,
}

/// An open file, and the position of its end.
type Opened = (File, PathBuf, Position);

impl Files {
    /// The next file that is not empty.
    fn next(&mut self) -> Result<Option<Opened>, TailError> {
        while self.nth <= ROTATED {
            let path = match self.nth {
                0 => self.log.clone(),
                nth => PathBuf::from(format!("{}.{nth}", self.log.display())),
            };
            self.nth += 1;
            match open(&path) {
                Ok(Some((file, position))) if position.end > 0 => return Ok(Some((file, path, position))),
                Ok(Some(_)) => {}
                // A rotation leaves no log for a moment, and no gap after the first file.
                Ok(None) if self.nth == 1 => {}
                Ok(None) => return Ok(None),
                Err(source) => return Err(TailError::Unreadable { path, source }),
            }
        }
        Ok(None)
    }

    /// The file of a position.
    fn find(&mut self, position: Position) -> Result<Option<Opened>, TailError> {
        while let Some((file, path, end)) = self.next()? {
            if end.inode == position.inode && position.end <= end.end {
                return Ok(Some((file, path, position)));
            }
        }
        Ok(None)
    }
}

fn open(path: &Path) -> io::Result<Option<(File, Position)>> {
    match open_existing(path) {
        Ok(file) => {
            let found = file.metadata()?;
            Ok(Some((file, Position { inode: found.ino(), end: found.len() })))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Gives each complete line before `end` to `take`, the last one first, until that returns false or the budget of bytes
/// is used. Returns the end of the lines before; 0 if there are none.
fn read_back(file: &File, mut end: u64, budget: &mut usize, mut take: impl FnMut(&[u8]) -> bool) -> io::Result<u64> {
    let mut block = vec![0; BLOCK_BYTES];
    while end > 0 {
        let begin = end.saturating_sub(BLOCK_BYTES as u64);
        let Some(read) = usize::try_from(end - begin).ok().and_then(|length| block.get_mut(..length)) else { break };
        file.read_exact_at(read, begin)?;
        *budget = budget.saturating_sub(read.len());
        let mut rest: &[u8] = read;
        // The line of the block's first bytes may begin before them.
        while let Some(cut) = rest.strip_suffix(b"\n").unwrap_or(rest).iter().rposition(|byte| *byte == b'\n') {
            let (before, line) = rest.split_at(cut + 1);
            (rest, end) = (before, begin + before.len() as u64);
            if !take(line) {
                return Ok(end);
            }
        }
        if begin == 0 {
            take(rest);
            return Ok(0);
        }
        if rest.len() == BLOCK_BYTES {
            // A line that no host writes.
            end = begin;
        }
        if *budget == 0 {
            return Ok(end);
        }
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _};

    use super::*;
    use crate::audit_log::{Event, Who};

    fn pages(log: &Log, params: &AuditParams) -> Vec<Vec<String>> {
        let (mut pages, mut params) = (Vec::new(), params.clone());
        loop {
            let page = log.page(&params).unwrap();
            pages.push(page.lines.into_iter().map(|line| line.event).collect());
            match page.next {
                Some(next) => params.before = Some(next),
                None => return pages,
            }
        }
    }

    #[test]
    fn pages_go_from_the_newest_line_to_the_oldest_through_rotated_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let log = Log::named(Some(&path)).unwrap();
        assert_eq!(pages(&log, &AuditParams::default()), [Vec::<String>::new()]);
        for nth in 0..7 {
            if nth == 2 || nth == 5 {
                let rotated = |nth| dir.path().join(format!("audit.jsonl.{nth}"));
                let _ = fs::rename(rotated(1), rotated(2));
                fs::rename(&path, rotated(1)).unwrap();
            }
            let who = Who::Token(if nth % 2 == 0 { "even" } else { "odd" });
            log.record(&Event { event: &format!("e{nth}"), who, ..Event::default() });
        }
        let limit = |limit| AuditParams { limit: Some(limit), ..AuditParams::default() };
        assert_eq!(pages(&log, &limit(200)), [["e6", "e5", "e4", "e3", "e2", "e1", "e0"]]);
        assert_eq!(pages(&log, &limit(3)), [vec!["e6", "e5", "e4"], vec!["e3", "e2", "e1"], vec!["e0"]]);
        for who in ["odd", "token:odd"] {
            let odd = AuditParams { who: Some(who.to_owned()), ..limit(200) };
            assert_eq!(pages(&log, &odd), [["e5", "e3", "e1"]]);
        }
        // A rotation between two pages repeats and loses nothing.
        let first = log.page(&limit(1)).unwrap();
        fs::rename(&path, dir.path().join("audit.jsonl.0")).unwrap();
        fs::rename(dir.path().join("audit.jsonl.2"), dir.path().join("audit.jsonl.3")).unwrap();
        fs::rename(dir.path().join("audit.jsonl.1"), dir.path().join("audit.jsonl.2")).unwrap();
        fs::rename(dir.path().join("audit.jsonl.0"), dir.path().join("audit.jsonl.1")).unwrap();
        let second = log.page(&AuditParams { before: first.next, ..limit(2) }).unwrap();
        assert_eq!(second.lines.iter().map(|line| &*line.event).collect::<Vec<_>>(), ["e5", "e4"]);
        for (params, why) in
            [(limit(0), "limit is 0"), (AuditParams { before: Some("1-1".to_owned()), ..limit(1) }, "before")]
        {
            let refused = log.page(&params).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn a_page_ends_after_some_mebibytes_and_the_next_one_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut file = File::create(&path).unwrap();
        let line = format!("{{\"event\": \"common\", \"detail\": \"{}\"}}\n", "x".repeat(1000));
        writeln!(file, "{{\"event\": \"rare\"}}").unwrap();
        (0..3000).for_each(|_| file.write_all(line.as_bytes()).unwrap());
        writeln!(file, "{}", "y".repeat(3 * BLOCK_BYTES)).unwrap();
        (0..3000).for_each(|_| file.write_all(line.as_bytes()).unwrap());
        let log = Log::named(Some(&path)).unwrap();
        let rare = AuditParams { event: Some("rare".to_owned()), ..AuditParams::default() };
        assert_eq!(pages(&log, &rare), [vec![], vec!["rare".to_owned()]]);
        let all = AuditParams { limit: Some(200), ..AuditParams::default() };
        assert_eq!(pages(&log, &all).concat().len(), 6001);
    }
}
