//! Renders an audit: a picture of what can flow where, and the findings.

use guild_contract::{
    host::{AuditSummary, FlowView},
    text::one_line,
};
use maud::{Markup, html};

use crate::parts::{curve, text};

/// The size of a box, and the distance from the boxes on the left to those on the right.
const WIDTH: usize = 270;
const HEIGHT: usize = 26;
const DOWN: usize = 34;
const ACROSS: usize = 450;
/// The edge of the picture.
const MARGIN: usize = 6;
/// The most characters of a name in a box, and boxes of a side.
const NAME_CHARS: usize = 36;
const BOXES: usize = 40;

/// The audit of a member.
pub(crate) fn audit(audit: &AuditSummary) -> Markup {
    html! {
        @if let Some(reach) = &audit.reach { p { "It " (text(reach)) "." } }
        @if !audit.flows.is_empty() {
            (picture(&audit.flows))
            details {
                summary { "As a list" }
                ul { @for flow in &audit.flows { li {
                    (text(&flow.source)) " → " (text(&flow.sink))
                    @if let Some(severity) = &flow.severity { " " (mark(severity)) }
                    @if let Some(why) = &flow.why { " " span.quiet { (text(why)) } }
                } } }
            }
        }
        h3 { "Findings" }
        @if audit.findings.is_empty() { p.quiet { "There are none." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Findings of the audit" { table {
                thead { tr { th scope="col" { "Severity" } th scope="col" { "Rule" } th scope="col" { "Finding" } } }
                tbody { @for finding in &audit.findings { tr {
                    td { (mark(&finding.severity)) }
                    td { code { (text(&finding.rule)) } }
                    td {
                        code { (text(&finding.place)) } " " (text(&finding.text))
                        @if let Some(why) = &finding.accepted { div.quiet { "Accepted: " (text(why)) } }
                    }
                } } }
            } }
        }
    }
}

fn mark(severity: &str) -> Markup {
    html! { span class={ "status " (severity) } { (severity) } }
}

/// Each name once, in the order of its first flow.
fn names<'a>(of: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for name in of {
        if !names.contains(&name) && names.len() < BOXES {
            names.push(name);
        }
    }
    names
}

/// The sources on the left, the places that data can go to on the right, and a line for each flow.
fn picture(flows: &[FlowView]) -> Markup {
    let sources = names(flows.iter().map(|flow| flow.source.as_str()));
    let sinks = names(flows.iter().map(|flow| flow.sink.as_str()));
    let row = |names: &[&str], name: &str| names.iter().position(|other| *other == name).map(|row| MARGIN + row * DOWN);
    // The most severe flow is drawn last, so that it is on top.
    let lines =
        flows.iter().rev().filter_map(|flow| Some((flow, row(&sources, &flow.source)?, row(&sinks, &flow.sink)?)));
    let (width, rows) = (MARGIN + ACROSS + WIDTH + MARGIN, sources.len().max(sinks.len()));
    html! {
        div.scroll tabindex="0" role="region" aria-label="Picture of the flows" {
            svg.graph width=(width) height=(MARGIN + rows * DOWN) role="img" aria-label="what the member reads on the left, and where that can go on the right" {
                @for (flow, from, to) in lines {
                    path class={ "edge " (flow.severity.as_deref().unwrap_or_default()) } d=(curve((MARGIN + WIDTH, from + HEIGHT / 2), (MARGIN + ACROSS, to + HEIGHT / 2), (ACROSS - WIDTH) / 2)) {
                        title { (text(&flow.source)) " → " (text(&flow.sink)) @if let Some(why) = &flow.why { ": it " (text(why)) } }
                    }
                }
                @for (x, names) in [(MARGIN, &sources), (MARGIN + ACROSS, &sinks)] {
                    @for (index, name) in names.iter().enumerate() {
                        @let y = MARGIN + index * DOWN;
                        rect.node x=(x) y=(y) width=(WIDTH) height=(HEIGHT) rx="4" { title { (text(name)) } }
                        text x=(x + 8) y=(y + 17) { (text(&one_line(name, NAME_CHARS))) }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_a_line_of_its_severity_and_hostile_names_are_text() {
        let flow = |source: &str, sink: &str, severity: Option<&str>| FlowView {
            source: source.to_owned(),
            sink: sink.to_owned(),
            severity: severity.map(str::to_owned),
            why: None,
        };
        let flows = vec![
            flow("its memories", "to <script>", Some("high")),
            flow("its memories", "to the report", None),
            flow("what callers hand it", "to the report", None),
        ];
        let html = audit(&AuditSummary { reach: None, flows, findings: Vec::new() }).into_string();
        assert_eq!((html.matches("<path ").count(), html.matches("<rect ").count()), (3, 4), "{html}");
        assert!(html.contains(r#"<path class="edge high" d="M276 19 C366 19 366 19 456 19">"#), "{html}");
        assert!(!html.contains("<script>"), "{html}");
    }
}
