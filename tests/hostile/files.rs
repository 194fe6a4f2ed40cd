//! Files.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::json;

use super::harness::{ARTIFACTS, Case, Hostile, Plant, WAIT};
use crate::support::{
    guest::{self, Guest},
    host::wait_for,
};

/// The probe, which tries what its task names, line by line.
fn probe() -> Hostile {
    Hostile::autonomous(guest::built("probe"))
}

/// The outcome of each step, in a job that completes.
fn tried(case: &Case, steps: &[&str]) -> (String, BTreeMap<String, String>) {
    let id = case.client().dispatch(json!({"description": "hostile", "task": steps.join("\n")})).unwrap();
    case.others_go_on();
    let status = case.client().ended(&id);
    assert_eq!(status["status"], "completed", "{status}");
    let report = case.client().result(&id).unwrap()["output"].as_str().unwrap().to_owned();
    let lines = report.lines().filter_map(|line| line.split_once(": "));
    (id, lines.map(|(step, outcome)| (step.to_owned(), outcome.replace(STREAM_FAILED, NO_SPACE))).collect())
}

fn are_errors(outcomes: &BTreeMap<String, String>, steps: &[&str]) {
    for step in steps {
        assert!(outcomes[*step].starts_with("error "), "{step}: {}", outcomes[*step]);
    }
}

#[test]
fn no_path_leads_out_of_the_directories() {
    let long = "x".repeat(300);
    let (long_file, long_path) =
        (format!("write /job/artifacts/{long} x"), format!("write /job/artifacts{} x", "/y".repeat(3000)));
    let mut steps = vec![
        "read ..",
        "ls ..",
        "ls /",
        "ls /proc/self",
        "read /etc/passwd",
        "read /job/../outside.txt",
        "read /job/artifacts/../../../outside.txt",
        "write /job/artifacts/../../../outside.txt x",
        "read /job/artifacts/./.././../../outside.txt",
        "write /job/meta.json x",
        "write /job/artifacts/a/ x",
        "write /job/artifacts/../new x",
        "mkdir /job/artifacts/..",
        "mkdir /job/new",
        "remove /job/meta.json",
        "remove /job/artifacts/../meta.json",
        "rename /job/meta.json /job/artifacts/meta.json",
        "rename /job/artifacts /job/other",
        "link /job/meta.json /job/artifacts/meta.json",
        "link /memory/note.md /job/artifacts/note.md",
        "truncate /job/meta.json",
        "append /job/status.md x",
        "write /memory/note.md x",
    ];
    steps.extend([long_file.as_str(), long_path.as_str()]);
    probe().run(|case| {
        let outside = case.home.write("members/hostile/outside.txt", "secret");
        let note = case.home.write("members/hostile/memory/note.md", "noted");
        let (id, outcomes) = tried(case, &steps);
        are_errors(&outcomes, &steps);
        assert_eq!(fs::read_to_string(outside).unwrap(), "secret");
        assert_eq!(fs::read_to_string(note).unwrap(), "noted");
        assert_eq!(fs::read_dir(case.job(&id).join("artifacts")).unwrap().count(), 0);
    });
}

#[test]
fn symlinks_that_a_guest_makes_lead_nowhere_else() {
    let refused = [
        "symlink /etc/passwd /job/artifacts/absolute",
        "symlink ../meta.json /job/artifacts/up",
        "symlink a/../../meta.json /job/artifacts/around",
        "symlink x /job/link",
    ];
    let looping = ["read /job/artifacts/loop", "write /job/artifacts/loop x", "ls /job/artifacts/loop"];
    let made = ["symlink loop /job/artifacts/loop", "symlink nothing /job/artifacts/dangling"];
    probe().run(|case| {
        let steps: Vec<&str> = refused.iter().chain(&made).chain(&looping).copied().collect();
        let (id, outcomes) = tried(case, &steps);
        are_errors(&outcomes, &refused);
        are_errors(&outcomes, &looping);
        // No link is an artifact.
        assert_eq!(case.client().result(&id).unwrap()["artifacts"], json!(null));
    });
}

