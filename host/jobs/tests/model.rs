//! Any sequence of what can happen to a job, against a model of the state machine.
#![allow(clippy::unwrap_used, reason = "a test helper fails its test")]

mod common;

use common::{Member, is_unknown, start, status};
use guild_contract::JobStatus;
use proptest::prelude::*;

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
                (Step::Submit, Some(job)) => drop(job.submit_result("submitted", None)),
                (Step::CompleteWithText, Some(job)) => drop(job.complete(Some("text"))),
                (Step::CompleteWithoutText, Some(job)) => drop(job.complete(None)),
                (Step::Fail, Some(job)) => drop(job.fail("reason")),
                (Step::Cancel, _) => drop(store.cancel(id.as_str())),
                (Step::Delete, _) => drop(store.delete(id.as_str())),
                (Step::Restart, _) => {
                    job = None;
                    drop(store);
                    store = member.store();
                }
                (_, None) => continue,
            }
            let before = model;
            model = model.after(step);
            match model {
                Model::Gone => prop_assert!(is_unknown(&store, id.as_str())),
                Model::Running { .. } => prop_assert_eq!(status(&store, &id).status, JobStatus::Running),
                Model::Ended(ended) => {
                    let view = status(&store, &id);
                    prop_assert_eq!(view.status, ended);
                    prop_assert!(view.completed_at.is_some());
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
