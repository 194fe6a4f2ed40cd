//! Jobs that a host left running: those that can go on do, and no effect of theirs happens twice.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use common::{Member, start, status};
use guild_contract::{Decision, JobId, JobStatus, Limits, Meta, Resumption, Usage};
use guild_jobs::{JobStore, JobTools, Resume, RunningJob, Sealed, StoreOptions};
use guild_session::{
    tools::{ToolCall, Tools},
    transcript::Entry,
};
use serde_json::{Value, json};

/// Takes every job up, and keeps it; or says why not.
struct Takes {
    refusal: Option<String>,
    how: Resumption,
    seen: Mutex<Vec<Entry>>,
    jobs: Mutex<Vec<Arc<RunningJob>>>,
}

impl Default for Takes {
    fn default() -> Self {
        Self { refusal: None, how: Resumption::Together, seen: Mutex::default(), jobs: Mutex::default() }
    }
}

impl Resume for Takes {
    fn check(&self, _: &JobId, plan: &Sealed, history: &[Entry]) -> Result<(), String> {
        assert_eq!(plan.accepted.agent, "extractive");
        *self.seen.lock().unwrap() = history.to_vec();
        self.refusal.clone().map_or(Ok(()), Err)
    }

    fn resume(&self, job: Arc<RunningJob>) {
        if job.resumption() != Some(Resumption::HeldBack) {
            job.begin_resumed(self.how).unwrap();
        }
        self.jobs.lock().unwrap().push(job);
    }
}

/// Opens the store as a host does that starts, and goes on with what was left running.
fn restart(member: &Member, takes: Takes) -> (Arc<JobStore>, Arc<Takes>) {
    let takes = Arc::new(takes);
    (open(member, takes.clone()), takes)
}

fn open(member: &Member, resume: Arc<dyn Resume>) -> Arc<JobStore> {
    let options = StoreOptions { limits: Arc::new(member.limits.clone()), clock: member.clock.clone() };
    let store = JobStore::open(&member.dir, options).unwrap();
    store.set_resume(resume);
    store.load();
    store
}

/// Notes what the record of a job says while its transcript is read.
struct Reads {
    meta: PathBuf,
    seen: Mutex<String>,
}

impl Resume for Reads {
    fn check(&self, _: &JobId, _: &Sealed, _: &[Entry]) -> Result<(), String> {
        *self.seen.lock().unwrap() = fs::read_to_string(&self.meta).unwrap();
        Ok(())
    }

    fn resume(&self, _: Arc<RunningJob>) {}
}

fn the_one(takes: &Takes) -> Arc<RunningJob> {
    takes.jobs.lock().unwrap().first().unwrap().clone()
}

fn meta(member: &Member, job: &RunningJob) -> Meta {
    serde_json::from_str(&member.read(&member.file(job.id(), "meta.json"))).unwrap()
}

fn decision() -> Decision {
    Decision { question: "q".into(), decision: "d".into(), reasoning: "r".into() }
}

fn turn(turn: u32, usd: Option<f64>) -> Entry {
    let usage = Usage {
        turns: 1,
        input_tokens: 100,
        cached_tokens: 40,
        output_tokens: 10,
        cost_usd: usd,
        known_cost_usd: None,
    };
    Entry::Turn { session: 1, turn, model: Some("m".into()), text: "t".into(), content: None, usage }
}

#[tokio::test]
async fn a_call_that_comes_again_after_a_restart_has_its_effect_once() {
    let member = Member::new();
    let calls = [
        ("record_decision", json!({"question": "q", "decision": "d", "reasoning": "r"})),
        ("log_question", json!({"question": "who?"})),
        ("store_memory", json!({"key": "k", "content": "first"})),
        ("update_summary", json!({"summary": "half-way"})),
    ];
    let call_all = async |job: &Arc<RunningJob>| {
        let tools = JobTools::new(job.clone(), member.memory());
        for (n, (name, input)) in calls.iter().enumerate() {
            let call = ToolCall { id: format!("1.1.{n}"), name: (*name).to_owned(), input: input.clone() };
            tools.call(call).await.unwrap();
        }
    };
    call_all(&start(&member.store(), "d")).await;
    let stored = std::fs::metadata(member.path("memory/k.md")).unwrap().modified().unwrap();

    let (store, takes) = restart(&member, Takes::default());
    let job = the_one(&takes);
    call_all(&job).await;
    let view = status(&store, job.id());
    assert_eq!(view.status, JobStatus::Running);
    assert_eq!(view.decisions, Some(vec![decision()]));
    assert_eq!(view.questions, Some(vec!["who?".to_owned()]));
    assert_eq!(view.summary.as_deref(), Some("half-way"));
    assert_eq!(std::fs::metadata(member.path("memory/k.md")).unwrap().modified().unwrap(), stored);
    // Another call is another decision, and both are on disk, each with the call that made it.
    job.record_decision(decision(), Some("1.2.0")).unwrap();
    let on_disk: Value = serde_json::from_str(&member.read(&member.file(job.id(), "decisions.json"))).unwrap();
    assert_eq!((&on_disk[0]["call"], &on_disk[1]["call"]), (&json!("1.1.0"), &json!("1.2.0")));
    job.complete(Some("done")).unwrap();
    assert_eq!(status(&store, job.id()).decisions.unwrap().len(), 2);
}

