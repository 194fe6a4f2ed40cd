//! Renders an audit: what the member can reach, a picture of what can flow where, and the facts.

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
        @if !audit.reach.is_empty() {
            table { tbody { @for row in &audit.reach { tr {
                th scope="row" { (text(&row.label)) }
                td { @for item in &row.items { div { (text(item)) } } }
            } } } }
        }
        @if !audit.flows.is_empty() {
            (picture(&audit.flows))
            details {
                summary { "As a list" }
                ul { @for flow in &audit.flows { li {
                    (text(&flow.from.join(", "))) " → " (text(&flow.to))
                    @if flow.leaves { " " span class={ "status " (class(flow)) } { "leaves this machine" } }
                } } }
            }
        }
        h3 { "Facts" }
        @if audit.facts.is_empty() { p.quiet { "There are none." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Facts of the audit" { table {
                thead { tr { th scope="col" { "Fact" } th scope="col" { "Place" } th scope="col" { "What it is" } } }
                tbody { @for fact in &audit.facts { tr {
                    td {
                        code { (text(&fact.name)) }
                        @if fact.refused { " " span class="status unusable" { "refused" } }
                    }
                    td { code { (text(&fact.place)) } }
                    td { (text(&fact.text)) }
                } } }
            } }
        }
    }
}

/// The class of a flow in the style sheet: what can reach anybody is `high`, what leaves this machine is `medium`.
fn class(flow: &FlowView) -> &'static str {
    match (flow.leaves, flow.relay) {
        (true, true) => "high",
        (true, false) => "medium",
        (false, _) => "",
    }
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

/// The sources on the left, the places that data can go to on the right, and a line for each way.
fn picture(flows: &[FlowView]) -> Markup {
    let sources = names(flows.iter().flat_map(|flow| flow.from.iter().map(String::as_str)));
    let sinks = names(flows.iter().map(|flow| flow.to.as_str()));
    let row = |names: &[&str], name: &str| names.iter().position(|other| *other == name).map(|row| MARGIN + row * DOWN);
    let ways = flows.iter().rev().flat_map(|flow| flow.from.iter().map(move |from| (flow, from)));
    // What leaves this machine is drawn last, so that it is on top.
    let lines = ways.filter_map(|(flow, from)| Some((flow, from, row(&sources, from)?, row(&sinks, &flow.to)?)));
    let (width, rows) = (MARGIN + ACROSS + WIDTH + MARGIN, sources.len().max(sinks.len()));
    html! {
        div.scroll tabindex="0" role="region" aria-label="Picture of the flows" {
            svg.graph width=(width) height=(MARGIN + rows * DOWN) role="img" aria-label="what the member reads on the left, and where that can go on the right" {
                @for (flow, source, from, to) in lines {
                    path class={ "edge " (class(flow)) } d=(curve((MARGIN + WIDTH, from + HEIGHT / 2), (MARGIN + ACROSS, to + HEIGHT / 2), (ACROSS - WIDTH) / 2)) {
                        title { (text(source)) " → " (text(&flow.to)) }
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
    fn a_flow_is_a_line_from_each_source_and_hostile_names_are_text() {
        let flow = |to: &str, leaves: bool, from: &[&str]| FlowView {
            to: to.to_owned(),
            leaves,
            relay: leaves,
            from: from.iter().map(|from| (*from).to_owned()).collect(),
        };
        let flows = vec![
            flow("<script>", true, &["its own memories"]),
            flow("its report", false, &["its own memories", "what callers hand it"]),
        ];
        let html = audit(&AuditSummary { reach: Vec::new(), flows, facts: Vec::new() }).into_string();
        assert_eq!((html.matches("<path ").count(), html.matches("<rect ").count()), (3, 4), "{html}");
        assert!(html.contains(r#"<path class="edge high" d="M276 19 C366 19 366 19 456 19">"#), "{html}");
        assert!(!html.contains("<script>"), "{html}");
    }
}
