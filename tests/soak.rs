//! Hostile and healthy jobs side by side on one host, for as long as one likes: nothing grows, and no healthy job fails.
//!
//! In the test suite it takes seconds, and looks at descriptors only. `cargo xtask soak` lets it run for minutes and
//! compares what the host takes of the machine after its first minute with what it takes in its last.
#![allow(clippy::print_stdout, reason = "`cargo xtask soak` shows it")]

use std::{
    collections::BTreeMap,
    env, fs,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::support::{
    guest::{self, Guest},
    host::{Client, Home, Host},
};

/// How long, in seconds: `cargo xtask soak` says so.
const VARIABLE: &str = "GUILD_SOAK_SECONDS";
/// How long in the test suite.
const SECONDS: u64 = 5;
/// From so many seconds on, growth differs from what a host allocates on first use.
const MEASURED: u64 = 20;
/// The first and the last part that are compared, at most: minutes.
const PART: Duration = Duration::from_secs(60);
/// Jobs at a time.
const AT_A_TIME: usize = 8;
/// How long a hostile job may run.
const RUN_SECONDS: u32 = 1;
/// How long a job may take from its dispatch to its end, in a debug build on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at a job.
const POLL: Duration = Duration::from_millis(25);
/// By how much memory may differ between the two parts: what an allocator retains differs by that much.
const MEMORY: (f64, f64) = (0.05, 8.0);
/// By how much the numbers of descriptors and threads may.
const COUNT: f64 = 8.0;

/// A member of the soak, and how its jobs end.
struct Kind {
    name: &'static str,
    ends: &'static str,
    /// Cancelled while it runs.
    cancelled: bool,
}

const KINDS: [Kind; 9] = [
    Kind { name: "researcher", ends: "completed", cancelled: false },
    Kind { name: "looping", ends: "failed", cancelled: false },
    Kind { name: "quick", ends: "completed", cancelled: false },
    Kind { name: "growing", ends: "failed", cancelled: false },
    Kind { name: "flooding", ends: "failed", cancelled: false },
    Kind { name: "researcher-2", ends: "completed", cancelled: false },
    Kind { name: "trapping", ends: "failed", cancelled: false },
    Kind { name: "filling", ends: "failed", cancelled: false },
    Kind { name: "stopped", ends: "cancelled", cancelled: true },
];

/// What a host takes of the machine.
#[derive(Clone, Copy)]
struct Sample {
    at: Duration,
    /// Resident memory in MiB.
    memory: f64,
    descriptors: f64,
    threads: f64,
}

impl Sample {
    fn of(host: &Host, begun: Instant) -> Self {
        let process = Path::new("/proc").join(host.pid().to_string());
        let status = fs::read_to_string(process.join("status")).unwrap();
        let number = |name: &str| -> f64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_end_matches("kB").trim().parse().unwrap()
        };
        Self {
            at: begun.elapsed(),
            memory: number("VmRSS:") / 1024.0,
            descriptors: fs::read_dir(process.join("fd")).unwrap().count() as f64,
            threads: number("Threads:"),
        }
    }
}

/// Something that is measured: its name, and the number.
type Measure = (&'static str, fn(&Sample) -> f64);

/// What came of the jobs.
#[derive(Default)]
struct Ended {
    jobs: BTreeMap<&'static str, usize>,
    /// Those that did not end as they should.
    wrong: Vec<String>,
}

fn members(home: &Home) {
    for name in ["researcher", "researcher-2"] {
        home.researcher(name);
    }
    home.quick("quick");
    home.endless("stopped");
    let grown = "(loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) unreachable";
    let flood = Guest::importing(&["log"])
        .run("(loop (call $log.write (i32.const 1) (i32.const 16384) (i32.const 4096)) (br 0)) unreachable");
    // The name of an artifact is a number of four characters, which grows.
    let fill = Guest::importing(&["job-tools"]).with("(data (i32.const 1024) \"aaaa\")").run(
        "(loop
           (call $job-tools.write-artifact (i32.const 1024) (i32.const 4) (i32.const 16384) (i32.const 65536) (i32.const 8192))
           (i32.store8 (i32.const 1024) (i32.add (i32.const 97) (i32.rem_u (i32.load8_u (i32.const 1024)) (i32.const 23))))
           (br_if 0 (i32.eqz (i32.load8_u (i32.const 8192)))))
         (call $outcome)",
    );
    let hostile = [
        ("looping", guest::autonomous("(loop (br 0)) (i32.const 0)"), json!({})),
        ("growing", guest::autonomous(grown), json!({})),
        ("flooding", flood.build(), json!({"log": {}})),
        ("trapping", guest::autonomous("unreachable"), json!({})),
        ("filling", fill.pages(4).build(), json!({"job-tools": {}})),
    ];
    for (name, component, grants) in hostile {
        home.member(name, "autonomous-worker", &component);
        home.edit_manifest(name, |manifest| {
            manifest["component"]["grants"] = grants;
            manifest["component"]["resources"] = json!({"deadlineSeconds": RUN_SECONDS});
        });
    }
}

