//! From a task to the questions that are looked up.

use crate::text::one_line;

use super::{
    index::QueryTerm,
    terms::{
        among, asked_words, foreign_stop, is_asking, is_hiragana, is_stop, is_weak, sentences, stem, symbols,
        term_mask, words,
    },
};

/// The most questions of one task that are looked up.
const MAX_QUESTIONS: usize = 6;
/// The most words of a question that are searched for.
const MAX_TERMS: usize = 24;
/// How many bytes are read to decide whether a part of a question begins.
const NEXT_BYTES: usize = 64;
/// The weight of a word that says little about the subject.
const WEAK: f32 = 0.3;
/// The factor for the weight of a word that a question takes over from the one before it.
const TAKEN_OVER: f32 = 0.5;

const INTERROGATIVES: &str = "how what why when where which who whom whose";
const AUXILIARIES: &str = "is are was were does do did can could should would will may must has have";
const REQUESTS: &str = "analyse analyze check clarify compare describe determine discuss examine explain explore find give identify \
    investigate learn list look outline research search show study summarise summarize survey tell";
const INSTRUCTIONS: &str = "answer avoid be cite don ensure focus format include keep limit make note please prefer quote remember \
    report respond return save store submit thanks use write you your";
const PRONOUNS: &str = "it its they them their this these those";

const MEASURES: &str = "big deep expensive far fast frequently hard high large late long low old quickly short slow small soon tall \
    wide";

/// A question, as it is looked up.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    /// As the task has it, on one line.
    pub(crate) text: String,
    /// What is looked for, in the question's order.
    pub(crate) terms: Vec<QueryTerm>,
    /// The words that the terms come from. Of a word that is looked for by parts of it, each part has the whole.
    pub(crate) words: Vec<String>,
    /// Whether it asks what something is or means.
    pub(crate) definition: bool,
    /// Whether it asks for a number: "how many", "how long".
    pub(crate) quantity: bool,
    /// Whether it asks for several things: "what are the", "which".
    pub(crate) several: bool,
    /// Whether it asks for code, or for what to type.
    pub(crate) code: bool,
}

/// What a task asks.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Inquiry {
    pub(crate) questions: Vec<Question>,
    /// Questions of the task that are not looked up, because there are too many.
    pub(crate) left_out: Vec<String>,
    /// Whether one question of the task was split into several.
    pub(crate) split: bool,
    /// The files to search, if the task names them: in backticks, in a line that begins with `Source:` or `Sources:`. If
    /// it is empty, all are searched.
    pub(crate) sources: Vec<String>,
}

/// Reads a task.
pub(crate) fn inquiry(task: &str) -> Inquiry {
    let items = items(task);
    let said: Vec<String> = items.iter().flat_map(|item| sentences(item)).map(unlabelled).collect();
    let first = |text: &String| lower(text).into_iter().next().unwrap_or_default();
    let asks = |text: &&String| {
        let word = first(text);
        text.ends_with(['?', '？']) || [INTERROGATIVES, AUXILIARIES, REQUESTS].iter().any(|list| among(list, &word))
    };
    let instructs = |text: &&String| among(INSTRUCTIONS, &first(text));
    let mut asked: Vec<&String> = said.iter().filter(asks).collect();
    if asked.is_empty() {
        asked = said.iter().filter(|text| !instructs(text)).collect();
    }
    if asked.is_empty() {
        asked = said.iter().collect();
    }
    let mut inquiry = Inquiry { sources: sources(task), ..Inquiry::default() };
    for text in asked {
        let before = inquiry.questions.len();
        for part in parts(text) {
            let last = inquiry.questions.last();
            let Some(question) = Question::new(&part, last) else { continue };
            if inquiry.questions.iter().any(|known| known.terms == question.terms) {
                continue;
            }
            if inquiry.questions.len() == MAX_QUESTIONS {
                inquiry.left_out.push(question.text);
            } else {
                inquiry.questions.push(question);
            }
        }
        inquiry.split |= inquiry.questions.len() > before + 1;
    }
    // "What does this mean?": the listing below it is what is asked about.
    if inquiry.questions.is_empty() {
        inquiry.questions.extend(Question::new(&listings(task), None));
    }
    inquiry
}

