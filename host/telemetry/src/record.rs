//! Counts and times what happens in a host.
//!
//! The figures are those of the process: a counter costs a lookup and an addition, and nothing is written anywhere.

use std::{
    collections::BTreeSet,
    sync::{LazyLock, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use guild_contract::{JobStatus, MemberKey, Usage};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

/// The most models that have a time series of their own. The others share one.
const MODELS: usize = 64;
/// The most characters of a model's name in a label.
const MODEL_CHARS: usize = 80;

/// The upper bounds of the buckets for calls, in seconds.
const CALL_SECONDS: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];
/// The upper bounds of the buckets for work that takes minutes, in seconds.
const WORK_SECONDS: [f64; 12] = [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 7200.0, 21600.0];

/// A family of histograms with one scale.
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;
/// A family of counters of an amount that is no whole number.
type Amounts<L> = Family<L, Counter<f64, AtomicU64>>;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Request {
    route: &'static str,
    code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    member: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ComponentCall {
    member: String,
    call: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Ended {
    member: String,
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Session {
    runtime: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Tokens {
    member: String,
    model: String,
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Spent {
    member: String,
    model: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reached {
    limit: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Stream {
    stream: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// All counters and histograms.
struct Figures {
    registry: Registry,
    models: Mutex<BTreeSet<String>>,
    requests: Family<Request, Counter>,
    dispatches: Histograms<Outcome>,
    calls: Histograms<ComponentCall>,
    jobs: Family<Ended, Counter>,
    sessions: Histograms<Session>,
    tokens: Family<Tokens, Counter>,
    dollars: Amounts<Spent>,
    limits: Family<Reached, Counter>,
    denials: Family<Reason, Counter>,
    events: Counter,
    connections: Gauge,
    stored: Histograms<Stream>,
}

static FIGURES: LazyLock<Figures> = LazyLock::new(Figures::new);

impl Figures {
    fn new() -> Self {
        let mut registry = Registry::with_prefix("guild");
        let calls: fn() -> Histogram = || Histogram::new(CALL_SECONDS);
        let work: fn() -> Histogram = || Histogram::new(WORK_SECONDS);
        let mut this = Self {
            registry: Registry::default(),
            models: Mutex::default(),
            requests: Family::default(),
            dispatches: Family::new_with_constructor(calls),
            calls: Family::new_with_constructor(calls),
            jobs: Family::default(),
            sessions: Family::new_with_constructor(work),
            tokens: Family::default(),
            dollars: Family::default(),
            limits: Family::default(),
            denials: Family::default(),
            events: Counter::default(),
            connections: Gauge::default(),
            stored: Family::new_with_constructor(calls),
        };
        registry.register("http_requests", "Requests by kind of route and status", this.requests.clone());
        registry.register_with_unit(
            "dispatch_duration",
            "Time of a dispatch, until its job runs or it is refused",
            Unit::Seconds,
            this.dispatches.clone(),
        );
        registry.register_with_unit(
            "component_call_duration",
            "Time of a call of a component, without its time in the queue",
            Unit::Seconds,
            this.calls.clone(),
        );
        registry.register("jobs_ended", "Jobs that ended", this.jobs.clone());
        registry.register_with_unit(
            "session_duration",
            "Time of an agent session, without its time in the queue",
            Unit::Seconds,
            this.sessions.clone(),
        );
        registry.register("tokens", "Tokens of models; those from a cache are input too", this.tokens.clone());
        registry.register("spent_dollars", "US dollars of models, as far as they are known", this.dollars.clone());
        registry.register("limits_reached", "Times that a limit was reached", this.limits.clone());
        registry.register("denials", "Requests that the host refused to their callers", this.denials.clone());
        registry.register(
            "events_dropped",
            "Events that subscribers missed, since they were too slow",
            this.events.clone(),
        );
        registry.register("connections", "Open connections of the port", this.connections.clone());
        registry.register_with_unit(
            "cluster_append_duration",
            "Time of a write to a stream of the cluster, until it is acknowledged",
            Unit::Seconds,
            this.stored.clone(),
        );
        this.registry = registry;
        this
    }

    /// The label of a model: workers and providers name models, so their number is bounded here.
    fn model(&self, model: Option<&str>) -> String {
        let Some(model) = model else { return "unknown".to_owned() };
        let model: String = model.chars().take(MODEL_CHARS).collect();
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        match models.contains(&model) || (models.len() < MODELS && models.insert(model.clone())) {
            true => model,
            false => "other".to_owned(),
        }
    }
}

/// The counters and histograms.
pub(crate) fn registry() -> &'static Registry {
    &FIGURES.registry
}

/// Counts an answered HTTP request. `route` is the kind of its path.
pub fn request(route: &'static str, code: u16) {
    FIGURES.requests.get_or_create(&Request { route, code }).inc();
}

/// Counts a dispatch, and the time until its job was accepted or refused.
pub fn dispatch(member: &MemberKey, is_accepted: bool, took: Duration) {
    let outcome = if is_accepted { "accepted" } else { "refused" };
    let labels = Outcome { member: member.to_string(), outcome };
    FIGURES.dispatches.get_or_create(&labels).observe(took.as_secs_f64());
}

/// Counts a call of a component, and its time. `call` is the function, as `activate`.
pub fn component_call(member: &MemberKey, call: &'static str, outcome: &'static str, took: Duration) {
    let labels = ComponentCall { member: member.to_string(), call, outcome };
    FIGURES.calls.get_or_create(&labels).observe(took.as_secs_f64());
}

/// Counts a job that ended.
pub fn job_ended(member: &MemberKey, status: JobStatus) {
    FIGURES.jobs.get_or_create(&Ended { member: member.to_string(), status: status.as_str() }).inc();
}

/// Counts a session that ended, and its time.
pub fn session_ended(runtime: &'static str, outcome: &'static str, took: Duration) {
    FIGURES.sessions.get_or_create(&Session { runtime, outcome }).observe(took.as_secs_f64());
}

/// Counts the tokens and the known cost of an answer of a model.
pub fn used(member: &MemberKey, model: Option<&str>, used: &Usage) {
    let figures = &*FIGURES;
    let (member, model) = (member.to_string(), figures.model(model));
    for (kind, tokens) in [("input", used.input_tokens), ("cached", used.cached_tokens), ("output", used.output_tokens)]
    {
        if tokens > 0 {
            figures.tokens.get_or_create(&Tokens { member: member.clone(), model: model.clone(), kind }).inc_by(tokens);
        }
    }
    let dollars = used.known_cost();
    if dollars > 0.0 {
        figures.dollars.get_or_create(&Spent { member, model }).inc_by(dollars);
    }
}

/// Counts that a limit was reached. `limit` is its name, alone or as errors cite it.
pub fn limit_reached(limit: &'static str) {
    let limit = limit.rsplit(['.', ' ']).next().unwrap_or(limit);
    FIGURES.limits.get_or_create(&Reached { limit }).inc();
}

/// Counts a request that was refused to its caller.
pub fn denied(reason: &'static str) {
    FIGURES.denials.get_or_create(&Reason { reason }).inc();
}

/// Counts a write that a stream of the cluster has stored, and its time.
pub fn stored(stream: &'static str, took: Duration) {
    FIGURES.stored.get_or_create(&Stream { stream }).observe(took.as_secs_f64());
}

/// Counts events that a subscriber missed.
pub fn events_dropped(events: u64) {
    FIGURES.events.inc_by(events);
}

/// An open connection, which counts until this is dropped.
#[derive(Debug)]
pub struct Connected(());

/// Counts a connection.
pub fn connected() -> Connected {
    FIGURES.connections.inc();
    Connected(())
}

impl Drop for Connected {
    fn drop(&mut self) {
        FIGURES.connections.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_beyond_the_bound_share_a_time_series() {
        let figures = Figures::new();
        for number in 0..MODELS {
            assert_eq!(figures.model(Some(&format!("m{number}"))), format!("m{number}"));
        }
        assert_eq!(figures.model(Some("one more")), "other");
        assert_eq!(figures.model(Some("m1")), "m1");
        assert_eq!(figures.model(None), "unknown");
        assert_eq!(Figures::new().model(Some(&"x".repeat(1000))).len(), MODEL_CHARS);
    }
}
