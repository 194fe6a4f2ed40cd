//! A member in a temporary directory, and a clock that the test moves.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test helper fails its test")]

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use cap_std::{ambient_authority, fs::Dir};
use guild_contract::{
    Bounds, Grants, JobId, JobStatus, Limits,
    rpc::{JobList, ListParams, StatusView},
};
use guild_fs::clock::Clock;
use guild_jobs::{Accepted, JobStore, MemoryStore, NewJob, RunningJob, StoreError, StoreOptions};
use guild_session::activation::{Plan, SessionPlan};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    pub fn advance(&self, seconds: i64) {
        let mut now = self.0.lock().unwrap();
        *now += SignedDuration::from_secs(seconds);
    }

    pub fn set(&self, now: &str) {
        *self.0.lock().unwrap() = now.parse().unwrap();
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

pub struct Member {
    temp: tempfile::TempDir,
    pub dir: Dir,
    pub clock: Arc<ManualClock>,
    pub limits: Limits,
}

impl Member {
    pub fn new() -> Self {
        Self::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(temp.path(), ambient_authority()).unwrap();
        let clock = Arc::new(ManualClock(Mutex::new("2026-01-01T00:00:00Z".parse().unwrap())));
        Self { temp, dir, clock, limits }
    }

    /// The path of something in the member's directory.
    pub fn path(&self, path: &str) -> PathBuf {
        self.temp.path().join(path)
    }

    /// Opens and loads the store, as a host does that starts.
    pub fn store(&self) -> Arc<JobStore> {
        let options = StoreOptions { limits: Arc::new(self.limits.clone()), clock: self.clock.clone() };
        let store = JobStore::open(&self.dir, options).unwrap();
        store.load();
        store
    }

    pub fn memory(&self) -> Arc<MemoryStore> {
        MemoryStore::open(&self.dir, Arc::new(self.limits.clone()), self.clock.clone()).unwrap()
    }

    pub fn read(&self, path: &str) -> String {
        self.dir.read_to_string(path).unwrap()
    }

    /// Writes a file as a person would, and gives what was looked at the time to go stale.
    pub fn edit(&self, path: &str, contents: &str) {
        self.dir.write(path, contents).unwrap();
        self.clock.advance(2);
    }

    /// A job's file, as a path in the member's directory.
    pub fn file(&self, id: &JobId, file: &str) -> String {
        format!("jobs/{id}/{file}")
    }

    /// Every file under a job's directory, with its bytes and its time.
    pub fn files_of(&self, id: &JobId) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
        let mut files = Vec::new();
        let mut dirs = vec![self.path(&format!("jobs/{id}"))];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(entry.path());
                } else {
                    let modified = entry.metadata().unwrap().modified().unwrap();
                    files.push((entry.path(), std::fs::read(entry.path()).unwrap(), modified));
                }
            }
        }
        files.sort();
        files
    }

    /// A job's directory as the original wrote it, or a person.
    pub fn plant(&self, id: &str, meta: &Value) -> JobId {
        self.dir.create_dir_all(format!("jobs/{id}")).unwrap();
        self.dir.write(format!("jobs/{id}/meta.json"), meta.to_string()).unwrap();
        id.parse().unwrap()
    }
}

pub fn plan() -> Plan {
    Plan::Session(SessionPlan {
        system_prompt: "You are a researcher.".into(),
        prompt: "the task".into(),
        tools: vec!["Read".into()],
        toolbox_tools: vec![],
        model: None,
        bounds: Bounds::default(),
    })
}

pub fn accepted() -> Accepted {
    let granted_tools = vec!["Read".into()];
    Accepted {
        agent: "extractive".into(),
        granted_tools,
        grants: Grants::default(),
        ceiling: Bounds::default(),
        plan: plan(),
    }
}

pub fn new_job(store: &JobStore, description: &str) -> NewJob {
    let (description, task) = (description.into(), "the task".into());
    let plan = accepted();
    NewJob {
        id: store.new_id(),
        description,
        task,
        config: Value::Null,
        token: None,
        attachments: None,
        activation: None,
        follows: None,
        key: None,
        plan,
    }
}

pub fn start(store: &Arc<JobStore>, description: &str) -> Arc<RunningJob> {
    store.create(new_job(store, description)).unwrap()
}

pub fn status(store: &JobStore, id: &JobId) -> StatusView {
    serde_json::from_slice(&store.status(id.as_str()).unwrap()).unwrap()
}

pub fn is_unknown(store: &JobStore, id: &str) -> bool {
    matches!(store.status(id), Err(StoreError::Unknown(_)))
}

pub fn list(store: &JobStore, params: Value) -> JobList {
    let params: ListParams = serde_json::from_value(params).unwrap();
    serde_json::from_slice(&store.list(&params).unwrap()).unwrap()
}

pub fn running_count(store: &JobStore) -> usize {
    let jobs = list(store, json!({})).jobs;
    jobs.iter().filter(|job| job.status == JobStatus::Running).count()
}

pub fn listed_ids(store: &JobStore, params: Value) -> Vec<String> {
    list(store, params).jobs.into_iter().map(|job| job.job_id.into()).collect()
}

/// Waits until something holds, ten seconds at most.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < until, "it never came about: {what}");
        std::thread::yield_now();
    }
}
