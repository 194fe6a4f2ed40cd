//! Measures a thousand concurrent dispatches: no job may be lost or refused, and every job must end.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    Outcome,
    host::{Setup, call},
    load::{Connection, request},
    stats::{Aim, Report, ms, percentile},
};

const DISPATCHES: usize = 1000;
/// The timeout of all jobs together.
const TIMEOUT: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Raises the limit of file descriptors to its maximum.
pub(crate) fn more_descriptors() -> Outcome<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}

/// Measures one burst.
pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    more_descriptors()?;
    let host = Setup::new("burst")?.start().await?;
    host.result("worker/dispatch", &json!({"description": "warm up", "task": "What can a plugin read?"})).await?;

    let mut connections = Vec::new();
    for _ in 0..DISPATCHES {
        connections.push(Connection::open(host.address).await?);
    }
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for (n, mut connection) in connections.into_iter().enumerate() {
        let params =
            json!({"description": format!("burst {n}"), "task": format!("What can a plugin read or write? ({n})")});
        let request = request(&call("worker/dispatch", &params));
        tasks.spawn(async move {
            let begun = Instant::now();
            let answer: Value = serde_json::from_slice(connection.exchange(&request).await?)?;
            Outcome::Ok((ms(begun.elapsed()), answer))
        });
    }
    let (mut times, mut ids, mut refused) = (Vec::new(), BTreeSet::new(), BTreeMap::<String, usize>::new());
    while let Some(done) = tasks.join_next().await {
        let (time, answer) = done??;
        times.push(time);
        match answer.pointer("/result/jobId").and_then(Value::as_str) {
            Some(id) => drop(ids.insert(id.to_owned())),
            None => *refused.entry(answer.get("error").unwrap_or(&answer).to_string()).or_default() += 1,
        }
    }
    let accepted = begun.elapsed();
    refused.iter().for_each(|(reason, count)| println!("refused {count} times: {reason}"));

    let ended = loop {
        let list = host.result("worker/list", &json!({})).await?;
        let jobs = list.get("jobs").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut by_status = BTreeMap::<String, usize>::new();
        for job in jobs.iter().filter(|job| job.get("jobId").and_then(Value::as_str).is_some_and(|id| ids.contains(id)))
        {
            *by_status.entry(job.get("status").and_then(Value::as_str).unwrap_or_default().to_owned()).or_default() +=
                1;
        }
        if by_status.values().sum::<usize>() < ids.len() {
            println!("lost: {} of {} are listed", by_status.values().sum::<usize>(), ids.len());
        }
        if !by_status.contains_key("running") {
            break by_status;
        }
        if begun.elapsed() > TIMEOUT {
            return Err(format!("not ended within {} s: {by_status:?}", TIMEOUT.as_secs()).into());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    };
    let all = DISPATCHES as f64;
    let completed = ended.get("completed").copied().unwrap_or_default() as f64;
    let how = format!("of {DISPATCHES}; {:.0}/s", all / accepted.as_secs_f64());
    report.add("1,000 dispatches at once, accepted", ids.len() as f64, "jobs", Aim::AtLeast(all), &how);
    let how = format!("{ended:?} within {:.1} s", begun.elapsed().as_secs_f64());
    report.add("1,000 dispatches at once, completed", completed, "jobs", Aim::AtLeast(all), &how);
    let how = format!("median {:.0} ms", percentile(&times, 0.5));
    report.add("1,000 dispatches at once, dispatch p99", percentile(&times, 0.99), "ms", Aim::Stated, &how);
    report.add("1,000 dispatches at once, peak memory", host.memory()?.1, "MiB", Aim::Stated, "VmHWM");
    Ok(())
}
