//! Renders a probe for a terminal, on one screen: what was found, in order of reach, and what was seen.

use std::fmt::Write as _;

use guild_probe::{Difference, Place, Probe};

use crate::output::{BAD, LABEL, STRONG, count, one_line};

/// Findings of a kind that the screen has; further ones are counted.
const SHOWN: usize = 5;
/// Characters of a line.
const LINE_CHARS: usize = 100;
/// Lines of a text.
const LINES: usize = 4;

/// The screen.
pub(super) fn screen(probe: &Probe) -> String {
    let mut out = String::new();
    let (runs, seconds) = (probe.runs.len(), probe.seconds);
    let model = if probe.obedient { ", with an obedient model" } else { "" };
    line(
        &mut out,
        &format!("{STRONG}{}{STRONG:#} probed in {runs} runs, {seconds:.1} s{model}", one_line(&probe.member, 60)),
    );
    line(&mut out, &format!("{LABEL}component{LABEL:#} {}", probe.component_sha256.get(..16).unwrap_or_default()));

    section(&mut out, "Canaries that crossed a boundary", probe.canaries.len());
    for one in probe.canaries.iter().take(SHOWN) {
        let encoding = if one.encoding.is_empty() { String::new() } else { format!(", as {}", one.encoding) };
        let times = if one.times > 1 { format!(" ({} times)", count(one.times.into())) } else { String::new() };
        finding(
            &mut out,
            &format!("from {} to {}{encoding}{times}: {}", one.source, one.place.shown(), one.why),
            &format!("{}, step {}; {}", one.run, one.step, one.name),
            &one.text,
        );
    }
    more(&mut out, probe.canaries.len());

    section(&mut out, "Requests that nothing explains", probe.unexpected_requests.len());
    for one in probe.unexpected_requests.iter().take(SHOWN) {
        finding(&mut out, &one.why, &one.run, &one.address);
    }
    more(&mut out, probe.unexpected_requests.len());

    section(&mut out, "Differences between runs", probe.differences.len());
    for one in probe.differences.iter().take(SHOWN) {
        finding(&mut out, &format!("{} in {}", one.when, one.place.shown()), &one.name, &one.text);
    }
    more(&mut out, probe.differences.len());

    if !probe.with_project.is_empty() {
        let lines = |one: &Difference| format!("{} of {}", count(one.text.lines().count() as u64), one.place.shown());
        let places = probe.with_project.iter().map(lines).collect::<Vec<_>>().join(", ");
        let places = one_line(&places, LINE_CHARS);
        line(&mut out, &format!("  {LABEL}lines that came with a project only: {places}; --html has them{LABEL:#}"));
    }

    section(&mut out, "Files of a project that programs run", probe.planted.len());
    for one in probe.planted.iter().take(SHOWN) {
        finding(&mut out, &one.path, &one.run, "");
    }
    more(&mut out, probe.planted.len());

    section(&mut out, "Artifacts that do something when they are opened", probe.active.len());
    for one in probe.active.iter().take(SHOWN) {
        finding(&mut out, &one.what, &format!("{}; {}", one.run, one.name), &one.text);
    }
    more(&mut out, probe.active.len());

    section(&mut out, "Texts for models that stand nowhere in its files", probe.unknown_texts.len());
    for one in probe.unknown_texts.iter().take(SHOWN) {
        finding(&mut out, one.place.shown(), &format!("{}; {}", one.run, one.name), &one.text);
    }
    more(&mut out, probe.unknown_texts.len());

    if !probe.requests.is_empty() {
        line(&mut out, &format!("\n{STRONG}Requests: {} distinct{STRONG:#}", count(probe.requests.len() as u64)));
        for one in probe.requests.iter().take(SHOWN) {
            line(&mut out, &format!("  {:>6}  {}", count(one.times.into()), one_line(&one.address, 2 * LINE_CHARS)));
            if !one.own_words.is_empty() {
                let words = one_line(&one.own_words.join(", "), LINE_CHARS);
                line(&mut out, &format!("          {LABEL}words that it was not given: {words}{LABEL:#}"));
            }
        }
        more(&mut out, probe.requests.len());
    }

    line(&mut out, &format!("\n{STRONG}Given{STRONG:#}"));
    for given in &probe.given {
        line(&mut out, &format!("  {}", one_line(given, LINE_CHARS)));
    }
    line(&mut out, &format!("\n{STRONG}Seen{STRONG:#}"));
    for seen in &probe.seen {
        let names = match seen.place {
            Place::Prompt | Place::SystemPrompt | Place::Commit | Place::PullRequest => String::new(),
            _ => format!("  {}", one_line(&seen.names.join(", "), 60)),
        };
        line(&mut out, &format!("  {:>6}  {}{LABEL}{names}{LABEL:#}", count(seen.events as u64), seen.place.shown()));
    }
    let coverage = &probe.coverage;
    line(&mut out, &format!("\n{STRONG}Not seen{STRONG:#}"));
    let lists = [
        ("exported functions never called", &coverage.exports_not_called),
        ("tools that never answered", &coverage.tools_not_answered),
        ("interfaces that it imports and never called", &coverage.imports_not_called),
        ("grants that were never used", &coverage.grants_not_seen),
    ];
    for (label, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
        line(&mut out, &format!("  {label}: {}", one_line(&names.join(", "), LINE_CHARS)));
    }
    for note in &coverage.notes {
        line(&mut out, &format!("  {}", one_line(note, 2 * LINE_CHARS)));
    }
    line(&mut out, "  what waits for another day, another caller or more work than this; --html has the timeline");
    out
}

fn section(out: &mut String, title: &str, number: usize) {
    match number {
        0 => line(out, &format!("\n{STRONG}{title}:{STRONG:#} none")),
        _ => line(out, &format!("\n{BAD}{title}: {}{BAD:#}", count(number as u64))),
    }
}

fn finding(out: &mut String, what: &str, place: &str, text: &str) {
    line(out, &format!("  {}", one_line(what, 2 * LINE_CHARS)));
    line(out, &format!("    {LABEL}{}{LABEL:#}", one_line(place, LINE_CHARS)));
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let all = lines.clone().count();
    for text in lines.take(LINES) {
        line(out, &format!("    | {}", one_line(text, 2 * LINE_CHARS)));
    }
    if all > LINES {
        line(out, &format!("    | … {} more lines; --html and --json have them", all - LINES));
    }
}

fn more(out: &mut String, number: usize) {
    if number > SHOWN {
        line(out, &format!("  … and {} more; --html and --json have them", number - SHOWN));
    }
}

fn line(out: &mut String, text: &str) {
    let _ = writeln!(out, "{text}");
}
