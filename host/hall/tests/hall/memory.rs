//! The memories that workers share, as a session in a commission has them.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant, SystemTime},
};

use cap_std::{ambient_authority, fs::Dir};
use guild_contract::{
    Bounds, Grants, Limits,
    capability::{base_toolbox::BaseToolbox, denial::Denial, grants::SessionGrants},
    hall::Overrides,
    manifest::Scope,
};
use guild_fs::clock::SystemClock;
use guild_git::Checkout;
use guild_hall::{Activity, Attempt, memory::Scopes, tools::memory::MemoryTools};
use guild_jobs::{
    Accepted, Condense, Condensed, Condenser, JobStore, JobTools, MemoryStore, NewJob, RunningJob, ScopedMemory,
    StoreOptions, memory::ScopeNotes,
};
use guild_session::{
    activation::{MemoryNote, Plan},
    meter::Account,
    tools::{ToolCall, ToolError, Tools},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::support::write;

/// The home of a hall, with members beside it.
struct World {
    root: TempDir,
    limits: Arc<Limits>,
}

fn dir(path: &Path) -> Dir {
    fs::create_dir_all(path).unwrap();
    Dir::open_ambient_dir(path, ambient_authority()).unwrap()
}

impl World {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        Self { root: tempfile::tempdir().unwrap(), limits: Arc::new(limits) }
    }

    fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    fn member(&self, name: &str) -> PathBuf {
        self.root.path().join("members").join(name)
    }

    /// The shared memories, as a host has them that starts.
    fn scopes(&self) -> Scopes {
        Scopes::open(&dir(&self.home()), self.limits.clone(), Arc::new(SystemClock)).unwrap()
    }

    fn own(&self, member: &str) -> Arc<MemoryStore> {
        MemoryStore::open(&dir(&self.member(member)), self.limits.clone(), Arc::new(SystemClock)).unwrap()
    }

    /// What a commission of the project `demo` is given, whose worker is `member`.
    fn memory(&self, scopes: &Scopes, member: &str, grants: &Grants) -> ScopedMemory {
        scopes.granted(&attempt(member), self.own(member), grants).unwrap()
    }

    /// The same of a worker that is granted all, in a project with this limit.
    fn within(&self, scopes: &Scopes, member: &str, max_chars: u64) -> ScopedMemory {
        let attempt = Attempt { memory_chars: Some(max_chars), ..attempt(member) };
        scopes.granted(&attempt, self.own(member), &all()).unwrap()
    }

    fn job(&self, member: &str) -> Arc<RunningJob> {
        let options = StoreOptions { limits: self.limits.clone(), clock: Arc::new(SystemClock) };
        let store = JobStore::open(&dir(&self.member(member)), options).unwrap();
        store.load();
        let plan = Accepted {
            agent: "extractive".to_owned(),
            granted_tools: Vec::new(),
            grants: Grants::default(),
            ceiling: Bounds::default(),
            plan: Plan::OwnRun(Bounds::default()),
        };
        let (description, task) = ("d".to_owned(), "t".to_owned());
        store
            .create(NewJob {
                id: store.new_id(),
                description,
                task,
                config: json!({}),
                token: None,
                plan,
                attachments: None,
                activation: None,
                follows: None,
                key: None,
            })
            .unwrap()
    }

    /// The tools of a session of `member`, and its job.
    fn session(&self, scopes: &Scopes, member: &str, grants: &Arc<Grants>) -> (MemoryTools, Arc<RunningJob>) {
        let job = self.job(member);
        (self.tools(scopes, member, &job, grants), job)
    }

    fn tools(&self, scopes: &Scopes, member: &str, job: &Arc<RunningJob>, grants: &Arc<Grants>) -> MemoryTools {
        let tools = JobTools::new(job.clone(), self.memory(scopes, member, grants));
        MemoryTools::new(Arc::new(tools), grants)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.home().join(path)).unwrap()
    }
}

/// An attempt at a commission of the project `demo`.
fn attempt(member: &str) -> Attempt {
    Attempt {
        token: None,
        activity: Activity::Commission(format!("commission-{member}-20261123-183441").parse().unwrap()),
        number: 1,
        project: "demo".to_owned(),
        worker: member.parse().unwrap(),
        worker_name: member.to_owned(),
        job: "job-1".parse().unwrap(),
        title: "T".to_owned(),
        prompt: "P".to_owned(),
        dependencies: Vec::new(),
        overrides: Overrides::default(),
        worktree: PathBuf::new(),
        checkout: Checkout::Sparse,
        memory_chars: None,
    }
}

