//! Going on after a restart, from what the transcript has.

use std::sync::Arc;

use cap_std::{ambient_authority, fs::Dir};
use guild_agent::{ToolSet, api::Api};
use guild_config::Provider;
use guild_contract::{Bounds, Grants, Limits};
use guild_fakes::{Gate, Reply};
use guild_fs::clock::SystemClock;
use guild_jobs::{Accepted, JobStore, JobTools, MemoryStore, NewJob, StoreOptions};
use guild_session::{
    activation::{Plan, SessionPlan},
    meter::Ending,
    session::{AgentRuntime as _, SessionEnd},
    tools::Tools,
    transcript::{Entry, Journal as _},
};
use serde_json::{Value, json};

use crate::setting::{Desk, PROVIDERS, Transcript, fake_server, options, run, setting, with_tools};

fn success(text: &str) -> SessionEnd {
    SessionEnd { ending: Ending::Success, text: text.to_owned() }
}

fn beginning() -> Entry {
    let (agent, system_prompt, prompt) = ("api".into(), "You are a researcher.".into(), "Find it out.".into());
    Entry::Session { session: 1, agent, model: None, system_prompt, prompt, tools: vec!["look".into(), "act".into()] }
}

/// The entries as they come back from a file.
fn read_back(entries: Vec<Entry>) -> Vec<Entry> {
    entries.iter().map(|entry| serde_json::from_str(&serde_json::to_string(entry).unwrap()).unwrap()).collect()
}

/// The session's tools, with what is known of calls before the host stopped.
fn tool_set(tools: &Arc<dyn Tools>, transcript: &Arc<Transcript>, history: &[Entry]) -> Arc<dyn Tools> {
    Arc::new(ToolSet::new(1, [tools.clone()]).unwrap().with_journal(transcript.clone()).with_history(history))
}

#[tokio::test]
async fn a_session_is_resumed_where_it_stopped_and_the_provider_sees_no_difference() {
    for provider in PROVIDERS {
        let replies = || {
            vec![
                Reply::text("One.").and_thinking("Hm.", "sig").and_call("look", json!({"value": "a"})),
                Reply::call("act", json!({"value": "b"})),
                Reply::text("Done."),
            ]
        };
        let (whole, base) = fake_server(provider, replies()).await;
        let desk: Arc<dyn Tools> = Desk::new();
        let mut fixture = setting(desk.clone(), Bounds::default());
        fixture.session.tools = tool_set(&desk, &fixture.transcript, &[]);
        assert_eq!(run(options(provider, &base), fixture.session).await, success("Done."));

        // The same session, whose host stopped while the second turn's call was under way.
        let mut history = [vec![beginning()], fixture.transcript.entries()].concat();
        let answered = |entry: &Entry| matches!(entry, Entry::Result { call, .. } if call == "1.2.0");
        history.truncate(history.iter().position(answered).unwrap());
        let (rest, base) = fake_server(provider, replies().split_off(2)).await;
        let desk = Desk::new();
        let mut fixture = with_tools(&desk);
        fixture.session.history = read_back(history);
        let tools: Arc<dyn Tools> = desk.clone();
        fixture.session.tools = tool_set(&tools, &fixture.transcript, &fixture.session.history);
        let api = Api::new(options(provider, &base)).unwrap();
        assert_eq!(api.can_resume(&fixture.session.history), Ok(()));
        assert_eq!(run(options(provider, &base), fixture.session).await, success("Done."), "{provider:?}");
        assert_eq!(desk.ids(), ["1.2.0"], "only the call without a result is made again, under its id");
        assert_eq!(rest.requests()[0].body, whole.requests()[2].body, "{provider:?}");
        // The next turn has the next number, and the meter counts only what was asked now.
        let turn = fixture.transcript.entries().into_iter().find(|entry| matches!(entry, Entry::Turn { .. }));
        assert!(matches!(turn, Some(Entry::Turn { turn: 3, .. })), "{turn:?}");
        assert_eq!(fixture.meter.account().usage.turns, 1);
    }
}

#[tokio::test]
async fn a_session_that_had_said_its_last_is_not_asked_again() {
    let (_server, base) = fake_server(Provider::Anthropic, vec![Reply::text("Done.")]).await;
    let fixture = with_tools(&Desk::new());
    run(options(Provider::Anthropic, &base), fixture.session).await;
    let history = [vec![beginning()], fixture.transcript.entries()].concat();
    let (server, base) = fake_server(Provider::Anthropic, vec![]).await;
    let mut again = with_tools(&Desk::new());
    again.session.history = read_back(history);
    assert_eq!(run(options(Provider::Anthropic, &base), again.session).await, success("Done."));
    assert_eq!((server.count(), again.meter.account().usage.turns), (0, 0));
}

