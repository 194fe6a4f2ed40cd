//! A component's own files: the quota of `/job/artifacts`, and that neither a link, nor a slash, nor a pipe, nor a
//! number leads past the directories and what may be done in them.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, symlink},
    sync::{Arc, mpsc},
    time::{Duration, Instant, SystemTime},
};

use cap_std::{ambient_authority, fs::Dir};
use guild_contract::{
    Limits,
    capability::grants::{Pattern, Rule},
};
use guild_sandbox::{CallError, Plugin};
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};

use crate::support::{
    guest::{self, Guest},
    sandbox::{Bench, BenchJob},
};

/// The probe, which tries what its task names, line by line.
struct Probe {
    bench: Bench,
    plugin: Arc<Plugin>,
}

impl Probe {
    fn new(limits: Limits) -> Self {
        let bench = Bench::caching(limits);
        let grants = guest::everything();
        let asked = json!({"file": "guest.wasm", "world": "autonomous-worker", "grants": grants});
        let plugin = bench.prepare(&guest::built("probe"), asked).unwrap();
        Self { bench, plugin }
    }

    /// Of these bytes and entries.
    fn with_quota(artifacts_bytes: u64, artifacts_entries: u64) -> Self {
        Self::new(Limits { artifacts_bytes, artifacts_entries, ..Limits::default() })
    }

    /// The outcome of each step of a job.
    async fn carry_out(&self, job: &BenchJob) -> BTreeMap<String, String> {
        let report = job.run(&self.plugin).await.unwrap().unwrap();
        let lines = report.lines().filter_map(|line| line.split_once(": "));
        lines.map(|(step, outcome)| (step.to_owned(), outcome.to_owned())).collect()
    }

    async fn try_each(&self, steps: &[&str]) -> (BTreeMap<String, String>, BenchJob) {
        let job = self.bench.job(&steps.join("\n"));
        let mut outcomes = self.carry_out(&job).await;
        outcomes.values_mut().for_each(|outcome| *outcome = outcome.replace(STREAM_FAILED, NO_SPACE));
        (outcomes, job)
    }
}

/// What is in a job's artifacts: bytes, and entries.
fn taken(job: &BenchJob) -> (u64, u64) {
    let (mut bytes, mut entries) = (0, 0);
    let mut unread = vec![job.dir.join("artifacts")];
    while let Some(dir) = unread.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            entries += 1;
            if meta.is_dir() {
                unread.push(entry.path());
            } else if meta.is_file() {
                bytes += meta.len();
            }
        }
    }
    (bytes, entries)
}

const NO_SPACE: &str = "No space left on device (os error 51)";
/// What some versions of wasi-libc make of any stream that fails, without asking `filesystem-error-code`, which is more specific.
const STREAM_FAILED: &str = "I/O error (os error 29)";

#[tokio::test]
async fn exactly_the_limit_of_bytes_can_be_written_and_the_log_names_the_limit_once() {
    let probe = Probe::with_quota(10_000, 100);
    let full = [
        "fill /job/artifacts/a 10000",
        "fill /job/artifacts/a 1",
        "at /job/artifacts/a 10000",
        "set-size /job/artifacts/a 10001",
        "at /job/artifacts/b 0",
        "artifact c x",
        "size /job/artifacts/a",
    ];
    let (outcomes, job) = probe.try_each(&full).await;
    assert_eq!(outcomes["fill /job/artifacts/a 10000"], "ok 10000");
    assert_eq!(outcomes["fill /job/artifacts/a 1"], format!("ok 0, then {NO_SPACE}"));
    assert_eq!(outcomes["set-size /job/artifacts/a 10001"], format!("error {NO_SPACE}"));
    for step in ["at /job/artifacts/a 10000", "at /job/artifacts/b 0"] {
        assert_eq!(outcomes[step], format!("error {NO_SPACE}"), "{step}");
    }
    assert!(outcomes["artifact c x"].contains("limits.artifacts_bytes = 10000"), "{outcomes:?}");
    assert_eq!(outcomes["size /job/artifacts/a"], "ok 10000");
    assert_eq!(taken(&job).0, 10_000);
    let log = job.log();
    assert_eq!(log.matches("limits.artifacts_bytes = 10000").count(), 1, "{log}");
}

