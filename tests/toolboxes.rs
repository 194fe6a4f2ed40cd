//! Workers whose sessions use the tools of other members: resolved when a job is dispatched, called under the toolbox's own
//! grants, and never a part of them (REQ-WKR-12, REQ-WKR-13).

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use guild_fakes::{Gate, OpenAi, Provider, Received, Reply, Script};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::{
    guest::{self, ANYTHING, Guest},
    host::{Client, Home, Host, RpcError, wait_for},
    web,
};

/// A provider, and a home with a worker whose sessions ask it.
struct Fixture {
    home: Home,
    provider: Provider,
    runtime: Runtime,
}

const WORKER: &str = "worker";
/// `call-tool` that answers with its input.
const ECHO: &str = "(call $ok (local.get 2) (local.get 3))";

impl Fixture {
    fn new(script: impl Into<Script>) -> Self {
        let runtime = Runtime::new().unwrap();
        let provider = runtime.block_on(OpenAi::start(script));
        let home = Home::new();
        home.researcher(WORKER);
        home.write("docs/moths.md", "# Moths\n\nThe luna moth lives for a week.\n");
        let fixture = Self { home, provider, runtime };
        fixture.configure("");
        fixture
    }

    /// Writes the operator's `guild.toml`, which begins with these lines.
    fn configure(&self, lines: &str) {
        let config = format!(
            "agent = \"api\"\n{lines}\n[api]\nprovider = \"openai\"\nbase_url = \"{}/v1/\"\nmodel = \"fake\"\n\
             [[prices]]\nmodel = \"fake\"\ninput = 1.0\noutput = 2.0\n",
            self.provider.url()
        );
        self.home.write("config/guild/guild.toml", config);
    }

    /// The worker needs these from now on.
    fn needs(&self, toolboxes: &[&str]) {
        self.home.edit_manifest(WORKER, |manifest| manifest["component"]["toolboxes"] = json!(toolboxes));
    }

    /// A member with tools and nothing else.
    fn toolbox(&self, name: &str, component: &[u8], grants: &Value) {
        self.home.member(name, "toolbox-plugin", component);
        self.home.edit_manifest(name, |manifest| {
            manifest["capabilities"] = json!(["tools"]);
            manifest["component"]["grants"] = grants.clone();
        });
    }

    /// One with the tool `do`, which answers with its input.
    fn echo(&self, name: &str) {
        self.toolbox(name, &guest::toolbox(ECHO), &json!({}));
    }

    fn serve(&self) -> Host {
        self.home.serve_roster(&["--sources", self.home.path("docs").to_str().unwrap()])
    }

