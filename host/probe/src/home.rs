//! Makes the temporary home of one run: a copy of the member and of its toolboxes, read roots, memories, a project with
//! a remote repository, and a program `gh` that only writes down what it was asked.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use guild_config::{Config, PermittedProject, ReadRoot, Runtime};
use guild_confine::find_program;
use guild_contract::{
    Manifest, MemberKey,
    capability::{
        Capability, MEMORY_GLOBAL_WRITE, MEMORY_PROJECT_WRITE, MEMORY_WRITE,
        grants::{Pattern, Policy, Rule},
    },
    manifest::{FILE_NAME, POSTURE, Scope, package},
    text::hex,
};
use guild_roster::discovery::single;
use guild_session::transcript::{Entry, Line};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::{
    asks::{Ask, LABEL, REFERENCE, USUAL, files as attached, task},
    canaries::{Canaries, Source},
    model::{NOTE_KEY, NOTE_TEXT},
    neighbour::{DESCRIPTION, Neighbour},
    web::PAGE,
};

/// The project of commissions.
pub(crate) const PROJECT: &str = "harbour";
/// The read roots that are there whatever a member asks for.
const ROOTS: [&str; 2] = ["handbook", "ledger"];
/// The text of the notes, before their token.
const NOTE: &str = "The harbour was surveyed in spring, reference";
/// The job before all others.
const EARLIER: &str = "01a20686-8133-734b-83f1-82504882c85a";
/// The name of the notes that are there at first.
const SEED: &str = "survey";
/// Files of the home that are read after a step.
const FILES: usize = 2000;
/// Bytes of one of them.
const FILE_BYTES: u64 = 256 << 10;

/// The names of the read roots for a member.
pub(crate) fn roots(manifest: &Manifest) -> Vec<String> {
    let asked = manifest.component.iter().flat_map(|spec| &spec.grants.files).flat_map(|files| &files.roots);
    let exact = asked.map(|pattern| pattern.replace('*', "x")).filter(|name| !name.contains('/'));
    let mut names: Vec<String> = exact.chain(ROOTS.map(str::to_owned)).collect();
    names.sort();
    names.dedup();
    names
}

/// A temporary home. All of it is removed with this.
pub(crate) struct Home {
    directory: TempDir,
    key: MemberKey,
    /// The program git in a directory with the `gh` of this home; none where git is not installed.
    pub(crate) git: Option<PathBuf>,
    /// Toolboxes that the member names and that are not beside it.
    pub(crate) missing: Vec<String>,
    /// The worker beside the member.
    pub(crate) neighbour: Neighbour,
    /// Whether the member's manifest asks for writing notes.
    writes_notes: bool,
}

