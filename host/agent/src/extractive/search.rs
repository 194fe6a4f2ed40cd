//! Finding the passages that answer a question, and deciding whether any does.

use std::{
    collections::{HashMap, HashSet},
    mem,
};

use guild_session::files::{Files, GrepRequest};
use tokio_util::sync::CancellationToken;

use super::{
    corpus::Corpus,
    index::{Hit, QueryTerm},
    question::Question,
    quote::remarks,
    terms::{
        counted, defines, first_best, is_meta, is_stop, is_wide, line_ranges, position, refers_back, sentence_ranges,
        sentences, similarity, stem, stems, term_mask, tokens, words,
    },
};

/// The most passages that are scored, of all that have a word of the question.
const CANDIDATES: usize = 150;
/// The most passages among which diverse ones are chosen.
const POOL: usize = 40;
/// The weight of the lower score of a listing and the text that leads to it.
const LISTING: f32 = 0.25;
/// The share of a question that the lead of a list, or the head of a table, must have for the list to be the answer.
pub(crate) const ENUMERATED: f32 = 0.58;
/// The share of a question that one sentence, with the headings above it, must have to answer it.
const TOGETHER: f32 = 0.7;
/// The weight of the title of a passage's page, relative to the passage.
const TITLE: f32 = 0.5;
/// How much relevance counts against novelty (MMR).
const RELEVANCE: f32 = 0.72;
/// Two passages whose stems are at least this similar say the same.
const SAME: f32 = 0.7;
/// The most passages of one document among the findings of a question.
const PER_DOCUMENT: usize = 3;
/// The most words that the second round takes over from the findings of the first.
const SALIENT: usize = 5;
/// How much such a word counts.
const SALIENT_WEIGHT: f32 = 0.35;

/// So many words of a question are looked for in the files one by one, where some of them are there.
const VERIFIED: usize = 8;
/// Letters of an ending that a word has in another language, and the least that are left of the word.
const ENDING: usize = 2;
const ROOT: usize = 4;

/// A passage that answers a question.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) passage: u32,
    /// For comparison with others of the same corpus.
    pub(crate) score: f32,
    /// The share of what the question asks that the passage, where it stands, has words for.
    coverage: f32,
    /// The terms of the question that the passage itself has, one bit each.
    mask: u64,
}

/// What the sources have on a question.
#[derive(Clone, Debug)]
pub(crate) struct QuestionAnswer {
    pub(crate) question: Question,
    /// Best first; empty where the sources do not answer.
    pub(crate) findings: Vec<Finding>,
    /// Words of the question that no passage has; after [`QuestionAnswer::verify`], those that files may still mention.
    pub(crate) unknown: Vec<String>,
    /// Words of the question that no file mentions which could be read.
    pub(crate) absent: Vec<String>,
    /// Words that led the second round.
    pub(crate) salient: Vec<String>,
}

/// Searches for a question in the documents `within`: the first round, with the question's own words.
pub(crate) fn answer(corpus: &Corpus, within: &HashSet<u32>, question: Question, limit: usize) -> QuestionAnswer {
    let search = Search { corpus, question: &question };
    let candidates = search.candidates(within, &question.terms);
    let unknown = question.unknown(|term| corpus.index.having(&term.stem) > 0);
    let mut findings = Vec::new();
    if candidates.iter().any(|candidate| candidate.coverage >= search.needed()) {
        findings = search.covering(search.diverse(candidates, search.related(), limit));
    }
    QuestionAnswer { question, findings, unknown, absent: Vec::new(), salient: Vec::new() }
}

