//! Ranked search: the passages that have most of a question's words.

use std::collections::HashSet;

use crate::{
    corpus::Corpus,
    index::{Hit, Index},
    words::{Term, forms},
};

/// A text with this share of a question's words, by their weight, is about the question.
pub(crate) const ABOUT: f32 = 0.6;

/// The passages that were found for a question.
pub(crate) struct Answer {
    pub(crate) question: String,
    /// The words that were looked for.
    pub(crate) terms: Vec<Term>,
    /// Best first.
    pub(crate) hits: Vec<Hit>,
    /// The words that no passage has, as the question has them.
    pub(crate) missing: Vec<String>,
}

impl Answer {
    /// Whether a passage has most of the question's words.
    pub(crate) fn is_found(&self) -> bool {
        self.hits.iter().any(|hit| hit.coverage >= ABOUT)
    }

    /// The share of the question's words that a text has, by their weight.
    pub(crate) fn share(&self, index: &Index, text: &str) -> f32 {
        let mut has: HashSet<String> = HashSet::new();
        for language in index.languages() {
            forms(text, language, |form| {
                has.insert(form);
            });
        }
        let found = self.terms.iter().filter(|term| term.forms.iter().any(|form| has.contains(form)));
        let sum = |terms: &mut dyn Iterator<Item = &Term>| terms.map(|term| term.weight).sum::<f32>();
        sum(&mut found.into_iter()) / sum(&mut self.terms.iter()).max(f32::MIN_POSITIVE)
    }
}

/// The best passages on a question, `limit` at most, in documents that are named here; in all where none is named.
pub(crate) fn answer(corpus: &Corpus, question: &str, named: &[String], limit: usize) -> Answer {
    let terms = corpus.index.terms(question);
    let mut hits = corpus.index.search(&terms);
    // A text that several files have is shown once.
    let mut texts = HashSet::new();
    hits.retain(|hit| {
        texts.len() < limit
            && corpus.passage(hit.passage).is_some_and(|(document, passage)| {
                (named.is_empty() || named.contains(&document.path)) && texts.insert(&passage.text)
            })
    });
    let missing = terms.iter().filter(|term| !corpus.index.has(term)).map(|term| term.word.clone());
    let mut missing: Vec<String> = missing.collect();
    missing.dedup();
    Answer { question: question.to_owned(), missing, terms, hits }
}
