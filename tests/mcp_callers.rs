//! What a caller of MCP is offered, sent and refused: no more than its token is for, with errors that say what to do.

use serde_json::{Value, json};

use crate::support::{
    guest::{self, Guest},
    host::{Client, Home, Host},
    mcp::{Answer, Endpoint, OLD, error, home, names, request, token, work},
};

/// Calls a tool: its text, and whether that says why it did not work.
fn call(client: &Client, name: &str, arguments: Value) -> (String, bool) {
    let called = client.call("tools/call", json!({"name": name, "arguments": arguments})).unwrap();
    (called["content"][0]["text"].as_str().unwrap().to_owned(), called["isError"] == true)
}

fn refused(client: &Client, name: &str, arguments: Value) -> String {
    let (text, is_error) = call(client, name, arguments);
    assert!(is_error, "{text}");
    text
}

/// A worker, and a toolbox with one tool, which takes no arguments.
fn worker_and_toolbox(home: &Home) {
    home.quick("worker");
    let nothing = r#"{"type":"object","additionalProperties":false}"#;
    let guest = Guest::default().tools(&[("tick", nothing)]).call("(call $ok (local.get 2) (local.get 3))");
    home.member("box", "toolbox-plugin", &guest.build());
    home.edit_manifest("box", |manifest| manifest["capabilities"] = json!(["tools"]));
}

#[test]
fn a_caller_is_offered_what_its_token_is_for_and_refused_the_rest() {
    let home = home("require_token = true\n");
    worker_and_toolbox(&home);
    let read = token(&home, &["--role", "view", "reader"]);
    let dispatch = token(&home, &["--role", "dispatch", "dispatcher"]);
    let all = token(&home, &["all"]);
    let host = home.serve_roster(&[]);
    let reads = ["list", "status", "result"];
    let dispatches = ["dispatch", "list", "status", "result"];
    let six = ["dispatch", "list", "status", "result", "cancel", "delete"];
    for (token, of_worker, has_tools) in
        [(&read, &reads[..], false), (&dispatch, &dispatches, false), (&all, &six, true)]
    {
        let at = |path: &str| Endpoint::new(&host, path).with("Authorization", token);
        let listed = |path: &str| {
            let modern = at(path).modern_result("tools/list", json!({}))["tools"].take();
            // A session has the list of the token that comes with the request.
            let (session, initialized) = at(path).open(OLD);
            assert_eq!(session.ask("tools/list", json!({}))["tools"], modern);
            (names(&modern).into_iter().map(str::to_owned).collect::<Vec<_>>(), initialized["instructions"].to_string())
        };
        let prefixed = |prefix: &str| of_worker.iter().map(|tool| format!("{prefix}{tool}")).collect::<Vec<_>>();
        let (roster, instructions) = listed("/mcp");
        let mut expected = [vec!["workers".to_owned()], prefixed("")].concat();
        expected.extend(has_tools.then(|| "box__tick".to_owned()));
        assert_eq!(roster, expected);
        let says = |word: &str| instructions.contains(word);
        assert_eq!(says("**Dispatch.**") && says("`wait: true`"), of_worker.contains(&"dispatch"), "{instructions}");
        assert_eq!(says("cancel") || says("delete"), of_worker.contains(&"cancel"), "{instructions}");
        assert!(says("- `worker`: ") && says("**Follow.**"), "{instructions}");
        assert_eq!(listed("/dispatch/worker/mcp").0, prefixed(""));
        assert_eq!(listed("/all/worker/mcp").0, prefixed("worker-dispatch__"));
        for (path, tool) in [("/members/box/mcp", "tick"), ("/all/box/mcp", "box__tick")] {
            assert_eq!(listed(path).0, if has_tools { vec![tool] } else { Vec::new() }, "{path}");
        }
    }
    // A tool that is not listed is refused when it is called all the same.
    let reader = Endpoint::new(&host, "/mcp").with("Authorization", &read);
    for name in ["dispatch", "cancel"] {
        let arguments = json!({"worker": "worker", "jobId": "x"});
        let (_, code, text) = error(reader.modern("tools/call", json!({"name": name, "arguments": arguments})));
        assert!(code == -32003 && text.contains("the token reader is not for worker/"), "{name} {code} {text}");
    }
    let unknown = error(reader.modern("tools/call", json!({"name": "lits"})));
    assert!(unknown.2.contains("did you mean `list`? known are list, status, result, workers"), "{unknown:?}");
}

/// The status of a refusal at an endpoint, its id and its message.
fn declined(answer: Answer) -> (u16, Value, String) {
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let status = answer.status;
    let mut message = answer.message();
    assert!(message["jsonrpc"] == "2.0" && message["error"]["code"].is_i64(), "{message}");
    (status, message["id"].take(), message["error"]["message"].as_str().unwrap().to_owned())
}

