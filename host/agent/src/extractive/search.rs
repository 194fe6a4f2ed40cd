//! Finding the passages that answer a question, and deciding whether any does.

use std::collections::{HashMap, HashSet};

use super::{
    corpus::{Corpus, lines},
    index::{Hit, QueryTerm},
    question::Question,
    quote::{quote, remarks},
    terms::{Stems, counted, defines, is_meta, is_stop, leans, sentences, tokens, words},
};

/// Passages that are looked at closely, of all that have a word of the question.
const CANDIDATES: usize = 150;
/// Passages that diversity chooses from.
const POOL: usize = 40;
/// How much the weaker of a listing and what leads to it counts beside the other.
const LISTING: f32 = 0.25;
/// The share of a question that what leads to a list, or the head of a table, has to have for the list to be the answer.
pub(crate) const ENUMERATED: f32 = 0.58;
/// The share of a question that one sentence has to have, with the headings that it stands under, to answer it.
const TOGETHER: f32 = 0.7;
/// How much the title of a passage's page counts beside the passage.
const TITLE: f32 = 0.5;
/// How much relevance counts against novelty (MMR).
const RELEVANCE: f32 = 0.72;
/// Two passages that share so much of their words say the same.
const SAME: f32 = 0.7;
/// Passages of one document among the findings of a question.
const PER_DOCUMENT: usize = 3;
/// Words that the second round takes over from what the first one found.
const SALIENT: usize = 5;
/// How much such a word counts.
const SALIENT_WEIGHT: f32 = 0.35;

/// A passage that answers a question.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) passage: u32,
    /// For comparison with others of the same corpus.
    pub(crate) score: f32,
    /// The share of what the question asks that the passage, where it stands, has words for.
    pub(crate) coverage: f32,
}

/// What the sources have on a question.
#[derive(Clone, Debug)]
pub(crate) struct QuestionAnswer {
    pub(crate) question: Question,
    /// Best first; empty where the sources do not answer.
    pub(crate) findings: Vec<Finding>,
    /// Words of the question that no source has.
    pub(crate) unknown: Vec<String>,
    /// Words that led the second round.
    pub(crate) salient: Vec<String>,
}

/// The share of a question's weight that a passage must have words for. Long questions are less to the point.
fn needed(terms: usize) -> f32 {
    match terms {
        0..=5 => 0.58,
        6..=8 => 0.5,
        9..=14 => 0.4,
        _ => 0.3,
    }
}

/// The share of a question's weight that a passage must have words for where another one answers it.
fn related(question: &Question) -> f32 {
    needed(question.terms.len()) * 0.7
}

/// A passage on its way to be a finding.
#[derive(Clone)]
struct Candidate {
    finding: Finding,
    /// Which of the question's terms it has itself.
    mask: u64,
}

/// Looks a question up in the documents `within`: the first round, with the question's own words.
pub(crate) fn answer(
    corpus: &Corpus,
    within: &HashSet<u32>,
    stems: &Stems,
    question: &Question,
    limit: usize,
) -> QuestionAnswer {
    let candidates = candidates(corpus, within, stems, question, &question.terms);
    let unknown = question.terms.iter().zip(&question.words);
    let unknown =
        unknown.filter(|(term, _)| corpus.index.having(&term.stem) == 0).map(|(_, word)| word.clone()).collect();
    let mut answer = QuestionAnswer { question: question.clone(), findings: Vec::new(), unknown, salient: Vec::new() };
    if candidates.iter().any(|candidate| candidate.finding.coverage >= needed(question.terms.len())) {
        answer.findings = diverse(corpus, stems, question, candidates, related(question), limit);
        keep_covering(corpus, stems, &mut answer);
    }
    answer
}

/// Passages that have some of a question's words, best first, whether or not they answer it.
pub(crate) fn passages(corpus: &Corpus, stems: &Stems, question: &Question, limit: usize) -> Vec<Finding> {
    let candidates = candidates(corpus, &corpus.within(&[]), stems, question, &question.terms);
    diverse(corpus, stems, question, candidates, 0.0, limit)
}

