//! Finds characters that a reader does not see, or takes for others.

use std::{borrow::Cow, collections::BTreeMap, fmt::Write, ops::RangeInclusive};

use unicode_security::{MixedScript, is_potential_mixed_script_confusable_char, skeleton};

/// Odd characters of one text that are listed.
const LISTED: usize = 20;
/// Characters of a word that is shown.
const SHOWN_CHARS: usize = 40;
/// The character with which the flags of regions begin; tag characters spell the region.
const FLAG: char = '\u{1f3f4}';
/// Tag characters of such a flag: five or six letters, and the one that ends it.
const FLAG_TAGS: usize = 7;
/// Lines that two blanks may break in a text.
const LINE_BREAKS: u64 = 20;
/// Names with fewer characters are too short for one typing mistake to say anything.
const SHORTEST_NAME: usize = 5;

/// What is odd about a character, or a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OddKind {
    /// It steers a terminal.
    Control,
    /// It changes the direction in which what follows is shown.
    Bidirectional,
    /// A tag character: an invisible copy of ASCII, which models read.
    Tag,
    /// It is not shown.
    Invisible,
    /// A word of several scripts, with a letter that looks like one of another script.
    MixedScripts,
}

impl OddKind {
    /// What it is, for a sentence: `a character that is not shown`.
    pub fn what(self) -> &'static str {
        match self {
            Self::Control => "a control character",
            Self::Bidirectional => "a character that turns the direction of reading",
            Self::Tag => "a tag character, an invisible copy of a letter",
            Self::Invisible => "a character that is not shown",
            Self::MixedScripts => "a word with letters of several scripts that look alike",
        }
    }
}

/// An odd character or word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Odd {
    /// What is odd.
    pub kind: OddKind,
    /// Where it begins, in bytes.
    pub offset: usize,
    /// The character as `U+202E`; the word, with what is not ASCII made visible.
    pub shown: String,
}

/// Reads a text character by character, and says what is odd about each.
struct Reader {
    before: Option<char>,
    /// Tag characters that may follow: those of a flag.
    flag: usize,
    /// Whether it is written from right to left somewhere, where marks keep the order.
    is_rtl: bool,
}

impl Reader {
    fn of(text: &str) -> Self {
        let is_rtl = text
            .chars()
            .any(|c| matches!(c, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}'));
        Self { before: None, flag: 0, is_rtl }
    }

    fn kind(&mut self, c: char, after: Option<char>) -> Option<OddKind> {
        let is_tag = matches!(c, '\u{e0020}'..='\u{e007f}');
        let is_of_flag = is_tag && self.flag > 0;
        self.flag = if c == FLAG {
            FLAG_TAGS
        } else if is_tag {
            self.flag.saturating_sub(1)
        } else {
            0
        };
        let keeps_order = self.is_rtl && matches!(c, '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{2066}'..='\u{2069}');
        let kind = if is_of_flag || keeps_order { None } else { kind_of(self.before, c, after) };
        self.before = Some(c);
        kind
    }
}

/// What is odd about one character, by what stands before and after it: emoji and some scripts join with characters that
/// are not shown.
fn kind_of(before: Option<char>, c: char, after: Option<char>) -> Option<OddKind> {
    let joins = |c: Option<char>| c.is_some_and(|c| !c.is_ascii() && !is_default_ignorable(c));
    match c {
        '\n' | '\t' | '\r' => None,
        c if c.is_control() => Some(OddKind::Control),
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}' => {
            Some(OddKind::Bidirectional)
        }
        '\u{e0000}'..='\u{e007f}' => Some(OddKind::Tag),
        // Joiners are spelling in Persian and in scripts of India, and make families out of emoji.
        '\u{200c}' | '\u{200d}' if joins(before) || joins(after) && before == Some('\u{fe0f}') => None,
        // A variation selector chooses how the character before it looks: one, of what has such looks.
        '\u{fe00}'..='\u{fe0f}' if joins(before) || before.is_some_and(|c| c.is_ascii_digit() || "#*".contains(c)) => {
            None
        }
        // A soft hyphen within a word, a pattern of Braille without dots, and selectors of Mongolian are spelling too.
        '\u{ad}' if before.is_some_and(char::is_alphabetic) && after.is_some_and(char::is_alphabetic) => None,
        '\u{2800}' if is_in(before, '\u{2800}'..='\u{28ff}') || is_in(after, '\u{2800}'..='\u{28ff}') => None,
        '\u{180b}'..='\u{180f}' if is_in(before, '\u{1800}'..='\u{18af}') => None,
        c if is_default_ignorable(c) => Some(OddKind::Invisible),
        _ => None,
    }
}

fn is_in(c: Option<char>, range: RangeInclusive<char>) -> bool {
    c.is_some_and(|c| range.contains(&c))
}

