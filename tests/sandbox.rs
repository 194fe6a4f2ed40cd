//! The sandbox by its own functions: what a component may import, what it costs to loop, grow or trap, and that it
//! finds only the directories that it was given.

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use guild_contract::{
    Bounds, Limits,
    capability::grants::{Pattern, Rule},
    manifest::{Interface, Scope},
};
use guild_fs::clock::SystemClock;
use guild_jobs::{MemoryStore, ScopedMemory, memory::ScopeNotes};
use guild_sandbox::{CallError, Candidate, CompileCache, LoadError};
use guild_session::activation::{Plan, Refusal};
use serde_json::{Value, json};

use crate::support::{
    guest::{self, Guest},
    sandbox::{Bench, autonomous, worker},
};

fn refused(bytes: &[u8], component: Value) -> String {
    Bench::new(Limits::default()).prepare(bytes, component).err().expect("it was loaded").to_string()
}

#[test]
fn the_host_links_what_wit_says() {
    let bench = Bench::new(Limits::default());
    let mut grants = guest::everything();
    grants["hall"] = json!({"read": true, "manage": true});
    for world in ["worker", "autonomous-worker"] {
        let spec = json!({"file": "guest.wasm", "world": world, "grants": grants});
        bench.prepare(&guest::dummy(world), spec).unwrap();
    }
    // No function may be left out by a world that does not use it: the interfaces that a manifest can ask for are
    // those that some world imports.
    let mut asked: Vec<&str> = Interface::ALL.iter().map(|i| i.as_str()).collect();
    asked.sort_unstable();
    let mut imported: Vec<String> =
        guest::imported_functions().iter().map(|f| f.split_once('#').unwrap().0.to_owned()).collect();
    imported.sort_unstable();
    imported.dedup();
    assert_eq!(imported, asked);
}

#[test]
fn what_is_no_component_is_refused_with_what_it_is_instead() {
    assert!(refused(b"", worker()).contains("does not begin like WebAssembly"));
    assert!(refused(b"#!/bin/sh", worker()).contains("does not begin like WebAssembly"));
    assert!(refused(&wat::parse_str("(module)").unwrap(), worker()).contains("core module"));
    assert!(refused(b"\x7fELF\x02\x01\x01", worker()).contains("precompiled"));
    let whole = guest::worker("unreachable");
    assert!(refused(&whole[..whole.len() - 1], worker()).contains("not a WebAssembly component"));
}

#[test]
fn an_import_that_was_not_asked_for_is_refused_with_the_line_to_add() {
    let world = "import guild:worker/log@0.1.0; export guild:worker/dispatch@0.1.0;";
    let module = guest_that_logs();
    let error = refused(&guest::component(world, &module), worker());
    assert!(error.contains("guild:worker/log@0.1.0") && error.contains("\"log\": {}"), "{error}");
    let asked = json!({"file": "guest.wasm", "world": "worker", "grants": {"log": {}}});
    Bench::new(Limits::default()).prepare(&guest::component(world, &module), asked).unwrap();
}