/// A guest that waits for a sign, and then writes artifacts, through the tool, over what was planted meanwhile.
fn writing_over_what_was_planted() -> Vec<u8> {
    let write = |at: u32, len: u32| {
        format!(
            "(call $job-tools.write-artifact (i32.const {at}) (i32.const {len}) (i32.const 1024) (i32.const 4)
               (i32.const 8192))"
        )
    };
    Guest::importing(&["memory", "clocks/monotonic-clock", "io/poll", "job-tools"])
        .with(WAIT)
        .with("(data (i32.const 1024) \"file\") (data (i32.const 1100) \"dir/new\") (data (i32.const 1200) \"mine\")")
        .run(&format!(
            "(call $wait) {} {} {} (call $ok (i32.const 1200) (i32.const 4))",
            write(1024, 4),
            write(1100, 7),
            write(1200, 4)
        ))
        .build()
}

fn plant_and_go(case: &Case, plant: impl FnOnce(&Path)) -> String {
    let id = case.start(1);
    plant(&case.job(&id));
    fs::write(case.member.join("memory/go.md"), "now").unwrap();
    id
}

#[test]
fn the_host_follows_no_link_that_was_planted_among_the_artifacts() {
    Hostile::autonomous(writing_over_what_was_planted()).run(|case| {
        let outside = case.home.write("outside/file", "secret");
        let outside = outside.parent().unwrap();
        let id = plant_and_go(case, |job| {
            let artifacts = job.join("artifacts");
            symlink(outside.join("file"), artifacts.join("file")).unwrap();
            symlink(outside, artifacts.join("dir")).unwrap();
            fs::hard_link(outside.join("file"), artifacts.join("hard")).unwrap();
        });
        assert_eq!(case.client().ended(&id)["status"], "completed");
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "secret");
        assert!(!outside.join("new").exists());
        let artifacts = case.client().result(&id).unwrap()["artifacts"].clone();
        assert!(!artifacts.to_string().contains("dir/"), "{artifacts}");
        case.client().delete(&id).unwrap();
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "secret", "nor does it delete through one");
    });
}

/// A directory that is now one, now a link that leads out: whichever it is when a path is looked up, nothing outside is
/// opened.
#[test]
fn a_link_that_is_swapped_in_while_a_path_is_opened_leads_nowhere() {
    let data = "(data (i32.const 1024) \"d/secret\") (data (i32.const 1100) \"leak\")";
    let call = "(loop $again
                  (call $types.descriptor.open-at (local.get $dir) (i32.const 1) (i32.const 1024) (i32.const 8)
                    (i32.const 0) (i32.const 1) (i32.const 8192))
                  (br_if $again (i32.load8_u (i32.const 8192))))
                (return (call $failed (i32.const 1100) (i32.const 4)))";
    Hostile::autonomous(with_artifacts(data, call, 8196)).seconds(1).run(|case| {
        let outside = case.home.write("outside/secret", "secret");
        let id = case.start(1);
        let swapped = case.job(&id).join("artifacts/d");
        let mut swaps = 0;
        while case.client().status(&id).unwrap()["status"] == "running" {
            for _ in 0..200 {
                // The job may end, and nothing is amiss then.
                let _ = fs::create_dir(&swapped).and_then(|()| fs::remove_dir(&swapped));
                let _ = symlink(outside.parent().unwrap(), &swapped).and_then(|()| fs::remove_file(&swapped));
                swaps += 1;
            }
        }
        let error = case.client().ended(&id)["error"].clone();
        assert_eq!(error, "`run` did not end within its deadline of 1 s (the job's own)", "after {swaps} swaps");
    });
}

#[test]
fn a_record_that_becomes_something_else_holds_nobody_up() {
    let plants: [Plant; 4] = [
        |meta| fs::create_dir(meta).unwrap(),
        |meta| assert!(Command::new("mkfifo").arg(meta).status().unwrap().success()),
        |meta| fs::File::create(meta).unwrap().set_len(10 << 30).unwrap(),
        |meta| symlink("/dev/zero", meta).unwrap(),
    ];
    Hostile::autonomous(writing_over_what_was_planted()).run(|case| {
        for plant in plants {
            let _ = fs::remove_file(case.member.join("memory/go.md"));
            // While the job runs.
            let id = case.start(1);
            let meta = case.job(&id).join("meta.json");
            fs::remove_file(&meta).unwrap();
            plant(&meta);
            let begun = Instant::now();
            assert_eq!(case.client().status(&id).unwrap()["status"], "running");
            case.client().call("worker/list", json!({"detail": "detailed"})).unwrap();
            fs::write(case.member.join("memory/go.md"), "now").unwrap();
            let ended = case.client().ended(&id);
            assert!(ended["status"] == "completed" || ended["status"] == "failed", "{ended}");
            // And when it has ended.
            if !meta.is_dir() {
                let _ = fs::remove_file(&meta);
                plant(&meta);
            }
            case.client().call("worker/list", json!({"detail": "detailed"})).unwrap();
            let _ = case.client().status(&id);
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
            if meta.is_dir() {
                fs::remove_dir(&meta).unwrap();
            } else {
                fs::remove_file(&meta).unwrap();
            }
            fs::remove_dir_all(case.job(&id)).unwrap();
        }
    });
}