/// Unicode's Default_Ignorable_Code_Point, and the format characters that are not shown either.
fn is_default_ignorable(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// What is odd about a text, the first [`LISTED`] of it, in its order. A run of one kind is one.
pub fn odd(text: &str) -> Vec<Odd> {
    let mut found: Vec<Odd> = Vec::new();
    let mut run = None;
    let mut reader = Reader::of(text);
    let mut characters = text.char_indices().peekable();
    while let Some((offset, c)) = characters.next() {
        let after = characters.peek().map(|(_, c)| *c);
        let kind = reader.kind(c, after);
        if let Some(kind) = kind.filter(|kind| run != Some(*kind)) {
            found.push(Odd { kind, offset, shown: format!("U+{:04X}", u32::from(c)) });
        }
        run = kind;
        if found.len() >= LISTED {
            return found;
        }
    }
    let start = text.as_ptr().addr();
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_ascii() && is_mixed(word));
    found.extend(words.take(LISTED - found.len()).map(|word| Odd {
        kind: OddKind::MixedScripts,
        offset: word.as_ptr().addr() - start,
        shown: spelled(&word.chars().take(SHOWN_CHARS).collect::<String>()),
    }));
    found.sort_by_key(|odd| odd.offset);
    found
}

/// Whether a word mixes scripts, by a letter that looks like one of another script: `раypal`, not `Δt`.
fn is_mixed(word: &str) -> bool {
    !word.is_single_script() && word.chars().any(|c| !c.is_ascii() && is_potential_mixed_script_confusable_char(c))
}

/// How many characters of each kind a text has, and how many words of several scripts.
pub fn counts(text: &str) -> BTreeMap<OddKind, u64> {
    let mut counts = BTreeMap::new();
    let mut reader = Reader::of(text);
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        if let Some(kind) = reader.kind(c, characters.peek().copied()) {
            *counts.entry(kind).or_default() += 1;
        }
    }
    let mixed = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_ascii() && is_mixed(word)).count();
    if mixed > 0 {
        counts.insert(OddKind::MixedScripts, mixed as u64);
    }
    counts
}

/// A text in which what is odd is written as `<U+202E>`. A run of tag characters is followed by what it says.
pub fn marked(text: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut from = 0;
    let mut reader = Reader::of(text);
    let mut characters = text.char_indices().peekable();
    while let Some((offset, c)) = characters.next() {
        let after = characters.peek().map(|(_, c)| *c);
        if reader.kind(c, after).is_some() {
            shown.push_str(text.get(from..offset).unwrap_or_default());
            let hidden = u8::try_from(u32::from(c).wrapping_sub(0xe0000)).ok().filter(u8::is_ascii_graphic);
            // Writing to a string cannot fail.
            let _ = match hidden {
                Some(ascii) => write!(shown, "<tag {}>", char::from(ascii)),
                None => write!(shown, "<U+{:04X}>", u32::from(c)),
            };
            from = offset + c.len_utf8();
        }
    }
    if from == 0 { Cow::Borrowed(text) } else { Cow::Owned(shown + text.get(from..).unwrap_or_default()) }
}

/// The blanks and tabs at the end of a line.
fn trailing(line: &str) -> &str {
    let line = line.strip_suffix('\r').unwrap_or(line);
    line.get(line.trim_end_matches([' ', '\t']).len()..).unwrap_or_default()
}

/// The lines of a text that end in blanks or tabs.
pub fn trailing_lines(text: &str) -> u64 {
    text.split('\n').filter(|line| !trailing(line).is_empty()).count() as u64
}

/// The lines of a text that end in blanks or tabs otherwise than Markdown breaks a line, by two blanks; all of them,
/// where there are more than [`LINE_BREAKS`].
pub fn odd_endings(text: &str) -> u64 {
    let is_break = |line: &str| trailing(line) == "  " && !line.trim().is_empty();
    let all = trailing_lines(text);
    let breaks = text.split('\n').filter(|line| is_break(line)).count() as u64;
    if breaks > LINE_BREAKS { all } else { all - breaks }
}

