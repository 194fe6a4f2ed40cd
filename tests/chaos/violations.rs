//! The checker finds each kind of violation in a history that was made up, and none in one without.

use serde_json::{Value, json};

use super::{
    check::findings,
    history::{Answered, Entry, Millis, Span},
};

fn span(host: &str, began: Millis, ended: Millis) -> Span {
    Span { host: host.to_owned(), began, ended }
}

fn seen(host: &str, at: Millis, status: Option<&str>) -> Entry {
    Entry::Seen { span: span(host, at, at + 10), job: "j1".to_owned(), status: status.map(str::to_owned) }
}

fn cancelled(at: Millis, status: Option<&str>) -> Entry {
    Entry::Cancelled { span: span("b", at, at + 10), job: "j1".to_owned(), status: status.map(str::to_owned) }
}

fn deleted(at: Millis, is_answered: bool) -> Entry {
    Entry::Deleted { span: span("b", at, at + 10), job: "j1".to_owned(), is_answered }
}

fn requested(host: &str, at: Millis, key: u32, turn: usize, notes: &[u32]) -> Entry {
    let answered = [(0, "box__do"), (1, "store_memory"), (3, "log_question")];
    let answered = answered.into_iter().filter(|(of, _)| *of < turn);
    let answered = answered.map(|(turn, tool)| Answered { turn, tool: tool.to_owned(), is_done: true });
    Entry::Requested { at, host: host.to_owned(), key, turn, notes: notes.to_vec(), answered: answered.collect() }
}

fn effect(at: Millis, turn: usize) -> Entry {
    Entry::Effect { at, key: 1, turn }
}

fn event(id: &str, kind: &str) -> Entry {
    let [host, id, kind, job] = ["a", id, kind, "j1"].map(str::to_owned);
    Entry::Event { at: 0, host, id, kind, job }
}

fn last(host: &str, round: u32, status: Option<Value>) -> Entry {
    let (host, job, artifacts) = (host.to_owned(), "j1".to_owned(), vec!["1 coin".to_owned()]);
    Entry::Final { host, round, job, status, result: json!({"output": "done"}), artifacts }
}

fn logged(sequence: u64, expected: u64, writer: &str, holder: Option<&str>, epoch: u64) -> Entry {
    let (job, writer, holder) = ("j1".to_owned(), writer.to_owned(), holder.map(str::to_owned));
    Entry::Logged { job, sequence, expected, writer, holder, epoch, is_rollup: false }
}

fn completed() -> Value {
    json!({"status": "completed", "questions": ["who?"], "decisions": null})
}

/// A job that completes, though its host changes.
fn sound() -> Vec<Entry> {
    vec![
        Entry::Dispatched { span: span("a", 0, 10), key: 1, job: "j1".to_owned() },
        event("1", "job-started"),
        requested("a", 20, 1, 0, &[]),
        seen("b", 30, Some("running")),
        effect(40, 0),
        requested("a", 50, 1, 1, &[]),
        requested("b", 60, 1, 1, &[]),
        requested("b", 70, 1, 2, &[]),
        requested("b", 80, 1, 4, &[]),
        event("2", "job-resumed"),
        event("3", "job-ended"),
        seen("c", 90, Some("completed")),
        seen("a", 9_000, Some("completed")),
        logged(5, 0, "a#1", Some("a#1"), 1),
        logged(7, 5, "a#1", Some("a#1"), 1),
        logged(8, 7, "b#1", Some("b#1"), 2),
        logged(9, 8, "b#1", None, 2),
        last("a", 0, Some(completed())),
        last("b", 0, Some(completed())),
        last("a", 1, Some(completed())),
        last("b", 1, Some(completed())),
    ]
}

/// Whether the checker finds just this in the sound history after a change.
fn finds(change: impl FnOnce(&mut Vec<Entry>), finding: &str) {
    let mut history = sound();
    change(&mut history);
    let found = findings(&history);
    assert!(!found.is_empty() && found.iter().all(|one| one.contains(finding)), "{finding:?}, not {found:?}");
}

/// Whether the checker finds nothing in the sound history after a change.
fn allows(change: impl FnOnce(&mut Vec<Entry>)) {
    let mut history = sound();
    change(&mut history);
    assert_eq!(findings(&history), [""; 0]);
}

/// Replaces the answers at the end of the history.
fn ends(history: &mut Vec<Entry>, status: Option<&str>) {
    history.retain(|entry| !matches!(entry, Entry::Final { .. }));
    history.extend(
        ["a", "b"].map(|host| last(host, 0, status.map(|status| json!({"status": status, "questions": ["who?"]})))),
    );
}

