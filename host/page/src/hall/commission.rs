//! Renders a commission: its state, its result, its timeline, its changes, and what can be done with it.

use guild_contract::{
    hall::{
        Author, CommissionDetail, CommissionDiff, CommissionPhase, CommissionStatus, CommissionView, Overrides,
        TimelineEntry,
    },
    text::one_line,
};
use maud::{Markup, html};

use super::{
    artifacts, commission_path, crumbs,
    diff::diff,
    project::{named, state, task},
};
use crate::{
    frame::page,
    markdown,
    parts::{Viewer, csrf, text, time},
};

/// The most characters of an entry of the timeline; a longer one unfolds.
const REASON_CHARS: usize = 160;

/// The data of a commission's page.
#[derive(Debug)]
pub struct CommissionNow {
    /// The answer of `commission/read`.
    pub detail: CommissionDetail,
    /// The answer of `commission/diff`, or the reason that there is none. None before the first attempt, and in the live
    /// view of one under way, where it would be computed at each event.
    pub diff: Option<Result<CommissionDiff, String>>,
    /// The page of the last attempt's job.
    pub job: Option<String>,
}

impl CommissionNow {
    fn commission(&self) -> &CommissionView {
        &self.detail.commission
    }

    fn path(&self) -> String {
        commission_path(&self.commission().project_name, self.commission().id.as_str())
    }
}

/// The whole page.
pub fn commission(viewer: &Viewer, now: &CommissionNow) -> String {
    let commission = now.commission();
    let body = html! {
        (crumbs(&commission.project_name))
        h1 { (text(named(commission))) }
        @match commission.status.phase() {
            CommissionPhase::Waiting | CommissionPhase::Active => {
                div hx-sse:connect={ (now.path()) "?live" } hx-sse:close="done" hx-swap="innerMorph" { (live(viewer, now)) }
            },
            CommissionPhase::Ended | CommissionPhase::Over => (live(viewer, now)),
        }
        @if commission.status.is_active() { (changes("so-far", "Changes so far", now)) }
        (further(viewer, now))
    };
    page(named(commission), Some(viewer), &body)
}

/// The part of the page that changes while the commission runs.
pub fn live(viewer: &Viewer, now: &CommissionNow) -> Markup {
    let commission = now.commission();
    html! {
        section aria-label="State" {
            p role="status" { (state(commission)) " since " (time(&commission.relevant_date)) }
            @for blocker in &commission.blocked_by {
                p { "Waits for " (dependency(commission, &blocker.dependency)) ": " (text(&blocker.why)) }
            }
            @if !commission.current_progress.is_empty() { p.summary { (text(&commission.current_progress)) } }
            (buttons(viewer, now))
        }
        (facts(now))
        @if !commission.result_summary.is_empty() {
            section.report aria-labelledby="result" {
                h2 id="result" { "Result" }
                (markdown::render(&commission.result_summary))
            }
        }
        (artifacts(&commission.project_name, &commission.linked_artifacts))
        section aria-labelledby="timeline" {
            h2 id="timeline" { "Timeline" }
            ol.timeline { @for entry in &now.detail.timeline { (line(entry)) } }
        }
        @if !commission.status.is_active() { (changes("changes", "Changes", now)) }
    }
}

/// The changes of the last attempt.
fn changes(id: &str, heading: &str, now: &CommissionNow) -> Markup {
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (heading) }
            @match &now.diff {
                None => p.quiet { "No attempt has begun." },
                Some(Err(why)) => p.quiet { (text(why)) },
                Some(Ok(changes)) => {
                    p.quiet {
                        @if changes.under_way {
                            "The attempt commits them when it ends. " a href=(now.path()) { "Look again" }
                        } @else {
                            "On the branch " code { (text(&changes.branch)) }
                        }
                    }
                    @if changes.patch.is_empty() { p.quiet { "There are no changes." } } @else { (diff(&changes.patch)) }
                }
            }
        }
    }
}