#[tokio::test]
async fn one_byte_beyond_the_limit_is_not_written() {
    let probe = Probe::with_quota(10_000, 100);
    let (outcomes, job) = probe.try_each(&["fill /job/artifacts/a 10001"]).await;
    assert_eq!(outcomes["fill /job/artifacts/a 10001"], format!("ok 10000, then {NO_SPACE}"));
    assert_eq!(taken(&job), (10_000, 1));
}

#[tokio::test]
async fn exactly_the_limit_of_entries_can_be_made_of_whatever_kind() {
    let made = ["files /job/artifacts", "dirs /job/artifacts", "symlinks /job/artifacts"];
    for step in made {
        let probe = Probe::with_quota(1 << 20, 5);
        let (below, above) = (format!("{step} 5"), format!("{step} 6"));
        let (outcomes, job) = probe.try_each(&[&below]).await;
        assert_eq!((outcomes[&below].as_str(), taken(&job).1), ("ok 5", 5));
        let (outcomes, job) = probe.try_each(&[&above]).await;
        assert_eq!((outcomes[&above].clone(), taken(&job).1), (format!("ok 5, then {NO_SPACE}"), 5), "{step}");
        assert_eq!(job.log().matches("the fixed limit artifacts_entries = 5").count(), 1);
    }
    let probe = Probe::with_quota(1 << 20, 5);
    let (outcomes, job) = probe.try_each(&["write /job/artifacts/a x", "links /job/artifacts/a 9"]).await;
    assert_eq!((outcomes["links /job/artifacts/a 9"].clone(), taken(&job).1), (format!("ok 4, then {NO_SPACE}"), 5));
}

#[tokio::test]
async fn a_hole_counts_as_its_file_is_long() {
    let probe = Probe::with_quota(1 << 20, 10);
    let steps = [
        "at /job/artifacts/a 1048575",
        "at /job/artifacts/b 0",
        "set-size /job/artifacts/c 1",
        "set-size /job/artifacts/a 9223372036854775807",
        "at /job/artifacts/a 9223372036854775807",
    ];
    let (outcomes, job) = probe.try_each(&steps).await;
    assert_eq!(outcomes[steps[0]], "ok ");
    for step in &steps[1..] {
        assert!(outcomes[*step].starts_with("error"), "{step}: {}", outcomes[*step]);
    }
    assert_eq!(taken(&job).0, 1 << 20);
}

#[tokio::test]
async fn what_is_removed_truncated_or_replaced_is_given_back() {
    let probe = Probe::with_quota(8192, 3);
    let steps = [
        "churn /job/artifacts/a 50",
        "fill /job/artifacts/a 8192",
        "truncate /job/artifacts/a",
        "fill /job/artifacts/b 8192",
        "write /job/artifacts/a y",
        "remove /job/artifacts/b",
        "write /job/artifacts/a z",
        "mkdir /job/artifacts/d",
        "mkdir /job/artifacts/e",
        "rename /job/artifacts/d /job/artifacts/e",
        "write /job/artifacts/e/f z",
        "mkdir /job/artifacts/g",
        "remove /job/artifacts/e/f",
        "rmdir /job/artifacts/e",
        "mkdir /job/artifacts/h",
    ];
    let (outcomes, job) = probe.try_each(&steps).await;
    for step in steps {
        match step {
            "write /job/artifacts/a y" | "mkdir /job/artifacts/g" => {
                assert!(outcomes[step].starts_with("error"), "{step}: {}", outcomes[step]);
            }
            _ => assert!(outcomes[step].starts_with("ok"), "{step}: {}", outcomes[step]),
        }
    }
    assert_eq!(taken(&job), (1, 2));
}

#[tokio::test]
async fn a_file_without_a_name_takes_room_until_it_is_closed() {
    let probe = Probe::with_quota(10_000, 10);
    let steps = [
        "fill /job/artifacts/b 4000",
        "unlinked /job/artifacts/a 6000",
        "unlinked /job/artifacts/c 6001",
        "fill /job/artifacts/b 6000",
    ];
    let (outcomes, _) = probe.try_each(&steps).await;
    assert_eq!(outcomes[steps[1]], "ok 6000");
    assert!(outcomes[steps[2]].starts_with("ok 4096, then"), "{}", outcomes[steps[2]]);
    assert_eq!(outcomes[steps[3]], "ok 6000");
}

