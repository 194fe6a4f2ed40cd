//! Decodes texts of unknown encoding.
//!
//! The byte order mark decides, else the `charset` of the content type. A text that is valid UTF-8 beyond ASCII is
//! UTF-8, even against its own declaration. Else the declaration in a `meta` element or an XML declaration decides, and
//! without one, the encoding is guessed from the bytes. The work is bounded: only the beginning of a text is examined,
//! and a part of it from the first byte that is not ASCII.

use std::{
    borrow::Cow,
    io::{self, Read},
};

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

/// The bytes in which a text's declaration of its encoding is looked for, as in the HTML standard.
const PRESCAN_BYTES: usize = 1024;
/// The bytes at the beginning of a file that decide whether it is binary.
pub const HEAD_BYTES: usize = 8192;
/// The bytes of the part of a text that shows its encoding.
const SHOWN_BYTES: usize = 64 << 10;
/// The bytes of that part before the first byte that is not ASCII, which are the ASCII letters of a word.
const CONTEXT_BYTES: usize = 64;
/// A damaged text is UTF-8 if it has so many valid characters for each damaged place. Texts of other encodings have
/// hardly any valid ones.
const SOUND: usize = 4;

/// Decodes a text, without its byte order mark. Invalid bytes become U+FFFD. `content_type` is that of the transfer, if
/// there was one.
pub fn decode<'a>(bytes: &'a [u8], content_type: Option<&str>) -> Cow<'a, str> {
    encoding(bytes, content_type).decode(bytes).0
}

/// The encoding of a text, from the whole text or a [`sample`].
pub fn encoding(bytes: &[u8], content_type: Option<&str>) -> &'static Encoding {
    if let Some(encoding) = Encoding::for_bom(bytes).map(|(encoding, _)| encoding).or(content_type.and_then(sent_as)) {
        return encoding;
    }
    let shown = other_than_ascii(bytes);
    if is_utf8(shown) {
        return UTF_8;
    }
    let declared = declared(bytes).filter(|declared| shown.is_empty() || *declared != UTF_8);
    declared.unwrap_or_else(|| if shown.is_empty() { UTF_8 } else { guess(shown) })
}

/// The part of a text that [`encoding`] and [`is_binary`] examine.
///
/// # Errors
///
/// Returns an error when the text cannot be read.
pub fn sample(mut text: impl Read) -> io::Result<Vec<u8>> {
    let mut sample = Vec::new();
    text.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut sample)?;
    let mut piece = Vec::new();
    while sample.is_ascii() {
        piece.clear();
        if text.by_ref().take(SHOWN_BYTES as u64).read_to_end(&mut piece)? == 0 {
            break;
        }
        sample.extend_from_slice(other_than_ascii(&piece));
    }
    text.take(SHOWN_BYTES as u64).read_to_end(&mut sample)?;
    Ok(sample)
}

/// Whether a file is binary, from its beginning: its first characters have a NUL among them.
pub fn is_binary(bytes: &[u8]) -> bool {
    let head = bytes.get(..HEAD_BYTES).unwrap_or(bytes);
    match Encoding::for_bom(head) {
        Some((encoding, _)) if encoding != UTF_8 => {
            let (text, ..) = encoding.decode(head);
            // The last character may be cut. Further invalid ones show that the mark is none.
            text.contains('\0') || text.matches('\u{fffd}').count() > 1
        }
        _ => head.contains(&0),
    }
}

/// The part of a text that shows its encoding; empty if the text is ASCII.
fn other_than_ascii(bytes: &[u8]) -> &[u8] {
    let Some(first) = bytes.iter().position(|byte| !byte.is_ascii()) else { return &[] };
    let rest = bytes.get(first.saturating_sub(CONTEXT_BYTES)..).unwrap_or_default();
    rest.get(..SHOWN_BYTES).unwrap_or(rest)
}

/// Whether a part of a text is UTF-8 beyond ASCII.
fn is_utf8(shown: &[u8]) -> bool {
    let (mut sound, mut damaged) = (0, 0);
    for chunk in shown.utf8_chunks() {
        sound += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        damaged += usize::from(!chunk.invalid().is_empty());
    }
    // The part may end within a character.
    let damaged = if shown.len() < SHOWN_BYTES { damaged } else { damaged.saturating_sub(1) };
    sound > 0 && sound >= SOUND * damaged
}

fn guess(shown: &[u8]) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(shown, true);
    detector.guess(None, Utf8Detection::Deny)
}

/// `charset` of a content type.
fn sent_as(content_type: &str) -> Option<&'static Encoding> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim().trim_matches(['"', '\'']);
        name.trim().eq_ignore_ascii_case("charset").then(|| Encoding::for_label(value.as_bytes())).flatten()
    })
}

