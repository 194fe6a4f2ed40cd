//! An inverted index with BM25 ranking, in memory.
//!
//! It is our own, and short, because ranking alone is not enough here: whether an answer is in the sources at all is
//! decided by which of a question's words a passage covers and how informative those words are, which a search
//! library does not return with its scores.

use std::{cmp::Ordering, collections::HashMap};

use super::terms::{stem, tokens};

/// BM25's usual constants: how soon repetition stops counting, and how much length counts.
const K1: f32 = 1.2;
const B: f32 = 0.75;
/// The number of empty passages that are counted with the real ones: in a small corpus, the share of
/// passages that a word is in says little about the word.
const IMAGINED: f32 = 200.0;
/// Longer words are not found.
const MAX_WORD_BYTES: usize = 128;

#[derive(Clone, Copy, Debug)]
struct Posting {
    passage: u32,
    count: u16,
}

/// The index, or the part of it that one worker makes over its own passages.
#[derive(Debug, Default)]
pub(crate) struct Index {
    terms: HashMap<Box<str>, u32>,
    postings: Vec<Vec<Posting>>,
    lengths: Vec<u16>,
    /// Mean length in words.
    mean: f32,
}

/// A word that is looked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueryTerm {
    /// Its stem.
    pub(crate) stem: String,
    /// How much it counts: 1 for a word of the question.
    pub(crate) weight: f32,
}

impl QueryTerm {
    /// Whether it is looked up as it is written, and is no word.
    pub(crate) fn is_symbol(&self) -> bool {
        !self.stem.chars().all(char::is_alphanumeric)
    }

    /// Whether it is an option of a command.
    pub(crate) fn is_option(&self) -> bool {
        self.stem.starts_with('-') && self.stem.ends_with(|c: char| c.is_ascii_alphanumeric())
    }
}

/// A passage that has words that were looked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hit {
    /// The passage.
    pub(crate) passage: u32,
    /// BM25.
    pub(crate) score: f32,
    /// Which of the query's terms it has, a bit each.
    pub(crate) mask: u64,
}

impl Hit {
    /// The better hit first; of equal scores, the earlier passage.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then(self.passage.cmp(&other.passage))
    }
}

impl Index {
    /// Its approximate size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        let terms: usize = self.terms.keys().map(|term| term.len() + 48).sum();
        let postings: usize = self.postings.iter().map(|list| list.capacity() * size_of::<Posting>() + 24).sum();
        terms + postings + self.lengths.len() * 2
    }

    /// How informative it is that a passage has this word: its inverse document frequency.
    pub(crate) fn idf(&self, stem: &str) -> f32 {
        let having = self.having(stem) as f32;
        let all = self.lengths.len() as f32 + IMAGINED;
        (1.0 + (all - having + 0.5) / (having + 0.5)).ln()
    }

    /// How many passages have this word.
    pub(crate) fn having(&self, stem: &str) -> usize {
        self.list(stem).len()
    }

    fn list(&self, stem: &str) -> &[Posting] {
        let list = self.terms.get(stem).and_then(|term| self.postings.get(*term as usize));
        list.map_or(&[], Vec::as_slice)
    }

    /// The passages that have words of a query, best first; where scores are equal, the earlier passage.
    pub(crate) fn search(&self, query: &[QueryTerm], limit: usize) -> Vec<Hit> {
        let mut hits: HashMap<u32, Hit> = HashMap::new();
        for (bit, term) in query.iter().enumerate().take(u64::BITS as usize) {
            let weight = self.idf(&term.stem) * term.weight;
            for posting in self.list(&term.stem) {
                let count = f32::from(posting.count);
                let length = f32::from(self.lengths.get(posting.passage as usize).copied().unwrap_or(0));
                let score = count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / self.mean.max(1.0)));
                let hit = hits.entry(posting.passage).or_insert(Hit { passage: posting.passage, score: 0.0, mask: 0 });
                hit.score += weight * score;
                hit.mask |= 1 << bit;
            }
        }
        let mut hits: Vec<Hit> = hits.into_values().collect();
        hits.sort_unstable_by(Hit::order);
        hits.truncate(limit);
        hits
    }
}

/// Makes an index, passage by passage.
pub(crate) struct Builder {
    index: Index,
    /// Words as they are written, and the terms that they are: stemming is the expensive part.
    known: HashMap<Box<str>, u32>,
    found: Vec<u32>,
    /// How many words it knows at most, and how many terms.
    most: usize,
}

