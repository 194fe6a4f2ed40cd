//! The state of a cluster for its operator: hosts, jobs, streams, and differences between hosts.
//!
//! A running host shows what it has heard ([`view`]); a command reads the same from NATS, and writes nothing ([`read`]).

mod settings;

use std::collections::BTreeMap;

use guild_cluster::{
    claims::Queue,
    link::{Link, Options, StreamState},
    presence::{Cards, HostSeen, read_cards},
    record::Owner,
    rules::Times,
    seal::Key,
    watch::Jobs,
};
use guild_config::ClusterOptions;
use guild_contract::host::cluster::{
    ClusterDifference, ClusterHost, ClusterHostState, ClusterJobs, ClusterStream, ClusterView,
};
use jiff::Timestamp;

pub(crate) use self::settings::{roots, settings};

/// The refreshes that a host may miss before it is shown as silent.
const MISSED: u32 = 3;

/// Reads the state of a cluster from its servers, with a host's own credentials. Nothing is written.
///
/// # Errors
///
/// Returns a sentence that says what to do when the cluster's key or the servers cannot be read.
pub async fn read(options: &ClusterOptions) -> Result<ClusterView, String> {
    let key = seal_key(options)?;
    let link = Link::connect(&servers(options)).await.map_err(|e| e.to_string())?;
    let queue = Queue::default();
    let (mut jobs, nobody) = (Jobs::latest(link.clone()), Owner::new(""));
    while let Some(seen) = jobs.next().await {
        queue.hear(&seen, &nobody);
    }
    let now = servers_now(options).await;
    let cards = read_cards(&link, &key, now).await.map_err(|e| e.to_string())?;
    let streams = link.states().await.map_err(|e| e.to_string())?;
    Ok(view(&options.name, cards, &queue, streams, now))
}

/// The time on the clocks of the servers, as far as one of them tells it; else that of this machine.
async fn servers_now(options: &ClusterOptions) -> i128 {
    let mut ahead = 0;
    for monitor in &options.monitor {
        if let Ok(server) = Link::check_server(monitor.as_str(), options.ca.as_deref()).await {
            ahead = server.ahead_milliseconds;
            break;
        }
    }
    Timestamp::now().as_nanosecond() + i128::from(ahead) * 1_000_000
}

/// The state of a cluster with these cards, jobs and streams. `now` is in nanoseconds since 1970.
pub(crate) fn view(name: &str, cards: Cards, queue: &Queue, streams: Vec<StreamState>, now: i128) -> ClusterView {
    let Cards { mut hosts, unsealed } = cards;
    hosts.sort_by(|one, other| one.owner.host.cmp(&other.owner.host));
    let seconds = |since: i128| u64::try_from((now - since) / 1_000_000_000).unwrap_or(0);
    let jobs = queue.by_member().into_iter();
    let jobs = jobs.map(|(member, (waiting, running))| ClusterJobs { member: member.to_string(), running, waiting });
    ClusterView {
        name: name.to_owned(),
        differences: differences(&hosts),
        hosts: hosts.into_iter().map(host_view).collect(),
        jobs: jobs.collect(),
        waiting: queue.waiting() as u64,
        oldest_waiting_seconds: queue.oldest().map(seconds),
        takeovers: None,
        streams: streams.into_iter().map(stream_view).collect(),
        unsealed,
    }
}

/// A host for its operator.
pub(crate) fn host_view(seen: HostSeen) -> ClusterHost {
    let HostSeen { owner, card, dead_by, silent } = seen;
    let state = match &dead_by {
        Some(by) if *by == owner.host => ClusterHostState::Left,
        Some(_) => ClusterHostState::Dead,
        None if silent > Times::default().refresh * MISSED => ClusterHostState::Silent,
        None => ClusterHostState::Alive,
    };
    ClusterHost {
        state,
        silent_seconds: silent.as_secs(),
        dead_by: dead_by.filter(|_| state == ClusterHostState::Dead),
        host: owner.host,
        url: card.url,
        version: card.version,
        places: card.places,
        members: card.members.into_keys().collect(),
        hall: card.hall,
    }
}

