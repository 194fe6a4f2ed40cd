//! Checks the cluster of a host for `guild doctor`: NATS servers, streams, clocks, and differences between hosts.

use guild_cluster::{
    link::{Link, Server},
    presence::{HostSeen, read_cards},
    record::Owner,
    seal::Key,
};
use guild_config::{ClusterOptions, Config};
use guild_contract::host::{
    Check, CheckKind as Kind,
    cluster::{ClusterHostState, ClusterStream},
};
use jiff::Timestamp;

use crate::cluster_view::{differences, host_view, roots, seal_key, servers, settings, stream_view};

/// The difference of two clocks that is reported, in milliseconds.
const CLOCK_MILLISECONDS: u64 = 2000;
/// The fill of a stream that is reported, in percent.
const FULL_PERCENT: u64 = 80;

/// Runs all checks. Nothing is written.
pub(super) async fn look_at_cluster(options: &ClusterOptions, config: &Config) -> Vec<Check> {
    let (mut checks, mut ahead) = (Vec::new(), 0);
    for monitor in &options.monitor {
        let found = Link::check_server(monitor.as_str(), options.ca.as_deref()).await;
        if let Ok(server) = &found {
            ahead = server.ahead_milliseconds;
            checks.extend(clock(server));
        }
        let said = |server: Server| format!("{} is NATS {}; writes are on its disk", server.name, server.version);
        checks.push(Check::new(Kind::Cluster, monitor, true, found.map(said).map_err(|e| e.to_string())));
    }
    let key = seal_key(options);
    checks.push(Check::new(Kind::Cluster, "key", true, key.clone().map(|_| format!("{} has one", options.key))));
    let link = Link::connect(&servers(options)).await.map_err(|e| e.to_string());
    let said = |link: &Link| format!("connected to {} as {}", link.server(), options.host);
    checks.push(Check::new(Kind::Cluster, &options.name, true, link.as_ref().map(said).map_err(Clone::clone)));
    let Ok(link) = link else { return checks };
    if let Err(why) = link.check_streams().await {
        checks.push(Check::new(Kind::Cluster, "streams", true, Err(why.to_string())));
        return checks;
    }
    match link.states().await {
        Ok(states) => checks.extend(states.into_iter().map(|state| look_at_stream(&stream_view(state)))),
        Err(why) => checks.push(Check::new(Kind::Cluster, "streams", true, Err(why.to_string()))),
    }
    let Ok(key) = key else { return checks };
    let now = Timestamp::now().as_nanosecond() + i128::from(ahead) * 1_000_000;
    match read_cards(&link, &key, now).await {
        Ok(cards) => {
            checks.push(look_at_hosts(&cards.hosts, &cards.unsealed));
            checks.extend(compare(options, config, &key, cards.hosts));
        }
        Err(why) => checks.push(Check::new(Kind::Cluster, "hosts", true, Err(why.to_string()))),
    }
    checks
}

/// The difference of a server's clock from this machine's, if it is large.
fn clock(server: &Server) -> Option<Check> {
    let ahead = server.ahead_milliseconds;
    (ahead.unsigned_abs() > CLOCK_MILLISECONDS).then(|| {
        let word = if ahead > 0 { "ahead of" } else { "behind" };
        let seconds = ahead.unsigned_abs() / 1000;
        let why = format!(
            "the clock of {} is {seconds} s {word} this machine's; set both by NTP, or times of jobs and the expiry of \
             tokens are off",
            server.name
        );
        Check::differs(Kind::Cluster, "clock", why)
    })
}

fn look_at_stream(stream: &ClusterStream) -> Check {
    let fill = match (stream.max_bytes, stream.percent()) {
        (Some(max), Some(percent)) => format!("{} bytes of {max}, {percent} %", stream.bytes),
        _ => format!("{} bytes", stream.bytes),
    };
    let name = &stream.stream;
    let found = if stream.percent().is_some_and(|percent| percent > FULL_PERCENT) {
        Err(format!(
            "{fill}; a full stream refuses new jobs: raise its limit with `nats stream edit {name} --max-bytes`"
        ))
    } else if stream.lagging.is_empty() {
        Ok(format!("{fill}, at {}", stream.servers()))
    } else {
        let lagging = stream.lagging.join(", ");
        Err(format!("{fill}; it is not up to date at {lagging}: wait, or look at the log of nats-server there"))
    };
    Check::new(Kind::Cluster, name, false, found)
}

fn look_at_hosts(hosts: &[HostSeen], unsealed: &[String]) -> Check {
    if !unsealed.is_empty() {
        let why = format!(
            "the cards of {} are not sealed with this host's key: they have another key, or somebody else has credentials \
             at NATS",
            unsealed.join(", ")
        );
        return Check::new(Kind::Cluster, "hosts", false, Err(why));
    }
    let host = |seen: &HostSeen| {
        let view = host_view(seen.clone());
        match view.state {
            ClusterHostState::Alive => format!("{} is alive", view.host),
            state => format!("{} is {} for {} s", view.host, state.as_str(), view.silent_seconds),
        }
    };
    let found = hosts.iter().map(host).collect::<Vec<_>>().join("; ");
    Check::new(Kind::Cluster, "hosts", false, Ok(if found.is_empty() { "none yet".to_owned() } else { found }))
}

/// The differences between the other hosts and this one, as it would be started now.
fn compare(options: &ClusterOptions, config: &Config, key: &Key, mut hosts: Vec<HostSeen>) -> Vec<Check> {
    let own = &options.host;
    hosts.retain(|host| host.dead_by.is_none());
    let runs = hosts.iter().any(|host| host.owner.host == *own);
    if !runs {
        let owner = Owner { host: own.clone(), incarnation: String::new() };
        hosts.push(HostSeen { owner, card: Default::default(), dead_by: None, silent: Default::default() });
    }
    for host in hosts.iter_mut().filter(|host| host.owner.host == *own) {
        host.card.settings = settings(config, key, &roots(config));
        host.card.version = env!("CARGO_PKG_VERSION").to_owned();
    }
    // The components of a host that does not run are not known.
    let known = differences(&hosts).into_iter().filter(|found| runs || !found.setting.starts_with("member "));
    let known = known.map(|found| {
        let is_own = |group: &&Vec<String>| group.contains(own);
        let others: Vec<&str> =
            found.groups.iter().filter(|group| !is_own(group)).flatten().map(String::as_str).collect();
        let why = format!("{} has another value here than at {}; make them the same", found.setting, others.join(", "));
        Check::differs(Kind::Cluster, &found.setting, why)
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use guild_contract::host::CheckState;

    use super::*;

    #[test]
    fn clocks_that_differ_and_streams_that_fill_up_are_reported() {
        let of = |ahead_milliseconds| {
            let (name, version) = ("n1".to_owned(), "2.15.1".to_owned());
            clock(&Server { name, version, ahead_milliseconds }).map(|check| check.detail)
        };
        assert_eq!(of(1900), None);
        assert!(of(-3500).unwrap().starts_with("the clock of n1 is 3 s behind this machine's"));
        let stream = |bytes, lagging: &[&str]| {
            let lagging = lagging.iter().map(|node| (*node).to_owned()).collect();
            let (stream, max_bytes) = ("guild_log".to_owned(), Some(1000));
            look_at_stream(&ClusterStream { stream, bytes, max_bytes, leader: None, replicas: 3, lagging })
        };
        assert_eq!(stream(800, &[]).state, CheckState::Usable);
        assert!(stream(811, &[]).detail.contains("81 %; a full stream refuses new jobs"));
        assert!(stream(0, &["n2"]).detail.contains("not up to date at n2"));
    }
}
