//! `guild dev`: builds a member whenever its source changes, serves it, and runs the last task again.
//!
//! Each run has a copy of the member in a temporary directory, and a host of its own, without the jobs and memories of
//! earlier runs. The host loads the copy without an approval, and no other member. It is a child process, so that all
//! work of the component ends with it.

use std::{
    collections::BTreeSet,
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
use guild_config::Runtime;
use guild_contract::{
    manifest::{FILE_NAME, Manifest, POSTURE, SESSION_TOOLS, package},
    text::size,
};
use guild_jobs::JobTools;
use guild_session::transcript::{Entry, Line};
use notify::{RecursiveMode, Watcher as _};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines, Stdin},
    process::{Child, ChildStdout, Command},
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::timeout,
};

use super::build;
use crate::{
    args::{authors::Dev, members::Call},
    client::AccessArgs,
    failure::Failure,
    jobs::{logs, worker},
    local::{LocalArgs, PolicyArgs},
    members::call,
    output::{LABEL, STRONG, one_line, tell, tell_error},
    serve::Start,
};

/// Directories of a member that are not its source, besides hidden ones.
const NOT_SOURCES: [&str; 6] = ["jobs", "memory", "node_modules", "target", "venv", "__pycache__"];
/// Files that the tools of a language write during a build.
const LOCKS: [&str; 2] = ["Cargo.lock", "package-lock.json"];
/// The longest time that a host may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// The time without changes before a build begins: an editor saves in several steps.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// The event that ends the wait between two runs.
enum Event {
    /// A file of the source changed.
    Changed,
    /// The user typed a line.
    Line(String),
    /// A signal stops the command.
    Stopped,
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
        let mut event = None;
        if let (Some(round), Some(task)) = (&round, &task) {
            tokio::select! {
                ended = round.carry_out(&args, task) => drop(ended.map_err(print)),
                // The session is not awaited: its worker is out of date.
                () = source.changed() => event = Some(Event::Changed),
                () = stop.next() => break,
            }
        }
        let event = match event {
            Some(event) => event,
            None => {
                let again = if task.is_some() { "Enter runs the task again; " } else { "" };
                tell(format_args!("{LABEL}{again}a line is a task, /TOOL JSON calls a tool, Ctrl-C ends{LABEL:#}"));
                tokio::select! {
                    () = source.changed() => Event::Changed,
                    line = next_line(&mut lines) => Event::Line(line),
                    () = stop.next() => Event::Stopped,
                }
            }
        };
        match event {
            Event::Stopped => break,
            Event::Line(line) if !line.trim().is_empty() => task = Some(line),
            Event::Changed | Event::Line(_) => {}
        }
        // An edit may precede a line. The watch begins before the build, so that it notices edits during the build.
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

/// Builds the member in a directory. Prints an error, and returns `None` then.
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
async fn next_line(lines: &mut Option<Lines<BufReader<Stdin>>>) -> String {
    if let Some(open) = lines {
        match open.next_line().await {
            Ok(Some(line)) => return line,
            Ok(None) | Err(_) => *lines = None,
        }
    }
    std::future::pending().await
}

/// The files of a member's source.
struct Source {
    directory: PathBuf,
    /// The files that the build writes.
    outputs: Vec<PathBuf>,
    /// The hash of the source when the watch began. A build may write files, with the same contents each time.
    hash: u64,
    changes: UnboundedReceiver<()>,
    _watcher: notify::RecommendedWatcher,
}

impl Source {
    /// Begins to watch the source in a directory.
    fn watch(directory: &Path) -> Result<Self, Failure> {
        let failed = |e: notify::Error| Failure::error(format!("{} cannot be watched: {e}", directory.display()));
        let outputs = build::project(directory).map(|project| project.outputs()).unwrap_or_default();
        let ignored = outputs.clone();
        let (send, changes) = unbounded_channel();
        let below = directory.to_owned();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let Ok(event) = event else { return };
            let is_change = event.kind.is_create() || event.kind.is_modify() || event.kind.is_remove();
            if is_change && event.paths.iter().any(|path| !ignored.contains(path) && is_source(&below, path)) {
                // The receiver is gone once the watch is over.
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

    /// The hash of the names of files and directories, and of the contents of files and symlinks.
    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let mut directories = vec![self.directory.clone()];
        while let Some(directory) = directories.pop() {
            let mut entries: Vec<_> = fs::read_dir(directory).into_iter().flatten().flatten().collect();
            entries.sort_by_key(fs::DirEntry::path);
            for entry in entries {
                let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
                if !is_source(&self.directory, &path) || self.outputs.contains(&path) {
                    continue;
                }
                path.hash(&mut hasher);
                if kind.is_dir() {
                    directories.push(path);
                } else if kind.is_file() {
                    fs::read(&path).ok().hash(&mut hasher);
                } else if kind.is_symlink() {
                    fs::read_link(&path).ok().hash(&mut hasher);
                }
            }
        }
        hasher.finish()
    }

    /// Waits until the source has changed, and no further change follows at once.
    async fn changed(&mut self) {
        while self.changes.recv().await.is_some() {
            while let Ok(Some(())) = timeout(DEBOUNCE, self.changes.recv()).await {}
            if self.hash() != self.hash {
                return;
            }
        }
        std::future::pending().await
    }
}

/// Whether a path below a member's directory belongs to its source.
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
    /// Starts a host that serves a copy of the built member.
    async fn start(args: &Dev, directory: &Path, built: &Built) -> Result<Self, Failure> {
        let found = build::found(directory)?;
        let failed = |e| Failure::error(format!("no temporary directory: {e}"));
        let temporary = tempfile::Builder::new().prefix("guild-dev-").tempdir().map_err(failed)?;
        let member = member_of(&temporary, found.key.as_str());
        copy(&member, directory, &found.manifest, built)
            .map_err(|e| Failure::error(format!("{}: {e}", temporary.path().display())))?;
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
        let round = Self { key, directory: temporary, base, manifest, child, _stdout: stdout };
        tell(format_args!("{STRONG}serving{STRONG:#} {} at {}", round.key, round.url()));
        Ok(round)
    }

