//! The hall's API on its socket: the bytes of each route's response, over a real project in git.
//!
//! The workers are fakes, and end as soon as a test lets them.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use guild_auth::Ingress;
use guild_config::Config;
use guild_contract::{Decision, Delegation, JobId, Limits, MemberKey, OperationError, hall::Model};
use guild_fs::clock::SystemClock;
use guild_git::Checkout;
use guild_hall::{Attempt, Hall, HallOptions, Home, NotBegun, Outcome, Permit, Worker, WorkerJobs, Workers};
use guild_roster::events::Hub;
use guild_server::hall::{Api, socket::Socket};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    sync::watch,
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::harness::PATIENCE;

const CREATE: &str = "/commission/request/commission/create";
const UPDATE: &str = "/commission/request/commission/update";
const NOTE: &str = "/commission/request/commission/note";
const LIST: &str = "/commission/request/commission/list";
const READ: &str = "/commission/request/commission/read";
const DISPATCH: &str = "/commission/run/dispatch";
const REDISPATCH: &str = "/commission/run/redispatch";
const CANCEL: &str = "/commission/run/cancel";
const ABANDON: &str = "/commission/run/abandon";
const CHECK: &str = "/commission/dependency/project/check";
const GRAPH: &str = "/commission/dependency/project/graph";
const ARTIFACTS: &str = "/workspace/artifact/document/list";
const ARTIFACT: &str = "/workspace/artifact/document/read";
const WRITE: &str = "/workspace/artifact/document/write";
const STATUS: &str = "/workspace/git/lore/status";
const COMMIT: &str = "/workspace/git/lore/commit";
const SETTINGS: &str = "/system/config/application/read";
const RELOAD: &str = "/system/config/application/reload";
const VALIDATE: &str = "/system/config/application/validate";
const PROJECTS: &str = "/system/config/project/list";
const PROJECT: &str = "/system/config/project/read";
const REGISTER: &str = "/system/config/project/register";
const DEREGISTER: &str = "/system/config/project/deregister";
const GROUP: &str = "/system/config/project/group";
const WORKERS: &str = "/system/packages/worker/list";
const HEALTH: &str = "/system/runtime/daemon/health";
const MODELS: &str = "/system/models/catalog/list";
const EVENTS: &str = "/system/events/stream/subscribe";

/// Fake workers whose work ends at once, or once a test lets it.
struct AtOnce {
    open: watch::Sender<bool>,
    cancelled: watch::Sender<Vec<String>>,
    next: AtomicU64,
    /// Their result; if it is empty, they fail.
    result: Mutex<String>,
    /// The error in `guild.toml`.
    wrong: Mutex<Option<String>>,
}

impl Workers for AtOnce {
    fn all(&self) -> Vec<Worker> {
        vec![Worker {
            key: "researcher".parse().unwrap(),
            package: "guild-researcher".to_owned(),
            display_name: "Dalton".to_owned(),
            display_title: "Guild Artificer".to_owned(),
            description: "Looks things up".to_owned(),
            portrait: Some("/images/portraits/dalton.webp".to_owned()),
            agent: "claude".to_owned(),
            model: Some("opus".to_owned()),
            checkout: Checkout::Sparse,
            manages: false,
            can: Vec::new(),
        }]
    }

    fn models(&self) -> Vec<Model> {
        vec![Model { name: "opus".to_owned(), agent: "claude".to_owned() }]
    }

    fn check_settings(&self) -> Result<(), String> {
        self.wrong.lock().unwrap().clone().map_or(Ok(()), Err)
    }
}

#[async_trait]
impl WorkerJobs for AtOnce {
    fn new_job(&self, _: &MemberKey) -> Result<JobId, OperationError> {
        Ok(format!("job-{}", self.next.fetch_add(1, Ordering::Relaxed)).parse().unwrap())
    }

    async fn begin(&self, _: &Attempt) -> Result<(), NotBegun> {
        Ok(())
    }

    async fn ended(&self, attempt: &Attempt) -> (Outcome, Vec<Decision>) {
        let (mut open, mut cancelled) = (self.open.subscribe(), self.cancelled.subscribe());
        let job = attempt.job.to_string();
        let outcome = tokio::select! {
            biased;
            _ = cancelled.wait_for(|cancelled| cancelled.contains(&job)) => Outcome::Cancelled,
            _ = open.wait_for(|open| *open) => match self.result.lock().unwrap().clone() {
                result if result.is_empty() => Outcome::Failed { error: "It found nothing".to_owned(), text: String::new() },
                result => Outcome::Completed { result, error: None },
            }
        };
        (outcome, Vec::new())
    }

    async fn cancel(&self, attempt: &Attempt) {
        self.cancelled.send_modify(|cancelled| cancelled.push(attempt.job.to_string()));
    }
}

/// A running hall with the project `demo`, and `other` in which nothing is permitted.
struct World {
    root: TempDir,
    hall: Arc<Hall>,
    workers: Arc<AtOnce>,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

impl World {
    async fn new() -> Self {
        Self::with(Limits::default()).await
    }

    async fn with(limits: Limits) -> Self {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| fs::canonicalize(root.path()).unwrap().join(name);
        let mut config = "maxConcurrentCommissions: 7\nprojects:\n".to_owned();
        for name in ["demo", "other"] {
            let path = at("code").join(name);
            write(&path, ".lore/specs/plan.md", "---\ntitle: \"The plan\"\nstatus: open\n---\nMoths.\n");
            write(&path, ".lore/design/map.png", "no image");
            write(&path, "src/code.txt", "code\n");
            git(&path, &["init", "--quiet", "--initial-branch=main"]);
            git(&path, &["add", "--all"]);
            git(&path, &["commit", "--quiet", "--message=Begin"]);
            config += &format!("  - name: {name}\n    path: {}\n    group: g\n", path.display());
        }
        Home::make(&at("home")).unwrap();
        write(&at("home"), "config.yaml", &config);
        let permits = vec![Permit { path: at("code/demo"), ..Permit::default() }];
        let hall = Hall::open(HallOptions {
            home: at("home"),
            has_passed_socket: false,
            permits,
            delegation: Delegation::default(),
            git: None,
            limits: Arc::default(),
            clock: Arc::new(SystemClock),
        });
        let hall = hall.unwrap();
        let workers = Arc::new(AtOnce {
            open: watch::Sender::new(true),
            cancelled: watch::Sender::default(),
            next: AtomicU64::new(1),
            result: Mutex::new("All done.".to_owned()),
            wrong: Mutex::default(),
        });
        hall.begin_work(workers.clone()).await.unwrap();
        let (socket, stop) = (Socket::open(&hall, None).unwrap(), CancellationToken::new());
        let served = tokio::spawn({
            let (config, stopped) = (Config { limits, ..Config::default() }, stop.clone());
            let limits = Arc::new(config.limits.clone());
            let api = Api::new(hall.clone(), Hub::new(&limits), Arc::new(Ingress::of_this_machine(&config)));
            async move { socket.serve(&api, &limits, stopped.cancelled()).await }
        });
        Self { root, hall, workers, stop, served }
    }

