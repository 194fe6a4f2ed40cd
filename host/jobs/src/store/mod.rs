//! The job store: jobs are made, ended by callers, and removed here (REQ-WD-19 to REQ-WD-21).
//!
//! Files are the database, and people read and edit them. A job is a directory of `jobs/` that is named by its id;
//! it exists from the rename that puts it there to the rename that takes it away.

mod answers;
mod browse;
mod filter;
mod load;
mod pace;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use cap_std::fs::Dir;
use guild_contract::{
    JobId, JobStatus, Limits, Meta, News,
    rpc::{CancelView, Deleted},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use uuid::{ContextV7, Uuid};

use crate::{
    Accepted,
    artifacts::ARTIFACTS,
    clock::Clock,
    durable::{Stamp, create, if_there, open_dir, open_or_make_dir, sync_dir},
    ended::Ended,
    error::StoreError,
    events::Listener,
    index::{Catalog, Entry, State, ViewCache},
    record::{self, CONFIG, META, Owed, PLAN, STATUS, TASK},
    running::{EndListener, RunningJob},
    shared::Shared,
    sync::{Group, lock},
    tree,
    watch::{Watch, watch},
};

use answers::Lists;
pub use browse::Brief;
pub use filter::filter;
pub use load::{LoadReport, Resume, interrupted};
use pace::Pace;

/// The directory of a member that the store keeps.
pub(crate) const JOBS: &str = "jobs";
/// Has ids of the same millisecond in the order in which they were made.
static IN_ORDER: Mutex<ContextV7> = Mutex::new(ContextV7::new());
/// How the name of a directory begins that is to become a job.
pub(crate) const NEW: &str = ".new-";
/// How the name of a directory begins that was a job.
pub(crate) const DELETED: &str = ".del-";

/// What a store is opened with.
pub struct StoreOptions {
    /// The sizes that it enforces.
    pub limits: Arc<Limits>,
    /// Where it takes the time from.
    pub clock: Arc<dyn Clock>,
}

/// A job that is to be made: an accepted dispatch.
pub struct NewJob {
    /// From [`JobStore::new_id`].
    pub id: JobId,
    /// The short label; not empty.
    pub description: String,
    /// The prompt; not empty.
    pub task: String,
    /// The dispatch's `config`; null where none came.
    pub config: Value,
    /// How the job is carried out.
    pub plan: Accepted,
}

/// What [`JobStore::prune`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneReport {
    /// The jobs that are gone.
    pub removed: Vec<JobId>,
    /// How many bytes their files had.
    pub bytes: u64,
    /// Those that could not be removed, and why.
    pub failed: Vec<(JobId, String)>,
}

/// The jobs of one member. There is one store for a member's directory at a time; see
/// [`OwnerLock`](crate::OwnerLock).
///
/// All methods block on the file system, but for those that end in `_now`, [`Self::new_id`], [`Self::running`] and
/// [`Self::running_count`].
pub struct JobStore {
    pub(crate) shared: Arc<Shared>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) views: ViewCache,
    pub(crate) lists: Lists,
    pub(crate) pace: Pace,
    running: AtomicUsize,
    /// What [`Self::load`] found, once it has.
    pub(crate) report: Mutex<Option<LoadReport>>,
    pub(crate) loaded: AtomicBool,
    /// Jobs that a host left running are left as they are.
    pub(crate) leaves_running: AtomicBool,
    /// Directories that are no jobs for lack of a readable `meta.json`, and why.
    pub(crate) left_out: Mutex<BTreeMap<JobId, String>>,
    /// Those of them that were there when the store was loaded.
    pub(crate) left_out_at_load: Mutex<BTreeSet<JobId>>,
    /// Held by the one who reads a job that the index does not know.
    pub(crate) settling: Mutex<()>,
    /// Directories of `jobs/` that are no jobs and could not be removed yet.
    pub(crate) unremoved: Mutex<BTreeSet<String>>,
    /// `None` where the system has no watch to give: then every look at all jobs is a search too.
    pub(crate) watch: Option<Watch>,
    /// Who goes on with jobs that a host left running.
    pub(crate) resume: OnceLock<Arc<dyn Resume>>,
    /// Itself, for the jobs that it runs.
    this: Weak<Self>,
    /// Held while a transcript is looked at.
    pub(crate) reading: Mutex<()>,
}

