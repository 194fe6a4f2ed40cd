//! CPU and time.

use std::{
    fs,
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use super::harness::{Case, Hostile};
use crate::support::{
    guest::{self, Guest},
    host::wait_for,
};

const LATE: &str = "`run` did not end within its deadline of 1 s (the job's own)";

fn for_a_second(component: Vec<u8>) -> Hostile {
    Hostile::autonomous(component).seconds(1)
}

/// A guest whose job sleeps for as long as there is time.
fn sleeping() -> Vec<u8> {
    Guest::importing(&["clocks/monotonic-clock", "io/poll"])
        .run("(call $poll.pollable.block (call $monotonic-clock.subscribe-duration (i64.const -1))) unreachable")
        .build()
}

fn is_cancelled(case: &Case, id: &str) {
    let begun = Instant::now();
    assert_eq!(case.client().cancel(id).unwrap(), json!({"jobId": id, "status": "cancelled"}));
    assert!(begun.elapsed() < Duration::from_secs(5), "the answer took {:?}", begun.elapsed());
    assert_eq!(case.client().status(id).unwrap()["status"], "cancelled");
}

#[test]
fn a_tight_loop_ends_at_its_deadline() {
    for_a_second(guest::autonomous("(loop (br 0)) unreachable")).attacks(|case| drop(case.fails(LATE)));
}

#[test]
fn a_loop_in_activate_ends_at_its_deadline() {
    Hostile::worker(guest::worker("(loop (br 0)) unreachable")).limit("activate_seconds = 2").attacks(|case| {
        case.refused(-32603, "`activate` did not end within its deadline of 2 s (limits.activate_seconds)")
    });
}

#[test]
fn a_loop_of_cheap_host_calls_ends_at_its_deadline() {
    let component = Guest::importing(&["random/random"])
        .run("(loop (drop (call $random.get-random-u64)) (br 0)) unreachable")
        .build();
    for_a_second(component).attacks(|case| drop(case.fails(LATE)));
}

#[test]
fn a_loop_that_fills_memory_ends_at_its_deadline() {
    let component = Guest::default()
        .pages(1000)
        .run("(loop (memory.fill (i32.const 0) (i32.const 7) (i32.const 65536000)) (br 0)) unreachable")
        .build();
    for_a_second(component).attacks(|case| drop(case.fails(LATE)));
}

#[test]
fn recursion_to_the_end_of_the_stack_is_a_trap() {
    let component = Guest::default()
        .with("(func $down (param i32) (result i32) (i32.add (call $down (local.get 0)) (i32.const 1)))")
        .run("(call $down (i32.const 0))")
        .build();
    Hostile::autonomous(component)
        .attacks(|case| drop(case.fails("the component failed in `run`: call stack exhausted")));
}

const EXITED: &str =
    "the component failed in `run`: it exited with a failure instead of answering (its exit code is not passed on)";

#[test]
fn a_guest_that_exits_ends_its_own_job_only() {
    let component = Guest::importing(&["cli/exit"]).run("(call $exit.exit (i32.const 1)) unreachable").build();
    Hostile::autonomous(component).attacks(|case| drop(case.fails(EXITED)));
}

#[test]
fn sleeping_for_ever_ends_at_the_deadline() {
    for_a_second(sleeping()).attacks(|case| drop(case.fails(LATE)));
}

#[test]
fn polling_for_ever_ends_at_the_deadline() {
    let component = Guest::importing(&["clocks/monotonic-clock", "io/poll"])
        .run(
            "(local $never i32) (local.set $never (call $monotonic-clock.subscribe-duration (i64.const -1)))
             (loop (drop (call $poll.pollable.ready (local.get $never))) (br 0)) unreachable",
        )
        .build();
    for_a_second(component).attacks(|case| drop(case.fails(LATE)));
}

#[test]
fn a_million_pollables_are_over_the_limit_of_handles() {
    let component = Guest::importing(&["clocks/monotonic-clock", "io/poll"])
        .run("(loop (drop (call $monotonic-clock.subscribe-duration (i64.const -1))) (br 0)) unreachable")
        .build();
    Hostile::autonomous(component)
        .attacks(|case| drop(case.fails("`run` needs more than the fixed limit handles = 4096")));
}

/// All pollables that a guest may have, polled together again and again.
#[test]
fn polling_thousands_of_pollables_at_once_ends_at_the_deadline() {
    let component = Guest::importing(&["clocks/monotonic-clock", "io/poll"])
        .run(
            "(local $n i32)
             (loop $more
               (i32.store (i32.add (i32.const 16384) (i32.mul (local.get $n) (i32.const 4)))
                 (call $monotonic-clock.subscribe-duration (i64.const -1)))
               (local.set $n (i32.add (local.get $n) (i32.const 1)))
               (br_if $more (i32.lt_u (local.get $n) (i32.const 2000))))
             (i32.store (i32.const 16384) (call $monotonic-clock.subscribe-duration (i64.const 0)))
             (loop
               (global.set $next (i32.const 65536))
               (call $poll.poll (i32.const 16384) (local.get $n) (i32.const 8192)) (br 0))
             unreachable",
        )
        .build();
    for_a_second(component).attacks(|case| drop(case.fails(LATE)));
}

/// A page of a server that takes requests and never answers.
fn fetching(from: &TcpListener) -> (Vec<u8>, String) {
    let address = from.local_addr().unwrap();
    let url = format!("http://{address}/");
    let component = Guest::importing(&["web"])
        .with(&format!("(data (i32.const 1024) {url:?})"))
        .run(&format!("(call $web.fetch (i32.const 1024) (i32.const {}) (i32.const 8192)) (call $outcome)", url.len()))
        .build();
    (component, format!("[web]\nallow = [\"{address}\"]\nprivate = [\"{address}\"]\nrobots = false\n"))
}

#[test]
fn a_host_call_that_is_blocked_at_the_deadline_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (component, policy) = fetching(&silent);
    for_a_second(component).policy(&policy).attacks(|case| drop(case.fails(LATE)));
}

