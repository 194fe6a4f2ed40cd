//! Measures the cost of ten thousand concurrent jobs, whose sessions wait for a slow provider or in the queue, and
//! checks that other callers are not delayed.
//!
//! The provider is a local server of this process that speaks OpenAI's protocol and holds every answer until its
//! release. The jobs are measured twice: with an operator's limit of concurrent sessions, and without a queue, so that
//! the host has ten thousand concurrent requests, each with its own connection.

use std::time::Instant;

use guild_fakes::{Gate, OpenAi, Provider, Received, Reply};
use serde_json::{Value, json};

use crate::{
    Outcome,
    host::{Host, Setup, call},
    jobs::{all_ended, ask_all, poll, until},
    stats::{Aim, Report, percentile},
};

const JOBS: usize = 10_000;
/// The operator's limit of concurrent sessions.
const SESSIONS: usize = 1_000;
/// The number of connections that dispatch, and that cancel. Ten thousand jobs are not cancelled one after the other.
const CALLERS: usize = 64;
const CANCELLERS: usize = 512;

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
        until("the first session asks the provider", async || Ok(provider.count() >= 1)).await?;
        let before = host.memory()?.0;
        let idle = percentile(&poll(host, &jobs).await?, 0.99);

        let begun = Instant::now();
        jobs.extend(dispatch(host, JOBS - 1).await?);
        until("the sessions ask the provider", async || Ok(provider.count() >= *places)).await?;
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
