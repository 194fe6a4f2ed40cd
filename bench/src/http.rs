//! Measures `worker/status` and `worker/list` over keep-alive HTTP, compared with a bare handler.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::json;

use crate::{
    Outcome,
    baseline::{Baseline, Kind},
    host::{Host, call, job_id, scratch},
    load::{Load, request},
    stats::{Aim, Report, median},
};

const CONNECTIONS: usize = 16;
/// The number of pairs of measurements for a ratio, and their duration. Each measurement has its own connections, and
/// the distribution of their threads over the cores changes a figure by a fifth. The measurements are therefore many
/// and short.
const ROUNDS: usize = 31;
const ROUND_TIME: Duration = Duration::from_millis(400);
/// The timeout for requesting everything once.
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(20);

/// Measures `worker/status` of sixteen jobs, as clients poll them, and of all jobs in turn.
pub(crate) async fn status(report: &mut Report, host: &Host, jobs: u32) -> Outcome<()> {
    let answer = ready(host, jobs).await?;
    let baseline = Baseline::start(Kind::Bytes, &answer, &scratch())?;
    let polled = polled(jobs);
    let name = format!("worker/status, {jobs} jobs, 16 of them polled");
    compare(report, &name, Aim::AtLeast(0.6), host.address, baseline.address, polled).await?;
    let name = format!("worker/status, {jobs} jobs, all in turn");
    compare(report, &name, Aim::AtLeast(0.6), host.address, baseline.address, requests(0..jobs)).await
}

/// Requests for the states of sixteen of so many jobs.
pub(crate) fn polled(jobs: u32) -> Arc<[Bytes]> {
    requests((0..CONNECTIONS as u32).map(|n| n * (jobs / CONNECTIONS as u32)))
}

fn requests(ids: impl Iterator<Item = u32>) -> Arc<[Bytes]> {
    ids.map(|n| request(&call("worker/status", &json!({"jobId": job_id(n)})))).collect()
}

/// Measures `worker/list` of all jobs, compared with a handler that serializes the same list for each request.
pub(crate) async fn list(report: &mut Report, host: &Host) -> Outcome<()> {
    for detail in ["simple", "detailed"] {
        let params = json!({"detail": detail});
        let answer = host.ask("worker/list", &params).await?;
        let baseline = Baseline::start(Kind::List, &answer, &scratch())?;
        let name = format!("worker/list {detail}, 500 jobs, {} KiB", answer.len() / 1024);
        let requests = Arc::from([request(&call("worker/list", &params))]);
        compare(report, &name, Aim::AtLeast(0.5), host.address, baseline.address, requests).await?;
    }
    Ok(())
}

/// Waits until the host knows all jobs, and returns its answer about one job.
pub(crate) async fn ready(host: &Host, jobs: u32) -> Outcome<Vec<u8>> {
    let list = host.result("worker/list", &json!({})).await?;
    let known = list.get("jobs").and_then(|jobs| jobs.as_array()).map_or(0, Vec::len);
    if known != jobs as usize {
        return Err(format!("the host knows {known} of {jobs} jobs").into());
    }
    host.result("worker/status", &json!({"jobId": job_id(0)})).await?;
    host.ask("worker/status", &json!({"jobId": job_id(0)})).await
}

/// Measures the host and the baseline in turn, and reports the ratio of the medians.
pub(crate) async fn compare(
    report: &mut Report,
    name: &str,
    aim: Aim,
    host: SocketAddr,
    baseline: SocketAddr,
    requests: Arc<[Bytes]>,
) -> Outcome<()> {
    let load = Load { requests, connections: CONNECTIONS, count: usize::MAX, time: ROUND_TIME };
    // The first answer about a job reads its files; only later answers are measured.
    let once = Load { count: load.requests.len().max(10_000), time: WARM_UP_TIMEOUT, ..load.clone() };
    once.run(baseline).await?;
    once.run(host).await?;
    let (mut of_baseline, mut of_host) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        of_baseline.push(load.run(baseline).await?);
        of_host.push(load.run(host).await?);
    }
    let (bare, ours) = (median(&of_baseline), median(&of_host));
    report.add(name, ours / bare, "x", aim, &format!("{ours:.0}/s of {bare:.0}/s"));
    Ok(())
}
