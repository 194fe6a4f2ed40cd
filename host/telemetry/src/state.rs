//! Renders the state of a host together with what was recorded.

use std::{fmt, sync::atomic::AtomicU64, time::Duration};

use guild_contract::{JobStatus, MemberService, rpc::JobCounts};
use prometheus_client::{
    encoding::{
        EncodeLabelSet,
        text::{encode_eof, encode_registry},
    },
    metrics::{
        family::Family,
        gauge::{ConstGauge, Gauge},
        info::Info,
    },
    registry::{Registry, Unit},
};

use crate::{process, record};

type Gauges<L> = Family<L, Gauge<u64, AtomicU64>>;
type Seconds<L> = Family<L, Gauge<f64, AtomicU64>>;

/// The state of a host when Prometheus asks.
#[derive(Debug)]
pub struct State {
    /// The version of the program.
    pub version: &'static str,
    /// Each member.
    pub members: Vec<MemberFigures>,
    /// Each queue.
    pub queues: Vec<Queue>,
    /// Subscribers of events, and viewers of live pages.
    pub subscribers: u64,
    /// US dollars that the ledger has for today (UTC); none if it cannot be read.
    pub spent_today: Option<f64>,
}

/// A member.
#[derive(Debug)]
pub struct MemberFigures {
    /// The member's key.
    pub member: String,
    /// Whether it is in service.
    pub service: MemberService,
    /// Its jobs; none if it is not in service.
    pub jobs: Option<JobCounts>,
    /// The bytes of its files; none before they were measured.
    pub disk_bytes: Option<u64>,
}

/// A queue for sessions, or for calls of components.
#[derive(Clone, Debug)]
pub struct Queue {
    /// The name.
    pub name: &'static str,
    /// The number of permits.
    pub permits: u32,
    /// The permits that are held.
    pub held: u32,
    /// The requests that wait.
    pub waiting: u64,
    /// The time for which the oldest of them has waited.
    pub oldest: Duration,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Job {
    member: String,
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Member {
    member: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Service {
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Named {
    queue: &'static str,
}

impl State {
    /// The text for Prometheus.
    ///
    /// # Errors
    ///
    /// Returns an error when a metric cannot be written.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode_registry(&mut text, record::registry())?;
        encode_registry(&mut text, &self.registry())?;
        encode_registry(&mut text, &process::registry())?;
        encode_eof(&mut text)?;
        Ok(text)
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("guild");
        registry.register("build", "The version of the program", Info::new([("version", self.version)]));
        let (services, jobs) = (Gauges::<Service>::default(), Gauges::<Job>::default());
        let disk = Gauges::<Member>::default();
        for service in MemberService::ALL {
            services.get_or_create(&Service { state: service.as_str() }).set(0);
        }
        for MemberFigures { member, service, jobs: counts, disk_bytes } in &self.members {
            services.get_or_create(&Service { state: service.as_str() }).inc();
            if let Some(bytes) = disk_bytes {
                disk.get_or_create(&Member { member: member.clone() }).set(*bytes);
            }
            let Some(counts) = counts else { continue };
            for &status in JobStatus::ALL {
                let labels = Job { member: member.clone(), status: status.as_str() };
                jobs.get_or_create(&labels).set(counts.of(status).into());
            }
        }
        registry.register("members", "Members by their state", services);
        let help = "Files in the member's directory, measured every ten minutes";
        registry.register_with_unit("member_disk", help, Unit::Bytes, disk);
        registry.register("jobs", "Jobs that are kept; running ones include those in a queue", jobs);
        let (permits, held, waiting) =
            (Gauges::<Named>::default(), Gauges::<Named>::default(), Gauges::<Named>::default());
        let oldest = Seconds::<Named>::default();
        for queue in &self.queues {
            let named = Named { queue: queue.name };
            permits.get_or_create(&named).set(queue.permits.into());
            held.get_or_create(&named).set(queue.held.into());
            waiting.get_or_create(&named).set(queue.waiting);
            oldest.get_or_create(&named).set(queue.oldest.as_secs_f64());
        }
        registry.register("queue_permits", "Sessions or calls that may run at a time", permits);
        registry.register("queue_running", "Sessions or calls that run", held);
        registry.register("queue_waiting", "Sessions or calls that wait", waiting);
        registry.register_with_unit("queue_oldest", "Time for which the oldest has waited", Unit::Seconds, oldest);
        let viewers = "Subscribers of events, and viewers of live pages";
        registry.register("subscribers", viewers, ConstGauge::new(self.subscribers));
        if let Some(dollars) = self.spent_today {
            let help = "US dollars in the ledger for this day (UTC)";
            registry.register("spent_today_dollars", help, ConstGauge::new(dollars));
        }
        registry
    }
}