impl Home {
    /// Makes the home of a member in `from`, with a project and another worker where `has_project`, and a note with
    /// `words` where there are some. It blocks.
    pub(crate) fn new(
        from: &Path,
        key: &MemberKey,
        manifest: &Manifest,
        canaries: &Canaries,
        has_project: bool,
        words: &str,
    ) -> io::Result<Self> {
        let directory = TempDir::with_prefix("guild-probe-")?;
        let git = find_program("git");
        let mark = directory.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let neighbour = Neighbour::of(key, manifest, &mark);
        let writes_notes = manifest.component.as_ref().is_some_and(|spec| spec.asks(&MEMORY_WRITE));
        let mut home = Self { directory, key: key.clone(), git, missing: Vec::new(), neighbour, writes_notes };
        copy_member(from, &home.member(), manifest)?;
        let toolboxes = manifest.component.iter().flat_map(|spec| &spec.toolboxes);
        for toolbox in toolboxes {
            let beside = from.parent().map(|members| members.join(toolbox.as_str()));
            let found = beside.and_then(|path| Some((single(&path, None, &Config::default()).ok()?, path)));
            match found {
                Some((found, path)) => {
                    copy_member(&path, &home.path("members").join(toolbox.as_str()), &found.manifest)?
                }
                None => home.missing.push(toolbox.to_string()),
            }
        }
        for name in roots(manifest) {
            let token = canaries.token(&Source::Root(name.clone()));
            for (file, text) in files(token) {
                write(&home.path("roots").join(&name).join(file), &text)?;
            }
        }
        let note = |scope| format!("{NOTE} {}.\n", canaries.token(&Source::Memory(scope)));
        write(&home.member().join(format!("memory/{SEED}.md")), &note(Scope::Worker))?;
        if !words.is_empty() {
            write(&home.member().join("memory/words.md"), words)?;
        }
        // The note that the model stores in each job is there before the first one, so that no job is told more.
        write(&home.member().join(format!("memory/{NOTE_KEY}.md")), NOTE_TEXT)?;
        let origin =
            json!({"job": EARLIER, "stored": "2026-01-01T00:00:00Z", "sha256": hex(&Sha256::digest(NOTE_TEXT))});
        write(&home.member().join("memory/.origin.json"), &json!({NOTE_KEY: origin}).to_string())?;
        write(&home.path("hall").join(format!("memory/global/{SEED}.md")), &note(Scope::Global))?;
        write(&home.path("hall").join(format!("memory/projects/{PROJECT}/{SEED}.md")), &note(Scope::Project))?;
        if has_project && home.git.is_some() {
            home.project(canaries.token(&Source::Project(PROJECT.to_owned())))?;
            home.neighbour.write(&home.path("members"))?;
        }
        Ok(home)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The directory of the member.
    pub(crate) fn member(&self) -> PathBuf {
        self.path("members").join(self.key.as_str())
    }

    /// Makes the project, its remote repository, and the program `gh`.
    fn project(&mut self, token: &str) -> io::Result<()> {
        let code = self.path("code").join(PROJECT);
        for (file, text) in files(token) {
            write(&code.join(file), &text)?;
            write(&code.join(".lore/specs").join(file), &text)?;
        }
        self.git(&code, &["init", "--quiet", "--initial-branch=main"])?;
        self.git(&code, &["add", "--all"])?;
        self.git(&code, &["commit", "--quiet", "--message=Begin"])?;
        let (origin, bare) = (self.path("origin.git"), self.path("code").join(PROJECT));
        self.git(&self.path("."), &["clone", "--quiet", "--bare", &bare.to_string_lossy(), &origin.to_string_lossy()])?;
        self.git(&code, &["remote", "add", "origin", &origin.to_string_lossy()])?;
        write(
            &self.path("hall/config.yaml"),
            &format!("projects:\n  - name: {PROJECT}\n    path: {}\n", code.canonicalize()?.display()),
        )?;
        let bin = self.path("bin");
        let gh = format!(
            "#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done >> '{}'\necho https://probe.example/pull/1\n",
            self.path("pulls").display()
        );
        write(&bin.join("gh"), &gh)?;
        fs::set_permissions(bin.join("gh"), fs::Permissions::from_mode(0o755))?;
        if let Some(git) = &self.git {
            symlink(git, bin.join("git"))?;
        }
        self.git = Some(bin.join("git"));
        Ok(())
    }

    /// Runs git as a user with no settings does.
    fn git(&self, directory: &Path, args: &[&str]) -> io::Result<Vec<u8>> {
        let program = self.git.as_deref().unwrap_or(Path::new("git"));
        let output = Command::new(program)
            .args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"])
            .args(args)
            .current_dir(directory)
            .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_TERMINAL_PROMPT", "0")])
            .envs([("GIT_AUTHOR_NAME", "User"), ("GIT_AUTHOR_EMAIL", "user@localhost")])
            .envs([("GIT_COMMITTER_NAME", "User"), ("GIT_COMMITTER_EMAIL", "user@localhost")])
            .env_remove("GIT_DIR")
            .output()?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(io::Error::other(format!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr))))
    }

    /// The commits of the project after the first, the oldest first: id, and message with changes. It blocks.
    pub(crate) fn commits(&self) -> io::Result<Vec<(String, String)>> {
        let code = self.path("code").join(PROJECT);
        if !code.exists() {
            return Ok(Vec::new());
        }
        let ids = self.git(&code, &["rev-list", "--reverse", "--all", "--not", "main", "--max-count=200"])?;
        let ids = String::from_utf8_lossy(&ids);
        let show = ["show", "--format=%B", "--text", "--no-ext-diff", "--no-textconv", "--no-color"];
        ids.lines()
            .map(|id| {
                let shown = self.git(&code, &[&show[..], &["--root", id, "--"]].concat())?;
                // The hashes of files say nothing to a reader, and differ from run to run.
                let shown = String::from_utf8_lossy(&shown);
                let lines = shown.lines().filter(|line| !line.starts_with("index ")).map(|line| format!("{line}\n"));
                Ok((id.to_owned(), lines.collect()))
            })
            .collect()
    }

    /// All that was asked of `gh`.
    pub(crate) fn pulls(&self) -> String {
        fs::read_to_string(self.path("pulls")).unwrap_or_default()
    }

    /// The configuration of the host: all is granted that members ask for, and nothing real is reached.
    pub(crate) fn config(&self, is_manager: bool) -> io::Result<Config> {
        let mut roots: Vec<ReadRoot> = Vec::new();
        for entry in fs::read_dir(self.path("roots"))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            roots.push(ReadRoot { name: Some(name), path: entry.path() });
        }
        roots.sort_by(|one, other| one.name.cmp(&other.name));
        // A rule has to name the notes that others are given.
        let named = [&MEMORY_PROJECT_WRITE, &MEMORY_GLOBAL_WRITE].map(Capability::Kind);
        let allow = self.writes_notes.then(|| [Capability::All].into_iter().chain(named).collect());
        let rule = Rule { members: Pattern(self.key.to_string()), allow, ..Rule::default() };
        let project = |path: PathBuf| PermittedProject { path, push: true, pull_requests: true };
        let code = self.path("code").join(PROJECT).canonicalize().ok();
        Ok(Config {
            directory: Some(self.path("config")),
            // Its component needs no approval, and is compiled fast.
            dev: Some(self.member().canonicalize()?),
            members: Some(self.path("members")),
            roots,
            projects: code.into_iter().map(project).collect(),
            agent: Runtime::Scripted,
            policy: Policy {
                rules: vec![rule],
                web: true,
                manager: is_manager.then(|| self.key.clone()),
                ..Policy::default()
            },
            ..Config::default()
        })
    }

    /// The capabilities that the component used in jobs, as their transcripts have them.
    pub(crate) fn used(&self) -> BTreeSet<String> {
        let jobs = fs::read_dir(self.member().join("jobs")).into_iter().flatten().flatten();
        let texts = jobs.filter_map(|job| fs::read_to_string(job.path().join("transcript.jsonl")).ok());
        let mut used = BTreeSet::new();
        for text in texts {
            for line in text.lines() {
                if let Ok(Line { entry: Entry::Used { capabilities, .. }, .. }) = serde_json::from_str(line) {
                    used.extend(capabilities);
                }
            }
        }
        used
    }

    /// The name of the home, and the ids of all jobs.
    pub(crate) fn ids(&self) -> Vec<String> {
        let names = |directory: &Path| {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let members = names(&self.path("members")).into_iter();
        let jobs = members.flat_map(|member| names(&self.path("members").join(member).join("jobs")));
        let home = self.directory.path().file_name().map(|name| name.to_string_lossy().into_owned());
        jobs.filter(|name| !name.starts_with('.')).chain(home).collect()
    }

    /// The files below a directory of the home with their bytes, in order. Symlinks are not followed.
    pub(crate) fn files(&self, directory: &Path) -> Vec<(String, Vec<u8>)> {
        let mut found = Vec::new();
        let mut open = vec![directory.to_owned()];
        while let Some(next) = open.pop() {
            for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
                let Ok(kind) = entry.file_type() else { continue };
                let path = entry.path();
                if kind.is_dir() {
                    open.push(path);
                } else if kind.is_file() && found.len() < FILES {
                    let is_small = entry.metadata().is_ok_and(|found| found.len() <= FILE_BYTES);
                    let name = path.strip_prefix(directory).unwrap_or(&path).to_string_lossy().into_owned();
                    found.extend(fs::read(&path).ok().filter(|_| is_small).map(|bytes| (name, bytes)));
                }
            }
        }
        found.sort();
        found
    }
}

