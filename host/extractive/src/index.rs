//! An inverted index in memory, ranked by BM25.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
};

use serde::{Deserialize, Serialize};

use crate::{
    extract::Page,
    words::{Language, Term, forms, terms},
};

/// The usual constants of BM25: how soon repetition stops counting, and how much length counts.
const K1: f32 = 1.2;
const B: f32 = 0.75;
/// Memory of a word besides its letters and its postings, in bytes.
const WORD_BYTES: usize = 80;
/// The passages of a page that its language is told from.
const SAMPLE: usize = 20;

/// An index over passages, which are numbered in the order of their pages.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Index {
    /// The texts that have a form, by form.
    postings: HashMap<String, Vec<Posting>>,
    /// For each passage, how many words it has.
    lengths: Vec<u32>,
    languages: BTreeSet<Language>,
    /// Its approximate size in memory, in bytes.
    #[serde(skip)]
    size: usize,
}

/// A form in a text: of one passage, or of a heading with the passages below it.
#[derive(Serialize, Deserialize)]
struct Posting {
    passages: Range<u32>,
    /// How often the text has the form.
    count: u16,
}

/// A passage that has words of a question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hit {
    pub(crate) passage: u32,
    pub(crate) score: f32,
    /// The share of the question's words that it has, by their weight.
    pub(crate) coverage: f32,
}

impl Index {
    /// The index over the passages of one page. A heading is indexed once for all passages below it.
    pub(crate) fn of(page: &Page) -> Self {
        let sample: Vec<&str> = page.passages.iter().take(SAMPLE).map(|passage| passage.text.as_str()).collect();
        let language = Language::of(&sample.join(" "));
        let lengths = vec![0; page.passages.len()];
        let mut index = Self { lengths, languages: [language].into(), ..Self::default() };
        let mut first = 0;
        for below in page.passages.chunk_by(|one, next| one.heading == next.heading) {
            let passages = first..first + below.len() as u32;
            let heading = below.first().map(|passage| page.heading_of(passage));
            heading.into_iter().for_each(|heading| index.add(heading, passages.clone(), language));
            for (number, passage) in passages.clone().zip(below) {
                index.add(&passage.text, number..number + 1, language);
            }
            first = passages.end;
        }
        index
    }

    /// Adds a text that counts for these passages.
    fn add(&mut self, text: &str, passages: Range<u32>, language: Language) {
        let mut length = 0;
        forms(text, language, |form| {
            length += 1;
            let list = self.postings.entry(form).or_default();
            match list.last_mut() {
                Some(last) if last.passages == passages => last.count = last.count.saturating_add(1),
                _ => list.push(Posting { passages: passages.clone(), count: 1 }),
            }
        });
        let lengths = self.lengths.get_mut(passages.start as usize..passages.end as usize);
        lengths.into_iter().flatten().for_each(|known| *known += length);
    }

    /// Adds the index of the next page.
    pub(crate) fn append(&mut self, next: Self) {
        let first = self.lengths.len() as u32;
        self.size += next.lengths.len() * size_of::<u32>();
        self.lengths.extend(next.lengths);
        self.languages.extend(next.languages);
        for (form, list) in next.postings {
            let bytes = form.len() + WORD_BYTES;
            let known = self.postings.entry(form).or_default();
            self.size += if known.is_empty() { bytes } else { 0 } + list.len() * size_of::<Posting>();
            known.extend(list.into_iter().map(|Posting { passages, count }| Posting {
                passages: first + passages.start..first + passages.end,
                count,
            }));
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
        let mut having: HashMap<u32, u16> = HashMap::new();
        for posting in term.forms.iter().filter_map(|form| self.postings.get(form)).flatten() {
            for passage in posting.passages.clone() {
                let known = having.entry(passage).or_default();
                *known = known.saturating_add(posting.count);
            }
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
        let mut hits: Vec<Hit> = hits.into_values().collect();
        hits.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.passage.cmp(&b.passage)));
        hits
    }
}
