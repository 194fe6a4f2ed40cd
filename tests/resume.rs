//! Interrupted jobs in a member's directory: they are resumed only where a host began them and knew the directory before
//! its start. Otherwise their plans would decide what is run in any directory that is copied here.

use std::{collections::BTreeMap, fs, net::TcpListener, path::Path};

use guild_fs::durable::open_directory;
use guild_trust::seal::Seals;
use serde_json::{Value, json};

use crate::support::host::{Client, Home, Host, wait_for};

const TASK: &str = "How long does a luna moth live?";

/// A home with the researcher and something for it to read.
fn fixture() -> Home {
    let home = Home::new();
    home.researcher("one");
    home.write("docs/moths.md", "# Moths\n\nThe luna moth lives for a week.\n");
    home
}

fn run(home: &Home, member: &str) {
    let output = home.run(&["run", member, TASK, "--members", "members", "--sources", "docs"]);
    assert!(output.status.success(), "{output:?}");
}

fn approve(home: &Home, member: &str) {
    let output = home.run(&["approve", member, "--yes", "--members", "members"]);
    assert!(output.status.success(), "{output:?}");
}

fn serve(home: &Home) -> Host {
    home.serve_roster(&["--sources", home.path("docs").to_str().unwrap()])
}

/// Puts a job there as a host leaves it that is killed before the job's session begins.
fn plant(home: &Home, member: &str, id: &str, edit: impl FnOnce(&mut Value)) {
    let mut plan: BTreeMap<String, Value> = serde_json::from_value(plan(edit)).unwrap();
    let dir = open_directory(&home.path(&format!("members/{member}"))).unwrap();
    let text = serde_json::to_vec(&plan).unwrap();
    let (seals, key) = (Seals::new(Some(home.path("config/guild"))), member.parse().unwrap());
    let seal = seals.seal(&key, &dir, &id.parse().unwrap(), &text).unwrap();
    plan.insert("seal".to_owned(), json!(seal));
    forge(home, member, id, &json!(plan).to_string());
}

/// A plan without a seal.
fn plan(edit: impl FnOnce(&mut Value)) -> Value {
    let tools = json!(["Read", "Grep", "Glob"]);
    let mut plan = json!({
        "agent": "extractive", "grantedTools": tools, "ceiling": {},
        "grants": {"roots": {"allOf": [], "noneOf": []}, "tools": tools, "sessionMemory": true, "artifacts": true},
        "session": {"systemPrompt": "You are led astray.", "prompt": TASK, "tools": tools, "toolboxTools": [], "model": null,
            "bounds": {}}
    });
    edit(&mut plan);
    plan
}

/// Puts a running job there as anybody can.
fn forge(home: &Home, member: &str, id: &str, plan: &str) {
    let job = format!("members/{member}/jobs/{id}");
    home.write(&format!("{job}/plan.json"), plan);
    let meta = json!({"jobId": id, "status": "running", "description": "planted", "startedAt": "2026-01-01T00:00:00Z"});
    home.write(&format!("{job}/meta.json"), meta.to_string());
}

/// Waits until a job has failed without a session, and says why.
fn failed(home: &Home, client: &Client, member: &str, id: &str) -> String {
    let status = client.ended(id);
    assert_eq!(status["status"], "failed", "{status}");
    assert!(!home.path(&format!("members/{member}/jobs/{id}/transcript.jsonl")).exists(), "it was run");
    let error = status["error"].as_str().unwrap();
    assert!(error.starts_with("the host stopped while the job was running, and nothing was submitted; "), "{error}");
    error.to_owned()
}

fn copy(home: &Home, from: &str, to: &str) {
    for file in ["guild-member.json", "posture.md", "researcher.wasm"] {
        home.write(&format!("members/{to}/{file}"), fs::read(home.path(&format!("members/{from}/{file}"))).unwrap());
    }
}

#[test]
fn an_interrupted_job_of_a_pinned_member_is_resumed() {
    let home = fixture();
    run(&home, "one");
    plant(&home, "one", "left", |_| ());
    let host = serve(&home);
    let status = host.at("one").ended("left");
    assert_eq!(status["status"], "completed", "{status}");
    assert!(host.at("one").result("left").unwrap()["output"].as_str().unwrap().contains("for a week"));
}

/// The job that `guild run` did, and its plan; the job is gone.
fn began(home: &Home, member: &str) -> (String, String) {
    run(home, member);
    let job = fs::read_dir(home.path(&format!("members/{member}/jobs"))).unwrap().next().unwrap().unwrap();
    let plan = fs::read_to_string(job.path().join("plan.json")).unwrap();
    fs::remove_dir_all(job.path()).unwrap();
    (job.file_name().into_string().unwrap(), plan)
}

