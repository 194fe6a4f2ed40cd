//! Renders a member: whether it is in service, its jobs, and a form that dispatches a task to it.

use guild_contract::{MemberReport, rpc::JobsView};
use maud::{Markup, html};

use crate::{
    frame::page,
    job::fields,
    parts::{Viewer, csrf, job_path, member_path, number, status, text, time},
};

/// The data of a member's page.
#[derive(Debug)]
pub struct MemberNow {
    /// The report of `GET /members`.
    pub report: MemberReport,
    /// The member's description of itself; none if it is not in service.
    pub description: Option<String>,
    /// The answer of `worker/jobs`, or the reason that there is none.
    pub jobs: Result<JobsView, String>,
    /// The number of newer jobs.
    pub offset: u32,
}

/// The whole page.
pub fn member(viewer: &Viewer, member: &MemberNow) -> String {
    let report = &member.report;
    let body = html! {
        p.quiet { a href="/" { "Now" } }
        h1 { (text(&report.member)) }
        p {
            span class={ "status " (report.state.as_str()) } { (report.state.as_str()) }
            @if let Some(version) = &report.version { " version " (text(version)) }
            @if let Some(sha256) = &report.sha256 { " " code.quiet { (sha256) } }
        }
        @if let Some(error) = &report.error { p.error { (text(error)) } }
        @if let Some(description) = &member.description { p { (text(description)) } }
        @match &member.jobs {
            Ok(jobs) => {
                (dispatch(viewer, &report.member))
                (list(member, jobs))
            },
            Err(why) => p.quiet { (text(why)) },
        }
    };
    page(&report.member, Some(viewer), &body)
}

fn dispatch(viewer: &Viewer, key: &str) -> Markup {
    html! {
        details {
            summary { "Dispatch a task" }
            form method="post" action=(member_path(key)) enctype="multipart/form-data" {
                (csrf(viewer))
                (fields("", "", None))
                p { button { "Dispatch" } }
            }
        }
    }
}

fn list(member: &MemberNow, view: &JobsView) -> Markup {
    let counts = &view.counts;
    let all = [counts.running, counts.completed, counts.failed, counts.cancelled].map(u64::from).iter().sum();
    let page = |offset: u32| format!("{}?offset={offset}", member_path(&member.report.member));
    let shown = u32::try_from(view.jobs.len()).unwrap_or(u32::MAX);
    html! {
        section aria-labelledby="jobs" {
            h2 id="jobs" { (number(all)) " jobs" }
            div.scroll tabindex="0" role="region" aria-labelledby="jobs" { table {
                thead { tr { th { "Job" } th { "State" } th { "Created" } th { "Ended" } } }
                tbody { @for job in &view.jobs { tr {
                    td { a href=(job_path(&member.report.member, job.job_id.as_str())) { (text(&job.description)) } }
                    td { (status(job.status, job.usage.as_ref().is_some_and(|used| used.queued), job.held_back)) }
                    td { (time(&job.started_at)) }
                    td { @if let Some(at) = &job.completed_at { (time(at)) } }
                } } }
            } }
            nav aria-label="Further jobs" {
                @if member.offset > 0 { a href=(page(member.offset.saturating_sub(shown.max(50)))) { "Newer" } }
                @if view.more { a href=(page(member.offset.saturating_add(shown))) { "Older" } }
            }
        }
    }
}
