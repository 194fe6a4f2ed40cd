//! Any sequence of what can happen to a job, against a model of the state machine; and any of several jobs at the same time.
#![allow(clippy::unwrap_used, reason = "a test helper fails its test")]

mod common;

use std::{sync::Arc, thread};

use common::{Member, is_unknown, listed_ids, start, status};
use guild_contract::{JobId, JobStatus, Meta, rpc::StatusView};
use guild_jobs::{JobStore, RunningJob};
use proptest::prelude::*;
use serde_json::json;

#[derive(Clone, Copy, Debug)]
enum Step {
    Submit,
    CompleteWithText,
    CompleteWithoutText,
    Fail,
    Cancel,
    Delete,
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
        use JobStatus::{Cancelled, Completed, Failed};
        match (self, step) {
            (Self::Running { .. }, Step::Submit) => Self::Running { submitted: true },
            (Self::Running { .. }, Step::Cancel) => Self::Ended(Cancelled),
            (Self::Running { .. }, Step::CompleteWithText) => Self::Ended(Completed),
            (Self::Running { submitted }, Step::CompleteWithoutText | Step::Fail | Step::Restart) => {
                Self::Ended(if submitted { Completed } else { Failed })
            }
            (Self::Ended(Failed), Step::Cancel) => Self::Ended(Cancelled),
            (Self::Ended(Completed | Cancelled), Step::Delete) => Self::Gone,
            (other, _) => other,
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    use Step::*;
    let step = prop_oneof![
        Just(Submit),
        Just(CompleteWithText),
        Just(CompleteWithoutText),
        Just(Fail),
        Just(Cancel),
        Just(Delete),
        Just(Restart),
    ];
    prop::collection::vec(step, 1..6)
}

/// What a caller does, or a job's work, at any time; a restart is nobody's.
fn act(store: &JobStore, job: &RunningJob, step: Step) {
    match step {
        Step::Submit => drop(job.submit_result("submitted", None)),
        Step::CompleteWithText => drop(job.complete(Some("text"))),
        Step::CompleteWithoutText => drop(job.complete(None)),
        Step::Fail => drop(job.fail("reason")),
        Step::Cancel => drop(store.cancel(job.id().as_str())),
        Step::Delete => drop(store.delete(job.id().as_str())),
        Step::Restart => {}
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

/// Whether a state may follow another. What has ended stays so, but that a failed job can be cancelled, and an ended one
/// removed.
fn may_follow(before: Option<JobStatus>, after: Option<JobStatus>) -> bool {
    use JobStatus::{Cancelled, Completed, Failed, Running};
    match (before, after) {
        (None, after) => after.is_none(),
        (Some(Running), _) | (Some(Failed), Some(Failed | Cancelled) | None) => true,
        (Some(ended @ (Completed | Cancelled)), after) => after.is_none_or(|after| after == ended),
        (Some(Failed), Some(_)) => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whoever_acts_at_the_same_time_no_job_is_lost_or_stuck(
        one in prop::collection::vec((0..3_usize, steps()), 1..4),
        other in prop::collection::vec((0..3_usize, steps()), 1..4),
    ) {
        let member = Member::new();
        let store = member.store();
        let jobs: Vec<Arc<RunningJob>> = (0..3).map(|_| start(&store, "d")).collect();
        let now = |id: &JobId| {
            let json = store.status(id.as_str()).ok()?;
            Some(serde_json::from_slice::<StatusView>(&json).unwrap().status)
        };
        // Two act, and a third looks on.
        thread::scope(|scope| {
            let acting = [&one, &other].map(|acts| {
                let (store, jobs) = (&store, &jobs);
                scope.spawn(move || {
                    acts.iter().for_each(|(n, steps)| steps.iter().for_each(|step| act(store, &jobs[*n], *step)));
                })
            });
            let mut seen = vec![Some(JobStatus::Running); jobs.len()];
            while acting.iter().any(|actor| !actor.is_finished()) {
                for (job, before) in jobs.iter().zip(&mut seen) {
                    let after = now(job.id());
                    assert!(may_follow(*before, after), "{before:?}, then {after:?}");
                    *before = after;
                }
            }
        });
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id().clone()).collect();
        let before: Vec<_> = ids.iter().map(|id| known(&member, &store, id)).collect();
        for (n, view) in before.iter().enumerate() {
            let acts = || one.iter().chain(&other).filter(|(job, _)| *job == n).flat_map(|(_, steps)| steps);
            let ends = acts().any(|step| !matches!(step, Step::Submit | Step::Delete | Step::Restart));
            let runs = view.as_ref().is_some_and(|view| view.status == JobStatus::Running);
            prop_assert_eq!(runs, !ends, "{:?}", view);
            let removed = acts().any(|step| matches!(step, Step::Delete));
            prop_assert!(view.is_some() || removed, "nobody removed it");
        }
        prop_assert_eq!(store.running_count(), before.iter().flatten().filter(|v| v.status == JobStatus::Running).count());
        // The host dies, and another one finds what it left.
        drop((jobs, store));
        let store = member.store();
        for (id, before) in ids.iter().zip(before) {
            let after = known(&member, &store, id);
            match (before, after) {
                (Some(before), Some(after)) if before.status == JobStatus::Running => {
                    prop_assert!(matches!(after.status, JobStatus::Completed | JobStatus::Failed), "it is stuck");
                }
                (before, after) => prop_assert_eq!(before, after),
            }
        }
        prop_assert_eq!(store.running_count(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_job_is_what_its_history_makes_it(steps in steps()) {
        let member = Member::new();
        let mut store = member.store();
        let mut job = Some(start(&store, "d"));
        let id = job.as_ref().map(|job| job.id().clone()).unwrap();
        let mut model = Model::Running { submitted: false };
        for step in steps {
            match (step, &job) {
                (Step::Restart, _) => {
                    job = None;
                    drop(store);
                    store = member.store();
                }
                (Step::Cancel, None) => drop(store.cancel(id.as_str())),
                (Step::Delete, None) => drop(store.delete(id.as_str())),
                (_, None) => continue,
                (step, Some(job)) => act(&store, job, step),
            }
            let before = model;
            model = model.after(step);
            let view = known(&member, &store, &id);
            match model {
                Model::Gone => prop_assert_eq!(view, None),
                Model::Running { .. } => prop_assert_eq!(view.map(|view| view.status), Some(JobStatus::Running)),
                Model::Ended(ended) => {
                    prop_assert_eq!(view.map(|view| view.status), Some(ended));
                    if ended == JobStatus::Completed {
                        let submitted = before == Model::Running { submitted: true };
                        let output = store.result(id.as_str()).unwrap().output;
                        prop_assert!(!submitted || output == "submitted");
                    }
                }
            }
        }
    }
}
