//! Dispatches of a host in a cluster compared with those of a host in none; status and events at another host.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use super::{Cluster, dispatches, job, model, start};
use crate::{
    Outcome,
    host::{Host, call},
    jobs::{all_ended, ask_all},
    load::{Connection, request},
    stats::{Aim, Report, median, ms, percentile},
};

/// The dispatches of one block, the pause between two of them, and the number of blocks of each host, which alternate.
const BLOCK: usize = 100;
const PAUSE: Duration = Duration::from_millis(50);
const BLOCKS: usize = 4;
/// The dispatches of a burst, and the number of bursts of each host, which alternate.
const BURST: usize = 32;
const BURSTS: usize = 15;
const PLACES: usize = 64;

pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    let cluster = Cluster::new("cluster-dispatch", model(1, Duration::ZERO).await)?;
    let embedded = start(&cluster.embedded(PLACES)?).await?;
    let a = start(&cluster.host("a", PLACES)?).await?;
    let b = start(&cluster.host("b", PLACES)?).await?;
    for host in [&embedded, &a, &b] {
        ask_all(host, 1, dispatches(4)).await?;
        all_ended(host).await?;
    }
    let (here, there) = (Events::follow(a.address)?, Events::follow(b.address)?);
    let (mut bare, mut ours, mut statuses) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..BLOCKS {
        bare.extend(paced(&embedded, None).await?.0);
        all_ended(&embedded).await?;
        let (dispatched, asked) = paced(&a, Some(&b)).await?;
        ours.extend(dispatched);
        statuses.extend(asked);
        all_ended(&a).await?;
    }
    for (name, share, most) in [("p50", 0.5, 5.0), ("p99", 0.99, 40.0)] {
        let (bare, ours) = (percentile(&bare, share), percentile(&ours, share));
        let how = format!("{ours:.1} ms, {bare:.1} ms in no cluster; {} each", BLOCK * BLOCKS);
        report.add(&format!("dispatch at 20/s in a cluster, {name}"), ours - bare, "ms more", Aim::AtMost(most), &how);
    }
    let how = format!("median {:.1} ms; right after each dispatch", median(&statuses));
    report.add("status at another host, p99", percentile(&statuses, 0.99), "ms", Aim::AtMost(20.0), &how);
    let delays = here.delays(&there);
    let how = format!("median {:.1} ms; {} events, at the job's host and at another", median(&delays), delays.len());
    report.add("event at another host, p99", percentile(&delays, 0.99), "ms", Aim::AtMost(100.0), &how);
    let missing = here.times().len().saturating_sub(delays.len()) as f64;
    report.add("events that the other host did not tell", missing, "", Aim::AtMost(0.0), "");

    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..BURSTS {
        for (host, rates) in [(&embedded, &mut bare), (&a, &mut ours)] {
            let begun = Instant::now();
            let answers = ask_all(host, BURST, dispatches(BURST)).await?;
            rates.push(BURST as f64 / begun.elapsed().as_secs_f64());
            answers.iter().try_for_each(|answer| job(answer).map(drop))?;
            all_ended(host).await?;
        }
    }
    let (bare, ours) = (median(&bare), median(&ours));
    let how = format!("{ours:.0}/s of {bare:.0}/s in no cluster");
    report.add("32 dispatches at once in a cluster", ours / bare, "x", Aim::AtLeast(0.5), &how);
    Ok(())
}

/// Dispatches at an even pace; asks another host for the status of each job at once. The milliseconds of both.
async fn paced(host: &Host, other: Option<&Host>) -> Outcome<(Vec<f64>, Vec<f64>)> {
    let mut ticks = interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut tasks = JoinSet::new();
    for dispatch in dispatches(BLOCK) {
        ticks.tick().await;
        let (host, other) = (host.address, other.map(|other| other.address));
        tasks.spawn(async move {
            let mut connection = Connection::open(host).await?;
            let asking = match other {
                Some(address) => Some(Connection::open(address).await?),
                None => None,
            };
            let begun = Instant::now();
            let answer = serde_json::from_slice(connection.exchange(&request(&dispatch)).await?)?;
            let dispatched = ms(begun.elapsed());
            let id = job(&answer)?;
            let Some(mut asking) = asking else { return Outcome::Ok((dispatched, None)) };
            let status = request(&call("worker/status", &json!({"jobId": id})));
            let begun = Instant::now();
            let answer: serde_json::Value = serde_json::from_slice(asking.exchange(&status).await?)?;
            let asked = ms(begun.elapsed());
            answer.get("result").ok_or_else(|| format!("the other host does not know the job: {answer}"))?;
            Ok((dispatched, Some(asked)))
        });
    }
    let (mut dispatched, mut asked) = (Vec::new(), Vec::new());
    while let Some(done) = tasks.join_next().await {
        let (dispatch, status) = done??;
        dispatched.push(dispatch);
        asked.extend(status);
    }
    Ok((dispatched, asked))
}

/// The events of a host by their ids, with the times at which they came.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<BTreeMap<String, Instant>>>);

impl Events {
    /// Follows the events of a host, until it ends.
    fn follow(host: SocketAddr) -> Outcome<Self> {
        let events = Self::default();
        let mut stream = TcpStream::connect(host)?;
        stream.write_all(b"GET /events HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let seen = events.clone();
        thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if let Some(id) = line.strip_prefix("id:") {
                    let mut seen = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.insert(id.trim().to_owned(), Instant::now());
                }
            }
        });
        Ok(events)
    }

    fn times(&self) -> BTreeMap<String, Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The milliseconds by which another host told each event later.
    fn delays(&self, other: &Self) -> Vec<f64> {
        let there = other.times();
        let delay = |(id, here)| Some(ms(there.get(&id)?.saturating_duration_since(here)));
        self.times().into_iter().filter_map(delay).collect()
    }
}