#[test]
fn a_host_call_that_is_blocked_is_given_up_when_the_job_is_cancelled() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (component, policy) = fetching(&silent);
    Hostile::autonomous(component).policy(&policy).attacks(|case| {
        let id = case.start(1);
        let (mut asked, _) = silent.accept().unwrap();
        is_cancelled(case, &id);
        // The request is given up too: its connection is closed.
        let closed = std::io::copy(&mut asked, &mut std::io::sink());
        assert!(closed.is_ok(), "{closed:?}");
    });
}

/// All of them run on the same engine as the healthy jobs, and as each other.
#[test]
fn every_thread_is_busy_and_each_guest_still_ends_at_its_own_deadline() {
    let component = guest::autonomous("(loop (br 0)) unreachable");
    Hostile::autonomous(component).seconds(2).attacks(|case| {
        let cores = thread::available_parallelism().unwrap().get();
        let ids: Vec<String> = (0..cores * 3).map(|n| case.start(n + 1)).collect();
        for id in ids {
            let status = case.client().ended(&id);
            assert_eq!(status["error"], "`run` did not end within its deadline of 2 s (the job's own)");
        }
    });
}

#[test]
fn a_storm_of_cancels_cancels_each_job_once_and_for_all() {
    Hostile::autonomous(guest::autonomous("(loop (br 0)) unreachable")).attacks(|case| {
        let ids: Vec<String> = (0..20).map(|n| case.start(n + 1)).collect();
        thread::scope(|scope| {
            for _ in 0..8 {
                let (client, ids) = (case.client(), &ids);
                scope.spawn(move || {
                    for id in ids.iter().chain(ids) {
                        assert_eq!(client.cancel(id).unwrap()["status"], "cancelled");
                    }
                });
            }
        });
        for id in &ids {
            assert_eq!(case.client().status(id).unwrap()["status"], "cancelled");
            assert_eq!(case.client().result(id).unwrap_err().message, "Job was cancelled");
        }
    });
}

#[test]
fn of_cancel_and_completion_one_wins_and_the_other_gets_the_outcome() {
    let component =
        Guest::default().with("(data (i32.const 1024) \"done\")").run("(call $ok (i32.const 1024) (i32.const 4))");
    Hostile::autonomous(component.build()).attacks(|case| {
        let client = case.client();
        for n in 0..30_u64 {
            let id = case.start(1);
            // The moments differ from round to round.
            thread::park_timeout(Duration::from_micros(n * 300));
            let answered = client.cancel(&id).unwrap()["status"].clone();
            assert_eq!(client.status(&id).unwrap()["status"], answered);
            match answered.as_str().unwrap() {
                "completed" => assert_eq!(client.result(&id).unwrap()["output"], "done"),
                "cancelled" => assert_eq!(client.result(&id).unwrap_err().message, "Job was cancelled"),
                other => panic!("{other}"),
            }
        }
    });
}

#[test]
fn a_job_that_runs_is_not_deleted() {
    Hostile::autonomous(sleeping()).attacks(|case| {
        let id = case.start(1);
        for _ in 0..20 {
            let refused = case.client().delete(&id).unwrap_err();
            assert_eq!((refused.code, refused.message.as_str()), (-32602, "Cannot delete a running job"));
        }
        assert_eq!(case.client().status(&id).unwrap()["status"], "running");
        is_cancelled(case, &id);
    });
}

/// A guest that writes and writes, and does not care about answers.
#[test]
fn a_guest_does_not_run_on_after_its_cancel() {
    let component = Guest::importing(&["job-tools"])
        .with("(data (i32.const 1024) \"n.txt\")")
        .run(
            "(loop
               (i32.store (i32.const 2048) (i32.add (i32.load (i32.const 2048)) (i32.const 1)))
               (call $job-tools.write-artifact
                 (i32.const 1024) (i32.const 5) (i32.const 2048) (i32.const 4) (i32.const 8192))
               (call $job-tools.update-summary (i32.const 1024) (i32.const 5) (i32.const 8192))
               (br 0))
             unreachable",
        )
        .build();
    Hostile::autonomous(component).attacks(|case| {
        let id = case.start(1);
        let file = case.job(&id).join("artifacts/n.txt");
        wait_for("a first write", || fs::read(&file).ok());
        is_cancelled(case, &id);
        let stamps = || {
            let files = ["artifacts/n.txt", "status.md", "meta.json", "log.txt"];
            files.map(|name| fs::metadata(case.job(&id).join(name)).ok().map(|found| found.modified().unwrap()))
        };
        let last = stamps();
        // As long as another job's whole life takes.
        case.a_while_passes();
        assert_eq!(stamps(), last);
    });
}
