//! Renders a job: its state, its timeline, its report and its files, and what can be done with it.

use guild_contract::{
    JobStatus,
    rpc::{LogView, ResultView, StatusView, TaskView},
};
use jiff::Timestamp;
use maud::{Markup, html};

use crate::{
    frame::page,
    markdown,
    parts::{Viewer, csrf, encoded, job_path, member_path, number, status, text, time, usage},
    timeline::timeline,
};

/// The data of a job's page. Where a token does not permit an operation, the reason stands in its place.
#[derive(Debug)]
pub struct JobNow {
    /// The member's key.
    pub member: String,
    /// The answer of `worker/status`.
    pub status: StatusView,
    /// The answer of `worker/result`, for a completed job.
    pub result: Option<Result<ResultView, String>>,
    /// The answers of `worker/log` together, or the reason that there are none.
    pub log: Result<LogView, String>,
    /// The answer of `worker/task`, or the reason that there is none.
    pub task: Result<TaskView, String>,
    /// The time of the answers.
    pub now: Timestamp,
}

impl JobNow {
    fn path(&self) -> String {
        job_path(&self.member, self.status.job_id.as_str())
    }
}

/// The whole page.
pub fn job(viewer: &Viewer, job: &JobNow) -> String {
    let body = html! {
        p.quiet { a href="/" { "Now" } " / " a href=(member_path(&job.member)) { (text(&job.member)) } }
        h1 { (text(&job.status.description)) }
        @if job.status.status == JobStatus::Running {
            div hx-sse:connect={ (job.path()) "?live" } hx-sse:close="done" hx-swap="innerMorph" { (live(job)) }
        } @else {
            (live(job))
        }
        (actions(viewer, job))
        (dispatch(viewer, job))
    };
    page(&job.status.description, Some(viewer), &body)
}

/// The part of the page that changes while the job runs.
pub fn live(job: &JobNow) -> Markup {
    let state = &job.status;
    let queued = state.usage.as_ref().is_some_and(|usage| usage.queued);
    html! {
        section aria-label="State" {
            p {
                (status(state.status, queued, state.held_back)) " since " (time(&state.started_at))
                @if let Some(at) = &state.completed_at { ", ended " (time(at)) }
            }
            @if let Some(earlier) = &state.follows {
                p { "It continues " a href=(job_path(&job.member, earlier.as_str())) { "an earlier job" } "." }
            }
            @if let Some(used) = &state.usage { p { (usage(used)) } }
            @if let Some(error) = &state.error { p.error { (text(error)) } }
            @if let Some(summary) = &state.summary { p.summary { (text(summary)) } }
        }
        @if let Some(questions) = &state.questions {
            section aria-labelledby="questions" {
                h2 id="questions" { "Questions" }
                ul { @for question in questions { li { (text(question)) } } }
            }
        }
        @if let Some(decisions) = &state.decisions {
            section aria-labelledby="decisions" {
                h2 id="decisions" { "Decisions of the worker" }
                dl { @for made in decisions {
                    dt { (text(&made.question)) }
                    dd { (text(&made.decision)) " " span.quiet { (text(&made.reasoning)) } }
                } }
            }
        }
        @if let Some(result) = &job.result {
            section.report aria-labelledby="report" {
                h2 id="report" { "Report" }
                @match result {
                    Ok(result) => (report(job, result)),
                    Err(why) => p.quiet { (text(why)) },
                }
            }
        }
        section aria-labelledby="timeline" {
            h2 id="timeline" { "Timeline" }
            @match &job.log {
                Ok(log) => {
                    (timeline(&state.started_at, ended(job), &log.transcript))
                    @if log.more { p.quiet { "This is the beginning; " code { "guild logs" } " shows all." } }
                },
                Err(why) => p.quiet { (text(why)) },
            }
        }
        @if let Some(log) = job.log.as_ref().ok().filter(|log| !log.log.is_empty()) {
            section aria-labelledby="log" {
                h2 id="log" { "Log of the component" }
                pre tabindex="0" { @for line in &log.log { (text(line)) "\n" } }
            }
        }
    }
}

