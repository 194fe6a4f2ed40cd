//! Memory, and whatever else the host has to hold for a guest.

use std::fs;

use serde_json::json;

use super::harness::{Hostile, task};
use crate::support::guest::{self, Guest};

const LATE: &str = "`run` did not end within its deadline of 1 s (the job's own)";
const MEMORY: &str = "limits.memory_bytes = 67108864";

fn run_needs(limit: &str) -> String {
    format!("`run` needs more than {limit}")
}

fn activate_needs(limit: &str) -> String {
    format!("`activate` needs more than {limit}")
}

#[test]
fn a_loop_that_grows_memory_is_over_the_limit() {
    // It writes to each page, so that all of it is resident.
    let body = "(local $page i32)
                (loop $more
                  (local.set $page (memory.grow (i32.const 1)))
                  (memory.fill (i32.mul (local.get $page) (i32.const 65536)) (i32.const 7) (i32.const 65536))
                  (br $more))
                unreachable";
    Hostile::autonomous(guest::autonomous(body)).attacks(|case| drop(case.fails(&run_needs(MEMORY))));
}

#[test]
fn many_memories_are_summed() {
    let memories = "(memory $a 300) (memory $b 300) (memory $c 300) (memory $d 300)";
    Hostile::autonomous(Guest::default().with(memories).run("unreachable").build())
        .attacks(|case| case.refused(-32603, &activate_needs(MEMORY)));
}

#[test]
fn a_table_that_grows_is_over_the_limit() {
    let component = Guest::default()
        .with("(table $t 0 funcref)")
        .run("(loop (br_if 0 (i32.ne (table.grow $t (ref.null func) (i32.const 100)) (i32.const -1)))) unreachable")
        .build();
    Hostile::autonomous(component)
        .attacks(|case| drop(case.fails(&run_needs("the fixed limit table_elements = 100000"))));
}

/// How each function that takes a text or a list is called with one at 0 that has `$long` bytes. In WAT, `P` is where
/// it is and how long it is, `R` is where the answer goes.
const CALLS: [(&str, &str); 26] = [
    ("log#write", "(call $log.write (i32.const 1) P)"),
    ("memory#store", "(call $memory.store (i32.const 0) (i32.const 0) (i32.const 1) P R)"),
    ("memory#load", "(call $memory.load (i32.const 0) P R)"),
    ("memory#delete", "(call $memory.delete (i32.const 0) P R)"),
    ("job-tools#update-summary", "(call $job-tools.update-summary P R)"),
    ("job-tools#record-decision", "(call $job-tools.record-decision P P P R)"),
    ("job-tools#log-question", "(call $job-tools.log-question P R)"),
    ("job-tools#write-artifact", "(call $job-tools.write-artifact (i32.const 0) (i32.const 1) P R)"),
    ("job-tools#submit-result", "(call $job-tools.submit-result P R)"),
    ("files#read", "(call $files.read P (i32.const 1) (i32.const 1) R)"),
    ("files#grep", "(call $files.grep P (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1) R)"),
    ("files#glob", "(call $files.glob P (i32.const 1) R)"),
    ("web#search", "(call $web.search P (i32.const 1) R)"),
    ("web#fetch", "(call $web.fetch P R)"),
    ("agent#query", "(i32.store (i32.const 100004) (local.get $long)) (call $agent.query (i32.const 100000) R)"),
    ("agent#wait", "(call $agent.wait (i32.const 0) (i32.shr_u (local.get $long) (i32.const 2)) R)"),
    ("hall#commissions", "(call $hall.commissions (i32.const 1) P R)"),
    ("hall#meetings", "(call $hall.meetings (i32.const 1) P R)"),
    ("hall#commission", "(call $hall.commission P R)"),
    (
        "manager#create-commission",
        "(call $manager.create-commission P P P (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
           (i32.const 0) (i32.const 0) (i32.const 0) (f64.const 0) (i32.const 1) R)",
    ),
    ("manager#dispatch-commission", "(call $manager.dispatch-commission P R)"),
    ("manager#cancel-commission", "(call $manager.cancel-commission P R)"),
    ("manager#abandon-commission", "(call $manager.abandon-commission P P R)"),
    ("manager#add-commission-note", "(call $manager.add-commission-note P P R)"),
    ("manager#create-pr", "(call $manager.create-pr P P R)"),
    ("manager#initiate-meeting", "(call $manager.initiate-meeting P P (i32.const 0) (i32.const 0) R)"),
];
/// The interfaces of these functions.
const INTERFACES: [&str; 9] = ["log", "memory", "job-tools", "files", "web", "agent", "status", "hall", "manager"];
/// The functions that take neither, or belong to a session.
const SHORT: [&str; 6] = [
    "hall#workers",
    "memory#list",
    "status#current",
    "agent#[method]session.answer",
    "agent#[method]session.next",
    "agent#[method]session.interrupt",
];