/// `scope:key` of each.
fn names(notes: &[MemoryNote]) -> Vec<String> {
    notes.iter().map(|note| format!("{}:{}", note.scope.as_str(), note.key)).collect()
}

/// All of memory is granted.
fn all() -> Arc<Grants> {
    Arc::new(granted(&["memory:project", "memory:project:write", "memory:global", "memory:global:write"]))
}

/// These parts of the base toolbox are granted.
fn granted(parts: &[&str]) -> Grants {
    Grants {
        memory: true,
        sessions: SessionGrants { memory: true, ..SessionGrants::default() },
        base: BaseToolbox::of(parts.iter().copied()),
        ..Grants::default()
    }
}

/// Calls a tool as the only call of that id.
async fn call_as(tools: &MemoryTools, id: &str, name: &str, input: Value) -> Result<Value, ToolError> {
    tools.call(ToolCall { id: id.to_owned(), name: name.to_owned(), input }).await
}

async fn call(tools: &MemoryTools, name: &str, input: Value) -> Result<Value, ToolError> {
    call_as(tools, &input.to_string(), name, input.clone()).await
}

fn append(text: &str) -> Value {
    json!({"scope": "project", "path": "log", "operation": "append", "content": text})
}

/// Sets when a note was written, in seconds after a moment.
fn written(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds);
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn two_members_that_write_to_one_projects_memory_at_once_lose_nothing() {
    let world = World::new();
    let scopes = world.scopes();
    let members = ["ann", "bob"].map(|member| {
        let tools = JobTools::new(world.job(member), world.memory(&scopes, member, &all()));
        (member, tools)
    });
    thread::scope(|threads| {
        for (member, tools) in &members {
            threads.spawn(move || {
                for n in 0..40 {
                    let line = format!("{member} {n}");
                    tools.store_memory(Scope::Project, &format!("{member}-{n}"), &line, None).unwrap();
                    tools.append_memory(Scope::Project, "log", &line, None).unwrap();
                }
            });
        }
    });
    let log = world.read("memory/projects/demo/log.md");
    for member in ["ann", "bob"] {
        let own: Vec<_> = log.lines().filter(|line| line.starts_with(member)).collect();
        assert_eq!(own, (0..40).map(|n| format!("{member} {n}")).collect::<Vec<_>>());
        for n in 0..40 {
            assert_eq!(world.read(&format!("memory/projects/demo/{member}-{n}.md")), format!("{member} {n}"));
        }
    }
    // Another project, and the members themselves, have none of it.
    assert!(scopes.project("other").unwrap().list().unwrap().is_empty());
    assert!(world.own("ann").list().unwrap().is_empty());
}

#[test]
fn what_is_injected_is_recent_first_over_all_scopes_and_within_the_limit_to_the_character() {
    let world = World::new();
    let scopes = world.scopes();
    world.memory(&scopes, "ann", &all());
    let files = [
        (world.member("ann").join("memory/mine.md"), "mine mine "),
        (world.home().join("memory/projects/demo/ours.md"), "ours ours "),
        (world.home().join("memory/global/theirs.md"), "theirs, and long"),
        (world.member("ann").join("memory/old.md"), "old"),
    ];
    let order = |times: [u64; 4], max_chars: u64| {
        for ((path, content), time) in files.iter().zip(times) {
            fs::write(path, content).unwrap();
            written(path, time);
        }
        names(&world.within(&scopes, "ann", max_chars).injection())
    };
    let newest_first = ["global:theirs", "project:ours", "worker:mine", "worker:old"];
    assert_eq!(order([2, 3, 4, 1], 32_000), newest_first);
    // With the separators between them: 16 + 5 + 10 + 5 + 10 = 46, and 5 + 3 more for the last.
    assert_eq!(order([2, 3, 4, 1], 54), newest_first);
    assert_eq!(order([2, 3, 4, 1], 53), newest_first[..3]);
    // A scope whose note has no room keeps the others from none of theirs.
    assert_eq!(order([1, 4, 3, 2], 18), ["project:ours", "worker:old"]);
    // At the same time, the narrower scope is first.
    assert_eq!(order([1, 1, 1, 1], 32_000), ["worker:mine", "worker:old", "project:ours", "global:theirs"]);
}

