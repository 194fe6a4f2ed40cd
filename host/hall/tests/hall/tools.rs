//! The tools of a session in a commission, on a real worktree of a real project.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, UNIX_EPOCH},
};

use async_trait::async_trait;
use cap_std::{ambient_authority, fs::Dir};
use guild_contract::{
    Decision, Grants, JobId, Limits,
    capability::{base_toolbox::BaseToolbox, grants::SessionGrants},
    hall::{CommissionStatus, Overrides},
};
use guild_fs::clock::SystemClock;
use guild_git::{
    AttemptBranch, Checkout, DocumentQuota, Git, GitOptions, Integration, Merge, RULES_BYTES, RULES_LINES, Repository,
};
use guild_hall::{
    Activity, Attempt, Hall, Requester,
    tools::{
        ActivityTools, Worktree,
        report::{Report, Reports},
    },
};
use guild_jobs::{JobReport, JobStore, JobTools, MemoryStore, Resume, RunningJob, Sealed, StoreOptions};
use guild_session::{
    tools::{ToolCall, ToolError, Tools},
    transcript::Entry,
};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use crate::support::{Scripted, World, begin, commission, done, git, received, timeline, until, write};

/// What a listener heard, and what it answers.
#[derive(Default)]
struct Heard {
    reports: Mutex<Vec<Report>>,
    is_deaf: AtomicBool,
}

#[async_trait]
impl Reports for Heard {
    async fn report(&self, report: Report) -> Result<(), ToolError> {
        if self.is_deaf.load(Ordering::Relaxed) {
            return Err(ToolError::Unavailable("the record cannot be written".to_owned()));
        }
        self.reports.lock().unwrap().push(report);
        Ok(())
    }
}

/// Takes up the jobs that a host left.
#[derive(Default)]
struct Takes(Mutex<Vec<Arc<RunningJob>>>);

impl Resume for Takes {
    fn check(&self, _: &JobId, _: &Sealed, _: &[Entry]) -> Result<(), String> {
        Ok(())
    }

    fn resume(&self, job: Arc<RunningJob>) {
        self.0.lock().unwrap().push(job);
    }
}

/// An attempt at a commission of the project `demo`.
struct Session {
    world: World,
    hall: Arc<Hall>,
    integration: Arc<Integration>,
    attempt: Attempt,
    limits: Arc<Limits>,
    grants: Arc<Grants>,
    store: Arc<JobStore>,
    job: Arc<RunningJob>,
    heard: Arc<Heard>,
    tools: ActivityTools,
}

/// Documents and files may be written.
fn all() -> Grants {
    Grants {
        base: BaseToolbox::of(["lore:write", "worktree:write"]),
        memory: true,
        sessions: SessionGrants { memory: true, ..SessionGrants::default() },
        artifacts: true,
        ..Grants::default()
    }
}

fn artifact(path: &str, contents: &[u8]) -> JobReport {
    JobReport::Artifact { path: path.to_owned(), contents: contents.to_owned() }
}

fn branch() -> AttemptBranch {
    AttemptBranch::new("claude/commission/commission-Dalton-20261123-183441").unwrap()
}

impl Session {
    async fn new() -> Self {
        Self::with(Checkout::Full, all(), Limits::default()).await
    }

    async fn with(checkout: Checkout, grants: Grants, limits: Limits) -> Self {
        let world = World::new(Scripted::writing());
        write(&world.project("demo"), "run.sh", "#!/bin/sh\n");
        fs::set_permissions(world.project("demo").join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("src/code.rs", world.project("demo").join("link.rs")).unwrap();
        write(&world.project("demo"), ".lore/work/commissions/other.md", "a record\n");
        git(&world.project("demo"), &["add", "--all"]);
        git(&world.project("demo"), &["commit", "--quiet", "--message=More"]);
        let hall = world.open().unwrap();

        let now = || UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let documents = DocumentQuota { files: 1000, bytes: 1 << 30 };
        let (limit, memory_bytes) = (Duration::from_secs(60), 1 << 30);
        let found = Git::find(GitOptions { program: None, limit, memory_bytes, documents, now }).await.unwrap();
        let repository = Repository::open(&found, &world.project("demo"), None).await.unwrap();
        let integration = Arc::new(repository.integration(&world.integration("demo")).await.unwrap());
        let worktree = world.home().join("worktrees/demo/commission-Dalton-20261123-183441");
        integration.start_attempt(&branch(), &worktree, checkout).await.unwrap();

        let limits = Arc::new(limits);
        let store = store(&world, &limits);
        store.load();
        let job = begin(&store, store.new_id());
        let attempt = Attempt {
            token: None,
            activity: Activity::Commission("commission-Dalton-20261123-183441".parse().unwrap()),
            number: 1,
            project: "demo".to_owned(),
            worker: "researcher".parse().unwrap(),
            worker_name: "Dalton".to_owned(),
            job: job.id().clone(),
            title: "T".to_owned(),
            prompt: "P".to_owned(),
            dependencies: Vec::new(),
            overrides: Overrides::default(),
            worktree,
            checkout,
            memory_chars: None,
        };
        let (heard, grants) = (Arc::new(Heard::default()), Arc::new(grants));
        let of = (&world, &hall, &*integration, &attempt);
        let tools = tools(of, &job, &limits, &grants, &heard).await;
        Self { world, hall, integration, attempt, limits, grants, store, job, heard, tools }
    }

    /// The same session, as the next host has it.
    async fn restarted(mut self) -> Self {
        let takes = Arc::new(Takes::default());
        self.store = store(&self.world, &self.limits);
        self.store.set_resume(takes.clone());
        self.store.load();
        self.job = takes.0.lock().unwrap().first().unwrap().clone();
        let of = (&self.world, &self.hall, &*self.integration, &self.attempt);
        self.tools = tools(of, &self.job, &self.limits, &self.grants, &self.heard).await;
        self
    }

    fn dir(&self) -> &Path {
        &self.attempt.worktree
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.dir().join(path)).unwrap()
    }

