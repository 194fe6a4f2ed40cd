//! Stores of two hosts whose jobs are on one real server.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;
#[path = "../../jobs/tests/common/mod.rs"]
mod member;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Duration,
};

use common::{connect, host, job as named, join, single};
use guild_cluster::{
    claims::Queue,
    ledger::MemberJobs,
    link::Link,
    log::{JobName, Logs, Take},
    record::{Needs, Owner},
    rules::{Holder, Standing},
    watch::Jobs,
};
use guild_contract::{EventDetail, JobId, JobStatus, Resumption};
use guild_fakes::Nats;
use guild_jobs::{JobStore, Resume, RunningJob, Sealed, StoreError, StoreOptions, events::JobEvent};
use guild_session::transcript::Entry;
use member::{Member, eventually, is_unknown, start, status};
use tokio::{runtime::Runtime, sync::oneshot::Sender};

/// A host with a directory of its own, and a connection of its own.
struct Host {
    store: Arc<JobStore>,
    jobs: MemberJobs,
    logs: Logs,
    queue: Arc<Queue>,
    events: Arc<Mutex<Vec<JobEvent>>>,
    resumed: Arc<Resumed>,
    /// Ends the thread that follows the logs, and the thread.
    follows: Option<(Sender<()>, JoinHandle<()>)>,
    runtime: Arc<Runtime>,
    _member: Member,
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some((leave, follower)) = self.follows.take() {
            drop(leave);
            let _ = follower.join();
        }
    }
}

#[derive(Default)]
struct Resumed(Mutex<Vec<Arc<RunningJob>>>);

impl Resume for Resumed {
    fn check(&self, _: &JobId, _: &Sealed, _: &[Entry]) -> Result<(), String> {
        Ok(())
    }

    fn resume(&self, job: Arc<RunningJob>) {
        job.begin_resumed(Resumption::Together).unwrap();
        self.0.lock().unwrap().push(job);
    }
}

fn name(id: &JobId) -> JobName {
    JobName { job: id.clone(), ..named("any") }
}

impl Host {
    fn join(runtime: &Arc<Runtime>, nats: &Nats, host_name: &str) -> Self {
        let link = runtime.block_on(connect(nats, host_name));
        Self::with(runtime, host(&link, host_name), link)
    }

    fn with(runtime: &Arc<Runtime>, logs: Logs, link: Link) -> Self {
        let needs = Arc::new(|_: &JobId, plan: &guild_jobs::Accepted| Needs::of(&plan.agent));
        let presence = Arc::new(runtime.block_on(join(&link, &logs, 0)));
        let jobs = MemberJobs::new(logs.clone(), named("any").member, needs, presence, runtime.handle().clone());
        let member = Member::new();
        let options = StoreOptions { limits: Arc::new(member.limits.clone()), clock: member.clock.clone() };
        let store = JobStore::open_shared(&member.dir, options, Arc::new(jobs.clone())).unwrap();
        let resumed = Arc::new(Resumed::default());
        store.set_resume(resumed.clone());
        store.load();
        let (queue, events) = (Arc::new(Queue::default()), Arc::new(Mutex::new(Vec::new())));
        let (heard, waits, told, own) = (store.clone(), queue.clone(), events.clone(), logs.own().clone());
        let news_of = jobs.clone();
        let (runtime, handle) = (runtime.clone(), runtime.handle().clone());
        let (leave, mut until) = tokio::sync::oneshot::channel::<()>();
        let follower = thread::spawn(move || {
            let mut news = Jobs::latest(link);
            while let Some(seen) = handle.block_on(async {
                loop {
                    tokio::select! {
                        seen = news.next() => if seen.is_some() { break seen },
                        _ = &mut until => break None,
                    }
                }
            }) {
                waits.hear(&seen, &own);
                heard.hear(&seen.name.job, news_of.news(&seen).unwrap());
                told.lock().unwrap().extend(seen.job_events());
            }
        });
        let follows = Some((leave, follower));
        Self { store, jobs, logs, queue, events, resumed, follows, runtime, _member: member }
    }

    fn status(&self, id: &JobId) -> JobStatus {
        status(&self.store, id).status
    }

    /// Takes a job that waits or whose host is dead, and carries it out.
    fn takes(&self, id: &JobId, is_over: impl Fn(&Owner) -> bool) -> Arc<RunningJob> {
        let take = self.runtime.block_on(self.logs.take(&name(id), 0, is_over)).unwrap();
        let Take::Taken { job, is_interrupted } = take else { panic!("{take:?}") };
        self.store.adopt(id, self.jobs.hold(id, &job, is_interrupted)).unwrap();
        self.resumed.0.lock().unwrap().last().unwrap().clone()
    }

    fn settle(&self, job: &RunningJob) {
        self.runtime.block_on(job.settled()).unwrap();
    }

    fn knows(&self, id: &JobId) -> bool {
        !is_unknown(&self.store, id.as_str())
    }
}

