//! Reads and prunes a member's jobs in their files, for commands that run without a host.
//!
//! Reading needs no owner and changes nothing. Pruning makes this process the owner meanwhile; if a host is the owner,
//! that host has to prune instead.

use std::{io, sync::Arc, time::Duration};

use cap_std::fs::Dir;
use guild_contract::{
    JobId, JobStatus, Limits, Meta,
    rpc::{Listed, ListedDetails, ResultView, StatusView},
};
use guild_fs::clock::SystemClock;
use guild_jobs::{
    JobStore, OwnerLock, PruneReport, Records, Resume, RunningJob, Sealed, StoreError, StoreOptions,
    files::reader::{ended_before, started_at},
};
use guild_session::{activation::Plan, transcript::Entry};
use jiff::Timestamp;

pub use guild_jobs::{
    Note, Owner,
    files::{follow::Follow, reader::made_at},
    filter,
    usage::{MemberUsage, Sum, of_member as usage},
};

/// The owner of a member.
enum Ownership {
    /// This process, as long as it has the lock.
    Own(OwnerLock),
    /// A host that answers at this URL.
    Host { url: String },
}

/// A member's jobs, and the process that owns the member.
pub struct OfflineJobs {
    dir: Dir,
    /// `None` if the member never had a job.
    records: Option<Records>,
    owner: Option<Owner>,
}

/// A job in a list.
pub struct OfflineJob {
    /// The entry in the answer of `worker/list`.
    pub listed: Listed,
    /// Whether it is recorded as running while no process owns the member.
    pub interrupted: bool,
    /// The time of its creation, if its record has it.
    pub made: Option<Timestamp>,
}

/// A list of jobs, in no order.
#[derive(Default)]
pub struct OfflineList {
    /// The jobs that match.
    pub jobs: Vec<OfflineJob>,
    /// Jobs whose record cannot be read, and why.
    pub unreadable: Vec<(JobId, io::Error)>,
}

/// The result of pruning.
pub enum Pruning {
    /// This process removed jobs.
    Done(PruneReport),
    /// A host owns the member, and answers at this URL.
    Owned(String),
}

impl OfflineJobs {
    /// The jobs of the member whose directory `dir` is.
    ///
    /// # Errors
    ///
    /// Returns an error when `jobs/` or the owner cannot be read.
    pub fn open(dir: Dir) -> Result<Self, String> {
        let records = Records::open(&dir).map_err(|e| format!("its jobs cannot be read: {e}"))?;
        // Without jobs, it does not matter who owns the member.
        let owner = match &records {
            Some(_) => Owner::of(&dir).map_err(|e| format!("its owner cannot be read: {e}"))?,
            None => None,
        };
        Ok(Self { dir, records, owner })
    }

    /// The member's directory.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Whether the member ever had a job.
    pub fn is_used(&self) -> bool {
        self.records.is_some()
    }

    /// The host that owns the member and answers.
    pub fn host(&self) -> Option<&Owner> {
        self.owner.as_ref().filter(|owner| !owner.url.is_empty())
    }

    /// Whether there is a directory for a job of that id.
    pub fn has(&self, id: &JobId) -> bool {
        self.records.as_ref().is_some_and(|records| records.has(id))
    }

    /// The ids of all jobs, in no order.
    ///
    /// # Errors
    ///
    /// Returns an error when `jobs/` cannot be read.
    pub fn ids(&self) -> io::Result<Vec<JobId>> {
        self.records.as_ref().map_or_else(|| Ok(Vec::new()), Records::ids)
    }

    /// A job's record.
    ///
    /// # Errors
    ///
    /// Returns an error when the record is missing, or cannot be read.
    pub fn meta(&self, id: &JobId, limits: &Limits) -> io::Result<Meta> {
        self.records()?.meta(id, limits)
    }

    /// Whether a job is recorded as running while no process owns the member.
    pub fn is_interrupted(&self, meta: &Meta) -> bool {
        meta.status == JobStatus::Running && self.owner.is_none()
    }

    /// The jobs that match, with their details if `detailed`.
    ///
    /// # Errors
    ///
    /// Returns an error when `jobs/` cannot be read.
    pub fn list(&self, matches: impl Fn(&Meta) -> bool, detailed: bool, limits: &Limits) -> io::Result<OfflineList> {
        let mut list = OfflineList::default();
        let Some(records) = &self.records else { return Ok(list) };
        for (id, meta) in records.all(limits)? {
            let meta = match meta {
                Ok(meta) => meta,
                Err(error) => {
                    list.unreadable.push((id, error));
                    continue;
                }
            };
            if !matches(&meta) {
                continue;
            }
            let (interrupted, made) = (self.is_interrupted(&meta), started_at(&meta));
            let details = detailed
                .then(|| ListedDetails { summary: records.summary(&meta), description: meta.description.clone() });
            let listed = Listed { status: meta.status, details, job_id: id };
            list.jobs.push(OfflineJob { listed, interrupted, made });
        }
        Ok(list)
    }

    /// The answer of `worker/status`. `meta` is the job's record.
    ///
    /// # Errors
    ///
    /// Returns an error when the member has no jobs.
    pub fn status(&self, meta: &Meta, limits: &Limits) -> io::Result<StatusView> {
        Ok(self.records()?.status(meta, limits))
    }

    /// The answer of `worker/result`. `meta` is the job's record.
    ///
    /// # Errors
    ///
    /// Returns an error when the job is not completed, or its result cannot be read.
    pub fn result(&self, meta: &Meta, limits: &Limits) -> Result<ResultView, StoreError> {
        let unknown = |_| StoreError::Unknown(meta.job_id.to_string());
        self.records().map_err(unknown)?.result(meta, limits)
    }

