//! Renders the state of a host together with what was recorded.

use std::{collections::BTreeMap, fmt, sync::atomic::AtomicU64, time::Duration};

use guild_contract::{JobStatus, MemberService, rpc::JobCounts};
use prometheus_client::{
    encoding::{
        EncodeLabelSet,
        text::{encode_eof, encode_registry},
    },
    metrics::{
        counter::ConstCounter,
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
    /// The cluster; none for a host on its own.
    pub cluster: Option<ClusterFigures>,
}

/// The cluster as a host sees it.
#[derive(Debug)]
pub struct ClusterFigures {
    /// The hosts that are alive, with this one.
    pub hosts: u64,
    /// The jobs that wait for a host.
    pub waiting: u64,
    /// The time for which the oldest of them has waited.
    pub oldest: Duration,
    /// The free places of all hosts that are alive, by runtime.
    pub places: BTreeMap<String, u64>,
    /// The jobs that this host has gone on with after another host had begun them.
    pub takeovers: u64,
    /// The jobs that this host wanted to take, and another one got.
    pub claims_lost: u64,
    /// Bytes of this host's jobs that are not stored yet.
    pub outbox_bytes: u64,
    /// The time since this host's last acknowledged refresh of its presence was sent.
    pub refreshed: Duration,
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
struct Runtime {
    runtime: String,
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
        if let Some(cluster) = &self.cluster {
            cluster.register(&mut registry);
        }
        registry
    }
}

impl ClusterFigures {
    fn register(&self, registry: &mut Registry) {
        let places = Gauges::<Runtime>::default();
        for (runtime, free) in &self.places {
            places.get_or_create(&Runtime { runtime: runtime.clone() }).set(*free);
        }
        let gauge = ConstGauge::new;
        registry.register("cluster_hosts", "Hosts of the cluster that are alive", gauge(self.hosts));
        registry.register("cluster_jobs_waiting", "Jobs that wait for a host of the cluster", gauge(self.waiting));
        let help = "The time for which the oldest of them has waited";
        let seconds = |time: Duration| ConstGauge::new(time.as_secs_f64());
        registry.register_with_unit("cluster_oldest", help, Unit::Seconds, seconds(self.oldest));
        registry.register("cluster_places_free", "Free places of all hosts that are alive", places);
        let help = "Jobs that this host has gone on with after another host had begun them";
        registry.register("cluster_takeovers", help, ConstCounter::new(self.takeovers));
        let help = "Jobs that this host wanted to take, and another one got";
        registry.register("cluster_claims_lost", help, ConstCounter::new(self.claims_lost));
        let help = "Records of this host's jobs that are not stored yet";
        registry.register_with_unit("cluster_outbox", help, Unit::Bytes, gauge(self.outbox_bytes));
        let help = "The time since the last acknowledged refresh of this host's presence";
        registry.register_with_unit("cluster_refresh_age", help, Unit::Seconds, seconds(self.refreshed));
    }
}
