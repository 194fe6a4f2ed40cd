//! Questions as readers ask them, over five corpora: for how many the answer is among the passages, and how many that the
//! sources do not answer are said to be so. The counts are floors: no question stands for itself.
//!
//! A file of questions has one a line: the question, a tab, and a text that a passage with the answer has; none where the
//! sources do not answer.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../agent/tests/common/mod.rs"]
mod common;

use std::{fs, path::Path, sync::Arc};

use common::{roots, session};
use guild_extractive::Extractive;
use guild_session::{meter::Ending, session::AgentRuntime as _};

/// A text on one line, without the marks of quotations and of Markdown.
fn plain(text: &str) -> String {
    let lines = text.lines().map(|line| line.trim_start_matches('>').trim());
    let joined = lines.collect::<Vec<_>>().join(" ").replace(['\\', '*', '`'], "").replace('’', "'");
    joined.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Asks all questions on a corpus: at least `answered` have their answer among the passages, and at least `open` of those
/// without an answer are said to have none.
async fn assert_hold(corpus: &str, answered: usize, open: usize) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let (runtime, files) = (Extractive::new(), roots(&tests.join("corpora").join(corpus)));
    let (mut held, mut failed) = ([0, 0], Vec::new());
    for line in fs::read_to_string(tests.join(format!("questions/{corpus}.tsv"))).unwrap().lines() {
        let (question, answer) = line.split_once('\t').unwrap();
        let session = session(&question.replace("\\n", "\n"), Arc::new(common::Job::default()), Some(files.clone()));
        let end = runtime.run(session).await;
        assert_eq!(end.ending, Ending::Success, "{question}");
        let findings = end.text.split_once("\n## Findings\n").map_or("", |(_, findings)| findings);
        let says_none = ["Not found in the sources", "The closest passages"].iter().any(|said| end.text.contains(said));
        match answer {
            "" if says_none => held[1] += 1,
            answer if !answer.is_empty() && plain(findings).contains(&plain(answer)) => held[0] += 1,
            _ => failed.push(question.to_owned()),
        }
    }
    assert!(held[0] >= answered && held[1] >= open, "{held:?} held; not: {}", failed.join("\n"));
}

#[tokio::test]
async fn questions_on_the_rust_book() {
    assert_hold("book", 20, 8).await;
}

#[tokio::test]
async fn questions_on_the_guide_of_ripgrep() {
    assert_hold("ripgrep", 18, 10).await;
}

#[tokio::test]
async fn questions_on_the_documentation_of_this_project() {
    assert_hold("guild", 15, 10).await;
}

#[tokio::test]
async fn questions_on_the_notes_of_a_rowing_club() {
    assert_hold("club", 10, 2).await;
}

#[tokio::test]
async fn questions_in_german_french_russian_japanese_and_chinese() {
    assert_hold("languages", 16, 5).await;
}
