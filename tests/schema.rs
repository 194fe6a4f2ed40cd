//! The shapes of the wire: as they are published in `docs/schema/`, as `rpc.discover` describes them, and as a running host
//! answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use guild_contract::{
    Decision, Event, JobUsage, MemberReport,
    host::{ApproveParams, AuditParams, AuditView, DoctorView, LimitsView, MemberDetail, cluster::ClusterView},
    json::schema::of,
    rpc::{
        CancelView, Deleted, DispatchParams, Dispatched, JobList, JobParams, JobsParams, JobsView, ListParams, Listed,
        LogParams, LogView, ResultView, Resumed, StatusView, TaskView, code, method,
    },
    usage::{UsageParams, UsageView},
};
use jsonschema::{Draft, Validator};
use serde_json::{Value, json};

use crate::support::{
    guest,
    host::{Client, Home, wait_for},
};

/// What every member answers to, and what workers do besides.
const OF_ALL: [&str; 10] = [
    "initialize",
    "ping",
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/templates/list",
    "resources/list",
    "resources/read",
    "rpc.discover",
];
const OF_WORKERS: [&str; 11] = [
    method::DISPATCH,
    method::LIST,
    method::JOBS,
    method::USAGE,
    method::STATUS,
    method::TASK,
    method::RESULT,
    method::LOG,
    method::CANCEL,
    method::DELETE,
    method::RESUME,
];

fn schema_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema")
}

/// The shapes that have a file of their own.
fn shapes() -> BTreeMap<&'static str, Value> {
    BTreeMap::from([
        ("dispatch-params", of::<DispatchParams>()),
        ("dispatched", of::<Dispatched>()),
        ("list-params", of::<ListParams>()),
        ("job-list", of::<JobList>()),
        ("jobs-params", of::<JobsParams>()),
        ("jobs-view", of::<JobsView>()),
        ("usage-params", of::<UsageParams>()),
        ("usage-view", of::<UsageView>()),
        ("task-view", of::<TaskView>()),
        ("job-params", of::<JobParams>()),
        ("status-view", of::<StatusView>()),
        ("result-view", of::<ResultView>()),
        ("cancel-view", of::<CancelView>()),
        ("deleted", of::<Deleted>()),
        ("log-params", of::<LogParams>()),
        ("log-view", of::<LogView>()),
        ("resumed", of::<Resumed>()),
        ("decision", of::<Decision>()),
        ("job-usage", of::<JobUsage>()),
        ("event", of::<Event>()),
        ("approve-params", of::<ApproveParams>()),
        ("cluster-view", of::<ClusterView>()),
        ("doctor-view", of::<DoctorView>()),
        ("member-detail", of::<MemberDetail>()),
        ("limits-view", of::<LimitsView>()),
        ("audit-params", of::<AuditParams>()),
        ("audit-view", of::<AuditView>()),
        ("member-report", of::<MemberReport>()),
    ])
}

/// Holds a published file against what it is made from.
fn is_current(name: &str, made: &Value) {
    let path = schema_dir().join(format!("{name}.json"));
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        let mut sorted = made.clone();
        sorted.sort_all_objects();
        fs::write(&path, serde_json::to_string_pretty(&sorted).unwrap() + "\n").unwrap();
    }
    // As values: the order of keys depends on what else is built along.
    let published: Value = serde_json::from_slice(&fs::read(&path).unwrap_or_default()).unwrap_or_default();
    assert!(
        &published == made,
        "docs/schema/{name}.json is not current; `UPDATE_SCHEMA=1 cargo test -p guild --test host schema::` writes it"
    );
}

/// A host of one worker, as `docs/schema/openrpc.json` shows it.
fn discovered() -> Value {
    let home = Home::new();
    let member = home.quick("worker");
    home.edit_manifest("worker", |manifest| {
        manifest["description"] = json!("Any member with the capability `worker`.")
    });
    let host = home.serve(&member, &[]);
    host.client().call("rpc.discover", json!({})).unwrap()
}

