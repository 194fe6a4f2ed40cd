//! `guild dev`: builds a member whenever its source changes, serves it, and runs the last task again.
//!
//! Each run has a copy of the member in a temporary directory, and a host of its own: no job and no memory of an earlier
//! run is there. That host loads the copy without an approval, and no other member. It is a child process, since its end
//! is then the end of all that the component did.

use std::{
    ffi::OsStr,
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use guild_build::Built;
use guild_client::{DispatchParams, JobId, WorkerHandle};
use guild_contract::{
    manifest::{FILE_NAME, Manifest, POSTURE, package},
    text::size,
};
use notify::{RecursiveMode, Watcher as _};
use serde::Deserialize;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines, Stdin},
    process::{Child, ChildStdout, Command},
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::timeout,
};

use super::build;
use crate::{
    args::{Call, Dev},
    client::AccessArgs,
    failure::Failure,
    jobs::{logs, worker},
    local::{LocalArgs, PolicyArgs},
    members::call,
    output::{LABEL, STRONG, one_line, tell, tell_error},
    serve::Start,
};

/// Directories of a member that are not its source. Those that begin with a dot are none either.
const NOT_SOURCES: [&str; 6] = ["jobs", "memory", "node_modules", "target", "venv", "__pycache__"];
/// Files that the tools of a language write while they build.
const LOCKS: [&str; 2] = ["Cargo.lock", "package-lock.json"];
/// How long a host may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// How long nothing may change before a build begins: an editor saves in several steps.
const SETTLED: Duration = Duration::from_millis(50);
/// The parts of a plan that the built-in search does not use, as `plan.json` names them.
const NOT_SEARCHED: [(&str, &str); 2] = [("model", "model"), ("toolboxTools", "tools of toolboxes")];

/// What comes next.
enum Next {
    /// A file of the source changed.
    Changed,
    /// The user typed a line.
    Line(String),
    /// The command is to end.
    End,
}

/// `guild dev`.
pub(crate) async fn dev(args: Dev) -> Result<(), Failure> {
    let directory = args.directory.canonicalize();
    let directory = directory.map_err(|e| Failure::error(format!("{}: {e}", args.directory.display())))?;
    let mut stop = worker::stop_signals()?;
    let mut lines = Some(BufReader::new(tokio::io::stdin()).lines());
    let mut task = args.task.clone();
    let mut round: Option<Round> = None;
    let mut source = Source::watch(&directory)?;
    let mut built = build(&directory).await;
    loop {
        if let Some(before) = round.take() {
            before.end().await;
        }
        if let Some(built) = &built {
            round = tokio::select! {
                started = Round::start(&args, &directory, built) => started.map_err(print).ok(),
                () = stop.next() => break,
            };
        }
        let mut next = None;
        if let (Some(round), Some(task)) = (&round, &task) {
            tokio::select! {
                ended = round.carry_out(&args, task) => drop(ended.map_err(print)),
                // A session may take long, and its worker is an old one now.
                () = source.changed() => next = Some(Next::Changed),
                () = stop.next() => break,
            }
        }
        let next = match next {
            Some(next) => next,
            None => {
                let again = if task.is_some() { "Enter runs the task again; " } else { "" };
                tell(format_args!("{LABEL}{again}a line is a task, /TOOL JSON calls a tool, Ctrl-C ends{LABEL:#}"));
                tokio::select! {
                    () = source.changed() => Next::Changed,
                    next = line(&mut lines) => next,
                    () = stop.next() => Next::End,
                }
            }
        };
        match next {
            Next::End => break,
            Next::Line(line) if !line.trim().is_empty() => task = Some(line),
            Next::Changed | Next::Line(_) => {}
        }
        // A line may come with an edit. What changes from here on is not in this build.
        if built.is_none() || source.hash() != source.hash {
            source = Source::watch(&directory)?;
            built = build(&directory).await;
        }
    }
    if let Some(round) = round {
        round.end().await;
    }
    Ok(())
}

/// Builds the member in a directory. An error is printed, and gives none.
async fn build(directory: &Path) -> Option<Built> {
    let (began, directory) = (Instant::now(), directory.to_owned());
    let build = move || build::project(&directory).and_then(|project| Ok(project.build()?));
    let built = tokio::task::spawn_blocking(build).await.map_err(|e| Failure::error(e.to_string()));
    let built = built.flatten().map_err(print).ok()?;
    tell(format_args!("{STRONG}built{STRONG:#} {} in {:.1?}", size(built.bytes), began.elapsed()));
    Some(built)
}

/// Prints the message of a failure.
fn print(failure: Failure) {
    failure.message.into_iter().for_each(tell_error);
}

/// The next line of stdin; pending once it has ended.
async fn line(lines: &mut Option<Lines<BufReader<Stdin>>>) -> Next {
    if let Some(open) = lines {
        match open.next_line().await {
            Ok(Some(line)) => return Next::Line(line),
            Ok(None) | Err(_) => *lines = None,
        }
    }
    std::future::pending().await
}