/// Follows up on what was found: looks again, with words that the findings have in common beside the question's own.
/// Where nothing was found there is nothing to follow: looking for less than was asked would find other things.
pub(crate) fn follow_up(
    corpus: &Corpus,
    within: &HashSet<u32>,
    stems: &Stems,
    answer: &mut QuestionAnswer,
    limit: usize,
) {
    if answer.findings.is_empty() {
        return;
    }
    let (salient, words): (Vec<QueryTerm>, Vec<String>) = salient(corpus, stems, answer).into_iter().unzip();
    let question = &answer.question;
    let query: Vec<QueryTerm> = question.terms.iter().cloned().chain(salient).collect();
    let candidates = candidates(corpus, within, stems, question, &query);
    answer.findings = diverse(corpus, stems, question, candidates, related(question), limit);
    answer.salient = words;
    keep_covering(corpus, stems, answer);
}

/// Passages that have words of the query, scored, best first. Coverage is of the question alone.
fn candidates(
    corpus: &Corpus,
    within: &HashSet<u32>,
    stems: &Stems,
    question: &Question,
    query: &[QueryTerm],
) -> Vec<Candidate> {
    let share = |mask: u64| share(corpus, question, mask);
    let titles: HashMap<u32, Hit> =
        corpus.titles.search(&question.terms, usize::MAX).into_iter().map(|hit| (hit.passage, hit)).collect();
    let hits = units(corpus, corpus.index.search(query, usize::MAX));
    let masks: HashMap<u32, u64> = hits.iter().map(|hit| (hit.passage, hit.mask)).collect();
    let mut found: Vec<Candidate> = Vec::new();
    let inside = hits.iter().filter_map(|hit| {
        let (passage, _) = corpus.passage(hit.passage)?;
        within.contains(&passage.document).then_some((hit, passage))
    });
    for (hit, passage) in inside.take(CANDIDATES) {
        // What a passage leaves unsaid, its title says, or the passage before or after it under the same heading.
        let beside = [hit.passage.checked_sub(1), hit.passage.checked_add(1)].into_iter().flatten().filter(|beside| {
            corpus
                .passage(*beside)
                .is_some_and(|(other, _)| (other.document, other.heading) == (passage.document, passage.heading))
        });
        let title = titles.get(&passage.document);
        let titled = hit.mask | title.map_or(0, |title| title.mask);
        let around = beside.fold(titled, |mask, beside| mask | masks.get(&beside).copied().unwrap_or(0));
        let own = share(titled);
        let coverage = own.max((0.7 * share(around)).min(own + 0.15));
        let text = corpus.text(hit.passage);
        let form = form(corpus, stems, question, hit.passage, text);
        let score =
            (hit.score + TITLE * title.map_or(0.0, |title| title.score)) * (0.2 + 0.8 * coverage).powi(2) * form;
        found.push(Candidate { finding: Finding { passage: hit.passage, score, coverage }, mask: hit.mask });
    }
    found.sort_by(|a, b| b.finding.score.total_cmp(&a.finding.score).then(a.finding.passage.cmp(&b.finding.passage)));
    found
}

/// Puts the hits of a listing and of what leads to it together: they are one thing, by the number of what leads.
fn units(corpus: &Corpus, hits: Vec<Hit>) -> Vec<Hit> {
    let mut units: HashMap<u32, Hit> = HashMap::new();
    for hit in hits {
        let passage = corpus.leading(hit.passage);
        let unit = units.entry(passage).or_insert(Hit { passage, score: 0.0, mask: 0 });
        unit.score = unit.score.max(hit.score) + LISTING * unit.score.min(hit.score);
        unit.mask |= hit.mask;
    }
    let mut units: Vec<Hit> = units.into_values().collect();
    units.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.passage.cmp(&b.passage)));
    units
}

/// The share of what a question asks that a text has words for.
pub(crate) fn covered(corpus: &Corpus, stems: &Stems, question: &Question, texts: &[&str]) -> f32 {
    let mut mask = 0_u64;
    for text in texts {
        tokens(text, |word| {
            if let Some(term) = stems.position(word, &question.terms) {
                mask |= 1 << term;
            }
        });
    }
    share(corpus, question, mask)
}

/// The share of a question that terms with these bits are. One telling word of many is not what was asked: with less
/// than half of the words, a share counts half.
fn share(corpus: &Corpus, question: &Question, mask: u64) -> f32 {
    let weight = |term: &QueryTerm| corpus.index.idf(&term.stem) * term.weight;
    let all: f32 = question.terms.iter().map(weight).sum();
    let covered = question.terms.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1);
    let (words, sum) = covered.fold((0, 0.0), |(words, sum), (_, term)| (words + 1, sum + weight(term)));
    sum / all.max(f32::MIN_POSITIVE) * if words * 2 < question.terms.len() { 0.5 } else { 1.0 }
}