/// A stream for its operator.
pub(crate) fn stream_view(state: StreamState) -> ClusterStream {
    let lagging = state.replicas.iter().filter(|(_, is_current)| !is_current).map(|(node, _)| node.clone());
    ClusterStream {
        lagging: lagging.collect(),
        replicas: state.replicas.len() as u64 + 1,
        stream: state.stream.to_owned(),
        bytes: state.bytes,
        max_bytes: state.max_bytes,
        leader: state.leader,
    }
}

/// The settings and components that differ between the hosts that are neither dead nor gone.
pub(crate) fn differences(hosts: &[HostSeen]) -> Vec<ClusterDifference> {
    let alive: Vec<&HostSeen> = hosts.iter().filter(|host| host.dead_by.is_none()).collect();
    let mut settings: BTreeMap<String, BTreeMap<Option<&str>, Vec<String>>> = BTreeMap::new();
    let values = |host: &HostSeen| {
        let card = &host.card;
        let members = card.members.keys().map(|member| format!("member {member}"));
        card.settings.keys().cloned().chain(members).chain(["version".to_owned()]).collect::<Vec<_>>()
    };
    for name in alive.iter().flat_map(|host| values(host)) {
        settings.entry(name).or_default();
    }
    for (name, groups) in &mut settings {
        for host in &alive {
            let card = &host.card;
            let value = match name.strip_prefix("member ") {
                Some(member) => card.members.get(member).map(String::as_str),
                None if name == "version" => Some(card.version.as_str()),
                None => card.settings.get(name).map(String::as_str),
            };
            groups.entry(value).or_default().push(host.owner.host.clone());
        }
    }
    let differs = settings.into_iter().filter(|(_, groups)| groups.len() > 1);
    let difference = |(setting, groups): (String, BTreeMap<Option<&str>, Vec<String>>)| {
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        ClusterDifference { setting, groups }
    };
    differs.map(difference).collect()
}

/// How to reach the servers as the host of these options.
pub fn servers(options: &ClusterOptions) -> Options {
    Options {
        servers: options.servers.iter().map(|url| url.as_str().to_owned()).collect(),
        host: options.host.clone(),
        credentials: options.credentials.clone(),
        authority: options.ca.clone(),
    }
}

/// The key with which the hosts of a cluster seal what they write.
///
/// # Errors
///
/// Returns a sentence that says what to do when the cluster's key cannot be read.
pub fn seal_key(options: &ClusterOptions) -> Result<Key, String> {
    Ok(Key::of_cluster(&options.name, options.read_key()?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use guild_cluster::presence::Card;

    use super::*;

    fn seen(host: &str, settings: &[(&str, &str)], dead_by: Option<&str>) -> HostSeen {
        let settings = settings.iter().map(|(name, digest)| ((*name).to_owned(), (*digest).to_owned())).collect();
        HostSeen {
            owner: Owner::new(host),
            card: Card { settings, version: "1".to_owned(), ..Card::default() },
            dead_by: dead_by.map(str::to_owned),
            silent: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_difference_is_named_with_the_hosts_of_each_value() {
        let mut c = seen("c", &[("limits", "1"), ("roots", "3")], None);
        c.card.members = BTreeMap::from([("quick".to_owned(), "digest".to_owned())]);
        let hosts = [
            seen("a", &[("limits", "1"), ("roots", "1")], None),
            seen("b", &[("limits", "1")], None),
            c,
            seen("gone", &[("limits", "2")], Some("a")),
        ];
        let found = differences(&hosts);
        let names: Vec<&str> = found.iter().map(|difference| difference.setting.as_str()).collect();
        assert_eq!(names, ["member quick", "roots"]);
        assert_eq!(found[0].groups, [vec!["a", "b"], vec!["c"]]);
        assert_eq!(found[1].groups.len(), 3);
        let whole = Cards { hosts: hosts.into(), unsealed: Vec::new() };
        let states: Vec<_> =
            view("x", whole, &Queue::default(), Vec::new(), 0).hosts.into_iter().map(|host| host.state).collect();
        assert_eq!(states[..3], [ClusterHostState::Alive; 3]);
        assert_eq!(states[3], ClusterHostState::Dead);
    }
}
