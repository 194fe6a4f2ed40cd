//! The runtime `claude`, against a program that speaks the CLI's protocol and can do what a CLI must not.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

#[path = "claude/converse.rs"]
mod converse;
#[path = "claude/fixture.rs"]
mod fixture;
#[path = "claude/real.rs"]
mod real;
#[path = "claude/real_conversation.rs"]
mod real_conversation;

mod common;

use std::{
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use guild_agent::{Broker, Claude, ToolSet};
use guild_config::ClaudeOptions;
use guild_contract::Bounds;
use guild_session::{
    activation::MemoryNote,
    meter::{Ending, Meter},
    session::{AgentRuntime as _, NoTools, Session, Wanted},
    tools::{ToolCall, ToolDefinition, ToolError, Tools},
    transcript::Entry,
    web::{Hit, Search, Web},
};
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify};

use common::{Job, Kept, session, write};
use fixture::{Fixture, lives, until};

/// A session with the job's tools, whose transcript is kept.
fn asked(history: Vec<Entry>) -> (Session, Arc<Job>, Arc<Kept>) {
    let (job, kept) = (Arc::new(Job::default()), Arc::new(Kept::default()));
    let tool_set = ToolSet::new(1, [job.clone() as Arc<dyn Tools>]).unwrap();
    let tool_set = tool_set.with_journal(kept.clone()).with_history(&history);
    let session = Session { journal: kept.clone(), history, ..session("Who is it?", Arc::new(tool_set), None) };
    (session, job, kept)
}

fn bounded(bounds: Bounds) -> Session {
    Session { meter: Meter::new(bounds), ..asked(Vec::new()).0 }
}

fn call(id: &str, name: &str, input: Value) -> Value {
    json!({"id": id, "name": name, "input": input})
}

/// A step that answers with one call of `update_summary`.
fn working(id: &str) -> Value {
    json!({"do": "answer", "id": id, "text": "Working.", "calls": [call("toolu_1", "update_summary", json!({"summary": "s"}))]})
}

fn error(ending: &Ending) -> String {
    match ending {
        Ending::Error(text) => text.clone(),
        other => panic!("it ended with {other:?}"),
    }
}

