//! The life of a job, as callers and people at the files see it.

mod common;

use std::{sync::Barrier, time::Duration};

use common::{Member, accepted, eventually, is_unknown, list, listed_ids, new_job, running_count, start, status};
use guild_contract::{Decision, JobStatus, Limits, Retention};
use guild_jobs::{AttachedBytes, JobStore, NewJob, StoreError};
use guild_session::{tools::ToolError, transcript::Entry};
use serde_json::{Value, json};

fn decision(n: u32) -> Decision {
    Decision { question: format!("q{n}"), decision: format!("d{n}"), reasoning: format!("r{n}") }
}

#[test]
fn a_new_job_is_there_whole() {
    let member = Member::new();
    let store = member.store();
    let id = store.new_id();
    let new = NewJob {
        id: id.clone(),
        description: "label".into(),
        task: "do it".into(),
        config: json!({"depth": 2}),
        token: None,
        plan: accepted(),
        attachments: None,
        activation: None,
        follows: None,
        key: None,
    };
    store.create(new).unwrap();

    let mut names: Vec<_> = member.files_of(&id).into_iter().map(|f| f.0.file_name().unwrap().to_owned()).collect();
    names.sort();
    assert_eq!(names, ["config.json", "meta.json", "plan.json", "status.md", "task.md"]);
    assert!(member.path(&member.file(&id, "artifacts")).is_dir());
    assert_eq!(member.read(&member.file(&id, "task.md")), "do it");
    let config: Value = serde_json::from_str(&member.read(&member.file(&id, "config.json"))).unwrap();
    assert_eq!(config, json!({"depth": 2}));
    let meta: Value = serde_json::from_str(&member.read(&member.file(&id, "meta.json"))).unwrap();
    let started = "2026-01-01T00:00:00.000Z";
    assert_eq!(meta, json!({"jobId": id, "status": "running", "description": "label", "startedAt": started}));
    assert_eq!(
        serde_json::from_slice::<Value>(&store.status(id.as_str()).unwrap()).unwrap(),
        json!({"jobId": id, "status": "running", "description": "label", "summary": null, "questions": null,
               "decisions": null, "error": null, "startedAt": started, "completedAt": null})
    );
    assert_eq!(running_count(&store), 1);
    assert_eq!(member.dir.read_dir("jobs").unwrap().count(), 1, "something was left beside the job");
}

#[test]
fn no_config_is_an_empty_object() {
    let member = Member::new();
    let job = start(&member.store(), "d");
    assert_eq!(member.read(&member.file(job.id(), "config.json")), "{}\n");
}

#[test]
fn a_submitted_result_becomes_the_result_on_completion() {
    let member = Member::new();
    let store = member.store();
    let job = start(&store, "d");
    let id = job.id();
    assert_eq!(store.result(id.as_str()).unwrap_err().to_string(), "Job is still running");
    job.submit_result("first", None).unwrap();
    job.submit_result("second", None).unwrap();
    assert!(job.has_submission());
    assert!(member.dir.exists(member.file(id, "submission.json")));
    member.clock.advance(5);
    assert_eq!(job.complete(Some("chatter")).unwrap(), JobStatus::Completed);

    assert_eq!(member.read(&member.file(id, "result.md")), "second");
    assert!(!member.dir.exists(member.file(id, "submission.json")));
    let result = store.result(id.as_str()).unwrap();
    assert_eq!((result.output.as_str(), result.artifacts), ("second", None));
    let view = status(&store, id);
    assert_eq!((view.status, view.completed_at.as_deref()), (JobStatus::Completed, Some("2026-01-01T00:00:05.000Z")));
    assert_eq!(running_count(&store), 0);
}

#[test]
fn final_text_serves_only_where_no_result_was_submitted() {
    let member = Member::new();
    let store = member.store();
    let job = start(&store, "d");
    assert_eq!(job.complete(Some("the answer")).unwrap(), JobStatus::Completed);
    assert_eq!(store.result(job.id().as_str()).unwrap().output, "the answer");

    for text in [None, Some(" \n")] {
        let job = start(&store, "d");
        assert_eq!(job.complete(text).unwrap(), JobStatus::Failed);
        let error = "the session ended without handing over a result";
        assert_eq!(status(&store, job.id()).error.as_deref(), Some(error));
        assert_eq!(store.result(job.id().as_str()).unwrap_err().to_string(), format!("Job failed: {error}"));
    }
}

#[test]
fn a_final_text_that_is_too_large_is_a_failure_with_that_reason() {
    let member = Member::with(Limits { result_bytes: 4, ..Limits::default() });
    let store = member.store();
    let (fits, over) = (start(&store, "d"), start(&store, "d"));
    assert_eq!(fits.complete(Some("1234")).unwrap(), JobStatus::Completed);
    assert_eq!(store.result(fits.id().as_str()).unwrap().output, "1234");
    assert_eq!(over.complete(Some("12345")).unwrap(), JobStatus::Failed);
    let error = "over a limit: the result has 5 bytes; limits.result_bytes allows 4";
    assert_eq!(status(&store, over.id()).error.as_deref(), Some(error));
}

