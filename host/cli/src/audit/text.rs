//! Renders an audit for a terminal.

use std::fmt::{Display, Write as _};

use guild_audit::{
    Audit, Change, Fact,
    model::{ImportState, Text, TextKind, UnreadBytes},
};

use super::rows;
use crate::output::{BAD, LABEL, STRONG, count, harmless, one_line};

/// The maximum length of lines, for terminals of ordinary width.
const LINE_CHARS: usize = 100;
/// The maximum length of a text from the component.
const MAX_TEXT_CHARS: usize = 300;
/// The maximum length of a row or a fact on the first screen.
const SCREEN_CHARS: usize = 270;
/// How many changes since the trusted version the first screen shows.
const CHANGES: usize = 12;
/// How many facts the first screen shows.
const FACTS: usize = 14;

/// The first screen: what it is, what it can reach, and the facts.
pub(super) fn summary(audit: &Audit) -> String {
    let mut out = Page::default();
    if let Some(since) = &audit.since {
        let lines: Vec<_> = since.changes.iter().flat_map(Change::lines).collect();
        out.title(&format!("Changed since {}", since.version));
        lines.iter().take(CHANGES).for_each(|line| out.line(one_line(line, MAX_TEXT_CHARS)));
        if lines.len() > CHANGES {
            out.line(format_args!("and {} more; --all shows them", lines.len() - CHANGES));
        }
        out.text.push('\n');
    }
    for (label, value) in rows::heading(audit) {
        out.row(label, &one_line(&value, SCREEN_CHARS));
    }
    for row in &audit.reach {
        out.row(&row.label, &one_line(&row.items.join("; "), 2 * SCREEN_CHARS));
    }
    out.title(&format!("Facts: {}", counted(&audit.facts)));
    for fact in audit.facts.iter().take(FACTS) {
        out.fact(fact, SCREEN_CHARS);
    }
    if audit.facts.len() > FACTS {
        out.line(format_args!("and {} more; --all shows them", audit.facts.len() - FACTS));
    }
    if audit.is_readable() {
        out.text.push('\n');
        out.wrapped(0, &format!("{}. --texts lays them out for reading, --all shows the rest.", read(audit)));
        let offers_tools = audit.exports.iter().any(|export| export.name.contains("/toolbox@"));
        if offers_tools && !audit.texts.iter().any(|text| text.kind == TextKind::Tool) {
            out.text.push_str("--list-tools asks the component for the texts of its tools.\n");
        }
    }
    out.text
}

/// The number of facts, and of those for which a host refuses the member.
pub(super) fn counted(facts: &[Fact]) -> String {
    let refused = facts.iter().filter(|fact| fact.refused).count();
    match (facts.len(), refused) {
        (0, _) => "none".to_owned(),
        (all, 0) => format!("{all}; a host would load it"),
        (all, _) => format!("{all}; a host refuses it for {refused} of them"),
    }
}

/// What there is to be read, in a sentence.
fn read(audit: &Audit) -> String {
    let (data, declared): (Vec<_>, Vec<_>) = audit.texts.iter().partition(|text| text.kind == TextKind::Data);
    let bytes = |texts: &[&Text]| count(texts.iter().map(|text| text.bytes).sum());
    format!(
        "Texts: {} declared ({} bytes), {} in its data ({} bytes); places of bytes that are no text: {}",
        declared.len(),
        bytes(&declared),
        data.len(),
        bytes(&data),
        count(audit.unread_total)
    )
}