#[test]
fn the_published_schemas_are_current() {
    for (name, made) in shapes() {
        is_current(name, &made);
        jsonschema::meta::validate(&made).unwrap();
    }
    let files = fs::read_dir(schema_dir()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let known: BTreeSet<String> =
        shapes().into_keys().chain(["audit", "openrpc"]).map(|name| format!("{name}.json")).collect();
    let stray: Vec<String> = files.filter(|file| !known.contains(file)).collect();
    assert!(stray.is_empty(), "docs/schema/ has what nothing makes: {stray:?}");
}

#[test]
fn the_published_openrpc_document_is_current() {
    is_current("openrpc", &discovered());
}

/// A type, as the worker-dispatch specification spells types.
fn spelled(schema: &Value, root: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(&reference[1..]).unwrap();
        let name = reference.rsplit('/').next().unwrap();
        return if target["properties"].is_object() { name.to_owned() } else { spelled(target, root) };
    }
    if let Some(only) = schema.get("const") {
        return only.to_string();
    }
    if let Some(one_of) = ["oneOf", "anyOf"].iter().find_map(|key| schema[*key].as_array()) {
        return one_of.iter().map(|one| spelled(one, root)).collect::<Vec<_>>().join(" | ");
    }
    let kind = |kind: &Value| match kind.as_str().unwrap() {
        "array" => format!("{}[]", spelled(&schema["items"], root)),
        kind => kind.to_owned(),
    };
    match &schema["type"] {
        Value::Array(kinds) => kinds.iter().map(kind).collect::<Vec<_>>().join(" | "),
        one => kind(one),
    }
}

/// The fields of a shape; those that may be absent have a question mark.
fn fields(schema: &Value) -> Value {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fields = schema["properties"].as_object().unwrap().iter().map(|(name, field)| {
        let mark = if required.contains(&name.as_str()) { "" } else { "?" };
        (format!("{name}{mark}"), json!(spelled(field, schema)))
    });
    Value::Object(fields.collect())
}

