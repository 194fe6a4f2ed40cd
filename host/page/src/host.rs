//! Renders the host itself, for its operator: what was checked, the limits, and the audit log.

use guild_contract::{
    host::{
        AuditLine, AuditParams, AuditView, CheckState, DoctorView, LimitNow, LimitsView,
        cluster::{ClusterHostState, ClusterView},
    },
    limits::Setting,
};
use maud::{Markup, html};

use crate::{
    frame::page_at,
    parts::{HOST, Viewer, encoded, member_path, number, text, time},
};

/// The outcomes of the audit log, to choose from.
const OUTCOMES: [&str; 7] = ["ok", "invalid", "busy", "failed", "unauthorized", "forbidden", "abandoned"];

/// The data of the page.
#[derive(Debug)]
pub struct HostPage {
    /// The answer of `host/doctor`, or the reason that there is none; `None` unless it was asked for.
    pub doctor: Option<Result<DoctorView, String>>,
    /// The answer of `host/limits`.
    pub limits: LimitsView,
    /// The parameters of `host/audit`.
    pub filter: AuditParams,
    /// Its answer, or the reason that there is none.
    pub audit: Result<AuditView, String>,
    /// The answer of `host/cluster`, or the reason that there is none; `None` for a host on its own.
    pub cluster: Option<Result<ClusterView, String>>,
}

/// The whole page.
pub fn host(viewer: &Viewer, page: &HostPage) -> String {
    let body = html! {
        h1 { "Host" }
        section aria-labelledby="doctor" {
            h2 id="doctor" { "Doctor" }
            (doctor(page.doctor.as_ref()))
        }
        section aria-labelledby="limits" {
            h2 id="limits" { "Limits" }
            (limits(&page.limits))
        }
        section aria-labelledby="audit" {
            h2 id="audit" { "Audit log" }
            (filter(&page.filter))
            @match &page.audit {
                Ok(view) => (audit(&page.filter, view)),
                Err(why) => p.error role="alert" { (text(why)) },
            }
        }
        section aria-labelledby="cluster" {
            h2 id="cluster" { "Cluster" }
            @match &page.cluster {
                None => p.quiet { "This host runs alone." },
                Some(Err(why)) => p.error role="alert" { (text(why)) },
                Some(Ok(view)) => (cluster(view)),
            }
        }
    };
    page_at(HOST, "Host", viewer, &body)
}

fn doctor(found: Option<&Result<DoctorView, String>>) -> Markup {
    html! {
        @match found {
            None => p { a href={ (HOST) "?check=now" } { "Check this host now" } span.quiet {
                ": runtimes, keys, read roots, the web, projects, access and members, as " code { "guild doctor" } " does."
            } },
            Some(Err(why)) => p.error role="alert" { (text(why)) },
            Some(Ok(view)) => {
                p {
                    @match view.usable {
                        true => "Everything that is needed is usable. ",
                        false => strong.error { "Something that is needed is not usable. " },
                    }
                    span.quiet { "guild.toml: " (text(view.config.as_deref().unwrap_or("none; the defaults apply"))) }
                }
                div.scroll tabindex="0" role="region" aria-labelledby="doctor" { table {
                    thead { tr { th { "State" } th { "Kind" } th { "Name" } th { "Finding" } } }
                    tbody { @for check in &view.checks { tr {
                        td { span class={ "status " (check.word()) } { (check.word()) } }
                        td { (check.kind.as_str()) }
                        td { (text(&check.name)) }
                        td class=[(check.state == CheckState::Off).then_some("quiet")] { (text(&check.detail)) }
                    } } }
                } }
            },
        }
    }
}

