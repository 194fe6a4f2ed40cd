//! The tool set: what a session can call, and nothing else.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::{
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use common::{Job, Kept, roots, write};
use guild_agent::{Broker, ToolSet};
use guild_session::{
    files::{Files, GrepRequest, GrepResult, Listing},
    tools::{ToolCall, ToolDefinition, ToolError, Tools},
    transcript::{Entry, Journal},
    web::{Fetch, Hit, Search, Web},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn sources() -> TempDir {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "docs/a.md", "alpha\nBeta\nalpha again\n");
    write(dir.path(), "docs/b.md", "alpha\n");
    write(dir.path(), "docs/a[1]/c.md", "alpha\n");
    dir
}

fn tool_set(dir: &TempDir, granted: &[&str], asked: &[&str]) -> ToolSet {
    let job: Arc<dyn Tools> = Arc::new(Job::default());
    let files = roots(&dir.path().join("docs"));
    let tool_set = ToolSet::new(1, [job]).unwrap();
    tool_set.with_read_only(&Broker::new(Some(files)), &Web::default(), &names(granted), &names(asked))
}

fn call(name: &str, input: Value) -> ToolCall {
    ToolCall { id: format!("1.1.{name}"), name: name.to_owned(), input }
}

async fn answer(tool_set: &ToolSet, name: &str, input: Value) -> String {
    tool_set.call(call(name, input)).await.unwrap().as_str().unwrap().to_owned()
}

/// A set of one tool.
struct Own<F> {
    name: &'static str,
    answer: F,
}

impl<F: Fn() -> Result<Value, ToolError> + Send + Sync + 'static> Own<F> {
    fn tools(name: &'static str, answer: F) -> Arc<dyn Tools> {
        Arc::new(Self { name, answer })
    }
}

#[async_trait]
impl<F: Fn() -> Result<Value, ToolError> + Send + Sync> Tools for Own<F> {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        vec![Arc::new(ToolDefinition {
            name: self.name.to_owned(),
            title: None,
            description: String::new(),
            input_schema: json!({"type": "object"}),
            output_schema: None,
            read_only: false,
        })]
    }

    async fn call(&self, _: ToolCall) -> Result<Value, ToolError> {
        (self.answer)()
    }
}

/// A journal that waits for other hosts' store, with the order of all that happens.
struct Shared {
    order: Arc<Mutex<Vec<&'static str>>>,
    settled: Result<(), ToolError>,
}

#[async_trait]
impl Journal for Shared {
    fn write(&self, entry: &Entry) {
        let entry = match entry {
            Entry::Call { .. } => "call",
            Entry::Result { error: None, .. } => "result",
            Entry::Result { .. } => "error",
            _ => "other",
        };
        self.order.lock().unwrap().push(entry);
    }

    fn log(&self, _: &str) {}

    async fn settled(&self) -> Result<(), ToolError> {
        self.order.lock().unwrap().push("stored");
        self.settled.clone()
    }
}

#[tokio::test]
async fn a_call_with_an_effect_is_made_once_its_entry_is_stored() {
    let dir = sources();
    let unavailable = ToolError::Unavailable("the store cannot be reached".to_owned());
    for (settled, tool, expected) in [
        (Ok(()), "act", &["call", "stored", "effect", "result"][..]),
        (Err(unavailable), "act", &["call", "stored", "error"]),
        // The session ends here, and its job goes on elsewhere.
        (Err(ToolError::JobEnded), "act", &["call", "stored"]),
        // A call that another host may make again waits for nothing.
        (Ok(()), "Read", &["call", "result"]),
        (Ok(()), "log_question", &["call", "result"]),
    ] {
        let order = Arc::new(Mutex::new(Vec::new()));
        let effects = order.clone();
        let act = Own::tools("act", move || {
            effects.lock().unwrap().push("effect");
            Ok(json!("done"))
        });
        let job: Arc<dyn Tools> = Arc::new(Job::default());
        let files = roots(&dir.path().join("docs"));
        let tool_set = ToolSet::new(1, [act, job]).unwrap();
        let read = names(&["Read"]);
        let tool_set = tool_set.with_read_only(&Broker::new(Some(files)), &Web::default(), &read, &read);
        let tool_set = tool_set.with_journal(Arc::new(Shared { order: order.clone(), settled: settled.clone() }));
        let answer = tool_set.call(call(tool, json!({"file_path": "docs/a.md"}))).await;
        assert_eq!((answer.is_ok(), &order.lock().unwrap()[..]), (settled.is_ok(), expected), "{tool}");
    }
}