#[tokio::test]
async fn a_cut_answer_is_continued_after_a_restart() {
    let replies = || vec![Reply::text("Forty").stop("max_tokens"), Reply::text("-two.")];
    let (_server, base) = fake_server(Provider::Anthropic, replies()).await;
    let fixture = with_tools(&Desk::new());
    assert_eq!(run(options(Provider::Anthropic, &base), fixture.session).await, success("Forty-two."));
    let (_server, base) = fake_server(Provider::Anthropic, replies().split_off(1)).await;
    let mut again = with_tools(&Desk::new());
    again.session.history = read_back(vec![beginning(), fixture.transcript.entries()[0].clone()]);
    assert_eq!(run(options(Provider::Anthropic, &base), again.session).await, success("Forty-two."));
}

#[test]
fn an_incomplete_transcript_cannot_be_resumed() {
    let api = Api::new(options(Provider::Anthropic, "http://[::1]:9")).unwrap();
    let turn = |content: Option<Value>| Entry::Turn {
        session: 1,
        turn: 1,
        model: None,
        text: String::new(),
        content,
        usage: guild_contract::Usage::default(),
    };
    assert_eq!(api.can_resume(&[beginning()]), Ok(()));
    for history in [
        vec![],
        vec![turn(None)],
        vec![beginning(), turn(None)],
        vec![beginning(), turn(Some(json!({"parts": 1})))],
        vec![beginning(), Entry::Truncated { text: "limits.transcript_bytes".into() }],
    ] {
        assert!(api.can_resume(&history).is_err(), "{history:?}");
    }
}

#[tokio::test]
async fn a_host_that_stops_in_a_session_leaves_a_job_that_records_each_decision_once() {
    let directory = tempfile::tempdir().unwrap();
    let member = Dir::open_ambient_dir(directory.path(), ambient_authority()).unwrap();
    let limits = Arc::new(Limits::default());
    let store = JobStore::open(&member, StoreOptions { limits: limits.clone(), clock: Arc::new(SystemClock) }).unwrap();
    store.load();
    let memory = MemoryStore::open(&member, limits, Arc::new(SystemClock)).unwrap();
    let plan = Plan::Session(SessionPlan {
        system_prompt: "You are a researcher.".into(),
        prompt: "Find it out.".into(),
        tools: vec![],
        toolbox_tools: vec![],
        model: None,
        bounds: Bounds::default(),
    });
    let plan = Accepted {
        agent: "api".into(),
        granted_tools: vec![],
        grants: Grants::default(),
        ceiling: Bounds::default(),
        plan,
    };
    let (description, task) = ("find it".into(), "Find it out.".into());
    let job = store
        .create(NewJob {
            id: store.new_id(),
            description,
            task,
            config: Value::Null,
            token: None,
            plan,
            attachments: None,
            activation: None,
            follows: None,
            key: None,
        })
        .unwrap();
    let tools: Arc<dyn Tools> = Arc::new(JobTools::new(job.clone(), memory));
    let decide = |n: usize| {
        Reply::call("record_decision", json!({"question": format!("q{n}"), "decision": "yes", "reasoning": "so"}))
    };
    let mut script: Vec<Reply> = (0..9).map(decide).collect();
    script.push(Reply::call("submit_result", json!({"output": "All found out."})));
    script.push(Reply::text("Done."));

    // The host stops while the provider thinks about the fifth turn.
    let gate = Gate::closed();
    let mut first = script.clone();
    first[4] = Reply::text("never").behind(&gate);
    let (server, base) = fake_server(Provider::Anthropic, first).await;
    let mut fixture = setting(tools.clone(), Bounds::default());
    fixture.transcript.write(&beginning());
    fixture.session.tools = tool_set(&tools, &fixture.transcript, &[]);
    let running = tokio::spawn(run(options(Provider::Anthropic, &base), fixture.session));
    server.received(5).await;
    running.abort();
    let _ = running.await;

    // It had not written the fourth call's result down yet, so that nobody knows whether it had its effect.
    let mut history = fixture.transcript.entries();
    assert!(matches!(history.pop(), Some(Entry::Result { call, .. }) if call == "1.4.0"));
    let (_server, base) = fake_server(Provider::Anthropic, script.split_off(4)).await;
    let mut again = setting(tools.clone(), Bounds::default());
    again.session.history = read_back(history);
    again.session.tools = tool_set(&tools, &again.transcript, &again.session.history);
    assert_eq!(run(options(Provider::Anthropic, &base), again.session).await, success("Done."));
    let decisions: Value =
        serde_json::from_str(&member.read_to_string(format!("jobs/{}/decisions.json", job.id())).unwrap()).unwrap();
    let questions: Vec<&str> = decisions.as_array().unwrap().iter().filter_map(|d| d["question"].as_str()).collect();
    assert_eq!(questions, ["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8"]);
    job.complete(None).unwrap();
    assert_eq!(member.read_to_string(format!("jobs/{}/result.md", job.id())).unwrap(), "All found out.");
}
