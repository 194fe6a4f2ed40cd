//! Runs a job's state machine, `running -> completed | failed | cancelled`, as the only owner of its files.
//!
//! The job's state is in memory. Its files follow, and are written again if a person edited them. All writers of a
//! job's files take one lock, which decides the race between cancel and completion: the first to take it ends the job,
//! and the others return how it ended.

mod end;
pub(crate) mod ended;
pub(crate) mod held;
mod journals;
mod report;
pub(crate) mod store_context;
pub mod tail;

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use cap_std::fs::Dir;
use futures::executor::block_on;
use guild_contract::{EventDetail, JobId, JobStatus, JobUsage, Limits, Meta, Resumption, rpc::StatusView};
use guild_fs::{
    durable::{Survives, open_dir, replace},
    fingerprint::Fingerprint,
};
use guild_session::tools::ToolError;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::{ended::EndedJob, store_context::StoreContext};
use crate::{
    Sealed,
    error::StoreError,
    files::{
        journal::{Journal, Position},
        quota::Quota,
        record::{self, DECISIONS, LOG, META, Notes, QUESTIONS, Recorded, STATUS, TRANSCRIPT},
    },
    ledger::{Head, Hold},
    sync::lock,
};

/// Bytes that a question or a decision counts in `limits.notes_bytes` besides its text, to bound the number of tiny
/// ones.
const NOTE_COST: u64 = 64;

/// Receives the end of a running job. The store implements it.
pub(crate) trait EndListener: Send + Sync {
    /// The job has ended with this state; its directory may be `gone`.
    fn ended(&self, ended: EndedJob, gone: bool);

    /// The job is not this host's any more. It had this picture.
    fn lost(&self, id: &JobId, head: Head);

    /// Gives the job back, since its host is about to stop. It blocks.
    fn give_back(&self, id: &JobId);
}

/// A job while it runs, and its outcome afterwards. Its methods block on the file system, except [`Self::id`],
/// [`Self::cancelled`], [`Self::has_submission`] and [`Self::snapshot`].
pub struct RunningJob {
    id: JobId,
    context: Arc<StoreContext>,
    /// The limits at the time when it was created or resumed.
    limits: Arc<Limits>,
    store: Weak<dyn EndListener>,
    /// The right to append to the job's log in the ledger, if there is one.
    hold: Option<Arc<dyn Hold>>,
    cancelled: CancellationToken,
    /// Taken before `record`, and held while files change.
    files: Mutex<Files>,
    /// Never held over I/O.
    record: Mutex<Record>,
    log: Mutex<Journal>,
    transcript: Mutex<Journal>,
    /// The end of the transcript, for readers that follow it.
    written: watch::Sender<Position>,
    artifacts: Arc<Quota>,
    /// Changes with the record; its last change is the end.
    changed: watch::Sender<()>,
    sessions: AtomicU32,
    /// Whether it was resumed at this host, and runs.
    is_resumed: AtomicBool,
}

struct Files {
    ended: bool,
    /// The bytes that questions and decisions count so far.
    notes: u64,
    /// `decisions.json`, with the calls that recorded them.
    decisions: Vec<Recorded>,
    /// The files as this host wrote them.
    written: BTreeMap<&'static str, Fingerprint>,
    /// The artifacts that the ledger has, by their paths in the job's directory.
    recorded: BTreeMap<String, Fingerprint>,
}

struct Record {
    /// The record, with the usage of the sessions so far, which `meta.json` has only at the end.
    meta: Meta,
    notes: Notes,
    submitted: bool,
    /// Whether a request is under way whose cost is not known yet.
    open: bool,
    /// Whether the job is not this host's any more.
    is_lost: bool,
}

impl RunningJob {
    pub(crate) fn new(
        context: Arc<StoreContext>,
        store: Weak<dyn EndListener>,
        meta: Meta,
        hold: Option<Arc<dyn Hold>>,
    ) -> Self {
        let (id, limits) = (meta.job_id.clone(), context.limits());
        let written = [META, STATUS].into_iter();
        let written = written.filter_map(|file| Some((file, record::fingerprint(&context.jobs, &id, file)?))).collect();
        let journal = |file, limit| Mutex::new(Journal::new(format!("{id}/{file}"), limit));
        Self {
            log: journal(LOG, limits.log_bytes),
            transcript: journal(TRANSCRIPT, limits.transcript_bytes),
            written: watch::Sender::default(),
            artifacts: Arc::new(Quota::new(&limits)),
            id,
            limits,
            store,
            hold,
            cancelled: CancellationToken::new(),
            files: Mutex::new(Files {
                ended: false,
                notes: 0,
                decisions: Vec::new(),
                written,
                recorded: BTreeMap::new(),
            }),
            record: Mutex::new(Record { meta, notes: Notes::default(), submitted: false, open: false, is_lost: false }),
            changed: watch::Sender::new(()),
            sessions: AtomicU32::new(0),
            is_resumed: AtomicBool::new(false),
            context,
        }
    }