#[test]
fn a_busy_scope_takes_nothing_from_the_others_and_what_is_left_out_is_said() {
    let world = World::new();
    let scopes = world.scopes();
    world.memory(&scopes, "ann", &all());
    let note = |path: PathBuf, time: u64| {
        fs::write(&path, "x".repeat(100)).unwrap();
        written(&path, time);
    };
    let given = |max_chars: u64| {
        let notes = world.within(&scopes, "ann", max_chars).injection();
        let size: usize = notes.iter().map(|note| note.content.chars().count() + 5).sum();
        assert!(size as u64 <= max_chars + 5, "{size}");
        (names(&notes), notes.last().map(|note| note.content.clone()).unwrap_or_default())
    };
    for n in 0..20 {
        note(world.home().join(format!("memory/projects/demo/{n}.md")), 100 + n);
    }
    // Nobody else needs the room.
    assert_eq!(given(2_095).0.len(), 20);
    let (names, said) = given(1_000);
    assert_eq!((names[0].as_str(), names.len()), ("project:19", 9));
    assert!(
        said.starts_with("Left out of these notes for want of room: 12 (project). `read_memory` has them"),
        "{said}"
    );
    assert_eq!(names[8], "worker:left-out");

    // The others were written long before.
    note(world.member("ann").join("memory/a.md"), 2);
    note(world.member("ann").join("memory/b.md"), 1);
    for n in 0..9 {
        note(world.home().join(format!("memory/global/{n}.md")), 10 + n);
    }
    let (names, said) = given(1_000);
    let expected = [
        "project:19",
        "project:18",
        "project:17",
        "global:8",
        "global:7",
        "global:6",
        "worker:a",
        "worker:b",
        "worker:left-out",
    ];
    assert_eq!(names, expected);
    assert!(said.contains(": 17 (project), 6 (global). "), "{said}");
    // A limit that has no room for the statement has none, and is a limit all the same.
    assert_eq!(given(100).0, ["worker:a"]);
    assert!(given(0).0.is_empty());
}

#[tokio::test]
async fn a_scope_that_was_not_granted_names_the_grant_and_is_not_made() {
    let world = World::new();
    let scopes = world.scopes();
    let mut grants = granted(&[]);
    for part in ["memory:project", "memory:project:write", "memory:global:write"] {
        let why = "[member.\"ann\"] in guild.toml denies it".to_owned();
        grants.base.denied.insert(part.to_owned(), Denial::Reason(why));
    }
    let grants = Arc::new(grants);
    let (tools, _job) = world.session(&scopes, "ann", &grants);
    let refused = async |name: &str, input: Value| match call(&tools, name, input).await {
        Err(ToolError::NotGranted(text)) => text,
        other => panic!("{name}: {other:?}"),
    };
    let write = |scope: &str| json!({"scope": scope, "path": "a", "content": "c"});
    let why = refused("write_memory", write("project")).await;
    assert!(why.contains("`memory:project:write`") && why.contains("in guild.toml denies it"), "{why}");
    let why = refused("write_memory", write("global")).await;
    assert!(why.contains("`memory:global:write`") && why.contains("in guild.toml denies it"), "{why}");
    let why = refused("read_memory", json!({"scope": "project"})).await;
    assert!(why.contains("`memory:project`") && why.contains("in guild.toml denies it"), "{why}");
    refused("edit_memory", json!({"scope": "global", "path": "a", "operation": "delete"})).await;
    call(&tools, "write_memory", write("worker")).await.unwrap();
    assert_eq!(fs::read_to_string(world.member("ann").join("memory/a.md")).unwrap(), "c");
    assert!(!world.home().join("memory").exists());
    let memory = world.memory(&scopes, "ann", &grants);
    assert_eq!((memory.scopes(), memory.injection().len()), (vec![Scope::Worker], 1));

    // Work that is no commission has the worker's own.
    let own = ScopedMemory::from(world.own("ann"));
    let why = own.scope(Scope::Project).err().unwrap().to_string();
    assert!(why.contains("`memory:project` is there in commissions only"), "{why}");
}

