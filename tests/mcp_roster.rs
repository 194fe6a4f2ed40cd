//! A roster's `/mcp`: one set of tools for all workers, and the components' tools up to a bound.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::support::{
    guest::{self, Guest},
    host::{Client, Home, Host, wait_for},
    mcp,
};

/// A rough count of the tokens that a model reads: a quarter of the bytes.
fn tokens(client: &Client) -> usize {
    let initialized = client.call("initialize", json!({"protocolVersion": "2025-06-18"})).unwrap();
    let listed = client.call("tools/list", json!({})).unwrap();
    (initialized["instructions"].as_str().map_or(0, str::len) + listed["tools"].to_string().len()) / 4
}

fn roster(host: &Host) -> Client {
    Client::new(host.port, "/mcp")
}

fn names(client: &Client) -> Vec<String> {
    let listed = client.call("tools/list", json!({})).unwrap();
    mcp::names(&listed["tools"]).into_iter().map(str::to_owned).collect()
}

/// Calls a tool: what it answers, or why it did not work.
fn call(client: &Client, name: &str, arguments: Value) -> Result<Value, String> {
    let called = client.call("tools/call", json!({"name": name, "arguments": arguments})).unwrap();
    let text = called["content"][0]["text"].as_str().unwrap().to_owned();
    match (called["isError"] == json!(true), called.get("structuredContent")) {
        (true, _) => Err(text),
        (false, Some(structured)) => Ok(structured.clone()),
        (false, None) => Ok(text.into()),
    }
}

const OF_WORKERS: [&str; 7] = ["workers", "dispatch", "list", "status", "result", "cancel", "delete"];

/// A toolbox of so many tools, which answer with their input.
fn toolbox(home: &Home, key: &str, tools: &[&str]) {
    let tools: Vec<_> = tools.iter().map(|tool| (*tool, guest::ANYTHING)).collect();
    let guest = Guest::default().tools(&tools).call("(call $ok (local.get 2) (local.get 3))");
    home.member(key, "toolbox-plugin", &guest.build());
    home.edit_manifest(key, |manifest| manifest["capabilities"] = json!(["tools"]));
}

#[test]
fn a_hundred_workers_cost_a_model_no_more_than_3000_tokens() {
    let home = Home::new();
    let first = home.quick("department/worker-000");
    home.edit_manifest("department/worker-000", |manifest| {
        manifest["description"] =
            json!("Does what a member of this department does, and says so at some length. ".repeat(4));
        manifest["component"]["configSchema"] = json!({"type": "object", "properties": {"depth": {"type": "integer"}}});
    });
    for n in 1..100 {
        let other = home.path(&format!("members/department/worker-{n:03}"));
        fs::create_dir_all(&other).unwrap();
        for file in fs::read_dir(&first).unwrap().map(Result::unwrap).filter(|file| file.path().is_file()) {
            fs::copy(file.path(), other.join(file.file_name())).unwrap();
        }
    }
    let host = home.serve_roster(&[]);
    let roster = roster(&host);
    assert_eq!(names(&roster), OF_WORKERS);
    assert!(tokens(&roster) <= 3000, "{}", tokens(&roster));
    let initialized = roster.call("initialize", json!({})).unwrap();
    let instructions = initialized["instructions"].as_str().unwrap();
    assert!(
        instructions.contains("`department/worker-099`") && instructions.contains("`wait: true`"),
        "{instructions}"
    );

    let all = call(&roster, "workers", json!({})).unwrap();
    assert_eq!(all["workers"].as_array().unwrap().len(), 100);
    let one = call(&roster, "workers", json!({"worker": "department/worker-000"})).unwrap();
    assert_eq!(one["config"]["properties"]["depth"]["type"], "integer", "{one}");
    let found = call(&roster, "workers", json!({"query": "worker 042"})).unwrap();
    assert_eq!(found["workers"][0]["worker"], "department/worker-042");
    let slip = call(&roster, "workers", json!({"worker": "departmnet/worker-042"})).unwrap_err();
    assert!(slip.contains("did you mean `department/worker-042`?") && slip.contains(" more"), "{slip}");
}

