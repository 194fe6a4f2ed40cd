//! Writes the report as Markdown.

use std::fmt::Write as _;

use guild_contract::text::cut;
use guild_session::document::{Format, document_kind};

use crate::{
    corpus::{Corpus, Document},
    extract::{Passage, sentence_ends},
    figures::Figures,
    index::Hit,
    search::{ABOUT, Answer},
};

/// How much of a task the report repeats, in characters.
const TASK_CHARS: usize = 1500;
/// The longest sentence of a summary, in bytes.
const SENTENCE_BYTES: usize = 420;

/// The line that every report ends with.
const EXTRACTED: &str = "*This report was extracted by search and not written by a model: the quotations are the sources' \
    own words, and whether they answer the question was not judged. The worker's posture and instructions are for models, and had no \
    part in it.*";

/// The parts of a report.
pub(crate) struct Report<'a> {
    pub(crate) corpus: &'a Corpus,
    pub(crate) answers: &'a [Answer],
    /// The figures that the worker computed.
    pub(crate) figures: &'a [Figures],
    /// How many documents were searched.
    pub(crate) searched: usize,
    /// The names of the read roots.
    pub(crate) roots: &'a [String],
    /// A sentence on files that are no sources.
    pub(crate) absent: Option<String>,
    /// The passages that are quoted, in the order of their numbers.
    numbers: Vec<u32>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(
        corpus: &'a Corpus,
        answers: &'a [Answer],
        figures: &'a [Figures],
        searched: usize,
        roots: &'a [String],
        absent: Option<String>,
    ) -> Self {
        let mut numbers: Vec<u32> = Vec::new();
        for hit in answers.iter().flat_map(|answer| &answer.hits) {
            if !numbers.contains(&hit.passage) {
                numbers.push(hit.passage);
            }
        }
        Self { corpus, answers, figures, searched, roots, absent, numbers }
    }

    /// The report as Markdown. It begins with the task, if that is given.
    pub(crate) fn markdown(&self, task: Option<&str>) -> String {
        let mut text = String::new();
        if let Some(task) = task {
            let (task, is_whole) = cut(task.trim(), TASK_CHARS);
            let end = if is_whole { "" } else { "> […]\n" };
            let _ = writeln!(text, "# Research report\n\n## Question\n\n{}{end}", quoted(task));
        }
        text.push_str("## Summary\n\n");
        if self.searched == 0 && self.figures.is_empty() {
            text.push_str("**No document was read**, so this report says nothing about what was asked.\n\n");
        } else {
            self.answers.iter().for_each(|answer| self.summary(answer, &mut text));
        }
        self.computed(&mut text);
        self.findings(&mut text);
        let open = self.open_questions();
        if !open.is_empty() {
            let _ = writeln!(text, "## Open questions\n\n- {}\n", open.join("\n- "));
        }
        self.not_read(&mut text);
        let roots = self.roots.iter().map(|root| format!("`{root}`")).collect::<Vec<_>>().join(", ");
        let searched = count(self.searched, "document");
        let absent = self.absent.as_ref().map(|absent| format!(" {absent}")).unwrap_or_default();
        let _ = writeln!(text, "---\n\n{EXTRACTED} *Searched: {searched} in {roots}.{absent}*");
        text
    }

    /// The best sentence on a question, or the titles of its passages.
    fn summary(&self, answer: &Answer, text: &mut String) {
        if self.answers.len() > 1 {
            let _ = writeln!(text, "**{}**\n", shown(&answer.question));
        }
        let numbers = answer.hits.iter().map(|hit| format!("[{}]", self.number(hit))).collect::<Vec<_>>().join(" ");
        let _ = match (answer.hits.is_empty(), self.sentence(answer)) {
            (true, _) if !self.figures.is_empty() => writeln!(text, "The figures of the tables are below.\n"),
            (true, _) if answer.terms.is_empty() => writeln!(text, "The question has no word to look for.\n"),
            (true, _) => writeln!(text, "Not found in the sources.\n"),
            (false, Some((sentence, number))) => writeln!(text, "- “{sentence}” [{number}]\n"),
            (false, None) if answer.is_found() => writeln!(text, "{}", self.titles(answer)),
            (false, None) => {
                writeln!(text, "No passage has most of what was asked. The closest passages: {numbers}.\n")
            }
        };
    }

    /// The titles of a question's passages, as a list.
    fn titles(&self, answer: &Answer) -> String {
        let title = |hit: &Hit| {
            let (document, passage) = self.corpus.passage(hit.passage)?;
            Some(format!("- {} [{}]\n", shown(&document.heading(passage)), self.number(hit)))
        };
        answer.hits.iter().filter_map(title).collect()
    }

    /// The sentence that, with its heading, has most of a question's words, and the number of its passage.
    fn sentence(&self, answer: &Answer) -> Option<(String, usize)> {
        let index = &self.corpus.index;
        let mut best: Option<(f32, &Document, &str, usize)> = None;
        for hit in answer.hits.iter().filter(|_| answer.is_found()) {
            let Some((document, passage)) = self.corpus.passage(hit.passage) else { continue };
            let mut start = 0;
            for end in sentence_ends(&passage.text).chain([passage.text.len()]).filter(|_| !passage.code) {
                let sentence = passage.text.get(start..end).unwrap_or_default().trim();
                start = end;
                let with_heading = format!("{} {sentence}", document.heading(passage));
                let share = answer.share(index, &with_heading);
                let is_best = best.is_none_or(|(most, ..)| share > most) && answer.share(index, sentence) > 0.0;
                if share >= ABOUT
                    && is_best
                    && sentence.len() <= SENTENCE_BYTES
                    && !sentence.ends_with(['?', ':'])
                    && !["```", "|"].iter().any(|mark| sentence.contains(mark))
                    && !may_embed(sentence, document)
                {
                    best = Some((share, document, sentence, self.number(hit)));
                }
            }
        }
        let (_, document, sentence, number) = best?;
        let sentence = sentence.strip_prefix("- ").unwrap_or(sentence);
        let line = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
        Some((escaped(&line, document), number))
    }

    /// The number of a passage in the report. A passage has one number for all questions.
    fn number(&self, hit: &Hit) -> usize {
        self.numbers.iter().position(|passage| *passage == hit.passage).map_or(0, |at| at + 1)
    }

    fn computed(&self, text: &mut String) {
        if self.figures.is_empty() {
            return;
        }
        text.push_str("## Figures\n\nThe worker computed these from the tables, without a model.\n\n");
        for figures in self.figures {
            let _ = writeln!(text, "### `{}`\n\n{}\n", figures.path, figures.text.trim());
        }
    }

    fn findings(&self, text: &mut String) {
        if self.numbers.is_empty() {
            return;
        }
        text.push_str("## Findings\n\n");
        for (number, passage) in (1..).zip(&self.numbers) {
            let Some((document, passage)) = self.corpus.passage(*passage) else { continue };
            let (heading, line) = (shown(&document.heading(passage)), passage.line);
            let path = document.path.replace(['`', '\n', '\r'], "?");
            let _ = writeln!(text, "**[{number}] {heading}** — `{path}:{line}`\n");
            let _ = writeln!(text, "{}", block(document, passage));
        }
    }

    /// The questions for which no passage has most of the words.
    pub(crate) fn open_questions(&self) -> Vec<String> {
        if self.searched == 0 && self.figures.is_empty() {
            let roots = self.roots.join(", ");
            let why = if self.corpus.documents.is_empty() {
                "there is none that can be read: check the directories, their permissions, and what .gitignore leaves out"
            } else {
                "none has a path that the task names after `Sources:`"
            };
            let absent = self.absent.as_ref().map(|absent| format!(" {absent}")).unwrap_or_default();
            return vec![format!("No document of the read roots ({roots}) was read, and {why}.{absent}")];
        }
        let open = |answer: &&Answer| !answer.is_found() && (self.figures.is_empty() || !answer.hits.is_empty());
        let line = |answer: &Answer| {
            let words = answer.missing.iter().map(|word| format!("“{word}”")).collect::<Vec<_>>().join(", ");
            let why = if words.is_empty() { String::new() } else { format!(" (no passage has {words})") };
            format!("{}{why}", shown(&answer.question))
        };
        self.answers.iter().filter(open).map(line).collect()
    }

    /// Writes which files were found and not read, if any.
    fn not_read(&self, text: &mut String) {
        let Corpus { seen, unread, documents, .. } = self.corpus;
        if unread.is_empty() {
            return;
        }
        let lines = unread.lines().collect::<Vec<_>>().join("\n- ");
        let of = count(*seen, "file");
        let _ = writeln!(text, "## Not read\n\nSearched: {} of {of}. Not read:\n\n- {lines}\n", documents.len());
    }
}

