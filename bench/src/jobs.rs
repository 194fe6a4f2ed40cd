//! What clients do with many jobs of a host.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    Outcome,
    host::{Host, call},
    load::{Connection, request},
    stats::ms,
};

/// The number of connections that poll, as a roster of workbenches does, and the duration of each measurement.
const POLLERS: usize = 4;
const ROUND_TIME: Duration = Duration::from_secs(3);
/// The timeout of every step.
const TIMEOUT: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Sends all calls over several connections, and returns the answers in any order.
pub(crate) async fn ask_all(host: &Host, callers: usize, calls: Vec<String>) -> Outcome<Vec<Value>> {
    let calls = Arc::new(calls);
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let (calls, mut connection) = (calls.clone(), Connection::open(host.address).await?);
        tasks.spawn(async move {
            let mut answers = Vec::new();
            for call in calls.iter().skip(caller).step_by(callers) {
                answers.push(serde_json::from_slice(connection.exchange(&request(call)).await?)?);
            }
            Outcome::Ok(answers)
        });
    }
    let mut answers = Vec::new();
    while let Some(done) = tasks.join_next().await {
        answers.extend(done??);
    }
    Ok(answers)
}

/// The milliseconds of each `worker/status` of these jobs in turn, with one request at a time on each connection.
pub(crate) async fn poll(host: &Host, jobs: &[String]) -> Outcome<Vec<f64>> {
    let requests: Arc<Vec<_>> =
        Arc::new(jobs.iter().map(|id| request(&call("worker/status", &json!({"jobId": id})))).collect());
    let mut tasks = JoinSet::new();
    for poller in 0..POLLERS {
        let (requests, mut connection) = (requests.clone(), Connection::open(host.address).await?);
        tasks.spawn(async move {
            let (begun, mut times) = (Instant::now(), Vec::new());
            for request in requests.iter().cycle().skip(poller) {
                if begun.elapsed() > ROUND_TIME {
                    break;
                }
                let sent = Instant::now();
                connection.exchange(request).await?;
                times.push(ms(sent.elapsed()));
            }
            Outcome::Ok(times)
        });
    }
    let mut times = Vec::new();
    while let Some(done) = tasks.join_next().await {
        times.extend(done??);
    }
    Ok(times)
}

/// Waits until no job runs, and returns the number of jobs by status.
pub(crate) async fn all_ended(host: &Host) -> Outcome<BTreeMap<String, usize>> {
    let begun = Instant::now();
    loop {
        let list = host.result("worker/list", &json!({})).await?;
        let mut by_status = BTreeMap::new();
        for job in list.get("jobs").and_then(Value::as_array).into_iter().flatten() {
            let status = job.get("status").and_then(Value::as_str).unwrap_or_default();
            *by_status.entry(status.to_owned()).or_default() += 1;
        }
        if !by_status.contains_key("running") {
            return Ok(by_status);
        }
        if begun.elapsed() > TIMEOUT {
            return Err(format!("jobs do not end: {by_status:?}").into());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> Outcome<bool>) -> Outcome<()> {
    let begun = Instant::now();
    while !holds().await? {
        if begun.elapsed() > TIMEOUT {
            return Err(format!("it did not happen in time: {what}").into());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}
