//! What a store tells of its jobs: everything, in the order of each job, and only what is stored.
#![allow(clippy::unwrap_used, reason = "a test helper fails its test")]

mod common;

use std::{
    sync::{Arc, Mutex},
    thread,
};

use common::{Member, start};
use guild_contract::{JobId, JobStatus, News, event::Kind};
use guild_jobs::{
    JobStore, StoreOptions,
    events::{JobEvent, Subscriber},
};
use serde_json::json;

/// What was told, as it came.
#[derive(Default)]
struct Told(Mutex<Vec<JobEvent>>);

impl Subscriber for Told {
    fn receive(&self, event: JobEvent) {
        self.0.lock().unwrap().push(event);
    }
}

impl Told {
    /// What was told of a job.
    fn of(&self, job: &JobId) -> Vec<News> {
        self.0.lock().unwrap().iter().filter(|event| &event.job == job).map(|event| event.news.clone()).collect()
    }

    fn kinds_of(&self, job: &JobId) -> Vec<Kind> {
        self.of(job).iter().map(News::kind).collect()
    }
}

/// A store that tells, before anything of it is read.
fn telling(member: &Member) -> (Arc<JobStore>, Arc<Told>) {
    let options = StoreOptions { limits: Arc::new(member.limits.clone()), clock: member.clock.clone() };
    let (store, told) = (JobStore::open(&member.dir, options).unwrap(), Arc::new(Told::default()));
    store.set_subscriber(told.clone());
    store.load();
    (store, told)
}

#[test]
fn a_job_s_life_is_told_and_what_changes_nothing_is_not() {
    let member = Member::new();
    let (store, told) = telling(&member);
    let job = start(&store, "d");
    job.update_summary("reading").unwrap();
    job.update_summary(" ").unwrap();
    job.log_question("who?").unwrap();
    job.log_question("who?").unwrap();
    job.update_summary(&"x".repeat(member.limits.summary_bytes as usize + 1)).unwrap_err();
    job.fail("why").unwrap();
    job.fail("again").unwrap();
    job.log_question("too late?").unwrap_err();
    store.cancel(job.id().as_str()).unwrap();
    store.cancel(job.id().as_str()).unwrap();
    store.delete(job.id().as_str()).unwrap();
    let ended = |status| News::JobEnded { status, error: Some("why".into()) };
    assert_eq!(
        told.of(job.id()),
        [
            News::JobStarted { description: "d".into() },
            News::JobSummary { summary: Some("reading".into()) },
            News::JobSummary { summary: None },
            News::JobQuestion { question: "who?".into() },
            ended(JobStatus::Failed),
            ended(JobStatus::Cancelled),
            News::JobDeleted,
        ]
    );
}

#[test]
fn a_job_whose_directory_is_removed_has_ended_and_is_gone() {
    let member = Member::new();
    let (store, told) = telling(&member);
    let (running, ended) = (start(&store, "d"), start(&store, "d"));
    ended.fail("why").unwrap();
    for job in [&running, &ended] {
        std::fs::remove_dir_all(member.path(&format!("jobs/{}", job.id()))).unwrap();
    }
    running.fail("why").unwrap_err();
    store.cancel(ended.id().as_str()).unwrap_err();
    for job in [running, ended] {
        assert_eq!(told.kinds_of(job.id()), [Kind::JobStarted, Kind::JobEnded, Kind::JobDeleted]);
    }
}

#[test]
fn what_became_of_a_job_that_a_host_left_running_is_told_and_of_one_that_had_ended_nothing() {
    let member = Member::new();
    let meta = |status: &str| json!({"jobId": "x", "status": status, "description": "d", "startedAt": "2026-02-17T10:00:00.000Z"});
    let (left, done) = (member.plant("left", &meta("running")), member.plant("done", &meta("completed")));
    let (store, told) = telling(&member);
    assert_eq!(told.kinds_of(&left), [Kind::JobEnded]);
    assert!(told.of(&done).is_empty());
    assert!(store.running("left").is_none());
}

#[test]
fn whoever_deletes_a_job_as_it_ends_is_told_of_last() {
    let member = Member::new();
    let (store, told) = telling(&member);
    for _ in 0..20 {
        let job = start(&store, "d");
        thread::scope(|scope| {
            scope.spawn(|| job.complete(Some("done")).unwrap());
            scope.spawn(|| while store.delete(job.id().as_str()).is_err() {});
        });
        assert_eq!(told.kinds_of(job.id()), [Kind::JobStarted, Kind::JobEnded, Kind::JobDeleted]);
    }
}