fn two_hosts() -> (Nats, Host, Host) {
    let runtime = Arc::new(Runtime::new().unwrap());
    let (nats, _) = runtime.block_on(single());
    let (a, b) = (Host::join(&runtime, &nats, "a"), Host::join(&runtime, &nats, "b"));
    (nats, a, b)
}

#[test]
fn a_job_is_the_same_at_both_hosts_from_its_birth_to_its_deletion() {
    let (_nats, a, b) = two_hosts();
    let job = start(&a.store, "look");
    let id = job.id().clone();
    job.update_summary("half-way").unwrap();
    job.log_question("who?").unwrap();
    job.write_artifact("t/a.bin", &[0, 255]).unwrap();
    for number in 0..100 {
        job.transcript(&Entry::Message { session: 1, text: number.to_string() });
    }
    a.settle(&job);
    eventually("the other host has the summary", || {
        b.knows(&id) && status(&b.store, &id).summary.as_deref() == Some("half-way")
    });
    assert_eq!(status(&b.store, &id), status(&a.store, &id));
    assert_eq!(b.store.transcript(&id).unwrap(), a.store.transcript(&id).unwrap());
    assert_eq!(b.store.artifact(id.as_str(), "t/a.bin", 10).unwrap(), [0, 255]);
    job.submit_result("the result", None).unwrap();
    assert_eq!(job.complete(None).unwrap(), JobStatus::Completed);
    eventually("the other host has the end", || b.status(&id) == JobStatus::Completed);
    assert_eq!(b.store.result(id.as_str()).unwrap(), a.store.result(id.as_str()).unwrap());
    b.store.delete(id.as_str()).unwrap();
    assert!(!b.knows(&id));
    eventually("the deletion is known", || !a.knows(&id));
    let kinds = |host: &Host| {
        let events = host.events.lock().unwrap();
        events.iter().map(|event| serde_json::to_value(&event.detail).unwrap()).collect::<Vec<_>>()
    };
    eventually("both hosts have told of the deletion", || {
        [&a, &b].iter().all(|host| {
            let events = host.events.lock().unwrap();
            events.last().is_some_and(|event| event.detail == EventDetail::JobDeleted)
        })
    });
    assert_eq!(kinds(&a), kinds(&b), "events are the same and in the same order");
}

#[test]
fn a_cancel_at_another_host_is_final_and_stops_the_work() {
    let (_nats, a, b) = two_hosts();
    let job = start(&a.store, "look");
    let id = job.id().clone();
    eventually("the other host knows the job", || b.knows(&id));
    assert_eq!(b.store.cancel(id.as_str()).unwrap().status, JobStatus::Cancelled);
    assert_eq!(b.status(&id), JobStatus::Cancelled);
    // The first host may have heard of it by now, or not.
    job.submit_result("too late", None).ok();
    assert!(matches!(job.complete(None), Err(StoreError::Lost)));
    assert!(job.cancelled().is_cancelled());
    eventually("the first host knows the cancel", || a.status(&id) == JobStatus::Cancelled);
    assert_eq!(status(&a.store, &id), status(&b.store, &id));
}

#[test]
fn a_job_of_a_lost_host_goes_on_at_another_from_what_was_acknowledged() {
    let (_nats, a, b) = two_hosts();
    let lost = start(&a.store, "look");
    let id = lost.id().clone();
    lost.update_summary("half-way").unwrap();
    lost.transcript(&Entry::Message { session: 1, text: "first".to_owned() });
    a.settle(&lost);
    let job = b.takes(&id, |owner| owner.host == "a");
    assert_eq!(b.store.transcript(&id).unwrap().len(), 1);
    assert_eq!(status(&b.store, &id).summary.as_deref(), Some("half-way"));
    lost.log_question("from a host that nobody waits for").ok();
    assert!(a.runtime.block_on(lost.settled()).is_err());
    job.submit_result("the result", None).unwrap();
    assert_eq!(job.complete(None).unwrap(), JobStatus::Completed);
    assert!(matches!(lost.complete(None), Err(StoreError::Lost)));
    eventually("the first host has the result", || a.status(&id) == JobStatus::Completed);
    assert_eq!(a.store.result(id.as_str()).unwrap(), b.store.result(id.as_str()).unwrap());
    assert_eq!(status(&a.store, &id).questions, None);
}

#[test]
fn a_job_that_is_given_back_waits_in_the_queue_of_each_host_and_goes_on_at_one() {
    let (_nats, a, b) = two_hosts();
    let job = start(&a.store, "look");
    let id = job.id().clone();
    job.transcript(&Entry::Message { session: 1, text: "first".to_owned() });
    a.store.release(&id, "the host has no place").unwrap();
    assert!(job.cancelled().is_cancelled());
    eventually("the job waits at both hosts", || a.queue.waiting() == 1 && b.queue.waiting() == 1);
    assert_eq!(a.status(&id), JobStatus::Running);
    let job = b.takes(&id, |_| false);
    eventually("the job waits no more", || a.queue.waiting() == 0 && b.queue.waiting() == 0);
    assert_eq!(b.store.transcript(&id).unwrap().len(), 1);
    job.fail("no luck").unwrap();
    eventually("both hosts have the end", || [&a, &b].iter().all(|host| host.status(&id) == JobStatus::Failed));
}

