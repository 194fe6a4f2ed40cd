//! The audit log: who did what, one JSON object a line.
//!
//! Each line is one `write` at the file's end, so that several hosts can share a file and no line is torn; it is
//! there before its request is answered. What stands in a line is the host's own words, names that were checked, and
//! numbers: no text of a caller gets in, and what is quoted is escaped, so that nobody can forge a line. What cannot be
//! written, on a full disk say, is counted and told in the next line that can: requests go on.

use std::{
    borrow::Cow,
    fmt,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    net::SocketAddr,
    num::NonZeroU32,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use jiff::{Timestamp, Unit};
use rustix::fs::OFlags;
use serde::{Serialize, Serializer};

use crate::{config::Config, directories};

/// The file's name in the user's state directory.
const FILE_NAME: &str = "audit.jsonl";
/// Refusals that are written in a second, and at once: a flood of them, which needs no token, must not fill the disk.
const REFUSALS_PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(9);
const REFUSALS_AT_ONCE: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);

/// The log is named in `guild.toml`, and cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("the audit log {} cannot be opened: {source}; `audit_log` in guild.toml names it", path.display())]
pub struct AuditLogError {
    path: PathBuf,
    source: io::Error,
}

/// Who did something.
#[derive(Clone, Copy, Debug, Default)]
pub enum Who<'a> {
    /// The host itself.
    #[default]
    Host,
    /// Whoever is on this machine, without a token.
    Local,
    /// Nobody knows: there was no token, or no good one.
    Unknown,
    /// Whoever has the token of that name.
    Token(&'a str),
    /// A user of this machine, at the command line.
    User(u32),
}

impl fmt::Display for Who<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Local => f.write_str("local"),
            Self::Unknown => f.write_str("unknown"),
            Self::Token(name) => write!(f, "token:{name}"),
            Self::User(id) => write!(f, "user:{id}"),
        }
    }
}

impl Serialize for Who<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was done.
    #[default]
    Ok,
    /// The caller asked for something that cannot be: `code` says of which kind.
    Invalid,
    /// The host or the caller's token was at a limit.
    Busy,
    /// The host could not do it.
    Failed,
    /// No token, or no good one.
    Unauthorized,
    /// The token is not for this.
    Forbidden,
    /// The caller went away before there was an answer. A dispatch may have made its job all the same.
    Abandoned,
}

/// One line: what happened.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Event<'a> {
    /// What it was, as `request`, `host-started`, `token-added`.
    pub event: &'a str,
    /// Who did it.
    pub who: Who<'a>,
    /// Where the request came from: the caller, or the proxy before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    /// The method, where it is one that the host knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<&'a str>,
    /// The member, where the name can be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<&'a str>,
    /// The job, where the id can be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<&'a str>,
    /// What became of it.
    pub outcome: Outcome,
    /// The code of the JSON-RPC error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The status of the HTTP answer where that is none of JSON-RPC's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What else there is to say, in the host's or the operator's own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    #[serde(flatten)]
    event: &'a Event<'a>,
    /// Lines that could not be written before this one.
    #[serde(skip_serializing_if = "is_zero")]
    lost: u64,
    /// Refusals that were not written before this one, since there were too many.
    #[serde(skip_serializing_if = "is_zero")]
    suppressed: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// An audit log that is open.
pub struct Log {
    path: PathBuf,
    refusals: DefaultDirectRateLimiter,
    state: Mutex<State>,
}

struct State {
    file: File,
    lost: u64,
    suppressed: u64,
    /// Whether the last line was cut off: the next begins on a line of its own.
    torn: bool,
}

impl Log {
    /// The log that `guild.toml` names, else the one in the user's state directory. Where that cannot be opened there is
    /// none, and a warning.
    ///
    /// # Errors
    /// Where the one that is named cannot be opened.
    pub fn of(config: &Config) -> Result<Option<Self>, AuditLogError> {
        if let Some(path) = &config.door.audit_log {
            return Self::open(path).map(Some).map_err(|source| AuditLogError { path: path.clone(), source });
        }
        let Some(directory) = directories::state() else {
            tracing::warn!("there is no audit log: set HOME, or name one with `audit_log` in guild.toml");
            return Ok(None);
        };
        let path = directory.join(FILE_NAME);
        let opened = std::fs::create_dir_all(&directory).and_then(|()| Self::open(&path));
        Ok(opened.inspect_err(|e| tracing::warn!("there is no audit log: {}: {e}", path.display())).ok())
    }

