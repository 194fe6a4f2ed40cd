//! Jobs of several hosts, on one real server.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::time::Duration;

use bytes::Bytes;
use cap_tempfile::{TempDir, ambient_authority};
use common::*;
use guild_cluster::{
    blobs::{Blob, Blobs},
    error::StoreError,
    link::Link,
    log::{Append, Logs, Take},
    record::{Content, Needs, Record},
    rules::Holder,
    streams::Capacity,
    writer::{NotStored, Writer},
};
use guild_fakes::Nats;
use tokio::runtime::Handle;

#[tokio::test]
async fn what_an_owner_records_is_read_by_others_in_order() {
    let (_nats, link) = single().await;
    let (a, b) = (host(&link, "a"), host(&link, "b"));
    let name = job("j1");
    let writer = begin(&a, &name).await;
    for number in 0..1000 {
        writer.record(Record::add("transcript.jsonl", format!("{number}\n")));
    }
    writer.record(Record::put("status.md", "Looking."));
    writer.show(head("looking"));
    writer.announce("{\"kind\":\"job-summary\"}".to_owned());
    writer.settled(None).await.unwrap();
    let read = b.read(&name).await.unwrap();
    let transcript = b.content(read.files.get("transcript.jsonl").unwrap()).await.unwrap();
    let expected: String = (0..1000).map(|number| format!("{number}\n")).collect();
    assert_eq!(String::from_utf8(transcript).unwrap(), expected);
    assert_eq!(read.standing.holder, Holder::Held(a.own().clone()));
    assert_eq!(read.head, Some(head("looking")));
    assert_eq!(read.tail, writer.tail());
}

#[tokio::test]
async fn a_job_is_read_at_least_up_to_what_is_known_of_it() {
    let (_nats, link) = single().await;
    let (a, b) = (host(&link, "a"), host(&link, "b"));
    let name = job("j1");
    let writer = begin(&a, &name).await;
    writer.settled(None).await.unwrap();
    let known = writer.tail();
    assert_eq!(b.read_from(&name, known).await.unwrap().tail, known);
    // For the reader, the server lags until the next append is there.
    let append = async {
        writer.record(Record::add("log.txt", "more"));
        writer.settled(None).await
    };
    let (read, appended) = tokio::join!(b.read_from(&name, known + 1), append);
    appended.unwrap();
    assert_eq!(read.unwrap().tail, writer.tail());
    let hasty = Logs::new(link, b.own().clone(), Duration::from_millis(200));
    let late = hasty.read_from(&name, writer.tail() + 1).await.unwrap_err();
    assert!(late.to_string().contains("the servers that answer lag behind with guild.log."), "{late}");
    assert_eq!(hasty.read_from(&job("none"), 0).await.unwrap().tail, 0);
}

#[tokio::test]
async fn a_blob_that_a_server_lacks_for_a_moment_is_waited_for() {
    let (_nats, link) = single().await;
    let (blobs, content) = (Blobs::new(link), Bytes::from_static(b"late"));
    let blob = Blob::of(&content);
    let (got, put) = tokio::join!(blobs.get(&blob), blobs.put(content.clone()));
    assert_eq!((got.unwrap(), put.unwrap()), (content.to_vec(), blob));
}

#[tokio::test]
async fn a_job_has_one_birth() {
    let (_nats, link) = single().await;
    let (a, b) = (host(&link, "a"), host(&link, "b"));
    let name = job("j1");
    let (first, second) = tokio::join!(birth(&a, &name, true), birth(&b, &name, true));
    assert!(first.is_some() != second.is_some());
}

#[tokio::test]
async fn a_job_that_waits_is_taken_once_with_all_that_was_recorded() {
    let (_nats, link) = single().await;
    let (a, b, c) = (host(&link, "a"), host(&link, "b"), host(&link, "c"));
    let name = job("j1");
    birth(&a, &name, false).await.unwrap();
    let (one, other) = tokio::join!(b.take(&name, 0, |_| false), c.take(&name, 0, |_| false));
    let taken = [one.unwrap(), other.unwrap()].into_iter().filter_map(|take| match take {
        Take::Taken { job, is_interrupted } => Some((job, is_interrupted)),
        Take::Lost | Take::NotFree(_) => None,
    });
    let taken: Vec<_> = taken.collect();
    let [(taken, is_interrupted)] = taken.as_slice() else { panic!("{taken:?}") };
    assert_eq!((taken.standing.epoch, *is_interrupted), (1, false));
    let directory = TempDir::new(ambient_authority()).unwrap();
    b.fetch(taken, &|_| true, &directory).await.unwrap();
    assert_eq!(directory.read_to_string("task.md").unwrap(), "Look.");
}

