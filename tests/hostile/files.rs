//! Files.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::json;

use super::harness::{ARTIFACTS, Case, Hostile, Plant, WAIT, eventually};
use crate::support::{
    guest::{self, Guest},
    host::{RpcError, wait_for},
};

/// The probe, which tries what its task names, line by line.
fn probe() -> Hostile {
    Hostile::autonomous(guest::built("probe"))
}

/// The outcome of each step, in a job that completes. It begins when this has been done to its directory.
fn tried_after(case: &Case, plant: impl FnOnce(&Path), steps: &[&str]) -> (String, BTreeMap<String, String>) {
    let task = format!("await /memory/go.md\n{}", steps.join("\n"));
    let id = case.client().dispatch(json!({"description": "hostile", "task": task})).unwrap();
    plant(&case.job(&id));
    fs::write(case.member.join("memory/go.md"), "now").unwrap();
    let status = case.client().ended(&id);
    assert_eq!(status["status"], "completed", "{status}");
    let report = case.client().result(&id).unwrap()["output"].as_str().unwrap().to_owned();
    let lines = report.lines().filter_map(|line| line.split_once(": "));
    (
        id,
        lines
            .map(|(step, outcome)| {
                (step.to_owned(), outcome.replace(STREAM_FAILED, NO_SPACE).replace(NOT_KNOWN, NOT_THERE))
            })
            .collect(),
    )
}

fn tried(case: &Case, steps: &[&str]) -> (String, BTreeMap<String, String>) {
    tried_after(case, |_| (), steps)
}

/// Each step comes to exactly this.
fn come_to(case: &Case, steps: &[(&str, &str)]) -> String {
    planted_come_to(case, |_| (), steps)
}

fn planted_come_to(case: &Case, plant: impl FnOnce(&Path), steps: &[(&str, &str)]) -> String {
    let all: Vec<&str> = steps.iter().map(|(step, _)| *step).collect();
    let (id, outcomes) = tried_after(case, plant, &all);
    let came: Vec<(&str, &str)> = all.iter().map(|step| (*step, outcomes[*step].trim_end())).collect();
    assert_eq!(came, steps);
    id
}

const OK: &str = "ok";
const DENIED: &str = "error permission denied";
const NOT_PERMITTED: &str = "error Operation not permitted (os error 63)";
const NOT_THERE: &str = "error entity not found";
/// What some versions of guests' C library say of a path that is in none of the guest's directories, which no host is
/// asked for.
const NOT_KNOWN: &str = "error uncategorized error";
const LOOP: &str = "error filesystem loop or indirection limit (e.g. symlink loop)";
const TOO_LONG: &str = "error invalid filename";

#[test]
fn no_path_leads_out_of_the_directories() {
    let long = "x".repeat(300);
    let (long_file, long_path) =
        (format!("write /job/artifacts/{long} x"), format!("write /job/artifacts{} x", "/y".repeat(3000)));
    let steps = [
        ("read ..", NOT_THERE),
        ("ls ..", NOT_THERE),
        ("ls /", NOT_THERE),
        ("ls /proc/self", NOT_THERE),
        ("read /etc/passwd", NOT_THERE),
        ("read /job/../outside.txt", DENIED),
        ("read /job/artifacts/../../../outside.txt", DENIED),
        ("write /job/artifacts/../../../outside.txt x", DENIED),
        ("read /job/artifacts/./.././../../outside.txt", DENIED),
        ("write /job/meta.json x", DENIED),
        ("write /job/artifacts/../new x", DENIED),
        ("mkdir /job/artifacts/..", DENIED),
        ("mkdir /job/new", DENIED),
        ("remove /job/meta.json", DENIED),
        ("remove /job/artifacts/../meta.json", DENIED),
        ("rename /job/meta.json /job/artifacts/meta.json", DENIED),
        ("rename /job/artifacts /job/other", DENIED),
        ("link /job/meta.json /job/artifacts/meta.json", DENIED),
        ("append /job/status.md x", DENIED),
        (long_file.as_str(), TOO_LONG),
        (long_path.as_str(), TOO_LONG),
    ];
    probe().attacks(|case| {
        let outside = case.home.write("members/hostile/outside.txt", "secret");
        let id = come_to(case, &steps);
        assert_eq!(fs::read_to_string(outside).unwrap(), "secret");
        assert_eq!(fs::read_dir(case.job(&id).join("artifacts")).unwrap().count(), 0);
    });
}

