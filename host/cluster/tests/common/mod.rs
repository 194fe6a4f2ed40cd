//! Clusters of real servers for the tests.
#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::{collections::BTreeMap, time::Duration};

use guild_cluster::{
    link::{Link, Options},
    log::{Append, JobName, Logs},
    record::{Content, Owner, Record},
    streams::Capacity,
    writer::Writer,
};
use guild_fakes::Nats;
use serde_json::json;
use tokio::runtime::Handle;

/// How long decisions are tried, on a machine under load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One node, and a host's connection.
pub(crate) async fn single() -> (Nats, Link) {
    cluster(1).await
}

/// So many nodes, and a host's connection.
pub(crate) async fn cluster(nodes: usize) -> (Nats, Link) {
    let nats = tokio::task::spawn_blocking(move || Nats::start(nodes)).await.unwrap();
    let link = connect(&nats, "a").await;
    link.create_streams(&Capacity { replicas: nodes, log_bytes: -1, blob_bytes: -1, other_bytes: -1 }).await.unwrap();
    (nats, link)
}

/// The connection of a host.
pub(crate) async fn connect(nats: &Nats, host: &str) -> Link {
    Link::connect(&options(nats, host)).await.unwrap()
}

pub(crate) fn options(nats: &Nats, host: &str) -> Options {
    Options { servers: nats.urls(), host: host.to_owned(), ..Options::default() }
}

/// A host of this name in a new life.
pub(crate) fn host(link: &Link, name: &str) -> Logs {
    Logs::new(link.clone(), Owner::new(name), PATIENCE)
}

pub(crate) fn job(id: &str) -> JobName {
    JobName { member: "researcher".parse().unwrap(), job: id.parse().unwrap() }
}

pub(crate) fn text(text: &str) -> Content {
    Content::Text { text: text.to_owned() }
}

/// Begins a job that the host holds.
pub(crate) async fn begin(logs: &Logs, name: &JobName) -> Writer {
    assert!(birth(logs, name, true).await.is_some());
    let born = logs.read(name).await.unwrap();
    Writer::start(logs.clone(), name.clone(), &born, head("running"), &Handle::current())
}

/// Begins a job, and returns its first sequence.
pub(crate) async fn birth(logs: &Logs, name: &JobName, hold: bool) -> Option<u64> {
    let files = BTreeMap::from([("task.md".to_owned(), text("Look."))]);
    let append = Append { head: head("running"), ..Append::default() };
    logs.begin(name, json!({"runtime": "api"}), files, hold, append).await.unwrap()
}

pub(crate) fn head(status: &str) -> String {
    json!({"status": status}).to_string()
}

/// An end with this status.
pub(crate) fn end(status: &str) -> Append {
    Append { records: vec![Record::put("meta.json", status), Record::End], head: head(status), events: Vec::new() }
}
