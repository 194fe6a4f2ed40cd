//! A cluster under faults: three hosts and three NATS servers are killed, stopped and cut off, while callers dispatch,
//! cancel, delete and read. Afterwards the history of all that was asked, answered and done is checked.
//!
//! The suite has five faults, one of each kind; `cargo xtask bench chaos` has as many as one likes, by chance. A history
//! with findings is kept.
#![allow(clippy::print_stdout, reason = "`cargo xtask bench chaos` shows it")]

mod callers;
mod check;
mod cluster;
mod faults;
mod history;
mod provider;
mod violations;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, sleep},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use self::{
    callers::{Answer, Callers, ask},
    check::findings,
    cluster::{Cluster, MEMBER, Slot},
    faults::Fault,
    history::{Entry, Recorder, save},
};

/// The number of faults by chance, and the seed that decides them.
const FAULTS: &str = "GUILD_CHAOS_FAULTS";
const SEED: &str = "GUILD_CHAOS_SEED";
/// The number of clusters that have a part of the faults each, at the same time.
const CLUSTERS: &str = "GUILD_CHAOS_CLUSTERS";
const CALLERS: u64 = 8;
/// The interval at which a condition is checked.
const LOOK: Duration = Duration::from_millis(100);
/// The time that hosts have to become ready, and jobs to end, once all faults are healed.
const PATIENCE: Duration = Duration::from_secs(150);
/// The interval at which jobs are let on that are held back.
const LET_ON: Duration = Duration::from_secs(5);
/// The time that callers work before the first fault.
const BEFORE: Duration = Duration::from_secs(2);

#[test]
fn a_cluster_under_faults_keeps_its_promises() {
    let number = |name| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number(SEED).unwrap_or_else(|| fastrand::u64(..1_000_000));
    let (clusters, count) = (number(CLUSTERS).unwrap_or(1), number(FAULTS));
    // Each cluster has faults of its own, by its own seed.
    let faults = |nth: u64| match count {
        Some(count) => Fault::all(seed + nth, usize::try_from((count + nth) / clusters).unwrap()),
        None => Fault::few(),
    };
    let planned: Vec<_> = (0..clusters).map(|nth| (seed + nth, faults(nth))).collect();
    for (seed, faults) in &planned {
        println!("seed {seed}: {} faults; {SEED} and {FAULTS} set both", faults.len());
    }
    let runs: Vec<Run> = thread::scope(|scope| {
        let begun: Vec<_> = planned.iter().map(|(seed, faults)| scope.spawn(move || run(*seed, faults))).collect();
        begun.into_iter().map(|run| run.join().unwrap()).collect()
    });
    let found: String =
        planned.iter().zip(&runs).filter_map(|((seed, faults), run)| judge(*seed, faults, run)).collect();
    assert!(found.is_empty(), "{found}");
}

/// Prints the numbers of a run, and returns its findings, if there are any.
fn judge(seed: u64, faults: &[Fault], run: &Run) -> Option<String> {
    let found = findings(&run.history);
    println!("\nseed {seed}: {} findings, {} errors", found.len(), run.errors.len());
    summarize(faults, &run.history);
    if found.is_empty() && run.errors.is_empty() {
        return None;
    }
    let kept = keep(seed, run);
    let said = |texts: &[String]| texts.iter().take(40).map(|text| format!("  {text}\n")).collect::<String>();
    Some(format!(
        "seed {seed}: {} findings\n{}{} errors\n{}the history and what the hosts printed are in {}\n",
        found.len(),
        said(&found),
        run.errors.len(),
        said(&run.errors),
        kept.display()
    ))
}