#[tokio::test]
async fn an_owner_whose_job_was_taken_stores_nothing_more() {
    let (_nats, link) = single().await;
    let (a, b) = (host(&link, "a"), host(&link, "b"));
    let name = job("j1");
    let writer = begin(&a, &name).await;
    writer.record(Record::add("log.txt", "before"));
    writer.settled(None).await.unwrap();
    assert!(matches!(b.take(&name, 0, |_| false).await.unwrap(), Take::NotFree(_)), "the owner is not dead");
    let taken = b.take(&name, 0, |owner| owner.host == "a").await.unwrap();
    let Take::Taken { job: taken, is_interrupted: true } = taken else { panic!("{taken:?}") };
    assert_eq!(b.content(taken.files.get("log.txt").unwrap()).await.unwrap(), b"before");
    writer.record(Record::add("log.txt", "after"));
    let Err(NotStored::Lost(standing)) = writer.settled(None).await else { panic!("stored") };
    assert_eq!(standing.holder, Holder::Held(b.own().clone()));
    assert_eq!(writer.lost().await.epoch, 2);
    let read = a.read(&name).await.unwrap();
    assert_eq!(a.content(read.files.get("log.txt").unwrap()).await.unwrap(), b"before");
}

#[tokio::test]
async fn a_host_takes_its_own_job_again_after_a_restart() {
    let (_nats, link) = single().await;
    let name = job("j1");
    drop(begin(&host(&link, "a"), &name).await);
    let again = host(&link, "a");
    let is_mine = |owner: &guild_cluster::record::Owner| owner.host == again.own().host;
    assert!(matches!(again.take(&name, 0, is_mine).await.unwrap(), Take::Taken { .. }));
}

#[tokio::test]
async fn the_first_end_counts_and_others_are_told_which_it_was() {
    let (_nats, link) = single().await;
    let (a, b) = (host(&link, "a"), host(&link, "b"));
    let name = job("j1");
    let writer = begin(&a, &name).await;
    // The owner writes all the time while another host cancels.
    let cancel = b.decide(&name, 0, |job| (!job.standing.is_ended()).then(|| end("cancelled")));
    let write = async {
        for number in 0.. {
            writer.record(Record::add("log.txt", number.to_string()));
            if writer.settled(None).await.is_err() {
                break;
            }
        }
    };
    let (cancelled, ()) = tokio::join!(cancel, write);
    assert!(cancelled.unwrap().1);
    for record in end("completed").records {
        writer.record(record);
    }
    let Err(NotStored::Lost(standing)) = writer.settled(None).await else { panic!("stored") };
    assert_eq!(standing.holder, Holder::Ended);
    let read = a.read(&name).await.unwrap();
    assert_eq!((read.head, read.files.get("meta.json").unwrap()), (Some(head("cancelled")), &vec![text("cancelled")]));
    let (job, is_appended) = b.decide(&name, 0, |job| (!job.standing.is_ended()).then(|| end("failed"))).await.unwrap();
    assert_eq!((job.head, is_appended), (Some(head("cancelled")), false));
}

#[tokio::test]
async fn a_deleted_job_leaves_one_record_and_no_append_of_an_old_owner_follows() {
    let (_nats, link) = single().await;
    let (a, b) = (host(&link, "a"), host(&link, "b"));
    let name = job("j1");
    let writer = begin(&a, &name).await;
    writer.settled(None).await.unwrap();
    b.decide(&name, 0, |_| Some(end("cancelled"))).await.unwrap();
    let gone = || Append { records: vec![Record::Gone], head: head("gone"), events: Vec::new() };
    b.decide(&name, 0, |job| job.standing.is_ended().then(gone)).await.unwrap();
    writer.record(Record::add("log.txt", "late"));
    let Err(NotStored::Lost(standing)) = writer.settled(None).await else { panic!("stored") };
    assert_eq!(standing.holder, Holder::Gone);
    let read = a.read(&name).await.unwrap();
    assert!(read.files.is_empty());
    assert_eq!(birth(&a, &name, true).await, None, "an id is not used again");
}

#[tokio::test]
async fn long_texts_and_bytes_go_to_blobs_and_come_back_whole() {
    let (_nats, link) = single().await;
    let (a, b) = (host(&link, "a"), host(&link, "b"));
    let name = job("j1");
    let writer = begin(&a, &name).await;
    let long = "x".repeat(3_000_000);
    writer.record(Record::add("transcript.jsonl", "first\n"));
    writer.record(Record::add("transcript.jsonl", long.clone()));
    let image = a.blobs().put(Bytes::from_static(&[0, 255, 7])).await.unwrap();
    writer.record(Record::Put { file: "artifacts/plot/a.png".to_owned(), content: Content::Blob(image) });
    writer.settled(None).await.unwrap();
    let directory = TempDir::new(ambient_authority()).unwrap();
    let read = b.read(&name).await.unwrap();
    b.fetch(&read, &|_| true, &directory).await.unwrap();
    assert_eq!(directory.read_to_string("transcript.jsonl").unwrap(), format!("first\n{long}"));
    assert_eq!(directory.read("artifacts/plot/a.png").unwrap(), [0, 255, 7]);
}

