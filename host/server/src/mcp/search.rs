//! Scores names and descriptions against the words of a query.

/// The maximum number of words of a query.
const WORDS: usize = 16;
/// The maximum number of bytes of a text that are searched.
const TEXT_BYTES: usize = 1024;
/// The minimum length of a word that counts as the stem of another.
const STEM: usize = 3;

/// The words of a query.
pub(super) struct Query(Vec<String>);

impl Query {
    /// The words of a text; none if it has no words.
    pub(super) fn of(text: &str) -> Option<Self> {
        let found: Vec<String> = words(text).take(WORDS).collect();
        (!found.is_empty()).then_some(Self(found))
    }

    /// Scores texts, each with its weight: 0 if they contain no word of the query.
    pub(super) fn score(&self, texts: &[(&str, u32)]) -> u32 {
        let mut best = vec![0; self.0.len()];
        for (text, weight) in texts {
            for word in words(text) {
                for (wanted, best) in self.0.iter().zip(&mut best) {
                    *best = (*best).max(likeness(wanted, &word) * weight);
                }
            }
        }
        best.into_iter().sum()
    }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let text = text.get(..text.floor_char_boundary(TEXT_BYTES)).unwrap_or_default();
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// 2 for equal words; 1 if one is the beginning of the other, as `row` and `rows`.
fn likeness(a: &str, b: &str) -> u32 {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    match (short == long, short.chars().count() >= STEM && long.starts_with(short)) {
        (true, _) => 2,
        (false, true) => 1,
        (false, false) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_more_of_the_words_and_in_its_name_fits_better() {
        let query = Query::of("Sort the ROWS of a table").unwrap();
        let score = |name: &str, description: &str| query.score(&[(name, 3), (description, 1)]);
        assert!(score("kit__sort_rows", "") > score("kit__sort_lines", "Sorts lines."));
        assert!(score("kit__sort_lines", "") > score("kit__stats", "Sorts."));
        assert_eq!(score("kit__stats", "Counts."), 0);
        assert!(Query::of(" _- ").is_none());
        // Only the beginning of a text is searched.
        assert_eq!(score("x", &format!("{} rows", "y ".repeat(5000))), 0);
    }
}
