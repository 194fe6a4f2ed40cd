//! What hosts share besides jobs, on one real server.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use cap_tempfile::{TempDir, ambient_authority};
use common::*;
use guild_cluster::{
    buckets::{
        keys::{CallersKey, Keys},
        members::{Change, Members},
        memory::Memory,
    },
    link::Link,
    record::Owner,
    seal::Key,
};
use guild_contract::{JobId, Limits, manifest::Scope};
use guild_fs::clock::SystemClock;
use guild_jobs::{
    MemoryStore,
    memory::{Source, shelf::NoteFiles},
};
use tokio::{runtime::Handle, task::spawn_blocking, time::timeout};

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
    let published = members.publish(&member, files).await.unwrap();
    let other = Members::new(connect(&nats, "b").await, key());
    let mut follow = other.follow();
    assert_eq!(follow.next().await, Some(Change::Published(published.clone())));
    assert_eq!(follow.next().await, None);
    let directory = TempDir::new(ambient_authority()).unwrap();
    other.fetch(&published, &directory).await.unwrap();
    assert_eq!(directory.read("parts/component.wasm").unwrap(), vec![7; 700_000]);
    // Somebody with NATS credentials, but without the cluster's key.
    Members::new(link, Key::new([8; 32])).publish(&member, BTreeMap::new()).await.unwrap();
    assert_eq!(follow.next().await, Some(Change::Unsealed("tools/text.kit".to_owned())));
    let withdrawn = members.withdraw(&member).await.unwrap().unwrap();
    assert!(withdrawn.is_withdrawn() && withdrawn.edition > published.edition);
    assert_eq!(follow.next().await, Some(Change::Published(withdrawn)));
    assert_eq!(members.withdraw(&member).await.unwrap(), None, "it is withdrawn already");
}

