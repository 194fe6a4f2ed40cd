//! Bodies of requests, answered by a member with jobs.

use std::{
    fs,
    path::Path,
    sync::{Arc, OnceLock},
};

use guild_auth::Caller;
use guild_config::Config;
use guild_contract::{Limits, rpc::code};
use guild_roster::{Host, HostOptions, Target};
use guild_server::{
    mcp::Server,
    rpc::{self, Answer, RequestContext, Target as Asked},
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::scratch::{Scratch, knows_the_secret};

const CODES: [i32; 6] = [
    code::PARSE_ERROR,
    code::INVALID_REQUEST,
    code::METHOD_NOT_FOUND,
    code::INVALID_PARAMS,
    code::INTERNAL_ERROR,
    code::BUSY,
];
/// The jobs that are there, and what they are.
const JOBS: [&str; 3] = ["completed", "failed", "cancelled"];

struct Fixture {
    scratch: Scratch,
    runtime: Runtime,
    host: Arc<Host>,
}

fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| {
        let scratch = Scratch::new();
        let manifest = json!({
            "name": "ann", "displayName": "Ann", "description": "d", "version": "1", "transport": "http",
            "mcp": {"command": "guild", "args": []}, "capabilities": ["worker"],
            // There is no such file: a dispatch goes as far as its component.
            "component": {"file": "none.wasm", "world": "worker", "configSchema": {"properties": {"n": {"type": "integer"}}}}
        });
        fs::write(scratch.inside().join("guild-member.json"), manifest.to_string()).unwrap();
        plant(&scratch.inside());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let options = HostOptions {
            config: Config::default(),
            target: Target::Member(scratch.inside()),
            sources: Vec::new(),
            hall: None,
            agent: None,
            has_passed_socket: false,
            fakes: None,
        };
        let host = runtime.block_on(Host::open(options, None)).unwrap();
        Fixture { scratch, runtime, host }
    })
}

/// Puts jobs there that a run removed or changed.
fn plant(member: &Path) {
    for status in JOBS {
        let job = member.join("jobs").join(status);
        let meta = json!({"jobId": status, "status": status, "description": status,
            "startedAt": "2026-01-01T00:00:00Z", "completedAt": "2026-01-01T00:00:01Z"});
        let meta = meta.to_string();
        if fs::read_to_string(job.join("meta.json")).is_ok_and(|there| there == meta) {
            continue;
        }
        fs::create_dir_all(&job).unwrap();
        fs::write(job.join("result.md"), "result").unwrap();
        fs::write(job.join("meta.json"), meta).unwrap();
    }
}

/// A body.
pub fn run(data: &[u8]) {
    if knows_the_secret(data) {
        return;
    }
    let Fixture { scratch, runtime, host } = fixture();
    let member = host.single().expect("it was opened for one");
    let limits = Limits { batch: 8, json_depth: 32, ..Limits::default() };
    let caller = Caller::of_this_machine(host.ingress().clone());
    let servers = [Server::Member(member.clone()), Server::Dispatch(member), Server::Roster(host.roster().now())];
    for target in servers.iter().map(Asked::Server).chain([Asked::Unavailable("it is not in service")]) {
        let context = RequestContext { caller: &caller, member: "ann", target };
        match runtime.block_on(rpc::answer(context, &limits, data)) {
            Answer::Json(answer) => {
                let text = std::str::from_utf8(&answer).expect("an answer is UTF-8");
                scratch.check_text(text);
                check(data, text, &limits);
            }
            Answer::Nothing => {
                let asked: Value = serde_json::from_slice(data).expect("a body that is no JSON has no answer");
                let requests = asked.as_array().cloned().unwrap_or_else(|| vec![asked]);
                assert!(requests.iter().all(|request| request.get("id").is_none()), "a request has no answer");
            }
            Answer::Refused(why) => panic!("who is on this machine may do everything: {why:?}"),
        }
    }
    plant(&scratch.inside());
}

/// An answer is one response, or one for each request of the batch.
fn check(body: &[u8], answer: &str, limits: &Limits) {
    let answer: Value = match serde_json::from_str(answer) {
        Ok(answer) => answer,
        // An id goes back byte for byte: a half of a surrogate pair, a number beyond all bounds.
        Err(_) if serde_json::from_slice::<Value>(body).is_err() => return,
        Err(error) => panic!("{error}: {answer}"),
    };
    match &answer {
        Value::Array(responses) => {
            let asked: Vec<Value> = serde_json::from_slice(body).expect("who is answered with a batch sent one");
            assert!((1..=limits.batch as usize).contains(&responses.len()) && responses.len() <= asked.len());
            let answered = asked.iter().filter(|request| !request.is_object() || request.get("id").is_some());
            // What is no request has an answer too, with the id null.
            assert!(responses.len() >= answered.count());
            responses.iter().for_each(response);
        }
        one => {
            response(one);
            if let Ok(Value::Object(asked)) = serde_json::from_slice(body)
                && let Some(id @ (Value::String(_) | Value::Number(_))) = asked.get("id")
                && one["error"]["code"] != json!(code::INVALID_REQUEST)
                && one["error"]["code"] != json!(code::PARSE_ERROR)
            {
                assert_eq!(&one["id"], id, "the answer is somebody else's");
            }
        }
    }
}

fn response(response: &Value) {
    let response = response.as_object().expect("a response is an object");
    assert_eq!(response["jsonrpc"], json!("2.0"));
    assert!(matches!(response["id"], Value::Null | Value::String(_) | Value::Number(_)));
    assert_eq!(response.len(), 3, "{response:?}");
    if let Some(error) = response.get("error") {
        let code = error["code"].as_i64().and_then(|code| i32::try_from(code).ok());
        assert!(code.is_some_and(|code| CODES.contains(&code)), "{error}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{error}");
    } else {
        assert!(response.contains_key("result"));
    }
}
