//! The roster at work: what is added, changed or removed in the directory of members takes effect while the host runs.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    os::unix::fs::symlink,
    path::PathBuf,
};

use serde_json::{Value, json};

use crate::support::{
    guest,
    host::{Client, Home, Host, PATIENCE, wait_for},
};

/// Waits until the host says of a member what is asked for.
fn wait(host: &Host, member: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    wait_for(&format!("{member} to be {what}; {}", host.output()), || {
        host.members().into_iter().find(|shown| shown["member"] == member).filter(&is_so)
    })
}

fn ready(host: &Host, member: &str) -> Value {
    wait(host, member, "ready", |shown| shown["state"] == "ready" && shown["error"].is_null())
}

/// Waits for an error of what is in a member's directory.
fn error(host: &Host, member: &str, part: &str) -> Value {
    wait(host, member, part, |shown| shown["error"].as_str().is_some_and(|why| why.contains(part)))
}

/// Waits for an event of this kind about a member.
fn wait_for_event(host: &Host, member: &str, kind: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let query = format!("since=kept&member={member}&kind={kind}");
    write!(stream, "GET /events?{query} HTTP/1.0\r\nHost: localhost:{}\r\n\r\n", host.port).unwrap();
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut kinds = lines.filter_map(|line| line.strip_prefix("event:").map(|kind| kind.trim().to_owned()));
    assert_eq!(kinds.next().as_deref(), Some(kind));
}

fn gone(client: &Client) {
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize"}).to_string();
    wait_for("404", || (client.post(&initialize).unwrap().0 == 404).then_some(()));
}

fn approve(home: &Home, member: &str) {
    let output = home.run(&["approve", member, "--members", "members", "--yes"]);
    assert!(output.status.success(), "{output:?}");
}

/// A member that does what its tasks say, and may use all that there is.
fn probe(home: &Home, name: &str) -> PathBuf {
    let member = home.member(name, "autonomous-worker", &guest::built("probe"));
    home.edit_manifest(name, |manifest| manifest["component"]["grants"] = guest::everything());
    member
}

/// Carries a task out; what came of it.
fn result(client: &Client, task: &str) -> String {
    let id = client.dispatch(json!({"description": "d", "task": task})).unwrap();
    let status = client.ended(&id);
    assert_eq!(status["status"], "completed", "{status}");
    client.result(&id).unwrap()["output"].as_str().unwrap().to_owned()
}

/// A job that runs until `memory/go.md` is there.
fn patient(client: &Client) -> String {
    let task = "summary waiting\nawait /memory/go.md";
    let id = client.dispatch(json!({"description": "d", "task": task})).unwrap();
    wait_for("the job to wait", || (client.status(&id).unwrap()["summary"] == "waiting").then_some(()));
    id
}

#[test]
fn an_added_member_answers_without_a_restart() {
    let home = Home::new();
    home.quick("old");
    let host = home.serve_roster(&[]);
    // As `cp` does it: first a directory, then its files, one after the other.
    home.quick("new");
    ready(&host, "new");
    assert_eq!(result(&host.at("new"), "t"), "date");
    wait_for_event(&host, "new", "member-added");
    home.quick("group/inner");
    ready(&host, "group/inner");
    assert_eq!(result(&host.at("group/inner"), "t"), "date");
    assert_eq!(result(&host.at("old"), "t"), "date");
}

#[test]
fn a_changed_component_waits_for_its_approval_and_then_has_the_next_job_while_one_under_way_ends_on_the_old_one() {
    let home = Home::new();
    let member = probe(&home, "worker");
    let host = home.serve_roster(&[]);
    let (client, before) = (host.at("worker"), ready(&host, "worker"));
    let under_way = patient(&client);

    fs::write(member.join("guest.wasm"), fs::read(home.quick("other").join("guest.wasm")).unwrap()).unwrap();
    let refused = error(&host, "worker", "`guild approve`");
    assert_eq!((&refused["state"], &refused["sha256"]), (&json!("ready"), &before["sha256"]));
    host.prints("what was there before is still served");
    assert!(result(&client, "write /job/artifacts/x 1").contains(": ok"), "the old one goes on");

    approve(&home, "worker");
    let after = wait(&host, "worker", "the new one", |shown| shown["sha256"] != before["sha256"]);
    assert_eq!((&after["state"], &after["error"]), (&json!("ready"), &Value::Null));
    assert_eq!(result(&client, "write /job/artifacts/x 1"), "date");

    assert_eq!(client.status(&under_way).unwrap()["status"], "running");
    fs::write(member.join("memory/go.md"), "go").unwrap();
    assert_eq!(client.ended(&under_way)["status"], "completed");
    let output = client.result(&under_way).unwrap()["output"].to_string();
    assert!(output.contains("await /memory/go.md: ok"), "{output}");
    assert_eq!(host.members().len(), 2);
}

