//! Quotations: which part of a passage is quoted, where it stands, and how it is written in Markdown.
//!
//! A quotation is the source's own text, character by character. In a report it must also read as that text: so
//! listings stand in fences, and in prose that is no Markdown itself the few characters that Markdown would take for
//! markup are escaped.

use std::ops::Range;

use super::{
    corpus::{Corpus, lines},
    extract::{Format, OMITTED},
    index::QueryTerm,
    question::Question,
    terms::{Stems, defines, sentences, words},
};

/// A passage up to this length is quoted whole; of a longer one, the part around what answers best.
const QUOTE_BYTES: usize = 650;
/// Lines of a listing that are quoted.
const QUOTE_LINES: usize = 24;

/// The part of a passage that is quoted.
#[derive(Clone, Debug)]
pub(crate) struct Quote<'a> {
    pub(crate) text: &'a str,
    /// The line of the file that it starts in.
    pub(crate) line: u32,
    format: Format,
    /// Whether it is a listing.
    pub(crate) code: bool,
    language: &'a str,
}

/// The quotation from a passage that tells most on these terms.
pub(crate) fn quote<'a>(corpus: &'a Corpus, stems: &Stems, terms: &[QueryTerm], number: u32) -> Option<Quote<'a>> {
    let (passage, document) = corpus.passage(number)?;
    let page = &document.page;
    let mut range = passage.range();
    let fenced = page.format == Format::Markdown && passage.code;
    if fenced {
        range = unfenced(&page.text, range);
    }
    let text = page.text.get(range.clone())?;
    let parts = if passage.code { lines(text) } else { sentences(text) };
    let within = |from: usize, to: usize| {
        let (first, last) = (parts.get(from), parts.get(to));
        first.zip(last).map_or(0..text.len(), |(first, last)| first.start..last.end)
    };
    let fits = |range: &Range<usize>, count: usize| {
        if passage.code { count <= QUOTE_LINES } else { range.len() <= QUOTE_BYTES }
    };
    let mut chosen = within(0, parts.len().saturating_sub(1));
    if !fits(&chosen, parts.len()) {
        let worth: Vec<f32> =
            parts.iter().map(|part| worth(corpus, stems, terms, text.get(part.clone()).unwrap_or_default())).collect();
        let best = worth
            .iter()
            .enumerate()
            .fold((0, -1.0), |most, (at, worth)| if *worth > most.1 { (at, *worth) } else { most })
            .0;
        // It grows from the best part, first backward by one for context, then forward.
        let (mut from, mut to) = (best, best);
        if best > 0 && fits(&within(best - 1, best), 2) {
            from = best - 1;
        }
        while to + 1 < parts.len() && fits(&within(from, to + 1), to + 2 - from) {
            to += 1;
        }
        while from > 0 && fits(&within(from - 1, to), to + 2 - from) {
            from -= 1;
        }
        let omitted = |at: usize| parts.get(at).is_some_and(|part| text.get(part.clone()) == Some(OMITTED));
        while from < to && omitted(from) {
            from += 1;
        }
        while from < to && omitted(to) {
            to -= 1;
        }
        chosen = within(from, to);
    }
    Some(Quote {
        text: text.get(chosen.clone())?,
        line: page.line(range.start + chosen.start),
        format: page.format,
        code: passage.code,
        language: if page.format == Format::Code {
            document.path.rsplit('.').next().unwrap_or_default()
        } else {
            "text"
        },
    })
}

/// A listing of Markdown without its fences; as it is where it has none.
fn unfenced(text: &str, range: Range<usize>) -> Range<usize> {
    let all = text.get(range.clone()).unwrap_or_default();
    if !all.starts_with("```") && !all.starts_with("~~~") {
        return range;
    }
    let inner = lines(all);
    let fence = |line: &Range<usize>| {
        all.get(line.clone()).is_some_and(|line| line.starts_with("```") || line.starts_with("~~~"))
    };
    let kept: Vec<&Range<usize>> = inner.iter().filter(|line| !fence(line)).collect();
    match (kept.first(), kept.last()) {
        (Some(first), Some(last)) => range.start + first.start..range.start + last.end,
        _ => range,
    }
}