#[test]
fn a_submitted_result_wins_over_an_error_that_follows_it() {
    let member = Member::new();
    let store = member.store();
    let job = start(&store, "d");
    job.submit_result("kept", None).unwrap();
    assert_eq!(job.fail("the model went away").unwrap(), JobStatus::Completed);
    assert_eq!(store.result(job.id().as_str()).unwrap().output, "kept");
}

#[test]
fn cancel_beats_a_submitted_result_and_a_later_failure() {
    let member = Member::new();
    let store = member.store();
    let job = start(&store, "d");
    job.submit_result("too late", None).unwrap();
    assert!(!job.cancelled().is_cancelled());
    assert_eq!(store.cancel(job.id().as_str()).unwrap().status, JobStatus::Cancelled);
    assert!(job.cancelled().is_cancelled());
    assert_eq!(job.fail("the session was interrupted").unwrap(), JobStatus::Cancelled);
    assert_eq!(job.complete(Some("x")).unwrap(), JobStatus::Cancelled);
    let view = status(&store, job.id());
    assert_eq!((view.status, view.error), (JobStatus::Cancelled, None));
    assert!(view.completed_at.is_some());
    assert_eq!(store.result(job.id().as_str()).unwrap_err().to_string(), "Job was cancelled");
    assert_eq!(status(&member.store(), job.id()).status, JobStatus::Cancelled);
}

#[test]
fn no_file_of_a_job_changes_after_the_answer_to_cancel() {
    let member = Member::new();
    let store = member.store();
    let job = start(&store, "d");
    job.log("before");
    job.transcript(&Entry::Resumed { session: 1 });
    store.cancel(job.id().as_str()).unwrap();
    let before = member.files_of(job.id());
    job.log("after");
    job.transcript(&Entry::Resumed { session: 2 });
    let ended = Err(ToolError::JobEnded);
    assert_eq!(job.update_summary("s"), ended);
    assert_eq!(job.record_decision(decision(1), None), ended);
    assert_eq!(job.log_question("q"), ended);
    assert_eq!(job.write_artifact("a", b"a"), ended);
    assert_eq!(job.submit_result("r", None), ended);
    assert_eq!(member.files_of(job.id()), before);
}

#[test]
fn cancel_and_completion_race_for_one_outcome() {
    let member = Member::new();
    let store = member.store();
    for _ in 0..30 {
        let job = start(&store, "d");
        job.submit_result("result", None).unwrap();
        let barrier = Barrier::new(2);
        let (completed, cancelled) = std::thread::scope(|scope| {
            let completing = scope.spawn(|| {
                barrier.wait();
                job.complete(None).unwrap()
            });
            barrier.wait();
            let cancelled = store.cancel(job.id().as_str()).unwrap().status;
            (completing.join().unwrap(), cancelled)
        });
        assert_eq!(completed, cancelled, "the two were told different outcomes");
        assert_eq!(status(&store, job.id()).status, completed);
        let on_disk: Value = serde_json::from_str(&member.read(&member.file(job.id(), "meta.json"))).unwrap();
        assert_eq!(on_disk["status"], completed.as_str());
    }
}

#[test]
fn cancelling_what_has_ended_answers_with_what_it_is() {
    let member = Member::new();
    let store = member.store();
    let job = start(&store, "d");
    job.complete(Some("done")).unwrap();
    for _ in 0..2 {
        assert_eq!(store.cancel(job.id().as_str()).unwrap().status, JobStatus::Completed);
    }
    assert_eq!(store.cancel("nobody").unwrap_err().to_string(), "Unknown job ID: nobody");
}

#[test]
fn a_failed_job_is_deleted_by_way_of_cancel_which_keeps_its_error() {
    let member = Member::new();
    let store = member.store();
    let job = start(&store, "d");
    let id = job.id().as_str();
    let delete = || store.delete(id).map_err(|e| e.to_string());
    assert_eq!(delete().unwrap_err(), "Cannot delete a running job");
    job.fail("out of turns").unwrap();
    assert_eq!(delete().unwrap_err(), "Cannot delete a failed job. Cancel it first.");
    let failed = status(&store, job.id());
    member.clock.advance(60);
    assert_eq!(store.cancel(id).unwrap().status, JobStatus::Cancelled);
    let cancelled = status(&store, job.id());
    assert_eq!(cancelled.status, JobStatus::Cancelled);
    assert_eq!((cancelled.error, cancelled.completed_at), (failed.error, failed.completed_at));
    assert!(delete().unwrap().deleted);
    assert!(delete().unwrap_err().starts_with("Unknown job ID"));
    assert!(is_unknown(&store, id));
    assert_eq!(member.dir.read_dir("jobs").unwrap().count(), 0);
    assert!(list(&store, json!({})).jobs.is_empty());
}

