//! Divides data into its texts and the rest, and accounts for the rest: number tables, encoded text, files of known
//! forms, and dense bytes.

use std::ops::Range;

use guild_contract::text::hex;
use sha2::{Digest, Sha256};

use super::form::key_at;

/// Bytes of a run of characters that is a text: fewer are one by chance.
const SHORTEST_TEXT: usize = 12;
/// Characters of base64 or hexadecimal in a row that are listed.
const SHORTEST_ENCODED: usize = 256;
/// The bytes over which density is measured.
const BLOCK: usize = 512;
/// Bytes of a region that is listed.
const SHORTEST_REGION: usize = 1024;
/// Bytes of a table that is listed.
const SHORTEST_TABLE: usize = 4096;
/// Places at which a library's table may begin.
const TABLE_PLACES: usize = 20;
/// Bytes of an encoded row that tell its kind.
const SAMPLE: usize = 64 * 1024;
/// Bits a byte above which a block is dense: compressed, encrypted or random. Machine code and tables have fewer.
const DENSE_BITS: f64 = 6.9;

/// A table of a library, which is the same in each component that has it.
struct Table {
    what: &'static str,
    begins: [u8; 16],
    bytes: usize,
    sha256: &'static str,
}

/// The dense tables that the libraries of this project's own plugins, and of its templates, have.
const TABLES: [Table; 4] = [
    Table {
        what: "powers of five of Rust's core (`dec2flt`)",
        begins: *b"\x5a\xd6\x3b\x92\xd6\x53\xf4\xee\x3f\x3b\xa1\x06\x29\xaa\x3f\x11",
        bytes: 10_416,
        sha256: "dae47e3594bb0b39d42660ef3fe3dc5de5885c0a29ae0e5c21a39e79669efe86",
    },
    Table {
        what: "powers of ten of serde_json",
        begins: *b"\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\x24\x40",
        bytes: 2472,
        sha256: "c48f7ef4d10d520b70e2ef23e4e31559d69eb31bb6266a0c61b7dab912051ac4",
    },
    // 128 bits of each power, in two segments: between them stand powers that end in zeros.
    Table {
        what: "powers of ten of Go's `strconv`, 1e-348 to 1",
        begins: *b"\x89\x02\x1c\x08\xa0\xd5\x8f\xfa\xac\x1b\x9f\x32\x96\x37\xcd\xe8",
        bytes: 5576,
        sha256: "1f8807ab010d9e3393dce73582f1a97328955d93ee9764bda9db63ee19e5261a",
    },
    Table {
        what: "powers of ten of Go's `strconv`, 1e28 to 1e347",
        begins: *b"\x85\x09\x94\xf8\x78\x39\x3f\x81\x00\x00\x00\x00\x00\x00\x00\xc0",
        bytes: 5120,
        sha256: "38d279335131790631172fd2dc0536c2c730930ee6fa75802000c5130a5c1cf0",
    },
];

/// A text within data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Where it begins, in bytes.
    pub offset: usize,
    /// The bytes that it takes there.
    pub bytes: usize,
    /// The text.
    pub text: String,
}

/// Bytes that are no text that can be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// Where it begins, in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub bytes: usize,
    /// What it is.
    pub kind: RegionKind,
    /// Its entropy, in bits a byte.
    pub entropy: f64,
}

/// What bytes are that are no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RegionKind {
    /// Numbers of a fixed width: offsets, pointers, tables.
    Numbers,
    /// Characters of base64, without a space.
    Base64,
    /// Hexadecimal digits, without a space.
    Hex,
    /// A picture or font of this form, which ends where its form says; as it is, or in base64.
    File(&'static str),
    /// Bytes that are as dense as compressed or encrypted ones.
    Dense,
    /// A table of a library, byte by byte.
    Library(&'static str),
}

impl RegionKind {
    /// What it is, for a sentence.
    pub fn what(self) -> &'static str {
        match self {
            Self::Numbers => "numbers",
            Self::Base64 => "base64",
            Self::Hex => "hexadecimal",
            Self::File(form) | Self::Library(form) => form,
            Self::Dense => "dense bytes",
        }
    }

    /// Whether nothing accounts for such bytes.
    pub fn is_unaccounted(self) -> bool {
        matches!(self, Self::Base64 | Self::Hex | Self::Dense)
    }
}