/// The whole audit, without the texts.
pub(super) fn audit(audit: &Audit) -> String {
    let mut out = Page::default();
    if let Some(since) = &audit.since {
        out.title(&format!("Changed since {}", since.version));
        since.changes.iter().flat_map(Change::lines).for_each(|line| out.line(line));
        out.text.push('\n');
    }
    for (label, value) in rows::identity(audit) {
        out.row(label, &value);
    }
    out.title(&format!("Facts: {}", counted(&audit.facts)));
    audit.facts.iter().for_each(|fact| out.fact(fact, 4 * MAX_TEXT_CHARS));
    if !audit.is_readable() {
        return out.text;
    }
    if !audit.flows.is_empty() {
        out.title("Flows");
        for flow in &audit.flows {
            let from: Vec<_> = flow.from.iter().map(ToString::to_string).collect();
            out.item(
                if flow.leaves { "leaves" } else { "stays" },
                &format!("to {}", flow.place()),
                flow.relay.is_some(),
            );
            out.wrapped(14, &format!("from {}", from.join(", ")));
        }
    }
    evidence(&mut out, audit);
    if !audit.requested.is_empty() {
        out.title("Requested in the manifest");
        for request in &audit.requested {
            let users = format!("{}, used by {}", request.grant, rows::users(request));
            out.item(rows::request_state(request), &users, false);
            if let Some(why) = &request.why {
                out.wrapped(14, why);
            }
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

/// All texts, for reading, and what of its data is no text.
pub(super) fn texts(audit: &Audit, whole: &str) -> String {
    let mut out = Page::default();
    for text in audit.texts.iter().filter(|text| Text::is_at(&text.place, whole)) {
        out.title(&format!("{}: {} bytes", text.place, count(text.bytes)));
        for hidden in &text.hidden {
            let _ = writeln!(out.text, "{BAD}[{}: {}]{BAD:#}", hidden.what, count(hidden.count));
        }
        for line in text.text.split('\n') {
            // No line is the component's alone.
            let _ = writeln!(out.text, "{LABEL}|{LABEL:#} {}", harmless(line));
        }
        if text.left > 0 {
            let place = one_line(&text.place, 80);
            let _ =
                writeln!(out.text, "{STRONG}[{} more bytes: --texts='{place}' shows them]{STRONG:#}", count(text.left));
        }
    }
    if whole.is_empty() {
        if !audit.folded.is_empty() {
            out.title("Not shown; --texts=data shows all of it");
            for folded in &audit.folded {
                let what = one_line(&folded.what, MAX_TEXT_CHARS);
                out.line(format_args!("{what}: {} ({} bytes)", count(folded.count), count(folded.bytes)));
            }
        }
        unread(&mut out, audit);
    }
    if out.text.is_empty() {
        out.text.push_str("no text stands at such a place\n");
    }
    out.text
}

fn unread(out: &mut Page, audit: &Audit) {
    if !audit.unread.is_empty() {
        out.title(&format!("Bytes that are no text: {} places", count(audit.unread_total)));
        for UnreadBytes { place, bytes, kind, entropy, begins, accounted } in &audit.unread {
            let line = format!("{kind} at {place}, entropy {entropy:.2}, begins {begins}");
            out.item(&count(*bytes), &line, !accounted);
        }
    }
}

/// The hosts in data, and the other files of the directory.
fn evidence(out: &mut Page, audit: &Audit) {
    if !audit.hosts.is_empty() {
        out.title("Hosts of addresses in its data");
        for host in &audit.hosts {
            let asked = if host.asked { "asked for" } else { "not asked" };
            let relay = host.relay.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            out.item(asked, &format!("{}{relay}, in {}", host.shown, host.place), !host.asked && host.relay.is_some());
        }
    }
    unread(out, audit);
    if !audit.files.is_empty() {
        out.title("Other files in its directory");
        for file in &audit.files {
            out.item(rows::other_kind(file.kind), &format!("{}, {} bytes", file.path, count(file.bytes)), false);
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
        self.words(14, 14, value);
    }

    /// Writes a state and its subject.
    pub(super) fn item(&mut self, state: &str, what: &str, is_bad: bool) {
        let style = if is_bad { BAD } else { LABEL };
        let _ = write!(self.text, "  {style}{state:<11}{style:#} ");
        self.words(14, 14, what);
    }

    /// Writes a fact: its name, its place, and what it is.
    pub(super) fn fact(&mut self, fact: &Fact, chars: usize) {
        let refused = if fact.refused { ", refused" } else { "" };
        let name = format!("{}{refused}", fact.name.as_str());
        let style = if fact.refused { BAD } else { STRONG };
        let _ = writeln!(self.text, "  {style}{name}{style:#}  {}", one_line(&fact.place, MAX_TEXT_CHARS));
        self.wrapped(6, &one_line(&fact.text, chars));
    }

    /// Wraps a text over several lines.
    pub(super) fn wrapped(&mut self, indent: usize, text: &str) {
        self.words(0, indent, text);
    }

    /// Writes words from column `at`, with further lines indented by `indent`.
    fn words(&mut self, at: usize, indent: usize, text: &str) {
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