impl JobStore {
    /// Opens the store of a member, whose directory `member` is; makes `jobs/` if there is none. It reads no job, so
    /// it is fast: see [`Self::load`].
    pub fn open(member: &Dir, options: StoreOptions) -> io::Result<Arc<Self>> {
        let jobs = open_or_make_dir(member, JOBS)?;
        let catalog = Arc::new(Catalog::default());
        let watch = watch(&jobs, &catalog)
            .inspect_err(|e| tracing::warn!("jobs/ cannot be watched, and is searched once a second instead: {e}"))
            .ok();
        Ok(Arc::new_cyclic(|this| Self {
            shared: Arc::new(Shared {
                jobs,
                limits: RwLock::new(options.limits),
                clock: options.clock,
                generation: AtomicU64::new(0),
                renames: Group::default(),
                listener: OnceLock::new(),
            }),
            catalog,
            views: ViewCache::default(),
            lists: Lists::default(),
            pace: Pace::default(),
            running: AtomicUsize::new(0),
            report: Mutex::new(None),
            loaded: AtomicBool::new(false),
            leaves_running: AtomicBool::new(false),
            left_out: Mutex::default(),
            left_out_at_load: Mutex::default(),
            settling: Mutex::default(),
            unremoved: Mutex::default(),
            watch,
            resume: OnceLock::new(),
            this: this.clone(),
            reading: Mutex::default(),
        }))
    }

    /// An id for a new job: a UUIDv7 of the clock's time; of 1970, where the clock says that it is earlier.
    pub fn new_id(&self) -> JobId {
        let now = self.shared.clock.now();
        let seconds = u64::try_from(now.as_second()).unwrap_or(0);
        let nanos = u32::try_from(now.subsec_nanosecond()).unwrap_or(0);
        let time = uuid::Timestamp::from_unix(&*lock(&IN_ORDER), seconds, nanos);
        #[allow(clippy::expect_used, reason = "a UUID is of letters, digits and '-'")]
        Uuid::new_v7(time).to_string().parse().expect("a UUID is a job id")
    }

    /// Makes a job; it is running when this returns, and outlasts a power cut. Refused if description or task is
    /// empty, and over the limits of description, task and config.
    pub fn create(self: &Arc<Self>, new: NewJob) -> Result<Arc<RunningJob>, StoreError> {
        self.check(&new)?;
        let meta = Meta {
            job_id: new.id.clone(),
            status: JobStatus::Running,
            description: new.description.clone(),
            started_at: self.shared.now(),
            completed_at: None,
            error: None,
            usage: None,
            resumes: 0,
        };
        if !self.catalog.write().claim(&new.id) {
            return Err(StoreError::Refused(format!("there is a job {} already", new.id)));
        }
        let made = self.make(&new, &meta);
        let mut index = self.catalog.write();
        index.unclaim(&new.id);
        made.map_err(|e| {
            let removed = e.kind() == io::ErrorKind::NotFound;
            let hint = if removed { "; jobs/ was removed while the host runs, so start the host again" } else { "" };
            StoreError::io(format!("could not store the job{hint}"))(e)
        })?;
        let job = Arc::new(RunningJob::new(self.shared.clone(), self.this.clone(), &meta));
        index.insert(Entry::running(job.clone()), &meta.started_at);
        // Before anybody else can do anything to it.
        self.shared.tell(&new.id, || News::JobStarted { description: new.description.clone() });
        drop(index);
        self.running.fetch_add(1, Ordering::Relaxed);
        self.shared.changed();
        Ok(job)
    }

