//! What a host says: of its members as it starts and later, of each request where it is asked to, and in the audit log.

use std::fs;

use guild_fakes::{OpenAi, Received, Reply};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::{
    guest,
    host::{Home, Host, wait_for},
};

/// Waits for a line of the log that has all of these parts.
fn line(host: &Host, parts: &[&str]) -> String {
    wait_for(&format!("{parts:?} in {}", host.output()), || {
        let output = host.output();
        output.lines().find(|line| parts.iter().all(|part| line.contains(part))).map(str::to_owned)
    })
}

fn probe(home: &Home, name: &str) {
    home.member(name, "autonomous-worker", &guest::built("probe"));
    home.edit_manifest(name, |manifest| manifest["component"]["grants"] = guest::everything());
}

/// The lines of the audit log that have this event.
fn audited(home: &Home, event: &str) -> Vec<Value> {
    let log = fs::read_to_string(home.path(".local/state/guild/audit.jsonl")).unwrap_or_default();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{e}: {line}")));
    lines.filter(|line| line["event"] == event).collect()
}

#[test]
fn vv_logs_each_request_dispatch_denial_and_tool_error_with_its_ids_and_nothing_else_does() {
    let home = Home::new();
    probe(&home, "ann");
    let failing = guest::toolbox("unreachable");
    home.member("kit", "toolbox-plugin", &failing);
    home.edit_manifest("kit", |manifest| manifest["capabilities"] = json!(["tools"]));
    home.write("config/guild/guild.toml", "[member.ann]\ndeny = [\"memory\"]\n");
    let quiet = home.serve_roster(&[]);
    let id = quiet.at("ann").start("summary x\nrecall k");
    quiet.at("ann").ended(&id);
    let (_, output) = quiet.stop();
    assert!(!output.contains("DEBUG") && !output.contains(&id), "{output}");

    let host = home.serve_roster(&["-vv"]);
    let ann = host.at("ann");
    let id = ann.dispatch(json!({"description": "d", "task": "summary x\nrecall k"})).unwrap();
    ann.ended(&id);
    let job = format!("job={id}");
    line(&host, &["DEBUG", "dispatch accepted member=ann", &job]);
    let request = line(&host, &["DEBUG", " request method=\"worker/dispatch\" member=\"ann\"", &id]);
    assert!(
        request.contains("caller=local") && request.contains("outcome=\"ok\"") && request.contains(" ms="),
        "{request}"
    );
    line(&host, &["DEBUG", "method=\"worker/status\"", &id]);
    line(&host, &["DEBUG", "a call of the component was denied", "member=ann", &job, "memory"]);
    line(&host, &["DEBUG", "the job completed", "member=ann", &job]);
    line(&host, &["DEBUG", "answered over HTTP", "path=\"/members/ann/mcp\"", "status=200"]);
    ann.dispatch(json!({"description": "", "task": "t"})).unwrap_err();
    line(&host, &["DEBUG", "dispatch refused member=ann", "`description` must not be empty"]);
    let called = host.at("kit").call("tools/call", json!({"name": "do", "arguments": {}})).unwrap();
    assert_eq!(called["isError"], true, "{called}");
    line(&host, &["DEBUG", "a tool call has no result", "member=kit", "tool=\"do\""]);

    // What a caller writes is on one line, and not all of it.
    let hostile = format!("x\nERROR forged\u{1b}[2J{}", "y".repeat(5000));
    ann.call(&hostile, json!({})).unwrap_err();
    let logged = line(&host, &["request method=\"x ERROR forged"]);
    assert!(logged.len() < 1000 && !logged.contains('\u{1b}'), "{logged}");
}