#[tokio::test]
async fn a_file_that_is_open_by_another_way_takes_room_too() {
    for way in ["/job/artifacts/a", "/job/./artifacts/a"] {
        let probe = Probe::with_quota(10_000, 10);
        let step = format!("outlived {way} /job/artifacts/a");
        let (outcomes, job) = probe.try_each(&["fill /job/artifacts/a 6000", &step]).await;
        assert_eq!(outcomes[&step], format!("ok 4000, then {NO_SPACE}"), "{way}");
        assert_eq!(taken(&job), (4000, 1));
    }
}

#[tokio::test]
async fn several_open_files_and_the_tool_for_artifacts_share_one_account() {
    let probe = Probe::with_quota(24 * 4096, 100);
    let (outcomes, job) = probe.try_each(&["interleave /job/artifacts/a /job/artifacts/b"]).await;
    assert!(outcomes["interleave /job/artifacts/a /job/artifacts/b"].starts_with("ok 98304, then"), "{outcomes:?}");
    assert_eq!(taken(&job).0, 24 * 4096);

    let probe = Probe::with_quota(100_000, 1000);
    let task = "interleave /job/artifacts/a /job/artifacts/b\nfill /job/artifacts/c 100000\nfiles /job/artifacts 2000";
    let job = probe.bench.job(task);
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let tools = job.tools.clone();
            std::thread::spawn(move || {
                (0..100)
                    .filter(|n| tools.job().write_artifact(&format!("t/{writer}-{n}"), &[b'x'; 701]).is_ok())
                    .count()
            })
        })
        .collect();
    probe.carry_out(&job).await;
    let by_tool: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    let (bytes, entries) = taken(&job);
    assert!(bytes <= 100_000 && entries == 1000, "{bytes} bytes in {entries} entries, {by_tool} by the tool");
    // Single bytes filled what the tool left, unless it was not ready by then.
    assert!(bytes > 99_000, "{bytes} bytes, {by_tool} by the tool");
}

#[tokio::test]
async fn directories_are_only_so_deep_however_they_are_made_or_moved() {
    let probe = Probe::with_quota(1 << 20, 1000);
    let deepest = format!("/job/artifacts{}", "/d".repeat(15));
    let (file, below) = (format!("write {deepest}/d/f x"), format!("rename /job/artifacts/e {deepest}/e"));
    let steps = [
        "deep /job/artifacts 40",
        &file,
        "mkdir /job/artifacts/e",
        "mkdir /job/artifacts/e/f",
        &below,
        "rmdir /job/artifacts/e/f",
        &format!("{below}2"),
        "artifact 1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16 x",
        "artifact 1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17 x",
    ];
    let (outcomes, job) = probe.try_each(&steps).await;
    assert_eq!(outcomes[steps[0]], "ok 16, then Filename too long (os error 37)");
    assert_eq!(outcomes[&file], "ok ");
    assert_eq!(outcomes[&below], "error invalid filename");
    assert_eq!(outcomes[&format!("{below}2")], "ok ");
    assert_eq!(outcomes[steps[7]], "ok ");
    assert!(outcomes[steps[8]].starts_with("error"), "{outcomes:?}");
    assert!(job.dir.join("artifacts").join("d/".repeat(15)).join("e2").is_dir());
}

