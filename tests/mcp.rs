//! MCP with sessions (2024-11-05 to 2025-11-25) and without (2026-07-28), on one path. `bridge` tests what
//! clients of neither get.

use std::fs;

use serde_json::{Value, json};

use crate::support::{
    guest,
    host::{Home, Host, wait_for},
    mcp::{
        Answer, Endpoint, NEW, OLD, TASKS, error, home, initialize, jobs, modern_meta, names, request, result, token,
        waiting, work,
    },
};

#[test]
fn all_versions_with_sessions_dispatch_to_the_end_and_close() {
    let home = Home::new();
    home.quick("worker");
    let host = home.serve_roster(&[]);
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", OLD] {
        let (session, initialized) = Endpoint::new(&host, "/dispatch/worker/mcp").open(version);
        assert_eq!(
            (&initialized["protocolVersion"], &initialized["serverInfo"]["name"]),
            (&json!(version), &json!("worker-dispatch"))
        );
        assert!(initialized["instructions"].as_str().unwrap().contains("`dispatch`"), "{initialized}");
        assert_eq!(initialized["capabilities"]["tools"]["listChanged"], true);
        // Tasks are of later versions.
        assert!(initialized["capabilities"].get("extensions").is_none(), "{initialized}");

        let listed = session.ask("tools/list", json!({}));
        assert_eq!(names(&listed["tools"]), ["dispatch", "list", "status", "result", "cancel", "delete"]);
        assert!(listed.get("resultType").is_none() && listed.get("ttlMs").is_none(), "{listed}");
        let made = session.ask("tools/call", json!({"name": "dispatch", "arguments": work()}));
        let id = made["structuredContent"]["jobId"].as_str().unwrap();
        host.at("worker").ended(id);
        let done = session.ask("tools/call", json!({"name": "result", "arguments": {"jobId": id}}));
        assert_eq!(done["content"][0]["text"], "date");
        let read = session.ask("resources/read", json!({"uri": format!("guild://worker/jobs/{id}/result")}));
        assert_eq!(read["contents"][0]["text"], "date");
        assert_eq!(names(&session.ask("resources/list", json!({}))["resources"]), ["result", "status"]);
        assert_eq!(
            session.ask("resources/templates/list", json!({}))["resourceTemplates"].as_array().unwrap().len(),
            3
        );
        let prompts = session.ask("prompts/list", json!({}));
        assert_eq!(names(&prompts["prompts"]), ["workers"]);
        let prompt = session.ask("prompts/get", json!({"name": "workers"}));
        assert_eq!(prompt["messages"][0]["content"]["text"], initialized["instructions"]);
        assert_eq!(session.ask("ping", json!({})), json!({}));
        host.at("worker").delete(id).unwrap();

        assert_eq!(session.send("DELETE", "").status, 204);
        assert_eq!(session.post(&request("tools/list", json!({}))).status, 404);
        assert_eq!(session.send("GET", "").status, 404);
    }
}

#[test]
fn a_client_that_takes_json_alone_gets_json_on_the_same_path() {
    let home = Home::new();
    let worker = home.quick("worker");
    let host = home.serve(&worker, &[]);
    for accept in ["*/*", "application/json"] {
        let plain = Endpoint::new(&host, "/mcp").with("Accept", accept).with("MCP-Protocol-Version", "2025-06-18");
        let answer = plain.post(&initialize("2025-06-18", json!({})));
        assert!(answer.header("mcp-session-id").is_none() && !answer.is_stream());
        assert_eq!(answer.message()["result"]["serverInfo"]["name"], "worker");
    }
    // Without a session a client of sessions is answered like any other.
    let listed = Endpoint::new(&host, "/mcp").post(&request("tools/list", json!({})));
    assert_eq!(listed.message()["result"], json!({"tools": []}));
    assert_eq!(Endpoint::new(&host, "/mcp").send("GET", "").status, 405);
    assert_eq!(Endpoint::new(&host, "/mcp").send("DELETE", "").status, 405);
}

