//! What a store makes of what it finds: the original's jobs, broken ones, and what a crash left.
#![allow(clippy::unwrap_used, reason = "a test helper fails its test")]

mod common;

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    sync::Arc,
};

use cap_std::{ambient_authority, fs::Dir};
use common::{Member, is_unknown, list, listed_ids, start, status};
use guild_contract::{JobId, JobStatus, Limits};
use guild_fs::clock::SystemClock;
use guild_jobs::{JobStore, StoreOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

fn meta(status: &str) -> Value {
    json!({"jobId": "x", "status": status, "description": "d", "startedAt": "2026-02-17T10:00:00.000Z"})
}

#[test]
fn what_the_original_wrote_is_read_as_it_is() {
    let member = Member::new();
    let id = member.plant(
        "1b671a64-40d5-491e-99b0-da01ff1f3341",
        &json!({"jobId": "1b671a64-40d5-491e-99b0-da01ff1f3341", "status": "completed", "description": "old",
                "startedAt": "2026-02-17T10:00:00.123Z", "completedAt": "2026-02-17T10:05:00.456Z"}),
    );
    member.dir.write(member.file(&id, "questions.md"), "one?\ntwo?").unwrap();
    member.dir.write(member.file(&id, "status.md"), "Done.").unwrap();
    member.dir.write(member.file(&id, "result.md"), "# Report").unwrap();
    member
        .dir
        .write(member.file(&id, "decisions.json"), r#"[{"question":"q","decision":"d","reasoning":"r"}]"#)
        .unwrap();
    let store = member.store();
    let view = status(&store, &id);
    assert_eq!((view.started_at.as_str(), view.summary.as_deref()), ("2026-02-17T10:00:00.123Z", Some("Done.")));
    assert_eq!((view.questions.unwrap().len(), view.decisions.unwrap().len()), (2, 1));
    assert_eq!(store.result(id.as_str()).unwrap().output, "# Report");
    // It could end a job without a result, and without a time.
    let bare = member.plant("bare", &meta("completed"));
    let store = member.store();
    assert_eq!(status(&store, &bare).completed_at, None);
    assert_eq!(store.result("bare").unwrap().output, "");
}

#[test]
fn directories_that_are_not_jobs_are_left_out_and_harm_no_job() {
    let member = Member::new();
    let sound = member.plant("sound", &meta("completed"));
    let dir = &member.dir;
    for name in ["none", "directory", "fifo", "huge", "link"] {
        dir.create_dir(format!("jobs/{name}")).unwrap();
    }
    dir.create_dir("jobs/directory/meta.json").unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(dir, "jobs/fifo/meta.json", mode).unwrap();
    dir.create("jobs/huge/meta.json").unwrap().set_len(10 << 30).unwrap();
    dir.symlink("../sound/meta.json", "jobs/link/meta.json").unwrap();
    dir.symlink("sound", "jobs/linked").unwrap();
    dir.write("jobs/file", "no directory").unwrap();
    dir.create_dir("jobs/.git").unwrap();
    member.plant("broken", &json!({"status": "completed"}));
    dir.create_dir("jobs/not an id").unwrap();
    dir.write("jobs/not an id/meta.json", meta("completed").to_string()).unwrap();
    let store = member.store();
    let mut left_out: Vec<_> = store.load().unreadable.into_iter().map(|(id, _)| id.to_string()).collect();
    left_out.sort();
    assert_eq!(left_out, ["broken", "directory", "fifo", "huge", "link", "none"]);
    assert_eq!(listed_ids(&store, json!({})), ["sound"]);
    assert_eq!(status(&store, &sound).status, JobStatus::Completed);
    for id in ["linked", "file", "fifo", ".git"] {
        assert!(is_unknown(&store, id), "{id}");
    }
}

#[test]
fn files_that_are_traps_are_left_out_of_a_status() {
    let member = Member::with(Limits { summary_bytes: 10, ..Limits::default() });
    let id = member.plant("job", &meta("completed"));
    std::os::unix::fs::symlink("/etc/passwd", member.path(&member.file(&id, "status.md"))).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(&member.dir, member.file(&id, "questions.md"), mode).unwrap();
    member.dir.create(member.file(&id, "decisions.json")).unwrap().set_len(10 << 30).unwrap();
    member.dir.symlink("meta.json", member.file(&id, "result.md")).unwrap();
    let store = member.store();
    let view = status(&store, &id);
    assert_eq!((view.summary, view.questions, view.decisions), (None, None, None));
    let error = store.result("job").unwrap_err().to_string();
    assert!(error.starts_with("could not read result.md") && !error.contains('/'), "{error}");
    member.dir.remove_file(member.file(&id, "status.md")).unwrap();
    member.edit(&member.file(&id, "status.md"), "0123456789 and more");
    assert_eq!(status(&store, &id).summary.as_deref(), Some("0123456789"));
}

#[test]
fn an_interrupted_job_is_completed_if_it_had_submitted_and_failed_if_not() {
    let member = Member::new();
    let store = member.store();
    let (silent, submitted) = (start(&store, "silent"), start(&store, "submitted"));
    submitted.submit_result("the result", None).unwrap();
    let (silent, submitted) = (silent.id().clone(), submitted.id().clone());
    drop(store);
    member.clock.advance(60);

    let store = member.store();
    let report = store.load();
    assert_eq!((report.jobs, report.recovered.len()), (2, 2));
    let view = status(&store, &silent);
    assert_eq!((view.status, view.completed_at.as_deref()), (JobStatus::Failed, Some("2026-01-01T00:01:00.000Z")));
    assert!(view.error.unwrap().starts_with("the host stopped while the job was running"));
    assert_eq!(status(&store, &submitted).status, JobStatus::Completed);
    assert_eq!(store.result(submitted.as_str()).unwrap().output, "the result");
    assert!(!member.dir.exists(member.file(&submitted, "submission.json")));
    assert!(member.store().load().recovered.is_empty());
}

/// A job as each of the writes of its end leaves it, if the host dies right after.
#[test]
fn a_crash_between_any_two_writes_leaves_a_job_that_is_repaired() {
    struct Crash {
        at: &'static str,
        files: &'static [(&'static str, &'static str)],
        status: JobStatus,
    }
    const SUBMISSION: &str = r#"{"output":"result"}"#;
    const HALF: &str = "{\"jobId\":";
    let crashes = [
        Crash { at: "created", files: &[], status: JobStatus::Failed },
        Crash { at: "summary half-written", files: &[(".tmp-status.md", "ha")], status: JobStatus::Failed },
        Crash { at: "submission half-written", files: &[(".tmp-submission.json", HALF)], status: JobStatus::Failed },
        Crash { at: "submitted", files: &[("submission.json", SUBMISSION)], status: JobStatus::Completed },
        Crash {
            at: "result half-written",
            files: &[("submission.json", SUBMISSION), (".tmp-result.md", "res")],
            status: JobStatus::Completed,
        },
        Crash {
            at: "result written, record not",
            files: &[("submission.json", SUBMISSION), ("result.md", "result"), (".tmp-meta.json", HALF)],
            status: JobStatus::Completed,
        },
        Crash { at: "final text written, record not", files: &[("result.md", "result")], status: JobStatus::Completed },
        Crash { at: "a submission by hand", files: &[("submission.json", "no")], status: JobStatus::Failed },
    ];
    for crash in crashes {
        let member = Member::new();
        let store = member.store();
        let id = start(&store, "d").id().clone();
        drop(store);
        for (file, contents) in crash.files {
            member.dir.write(member.file(&id, file), contents).unwrap();
        }
        let store = member.store();
        assert_eq!(status(&store, &id).status, crash.status, "{}", crash.at);
        if crash.status == JobStatus::Completed {
            assert_eq!(store.result(id.as_str()).unwrap().output, "result", "{}", crash.at);
        }
        for (path, ..) in member.files_of(&id) {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(!name.starts_with(".tmp-") && name != "submission.json", "{} left {name}", crash.at);
        }
        assert!(member.store().load().recovered.is_empty(), "{}", crash.at);
    }
}

#[test]
fn a_submission_that_outlived_the_record_changes_nothing() {
    for ended in ["cancelled", "completed", "failed"] {
        let member = Member::new();
        let id = member.plant("job", &meta(ended));
        member.dir.write(member.file(&id, "submission.json"), r#"{"output":"late"}"#).unwrap();
        assert_eq!(status(&member.store(), &id).status.as_str(), ended);
    }
}

#[test]
fn a_result_of_the_original_s_agent_does_not_complete_a_job() {
    let member = Member::new();
    let id = member.plant("old", &meta("running"));
    member.dir.write(member.file(&id, "result.md"), "half of a rep").unwrap();
    assert_eq!(status(&member.store(), &id).status, JobStatus::Failed);
}

#[test]
fn incomplete_creations_and_removals_are_removed() {
    let member = Member::new();
    member.plant("kept", &meta("completed"));
    member.dir.create_dir_all("jobs/.new-1/artifacts").unwrap();
    member.dir.write("jobs/.new-1/task.md", "t").unwrap();
    member.dir.create_dir_all("jobs/.del-2/a/b").unwrap();
    member.dir.create_dir_all("jobs/.del-2.1/a/b").unwrap();
    member.dir.create_dir_all("jobs/.del-2.2/a/b").unwrap();
    assert_eq!(member.store().load().jobs, 1);
    assert_eq!(member.dir.read_dir("jobs").unwrap().count(), 1);
}

#[test]
fn a_copied_directory_is_a_job_of_its_own() {
    let member = Member::new();
    member.plant("a", &meta("completed"));
    member.plant("copy-of-a", &meta("completed"));
    let store = member.store();
    assert_eq!(status(&store, &"copy-of-a".parse().unwrap()).job_id.as_str(), "copy-of-a");
    store.delete("copy-of-a").unwrap();
    assert_eq!(listed_ids(&store, json!({})), ["a"]);
}

#[test]
fn a_jobs_directory_that_is_a_symlink_is_refused() {
    let member = Member::new();
    member.dir.create_dir("elsewhere").unwrap();
    member.dir.symlink("elsewhere", "jobs").unwrap();
    let options = StoreOptions { limits: Arc::default(), clock: Arc::new(SystemClock) };
    assert!(JobStore::open(&member.dir, options).is_err());
}

#[test]
fn answers_wait_for_the_load_and_creation_does_not() {
    let member = Member::new();
    for n in 0..50 {
        member.plant(&format!("old-{n}"), &meta("completed"));
    }
    let options = StoreOptions { limits: Arc::default(), clock: member.clock.clone() };
    let store = JobStore::open(&member.dir, options).unwrap();
    let job = start(&store, "new");
    assert_eq!(list(&store, json!({})).jobs.len(), 51);
    assert_eq!(store.load().recovered.len(), 0);
    assert_eq!(status(&store, job.id()).status, JobStatus::Running);
}

#[test]
fn answers_about_a_job_that_was_just_made_do_not_wait_for_the_load() {
    let member = Member::new();
    member.plant("old", &meta("completed"));
    member.dir.create_dir("jobs/.new-left").unwrap();
    let not_loaded = || member.dir.exists("jobs/.new-left");
    let options = StoreOptions { limits: Arc::default(), clock: member.clock.clone() };
    let store = JobStore::open(&member.dir, options).unwrap();
    let job = start(&store, "new");
    let id = job.id().as_str();
    assert_eq!(status(&store, job.id()).status, JobStatus::Running);
    job.complete(Some("done")).unwrap();
    assert_eq!(store.result(id).unwrap().output, "done");
    assert_eq!(store.cancel(id).unwrap().status, JobStatus::Completed);
    assert!(store.delete(id).unwrap().deleted);
    assert!(not_loaded(), "it waited for the load");
    assert_eq!(status(&store, &"old".parse().unwrap()).status, JobStatus::Completed);
    assert!(!not_loaded());
}

/// In a child process, since it leaves the whole process without descriptors.
#[test]
fn child_that_runs_out_of_descriptors() {
    let Ok(path) = std::env::var("GUILD_TEST_MEMBER") else { return };
    let dir = Dir::open_ambient_dir(path, ambient_authority()).unwrap();
    let options = StoreOptions { limits: Arc::default(), clock: Arc::new(SystemClock) };
    let store = JobStore::open(&dir, options).unwrap();
    let enough = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: enough.maximum }).unwrap();
    assert_eq!(store.load().jobs, 0);
    assert!(listed_ids(&store, json!({})).is_empty());
    setrlimit(Resource::Nofile, enough).unwrap();
    assert_eq!(listed_ids(&store, json!({})), ["left", "done"]);
    assert_eq!(store.result("left").unwrap().output, "the result");
    assert_eq!(store.load().jobs, 2);
}

#[test]
fn a_load_that_fails_is_tried_again() {
    let member = Member::new();
    member.plant("done", &meta("completed"));
    let left = member.plant("left", &meta("running"));
    member.dir.write(member.file(&left, "submission.json"), r#"{"output":"the result"}"#).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_runs_out_of_descriptors"])
        .env("GUILD_TEST_MEMBER", member.path(""))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && told.contains("1 passed"), "{told}");
}

/// In a child process: makes jobs and carries them on until it is killed, and says each one's id when the caller of
/// a dispatch would have been told.
#[test]
fn child_that_works_until_it_is_killed() {
    let Ok(path) = std::env::var("GUILD_TEST_MEMBER") else { return };
    let dir = Dir::open_ambient_dir(path, ambient_authority()).unwrap();
    let options = StoreOptions { limits: Arc::default(), clock: Arc::new(SystemClock) };
    let store = JobStore::open(&dir, options).unwrap();
    let store = &store;
    let work = |n: usize| {
        let job = start(store, &format!("job {n}"));
        println!("\nmade {} {}", job.id(), if n % 4 == 2 { "to be deleted" } else { "to be kept" });
        job.update_summary("working").unwrap();
        job.log_question("?").unwrap();
        job.write_artifact("a/b", b"c").unwrap();
        match n % 4 {
            0 => drop(job.submit_result(&"result ".repeat(1000), None).map(|()| job.complete(None))),
            1 => drop(job.fail("no")),
            2 => drop(store.cancel(job.id().as_str()).map(|_| store.delete(job.id().as_str()))),
            _ => drop(job.submit_result("handed over", None)),
        }
        if n % 4 == 2 {
            println!("\ndeleted {}", job.id());
        }
    };
    std::thread::scope(|scope| {
        for first in 0..4 {
            scope.spawn(move || (first..).step_by(4).for_each(work));
        }
    });
}

#[test]
fn a_kill_at_any_moment_loses_no_job_and_leaves_none_stuck() {
    for round in 0..4 {
        let member = Member::new();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_works_until_it_is_killed", "--nocapture"])
            .env("GUILD_TEST_MEMBER", member.path(""))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut made, mut kept, mut deleted) = (0, Vec::<JobId>::new(), Vec::<JobId>::new());
        let mut note = |line: &str| {
            match line.split_once(' ') {
                Some(("made", rest)) => {
                    made += 1;
                    kept.extend(rest.strip_suffix(" to be kept").map(|id| id.parse().unwrap()));
                }
                Some(("deleted", id)) => deleted.push(id.parse().unwrap()),
                _ => {}
            }
            made
        };
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        while note(&lines.next().unwrap()) < 20 + 7 * round {}
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines {
            note(&line);
        }

        let store = member.store();
        assert!(store.load().unreadable.is_empty());
        for job in list(&store, json!({})).jobs {
            assert_ne!(job.status, JobStatus::Running);
            if job.status == JobStatus::Completed {
                let output = store.result(job.job_id.as_str()).unwrap().output;
                assert!(output == "handed over" || output == "result ".repeat(1000));
            }
        }
        for id in &kept {
            assert!(!is_unknown(&store, id.as_str()), "{id} is lost");
        }
        for id in &deleted {
            assert!(is_unknown(&store, id.as_str()), "{id} came back");
        }
        let odd: Vec<_> = std::fs::read_dir(member.path("jobs"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with('.'))
            .collect();
        assert!(odd.is_empty(), "{odd:?} were left");
    }
}

#[test]
fn what_a_killed_host_left_half_written_is_removed_and_what_others_wrote_is_not() {
    let member = Member::new();
    let (ended, left) = (member.plant("ended", &meta("failed")), member.plant("left", &meta("running")));
    let planted = [(&ended, ".tmp-meta.json"), (&ended, ".tmp-result.md"), (&left, ".tmp-status.md")];
    for (id, file) in planted {
        member.dir.write(member.file(id, file), "half of").unwrap();
    }
    member.dir.write(member.file(&ended, ".notes"), "a person's").unwrap();
    let store = member.store();
    assert_eq!(status(&store, &left).status, JobStatus::Failed);
    for (id, file) in planted {
        assert!(!member.dir.exists(member.file(id, file)), "{id}/{file} was left");
    }
    assert!(member.dir.exists(member.file(&ended, ".notes")));
}
