//! Renders what a host does now: questions, running jobs, members, and the jobs that ended last.

use std::collections::HashSet;

use guild_contract::{
    JobStatus, MemberReport, MemberService,
    rpc::{JobCounts, JobsView, StatusView},
    text::size,
};
use maud::{Markup, html};

use crate::{
    frame::page_at,
    parts::{Viewer, job_path, member_path, number, status, text, time, usage},
};

/// The path of the stream that renews the page.
pub const LIVE: &str = "/page/now/live";
/// The most jobs that ended.
const ENDED: usize = 50;

/// The data of a member on the page.
#[derive(Debug)]
pub struct MemberNow {
    /// The report of `GET /members`.
    pub report: MemberReport,
    /// The answer of `worker/jobs`, or the reason that there is none.
    pub jobs: Result<JobsView, String>,
}

/// The whole page.
pub fn now(viewer: &Viewer, members: &[MemberNow]) -> String {
    let body = html! {
        h1 { "Now" }
        // The stream sends the same content again when something changes.
        div hx-sse:connect=(LIVE) hx-swap="innerMorph" { (live(members)) }
    };
    page_at("/", "Now", viewer, &body)
}

/// The part of the page that changes.
pub fn live(members: &[MemberNow]) -> Markup {
    let mut jobs: Vec<(&str, &StatusView)> = members
        .iter()
        .flat_map(|member| {
            let jobs = member.jobs.as_ref().map_or(&[][..], |view| &view.jobs);
            jobs.iter().map(|job| (member.report.member.as_str(), job))
        })
        .collect();
    jobs.sort_by(|(_, a), (_, b)| b.started_at.cmp(&a.started_at));
    // A job that continues another one is newer, so it is in the list if the other one is.
    let continued: HashSet<_> =
        jobs.iter().filter_map(|(member, job)| Some((*member, job.follows.as_ref()?))).collect();
    let asking: Vec<_> = jobs
        .iter()
        .filter(|(member, job)| job.questions.is_some() && !continued.contains(&(member, &job.job_id)))
        .collect();
    let running: Vec<_> = jobs.iter().filter(|(_, job)| job.status == JobStatus::Running).collect();
    let ended: Vec<_> = jobs.iter().filter(|(_, job)| job.status != JobStatus::Running).take(ENDED).collect();
    html! {
        @if !asking.is_empty() {
            section aria-labelledby="questions" {
                h2 id="questions" { "Questions for you" }
                @for (member, job) in &asking {
                    article.card {
                        p { a href=(job_path(member, job.job_id.as_str())) { (text(&job.description)) } " " (state(job)) }
                        ul { @for question in job.questions.iter().flatten() { li { (text(question)) } } }
                    }
                }
            }
        }
        section aria-labelledby="running" {
            h2 id="running" { "Running and queued" }
            @if running.is_empty() { p.quiet { "No job runs." } }
            @for (member, job) in &running { (running_job(member, job)) }
        }
        section aria-labelledby="members" {
            h2 id="members" { "Members" }
            (table(members))
        }
        section aria-labelledby="ended" {
            h2 id="ended" { "Ended last" }
            @if ended.is_empty() { p.quiet { "No job has ended." } } @else {
                div.scroll tabindex="0" role="region" aria-labelledby="ended" { table {
                    thead { tr { th { "Job" } th { "State" } th { "Member" } th { "Ended" } } }
                    tbody { @for (member, job) in &ended { tr {
                        td { a href=(job_path(member, job.job_id.as_str())) { (text(&job.description)) } }
                        td { (state(job)) }
                        td { (text(member)) }
                        td { @if let Some(at) = &job.completed_at { (time(at)) } }
                    } } }
                } }
            }
        }
    }
}

fn state(job: &StatusView) -> Markup {
    status(job.status, job.usage.as_ref().is_some_and(|usage| usage.queued), job.held_back)
}

fn running_job(member: &str, job: &StatusView) -> Markup {
    html! {
        article.card {
            p {
                a href=(job_path(member, job.job_id.as_str())) { (text(&job.description)) } " " (state(job))
                " " span.quiet { (text(member)) ", since " (time(&job.started_at)) }
            }
            @if let Some(summary) = &job.summary { p.summary { (text(summary)) } }
            @if let Some(used) = &job.usage { p.quiet { (usage(used)) } }
        }
    }
}

fn table(members: &[MemberNow]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-labelledby="members" { table {
            thead { tr { th { "Member" } th { "Service" } th { "Version" } th.number { "Running" } th.number { "Completed" }
                th.number { "Failed" } th.number { "Cancelled" } th.number { "Disk" } } }
            tbody { @for member in members {
                @let report = &member.report;
                @let counts = member.jobs.as_ref().map_or(JobCounts::default(), |view| view.counts);
                tr {
                    td { a href=(member_path(&report.member)) { (text(&report.member)) } }
                    td {
                        span class={ "status " (report.state.as_str()) } { (report.state.as_str()) }
                        @if let Some(error) = &report.error { div.error { (text(error)) } }
                        @if report.state == MemberService::Ready {
                            @if let Err(why) = &member.jobs { div.quiet { (text(why)) } }
                        }
                    }
                    td { @if let Some(version) = &report.version { (text(version)) } }
                    @for status in [JobStatus::Running, JobStatus::Completed, JobStatus::Failed, JobStatus::Cancelled] {
                        td.number { (number(counts.of(status).into())) }
                    }
                    td.number { @if let Some(bytes) = report.disk_bytes { (size(bytes)) } }
                }
            } }
        } }
    }
}