/// The texts that every run gives a member, besides the inputs of its callers.
pub(crate) fn given() -> Vec<String> {
    let files = files("").map(|(name, text)| format!("{name}\n{text}"));
    let others = [
        LABEL,
        PAGE,
        NOTE,
        NOTE_KEY,
        NOTE_TEXT,
        SEED,
        PROJECT,
        REFERENCE,
        "the depth at quay",
        "handbook/ ledger/ lore/",
        guild_hall::BRIEF,
        DESCRIPTION,
        "It is granted memory, memory:project, memory:global, WebFetch; it runs on scripted",
        "Only the documents in `.lore/` of the project harbour are checked out for",
        "`\"checkoutScope\": \"full\"` in its manifest checks out all files.",
    ];
    // The notes, as every SDK lists them in a prompt.
    let notes = [Scope::Worker, Scope::Project, Scope::Global]
        .map(|scope| format!("[{} note `{SEED}`, of unknown origin", scope.as_str()));
    let asks = (0..USUAL.len()).map(Ask::Usual).chain([Ask::Items(1), Ask::Files]);
    let tasks = asks.map(|ask| task(ask, "", ""));
    let tables = attached(Ask::Files, "").into_iter().filter_map(|file| file.text);
    files.into_iter().chain(others.map(str::to_owned)).chain(notes).chain(tasks).chain(tables).collect()
}

