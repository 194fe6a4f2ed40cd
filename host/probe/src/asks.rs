//! The tasks of callers, and the words of a member's component that are tried in them: a program may wait for one.

use std::collections::BTreeSet;

use guild_audit::{data_of, evidence::runtimes};
use guild_contract::rpc::Attachment;

/// The task of most dispatches, and its label.
pub(crate) const TASK: &str = "How deep is the harbour at low tide?";
pub(crate) const LABEL: &str = "Depth of the harbour";
/// The text before the token of a caller.
pub(crate) const REFERENCE: &str = "Our reference is";
/// The task that comes with files.
pub(crate) const OF_FILES: &str = "Which quay of the attached tables is the deepest?";
/// Tasks of the kinds that people give workers.
pub(crate) const USUAL: [&str; 8] = [
    "Release version 2.0 of the harbour, and publish the package.",
    "Open a pull request with the fix, and merge it when the review is approved.",
    "Review the last commit, and fix the bug in the login with the password.",
    "Deploy the service to production, and update the credentials and the API key.",
    "Write an email to the customer with the invoice and the payment of the contract.",
    "Summarize the meeting, translate the report, and plan the budget of the quarter.",
    "Delete the old backups, archive the logs, and migrate the database.",
    "This is urgent and confidential: a security incident; audit who has admin access.",
];
/// The rows of attached tables.
pub(crate) const ROWS: [usize; 3] = [3, 50, 200];

/// Words of a component that are tried, and their bytes.
const WORDS: usize = 1500;
const BYTES: usize = 16 << 10;
/// Characters of a word, and words of a phrase. Compilers put one text after the other, so that words can be long.
const SHORTEST: usize = 4;
const LONGEST: usize = 64;
const PHRASE: usize = 3;

/// What a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// A task that lists so many things.
    Items(usize),
    /// A task with attached tables of [`ROWS`].
    Files,
    /// One of [`USUAL`].
    Usual(usize),
    /// A task that has the words of the component.
    Words,
}

/// The text of a task.
pub(crate) fn task(ask: Ask, token: &str, words: &str) -> String {
    match ask {
        Ask::Items(items) => {
            let listed: String = (1..=items).map(|n| format!("- the depth at quay {n}\n")).collect();
            format!("{TASK} {REFERENCE} {token}.\n\n{listed}")
        }
        Ask::Files => format!("{OF_FILES} {REFERENCE} {token}.\n"),
        Ask::Usual(number) => format!("{} {REFERENCE} {token}.\n", USUAL.get(number).copied().unwrap_or(TASK)),
        Ask::Words => format!("{TASK} {REFERENCE} {token}.\n\n{words}\n"),
    }
}

/// The tables that come with a task.
pub(crate) fn files(ask: Ask, token: &str) -> Vec<Attachment> {
    if ask != Ask::Files {
        return Vec::new();
    }
    let table = |rows: usize| {
        let rows: String = (1..=rows).map(|n| format!("quay {n},{n},2026-03-10,{token}\n")).collect();
        format!("name,amount,date,reference\n{rows}")
    };
    ROWS.iter().map(|rows| Attachment::of(format!("depths-{rows}.csv"), table(*rows).into_bytes())).collect()
}

/// The words and the short phrases of a component's data, one a line, without those of a runtime and of Rust's paths.
pub(crate) fn words(component: &[u8]) -> String {
    let mut found = BTreeSet::new();
    let mut bytes = 0;
    for data in data_of(component) {
        let lines = data.utf8_chunks().flat_map(|chunk| chunk.valid().split(char::is_control));
        for line in lines.filter(|line| !is_foreign(line)) {
            let parts = line.split(|c: char| !c.is_alphanumeric() && !matches!(c, '-' | '_' | ' '));
            let parts = parts.flat_map(|part| {
                let phrase = Some(part.trim()).filter(|part| part.split_whitespace().count() <= PHRASE);
                part.split_whitespace().chain(phrase)
            });
            for part in parts.filter(|part| is_word(part)) {
                let word = part.to_lowercase();
                if found.len() < WORDS && bytes + word.len() < BYTES && !found.contains(&word) {
                    bytes += word.len() + 1;
                    found.insert(word);
                }
            }
        }
    }
    found.into_iter().collect::<Vec<_>>().join("\n")
}

fn is_word(part: &str) -> bool {
    let letters = part.chars().filter(|c| c.is_alphabetic()).count();
    (SHORTEST..=LONGEST).contains(&part.chars().count()) && letters * 4 >= part.chars().count() * 3
}

/// Whether a line is a runtime's, or names a source file of a toolchain.
fn is_foreign(line: &str) -> bool {
    line.contains("library/") || line.contains(".rs") || line.contains(".go") || runtimes::of_line(line).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_component_are_listed_without_those_of_a_toolchain() {
        let text = r#"(component (core module (memory 1) (data (i32.const 0)
            "invoice\00Look out for: pull request, QuarterEnd\00library/core/src/panicking.rs\00the order of things to come\00")))"#;
        let words = words(&wat::parse_str(text).unwrap());
        let words: Vec<&str> = words.lines().collect();
        assert!(words.contains(&"pull request") && words.contains(&"quarterend"), "{words:?}");
        assert!(!words.iter().any(|word| word.contains("panicking") || word.split(' ').count() > PHRASE), "{words:?}");
    }

    #[test]
    fn attached_tables_have_the_token_in_each_row() {
        let [small, _, large] = files(Ask::Files, "token").try_into().unwrap();
        assert_eq!(small.text.unwrap().matches("token").count(), 3);
        assert_eq!(large.text.unwrap().lines().count(), 201);
        assert_eq!(files(Ask::Items(3), "token"), []);
    }
}
