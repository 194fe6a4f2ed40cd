//! Folds texts into a form for comparison. Only matching uses the form; a text that is shown, quoted, edited or named
//! stays as it is in the file.
//!
//! Characters that can be written in several ways get one form (Unicode's NFC), ligatures and letters of another width
//! become plain letters, and invisible characters within words are removed: soft hyphens and joiners. Superscripts and
//! signs are kept, since `x²` is not `x2`, and so are line ends, so that a folded text has the same lines.

use std::borrow::Cow;

use unicode_normalization::{IsNormalized, UnicodeNormalization as _, char::decompose_compatible, is_nfc_quick};

/// The folded text. It borrows a text that is folded already.
pub fn fold(text: &str) -> Cow<'_, str> {
    let plain = text.is_ascii()
        || !text.chars().any(|c| is_unseen(c) || is_presentation(c)) && is_nfc_quick(text.chars()) == IsNormalized::Yes;
    if plain {
        return text.into();
    }
    let mut letters = String::with_capacity(text.len());
    for c in text.chars().filter(|c| !is_unseen(*c)) {
        if is_presentation(c) {
            decompose_compatible(c, |letter| letters.push(letter));
        } else {
            letters.push(c);
        }
    }
    let folded: String = letters.nfc().collect();
    if folded == text { text.into() } else { folded.into() }
}

/// The folded pattern, if it differs. `None` for a pattern for characters that folding removes: these may be missing
/// only within a word.
pub fn fold_pattern(pattern: &str) -> Option<String> {
    let parts: Vec<&str> = pattern.split(is_unseen).collect();
    let in_words = parts.windows(2).all(|beside| {
        let [before, after] = beside else { return false };
        before.ends_with(char::is_alphanumeric) && after.starts_with(char::is_alphanumeric)
    });
    match fold(pattern) {
        Cow::Owned(folded) if in_words => Some(folded),
        _ => None,
    }
}

/// Whether a character is a soft hyphen, a joiner or a non-joiner.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200c}' | '\u{200d}' | '\u{2060}' | '\u{feff}')
}

/// Whether a character is a ligature, or a letter or digit of another width. None of them folds to a sign, which would
/// have a meaning in a pattern.
fn is_presentation(c: char) -> bool {
    matches!(c, '\u{fb00}'..='\u{fb28}' | '\u{ff10}'..='\u{ff19}' | '\u{ff21}'..='\u{ff3a}' | '\u{ff41}'..='\u{ff5a}' | '\u{ff66}'..='\u{ff9f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_has_one_form() {
        for (text, folded) in [
            ("Gefa\u{308}ß", "Gefäß"),
            ("Ros\u{ad}ter", "roster"),
            ("a\u{ad}\u{308}", "ä"),
            ("o\u{fb03}ce", "office"),
            ("Ｇｕｉｌｄ８", "Guild8"),
            ("ﾊﾟｽ", "パス"),
            ("क\u{200d}ष", "कष"),
            ("\u{1112}\u{1161}\u{11ab}", "한"),
        ] {
            assert_eq!(fold(text).to_lowercase(), folded.to_lowercase(), "{text:?}");
            assert!(matches!(fold(folded), Cow::Borrowed(_)), "{folded:?}");
        }
        for text in
            ["plain", "x² ≠ x2; … ½ “ab” — ☃", "名簿（一覧）。", "a\u{301}\r\n\u{ff08}x".trim_start_matches('a')]
        {
            assert_eq!(fold(text), text);
        }
    }

    #[test]
    fn a_pattern_for_what_is_left_out_is_not_folded() {
        assert_eq!(fold_pattern("ros\u{ad}ter|a\u{308}").as_deref(), Some("roster|ä"));
        for pattern in ["\u{ad}", "a|\u{ad}", "[\u{ad}]", "*\u{200d}*", "plain", "ä"] {
            assert_eq!(fold_pattern(pattern), None, "{pattern:?}");
        }
    }

    #[test]
    fn a_text_keeps_its_lines_and_hardly_grows() {
        let text: String = ('\0'..=char::MAX).map(|c| format!("{c}\n")).collect();
        let folded = fold(&text);
        assert_eq!(folded.matches('\n').count(), text.matches('\n').count());
        assert!(folded.len() <= text.len());
        for c in '\0'..=char::MAX {
            let one = c.to_string();
            let folded = fold(&one);
            assert!(folded.len() <= 3 * one.len(), "{c:?}");
            assert!(
                c.is_ascii() || !folded.contains(['*', '(', '[', '?', '+', '|', '{', '\\', '.', '^', '$']),
                "{c:?}"
            );
        }
    }
}
