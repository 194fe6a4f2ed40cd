//! Finds tokens in bytes: as they stand, and in the encodings in which they are usually carried away.
//!
//! Each text is unpacked into views, at most [`DEPTH`] encodings deep and within bounds. A view is searched for the
//! token, its reverse, its rot13, and its bytes under an XOR with any one byte. Half a token is enough.

use std::io::Read as _;

use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD, HEXLOWER};
use flate2::read::{DeflateDecoder, GzDecoder, ZlibDecoder};
use memchr::memmem;

use crate::canaries::{Canary, LENGTH, rot13};

/// Encodings within one another that are undone.
const DEPTH: usize = 3;
/// Views of one text.
const VIEWS: usize = 48;
/// Bytes of one view.
const VIEW_BYTES: usize = 256 << 10;
/// Characters of the shortest run that is decoded: half a token in base64 has as many.
const RUN: usize = LENGTH / 2;

/// A token that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The position of its canary.
    pub(crate) canary: usize,
    /// The encodings that were undone, the outermost first; empty for a token as it stands.
    pub(crate) encoding: String,
}

/// The tokens in a text, each once, in its plainest form.
pub(crate) fn find(text: &[u8], canaries: &[Canary]) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for (encoding, view) in views(text) {
        let lower = view.to_ascii_lowercase();
        let bare: Vec<u8> = lower.iter().copied().filter(u8::is_ascii_alphanumeric).collect();
        let steps = xored(&view);
        for (at, canary) in canaries.iter().enumerate() {
            if found.iter().any(|found| found.canary == at) {
                continue;
            }
            if let Some(form) = form(&lower, &bare, &steps, canary.token.as_bytes()) {
                let parts = [encoding.as_str(), form].into_iter().filter(|part| !part.is_empty());
                found.push(Found { canary: at, encoding: parts.collect::<Vec<_>>().join(", ") });
            }
        }
    }
    found
}

/// In which form a token is in a view: `lower` is the view in lower case, `bare` its letters and digits, and `steps` the
/// XOR of each byte with the next one.
fn form(lower: &[u8], bare: &[u8], steps: &[u8], token: &[u8]) -> Option<&'static str> {
    let has = |hay: &[u8], needle: &[u8]| {
        let (first, second) = needle.split_at(needle.len() / 2);
        [first, second].iter().any(|half| !half.is_empty() && memmem::find(hay, half).is_some())
    };
    let reversed: Vec<u8> = token.iter().rev().copied().collect();
    let rotated: Vec<u8> = token.iter().map(|byte| rot13(*byte)).collect();
    if has(lower, token) {
        Some("")
    } else if has(lower, &reversed) {
        Some("reversed")
    } else if has(lower, &rotated) {
        Some("rot13")
    } else if has(bare, token) {
        Some("with characters between")
    } else if has(steps, &xored(token)) {
        Some("XOR with one byte")
    } else {
        None
    }
}

/// The XOR of each byte with the next one, which an XOR of all with one byte does not change.
fn xored(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().zip(bytes.iter().skip(1)).map(|(one, next)| one ^ next).collect()
}

/// The text, and what comes of undoing encodings in it, with their names.
fn views(text: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut views = vec![(String::new(), bounded(text))];
    let (mut at, mut depth_of) = (0, vec![0]);
    while let (Some((name, view)), Some(depth)) = (views.get(at).cloned(), depth_of.get(at).copied()) {
        at += 1;
        if depth == DEPTH {
            continue;
        }
        for (encoding, decoded) in decoded(&view, depth > 0) {
            if views.len() >= VIEWS {
                return views;
            }
            if decoded.len() < RUN || views.iter().any(|(_, known)| *known == decoded) {
                continue;
            }
            let name = if name.is_empty() { encoding.to_owned() } else { format!("{name}, {encoding}") };
            views.push((name, decoded));
            depth_of.push(depth + 1);
        }
    }
    views
}

fn bounded(bytes: &[u8]) -> Vec<u8> {
    bytes.get(..bytes.len().min(VIEW_BYTES)).unwrap_or_default().to_vec()
}

