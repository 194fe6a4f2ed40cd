//! The hall on the port: its API below `/hall`, and the tools of `/hall/mcp`.
//!
//! The worker has no component, so an attempt ends as soon as it begins.

use std::{collections::BTreeSet, fs, path::Path, process::Command, sync::Arc};

use guild_auth::{
    Ingress,
    tokens::{NewToken, Role, TokenFile},
};
use guild_config::{AuthConfig, Config, PermittedProject};
use guild_contract::Limits;
use guild_roster::{Host, HostOptions, Target};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{io::AsyncReadExt as _, time::timeout};

use crate::harness::{Connection, PATIENCE, Reply, Server, manifest};

const CREATE: &str = "/hall/commission/request/commission/create";
const LIST: &str = "/hall/commission/request/commission/list";
const NOTE: &str = "/hall/commission/request/commission/note";
const DISPATCH: &str = "/hall/commission/run/dispatch";
const CANCEL: &str = "/hall/commission/run/cancel";
const EVENTS: &str = "/hall/system/events/stream/subscribe";
const MCP: &str = "/hall/mcp";

const READS: [&str; 4] = ["list_commissions", "read_commission", "list_projects", "list_workers"];
const DISPATCHES: [&str; 5] =
    ["create_commission", "update_commission", "dispatch_commission", "redispatch_commission", "add_commission_note"];
const ENDS: [&str; 2] = ["cancel_commission", "abandon_commission"];
/// Read-only tools for other things than commissions.
const OTHER_READS: [&str; 10] = [
    "read_commission_diff",
    "read_dependency_graph",
    "list_meetings",
    "read_meeting",
    "list_documents",
    "read_document",
    "list_issues",
    "read_issue",
    "read_briefing",
    "list_models",
];
const OTHER_DISPATCHES: [&str; 7] = [
    "open_meeting",
    "accept_meeting",
    "decline_meeting",
    "defer_meeting",
    "send_message",
    "write_document",
    "create_issue",
];
const OTHER_ENDS: [&str; 2] = ["interrupt_turn", "close_meeting"];

/// A host with a hall, the project `demo` and the worker `tester`.
pub(crate) struct World {
    pub(crate) root: TempDir,
    server: Server,
    tokens: TokenFile,
}

