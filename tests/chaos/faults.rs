//! The faults of a run, which a seed decides.

use std::{
    collections::BTreeMap,
    thread::{self, sleep},
    time::Duration,
};

use fastrand::Rng;
use guild_fakes::Mode;

use super::{
    cluster::{Cluster, HOSTS, NODES},
    history::{Entry, Recorder},
};

/// The time between the beginnings of two faults, at least and at most.
const PAUSE: (u64, u64) = (5_000, 9_000);

/// The process, or the connections, that a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Host(usize),
    Node(usize),
    AllNodes,
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Kill,
    Pause,
    BlackHole { to_server: bool, to_client: bool },
    Delay(Duration),
    Reset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) target: Target,
    pub(super) kind: Kind,
    pub(super) lasts: Duration,
    /// The time until the next fault.
    pub(super) pause: Duration,
}

impl Fault {
    fn random(random: &mut Rng) -> Self {
        let host = Target::Host(random.usize(..HOSTS.len()));
        let node = Target::Node(random.usize(..NODES));
        let hole = |to_server, to_client| Kind::BlackHole { to_server, to_client };
        // (weight, target, kind, seconds)
        let kinds = [
            (3, host, Kind::Kill, &[1, 2][..]),
            (2, host, Kind::Kill, &[40]),
            (3, host, Kind::Pause, &[5, 25, 40]),
            (2, host, hole(true, true), &[5, 25, 40]),
            (2, host, [hole(true, false), hole(false, true)][random.usize(..2)], &[5, 25, 40]),
            (1, host, Kind::Delay(Duration::from_millis(200)), &[10]),
            (1, host, Kind::Reset, &[0]),
            (2, node, Kind::Kill, &[2, 10]),
            (2, node, Kind::Pause, &[5, 15]),
            (1, Target::AllNodes, Kind::Kill, &[1, 8]),
        ];
        let mut rest = random.usize(..kinds.iter().map(|(weight, ..)| weight).sum::<usize>());
        let (_, target, kind, seconds) = kinds
            .into_iter()
            .find(|(weight, ..)| {
                let is_chosen = rest < *weight;
                rest = rest.wrapping_sub(*weight);
                is_chosen
            })
            .unwrap();
        let lasts = Duration::from_secs(seconds[random.usize(..seconds.len())]);
        let pause = random.u64(PAUSE.0..PAUSE.1);
        Self { target, kind, lasts, pause: Duration::from_millis(pause) }
    }

    /// One fault of each kind, which together take a minute: a host is dead, and another one is taken for dead, while the
    /// third one and its NATS servers have faults of their own.
    pub(super) fn few() -> Vec<Self> {
        let hole = Kind::BlackHole { to_server: false, to_client: true };
        let faults = [
            (Target::Host(0), Kind::Kill, 40),
            (Target::Node(0), Kind::Kill, 5),
            (Target::Host(1), Kind::Pause, 40),
            (Target::Host(2), hole, 5),
            (Target::AllNodes, Kind::Kill, 1),
        ];
        let fault = |(target, kind, seconds)| {
            let (lasts, pause) = (Duration::from_secs(seconds), Duration::from_millis(PAUSE.0));
            Self { target, kind, lasts, pause }
        };
        faults.map(fault).to_vec()
    }

    /// The faults of a seed. None happens to a host or a NATS server to which another one still happens.
    pub(super) fn all(seed: u64, count: usize) -> Vec<Self> {
        let mut random = Rng::with_seed(seed);
        let (mut faults, mut now, mut busy) = (Vec::new(), Duration::ZERO, BTreeMap::new());
        while faults.len() < count {
            let fault = Self::random(&mut random);
            let is_busy = |target: Target| busy.get(&target).is_some_and(|until| *until > now);
            let nodes = (0..NODES).map(Target::Node);
            let is_taken = match fault.target {
                Target::AllNodes => nodes.chain([Target::AllNodes]).any(is_busy),
                Target::Node(_) => is_busy(fault.target) || is_busy(Target::AllNodes),
                Target::Host(_) => is_busy(fault.target),
            };
            if is_taken {
                // Time passes, so that there is a free target at last.
                now += Duration::from_secs(1);
                if let Some(last) = faults.last_mut() {
                    let Self { pause, .. } = last;
                    *pause += Duration::from_secs(1);
                }
                continue;
            }
            // A host starts again for a while.
            busy.insert(fault.target, now + fault.lasts + Duration::from_secs(5));
            now += fault.pause;
            faults.push(fault);
        }
        faults
    }

