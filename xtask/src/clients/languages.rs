//! Workers in other languages: those of `docs/authors.md`, built with the tools that it names, audited, and run by `guild`.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    House,
    house::{FOUND, QUESTION},
    install::{Clients, copy_all},
};
use crate::steps::{root, run};

/// How long an engine may be compiled.
const PATIENCE: Duration = Duration::from_secs(180);
/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);
/// What `guild run` says while a component is not compiled.
const COMPILING: &str = "still being compiled";

/// Builds, audits and runs each.
pub(super) fn check(clients: &Clients, guild: &Path, house: &House) -> Result<(), String> {
    let guide = fs::read_to_string(root().join("docs/authors.md")).map_err(|e| format!("docs/authors.md: {e}"))?;
    let guide = guide.split_once("\n## A worker in another language\n").map_or("", |(_, rest)| rest);
    let mut quickjs = Command::new(&clients.node);
    quickjs.arg(clients.scripts.join("node_modules/componentize-qjs/cli.mjs"));
    quickjs.args(["--sync", "--wit", "wit", "--world", "reviewer", "--js", "worker.js", "--output", "worker.wasm"]);
    let mut python = Command::new(clients.python.with_file_name("componentize-py"));
    python.args(["-d", "wit", "-w", "reviewer", "componentize", "worker", "-o", "worker.wasm"]);
    for (language, source, tag, build) in
        [("JavaScript", "worker.js", "js", quickjs), ("Python", "worker.py", "python", python)]
    {
        let begun = Instant::now();
        let directory = root().join("target/clients/languages").join(tag);
        furnish(&directory, guide, source, tag).map_err(|e| format!("{}: {e}", directory.display()))?;
        one(&directory, language, build, guild, house).map_err(|why| format!("the worker in {language}: {why}"))?;
        println!("ok   {:>6} ms  a worker in {language}, built, audited and run", begun.elapsed().as_millis());
    }
    Ok(())
}

fn one(directory: &Path, language: &str, mut build: Command, guild: &Path, house: &House) -> Result<(), String> {
    run(build.current_dir(directory).stdout(Stdio::null()))?;
    let audit =
        house.guild(guild).arg("audit").arg(directory).args(["--format", "json", "--fail-on", "medium"]).output();
    let audit = audit.map_err(|e| e.to_string())?;
    let found: Value = serde_json::from_slice(&audit.stdout).map_err(|e| format!("its audit: {e}"))?;
    if !audit.status.success() {
        return Err(format!("its audit finds {:#}", found.get("findings").unwrap_or(&Value::Null)));
    }
    if found.pointer("/identity/runtimes/0/language") != Some(&Value::from(language)) {
        return Err("its audit does not say which language it is of".to_owned());
    }
    // A host that goes on compiling, whoever asks meanwhile.
    let mut serve = house.guild(guild);
    serve.args(["serve", "--port", "0", "--member"]).arg(directory).arg("--sources").arg(house.documents());
    let log = directory.join("host.log");
    let file = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    serve.stdin(Stdio::null()).stdout(file.try_clone().map_err(|e| e.to_string())?).stderr(file);
    let _serving = Serving(serve.spawn().map_err(|e| e.to_string())?);
    let begun = Instant::now();
    while !fs::read_to_string(&log).unwrap_or_default().contains("listening at") {
        if begun.elapsed() > PATIENCE {
            return Err(format!("its host does not listen: see {}", log.display()));
        }
        thread::sleep(PAUSE);
    }
    loop {
        let Output { status, stdout, stderr } =
            house.guild(guild).arg("run").arg(directory).arg(QUESTION).output().map_err(|e| e.to_string())?;
        if status.success() && String::from_utf8_lossy(&stdout).contains(FOUND) {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&stderr).into_owned();
        if !said.contains(COMPILING) || begun.elapsed() > PATIENCE {
            return Err(format!("its job ends with {status}: {said}"));
        }
        thread::sleep(PAUSE);
    }
}

/// A host. It ends with this.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The member's directory, as the guide has an author make it.
fn furnish(directory: &Path, guide: &str, source: &str, tag: &str) -> std::io::Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    let wit = directory.join("wit");
    for (from, to) in [("wit", "deps/worker"), ("wit/deps/io", "deps/io")] {
        fs::create_dir_all(wit.join(to))?;
        copy_all(&root().join(from), &wit.join(to))?;
    }
    let code = |tag: &str| {
        let code = guide.split_once(&format!("\n```{tag}\n")).and_then(|(_, rest)| rest.split_once("\n```"));
        code.map(|(code, _)| code).ok_or_else(|| std::io::Error::other(format!("docs/authors.md has no {tag}")))
    };
    fs::write(wit.join("world.wit"), code("wit")?)?;
    fs::write(directory.join("guild-member.json"), code("json")?)?;
    fs::write(directory.join(source), code(tag)?)
}
