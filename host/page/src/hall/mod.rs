//! Renders the hall: its projects, and the parts that its pages share.

pub mod commission;
mod diff;
pub mod document;
mod graph;
pub mod meeting;
pub mod project;

use guild_contract::hall::{CommissionStatus, MeetingStatus, ProjectList};
use maud::{Markup, html};

use crate::{
    frame::page_at,
    parts::{HALL, Viewer, encoded, text},
};

/// The path of a project's page.
pub fn project_path(project: &str) -> String {
    format!("{HALL}/projects/{}", encoded(project))
}

/// The path of a commission's page.
pub fn commission_path(project: &str, commission: &str) -> String {
    format!("{}/commissions/{}", project_path(project), encoded(commission))
}

/// The path of a meeting's page.
pub fn meeting_path(project: &str, meeting: &str) -> String {
    format!("{}/meetings/{}", project_path(project), encoded(meeting))
}

/// The page with the projects of the hall; `None` on a host without a hall.
pub fn hall(viewer: &Viewer, projects: Option<&ProjectList>) -> String {
    let body = html! {
        h1 { "Hall" }
        @match projects {
            None => p { "This host has no hall. The operator starts it with " code { "guild serve --hall HOME" } "." },
            Some(list) => {
                @if list.projects.is_empty() {
                    p { "The hall has no project. The operator adds one with " code { "guild project add PATH" } "." }
                }
                ul.plain { @for project in &list.projects {
                    li.card {
                        a href=(project_path(&project.name)) { (text(&project.name)) }
                        @if let Some(group) = &project.group { " " span.quiet { (text(group)) } }
                        " " code.quiet { (text(&project.path)) }
                        @if let Some(problem) = &project.problem { p.error { (text(problem)) } }
                    }
                } }
            }
        }
    };
    page_at(HALL, "Hall", viewer, &body)
}

/// The way from the first page of the hall to a page of a project.
fn crumbs(project: &str) -> Markup {
    html! { p.quiet { a href=(HALL) { "Hall" } " / " a href=(project_path(project)) { (text(project)) } } }
}

fn commission_status(status: CommissionStatus) -> Markup {
    html! { span class={ "status " (status.as_str()) } { (words(status)) } }
}

fn meeting_status(status: MeetingStatus) -> Markup {
    html! { span class={ "status " (status.as_str()) } { (status.as_str()) } }
}

fn words(status: CommissionStatus) -> &'static str {
    match status {
        CommissionStatus::Pending => "pending",
        CommissionStatus::Blocked => "blocked",
        CommissionStatus::Dispatched => "dispatched",
        CommissionStatus::InProgress => "in progress",
        CommissionStatus::Completed => "completed",
        CommissionStatus::Failed => "failed",
        CommissionStatus::Cancelled => "cancelled",
        CommissionStatus::Abandoned => "abandoned",
    }
}

/// The documents that a commission or a meeting made, as links.
fn artifacts(project: &str, paths: &[String]) -> Markup {
    html! {
        @if !paths.is_empty() {
            section aria-labelledby="artifacts" {
                h2 id="artifacts" { "Documents" }
                ul { @for path in paths { li { a href=(document::document_path(project, path)) { (text(path)) } } } }
            }
        }
    }
}