#[test]
fn a_request_of_2026_07_28_is_stateless_and_its_answer_says_what_may_be_cached() {
    let home = Home::new();
    home.quick("worker");
    let host = home.serve_roster(&[]);
    let bridge = Endpoint::new(&host, "/dispatch/worker/mcp");
    let found = bridge.modern_result("server/discover", json!({}));
    assert!(found["supportedVersions"].as_array().unwrap().contains(&json!(NEW)), "{found}");
    assert!(found["capabilities"]["extensions"].get(TASKS).is_some(), "{found}");
    assert!(found["instructions"].is_string(), "{found}");
    let listed = bridge.modern_result("tools/list", json!({}));
    assert_eq!(listed, bridge.modern_result("tools/list", json!({})));
    let made = bridge.modern_result("tools/call", json!({"name": "dispatch", "arguments": work()}));
    let id = made["structuredContent"]["jobId"].as_str().unwrap();
    host.at("worker").ended(id);
    let uri = format!("guild://worker/jobs/{id}/result");
    let read = bridge.modern_result("resources/read", json!({"uri": uri}));
    assert_eq!(read["contents"][0]["text"], "date");
    let resources = bridge.modern_result("resources/list", json!({}));
    let templates = bridge.modern_result("resources/templates/list", json!({}));
    let prompts = bridge.modern_result("prompts/list", json!({}));
    for cacheable in [&found, &listed, &read, &resources, &templates, &prompts] {
        assert_eq!(cacheable["cacheScope"], "private", "{cacheable}");
        assert!(cacheable["ttlMs"].is_u64(), "{cacheable}");
    }
    let prompt = bridge.modern_result("prompts/get", json!({"name": "workers"}));
    // A method of this host's own, too.
    let own = Endpoint::new(&host, "/members/worker/mcp").modern_result("worker/status", json!({"jobId": id}));
    assert_eq!(own["status"], "completed");
    for (name, any) in
        [("worker-dispatch", &made), ("worker-dispatch", &prompt), ("worker-dispatch", &listed), ("worker", &own)]
    {
        assert_eq!(any["resultType"], "complete", "{any}");
        assert_eq!(any["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], name, "{any}");
    }
}

#[test]
fn an_invalid_request_of_2026_07_28_is_answered_with_its_own_codes() {
    let home = Home::new();
    home.quick("worker");
    let host = home.serve_roster(&[]);
    let bridge = Endpoint::new(&host, "/dispatch/worker/mcp");
    let of_new = bridge.with("MCP-Protocol-Version", NEW);
    let meta = || json!({"_meta": modern_meta(NEW, json!({}))});
    let list = || request("tools/list", meta());

    // Headers that are missing, or say something else.
    assert_eq!(error(of_new.post(&list())).0, 400);
    assert_eq!(error(of_new.post(&list())).1, -32020);
    assert_eq!(error(of_new.with("Mcp-Method", "tools/call").post(&list())).1, -32020);
    let (status, code, _) = error(bridge.with("Mcp-Method", "tools/list").post(&list()));
    assert_eq!((status, code), (400, -32020), "a version in `_meta` alone");
    let mut call = request("tools/call", json!({"name": "list"}));
    call["params"]["_meta"] = modern_meta(NEW, json!({}));
    let calling = of_new.with("Mcp-Method", "tools/call");
    assert_eq!(error(calling.post(&call)).1, -32020);
    assert_eq!(error(calling.with("Mcp-Name", "delete").post(&call)).1, -32020);
    assert_eq!(calling.with("Mcp-Name", "list").post(&call).status, 200);

    // `_meta` that is missing, or not whole.
    let (status, code, _) = error(of_new.with("Mcp-Method", "tools/list").post(&request("tools/list", json!({}))));
    assert_eq!((status, code), (400, -32602));
    let mut partly = list();
    partly["params"]["_meta"].as_object_mut().unwrap().remove("io.modelcontextprotocol/clientCapabilities");
    let (status, code, _) = error(of_new.with("Mcp-Method", "tools/list").post(&partly));
    assert_eq!((status, code), (400, -32602));

    // A version that nobody knows, also where somebody's JSON writes a slash in another way.
    let later = bridge.with("MCP-Protocol-Version", "2099-01-01").with("Mcp-Method", "tools/list");
    let unknown = request("tools/list", json!({"_meta": modern_meta("2099-01-01", json!({}))}));
    let answer = later.send("POST", &unknown.to_string().replace("protocol/", "protocol\\/"));
    assert_eq!(answer.status, 400);
    let message = answer.message();
    assert_eq!(
        (&message["error"]["code"], &message["error"]["data"]["requested"]),
        (&json!(-32022), &json!("2099-01-01"))
    );
    assert!(message["error"]["data"]["supported"].as_array().unwrap().contains(&json!(NEW)), "{message}");

    // What there is not.
    for method in ["no/such", "ping", "logging/setLevel", "resources/subscribe", "completion/complete"] {
        let (status, code, _) = error(bridge.modern(
            method,
            match method {
                "logging/setLevel" => json!({"level": "info"}),
                "resources/subscribe" => json!({"uri": "guild://x"}),
                "completion/complete" => {
                    json!({"ref": {"type": "ref/prompt", "name": "workers"}, "argument": {"name": "a", "value": "b"}})
                }
                _ => json!({}),
            },
        ));
        assert_eq!((status, code), (404, -32601), "{method}");
    }
    let unknown = |answer: Answer| {
        let (status, code, message) = error(answer);
        assert_eq!((status, code), (200, -32602), "{message}");
    };
    unknown(bridge.modern("tools/call", json!({"name": "nothing", "arguments": {}})));
    unknown(bridge.modern("prompts/get", json!({"name": "nothing"})));
    unknown(bridge.modern("resources/read", json!({"uri": "guild://worker/jobs/none/result"})));
    let wrong = bridge.modern_result("tools/call", json!({"name": "status", "arguments": {"jobId": 5}}));
    assert_eq!(wrong["isError"], true);

    // There are no sessions, and nothing to listen to.
    for method in ["GET", "DELETE"] {
        assert_eq!(of_new.with("Mcp-Session-Id", "x").send(method, "").status, 405);
    }
}

#[test]
fn what_is_no_message_is_refused_in_json() {
    let home = Home::new();
    let worker = home.quick("worker");
    let host = home.serve(&worker, &[]);
    let (session, _) = Endpoint::new(&host, "/mcp").open(OLD);
    let stateless = Endpoint::new(&host, "/mcp").with("MCP-Protocol-Version", NEW).with("Mcp-Method", "ping");
    let deep =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":{}{}}}}}"#, "[".repeat(80), "]".repeat(80));
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for endpoint in [&session, &stateless] {
        for (body, code) in [
            ("{", -32700),
            (&format!("[{ping}]"), -32600),
            (&deep, -32600),
            (&ping.replace(":1,", ":1.5,"), -32600),
            (&ping.replace(":1,", ":null,"), -32600),
            (r#"{"id":1,"method":"ping"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, -32600),
        ] {
            let (status, found, message) = error(endpoint.send("POST", body));
            assert_eq!((status, found), (400, code), "{body}: {message}");
        }
    }
    let begin = Endpoint::new(&host, "/mcp");
    let (status, code, _) = error(begin.post(&request("initialize", json!({"protocolVersion": OLD}))));
    assert_eq!((status, code), (400, -32602));
    // A known method whose parameters are not its own.
    assert_eq!(session.post(&request("tools/call", json!({"name": 5}))).message()["error"]["code"], -32602);
    let too_long = "x".repeat(5 * 1024 * 1024);
    assert_eq!(session.send("POST", &too_long).status, 413);
}

/// What clients send by mistake: the body, the code of the error, and the id that the answer has.
fn mistakes() -> Vec<(String, i64, Value)> {
    let ping = |more: &str| format!(r#"{{"jsonrpc":"2.0","id":3,"method":"ping"{more}}}"#);
    let call = |arguments: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"name":"list","arguments":{arguments}}}}}"#
        )
    };
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let of_id = |id: &str| ping("").replace(":3,", &format!(":{id},"));
    let (parse, request, params) = (-32700, -32600, -32602);
    vec![
        (String::new(), parse, Value::Null),
        ("\u{feff}{}".to_owned(), parse, Value::Null),
        ("{\0\"\0}\0".to_owned(), parse, Value::Null),
        (ping("") + "}", parse, Value::Null),
        (ping(r#","x":"\u0000"#), parse, Value::Null),
        ("7".to_owned(), request, Value::Null),
        (ping(r#","id":4"#), request, Value::Null),
        (ping(r#","method":"ping""#), request, json!(3)),
        (ping(r#","result":{}"#), request, json!(3)),
        (ping(r#","x":1e400"#), request, json!(3)),
        (ping("").replace("\"2.0\"", "2.0"), request, json!(3)),
        (ping("").replace("2.0", "1.0"), request, json!(3)),
        (ping("").replace("\"ping\"", "{}"), request, json!(3)),
        (of_id("1.5"), request, json!(1.5)),
        (of_id("99999999999999999999"), request, json!(1e20)),
        (of_id("{}"), request, Value::Null),
        (of_id("true"), request, Value::Null),
        (of_id(&format!("\"{}\"", "x".repeat(2000))), request, Value::Null),
        (ping(&format!(r#","params":{{"x":{deep}}}"#)), request, json!(3)),
        (ping(r#","params":[]"#), params, json!(3)),
        (ping(r#","params":"x""#), params, json!(3)),
        (ping(r#","params":7"#), params, json!(3)),
        (ping(r#","params":{"_meta":"x"}"#), params, json!(3)),
        (ping(r#","params":{"a":1,"a":2}"#), params, json!(3)),
        (ping(r#","params":{"x":1e400}"#), params, json!(3)),
        (call(r#"{"n":1e400}"#), params, json!(3)),
        (call(r#"{"n":-1E999}"#), params, json!(3)),
    ]
}

#[test]
fn every_mistake_in_a_message_is_answered_with_its_id() {
    let home = Home::new();
    home.quick("worker");
    let host = home.serve_roster(&[]);
    let (session, _) = Endpoint::new(&host, "/dispatch/worker/mcp").open(OLD);
    for (body, code, id) in mistakes() {
        let answer = session.send("POST", &body);
        let status = answer.status;
        let answer = answer.message();
        let shown = body.chars().take(200).collect::<String>();
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(code)), "{shown}: {answer}");
        let is_same = answer["id"] == id || (id.is_number() && answer["id"].as_f64() == id.as_f64());
        assert!(is_same, "{shown}: {answer}");
    }
    // What has no answer has none here either.
    for params in ["[]", "\"x\"", "{\"_meta\":5}", "{\"requestId\":{}}", "{\"x\":1e400}", "7"] {
        for method in ["cancelled", "progress", "initialized", "own"] {
            let body = format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{params}}}"#);
            let answer = session.send("POST", &body);
            assert_eq!((answer.status, &*answer.text()), (202, ""), "{body}");
        }
    }
    // An answer to nothing is no request: its id is not the client's.
    for rest in [r#""id":1,"error":"x""#, r#""id":1,"result":{},"error":{"code":1,"message":"x"}"#] {
        let answer = session.send("POST", &format!(r#"{{"jsonrpc":"2.0",{rest}}}"#));
        assert_eq!((answer.status, answer.message()["id"].take()), (400, Value::Null), "{rest}");
    }
    // What MCP allows, or the method refuses by itself.
    let ask = |rest: &str| session.send("POST", &format!(r#"{{"jsonrpc":"2.0","id":3,{rest}}}"#)).message();
    for rest in [
        r#""method":"tools/list","params":{"cursor":7}"#,
        r#""method":"resources/list","params":{"cursor":{}}"#,
        r#""method":"tools/call","params":{"name":"list","arguments":[]}"#,
        r#""method":"tools/call","params":{"name":"list","arguments":"x"}"#,
    ] {
        assert_eq!(ask(rest)["error"]["code"], -32602, "{rest}");
    }
    for rest in [
        r#""method":"ping","params":null"#,
        r#""method":"ping","params":{"_meta":{"progressToken":{}}}"#,
        r#""method":"ping","params":{"a":-0,"b":1E5,"c":123456789012345678901234567890}"#,
    ] {
        assert_eq!(ask(rest)["result"], json!({}), "{rest}");
    }
    let unknown = session.with("MCP-Protocol-Version", "9").post(&request("ping", json!({})));
    let (status, answer) = (unknown.status, unknown.message());
    assert_eq!((status, &answer["id"]), (400, &json!(7)), "{answer}");
}

#[test]
fn half_of_a_surrogate_pair_arrives_as_u_fffd() {
    let home = Home::new();
    home.quick("worker");
    let host = home.serve_roster(&[]);
    let bridge = Endpoint::new(&host, "/dispatch/worker/mcp");
    let (session, _) = bridge.open(OLD);
    let body = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"dispatch","arguments":
        {"description":"cut \ud83d","task":"\ude00 \ud83d\ude00"}}}"#;
    for endpoint in [&session, &bridge] {
        let made = endpoint.send("POST", body).message();
        assert!(made["result"].is_object() && made["result"]["isError"] != true, "{made}");
    }
    let plain = body.replace("tools/call", "worker/dispatch");
    let params = r#""params":{"description":"cut \ud83d","task":"t"}}"#;
    let plain = format!("{}{params}", plain.split_once("\"params\"").unwrap().0);
    let made = Endpoint::new(&host, "/members/worker/mcp").send("POST", &plain).message();
    assert!(made["result"]["jobId"].is_string(), "{made}");
    let listed = host.at("worker").call("worker/list", json!({"detail": "detailed"})).unwrap();
    for job in listed["jobs"].as_array().unwrap() {
        assert_eq!(job["description"], "cut \u{fffd}");
    }
}

#[test]
fn a_session_is_nobody_s_but_its_opener_s() {
    let home = home("require_token = true\n");
    home.quick("one");
    home.quick("two");
    let [first, second] = ["first", "second"].map(|name| token(&home, &["--role", "all", name]));
    let host = home.serve_roster(&[]);
    let one = Endpoint::new(&host, "/dispatch/one/mcp");
    assert_eq!(one.post(&initialize(OLD, json!({}))).status, 401);
    let (session, _) = one.with("Authorization", &first).open(OLD);
    let list = request("tools/list", json!({}));

    let elsewhere = Endpoint { path: "/dispatch/two/mcp".to_owned(), ..session.clone() };
    let another = session.with("Authorization", &second);
    for (stranger, status) in [(&session.without("Authorization"), 401), (&another, 404), (&elsewhere, 404)] {
        assert_eq!(stranger.post(&list).status, status);
        assert_eq!(stranger.send("GET", "").status, status);
        assert_eq!(stranger.send("DELETE", "").status, status);
    }
    assert_eq!(session.post(&list).status, 200);
    // A caller that lost its access can neither use the session nor get its notifications.
    let mut stream = session.send("GET", "");
    assert_eq!(stream.status, 200);
    assert!(home.run(&["token", "rm", "first"]).status.success());
    assert_eq!(session.post(&list).status, 401);
    home.quick("three");
    assert!(stream.next().is_none());
}

#[test]
fn each_request_may_what_its_own_token_may() {
    let home = home("require_token = true\naudit_log = \"audit.jsonl\"\n");
    home.quick("one");
    home.quick("two");
    let read = token(&home, &["--role", "view", "--members", "one", "reader"]);
    let dispatch = token(&home, &["--role", "dispatch", "dispatcher"]);
    let host = home.serve_roster(&[]);
    let bridge = Endpoint::new(&host, "/dispatch/one/mcp");
    let call = json!({"name": "dispatch", "arguments": work()});

    let reader = bridge.with("Authorization", &read);
    let (session, _) = reader.open(OLD);
    let refused = session.post(&request("tools/call", call.clone())).message();
    assert!(refused["error"]["message"].as_str().unwrap().contains("reader is not for worker/dispatch"), "{refused}");
    let refused = reader.modern("tools/call", call.clone()).message();
    assert!(refused["error"]["message"].as_str().unwrap().contains("not for worker/dispatch"), "{refused}");
    assert_eq!(reader.modern("tasks/cancel", json!({"taskId": "x"})).status, 403);
    assert_eq!(session.ask("tools/call", json!({"name": "list", "arguments": {}}))["isError"], false);
    // In a roster it sees its own members.
    let roster = Endpoint::new(&host, "/mcp").with("Authorization", &read);
    let listed = roster.modern_result("tools/list", json!({}));
    assert_eq!(names(&listed["tools"]), ["workers", "list", "status", "result"], "{listed}");
    let workers = roster.modern_result("tools/call", json!({"name": "workers", "arguments": {}}));
    assert_eq!(workers["structuredContent"]["workers"].as_array().unwrap().len(), 1, "{workers}");
    assert_eq!(workers["structuredContent"]["workers"][0]["worker"], "one");

    let dispatcher = bridge.with("Authorization", &dispatch);
    let made = dispatcher.modern_result("tools/call", call);
    let id = made["structuredContent"]["jobId"].as_str().unwrap();
    let log = wait_for("the audit log", || {
        let log = fs::read_to_string(home.path("audit.jsonl")).ok()?;
        log.contains(id).then_some(log)
    });
    let line = log.lines().find(|line| line.contains(id)).unwrap();
    assert!(line.contains("token:dispatcher") && line.contains("worker/dispatch"), "{line}");
    assert!(!log.contains(dispatch.trim_start_matches("Bearer ")));
}

#[test]
fn a_host_has_no_more_sessions_than_its_limit_and_an_idle_one_makes_room() {
    // One caller has not all of them.
    let home = home("[limits]\nmcp_sessions = 3\n");
    let worker = home.quick("worker");
    let host = home.serve(&worker, &[]);
    let endpoint = Endpoint::new(&host, "/mcp");
    let (first, _) = endpoint.open(OLD);
    let (second, _) = endpoint.open(OLD);
    let streams = [&first, &second].map(|session| session.send("GET", ""));
    assert!(streams.iter().all(|stream| stream.status == 200));
    let full = endpoint.post(&initialize(OLD, json!({})));
    assert_eq!((full.status, full.header("retry-after")), (503, Some("30")));
    assert!(full.message()["error"]["message"].as_str().unwrap().contains("limits.mcp_sessions"));
    assert_eq!(second.ask("ping", json!({})), json!({}));
    // Other callers can still open sessions.
    assert_eq!(endpoint.modern("server/discover", json!({})).status, 200);
    assert_eq!(first.send("DELETE", "").status, 204);
    let (third, _) = endpoint.open(OLD);
    // A session in use is not closed.
    wait_for("room for a session", || (endpoint.post(&initialize(OLD, json!({}))).status == 200).then_some(()));
    let ping = |session: &Endpoint| session.post(&request("ping", json!({}))).status;
    assert_eq!((ping(&second), ping(&third)), (200, 404));
}

#[test]
fn an_idle_session_is_closed_and_one_with_a_call_under_way_is_not() {
    let mut home = home("[limits]\nmcp_session_seconds = 5\n");
    home.set("GUILD_LOG", "info,guild_server=debug");
    home.endless("worker");
    let host = home.serve_roster(&[]);
    let bridge = Endpoint::new(&host, "/dispatch/worker/mcp");
    let (listening, _) = bridge.open(OLD);
    let stream = listening.send("GET", "");
    assert_eq!(stream.status, 200);
    let (waits, _) = bridge.open(OLD);
    let mut call = waits.post(&request("tools/call", waiting("t")));
    let (unused, _) = bridge.open(OLD);
    // To ask it whether it is there would be to use it.
    host.prints("an unused session is closed");
    assert_eq!(unused.post(&request("ping", json!({}))).status, 404);
    assert_eq!(listening.ask("ping", json!({})), json!({}));
    drop(stream);
    let [job] = jobs(&host, "worker").try_into().unwrap();
    host.at("worker").cancel(job["jobId"].as_str().unwrap()).unwrap();
    let ended = result(call.next().unwrap());
    assert_eq!(ended["isError"], true);
    assert!(ended["content"][0]["text"].as_str().unwrap().contains("cancelled"), "{ended}");
}

#[test]
fn clients_of_both_kinds_are_notified_that_the_lists_have_changed() {
    let home = Home::new();
    home.quick("worker");
    let host = home.serve_roster(&[]);
    let roster = Endpoint::new(&host, "/mcp");
    let (session, _) = roster.open(OLD);
    session.ask("tools/list", json!({}));
    let mut stream = session.send("GET", "");
    assert_eq!(stream.status, 200);
    let wanted = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true}});
    let mut listener = roster.modern("subscriptions/listen", wanted);
    assert!(listener.is_stream());
    let accepted = listener.next().unwrap();
    assert_eq!(accepted["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(accepted["params"]["notifications"]["toolsListChanged"], true, "{accepted}");
    assert!(accepted["params"]["notifications"].get("resourcesListChanged").is_none(), "{accepted}");

    // One set of tools is for all workers: another worker changes the prompt that names them, and no tool.
    home.quick("added");
    let next = |stream: &mut Answer| stream.next().unwrap()["method"].clone();
    assert_eq!(next(&mut listener), "notifications/prompts/list_changed");
    let mut both = [next(&mut stream), next(&mut stream)].map(|method| method.as_str().unwrap().to_owned());
    both.sort();
    assert_eq!(both, ["notifications/prompts/list_changed", "notifications/resources/list_changed"]);
    home.member("box", "toolbox-plugin", &guest::toolbox("(call $ok (local.get 2) (local.get 3))"));
    home.edit_manifest("box", |manifest| manifest["capabilities"] = json!(["tools"]));
    // Until its manifest is edited it may be a worker, which is notified first.
    while next(&mut listener) != "notifications/tools/list_changed" {}
    while next(&mut stream) != "notifications/tools/list_changed" {}
    let workers = json!({"name": "workers", "arguments": {}});
    wait_for("the new worker", || {
        session.ask("tools/call", workers.clone()).to_string().contains("added").then_some(())
    });
    let tools = session.ask("tools/list", json!({}));
    assert_eq!(roster.modern_result("tools/list", json!({}))["tools"], tools["tools"]);
}

#[test]
fn a_member_s_tools_and_its_bridge_are_together_where_all_of_it_is() {
    let home = Home::new();
    let worker = home.quick("group/worker");
    let members = home.path("members");
    let roster = || home.serve_roster(&[]);
    let single = || home.serve(&worker, &["--members", members.to_str().unwrap()]);
    for start in [&roster as &dyn Fn() -> Host, &single] {
        let host = start();
        let whole = Endpoint::new(&host, "/all/group/worker/mcp");
        let listed = whole.modern_result("tools/list", json!({}));
        let all = names(&listed["tools"]);
        assert!(all.len() == 6 && all.iter().all(|name| name.starts_with("group--worker-dispatch__")), "{all:?}");
        let made = whole.modern_result("tools/call", json!({"name": all[0], "arguments": work()}));
        assert_eq!(made["structuredContent"]["status"], "running", "{made}");
        assert_eq!(Endpoint::new(&host, "/all/other/mcp").modern("tools/list", json!({})).status, 404);
        let _ = host.stop();
    }
}

#[test]
fn auth_comes_before_any_session() {
    let home = Home::new();
    let worker = home.quick("worker");
    let host = home.serve(&worker, &[]);
    let endpoint = Endpoint::new(&host, "/mcp");
    let (session, _) = endpoint.with("Origin", "http://localhost").open(OLD);
    for (name, value) in [("Origin", "https://evil.example"), ("Host", "evil.example")] {
        let strange = endpoint.with(name, value);
        assert_eq!(strange.post(&initialize(OLD, json!({}))).status, 403, "{name}");
        assert_eq!(strange.modern("server/discover", json!({})).status, 403, "{name}");
        let strange = session.with(name, value);
        assert_eq!(strange.post(&request("ping", json!({}))).status, 403, "{name}");
        assert_eq!(strange.send("GET", "").status, 403, "{name}");
        assert_eq!(strange.send("DELETE", "").status, 403, "{name}");
    }
    assert_eq!(session.ask("ping", json!({})), json!({}));
}

#[test]
fn what_a_client_does_wrong_is_no_warning_of_the_host() {
    let home = Home::new();
    let worker = home.quick("worker");
    let host = home.serve(&worker, &[]);
    let endpoint = Endpoint::new(&host, "/mcp");
    let (session, _) = endpoint.open(OLD);
    assert_eq!(session.post(&request("tools/call", json!({"name": "nothing"}))).message()["error"]["code"], -32602);
    assert_eq!(endpoint.modern("no/such", json!({})).status, 404);
    let before = endpoint.with("MCP-Protocol-Version", "2024-11-05");
    assert_eq!(before.post(&initialize(OLD, json!({}))).status, 400);
    let (_, log) = host.stop();
    assert!(!log.contains("WARN"), "{log}");
}

#[test]
fn a_session_is_answered_by_its_member_as_that_is_now() {
    let home = Home::new();
    let member = |tool: &str| {
        let guest = guest::Guest::default().tools(&[(tool, guest::ANYTHING)]);
        home.member("box", "toolbox-plugin", &guest.call("(call $ok (local.get 2) (local.get 3))").build());
        home.edit_manifest("box", |manifest| manifest["capabilities"] = json!(["tools"]));
    };
    member("before");
    let host = home.serve_roster(&[]);
    let own = Endpoint::new(&host, "/members/box/mcp");
    let (session, _) = own.open(OLD);
    assert_eq!(names(&session.ask("tools/list", json!({}))["tools"]), ["before"]);
    let stream = session.send("GET", "");
    let wanted = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
    let mut listener = own.modern("subscriptions/listen", json!({"notifications": wanted}));
    assert_eq!(listener.next().unwrap()["params"]["notifications"], json!({"toolsListChanged": true}));
    member("after");
    wait_for("the change to be loaded", || {
        let approved = home.run(&["approve", "box", "--members", "members", "--yes"]);
        assert!(approved.status.success(), "{approved:?}");
        (names(&session.ask("tools/list", json!({}))["tools"]) == ["after"]).then_some(())
    });
    let called = session.ask("tools/call", json!({"name": "after", "arguments": {"a": 1}}));
    assert_eq!(called["structuredContent"], json!({"a": 1}));
    // There is no notification of what this endpoint does not have, nor of what others offer: the next one is of the next
    // change of its own tools.
    home.quick("added");
    wait_for("the new worker", || (host.members().len() == 2).then_some(()));
    for mut stream in [stream, listener] {
        assert_eq!(stream.next().unwrap()["method"], "notifications/tools/list_changed");
    }
}

#[test]
fn a_component_s_tool_is_called_by_clients_of_both_kinds() {
    let home = Home::new();
    // It answers with its input.
    home.member("echo", "toolbox-plugin", &guest::toolbox("(call $ok (local.get 2) (local.get 3))"));
    home.edit_manifest("echo", |manifest| manifest["capabilities"] = json!(["tools"]));
    let host = home.serve_roster(&[]);
    let member = Endpoint::new(&host, "/members/echo/mcp");
    let (session, initialized) = member.open("2025-06-18");
    // Nothing can be dispatched here, so there are no jobs, and no workers to list.
    assert_eq!(initialized["capabilities"], json!({"tools": {"listChanged": true}}));
    let call = |name: &str| json!({"name": name, "arguments": {"a": [1, "ü"]}});
    for called in [session.ask("tools/call", call("do")), member.modern_result("tools/call", call("do"))] {
        assert_eq!((&called["structuredContent"], &called["isError"]), (&json!({"a": [1, "ü"]}), &json!(false)));
        assert_eq!(called["content"][0]["text"], r#"{"a":[1,"ü"]}"#);
    }
    for path in ["/mcp", "/all/echo/mcp"] {
        let many = Endpoint::new(&host, path);
        assert_eq!(names(&many.modern_result("tools/list", json!({}))["tools"]), ["echo__do"]);
        assert_eq!(many.modern_result("tools/call", call("echo__do"))["structuredContent"]["a"][0], 1);
    }
}