#[test]
fn whoever_is_refused_at_an_endpoint_gets_an_error_of_json_rpc_with_the_http_status() {
    let home = home("require_token = true\n[limits]\nbody_bytes = 65536\ntoken_dispatches_per_minute = 1\n");
    home.quick("worker");
    home.quick("other");
    let read = token(&home, &["--role", "view", "--members", "worker", "reader"]);
    let host = home.serve_roster(&[]);
    let at = |path: &str| Endpoint::new(&host, path).with("Authorization", &read);
    let plain = |path: &str| at(path).without("Accept");
    let ask = |method: &str| request(method, work());

    // Before its body is read.
    let stranger = plain("/mcp").with("Authorization", "Bearer guild_wrong").post(&ask("ping"));
    assert_eq!(stranger.header("www-authenticate"), Some("Bearer"));
    let needed = "a valid token is needed: Authorization: Bearer TOKEN";
    assert_eq!(declined(stranger), (401, Value::Null, needed.to_owned()));
    let not_for = "the token reader is not for the member other".to_owned();
    assert_eq!(declined(at("/members/other/mcp").modern("ping", json!({}))), (403, Value::Null, not_for));
    assert_eq!(declined(plain("/mcp").with("Origin", "https://evil.example").post(&ask("ping"))).0, 403);
    assert_eq!(declined(plain("/dispatch/worker/x/mcp").with("Authorization", "").post(&ask("ping"))).0, 401);
    let large = declined(plain("/mcp").send("POST", &format!("\"{}\"", "x".repeat(65536))));
    assert_eq!(large, (413, Value::Null, "a request's body is at most 65536 bytes".to_owned()));
    // After it was read: to its id.
    let may_not = (403, json!(7), "the token reader is not for worker/dispatch".to_owned());
    assert_eq!(declined(plain("/members/worker/mcp").post(&ask("worker/dispatch"))), may_not);
    let call = json!({"name": "dispatch", "arguments": work()});
    assert_eq!(declined(plain("/dispatch/worker/mcp").post(&request("tools/call", call))), may_not);
    let mut text_id = ask("worker/cancel");
    text_id["id"] = json!("a \"b\"");
    assert_eq!(declined(plain("/members/worker/mcp").post(&text_id)).1, json!("a \"b\""));
    let cancel = declined(at("/mcp").modern("tasks/cancel", json!({"taskId": "x"})));
    assert_eq!((cancel.0, cancel.1), (403, json!(7)));
    let notification = json!({"jsonrpc": "2.0", "method": "worker/dispatch", "params": work()});
    assert_eq!(declined(plain("/members/worker/mcp").post(&notification)).1, Value::Null);
    let no_session = declined(at("/mcp").with("Mcp-Session-Id", "x").post(&ask("ping")));
    assert_eq!((no_session.0, no_session.1), (404, json!(7)));
    // Outside of JSON-RPC it is a text.
    for path in ["/members", "/events", "/nothing"] {
        let answer = plain(path).with("Authorization", "Bearer guild_wrong").send("GET", "");
        assert_eq!((answer.status, answer.text()), (401, format!("{needed}\n")));
    }
    // Too many requests are answered with when to retry.
    let dispatch = token(&home, &["--role", "dispatch", "dispatcher"]);
    let send = || plain("/members/worker/mcp").with("Authorization", &dispatch).post(&ask("worker/dispatch"));
    assert_eq!(send().status, 200);
    let busy = send();
    assert!(busy.header("retry-after").unwrap().parse::<u64>().unwrap() > 0);
    let (status, id, text) = declined(busy);
    assert!(status == 429 && id == 7 && text.contains("limits.token_dispatches_per_minute"), "{status} {id} {text}");
}

#[test]
fn a_method_that_there_is_not_is_not_found_whatever_the_token_is_for() {
    let home = home("require_token = true\n");
    home.quick("worker");
    let tokens = [token(&home, &["--role", "view", "reader"]), token(&home, &["all"])];
    let host = home.serve_roster(&[]);
    for token in &tokens {
        let at = Endpoint::new(&host, "/mcp").with("Authorization", token);
        let (session, _) = at.open(OLD);
        for method in ["resources/subscribe", "no/such"] {
            let params = json!({"uri": "guild://worker/jobs/x/status"});
            assert_eq!(error(at.modern(method, params.clone())).1, -32601, "{method}");
            assert_eq!(error(session.post(&request(method, params.clone()))).1, -32601, "{method}");
            let (status, code, _) = error(at.without("Accept").post(&request(method, params)));
            assert_eq!((status, code), (200, -32601), "{method}");
        }
        let own = Endpoint::new(&host, "/members/worker/mcp").with("Authorization", token).without("Accept");
        assert_eq!(error(own.post(&request("worker/no-such", json!({})))).1, -32601);
    }
}