/// The options in which one test differs from the others.
#[derive(Default)]
struct Otherwise {
    no_hall: bool,
    require_token: bool,
    limits: Limits,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Otherwise::default()).await
    }

    /// A world in which every request needs a token.
    async fn closed() -> Self {
        Self::with(Otherwise { require_token: true, ..Otherwise::default() }).await
    }

    async fn with(otherwise: Otherwise) -> Self {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| fs::canonicalize(root.path()).unwrap().join(name);
        for dir in ["members/tester", "config", "hall", "code/.lore"] {
            fs::create_dir_all(at(dir)).unwrap();
        }
        fs::write(at("members/tester/guild-member.json"), manifest("tester").to_string()).unwrap();
        fs::write(at("code/.lore/plan.md"), "plan\n").unwrap();
        git(&at("code"), &["init", "--quiet", "--initial-branch=main"]);
        git(&at("code"), &["add", "--all"]);
        git(&at("code"), &["commit", "--quiet", "--message=Begin"]);
        fs::write(at("hall/config.yaml"), format!("projects:\n  - name: demo\n    path: {}\n", at("code").display()))
            .unwrap();
        let Otherwise { no_hall, require_token, limits } = otherwise;
        let mut config = Config { directory: Some(at("config")), limits, ..Config::default() };
        config.auth = AuthConfig { require_token, audit_log: Some(at("audit.jsonl")), ..AuthConfig::default() };
        config.projects = vec![PermittedProject { path: at("code"), push: false, pull_requests: false }];
        let tokens = TokenFile::of(&config).unwrap();
        let ingress = Arc::new(Ingress::open(&config, ([127, 0, 0, 1], 7433).into()).unwrap());
        let hall = (!no_hall).then(|| at("hall"));
        let options = HostOptions {
            config,
            target: Target::Members(at("members")),
            sources: Vec::new(),
            agent: None,
            hall,
            has_passed_socket: false,
            fakes: None,
        };
        let host = Host::open(options, Some(ingress)).await.unwrap();
        Self { root, server: Server::start(host), tokens }
    }

    /// Makes a token as the operator does.
    fn token(&self, name: &str, role: Role, members: &str) -> String {
        let members = vec![members.parse().unwrap()];
        let new = NewToken { name: name.to_owned(), role, members, expires: None, usd_per_day: None };
        self.tokens.add(new).unwrap().expose().to_owned()
    }

    async fn send(&self, request: &str, token: &str, body: &str) -> Reply {
        let mut head = format!("{request} HTTP/1.1");
        if !token.is_empty() {
            head += &format!("\r\nAuthorization: Bearer {token}");
        }
        if !body.is_empty() {
            head += &format!("\r\nContent-Type: application/json\r\nContent-Length: {}", body.len());
        }
        self.server.connect().await.request(&head, body).await
    }

    /// The whole answer to a POST, as it is sent.
    async fn whole(&self, path: &str, token: &str, body: &str) -> String {
        let mut connection = self.server.connect().await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.send(head).await;
        let mut answer = String::new();
        timeout(PATIENCE, connection.0.read_to_string(&mut answer)).await.expect("no answer").unwrap();
        answer
    }

    pub(crate) async fn get(&self, path: &str, token: &str) -> (u16, Value) {
        answer(&self.send(&format!("GET {path}"), token, "").await)
    }

    pub(crate) async fn post(&self, path: &str, token: &str, body: Value) -> (u16, Value) {
        answer(&self.send(&format!("POST {path}"), token, &body.to_string()).await)
    }

    /// The response to a GET, unchanged.
    pub(crate) async fn fetch(&self, path: &str) -> Reply {
        self.send(&format!("GET {path}"), "", "").await
    }

    /// The response to a POST with this body, unchanged.
    pub(crate) async fn raw(&self, path: &str, body: &str) -> Reply {
        self.send(&format!("POST {path}"), "", body).await
    }

    /// Makes a commission without a token, and returns its id.
    pub(crate) async fn create(&self) -> String {
        let (status, made) = self.post(CREATE, "", commission()).await;
        assert_eq!(status, 201, "{made}");
        made["commissionId"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn read(&self, id: &str, token: &str) -> Value {
        let path = format!("/hall/commission/request/commission/read?projectName=demo&commissionId={id}");
        let (status, read) = self.get(&path, token).await;
        assert_eq!(status, 200, "{read}");
        read
    }

    /// The response to an MCP method.
    async fn ask(&self, method: &str, params: Value, token: &str) -> (u16, Value) {
        self.post(MCP, token, json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})).await
    }

    async fn tools(&self, token: &str) -> Vec<Value> {
        let (_, listed) = self.ask("tools/list", json!({}), token).await;
        listed["result"]["tools"].as_array().unwrap().clone()
    }

    /// The result of a tool: an object, which is also the text.
    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let (_, answer) = self.ask("tools/call", json!({"name": tool, "arguments": arguments}), "").await;
        let result = &answer["result"];
        assert_eq!(result["isError"], false, "{tool}: {answer}");
        let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, result["structuredContent"]);
        text
    }

    /// The error of a tool.
    async fn fails(&self, tool: &str, arguments: Value) -> String {
        let (status, answer) = self.ask("tools/call", json!({"name": tool, "arguments": arguments}), "").await;
        assert_eq!((status, &answer["result"]["isError"]), (200, &json!(true)), "{answer}");
        answer["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Dispatches a commission, and waits until its attempt has failed, as it must.
    pub(crate) async fn attempt(&self, id: &str) {
        let mut events = self.listen("").await;
        let (status, answer) = self.post(DISPATCH, "", json!({"commissionId": id})).await;
        assert_eq!((status, &answer["status"], &answer["commissionId"]), (202, &json!("accepted"), &json!(id)));
        until(&mut events, r#""status":"failed""#).await;
    }

    /// A stream of events from now on.
    async fn listen(&self, token: &str) -> Connection {
        let mut connection = self.server.connect().await;
        let token = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
        connection.send(format!("GET {EVENTS} HTTP/1.1\r\nHost: localhost\r\n{token}\r\n")).await;
        let head = until(&mut connection, "\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
        connection
    }

    fn audit_log(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.root.path().join("audit.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn commission() -> Value {
    json!({"projectName": "demo", "title": "Moths", "workerName": "tester", "prompt": "How long do moths live?"})
}

fn answer(reply: &Reply) -> (u16, Value) {
    assert_eq!(reply.header("content-type"), Some("application/json"), "{reply:?}");
    (reply.status, serde_json::from_str(&reply.body).unwrap())
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// Reads until the text has arrived, and returns everything that has arrived.
async fn until(connection: &mut Connection, wanted: &str) -> String {
    let mut bytes = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&bytes).contains(wanted) {
            assert_ne!(connection.0.read_buf(&mut bytes).await.unwrap(), 0, "closed before {wanted}");
        }
    };
    assert!(timeout(PATIENCE, read).await.is_ok(), "{wanted} did not come");
    String::from_utf8(bytes).unwrap()
}

pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let user = ["-c", "user.name=User", "-c", "user.email=user@localhost", "-c", "commit.gpgsign=false"];
    let output = Command::new("git").args(user).args(args).current_dir(dir).env_remove("GIT_DIR").output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn the_api_of_the_socket_is_answered_below_hall() {
    let world = World::new().await;
    let id = world.create().await;
    assert!(id.starts_with("commission-tester-"), "{id}");
    let (_, listed) = world.get(&format!("{LIST}?projectName=demo&status=pending"), "").await;
    assert_eq!(listed["commissions"][0]["commissionId"], *id);
    let note = json!({"commissionId": id, "content": "Mind the luna moth"});
    assert_eq!(world.post(NOTE, "", note).await, (200, json!({"status": "ok"})));
    world.attempt(&id).await;
    let read = world.read(&id, "").await;
    let events: Vec<&str> =
        read["timeline"].as_array().unwrap().iter().map(|entry| entry["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["created", "user_note", "status_dispatched", "status_failed"]);
    let (status, again) = world.post("/hall/commission/run/redispatch", "", json!({"commissionId": id})).await;
    assert_eq!((status, &again["status"]), (202, &json!("accepted")));
    let (_, health) = world.get("/hall/system/runtime/daemon/health", "").await;
    assert_eq!(health["status"], "ok");
    assert_eq!(world.get("/hall/system/config/project/list", "").await.1["projects"][0]["name"], "demo");
    for (status, path) in [(404, "/hall"), (404, "/hall/"), (404, "/hall/nowhere"), (400, NOTE)] {
        let (found, error) = world.post(path, "", json!({})).await;
        assert_eq!(found, status, "{path}: {error}");
        assert!(error["error"].is_string(), "{error}");
    }
    // This path is not part of the hall.
    assert_eq!(world.send("GET /hallway", "", "").await.status, 404);
}

#[tokio::test]
async fn nobody_comes_in_without_a_good_token_where_one_is_needed() {
    let world = World::closed().await;
    for path in [LIST, EVENTS, "/hall/nowhere", "/hall"] {
        for token in ["", "guild_0000"] {
            let reply = world.send(&format!("GET {path}"), token, "").await;
            assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("bearer")), "{path}");
            assert!(answer(&reply).1["error"].as_str().unwrap().starts_with("a valid token is needed"), "{reply:?}");
        }
    }
    assert_eq!(world.post(CREATE, "", commission()).await.0, 401);
    let (status, error) = world.ask("tools/list", json!({}), "").await;
    assert_eq!((status, &error["error"]["code"]), (401, &json!(-32003)));
    let reader = world.token("reader", Role::View, "*");
    assert_eq!(world.get(LIST, &reader).await, (200, json!({"commissions": []})));
}

#[tokio::test]
async fn a_token_does_in_the_hall_what_it_may_do_with_jobs() {
    let world = World::closed().await;
    let [reader, dispatcher, all] =
        [Role::View, Role::Dispatch, Role::All].map(|role| world.token(role.as_str(), role, "*"));
    let (status, refused) = world.post(CREATE, &reader, commission()).await;
    assert_eq!((status, &refused["error"]), (403, &json!("the token view is not for commission/create")));
    let (status, made) = world.post(CREATE, &dispatcher, commission()).await;
    assert_eq!(status, 201, "{made}");
    let id = made["commissionId"].as_str().unwrap();
    assert_eq!(world.read(id, &reader).await["commission"]["status"], "pending");
    let cancel = json!({"commissionId": id, "reason": "It is late"});
    // A check of dependencies changes the blocked commissions, even as a GET.
    let check = "/hall/commission/dependency/project/check?projectName=demo";
    assert_eq!(world.get(check, &reader).await.0, 403);
    assert_eq!(world.get(check, &dispatcher).await.0, 200);
    for (path, token) in [(DISPATCH, &reader), (CANCEL, &reader), (CANCEL, &dispatcher)] {
        assert_eq!(world.post(path, token, cancel.clone()).await.0, 403, "{path}");
    }
    assert_eq!(world.read(id, &reader).await["commission"]["status"], "pending");
    assert_eq!(world.post(CANCEL, &all, cancel).await, (200, json!({"status": "ok"})));
    assert_eq!(world.read(id, &reader).await["commission"]["status"], "cancelled");
    // The log has the caller's name, but no text from a caller.
    world.get("/hall/no/such/path", &reader).await;
    let log = world.audit_log();
    let logged = |who: &str, method: &str, outcome: &str| {
        let is = |line: &&Value| line["who"] == who && line["method"] == method && line["outcome"] == outcome;
        log.iter().filter(is).count()
    };
    assert_eq!(logged("token:view", "commission/create", "forbidden"), 1, "{log:?}");
    assert_eq!(logged("token:dispatch", "commission/create", "ok"), 1);
    assert_eq!(logged("token:dispatch", "commission/cancel", "forbidden"), 1);
    assert_eq!(logged("token:all", "commission/cancel", "ok"), 1);
    assert!(!log.iter().any(|line| line.to_string().contains("no/such/path") || line["member"] == ""));
}

#[tokio::test]
async fn a_token_talks_and_proposes_where_it_may_dispatch_and_closes_where_it_may_cancel() {
    let world = World::closed().await;
    let [reader, dispatcher, all] =
        [Role::View, Role::Dispatch, Role::All].map(|role| world.token(role.as_str(), role, "*"));
    // None of these operations can succeed, so a permitted caller receives an error of the operation.
    let body = json!({"projectName": "none", "meetingId": "none", "message": "m", "prompt": "p", "workerName": "w",
        "title": "t", "deferredUntil": "2026-01-01"});
    let dispatches = [
        "/meeting/request/meeting/create",
        "/meeting/request/meeting/accept",
        "/meeting/request/meeting/decline",
        "/meeting/request/meeting/defer",
        "/meeting/session/message/send",
        "/workspace/git/pr/create",
        "/workspace/git/integration/sync",
    ];
    let ends = ["/meeting/session/generation/interrupt", "/meeting/session/meeting/close"];
    for (path, permitted, refused) in dispatches
        .map(|path| (path, vec![&dispatcher, &all], vec![&reader]))
        .into_iter()
        .chain(ends.map(|path| (path, vec![&all], vec![&reader, &dispatcher])))
    {
        let path = format!("/hall{path}");
        for token in refused {
            assert_eq!(world.post(&path, token, body.clone()).await.0, 403, "{path}");
        }
        for token in permitted {
            // The operation that opens a meeting reports the error in its stream.
            let answer = world.whole(&path, token, &body.to_string()).await;
            assert!(!answer.starts_with("HTTP/1.1 403") && answer.contains("not found"), "{path}: {answer}");
        }
    }
    for path in ["/meeting/request/meeting/read?meetingId=none", "/heartbeat/none/status"] {
        assert_eq!(world.get(&format!("/hall{path}"), &reader).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn a_token_for_some_members_does_not_reach_the_hall_of_all() {
    let world = World::closed().await;
    for members in ["tester", "t*", "*r"] {
        let token = world.token(&format!("bound{}", members.len()), Role::All, members);
        let why = "is for some members, and this needs a token for all of them";
        for path in [LIST, EVENTS, "/hall/nowhere"] {
            let (status, refused) = world.get(path, &token).await;
            assert_eq!(status, 403, "{path}");
            assert!(refused["error"].as_str().unwrap().contains(why), "{refused}");
        }
        assert_eq!(world.post(CREATE, &token, commission()).await.0, 403);
        let (status, refused) = world.ask("tools/list", json!({}), &token).await;
        assert_eq!((status, &refused["error"]["code"]), (403, &json!(-32003)));
        assert!(refused["error"]["message"].as_str().unwrap().contains(why), "{refused}");
        // The token still reaches its member.
        assert_eq!(world.send("GET /members", &token, "").await.status, 200);
        world.tokens.revoke(&format!("bound{}", members.len())).unwrap();
    }
    let refused = world.audit_log().into_iter().filter(|line| line["outcome"] == "forbidden").count();
    assert_eq!(refused, 15);
}

#[tokio::test]
async fn a_foreign_host_or_page_is_refused_before_its_token_is_looked_at() {
    let world = World::new().await;
    for foreign in ["Host: evil.example", "Host: localhost\r\nOrigin: https://evil.example"] {
        for path in [LIST, EVENTS, MCP] {
            let reply = world.server.connect().await.request(&format!("GET {path} HTTP/1.1\r\n{foreign}"), "").await;
            assert_eq!(answer(&reply).0, 403, "{foreign} {path}");
        }
    }
}

#[tokio::test]
async fn a_host_without_a_hall_says_how_to_have_one() {
    let world = World::with(Otherwise { no_hall: true, ..Otherwise::default() }).await;
    let why = json!("this host has no hall; start it with `guild serve --hall HOME`");
    assert_eq!(world.get(LIST, "").await, (404, json!({"error": why})));
    assert_eq!(world.post(CREATE, "", commission()).await, (404, json!({"error": why})));
    let (status, error) = world.ask("tools/list", json!({}), "").await;
    assert_eq!((status, &error["error"]["message"]), (404, &why));
    // Without a token, this is not disclosed.
    let closed = World::with(Otherwise { no_hall: true, require_token: true, ..Otherwise::default() }).await;
    assert_eq!(closed.get(LIST, "").await.0, 401);
}

#[tokio::test]
async fn what_is_sent_is_bounded_as_at_any_endpoint() {
    let limits = Limits { body_bytes: 10_000, json_depth: 8, ..Limits::default() };
    let world = World::with(Otherwise { limits, ..Otherwise::default() }).await;
    let send = async |body: &str| answer(&world.send(&format!("POST {CREATE}"), "", body).await);
    let (status, error) = send(&format!("{:10001}", "{}")).await;
    assert_eq!((status, &error["error"]), (413, &json!("a request's body is at most 10000 bytes")));
    let (status, error) = send(&"[".repeat(9)).await;
    assert_eq!((status, &error["error"]), (400, &json!("the body is JSON that nests deeper than 8 levels")));
    assert_eq!(send("{").await, (400, json!({"error": "Invalid JSON body"})));
    let form = format!("POST {CREATE} HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 2");
    assert_eq!(answer(&world.server.connect().await.request(&form, "{}").await).0, 415);
    // A page of another site can send no other request without a CORS preflight.
    assert_eq!(world.get(LIST, "").await.1, json!({"commissions": []}));
}

#[tokio::test]
async fn events_come_until_the_listeners_token_is_revoked() {
    let world = World::closed().await;
    let [reader, all] = [Role::View, Role::All].map(|role| world.token(role.as_str(), role, "*"));
    let (_, made) = world.post(CREATE, &all, commission()).await;
    let mut events = world.listen(&reader).await;
    let note = |content: &str| json!({"commissionId": made["commissionId"], "content": content});
    world.post(NOTE, &all, note("first")).await;
    let event = until(&mut events, "\n\n").await;
    assert!(event.contains(r#"data: {"type":"commission_manager_note","#), "{event}");
    world.tokens.revoke("view").unwrap();
    world.post(NOTE, &all, note("second")).await;
    // The last chunk.
    let rest = until(&mut events, "0\r\n\r\n").await;
    assert!(!rest.contains("second"), "{rest}");
}

#[tokio::test]
async fn listeners_of_the_hall_count_among_those_of_the_host() {
    let limits = Limits { listeners: 1, ..Limits::default() };
    let world = World::with(Otherwise { limits, ..Otherwise::default() }).await;
    let listener = world.listen("").await;
    let (status, error) = world.get(EVENTS, "").await;
    assert_eq!(status, 503);
    assert!(error["error"].as_str().unwrap().contains("limits.listeners = 1"), "{error}");
    assert_eq!(world.send("GET /events", "", "").await.status, 503);
    drop(listener);
}

#[tokio::test]
async fn a_caller_is_offered_the_tools_that_its_token_is_for() {
    let world = World::closed().await;
    let [reader, dispatcher, all] =
        [Role::View, Role::Dispatch, Role::All].map(|role| world.token(role.as_str(), role, "*"));
    let mut listed = world.tools(&all).await;
    let reads: BTreeSet<&str> = READS.into_iter().chain(OTHER_READS).collect();
    let dispatches: BTreeSet<&str> = DISPATCHES.into_iter().chain(OTHER_DISPATCHES).collect();
    let ends: BTreeSet<&str> = ENDS.into_iter().chain(OTHER_ENDS).collect();
    let set = |tools: &[Value]| names(tools).into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    let of = |all: &[&BTreeSet<&str>]| all.iter().copied().flatten().map(|name| (*name).to_owned()).collect();
    assert_eq!(set(&listed), of(&[&reads, &dispatches, &ends]));
    assert_eq!(set(&world.tools(&reader).await), of(&[&reads]));
    assert_eq!(set(&world.tools(&dispatcher).await), of(&[&reads, &dispatches]));
    let call = json!({"name": "cancel_commission", "arguments": {"commissionId": "x"}});
    let (status, refused) = world.ask("tools/call", call, &dispatcher).await;
    assert_eq!(
        (status, &refused["error"]["message"]),
        (403, &json!("the token dispatch is not for commission/cancel"))
    );
    for tool in &mut listed {
        let (name, annotations) = (tool["name"].as_str().unwrap(), &tool["annotations"]);
        assert_eq!(annotations["readOnlyHint"] == true, reads.contains(name), "{name}");
        assert_eq!(
            annotations["destructiveHint"] == true,
            ends.contains(name) || ["update_commission", "write_document"].contains(&name),
            "{name}"
        );
        let schema = &tool["inputSchema"];
        assert_eq!((&schema["type"], &schema["additionalProperties"]), (&json!("object"), &json!(false)), "{name}");
        assert!(!tool["description"].as_str().unwrap().is_empty() && !tool.to_string().contains("$ref"), "{tool}");
    }
    let create = listed.iter().find(|tool| tool["name"] == "create_commission").unwrap();
    assert_eq!(create["inputSchema"]["required"], json!(["projectName", "title", "workerName", "prompt"]));
    assert_eq!(create["inputSchema"]["properties"]["resourceOverrides"]["additionalProperties"], false);
    let list = listed.iter().find(|tool| tool["name"] == "list_commissions").unwrap();
    assert_eq!(list["inputSchema"]["properties"]["status"]["enum"][3], "in_progress");
    assert_eq!(list["inputSchema"].get("required"), None);
}

#[tokio::test]
async fn commissions_are_made_followed_and_ended_by_tools() {
    let world = World::new().await;
    assert_eq!(world.call("list_projects", json!({})).await["projects"][0]["name"], "demo");
    assert_eq!(world.call("list_workers", json!({})).await["workers"][0]["displayName"], "tester");
    let mut new = commission();
    new["dependencies"] = json!(["reports/moths.md"]);
    new["resourceOverrides"] = json!({"maxTurns": 3});
    let made = world.call("create_commission", new).await;
    let id = json!({"commissionId": made["commissionId"]});
    let with = |key: &str, value: Value| {
        let mut arguments = id.clone();
        arguments[key] = value;
        arguments
    };
    assert_eq!(world.call("dispatch_commission", id.clone()).await["status"], "queued");
    let read = world.call("read_commission", with("projectName", json!("demo"))).await;
    assert_eq!(read["commission"]["status"], "blocked");
    assert_eq!(read["commission"]["resource_overrides"], json!({"maxTurns": 3}));
    let mut events = world.listen("").await;
    // The commission was dispatched, and has no dependencies any more.
    world.call("update_commission", with("dependencies", json!([]))).await;
    until(&mut events, r#""status":"failed""#).await;
    let done = json!({"status": "ok"});
    assert_eq!(world.call("add_commission_note", with("content", json!("Try again"))).await, done);
    let mut events = world.listen("").await;
    assert_eq!(world.call("redispatch_commission", id.clone()).await["status"], "accepted");
    until(&mut events, r#""status":"failed""#).await;
    assert_eq!(world.call("abandon_commission", with("reason", json!("It has no component"))).await, done);
    let other = world.call("create_commission", commission()).await;
    let cancel = json!({"commissionId": other["commissionId"]});
    assert_eq!(world.call("cancel_commission", cancel).await, done);
    let listed = world.call("list_commissions", json!({"projectName": "demo", "worker": "tester"})).await;
    let status = |commission: &Value| commission["status"].as_str().unwrap().to_owned();
    let listed: Vec<String> = listed["commissions"].as_array().unwrap().iter().map(status).collect();
    assert_eq!(listed.len(), 2);
    assert!(listed.contains(&"abandoned".to_owned()) && listed.contains(&"cancelled".to_owned()), "{listed:?}");
    let failed = world.call("list_commissions", json!({"status": "failed"})).await;
    assert_eq!(failed, json!({"commissions": []}));
}

#[tokio::test]
async fn a_long_list_has_its_beginning_and_how_many_there_are_besides() {
    let world = World::new().await;
    for _ in 0..102 {
        world.create().await;
    }
    for no_limit in [json!({}), json!({"limit": null})] {
        let listed = world.call("list_commissions", no_limit).await;
        assert_eq!((listed["commissions"].as_array().unwrap().len(), &listed["more"]), (100, &json!(2)));
    }
    let listed = world.call("list_commissions", json!({"offset": 100})).await;
    assert_eq!((listed["commissions"].as_array().unwrap().len(), listed.get("more")), (2, None));
    assert_eq!(listed["commissions"][0].get("prompt"), None);
}

#[tokio::test]
async fn a_list_of_documents_has_no_texts_and_one_document_no_text_twice() {
    let world = World::new().await;
    let text = "---\ntitle: A plan\nowner: somebody\n---\nThe whole plan.\n";
    let write = |path: &str| json!({"projectName": "demo", "artifactPath": path, "content": text});
    for path in ["a.md", "b.md"] {
        world.call("write_document", write(path)).await;
    }
    let listed = world.call("list_documents", json!({"projectName": "demo", "limit": 2})).await;
    let documents = listed["artifacts"].as_array().unwrap();
    assert_eq!((documents.len(), &listed["more"]), (2, &json!(1)));
    for document in documents.iter().filter(|document| document["meta"]["title"] == "A plan") {
        assert_eq!((document.get("content"), document["meta"].get("extras")), (None, None), "{document}");
    }
    let rest = world.call("list_documents", json!({"projectName": "demo", "offset": 2})).await;
    assert_eq!((rest["artifacts"].as_array().unwrap().len(), rest.get("more")), (1, None));
    let read = world.call("read_document", json!({"projectName": "demo", "path": "a.md"})).await;
    assert!(
        read["content"].as_str().unwrap().contains("The whole plan.") && read.get("rawContent").is_none(),
        "{read}"
    );
    assert_eq!(read["meta"]["extras"]["owner"], "somebody");
}

#[tokio::test]
async fn an_operation_is_a_method_of_json_rpc_unless_it_answers_with_a_file_or_a_stream() {
    let world = World::new().await;
    let id = world.create().await;
    let (_, listed) = world.ask("commission/list", json!({"projectName": "demo"}), "").await;
    assert_eq!(listed["result"]["commissions"][0]["commissionId"], json!(id), "{listed}");
    let (_, refused) = world.ask("commission/read", json!({"commissionId": "commission-none"}), "").await;
    assert_eq!(refused["error"]["code"], -32602);
    assert!(refused["error"]["message"].as_str().unwrap().contains("`list_commissions`"), "{refused}");
    let (_, described) = world.ask("rpc.discover", json!({}), "").await;
    let described = described["result"]["methods"].to_string();
    assert!(described.contains("\"commission/list\"") && described.contains("\"meeting/create\""));
    for absent in ["meeting/subscribe", "workspace/image/read", "workspace/mockup/read"] {
        let (_, answer) = world.ask(absent, json!({}), "").await;
        assert_eq!(answer["error"]["code"], -32601, "{absent}: {answer}");
        assert!(!described.contains(&format!("\"{absent}\"")), "{absent}");
    }
    // The worker of this world has no component, so the turn fails, and the tool reports it.
    let meeting = json!({"projectName": "demo", "workerName": "tester", "prompt": "Moths"});
    let (_, turn) = world.ask("meeting/create", meeting.clone(), "").await;
    assert!(turn["result"]["error"].as_str().unwrap().contains("worker.wasm"), "{turn}");
    assert!(world.fails("open_meeting", meeting).await.contains("worker.wasm"));
}

#[tokio::test]
async fn a_call_that_makes_no_sense_is_told_what_would() {
    let world = World::new().await;
    let mut misspelt = commission();
    misspelt["promt"] = json!("?");
    let why = world.fails("create_commission", misspelt).await;
    assert!(why.contains("unknown field `promt`") && why.contains("`prompt`"), "{why}");
    let why = world.fails("create_commission", json!({"projectName": "demo"})).await;
    assert!(why.contains("missing field `title`"), "{why}");
    let why = world.fails("list_commissions", json!({"status": "done"})).await;
    assert!(why.contains("status: unknown variant `done`") && why.contains("`completed`"), "{why}");
    let mut unbounded = commission();
    unbounded["resourceOverrides"] = json!({"maxTurn": 3});
    let why = world.fails("create_commission", unbounded).await;
    assert!(why.contains("unknown field `maxTurn`"), "{why}");
    let mut nobodys = commission();
    nobodys["workerName"] = json!("nobody");
    let why = world.fails("create_commission", nobodys).await;
    assert!(why.contains("Worker \"nobody\" not found") && why.contains("there are tester"), "{why}");
    for tool in
        DISPATCHES.into_iter().chain(ENDS).chain(["read_commission"]).filter(|tool| *tool != "create_commission")
    {
        let mut arguments = json!({"commissionId": "commission-none"});
        match tool {
            "abandon_commission" => arguments["reason"] = json!("?"),
            "add_commission_note" => arguments["content"] = json!("?"),
            _ => {}
        }
        let why = world.fails(tool, arguments).await;
        assert!(why.contains("commission-none") && why.contains("`list_commissions`"), "{tool}: {why}");
    }
    let id = world.create().await;
    let why = world.fails("redispatch_commission", json!({"commissionId": id})).await;
    assert!(why.contains("must be \"failed\" or \"cancelled\""), "{why}");
    let (_, unknown) = world.ask("tools/call", json!({"name": "create_comission", "arguments": {}}), "").await;
    assert_eq!(unknown["error"]["code"], -32602);
    assert_eq!(unknown["error"]["message"], "Unknown tool: create_comission; did you mean `create_commission`?");
}

#[tokio::test]
async fn the_endpoint_is_one_of_mcp_in_each_version_and_has_nothing_but_tools() {
    let world = World::new().await;
    let (_, plain) = world.ask("initialize", json!({"protocolVersion": "2025-06-18"}), "").await;
    assert_eq!(plain["result"]["serverInfo"]["name"], "guild-hall");
    assert_eq!(plain["result"]["capabilities"], json!({"tools": {}}));
    assert_eq!(world.ask("resources/list", json!({}), "").await.1["result"]["resources"], json!([]));
    assert_eq!(world.ask("prompts/list", json!({}), "").await.1["result"]["prompts"], json!([]));
    assert_eq!(world.ask("worker/list", json!({}), "").await.1["error"]["code"], -32601);
    // A request without a session, which the SDK handles.
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": "list_workers", "arguments": {}, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let accept = "Accept: application/json, text/event-stream\r\nContent-Type: application/json";
    let of_version = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: list_workers";
    let head = format!("POST {MCP} HTTP/1.1\r\n{accept}\r\n{of_version}\r\nContent-Length: {}", body.len());
    let modern = world.server.connect().await.request(&head, &body).await.json();
    assert_eq!(modern["result"]["structuredContent"]["workers"][0]["name"], "tester", "{modern}");
    // A request with a session.
    let client =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}).to_string();
    let head = format!("POST {MCP} HTTP/1.1\r\n{accept}\r\nContent-Length: {}", body.len());
    let opened = world.server.connect().await.request(&head, &body).await;
    assert_eq!((opened.status, opened.header("mcp-session-id").is_some()), (200, true));
}