#[tokio::test]
async fn a_session_has_exactly_what_was_granted_and_asked_for() {
    let dir = sources();
    let every = ["Read", "Grep", "Glob", "WebSearch", "WebFetch", "Write", "Edit", "Bash"];
    let internal =
        ["update_summary", "record_decision", "log_question", "store_memory", "submit_result", "write_artifact"];
    for (granted, asked, read_only) in [
        (&every[..], &every[..], &["Read", "Grep", "Glob"][..]),
        (&["Read", "Grep"], &["Grep", "Glob"], &["Grep"]),
        (&["Read"], &[], &[]),
        (&[], &["Read"], &[]),
    ] {
        let tool_set = tool_set(&dir, granted, asked);
        let offered: Vec<String> = tool_set.definitions().iter().map(|tool| tool.name.clone()).collect();
        assert_eq!(offered, [&internal[..], read_only].concat());
        for name in every.iter().filter(|name| !read_only.contains(name)) {
            let error = tool_set.call(call(name, json!({"file_path": "docs/a.md"}))).await.unwrap_err();
            assert!(matches!(error, ToolError::InvalidInput(text) if text.contains("there is no tool")), "{name}");
        }
    }
}

#[test]
fn what_there_is_nothing_for_is_absent() {
    let every = names(&["Read", "Grep", "Glob", "WebSearch", "WebFetch", "Write"]);
    let dir = sources();
    let (files, none) = (roots(dir.path()), Arc::new(guild_agent::ReadRoots::open::<&str>([]).unwrap()) as _);
    let pages: Arc<Pages> = Arc::default();
    let web = |search: bool, fetch: bool| Web {
        search: search.then(|| pages.clone() as Arc<dyn Search>),
        fetch: fetch.then(|| pages.clone() as Arc<dyn Fetch>),
    };
    for (files, web, there) in [
        (None, web(false, false), &[][..]),
        (Some(none), web(false, true), &["WebFetch"]),
        (Some(files), web(true, false), &["Read", "Grep", "Glob", "WebSearch"]),
    ] {
        let broker = Broker::new(files);
        let tool_set = ToolSet::new(1, []).unwrap().with_read_only(&broker, &web, &every, &every);
        let offered: Vec<String> = tool_set.definitions().iter().map(|tool| tool.name.clone()).collect();
        assert_eq!(offered, there);
        let available: Vec<&String> = every.iter().filter(|name| broker.offers(name, &web)).collect();
        assert_eq!(available, there);
    }
}

#[test]
fn no_tool_is_called_as_one_that_writes_or_runs_commands() {
    for name in ["Write", "Edit", "Bash", "bash", "NotebookEdit"] {
        let refused = ToolSet::new(1, [Own::tools(name, || Ok(Value::Null))]).err().unwrap();
        assert!(matches!(&refused, ToolError::InvalidInput(text) if text.contains(name)), "{refused}");
    }
}

#[tokio::test]
async fn the_read_only_tools_answer_as_agents_know_them() {
    let dir = sources();
    let all = ["Read", "Grep", "Glob"];
    let tool_set = tool_set(&dir, &all, &all);
    let call = async |name: &str, input: Value| answer(&tool_set, name, input).await;
    assert_eq!(call("Read", json!({"file_path": "docs/a.md", "offset": 2, "limit": 1})).await, "     2\tBeta\n");
    write(dir.path(), "docs/empty.txt", "");
    assert_eq!(call("Read", json!({"file_path": "/docs/empty.txt"})).await, "(the file is empty)");
    let mut files: Vec<String> = call("Grep", json!({"pattern": "alpha"})).await.lines().map(str::to_owned).collect();
    files.sort();
    assert_eq!(files, ["docs/a.md", "docs/a[1]/c.md", "docs/b.md"]);
    assert_eq!(
        call("Grep", json!({"pattern": "alpha", "output_mode": "count", "glob": "?.md", "path": "docs/a.md"})).await,
        "docs/a.md:2"
    );
    let content = json!({"pattern": "beta", "-i": true, "output_mode": "content"});
    assert_eq!(call("Grep", content).await, "docs/a.md:2:Beta");
    assert_eq!(call("Grep", json!({"pattern": "beta"})).await, "No files found");
    assert_eq!(call("Grep", json!({"pattern": "beta", "output_mode": "content"})).await, "No matches found");
    assert_eq!(call("Grep", json!({"pattern": "alpha", "path": "docs/a[1]"})).await, "docs/a[1]/c.md");
    assert_eq!(call("Glob", json!({"pattern": "*.md", "path": "docs/a[1]/"})).await, "docs/a[1]/c.md");
    assert_eq!(call("Glob", json!({"pattern": "*.rs"})).await, "No files found");
}

