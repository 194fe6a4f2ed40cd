//! The job store: jobs are made, ended by callers, and removed here (REQ-WD-19 to REQ-WD-21).
//!
//! Files are the database, and people read and edit them. A job is a directory of `jobs/` that is named by its id;
//! it exists from the rename that puts it there to the rename that takes it away.

mod browse;
mod filter;
mod leftovers;
mod list;
mod load;
mod recover;
mod status;

use std::{
    io,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use bytes::Bytes;
use cap_std::fs::Dir;
use guild_contract::{
    JobId, JobStatus, Limits, Meta, News,
    rpc::{CancelView, Deleted},
};
use guild_session::fingerprint::Fingerprint;
use jiff::SignedDuration;
use serde::Serialize;
use serde_json::Value;
use uuid::{ContextV7, Uuid};

use crate::{
    Accepted,
    artifacts::ARTIFACTS,
    clock::Clock,
    context::StoreContext,
    durable::{create, if_there, open_dir, open_or_make_dir, sync_dir},
    ended::EndedJob,
    error::StoreError,
    events::Subscriber,
    index::{Catalog, Entry, State},
    record::{self, CONFIG, JOBS, META, PLAN, STATUS, TASK, UnsavedResult},
    records::ended_before,
    running::{EndListener, RunningJob},
    sync::lock,
    tree,
    watch::{Watch, watch},
};

pub use browse::JobSummary;
pub use filter::filter;
use leftovers::{Trash, Unreadable};
use list::Lists;
pub use load::LoadReport;
use load::Loading;
use recover::Recovery;
pub use recover::{Resume, interrupted};
use status::NotesBudget;

/// Has ids of the same millisecond in the order in which they were made.
static IN_ORDER: Mutex<ContextV7> = Mutex::new(ContextV7::new());
/// How the name of a directory begins that is to become a job.
const NEW: &str = ".new-";
/// How the name of a directory begins that was a job.
const DELETED: &str = ".del-";
/// For so many milliseconds, what was read of an ended job counts as what its files say.
const FRESH_MILLIS: i64 = 1000;
/// For so many more jobs of the store, a millisecond longer: looking at files must not become most of what a host does.
const JOBS_PER_FRESH_MILLI: i64 = 12;
/// But no longer than this.
const MAX_FRESH_MILLIS: i64 = 5000;

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
    context: Arc<StoreContext>,
    catalog: Arc<Catalog>,
    lists: Lists,
    notes: NotesBudget,
    loading: Loading,
    recovery: Recovery,
    unreadable: Unreadable,
    trash: Trash,
    /// `None` where the system has no watch to give: then every look at all jobs is a search too.
    watch: Option<Watch>,
    /// For the jobs that it runs.
    itself: Weak<Self>,
}

impl JobStore {
    /// Opens the store of a member, whose directory `member` is; makes `jobs/` if there is none. It reads no job, so
    /// it is fast: see [`Self::load`].
    pub fn open(member: &Dir, options: StoreOptions) -> io::Result<Arc<Self>> {
        let jobs = open_or_make_dir(member, JOBS)?;
        let catalog = Arc::new(Catalog::default());
        let watch = watch(&jobs, &catalog)
            .inspect_err(|e| tracing::warn!("cannot watch jobs/, searching it once a second instead: {e}"))
            .ok();
        let context = StoreContext::new(jobs, options.limits, options.clock);
        Ok(Arc::new_cyclic(|itself| Self {
            context,
            catalog,
            lists: Lists::default(),
            notes: NotesBudget::default(),
            loading: Loading::default(),
            recovery: Recovery::default(),
            unreadable: Unreadable::default(),
            trash: Trash::default(),
            watch,
            itself: itself.clone(),
        }))
    }

