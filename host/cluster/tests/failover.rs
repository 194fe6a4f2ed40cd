//! Three real servers, of which the leader is killed, paused and restarted while jobs go on.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use common::*;
use guild_cluster::{
    link::{Link, Options},
    record::Record,
};
use guild_fakes::Nats;
use tokio::{
    runtime::Builder,
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};

/// The number of a node, from 0, by its name.
fn number(node: &str) -> usize {
    node.strip_prefix('n').unwrap().parse::<usize>().unwrap() - 1
}

/// The number of the node that leads the logs.
async fn leader(link: &Link) -> usize {
    loop {
        let leader = link.states().await.ok().and_then(|states| {
            let log = states.into_iter().find(|state| state.stream == "guild_log")?;
            Some(number(&log.leader?))
        });
        match leader {
            Some(node) => return node,
            None => sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Waits until more appends are acknowledged, and returns how long that took.
async fn until_more(acknowledged: &AtomicU64) -> Duration {
    let (begun, before) = (Instant::now(), acknowledged.load(Ordering::SeqCst));
    while acknowledged.load(Ordering::SeqCst) < before + 20 {
        sleep(Duration::from_millis(10)).await;
    }
    begun.elapsed()
}

async fn ready(nats: &mut Nats, node: usize) {
    tokio::task::block_in_place(|| nats.wait_until_ready(node));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_and_no_chain_breaks_when_leaders_die() {
    const JOBS: u64 = 4;
    let (mut nats, link) = cluster(3).await;
    let a = host(&link, "a");
    let (acknowledged, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let chains = (0..JOBS).map(|number| {
        let (a, acknowledged, is_over) = (a.clone(), acknowledged.clone(), is_over.clone());
        tokio::spawn(async move {
            let name = job(&format!("j{number}"));
            let writer = begin(&a, &name).await;
            let mut next = 0_u64;
            while is_over.load(Ordering::SeqCst) == 0 {
                writer.record(Record::add("log.txt", format!("{next}\n")));
                writer.settled(None).await.unwrap();
                acknowledged.fetch_add(1, Ordering::SeqCst);
                next += 1;
            }
            assert!(!writer.is_lost(), "a lone writer never loses its job");
            (name, next)
        })
    });
    let chains: Vec<_> = chains.collect();
    until_more(&acknowledged).await;
    let killed = leader(&link).await;
    nats.kill(killed);
    let after_kill = until_more(&acknowledged).await;
    nats.restart(killed);
    ready(&mut nats, killed).await;
    until_more(&acknowledged).await;
    let paused = leader(&link).await;
    nats.pause(paused);
    let after_pause = until_more(&acknowledged).await;
    nats.resume(paused);
    until_more(&acknowledged).await;
    // The server that the host is connected to stands still, and closes no connection.
    let connected = number(&link.server());
    nats.pause(connected);
    let after_silence = until_more(&acknowledged).await;
    nats.resume(connected);
    until_more(&acknowledged).await;
    is_over.store(1, Ordering::SeqCst);
    println!("without an append: {after_kill:?}, {after_pause:?} and {after_silence:?}");
    let reader = host(&connect(&nats, "b").await, "b");
    for chain in chains {
        let (name, count) = chain.await.unwrap();
        // A server that lags may lack the newest records for a moment.
        let read = loop {
            let read = reader.read(&name).await.unwrap();
            let log = reader.content(read.files.get("log.txt").unwrap()).await.unwrap();
            let log = String::from_utf8(log).unwrap();
            if log.lines().count() as u64 >= count {
                break log;
            }
            sleep(Duration::from_millis(10)).await;
        };
        let expected: String = (0..count).map(|number| format!("{number}\n")).collect();
        assert_eq!(read, expected);
    }
    println!("{} appends", acknowledged.load(Ordering::SeqCst));
}

#[test]
fn a_host_whose_blocking_threads_all_wait_connects_again() {
    let runtime = Builder::new_multi_thread().worker_threads(2).max_blocking_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut nats, _) = single().await;
        // The client looks the name up on a thread that may block.
        let servers = nats.urls().iter().map(|url| url.replace("127.0.0.1", "localhost")).collect();
        let link = Link::connect(&Options { servers, ..options(&nats, "b") }).await.unwrap();
        let (free, taken) = mpsc::channel::<()>();
        spawn_blocking(move || taken.recv());
        nats.kill(0);
        nats.restart(0);
        let answers = async {
            while link.states().await.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, answers).await.unwrap();
        drop(free);
    });
}
