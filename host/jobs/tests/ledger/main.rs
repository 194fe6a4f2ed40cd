//! Jobs that several hosts serve: stores that share a ledger answer as one.
#![allow(clippy::unwrap_used, reason = "a test helper fails its test")]

#[path = "../common/mod.rs"]
mod common;
mod log;

use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use common::{Member, is_unknown, listed_ids, new_job, start, status};
use guild_contract::{
    Decision, DispatchKey, EventDetail, JobId, JobStatus, JobUsage, Resumption, Usage, rpc::LogParams,
};
use guild_jobs::{
    AttachedBytes, JobStore, JobTools, Keyed, NewJob, Resume, RunningJob, Sealed, StoreError, StoreOptions,
};
use guild_session::{
    tools::{ToolCall, Tools},
    transcript::{Entry, Journal},
};
use log::Logs;
use serde_json::json;

/// A host of the cluster, with a directory of its own.
struct Host {
    name: &'static str,
    member: Member,
    store: Arc<JobStore>,
    logs: Arc<Logs>,
    resumed: Arc<Resumed>,
}

impl Host {
    fn join(logs: &Arc<Logs>, name: &'static str) -> Self {
        let member = Member::new();
        let options = StoreOptions { limits: Arc::new(member.limits.clone()), clock: member.clock.clone() };
        let store = JobStore::open_shared(&member.dir, options, logs.of(name)).unwrap();
        let resumed = Arc::new(Resumed::default());
        store.set_resume(resumed.clone());
        store.load();
        logs.join(name, &store);
        Self { name, member, store, logs: logs.clone(), resumed }
    }

    /// Learns of all that was stored.
    fn listens(&self) -> &Self {
        while self.logs.tell(self.name) {}
        self
    }

    fn start(&self, description: &str) -> Arc<RunningJob> {
        start(&self.store, description)
    }

    fn status(&self, id: &JobId) -> JobStatus {
        status(&self.store, id).status
    }

    /// Takes a job that waits, or whose host is dead, and carries it out.
    fn takes(&self, id: &JobId) -> Result<(), StoreError> {
        self.store.adopt(id, self.logs.take(self.name, id))
    }

    /// The job that it resumed last.
    fn resumed(&self) -> Arc<RunningJob> {
        self.resumed.jobs.lock().unwrap().last().unwrap().clone()
    }

    /// Whether it has a copy of a job's files.
    fn has_copy(&self, id: &JobId) -> bool {
        self.member.path(&format!(".jobs/{id}")).exists()
    }
}

#[derive(Default)]
struct Resumed {
    jobs: Mutex<Vec<Arc<RunningJob>>>,
    /// Whether jobs wait until they are resumed.
    waits: AtomicBool,
}

impl Resume for Resumed {
    fn check(&self, _: &JobId, _: &Sealed, _: &[Entry]) -> Result<(), String> {
        Ok(())
    }

    fn resume(&self, job: Arc<RunningJob>) {
        if job.was_interrupted() && !self.waits.load(Ordering::Relaxed) {
            job.begin_resumed(Resumption::Together).unwrap();
        }
        self.jobs.lock().unwrap().push(job);
    }
}

fn two_hosts() -> (Arc<Logs>, Host, Host) {
    let logs = Arc::new(Logs::default());
    let (a, b) = (Host::join(&logs, "a"), Host::join(&logs, "b"));
    (logs, a, b)
}

/// Waits until all that a job did is stored.
fn settle(job: &RunningJob) {
    futures::executor::block_on(job.settled()).unwrap();
}

fn message(text: &str) -> Entry {
    Entry::Message { session: 1, text: text.to_owned() }
}