#[tokio::test]
async fn a_blob_that_is_missing_or_damaged_is_named() {
    let (_nats, link) = single().await;
    let blobs = Blobs::new(link);
    let none = Blob::of(b"never stored");
    let error = blobs.get(&none).await.unwrap_err();
    assert!(error.to_string().contains(&none.sha256) && error.to_string().contains("missing"), "{error}");
    let stored = blobs.put(Bytes::from(vec![1; 1_500_000])).await.unwrap();
    assert_eq!(blobs.get(&stored).await.unwrap(), vec![1; 1_500_000]);
    let shorter = Blob { bytes: stored.bytes - 600_000, ..stored };
    assert!(blobs.get(&shorter).await.unwrap_err().to_string().contains("damaged"));
}

#[tokio::test]
async fn a_full_stream_refuses_a_birth_and_loses_nothing_old() {
    let (nats, _) = (tokio::task::spawn_blocking(|| Nats::start(1)).await.unwrap(), ());
    let link = connect(&nats, "a").await;
    let small = Capacity { replicas: 1, log_bytes: 4096, blob_bytes: -1, other_bytes: -1 };
    link.create_streams(&small).await.unwrap();
    let a = host(&link, "a");
    let mut stored = Vec::new();
    let error = loop {
        let name = job(&format!("j{}", stored.len()));
        let append = Append { head: head("running"), ..Append::default() };
        match a.begin(&name, Needs::default(), Default::default(), false, append).await {
            Ok(_) => stored.push(name),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Full { stream: "guild_log", .. }), "{error}");
    assert!(!stored.is_empty());
    for name in stored {
        assert_eq!(a.read(&name).await.unwrap().standing.holder, Holder::Waiting);
    }
}

#[tokio::test]
async fn an_owner_whose_files_find_no_room_learns_that_another_host_has_ended_its_job() {
    let nats = tokio::task::spawn_blocking(|| Nats::start(1)).await.unwrap();
    let link = connect(&nats, "a").await;
    let small = Capacity { replicas: 1, log_bytes: -1, blob_bytes: 4096, other_bytes: -1 };
    link.create_streams(&small).await.unwrap();
    let (a, b) = (host(&link, "a"), host(&link, "b"));
    let name = job("j1");
    let writer = begin(&a, &name).await;
    writer.record(Record::add("transcript.jsonl", "x".repeat(1_000_000)));
    assert!(b.decide(&name, 0, |job| (!job.standing.is_ended()).then(|| end("cancelled"))).await.unwrap().1);
    let Err(NotStored::Lost(standing)) = writer.settled(None).await else { panic!("stored") };
    assert_eq!(standing.holder, Holder::Ended);
}

#[tokio::test]
async fn start_refuses_missing_streams_and_servers_that_forget() {
    let (nats, careless) = tokio::task::spawn_blocking(|| (Nats::start(1), Nats::start_with(1, "2m"))).await.unwrap();
    let link = connect(&nats, "a").await;
    let error = link.check_streams().await.unwrap_err();
    assert!(error.to_string().contains("guild cluster init"), "{error}");
    Link::check_servers(&nats.monitors(), None).await.unwrap();
    let error = Link::check_servers(&careless.monitors(), None).await.unwrap_err().to_string();
    assert!(error.contains("sync_interval: always"), "{error}");
    let error = Link::check_servers(&["http://127.0.0.1:9".to_owned()], None).await.unwrap_err().to_string();
    assert!(error.contains("http://127.0.0.1:9") && error.contains("`monitor`"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_away_is_named_with_what_to_do() {
    let (mut nats, link) = single().await;
    let a = guild_cluster::log::Logs::new(
        link,
        guild_cluster::record::Owner::new("a"),
        std::time::Duration::from_millis(100),
    );
    let name = job("j1");
    let born = birth(&a, &name, true).await.unwrap();
    let writer = Writer::start(a.clone(), name.clone(), &born, head("running"), &Handle::current());
    nats.kill(0);
    writer.record(Record::add("log.txt", "kept in the queue"));
    let error = writer.settled(Some(std::time::Duration::from_millis(500))).await.unwrap_err();
    assert!(matches!(&error, NotStored::Store(StoreError::Unreachable(_))), "{error}");
    assert!(error.to_string().contains("[cluster]"), "{error}");
    nats.restart(0);
    writer.settled(None).await.unwrap();
    let read = a.read(&name).await.unwrap();
    assert_eq!(a.content(read.files.get("log.txt").unwrap()).await.unwrap(), b"kept in the queue");
}
