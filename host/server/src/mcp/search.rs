//! Finding what fits a few words, among names and descriptions.

/// Words of a query that are looked for.
const WORDS: usize = 16;
/// Bytes of a text that are looked through.
const TEXT_BYTES: usize = 1024;
/// How many characters two words have to begin with in common, where they are not the same.
const STEM: usize = 3;

/// What is looked for.
pub(super) struct Query(Vec<String>);

impl Query {
    /// The words of a text. None where it has none.
    pub(super) fn of(text: &str) -> Option<Self> {
        let found: Vec<String> = words(text).take(WORDS).collect();
        (!found.is_empty()).then_some(Self(found))
    }

    /// How well something fits that has these texts, each with its weight: 0 where no word is in any of them.
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

/// 2 where they are the same word; 1 where one begins with the other, as `row` and `rows` do.
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
        // No more of a text is looked through than its beginning.
        assert_eq!(score("x", &format!("{} rows", "y ".repeat(5000))), 0);
    }
}
