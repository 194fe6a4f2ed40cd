//! An inverted index in memory, ranked by BM25.

use std::collections::{BTreeSet, HashMap};

use crate::{
    extract::Page,
    words::{Language, Term, forms, terms},
};

/// The usual constants of BM25: how soon repetition stops counting, and how much length counts.
const K1: f32 = 1.2;
const B: f32 = 0.75;
/// Words that an index has at most; one that comes later is not found. English has some 200,000.
const MAX_WORDS: usize = 1 << 20;
/// What a word takes in memory besides its letters and its passages, in bytes.
const WORD_BYTES: usize = 80;
/// Passages of a page that tell its language.
const SAMPLE: usize = 20;

/// An index over passages, which are numbered in the order of their pages.
#[derive(Default)]
pub(crate) struct Index {
    /// For each form, the passages that have it, and how often.
    postings: HashMap<String, Vec<(u32, u16)>>,
    /// For each passage, how many words it has.
    lengths: Vec<u32>,
    languages: BTreeSet<Language>,
    /// Its approximate size in memory, in bytes.
    size: usize,
}

/// A passage that has words of a question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hit {
    pub(crate) passage: u32,
    pub(crate) score: f32,
    /// How much of the question it has, by the weight of its words: 1 where it has all.
    pub(crate) coverage: f32,
}

impl Index {
    /// The index over the passages of one page.
    pub(crate) fn of(page: &Page) -> Self {
        let sample: Vec<&str> = page.passages.iter().take(SAMPLE).map(|passage| passage.text.as_str()).collect();
        let language = Language::of(&sample.join(" "));
        let mut index = Self { languages: [language].into(), ..Self::default() };
        for (number, passage) in (0..).zip(&page.passages) {
            // The page's title and the heading are part of each passage below them.
            let mut length = 0;
            let heading = page.heading_of(passage);
            let title = Some(&page.title).filter(|title| *title != heading);
            for text in title.into_iter().chain([heading, &passage.text]) {
                forms(text, language, |form| {
                    length += 1;
                    index.count(form, number);
                });
            }
            index.lengths.push(length);
        }
        index
    }

    fn count(&mut self, form: String, passage: u32) {
        let list = self.postings.entry(form).or_default();
        match list.last_mut() {
            Some((last, count)) if *last == passage => *count = count.saturating_add(1),
            _ => list.push((passage, 1)),
        }
    }

    /// Adds the index of the next page.
    pub(crate) fn append(&mut self, next: Self) {
        let first = self.lengths.len() as u32;
        self.size += next.lengths.len() * size_of::<u32>();
        self.lengths.extend(next.lengths);
        self.languages.extend(next.languages);
        for (form, list) in next.postings {
            if self.postings.len() < MAX_WORDS || self.postings.contains_key(&form) {
                let bytes = form.len() + WORD_BYTES;
                let known = self.postings.entry(form).or_default();
                self.size += if known.is_empty() { bytes } else { 0 } + list.len() * size_of::<(u32, u16)>();
                known.extend(list.into_iter().map(|(passage, count)| (first + passage, count)));
            }
        }
    }

    /// The languages of the pages.
    pub(crate) fn languages(&self) -> Vec<Language> {
        self.languages.iter().copied().collect()
    }

    /// Its approximate size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The passages that have a word, and how often.
    fn having(&self, term: &Term) -> HashMap<u32, u16> {
        let mut having = HashMap::new();
        for (passage, count) in term.forms.iter().filter_map(|form| self.postings.get(form)).flatten() {
            let known: &mut u16 = having.entry(*passage).or_default();
            *known = (*known).max(*count);
        }
        having
    }

    /// Whether a passage has a word.
    pub(crate) fn has(&self, term: &Term) -> bool {
        term.forms.iter().any(|form| self.postings.contains_key(form))
    }

    /// The words of a question, each weighed by its inverse document frequency.
    pub(crate) fn terms(&self, question: &str) -> Vec<Term> {
        let mut terms = terms(question, &self.languages());
        for term in &mut terms {
            let (all, having) = (self.lengths.len() as f32, self.having(term).len() as f32);
            term.weight = (1.0 + (all - having + 0.5) / (having + 0.5)).ln();
        }
        terms
    }

    /// The passages that have words of a question, best first; of equal scores, the earlier passage.
    pub(crate) fn search(&self, terms: &[Term]) -> Vec<Hit> {
        let mean = self.lengths.iter().map(|length| *length as f32).sum::<f32>() / (self.lengths.len() as f32).max(1.0);
        let all: f32 = terms.iter().map(|term| term.weight).sum();
        let mut hits: HashMap<u32, Hit> = HashMap::new();
        for term in terms {
            for (passage, count) in self.having(term) {
                let count = f32::from(count);
                let length = self.lengths.get(passage as usize).copied().unwrap_or_default() as f32;
                let hit = hits.entry(passage).or_insert(Hit { passage, score: 0.0, coverage: 0.0 });
                hit.score += term.weight * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / mean.max(1.0)));
                hit.coverage += term.weight / all;
            }
        }
        // One rare word many times is less than all words once.
        let with_coverage = |hit: Hit| Hit { score: hit.score * hit.coverage.sqrt(), ..hit };
        let mut hits: Vec<Hit> = hits.into_values().map(with_coverage).collect();
        hits.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.passage.cmp(&b.passage)));
        hits
    }
}
