//! Runs other programs, one step after the other.

use std::{
    fmt,
    io::{BufRead, BufReader, IsTerminal},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

/// The completed steps, and their durations.
#[derive(Default)]
pub(crate) struct Steps {
    taken: Vec<(&'static str, Duration)>,
}

impl Steps {
    /// Runs a step. The error begins with the step's name.
    pub(crate) fn take<T>(
        &mut self,
        name: &'static str,
        step: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        eprintln!("\n== {name}");
        let begun = Instant::now();
        let done = step().map_err(|e| format!("{name}: {e}"))?;
        self.taken.push((name, begun.elapsed()));
        Ok(done)
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.taken.iter().try_for_each(|(name, time)| writeln!(f, "{:>8.1} s  {name}", time.as_secs_f64()))
    }
}

/// The workspace's directory.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// The cargo that runs this, in the workspace's directory.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a command to its end. Its output goes to the output of this process.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|e| format!("cannot start {}: {e}", line(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", line(command))) }
}

/// Runs a command like [`run`], and returns the lines of its stderr from the last line with `mark` on, also after a
/// failure.
pub(crate) fn run_keeping_end(command: &mut Command, mark: &str) -> (Result<(), String>, Vec<String>) {
    let mut end = Vec::new();
    let ended = (|| {
        if std::io::stderr().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always");
        }
        let mut child = command.stderr(Stdio::piped()).spawn().map_err(|e| format!("cannot start: {e}"))?;
        for text in child.stderr.take().into_iter().flat_map(|pipe| BufReader::new(pipe).lines().map_while(Result::ok))
        {
            eprintln!("{text}");
            if text.contains(mark) {
                end.clear();
                end.push(text);
            } else if !end.is_empty() {
                end.push(text);
            }
        }
        let status = child.wait().map_err(|e| e.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", line(command))) }
    })();
    (ended, end)
}

/// Builds the binaries of packages and returns their paths. One cargo command builds shared dependencies only once.
pub(crate) fn build<const N: usize>(packages: [&str; N], arguments: &[&str]) -> Result<[PathBuf; N], String> {
    let mut command = cargo();
    command.args(["build", "--message-format=json-render-diagnostics"]).args(arguments);
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    let output = command.stderr(Stdio::inherit()).output().map_err(|e| format!("cannot start cargo: {e}"))?;
    if !output.status.success() {
        return Err(format!("{} ended with {}", line(&command), output.status));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let built: Vec<Value> = messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let path = |package: &str| {
        let of_package = |message: &&Value| message.pointer("/target/name").and_then(Value::as_str) == Some(package);
        built.iter().filter(of_package).find_map(|message| message.get("executable")?.as_str().map(PathBuf::from))
    };
    let paths = packages.map(path);
    match packages.iter().zip(&paths).find(|(_, path)| path.is_none()) {
        Some((package, _)) => Err(format!("package {package} has no binary of its name")),
        None => Ok(paths.map(Option::unwrap_or_default)),
    }
}

/// Makes a directory a git repository with one commit of all its files, independent of the user's git identity.
pub(crate) fn begin_repository(directory: &Path) -> Result<(), String> {
    let user = ["-c", "user.name=User", "-c", "user.email=user@localhost", "-c", "commit.gpgSign=false"];
    for arguments in [
        &["init", "--quiet", "--initial-branch=main"][..],
        &["add", "--all"],
        &["commit", "--quiet", "--no-verify", "--message=Begin"],
    ] {
        run(Command::new("git").args(user).args(arguments).current_dir(directory).stdin(Stdio::null()))?;
    }
    Ok(())
}

/// The trimmed stdout of a program.
pub(crate) fn says(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).current_dir(root()).stderr(Stdio::null()).output();
    let output = output.map_err(|e| format!("cannot start {program}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{program} {} ended with {}", arguments.join(" "), output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The command as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    let typed = |word: &std::ffi::OsStr| match word.to_string_lossy() {
        word if word.contains(char::is_whitespace) => format!("{word:?}"),
        word => word.into_owned(),
    };
    words.map(typed).collect::<Vec<_>>().join(" ")
}