/// The files of a member's source.
struct Source {
    directory: PathBuf,
    /// What the build makes.
    outputs: Vec<PathBuf>,
    /// The hash of the source, when the watch began. A build may write files, with the same contents each time.
    hash: u64,
    changes: UnboundedReceiver<()>,
    _watcher: notify::RecommendedWatcher,
}

impl Source {
    /// Begins to watch the source in a directory.
    fn watch(directory: &Path) -> Result<Self, Failure> {
        let failed = |e: notify::Error| Failure::error(format!("{} cannot be watched: {e}", directory.display()));
        let outputs = build::project(directory).map(|project| project.outputs()).unwrap_or_default();
        let own = outputs.clone();
        let (send, changes) = unbounded_channel();
        let below = directory.to_owned();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let Ok(event) = event else { return };
            let is_change = event.kind.is_create() || event.kind.is_modify() || event.kind.is_remove();
            if is_change && event.paths.iter().any(|path| !own.contains(path) && is_source(&below, path)) {
                // Nobody waits once the round is over.
                let _ = send.send(());
            }
        })
        .map_err(failed)?;
        watcher.watch(directory, RecursiveMode::NonRecursive).map_err(failed)?;
        let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
        for below in entries.filter(|path| path.is_dir() && is_source(directory, path)) {
            watcher.watch(&below, RecursiveMode::Recursive).map_err(failed)?;
        }
        let mut source = Self { directory: directory.to_owned(), outputs, hash: 0, changes, _watcher: watcher };
        source.hash = source.hash();
        Ok(source)
    }

    /// The hash of the names of files and directories, and of what is in files and symlinks.
    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let mut places = vec![self.directory.clone()];
        while let Some(place) = places.pop() {
            let mut entries: Vec<_> = fs::read_dir(place).into_iter().flatten().flatten().collect();
            entries.sort_by_key(fs::DirEntry::path);
            for entry in entries {
                let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
                if !is_source(&self.directory, &path) || self.outputs.contains(&path) {
                    continue;
                }
                path.hash(&mut hasher);
                if kind.is_dir() {
                    places.push(path);
                } else if kind.is_file() {
                    fs::read(&path).ok().hash(&mut hasher);
                } else if kind.is_symlink() {
                    fs::read_link(&path).ok().hash(&mut hasher);
                }
            }
        }
        hasher.finish()
    }

    /// Waits until something has changed, and nothing changes any more.
    async fn changed(&mut self) {
        while self.changes.recv().await.is_some() {
            while let Ok(Some(())) = timeout(SETTLED, self.changes.recv()).await {}
            if self.hash() != self.hash {
                return;
            }
        }
        std::future::pending().await
    }
}

/// Whether a path below a member's directory is of its source.
fn is_source(directory: &Path, path: &Path) -> bool {
    let parts = path.strip_prefix(directory).unwrap_or(path).iter().map(|part| part.to_str().unwrap_or_default());
    let is_other = |part: &str| part.starts_with('.') || part.ends_with('~') || NOT_SOURCES.contains(&part);
    let mut parts = parts.peekable();
    let is_lock = path.file_name().is_some_and(|name| LOCKS.iter().any(|lock| *lock == name));
    parts.peek().is_some() && !is_lock && !parts.any(is_other)
}

/// One run of a build: a copy of the member, and the host that serves it.
struct Round {
    key: String,
    /// The directory of the copy, which is removed with the round.
    directory: TempDir,
    base: String,
    manifest: Manifest,
    child: Child,
    _stdout: Option<Lines<BufReader<ChildStdout>>>,
}

impl Round {
    /// Starts a host that serves a copy of the member in a directory, as it was built.
    async fn start(args: &Dev, directory: &Path, built: &Built) -> Result<Self, Failure> {
        let found = build::found(directory)?;
        let failed = |e| Failure::error(format!("no temporary directory: {e}"));
        let place = tempfile::Builder::new().prefix("guild-dev-").tempdir().map_err(failed)?;
        let member = member_of(&place, found.key.as_str());
        copy(&member, directory, &found.manifest, built)
            .map_err(|e| Failure::error(format!("{}: {e}", place.path().display())))?;
        let mut child = command(args, &member)
            .and_then(|mut command| command.spawn())
            .map_err(|e| Failure::error(format!("a host cannot be started: {e}")))?;
        let mut stdout = child.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        let line = match &mut stdout {
            Some(lines) => lines.next_line().await?.unwrap_or_default(),
            None => String::new(),
        };
        let base = match serde_json::from_str::<Start>(&line) {
            Ok(Ok(base)) => base,
            Ok(Err(why)) => return Err(Failure::error(why)),
            Err(_) => return Err(Failure::error("the host ended before it was ready; its messages above say why")),
        };
        let (key, manifest) = (found.key.to_string(), found.manifest);
        let round = Self { key, directory: place, base, manifest, child, _stdout: stdout };
        tell(format_args!("{STRONG}serving{STRONG:#} {} at {}", round.key, round.url()));
        Ok(round)
    }