    /// An interrupted job, with the state in its directory `dir`. `meta` has its usage.
    ///
    /// # Errors
    ///
    /// Returns an error when a file of the job cannot be read.
    pub(crate) fn resumed(
        context: Arc<StoreContext>,
        store: Weak<dyn EndListener>,
        meta: Meta,
        dir: &Dir,
        hold: Option<Arc<dyn Hold>>,
    ) -> io::Result<Self> {
        let job = Self::new(context, store, meta, hold);
        let (notes, decisions) = Notes::read_interrupted(dir, &job.limits)?;
        let decided = decisions.iter().map(|recorded| record::decision_bytes(&recorded.decision));
        let asked = notes.questions.iter().flatten().map(String::len);
        {
            let mut files = lock(&job.files);
            files.notes = decided.chain(asked).map(|bytes| bytes as u64 + NOTE_COST).sum();
            for file in [QUESTIONS, DECISIONS] {
                let there = record::fingerprint(&job.context.jobs, &job.id, file);
                files.written.extend(there.map(|there| (file, there)));
            }
            files.decisions = decisions;
        }
        job.update(|record| record.notes = notes);
        for journal in [&job.log, &job.transcript] {
            lock(journal).continue_after(&job.context.jobs)?;
        }
        job.written.send_replace(lock(&job.transcript).end(&job.context.jobs));
        Ok(job)
    }