#[test]
fn a_bad_change_leaves_the_old_one_in_service_until_it_is_mended() {
    let home = Home::new();
    let member = home.quick("quick");
    let host = home.serve_roster(&[]);
    let (client, before) = (host.at("quick"), ready(&host, "quick"));
    let manifest = fs::read(member.join("guild-member.json")).unwrap();
    let still_works = |why: &Value| {
        assert_eq!((&why["state"], &why["sha256"]), (&json!("ready"), &before["sha256"]));
        assert_eq!(result(&client, "t"), "date");
    };

    fs::write(member.join("guild-member.json"), "{").unwrap();
    still_works(&error(&host, "quick", "quick/guild-member.json"));
    host.prints("what was there before is still served: quick/guild-member.json");

    let output = home.run(&["members", "--url", &format!("http://127.0.0.1:{}", host.port)]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.starts_with("quick\t"), "{said}");
    assert!(
        said.contains("\tready\t") && said.contains("a change is not in service: quick/guild-member.json"),
        "{said}"
    );
    wait_for_event(&host, "quick", "member-error");

    fs::write(member.join("guild-member.json"), &manifest).unwrap();
    home.edit_manifest("quick", |manifest| manifest["component"]["configSchema"] = json!({"type": "nothing"}));
    still_works(&error(&host, "quick", "`component.configSchema`"));

    fs::write(member.join("guild-member.json"), &manifest).unwrap();
    home.edit_manifest("quick", |manifest| manifest["version"] = json!("0.2.0"));
    assert!(home.run(&["approve", member.to_str().unwrap(), "--yes"]).status.success());
    let after = wait(&host, "quick", "mended", |shown| shown["version"] == "0.2.0");
    assert_eq!((&after["state"], &after["error"]), (&json!("ready"), &Value::Null));
    assert_eq!(client.call("initialize", json!({})).unwrap()["serverInfo"]["version"], "0.2.0");
    wait_for_event(&host, "quick", "member-changed");

    // A copy that has not come to its end yet.
    let component = fs::read(member.join("guest.wasm")).unwrap();
    fs::write(member.join("guest.wasm"), &component[..component.len() / 2]).unwrap();
    still_works(&wait(&host, "quick", "half-written", |shown| shown["error"].is_string()));
    fs::write(member.join("guest.wasm"), &component).unwrap();
    assert_eq!(ready(&host, "quick")["sha256"], before["sha256"]);
}

#[test]
fn a_removed_member_is_unknown_and_its_running_job_ends_properly() {
    let home = Home::new();
    let member = probe(&home, "worker");
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let client = host.at("worker");
    let id = patient(&client);

    // Out of the directory of members, so that its files are still there to be looked at.
    let moved = home.path("moved");
    fs::rename(&member, &moved).unwrap();
    gone(&client);
    wait_for_event(&host, "worker", "member-removed");
    let meta =
        || -> Value { serde_json::from_slice(&fs::read(moved.join(format!("jobs/{id}/meta.json"))).unwrap()).unwrap() };
    assert_eq!(meta()["status"], "running");
    assert!(moved.join(".owner").exists(), "it is owned until its last job has ended");
    fs::write(moved.join("memory/go.md"), "go").unwrap();
    wait_for("its job to end", || (meta()["status"] == "completed").then_some(()));
    wait_for("its owner to let go", || (!moved.join(".owner").exists()).then_some(()));

    // And back again: it is the same member, with all its jobs.
    fs::rename(&moved, &member).unwrap();
    ready(&host, "worker");
    assert_eq!(client.status(&id).unwrap()["status"], "completed");
}

#[test]
fn a_member_whose_directory_is_deleted_under_a_running_job_harms_nobody() {
    let home = Home::new();
    let member = home.endless("endless");
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let client = host.at("endless");
    let id = client.start("runs for ever");
    wait_for("the job to run", || client.status(&id).unwrap()["usage"].is_object().then_some(()));
    fs::remove_dir_all(&member).unwrap();
    gone(&client);
    assert_eq!(result(&host.at("quick"), "t"), "date");
    // Another one may have the name meanwhile.
    home.endless("endless");
    ready(&host, "endless");
    assert_eq!(client.call("worker/list", json!({})).unwrap()["jobs"], json!([]));
    let id = client.start("runs for ever");
    assert_eq!(client.cancel(&id).unwrap()["status"], "cancelled");
}

#[test]
fn a_renamed_member_comes_into_service_when_its_jobs_have_ended() {
    let home = Home::new();
    let member = probe(&home, "before");
    let host = home.serve_roster(&[]);
    let id = patient(&host.at("before"));
    let after = home.path("members/after");
    fs::rename(&member, &after).unwrap();
    gone(&host.at("before"));
    error(&host, "after", "jobs of before are under way");
    fs::write(after.join("memory/go.md"), "go").unwrap();
    ready(&host, "after");
    assert_eq!(host.at("after").status(&id).unwrap()["status"], "completed");
}

