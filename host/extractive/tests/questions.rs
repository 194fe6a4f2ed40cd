//! Questions as readers ask them, over five corpora: how many answers are among the passages, how many files with the
//! answer are among the first three passages, and how many questions without an answer in the sources are said to have
//! none. The counts are floors: no single question has to hold.
//!
//! A file of questions has one a line: the question, a tab, and a text of the passage that answers it. The text is empty
//! where the sources do not answer.
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

/// The counts of questions that hold.
#[derive(Debug, Default)]
struct Held {
    /// A passage has the answer.
    answers: usize,
    /// One of the first three passages is in a file that has the answer.
    files: usize,
    /// The report says that the sources do not answer.
    open: usize,
}

/// Asks all questions on a corpus, and checks that at least so many hold.
async fn assert_hold(corpus: &str, floor: Held) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let directory = tests.join("corpora").join(corpus);
    let (runtime, files) = (Extractive::new(), roots(&directory));
    let (mut held, mut failed) = (Held::default(), Vec::new());
    for line in fs::read_to_string(tests.join(format!("questions/{corpus}.tsv"))).unwrap().lines() {
        let (question, answer) = line.split_once('\t').unwrap();
        let answer = plain(answer);
        let session = session(&question.replace("\\n", "\n"), Arc::new(common::Job::default()), Some(files.clone()));
        let report = runtime.run(session).await;
        assert_eq!(report.ending, Ending::Success, "{question}");
        let findings = report.text.split_once("\n## Findings\n").map_or("", |(_, findings)| findings);
        let findings = findings.split("\n## ").next().unwrap_or_default();
        let holds = if answer.is_empty() {
            let says_none = ["Not found in the sources", "The closest passages", "no word to look for"];
            let is_open = says_none.iter().any(|said| report.text.contains(said));
            held.open += usize::from(is_open);
            is_open
        } else {
            let places = findings.lines().filter_map(|line| line.rsplit_once("** — `")?.1.rsplit_once(':'));
            let has_answer =
                |path: &str| plain(&fs::read_to_string(directory.join("..").join(path)).unwrap()).contains(&answer);
            let has_file = places.take(3).any(|(path, _)| has_answer(path));
            let is_quoted = plain(findings).contains(&answer);
            held.files += usize::from(has_file);
            held.answers += usize::from(is_quoted);
            is_quoted && has_file
        };
        failed.extend((!holds).then(|| question.to_owned()));
    }
    let is_enough = held.answers >= floor.answers && held.files >= floor.files && held.open >= floor.open;
    assert!(is_enough, "{held:?}; not: {}", failed.join("\n"));
}

#[tokio::test]
async fn questions_on_the_rust_book() {
    assert_hold("book", Held { answers: 20, files: 29, open: 8 }).await;
}

#[tokio::test]
async fn questions_on_the_guide_of_ripgrep() {
    assert_hold("ripgrep", Held { answers: 18, files: 21, open: 10 }).await;
}

#[tokio::test]
async fn questions_on_the_documentation_of_this_project() {
    assert_hold("guild", Held { answers: 15, files: 16, open: 10 }).await;
}

#[tokio::test]
async fn questions_on_the_notes_of_a_rowing_club() {
    assert_hold("club", Held { answers: 10, files: 10, open: 2 }).await;
}

#[tokio::test]
async fn questions_in_german_french_russian_japanese_and_chinese() {
    assert_hold("languages", Held { answers: 17, files: 17, open: 6 }).await;
}