/// The texts of data, in their order: runs of UTF-8 without control characters, and runs of ASCII in UTF-16.
pub fn texts(data: &[u8]) -> Vec<Text> {
    let start = data.as_ptr().addr();
    let ends = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
    let runs = data.utf8_chunks().flat_map(|chunk| chunk.valid().split(ends));
    let narrow = runs.filter(|run| run.len() >= SHORTEST_TEXT).map(|run| Text {
        offset: run.as_ptr().addr() - start,
        bytes: run.len(),
        text: run.to_owned(),
    });
    let mut texts: Vec<Text> = narrow.chain(wide(data)).collect();
    texts.sort_by_key(|text| text.offset);
    texts
}

/// Runs of ASCII in UTF-16 of little-endian order.
fn wide(data: &[u8]) -> Vec<Text> {
    let is_text = |byte: u8| (b' '..=b'~').contains(&byte) || byte == b'\n';
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(zero) = memchr::memchr(0, data.get(at..).unwrap_or_default()).map(|zero| at + zero) {
        at = zero + 1;
        let Some(begin) = zero.checked_sub(1) else { continue };
        let units = data.get(begin..).unwrap_or_default().chunks_exact(2);
        let text: String = units
            .map_while(|unit| {
                if let [c, 0] = unit
                    && is_text(*c)
                {
                    Some(char::from(*c))
                } else {
                    None
                }
            })
            .collect();
        if text.len() >= SHORTEST_TEXT {
            at = begin + 2 * text.len();
            found.push(Text { offset: begin, bytes: 2 * text.len(), text });
        }
    }
    found
}

/// What data holds besides texts, in its order.
pub fn regions(data: &[u8], texts: &[Text]) -> Vec<Region> {
    let region = |range: Range<usize>, kind| Region {
        offset: range.start,
        bytes: range.len(),
        kind,
        entropy: entropy(data.get(range).unwrap_or_default()),
    };
    let encoded: Vec<Region> = texts
        .iter()
        .filter(|text| text.bytes == text.text.len() && key_at(text.text.as_bytes()).is_none())
        .flat_map(|text| encoded(text.text.as_bytes()).into_iter().map(|(range, kind)| (text.offset, range, kind)))
        .map(|(from, range, kind)| region(from + range.start..from + range.end, kind))
        .collect();
    let tables: Vec<Region> = tables(data).map(|(range, what)| region(range, RegionKind::Library(what))).collect();
    // A short text within other bytes is one by chance, and does not divide them.
    let texts = texts.iter().filter(|text| text.bytes >= 4 * SHORTEST_TEXT).map(|text| (text.offset, text.bytes));
    let mut known: Vec<_> = texts.chain(tables.iter().map(|table| (table.offset, table.bytes))).collect();
    known.sort_unstable();
    let mut all = [encoded, tables].concat();
    let mut end = 0;
    let mut add = |from: usize, to: usize| {
        for (range, kind) in gap(data.get(from..to).unwrap_or_default()) {
            all.push(region(from + range.start..from + range.end, kind));
        }
    };
    for (offset, bytes) in known {
        add(end.min(offset), offset);
        end = end.max(offset + bytes);
    }
    add(end, data.len());
    all.sort_by_key(|region| region.offset);
    all
}

/// The tables of libraries in data.
fn tables(data: &[u8]) -> impl Iterator<Item = (Range<usize>, &'static str)> {
    TABLES.iter().flat_map(move |table| {
        let places = memchr::memmem::find_iter(data, &table.begins).take(TABLE_PLACES);
        places.filter_map(move |at| {
            let range = at..at + table.bytes;
            let is_it = hex(&Sha256::digest(data.get(range.clone())?)) == table.sha256;
            is_it.then_some((range, table.what))
        })
    })
}