    fn records(&self) -> io::Result<&Records> {
        self.records.as_ref().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the member has no jobs"))
    }

    /// The bytes of a job's files.
    pub fn bytes(&self, id: &JobId) -> u64 {
        self.records.as_ref().map_or(0, |records| records.bytes(id))
    }

    /// The jobs that [`Self::prune`] would remove, in the order of their ids.
    ///
    /// # Errors
    ///
    /// Returns an error when `jobs/` cannot be read.
    pub fn prunable(&self, older_than: Duration, statuses: &[JobStatus], limits: &Limits) -> io::Result<Vec<JobId>> {
        // No job is older than the earliest time there is.
        let Ok(before) = Timestamp::now().checked_sub(older_than) else { return Ok(Vec::new()) };
        let Some(records) = &self.records else { return Ok(Vec::new()) };
        let metas = records.all(limits)?.into_iter().filter_map(|(_, meta)| meta.ok());
        let chosen = metas.filter(|meta| statuses.contains(&meta.status) && ended_before(meta, before));
        let mut ids: Vec<JobId> = chosen.map(|meta| meta.job_id).collect();
        ids.sort();
        Ok(ids)
    }

    /// Removes jobs that ended so long ago with one of the statuses. This process owns the member meanwhile.
    ///
    /// # Errors
    ///
    /// Returns an error when the member cannot be locked, its jobs cannot be opened, or its owner does not answer.
    pub fn prune(&self, older_than: Duration, statuses: &[JobStatus], limits: &Limits) -> Result<Pruning, String> {
        match self.own()? {
            Ownership::Own(_lock) => {
                let store = open_store(&self.dir, limits).map_err(|e| format!("cannot open its jobs: {e}"))?;
                // The next host resumes them.
                store.defer_recovery();
                store.load();
                Ok(Pruning::Done(store.prune(older_than, statuses)))
            }
            Ownership::Host { url } => Ok(Pruning::Owned(url)),
        }
    }

    /// Releases a job that is held back, so that the next host resumes it. This process owns the member meanwhile.
    ///
    /// # Errors
    ///
    /// Returns an error when the job is not held back, a process owns the member, or the job's record cannot be read or
    /// written.
    pub fn let_on(&self, id: &JobId, limits: &Limits) -> Result<(), String> {
        let _lock = match self.own()? {
            Ownership::Own(lock) => lock,
            Ownership::Host { url } => return Err(format!("a host serves it by now, at {url}; try again")),
        };
        let let_on = self.records().and_then(|records| records.let_on(id, limits));
        match let_on.map_err(|e| format!("the record of the job {id} cannot be changed: {e}"))? {
            true => Ok(()),
            false => Err("Job is not held back".to_owned()),
        }
    }

    /// Becomes the member's owner, unless a host is.
    fn own(&self) -> Result<Ownership, String> {
        let owner = match OwnerLock::try_acquire(&self.dir, "").map_err(|e| format!("cannot lock it: {e}"))? {
            Ok(lock) => return Ok(Ownership::Own(lock)),
            Err(owner) => owner,
        };
        if owner.is_alive() && !owner.url.is_empty() {
            return Ok(Ownership::Host { url: owner.url });
        }
        Err(match (owner.is_alive(), Owner::other_user(&self.dir)) {
            (true, _) => format!("process {} works on it; try again when that has ended", owner.pid),
            (false, Some(user)) => format!("it is {user}"),
            (false, None) => {
                "a process has locked it that its file .owner does not name; try again when that has ended".to_owned()
            }
        })
    }
}

/// The creation time of the newest job of the member in the directory `member`, by the jobs' ids.
pub fn last_made(member: &Dir) -> Option<Timestamp> {
    Records::open(member).ok()??.ids().ok()?.iter().filter_map(made_at).max()
}

/// The jobs of a member that this process owns for a moment.
fn open_store(member: &Dir, limits: &Limits) -> io::Result<Arc<JobStore>> {
    JobStore::open(member, StoreOptions { limits: Arc::new(limits.clone()), clock: Arc::new(SystemClock) })
}

/// Fails the interrupted jobs in a member's directory before the member is approved: else the next host would resume
/// what the directory brought along. A host that serves the member meanwhile has ended them, or they are its own. Where
/// it is a change of a member that was pinned before, those of open meetings stay: nothing of them runs until somebody
/// speaks, and only with a host's seal.
///
/// # Errors
///
/// Returns an error when the jobs cannot be ended, or when a process that works on the member leaves them to the next
/// host.
pub fn end_before_approval(member: &Dir, limits: &Limits, is_change: bool) -> Result<(), String> {
    if member.symlink_metadata("jobs").is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return Ok(());
    }
    let failed = |e: io::Error| format!("the jobs that are in its directory cannot be looked at: {e}");
    match OwnerLock::try_acquire(member, "").map_err(failed)? {
        Ok(_owner) => {
            let store = open_store(member, limits).map_err(failed)?;
            store.set_resume(Arc::new(Unapproved { is_change }));
            store.recover().map_err(failed)
        }
        Err(owner) if owner.url.is_empty() => {
            Err(format!("process {} works on it; try again when that has ended", owner.pid))
        }
        Err(_) => Ok(()),
    }
}

/// A resumer that resumes no job.
struct Unapproved {
    is_change: bool,
}

impl Resume for Unapproved {
    fn check(&self, _: &JobId, plan: &Sealed, _: &[Entry]) -> Result<(), String> {
        if self.is_change && matches!(plan.accepted.plan, Plan::Conversation(_)) {
            return Ok(());
        }
        Err("it was there before the member was approved as it is, and is not resumed".to_owned())
    }

    /// It is left to the next host.
    fn resume(&self, _: Arc<RunningJob>) {}
}