    /// The name that the summary counts the fault by.
    pub(super) fn name(&self) -> String {
        let target = match self.target {
            Target::Host(_) => "host",
            Target::Node(_) => "NATS server",
            Target::AllNodes => "all NATS servers",
        };
        let seconds = self.lasts.as_secs();
        match self.kind {
            Kind::Kill => format!("SIGKILL {target}, started again after {seconds} s"),
            Kind::Pause => format!("SIGSTOP {target} for {seconds} s"),
            Kind::BlackHole { to_server: true, to_client: true } => {
                format!("black hole {target} and NATS for {seconds} s")
            }
            Kind::BlackHole { to_server: true, .. } => format!("black hole {target} to NATS for {seconds} s"),
            Kind::BlackHole { .. } => format!("black hole NATS to {target} for {seconds} s"),
            Kind::Delay(time) => format!("delay of {} ms {target} and NATS for {seconds} s", time.as_millis()),
            Kind::Reset => format!("reset {target} and NATS"),
        }
    }

    /// Causes the fault, and heals it after its time.
    fn happen(self, cluster: &Cluster, recorder: &Recorder) {
        let began = recorder.now();
        match self.target {
            Target::Host(host) => {
                let slot = &cluster.slots[host];
                match self.kind {
                    Kind::Kill => slot.kill(),
                    Kind::Pause => slot.signal("-STOP"),
                    Kind::BlackHole { to_server, to_client } => {
                        slot.connections(Mode::BlackHole { to_server, to_client })
                    }
                    Kind::Delay(time) => slot.connections(Mode::Delay(time)),
                    Kind::Reset => slot.reset(),
                }
                sleep(self.lasts);
                match self.kind {
                    Kind::Kill => slot.revive(),
                    Kind::Pause => slot.signal("-CONT"),
                    _ => slot.connections(Mode::Pass),
                }
            }
            Target::Node(node) => self.nodes(cluster, &[node]),
            Target::AllNodes => self.nodes(cluster, &(0..NODES).collect::<Vec<_>>()),
        }
        let hosts = match self.target {
            Target::Host(host) => vec![HOSTS[host].to_owned()],
            _ => HOSTS.map(str::to_owned).to_vec(),
        };
        recorder.add(Entry::Faulted { kind: self.name(), hosts, began, ended: recorder.now() });
    }

    fn nodes(self, cluster: &Cluster, nodes: &[usize]) {
        let each = |change: &dyn Fn(&mut guild_fakes::Nats, usize)| {
            let mut nats = cluster.nats.lock().unwrap();
            nodes.iter().for_each(|node| change(&mut nats, *node));
        };
        if self.kind == Kind::Kill {
            each(&|nats, node| nats.kill(node));
            sleep(self.lasts);
            each(&|nats, node| nats.restart(node));
        } else {
            each(&|nats, node| nats.pause(node));
            sleep(self.lasts);
            each(&|nats, node| nats.resume(node));
        }
    }
}

/// Causes the faults one after the other, and returns when all are healed.
pub(super) fn happen(seed: u64, faults: &[Fault], cluster: &Cluster, recorder: &Recorder) {
    thread::scope(|scope| {
        for fault in faults {
            println!("seed {seed}, {:7.1} s  {}", recorder.now() as f64 / 1000.0, fault.name());
            scope.spawn(|| fault.happen(cluster, recorder));
            sleep(fault.pause);
        }
    });
}

#[test]
fn a_seed_decides_all_faults_and_no_target_has_two_at_once() {
    let faults = Fault::all(7, 200);
    assert_eq!(faults, Fault::all(7, 200));
    assert_ne!(faults, Fault::all(8, 200));
    let (mut now, mut until) = (Duration::ZERO, BTreeMap::new());
    for fault in faults {
        let before: Option<Duration> = until.insert(fault.target, now + fault.lasts);
        assert!(before.is_none_or(|before| before <= now), "{fault:?}");
        now += fault.pause;
    }
}