#[test]
fn a_resumed_job_continues_its_transcript_after_an_incomplete_line() {
    let member = Member::new();
    let job = start(&member.store(), "d");
    job.transcript(&turn(1, Some(0.5)));
    let path = member.file(job.id(), "transcript.jsonl");
    let cut = member.read(&path) + r#"{"at":"2026-01-01T00:00:00Z","type":"tu"#;
    member.dir.write(&path, cut).unwrap();

    let (_store, takes) = restart(&member, Takes::default());
    assert_eq!(takes.seen.lock().unwrap().len(), 1);
    let job = the_one(&takes);
    job.transcript(&Entry::Resumed { session: 1 });
    let entries: Vec<Entry> = job.history().unwrap().into_iter().map(|line| line.entry).collect();
    assert_eq!(entries, [turn(1, Some(0.5)), Entry::Resumed { session: 1 }]);
}

#[test]
fn a_job_is_resumed_as_often_as_is_allowed_and_then_fails() {
    let member = Member::with(Limits { resumes: 2, ..Limits::default() });
    let id = start(&member.store(), "poison").id().clone();
    for resumes in 1..=2 {
        let (_store, takes) = restart(&member, Takes::default());
        assert_eq!(meta(&member, &the_one(&takes)).resumes, resumes);
    }
    let (store, takes) = restart(&member, Takes::default());
    assert!(takes.jobs.lock().unwrap().is_empty());
    let view = status(&store, &id);
    assert_eq!(view.status, JobStatus::Failed);
    assert!(view.error.unwrap().contains("limits.resumes"));
}

#[test]
fn the_one_job_that_was_resumed_alone_is_held_back_until_it_is_let_on() {
    let member = Member::with(Limits { resumes: 1, ..Limits::default() });
    let id = start(&member.store(), "poison").id().clone();
    let alone = || Takes { how: Resumption::Alone, ..Takes::default() };
    restart(&member, alone());
    for _ in 0..2 {
        let (store, takes) = restart(&member, alone());
        let view = status(&store, &id);
        assert_eq!((view.status, view.held_back), (JobStatus::Running, true));
        let summary = view.summary.unwrap();
        assert!(summary.contains(&format!("`guild resume {id}` lets it on")), "{summary}");
        assert_eq!(meta(&member, &the_one(&takes)).resumption, Some(Resumption::HeldBack));
    }
    let (store, takes) = restart(&member, alone());
    let job = the_one(&takes);
    job.let_on().unwrap();
    assert!(job.let_on().unwrap_err().to_string().contains("not held back"));
    assert_eq!((status(&store, &id).held_back, meta(&member, &job).resumes), (false, 0));
    let (_store, takes) = restart(&member, Takes::default());
    let job = the_one(&takes);
    assert_eq!((meta(&member, &job).resumption, meta(&member, &job).resumes), (Some(Resumption::Together), 1));
    // What its sessions use is in the record only once it has ended.
    assert_eq!(meta(&member, &job).usage, None);
    job.complete(Some("done")).unwrap();
    assert_eq!(meta(&member, &job).resumption, None);
}

#[test]
fn a_job_that_ends_each_host_which_reads_its_transcript_is_held_back() {
    let member = Member::new();
    let job = start(&member.store(), "poison");
    job.transcript(&turn(1, Some(0.5)));
    let transcript = member.file(job.id(), "transcript.jsonl");
    member.dir.write(&transcript, member.read(&transcript) + &"\n".repeat(300 * 1024)).unwrap();
    let mut before = None;
    for reading in [Resumption::Together, Resumption::Alone, Resumption::HeldBack] {
        let path = member.path(&member.file(job.id(), "meta.json"));
        let reads = Arc::new(Reads { meta: path.clone(), seen: Mutex::default() });
        open(&member, reads.clone());
        if reading != Resumption::HeldBack {
            assert_eq!(meta(&member, &job).resumption, before);
        }
        let seen = reads.seen.lock().unwrap().clone();
        before = Some(reading);
        assert_eq!(serde_json::from_str::<Meta>(&seen).unwrap().resumption, before);
        // As a host leaves it that ends meanwhile.
        fs::write(&path, seen).unwrap();
    }
    let (store, takes) = restart(&member, Takes::default());
    assert!(takes.seen.lock().unwrap().is_empty());
    assert!(status(&store, job.id()).held_back);
}