/// REQ-WD-5 to REQ-WD-17, field by field. A parameter that may be absent may be null as well.
#[test]
fn the_schemas_have_the_shapes_of_the_worker_dispatch_specification() {
    let status = r#""running" | "completed" | "failed" | "cancelled""#;
    let id = json!({"jobId": "string"});
    for (requirement, schema, expected) in [
        // `agent`, `attachments`, `follows` and `key` are this host's own.
        (
            "REQ-WD-5: dispatch",
            of::<DispatchParams>(),
            json!({
                "description": "string", "task": "string", "config?": "object | null", "agent?": "string | null",
                "attachments?": "Attachment[]", "follows?": "string | null", "key?": "string | null",
            }),
        ),
        ("REQ-WD-5: dispatched", of::<Dispatched>(), id.clone()),
        (
            "REQ-WD-8",
            of::<ListParams>(),
            json!({"detail?": r#""simple" | "detailed" | null"#, "filter?": "string | null"}),
        ),
        ("REQ-WD-9: the list", of::<JobList>(), json!({"jobs": "Listed[]"})),
        // What the detailed list adds is absent from the simple one.
        (
            "REQ-WD-9, REQ-WD-10",
            of::<Listed>(),
            json!({"jobId": "string", "status": status, "description?": "string", "summary?": "string | null"}),
        ),
        ("REQ-WD-11, 14, 16, 17: of which job", of::<JobParams>(), id),
        // `usage` and `heldBack` are this host's own.
        (
            "REQ-WD-11, REQ-WD-12",
            of::<StatusView>(),
            json!({
                "jobId": "string", "status": status, "description": "string", "summary": "string | null",
                "questions": "string[] | null", "decisions": "Decision[] | null", "error": "string | null",
                "startedAt": "string", "completedAt": "string | null", "usage?": "JobUsage", "heldBack?": "boolean",
                "follows?": "string",
            }),
        ),
        ("REQ-WD-13", of::<Decision>(), json!({"question": "string", "decision": "string", "reasoning": "string"})),
        (
            "REQ-WD-15",
            of::<ResultView>(),
            json!({"jobId": "string", "output": "string", "artifacts": "string[] | null"}),
        ),
        ("REQ-WD-16", of::<CancelView>(), json!({"jobId": "string", "status": status})),
        ("REQ-WD-17", of::<Deleted>(), json!({"jobId": "string", "deleted": "true"})),
    ] {
        assert_eq!(fields(&schema), expected, "{requirement}");
    }
}

/// The same schema, which takes no field that it does not know: others are a mistake of the host's here.
fn closed(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(keys) => {
            keys.values_mut().for_each(|value| *value = closed(value.take()));
            if keys.contains_key("properties") && keys["type"] == "object" {
                keys.entry("additionalProperties").or_insert(json!(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = closed(item.take())),
        _ => {}
    }
    schema
}

fn validator(schema: Value, draft: Draft) -> Validator {
    jsonschema::options().with_draft(draft).should_validate_formats(true).build(&closed(schema)).unwrap()
}

fn is_valid(what: &str, validator: &Validator, value: &Value) {
    let problems: Vec<String> = validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(problems.is_empty(), "{what} {value}: {problems:?}");
}

/// A member's endpoint, whose requests and answers are validated against its own document and the published schemas.
struct Held {
    client: Client,
    document: Value,
    published: BTreeMap<String, Validator>,
}

impl Held {
    fn at(client: Client) -> Self {
        let document = client.call("rpc.discover", json!({})).unwrap();
        // By the shape's name, which is the schema's title.
        let published = shapes()
            .into_values()
            .map(|schema| (schema["title"].as_str().unwrap().to_owned(), validator(schema, Draft::Draft202012)));
        Self { client, document, published: published.collect() }
    }

    fn method(&self, name: &str) -> &Value {
        self.document["methods"].as_array().unwrap().iter().find(|method| method["name"] == name).unwrap()
    }

    /// A schema of the document, by itself.
    fn discovered(&self, schema: &Value) -> Validator {
        let schema = json!({"allOf": [schema], "components": {"schemas": self.document["components"]["schemas"]}});
        validator(schema, Draft::Draft7)
    }

    fn takes(&self, method: &str, params: &Value) -> bool {
        let described = self.method(method)["params"].as_array().unwrap();
        let by_name = |param: &Value| (param["name"].as_str().unwrap().to_owned(), param["schema"].clone());
        let required: Vec<&Value> =
            described.iter().filter(|param| param["required"] == true).map(|param| &param["name"]).collect();
        let properties: Value = Value::Object(described.iter().map(by_name).collect());
        self.discovered(&json!({"type": "object", "properties": properties, "required": required})).is_valid(params)
    }

    fn call(&self, method: &str, params: Value) -> Value {
        assert!(self.takes(method, &params), "{method} is not described to take {params}");
        let answer = self.client.call(method, params).unwrap();
        let result = &self.method(method)["result"]["schema"];
        is_valid(method, &self.discovered(result), &answer);
        if let Some(name) = result["$ref"].as_str().and_then(|reference| reference.rsplit('/').next())
            && method.starts_with("worker/")
        {
            is_valid(method, &self.published[name], &answer);
        }
        answer
    }

    fn status(&self, id: &str) -> Value {
        self.call(method::STATUS, json!({"jobId": id}))
    }

    fn start(&self, task: &str) -> String {
        let dispatched = self.call(method::DISPATCH, json!({"description": "of a test", "task": task}));
        dispatched["jobId"].as_str().unwrap().to_owned()
    }

    fn ended(&self, id: &str, status: &str) -> Value {
        self.client.ended(id);
        let ended = self.status(id);
        assert_eq!(ended["status"], status, "{ended}");
        ended
    }

    /// A request that is answered with an error, whose code the document has for the method.
    fn refused(&self, method: &str, params: Value) -> i64 {
        let error = self.client.call(method, params).unwrap_err();
        let errors = self.method(method)["errors"].as_array().unwrap().iter();
        let codes: Vec<i64> = errors
            .map(|error| error["$ref"].as_str().map_or(error, |to| self.document.pointer(&to[1..]).unwrap()))
            .map(|error| error["code"].as_i64().unwrap())
            .collect();
        assert!(codes.contains(&error.code), "{method} answers {error:?}, and is described to answer {codes:?}");
        error.code
    }
}

/// A home with a worker of each kind of end, and the probe, which does what its task says.
fn workers() -> Home {
    let home = Home::new();
    home.quick("quick");
    home.failing("failing");
    home.endless("endless");
    home.member("probe", "autonomous-worker", &guest::built("probe"));
    home.edit_manifest("probe", |manifest| manifest["component"]["grants"] = guest::everything());
    home
}

#[test]
fn what_a_running_host_answers_is_what_the_schemas_say() {
    let home = workers();
    home.researcher("researcher");
    home.write("docs/moons.md", "# Moons\n\nJupiter has ninety-five known moons. Io is the most volcanic of them.\n");
    let host = home.serve_roster(&["--sources", home.path("docs").to_str().unwrap()]);
    let [quick, failing, endless, probe, researcher] =
        ["quick", "failing", "endless", "probe", "researcher"].map(|name| Held::at(host.at(name)));

    // Completed, without and with artifacts; questions and decisions are null where there are none.
    let id = quick.start("t");
    let completed = quick.ended(&id, "completed");
    assert_eq!((&completed["questions"], &completed["decisions"]), (&Value::Null, &Value::Null));
    assert_eq!(quick.call(method::RESULT, json!({"jobId": id}))["artifacts"], Value::Null);
    assert_eq!(quick.call(method::CANCEL, json!({"jobId": id}))["status"], "completed");
    let said = "summary reading\nquestion Which one?\ndecide here there";
    let id = probe.start(&format!("{said}\nartifact notes.md text"));
    let completed = probe.ended(&id, "completed");
    assert_eq!(completed["questions"], json!(["question Which one?"]));
    assert_eq!(completed["decisions"], json!([{"question": "here", "decision": "there", "reasoning": "r"}]));
    assert_eq!(probe.call(method::RESULT, json!({"jobId": id}))["artifacts"], json!(["artifacts/notes.md"]));

    // Running, with what it said so far; cancelled; gone.
    let id = probe.start(&format!("{said}\nsleep"));
    let running = wait_for("a decision", || Some(probe.status(&id)).filter(|status| !status["decisions"].is_null()));
    assert_eq!((&running["status"], &running["summary"]), (&json!("running"), &json!("reading")));
    for detail in [json!({}), json!({"detail": "simple"}), json!({"detail": null, "filter": null})] {
        let list = probe.call(method::LIST, detail);
        assert_eq!(list["jobs"][0], json!({"jobId": id, "status": "running"}));
    }
    let list = probe.call(method::LIST, json!({"detail": "detailed", "filter": "of a*"}));
    let first = json!({"jobId": id, "status": "running", "description": "of a test", "summary": "reading"});
    assert_eq!((list["jobs"].as_array().unwrap().len(), &list["jobs"][0]), (2, &first));
    probe.call(method::CANCEL, json!({"jobId": id}));
    assert_eq!(probe.ended(&id, "cancelled")["questions"], json!(["question Which one?"]));
    probe.call(method::DELETE, json!({"jobId": id}));

    // Running and silent; failed.
    let id = endless.start("t");
    assert_eq!(endless.status(&id)["status"], "running");
    assert_eq!(endless.call(method::LIST, json!({"detail": "detailed"}))["jobs"][0]["summary"], Value::Null);
    let id = failing.start("t");
    assert_eq!(failing.ended(&id, "failed")["error"], "date");

    // The usage of sessions is there where there were any.
    let id = researcher.start("How many known moons has Jupiter?");
    let mut status = researcher.ended(&id, "completed");
    let usage = status["usage"].clone();
    assert!(usage["turns"].as_u64().unwrap() > 0, "{usage}");
    is_valid("usage", &researcher.published["JobUsage"], &usage);
    // A field that no schema has would have been seen.
    status["usage"]["stray"] = json!(1);
    assert!(!researcher.published["StatusView"].is_valid(&status));

    for (method, params) in [
        ("initialize", json!({"protocolVersion": "2025-11-25"})),
        ("ping", json!({})),
        ("tools/list", json!({})),
        ("rpc.discover", json!({})),
    ] {
        quick.call(method, params);
    }

    // What jobs left, by pages.
    let ids: Vec<_> = (0..60).map(|_| quick.client.start("t")).collect();
    ids.iter().for_each(|id| drop(quick.client.ended(id)));
    let page = quick.call("resources/list", json!({}));
    let next = quick.call("resources/list", json!({"cursor": page["nextCursor"]}));
    let uri = &next["resources"][0]["uri"];
    assert!(uri.is_string() && *uri != page["resources"][0]["uri"], "{next}");
    assert_eq!(quick.call("resources/read", json!({"uri": uri}))["contents"][0]["uri"], *uri);
    assert!(quick.call("resources/templates/list", json!({}))["resourceTemplates"][0].is_object());
    assert_eq!(quick.refused("resources/list", json!({"cursor": "mine"})), -32602);
}

#[test]
fn what_tools_and_prompts_answer_is_what_the_schemas_say() {
    let home = Home::new();
    home.quick("quick");
    // It answers with its input, but for an empty one.
    let call = "(if (i32.le_u (local.get 3) (i32.const 2)) (then unreachable)) (call $ok (local.get 2) (local.get 3))";
    let tools = guest::Guest::default().tools(&[("text", guest::ANYTHING), ("do", guest::ANYTHING)]).call(call);
    home.member("box", "toolbox-plugin", &tools.build());
    home.edit_manifest("box", |manifest| manifest["capabilities"] = json!(["tools"]));
    let host = home.serve_roster(&[]);
    let tools = Held::at(host.at("box"));
    assert_eq!(tools.call("tools/list", json!({}))["tools"].as_array().unwrap().len(), 2);
    let done = tools.call("tools/call", json!({"name": "do", "arguments": {"n": 1}}));
    assert_eq!(done["structuredContent"], json!({"n": 1}));
    assert_eq!(tools.call("tools/call", json!({"name": "do"}))["isError"], true);
    assert_eq!(tools.refused("tools/call", json!({"name": "none"})), -32602);
    assert_eq!(tools.refused("prompts/get", json!({"name": "workers"})), -32602);

    for (path, first) in [
        ("/mcp", "workers"),
        ("/dispatch/quick/mcp", "dispatch"),
        ("/all/quick/mcp", "quick-dispatch__dispatch"),
        ("/all/box/mcp", "box__text"),
    ] {
        let endpoint = Held::at(Client::new(host.port, path));
        endpoint.call("initialize", json!({}));
        assert_eq!(endpoint.call("tools/list", json!({}))["tools"][0]["name"], first, "{path}");
        let prompts = endpoint.call("prompts/list", json!({}));
        if let Some(name) = prompts["prompts"].get(0).map(|prompt| &prompt["name"]) {
            assert!(endpoint.call("prompts/get", json!({"name": name}))["messages"][0].is_object());
        }
        assert_eq!(prompts["prompts"].as_array().unwrap().is_empty(), path == "/all/box/mcp");
        endpoint.call("resources/list", json!({}));
    }
}

#[test]
fn what_a_host_says_of_its_members_is_what_the_schema_says() {
    let home = Home::new();
    home.quick("ready");
    home.member("broken", "autonomous-worker", b"no component");
    home.quick("foreign");
    home.edit_manifest("foreign", |manifest| drop(manifest.as_object_mut().unwrap().remove("component")));
    let loops = guest::Guest::default().list("(loop (br 0)) (i32.const 0)").build();
    home.member("slow", "toolbox-plugin", &loops);
    home.edit_manifest("slow", |manifest| manifest["capabilities"] = json!(["tools"]));
    let host = home.serve_roster(&[]);
    let expected = [("broken", "error"), ("foreign", "foreign"), ("ready", "ready"), ("slow", "loading")];
    let members = wait_for("what became of them", || {
        let members = host.members();
        let states: Vec<_> =
            members.iter().map(|one| [&one["member"], &one["state"]].map(|text| text.as_str().unwrap())).collect();
        (states == expected.map(|(member, state)| [member, state])).then_some(members)
    });
    let schema = validator(of::<MemberReport>(), Draft::Draft202012);
    members.iter().for_each(|one| is_valid("a member", &schema, one));
    let ready = members.iter().find(|one| one["state"] == "ready").unwrap();
    assert!(ready["version"].is_string() && ready["sha256"].is_string(), "{ready}");
}

#[test]
fn what_the_schemas_do_not_take_is_refused_with_a_code_that_the_document_has() {
    let home = workers();
    let host = home.serve_roster(&[]);
    let [endless, failing] = ["endless", "failing"].map(|name| Held::at(host.at(name)));
    for (method, params) in [
        (method::DISPATCH, json!({"description": "d"})),
        (method::DISPATCH, json!({"description": "", "task": "t"})),
        (method::DISPATCH, json!({"description": "d", "task": "t", "config": []})),
        (method::DISPATCH, json!({"description": "d", "task": "t", "agent": 1})),
        (method::LIST, json!({"detail": "all"})),
        (method::LIST, json!({"filter": 1})),
        (method::STATUS, json!({})),
        (method::RESULT, json!({"jobId": null})),
        (method::CANCEL, json!({"jobId": 1})),
        (method::DELETE, json!({"jobId": {}})),
        ("tools/call", json!({"arguments": {}})),
        ("initialize", json!({"protocolVersion": 1})),
    ] {
        assert!(!endless.takes(method, &params), "{method} is described to take {params}");
        assert_eq!(endless.refused(method, params), -32602);
    }
    let running = json!({"jobId": endless.start("t")});
    let failed = failing.start("t");
    failing.ended(&failed, "failed");
    for (member, method, params) in [
        (&endless, method::RESULT, running.clone()),
        (&endless, method::DELETE, running),
        (&failing, method::RESULT, json!({"jobId": failed})),
        (&failing, method::DELETE, json!({"jobId": failed})),
        (&failing, method::STATUS, json!({"jobId": "nothing"})),
        (&failing, method::CANCEL, json!({"jobId": "nothing"})),
        (&failing, "tools/call", json!({"name": "nothing", "arguments": {}})),
    ] {
        assert!(member.takes(method, &params));
        assert_eq!(member.refused(method, params), -32602);
    }
}

/// Everything that the document refers to.
fn references(value: &Value) -> Vec<&str> {
    let below = match value {
        Value::Object(keys) => keys.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    let own = value.get("$ref").and_then(Value::as_str);
    own.into_iter().chain(below.into_iter().flat_map(references)).collect()
}

#[test]
fn a_member_is_discovered_with_the_methods_that_it_answers_to() {
    let home = Home::new();
    home.quick("worker");
    home.quick("other");
    home.edit_manifest("other", |manifest| manifest["capabilities"] = json!([]));
    let host = home.serve_roster(&[]);
    let names = |document: &Value| -> BTreeSet<String> {
        let methods = document["methods"].as_array().unwrap();
        let names: BTreeSet<String> =
            methods.iter().map(|method| method["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(names.len(), methods.len(), "a name stands twice");
        names
    };
    // Some clients of OpenRPC send an empty list of parameters, and some none.
    for params in [json!({}), json!([]), Value::Null] {
        let other = host.at("other").call("rpc.discover", params).unwrap();
        assert_eq!(names(&other), OF_ALL.map(String::from).into());
        assert!(references(&other).iter().all(|to| other.pointer(&to[1..]).is_some()));
    }
    for path in ["/mcp", "/dispatch/worker/mcp", "/all/worker/mcp", "/all/other/mcp"] {
        let endpoint = Client::new(host.port, path);
        let document = endpoint.call("rpc.discover", json!({})).unwrap();
        assert_eq!(names(&document), OF_ALL.map(String::from).into(), "{path}");
        let initialized = endpoint.call("initialize", json!({})).unwrap();
        assert_eq!(document["info"]["title"], initialized["serverInfo"]["name"], "{path}");
        assert_eq!(document["info"]["version"], initialized["serverInfo"]["version"], "{path}");
    }
    let document = host.at("worker").call("rpc.discover", json!({})).unwrap();
    assert_eq!(names(&document), OF_ALL.into_iter().chain(OF_WORKERS).map(String::from).collect());
    assert_eq!(
        document["info"],
        json!({
            "title": "worker", "version": "0.1.0", "description": "made for a test",
            "x-host": {"name": "guild", "version": env!("CARGO_PKG_VERSION")},
        })
    );
    // It stands by itself: what it refers to is in it, and nothing is in it that it does not refer to.
    let referred: BTreeSet<&str> = references(&document).into_iter().collect();
    let components = document["components"].as_object().unwrap().iter().flat_map(|(kind, named)| {
        named.as_object().unwrap().keys().map(move |name| format!("#/components/{kind}/{name}"))
    });
    assert_eq!(components.collect::<BTreeSet<_>>(), referred.into_iter().map(String::from).collect());
    for schema in document["components"]["schemas"].as_object().unwrap().values() {
        jsonschema::draft7::meta::validate(schema).unwrap();
    }
    for method in document["methods"].as_array().unwrap() {
        let params = method["params"].as_array().unwrap();
        assert!(params.is_sorted_by_key(|param| param["required"] != true), "{method}: required after optional");
        assert_eq!(method["paramStructure"], "by-name");
        assert!(!method["summary"].as_str().unwrap().is_empty());
    }
}

#[test]
fn the_codes_of_the_document_are_those_of_the_table_on_the_wire() {
    let text = fs::read_to_string(schema_dir().join("../protocol.md")).unwrap();
    let listed: BTreeSet<i64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(' ')?.0.parse().ok())
        .filter(|code| *code < 0)
        .collect();
    let document = discovered();
    let inline = document["methods"].as_array().unwrap().iter().flat_map(|method| method["errors"].as_array().unwrap());
    let shared = document["components"]["errors"].as_object().unwrap().values();
    let mut described: BTreeSet<i64> = inline.chain(shared).filter_map(|error| error["code"].as_i64()).collect();
    // Of what the document does not name, there is no such method.
    described.insert(code::METHOD_NOT_FOUND.into());
    assert_eq!(described, listed);
}
