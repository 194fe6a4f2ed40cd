//! The dispatch bridge, resources and prompts, as a client without a session sees them; and the endpoint of a whole roster.

use serde_json::{Value, json};

use crate::support::{
    guest,
    host::{Client, Home, Host},
};

fn at(host: &Host, path: &str) -> Client {
    Client::new(host.port, path)
}

/// Calls a tool: its structured content, which its text says too; or why it did not work.
fn tool(client: &Client, name: &str, arguments: Value) -> Result<Value, String> {
    let called = client.call("tools/call", json!({"name": name, "arguments": arguments})).unwrap();
    let text = called["content"][0]["text"].as_str().unwrap().to_owned();
    if called["isError"] == json!(true) {
        assert!(called.get("structuredContent").is_none(), "{called}");
        return Err(text);
    }
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), called["structuredContent"]);
    Ok(called["structuredContent"].clone())
}

/// Calls a tool that returns a report: its Markdown, and its job.
fn report(client: &Client, name: &str, arguments: Value) -> (String, Value) {
    let called = client.call("tools/call", json!({"name": name, "arguments": arguments})).unwrap();
    assert_eq!(called["isError"], false, "{called}");
    // Many clients show a model nothing else where there is structured content.
    assert_eq!(called.get("structuredContent"), None, "{called}");
    let job = called["_meta"]["guild/job"].clone();
    let about = called["content"][1]["text"].as_str().unwrap();
    assert!(
        about.contains(job["jobId"].as_str().unwrap()) && about.contains(job["worker"].as_str().unwrap()),
        "{called}"
    );
    (called["content"][0]["text"].as_str().unwrap().to_owned(), job)
}