#[tokio::test]
async fn matching_lines_look_as_ripgrep_prints_them() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "docs/a.md", "one\nhit\nthree\nfour\nfive\nhit\nhit\n");
    write(dir.path(), "docs/b.md", "hit\n");
    let tool_set = tool_set(&dir, &["Grep"], &["Grep"]);
    let call = async |input: Value| answer(&tool_set, "Grep", input).await;
    assert_eq!(
        call(json!({"pattern": "hit", "output_mode": "content", "-A": 1})).await,
        "docs/a.md:2:hit\ndocs/a.md-3-three\n--\ndocs/a.md:6:hit\ndocs/a.md:7:hit\n--\ndocs/b.md:1:hit"
    );
    assert_eq!(
        call(json!({"pattern": "four", "output_mode": "content", "-C": 1, "-n": false})).await,
        "docs/a.md-three\ndocs/a.md:four\ndocs/a.md-five"
    );
    let most =
        call(json!({"pattern": "hit", "path": "docs/b.md", "output_mode": "content", "-A": u32::MAX, "-B": 1})).await;
    assert_eq!(most, "docs/b.md:1:hit");
    let paged = |offset: u32| json!({"pattern": "hit", "output_mode": "content", "head_limit": 2, "offset": offset});
    assert_eq!(call(paged(0)).await, "docs/a.md:2:hit\ndocs/a.md:6:hit\n(cut here: go on with offset 2)");
    assert_eq!(call(paged(2)).await, "docs/a.md:7:hit\ndocs/b.md:1:hit");
    assert_eq!(call(paged(9)).await, "No matches found beyond the first 4");
}

#[tokio::test]
async fn a_bad_input_is_answered_with_the_field_that_is_bad() {
    let dir = sources();
    let all = ["Read", "Grep", "Glob"];
    let tool_set = tool_set(&dir, &all, &all);
    for (tool, input, field) in [
        ("Read", json!({}), "file_path"),
        ("Read", json!({"file_path": "docs/a.md", "offset": 0}), "offset"),
        ("Read", json!({"file_path": "docs/a.md", "limit": "ten"}), "limit"),
        ("Read", json!("docs/a.md"), "object"),
        ("Grep", json!({"pattern": "x", "output_mode": "lines"}), "output_mode"),
        ("Glob", json!({"pattern": "*", "paths": "docs"}), "paths"),
    ] {
        let error = tool_set.call(call(tool, input.clone())).await.unwrap_err();
        assert!(matches!(&error, ToolError::InvalidInput(text) if text.contains(field)), "{tool} {input}: {error}");
    }
}

#[tokio::test]
async fn every_call_and_its_result_are_in_the_transcript_as_the_model_saw_them() {
    let dir = sources();
    let kept = Arc::new(Kept::default());
    let tool_set = tool_set(&dir, &["Read"], &["Read"]).with_journal(kept.clone());
    let report = json!({"output": "long ".repeat(100_000)});
    let calls = [
        call("submit_result", report),
        call("Read", json!({"file_path": "docs/none"})),
        call("Bash", json!({"command": "true"})),
    ];
    let mut expected = Vec::new();
    for call in calls {
        let (id, tool, input) = (call.id.clone(), call.name.clone(), call.input.clone());
        expected.push(Entry::Call { session: 1, call: id.clone(), tool, input });
        let result = tool_set.call(call).await;
        let (output, error) = (result.clone().ok(), result.err().map(|error| error.to_string()));
        expected.push(Entry::Result { session: 1, call: id, ms: 0, output, error });
    }
    let entries: Vec<Entry> = kept
        .entries()
        .into_iter()
        .map(|entry| match entry {
            Entry::Result { session, call, output, error, .. } => Entry::Result { session, call, ms: 0, output, error },
            entry => entry,
        })
        .collect();
    assert_eq!(entries, expected);
}