/// `charset` of a `meta` element, or `encoding` of an XML declaration.
fn declared(bytes: &[u8]) -> Option<&'static Encoding> {
    let start = bytes.get(..PRESCAN_BYTES).unwrap_or(bytes);
    let start: String = start.iter().map(|byte| char::from(*byte).to_ascii_lowercase()).collect();
    let in_xml = start.strip_prefix("<?xml").and_then(|rest| value_of(rest.split("?>").next()?, "encoding"));
    let in_meta = || start.split("<meta").skip(1).find_map(|rest| value_of(rest.split('>').next()?, "charset"));
    let encoding = Encoding::for_label(in_xml.or_else(in_meta)?.as_bytes())?;
    // A text with a declaration in ASCII is not in UTF-16.
    Some(if encoding == UTF_16LE || encoding == UTF_16BE { UTF_8 } else { encoding })
}

/// The value of `name=value`, `name="value"` or `name='value'` in a tag.
fn value_of<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let value = tag.split(name).skip(1).find_map(|rest| rest.trim_start().strip_prefix('='))?.trim_start();
    let value = value.strip_prefix(['"', '\'']).unwrap_or(value);
    value.split(|c: char| c.is_ascii_whitespace() || "\"';/".contains(c)).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_is_found_in_its_order() {
        for (body, content_type, expected) in [
            (&b"caf\xe9"[..], Some("text/html; charset=iso-8859-1"), "café"),
            (b"caf\xe9", Some("text/html; Charset=\"ISO-8859-1\"; x"), "café"),
            (b"\xef\xbb\xbfcaf\xc3\xa9", Some("text/html; charset=iso-8859-1"), "café"),
            (b"\xff\xfec\x00a\x00f\x00\xe9\x00", None, "café"),
            (b"\xfe\xff\x00c\x00a\x00f\x00\xe9", None, "café"),
            (b"<meta charset=windows-1251>\xef\xf0\xe8\xe2\xe5\xf2", None, "<meta charset=windows-1251>привет"),
            (b"<META  CHARSET='shift_jis'>\x93\xfa\x96{", None, "<META  CHARSET='shift_jis'>日本"),
            (
                b"<meta http-equiv=x content=\"text/html; charset=gbk\">\xc4\xe3",
                None,
                "<meta http-equiv=x content=\"text/html; charset=gbk\">你",
            ),
            (b"<?xml version='1.0' encoding='koi8-r'?>\xd0", None, "<?xml version='1.0' encoding='koi8-r'?>п"),
            (b"<meta charset=iso-2022-jp>\x1b$BF|\x1b(B", None, "<meta charset=iso-2022-jp>日"),
            (b"<meta charset=utf-16>caf\xc3\xa9", None, "<meta charset=utf-16>café"),
            (b"<meta charset=iso-8859-1>caf\xc3\xa9", None, "<meta charset=iso-8859-1>café"),
            (b"<meta charset=utf-8>caf\xe9", None, "<meta charset=utf-8>café"),
            (b"caf\xc3\xa9", None, "café"),
            (b"caf\xe9", None, "café"),
            (b"caf\xe9", Some("text/plain; charset=no-such"), "café"),
            (b"caf\xe9!", Some("text/plain; charset=utf-8"), "caf\u{fffd}!"),
        ] {
            assert_eq!(decode(body, content_type), expected);
        }
    }

    #[test]
    fn a_text_that_declares_nothing_is_read_by_what_it_looks_like() {
        for (label, text) in [
            ("windows-1251", "Реестр — это список участников одного сервера."),
            ("koi8-r", "Реестр - это список участников одного сервера."),
            ("shift_jis", "名簿とは、一つのホストが提供するメンバーの集まりである。"),
            ("euc-jp", "名簿とは、一つのホストが提供するメンバーの集まりである。"),
            ("gbk", "名册是一个主机提供的成员集合，每个成员都有自己的工作目录。"),
            ("big5", "名冊是一個主機提供的成員集合，每個成員都有自己的工作目錄。"),
            ("windows-1252", "Un registre est une liste de membres d’un hôte, où chacun a déjà été approuvé."),
        ] {
            let (bytes, ..) = Encoding::for_label(label.as_bytes()).unwrap().encode(text);
            assert_eq!(decode(&bytes, None), text, "{label}");
            let far = [b"ASCII first.\n".repeat(20_000).as_slice(), &bytes].concat();
            assert!(decode(&far, None).ends_with(text), "{label}");
            assert_eq!(encoding(&sample(far.as_slice()).unwrap(), None), encoding(&far, None), "{label}");
        }
    }

    #[test]
    fn a_damaged_text_in_utf_8_stays_utf_8() {
        let text = "Größe und Gefäß, für größere Behälter.";
        for bytes in [&text.as_bytes()[..4], &[text.as_bytes(), b"\xff!"].concat()] {
            assert_eq!(encoding(bytes, None), UTF_8);
        }
        let long = "é".repeat(SHOWN_BYTES);
        let cut = [b"x", long.as_bytes()].concat();
        assert_eq!(encoding(&cut, None), UTF_8);
    }

    #[test]
    fn a_binary_file_has_a_nul_among_its_first_characters() {
        assert!(is_binary(b"a\0b") && is_binary(b"\xff\xfea\x00\x00\x00") && is_binary(b"\xff\xfe\x00\xd8\x00\xd8a"));
        assert!(!is_binary(b"") && !is_binary(b"\xff\xfea\x00") && !is_binary(b"\xfe\xff\x00a") && !is_binary(b"\xe9"));
    }
}
