//! Unpacks archives of the form ZIP, which office documents have, so that their texts are looked through.

use std::io::Read as _;

use flate2::read::DeflateDecoder;

/// The beginning of a file in an archive.
const FILE: &[u8; 4] = b"PK\x03\x04";
/// Files of an archive that are unpacked.
const FILES: usize = 64;
/// Bytes of all of them.
const BYTES: u64 = 256 << 10;

/// The texts of an archive, each after its name; none for other bytes.
pub(crate) fn texts(bytes: &[u8]) -> Option<String> {
    if !bytes.starts_with(FILE) {
        return None;
    }
    let (mut texts, mut left) = (String::new(), BYTES);
    for at in memchr::memmem::find_iter(bytes, FILE).take(FILES) {
        let header = bytes.get(at..).unwrap_or_default();
        let Some((name, content)) = file(header, left) else { continue };
        left = left.saturating_sub(content.len() as u64);
        texts.push_str(&format!("{name}\n{}\n", String::from_utf8_lossy(&content)));
    }
    Some(texts)
}

/// The name and the content of a file that begins here.
fn file(header: &[u8], most: u64) -> Option<(String, Vec<u8>)> {
    let number = |at: usize| Some(usize::from(u16::from_le_bytes(*header.get(at..)?.first_chunk()?)));
    let (method, name, extra) = (number(8)?, number(26)?, number(28)?);
    let size = u32::from_le_bytes(*header.get(18..)?.first_chunk()?);
    let name = String::from_utf8_lossy(header.get(30..30 + name)?).into_owned();
    let packed = header.get(30 + name.len() + extra..)?;
    let mut content = Vec::new();
    match method {
        0 => content.extend(packed.iter().take(usize::try_from(u64::from(size).min(most)).ok()?)),
        // What can be read counts, also of a file that is damaged further on.
        8 => drop(DeflateDecoder::new(packed).take(most).read_to_end(&mut content)),
        _ => return None,
    }
    Some((name, content))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::DeflateEncoder};

    use super::*;

    #[test]
    fn the_texts_of_an_archive_are_unpacked() {
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
        packed.write_all(b"<c><f>WEBSERVICE(A1)</f></c>").unwrap();
        let packed = packed.finish().unwrap();
        let file = |name: &str, method: u8, content: &[u8]| {
            let mut file = FILE.to_vec();
            file.extend([20, 0, 0, 0, method, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            file.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
            file.extend([0; 4]);
            file.extend([u8::try_from(name.len()).unwrap(), 0, 0, 0]);
            file.extend(name.as_bytes());
            file.extend(content);
            file
        };
        let archive = [file("xl/sheet1.xml", 8, &packed), file("a.txt", 0, b"plain")].concat();
        assert_eq!(texts(&archive).unwrap(), "xl/sheet1.xml\n<c><f>WEBSERVICE(A1)</f></c>\na.txt\nplain\n");
        assert_eq!(texts(b"plain"), None);
        assert!(texts(b"PK\x03\x04").is_some());
    }
}