    /// Ends it, and removes its directory.
    async fn end(mut self) {
        // The host ends with its stdin. An error means that it has ended by itself.
        drop(self.child.stdin.take());
        if timeout(END_TIMEOUT, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }

    /// The directory of a job.
    fn job(&self, id: &str) -> PathBuf {
        member_of(&self.directory, &self.key).join("jobs").join(id)
    }

    fn url(&self) -> String {
        format!("{}/mcp", self.base)
    }

    /// Carries out a task, or calls a tool, and shows all that comes of it.
    async fn carry_out(&self, args: &Dev, task: &str) -> Result<(), Failure> {
        let began = Instant::now();
        let access = AccessArgs::of_environment();
        if let Some(line) = task.strip_prefix('/') {
            let (tool, input) = line.split_once(char::is_whitespace).unwrap_or((line, "{}"));
            let local = LocalArgs { members: None, policy: PolicyArgs { config: None } };
            let call = Call {
                member: self.key.clone(),
                tool: tool.to_owned(),
                input: input.trim().to_owned(),
                url: Some(self.base.clone()),
                access,
                local,
                json: false,
            };
            return call::call(call).await;
        }
        if !self.manifest.is_worker() {
            return Err(Failure::error("the member has tools and takes no task; a line such as /TOOL {} calls one"));
        }
        let worker = access.client_of_owner(&self.url())?;
        let dispatched = self.dispatch(&worker, args, task).await?;
        let id: JobId = dispatched.parse().map_err(|_| Failure::error("the host's job has no valid id"))?;
        logs::follow(worker.clone(), id).await?;
        self.tell_not_used(&dispatched);
        let shown = self.job(&dispatched).display().to_string();
        let outcome = worker::outcome(worker, &dispatched, &shown).await;
        tell(format_args!("{LABEL}{:.1?}{LABEL:#}", began.elapsed()));
        outcome
    }

    async fn dispatch(&self, worker: &WorkerHandle, args: &Dev, task: &str) -> Result<String, Failure> {
        let params = DispatchParams {
            description: one_line(task, 80),
            task: task.to_owned(),
            config: args.input.clone(),
            agent: None,
            attachments: Vec::new(),
            follows: None,
        };
        Ok(worker.dispatch(&params).await?.value.job_id.to_string())
    }

    /// Says which parts of a job's plan its runtime did not use.
    fn tell_not_used(&self, job: &str) {
        let plan = fs::read(self.job(job).join("plan.json")).unwrap_or_default();
        let Ok(Planned { agent, session: Some(session) }) = serde_json::from_slice(&plan) else { return };
        if agent != "extractive" {
            return;
        }
        let is_set = |name: &str| {
            let value = session.get(name);
            value.is_some_and(|value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()))
        };
        let mut not_used = vec!["system prompt"];
        not_used.extend(NOT_SEARCHED.iter().filter(|(name, _)| is_set(name)).map(|(_, text)| *text));
        tell(format_args!(
            "{LABEL}the built-in search has no model, and did not use the plan's {}; --agent names another runtime{LABEL:#}",
            not_used.join(", ")
        ));
    }
}

/// The parts of `plan.json` that are shown.
#[derive(Deserialize)]
struct Planned {
    agent: String,
    session: Option<serde_json::Map<String, serde_json::Value>>,
}

/// The directory of the member in a round.
fn member_of(place: &TempDir, key: &str) -> PathBuf {
    place.path().join("members").join(key)
}

/// Copies a member, without what its build needs.
fn copy(member: &Path, from: &Path, manifest: &Manifest, built: &Built) -> io::Result<()> {
    fs::create_dir_all(member)?;
    for name in [FILE_NAME, package::FILE_NAME, POSTURE] {
        match fs::copy(from.join(name), member.join(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            copied => drop(copied?),
        }
    }
    if let Some(spec) = &manifest.component {
        let to = member.join(&spec.file);
        fs::create_dir_all(to.parent().unwrap_or(member))?;
        fs::copy(&built.file, to)?;
    }
    Ok(())
}

/// The command that serves a round.
fn command(args: &Dev, member: &Path) -> io::Result<Command> {
    let mut command = Command::new(guild_confine::executable()?);
    let option = |command: &mut Command, name: &str, value: &OsStr| {
        command.arg(format!("--{name}")).arg(value);
    };
    command.arg0("guild").args(["serve", "--dev"]);
    option(&mut command, "member", member.as_ref());
    option(&mut command, "port", args.port.to_string().as_ref());
    args.session.sources.iter().for_each(|source| option(&mut command, "sources", source.as_ref()));
    args.session.agent.iter().for_each(|agent| option(&mut command, "agent", agent.as_str().as_ref()));
    args.local.members.iter().for_each(|members| option(&mut command, "members", members.as_ref()));
    args.local.policy.config.iter().for_each(|config| option(&mut command, "config", config.as_ref()));
    // Ctrl-C is for this process, which ends the host.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
    Ok(command)
}