/// The notes of a host, where the host `dead` is dead.
fn notes(link: Link, host: &str) -> Memory {
    Memory::start(link, Owner::new(host), Arc::new(|owner| owner.host == "dead"), Handle::current())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_host_at_a_time_compacts_the_notes_of_a_member() {
    let (nats, link) = single().await;
    let mut shelves = Vec::new();
    let mut directories = Vec::new();
    for host in ["a", "b", "dead"] {
        let directory = TempDir::new(ambient_authority()).unwrap();
        let memory = notes(connect(&nats, host).await, host);
        shelves.push(memory.shelf("m", NoteFiles::new(&directory, "memory".into()).unwrap()).await.unwrap());
        directories.push((directory, memory));
    }
    drop(link);
    let done = spawn_blocking(move || {
        let [a, b, dead] = shelves.as_slice() else { panic!("three") };
        let first = a.begin_compaction().unwrap().unwrap();
        assert!(b.begin_compaction().unwrap().is_none());
        drop(first);
        let begun = std::time::Instant::now();
        let second = loop {
            if let Some(second) = b.begin_compaction().unwrap() {
                break second;
            }
            assert!(begun.elapsed() < PATIENCE, "the compaction ends for others");
        };
        assert!(a.begin_compaction().unwrap().is_none());
        drop(second);
        // The compaction of a dead host hinders nobody.
        let third = loop {
            if let Some(third) = dead.begin_compaction().unwrap() {
                break third;
            }
            assert!(begun.elapsed() < PATIENCE, "the compaction ends for others");
        };
        assert!(a.begin_compaction().unwrap().is_some());
        drop(third);
    });
    done.await.unwrap();
}

/// The memory of a member at one host.
async fn memory(memory: &Memory, directory: &TempDir) -> Arc<MemoryStore> {
    let shelf =
        memory.shelf("worker.tools/text.kit", NoteFiles::new(directory, "memory".into()).unwrap()).await.unwrap();
    MemoryStore::open_on(shelf, Scope::Worker, Arc::new(Limits::default()), Arc::new(SystemClock))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_starts_during_an_outage_has_its_notes_afterwards() {
    let (mut nats, link) = single().await;
    let (here, at_a) = (notes(link, "a"), TempDir::new(ambient_authority()).unwrap());
    nats.kill(0);
    let opened = memory(&here, &at_a);
    tokio::pin!(opened);
    assert!(timeout(Duration::from_secs(3), &mut opened).await.is_err(), "it waits longer than for one answer");
    nats.restart(0);
    assert_eq!(opened.await.load("any").unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_has_all_notes_where_the_last_messages_of_their_stream_are_gone() {
    let (nats, link) = single().await;
    let (here, at_a) = (notes(link, "a"), TempDir::new(ambient_authority()).unwrap());
    let a = memory(&here, &at_a).await;
    let stored = spawn_blocking(move || ["stays", "goes"].map(|key| a.store(key, "a note", None).unwrap()));
    stored.await.unwrap();
    let administrator = async_nats::jetstream::new(async_nats::connect(nats.urls()).await.unwrap());
    let stream = administrator.get_stream("KV_guild_memory").await.unwrap();
    stream.purge().filter("$KV.guild_memory.*.goes").await.unwrap();
    let (there, at_b) = (notes(connect(&nats, "b").await, "b"), TempDir::new(ambient_authority()).unwrap());
    let b = memory(&there, &at_b).await;
    there.all_of_now().await.unwrap();
    assert_eq!((b.load("stays").unwrap().as_deref(), b.load("goes").unwrap()), (Some("a note"), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_lose_no_note_and_see_what_was_stored_before_a_read() {
    let (nats, link) = single().await;
    let other = connect(&nats, "b").await;
    let (here, there) = (notes(link, "a"), notes(other, "b"));
    let (at_a, at_b) = (TempDir::new(ambient_authority()).unwrap(), TempDir::new(ambient_authority()).unwrap());
    // A file of an earlier copy is no note.
    at_b.create_dir("memory").unwrap();
    at_b.write("memory/old.md", "of an earlier life").unwrap();
    let (a, b) = (memory(&here, &at_a).await, memory(&there, &at_b).await);
    assert_eq!(b.load("old").unwrap(), None);
    let write = |host: &'static str, store: Arc<MemoryStore>| {
        spawn_blocking(move || {
            for number in 0..20 {
                // The store gives up after some tries that others were faster in.
                while store.append("shared", &format!("{host}{number}"), None, None).is_err() {}
                store.store(&format!("{host}-{number}"), "own", None).unwrap();
            }
        })
    };
    let (one, other) = tokio::join!(write("a", a.clone()), write("b", b.clone()));
    one.unwrap();
    other.unwrap();
    here.all_of_now().await.unwrap();
    there.all_of_now().await.unwrap();
    let shared = a.load("shared").unwrap().unwrap();
    let mut lines: Vec<_> = shared.lines().collect();
    assert_eq!(lines.len(), 40);
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 40, "each line is there once");
    assert_eq!(a.list().unwrap(), b.list().unwrap(), "the same notes, in the same order");
    assert_eq!(a.list().unwrap().len(), 41);
    // A call that was not answered is made again at another host, and counts once.
    let job: JobId = "j1".parse().unwrap();
    for store in [a.clone(), b.clone(), a.clone()] {
        let job = job.clone();
        let append = move || {
            let source = Some(Source { job: &job, call: Some("call 1"), writer: None });
            store.append("a-0", "from a call", None, source)
        };
        spawn_blocking(append).await.unwrap().unwrap();
        here.all_of_now().await.unwrap();
        there.all_of_now().await.unwrap();
    }
    assert_eq!(a.load("a-0").unwrap().as_deref(), Some("own\nfrom a call"));
    let deleted = b.clone();
    assert!(spawn_blocking(move || deleted.delete("shared")).await.unwrap().unwrap());
    here.all_of_now().await.unwrap();
    assert_eq!(a.load("shared").unwrap(), None);
    // A person's edit of a copy does not count, and hinders nobody.
    at_a.write("memory/a-1.md", "by hand").unwrap();
    let edited = a.clone();
    let stored = spawn_blocking(move || edited.store("a-1", "by the host", None));
    stored.await.unwrap().unwrap();
    there.all_of_now().await.unwrap();
    at_a.remove_file("memory/a-2.md").unwrap();
    let removed = a.clone();
    spawn_blocking(move || removed.append("a-2", "and more", None, None)).await.unwrap().unwrap();
    there.all_of_now().await.unwrap();
    assert_eq!(b.load("a-1").unwrap().as_deref(), Some("by the host"));
    assert_eq!(b.load("a-2").unwrap().as_deref(), Some("own\nand more"));
    // A host that joins later has the same.
    let late = TempDir::new(ambient_authority()).unwrap();
    let third = notes(connect(&nats, "c").await, "c");
    assert_eq!(memory(&third, &late).await.list().unwrap(), a.list().unwrap());
}