impl QuestionAnswer {
    /// Looks for the unknown words in the files themselves: a passage has no words of a page's frame, of what pages
    /// repeat, or of a table of data, and no other form of a word than its own.
    pub(crate) fn verify(&mut self, files: &dyn Files, cancel: &CancellationToken) {
        // Where it cannot be found out, nothing is claimed.
        let is_absent = |words: &[String]| {
            let pattern = words.iter().map(|word| mentioned(word)).collect::<Vec<_>>().join("|");
            let request = GrepRequest { pattern, ignore_case: true, limit: 1, ..GrepRequest::default() };
            let found = || files.grep(&request, cancel);
            !words.is_empty() && found().is_ok_and(|found| found.files.is_empty() && found.skipped == 0)
        };
        if is_absent(&self.unknown) {
            self.absent = mem::take(&mut self.unknown);
        } else if self.unknown.len() > 1 {
            let (alone, rest) = self.unknown.split_at(self.unknown.len().min(VERIFIED));
            let (absent, unknown): (Vec<String>, Vec<String>) =
                alone.iter().cloned().partition(|word| is_absent(std::slice::from_ref(word)));
            (self.unknown, self.absent) = ([unknown, rest.to_vec()].concat(), absent);
        }
    }
}

/// A pattern for where a text mentions a word, in any form that it has: words that begin as it does, but for an ending.
fn mentioned(word: &str) -> String {
    let plain = word.chars().all(|c| c.is_alphanumeric() && !is_wide(c));
    if !plain {
        return regex::escape(word);
    }
    let stem = stem(word);
    let common = word.chars().zip(stem.chars()).take_while(|(a, b)| a == b).count();
    let length = word.chars().count();
    // The stem is that of English. Words of other languages have endings of about two letters.
    let kept = if word.is_ascii() { common } else { length.saturating_sub(ENDING) };
    let root: String = word.chars().take(kept.max(length.min(ROOT))).collect();
    // Also within a longer word, as in `MemberRoster`: then nothing is claimed.
    regex::escape(&root)
}

/// Follows up on the findings: searches again, with the question's words and those that several findings have. Without
/// findings there is no second round: a search for less than was asked would find other things.
pub(crate) fn follow_up(corpus: &Corpus, within: &HashSet<u32>, answer: &mut QuestionAnswer, limit: usize) {
    if answer.findings.is_empty() {
        return;
    }
    let search = Search { corpus, question: &answer.question };
    let (salient, words): (Vec<QueryTerm>, Vec<String>) = search.salient(&answer.findings).into_iter().unzip();
    let query: Vec<QueryTerm> = answer.question.terms.iter().cloned().chain(salient).collect();
    answer.findings = search.covering(search.diverse(search.candidates(within, &query), search.related(), limit));
    answer.salient = words;
}

/// A question, and the corpus in which it is searched for.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    pub(crate) corpus: &'a Corpus,
    pub(crate) question: &'a Question,
}

