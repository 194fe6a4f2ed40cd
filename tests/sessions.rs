//! Sessions with a model, through the whole host: the provider is a local server that speaks its protocol.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use guild_fakes::{Gate, OpenAi, Provider, Received, Reply, Script, Tokens};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::{
    host::{Home, Host, wait_for},
    web,
};

/// A provider, and a home whose sessions ask it.
pub(crate) struct Fixture {
    pub(crate) home: Home,
    provider: Provider,
    member: PathBuf,
    runtime: Runtime,
}

/// What every session here costs: a dollar for a million tokens in, two for a million out.
const PRICE: &str = "[[prices]]\nmodel = \"fake\"\ninput = 1.0\ncached_input = 0.1\ncache_write = 1.0\noutput = 2.0\n";

impl Fixture {
    pub(crate) fn new(script: impl Into<Script>) -> Self {
        Self::with("sessions = 8\n", "", script)
    }

    pub(crate) fn with(api: &str, more: &str, script: impl Into<Script>) -> Self {
        let runtime = Runtime::new().unwrap();
        let provider = runtime.block_on(OpenAi::start(script));
        let home = Home::new();
        let member = home.researcher("researcher");
        home.write("docs/moths.md", "# Moths\n\nThe luna moth lives for a week.\n");
        let url = provider.url();
        let config = format!(
            "agent = \"api\"\n{more}\n[api]\nprovider = \"openai\"\nbase_url = \"{url}/v1/\"\nmodel = \"fake\"\n{api}\n{PRICE}"
        );
        home.write("guild.toml", config);
        Self { home, provider, member, runtime }
    }

    pub(crate) fn serve(&self) -> Host {
        let (config, docs) = (self.home.path("guild.toml"), self.home.path("docs"));
        let options = ["--config", config.to_str().unwrap(), "--sources", docs.to_str().unwrap()];
        self.home.serve(&self.member, &options)
    }

    pub(crate) fn job_file(&self, id: &str, file: &str) -> String {
        fs::read_to_string(self.member.join("jobs").join(id).join(file)).unwrap()
    }