    /// Its `plan.json`, which is not kept in memory, since many jobs can be queued.
    ///
    /// # Errors
    ///
    /// Returns an error when the plan cannot be read.
    pub fn plan(&self) -> io::Result<Sealed> {
        record::read_plan(&self.dir()?, &self.limits)?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The number of the session that begins now, from 1.
    pub fn next_session(&self) -> u32 {
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Sets the usage of the job's sessions, which is written to `meta.json` when the job ends. While a request is
    /// `open`, its cost is not known.
    pub fn set_usage(&self, usage: JobUsage, open: bool) {
        self.update(|record| (record.meta.usage, record.open) = (Some(usage), open));
    }

    /// The way of its last resumption, until it has run for a while.
    pub fn resumption(&self) -> Option<Resumption> {
        lock(&self.record).meta.resumption
    }

    /// Whether a host stopped while it carried the job out, which may be the job's doing. A job that its last holder gave
    /// back only goes on.
    pub fn was_interrupted(&self) -> bool {
        self.resumption().is_some() || self.hold.as_ref().is_none_or(|hold| hold.is_interrupted())
    }

    /// Records that it is resumed now. This has to be called before any part of it runs, so that a host crash by the
    /// job is noticed.
    ///
    /// # Errors
    ///
    /// Returns an error when the record cannot be stored.
    pub fn begin_resumed(&self, how: Resumption) -> io::Result<()> {
        self.is_resumed.store(true, Ordering::Relaxed);
        self.store_record(|meta| Meta { resumption: Some(how), resumes: meta.resumes.saturating_add(1), ..meta })?;
        block_on(self.settled()).map_err(io::Error::other)
    }

    /// Updates the way of its last resumption; `None` if it has run for a while since.
    ///
    /// # Errors
    ///
    /// Returns an error when the record cannot be stored.
    pub fn set_resumption(&self, how: Option<Resumption>) -> io::Result<()> {
        self.store_record(|meta| Meta { resumption: how, ..meta })
    }

    /// Releases it if it is held back. Its earlier resumptions do not count any more.
    ///
    /// # Errors
    ///
    /// Returns `Refused` when the job is not held back, and an error when the record cannot be stored.
    pub fn let_on(&self) -> Result<(), StoreError> {
        if self.resumption() != Some(Resumption::HeldBack) {
            return Err(StoreError::Refused("Job is not held back".to_owned()));
        }
        self.store_record(record::let_on).map_err(StoreError::io(format!("could not write {META}")))
    }

    /// Changes and stores its record, unless the job has ended.
    fn store_record(&self, change: impl FnOnce(Meta) -> Meta) -> io::Result<()> {
        let mut files = lock(&self.files);
        if files.ended {
            return Ok(());
        }
        let meta = change(lock(&self.record).meta.clone());
        // The file has the usage of the sessions only after the job has ended.
        let written = Meta { usage: None, ..meta.clone() };
        let stored = record::store_meta(&self.dir()?, &written)?;
        files.written.insert(META, stored);
        if self.hold.is_some() {
            self.put(META, &record::pretty(&written)?);
        }
        self.update(|record| (record.meta.resumption, record.meta.resumes) = (meta.resumption, meta.resumes));
        // Lists show that a job is held back.
        self.context.changed();
        Ok(())
    }

    /// Its id.
    pub fn id(&self) -> &JobId {
        &self.id
    }

    /// Cancelled when a caller cancels the job. The work must stop then; later results are not kept.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Whether a result was submitted.
    pub fn has_submission(&self) -> bool {
        lock(&self.record).submitted
    }

    /// The name of the token with which it was dispatched, if there was one.
    pub fn token(&self) -> Option<String> {
        lock(&self.record).meta.token.clone()
    }

    /// The usage of its sessions so far.
    pub fn usage(&self) -> Option<JobUsage> {
        lock(&self.record).meta.usage.clone()
    }

    /// The answer of `worker/status` (REQ-WD-11).
    pub fn snapshot(&self) -> StatusView {
        let record = lock(&self.record);
        record.notes.view(&record.meta)
    }

    /// Reads the record and the notes without copying them.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Meta, &Notes) -> T) -> T {
        let record = lock(&self.record);
        look(&record.meta, &record.notes)
    }

    /// Whether its work is over here: it has ended, or is not this host's any more.
    pub fn is_over(&self) -> bool {
        let record = lock(&self.record);
        record.is_lost || record.meta.status != JobStatus::Running
    }

    /// The status of the job. That of a job that is not this host's any more is the last one known here.
    pub fn status(&self) -> JobStatus {
        lock(&self.record).meta.status
    }

    /// Whether a file differs from this host's version, which is logged.
    fn warn_of_edit(&self, files: &Files, file: &'static str) -> bool {
        let edited = record::fingerprint(&self.context.jobs, &self.id, file) != files.written.get(file).copied();
        if edited {
            tracing::warn!(job = %self.id, file, "ignoring an edit of a running job's file");
        }
        edited
    }

    /// Its directory.
    ///
    /// # Errors
    ///
    /// Returns an error when the directory cannot be opened.
    pub fn dir(&self) -> io::Result<Dir> {
        open_dir(&self.context.jobs, self.id.as_str())
    }

    /// Changes the job's files, unless the job has ended.
    fn change<T>(&self, work: impl FnOnce(&mut Files, &Dir) -> Result<T, ToolError>) -> Result<T, ToolError> {
        let mut files = lock(&self.files);
        if files.ended {
            return Err(ToolError::JobEnded);
        }
        work(&mut files, &self.dir().map_err(StoreError::io("the job's directory cannot be opened"))?)
    }

    /// Runs work outside of the job's own files, unless the job has ended. The job's end waits for it.
    ///
    /// # Errors
    ///
    /// Returns the errors of `work`, and [`ToolError::JobEnded`] after the end of the job.
    pub fn while_running<T>(&self, work: impl FnOnce() -> Result<T, ToolError>) -> Result<T, ToolError> {
        let files = lock(&self.files);
        // A cancel triggers the token before the end is stored.
        if files.ended || self.cancelled().is_cancelled() {
            return Err(ToolError::JobEnded);
        }
        work()
    }

    fn write(
        &self,
        files: &mut Files,
        dir: &Dir,
        file: &'static str,
        bytes: &[u8],
        survives: Survives,
    ) -> Result<(), ToolError> {
        self.warn_of_edit(files, file);
        let written = replace(dir, file, bytes, survives).map_err(not_written(file))?;
        files.written.insert(file, written);
        self.put(file, bytes);
        Ok(())
    }

    pub(crate) fn publish(&self, detail: impl FnOnce() -> EventDetail) {
        match &self.hold {
            None => self.context.publish(&self.id, detail),
            Some(hold) => {
                hold.announce(&self.context.event(&self.id, detail()));
                self.context.changed();
            }
        }
    }

    fn update(&self, change: impl FnOnce(&mut Record)) {
        let mut record = lock(&self.record);
        change(&mut record);
        if let Some(hold) = &self.hold {
            hold.show(&Head::new(&record.meta, record.notes.summary.as_deref()));
        }
        drop(record);
        self.changed.send_replace(());
    }

    /// Signals a change of the place where the job is carried out.
    pub(crate) fn signal(&self) {
        self.changed.send_replace(());
    }

    /// Signals changes of the record from now on. When it signals the end, the store has it.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

fn within(bytes: usize, limit: u64, what: &str, name: &str) -> Result<(), ToolError> {
    if bytes as u64 > limit {
        return Err(ToolError::OverLimit(format!("{what} has {bytes} bytes; {} allows {limit}", Limits::cited(name))));
    }
    Ok(())
}

fn not_written(file: &str) -> impl FnOnce(io::Error) -> StoreError {
    StoreError::io(format!("could not write {file}"))
}
