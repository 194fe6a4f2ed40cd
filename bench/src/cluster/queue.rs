//! A hundred thousand jobs that wait for a place.

use std::time::{Duration, Instant};

use guild_fakes::{Gate, OpenAi, Received, Reply};
use serde_json::json;

use super::{Cluster, dispatch_all, start};
use crate::{
    Outcome,
    jobs::until,
    stats::{Aim, Report, ms},
};

const WAITING: usize = 100_000;
/// The time in which a host's memory comes to rest.
const SETTLE_TIME: Duration = Duration::from_secs(3);

pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    let gate = Gate::closed();
    let behind = gate.clone();
    let model = OpenAi::start(move |_: &Received| Reply::text("Nothing is known.").behind(&behind)).await;
    let cluster = Cluster::new("cluster-queue", model)?;
    let a = start(&cluster.host("a", 1)?).await?;
    let b = start(&cluster.host("b", 1)?).await?;
    // Each host has its place taken, and a hundred jobs have waited.
    let places = 2;
    dispatch_all(&a, places + 100).await?;
    until("the places are taken", async || Ok(cluster.model.count() >= places)).await?;
    tokio::time::sleep(SETTLE_TIME).await;
    let before = [a.memory()?.0, b.memory()?.0];
    let begun = Instant::now();
    dispatch_all(&a, WAITING - 100).await?;
    let took = begun.elapsed().as_secs_f64();
    let all = async || Ok(b.figure("guild_cluster_jobs_waiting").await? >= WAITING as f64);
    until("the other host knows all", all).await?;
    tokio::time::sleep(SETTLE_TIME).await;
    for (name, host, before) in [("their host", &a, before[0]), ("another host", &b, before[1])] {
        let after = host.memory()?.0;
        let how = format!("{before:.0} MiB before, {after:.0} after; {:.0} dispatches a second", WAITING as f64 / took);
        report.add(&format!("100,000 waiting jobs, {name}"), after - before, "MiB", Aim::AtMost(60.0), &how);
    }
    let refused = a.result("worker/dispatch", &json!({"description": "one more", "task": "Wait."})).await;
    let why = refused.err().map(|e| e.to_string()).ok_or("a job over `queued_jobs` was accepted")?;
    println!("one more is refused: {why}");
    let begun = Instant::now();
    let listed = b.ask("worker/list", &json!({})).await?.len();
    let how = format!("all jobs, {} MiB", listed / 1024 / 1024);
    report.add("100,000 waiting jobs, list at another host", ms(begun.elapsed()), "ms", Aim::Stated, &how);
    Ok(())
}