#[tokio::test]
async fn the_call_is_written_before_its_effect() {
    let kept = Arc::new(Kept::default());
    let seen = kept.clone();
    let own = Own::tools("effect", move || Ok(json!(seen.entries().len())));
    let tool_set = ToolSet::new(1, [own]).unwrap().with_journal(kept.clone());
    assert_eq!(tool_set.call(call("effect", json!({}))).await, Ok(json!(1)));
    assert_eq!(kept.entries().len(), 2);
}

#[tokio::test]
async fn a_result_is_bounded_before_anybody_sees_it() {
    let kept = Arc::new(Kept::default());
    let texts: [Result<Value, ToolError>; 3] = [
        Ok(json!("ä".repeat(5000))),
        Ok(json!({"list": vec!["x"; 5000]})),
        Err(ToolError::Unavailable("ä".repeat(5000))),
    ];
    for long in texts {
        let own = Own::tools("long", move || long.clone());
        let tool_set = ToolSet::new(1, [own]).unwrap().with_journal(kept.clone()).with_result_bytes(1000);
        let result = tool_set.call(call("long", json!({}))).await;
        let text = match result {
            Ok(value) => value.as_str().unwrap().to_owned(),
            Err(error) => error.to_string(),
        };
        assert!(text.len() <= 1000 && text.contains("cut here") && text.contains("bytes are left out"), "{text}");
        let Some(Entry::Result { output, error, .. }) = kept.entries().pop() else { panic!("no result") };
        assert_eq!(output.map(|text| text.as_str().unwrap().to_owned()).or(error), Some(text));
    }
}

#[tokio::test]
async fn a_result_of_exactly_the_limit_is_whole_and_of_one_byte_more_is_cut() {
    let answered = async |answer: Result<Value, ToolError>| {
        let own = Own::tools("own", move || answer.clone());
        ToolSet::new(1, [own]).unwrap().with_result_bytes(1000).call(call("own", json!({}))).await
    };
    let cut = |text: &str| {
        format!(
            "{}\n(cut here: 201 of 1001 bytes are left out, the limit is 1000; request less at a time: a narrower \
             search, or a part)",
            text.chars().take(800).collect::<String>()
        )
    };
    // `{"a":""}` has 8 bytes.
    let (text, object) = (|bytes: usize| "x".repeat(bytes), |bytes: usize| json!({"a": "x".repeat(bytes - 8)}));
    for whole in [Ok(json!(text(1000))), Ok(object(1000)), Err(ToolError::Unavailable(text(1000)))] {
        assert_eq!(answered(whole.clone()).await, whole);
    }
    assert_eq!(answered(Ok(json!(text(1001)))).await, Ok(json!(cut(&text(1001)))));
    assert_eq!(answered(Ok(object(1001))).await, Ok(json!(cut(&object(1001).to_string()))));
    let error = answered(Err(ToolError::Unavailable(text(1001)))).await;
    assert_eq!(error, Err(ToolError::Unavailable(cut(&text(1001)))));
}

#[tokio::test]
async fn the_tools_that_can_continue_say_how_within_the_limit() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "docs/long.txt", &(1..=1000).map(|n| format!("line {n}\n")).collect::<String>());
    let all = ["Read", "Grep"];
    let tool_set = tool_set(&dir, &all, &all).with_result_bytes(2000);
    let grep =
        |offset: u64| ("Grep", json!({"pattern": "line", "output_mode": "content", "head_limit": 0, "offset": offset}));
    let read = |offset: u64| ("Read", json!({"file_path": "docs/long.txt", "offset": offset + 1}));
    for page in [&read as &dyn Fn(u64) -> (&'static str, Value), &grep] {
        let (mut offset, mut whole) = (0, String::new());
        for _ in 0..100 {
            let (tool, input) = page(offset);
            let text = answer(&tool_set, tool, input).await;
            assert!(text.len() <= 2000);
            let Some((part, rest)) = text.split_once("(cut here: go on with offset ") else {
                whole.push_str(&text);
                break;
            };
            whole.push_str(part);
            let next: u64 = rest.trim_end_matches(')').parse().unwrap();
            offset = if tool == "Read" { next - 1 } else { next };
        }
        assert_eq!(whole.lines().count(), 1000);
        assert!(whole.trim_end().ends_with("line 1000"));
    }
}