#[test]
fn a_job_is_the_same_at_both_hosts_while_it_runs() {
    let (_, a, b) = two_hosts();
    let id = a.store.new_id();
    let file = AttachedBytes { path: "data/in.csv".into(), bytes: b"1,2".into() };
    let attachments = Some(a.store.stage(&id, &[file]).unwrap());
    let job = a.store.create(NewJob { id: id.clone(), attachments, ..new_job(&a.store, "look") }).unwrap();
    job.update_summary("half-way").unwrap();
    job.log_question("who?").unwrap();
    let decision = Decision { question: "q".into(), decision: "d".into(), reasoning: "r".into() };
    job.record_decision(decision, None).unwrap();
    job.write_artifact("t/a.csv", b"3").unwrap();
    job.transcript(&message("first"));
    settle(&job);
    b.listens();
    let detailed = json!({"detail": "detailed"});
    assert_eq!(common::list(&a.store, detailed.clone()), common::list(&b.store, detailed));
    assert_eq!(status(&b.store, &id), status(&a.store, &id));
    assert_eq!(status(&b.store, &id).questions.unwrap(), ["who?"]);
    assert_eq!(b.store.transcript(&id).unwrap(), a.store.transcript(&id).unwrap());
    let log = LogParams { job_id: id.to_string(), after: None };
    assert_eq!(b.store.log(&log).unwrap(), a.store.log(&log).unwrap());
    assert_eq!(b.store.log(&log).unwrap().transcript.len(), 1);
    assert_eq!(b.store.artifact(id.as_str(), "t/a.csv", 10).unwrap(), b"3");
    assert_eq!(b.store.task(id.as_str()).unwrap(), a.store.task(id.as_str()).unwrap());
    assert_eq!(b.store.attached(id.as_str()).unwrap().1.first().unwrap().bytes, b"1,2");
    assert!(b.store.running(id.as_str()).is_none(), "one host carries it out");
    // A change is seen once it is told.
    job.log_question("when?").unwrap();
    job.transcript(&message("second"));
    settle(&job);
    b.listens();
    assert_eq!(status(&b.store, &id).questions.unwrap(), ["who?", "when?"]);
    assert_eq!(b.store.transcript(&id).unwrap().len(), 2);
}

#[test]
fn a_result_is_the_same_at_both_hosts_with_files_that_a_component_wrote_itself() {
    let (_, a, b) = two_hosts();
    let job = a.start("d");
    job.write_artifact("tool.csv", b"1").unwrap();
    job.dir().unwrap().write("artifacts/own.csv", "2").unwrap();
    job.submit_result("the result", None).unwrap();
    assert_eq!(job.complete(None).unwrap(), JobStatus::Completed);
    let result = a.store.result(job.id().as_str()).unwrap();
    assert_eq!(result.artifacts.as_ref().unwrap(), &["artifacts/own.csv", "artifacts/tool.csv"]);
    for host in [&a, &b] {
        host.listens();
        assert_eq!(host.store.result(job.id().as_str()).unwrap(), result);
        assert_eq!(host.store.artifact(job.id().as_str(), "own.csv", 10).unwrap(), b"2");
        assert_eq!(status(&host.store, job.id()), status(&a.store, job.id()));
        let log = LogParams { job_id: job.id().to_string(), after: None };
        assert_eq!(host.store.log(&log).unwrap().status, JobStatus::Completed);
    }
}

#[test]
fn a_cancel_at_another_host_is_final_and_an_end_that_comes_later_stores_nothing() {
    let (logs, a, b) = two_hosts();
    let job = a.start("d");
    let id = job.id().clone();
    let usage = Usage { cost_usd: Some(1.0), ..Usage::default() };
    let used = JobUsage { agent: "extractive".into(), models: vec![], usage, wall_seconds: 1.0, queued: false };
    job.set_usage(used, false);
    settle(&job);
    b.listens();
    assert_eq!(b.store.cancel(id.as_str()).unwrap().status, JobStatus::Cancelled);
    assert_eq!(b.status(&id), JobStatus::Cancelled, "a request that follows sees it");
    let used = status(&b.store, &id).usage.unwrap().usage;
    assert_eq!((used.cost_usd, used.known_cost_usd), (None, Some(1.0)), "a request may be under way");
    let stored = logs.file(&id, "meta.json");
    // Nobody has told the first host yet.
    job.submit_result("too late", None).unwrap();
    assert!(matches!(job.complete(None), Err(StoreError::Lost)));
    assert!(matches!(job.complete(None), Err(StoreError::Lost)));
    assert!(job.cancelled().is_cancelled() && job.is_over());
    assert_eq!((logs.file(&id, "result.md"), logs.file(&id, "meta.json")), (None, stored));
    assert!(!a.has_copy(&id), "its files here are gone");
    assert_eq!(a.status(&id), JobStatus::Cancelled, "the ledger was asked");
    a.listens();
    assert_eq!(status(&a.store, &id), status(&b.store, &id));
    assert_eq!(a.store.cancel(id.as_str()).unwrap().status, JobStatus::Cancelled);
    let ends = |event: &&guild_jobs::events::JobEvent| matches!(event.detail, EventDetail::JobEnded { .. });
    assert_eq!(logs.events.lock().unwrap().iter().filter(ends).count(), 1);
}

