//! Renders a project: a board of its commissions, the graph of their dependencies, and its meetings.

use guild_contract::{
    hall::{
        Author, CommissionList, CommissionStatus, CommissionView, Graph, MeetingList, ProjectView, WorkerList, label,
    },
    text::one_line,
};
use maud::{Markup, html};

use super::{commission_path, commission_status, graph::graph, meeting_path, meeting_status, project_path, words};
use crate::{
    frame::page,
    parts::{HALL, Viewer, csrf, number, text, time},
};

/// The most characters of a text on a card.
const CARD_CHARS: usize = 200;

/// The data of a project's page. Where an operation has no answer, the reason stands in its place.
#[derive(Debug)]
pub struct ProjectNow {
    /// The project.
    pub project: ProjectView,
    /// The columns of the board.
    pub columns: Vec<Column>,
    /// The dependencies.
    pub graph: Result<Graph, String>,
    /// The meetings in any state, the newest first.
    pub meetings: Result<MeetingList, String>,
    /// The workers that commissions and meetings can be for.
    pub workers: Result<WorkerList, String>,
}

/// The commissions in one state.
#[derive(Debug)]
pub struct Column {
    /// The state.
    pub status: CommissionStatus,
    /// The commissions.
    pub list: CommissionList,
    /// The number of commissions before them.
    pub offset: usize,
}

/// The whole page.
pub fn project(viewer: &Viewer, now: &ProjectNow) -> String {
    let name = &now.project.name;
    let body = html! {
        p.quiet { a href=(HALL) { "Hall" } }
        h1 { (text(name)) }
        @if let Some(problem) = &now.project.problem { p.error { (text(problem)) } }
        div hx-sse:connect={ (project_path(name)) "?live" } hx-swap="innerMorph" { (live(now)) }
        (create(viewer, now))
    };
    page(name, Some(viewer), &body)
}

/// The page with the commissions in one state.
pub fn one_column(viewer: &Viewer, project: &str, column: &Column) -> String {
    let shown = column.list.commissions.len();
    let to = |offset: usize| format!("{}?state={}&offset={offset}", project_path(project), column.status.as_str());
    let body = html! {
        (super::crumbs(project))
        h1 { "Commissions: " (words(column.status)) }
        ul.plain { @for commission in &column.list.commissions { (card(project, commission)) } }
        nav aria-label="Further commissions" {
            @if column.offset > 0 { a href=(to(column.offset.saturating_sub(shown.max(1)))) { "Before" } }
            @if column.list.more > 0 { a href=(to(column.offset.saturating_add(shown))) { "Further" } }
        }
    };
    page(project, Some(viewer), &body)
}

/// The part of the page that changes while commissions run.
pub fn live(now: &ProjectNow) -> Markup {
    let project = &now.project.name;
    html! {
        section aria-labelledby="board" {
            h2 id="board" { "Commissions" }
            div.board tabindex="0" role="region" aria-label="Board" {
                @for column in &now.columns { (stack(project, column)) }
            }
        }
        section aria-labelledby="graph" {
            h2 id="graph" { "Dependencies" }
            @match &now.graph {
                Ok(all) => (graph(project, all)),
                Err(why) => p.quiet { (text(why)) },
            }
        }
        section aria-labelledby="meetings" {
            h2 id="meetings" { "Meetings" }
            @match &now.meetings {
                Ok(list) => (meetings(project, list)),
                Err(why) => p.quiet { (text(why)) },
            }
        }
    }
}

fn stack(project: &str, column: &Column) -> Markup {
    let shown = column.list.commissions.len();
    let all = shown.saturating_add(column.list.more);
    html! {
        section class=(if all == 0 { "empty" } else { "column" }) aria-labelledby={ "column-" (column.status.as_str()) } {
            h3 id={ "column-" (column.status.as_str()) } {
                (words(column.status)) " " span.quiet { (number(u64::try_from(all).unwrap_or(u64::MAX))) }
            }
            ul.plain { @for commission in &column.list.commissions { (card(project, commission)) } }
            @if column.list.more > 0 {
                p { a href={ (project_path(project)) "?state=" (column.status.as_str()) "&offset=" (shown) } {
                    (column.list.more) " more"
                } }
            }
        }
    }
}

