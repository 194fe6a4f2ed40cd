//! Any sequence of what can happen to a job, against a model of the state machine; and any of several jobs at the same
//! time, over several lives of the host.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test helper fails its test")]

mod common;

use std::{sync::Arc, thread};

use common::{Member, is_unknown, listed_ids, running_count, start, status};
use guild_contract::{JobId, JobStatus, Meta, rpc::StatusView};
use guild_jobs::{JobStore, RunningJob};
use proptest::prelude::*;
use serde_json::json;

/// What a caller does, or a job's work.
#[derive(Clone, Copy, Debug)]
enum Act {
    Submit,
    CompleteWithText,
    CompleteWithoutText,
    Fail,
    Cancel,
    Delete,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Act(Act),
    /// The host dies and another one starts.
    Restart,
}

/// What the job must be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Model {
    Running { submitted: bool },
    Ended(JobStatus),
    Gone,
}

impl Model {
    fn after(self, step: Step) -> Self {
        use Act::{Cancel, CompleteWithText, CompleteWithoutText, Delete, Fail, Submit};
        use JobStatus::{Cancelled, Completed, Failed};
        match (self, step) {
            (Self::Running { .. }, Step::Act(Submit)) => Self::Running { submitted: true },
            (Self::Running { .. }, Step::Act(Cancel)) => Self::Ended(Cancelled),
            (Self::Running { .. }, Step::Act(CompleteWithText)) => Self::Ended(Completed),
            (Self::Running { submitted }, Step::Act(CompleteWithoutText | Fail) | Step::Restart) => {
                Self::Ended(if submitted { Completed } else { Failed })
            }
            (Self::Ended(Failed), Step::Act(Cancel)) => Self::Ended(Cancelled),
            (Self::Ended(Completed | Cancelled), Step::Act(Delete)) => Self::Gone,
            (other, _) => other,
        }
    }
}

fn acts() -> impl Strategy<Value = Act> {
    use Act::*;
    prop::sample::select(&[Submit, CompleteWithText, CompleteWithoutText, Fail, Cancel, Delete][..])
}

/// What somebody does to one job after another, each by its number.
type Acts = Vec<(usize, Vec<Act>)>;

fn somebody() -> impl Strategy<Value = Acts> {
    prop::collection::vec((0..NUMBERS, prop::collection::vec(acts(), 1..6)), 1..4)
}

/// Numbers of jobs, of which each stands for one.
const NUMBERS: usize = 12;
/// The jobs that begin in each life of the host.
const BEGIN: usize = 2;

/// A job as this life of the host knows it: one that an earlier one began has no work any more.
struct Known {
    id: JobId,
    work: Option<Arc<RunningJob>>,
}

impl Known {
    fn act(&self, store: &JobStore, act: Act) {
        let id = self.id.as_str();
        match (act, &self.work) {
            (Act::Cancel, _) => drop(store.cancel(id)),
            (Act::Delete, _) => drop(store.delete(id)),
            (_, None) => {}
            (Act::Submit, Some(job)) => drop(job.submit_result("submitted", None)),
            (Act::CompleteWithText, Some(job)) => drop(job.complete(Some("text"))),
            (Act::CompleteWithoutText, Some(job)) => drop(job.complete(None)),
            (Act::Fail, Some(job)) => drop(job.fail("reason")),
        }
    }
}

/// What is known of a job, which every answer and the files say alike; none, where there is no such job.
fn known(member: &Member, store: &JobStore, id: &JobId) -> Option<StatusView> {
    let listed = listed_ids(store, json!({})).contains(&id.to_string());
    let there = member.path(&member.file(id, "meta.json")).exists();
    if is_unknown(store, id.as_str()) {
        assert!(!listed && !there, "{id} is unknown, and listed: {listed}, on disk: {there}");
        assert!(store.result(id.as_str()).is_err());
        return None;
    }
    assert!(listed && there, "{id} is known, and listed: {listed}, on disk: {there}");
    let view = status(store, id);
    let meta: Meta = serde_json::from_str(&member.read(&member.file(id, "meta.json"))).unwrap();
    assert_eq!((meta.status, &meta.completed_at, &meta.error), (view.status, &view.completed_at, &view.error));
    assert_eq!(store.result(id.as_str()).is_ok(), view.status == JobStatus::Completed, "{view:?}");
    assert_eq!(view.completed_at.is_some(), view.status != JobStatus::Running, "{view:?}");
    assert_eq!(store.running(id.as_str()).is_some(), view.status == JobStatus::Running);
    Some(view)
}

/// Whether a state may follow another. What has ended stays so, but that a failed job can be cancelled, and an ended
/// one removed.
fn may_follow(before: Option<JobStatus>, after: Option<JobStatus>) -> bool {
    use JobStatus::{Cancelled, Completed, Failed, Running};
    match (before, after) {
        (None, after) => after.is_none(),
        (Some(Running), _) | (Some(Failed), Some(Failed | Cancelled) | None) => true,
        (Some(ended @ (Completed | Cancelled)), after) => after.is_none_or(|after| after == ended),
        (Some(Failed), Some(_)) => false,
    }
}

