//! Answers what monitors ask: whether the host can take work (`/readyz`), and its figures (`/metrics`).

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use guild_contract::MemberService;
use guild_roster::{MemberState, blocking, host::Host, members::roster::Reading};
use guild_telemetry::{CONTENT_TYPE as METRICS_TYPE, MemberFigures, Queue, State as Figures};

use crate::{declined::Declined, layers::Admitted};

/// The path of the readiness, which is open to everybody as the health is.
pub(crate) const READY: &str = "/readyz";
/// The path of the figures. They name all members.
pub(crate) const METRICS: &str = "/metrics";

/// Says whether every component that can be in service is: a member with an error is no reason to send work elsewhere.
/// A host that is cut off from its cluster takes no work.
pub(crate) async fn ready(State(host): State<Arc<Host>>) -> Response {
    if !host.may_begin() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the host does not reach its cluster\n").into_response();
    }
    let report = host.roster().now().report();
    match report.iter().filter(|member| member.state == MemberService::Loading).count() {
        0 => "ready\n".into_response(),
        loading => {
            let why = format!("{loading} of {} members are still loading\n", report.len());
            (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
        }
    }
}

/// Renders the figures of the process and the state of the host for Prometheus.
pub(crate) async fn metrics(
    State(host): State<Arc<Host>>,
    Extension(reading): Extension<Arc<Reading>>,
    Extension(admitted): Extension<Admitted>,
) -> Response {
    let text = blocking(move || Ok(figures(&host, &reading).render())).await;
    let Ok(Ok(text)) = text else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    match admitted.caller.respond(text.into()) {
        Ok(text) => ([(CONTENT_TYPE, METRICS_TYPE), (CACHE_CONTROL, "no-store")], text).into_response(),
        Err(refused) => Declined::from(refused).text(),
    }
}

fn figures(host: &Host, reading: &Reading) -> Figures {
    let entries = reading.members();
    let members = reading.report().into_iter().map(|report| {
        let jobs = match entries.get(&report.member).map(|entry| &entry.state) {
            Some(MemberState::Ready(member)) => Some(member.counts()),
            _ => None,
        };
        MemberFigures { member: report.member, service: report.state, jobs, disk_bytes: report.disk_bytes }
    });
    let queues = host.queue_loads().into_iter().map(|(name, load)| Queue {
        name,
        permits: load.permits,
        held: load.held,
        waiting: load.waiting,
        oldest: load.oldest,
    });
    Figures {
        version: env!("CARGO_PKG_VERSION"),
        members: members.collect(),
        queues: queues.collect(),
        subscribers: host.events().subscribers(),
        cluster: host.cluster_figures(),
        spent_today: host.ingress().ledger().spent_today().ok(),
    }
}