#[test]
fn one_set_of_tools_reaches_every_worker_and_finds_a_job_by_its_id() {
    let home = Home::new();
    home.quick("b.b");
    home.quick("group/a");
    home.endless("endless");
    home.quick("idle");
    home.edit_manifest("idle", |manifest| manifest["capabilities"] = json!([]));
    let host = home.serve_roster(&[]);
    let roster = roster(&host);
    assert_eq!(names(&roster), OF_WORKERS);
    let initialized = roster.call("initialize", json!({})).unwrap();
    let instructions = initialized["instructions"].as_str().unwrap();
    assert!(instructions.contains("- `group/a`: ") && !instructions.contains("idle"), "{instructions}");

    let work = |worker: &str, wait: bool| json!({"worker": worker, "description": "d", "task": "t", "wait": wait});
    let done = roster.call("tools/call", json!({"name": "dispatch", "arguments": work("group/a", true)})).unwrap();
    assert_eq!((&done["content"][0]["text"], done.get("structuredContent")), (&json!("date"), None), "{done}");
    let job = &done["_meta"]["guild/job"];
    assert_eq!((&job["worker"], &job["status"]), (&json!("group/a"), &json!("completed")), "{done}");
    let id = job["jobId"].as_str().unwrap();
    assert_eq!(call(&roster, "result", json!({"jobId": id})).unwrap(), "date");
    assert_eq!(call(&roster, "result", json!({"jobId": id, "worker": "group/a"})).unwrap(), "date");
    let elsewhere = call(&roster, "result", json!({"jobId": id, "worker": "b.b"})).unwrap_err();
    assert!(elsewhere.starts_with(&format!("Unknown job ID: {id}; it is a job of group/a: ")), "{elsewhere}");

    // The newest of all workers come first, each with its worker.
    let running = call(&roster, "dispatch", work("endless", false)).unwrap();
    let listed = call(&roster, "list", json!({"detail": "detailed", "filter": "d*"})).unwrap();
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 2, "{listed}");
    assert_eq!((&listed["jobs"][0]["worker"], &listed["jobs"][0]["jobId"]), (&json!("endless"), &running["jobId"]));
    assert_eq!(listed["jobs"][1]["description"], "d");
    assert_eq!(call(&roster, "list", json!({"worker": "b.b"})).unwrap(), json!({"jobs": []}));
    let job = json!({"jobId": running["jobId"]});
    assert_eq!(call(&roster, "status", job.clone()).unwrap()["status"], "running");
    assert_eq!(call(&roster, "cancel", job.clone()).unwrap()["status"], "cancelled");
    assert_eq!(call(&roster, "delete", job.clone()).unwrap()["deleted"], true);
    assert!(call(&roster, "status", job).unwrap_err().starts_with("Unknown job ID: "));

    // A copy of a job has two owners.
    let copy = home.path(&format!("members/b.b/jobs/{id}"));
    fs::create_dir_all(&copy).unwrap();
    for file in fs::read_dir(home.path(&format!("members/group/a/jobs/{id}"))).unwrap().map(Result::unwrap) {
        if file.path().is_file() {
            fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
    }
    let several = wait_for("the copy to be noticed", || {
        let _ = host.at("b.b").call("worker/list", json!({}));
        call(&roster, "status", json!({"jobId": id})).err()
    });
    assert!(several.contains("b.b, group/a") && several.contains("`worker`"), "{several}");
    assert_eq!(call(&roster, "status", json!({"jobId": id, "worker": "b.b"})).unwrap()["status"], "completed");
}