#[test]
fn a_history_without_violations_has_no_findings() {
    allows(|_| {});
}

#[test]
fn a_job_that_is_lost_doubled_or_never_ends_is_found() {
    finds(
        |history| history.retain(|entry| !matches!(entry, Entry::Final { .. })),
        "(1) the job j1 was dispatched, and nobody",
    );
    finds(|history| ends(history, None), "does not know it");
    finds(|history| ends(history, Some("running")), "has no end at");
    let twice = Entry::Dispatched { span: span("b", 20, 30), key: 1, job: "j2".to_owned() };
    finds(
        |history| {
            let mut other = last("a", 0, Some(completed()));
            if let Entry::Final { job, .. } = &mut other {
                "j2".clone_into(job);
            }
            history.extend([twice, other]);
            history.retain(|entry| !matches!(entry, Entry::Event { .. }));
        },
        "(1) the key 1 has two jobs, j1 and j2",
    );
}

#[test]
fn a_broken_log_and_an_append_of_another_host_are_found() {
    finds(
        |history| history.push(logged(12, 10, "b#1", None, 2)),
        "(1) the message 12 of j1 was appended after 10, and follows 9",
    );
    let stale = logged(10, 9, "a#1", Some("b#1"), 2);
    finds(
        |history| {
            history.retain(|entry| !matches!(entry, Entry::Logged { sequence: 9, .. }));
            history.extend([logged(9, 8, "b#1", Some("b#1"), 2), stale]);
        },
        "(1) a#1 appended 10 to j1, which b#1 held in epoch 2",
    );
    // A cancel at another host ends the job of its owner.
    allows(|history| {
        history.retain(|entry| !matches!(entry, Entry::Logged { sequence: 9, .. }));
        history.push(logged(9, 8, "c#4", None, 2));
    });
}

#[test]
fn an_answer_that_differs_from_host_to_host_or_later_is_found() {
    let other = json!({"status": "completed", "questions": ["who?"], "decisions": null, "summary": "s"});
    for (host, round) in [("b", 0), ("a", 1)] {
        let changed = last(host, round, Some(other.clone()));
        finds(|history| history.push(changed), &format!("(2) {host} answers for j1 in round {round}"));
    }
    let mut artifact = last("b", 1, Some(completed()));
    if let Entry::Final { artifacts, .. } = &mut artifact {
        artifacts.clear();
    }
    finds(|history| history.push(artifact), "(2) b answers for j1 in round 1");
}

#[test]
fn an_end_that_changes_is_found() {
    finds(
        |history| history.push(seen("b", 10_000, Some("failed"))),
        "(3) b says failed of j1 at 10010, and a said completed",
    );
    finds(|history| history.push(seen("b", 10_000, Some("running"))), "(3) b says running of j1");
    finds(|history| history.push(cancelled(10_000, Some("cancelled"))), "(3) b says cancelled of j1");
    finds(|history| history.push(seen("b", 10_000, None)), "(3) b does not know j1");
    finds(|history| history.push(seen("b", 150, Some("running"))), "(3) b says running of j1");
    // A host that is cut off answers as it knows.
    let hole = Entry::Faulted { kind: String::new(), hosts: vec!["b".to_owned()], began: 80, ended: 9_500 };
    allows(|history| history.extend([hole, seen("b", 9_400, Some("running"))]));
}

#[test]
fn a_job_that_goes_on_after_a_cancel_or_a_deletion_is_found() {
    finds(
        |history| {
            history.retain(|entry| !matches!(entry, Entry::Seen { .. }));
            history.extend([cancelled(85, Some("cancelled")), seen("c", 9_000, Some("completed"))]);
        },
        "(3) c says completed of j1 at 9010, and b said cancelled at 95",
    );
    let delete = |history: &mut Vec<Entry>| {
        history.push(deleted(9_500, true));
        ends(history, None);
    };
    allows(delete);
    finds(
        |history| {
            delete(history);
            history.push(seen("c", 12_000, Some("completed")));
        },
        "(3) c knows j1 at 12010, after its deletion",
    );
    finds(
        |history| {
            history.push(deleted(9_500, true));
            ends(history, None);
            history.push(last("c", 1, Some(completed())));
        },
        "(2) c answers for j1",
    );
    // A deletion that was not answered may have been carried out.
    allows(|history| {
        history.push(deleted(9_500, false));
        ends(history, None);
    });
}

