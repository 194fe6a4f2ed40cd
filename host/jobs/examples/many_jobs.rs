//! Measures a store with many jobs: `cargo run -p guild-jobs --release --example many_jobs -- [JOBS]`
//!
//! It plants JOBS ended jobs (50,000) in a temporary directory, and prints how long it takes to open and load them,
//! to list them, to answer status, and to make new jobs.
#![allow(clippy::print_stdout, reason = "it prints what it measured")]

use std::{
    error::Error,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use cap_std::{ambient_authority, fs::Dir};
use guild_contract::{
    Bounds, Grants,
    rpc::{Detail, ListParams},
};
use guild_fs::clock::SystemClock;
use guild_jobs::{Accepted, JobStore, NewJob, StoreError, StoreOptions};
use guild_session::activation::Plan;
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let jobs = std::env::args().nth(1).map_or(Ok(50_000), |n| n.parse())?;
    let temp = tempfile::tempdir()?;
    let member = Dir::open_ambient_dir(temp.path(), ambient_authority())?;
    let planted = plant(&member, jobs)?;
    println!("{jobs} jobs; resident before: {} MiB", resident_mib());

    let options = || StoreOptions { limits: Arc::default(), clock: Arc::new(SystemClock) };
    let store = timed("open", || JobStore::open(&member, options()))?;
    let report = timed("load", || store.load());
    println!("{} jobs loaded; resident: {} MiB", report.jobs, resident_mib());

    for detail in [Detail::Simple, Detail::Detailed] {
        let params = ListParams { detail: Some(detail), filter: None };
        let list = timed(&format!("{detail:?} list, first"), || store.list(&params))?;
        // What was looked at is stale after a second, or later where looking took long.
        std::thread::sleep(Duration::from_millis(1100));
        timed(&format!("{detail:?} list, 1.1 s later"), || store.list(&params))?;
        each(&format!("{detail:?} list, fresh, {} bytes", list.len()), 1000, |_| store.list(&params).is_ok());
    }
    let ids: Vec<&String> = planted.iter().take(500).collect();
    timed("status of 500 jobs, first", || ids.iter().try_for_each(|id| store.status(id).map(drop)))?;
    each("status, fresh", 100_000, |n| ids.get(n % ids.len()).is_some_and(|id| store.status(id).is_ok()));
    println!("resident: {} MiB", resident_mib());

    timed("1,000 new jobs by 64 threads", || create(&store, 1000, 64))?;
    drop(store);
    let store = JobStore::open(&member, options())?;
    let report = timed("load, with 1,000 left running", || store.load());
    println!("{} jobs loaded, {} reconciled", report.jobs, report.recovered.len());
    Ok(())
}

fn plant(member: &Dir, jobs: usize) -> Outcome<Vec<String>> {
    member.create_dir("jobs")?;
    let root = member.open_dir("jobs")?;
    let mut ids = Vec::with_capacity(jobs);
    for n in 0..jobs {
        let id = format!("00000000-0000-7000-8000-{n:012}");
        root.create_dir(&id)?;
        let dir = root.open_dir(&id)?;
        let meta = json!({
            "jobId": id, "status": "completed", "description": format!("research question number {n}"),
            "startedAt": format!("2026-01-{:02}T10:00:00.{:03}Z", 1 + n % 28, n % 1000),
            "completedAt": "2026-02-01T10:00:00Z",
        });
        dir.write("meta.json", serde_json::to_vec_pretty(&meta)?)?;
        dir.write("status.md", "The report is written.")?;
        ids.push(id);
    }
    Ok(ids)
}

fn create(store: &Arc<JobStore>, jobs: usize, threads: usize) -> Result<(), StoreError> {
    std::thread::scope(|scope| {
        let work = |n: usize| {
            for _ in (n..jobs).step_by(threads) {
                store.create(NewJob {
                    id: store.new_id(),
                    description: "d".to_owned(),
                    task: "t".repeat(1000),
                    config: Value::Null,
                    token: None,
                    plan: Accepted {
                        agent: "extractive".into(),
                        granted_tools: Vec::new(),
                        grants: Grants::default(),
                        ceiling: Bounds::default(),
                        plan: Plan::OwnRun(Bounds::default()),
                    },
                    attachments: None,
                    activation: None,
                    follows: None,
                    key: None,
                })?;
            }
            Ok(())
        };
        let workers: Vec<_> = (0..threads).map(|n| scope.spawn(move || work(n))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Ok(())))
    })
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let done = work();
    println!("{what}: {:.1} ms", started.elapsed().as_secs_f64() * 1e3);
    done
}

fn each(what: &str, times: usize, work: impl Fn(usize) -> bool) {
    let started = Instant::now();
    let answered = (0..times).filter(|n| black_box(work(*n))).count();
    let each = started.elapsed().as_secs_f64() * 1e6 / times as f64;
    println!("{what}: {each:.2} us each, {answered} of {times} answered");
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
