//! Measures the host and its baselines in the same run: a bare axum handler that gives the same answer, and bare
//! wasmtime that makes the same call. The ratio matters; the absolute figures depend on the machine.
//!
//! `cargo xtask bench` builds the requirements and runs this program in the repository's directory, with the path of
//! the `guild` binary in `GUILD_BIN`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "figures are printed")]

mod audit;
mod baseline;
mod burst;
mod cluster;
mod hall;
mod host;
mod http;
mod instance;
mod jobs;
mod languages;
mod limits;
mod listeners;
mod load;
mod meetings;
mod roster;
mod sessions;
mod start;
mod stats;
mod telemetry;
mod tools;
mod wat;

use std::process::ExitCode;

use crate::stats::Report;

/// Any error ends the run, and is printed.
type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(run(&arguments)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &[String]) -> Outcome<()> {
    if let [first, rest @ ..] = arguments
        && first == baseline::COMMAND
    {
        return baseline::serve(rest).await;
    }
    const ALL: [&str; 21] = [
        "start",
        "roster",
        "instance",
        "tools",
        "audit",
        "hall",
        "meetings",
        "limits",
        "status",
        "list",
        "telemetry",
        "many",
        "burst",
        "listeners",
        "sessions",
        "languages",
        "cluster-dispatch",
        "cluster-places",
        "cluster-takeover",
        "cluster-queue",
        "cluster-traffic",
    ];
    if let Some(unknown) = arguments.iter().find(|name| !ALL.contains(&name.as_str())) {
        return Err(format!("there is no benchmark {unknown:?}; there are {}", ALL.join(", ")).into());
    }
    let chosen = |name: &str| arguments.is_empty() || arguments.iter().any(|argument| argument == name);
    let mut report = Report::default();
    if chosen("start") {
        start::measure(&mut report).await?;
    }
    if chosen("roster") {
        roster::measure(&mut report).await?;
    }
    if chosen("instance") {
        instance::measure(&mut report).await?;
    }
    if chosen("tools") {
        tools::measure(&mut report).await?;
    }
    if chosen("audit") {
        audit::measure(&mut report)?;
    }
    if chosen("hall") {
        hall::measure(&mut report).await?;
    }
    if chosen("meetings") {
        meetings::measure(&mut report).await?;
    }
    if chosen("limits") {
        limits::measure(&mut report).await?;
    }
    if chosen("status") || chosen("list") {
        let host = host::Setup::new("500")?.with_jobs(500)?;
        let host = host.start().await?;
        if chosen("status") {
            http::status(&mut report, &host, 500).await?;
        }
        if chosen("list") {
            http::list(&mut report, &host).await?;
        }
    }
    if chosen("telemetry") {
        telemetry::measure(&mut report).await?;
    }
    if chosen("many") {
        let host = host::Setup::new("50000")?.with_jobs(50_000)?.start().await?;
        http::status(&mut report, &host, 50_000).await?;
    }
    if chosen("burst") {
        burst::measure(&mut report).await?;
    }
    if chosen("listeners") {
        listeners::measure(&mut report).await?;
    }
    if chosen("sessions") {
        sessions::measure(&mut report).await?;
    }
    if chosen("languages") {
        languages::measure(&mut report).await?;
    }
    if chosen("cluster-dispatch") {
        cluster::dispatch(&mut report).await?;
    }
    if chosen("cluster-places") {
        cluster::places(&mut report).await?;
    }
    if chosen("cluster-takeover") {
        cluster::takeover(&mut report).await?;
    }
    if chosen("cluster-queue") {
        cluster::queue(&mut report).await?;
    }
    if chosen("cluster-traffic") {
        cluster::traffic(&mut report).await?;
    }
    println!("\n{report}");
    Ok(())
}