#[tokio::test]
async fn no_symlink_that_a_component_makes_leads_out_and_none_that_is_there_is_followed_out() {
    let probe = Probe::with_quota(1 << 20, 100);
    let refused = [
        "symlink /etc/passwd /job/artifacts/absolute",
        "symlink ../meta.json /job/artifacts/up",
        "symlink a/../../meta.json /job/artifacts/around",
        "symlink .. /job/artifacts/parent",
        "symlink x /memory/link",
        "symlink x /job/link",
    ];
    let made = [
        "symlink dangling /job/artifacts/dangling-link",
        "symlink loop-b /job/artifacts/loop-a",
        "symlink loop-a /job/artifacts/loop-b",
        "symlink self /job/artifacts/self",
        "symlink one /job/artifacts/two",
        "write /job/artifacts/one first",
        "symlink two /job/artifacts/three",
    ];
    let followed = [
        "read /job/artifacts/three",
        "write /job/artifacts/dangling-link made",
        "read /job/artifacts/loop-a",
        "read /job/artifacts/self",
        "write /job/artifacts/self x",
        "readlink /job/artifacts/three",
    ];
    let planted = [
        "read /job/artifacts/planted",
        "write /job/artifacts/planted forged",
        "truncate /job/artifacts/planted",
        "read /job/artifacts/chain",
        "ls /job/artifacts/out",
        "write /job/artifacts/out/new forged",
        "mkdir /job/artifacts/out/new",
        "read /job/artifacts/out/meta.json",
        "read /job/artifacts/proc",
        "rename /job/artifacts/one /job/artifacts/out/one",
        "link /job/artifacts/out/meta.json /job/artifacts/hard",
        "read /memory/planted",
        "remove /job/artifacts/out/meta.json",
    ];
    let steps: Vec<&str> = refused.iter().chain(&made).chain(&followed).chain(&planted).copied().collect();
    let job = probe.bench.job(&steps.join("\n"));
    let meta = fs::read(job.dir.join("meta.json")).unwrap();
    let artifacts = job.dir.join("artifacts");
    symlink("../meta.json", artifacts.join("planted")).unwrap();
    symlink("planted", artifacts.join("chain")).unwrap();
    symlink("..", artifacts.join("out")).unwrap();
    symlink("/proc/self/environ", artifacts.join("proc")).unwrap();
    symlink("/etc/passwd", probe.bench.dir.path().join("member/memory/planted")).unwrap();
    let outcomes = probe.carry_out(&job).await;
    for step in refused.iter().chain(&planted) {
        assert!(outcomes[*step].starts_with("error"), "{step}: {}", outcomes[*step]);
    }
    for step in &made {
        assert!(outcomes[*step].starts_with("ok"), "{step}: {}", outcomes[*step]);
    }
    assert_eq!(outcomes["read /job/artifacts/three"], "ok first");
    assert_eq!(outcomes["readlink /job/artifacts/three"], "ok two");
    assert_eq!(outcomes["write /job/artifacts/dangling-link made"], "ok ");
    for step in &followed[2..5] {
        assert_eq!(outcomes[*step], "error filesystem loop or indirection limit (e.g. symlink loop)", "{step}");
    }
    assert_eq!(fs::read(job.dir.join("meta.json")).unwrap(), meta);
    assert_eq!(fs::read_to_string(artifacts.join("dangling")).unwrap(), "made");
}

#[tokio::test]
async fn a_trailing_slash_or_dots_lead_nowhere_else() {
    let probe = Probe::with_quota(1 << 20, 100);
    let refused = [
        "write /job/artifacts/new/ x",
        "read /job/artifacts/file/",
        "read /job/artifacts/link/",
        "write /job/artifacts/link/ x",
        "remove /job/artifacts/file/",
        "rename /job/artifacts/file/ /job/artifacts/moved",
        "rename /job/artifacts/file /job/artifacts/moved/",
        "link /job/artifacts/file/ /job/artifacts/hard",
        "mkdir /job/artifacts/..",
        "mkdir /job/artifacts/../../new",
        "rmdir /job/artifacts/.",
        "read /job/artifacts/out/",
        "ls /job/artifacts/out/",
        "truncate /job/artifacts/out/",
    ];
    let steps: Vec<&str> =
        ["write /job/artifacts/file one", "symlink file /job/artifacts/link"].into_iter().chain(refused).collect();
    let job = probe.bench.job(&steps.join("\n"));
    symlink("..", job.dir.join("artifacts/out")).unwrap();
    let outcomes = probe.carry_out(&job).await;
    for step in refused {
        assert!(outcomes[step].starts_with("error"), "{step}: {}", outcomes[step]);
    }
    assert_eq!(taken(&job), (3, 3));
}