/// The outcome of a run.
struct Run {
    history: Vec<Entry>,
    /// Errors that callers should not have seen.
    errors: Vec<String>,
    /// The output of each host.
    printed: Vec<(&'static str, String)>,
}

fn run(seed: u64, faults: &[Fault]) -> Run {
    let (runtime, recorder) = (Runtime::new().unwrap(), Arc::new(Recorder::new()));
    let cluster = Cluster::start(&runtime, &recorder);
    let callers = Callers::new(&cluster, &recorder);
    let (is_told, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut errors = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                cluster.slots.iter().for_each(Slot::supervise);
                sleep(LOOK);
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let_on(&cluster);
                sleep(LET_ON);
            }
        });
        if !wait(|| cluster.slots.iter().all(Slot::is_ready)) {
            errors.push("the hosts were not ready at the start".to_owned());
        }
        let follower = scope.spawn(|| callers.follow(seed, || is_told.load(Ordering::Relaxed)));
        let working: Vec<_> = (0..CALLERS).map(|n| (seed ^ (n + 1), &callers)).collect();
        let working: Vec<_> =
            working.into_iter().map(|(seed, callers)| scope.spawn(move || callers.call(seed))).collect();
        sleep(BEFORE);
        faults::happen(seed, faults, &cluster, &recorder);
        if !wait(|| cluster.slots.iter().all(Slot::is_ready)) {
            errors.push("a host was not ready again after the last fault".to_owned());
        }
        callers.stop();
        working.into_iter().for_each(|caller| caller.join().unwrap());
        if !wait(|| have_ended(&cluster)) {
            errors.push("some jobs have not ended at all hosts, or are not known to all".to_owned());
        }
        is_told.store(true, Ordering::Relaxed);
        for round in 0..2 {
            finals(&cluster, &recorder, round);
        }
        follower.join().unwrap();
        is_over.store(true, Ordering::Relaxed);
    });
    logs(&runtime, &cluster, &recorder);
    errors.extend(cluster.slots.iter().filter_map(Slot::stop));
    leftovers(&cluster, &recorder);
    errors.append(&mut callers.errors.lock().unwrap());
    let printed = cluster.slots.iter().map(|slot| (slot.name, slot.output())).collect();
    Run { history: recorder.entries(), errors, printed }
}

/// Waits for a condition. False if it does not come true in time.
fn wait(mut is_true: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !is_true() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        sleep(LOOK);
    }
    true
}

/// The jobs of a host, with their statuses.
fn jobs(slot: &Slot) -> Option<BTreeMap<String, String>> {
    let Answer::Result(result) = ask(slot, "worker/list", &json!({})) else { return None };
    let job = |job: &Value| Some((job["jobId"].as_str()?.to_owned(), job["status"].as_str()?.to_owned()));
    result["jobs"].as_array()?.iter().map(job).collect()
}

/// Whether all jobs have ended, and all hosts know it.
fn have_ended(cluster: &Cluster) -> bool {
    let found: Option<Vec<_>> = cluster.slots.iter().map(jobs).collect();
    found.is_some_and(|hosts| {
        hosts.windows(2).all(|two| two[0] == two[1]) && hosts.iter().flatten().all(|(_, status)| status != "running")
    })
}

/// Lets the jobs on that hosts hold back, since hosts ended while they carried them out alone, as an operator does.
fn let_on(cluster: &Cluster) {
    for slot in &cluster.slots {
        let running = jobs(slot).into_iter().flatten().filter(|(_, status)| status == "running");
        running.for_each(|(job, _)| drop(ask(slot, "worker/resume", &json!({"jobId": job}))));
    }
}

/// Asks each host about each job.
fn finals(cluster: &Cluster, recorder: &Recorder, round: u32) {
    let mut all: BTreeSet<String> = cluster.slots.iter().filter_map(jobs).flatten().map(|(job, _)| job).collect();
    all.extend(recorder.entries().into_iter().filter_map(|entry| match entry {
        Entry::Dispatched { job, .. } => Some(job),
        _ => None,
    }));
    for slot in &cluster.slots {
        for job in &all {
            let params = json!({"jobId": job});
            let status = match ask(slot, "worker/status", &params) {
                Answer::Result(status) => Some(status),
                Answer::Refused(_, why) if why.contains("Unknown job ID") => None,
                Answer::Refused(_, why) => Some(json!({"error": why})),
                Answer::None => Some(json!({"error": "no answer"})),
            };
            let result = match ask(slot, "worker/result", &params) {
                Answer::Result(result) => result,
                Answer::Refused(_, why) => json!(why),
                Answer::None => json!("no answer"),
            };
            let paths = result["artifacts"].as_array().cloned().unwrap_or_default();
            let artifacts = paths.iter().map(|path| artifact(slot, job, path.as_str().unwrap_or_default())).collect();
            let (host, job) = (slot.name.to_owned(), job.clone());
            recorder.add(Entry::Final { host, round, job, status, result, artifacts });
        }
    }
}

/// An artifact as a host gives it to clients of MCP.
fn artifact(slot: &Slot, job: &str, path: &str) -> String {
    let uri = format!("guild://{MEMBER}/jobs/{job}/{path}");
    let meta = crate::support::mcp::modern_meta(crate::support::mcp::NEW, json!({}));
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri, "_meta": meta}});
    let (body, version) = (body.to_string(), crate::support::mcp::NEW);
    let request = format!(
        "POST /members/{MEMBER}/mcp HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {version}\r\nMcp-Method: resources/read\r\n\
         Mcp-Name: {uri}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = slot.send(&request).map(|(status, body)| format!("{status} {body}"));
    answer.unwrap_or_else(|| "no answer".to_owned())
}