#[tokio::test]
async fn tools_that_were_not_granted_do_not_exist() {
    let world = World::new();
    let scopes = world.scopes();
    let names = |grants: &Arc<Grants>| {
        let (tools, _job) = world.session(&scopes, "ann", grants);
        tools.definitions().iter().map(|tool| tool.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&all()), ["read_memory", "write_memory", "edit_memory"]);
    let reading = Arc::new(Grants { sessions: SessionGrants::default(), ..(*all()).clone() });
    assert_eq!(names(&reading), ["read_memory"]);
    let (tools, _job) = world.session(&scopes, "ann", &reading);
    let schema = &tools.definitions()[0].input_schema;
    assert_eq!(schema["properties"]["scope"]["enum"], json!(["worker", "project", "global"]), "{schema}");
    let error = call(&tools, "write_memory", json!({"scope": "worker", "path": "a", "content": "c"})).await;
    assert!(matches!(error, Err(ToolError::InvalidInput(text)) if text.contains("no tool")));
}

#[tokio::test]
async fn a_session_writes_reads_adds_to_and_deletes_notes() {
    let world = World::new();
    let (tools, job) = world.session(&world.scopes(), "ann", &all());
    let note = |text: &str| json!({"scope": "global", "path": "moths.md", "content": text});
    call(&tools, "write_memory", note("Moths fly at night.\n")).await.unwrap();
    let adding = json!({"scope": "global", "section": "moths", "operation": "append", "content": "Some by day."});
    call(&tools, "edit_memory", adding).await.unwrap();
    let reading = json!({"scope": "global", "path": "moths"});
    assert_eq!(call(&tools, "read_memory", reading).await.unwrap(), "Moths fly at night.\nSome by day.");
    let list = call(&tools, "read_memory", json!({"scope": "global"})).await.unwrap();
    assert_eq!((list[0]["path"].as_str(), list[0]["bytes"].as_u64()), (Some("moths"), Some(32)));
    let delete = json!({"scope": "global", "path": "moths", "operation": "delete"});
    assert_eq!(call(&tools, "edit_memory", delete.clone()).await.unwrap(), "The note is deleted.");
    assert_eq!(call(&tools, "edit_memory", delete).await.unwrap(), "There was no such note.");
    let gone = call(&tools, "read_memory", json!({"scope": "global", "path": "moths"})).await.unwrap_err();
    assert!(gone.to_string().contains("without `path` lists them"), "{gone}");
    for (name, input) in [
        ("write_memory", json!({"scope": "all", "path": "a", "content": "c"})),
        ("write_memory", json!({"scope": "global", "path": "../a", "content": "c"})),
        ("write_memory", json!({"scope": "global", "path": "compacted", "content": "c"})),
        ("edit_memory", json!({"scope": "global", "path": "a", "operation": "append"})),
        ("edit_memory", json!({"scope": "global", "path": "a"})),
    ] {
        assert!(matches!(call(&tools, name, input.clone()).await, Err(ToolError::InvalidInput(_))), "{input}");
    }

    // A job that has ended changes nothing.
    job.complete(Some("done")).unwrap();
    assert_eq!(call(&tools, "write_memory", note("too late")).await, Err(ToolError::JobEnded));
    assert_eq!(call(&tools, "edit_memory", append("too late")).await, Err(ToolError::JobEnded));
    let delete = json!({"scope": "global", "path": "moths", "operation": "delete"});
    assert_eq!(call(&tools, "edit_memory", delete).await, Err(ToolError::JobEnded));
}

#[tokio::test]
async fn a_call_that_comes_again_takes_effect_once_also_where_others_have_written_since() {
    let world = World::new();
    let log = || world.read("memory/projects/demo/log.md");
    let scopes = world.scopes();
    let (ann, job) = world.session(&scopes, "ann", &all());
    call_as(&ann, "1.1", "edit_memory", append("one")).await.unwrap();
    call_as(&ann, "1.2", "edit_memory", append("one")).await.unwrap();
    assert_eq!(log(), "one\none");

    // A host that starts again resumes the job, and its last call comes again.
    let scopes = world.scopes();
    let ann = world.tools(&scopes, "ann", &job, &all());
    call_as(&ann, "1.2", "edit_memory", append("one")).await.unwrap();
    assert_eq!(log(), "one\none");
    let (bob, _job) = world.session(&scopes, "bob", &all());
    call_as(&bob, "1.2", "edit_memory", append("two")).await.unwrap();
    call_as(&ann, "1.2", "edit_memory", append("one")).await.unwrap();
    assert_eq!(log(), "one\none\ntwo");
    // Another call under the same id is one of its own.
    call_as(&ann, "1.2", "edit_memory", append("three")).await.unwrap();
    assert_eq!(log(), "one\none\ntwo\nthree");

    // A crash after the call was noted and before the text was written.
    fs::write(world.home().join("memory/projects/demo/log.md"), "one\none\ntwo").unwrap();
    call_as(&ann, "1.2", "edit_memory", append("three")).await.unwrap();
    assert_eq!(log(), "one\none\ntwo\nthree");
    call_as(&ann, "1.2", "edit_memory", append("three")).await.unwrap();
    assert_eq!(log(), "one\none\ntwo\nthree");
}