#[tokio::test]
async fn what_is_read_only_stays_so_by_truncate_link_and_rename_too() {
    let probe = Probe::with_quota(1 << 20, 100);
    fs::create_dir_all(probe.bench.dir.path().join("member/memory")).unwrap();
    fs::write(probe.bench.dir.path().join("member/memory/note.md"), "noted").unwrap();
    let steps = [
        "truncate /memory/note.md",
        "set-size /memory/note.md 0",
        "append /memory/note.md x",
        "remove /memory/note.md",
        "rename /memory/note.md /job/artifacts/note.md",
        "rename /job/artifacts/own /memory/own.md",
        "link /memory/note.md /job/artifacts/note.md",
        "link /job/artifacts/own /memory/own.md",
        "link /job/task.md /job/artifacts/task.md",
        "mkdir /memory/dir",
        "truncate /job/task.md",
        "set-size /job/task.md 0",
        "at /job/artifacts/../task.md 0",
        "rename /job/artifacts /job/elsewhere",
    ];
    let (outcomes, job) = probe.try_each(&[&["write /job/artifacts/own x"][..], &steps].concat()).await;
    for step in steps {
        assert!(outcomes[step].starts_with("error"), "{step}: {}", outcomes[step]);
    }
    assert_eq!(fs::read_to_string(probe.bench.dir.path().join("member/memory/note.md")).unwrap(), "noted");
    assert_eq!(fs::metadata(probe.bench.dir.path().join("member/memory/note.md")).unwrap().nlink(), 1);
    assert!(!fs::read_to_string(job.dir.join("task.md")).unwrap().is_empty());
    assert_eq!(taken(&job), (1, 1));
}

#[tokio::test]
async fn a_pipe_or_a_device_in_a_file_s_place_is_refused_and_nothing_waits_for_it() {
    let probe = Probe::new(Limits { run_seconds: 20, ..Limits::default() });
    let memory = probe.bench.dir.path().join("member/memory");
    fs::create_dir_all(&memory).unwrap();
    mkfifoat(CWD, memory.join("pipe"), Mode::RWXU).unwrap();
    let job = probe.bench.job("read /memory/pipe\nread /job/artifacts/pipe\nwrite /job/artifacts/pipe x\nls /memory");
    mkfifoat(CWD, job.dir.join("artifacts/pipe"), Mode::RWXU).unwrap();
    let begun = Instant::now();
    let outcomes = probe.carry_out(&job).await;
    assert!(begun.elapsed() < Duration::from_secs(10));
    for step in ["read /memory/pipe", "read /job/artifacts/pipe", "write /job/artifacts/pipe x"] {
        assert!(outcomes[step].starts_with("error"), "{step}: {}", outcomes[step]);
    }
    assert!(outcomes["ls /memory"].contains("pipe"));
    // Nothing waits for the pipe any more: whoever opens it has no peer.
    let other =
        rustix::fs::open(memory.join("pipe"), rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK, Mode::empty());
    assert_eq!(other.unwrap_err(), rustix::io::Errno::NXIO);
}

#[tokio::test]
async fn times_before_1970_and_a_large_directory_are_read_like_others() {
    let probe = Probe::with_quota(1 << 20, 100);
    let memory = probe.bench.dir.path().join("member/memory");
    fs::create_dir_all(&memory).unwrap();
    for n in 0..3000 {
        fs::write(memory.join(format!("{n}.txt")), "").unwrap();
    }
    let job = probe.bench.job("size /job/artifacts/old\nmodified /job/artifacts/old\ncount /memory");
    let old = fs::File::create(job.dir.join("artifacts/old")).unwrap();
    old.set_modified(SystemTime::UNIX_EPOCH - Duration::from_secs(86_400 * 365 * 20)).unwrap();
    let outcomes = probe.carry_out(&job).await;
    assert_eq!(outcomes["size /job/artifacts/old"], "ok 0");
    assert_eq!(outcomes["modified /job/artifacts/old"], "ok true");
    let there = fs::read_dir(&memory).unwrap().count();
    assert_eq!(outcomes["count /memory"], format!("ok {there}"));
}

