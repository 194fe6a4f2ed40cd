//! A job's files as a host finds them: its own, those of another version, those that a person or a fault wrote.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::{Arc, Mutex},
};

use guild_contract::{
    JobId, JobStatus, Limits,
    rpc::{Detail, JobList, ListParams, ResultView, StatusView},
};
use guild_fs::clock::SystemClock;
use guild_jobs::{JobStore, MemoryStore, Resume, RunningJob, Sealed, StoreOptions, files::follow::Follow};
use guild_session::transcript;

use crate::{
    scratch::{Scratch, knows_the_secret, tree},
    sections,
};

/// The files of a job that a host reads.
const FILES: [&str; 12] = [
    "meta.json",
    "task.md",
    "config.json",
    "status.md",
    "questions.md",
    "decisions.json",
    "plan.json",
    "submission.json",
    "result.md",
    "transcript.jsonl",
    "log.txt",
    "artifacts/a",
];

/// Collects the jobs that are resumed.
#[derive(Default)]
struct Resumer(Mutex<Vec<Arc<RunningJob>>>);

impl Resume for Resumer {
    fn check(&self, _: &JobId, plan: &Sealed, history: &[transcript::Entry]) -> Result<(), String> {
        serde_json::to_string(&plan.accepted).unwrap();
        history.iter().for_each(|entry| drop(serde_json::to_string(entry).unwrap()));
        Ok(())
    }

    fn resume(&self, job: Arc<RunningJob>) {
        let _ = job.plan();
        self.0.lock().unwrap().push(job);
    }
}

/// Sections that are named for the files; one that has no contents is a directory, a symlink where its contents begin
/// with `->`. The one without a name is left out. `.origin.json` is the memory's.
pub fn run(data: &[u8]) {
    if knows_the_secret(data) {
        return;
    }
    let scratch = Scratch::new();
    let job = scratch.inside().join("jobs/job");
    fs::create_dir_all(job.join("artifacts")).unwrap();
    fs::create_dir(scratch.inside().join("memory")).unwrap();
    for (name, contents) in sections(data) {
        let name = String::from_utf8_lossy(name);
        let path = match &*name {
            name if FILES.contains(&name) => job.join(name),
            ".origin.json" | "note.md" => scratch.inside().join("memory").join(&*name),
            _ => continue,
        };
        // Of one that comes twice the first counts.
        let _ = match contents.as_slice() {
            b"" => fs::create_dir(path),
            [b'-', b'>', ..] => symlink("../../../outside/secret", path),
            contents => fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(path)
                .and_then(|mut file| std::io::Write::write_all(&mut file, contents)),
        };
    }
    memory(&scratch);
    // A host that resumes what it finds, and then one that does not.
    let resumer = Arc::new(Resumer::default());
    let store = open(&scratch);
    store.set_resume(resumer.clone());
    let first = look(&scratch, &store);
    for job in std::mem::take(&mut *resumer.0.lock().unwrap()) {
        take_up(&scratch, &job);
    }
    drop(store);
    let store = open(&scratch);
    let second = look(&scratch, &store);
    if let Some(second) = second {
        assert_ne!(second.status, JobStatus::Running, "a job is stuck");
        let first = first.expect("a job that is there now was there before");
        if first.status != JobStatus::Running {
            assert_eq!((first.status, first.error), (second.status, second.error), "a final state changed");
        }
        end(&scratch, &store, second.status);
    }
    scratch.check();
}

fn open(scratch: &Scratch) -> Arc<JobStore> {
    let options = StoreOptions { limits: Arc::new(Limits::default()), clock: Arc::new(SystemClock) };
    JobStore::open(&scratch.dir(), options).unwrap()
}

/// Every reader of a job agrees with the others; its status, if it is a job at all.
fn look(scratch: &Scratch, store: &JobStore) -> Option<StatusView> {
    let report = store.load();
    report.unreadable.iter().for_each(|(_, why)| scratch.check_text(why));
    let id: JobId = "job".parse().unwrap();
    let listed = |detail| -> JobList {
        serde_json::from_slice(&store.list(&ListParams { detail, filter: None }).unwrap()).unwrap()
    };
    let (simple, detailed) = (listed(None), listed(Some(Detail::Detailed)));
    if let Ok(Some(mut follow)) = Follow::open(&scratch.dir(), &id) {
        let _ = follow.meta(&Limits::default());
        while let Ok(Some(_)) = follow.next_line() {}
    }
    let Ok(json) = store.status("job") else {
        assert!(simple.jobs.is_empty() && detailed.jobs.is_empty(), "a job is listed that has no status");
        assert!(matches!(store.result("job"), Err(guild_jobs::StoreError::Unknown(_))));
        return None;
    };
    let status: StatusView = serde_json::from_slice(&json).unwrap();
    scratch.check_text(&String::from_utf8_lossy(&json));
    assert_eq!(status.job_id, id, "the directory's name is the job's id");
    for list in [&simple, &detailed] {
        assert_eq!(list.jobs.len(), 1);
        assert_eq!((&list.jobs[0].job_id, list.jobs[0].status), (&id, status.status));
    }
    let details = detailed.jobs[0].details.as_ref().unwrap();
    assert_eq!(details.description, status.description);
    assert!(details.summary.as_ref().is_none_or(|head| head.len() <= 1024 + 3));
    match (status.status, store.result("job")) {
        (JobStatus::Completed, Ok(ResultView { output, artifacts, .. })) => {
            scratch.check_text(&output);
            assert!(artifacts.is_none_or(|paths| paths == ["artifacts/a"]));
        }
        (_, Ok(_)) => panic!("a job that is not completed has a result"),
        (_, Err(why)) => scratch.check_text(&why.to_string()),
    }
    Some(status)
}

/// A resumed job can be worked on, and has read what was there.
fn take_up(scratch: &Scratch, job: &RunningJob) {
    if let Ok(history) = job.history() {
        assert!(!history.is_empty() || transcript::account(&history).usage.turns == 0, "turns out of nothing");
        assert!(transcript::seconds(&history) >= 0.0, "time ran backwards");
        serde_json::to_string(&transcript::usage(&history, "extractive".to_owned())).unwrap();
        assert!(job.next_session() >= 1);
    }
    for done in [job.update_summary("summary"), job.log_question("why?"), job.write_artifact("b/c", b"")] {
        if let Err(why) = done {
            scratch.check_text(&why.to_string());
        }
    }
    serde_json::to_string(&job.snapshot()).unwrap();
}

/// A job that has ended can be cancelled where it failed, and deleted; nothing of it is left.
fn end(scratch: &Scratch, store: &JobStore, status: JobStatus) {
    if status == JobStatus::Failed {
        match store.cancel("job") {
            Ok(view) => assert_eq!(view.status, JobStatus::Cancelled),
            Err(why) => return scratch.check_text(&why.to_string()),
        }
    }
    match store.delete("job") {
        Ok(_) => assert!(!tree(&scratch.inside()).keys().any(|path| path.starts_with("jobs/")), "something is left"),
        Err(why) => scratch.check_text(&why.to_string()),
    }
}

fn memory(scratch: &Scratch) {
    let limits = Arc::new(Limits::default());
    let Ok(memory) = MemoryStore::open(&scratch.dir(), limits, Arc::new(SystemClock)) else { return };
    scratch.check_text(&format!("{:?} {:?}", memory.list(), memory.injection()));
    let _ = memory.store("other", "content", None);
    let _ = memory.delete("note");
}