#[test]
fn deleting_follows_no_link() {
    let member = Member::new();
    let store = member.store();
    let job = start(&store, "d");
    member.dir.write("kept", "kept").unwrap();
    member.dir.create_dir("kept-dir").unwrap();
    member.dir.write("kept-dir/file", "kept").unwrap();
    member.dir.symlink("../../../kept", member.file(job.id(), "artifacts/link")).unwrap();
    member.dir.symlink("../../../kept-dir", member.file(job.id(), "artifacts/dir")).unwrap();
    job.write_artifact("deep/er/file", b"x").unwrap();
    job.complete(Some("done")).unwrap();
    let result = store.result(job.id().as_str()).unwrap();
    assert_eq!(result.artifacts.unwrap(), ["artifacts/deep/er/file"]);
    store.delete(job.id().as_str()).unwrap();
    assert_eq!((member.read("kept").as_str(), member.read("kept-dir/file").as_str()), ("kept", "kept"));
    assert_eq!(member.dir.read_dir("jobs").unwrap().count(), 0);
}

#[test]
fn an_id_that_is_no_job_of_this_member_is_unknown_whatever_it_looks_like() {
    let member = Member::new();
    member.dir.create_dir("outside").unwrap();
    let meta =
        json!({"jobId": "outside", "status": "completed", "description": "d", "startedAt": "2026-01-01T00:00:00Z"});
    member.dir.write("outside/meta.json", meta.to_string()).unwrap();
    let store = member.store();
    for id in ["../outside", "/etc", "", ".", "..", "a/b", "a\0b", "019f4b1c-7a3e-7f00-8000-000000000000"] {
        let unknown = format!("Unknown job ID: {id}");
        assert_eq!(store.status(id).unwrap_err().to_string(), unknown);
        assert_eq!(store.result(id).unwrap_err().to_string(), unknown);
        assert_eq!(store.cancel(id).unwrap_err().to_string(), unknown);
        assert_eq!(store.delete(id).unwrap_err().to_string(), unknown);
        assert!(store.running(id).is_none());
    }
    assert!(member.dir.exists("outside/meta.json"));
}

#[test]
fn a_job_whose_directory_was_taken_away_is_unknown_to_whoever_asks_first() {
    type Ask = fn(&JobStore, &str) -> Option<StoreError>;
    let asks: [Ask; 4] = [
        |store, id| store.result_bytes(id).err(),
        |store, id| store.artifacts(id).err(),
        |store, id| store.result(id).err(),
        |store, id| store.look_up(id).is_none().then(|| StoreError::Unknown(id.to_owned())),
    ];
    for ask in asks {
        let member = Member::new();
        let store = member.store();
        let job = start(&store, "d");
        job.complete(Some("done")).unwrap();
        let id = job.id().as_str().to_owned();
        drop(job);
        assert!(ask(&store, &id).is_none());
        member.dir.remove_dir_all(format!("jobs/{id}")).unwrap();
        assert_eq!(ask(&store, &id).unwrap().to_string(), format!("Unknown job ID: {id}"));
        assert!(store.brief(&id).is_none());
    }
}

#[test]
fn the_worker_s_words_are_in_status_and_in_files() {
    let member = Member::new();
    let store = member.store();
    let job = start(&store, "d");
    job.update_summary("half-way").unwrap();
    job.log_question("which\nof the two?\r\n").unwrap();
    job.log_question("and why?").unwrap();
    job.record_decision(decision(1), None).unwrap();
    job.record_decision(decision(2), None).unwrap();
    let check = |view: guild_contract::rpc::StatusView| {
        assert_eq!(view.summary.as_deref(), Some("half-way"));
        assert_eq!(view.questions.unwrap(), ["which of the two?", "and why?"]);
        assert_eq!(view.decisions.unwrap(), [decision(1), decision(2)]);
    };
    check(job.snapshot());
    check(status(&store, job.id()));
    assert_eq!(member.read(&member.file(job.id(), "status.md")), "half-way");
    assert_eq!(member.read(&member.file(job.id(), "questions.md")), "which of the two?\nand why?\n");
    let decisions: Vec<Decision> =
        serde_json::from_str(&member.read(&member.file(job.id(), "decisions.json"))).unwrap();
    assert_eq!(decisions, [decision(1), decision(2)]);
    job.complete(Some("done")).unwrap();
    check(status(&store, job.id()));
    check(status(&member.store(), job.id()));
}

