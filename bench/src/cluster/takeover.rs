//! The time until the jobs of a host that is gone are owned again; and a NATS server that is killed under load.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use super::{Cluster, TURNS, dispatch_all, dispatches, job, model, start};
use crate::{
    Outcome,
    host::Host,
    jobs::{all_ended, until},
    load::{Connection, request},
    stats::{Aim, Report, ms, percentile},
};

const JOBS: usize = 200;
/// How long the provider takes for a turn.
const TURN: Duration = Duration::from_secs(2);
/// The dispatches while a NATS server is killed, the pause between two, and how many come before.
const DISPATCHES: usize = 300;
const PAUSE: Duration = Duration::from_millis(100);
const BEFORE: usize = 50;

pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    let cluster = Cluster::new("cluster-takeover", model(TURNS, TURN).await)?;
    let first = cluster.host("a", JOBS)?;
    let mut a = start(&first).await?;
    let b = start(&cluster.host("b", JOBS)?).await?;

    // A host's processes take no job twice, so what both have taken is each job once.
    at_work(&cluster, &a).await?;
    let before = taken(&b).await?;
    drop(a);
    let (half, all) = owned(Instant::now(), async || Ok(taken(&b).await? - before)).await?;
    let how = format!("half of them after {half:.1} s; 30 s of silence come first");
    report.add("200 jobs of a host that is lost, owned again", all, "s", Aim::AtMost(45.0), &how);
    a = start(&first).await?;
    all_ended(&a).await?;

    at_work(&cluster, &a).await?;
    let before = taken(&b).await?;
    drop(a);
    a = first.start().await?;
    let (half, all) = owned(Instant::now(), async || Ok(taken(&a).await? + taken(&b).await? - before)).await?;
    let how =
        format!("half of them after {half:.1} s; it listened {:.1} s after its start", a.first_answer.as_secs_f64());
    report.add("200 jobs of a host that starts again, owned again", all, "s", Aim::AtMost(5.0), &how);
    all_ended(&b).await?;

    until("the host is ready", async || Ok(a.is_ready().await)).await?;
    at_work(&cluster, &a).await?;
    let before = taken(&b).await?;
    a.terminate()?;
    let (half, all) = owned(Instant::now(), async || Ok(taken(&b).await? - before)).await?;
    let how = format!("half of them after {half:.1} s; each at the end of its turn of 2 s");
    report.add("200 jobs of a host that is stopped, owned again", all, "s", Aim::AtMost(10.0), &how);
    drop(a);
    let ended = all_ended(&b).await?;
    report.add("jobs of these that failed", failed(&ended), "", Aim::AtMost(0.0), &format!("{ended:?}"));
    drop(cluster);
    leader(report).await
}

/// Dispatches jobs at a host, and waits until the session of each has asked the model.
async fn at_work(cluster: &Cluster, host: &Host) -> Outcome<()> {
    let before = cluster.model.count();
    dispatch_all(host, JOBS).await?;
    until("each session has asked", async || Ok(cluster.model.count() >= before + JOBS)).await
}

/// The number of jobs that a host has gone on with.
async fn taken(host: &Host) -> Outcome<f64> {
    host.figure("guild_cluster_takeovers_total").await
}

/// The seconds until half of the jobs have a host again, and all.
async fn owned(begun: Instant, mut taken: impl AsyncFnMut() -> Outcome<f64>) -> Outcome<(f64, f64)> {
    let mut half = None;
    until("all jobs have a host again", async || {
        let count = taken().await?;
        if count >= JOBS as f64 / 2.0 {
            half.get_or_insert(begun.elapsed().as_secs_f64());
        }
        Ok(count >= JOBS as f64)
    })
    .await?;
    Ok((half.unwrap_or_default(), begun.elapsed().as_secs_f64()))
}

/// Kills the server that leads the stream of the jobs' logs, while jobs are dispatched and carried out.
async fn leader(report: &mut Report) -> Outcome<()> {
    let mut cluster = Cluster::new("cluster-leader", model(5, Duration::from_millis(500)).await)?;
    let a = start(&cluster.host("a", JOBS)?).await?;
    let b = start(&cluster.host("b", JOBS)?).await?;
    dispatch_all(&a, 2).await?;
    all_ended(&a).await?;
    let leader = cluster.nats.leader("guild_log").await?;
    let mut ticks = interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut tasks = JoinSet::new();
    for (nth, dispatch) in dispatches(DISPATCHES).into_iter().enumerate() {
        ticks.tick().await;
        if nth == BEFORE {
            cluster.nats.kill(leader);
        }
        let address = if nth % 2 == 0 { a.address } else { b.address };
        tasks.spawn(async move {
            let mut connection = Connection::open(address).await?;
            let begun = Instant::now();
            let answer = serde_json::from_slice(connection.exchange(&request(&dispatch)).await?)?;
            job(&answer).map(|_| ms(begun.elapsed()) / 1000.0)
        });
    }
    let mut times = Vec::new();
    while let Some(done) = tasks.join_next().await {
        times.push(done??);
    }
    cluster.nats.restart(leader);
    let how = format!("median {:.0} ms; none of {} was refused", percentile(&times, 0.5) * 1000.0, times.len());
    report.add("NATS' leader killed, longest dispatch", percentile(&times, 1.0), "s", Aim::AtMost(15.0), &how);
    let ended = all_ended(&b).await?;
    report.add("NATS' leader killed, jobs that failed", failed(&ended), "", Aim::AtMost(0.0), &format!("{ended:?}"));
    let taken = taken(&a).await? + taken(&b).await?;
    report.add("NATS' leader killed, jobs taken over", taken, "", Aim::AtMost(0.0), "so no host was declared dead");
    Ok(())
}

/// The number of jobs that did not complete.
fn failed(ended: &BTreeMap<String, usize>) -> f64 {
    ended.iter().filter(|(status, _)| *status != "completed").map(|(_, count)| *count).sum::<usize>() as f64
}