#[tokio::test]
async fn a_flood_of_empty_writes_takes_nothing() {
    let probe = Probe::with_quota(1, 1);
    let (outcomes, job) = probe.try_each(&["empties /job/artifacts/a 20000", "fill /job/artifacts/a 2"]).await;
    assert_eq!(outcomes["empties /job/artifacts/a 20000"], "ok ");
    assert_eq!(outcomes["fill /job/artifacts/a 2"], format!("ok 1, then {NO_SPACE}"));
    assert_eq!(taken(&job), (1, 1));
}

#[tokio::test]
async fn what_the_host_stores_for_open_files_counts_as_memory() {
    let probe = Probe::new(Limits { memory_bytes: 4 << 20, open_files: 10_000, ..Limits::default() });
    let (outcomes, _) = probe.try_each(&["write /job/artifacts/a x", "opens /job/artifacts/a 1000"]).await;
    let opened = outcomes["opens /job/artifacts/a 1000"].strip_prefix("ok ").unwrap();
    let (count, why) = opened.split_once(", then ").unwrap();
    let count: u32 = count.parse().unwrap();
    assert!((10..64).contains(&count), "{opened}");
    assert_eq!(why, "Out of memory (os error 48)");
}

#[tokio::test]
async fn open_files_are_bounded_and_those_that_are_closed_make_room() {
    let probe = Probe::new(Limits { open_files: 20, ..Limits::default() });
    let steps = ["write /job/artifacts/a x", "opens /job/artifacts/a 50", "churn /job/artifacts/b 100"];
    let (outcomes, _) = probe.try_each(&steps).await;
    let opened = outcomes["opens /job/artifacts/a 50"].strip_prefix("ok ").unwrap();
    let (count, why) = opened.split_once(", then ").unwrap();
    assert!((4..=10).contains(&count.parse::<u32>().unwrap()), "{opened}");
    assert_eq!(why, "Quota exceeded (os error 19)");
    assert_eq!(outcomes["churn /job/artifacts/b 100"], "ok ");
}

#[tokio::test]
async fn without_the_grant_there_are_no_artifacts_to_write() {
    let mut bench = Bench::caching(Limits::default());
    let deny = vec!["artifacts".parse().unwrap()];
    bench.policy.rules.push(Rule { members: Pattern("*".into()), allow: None, deny, limits: None });
    let asked = json!({"file": "guest.wasm", "world": "autonomous-worker", "grants": {
        "log": {}, "memory": {"write": true}, "files": {}, "web": {}, "job-tools": {}, "status": {}, "agent": {}
    }});
    let plugin = bench.prepare(&guest::built("probe"), asked).unwrap();
    let probe = Probe { bench, plugin };
    let (outcomes, job) =
        probe.try_each(&["write /job/artifacts/a x", "mkdir /job/artifacts/b", "artifact c x", "ls /job"]).await;
    for step in ["write /job/artifacts/a x", "mkdir /job/artifacts/b"] {
        assert!(outcomes[step].starts_with("error"), "{outcomes:?}");
    }
    assert!(outcomes["artifact c x"].contains("artifacts"), "{outcomes:?}");
    assert_eq!(taken(&job), (0, 0));
}

#[tokio::test]
async fn nothing_is_written_after_the_call_has_ended() {
    let probe = Probe::new(Limits { run_seconds: 1, ..Limits::default() });
    let job = probe.bench.job("scribble");
    let ended = job.run(&probe.plugin).await;
    assert!(matches!(ended, Err(CallError::Deadline { call: "run", seconds: 1, .. })), "{ended:?}");
    let file = job.dir.join("artifacts/n.txt");
    let last = fs::metadata(&file).unwrap().modified().unwrap();
    probe.try_each(&["churn /job/artifacts/b 20"]).await;
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), last);
}

#[tokio::test]
async fn nothing_is_written_after_the_job_has_ended_though_the_call_runs_on() {
    let probe = Probe::new(Limits { run_seconds: 2, ..Limits::default() });
    let job = probe.bench.job("scribble");
    let file = job.dir.join("artifacts/n.txt");
    let ended = async {
        until(|| file.exists()).await;
        job.tools.job().complete(Some("done")).unwrap();
        fs::metadata(&file).unwrap().modified().unwrap()
    };
    let (_, last) = tokio::join!(job.run(&probe.plugin), ended);
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), last);
}

