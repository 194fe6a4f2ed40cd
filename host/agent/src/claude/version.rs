//! Determines the version of the CLI, and whether it has the options that sessions need.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use guild_confine::Supervised;
use guild_fs::fingerprint::StrictFingerprint;

use super::{flags, protocol};

/// The first version with all options of `flags`: `--restricted` is the newest.
const LEAST: Version = [2, 1, 248];
/// The longest time for `claude --version`.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause between two checks whether it has ended.
const POLL: Duration = Duration::from_millis(5);
/// The most bytes of its output that are read.
const BYTES: u64 = 256;
/// The time for which an unusable version is remembered. The CLI may be updated at any time.
const AGAIN: Duration = Duration::from_secs(5);

/// A version, such as 2.1.248.
type Version = [u32; 3];

fn shown(version: Version) -> String {
    version.map(|number| number.to_string()).join(".")
}

/// The first version in a text. The rest after the third number, such as `-beta`, is ignored.
fn find(text: &str) -> Option<Version> {
    text.split_whitespace().find_map(|word| {
        let mut parts = word.trim_start_matches('v').splitn(3, '.');
        let mut plain = || parts.next()?.parse().ok();
        let (major, minor) = (plain()?, plain()?);
        let patch = parts.next()?;
        let end = patch.find(|c: char| !c.is_ascii_digit()).unwrap_or(patch.len());
        Some([major, minor, patch.get(..end)?.parse().ok()?])
    })
}

/// Identifies an executable file, so that a replaced file is checked again: its path without links, and its state.
type ExecutableId = (PathBuf, StrictFingerprint);

/// The last check: the file, the time and the outcome.
#[derive(Debug)]
struct CheckedVersion {
    executable: ExecutableId,
    at: Instant,
    version: Result<String, String>,
}

/// The versions of executables, each determined once.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions(Arc<Mutex<Option<CheckedVersion>>>);

impl Versions {
    /// A program's own version, if it has all options that a session needs. This blocks while the program runs, and so
    /// do other callers.
    ///
    /// # Errors
    ///
    /// Returns the reason that no session can start with the program, and the remedy.
    pub(super) fn usable(&self, program: &Path, environment: &[String]) -> Result<String, String> {
        let mut checked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let executable: Option<ExecutableId> = program.canonicalize().ok().and_then(|path| {
            let file = StrictFingerprint::of(&path).ok()??;
            Some((path, file))
        });
        let is_known = |checked: &&CheckedVersion| {
            executable.as_ref() == Some(&checked.executable)
                && (checked.version.is_ok() || checked.at.elapsed() < AGAIN)
        };
        if let Some(known) = checked.as_ref().filter(is_known) {
            return known.version.clone();
        }
        let version = ask(program, environment).and_then(|text| check(program, text));
        *checked =
            executable.map(|executable| CheckedVersion { executable, at: Instant::now(), version: version.clone() });
        version
    }
}

fn check(program: &Path, text: String) -> Result<String, String> {
    let (program, least) = (program.display(), shown(LEAST));
    match find(&text) {
        Some(version) if version >= LEAST => Ok(text),
        Some(version) => Err(format!(
            "the Claude Code CLI {program} is version {}, and the runtime \"claude\" needs {least} or later, with \
             the option `--restricted`: update it (`npm install -g @anthropic-ai/claude-code@latest`, or `claude update`), \
             or name another in guild.toml: [claude] command = \"...\"",
            shown(version)
        )),
        None => Err(format!(
            "{program} --version prints {text:?}, which is not a version of the Claude Code CLI: the runtime \
             \"claude\" needs {least} or later (`npm install -g @anthropic-ai/claude-code@latest`); [claude] command \
             in guild.toml names it"
        )),
    }
}

/// Runs `program --version`, and returns its output.
fn ask(program: &Path, environment: &[String]) -> Result<String, String> {
    let failed = |why: String| format!("{} --version: {why}", program.display());
    // The program's stdin is empty. All processes that it started end with it.
    let Supervised { mut command, stdin: _, lifeline } = Supervised::new(program).map_err(|e| failed(e.to_string()))?;
    command.arg("--version").env_clear().envs(flags::environment(environment));
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
    let until = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => thread::sleep(POLL),
            ended => {
                let why = ended.err().map_or_else(|| "it does not end".to_owned(), |e| e.to_string());
                drop(lifeline);
                let _ = child.wait();
                return Err(failed(why));
            }
        }
    };
    if !status.success() {
        return Err(failed(format!("it ended with {status}")));
    }
    let mut text = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // Processes that it started may keep the pipe open, so only the data that is there already is read.
        read_now(stdout, &mut text).map_err(|e| failed(e.to_string()))?;
    }
    Ok(protocol::plain(&text).trim().to_owned())
}

/// Reads the data in a pipe, without waiting for more.
fn read_now(stdout: std::process::ChildStdout, text: &mut Vec<u8>) -> std::io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&stdout)?;
    rustix::fs::fcntl_setfl(&stdout, flags | rustix::fs::OFlags::NONBLOCK)?;
    match stdout.take(BYTES).read_to_end(text) {
        Err(e) if e.kind() != std::io::ErrorKind::WouldBlock => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_where_a_program_says_it() {
        let found = |text| find(text).map(shown);
        for text in ["2.1.248 (Claude Code)", "v2.1.248", "Claude Code 2.1.248-beta.1+5"] {
            assert_eq!(found(text).as_deref(), Some("2.1.248"), "{text}");
        }
        for text in ["", "2.1", "2.1.x", "(Claude Code)", "99999999999.1.1"] {
            assert_eq!(find(text), None, "{text}");
        }
        assert!(find("2.1.1000") > Some(LEAST) && find("2.1.99") < Some(LEAST));
    }
}