fn state(view: &Option<StatusView>) -> Option<JobStatus> {
    view.as_ref().map(|view| view.status)
}

/// Two act at the same time on jobs that are as these views say, and a third looks on.
fn act_at_once(store: &JobStore, jobs: &[Known], views: &[Option<StatusView>], acts: [&Acts; 2]) {
    let now = |id: &JobId| {
        let json = store.status(id.as_str()).ok()?;
        Some(serde_json::from_slice::<StatusView>(&json).unwrap().status)
    };
    thread::scope(|scope| {
        let acting = acts.map(|acts| {
            scope.spawn(move || {
                for (number, acts) in acts {
                    acts.iter().for_each(|act| jobs[number % jobs.len()].act(store, *act));
                }
            })
        });
        let mut seen: Vec<_> = views.iter().map(state).collect();
        while acting.iter().any(|actor| !actor.is_finished()) {
            for (job, before) in jobs.iter().zip(&mut seen) {
                let after = now(&job.id);
                assert!(may_follow(*before, after), "{before:?}, then {after:?}");
                *before = after;
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn concurrent_acts_and_restarts_lose_no_job_and_leave_none_stuck(
        lives in prop::collection::vec((somebody(), somebody()), 1..5),
    ) {
        let member = Member::new();
        let mut jobs: Vec<Known> = Vec::new();
        let mut views: Vec<Option<StatusView>> = Vec::new();
        // The last one looks at what is left, and nobody acts.
        for (one, other) in lives.into_iter().chain([Default::default()]) {
            let store = member.store();
            for (job, before) in jobs.iter().zip(&mut views) {
                let after = known(&member, &store, &job.id);
                match (&before, &after) {
                    (Some(running), Some(ended)) if running.status == JobStatus::Running => {
                        prop_assert!(matches!(ended.status, JobStatus::Completed | JobStatus::Failed), "it is stuck");
                    }
                    _ => prop_assert_eq!(&*before, &after),
                }
                *before = after;
            }
            prop_assert_eq!(running_count(&store), 0);
            for _ in 0..BEGIN {
                let work = start(&store, "d");
                views.push(known(&member, &store, work.id()));
                jobs.push(Known { id: work.id().clone(), work: Some(work) });
            }
            act_at_once(&store, &jobs, &views, [&one, &other]);
            for (n, (job, before)) in jobs.iter().zip(&mut views).enumerate() {
                let after = known(&member, &store, &job.id);
                prop_assert!(may_follow(state(before), state(&after)), "{:?}, then {:?}", before, after);
                let of_it = |(number, _): &&(usize, Vec<Act>)| number % jobs.len() == n;
                let acts = || one.iter().chain(&other).filter(of_it).flat_map(|(_, acts)| acts);
                let ends = acts().any(|act| !matches!(act, Act::Submit | Act::Delete));
                let ran = state(before) == Some(JobStatus::Running);
                prop_assert_eq!(state(&after) == Some(JobStatus::Running), ran && !ends, "{:?}", after);
                let removed = before.is_none() || acts().any(|act| matches!(act, Act::Delete));
                prop_assert!(after.is_some() || removed, "nobody removed it");
                *before = after;
            }
            let running = views.iter().filter(|view| state(view) == Some(JobStatus::Running)).count();
            prop_assert_eq!(running_count(&store), running);
            // The host dies.
            jobs.iter_mut().for_each(|job| job.work = None);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_job_is_what_its_history_makes_it(
        steps in prop::collection::vec(prop_oneof![6 => acts().prop_map(Step::Act), 1 => Just(Step::Restart)], 1..6),
    ) {
        let member = Member::new();
        let mut store = member.store();
        let work = start(&store, "d");
        let mut job = Known { id: work.id().clone(), work: Some(work) };
        let mut model = Model::Running { submitted: false };
        for step in steps {
            match step {
                Step::Restart => {
                    job.work = None;
                    drop(store);
                    store = member.store();
                }
                Step::Act(act) => job.act(&store, act),
            }
            let before = model;
            model = model.after(step);
            let view = known(&member, &store, &job.id);
            match model {
                Model::Gone => prop_assert_eq!(view, None),
                Model::Running { .. } => prop_assert_eq!(view.map(|view| view.status), Some(JobStatus::Running)),
                Model::Ended(ended) => {
                    prop_assert_eq!(view.map(|view| view.status), Some(ended));
                    if ended == JobStatus::Completed {
                        let submitted = before == Model::Running { submitted: true };
                        let output = store.result(job.id.as_str()).unwrap().output;
                        prop_assert!(!submitted || output == "submitted");
                    }
                }
            }
        }
    }
}