#[test]
fn a_job_that_is_held_back_shows_what_it_used() {
    let member = Member::new();
    let job = start(&member.store(), "poison");
    job.transcript(&turn(1, Some(0.25)));
    restart(&member, Takes { how: Resumption::Alone, ..Takes::default() });
    for _ in 0..2 {
        let (store, _takes) = restart(&member, Takes::default());
        let view = status(&store, job.id());
        assert!(view.held_back);
        assert_eq!(view.usage.unwrap().usage.turns, 1);
    }
}

#[test]
fn a_job_that_cannot_be_resumed_fails_with_the_reason_and_its_usage() {
    let member = Member::new();
    let job = start(&member.store(), "d");
    job.transcript(&turn(1, Some(0.25)));
    member.clock.advance(3);
    job.transcript(&turn(2, Some(0.5)));
    let refusal = Some("its session was not kept".to_owned());
    let (store, _takes) = restart(&member, Takes { refusal, ..Takes::default() });
    let view = status(&store, job.id());
    assert_eq!(view.status, JobStatus::Failed);
    assert!(view.error.unwrap().contains("its session was not kept"));
    let used = view.usage.unwrap();
    assert_eq!((used.agent.as_str(), used.models.as_slice()), ("extractive", &["m".to_owned()][..]));
    assert_eq!((used.usage.turns, used.usage.input_tokens, used.usage.cached_tokens), (2, 200, 80));
    // The request that was under way when the host stopped has its price too, which nobody knows.
    assert_eq!((used.usage.cost_usd, used.usage.known_cost_usd, used.wall_seconds), (None, Some(0.75), 3.0));
    assert_eq!(meta(&member, &job).usage.unwrap().usage.turns, 2);
}

#[test]
fn a_job_with_invalid_files_fails_when_the_store_is_loaded() {
    for file in ["transcript.jsonl", "plan.json"] {
        let member = Member::new();
        let job = start(&member.store(), "d");
        let path = member.file(job.id(), file);
        if member.dir.exists(&path) {
            member.dir.remove_file(&path).unwrap();
        }
        member.dir.symlink("elsewhere", &path).unwrap();
        let (store, takes) = restart(&member, Takes::default());
        assert!(takes.jobs.lock().unwrap().is_empty());
        let view = status(&store, job.id());
        assert_eq!(view.status, JobStatus::Failed);
        assert!(view.error.unwrap().contains(file));
    }
}

#[test]
fn a_resumed_job_shows_its_earlier_usage_at_once() {
    let member = Member::new();
    let job = start(&member.store(), "d");
    job.transcript(&turn(1, Some(0.25)));
    let (store, takes) = restart(&member, Takes::default());
    assert_eq!(status(&store, job.id()).usage.unwrap().usage.turns, 1);
    // Cancelled before it could go on, it keeps that.
    store.cancel(job.id().as_str()).unwrap();
    drop(takes);
    assert_eq!(status(&store, job.id()).usage.unwrap().usage.turns, 1);
    assert_eq!(meta(&member, &job).usage.unwrap().usage.turns, 1);
}

#[test]
fn the_same_id_with_another_content_is_another_decision() {
    let member = Member::new();
    let job = start(&member.store(), "d");
    job.record_decision(decision(), Some("1.1.0")).unwrap();
    job.record_decision(decision(), Some("1.1.0")).unwrap();
    job.record_decision(Decision { decision: "other".into(), ..decision() }, Some("1.1.0")).unwrap();
    assert_eq!(job.snapshot().decisions.unwrap().len(), 2);
}

#[test]
fn a_job_with_a_submitted_result_is_completed_and_not_resumed() {
    let member = Member::new();
    let job = start(&member.store(), "d");
    job.submit_result("done", Some("1.3.0")).unwrap();
    let (store, takes) = restart(&member, Takes::default());
    assert!(takes.jobs.lock().unwrap().is_empty());
    assert_eq!(status(&store, job.id()).status, JobStatus::Completed);
}