#[tokio::test]
async fn a_call_that_was_answered_before_a_restart_is_not_made_again() {
    let job = Arc::new(Job::default());
    let kept = Arc::new(Kept::default());
    let result = |call: &str, output: Option<Value>, error: Option<&str>| Entry::Result {
        session: 2,
        call: call.to_owned(),
        ms: 1,
        output,
        error: error.map(str::to_owned),
    };
    let called = |call: &str, input: Value| Entry::Call {
        session: 2,
        call: call.to_owned(),
        tool: "store_memory".to_owned(),
        input,
    };
    let history = [
        called("2.1.0", json!({})),
        result("2.1.0", Some(json!("first")), None),
        called("2.1.1", json!({})),
        result("2.1.1", None, Some("not granted: the tool \"x\"")),
        called("2.1.2", json!({})),
        result("2.1.2", None, None),
        called("2.1.3", json!({})),
        called("2.1.4", json!({"key": "another"})),
        result("2.1.4", Some(json!("answer to another")), None),
    ];
    let tool_set =
        ToolSet::new(2, [job.clone() as Arc<dyn Tools>]).unwrap().with_journal(kept.clone()).with_history(&history);
    let again = async |id: &str| {
        tool_set.call(ToolCall { id: id.to_owned(), name: "store_memory".to_owned(), input: json!({}) }).await
    };
    assert_eq!(again("2.1.0").await, Ok(json!("first")));
    assert_eq!(again("2.1.1").await.unwrap_err().to_string(), "not granted: the tool \"x\"");
    assert_eq!(again("2.1.2").await, Ok(Value::Null));
    assert_eq!((job.calls().len(), kept.entries().len()), (0, 0));
    assert_eq!(again("2.1.3").await, Ok(json!("ok")));
    assert_eq!((job.calls()[0].id.as_str(), kept.entries().len()), ("2.1.3", 2));
    // The same id with another input is another call.
    assert_eq!(again("2.1.4").await, Ok(json!("ok")));
    assert_eq!(job.calls().len(), 2);
}

#[tokio::test]
async fn a_call_that_may_have_had_its_effect_is_told_as_interrupted_once_and_not_made_again() {
    let kept = Arc::new(Kept::default());
    let own = Own::tools("send", || panic!("it is called"));
    let called = Entry::Call { session: 1, call: "1.1.0".to_owned(), tool: "send".to_owned(), input: json!({}) };
    let resumed =
        |history: &[Entry]| ToolSet::new(1, [own.clone()]).unwrap().with_journal(kept.clone()).with_history(history);
    let call = || ToolCall { id: "1.1.0".to_owned(), name: "send".to_owned(), input: json!({}) };
    let told = resumed(std::slice::from_ref(&called)).call(call()).await.unwrap_err();
    assert!(told.to_string().contains("it may have had its effect"), "{told}");
    let result = kept.entries();
    assert!(matches!(&*result, [Entry::Result { error: Some(text), .. }] if *text == told.to_string()), "{result:?}");
    // The next host finds the result, and records no second one.
    let history = [vec![called], result].concat();
    assert_eq!(resumed(&history).call(call()).await, Err(told));
    assert_eq!(kept.entries().len(), 1);
}