/// The encoded parts of a text: long rows of the characters of base64 or hexadecimal.
fn encoded(text: &[u8]) -> Vec<(Range<usize>, RegionKind)> {
    let is_of = |byte: &u8| matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'+' | b'/' | b'-' | b'_' | b'=' | b'\r' | b'\n');
    let start = text.as_ptr().addr();
    let rows = text
        .chunk_by(|a, b| is_of(a) == is_of(b))
        .filter(|row| row.len() >= SHORTEST_ENCODED && row.first().is_some_and(is_of));
    let kind = |whole: &[u8]| {
        // The beginning of a long row tells what it is.
        let row = whole.get(..SAMPLE).unwrap_or(whole);
        let bare = row.iter().filter(|byte| !b"\r\n=".contains(byte));
        let (mut digits, mut upper, mut lower, mut lines) = (0, 0, 0, 0);
        for byte in bare {
            digits += usize::from(byte.is_ascii_digit());
            upper += usize::from(byte.is_ascii_uppercase());
            lower += usize::from(byte.is_ascii_lowercase());
        }
        for byte in row {
            lines += usize::from(*byte == b'\n');
        }
        if row.iter().all(|byte| byte.is_ascii_hexdigit() || b"\r\n".contains(byte)) {
            return Some(RegionKind::Hex);
        }
        // Words without spaces have nearly no digits, and lines of code are short.
        let is_dense = entropy(row) > 5.0 && digits * 40 > row.len() && upper * 8 > row.len() && lower * 8 > row.len();
        (is_dense && lines * 32 < row.len()).then(|| file_in_base64(whole).unwrap_or(RegionKind::Base64))
    };
    rows.filter_map(|row| {
        let from = row.as_ptr().addr() - start;
        Some((from..from + row.len(), kind(row)?))
    })
    .collect()
}

/// A file of a known form in base64, by its beginning, where the form says its length and that is the length.
fn file_in_base64(row: &[u8]) -> Option<RegionKind> {
    let symbols: Vec<u8> = row.iter().copied().filter(|byte| !b"\r\n=".contains(byte)).collect();
    let bytes = data_encoding::BASE64_NOPAD.decode(symbols.get(..symbols.len() & !3)?).ok()?;
    file_of(&bytes, 3).map(RegionKind::File)
}

/// A picture or font that ends where its form says; up to `more` bytes may follow or be missing.
fn file_of(bytes: &[u8], more: usize) -> Option<&'static str> {
    let length = |at: usize| {
        let field: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_be_bytes(field)).ok()
    };
    let is_long = |length: usize| length.abs_diff(bytes.len()) <= more;
    let ends =
        |end: &[u8]| memchr::memmem::rfind(bytes, end).is_some_and(|at| at + end.len() + more + 1 >= bytes.len());
    if bytes.starts_with(b"wOF2") && length(8).is_some_and(is_long) {
        Some("a WOFF2 font")
    } else if bytes.starts_with(b"wOFF") && length(8).is_some_and(is_long) {
        Some("a WOFF font")
    } else if bytes.starts_with(b"\x89PNG\r\n\x1a\n") && ends(b"IEND\xae\x42\x60\x82") {
        Some("a PNG picture")
    } else if bytes.starts_with(b"GIF8") && ends(b"\x3b") {
        Some("a GIF picture")
    } else if bytes.starts_with(b"\xff\xd8\xff") && ends(b"\xff\xd9") {
        Some("a JPEG picture")
    } else {
        None
    }
}

/// What stands between two texts: its dense parts, and its tables.
fn gap(bytes: &[u8]) -> Vec<(Range<usize>, RegionKind)> {
    if bytes.len() < SHORTEST_REGION {
        return Vec::new();
    }
    if let Some(form) = file_of(bytes, 16) {
        return vec![(0..bytes.len(), RegionKind::File(form))];
    }
    let kinds: Vec<Option<RegionKind>> = bytes
        .chunks(BLOCK)
        .map(|block| {
            let is_empty = block.iter().all(|byte| *byte == 0);
            // A short block has fewer bits.
            let is_dense = block.len() * 2 > BLOCK && entropy(block) > DENSE_BITS;
            (!is_empty).then_some(if is_dense { RegionKind::Dense } else { RegionKind::Numbers })
        })
        .collect();
    let mut found = Vec::new();
    let mut block = 0;
    for group in kinds.chunk_by(|a, b| a == b) {
        let range = block * BLOCK..((block + group.len()) * BLOCK).min(bytes.len());
        block += group.len();
        let Some(Some(kind)) = group.first().copied() else { continue };
        let least = if kind == RegionKind::Dense { SHORTEST_REGION } else { SHORTEST_TABLE };
        if range.len() >= least {
            found.push((range, kind));
        }
    }
    found
}

