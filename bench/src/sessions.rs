//! Measures the cost of ten thousand concurrent jobs, whose sessions wait for a slow provider or in the queue, and
//! checks that other callers are not delayed.
//!
//! The provider is a local server of this process that speaks OpenAI's protocol and holds every answer until its
//! release. The jobs are measured twice: with an operator's limit of concurrent sessions, and without a queue, so that
//! the host has ten thousand concurrent requests, each with its own connection.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use guild_fakes::{Gate, OpenAi, Provider, Received, Reply};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    Outcome,
    host::{Host, Setup, call},
    load::{Connection, request},
    stats::{Aim, Report, ms, percentile},
};

const JOBS: usize = 10_000;
/// The operator's limit of concurrent sessions.
const SESSIONS: usize = 1_000;
/// The number of connections that dispatch, and that cancel. Ten thousand jobs are not cancelled one after the other.
const CALLERS: usize = 64;
const CANCELLERS: usize = 512;
/// The number of connections that poll, as a roster of workbenches does, and the duration of each measurement.
const POLLERS: usize = 4;
const ROUND_TIME: Duration = Duration::from_secs(3);
/// The timeout of every step.
const TIMEOUT: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Measures waiting, ending and cancelled jobs.
pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    crate::burst::more_descriptors()?;
    let queued = Fixture::new("sessions", SESSIONS).await?;
    let jobs = queued.wait(report, Aim::AtMost(400.0)).await?;
    queued.answer(report, &jobs).await?;
    drop(queued);
    let at_once = Fixture::new("at-once", JOBS).await?;
    let jobs = at_once.wait(report, Aim::AtMost(400.0)).await?;
    at_once.cancel(report, &jobs).await
}

/// A host, and the provider of its sessions.
struct Fixture {
    host: Host,
    provider: Provider,
    gate: Gate,
    places: usize,
}

impl Fixture {
    async fn new(name: &str, places: usize) -> Outcome<Self> {
        let gate = Gate::closed();
        let behind = gate.clone();
        let script = move |_: &Received| Reply::text("Nothing is known about it.").behind(&behind);
        let provider = OpenAi::start(script).await;
        let config = format!(
            "agent = \"api\"\n[api]\nprovider = \"openai\"\nbase_url = \"{}/v1/\"\nmodel = \"fake\"\n\
             sessions = {places}\nrequest_seconds = 3600\nunknown_cost_tokens = 1000000\n",
            provider.url()
        );
        let host = Setup::new(name)?.with_config(&config)?.start().await?;
        Ok(Self { host, provider, gate, places })
    }

    /// Dispatches all jobs, and measures the host while they wait.
    async fn wait(&self, report: &mut Report, memory_aim: Aim) -> Outcome<Vec<String>> {
        let Self { host, provider, places, .. } = self;
        let mut jobs = dispatch(host, 1).await?;
        until("the first session asks the provider", || Ok(provider.count() >= 1)).await?;
        let before = host.memory()?.0;
        let idle = percentile(&poll(host, &jobs).await?, 0.99);

        let begun = Instant::now();
        jobs.extend(dispatch(host, JOBS - 1).await?);
        until("the sessions ask the provider", || Ok(provider.count() >= *places)).await?;
        let what = format!("10,000 jobs, {places} sessions at the provider");
        let memory = host.memory()?.0;
        let each = (memory - before) * 1024.0 / JOBS as f64;
        let took = begun.elapsed().as_secs_f64();
        let how = format!("{each:.1} KiB a job; {before:.0} MiB with one; dispatched in {took:.1} s");
        report.add(&format!("{what}, memory"), memory, "MiB", memory_aim, &how);
        let busy = percentile(&poll(host, &jobs).await?, 0.99);
        let how = format!("{busy:.2} ms, {idle:.2} ms with one job");
        report.add(&format!("{what}, status p99"), busy / idle, "x idle", Aim::AtMost(2.0), &how);
        Ok(jobs)
    }

    /// Releases the provider's answers.
    async fn answer(&self, report: &mut Report, jobs: &[String]) -> Outcome<()> {
        let begun = Instant::now();
        self.gate.open();
        let ended = all_ended(&self.host).await?;
        let completed = ended.get("completed").copied().unwrap_or_default();
        let how = format!("{ended:?} within {:.1} s", begun.elapsed().as_secs_f64());
        let aim = Aim::AtLeast(jobs.len() as f64);
        report.add("10,000 jobs, completed when the provider answers", completed as f64, "jobs", aim, &how);
        Ok(())
    }

    /// Cancels every job while its session waits.
    async fn cancel(&self, report: &mut Report, jobs: &[String]) -> Outcome<()> {
        let begun = Instant::now();
        let calls = jobs.iter().map(|id| call("worker/cancel", &json!({"jobId": id}))).collect();
        let answers = ask_all(&self.host, CANCELLERS, calls).await?;
        let took = begun.elapsed().as_secs_f64();
        let cancelled = answers.iter().filter(|a| a.pointer("/result/status") == Some(&json!("cancelled"))).count();
        let how = format!("{cancelled} answered cancelled; {:?}", all_ended(&self.host).await?);
        report.add("10,000 jobs, all of them cancelled", took, "s", Aim::AtMost(2.0), &how);
        if cancelled < jobs.len() {
            return Err(format!("only {cancelled} of {} jobs were cancelled", jobs.len()).into());
        }
        Ok(())
    }
}

/// Dispatches jobs, and returns their ids.
async fn dispatch(host: &Host, count: usize) -> Outcome<Vec<String>> {
    let params = |n| json!({"description": format!("session {n}"), "task": "What is known about it?"});
    let answers = ask_all(host, CALLERS, (0..count).map(|n| call("worker/dispatch", &params(n))).collect()).await?;
    let id = |answer: &Value| {
        let id = answer.pointer("/result/jobId").and_then(Value::as_str).map(str::to_owned);
        id.ok_or_else(|| format!("a dispatch was refused: {answer}").into())
    };
    answers.iter().map(id).collect()
}

/// Sends all calls over several connections, and returns the answers in any order.
async fn ask_all(host: &Host, callers: usize, calls: Vec<String>) -> Outcome<Vec<Value>> {
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
async fn poll(host: &Host, jobs: &[String]) -> Outcome<Vec<f64>> {
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
async fn all_ended(host: &Host) -> Outcome<BTreeMap<String, usize>> {
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

async fn until(what: &str, mut holds: impl FnMut() -> Outcome<bool>) -> Outcome<()> {
    let begun = Instant::now();
    while !holds()? {
        if begun.elapsed() > TIMEOUT {
            return Err(format!("it did not happen in time: {what}").into());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}
