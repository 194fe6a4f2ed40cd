//! The audit log: who did what, one JSON object a line.
//!
//! Each line is one `write` at the file's end, under the file's lock, so that several hosts can share a file; it is
//! there before its request is answered. After a line that was cut off, by a full disk say, the next begins on its own.
//! What stands in a line is the host's own words, names that were checked, and numbers: no text of a caller gets in,
//! and what is quoted is escaped, so that nobody can forge a line. What cannot be written, on a full disk say, is
//! counted and reported in the next line that can be written: requests go on.

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

/// The file's name in the user's state directory.
const FILE_NAME: &str = "audit.jsonl";
/// Refusals that are written in a second, and at once: a flood of them, which needs no token, must not fill the disk.
const REFUSALS_PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(9);
const REFUSALS_AT_ONCE: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);

/// How often to try for the file's lock, and the time between. Each holds it for one write; one that holds it for
/// longer, as a program that stopped there, is not waited for: what it keeps from mixing is lines that were cut off.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(1);

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

impl Outcome {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Invalid => "invalid",
            Self::Busy => "busy",
            Self::Failed => "failed",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Abandoned => "abandoned",
        }
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

/// An audit log. Its file is opened, and made, with the first line.
pub struct Log {
    path: PathBuf,
    /// Whether it is in the user's state directory, which may have to be made.
    is_usual: bool,
    /// Refusals of those who brought a good token, and of all others: these cannot keep those from being written.
    of_tokens: DefaultDirectRateLimiter,
    of_strangers: DefaultDirectRateLimiter,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The file that is open, and which one it is: its device and its inode.
    file: Option<(File, (u64, u64))>,
    lost: u64,
    suppressed: u64,
}

impl Log {
    /// The log that `guild.toml` names, else the one in the user's state directory; `None`, and a warning, where the
    /// user has none.
    pub fn of(config: &Config) -> Option<Self> {
        Self::named(config.auth.audit_log.as_deref())
    }

    /// [`Self::of`], where `path` is what `guild.toml` names.
    pub fn named(path: Option<&Path>) -> Option<Self> {
        if let Some(path) = path {
            return Some(Self::at(path.to_owned()));
        }
        let Some(directory) = directories::state() else {
            tracing::warn!("there is no audit log: set HOME, or name one with `audit_log` in guild.toml");
            return None;
        };
        Some(Self { is_usual: true, ..Self::at(directory.join(FILE_NAME)) })
    }

    /// [`Self::of`], for a host, which is to know at its start that it can be written. Where that of the state
    /// directory cannot be, there is none, and a warning.
    ///
    /// # Errors
    /// Where the one that is named cannot be opened.
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

    /// Where it is, or will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a line. It is at the file's end when this returns, or is counted among those that are lost.
    pub fn record(&self, event: &Event<'_>) {
        self.write(&mut self.state(), event);
    }

    /// Writes a line about a request that was refused, as long as these are not too many.
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

    /// The file: a new one where the old one was renamed or removed, as by a rotation.
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

/// JSON on one line, in which characters that steer a terminal are escaped: a line's texts are the only place for them.
///
/// # Errors
/// Where the value has no JSON.
pub fn json_line(line: &impl Serialize) -> io::Result<Vec<u8>> {
    let json = serde_json::to_string(line)?;
    Ok(escaped_json(&json).into_owned().into_bytes())
}

/// Writes a line at a file's end: the whole of it, or an error and perhaps its beginning.
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

/// Takes a file's lock, unless another holds it for longer, or the file system has none.
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

/// Whether what is written next begins a line.
fn ends_in_a_line(file: &File) -> io::Result<bool> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else { return Ok(true) };
    let mut byte = [0];
    // Where it was cut off meanwhile there is nothing at that place.
    Ok(file.read_at(&mut byte, last)? == 0 || byte == *b"\n")
}

fn which(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Opens a file to append to, and to read its end, and says which it is; it is made for its owner only. What is no
/// regular file is refused, and not waited for.
fn open(path: &Path) -> io::Result<(File, (u64, u64))> {
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(nonblock).open(path)?;
    let found = file.metadata()?;
    if found.is_file() { Ok((file, which(&found))) } else { Err(io::Error::other("it is not a regular file")) }
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
        // A directory in its place: nothing can be written there.
        std::fs::create_dir(&path).unwrap();
        log.record(&Event { event: "lost", ..Event::default() });
        log.record(&Event { event: "lost", ..Event::default() });
        std::fs::remove_dir(&path).unwrap();
        log.record(&Event { event: "told", ..Event::default() });
        let lines = lines(&path);
        assert_eq!((lines.len(), &lines[0]["event"], &lines[0]["lost"]), (1, &"told".into(), &2.into()));
    }
}
