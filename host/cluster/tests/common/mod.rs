//! Clusters of real servers for the tests.
#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::{collections::BTreeMap, time::Duration};

use guild_cluster::{
    error::StoreError,
    link::{Link, Options},
    log::{Append, JobName, Logs},
    presence::{Card, Identity, Presence},
    record::{Content, Folded, Needs, Owner, Record},
    rules::Times,
    seal::Key,
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
    let born = birth(logs, name, true).await.unwrap();
    Writer::start(logs.clone(), name.clone(), &born, head("running"), &Handle::current())
}

/// Begins a job.
pub(crate) async fn birth(logs: &Logs, name: &JobName, hold: bool) -> Option<Folded> {
    let files = BTreeMap::from([("task.md".to_owned(), text("Look."))]);
    let append = Append { head: head("running"), ..Append::default() };
    logs.begin(name, Needs::of("api"), files, hold, append).await.unwrap()
}

pub(crate) fn head(status: &str) -> String {
    json!({"status": status}).to_string()
}

/// An end with this status.
pub(crate) fn end(status: &str) -> Append {
    Append { records: vec![Record::put("meta.json", status), Record::End], head: head(status), events: Vec::new() }
}

/// Times that are short enough for a test, and long enough for a machine under load.
pub(crate) const TIMES: Times =
    Times { silent: Duration::from_secs(3), stop: Duration::from_secs(2), refresh: Duration::from_millis(200) };

/// The cluster's key.
pub(crate) fn key() -> Key {
    Key::new([7; 32])
}

/// A host appears with so many places, from a state directory of its own.
pub(crate) async fn join(link: &Link, logs: &Logs, places: u32) -> Presence {
    let directory = logs.own().host.clone();
    join_from(link, logs, places, &directory).await.unwrap()
}

pub(crate) async fn join_from(link: &Link, logs: &Logs, places: u32, directory: &str) -> Result<Presence, StoreError> {
    join_with(link, logs, places, directory, TIMES).await
}

/// [`join_from`], with other times than those of the other hosts.
pub(crate) async fn join_with(
    link: &Link,
    logs: &Logs,
    places: u32,
    directory: &str,
    times: Times,
) -> Result<Presence, StoreError> {
    let members = BTreeMap::from([("researcher".to_owned(), String::new())]);
    let card = Card { places: BTreeMap::from([("api".to_owned(), places)]), members, ..Card::default() };
    let identity = Identity { owner: logs.own().clone(), directory: directory.to_owned() };
    Presence::join(link.clone(), key(), identity, card, times, &Handle::current()).await
}