#[test]
fn the_first_end_counts_against_a_cancel_too() {
    let (_, a, b) = two_hosts();
    let job = a.start("d");
    b.listens();
    job.complete(Some("done")).unwrap();
    assert_eq!(b.store.cancel(job.id().as_str()).unwrap().status, JobStatus::Completed);
    assert_eq!(b.listens().store.result(job.id().as_str()).unwrap().output, "done");
}

#[test]
fn a_job_that_was_ended_elsewhere_stops_when_its_host_hears_of_it() {
    let (_, a, b) = two_hosts();
    let job = a.start("d");
    b.listens().store.cancel(job.id().as_str()).unwrap();
    a.listens();
    assert!(job.cancelled().is_cancelled());
    assert_eq!(a.status(job.id()), JobStatus::Cancelled);
    assert!(job.log_question("q").is_err());
}

#[test]
fn a_failed_job_is_cancelled_and_deleted_at_another_host_with_its_whole_error() {
    let (logs, a, b) = two_hosts();
    let (job, error) = (a.start("d"), "e".repeat(5000));
    job.fail(&error).unwrap();
    let id = job.id().as_str();
    assert!(matches!(b.listens().store.delete(id), Err(StoreError::Refused(_))));
    assert_eq!(b.store.cancel(id).unwrap().status, JobStatus::Cancelled);
    for host in [&a, &b] {
        host.listens();
        let view = status(&host.store, job.id());
        assert_eq!((view.status, view.error.as_deref()), (JobStatus::Cancelled, Some(&*error)));
    }
    assert!(b.store.delete(id).unwrap().deleted);
    assert!(matches!(a.store.cancel(id), Err(StoreError::Unknown(_))), "it has not heard of it yet");
    for host in [&a, &b] {
        host.listens();
        assert!(is_unknown(&host.store, id) && !host.has_copy(job.id()));
        assert!(listed_ids(&host.store, json!({})).is_empty());
    }
    let deleted = |event: &&guild_jobs::events::JobEvent| event.detail == EventDetail::JobDeleted;
    assert_eq!(logs.events.lock().unwrap().iter().filter(deleted).count(), 1);
}

#[test]
fn old_jobs_of_all_hosts_are_removed_by_one() {
    let (_, a, b) = two_hosts();
    let jobs = [a.start("1"), b.start("2"), a.start("3")];
    jobs.iter().take(2).for_each(|job| assert_eq!(job.complete(Some("done")).unwrap(), JobStatus::Completed));
    a.listens();
    a.member.clock.advance(100);
    let report = a.store.prune(std::time::Duration::from_secs(50), &[JobStatus::Completed]);
    assert_eq!((report.removed.len(), report.failed.len()), (2, 0));
    for host in [&a, &b] {
        host.listens();
        assert_eq!(listed_ids(&host.store, json!({})), [jobs.last().unwrap().id().to_string()]);
    }
}

#[test]
fn a_job_of_a_dead_host_goes_on_at_another_from_what_was_stored() {
    let (logs, a, b) = two_hosts();
    let job = a.start("d");
    let id = job.id().clone();
    job.transcript(&message("stored"));
    job.log_question("who?").unwrap();
    settle(&job);
    job.transcript(&message("not stored"));
    b.listens().takes(&id).unwrap();
    let resumed = b.resumed();
    assert_eq!(resumed.history().unwrap().len(), 1);
    assert_eq!(logs.holder(&id), Some("b"));
    // The first host was only paused.
    assert!(matches!(job.complete(Some("of a")), Err(StoreError::Lost)));
    a.listens();
    assert_eq!((a.status(&id), a.has_copy(&id)), (JobStatus::Running, false));
    assert!(logs.file(&id, "meta.json").unwrap().contains("\"resumes\": 1"));
    resumed.complete(Some("of b")).unwrap();
    assert_eq!(a.listens().store.result(id.as_str()).unwrap().output, "of b");
    assert_eq!(status(&a.store, &id).questions.unwrap(), ["who?"]);
}