    /// An id for a new job: a UUIDv7 of the clock's time; of 1970, where the clock says that it is earlier.
    pub fn new_id(&self) -> JobId {
        let now = self.context.clock().now();
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
            started_at: self.context.now(),
            completed_at: None,
            error: None,
            usage: None,
            resumes: 0,
        };
        if !self.catalog.write().claim(&new.id) {
            return Err(StoreError::Refused(format!("there is a job {} already", new.id)));
        }
        self.make(&new, &meta).map_err(|e| {
            self.catalog.write().unclaim(&new.id);
            let removed = e.kind() == io::ErrorKind::NotFound;
            let hint = if removed { "; jobs/ was removed while the host runs, so start the host again" } else { "" };
            StoreError::io(format!("could not store the job{hint}"))(e)
        })?;
        let job = Arc::new(RunningJob::new(self.context.clone(), self.itself.clone(), &meta));
        self.insert_running(&job, &meta, || News::JobStarted { description: new.description.clone() });
        Ok(job)
    }

    /// Says who resumes interrupted jobs: to be called before [`Self::load`]. Without, they fail.
    pub fn set_resume(&self, resume: Arc<dyn Resume>) {
        self.recovery.set_resume(resume);
    }

    /// Changes the limits, for the jobs that are created, or resumed, from now on: a running job keeps its own.
    pub fn set_limits(&self, limits: Arc<Limits>) {
        self.context.set_limits(limits);
    }

    /// Says who receives the events of jobs: to be called before [`Self::load`].
    pub fn set_subscriber(&self, subscriber: Arc<dyn Subscriber>) {
        self.context.subscribe(subscriber);
    }

    /// Leaves interrupted jobs to the next host: to be called before [`Self::load`]. They are not found then, unless
    /// [`Self::recover`] follows.
    pub fn defer_recovery(&self) {
        self.recovery.defer(true);
    }

    fn check(&self, new: &NewJob) -> Result<(), StoreError> {
        let limits = &self.context.limits();
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
        let jobs = self.context.jobs();
        let nascent = format!("{NEW}{}", new.id);
        let made = (|| {
            jobs.create_dir(&nascent)?;
            let dir = open_dir(jobs, &nascent)?;
            create(&dir, TASK, new.task.as_bytes())?;
            create(&dir, CONFIG, &record::config_json(&new.config)?)?;
            create(&dir, META, &record::pretty(meta)?)?;
            create(&dir, STATUS, b"")?;
            create(&dir, PLAN, &record::sealed(&new.plan, |plan| self.recovery.seal(&new.id, plan))?)?;
            dir.create_dir(ARTIFACTS)?;
            sync_dir(&dir)?;
            jobs.rename(&nascent, jobs, new.id.as_str())
        })();
        if made.is_err() {
            self.trash.remove(jobs, &nascent);
        }
        made?;
        self.context.sync_jobs().inspect_err(|_| {
            // The caller is told that there is no such job.
            if jobs.rename(new.id.as_str(), jobs, &nascent).is_ok() {
                self.trash.remove(jobs, &nascent);
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
        let entries = self.catalog.read().entries();
        entries.iter().filter(|entry| entry.status() == JobStatus::Running).count()
    }

    /// A job's directory.
    pub fn job_dir(&self, id: &JobId) -> io::Result<Dir> {
        open_dir(self.context.jobs(), id.as_str())
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
        let stored =
            self.store_end(&meta, None).map_err(StoreError::io("could not store that the job is cancelled"))?;
        let end = end_of(&meta);
        self.update(&entry, |ended| (ended.meta, ended.fingerprint) = (meta, Some(stored)));
        self.context.publish(&entry.id, || end);
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
        let Ok(before) = self.context.clock().now().checked_sub(age) else { return report };
        let entries = self.catalog.read().entries();
        for entry in entries {
            let _files = lock(&entry.files);
            if self.refresh(&entry).is_err() {
                continue;
            }
            let Some(meta) = entry.meta() else { continue };
            if statuses.contains(&meta.status) && ended_before(&meta, before) {
                match self.take_away(&entry) {
                    Ok(()) => {
                        let bytes = tree::bytes(self.context.jobs(), &format!("{DELETED}{}", meta.job_id));
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
        let (id, jobs) = (&entry.id, self.context.jobs());
        let Some(meta) = entry.meta() else { return Err(StoreError::Unknown(id.to_string())) };
        if !self.catalog.write().take(id) {
            return Err(StoreError::Unknown(id.to_string()));
        }
        let doomed = format!("{DELETED}{id}");
        // An earlier job of that name can have left one.
        self.trash.remove(jobs, &doomed);
        if let Err(e) = if_there(jobs.rename(id.as_str(), jobs, &doomed)) {
            let mut index = self.catalog.write();
            index.unclaim(id);
            index.insert(entry.clone(), &meta.started_at);
            return Err(StoreError::io("could not remove the job")(e));
        }
        self.context.changed();
        self.context.publish(id, || News::JobDeleted);
        Ok(())
    }

    /// Removes the files of jobs that were taken away. Their ids stay reserved until then, so that nobody else does.
    fn discard(&self, ids: &[JobId]) {
        if ids.is_empty() {
            return;
        }
        if let Err(e) = self.context.sync_jobs() {
            tracing::warn!("the removal of {} jobs may not survive a power cut: {e}", ids.len());
        }
        for id in ids {
            self.trash.remove(self.context.jobs(), &format!("{DELETED}{id}"));
            self.catalog.write().unclaim(id);
            self.notice_return(id);
        }
    }

    /// Changes what is known of an ended job, for all to see.
    fn update(&self, entry: &Entry, change: impl FnOnce(&mut EndedJob)) {
        entry.update_ended(change);
        self.context.changed();
    }

    /// See [`record::store_end`].
    fn store_end(&self, meta: &Meta, unsaved: Option<&UnsavedResult>) -> io::Result<Fingerprint> {
        record::store_end(&self.job_dir(&meta.job_id)?, meta, unsaved, &self.context.limits())
    }

    /// A job. It waits for the load only where the job is not known yet; a directory that could not be read is looked at
    /// once more.
    fn find(&self, id: &str) -> Result<Arc<Entry>, StoreError> {
        let get = || self.catalog.read().get(id);
        if self.loading.is_done() || get().is_none() {
            self.absorb();
        }
        if let (None, Ok(id)) = (get(), id.parse())
            && self.unreadable.contains(&id)
        {
            self.compare(&id);
        }
        get().ok_or_else(|| StoreError::Unknown(id.to_owned()))
    }

    /// How long what was read of ended jobs counts as what their files say, in milliseconds.
    fn fresh_millis(&self) -> i64 {
        let jobs = i64::try_from(self.catalog.read().len()).unwrap_or(i64::MAX);
        FRESH_MILLIS.saturating_add(jobs / JOBS_PER_FRESH_MILLI).min(MAX_FRESH_MILLIS)
    }

    /// Whether that moment is no longer ago; one that is still to come, as when the clock was set back, is not.
    fn is_within(&self, millis: i64, moment: i64) -> bool {
        (0..millis).contains(&self.context.millis().saturating_sub(moment))
    }
}

impl EndListener for JobStore {
    fn ended(&self, ended: EndedJob, gone: bool) {
        let id = ended.meta.job_id.clone();
        let end = end_of(&ended.meta);
        let entry = self.catalog.read().get(id.as_str());
        if gone {
            self.context.publish(&id, || end);
            self.forget(&id);
        } else if let Some(entry) = entry {
            let mut state = lock(&entry.state);
            *state = State::Ended(Box::new(ended));
            // Whoever deletes it now waits until that is published.
            self.context.publish(&id, || end);
        }
        self.context.changed();
    }
}

/// The event of a job that ended as its record says.
fn end_of(meta: &Meta) -> News {
    News::JobEnded { status: meta.status, error: meta.error.clone() }
}

/// An answer for the wire.
fn json(value: &impl Serialize) -> Result<Bytes, StoreError> {
    let bytes = serde_json::to_vec(value).map_err(|e| StoreError::io("could not write the answer")(e.into()))?;
    Ok(Bytes::from(bytes))
}
