//! Quotations: which part of a passage is quoted, where it stands, and how it is written in Markdown.
//!
//! A quotation is the source's own text, character by character. In a report it must also read as that text: so
//! listings stand in fences, and in prose that is no Markdown itself the few characters that Markdown would take for
//! markup are escaped.

use std::{collections::HashSet, fmt::Write as _, ops::Range};

use crate::format::Format;

use super::{
    corpus::{Corpus, lines},
    extract::OMITTED,
    index::QueryTerm,
    question::Question,
    search::{ENUMERATED, counts, covered, enumeration, item},
    terms::{Stems, contrasts, counted, defines, is_meta, leans, sentences, tokens},
};

/// A passage up to this length is quoted whole; of a longer one, the part around what answers best.
const QUOTE_BYTES: usize = 650;
/// Lines of a listing that are quoted.
const QUOTE_LINES: usize = 24;
/// The longest sentence of a summary.
const SENTENCE_BYTES: usize = 420;
/// Items or rows of a summary.
const ITEMS: usize = 10;
/// A listing of so many lines is told in a summary.
const COMMAND_LINES: usize = 3;
/// The part of a passage that is quoted.
#[derive(Clone, Debug)]
pub(crate) struct Quote<'a> {
    pub(crate) text: &'a str,
    /// The line of the file that it starts in.
    pub(crate) line: u32,
    format: Format,
    /// Whether it is a listing.
    pub(crate) code: bool,
    /// The head of the table that it is a row of.
    head: &'a str,
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
    // A list and a table are one thing.
    let whole = enumeration(text).is_some() || !counted(text).is_empty();
    let fits = |range: &Range<usize>, count: usize| {
        if passage.code { count <= QUOTE_LINES } else { whole || range.len() <= QUOTE_BYTES }
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
        head: corpus.table_head(number),
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
    tokens(text, |word| {
        if let Some(seen) = stems.position(word, terms).and_then(|term| seen.get_mut(term)) {
            *seen = true;
        }
    });
    let told = terms.iter().zip(seen).filter(|(_, seen)| *seen);
    told.map(|(term, _)| corpus.index.idf(&term.stem) * term.weight).sum()
}

/// What a summary says out of a quotation.
pub(crate) struct Key {
    /// Sentences, items or rows, each on one line.
    pub(crate) lines: Vec<String>,
    /// How much it tells.
    pub(crate) worth: f32,
    /// Whether it is a list or a table that answers as a whole.
    pub(crate) whole: bool,
}