#[test]
fn a_job_that_had_submitted_its_result_completes_where_it_is_taken() {
    let (logs, a, b) = two_hosts();
    let job = a.start("d");
    job.submit_result("submitted", None).unwrap();
    settle(&job);
    b.listens().takes(job.id()).unwrap();
    assert_eq!(b.status(job.id()), JobStatus::Completed);
    assert_eq!(logs.file(job.id(), "submission.json"), None);
    for host in [&a, &b] {
        assert_eq!(host.listens().store.result(job.id().as_str()).unwrap().output, "submitted");
    }
}

#[test]
fn a_released_job_waits_for_a_host_with_all_that_it_did() {
    let (logs, a, b) = two_hosts();
    let job = a.start("d");
    let id = job.id().clone();
    job.write_artifact("a.csv", b"1").unwrap();
    a.store.release(&id, "no free session").unwrap();
    assert!(job.cancelled().is_cancelled() && !a.has_copy(&id));
    assert_eq!((a.status(&id), logs.holder(&id)), (JobStatus::Running, None));
    assert!(a.store.release(&id, "twice").is_err());
    b.listens().takes(&id).unwrap();
    b.resumed().complete(Some("done")).unwrap();
    let result = a.listens().store.result(id.as_str()).unwrap();
    assert_eq!((result.output.as_str(), result.artifacts.unwrap()), ("done", vec!["artifacts/a.csv".to_owned()]));
}

#[test]
fn a_job_whose_end_is_told_while_a_host_copies_it_is_copied_once() {
    let (logs, a, b) = two_hosts();
    let id = a.start("look").id().clone();
    a.store.cancel(id.as_str()).unwrap();
    // This host asks the ledger for the job before it is told of it.
    let told = logs.clone();
    *logs.at_fetch.lock().unwrap() = Some(Box::new(move |_| while told.tell("b") {}));
    assert_eq!(b.status(&id), JobStatus::Cancelled);
    assert!(logs.at_fetch.lock().unwrap().is_none());
    assert_eq!(b.status(&id), JobStatus::Cancelled);
    assert!(b.has_copy(&id));
    assert!(!b.member.path(&format!(".jobs/.del-{id}")).exists());
}

#[test]
fn a_job_that_ends_while_a_host_takes_it_is_not_carried_out() {
    let (logs, a, b) = two_hosts();
    let id = a.start("d").id().clone();
    b.listens();
    let taken = logs.take("b", &id);
    a.store.cancel(id.as_str()).ok();
    a.listens().store.cancel(id.as_str()).unwrap();
    b.listens();
    assert!(matches!(b.store.adopt(&id, taken), Err(StoreError::Lost)));
    assert!(!b.has_copy(&id));
    assert_eq!((b.status(&id), b.resumed.jobs.lock().unwrap().len()), (JobStatus::Cancelled, 0));
}

#[test]
fn a_job_that_is_cancelled_elsewhere_before_its_dispatch_is_answered_stops_here() {
    let (logs, a, b) = two_hosts();
    let (store, told) = (b.store.clone(), logs.clone());
    *logs.at_birth.lock().unwrap() = Some(Box::new(move |id| {
        store.cancel(id.as_str()).unwrap();
        while told.tell("a") {}
    }));
    let job = a.start("d");
    assert!(job.cancelled().is_cancelled());
    assert_eq!(a.status(job.id()), JobStatus::Cancelled);
}

#[test]
fn a_job_that_hosts_give_back_again_and_again_counts_as_interrupted_once() {
    let (logs, a, b) = two_hosts();
    let id = a.start("d").id().clone();
    let meta = || logs.file(&id, "meta.json").unwrap();
    // Its host is dead.
    b.listens().takes(&id).unwrap();
    settle(&b.resumed());
    assert!(b.resumed().was_interrupted() && meta().contains("\"together\""), "{}", meta());
    for _ in 0..b.member.limits.resumes {
        for (from, to) in [(&b, &a), (&a, &b)] {
            from.store.release(&id, "the host stops").unwrap();
            assert!(!meta().contains("resumption"), "{}", meta());
            to.listens().takes(&id).unwrap();
            assert!(!to.resumed().was_interrupted());
        }
    }
    assert!(meta().contains("\"resumes\": 1"), "{}", meta());
    b.resumed().complete(Some("done")).unwrap();
    assert_eq!(a.listens().status(&id), JobStatus::Completed);
}

