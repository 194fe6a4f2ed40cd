//! Renders an audit for a terminal.

use std::fmt::{Display, Write as _};

use guild_audit::{Audit, Finding, Severity, model::ImportState};

use super::{counted, rows};
use crate::output::{BAD, LABEL, STRONG, count, one_line};

/// The maximum length of lines, for terminals of ordinary width.
const LINE_CHARS: usize = 100;
/// The maximum length of a text from the component.
const MAX_TEXT_CHARS: usize = 300;

/// The first screen: identity, capabilities and findings.
pub(super) fn summary(audit: &Audit) -> String {
    let mut out = Page::default();
    for (label, value) in rows::heading(audit) {
        out.row(label, &value);
    }
    out.title(&format!("Findings: {}", counted(&audit.findings)));
    let shown: Vec<_> = audit.findings.iter().filter(|finding| finding.severity < Severity::Info).cloned().collect();
    findings(&mut out, &shown);
    if audit.is_readable() {
        let texts = match audit.texts.len() {
            0 => "No text".to_owned(),
            1 => "One text".to_owned(),
            texts => format!("{texts} texts"),
        };
        let _ = writeln!(
            out.text,
            "\n{texts} for models or people, {} imports, and findings for information: --all shows them.",
            count(audit.imports_total)
        );
        let offers_tools = audit.exports.iter().any(|export| export.name.contains("/toolbox@"));
        if offers_tools && !audit.texts.iter().any(|text| text.place.starts_with("tool ")) {
            out.text.push_str(
                "The texts of its tools were read from its data; --list-tools asks the component for them.\n",
            );
        }
    }
    out.text
}

/// The whole audit.
pub(super) fn audit(audit: &Audit) -> String {
    let mut out = Page::default();
    for (label, value) in rows::identity(audit) {
        out.row(label, &value);
    }
    out.title(&format!("Findings: {}", counted(&audit.findings)));
    findings(&mut out, &audit.findings);
    if !audit.is_readable() {
        return out.text;
    }
    evidence(&mut out, audit);
    if !audit.requested.is_empty() {
        out.title("Requested in the manifest");
        for request in &audit.requested {
            out.item(
                rows::request_state(request),
                &format!("{}, used by {}", request.grant, rows::users(request)),
                false,
            );
        }
    }
    out.title(&format!("Imports: {}", count(audit.imports_total)));
    for import in &audit.imports {
        imported(&mut out, import);
    }
    out.title("Exports");
    for export in &audit.exports {
        let is_bad = export.state == guild_audit::model::ExportState::Missing;
        out.item(rows::export_state(export.state), &export.name, is_bad);
        if let Some(meaning) = &export.meaning {
            out.wrapped(14, meaning);
        }
    }
    let sessions = rows::sessions(audit);
    if !sessions.is_empty() {
        out.title("Sessions");
        for (label, value) in sessions {
            out.row(label, &value);
        }
    }
    out.title("Limits");
    for limit in &audit.limits {
        let default = rows::number(&limit.default);
        let default = if limit.value == limit.default { String::new() } else { format!("  (default {default})") };
        out.line(format_args!("{:<24} {:>13}{default}", limit.name, rows::number(&limit.value)));
    }
    out.title("Sections");
    for section in &audit.contents.sections {
        let times = if section.count > 1 { format!("  ({} of them)", count(section.count)) } else { String::new() };
        let name = one_line(&section.name, 40);
        out.line(format_args!("{name:<40} {:>13} bytes{times}", count(section.bytes)));
    }
    if !audit.contents.host_paths.is_empty() {
        out.title("Paths of the build machine");
        for path in &audit.contents.host_paths {
            out.line(format_args!("{}  in {}", one_line(&path.path, 120), one_line(&path.section, 40)));
        }
    }
    out.text
}