/// What answers best in a quotation: the items of a list or the rows of a table that is about what was asked, else the
/// row or the sentence that tells most. Only a sentence that stands by itself will do.
pub(crate) fn key(
    corpus: &Corpus,
    stems: &Stems,
    question: &Question,
    passage: u32,
    quotes: &[Quote<'_>],
) -> Option<Key> {
    let mut said = said(corpus, stems, question, passage, quotes);
    // Who asks how many is answered by a number.
    for key in said.iter_mut().filter(|key| question.quantity && !key.lines.iter().any(|line| has_digit(line))) {
        key.worth *= 0.5;
        key.whole = false;
    }
    let terms = &question.terms;
    let listings = || quotes.iter().filter(|quote| quote.code).map(|quote| quote.text);
    let remarked =
        listings().flat_map(remarks).filter(|remark| covered(corpus, stems, question, &[remark]) >= ENUMERATED);
    let asked = listings().flat_map(|text| lines(text).into_iter().filter_map(|line| text.get(line)));
    let asked =
        asked.filter(|line| line.len() <= SENTENCE_BYTES && question.has_option() && question.options_in(stems, line));
    let remarked = remarked.chain(asked).map(|remark| {
        let worth = worth(corpus, stems, terms, remark);
        Key { lines: vec![inline_code(remark)], worth, whole: false }
    });
    said.into_iter().chain(remarked).reduce(|best, next| if next.worth > best.worth { next } else { best })
}

/// What answers best in the words of a quotation.
fn said(corpus: &Corpus, stems: &Stems, question: &Question, passage: u32, quotes: &[Quote<'_>]) -> Option<Key> {
    let quote = quotes.first().filter(|quote| !quote.code)?;
    let terms = &question.terms;
    let counted = counted(quote.text);
    if counts(corpus, stems, question, passage, &counted) {
        let worth = worth(corpus, stems, terms, &format!("{} {}", corpus.heading(passage), quote.text)) * 12.0;
        return Some(Key { lines: counted.iter().map(|line| quote.inline(line)).collect(), worth, whole: true });
    }
    let table =
        if quote.text.starts_with('|') { Some(Table::of(corpus.table_head(passage), quote.text)) } else { None };
    if let Some(lead) = enumeration(quote.text).filter(|_| corpus.table_head(passage).is_empty())
        && covered(corpus, stems, question, &[corpus.heading(passage), lead]) >= ENUMERATED
    {
        let rows = table.as_ref().map(|table| table.rows.iter().map(|row| table.shown(row)).collect::<Vec<_>>());
        let lines: Vec<String> = rows.unwrap_or_else(|| items(quote.text).map(str::to_owned).collect());
        let lines: Vec<String> = lines.iter().take(ITEMS).map(|line| quote.inline(line)).collect();
        // Who asks for several things is answered by a list; who asks what one thing is, by a definition.
        let factor = if question.several { 12.0 } else { 1.5 };
        let worth = worth(corpus, stems, terms, &format!("{} {}", corpus.heading(passage), quote.text)) * factor;
        if (2..).contains(&lines.len()) {
            return Some(Key { lines, worth, whole: true });
        }
    }
    if let Some(table) = table {
        let rated = table.rows.iter().map(|row| (row, worth(corpus, stems, terms, row)));
        let best = rated.fold(
            None,
            |most: Option<(&&str, f32)>, (row, worth)| {
                if most.is_none_or(|(_, most)| worth > most) { Some((row, worth)) } else { most }
            },
        );
        let (row, worth) = best.filter(|(_, worth)| *worth > 0.0)?;
        return Some(Key { lines: vec![quote.inline(&table.shown(row))], worth, whole: false });
    }
    let listing = quotes.get(1).filter(|listing| listing.text.lines().count() <= COMMAND_LINES);
    // What the heading says already tells less in a sentence under it, unless it says all.
    let mut headed = HashSet::new();
    tokens(corpus.heading(passage), |word| headed.extend(stems.position(word, terms)));
    let tells = |at: usize| if headed.contains(&at) && headed.len() < terms.len() { 0.25 } else { 1.0 };
    let asked = terms.iter().enumerate();
    let asked: Vec<QueryTerm> =
        asked.map(|(at, term)| QueryTerm { weight: term.weight * tells(at), ..term.clone() }).collect();
    let mut most = 0.0;
    let mut best: Option<Key> = None;
    let ranges = sentences(quote.text);
    for (at, range) in ranges.iter().enumerate() {
        let sentence = quote.text.get(range.clone()).unwrap_or_default();
        let mut plain = sentence;
        while let Some(rest) = plain.strip_prefix("> ").or_else(|| item(plain)) {
            plain = rest.trim_start();
        }
        // A short listing says what the sentence before it leads to.
        let shows = listing.filter(|_| plain.ends_with(':') && range.end == quote.text.len());
        let stands = (20..=SENTENCE_BYTES).contains(&plain.len())
            && (plain.ends_with(['.', '!', '。', '”', '"', ')']) || shows.is_some())
            && plain.starts_with(|c: char| {
                c.is_uppercase() || c.is_numeric() || matches!(c, '`' | '"' | '“' | '*' | '_' | '-') || !c.is_ascii()
            })
            && !plain.contains("\n- ")
            && !plain.contains("\n* ")
            && plain.matches("**").count() % 2 == 0
            && plain.matches('`').count() % 2 == 0
            && !plain.contains('|');
        // Where a definition was asked for, nothing else counts beside one.
        let defining = question.definition && defines(stems, terms, plain);
        let told = shows.map_or(plain.to_owned(), |listing| format!("{plain} {}", listing.text));
        let factor = if leans(plain) { 0.75 } else { 1.0 }
            * if is_meta(plain) { 0.3 } else { 1.0 }
            * if defining { 10.0 } else { 1.0 };
        let rated = worth(corpus, stems, &asked, &told) * factor;
        if stands && rated > most {
            most = rated;
            let worth = worth(corpus, stems, terms, &told) * factor;
            let mut line = quote.inline(plain);
            // What takes a part of it back belongs to it.
            let next = ranges.get(at + 1).and_then(|next| quote.text.get(next.clone()));
            if let Some(next) =
                next.filter(|next| contrasts(next) && next.ends_with('.') && next.len() < SENTENCE_BYTES)
            {
                line.push(' ');
                line.push_str(&quote.inline(next));
            }
            let code = shows.map(|listing| listing.text.lines().map(str::trim).collect::<Vec<_>>().join("; "));
            if let Some(code) = code.filter(|code| !code.contains('`')) {
                line.push_str(&format!(" `{code}`"));
            }
            best = Some(Key { lines: vec![line], worth, whole: false });
        }
    }
    best
}

fn has_digit(text: &str) -> bool {
    text.contains(|c: char| c.is_ascii_digit())
}

/// What the comments of a listing say: each with the line that it stands behind or above.
pub(crate) fn remarks(text: &str) -> Vec<&str> {
    let comment = |line: &str| line.trim_start().starts_with("# ") || line.trim_start().starts_with("// ");
    let mut found = Vec::new();
    let mut open: Option<usize> = None;
    for range in lines(text) {
        let line = text.get(range.clone()).unwrap_or_default();
        let start = open.unwrap_or(range.start);
        open = comment(line).then_some(start);
        let remark = start < range.start || line.contains(" # ") || line.contains(" // ");
        if open.is_none() && remark {
            found.extend(text.get(start..range.end).filter(|remark| remark.len() <= SENTENCE_BYTES));
        }
    }
    found
}

/// A part of a listing on one line of Markdown.
fn inline_code(part: &str) -> String {
    let ticks = "`".repeat(longest_run(part) + 1);
    let space = if part.contains('`') { " " } else { "" };
    format!("{ticks}{space}{}{space}{ticks}", part.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The first sentence of each item of a list.
fn items(text: &str) -> impl Iterator<Item = &str> {
    let starts: Vec<usize> = lines(text)
        .into_iter()
        .filter(|line| text.get(line.clone()).is_some_and(|line| item(line).is_some()))
        .map(|line| line.start)
        .collect();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain(std::iter::once(text.len())).collect();
    starts.into_iter().zip(ends).filter_map(move |(start, end)| {
        let whole = item(text.get(start..end)?.trim())?;
        sentences(whole).into_iter().next().and_then(|first| whole.get(first))
    })
}

/// A table of Markdown.
pub(crate) struct Table<'a> {
    columns: Vec<&'a str>,
    pub(crate) rows: Vec<&'a str>,
}

impl<'a> Table<'a> {
    /// A whole table, or a row of one that has this head.
    pub(crate) fn of(head: &'a str, text: &'a str) -> Self {
        let mut lines = head.lines().chain(text.lines()).map(str::trim);
        let columns = lines.next().map(cells).unwrap_or_default();
        let rule = |line: &&str| line.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '));
        Self { columns, rows: lines.filter(|line| !rule(line)).collect() }
    }

    /// A row on one line: each cell that is not empty, with what its column is called.
    pub(crate) fn shown(&self, row: &str) -> String {
        let cells = cells(row);
        let named = cells.iter().enumerate().filter(|(_, cell)| !cell.is_empty()).map(|(at, cell)| {
            match self.columns.get(at).filter(|name| !name.is_empty()) {
                Some(name) if at > 0 => format!("{name}: {cell}"),
                _ => (*cell).to_owned(),
            }
        });
        named.collect::<Vec<_>>().join("; ")
    }
}

fn cells(row: &str) -> Vec<&str> {
    row.trim().trim_start_matches('|').trim_end_matches('|').split('|').map(str::trim).collect()
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
        for line in self.escaped(self.head).lines() {
            let _ = writeln!(block, "> {}", line.trim_end());
        }
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