#[test]
fn a_job_that_is_given_back_before_it_is_resumed_keeps_the_mark_of_the_host_before() {
    let (logs, a, b) = two_hosts();
    let id = a.start("d").id().clone();
    let is_marked = || logs.file(&id, "meta.json").unwrap().contains("\"together\"");
    b.listens().takes(&id).unwrap();
    settle(&b.resumed());
    assert!(is_marked());
    // That host is dead, too, and the next one stops before it is the job's turn.
    a.resumed.waits.store(true, Ordering::Relaxed);
    a.listens().takes(&id).unwrap();
    a.store.release(&id, "the host stops").unwrap();
    assert!(is_marked());
    b.listens().takes(&id).unwrap();
    assert!(b.resumed().was_interrupted());
}

#[test]
fn a_job_ends_though_its_copy_here_cannot_be_written() {
    let (_, a, b) = two_hosts();
    let job = a.start("d");
    let record = a.member.path(&format!(".jobs/{}/meta.json", job.id()));
    fs::remove_file(&record).unwrap();
    fs::create_dir_all(record.join("in the way")).unwrap();
    assert_eq!(job.complete(Some("done")).unwrap(), JobStatus::Completed);
    for host in [&a, &b] {
        assert_eq!(host.listens().status(job.id()), JobStatus::Completed);
        assert_eq!(host.store.result(job.id().as_str()).unwrap().output, "done");
    }
}

#[tokio::test]
async fn those_who_follow_a_job_follow_it_from_host_to_host() {
    let (_, a, b) = two_hosts();
    let job = a.start("d");
    let id = job.id().clone();
    b.listens();
    let (mut at_a, mut at_b) = (a.store.follow(id.as_str()).unwrap(), b.store.follow(id.as_str()).unwrap());
    job.update_summary("one").unwrap();
    job.settled().await.unwrap();
    assert!(at_a.changed().await);
    b.listens();
    assert!(at_b.changed().await);
    assert_eq!(at_b.snapshot().summary.as_deref(), Some("one"));
    b.takes(&id).unwrap();
    a.listens();
    assert!(at_a.changed().await, "the job runs elsewhere");
    b.resumed().complete(Some("done")).unwrap();
    a.listens();
    at_a.ended().await;
    at_b.ended().await;
    assert!(a.store.follow(id.as_str()).is_none());
}

#[test]
fn news_that_comes_late_brings_nothing_back() {
    let (logs, a, b) = two_hosts();
    let (job, other) = (a.start("1"), a.start("2"));
    b.listens();
    for job in [&job, &other] {
        job.update_summary("one").unwrap();
        settle(job);
        job.update_summary("two").unwrap();
        settle(job);
    }
    job.complete(Some("done")).unwrap();
    assert_eq!(b.store.cancel(other.id().as_str()).unwrap().status, JobStatus::Cancelled);
    assert!(b.store.delete(job.id().as_str()).unwrap().deleted);
    loop {
        assert_eq!(b.status(other.id()), JobStatus::Cancelled);
        assert!(is_unknown(&b.store, job.id().as_str()));
        assert_eq!(listed_ids(&b.store, json!({})), [other.id().to_string()]);
        if a.store.look_up(job.id().as_str()).is_some() {
            assert_eq!(a.status(job.id()), JobStatus::Completed);
        }
        let (a, b) = (logs.tell("a"), logs.tell("b"));
        if !a && !b {
            break;
        }
    }
    assert_eq!(a.status(other.id()), JobStatus::Cancelled);
    assert!(is_unknown(&a.store, job.id().as_str()));
}

#[test]
fn a_job_is_found_before_the_ledger_has_told_of_it() {
    let (_, a, b) = two_hosts();
    let job = a.start("d");
    assert_eq!(b.status(job.id()), JobStatus::Running);
    assert!(is_unknown(&b.store, "018f0000-0000-7000-8000-000000000000"));
}

#[test]
fn a_job_is_unknown_before_the_ledger_has_told_of_its_deletion() {
    let (_, a, b) = two_hosts();
    let job = a.start("d");
    b.listens();
    job.complete(Some("done")).unwrap();
    assert!(a.store.delete(job.id().as_str()).unwrap().deleted);
    assert!(is_unknown(&b.store, job.id().as_str()));
    assert!(listed_ids(&b.listens().store, json!({})).is_empty());
}