/// The tools of an endpoint, by name.
fn tools(client: &Client) -> Vec<Value> {
    client.call("tools/list", json!({})).unwrap()["tools"].as_array().unwrap().clone()
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

const SIX: [&str; 6] = ["dispatch", "list", "status", "result", "cancel", "delete"];

#[test]
fn a_worker_s_six_methods_are_the_tools_of_its_dispatch_server() {
    let home = Home::new();
    home.quick("worker");
    home.endless("group/endless");
    let host = home.serve_roster(&[]);
    let bridge = at(&host, "/dispatch/worker/mcp");

    let initialized = bridge.call("initialize", json!({"protocolVersion": "2025-06-18"})).unwrap();
    assert_eq!(initialized["serverInfo"]["name"], "worker-dispatch");
    let instructions = initialized["instructions"].as_str().unwrap();
    assert!(instructions.contains("`worker-dispatch`") && !instructions.contains("endless"), "{instructions}");

    let listed = tools(&bridge);
    assert_eq!(names(&listed), SIX);
    for tool in &listed {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert!(!tool.to_string().contains("$ref") && !tool.to_string().contains("uint"), "{tool}");
    }
    let dispatched = tool(&bridge, "dispatch", json!({"description": "d", "task": "t"})).unwrap();
    let id = dispatched["jobId"].as_str().unwrap();
    assert_eq!(dispatched, json!({"jobId": id, "status": "running"}));
    host.at("worker").ended(id);
    let job = json!({"jobId": id});
    assert_eq!(tool(&bridge, "status", job.clone()).unwrap(), host.at("worker").status(id).unwrap());
    assert_eq!(tool(&bridge, "cancel", job.clone()).unwrap(), json!({"jobId": id, "status": "completed"}));
    let (text, of) = report(&bridge, "result", job.clone());
    assert_eq!((text.as_str(), &of["jobId"], &of["worker"]), ("date", &json!(id), &json!("worker")));
    let all = tool(&bridge, "list", json!({"detail": "detailed"})).unwrap();
    assert_eq!(all["jobs"][0]["jobId"], id);
    assert_eq!(tool(&bridge, "delete", job.clone()).unwrap(), json!({"jobId": id, "deleted": true}));
    assert_eq!(
        tool(&bridge, "status", job).unwrap_err(),
        format!("Unknown job ID: {id}; `list` lists the ids of the jobs")
    );

    // The other worker's jobs are its own, and its server is under its whole key.
    let other = at(&host, "/dispatch/group/endless/mcp");
    let id = tool(&other, "dispatch", json!({"description": "d", "task": "t"})).unwrap()["jobId"].clone();
    assert!(tool(&bridge, "cancel", json!({"jobId": id})).unwrap_err().contains("Unknown job ID"));
    assert_eq!(tool(&other, "cancel", json!({"jobId": id})).unwrap()["status"], "cancelled");
}

#[test]
fn what_a_method_refuses_a_tool_returns_as_its_error() {
    let home = Home::new();
    let worker = home.quick("worker");
    home.edit_manifest("worker", |manifest| {
        manifest["component"]["configSchema"] = json!({"type": "object", "properties": {"depth": {"type": "integer"}}});
    });
    let host = home.serve(&worker, &[]);
    let bridge = at(&host, "/dispatch/worker/mcp");
    let listed = tools(&bridge);
    assert_eq!(listed[0]["inputSchema"]["properties"]["config"]["properties"]["depth"]["type"], "integer");
    let refused = |arguments: Value| tool(&bridge, "dispatch", arguments).unwrap_err();
    assert!(refused(json!({"description": "d"})).contains("`task` is missing"));
    assert!(refused(json!({"description": "d", "task": "t", "wait": "yes"})).contains("`wait` must be true or false"));
    let wrong = refused(json!({"description": "d", "task": "t", "config": {"depth": "x"}}));
    assert!(wrong.contains("at /depth"), "{wrong}");
    let unknown = refused(json!({"description": "d", "taks": "t"}));
    assert_eq!(
        unknown,
        "`dispatch` has no argument `taks`; did you mean `task`? known are description, task, config, attachments, follows, key, wait"
    );
    assert!(tool(&bridge, "list", json!({"worker": "worker"})).unwrap_err().contains("known are detail, filter"));
    let unknown = bridge.call("tools/call", json!({"name": "dispatch_all"})).unwrap_err();
    assert_eq!(
        (unknown.code, unknown.message.as_str()),
        (-32602, "Unknown tool: dispatch_all; did you mean `dispatch`?")
    );
    // The methods themselves are at the member's own endpoint.
    assert_eq!(bridge.call("worker/list", json!({})).unwrap_err().code, -32601);
}

#[test]
fn a_dispatch_that_waits_answers_with_how_the_job_ended() {
    let home = Home::new();
    home.quick("quick");
    home.failing("failing");
    let host = home.serve_roster(&[]);
    let wait = json!({"description": "d", "task": "t", "wait": true});
    let quick = at(&host, "/dispatch/quick/mcp");
    let (text, job) = report(&quick, "dispatch", wait.clone());
    assert_eq!((text.as_str(), &job["status"]), ("date", &json!("completed")));
    let failed = tool(&at(&host, "/dispatch/failing/mcp"), "dispatch", wait).unwrap_err();
    assert!(failed.starts_with("Job failed: date"), "{failed}");
}

#[test]
fn a_name_that_two_members_would_have_calls_neither_of_their_tools() {
    let home = Home::new();
    for (key, answer) in [("a.b", "1"), ("a_b", "2")] {
        let answer = format!(
            "(i32.store8 (i32.const 512) (i32.const {})) (call $ok (i32.const 512) (i32.const 1))",
            answer.as_bytes()[0]
        );
        home.member(key, "toolbox-plugin", &guest::toolbox(&answer));
        home.edit_manifest(key, |manifest| manifest["capabilities"] = json!(["tools"]));
    }
    home.quick("a");
    let host = home.serve_roster(&[]);
    let roster = at(&host, "/mcp");
    let listed = tools(&roster);
    assert!(!listed.iter().any(|tool| tool["name"].as_str().unwrap().contains("__")), "{listed:?}");
    let error = roster.call("tools/call", json!({"name": "a_b__do", "arguments": {}})).unwrap_err();
    assert!(error.code == -32602 && error.message.starts_with("Unknown tool: a_b__do"), "{error:?}");
    host.prints("a_b__do would be a tool of several members");
    // At the member's own endpoint the name is not ambiguous.
    let called = host.at("a_b").call("tools/call", json!({"name": "do", "arguments": {}})).unwrap();
    assert_eq!(called["content"][0]["text"], "2");
}

#[test]
fn only_a_worker_has_a_dispatch_server() {
    let home = Home::new();
    let worker = home.quick("worker");
    home.quick("idle");
    home.edit_manifest("idle", |manifest| manifest["capabilities"] = json!([]));
    let status = |host: &Host, path: &str| {
        at(host, path).post(r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}"#).unwrap().0
    };
    let roster = home.serve_roster(&[]);
    assert_eq!(status(&roster, "/dispatch/worker/mcp"), 200);
    for path in ["/dispatch/idle/mcp", "/dispatch/nobody/mcp", "/dispatch/mcp", "/dispatch/worker"] {
        assert_eq!(status(&roster, path), 404, "{path}");
    }
    roster.stop();
    let single = home.serve(&worker, &[]);
    assert_eq!(status(&single, "/dispatch/worker/mcp"), 200);
    for path in ["/dispatch/idle/mcp", "/members/worker/mcp"] {
        assert_eq!(status(&single, path), 404, "{path}");
    }
}

#[test]
fn how_to_work_with_the_workers_is_a_prompt_and_there_is_none_without_a_worker() {
    let home = Home::new();
    home.quick("worker");
    let host = home.serve_roster(&[]);
    for path in ["/mcp", "/dispatch/worker/mcp"] {
        let client = at(&host, path);
        let prompts = client.call("prompts/list", json!({})).unwrap();
        assert_eq!(prompts["prompts"][0]["name"], "workers", "{path}");
        let prompt = client.call("prompts/get", json!({"name": "workers"})).unwrap();
        let initialized = client.call("initialize", json!({})).unwrap();
        assert_eq!(prompt["messages"][0]["content"]["text"], initialized["instructions"], "{path}");
        assert_eq!(initialized["capabilities"]["prompts"], json!({}), "{path}");
    }
    let unknown = at(&host, "/mcp").call("prompts/get", json!({"name": "others"})).unwrap_err();
    assert_eq!((unknown.code, unknown.message.as_str()), (-32602, "Unknown prompt: others"));
    host.stop();

    home.edit_manifest("worker", |manifest| manifest["capabilities"] = json!([]));
    let host = home.serve_roster(&[]);
    let initialized = at(&host, "/mcp").call("initialize", json!({})).unwrap();
    assert_eq!(initialized.get("instructions"), None, "{initialized}");
    assert_eq!(at(&host, "/mcp").call("prompts/list", json!({})).unwrap(), json!({"prompts": []}));
    assert_eq!(
        at(&host, "/mcp").call("resources/templates/list", json!({})).unwrap(),
        json!({"resourceTemplates": []})
    );
}

#[test]
fn what_jobs_left_are_resources_listed_page_by_page_and_readable() {
    let home = Home::new();
    home.quick("worker");
    home.quick("group/other");
    let host = home.serve_roster(&[]);
    let (worker, roster) = (host.at("worker"), at(&host, "/mcp"));
    let mut ids: Vec<String> = (0..60).map(|n| worker.start(&format!("job {n}"))).collect();
    let other = host.at("group/other").start("other");
    host.at("group/other").ended(&other);
    ids.iter().for_each(|id| drop(worker.ended(id)));
    home.write(&format!("members/worker/jobs/{}/artifacts/a b/table.csv", ids[59]), "x,y\n1,2\n");
    home.write(&format!("members/worker/jobs/{}/artifacts/raw.bin", ids[59]), [0xff, 0x00]);

    let (mut uris, mut cursor, mut pages) = (Vec::new(), None, 0);
    loop {
        let params = cursor.take().map_or_else(|| json!({}), |cursor: Value| json!({"cursor": cursor}));
        let page = roster.call("resources/list", params).unwrap();
        uris.extend(page["resources"].as_array().unwrap().iter().map(|one| one["uri"].as_str().unwrap().to_owned()));
        pages += 1;
        match page.get("nextCursor") {
            Some(next) => cursor = Some(next.clone()),
            None => break,
        }
    }
    // Member by member, newest jobs first, each once.
    ids.reverse();
    let of_job = |member: &str, id: &str| {
        [format!("guild://{member}/jobs/{id}/result"), format!("guild://{member}/jobs/{id}/status")]
    };
    let mut expected: Vec<String> = of_job("group%2Fother", &other).into();
    for (n, id) in ids.iter().enumerate() {
        let [result, status] = of_job("worker", id);
        expected.push(result);
        if n == 0 {
            expected.extend(
                ["a%20b/table.csv", "raw.bin"].map(|path| format!("guild://worker/jobs/{id}/artifacts/{path}")),
            );
        }
        expected.push(status);
    }
    assert_eq!(uris, expected);
    assert_eq!(pages, 2);
    assert_eq!(
        at(&host, "/dispatch/group/other/mcp").call("resources/list", json!({})).unwrap()["resources"]
            .as_array()
            .unwrap()
            .len(),
        2
    );

    let read = |uri: &str| roster.call("resources/read", json!({"uri": uri})).map(|read| read["contents"][0].clone());
    let base = format!("guild://worker/jobs/{}", ids[0]);
    let result = read(&format!("{base}/result")).unwrap();
    assert_eq!((&result["text"], &result["mimeType"]), (&json!("date"), &json!("text/markdown")));
    let status: Value =
        serde_json::from_str(read(&format!("{base}/status")).unwrap()["text"].as_str().unwrap()).unwrap();
    assert_eq!(status, worker.status(&ids[0]).unwrap());
    let table = read(&format!("{base}/artifacts/a%20b/table.csv")).unwrap();
    assert_eq!((&table["text"], &table["mimeType"]), (&json!("x,y\n1,2\n"), &json!("text/csv")));
    assert_eq!(read(&format!("{base}/artifacts/raw.bin")).unwrap()["blob"], "/wA=");
    for missing in ["/artifacts/none", "/artifacts/../meta.json", "/artifacts/%2e%2e/meta.json", "/meta.json", ""] {
        let error = read(&format!("{base}{missing}")).unwrap_err();
        assert_eq!(error.code, -32602, "{missing}: {error:?}");
    }
    let elsewhere = at(&host, "/dispatch/group/other/mcp");
    assert_eq!(elsewhere.call("resources/read", json!({"uri": format!("{base}/result")})).unwrap_err().code, -32602);
    let cursor = roster.call("resources/list", json!({"cursor": "mine"})).unwrap_err();
    assert!(cursor.message.contains("start without a cursor"), "{cursor:?}");
}

#[test]
fn a_call_of_a_component_s_tool_is_in_the_audit_log() {
    let mut home = Home::new();
    let member = home.member("box", "toolbox-plugin", &guest::toolbox("(call $ok (local.get 2) (local.get 3))"));
    home.edit_manifest("box", |manifest| manifest["capabilities"] = json!(["tools"]));
    let file = home.write("guild.toml", "audit_log = \"audit.jsonl\"\n");
    home.set("GUILD_CONFIG", file.to_str().unwrap());
    let host = home.serve(&member, &[]);
    for name in ["do", "a-name-of-the-caller-s"] {
        let _ = host.client().call("tools/call", json!({"name": name, "arguments": {"secret": 1}}));
    }
    let log = std::fs::read_to_string(home.path("audit.jsonl")).unwrap();
    let calls: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let calls: Vec<_> = calls.iter().filter(|line| line["method"] == "tools/call").collect();
    assert_eq!((&calls[0]["detail"], &calls[0]["outcome"]), (&json!("do"), &json!("ok")));
    assert_eq!((calls[1].get("detail"), &calls[1]["outcome"]), (None, &json!("invalid")));
    assert!(!log.contains("secret") && !log.contains("a-name-of-the-caller-s"), "{log}");
}

#[test]
fn a_page_of_resources_is_bounded_whatever_a_job_left() {
    let home = Home::new();
    let worker = home.quick("worker");
    let host = home.serve(&worker, &[]);
    let client = host.client();
    let ids: Vec<String> = (0..3).map(|n| client.start(&format!("job {n}"))).collect();
    for id in &ids {
        client.ended(id);
        for n in 0..300 {
            home.write(&format!("members/worker/jobs/{id}/artifacts/{n:03}"), "");
        }
        let long = vec!["d".repeat(200); 4].join("/");
        home.write(&format!("members/worker/jobs/{id}/artifacts/{long}"), "far down");
    }
    let first = client.call("resources/list", json!({})).unwrap();
    // Two jobs, each with a hundred of its files: then it is enough.
    assert_eq!(first["resources"].as_array().unwrap().len(), 204);
    let rest = client.call("resources/list", json!({"cursor": first["nextCursor"]})).unwrap();
    assert_eq!((rest["resources"].as_array().unwrap().len(), rest.get("nextCursor")), (102, None));
    // What is not listed can be read all the same, by its name.
    let long = format!("guild://worker/jobs/{}/artifacts/{}", ids[0], vec!["d".repeat(200); 4].join("/"));
    assert_eq!(client.call("resources/read", json!({"uri": long})).unwrap()["contents"][0]["text"], "far down");
}

#[test]
fn a_token_sees_and_does_in_a_roster_what_it_is_for() {
    let mut home = Home::new();
    home.quick("open");
    home.quick("closed");
    let file = home.write("guild.toml", "require_token = true\n");
    home.set("GUILD_CONFIG", file.to_str().unwrap());
    let token = |arguments: &[&str]| {
        let made = home.run(&[&["token", "add"], arguments].concat());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let reader = token(&["reader", "--members", "open", "--role", "view"]);
    let worker = token(&["worker", "--members", "open", "--role", "dispatch"]);
    let mut host = home.serve_roster(&[]);
    host.token = Some(reader.clone());
    let listed: Vec<Value> = host.members().iter().map(|member| member["member"].clone()).collect();
    assert_eq!(listed, ["open"]);
    let roster = |token: &str| {
        let mut client = at(&host, "/mcp");
        client.token = Some(token.to_owned());
        client
    };

    assert_eq!(names(&tools(&roster(&worker)))[1..], SIX[..4]);
    let initialized = roster(&worker).call("initialize", json!({})).unwrap();
    let prompt = roster(&worker).call("prompts/get", json!({"name": "workers"})).unwrap();
    for text in
        [initialized["instructions"].as_str().unwrap(), prompt["messages"][0]["content"]["text"].as_str().unwrap()]
    {
        assert!(text.contains("- `open`: ") && !text.contains("closed"), "{text}");
    }
    let call = |token: &str, name: &str, arguments: Value| {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}});
        roster(token).post(&request.to_string()).unwrap()
    };
    let task = |worker: &str| json!({"worker": worker, "description": "d", "task": "t"});
    let (status, body) = call(&worker, "dispatch", task("open"));
    assert_eq!(status, 200, "{body}");
    assert_eq!(call(&reader, "list", json!({})).0, 200);
    assert_eq!(call(&reader, "workers", json!({})).0, 200);
    let (status, body) = call(&reader, "dispatch", task("open"));
    assert!(status == 403 && body.contains("\"the token reader is not for worker/dispatch\""), "{status} {body}");
    assert_eq!(call(&worker, "cancel", json!({"jobId": "x"})).0, 403);
    let (_, unknown) = call(&worker, "dispatch", task("closed"));
    assert!(unknown.contains("Unknown worker: closed; known are open"), "{unknown}");
    // What somebody else's job is called does not lead to it.
    let mut owner = host.at("closed");
    owner.token = Some(token(&["owner"]));
    let job = owner.start("t");
    owner.ended(&job);
    for (name, arguments) in [
        ("status", json!({"jobId": job})),
        ("result", json!({"jobId": job})),
        ("status", json!({"jobId": job, "worker": "closed"})),
    ] {
        let (_, body) = call(&worker, name, arguments);
        assert!(body.contains("Unknown job ID: ") || body.contains("Unknown worker: closed"), "{body}");
    }
    assert!(!call(&worker, "list", json!({})).1.contains(&job));
}
