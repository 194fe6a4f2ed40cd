//! The report, as Markdown that a person reads.

use std::{collections::HashMap, fmt::Write as _};

use guild_session::files::Reason;

use crate::{
    format::format,
    text::{cut, one_line},
};

use super::{
    corpus::Corpus,
    figures::Figures,
    quote::{Key, Quote},
    search::{Finding, QuestionAnswer, Search},
};

/// How much of a task the report repeats, in characters.
const TASK_CHARS: usize = 1500;
/// Sentences of the summary for one question.
const SENTENCES: usize = 2;

/// The line that every report ends with.
const EXTRACTED: &str = "*This report was extracted by search and not written by a model: the quotations are the sources' \
    own words, and what is not quoted was not judged. The worker's posture and instructions are for models, and had no part in it.*";

/// A source, by the weight of what was found in it.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) title: String,
    /// Of all sources of the report, in percent.
    pub(crate) percent: u32,
    findings: Vec<usize>,
}

/// A finding with its number in the report.
struct Cited<'a> {
    number: usize,
    finding: &'a Finding,
    /// The passage, and the listing that it leads to.
    quotes: Vec<Quote<'a>>,
}

/// What is reported.
pub(crate) struct Report<'a> {
    corpus: &'a Corpus,
    pub(crate) answers: &'a [QuestionAnswer],
    /// What the worker computed.
    pub(crate) figures: &'a [Figures],
    /// How many documents were searched.
    pub(crate) searched: usize,
    /// The names of the read roots.
    roots: &'a [String],
    /// A sentence on the files that are not among them.
    pub(crate) absent: Option<String>,
    /// For each answer, its findings; a passage that answers two questions has one number.
    cited: Vec<Vec<Cited<'a>>>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(
        corpus: &'a Corpus,
        answers: &'a [QuestionAnswer],
        figures: &'a [Figures],
        searched: usize,
        roots: &'a [String],
    ) -> Self {
        let mut numbers: HashMap<u32, usize> = HashMap::new();
        let mut cited = Vec::new();
        for answer in answers {
            let search = Search { corpus, question: &answer.question };
            let own = answer.findings.iter().map(|finding| {
                let next = numbers.len() + 1;
                let number = *numbers.entry(finding.passage).or_insert(next);
                Cited { number, finding, quotes: search.quotes(finding.passage) }
            });
            cited.push(own.collect());
        }
        Self { corpus, answers, figures, searched, roots, absent: None, cited }
    }

    /// How many passages are quoted.
    pub(crate) fn findings(&self) -> usize {
        self.cited.iter().flatten().map(|cited| cited.number).max().unwrap_or(0)
    }

    fn place(&self, cited: &Cited<'_>) -> String {
        let path = self.corpus.passage(cited.finding.passage).map_or("", |(_, document)| document.path.as_str());
        format!("`{path}:{}`", cited.quotes.first().map_or(1, |quote| quote.line))
    }

    /// The title of a passage's page and its heading there.
    fn heading(&self, passage: u32) -> String {
        let (title, heading) = (self.corpus.title(passage), self.corpus.heading(passage));
        let plain = |text: &str| text.replace('`', "");
        if heading.is_empty() || plain(heading) == plain(title) {
            shown(title)
        } else if title.is_empty() {
            shown(heading)
        } else {
            format!("{} › {}", shown(title), shown(heading))
        }
    }

    /// The sources, by weight.
    pub(crate) fn sources(&self) -> Vec<Source> {
        let mut weights: HashMap<u32, (f32, Vec<usize>)> = HashMap::new();
        for own in &self.cited {
            // Scores compare within a question only.
            let best = own.iter().map(|cited| cited.finding.score).fold(f32::MIN_POSITIVE, f32::max);
            for cited in own {
                let Some((passage, _)) = self.corpus.passage(cited.finding.passage) else { continue };
                let source = weights.entry(passage.document).or_default();
                source.0 += cited.finding.score / best;
                if !source.1.contains(&cited.number) {
                    source.1.push(cited.number);
                }
            }
        }
        let all: f32 = weights.values().map(|(weight, _)| weight).sum();
        let mut sources: Vec<(u32, (f32, Vec<usize>))> = weights.into_iter().collect();
        sources.sort_by(|a, b| b.1.0.total_cmp(&a.1.0).then(a.0.cmp(&b.0)));
        let source = |(document, (weight, findings)): (u32, (f32, Vec<usize>))| {
            let document = self.corpus.documents.get(document as usize)?;
            let percent = (weight / all.max(f32::MIN_POSITIVE) * 100.0).round() as u32;
            Some(Source { path: document.path.clone(), title: document.page.title.clone(), percent, findings })
        };
        sources.into_iter().filter_map(source).collect()
    }

    /// What a person would have to answer, or to look for elsewhere.
    pub(crate) fn open_questions(&self) -> Vec<String> {
        let mut open = Vec::new();
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
        for answer in self.answers {
            let question = answer.question.text.trim_end_matches(['?', '.', '？', '。', ' ']);
            if !self.computed(answer).is_empty() {
                continue;
            }
            if answer.findings.is_empty() && !self.figures.is_empty() {
                open.push(format!("{question}? (it names no column of the tables; see all their figures)"));
            } else if answer.findings.is_empty() {
                let why = self.lacking(answer, "they").unwrap_or_else(|| "no passage is about all of it".to_owned());
                open.push(format!("Not found in the sources: {question}? ({why})"));
            } else if let Some(lacking) = self.lacking(answer, "the sources") {
                let (first, rest) = lacking.split_at(1);
                open.push(format!("{question}? {}{rest}; what is quoted is about the rest.", first.to_uppercase()));
            }
        }
        open
    }

    /// The words of a question that were not found, and how far that is certain. `sources` is what the sources are
    /// called.
    fn lacking(&self, answer: &QuestionAnswer, sources: &str) -> Option<String> {
        let quoted = |words: &[String]| words.iter().map(|word| format!("“{word}”")).collect::<Vec<_>>().join(", ");
        // Files that are no documents were looked at all the same. Of the others nothing is known.
        let looked_at = [Reason::Kind, Reason::Beyond, Reason::Costly].map(|reason| self.corpus.unread.count(reason));
        let all = self.corpus.unread.total() == looked_at.iter().sum::<usize>();
        let sources = if all { sources } else { "the documents that could be read" };
        let absent = (!answer.absent.is_empty()).then(|| format!("{sources} never mention {}", quoted(&answer.absent)));
        let unknown =
            (!answer.unknown.is_empty()).then(|| format!("no passage was found with {}", quoted(&answer.unknown)));
        let all: Vec<String> = absent.into_iter().chain(unknown).collect();
        (!all.is_empty()).then(|| all.join(", and "))
    }

    /// The report. It begins with the task, where its reader does not know that.
    pub(crate) fn markdown(&self, task: Option<&str>) -> String {
        let mut text = String::new();
        if let Some(task) = task {
            text.push_str("# Research report\n\n## Question\n\n");
            let (task, whole) = cut(task.trim(), TASK_CHARS);
            for line in task.lines() {
                text.push_str(if line.trim().is_empty() { ">" } else { "> " });
                text.push_str(line.trim_end());
                text.push('\n');
            }
            text.push_str(if whole { "\n" } else { "> […]\n\n" });
        }
        self.summary(&mut text);
        self.computed_figures(&mut text);
        self.quotations(&mut text);
        self.sources_by_weight(&mut text);
        let open = self.open_questions();
        if !open.is_empty() {
            text.push_str("## Open questions\n\n");
            open.iter().for_each(|question| text.push_str(&format!("- {question}\n")));
            text.push('\n');
        }
        self.not_read(&mut text);
        let roots = self.roots.iter().map(|root| format!("`{root}`")).collect::<Vec<_>>().join(", ");
        let searched = count(self.searched, "document");
        let absent = self.absent.as_ref().map(|absent| format!(" {absent}")).unwrap_or_default();
        let _ = writeln!(text, "---\n\n{EXTRACTED} *Searched: {searched} in {roots}.{absent}*");
        text
    }

    /// The files that were found and not read, if any, and how many were read and left out, so that the numbers add up.
    fn not_read(&self, text: &mut String) {
        let Corpus { seen, unread, documents, .. } = self.corpus;
        // A table is no document, and its figures are read all the same.
        let computed = self.figures.iter().filter(|figures| figures.computed()).map(|figures| figures.path.as_str());
        let tables: Vec<&str> = computed.filter(|path| format(path).is_none()).collect();
        let unread = unread.without(Reason::Kind, &tables);
        if unread.is_empty() {
            return;
        }
        let figures =
            if tables.is_empty() { String::new() } else { format!(" Computed: {}.", count(tables.len(), "table")) };
        let _ = writeln!(
            text,
            "## Not read\n\nSearched: {} of {}.{figures} Not read:\n",
            documents.len(),
            count(*seen, "file")
        );
        unread.lines().for_each(|line| text.push_str(&format!("- {line}\n")));
        let repeated = seen.saturating_sub(documents.len() + tables.len() + unread.total());
        if repeated > 0 {
            let _ =
                writeln!(text, "\nRead, and left out since they say nothing of their own, as copies do: {repeated}.");
        }
        text.push('\n');
    }

    fn summary(&self, text: &mut String) {
        text.push_str("## Summary\n\n");
        if self.searched == 0 && self.figures.is_empty() {
            text.push_str("**No document was read**, so this report says nothing about what was asked.\n\n");
            return;
        }
        for (answer, cited) in self.answers.iter().zip(&self.cited) {
            if self.answers.len() > 1 {
                let _ = writeln!(text, "**{}**\n", shown(&answer.question.text));
            }
            let computed = self.computed(answer);
            computed.iter().for_each(|line| text.push_str(&format!("- {line}\n")));
            if cited.is_empty() {
                text.push_str(match (computed.is_empty(), self.figures.is_empty()) {
                    (false, _) => "\n",
                    (true, false) => "The question names no column of the tables: all their figures are below.\n\n",
                    (true, true) => "Not found in the sources.\n\n",
                });
                continue;
            }
            let search = Search { corpus: self.corpus, question: &answer.question };
            let first = cited.iter().take(4);
            let mut keys: Vec<(Key, &Cited<'_>)> =
                first.filter_map(|cited| Some((search.key(cited.finding.passage, &cited.quotes)?, cited))).collect();
            // If any key names the option that was asked about, only such keys answer.
            let named = |key: &Key| answer.question.options_in(&key.lines.join("\n"));
            if keys.iter().any(|(key, _)| named(key)) {
                keys.retain(|(key, _)| named(key));
            }
            // A sentence that is much less informative than another is no answer next to it.
            let most = keys.iter().map(|(key, _)| key.worth).fold(0.0, f32::max);
            keys.retain(|(key, _)| key.worth >= most * 0.5);
            let rank = |(key, cited): &(Key, &Cited<'_>)| key.worth * cited.finding.score.sqrt();
            keys.sort_by(|a, b| rank(b).total_cmp(&rank(a)).then(a.1.number.cmp(&b.1.number)));
            // A list that answers as a whole is enough.
            keys.truncate(if keys.first().is_some_and(|(key, _)| key.whole) { 1 } else { SENTENCES });
            for (key, cited) in &keys {
                for line in &key.lines {
                    let _ = writeln!(text, "- “{line}” [{}]", cited.number);
                }
            }
            if keys.is_empty() {
                let numbers = cited.iter().map(|cited| format!("[{}]", cited.number)).collect::<Vec<_>>().join(" ");
                let _ = writeln!(text, "- See {numbers}.");
            }
            text.push('\n');
        }
    }

    /// The rows of the figures that a question names.
    pub(crate) fn computed(&self, answer: &QuestionAnswer) -> Vec<String> {
        let rows = |figures: &'a Figures| {
            let rows = figures.answer(&answer.question);
            rows.into_iter().map(|row| format!("`{}`: {row}", figures.path))
        };
        self.figures.iter().flat_map(rows).collect()
    }

    fn computed_figures(&self, text: &mut String) {
        if self.figures.is_empty() {
            return;
        }
        text.push_str("## Figures\n\nThe worker computed these from the tables, without a model.\n\n");
        for figures in self.figures {
            let _ = writeln!(text, "### `{}`\n\n{}\n", figures.path, figures.text.trim());
        }
    }

    fn quotations(&self, text: &mut String) {
        if self.findings() == 0 {
            return;
        }
        text.push_str("## Findings\n\n");
        let mut written = 0;
        for (answer, cited) in self.answers.iter().zip(&self.cited) {
            if self.answers.len() > 1 && !cited.is_empty() {
                let _ = writeln!(text, "### {}\n", shown(&answer.question.text));
            }
            let mut again = Vec::new();
            for cited in cited {
                if cited.number <= written {
                    again.push(format!("[{}]", cited.number));
                    continue;
                }
                written = cited.number;
                let (number, heading, place) = (cited.number, self.heading(cited.finding.passage), self.place(cited));
                let _ = writeln!(text, "**[{number}] {heading}** — {place}\n");
                for quote in &cited.quotes {
                    let _ = writeln!(text, "{}", quote.block());
                }
            }
            if !again.is_empty() {
                let _ = writeln!(text, "See also {}.\n", again.join(" "));
            }
        }
    }

    fn sources_by_weight(&self, text: &mut String) {
        let sources = self.sources();
        if sources.is_empty() {
            return;
        }
        text.push_str("## Sources\n\n| Weight | Source | Findings |\n|---:|---|---|\n");
        for source in sources {
            let findings = source.findings.iter().map(|number| format!("[{number}]")).collect::<Vec<_>>().join(" ");
            let title = shown(&source.title).replace('|', "\\|");
            let _ = writeln!(text, "| {} % | {title} (`{}`) | {findings} |", source.percent, source.path);
        }
        text.push('\n');
    }
}

/// A title or question of a source as text of the report: on one line, and none of it markup but code in backticks.
fn shown(text: &str) -> String {
    let line = one_line(text);
    let mut code = false;
    let mut shown = String::with_capacity(line.len());
    for c in line.chars() {
        code ^= c == '`';
        if !code && matches!(c, '<' | '*' | '[') {
            shown.push('\\');
        }
        shown.push(c);
    }
    shown
}

/// A number of things.
pub(crate) fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
