//! The events of a store: all changes, in the order of each job, and only after they are stored.
#![allow(clippy::unwrap_used, reason = "a test helper fails its test")]

mod common;

use std::{
    sync::{Arc, Mutex},
    thread,
};

use common::{Member, start};
use guild_contract::{EventDetail, JobId, JobStatus, job::event::Kind};
use guild_jobs::{
    JobStore, StoreOptions,
    events::{JobEvent, Subscriber},
};
use serde_json::json;

/// The events, in the order of their arrival.
#[derive(Default)]
struct Events(Mutex<Vec<JobEvent>>);

impl Subscriber for Events {
    fn receive(&self, event: JobEvent) {
        self.0.lock().unwrap().push(event);
    }
}

impl Events {
    /// The events of a job.
    fn of(&self, job: &JobId) -> Vec<EventDetail> {
        self.0.lock().unwrap().iter().filter(|event| &event.job == job).map(|event| event.detail.clone()).collect()
    }

    fn kinds_of(&self, job: &JobId) -> Vec<Kind> {
        self.of(job).iter().map(EventDetail::kind).collect()
    }
}

/// A store with a subscriber from before its load on.
fn store_with_events(member: &Member) -> (Arc<JobStore>, Arc<Events>) {
    let options = StoreOptions { limits: Arc::new(member.limits.clone()), clock: member.clock.clone() };
    let (store, events) = (JobStore::open(&member.dir, options).unwrap(), Arc::new(Events::default()));
    store.set_subscriber(events.clone());
    store.load();
    (store, events)
}

#[test]
fn each_change_of_a_job_is_an_event_and_nothing_else_is() {
    let member = Member::new();
    let (store, events) = store_with_events(&member);
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
    let ended = |status| EventDetail::JobEnded { status, error: Some("why".into()) };
    assert_eq!(
        events.of(job.id()),
        [
            EventDetail::JobStarted { description: "d".into() },
            EventDetail::JobSummary { summary: Some("reading".into()) },
            EventDetail::JobSummary { summary: None },
            EventDetail::JobQuestion { question: "who?".into() },
            ended(JobStatus::Failed),
            ended(JobStatus::Cancelled),
            EventDetail::JobDeleted,
        ]
    );
}

#[test]
fn a_job_whose_directory_is_removed_has_ended_and_is_gone() {
    let member = Member::new();
    let (store, events) = store_with_events(&member);
    let (running, ended) = (start(&store, "d"), start(&store, "d"));
    ended.fail("why").unwrap();
    for job in [&running, &ended] {
        std::fs::remove_dir_all(member.path(&format!("jobs/{}", job.id()))).unwrap();
    }
    running.fail("why").unwrap_err();
    store.cancel(ended.id().as_str()).unwrap_err();
    for job in [running, ended] {
        assert_eq!(events.kinds_of(job.id()), [Kind::JobStarted, Kind::JobEnded, Kind::JobDeleted]);
    }
}

#[test]
fn the_end_of_an_interrupted_job_is_an_event_and_a_job_that_had_ended_has_none() {
    let member = Member::new();
    let meta = |status: &str| json!({"jobId": "x", "status": status, "description": "d", "startedAt": "2026-02-17T10:00:00.000Z"});
    let (left, done) = (member.plant("left", &meta("running")), member.plant("done", &meta("completed")));
    let (store, events) = store_with_events(&member);
    assert_eq!(events.kinds_of(&left), [Kind::JobEnded]);
    assert!(events.of(&done).is_empty());
    assert!(store.running("left").is_none());
}

#[test]
fn a_deletion_during_the_end_of_a_job_is_its_last_event() {
    let member = Member::new();
    let (store, events) = store_with_events(&member);
    for _ in 0..20 {
        let job = start(&store, "d");
        thread::scope(|scope| {
            scope.spawn(|| job.complete(Some("done")).unwrap());
            scope.spawn(|| while store.delete(job.id().as_str()).is_err() {});
        });
        assert_eq!(events.kinds_of(job.id()), [Kind::JobStarted, Kind::JobEnded, Kind::JobDeleted]);
    }
}
