//! Sessions of Claude Code, through the whole host: a fake program speaks the CLI's protocol, and in one test it is
//! the real CLI.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use guild_fakes::{Anthropic, Reply};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    support::host::{Home, Host, wait_for},
    traces::Collector,
};

/// What the provider's key is here. Nothing that a job leaves behind may have it.
const KEY: &str = "sk-sentinel-4b1d";
/// The cost that the fake CLI reports for a session.
const COST: f64 = 0.25;

/// A home whose sessions are those of a program that plays a script.
struct Fixture {
    home: Home,
    member: PathBuf,
}

impl Fixture {
    fn new(claude: &str, steps: Value) -> Self {
        let mut home = Home::new();
        home.set("ANTHROPIC_API_KEY", KEY);
        let member = home.researcher("researcher");
        let fixture = Self { home, member };
        fixture.configure(claude);
        fixture.play(json!({"steps": steps}));
        let (fake, script) = (guild_fakes::fake_claude(), fixture.home.path("script.json"));
        // Written by another process: a file that this one has open for writing, and with it any child that another test
        // is just starting, cannot be executed.
        let exec = format!("exec '{}' '{}' \"$@\"", fake.display(), script.display());
        let write = r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod 755 "$1""#;
        let mut shell = Command::new("/bin/sh");
        let written = shell.args(["-c", write, "sh"]).arg(fixture.home.path("claude")).arg(exec).status().unwrap();
        assert!(written.success());
        fixture
    }

    /// `[claude]`, with these lines.
    fn configure(&self, claude: &str) {
        self.home.write("guild.toml", format!("agent = \"claude\"\n[claude]\ncommand = \"./claude\"\n{claude}"));
    }

    /// What the program is to do, from its next start.
    fn play(&self, mut script: Value) {
        script["log"] = json!(self.home.path("log.jsonl"));
        self.home.write("script.json", script.to_string());
    }

    fn serve(&self) -> Host {
        self.home.serve(&self.member, &["--config", self.home.path("guild.toml").to_str().unwrap()])
    }

    /// What the program wrote down about `name`, once it has.
    fn logged(&self, name: &str) -> Value {
        wait_for(name, || {
            let text = fs::read_to_string(self.home.path("log.jsonl")).unwrap_or_default();
            let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.filter_map(|line| line.get(name).cloned()).next_back()
        })
    }

    fn job(&self, id: &str) -> PathBuf {
        self.member.join("jobs").join(id)
    }

    fn meta(&self, id: &str) -> Value {
        serde_json::from_slice(&fs::read(self.job(id).join("meta.json")).unwrap()).unwrap()
    }

    /// Where sessions have their scratch directories.
    fn scratch(&self) -> PathBuf {
        self.home.path(".local/state/guild/claude")
    }
}

fn lives(pid: &Value) -> bool {
    guild_session::process::start_time(pid.as_u64().unwrap().try_into().unwrap()).is_some()
}

