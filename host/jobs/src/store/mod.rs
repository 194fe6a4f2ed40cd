//! Makes and cancels jobs in the job store (REQ-WD-19 to REQ-WD-21).
//!
//! The files are the database, and people read and edit them. A job is a directory of `jobs/` with its id as name. It
//! exists from the rename to that name until the rename away from it.

mod browse;
mod index;
mod keys;
mod leftovers;
mod list;
mod load;
mod log;
mod recover;
mod remove;
mod shared;
mod status;
mod usage;
mod view;

use std::{
    collections::HashSet,
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use cap_std::fs::Dir;
use guild_contract::{DispatchKey, EventDetail, JobId, JobStatus, Limits, Meta, rpc::CancelView};
use guild_fs::{
    clock::Clock,
    durable::{Survives, create, if_there, open_dir, open_or_make_dir, sync_dir},
    fingerprint::Fingerprint,
    tree,
};
use guild_session::activation::Activation;
use serde::Serialize;
use serde_json::Value;
use uuid::{ContextV7, Uuid};

use self::index::{Catalog, Entry, State};
use crate::{
    Accepted,
    error::StoreError,
    events::Subscriber,
    files::{
        activation::GivenActivation,
        artifacts::ARTIFACTS,
        attachments::{self, ATTACHMENTS, AttachedBytes},
        record::{self, ACTIVATION, CONFIG, COPIES, JOBS, META, PLAN, STATUS, TASK, UnsavedResult},
    },
    ledger::{Head, Ledger},
    running::{
        EndListener, RunningJob,
        ended::{EndedJob, end_of},
        store_context::StoreContext,
    },
    sync::lock,
};

pub use browse::{JobSummary, STATES_BYTES};
use keys::CallersKey;
pub use keys::{KeyClaim, Keyed};
use leftovers::{Trash, Unreadable};
use list::Lists;
pub use list::filter;
pub use load::LoadReport;
use load::Loading;
pub use log::LOG_BYTES;
use recover::Recovery;
pub use recover::{Resume, interrupted};
pub use remove::PruneReport;
use status::NotesBudget;
pub use view::JobView;

/// Orders the ids of one millisecond by the time when they were made.
static IN_ORDER: Mutex<ContextV7> = Mutex::new(ContextV7::new());
/// The prefix of a directory's name while the job is being made.
const NEW: &str = ".new-";
/// The prefix of the name of a deleted job's directory.
const DELETED: &str = ".del-";
/// How many milliseconds an ended job counts as unchanged after its files were read.
const FRESH_MILLIS: i64 = 1000;
/// The number of jobs of the store that add a millisecond to that, so that a host does not spend its time comparing
/// files.
const JOBS_PER_FRESH_MILLI: i64 = 12;
/// The most milliseconds.
const MAX_FRESH_MILLIS: i64 = 5000;

/// The options of a store.
pub struct StoreOptions {
    /// The limits that it enforces.
    pub limits: Arc<Limits>,
    /// Its source of the time.
    pub clock: Arc<dyn Clock>,
}

/// A new job: an accepted dispatch, whose texts and configuration are within the limits.
pub struct NewJob {
    /// From [`JobStore::new_id`].
    pub id: JobId,
    /// The short label; not empty.
    pub description: String,
    /// The prompt; not empty.
    pub task: String,
    /// The dispatch's `config`; null if it has none.
    pub config: Value,
    /// The name of the caller's token, if it had one.
    pub token: Option<String>,
    /// The files that came with the dispatch, if there are some.
    pub attachments: Option<Staged>,
    /// The earlier job that it continues, if there is one.
    pub follows: Option<JobId>,
    /// The key of the dispatch, if it had one.
    pub key: Option<DispatchKey>,
    /// The accepted plan.
    pub plan: Accepted,
    /// What the activation was given, if the job keeps that.
    pub activation: Option<Arc<Activation>>,
}

/// The files of a dispatch whose job does not exist yet. They are removed, if no job is created with them, when this is
/// dropped, which blocks.
pub struct Staged {
    store: Arc<JobStore>,
    /// The id of the job, which is claimed.
    id: JobId,
    is_job: bool,
}

impl Staged {
    /// The directory with the files, relative to the member's.
    pub fn path(&self) -> PathBuf {
        [self.store.context.place, &self.name(), ATTACHMENTS].iter().collect()
    }

    /// The name of the directory that becomes the job's.
    fn name(&self) -> String {
        format!("{NEW}{}", self.id)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.is_job {
            self.store.trash.remove(&self.store.context.jobs, &self.name());
            self.store.unclaim(&self.id);
        }
    }
}

/// The jobs of one member. A member's directory has one store at a time; see
/// [`OwnerLock`](crate::OwnerLock).
///
/// All methods block on the file system, except [`Self::new_id`], [`Self::follow`],
/// [`Self::running`] and [`Self::brief`].
pub struct JobStore {
    /// The member's directory.
    member: Dir,
    context: Arc<StoreContext>,
    catalog: Catalog,
    /// The keys of dispatches that have made no job yet.
    claimed_keys: Mutex<HashSet<CallersKey>>,
    lists: Lists,
    notes: NotesBudget,
    loading: Loading,
    recovery: Recovery,
    unreadable: Unreadable,
    trash: Trash,
    /// Held while the ledger of removed jobs is written.
    removing: Mutex<()>,
    /// Passed to the jobs that it runs.
    itself: Weak<Self>,
}

impl JobStore {
    /// Opens the store of the member in the directory `member`; makes `jobs/` if there is none. It reads no job: see
    /// [`Self::load`].
    pub fn open(member: &Dir, options: StoreOptions) -> io::Result<Arc<Self>> {
        Self::open_at(member, JOBS, options, None)
    }

    /// Opens the store of a member that other hosts serve too. The ledger decides about the jobs, and its jobs are
    /// [heard](Self::hear) of; the directory `.jobs` of the member is emptied, and has the copies of this host.
    ///
    /// # Errors
    ///
    /// Returns an error when the directory cannot be emptied or made.
    pub fn open_shared(member: &Dir, options: StoreOptions, ledger: Arc<dyn Ledger>) -> io::Result<Arc<Self>> {
        if_there(tree::remove(member, COPIES))?;
        Self::open_at(member, COPIES, options, Some(ledger))
    }

    fn open_at(
        member: &Dir,
        place: &'static str,
        options: StoreOptions,
        ledger: Option<Arc<dyn Ledger>>,
    ) -> io::Result<Arc<Self>> {
        let jobs = open_or_make_dir(member, place)?;
        // The directory is opened for reading, so that renames in it can be synced.
        let member = open_dir(member, ".")?;
        let StoreOptions { limits, clock } = options;
        let (limits, generation, subscriber) = (Mutex::new(limits), AtomicU64::new(0), OnceLock::new());
        let context = StoreContext { jobs, place, ledger, limits, clock, generation, subscriber };
        Ok(Arc::new_cyclic(|itself| Self {
            member,
            context: Arc::new(context),
            catalog: Catalog::default(),
            claimed_keys: Mutex::default(),
            lists: Lists::default(),
            notes: NotesBudget::default(),
            loading: Loading::default(),
            recovery: Recovery::default(),
            unreadable: Unreadable::default(),
            trash: Trash::default(),
            removing: Mutex::default(),
            itself: itself.clone(),
        }))
    }

    /// An id for a new job: a UUIDv7 of the clock's time, or of 1970 if that is earlier.
    pub fn new_id(&self) -> JobId {
        let now = self.context.clock.now();
        let seconds = u64::try_from(now.as_second()).unwrap_or(0);
        let nanos = u32::try_from(now.subsec_nanosecond()).unwrap_or(0);
        let time = uuid::Timestamp::from_unix(&*lock(&IN_ORDER), seconds, nanos);
        #[allow(clippy::expect_used, reason = "a UUID is of letters, digits and '-'")]
        Uuid::new_v7(time).to_string().parse().expect("a UUID is a job id")
    }

    /// Makes a job. When this returns, it is running, and survives a power cut. Refused if there is a job of that id.
    pub fn create(self: &Arc<Self>, mut new: NewJob) -> Result<Arc<RunningJob>, StoreError> {
        let meta = Meta {
            job_id: new.id.clone(),
            status: JobStatus::Running,
            description: new.description.clone(),
            started_at: self.context.now(),
            completed_at: None,
            error: None,
            usage: None,
            resumes: 0,
            token: new.token.clone(),
            resumption: None,
            follows: new.follows.clone(),
            key: new.key.clone(),
        };
        if new.attachments.is_none() && !self.catalog.write().claim(&new.id) {
            return Err(StoreError::Refused(format!("there is a job {} already", new.id)));
        }
        let made = self.make(&new, &meta);
        if let Some(staged) = &mut new.attachments {
            // The files are in the job's directory, or were removed with it.
            staged.is_job = true;
        }
        made.map_err(|e| {
            self.unclaim(&new.id);
            let removed = e.kind() == io::ErrorKind::NotFound;
            let hint = if removed { "; jobs/ was removed while the host runs, so start the host again" } else { "" };
            StoreError::io(format!("could not store the job{hint}"))(e)
        })?;
        let started = EventDetail::JobStarted { description: new.description.clone() };
        let hold = match &self.context.ledger {
            None => None,
            Some(ledger) => Some(self.begin_shared(ledger, &meta, &new.plan, &started)?),
        };
        let job = Arc::new(RunningJob::new(self.context.clone(), self.itself.clone(), meta, hold));
        if !self.insert_running(&job, self.context.ledger.is_none().then_some(started)) {
            job.lose();
        }
        Ok(job)
    }

    /// Sets the resumer of interrupted jobs, before [`Self::load`]. Without it, they fail.
    pub fn set_resume(&self, resume: Arc<dyn Resume>) {
        let _ = self.recovery.resume.set(resume);
    }

    /// Changes the limits of jobs that are created or resumed from now on. A running job keeps its own.
    pub fn set_limits(&self, limits: Arc<Limits>) {
        *lock(&self.context.limits) = limits;
    }

    /// Sets the subscriber to the events of jobs, before [`Self::load`].
    pub fn set_subscriber(&self, subscriber: Arc<dyn Subscriber>) {
        let _ = self.context.subscriber.set(subscriber);
    }

    /// Leaves interrupted jobs to the next host. This has to be called before [`Self::load`]. The jobs are unknown
    /// then, unless [`Self::recover`] follows.
    pub fn defer_recovery(&self) {
        self.recovery.is_deferred.store(true, Ordering::Relaxed);
    }

    /// Stores the files that come with a dispatch, for the job of this id, before there is a job. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when a file cannot be stored, and removes all of them.
    pub fn stage(self: &Arc<Self>, id: &JobId, files: &[AttachedBytes]) -> Result<Staged, StoreError> {
        // A directory of an id that is not claimed is a leftover, which a sweep removes.
        if !self.catalog.write().claim(id) {
            return Err(StoreError::Refused(format!("there is a job {id} already")));
        }
        let staged = Staged { store: self.clone(), id: id.clone(), is_job: false };
        let name = staged.name();
        let jobs = &self.context.jobs;
        let stored = jobs.create_dir(&name).and_then(|()| open_dir(jobs, &name));
        let stored = stored.and_then(|dir| attachments::write(&dir, files));
        stored.map_err(StoreError::io("could not store the attachments"))?;
        Ok(staged)
    }

    /// The directory with the files that came with a job's dispatch, relative to the member's; none if there are none.
    /// It blocks.
    pub fn attachments(&self, id: &JobId) -> Option<PathBuf> {
        let dir = self.job_dir(id).ok()?;
        attachments::are_there(&dir).then(|| [self.context.place, id.as_str(), ATTACHMENTS].iter().collect())
    }

    /// Makes the job's directory under a temporary name, and renames it.
    fn make(&self, new: &NewJob, meta: &Meta) -> io::Result<()> {
        let jobs = &self.context.jobs;
        let nascent = format!("{NEW}{}", new.id);
        let made = (|| {
            if new.attachments.is_none() {
                jobs.create_dir(&nascent)?;
            }
            let dir = open_dir(jobs, &nascent)?;
            let create = |file, bytes: &[u8]| create(&dir, file, bytes, Survives::PowerCut.into());
            create(TASK, new.task.as_bytes())?;
            create(CONFIG, &record::config_json(&new.config)?)?;
            create(META, &record::pretty(meta)?)?;
            create(STATUS, b"")?;
            let seal = |plan: &[u8]| self.recovery.resume.get()?.seal(&new.id, plan);
            create(PLAN, &record::sealed(&new.plan, seal)?)?;
            if let Some(activation) = &new.activation {
                let given = GivenActivation { at: meta.started_at.clone(), activation };
                // No job depends on the file, so a power cut may lose its content.
                guild_fs::durable::create(&dir, ACTIVATION, &record::pretty(&given)?, Survives::Process.into())?;
            }
            dir.create_dir(ARTIFACTS)?;
            sync_dir(&dir)?;
            jobs.rename(&nascent, jobs, new.id.as_str())
        })();
        if made.is_err() {
            self.trash.remove(jobs, &nascent);
        }
        made?;
        sync_dir(jobs).inspect_err(|_| {
            // The caller gets an error, so there must be no such job.
            if jobs.rename(new.id.as_str(), jobs, &nascent).is_ok() {
                self.trash.remove(jobs, &nascent);
            }
        })
    }

    /// The job, for those who follow it until it has ended; `None` if it has.
    pub fn follow(&self, id: &str) -> Option<JobView> {
        let entry = self.catalog.read().get(id)?;
        (entry.status() == JobStatus::Running).then(|| JobView::of(entry))
    }

    /// The job, if it runs here, for those who carry it out.
    pub fn running(&self, id: &str) -> Option<Arc<RunningJob>> {
        match &*lock(&self.catalog.read().get(id)?.state) {
            State::Running(job) => Some(job.clone()),
            State::Elsewhere(_) | State::Ended(_) => None,
        }
    }

    /// A job's directory.
    pub fn job_dir(&self, id: &JobId) -> io::Result<Dir> {
        open_dir(&self.context.jobs, id.as_str())
    }

    /// Ends a running job; makes a failed one cancelled, and keeps its error and time; leaves others as they are
    /// (REQ-WD-16). When this returns, the outcome is stored, and no file of the job changes any more.
    pub fn cancel(&self, id: &str) -> Result<CancelView, StoreError> {
        let entry = self.find(id)?;
        match self.running(id).and_then(|job| job.cancel()) {
            None | Some(Err(StoreError::Lost)) => {}
            Some(cancelled) => {
                cancelled?;
                return Ok(CancelView { job_id: entry.id.clone(), status: JobStatus::Cancelled });
            }
        }
        if let Some(ledger) = &self.context.ledger {
            return self.cancel_shared(ledger, &entry);
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
        entry.update_ended(|ended| (ended.meta, ended.fingerprint) = (meta, Some(stored)));
        self.context.publish(&entry.id, || end);
        Ok(CancelView { job_id: entry.id.clone(), status: JobStatus::Cancelled })
    }

    /// See [`record::store_end`].
    fn store_end(&self, meta: &Meta, unsaved: Option<&UnsavedResult>) -> io::Result<Fingerprint> {
        record::store_end(&self.job_dir(&meta.job_id)?, meta, unsaved, &self.context.limits())
    }

    /// A job. It waits for the load only if the job is not known yet. A directory that appeared since is read.
    fn find(&self, id: &str) -> Result<Arc<Entry>, StoreError> {
        let get = || self.catalog.read().get(id);
        if get().is_none()
            && self.ensure_loaded()
            && let Ok(id) = id.parse()
        {
            match &self.context.ledger {
                None => self.compare(&id),
                Some(ledger) => self.look_for(ledger, &id)?,
            }
        }
        get().ok_or_else(|| StoreError::Unknown(id.to_owned()))
    }

    /// A test whether the files of an ended job that were read at a moment count as unchanged. A moment in the future,
    /// as after the clock was set back, does not pass. The index is read here and not by the test, since it must not be
    /// locked while a job's state is.
    fn freshness(&self) -> impl Fn(i64) -> bool + use<> {
        let jobs = i64::try_from(self.catalog.read().len()).unwrap_or(i64::MAX);
        let millis = FRESH_MILLIS.saturating_add(jobs / JOBS_PER_FRESH_MILLI).min(MAX_FRESH_MILLIS);
        let now = self.context.millis();
        move |moment| (0..millis).contains(&now.saturating_sub(moment))
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
            // The event is published under the lock, so that it precedes that of a deletion.
            self.context.publish(&id, || end);
        }
    }

    fn lost(&self, id: &JobId, head: Head) {
        let entry = self.catalog.read().get(id.as_str());
        if let Some(entry) = entry {
            self.lose(&entry, head);
            self.look_again(&entry);
        }
    }

    fn give_back(&self, id: &JobId) {
        self.give_back(id);
    }
}

/// Serializes an answer.
fn json(value: &impl Serialize) -> Result<Bytes, StoreError> {
    let bytes = serde_json::to_vec(value).map_err(|e| StoreError::io("could not write the answer")(e.into()))?;
    Ok(Bytes::from(bytes))
}