#[tokio::test]
async fn notes_of_the_original_are_read_and_never_written() {
    let world = World::new();
    let files = [
        ("memory/global.md", "About us.\n\n## Style\nShort words.\n### Why\nThey are read.\n## moths.md\nOf old.\n"),
        ("memory/projects/demo.md", "## Deploy key\nRotates in March.\n"),
        ("memory/workers/ann.md", "## Habits\nAsk first.\n"),
    ];
    for (file, text) in files {
        write(&world.home(), file, text);
        written(&world.home().join(file), 1);
    }
    let unchanged = || {
        for (file, text) in files {
            let written = fs::metadata(world.home().join(file)).unwrap().modified().unwrap();
            let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_001);
            assert_eq!((world.read(file).as_str(), written), (text, then), "{file}");
        }
    };
    let scopes = world.scopes();
    let (tools, _job) = world.session(&scopes, "ann", &all());
    let read = async |scope: &str, path: &str| call(&tools, "read_memory", json!({"scope": scope, "path": path})).await;
    assert_eq!(read("global", "Style").await.unwrap(), "Short words.\n### Why\nThey are read.");
    assert_eq!(read("global", "style").await.unwrap(), "Short words.\n### Why\nThey are read.");
    assert_eq!(read("project", "Deploy key").await.unwrap(), "Rotates in March.");
    assert_eq!(read("worker", "Habits").await.unwrap(), "Ask first.");

    let injected = || names(&world.memory(&scopes, "ann", &all()).injection());
    let theirs = ["worker:Habits", "project:Deploy key", "global:preamble", "global:Style", "global:moths"];
    assert_eq!(injected(), theirs);

    // A note of the host's with the same key is the one that exists.
    call(&tools, "write_memory", json!({"scope": "global", "path": "moths", "content": "Of today."})).await.unwrap();
    let adding = json!({"scope": "global", "path": "Style", "operation": "append", "content": "No riddles."});
    call(&tools, "edit_memory", adding).await.unwrap();
    assert_eq!(read("global", "moths").await.unwrap(), "Of today.");
    assert_eq!(read("global", "Style").await.unwrap(), "Short words.\n### Why\nThey are read.\nNo riddles.");
    let mut newest = injected();
    newest[..2].sort();
    assert_eq!(newest, ["global:Style", "global:moths", "worker:Habits", "project:Deploy key", "global:preamble"]);
    let deleted = json!({"scope": "worker", "path": "Habits", "operation": "delete"});
    let why = call(&tools, "edit_memory", deleted).await.unwrap_err().to_string();
    assert!(why.contains("memory/workers/ann.md") && why.contains("a person"), "{why}");
    unchanged();
    assert!(!world.home().join("memory/workers/ann").exists());

    // Another worker's are nobody else's, whatever a worker is called.
    for worker in ["bob", "../global", "..", "."] {
        let attempt = Attempt { worker_name: worker.to_owned(), ..attempt("bob") };
        let memory = scopes.granted(&attempt, world.own("bob"), &Grants { memory: true, ..Grants::default() });
        assert!(memory.unwrap().injection().is_empty(), "{worker}");
    }
    assert!(scopes.project("../global").is_err());
}

