//! Components that take long to compile: a command waits for them, and what was compiled is cached.

use std::{fs, path::Path};

use serde_json::json;

use crate::support::{
    guest::{ANYTHING, Guest},
    host::{Home, Host, wait_for},
    output::{stderr, stdout},
};

/// A home whose processes have a separate compile cache.
fn cold() -> Home {
    let mut home = Home::new();
    let cache = home.path("cache").to_str().unwrap().to_owned();
    home.set("XDG_CACHE_HOME", &cache);
    home
}

/// What is in its compile cache, each with when it was written.
fn cached(home: &Home) -> Vec<(String, std::time::SystemTime)> {
    let entries = fs::read_dir(home.path("cache/guild/components")).into_iter().flatten().map(Result::unwrap);
    let mut cached: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().modified().unwrap()))
        .collect();
    cached.sort();
    cached
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// An own run that answers this.
fn answering(text: &str) -> Guest {
    let data = format!("(data (i32.const 1024) {text:?})");
    Guest::default().with(&data).run(&format!("(call $ok (i32.const 1024) (i32.const {}))", text.len()))
}

/// A function that takes a while to compile, and next to nothing to say.
fn long() -> String {
    let step = "local.get 0 i32.const 31 i32.mul i32.const 7 i32.rotl local.set 0\n";
    format!("(func (param i32) (result i32) {} local.get 0)", step.repeat(20_000))
}

fn in_service(host: &Host) {
    wait_for("the component to be in service", || {
        host.members().iter().all(|member| member["state"] == "ready").then_some(())
    });
}

#[test]
fn run_waits_for_a_component_longer_than_a_dispatch_would_and_caches_it() {
    let home = cold();
    home.write("config/guild/guild.toml", "[limits]\ndispatch_wait_seconds = 1\n");
    let member = home.member("large", "autonomous-worker", &answering("done").with(&long().repeat(8)).build());
    let first = home.run(&["run", path(&member), "Do it."]);
    assert_eq!((first.status.code(), stdout(&first).as_str()), (Some(0), "done\n"), "{}", stderr(&first));
    assert!(stderr(&first).contains("compiling guest.wasm ..."), "{}", stderr(&first));
    assert_eq!(cached(&home).len(), 1);
    let again = home.run(&["run", path(&member), "Do it."]);
    assert_eq!((again.status.code(), stdout(&again).as_str()), (Some(0), "done\n"), "{}", stderr(&again));
    assert!(!stderr(&again).contains("compiling"), "{}", stderr(&again));
}

#[test]
fn a_host_continues_compiling_when_a_caller_has_given_up() {
    let home = cold();
    home.write("config/guild/guild.toml", "[limits]\ndispatch_wait_seconds = 1\n");
    home.member("large", "autonomous-worker", &answering("done").with(&long().repeat(8)).build());
    let host = home.serve_roster(&["-v"]);
    if let Err(busy) = host.at("large").dispatch(json!({"description": "d", "task": "t"})) {
        assert_eq!((busy.code, busy.message.contains("try again")), (-32000, true), "{busy:?}");
    }
    in_service(&host);
    let job = host.at("large").start("d");
    assert_eq!(host.at("large").ended(&job)["status"], "completed");
    let (_, output) = host.stop();
    assert_eq!(output.matches("compiling its component").count(), 1, "{output}");
}

#[test]
fn another_memory_limit_compiles_nothing_again() {
    let home = cold();
    home.quick("quick");
    let mut first = None;
    for (limits, compiled) in [("", 1), ("memory_bytes = 33554432\n", 0), ("memory_bytes = 1073741824\n", 0)] {
        home.write("config/guild/guild.toml", format!("[limits]\n{limits}"));
        let host = home.serve_roster(&["-v"]);
        in_service(&host);
        let job = host.at("quick").start("d");
        assert_eq!(host.at("quick").ended(&job)["status"], "completed");
        let (_, output) = host.stop();
        assert_eq!(output.matches("compiling its component").count(), compiled, "{limits}: {output}");
        let cached = cached(&home);
        assert_eq!(cached.len(), 1, "{cached:?}");
        assert_eq!(*first.get_or_insert_with(|| cached.clone()), cached);
    }
}

