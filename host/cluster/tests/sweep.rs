//! A sweep removes what nothing names, and leaves the rest.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::{collections::BTreeMap, time::Duration};

use async_nats::jetstream;
use bytes::Bytes;
use cap_tempfile::{TempDir, ambient_authority};
use common::*;
use guild_cluster::{
    blobs::Blob,
    buckets::members::Members,
    log::{Append, JobName, Logs},
    record::{Content, Record},
    rules::Holder,
    sweep::{OLD, Swept, sweep},
    transfer::{Copied, Transfer},
    writer::Writer,
};

/// A job that has ended, with a file that stands in a blob.
async fn ended(logs: &Logs, id: &str, large: u8) -> JobName {
    let name = job(id);
    let writer: Writer = begin(logs, &name).await;
    let content = Content::Bytes(Bytes::from(vec![large; 700_000]));
    writer.record(Record::Put { file: "artifacts/large.bin".to_owned(), content });
    for line in 0..10 {
        writer.record(Record::add("log.txt", format!("{line}\n")));
        writer.settled(None).await.unwrap();
    }
    writer.finish(end("completed")).await.unwrap();
    name
}

#[tokio::test]
async fn a_sweep_leaves_all_that_a_job_or_a_member_names_and_removes_the_rest_once_it_is_old() {
    let (_nats, link) = single().await;
    let logs = host(&link, "a");
    let (kept, deleted) = (ended(&logs, "kept", 1).await, ended(&logs, "deleted", 2).await);
    let gone = Append { records: vec![Record::Gone], ..Append::default() };
    assert!(logs.decide(&deleted, 0, |_| Some(gone.clone())).await.unwrap().1);
    let files = BTreeMap::from([("component.wasm".to_owned(), Bytes::from(vec![3; 700_000]))]);
    let published = Members::new(link.clone(), key()).publish(&kept.member, files).await.unwrap();
    let before = logs.read(&kept).await.unwrap();

    let first = sweep(&link, &logs, &key(), OLD).await.unwrap();
    assert_eq!(first, Swept { compacted: 1, named: 2, new: 1, removed: 0 });
    let second = sweep(&link, &logs, &key(), Duration::ZERO).await.unwrap();
    assert_eq!(second, Swept { compacted: 0, named: 2, new: 0, removed: 1 });
    assert_eq!(sweep(&link, &logs, &key(), Duration::ZERO).await.unwrap(), Swept { named: 2, ..Swept::default() });

    let after = logs.read(&kept).await.unwrap();
    assert_eq!((after.standing.holder, &after.head, &after.needs), (Holder::Ended, &before.head, &before.needs));
    let files: Vec<_> = before.files.keys().collect();
    assert_eq!(files, after.files.keys().collect::<Vec<_>>());
    for (file, pieces) in &before.files {
        let content = logs.content(pieces).await.unwrap();
        assert_eq!(content, logs.content(after.files.get(file).unwrap()).await.unwrap(), "{file}");
    }
    let component = published.files.get("component.wasm").unwrap();
    assert_eq!(logs.blobs().get(component).await.unwrap().len(), 700_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_leaves_a_job_out_whose_file_is_missing_and_names_it() {
    let (nats, link) = single().await;
    let logs = host(&link, "a");
    let (whole, damaged) = (ended(&logs, "whole", 1).await, ended(&logs, "damaged", 2).await);
    let blob = Blob::of(&[2; 700_000]);
    let administrator = jetstream::new(async_nats::connect(nats.urls()).await.unwrap());
    let blobs = administrator.get_stream("guild_blobs").await.unwrap();
    blobs.purge().filter(format!("guild.blob.{}.>", blob.sha256)).await.unwrap();
    let into = TempDir::new(ambient_authority()).unwrap();
    let exported = Transfer::new(link, "guild-backup").export(&into).await.unwrap();
    assert_eq!(exported.members, BTreeMap::from([(whole.member, Copied { jobs: 1, notes: 0 })]));
    let [why] = exported.unreadable.as_slice() else { panic!("{exported:?}") };
    assert!(why.contains(damaged.job.as_str()) && why.contains("is missing in guild_blobs; restore"), "{why}");
    assert!(into.exists("researcher/jobs/whole/artifacts/large.bin") && !into.exists("researcher/jobs/damaged"));
}

#[tokio::test]
async fn the_log_of_a_job_that_goes_on_is_not_replaced() {
    let (_nats, link) = single().await;
    let logs = host(&link, "a");
    let writer = begin(&logs, &job("j1")).await;
    writer.record(Record::add("log.txt", "a\n".to_owned()));
    writer.settled(None).await.unwrap();
    assert!(!logs.compact(&job("j1")).await.unwrap());
    writer.record(Record::add("log.txt", "b\n".to_owned()));
    writer.settled(None).await.unwrap();
    writer.finish(end("completed")).await.unwrap();
    // The owner that was slow appends nothing after the log was replaced.
    assert!(logs.compact(&job("j1")).await.unwrap());
    assert!(!logs.compact(&job("j1")).await.unwrap());
}