#[test]
fn what_is_refused_says_what_there_is() {
    let home = Home::new();
    for key in ["reader", "writer"] {
        home.quick(key);
    }
    toolbox(&home, "box", &["first", "second"]);
    home.member("broken", "autonomous-worker", b"x");
    home.edit_manifest("broken", |manifest| manifest["component"]["world"] = json!("no-such-world"));
    home.member("unloadable", "autonomous-worker", b"x");
    let host = home.serve_roster(&[]);
    let roster = roster(&host);
    let refused = |name: &str, arguments: Value| call(&roster, name, arguments).unwrap_err();
    let task = |worker: &str| json!({"worker": worker, "description": "d", "task": "t"});
    // Until that is known of it, it is a worker as any.
    assert!(refused("dispatch", task("unloadable")).contains("unloadable is in state error"));
    assert_eq!(
        refused("dispatch", task("raeder")),
        "Unknown worker: raeder; did you mean `reader`? known are reader, writer"
    );
    assert!(refused("dispatch", task("broken")).contains("broken is in state error"));
    let workers = call(&roster, "workers", json!({})).unwrap().to_string();
    assert!(workers.contains("writer") && !workers.contains("unloadable"), "{workers}");
    let missing = refused("dispatch", json!({"description": "d", "task": "t"}));
    assert_eq!(missing, "Invalid params: `worker` is missing; the workers are reader, writer");
    let unknown = refused("dispatch", json!({"worker": "reader", "descripton": "d", "task": "t"}));
    assert_eq!(
        unknown,
        "`dispatch` has no argument `descripton`; did you mean `description`? known are worker, description, task, config, \
         attachments, follows, key, wait"
    );
    assert!(refused("status", json!({"id": "x"})).contains("known are worker, jobId"));
    assert!(refused("status", json!({})).contains("`jobId` is missing"));
    assert!(refused("status", json!({"worker": 7, "jobId": "x"})).contains("`worker` must be a string"));
    assert!(refused("list", json!({"detail": "full"})).contains("\"simple\" or \"detailed\""));
    assert!(refused("workers", json!({"name": "reader"})).contains("known are worker, query"));
    assert!(refused("find_tools", json!({"query": " "})).contains("`query` has no words"));
    assert!(refused("call_tool", json!({"name": "box__frist"})).contains("did you mean `box__first`?"));
    assert!(refused("call_tool", json!({"name": "dispatch"})).contains("call it directly, without call_tool"));
    // What is no tool at all is an error of the protocol.
    for (name, meant) in [
        ("reader-dispatch__status", "at this endpoint it is `status` with \"worker\": \"reader\""),
        ("box__secnd", "did you mean `box__second`? known are "),
        ("first", "did you mean `box__first`? known are "),
        ("dispach", "did you mean `dispatch`? known are dispatch, list,"),
    ] {
        let error = roster.call("tools/call", json!({"name": name, "arguments": {}})).unwrap_err();
        assert!(error.code == -32602 && error.message.contains(meant), "{error:?}");
    }
}

#[test]
fn tools_of_components_are_listed_up_to_the_limit_in_turns_and_the_others_are_found() {
    let home = mcp::home("[limits]\nlisted_tools_bytes = 600\n");
    let many: Vec<String> = (0..40).map(|n| format!("tool_{n:02}")).collect();
    toolbox(&home, "large", &many.iter().map(String::as_str).collect::<Vec<_>>());
    toolbox(&home, "small", &["count_words", "sort_rows"]);
    let host = home.serve_roster(&[]);
    let roster = roster(&host);
    let listed = names(&roster);
    // Each has its turn: the large toolbox does not displace the small one.
    assert_eq!(listed[..2], ["find_tools", "call_tool"]);
    assert!(
        listed.contains(&"small__count_words".to_owned()) && listed.contains(&"large__tool_00".to_owned()),
        "{listed:?}"
    );
    assert!(listed.len() < 10, "{listed:?}");
    assert_eq!(listed, names(&roster));

    let found = call(&roster, "find_tools", json!({"query": "sort the rows of a table"})).unwrap();
    assert_eq!(found["tools"][0]["name"], "small__sort_rows", "{found}");
    assert!(found["tools"][0]["inputSchema"].is_object() && found["tools"][0]["description"].is_string(), "{found}");
    let exact = call(&roster, "find_tools", json!({"query": "large__tool_37"})).unwrap();
    assert_eq!(exact["tools"][0]["name"], "large__tool_37");
    assert!(
        exact["tools"].as_array().unwrap().len() <= 10 && exact["others"].as_array().unwrap().len() >= 29,
        "{exact}"
    );
    let nothing = call(&roster, "find_tools", json!({"query": "zzz"})).unwrap();
    assert!(nothing.as_str().unwrap().contains("the tools are large__tool_00, "), "{nothing}");

    // Those that are not listed are called through `call_tool`, or by their names.
    let input = json!({"a": [1, "ü"]});
    let through = json!({"name": "large__tool_37", "arguments": input});
    assert_eq!(call(&roster, "call_tool", through).unwrap(), input);
    assert_eq!(call(&roster, "large__tool_37", input.clone()).unwrap(), input);
}

#[test]
fn tools_of_exactly_the_limit_are_listed_and_with_one_byte_less_the_last_is_found() {
    let home = mcp::home("");
    toolbox(&home, "a", &["first", "second"]);
    toolbox(&home, "b", &["third"]);
    let listed = |limits: &str| {
        home.write("guild.toml", limits);
        let host = home.serve_roster(&[]);
        let listed = roster(&host).call("tools/list", json!({})).unwrap()["tools"].take();
        host.stop();
        listed
    };
    let all = listed("");
    assert_eq!(mcp::names(&all), ["a__first", "a__second", "b__third"]);
    let bytes: usize = all.as_array().unwrap().iter().map(|tool| tool.to_string().len()).sum();
    assert_eq!(listed(&format!("[limits]\nlisted_tools_bytes = {bytes}\n")), all);
    let fewer = listed(&format!("[limits]\nlisted_tools_bytes = {}\n", bytes - 1));
    assert_eq!(mcp::names(&fewer), ["find_tools", "call_tool", "a__first", "b__third"]);
    assert!(fewer[0]["description"].as_str().unwrap().contains("are not listed: 1"), "{fewer}");
}