impl Question {
    /// Reads a question. It may refer to the subject of `before`, the question before it. `None` if it has no word that
    /// could be looked up.
    pub(crate) fn new(text: &str, before: Option<&Self>) -> Option<Self> {
        let foreign = foreign_stop(&lower(text));
        // French has a blank before the sign that ends a question, and so it is no symbol.
        let asked = if foreign.is_some() { text.trim_end_matches(['?', '!', ' ']) } else { text };
        // A symbol is looked for as it is written, and not by the words in it.
        let (mut signs, mut spoken, mut end) = (Vec::new(), String::new(), 0);
        symbols(asked, |range, symbol| {
            spoken.push_str(asked.get(end..range.start).unwrap_or_default());
            spoken.push(' ');
            end = range.end;
            signs.push(symbol.to_owned());
        });
        spoken.push_str(asked.get(end..).unwrap_or_default());
        let (mut all, mut seen) = (Vec::new(), Vec::new());
        asked_words(&spoken, |word, whole| {
            all.push(word.to_owned());
            seen.push(whole.to_owned());
        });
        // Particles and endings are looked for where there is nothing else.
        let only_particles = all.iter().all(|word| is_hiragana(word));
        let is_stop = |word: &str| {
            is_stop(word) || foreign.is_some_and(|stop| stop.contains(word)) || !only_particles && is_hiragana(word)
        };
        let mut terms: Vec<QueryTerm> = Vec::new();
        let mut kept = Vec::new();
        let mut add = |stem: &str, seen: &str, weight: f32| {
            if terms.len() < MAX_TERMS && !terms.iter().any(|term| term.stem == stem) {
                terms.push(QueryTerm { stem: stem.to_owned(), weight });
                kept.push(seen.to_owned());
            }
        };
        let before_each = std::iter::once("").chain(all.iter().map(String::as_str));
        let asks = |at: usize, word: &str| at == 0 && among(REQUESTS, word);
        for (at, ((word, seen), last)) in all.iter().zip(&seen).zip(before_each).enumerate() {
            // "How large", "how long": the answer is a measure, which need not have the word.
            let measured = last == "how" && among(MEASURES, word);
            if !is_stop(word) && !asks(at, word) {
                add(&stem(word), seen, if measured || is_weak(word) { WEAK } else { 1.0 });
            }
        }
        // A name of one letter is of an example, as `x`, unless nothing else is asked for.
        signs.iter().for_each(|symbol| {
            add(symbol, symbol, if symbol.bytes().all(|byte| byte.is_ascii_alphanumeric()) { WEAK } else { 1.0 })
        });
        if signs.is_empty() && all.iter().all(|word| is_stop(word)) {
            let subjects = all.iter().enumerate().filter(|(at, word)| is_asking(word) && !asks(*at, word));
            subjects.for_each(|(_, word)| add(&stem(word), word, 1.0));
        }
        let own = signs.len() + all.iter().filter(|word| !is_stop(word) && !is_weak(word)).count();
        if own == 0 && before.is_some() {
            return None;
        }
        if own < 2
            && let Some(before) = before
            && all.iter().any(|word| among(PRONOUNS, word))
        {
            for (term, word) in before.terms.iter().zip(&before.words) {
                add(&term.stem, word, term.weight * TAKEN_OVER);
            }
        }
        if terms.is_empty() {
            return None;
        }
        let has = |list: &str| all.iter().any(|word| among(list, word));
        let compares = has("difference differences differ compare versus vs");
        let starts = all.iter().take(2).map(String::as_str).collect::<Vec<_>>();
        let what =
            matches!(starts.as_slice(), ["what", "is" | "are" | "does" | "do" | "s"] | ["who", "is"] | ["define", ..]);
        Some(Self {
            text: one_line(text),
            terms,
            words: kept,
            // "What are the rules of": which there are, not what rules are.
            definition: what
                && !compares
                && !matches!(all.as_slice(), [what, are, the, ..] if what == "what" && are == "are" && the == "the")
                || has("mean means meaning definition define"),
            quantity: all.windows(2).any(|pair| {
                let [how, many] = pair else { return false };
                how == "how" && (["many", "much"].contains(&many.as_str()) || among(MEASURES, many))
            }),
            several: compares || matches!(starts.as_slice(), ["what", "are"] | ["which" | "list" | "name", ..]),
            code: matches!(starts.as_slice(), ["how", "do" | "can" | "to"])
                || has("command option flag code example examples implement implemented function syntax snippet"),
        })
    }