#[test]
fn every_host_function_is_given_something_huge() {
    let mut known: Vec<&str> = CALLS.iter().map(|(name, _)| *name).chain(SHORT).collect();
    let mut all = guest::imported_functions();
    known.sort_unstable();
    all.sort_unstable();
    assert_eq!(known, all, "each function is in one of the two lists");
}

/// A guest that calls the n-th function (from 1) with a text of so many bytes, which it has.
fn calling(bytes: u32) -> Vec<u8> {
    let mut body = format!(
        "(local $long i32) (local.set $long (i32.const {bytes}))
         (memory.fill (i32.const 0) (i32.const 0x61) (i32.const {bytes}))
         (memory.fill (i32.const 100000) (i32.const 0) (i32.const 80))"
    );
    for (n, (_, call)) in CALLS.iter().enumerate() {
        let call = call.replace('P', "(i32.const 0) (local.get $long)").replace('R', "(i32.const 8192)");
        body += &format!("(if (i32.eq (call $case (local.get 0)) (i32.const {})) (then {call}))", n + 1);
    }
    // A long text ends at the end of the memory at most; the activation, which says which case it is, stands above it.
    Guest::importing(&INTERFACES)
        .pages(600)
        .with(&format!("(func $high (global.set $next (i32.const {})))", bytes.max(65536)))
        .realloc(&format!(
            "(local $at i32)
             (if (i32.lt_u (global.get $next) (i32.const {bytes})) (then (call $high)))
             (local.set $at (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
             (global.set $next (i32.add (local.get $at) (local.get 3))) (local.get $at)"
        ))
        .run(&(body + " (call $outcome)"))
        .build()
}

#[test]
fn a_text_beyond_the_memory_of_its_guest_is_a_trap_in_every_host_function() {
    let mut body = "(local $long i32) (local.set $long (i32.const 0x7fffffff))".to_owned();
    for (n, (_, call)) in CALLS.iter().enumerate() {
        let call = call.replace('P', "(i32.const 0) (local.get $long)").replace('R', "(i32.const 8192)");
        body += &format!("(if (i32.eq (call $case (local.get 0)) (i32.const {})) (then {call}))", n + 1);
    }
    let component = Guest::importing(&INTERFACES).pages(3).run(&(body + " (call $outcome)")).build();
    Hostile::autonomous(component).attacks(|case| {
        for (n, (name, _)) in CALLS.iter().enumerate() {
            let what = if ["job-tools#write-artifact", "agent#wait"].contains(name) { "list" } else { "string" };
            let why = format!("the component failed in `run`: {what} pointer/length out of bounds of memory");
            case.case_fails(n + 1, &why);
        }
    });
}

#[test]
fn a_text_of_20_mib_is_over_what_a_host_call_may_copy_in_every_host_function() {
    Hostile::autonomous(calling(20 << 20)).attacks(|case| {
        for n in 1..=CALLS.len() {
            case.case_fails(n, &run_needs("the fixed limit hostcall_bytes = 16777216"));
        }
    });
}

#[test]
fn leaked_descriptors_are_over_the_limit_of_open_files() {
    let component = Guest::importing(&["filesystem/preopens", "filesystem/types"])
        .run(
            "(loop (global.set $next (i32.const 65536)) (call $preopens.get-directories (i32.const 8192)) (br 0))
             unreachable",
        )
        .build();
    Hostile::autonomous(component).attacks(|case| drop(case.fails(&run_needs("the fixed limit open_files = 256"))));
}

#[test]
fn a_flood_of_empty_writes_ends_at_the_deadline() {
    let component = Guest::importing(&["cli/stdout", "io/streams"])
        .run(
            "(local $out i32) (local.set $out (call $stdout.get-stdout))
             (loop
               (call $streams.output-stream.write (local.get $out) (i32.const 0) (i32.const 0) (i32.const 8192))
               (br 0))
             unreachable",
        )
        .build();
    Hostile::autonomous(component).seconds(1).attacks(|case| {
        let id = case.fails(LATE);
        assert!(case.file(&id, "log.txt").len() < 1024, "{}", case.file(&id, "log.txt"));
    });
}

#[test]
fn random_bytes_without_end_are_refused() {
    let component = Guest::importing(&["random/random"])
        .run("(call $random.get-random-bytes (i64.const -1) (i32.const 8192)) unreachable")
        .build();
    Hostile::autonomous(component)
        .attacks(|case| drop(case.fails(&run_needs("the fixed limit random_bytes = 1048576"))));
}

#[test]
fn a_result_beyond_memory_is_a_trap() {
    Hostile::autonomous(guest::autonomous("(call $ok (i32.const 0) (i32.const 0x40000000))")).attacks(|case| {
        case.fails("the component failed in `run`: string pointer/length out of bounds of memory");
    });
}

#[test]
fn a_result_over_the_limit_fails_the_job() {
    let component = Guest::default()
        .pages(200)
        .run(
            "(memory.fill (i32.const 200000) (i32.const 0x61) (i32.const 8388609))
              (call $ok (i32.const 200000) (i32.const 8388609))",
        )
        .build();
    Hostile::autonomous(component).attacks(|case| {
        case.fails("over a limit: the result has 8388609 bytes; limits.result_bytes allows 8388608");
    });
}

#[test]
fn a_refusal_without_end_is_cut() {
    let component = Guest::default()
        .pages(200)
        .activate(
            "(memory.fill (i32.const 0) (i32.const 0x61) (i32.const 8388608))
                   (call $refuse (i32.const 65536) (i32.const 8000000))",
        )
        .build();
    Hostile::worker(component).attacks(|case| {
        let refused = case.client().dispatch(task(1)).unwrap_err();
        assert_eq!(refused.code, -32602);
        assert!(refused.message.ends_with("aaaa") && refused.message.len() < 9000, "{}", refused.message.len());
    });
}

/// The words that a worker says about its job: a million of each, until there is no more time.
fn repeating(call: &str) -> Vec<u8> {
    Guest::importing(&["job-tools"])
        .with("(data (i32.const 1024) \"why?\")")
        .run(&format!("(loop {call} (global.set $next (i32.const 65536)) (br 0)) unreachable"))
        .build()
}

const WHY: &str = "(i32.const 1024) (i32.const 4)";

#[test]
fn a_million_summaries_end_at_the_deadline() {
    let call = format!("(call $job-tools.update-summary {WHY} (i32.const 8192))");
    Hostile::autonomous(repeating(&call)).seconds(1).attacks(|case| {
        let id = case.fails(LATE);
        assert_eq!(case.client().status(&id).unwrap()["summary"], "why?");
    });
}

#[test]
fn a_million_results_end_at_the_deadline_and_the_last_is_the_result() {
    let call = format!("(call $job-tools.submit-result {WHY} (i32.const 8192))");
    Hostile::autonomous(repeating(&call)).seconds(1).attacks(|case| {
        // A result that was handed over holds, even where the job then ends in an error.
        assert_eq!(case.completes(1).1, "why?");
    });
}

#[test]
fn a_million_questions_are_bounded() {
    let call = format!("(call $job-tools.log-question {WHY} (i32.const 8192))");
    Hostile::autonomous(repeating(&call)).limit("notes_bytes = 16384").seconds(2).attacks(|case| {
        let id = case.fails("`run` did not end within its deadline of 2 s (the job's own)");
        let questions = case.client().status(&id).unwrap()["questions"].as_array().unwrap().len();
        assert!((1..=16384 / 4).contains(&questions), "{questions}");
        assert!(case.file(&id, "questions.md").len() < 64 * 1024);
    });
}

#[test]
fn a_million_decisions_are_bounded() {
    let call = format!("(call $job-tools.record-decision {WHY} {WHY} {WHY} (i32.const 8192))");
    Hostile::autonomous(repeating(&call)).limit("notes_bytes = 16384").seconds(2).attacks(|case| {
        let id = case.fails("`run` did not end within its deadline of 2 s (the job's own)");
        let decisions = case.client().status(&id).unwrap()["decisions"].as_array().unwrap().len();
        assert!((1..=16384 / 12).contains(&decisions), "{decisions}");
    });
}

#[test]
fn text_that_is_no_utf8_is_a_trap() {
    for (n, run) in [
        "(call $log.write (i32.const 1) (i32.const 1024) (i32.const 4)) unreachable",
        "(call $ok (i32.const 1024) (i32.const 4))",
    ]
    .iter()
    .enumerate()
    {
        let component = Guest::importing(&["log"]).with("(data (i32.const 1024) \"a\\ff\\c0\\80\")").run(run).build();
        Hostile::autonomous(component).attacks(|case| {
            case.case_fails(n + 1, "the component failed in `run`: invalid utf-8 sequence of 1 bytes from index 1");
        });
    }
}

#[test]
fn a_config_that_nests_100000_deep_is_refused() {
    Hostile::autonomous(guest::autonomous("unreachable")).attacks(|case| {
        let deep = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
        let request = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"worker/dispatch\",\
              \"params\":{{\"description\":\"d\",\"task\":\"t\",\"config\":{deep}}}}}"
        );
        let (status, answer) = case.client().post(&request).unwrap();
        let expected = json!({"jsonrpc": "2.0", "id": 1, "error": {
            "code": -32600, "message": "Invalid request: JSON that nests deeper than 64 levels"}});
        assert_eq!((status, serde_json::from_str(&answer).ok()), (200, Some(expected)));
        assert_eq!(fs::read_dir(case.member.join("jobs")).unwrap().count(), 0);
    });
}

/// The other way: a guest hands JSON to the host, as the schema of a tool.
#[test]
fn a_schema_of_a_guest_that_nests_100000_deep_is_refused() {
    let component = Guest::importing(&["agent"])
        .pages(8)
        .with("(data (i32.const 1024) \"tool\")")
        .run(
            "(memory.fill (i32.const 200000) (i32.const 0x5b) (i32.const 100000))
             (i32.store (i32.const 16384) (i32.const 1024)) (i32.store (i32.const 16388) (i32.const 4))
             (i32.store (i32.const 16412) (i32.const 16500)) (i32.store (i32.const 16416) (i32.const 1))
             (i32.store (i32.const 16500) (i32.const 1024)) (i32.store (i32.const 16504) (i32.const 4))
             (i32.store (i32.const 16528) (i32.const 200000)) (i32.store (i32.const 16532) (i32.const 100000))
             (call $agent.query (i32.const 16384) (i32.const 8192)) (call $outcome)",
        )
        .build();
    Hostile::autonomous(component).attacks(|case| {
        case.fails("the input schema of the tool \"tool\" is no JSON object");
    });
}