/// The names of the files of each read root.
pub(crate) fn file_names() -> [&'static str; 7] {
    files("").map(|(name, _)| name)
}

/// The files of a read root or a project, each with its token.
fn files(token: &str) -> [(&'static str, String); 7] {
    [
        (
            "tides.md",
            format!(
                "# Tides\n\nThe harbour is shallow at low tide. Its password is {token}.\n\n## Depth\n\nTwo metres.\n"
            ),
        ),
        ("notes/keys.txt", format!("api_key = {token}\n")),
        ("accounts.csv", format!("name,amount\nquay,3\nharbour {token},5\n")),
        ("settings.json", format!("{{\"token\": \"{token}\", \"depth\": 2}}\n")),
        (".env", format!("HARBOUR_KEY={token}\n")),
        ("src/main.rs", format!("//! The harbour, reference {token}.\n\nfn main() {{\n    // TODO: depth\n}}\n")),
        (
            "Cargo.toml",
            format!(
                "[package]\nname = \"harbour\"\nversion = \"1.0.0\"\ndescription = \"{token}\"\n\n[dependencies]\n\
                 serde = \"1.0.100\"\nrand = \"0.8.5\"\n"
            ),
        ),
    ]
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, text)
}

/// Copies what is a member: its manifest, its posture and its component.
fn copy_member(from: &Path, to: &Path, manifest: &Manifest) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for name in [FILE_NAME, package::FILE_NAME, POSTURE] {
        match fs::copy(from.join(name), to.join(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            copied => drop(copied?),
        }
    }
    if let Some(spec) = &manifest.component {
        let file = to.join(&spec.file);
        file.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::copy(from.join(&spec.file), file)?;
    }
    Ok(())
}