/// One job from its dispatch to its removal. The error says what was not as it should be.
fn job(client: &Client, kind: &Kind) -> Result<(), String> {
    let begun = Instant::now();
    let wrong = |what: &str, found: &dyn std::fmt::Debug| Err(format!("{}: {what}: {found:?}", kind.name));
    let params = json!({"description": kind.name, "task": "How is a member stopped, and what does prune remove?"});
    let id = match client.dispatch(params) {
        Ok(id) => id,
        Err(error) => return wrong("it was not accepted", &error),
    };
    if kind.cancelled {
        client.cancel(&id).unwrap();
    }
    let status = loop {
        let status = client.status(&id).unwrap();
        if status["status"] != "running" {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            return wrong("it does not end", &status);
        }
        thread::sleep(POLL);
    };
    if status["status"] != kind.ends {
        return wrong("it ended otherwise", &status);
    }
    if kind.ends == "failed" {
        client.cancel(&id).unwrap();
    }
    client.delete(&id).map(drop).or_else(|error| wrong("it cannot be deleted", &error))
}

fn median(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<f64> = samples.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The parts that are compared: after a first one that is for what is set up, the one that follows and the last.
fn compare(samples: &[Sample], whole: Duration) {
    let part = PART.min(whole / 4);
    let within = |from: Duration| -> Vec<Sample> {
        samples.iter().filter(|sample| (from..from + part).contains(&sample.at)).copied().collect()
    };
    let (early, late) = (within(part), within(whole - part));
    println!("\n{:>8} {:>10} {:>12} {:>8}", "seconds", "MiB", "descriptors", "threads");
    for shown in samples.chunks((samples.len() / 20).max(1)).filter_map(<[_]>::first) {
        let Sample { at, memory, descriptors, threads } = shown;
        println!("{:>8} {memory:>10.1} {descriptors:>12} {threads:>8}", at.as_secs());
    }
    let measures: [Measure; 3] = [
        ("MiB", |sample| sample.memory),
        ("descriptors", |sample| sample.descriptors),
        ("threads", |sample| sample.threads),
    ];
    let seconds = part.as_secs();
    println!("\nmedian of       {seconds:>4} s after the first    {seconds:>4} s at the end    allowed");
    let mut grown = Vec::new();
    for (name, of) in measures {
        let (early, late) = (median(&early, of), median(&late, of));
        let tolerance = if name == "MiB" { MEMORY.0 * early + MEMORY.1 } else { COUNT };
        println!("{name:<14} {early:>22.1} {late:>20.1} {:>10.1}", early + tolerance);
        if late > early + tolerance {
            grown.push(format!("{name}: from {early:.1} to {late:.1}"));
        }
    }
    assert!(grown.is_empty(), "it grows: {}", grown.join(", "));
}

#[test]
fn hostile_and_healthy_jobs_side_by_side_leave_nothing_behind() {
    let seconds = env::var(VARIABLE).map_or(SECONDS, |seconds| seconds.parse().unwrap());
    let whole = Duration::from_secs(seconds);
    let home = Home::new();
    members(&home);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let config = home.write("guild.toml", "[limits]\nartifacts_bytes = 1048576\nlog_bytes = 65536\n");
    let host = home.serve_roster(&["--sources", sources.to_str().unwrap(), "--config", config.to_str().unwrap()]);
    // One of each, so that every component is loaded.
    for kind in &KINDS {
        job(&host.at(kind.name), kind).unwrap();
    }
    let begun = Instant::now();
    let before = Sample::of(&host, begun);
    let (next, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let ended = Mutex::new(Ended::default());
    let mut samples = Vec::new();
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let kind = &KINDS[next.fetch_add(1, Ordering::Relaxed) % KINDS.len()];
                    let done = job(&host.at(kind.name), kind);
                    let mut ended = ended.lock().unwrap();
                    *ended.jobs.entry(kind.name).or_default() += 1;
                    ended.wrong.extend(done.err());
                }
            });
        }
        while begun.elapsed() < whole {
            samples.push(Sample::of(&host, begun));
            thread::sleep(Duration::from_secs(1));
        }
        over.store(true, Ordering::Relaxed);
    });
    let Ended { jobs, wrong } = ended.into_inner().unwrap();
    println!("\njobs in {seconds} s: {jobs:?}");
    assert!(wrong.is_empty(), "{} of {} jobs: {wrong:#?}", wrong.len(), jobs.values().sum::<usize>());
    assert!(KINDS.iter().all(|kind| jobs.contains_key(kind.name)), "each has its turn: {jobs:?}");
    for kind in &KINDS {
        let left = fs::read_dir(home.path(&format!("members/{}/jobs", kind.name))).unwrap().count();
        assert_eq!(left, 0, "{} has {left} entries in jobs/", kind.name);
    }
    let after = Sample::of(&host, begun);
    let more = after.descriptors - before.descriptors;
    assert!(more <= COUNT, "{more} descriptors more than before, and no job is there");
    if seconds >= MEASURED {
        compare(&samples, whole);
    }
    let (status, output) = host.stop();
    assert!(status.success() && !output.contains("panicked"), "{status}: {output}");
}
