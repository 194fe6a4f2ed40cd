//! Ports for the servers that a test starts on loopback addresses.

use std::{
    collections::BTreeSet,
    env,
    hash::{BuildHasher as _, RandomState},
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    sync::{Mutex, PoisonError},
};

/// Ports for servers. No outgoing connection of Linux or macOS uses one of these.
const PORTS: Range<u16> = 10_000..32_000;
/// The distances from the port of a NATS node to its others, as `guild cluster init` writes them.
const OF_NODE: [u16; 2] = [2_000, 4_000];
/// The number of sets into which the ports are divided, one for each test that runs at the same time: a server that its
/// test has closed for a while has to find its port free again.
const SETS: u16 = 20;
/// The ports that this process was given.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port on which nobody listens. No other server of this test is given it, and none of a test that runs at the same
/// time.
pub fn free_port() -> u16 {
    find(&[])
}

/// Ports for the nodes of a cluster that `guild cluster init` writes, which uses those 2000 and 4000 higher too.
pub fn free_node_ports(count: usize) -> Vec<u16> {
    (0..count).map(|_| find(&OF_NODE)).collect()
}

/// A free port, with those higher by `more`.
#[allow(clippy::expect_used, reason = "a test without a port cannot continue")]
fn find(more: &[u16]) -> u16 {
    // The test runner numbers the tests that run at the same time.
    let slot = env::var("NEXTEST_TEST_GLOBAL_SLOT").ok().and_then(|slot| slot.parse::<u16>().ok());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let numbers = (0..100_000_u64).map(|number| RandomState::new().hash_one(number));
    let mut ports = numbers.filter_map(|hash| {
        let port = PORTS.start + u16::try_from(hash % PORTS.len() as u64).ok()?;
        Some([0].iter().chain(more).map(|more| port + more).collect::<Vec<_>>())
    });
    let is_free = |port: &u16| {
        PORTS.contains(port)
            && slot.is_none_or(|slot| port % SETS == slot % SETS)
            && !given.contains(port)
            && TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()
    };
    let found = ports.find(|ports| ports.iter().all(is_free)).expect("a port is free");
    given.extend(&found);
    *found.first().expect("the port itself")
}
