//! Renders an audit as one page of HTML without other files, scripts or network, to go with a ticket.
//!
//! Data from the component is text only: it is escaped, and has no control characters.

use std::collections::BTreeSet;

use guild_audit::{
    Audit, Change, Difference, Finding, Severity,
    flows::Flow,
    model::{Export, ExportState, Identity, Import, ImportState, RequestState},
};
use maud::{Markup, html};

use super::{counted, rows};
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
section.critical { border-left-color: var(--high); } .critical > .tag { color: var(--high); text-transform: uppercase; }
.lead { font-size: 1.1rem; } ul.boxes { list-style: none; padding: 0; }
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
        @if let Some(reach) = &audit.reach { p.lead { "It " (safe(reach)) "." } }
        p { "Findings: " strong { (counted(&audit.findings)) } }
        (findings(&audit.findings))
        @if !audit.flows.is_empty() { h2 { "Data flows" } (picture(&audit.flows)) }
        (questions(audit))
        @if !audit.texts.is_empty() { h2 { "Texts that models or people read" } }
        @for text in &audit.texts {
            section.item { p.mono.quiet { (safe(&text.place)) } pre { (harmless(&text.text)) } }
        }
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

/// Sources on the left, sinks on the right, and a line for each flow, coloured by severity.
fn picture(flows: &[Flow]) -> Markup {
    const ROW: usize = 34;
    let sources: BTreeSet<_> = flows.iter().map(|flow| &flow.source).collect();
    let sinks: BTreeSet<_> = flows.iter().map(|flow| &flow.sink).collect();
    let height = ROW * sources.len().max(sinks.len()) + 10;
    let left = |source| 20 + ROW * sources.iter().position(|other| *other == source).unwrap_or_default();
    let right = |sink| 20 + ROW * sinks.iter().position(|other| *other == sink).unwrap_or_default();
    html! {
        svg viewBox=(format!("0 0 900 {height}")) role="img" aria-label="data flows" {
            // The most severe flow is drawn last, above the others.
            @for flow in flows.iter().rev() {
                line class=(flow.severity.map_or("", Severity::as_str))
                    x1="330" y1=(left(&flow.source)) x2="570" y2=(right(&flow.sink)) {
                    title { (safe(&flow.source.to_string())) " " (safe(flow.why.as_deref().unwrap_or("can go there, as with every member of its kind"))) }
                }
            }
            @for source in &sources {
                text x="322" y=(left(source) + 5) text-anchor="end" { (one_line(&source.to_string(), 44)) }
            }
            @for sink in &sinks { text x="578" y=(right(sink) + 5) { (one_line(&sink.to_string(), 44)) } }
        }
    }
}

/// Questions for a person, each with a box to tick; and a table for guild.toml with only the grants that the member
/// uses.
fn questions(audit: &Audit) -> Markup {
    let open = audit.findings.iter().filter(|finding| finding.severity <= Severity::Medium);
    let questions: Vec<_> = open.map(|finding| (safe(&finding.place), finding.rule.name())).collect();
    html! {
        @if !questions.is_empty() {
            h2 { "Questions" }
            ul.boxes { @for (place, rule) in &questions { li { "☐ " (rule) ": does its purpose need " code { (place) } "?" } } }
        }
        @if let Some(table) = rows::narrowed(audit) { h2 { "Narrower, for guild.toml" } pre { (table) } }
    }
}

/// Hosts, packed data, and the other files in the directory.
fn evidence(audit: &Audit) -> Markup {
    html! {
        @if !audit.hosts.is_empty() {
            h2 { "Hosts in its texts and its data" }
            table {
                tr { th { "host" } th { "manifest" } th { "where" } th { "" } }
                @for host in &audit.hosts { tr {
                    td.mono { (safe(&host.shown)) }
                    td class=(if host.asked { "good" } else { "medium" }) { (if host.asked { "asked for" } else { "not asked for" }) }
                    td { (safe(&host.place)) }
                    td { (safe(host.open.as_deref().unwrap_or_default())) }
                } }
            }
        }
        @if !audit.packed.is_empty() {
            h2 { "Packed into its data or its texts" }
            table { @for block in &audit.packed { tr {
                td { (safe(&block.what)) } td.mono { (block.steps.join(", ")) } td.number { (count(block.bytes)) " bytes" }
                td { (safe(&block.place)) } td.mono { (safe(&block.preview)) }
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
            pre { @for line in difference.changes.iter().flat_map(Change::lines) {
                span class=(if line.starts_with('-') { "gone" } else { "new" }) { (line) } "\n"
            } }
        }
        @if !difference.new_findings.is_empty() { h2 { "New findings" } (findings(&difference.new_findings)) }
        @if !difference.gone_findings.is_empty() { h2 { "Gone findings" } (findings(&difference.gone_findings)) }
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

fn findings(findings: &[Finding]) -> Markup {
    html! {
        @if findings.is_empty() { p { "None." } }
        @for finding in findings {
            section class=(format!("item {}", finding.severity.as_str())) {
                span.tag { (finding.severity.as_str()) } code { (finding.rule.id()) } " " (finding.rule.name())
                p.mono.quiet { (safe(&finding.place)) }
                p { (safe(&finding.text)) }
                @if let Some(accepted) = &finding.accepted { p.quiet { "accepted: " (safe(accepted)) } }
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
        ExportState::Known => Severity::Info,
        ExportState::Extra => Severity::Low,
        ExportState::Missing => Severity::High,
    };
    html! {
        section class=(format!("item {}", class.as_str())) {
            span.tag { (rows::export_state(export.state)) } code { (safe(&export.name)) }
            @if let Some(meaning) = &export.meaning { p { (safe(meaning)) } }
        }
    }
}