    fn home(&self) -> PathBuf {
        fs::canonicalize(self.root.path()).unwrap().join("home")
    }

    fn integration(&self) -> PathBuf {
        self.home().join("projects/demo")
    }

    fn log(&self) -> Vec<String> {
        let log = git(&self.integration(), &["log", "--format=%s"]);
        log.lines().map(str::to_owned).collect()
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.home().join("guild-hall.sock")).await.unwrap()
    }

    /// The response to a request that is sent unchanged: its head in lower case, and its body.
    async fn raw(&self, request: &str) -> (String, String) {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("no answer").unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_lowercase(), body.to_owned())
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let length = body.len();
        let (head, answer) = self
            .raw(&format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            ))
            .await;
        assert!(head.contains("content-type: application/json"), "{method} {path}: {head}");
        (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(&answer).unwrap())
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.ask("POST", path, &body.to_string()).await
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, "").await
    }

    /// The body of a response with status 200.
    async fn ok(&self, path: &str) -> Value {
        let (status, answer) = self.get(path).await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// Makes a commission, and returns its id.
    async fn create(&self, more: Value) -> String {
        let (status, made) = self.post(CREATE, with(commission(), more)).await;
        assert_eq!(status, 201, "{made}");
        made["commissionId"].as_str().unwrap().to_owned()
    }

    async fn dispatch(&self, id: &str) -> Value {
        let (status, answer) = self.post(DISPATCH, json!({"commissionId": id})).await;
        assert_eq!((status, &answer["commissionId"]), (202, &json!(id)), "{answer}");
        answer["status"].clone()
    }

    /// Waits until a commission has reached a state.
    async fn until(&self, id: &str, wanted: &str) {
        let mut events = self.hall.events();
        let reached = async {
            while self.state(id).await != wanted {
                let _ = events.recv().await;
            }
        };
        assert!(timeout(PATIENCE, reached).await.is_ok(), "{id} is {}, not {wanted}", self.state(id).await);
    }

    async fn state(&self, id: &str) -> String {
        self.read(id).await["commission"]["status"].as_str().unwrap().to_owned()
    }

    async fn read(&self, id: &str) -> Value {
        self.ok(&format!("{READ}?projectName=demo&commissionId={id}")).await
    }

    async fn artifact(&self, path: &str) -> Value {
        self.ok(&format!("{ARTIFACT}?projectName=demo&path={path}")).await
    }

    /// The paths in a list.
    async fn paths(&self, more: &str) -> Vec<String> {
        let listed = self.ok(&format!("{ARTIFACTS}?projectName=demo{more}")).await;
        let artifacts = listed["artifacts"].as_array().unwrap();
        artifacts.iter().map(|artifact| artifact["relativePath"].as_str().unwrap().to_owned()).collect()
    }
}

fn commission() -> Value {
    json!({"projectName": "demo", "title": "Moths", "workerName": "guild-researcher", "prompt": "How long do they live?"})
}

