//! Quotations: which part of a passage is quoted, where it stands, and how it is written in Markdown.
//!
//! A quotation is the source's own text, character by character. In a report it must also read as that text: so
//! listings stand in fences, and in prose that is no Markdown itself the few characters that Markdown would take for
//! markup are escaped.

use std::ops::Range;

use crate::{format::Format, text::one_line};

use super::{
    extract::OMITTED,
    search::{ENUMERATED, Search, enumeration, item},
    terms::{
        contrasts, counted, defines, first_best, is_meta, line_ranges, refers_back, sentence_ranges, sentences,
        term_mask,
    },
};

/// The longest passage that is quoted whole; of a longer one, the part around what answers best is quoted.
const QUOTE_BYTES: usize = 650;
/// The most lines of a listing that are quoted.
const QUOTE_LINES: usize = 24;
/// The longest sentence of a summary.
const SENTENCE_BYTES: usize = 420;
/// The most items or rows of a summary.
const ITEMS: usize = 10;
/// The most lines of a listing that a summary shows.
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

impl<'a> Search<'a> {
    /// The quotations from a passage, and from the listing that it leads to.
    pub(crate) fn quotes(self, number: u32) -> Vec<Quote<'a>> {
        let passages = std::iter::once(number).chain(self.corpus.listing(number));
        passages.filter_map(|passage| self.quote(passage)).collect()
    }

    /// The most informative quotation from a passage.
    pub(crate) fn quote(self, number: u32) -> Option<Quote<'a>> {
        let corpus = self.corpus;
        let (passage, document) = corpus.passage(number)?;
        let page = &document.page;
        let mut range = passage.range();
        let fenced = page.format == Format::Markdown && passage.code;
        if fenced {
            range = unfenced(&page.text, range);
        }
        let text = page.text.get(range.clone())?;
        let parts = if passage.code { line_ranges(text) } else { sentence_ranges(text) };
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
            let rated = parts.iter().filter_map(|part| text.get(part.clone())).map(|part| self.worth(part));
            let best = first_best(rated.enumerate()).map_or(0, |(at, _)| at);
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

    /// How informative a part of a passage is on the question.
    fn worth(self, text: &str) -> f32 {
        self.worth_by(text, |_| 1.0)
    }

    /// The same, where the weight of each term, by its index, is multiplied by a factor.
    fn worth_by(self, text: &str, factor: impl Fn(usize) -> f32) -> f32 {
        let mask = term_mask(text, &self.question.terms);
        let present = self.question.terms.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1);
        present.map(|(at, term)| self.weight(term) * factor(at)).sum()
    }

    /// What answers best in a quotation: the items of a list or the rows of a table that is about what was asked, else the
    /// row or the most informative sentence. Only a sentence that can be read by itself will do.
    pub(crate) fn key(self, passage: u32, quotes: &[Quote<'_>]) -> Option<Key> {
        let question = self.question;
        let mut said = self.said(passage, quotes);
        // A question for how many is answered by a number.
        for key in said.iter_mut().filter(|key| question.quantity && !key.lines.iter().any(|line| has_digit(line))) {
            key.worth *= 0.5;
            key.whole = false;
        }
        let listings = || quotes.iter().filter(|quote| quote.code).map(|quote| quote.text);
        let remarked = listings().flat_map(remarks).filter(|remark| self.coverage(&[remark]) >= ENUMERATED);
        let asked = listings().flat_map(str::lines).map(str::trim_end).filter(|line| {
            (1..=SENTENCE_BYTES).contains(&line.len()) && question.has_option() && question.options_in(line)
        });
        let remarked = remarked.chain(asked).map(|remark| Key {
            lines: vec![inline_code(remark)],
            worth: self.worth(remark),
            whole: false,
        });
        said.into_iter().chain(remarked).reduce(|best, next| if next.worth > best.worth { next } else { best })
    }

    /// What answers best in the words of a quotation.
    fn said(self, passage: u32, quotes: &[Quote<'_>]) -> Option<Key> {
        let Self { corpus, question } = self;
        let quote = quotes.first().filter(|quote| !quote.code)?;
        let terms = &question.terms;
        let (heading, table_head) = (corpus.heading(passage), corpus.table_head(passage));
        let headed = || self.worth(&format!("{heading} {}", quote.text));
        let counted = counted(quote.text);
        if self.counts(passage, &counted) {
            let lines = counted.iter().map(|line| quote.inline(line)).collect();
            return Some(Key { lines, worth: headed() * 12.0, whole: true });
        }
        let table = quote.text.starts_with('|').then(|| Table::of(table_head, quote.text));
        if let Some(lead) = enumeration(quote.text).filter(|_| table_head.is_empty())
            && self.coverage(&[heading, lead]) >= ENUMERATED
        {
            let rows = table.as_ref().map(|table| table.rows.iter().map(|row| table.shown(row)).collect::<Vec<_>>());
            let lines: Vec<String> = rows.unwrap_or_else(|| items(quote.text).map(str::to_owned).collect());
            let lines: Vec<String> = lines.iter().take(ITEMS).map(|line| quote.inline(line)).collect();
            // A question for several things is answered by a list; one for what a thing is, by a definition.
            let factor = if question.several { 12.0 } else { 1.5 };
            if lines.len() >= 2 {
                return Some(Key { lines, worth: headed() * factor, whole: true });
            }
        }
        if let Some(table) = table {
            let rated = table.rows.iter().map(|row| (row, self.worth(row)));
            let (row, worth) = first_best(rated).filter(|(_, worth)| *worth > 0.0)?;
            return Some(Key { lines: vec![quote.inline(&table.shown(row))], worth, whole: false });
        }
        let listing = quotes.get(1).filter(|listing| listing.text.lines().count() <= COMMAND_LINES);
        // What the heading says already is less informative in a sentence under it, unless it says all.
        let headed = term_mask(heading, terms);
        let partly = (headed.count_ones() as usize) < terms.len();
        let factor_of = |at: usize| if partly && headed >> at & 1 == 1 { 0.25 } else { 1.0 };
        let mut most = 0.0;
        let mut best: Option<Key> = None;
        let ranges = sentence_ranges(quote.text);
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
                    c.is_uppercase()
                        || c.is_numeric()
                        || matches!(c, '`' | '"' | '“' | '*' | '_' | '-')
                        || !c.is_ascii()
                })
                && !plain.contains("\n- ")
                && !plain.contains("\n* ")
                && plain.matches("**").count() % 2 == 0
                && plain.matches('`').count() % 2 == 0
                && !plain.contains('|');
            // Where a definition was asked for and is there, nothing else counts.
            let defining = question.definition && defines(terms, plain);
            let shown = shows.map_or(plain.to_owned(), |listing| format!("{plain} {}", listing.text));
            let factor = if refers_back(plain) { 0.75 } else { 1.0 }
                * if is_meta(plain) { 0.3 } else { 1.0 }
                * if defining { 10.0 } else { 1.0 };
            let rated = self.worth_by(&shown, factor_of) * factor;
            if stands && rated > most {
                most = rated;
                let worth = self.worth(&shown) * factor;
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
}

/// A listing of Markdown without its fences, if it has any.
fn unfenced(text: &str, range: Range<usize>) -> Range<usize> {
    let all = text.get(range.clone()).unwrap_or_default();
    let is_fence = |line: &str| line.starts_with("```") || line.starts_with("~~~");
    if !is_fence(all) {
        return range;
    }
    let mut inner = line_ranges(all);
    inner.retain(|line| !all.get(line.clone()).is_some_and(is_fence));
    match (inner.first(), inner.last()) {
        (Some(first), Some(last)) => range.start + first.start..range.start + last.end,
        _ => range,
    }
}

/// What a summary says out of a quotation.
pub(crate) struct Key {
    /// Sentences, items or rows, each on one line.
    pub(crate) lines: Vec<String>,
    /// How informative it is.
    pub(crate) worth: f32,
    /// Whether it is a list or a table that answers as a whole.
    pub(crate) whole: bool,
}

fn has_digit(text: &str) -> bool {
    text.contains(|c: char| c.is_ascii_digit())
}

/// What the comments of a listing say: each with the line that it stands behind or above.
pub(crate) fn remarks(text: &str) -> Vec<&str> {
    let comment = |line: &str| line.trim_start().starts_with("# ") || line.trim_start().starts_with("// ");
    let mut found = Vec::new();
    let mut open: Option<usize> = None;
    for range in line_ranges(text) {
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
    format!("{ticks}{space}{}{space}{ticks}", one_line(part))
}

/// The first sentence of each item of a list.
fn items(text: &str) -> impl Iterator<Item = &str> {
    let starts: Vec<usize> = line_ranges(text)
        .into_iter()
        .filter(|line| text.get(line.clone()).is_some_and(|line| item(line).is_some()))
        .map(|line| line.start)
        .collect();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain(std::iter::once(text.len())).collect();
    starts.into_iter().zip(ends).filter_map(move |(start, end)| sentences(item(text.get(start..end)?.trim())?).next())
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
        self.escaped(&one_line(part))
    }

    /// The whole quotation as a block of Markdown.
    pub(crate) fn block(&self) -> String {
        if self.code {
            let fence = "`".repeat(longest_run(self.text).max(2) + 1);
            return format!("{fence}{}\n{}\n{fence}\n", self.language, self.text);
        }
        let mut block = String::new();
        for line in self.escaped(self.head).lines().chain(self.escaped(self.text).lines()) {
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