/// Keeps the findings that, as they are quoted under their heading, cover what was asked; all go where none has one
/// sentence, row, list or listing that covers it by itself under its headings.
pub(crate) fn keep_covering(corpus: &Corpus, stems: &Stems, answer: &mut QuestionAnswer) {
    let question = &answer.question;
    let mut answered = false;
    for finding in &mut answer.findings {
        let number = finding.passage;
        let title = corpus.passage(number).map_or("", |(_, document)| document.page.title.as_str());
        let quotes: Vec<_> = std::iter::once(number)
            .chain(corpus.listing(number))
            .filter_map(|number| quote(corpus, stems, &question.terms, number))
            .collect();
        let context = [title, corpus.heading(number), corpus.table_head(number)];
        let mut texts = context.to_vec();
        texts.extend(quotes.iter().map(|quote| quote.text));
        finding.coverage = covered(corpus, stems, question, &texts);
        if finding.coverage < needed(question.terms.len()) {
            continue;
        }
        // Who asks how long or how many is answered by a measure, and need not have named what it is of.
        let least = if question.quantity { needed(question.terms.len()) } else { TOGETHER };
        let covers = |texts: &[&str]| {
            let texts: Vec<&str> = context.iter().chain(texts).copied().collect();
            covered(corpus, stems, question, &texts) >= least
        };
        let [prose, listing @ ..] = quotes.as_slice() else { continue };
        let whole = prose.code || enumeration(prose.text).is_some() || !corpus.table_head(number).is_empty();
        let said = sentences(prose.text);
        let said: Vec<&str> = said.into_iter().filter_map(|range| prose.text.get(range)).collect();
        let leads = said.last().zip(listing.first());
        answered |= whole && covers(&[prose.text])
            || !whole && said.iter().any(|sentence| covers(&[sentence]))
            || leads.is_some_and(|(lead, listing)| covers(&[lead, listing.text]));
    }
    let least = related(question);
    if answered {
        answer.findings.retain(|finding| finding.coverage >= least);
    } else {
        answer.findings.clear();
    }
}

/// How well a passage's form suits a question: its words together rather than scattered, a definition where one is
/// asked for, prose rather than listings, and not a mere fragment.
fn form(corpus: &Corpus, stems: &Stems, question: &Question, number: u32, text: &str) -> f32 {
    let code = corpus.passage(number).is_some_and(|(passage, _)| passage.code);
    let mut all: Vec<Option<usize>> = Vec::new();
    tokens(text, |word| all.push(stems.position(word, &question.terms)));
    let pairs = question.terms.len().saturating_sub(1);
    let mut together = HashSet::new();
    for (at, term) in all.iter().enumerate() {
        let Some(term) = term else { continue };
        if all.iter().skip(at + 1).take(4).any(|near| *near == Some(term + 1)) {
            together.insert(term);
        }
    }
    let near = if pairs == 0 { 0.0 } else { together.len() as f32 / pairs as f32 };
    let definition = if question.definition && defines(stems, &question.terms, text) { 1.4 } else { 1.0 };
    let remarked = || remarks(text).into_iter().any(|remark| covered(corpus, stems, question, &[remark]) >= ENUMERATED);
    let listing = if code && !question.code && !remarked() { 0.65 } else { 1.0 };
    let led = corpus.listing(number).is_some();
    let fragment = if text.len() < 80 && !led && corpus.table_head(number).is_empty() { 0.6 } else { 1.0 };
    let heading = covered(corpus, stems, question, &[corpus.heading(number)]);
    // What lists or tabulates that which was asked for.
    let enumerates = match enumeration(text) {
        Some(lead) if covered(corpus, stems, question, &[corpus.heading(number), lead]) >= ENUMERATED => {
            if question.several { 2.0 } else { 1.7 }
        }
        _ if counts(corpus, stems, question, number, &counted(text)) => 2.0,
        _ => 1.0,
    };
    let all_sentences = sentences(text);
    let meta = all_sentences.iter().filter(|range| text.get((*range).clone()).is_some_and(is_meta)).count();
    let speaks_of_itself = if meta * 2 > all_sentences.len() { 0.6 } else { 1.0 };
    (1.0 + 0.5 * near) * (1.0 + 0.6 * heading) * definition * listing * fragment * enumerates * speaks_of_itself
}

/// Whether sentences of a passage that count what they tell count what was asked for.
pub(crate) fn counts(corpus: &Corpus, stems: &Stems, question: &Question, number: u32, counted: &[&str]) -> bool {
    let texts: Vec<&str> = std::iter::once(corpus.heading(number)).chain(counted.iter().copied()).collect();
    question.several && !counted.is_empty() && covered(corpus, stems, question, &texts) >= ENUMERATED
}

