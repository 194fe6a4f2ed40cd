//! Tracks the shown text of one answer over all attempts to get it, so that no part of it is shown twice.

/// The number of characters after which a continuation that equals the beginning of the text counts as a repetition.
const REPEATED_CHARS: usize = 24;

/// The shown part of an answer.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    text: String,
    /// The bytes of the text that this attempt has repeated so far; `None` once its text is new.
    repeated: Option<usize>,
    /// Whether the attempt was asked to continue the text. Otherwise it is expected to begin the answer again.
    continues: bool,
}

impl Shown {
    /// The whole shown text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Begins another attempt, since the previous one broke off.
    pub(crate) fn begin_again(&mut self, continues: bool) {
        (self.repeated, self.continues) = ((!self.text.is_empty()).then_some(0), continues);
    }

    /// Takes a piece of the attempt; returns the part of it to show.
    pub(crate) fn accept(&mut self, piece: &str) -> String {
        let Some(before) = self.repeated else {
            self.text.push_str(piece);
            return piece.to_owned();
        };
        let expected = self.text.get(before..).unwrap_or_default();
        let same: usize =
            expected.chars().zip(piece.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
        let now = before + same;
        let caught_up = now == self.text.len();
        if same == piece.len() && !caught_up {
            self.repeated = Some(now);
            return String::new();
        }
        let mut new = if caught_up { String::new() } else { self.held(now) };
        new.push_str(piece.get(same..).unwrap_or_default());
        self.repeated = None;
        self.text.push_str(&new);
        new
    }

    /// Ends the attempt; returns the rest of it to show.
    pub(crate) fn finish(&mut self) -> String {
        let held = self.repeated.take().filter(|now| self.is_continuation(*now)).map(|now| self.held(now));
        let held = held.unwrap_or_default();
        self.text.push_str(&held);
        held
    }

    /// Whether an attempt that equals the first `now` bytes of the text continues the text, and does not repeat it.
    fn is_continuation(&self, now: usize) -> bool {
        self.continues && self.text.get(..now).unwrap_or_default().chars().count() < REPEATED_CHARS
    }

    /// The part to show of an attempt's first `now` bytes, which equal the beginning of the text, when the attempt
    /// differs after them. It is all of them for a continuation that begins alike by chance, else the differing word on
    /// a line of its own.
    fn held(&self, now: usize) -> String {
        let same = self.text.get(..now).unwrap_or_default();
        if self.is_continuation(now) {
            return same.to_owned();
        }
        let word = same.rfind(char::is_whitespace).map_or(same, |space| same.get(space..).unwrap_or_default());
        format!("\n{}", word.trim_start())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shown text of attempts, of which all but the last break off.
    fn shown(continues: bool, attempts: &[&[&str]]) -> String {
        let (mut shown, mut all) = (Shown::default(), String::new());
        for (index, attempt) in attempts.iter().enumerate() {
            if index > 0 {
                shown.begin_again(continues);
            }
            attempt.iter().for_each(|piece| all.push_str(&shown.accept(piece)));
        }
        all.push_str(&shown.finish());
        assert_eq!(all, shown.text());
        all
    }

    #[test]
    fn what_comes_again_is_shown_once_in_whatever_pieces() {
        let first: &[&str] = &["It is for", "ty-tw"];
        for again in [&["It is forty-two."][..], &["I", "t is fo", "rty", "-two", "."], &["It is forty-tw", "o."]] {
            assert_eq!(shown(false, &[first, again]), "It is forty-two.");
            assert_eq!(shown(true, &[first, again]), "It is forty-two.");
            assert_eq!(shown(true, &[first, &["It is"], again]), "It is forty-two.", "it broke off twice");
        }
        assert_eq!(shown(false, &[&["über"], &["überall"]]), "überall");
        assert_eq!(shown(false, &[&[], &["All."]]), "All.");
    }

    #[test]
    fn a_continuation_is_shown_whole_also_where_it_begins_alike() {
        assert_eq!(shown(true, &[&["one two "], &["three"]]), "one two three");
        assert_eq!(shown(true, &[&["one two "], &["on", "e more"]]), "one two one more");
        assert_eq!(shown(true, &[&["one two "], &["one"]]), "one two one");
    }

    #[test]
    fn an_answer_that_comes_out_otherwise_is_shown_from_where_it_differs() {
        assert_eq!(shown(false, &[&["I will look at"], &["I will lift it."]]), "I will look at\nlift it.");
        let long = "The first thing to say about this is";
        assert_eq!(
            shown(true, &[&[long], &["The first thing to say about that:"]]),
            "The first thing to say about this is\nthat:"
        );
        assert_eq!(shown(false, &[&["It is so."], &["It is"]]), "It is so.", "the shorter one adds nothing");
    }
}
