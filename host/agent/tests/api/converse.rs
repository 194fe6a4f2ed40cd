//! Sessions that converse: each run answers one message, and goes on with all that was said before.

use std::{pin::pin, sync::Arc};

use futures::future::pending;
use guild_agent::{ToolSet, api::Api};
use guild_config::{ApiOptions, Provider};
use guild_contract::Bounds;
use guild_fakes::{Gate, Received, Reply, Script};
use guild_session::{
    meter::Ending,
    session::{AgentRuntime as _, SessionEnd},
    tools::Tools,
    transcript::{Entry, Journal as _, Line, dangling_calls},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::setting::{Desk, PROVIDERS, Setting, Transcript, fake_server, options, run, setting};

/// How many events each provider sends before the first piece of an answer.
const EVENTS_BEFORE: [usize; 4] = [3, 1, 0, 0];

/// A conversation on a fake.
struct Conversation {
    options: ApiOptions,
    desk: Arc<Desk>,
    transcript: Arc<Transcript>,
    chars: u64,
    /// Interrupts the turn.
    cancel: CancellationToken,
}

impl Conversation {
    async fn new(provider: Provider, script: impl Into<Script>, desk: Arc<Desk>) -> (guild_fakes::Provider, Self) {
        let (server, base) = fake_server(provider, script).await;
        let (options, transcript) = (options(provider, &base), Arc::new(Transcript::default()));
        let cancel = CancellationToken::new();
        (server, Self { options, desk, transcript, chars: 400_000, cancel })
    }

    /// The turn that answers this, as a host begins it that knows nothing but the transcript.
    async fn say(&self, text: &str) -> SessionEnd {
        self.settle();
        self.transcript.write(&Entry::Message { session: 1, text: text.to_owned() });
        let history: Vec<Entry> = serde_json::from_str(&serde_json::to_string(&self.entries()).unwrap()).unwrap();
        let desk: Arc<dyn Tools> = self.desk.clone();
        let tools = ToolSet::new(1, [desk]).unwrap();
        let tools = tools.with_journal(self.transcript.clone()).with_conversation(&history);
        let Setting { mut session, .. } = setting(self.desk.clone(), Bounds::default());
        session.tools = Arc::new(tools.with_cancel(self.cancel.clone()));
        (session.converses, session.conversation_chars, session.prompt) = (true, self.chars, String::new());
        (session.cancel, session.journal, session.history) = (self.cancel.clone(), self.transcript.clone(), history);
        let (api, meter) = (Api::new(self.options.clone()).unwrap(), session.meter.clone());
        let end = api.run(session).await;
        let ending = end.ending.reason(meter.bounds()).unwrap_or_else(|| "success".to_owned());
        let usage = meter.account().usage;
        self.transcript.write(&Entry::End { session: 1, ending, text: end.text.clone(), usage });
        end
    }

    /// A turn that is interrupted as soon as this holds of the transcript.
    async fn interrupted(&mut self, text: &str, when: impl Fn(&[Entry]) -> bool) -> SessionEnd {
        let end = {
            let mut turn = pin!(self.say(text));
            tokio::select! {
                end = &mut turn => end,
                () = self.transcript.until(when) => {
                    self.cancel.cancel();
                    turn.await
                }
            }
        };
        self.cancel = CancellationToken::new();
        end
    }

    /// As the caller does before it goes on: calls without a result get one.
    fn settle(&self) {
        let line = |entry| Line { at: String::new(), entry };
        let lines: Vec<Line> = self.entries().into_iter().map(line).collect();
        dangling_calls(&lines).iter().for_each(|call| self.transcript.write(&call.result(call.tool == "look")));
    }

    fn entries(&self) -> Vec<Entry> {
        self.transcript.entries()
    }

    fn pieces(&self) -> Vec<String> {
        pieces(&self.entries())
    }

    /// The texts of the answers.
    fn answers(&self) -> Vec<String> {
        let text = |entry| match entry {
            Entry::Turn { text, .. } => Some(text),
            _ => None,
        };
        self.entries().into_iter().filter_map(text).collect()
    }

    fn compacted(&self) -> usize {
        self.entries().iter().filter(|entry| matches!(entry, Entry::Compacted { .. })).count()
    }
}

fn pieces(entries: &[Entry]) -> Vec<String> {
    let piece = |entry: &Entry| match entry {
        Entry::Text { text, .. } => Some(text.clone()),
        _ => None,
    };
    entries.iter().filter_map(piece).collect()
}

fn success(text: &str) -> SessionEnd {
    SessionEnd { ending: Ending::Success, text: text.to_owned() }
}

/// The roles of a request's messages, in order.
fn roles(request: &Received) -> Vec<String> {
    let messages = request.body["messages"].as_array().unwrap();
    messages.iter().map(|message| message["role"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_answer_is_in_the_transcript_piece_by_piece_before_it_ends() {
    for (provider, before) in PROVIDERS.into_iter().zip(EVENTS_BEFORE) {
        let gate = Gate::closed();
        let script = vec![Reply::text("It is forty-two, as I said.").slowly(&gate)];
        let (_server, talk) = Conversation::new(provider, script, Desk::new()).await;
        let mut turn = pin!(talk.say("What is it?"));
        gate.pass(before);
        for there in 1..=2 {
            gate.pass(1);
            tokio::select! {
                end = &mut turn => panic!("{provider:?}: {end:?}"),
                () = talk.transcript.until(|entries| pieces(entries).len() == there) => {}
            }
        }
        gate.open();
        assert_eq!(turn.await, success("It is forty-two, as I said."), "{provider:?}");
        assert_eq!(talk.pieces(), ["It is forty-", "two, as I sa", "id."], "{provider:?}");
        assert_eq!(talk.answers(), ["It is forty-two, as I said."]);
    }
}

#[tokio::test]
async fn a_session_that_does_not_converse_writes_no_pieces() {
    let (_server, base) = fake_server(Provider::Anthropic, vec![Reply::text("It is forty-two.")]).await;
    let fixture = setting(Desk::new(), Bounds::default());
    assert_eq!(run(options(Provider::Anthropic, &base), fixture.session).await, success("It is forty-two."));
    assert_eq!(pieces(&fixture.transcript.entries()), Vec::<String>::new());
}

#[tokio::test]
async fn the_next_turn_goes_on_with_what_was_said_and_calls_nothing_again() {
    for provider in PROVIDERS {
        let script = vec![
            Reply::text("I look.")
                .and_call("look", json!({"value": "a map"}))
                .and_call("act", json!({"value": "a deed"})),
            Reply::text("There is a map."),
            Reply::text("As I said, a map."),
        ];
        let (server, talk) = Conversation::new(provider, script, Desk::new()).await;
        assert_eq!(talk.say("What is there?").await, success("There is a map."), "{provider:?}");
        assert_eq!(talk.say("Again?").await, success("As I said, a map."), "{provider:?}");
        assert_eq!(talk.desk.ids(), ["1.1.0", "1.1.1"], "{provider:?}");
        let (before, last) = (server.requests()[1].body.to_string(), server.requests()[2].body.to_string());
        for said in ["What is there?", "I look.", "a map", "a deed", "There is a map.", "Again?"] {
            assert!(last.contains(said), "{provider:?} was not told {said:?}: {last}");
        }
        assert!(!before.contains("Again?"));
        let turns: Vec<u32> = talk
            .entries()
            .iter()
            .filter_map(|entry| match entry {
                Entry::Turn { turn, .. } => Some(*turn),
                _ => None,
            })
            .collect();
        assert_eq!(turns, [1, 2, 3], "turns are numbered through the whole conversation");
    }
}

#[tokio::test]
async fn requests_of_later_turns_begin_as_those_before_them() {
    let script = vec![
        Reply::default().and_thinking("Let me see.", "sig-1").and_call("look", json!({"value": "x"})),
        Reply::text("The answer is that forty").stop("max_tokens"),
        Reply::text("-two is enough."),
        Reply::text("Yes."),
    ];
    let (server, talk) = Conversation::new(Provider::Anthropic, script, Desk::new()).await;
    assert_eq!(talk.say("What is it?").await, success("The answer is that forty-two is enough."));
    assert_eq!(talk.say("Really?").await, success("Yes."));
    let requests = server.requests();
    let plain = |request: &Received| {
        let mut messages = request.body["messages"].clone();
        messages.as_array_mut().unwrap().iter_mut().for_each(|message| message["content"] = json!(text_of(message)));
        messages.as_array().unwrap().clone()
    };
    let (before, last) = (plain(&requests[2]), plain(&requests[3]));
    assert_eq!(before, last[..before.len()], "a provider's cache knows them");
    assert_eq!(last.len(), before.len() + 2);
}

#[tokio::test]
async fn an_interrupt_ends_the_turn_and_the_next_one_knows_what_was_shown() {
    for (provider, before) in PROVIDERS.into_iter().zip(EVENTS_BEFORE) {
        let script =
            vec![Reply::text("It begins, and it goes on.").stalls_after(before + 1), Reply::text("Well then.")];
        let (server, mut talk) = Conversation::new(provider, script, Desk::new()).await;
        let end = talk.interrupted("Tell me.", |entries| !pieces(entries).is_empty()).await;
        assert_eq!(end.ending, Ending::Interrupted, "{provider:?}");
        let shown = talk.pieces().concat();
        assert!(!shown.is_empty() && talk.answers().is_empty(), "{provider:?}: a cut-off answer is no turn");
        assert_eq!(talk.say("Shorter, please.").await, success("Well then."), "{provider:?}");
        let last = server.requests()[1].body.to_string();
        assert!(last.contains(&shown) && last.contains("Shorter, please."), "{provider:?}: {last}");
    }
}

#[tokio::test]
async fn a_call_that_was_interrupted_is_not_made_again_and_the_model_is_told() {
    for provider in PROVIDERS {
        let script = vec![
            Reply::call("act", json!({"value": "x"})).and_call("act", json!({"value": "y"})),
            Reply::text("I will look first."),
        ];
        let desk = Desk::answering(|_| Box::pin(pending::<Result<Value, _>>()));
        let (server, mut talk) = Conversation::new(provider, script, desk).await;
        let begun = |entries: &[Entry]| entries.iter().any(|entry| matches!(entry, Entry::Call { .. }));
        assert_eq!(talk.interrupted("Do it.", begun).await.ending, Ending::Interrupted);
        assert_eq!(talk.say("Go on.").await, success("I will look first."), "{provider:?}");
        assert_eq!(talk.desk.ids(), ["1.1.0"], "{provider:?}");
        let last = server.requests()[1].body.to_string();
        assert!(last.contains("it may have had its effect"), "{provider:?}: {last}");
        assert!(last.contains("not made: the turn was interrupted before the call"), "{provider:?}: {last}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_goes_on_and_nothing_of_it_is_shown_twice() {
    let begun = || Reply::text("It begins, and it goes on, and it ends.");
    let said = "It begins, and it goes on, and it ends.";
    for (provider, before) in PROVIDERS.into_iter().zip(EVENTS_BEFORE) {
        // The model begins anew after each failure: of the connection, of a server that ends early, and one that it
        // names.
        let fails = match provider {
            Provider::Anthropic => begun().fails_after(before + 2, "overloaded_error"),
            Provider::OpenAi => begun().fails_after(before + 2, "server_error"),
            Provider::Gemini => begun().fails_after(before + 2, "UNAVAILABLE"),
            Provider::Ollama => begun().ends_after(before + 2),
        };
        let anew = vec![begun().broken_after(before + 3), begun().ends_after(before + 1), fails, begun()];
        let (server, talk) = Conversation::new(provider, anew, Desk::new()).await;
        let end = talk.say("Tell me.").await;
        assert_eq!((end.text.as_str(), talk.pieces().concat().as_str()), (said, said), "{provider:?}");
        assert_eq!((server.count(), talk.answers()), (4, vec![said.to_owned()]), "{provider:?}");
        assert!(server.requests()[3].body.to_string().contains("Continue exactly where it stopped"), "{provider:?}");
        // It goes on as it is asked to, from wherever that is.
        let script = Script::from(move |request: &Received| match shown_before(request) {
            None => begun().broken_after(before + 2),
            Some(shown) => Reply::text(said.strip_prefix(&shown).unwrap()),
        });
        let (_server, talk) = Conversation::new(provider, script, Desk::new()).await;
        assert_eq!(talk.say("Tell me.").await, success(said), "{provider:?}");
        assert_eq!(talk.pieces().concat(), said, "{provider:?}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_before_its_calls_still_makes_them() {
    let script = vec![
        Reply::text("I look it up now.").and_call("look", json!({"value": "x"})).broken_after(4),
        Reply::default().and_thinking("Hm.", "sig").and_call("look", json!({"value": "x"})),
        Reply::text("Here."),
        Reply::text("Yes."),
    ];
    let (server, talk) = Conversation::new(Provider::Anthropic, script, Desk::new()).await;
    assert_eq!(talk.say("Look.").await, success("Here."));
    assert_eq!(talk.desk.ids(), ["1.1.0"]);
    let first = talk.pieces()[0].clone();
    assert_eq!(talk.answers()[0], first);
    assert_eq!(talk.say("Sure?").await, success("Yes."));
    let answered = server.requests()[3].body["messages"][1]["content"].clone();
    let kinds: Vec<&str> = answered.as_array().unwrap().iter().map(|part| part["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use"], "what was shown is part of the answer");
}

#[tokio::test]
async fn a_conversation_that_does_not_fit_loses_its_oldest_exchanges_whole() {
    let long = |text: &str| format!("{text} {}", "x".repeat(300));
    let script = Script::from(move |request: &Received| match request.body.to_string().contains("second") {
        false if request.turn() == 0 => Reply::call("look", json!({"value": long("found first")})),
        _ => Reply::text(long("answer")),
    });
    let (server, mut talk) = Conversation::new(Provider::Anthropic, script, Desk::new()).await;
    talk.chars = 1900;
    for message in ["the first", "the second", "the third", "the fourth", "the fifth"] {
        assert_eq!(talk.say(message).await.ending, Ending::Success);
    }
    assert_eq!(talk.compacted(), 1);
    let requests = server.requests();
    let last = requests.last().unwrap();
    let told = last.body["messages"].to_string();
    assert!(!told.contains("the first") && !told.contains("found first"), "{told}");
    assert!(told.contains("the fifth") && told.contains("is left out"), "{told}");
    assert_eq!(last.body["messages"][0]["role"], "user");
    let calls = |kind: &str| told.matches(kind).count();
    assert_eq!(calls("tool_use\""), calls("tool_result"), "calls are kept with their results");
}

#[tokio::test]
async fn a_conversation_of_exactly_the_limit_is_told_whole_and_of_one_character_less_is_not() {
    // "First." and "Answer." and "Second." are 20 characters.
    for (chars, whole) in [(20, true), (19, false)] {
        let (server, mut talk) =
            Conversation::new(Provider::OpenAi, vec![Reply::text("Answer."), Reply::text("Done.")], Desk::new()).await;
        talk.chars = chars;
        talk.say("First.").await;
        talk.say("Second.").await;
        let last = server.requests()[1].body.to_string();
        assert_eq!((last.contains("First."), talk.compacted()), (whole, usize::from(!whole)), "{last}");
        assert!(last.contains("Second."));
        if !whole {
            assert!(format!("{:?}", talk.entries()).contains("limits.conversation_chars = 19"));
        }
    }
}

#[tokio::test]
async fn a_turn_of_many_calls_loses_its_oldest_ones_and_keeps_what_was_asked() {
    let script = Script::from(|request: &Received| match request.number {
        0..8 => Reply::call("look", json!({"value": format!("found {} {}", request.number, "x".repeat(200))})),
        _ => Reply::text("Done."),
    });
    let (server, mut talk) = Conversation::new(Provider::Anthropic, script, Desk::new()).await;
    talk.chars = 2500;
    assert_eq!(talk.say("Look everywhere.").await, success("Done."));
    assert!(talk.compacted() > 0 && talk.desk.ids().len() == 8);
    let requests = server.requests();
    let told = requests.last().unwrap().body["messages"].to_string();
    assert!(told.contains("Look everywhere.") && told.contains("found 7") && !told.contains("found 0"), "{told}");
    assert_eq!(told.matches("tool_use\"").count(), told.matches("tool_result").count());
}

#[tokio::test]
async fn a_provider_that_refuses_ends_the_turn_with_its_reason_and_the_conversation_goes_on() {
    for provider in PROVIDERS {
        let script = vec![Reply::status(401), Reply::status(500), Reply::text("Here I am.")];
        let (server, mut talk) = Conversation::new(provider, script, Desk::new()).await;
        talk.options.retries = 0;
        for (message, reason) in [("One.", "401"), ("Two.", "500")] {
            let Ending::Error(text) = talk.say(message).await.ending else { panic!("{provider:?}: no error") };
            assert!(text.contains(reason), "{text}");
        }
        assert_eq!(talk.say("Three.").await, success("Here I am."), "{provider:?}");
        let last = server.requests()[2].body.to_string();
        assert!(["One.", "Two.", "Three."].iter().all(|said| last.contains(said)), "{last}");
        if provider == Provider::OpenAi {
            assert_eq!(roles(&server.requests()[2]), ["system", "user"], "no two messages of the user in a row");
        }
    }
}

/// The text of a message, however it is written.
fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        parts => parts.as_array().unwrap().iter().map(|part| part["text"].as_str().unwrap_or_default()).collect(),
    }
}

/// The model's own last message in a request.
fn shown_before(request: &Received) -> Option<String> {
    let messages = ["messages", "contents"].iter().find_map(|name| request.body[*name].as_array())?;
    let own =
        messages.iter().rev().find(|message| ["assistant", "model"].iter().any(|role| message["role"] == *role))?;
    Some(own["parts"][0]["text"].as_str().map_or_else(|| text_of(own), str::to_owned))
}