#[test]
fn the_key_of_a_dispatch_is_known_at_both_hosts() {
    let (_, a, b) = two_hosts();
    let key = DispatchKey { key: "retry".into(), params: "p".into() };
    let job = a.store.create(NewJob { key: Some(key.clone()), ..new_job(&a.store, "d") }).unwrap();
    assert!(matches!(b.listens().store.claim_key(None, &key), Ok(Keyed::Repeated(id)) if id == *job.id()));
}

#[test]
fn no_job_begins_while_the_ledger_is_away() {
    let (logs, a, b) = two_hosts();
    logs.is_away.store(true, Ordering::Relaxed);
    let new = new_job(&a.store, "d");
    let id = new.id.clone();
    let refused = a.store.create(new).err().unwrap();
    assert!(matches!(&refused, StoreError::Unavailable(why) if why == "the logs cannot be reached"), "{refused}");
    assert!(!a.has_copy(&id));
    logs.is_away.store(false, Ordering::Relaxed);
    assert!(is_unknown(&a.store, id.as_str()) && is_unknown(&b.store, id.as_str()));
    assert!(a.store.create(NewJob { id, ..new_job(&a.store, "d") }).is_ok(), "the same id can be tried again");
}

#[test]
fn the_last_picture_of_a_job_is_shown_while_the_ledger_is_away() {
    let (logs, a, b) = two_hosts();
    let job = a.start("d");
    job.update_summary("half-way").unwrap();
    settle(&job);
    b.listens();
    let untold = a.start("of which the other host has not heard");
    logs.is_away.store(true, Ordering::Relaxed);
    assert!(matches!(b.store.status(untold.id().as_str()), Err(StoreError::Unavailable(_))));
    assert_eq!(status(&b.store, job.id()).summary.as_deref(), Some("half-way"));
    assert!(matches!(b.store.cancel(job.id().as_str()), Err(StoreError::Unavailable(_))));
    assert!(matches!(b.store.transcript(job.id()), Err(StoreError::Unavailable(_))));
}

#[test]
fn a_host_that_takes_a_job_again_stops_the_work_that_it_lost_unnoticed() {
    let (_, a, b) = two_hosts();
    let job = a.start("d");
    let id = job.id().clone();
    b.listens().takes(&id).unwrap();
    a.takes(&id).unwrap();
    assert!(job.cancelled().is_cancelled() && !a.resumed().cancelled().is_cancelled());
    assert!(matches!(b.resumed().complete(Some("of b")), Err(StoreError::Lost)));
    a.listens();
    a.resumed().complete(Some("of a")).unwrap();
    assert_eq!(b.listens().store.result(id.as_str()).unwrap().output, "of a");
}

#[tokio::test]
async fn a_report_is_answered_once_it_is_stored() {
    let (logs, a, _) = two_hosts();
    let job = a.start("d");
    let tools = JobTools::new(job.clone(), a.member.memory());
    let call = async |name: &str, input| {
        let call = ToolCall { id: name.to_owned(), name: name.to_owned(), input };
        tools.call(call).await.unwrap();
    };
    call("log_question", json!({"question": "who?"})).await;
    assert_eq!(logs.file(job.id(), "questions.md").unwrap(), "who?\n");
    call("submit_result", json!({"output": "the result"})).await;
    assert!(logs.file(job.id(), "submission.json").unwrap().contains("the result"));
    // A summary is replaced soon, so nobody waits for it.
    call("update_summary", json!({"summary": "half-way"})).await;
    assert_eq!(logs.file(job.id(), "status.md").unwrap(), "");
    assert_eq!(logs.settled.load(Ordering::Relaxed), 2);
    let journal: &dyn Journal = &*job;
    journal.settled().await.unwrap();
    assert_eq!(logs.file(job.id(), "status.md").unwrap(), "half-way");
}

#[test]
fn a_directory_s_own_jobs_and_those_of_a_ledger_are_apart() {
    let member = Member::new();
    let own = start(&member.store(), "own");
    own.complete(Some("done")).unwrap();
    let options = StoreOptions { limits: Arc::new(member.limits.clone()), clock: member.clock.clone() };
    let logs = Arc::new(Logs::default());
    let shared = JobStore::open_shared(&member.dir, options, logs.of("a")).unwrap();
    shared.load();
    assert!(listed_ids(&shared, json!({})).is_empty());
    assert_eq!(listed_ids(&member.store(), json!({})), [own.id().to_string()]);
}