    /// Says who goes on with jobs that a host left running: to be said before [`Self::load`]. Without, they have failed.
    pub fn set_resume(&self, resume: Arc<dyn Resume>) {
        // Whoever is first stays: jobs may have been handed over already.
        let _ = self.resume.set(resume);
    }

    /// Changes the limits, for the jobs that are made, or taken up again, from now on: one that runs keeps its own.
    pub fn set_limits(&self, limits: Arc<Limits>) {
        *self.shared.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Says who is told what happens to jobs: to be said before [`Self::load`].
    pub fn set_listener(&self, listener: Arc<dyn Listener>) {
        // Whoever is first stays: it may have been told something already.
        let _ = self.shared.listener.set(listener);
    }

    /// Leaves jobs that a host left running to the next host: to be said before [`Self::load`]. They are not found then,
    /// unless [`Self::settle_left`] follows.
    pub fn leave_running(&self) {
        self.leaves_running.store(true, Ordering::Relaxed);
    }

    /// Takes up a job that a host left running: it is running again when this returns. `dir` is its directory.
    pub(crate) fn take_up(&self, meta: &Meta, dir: &Dir) -> io::Result<Arc<RunningJob>> {
        let job = Arc::new(RunningJob::resumed(self.shared.clone(), self.this.clone(), meta, dir)?);
        let mut index = self.catalog.write();
        index.insert(Entry::running(job.clone()), &meta.started_at);
        self.shared.tell(&meta.job_id, || News::JobResumed { description: meta.description.clone() });
        drop(index);
        self.running.fetch_add(1, Ordering::Relaxed);
        self.lists.forget();
        self.shared.changed();
        Ok(job)
    }

    fn check(&self, new: &NewJob) -> Result<(), StoreError> {
        let limits = &self.shared.limits();
        for (field, text) in [("description", &new.description), ("task", &new.task)] {
            if text.trim().is_empty() {
                return Err(StoreError::Refused(format!("{field} must not be empty")));
            }
        }
        for (field, bytes, limit) in [
            ("description", new.description.len(), limits.description_bytes),
            ("task", new.task.len(), limits.task_bytes),
            ("config", new.config.to_string().len(), limits.config_bytes),
        ] {
            if bytes as u64 > limit {
                return Err(StoreError::OverLimit(format!(
                    "{field} has {bytes} bytes; limits.{field}_bytes allows {limit}"
                )));
            }
        }
        Ok(())
    }

    /// Makes the job's directory under another name, and gives it its own by one rename.
    fn make(&self, new: &NewJob, meta: &Meta) -> io::Result<()> {
        let jobs = &self.shared.jobs;
        let nascent = format!("{NEW}{}", new.id);
        let made = (|| {
            jobs.create_dir(&nascent)?;
            let dir = open_dir(jobs, &nascent)?;
            create(&dir, TASK, new.task.as_bytes())?;
            create(&dir, CONFIG, &record::config_json(&new.config)?)?;
            create(&dir, META, &record::pretty(meta)?)?;
            create(&dir, STATUS, b"")?;
            let seal = |plan: &[u8]| self.resume.get().and_then(|resume| resume.seal(&new.id, plan));
            create(&dir, PLAN, &record::sealed(&new.plan, seal)?)?;
            dir.create_dir(ARTIFACTS)?;
            sync_dir(&dir)?;
            jobs.rename(&nascent, jobs, new.id.as_str())
        })();
        if made.is_err() {
            self.remove_tree(&nascent);
        }
        made?;
        self.shared.renames.share(|| sync_dir(jobs)).inspect_err(|_| {
            // The caller is told that there is no such job.
            if jobs.rename(new.id.as_str(), jobs, &nascent).is_ok() {
                self.remove_tree(&nascent);
            }
        })
    }

    /// The job, if it is running.
    pub fn running(&self, id: &str) -> Option<Arc<RunningJob>> {
        match &*lock(&self.catalog.read().get(id)?.state) {
            State::Running(job) => Some(job.clone()),
            State::Ended(_) => None,
        }
    }

    /// How many jobs are running.
    pub fn running_count(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// A job's directory.
    pub fn job_dir(&self, id: &JobId) -> io::Result<Dir> {
        open_dir(&self.shared.jobs, id.as_str())
    }

    /// Ends a running job; makes a failed one cancelled, whose error and end stay; leaves others as they are
    /// (REQ-WD-16). When this returns, the outcome is stored, and no file of the job changes any more.
    pub fn cancel(&self, id: &str) -> Result<CancelView, StoreError> {
        let entry = self.find(id)?;
        if let Some(job) = self.running(id)
            && let Some(cancelled) = job.cancel()
        {
            cancelled?;
            return Ok(CancelView { job_id: entry.id.clone(), status: JobStatus::Cancelled });
        }
        let _files = lock(&entry.files);
        self.refresh(&entry)?;
        let Some(meta) = entry.meta() else { return Err(StoreError::Unknown(id.to_owned())) };
        if meta.status != JobStatus::Failed {
            return Ok(CancelView { job_id: meta.job_id, status: meta.status });
        }
        let meta = Meta { status: JobStatus::Cancelled, ..meta };
        let stamp = self.store_end(&meta, None).map_err(StoreError::io("could not store that the job is cancelled"))?;
        let news = ended(&meta);
        self.update(&entry, |ended| (ended.meta, ended.stamp) = (meta, Some(stamp)));
        self.shared.tell(&entry.id, || news);
        Ok(CancelView { job_id: entry.id.clone(), status: JobStatus::Cancelled })
    }

    /// Removes a completed or cancelled job and all its files (REQ-WD-17, REQ-WD-18).
    pub fn delete(&self, id: &str) -> Result<Deleted, StoreError> {
        let entry = self.find(id)?;
        let _files = lock(&entry.files);
        self.refresh(&entry)?;
        match entry.status() {
            JobStatus::Running => Err(StoreError::Refused("Cannot delete a running job".to_owned())),
            JobStatus::Failed => Err(StoreError::Refused("Cannot delete a failed job. Cancel it first.".to_owned())),
            JobStatus::Completed | JobStatus::Cancelled => self.take_away(&entry),
        }?;
        self.discard(std::slice::from_ref(&entry.id));
        Ok(Deleted { job_id: entry.id.clone(), deleted: true })
    }

    /// Removes the jobs that ended more than `older_than` ago with one of `statuses`, failed ones too. A running
    /// job is never removed.
    pub fn prune(&self, older_than: Duration, statuses: &[JobStatus]) -> PruneReport {
        self.absorb();
        let mut report = PruneReport::default();
        let age = SignedDuration::try_from(older_than).unwrap_or(SignedDuration::MAX);
        let Ok(before) = self.shared.clock.now().checked_sub(age) else { return report };
        let entries = self.catalog.read().entries();
        for entry in entries {
            let _files = lock(&entry.files);
            if self.refresh(&entry).is_err() {
                continue;
            }
            let Some(meta) = entry.meta() else { continue };
            let time = meta.completed_at.as_ref().unwrap_or(&meta.started_at);
            let old = time.parse::<Timestamp>().is_ok_and(|time| time <= before);
            if old && statuses.contains(&meta.status) {
                match self.take_away(&entry) {
                    Ok(()) => {
                        let bytes = tree::bytes(&self.shared.jobs, &format!("{DELETED}{}", meta.job_id));
                        report.bytes = report.bytes.saturating_add(bytes);
                        report.removed.push(meta.job_id);
                    }
                    Err(e) => report.failed.push((meta.job_id, e.to_string())),
                }
            }
        }
        self.discard(&report.removed);
        report
    }

    /// Takes an ended job away, at once for everybody; [`Self::discard`] follows. `entry.files` is held.
    fn take_away(&self, entry: &Arc<Entry>) -> Result<(), StoreError> {
        let (id, jobs) = (&entry.id, &self.shared.jobs);
        let Some(meta) = entry.meta() else { return Err(StoreError::Unknown(id.to_string())) };
        if !self.catalog.write().take(id) {
            return Err(StoreError::Unknown(id.to_string()));
        }
        let doomed = format!("{DELETED}{id}");
        // An earlier job of that name can have left one.
        self.remove_tree(&doomed);
        if let Err(e) = if_there(jobs.rename(id.as_str(), jobs, &doomed)) {
            let mut index = self.catalog.write();
            index.unclaim(id);
            index.insert(entry.clone(), &meta.started_at);
            return Err(StoreError::io("could not remove the job")(e));
        }
        self.shared.changed();
        self.shared.tell(id, || News::JobDeleted);
        Ok(())
    }

    /// Removes the files of jobs that were taken away. Their ids stay reserved until then, so that nobody else does.
    fn discard(&self, ids: &[JobId]) {
        if ids.is_empty() {
            return;
        }
        if let Err(e) = self.shared.renames.share(|| sync_dir(&self.shared.jobs)) {
            tracing::warn!("that {} jobs were removed may not outlast a power cut: {e}", ids.len());
        }
        for id in ids {
            self.remove_tree(&format!("{DELETED}{id}"));
            self.catalog.write().unclaim(id);
            self.look_again(id);
        }
    }

    /// Removes a directory that is no job. What cannot be removed now is tried again.
    pub(crate) fn remove_tree(&self, name: &str) {
        let removed = tree::remove(&self.shared.jobs, name);
        let mut unremoved = lock(&self.unremoved);
        match removed {
            Ok(()) => drop(unremoved.remove(name)),
            Err(e) => {
                if unremoved.insert(name.to_owned()) {
                    tracing::warn!(name, "could not be removed, which is tried again: {e}");
                }
            }
        }
    }

    /// Changes what is known of an ended job, for all to see.
    pub(crate) fn update(&self, entry: &Entry, change: impl FnOnce(&mut Ended)) {
        if let State::Ended(ended) = &mut *lock(&entry.state) {
            change(ended);
        }
        self.shared.changed();
    }

    /// See [`record::store_end`].
    pub(crate) fn store_end(&self, meta: &Meta, owed: Option<&Owed>) -> io::Result<Stamp> {
        record::store_end(&self.job_dir(&meta.job_id)?, meta, owed, &self.shared.limits())
    }

    /// A job. Waits for the load only where the job is not known yet; a directory that was left out is looked at once
    /// more.
    pub(crate) fn find(&self, id: &str) -> Result<Arc<Entry>, StoreError> {
        let get = || self.catalog.read().get(id);
        if self.loaded.load(Ordering::Acquire) || get().is_none() {
            self.absorb();
        }
        if let (None, Ok(id)) = (get(), id.parse()) {
            let left_out = lock(&self.left_out).contains_key(&id);
            if left_out {
                self.settle(&id);
            }
        }
        get().ok_or_else(|| StoreError::Unknown(id.to_owned()))
    }
}

impl EndListener for JobStore {
    fn ended(&self, ended: Ended, gone: bool) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        let id = ended.meta.job_id.clone();
        let news = self::ended(&ended.meta);
        if gone {
            self.shared.tell(&id, || news);
            self.forget(&id);
        } else if let Some(entry) = self.catalog.read().get(id.as_str()) {
            let mut state = lock(&entry.state);
            *state = State::Ended(Box::new(ended));
            // Whoever deletes it now waits until that is told.
            self.shared.tell(&id, || news);
        }
        self.shared.changed();
    }
}

/// That a job ended as its record says.
pub(crate) fn ended(meta: &Meta) -> News {
    News::JobEnded { status: meta.status, error: meta.error.clone() }
}