/// A text as a reviewer sees it: what is odd is written out, and at the end of a line each blank is `·` and each tab `→`.
pub fn visible(text: &str) -> String {
    let line = |line: &str| {
        let end = trailing(line);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let shown: String = end.chars().map(|c| if c == '\t' { '→' } else { '·' }).collect();
        marked(line.strip_suffix(end).unwrap_or(line)).into_owned() + &shown
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// A word with each character that is not ASCII followed by its code point: `р<U+0440>aypal`.
pub fn spelled(word: &str) -> String {
    let spell = |c: char| if c.is_ascii() { c.to_string() } else { format!("{c}<U+{:04X}>", u32::from(c)) };
    marked(word).chars().map(spell).collect()
}

/// What a text looks like: of texts that look the same it is the same.
pub fn seen(text: &str) -> String {
    skeleton(text).map(|c| if c.is_whitespace() { ' ' } else { c }).collect()
}

/// How one name can be taken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alike {
    /// They are the same.
    Same,
    /// They look the same: `resеarcher` (with a Cyrillic letter), `researcher`.
    Look,
    /// They are the same but for capitals and separators: `text-kit`, `TextKit`.
    Spelling,
    /// They differ by one letter: `researchers`, `researcher`.
    Letter,
}

/// How a name can be taken for another one; none where it cannot.
pub fn alike(name: &str, other: &str) -> Option<Alike> {
    if name == other {
        return Some(Alike::Same);
    }
    let bare =
        |name: &str| name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect::<String>();
    let (name_bare, other_bare) = (bare(name), bare(other));
    if name_bare == other_bare {
        return Some(Alike::Spelling);
    }
    // The digits that are typed for letters are not all in Unicode's table.
    let look = |name: &str| {
        let seen: String = name.chars().filter(|c| !is_default_ignorable(*c)).collect();
        skeleton(&seen).collect::<String>().replace('0', "O").replace(['1', '|', 'I'], "l").to_lowercase()
    };
    if look(&name_bare) == look(&other_bare) {
        return Some(Alike::Look);
    }
    let is_long = name_bare.chars().count().min(other_bare.chars().count()) >= SHORTEST_NAME;
    // Two letters that changed places count as one step.
    (is_long && strsim::osa_distance(&name_bare, &other_bare) == 1).then_some(Alike::Letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<OddKind> {
        odd(text).into_iter().map(|odd| odd.kind).collect()
    }

    #[test]
    fn what_nobody_sees_is_found_where_it_stands() {
        let found = odd("plain \u{202e}txt\u{2066}\u{200b}\u{e0041}\u{e0042}\u{1b}[2J");
        let found: Vec<_> = found.iter().map(|odd| (odd.kind, odd.offset, odd.shown.as_str())).collect();
        let expected = [
            (OddKind::Bidirectional, 6, "U+202E"),
            (OddKind::Bidirectional, 12, "U+2066"),
            (OddKind::Invisible, 15, "U+200B"),
            (OddKind::Tag, 18, "U+E0041"),
            (OddKind::Control, 26, "U+001B"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_odd_is_written_out() {
        assert_eq!(marked("no\u{200b}thing"), "no<U+200B>thing");
        assert_eq!(marked("a\u{e0068}\u{e0069}b"), "a<tag h><tag i>b");
        assert!(matches!(marked("ordinary — “text” ✓"), Cow::Borrowed(_)));
    }

    #[test]
    fn blanks_and_tabs_at_the_end_of_a_line_are_seen_and_counted() {
        let text = "one \t \ntwo\n\nthree  \nfour\t\r\n";
        assert_eq!(visible(text), "one·→·\ntwo\n\nthree··\nfour→\n");
        assert_eq!((trailing_lines(text), odd_endings(text)), (3, 2), "two blanks break a line of Markdown");
        assert_eq!(odd_endings(&"word  \n".repeat(30)), 30);
    }

    #[test]
    fn honest_writing_of_the_world_is_not_odd() {
        let honest = [
            "Grüße, façade, naïve, Ærø — “quotes”, 10 µm, Δt = 3 π, ≤ 5 €",
            "Привет, мир. Это исследователь.",
            "研究員は報告を書きます。カタカナとひらがな、ABC製",
            "한국어 문장입니다",
            "می‌خواهم", // with a zero-width non-joiner, as Persian is spelled
            "👩‍👩‍👧 ✔️ 1️⃣ ❤️‍🔥",
            "שלום עולם",
            "tab\tand\r\nline",
        ];
        for text in honest {
            assert!(odd(text).is_empty(), "{text}: {:?}", odd(text));
        }
    }

    #[test]
    fn a_word_of_two_scripts_that_look_alike_is_found() {
        assert_eq!(kinds("ask the rеsearcher"), [OddKind::MixedScripts]); // a Cyrillic `е`
        assert_eq!(odd("ask the rеsearcher").first().map(|odd| odd.shown.as_str()), Some("rе<U+0435>searcher"));
    }

    #[test]
    fn names_that_can_be_taken_for_another_are_told_apart() {
        for (name, how) in [
            ("rеsearcher", Some(Alike::Look)),
            ("resear\u{200b}cher", Some(Alike::Spelling)),
            ("re-searcher", Some(Alike::Spelling)),
            ("Researcher", Some(Alike::Spelling)),
            ("researchers", Some(Alike::Letter)),
            ("reseacrher", Some(Alike::Letter)),
            ("reserrcher", Some(Alike::Letter)),
            ("researcher", Some(Alike::Same)),
            ("archivist", None),
        ] {
            assert_eq!(alike(name, "researcher"), how, "{name}");
        }
        assert_eq!(alike("too1s", "tools"), Some(Alike::Look));
        assert_eq!(alike("rnail", "mail"), Some(Alike::Look));
        assert_eq!(alike("log", "dog"), None, "three letters are too few");
    }

    #[test]
    fn a_flood_of_odd_characters_is_bounded() {
        let text = "\u{200b}a".repeat(100_000);
        assert_eq!(odd(&text).len(), LISTED);
    }
}