/// Flows, texts for models, and the contents of data and directory.
fn evidence(out: &mut Page, audit: &Audit) {
    if !audit.flows.is_empty() {
        out.title("Flows");
        for flow in &audit.flows {
            let severity = flow.severity.map_or("", Severity::as_str);
            out.item(
                severity,
                &format!("{} {}", flow.source, flow.sink),
                flow.severity.is_some_and(|s| s <= Severity::High),
            );
        }
    }
    if !audit.hosts.is_empty() {
        out.title("Hosts in its texts and its data");
        for host in &audit.hosts {
            let asked = if host.asked { "asked for" } else { "not asked" };
            let open = host.open.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            out.item(asked, &format!("{}{open}, in {}", host.shown, host.place), !host.asked && host.open.is_some());
        }
    }
    if !audit.packed.is_empty() {
        out.title("Packed into its data or its texts");
        for block in &audit.packed {
            let steps = if block.steps.is_empty() { "as it is".to_owned() } else { block.steps.join(", ") };
            out.item(&steps, &format!("{}, {} bytes, {}", block.what, count(block.bytes), block.place), false);
            out.wrapped(14, &block.preview);
        }
    }
    if !audit.files.is_empty() {
        out.title("Other files in its directory");
        for file in &audit.files {
            out.item(rows::other_kind(file.kind), &format!("{}, {} bytes", file.path, count(file.bytes)), false);
        }
    }
    for text in &audit.texts {
        out.title(&format!("Text: {}", text.place));
        text.text.lines().for_each(|line| out.wrapped(2, line));
    }
}

/// Findings, each with a remedy.
pub(super) fn findings(out: &mut Page, findings: &[Finding]) {
    for finding in findings {
        let head = format!("{} {}  {}", finding.rule.id(), finding.rule.name(), finding.place);
        out.item(finding.severity.as_str(), &head, finding.severity <= Severity::High);
        out.wrapped(14, &finding.text);
        if let Some(accepted) = &finding.accepted {
            out.wrapped(14, &format!("accepted: {accepted}"));
        }
    }
}

fn imported(out: &mut Page, import: &guild_audit::model::Import) {
    out.item(rows::import_state(import.state), &import.name, rows::is_refused(import.state));
    if let Some(meaning) = &import.meaning {
        out.wrapped(14, meaning);
    }
    for (label, note) in rows::notes(import) {
        out.wrapped(14, &format!("{label}: {note}"));
    }
    // The note that every call traps is written only once.
    if import.state == ImportState::LinkedDenied {
        let names: Vec<_> = import.functions.iter().map(|function| function.name.as_str()).collect();
        out.wrapped(16, &names.join(", "));
        return;
    }
    for function in &import.functions {
        out.wrapped(16, &format!("{}: {}", function.name, rows::does(function)));
    }
}

/// Text that is written line by line. Texts from a component lose their control characters.
#[derive(Default)]
pub(super) struct Page {
    pub(super) text: String,
}

impl Page {
    pub(super) fn line(&mut self, line: impl Display) {
        let _ = writeln!(self.text, "  {line}");
    }

    pub(super) fn title(&mut self, title: &str) {
        let _ = writeln!(self.text, "\n{STRONG}{}{STRONG:#}", one_line(title, MAX_TEXT_CHARS));
    }

    pub(super) fn row(&mut self, label: &str, value: &str) {
        let _ = write!(self.text, "{LABEL}{label:<13}{LABEL:#} ");
        self.flow(14, 14, value);
    }

    /// Writes a state and its subject.
    pub(super) fn item(&mut self, state: &str, what: &str, is_bad: bool) {
        let style = if is_bad { BAD } else { LABEL };
        let _ = write!(self.text, "  {style}{state:<11}{style:#} ");
        self.flow(14, 14, what);
    }

    /// Wraps a text over several lines.
    pub(super) fn wrapped(&mut self, indent: usize, text: &str) {
        self.flow(0, indent, text);
    }

    /// Writes words from column `at`, with further lines indented by `indent`.
    fn flow(&mut self, at: usize, indent: usize, text: &str) {
        let mut column = at;
        for word in one_line(text, 4 * MAX_TEXT_CHARS).split(' ') {
            let width = word.chars().count();
            if column > indent && column + 1 + width > LINE_CHARS {
                self.text.push('\n');
                column = 0;
            }
            if column == 0 {
                self.text.extend(std::iter::repeat_n(' ', indent));
                column = indent;
            } else if column > indent {
                self.text.push(' ');
                column += 1;
            }
            self.text.push_str(word);
            column += width;
        }
        self.text.push('\n');
    }
}
