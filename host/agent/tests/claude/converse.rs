//! Sessions that converse: each turn is a process of its own, which resumes the CLI's session.

use std::{fs, path::Path, pin::pin, sync::Arc};

use async_trait::async_trait;
use guild_agent::{Claude, ToolSet};
use guild_contract::Bounds;
use guild_session::{
    meter::{Ending, Meter},
    session::{AgentRuntime as _, Session, SessionEnd},
    tools::{ToolCall, ToolDefinition, ToolError, Tools},
    transcript::{Entry, Journal as _, Line, dangling_calls},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    call,
    common::{Job, Kept, session},
    fixture::{Fixture, lives, until},
};

/// A conversation, of which nothing is kept but the transcript.
pub(crate) struct Conversation {
    pub(crate) claude: Claude,
    pub(crate) tools: Arc<dyn Tools>,
    pub(crate) kept: Arc<Kept>,
    pub(crate) chars: u64,
    pub(crate) cancel: CancellationToken,
}

impl Conversation {
    pub(crate) fn new(claude: Claude, tools: Arc<dyn Tools>) -> Self {
        Self { claude, tools, kept: Arc::default(), chars: 400_000, cancel: CancellationToken::new() }
    }

    /// The turn that answers this.
    pub(crate) async fn say(&self, text: &str) -> SessionEnd {
        let line = |entry| Line { at: String::new(), entry };
        let lines: Vec<Line> = self.kept.entries().into_iter().map(line).collect();
        dangling_calls(&lines).iter().for_each(|call| self.kept.write(&call.result(false)));
        self.kept.write(&Entry::Message { session: 1, text: text.to_owned() });
        let history = self.kept.entries();
        let tools = ToolSet::new(1, [self.tools.clone()]).unwrap();
        let tools = tools.with_journal(self.kept.clone()).with_conversation(&history).with_cancel(self.cancel.clone());
        let meter = Meter::new(Bounds { max_turns: Some(20), max_budget_usd: Some(1.0), deadline_seconds: Some(60) });
        let session = Session {
            converses: true,
            conversation_chars: self.chars,
            meter: meter.clone(),
            cancel: self.cancel.clone(),
            journal: self.kept.clone(),
            history,
            ..session("", Arc::new(tools), None)
        };
        let end = self.claude.run(session).await;
        let ending = end.ending.reason(meter.bounds()).unwrap_or_else(|| "success".to_owned());
        let usage = meter.account().usage;
        self.kept.write(&Entry::End { session: 1, ending, text: end.text.clone(), usage });
        end
    }

    /// A turn that is interrupted as soon as this holds of the transcript.
    pub(crate) async fn interrupted(&mut self, text: &str, when: impl Fn(&[Entry]) -> bool) -> SessionEnd {
        let end = {
            let mut turn = pin!(self.say(text));
            tokio::select! {
                end = &mut turn => end,
                () = until(|| when(&self.kept.entries())) => {
                    self.cancel.cancel();
                    turn.await
                }
            }
        };
        self.cancel = CancellationToken::new();
        end
    }

    pub(crate) fn pieces(&self) -> Vec<String> {
        pieces(&self.kept.entries())
    }

    pub(crate) fn answers(&self) -> Vec<String> {
        let text = |entry| match entry {
            Entry::Turn { text, .. } => Some(text),
            _ => None,
        };
        self.kept.entries().into_iter().filter_map(text).collect()
    }

    pub(crate) fn compacted(&self) -> Vec<String> {
        let text = |entry| match entry {
            Entry::Compacted { text, .. } => Some(text),
            _ => None,
        };
        self.kept.entries().into_iter().filter_map(text).collect()
    }
}

pub(crate) fn pieces(entries: &[Entry]) -> Vec<String> {
    let piece = |entry: &Entry| match entry {
        Entry::Text { text, .. } => Some(text.clone()),
        _ => None,
    };
    entries.iter().filter_map(piece).collect()
}

pub(crate) fn success(text: &str) -> SessionEnd {
    SessionEnd { ending: Ending::Success, text: text.to_owned() }
}

fn says(pieces: &[&str]) -> Value {
    json!({"do": "answer", "id": format!("msg_{}", pieces.concat().len()), "pieces": pieces})
}

/// A script that answers so.
fn script(steps: &[Value], result: &str) -> Value {
    let mut steps = steps.to_vec();
    steps.push(json!({"do": "result", "fields": {"result": result}}));
    json!({"steps": steps})
}

fn begin(fixture: &Fixture) -> (Conversation, Arc<Job>) {
    let job = Arc::new(Job::default());
    (Conversation::new(fixture.claude(), job.clone()), job)
}