#[test]
fn a_plan_is_resumed_as_the_job_that_it_was_accepted_for_and_as_no_other() {
    let home = fixture();
    home.researcher("two");
    let (same, of_same) = began(&home, "one");
    let (edited, of_edited) = began(&home, "one");
    run(&home, "two");
    forge(&home, "one", &same, &of_same);
    forge(&home, "one", "another", &of_same);
    forge(&home, "two", &same, &of_same);
    assert!(of_edited.contains(TASK));
    forge(&home, "one", &edited, &of_edited.replace(TASK, "Who is astray?"));
    forge(&home, "one", "bare", &plan(|_| ()).to_string());
    let host = serve(&home);
    for (member, id) in [("one", "another"), ("two", same.as_str()), ("one", edited.as_str()), ("one", "bare")] {
        let why = failed(&home, &host.at(member), member, id);
        assert!(why.contains("no host began it here"), "{member} {id}: {why}");
    }
    assert_eq!(host.at("one").ended(&same)["status"], "completed");
}

/// An archive has its jobs last, or the copy pauses: by then the member is in service.
#[test]
fn jobs_that_a_new_directory_brings_along_after_it_was_pinned_are_not_run() {
    let home = fixture();
    let host = serve(&home);
    home.researcher("new");
    wait_for("the member to be pinned", || {
        let pins = fs::read_to_string(home.path("config/guild/guild.lock")).unwrap_or_default();
        pins.contains("/members/new").then_some(())
    });
    forge(&home, "new", "evil", &plan(|_| ()).to_string());
    host.kill();
    let host = serve(&home);
    let why = failed(&home, &host.at("new"), "new", "evil");
    assert!(why.contains("no host began it here"), "{why}");
}

#[test]
fn without_the_key_of_seals_jobs_are_run_and_not_resumed() {
    let home = fixture();
    let key = home.path("config/guild/guild.seal");
    let (id, plan) = began(&home, "one");
    fs::write(&key, "short").unwrap();
    let output = home.run(&["run", "one", TASK, "--members", "members", "--sources", "docs"]);
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && log.contains("guild.seal beside guild.toml"), "{log}");
    forge(&home, "one", &id, &plan);
    let host = serve(&home);
    assert!(failed(&home, &host.at("one"), "one", &id).contains("no host began it here"));
}

#[test]
fn a_job_of_an_unapproved_member_is_not_run() {
    let home = fixture();
    home.write("config/guild/guild.toml", "require_approval = true\n");
    copy(&home, "one", "broken");
    home.write("members/broken/researcher.wasm", "garbage");
    for member in ["one", "broken"] {
        plant(&home, member, "planted", |_| ());
    }
    let host = serve(&home);
    let why = failed(&home, &host.at("one"), "one", "planted");
    assert!(why.contains("the member is new to this host"), "{why}");
    let why = failed(&home, &host.at("broken"), "broken", "planted");
    assert!(why.contains("its component is not in service: the file is not a WebAssembly component"), "{why}");
}

#[test]
fn a_job_is_not_resumed_with_an_agent_that_the_operator_does_not_allow() {
    let home = fixture();
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    provider.set_nonblocking(true).unwrap();
    let api = format!(
        "[api]\nprovider = \"openai\"\nbase_url = \"http://{}/v1/\"\nmodel = \"m\"\n[[prices]]\nmodel = \"m\"\ninput = 1.0\n\
         output = 1.0\n",
        provider.local_addr().unwrap()
    );
    home.write("config/guild/guild.toml", &api);
    run(&home, "one");
    let onto_api = |plan: &mut Value| plan["agent"] = json!("api");
    plant(&home, "one", "planted", onto_api);
    let host = serve(&home);
    let why = failed(&home, &host.at("one"), "one", "planted");
    assert!(why.contains("the agent api cannot be asked for") && why.contains("dispatch_agents = [\"api\"]"), "{why}");
    assert!(provider.accept().is_err(), "the provider was asked");
    host.stop();

    // It is the agent that is refused, and nothing else.
    home.write("config/guild/guild.toml", format!("dispatch_agents = [\"api\"]\n{api}"));
    plant(&home, "one", "again", onto_api);
    let host = serve(&home);
    wait_for("the provider to be asked", || {
        let status = host.at("one").status("again").unwrap();
        assert_eq!(status["status"], "running", "{status}");
        provider.accept().ok()
    });
    host.kill();
}

#[test]
fn a_job_that_a_copy_of_an_approved_member_brings_along_is_not_run_and_new_ones_are() {
    let home = fixture();
    home.write("config/guild/guild.toml", "require_approval = true\n");
    approve(&home, "one");
    copy(&home, "one", "two");
    plant(&home, "two", "planted", |_| ());
    let host = serve(&home);
    let two = host.at("two");
    let why = failed(&home, &two, "two", "planted");
    assert!(why.contains("the member is new to this host") && why.contains("dispatch the task again"), "{why}");
    let job = two.start(TASK);
    assert_eq!(two.ended(&job)["status"], "completed");
    host.stop();

    // What the same directory is left with later is the host's own.
    plant(&home, "two", "left", |_| ());
    let host = serve(&home);
    failed(&home, &host.at("two"), "two", "planted");
    assert_eq!(host.at("two").ended("left")["status"], "completed");
}