    fn transcript(&self, id: &str) -> Vec<Value> {
        let file = self.home.path(&format!("members/{WORKER}/jobs/{id}/transcript.jsonl"));
        fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What the tools of a job's session answered, in order.
    fn results(&self, id: &str) -> Vec<Value> {
        self.transcript(id).into_iter().filter(|entry| entry["type"] == "result").collect()
    }

    fn has_jobs(&self, member: &str) -> bool {
        fs::read_dir(self.home.path(&format!("members/{member}/jobs"))).is_ok_and(|mut jobs| jobs.next().is_some())
    }
}

/// A model that submits "done" at this turn, and ends.
fn submitting(request: &Received, at: usize) -> Reply {
    if request.turn() == at { Reply::call("submit_result", json!({"output": "done"})) } else { Reply::text("Done.") }
}

/// A model that makes these calls, one a turn, and submits "done".
fn calling(calls: Vec<(&'static str, Value)>) -> impl Fn(&Received) -> Reply {
    move |request| match calls.get(request.turn()) {
        Some((tool, input)) => Reply::call(tool, input.clone()),
        None => submitting(request, calls.len()),
    }
}

fn completes(client: &Client) -> String {
    let id = client.start("t");
    let status = client.ended(&id);
    assert_eq!(status["status"], "completed", "{status}");
    id
}

/// Why the worker takes no work: an error of the host, and no job exists.
fn refused(fixture: &Fixture, client: &Client) -> String {
    let RpcError { code, message } = client.dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert_eq!(code, -32603, "{message}");
    assert!(!fixture.has_jobs(WORKER));
    message
}

#[test]
fn a_session_calls_the_tools_of_its_worker_s_toolboxes_and_the_transcript_has_the_results() {
    let rows = r#"{"type": "object", "properties": {"rows": {"type": "array", "items": {"type": "string"}}},
                   "required": ["rows"], "additionalProperties": false}"#;
    let fixture = Fixture::new(calling(vec![
        ("team--box_1__sum", json!({"rows": ["a", "b"]})),
        ("team--box_1__sum", json!({"rows": [1, "b", 2, 3, 4, 5, 6]})),
        ("other__do", json!({"any": [1.5, null]})),
        ("unnamed__do", json!({})),
    ]));
    fixture.needs(&["team/box.1", "other"]);
    fixture.toolbox("team/box.1", &Guest::default().tools(&[("sum", rows)]).call(ECHO).build(), &json!({}));
    fixture.echo("other");
    fixture.echo("unnamed");
    let host = fixture.serve();
    let id = completes(&host.at(WORKER));

    let offered = fixture.runtime.block_on(fixture.provider.received(1))[0].tool_names();
    assert!(offered.contains("team--box_1__sum") && offered.contains("other__do"), "{offered:?}");
    assert!(offered.contains("Read") && offered.contains("submit_result") && !offered.contains("unnamed__do"));
    let results = fixture.results(&id);
    assert_eq!(results[0]["output"], json!({"rows": ["a", "b"]}));
    let why = results[1]["error"].as_str().unwrap();
    assert!(
        why.starts_with("the input is not what sum takes: at /rows/0: 1 is not of type \"string\"; at /rows/2: "),
        "{why}"
    );
    assert_eq!(why.matches("at /rows/").count(), 5, "{why}");
    assert_eq!(results[2]["output"], json!({"any": [1.5, null]}));
    assert!(results[3]["error"].as_str().unwrap().starts_with("there is no tool \"unnamed__do\""), "{}", results[3]);
    let plan: Value =
        serde_json::from_slice(&fs::read(fixture.home.path(&format!("members/{WORKER}/jobs/{id}/plan.json"))).unwrap())
            .unwrap();
    assert_eq!(plan["session"]["toolboxTools"], json!(["team--box_1__sum", "other__do"]));
}

#[test]
fn the_error_of_a_tool_is_given_to_the_session_which_continues() {
    let fixture =
        Fixture::new(calling(vec![("fails__do", json!({})), ("traps__do", json!({})), ("lies__do", json!({}))]));
    let fault = "(call $fault (i32.const 2) (i32.const 1024) (i32.const 9))";
    let failing = Guest::default().tools(&[("do", ANYTHING)]).call(fault).with("(data (i32.const 1024) \"no moths!\")");
    fixture.toolbox("fails", &failing.build(), &json!({}));
    fixture.toolbox("traps", &guest::toolbox("unreachable"), &json!({}));
    fixture.toolbox("lies", &guest::toolbox("(call $ok (local.get 0) (local.get 1))"), &json!({}));
    fixture.needs(&["fails", "traps", "lies"]);
    let id = completes(&fixture.serve().at(WORKER));
    let results = fixture.results(&id);
    assert_eq!(results[0]["error"], "no moths!");
    for (result, part) in
        [(&results[1], "the component failed in `call-tool`"), (&results[2], "its output is not JSON")]
    {
        let why = result["error"].as_str().unwrap();
        assert!(why.starts_with("the tool do did not work: ") && why.contains(part), "{why}");
    }
}

#[test]
fn a_session_that_a_worker_starts_itself_is_denied_the_tools_of_its_toolboxes() {
    let fixture = Fixture::new(vec![]);
    fixture.echo("box");
    // All that is not nothing of the options: a list of one text, where the tools stand.
    let run = "(i32.store (i32.const 2064) (i32.const 2128)) (i32.store (i32.const 2068) (i32.const 1))
               (i32.store (i32.const 2128) (i32.const 1024)) (i32.store (i32.const 2132) (i32.const 7))
               (call $agent.query (i32.const 2048) (i32.const 8192))
               (if (i32.ne (i32.load8_u (i32.const 8196)) (i32.const 1)) (then unreachable))
               (call $outcome)";
    let guest = Guest::importing(&["agent"]).run(run).with("(data (i32.const 1024) \"box__do\")");
    fixture.home.member("own", "autonomous-worker", &guest.build());
    fixture.home.edit_manifest("own", |manifest| {
        manifest["component"]["grants"] = json!({"agent": {}});
        manifest["component"]["toolboxes"] = json!(["box"]);
    });
    let host = fixture.serve();
    let own = host.at("own");
    let status = own.ended(&own.start("t"));
    let why = status["error"].as_str().unwrap();
    assert!(
        why.starts_with("the tool \"box__do\" is a toolbox's, which only a session that `activate` plans has"),
        "{status}"
    );
    assert_eq!(fixture.provider.count(), 0);
}

#[test]
fn a_running_job_keeps_the_toolbox_that_it_began_with_while_that_is_replaced() {
    let gate = Gate::closed();
    let script_gate = gate.clone();
    let fixture = Fixture::new(move |request: &Received| {
        let reply = calling(vec![("box__do", json!({"n": 1})), ("box__do", json!({"n": 2}))])(request);
        if request.number == 1 { reply.behind(&script_gate) } else { reply }
    });
    fixture.needs(&["box"]);
    fixture.echo("box");
    let host = fixture.serve();
    let sha256 = || {
        let shown = host.members().into_iter().find(|shown| shown["member"] == "box").unwrap();
        (shown["state"] == "ready").then(|| shown["sha256"].clone())
    };
    let id = host.at(WORKER).start("t");
    fixture.runtime.block_on(fixture.provider.received(2));
    let before = sha256().unwrap();

    let another = Guest::default().tools(&[("do", ANYTHING)]).call("(call $ok (i32.const 1024) (i32.const 5))");
    fixture.home.write("members/box/guest.wasm", another.with("(data (i32.const 1024) \"\\22new\\22\")").build());
    wait_for("the change to be seen", || {
        host.members().iter().any(|shown| shown["member"] == "box" && shown["error"].is_string()).then_some(())
    });
    let approved = fixture.home.run(&["approve", "box", "--members", "members", "--yes"]);
    assert!(approved.status.success(), "{approved:?}");
    wait_for("the other one", || sha256().filter(|now| *now != before));
    gate.open();

    let outputs =
        |id: &str| -> Vec<Value> { fixture.results(id).iter().take(2).map(|one| one["output"].clone()).collect() };
    assert_eq!(host.at(WORKER).ended(&id)["status"], "completed");
    assert_eq!(outputs(&id), [json!({"n": 1}), json!({"n": 2})]);
    let id = completes(&host.at(WORKER));
    assert_eq!(outputs(&id), ["new", "new"]);
}

#[test]
fn tools_are_listed_when_their_component_is_loaded_and_not_again() {
    let mut fixture = Fixture::new(vec![]);
    fixture.home.set("GUILD_LOG", "info,rmcp=off");
    let write = |at: usize| format!("(call $log.write (i32.const 1) (i32.const {at}) (i32.const 9))");
    let guest = Guest::importing(&["log"])
        .list(&write(1024))
        .tools(&[("do", ANYTHING)])
        .call(&format!("{} (call $ok (local.get 2) (local.get 3))", write(1033)))
        .with("(data (i32.const 1024) \"it lists it called\")");
    fixture.toolbox("box", &guest.build(), &json!({"log": {}}));
    let host = fixture.serve();
    let roster = Client::new(host.port, "/mcp");
    for client in [host.at("box"), roster.clone(), host.at("box"), roster] {
        let listed = client.call("tools/list", json!({})).unwrap();
        assert!(listed.to_string().contains("do\""), "{listed}");
    }
    // What was written before it is there by then.
    host.at("box").call("tools/call", json!({"name": "do"})).unwrap();
    host.prints("it called");
    assert_eq!(host.output().matches("it lists").count(), 1, "{}", host.output());
}

#[test]
fn a_call_waits_for_a_component_that_is_being_loaded_as_long_as_for_its_turn_and_no_longer() {
    let fixture = Fixture::new(vec![]);
    fixture.configure("[limits]\ncall_tool_wait_seconds = 1\ncall_tool_seconds = 60\ndispatch_wait_seconds = 60\n");
    fixture.toolbox("box", &Guest::default().list("(loop (br 0)) (i32.const 0)").build(), &json!({}));
    let host = fixture.serve();
    let begun = Instant::now();
    for (client, name) in [(host.at("box"), "do"), (Client::new(host.port, "/mcp"), "box__do")] {
        let busy = client.call("tools/call", json!({"name": name})).unwrap_err();
        assert!(busy.code == -32000 && busy.message.contains("try again"), "{busy:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(host.members().iter().any(|shown| shown["member"] == "box" && shown["state"] == "loading"));
}

#[test]
fn an_answer_that_is_not_what_its_tool_lists_is_an_error() {
    let home = Home::new();
    let output = r#"{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}"#;
    home.member(
        "echo",
        "toolbox-plugin",
        &Guest::default().output(output).tools(&[("do", ANYTHING)]).call(ECHO).build(),
    );
    home.edit_manifest("echo", |manifest| manifest["capabilities"] = json!(["tools"]));
    let host = home.serve_roster(&[]);
    let call =
        |arguments: Value| host.at("echo").call("tools/call", json!({"name": "do", "arguments": arguments})).unwrap();
    let good = call(json!({"n": 1}));
    assert_eq!((&good["isError"], &good["structuredContent"]), (&json!(false), &json!({"n": 1})));
    let wrong = call(json!({"n": "one"}));
    let text = wrong["content"][0]["text"].as_str().unwrap();
    assert_eq!(wrong["isError"], true);
    assert!(text.contains("the tool do did not answer what its output schema says: at /n: "), "{text}");
}

#[test]
fn a_toolbox_that_is_missing_broken_or_none_refuses_the_dispatch_and_is_named() {
    let fixture = Fixture::new(vec![]);
    fixture.echo("sound");
    fixture.toolbox("traps", &Guest::default().list("unreachable").build(), &json!({}));
    let fetched = r#"{"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/a.json"}}}"#;
    fixture.toolbox("fetches", &Guest::default().tools(&[("do", ANYTHING), ("get", fetched)]).build(), &json!({}));
    fixture.home.quick("plain");
    fixture.home.write("members/foreign/guild-member.json", {
        let plain = fs::read(fixture.home.path("members/plain/guild-member.json")).unwrap();
        let mut manifest: Value = serde_json::from_slice(&plain).unwrap();
        manifest.as_object_mut().unwrap().remove("component");
        manifest.to_string()
    });
    fixture.home.write("members/unsound/guild-member.json", "{");
    for (toolbox, why) in [
        (
            "gone",
            "is not there: the directory of members has no member gone; put it there, or take it out of `component",
        ),
        ("traps", "is in state error: the component's tools cannot be offered: the component failed in `list-tools`"),
        (
            "fetches",
            "the input schema of the tool \"get\": its `$ref` \"http://127.0.0.1:1/a.json\" leads nowhere in it",
        ),
        ("plain", "offers no tools: its world `autonomous-worker` exports no `toolbox`; name a member whose world is"),
        ("foreign", "offers no tools: it has no component"),
        ("unsound", "is in state error: unsound/guild-member.json"),
    ] {
        fixture.needs(&["sound", toolbox]);
        let host = fixture.serve();
        let refused = refused(&fixture, &host.at(WORKER));
        assert!(refused.starts_with(&format!("the toolbox {toolbox}, which {WORKER} needs")), "{refused}");
        assert!(refused.contains(why), "{refused}");
        host.stop();
        // What it asks for has changed: it is approved as it will be asked for next.
        fs::remove_file(fixture.home.path("config/guild/guild.lock")).unwrap();
    }
    assert_eq!(fixture.provider.count(), 0);
}

#[test]
fn two_tools_that_sessions_would_call_the_same_and_a_name_that_is_too_long_refuse_the_dispatch() {
    let fixture = Fixture::new(vec![]);
    let long = "x".repeat(62);
    for name in ["a.b", "a_b", &long] {
        fixture.echo(name);
    }
    fixture.needs(&["a.b", "a_b"]);
    let host = fixture.serve();
    let both = refused(&fixture, &host.at(WORKER));
    for part in ["\"do\" of the toolbox a_b", "\"do\" of a.b", "both \"a_b__do\""] {
        assert!(both.contains(part), "{both}");
    }
    host.stop();
    fs::remove_file(fixture.home.path("config/guild/guild.lock")).unwrap();
    fixture.needs(&[&long]);
    let host = fixture.serve();
    let refused = refused(&fixture, &host.at(WORKER));
    assert!(refused.contains(&format!("\"{long}__do\", which has 66 characters, more than 64")), "{refused}");
}

/// Whoever carries its jobs out itself is refused too: it may still plan a session.
#[test]
fn a_worker_that_runs_itself_is_not_dispatched_to_without_its_toolboxes_either() {
    let fixture = Fixture::new(vec![]);
    fixture.home.quick("quick");
    fixture.home.edit_manifest("quick", |manifest| manifest["component"]["toolboxes"] = json!(["gone"]));
    let host = fixture.serve();
    let refused = host.at("quick").dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert!(refused.code == -32603 && refused.message.contains("the toolbox gone, which quick needs, is not there"));
    assert!(!fixture.has_jobs("quick"));
}

#[test]
fn a_toolbox_does_what_it_was_granted_itself_whatever_its_worker_was() {
    let runtime = Runtime::new().unwrap();
    let address = runtime.block_on(web::pages());
    let url = format!("http://{address}/moths");
    let page = url.clone();
    let fixture = Fixture::new(move |request: &Received| match request.turn() {
        0 => Reply::call("WebFetch", json!({"url": page})),
        1 => Reply::call("box__fetch", json!({})),
        2 => Reply::call("box__read", json!({})),
        _ => submitting(request, 3),
    });
    // By the length of its name: `read` reads a file, `fetch` fetches a page, and each answers `true` where it could.
    let path = "docs/moths.md";
    let call = format!(
        "(if (i32.eq (local.get 1) (i32.const 4))
           (then (call $files.read (i32.const 1024) (i32.const {}) (i32.const 1) (i32.const 9) (i32.const 8192)))
           (else (call $web.fetch (i32.const 2048) (i32.const {}) (i32.const 8192))))
         (if (i32.load8_u (i32.const 8192))
           (then (return (call $fault (i32.const 2) (i32.load (i32.const 8200)) (i32.load (i32.const 8204))))))
         (call $ok (i32.const 3072) (i32.const 4))",
        path.len(),
        url.len()
    );
    let guest = Guest::importing(&["files", "web"]).tools(&[("read", ANYTHING), ("fetch", ANYTHING)]).call(&call).with(
        &format!("(data (i32.const 1024) {path:?}) (data (i32.const 2048) {url:?}) (data (i32.const 3072) \"true\")"),
    );
    fixture.toolbox("box", &guest.build(), &json!({"files": {}, "web": {}}));
    fixture.needs(&["box"]);
    let web = format!("[web]\nallow = [\"{address}\"]\nprivate = [\"{address}\"]\nrobots = false\n");

    fixture.configure(&format!("{web}[member.box]\ndeny = [\"web\"]\n[member.{WORKER}]\ndeny = [\"files\"]"));
    let host = fixture.serve();
    let id = completes(&host.at(WORKER));
    let offered = fixture.runtime.block_on(fixture.provider.received(1))[0].tool_names();
    assert!(offered.contains("WebFetch") && !offered.contains("Read"), "{offered:?}");
    let results = fixture.results(&id);
    assert!(results[0]["output"].as_str().unwrap().contains("The atlas moth has no mouth"), "{}", results[0]);
    let why = results[1]["error"].as_str().unwrap();
    assert!(why.contains("the operator did not grant `web`") && why.contains("[member.\"box\"]"), "{why}");
    assert_eq!(results[2]["output"], true, "{}", results[2]);
    host.stop();

    fixture.configure(&format!("{web}[member.{WORKER}]\ndeny = [\"web\"]\n[member.box]\ndeny = [\"files\"]"));
    let host = fixture.serve();
    let results = fixture.results(&completes(&host.at(WORKER)));
    assert!(results[0]["error"].as_str().unwrap().starts_with("there is no tool \"WebFetch\""), "{}", results[0]);
    assert_eq!(results[1]["output"], true, "{}", results[1]);
    assert!(results[2]["error"].as_str().unwrap().contains("the operator did not grant `files`"), "{}", results[2]);
}

#[test]
fn a_resumed_job_has_its_toolboxes_again_or_fails_and_names_the_one_that_is_gone() {
    let gates = [Gate::closed(), Gate::closed()];
    let script_gates = gates.clone();
    let fixture = Fixture::new(move |request: &Received| {
        let reply = calling(vec![("box__do", json!({"n": 1})), ("box__do", json!({"n": 2}))])(request);
        match (request.turn(), request.number) {
            (1, 1) => reply.behind(&script_gates[0]),
            (2, 3) => reply.behind(&script_gates[1]),
            _ => reply,
        }
    });
    fixture.needs(&["box"]);
    fixture.echo("box");
    let host = fixture.serve();
    let id = host.at(WORKER).start("t");
    fixture.runtime.block_on(fixture.provider.received(2));
    host.kill();
    let host = fixture.serve();
    fixture.runtime.block_on(fixture.provider.received(4));
    host.kill();
    let numbers: Vec<Value> = fixture.results(&id).iter().map(|result| result["output"]["n"].clone()).collect();
    assert_eq!(numbers, [1, 2]);

    let broken = fixture.home.path("members/box/guest.wasm");
    fs::remove_file(&broken).unwrap();
    let host = fixture.serve();
    let status = host.at(WORKER).ended(&id);
    let why = status["error"].as_str().unwrap();
    assert!(status["status"] == "failed" && why.contains("the toolbox box, which worker needs: "), "{status}");
    assert_eq!(fixture.provider.count(), 4);
}

#[test]
fn a_call_whose_answer_a_killed_host_did_not_see_is_told_as_interrupted_and_not_made_again() {
    let fixture = Fixture::new(calling(vec![("box__do", json!({"n": 1}))]));
    fixture.needs(&["box"]);
    // A call that is made a second time would not end within the time of this test.
    fixture.toolbox("box", &guest::toolbox("(loop $forever (result i32) (br $forever))"), &json!({}));
    let host = fixture.serve();
    let id = host.at(WORKER).start("t");
    let is_made = |entry: &Value| entry["type"] == "call" && entry["tool"] == "box__do";
    let transcript = fixture.home.path(&format!("members/{WORKER}/jobs/{id}/transcript.jsonl"));
    let is_under_way = |text: String| text.contains(r#""tool":"box__do""#);
    wait_for("the call", || fs::read_to_string(&transcript).is_ok_and(is_under_way).then_some(()));
    host.kill();
    let host = fixture.serve();
    let status = host.at(WORKER).ended(&id);
    assert_eq!(status["status"], "completed", "{status}");
    let told = "interrupted before it was answered, and not made again: it may have had its effect";
    let results = fixture.results(&id);
    assert!(results[0]["error"].as_str().unwrap().starts_with(told), "{results:?}");
    assert_eq!(fixture.transcript(&id).iter().filter(|entry| is_made(entry)).count(), 1);
    let requests = fixture.provider.requests();
    assert!(requests.iter().any(|request| request.body.to_string().contains(told)), "the model is told");
}

#[test]
fn a_host_of_one_member_takes_only_the_components_of_its_toolboxes() {
    let fixture = Fixture::new(calling(vec![("box__do", json!({"n": 1}))]));
    fixture.needs(&["box"]);
    fixture.echo("box");
    let worker = fixture.home.path(&format!("members/{WORKER}"));
    let host = fixture.home.serve(&worker, &[]);
    let refused_without = refused(&fixture, &host.client());
    assert!(
        refused_without.contains("the toolbox box") && refused_without.contains("`members` in guild.toml"),
        "{refused_without}"
    );
    host.stop();

    fixture.configure(&format!("members = {:?}", fixture.home.path("members")));
    let host = fixture.home.serve(&worker, &[]);
    let id = completes(&host.client());
    assert_eq!(fixture.results(&id)[0]["output"], json!({"n": 1}));
    assert!(
        entries(&fixture.home.path("members/box"))
            .is_subset(&["guest.wasm", "guild-member.json"].map(str::to_owned).into())
    );
    host.stop();
    let lock = fs::read_to_string(fixture.home.path("config/guild/guild.lock")).unwrap();
    assert!(lock.contains("members/worker\"]") && !lock.contains("members/box\"]"), "{lock}");

    // One who names the directory on the command line needs no setting, and another host may have the toolbox meanwhile.
    fixture.configure("");
    let members = fixture.home.path("members");
    let other = fixture.home.serve(&fixture.home.path("members/box"), &[]);
    let host = fixture.home.serve(&worker, &["--members", members.to_str().unwrap()]);
    assert_eq!(fixture.results(&completes(&host.client()))[0]["output"], json!({"n": 1}));
    host.stop();
    let run = fixture.home.run(&["run", WORKER, "t", "--members", "members"]);
    assert_eq!(String::from_utf8(run.stdout).unwrap().trim(), "done");
    other.stop();

    fixture.needs(&["box", "gone"]);
    fs::remove_file(fixture.home.path("config/guild/guild.lock")).unwrap();
    let run = fixture.home.run(&["run", WORKER, "t", "--members", "members"]);
    let error = String::from_utf8(run.stderr).unwrap();
    assert!(!run.status.success() && error.contains("the toolbox gone, which worker needs, is not there"), "{error}");
}

fn entries(directory: &Path) -> BTreeSet<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn run_says_of_a_toolbox_that_is_missing_what_helps_a_command() {
    let home = Home::new();
    home.quick(WORKER);
    home.edit_manifest(WORKER, |manifest| manifest["component"]["toolboxes"] = json!(["tools"]));
    let run = |more: &[&str]| {
        let output = home.run(&[&["run", "members/worker", "a task"], more].concat());
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let text = run(&["--members", "members"]);
    assert!(text.contains("no member tools; put it there, and run this again"), "{text}");
    let nowhere =
        home.guild().current_dir("/").arg("run").arg(home.path("members/worker")).arg("a task").output().unwrap();
    let nowhere = String::from_utf8(nowhere.stderr).unwrap();
    assert!(nowhere.contains("; name it with --members DIR, or `members` in guild.toml"), "{nowhere}");
    assert!(!text.contains("start the host") && !nowhere.contains("start the host"), "{text}{nowhere}");
    // A host says it of itself.
    let host = home.serve(&home.path("members/worker"), &["--members", home.path("members").to_str().unwrap()]);
    let refused = host.client().dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert!(refused.message.contains("and start the host again"), "{}", refused.message);
}