/// What kind of lines a transcript has, in order.
fn kinds(kept: &Kept) -> Vec<String> {
    let kind = |entry: &Entry| serde_json::to_value(entry).unwrap()["type"].as_str().unwrap().to_owned();
    kept.entries().iter().map(kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_calls_the_hosts_tools_over_the_pipe_and_is_accounted_for() {
    let fixture = Fixture::new(json!({"steps": [
        {"do": "answer", "id": "msg_1", "text": "Looking.", "tokens": {"input": 100, "cached": 40, "output": 20}, "calls": [
            call("toolu_1", "update_summary", json!({"summary": "Half way."})),
            call("toolu_2", "submit_result", json!({"output": "It is Ada."})),
            call("toolu_3", "no_such_tool", json!({})),
        ]},
        {"do": "answer", "id": "msg_2", "text": "All done.", "tokens": {"input": 200, "output": 30}},
        {"do": "result", "fields": {"result": "Submitted."}},
    ]}));
    let (session, job, kept) = asked(Vec::new());
    let (meter, scratch) = (session.meter.clone(), fixture.state());
    let end = fixture.claude().run(session).await;
    assert_eq!((end.ending, end.text.as_str()), (Ending::Success, "Submitted."));

    assert_eq!(job.report(), "It is Ada.");
    let ids: Vec<String> = job.calls().into_iter().map(|call| call.id).collect();
    assert_eq!(ids, ["1.toolu_1", "1.toolu_2"]);
    assert_eq!(kinds(&kept), ["turn", "call", "result", "call", "result", "call", "result", "turn"]);
    let Entry::Turn { turn: 1, text, model: Some(model), usage, .. } = kept.entries()[0].clone() else { panic!() };
    assert_eq!((text.as_str(), model.as_str()), ("Looking.", "fake-claude-1"));
    assert_eq!((usage.turns, usage.input_tokens, usage.cached_tokens, usage.output_tokens), (1, 140, 40, 20));
    let account = meter.account();
    let used = account.usage;
    assert_eq!((used.turns, used.input_tokens, used.output_tokens, used.cost_usd), (2, 340, 50, Some(0.25)));
    assert_eq!(account.models, ["fake-claude-1"]);

    let answers: Vec<Value> =
        fixture.answers().into_iter().filter(|answer| answer["result"]["content"].is_array()).collect();
    let text = |answer: &Value| answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(answers.iter().filter(|answer| answer["result"]["isError"] == false && text(answer) == "ok").count(), 2);
    let refused = answers.iter().find(|answer| answer["result"]["isError"] == true).unwrap();
    assert!(text(refused).contains("no_such_tool"));
    assert!(fs::read_dir(scratch).unwrap().next().is_none(), "the scratch directory is removed");
    assert!(!lives(fixture.pid()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cli_is_given_exact_flags_a_bare_environment_and_an_empty_directory() {
    let fixture = Fixture::new(json!({"steps": [{"do": "result"}]}));
    let meter = Meter::new(Bounds { max_turns: Some(7), max_budget_usd: Some(0.05), deadline_seconds: None });
    let session = Session { meter, model: Some("--bypass".to_owned()), ..asked(Vec::new()).0 };
    assert_eq!(fixture.claude().run(session).await.ending, Ending::Success);

    let started = fixture.started();
    let flags: Vec<&str> = started["flags"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let flags: Vec<&str> = flags.into_iter().filter(|flag| !flag.starts_with("--system-prompt-file=")).collect();
    assert_eq!(
        flags,
        [
            "-p",
            "--output-format=stream-json",
            "--input-format=stream-json",
            "--verbose",
            "--include-partial-messages",
            "--strict-mcp-config",
            "--setting-sources=",
            "--disable-slash-commands",
            "--restricted",
            "--permission-mode=dontAsk",
            "--no-session-persistence",
            "--model=--bypass",
            "--tools=",
            "--allowedTools=mcp__worker-internal",
            "--max-turns=7",
            "--max-budget-usd=0.05",
        ]
    );
    assert_eq!(started["systemPrompt"], "You are a researcher.");
    assert_eq!(started["files"], json!({}));
    let cwd = started["cwd"].as_str().unwrap();
    assert!(cwd.starts_with(fixture.state().to_str().unwrap()), "{cwd}");
    let environment = started["environment"].as_object().unwrap();
    assert!(environment["TMPDIR"].as_str().unwrap().starts_with(fixture.state().to_str().unwrap()));
    assert_eq!(environment["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"], "1");
    // Cargo sets this for the tests; nobody named it.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some() && !environment.contains_key("CARGO_MANIFEST_DIR"));
    assert!(!environment.contains_key("CLAUDECODE"));
    assert_eq!(fixture.user_messages(), ["Who is it?"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_names_further_variables() {
    let fixture = Fixture::new(json!({"steps": [{"do": "result"}]}));
    let options = ClaudeOptions { environment: vec!["CARGO_MANIFEST_DIR".to_owned()], ..fixture.options() };
    assert_eq!(Claude::new(options).unwrap().run(asked(Vec::new()).0).await.ending, Ending::Success);
    assert_eq!(fixture.started()["environment"]["CARGO_MANIFEST_DIR"], env!("CARGO_MANIFEST_DIR"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_the_end_of_the_answer_that_makes_it() {
    let mut early = working("msg_1");
    early["early"] = json!(true);
    let fixture = Fixture::new(json!({"steps": [early, {"do": "result"}]}));
    let (session, _, kept) = asked(Vec::new());
    assert_eq!(fixture.claude().run(session).await.ending, Ending::Success);
    assert_eq!(kinds(&kept), ["turn", "call", "result"]);
    let Entry::Turn { text, usage, .. } = &kept.entries()[0] else { panic!() };
    assert_eq!((text.as_str(), usage.output_tokens), ("Working.", 10), "the turn is written down whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_an_answer_that_broke_off_has_no_effect() {
    let mut abandoned = working("msg_1");
    abandoned["abandoned"] = json!(true);
    let fixture = Fixture::new(
        json!({"steps": [abandoned, {"do": "answer", "id": "msg_2", "text": "Again."}, {"do": "result"}]}),
    );
    let (session, job, kept) = asked(Vec::new());
    assert_eq!(fixture.claude().run(session).await.ending, Ending::Success);
    assert!(job.calls().is_empty());
    assert_eq!(kinds(&kept), ["turn", "turn"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_streamed_is_one_turn_too() {
    let mut whole = working("msg_1");
    whole["whole"] = json!(true);
    let fixture = Fixture::new(json!({"steps": [whole, {"do": "result"}]}));
    let (session, job, kept) = asked(Vec::new());
    let meter = session.meter.clone();
    assert_eq!(fixture.claude().run(session).await.ending, Ending::Success);
    assert_eq!((job.calls().len(), meter.account().usage.turns), (1, 1));
    assert_eq!(kinds(&kept), ["turn", "call", "result"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_reach_a_listener_as_they_come() {
    let fixture = Fixture::new(json!({"steps": [working("msg_1"), {"do": "result"}]}));
    let (sender, mut texts) = tokio::sync::mpsc::channel(4);
    let session = Session { texts: Some(sender), ..asked(Vec::new()).0 };
    fixture.claude().run(session).await;
    assert_eq!(texts.recv().await.as_deref(), Some("Working."));
}

/// Tools that tell how many of them run at a time, and in which order they were called.
struct Meeting {
    read_only: bool,
    called: Mutex<Vec<String>>,
    barrier: Barrier,
    running: AtomicU32,
    most: AtomicU32,
}

#[async_trait]
impl Tools for Meeting {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        let first = Job::default().definitions().remove(0);
        vec![Arc::new(ToolDefinition { read_only: self.read_only, ..(*first).clone() })]
    }

    async fn call(&self, call: ToolCall) -> Result<Value, ToolError> {
        self.called.lock().unwrap().push(call.id);
        let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        if self.read_only {
            self.barrier.wait().await;
        } else {
            tokio::task::yield_now().await;
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(json!("met"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_only_read_run_beside_each_other_and_others_alone_in_order() {
    let calls: Vec<Value> = (0..12).map(|n| call(&format!("toolu_{n}"), "update_summary", json!({}))).collect();
    for read_only in [true, false] {
        let fixture = Fixture::new(json!({"steps": [{"do": "answer", "calls": calls}, {"do": "result"}]}));
        let tools = Arc::new(Meeting {
            read_only,
            called: Mutex::default(),
            barrier: Barrier::new(12),
            running: AtomicU32::new(0),
            most: AtomicU32::new(0),
        });
        let end = fixture.claude().run(session("Meet.", tools.clone(), None)).await;
        assert_eq!(end.ending, Ending::Success);
        assert_eq!(tools.most.load(Ordering::SeqCst), if read_only { 12 } else { 1 });
        if !read_only {
            let in_order: Vec<String> = (0..12).map(|n| format!("1.toolu_{n}")).collect();
            assert_eq!(*tools.called.lock().unwrap(), in_order);
        }
        let listed = fixture.answers().into_iter().find(|answer| answer["result"]["tools"].is_array()).unwrap();
        assert_eq!(listed["result"]["tools"][0]["annotations"]["readOnlyHint"], read_only);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn results_become_endings() {
    let cases = [
        (json!({"subtype": "error_max_turns", "is_error": true}), Ok(Ending::MaxTurns)),
        (json!({"subtype": "error_max_budget_usd", "is_error": true}), Ok(Ending::MaxBudget)),
        (
            json!({"subtype": "error_during_execution", "is_error": true, "errors": ["it fell over"]}),
            Err("it fell over"),
        ),
        (json!({"subtype": "success", "is_error": true, "result": "API Error: 529 Overloaded"}), Err("529 Overloaded")),
        (json!({"subtype": "success", "is_error": true, "result": "Please run /login"}), Err("ANTHROPIC_API_KEY")),
        (json!({"subtype": "error_of_a_new_kind", "is_error": true}), Err("error_of_a_new_kind")),
    ];
    for (fields, expected) in cases {
        let fixture =
            Fixture::new(json!({"steps": [{"do": "answer", "text": "So far."}, {"do": "result", "fields": fields}]}));
        let end = fixture.claude().run(asked(Vec::new()).0).await;
        match expected {
            Ok(ending) => assert_eq!(end.ending, ending),
            Err(part) => assert!(error(&end.ending).contains(part), "{:?}", end.ending),
        }
        assert_eq!(end.text, "So far.");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_jobs_turns_bound_the_session_whatever_the_cli_counts() {
    let fixture = Fixture::new(json!({"steps": [working("msg_1"), working("msg_2"), {"do": "result"}]}));
    let session = bounded(Bounds { max_turns: Some(1), ..Bounds::default() });
    let meter = session.meter.clone();
    let end = fixture.claude().run(session).await;
    assert_eq!(end.ending, Ending::MaxTurns);
    let used = meter.account().usage;
    assert_eq!((used.turns, used.cost_usd), (1, Some(0.25)), "what the interrupted CLI says it cost is booked");
    assert!(fixture.was_interrupted());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_that_is_reached_starts_no_process() {
    let fixture = Fixture::new(json!({"steps": [{"do": "result"}]}));
    let none = bounded(Bounds { max_turns: Some(0), ..Bounds::default() });
    assert_eq!(fixture.claude().run(none).await.ending, Ending::MaxTurns);
    let session = bounded(Bounds { max_budget_usd: Some(0.5), ..Bounds::default() });
    session.meter.book(guild_contract::Usage { cost_usd: Some(0.5), ..Default::default() }, None);
    assert_eq!(fixture.claude().run(session).await.ending, Ending::MaxBudget);
    assert!(fixture.log().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_ends_a_session_that_works_on() {
    let fixture = Fixture::new(json!({"steps": [working("msg_1"), {"do": "hang"}]}));
    let session = bounded(Bounds { deadline_seconds: Some(1), ..Bounds::default() });
    assert_eq!(fixture.claude().run(session).await.ending, Ending::Deadline);
    assert!(fixture.was_interrupted() && !lives(fixture.pid()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cli_that_ends_early_fails_the_session_with_its_code_and_its_last_words_and_its_cost_is_unknown() {
    let fixture = Fixture::new(json!({"steps": [
        working("msg_1"), {"do": "stderr", "text": "\u{1b}[31mout of cheese"}, {"do": "exit", "code": 3},
    ]}));
    let (session, _, kept) = asked(Vec::new());
    let meter = session.meter.clone();
    let end = fixture.claude().run(session).await;
    let text = error(&end.ending);
    assert!(text.contains("exit status: 3") && text.contains("out of cheese") && !text.contains('\u{1b}'), "{text}");
    let used = meter.account().usage;
    assert_eq!((used.turns, used.cost_usd, used.known_cost_usd), (1, None, Some(0.0)));
    assert_eq!(kinds(&kept), ["turn", "call", "result"]);
}

/// An answer of a model whose price is known: three dollars, and some of a cent.
fn three_dollars(id: &str) -> Value {
    json!({"do": "answer", "id": id, "model": "claude-sonnet-4-5", "tokens": {"input": 1_000_000, "output": 10}})
}

const THREE_DOLLARS: f64 = 3.000_15;

fn about(usd: Option<f64>, expected: f64) -> bool {
    usd.is_some_and(|usd| (usd - expected).abs() < 1e-9)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_booked_at_its_price_and_the_result_books_the_rest() {
    for (total, cost) in [(json!(4.5), Some(4.5)), (json!(1.0), Some(THREE_DOLLARS)), (json!(null), None)] {
        let result = json!({"do": "result", "fields": {"total_cost_usd": total}});
        let fixture = Fixture::new(json!({"steps": [three_dollars("msg_1"), result]}));
        let (session, _, kept) = asked(Vec::new());
        let meter = session.meter.clone();
        assert_eq!(fixture.claude().run(session).await.ending, Ending::Success);
        let Entry::Turn { usage, .. } = &kept.entries()[0] else { panic!() };
        assert!(about(usage.cost_usd, THREE_DOLLARS), "{usage:?}");
        let used = meter.account().usage;
        assert!(cost.map_or(used.cost_usd.is_none(), |cost| about(used.cost_usd, cost)), "{total}: {used:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_cut_off_costs_at_least_its_turns_and_the_rest_is_unknown() {
    for steps in [json!([three_dollars("msg_1"), {"do": "exit", "code": 1}]), json!([{"do": "exit", "code": 1}])] {
        let fixture = Fixture::new(json!({"steps": steps}));
        let session = bounded(Bounds::default());
        let meter = session.meter.clone();
        error(&fixture.claude().run(session).await.ending);
        let account = meter.account();
        let known = f64::from(account.usage.turns) * THREE_DOLLARS;
        assert!(account.usage.cost_usd.is_none() && about(account.usage.known_cost_usd, known), "{account:?}");
        assert_eq!(account.open, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_one_job_are_bounded_by_what_all_of_them_have_cost_so_far() {
    let go = tempfile::tempdir().unwrap();
    let file = go.path().join("go");
    let first = Fixture::new(json!({"steps": [
        three_dollars("msg_1"), {"do": "until", "file": file}, three_dollars("msg_2"), {"do": "result"},
    ]}));
    let second = Fixture::new(json!({"steps": [three_dollars("msg_3"), {"do": "result"}]}));
    let job = Meter::new(Bounds { max_budget_usd: Some(5.0), ..Bounds::default() });
    let of_job = || Session { meter: job.for_session(Bounds::default()), ..asked(Vec::new()).0 };
    let (claude, session) = (first.claude(), of_job());
    let running = tokio::spawn(async move { claude.run(session).await });
    until(|| job.account().usage.turns == 1 && job.left().unwrap().max_budget_usd.unwrap() < 2.0).await;
    assert_eq!(second.claude().run(of_job()).await.ending, Ending::Success);
    fs::write(file, "").unwrap();
    assert_eq!(running.await.unwrap().ending, Ending::MaxBudget);
    assert!(about(job.account().usage.cost_usd, 2.0 * THREE_DOLLARS), "{:?}", job.account());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_session_says_repeats_a_secret_that_the_cli_was_given() {
    // Cargo sets it; here it is the value that must not be shown.
    let secret = env!("CARGO_MANIFEST_DIR");
    let said = format!("the key {secret} is refused");
    // The last 4 KiB of stderr are shown: so long, that they begin in the middle of a secret.
    let flood = format!("{}{}", secret.repeat(300), "x".repeat(4096 % secret.len()));
    let failed = json!({"do": "result", "fields": {"subtype": "success", "is_error": true, "result": said}});
    let retry = json!({"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 2, "error": said});
    for steps in [
        json!([{"do": "message", "value": retry}, failed]),
        json!([{"do": "stderr", "text": said}, {"do": "exit", "code": 1}]),
        json!([{"do": "stderr", "text": flood}, {"do": "exit", "code": 1}]),
        // An error shows so much of a line that the secret is cut.
        json!([{"do": "line", "text": format!("{}{secret}", "y".repeat(198 - secret.len() / 2))}]),
    ] {
        let fixture = Fixture::new(json!({"steps": steps}));
        let options = ClaudeOptions { environment: vec!["CARGO_MANIFEST_DIR".to_owned()], ..fixture.options() };
        let (session, _, kept) = asked(Vec::new());
        let end = Claude::new(options).unwrap().run(session).await;
        let shown = format!("{} {:?} {}", error(&end.ending), kept.entries(), end.text);
        let (half, rest) = secret.split_at(secret.len() / 2);
        assert!(shown.contains("***"), "{shown}");
        assert!(!shown.contains(half) && !shown.contains(rest), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_that_the_cli_does_not_know_fail_the_session_with_what_to_do() {
    let fixture = Fixture::new(json!({}));
    fixture.replace_command("echo \"error: unknown option '--restricted'\" >&2; exit 1");
    let text = error(&fixture.claude().run(asked(Vec::new()).0).await.ending);
    assert!(text.contains("unknown option") && text.contains("update Claude Code"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_on_stderr_neither_blocks_nor_is_stored() {
    let flood = json!({"do": "stderr", "bytes": 8 << 20, "text": "the end"});
    let fixture = Fixture::new(json!({"steps": [flood, {"do": "result"}]}));
    assert_eq!(fixture.claude().run(asked(Vec::new()).0).await.ending, Ending::Success);
    let fixture = Fixture::new(json!({"steps": [flood, {"do": "exit", "code": 1}]}));
    let text = error(&fixture.claude().run(asked(Vec::new()).0).await.ending);
    assert!(text.contains("the end") && text.len() < 5000, "{} bytes", text.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_cannot_be_read_are_skipped_and_noted() {
    let assistant = json!({"type": "assistant", "message": {"no": "id"}});
    for line in [
        "Now using node v22.19.0 (npm v10.9.3)".to_owned(),
        format!("Segmentation\u{7} fault {}", "x".repeat(1000)),
        json!([{"type": "rate_limit_event"}]).to_string(),
        assistant.to_string(),
        r#"{"type":"control_request","request":{}}"#.to_owned(),
    ] {
        let steps = json!([{"do": "line", "text": line}, working("msg_1"), {"do": "result"}]);
        let fixture = Fixture::new(json!({"steps": steps}));
        let (session, _, kept) = asked(Vec::new());
        assert_eq!(fixture.claude().run(session).await.ending, Ending::Success, "{line}");
        assert_eq!(kinds(&kept), ["note", "turn", "call", "result"], "{line}");
        let Entry::Note { text, .. } = &kept.entries()[0] else { panic!() };
        let begins: String = line.chars().filter(|c| !c.is_control()).take(30).collect();
        assert!(text.contains("claude") && text.contains(&begins) && text.len() < 500, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_before_the_conversation_and_bytes_that_are_not_text_are_skipped() {
    let fixture = Fixture::new(json!({"steps": [{"do": "result"}]}));
    fixture.wrap(r#"[ "$1" = --version ] || printf 'a banner \377\n\n'"#);
    let (session, _, kept) = asked(Vec::new());
    assert_eq!(fixture.claude().run(session).await.ending, Ending::Success);
    assert_eq!(kinds(&kept), ["note"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_of_skipped_lines_are_bounded() {
    let mut steps = vec![json!({"do": "line", "text": "(node:4711) Warning"}); 100];
    steps.push(json!({"do": "result"}));
    let fixture = Fixture::new(json!({"steps": steps}));
    let (session, _, kept) = asked(Vec::new());
    assert_eq!(fixture.claude().run(session).await.ending, Ending::Success);
    assert_eq!(kept.entries().len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn halves_of_surrogate_pairs_are_replaced() {
    let part = |text: &str| {
        json!({"do": "line", "text": format!(
            r#"{{"type":"assistant","message":{{"id":"msg_1","model":"m","content":[{{"type":"text","text":"{text}"}}]}}}}"#
        )})
    };
    let result = r#"{"type":"result","subtype":"success","is_error":false,"result":"cut \uD83D"}"#;
    let fixture = Fixture::new(json!({"steps": [
        part(r"a \ud83d b \ud83d\ude00 c \\ud83d d \ude00"), {"do": "line", "text": result}, {"do": "hang"},
    ]}));
    let (session, _, kept) = asked(Vec::new());
    let end = fixture.claude().run(session).await;
    assert_eq!((end.ending, end.text.as_str()), (Ending::Success, "cut \u{fffd}"));
    let Entry::Turn { text, .. } = &kept.entries()[0] else { panic!("{:?}", kept.entries()) };
    assert_eq!(text, "a \u{fffd} b \u{1f600} c \\ud83d d \u{fffd}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_a_result_quotes_what_claude_said() {
    let warning = json!({"do": "line", "text": "Your subscription has expired"});
    for (steps, quoted) in [
        (json!([warning, {"do": "exit", "code": 0}]), "Your subscription has expired"),
        (json!([{"do": "answer", "text": "I was about to"}, {"do": "exit", "code": 0}]), "I was about to"),
    ] {
        let fixture = Fixture::new(json!({"steps": steps}));
        let text = error(&fixture.claude().run(asked(Vec::new()).0).await.ending);
        assert!(text.contains("before its result") && text.contains(quoted), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_cannot_be_read_fails_the_session_at_once() {
    let result = json!({"do": "message", "value": {"type": "result", "no": "subtype"}});
    let init = json!({"do": "message", "value": {"type": "system", "subtype": "init"}});
    for (message, part) in [(result, "subtype"), (init, "session_id")] {
        let fixture = Fixture::new(json!({"steps": [message, {"do": "hang"}]}));
        let text = error(&fixture.claude().run(asked(Vec::new()).0).await.ending);
        assert!(text.contains("does not understand") && text.contains(part), "{text}");
        assert!(!lives(fixture.pid()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_messages_are_ignored() {
    let fixture = Fixture::new(json!({"steps": [
        {"do": "message", "value": {"type": "tombstone", "of": [1]}},
        {"do": "message", "value": {"type": "system", "subtype": "compact_boundary"}},
        {"do": "message", "value": {"type": "assistant", "message": {"id": "x", "model": "<synthetic>", "content": []}}},
        {"do": "message", "value": {"type": "system", "subtype": "api_retry", "error": {"of": "a new shape"}, "attempt": null}},
        {"do": "line", "text": ""},
        {"do": "huge", "bytes": 3_000_000},
        {"do": "result"},
    ]}));
    let (session, _, kept) = asked(Vec::new());
    assert_eq!(fixture.claude().run(session).await.ending, Ending::Success);
    assert_eq!(kinds(&kept), ["note"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_without_end_fails_the_session() {
    let fixture = Fixture::new(json!({"steps": [{"do": "huge", "bytes": 40 << 20}, {"do": "hang"}]}));
    let text = error(&fixture.claude().run(asked(Vec::new()).0).await.ending);
    assert!(text.contains("32 MiB"), "{text}");
    assert!(!lives(fixture.pid()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cli_that_says_nothing_is_given_up() {
    let begins = json!({"steps": [working("msg_1"), {"do": "hang"}]});
    let never = json!({"handshake": "none"});
    for (script, part) in [(begins, "silence_seconds"), (never, "did not begin the conversation")] {
        let fixture = Fixture::new(script);
        let options = ClaudeOptions { silence: Duration::from_millis(500), ..fixture.options() };
        let text = error(&Claude::new(options).unwrap().run(asked(Vec::new()).0).await.ending);
        assert!(text.contains(part), "{text}");
        assert!(!lives(fixture.pid()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_takes_long_is_not_taken_for_silence() {
    struct Slow;
    #[async_trait]
    impl Tools for Slow {
        fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
            Job::default().definitions()
        }
        async fn call(&self, _call: ToolCall) -> Result<Value, ToolError> {
            tokio::time::sleep(Duration::from_millis(700)).await;
            Ok(json!("at last"))
        }
    }
    let fixture = Fixture::new(json!({"steps": [working("msg_1"), {"do": "result"}]}));
    let options = ClaudeOptions { silence: Duration::from_millis(300), ..fixture.options() };
    let end = Claude::new(options).unwrap().run(session("Wait.", Arc::new(Slow), None)).await;
    assert_eq!(end.ending, Ending::Success);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_its_tools_fails_at_once() {
    for (handshake, part) in [("failed", "worker-internal is failed"), ("refused", "does not begin")] {
        let fixture = Fixture::new(json!({"steps": [{"do": "hang"}], "handshake": handshake}));
        let text = error(&fixture.claude().run(asked(Vec::new()).0).await.ending);
        assert!(text.contains(part), "{text}");
        assert!(!lives(fixture.pid()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cli_that_is_not_there_is_refused_with_what_to_install_or_set() {
    let fixture = Fixture::new(json!({}));
    for command in ["/nowhere/claude", "no-such-claude-anywhere"] {
        let claude = Claude::new(ClaudeOptions { command: command.into(), ..fixture.options() }).unwrap();
        let text = claude.check(&Wanted::default()).unwrap_err();
        for part in [command, "npm install -g @anthropic-ai/claude-code", "[claude] command"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(error(&claude.run(asked(Vec::new()).0).await.ending), text);
        assert_eq!(claude.version().unwrap_err(), text);
    }
    assert_eq!(fixture.claude().check(&Wanted::default()), Ok(()));
    assert_eq!(fixture.claude().version().unwrap(), "2.1.248 (fake Claude Code)");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_cannot_be_started_fails_the_session() {
    let fixture = Fixture::new(json!({}));
    fs::write(fixture.command(), "#!/no/such/interpreter\n").unwrap();
    let text = error(&fixture.claude().run(asked(Vec::new()).0).await.ending);
    assert!(text.contains("cannot start"), "{text}");
    assert!(fs::read_dir(fixture.state()).unwrap().next().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_asks_the_cli_and_books_what_it_says_it_used() {
    let fixture = Fixture::new(json!({"steps": [working("msg_1"), {"do": "start"}, {"do": "hang"}]}));
    let (session, ..) = asked(Vec::new());
    let (meter, cancel) = (session.meter.clone(), session.cancel.clone());
    let running = tokio::spawn({
        let claude = fixture.claude();
        async move { claude.run(session).await }
    });
    let grandchild = fixture.grandchild().await;
    cancel.cancel();
    assert_eq!(running.await.unwrap().ending, Ending::Interrupted);
    assert!(fixture.was_interrupted());
    assert_eq!(meter.account().usage.cost_usd, Some(0.25));
    assert!(!lives(fixture.pid()));
    until(|| !lives(grandchild)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cli_that_ignores_interrupts_and_sigterm_is_killed_with_all_that_it_started() {
    let fixture = Fixture::new(json!({"steps": [{"do": "start"}, {"do": "hang"}], "deaf": true}));
    fixture.trap_sigterm();
    let (session, ..) = asked(Vec::new());
    let cancel = session.cancel.clone();
    let running = tokio::spawn({
        let claude = fixture.claude();
        async move { claude.run(session).await }
    });
    let grandchild = fixture.grandchild().await;
    let begun = Instant::now();
    cancel.cancel();
    assert_eq!(running.await.unwrap().ending, Ending::Interrupted);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert!(!lives(fixture.pid()));
    until(|| !lives(grandchild)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cli_started_ends_with_it_also_where_the_cli_just_ends() {
    let fixture = Fixture::new(json!({"steps": [{"do": "start"}, {"do": "result"}]}));
    assert_eq!(fixture.claude().run(asked(Vec::new()).0).await.ending, Ending::Success);
    let grandchild = fixture.grandchild().await;
    until(|| !lives(grandchild)).await;
}

/// A shell script that starts a process which leaves its parents, its session and its environment behind, and writes
/// its id into a file.
fn runaway(file: &Path) -> String {
    let (fake, file) = (guild_fakes::fake_claude(), file.display().to_string());
    format!(
        "(setsid env -i /bin/sh -c 'echo $$ > {file}.new; exec {} linger' </dev/null >/dev/null 2>&1 &)\n\
         while ! [ -s {file}.new ]; do :; done; mv {file}.new {file}",
        fake.display()
    )
}

fn pid_in(file: &Path) -> u32 {
    fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn runaway_processes_end_with_the_session() {
    for state in [true, false] {
        let fixture = Fixture::new(json!({"steps": [working("msg_1"), {"do": "result"}]}));
        let (left, mode) = (fixture.directory().join("left"), fixture.directory().join("mode"));
        fixture.wrap(&format!("{}\nstat -c %a .. > '{}'", runaway(&left), mode.display()));
        let options = ClaudeOptions { state: state.then(|| fixture.state()), ..fixture.options() };
        assert_eq!(Claude::new(options).unwrap().run(asked(Vec::new()).0).await.ending, Ending::Success);
        assert!(!lives(pid_in(&left)));
        assert_eq!(fs::read_to_string(mode).unwrap().trim(), "700", "nobody else looks into the scratch directory");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runaway_processes_of_a_version_check_end_with_it() {
    let fixture = Fixture::new(json!({}));
    let left = fixture.directory().join("left");
    fixture.wrap(&runaway(&left));
    assert!(fixture.claude().version().is_ok());
    assert!(!lives(pid_in(&left)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_session_leaves_no_process_and_writes_nothing_more() {
    let fixture = Fixture::new(json!({"steps": [working("msg_1"), {"do": "start"}, {"do": "hang"}], "deaf": true}));
    let (session, _, kept) = asked(Vec::new());
    let running = tokio::spawn({
        let claude = fixture.claude();
        async move { claude.run(session).await }
    });
    let grandchild = fixture.grandchild().await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    let written = kept.entries().len();
    until(|| !lives(fixture.pid()) && !lives(grandchild)).await;
    until(|| fs::read_dir(fixture.state()).unwrap().next().is_none()).await;
    assert_eq!(kept.entries().len(), written);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_shuts_down_takes_its_sessions_along() {
    let fixture = Fixture::new(json!({"steps": [{"do": "start"}, {"do": "hang"}], "deaf": true}));
    fixture.trap_sigterm();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (session, ..) = asked(Vec::new());
    let claude = fixture.claude();
    runtime.spawn(async move { claude.run(session).await });
    let grandchild = fixture.grandchild().await;
    runtime.shutdown_background();
    until(|| !lives(fixture.pid()) && !lives(grandchild)).await;
}

/// Names the directory of the fixture, for the process that is to be killed.
const KILLED_HOST: &str = "GUILD_TEST_KILLED_HOST";

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_killed_takes_all_processes_along_and_the_next_one_sweeps() {
    if let Some(directory) = std::env::var_os(KILLED_HOST) {
        // This is the host: the test below started it.
        Fixture::at(directory.into()).claude().run(asked(Vec::new()).0).await;
        return;
    }
    let fixture = Fixture::new(json!({"steps": [{"do": "start"}, {"do": "hang"}], "deaf": true}));
    let left = fixture.directory().join("left");
    fixture.wrap(&format!("trap '' TERM\n{}", runaway(&left)));
    let mut host = std::process::Command::new(std::env::current_exe().unwrap());
    let name = "a_host_that_is_killed_takes_all_processes_along_and_the_next_one_sweeps";
    let mut host = host.args(["--exact", name, "--nocapture"]).env(KILLED_HOST, fixture.directory()).spawn().unwrap();
    let grandchild = fixture.grandchild().await;
    let all = [fixture.pid(), grandchild, pid_in(&left)];
    assert_eq!(fixture.claude().sweep(), 0, "the directory of a host that lives is left alone");
    assert!(all.into_iter().all(lives));

    host.kill().unwrap();
    host.wait().unwrap();
    until(|| !all.into_iter().any(lives)).await;
    assert_eq!(fixture.claude().sweep(), 1);
    assert!(fs::read_dir(fixture.state()).unwrap().next().is_none());
}

#[test]
fn a_sweep_is_not_misled_by_a_process_with_the_id_of_a_host() {
    let fixture = Fixture::new(json!({}));
    let own = std::process::id();
    let started = guild_session::process::start_time(own).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let (claude, place) = (fixture.claude(), fixture.state().join("claude-left"));
    for (boot, started, removed) in [(boot.trim(), started + 1, 1), ("another", started, 1), (boot.trim(), started, 0)]
    {
        write(&place, "host.json", &json!({"boot": boot, "pid": own, "started": started}).to_string());
        assert_eq!((claude.sweep(), place.exists()), (removed, removed == 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_host_does_not_serve_is_refused_and_permissions_are_denied() {
    let mcp = |server: &str, method: &str| {
        json!({"do": "request", "value": {
            "subtype": "mcp_message", "server_name": server, "message": {"jsonrpc": "2.0", "id": 9, "method": method},
        }})
    };
    let fixture = Fixture::new(json!({"steps": [
        {"do": "request", "value": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}},
        {"do": "request", "value": {"subtype": "hook_callback", "callback_id": "x"}},
        mcp("another", "tools/list"), mcp("worker-internal", "ping"), mcp("worker-internal", "resources/list"),
        {"do": "result"},
    ]}));
    assert_eq!(fixture.claude().run(asked(Vec::new()).0).await.ending, Ending::Success);
    let responses = fixture.responses();
    let [.., permission, hook, another, ping, resources] = responses.as_slice() else { panic!("{responses:?}") };
    assert_eq!(permission["response"]["behavior"], "deny");
    assert_eq!((&hook["subtype"], &another["subtype"]), (&json!("error"), &json!("error")));
    assert_eq!(ping["response"]["mcp_response"]["result"], json!({}));
    assert_eq!(resources["response"]["mcp_response"]["error"]["code"], -32601);
}

/// A tool that never answers, and tells when it is given up.
#[derive(Default)]
struct Endless {
    called: Notify,
    given_up: Arc<Notify>,
}

#[async_trait]
impl Tools for Endless {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        Job::default().definitions()
    }

    async fn call(&self, _call: ToolCall) -> Result<Value, ToolError> {
        struct Notifies(Arc<Notify>);
        impl Drop for Notifies {
            fn drop(&mut self) {
                self.0.notify_one();
            }
        }
        let _dropped = Notifies(self.given_up.clone());
        self.called.notify_one();
        std::future::pending().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_the_cli_no_longer_waits_for_is_given_up() {
    // Requests 1 to 3 are the handshake's; the call is the fourth.
    let by_request = json!({"do": "message", "value": {"type": "control_cancel_request", "request_id": "request-4"}});
    let by_notification = json!({"do": "request", "value": {
        "subtype": "mcp_message", "server_name": "worker-internal",
        "message": {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4}},
    }});
    for cancel in [by_request, by_notification] {
        let mut calling = working("msg_1");
        calling["unanswered"] = json!(true);
        let directory = tempfile::tempdir().unwrap();
        let called = directory.path().join("called");
        let wait = json!({"do": "until", "file": called});
        let fixture = Fixture::new(json!({"steps": [calling, wait, cancel, {"do": "hang"}]}));
        let tools = Arc::new(Endless::default());
        let session = session("Wait.", tools.clone(), None);
        let stop = session.cancel.clone();
        let claude = fixture.claude();
        let running = tokio::spawn(async move { claude.run(session).await });
        tools.called.notified().await;
        fs::write(called, "").unwrap();
        tokio::time::timeout(Duration::from_secs(20), tools.given_up.notified()).await.unwrap();
        assert!(!running.is_finished());
        stop.cancel();
        assert_eq!(running.await.unwrap().ending, Ending::Interrupted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_does_not_wait_for_a_tool() {
    let fixture = Fixture::new(json!({"steps": [working("msg_1"), {"do": "result"}]}));
    let tools = Arc::new(Endless::default());
    let session = session("Wait.", tools.clone(), None);
    let stop = session.cancel.clone();
    let claude = fixture.claude();
    let running = tokio::spawn(async move { claude.run(session).await });
    tools.called.notified().await;
    stop.cancel();
    assert_eq!(running.await.unwrap().ending, Ending::Interrupted);
    assert!(!lives(fixture.pid()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_job_ends_the_session() {
    struct Ended;
    #[async_trait]
    impl Tools for Ended {
        fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
            Job::default().definitions()
        }
        async fn call(&self, _call: ToolCall) -> Result<Value, ToolError> {
            Err(ToolError::JobEnded)
        }
    }
    let fixture = Fixture::new(json!({"steps": [working("msg_1"), {"do": "hang"}]}));
    let end = fixture.claude().run(session("Go.", Arc::new(Ended), None)).await;
    assert_eq!(end.ending, Ending::Interrupted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_resumed_after_a_restart_where_that_is_set() {
    let fixture = Fixture::new(json!({"steps": [working("msg_2"), {"do": "result"}]}));
    let claude = Claude::new(ClaudeOptions { resume: true, ..fixture.options() }).unwrap();
    let (session, _, kept) = asked(Vec::new());
    assert_eq!(claude.run(session).await.ending, Ending::Success);
    let history = kept.entries();
    let Entry::Handle { handle, session: 1 } = &history[0] else { panic!("{history:?}") };
    assert!(!fixture.flags().contains("no-session-persistence"));
    assert_eq!(claude.can_resume(&history), Ok(()));

    let again = Fixture::new(json!({"steps": [{"do": "answer", "id": "msg_3"}, {"do": "result"}]}));
    let claude = Claude::new(ClaudeOptions { resume: true, ..again.options() }).unwrap();
    let (session, _, kept) = asked(history.clone());
    assert_eq!(claude.run(session).await.ending, Ending::Success);
    assert!(again.flags().contains(&format!("--resume={handle}")));
    let asked_for = again.user_messages();
    assert!(asked_for.len() == 1 && asked_for[0].contains("restarted"), "{asked_for:?}");
    assert!(kept.entries().iter().any(|entry| matches!(entry, Entry::Turn { turn: 2, .. })), "turns are counted on");

    let unset = again.claude();
    assert!(unset.can_resume(&history).unwrap_err().contains("[claude] resume = true"));
    // The host stopped before the CLI had named its session, which begins again.
    assert_eq!(claude.can_resume(&[]), Ok(()));
    let (session, ..) = asked(history);
    assert!(error(&unset.run(session).await.ending).contains("[claude] resume = true"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_the_cli_does_not_have_goes_on_from_its_transcript() {
    let turn = Entry::Turn {
        session: 1,
        turn: 1,
        model: None,
        text: "I shall note it.".to_owned(),
        content: None,
        usage: guild_contract::Usage::default(),
    };
    let call = |call: &str, tool: &str| Entry::Call {
        session: 1,
        call: call.to_owned(),
        tool: tool.to_owned(),
        input: json!({"question": call}),
    };
    let answered =
        Entry::Result { session: 1, call: "one".to_owned(), ms: 1, output: Some(json!("noted")), error: None };
    let entries = vec![turn, call("one", "record_decision"), call("two", "record_decision"), answered];
    let handle = Entry::Handle { session: 1, handle: "22222222-2222-4333-8444-555555555555".to_owned() };
    // At another host, and where the host stopped before the CLI had named its session.
    for history in [[vec![handle], entries.clone()].concat(), entries] {
        let fixture =
            Fixture::new(json!({"handshake": "lost", "steps": [{"do": "answer", "id": "m"}, {"do": "result"}]}));
        let claude = Claude::new(ClaudeOptions { resume: true, ..fixture.options() }).unwrap();
        let (session, _, kept) = asked(history);
        let prompt = session.prompt.clone();
        assert_eq!(claude.run(session).await.ending, Ending::Success);
        let asked_for = fixture.user_messages();
        let [told] = asked_for.as_slice() else { panic!("{asked_for:?}") };
        for part in
            ["> I shall note it.", "It answered:\n> noted", "It was not answered: it may have had its effect.", &prompt]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(kept.entries().iter().any(|entry| matches!(entry, Entry::Compacted { .. })));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_resumed_session_cost_before_is_not_booked_again() {
    let one = json!({"inputTokens": 1_000_000, "outputTokens": 10});
    let both = json!({"inputTokens": 2_000_000, "outputTokens": 20});
    // A CLI that was killed begins its account anew; one that ended by itself goes on with it.
    for (total, tokens) in [(THREE_DOLLARS, one), (2.0 * THREE_DOLLARS, both)] {
        let usage = guild_contract::Usage {
            turns: 1,
            input_tokens: 1_000_000,
            output_tokens: 10,
            cost_usd: Some(THREE_DOLLARS),
            ..guild_contract::Usage::default()
        };
        let turn = Entry::Turn { session: 1, turn: 1, model: None, text: String::new(), content: None, usage };
        let history = vec![Entry::Handle { session: 1, handle: "it".to_owned() }, turn];
        let fields = json!({"total_cost_usd": total + 0.5, "modelUsage": {"claude-sonnet-4-5": tokens}});
        let fixture = Fixture::new(json!({"steps": [three_dollars("msg_2"), {"do": "result", "fields": fields}]}));
        let claude = Claude::new(ClaudeOptions { resume: true, ..fixture.options() }).unwrap();
        let (session, ..) = asked(history);
        let meter = session.meter.clone();
        assert_eq!(claude.run(session).await.ending, Ending::Success);
        let used = meter.account().usage;
        assert!(about(used.cost_usd, THREE_DOLLARS + 0.5), "{used:?}");
        assert_eq!((used.input_tokens, used.output_tokens), (1_000_000, 10));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clis_own_tools_see_a_copy_of_the_sources_and_nothing_else() {
    let sources = tempfile::tempdir().unwrap();
    write(sources.path(), "docs/ada.md", "Ada wrote it.");
    let files = guild_agent::ReadRoots::open_named([(Some("library".to_owned()), sources.path())]).unwrap();
    let files: Arc<dyn guild_session::files::Files> = Arc::new(files);
    let names = ["Read", "Glob", "WebSearch"].map(str::to_owned);
    let tool_set = ToolSet::new(1, [Arc::new(Job::default()) as Arc<dyn Tools>]).unwrap();
    let web = Web { search: Some(Arc::new(NoSearch)), ..Web::default() };
    let tool_set = Arc::new(tool_set.with_read_only(&Broker::new(Some(files.clone())), &web, &names, &names));
    let fixture = Fixture::new(json!({"steps": [{"do": "result"}]}));
    let claude = Claude::new(ClaudeOptions { builtin_tools: true, ..fixture.options() }).unwrap();
    let end = claude.run(session("Read.", tool_set.clone(), Some(files))).await;
    assert_eq!(end.ending, Ending::Success);
    assert_eq!(fixture.started()["files"], json!({"library": {"docs": {"ada.md": "Ada wrote it."}}}));
    let flags = fixture.flags();
    assert!(flags.contains("--tools=Read,Glob\n"), "{flags}");
    assert!(flags.contains("--allowedTools=mcp__worker-internal,Read(./**),Glob\n"), "{flags}");
    assert!(flags.contains("--restricted\n"));
    let listed =
        fixture.answers().into_iter().find_map(|answer| answer["result"]["tools"].as_array().cloned()).unwrap();
    assert!(listed.iter().all(|tool| tool["name"] != "Read" && tool["name"] != "Glob"));
    assert!(listed.iter().any(|tool| tool["name"] == "WebSearch"), "the web is always the host's");

    // Without sources of its own, a session's tools are all the host's.
    let fixture = Fixture::new(json!({"steps": [{"do": "result"}]}));
    let claude = Claude::new(ClaudeOptions { builtin_tools: true, ..fixture.options() }).unwrap();
    assert_eq!(claude.run(session("Read.", tool_set, None)).await.ending, Ending::Success);
    assert!(fixture.flags().contains("--tools=\n"), "{}", fixture.flags());
}

/// A search that finds nothing.
struct NoSearch;

#[async_trait]
impl Search for NoSearch {
    async fn search(&self, _query: &str, _limit: u32) -> Result<Vec<Hit>, ToolError> {
        Ok(Vec::new())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memories_are_condensed_in_one_turn_without_tools() {
    let fixture = Fixture::new(json!({"steps": [
        {"do": "answer", "text": "One note."}, {"do": "result", "fields": {"result": " One note.\n"}},
    ]}));
    let note = MemoryNote {
        scope: guild_contract::manifest::Scope::Worker,
        key: "a".to_owned(),
        content: "Ada.".to_owned(),
        modified: "2026-01-01T00:00:00Z".to_owned(),
        origin: None,
    };
    let meter = Meter::new(Bounds { max_turns: Some(1), max_budget_usd: Some(0.05), deadline_seconds: Some(60) });
    assert_eq!(fixture.claude().condense(vec![note], 4000, meter).await.as_deref(), Ok("One note."));
    let flags = fixture.flags();
    assert!(flags.contains("--tools=\n") && !flags.contains("allowedTools") && flags.contains("--max-turns=1\n"));
    assert_eq!(fixture.initialized()["sdkMcpServers"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_sessions_run_beside_each_other() {
    let fixture = Fixture::new(json!({"steps": [working("msg_1"), {"do": "result"}]}));
    let claude = Arc::new(fixture.claude());
    let sessions = (0..8).map(|_| {
        let claude = claude.clone();
        tokio::spawn(async move { claude.run(session("Go.", Arc::new(NoTools), None)).await.ending })
    });
    for ending in futures::future::join_all(sessions).await {
        assert_eq!(ending.unwrap(), Ending::Success);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_are_bypassed_where_the_operator_says_so_but_for_root() {
    let fixture = Fixture::new(json!({"steps": [{"do": "result"}]}));
    let claude = Claude::new(ClaudeOptions { bypass_permissions: true, ..fixture.options() }).unwrap();
    let root = rustix::process::geteuid().is_root();
    let refused = claude.check(&Wanted::default()).err();
    assert_eq!(refused.is_some_and(|text| text.contains("dontAsk")), root);
    assert_eq!(claude.run(asked(Vec::new()).0).await.ending, Ending::Success);
    let flags = fixture.flags();
    assert!(flags.contains("--permission-mode=bypassPermissions\n") && !flags.contains("--restricted"), "{flags}");
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    let fixture = Fixture::new(json!({}));
    let refused = |options: ClaudeOptions| Claude::new(options).unwrap_err();
    let both = ClaudeOptions { builtin_tools: true, bypass_permissions: true, ..fixture.options() };
    assert!(refused(both).contains("builtin_tools"));
    assert!(refused(ClaudeOptions { silence: Duration::ZERO, ..fixture.options() }).contains("silence_seconds"));
    assert!(refused(ClaudeOptions { environment: vec!["A=B".to_owned()], ..fixture.options() }).contains("A=B"));
    let file = fixture.directory().join("file");
    fs::write(&file, "").unwrap();
    assert!(refused(ClaudeOptions { state: Some(file), ..fixture.options() }).contains("file"));
}

#[test]
fn the_models_of_the_cli_are_its_aliases_and_those_of_claude() {
    let fixture = Fixture::new(json!({}));
    let claude = Claude::new(ClaudeOptions { model: Some("my-profile".to_owned()), ..fixture.options() }).unwrap();
    let models = claude.models();
    for model in ["haiku", "opus", "sonnet", "my-profile", "claude-opus-5"] {
        assert!(models.iter().any(|known| known == model), "{model}: {models:?}");
    }
    for model in ["sonnet[1m]", "us.anthropic.claude-opus-5-v1:0", "my-profile"] {
        assert_eq!(claude.check_model(model), Ok(()), "{model}");
    }
    for model in ["gpt-5", "opsu", "gemini-2.5-pro"] {
        assert!(claude.check_model(model).unwrap_err().contains("[[prices]]"), "{model}");
    }
    assert_eq!(claude.usual_model(), Some("my-profile"));
}