fn with(mut object: Value, more: Value) -> Value {
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

fn write(dir: &Path, file: &str, text: &str) {
    let path = dir.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The output of a git command that runs as the user. The test fails if git fails.
fn git(dir: &Path, args: &[&str]) -> String {
    let user = ["-c", "user.name=User", "-c", "user.email=user@localhost", "-c", "commit.gpgsign=false"];
    let output = Command::new("git").args(user).args(args).current_dir(dir).env_remove("GIT_DIR").output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

fn events(read: &Value) -> Vec<&str> {
    read["timeline"].as_array().unwrap().iter().map(|entry| entry["event"].as_str().unwrap()).collect()
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o777
}

fn done() -> (u16, Value) {
    (200, json!({"status": "ok"}))
}

#[tokio::test]
async fn a_commission_is_made_changed_carried_out_and_read() {
    let world = World::new().await;
    let id = world.create(json!({"resourceOverrides": {"model": "haiku", "maxTurns": 4}})).await;
    assert!(id.starts_with("commission-Dalton-"), "{id}");
    assert_eq!(world.post(UPDATE, json!({"commissionId": id, "prompt": "Do they live?"})).await, done());
    assert_eq!(world.post(NOTE, json!({"commissionId": id, "content": "Mind the luna moth"})).await, done());
    assert_eq!(world.dispatch(&id).await, "accepted");
    world.until(&id, "completed").await;
    let read = world.read(&id).await;
    assert_eq!(events(&read), ["created", "user_note", "status_dispatched", "status_in_progress", "status_completed"]);
    let commission = &read["commission"];
    let listed = world.ok(&format!("{LIST}?projectName=demo")).await;
    assert_eq!(listed["commissions"], json!([commission]));
    // The original's clients read these fields, and fail if one is missing.
    let expected = json!({
        "commissionId": id, "title": "Commission: Moths", "status": "completed", "worker": "Dalton",
        "workerDisplayTitle": "Guild Artificer", "prompt": "Do they live?", "dependencies": [], "linked_artifacts": [],
        "resource_overrides": {"model": "haiku", "maxTurns": 4}, "current_progress": "", "result_summary": "All done.",
        "projectName": "demo", "source": null, "createdBy": "user", "jobId": "job-1",
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&commission[field], value, "{field}");
    }
    assert!(commission["date"].is_string() && commission["relevantDate"].is_string());
    let raw = read["rawContent"].as_str().unwrap();
    assert!(raw.starts_with("---\ntitle: \"Commission: Moths\"\n") && raw.ends_with("---\nAll done.\n"), "{raw}");
    let graph = world.ok(&format!("{GRAPH}?projectName=demo")).await;
    let node = json!({"id": id, "title": "Commission: Moths", "status": "completed", "worker": "Dalton", "projectName": "demo"});
    assert_eq!(graph, json!({"nodes": [node], "edges": []}));
}

#[tokio::test]
async fn what_the_original_command_line_spells_otherwise_is_understood() {
    let world = World::new().await;
    let mut other = commission();
    let name = other.as_object_mut().unwrap().remove("workerName");
    let (status, made) =
        world.post(CREATE, with(other, json!({"worker": name, "dependencies": "specs/plan.md"}))).await;
    assert_eq!(status, 201, "{made}");
    let id = made["commissionId"].as_str().unwrap();
    // A list without a project covers all projects.
    for query in ["", "?state=pending", "?status=pending&worker=Dalton", "?projectName=&status="] {
        let listed = world.ok(&format!("{LIST}{query}")).await;
        assert_eq!(listed["commissions"][0]["commissionId"], *id, "{query}");
    }
    for query in ["?status=completed", "?status=nonsense", "?worker=Ada"] {
        assert_eq!(world.ok(&format!("{LIST}{query}")).await, json!({"commissions": []}), "{query}");
    }
    assert_eq!(world.read(id).await, world.ok(&format!("{READ}?commissionId={id}")).await);
    assert_eq!(world.get(&format!("{CHECK}?projectName=demo")).await, done());
    assert_eq!(world.post(CHECK, json!({"projectName": "demo"})).await, done());
    assert_eq!(world.ok(&format!("{PROJECT}?projectName=demo")).await, world.ok(&format!("{PROJECT}?name=demo")).await);
    let (_, refused) = world.post(REGISTER, json!({"projectName": "new one", "path": "/tmp/a b"})).await;
    let command = "run `guild project add '/tmp/a b' --name 'new one'`";
    assert!(refused["error"].as_str().unwrap().ends_with(command), "{refused}");
    // The original's bodies are chunked, and have no content type.
    let body = json!({"commissionId": id, "reason": "It is late"}).to_string();
    let (head, answer) = world
        .raw(&format!(
            "POST {CANCEL} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
             {:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        ))
        .await;
    assert!(head.starts_with("http/1.1 200") && answer == r#"{"status":"ok"}"#, "{head}\n{answer}");
    let read = world.read(id).await;
    assert_eq!(read["timeline"][1]["reason"], "It is late");
}

#[tokio::test]
async fn a_field_that_is_missing_is_named() {
    let world = World::new().await;
    let create = "Missing required fields: projectName, title, workerName, prompt";
    for field in ["projectName", "title", "workerName", "prompt"] {
        for nothing in [json!(null), json!(""), json!(7)] {
            let refused = world.post(CREATE, with(commission(), json!({field: nothing}))).await;
            assert_eq!(refused, (400, json!({"error": create})), "{field}");
        }
    }
    let write = "Missing required fields: artifactPath, content";
    for (method, path, body, expected) in [
        ("POST", UPDATE, r#"{"prompt": "x"}"#, "Missing required field: commissionId"),
        ("POST", NOTE, r#"{"content": "x"}"#, "Missing required field: commissionId"),
        ("POST", NOTE, r#"{"commissionId": "x"}"#, "Missing required field: content"),
        ("POST", DISPATCH, "{}", "Missing required field: commissionId"),
        ("POST", REDISPATCH, "{}", "Missing required field: commissionId"),
        ("POST", CANCEL, "{}", "Missing required field: commissionId"),
        ("POST", ABANDON, r#"{"reason": "x"}"#, "Missing required field: commissionId"),
        ("POST", ABANDON, r#"{"commissionId": "x", "reason": ""}"#, "Missing required field: reason"),
        ("POST", CHECK, "", "Missing required field: projectName"),
        ("GET", CHECK, "", "Missing required query parameter: projectName"),
        ("GET", GRAPH, "", "Missing required query parameter: projectName"),
        ("GET", READ, "", "Missing required query parameter: commissionId"),
        ("GET", ARTIFACTS, "", "Missing required query parameter: projectName"),
        ("GET", ARTIFACT, "", "Missing required query parameter: projectName"),
        ("GET", &format!("{ARTIFACT}?projectName=demo"), "", "Missing required query parameter: path"),
        ("POST", WRITE, r#"{"artifactPath": "a.md", "content": "x"}"#, "Missing required field: projectName"),
        ("POST", WRITE, r#"{"projectName": "demo", "artifactPath": "a.md"}"#, write),
        ("POST", WRITE, r#"{"projectName": "demo", "content": "x"}"#, write),
        ("POST", WRITE, r#"{"projectName": "demo", "artifactPath": "a.md", "content": 7}"#, write),
        ("GET", STATUS, "", "Missing required query parameter: projectName"),
        ("POST", COMMIT, r#"{"message": "x"}"#, "Missing required field: projectName"),
        ("POST", COMMIT, r#"{"projectName": "demo", "message": " "}"#, "Commit message is required"),
        ("GET", PROJECT, "", "Missing required query parameter: name"),
        ("POST", REGISTER, r#"{"path": "/x"}"#, "Missing required field: name"),
        ("POST", REGISTER, r#"{"name": "x"}"#, "Missing required field: path"),
        ("POST", DEREGISTER, "{}", "Missing required field: name"),
        ("POST", GROUP, r#"{"group": "x"}"#, "Missing required fields: name, group"),
        ("POST", GROUP, r#"{"name": "demo"}"#, "Missing required fields: name, group"),
    ] {
        assert_eq!(world.ask(method, path, body).await, (400, json!({"error": expected})), "{method} {path} {body}");
    }
    let bad = world.post(CREATE, with(commission(), json!({"dependencies": [7]}))).await;
    assert_eq!(bad, (400, json!({"error": "dependencies must be a list of texts"})));
    let (status, bad) = world.post(CREATE, with(commission(), json!({"resourceOverrides": {"maxTurns": "all"}}))).await;
    assert_eq!(status, 400);
    assert!(bad["error"].as_str().unwrap().starts_with("`resourceOverrides.maxTurns` is the text"), "{bad}");
    assert_eq!(world.ok(LIST).await, json!({"commissions": []}));
}

#[tokio::test]
async fn a_body_that_is_no_json_object_is_refused_by_every_route() {
    let world = World::new().await;
    for path in [
        CREATE, UPDATE, NOTE, DISPATCH, REDISPATCH, CANCEL, ABANDON, CHECK, WRITE, COMMIT, RELOAD, REGISTER,
        DEREGISTER, GROUP,
    ] {
        for body in ["{", "null", "[]", "\"x\"", "7", "{} {}", "commissionId=x"] {
            let refused = world.ask("POST", path, body).await;
            assert_eq!(refused, (400, json!({"error": "Invalid JSON body"})), "{path} {body}");
        }
    }
}

#[tokio::test]
async fn what_there_is_not_is_not_found_in_words_that_clients_look_for() {
    let world = World::new().await;
    let of_none = json!({"commissionId": "commission-x", "reason": "x", "content": "x", "prompt": "x"});
    for path in [UPDATE, NOTE, DISPATCH, REDISPATCH, CANCEL, ABANDON] {
        let expected = "Commission \"commission-x\" not found in any project";
        assert_eq!(world.post(path, of_none.clone()).await, (404, json!({"error": expected})), "{path}");
    }
    let nowhere = (404, json!({"error": "Project not found: nowhere"}));
    for path in [LIST, GRAPH, ARTIFACTS, STATUS] {
        assert_eq!(world.get(&format!("{path}?projectName=nowhere")).await, nowhere, "{path}");
    }
    let in_nowhere = json!({"projectName": "nowhere", "artifactPath": "a.md", "content": "x", "message": "x"});
    for path in [WRITE, COMMIT, DEREGISTER] {
        assert_eq!(world.post(path, in_nowhere.clone()).await, nowhere, "{path}");
    }
    assert_eq!(world.get(&format!("{ARTIFACT}?projectName=nowhere&path=a.md")).await, nowhere);
    assert_eq!(world.post(CREATE, with(commission(), json!({"projectName": "nowhere"}))).await, nowhere);
    for missing in ["none.md", "specs/none.md", "none/plan.md"] {
        let answer = world.get(&format!("{ARTIFACT}?projectName=demo&path={missing}")).await;
        assert_eq!(answer, (404, json!({"error": format!("Artifact not found: {missing}")})));
    }
    let id = world.create(json!({})).await;
    for query in ["commissionId=commission-x&projectName=demo", &format!("commissionId={id}&projectName=other")] {
        let (status, error) = world.get(&format!("{READ}?{query}")).await;
        assert_eq!(status, 404, "{query}");
        assert!(error["error"].as_str().unwrap().contains("not found"), "{error}");
    }
    let (status, error) = world.post(CREATE, with(commission(), json!({"workerName": "Ada"}))).await;
    let expected = "Worker \"Ada\" not found in discovered packages; there are Dalton";
    assert_eq!((status, error), (404, json!({"error": expected})));
}

#[tokio::test]
async fn a_route_or_method_that_there_is_not_is_answered_in_json() {
    let world = World::new().await;
    for (method, path) in [
        ("GET", "/"),
        ("GET", "/nowhere"),
        ("GET", "/commission/request/commission"),
        ("GET", "/commission/request/commission/list/"),
        ("GET", CREATE),
        ("GET", DISPATCH),
        ("GET", WRITE),
        ("POST", LIST),
        ("POST", STATUS),
        ("POST", HEALTH),
        ("PUT", UPDATE),
        ("DELETE", CANCEL),
        ("OPTIONS", LIST),
        ("PUT", EVENTS),
        ("GET", "/meeting/request/meeting"),
        ("GET", "/heartbeat/demo/tick"),
        ("POST", "/heartbeat/demo/status"),
        ("GET", "/heartbeat/demo/status/"),
    ] {
        let expected = format!("{method} {path} not found");
        assert_eq!(world.ask(method, path, "").await, (404, json!({"error": expected})));
        // The body does not matter.
        assert_eq!(world.ask(method, path, "{").await.0, 404, "{method} {path}");
    }
}

#[tokio::test]
async fn what_cannot_be_done_in_a_state_is_a_conflict_that_names_it() {
    let world = World::new().await;
    world.workers.open.send_replace(false);
    let id = world.create(json!({})).await;
    let conflict = async |path: &str, expected: &str| {
        let body = json!({"commissionId": id, "prompt": "x", "reason": "x"});
        let (status, error) = world.post(path, body).await;
        assert_eq!(status, 409, "{path}: {error}");
        assert!(error["error"].as_str().unwrap().contains(expected), "{path}: {error}");
    };
    conflict(REDISPATCH, "status is \"pending\", must be \"failed\" or \"cancelled\"").await;
    assert_eq!(world.dispatch(&id).await, "accepted");
    world.until(&id, "in_progress").await;
    conflict(DISPATCH, "status is \"in_progress\", must be \"pending\"").await;
    conflict(REDISPATCH, "status is \"in_progress\"").await;
    conflict(UPDATE, "status is \"in_progress\". Cancel it, update it, and re-dispatch it").await;
    conflict(ABANDON, "it has an active session. Cancel it first.").await;
    assert_eq!(world.ok(HEALTH).await["commissions"], json!({"running": 1}));
    assert_eq!(world.post(CANCEL, json!({"commissionId": id})).await, done());
    world.until(&id, "cancelled").await;
    conflict(CANCEL, "current state is \"cancelled\"").await;
    conflict(DISPATCH, "status is \"cancelled\"").await;
    // The second attempt has no result.
    world.workers.result.lock().unwrap().clear();
    world.workers.open.send_replace(true);
    let (status, answer) = world.post(REDISPATCH, json!({"commissionId": id})).await;
    assert_eq!((status, answer), (202, json!({"status": "accepted", "commissionId": id})));
    world.until(&id, "failed").await;
    let abandon = json!({"commissionId": id, "reason": "Nobody needs it"});
    assert_eq!(world.post(ABANDON, abandon.clone()).await, done());
    assert_eq!(world.post(ABANDON, abandon).await, done());
    conflict(REDISPATCH, "status is \"abandoned\"").await;
    let finished = world.create(json!({})).await;
    *world.workers.result.lock().unwrap() = "All done.".to_owned();
    world.dispatch(&finished).await;
    world.until(&finished, "completed").await;
    let (status, _) = world.post(ABANDON, json!({"commissionId": finished, "reason": "x"})).await;
    assert_eq!(status, 409);
}

#[tokio::test]
async fn a_dispatch_that_has_to_wait_is_answered_with_what_for() {
    let world = World::new().await;
    world.workers.open.send_replace(false);
    let mut running = Vec::new();
    for _ in 0..3 {
        let id = world.create(json!({})).await;
        assert_eq!(world.dispatch(&id).await, "accepted");
        running.push(id);
    }
    let id = world.create(json!({})).await;
    let (status, answer) = world.post(DISPATCH, json!({"commissionId": id})).await;
    let reason = "Project \"demo\" concurrent limit reached (3/3)";
    assert_eq!((status, answer), (202, json!({"status": "queued", "commissionId": id, "reason": reason})));
    world.workers.open.send_replace(true);
    for id in running.iter().chain([&id]) {
        world.until(id, "completed").await;
    }
}

#[tokio::test]
async fn events_come_as_they_happen_each_in_one_piece() {
    let world = World::new().await;
    for method in ["GET", "POST"] {
        let mut stream = world.connect().await;
        stream.write_all(format!("{method} {EVENTS} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await.unwrap();
        // The head is sent before the first event, so that a client knows that it is subscribed.
        let head = until(&mut stream, "\r\n\r\n").await.to_lowercase();
        assert!(head.starts_with("http/1.1 200 ok\r\n") && head.contains("transfer-encoding: chunked"), "{head}");
        assert!(head.contains("content-type: text/event-stream\r\ncache-control: no-cache\r\n"), "{head}");
        let id = world.create(json!({})).await;
        world.post(NOTE, json!({"commissionId": id, "content": "Mind\nthe moth"})).await;
        world.dispatch(&id).await;
        let told = until(&mut stream, r#""status":"completed""#).await;
        let told = told + &until(&mut stream, "\r\n").await;
        let status = |status: &str, old: &str, reason: &str| {
            format!(r#"{{"type":"commission_status","commissionId":"{id}","status":"{status}","oldStatus":"{old}","#)
                + &format!(r#""from":"{old}","to":"{status}","projectName":"demo","reason":"{reason}"}}"#)
        };
        let expected = [
            format!(r#"{{"type":"commission_manager_note","commissionId":"{id}","content":"Mind\nthe moth"}}"#),
            status("dispatched", "pending", "Dispatched to worker"),
            status("in_progress", "dispatched", "Execution started"),
            status("completed", "in_progress", "Execution completed"),
        ];
        // Each event is one chunk of HTTP.
        let chunk = |event: &String| {
            let event = format!("data: {event}\n\n");
            format!("{:X}\r\n{event}\r\n", event.len())
        };
        assert_eq!(told, expected.iter().map(chunk).collect::<String>());
    }
}

/// Reads until the text has arrived, and returns everything that has arrived.
async fn until(stream: &mut UnixStream, wanted: &str) -> String {
    let mut bytes = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&bytes).contains(wanted) {
            bytes.push(stream.read_u8().await.expect("closed"));
        }
    };
    assert!(timeout(PATIENCE, read).await.is_ok(), "{wanted} did not come");
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_list_cuts_long_texts_and_a_project_keeps_no_more_than_its_room() {
    let world = World::new().await;
    let prompt = "ä".repeat(512 * 1024);
    let mut made = Vec::new();
    let refused = loop {
        let (status, answer) = world.post(CREATE, with(commission(), json!({"prompt": prompt}))).await;
        if status != 201 {
            break (status, answer);
        }
        made.push(answer["commissionId"].as_str().unwrap().to_owned());
        assert!(made.len() < 64, "all are taken");
    };
    assert_eq!((refused.0, made.len()), (409, 63), "{}", refused.1);
    assert!(refused.1["error"].as_str().unwrap().contains("delete `state/commissions/ID.json`"), "{}", refused.1);
    let listed = world.ok(LIST).await;
    let listed = listed["commissions"].as_array().unwrap();
    assert_eq!(listed.len(), 63);
    for one in listed {
        let cut = one["prompt"].as_str().unwrap();
        assert!(cut.ends_with('…') && cut.len() < 4096, "{} bytes", cut.len());
    }
    assert_eq!(world.read(&made[0]).await["commission"]["prompt"], json!(prompt));
    let rest = world.ok(&format!("{LIST}?offset=60")).await;
    let ids = |listed: &[Value]| listed.iter().map(|one| one["commissionId"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(rest["commissions"].as_array().unwrap()), ids(&listed[60..]));
    assert_eq!(world.ask("GET", &format!("{LIST}?offset=x"), "").await.0, 400);
    let note = "x".repeat(1024 * 1024);
    assert_eq!(world.post(NOTE, json!({"commissionId": made[0], "content": note})).await.0, 409);
    // Existing records can still be changed.
    assert_eq!(world.post(ABANDON, json!({"commissionId": made[0], "reason": "too long"})).await.0, 200);
}

#[tokio::test]
async fn who_connects_and_is_silent_or_slow_shuts_nobody_out() {
    let world = World::with(Limits { connections: 8, ..Limits::default() }).await;
    // Silent connections, a slow head, a slow body, and a connection whose request was answered.
    let slow = ["", "GET /system", "POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"];
    let mut held = Vec::new();
    for begun in slow.iter().cycle().take(64) {
        let mut stream = world.connect().await;
        stream.write_all(begun.as_bytes()).await.unwrap();
        held.push(stream);
        let (status, _) = world.ask("GET", "/system/runtime/daemon/health", "").await;
        assert_eq!(status, 200);
    }
}

#[tokio::test]
async fn listeners_are_counted_and_leave_room_for_what_is_asked() {
    let world = World::with(Limits { listeners: 8, ..Limits::default() }).await;
    let listen = format!("GET {EVENTS} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut held = Vec::new();
    for nth in 1..=8 {
        let mut stream = world.connect().await;
        stream.write_all(listen.as_bytes()).await.unwrap();
        let head = until(&mut stream, "\r\n\r\n").await;
        // One process gets seven eighths of the places.
        let expected = if nth < 8 { "HTTP/1.1 200" } else { "HTTP/1.1 503" };
        assert!(head.starts_with(expected), "{nth}: {head}");
        held.push(stream);
    }
    assert_eq!(world.ask("GET", "/system/runtime/daemon/health", "").await.0, 200);
    held.clear();
}

#[tokio::test]
async fn a_body_that_nests_deep_or_weighs_much_is_refused_as_on_the_port() {
    let world = World::with(Limits { parsed_bytes: 1_000_000, ..Limits::default() }).await;
    let deep = format!(r#"{{"x":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let heavy = format!(r#"{{"x":[{}0]}}"#, "[],".repeat(100_000));
    for (body, why) in [(deep, "nests deeper"), (heavy, "the fixed limit parsed_bytes")] {
        let (status, answer) = world.ask("POST", NOTE, &body).await;
        assert_eq!(status, 400, "{answer}");
        assert!(answer["error"].as_str().unwrap().contains(why), "{answer}");
    }
    let id = world.create(json!({})).await;
    let cut = format!(r#"{{"commissionId":"{id}","content":"cut \ud83d"}}"#);
    assert_eq!(world.ask("POST", NOTE, &cut).await.0, 200);
}

#[tokio::test]
async fn documents_are_listed_as_people_look_through_them() {
    let world = World::new().await;
    let id = world.create(json!({})).await;
    let listed = world.ok(&format!("{ARTIFACTS}?projectName=demo")).await;
    let mut found: BTreeMap<&str, &Value> = BTreeMap::new();
    for artifact in listed["artifacts"].as_array().unwrap() {
        assert!(artifact["lastModified"].as_str().unwrap().ends_with('Z') && artifact.get("rawContent").is_none());
        found.insert(artifact["relativePath"].as_str().unwrap(), artifact);
    }
    let record = format!("work/commissions/{id}.md");
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), ["design/map.png", "specs/plan.md", &record]);
    let plan = found["specs/plan.md"];
    let meta = json!({"title": "The plan", "date": "", "status": "open", "tags": [], "type": "Spec"});
    assert_eq!((&plan["meta"], &plan["content"]), (&meta, &json!("Moths.\n")));
    assert_eq!(plan["artifactType"], "document");
    let map = found["design/map.png"];
    assert_eq!((&map["artifactType"], &map["meta"]["title"]), (&json!("image"), &json!("Map")));
    let record = found[record.as_str()];
    assert_eq!(record["meta"]["type"], "Commission");
    assert_eq!(record["meta"]["extras"]["worker"], "Dalton");
    assert_eq!(record["meta"]["extras"]["activity_timeline"][0]["event"], "created");
    // Open work comes first; recent documents have no records.
    assert_eq!(world.paths("").await[2], "design/map.png");
    let mut recent = world.paths("&recent=true").await;
    recent.sort();
    assert_eq!(recent, ["design/map.png", "specs/plan.md"]);
    assert_eq!(world.paths("&recent=true&limit=1").await.len(), 1);
    for limit in ["0", "-1", "x", "1.5"] {
        let refused = world.get(&format!("{ARTIFACTS}?projectName=demo&recent=true&limit={limit}")).await;
        assert_eq!(refused, (400, json!({"error": "Invalid limit parameter"})), "{limit}");
    }
}

#[tokio::test]
async fn a_document_that_is_written_is_committed_and_read_again() {
    let world = World::new().await;
    let text = "---\ntitle: \"New\"\n---\nText\n";
    let written = (200, json!({"success": true}));
    for (path, body) in [
        (format!("{WRITE}?projectName=demo"), json!({"artifactPath": "notes/new.md", "content": text})),
        (WRITE.to_owned(), json!({"projectName": "demo", "path": "notes/cli.md", "body": text})),
        (WRITE.to_owned(), json!({"projectName": "demo", "artifactPath": ".lore/empty.md", "content": ""})),
    ] {
        assert_eq!(world.post(&path, body).await, written);
    }
    let read = world.artifact("notes/new.md").await;
    assert_eq!((&read["rawContent"], &read["content"]), (&json!(text), &json!("Text\n")));
    assert_eq!((&read["relativePath"], &read["meta"]["type"]), (&json!("notes/new.md"), &json!("Note")));
    assert_eq!(world.artifact("empty.md").await["rawContent"], "");
    assert_eq!(
        world.log(),
        ["Edit artifact: .lore/empty.md", "Edit artifact: notes/cli.md", "Edit artifact: notes/new.md", "Begin"]
    );
    assert_eq!(git(&world.integration(), &["status", "--porcelain"]), "");
    // The user's own working tree is not touched.
    assert!(!world.root.path().join("code/demo/.lore/notes").exists());
}

#[tokio::test]
async fn a_document_that_is_written_is_what_a_commission_waits_for() {
    let world = World::new().await;
    let id = world.create(json!({"dependencies": ["specs/answer.md"]})).await;
    assert_eq!(world.dispatch(&id).await, "queued");
    assert_eq!(world.state(&id).await, "blocked");
    let body = json!({"projectName": "demo", "artifactPath": "specs/answer.md", "content": "42\n"});
    assert_eq!(world.post(WRITE, body).await.0, 200);
    world.until(&id, "completed").await;
}

#[tokio::test]
async fn no_path_leads_out_of_the_documents_or_into_the_records() {
    let world = World::new().await;
    let id = world.create(json!({})).await;
    let outside = world.root.path().join("outside");
    write(&outside, "secret.md", "secret");
    std::os::unix::fs::symlink(&outside, world.integration().join(".lore/link")).unwrap();
    std::os::unix::fs::symlink(outside.join("secret.md"), world.integration().join(".lore/link.md")).unwrap();
    for path in
        ["../src/code.txt", "/etc/passwd", "a/../../x.md", "", ".", "a//b.md", "link/secret.md", "link.md", "specs"]
    {
        let encoded: String = url_encoded(path);
        let (status, error) = world.get(&format!("{ARTIFACT}?projectName=demo&path={encoded}")).await;
        assert_eq!(status, 400, "{path}: {error}");
        assert!(!error.to_string().contains("secret\"") && !error.to_string().contains(outside.to_str().unwrap()));
        let body = json!({"projectName": "demo", "artifactPath": path, "content": "x"});
        assert_eq!(world.post(WRITE, body).await.0, 400, "{path}");
    }
    let record = format!("work/commissions/{id}.md");
    for path in
        [&record, "commissions/x.md", "work/meetings/x.md", "Work/Commissions/x.md", ".git/config", ".gitattributes"]
    {
        let body = json!({"projectName": "demo", "artifactPath": path, "content": "x"});
        let (status, error) = world.post(WRITE, body).await;
        assert_eq!(status, 400, "{path}: {error}");
        assert!(error["error"].as_str().unwrap().contains("cannot be written by callers"), "{error}");
    }
    // Reading a record is fine.
    assert_eq!(world.artifact(&record).await["meta"]["type"], "Commission");
    assert_eq!(fs::read_to_string(outside.join("secret.md")).unwrap(), "secret");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(world.paths("").await.len(), 3);
}

/// Encodes a path for a query.
fn url_encoded(path: &str) -> String {
    path.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn the_record_of_a_commission_under_way_is_that_of_its_attempt() {
    let world = World::new().await;
    world.workers.open.send_replace(false);
    let id = world.create(json!({})).await;
    world.dispatch(&id).await;
    world.until(&id, "in_progress").await;
    for path in [format!("work/commissions/{id}.md"), format!(".lore/work/commissions/{id}.md")] {
        let read = world.artifact(&path).await;
        assert_eq!(read["meta"]["status"], "in_progress");
    }
    world.workers.open.send_replace(true);
    world.until(&id, "completed").await;
    assert_eq!(world.artifact(&format!("work/commissions/{id}.md")).await["meta"]["status"], "completed");
}

#[tokio::test]
async fn what_is_loose_among_the_documents_is_counted_and_committed() {
    let world = World::new().await;
    let status = format!("{STATUS}?projectName=demo");
    assert_eq!(world.ok(&status).await, json!({"hasPendingChanges": false, "fileCount": 0}));
    let nothing = (200, json!({"committed": false, "message": "Nothing to commit"}));
    let commit = format!("{COMMIT}?projectName=demo");
    assert_eq!(world.post(&commit, json!({"message": "x"})).await, nothing);
    write(&world.integration(), ".lore/a b.md", "a\n");
    write(&world.integration(), ".lore/deep/c.md", "c\n");
    write(&world.integration(), "src/code.txt", "not a document\n");
    assert_eq!(world.ok(&status).await, json!({"hasPendingChanges": true, "fileCount": 2}));
    let committed = (200, json!({"committed": true, "message": "Save my notes"}));
    assert_eq!(world.post(&commit, json!({"message": " Save my notes \n"})).await, committed);
    assert_eq!(world.log(), ["Save my notes", "Begin"]);
    assert_eq!(world.ok(&status).await["hasPendingChanges"], false);
    assert_eq!(world.post(COMMIT, json!({"projectName": "demo", "message": "x"})).await, nothing);
}

#[tokio::test]
async fn documents_are_written_and_committed_while_commissions_merge() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(world.create(json!({})).await);
    }
    for id in &ids {
        world.dispatch(id).await;
        for n in 0..3 {
            let path = format!("notes/{id}-{n}.md");
            let body = json!({"projectName": "demo", "artifactPath": path, "content": format!("{id} {n}\n")});
            assert_eq!(world.post(WRITE, body).await.0, 200);
            write(&world.integration(), &format!(".lore/loose/{id}-{n}.md"), "loose\n");
            assert_eq!(world.post(COMMIT, json!({"projectName": "demo", "message": "Loose"})).await.0, 200);
        }
    }
    for id in &ids {
        world.until(id, "completed").await;
    }
    let merges = world.log().into_iter().filter(|subject| subject.starts_with("Commission: ")).count();
    assert_eq!(merges, 3);
    world.post(COMMIT, json!({"projectName": "demo", "message": "The rest"})).await;
    assert_eq!(git(&world.integration(), &["status", "--porcelain"]), "");
    for id in &ids {
        for n in 0..3 {
            let show =
                |dir: &str| git(&world.integration(), &["show", &format!("claude/main:.lore/{dir}/{id}-{n}.md")]);
            assert_eq!((show("notes"), show("loose")), (format!("{id} {n}"), "loose".to_owned()));
        }
    }
}

#[tokio::test]
async fn a_project_that_the_operator_did_not_permit_is_listed_and_not_touched() {
    let world = World::new().await;
    let listed = world.ok(PROJECTS).await;
    let [demo, other] = &listed["projects"].as_array().unwrap()[..] else { panic!("{listed}") };
    assert_eq!((&demo["name"], &demo["status"], &demo["group"]), (&json!("demo"), &json!("registered"), &json!("g")));
    assert!(demo.get("problem").is_none());
    assert!(other["problem"].as_str().unwrap().contains("run `guild project add"), "{other}");
    let body = json!({"projectName": "other", "artifactPath": "a.md", "content": "x", "message": "x"});
    for (status, error) in [
        world.get(&format!("{ARTIFACTS}?projectName=other")).await,
        world.get(&format!("{ARTIFACT}?projectName=other&path=specs/plan.md")).await,
        world.get(&format!("{STATUS}?projectName=other")).await,
        world.post(WRITE, body.clone()).await,
        world.post(COMMIT, body).await,
        world.post(CREATE, with(commission(), json!({"projectName": "other"}))).await,
    ] {
        assert_eq!(status, 409, "{error}");
        assert!(error["error"].as_str().unwrap().contains("guild.toml has no [[project]]"), "{error}");
    }
    assert!(!world.home().join("projects/other").exists());
    assert_eq!(git(&world.root.path().join("code/other"), &["branch", "--format=%(refname:short)"]), "main");
}

#[tokio::test]
async fn the_configuration_is_read_when_it_is_used() {
    let world = World::new().await;
    let settings = world.ok(SETTINGS).await;
    assert_eq!(settings["maxConcurrentCommissions"], 7);
    assert_eq!(settings["projects"][0], world.ok(&format!("{PROJECT}?name=demo")).await);
    let path = fs::canonicalize(world.root.path()).unwrap().join("code/demo");
    assert_eq!(settings["projects"][0], json!({"name": "demo", "path": path, "group": "g"}));
    let file = world.home().join("config.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        format!("{text}  - name: third\n    path: /nowhere\n").replace("maxConcurrentCommissions: 7\n", ""),
    )
    .unwrap();
    let reloaded = json!({"reloaded": true, "projectCount": 3, "newProjects": ["third"]});
    assert_eq!(world.ask("POST", RELOAD, "").await, (200, reloaded));
    let again = json!({"reloaded": true, "projectCount": 3, "newProjects": []});
    assert_eq!(world.post(RELOAD, json!({})).await, (200, again));
    let settings = world.ok(SETTINGS).await;
    // If the file has no value, the default is shown.
    assert_eq!(
        (&settings["maxConcurrentCommissions"], &settings["projects"][2]["name"]),
        (&json!(10), &json!("third"))
    );
    // While the file is broken, the previous values hold.
    fs::write(&file, "projects: {").unwrap();
    let (status, error) = world.ask("POST", RELOAD, "").await;
    assert_eq!(status, 409, "{error}");
    let error = error["error"].as_str().unwrap();
    assert!(error.starts_with("config.yaml cannot be read: ") && error.ends_with("stays in effect"), "{error}");
    assert_eq!(world.ok(SETTINGS).await["projects"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn what_is_wrong_with_the_configuration_is_named() {
    let world = World::new().await;
    let valid = world.ok(VALIDATE).await;
    assert_eq!((&valid["valid"], &valid["issues"], &valid["projectCount"]), (&json!(true), &json!([]), &json!(2)));
    let warning = valid["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("other: guild.toml has no [[project]]"), "{warning}");
    *world.workers.wrong.lock().unwrap() = Some("/etc/guild.toml:3: no key `port` of that kind".to_owned());
    let file = world.home().join("config.yaml");
    let missing = world.root.path().join("none");
    let plain = world.root.path().join("plain");
    fs::create_dir(&plain).unwrap();
    let projects = [("none", &missing), ("file", &file), ("plain", &plain)]
        .map(|(name, path)| json!({"name": name, "path": path}));
    fs::write(&file, json!({"projects": projects}).to_string()).unwrap();
    let invalid = world.ok(VALIDATE).await;
    let expected = [
        "guild.toml: /etc/guild.toml:3: no key `port` of that kind".to_owned(),
        format!("none: path '{}' does not exist", missing.display()),
        format!("file: '{}' is not a directory", file.display()),
        format!("plain: '{}' does not contain a .git/ directory", plain.display()),
    ];
    assert_eq!((&invalid["valid"], &invalid["issues"]), (&json!(false), &json!(expected)));
    fs::write(&file, "projects: {").unwrap();
    let broken = world.ok(VALIDATE).await;
    assert!(broken["issues"][1].as_str().unwrap().starts_with("Config error: config.yaml cannot be read"), "{broken}");
    assert!(broken.get("projectCount").is_none(), "{broken}");
}

#[tokio::test]
async fn projects_are_changed_by_their_operator_alone() {
    let world = World::new().await;
    for (path, body, command) in [
        (REGISTER, json!({"name": "x", "path": "/x"}), "`guild project add /x --name x`"),
        (DEREGISTER, json!({"name": "demo", "clean": true}), "`guild project remove demo`"),
        (DEREGISTER, json!({"projectName": "demo"}), "`guild project remove demo`"),
    ] {
        let (status, error) = world.post(path, body).await;
        assert_eq!(status, 409, "{path}");
        assert!(error["error"].as_str().unwrap().contains(command), "{path}: {error}");
    }
    assert_eq!(world.ok(PROJECTS).await["projects"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_project_is_grouped_in_config_yaml_which_keeps_all_else() {
    let world = World::new().await;
    let file = world.home().join("config.yaml");
    let kept = "# mine\nheartbeatIntervalMinutes: 30\nsystemModels:\n  heartbeat: haiku\nmodels:\n  - name: local\n    modelId: m\n    \
                baseUrl: http://localhost:1\n";
    let before = fs::read_to_string(&file).unwrap() + kept;
    fs::write(&file, &before).unwrap();
    let grouped = world.post(GROUP, json!({"projectName": "demo", "group": "books"})).await;
    assert_eq!(grouped, (200, json!({"updated": true, "name": "demo", "group": "books"})));
    assert_eq!(fs::read_to_string(&file).unwrap(), before.replacen("group: g", "group: books", 1));
    let groups = async || {
        let listed = world.ok(PROJECTS).await;
        [listed["projects"][0]["group"].clone(), listed["projects"][1]["group"].clone()]
    };
    assert_eq!(groups().await, [json!("books"), json!("g")]);
    assert_eq!(world.post(GROUP, json!({"name": "demo", "group": ""})).await.0, 200);
    assert_eq!(groups().await, [json!(null), json!("g")]);
    assert!(fs::read_to_string(&file).unwrap().ends_with(kept));
    for (body, status) in [
        (json!({"name": "nowhere", "group": "x"}), 404),
        (json!({"name": "demo", "group": "a\nprojects: []"}), 400),
        (json!({"name": "demo", "group": "x".repeat(201)}), 400),
    ] {
        assert_eq!(world.post(GROUP, body.clone()).await.0, status, "{body}");
    }
    // Each key that is kept but unused is named.
    let valid = world.ok(VALIDATE).await;
    let warnings: Vec<&str> = valid["warnings"].as_array().unwrap().iter().map(|said| said.as_str().unwrap()).collect();
    for key in ["`models`", "`systemModels`", "`heartbeatIntervalMinutes`"] {
        assert!(warnings.iter().any(|said| said.contains(key) && said.contains("not used")), "{key}: {warnings:?}");
    }
    assert_eq!(valid["valid"], true);
}

#[tokio::test]
async fn workers_models_and_health_have_the_fields_that_clients_read() {
    let world = World::new().await;
    let worker = json!({
        "name": "guild-researcher", "displayName": "Dalton", "displayTitle": "Guild Artificer",
        "description": "Looks things up", "portraitUrl": "/images/portraits/dalton.webp",
        "model": {"name": "opus", "isLocal": false}, "agent": "claude",
    });
    assert_eq!(world.ok(WORKERS).await, json!({"workers": [worker]}));
    let models = world.ok(MODELS).await;
    assert_eq!(models, json!({"builtin": [{"name": "opus", "agent": "claude"}], "local": []}));
    let health = world.ok(HEALTH).await;
    assert!(health["uptime"].is_u64(), "{health}");
    assert_eq!((&health["status"], &health["meetings"]), (&json!("ok"), &json!(0)));
    assert_eq!(health["commissions"], json!({"running": 0}));
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused() {
    let world = World::with(Limits { body_bytes: 1024, ..Limits::default() }).await;
    let (status, error) = world.post(CREATE, with(commission(), json!({"prompt": "x".repeat(2000)}))).await;
    assert_eq!((status, error), (413, json!({"error": "a request's body is at most 1024 bytes"})));
    world.create(json!({})).await;
}

#[tokio::test]
async fn the_socket_is_the_users_alone_and_goes_with_its_owner() {
    let world = World::new().await;
    let (home, socket) = (world.home(), world.home().join("guild-hall.sock"));
    assert_eq!((mode(&socket), mode(&home)), (0o600, 0o700));
    let pid = home.join("guild-hall.sock.pid");
    assert_eq!(fs::read_to_string(&pid).unwrap(), std::process::id().to_string());
    // A home has only one owner.
    let again = HallOptions {
        home: home.clone(),
        has_passed_socket: false,
        permits: Vec::new(),
        delegation: Delegation::default(),
        git: None,
        limits: Arc::default(),
        clock: Arc::new(SystemClock),
    };
    let refused = tokio::task::spawn_blocking(|| Hall::open(again).map(drop)).await.unwrap().unwrap_err();
    let expected = format!("another host, process {}, serves the hall in", std::process::id());
    assert!(refused.to_string().starts_with(&expected), "{refused}");
    assert_eq!(world.ok(HEALTH).await["status"], "ok");
    world.stop.cancel();
    world.served.await.unwrap();
    assert!(!socket.exists() && !pid.exists());
}

#[tokio::test]
async fn a_socket_that_a_crash_left_is_replaced_and_a_path_that_is_too_long_named() {
    let root = tempfile::tempdir().unwrap();
    let open = |home: PathBuf| {
        Hall::open(HallOptions {
            home,
            has_passed_socket: false,
            permits: Vec::new(),
            delegation: Delegation::default(),
            git: None,
            limits: Arc::default(),
            clock: Arc::new(SystemClock),
        })
        .unwrap()
    };
    let home = root.path().join("home");
    fs::create_dir(&home).unwrap();
    drop(std::os::unix::net::UnixListener::bind(home.join("guild-hall.sock")).unwrap());
    let hall = open(home.clone());
    let _socket = Socket::open(&hall, None).unwrap();
    UnixStream::connect(home.join("guild-hall.sock")).await.unwrap();
    let long = open(root.path().join("x".repeat(100)));
    let refused = Socket::open(&long, None).map(drop).unwrap_err().to_string();
    assert!(refused.contains("a socket's path has at most 107 bytes; choose a home with a shorter one"), "{refused}");
}