fn ended(job: &JobNow) -> Timestamp {
    job.status.completed_at.as_ref().and_then(|at| at.parse().ok()).unwrap_or(job.now)
}

fn report(job: &JobNow, result: &ResultView) -> Markup {
    html! {
        (markdown::render(&result.output))
        @if let Some(artifacts) = &result.artifacts {
            h3 { "Files" }
            ul { @for path in artifacts { li { a href={ (job.path()) "?file=" (encoded(path)) } { (text(path)) } } } }
        }
    }
}

/// The operations that end or remove the job.
fn actions(viewer: &Viewer, job: &JobNow) -> Markup {
    let (action, name, label) = match (job.status.status, job.status.held_back) {
        (JobStatus::Running, true) => ("resume", "Resume", Some(("cancel", "Cancel"))),
        (JobStatus::Running, false) => ("cancel", "Cancel", None),
        (JobStatus::Failed, _) => ("cancel", "Mark as cancelled", None),
        (JobStatus::Completed | JobStatus::Cancelled, _) => ("delete", "Delete", None),
    };
    html! {
        form.inline method="post" action=(job.path()) {
            (csrf(viewer))
            button name="do" value=(action) { (name) }
            @if let Some((action, name)) = label { " " button name="do" value=(action) { (name) } }
        }
    }
}

/// The form that dispatches the task again, or a follow-up that answers the questions.
fn dispatch(viewer: &Viewer, job: &JobNow) -> Markup {
    let Ok(task) = &job.task else { return html! {} };
    let answers = job.status.questions.as_ref().filter(|_| job.status.status != JobStatus::Running);
    html! {
        @if let Some(questions) = answers {
            section aria-labelledby="answer" {
                h2 id="answer" { "Answer" }
                form method="post" action=(member_path(&job.member)) {
                    (csrf(viewer))
                    input type="hidden" name="description" value={ "Answer: " (text(&task.description)) };
                    @for (index, question) in questions.iter().enumerate() {
                        p {
                            label for={ "answer" (index) } { (text(question)) } br;
                            textarea id={ "answer" (index) } name="answer" rows="3" {}
                            input type="hidden" name="question" value=(text(question));
                        }
                    }
                    input type="hidden" name="follows" value=(job.status.job_id.as_str());
                    p { button { "Dispatch a follow-up" } }
                }
            }
        }
        @if !task.attachments.is_empty() {
            section aria-labelledby="attached" {
                h2 id="attached" { "Attached files" }
                ul { @for file in &task.attachments { li { (text(&file.path)) " " span.quiet { (number(file.bytes)) " bytes" } } } }
            }
        }
        details {
            summary { "Run again" }
            form method="post" action=(member_path(&job.member)) enctype="multipart/form-data" {
                (csrf(viewer))
                input type="hidden" name="continues" value=(job.status.job_id.as_str());
                (fields(&task.description, &task.task, task.config.as_ref().map(pretty).as_deref()))
                p { button { "Dispatch" } }
            }
        }
    }
}

fn pretty(config: &serde_json::Map<String, serde_json::Value>) -> String {
    serde_json::to_string_pretty(config).unwrap_or_default()
}

/// The fields of a dispatch.
pub(crate) fn fields(description: &str, task: &str, config: Option<&str>) -> Markup {
    html! {
        p { label for="description" { "Description" } br; input id="description" name="description" required value=(text(description)); }
        p { label for="task" { "Task" } br; textarea id="task" name="task" rows="8" required { (text(task)) } }
        p { label for="attachments" { "Files for the worker" } br; input id="attachments" name="attachments" type="file" multiple; }
        p { label for="config" { "Config, as JSON" } br; textarea id="config" name="config" rows="3" { (text(config.unwrap_or_default())) } }
    }
}
