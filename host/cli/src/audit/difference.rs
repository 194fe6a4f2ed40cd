//! Renders the difference of two audits in all formats.

use guild_audit::{Audit, Change, Difference, model::Identity};
use serde::Serialize;

use super::{html, json, sarif, text};
use crate::{args::members::AuditFormat, failure::Failure};

/// The name of the JSON format.
const FORMAT: &str = "guild-audit-difference/2";

/// The output of `--format json`.
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

/// How many lines of each kind of change the first screen shows.
const FIRST_LINES: usize = 8;

pub(super) fn shown(
    old: &Audit,
    new: &Audit,
    difference: &Difference,
    format: AuditFormat,
    all: bool,
) -> Result<String, Failure> {
    let [was, is] = [old, new].map(|audit| &audit.identity);
    match format {
        AuditFormat::Text => Ok(in_text(difference, all)),
        AuditFormat::Json => json(&Written { format: FORMAT, old: Side::of(was), new: Side::of(is), difference }),
        AuditFormat::Html => Ok(html::difference(was, is, difference)),
        AuditFormat::Sarif => json(&sarif::difference(new, difference)),
    }
}

fn in_text(difference: &Difference, all: bool) -> String {
    let mut out = text::Page::default();
    if difference.is_empty() {
        out.text.push_str("nothing changed\n");
    }
    for kind in difference.changes.chunk_by(|a, b| a.subject == b.subject) {
        let lines: Vec<_> = kind.iter().flat_map(Change::lines).collect();
        let most = if all { lines.len() } else { FIRST_LINES };
        for line in lines.iter().take(most) {
            out.text.extend([line, "\n"]);
        }
        let more = lines.len().saturating_sub(most);
        if let Some(Change { subject, .. }) = kind.first().filter(|_| more > 0) {
            out.text.push_str(&format!("  and {more} more of `{subject}`; --all shows them\n"));
        }
    }
    for (title, facts) in [("New facts", &difference.new_facts), ("Gone facts", &difference.gone_facts)] {
        if !facts.is_empty() {
            out.title(&format!("{title}: {}", facts.len()));
            facts.iter().for_each(|fact| out.fact(fact, usize::MAX));
        }
    }
    out.text
}