#[test]
fn a_session_s_tool_error_is_logged_with_its_job() {
    let runtime = Runtime::new().unwrap();
    let script = |asked: &Received| match asked.turn() {
        0 => Reply::call("Read", json!({"file_path": "nowhere/x.md"})),
        _ => Reply::text("done"),
    };
    let provider = runtime.block_on(OpenAi::start(script));
    let home = Home::new();
    home.researcher("ann");
    home.write("docs/owls.md", "Owls turn their heads.\n");
    let toml = format!(
        "agent = \"api\"\napi = {{provider = \"openai\", base_url = \"{}/v1/\", model = \"m\"}}\n\
         [[roots]]\npath = \"../../docs\"\n[[prices]]\nmodel = \"m\"\ninput = 0.0\noutput = 0.0\n",
        provider.url()
    );
    home.write("config/guild/guild.toml", toml);
    let host = home.serve_roster(&["-vv"]);
    let id = host.at("ann").start("Find it out");
    assert_eq!(host.at("ann").ended(&id)["status"], "completed");
    let logged = line(&host, &["DEBUG", "a session's tool call failed", "member=ann", &format!("job={id}")]);
    assert!(
        logged.contains("tool=\"Read\"") && logged.contains("session=1") && logged.contains("denied=false"),
        "{logged}"
    );
}

#[test]
fn json_logs_are_one_object_a_line_with_ids_as_fields() {
    let home = Home::new();
    home.quick("ann");
    let host = home.serve_roster(&["-vv", "--log-format", "json"]);
    let id = host.at("ann").start("a task");
    host.at("ann").ended(&id);
    line(&host, &["the job completed"]);
    let (_, output) = host.stop();
    let lines: Vec<Value> = output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let found =
        |message: &str| lines.iter().find(|line| line["message"] == message).unwrap_or_else(|| panic!("{output}"));
    let completed = found("the job completed");
    assert_eq!(completed["fields"], json!({"member": "ann", "job": id}));
    assert_eq!((&completed["level"], &completed["target"]), (&json!("DEBUG"), &json!("guild_roster::jobs::run")));
    assert!(completed["time"].as_str().unwrap().ends_with('Z'), "{completed}");
    // To the millisecond, also where that ends with zeros: the times line up.
    assert!(
        lines.iter().all(|line| line["time"].as_str().unwrap().len() == "2026-01-01T00:00:00.000Z".len()),
        "{output}"
    );
    assert_eq!(found("dispatch accepted")["fields"]["job"], id.as_str());
    assert!(output.lines().all(|line| line.starts_with('{')), "{output}");

    let mut home = Home::new();
    home.quick("ann");
    home.set("GUILD_LOG_FORMAT", "json");
    home.edit_manifest("ann", |manifest| manifest["component"]["file"] = json!("gone.wasm"));
    let host = home.serve_roster(&[]);
    let logged = line(&host, &["\"level\":\"ERROR\"", "gone.wasm"]);
    assert_eq!(serde_json::from_str::<Value>(&logged).unwrap()["fields"]["member"], "ann");
}

#[test]
fn a_resolved_error_is_logged_as_resolved_once() {
    let home = Home::new();
    home.quick("ann");
    home.quick("bob");
    let path = home.path("members/ann/guild-member.json");
    let good = fs::read(&path).unwrap();
    fs::write(&path, "{").unwrap();
    home.edit_manifest("bob", |manifest| manifest["component"]["file"] = json!("gone.wasm"));
    let host = home.serve_roster(&[]);
    line(&host, &["ERROR", "member=\"ann\""]);
    line(&host, &["ERROR", "gone.wasm", "bob"]);
    assert!(!host.output().contains("resolved"), "{}", host.output());
    fs::write(&path, &good).unwrap();
    line(&host, &["INFO", "its error is resolved: it is in service", "member=\"ann\""]);
    home.edit_manifest("bob", |manifest| manifest["component"]["file"] = json!("guest.wasm"));
    line(&host, &["INFO", "its error is resolved: it is in service", "member=\"bob\""]);
    // A member that stays in service while its change is invalid, until the change is corrected.
    fs::write(&path, "{").unwrap();
    line(&host, &["ERROR", "its change is not in service", "member=\"ann\""]);
    fs::write(&path, &good).unwrap();
    let count = |host: &Host| host.output().matches("its error is resolved").count();
    wait_for("the third to be resolved", || (count(&host) == 3).then_some(()));
    let id = host.at("ann").start("t");
    host.at("ann").ended(&id);
    assert_eq!(count(&host), 3, "{}", host.output());
}

