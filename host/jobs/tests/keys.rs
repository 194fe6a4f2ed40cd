//! A dispatch with a key, repeated.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails its test")]

mod common;

use std::sync::Arc;

use common::{Member, new_job};
use guild_contract::DispatchKey;
use guild_jobs::{JobStore, Keyed, NewJob};

const DAY: i64 = 24 * 60 * 60;

fn key(params: &str) -> DispatchKey {
    DispatchKey { key: "retry".into(), params: params.into() }
}

/// Makes a job with this key, and returns its id.
fn made(store: &Arc<JobStore>, token: Option<&str>, key: DispatchKey) -> String {
    let Ok(Keyed::New(claim)) = store.claim_key(token, &key) else { panic!("the key is known") };
    assert!(matches!(store.claim_key(token, &key).unwrap(), Keyed::UnderWay), "the claim keeps others away");
    let new = NewJob { token: token.map(str::to_owned), key: Some(key), ..new_job(store, "d") };
    let job = store.create(new).unwrap();
    drop(claim);
    job.id().to_string()
}

/// The job that an earlier dispatch with the key made.
fn repeated(store: &Arc<JobStore>, token: Option<&str>, key: &DispatchKey) -> Option<String> {
    match store.claim_key(token, key).unwrap() {
        Keyed::Repeated(job) => Some(job.to_string()),
        Keyed::New(_) => None,
        Keyed::UnderWay => panic!("no dispatch is under way"),
    }
}

#[test]
fn a_key_stands_for_its_job_for_a_day() {
    let member = Member::new();
    let store = member.store();
    let job = made(&store, None, key("a"));
    member.clock.advance(DAY - 1);
    assert_eq!(repeated(&store, None, &key("a")), Some(job));
    member.clock.advance(1);
    assert_eq!(repeated(&store, None, &key("a")), None);
    let later = made(&store, None, key("b"));
    assert_eq!(repeated(&store, None, &key("b")), Some(later), "the newest job has the key");
}

#[test]
fn a_key_belongs_to_one_caller_and_to_one_set_of_parameters() {
    let member = Member::new();
    let store = member.store();
    let job = made(&store, Some("ci"), key("a"));
    assert_eq!(repeated(&store, Some("ci"), &key("a")), Some(job.clone()));
    for other in [None, Some("laptop")] {
        assert_eq!(repeated(&store, other, &key("a")), None);
    }
    let refused = store.claim_key(Some("ci"), &key("b")).err().unwrap().to_string();
    assert!(refused.contains(&format!("stands for the job {job}")), "{refused}");
}

#[test]
fn a_claim_without_a_job_leaves_nothing() {
    let member = Member::new();
    let store = member.store();
    drop(store.claim_key(None, &key("a")).unwrap());
    assert_eq!(repeated(&store, None, &key("a")), None);
}

#[test]
fn a_key_outlives_the_host_and_ends_with_its_job() {
    let member = Member::new();
    let store = member.store();
    let job = made(&store, None, key("a"));
    store.cancel(&job).unwrap();
    drop(store);
    let store = member.store();
    assert_eq!(repeated(&store, None, &key("a")), Some(job.clone()));
    store.delete(&job).unwrap();
    assert_eq!(repeated(&store, None, &key("a")), None);
}