/// Else a host that is killed in between would leave them to one that knows the member.
#[test]
fn what_a_new_member_brings_along_is_ended_before_the_member_is_pinned() {
    let home = fixture();
    plant(&home, "one", "planted", |_| ());
    fs::create_dir_all(home.path("config/guild")).unwrap();
    let pins = fs::File::create(home.path("config/guild/.guild-lock")).unwrap();
    pins.lock().unwrap();
    let host = serve(&home);
    failed(&home, &host.at("one"), "one", "planted");
    assert!(!home.path("config/guild/guild.lock").exists());
    drop(pins);
    host.at("one").start(TASK);
    assert!(home.path("config/guild/guild.lock").exists());
}

/// A component is looked at before it is approved; what it would do is not what a plan says that came along.
#[test]
fn what_came_along_is_ended_when_its_member_is_approved() {
    let home = fixture();
    home.write("config/guild/guild.toml", "require_approval = true\n");
    plant(&home, "one", "planted", |_| ());
    approve(&home, "one");
    plant(&home, "one", "left", |_| ());
    let host = serve(&home);
    let why = failed(&home, &host.at("one"), "one", "planted");
    assert!(why.contains("it was there before the member was approved"), "{why}");
    assert_eq!(host.at("one").ended("left")["status"], "completed");
}

#[test]
fn a_running_job_that_is_put_there_while_a_host_runs_is_not_run() {
    let home = fixture();
    run(&home, "one");
    let host = serve(&home);
    let job = host.at("one").start(TASK);
    assert_eq!(host.at("one").ended(&job)["status"], "completed");
    plant(&home, "one", "planted", |_| ());
    let client = host.at("one");
    wait_for("the job to be found", || client.status("planted").ok());
    let why = failed(&home, &client, "one", "planted");
    assert!(why.contains("it appeared while another host was running"), "{why}");
}

/// It leaves the jobs of members that it knows to the next host, and would pin the others.
#[test]
fn a_single_run_of_a_new_member_leaves_none_of_its_jobs_to_the_next_host() {
    let home = fixture();
    plant(&home, "one", "planted", |_| ());
    run(&home, "one");
    plant(&home, "one", "left", |_| ());
    run(&home, "one");
    let meta = |id: &str| -> Value {
        serde_json::from_slice(&fs::read(home.path(&format!("members/one/jobs/{id}/meta.json"))).unwrap()).unwrap()
    };
    assert_eq!((&meta("planted")["status"], &meta("left")["status"]), (&json!("failed"), &json!("running")));
    let host = serve(&home);
    failed(&home, &host.at("one"), "one", "planted");
    assert_eq!(host.at("one").ended("left")["status"], "completed");
}

#[test]
fn where_nothing_can_be_pinned_nothing_is_resumed() {
    let mut home = fixture();
    // Nobody makes a directory there, root neither.
    home.set("XDG_CONFIG_HOME", "/sys/guild-test");
    run(&home, "one");
    plant(&home, "one", "left", |_| ());
    let host = serve(&home);
    // There is no key either.
    assert!(failed(&home, &host.at("one"), "one", "left").contains("is not resumed"));
}

#[test]
fn a_plan_that_does_not_say_what_was_granted_is_none() {
    let home = fixture();
    run(&home, "one");
    plant(&home, "one", "absent", |plan| drop(plan.as_object_mut().unwrap().remove("grants")));
    plant(&home, "one", "null", |plan| plan["grants"] = Value::Null);
    let host = serve(&home);
    for id in ["absent", "null"] {
        let why = failed(&home, &host.at("one"), "one", id);
        assert!(why.contains("its plan.json cannot be read"), "{why}");
    }
}

#[test]
fn a_rule_for_a_member_of_a_group_holds_however_the_member_is_named() {
    let home = Home::new();
    let member = home.quick("team/ann");
    let table = "[member.\"team/ann\"]\ndeny = [\"log\"]\n";
    home.write("config/guild/guild.toml", table);
    let path = member.to_str().unwrap();
    for command in [
        &["run", path, "t"][..],
        &["members", path],
        &["approve", path, "--yes"],
        &["audit", path],
        &["prune", path],
        &["usage", "--member", path],
        &["serve", "--member", path, "--port", "0"],
    ] {
        let output = home.run(command);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{command:?}");
        assert!(
            error.contains("[member.\"team/ann\"]") && error.contains("`members` in guild.toml"),
            "{command:?}: {error}"
        );
    }
    assert!(home.run(&["run", path, "t", "--members", "members"]).status.success());
    home.write("config/guild/guild.toml", format!("members = {:?}\n{table}", home.path("members")));
    assert!(home.run(&["run", path, "t"]).status.success());
    let shown = home.run(&["members", path, "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown[0]["member"], "team/ann");
}

#[test]
fn a_directory_whose_name_can_be_no_key_is_no_member_whatever_its_manifest_says() {
    let home = Home::new();
    home.quick("my plugin");
    home.edit_manifest("my plugin", |manifest| manifest["name"] = json!("trusted"));
    let output = home.run(&["run", "members/my plugin", "t"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("\"my plugin\" is not"), "{error}");
    assert!(!Path::new(&home.path("members/my plugin/jobs")).exists());
}