#[test]
fn the_worker_s_words_are_bounded() {
    // A note costs 64 bytes besides its text: of one with 10 bytes and one with 9 both fit, and of two with 10 one.
    let limits = Limits { summary_bytes: 10, note_bytes: 10, notes_bytes: 147, result_bytes: 10, ..Limits::default() };
    let member = Member::with(limits);
    let store = member.store();
    let job = start(&store, "d");
    let (fits, over) = ("1234567890", "12345678901");
    let decision_of = |bytes: usize| Decision { reasoning: "r".repeat(bytes - "q1d1".len()), ..decision(1) };
    let is_over = |result: Result<(), ToolError>, why: &str| {
        assert_eq!(result, Err(ToolError::OverLimit(why.to_owned())));
    };
    assert_eq!(job.update_summary(fits), Ok(()));
    is_over(job.update_summary(over), "the summary has 11 bytes; the fixed limit summary_bytes allows 10");
    assert_eq!(job.submit_result(fits, None), Ok(()));
    is_over(job.submit_result(over, None), "the result has 11 bytes; limits.result_bytes allows 10");
    is_over(job.log_question(over), "the question has 11 bytes; the fixed limit note_bytes allows 10");
    is_over(
        job.record_decision(decision_of(11), None),
        "the decision has 11 bytes; the fixed limit note_bytes allows 10",
    );
    assert!(matches!(job.log_question(" \n"), Err(ToolError::InvalidInput(_))));
    assert!(matches!(job.submit_result("\n", None), Err(ToolError::InvalidInput(_))));

    let full = "the job's questions and decisions have reached the fixed limit notes_bytes, 147 bytes";
    assert_eq!(job.log_question(fits), Ok(()));
    is_over(job.record_decision(decision_of(10), None), full);
    assert_eq!(job.record_decision(decision_of(9), None), Ok(()));
    is_over(job.log_question("?"), full);
    is_over(job.record_decision(decision(2), None), full);
    let other = start(&store, "d");
    assert_eq!(other.record_decision(decision_of(10), None), Ok(()));
    is_over(other.log_question(fits), full);

    assert_eq!(job.complete(None).unwrap(), JobStatus::Completed);
    let view = status(&store, job.id());
    assert_eq!((view.summary.as_deref(), view.questions.unwrap()), (Some(fits), vec![fits.to_owned()]));
    assert_eq!(view.decisions.unwrap(), [decision_of(9)]);
    assert_eq!(store.result(job.id().as_str()).unwrap().output, fits);
    let tiny = start(&store, "d");
    assert_eq!((0..100).take_while(|n| tiny.log_question(&format!("{n}")).is_ok()).count(), 2);
}

fn note(text: &str) -> Entry {
    Entry::Note { session: 1, text: text.to_owned() }
}

#[test]
fn nothing_writes_a_second_line_into_log_or_transcript() {
    let member = Member::new();
    let job = start(&member.store(), "d");
    job.log("one\ntwo\x1b[2J");
    assert_eq!(member.read(&member.file(job.id(), "log.txt")), "2026-01-01T00:00:00.000Z one\\ntwo\\u{1b}[2J\n");
    job.transcript(&note("line\n0"));
    let transcript = member.read(&member.file(job.id(), "transcript.jsonl"));
    let entry: Value = serde_json::from_str(transcript.strip_suffix('\n').unwrap()).unwrap();
    assert!(entry["text"] == "line\n0" && transcript.lines().count() == 1, "{transcript}");
}

#[test]
fn log_and_transcript_keep_what_just_fits_and_say_once_that_more_was_dropped() {
    let written = |member: &Member, texts: &[&str]| {
        let job = start(&member.store(), "d");
        texts.iter().for_each(|text| {
            job.log(text);
            job.transcript(&note(text));
        });
        ["log.txt", "transcript.jsonl"].map(|file| member.read(&member.file(job.id(), file)))
    };
    let two = written(&Member::new(), &["a", "b"]);
    let [log_bytes, transcript_bytes] = two.each_ref().map(|text| text.len() as u64);
    let member = Member::with(Limits { log_bytes, transcript_bytes, ..Limits::default() });
    assert_eq!(written(&member, &["a", "b"]), two);
    // Also what would fit after that is dropped.
    for texts in [&["a", "bb", "b"][..], &["a", "b", "", "b"]] {
        let [log, transcript] = written(&member, texts);
        let kept = texts.len() - 2;
        let told = format!("(the log reached the fixed limit log_bytes, {log_bytes} bytes; what followed was dropped)");
        let expected: Vec<&str> = two[0].lines().take(kept).chain([told.as_str()]).collect();
        assert_eq!(log.lines().collect::<Vec<_>>(), expected);
        let told = format!(
            "the transcript reached limits.transcript_bytes, {transcript_bytes} bytes; what followed was dropped"
        );
        let lines: Vec<&str> = transcript.lines().collect();
        assert_eq!(lines[..kept], two[1].lines().take(kept).collect::<Vec<_>>());
        assert_eq!(lines.len(), kept + 1);
        assert_eq!(serde_json::from_str::<Value>(lines[kept]).unwrap()["text"], told);
    }
}