    async fn call_as(&self, id: &str, name: &str, input: Value) -> Result<Value, ToolError> {
        self.tools.call(ToolCall { id: id.to_owned(), name: name.to_owned(), input }).await
    }

    /// Calls a tool as the only call with this input.
    async fn call(&self, name: &str, input: Value) -> Result<Value, ToolError> {
        self.call_as(&format!("{name} {input}"), name, input).await
    }

    /// The text of a call's refusal.
    async fn refused(&self, name: &str, input: Value) -> String {
        match self.call(name, input.clone()).await {
            Err(error) => error.to_string(),
            Ok(answer) => panic!("{name} {input} answered {answer}"),
        }
    }

    async fn artifact(&self, path: &str, content: &str) -> Result<Value, ToolError> {
        self.call("write_artifact", json!({"relativePath": path, "content": content})).await
    }

    async fn file(&self, path: &str, content: &str) -> Result<Value, ToolError> {
        self.call("workspace_write", json!({"path": path, "content": content})).await
    }

    async fn edit(&self, path: &str, old: &str, new: &str) -> Result<Value, ToolError> {
        self.call("workspace_edit", json!({"path": path, "old": old, "new": new})).await
    }

    async fn list(&self, directory: &str) -> Vec<String> {
        let listed = self.call("list_artifacts", json!({"directory": directory})).await.unwrap();
        listed.as_str().unwrap().lines().map(str::to_owned).collect()
    }

    fn heard(&self) -> Vec<Report> {
        self.heard.reports.lock().unwrap().clone()
    }

    /// A directory outside of the worktree, with a file that stays as it is.
    fn outside(&self) -> PathBuf {
        let outside = self.world.root().join("outside");
        write(&outside, "canary", "alive");
        outside
    }

    fn names(&self) -> Vec<String> {
        self.tools.definitions().iter().map(|tool| tool.name.clone()).collect()
    }
}

fn store(world: &World, limits: &Arc<Limits>) -> Arc<JobStore> {
    let options = StoreOptions { limits: limits.clone(), clock: Arc::new(SystemClock) };
    JobStore::open(&member(world), options).unwrap()
}

fn member(world: &World) -> Dir {
    let member = world.root().join("member");
    fs::create_dir_all(&member).unwrap();
    Dir::open_ambient_dir(member, ambient_authority()).unwrap()
}

async fn tools(
    (world, hall, integration, attempt): (&World, &Arc<Hall>, &Integration, &Attempt),
    job: &Arc<RunningJob>,
    limits: &Arc<Limits>,
    grants: &Arc<Grants>,
    heard: &Arc<Heard>,
) -> ActivityTools {
    let memory = MemoryStore::open(&member(world), limits.clone(), Arc::new(SystemClock)).unwrap();
    let links = integration.repository().links(&attempt.worktree).await.unwrap();
    let repository = integration.repository().clone();
    let worktree = Worktree::open(hall.home(), repository, attempt, links, job.clone(), limits.clone()).unwrap();
    let of_job = JobTools::new(job.clone(), memory).granted(grants);
    ActivityTools::of_commission(of_job, grants, Arc::new(worktree), attempt.checkout, heard.clone())
}

