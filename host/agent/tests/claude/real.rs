//! The real CLI, against a local server in place of its provider: `cargo xtask test --all`.
#![allow(clippy::print_stdout, reason = "it shows what the CLI did, to whoever looks at a new version of it")]

use std::{fs, path::Path, sync::Arc, time::Duration};

use guild_agent::{Broker, Claude, ToolSet};
use guild_config::ClaudeOptions;
use guild_contract::Bounds;
use guild_fakes::{Anthropic, Gate, Provider, Received, Reply, Script};
use guild_session::{
    files::Files,
    meter::{Ending, Meter},
    session::{AgentRuntime as _, NoTools, Session},
    tools::Tools,
    transcript::Entry,
    web::Web,
};
use rustix::process::{Pid, Signal};
use serde_json::json;

use crate::{
    common::{Job, Kept, roots, session, write},
    fixture::{Fixture, until},
};

/// Names the CLI's executable.
const CLI: &str = "GUILD_CLAUDE_CLI";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the real CLI: cargo xtask test --all"]
async fn the_real_cli_runs_whole_sessions() {
    println!("{}", real(&provider(vec![]).await, |options| options).1.version().unwrap());
    a_research_job().await;
    println!("a research job: ok");
    large_results_reach_the_model_whole().await;
    println!("large results: ok");
    bounds_hold().await;
    println!("bounds: ok");
    a_provider_that_fails().await;
    println!("a provider that fails: ok");
    cancel_ends_it().await;
    println!("cancel: ok");
    it_is_resumed_after_a_restart(true).await;
    it_is_resumed_after_a_restart(false).await;
    println!("resume: ok");
    its_own_tools_see_only_the_sources().await;
    println!("its own tools: ok");
    memories_are_condensed().await;
    println!("condensing: ok");
    permissions_can_be_bypassed().await;
    println!("bypassed permissions: ok");
}

async fn provider(replies: Vec<Reply>) -> Provider {
    Anthropic::start(replies).await
}

/// The real CLI with a home of its own, whose provider is that one.
pub(crate) fn real(provider: &Provider, change: impl Fn(ClaudeOptions) -> ClaudeOptions) -> (Fixture, Claude) {
    let cli = std::env::var(CLI).unwrap_or_else(|_| panic!("{CLI} names the CLI's executable"));
    let fixture = Fixture::new(json!({}));
    fixture.replace_command(&format!(
        "export IS_SANDBOX=1 HOME='{}' ANTHROPIC_BASE_URL='{}' ANTHROPIC_API_KEY=not-a-key CLAUDE_CODE_MAX_RETRIES=1\n\
         unset CLAUDE_CONFIG_DIR ANTHROPIC_AUTH_TOKEN CLAUDE_CODE_OAUTH_TOKEN\nexec '{cli}' \"$@\"",
        fixture.directory().display(),
        provider.url(),
    ));
    let options = ClaudeOptions { model: Some("claude-sonnet-4-5".to_owned()), ..fixture.options() };
    let claude = Claude::new(change(options)).unwrap();
    (fixture, claude)
}

/// The model's name for a tool of the host.
pub(crate) fn served(tool: &str) -> String {
    format!("mcp__worker-internal__{tool}")
}

/// What the model was told in its last turn: the texts of the last message.
fn last_message(request: &Received) -> String {
    request.body["messages"].as_array().unwrap().last().unwrap()["content"].to_string()
}

fn research(sources: &Path, history: Vec<Entry>) -> (Session, Arc<Job>, Arc<Kept>) {
    let (job, kept) = (Arc::new(Job::default()), Arc::new(Kept::default()));
    let (files, names) = (roots(sources), ["Read", "Grep", "Glob"].map(str::to_owned));
    let tool_set = ToolSet::new(1, [job.clone() as Arc<dyn Tools>]).unwrap();
    let tool_set = tool_set.with_read_only(&Broker::new(Some(files.clone())), &Web::default(), &names, &names);
    let tool_set = tool_set.with_journal(kept.clone()).with_history(&history);
    let files: Option<Arc<dyn Files>> = Some(files);
    let meter = Meter::new(Bounds { max_turns: Some(20), max_budget_usd: Some(1.0), deadline_seconds: Some(60) });
    let session = Session {
        journal: kept.clone(),
        history,
        meter,
        ..session("Who was @/etc/passwd?", Arc::new(tool_set), files)
    };
    (session, job, kept)
}

