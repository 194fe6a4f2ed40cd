//! What hosts share besides jobs, on one real server.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::collections::BTreeMap;

use bytes::Bytes;
use cap_tempfile::{TempDir, ambient_authority};
use common::*;
use guild_cluster::{
    buckets::{
        keys::{CallersKey, Keys},
        members::{Change, Members},
    },
    seal::Key,
};
use serde_json::json;

#[tokio::test]
async fn one_key_makes_one_job_though_two_hosts_are_asked_at_once() {
    let (nats, link) = single().await;
    let (a, b) = (host(&link, "a"), host(&connect(&nats, "b").await, "b"));
    let (here, there) = (Keys::new(a.clone()), Keys::new(b.clone()));
    let key = CallersKey { token: Some("ci"), key: "release 7: \u{1f980}" };
    let (one, other) = (job("j1"), job("j2"));
    // Each makes its job once the key is its own, as a dispatch does.
    let make = async |keys: &Keys, logs, name| {
        let owner = keys.claim(key, name).await.unwrap();
        owner == *name && birth(logs, name, true).await.is_some()
    };
    let made: (bool, bool) = tokio::join!(make(&here, &a, &one), make(&there, &b, &other));
    assert!(made.0 != made.1, "{made:?}");
    let made = if made.0 { &one } else { &other };
    assert_eq!(here.claim(key, &job("j3")).await.unwrap(), *made);
    assert_eq!(here.claim(CallersKey { token: None, ..key }, &job("j4")).await.unwrap(), job("j4"));
}

#[tokio::test]
async fn a_job_that_was_never_made_gives_its_key_up_and_cannot_be_made_any_more() {
    let (_nats, link) = single().await;
    let a = host(&link, "a");
    let (keys, key) = (Keys::new(a.clone()), CallersKey { token: None, key: "k" });
    assert_eq!(keys.claim(key, &job("j1")).await.unwrap(), job("j1"));
    assert_eq!(keys.claim(key, &job("j2")).await.unwrap(), job("j2"));
    assert_eq!(birth(&a, &job("j1"), true).await, None);
    assert!(birth(&a, &job("j2"), true).await.is_some());
    assert_eq!(keys.claim(key, &job("j3")).await.unwrap(), job("j2"));
}

#[tokio::test]
async fn a_member_is_published_once_for_all_hosts_and_without_the_seal_for_none() {
    let (nats, link) = single().await;
    let members = Members::new(link.clone(), key());
    let member = "tools/text.kit".parse().unwrap();
    let files = BTreeMap::from([
        ("guild-member.json".to_owned(), Bytes::from_static(b"{}")),
        ("parts/component.wasm".to_owned(), Bytes::from(vec![7; 700_000])),
    ]);
    let published = members.publish(&member, files, json!({"approved": true})).await.unwrap();
    let other = Members::new(connect(&nats, "b").await, key());
    let mut follow = other.follow();
    assert_eq!(follow.next().await, Some(Change::Published(published.clone())));
    assert_eq!(follow.next().await, None);
    let directory = TempDir::new(ambient_authority()).unwrap();
    other.fetch(&published, &directory).await.unwrap();
    assert_eq!(directory.read("parts/component.wasm").unwrap(), vec![7; 700_000]);
    // Somebody with NATS credentials, but without the cluster's key.
    Members::new(link, Key::new([8; 32])).publish(&member, BTreeMap::new(), json!(null)).await.unwrap();
    assert_eq!(follow.next().await, Some(Change::Unsealed("tools/text.kit".to_owned())));
    members.withdraw(&member).await.unwrap();
    assert_eq!(follow.next().await, Some(Change::Withdrawn(member)));
}
