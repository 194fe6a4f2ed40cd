//! Output: what a guest writes where people, and other programs, read.

use serde_json::json;

use super::harness::{Case, Hostile};
use crate::support::guest::Guest;

const LATE: &str = "`run` did not end within its deadline of 1 s (the job's own)";

/// What would clear a terminal and write a line of its own.
const FORGED: &str = "done\nforged: line\r\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}";

fn data(text: &str) -> String {
    let bytes: String = text.bytes().map(|byte| format!("\\{byte:02x}")).collect();
    format!("(data (i32.const 1024) \"{bytes}\")")
}

/// A guest that says it with this call, in which `TEXT` stands for where it is.
fn saying(interface: &str, call: &str) -> Vec<u8> {
    let text = format!("(i32.const 1024) (i32.const {})", FORGED.len());
    Guest::importing(&[interface]).with(&data(FORGED)).run(&call.replace("TEXT", &text)).build()
}

/// What a `guild` command prints about a job.
fn shown(case: &Case, command: &[&str]) -> String {
    let output = case.home.guild().args(command).args(["--url", &case.client().url()]).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Neither moves a cursor or turns what is read, nor begins a line with what it says.
fn is_harmless(text: &str) {
    assert!(!text.contains(['\u{1b}', '\r', '\u{7}', '\u{202e}']), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("forged")), "{text}");
    assert!(text.contains("done"), "{text}");
}

/// Writes 4 KiB to a stream of the guest's own, again and again.
fn flooding(stream: &str) -> Vec<u8> {
    Guest::importing(&[&format!("cli/{stream}"), "io/streams"])
        .run(&format!(
            "(local $out i32) (local.set $out (call ${stream}.get-{stream}))
             (memory.fill (i32.const 16384) (i32.const 0x61) (i32.const 4096))
             (loop
               (call $streams.output-stream.blocking-write-and-flush
                 (local.get $out) (i32.const 16384) (i32.const 4096) (i32.const 8192))
               (br 0))
             unreachable"
        ))
        .build()
}

/// The log ends, and says so.
/// `words` is what the error quotes of the flood.
fn floods(component: Vec<u8>, words: &str) {
    Hostile::autonomous(component).seconds(1).limit("log_bytes = 65536").option("-vv").attacks(|case| {
        let id = case.fails(&format!("{LATE}{words}"));
        let log = case.file(&id, "log.txt");
        assert!(log.len() <= 65536 + 4096, "{} bytes", log.len());
        assert!(log.lines().last().unwrap().contains("the fixed limit log_bytes"), "{}", log.lines().last().unwrap());
        // Of what a failed call quotes, a line reaches the host's own output, and with -vv a part of it another one.
        let shown = case.host.output().matches("aaaaaaaa").count();
        assert!(shown <= 2 * words.len() / 8, "{shown} times");
    });
}

#[test]
fn a_flood_on_stdout_is_cut() {
    floods(flooding("stdout"), "");
}

#[test]
fn a_flood_on_stderr_is_cut() {
    let [first, last] = [256, 1024].map(|bytes| "a".repeat(bytes));
    floods(flooding("stderr"), &format!("; its stderr began with \"{first}\\n{first}\" and ended with \"{last}\""));
}

#[test]
fn a_flood_of_log_lines_is_cut() {
    let component = Guest::importing(&["log"])
        .run(
            "(memory.fill (i32.const 16384) (i32.const 0x61) (i32.const 4096))
             (loop (call $log.write (i32.const 1) (i32.const 16384) (i32.const 4096)) (br 0)) unreachable",
        )
        .build();
    floods(component, "");
}

#[test]
fn a_flood_of_log_lines_before_there_is_a_job_is_cut() {
    let component = Guest::importing(&["log"])
        .activate(
            "(memory.fill (i32.const 16384) (i32.const 0x61) (i32.const 4096))
             (loop (call $log.write (i32.const 1) (i32.const 16384) (i32.const 4096)) (br 0)) unreachable",
        )
        .build();
    Hostile::worker(component).limit("activate_seconds = 2").attacks(|case| {
        case.refused(-32603, "`activate` did not end within its deadline of 2 s (limits.activate_seconds)");
        assert!(case.host.output().len() < 256 * 1024, "{} bytes", case.host.output().len());
    });
}

#[test]
fn a_log_line_is_one_line_and_cannot_move_a_cursor() {
    Hostile::autonomous(saying("log", "(call $log.write (i32.const 1) TEXT) (call $ok TEXT)")).attacks(|case| {
        let (id, _) = case.completes(1);
        let log = case.file(&id, "log.txt");
        is_harmless(&log);
        assert!(log.contains("info: done\\nforged: line\\r\\u{1b}[2J"), "{log}");
    });
}