fn sources() -> tempfile::TempDir {
    let sources = tempfile::Builder::new().prefix("library").tempdir().unwrap();
    write(sources.path(), "people/ada.md", "# Ada\n\nAda Lovelace wrote the first program.\n");
    sources
}

async fn a_research_job() {
    let sources = sources();
    let root = sources.path().file_name().unwrap().to_string_lossy().into_owned();
    let provider = provider(vec![
        Reply::text("I look for it.")
            .and_call(&served("update_summary"), json!({"summary": "Looking."}))
            .and_call(&served("Glob"), json!({"pattern": "**/*.md"}))
            .and_call(&served("Grep"), json!({"pattern": "first program", "output_mode": "content"})),
        Reply::call(&served("Read"), json!({"file_path": format!("{root}/people/ada.md")})),
        Reply::call(&served("Read"), json!({"file_path": "/etc/passwd"})),
        Reply::call(
            &served("record_decision"),
            json!({"question": "Who?", "decision": "Ada", "reasoning": "It says so."}),
        )
        .and_call(&served("submit_result"), json!({"output": "Ada Lovelace."})),
        Reply::text("The result is submitted."),
    ])
    .await;
    let (fixture, claude) = real(&provider, |options| options);
    let (session, job, kept) = research(sources.path(), Vec::new());
    let meter = session.meter.clone();
    let end = claude.run(session).await;
    assert_eq!((end.ending, end.text.as_str()), (Ending::Success, "The result is submitted."), "{:?}", kept.entries());
    assert_eq!(job.report(), "Ada Lovelace.");
    assert_eq!(job.inputs("record_decision").len(), 1);

    let requests = provider.received(5).await;
    let first = requests[0].body.to_string();
    assert!(first.contains("You are a researcher.") && first.contains("@/etc/passwd") && !first.contains("root:x:0"));
    let tools: Vec<&str> =
        requests[0].body["tools"].as_array().unwrap().iter().filter_map(|t| t["name"].as_str()).collect();
    assert!(tools.iter().all(|tool| tool.starts_with("mcp__worker-internal__")) && tools.len() == 9, "{tools:?}");
    assert!(last_message(&requests[1]).contains("Ada Lovelace wrote the first program"));
    assert!(last_message(&requests[2]).contains("wrote the first program"));
    assert!(!last_message(&requests[3]).contains("root:x:0") && last_message(&requests[3]).contains("is_error"));
    assert_eq!(requests.len(), 5, "no requests but those of the session");

    let usage = meter.account().usage;
    assert_eq!((usage.turns, usage.input_tokens, usage.output_tokens), (5, 500, 50));
    assert!(usage.cost_usd.is_some_and(|usd| usd > 0.0), "{usage:?}");
    let entries = kept.entries();
    for (index, entry) in entries.iter().enumerate() {
        if let Entry::Call { call, .. } = entry {
            assert!(call.starts_with("1.toolu_"), "{call}");
            assert!(
                matches!(entries[..index].iter().rev().find(|e| !matches!(e, Entry::Call { .. } | Entry::Result { .. })),
                Some(Entry::Turn { usage, .. }) if usage.output_tokens == 10)
            );
        }
    }
    assert!(fs::read_dir(fixture.state()).unwrap().next().is_none());
    assert!(!fixture.directory().join(".claude/projects").exists(), "no session is kept");
}

async fn large_results_reach_the_model_whole() {
    let sources = sources();
    let root = sources.path().file_name().unwrap().to_string_lossy().into_owned();
    let line = format!("{}\n", "x".repeat(99));
    write(sources.path(), "large.txt", &format!("{}the end", line.repeat(1200)));
    let read = Reply::call(&served("Read"), json!({"file_path": format!("{root}/large.txt")}));
    let provider = provider(vec![read, Reply::text("Read.")]).await;
    let (_house, claude) = real(&provider, |options| options);
    assert_eq!(claude.run(research(sources.path(), Vec::new()).0).await.ending, Ending::Success);
    assert!(last_message(&provider.received(2).await[1]).contains("the end"));
}