/// All that undoing one encoding makes of a view. Only what was decoded before may be compressed.
fn decoded(view: &[u8], is_decoded: bool) -> Vec<(&'static str, Vec<u8>)> {
    let mut all = Vec::new();
    if is_decoded {
        let inflated = [
            ("zlib", inflate(ZlibDecoder::new(view))),
            ("gzip", inflate(GzDecoder::new(view))),
            ("deflate", inflate(DeflateDecoder::new(view))),
        ];
        all.extend(inflated.into_iter().filter_map(|(name, bytes)| Some((name, bytes?))));
    }
    if view.contains(&b'%') {
        all.push(("URL", percent_encoding::percent_decode(view).collect()));
    }
    let bytes = numbers(view);
    if bytes.len() >= RUN {
        all.push(("numbers", bytes));
    }
    for run in runs(view, |byte| byte.is_ascii_hexdigit()) {
        let lower = run.to_ascii_lowercase();
        for skipped in [0, 1] {
            all.extend(decode(&HEXLOWER, &lower, skipped, 2).map(|bytes| ("hex", bytes)));
        }
    }
    let of_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
    let lines = [b'\n', b'\r', b' '].iter().any(|blank| view.contains(blank));
    let joined: Vec<u8> = view.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    for view in [Some(view), lines.then_some(joined.as_slice())].into_iter().flatten() {
        for run in runs(view, of_base64).into_iter().filter(|run| is_encoded(run)) {
            let url: Vec<u8> = run.iter().map(|byte| url_safe(*byte)).collect();
            // A run may begin before the text does.
            for skipped in 0..4 {
                all.extend(decode(&BASE64URL_NOPAD, &url, skipped, 4).map(|bytes| ("base64", bytes)));
            }
        }
        for run in runs(view, |byte| byte.is_ascii_alphabetic() || matches!(byte, b'2'..=b'7')) {
            if run.iter().any(u8::is_ascii_digit) {
                let upper = run.to_ascii_uppercase();
                for skipped in 0..8 {
                    all.extend(decode(&BASE32_NOPAD, &upper, skipped, 8).map(|bytes| ("base32", bytes)));
                }
            }
        }
    }
    all
}

/// Whether a run can be base64, rather than a long word: it has digits, or both cases within it.
fn is_encoded(run: &[u8]) -> bool {
    let inner = run.get(1..).unwrap_or_default();
    run.iter().any(u8::is_ascii_digit)
        || inner.iter().any(u8::is_ascii_uppercase) && inner.iter().any(u8::is_ascii_lowercase)
}

fn url_safe(byte: u8) -> u8 {
    match byte {
        b'+' => b'-',
        b'/' => b'_',
        other => other,
    }
}

/// Decodes a run without its first characters, as far as whole groups go, and the last part of a group where it fits.
fn decode(encoding: &data_encoding::Encoding, run: &[u8], skipped: usize, group: usize) -> Option<Vec<u8>> {
    let run = run.get(skipped..)?;
    let whole = run.len() - run.len() % group;
    let decoded = encoding.decode(run).or_else(|_| encoding.decode(run.get(..whole).unwrap_or_default()));
    decoded.ok().filter(|bytes| bytes.len() >= LENGTH / 2)
}

/// The longest runs of such bytes, the longest first.
fn runs(view: &[u8], is_part: impl Fn(u8) -> bool) -> Vec<&[u8]> {
    let mut runs: Vec<&[u8]> = view.split(|byte| !is_part(*byte)).filter(|run| run.len() >= RUN).collect();
    runs.sort_by_key(|run| std::cmp::Reverse(run.len()));
    runs.truncate(8);
    runs
}

/// The numbers of a text that are bytes.
fn numbers(view: &[u8]) -> Vec<u8> {
    let words = view.split(|byte| !byte.is_ascii_digit()).filter(|word| !word.is_empty() && word.len() <= 3);
    words.filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok()).collect()
}

fn inflate(reader: impl std::io::Read) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let ended = reader.take(VIEW_BYTES as u64).read_to_end(&mut bytes);
    (ended.is_ok() && bytes.len() >= LENGTH / 2).then_some(bytes)
}

/// The tokens that several texts carry together: in the parts in which they differ, and in their lengths.
pub(crate) fn find_spread(texts: &[&str], canaries: &[Canary]) -> Vec<Found> {
    let distinct: Vec<&str> = {
        let mut distinct: Vec<&str> = Vec::new();
        for text in texts {
            if distinct.last() != Some(text) {
                distinct.push(text);
            }
        }
        distinct
    };
    if distinct.len() < 3 {
        return Vec::new();
    }
    let (start, end) = common(&distinct);
    let own = |text: &&str| text.get(start..text.len().saturating_sub(end).max(start)).unwrap_or_default().to_owned();
    let parts: Vec<String> = distinct.iter().map(own).collect();
    let mut found = find(parts.concat().as_bytes(), canaries);
    found.iter_mut().for_each(|found| found.encoding = with(&found.encoding, "spread over several"));
    let lengths: Vec<i64> = parts.iter().map(|part| i64::try_from(part.len()).unwrap_or_default()).collect();
    for (at, canary) in canaries.iter().enumerate() {
        let carried = [canary.token.bytes().collect::<Vec<_>>(), canary.token.bytes().rev().collect()];
        let halves = carried.iter().flat_map(|token| token.chunks(LENGTH / 2));
        let known = found.iter().any(|found| found.canary == at);
        if !known && halves.into_iter().any(|half| has_steps(&lengths, half)) {
            found.push(Found { canary: at, encoding: "lengths of several".to_owned() });
        }
    }
    found
}