#[tokio::test]
async fn what_is_behind_an_interface_has_to_be_asked_for_and_allowed_too() {
    let asked = |grants: Value| json!({"file": "guest.wasm", "world": "autonomous-worker", "grants": grants});
    let mut bench = Bench::caching(Limits::default());
    bench.policy.web = true;
    let least = json!({
        "log": {}, "memory": {}, "files": {}, "web": {}, "job-tools": {}, "status": {}, "agent": {}
    });
    let plugin = bench.prepare(&guest::built("probe"), asked(least)).unwrap();
    let steps = ["remember k x", "forget k", "search moths", "ask moths", "recall k"];
    let (outcomes, _) = Probe { bench, plugin }.try_each(&steps).await;
    for (step, line) in [
        ("remember k x", r#""memory": {"write": true}"#),
        ("forget k", r#""memory": {"write": true}"#),
        ("search moths", r#""web": {"search": true}"#),
        ("ask moths", r#""agent": {"ownTools": true}"#),
    ] {
        assert!(outcomes[step].contains("not granted") && outcomes[step].contains(line), "{step}: {}", outcomes[step]);
    }
    assert_eq!(outcomes["recall k"], "ok ");

    let mut bench = Bench::caching(Limits::default());
    bench.policy.web = true;
    let denied = ["memory:write", "web:search", "agent:own-tools", "artifacts"];
    let deny = denied.map(|capability| capability.parse().unwrap()).to_vec();
    bench.policy.rules.push(Rule { members: Pattern("*".into()), allow: None, deny, limits: None });
    let most = json!({
        "log": {}, "memory": {"write": true}, "files": {}, "web": {"search": true}, "job-tools": {}, "status": {},
        "agent": {"ownTools": true}, "artifacts": {}
    });
    let plugin = bench.prepare(&guest::built("probe"), asked(most)).unwrap();
    let steps = ["remember k x", "search moths", "ask moths", "artifact a x"];
    let (outcomes, _) = Probe { bench, plugin }.try_each(&steps).await;
    for (step, capability) in steps.into_iter().zip(denied) {
        let outcome = &outcomes[step];
        assert!(outcome.contains("guild.toml denies it") && outcome.contains(capability), "{step}: {outcome}");
    }
}

/// Waits until something is so.
async fn until(is_so: impl Fn() -> bool) {
    let late = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < late, "it did not come to that");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The manifest of what [`streaming`] makes.
fn logging() -> Value {
    json!({"file": "guest.wasm", "world": "autonomous-worker", "grants": {"log": {}}})
}

/// A guest that opens `/job/artifacts/a` as `$file` of `$dir`, has a stream of it in `$stream`, and then runs these steps.
fn streaming(steps: &str) -> Vec<u8> {
    let body = format!(
        "(local $stream i32)
         (call $preopens.get-directories (i32.const 8192))
         ;; The second directory, by its first field; the path; create; write.
         (global.set $dir (i32.load offset=12 (i32.load (i32.const 8192))))
         (call $types.descriptor.open-at (global.get $dir) (i32.const 0) (i32.const 9000) (i32.const 1)
           (i32.const 1) (i32.const 2) (i32.const 8192))
         (global.set $file (i32.load offset=8196 (i32.const 0)))
         (call $types.descriptor.write-via-stream (global.get $file) (i64.const 0) (i32.const 8192))
         (local.set $stream (i32.load offset=8196 (i32.const 0)))
         {steps}"
    );
    Guest::importing(&["filesystem/types", "filesystem/preopens", "io/streams", "io/error", "log"])
        .pages(4)
        .with("(data (i32.const 9000) \"a\") (data (i32.const 9010) \"go\") (global $dir (mut i32) (i32.const 0)) (global $file (mut i32) (i32.const 0))")
        .run(&body)
        .build()
}

#[tokio::test]
async fn a_stream_reports_that_there_is_no_space() {
    // The error's code, as a letter: `A` is the first one of `error-code`.
    let component = streaming(
        "(call $streams.output-stream.blocking-write-and-flush (local.get $stream) (i32.const 9000) (i32.const 11) (i32.const 8192))
         (call $types.filesystem-error-code (i32.load offset=8200 (i32.const 0)) (i32.const 8192))
         (i32.store8 (i32.const 9000) (i32.add (i32.const 65) (i32.load8_u offset=8193 (i32.const 0))))
         (call $failed (i32.const 9000) (i32.const 1))",
    );
    let bench = Bench::caching(Limits { artifacts_bytes: 10, ..Limits::default() });
    let plugin = bench.prepare(&component, logging()).unwrap();
    let insufficient_space = char::from(b'A' + 23).to_string();
    assert_eq!(bench.run(&plugin).await.0, Ok(Err(insufficient_space)));
}

#[tokio::test]
async fn a_write_beyond_what_a_stream_permits_ends_the_call() {
    let bench = Bench::caching(Limits::default());
    let write = |bytes: u32| {
        streaming(&format!(
            "(call $streams.output-stream.write (local.get $stream) (i32.const 0) (i32.const {bytes}) (i32.const 8192))
             (call $ok (i32.const 9000) (i32.const 1))"
        ))
    };
    let plugin = bench.prepare(&write(65536), logging()).unwrap();
    assert_eq!(bench.run(&plugin).await.0, Ok(Ok("a".into())));
    let plugin = bench.prepare(&write(65537), logging()).unwrap();
    let error = bench.run(&plugin).await.0.unwrap_err().to_string();
    assert!(error.contains("`check-write` permits"), "{error}");
}

#[tokio::test]
async fn a_component_whose_writes_all_wait_does_not_block_the_writes_of_others() {
    let limits = Limits { open_files: 2000, memory_bytes: 128 << 20, ..Limits::default() };
    let bench = Bench::caching(limits);
    // It waits until it may begin, and writes to more streams than there are threads for what blocks.
    let many = streaming(
        "(loop $wait
           (call $types.descriptor.stat-at (global.get $dir) (i32.const 0) (i32.const 9010) (i32.const 2) (i32.const 8192))
           (br_if $wait (i32.load8_u (i32.const 8192))))
         (loop $more
           (call $types.descriptor.write-via-stream (global.get $file) (i64.const 0) (i32.const 8192))
           (local.set $stream (i32.load offset=8196 (i32.const 0)))
           (call $streams.output-stream.write (local.get $stream) (i32.const 9000) (i32.const 1) (i32.const 8192))
           (global.set $dir (i32.add (global.get $dir) (i32.const 1)))
           (br_if $more (i32.lt_u (global.get $dir) (i32.const 600))))
         (call $log.write (i32.const 1) (i32.const 9010) (i32.const 2))
         (call $streams.output-stream.blocking-flush (local.get $stream) (i32.const 8192))
         (call $ok (i32.const 9000) (i32.const 1))",
    );
    let one = streaming(
        "(call $streams.output-stream.blocking-write-and-flush (local.get $stream) (i32.const 9000) (i32.const 1) (i32.const 8192))
         (call $ok (i32.const 9000) (i32.const 1))",
    );
    let (many, one) = (bench.prepare(&many, logging()).unwrap(), bench.prepare(&one, logging()).unwrap());
    let (crowd, neighbour) = (bench.job("t"), bench.job("t"));
    let artifacts = crowd.dir.join("artifacts");
    let (release, released) = mpsc::channel::<()>();
    let meanwhile = async {
        until(|| artifacts.join("a").exists()).await;
        let (quota, root) = (crowd.tools.job().artifacts().clone(), artifacts.clone());
        std::thread::spawn(move || {
            let dir = Dir::open_ambient_dir(&root, ambient_authority()).unwrap();
            quota.change(&dir, |_| {
                fs::write(root.join("go"), "").unwrap();
                Ok(released.recv().unwrap_err())
            })
        });
        until(|| crowd.log().contains("go")).await;
        let written = tokio::time::timeout(Duration::from_secs(20), neighbour.run(&one)).await;
        assert_eq!(crowd.dir.join("artifacts/a").metadata().unwrap().len(), 0);
        drop(release);
        written
    };
    let (crowded, written) = tokio::join!(crowd.run(&many), meanwhile);
    assert_eq!(written.expect("the neighbour waits"), Ok(Ok("a".into())));
    assert_eq!(crowded, Ok(Ok("a".into())));
}