#[test]
fn a_directory_that_is_replaced_is_another_member_of_the_same_name() {
    let home = Home::new();
    let member = home.quick("quick");
    let host = home.serve_roster(&[]);
    let client = host.at("quick");
    assert_eq!(result(&client, "t"), "date");
    home.failing("new");
    ready(&host, "new");
    fs::rename(&member, home.path("old")).unwrap();
    fs::rename(home.path("members/new"), &member).unwrap();
    gone(&host.at("new"));
    // The directory was pinned as it was. This is not it.
    error(&host, "quick", "`guild approve`");
    approve(&home, "quick");
    ready(&host, "quick");
    let id = client.start("t");
    assert_eq!(client.ended(&id)["error"], "date");
    assert_eq!(client.call("worker/list", json!({})).unwrap()["jobs"].as_array().unwrap().len(), 1);
}

#[test]
fn what_could_not_be_served_at_the_start_comes_into_service_when_it_is_mended() {
    let home = Home::new();
    let (unread, unloaded, foreign) = (home.quick("unread"), home.quick("unloaded"), home.quick("foreign"));
    let manifest = fs::read(unread.join("guild-member.json")).unwrap();
    let component = fs::read(unread.join("guest.wasm")).unwrap();
    fs::write(unread.join("guild-member.json"), "{").unwrap();
    fs::write(unloaded.join("guest.wasm"), "no component").unwrap();
    home.edit_manifest("foreign", |manifest| drop(manifest.as_object_mut().unwrap().remove("component")));
    let host = home.serve_roster(&[]);
    assert_eq!(error(&host, "unread", "unread/guild-member.json")["state"], "error");
    assert_eq!(error(&host, "unloaded", "component")["state"], "error");
    assert_eq!(wait(&host, "foreign", "listed", |_| true)["state"], "foreign");

    fs::write(unread.join("guild-member.json"), &manifest).unwrap();
    fs::write(unloaded.join("guest.wasm"), &component).unwrap();
    fs::write(foreign.join("guild-member.json"), &manifest).unwrap();
    for member in ["unread", "unloaded", "foreign"] {
        ready(&host, member);
        assert_eq!(result(&host.at(member), "t"), "date");
    }
    // And the other way round: another process is going to serve it.
    home.edit_manifest("foreign", |manifest| drop(manifest.as_object_mut().unwrap().remove("component")));
    wait(&host, "foreign", "foreign", |shown| shown["state"] == "foreign");
    wait_for("its owner to let go", || (!foreign.join(".owner").exists()).then_some(()));
}

#[test]
fn changed_limits_hold_for_new_jobs_and_one_under_way_keeps_its_own() {
    let home = Home::new();
    let member = probe(&home, "worker");
    let artifacts = |bytes: u64| {
        home.edit_manifest("worker", |manifest| {
            manifest["component"]["grants"]["artifacts"] = json!({"bytes": bytes});
            manifest["version"] = json!(bytes.to_string());
        });
    };
    artifacts(4);
    let host = home.serve_roster(&[]);
    let client = host.at("worker");
    ready(&host, "worker");
    let tries = "artifact x 123456";
    assert!(result(&client, tries).contains("artifacts_bytes = 4"));
    let task = format!("summary waiting\nawait /memory/go.md\n{tries}");
    let under_way = client.dispatch(json!({"description": "d", "task": task})).unwrap();
    wait_for("the job to wait", || (client.status(&under_way).unwrap()["summary"] == "waiting").then_some(()));

    artifacts(8);
    error(&host, "worker", "`guild approve`");
    approve(&home, "worker");
    wait(&host, "worker", "changed", |shown| shown["version"] == "8");
    assert!(result(&client, tries).contains(": ok"));
    fs::write(member.join("memory/go.md"), "go").unwrap();
    assert_eq!(client.ended(&under_way)["status"], "completed");
    let output = client.result(&under_way).unwrap()["output"].to_string();
    assert!(output.contains("artifacts_bytes = 4"), "{output}");
}

#[test]
fn a_hundred_members_are_served_by_one_process() {
    let home = Home::new();
    let names: Vec<String> = (0..100).map(|n| format!("m{n}")).collect();
    names.iter().for_each(|name| drop(home.quick(name)));
    let host = home.serve_roster(&[]);
    for name in &names {
        assert_eq!(host.at(name).call("initialize", json!({})).unwrap()["serverInfo"]["name"], json!(name));
    }
    let jobs: Vec<_> = names.iter().map(|name| (host.at(name), host.at(name).start("t"))).collect();
    for (client, id) in jobs {
        assert_eq!(client.ended(&id)["status"], "completed");
    }
    assert!(host.members().iter().all(|shown| shown["state"] == "ready"));
}

#[test]
fn a_missing_component_that_became_a_symlink_is_reported_as_one() {
    let home = Home::new();
    let outside = home.write("outside/guest.wasm", "");
    for (member, file) in [("leaf", "gone.wasm"), ("way", "now/gone.wasm")] {
        home.quick(member);
        home.edit_manifest(member, |manifest| manifest["component"]["file"] = json!(file));
    }
    let host = home.serve_roster(&[]);
    error(&host, "leaf", "gone.wasm");
    error(&host, "way", "now/gone.wasm");
    symlink(&outside, home.path("members/leaf/gone.wasm")).unwrap();
    symlink(outside.parent().unwrap(), home.path("members/way/now")).unwrap();
    error(&host, "leaf", "symbolic link");
    error(&host, "way", "symbolic link");
}