#[test]
fn a_trailing_slash_leads_nowhere_else() {
    let steps = [
        ("write /job/artifacts/file one", OK),
        ("symlink file /job/artifacts/link", OK),
        ("write /job/artifacts/new/ x", "error is a directory"),
        ("read /job/artifacts/file/", "error not a directory"),
        ("read /job/artifacts/link/", "error not a directory"),
        ("write /job/artifacts/link/ x", "error not a directory"),
        ("remove /job/artifacts/file/", "error not a directory"),
        ("rename /job/artifacts/file/ /job/artifacts/moved", "error not a directory"),
        ("rename /job/artifacts/file /job/artifacts/moved/", "error not a directory"),
        ("link /job/artifacts/file/ /job/artifacts/hard", "error not a directory"),
        ("rmdir /job/artifacts/.", "error Invalid argument (os error 28)"),
        ("read /job/artifacts/out/", DENIED),
        ("ls /job/artifacts/out/", DENIED),
        ("write /job/artifacts/out/new x", DENIED),
        ("truncate /job/artifacts/out/", DENIED),
    ];
    probe().attacks(|case| {
        let id = planted_come_to(case, |job| symlink("..", job.join("artifacts/out")).unwrap(), &steps);
        assert_eq!(fs::read_to_string(case.job(&id).join("artifacts/file")).unwrap(), "one");
        assert_eq!(fs::read_dir(case.job(&id).join("artifacts")).unwrap().count(), 3);
        assert!(!case.job(&id).join("new").exists());
    });
}

#[test]
fn what_is_read_only_is_not_changed_by_truncate_link_or_rename() {
    let steps = [
        ("write /job/artifacts/own x", OK),
        ("truncate /memory/note.md", DENIED),
        ("set-size /memory/note.md 0", NOT_PERMITTED),
        ("append /memory/note.md x", DENIED),
        ("write /memory/note.md x", DENIED),
        ("remove /memory/note.md", DENIED),
        ("rename /memory/note.md /job/artifacts/note.md", DENIED),
        ("rename /job/artifacts/own /memory/own.md", DENIED),
        ("link /memory/note.md /job/artifacts/note.md", DENIED),
        ("link /job/artifacts/own /memory/own.md", DENIED),
        ("mkdir /memory/dir", DENIED),
        ("truncate /job/task.md", DENIED),
        ("truncate /job/meta.json", DENIED),
        ("set-size /job/task.md 0", NOT_PERMITTED),
        ("at /job/artifacts/../task.md 0", NOT_PERMITTED),
    ];
    probe().attacks(|case| {
        let note = case.home.write("members/hostile/memory/note.md", "noted");
        let id = come_to(case, &steps);
        assert_eq!((fs::read_to_string(&note).unwrap().as_str(), fs::metadata(&note).unwrap().nlink()), ("noted", 1));
        assert!(case.file(&id, "task.md").starts_with("await "));
        assert_eq!(fs::read_dir(case.job(&id).join("artifacts")).unwrap().count(), 1);
    });
}

#[test]
fn symlinks_that_a_guest_makes_lead_nowhere_else() {
    let steps = [
        ("symlink /etc/passwd /job/artifacts/absolute", NOT_PERMITTED),
        ("symlink ../meta.json /job/artifacts/up", NOT_PERMITTED),
        ("symlink a/../../meta.json /job/artifacts/around", NOT_PERMITTED),
        ("symlink .. /job/artifacts/parent", NOT_PERMITTED),
        ("symlink /proc/self /job/artifacts/proc", NOT_PERMITTED),
        ("symlink x /job/link", NOT_PERMITTED),
        ("symlink x /memory/link", NOT_PERMITTED),
        ("symlink loop /job/artifacts/loop", OK),
        ("symlink nothing /job/artifacts/dangling", OK),
        ("read /job/artifacts/loop", LOOP),
        ("write /job/artifacts/loop x", LOOP),
        ("ls /job/artifacts/loop", LOOP),
        ("read /job/artifacts/dangling", NOT_THERE),
        ("write /job/artifacts/one first", OK),
        ("symlink one /job/artifacts/two", OK),
        ("symlink two /job/artifacts/three", OK),
        ("read /job/artifacts/three", "ok first"),
    ];
    probe().attacks(|case| {
        let id = come_to(case, &steps);
        // No link is an artifact.
        assert_eq!(case.client().result(&id).unwrap()["artifacts"], json!(["artifacts/one"]));
    });
}