#[tokio::test]
async fn a_conversation_never_makes_a_call_of_its_history_again() {
    let (job, kept) = (Arc::new(Job::default()), Arc::new(Kept::default()));
    let called = |id: &str, input: Value| Entry::Call {
        session: 2,
        call: id.to_owned(),
        tool: "store_memory".to_owned(),
        input,
    };
    let output = Some(json!("first"));
    let history = [
        called("2.1.0", json!({})),
        Entry::Result { session: 2, call: "2.1.0".to_owned(), ms: 1, output, error: None },
        called("2.1.1", json!({})),
        called("2.1.2", json!({"key": "another"})),
    ];
    let tools = ToolSet::new(2, [job.clone() as Arc<dyn Tools>]).unwrap().with_journal(kept.clone());
    let tools = tools.with_conversation(&history);
    let again = async |id: &str| {
        tools.call(ToolCall { id: id.to_owned(), name: "store_memory".to_owned(), input: json!({}) }).await
    };
    assert_eq!(again("2.1.0").await, Ok(json!("first")));
    assert!(again("2.1.1").await.unwrap_err().to_string().contains("it may have had its effect"));
    assert!(again("2.1.2").await.unwrap_err().to_string().contains("another call with the id"));
    assert_eq!((job.calls().len(), kept.entries().len()), (0, 1));
    assert_eq!(again("2.1.3").await, Ok(json!("ok")));
    assert_eq!((job.calls().len(), kept.entries().len()), (1, 3));
}

#[tokio::test]
async fn a_call_that_the_end_of_its_session_broke_off_was_not_answered() {
    let kept = Arc::new(Kept::default());
    let own = Own::tools("late", || Err(ToolError::JobEnded));
    let tool_set = ToolSet::new(1, [own]).unwrap().with_journal(kept.clone());
    assert_eq!(tool_set.call(call("late", json!({}))).await, Err(ToolError::JobEnded));
    assert!(matches!(kept.entries().as_slice(), [Entry::Call { .. }]));
}

#[tokio::test]
async fn a_denial_is_in_the_log_with_the_tool_and_the_grant() {
    let kept = Arc::new(Kept::default());
    let own = Own::tools("lookup", || Err(ToolError::NotGranted("web.fetch to example.org".to_owned())));
    let tool_set = ToolSet::new(3, [own]).unwrap().with_journal(kept.clone());
    tool_set.call(call("lookup", json!({}))).await.unwrap_err();
    assert_eq!(kept.log(), ["session 3: lookup: not granted: web.fetch to example.org"]);
}

#[tokio::test]
async fn a_tool_that_breaks_off_is_an_answer() {
    let own = Own::tools("breaks", || panic!("it broke"));
    let error = ToolSet::new(1, [own]).unwrap().call(call("breaks", json!({}))).await.unwrap_err();
    assert!(matches!(&error, ToolError::Unavailable(text) if text.contains("breaks")), "{error}");
}

/// A web of one page and some hits.
#[derive(Default)]
struct Pages {
    page: String,
    hits: Vec<Hit>,
}

#[async_trait]
impl Search for Pages {
    async fn search(&self, _: &str, _: u32) -> Result<Vec<Hit>, ToolError> {
        Ok(self.hits.clone())
    }
}

#[async_trait]
impl Fetch for Pages {
    async fn fetch(&self, _: &str) -> Result<String, ToolError> {
        Ok(self.page.clone())
    }
}

fn online(pages: Pages) -> ToolSet {
    let pages = Arc::new(pages);
    let web = Web { search: Some(pages.clone()), fetch: Some(pages) };
    let both = names(&["WebSearch", "WebFetch"]);
    ToolSet::new(1, []).unwrap().with_read_only(&Broker::new(None), &web, &both, &both)
}

#[tokio::test]
async fn a_page_is_read_part_by_part_without_losing_a_character() {
    let page: String = (0..30_000).map(|n| if n % 7 == 0 { 'ä' } else { 'x' }).collect();
    let tool_set = online(Pages { page: page.clone(), hits: Vec::new() }).with_result_bytes(10_000);
    let (mut offset, mut whole) = (0, String::new());
    while whole.len() < page.len() {
        let text = answer(&tool_set, "WebFetch", json!({"url": "https://example.org", "offset": offset})).await;
        assert!(text.len() <= 10_000);
        let (part, last) = text.split_once("\n\n(characters ").unwrap_or((&text, ""));
        whole.push_str(part);
        offset = last.split_once("offset ").map_or(0, |(_, next)| next.trim_end_matches(')').parse().unwrap());
    }
    assert_eq!(whole, page);
    let past =
        tool_set.call(call("WebFetch", json!({"url": "https://example.org", "offset": 30_000}))).await.unwrap_err();
    assert!(past.to_string().contains("30000 characters"), "{past}");
    let empty = online(Pages::default());
    assert_eq!(answer(&empty, "WebFetch", json!({"url": "https://example.org"})).await, "(the page has no text)");
}

