//! What a host sends to NATS and gets from it, at rest and for each job; and the number of hosts that NATS serves.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use async_nats::{
    Client,
    jetstream::{
        self,
        stream::{Config, DiscardPolicy},
    },
};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{interval_at, sleep, timeout},
};

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

/// The numbers of hosts, up to the one that NATS does not serve, and the rounds of each host.
const HOSTS: [usize; 9] = [50, 100, 200, 400, 800, 1200, 1600, 2000, 2400];
const ROUNDS: usize = 3;
/// The interval at which a host writes its card and reads the others, the size of a card, and the cards of one request,
/// as in `host/cluster`.
const REFRESH: Duration = Duration::from_secs(5);
const CARD_BYTES: usize = 700;
const BATCH: usize = 256;
/// How long an answer is waited for: a host that sees nothing for so long stops.
const ANSWER: Duration = Duration::from_secs(20);
const STREAM: &str = "cards";
/// The connections of all hosts.
const CONNECTIONS: usize = 8;

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
    looks(report, &cluster).await
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

/// Lets more and more hosts say that they are there and read who else is, until that takes a host too long.
async fn looks(report: &mut Report, cluster: &Cluster) -> Outcome<()> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(async_nats::connect(cluster.nats.urls()).await?);
    }
    let cards = Config {
        name: STREAM.to_owned(),
        subjects: vec![format!("{STREAM}.>")],
        num_replicas: 3,
        max_messages_per_subject: 1,
        discard: DiscardPolicy::New,
        allow_direct: true,
        ..Config::default()
    };
    let writer = clients.first().ok_or("there is no connection")?.clone();
    jetstream::new(writer).create_stream(cards).await?;
    let mut served = 0;
    for hosts in HOSTS {
        let begun = Instant::now();
        let mut tasks = JoinSet::new();
        for (host, client) in clients.iter().cycle().take(hosts).enumerate() {
            let first = begun + REFRESH * u32::try_from(host)? / u32::try_from(hosts)?;
            tasks.spawn(rounds(client.clone(), host, first));
        }
        let (mut took, mut failed) = (Vec::new(), None);
        while let Some(rounds) = tasks.join_next().await {
            match rounds? {
                // In the first round not all cards are there.
                Ok(rounds) => took.extend(rounds.into_iter().skip(1)),
                Err(why) => failed = Some(why),
            }
        }
        if let Some(why) = failed {
            println!("{hosts} hosts: {why}");
            break;
        }
        let slowest = percentile(&took, 0.99);
        let rate = (hosts * hosts) as f64 / REFRESH.as_secs_f64();
        let how = format!("median {:.0} ms; {rate:.0} cards a second", percentile(&took, 0.5));
        report.add(&format!("{hosts} hosts, a host's look at all, p99"), slowest, "ms", Aim::Stated, &how);
        if slowest > ms(REFRESH) {
            break;
        }
        served = hosts;
    }
    report.add("hosts that see each other, at most", served as f64, "", Aim::Stated, "each within 5 s");
    Ok(())
}

/// The milliseconds that a host took in each round to write its card and to read those of all.
async fn rounds(client: Client, host: usize, first: Instant) -> Outcome<Vec<f64>> {
    let mut ticks = interval_at(first.into(), REFRESH);
    let (context, mut took) = (jetstream::new(client.clone()), Vec::new());
    for _ in 0..ROUNDS {
        ticks.tick().await;
        let begun = Instant::now();
        context.publish(format!("{STREAM}.{host}"), "x".repeat(CARD_BYTES).into()).await?.await?;
        let mut from = Some(1);
        while let Some(sequence) = from {
            from = page(&client, sequence).await?;
        }
        took.push(ms(begun.elapsed()));
    }
    Ok(took)
}

/// Reads the cards from a sequence on, as many as one request has. Returns the sequence after them, if there are more.
async fn page(client: &Client, from: u64) -> Outcome<Option<u64>> {
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await?;
    let request = json!({"seq": from, "next_by_subj": format!("{STREAM}.>"), "batch": BATCH}).to_string();
    client.publish_with_reply(format!("$JS.API.DIRECT.GET.{STREAM}"), inbox, request.into()).await?;
    let mut next = from;
    loop {
        let answer = timeout(ANSWER, answers.next()).await?.ok_or("the connection ended")?;
        let number = |name: &str| answer.headers.as_ref()?.get(name)?.as_str().parse::<u64>().ok();
        if answer.status.is_some() {
            return Ok(number("Nats-Num-Pending").filter(|more| *more > 0).map(|_| next));
        }
        next = number("Nats-Sequence").ok_or("a card has no sequence")? + 1;
    }
}