fn guest_that_logs() -> String {
    "(module
       (import \"guild:worker/log@0.1.0\" \"write\" (func $write (param i32 i32 i32)))
       (memory (export \"memory\") 1)
       (data (i32.const 16) \"checking\\nforged: a line\")
       (func (export \"guild:worker/dispatch@0.1.0#activate\") (param i32) (result i32)
         (call $write (i32.const 1) (i32.const 16) (i32.const 23))
         (i32.store8 (i32.const 4096) (i32.const 1)) (i32.const 4096))
       (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32) (i32.const 8192)))"
        .to_owned()
}

#[test]
fn with_strict_imports_nothing_is_linked_that_was_not_granted() {
    let mut bench = Bench::new(Limits::default());
    bench.policy.web = true;
    bench.policy.strict_imports = true;
    let refused = |bench: &Bench, bytes: &[u8]| {
        let asked = json!({"file": "guest.wasm", "world": "worker", "grants": {"log": {}}});
        bench.prepare(bytes, asked).err().map(|error| error.to_string())
    };
    let world = "import guild:worker/log@0.1.0; export guild:worker/dispatch@0.1.0;";
    let logs = guest::component(world, &guest_that_logs());
    assert_eq!(refused(&bench, &logs), None);
    let dragged = guest::component_with(
        "package wasi:http@0.2.3; interface outgoing-handler { resource request; handle: func(); }",
        "import wasi:http/outgoing-handler@0.2.3; export guild:worker/dispatch@0.1.0;",
        &calls("wasi:http/outgoing-handler@0.2.3", "handle", ""),
    );
    assert!(
        refused(&bench, &dragged).unwrap().contains("wasi:http/outgoing-handler"),
        "{:?}",
        refused(&bench, &dragged)
    );
    let deny = vec!["log".parse().unwrap()];
    bench.policy.rules.push(Rule { members: Pattern("*".into()), allow: None, deny, limits: None });
    let denied = refused(&bench, &logs).unwrap();
    assert!(denied.contains("guild:worker/log@0.1.0") && denied.contains("guild.toml"), "{denied}");
}

#[tokio::test]
async fn what_is_logged_before_there_is_a_job_waits_for_it() {
    let bench = Bench::new(Limits::default());
    let world = "import guild:worker/log@0.1.0; export guild:worker/dispatch@0.1.0;";
    let asked = json!({"file": "guest.wasm", "world": "worker", "grants": {"log": {}}});
    let plugin = bench.prepare(&guest::component(world, &guest_that_logs()), asked).unwrap();
    let activated = bench.activate(&plugin).await.unwrap();
    assert_eq!(activated.activity.log, ["info: checking\nforged: a line"]);
    assert_eq!(activated.outcome, Err(Refusal::InvalidConfig(String::new())));
}

#[test]
fn an_import_that_nobody_has_is_refused_by_name() {
    let component =
        wat::parse_str("(component (import \"evil:exfil/socket@1.0.0\" (instance (export \"open\" (func)))))").unwrap();
    let error = refused(&component, worker());
    assert!(error.contains("evil:exfil/socket@1.0.0") && error.contains("does not have"), "{error}");
}

#[test]
fn another_version_is_refused_with_both_versions_before_anything_is_compiled() {
    for version in ["0.1.1", "0.2.0", "1.0.0", "0.0.9"] {
        let import = format!("guild:worker/log@{version}");
        let component = wat::parse_str(format!(
            // What follows the import is no valid component: were it compiled, the error would be another.
            "(component (import \"{import}\" (instance (export \"write\" (func)))) (core module (func (unreachable) (i32.add))))"
        ))
        .unwrap();
        let asked = json!({"file": "guest.wasm", "world": "worker", "grants": {"log": {}}});
        let error = refused(&component, asked);
        assert!(error.contains(&import) && error.contains("guild:worker@0.1.0"), "{error}");
    }
}

#[test]
fn a_component_without_its_worlds_export_is_refused() {
    let error = refused(&guest::worker("unreachable"), autonomous());
    assert!(error.contains("`run`") && error.contains("autonomous-worker"), "{error}");
}

#[tokio::test]
async fn what_a_language_runtime_drags_in_is_linked_and_denied() {
    let bytes = guest::component_with(
        "package wasi:http@0.2.3; interface outgoing-handler { resource request; handle: func(); }",
        "import wasi:http/outgoing-handler@0.2.3; export guild:worker/dispatch@0.1.0;",
        &calls("wasi:http/outgoing-handler@0.2.3", "handle", ""),
    );
    let bench = Bench::new(Limits::default());
    let error = bench.activate(&bench.prepare(&bytes, worker()).unwrap()).await.unwrap_err().to_string();
    assert!(error.contains("`wasi:http/outgoing-handler@0.2.3#handle` is denied"), "{error}");
}

/// Sockets use the same pollables as what a plugin is given, and may be of another patch version of WASI.
#[tokio::test]
async fn denied_sockets_link_next_to_what_is_granted() {
    let bytes = guest::component_with(
        "package wasi:sockets@0.2.3;
         interface tcp {
             use wasi:io/poll@0.2.6.{pollable};
             resource tcp-socket { subscribe: func() -> pollable; }
             watch: func() -> pollable;
         }
         package wasi:io@0.2.6 { interface poll { resource pollable { block: func(); } } }",
        "import wasi:sockets/tcp@0.2.3; import wasi:io/poll@0.2.6; export guild:worker/dispatch@0.1.0;",
        &calls(
            "wasi:sockets/tcp@0.2.3",
            "watch",
            "(import \"wasi:io/poll@0.2.6\" \"[method]pollable.block\" (func (param i32)))",
        ),
    );
    let bench = Bench::new(Limits::default());
    let error = bench.activate(&bench.prepare(&bytes, worker()).unwrap()).await.unwrap_err().to_string();
    assert!(error.contains("`wasi:sockets/tcp@0.2.3#watch` is denied: a plugin has no network"), "{error}");
}

/// A worker that calls an imported function first of all.
fn calls(interface: &str, function: &str, more: &str) -> String {
    let result = if function == "watch" { "(result i32)" } else { "" };
    let forget = if function == "watch" { "drop" } else { "" };
    format!(
        "(module
           (import \"{interface}\" \"{function}\" (func $call {result}))
           {more}
           (memory (export \"memory\") 1)
           (func (export \"guild:worker/dispatch@0.1.0#activate\") (param i32) (result i32)
             (call $call) {forget} unreachable)
           (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))"
    )
}

#[test]
fn a_component_is_read_inside_its_members_directory_only() {
    let bench = Bench::new(Limits::default());
    fs::write(bench.dir.path().join("outside.wasm"), guest::worker("unreachable")).unwrap();
    std::os::unix::fs::symlink("../outside.wasm", bench.dir.path().join("member/link.wasm")).unwrap();
    let error = Candidate::read(&bench.member(), "link.wasm", 1024 * 1024).err().unwrap();
    assert!(matches!(error, LoadError::Read { .. }), "{error}");
}

#[tokio::test]
async fn a_refusal_carries_the_plugins_text() {
    let bench = Bench::new(Limits::default());
    let plugin = bench.prepare(&guest::refusing("no such work here"), worker()).unwrap();
    let outcome = bench.activate(&plugin).await.unwrap().outcome;
    assert_eq!(outcome, Err(Refusal::Unsupported("no such work here".into())));
}

#[tokio::test]
async fn a_trap_fails_the_call_with_a_reason_and_the_next_call_is_fresh() {
    let bench = Bench::new(Limits::default());
    let plugin = bench.prepare(&guest::worker("unreachable"), worker()).unwrap();
    for _ in 0..3 {
        let error = bench.activate(&plugin).await.unwrap_err();
        assert_eq!(error.to_string(), "the component failed in `activate`: wasm `unreachable` instruction executed");
    }
}

#[tokio::test]
async fn recursion_to_the_end_of_the_stack_fails_the_call() {
    let bench = Bench::new(Limits::default());
    let bytes = guest::component(
        guest::WORKER,
        "(module (memory (export \"memory\") 1)
           (func $f (export \"guild:worker/dispatch@0.1.0#activate\") (param i32) (result i32) (call $f (local.get 0)))
           (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))",
    );
    let error = bench.activate(&bench.prepare(&bytes, worker()).unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("call stack exhausted"), "{error}");
}

#[tokio::test]
async fn a_loop_ends_at_its_deadline_and_others_do_not_notice() {
    let bench = Bench::new(Limits { activate_seconds: 3, ..Limits::default() });
    let looping = bench.prepare(&guest::worker("(loop (br 0)) (i32.const 0)"), worker()).unwrap();
    let healthy = bench.prepare(&guest::refusing("fine"), worker()).unwrap();
    let started = Instant::now();
    let (looped, quick) = tokio::join!(bench.activate(&looping), async {
        let outcome = bench.activate(&healthy).await;
        (outcome, started.elapsed())
    });
    assert_eq!(
        looped.unwrap_err(),
        CallError::Deadline { call: "activate", seconds: 3, whose: "limits.activate_seconds" }
    );
    assert_eq!(quick.0.unwrap().outcome, Err(Refusal::Unsupported("fine".into())));
    assert!(quick.1 < Duration::from_secs(2), "the healthy call waited {:?}", quick.1);
}

#[tokio::test]
async fn growing_memory_beyond_the_limit_fails_the_call_and_names_the_limit() {
    let limits = Limits { memory_bytes: 4 * 65536, ..Limits::default() };
    let grow = |pages: u32| {
        guest::worker(&format!(
            "(if (i32.eq (memory.grow (i32.const {pages})) (i32.const -1)) (then unreachable))
             (i32.store8 (i32.const 4096) (i32.const 1)) (i32.const 4096)"
        ))
    };
    // The guest begins with two pages.
    let bench = Bench::new(limits);
    let fits = bench.prepare(&grow(2), worker()).unwrap();
    assert_eq!(bench.activate(&fits).await.unwrap().outcome, Err(Refusal::InvalidConfig(String::new())));
    let grows = bench.prepare(&grow(3), worker()).unwrap();
    let error = bench.activate(&grows).await.unwrap_err();
    assert_eq!(error.to_string(), "`activate` needs more than limits.memory_bytes = 262144");
}

#[tokio::test]
async fn memories_are_summed_over_the_store() {
    let bench = Bench::new(Limits { memory_bytes: 4 * 65536, ..Limits::default() });
    let two = guest::component(
        guest::WORKER,
        "(module (memory (export \"memory\") 2) (memory $b 3)
           (func (export \"guild:worker/dispatch@0.1.0#activate\") (param i32) (result i32) unreachable)
           (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))",
    );
    let error = bench.activate(&bench.prepare(&two, worker()).unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("limits.memory_bytes"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_no_text_fails_the_call() {
    let bench = Bench::new(Limits::default());
    // A refusal whose text is beyond the memory.
    let bytes = guest::worker(
        "(i32.store8 (i32.const 4096) (i32.const 1)) (i32.store (i32.const 4108) (i32.const 0x7fffffff))
         (i32.store (i32.const 4112) (i32.const 100)) (i32.const 4096)",
    );
    let error = bench.activate(&bench.prepare(&bytes, worker()).unwrap()).await.unwrap_err();
    assert!(matches!(error, CallError::Trap { call: "activate", .. }), "{error}");
}

/// Addresses are what there is not enough of here.
#[tokio::test]
async fn where_there_is_no_room_for_a_pool_components_run_without_one() {
    let bench = Bench::new(Limits { live_runs: u32::MAX / 2, ..Limits::default() });
    let plugin = bench.prepare(&guest::refusing("fine"), worker()).unwrap();
    let outcome = bench.activate(&plugin).await.unwrap().outcome;
    assert_eq!(outcome, Err(Refusal::Unsupported("fine".into())));
}

#[tokio::test]
async fn the_queue_of_activations_is_bounded_and_answers_busy() {
    let bench = Bench::new(Limits { activate_seconds: 3, dispatch_wait_seconds: 1, ..Limits::default() });
    let plugin = bench.prepare(&guest::worker("(loop (br 0)) (i32.const 0)"), worker()).unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    let calls = (0..=cores).map(|_| bench.activate(&plugin));
    let outcomes = futures::future::join_all(calls).await;
    let busy = outcomes.iter().filter(|o| matches!(o, Err(CallError::Busy(1)))).count();
    let late = outcomes.iter().filter(|o| matches!(o, Err(CallError::Deadline { .. }))).count();
    assert_eq!((busy, late), (1, cores), "{outcomes:?}");
}

#[tokio::test]
async fn run_gives_its_text_back() {
    let bench = Bench::new(Limits::default());
    // result<string, string>: ok, then where and how long.
    let bytes = guest::autonomous(
        "(i64.store (i32.const 2048) (i64.const 0x65746164)) (i32.store8 (i32.const 4096) (i32.const 0))
         (i32.store (i32.const 4100) (i32.const 2048)) (i32.store (i32.const 4104) (i32.const 4)) (i32.const 4096)",
    );
    let plugin = bench.prepare(&bytes, autonomous()).unwrap();
    assert_eq!(bench.activate(&plugin).await.unwrap().outcome, Ok(Plan::OwnRun(Bounds::default())));
    assert_eq!(bench.run(&plugin).await.0, Ok(Ok("date".into())));
}

#[tokio::test]
async fn waiting_for_no_session_returns_at_once_with_none() {
    let bench = Bench::new(Limits::default());
    let bytes = Guest::importing(&["agent"])
        .run(
            "(call $agent.wait (i32.const 0) (i32.const 0) (i32.const 8192))
             (if (i32.load (i32.const 8196)) (then unreachable))
             (call $ok (i32.const 0) (i32.const 0))",
        )
        .build();
    let asked = json!({"file": "guest.wasm", "world": "autonomous-worker", "grants": {"agent": {}}});
    let plugin = bench.prepare(&bytes, asked).unwrap();
    assert_eq!(bench.run(&plugin).await.0, Ok(Ok(String::new())));
}

#[tokio::test]
async fn a_run_that_loops_ends_at_its_deadline() {
    let bench = Bench::new(Limits { run_seconds: 1, ..Limits::default() });
    let plugin = bench.prepare(&guest::autonomous("(loop (br 0)) (i32.const 0)"), autonomous()).unwrap();
    assert_eq!(
        bench.run(&plugin).await.0,
        Err(CallError::Deadline { call: "run", seconds: 1, whose: "limits.run_seconds" })
    );
}

#[test]
fn a_tampered_or_foreign_cache_entry_is_never_used() {
    let bench = Bench::new(Limits::default());
    let bytes = guest::refusing("fine");
    bench.prepare(&bytes, worker()).unwrap();
    let entries =
        || -> Vec<_> { fs::read_dir(bench.dir.path().join("cache")).unwrap().map(|e| e.unwrap().path()).collect() };
    let [entry] = entries().try_into().expect("one entry");
    let good = fs::read(&entry).unwrap();
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    fs::write(&entry, &bad).unwrap();
    bench.prepare(&bytes, worker()).unwrap();
    assert_eq!(fs::read(&entry).unwrap(), good, "the damaged entry was replaced");
    // A link in place of the entry is not followed, wherever it leads.
    let elsewhere = bench.dir.path().join("elsewhere");
    fs::write(&elsewhere, &good).unwrap();
    fs::remove_file(&entry).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &entry).unwrap();
    bench.prepare(&bytes, worker()).unwrap();
    assert!(!fs::symlink_metadata(&entry).unwrap().is_symlink(), "the link was replaced");
}

#[test]
fn a_cache_that_others_can_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str| CompileCache::open(&dir.path().join(name), 1 << 20).map(drop);
    open("mine").unwrap();
    assert_eq!(fs::metadata(dir.path().join("mine")).unwrap().permissions().mode() & 0o777, 0o700);
    fs::create_dir(dir.path().join("shared")).unwrap();
    fs::set_permissions(dir.path().join("shared"), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(open("shared").unwrap_err().to_string().contains("0700"));
    std::os::unix::fs::symlink("mine", dir.path().join("link")).unwrap();
    assert!(open("link").unwrap_err().to_string().contains("not a link"));
}

/// The compile cache is bounded: the oldest entry goes.
#[test]
fn the_compile_cache_keeps_to_its_size() {
    let bench = Bench::new(Limits { compile_cache_bytes: 60_000, ..Limits::default() });
    for n in 0..12 {
        bench.prepare(&guest::refusing(&"x".repeat(n + 1)), worker()).unwrap();
    }
    let cache: &Path = &bench.dir.path().join("cache");
    let total: u64 = fs::read_dir(cache).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
    assert!(total <= 60_000 && total > 0, "{total}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_reaches_the_memories_of_the_scopes_that_it_was_granted() {
    let mut bench = Bench::new(Limits::default());
    // What it writes for all projects takes a rule that names it.
    let allow = ["*", "memory:global:write"].map(|name| name.parse().unwrap());
    let rule = Rule { members: "*".parse().unwrap(), allow: Some(allow.into()), ..Rule::default() };
    bench.policy.rules.push(rule);
    let mut component = autonomous();
    component["grants"] = guest::everything();
    component["scopes"] = json!(["worker", "global"]);
    let plugin = bench.prepare(&guest::built("probe"), component).unwrap();
    let shared = |name: &str, scope| {
        let (limits, clock) = (bench.limits.clone(), Arc::new(SystemClock));
        ScopeNotes::new(MemoryStore::open_at(&bench.member(), name, scope, limits, clock).unwrap(), None)
    };
    let notes = |scope: Scope| shared(scope.as_str(), scope);
    let denied = Err("the manifest does not ask for `memory:project`".into());
    let memory = ScopedMemory::new(ScopeNotes::new(bench.memory(), None), denied, Ok(notes(Scope::Global)));

    let task = "remember own mine\nteach moths fly\nglobal moths\nrecall moths\nproject a b\nls /memory";
    let job = bench.job_with(task, memory);
    let report = job.run(&plugin).await.unwrap().unwrap();
    let outcome = |step: &str| report.lines().find_map(|line| line.strip_prefix(&format!("{step}: "))).unwrap();
    assert_eq!((outcome("teach moths fly"), outcome("global moths")), ("ok ", "ok fly"));
    assert!(outcome("project a b").contains("memory:project"), "{report}");
    // Each scope has its own notes, and the directory of the member's own is the only one that it sees.
    assert_eq!(outcome("recall moths"), "ok ");
    assert!(outcome("ls /memory").contains("own.md") && !outcome("ls /memory").contains("moths"), "{report}");
    let moths = notes(Scope::Global).kept().injection();
    assert_eq!((moths[0].scope, moths[0].origin.as_ref()), (Scope::Global, Some(job.tools.job().id())));

    // Outside of a commission there is none but its own.
    let job = bench.job("teach a b\nproject a b\nglobal a");
    let report = job.run(&plugin).await.unwrap().unwrap();
    assert_eq!(report.matches("is there in commissions only").count(), 3, "{report}");
    // A job that has ended stores nothing, in no scope.
    let worker = ScopeNotes::new(bench.memory(), None);
    let job = bench.job_with("teach late c", ScopedMemory::new(worker, Err("".into()), Ok(notes(Scope::Global))));
    job.tools.job().complete(Some("done")).unwrap();
    let report = job.run(&plugin).await.unwrap().unwrap();
    assert!(report.contains("no longer running"), "{report}");
    assert_eq!(notes(Scope::Global).load("late").unwrap(), None);
}
