//! Builds, runs and audits the workers that `docs/tutorials/contract.md` describes, with the commands of that guide.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use serde_json::Value;

use super::{Fixture, install::once};
use crate::steps::{root, run};

const GUIDE: &str = "docs/tutorials/contract.md";
const CHAPTER: &str = "\n## A worker in another language\n";
/// A text of each report about the documents.
const REPORT_HEADING: &str = "## Findings";
/// The first line of each shell script, which then ends at a failing line.
const SHELL_OPTIONS: &str = "set -eu";

/// Commands that copy the files which an author ships: the member alone, without installed packages or other members.
const COPY_SHIPPED_FILES: &str = "mkdir -p ../shipped/worker\ncp guild-member.json worker.wasm ../shipped/worker";

/// Builds, runs and audits each worker.
pub(super) fn check(guild: &Path, fixture: &Fixture) -> Result<(), String> {
    let guide = fs::read_to_string(root().join(GUIDE)).map_err(|e| format!("{GUIDE}: {e}"))?;
    let chapter = guide.split_once(CHAPTER).and_then(|(_, rest)| rest.split("\n## ").next());
    let chapter = chapter.ok_or_else(|| format!("{GUIDE} has no chapter {}", CHAPTER.trim()))?;
    let mut sections = chapter.split("\n### ");
    let common = blocks(sections.next().unwrap_or_default());
    let tools = install(chapter)?;
    let mut checked = 0;
    for section in sections {
        let language = section.lines().next().unwrap_or_default();
        let blocks = blocks(section);
        let Some(source) = blocks.iter().find(|block| block.file().is_some()) else { continue };
        for build in blocks.iter().filter(|block| block.tag == "sh") {
            let begun = Instant::now();
            let (installing, lines): (Vec<&str>, Vec<&str>) = build.code.lines().partition(|line| installs(line));
            let tool = installing.last().and_then(|line| line.rsplit([' ', '/']).next()).unwrap_or(language);
            let failed = |why| format!("the worker in {language} by {tool}: {why}");
            let directory = fixture.directory().join("languages").join(tool);
            let worker = furnish(&directory, &tools, &common, source).map_err(failed)?;
            let shell = |lines: &str| shell(fixture, guild, &worker, lines);
            let said = shell(&lines.join("\n")).map_err(failed)?;
            if !said.contains(REPORT_HEADING) {
                return Err(failed(format!("its job made no report, but printed:\n{said}")));
            }
            let audit = shell(&format!(
                "{COPY_SHIPPED_FILES}\nguild audit ../shipped/worker --format json --fail-on refused,hidden-text"
            ))
            .map_err(failed)?;
            recognised(&audit, language).map_err(failed)?;
            println!("ok   {:>6} ms  a worker in {language}, by {tool}", begun.elapsed().as_millis());
            checked += 1;
        }
    }
    if checked == 0 { Err(format!("{GUIDE} has no worker under {}", CHAPTER.trim())) } else { Ok(()) }
}

/// A fenced block of the guide.
struct Block<'a> {
    tag: &'a str,
    code: &'a str,
}

impl Block<'_> {
    /// The file of the worker's directory whose content the block is.
    fn file(&self) -> Option<&'static str> {
        match self.tag {
            "js" => Some("worker.js"),
            "python" => Some("worker.py"),
            _ => None,
        }
    }
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let fenced = text.split("\n```").skip(1).step_by(2);
    fenced.filter_map(|block| block.split_once('\n')).map(|(tag, code)| Block { tag, code }).collect()
}

/// Whether a line of the guide installs a tool; a tool is installed once, not for each worker.
fn installs(line: &str) -> bool {
    ["npm install ", "python3 -m venv ", "venv/bin/pip install "].iter().any(|start| line.starts_with(start))
}

/// Installs the tools of the guide, in its versions, below `target/clients`.
fn install(chapter: &str) -> Result<PathBuf, String> {
    let target = root().join("target/clients");
    let tools = target.join("languages");
    let lines: Vec<&str> = chapter.lines().filter(|line| installs(line)).collect();
    let lines = lines.join("\n");
    once(lines.as_bytes(), &tools, || {
        eprintln!("installing the languages' tools of {GUIDE} below target/clients, once");
        let manifest = tools.join("package.json");
        fs::create_dir_all(&tools).map_err(|e| format!("{}: {e}", tools.display()))?;
        // npm installs next to the nearest `package.json`.
        fs::write(&manifest, "{}").map_err(|e| format!("{}: {e}", manifest.display()))?;
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{SHELL_OPTIONS}\n{lines}")]).current_dir(&tools).stdout(Stdio::null());
        for name in ["audit", "fund", "update_notifier"] {
            shell.env(format!("npm_config_{name}"), "false");
        }
        shell.env("npm_config_ignore_scripts", "true").env("npm_config_cache", target.join("npm-cache"));
        run(shell.env("PIP_CACHE_DIR", target.join("pip-cache")))
    })?;
    Ok(tools)
}

/// Creates the member's directory as the guide tells an author to, next to a checkout, and links the tools into it.
fn furnish(directory: &Path, tools: &Path, common: &[Block<'_>], source: &Block<'_>) -> Result<PathBuf, String> {
    let code = |tag: &str| {
        let block = common.iter().find(|block| block.tag == tag);
        block.map(|block| block.code).ok_or_else(|| format!("{GUIDE} has no block of {tag} for all languages"))
    };
    let (layout, world, manifest) = (code("sh")?, code("wit")?, code("json")?);
    let worker = directory.join("my-worker");
    let furnish = || -> std::io::Result<bool> {
        fs::create_dir_all(directory)?;
        symlink(root(), directory.join("guild"))?;
        let laid =
            Command::new("sh").args(["-c", &format!("{SHELL_OPTIONS}\n{layout}")]).current_dir(directory).status()?;
        fs::write(worker.join("wit/world.wit"), world)?;
        fs::write(worker.join("guild-member.json"), manifest)?;
        fs::write(worker.join(source.file().unwrap_or_default()), source.code)?;
        symlink(tools.join("node_modules"), worker.join("node_modules"))?;
        symlink(tools.join("venv"), worker.join("venv"))?;
        Ok(laid.success())
    };
    match furnish() {
        Ok(true) => Ok(worker),
        Ok(false) => Err("the lines that make its directory fail".to_owned()),
        Err(e) => Err(format!("{}: {e}", directory.display())),
    }
}

/// Runs lines as an author types them, and returns their output.
fn shell(fixture: &Fixture, guild: &Path, worker: &Path, lines: &str) -> Result<String, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let path = guild.parent().map(Path::to_owned).into_iter().chain(env::split_paths(&path));
    let path = env::join_paths(path).map_err(|e| e.to_string())?;
    let mut shell = fixture.command("sh");
    shell.args(["-c", &format!("{SHELL_OPTIONS}\n{lines}")]).current_dir(worker).env("PATH", path).stdin(Stdio::null());
    let output = shell.output().map_err(|e| format!("cannot start sh: {e}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    Err(format!("{lines}\nended with {}:\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Checks that an audit names the language of its component.
fn recognised(audit: &str, language: &str) -> Result<(), String> {
    let audit: Value = serde_json::from_str(audit).map_err(|e| format!("its audit: {e}"))?;
    let named = |list: &str, key: &str| {
        let list = audit.pointer(list).and_then(Value::as_array);
        list.into_iter().flatten().any(|entry| entry.get(key).is_some_and(|name| name == language))
    };
    if named("/identity/runtimes", "language") || named("/identity/producers", "name") {
        return Ok(());
    }
    Err("its audit does not name its language".to_owned())
}