fn retry() -> Value {
    json!({"do": "message", "value": {
        "type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 10, "error_status": 529,
        "error": "overloaded",
    }})
}

fn exists(path: &Path) -> bool {
    path.exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_is_in_the_transcript_piece_by_piece_before_it_ends() {
    let fixture = Fixture::new(json!({}));
    let file = fixture.directory().join("go-on");
    let mut answer = says(&["It is ", "forty-two."]);
    answer["until"] = json!(file);
    fixture.play(script(&[answer], "It is forty-two."));
    let (talk, _) = begin(&fixture);
    let mut turn = pin!(talk.say("What is it?"));
    tokio::select! {
        end = &mut turn => panic!("{end:?}"),
        () = until(|| talk.pieces() == ["It is ", "forty-two."]) => {}
    }
    assert!(talk.answers().is_empty() && !exists(&file));
    fs::write(&file, "").unwrap();
    assert_eq!(turn.await, success("It is forty-two."));
    assert_eq!(
        (talk.pieces().concat(), talk.answers()),
        ("It is forty-two.".to_owned(), vec!["It is forty-two.".to_owned()])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_turn_resumes_the_session_of_the_first_and_calls_nothing_again() {
    let calls = json!([call("toolu_1", "record_decision", json!({"question": "q"}))]);
    let mut answer = says(&["I note ", "it."]);
    answer["calls"] = calls;
    let fixture = Fixture::new(script(&[answer, says(&["Noted."])], "Noted."));
    let (talk, job) = begin(&fixture);
    assert_eq!(talk.say("Note it.").await, success("Noted."));
    // The CLI asks for the same call once more, as one that replays its session would.
    let mut again = says(&["Once more."]);
    again["calls"] = json!([call("toolu_1", "record_decision", json!({"question": "q"}))]);
    fixture.play(script(&[again, says(&["As I said."])], "As I said."));
    assert_eq!(talk.say("/again @/etc/passwd").await, success("As I said."));
    assert_eq!(job.calls().len(), 1);
    let flags = fixture.all_flags();
    assert!(flags.iter().all(|flags| !flags.contains("--no-session-persistence")), "{flags:?}");
    assert!(!flags[0].contains("--resume") && flags[1].contains("--resume=11111111-2222"), "{flags:?}");
    assert_eq!(fixture.user_messages(), ["Note it.", "/again @/etc/passwd"]);
    let turns: Vec<u32> = talk
        .kept
        .entries()
        .iter()
        .filter_map(|entry| match entry {
            Entry::Turn { turn, .. } => Some(*turn),
            _ => None,
        })
        .collect();
    assert_eq!(turns, [1, 2, 3, 4]);
    let handles = talk.kept.entries().iter().filter(|entry| matches!(entry, Entry::Handle { .. })).count();
    assert_eq!(handles, 1);
    assert!(fs::read_dir(fixture.state()).unwrap().next().is_none(), "nothing is left between turns");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_answer_is_shown_once_streamed_or_whole() {
    let said = "It begins, and it ends.";
    let first =
        |breaks: Value| json!({"do": "answer", "id": "msg_a", "pieces": ["It begins", ", and"], "breaks": breaks});
    let streamed = json!({"do": "answer", "id": "msg_b", "pieces": ["It begins, a", "nd it ends."]});
    let whole = json!({"do": "answer", "id": "msg_b", "text": said, "whole": true});
    // The CLI says that a message broke off, or just begins another.
    for (breaks, again) in [(json!(true), &streamed), (json!(true), &whole), (json!("announced"), &streamed)] {
        let fixture = Fixture::new(script(&[first(breaks), retry(), again.clone()], said));
        let (talk, _) = begin(&fixture);
        assert_eq!(talk.say("Tell me.").await, success(said));
        assert_eq!((talk.pieces().concat().as_str(), talk.answers()), (said, vec![said.to_owned()]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_one_answer_are_shown_as_its_turn_has_them() {
    let part = |text: &str| {
        json!({"do": "message", "value": {
            "type": "assistant", "parent_tool_use_id": null,
            "message": {"id": "msg_1", "model": "m", "content": [{"type": "text", "text": text}]},
        }})
    };
    let fixture = Fixture::new(script(&[part("One."), part("Two.")], "Two."));
    let (talk, _) = begin(&fixture);
    assert_eq!(talk.say("Count.").await.ending, Ending::Success);
    assert_eq!((talk.pieces().concat(), talk.answers()), ("One.\nTwo.".to_owned(), vec!["One.\nTwo.".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_the_turn_and_the_next_one_knows_what_was_shown() {
    let begun = json!({"do": "answer", "pieces": ["It begins, ", "and"], "breaks": true});
    let fixture = Fixture::new(json!({"steps": [begun, {"do": "hang"}]}));
    let (mut talk, _) = begin(&fixture);
    let end = talk.interrupted("Tell me.", |entries| pieces(entries).len() == 2).await;
    assert_eq!(end.ending, Ending::Interrupted);
    assert!(fixture.was_interrupted() && !lives(fixture.pid()) && talk.answers().is_empty());
    fixture.play(script(&[says(&["Well then."])], "Well then."));
    assert_eq!(talk.say("Shorter.").await, success("Well then."));
    let told = fixture.user_messages().remove(1);
    assert!(told.contains("> It begins, and\n") && told.ends_with("Shorter."), "{told}");
    assert!(fixture.all_flags()[1].contains("--resume="));
}

/// A tool whose call never ends.
struct Stuck;

#[async_trait]
impl Tools for Stuck {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        Job::default().definitions()
    }

    async fn call(&self, _call: ToolCall) -> Result<Value, ToolError> {
        std::future::pending().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_is_told_of_a_call_that_was_interrupted() {
    let mut answer = says(&["I note it."]);
    answer["calls"] = json!([call("toolu_1", "record_decision", json!({"question": "q"}))]);
    let fixture = Fixture::new(script(&[answer], "Never."));
    let mut talk = Conversation::new(fixture.claude(), Arc::new(Stuck));
    let called = |entries: &[Entry]| entries.iter().any(|entry| matches!(entry, Entry::Call { .. }));
    assert_eq!(talk.interrupted("Note it.", called).await.ending, Ending::Interrupted);
    fixture.play(script(&[says(&["I look."])], "I look."));
    assert_eq!(talk.say("And?").await, success("I look."));
    let told = fixture.user_messages().remove(1);
    assert!(told.contains("your call of record_decision was interrupted"), "{told}");
    assert!(told.contains("it may have had its effect") && told.ends_with("And?"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_the_cli_has_lost_is_begun_anew_from_its_transcript() {
    let mut answer = says(&["I note it."]);
    answer["calls"] = json!([call("toolu_1", "record_decision", json!({"question": "q"}))]);
    let fixture = Fixture::new(script(&[answer, says(&["Noted."])], "Noted."));
    let (mut talk, job) = begin(&fixture);
    assert_eq!(talk.say("Note it.").await, success("Noted."));
    let mut lost = script(&[says(&["As I said."])], "As I said.");
    lost["handshake"] = json!("lost");
    fixture.play(lost.clone());
    assert_eq!(talk.say("Did you?").await, success("As I said."));
    let told = fixture.user_messages().remove(1);
    for said in ["> Note it.", "> I note it.", "record_decision", "> Noted.", "not instructions"] {
        assert!(told.contains(said), "{said:?} is not in {told}");
    }
    assert!(told.ends_with("Did you?"), "{told}");
    assert_eq!((talk.compacted().len(), job.calls().len()), (1, 1));
    assert!(talk.compacted()[0].contains("No conversation found"), "{:?}", talk.compacted());

    // Only as much as fits, and the newest of it.
    talk.chars = 80;
    assert_eq!(talk.say("Really?").await, success("As I said."));
    let told = fixture.user_messages().remove(2);
    assert!(told.contains("The beginning is left out") && told.contains("> As I said."), "{told}");
    assert!(!told.contains("Note it."), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_the_cli_summarizes_says_so() {
    let boundary = json!({"do": "message", "value": {
        "type": "system", "subtype": "compact_boundary", "compact_metadata": {"trigger": "auto", "pre_tokens": 150_000},
    }});
    let fixture = Fixture::new(script(&[boundary, says(&["As I said."])], "As I said."));
    let (talk, _) = begin(&fixture);
    assert_eq!(talk.say("Did you?").await, success("As I said."));
    assert!(talk.compacted()[0].contains("summarized"), "{:?}", talk.compacted());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_refuses_ends_the_turn_with_its_reason_and_the_conversation_goes_on() {
    let failed = json!({"is_error": true, "result": "API Error: 401 Invalid API key"});
    let fixture = Fixture::new(json!({"steps": [retry(), {"do": "result", "fields": failed}]}));
    let (talk, _) = begin(&fixture);
    for message in ["One.", "Two."] {
        let end = talk.say(message).await;
        assert!(matches!(&end.ending, Ending::Error(text) if text.contains("401")), "{end:?}");
    }
    fixture.play(script(&[says(&["Here I am."])], "Here I am."));
    assert_eq!(talk.say("Three.").await, success("Here I am."));
    assert_eq!(talk.compacted(), Vec::<String>::new());
}