#[test]
fn a_claim_that_was_stored_and_never_answered_is_given_back() {
    let (nats, a, b) = two_hosts();
    let link = a.runtime.block_on(connect(&nats, "d"));
    let hasty = Host::with(&a.runtime, Logs::new(link.clone(), Owner::new("d"), Duration::from_millis(500)), link);
    let id = start(&a.store, "look").id().clone();
    a.store.release(&id, "the host has no place").unwrap();
    let taken = hasty.runtime.block_on(hasty.logs.take(&name(&id), 0, |_| false)).unwrap();
    assert!(matches!(taken, Take::Taken { .. }));
    eventually("the log to have the claim", || b.queue.by_member().values().any(|(_, held)| *held == 1));
    eventually("the job waits again", || b.queue.waiting() == 1);
    let job = b.takes(&id, |_| false);
    job.fail("no luck").unwrap();
    eventually("all hosts have the end", || [&a, &b, &hasty].iter().all(|host| host.status(&id) == JobStatus::Failed));
}

#[test]
fn a_job_whose_work_is_dropped_without_an_end_is_given_back() {
    let (_nats, a, b) = two_hosts();
    let id = start(&a.store, "look").id().clone();
    a.store.release(&id, "the host has no place").unwrap();
    let taken = b.runtime.block_on(b.logs.take(&name(&id), 0, |_| false)).unwrap();
    let Take::Taken { job, is_interrupted } = taken else { panic!("{taken:?}") };
    // Its member was removed at this host meanwhile.
    drop(b.jobs.hold(&id, &job, is_interrupted));
    let standing = || a.runtime.block_on(a.logs.read(&name(&id))).unwrap().standing;
    eventually("the job waits again", || standing() == Standing { holder: Holder::Waiting, epoch: 2 });
    let job = a.takes(&id, |_| false);
    job.fail("no luck").unwrap();
    eventually("both hosts have the end", || [&a, &b].iter().all(|host| host.status(&id) == JobStatus::Failed));
}

#[test]
fn a_job_ends_with_more_artifacts_of_long_names_than_one_message_can_hold() {
    let (_nats, a, b) = two_hosts();
    let job = start(&a.store, "look");
    let deep: PathBuf = std::iter::repeat_n("d".repeat(250), 12).collect();
    let artifacts = job.dir().unwrap().open_dir("artifacts").unwrap();
    artifacts.create_dir_all(&deep).unwrap();
    let directory = artifacts.open_dir(&deep).unwrap();
    // A component writes its artifacts by itself.
    (0..400).for_each(|n| directory.write(format!("{n}.txt"), "x").unwrap());
    job.complete(Some("done")).unwrap();
    eventually("the other host knows the end", || b.knows(job.id()) && b.status(job.id()) == JobStatus::Completed);
    assert_eq!(b.store.artifacts(job.id().as_str()).unwrap().len(), 400);
}

#[test]
fn a_host_that_starts_knows_all_jobs() {
    let (nats, a, b) = two_hosts();
    let (running, ended) = (start(&a.store, "goes on"), start(&b.store, "ends"));
    ended.submit_result("the result", None).unwrap();
    ended.complete(None).unwrap();
    let c = Host::join(&a.runtime, &nats, "c");
    eventually("the new host knows both", || c.knows(running.id()) && c.knows(ended.id()));
    assert_eq!((c.status(running.id()), c.status(ended.id())), (JobStatus::Running, JobStatus::Completed));
    assert_eq!(c.store.result(ended.id().as_str()).unwrap(), b.store.result(ended.id().as_str()).unwrap());
    let log = c.runtime.block_on(c.logs.read(&name(ended.id()))).unwrap();
    assert_eq!(log.standing.holder, Holder::Ended);
}

#[test]
fn a_dispatch_without_a_server_says_what_to_do_and_a_running_job_goes_on_after() {
    let (mut nats, a, b) = two_hosts();
    let link = a.runtime.block_on(connect(&nats, "d"));
    let hasty = Host::with(&a.runtime, Logs::new(link.clone(), Owner::new("d"), Duration::from_millis(100)), link);
    let job = start(&a.store, "look");
    nats.kill(0);
    let refused = hasty.store.create(member::new_job(&hasty.store, "not now")).err().unwrap();
    assert!(refused.to_string().contains("[cluster]"), "{refused}");
    job.transcript(&Entry::Message { session: 1, text: "in the outage".to_owned() });
    nats.restart(0);
    a.settle(&job);
    job.submit_result("the result", None).unwrap();
    job.complete(None).unwrap();
    eventually("the other host has the end", || b.knows(job.id()) && b.status(job.id()) == JobStatus::Completed);
    assert_eq!(b.store.transcript(job.id()).unwrap().len(), 1);
}
