//! What a host sends to NATS and gets from it, at rest and for each job; and the number of hosts that NATS serves.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_nats::jetstream::{
    self,
    consumer::{DeliverPolicy, push::OrderedConfig},
    context,
    stream::{Config, DiscardPolicy},
};
use futures::StreamExt as _;
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::{Cluster, TURNS, dispatch_all, model, start};
use crate::{
    Outcome,
    jobs::all_ended,
    stats::{Aim, Report, ms, percentile},
};

/// The time for which hosts are at rest.
const REST: Duration = Duration::from_secs(30);
const JOBS: usize = 100;
/// How long the provider takes for a turn.
const TURN: Duration = Duration::from_millis(200);

/// The numbers of hosts, up to the one that NATS does not serve, and the time for each.
const WATCHERS: [usize; 8] = [50, 100, 200, 400, 800, 1200, 1600, 2000];
const WATCHED: Duration = Duration::from_secs(10);
/// The interval at which a host writes its card, as in `host/cluster`, and the size of a card.
const REFRESH: Duration = Duration::from_secs(5);
const CARD_BYTES: usize = 700;
/// NATS gives way where the slowest cards come later than this.
const MOST_DELAY: f64 = 1000.0;
/// The connections of all watchers, and the timeout for one to be made.
const CONNECTIONS: usize = 8;
const MADE: Duration = Duration::from_secs(10);

pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    let cluster = Cluster::new("cluster-traffic", model(TURNS, TURN).await)?;
    let a = start(&cluster.host("a", JOBS)?).await?;
    let b = start(&cluster.host("b", JOBS)?).await?;
    let c = start(&cluster.host("c", JOBS)?).await?;
    dispatch_all(&a, 4).await?;
    all_ended(&c).await?;
    sleep(REFRESH).await;

    let traffic = || Traffic::of(&cluster);
    let before = traffic()?;
    sleep(REST).await;
    let rest = traffic()?.since(&before);
    let of = |sum: &Traffic, host: &str| sum.0.get(host).copied().unwrap_or_default();
    let seconds = REST.as_secs_f64();
    let mut add = |what: &str, sum: [f64; 4], each: f64| {
        let [sent, got, bytes_sent, bytes_got] = sum.map(|value| value / each);
        let how = format!("{:.1} KiB; receives {got:.2} messages, {:.1} KiB", bytes_sent / 1024.0, bytes_got / 1024.0);
        report.add(&format!("{what}, messages sent"), sent, "", Aim::Stated, &how);
    };
    add("a host of three at rest, each second", of(&rest, "b"), seconds);

    let (before, begun) = (traffic()?, Instant::now());
    dispatch_all(&a, JOBS).await?;
    all_ended(&c).await?;
    sleep(Duration::from_secs(2)).await;
    let (took, busy) = (begun.elapsed().as_secs_f64(), traffic()?.since(&before));
    for (what, host) in [("the host of a job of 20 turns, for the job", "a"), ("another host, for the job", "c")] {
        let (all, rest) = (of(&busy, host), of(&rest, host));
        let own = [0, 1, 2, 3].map(|nth: usize| {
            let of = |sum: [f64; 4]| sum.get(nth).copied().unwrap_or_default();
            of(all) - of(rest) * took / seconds
        });
        add(what, own, JOBS as f64);
    }
    drop((a, b, c));
    watchers(report, &cluster).await
}

/// The messages and bytes that each host has sent to NATS, and has got from it.
struct Traffic(BTreeMap<String, [f64; 4]>);