#[test]
fn members_and_doctor_say_what_they_wait_for() {
    for arguments in [&["members", "--json", "--members", "members"][..], &["doctor", "--members", "members"]] {
        let home = cold();
        home.quick("quick");
        let first = home.run(arguments);
        assert!(stderr(&first).contains("compiling guest.wasm ..."), "{}", stderr(&first));
        assert!(!stdout(&first).contains("compiling"), "{}", stdout(&first));
        let again = home.run(arguments);
        assert!(!stderr(&again).contains("compiling"), "{}", stderr(&again));
    }
}

#[test]
fn run_is_refused_by_a_host_of_one_member_that_has_an_older_one() {
    let home = Home::new();
    let member = home.member("worker", "autonomous-worker", &answering("old").build());
    let host = home.serve(&member, &[]);
    let run = || home.run(&["run", path(&member), "Do it."]);
    assert_eq!(stdout(&run()), "old\n");
    home.write("members/worker/guest.wasm", answering("new").build());
    let refused = run();
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    let why = stderr(&refused);
    assert!(why.contains("serves worker as it was before") && why.contains("restart or end that host"), "{why}");
    assert!(why.contains(&format!("127.0.0.1:{}", host.port)), "{why}");
    // So it is where only the manifest is another.
    home.write("members/worker/guest.wasm", answering("old").build());
    assert_eq!(stdout(&run()), "old\n");
    home.edit_manifest("worker", |manifest| manifest["description"] = json!("another"));
    assert_eq!(run().status.code(), Some(1));
    drop(host);
    assert!(stderr(&run()).contains("guild approve"));
    assert!(home.run(&["approve", path(&member), "--yes"]).status.success());
    assert_eq!(stdout(&run()), "old\n");
}

#[test]
fn run_waits_until_a_host_of_all_members_has_taken_a_change_up() {
    let home = Home::new();
    let member = home.member("worker", "autonomous-worker", &answering("old").build());
    let host = home.serve_roster(&[]);
    let run = || home.run(&["run", path(&member), "Do it."]);
    assert_eq!(stdout(&run()), "old\n");
    home.write("members/worker/guest.wasm", answering("new").build());
    // A change that it does not load is logged with what to do.
    let refused = run();
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("still serves worker as it was before"), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("guild approve"), "{}", stderr(&refused));
    // So is another manifest, which models read: nothing of it is in service before it is approved.
    home.edit_manifest("worker", |manifest| manifest["version"] = json!("0.2.0"));
    let approved = home.run(&["approve", path(&member), "--yes"]);
    assert!(approved.status.success(), "{}", stderr(&approved));
    wait_for("the approval to be loaded", || {
        let done = run();
        if done.status.code() == Some(0) {
            assert_eq!(stdout(&done), "new\n");
            return Some(());
        }
        None
    });
    let version = |member: &serde_json::Value| member["version"] == "0.2.0";
    assert!(host.members().iter().all(version), "{:?}", host.members());
}

#[test]
fn run_waits_for_the_toolboxes_of_a_host_of_one_member() {
    let home = cold();
    home.write("config/guild/guild.toml", "[limits]\ndispatch_wait_seconds = 1\n");
    let member = home.member("worker", "autonomous-worker", &answering("done").build());
    home.edit_manifest("worker", |manifest| manifest["component"]["toolboxes"] = json!(["tools"]));
    // What is compiled already is in service at once, and the toolbox is not.
    assert!(home.run(&["members", path(&member)]).status.code().is_some());
    let call = "(call $ok (local.get 2) (local.get 3))";
    let tools = Guest::default().tools(&[("echo", ANYTHING)]).call(call).with(&long().repeat(8)).build();
    home.member("tools", "toolbox-plugin", &tools);
    home.edit_manifest("tools", |manifest| manifest["capabilities"] = json!(["tools"]));
    let host = home.serve(&member, &["--members", path(&home.path("members"))]);
    let ready = wait_for("the worker to be in service", || {
        host.members().into_iter().find(|member| member["state"] == "ready")
    });
    assert_eq!(ready["toolboxesLoading"], json!(["tools"]), "the toolbox was compiled too soon to show anything");
    let done = home.run(&["run", path(&member), "Do it."]);
    assert_eq!((done.status.code(), stdout(&done).as_str()), (Some(0), "done\n"), "{}", stderr(&done));
    assert!(stderr(&done).contains("is compiling the component of tools ..."), "{}", stderr(&done));
    assert_eq!(host.members()[0]["toolboxesLoading"], serde_json::Value::Null);
}