impl Builder {
    /// An empty index of at most `most` words; later words are ignored.
    pub(crate) fn new(most: usize) -> Self {
        Self { index: Index::default(), known: HashMap::new(), found: Vec::new(), most }
    }

    /// Adds the next passage. The words of its heading count twice.
    pub(crate) fn add(&mut self, heading: &str, text: &str) {
        let Self { index, known, found, most } = self;
        let mut add = |word: &str| {
            if word.len() > MAX_WORD_BYTES {
                return;
            }
            if let Some(term) = known.get(word) {
                found.push(*term);
            } else if known.len() < *most {
                let next = index.postings.len() as u32;
                let term = *index.terms.entry(stem(word).into()).or_insert(next);
                if term == next {
                    index.postings.push(Vec::new());
                }
                known.insert(word.into(), term);
                found.push(term);
            }
        };
        tokens(heading, &mut add);
        tokens(heading, &mut add);
        tokens(text, &mut add);
        found.sort_unstable();
        let passage = index.lengths.len() as u32;
        for same in found.chunk_by(|a, b| a == b) {
            let term = same.first().and_then(|term| index.postings.get_mut(*term as usize));
            let count = u16::try_from(same.len()).unwrap_or(u16::MAX);
            term.into_iter().for_each(|list| list.push(Posting { passage, count }));
        }
        index.lengths.push(u16::try_from(found.len()).unwrap_or(u16::MAX));
        found.clear();
    }

    /// The index of the passages that were added.
    pub(crate) fn finish(self) -> Index {
        Index::join([self.index])
    }

    /// The same, as a part for [`Index::join`].
    pub(crate) fn part(self) -> Index {
        self.index
    }
}

impl Index {
    /// Joins parts to one index. The passages of a part are numbered after those of the parts before it.
    pub(crate) fn join(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or_default();
        for part in parts {
            let offset = all.lengths.len() as u32;
            let mut postings = part.postings;
            for (stem, term) in part.terms {
                let list = postings.get_mut(term as usize).map(std::mem::take).unwrap_or_default();
                let next = all.postings.len() as u32;
                let target = *all.terms.entry(stem).or_insert(next);
                if target == next {
                    all.postings.push(Vec::new());
                }
                if let Some(target) = all.postings.get_mut(target as usize) {
                    target.extend(
                        list.into_iter().map(|posting| Posting { passage: posting.passage + offset, ..posting }),
                    );
                }
            }
            all.lengths.extend(part.lengths);
        }
        all.postings.iter_mut().for_each(Vec::shrink_to_fit);
        let words: f32 = all.lengths.iter().map(|length| f32::from(*length)).sum();
        all.mean = words / (all.lengths.len().max(1) as f32);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(stems: &[&str]) -> Vec<QueryTerm> {
        stems.iter().map(|stem| QueryTerm { stem: (*stem).to_owned(), weight: 1.0 }).collect()
    }

    #[test]
    fn parts_that_are_joined_answer_as_one_index_does() {
        let passages = ["the cat sat", "a dog and a cat", "dogs bark", "nothing here", "cats and dogs and cats"];
        let index = |passages: &[&str]| {
            let mut builder = Builder::new(1000);
            passages.iter().for_each(|passage| builder.add("", passage));
            builder.part()
        };
        let whole = Index::join([index(&passages)]);
        let joined = Index::join([index(&passages[..2]), index(&passages[2..])]);
        let hits = whole.search(&query(&["cat", "dog"]), 10);
        assert_eq!(hits, joined.search(&query(&["cat", "dog"]), 10));
        assert_eq!(hits.first().map(|hit| (hit.passage, hit.mask)), Some((1, 0b11)));
        assert_eq!(whole.search(&query(&["cat", "dog"]), 1).len(), 1);
    }

    #[test]
    fn a_rare_word_tells_more_than_a_common_one() {
        let mut builder = Builder::new(1000);
        (0..20).for_each(|n| builder.add("", if n == 7 { "common rare" } else { "common" }));
        let index = builder.finish();
        assert!(index.idf("rare") > index.idf("common"));
        assert!(index.idf("absent") > index.idf("rare"));
        assert_eq!(index.having("common"), 20);
    }

    #[test]
    fn words_beyond_the_most_are_passed_over() {
        let mut builder = Builder::new(2);
        ["one two", "three", "two"].iter().for_each(|passage| builder.add("", passage));
        let index = builder.finish();
        assert_eq!((index.having("two"), index.having("three")), (2, 0));
    }
}