    /// Its words of which no term is known.
    pub(crate) fn unknown(&self, is_known: impl Fn(&QueryTerm) -> bool) -> Vec<String> {
        let mut unknown: Vec<String> = Vec::new();
        for word in &self.words {
            let mut terms = self.terms.iter().zip(&self.words).filter(|(_, whole)| *whole == word);
            if !unknown.contains(word) && !terms.any(|(term, _)| is_known(term)) {
                unknown.push(word.clone());
            }
        }
        unknown
    }

    /// Whether it asks about an option of a command.
    pub(crate) fn has_option(&self) -> bool {
        self.terms.iter().any(QueryTerm::is_option)
    }

    /// Whether a text has all options that it asks about.
    pub(crate) fn options_in(&self, text: &str) -> bool {
        let mask = term_mask(text, &self.terms);
        self.terms.iter().enumerate().all(|(bit, term)| !term.is_option() || mask >> bit & 1 == 1)
    }
}

/// The paths in a task's lines of sources.
fn sources(task: &str) -> Vec<String> {
    let named = |line: &str| {
        let (label, paths) = line.split_once(':')?;
        let is_label = ["source", "sources"].contains(&label.trim().to_ascii_lowercase().as_str());
        is_label.then(|| paths.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
    };
    task.lines().filter_map(named).flatten().collect()
}

fn lower(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    words(text, |word| all.push(word.to_owned()));
    all
}

/// The paragraphs and list items of a task, each on one line, without listings.
fn items(task: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let (mut open, mut fenced) = (false, false);
    for line in task.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            fenced = !fenced;
            open = false;
        } else if fenced || line.is_empty() {
            open = false;
        } else {
            let plain = line.trim_start_matches(['#', '>', '*', '-', '+', '•', ' ']);
            let number = plain.trim_start_matches(|c: char| c.is_ascii_digit());
            let numbered = number.len() < plain.len() && number.starts_with(['.', ')']);
            let plain = if numbered { number.trim_start_matches(['.', ')', ' ']) } else { plain };
            match items.last_mut() {
                Some(last) if open && plain.len() == line.len() => {
                    last.push(' ');
                    last.push_str(plain);
                }
                _ => items.push(plain.to_owned()),
            }
            // A heading stands alone.
            open = !line.starts_with('#');
        }
    }
    items
}

/// The listings of a task, without their fences.
fn listings(task: &str) -> String {
    let mut fenced = false;
    let inside = task.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        fenced && !fence
    });
    inside.collect::<Vec<_>>().join("\n")
}

/// A sentence without a label such as `Question:` or `Topic 2:` before it.
fn unlabelled(text: &str) -> String {
    let label = text.split_once(':').filter(|(label, _)| {
        let word = label.trim().to_ascii_lowercase();
        let word = word.trim_end_matches(|c: char| c.is_ascii_digit() || c == ' ' || c == '*');
        ["question", "questions", "research question", "task", "topic", "q"].contains(&word)
    });
    label.map_or(text, |(_, rest)| rest).trim_matches(['*', ' ']).to_owned()
}