#[test]
fn lists_are_newest_first_and_filtered_by_description() {
    let member = Member::new();
    let store = member.store();
    let mut ids = Vec::new();
    for description in ["src/main.rs review", "Docs", "docs of src/lib.rs", "a{b}"] {
        ids.insert(0, start(&store, description).id().to_string());
        member.clock.advance(1);
    }
    assert_eq!(listed_ids(&store, json!({})), ids);
    let descriptions = |filter: &str| -> Vec<String> {
        let jobs = list(&store, json!({"detail": "detailed", "filter": filter})).jobs;
        jobs.into_iter().map(|job| job.details.unwrap().description).collect()
    };
    assert_eq!(descriptions("*rs*"), ["docs of src/lib.rs", "src/main.rs review"]);
    assert_eq!(descriptions("docs*"), ["docs of src/lib.rs"]);
    assert_eq!(descriptions("[Dd]ocs*").len(), 2);
    assert_eq!(descriptions("{Docs,*review}").len(), 2);
    assert_eq!(descriptions("Doc?"), ["Docs"]);
    assert_eq!(descriptions("Doc"), [""; 0]);
    assert_eq!(descriptions("").len(), 4);
    let error = store.list(&serde_json::from_value(json!({"filter": "[a"})).unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("filter is not a glob"), "{error}");
    let error = store.list(&serde_json::from_value(json!({"filter": "a".repeat(513)})).unwrap()).unwrap_err();
    assert!(error.to_string().contains("512 are allowed"), "{error}");
}

#[test]
fn jobs_of_the_same_moment_are_listed_by_id() {
    let member = Member::new();
    let store = member.store();
    let mut ids: Vec<String> = (0..20).map(|_| start(&store, "d").id().to_string()).collect();
    ids.reverse();
    assert_eq!(listed_ids(&store, json!({})), ids);
    assert_eq!(listed_ids(&member.store(), json!({})), ids);
}

#[test]
fn a_detailed_list_shows_the_first_kib_of_the_summary() {
    let member = Member::new();
    let store = member.store();
    let (running, ended, silent) = (start(&store, "running"), start(&store, "ended"), start(&store, "silent"));
    let long = "ü".repeat(1000);
    for job in [&running, &ended] {
        job.update_summary(&format!("x{long}")).unwrap();
    }
    ended.complete(Some("done")).unwrap();
    silent.complete(Some("done")).unwrap();
    for store in [&store, &member.store()] {
        for job in list(store, json!({"detail": "detailed"})).jobs {
            let details = job.details.unwrap();
            match details.description.as_str() {
                "silent" => assert_eq!(details.summary, None),
                _ => assert_eq!(details.summary.unwrap(), format!("x{}", "ü".repeat(511))),
            }
        }
    }
}

#[test]
fn a_clock_that_is_set_back_makes_nothing_fresh() {
    let member = Member::new();
    let store = member.store();
    let job = start(&store, "d");
    job.complete(Some("done")).unwrap();
    status(&store, job.id());
    list(&store, json!({"detail": "detailed"}));
    member.dir.write(member.file(job.id(), "status.md"), "by hand").unwrap();
    member.clock.advance(-3600);
    assert_eq!(status(&store, job.id()).summary.as_deref(), Some("by hand"));
    let details = list(&store, json!({"detail": "detailed"})).jobs.remove(0).details.unwrap();
    assert_eq!(details.summary.as_deref(), Some("by hand"));
}

#[test]
fn an_edit_of_an_ended_job_is_seen_after_a_second_and_not_before() {
    let member = Member::new();
    let store = member.store();
    let job = start(&store, "before");
    job.complete(Some("done")).unwrap();
    let id = job.id();
    let before = store.status(id.as_str()).unwrap();
    let meta = member.read(&member.file(id, "meta.json"));
    member.dir.write(member.file(id, "status.md"), "by hand").unwrap();
    member.dir.write(member.file(id, "meta.json"), meta.replace("before", "afterwards")).unwrap();
    assert_eq!(store.status(id.as_str()).unwrap(), before);
    member.clock.advance(1);
    let view = status(&store, id);
    assert_eq!((view.description.as_str(), view.summary.as_deref()), ("afterwards", Some("by hand")));
    let details = list(&store, json!({"detail": "detailed"})).jobs.remove(0).details.unwrap();
    assert_eq!((details.description.as_str(), details.summary.as_deref()), ("afterwards", Some("by hand")));
    member.edit(&member.file(id, "questions.md"), "one?\ntwo?");
    assert_eq!(status(&store, id).questions.unwrap(), ["one?", "two?"]);
    member.edit(&member.file(id, "status.md"), "again");
    let details = list(&store, json!({"detail": "detailed"})).jobs.remove(0).details.unwrap();
    assert_eq!(details.summary.as_deref(), Some("again"));
}