/// Below a directory: all files, and what they hold.
fn below(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() {
            found.extend(below(&path));
        } else {
            found.push((path.clone(), fs::read(&path).unwrap_or_default()));
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn the_tools_are_those_that_are_granted_in_one_order_and_each_once() {
    let everything = Session::new().await;
    assert_eq!(
        everything.names(),
        [
            "read_memory",
            "write_memory",
            "edit_memory",
            "read_artifact",
            "write_artifact",
            "list_artifacts",
            "workspace_write",
            "workspace_edit",
            "report_progress",
            "submit_result",
            "update_summary",
            "record_decision",
            "log_question",
            "store_memory",
        ]
    );
    let granted = Grants { artifacts: true, ..Grants::default() };
    let nothing = Session::with(Checkout::Sparse, granted, Limits::default()).await;
    assert_eq!(
        nothing.names(),
        [
            "read_artifact",
            "list_artifacts",
            "report_progress",
            "submit_result",
            "update_summary",
            "record_decision",
            "log_question",
        ]
    );
    for name in ["write_artifact", "workspace_write", "workspace_edit", "write_memory", "Bash"] {
        assert!(nothing.refused(name, json!({})).await.contains(name));
    }
    // A model is told of what it can do, and of nothing else.
    let definitions = everything.tools.definitions();
    let write = definitions.iter().find(|tool| tool.name == "write_artifact").unwrap();
    assert_eq!(write.input_schema["required"], json!(["relativePath", "content"]));
    assert!(definitions.iter().all(|tool| !tool.description.is_empty()));
}

#[tokio::test]
async fn what_a_session_writes_is_merged_with_its_attempt() {
    let session = Session::new().await;
    session.artifact("reports/a.md", "found\n").await.unwrap();
    session.file("src/new.rs", "fn new() {}\n").await.unwrap();
    session.edit("src/code.rs", "two", "2").await.unwrap();
    assert_eq!(session.heard(), [Report::Artifact { path: "reports/a.md".to_owned() }]);
    session.integration.repository().commit_all(&branch(), session.dir(), "Work").await.unwrap();
    let merged = session.integration.merge_squash(&branch(), "Commission").await.unwrap();
    assert!(matches!(merged, Merge::Merged { .. }));
    let project = session.world.project("demo");
    let changed = git(&project, &["show", "--name-status", "--format=", "claude/main"]);
    assert_eq!(changed, "A\t.lore/reports/a.md\nM\tsrc/code.rs\nA\tsrc/new.rs");
    assert_eq!(git(&project, &["show", "claude/main:src/code.rs"]), "one\n2\nthree");
}

#[tokio::test]
async fn artifacts_are_named_from_lore_on_and_may_be_named_with_it() {
    let session = Session::with(Checkout::Sparse, Grants::default(), Limits::default()).await;
    for path in ["specs/plan.md", ".lore/specs/plan.md"] {
        assert_eq!(session.call("read_artifact", json!({"relativePath": path})).await.unwrap(), "plan\n");
    }
    write(session.dir(), ".lore/a/b.md", "b");
    fs::write(session.dir().join(".lore/a/line\nbreak"), "").unwrap();
    for everywhere in ["", ".", ".lore", ".lore/"] {
        assert_eq!(session.list(everywhere).await, ["a/b.md", "specs/plan.md", "work/commissions/other.md"]);
    }
    for specs in ["specs", "specs/", ".lore/specs"] {
        assert_eq!(session.list(specs).await, ["specs/plan.md"]);
    }
    assert!(session.refused("list_artifacts", json!({"directory": "none"})).await.contains("no directory \"none\""));
    assert!(session.refused("read_artifact", json!({"relativePath": "no.md"})).await.contains("list_artifacts"));
    // What is not text is shown as far as it is, and what is too long not at all.
    fs::write(session.dir().join(".lore/binary"), b"a\xff").unwrap();
    assert_eq!(session.call("read_artifact", json!({"relativePath": "binary"})).await.unwrap(), "a\u{fffd}");
    fs::File::create(session.dir().join(".lore/huge")).unwrap().set_len(8 << 30).unwrap();
    assert!(session.refused("read_artifact", json!({"relativePath": "huge"})).await.contains("1048576"));
    fs::remove_dir_all(session.dir().join(".lore")).unwrap();
    assert_eq!(session.list("").await, ["There are no artifacts."]);
}

#[tokio::test]
async fn a_list_of_many_artifacts_is_cut_and_says_so() {
    let session = Session::with(Checkout::Sparse, Grants::default(), Limits::default()).await;
    for n in 0..1200 {
        write(session.dir(), &format!(".lore/many/{n:04}.md"), "");
    }
    let listed = session.list("many").await;
    assert_eq!((listed.len(), listed[999].as_str()), (1001, "many/0999.md"));
    assert_eq!(listed[1000], "(200 more: name a directory)");
}

#[tokio::test]
async fn no_path_leads_out_of_the_worktree() {
    let session = Session::new().await;
    let outside = session.outside();
    let before = below(session.dir());
    let (long, deep, far) = ("n".repeat(256), vec!["d"; 40].join("/"), vec!["d".repeat(250); 5].join("/"));
    for path in [
        "",
        "/",
        ".",
        "..",
        "/etc/hostname",
        "../a",
        "a/../../../outside/canary",
        "a/..",
        "./a",
        "a//b",
        "a/",
        "a\0b",
        "a\nb",
        "a\u{1b}[2J",
        "a\\b",
        &long,
        &deep,
        &far,
        outside.join("canary").to_str().unwrap(),
    ] {
        session.refused("write_artifact", json!({"relativePath": path, "content": "x"})).await;
        session.refused("read_artifact", json!({"relativePath": path})).await;
        session.refused("workspace_write", json!({"path": path, "content": "x"})).await;
        session.refused("workspace_edit", json!({"path": path, "old": "a", "new": "b"})).await;
        session.refused("submit_result", json!({"summary": "s", "artifacts": [path]})).await;
    }
    for directory in ["..", "../..", "/etc", "a/../..", outside.to_str().unwrap()] {
        session.refused("list_artifacts", json!({"directory": directory})).await;
    }
    assert_eq!(below(session.dir()), before);
    assert_eq!(fs::read_to_string(outside.join("canary")).unwrap(), "alive");
}

#[tokio::test]
async fn the_records_of_the_hall_and_what_git_acts_on_are_never_written() {
    let session = Session::new().await;
    let before = below(session.dir());
    for path in [
        "work/commissions/other.md",
        "work/commissions/commission-Dalton-20261123-183441.md",
        "work/meetings/a.md",
        "commissions/a.md",
        "meetings/a.md",
        "Work/Commissions/other.md",
        "work/commissions./other.md",
        ".lore/work/commissions/other.md",
        "work",
        "a/.git/config",
        ".gitattributes",
        "work/comm\u{200d}issions/a",
    ] {
        let why = session.refused("write_artifact", json!({"relativePath": path, "content": "x"})).await;
        assert!(why.contains("cannot be written by sessions"), "{path}: {why}");
        let path = format!(".lore/{}", path.trim_start_matches(".lore/"));
        session.refused("workspace_write", json!({"path": path, "content": "x"})).await;
        session.refused("workspace_edit", json!({"path": path, "old": "a", "new": "b"})).await;
    }
    for path in [
        ".git",
        ".git/config",
        ".GIT/hooks/post-checkout",
        "sub/.git",
        "git~1/config",
        ".git./config",
        ".gitmodules",
        ".gitattributes",
        "src/.GitAttributes",
        ".LORE/work/commissions/other.md",
        ".lore",
    ] {
        let why = session.refused("workspace_write", json!({"path": path, "content": "x"})).await;
        assert!(why.contains("cannot be written by sessions"), "{path}: {why}");
        session.refused("workspace_edit", json!({"path": path, "old": "a", "new": "b"})).await;
    }
    assert_eq!(below(session.dir()), before);
}

#[tokio::test]
async fn whatever_a_session_may_write_git_commits() {
    let session = Session::new().await;
    let long = format!("{}/{}", "l".repeat(255), "n".repeat(255));
    let paths = [
        ".gitignore",
        "-option",
        "--output=x",
        ":(glob)x",
        "a b",
        "$(touch x)",
        "ünï/ço∂e",
        "con",
        "a.",
        "*.rs",
        "[a]",
        "a;b",
        "'",
        "\"",
        "src/a/b/c/d/e/f",
        &long,
        "HEAD",
        "refs/heads/x",
        "objects/x",
        "a:b",
        "~",
        "@{-1}",
    ];
    for path in paths {
        session.file(path, "text\r\n").await.unwrap();
        session.artifact(&format!("copies/{path}"), "text\r\n").await.unwrap();
    }
    session.integration.repository().commit_all(&branch(), session.dir(), "Work").await.unwrap().unwrap();
    let listed = git(session.dir(), &["ls-tree", "-r", "-z", "--name-only", "HEAD"]);
    let committed: Vec<&str> = listed.split('\0').collect();
    for path in paths {
        assert!(committed.contains(&path) && committed.contains(&format!(".lore/copies/{path}").as_str()), "{path}");
    }
}

#[tokio::test]
async fn symlinks_are_not_followed_and_hard_links_are_broken() {
    let session = Session::new().await;
    let outside = session.outside();
    symlink(&outside, session.dir().join(".lore/out")).unwrap();
    symlink(outside.join("canary"), session.dir().join(".lore/file")).unwrap();
    symlink(outside.join("new"), session.dir().join(".lore/dangling")).unwrap();
    symlink("work/commissions", session.dir().join(".lore/records")).unwrap();
    symlink(&outside, session.dir().join("out")).unwrap();
    for path in ["out/canary", "file", "dangling", "records/other.md", "out"] {
        session.refused("write_artifact", json!({"relativePath": path, "content": "x"})).await;
        let read = session.refused("read_artifact", json!({"relativePath": path})).await;
        assert!(!read.contains("alive") && !read.contains(outside.to_str().unwrap()), "{read}");
        session.refused("submit_result", json!({"summary": "s", "artifacts": [path]})).await;
    }
    session.refused("workspace_write", json!({"path": "out/canary", "content": "x"})).await;
    session.refused("workspace_edit", json!({"path": "out/canary", "old": "alive", "new": "dead"})).await;
    session.refused("list_artifacts", json!({"directory": "out"})).await;
    assert_eq!(session.list("").await, ["specs/plan.md", "work/commissions/other.md"]);

    fs::hard_link(outside.join("canary"), session.dir().join(".lore/hard")).unwrap();
    session.artifact("hard", "own").await.unwrap();
    fs::hard_link(outside.join("canary"), session.dir().join("hard")).unwrap();
    session.edit("hard", "alive", "own").await.unwrap();
    assert_eq!((session.read(".lore/hard"), session.read("hard")), ("own".to_owned(), "own".to_owned()));
    assert_eq!(below(&outside), [(outside.join("canary"), b"alive".to_vec())]);

    // What git has as a link is a file with its target.
    assert_eq!(session.read("link.rs"), "src/code.rs");
    for (name, input) in [
        ("workspace_write", json!({"path": "link.rs", "content": "/etc/passwd"})),
        ("workspace_edit", json!({"path": "link.rs", "old": "src", "new": "/etc"})),
    ] {
        assert!(session.refused(name, input).await.contains("symbolic link"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_swapped_for_a_symlink_meanwhile_leads_nowhere_else() {
    let session = Session::new().await;
    let outside = session.outside();
    let records = session.dir().join(".lore/work/commissions");
    fs::copy(outside.join("canary"), records.join("canary")).unwrap();
    let there = [(&outside, outside.as_path(), "place"), (&records, Path::new("work/commissions"), "other")];
    for (target, leads, place) in there {
        let before = below(target);
        let (place, path) = (session.dir().join(".lore").join(place), place);
        let link = session.dir().join(".lore/link");
        fs::create_dir(&place).unwrap();
        symlink(leads, &link).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let swaps = thread::spawn({
            let (over, link) = (over.clone(), link.clone());
            move || {
                while !over.load(Ordering::Relaxed) {
                    renameat_with(CWD, &place, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
                fs::remove_file(&link).or_else(|_| fs::remove_dir_all(&link)).unwrap();
            }
        });
        let mut written = 0;
        for n in 0..200 {
            written += u32::from(session.artifact(&format!("{path}/{}", n % 3), &n.to_string()).await.is_ok());
            let read = session.call("read_artifact", json!({"relativePath": format!("{path}/canary")})).await;
            assert!(read.is_err(), "{read:?}");
        }
        over.store(true, Ordering::Relaxed);
        swaps.join().unwrap();
        assert!(written > 0);
        assert_eq!(below(target), before);
    }
}

#[tokio::test]
async fn files_are_replaced_whole_and_stay_executable() {
    let session = Session::new().await;
    session.file("run.sh", "#!/bin/sh\necho\n").await.unwrap();
    session.edit("run.sh", "echo", "true").await.unwrap();
    session.file("src/code.rs", "four\n").await.unwrap();
    let mode = |path: &str| fs::metadata(session.dir().join(path)).unwrap().permissions().mode() & 0o111;
    assert_eq!((session.read("run.sh").as_str(), mode("run.sh")), ("#!/bin/sh\ntrue\n", 0o111));
    assert_eq!((session.read("src/code.rs").as_str(), mode("src/code.rs")), ("four\n", 0));
    assert!(session.refused("workspace_write", json!({"path": "src", "content": ""})).await.contains("directory"));
    session.refused("workspace_write", json!({"path": "src/code.rs/a", "content": ""})).await;
    // Nothing is left of how they were made.
    assert_eq!(fs::read_dir(session.world.home().join("state/new")).unwrap().count(), 0);
    assert_eq!(git(session.dir(), &["ls-files", "--others"]), "");
}

#[tokio::test]
async fn an_edit_changes_the_one_place_or_all_where_that_is_said() {
    let session = Session::new().await;
    session.file("a.txt", "x y x\n").await.unwrap();
    let edit = async |old: &str, all: bool| {
        session.refused("workspace_edit", json!({"path": "a.txt", "old": old, "new": "z", "all": all})).await
    };
    assert!(edit("x", false).await.contains("2 times"));
    assert!(edit("q", true).await.contains("does not occur"));
    assert!(edit("", true).await.contains("must not be empty"));
    session.edit("a.txt", "y", "$&").await.unwrap();
    session.call("workspace_edit", json!({"path": "a.txt", "old": "x", "new": "", "all": true})).await.unwrap();
    assert_eq!(session.read("a.txt"), " $& \n");
    assert!(
        session.refused("workspace_edit", json!({"path": "b.txt", "old": "x", "new": ""})).await.contains("no file")
    );
    fs::write(session.dir().join("binary"), b"x\xff").unwrap();
    assert!(
        session.refused("workspace_edit", json!({"path": "binary", "old": "x", "new": ""})).await.contains("UTF-8")
    );
    // A short edit cannot make a file of many gigabytes.
    session.file("a.txt", &"a".repeat(100_000)).await.unwrap();
    let bomb = json!({"path": "a.txt", "old": "a", "new": "b".repeat(100_000), "all": true});
    assert!(session.refused("workspace_edit", bomb).await.contains("10000000000 bytes"));
}

#[tokio::test]
async fn documents_are_written_only_where_that_is_granted_and_other_files_only_where_they_are_checked_out() {
    let of_files = Grants { base: BaseToolbox::of(["worktree:write"]), ..Grants::default() };
    let session = Session::with(Checkout::Full, of_files, Limits::default()).await;
    session.file("src/code.rs", "x").await.unwrap();
    let denied = session.refused("workspace_write", json!({"path": ".lore/a.md", "content": ""})).await;
    assert!(denied.starts_with("not granted: ") && denied.contains("lore:write"), "{denied}");
    session.refused("workspace_edit", json!({"path": ".lore/specs/plan.md", "old": "plan", "new": ""})).await;

    let sparse = Session::with(Checkout::Sparse, all(), Limits::default()).await;
    sparse.edit(".lore/specs/plan.md", "plan", "the plan").await.unwrap();
    assert_eq!(sparse.read(".lore/specs/plan.md"), "the plan\n");
    // The project has this file, unseen.
    let hidden = sparse.refused("workspace_write", json!({"path": "src/code.rs", "content": ""})).await;
    assert!(hidden.contains("checkoutScope"), "{hidden}");
}

#[tokio::test]
async fn what_an_attempt_writes_is_bounded_also_over_a_restart() {
    let limits = Limits { worktree_bytes: 10, worktree_entries: 4, ..Limits::default() };
    let session = Session::with(Checkout::Full, all(), limits).await;
    session.file("d/a", "12345").await.unwrap();
    session.artifact("a.md", "12345").await.unwrap();
    let full = session.refused("workspace_write", json!({"path": "b", "content": "1"})).await;
    assert!(full.contains("limits.worktree_bytes = 10"), "{full}");
    // A file counts as it is last.
    session.file("d/a", "1").await.unwrap();
    session.file("b", "1").await.unwrap();
    let session = session.restarted().await;
    let full = session.refused("workspace_write", json!({"path": "c", "content": ""})).await;
    assert!(full.contains("the fixed limit worktree_entries = 4"), "{full}");
    let full = session.refused("workspace_write", json!({"path": "b", "content": "12345"})).await;
    assert!(full.contains("limits.worktree_bytes = 10"), "{full}");
    session.file("b", "1234").await.unwrap();
    assert!(!session.dir().join("c").exists());
}

#[tokio::test]
async fn a_call_that_comes_again_after_a_restart_has_its_effect_once() {
    let session = Session::new().await;
    session.file("a", "x").await.unwrap();
    let edits = async |session: &Session| {
        for id in ["1.1.0", "1.1.1"] {
            let input = json!({"path": "a", "old": "x", "new": "xx", "all": true});
            session.call_as(id, "workspace_edit", input).await.unwrap();
        }
    };
    edits(&session).await;
    assert_eq!(session.read("a"), "xxxx");
    let session = session.restarted().await;
    edits(&session).await;
    assert_eq!(session.read("a"), "xxxx");

    // The host ended after the last change was noted, and before it was made; and while it noted another.
    fs::write(session.dir().join("a"), "xx").unwrap();
    let noted = session.world.root().join(format!("member/jobs/{}/writes.jsonl", session.job.id()));
    fs::write(&noted, fs::read_to_string(&noted).unwrap() + r#"{"call":"1.1.2","pa"#).unwrap();
    let session = session.restarted().await;
    edits(&session).await;
    assert_eq!(session.read("a"), "xxxx");
    session.file("b", "b").await.unwrap();
    let session = session.restarted().await;
    session.file("b", "b").await.unwrap();
    edits(&session).await;
    assert_eq!(session.read("a"), "xxxx");
    // What asks for something else is another call.
    let other = json!({"path": "a", "old": "xxxx", "new": "y"});
    session.call_as("1.1.0", "workspace_edit", other).await.unwrap();
    assert_eq!(session.read("a"), "y");
}

#[tokio::test]
async fn a_result_is_submitted_once_with_artifacts_that_are_there() {
    let session = Session::new().await;
    session.artifact("reports/a.md", "a").await.unwrap();
    let submit = |summary: &str, artifacts: &[&str]| json!({"summary": summary, "artifacts": artifacts});
    let missing = session.refused("submit_result", submit("done", &["reports/a.md", "reports/b.md"])).await;
    assert!(missing.contains("reports/b.md"), "{missing}");
    assert!(session.refused("submit_result", submit(" ", &[])).await.contains("empty"));
    // The hall has to have it first.
    session.heard.is_deaf.store(true, Ordering::Relaxed);
    assert!(session.refused("submit_result", submit("done", &[])).await.contains("cannot be written"));
    assert!(!session.job.has_submission());
    session.heard.is_deaf.store(false, Ordering::Relaxed);

    let input = submit("done", &[".lore/reports/a.md", "specs/plan.md", "reports/a.md"]);
    for _ in 0..2 {
        session.call_as("1.4.0", "submit_result", input.clone()).await.unwrap();
    }
    assert!(session.call_as("1.4.0", "submit_result", submit("other", &[])).await.is_err());
    let again = session.refused("submit_result", submit("other", &[])).await;
    assert!(again.contains("was submitted before"), "{again}");
    let artifacts = ["reports/a.md", "specs/plan.md"].map(str::to_owned).to_vec();
    let reported = Report::Result { summary: "done".to_owned(), artifacts };
    assert_eq!(session.heard()[1..], [reported]);
    session.job.complete(None).unwrap();
    assert_eq!(session.store.result(session.job.id().as_str()).unwrap().output, "done");
}

#[tokio::test]
async fn progress_questions_and_decisions_are_kept_by_the_job_and_reported() {
    let session = Session::new().await;
    let decision = json!({"question": "q", "decision": "d", "reasoning": "r"});
    let calls = [
        ("report_progress", json!({"summary": "half-way"})),
        ("log_question", json!({"question": "why?"})),
        ("record_decision", decision.clone()),
    ];
    for (name, input) in &calls {
        session.call_as(name, name, input.clone()).await.unwrap();
    }
    let decision: Decision = serde_json::from_value(decision).unwrap();
    let reports = [
        Report::Progress { summary: "half-way".to_owned() },
        Report::Question { question: "why?".to_owned() },
        Report::Decision(decision.clone()),
    ];
    assert_eq!(session.heard(), reports);
    let session = session.restarted().await;
    for (name, input) in &calls {
        session.call_as(name, name, input.clone()).await.unwrap();
    }
    let view = session.job.snapshot();
    assert_eq!(view.summary.as_deref(), Some("half-way"));
    assert_eq!((view.questions, view.decisions), (Some(vec!["why?".to_owned()]), Some(vec![decision])));
}

#[tokio::test]
async fn a_component_reports_where_its_sessions_do() {
    let base = BaseToolbox::of(["lore:write"]);
    let of_documents = Grants { base, ..Grants::default() };
    let session = Session::with(Checkout::Sparse, of_documents, Limits::default()).await;
    let reporting = session.tools.job_tools().reporting().clone();
    let report = async |report: JobReport| reporting.clone().report(report, None).await;
    report(JobReport::Summary("half-way".to_owned())).await.unwrap();
    report(artifact("tables/a.csv", b"1,2")).await.unwrap();
    report(JobReport::Question("why?".to_owned())).await.unwrap();
    assert!(report(artifact("work/commissions/other.md", b"forged")).await.is_err());
    // As WIT says, the last one counts.
    report(JobReport::Result("first".to_owned())).await.unwrap();
    report(JobReport::Result("last".to_owned())).await.unwrap();
    assert_eq!(session.read(".lore/tables/a.csv"), "1,2");
    let result = |summary: &str| Report::Result { summary: summary.to_owned(), artifacts: Vec::new() };
    assert_eq!(
        session.heard(),
        [
            Report::Progress { summary: "half-way".to_owned() },
            Report::Artifact { path: "tables/a.csv".to_owned() },
            Report::Question { question: "why?".to_owned() },
            result("first"),
            result("last"),
        ]
    );
    // A session of its own does not take it back.
    assert!(session.refused("submit_result", json!({"summary": "other"})).await.contains("before"));

    let reader = Session::with(Checkout::Sparse, Grants::default(), Limits::default()).await;
    let denied = reader.tools.job_tools().reporting().clone().report(artifact("a", b""), None).await.unwrap_err();
    assert!(matches!(&denied, ToolError::NotGranted(why) if why.contains("lore:write")), "{denied}");
}

#[tokio::test]
async fn after_the_end_of_the_job_nothing_is_written_or_reported() {
    let session = Session::new().await;
    let before = below(session.dir());
    session.store.cancel(session.job.id().as_str()).unwrap();
    for (name, input) in [
        ("write_artifact", json!({"relativePath": "a.md", "content": "x"})),
        ("workspace_write", json!({"path": "a", "content": "x"})),
        ("workspace_edit", json!({"path": "src/code.rs", "old": "one", "new": "1"})),
        ("report_progress", json!({"summary": "s"})),
        ("submit_result", json!({"summary": "s"})),
        ("log_question", json!({"question": "q"})),
        ("record_decision", json!({"question": "q", "decision": "d", "reasoning": "r"})),
        ("write_memory", json!({"scope": "worker", "path": "k", "content": "c"})),
    ] {
        assert_eq!(session.call(name, input).await, Err(ToolError::JobEnded), "{name}");
    }
    let reporting = session.tools.job_tools().reporting().clone();
    assert_eq!(reporting.report(artifact("a.md", b"x"), None).await, Err(ToolError::JobEnded));
    assert_eq!(below(session.dir()), before);
    assert_eq!(session.heard(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_reports_is_in_the_record_and_told() {
    let workers = Scripted::new(|_| done("All done.\n"));
    workers.hold(true);
    let world = World::new(workers.clone());
    let hall = world.hall().await;
    let mut events = hall.events();
    let id = hall.commissions.create(commission("Look"), &Requester::User).await.unwrap().commission_id;
    hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
    until(&hall, &id, CommissionStatus::InProgress).await;

    let attempt = hall.attempt_of("job-1").unwrap();
    let limits = Arc::new(Limits::default());
    let store = store(&world, &limits);
    store.load();
    let job = begin(&store, attempt.job.clone());
    let memory = MemoryStore::open(&member(&world), limits.clone(), Arc::new(SystemClock)).unwrap();
    let grants = Arc::new(all());
    let of_job = JobTools::new(job.clone(), memory).granted(&grants);
    let tools = hall.tools(&attempt, of_job, &grants, limits).await.unwrap();
    let call = async |name: &str, input: Value| {
        tools.call(ToolCall { id: input.to_string(), name: name.to_owned(), input }).await.unwrap()
    };
    received(&mut events);
    call("write_artifact", json!({"relativePath": "reports/a.md", "content": "a"})).await;
    // After a crash it comes again.
    for summary in ["Half \"done\"", "Half \"done\"", "Nearly"] {
        call("report_progress", json!({"summary": summary})).await;
    }
    call("log_question", json!({"question": "why?"})).await;
    call("submit_result", json!({"summary": "All done.", "artifacts": ["reports/a.md"]})).await;
    let kinds: Vec<String> = received(&mut events).iter().map(|event| event.trim().to_owned()).collect();
    let progress = "commission_progress";
    assert_eq!(kinds, ["commission_artifact", progress, progress, progress, "commission_result"]);
    let detail = hall.commissions.read(id.as_str(), None).await.unwrap();
    assert_eq!(detail.commission.current_progress, "Nearly");
    assert_eq!(detail.commission.linked_artifacts, ["reports/a.md"]);
    let record = fs::read_to_string(attempt.worktree.join(format!(".lore/work/commissions/{id}.md"))).unwrap();
    assert!(record.contains("  - reports/a.md\n") && record.contains("current_progress: \"Nearly\""), "{record}");

    workers.hold(false);
    until(&hall, &id, CommissionStatus::Completed).await;
    // It is over: nothing is added.
    call("report_progress", json!({"summary": "late"})).await;
    let timeline = timeline(&hall, &id).await;
    assert_eq!(
        timeline[3..],
        [
            "progress_report: Half \"done\"",
            "progress_report: Nearly",
            "question: why?",
            "result_submitted: All done.",
            "status_completed: Execution completed",
        ]
    );
    let merged = git(&world.project("demo"), &["show", &format!("claude/main:.lore/work/commissions/{id}.md")]);
    assert!(merged.contains("  - reports/a.md\n"), "{merged}");
}

#[tokio::test]
async fn a_file_that_the_project_ignores_is_refused_with_its_rule() {
    let session = Session::new().await;
    session.file(".gitignore", "build/\n*.log\n").await.unwrap();
    for (path, rule, line) in [("build/out.txt", "build/", 1), ("src/a.log", "*.log", 2)] {
        let refused = session.refused("workspace_write", json!({"path": path, "content": "x"})).await;
        assert!(
            refused.contains(path) && refused.contains(&format!("{rule:?}, line {line} of .gitignore")),
            "{refused}"
        );
        assert!(!session.dir().join(path).exists(), "{path}");
    }
    // Documents are committed in any case, and so is a file that is tracked.
    session.artifact("a.log", "kept").await.unwrap();
    session.file(".gitignore", "*.rs\n").await.unwrap();
    session.file("src/code.rs", "changed\n").await.unwrap();
    session.integration.repository().commit_all(&branch(), session.dir(), "Work").await.unwrap();
    let merged = session.integration.merge_squash(&branch(), "Work").await.unwrap();
    assert!(matches!(merged, Merge::Merged { .. }), "{merged:?}");
    for (file, text) in [(".lore/a.log", "kept"), ("src/code.rs", "changed\n"), (".gitignore", "*.rs\n")] {
        assert_eq!(fs::read_to_string(session.world.integration("demo").join(file)).unwrap(), text);
    }
}

#[tokio::test]
async fn an_ignore_file_that_would_drop_what_was_written_is_refused() {
    let session = Session::new().await;
    // It would leave itself out, too.
    let refused = session.refused("workspace_write", json!({"path": ".gitignore", "content": "*\n"})).await;
    assert!(refused.contains("\"*\", line 1 of .gitignore") && !session.dir().join(".gitignore").exists(), "{refused}");
    session.file("notes.txt", "work").await.unwrap();
    session.file(".gitignore", "*.log\n").await.unwrap();
    let refused = session.refused("workspace_write", json!({"path": ".gitignore", "content": "*.txt\n"})).await;
    assert!(refused.contains("\"notes.txt\", which you wrote"), "{refused}");
    assert_eq!(session.read(".gitignore"), "*.log\n");
    let refused = session.refused("workspace_edit", json!({"path": ".gitignore", "old": "log", "new": "txt"})).await;
    assert!(refused.contains("notes.txt") && session.read(".gitignore") == "*.log\n", "{refused}");
}

#[tokio::test]
async fn an_ignore_file_is_no_larger_than_git_is_given() {
    let session = Session::new().await;
    for (path, text) in
        [("a/.gitignore", "x".repeat(RULES_BYTES + 1)), (".lore/.gitignore", "a\n".repeat(RULES_LINES + 1))]
    {
        let refused = session.refused("workspace_write", json!({"path": path, "content": text})).await;
        assert!(refused.contains("git is given at most"), "{refused}");
    }
    let refused =
        session.refused("write_artifact", json!({"relativePath": ".gitignore", "content": "a\n".repeat(9000)})).await;
    assert!(refused.contains("has 9000 lines"), "{refused}");
    session.file("a/.gitignore", &"x\n".repeat(1000)).await.unwrap();
    let grow = json!({"path": "a/.gitignore", "old": "x", "new": "x".repeat(100_000), "all": true});
    let refused = session.refused("workspace_edit", grow).await;
    assert!(refused.contains("would have 100001000 bytes, and the result of an edit has at most 131072"), "{refused}");
}

#[tokio::test]
async fn ignore_files_are_bounded_together_for_an_attempt() {
    let session = Session::new().await;
    let most = "x\n".repeat(RULES_LINES / 2);
    for path in ["a/.gitignore", ".lore/b/.gitignore"] {
        session.file(path, &most).await.unwrap();
    }
    let refused = session.refused("workspace_write", json!({"path": "c/.gitignore", "content": "y"})).await;
    assert!(refused.contains("5001 lines together") && !session.dir().join("c/.gitignore").exists(), "{refused}");
    // Each counts as it is now.
    session.file("a/.gitignore", "x\n").await.unwrap();
    session.file("c/.gitignore", "y").await.unwrap();
    session.file("a/.gitignore", "").await.unwrap();
}

#[tokio::test]
async fn documents_are_bounded_for_the_whole_project() {
    // The project has one document, and a record, which does not count.
    let limits = Limits { project_documents: 2, project_documents_bytes: 20, ..Limits::default() };
    let session = Session::with(Checkout::Full, all(), limits).await;
    session.artifact("a.md", "1234567890").await.unwrap();
    let full = session.refused("write_artifact", json!({"relativePath": "b.md", "content": "x"})).await;
    assert!(full.contains("the fixed limit project_documents = 2"), "{full}");
    let full = session.refused("workspace_write", json!({"path": ".lore/a.md", "content": "x".repeat(16)})).await;
    assert!(full.contains("limits.project_documents_bytes = 20"), "{full}");
    session.artifact("a.md", &"x".repeat(15)).await.unwrap();
}