    fn open(path: &Path) -> io::Result<Self> {
        let refusals = RateLimiter::direct(Quota::per_second(REFUSALS_PER_SECOND).allow_burst(REFUSALS_AT_ONCE));
        let state = State { file: open(path)?, lost: 0, suppressed: 0, torn: false };
        Ok(Self { path: path.to_owned(), refusals, state: Mutex::new(state) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a line. It is at the file's end when this returns, or is counted among those that are lost.
    pub fn record(&self, event: &Event<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.write(&mut state, event);
    }

    /// Writes a line about a request that was refused, as long as these are not too many.
    pub(crate) fn record_refusal(&self, event: &Event<'_>) {
        let allowed = self.refusals.check().is_ok();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if allowed {
            self.write(&mut state, event);
        } else {
            state.suppressed = state.suppressed.saturating_add(1);
        }
    }

    fn write(&self, state: &mut State, event: &Event<'_>) {
        let now = Timestamp::now();
        let time = now.round(Unit::Millisecond).unwrap_or(now).to_string();
        let line = Line { time, event, lost: state.lost, suppressed: state.suppressed };
        let mut text = if state.torn { b"\n".to_vec() } else { Vec::new() };
        let written = serde_json::to_writer(&mut text, &line).map_err(io::Error::from).and_then(|()| {
            text.push(b'\n');
            self.follow(state)?;
            state.file.write(&text)
        });
        match written {
            Ok(count) if count == text.len() => (state.lost, state.suppressed, state.torn) = (0, 0, false),
            Ok(count) => self.lose(state, count > 0, &io::ErrorKind::StorageFull.into()),
            Err(error) => self.lose(state, false, &error),
        }
    }

    fn lose(&self, state: &mut State, torn: bool, error: &io::Error) {
        if state.lost == 0 {
            tracing::error!("the audit log {} cannot be written, and loses lines: {error}", self.path.display());
        }
        state.lost = state.lost.saturating_add(1);
        state.torn |= torn;
    }

    /// Goes on in a new file where the old one was renamed or removed, as by a rotation.
    fn follow(&self, state: &mut State) -> io::Result<()> {
        let is_same = || {
            let (named, open) = (std::fs::metadata(&self.path).ok()?, state.file.metadata().ok()?);
            Some((named.dev(), named.ino()) == (open.dev(), open.ino()))
        };
        if is_same() != Some(true) {
            state.file = open(&self.path)?;
            state.torn = false;
        }
        Ok(())
    }
}

/// Opens a file to append to; it is made for its owner only. What is no regular file is refused, and not waited for.
fn open(path: &Path) -> io::Result<File> {
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(nonblock).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_line_is_one_object_and_a_quoted_text_cannot_end_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let log = Log::open(&path).unwrap();
        log.record(&Event {
            event: "request",
            who: Who::Token("ci"),
            detail: Some("\"}\n{\"who\":\"host\"}\u{2028}".into()),
            ..Event::default()
        });
        let lines = lines(&path);
        assert_eq!(lines.len(), 1);
        assert_eq!((&lines[0]["who"], &lines[0]["outcome"]), (&"token:ci".into(), &"ok".into()));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_log_that_was_renamed_away_goes_on_in_a_new_file() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("audit.jsonl"), dir.path().join("audit.jsonl.1"));
        let log = Log::open(&path).unwrap();
        let event = |event| Event { event, ..Event::default() };
        log.record(&event("first"));
        std::fs::rename(&path, &old).unwrap();
        log.record(&event("second"));
        assert_eq!(lines(&old)[0]["event"], "first");
        assert_eq!(lines(&path)[0]["event"], "second");
    }

    #[test]
    fn lines_of_many_hosts_in_one_file_are_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let log = Log::open(&path).unwrap();
                    let detail = "x".repeat(10_000);
                    for _ in 0..50 {
                        log.record(&Event { event: "e", detail: Some(detail.as_str().into()), ..Event::default() });
                    }
                });
            }
        });
        assert_eq!(lines(&path).len(), 400);
    }

    #[test]
    fn a_flood_of_refusals_is_counted_in_place_of_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let log = Log::open(&path).unwrap();
        for _ in 0..100_000 {
            log.record_refusal(&Event { event: "request", outcome: Outcome::Unauthorized, ..Event::default() });
        }
        log.record(&Event { event: "host-stopped", ..Event::default() });
        let lines = lines(&path);
        assert!(lines.len() < 1000, "{} lines", lines.len());
        let told: u64 = lines.iter().filter_map(|line| line["suppressed"].as_u64()).sum();
        assert_eq!(told + lines.len() as u64 - 1, 100_000);
    }

    #[test]
    fn what_could_not_be_written_is_told_in_the_next_line_that_can() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let log = Log::open(&path).unwrap();
        // A directory in its place: nothing can be written there.
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        log.record(&Event { event: "lost", ..Event::default() });
        log.record(&Event { event: "lost", ..Event::default() });
        std::fs::remove_dir(&path).unwrap();
        log.record(&Event { event: "told", ..Event::default() });
        let lines = lines(&path);
        assert_eq!((lines.len(), &lines[0]["event"], &lines[0]["lost"]), (1, &"told".into(), &2.into()));
    }
}
