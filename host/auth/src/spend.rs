//! Keeps the ledger of daily costs, and enforces the caps on them: `[spend]` of `guild.toml`, and `usd_per_day` of a
//! token.
//!
//! The ledger is a file in the host's state directory, one for each directory with a `guild.toml`: all hosts that use
//! the same `guild.toml` share its caps. It has the dollars of each UTC day, in total and by token name. A host adds
//! the costs of its sessions as they run, in a separate thread, so that no session waits for the disk.

use std::{
    collections::BTreeMap,
    fs::DirBuilder,
    io, mem,
    os::unix::fs::DirBuilderExt as _,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use guild_config::{Config, directories};
use guild_contract::text::hex;
use guild_fs::{
    durable::{Survives, Write, open_dir, open_directory, read_whole, replace_as},
    file_lock::FileLock,
    fingerprint::Fingerprint,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The directory of ledgers in the host's state directory.
const DIRECTORY: &str = "spend";
/// The file that is locked while a ledger is written.
const LOCK: &str = ".lock";
/// The mode of the file: only its owner may read it.
const MODE: u32 = 0o600;
/// The maximum size of a ledger that is read: it has a line for each token and day.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// The number of days that are kept, for people who read the file.
const DAYS: usize = 62;
/// The longest wait for other hosts that write, and the longest time that the end of a host waits for its own writes.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two checks.
const POLL: Duration = Duration::from_millis(2);
/// The seconds of a day.
const DAY: i64 = 86_400;

/// The costs of a day.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Day {
    /// US dollars in all.
    usd: f64,
    /// US dollars by token name.
    #[serde(default)]
    tokens: BTreeMap<String, f64>,
}

/// Days by date, as `2026-01-31`.
type Days = BTreeMap<String, Day>;

/// The daily costs in US dollars.
pub struct Ledger {
    /// The directory and the file's name; none if the user has no state directory.
    place: Option<(PathBuf, String)>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The contents of the file, and its fingerprint at that time.
    read: Days,
    file: Option<Fingerprint>,
    /// The costs that are being written, and those to be written next.
    writing: Days,
    unwritten: Days,
    is_writing: bool,
    has_failed: bool,
}

fn today() -> String {
    Timestamp::now().strftime("%Y-%m-%d").to_string()
}

/// The start of the next day.
pub(crate) fn tomorrow() -> Timestamp {
    let now = Timestamp::now().as_second();
    Timestamp::from_second((now.div_euclid(DAY) + 1) * DAY).unwrap_or(Timestamp::MAX)
}

fn add(days: &mut Days, more: Days) {
    for (date, Day { usd, tokens }) in more {
        let day = days.entry(date).or_default();
        day.usd += usd;
        for (token, usd) in tokens {
            *day.tokens.entry(token).or_default() += usd;
        }
    }
}

impl Ledger {
    /// The ledger of the hosts with this configuration.
    pub fn of(config: &Config) -> Arc<Self> {
        let place = directories::state().map(|state| {
            let of = config.directory.clone().unwrap_or_default();
            // The same directory can have several spellings.
            let of = of.canonicalize().unwrap_or(of);
            let of = hex(&Sha256::digest(of.as_os_str().as_encoded_bytes()));
            (state.join(DIRECTORY), format!("{}.json", of.get(..16).unwrap_or(&of)))
        });
        Arc::new(Self { place, state: Mutex::default() })
    }

    /// The ledger in a file of this directory.
    #[cfg(test)]
    pub(crate) fn at(directory: PathBuf, name: &str) -> Arc<Self> {
        Arc::new(Self { place: Some((directory, name.to_owned())), state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the cost of a job, which this token dispatched if there is one.
    pub fn add(self: &Arc<Self>, usd: f64, token: Option<&str>) {
        if !usd.is_finite() || usd <= 0.0 {
            return;
        }
        let tokens = token.map(|name| (name.to_owned(), usd)).into_iter().collect();
        let mut state = self.state();
        add(&mut state.unwritten, [(today(), Day { usd, tokens })].into());
        if mem::replace(&mut state.is_writing, true) {
            return;
        }
        let this = self.clone();
        if thread::Builder::new().name("ledger".to_owned()).spawn(move || this.write_all()).is_err() {
            // The next addition tries again.
            state.is_writing = false;
        }
    }

    /// The US dollars that were spent today in all.
    ///
    /// # Errors
    ///
    /// Returns an error when the ledger cannot be read.
    pub fn spent_today(&self) -> Result<f64, String> {
        self.spent(None).map(|(all, _)| all)
    }

    /// The US dollars that were spent today: in all, and with this token.
    ///
    /// # Errors
    ///
    /// Returns an error when the ledger cannot be read, so the amounts are unknown.
    pub(crate) fn spent(&self, token: Option<&str>) -> Result<(f64, f64), String> {
        let mut state = self.state();
        if !state.is_writing {
            self.read_again(&mut state).map_err(|e| self.unreadable(&e))?;
        }
        let today = today();
        let parts = [&state.read, &state.writing, &state.unwritten].map(|days| days.get(&today));
        let parts = parts.iter().flatten();
        let own = |day: &Day| token.and_then(|token| day.tokens.get(token)).copied().unwrap_or(0.0);
        Ok(parts.fold((0.0, 0.0), |(all, one), day| (all + day.usd, one + own(day))))
    }

    /// Waits a limited time until everything counted is in the file.
    pub fn flush(&self) {
        let until = Instant::now() + PATIENCE;
        while self.state().is_writing && Instant::now() < until {
            thread::sleep(POLL);
        }
    }

    fn unreadable(&self, e: &io::Error) -> String {
        let file = self.place.as_ref().map(|(dir, name)| dir.join(name).display().to_string());
        format!(
            "today's spending is not known, so nothing more may be spent: {}: {e}",
            file.unwrap_or_else(|| "the ledger of [spend]".to_owned())
        )
    }

    fn read_again(&self, state: &mut State) -> io::Result<()> {
        let (path, name) = self.place()?;
        let dir = match open_directory(path) {
            Ok(dir) => dir,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                (state.read, state.file) = (Days::new(), None);
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        if Fingerprint::at(&dir, name)? != state.file {
            (state.read, state.file) = match read_whole(&dir, name, MAX_BYTES)? {
                Some((text, file)) => (serde_json::from_slice(&text)?, Some(file)),
                None => (Days::new(), None),
            };
        }
        Ok(())
    }

    fn place(&self) -> io::Result<(&PathBuf, &str)> {
        let place = self.place.as_ref().map(|(dir, name)| (dir, name.as_str()));
        place.ok_or_else(|| io::Error::other("there is no state directory; set HOME or XDG_STATE_HOME"))
    }

    fn write_all(&self) {
        loop {
            let mine = {
                let mut state = self.state();
                state.writing = mem::take(&mut state.unwritten);
                if state.writing.is_empty() {
                    state.is_writing = false;
                    return;
                }
                state.writing.clone()
            };
            let written = self.write(mine);
            let mut state = self.state();
            let writing = mem::take(&mut state.writing);
            match written {
                Ok((read, file)) => {
                    (state.read, state.file, state.has_failed) = (read, Some(file), false);
                }
                Err(e) => {
                    add(&mut state.unwritten, writing);
                    state.is_writing = false;
                    if !mem::replace(&mut state.has_failed, true) {
                        tracing::error!("the spending cannot be stored; the next cost retries it: {e}");
                    }
                    return;
                }
            }
        }
    }

    /// Adds costs to the file, and returns its new contents.
    fn write(&self, more: Days) -> io::Result<(Days, Fingerprint)> {
        let (path, name) = self.place()?;
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let dir = Arc::new(open_dir(&open_directory(path)?, ".")?);
        let until = Instant::now() + PATIENCE;
        let _lock = loop {
            match FileLock::try_acquire(&dir, LOCK)? {
                Some(lock) => break lock,
                None if Instant::now() >= until => return Err(io::ErrorKind::TimedOut.into()),
                None => thread::sleep(POLL),
            }
        };
        let mut days: Days = match read_whole(&dir, name, MAX_BYTES)? {
            Some((text, _)) => serde_json::from_slice(&text)?,
            None => Days::new(),
        };
        add(&mut days, more);
        while days.len() > DAYS {
            days.pop_first();
        }
        let text = serde_json::to_vec_pretty(&days)?;
        let file = replace_as(&dir, name, &text, Write { mode: MODE, survives: Survives::PowerCut })?;
        Ok((days, file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(dir: &tempfile::TempDir) -> Arc<Ledger> {
        Ledger::at(dir.path().join("state/spend"), "one.json")
    }

    #[test]
    fn hosts_that_share_a_ledger_count_together_and_a_later_one_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (ledger(&dir), ledger(&dir));
        assert_eq!(one.spent(None).unwrap(), (0.0, 0.0));
        let each = |ledger: &Arc<Ledger>, token: &'static str| {
            let ledger = ledger.clone();
            thread::spawn(move || (0..50).for_each(|_| ledger.add(0.25, Some(token))))
        };
        let threads = [each(&one, "ann"), each(&other, "ann"), each(&other, "bob")];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        one.flush();
        other.flush();
        for ledger in [&one, &other, &ledger(&dir)] {
            assert_eq!(ledger.spent(Some("ann")).unwrap(), (37.5, 25.0));
            assert_eq!(ledger.spent(Some("bob")).unwrap(), (37.5, 12.5));
        }
        one.add(f64::NAN, None);
        one.add(-1.0, None);
        assert_eq!(one.spent(None).unwrap(), (37.5, 0.0));
    }

    #[test]
    fn a_ledger_that_is_none_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let one = ledger(&dir);
        one.add(1.0, None);
        one.flush();
        std::fs::write(dir.path().join("state/spend/one.json"), "[]").unwrap();
        let why = one.spent(None).unwrap_err();
        assert!(why.contains("state/spend/one.json"), "{why}");
    }

    #[test]
    fn a_day_ends_at_midnight_of_utc() {
        let next = tomorrow();
        assert!(next > Timestamp::now() && next.to_string().ends_with("T00:00:00Z"), "{next}");
    }
}