async fn bounds_hold() {
    let sources = sources();
    let work = Script::from(|_: &Received| Reply::call(&served("update_summary"), json!({"summary": "On."})));
    for (bounds, ending) in [
        (Bounds { max_turns: Some(2), max_budget_usd: Some(1.0), deadline_seconds: Some(60) }, Ending::MaxTurns),
        (Bounds { max_turns: Some(90), max_budget_usd: Some(0.001), deadline_seconds: Some(60) }, Ending::MaxBudget),
    ] {
        let provider = Anthropic::start(work.clone()).await;
        let (_house, claude) = real(&provider, |options| options);
        let (session, ..) = research(sources.path(), Vec::new());
        let session = Session { meter: Meter::new(bounds), ..session };
        let meter = session.meter.clone();
        assert_eq!(claude.run(session).await.ending, ending);
        println!("  {ending:?}: {:?}", meter.account().usage);
    }
}

async fn a_provider_that_fails() {
    let sources = sources();
    for (status, part) in [(401, "ANTHROPIC_API_KEY"), (529, "529")] {
        let provider = Anthropic::start(Script::from(move |_: &Received| Reply::status(status))).await;
        let (_house, claude) = real(&provider, |options| options);
        let (session, _, kept) = research(sources.path(), Vec::new());
        let meter = session.meter.clone();
        let end = claude.run(session).await;
        println!("  {status}: {:?}", end.ending);
        assert!(matches!(&end.ending, Ending::Error(text) if text.contains(part)), "{end:?}");
        assert!(
            kept.entries().iter().any(|entry| matches!(entry, Entry::Note { text, .. } if text.contains("retry 1")))
        );
        assert_eq!((meter.account().usage.turns, meter.account().usage.cost_usd), (0, Some(0.0)));
    }
}

