//! Writes the audit log: actors, operations and outcomes, one JSON object on each line.
//!
//! Each line is one `write` at the file's end, under the file's lock, so that several hosts can share a file; it is
//! written before its request is answered. After a line that was cut off, for example by a full disk, the next one
//! begins on a line of its own. Lines contain only the host's own words, checked names, and numbers: no text of a
//! caller is written, and quoted text is escaped, so that no caller can forge a line. Lines that cannot be written are
//! counted, and the next line that can be written reports their number: requests continue.

pub(crate) mod tail;

use std::{
    borrow::Cow,
    fmt,
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Write as _},
    net::SocketAddr,
    num::NonZeroU32,
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use guild_config::{Config, directories};
use guild_contract::text::escaped_json;
use guild_fs::clock::rfc3339;
use jiff::Timestamp;
use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};
use serde::{Serialize, Serializer};
use strum::IntoStaticStr;

/// The file's name in the user's state directory.
const FILE_NAME: &str = "audit.jsonl";
/// The number of refusals that are written in a second, and in one burst: a flood of them, which needs no token, must
/// not fill the disk.
const REFUSALS_PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(9);
const REFUSALS_AT_ONCE: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);

/// The number of attempts to lock the file, and the pause between them. Each host holds the lock for one write. A
/// process that holds it for longer, such as a stopped program, is not waited for: without the lock, only lines that
/// were cut off can mix with others.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// The audit log that `guild.toml` names cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("the audit log {} cannot be opened: {source}; `audit_log` in guild.toml names it", path.display())]
pub struct AuditLogError {
    path: PathBuf,
    source: io::Error,
}

/// The actor of an event.
#[derive(Clone, Copy, Debug, Default)]
pub enum Who<'a> {
    /// The host itself.
    #[default]
    Host,
    /// A caller on this machine without a token.
    Local,
    /// An unknown caller: without a token, or with an invalid one.
    Unknown,
    /// The caller with the token of this name.
    Token(&'a str),
    /// A user of this machine on the command line.
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

/// The outcome of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Outcome {
    /// Success.
    #[default]
    Ok,
    /// The request is invalid; `code` has the reason.
    Invalid,
    /// The host, or the caller's token, was at a limit.
    Busy,
    /// The host failed to carry out the request.
    Failed,
    /// The token is missing or invalid.
    Unauthorized,
    /// The token does not permit the request.
    Forbidden,
    /// The caller went away before the response. A dispatch may still have made its job.
    Abandoned,
}

impl Outcome {
    /// The outcome in the log.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One line: one event.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Event<'a> {
    /// The kind of event: `request`, `host-started`, `token-added`.
    pub event: &'a str,
    /// The actor.
    pub who: Who<'a>,
    /// The origin of the request: the caller, or the proxy in front of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    /// The method, if the host knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<&'a str>,
    /// The member, if the name is a valid key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<&'a str>,
    /// The job, if the id is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<&'a str>,
    /// The outcome.
    pub outcome: Outcome,
    /// The code of the JSON-RPC error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The status of the HTTP response, if it is not that of a JSON-RPC message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Further details, in the host's or the operator's own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    #[serde(flatten)]
    event: &'a Event<'a>,
    /// The number of lines before this one that could not be written.
    #[serde(skip_serializing_if = "is_zero")]
    lost: u64,
    /// The number of refusals before this one that were left out because of their rate.
    #[serde(skip_serializing_if = "is_zero")]
    suppressed: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// An audit log. Its file is opened, or created, for the first line.
pub struct Log {
    path: PathBuf,
    /// Whether the file is in the user's state directory, which may not exist yet.
    is_usual: bool,
    /// Separate rates for refusals of valid tokens and all others, so that the latter cannot crowd out the former.
    of_tokens: DefaultDirectRateLimiter,
    of_strangers: DefaultDirectRateLimiter,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The open file, with its device and its inode.
    file: Option<(File, (u64, u64))>,
    lost: u64,
    suppressed: u64,
}

impl Log {
    /// The log that `guild.toml` names, or else the one in the user's state directory; `None`, with a warning, if the
    /// user has none.
    pub fn of(config: &Config) -> Option<Self> {
        Self::named(config.auth.audit_log.as_deref())
    }

    /// Makes a log like [`Self::of`], with the path from `guild.toml`.
    pub fn named(path: Option<&Path>) -> Option<Self> {
        if let Some(path) = path {
            return Some(Self::at(path.to_owned()));
        }
        let Some(directory) = directories::state() else {
            tracing::warn!("there is no audit log: set HOME, or name a file with `audit_log` in guild.toml");
            return None;
        };
        Some(Self { is_usual: true, ..Self::at(directory.join(FILE_NAME)) })
    }

