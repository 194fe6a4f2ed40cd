//! What an author reads about a component that fails: in the caller's error, the job's log, and the host's log.

use std::fs;

use serde_json::{Value, json};

use crate::support::{
    guest::{self, ANYTHING, Guest},
    host::{Home, Host},
};

/// Writes the text at 1024, of this length, to stderr.
fn writes(bytes: usize) -> String {
    format!(
        "(call $streams.output-stream.blocking-write-and-flush
           (call $stderr.get-stderr) (i32.const 1024) (i32.const {bytes}) (i32.const 8192))"
    )
}

fn speaking(text: &str) -> (Guest, String) {
    let escaped: String = text.bytes().map(|byte| format!("\\{byte:02x}")).collect();
    let guest = Guest::importing(&["cli/stderr", "io/streams"]).with(&format!("(data (i32.const 1024) \"{escaped}\")"));
    (guest, format!("{} unreachable", writes(text.len())))
}

fn toolbox(home: &Home, name: &str, component: &[u8]) {
    home.member(name, "toolbox-plugin", component);
    home.edit_manifest(name, |manifest| manifest["capabilities"] = json!(["tools"]));
}

fn log_of(home: &Home, member: &str, job: &str) -> String {
    fs::read_to_string(home.path(&format!("members/{member}/jobs/{job}/log.txt"))).unwrap()
}

fn state(host: &Host, member: &str) -> Value {
    let loaded = |members: Vec<Value>| {
        let found = members.into_iter().find(|one| one["member"] == member);
        found.filter(|one| one["state"] != "loading")
    };
    crate::support::host::wait_for("the member to be loaded", || loaded(host.members()))
}

#[test]
fn the_last_words_of_a_component_are_in_the_error_of_every_call() {
    let lines: String = (1..=10).map(|n| format!("line {n}\n")).collect();
    let (_, body) = speaking(&format!("{lines}panicked: \"no such table\"\u{1b}[2J"));
    let said = || speaking(&format!("{lines}panicked: \"no such table\"\u{1b}[2J")).0;
    // The first two lines and the last eight, as the component's own words: quoted, and nothing in them steers a terminal.
    let words = r#"its stderr began with "line 1\nline 2" and ended with "line 4\nline 5\nline 6\nline 7\nline 8\nline 9\nline 10\npanicked: \"no such table\"\u{1b}[2J""#;
    let failed =
        |call: &str| format!("the component failed in `{call}`: wasm `unreachable` instruction executed; {words}");
    let home = Home::new();
    home.member("activates", "worker", &said().activate(&body).build());
    home.member("runs", "autonomous-worker", &said().run(&body).build());
    toolbox(&home, "calls", &said().tools(&[("do", ANYTHING)]).call(&body).build());
    toolbox(&home, "lists", &said().list(&body).build());
    let host = home.serve_roster(&[]);

    let refused = host.at("activates").dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert_eq!((refused.code, refused.message.as_str()), (-32603, failed("activate").as_str()));

    let job = host.at("runs").start("d");
    assert_eq!(host.at("runs").ended(&job)["error"], failed("run"));
    let log = log_of(&home, "runs", &job);
    assert!(log.contains("stderr: line 1\n") && log.contains("stderr: panicked"), "{log}");
    assert!(log.contains("host: the component failed in `run`: wasm `unreachable` instruction executed\n"), "{log}");

    let answer = host.at("calls").call("tools/call", json!({"name": "do", "arguments": {}})).unwrap();
    assert_eq!(answer["isError"], true, "{answer}");
    let text = answer["content"][0]["text"].as_str().unwrap();
    assert!(text.ends_with(&failed("call-tool")), "{text}");

    let lists = state(&host, "lists");
    assert!(lists["error"].as_str().unwrap().ends_with(&failed("list-tools")), "{lists}");

    // One line each, by the member's name.
    let (_, output) = host.stop();
    for (member, call) in [("activates", "activate"), ("runs", "run"), ("calls", "call-tool"), ("lists", "list-tools")]
    {
        let lines: Vec<&str> =
            output.lines().filter(|line| line.contains("no such table") && line.contains(call)).collect();
        assert_eq!(lines.len(), 1, "{call}: {output}");
        assert!(lines[0].contains(&format!("member={member}")), "{}", lines[0]);
        assert!(!lines[0].contains('\u{1b}'), "{}", lines[0]);
    }
    let is_hash = |word: &str| word.len() >= 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(!output.split(|c: char| !c.is_ascii_alphanumeric()).any(is_hash), "{output}");
}