impl Search<'_> {
    /// The share of the question's weight that a passage must have words for. Long questions are less to the point.
    fn needed(self) -> f32 {
        match self.question.terms.len() {
            0..=5 => 0.58,
            6..=8 => 0.5,
            9..=14 => 0.4,
            _ => 0.3,
        }
    }

    /// The share of the question's weight that a passage must have words for if another one answers it.
    fn related(self) -> f32 {
        self.needed() * 0.7
    }

    /// Passages that have some of the question's words, best first, whether or not they answer it.
    pub(crate) fn passages(self, limit: usize) -> Vec<Finding> {
        let candidates = self.candidates(&self.corpus.within(&[]), &self.question.terms);
        self.diverse(candidates, 0.0, limit)
    }

    /// Passages that have words of the query, scored, best first. Coverage is of the question alone.
    fn candidates(self, within: &HashSet<u32>, query: &[QueryTerm]) -> Vec<Finding> {
        let Self { corpus, question } = self;
        let titles: HashMap<u32, Hit> =
            corpus.titles.search(&question.terms, usize::MAX).into_iter().map(|hit| (hit.passage, hit)).collect();
        let hits = units(corpus, corpus.index.search(query, usize::MAX));
        let masks: HashMap<u32, u64> = hits.iter().map(|hit| (hit.passage, hit.mask)).collect();
        let mut found: Vec<Finding> = Vec::new();
        let inside = hits.iter().filter_map(|hit| {
            let (passage, _) = corpus.passage(hit.passage)?;
            within.contains(&passage.document).then_some((hit, passage))
        });
        for (hit, passage) in inside.take(CANDIDATES) {
            // Words that a passage lacks may be in its page's title, or in the passage before or after it under the
            // same heading.
            let neighbours =
                [hit.passage.checked_sub(1), hit.passage.checked_add(1)].into_iter().flatten().filter(|neighbour| {
                    corpus.passage(*neighbour).is_some_and(|(other, _)| {
                        (other.document, other.heading) == (passage.document, passage.heading)
                    })
                });
            let title = titles.get(&passage.document);
            let titled = hit.mask | title.map_or(0, |title| title.mask);
            let around = neighbours.fold(titled, |mask, neighbour| mask | masks.get(&neighbour).copied().unwrap_or(0));
            let own = self.share(titled);
            let coverage = own.max((0.7 * self.share(around)).min(own + 0.15));
            let form = self.form(hit.passage);
            let score =
                (hit.score + TITLE * title.map_or(0.0, |title| title.score)) * (0.2 + 0.8 * coverage).powi(2) * form;
            found.push(Finding { passage: hit.passage, score, coverage, mask: hit.mask });
        }
        found.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.passage.cmp(&b.passage)));
        found
    }

    /// The share of the question's weight that the texts together have words for.
    pub(crate) fn coverage(self, texts: &[&str]) -> f32 {
        self.share(texts.iter().fold(0, |mask, text| mask | term_mask(text, &self.question.terms)))
    }

    /// How much a term counts.
    pub(crate) fn weight(self, term: &QueryTerm) -> f32 {
        self.corpus.index.idf(&term.stem) * term.weight
    }

    /// The share of the question's weight that the terms with these bits have. A share with less than half of the terms
    /// counts half: one informative word of many is not what was asked.
    fn share(self, mask: u64) -> f32 {
        let terms = &self.question.terms;
        let all: f32 = terms.iter().map(|term| self.weight(term)).sum();
        let covered = terms.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1);
        let (words, sum) = covered.fold((0, 0.0), |(words, sum), (_, term)| (words + 1, sum + self.weight(term)));
        sum / all.max(f32::MIN_POSITIVE) * if words * 2 < terms.len() { 0.5 } else { 1.0 }
    }

    /// The findings that, as they are quoted under their heading, cover what was asked. None, if no finding has one
    /// sentence, row, list or listing that covers it by itself under its headings.
    fn covering(self, mut findings: Vec<Finding>) -> Vec<Finding> {
        let Self { corpus, question } = self;
        let mut answered = false;
        for finding in &mut findings {
            let number = finding.passage;
            let quotes = self.quotes(number);
            let context = [corpus.title(number), corpus.heading(number), corpus.table_head(number)];
            let covered = |texts: &[&str]| self.coverage(&[&context, texts].concat());
            finding.coverage = covered(&quotes.iter().map(|quote| quote.text).collect::<Vec<_>>());
            if finding.coverage < self.needed() {
                continue;
            }
            // A question for how long or how many is answered by a measure, which need not name what it measures.
            let least = if question.quantity { self.needed() } else { TOGETHER };
            let covers = |texts: &[&str]| covered(texts) >= least;
            let [prose, listing @ ..] = quotes.as_slice() else { continue };
            let whole = prose.code || enumeration(prose.text).is_some() || !corpus.table_head(number).is_empty();
            let said: Vec<&str> = sentences(prose.text).collect();
            let leads = said.last().zip(listing.first());
            answered |= whole && covers(&[prose.text])
                || !whole && said.iter().any(|sentence| covers(&[sentence]))
                || leads.is_some_and(|(lead, listing)| covers(&[lead, listing.text]));
        }
        findings.retain(|finding| answered && finding.coverage >= self.related());
        findings
    }

    /// How well a passage's form suits the question: its words together rather than scattered, a definition where one is
    /// asked for, prose rather than listings, and not a mere fragment.
    fn form(self, number: u32) -> f32 {
        let Self { corpus, question } = self;
        let (text, heading) = (corpus.text(number), corpus.heading(number));
        let code = corpus.passage(number).is_some_and(|(passage, _)| passage.code);
        let mut all: Vec<Option<usize>> = Vec::new();
        tokens(text, |word| all.push(position(word, &question.terms)));
        let pairs = question.terms.len().saturating_sub(1);
        let mut together = HashSet::new();
        for (at, term) in all.iter().enumerate() {
            let Some(term) = term else { continue };
            if all.iter().skip(at + 1).take(4).any(|near| *near == Some(term + 1)) {
                together.insert(term);
            }
        }
        let near = if pairs == 0 { 0.0 } else { together.len() as f32 / pairs as f32 };
        let definition = if question.definition && defines(&question.terms, text) { 1.4 } else { 1.0 };
        let remarked = || remarks(text).into_iter().any(|remark| self.coverage(&[remark]) >= ENUMERATED);
        let listing = if code && !question.code && !remarked() { 0.65 } else { 1.0 };
        let led = corpus.listing(number).is_some();
        let fragment = if text.len() < 80 && !led && corpus.table_head(number).is_empty() { 0.6 } else { 1.0 };
        // A list or a table of what was asked for.
        let listed = if question.several { 2.0 } else { 1.7 };
        let enumerates = match enumeration(text) {
            Some(lead) if self.coverage(&[heading, lead]) >= ENUMERATED => listed,
            _ if self.counts(number, &counted(text)) => 2.0,
            _ => 1.0,
        };
        let (meta, other): (Vec<&str>, Vec<&str>) = sentences(text).partition(|sentence| is_meta(sentence));
        let about_itself = if meta.len() > other.len() { 0.6 } else { 1.0 };
        let headed = 1.0 + 0.6 * self.coverage(&[heading]);
        (1.0 + 0.5 * near) * headed * definition * listing * fragment * enumerates * about_itself
    }

    /// Whether sentences of a passage that count something count what was asked for.
    pub(crate) fn counts(self, number: u32, counted: &[&str]) -> bool {
        let texts = [&[self.corpus.heading(number)], counted].concat();
        self.question.several && !counted.is_empty() && self.coverage(&texts) >= ENUMERATED
    }

    /// Chooses findings that are relevant and differ from each other (maximal marginal relevance): each covers at least
    /// this share of the question.
    fn diverse(self, candidates: Vec<Finding>, least: f32, limit: usize) -> Vec<Finding> {
        let Self { corpus, question } = self;
        let best = candidates.iter().map(|candidate| candidate.score).fold(f32::MIN_POSITIVE, f32::max);
        // Where several things are to be defined, each has its definition first, if there is one.
        let subjects = question.terms.iter().enumerate().filter(|(_, term)| question.definition && term.weight >= 1.0);
        let defining: Vec<u32> = subjects
            .filter_map(|(bit, term)| {
                let found = candidates.iter().find(|candidate| {
                    candidate.mask >> bit & 1 == 1
                        && candidate.coverage >= self.needed()
                        && defines(std::slice::from_ref(term), corpus.text(candidate.passage))
                });
                found.map(|candidate| candidate.passage)
            })
            .collect();
        let relevant = |candidate: &Finding| {
            let Finding { passage, score, coverage, .. } = *candidate;
            defining.contains(&passage) || coverage >= least && score >= best * 0.3
        };
        let mut pool: Vec<(HashSet<String>, Finding)> = candidates
            .into_iter()
            .filter(relevant)
            .take(POOL)
            .map(|candidate| (stems(corpus.text(candidate.passage)), candidate))
            .collect();
        let document = |finding: &Finding| corpus.passage(finding.passage).map_or(0, |(passage, _)| passage.document);
        let mut chosen: Vec<(HashSet<String>, Finding)> = Vec::new();
        while chosen.len() < limit {
            let worth = |(words, finding): &(HashSet<String>, Finding)| {
                let likeness =
                    chosen.iter().map(|(other, _)| similarity(words, other).unwrap_or(1.0)).fold(0.0, f32::max);
                let same = chosen.iter().filter(|(_, other)| document(other) == document(finding)).count();
                let first = if defining.contains(&finding.passage) { 1.0 } else { 0.0 };
                (likeness < SAME && same < PER_DOCUMENT)
                    .then(|| first + RELEVANCE * finding.score / best - (1.0 - RELEVANCE) * likeness)
            };
            // Of two with the same worth, the first in the pool, which is sorted, is chosen.
            let rated = pool.iter().enumerate().filter_map(|(at, candidate)| Some((at, worth(candidate)?)));
            let Some((at, _)) = first_best(rated) else { break };
            chosen.push(pool.remove(at));
        }
        chosen.into_iter().map(|(_, finding)| finding).collect()
    }

    /// Words that at least two of the findings have, that are informative, and that the question does not have.
    fn salient(self, findings: &[Finding]) -> Vec<(QueryTerm, String)> {
        let Self { corpus, question } = self;
        let mut having: HashMap<String, (usize, String)> = HashMap::new();
        for finding in findings {
            let mut seen = HashSet::new();
            words(corpus.text(finding.passage), |word| {
                let stem = stem(word).into_owned();
                let plain = word.len() > 3 && word.bytes().all(|byte| byte.is_ascii_alphabetic()) && !is_stop(word);
                if plain && !question.terms.iter().any(|term| term.stem == stem) && seen.insert(stem.clone()) {
                    having.entry(stem).or_insert_with(|| (0, word.to_owned())).0 += 1;
                }
            });
        }
        let mut ranked: Vec<(f32, String, String)> = having
            .into_iter()
            .filter(|(_, (count, _))| *count >= 2)
            .map(|(stem, (count, word))| ((count as f32).sqrt() * corpus.index.idf(&stem), stem, word))
            .collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        ranked.truncate(SALIENT);
        ranked.into_iter().map(|(_, stem, word)| (QueryTerm { stem, weight: SALIENT_WEIGHT }, word)).collect()
    }
}