    /// Ends the host, and removes its directory.
    async fn end(mut self) {
        // The host ends when its stdin is closed.
        drop(self.child.stdin.take());
        if timeout(END_TIMEOUT, self.child.wait()).await.is_err() {
            // An error means that the host has ended by itself.
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

    /// Carries out a task, or calls a tool, and shows its course and its result.
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
        self.tell_unused(&dispatched);
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
            key: None,
        };
        Ok(worker.dispatch(&params).await?.value.job_id.to_string())
    }

    /// Prints the parts of a job's sessions that its runtime did not use.
    fn tell_unused(&self, job: &str) {
        let transcript = fs::read_to_string(self.job(job).join("transcript.jsonl")).unwrap_or_default();
        let lines = transcript.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let (mut runtime, mut parts) = (None, BTreeSet::new());
        for line in lines {
            let Entry::Session { agent, model, tools, .. } = line.entry else { continue };
            let Some((named, all)) = agent.parse().ok().and_then(unused) else { continue };
            runtime = Some(named);
            parts.extend(all.iter().filter(|part| part.is_in(model.as_deref(), &tools)).map(|part| part.name()));
        }
        let Some(runtime) = runtime.filter(|_| !parts.is_empty()) else { return };
        let parts = parts.into_iter().collect::<Vec<_>>().join(", ");
        tell(format_args!(
            "{LABEL}{runtime}, and did not use the sessions' {parts}; --agent names another runtime{LABEL:#}"
        ));
    }
}

/// A part of a session that not every runtime uses.
#[derive(Clone, Copy)]
enum Part {
    SystemPrompt,
    Model,
    /// Tools of toolboxes, and tools of the component itself.
    MemberTools,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::SystemPrompt => "system prompt",
            Self::Model => "model",
            Self::MemberTools => "tools of members",
        }
    }

    /// Whether a session with this model and these tools has the part.
    fn is_in(self, model: Option<&str>, tools: &[String]) -> bool {
        match self {
            Self::SystemPrompt => true,
            Self::Model => model.is_some(),
            Self::MemberTools => tools
                .iter()
                .any(|tool| !SESSION_TOOLS.contains(&tool.as_str()) && !JobTools::names().any(|name| name == tool)),
        }
    }
}

/// The parts of sessions that a runtime does not use, and the reason; `None` for a runtime that uses all.
fn unused(runtime: Runtime) -> Option<(&'static str, &'static [Part])> {
    match runtime {
        Runtime::Extractive => {
            Some(("the built-in search has no model", &[Part::SystemPrompt, Part::Model, Part::MemberTools]))
        }
        Runtime::Scripted => Some(("a script stands in for the model", &[Part::Model])),
        Runtime::Claude | Runtime::Api => None,
    }
}

/// The directory of the member in a round.
fn member_of(temporary: &TempDir, key: &str) -> PathBuf {
    temporary.path().join("members").join(key)
}

/// Copies the files of a member that a host reads.
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
    // Ctrl-C signals only this process, which then ends the host.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
    Ok(command)
}