fn gone(pid: &Value) {
    wait_for("the process to be gone", || (!lives(pid)).then_some(()));
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

fn answer(id: &str, calls: Value) -> Value {
    json!({"do": "answer", "id": id, "text": "I work.", "calls": calls})
}

fn decide(id: &str, question: &str) -> Value {
    let input = json!({"question": question, "decision": "d", "reasoning": "r"});
    json!({"id": id, "name": "record_decision", "input": input})
}

fn submit(id: &str, text: &str) -> Value {
    json!({"id": id, "name": "submit_result", "input": {"output": text}})
}

/// A cost that was never said to be nothing: it is what the CLI said, or it is unknown.
fn reported_or_unknown(usage: &Value) -> bool {
    usage.as_object().unwrap().contains_key("costUsd")
        && (usage["costUsd"].is_null() || usage["costUsd"].as_f64() == Some(COST))
}

#[test]
fn a_job_of_a_member_is_done_by_the_cli_and_accounted_for() {
    let fixture = Fixture::new(
        "",
        json!([
            {"do": "answer", "id": "msg_1", "text": "I look.", "tokens": {"input": 100, "cached": 40, "output": 20},
                "calls": [{"id": "toolu_1", "name": "update_summary", "input": {"summary": "found it"}}, decide("toolu_2", "which?")]},
            answer("msg_2", json!([submit("toolu_3", "A week [docs/moths.md].")])),
            {"do": "result"},
        ]),
    );
    let host = fixture.serve();
    let client = host.client();
    let id = client.start("How long does a luna moth live?");
    let status = client.ended(&id);
    assert_eq!((&status["status"], &status["summary"]), (&json!("completed"), &json!("found it")), "{status}");
    assert_eq!(status["decisions"][0]["question"], "which?");
    assert_eq!(client.result(&id).unwrap()["output"], "A week [docs/moths.md].");
    let used = &status["usage"];
    assert_eq!((&used["agent"], &used["models"]), (&json!("claude"), &json!(["fake-claude-1"])));
    assert_eq!((&used["turns"], &used["inputTokens"], &used["outputTokens"]), (&json!(2), &json!(240), &json!(30)));
    assert_eq!(used["costUsd"].as_f64(), Some(COST));
    assert_eq!(&fixture.meta(&id)["usage"], used);
    let started = fixture.logged("started");
    assert_eq!(started["environment"]["ANTHROPIC_API_KEY"], KEY);
    gone(&started["pid"]);
    assert!(is_empty(&fixture.scratch()));
}

#[test]
fn the_turns_of_the_cli_are_spans_of_the_jobs_trace() {
    let collector = Collector::start();
    let mut fixture = Fixture::new(
        "",
        json!([
            {"do": "answer", "id": "msg_1", "text": "I look.", "tokens": {"input": 100, "cached": 40, "output": 20},
                "calls": [decide("toolu_1", "which?")]},
            answer("msg_2", json!([submit("toolu_2", "A week.")])),
            {"do": "result"},
        ]),
    );
    fixture.home.set("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url);
    fixture.home.set("OTEL_BSP_SCHEDULE_DELAY", "50");
    let host = fixture.serve();
    let id = host.client().start("How long does a luna moth live?");
    assert_eq!(host.client().ended(&id)["status"], "completed");
    let turns = collector.named("chat fake-claude-1", "end-job", "gen_ai.usage.output_tokens");
    let session = "invoke_agent researcher".to_owned();
    assert_eq!(turns.len(), 2, "{turns:?}");
    assert!(turns.contains(&(session.clone(), json!(20))) && turns.iter().all(|turn| turn.0 == session), "{turns:?}");
}

#[test]
fn a_cancel_ends_the_cli_and_its_cost_is_reported_or_unknown() {
    for deaf in [false, true] {
        let fixture = Fixture::new("", json!([]));
        let steps = json!([answer("msg_1", json!([decide("toolu_1", "q")])), {"do": "start"}, {"do": "hang"}]);
        fixture.play(json!({"steps": steps, "deaf": deaf}));
        let host = fixture.serve();
        let client = host.client();
        let id = client.start("t");
        let grandchild = fixture.logged("grandchild");
        assert_eq!(client.cancel(&id).unwrap()["status"], "cancelled");
        gone(&fixture.logged("started")["pid"]);
        gone(&grandchild);
        let status = client.status(&id).unwrap();
        assert_eq!((&status["status"], &status["usage"]["turns"]), (&json!("cancelled"), &json!(1)), "{status}");
        let meta = fixture.meta(&id);
        assert!(reported_or_unknown(&status["usage"]) && reported_or_unknown(&meta["usage"]), "{status} {meta}");
        wait_for("the scratch directory to be gone", || is_empty(&fixture.scratch()).then_some(()));
    }
}

#[test]
fn a_deadline_fails_the_job_with_what_it_cost_or_with_an_unknown_cost() {
    for (deaf, cost) in [(false, json!(COST)), (true, Value::Null)] {
        let fixture = Fixture::new("", json!([]));
        let steps = json!([answer("msg_1", json!([decide("toolu_1", "q")])), {"do": "hang"}]);
        fixture.play(json!({"steps": steps, "deaf": deaf}));
        let host = fixture.serve();
        let client = host.client();
        let task = json!({"description": "d", "task": "t", "config": {"deadlineSeconds": 1}});
        let id = client.dispatch(task).unwrap();
        let status = client.ended(&id);
        assert_eq!(status["status"], "failed", "{status}");
        assert!(status["error"].as_str().unwrap().contains("deadline of 1 s"), "{status}");
        assert_eq!((&status["usage"]["costUsd"], &status["usage"]["turns"]), (&cost, &json!(1)), "{status}");
        assert_eq!(fixture.meta(&id)["usage"], status["usage"]);
        gone(&fixture.logged("started")["pid"]);
    }
}

#[test]
fn a_host_that_is_killed_leaves_no_process_and_the_job_says_how_it_could_be_resumed() {
    let work = json!([answer("msg_1", json!([decide("toolu_1", "q1")])), {"do": "start"}, {"do": "hang"}]);
    let fixture = Fixture::new("", work.clone());
    let host = fixture.serve();
    let id = host.client().start("t");
    let (started, grandchild) = (fixture.logged("started"), fixture.logged("grandchild"));
    host.kill();
    gone(&started["pid"]);
    gone(&grandchild);
    let host = fixture.serve();
    wait_for("the scratch directory to be gone", || is_empty(&fixture.scratch()).then_some(()));
    let status = host.client().ended(&id);
    assert_eq!(status["status"], "failed", "{status}");
    assert!(status["error"].as_str().unwrap().contains("resume = true"), "{status}");
    assert!(status["usage"]["costUsd"].is_null() && status["usage"]["turns"] == 1, "{status}");
    drop(host);

    // As the error said.
    fixture.configure("resume = true\n");
    fs::remove_file(fixture.home.path("log.jsonl")).unwrap();
    let host = fixture.serve();
    let id = host.client().start("t");
    let grandchild = fixture.logged("grandchild");
    host.kill();
    let steps =
        json!([answer("msg_2", json!([decide("toolu_2", "q2"), submit("toolu_3", "after all")])), {"do": "result"}]);
    fixture.play(json!({"steps": steps}));
    let host = fixture.serve();
    let status = host.client().ended(&id);
    assert_eq!(status["status"], "completed", "{status}");
    assert_eq!(host.client().result(&id).unwrap()["output"], "after all");
    let questions: Vec<&Value> =
        status["decisions"].as_array().unwrap().iter().map(|decision| &decision["question"]).collect();
    assert_eq!(questions, ["q1", "q2"]);
    let flags = fixture.logged("started")["flags"].to_string();
    assert!(flags.contains("--resume=") && !flags.contains("--no-session-persistence"), "{flags}");
    let used = &status["usage"];
    assert_eq!((&used["turns"], &used["costUsd"]), (&json!(2), &Value::Null), "{used}");
    assert_eq!(used["knownCostUsd"].as_f64(), Some(COST));
    gone(&grandchild);
}

#[test]
fn nothing_that_the_cli_starts_outlives_its_session_or_its_host() {
    // It leaves its parents, its session and its environment behind, and writes its id down.
    let runaway = |fixture: &Fixture| {
        let file = fixture.home.path("runaway");
        let sleep = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 120", file.display());
        let runaway = format!("(setsid env -i /bin/sh -c '{sleep}' </dev/null >/dev/null 2>&1 &)");
        let play =
            fs::read_to_string(fixture.home.path("claude")).unwrap().replacen("exec", &format!("{runaway}\nexec"), 1);
        fixture.home.write("claude.new", play);
        let swap = "chmod 755 claude.new && mv claude.new claude && until [ -x claude ]; do :; done";
        let swapped = Command::new("/bin/sh").args(["-c", swap]).current_dir(fixture.home.path(".")).status().unwrap();
        assert!(swapped.success());
        file
    };
    let pid = |file: &Path| -> Value {
        let text = wait_for("the runaway process", || fs::read_to_string(file).ok());
        json!(text.trim().parse::<u32>().unwrap())
    };
    let fixture = Fixture::new("", json!([answer("msg_1", json!([submit("toolu_1", "done")])), {"do": "result"}]));
    let file = runaway(&fixture);
    let host = fixture.serve();
    let id = host.client().start("t");
    assert_eq!(host.client().ended(&id)["status"], "completed");
    gone(&pid(&file));

    fs::remove_file(&file).unwrap();
    fixture.play(json!({"steps": [{"do": "start"}, {"do": "hang"}]}));
    host.client().start("t");
    fixture.logged("grandchild");
    let runaway = pid(&file);
    assert!(lives(&runaway));
    host.kill();
    gone(&runaway);
}

#[test]
fn no_key_is_in_anything_that_a_session_of_the_cli_leaves_behind() {
    let refused = format!("401: the key {KEY} is refused");
    let retry =
        json!({"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 2, "error": refused.clone()});
    let failed = json!({"do": "result", "fields": {"is_error": true, "result": refused}});
    for end in [json!([failed]), json!([{"do": "stderr", "text": refused}, {"do": "exit", "code": 1}])] {
        let steps: Vec<Value> =
            [json!({"do": "message", "value": retry})].into_iter().chain(end.as_array().unwrap().clone()).collect();
        let fixture = Fixture::new("", json!(steps));
        let host = fixture.serve();
        let id = host.client().start("t");
        let status = host.client().ended(&id);
        assert!(status["error"].as_str().unwrap().contains("the key *** is refused"), "{status}");
        no_key_in(&fixture.job(&id), &[status.to_string(), host.output()]);
    }
}

fn no_key_in(job: &Path, texts: &[String]) {
    let files = fs::read_dir(job).unwrap().filter_map(|file| fs::read_to_string(file.unwrap().path()).ok());
    let all: Vec<String> = files.chain(texts.iter().cloned()).collect();
    assert!(all.iter().all(|text| !text.contains(KEY)), "{all:?}");
}

/// Names the real CLI's executable.
const CLI: &str = "GUILD_CLAUDE_CLI";

#[test]
#[ignore = "needs the real CLI: cargo xtask test --all"]
#[allow(clippy::print_stdout, reason = "it shows what the CLI did, to whoever looks at a new version of it")]
fn the_real_cli_does_a_job_of_the_researcher() {
    let cli = std::env::var(CLI).unwrap_or_else(|_| panic!("{CLI} names the CLI's executable"));
    let served = |tool: &str| format!("mcp__worker-internal__{tool}");
    let runtime = Runtime::new().unwrap();
    let replies = vec![
        Reply::text("I look for it.")
            .and_call(&served("update_summary"), json!({"summary": "Looking."}))
            .and_call(&served("Grep"), json!({"pattern": "luna", "output_mode": "content"})),
        Reply::call(&served("Read"), json!({"file_path": "docs/moths.md"})),
        Reply::call(
            &served("record_decision"),
            json!({"question": "Which?", "decision": "Luna", "reasoning": "Asked."}),
        )
        .and_call(&served("submit_result"), json!({"output": "A week [docs/moths.md]."})),
        Reply::text("The result is submitted."),
    ];
    let provider = runtime.block_on(Anthropic::start(replies));
    let mut home = Home::new();
    home.set("ANTHROPIC_API_KEY", KEY);
    home.set("ANTHROPIC_BASE_URL", &provider.url());
    let member = home.researcher("researcher");
    home.write("docs/moths.md", "# Moths\n\nThe luna moth lives for a week.\n");
    let claude = json!({"command": cli, "model": "claude-sonnet-4-5"});
    let config =
        format!("agent = \"claude\"\n[claude]\ncommand = {}\nmodel = {}\n", claude["command"], claude["model"]);
    home.write("guild.toml", config);
    let (config, docs) = (home.path("guild.toml"), home.path("docs"));
    let host = home.serve(&member, &["--config", config.to_str().unwrap(), "--sources", docs.to_str().unwrap()]);

    let begun = Instant::now();
    let client = host.client();
    let id = client.start("How long does a luna moth live?");
    let status = client.ended(&id);
    println!("{:?}: {status}", begun.elapsed());
    assert_eq!((&status["status"], &status["summary"]), (&json!("completed"), &json!("Looking.")), "{status}");
    assert_eq!(client.result(&id).unwrap()["output"], "A week [docs/moths.md].");
    assert_eq!(status["decisions"][0]["decision"], "Luna");
    let used = &status["usage"];
    assert_eq!((&used["turns"], &used["models"]), (&json!(4), &json!(["claude-sonnet-4-5"])));
    // Four requests of a hundred tokens in and ten out, at three and at fifteen dollars for a million.
    let cost = 4.0 * (100.0 * 3.0 + 10.0 * 15.0) / 1e6;
    assert!((used["costUsd"].as_f64().unwrap() - cost).abs() < 1e-9, "{used}");

    let requests = runtime.block_on(provider.received(4));
    assert_eq!(requests.len(), 4, "no requests but those of the session");
    assert_eq!(requests[0].header("x-api-key"), KEY);
    let tools = requests[0].body["tools"].as_array().unwrap();
    assert!(tools.iter().all(|tool| tool["name"].as_str().unwrap().starts_with("mcp__worker-internal__")), "{tools:?}");
    let seen = requests[1].body["messages"].as_array().unwrap().last().unwrap().to_string();
    assert!(seen.contains("docs/moths.md:3:The luna moth lives for a week."), "{seen}");
    let job = member.join("jobs").join(&id);
    no_key_in(&job, &[status.to_string(), host.output()]);
    let transcript = fs::read_to_string(job.join("transcript.jsonl")).unwrap();
    let kinds: Vec<Value> =
        transcript.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].take()).collect();
    assert_eq!((&kinds[0], kinds.last()), (&json!("session"), Some(&json!("end"))));
    assert!(is_empty(&home.path(".local/state/guild/claude")));
    assert!(!home.path(".claude/projects").exists(), "no session is kept");
}