#[test]
fn an_edit_that_does_not_parse_keeps_the_old_record() {
    let member = Member::new();
    let store = member.store();
    let job = start(&store, "d");
    job.record_decision(decision(1), None).unwrap();
    job.complete(Some("done")).unwrap();
    let id = job.id();
    let before = status(&store, id);
    let meta = member.read(&member.file(id, "meta.json"));
    for broken in ["{", "", "{\"status\": 3}", &meta.replace("completed\"", "running\"")] {
        member.edit(&member.file(id, "meta.json"), broken);
        assert_eq!(status(&store, id), before, "{broken}");
        assert_eq!(list(&store, json!({})).jobs.len(), 1);
    }
    member.edit(&member.file(id, "meta.json"), &meta);
    member.edit(&member.file(id, "decisions.json"), "[{\"question\":");
    assert_eq!(status(&store, id), before);
}

#[test]
fn memory_wins_over_an_edit_while_the_job_runs() {
    let member = Member::new();
    let store = member.store();
    let job = start(&store, "d");
    job.update_summary("own").unwrap();
    job.log_question("own?").unwrap();
    member.edit(&member.file(job.id(), "status.md"), "by hand");
    member.edit(&member.file(job.id(), "questions.md"), "by hand?");
    member.edit(&member.file(job.id(), "meta.json"), "{}");
    assert_eq!(status(&store, job.id()).summary.as_deref(), Some("own"));
    job.complete(Some("done")).unwrap();
    let view = status(&member.store(), job.id());
    assert_eq!((view.status, view.summary.as_deref()), (JobStatus::Completed, Some("own")));
    assert_eq!(view.questions.unwrap(), ["own?"]);
}

#[test]
fn directories_that_people_put_there_or_take_away_are_noticed() {
    let member = Member::new();
    let store = member.store();
    let eventually = |what: &str, holds: &dyn Fn() -> bool| {
        eventually(what, || {
            member.clock.advance(2);
            holds()
        });
    };
    assert!(listed_ids(&store, json!({})).is_empty());
    let meta = json!({"jobId": "x", "status": "completed", "description": "d", "startedAt": "2026-01-01T00:00:00Z"});
    // Made elsewhere and moved in, as a person would.
    member.dir.create_dir("elsewhere").unwrap();
    member.dir.write("elsewhere/meta.json", meta.to_string()).unwrap();
    member.dir.rename("elsewhere", &member.dir, "jobs/moved").unwrap();
    eventually("a moved directory is listed", &|| listed_ids(&store, json!({})) == ["moved"]);
    // Made in place: the directory is there before its record is.
    member.dir.create_dir("jobs/made").unwrap();
    member.clock.advance(2);
    eventually("an empty directory is left out", &|| listed_ids(&store, json!({})) == ["moved"]);
    member.dir.write("jobs/made/meta.json", meta.to_string()).unwrap();
    eventually("a directory that got its record is listed", &|| {
        member.clock.advance(2);
        listed_ids(&store, json!({})).len() == 2
    });
    assert_eq!(status(&store, &"made".parse().unwrap()).job_id.as_str(), "made");
    // Nothing tells of a record that is repaired; asking for the job does.
    member.dir.create_dir("jobs/repaired").unwrap();
    eventually("a directory without a record is unknown", &|| is_unknown(&store, "repaired"));
    member.dir.write("jobs/repaired/meta.json", meta.to_string()).unwrap();
    eventually("a directory that got its record is known", &|| !is_unknown(&store, "repaired"));
    member.dir.remove_dir_all("jobs/repaired").unwrap();
    eventually("a directory that vanished is unknown", &|| is_unknown(&store, "repaired"));
    member.dir.create_dir("jobs/again").unwrap();
    eventually("a directory without a record has no result", &|| store.result("again").is_err());
    member.dir.write("jobs/again/meta.json", meta.to_string()).unwrap();
    eventually("a directory that got its record has a result", &|| store.result("again").is_ok());
    assert!(store.delete("again").unwrap().deleted);
    member.dir.remove_dir_all("jobs/moved").unwrap();
    eventually("a directory that vanished is not listed", &|| listed_ids(&store, json!({})) == ["made"]);
    member.dir.rename("jobs/made", &member.dir, "elsewhere").unwrap();
    eventually("a directory that was moved away is unknown", &|| is_unknown(&store, "made"));
}