    /// Makes a log like [`Self::of`] for a host, which must know at its start that the log can be written. If the log
    /// in the state directory cannot be opened, the host has none, and logs a warning.
    ///
    /// # Errors
    ///
    /// Returns an error when the log that `guild.toml` names cannot be opened.
    pub(crate) fn of_host(config: &Config) -> Result<Option<Self>, AuditLogError> {
        let Some(log) = Self::of(config) else { return Ok(None) };
        let opened = log.follow(&mut log.state()).map(drop);
        match opened {
            Ok(()) => Ok(Some(log)),
            Err(error) if log.is_usual => {
                tracing::warn!("there is no audit log: {}: {error}", log.path.display());
                Ok(None)
            }
            Err(source) => Err(AuditLogError { path: log.path, source }),
        }
    }

    fn at(path: PathBuf) -> Self {
        let refusals = || RateLimiter::direct(Quota::per_second(REFUSALS_PER_SECOND).allow_burst(REFUSALS_AT_ONCE));
        Self { path, is_usual: false, of_tokens: refusals(), of_strangers: refusals(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file's path, whether or not the file exists.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a line. On return it is at the file's end, or counted as lost.
    pub fn record(&self, event: &Event<'_>) {
        self.write(&mut self.state(), event);
    }

    /// Writes a line about a refused request, within the rate limit.
    pub(crate) fn record_refusal(&self, event: &Event<'_>) {
        let refusals = if matches!(event.who, Who::Token(_)) { &self.of_tokens } else { &self.of_strangers };
        let allowed = refusals.check().is_ok();
        let mut state = self.state();
        if allowed {
            self.write(&mut state, event);
        } else {
            state.suppressed = state.suppressed.saturating_add(1);
        }
    }

    fn write(&self, state: &mut State, event: &Event<'_>) {
        let time = rfc3339(Timestamp::now());
        let line = Line { time, event, lost: state.lost, suppressed: state.suppressed };
        let written = json_line(&line).and_then(|line| append(self.follow(state)?, line));
        match written {
            Ok(()) => (state.lost, state.suppressed) = (0, 0),
            Err(error) => self.lose(state, &error),
        }
    }

    fn lose(&self, state: &mut State, error: &io::Error) {
        if state.lost == 0 {
            tracing::error!("the audit log {} cannot be written, and loses lines: {error}", self.path.display());
        }
        state.lost = state.lost.saturating_add(1);
    }

    /// Opens a new file if the old one was renamed or removed, as by a rotation.
    fn follow<'a>(&self, state: &'a mut State) -> io::Result<&'a File> {
        let is_named = |id: (u64, u64)| fs::metadata(&self.path).is_ok_and(|named| which(&named) == id);
        let open = match state.file.take().filter(|(_, id)| is_named(*id)) {
            Some(open) => open,
            None => {
                if let (true, Some(directory)) = (self.is_usual, self.path.parent()) {
                    fs::create_dir_all(directory)?;
                }
                open(&self.path)?
            }
        };
        Ok(&state.file.insert(open).0)
    }
}

/// Makes one line of JSON in which the control characters of terminals are escaped; they can occur only in the line's
/// texts.
///
/// # Errors
///
/// Returns an error when the value cannot be serialised.
pub fn json_line(line: &impl Serialize) -> io::Result<Vec<u8>> {
    let json = serde_json::to_string(line)?;
    Ok(escaped_json(&json).into_owned().into_bytes())
}

/// Appends a line to a file: the whole line, or an error and possibly its beginning.
fn append(mut file: &File, mut line: Vec<u8>) -> io::Result<()> {
    let is_locked = lock(file);
    line.push(b'\n');
    let written = ends_in_a_line(file).and_then(|whole| {
        if !whole {
            line.insert(0, b'\n');
        }
        match file.write(&line)? {
            count if count == line.len() => Ok(()),
            _ => Err(io::ErrorKind::StorageFull.into()),
        }
    });
    if is_locked {
        let _ = flock(file, FlockOperation::Unlock);
    }
    written
}

/// Locks a file, unless another process holds the lock for too long, or the file system has no locks.
fn lock(file: &File) -> bool {
    for tried in 0..LOCK_TRIES {
        if tried > 0 {
            thread::sleep(LOCK_PAUSE);
        }
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            taken => return taken.is_ok(),
        }
    }
    false
}

/// Whether the file ends with a complete line.
fn ends_in_a_line(file: &File) -> io::Result<bool> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else { return Ok(true) };
    let mut byte = [0];
    // If the file was truncated in the meantime, no byte is read.
    Ok(file.read_at(&mut byte, last)? == 0 || byte == *b"\n")
}