#[test]
fn a_member_is_said_to_be_served_once_it_is_and_never_where_it_is_refused() {
    let home = Home::new();
    home.quick("good");
    home.quick("bad");
    home.edit_manifest("bad", |manifest| manifest["component"]["file"] = json!("gone.wasm"));
    let host = home.serve_roster(&[]);
    line(&host, &[&format!("serving good at http://127.0.0.1:{}/members/good/mcp", host.port)]);
    line(&host, &["ERROR", "gone.wasm"]);
    // Another host of one that is owned says that, and no more.
    let owned =
        home.guild().current_dir(home.path("members/good")).args(["serve", "--member", ".", "--port", "0"]).output();
    let owned = owned.unwrap();
    assert_eq!(owned.status.code(), Some(1), "{owned:?}");
    let said = String::from_utf8(owned.stderr).unwrap() + &String::from_utf8(owned.stdout).unwrap();
    assert!(said.contains("already served by process") && !said.contains("serving "), "{said}");
    // So does one whose port is another's.
    let port = host.port.to_string();
    let taken =
        home.guild().args(["serve", "--members"]).arg(home.path("members")).args(["--port", &port]).output().unwrap();
    assert_eq!(taken.status.code(), Some(2), "{taken:?}");
    let said = String::from_utf8(taken.stderr).unwrap() + &String::from_utf8(taken.stdout).unwrap();
    assert!(said.contains("already in use") && !said.contains("serving "), "{said}");
    let (_, output) = host.stop();
    assert!(!output.contains("serving bad"), "{output}");

    let alone = home.serve(&home.path("members/bad"), &[]);
    line(&alone, &["ERROR", "gone.wasm"]);
    let (_, output) = alone.stop();
    assert!(output.contains("listening at") && !output.contains("serving bad"), "{output}");
}

#[test]
fn approvals_first_uses_and_refused_signatures_are_in_the_audit_log() {
    let home = Home::new();
    let member = home.quick("ann");
    let host = home.serve_roster(&[]);
    line(&host, &["serving ann at"]);
    let [first] = &audited(&home, "trusted-on-first-use")[..] else {
        panic!("{:?}", audited(&home, "trusted-on-first-use"))
    };
    assert_eq!((&first["who"], &first["member"], &first["outcome"]), (&json!("host"), &json!("ann"), &json!("ok")));
    let detail = first["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("sha256 ") && detail.ends_with(member.canonicalize().unwrap().to_str().unwrap()),
        "{detail}"
    );

    // A change waits for an approval, which the command writes down while the host has the file open.
    let file = member.join("guest.wasm");
    let rebuilt = [fs::read(&file).unwrap(), vec![0, 2, 1, b'v']].concat();
    fs::write(&file, rebuilt).unwrap();
    line(&host, &["ERROR", "guild approve"]);
    assert_eq!(audited(&home, "approval-missing")[0]["outcome"], "forbidden");
    // There is no terminal on which somebody could agree.
    assert!(!home.run(&["approve", "ann", "--members", "members"]).status.success());
    assert_eq!(audited(&home, "approval-refused")[0]["outcome"], "forbidden");
    let approved = home.run(&["approve", "ann", "--members", "members", "--yes"]);
    assert!(approved.status.success(), "{approved:?}");
    let [approval] = &audited(&home, "approved")[..] else { panic!("{:?}", audited(&home, "approved")) };
    let who = approval["who"].as_str().unwrap();
    assert!(who.starts_with("user:") && approval["member"] == "ann" && approval["outcome"] == "ok", "{approval}");
    line(&host, &["its error is resolved", "ann"]);

    fs::write(member.join("guest.wasm.minisig"), "no signature").unwrap();
    wait_for("the signature to be refused", || audited(&home, "signature-refused").pop());
    let forgotten = home.run(&["approve", "--forget", member.to_str().unwrap()]);
    assert!(forgotten.status.success(), "{forgotten:?}");
    assert_eq!(audited(&home, "approval-forgotten").len(), 1);
    host.stop();
    assert_eq!(audited(&home, "host-stopped").len(), 1);
}

