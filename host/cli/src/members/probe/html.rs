//! Renders a probe as one page of HTML without other files, scripts or network: the findings, and each run as a
//! timeline.

use guild_probe::{Event, Probe, RunReport};
use maud::{Markup, html};

use crate::output::{self, count, harmless, one_line};

/// Characters of a text of the timeline.
const TEXT_CHARS: usize = 6000;

const STYLE: &str = "
pre { white-space: pre-wrap; margin: .4rem 0; }
section.item { border-left-color: var(--bad); }
.good { color: var(--good); } .bad { color: var(--bad); }
details { border-bottom: 1px solid var(--line); padding: .3rem 0; } summary { cursor: pointer; }
details details { margin-left: 1rem; } td, th { text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top; }
@media print { details > *:not(summary) { display: block; } }
";

/// The page.
pub(super) fn page(probe: &Probe) -> String {
    let title = format!("Probe of {}", probe.member);
    let body = html! {
        p.quiet {
            (probe.runs.len()) " runs in " (format!("{:.1}", probe.seconds)) " s; component "
            code { (probe.component_sha256) }
        }
        (findings("Canaries that crossed a boundary", &probe.canaries, |one| html! {
            p { "From " (one.source) " to " (one.place.shown()) @if !one.encoding.is_empty() { ", as " (one.encoding) } ": " (one.why) }
            p.quiet { (safe(&one.run)) ", step " (one.step) "; " (safe(&one.name)) "; seen " (one.times) "×" }
            pre { (whole(&one.text)) }
        }))
        (findings("Requests that nothing explains", &probe.unexpected_requests, |one| html! {
            p { (one.why) } p.quiet { (safe(&one.run)) "; made " (one.times) "×" } pre { (whole(&one.address)) }
        }))
        (findings("Differences between runs", &probe.differences, |one| html! {
            p { (safe(&one.when)) " in " (one.place.shown()) } p.quiet { (safe(&one.name)) } pre { (whole(&one.text)) }
        }))
        @if !probe.with_project.is_empty() {
            details {
                summary { "Came with a project only" }
                @for one in &probe.with_project { p { (one.place.shown()) " " code { (safe(&one.name)) } } pre { (whole(&one.text)) } }
            }
        }
        (findings("Files of a project that programs run", &probe.planted, |one| html! {
            p { code { (safe(&one.path)) } } p.quiet { (safe(&one.run)) }
        }))
        (findings("Artifacts that do something when they are opened", &probe.active, |one| html! {
            p { (one.what) } p.quiet { (safe(&one.run)) "; " (safe(&one.name)) } pre { (whole(&one.text)) }
        }))
        (findings("Texts for models that stand nowhere in its files", &probe.unknown_texts, |one| html! {
            p { (one.place.shown()) } p.quiet { (safe(&one.run)) "; " (safe(&one.name)) } pre { (whole(&one.text)) }
        }))
        @if !probe.requests.is_empty() {
            h2 { "Distinct requests" }
            table { @for one in &probe.requests { tr {
                td { (count(one.times.into())) } td { code { (safe(&one.address)) } }
                td.quiet { @if !one.own_words.is_empty() { "words that it was not given: " (safe(&one.own_words.join(", "))) } }
            } } }
        }
        h2 { "Given" }
        ul { @for given in &probe.given { li { (safe(given)) } } }
        h2 { "Seen" }
        table { @for seen in &probe.seen { tr {
            td { (count(seen.events as u64)) } td { (seen.place.shown()) } td.quiet { (safe(&seen.names.join(", "))) }
        } } }
        h2 { "Not seen" }
        ul {
            @for name in &probe.coverage.exports_not_called { li { "the exported function " code { (safe(name)) } } }
            @for name in &probe.coverage.tools_not_answered { li { "an answer of the tool " code { (safe(name)) } } }
            @for name in &probe.coverage.imports_not_called { li { "a call of the interface " code { (safe(name)) } } }
            @for name in &probe.coverage.grants_not_seen { li { "any use of the grant " code { (safe(name)) } } }
            @for note in &probe.coverage.notes { li { (safe(note)) } }
            li { "what waits for another day, another caller, or more work than this" }
        }
        h2 { "Timeline" }
        @for run in &probe.runs { (timeline(run)) }
    };
    output::html::page(&title, STYLE, &body)
}

fn findings<T>(title: &str, found: &[T], one: impl Fn(&T) -> Markup) -> Markup {
    html! {
        h2 { (title) ": " @if found.is_empty() { span.good { "none" } } @else { span.bad { (found.len()) } } }
        @for finding in found { section.item { (one(finding)) } }
    }
}

fn timeline(run: &RunReport) -> Markup {
    html! {
        details {
            summary { (safe(&run.name)) span.quiet { " — clocks at " (run.time) ", " (run.events.len()) " events" } }
            @for event in &run.events { (seen(event)) }
        }
    }
}

fn seen(event: &Event) -> Markup {
    html! {
        details {
            summary { "step " (event.step) ": " (event.place.shown()) " " code { (one_line(&event.name, 80)) } }
            pre { (whole(&event.text)) }
        }
    }
}

/// A text of the member on one line, without control characters. The template escapes it.
fn safe(text: &str) -> String {
    one_line(text, 400)
}

/// A text of the member, or its beginning with a mark that says how much is left.
fn whole(text: &str) -> String {
    let shown: String = text.chars().take(TEXT_CHARS).collect();
    let left = text.chars().count().saturating_sub(TEXT_CHARS);
    let mark = if left > 0 { format!("\n… {left} more characters; --json has them") } else { String::new() };
    harmless(&shown).into_owned() + &mark
}