#[test]
fn a_client_of_a_starting_host_is_not_notified_of_what_it_has_seen() {
    let home = Home::new();
    home.quick("worker");
    for key in ["a", "b", "c"] {
        let guest = Guest::default().tools(&[("do", guest::ANYTHING)]).call("(call $ok (local.get 2) (local.get 3))");
        home.member(key, "toolbox-plugin", &guest.build());
        home.edit_manifest(key, |manifest| manifest["capabilities"] = json!(["tools"]));
    }
    let host = home.serve_roster(&[]);
    let roster = Endpoint::new(&host, "/mcp");
    // Its components are being loaded meanwhile, and the list is answered when they are.
    let (session, _) = roster.open(OLD);
    let mut notifications = session.send("GET", "");
    let mut listener = roster.modern("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    assert_eq!(listener.next().unwrap()["method"], "notifications/subscriptions/acknowledged");
    let before = session.ask("tools/list", json!({}))["tools"].take();
    assert!(names(&before).ends_with(&["a__do", "b__do", "c__do"]), "{before}");
    assert_eq!(roster.modern_result("tools/list", json!({}))["tools"], before);
    // The first notification is of a change that they have not seen: one tool less.
    std::fs::remove_dir_all(home.path("members/b")).unwrap();
    for stream in [&mut notifications, &mut listener] {
        assert_eq!(stream.next().unwrap()["method"], "notifications/tools/list_changed");
        let now = session.ask("tools/list", json!({}))["tools"].take();
        assert!(names(&now).ends_with(&["a__do", "c__do"]), "{now}");
    }
    // Another worker changes no list of tools: the next notification is of the next toolbox.
    home.quick("added");
    let mut both = [0; 2].map(|_| notifications.next().unwrap()["method"].as_str().unwrap().to_owned());
    both.sort();
    assert_eq!(both, ["notifications/prompts/list_changed", "notifications/resources/list_changed"]);
    std::fs::remove_dir_all(home.path("members/c")).unwrap();
    for mut stream in [notifications, listener] {
        assert_eq!(stream.next().unwrap()["method"], "notifications/tools/list_changed");
        let now = session.ask("tools/list", json!({}))["tools"].take();
        assert!(names(&now).ends_with(&["delete", "a__do"]), "{now}");
    }
}

/// A stream that tells of changes lasts, and leaves its token's place to requests.
#[test]
fn a_stream_of_changes_takes_no_place_of_a_request() {
    let home = home("require_token = true\n[limits]\ntoken_requests_at_once = 1\n");
    home.quick("worker");
    let one = token(&home, &["one"]);
    let host = home.serve_roster(&[]);
    let roster = Endpoint::new(&host, "/mcp").with("Authorization", &one);
    let mut listener = roster.modern("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    assert_eq!(listener.next().unwrap()["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(roster.modern("tools/list", json!({})).status, 200);
    drop(listener);
}

fn roster(host: &Host) -> Client {
    Client::new(host.port, "/mcp")
}

#[test]
fn an_error_for_an_unknown_job_names_the_list_or_the_member_that_has_it() {
    let home = Home::new();
    home.quick("first");
    home.quick("second");
    let host = home.serve_roster(&[]);
    let job = host.at("first").start("t");
    host.at("first").ended(&job);
    let roster = roster(&host);
    let list = "`list` lists the ids of the jobs";
    for tool in ["status", "result", "cancel", "delete"] {
        assert_eq!(refused(&roster, tool, json!({"jobId": "x"})), format!("Unknown job ID: x; {list}"), "{tool}");
        let of_second = json!({"jobId": "x", "worker": "second"});
        assert_eq!(refused(&roster, tool, of_second), format!("Unknown job ID: x; {list}"), "{tool}");
        let elsewhere = format!(
            "Unknown job ID: {job}; it is a job of first: name the worker in `worker`, or leave the argument out"
        );
        assert_eq!(refused(&roster, tool, json!({"jobId": job, "worker": "second"})), elsewhere, "{tool}");
        // At an endpoint of one worker there are no others.
        let bridge = Client::new(host.port, "/dispatch/second/mcp");
        assert_eq!(refused(&bridge, tool, json!({"jobId": job})), format!("Unknown job ID: {job}; {list}"), "{tool}");
        let whole = Client::new(host.port, "/all/second/mcp");
        let refusal = refused(&whole, &format!("second-dispatch__{tool}"), json!({"jobId": job}));
        assert_eq!(refusal, format!("Unknown job ID: {job}; `second-dispatch__list` lists the ids of the jobs"));
    }
    assert!(!call(&roster, "status", json!({"jobId": job})).1);
}

#[test]
fn the_member_of_a_job_is_named_only_to_callers_that_may_see_it() {
    let home = home("require_token = true\n");
    home.quick("first");
    home.quick("second");
    let all = token(&home, &["all"]);
    let one = token(&home, &["--members", "second", "one"]);
    let host = home.serve_roster(&[]);
    let ask = |token: &str, id: &Value| {
        let arguments = json!({"jobId": id, "worker": "second"});
        let at = Endpoint::new(&host, "/mcp").with("Authorization", token);
        at.modern_result("tools/call", json!({"name": "status", "arguments": arguments}))["content"][0]["text"].take()
    };
    let made = Endpoint::new(&host, "/dispatch/first/mcp").with("Authorization", &all);
    let made = made.modern_result("tools/call", json!({"name": "dispatch", "arguments": work()}));
    let id = &made["structuredContent"]["jobId"];
    assert!(ask(&all, id).as_str().unwrap().contains("it is a job of first"));
    assert!(!ask(&one, id).as_str().unwrap().contains("first"));
}

#[test]
fn a_list_says_what_each_job_is_about_up_to_a_bound() {
    let home = Home::new();
    home.quick("worker");
    let host = home.serve_roster(&[]);
    let long = format!("about\nmoths {}", "é".repeat(500));
    let job = host.at("worker").call("worker/dispatch", json!({"description": long, "task": "t"})).unwrap();
    for (path, tool) in
        [("/mcp", "list"), ("/dispatch/worker/mcp", "list"), ("/all/worker/mcp", "worker-dispatch__list")]
    {
        let client = Client::new(host.port, path);
        let called = client.call("tools/call", json!({"name": tool})).unwrap();
        let text: Value = serde_json::from_str(called["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, called["structuredContent"], "{path}");
        assert_eq!(text["jobs"][0]["jobId"], job["jobId"]);
        let description = text["jobs"][0]["description"].as_str().unwrap();
        assert!(description.starts_with("about moths é") && description.chars().count() <= 123, "{description}");
        let detailed = client.call("tools/call", json!({"name": tool, "arguments": {"detail": "detailed"}})).unwrap();
        assert_eq!(detailed["structuredContent"]["jobs"][0]["description"], long);
    }
    // The method keeps to its two fields.
    let listed = host.at("worker").call("worker/list", json!({})).unwrap();
    assert_eq!(listed["jobs"][0].as_object().unwrap().len(), 2, "{listed}");
}

#[test]
fn a_job_that_left_nothing_has_an_empty_list_of_artifacts() {
    let home = Home::new();
    home.quick("worker");
    let host = home.serve_roster(&[]);
    let arguments = json!({"worker": "worker", "description": "d", "task": "t", "wait": true});
    let done = roster(&host).call("tools/call", json!({"name": "dispatch", "arguments": arguments})).unwrap();
    assert_eq!(done["_meta"]["guild/job"]["artifacts"], json!([]), "{done}");
}

#[test]
fn an_argument_of_a_tool_that_takes_none_is_named() {
    let home = Home::new();
    worker_and_toolbox(&home);
    let host = home.serve_roster(&[]);
    let refusal = refused(&roster(&host), "box__tick", json!({"x": 1}));
    assert!(refusal.ends_with("unknown property \"x\"; none is known here, write {}"), "{refusal}");
}

#[test]
fn the_agent_is_offered_only_where_there_is_a_choice() {
    for (toml, has_agents) in [("", false), ("dispatch_agents = [\"claude\"]\n", true)] {
        let home = home(toml);
        home.quick("worker");
        let host = home.serve_roster(&[]);
        for (path, more) in [("/mcp", json!({"worker": "worker"})), ("/dispatch/worker/mcp", json!({}))] {
            let client = Client::new(host.port, path);
            let mut arguments = json!({"description": "d", "task": "t", "agnet": "claude"});
            arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let refusal = refused(&client, "dispatch", arguments);
            assert!(refusal.contains("`dispatch` has no argument `agnet`; "), "{refusal}");
            assert_eq!(
                refusal.contains("`agent`?") && refusal.contains("config, agent, attachments, follows, key, wait"),
                has_agents,
                "{path}: {refusal}"
            );
            let listed = client.call("tools/list", json!({})).unwrap().to_string();
            assert_eq!(listed.contains("\"agent\""), has_agents, "{path}");
        }
    }
}