fn facts(now: &CommissionNow) -> Markup {
    let commission = now.commission();
    let Overrides { model, max_turns, max_budget_usd } = &commission.resource_overrides;
    html! {
        dl {
            dt { "Worker" }
            dd { (text(&commission.worker)) " " span.quiet { (text(&commission.worker_display_title)) } }
            dt { "Created" }
            dd {
                (time(&commission.date))
                @match commission.created_by {
                    Author::User => {},
                    Author::Manager => " by the manager",
                    Author::Worker => " by a worker",
                }
                @if let Some(source) = &commission.source { " " span.quiet { (text(&source.description)) } }
            }
            @if let Some(job) = &now.job {
                dt { "Last attempt" }
                dd { a href=(job) { "Sessions, tokens, cost and log" } }
            }
            @if let Some(model) = model { dt { "Model" } dd { (text(model)) } }
            @if let Some(turns) = max_turns { dt { "Most turns" } dd { (turns) } }
            @if let Some(dollars) = max_budget_usd { dt { "Most dollars" } dd { (dollars) } }
            @if !commission.dependencies.is_empty() {
                dt { "Depends on" }
                dd { ul { @for on in &commission.dependencies { li { (dependency(commission, on)) } } } }
            }
            dt { "Task" }
            dd { pre tabindex="0" { (text(&commission.prompt)) } }
        }
    }
}

/// A dependency: a commission by its id, as a link, or another text.
fn dependency(commission: &CommissionView, dependency: &str) -> Markup {
    html! {
        @if dependency.starts_with("commission-") {
            a href=(commission_path(&commission.project_name, dependency)) { (text(dependency)) }
        } @else {
            code { (text(dependency)) }
        }
    }
}

fn line(entry: &TimelineEntry) -> Markup {
    let short = one_line(&entry.reason, REASON_CHARS);
    let head = html! {
        (time(&entry.timestamp)) " " span.kind { (text(&entry.event)) } " "
        @if let (Some(from), Some(to)) = (&entry.from, &entry.to) { (text(from)) " → " (text(to)) " " }
        (short)
    };
    html! {
        li class=(class(&entry.event)) {
            @if short == entry.reason.trim() { (head) } @else {
                details { summary { (head) } pre tabindex="0" { (text(&entry.reason)) } }
            }
        }
    }
}

/// The class of an event, for its colour.
fn class(event: &str) -> &'static str {
    match event {
        "status_failed" | "not_committed" | "delegation_refused" => "failed",
        "question" | "held_back" => "question",
        _ => "event",
    }
}

/// The operations that need no text.
fn buttons(viewer: &Viewer, now: &CommissionNow) -> Markup {
    let commission = now.commission();
    let buttons: &[(&str, &str)] = match commission.status {
        CommissionStatus::Pending | CommissionStatus::Blocked if commission.queued => &[("cancel", "Cancel")],
        CommissionStatus::Pending | CommissionStatus::Blocked => &[("dispatch", "Dispatch"), ("cancel", "Cancel")],
        CommissionStatus::Dispatched | CommissionStatus::InProgress => &[("cancel", "Cancel")],
        CommissionStatus::Failed | CommissionStatus::Cancelled => &[("redispatch", "Dispatch again")],
        CommissionStatus::Completed | CommissionStatus::Abandoned => return html! {},
    };
    html! {
        form.inline method="post" action=(now.path()) {
            (csrf(viewer))
            @for (action, name) in buttons { button name="do" value=(action) { (name) } " " }
        }
    }
}

/// The operations that need a text. Where the state has changed meanwhile, the operation refuses.
fn further(viewer: &Viewer, now: &CommissionNow) -> Markup {
    let commission = now.commission();
    let waits = !commission.status.is_active() && commission.status.phase() != CommissionPhase::Over;
    html! {
        details {
            summary { "Add a note" }
            form method="post" action=(now.path()) {
                (csrf(viewer))
                p { label for="note" { "Note, for the timeline" } br; textarea id="note" name="text" rows="3" required {} }
                p { button name="do" value="note" { "Add" } }
            }
        }
        @if waits {
            details {
                summary { "Change" }
                form method="post" action=(now.path()) {
                    (csrf(viewer))
                    (task(&commission.prompt, &commission.dependencies))
                    p { button name="do" value="update" { "Save" } }
                }
            }
            details {
                summary { "Abandon" }
                form method="post" action=(now.path()) {
                    (csrf(viewer))
                    p { label for="reason" { "Reason" } br; input.wide id="reason" name="text" required; }
                    p { button name="do" value="abandon" { "Abandon for good" } }
                }
            }
        }
    }
}
