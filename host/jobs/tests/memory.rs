//! What a member remembers, and how it is condensed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails its test")]

mod common;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use common::{Member, eventually};
use guild_contract::{JobId, Limits, Usage};
use guild_jobs::{Condense, Condensed, Condenser, MemoryStore, memory::Source};
use guild_session::{activation::MemoryNote, meter::Account, tools::ToolError};
use tokio::{runtime::Handle, sync::oneshot};

fn invalid(result: Result<(), ToolError>) -> String {
    match result {
        Err(ToolError::InvalidInput(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// Sets a memory's time: so many seconds after some moment.
fn touch(member: &Member, key: &str, seconds: u64) {
    let file = std::fs::File::options().write(true).open(member.path(&format!("memory/{key}.md"))).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)).unwrap();
}

/// In the order of the alphabet.
fn keys(memory: &MemoryStore) -> Vec<String> {
    let mut keys: Vec<_> = memory.list().unwrap().into_iter().map(|entry| entry.key).collect();
    keys.sort();
    keys
}

#[test]
fn nothing_is_remembered_at_first() {
    let member = Member::new();
    let memory = member.memory();
    assert_eq!(memory.injection_text(), "");
    assert_eq!(memory.load("a").unwrap(), None);
    assert!(!memory.delete("a").unwrap());
}

#[test]
fn a_memory_is_a_file_and_an_existing_key_is_overwritten() {
    let member = Member::new();
    let memory = member.memory();
    memory.store("rust-book", "first", None).unwrap();
    memory.store("rust-book", "the Rust Book is good", None).unwrap();
    assert_eq!(member.read("memory/rust-book.md"), "the Rust Book is good");
    assert_eq!(memory.load("rust-book").unwrap().unwrap(), "the Rust Book is good");
    memory.store("b", "äöü", None).unwrap();
    assert_eq!(memory.list().unwrap().iter().find(|entry| entry.key == "b").unwrap().bytes, 6);
    assert!(memory.delete("b").unwrap());
    assert_eq!(keys(&memory), ["rust-book"]);
    // The directory is made again where a person took it away.
    member.dir.remove_dir_all("memory").unwrap();
    memory.store("c", "c", None).unwrap();
    assert_eq!(keys(&memory), ["c"]);
}

#[test]
fn only_valid_keys_are_accepted() {
    let member = Member::new();
    let memory = member.memory();
    let long = "k".repeat(65);
    for key in ["", ".", "..", "a/b", "../a", "a\0", "a b", "ü", "a.md", &long] {
        assert!(invalid(memory.store(key, "c", None)).starts_with("key must be"), "{key:?}");
        assert!(memory.load(key).is_err() && memory.delete(key).is_err(), "{key:?}");
    }
    for key in ["compacted", "Compacted", "COMPACTED"] {
        assert!(invalid(memory.store(key, "c", None)).contains("the host's"));
        assert!(memory.delete(key).is_err());
    }
    memory.store("Rust", "c", None).unwrap();
    assert!(invalid(memory.store("rust", "c", None)).contains("differing in case only"));
    assert!(invalid(memory.store("a", " \n", None)).contains("content"));
    memory.store(&"k".repeat(64), "c", None).unwrap();
    assert_eq!(member.dir.read_dir("memory").unwrap().count(), 3);
}

#[test]
fn a_memory_that_could_never_be_injected_is_refused() {
    let member = Member::with(Limits { memory_injection_chars: 10, memory_entries: 2, ..Limits::default() });
    let memory = member.memory();
    memory.store("a", "äöüäöüäöüä", None).unwrap();
    let error = memory.store("b", "12345678901", None).unwrap_err();
    assert!(error.to_string().contains("limits.memory_injection_chars"));
    memory.store("b", "b", None).unwrap();
    assert!(memory.store("c", "c", None).unwrap_err().to_string().contains("the fixed limit memory_entries"));
    memory.store("b", "again", None).unwrap();
    assert_eq!(memory.injection_text(), "again");
}

#[test]
fn injection_is_newest_first_whole_and_within_the_cap() {
    let member = Member::with(Limits { memory_injection_chars: 20, ..Limits::default() });
    let memory = member.memory();
    for (n, (key, content)) in [("d", "dddddddd"), ("c", "cc"), ("b", "bbbb"), ("a", "aaa")].into_iter().enumerate() {
        memory.store(key, content, None).unwrap();
        touch(&member, key, n as u64);
    }
    // 3 + 5 + 4 + 5 + 2 = 19; the oldest does not fit any more.
    assert_eq!(memory.injection_text(), "aaa\n---\nbbbb\n---\ncc");
    touch(&member, "d", 9);
    // The newest now; what no longer fits ends it, also where something smaller follows.
    assert_eq!(memory.injection_text(), "dddddddd\n---\naaa");
    let listed: Vec<_> = memory.list().unwrap().into_iter().map(|entry| entry.key).collect();
    assert_eq!(listed, ["d", "a", "b", "c"]);
    let note = &memory.injection()[0];
    assert_eq!((note.key.as_str(), note.modified.as_str()), ("d", "2023-11-14T22:13:29.000Z"));
}

#[test]
fn what_a_person_put_there_is_taken_if_it_can_be() {
    let member = Member::with(Limits { memory_injection_chars: 10, ..Limits::default() });
    let memory = member.memory();
    memory.store("a", "own", None).unwrap();
    for (name, contents) in [("my notes.md", b"by hand" as &[u8]), ("huge.md", &[b'x'; 11]), ("odd.md", b"\xff\xfe")] {
        member.dir.write(format!("memory/{name}"), contents).unwrap();
    }
    member.dir.write("memory/readme.txt", "no memory").unwrap();
    member.dir.create_dir("memory/dir.md").unwrap();
    member.dir.symlink("../secret", "memory/link.md").unwrap();
    member.dir.write("secret", "secret").unwrap();
    touch(&member, "a", 1);
    touch(&member, "my notes", 0);
    assert_eq!(memory.injection_text(), "own");
    touch(&member, "my notes", 2);
    assert_eq!(memory.injection_text(), "by hand");
    assert!(memory.load("link").is_err());
    assert!(memory.load("huge").is_ok() && memory.load("odd").is_ok());
}

#[test]
fn an_origin_is_given_while_the_text_is_what_was_stored() {
    let member = Member::new();
    let memory = member.memory();
    let job: JobId = "job-1".parse().unwrap();
    memory.store("a", "fact", Some(Source { job: &job, call: None, writer: None })).unwrap();
    let origin = || member.memory().injection()[0].origin.clone();
    assert_eq!(origin(), Some(job.clone()));
    member.dir.write("memory/a.md", "forged").unwrap();
    assert_eq!(origin(), None);
    member.dir.write("memory/a.md", "fact").unwrap();
    assert_eq!(origin(), Some(job));
    memory.store("a", "fact", None).unwrap();
    assert_eq!(origin(), None);
    member.dir.write("memory/.origin.json", "{").unwrap();
    assert_eq!(memory.injection_text(), "fact");
}

#[test]
fn what_a_crash_left_and_origins_of_what_is_gone_are_cleaned_up() {
    let member = Member::new();
    let memory = member.memory();
    let job: JobId = "job-1".parse().unwrap();
    memory.store("gone", "fact", Some(Source { job: &job, call: None, writer: None })).unwrap();
    member.dir.remove_file("memory/gone.md").unwrap();
    member.dir.write("memory/.tmp-half.md", "ha").unwrap();
    let memory = member.memory();
    assert!(!member.dir.exists("memory/.tmp-half.md"));
    memory.store("kept", "fact", Some(Source { job: &job, call: None, writer: None })).unwrap();
    let origins = member.read("memory/.origin.json");
    assert!(origins.contains("kept") && !origins.contains("gone"), "{origins}");
}

type Answer = oneshot::Receiver<Result<String, String>>;

/// A condenser that says what it was given and waits to be told what to answer.
struct Gate {
    calls: Arc<AtomicUsize>,
    given: Arc<Mutex<Vec<MemoryNote>>>,
    answer: Arc<Mutex<Option<Answer>>>,
}

impl Gate {
    fn new(memory: &MemoryStore) -> Self {
        let gate = Self { calls: Arc::default(), given: Arc::default(), answer: Arc::default() };
        let (calls, given, answer) = (gate.calls.clone(), gate.given.clone(), gate.answer.clone());
        let condense: Condense = Arc::new(move |notes, _, _| {
            *given.lock().unwrap() = notes;
            let answer = answer.lock().unwrap().take();
            calls.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move {
                let text = answer.unwrap().await.unwrap();
                let usage = Usage { turns: 1, cost_usd: Some(0.01), ..Usage::default() };
                Condensed { text, account: Account { usage, ..Account::default() }, seconds: 0.5 }
            })
        });
        memory.set_condenser(Condenser { agent: "extractive".into(), condense }, Handle::current());
        gate
    }

    fn next(&self) -> oneshot::Sender<Result<String, String>> {
        let (tell, answer) = oneshot::channel();
        *self.answer.lock().unwrap() = Some(answer);
        tell
    }

    fn was_called(&self, times: usize) {
        eventually("the condenser is called", || self.calls.load(Ordering::SeqCst) == times);
    }
}

fn small() -> Member {
    Member::with(Limits { memory_injection_chars: 40, memory_compaction_chars: 50, ..Limits::default() })
}

/// As a dispatched job stores.
fn store(memory: &Arc<MemoryStore>, key: &str, content: &str) {
    memory.store(key, content, None).unwrap();
    memory.compact_if_large();
}

/// Three memories, 60 characters together.
fn fill(memory: &Arc<MemoryStore>) {
    for key in ["a", "b", "c"] {
        store(memory, key, &key.repeat(20));
    }
}

fn ended(memory: &MemoryStore) {
    eventually("the compaction ends", || !memory.is_compacting());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_begins_one_character_above_the_threshold_and_has_its_own_budget() {
    let limits = Limits { memory_compaction_chars: 50, compaction_budget_usd: 0.02, ..Limits::default() };
    let member = Member::with(limits);
    let memory = member.memory();
    let budget = Arc::new(Mutex::new(None));
    let given = budget.clone();
    let condense: Condense = Arc::new(move |_, _, bounds| {
        *given.lock().unwrap() = bounds.max_budget_usd;
        Box::pin(async { Condensed { text: Ok("short".into()), account: Account::default(), seconds: 0.1 } })
    });
    memory.set_condenser(Condenser { agent: "extractive".into(), condense }, Handle::current());
    store(&memory, "a", &"a".repeat(50));
    ended(&memory);
    assert_eq!(*budget.lock().unwrap(), None);
    store(&memory, "b", "b");
    eventually("the compaction ends", || *budget.lock().unwrap() == Some(0.02) && !memory.is_compacting());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_than_four_times_the_threshold_is_condensed_at_once_and_the_rest_stays() {
    let member = small();
    let memory = member.memory();
    // A person put them there, all at once: 300 characters, and 50 is the threshold.
    for n in 0..15 {
        member.dir.write(format!("memory/{n}.md"), "x".repeat(20)).unwrap();
    }
    let gate = Gate::new(&memory);
    let tell = gate.next();
    store(&memory, "last", "one too many");
    gate.was_called(1);
    let given = || gate.given.lock().unwrap().iter().map(|note| note.content.len()).sum::<usize>();
    assert!((181..=200).contains(&given()), "{}", given());
    tell.send(Ok("short".into())).unwrap();
    ended(&memory);
    assert_eq!(memory.list().unwrap().len(), 1 + 16 - gate.given.lock().unwrap().len());

    // What was condensed before is among it, also where all others are newer.
    for n in 0..15 {
        member.dir.write(format!("memory/{n}.md"), "y".repeat(20)).unwrap();
    }
    touch(&member, "compacted", 0);
    let tell = gate.next();
    store(&memory, "last", "one too many");
    gate.was_called(2);
    assert!(gate.given.lock().unwrap().iter().any(|note| note.content == "short"));
    tell.send(Ok("shorter".into())).unwrap();
    ended(&memory);
    assert_eq!(member.read("memory/compacted.md"), "shorter");
}

#[tokio::test(flavor = "multi_thread")]
async fn memories_over_the_threshold_are_condensed_into_one() {
    let member = small();
    let memory = member.memory();
    let gate = Gate::new(&memory);
    let tell = gate.next();
    store(&memory, "a", &"a".repeat(20));
    store(&memory, "b", &"b".repeat(20));
    assert!(!memory.is_compacting());
    // This does not wait for the condenser, which has no answer yet.
    store(&memory, "c", &"c".repeat(20));
    gate.was_called(1);
    let mut given: Vec<_> = gate.given.lock().unwrap().iter().map(|note| note.content.clone()).collect();
    given.sort();
    assert_eq!(given, ["a".repeat(20), "b".repeat(20), "c".repeat(20)]);
    tell.send(Ok("abc".into())).unwrap();
    ended(&memory);
    assert_eq!(keys(&memory), ["compacted"]);
    assert_eq!(memory.injection_text(), "abc");

    // What was condensed before is condensed again with what is new.
    let tell = gate.next();
    fill(&memory);
    gate.was_called(2);
    assert!(gate.given.lock().unwrap().iter().any(|note| note.key == "compacted" && note.content == "abc"));
    tell.send(Ok("abc again".into())).unwrap();
    ended(&memory);
    assert_eq!(member.read("memory/compacted.md"), "abc again");
    assert_eq!(keys(&memory), ["compacted"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_meanwhile_stays() {
    let member = small();
    let memory = member.memory();
    let gate = Gate::new(&memory);
    let tell = gate.next();
    fill(&memory);
    gate.was_called(1);
    store(&memory, "new", "new");
    store(&memory, "a", &"A".repeat(20));
    member.dir.write("memory/b.md", "by hand").unwrap();
    tell.send(Ok("condensed".into())).unwrap();
    ended(&memory);
    assert_eq!(keys(&memory), ["a", "b", "compacted", "new"]);
    assert_eq!(memory.load("a").unwrap().unwrap(), "A".repeat(20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_that_was_rewritten_with_the_same_text_stays_too() {
    let member = small();
    let memory = member.memory();
    let gate = Gate::new(&memory);
    let tell = gate.next();
    fill(&memory);
    gate.was_called(1);
    store(&memory, "b", &"b".repeat(20));
    tell.send(Ok("condensed".into())).unwrap();
    ended(&memory);
    assert_eq!(keys(&memory), ["b", "compacted"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_compaction_runs_at_a_time() {
    let member = small();
    let memory = member.memory();
    let gate = Gate::new(&memory);
    let tell = gate.next();
    fill(&memory);
    gate.was_called(1);
    for _ in 0..5 {
        store(&memory, "c", &"c".repeat(20));
    }
    assert!(memory.is_compacting());
    tell.send(Err("no".into())).unwrap();
    ended(&memory);
    assert_eq!(gate.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_that_fails_changes_nothing_and_the_next_store_tries_again() {
    let member = small();
    let memory = member.memory();
    let gate = Gate::new(&memory);
    for (n, output) in [Err("no model".to_owned()), Ok(String::new()), Ok("x".repeat(21))].into_iter().enumerate() {
        let tell = gate.next();
        fill(&memory);
        gate.was_called(n + 1);
        tell.send(output).unwrap();
        ended(&memory);
        assert_eq!(keys(&memory), ["a", "b", "c"]);
    }
    // A condenser that panics ends its compaction too.
    drop(gate.next());
    store(&memory, "a", &"a".repeat(20));
    gate.was_called(4);
    ended(&memory);
    assert_eq!(keys(&memory), ["a", "b", "c"]);
    let tell = gate.next();
    store(&memory, "a", &"a".repeat(20));
    gate.was_called(5);
    tell.send(Ok("x".repeat(20))).unwrap();
    ended(&memory);
    assert_eq!(keys(&memory), ["compacted"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_compacted_md_is_not_overwritten() {
    let member = small();
    let memory = member.memory();
    let gate = Gate::new(&memory);
    let tell = gate.next();
    fill(&memory);
    gate.was_called(1);
    member.dir.write("memory/compacted.md", "by hand").unwrap();
    tell.send(Ok("condensed".into())).unwrap();
    ended(&memory);
    assert_eq!(keys(&memory), ["a", "b", "c", "compacted"]);
    assert_eq!(member.read("memory/compacted.md"), "by hand");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_between_write_and_unlink_is_made_good_by_the_next_compaction() {
    let member = small();
    let memory = member.memory();
    fill(&memory);
    member.dir.write("memory/compacted.md", "abc").unwrap();
    member.dir.write("memory/.tmp-d.md", "half").unwrap();
    let gate = Gate::new(&memory);
    let tell = gate.next();
    store(&memory, "a", &"a".repeat(20));
    gate.was_called(1);
    assert_eq!(gate.given.lock().unwrap().len(), 4);
    tell.send(Ok("abc".into())).unwrap();
    ended(&memory);
    assert_eq!(keys(&memory), ["compacted"]);
}

#[test]
fn without_a_condenser_nothing_is_compacted() {
    let member = small();
    let memory = member.memory();
    fill(&memory);
    assert!(!memory.is_compacting());
    assert_eq!(keys(&memory).len(), 3);
}