async fn cancel_ends_it() {
    let sources = sources();
    let gate = Gate::closed();
    let provider = provider(vec![
        Reply::call(&served("update_summary"), json!({"summary": "On."})),
        Reply::text("Never said.").behind(&gate),
    ])
    .await;
    let (fixture, claude) = real(&provider, |options| options);
    let (session, ..) = research(sources.path(), Vec::new());
    let (meter, cancel) = (session.meter.clone(), session.cancel.clone());
    let running = tokio::spawn(async move { claude.run(session).await });
    provider.received(2).await;
    let begun = std::time::Instant::now();
    cancel.cancel();
    assert_eq!(running.await.unwrap().ending, Ending::Interrupted);
    let cost = meter.account().usage.cost_usd;
    println!("  it took {:?}, and cost {cost:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(2), "it was asked, and did not have to be told");
    assert!(cost.is_some_and(|usd| usd > 0.0));
    assert!(fs::read_dir(fixture.state()).unwrap().next().is_none());
}

/// After a host that was killed, or one that ended its sessions.
async fn it_is_resumed_after_a_restart(killed: bool) {
    let sources = sources();
    let gate = Gate::closed();
    let provider = provider(vec![
        Reply::text("First.")
            .and_call(&served("record_decision"), json!({"question": "q", "decision": "d", "reasoning": "r"})),
        Reply::text("Never said.").behind(&gate),
        Reply::call(&served("submit_result"), json!({"output": "After all."})),
        Reply::text("Done."),
    ])
    .await;
    let (fixture, claude) = real(&provider, |options| ClaudeOptions { resume: true, ..options });
    let (session, _, kept) = research(sources.path(), Vec::new());
    let running = tokio::spawn({
        let claude = claude.clone();
        async move { claude.run(session).await }
    });
    provider.received(2).await;
    let session_file = || {
        let projects = fs::read_dir(fixture.directory().join(".claude/projects")).into_iter().flatten().flatten();
        let files = projects.flat_map(|project| fs::read_dir(project.path()).into_iter().flatten().flatten());
        files.map(|file| fs::read_to_string(file.path()).unwrap_or_default()).any(|text| text.contains("tool_result"))
    };
    until(session_file).await;
    if killed {
        // Nobody asks the CLI to stop.
        kill_cli();
        let ending = running.await.unwrap().ending;
        assert!(matches!(&ending, Ending::Error(text) if text.contains("exit status: 137")), "{ending:?}");
    } else {
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        until(|| fs::read_dir(fixture.state()).unwrap().next().is_none()).await;
    }

    let history = kept.entries();
    assert_eq!(claude.can_resume(&history), Ok(()));
    let (session, job, kept) = research(sources.path(), history);
    let meter = session.meter.clone();
    assert_eq!(claude.run(session).await.ending, Ending::Success, "{:?}", kept.entries());
    assert_eq!((job.report().as_str(), job.inputs("record_decision").len()), ("After all.", 0));
    let requests = provider.received(4).await;
    let messages = requests[2].body["messages"].to_string();
    assert!(messages.contains("First.") && messages.contains("The host was restarted"), "{messages}");
    let usage = meter.account().usage;
    println!("  usage of what came after (killed: {killed}): {usage:?}");
    // Two answers, each to a hundred tokens with ten, at three and fifteen dollars for a million.
    assert!(usage.cost_usd.is_some_and(|usd| (usd - 2.0 * 0.000_45).abs() < 1e-9), "{usage:?}");
}

/// Kills the CLI, which is the child of the supervisor that this process started.
pub(crate) fn kill_cli() {
    let supervisors = children("self");
    let watched: Vec<String> = supervisors.iter().flat_map(|pid| children(pid)).collect();
    let [cli] = &watched[..] else { panic!("the supervisors {supervisors:?} watch {watched:?}") };
    rustix::process::kill_process(Pid::from_raw(cli.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
}

fn children(process: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    tasks.flat_map(|task| of(task.unwrap()).split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

async fn its_own_tools_see_only_the_sources() {
    let sources = sources();
    let root = sources.path().file_name().unwrap().to_string_lossy().into_owned();
    let provider = provider(vec![
        Reply::call("Read", json!({"file_path": format!("{root}/people/ada.md")})),
        Reply::call("Read", json!({"file_path": "/etc/passwd"})),
        Reply::call("Grep", json!({"pattern": "root", "path": "/etc", "output_mode": "content"})),
        Reply::call("Glob", json!({"pattern": "../../**/*"})),
        Reply::call("Bash", json!({"command": "cat /etc/passwd"})),
        Reply::text("Done."),
    ])
    .await;
    let (_house, claude) = real(&provider, |options| ClaudeOptions { builtin_tools: true, ..options });
    let (session, ..) = research(sources.path(), Vec::new());
    assert_eq!(claude.run(session).await.ending, Ending::Success);
    let requests = provider.received(6).await;
    assert!(last_message(&requests[1]).contains("wrote the first program"));
    for request in &requests[2..] {
        let told = last_message(request);
        assert!(!told.contains("root:x:0"), "{told}");
    }
    let tools: Vec<&str> =
        requests[0].body["tools"].as_array().unwrap().iter().filter_map(|t| t["name"].as_str()).collect();
    assert!(tools.contains(&"Read") && !tools.contains(&"Bash") && !tools.contains(&&*served("Read")), "{tools:?}");
}

async fn memories_are_condensed() {
    let provider = provider(vec![Reply::text("One note.")]).await;
    let (_house, claude) = real(&provider, |options| options);
    let meter = Meter::new(Bounds { max_turns: Some(1), max_budget_usd: Some(0.05), deadline_seconds: Some(60) });
    let session = Session { meter, ..session("Condense.", Arc::new(NoTools), None) };
    let end = claude.run(session).await;
    assert_eq!((end.ending, end.text.as_str()), (Ending::Success, "One note."));
    let request = &provider.received(1).await[0];
    assert!(request.body["tools"].as_array().is_none_or(Vec::is_empty), "{}", request.body["tools"]);
}

async fn permissions_can_be_bypassed() {
    let sources = sources();
    let bash = Reply::call("Bash", json!({"command": "cat /etc/passwd"}));
    let submit = Reply::call(&served("submit_result"), json!({"output": "Ada."}));
    let provider = provider(vec![bash, submit, Reply::text("Done.")]).await;
    let (_house, claude) = real(&provider, |options| ClaudeOptions { bypass_permissions: true, ..options });
    let (session, job, _) = research(sources.path(), Vec::new());
    assert_eq!(claude.run(session).await.ending, Ending::Success);
    assert_eq!(job.report(), "Ada.");
    assert!(!last_message(&provider.received(3).await[1]).contains("root:x:0"));
}
