//! What the built-in runtime answers in a conversation.

use std::sync::Arc;

use guild_extractive::Extractive;
use guild_session::{
    files::Files,
    meter::Ending,
    session::{AgentRuntime as _, NoTools, Session, SessionEnd},
    transcript::{Entry, Journal as _},
};
use tokio_util::sync::CancellationToken;

use crate::{
    common::{Kept, roots, session},
    manual,
};

async fn say(kept: &Arc<Kept>, files: Option<Arc<dyn Files>>, cancel: CancellationToken, text: &str) -> SessionEnd {
    kept.write(&Entry::Message { session: 1, text: text.to_owned() });
    let (journal, history) = (kept.clone(), kept.entries());
    let session = Session { converses: true, journal, history, cancel, ..session("", Arc::new(NoTools), files) };
    let end = Extractive::new().run(session).await;
    assert!(end.ending != Ending::Success || pieces(kept).concat().ends_with(&end.text), "the pieces are the answer");
    end
}

fn pieces(kept: &Kept) -> Vec<String> {
    let piece = |entry| match entry {
        Entry::Text { text, .. } => Some(text),
        _ => None,
    };
    kept.entries().into_iter().filter_map(piece).collect()
}

#[tokio::test]
async fn each_message_is_looked_up_and_the_first_answer_says_that_it_does_not_converse() {
    let dir = manual();
    let files = || Some(roots(&dir.path().join("docs")));
    let kept = Arc::new(Kept::default());
    let first = say(&kept, files(), CancellationToken::new(), "How often do signing keys rotate?").await;
    assert_eq!(first.ending, Ending::Success);
    assert!(first.text.contains("I do not converse") && first.text.contains("every thirty days"), "{}", first.text);
    assert!(pieces(&kept).len() > 2, "it comes by paragraph");
    let second = say(&kept, files(), CancellationToken::new(), "How long is a weekly backup kept?").await;
    assert!(!second.text.contains("I do not converse") && second.text.contains("one year"), "{}", second.text);
    assert!(!second.text.contains("thirty days"));
    let turn = |entry| match entry {
        Entry::Turn { turn, text, .. } => Some((turn, text)),
        _ => None,
    };
    let turns: Vec<(u32, String)> = kept.entries().into_iter().filter_map(turn).collect();
    assert_eq!(turns, [(1, first.text), (2, second.text)]);
}

#[tokio::test]
async fn without_sources_it_says_what_to_grant() {
    let kept = Arc::new(Kept::default());
    let end = say(&kept, None, CancellationToken::new(), "How often do keys rotate?").await;
    assert!(end.text.contains("I do not converse") && end.text.contains("[[roots]]"), "{}", end.text);
    assert_eq!(end.ending, Ending::Success);
}

#[tokio::test]
async fn an_interrupt_ends_the_turn_and_the_next_one_is_answered() {
    let dir = manual();
    let files = || Some(roots(&dir.path().join("docs")));
    let kept = Arc::new(Kept::default());
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let end = say(&kept, files(), cancelled, "How long is a weekly backup kept?").await;
    assert_eq!((end.ending, pieces(&kept).len()), (Ending::Interrupted, 0));
    let end = say(&kept, files(), CancellationToken::new(), "How often do signing keys rotate?").await;
    assert!(end.text.contains("every thirty days") && !end.text.contains("one year"), "{}", end.text);
}