/// Merges the hits of a listing and of the passage that leads to it, under the number of that passage.
fn units(corpus: &Corpus, hits: Vec<Hit>) -> Vec<Hit> {
    let mut units: HashMap<u32, Hit> = HashMap::new();
    for hit in hits {
        let passage = corpus.leading(hit.passage);
        let unit = units.entry(passage).or_insert(Hit { passage, score: 0.0, mask: 0 });
        unit.score = unit.score.max(hit.score) + LISTING * unit.score.min(hit.score);
        unit.mask |= hit.mask;
    }
    let mut units: Vec<Hit> = units.into_values().collect();
    units.sort_unstable_by(Hit::order);
    units
}

/// What leads to the list that a passage is: it ends in a colon, and items follow. Of a table, its first line.
pub(crate) fn enumeration(text: &str) -> Option<&str> {
    if text.starts_with('|') {
        return text.lines().next();
    }
    let mut paragraph = 0;
    let mut blank = true;
    for line in line_ranges(text) {
        let between =
            text.get(..line.start).is_some_and(|before| before.trim_end_matches([' ', '\t']).ends_with("\n\n"));
        let content = text.get(line.clone()).unwrap_or_default().trim_start_matches(['>', ' ']);
        if item(content).is_some() {
            let lead = text.get(paragraph..line.start).unwrap_or_default().trim_end_matches(['>', ' ', '\n']);
            return (lead.ends_with(':') && !blank).then(|| last_sentence(lead));
        }
        if between || blank {
            paragraph = line.start;
        }
        blank = false;
    }
    None
}

/// The last sentence of a text, with those before it that it refers to.
fn last_sentence(text: &str) -> &str {
    let mut start = 0;
    for range in sentence_ranges(text) {
        if !text.get(range.clone()).is_some_and(refers_back) {
            start = range.start;
        }
    }
    text.get(start..).unwrap_or(text)
}

/// An item of a list without its mark.
pub(crate) fn item(line: &str) -> Option<&str> {
    let marked = ["- ", "* ", "+ ", "• "].iter().find_map(|mark| line.strip_prefix(mark));
    marked.or_else(|| {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        (rest.len() < line.len()).then(|| rest.strip_prefix(". ").or_else(|| rest.strip_prefix(") "))).flatten()
    })
}
