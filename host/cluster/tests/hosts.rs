//! Several hosts on one real server: presence, the queue, and claims.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use common::*;
use guild_cluster::{
    claims::{Queue, Taken, take_next},
    error::StoreError,
    log::{JobName, Logs, Take},
    presence::{Card, Identity, Presence, read_cards},
    rules::{Holder, Times},
    seal::Key,
    watch::{JobSeen, Jobs},
};
use guild_fakes::Nats;
use tokio::{runtime::Handle, task::JoinSet, time::sleep};

/// Feeds a queue with all that the logs tell, until it is dropped.
async fn follow(nats: &Nats, logs: &Logs) -> (Arc<Queue>, JoinSet<()>) {
    let link = connect(nats, &logs.own().host).await;
    let (queue, own) = (Arc::new(Queue::default()), logs.own().clone());
    let mut jobs = Jobs::latest(link);
    while let Some(seen) = jobs.next().await {
        queue.hear(&seen, &own);
    }
    let (heard, mut task) = (queue.clone(), JoinSet::new());
    task.spawn(async move {
        loop {
            if let Some(seen) = jobs.next().await {
                heard.hear(&seen, &own);
            }
        }
    });
    (queue, task)
}

/// Takes jobs until there are none.
async fn take_all(queue: &Queue, logs: &Logs, presence: &Presence) -> Vec<JobName> {
    let mut taken = Vec::new();
    while let Some(Taken { name, job, .. }) = take_next(queue, logs, presence, |_, _| Some(())).await.unwrap() {
        assert_eq!(job.standing.holder, Holder::Held(logs.own().clone()));
        taken.push(name);
    }
    taken
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_take_each_of_200_waiting_jobs_once_and_lose_few_claims() {
    let (nats, link) = single().await;
    let (front, a, b) = (host(&link, "front"), host(&link, "a"), host(&link, "b"));
    for number in 0..200 {
        birth(&front, &job(&format!("j{number}")), false).await.unwrap();
    }
    let (here, there) = (join(&link, &a, 200).await, join(&link, &b, 200).await);
    let ((queue_a, _task_a), (queue_b, _task_b)) = (follow(&nats, &a).await, follow(&nats, &b).await);
    assert_eq!((queue_a.waiting(), queue_b.waiting()), (200, 200));
    // Both know of each other's places.
    while here.others().is_empty() || there.others().is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
    let (mut by_a, by_b) = tokio::join!(take_all(&queue_a, &a, &here), take_all(&queue_b, &b, &there));
    let lost = queue_a.claims().lost + queue_b.claims().lost;
    println!("{} and {} jobs, {lost} lost claims", by_a.len(), by_b.len());
    by_a.extend(by_b);
    by_a.sort();
    by_a.dedup();
    assert_eq!(by_a.len(), 200, "each job is taken once, and none is left");
    assert!(lost <= 10, "{lost} of 200 claims were lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_a_silent_host_are_taken_by_another_and_the_silent_one_learns_that_it_is_dead() {
    let (nats, link) = single().await;
    let (a, b) = (host(&link, "a"), host(&link, "b"));
    let gone = join(&link, &a, 10).await;
    let name = job("j1");
    let writer = begin(&a, &name).await;
    writer.settled(None).await.unwrap();
    let here = join(&link, &b, 10).await;
    let (queue, _task) = follow(&nats, &b).await;
    assert!(!here.is_over(a.own()), "the host is alive");
    let has_place = |_: &_, _: &_| Some(());
    assert!(take_next(&queue, &b, &here, has_place).await.unwrap().is_none());
    // The host's refreshes end, as those of a host that is lost.
    let silent_since = Instant::now();
    drop(gone);
    let mut changes = here.changes();
    while !here.is_over(a.own()) {
        changes.changed().await.unwrap();
    }
    assert!(silent_since.elapsed() >= TIMES.silent - TIMES.refresh * 2);
    queue.orphan(|owner| here.is_over(owner));
    let none = take_next(&queue, &b, &here, |_, _| None::<()>).await.unwrap();
    assert!(none.is_none(), "no job is taken without a place");
    let Taken { name: taken, .. } = take_next(&queue, &b, &here, has_place).await.unwrap().unwrap();
    assert_eq!(taken, name);
    assert!(writer.settled(None).await.is_ok(), "nothing was recorded since");
    writer.record(guild_cluster::record::Record::add("log.txt", "late"));
    assert!(writer.settled(None).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_may_be_silent_for_longer_is_given_that_time_by_all() {
    let (_nats, link) = single().await;
    let (a, b) = (host(&link, "a"), host(&link, "b"));
    let silent = TIMES.silent * 2;
    let gone = join_with(&link, &a, 1, "a", Times { silent, ..TIMES }).await.unwrap();
    let here = join(&link, &b, 1).await;
    let silent_since = Instant::now();
    drop(gone);
    let mut changes = here.changes();
    while !here.is_over(a.own()) {
        changes.changed().await.unwrap();
    }
    assert!(silent_since.elapsed() >= silent - TIMES.refresh * 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_declared_dead_begins_nothing_more() {
    let (mut nats, link) = single().await;
    let (a, b) = (host(&link, "a"), host(&link, "b"));
    let here = join(&link, &a, 1).await;
    assert!(here.may_begin());
    // A server that is away silences all hosts: nobody is declared dead, and nobody begins anything.
    nats.kill(0);
    while here.may_begin() {
        sleep(Duration::from_millis(20)).await;
    }
    sleep(TIMES.silent).await;
    nats.restart(0);
    while !here.may_begin() {
        sleep(Duration::from_millis(20)).await;
    }
    // Another host takes the name away, which the next refresh tells.
    let other = connect(&nats, "b").await;
    let next = Logs::new(other.clone(), guild_cluster::record::Owner::new("a"), PATIENCE);
    let _there = join_from(&other, &next, 1, "a").await.unwrap();
    assert!(here.died().await.contains("a later life"));
    assert!(!here.may_begin());
    assert!(!here.is_over(b.own()), "a dead host decides nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_host_of_a_name_is_refused_while_the_first_is_alive() {
    let (_nats, link) = single().await;
    let (first, second) = (host(&link, "a"), host(&link, "a"));
    let here = join_from(&link, &first, 1, "one").await.unwrap();
    let error = join_from(&link, &second, 1, "another").await.err().unwrap();
    assert_eq!(error, StoreError::SameName("a".to_owned()));
    // The same state directory cannot have two processes: this is the same host after a restart.
    let begun = Instant::now();
    let again = join_from(&link, &second, 1, "one").await.unwrap();
    assert!(begun.elapsed() < TIMES.silent);
    assert!(again.is_over(first.own()));
    assert!(here.died().await.contains("a later life"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_that_has_just_begun_is_not_taken_for_over() {
    let (_nats, link) = single().await;
    let (here, earlier) = (host(&link, "b"), host(&link, "a"));
    let here = join(&link, &here, 1).await;
    let _earlier = join(&link, &earlier, 1).await;
    while here.others().is_empty() {
        sleep(Duration::from_millis(20)).await;
    }
    // The other host reads cards now and then, and sees jobs at once.
    let (later, another) = (host(&link, "a"), host(&link, "c"));
    assert!(!here.is_over(later.own()) && !here.is_over(another.own()));
    let (_later, _another) = (join(&link, &later, 1).await, join(&link, &another, 1).await);
    assert!(!here.is_over(later.own()) && !here.is_over(another.own()));
    while !here.is_over(earlier.own()) {
        sleep(Duration::from_millis(20)).await;
    }
    assert!(!here.is_over(later.own()) && !here.is_over(another.own()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_leaves_hands_over_without_a_wait() {
    let (_nats, link) = single().await;
    let (a, b) = (host(&link, "a"), host(&link, "b"));
    let leaving = join(&link, &a, 1).await;
    let here = join(&link, &b, 1).await;
    let begun = Instant::now();
    let mut changes = here.changes();
    leaving.leave().await.unwrap();
    while !here.is_over(a.own()) {
        changes.changed().await.unwrap();
    }
    assert!(begun.elapsed() < TIMES.silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_host_sees_every_job_with_its_head_and_events_in_order() {
    let (nats, link) = single().await;
    let a = host(&link, "a");
    let (waits, held) = (job("j1"), job("j2"));
    birth(&a, &waits, false).await.unwrap();
    let writer = begin(&a, &held).await;
    let mut jobs = Jobs::latest(connect(&nats, "b").await);
    let mut seen = BTreeMap::new();
    while let Some(job) = jobs.next().await {
        seen.insert(job.name.clone(), job);
    }
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[&waits].standing.holder, Holder::Waiting);
    assert_eq!((seen[&held].head.as_str(), seen[&held].needs.runtime.as_str()), (&*head("running"), "api"));
    for number in 0..3 {
        writer.announce(format!("{{\"number\":{number}}}"));
        writer.show(head(&number.to_string()));
        writer.settled(None).await.unwrap();
    }
    let mut events = Vec::new();
    while events.len() < 3 {
        let job = jobs.next().await.unwrap();
        assert_eq!(job.writer, *a.own());
        events.push((job.events, job.head, job.sequence));
    }
    let expected: Vec<_> =
        (0..3).map(|number| (format!("[{{\"number\":{number}}}]"), head(&number.to_string()))).collect();
    assert_eq!(events.iter().map(|(event, head, _)| (event.clone(), head.clone())).collect::<Vec<_>>(), expected);
    // A client that has seen the first event is given the others, at any host.
    let mut since = Jobs::after(connect(&nats, "c").await, events[0].2);
    let again: Vec<JobSeen> = vec![since.next().await.unwrap(), since.next().await.unwrap()];
    assert_eq!(again.iter().map(|job| &job.events).collect::<Vec<_>>(), [&expected[1].0, &expected[2].0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_presence_without_the_clusters_seal_is_no_host() {
    let (nats, link) = single().await;
    let (a, b) = (host(&link, "a"), host(&link, "b"));
    let here = join(&link, &a, 1).await;
    let client = async_nats::connect(nats.urls()).await.unwrap();
    let forged = serde_json::json!({"value": "{\"host\":\"b\",\"incarnation\":\"1\",\"directory\":\"\",\"card\":{}}", "seal": "00"});
    async_nats::jetstream::new(client)
        .publish("$KV.guild_hosts.b", forged.to_string().into())
        .await
        .unwrap()
        .await
        .unwrap();
    let there = join(&link, &b, 1).await;
    while here.others().is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(here.others().len(), 1);
    assert_eq!(here.others()[0].owner, *b.own());
    assert!(there.may_begin());
    assert!(matches!(a.take(&job("none"), 0, |_| true).await.unwrap(), Take::NotFree(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_another_key_than_all_others_is_refused_until_their_cards_are_removed() {
    let (nats, link) = single().await;
    let (a, b) = (host(&link, "a"), host(&link, "b"));
    let here = join(&link, &a, 1).await;
    let runtime = Handle::current();
    let with_key = |key: u8| {
        let identity = Identity { owner: b.own().clone(), directory: "b".to_owned() };
        Presence::join(link.clone(), Key::new([key; 32]), identity, Card::default(), TIMES, &runtime)
    };
    let error = with_key(9).await.err().unwrap();
    assert_eq!(error, StoreError::OtherKey("a".to_owned()));
    let cards = read_cards(&link, &key(), 0).await.unwrap();
    assert_eq!((cards.hosts.len(), cards.unsealed.len()), (1, 0), "the refused host has written nothing");
    // `nats kv del` leaves an empty message.
    drop(here);
    let context = async_nats::jetstream::new(async_nats::connect(nats.urls()).await.unwrap());
    context.publish("$KV.guild_hosts.a", "".into()).await.unwrap().await.unwrap();
    let there = with_key(9).await.unwrap();
    assert!(there.unsealed().is_empty() && there.others().is_empty());
}
