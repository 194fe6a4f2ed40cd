//! Measures the cost of ten thousand listeners at `GET /events` for a dispatch: listeners that filter for another job,
//! and listeners that receive every event and read none.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    Outcome,
    burst::more_descriptors,
    host::{Host, Setup, call, job_id},
    load::{Connection, request},
    stats::{Aim, Report, median, ms, percentile},
};

const LISTENERS: usize = 10_000;
const DISPATCHES: usize = 200;
const LIMITS: &str = "[limits]\nconnections = 12000\nlisteners = 11900\n";
/// The timeout of all jobs together.
const TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Measures dispatches without listeners, and with both kinds of listeners.
pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    more_descriptors()?;
    let mut alone = f64::NAN;
    let other = format!("?job={}", job_id(0));
    for (what, query) in [
        ("without a listener", None),
        ("10,000 wait for another job", Some(other.as_str())),
        ("10,000 read nothing", Some("")),
    ] {
        let host = Setup::new("listeners")?.with_config(LIMITS)?.start().await?;
        dispatches(&host, 20).await?;
        let mut listening = Vec::new();
        if let Some(query) = query {
            for _ in 0..LISTENERS {
                listening.push(listen(&host, query).await?);
            }
        }
        let times = dispatches(&host, DISPATCHES).await?;
        drop(listening);
        let (p50, p99) = (median(&times), percentile(&times, 0.99));
        if query.is_none() {
            alone = p50;
        }
        let how = format!("p50 {p50:.2} ms, p99 {p99:.2} ms; {:.0} MiB at most", host.memory()?.1);
        report.add(&format!("dispatch, {what}"), p50 / alone, "x", Aim::Stated, &how);
    }
    Ok(())
}

/// The connection of a listener after the host's answer.
async fn listen(host: &Host, query: &str) -> Outcome<TcpStream> {
    let mut stream = TcpStream::connect(host.address).await?;
    let head = format!("GET /events{query} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await?;
    if answer != *b"HTTP/1.1 200" {
        return Err(format!("a listener is answered {:?}", String::from_utf8_lossy(&answer)).into());
    }
    Ok(stream)
}

/// The milliseconds of each of many sequential dispatches. All their jobs have ended when this returns.
async fn dispatches(host: &Host, count: usize) -> Outcome<Vec<f64>> {
    let mut connection = Connection::open(host.address).await?;
    let mut times = Vec::new();
    for n in 0..count {
        let params = json!({"description": format!("job {n}"), "task": format!("What can a plugin read? ({n})")});
        let request = request(&call("worker/dispatch", &params));
        let begun = Instant::now();
        let answer: Value = serde_json::from_slice(connection.exchange(&request).await?)?;
        times.push(ms(begun.elapsed()));
        if answer.pointer("/result/jobId").is_none() {
            return Err(answer.to_string().into());
        }
    }
    let begun = Instant::now();
    loop {
        let list = host.result("worker/list", &json!({})).await?;
        let jobs = list.get("jobs").and_then(Value::as_array).cloned().unwrap_or_default();
        if !jobs.iter().any(|job| job.get("status").and_then(Value::as_str) == Some("running")) {
            return Ok(times);
        }
        if begun.elapsed() > TIMEOUT {
            return Err("the jobs do not end".into());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