/// Shannon's entropy of bytes, in bits a byte.
fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in bytes {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count += 1;
        }
    }
    let all = bytes.len().max(1) as f64;
    let bits = |count: &u32| {
        let part = f64::from(*count) / all;
        if *count == 0 { 0.0 } else { -part * part.log2() }
    };
    counts.iter().map(bits).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes as dense as encrypted ones, of no cryptographic worth.
    fn dense(count: usize) -> Vec<u8> {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        (0..count).map(|_| next()).collect()
    }

    fn kinds(data: &[u8]) -> Vec<(RegionKind, usize)> {
        regions(data, &texts(data)).into_iter().map(|region| (region.kind, region.bytes)).collect()
    }

    #[test]
    fn texts_stand_where_they_are_in_both_encodings() {
        let wide: Vec<u8> = "Read the notes of all.".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let data = ["\0\x01Grüße an alle Leser\0\0\x03".as_bytes(), &wide, b"\0\0short\0"].concat();
        let found: Vec<_> = texts(&data).into_iter().map(|text| (text.offset, text.text)).collect();
        let (narrow, wide) = ("Grüße an alle Leser".to_owned(), "Read the notes of all.".to_owned());
        assert_eq!(found, [(2, narrow), (26, wide)]);
    }

    #[test]
    fn dense_bytes_encoded_texts_and_tables_are_told_apart() {
        let base64 = data_encoding::BASE64.encode(&dense(3000));
        assert_eq!(kinds(base64.as_bytes()), [(RegionKind::Base64, 4000)]);
        let hex = data_encoding::HEXLOWER.encode(&dense(300));
        assert_eq!(kinds(hex.as_bytes()), [(RegionKind::Hex, 600)]);
        let data = [&b"a text of some length that stands before all other bytes\0"[..], &dense(4096)].concat();
        assert_eq!(kinds(&data).iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [RegionKind::Dense]);
        let numbers: Vec<u8> = (0..4000_u32).flat_map(|n| (n * 7).to_le_bytes()).collect();
        assert_eq!(kinds(&numbers), [(RegionKind::Numbers, 16_000)]);
    }

    #[test]
    fn a_file_accounts_for_itself_where_it_ends_as_its_form_says() {
        let mut font = [&b"wOF2\0\x01\0\0"[..], &3000_u32.to_be_bytes(), &dense(2988)].concat();
        let in_base64 = |font: &[u8]| kinds(data_encoding::BASE64.encode(font).as_bytes())[0].0;
        assert_eq!(in_base64(&font), RegionKind::File("a WOFF2 font"));
        font.extend(dense(600));
        assert_eq!(in_base64(&font), RegionKind::Base64, "more follows than the font says");
    }

    #[test]
    fn code_and_prose_are_texts_and_nothing_else() {
        let code = "function add(a,b){return a+b};var longNames=function(){return true&&window.document};".repeat(50);
        let words = "supercalifragilistic".repeat(40);
        for data in [code, words, "ABCDEFGHIJKLMNOPQRSTUVWXYZ".repeat(20), "0 1 2 3 ".repeat(200)] {
            assert!(kinds(data.as_bytes()).is_empty(), "{data}: {:?}", kinds(data.as_bytes()));
        }
    }

    #[test]
    fn any_bytes_are_taken() {
        for data in [&b""[..], b"\0", b"\xff\xfe", &[0; 5000], &dense(511)] {
            regions(data, &texts(data));
        }
    }
}