    fn transcript(&self, id: &str) -> Vec<Value> {
        self.job_file(id, "transcript.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn asked(&self, times: usize) -> Vec<Received> {
        self.runtime.block_on(self.provider.received(times))
    }
}

pub(crate) fn submit(text: &str) -> Reply {
    Reply::call("submit_result", json!({"output": text}))
}

fn decide(n: usize) -> Reply {
    Reply::call("record_decision", json!({"question": format!("q{n}"), "decision": "d", "reasoning": "r"}))
}

#[test]
fn a_model_researches_with_its_tools_and_every_token_is_accounted_for() {
    let tokens = Tokens { input: 1000, cached: 400, cache_write: 0, output: 100 };
    let fixture = Fixture::new(move |request: &Received| {
        let reply = match request.turn() {
            0 => Reply::text("I look.").and_call("Grep", json!({"pattern": "luna", "output_mode": "content"})),
            1 => decide(1).and_call("update_summary", json!({"summary": "found it"})),
            2 => submit("The luna moth lives for a week [docs/moths.md]."),
            _ => Reply::text("Done."),
        };
        reply.tokens(tokens)
    });
    let host = fixture.serve();
    let client = host.client();
    let id = client.start("How long does a luna moth live?");
    let status = client.ended(&id);
    assert_eq!((&status["status"], &status["summary"]), (&json!("completed"), &json!("found it")), "{status}");
    assert_eq!(client.result(&id).unwrap()["output"], "The luna moth lives for a week [docs/moths.md].");

    // Four turns of 600 fresh, 400 cached and 100 answered tokens.
    let used = &status["usage"];
    assert_eq!((&used["agent"], &used["models"]), (&json!("api"), &json!(["fake"])));
    assert_eq!((&used["turns"], &used["inputTokens"]), (&json!(4), &json!(4000)));
    assert_eq!((&used["cachedTokens"], &used["outputTokens"]), (&json!(1600), &json!(400)));
    let cost = 4.0 * (600.0 * 1.0 + 400.0 * 0.1 + 100.0 * 2.0) / 1e6;
    assert!((used["costUsd"].as_f64().unwrap() - cost).abs() < 1e-9, "{used}");
    assert!(used["wallSeconds"].as_f64().unwrap() > 0.0);
    let meta: Value = serde_json::from_str(&fixture.job_file(&id, "meta.json")).unwrap();
    assert_eq!(&meta["usage"], used);

    // The model saw what the transcript says.
    let requests = fixture.asked(4);
    let names = requests[0].tool_names();
    for tool in ["Read", "Grep", "Glob", "submit_result", "store_memory"] {
        assert!(names.contains(tool), "{tool} is missing: {names:?}");
    }
    assert!(names.is_disjoint(&["Write", "Edit", "Bash"].map(str::to_owned).into()));
    let entries = fixture.transcript(&id);
    let found = entries.iter().find(|entry| entry["type"] == "result").unwrap();
    assert!(found["output"].as_str().unwrap().contains("docs/moths.md:3:The luna moth lives for a week."), "{found}");
    let seen = requests[1].body["messages"].as_array().unwrap().last().unwrap();
    assert_eq!((&seen["role"], &seen["content"]), (&json!("tool"), &found["output"]));
    let kinds: Vec<&str> = entries.iter().map(|entry| entry["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[..4], ["session", "turn", "call", "result"]);
    assert_eq!(kinds.last(), Some(&"end"));

    let summed = fixture.home.guild().args(["usage", "--json", "--members"]).arg(fixture.home.path("members")).output();
    let summed = String::from_utf8(summed.unwrap().stdout).unwrap();
    assert!(summed.contains("\"turns\": 4") || summed.contains("\"turns\":4"), "{summed}");
}

#[test]
fn a_second_host_of_the_same_directory_takes_it_over_when_the_first_is_killed() {
    let gate = Gate::closed();
    let asked = gate.clone();
    let fixture = Fixture::new(move |request: &Received| match request.turn() {
        0 if request.number == 0 => submit("never").behind(&asked),
        0 => submit("by the second host"),
        _ => Reply::text("Done."),
    });
    let (config, docs) = (fixture.home.path("guild.toml"), fixture.home.path("docs"));
    let options = ["--config", config.to_str().unwrap(), "--sources", docs.to_str().unwrap()];
    let first = fixture.home.serve_roster(&options);
    let second = fixture.home.serve_roster(&options);
    second.prints(&format!("is already served by process {}", first.pid()));
    let id = first.at("researcher").start("How long does a luna moth live?");
    fixture.asked(1);
    assert!(second.at("researcher").status(&id).is_err());
    first.kill();
    let client = second.at("researcher");
    wait_for("the second host to serve the member", || client.status(&id).ok());
    assert_eq!(client.ended(&id)["status"], "completed");
    assert_eq!(client.result(&id).unwrap()["output"], "by the second host");
}

#[test]
fn killed_in_the_middle_of_ten_turns_a_job_is_resumed_and_records_each_decision_once() {
    let gates: Vec<Gate> = (0..3).map(|_| Gate::closed()).collect();
    let script_gates = gates.clone();
    // Three times the host is killed while it waits for an answer: at its third, sixth and ninth turn.
    let fixture = Fixture::new(move |request: &Received| {
        let n = request.turn();
        let reply = if n < 10 { decide(n) } else { submit("ten decisions") };
        match (n, request.number) {
            (2, 2) => reply.behind(&script_gates[0]),
            (5, 6) => reply.behind(&script_gates[1]),
            (8, 10) => reply.behind(&script_gates[2]),
            _ => reply,
        }
    });
    let mut host = fixture.serve();
    let id = host.client().start("Decide ten times.");
    for requests in [3, 7, 11] {
        fixture.asked(requests);
        host.kill();
        host = fixture.serve();
    }
    let status = host.client().ended(&id);
    assert_eq!(status["status"], "completed", "{status}");
    let decisions = status["decisions"].as_array().unwrap();
    let questions: Vec<&str> = decisions.iter().map(|decision| decision["question"].as_str().unwrap()).collect();
    assert_eq!(questions, ["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9"]);
    assert_eq!(host.client().result(&id).unwrap()["output"], "ten decisions");
    let meta: Value = serde_json::from_str(&fixture.job_file(&id, "meta.json")).unwrap();
    assert_eq!(meta["resumes"], 3);
    let resumed = fixture.transcript(&id).iter().filter(|entry| entry["type"] == "resumed").count();
    assert_eq!(resumed, 3);
}

#[test]
fn a_runtime_that_cannot_start_refuses_the_dispatch_and_says_what_to_set() {
    let fixture = Fixture::with("key_env = \"A_KEY_THAT_IS_NOT_SET\"\n", "", vec![]);
    let host = fixture.serve();
    let refused = host.client().dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert_eq!(refused.code, -32602);
    assert!(refused.message.contains("A_KEY_THAT_IS_NOT_SET"), "{}", refused.message);

    drop(host);
    fixture.home.write("guild.toml", "agent = \"claude\"\n[claude]\ncommand = \"no-such-claude\"\n");
    let refused = fixture.serve().client().dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert!(refused.message.contains("no-such-claude"), "{}", refused.message);
    assert!(fs::read_dir(fixture.member.join("jobs")).unwrap().next().is_none());
}

#[test]
fn a_model_whose_price_is_unknown_is_refused_or_bounded_by_tokens() {
    let model = json!({"description": "d", "task": "t", "config": {"model": "mystery-1"}});
    let fixture = Fixture::new(vec![]);
    let refused = fixture.serve().client().dispatch(model.clone()).unwrap_err();
    assert!(refused.message.contains("mystery-1") && refused.message.contains("prices"), "{}", refused.message);

    let fixture = Fixture::with("unknown_cost_tokens = 300\n", "", |request: &Received| decide(request.turn()));
    let host = fixture.serve();
    let id = host.client().dispatch(model).unwrap();
    let status = host.client().ended(&id);
    assert_eq!((&status["status"], &status["usage"]["costUsd"]), (&json!("failed"), &Value::Null));
    assert!(status["error"].as_str().unwrap().contains("unknown_cost_tokens"), "{status}");
    assert_eq!(status["usage"]["turns"], 3);
}

#[test]
fn a_caller_chooses_the_agent_only_where_the_operator_lets_callers() {
    let fixture = Fixture::new(vec![Reply::text("from the model")]);
    let asks = |agent: &str| json!({"description": "d", "task": "How long does a luna moth live?", "agent": agent});
    let host = fixture.serve();
    let refused = host.client().dispatch(asks("extractive")).unwrap_err();
    assert!(refused.message.contains("dispatch_agents"), "{}", refused.message);
    let refused = host.client().dispatch(asks("oracle")).unwrap_err();
    assert!(refused.message.contains("oracle"), "{}", refused.message);
    assert_eq!(host.client().ended(&host.client().dispatch(asks("api")).unwrap())["usage"]["agent"], "api");
    drop(host);

    let fixture = Fixture::with("", "dispatch_agents = [\"extractive\"]", vec![Reply::text("from the model")]);
    let host = fixture.serve();
    let ended = host.client().ended(&host.client().dispatch(asks("extractive")).unwrap());
    assert_eq!((&ended["usage"]["agent"], &ended["usage"]["costUsd"]), (&json!("extractive"), &json!(0.0)));
    assert_eq!(fixture.provider.count(), 0);
}

#[test]
fn sessions_over_the_limit_wait_and_the_status_says_so() {
    let gate = Gate::closed();
    let behind = gate.clone();
    let fixture = Fixture::with("sessions = 1\n", "", move |_: &Received| Reply::text("done").behind(&behind));
    let host = fixture.serve();
    let client = host.client();
    let first = client.start("first");
    fixture.asked(1);
    let (second, third) = (client.start("second"), client.start("third"));
    for waiting in [&second, &third] {
        let status = wait_for("the job to wait for its place", || {
            let status = client.status(waiting).unwrap();
            (status["usage"]["queued"] == true).then_some(status)
        });
        assert_eq!(status["status"], "running");
    }
    assert_eq!(client.status(&first).unwrap()["usage"]["queued"], Value::Null);
    // Who waits can be cancelled, and never asks the provider.
    assert_eq!(client.cancel(&second).unwrap()["status"], "cancelled");
    gate.open();
    assert_eq!(client.ended(&first)["status"], "completed");
    assert_eq!(client.ended(&third)["status"], "completed");
    assert_eq!(fixture.provider.count(), 2);
}

#[test]
fn a_cancel_reaches_a_session_that_waits_for_the_provider() {
    let gate = Gate::closed();
    let behind = gate.clone();
    let fixture = Fixture::new(move |_: &Received| submit("late").behind(&behind));
    let host = fixture.serve();
    let id = host.client().start("t");
    fixture.asked(1);
    assert_eq!(host.client().cancel(&id).unwrap()["status"], "cancelled");
    gate.open();
    assert_eq!(host.client().status(&id).unwrap()["status"], "cancelled");
    assert!(host.client().result(&id).is_err());
}

#[test]
fn a_budget_ends_a_session_and_a_submitted_result_remains() {
    let tokens = Tokens { input: 100_000, cached: 0, cache_write: 0, output: 0 };
    let config = json!({"maxBudgetUsd": 0.25});
    let task = |config: &Value| json!({"description": "d", "task": "t", "config": config});
    let fixture = Fixture::new(move |request: &Received| decide(request.turn()).tokens(tokens));
    let host = fixture.serve();
    let ended = host.client().ended(&host.client().dispatch(task(&config)).unwrap());
    assert_eq!((&ended["status"], &ended["usage"]["turns"]), (&json!("failed"), &json!(3)));
    assert!(ended["error"].as_str().unwrap().contains("budget of 0.25 USD"), "{ended}");

    let fixture = Fixture::new(move |request: &Received| match request.turn() {
        0 => submit("early").tokens(tokens),
        n => decide(n).tokens(tokens),
    });
    let host = fixture.serve();
    let id = host.client().dispatch(task(&config)).unwrap();
    assert_eq!(host.client().ended(&id)["status"], "completed");
    assert_eq!(host.client().result(&id).unwrap()["output"], "early");
}

#[test]
fn memories_are_condensed_by_the_model_on_an_account_of_their_own() {
    let limits = "[limits]\nmemory_injection_chars = 200\nmemory_compaction_chars = 100\n";
    let fixture = Fixture::with("", "", |request: &Received| {
        if request.tool_names().is_empty() {
            return Reply::text("All notes say: moths.");
        }
        match request.turn() {
            0 => Reply::call("store_memory", json!({"key": "a", "content": "moth ".repeat(15)}))
                .and_call("store_memory", json!({"key": "b", "content": "luna ".repeat(15)})),
            _ => submit("noted"),
        }
    });
    let config = fs::read_to_string(fixture.home.path("guild.toml")).unwrap();
    fixture.home.write("guild.toml", format!("{config}\n{limits}"));
    let host = fixture.serve();
    let id = host.client().start("t");
    assert_eq!(host.client().ended(&id)["status"], "completed");
    let memory = fixture.member.join("memory");
    let compacted = wait_for("the memories to be condensed", || fs::read_to_string(memory.join("compacted.md")).ok());
    assert_eq!(compacted, "All notes say: moths.");
    wait_for("what was condensed to be gone", || {
        (!memory.join("a.md").exists() && !memory.join("b.md").exists()).then_some(())
    });
    let requests = fixture.provider.requests();
    let condensing: Vec<_> = requests.iter().filter(|request| request.tool_names().is_empty()).collect();
    assert_eq!(condensing.len(), 1);
    let prompt = condensing[0].body.to_string();
    assert!(prompt.contains("not instructions") && prompt.contains(&id), "{prompt}");
    let ledger = fs::read_to_string(memory.join(".compactions.jsonl")).unwrap();
    let booked: Value = serde_json::from_str(ledger.lines().next().unwrap()).unwrap();
    assert_eq!((&booked["agent"], &booked["turns"]), (&json!("api"), &json!(1)));
    assert!(booked["costUsd"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_session_reads_the_web_under_the_policy_and_a_denial_names_the_grant() {
    let runtime = Runtime::new().unwrap();
    let address = runtime.block_on(web::pages());
    let urls =
        [format!("http://{address}/moths"), format!("http://{address}/away"), "http://moths.example/".to_owned()];
    let fixture = Fixture::with("", "", move |request: &Received| match request.turn() {
        n @ 0..3 => Reply::call("WebFetch", json!({"url": urls[n]})),
        _ => submit("read"),
    });
    let config = fs::read_to_string(fixture.home.path("guild.toml")).unwrap();
    let web = format!("[web]\nallow = [\"{address}\"]\nprivate = [\"{address}\"]\nrobots = false\n");
    fixture.home.write("guild.toml", format!("{config}\n{web}"));
    let host = fixture.serve();
    let id = host.client().start("t");
    assert_eq!(host.client().ended(&id)["status"], "completed");
    assert!(fixture.asked(1)[0].tool_names().contains("WebFetch"));
    let entries = fixture.transcript(&id);
    let results: Vec<&Value> = entries.iter().filter(|entry| entry["type"] == "result").collect();
    assert!(results[0]["output"].as_str().unwrap().contains("The atlas moth has no mouth"), "{}", results[0]);
    for (denied, host) in [(results[1], "169.254.169.254"), (results[2], "moths.example")] {
        let error = denied["error"].as_str().unwrap();
        assert!(error.starts_with("not granted") && error.contains(host) && error.contains("[web]"), "{error}");
    }
    assert!(fixture.job_file(&id, "log.txt").contains("moths.example"));

    // Without the section, the tool is not there; a search is one of the granted sources.
    drop(host);
    fixture.home.write("guild.toml", config);
    let host = fixture.serve();
    let id = host.client().start("t");
    host.client().ended(&id);
    let names = fixture.provider.requests().last().unwrap().tool_names();
    assert!(!names.contains("WebFetch") && names.contains("WebSearch"), "{names:?}");
}

/// The processes whose command line has this in it.
fn processes_with(text: &Path) -> Vec<String> {
    let found = Command::new("pgrep").arg("-f").arg(text).output().unwrap();
    String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn no_key_is_in_anything_that_a_job_leaves_behind() {
    let key = "sk-sentinel-7f3a";
    let fixture = Fixture::with("key_file = \"key\"\n", "", vec![Reply::status(401).message(format!("bad key {key}"))]);
    fixture.home.write("key", format!("{key}\n"));
    let host = fixture.serve();
    let id = host.client().start("t");
    let status = host.client().ended(&id);
    assert_eq!(status["status"], "failed");
    assert_eq!(fixture.asked(1)[0].header("authorization"), format!("Bearer {key}"));
    let job = fixture.member.join("jobs").join(&id);
    let mut texts = vec![status.to_string(), host.output()];
    texts.extend(fs::read_dir(job).unwrap().filter_map(|file| fs::read_to_string(file.unwrap().path()).ok()));
    assert!(texts.iter().all(|text| !text.contains(key)), "{texts:?}");
    assert!(processes_with(Path::new(key)).is_empty());
}

/// Three turns, of ten cents each.
#[test]
fn the_operator_s_limits_bound_the_turns_the_dollars_and_the_time_of_a_job() {
    let ended = |limit: &str, gate: &Gate| {
        let gate = gate.clone();
        let script = move |request: &Received| {
            let tokens = Tokens { input: 100_000, cached: 0, cache_write: 0, output: 0 };
            let reply = if request.turn() < 2 { decide(request.turn()) } else { Reply::text("Done.").behind(&gate) };
            reply.tokens(tokens)
        };
        let fixture = Fixture::with("sessions = 8\n", &format!("[limits]\n{limit}\n"), script);
        let host = fixture.serve();
        let status = host.client().ended(&host.client().start("t"));
        status["error"].as_str().unwrap_or("completed").to_owned()
    };
    let (open, closed) = (Gate::closed(), Gate::closed());
    open.open();
    assert_eq!(ended("session_turns = 3", &open), "completed");
    assert_eq!(ended("session_turns = 2", &open), "the session reached its limit of 2 turns");
    assert_eq!(ended("session_budget_usd = 0.21", &open), "completed");
    assert_eq!(ended("session_budget_usd = 0.2", &open), "the session reached its budget of 0.2 USD");
    assert_eq!(ended("session_seconds = 30", &open), "completed");
    assert_eq!(ended("session_seconds = 1", &closed), "the session reached its deadline of 1 s");
}