#[test]
fn a_tool_that_is_found_is_called_by_whom_it_is_for_and_checked_as_any() {
    let home = mcp::home("require_token = true\naudit_log = \"audit.jsonl\"\n[limits]\nlisted_tools_bytes = 1\n");
    let number = r#"{"type":"object","properties":{"n":{"type":"integer"}}}"#;
    for key in ["open", "closed"] {
        let guest = Guest::default().tools(&[("double", number)]).call("(call $ok (local.get 2) (local.get 3))");
        home.member(key, "toolbox-plugin", &guest.build());
        home.edit_manifest(key, |manifest| manifest["capabilities"] = json!(["tools"]));
    }
    let token = |arguments: &[&str]| mcp::token(&home, arguments).trim_start_matches("Bearer ").to_owned();
    let (all, dispatch) = (token(&["--members", "open", "all"]), token(&["--role", "dispatch", "some"]));
    let host = home.serve_roster(&[]);
    let with = |token: &str| {
        let mut client = roster(&host);
        client.token = Some(token.to_owned());
        client
    };
    let found = call(&with(&all), "find_tools", json!({"query": "double"})).unwrap();
    assert_eq!(mcp::names(&found["tools"]), ["open__double"]);
    let double = |n: Value| json!({"name": "open__double", "arguments": {"n": n}});
    assert_eq!(call(&with(&all), "call_tool", double(json!(2))).unwrap(), json!({"n": 2}));
    let wrong = call(&with(&all), "call_tool", double(json!("x"))).unwrap_err();
    assert!(wrong.contains("at /n: \"x\" is not of type \"integer\""), "{wrong}");
    let other = json!({"name": "closed__double", "arguments": {"n": 1}});
    assert!(call(&with(&all), "call_tool", other).unwrap_err().starts_with("Unknown tool: closed__double"));
    // Tools of components are for tokens of all methods; to find them is to read.
    assert!(call(&with(&dispatch), "find_tools", json!({"query": "double"})).is_ok());
    let request = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "call_tool", "arguments": double(json!(2))},
    });
    let (status, body) = with(&dispatch).post(&request.to_string()).unwrap();
    assert!(status == 403 && body.contains("\"the token some is not for tools/call\""), "{status} {body}");
    // What was called is written down by the tool's own name.
    let log = fs::read_to_string(home.path("audit.jsonl")).unwrap();
    let called = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let called: Vec<Value> =
        called.filter(|line| line["method"] == "tools/call" && line["detail"] == "double").collect();
    assert!(called.iter().any(|line| line["member"] == "open" && line["outcome"] == "ok"), "{log}");
}

/// Everything in a tool that a model reads: its texts, and where each stands.
fn walk(value: &Value, place: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(place, value);
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| walk(value, &format!("{place}/{key}"), visit)),
        Value::Array(items) => items.iter().for_each(|item| walk(item, place, visit)),
        _ => {}
    }
}

/// A member as `cargo xtask guests` installed it.
fn install(home: &Home, name: &str) {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guild-members").join(name);
    for file in fs::read_dir(installed).unwrap().map(Result::unwrap).filter(|file| file.path().is_file()) {
        let to = format!("members/{name}/{}", file.file_name().to_str().unwrap());
        home.write(&to, fs::read(file.path()).unwrap());
    }
}