#[test]
fn a_summary_cannot_forge_what_a_terminal_shows() {
    let call = "(call $job-tools.update-summary TEXT (i32.const 8192)) (call $outcome)";
    Hostile::autonomous(saying("job-tools", call)).attacks(|case| {
        let (id, _) = case.completes(1);
        // The wire says what was said, as JSON.
        assert_eq!(case.client().status(&id).unwrap()["summary"], FORGED);
        is_harmless(&shown(case, &["status", &id]));
        is_harmless(&shown(case, &["list", "--detailed"]));
    });
}

#[test]
fn questions_and_decisions_cannot_forge_what_a_terminal_shows() {
    let call = "(call $job-tools.log-question TEXT (i32.const 8192))
                (call $job-tools.record-decision TEXT TEXT TEXT (i32.const 8192)) (call $outcome)";
    Hostile::autonomous(saying("job-tools", call)).attacks(|case| {
        let (id, _) = case.completes(1);
        is_harmless(&shown(case, &["status", &id]));
        assert_eq!(case.file(&id, "questions.md").lines().count(), 1, "one question is one line");
    });
}

#[test]
fn the_reason_of_a_failure_cannot_forge_what_a_terminal_or_the_host_s_log_shows() {
    Hostile::autonomous(saying("log", "(call $failed TEXT)")).option("-vv").attacks(|case| {
        let id = case.fails(FORGED);
        is_harmless(&shown(case, &["status", &id]));
        let refused = shown(case, &["result", &id]);
        assert!(!refused.contains(['\u{1b}', '\r', '\u{7}']), "{refused:?}");
        let own = case.host.output();
        assert!(!own.contains("\u{1b}[2J") && !own.lines().any(|line| line.starts_with("forged")), "{own}");
    });
}

#[test]
fn a_refusal_cannot_forge_what_the_host_s_log_shows() {
    let text = format!("(i32.const 1024) (i32.const {})", FORGED.len());
    let component = Guest::default().with(&data(FORGED)).activate(&format!("(call $refuse {text})")).build();
    Hostile::worker(component).option("-vv").attacks(|case| {
        case.refused(-32602, FORGED);
        let own = case.host.output();
        assert!(!own.contains("\u{1b}[2J") && !own.lines().any(|line| line.starts_with("forged")), "{own}");
    });
}

#[test]
fn a_description_cannot_forge_what_a_terminal_shows() {
    Hostile::autonomous(saying("log", "(call $ok TEXT)")).option("-vv").attacks(|case| {
        let id = case.client().dispatch(json!({"description": FORGED, "task": FORGED})).unwrap();
        case.client().ended(&id);
        is_harmless(&shown(case, &["list", "--detailed"]));
        is_harmless(&shown(case, &["status", &id]));
        let own = case.host.output();
        assert!(!own.contains("\u{1b}[2J") && !own.lines().any(|line| line.starts_with("forged")), "{own}");
    });
}

/// Failures of the host itself: the errors that callers and guests get name neither a directory of the machine nor a line
/// of the host's source.
#[test]
fn no_error_carries_a_path_of_the_host_or_a_backtrace() {
    let component = Guest::importing(&["memory", "job-tools"])
        .with("(data (i32.const 1024) \"key\")")
        .run(
            "(if (i32.eq (call $case (local.get 0)) (i32.const 1))
               (then (call $memory.store (i32.const 0) (i32.const 1024) (i32.const 3) (i32.const 1024) (i32.const 3)
                 (i32.const 8192))))
             (if (i32.eq (call $case (local.get 0)) (i32.const 2))
               (then (call $memory.load (i32.const 0) (i32.const 1024) (i32.const 3) (i32.const 8192))))
             (if (i32.eq (call $case (local.get 0)) (i32.const 3)) (then unreachable))
             (call $outcome)",
        )
        .build();
    Hostile::autonomous(component).attacks(|case| {
        let memory = case.member.join("memory");
        let mut said = Vec::new();
        let mut tell = |number: usize| match case.client().dispatch(super::harness::task(number)) {
            Ok(id) => said.push(case.client().ended(&id)["error"].to_string()),
            Err(error) => said.push(error.message),
        };
        tell(3);
        std::fs::remove_dir_all(&memory).unwrap();
        std::fs::write(&memory, "no directory").unwrap();
        (1..=2).for_each(&mut tell);
        std::fs::remove_file(&memory).unwrap();
        let posture = case.member.join("posture.md");
        std::fs::create_dir(&posture).unwrap();
        tell(1);
        std::fs::remove_dir(&posture).unwrap();
        for text in &said {
            let place = case.home.path("");
            for inside in [place.to_str().unwrap(), ".rs:", "backtrace", "/rustc/"] {
                assert!(!text.contains(inside), "{text}");
            }
        }
        assert!(said.iter().all(|text| text != "null"), "{said:?}");
    });
}