#[tokio::test]
async fn each_note_says_who_wrote_it_and_one_that_a_person_edited_does_not() {
    let world = World::new();
    let scopes = world.scopes();
    let (ann, _job) = world.session(&scopes, "ann", &all());
    let (bob, _job) = world.session(&scopes, "bob", &all());
    let listed = async |scope: &str| {
        let list = call(&ann, "read_memory", json!({"scope": scope})).await.unwrap();
        list.as_array().unwrap().iter().map(|note| note["writtenBy"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let prompt = || world.memory(&scopes, "ann", &all()).injection();
    let log = world.home().join("memory/projects/demo/log.md");

    call(&ann, "edit_memory", append("one")).await.unwrap();
    let by_ann = "ann in commission-ann-20261123-183441";
    assert_eq!(listed("project").await, [Some(by_ann.to_owned())]);
    call(&bob, "edit_memory", append("two")).await.unwrap();
    let by_both = format!("bob in commission-bob-20261123-183441, {by_ann}");
    assert_eq!(listed("project").await, [Some(by_both.clone())]);
    let text = format!("[Written by {by_both}. Check it before you rely on it.]\n\none\ntwo");
    assert_eq!(prompt()[0].content, text);
    // The text is in the file, and for whoever asks for it, as it was written.
    let reading = json!({"scope": "project", "path": "log"});
    assert_eq!(call(&ann, "read_memory", reading).await.unwrap(), "one\ntwo");
    assert_eq!(fs::read_to_string(&log).unwrap(), "one\ntwo");

    // A person's text is not for the worker to answer for, also where it adds to it.
    fs::write(&log, "a person's").unwrap();
    assert_eq!(listed("project").await, [None]);
    assert_eq!(prompt()[0].content, "a person's");
    call(&bob, "edit_memory", append("three")).await.unwrap();
    assert_eq!(listed("project").await, [Some("bob in commission-bob-20261123-183441 and others".to_owned())]);
    // A note that replaces it is of who wrote that.
    let note = json!({"scope": "project", "path": "log", "content": "new"});
    call(&ann, "write_memory", note).await.unwrap();
    assert_eq!(listed("project").await, [Some(by_ann.to_owned())]);

    // Its own notes are given as they are.
    call(&ann, "write_memory", json!({"scope": "worker", "path": "own", "content": "mine"})).await.unwrap();
    assert_eq!(listed("worker").await, [Some(by_ann.to_owned())]);
    assert!(prompt().iter().any(|note| note.scope == Scope::Worker && note.content == "mine"));

    // Older hosts stored the job alone.
    let origins = log.with_file_name(".origin.json");
    let mut stored: Value = serde_json::from_slice(&fs::read(&origins).unwrap()).unwrap();
    stored["log"].as_object_mut().unwrap().remove("writers");
    fs::write(&origins, stored.to_string()).unwrap();
    let by_job = format!("job {}", stored["log"]["job"].as_str().unwrap());
    assert_eq!(listed("project").await, [Some(by_job.clone())]);
    assert!(prompt().iter().any(|note| note.content.contains(&by_job)), "{:?}", prompt());
}

/// A condenser that keeps a beginning of each note, and what it was given.
fn condenser() -> (Condenser, Arc<Mutex<Vec<Vec<MemoryNote>>>>) {
    let given = Arc::new(Mutex::new(Vec::new()));
    let sessions = given.clone();
    let condense: Condense = Arc::new(move |notes, _, _| {
        let beginning = |note: &MemoryNote| note.content.chars().take(12).collect::<String>();
        let text = notes.iter().map(beginning).collect::<Vec<_>>().join("\n");
        sessions.lock().unwrap().push(notes);
        Box::pin(async { Condensed { text: Ok(text), account: Account::default(), seconds: 0.1 } })
    });
    (Condenser { agent: "extractive".to_owned(), condense }, given)
}

/// The keys of a scope, once no compaction of it is under way.
async fn settled(notes: &ScopeNotes) -> Vec<String> {
    let until = Instant::now() + Duration::from_secs(10);
    while notes.kept().is_compacting() {
        assert!(Instant::now() < until, "the compaction does not end");
        tokio::task::yield_now().await;
    }
    let mut keys: Vec<_> = notes.kept().list().unwrap().into_iter().map(|entry| entry.key).collect();
    keys.sort();
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_whose_own_limit_is_small_condenses_its_own_notes_alone() {
    let world = World::with(Limits { memory_compaction_chars: 100, ..Limits::default() });
    let scopes = world.scopes();
    let (condenser, given) = condenser();
    scopes.set_condenser(&condenser, &Handle::current());
    let wide = world.memory(&scopes, "ann", &all());
    wide.worker().kept().set_condenser(condenser.clone(), Handle::current());
    let tools = JobTools::new(world.job("ann"), wide.clone());
    for scope in wide.scopes() {
        for key in ["a", "b"] {
            let content = format!("{} {}", scope.as_str(), "x".repeat(300));
            tools.store_memory(scope, key, &content, None).unwrap();
        }
    }
    // All have room, whatever a dispatched job would do.
    assert_eq!((wide.injection().len(), given.lock().unwrap().len()), (6, 0));
    // Also in a smaller project, as long as it is not too small for all of them.
    let narrow = world.within(&scopes, "ann", 3_000);
    narrow.condense();
    assert_eq!(settled(narrow.scope(Scope::Project).unwrap()).await, ["a", "b"]);

    let narrow = world.within(&scopes, "ann", 1_500);
    narrow.worker().kept().set_condenser(condenser, Handle::current());
    assert_eq!(narrow.injection().last().map(|note| note.key.as_str()), Some("left-out"));
    narrow.condense();
    let keys = async |scope: Scope| settled(narrow.scope(scope).unwrap()).await;
    assert_eq!(keys(Scope::Project).await, ["compacted"]);
    assert_eq!(
        (keys(Scope::Worker).await, keys(Scope::Global).await),
        (vec!["a".into(), "b".into()], vec!["a".into(), "b".into()])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_exceeds_the_limit_is_condensed_each_scope_by_itself_and_says_from_whose_notes() {
    let world = World::with(Limits { commission_memory_chars: 900, memory_injection_chars: 400, ..Limits::default() });
    let scopes = world.scopes();
    let memory = world.memory(&scopes, "ann", &all());
    let tools = JobTools::new(world.job("ann"), memory.clone());
    for scope in memory.scopes() {
        for key in ["a", "b"] {
            let content = format!("{} {key} {}", scope.as_str().to_uppercase(), "x".repeat(200));
            tools.store_memory(scope, key, &content, None).unwrap();
        }
    }
    fs::write(world.home().join("memory/global/by-hand.md"), "GLOBAL, by hand").unwrap();
    let (condenser, given) = condenser();
    scopes.set_condenser(&condenser, &Handle::current());
    memory.worker().kept().set_condenser(condenser, Handle::current());
    // What is stored next is one note too many.
    tools.store_memory(Scope::Project, "c", "PROJECT c", None).unwrap();
    for scope in memory.scopes() {
        assert_eq!(settled(memory.scope(scope).unwrap()).await, ["compacted"]);
    }
    let notes = memory.injection();
    let said = |scope: Scope| notes.iter().find(|note| note.scope == scope).unwrap().content.lines().next().unwrap();
    let by = |whose: &str| {
        format!("[Written by the host, which condensed notes of {whose}. Check it before you rely on it.]")
    };
    assert_eq!(
        (notes.len(), said(Scope::Project), said(Scope::Global)),
        (3, by("ann").as_str(), by("ann and others").as_str())
    );
    let list = memory.scope(Scope::Global).unwrap().writers().unwrap();
    assert_eq!(list["compacted"], "the host, which condensed notes of ann and others");
    // There is nothing left to condense.
    memory.condense();
    let sessions = given.lock().unwrap();
    assert_eq!(sessions.len(), 3);
    assert!(sessions.iter().all(|notes| notes.iter().all(|note| note.scope == notes[0].scope)));

    let texts = |dir: PathBuf| {
        let files = fs::read_dir(dir).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
        files.map(|bytes| String::from_utf8(bytes).unwrap()).collect::<String>()
    };
    let (project, global) = (world.home().join("memory/projects/demo"), world.home().join("memory/global"));
    assert!(texts(project.clone()).contains("PROJECT a") && !texts(project).contains("WORKER"));
    let global = texts(global);
    assert!(global.contains("GLOBAL b") && !global.contains("WORKER") && !global.contains("PROJECT"), "{global}");
    assert!(texts(world.member("ann").join("memory")).contains("WORKER a"));
    let edited = world.home().join("memory/projects/demo/compacted.md");
    fs::write(&edited, "a person's").unwrap();
    assert!(memory.scope(Scope::Project).unwrap().writers().unwrap().is_empty());
    // The limits of a host that reads guild.toml again hold for the stores that are open.
    scopes.set_limits(&Arc::new(Limits { memory_entries: 1, ..Limits::default() }));
    let full = tools.store_memory(Scope::Global, "c", "c", None).unwrap_err();
    assert!(full.to_string().contains("the fixed limit memory_entries"), "{full}");
}
