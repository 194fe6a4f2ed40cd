//! Conversations on the real CLI, against a local server in place of its provider.
#![allow(clippy::print_stdout, reason = "it shows what the CLI did, to whoever looks at a new version of it")]

use std::{fs, sync::Arc};

use guild_fakes::{Anthropic, Gate, Reply};
use guild_session::{meter::Ending, transcript::Entry};
use serde_json::json;

use crate::{
    common::Job,
    converse::{Conversation, pieces, success},
    fixture::until,
    real::{kill_cli, real, served},
};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the real CLI: cargo xtask test --all"]
async fn the_real_cli_converses() {
    turns_go_on_with_what_was_said().await;
    println!("turns: ok");
    an_interrupted_turn_is_known_to_the_next(false).await;
    println!("interrupt: ok");
    an_interrupted_turn_is_known_to_the_next(true).await;
    println!("kill: ok");
    a_stream_that_breaks_is_shown_once().await;
    println!("retry: ok");
    a_lost_conversation_is_begun_anew().await;
    println!("lost: ok");
}

async fn turns_go_on_with_what_was_said() {
    let decide = json!({"question": "q", "decision": "d", "reasoning": "r"});
    let provider = Anthropic::start(vec![
        Reply::text("I note it, and that is that.").and_call(&served("record_decision"), decide),
        Reply::text("Noted, as you wished."),
        Reply::text("As I said: noted."),
    ])
    .await;
    let (_fixture, claude) = real(&provider, |options| options);
    let job = Arc::new(Job::default());
    let talk = Conversation::new(claude, job.clone());
    assert_eq!(talk.say("Note it.").await, success("Noted, as you wished."), "{:?}", talk.kept.entries());
    println!("  pieces: {:?}", talk.pieces());
    assert_eq!(talk.pieces().concat(), "I note it, and that is that.Noted, as you wished.");
    assert!(talk.pieces().len() > 2, "it is streamed");
    assert_eq!(talk.say("/again @/etc/passwd").await, success("As I said: noted."), "{:?}", talk.kept.entries());
    let told = provider.requests()[2].body["messages"].to_string();
    for said in
        ["Note it.", "I note it, and that is that.", "tool_result", "Noted, as you wished.", "/again @/etc/passwd"]
    {
        assert!(told.contains(said), "{said:?} is not in {told}");
    }
    assert!(!told.contains("root:x:0"), "{told}");
    assert_eq!((job.calls().len(), provider.count(), talk.compacted().len()), (1, 3, 0));
    let ends = talk.kept.entries().into_iter().filter_map(|entry| match entry {
        Entry::End { usage, .. } => Some((usage.turns, usage.cost_usd)),
        _ => None,
    });
    println!("  used: {:?}", ends.collect::<Vec<_>>());
}

async fn an_interrupted_turn_is_known_to_the_next(killed: bool) {
    let provider = Anthropic::start(vec![
        Reply::text("First."),
        Reply::text("It begins, and it would go on for long.").stalls_after(5),
        Reply::text("Well then."),
    ])
    .await;
    let (_fixture, claude) = real(&provider, |options| options);
    let mut talk = Conversation::new(claude, Arc::new(Job::default()));
    assert_eq!(talk.say("Begin.").await, success("First."));
    let before = talk.pieces().len();
    let is_shown = |entries: &[Entry]| pieces(entries).len() > before;
    let begun = std::time::Instant::now();
    if killed {
        let killing = async {
            until(|| is_shown(&talk.kept.entries())).await;
            kill_cli();
        };
        let (end, ()) = tokio::join!(talk.say("Tell me more."), killing);
        assert!(matches!(end.ending, Ending::Error(_)), "{end:?}");
    } else {
        assert_eq!(talk.interrupted("Tell me more.", is_shown).await.ending, Ending::Interrupted);
    }
    println!("  it took {:?}", begun.elapsed());
    let shown = talk.pieces()[before..].concat();
    assert_eq!(talk.answers(), ["First."]);
    assert_eq!(talk.say("Shorter.").await, success("Well then."), "{:?}", talk.kept.entries());
    let told = provider.requests()[2].body["messages"].to_string();
    println!("  killed: {killed}, shown: {shown:?}, told: {told}");
    for said in ["Begin.", "First.", shown.trim(), "Shorter."] {
        assert!(told.contains(said), "{said:?} is not in {told}");
    }
    assert_eq!(talk.compacted(), Vec::<String>::new());
}

async fn a_stream_that_breaks_is_shown_once() {
    let said = "It begins, and it goes on, and it ends.";
    let gate = Gate::closed();
    let broken = Reply::text(said).broken_after(5).slowly(&gate);
    let provider = Anthropic::start(vec![broken, Reply::text(said)]).await;
    let (_fixture, claude) = real(&provider, |options| options);
    let talk = Conversation::new(claude, Arc::new(Job::default()));
    gate.pass(5);
    let breaking = async {
        until(|| talk.pieces().len() == 2).await;
        gate.open();
    };
    let (end, ()) = tokio::join!(talk.say("Tell me."), breaking);
    println!("  {:?}", talk.kept.entries());
    assert_eq!((end, talk.pieces().concat().as_str()), (success(said), said));
    assert_eq!(talk.answers(), [said]);
}

async fn a_lost_conversation_is_begun_anew() {
    let provider = Anthropic::start(vec![Reply::text("First."), Reply::text("Again."), Reply::text("Third.")]).await;
    let (fixture, claude) = real(&provider, |options| options);
    let talk = Conversation::new(claude, Arc::new(Job::default()));
    assert_eq!(talk.say("Begin.").await, success("First."));
    fs::remove_dir_all(fixture.directory().join(".claude/projects")).unwrap();
    assert_eq!(talk.say("Go on.").await, success("Again."), "{:?}", talk.kept.entries());
    println!("  {:?}", talk.compacted());
    assert_eq!(talk.compacted().len(), 1);
    let told = provider.requests()[1].body["messages"].to_string();
    assert!(told.contains("> Begin.") && told.contains("> First.") && told.contains("Go on."), "{told}");
    assert_eq!(talk.say("And?").await, success("Third."));
    assert_eq!(talk.compacted().len(), 1, "the new session goes on");
}