/// What leads to the list that a passage is: it ends in a colon, and items follow. Of a table, its first line.
pub(crate) fn enumeration(text: &str) -> Option<&str> {
    if text.starts_with('|') {
        return text.lines().next();
    }
    let mut paragraph = 0;
    let mut blank = true;
    for line in lines(text) {
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

/// The last sentence of a text, with those before it that it leans on.
fn last_sentence(text: &str) -> &str {
    let mut start = 0;
    for range in sentences(text) {
        if !text.get(range.clone()).is_some_and(leans) {
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

/// Chooses findings that are relevant and differ from each other (maximal marginal relevance): each covers at least
/// this share of the question.
fn diverse(
    corpus: &Corpus,
    stems: &Stems,
    question: &Question,
    candidates: Vec<Candidate>,
    least: f32,
    limit: usize,
) -> Vec<Finding> {
    let needed = needed(question.terms.len());
    let best = candidates.iter().map(|candidate| candidate.finding.score).fold(f32::MIN_POSITIVE, f32::max);
    // Where several things are to be defined, each has its definition first, if there is one.
    let subjects = question.terms.iter().enumerate().filter(|(_, term)| question.definition && term.weight >= 1.0);
    let defining: Vec<u32> = subjects
        .filter_map(|(bit, term)| {
            let found = candidates.iter().find(|Candidate { finding, mask }| {
                mask >> bit & 1 == 1
                    && finding.coverage >= needed
                    && defines(stems, std::slice::from_ref(term), corpus.text(finding.passage))
            });
            found.map(|candidate| candidate.finding.passage)
        })
        .collect();
    let relevant = |candidate: &Candidate| {
        let Finding { passage, score, coverage } = candidate.finding;
        defining.contains(&passage) || coverage >= least && score >= best * 0.3
    };
    let mut pool: Vec<(Finding, HashSet<String>)> = candidates
        .into_iter()
        .filter(relevant)
        .take(POOL)
        .map(|candidate| {
            let words = stems.of(corpus.text(candidate.finding.passage));
            (candidate.finding, words)
        })
        .collect();
    let document = |finding: &Finding| corpus.passage(finding.passage).map_or(0, |(passage, _)| passage.document);
    let mut chosen: Vec<(Finding, HashSet<String>)> = Vec::new();
    while chosen.len() < limit {
        let worth = |(finding, words): &(Finding, HashSet<String>)| {
            let likeness = chosen.iter().map(|(_, other)| alike(words, other)).fold(0.0, f32::max);
            let same = chosen.iter().filter(|(other, _)| document(other) == document(finding)).count();
            let first = if defining.contains(&finding.passage) { 1.0 } else { 0.0 };
            (likeness < SAME && same < PER_DOCUMENT)
                .then(|| first + RELEVANCE * finding.score / best - (1.0 - RELEVANCE) * likeness)
        };
        // Where two are worth the same, the first of the pool, which is sorted, is taken.
        let mut next: Option<(usize, f32)> = None;
        for (at, candidate) in pool.iter().enumerate() {
            if let Some(worth) = worth(candidate)
                && next.is_none_or(|(_, most)| worth > most)
            {
                next = Some((at, worth));
            }
        }
        let Some((at, _)) = next else { break };
        chosen.push(pool.remove(at));
    }
    chosen.into_iter().map(|(finding, _)| finding).collect()
}

/// How much of their words two passages share (Jaccard).
fn alike(a: &HashSet<String>, b: &HashSet<String>) -> f32 {
    let shared = a.intersection(b).count();
    let all = a.len() + b.len() - shared;
    if all == 0 { 1.0 } else { shared as f32 / all as f32 }
}

/// Words that at least two of the findings have, that tell much, and that the question has not.
fn salient(corpus: &Corpus, stems: &Stems, answer: &QuestionAnswer) -> Vec<(QueryTerm, String)> {
    let mut having: HashMap<String, (usize, String)> = HashMap::new();
    for finding in &answer.findings {
        let mut seen = HashSet::new();
        words(corpus.text(finding.passage), |word| {
            let stem = stems.stem(word).into_owned();
            let plain = word.len() > 3 && word.bytes().all(|byte| byte.is_ascii_alphabetic()) && !is_stop(word);
            if plain && !answer.question.terms.iter().any(|term| term.stem == stem) && seen.insert(stem.clone()) {
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
