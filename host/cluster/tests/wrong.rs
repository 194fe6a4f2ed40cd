//! Servers, streams and messages that a host cannot work with: each is refused with the remedy.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
};

use async_nats::{
    HeaderMap,
    jetstream::{self, stream::DiscardPolicy},
};
use common::*;
use guild_cluster::{
    link::{Link, Options},
    log::Append,
    record::{Needs, Record},
    streams::Capacity,
};
use guild_fakes::{Nats, free_node_ports};

#[tokio::test]
async fn a_stream_of_another_shape_is_named_with_its_setting_and_the_remedy() {
    let (nats, link) = single().await;
    link.check_streams().await.unwrap();
    let context = jetstream::new(async_nats::connect(nats.urls()).await.unwrap());
    let mut config = context.get_stream("guild_log").await.unwrap().cached_info().config.clone();
    config.discard = DiscardPolicy::Old;
    context.update_stream(config).await.unwrap();
    let error = link.check_streams().await.unwrap_err().to_string();
    for part in ["guild_log", "discard Old", "New", "nats stream edit guild_log"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test]
async fn a_size_for_which_there_is_no_room_and_too_many_servers_are_refused_with_the_options_to_change() {
    let nats = tokio::task::spawn_blocking(|| Nats::start(1)).await.unwrap();
    let link = connect(&nats, "a").await;
    let usual = Capacity { replicas: 1, log_bytes: -1, blob_bytes: -1, other_bytes: -1 };
    for wrong in [Capacity { log_bytes: 1 << 50, ..usual }, Capacity { replicas: 3, ..usual }] {
        let error = link.create_streams(&wrong).await.unwrap_err().to_string();
        for part in ["guild_log", "--log-gib", "--replicas"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    link.create_streams(&usual).await.unwrap();
    // A stream that was made with another size is there, and stays.
    link.create_streams(&Capacity { log_bytes: 1 << 30, ..usual }).await.unwrap();
}

#[tokio::test]
async fn a_server_before_the_first_version_that_is_known_to_work_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let monitor = format!("http://{}", listener.local_addr().unwrap());
    let answer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        let body = r#"{"server_name":"n1","version":"2.13.9","now":"2026-01-01T00:00:00Z","jetstream":{"config":{"sync_always":true}}}"#;
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()).unwrap();
    });
    let error = Link::check_server(&monitor, None).await.unwrap_err().to_string();
    assert!(error.contains("2.13.9") && error.contains("2.14 or later") && error.contains(&monitor), "{error}");
    answer.join().unwrap();
}

#[tokio::test]
async fn a_server_that_takes_only_small_messages_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_node_ports(1)[0];
    let config = format!(
        "listen: 127.0.0.1:{port}\nmax_payload: 65536\njetstream {{ store_dir: \"data\", sync_interval: always }}\n"
    );
    fs::write(directory.path().join("nats.conf"), config).unwrap();
    let nodes = [(directory.path().to_owned(), port)];
    let nats = tokio::task::spawn_blocking(move || Nats::start_in(&nodes)).await.unwrap();
    let options = Options { servers: nats.urls(), host: "a".to_owned(), ..Options::default() };
    let error = Link::connect(&options).await.unwrap().check_streams().await.unwrap_err().to_string();
    assert!(error.contains("65536") && error.contains("max_payload"), "{error}");
}

#[tokio::test]
async fn records_of_a_later_version_ask_for_an_upgrade_and_stay_as_they_are() {
    let (nats, link) = single().await;
    let (a, name) = (host(&link, "a"), job("j1"));
    birth(&a, &name, false).await.unwrap();
    let context = jetstream::new(async_nats::connect(nats.urls()).await.unwrap());
    let mut stream = context.get_stream("guild_log").await.unwrap();
    let born = stream.get_last_raw_message_by_subject("guild.log.researcher.j1").await.unwrap();
    let mut headers = HeaderMap::new();
    for (key, values) in born.headers.iter() {
        values.iter().for_each(|value| headers.append(key.to_string(), value.clone()));
    }
    headers.insert("Guild-Version", "999");
    headers.insert("Guild-Id", "z#1.1");
    headers.insert("Nats-Expected-Last-Subject-Sequence", born.sequence.to_string());
    context
        .publish_with_headers("guild.log.researcher.j1", headers, born.payload.clone())
        .await
        .unwrap()
        .await
        .unwrap();
    let error = a.read(&name).await.unwrap_err().to_string();
    assert!(error.contains("version 999") && error.contains("upgrade this host"), "{error}");
    // Nobody takes it, so a host of that version finds it as it was.
    assert!(a.take(&name, 0, |_| true).await.is_err());
    assert_eq!(stream.info().await.unwrap().state.messages, 2);
}

#[tokio::test]
async fn a_head_that_is_too_large_for_a_message_is_refused_and_the_log_stays() {
    let (_nats, link) = single().await;
    let (a, name) = (host(&link, "a"), job("j1"));
    let large = Append { head: "x".repeat(2 * 1024 * 1024), ..Append::default() };
    let error = a.begin(&name, Needs::of("api"), Default::default(), false, large).await.unwrap_err().to_string();
    assert!(error.contains("guild.log.researcher.j1") || error.contains("too large"), "{error}");
    // Another dispatch is stored, and records of any size are.
    let writer = begin(&a, &name).await;
    writer.record(Record::add("log.txt", "x".repeat(3 * 1024 * 1024)));
    writer.settled(None).await.unwrap();
    let read = a.read(&name).await.unwrap();
    assert_eq!(a.content(read.files.get("log.txt").unwrap()).await.unwrap().len(), 3 * 1024 * 1024);
    link.create_streams(&Capacity { replicas: 1, log_bytes: -1, blob_bytes: -1, other_bytes: -1 }).await.unwrap();
}