#[test]
fn all_that_a_host_says_is_json_where_its_log_is() {
    let home = Home::new();
    home.quick("ann");
    home.write("members/broken/guild-member.json", "{");
    let host = home.serve_roster(&["--log-format", "json"]);
    line(&host, &["serving ann at"]);
    let port = host.port.to_string();
    let mut taken = home.guild();
    taken.args(["serve", "--log-format", "json", "--members"]).arg(home.path("members")).args(["--port", &port]);
    let taken = taken.output().unwrap();
    let (_, output) = host.stop();
    let messages = |output: &str| -> Vec<(String, String)> {
        let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        output.lines().map(parse).map(|line| (text(&line["level"]), text(&line["message"]))).collect()
    };
    let said = messages(&output);
    for (level, begin) in
        [("INFO", "listening at http://"), ("INFO", "broken is not served: "), ("INFO", "serving ann at ")]
    {
        assert!(said.iter().any(|(at, text)| at == level && text.starts_with(begin)), "{begin}: {said:#?}");
    }
    assert_eq!(taken.status.code(), Some(2), "{taken:?}");
    let said = messages(&String::from_utf8(taken.stderr).unwrap());
    assert!(said.iter().any(|(level, text)| level == "ERROR" && text.contains("already in use")), "{said:#?}");
}

#[test]
fn what_is_logged_has_fields_and_no_text_of_the_code() {
    let home = Home::new();
    home.quick("ann");
    home.job("ann", "left", json!({"status": "running"}));
    let host = home.serve_roster(&["-vv"]);
    let id = host.at("ann").start("a task");
    host.at("ann").ended(&id);
    line(&host, &["jobs loaded", "member=ann", "jobs=1", "recovered=1", "unreadable=0"]);
    line(&host, &["request", "method=\"worker/dispatch\"", "outcome=\"ok\""]);
    let (_, output) = host.stop();
    assert!(!output.contains("LoadReport") && !output.contains("outcome=Ok"), "{output}");
}

#[test]
fn a_refusal_is_logged_once_however_often_it_is_tried_again() {
    let home = Home::new();
    home.quick("ann");
    home.quick("bob");
    let host = home.serve_roster(&[]);
    line(&host, &["serving bob at"]);
    line(&host, &["serving ann at"]);
    host.stop();
    let file = home.path("members/bob/guest.wasm");
    let rebuilt = [fs::read(&file).unwrap(), vec![0, 2, 1, b'v']].concat();
    fs::write(&file, rebuilt).unwrap();
    // One that is pinned while the host starts is a reason to try all again that were refused.
    let host = home.serve_roster(&[]);
    line(&host, &["WARN", "guild approve bob"]);
    for name in ["carl", "dan"] {
        home.quick(name);
        wait_for("it to be in service", || {
            host.members().iter().any(|member| member["member"] == name && member["state"] == "ready").then_some(())
        });
        wait_for("its pin", || {
            let lock = fs::read_to_string(home.path("config/guild/guild.lock")).unwrap_or_default();
            lock.contains(&format!("\"{name}\"")).then_some(())
        });
    }
    let (_, output) = host.stop();
    assert_eq!(output.matches("shows the changes").count(), 1, "{output}");
    assert_eq!(audited(&home, "approval-missing").len(), 1);
}