fn cluster(view: &ClusterView) -> Markup {
    let head = |names: &[&str]| html! { thead { tr { @for name in names { th { (name) } } } } };
    html! {
        p {
            (text(&view.name)) ": " (number(view.waiting)) " jobs wait for a host"
            @if let Some(seconds) = view.oldest_waiting_seconds { ", the oldest for " (number(seconds)) " s" }
            "."
            @if let Some(takeovers) = view.takeovers {
                " This host has gone on with " (number(takeovers)) " jobs that another host had begun."
            }
        }
        @for name in &view.unsealed {
            p.error role="alert" { "The card of " (text(name)) " is not sealed with this cluster's key, and is not believed." }
        }
        h3 id="cluster-hosts" { "Hosts" }
        div.scroll tabindex="0" role="region" aria-labelledby="cluster-hosts" { table {
            (head(&["State", "Name", "Seen", "Version", "Free places", "Members", "Address"]))
            tbody { @for host in &view.hosts { tr {
                td {
                    span class=[(host.state != ClusterHostState::Alive).then_some("error")] { (host.state.as_str()) }
                    @if let Some(by) = &host.dead_by { " " span.quiet { "declared by " (text(by)) } }
                }
                td { (text(&host.host)) }
                td { (number(host.silent_seconds)) " s ago" }
                td { (text(&host.version)) }
                td { @for (runtime, places) in &host.places { (text(runtime)) " " (places) " " } }
                td { (host.members.len()) @if host.hall { ", and the hall" } }
                td { (text(&host.url)) }
            } } }
        } }
        @if !view.jobs.is_empty() {
            h3 id="cluster-jobs" { "Jobs" }
            div.scroll tabindex="0" role="region" aria-labelledby="cluster-jobs" { table {
                thead { tr { th { "Member" } th.number { "Running" } th.number { "Waiting" } } }
                tbody { @for jobs in &view.jobs { tr {
                    td { (text(&jobs.member)) }
                    td.number { (number(jobs.running)) }
                    td.number { (number(jobs.waiting)) }
                } } }
            } }
        }
        h3 id="cluster-streams" { "Streams" }
        div.scroll tabindex="0" role="region" aria-labelledby="cluster-streams" { table {
            (head(&["Stream", "Fill", "Servers", "Behind"]))
            tbody { @for stream in &view.streams { tr {
                td { code { (text(&stream.stream)) } }
                td { (number(stream.bytes)) " bytes" @if let Some(percent) = stream.percent() { ", " (percent) " %" } }
                td { (stream.replicas) }
                td { (text(&stream.lagging.join(", "))) }
            } } }
        } }
        @if !view.differences.is_empty() {
            h3 id="cluster-differences" { "Differences between hosts" }
            ul { @for found in &view.differences { li {
                code { (text(&found.setting)) } ": "
                (text(&found.groups.iter().map(|group| group.join(", ")).collect::<Vec<_>>().join(" | ")))
            } } }
        }
    }
}

fn limits(view: &LimitsView) -> Markup {
    let counted: Vec<&LimitNow> = view.limits.iter().filter(|limit| limit.in_use.is_some()).collect();
    let (changed, usual): (Vec<&LimitNow>, Vec<&LimitNow>) =
        view.limits.iter().partition(|limit| limit.value != limit.default);
    html! {
        @match (view.spent_today_usd, view.host_usd_per_day) {
            (Some(spent), Some(cap)) => p { "$" (format!("{spent:.2}")) " spent today (UTC), of $" (cap) " that may be." },
            (Some(spent), None) => p { "$" (format!("{spent:.2}")) " spent today (UTC). " span.quiet { "There is no cap." } },
            (None, _) => p.error { "What was spent today is not known: the ledger cannot be read." },
        }
        h3 id="in-use" { "In use" }
        (table("in-use", &counted))
        @if !changed.is_empty() {
            h3 id="changed" { "Set in guild.toml" }
            (table("changed", &changed))
        }
        details {
            summary { "All other limits" }
            h3 id="usual" { "At their defaults" }
            (table("usual", &usual))
        }
    }
}