/// Whoever planted them: one that leads out, alone or by another one, to a directory, to `/proc/self`, to a file of the
/// machine.
#[test]
fn a_guest_follows_no_link_that_leads_out() {
    let steps = [
        ("read /job/artifacts/planted", DENIED),
        ("write /job/artifacts/planted forged", DENIED),
        ("truncate /job/artifacts/planted", DENIED),
        ("read /job/artifacts/chain", DENIED),
        ("write /job/artifacts/chain forged", DENIED),
        ("ls /job/artifacts/out", DENIED),
        ("write /job/artifacts/out/new forged", DENIED),
        ("mkdir /job/artifacts/out/new", DENIED),
        ("read /job/artifacts/out/meta.json", DENIED),
        ("remove /job/artifacts/out/meta.json", DENIED),
        ("link /job/artifacts/out/meta.json /job/artifacts/hard", DENIED),
        ("read /job/artifacts/proc/environ", DENIED),
        ("ls /job/artifacts/proc/fd", DENIED),
        ("read /job/artifacts/absolute", DENIED),
        ("read /memory/planted", DENIED),
    ];
    probe().attacks(|case| {
        symlink("/etc/passwd", case.member.join("memory/planted")).unwrap();
        let plant = |job: &Path| {
            for (target, name) in [
                ("../meta.json", "planted"),
                ("planted", "chain"),
                ("..", "out"),
                ("/proc/self", "proc"),
                ("/etc/passwd", "absolute"),
            ] {
                symlink(target, job.join("artifacts").join(name)).unwrap();
            }
        };
        let id = planted_come_to(case, plant, &steps);
        assert!(case.file(&id, "meta.json").contains("completed") && !case.job(&id).join("new").exists());
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
    Hostile::autonomous(writing_over_what_was_planted()).attacks(|case| {
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
    Hostile::autonomous(with_artifacts(data, call, 8196)).seconds(1).attacks(|case| {
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
fn a_record_that_becomes_something_else_delays_nobody() {
    let plants: [Plant; 4] = [
        |meta| fs::create_dir(meta).unwrap(),
        |meta| assert!(Command::new("mkfifo").arg(meta).status().unwrap().success()),
        |meta| fs::File::create(meta).unwrap().set_len(10 << 30).unwrap(),
        |meta| symlink("/dev/zero", meta).unwrap(),
    ];
    Hostile::autonomous(writing_over_what_was_planted()).attacks(|case| {
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
            assert_eq!((&ended["status"], &ended["error"]), (&json!("completed"), &json!(null)));
            // And when it has ended.
            if !meta.is_dir() {
                let _ = fs::remove_file(&meta);
                plant(&meta);
            }
            case.client().call("worker/list", json!({"detail": "detailed"})).unwrap();
            assert_eq!(case.client().status(&id).unwrap()["status"], "completed");
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
    Hostile::autonomous(writing_over_what_was_planted()).attacks(|case| {
        let elsewhere = case.home.path("elsewhere");
        let id = plant_and_go(case, |job| fs::rename(job, &elsewhere).unwrap());
        let unknown = RpcError { code: -32602, message: format!("Unknown job ID: {id}") };
        let answer = wait_for("its end", || match case.client().status(&id) {
            Ok(status) if status["status"] == "running" => None,
            answer => Some(answer),
        });
        assert_eq!(answer, Err(unknown));
        assert!(!case.job(&id).exists(), "nothing is made in its place");
    });
}

const NO_SPACE: &str = "No space left on device (os error 51)";

/// What some versions of guests' C library say of every stream that failed, without asking what it was.
const STREAM_FAILED: &str = "I/O error (os error 29)";

#[test]
fn a_disk_is_not_filled_with_bytes() {
    let (bytes, _) = ARTIFACTS;
    let (fill, more) = (format!("fill /job/artifacts/a {}", 1_u64 << 30), "fill /job/artifacts/b 1");
    probe().attacks(|case| {
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
    probe().attacks(|case| {
        let (id, outcomes) = tried(case, &[&["mkdir /job/artifacts/d"][..], &steps].concat());
        assert_eq!(outcomes[steps[0]], format!("ok {}, then {NO_SPACE}", entries - 1));
        for step in &steps[1..] {
            assert_eq!(outcomes[*step], format!("ok 0, then {NO_SPACE}"), "{step}");
        }
        let log = case.file(&id, "log.txt");
        assert_eq!(log.matches(&format!("the fixed limit artifacts_entries = {entries}")).count(), 1, "{log}");
    });
}

#[test]
fn a_tree_is_not_deeper_than_it_can_be_removed() {
    probe().attacks(|case| {
        let deep = "deep /job/artifacts 10000";
        let outcome = &tried(case, &[deep]).1[deep];
        assert_eq!(outcome, "ok 16, then Filename too long (os error 37)");
    });
}

#[test]
fn a_file_does_not_become_huge_without_being_written() {
    let why = format!("error {NO_SPACE}");
    let steps = [
        ("set-size /job/artifacts/a 1099511627776", why.as_str()),
        ("set-size /job/artifacts/a 9223372036854775807", &why),
        ("at /job/artifacts/a 1099511627776", &why),
        ("at /job/artifacts/a 9223372036854775806", &why),
    ];
    probe().attacks(|case| drop(come_to(case, &steps)));
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
const QUOTA: &str = "G";
const INVALID: &str = "M";
const NO_ENTRY: &str = "U";
const OVERFLOW: &str = "_";

#[test]
fn descriptors_run_out_for_the_guest_and_not_for_the_host() {
    // Itself, again and again, and none is closed.
    let call = "(loop $again
                  (call $types.descriptor.open-at (local.get $dir) (i32.const 0) (i32.const 1024) (i32.const 1)
                    (i32.const 2) (i32.const 1) (i32.const 8192))
                  (br_if $again (i32.eqz (i32.load8_u (i32.const 8192)))))";
    let component = with_artifacts("(data (i32.const 1024) \".\")", call, 8196);
    Hostile::autonomous(component).attacks(|case| drop(case.fails(QUOTA)));
}

#[test]
fn a_path_with_a_nul_or_nothing_in_it_is_invalid() {
    for (path, len, code) in [("a\\00b", 3, INVALID), ("", 0, NO_ENTRY)] {
        let call = format!(
            "(call $types.descriptor.open-at (local.get $dir) (i32.const 0) (i32.const 1024) (i32.const {len})
               (i32.const 1) (i32.const 3) (i32.const 8192))"
        );
        let component = with_artifacts(&format!("(data (i32.const 1024) \"{path}\")"), &call, 8196);
        Hostile::autonomous(component).attacks(|case| drop(case.fails(code)));
    }
}

#[test]
fn times_that_no_file_can_have_are_refused_or_stored_as_near_as_possible() {
    // The last second before 1970, or of 64 bits; one that a file stores as near as it can; more nanoseconds than a second
    // has, and both at once.
    for (seconds, nanoseconds, refused) in [
        ("-1", "0", Some(OVERFLOW)),
        ("0x7fffffffffffffff", "999999999", None),
        ("1", "4294967295", None),
        ("-1", "4294967295", Some(OVERFLOW)),
    ] {
        let at = format!("(i32.const 2) (i64.const {seconds}) (i32.const {nanoseconds})");
        // Of the directory itself, by its name.
        let call = format!(
            "(call $types.descriptor.set-times-at (local.get $dir) (i32.const 0) (i32.const 1024) (i32.const 1) {at} {at}
               (i32.const 8192))"
        );
        let component = with_artifacts("(data (i32.const 1024) \".\")", &call, 8193);
        Hostile::autonomous(component).attacks(|case| {
            match refused {
                Some(code) => drop(case.fails(code)),
                None => assert_eq!(case.completes(1).1, "ok"),
            }
            case.client().call("worker/list", json!({"detail": "detailed"})).unwrap();
        });
    }
}

/// Files that people, or a copy, left with times before 1970 and far in the future.
#[test]
fn a_guest_reads_files_of_any_time() {
    probe().attacks(|case| {
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
    let unsound = |key: &str| format!("error key must be 1 to 64 letters, digits, '-' or '_': {key:?} is not");
    let long = "k".repeat(300);
    let keys = [".", "..", "a/b", "../x", "/x", "a.md", "\0", "../guild-member", &long];
    let mut steps: Vec<(String, String)> = Vec::new();
    for key in keys {
        steps.push((format!("remember {key} x"), unsound(key)));
        steps.push((format!("recall {key}"), unsound(key)));
    }
    let compacted = "error the key \"compacted\" is the host's, for memories that it condensed; choose another";
    let case_only =
        "error there is a memory \"Key\", and \"key\" is differing in case only; use \"Key\" or another key";
    for (step, outcome) in [
        ("remember compacted x", compacted),
        ("remember Key one", OK),
        ("remember key two", case_only),
        ("recall Key", "ok one"),
        ("recall key", OK),
    ] {
        steps.push((step.to_owned(), outcome.to_owned()));
    }
    let steps: Vec<(&str, &str)> = steps.iter().map(|(step, outcome)| (step.as_str(), outcome.as_str())).collect();
    probe().attacks(|case| drop(come_to(case, &steps)));
}

/// A host that died after it wrote what it condensed, and before it removed what that came from: the next time makes it
/// good.
#[test]
fn memories_of_a_host_that_died_between_write_and_unlink_are_condensed_by_the_next() {
    let hostile = probe().limit("memory_injection_chars = 1000").limit("memory_compaction_chars = 2000");
    hostile.attacks(|case| {
        let memory = |name: &str| case.member.join("memory").join(name);
        for name in ["compacted.md", "a.md", "b.md"] {
            fs::write(memory(name), format!("The moths of {name} fly at night.\n").repeat(20)).unwrap();
        }
        fs::write(memory(".tmp-c.md"), "half").unwrap();
        come_to(case, &[("remember c Moths have no mouth.", OK)]);
        let texts = || {
            let entries =
                fs::read_dir(memory("")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            entries.filter(|name| name.ends_with(".md") && name != "go.md").collect::<Vec<_>>()
        };
        eventually("memories", texts, |left| left == &["compacted.md"]);
        let condensed = fs::read_to_string(memory("compacted.md")).unwrap();
        assert!(condensed.contains("fly at night") && condensed.chars().count() <= 1000, "{condensed}");
    });
}

/// What is stored while the host condenses memories is whole, or is among what was condensed.
#[test]
fn memories_that_are_stored_while_others_are_condensed_are_whole() {
    let hostile = probe().limit("memory_injection_chars = 1000").limit("memory_compaction_chars = 2000");
    hostile.attacks(|case| {
        let text = |n: usize| format!("Moth {n} flies at night. ").repeat(20);
        let jobs: Vec<String> = (0..4)
            .map(|writer| {
                let steps: Vec<String> = (0..20).map(|n| format!("remember m{writer}-{n} {}", text(n))).collect();
                let task = json!({"description": "hostile", "task": steps.join("\n")});
                case.client().dispatch(task).unwrap()
            })
            .collect();
        for id in jobs {
            assert_eq!(case.client().ended(&id)["status"], "completed");
            let report = case.client().result(&id).unwrap()["output"].as_str().unwrap().to_owned();
            assert!(report.lines().all(|line| line.contains(": ok")), "{report}");
        }
        let memory = case.member.join("memory");
        let left = || {
            let entries = fs::read_dir(&memory).unwrap().map(|entry| entry.unwrap().path());
            entries.filter(|path| path.extension().is_some_and(|is| is == "md")).collect::<Vec<_>>()
        };
        eventually("memories", || left().len(), |left| *left < 8);
        for path in left() {
            let found = fs::read_to_string(&path).unwrap();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            match name.split_once('-') {
                Some((_, n)) => assert_eq!(found.trim_end(), text(n.parse().unwrap()).trim_end(), "{name}"),
                None => assert!(name == "compacted" && found.chars().count() <= 1000, "{name}: {found}"),
            }
        }
    });
}
