//! The model of the run's sessions, which writes each request down, and the tool whose effects are counted.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, extract::Path, routing::get};
use guild_fakes::{OpenAi, Provider, Received, Reply};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::history::{Answered, Entry, Recorder};
use crate::support::guest::{ANYTHING, Guest};

/// The tool that has an effect, as the model calls it.
const EFFECT: &str = "box__do";
/// The answer of each tool of the script that was carried out.
const DONE: [(&str, &str); 5] = [
    (EFFECT, "noted outside"),
    ("store_memory", "The memory is stored."),
    ("record_decision", "The decision is recorded."),
    ("log_question", "The question is logged."),
    ("write_artifact", "The artifact is written."),
];
/// The jobs that store a note: every third one up to this key, and then one of so many. More notes would be condensed,
/// and no longer be found by their keys.
const NOTES: (u32, u32) = (150, 20);

/// The task of the job with this key.
pub(super) fn task(key: u32) -> String {
    format!("Run the errand-{key}.")
}

/// The tool calls of a job's turns, the last of which submits the result.
pub(super) fn calls(key: u32, effects: &str) -> Vec<(&'static str, Value)> {
    let effect = |turn: usize| (EFFECT, json!({"u": format!("{effects}/{key}/{turn}")}));
    let note = ("store_memory", json!({"key": format!("note-{key}"), "content": format!("Errand {key} was run.")}));
    let decision = json!({"question": format!("which of {key}?"), "decision": "the first", "reasoning": "it is near"});
    let question = ("log_question", json!({"question": format!("who asked for {key}?")}));
    let artifact = ("write_artifact", json!({"path": format!("bill-{key}.txt"), "contents": format!("{key} coins")}));
    let has_note = if key < NOTES.0 { key.is_multiple_of(3) } else { key.is_multiple_of(NOTES.1) };
    let middle = if has_note { note } else { ("record_decision", decision) };
    let more = if key.is_multiple_of(2) { question } else { artifact };
    vec![effect(0), middle, effect(2), more, ("submit_result", json!({"output": format!("errand {key} is done")}))]
}

/// The number after the first `name` in a text.
fn number_after(text: &str, name: &str) -> Option<u32> {
    let (_, after) = text.split_once(name)?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The entry of a request: its session, its turn and the results that the model was told.
fn request(host: &str, received: &Received, at: u64, effects: &str) -> Option<Entry> {
    let messages = received.body["messages"].as_array()?;
    let of = |role: &'static str| messages.iter().filter(move |message| message["role"] == role);
    let key = of("user").find_map(|message| number_after(&message["content"].to_string(), "errand-"))?;
    let system: String = of("system").map(|message| message["content"].to_string()).collect();
    let notes = system.split("note-").skip(1).filter_map(|text| number_after(&format!("note-{text}"), "note-"));
    let script = calls(key, effects);
    let (mut turn, mut answered) = (0_usize, Vec::new());
    for message in messages {
        match message["role"].as_str() {
            Some("assistant") => turn += 1,
            Some("tool") => {
                let Some((tool, _)) = turn.checked_sub(1).and_then(|turn| script.get(turn)) else { continue };
                let text = message["content"].to_string();
                let is_done = DONE.iter().any(|(done, answer)| done == tool && text.contains(answer));
                answered.push(Answered { turn: turn - 1, tool: (*tool).to_owned(), is_done });
            }
            _ => {}
        }
    }
    let notes = if turn == 0 { notes.collect() } else { Vec::new() };
    Some(Entry::Requested { at, host: host.to_owned(), key, turn, notes, answered })
}

/// The provider of one host. Each answer takes a part of a second.
pub(super) async fn start(host: &'static str, recorder: Arc<Recorder>, effects: String) -> Provider {
    OpenAi::start(move |received: &Received| {
        let Some(entry) = request(host, received, recorder.now(), &effects) else { return Reply::text("Done.") };
        let Entry::Requested { key, turn, .. } = &entry else { return Reply::text("Done.") };
        let reply = match calls(*key, &effects).into_iter().nth(*turn) {
            Some((tool, input)) => Reply::call(tool, input),
            None => Reply::text("Done."),
        };
        let time = Duration::from_millis(100 + u64::from(*key) * 37 % 600);
        recorder.add(entry);
        reply.after(time)
    })
    .await
}

/// Serves `/KEY/TURN`, each request of which is an effect.
pub(super) async fn effects(recorder: Arc<Recorder>) -> SocketAddr {
    let record = async move |Path((key, turn)): Path<(u32, usize)>| {
        recorder.add(Entry::Effect { at: recorder.now(), key, turn });
        "noted"
    };
    let router = Router::new().route("/{key}/{turn}", get(record));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// A toolbox whose tool fetches the address of its input, `{"u":"ADDRESS"}`.
pub(super) fn toolbox() -> Vec<u8> {
    let call =
        "(call $web.fetch (i32.add (local.get 2) (i32.const 6)) (i32.sub (local.get 3) (i32.const 8)) (i32.const 8192))
         (if (i32.load8_u (i32.const 8192))
           (then (return (call $fault (i32.const 2) (i32.load (i32.const 8200)) (i32.load (i32.const 8204))))))
         (call $ok (i32.const 3072) (i32.const 15))";
    Guest::importing(&["web"])
        .tools(&[("do", ANYTHING)])
        .call(call)
        .with(r#"(data (i32.const 3072) "\"noted outside\"")"#)
        .build()
}