fn which(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Opens a file to append to it and to read its end, and returns its identity. A new file is readable by its owner
/// only. Anything but a regular file is refused without waiting.
fn open(path: &Path) -> io::Result<(File, (u64, u64))> {
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(nonblock).open(path)?;
    let found = file.metadata()?;
    if found.is_file() { Ok((file, which(&found))) } else { Err(io::Error::other("it is not a regular file")) }
}

/// Opens an existing file for reading. Anything but a regular file is refused without waiting.
pub(crate) fn open_existing(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
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
        let log = Log::at(path.clone());
        log.record(&Event {
            event: "request",
            who: Who::Token("ci"),
            detail: Some("\"}\n{\"who\":\"host\"}\u{2028}\u{e0041}".into()),
            ..Event::default()
        });
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(guild_contract::text::is_steering) && text.contains(r"\u2028\udb40\udc41"), "{text}");
        let lines = lines(&path);
        assert_eq!(lines[0]["detail"], "\"}\n{\"who\":\"host\"}\u{2028}\u{e0041}");
        assert_eq!(lines.len(), 1);
        assert_eq!((&lines[0]["who"], &lines[0]["outcome"]), (&"token:ci".into(), &"ok".into()));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_log_that_was_renamed_away_goes_on_in_a_new_file() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("audit.jsonl"), dir.path().join("audit.jsonl.1"));
        let log = Log::at(path.clone());
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
                    let log = Log::at(path.clone());
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
    fn after_a_line_that_was_cut_off_by_whatever_host_the_next_begins_on_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let (first, second) = (Log::at(path.clone()), Log::at(path.clone()));
        let event = |event| Event { event, ..Event::default() };
        first.record(&event("first"));
        second.record(&event("second"));
        // The disk is full in the middle of a line.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"time\":\"2026-").unwrap();
        second.record(&event("third"));
        first.record(&event("fourth"));
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).ok()).collect();
        let events: Vec<_> =
            lines.iter().map(|line| line.as_ref().map(|line| line["event"].as_str().unwrap())).collect();
        assert_eq!(events, [Some("first"), Some("second"), None, Some("third"), Some("fourth")]);
    }

    #[test]
    fn a_lock_that_nobody_lets_go_of_does_not_keep_lines_from_being_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let log = Log::at(path.clone());
        let (holder, _) = open(&path).unwrap();
        flock(&holder, FlockOperation::LockExclusive).unwrap();
        log.record(&Event { event: "e", ..Event::default() });
        assert_eq!(lines(&path).len(), 1);
    }

    #[test]
    fn a_flood_of_strangers_does_not_hide_what_a_token_was_refused() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::at(dir.path().join("audit.jsonl"));
        let refused = |who| Event { event: "request", who, outcome: Outcome::Forbidden, ..Event::default() };
        for _ in 0..10_000 {
            log.record_refusal(&refused(Who::Unknown));
        }
        log.record_refusal(&refused(Who::Token("ci")));
        assert_eq!(lines(log.path()).last().unwrap()["who"], "token:ci");
    }

    #[test]
    fn a_flood_of_refusals_is_counted_in_place_of_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let log = Log::at(path.clone());
        for _ in 0..100_000 {
            log.record_refusal(&Event { event: "request", outcome: Outcome::Unauthorized, ..Event::default() });
        }
        log.record(&Event { event: "host-stopped", ..Event::default() });
        let lines = lines(&path);
        assert!(lines.len() < 1000, "{} lines", lines.len());
        let suppressed: u64 = lines.iter().filter_map(|line| line["suppressed"].as_u64()).sum();
        assert_eq!(suppressed + lines.len() as u64 - 1, 100_000);
    }

    #[test]
    fn what_could_not_be_written_is_told_in_the_next_line_that_can() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let log = Log::at(path.clone());
        // A directory with the file's name prevents all writes.
        std::fs::create_dir(&path).unwrap();
        log.record(&Event { event: "lost", ..Event::default() });
        log.record(&Event { event: "lost", ..Event::default() });
        std::fs::remove_dir(&path).unwrap();
        log.record(&Event { event: "told", ..Event::default() });
        let lines = lines(&path);
        assert_eq!((lines.len(), &lines[0]["event"], &lines[0]["lost"]), (1, &"told".into(), &2.into()));
    }
}
