//! Ten thousand sessions at once, each waiting for a slow provider: what they cost, and that nobody else notices.
//!
//! The provider is a local server of this process that speaks OpenAI's protocol and holds every answer back until it
//! is told. So the host has ten thousand jobs, sessions and connections to keep at the same time.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use guild_stand_ins::{Gate, OpenAi, Received, Reply};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    Outcome,
    host::{Host, Setup, call},
    load::{Connection, request},
    stats::{Aim, Report, ms, percentile},
};

const SESSIONS: usize = 10_000;
/// Connections that dispatch and cancel.
const CALLERS: usize = 64;
/// Connections that poll, as a roster of workbenches does, and how long each measurement of them takes.
const POLLERS: usize = 4;
const ROUND: Duration = Duration::from_secs(3);
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(20);

/// Measures sessions that wait, that end, and that are cancelled.
pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    crate::burst::more_descriptors()?;
    let gate = Gate::closed();
    let behind = gate.clone();
    let provider = OpenAi::start(move |_: &Received| Reply::text("Nothing is known about it.").behind(&behind)).await;
    let config = format!(
        "agent = \"api\"\n[api]\nprovider = \"openai\"\nbase_url = \"{}/v1/\"\nmodel = \"stand-in\"\n\
         sessions = {SESSIONS}\nrequest_seconds = 3600\nunknown_cost_tokens = 1000000\n",
        provider.url()
    );
    let host = Setup::new("sessions")?.with_config(&config)?.start().await?;

    let first = dispatch(&host, 1).await?;
    until("the first session asks the provider", || Ok(provider.count() >= 1)).await?;
    let before = host.memory()?.0;
    let idle = percentile(&poll(&host, &first).await?, 0.99);

    let begun = Instant::now();
    let mut jobs = dispatch(&host, SESSIONS - 1).await?;
    jobs.extend(first);
    until("all sessions ask the provider", || Ok(provider.count() >= SESSIONS)).await?;
    let how = format!("after {:.1} s", begun.elapsed().as_secs_f64());
    report.add(
        "10,000 sessions at once, at the provider",
        provider.count() as f64,
        "jobs",
        Aim::AtLeast(10_000.0),
        &how,
    );
    let memory = host.memory()?.0;
    let each = (memory - before) * 1024.0 / SESSIONS as f64;
    let how = format!("{each:.1} KiB each; {before:.0} MiB with one");
    report.add("10,000 sessions waiting, memory", memory, "MiB", Aim::AtMost(400.0), &how);
    let busy = percentile(&poll(&host, &jobs).await?, 0.99);
    let how = format!("{busy:.2} ms, {idle:.2} ms with one session");
    report.add("10,000 sessions waiting, worker/status p99", busy / idle, "x idle", Aim::AtMost(2.0), &how);

    let begun = Instant::now();
    gate.open();
    let ended = settled(&host).await?;
    let completed = ended.get("completed").copied().unwrap_or_default();
    let how = format!("{ended:?} within {:.1} s", begun.elapsed().as_secs_f64());
    report.add("10,000 sessions answered, completed", completed as f64, "jobs", Aim::AtLeast(10_000.0), &how);
    drop(host);
    cancelled(report).await
}

/// A second host, whose ten thousand sessions are cancelled while they wait.
async fn cancelled(report: &mut Report) -> Outcome<()> {
    let gate = Gate::closed();
    let behind = gate.clone();
    let provider = OpenAi::start(move |_: &Received| Reply::text("Too late.").behind(&behind)).await;
    let config = format!(
        "agent = \"api\"\n[api]\nprovider = \"openai\"\nbase_url = \"{}/v1/\"\nmodel = \"stand-in\"\n\
         sessions = {SESSIONS}\nrequest_seconds = 3600\nunknown_cost_tokens = 1000000\n",
        provider.url()
    );
    let host = Setup::new("cancel")?.with_config(&config)?.start().await?;
    let jobs = dispatch(&host, SESSIONS).await?;
    until("all sessions ask the provider", || Ok(provider.count() >= SESSIONS)).await?;
    let begun = Instant::now();
    let calls = jobs.iter().map(|id| call("worker/cancel", &json!({"jobId": id}))).collect();
    let answers = ask_all(&host, calls).await?;
    let cancels = answers.iter().filter(|a| a.pointer("/result/status") == Some(&json!("cancelled"))).count();
    let answered = begun.elapsed();
    let how = format!("{cancels} answered cancelled, the host has {:.0} MiB", host.memory()?.0);
    report.add("10,000 sessions cancelled, all of them", answered.as_secs_f64(), "s", Aim::AtMost(2.0), &how);
    let left = settled(&host).await?;
    report.add(
        "10,000 sessions cancelled, cancelled",
        cancels as f64,
        "jobs",
        Aim::AtLeast(10_000.0),
        &format!("{left:?}"),
    );
    Ok(())
}

/// Dispatches so many jobs; their ids.
async fn dispatch(host: &Host, count: usize) -> Outcome<Vec<String>> {
    let params = |n| json!({"description": format!("session {n}"), "task": "What is known about it?"});
    let answers = ask_all(host, (0..count).map(|n| call("worker/dispatch", &params(n))).collect()).await?;
    let id = |answer: &Value| {
        let id = answer.pointer("/result/jobId").and_then(Value::as_str).map(str::to_owned);
        id.ok_or_else(|| format!("a dispatch was refused: {answer}").into())
    };
    answers.iter().map(id).collect()
}

/// Sends all calls over [`CALLERS`] connections; the answers, in any order.
async fn ask_all(host: &Host, calls: Vec<String>) -> Outcome<Vec<Value>> {
    let calls = Arc::new(calls);
    let mut tasks = JoinSet::new();
    for caller in 0..CALLERS {
        let (calls, mut connection) = (calls.clone(), Connection::open(host.address).await?);
        tasks.spawn(async move {
            let mut answers = Vec::new();
            for call in calls.iter().skip(caller).step_by(CALLERS) {
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

/// The times in milliseconds of `worker/status` of these jobs in turn, each connection with one request at a time.
async fn poll(host: &Host, jobs: &[String]) -> Outcome<Vec<f64>> {
    let requests: Arc<Vec<_>> =
        Arc::new(jobs.iter().map(|id| request(&call("worker/status", &json!({"jobId": id})))).collect());
    let mut tasks = JoinSet::new();
    for poller in 0..POLLERS {
        let (requests, mut connection) = (requests.clone(), Connection::open(host.address).await?);
        tasks.spawn(async move {
            let (begun, mut times) = (Instant::now(), Vec::new());
            for request in requests.iter().cycle().skip(poller) {
                if begun.elapsed() > ROUND {
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

/// Waits until no job runs; how many ended how.
async fn settled(host: &Host) -> Outcome<BTreeMap<String, usize>> {
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
        if begun.elapsed() > PATIENCE {
            return Err(format!("jobs do not end: {by_status:?}").into());
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> Outcome<bool>) -> Outcome<()> {
    let begun = Instant::now();
    while !holds()? {
        if begun.elapsed() > PATIENCE {
            return Err(format!("it did not come about: {what}").into());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