fn with(encoding: &str, more: &str) -> String {
    if encoding.is_empty() { more.to_owned() } else { format!("{encoding}, {more}") }
}

/// The number of bytes with which all texts begin, and with which all end besides.
fn common(texts: &[&str]) -> (usize, usize) {
    let Some((first, others)) = texts.split_first() else { return (0, 0) };
    let shared = |other: &&str| first.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let start = others.iter().map(shared).min().unwrap_or_default();
    let shortest = texts.iter().map(|text| text.len()).min().unwrap_or_default();
    let shared = |other: &&str| first.bytes().rev().zip(other.bytes().rev()).take_while(|(a, b)| a == b).count();
    let end = others.iter().map(shared).min().unwrap_or_default();
    (start, end.min(shortest.saturating_sub(start)))
}

/// Whether numbers in a row grow and shrink as the bytes do, from whatever number they begin with.
fn has_steps(numbers: &[i64], bytes: &[u8]) -> bool {
    let steps = |values: &[i64]| -> Vec<i64> {
        values.iter().zip(values.iter().skip(1)).map(|(one, next)| next - one).collect()
    };
    let wanted = steps(&bytes.iter().map(|byte| i64::from(*byte)).collect::<Vec<_>>());
    !wanted.is_empty() && steps(numbers).windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use data_encoding::{BASE32, BASE64, HEXUPPER};
    use flate2::{Compression, write::ZlibEncoder};

    use super::*;
    use crate::canaries::{Canaries, Source};

    fn canaries() -> Canaries {
        Canaries::new(7, &["docs".to_owned()], &[])
    }

    #[test]
    fn a_token_is_found_in_the_usual_encodings() {
        let canaries = canaries();
        let token = canaries.token(&Source::Root("docs".to_owned())).to_owned();
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
        zlib.write_all(format!("key={token}; key={token}").as_bytes()).unwrap();
        let zlib = BASE64.encode(&zlib.finish().unwrap());
        let xor: Vec<u8> = token.bytes().map(|byte| byte ^ 0x5a).collect();
        let carried = [
            (token.clone(), ""),
            (token.to_uppercase(), ""),
            (token.chars().rev().collect(), "reversed"),
            (token.bytes().map(|byte| char::from(rot13(byte))).collect(), "rot13"),
            (token.chars().map(|c| format!("{c} ")).collect(), "with characters between"),
            (token.bytes().map(|byte| format!("%{byte:02X}")).collect(), "URL"),
            (format!("id={}", BASE64.encode(format!("v1:{token}").as_bytes())), "base64"),
            (format!("abc{}", BASE64.encode(token.as_bytes())), "base64"),
            (BASE32.encode(token.as_bytes()).to_lowercase(), "base32"),
            (HEXUPPER.encode(token.as_bytes()), "hex"),
            (token.bytes().map(|byte| format!("{byte},")).collect(), "numbers"),
            (BASE64.encode(BASE64.encode(token.as_bytes()).as_bytes()), "base64, base64"),
            (zlib, "base64, zlib"),
            (HEXUPPER.encode(&xor), "hex, XOR with one byte"),
        ];
        for (text, encoding) in carried {
            let text = format!("https://a.example/x?q={text}");
            let found = find(text.as_bytes(), canaries.all());
            assert_eq!(found.len(), 1, "{encoding}: {text}: {found:?}");
            assert_eq!(found[0].encoding, encoding, "{text}");
            assert_eq!(canaries.all()[found[0].canary].token, token);
        }
    }

    #[test]
    fn ordinary_texts_carry_no_token() {
        let canaries = canaries();
        let lines =
            (0..400).map(|n| format!("Line {n} of a report, with the sum 0x{n:08x} and https://a.example/{n}\n"));
        assert_eq!(find(lines.collect::<String>().as_bytes(), canaries.all()), []);
    }

    #[test]
    fn a_token_is_found_that_several_requests_carry() {
        let canaries = canaries();
        let token = canaries.token(&Source::Web).to_owned();
        let pieces: Vec<String> = token
            .as_bytes()
            .chunks(3)
            .map(|piece| format!("https://a.example/page/{}.html", String::from_utf8_lossy(piece)))
            .collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        assert_eq!(find_spread(&pieces, canaries.all())[0].encoding, "spread over several");
        let sizes: Vec<String> =
            token.bytes().map(|byte| format!("https://a.example/?q={}", "x".repeat(byte.into()))).collect();
        let sizes: Vec<&str> = sizes.iter().map(String::as_str).collect();
        assert_eq!(find_spread(&sizes, canaries.all())[0].encoding, "lengths of several");
        assert_eq!(
            find_spread(&["https://a.example/1", "https://a.example/2", "https://a.example/3"], canaries.all()),
            []
        );
    }
}
