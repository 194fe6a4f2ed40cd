//! Renders a member: whether it is in service, its jobs, and a form that dispatches a task to it.

use guild_contract::{
    MemberReport,
    host::{MemberDetail, ProbeView, TrustView},
    rpc::JobsView,
};
use maud::{Markup, html};

use crate::{
    flows::audit,
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
    /// The answer of `host/member`; none for a viewer who may not see it.
    pub detail: Option<Result<MemberDetail, String>>,
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
        @match &member.detail {
            Some(Ok(detail)) => (inside(viewer, detail)),
            Some(Err(why)) => p.error { (text(why)) },
            None => {},
        }
    };
    page(&report.member, Some(viewer), &body)
}

/// The trust in a member, its grants, limits and memories, and its texts.
fn inside(viewer: &Viewer, detail: &MemberDetail) -> Markup {
    html! {
        section aria-labelledby="trust" {
            h2 id="trust" { "Trust" }
            @if let Some(trust) = &detail.trust { (approval(viewer, &detail.member, trust)) }
            @if let Some(why) = &detail.trust_error { p.error { (text(why)) } }
        }
        section aria-labelledby="grants" {
            h2 id="grants" { "What it asks for" }
            @if detail.requests.is_empty() { p.quiet { "It asks for nothing." } } @else {
                table {
                    thead { tr { th scope="col" { "Request" } th scope="col" { "Answer" } } }
                    tbody { @for request in &detail.requests { tr {
                        td { code { (text(&request.name)) } }
                        td {
                            @match &request.why {
                                None => span class="status usable" { "granted" },
                                Some(why) => { span class="status unusable" { "denied" } " " span.quiet { (text(why)) } }
                            }
                        }
                    } } }
                }
            }
            @if !detail.limits.is_empty() {
                h3 { "Limits below those of the host" }
                ul { @for limit in &detail.limits { li { code { (text(&limit.name)) } " " (text(&limit.value.to_string())) } } }
            }
        }
        section aria-labelledby="audit" {
            h2 id="audit" { "Audit" }
            @match (&detail.audit, &detail.audit_error) {
                (Some(found), _) => div id="audited" { (audit(found)) },
                (None, Some(why)) => div id="audited" { p.error { (text(why)) } },
                // An audit of a large component takes seconds, so the page comes first.
                (None, None) => div id="audited" hx-get={ (member_path(&detail.member)) "?audit" } hx-trigger="load"
                    hx-select="#audited" hx-swap="outerHTML" {
                    p { a href={ (member_path(&detail.member)) "?audit#audit" } { "Audit the member" } }
                },
            }
            p.quiet { code { "guild audit " (text(&detail.member)) } " says more." }
        }
        section aria-labelledby="probe" {
            h2 id="probe" { "Probe" }
            @match &detail.probe {
                Some(found) => (probe(found)),
                None => p.quiet { "These files were not probed. " code { "guild probe" } " shows what the member does where nothing can leave." },
            }
        }
        section aria-labelledby="memories" {
            h2 id="memories" { "Memories" }
            @if detail.memories.is_empty() { p.quiet { "It remembers nothing." } }
            @for memory in &detail.memories {
                details {
                    summary { (text(&memory.key)) " " span.quiet { (time(&memory.modified)) } }
                    pre tabindex="0" { (text(&memory.content)) }
                    form method="post" action=(member_path(&detail.member)) {
                        (csrf(viewer))
                        input type="hidden" name="forget" value=(memory.key);
                        button { "Forget" }
                    }
                }
            }
        }
        details { summary { "Manifest" } pre tabindex="0" { (text(&detail.manifest)) } }
        @if let Some(posture) = &detail.posture {
            details { summary { "Posture" } pre tabindex="0" { (text(posture)) } }
        }
    }
}

/// The numbers of findings of the last probe.
fn probe(probe: &ProbeView) -> Markup {
    html! {
        p {
            "Probed " (time(&probe.at)) @if probe.obedient { ", with a model that does what texts tell it" }
            ": component " code.quiet { (probe.sha256) }
        }
        table {
            thead { tr { th scope="col" { "Finding" } th scope="col" { "Number" } } }
            tbody { @for found in &probe.findings { tr {
                td { (text(&found.what)) }
                td { @match found.count {
                    0 => "none",
                    count => span class="status unusable" { (number(count)) },
                } }
            } } }
        }
    }
}

/// The state of the trust; and a form that approves the state that is shown, if it is not trusted. A person with a token
/// gives it again.
fn approval(viewer: &Viewer, key: &str, trust: &TrustView) -> Markup {
    html! {
        p { span class={ "status " (if trust.trusted { "usable" } else { "unusable" }) } { (text(&trust.state)) } " "
            code.quiet { (trust.sha256) } }
        @if !trust.difference.is_empty() {
            pre.diff tabindex="0" { @for line in &trust.difference {
                span class=(if line.starts_with('+') { "added" } else { "removed" }) { (text(line)) } "\n"
            } }
        }
        @if !trust.trusted || trust.state != "approved" {
            form method="post" action=(member_path(key)) {
                (csrf(viewer))
                input type="hidden" name="approve" value=(trust.sha256);
                @if let Some(manifest) = &trust.manifest { input type="hidden" name="manifest" value=(manifest); }
                @if let Some(package) = &trust.package { input type="hidden" name="package" value=(package); }
                @if let Some(posture) = &trust.posture { input type="hidden" name="posture" value=(posture); }
                @if viewer.token.is_some() {
                    p { label for="token" { "Your token, again" } br;
                        input id="token" name="token" type="password" required autocomplete="off"; }
                }
                p { button { "Approve this state" } }
            }
        }
    }
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
            h2 id="jobs" { (number(all)) @if all == 1 { " job" } @else { " jobs" } }
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
