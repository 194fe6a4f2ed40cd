//! Joins characters that a provider cut in two. Servers that hold text as UTF-16 may send the halves of a surrogate
//! pair in two messages. A Rust string cannot hold one half, so each travels as a character of Unicode's last private
//! plane until the text is joined.

/// The characters that stand for the halves 0xD800 to 0xDFFF.
const FIRST: u32 = 0x10_F800;

/// The character that stands for half a surrogate pair.
pub(super) fn kept(half: u16) -> char {
    char::from_u32(FIRST + u32::from(half) - 0xD800).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The half that a character stands for.
fn half(character: char) -> Option<u32> {
    u32::from(character).checked_sub(FIRST).map(|offset| 0xD800 + offset).filter(|half| *half <= 0xDFFF)
}

/// Joins the halves in the pieces of one text. A half without its other half becomes U+FFFD.
#[derive(Debug, Default)]
pub(super) struct Joiner {
    /// The first half of a pair, if the pieces so far end with one.
    high: Option<u32>,
}

impl Joiner {
    /// Joins the next piece of the text, and returns the text that is known. In a piece without halves, every character
    /// stands for itself.
    pub(super) fn join(&mut self, piece: &str, has_halves: bool) -> String {
        if piece.is_empty() {
            return String::new();
        }
        if !has_halves {
            return self.finish().to_owned() + piece;
        }
        let mut joined = String::with_capacity(piece.len());
        for character in piece.chars() {
            match (self.high.take(), half(character)) {
                (Some(high), Some(low @ 0xDC00..)) => {
                    let joined_char = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                    joined.push(char::from_u32(joined_char).unwrap_or(char::REPLACEMENT_CHARACTER));
                    continue;
                }
                (Some(_), _) => joined.push(char::REPLACEMENT_CHARACTER),
                (None, _) => {}
            }
            match half(character) {
                Some(high @ ..0xDC00) => self.high = Some(high),
                Some(_) => joined.push(char::REPLACEMENT_CHARACTER),
                None => joined.push(character),
            }
        }
        joined
    }

    /// Ends the text.
    pub(super) fn finish(&mut self) -> &'static str {
        if self.high.take().is_some() { "\u{fffd}" } else { "" }
    }
}

/// A text that came in one piece.
pub(super) fn joined(text: &str) -> String {
    let mut joiner = Joiner::default();
    joiner.join(text, true) + joiner.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_was_cut_in_two_is_whole_again() {
        let (high, low) = (kept(0xD83D), kept(0xDE00));
        let mut joiner = Joiner::default();
        let pieces = [format!("a{high}"), format!("{low}b"), String::new(), format!("{low}{high}"), "c".to_owned()];
        let text: String = pieces.iter().map(|piece| joiner.join(piece, true)).collect();
        assert_eq!(text + joiner.finish(), "a😀b\u{fffd}\u{fffd}c");
        assert_eq!(joined(&format!("{high}{high}{low}{high}")), "\u{fffd}😀\u{fffd}");
        assert_eq!(joined("\u{10f7ff}é"), "\u{10f7ff}é");
        // If no character was cut, these are the characters that the provider sent.
        let mut joiner = Joiner::default();
        assert_eq!(joiner.join(&format!("a{high}"), true), "a");
        assert_eq!(joiner.join("\u{10f83d}\u{10fa00}", false), "\u{fffd}\u{10f83d}\u{10fa00}");
    }
}
