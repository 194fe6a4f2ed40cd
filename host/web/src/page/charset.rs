//! Which characters the bytes of a page are: by its byte order mark, else by the content type, else by what the page
//! itself says at its beginning, else UTF-8 where it is that, else windows-1252, as browsers do.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// A page says its encoding within so many bytes, or not at all; the number is the HTML standard's.
const PRESCAN_BYTES: usize = 1024;

/// The text of a page. What is no character of its encoding becomes U+FFFD.
pub(super) fn decode<'a>(body: &'a [u8], content_type: Option<&str>) -> Cow<'a, str> {
    // `decode` looks for the byte order mark, which wins over what it is given.
    let fallback = || if std::str::from_utf8(body).is_ok() { UTF_8 } else { WINDOWS_1252 };
    let encoding =
        content_type.and_then(declared_by_header).or_else(|| declared_by_page(body)).unwrap_or_else(fallback);
    encoding.decode(body).0
}

/// `charset` of a content type.
fn declared_by_header(content_type: &str) -> Option<&'static Encoding> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim().trim_matches(['"', '\'']);
        name.trim().eq_ignore_ascii_case("charset").then(|| Encoding::for_label(value.as_bytes())).flatten()
    })
}

/// `charset` of a `meta` element, or `encoding` of an XML declaration.
fn declared_by_page(body: &[u8]) -> Option<&'static Encoding> {
    let start = body.get(..PRESCAN_BYTES).unwrap_or(body);
    let start: String = start.iter().map(|byte| char::from(*byte).to_ascii_lowercase()).collect();
    let in_xml = start.strip_prefix("<?xml").and_then(|rest| value_of(rest.split("?>").next()?, "encoding"));
    let in_meta = || start.split("<meta").skip(1).find_map(|rest| value_of(rest.split('>').next()?, "charset"));
    let encoding = Encoding::for_label(in_xml.or_else(in_meta)?.as_bytes())?;
    // A page that says it in bytes of ASCII is not in UTF-16.
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
    fn the_encoding_is_found_in_the_order_of_browsers() {
        for (body, content_type, expected) in [
            (&b"caf\xe9"[..], Some("text/html; charset=iso-8859-1"), "café"),
            (b"caf\xe9", Some("text/html; Charset=\"ISO-8859-1\"; x"), "café"),
            (b"\xef\xbb\xbfcaf\xc3\xa9", Some("text/html; charset=iso-8859-1"), "café"),
            (b"\xff\xfec\x00a\x00f\x00\xe9\x00", None, "café"),
            (b"<meta charset=windows-1251>\xef\xf0\xe8\xe2\xe5\xf2", None, "<meta charset=windows-1251>привет"),
            (b"<META  CHARSET='shift_jis'>\x93\xfa\x96{", None, "<META  CHARSET='shift_jis'>日本"),
            (
                b"<meta http-equiv=x content=\"text/html; charset=gbk\">\xc4\xe3",
                None,
                "<meta http-equiv=x content=\"text/html; charset=gbk\">你",
            ),
            (b"<?xml version='1.0' encoding='koi8-r'?>\xd0", None, "<?xml version='1.0' encoding='koi8-r'?>п"),
            (b"<meta charset=utf-16>caf\xc3\xa9", None, "<meta charset=utf-16>café"),
            (b"caf\xc3\xa9", None, "café"),
            (b"caf\xe9", None, "café"),
            (b"caf\xe9", Some("text/plain; charset=no-such"), "café"),
            (b"caf\xe9!", Some("text/plain; charset=utf-8"), "caf\u{fffd}!"),
        ] {
            assert_eq!(decode(body, content_type), expected);
        }
    }
}