#[tokio::test]
async fn the_answers_of_a_search_are_a_numbered_list() {
    let hit = |title: &str, url: &str, snippet: &str| Hit {
        title: title.to_owned(),
        url: url.to_owned(),
        snippet: snippet.to_owned(),
    };
    let hits = vec![hit("One\npage", "https://example.org/1", "Some\n  text."), hit("", "docs/a.md", "")];
    let tool_set = online(Pages { hits, ..Pages::default() });
    assert_eq!(
        answer(&tool_set, "WebSearch", json!({"query": "x"})).await,
        "1. **One page**\n   https://example.org/1\n   Some text.\n\n2. **docs/a.md**\n   docs/a.md\n"
    );
    let first = answer(&tool_set, "WebSearch", json!({"query": "x", "limit": 1})).await;
    assert!(first.starts_with("1. ") && !first.contains("\n2. "), "{first}");
    assert_eq!(answer(&online(Pages::default()), "WebSearch", json!({"query": "x"})).await, "No results found");
    assert!(tool_set.call(call("WebSearch", json!({"query": " "}))).await.unwrap_err().to_string().contains("query"));
}

/// Read roots in which a search goes on until it is cancelled.
struct Endless {
    inner: Arc<dyn Files>,
    state: Mutex<&'static str>,
    changed: Condvar,
}

impl Endless {
    fn becomes(&self, state: &'static str) {
        *self.state.lock().unwrap() = state;
        self.changed.notify_all();
    }

    fn wait_until(&self, wanted: &str) {
        let state = self.state.lock().unwrap();
        let bound = Duration::from_secs(10);
        let (state, _) = self.changed.wait_timeout_while(state, bound, |state| *state != wanted).unwrap();
        assert_eq!(*state, wanted);
    }
}

impl Files for Endless {
    fn roots(&self) -> Vec<String> {
        self.inner.roots()
    }

    fn walk(&self, cancel: &CancellationToken) -> Result<Listing, ToolError> {
        self.inner.walk(cancel)
    }

    fn bytes(&self, path: &str, max: u64) -> Result<Vec<u8>, ToolError> {
        self.inner.bytes(path, max)
    }

    fn read(&self, path: &str, offset: u32, limit: u32) -> Result<String, ToolError> {
        self.inner.read(path, offset, limit)
    }

    fn grep(&self, request: &GrepRequest, cancel: &CancellationToken) -> Result<GrepResult, ToolError> {
        self.becomes("searching");
        loop {
            if let Err(stopped) = self.inner.grep(request, cancel) {
                self.becomes("stopped");
                return Err(stopped);
            }
        }
    }

    fn glob(&self, _: &str, _: Option<&str>, _: u32, _: &CancellationToken) -> Result<Vec<String>, ToolError> {
        Ok(Vec::new())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_stops_when_its_call_is_dropped_or_its_session_cancelled() {
    let dir = sources();
    let inner = roots(&dir.path().join("docs"));
    let grep = names(&["Grep"]);
    for dropped in [true, false] {
        let files = Arc::new(Endless { inner: inner.clone(), state: Mutex::new(""), changed: Condvar::new() });
        let cancel = CancellationToken::new();
        let shared: Arc<dyn Files> = files.clone();
        let tool_set = ToolSet::new(1, []).unwrap().with_read_only(
            &Broker::new(Some(shared.clone())),
            &Web::default(),
            &grep,
            &grep,
        );
        let tool_set = tool_set.with_cancel(cancel.clone());
        let search = tokio::spawn(async move { tool_set.call(call("Grep", json!({"pattern": "alpha"}))).await });
        files.wait_until("searching");
        if dropped {
            search.abort();
        } else {
            cancel.cancel();
        }
        files.wait_until("stopped");
    }
}