#[test]
fn a_job_directory_that_is_renamed_while_it_is_in_use_ends_its_own_job_only() {
    Hostile::autonomous(writing_over_what_was_planted()).run(|case| {
        let elsewhere = case.home.path("elsewhere");
        let id = plant_and_go(case, |job| fs::rename(job, &elsewhere).unwrap());
        wait_for("its end", || match case.client().status(&id) {
            Ok(status) => (status["status"] != "running").then_some(()),
            Err(error) => (error.message == format!("Unknown job ID: {id}")).then_some(()),
        });
        case.others_go_on();
    });
}

const NO_SPACE: &str = "No space left on device (os error 51)";

/// What some versions of guests' C library say of every stream that failed, without asking what it was.
const STREAM_FAILED: &str = "I/O error (os error 29)";

#[test]
fn a_disk_is_not_filled_with_bytes() {
    let (bytes, _) = ARTIFACTS;
    let (fill, more) = (format!("fill /job/artifacts/a {}", 1_u64 << 30), "fill /job/artifacts/b 1");
    probe().run(|case| {
        let (id, outcomes) = tried(case, &[&fill, more]);
        assert_eq!(outcomes[&fill], format!("ok {bytes}, then {NO_SPACE}"));
        assert_eq!(outcomes[more], format!("ok 0, then {NO_SPACE}"));
        let log = case.file(&id, "log.txt");
        assert_eq!(log.matches(&format!("limits.artifacts_bytes = {bytes}")).count(), 1, "{log}");
    });
}

#[test]
fn a_disk_is_not_filled_with_entries_of_whatever_kind() {
    let (_, entries) = ARTIFACTS;
    let steps = [
        "files /job/artifacts 100000",
        "dirs /job/artifacts/d 100000",
        "symlinks /job/artifacts/d 100000",
        "links /job/artifacts/0 100000",
    ];
    probe().run(|case| {
        let (id, outcomes) = tried(case, &[&["mkdir /job/artifacts/d"][..], &steps].concat());
        assert_eq!(outcomes[steps[0]], format!("ok {}, then {NO_SPACE}", entries - 1));
        for step in &steps[1..] {
            assert_eq!(outcomes[*step], format!("ok 0, then {NO_SPACE}"), "{step}");
        }
        let log = case.file(&id, "log.txt");
        assert_eq!(log.matches(&format!("limits.artifacts_entries = {entries}")).count(), 1, "{log}");
    });
}

#[test]
fn a_tree_is_not_deeper_than_it_can_be_removed() {
    probe().run(|case| {
        let deep = "deep /job/artifacts 10000";
        let outcome = &tried(case, &[deep]).1[deep];
        assert_eq!(outcome, "ok 16, then Filename too long (os error 37)");
    });
}

#[test]
fn a_file_does_not_become_huge_without_being_written() {
    let steps = [
        "set-size /job/artifacts/a 1099511627776",
        "set-size /job/artifacts/a 9223372036854775807",
        "at /job/artifacts/a 1099511627776",
        "at /job/artifacts/a 9223372036854775806",
    ];
    probe().run(|case| are_errors(&tried(case, &steps).1, &steps));
}

#[test]
fn descriptors_run_out_for_the_guest_and_not_for_the_host() {
    let open = "opens /job/artifacts/a 100000";
    probe().run(|case| {
        let (_, outcomes) = tried(case, &["write /job/artifacts/a x", open]);
        assert!(outcomes[open].contains(", then "), "{}", outcomes[open]);
    });
}