/// A passage as a quotation in Markdown. A listing stands in a fence, and so does Markdown that may embed something.
fn block(document: &Document, passage: &Passage) -> String {
    if !passage.code && !may_embed(&passage.text, document) {
        return quoted(&escaped(&passage.text, document));
    }
    let longest = passage.text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let extension =
        document.path.rsplit('.').next().filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    let language = match document_kind(&document.path) {
        Some(Format::Code) => extension.unwrap_or_default(),
        _ => "text",
    };
    format!("{fence}{language}\n{}\n{fence}\n", passage.text)
}

/// A text as a block quotation.
fn quoted(text: &str) -> String {
    let line = |line: &str| format!("> {line}").trim_end().to_owned() + "\n";
    text.lines().map(line).collect()
}

/// Whether a text of a Markdown document may have a picture or an HTML tag. Rendered, these make the reader's program
/// fetch an address that the document's author chose.
fn may_embed(text: &str, document: &Document) -> bool {
    let has_tag = |text: &str| text.split('<').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()));
    document_kind(&document.path) == Some(Format::Markdown) && (text.contains("![") || has_tag(text))
}

/// A text of a document with the markup characters escaped that it does not have as Markdown.
fn escaped(text: &str, document: &Document) -> String {
    if document_kind(&document.path) == Some(Format::Markdown) {
        return text.to_owned();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    let mut line_starts = true;
    for c in text.chars() {
        let is_markup =
            matches!(c, '\\' | '`' | '*' | '<' | '[') || line_starts && matches!(c, '#' | '-' | '+' | '>' | '=');
        escaped.extend(is_markup.then_some('\\'));
        escaped.push(c);
        line_starts = c == '\n' || line_starts && c == ' ';
    }
    escaped
}

/// A title or question as text of the report: on one line, with all markup escaped but code between single backticks.
fn shown(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // Backticks that have a partner.
    let mut paired = if line.contains("``") { 0 } else { line.matches('`').count() / 2 * 2 };
    let mut is_code = false;
    let mut shown = String::with_capacity(line.len());
    for c in line.chars() {
        if c == '`' && paired > 0 {
            (paired, is_code) = (paired - 1, !is_code);
        } else if !is_code && matches!(c, '\\' | '`' | '<' | '*' | '[') {
            shown.push('\\');
        }
        shown.push(c);
    }
    shown
}

/// A number with its noun.
pub(crate) fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