#[test]
fn the_last_words_are_bounded() {
    let home = Home::new();
    let (guest, body) = speaking(&format!("first {}", "x".repeat(3000)));
    home.member("talks", "worker", &guest.activate(&body).build());
    let host = home.serve_roster(&[]);
    let refused = host.at("talks").dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert!(refused.message.contains("its stderr ended with \"first xxx"), "{}", refused.message);
    assert!(refused.message.len() < 1200, "{}", refused.message);
}

#[test]
fn a_function_that_needs_a_job_is_named_where_there_is_none() {
    let home = Home::new();
    let submits = "(call $job-tools.submit-result (i32.const 1024) (i32.const 4) (i32.const 8192))";
    let importing = || Guest::importing(&["job-tools"]).with("(data (i32.const 1024) \"text\")");
    let refuses = importing().activate(&format!("{submits} (call $refuse (i32.const 1024) (i32.const 4))"));
    home.member("refuses", "worker", &refuses.build());
    let fails = format!("{submits} (call $fault (i32.const 2) (i32.const 1024) (i32.const 4))");
    toolbox(&home, "fails", &importing().tools(&[("do", ANYTHING)]).call(&fails).build());
    for name in ["refuses", "fails"] {
        home.edit_manifest(name, |manifest| manifest["component"]["grants"] = json!({"job-tools": {}}));
    }
    let host = home.serve_roster(&[]);

    let refused = host.at("refuses").dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    let why = "text (`job-tools.submit-result` needs a job, and `activate` has none: call it in `run`)";
    assert!(refused.message.ends_with(why), "{}", refused.message);
    let answer = host.at("fails").call("tools/call", json!({"name": "do", "arguments": {}})).unwrap();
    let why = "text (`job-tools.submit-result` needs a job, and `call-tool` has none: call it in `run`)";
    assert_eq!((&answer["isError"], &answer["content"][0]["text"]), (&json!(true), &json!(why)));
}

#[test]
fn memory_that_is_refused_is_in_the_job_s_log_though_the_component_gets_over_it() {
    let home = Home::new();
    let grows = "(drop (memory.grow (i32.const 5000))) (drop (memory.grow (i32.const 5000)))
                 (call $ok (i32.const 1024) (i32.const 4))";
    let component = Guest::default().with("(data (i32.const 1024) \"done\")").run(grows).build();
    home.member("grows", "autonomous-worker", &component);
    let host = home.serve_roster(&[]);
    let job = host.at("grows").start("d");
    assert_eq!(host.at("grows").ended(&job)["status"], "completed");
    let log = log_of(&home, "grows", &job);
    assert_eq!(log.matches("host: refused what is beyond limits.memory_bytes = 67108864\n").count(), 1, "{log}");
}

#[test]
fn a_component_built_for_async_is_distinguished_from_a_broken_one() {
    let home = Home::new();
    let component = "(component
        (core func $return (canon task.return (result string)))
        (instance $dispatch)
        (export \"guild:worker/dispatch@0.1.0\" (instance $dispatch)))";
    home.member("async", "worker", &wat::parse_str(component).unwrap());
    home.member("broken", "worker", &[&guest::worker("unreachable")[..], &[1, 0xff]].concat());
    let host = home.serve_roster(&[]);
    let error = |member: &str| state(&host, member)["error"].as_str().unwrap().to_owned();
    let why = error("async");
    assert!(why.contains("built for async functions") && why.contains("`task.return`"), "{why}");
    assert!(why.contains("--sync"), "{why}");
    assert!(!error("broken").contains("async"));
}

#[test]
fn times_in_logs_line_up() {
    let home = Home::new();
    let member = home.quick("quick");
    let (guest, _) = speaking(&"line\n".repeat(50));
    let says = format!("{} (call $ok (i32.const 1024) (i32.const 4))", writes(250));
    home.member("quick", "autonomous-worker", &guest.run(&says).build());
    let host = home.serve(&member, &[]);
    let job = host.client().start("d");
    host.client().ended(&job);
    let log = log_of(&home, "quick", &job);
    assert_eq!(log.matches("stderr: line").count(), 50, "{log}");
    let width = "2026-01-01T00:00:00.000Z".len();
    for line in log.lines() {
        assert_eq!((line.find('Z'), line.as_bytes()[width - 5]), (Some(width - 1), b'.'), "{line}");
    }
}