/// Splits a sentence before each further question in it: `..., and what ...`, `... and how ...`, `...; ...`.
fn parts(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut at = 0;
    for word in text.split_inclusive(char::is_whitespace) {
        // A symbol begins no question, whatever words come after it.
        if lower(word).is_empty() {
            at += word.len();
            continue;
        }
        let before = text.get(start..at).unwrap_or_default().trim_end();
        // The next two words decide, however long the text is.
        let rest = text.get(at..).unwrap_or_default();
        let next = lower(rest.get(..rest.floor_char_boundary(NEXT_BYTES)).unwrap_or_default());
        let word_is = |n: usize, list: &str| next.get(n).is_some_and(|word| among(list, word));
        let joined = word_is(0, "and or but also");
        let asks = word_is(usize::from(joined), INTERROGATIVES);
        let asks_with = word_is(usize::from(joined), AUXILIARIES);
        let ends = before.ends_with(';') || joined && asks || before.ends_with(',') && (asks || joined && asks_with);
        if ends && before.split_whitespace().count() >= 2 {
            parts.push(before.trim_end_matches([',', ';', ' ']).to_owned());
            let skip = if joined { word.len() } else { 0 };
            start = at + skip;
        }
        at += word.len();
    }
    parts.push(text.get(start..).unwrap_or_default().trim().to_owned());
    // A part without a subject is no question: it belongs to the one before it.
    let mut whole: Vec<String> = Vec::new();
    for part in parts {
        let mut own = lower(&part).iter().any(|word| !is_stop(word) && !is_weak(word));
        symbols(&part, |_, _| own = true);
        match whole.last_mut() {
            Some(last) if !own => {
                last.push_str(", ");
                last.push_str(&part);
            }
            _ => whole.push(part),
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(task: &str) -> Vec<(String, Vec<String>)> {
        inquiry(task).questions.into_iter().map(|question| (question.text, question.words)).collect()
    }

    fn texts(task: &str) -> Vec<String> {
        asked(task).into_iter().map(|(text, _)| text).collect()
    }

    #[test]
    fn a_compound_question_is_parted_and_what_is_not_the_subject_falls_away() {
        let task = "How does Rust prevent data races, and what do Send and Sync mean?";
        assert_eq!(texts(task), ["How does Rust prevent data races", "what do Send and Sync mean?"]);
        let (_, words) = asked(task).remove(1);
        assert_eq!(words, ["send", "sync"]);
        assert!(inquiry(task).split);
        assert_eq!(texts("When should I use Rc<T> instead of Box<T>?"), ["When should I use Rc<T> instead of Box<T>?"]);
    }

    #[test]
    fn a_question_may_be_only_a_symbol_and_two_symbols_are_two_questions() {
        let (_, words) = asked("What is `::<>`?").remove(0);
        assert_eq!(words, ["::<>"]);
        assert_eq!(texts("What does `?` do, and what is `->`?"), ["What does `?` do", "what is `->`?"]);
        assert_eq!(texts("What is `::<>` and what does `..=` do?"), ["What is `::<>`", "what does `..=` do?"]);
        let (_, words) = asked("What do `?` and `..=` mean?").remove(0);
        assert_eq!(words, ["?", "..="]);
    }

    #[test]
    fn a_task_of_several_lines_asks_what_its_sentences_ask() {
        let task = "# Background\nWe build a thing.\n\nPlease answer:\n1. What is a slice?\n2. Explain how modules\n   are found.\n\nBe brief. Cite your sources.";
        assert_eq!(texts(task), ["What is a slice?", "Explain how modules are found."]);
        assert_eq!(texts("Question: Error handling in Rust"), ["Error handling in Rust"]);
        assert_eq!(texts("ownership and borrowing"), ["ownership and borrowing"]);
    }

    #[test]
    fn a_line_of_sources_names_what_is_searched() {
        let inquiry = inquiry("Sources: `docs/a.md`, `docs/b c.md`\n\nWhat is a `mutex`?\n");
        assert_eq!(inquiry.sources, ["docs/a.md", "docs/b c.md"]);
        assert_eq!(inquiry.questions.len(), 1);
        assert!(super::inquiry("What are the sources: `x`?").sources.is_empty());
    }

    #[test]
    fn a_question_about_it_takes_its_subject_from_the_one_before() {
        let questions = inquiry("What is a mutex? When should I use it?").questions;
        assert_eq!(questions.len(), 1, "the second asks for nothing but the first's subject");
        let questions = inquiry("What is a mutex? How does it deadlock?").questions;
        assert_eq!(questions[1].words, ["deadlock", "mutex"]);
    }

    #[test]
    fn a_task_is_read_in_time_in_the_order_of_its_length() {
        let started = std::time::Instant::now();
        for text in ["word ", "  ", "and what ", "; ", "a.", ", "] {
            let task = format!("What is a mutex {}", text.repeat((256 << 10) / text.len()));
            assert!(super::inquiry(&task).questions.len() <= MAX_QUESTIONS);
        }
        // The square of it would be minutes.
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
    }

    #[test]
    fn too_many_questions_are_left_out_by_name() {
        let task = (0..9).map(|n| format!("What is subject{n}?\n")).collect::<String>();
        let inquiry = inquiry(&task);
        assert_eq!((inquiry.questions.len(), inquiry.left_out.len()), (MAX_QUESTIONS, 3));
        assert_eq!(super::inquiry("").questions, []);
    }
}
