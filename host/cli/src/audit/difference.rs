//! What changed from one audit to another, in all formats.

use guild_audit::{Audit, Change, Difference, model::Identity};
use serde::Serialize;

use super::{counted, html, json, sarif, text};
use crate::{args::AuditFormat, failure::Failure};

/// The name of the JSON's form.
const FORMAT: &str = "guild-audit-difference/1";

/// What `--format json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    format: &'static str,
    old: Side<'a>,
    new: Side<'a>,
    #[serde(flatten)]
    difference: &'a Difference,
}

#[derive(Serialize)]
struct Side<'a> {
    file: &'a str,
    sha256: &'a str,
}

impl<'a> Side<'a> {
    fn of(Identity { file, sha256, .. }: &'a Identity) -> Self {
        Self { file, sha256 }
    }
}

pub(super) fn shown(old: &Audit, new: &Audit, difference: &Difference, format: AuditFormat) -> Result<String, Failure> {
    let [was, is] = [old, new].map(|audit| &audit.identity);
    match format {
        AuditFormat::Text => Ok(in_text(difference)),
        AuditFormat::Json => json(&Written { format: FORMAT, old: Side::of(was), new: Side::of(is), difference }),
        AuditFormat::Html => Ok(html::difference(was, is, difference)),
        AuditFormat::Sarif => json(&sarif::difference(new, difference)),
    }
}

fn in_text(difference: &Difference) -> String {
    let mut out = text::Page::default();
    if difference.is_empty() {
        out.text.push_str("nothing changed\n");
    }
    for line in difference.changes.iter().flat_map(Change::lines) {
        out.text.extend([&line, "\n"]);
    }
    for (title, findings) in [("New findings", &difference.new_findings), ("Gone findings", &difference.gone_findings)]
    {
        if !findings.is_empty() {
            out.title(&format!("{title}: {}", counted(findings)));
            text::findings(&mut out, findings);
        }
    }
    out.text
}