#[test]
fn a_job_whose_directory_is_taken_away_ends_without_a_trace() {
    let member = Member::new();
    let store = member.store();
    let job = start(&store, "d");
    member.dir.rename(format!("jobs/{}", job.id()), &member.dir, "elsewhere").unwrap();
    assert!(matches!(job.log_question("q"), Err(ToolError::Unavailable(_))));
    assert!(matches!(job.complete(Some("x")), Err(StoreError::Unknown(_))));
    assert!(is_unknown(&store, job.id().as_str()));
    assert_eq!(running_count(&store), 0);
    assert!(!member.dir.exists(format!("jobs/{}", job.id())));

    let job = start(&store, "d");
    member.dir.remove_dir_all(format!("jobs/{}", job.id())).unwrap();
    assert!(matches!(store.cancel(job.id().as_str()), Err(StoreError::Unknown(_))));
    assert!(job.cancelled().is_cancelled());
    assert_eq!(running_count(&store), 0);

    member.dir.remove_dir_all("jobs").unwrap();
    let error = store.create(new_job(&store, "d")).err().unwrap().to_string();
    assert!(error.contains("jobs/ was removed"), "{error}");
}

/// As where the disk has room for the record, but not for the result.
#[test]
fn a_result_that_could_not_be_written_is_written_later() {
    let member = Member::new();
    let store = member.store();
    let (submitted, text) = (start(&store, "submitted"), start(&store, "text"));
    submitted.submit_result("the result", None).unwrap();
    for (job, final_text) in [(&submitted, None), (&text, Some("the result"))] {
        member.dir.create_dir_all(member.file(job.id(), "result.md/in-the-way")).unwrap();
        let error = job.complete(final_text).unwrap_err().to_string();
        assert!(error.contains("completed") && error.contains("result.md"), "{error}");
        assert_eq!(status(&store, job.id()).status, JobStatus::Completed);
        assert_eq!(store.result(job.id().as_str()).unwrap().output, "the result");
        assert!(member.read(&member.file(job.id(), "meta.json")).contains("running"), "what is not true yet is stored");
    }
    let clear = |job: &guild_jobs::RunningJob| {
        member.dir.remove_dir_all(member.file(job.id(), "result.md")).unwrap();
        member.clock.advance(2);
    };
    clear(&text);
    assert_eq!(status(&store, text.id()).status, JobStatus::Completed);
    assert_eq!(member.read(&member.file(text.id(), "result.md")), "the result");

    // A host that starts meanwhile cannot write it either, and keeps it too.
    assert!(member.dir.exists(member.file(submitted.id(), "submission.json")));
    let store = member.store();
    assert_eq!(store.load().recovered, [(submitted.id().clone(), JobStatus::Completed)]);
    assert_eq!(store.result(submitted.id().as_str()).unwrap().output, "the result");
    clear(&submitted);
    assert_eq!(store.result(submitted.id().as_str()).unwrap().output, "the result");
    assert_eq!(member.read(&member.file(submitted.id(), "result.md")), "the result");
    assert!(!member.dir.exists(member.file(submitted.id(), "submission.json")));
    assert!(member.store().load().recovered.is_empty());
}

#[test]
fn limits_that_change_make_nothing_unreadable() {
    let mut member = Member::with(Limits { description_bytes: 1 << 20, ..Limits::default() });
    let store = member.store();
    let job = start(&store, &"\u{1}".repeat(1 << 20));
    job.log_question(&"?".repeat(1000)).unwrap();
    job.submit_result(&"r".repeat(100_000), None).unwrap();
    drop(store);
    member.limits = Limits { description_bytes: 10, result_bytes: 10, notes_bytes: 10, ..Limits::default() };
    let store = member.store();
    let view = status(&store, job.id());
    assert_eq!(
        (view.status, view.description.len(), view.questions.unwrap().len()),
        (JobStatus::Completed, 1 << 20, 1)
    );
    assert_eq!(store.result(job.id().as_str()).unwrap().output.len(), 100_000);
}

#[test]
fn an_end_that_could_not_be_stored_is_stored_later() {
    let member = Member::new();
    let store = member.store();
    let job = start(&store, "d");
    // A directory in the place of the record cannot be replaced by a file.
    let meta = member.file(job.id(), "meta.json");
    member.dir.remove_file(&meta).unwrap();
    member.dir.create_dir_all(format!("{meta}/in-the-way")).unwrap();
    let error = store.cancel(job.id().as_str()).unwrap_err().to_string();
    assert!(error.starts_with("could not store that the job is cancelled"), "{error}");
    assert!(job.cancelled().is_cancelled());
    assert_eq!(status(&store, job.id()).status, JobStatus::Cancelled);
    member.dir.remove_dir_all(&meta).unwrap();
    member.clock.advance(2);
    assert_eq!(status(&store, job.id()).status, JobStatus::Cancelled);
    assert_eq!(status(&member.store(), job.id()).status, JobStatus::Cancelled);
}