/// A guest that calls a method of the descriptor of `/job/artifacts`, in `$dir`, and fails with the number of the
/// error, from `A`, or completes with "ok".
fn with_artifacts(data: &str, call: &str, code_at: u32) -> Vec<u8> {
    Guest::importing(&["filesystem/preopens", "filesystem/types"])
        .with(data)
        .run(&format!(
            "(local $dir i32)
             (call $preopens.get-directories (i32.const 8192))
             ;; Each has 12 bytes; this one is the last.
             (local.set $dir (i32.load (i32.add (i32.load (i32.const 8192))
               (i32.mul (i32.sub (i32.load (i32.const 8196)) (i32.const 1)) (i32.const 12)))))
             {call}
             (if (i32.load8_u (i32.const 8192))
               (then
                 (i32.store8 (i32.const 4200) (i32.add (i32.const 65) (i32.load8_u (i32.const {code_at}))))
                 (return (call $failed (i32.const 4200) (i32.const 1)))))
             (i32.store16 (i32.const 4112) (i32.const 0x6b6f))
             (call $ok (i32.const 4112) (i32.const 2))"
        ))
        .build()
}

/// Numbers of `error-code` in WASI, from `A`.
const INVALID: &str = "M";
const NO_ENTRY: &str = "U";

#[test]
fn a_path_with_a_nul_or_nothing_in_it_is_invalid() {
    for (path, len, code) in [("a\\00b", 3, INVALID), ("", 0, NO_ENTRY)] {
        let call = format!(
            "(call $types.descriptor.open-at (local.get $dir) (i32.const 0) (i32.const 1024) (i32.const {len})
               (i32.const 1) (i32.const 3) (i32.const 8192))"
        );
        let component = with_artifacts(&format!("(data (i32.const 1024) \"{path}\")"), &call, 8196);
        Hostile::autonomous(component).run(|case| drop(case.fails(code)));
    }
}

#[test]
fn times_that_no_file_can_have_are_refused_or_kept_and_harm_nobody() {
    // The last day of 64-bit seconds, and the last but for the sign.
    for (seconds, nanoseconds) in [("-1", "0"), ("0x7fffffffffffffff", "999999999"), ("1", "4294967295")] {
        let at = format!("(i32.const 2) (i64.const {seconds}) (i32.const {nanoseconds})");
        let call = format!("(call $types.descriptor.set-times (local.get $dir) {at} {at} (i32.const 8192))");
        let component = with_artifacts("", &call, 8193);
        Hostile::autonomous(component).run(|case| {
            let id = case.start(1);
            let status = case.client().ended(&id);
            assert!(status["status"] == "completed" || status["error"].as_str().unwrap().len() == 1, "{status}");
            case.client().call("worker/list", json!({"detail": "detailed"})).unwrap();
        });
    }
}

/// Files that people, or a copy, left with times before 1970 and far in the future.
#[test]
fn a_guest_reads_files_of_any_time() {
    probe().run(|case| {
        for (name, when) in [("old", "1900-01-01"), ("new", "2400-01-01")] {
            let file = case.home.write(&format!("members/hostile/memory/{name}.md"), name);
            assert!(Command::new("touch").args(["-d", when]).arg(file).status().unwrap().success());
        }
        let (_, outcomes) = tried(case, &["ls /memory", "read /memory/old.md", "read /memory/new.md", "recall old"]);
        assert_eq!(outcomes["read /memory/old.md"], "ok old");
        assert_eq!(outcomes["recall old"], "ok old");
    });
}

#[test]
fn only_sound_keys_name_a_memory() {
    let long = format!("remember {} x", "k".repeat(300));
    let refused = [
        "remember . x",
        "remember .. x",
        "remember compacted x",
        "remember a/b x",
        "remember ../x x",
        "remember /x x",
        "remember a.md x",
        "remember \u{0} x",
        "recall ../guild-member",
        "recall .",
        long.as_str(),
    ];
    probe().run(|case| {
        let (_, outcomes) =
            tried(case, &[&refused[..], &["remember Key one", "remember key two", "recall Key"]].concat());
        are_errors(&outcomes, &refused);
        // Each is the memory that it was stored as, or it is refused: never another.
        assert!(outcomes["recall Key"] == "ok one" || outcomes["remember key two"].starts_with("error "));
    });
}