impl Traffic {
    /// Adds up what the servers say of their connections.
    fn of(cluster: &Cluster) -> Outcome<Self> {
        let mut hosts = BTreeMap::<String, [f64; 4]>::new();
        for monitor in cluster.nats.monitors() {
            let mut stream = TcpStream::connect(monitor.trim_start_matches("http://"))?;
            stream.write_all(b"GET /connz?limit=1024 HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            let (_, body) = answer.split_once("\r\n\r\n").ok_or("/connz is not answered")?;
            let connections: Value = serde_json::from_str(body)?;
            for connection in connections.get("connections").and_then(Value::as_array).into_iter().flatten() {
                let name = connection.get("name").and_then(Value::as_str).unwrap_or_default();
                let sums = hosts.entry(name.to_owned()).or_default();
                for (sum, field) in sums.iter_mut().zip(["in_msgs", "out_msgs", "in_bytes", "out_bytes"]) {
                    *sum += connection.get(field).and_then(Value::as_f64).unwrap_or_default();
                }
            }
        }
        Ok(Self(hosts))
    }

    fn since(&self, before: &Self) -> Self {
        let less = |(host, after): (&String, &[f64; 4])| {
            let mut sums = *after;
            for (sum, before) in sums.iter_mut().zip(before.0.get(host).copied().unwrap_or_default()) {
                *sum -= before;
            }
            (host.clone(), sums)
        };
        Self(self.0.iter().map(less).collect())
    }
}

/// Lets more and more watchers follow the cards of as many hosts, until cards come late.
async fn watchers(report: &mut Report, cluster: &Cluster) -> Outcome<()> {
    let mut contexts = Vec::new();
    for _ in 0..CONNECTIONS {
        contexts.push(jetstream::new(async_nats::connect(cluster.nats.urls()).await?));
    }
    let writer = jetstream::new(async_nats::connect(cluster.nats.urls()).await?);
    let cards = Config {
        name: "cards".to_owned(),
        subjects: vec!["cards.>".to_owned()],
        num_replicas: 3,
        max_consumers: 10_000,
        max_messages_per_subject: 1,
        discard: DiscardPolicy::New,
        ..Config::default()
    };
    writer.create_stream(cards).await?;
    let mut served = 0;
    for hosts in WATCHERS {
        let delays = match presence(&contexts, &writer, hosts).await {
            Ok(delays) => delays,
            Err(why) => {
                println!("{hosts} watchers: {why}");
                break;
            }
        };
        let (rate, slowest) = (delays.len() as f64 / WATCHED.as_secs_f64(), percentile(&delays, 0.99));
        let lost = (hosts * hosts) as f64 / REFRESH.as_secs_f64() - rate;
        let how = format!("median {:.0} ms; {rate:.0} cards a second, {lost:.0} not in time", percentile(&delays, 0.5));
        report.add(&format!("{hosts} hosts that watch each other, card p99"), slowest, "ms", Aim::Stated, &how);
        if slowest > MOST_DELAY || lost > rate * 0.1 {
            break;
        }
        served = hosts;
    }
    report.add("hosts that watch each other, at most", served as f64, "", Aim::Stated, "each card within a second");
    Ok(())
}

/// The milliseconds after which the cards of so many hosts came to each of as many watchers.
async fn presence(contexts: &[context::Context], writer: &context::Context, hosts: usize) -> Outcome<Vec<f64>> {
    let begun = Instant::now();
    let delays = Arc::new(Mutex::new(Vec::new()));
    let mut watchers = tokio::task::JoinSet::new();
    for context in contexts.iter().cycle().take(hosts) {
        let stream = context.get_stream("cards").await?;
        let (deliver_subject, deliver_policy) = (context.client().new_inbox(), DeliverPolicy::New);
        let config = OrderedConfig { deliver_subject, deliver_policy, ..OrderedConfig::default() };
        let consumer = timeout(MADE, stream.create_consumer(config)).await??;
        let (mut messages, delays) = (consumer.messages().await?, delays.clone());
        watchers.spawn(async move {
            while let Some(Ok(message)) = messages.next().await {
                let sent = std::str::from_utf8(message.payload.trim_ascii()).ok().and_then(|text| text.parse().ok());
                let Some(sent) = sent.map(Duration::from_micros) else { continue };
                let mut delays = delays.lock().unwrap_or_else(PoisonError::into_inner);
                delays.push(ms(begun.elapsed().saturating_sub(sent)));
            }
        });
    }
    let mut ticks = interval(REFRESH / u32::try_from(hosts)?);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let count = hosts * usize::try_from(WATCHED.as_secs() / REFRESH.as_secs())?;
    for nth in 0..count {
        ticks.tick().await;
        let card = format!("{:<CARD_BYTES$}", begun.elapsed().as_micros());
        writer.client().publish(format!("cards.{}", nth % hosts), card.into()).await?;
    }
    sleep(Duration::from_secs(2)).await;
    let delays = delays.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(delays)
}