/// Reads the logs of all jobs.
fn logs(runtime: &Runtime, cluster: &Cluster, recorder: &Recorder) {
    let messages = runtime.block_on(cluster.nats.lock().unwrap().messages("guild_log")).unwrap();
    for message in messages {
        let header = |name: &str| message.headers.get(name).map(String::as_str).unwrap_or_default();
        let standing: Value = serde_json::from_str(header("Guild-Standing")).unwrap();
        let owner = &standing["holder"]["held"];
        let holder = owner["host"].as_str().map(|host| format!("{host}#{}", owner["incarnation"].as_str().unwrap()));
        let (writer, _) = header("Guild-Id").rsplit_once('.').unwrap();
        recorder.add(Entry::Logged {
            job: message.subject.rsplit('.').next().unwrap().to_owned(),
            sequence: message.sequence,
            expected: header("Nats-Expected-Last-Subject-Sequence").parse().unwrap_or(0),
            writer: writer.to_owned(),
            holder,
            epoch: standing["epoch"].as_u64().unwrap(),
            is_rollup: !header("Nats-Rollup").is_empty(),
        });
    }
}

/// Looks for processes of the hosts, and for files of jobs that are no more.
fn leftovers(cluster: &Cluster, recorder: &Recorder) {
    for slot in &cluster.slots {
        let members = slot.home.path("members");
        let home = format!("HOME={}\0", members.parent().unwrap().display());
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in processes {
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            if String::from_utf8_lossy(&environment).contains(&home) {
                recorder.add(Entry::Left { what: format!("the process {:?} of {}", process.file_name(), slot.name) });
            }
        }
        let jobs = slot.home.path(&format!("members/{MEMBER}/.jobs"));
        let known: BTreeSet<String> = recorder
            .entries()
            .into_iter()
            .filter_map(|entry| match entry {
                Entry::Final { job, status: Some(_), .. } => Some(job),
                _ => None,
            })
            .collect();
        for directory in fs::read_dir(jobs).into_iter().flatten().flatten() {
            let name = directory.file_name().into_string().unwrap();
            if !known.contains(&name) {
                recorder.add(Entry::Left { what: format!("the directory .jobs/{name} of {}", slot.name) });
            }
        }
    }
}

/// Prints the numbers of a run.
fn summarize(faults: &[Fault], history: &[Entry]) {
    let mut kinds = BTreeMap::<String, usize>::new();
    faults.iter().for_each(|fault| *kinds.entry(fault.name()).or_default() += 1);
    for (kind, count) in kinds {
        println!("{count:5} x {kind}");
    }
    let count = |is: fn(&Entry) -> bool| history.iter().filter(|entry| is(entry)).count();
    let ended = |status: &str| {
        let is = |entry: &&Entry| matches!(entry, Entry::Final { host, round: 0, status: Some(found), .. } if host == "a" && found["status"] == status);
        history.iter().filter(is).count()
    };
    println!(
        "{} dispatches answered; at the end {} jobs completed, {} failed, {} cancelled",
        count(|entry| matches!(entry, Entry::Dispatched { .. })),
        ended("completed"),
        ended("failed"),
        ended("cancelled")
    );
    println!(
        "{} cancels and {} deletions answered, {} answers about jobs, {} model requests, {} effects, {} events, {} gaps",
        count(|entry| matches!(entry, Entry::Cancelled { status: Some(_), .. })),
        count(|entry| matches!(entry, Entry::Deleted { is_answered: true, .. })),
        count(|entry| matches!(entry, Entry::Seen { .. })),
        count(|entry| matches!(entry, Entry::Requested { .. })),
        count(|entry| matches!(entry, Entry::Effect { .. })),
        count(|entry| matches!(entry, Entry::Event { .. })),
        count(|entry| matches!(entry, Entry::Gap { .. })),
    );
    let jobs: BTreeSet<_> = history
        .iter()
        .filter_map(|entry| match entry {
            Entry::Logged { job, epoch: 2.., .. } => Some(job),
            _ => None,
        })
        .collect();
    println!("{} jobs had more than one owner", jobs.len());
}

/// Keeps the history of a run, and what its hosts printed.
fn keep(seed: u64, run: &Run) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{seed}"));
    fs::create_dir_all(&directory).unwrap();
    save(&run.history, &directory.join("history.jsonl")).unwrap();
    for (host, printed) in &run.printed {
        fs::write(directory.join(format!("{host}.log")), printed).unwrap();
    }
    directory
}