/// How much a part of a passage tells on these terms.
fn worth(corpus: &Corpus, stems: &Stems, terms: &[QueryTerm], text: &str) -> f32 {
    let mut seen = vec![false; terms.len()];
    words(text, |word| {
        if let Some(seen) = stems.position(word, terms).and_then(|term| seen.get_mut(term)) {
            *seen = true;
        }
    });
    let told = terms.iter().zip(seen).filter(|(_, seen)| *seen);
    told.map(|(term, _)| corpus.index.idf(&term.stem) * term.weight).sum()
}

/// The sentence of a quotation that answers best, on one line, and how much it tells. Only a sentence that stands by
/// itself will do.
pub(crate) fn key_sentence(
    corpus: &Corpus,
    stems: &Stems,
    question: &Question,
    quote: &Quote<'_>,
) -> Option<(String, f32)> {
    if quote.code {
        return None;
    }
    let mut best: Option<(String, f32)> = None;
    for range in sentences(quote.text) {
        let sentence = quote.text.get(range).unwrap_or_default();
        let mut plain = sentence;
        while let Some(rest) = ["> ", "- ", "* ", "+ "].iter().find_map(|mark| plain.strip_prefix(mark)) {
            plain = rest.trim_start();
        }
        let stands = (40..=420).contains(&plain.len())
            && plain.ends_with(['.', '!', '。', '”', '"', ')'])
            && plain.starts_with(|c: char| {
                c.is_uppercase() || c.is_numeric() || matches!(c, '`' | '"' | '“' | '*' | '_') || !c.is_ascii()
            })
            && !plain.contains("\n- ")
            && plain.matches("**").count() % 2 == 0
            && plain.matches('`').count() % 2 == 0
            && !plain.contains('|');
        // A sentence that leans on the one before it answers less by itself.
        let first = plain.split_whitespace().next().unwrap_or_default().trim_end_matches(',').to_ascii_lowercase();
        let leans = [
            "this",
            "these",
            "those",
            "it",
            "they",
            "but",
            "however",
            "therefore",
            "so",
            "then",
            "also",
            "here",
            "instead",
        ]
        .contains(&first.as_str());
        // Where a definition was asked for, nothing else counts beside one.
        let defining = question.definition && defines(stems, &question.terms, plain);
        let worth = worth(corpus, stems, &question.terms, plain)
            * if leans { 0.75 } else { 1.0 }
            * if defining { 10.0 } else { 1.0 };
        if stands && worth > 0.0 && best.as_ref().is_none_or(|(_, most)| worth > *most) {
            best = Some((quote.inline(plain), worth));
        }
    }
    best
}

impl Quote<'_> {
    /// A part of the quotation on one line of Markdown.
    fn inline(&self, part: &str) -> String {
        self.escaped(&part.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// The whole quotation as a block of Markdown.
    pub(crate) fn block(&self) -> String {
        if self.code {
            let fence = "`".repeat(longest_run(self.text).max(2) + 1);
            return format!("{fence}{}\n{}\n{fence}\n", self.language, self.text);
        }
        let mut block = String::new();
        for line in self.escaped(self.text).lines() {
            let line = line.trim_end();
            let escaped = self.format != Format::Markdown && line.starts_with(['#', '-', '+', '>', '=']);
            block.push_str(if line.is_empty() { ">" } else { "> " });
            block.push_str(if escaped { "\\" } else { "" });
            block.push_str(line);
            block.push('\n');
        }
        block
    }

    /// Text with what Markdown would take for markup escaped; code in backticks is left as it is. Of Markdown itself,
    /// only pictures are: a report must not make its reader's program fetch something.
    fn escaped(&self, text: &str) -> String {
        if self.format == Format::Markdown {
            return text.replace("![", "!\\[");
        }
        let mut escaped = String::with_capacity(text.len() + 16);
        let mut parts = text.split('`').peekable();
        let mut code = false;
        while let Some(part) = parts.next() {
            if code && parts.peek().is_some() {
                escaped.push_str(part);
            } else {
                for (at, c) in part.char_indices() {
                    let inner = c == '_'
                        && at > 0
                        && part.get(at + 1..).is_some_and(|rest| rest.starts_with(char::is_alphanumeric));
                    if matches!(c, '<' | '*' | '[' | '\\') || c == '_' && !inner {
                        escaped.push('\\');
                    }
                    escaped.push(c);
                }
            }
            if parts.peek().is_some() {
                escaped.push('`');
            }
            code = !code;
        }
        // Our own mark is none.
        escaped.replace(&format!("\\{OMITTED}"), OMITTED)
    }
}

/// The longest run of backticks in a text.
fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}
