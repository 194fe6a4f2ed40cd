//! A home, projects of a user's, and workers that do what a test says.

use std::{
    any::Any,
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use cap_std::{ambient_authority, fs::Dir};
use guild_contract::{
    Bounds, Decision, Delegation, Grants, JobId, JobStatus, Limits, MemberKey, OperationError, Usage,
    hall::{CommissionChanges, CommissionFilter, CommissionId, CommissionStatus, HallEvent, NewCommission, Overrides},
};
pub(crate) use guild_fakes::git;
use guild_fs::clock::SystemClock;
use guild_git::Checkout;
use guild_hall::{
    Attempt, Commissions, Documents, Hall, HallOptions, Meetings, NoSession, NotBegun, Outcome, Permit, Projects,
    Worker, WorkerJobs, Workers,
    meeting::event::{CONVERSATION, INTERRUPTED},
};
use guild_jobs::{Accepted, JobStore, NewJob, RunningJob, StoreOptions};
use guild_session::{
    activation::Plan,
    transcript::{Entry, Line, SUCCESS},
};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) fn write(dir: &Path, file: &str, text: &str) {
    let path = dir.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// What a worker does in an attempt's worktree.
type Work = Arc<dyn Fn(&Attempt) -> Outcome + Send + Sync>;

/// Workers that do what a test says, once it lets them. Jobs outlive a hall, as they do on a disk.
pub(crate) struct Scripted {
    work: Mutex<Work>,
    jobs: Mutex<BTreeMap<String, Option<Outcome>>>,
    next: AtomicU64,
    /// Attempts end only while this is true.
    open: watch::Sender<bool>,
    cancelled: watch::Sender<Vec<String>>,
    /// Answers to `begin` before it works.
    pub(crate) refusals: Mutex<Vec<NotBegun>>,
    /// Those that were begun, in order.
    pub(crate) begun: Mutex<Vec<CommissionId>>,
    pub(crate) decisions: Mutex<Vec<Decision>>,
    pub(crate) checkout: Mutex<Checkout>,
    /// Workers besides the one that works, and before it in order.
    pub(crate) others: Mutex<Vec<Worker>>,
    /// Whether the worker is the manager.
    pub(crate) manages: AtomicBool,
    /// Where the jobs of meetings are.
    store: Arc<JobStore>,
    meetings: Mutex<BTreeMap<String, Arc<RunningJob>>>,
    /// Whether nobody reaches the worker of a meeting.
    pub(crate) is_away: AtomicBool,
    /// Whether transcripts have no room for the end of a turn.
    pub(crate) is_full: AtomicBool,
    /// What a tool answers in each turn, if one is called.
    pub(crate) output: Mutex<Option<String>>,
    /// What the session that writes notes answers.
    pub(crate) notes: Mutex<Result<String, NoSession>>,
    /// The most turns that the operator allows.
    pub(crate) most_turns: AtomicU32,
    /// Why jobs wait for somebody to let them on.
    pub(crate) held_back: Mutex<Option<String>>,
    _dir: TempDir,
}

impl Scripted {
    pub(crate) fn new(work: impl Fn(&Attempt) -> Outcome + Send + Sync + 'static) -> Arc<Self> {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions { limits: Arc::default(), clock: Arc::new(SystemClock) };
        let store = Dir::open_ambient_dir(dir.path(), ambient_authority()).unwrap();
        let store = JobStore::open(&store, options).unwrap();
        store.load();
        Arc::new(Self {
            others: Mutex::default(),
            manages: AtomicBool::new(false),
            store,
            meetings: Mutex::default(),
            is_away: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            output: Mutex::default(),
            notes: Mutex::new(Ok("What was settled.".to_owned())),
            most_turns: AtomicU32::new(u32::MAX),
            held_back: Mutex::default(),
            _dir: dir,
            work: Mutex::new(Arc::new(work)),
            jobs: Mutex::default(),
            next: AtomicU64::new(1),
            open: watch::Sender::new(true),
            cancelled: watch::Sender::default(),
            refusals: Mutex::default(),
            begun: Mutex::default(),
            decisions: Mutex::default(),
            checkout: Mutex::new(Checkout::Sparse),
        })
    }

    /// A worker that writes a document and says that it is done.
    pub(crate) fn writing() -> Arc<Self> {
        Self::new(|attempt| {
            write(&attempt.worktree, &format!(".lore/reports/{}.md", attempt.activity), "found\n");
            done("All done.\n")
        })
    }

    pub(crate) fn does(&self, work: impl Fn(&Attempt) -> Outcome + Send + Sync + 'static) {
        *self.work.lock().unwrap() = Arc::new(work);
    }

    /// No attempt ends from now on, or all may.
    pub(crate) fn hold(&self, hold: bool) {
        self.open.send_replace(!hold);
    }

    fn reached(&self) -> Result<(), String> {
        if self.is_away.load(Ordering::Relaxed) { Err("its worker is not in service".to_owned()) } else { Ok(()) }
    }

    pub(crate) fn begun(&self) -> Vec<CommissionId> {
        self.begun.lock().unwrap().clone()
    }
}

pub(crate) fn done(result: &str) -> Outcome {
    Outcome::Completed { result: result.to_owned(), error: None }
}

impl Workers for Scripted {
    fn all(&self) -> Vec<Worker> {
        let mut all = self.others.lock().unwrap().clone();
        all.push(Worker {
            key: "researcher".parse().unwrap(),
            package: "guild-researcher".to_owned(),
            display_name: "Dalton".to_owned(),
            display_title: "Guild Artificer".to_owned(),
            description: "Looks things up".to_owned(),
            portrait: None,
            agent: "extractive".to_owned(),
            model: None,
            checkout: *self.checkout.lock().unwrap(),
            manages: self.manages.load(Ordering::Relaxed),
            can: vec!["Read".to_owned(), "lore:write".to_owned()],
        });
        all
    }

    fn check_model(&self, _: &MemberKey, model: &str) -> Result<(), String> {
        if model == "absent" { Err("\"absent\" cannot run here".to_owned()) } else { Ok(()) }
    }

    fn cut(&self, _: &MemberKey, overrides: &mut Overrides) -> Vec<String> {
        let most = self.most_turns.load(Ordering::Relaxed);
        let cut = overrides.max_turns.filter(|turns| *turns > most);
        overrides.max_turns = overrides.max_turns.map(|turns| turns.min(most));
        cut.map(|turns| format!("maxTurns {turns} is cut to {most}")).into_iter().collect()
    }
}

#[async_trait]
impl WorkerJobs for Scripted {
    fn new_job(&self, _: &MemberKey) -> Result<JobId, OperationError> {
        Ok(format!("job-{}", self.next.fetch_add(1, Ordering::Relaxed)).parse().unwrap())
    }

    async fn held_back(&self, _: &Attempt) -> Option<String> {
        self.held_back.lock().unwrap().clone()
    }

    async fn begin(&self, attempt: &Attempt) -> Result<(), NotBegun> {
        if let Some(refusal) = self.refusals.lock().unwrap().pop() {
            return Err(refusal);
        }
        let mut jobs = self.jobs.lock().unwrap();
        jobs.entry(attempt.job.to_string()).or_insert_with(|| {
            self.begun.lock().unwrap().extend(attempt.activity.commission().cloned());
            if attempt.activity.is_meeting() {
                let job = begin(&self.store, attempt.job.clone());
                self.meetings.lock().unwrap().insert(attempt.job.to_string(), job);
            }
            None
        });
        Ok(())
    }

    async fn ended(&self, attempt: &Attempt) -> (Outcome, Vec<Decision>) {
        let (mut open, mut cancelled) = (self.open.subscribe(), self.cancelled.subscribe());
        let job = attempt.job.to_string();
        tokio::select! {
            biased;
            _ = cancelled.wait_for(|cancelled| cancelled.contains(&job)) => {
                self.jobs.lock().unwrap().entry(job.clone()).or_default().get_or_insert(Outcome::Cancelled);
            }
            _ = open.wait_for(|open| *open) => {}
        }
        // A job works once, however often its host ends.
        let mut jobs = self.jobs.lock().unwrap();
        let known = jobs.get(&job).cloned().flatten();
        let outcome = known.unwrap_or_else(|| (self.work.lock().unwrap().clone())(attempt));
        jobs.insert(job, Some(outcome.clone()));
        (outcome, self.decisions.lock().unwrap().clone())
    }

    async fn cancel(&self, attempt: &Attempt) {
        self.cancelled.send_modify(|cancelled| cancelled.push(attempt.job.to_string()));
    }

    async fn conversation(&self, meeting: &Attempt) -> Result<Arc<RunningJob>, String> {
        self.reached()?;
        let job = self.meetings.lock().unwrap().get(meeting.job.as_str()).cloned();
        job.filter(|job| job.status() == JobStatus::Running).ok_or_else(|| "its job has ended".to_owned())
    }

    /// Answers in two pieces, the second once the workers are let go on.
    async fn say(&self, meeting: &Attempt, message: &str, cancel: &CancellationToken) -> Result<(), String> {
        let job = self.conversation(meeting).await?;
        let session = CONVERSATION;
        if job.history().unwrap().is_empty() {
            let (system_prompt, prompt, tools) = ("You are Dalton.".to_owned(), String::new(), Vec::new());
            job.transcript(&Entry::Session {
                session,
                agent: "scripted".to_owned(),
                model: None,
                system_prompt,
                prompt,
                tools,
            });
        }
        job.transcript(&Entry::Message { session, text: message.to_owned() });
        if let Some(output) = self.output.lock().unwrap().clone() {
            let (call, tool, ms, error) = ("1".to_owned(), "web_fetch".to_owned(), 1, None);
            job.transcript(&Entry::Call { session, call: call.clone(), tool, input: serde_json::json!({}) });
            job.transcript(&Entry::Result { session, call, ms, output: Some(output.into()), error });
        }
        job.transcript(&Entry::Text { session, text: "You said: ".to_owned() });
        let mut open = self.open.subscribe();
        let goes_on = tokio::select! {
            _ = open.wait_for(|open| *open) => true,
            () = cancel.cancelled() => false,
        };
        let usage = Usage { turns: 1, cost_usd: Some(0.25), ..Usage::default() };
        let (text, ending) = if goes_on {
            (self.work.lock().unwrap().clone())(meeting);
            job.transcript(&Entry::Text { session, text: message.to_owned() });
            let text = format!("You said: {message}");
            job.transcript(&Entry::Turn { session, turn: 1, model: None, text: text.clone(), content: None, usage });
            (text, SUCCESS)
        } else {
            (String::new(), INTERRUPTED)
        };
        if !self.is_full.load(Ordering::Relaxed) {
            job.transcript(&Entry::End { session, ending: ending.to_owned(), text, usage });
        }
        Ok(())
    }

    async fn write(&self, _: &Attempt, _: &str, _: String) -> Result<String, NoSession> {
        self.notes.lock().unwrap().clone()
    }

    async fn conclude(&self, meeting: &Attempt, notes: &str) -> Result<Vec<Decision>, String> {
        self.reached()?;
        let job = self.meetings.lock().unwrap().get(meeting.job.as_str()).cloned();
        job.unwrap().complete(Some(notes)).unwrap();
        Ok(self.decisions.lock().unwrap().clone())
    }

    async fn transcript(&self, _: &MemberKey, job: &JobId) -> Result<Vec<Line>, OperationError> {
        self.reached().map_err(OperationError::Conflict)?;
        self.store.transcript(job).map_err(|e| OperationError::Internal(e.to_string()))
    }
}

/// Begins a job.
pub(crate) fn begin(store: &Arc<JobStore>, id: JobId) -> Arc<RunningJob> {
    let plan = Accepted {
        agent: "extractive".to_owned(),
        granted_tools: Vec::new(),
        grants: Grants::default(),
        ceiling: Bounds::default(),
        plan: Plan::OwnRun(Bounds::default()),
    };
    let (description, task) = ("d".to_owned(), "t".to_owned());
    store
        .create(NewJob {
            id,
            description,
            task,
            config: serde_json::json!({}),
            token: None,
            plan,
            attachments: None,
            activation: None,
            follows: None,
            key: None,
        })
        .unwrap()
}

/// A user's directory, with projects and the home of a hall.
pub(crate) struct World {
    root: TempDir,
    pub(crate) workers: Arc<Scripted>,
    pub(crate) git: Option<PathBuf>,
    pub(crate) limits: Arc<Limits>,
}

impl World {
    /// A world with the project `demo`.
    pub(crate) fn new(workers: Arc<Scripted>) -> Self {
        let this = Self { root: tempfile::tempdir().unwrap(), workers, git: None, limits: Arc::default() };
        this.add("demo");
        this
    }

    pub(crate) fn root(&self) -> PathBuf {
        fs::canonicalize(self.root.path()).unwrap()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    /// The user's working tree of a project.
    pub(crate) fn project(&self, name: &str) -> PathBuf {
        self.root().join("code").join(name)
    }

    /// The integration worktree of a project.
    pub(crate) fn integration(&self, name: &str) -> PathBuf {
        self.home().join("projects").join(name)
    }

    /// Makes a project, and lists it.
    pub(crate) fn add(&self, name: &str) {
        let path = self.project(name);
        write(&path, ".lore/specs/plan.md", "plan\n");
        write(&path, "src/code.rs", "one\ntwo\nthree\n");
        git(&path, &["init", "--quiet", "--initial-branch=main"]);
        git(&path, &["add", "--all"]);
        git(&path, &["commit", "--quiet", "--message=Begin"]);
        let listed = fs::read_to_string(self.home().join("config.yaml")).unwrap_or_else(|_| "projects:\n".to_owned());
        write(&self.home(), "config.yaml", &format!("{listed}  - name: {name}\n    path: {}\n", path.display()));
    }

    /// A hall that permits all projects.
    pub(crate) fn open(&self) -> Result<Arc<Hall>, OperationError> {
        let code = fs::read_dir(self.root().join("code")).unwrap();
        let permits = code.map(|entry| Permit { path: entry.unwrap().path(), ..Permit::default() }).collect();
        let (git, limits) = (self.git.clone(), self.limits.clone());
        let options = HallOptions {
            home: self.home(),
            has_passed_socket: false,
            permits,
            delegation: Delegation::default(),
            git,
            limits,
            clock: Arc::new(SystemClock),
        };
        Hall::open(options)
    }

    /// A hall that works, and may do this in the project `demo`.
    pub(crate) async fn permitting(&self, push: bool, pull_requests: bool) -> Arc<Hall> {
        let hall = self.hall().await;
        hall.permit(vec![Permit { path: self.project("demo"), push, pull_requests }]);
        hall
    }

    /// Gives the project `demo` an `origin`, a bare repository, and has hosts run this `gh`.
    pub(crate) fn add_origin(&mut self, gh: &str) {
        git(&self.root(), &["init", "--quiet", "--bare", "--initial-branch=main", "origin.git"]);
        let project = self.project("demo");
        git(&project, &["remote", "add", "origin", self.origin().to_str().unwrap()]);
        git(&project, &["push", "--quiet", "origin", "main"]);
        let bin = self.root().join("bin");
        for (name, text) in [("git", "exec git \"$@\""), ("gh", gh)] {
            let path = bin.join(name);
            write(&bin, name, &format!("#!/bin/sh\n{text}\n"));
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        self.git = Some(bin.join("git"));
    }

    pub(crate) fn origin(&self) -> PathBuf {
        self.root().join("origin.git")
    }

    /// A user's clone of `origin`, on its newest `main`.
    pub(crate) fn clone_of_origin(&self) -> PathBuf {
        let clone = self.root().join("elsewhere");
        if !clone.exists() {
            git(&self.root(), &["clone", "--quiet", "origin.git", "elsewhere"]);
        }
        git(&clone, &["fetch", "--quiet", "origin"]);
        git(&clone, &["checkout", "--quiet", "-B", "main", "origin/main"]);
        clone
    }

    /// The user merges `claude/main` of `origin` there, as one commit.
    pub(crate) fn squash_at_origin(&self) {
        let clone = self.clone_of_origin();
        git(&clone, &["merge", "--quiet", "--squash", "origin/claude/main"]);
        git(&clone, &["commit", "--quiet", "--message=Squashed"]);
        git(&clone, &["push", "--quiet", "origin", "main"]);
    }

    /// The user commits a file to `main` of `origin`.
    pub(crate) fn write_at_origin(&self, file: &str, text: &str) {
        let clone = self.clone_of_origin();
        write(&clone, file, text);
        git(&clone, &["add", "--all"]);
        git(&clone, &["commit", "--quiet", "--message=Elsewhere"]);
        git(&clone, &["push", "--quiet", "origin", "main"]);
    }

    /// A hall that works.
    pub(crate) async fn hall(&self) -> Arc<Hall> {
        let hall = self.open().unwrap();
        hall.begin_work(self.workers.clone()).await.unwrap();
        hall
    }
}

/// Waits until nothing of a hall is under way any more, as when its host ended.
pub(crate) async fn ended(hall: Arc<Hall>) {
    let parts: [Weak<dyn Any>; 4] = [
        Arc::<Documents>::downgrade(&hall.documents),
        Arc::<Meetings>::downgrade(&hall.meetings),
        Arc::<Commissions>::downgrade(&hall.commissions),
        Arc::<Projects>::downgrade(&hall.projects),
    ];
    drop(hall);
    let ended = async {
        while parts.iter().any(|part| part.strong_count() > 0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap();
}

/// A commission of the project `demo`.
pub(crate) fn commission(title: &str) -> NewCommission {
    NewCommission {
        project_name: "demo".to_owned(),
        title: title.to_owned(),
        worker_name: "Dalton".to_owned(),
        prompt: format!("Do {title}"),
        ..NewCommission::default()
    }
}

/// Changes of the commission of that id.
pub(crate) fn changing(id: impl AsRef<str>, changes: CommissionChanges) -> CommissionChanges {
    CommissionChanges { commission_id: id.as_ref().to_owned(), ..changes }
}

/// Waits for a condition on a commission. Fails the test after a minute.
pub(crate) async fn until(hall: &Arc<Hall>, id: &CommissionId, wanted: CommissionStatus) {
    let mut events = hall.events();
    let reached = async {
        while status(hall, id).await != wanted {
            let _ = events.recv().await;
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(60), reached).await;
    assert!(found.is_ok(), "{id} is not {wanted}: {:#?}", timeline(hall, id).await);
}

pub(crate) async fn status(hall: &Hall, id: &CommissionId) -> CommissionStatus {
    hall.commissions.read(id.as_str(), None).await.unwrap().commission.status
}

/// What happened to a commission: the event of each entry, with its reason.
pub(crate) async fn timeline(hall: &Hall, id: &CommissionId) -> Vec<String> {
    let detail = hall.commissions.read(id.as_str(), None).await.unwrap();
    detail.timeline.iter().map(|entry| format!("{}: {}", entry.event, entry.reason)).collect()
}

/// All events that came so far, without those that came too late.
pub(crate) fn received(events: &mut tokio::sync::broadcast::Receiver<Arc<HallEvent>>) -> Vec<String> {
    let mut received = Vec::new();
    while let Ok(event) = events.try_recv() {
        let json = serde_json::to_value(&*event).unwrap();
        let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        received.push(format!("{} {} {}", text("type"), text("status"), text("reason")).replace("  ", " "));
    }
    received
}

pub(crate) async fn ids(hall: &Hall) -> Vec<String> {
    hall.commissions
        .list(&CommissionFilter::default())
        .await
        .unwrap()
        .commissions
        .iter()
        .map(|view| view.id.to_string())
        .collect()
}