#[test]
fn prune_removes_what_ended_long_enough_ago() {
    let member = Member::new();
    let store = member.store();
    let (old, failed) = (start(&store, "old"), start(&store, "failed"));
    old.complete(Some("done")).unwrap();
    failed.fail("no").unwrap();
    let running = start(&store, "running");
    member.clock.advance(1000);
    let young = start(&store, "young");
    young.complete(Some("done")).unwrap();
    let all = [JobStatus::Running, JobStatus::Completed, JobStatus::Failed, JobStatus::Cancelled];
    assert!(store.prune(Duration::MAX, &all).removed.is_empty());
    assert_eq!(store.prune(Duration::from_secs(500), &[JobStatus::Completed]).removed, [old.id().clone()]);
    assert_eq!(store.prune(Duration::from_secs(500), &all).removed, [failed.id().clone()]);
    let mut left = [running.id().to_string(), young.id().to_string()];
    left.reverse();
    assert_eq!(listed_ids(&store, json!({})), left);
    assert_eq!(member.dir.read_dir("jobs").unwrap().count(), 2);
}

#[test]
fn retention_removes_what_ended_first_by_age_number_and_size() {
    let member = Member::new();
    let store = member.store();
    let running = start(&store, "running");
    let jobs: Vec<_> = (0..6)
        .map(|n| {
            let job = start(&store, "d");
            match n {
                0 => job.fail("no").unwrap(),
                _ => job.complete(Some(&"x".repeat(10_000))).unwrap(),
            };
            member.clock.advance(1000);
            job.id().clone()
        })
        .collect();
    let keeps = |rule: Retention| {
        let mut removed = store.retain(&rule).removed;
        removed.sort();
        removed
    };
    assert!(keeps(Retention::default()).is_empty());
    assert_eq!(keeps(Retention { age: Some(Duration::from_secs(5500)), ..Retention::default() }), jobs[..1]);
    assert_eq!(keeps(Retention { jobs: Some(4), ..Retention::default() }), jobs[1..2]);
    // Each job has its result and less than as much again besides.
    assert_eq!(keeps(Retention { bytes: Some(30_000), ..Retention::default() }), jobs[2..4]);
    assert_eq!(keeps(Retention { jobs: Some(1), bytes: Some(1), ..Retention::default() }), jobs[4..]);
    assert_eq!(listed_ids(&store, json!({})), [running.id().to_string()]);
}

#[test]
fn many_dispatches_at_once_are_all_there() {
    let member = Member::new();
    let store = member.store();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..5 {
                    start(&store, "d").complete(Some("done")).unwrap();
                }
            });
        }
    });
    assert_eq!((listed_ids(&store, json!({})).len(), running_count(&store)), (80, 0));
    let report = member.store().load();
    assert_eq!((report.jobs, report.recovered.len(), report.unreadable.len()), (80, 0, 0));
}

#[test]
fn a_clock_before_1970_or_at_its_end_makes_jobs_like_any_other() {
    for now in ["-000001-06-01T00:00:00Z", "1969-12-31T23:59:59.9Z", "1970-01-01T00:00:00Z", "9999-12-30T22:00:00Z"] {
        let member = Member::new();
        member.clock.set(now);
        let store = member.store();
        let (first, second) = (start(&store, "first"), start(&store, "second"));
        assert!(first.id().as_str() < second.id().as_str(), "ids are in the order in which they were made");
        first.submit_result("done", None).unwrap();
        assert_eq!(listed_ids(&store, json!({})).len(), 2, "{now}");
        store.cancel(second.id().as_str()).unwrap();
        assert_eq!(status(&store, second.id()).status, JobStatus::Cancelled, "{now}");
        drop(store);
        assert_eq!(listed_ids(&member.store(), json!({})).len(), 2, "{now}");
    }
}

#[test]
fn attachments_survive_a_sweep_before_their_job_is_made_and_go_with_a_refused_dispatch() {
    let member = Member::new();
    let store = member.store();
    let file = AttachedBytes { path: "a/b.txt".to_owned(), bytes: b"x".to_vec() };
    let mut new = new_job(&store, "d");
    new.attachments = Some(store.stage(&new.id, std::slice::from_ref(&file)).unwrap());
    // It removes what interrupted creations left.
    store.prune(Duration::ZERO, &JobStatus::ENDED);
    let id = new.id.clone();
    store.create(new).unwrap();
    assert_eq!(member.read(&member.file(&id, "attachments/a/b.txt")), "x");
    drop(store.stage(&store.new_id(), &[file]).unwrap());
    assert_eq!(member.dir.read_dir("jobs").unwrap().count(), 1);
}