fn card(project: &str, commission: &CommissionView) -> Markup {
    let date = if commission.relevant_date.is_empty() { &commission.date } else { &commission.relevant_date };
    html! {
        li.card {
            a href=(commission_path(project, commission.id.as_str())) { (text(named(commission))) }
            @if commission.queued { " " span.status.queued { "queued" } }
            div.quiet {
                (text(&commission.worker))
                @if commission.created_by == Author::Manager { ", from the manager" }
                @if !date.is_empty() { " · " (time(date)) }
            }
            @for blocker in &commission.blocked_by { div.quiet { "waits for " (text(&blocker.dependency)) } }
            @if !commission.current_progress.is_empty() {
                div { (one_line(&commission.current_progress, CARD_CHARS)) }
            }
        }
    }
}

/// The title of a commission without its prefix, or its id.
pub(super) fn named(commission: &CommissionView) -> &str {
    match label(&commission.title).trim() {
        "" => commission.id.as_str(),
        label => label,
    }
}

fn meetings(project: &str, list: &MeetingList) -> Markup {
    html! {
        @if list.meetings.is_empty() { p.quiet { "There is no meeting." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Table of meetings" { table {
                thead { tr { th { "Meeting" } th { "State" } th { "With" } th { "Date" } } }
                tbody { @for meeting in &list.meetings { tr {
                    td { a href=(meeting_path(project, meeting.id.as_str())) {
                        @if meeting.title.trim().is_empty() { (meeting.id) } @else { (text(&meeting.title)) }
                    } }
                    td { (meeting_status(meeting.status)) }
                    td { (text(&meeting.worker)) }
                    td {
                        (text(&meeting.date))
                        @if !meeting.deferred_until.is_empty() { ", deferred to " (text(&meeting.deferred_until)) }
                    }
                } } }
            } }
            @if list.more > 0 { p.quiet { (list.more) " more; " code { "guild meeting list" } " shows all." } }
        }
    }
}

/// The forms for a commission and for a meeting.
fn create(viewer: &Viewer, now: &ProjectNow) -> Markup {
    let path = project_path(&now.project.name);
    let workers = match &now.workers {
        Ok(workers) => workers,
        Err(why) => return html! { p.quiet { (text(why)) } },
    };
    let select = |id: &str| {
        html! {
            p { label for=(id) { "Worker" } br; select id=(id) name="worker" required {
                @for worker in &workers.workers {
                    option value=(text(&worker.name)) { (text(&worker.display_name)) " – " (text(&worker.display_title)) }
                }
            } }
        }
    };
    html! {
        details {
            summary { "New commission" }
            form method="post" action=(path) {
                (csrf(viewer))
                p { label for="title" { "Title" } br; input.wide id="title" name="title" required; }
                (select("commission-worker"))
                (task("", &[]))
                p { button name="do" value="commission" { "Create" } " " span.quiet { "It begins once it is dispatched." } }
            }
        }
        details {
            summary { "New meeting" }
            form method="post" action=(path) {
                (csrf(viewer))
                (select("meeting-worker"))
                p { label for="agenda" { "Subject, which is your first message" } br;
                    textarea id="agenda" name="agenda" rows="4" required {} }
                p { button name="do" value="meeting" { "Open" } }
            }
        }
    }
}

/// The fields of a commission that can be changed.
pub(super) fn task(prompt: &str, dependencies: &[String]) -> Markup {
    html! {
        p { label for="prompt" { "Task" } br; textarea id="prompt" name="prompt" rows="8" required { (text(prompt)) } }
        p { label for="dependencies" { "Depends on: ids of commissions and paths of documents, one a line" } br;
            textarea id="dependencies" name="dependencies" rows="3" {
                @for dependency in dependencies { (text(dependency)) "\n" }
            }
        }
    }
}

/// The state of a commission with whether it is queued.
pub(super) fn state(commission: &CommissionView) -> Markup {
    html! { (commission_status(commission.status)) @if commission.queued { " " span.status.queued { "queued" } } }
}
