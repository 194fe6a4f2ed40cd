//! Renders an audit as one page of HTML without other files, scripts or network, to go with a ticket.
//!
//! Data from the component is text only: it is escaped, and has no control characters.

use std::collections::BTreeSet;

use guild_audit::{
    Audit, Change, Difference, Fact,
    flows::Flow,
    model::{Export, ExportState, Identity, Import, ImportState, RequestState, Text},
};
use maud::{Markup, html};

use super::{rows, text::counted};
use crate::output::{count, harmless, html::page, one_line};

/// The maximum length of a text from the component.
const MAX_TEXT_CHARS: usize = 600;

const STYLE: &str = "
:root { --high: var(--bad); --medium: #8a5a00; --low: #0b5cad; --info: var(--quiet); }
@media (prefers-color-scheme: dark) { :root { --medium: #e3b341; --low: #79b8ff; } }
table { width: 100%; border-collapse: collapse; } th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0;
  border-bottom: 1px solid var(--line); } th { color: var(--quiet); font-weight: 500; white-space: nowrap; width: 1%; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.tag { display: inline-block; min-width: 6.5rem; font-weight: 600; }
section.high { border-left-color: var(--high); } .high > .tag, td.high { color: var(--high); }
section.medium { border-left-color: var(--medium); } .medium > .tag, td.medium { color: var(--medium); }
section.low { border-left-color: var(--low); } .low > .tag, td.low { color: var(--low); }
section.info { border-left-color: var(--info); } .info > .tag, td.info { color: var(--info); }
section.good { border-left-color: var(--good); } .good > .tag, td.good { color: var(--good); }
.refused { color: var(--high); font-weight: 600; }
svg { width: 100%; font: 13px system-ui, sans-serif; } svg text { fill: var(--text); }
svg line { stroke: var(--line); stroke-width: 1.5; } svg line.low { stroke: var(--low); }
svg line.medium { stroke: var(--medium); stroke-width: 2; } svg line.high { stroke: var(--high); stroke-width: 3; }
ul { margin: .4rem 0 0; padding-left: 1.2rem; } pre { white-space: pre-wrap; margin: .5rem 0; }
pre .gone { color: var(--high); } pre .new { color: var(--good); }
@media print { :root { --text: #000; --quiet: #333; --line: #999; --ground: #fff; --panel: #fff; --high: #8c0000;
  --medium: #5c3c00; --low: #003a75; --info: #333; --good: #0a4d1c; } body { max-width: none; padding: 0; font-size: 10pt; }
  h2 { break-after: avoid; } tr { break-inside: avoid; } @page { margin: 15mm; } }
";

/// The whole audit.
pub(super) fn audit(audit: &Audit) -> String {
    let identity = &audit.identity;
    let title = identity.member.as_ref().unwrap_or(&identity.file);
    let body = html! {
        @if let Some(since) = &audit.since {
            h2 { "Changed since " (safe(&since.version)) }
            (changes(since.changes.iter()))
        }
        @if !audit.reach.is_empty() { table { @for row in &audit.reach { tr {
            th { (row.label) } td { @for item in &row.items { div { (safe(item)) } } }
        } } } }
        p { "Facts: " strong { (counted(&audit.facts)) } }
        (facts(&audit.facts))
        @if !audit.flows.is_empty() { h2 { "Data flows" } (picture(&audit.flows)) }
        @if let Some(table) = rows::narrowed(audit) { h2 { "Narrower, for guild.toml" } pre { (table) } }
        @if !audit.texts.is_empty() { h2 { "Texts" } }
        @for text in &audit.texts { (laid_out(text)) }
        @if !audit.folded.is_empty() { h2 { "Texts that are not shown" } table { @for folded in &audit.folded { tr {
            td { (safe(&folded.what)) } td.number { (count(folded.count)) } td.number { (count(folded.bytes)) " bytes" }
        } } } }
        (evidence(audit))
        h2 { "Identity" }
        (table(&rows::identity(audit)))
        @if audit.is_readable() {
            @if !audit.requested.is_empty() { h2 { "Requested in the manifest" } (requested(audit)) }
            h2 { "Imports" }
            p.quiet { (count(audit.imports_total)) " of them. The component has no other access." }
            @for import in &audit.imports { (imported(import)) }
            h2 { "Exports" }
            @for export in &audit.exports { (exported(export)) }
            @let sessions = rows::sessions(audit);
            @if !sessions.is_empty() { h2 { "Sessions" } (table(&sessions)) }
            h2 { "Limits" }
            table { @for limit in &audit.limits { tr {
                th.mono { (limit.name) } td.number { (rows::number(&limit.value)) }
                td { @if limit.value != limit.default { span.quiet { "default " (rows::number(&limit.default)) } } }
            } } }
            h2 { "Sections" }
            table { @for section in &audit.contents.sections { tr {
                th.mono { (safe(&section.name)) } td.number { (count(section.bytes)) " bytes" }
                td.quiet { @if section.count > 1 { (count(section.count)) " of them" } }
            } } }
            @if !audit.contents.host_paths.is_empty() {
                h2 { "Paths of the build machine" }
                table { @for path in &audit.contents.host_paths { tr {
                    th.mono { (safe(&path.section)) } td.mono { (safe(&path.path)) }
                } } }
            }
            @if let Some(list) = identity.dependencies.as_ref().filter(|list| !list.packages.is_empty()) {
                h2 { "Listed packages" }
                table { @for package in &list.packages { tr {
                    th.mono { (safe(&package.name)) } td.mono { (safe(&package.version)) }
                    td { (safe(&package.source)) } td.quiet { (safe(&package.kind)) }
                } } }
            }
        }
    };
    page(&format!("Audit of {title}"), STYLE, &body)
}

/// Sources on the left, sinks on the right, and a line for each way: thick for what can reach anybody.
fn picture(flows: &[Flow]) -> Markup {
    const ROW: usize = 34;
    let sources: BTreeSet<_> = flows.iter().flat_map(|flow| &flow.from).collect();
    let height = ROW * sources.len().max(flows.len()) + 10;
    let left = |source| 20 + ROW * sources.iter().position(|other| *other == source).unwrap_or_default();
    let class = |flow: &Flow| match (flow.leaves, &flow.relay) {
        (true, Some(_)) => "high",
        (true, None) => "medium",
        (false, _) => "",
    };
    html! {
        svg viewBox=(format!("0 0 900 {height}")) role="img" aria-label="data flows" {
            // What leaves the machine is drawn last, above the others.
            @for (row, flow) in flows.iter().enumerate().rev() { @for source in &flow.from {
                line class=(class(flow)) x1="330" y1=(left(source)) x2="570" y2=(20 + ROW * row) {
                    title { (safe(&source.to_string())) " to " (safe(&flow.place())) }
                }
            } }
            @for source in &sources {
                text x="322" y=(left(source) + 5) text-anchor="end" { (one_line(&source.to_string(), 44)) }
            }
            @for (row, flow) in flows.iter().enumerate() {
                text x="578" y=(25 + ROW * row) { (one_line(&flow.place(), 44)) title { (safe(&flow.place())) } }
            }
        }
    }
}

/// A text as it is to be read.
fn laid_out(text: &Text) -> Markup {
    html! {
        section.item {
            p.mono.quiet { (safe(&text.place)) ", " (count(text.bytes)) " bytes" }
            @for hidden in &text.hidden { p.refused { (hidden.what) ": " (count(hidden.count)) } }
            pre { (harmless(&text.text)) }
            @if text.left > 0 { p.quiet { (count(text.left)) " more bytes; " code { "guild audit --texts=PLACE" } " shows them" } }
        }
    }
}

/// Hosts and unread bytes of data, and the other files in the directory.
fn evidence(audit: &Audit) -> Markup {
    html! {
        @if !audit.hosts.is_empty() {
            h2 { "Hosts of addresses in its data" }
            table {
                tr { th { "host" } th { "manifest" } th { "where" } th { "" } }
                @for host in &audit.hosts { tr {
                    td.mono { (safe(&host.shown)) }
                    td class=(if host.asked { "good" } else { "medium" }) { (if host.asked { "asked for" } else { "not asked for" }) }
                    td { (safe(&host.place)) }
                    td { (safe(host.relay.as_deref().unwrap_or_default())) }
                } }
            }
        }
        @if !audit.unread.is_empty() {
            h2 { "Bytes that are no text: " (count(audit.unread_total)) " places" }
            table { @for bytes in &audit.unread { tr {
                td.number { (count(bytes.bytes)) } td class=(if bytes.accounted { "" } else { "medium" }) { (bytes.kind) }
                td { (safe(&bytes.place)) } td.number { "entropy " (bytes.entropy) } td.mono { (bytes.begins) }
            } } }
        }
        @if !audit.files.is_empty() {
            h2 { "Other files in its directory" }
            table { @for file in &audit.files { tr {
                td.mono { (safe(&file.path)) } td { (rows::other_kind(file.kind)) } td.number { (count(file.bytes)) " bytes" }
            } } }
        }
    }
}

/// The difference of two audits.
pub(super) fn difference(old: &Identity, new: &Identity, difference: &Difference) -> String {
    let body = html! {
        table {
            tr { th { "old" } td.mono { (safe(&old.file)) } td.mono { (safe(&old.sha256)) } }
            tr { th { "new" } td.mono { (safe(&new.file)) } td.mono { (safe(&new.sha256)) } }
        }
        @if difference.is_empty() { p { "Nothing changed." } }
        @if !difference.changes.is_empty() {
            h2 { "Changes" }
            (changes(difference.changes.iter()))
        }
        @if !difference.new_facts.is_empty() { h2 { "New facts" } (facts(&difference.new_facts)) }
        @if !difference.gone_facts.is_empty() { h2 { "Gone facts" } (facts(&difference.gone_facts)) }
    };
    page(&format!("Changes in {}", new.member.as_ref().unwrap_or(&new.file)), STYLE, &body)
}

/// A text of the component on one line, shortened, without control characters. The template escapes it.
fn safe(text: &str) -> String {
    one_line(text, MAX_TEXT_CHARS)
}

fn table(rows: &[(&str, String)]) -> Markup {
    html! { table { @for (label, value) in rows { tr { th { (label) } td.mono { (safe(value)) } } } } }
}

fn changes<'a>(changes: impl Iterator<Item = &'a Change>) -> Markup {
    html! {
        pre { @for line in changes.flat_map(Change::lines) {
            span class=(if line.starts_with('-') { "gone" } else { "new" }) { (line) } "\n"
        } }
    }
}

fn facts(facts: &[Fact]) -> Markup {
    html! {
        @if facts.is_empty() { p { "None." } }
        @for fact in facts {
            section class=(if fact.refused { "item high" } else { "item info" }) {
                code { (fact.name.as_str()) } @if fact.refused { " " span.refused { "a host refuses it" } }
                p.mono.quiet { (safe(&fact.place)) }
                p { (safe(&fact.text)) }
            }
        }
    }
}

fn requested(audit: &Audit) -> Markup {
    html! {
        table {
            tr { th { "grant" } th { "state" } th { "used by" } th { "why" } }
            @for request in &audit.requested { tr {
                td.mono { (safe(&request.grant)) }
                td class=(match (request.state, request.used_by.is_empty()) {
                    (RequestState::Denied, _) => "info",
                    (_, true) => "medium",
                    _ => "good",
                }) { (rows::request_state(request)) }
                td { (rows::users(request)) }
                td { (safe(request.why.as_deref().unwrap_or_default())) }
            } }
        }
    }
}

fn imported(import: &Import) -> Markup {
    let class = match import.state {
        state if rows::is_refused(state) => "high",
        ImportState::Granted => "good",
        ImportState::NeedsGrant => "low",
        _ => "info",
    };
    html! {
        section class=(format!("item {class}")) {
            span.tag { (rows::import_state(import.state)) } code { (safe(&import.name)) }
            @if let Some(meaning) = &import.meaning { p { (safe(meaning)) } }
            @for (label, note) in rows::notes(import) { p.quiet { (label) ": " (safe(&note)) } }
            @if !import.functions.is_empty() {
                ul { @for function in &import.functions { li {
                    code { (safe(&function.name)) } " " (safe(rows::does(function)))
                } } }
            }
        }
    }
}

fn exported(export: &Export) -> Markup {
    let class = match export.state {
        ExportState::Known => "info",
        ExportState::Extra => "low",
        ExportState::Missing => "high",
    };
    html! {
        section class=(format!("item {class}")) {
            span.tag { (rows::export_state(export.state)) } code { (safe(&export.name)) }
            @if let Some(meaning) = &export.meaning { p { (safe(meaning)) } }
        }
    }
}