#[test]
fn an_effect_that_comes_twice_or_never_and_a_doubled_question_are_found() {
    finds(|history| history.insert(5, effect(41, 0)), "(4) the call in the turn 0 of errand 1 had its effect 2 times");
    finds(
        |history| history.retain(|entry| !matches!(entry, Entry::Effect { .. })),
        "(4) the call of box__do in the turn 0 of errand 1 was answered without its effect",
    );
    for questions in [json!(["who?", "who?"]), json!(null)] {
        let status = json!({"status": "completed", "questions": questions});
        finds(
            |history| {
                history.retain(|entry| !matches!(entry, Entry::Final { .. }));
                history.extend(["a", "b"].map(|host| last(host, 0, Some(status.clone()))));
            },
            "questions, and its session was told of 1",
        );
    }
}

#[test]
fn a_turn_that_is_asked_for_again_is_found() {
    finds(|history| history.push(requested("a", 95, 1, 0, &[])), "(5) ");
    finds(
        |history| history.push(requested("c", 75, 1, 1, &[])),
        "(5) the turn 1 of errand 1 was asked for 3 times by 2 owners",
    );
    // A request that was under way when its host was stopped comes as the host goes on, and no later.
    let after_a_pause = |history: &mut Vec<Entry>, at: Millis| {
        let (kind, hosts) = ("SIGSTOP host for 40 s".to_owned(), vec!["a".to_owned()]);
        history.push(Entry::Faulted { kind, hosts, began: 1, ended: 40_000 });
        history.push(requested("a", at, 1, 0, &[]));
    };
    allows(|history| after_a_pause(history, 40_100));
    finds(|history| after_a_pause(history, 40_300), "(5) a asked at 40300 for the turn 0 of errand 1");
}

#[test]
fn a_note_that_is_missing_afterwards_is_found() {
    let next = |notes: &[u32]| {
        let mut ended = last("a", 0, Some(json!({"status": "completed"})));
        if let Entry::Final { job, .. } = &mut ended {
            "j2".clone_into(job);
        }
        let dispatched = Entry::Dispatched { span: span("c", 10_000, 10_010), key: 2, job: "j2".to_owned() };
        [dispatched, requested("c", 10_020, 2, 0, notes), ended]
    };
    let untold = |history: &mut Vec<Entry>| history.retain(|entry| !matches!(entry, Entry::Event { .. }));
    allows(|history| {
        untold(history);
        history.extend(next(&[1]));
    });
    finds(
        |history| {
            untold(history);
            history.extend(next(&[]));
        },
        "(6) errand 2 at c was begun without the note of 1",
    );
    // A caller ended the job at another host while the note was under way.
    allows(|history| {
        untold(history);
        history.push(seen("c", 55, Some("completed")));
        history.extend(next(&[]));
    });
}

#[test]
fn events_that_are_lost_repeated_or_out_of_order_are_found() {
    let is_event = |entry: &Entry, of: &str| matches!(entry, Entry::Event { kind, .. } if kind == of);
    finds(|history| history.retain(|entry| !is_event(entry, "job-ended")), "(7) the event job-ended of j1 is lost");
    finds(|history| history.push(event("3", "job-ended")), "(7) a sent the event 3 once more");
    finds(|history| history.push(event("4", "job-resumed")), "(7) the events of j1 came as");
    finds(|history| history.insert(0, event("0", "job-resumed")), "(7) the events of j1 came as");
    // A subscriber that is told of a gap may miss what was meanwhile.
    allows(|history| {
        history.retain(|entry| !is_event(entry, "job-ended"));
        history.push(Entry::Gap { after: 9, upto: 20, host: "b".to_owned() });
    });
    finds(
        |history| {
            history.retain(|entry| !is_event(entry, "job-ended"));
            history.push(Entry::Gap { after: 10, upto: 20, host: "b".to_owned() });
        },
        "(7) the event job-ended of j1 is lost",
    );
    // Where a message has replaced the log, an earlier gap may have covered the beginning of the job.
    let replaced = |history: &mut Vec<Entry>| {
        history.retain(|entry| !matches!(entry, Entry::Logged { sequence: ..9, .. }));
        history.iter_mut().for_each(|entry| {
            if let Entry::Logged { is_rollup, .. } = entry {
                *is_rollup = true;
            }
        });
        history.retain(|entry| !is_event(entry, "job-started"));
    };
    allows(|history| {
        replaced(history);
        history.push(Entry::Gap { after: 1, upto: 3, host: "b".to_owned() });
    });
    finds(replaced, "(7) the event job-started of j1 is lost");
}

#[test]
fn something_that_is_left_over_is_found() {
    finds(|history| history.push(Entry::Left { what: "the process 7".to_owned() }), "(8) the process 7 is left over");
}