fn table(id: &str, limits: &[&LimitNow]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-labelledby=(id) { table {
            thead { tr { th { "Limit" } th.number { "Value" } th.number { "In use" } th { "Of what" } th { "Set by" } } }
            tbody { @for limit in limits { tr {
                td { code { (text(&limit.name)) } }
                td.number { (limit.value.as_u64().map_or_else(|| limit.value.to_string(), number)) }
                td.number { @if let Some(amount) = limit.in_use { (number(amount)) } }
                td { (text(&limit.about)) }
                td.quiet { @match limit.setting {
                    Setting::Key => "guild.toml",
                    Setting::KeyAtStart => "guild.toml, at the next start",
                    Setting::Fixed => "fixed",
                } }
            } } }
        } }
    }
}

fn filter(filter: &AuditParams) -> Markup {
    let fields = [
        ("member", "Member", &filter.member),
        ("who", "Who, or token", &filter.who),
        ("event", "Event or method", &filter.event),
    ];
    html! {
        form method="get" action={ (HOST) "#audit" } {
            div.fields {
                @for (name, label, value) in fields {
                    div {
                        label for=(name) { (label) }
                        input id=(name) name=(name) value=(text(value.as_deref().unwrap_or_default()));
                    }
                }
                div {
                    label for="outcome" { "Outcome" }
                    select id="outcome" name="outcome" {
                        option value="" { "any" }
                        @for outcome in OUTCOMES {
                            option value=(outcome) selected[filter.outcome.as_deref() == Some(outcome)] { (outcome) }
                        }
                    }
                }
                button { "Filter" }
            }
        }
    }
}

fn audit(filter: &AuditParams, view: &AuditView) -> Markup {
    html! {
        @match &view.file {
            Some(file) => p.quiet { code { (text(file)) } ", newest first" },
            None => p.quiet { "This host has no audit log." },
        }
        @if view.lines.is_empty() { p.quiet { "No line matches" @if view.next.is_some() { " so far" } "." } } @else {
            div.scroll tabindex="0" role="region" aria-labelledby="audit" { table {
                thead { tr { th { "Time" } th { "Event" } th { "Outcome" } th { "Who" } th { "Member" } th { "Details" } } }
                tbody { @for line in &view.lines { (row(line)) } }
            } }
        }
        nav aria-label="Further lines" {
            @if filter.before.is_some() { a href=(link(filter, None)) { "Newest" } }
            @if let Some(next) = &view.next { a href=(link(filter, Some(next))) { "Older" } }
        }
    }
}

fn link(filter: &AuditParams, before: Option<&str>) -> String {
    let fields =
        [("member", &filter.member), ("who", &filter.who), ("event", &filter.event), ("outcome", &filter.outcome)];
    let mut query: Vec<String> =
        fields.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", encoded(value.as_deref()?)))).collect();
    query.extend(before.map(|before| format!("before={}", encoded(before))));
    format!("{HOST}?{}#audit", query.join("&"))
}

fn row(line: &AuditLine) -> Markup {
    let numbers = [
        ("code", line.code.map(|code| code.to_string())),
        ("HTTP", line.status.map(|status| status.to_string())),
        ("lines lost before", line.lost.map(|count| count.to_string())),
        ("refusals left out before", line.suppressed.map(|count| count.to_string())),
    ];
    html! {
        tr {
            td { (time(&line.time)) }
            td { (text(&line.event)) @if let Some(method) = &line.method { " " code { (text(method)) } } }
            td class=[(line.outcome != "ok").then_some("error")] { (text(&line.outcome)) }
            td { (text(&line.who)) @if let Some(peer) = &line.peer { " " span.quiet { (text(peer)) } } }
            td { @if let Some(member) = &line.member { a href=(member_path(&encoded(member))) { (text(member)) } } }
            td {
                @if let Some(job) = &line.job { code { (text(job)) } " " }
                @if let Some(detail) = &line.detail { (text(detail)) " " }
                @for (name, value) in &numbers { @if let Some(value) = value { span.quiet { (name) " " (value) } " " } }
            }
        }
    }
}
