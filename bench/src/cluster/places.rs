//! Jobs a minute at one, two and four hosts, whose sessions wait for a provider: it is places that hosts add, since all
//! share two cores here.

use std::time::{Duration, Instant};

use super::{Cluster, TURNS, dispatch_all, model, start};
use crate::{
    Outcome,
    host::Host,
    jobs::all_ended,
    stats::{Aim, Report},
};

/// The places of a host.
const PLACES: usize = 50;
/// The jobs for each place: the first begins at once, the others wait in the queue.
const JOBS_A_PLACE: usize = 2;
/// How long the provider takes for a turn.
const TURN: Duration = Duration::from_secs(2);

pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    let cluster = Cluster::new("cluster-places", model(TURNS, TURN).await)?;
    let mut hosts: Vec<Host> = Vec::new();
    let mut alone = None;
    for (name, least) in [("a", None), ("b", Some(1.9)), ("c", None), ("d", Some(3.6))] {
        hosts.push(start(&cluster.host(name, PLACES)?).await?);
        if hosts.len() > 1 && least.is_none() {
            continue;
        }
        let lost_before = lost(&hosts).await?;
        let begun = Instant::now();
        for host in &hosts {
            dispatch_all(host, PLACES * JOBS_A_PLACE).await?;
        }
        let Some(first) = hosts.first() else { continue };
        let ended = all_ended(first).await?;
        let jobs = (hosts.len() * PLACES * JOBS_A_PLACE) as f64;
        let rate = jobs / begun.elapsed().as_secs_f64() * 60.0;
        let what = format!("{} hosts of {PLACES} places", hosts.len());
        let how = format!("{rate:.0} jobs a minute; {jobs:.0} jobs of {TURNS} turns of 2 s; all so far {ended:?}");
        let Some(alone) = alone else {
            alone = Some(rate);
            report.add("1 host of 50 places, jobs a minute", rate, "/min", Aim::Stated, &how);
            continue;
        };
        report.add(&what, rate / alone, "x one", least.map_or(Aim::Stated, Aim::AtLeast), &how);
        let lost = lost(&hosts).await? - lost_before;
        let waited = jobs - (hosts.len() * PLACES) as f64;
        let how = format!("{lost:.0} lost, {waited:.0} jobs waited for a place");
        report.add(&format!("{what}, lost claims"), lost / waited * 100.0, "%", Aim::AtMost(5.0), &how);
    }
    Ok(())
}

/// The claims that hosts have lost to each other.
async fn lost(hosts: &[Host]) -> Outcome<f64> {
    let mut sum = 0.0;
    for host in hosts {
        sum += host.figure("guild_cluster_claims_lost_total").await?;
    }
    Ok(sum)
}