#[test]
fn what_a_model_reads_of_any_tool_is_for_a_model() {
    let home = mcp::home("dispatch_agents = [\"claude\"]\n[limits]\nlisted_tools_bytes = 4000\n");
    for member in ["analyst", "digest", "researcher", "textkit"] {
        install(&home, member);
    }
    let host = home.serve_roster(&[]);
    let mut paths = vec!["/mcp".to_owned(), "/members/textkit/mcp".to_owned(), "/members/analyst/mcp".to_owned()];
    for key in ["analyst", "digest", "researcher", "textkit"] {
        paths.push(format!("/all/{key}/mcp"));
    }
    for key in ["analyst", "digest", "researcher"] {
        paths.push(format!("/dispatch/{key}/mcp"));
    }
    let mut tools = Vec::new();
    for path in &paths {
        let client = Client::new(host.port, path);
        let instructions = client.call("initialize", json!({})).unwrap()["instructions"].take();
        assert!(
            !instructions.to_string().contains("[`") && !instructions.to_string().contains("minute"),
            "{instructions}"
        );
        let listed = client.call("tools/list", json!({})).unwrap();
        tools.extend(listed["tools"].as_array().unwrap().iter().map(|tool| (path.clone(), tool.clone())));
    }
    assert!(tools.len() > 60, "{}", tools.len());
    for (path, tool) in &tools {
        let schema = &tool["inputSchema"];
        assert_eq!(schema["type"], "object", "{path}: {tool}");
        assert_eq!(schema["additionalProperties"], false, "{path}: {tool}");
        jsonschema::draft202012::meta::validate(schema).unwrap();
        walk(tool, "", &mut |place, value| {
            let at = || format!("{path} {}{place}: {value}", tool["name"]);
            if let Some(text) = value.as_str() {
                assert!(!text.contains("[`") && !text.contains("REQ-"), "{}", at());
                assert!(!place.ends_with("/format") || !text.contains("int"), "{}", at());
            }
            let Some(object) = value.as_object() else { return };
            for noise in ["$schema", "$defs", "$ref"] {
                assert!(!object.contains_key(noise), "{}", at());
            }
            // The title of a tool is for people; those of schemas are names of types.
            assert!(!object.get("title").is_some_and(Value::is_string) || place.is_empty(), "{}", at());
            // What has a default can be left out.
            for required in object.get("required").and_then(Value::as_array).into_iter().flatten() {
                let property = &object["properties"][required.as_str().unwrap()];
                assert!(property.is_object() && property.get("default").is_none(), "{}", at());
            }
        });
    }
}

#[test]
fn the_arguments_of_the_tools_are_the_parameters_of_the_methods() {
    let home = mcp::home("dispatch_agents = [\"claude\"]\n");
    home.quick("worker");
    let host = home.serve_roster(&[]);
    let document = host.at("worker").call("rpc.discover", json!({})).unwrap();
    for (path, more) in [("/dispatch/worker/mcp", &[][..]), ("/mcp", &["worker"])] {
        let listed = Client::new(host.port, path).call("tools/list", json!({})).unwrap();
        for name in ["dispatch", "list", "status", "result", "cancel", "delete"] {
            let tool = listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
            let methods = document["methods"].as_array().unwrap();
            let method = methods.iter().find(|method| method["name"] == format!("worker/{name}")).unwrap();
            let params = method["params"].as_array().unwrap();
            let mut expected: Vec<&str> = params.iter().map(|param| param["name"].as_str().unwrap()).collect();
            expected.extend(more);
            expected.extend((name == "dispatch").then_some("wait"));
            expected.sort_unstable();
            let mut found: Vec<&str> =
                tool["inputSchema"]["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            found.sort_unstable();
            assert_eq!(found, expected, "{path} {name}");
            let needed = |param: &&Value| param["required"] == true;
            for param in params.iter().filter(needed) {
                assert!(tool["inputSchema"]["required"].as_array().unwrap().contains(&param["name"]), "{path} {name}");
            }
        }
    }
}

/// The values of a text that has to be one of some: as a list, or one by one, each with its description.
fn choices(schema: &Value) -> Option<Vec<&Value>> {
    let listed = schema["enum"].as_array().map(|listed| listed.iter().collect());
    listed.or_else(|| schema["oneOf"].as_array().map(|ones| ones.iter().map(|one| &one["const"]).collect()))
}

#[test]
fn an_input_that_is_none_of_the_choices_is_answered_with_all_of_them() {
    let home = Home::new();
    for member in ["analyst", "textkit"] {
        install(&home, member);
    }
    let host = home.serve_roster(&[]);
    let roster = roster(&host);
    let listed = roster.call("tools/list", json!({})).unwrap();
    let mut tried = 0;
    for tool in listed["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        for (field, schema) in tool["inputSchema"]["properties"].as_object().unwrap() {
            let Some(choices) = choices(schema).filter(|_| name.contains("__")) else { continue };
            let refusal = call(&roster, name, json!({field: "none of them"})).unwrap_err();
            for choice in choices {
                assert!(refusal.contains(&choice.to_string()), "{name} {field}: {choice} is not in {refusal}");
            }
            let refusal = call(&roster, name, json!({format!("{field}x"): 1})).unwrap_err();
            assert!(refusal.contains(&format!("did you mean `{field}`? known are ")), "{refusal}");
            tried += 1;
        }
    }
    assert!(tried >= 5, "{tried}");
}
