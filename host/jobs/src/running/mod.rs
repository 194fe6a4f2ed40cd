//! Runs a job's state machine, `running -> completed | failed | cancelled`, as the only owner of its files.
//!
//! The job's state is in memory. Its files follow, and are written again if a person edited them. All writers of a
//! job's files take one lock, which decides the race between cancel and completion: the first to take it ends the job,
//! and the others return how it ended.

pub(crate) mod ended;
pub(crate) mod held;
pub(crate) mod store_context;
pub mod tail;

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use cap_std::fs::Dir;
use guild_contract::{
    Decision, EventDetail, JobId, JobStatus, JobUsage, Limits, Meta, Resumption, rpc::StatusView, text::visible,
};
use guild_fs::{
    durable::{Survives, open_dir, replace},
    fingerprint::Fingerprint,
};
use guild_session::{
    tools::ToolError,
    transcript::{self, Entry, Line},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::{ended::EndedJob, store_context::StoreContext};
use crate::{
    Sealed,
    error::StoreError,
    files::{
        artifacts,
        journal::{End, Journal, Position},
        quota::{Quota, Refused},
        record::{
            self, DECISIONS, LOG, META, Notes, QUESTIONS, Recorded, STATUS, SUBMISSION, Submission, TRANSCRIPT,
            UnsavedResult,
        },
    },
    ledger::Hold,
    sync::lock,
};

use self::held::head_of;

/// Bytes that a question or a decision counts in `limits.notes_bytes` besides its text, to bound the number of tiny
/// ones.
const NOTE_COST: u64 = 64;

/// Receives the end of a running job. The store implements it.
pub(crate) trait EndListener: Send + Sync {
    /// The job has ended with this state; its directory may be `gone`.
    fn ended(&self, ended: EndedJob, gone: bool);
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
            record: Mutex::new(Record { meta, notes: Notes::default(), submitted: false, open: false }),
            changed: watch::Sender::new(()),
            sessions: AtomicU32::new(0),
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

    /// The entries of its sessions from before its host stopped, from its transcript.
    ///
    /// # Errors
    ///
    /// Returns an error when the transcript cannot be read.
    pub fn history(&self) -> io::Result<Vec<Line>> {
        self.history_since(Position::default())
    }

    /// Like [`Self::history`], from a position at the start of a line.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::history`].
    pub fn history_since(&self, at: Position) -> io::Result<Vec<Line>> {
        Ok(record::read_transcript(&self.dir()?, &self.limits, at)?.unwrap_or_default())
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

    /// Records that it is resumed now. This has to be called before any part of it runs, so that a host crash by the
    /// job is noticed.
    ///
    /// # Errors
    ///
    /// Returns an error when the record cannot be stored.
    pub fn begin_resumed(&self, how: Resumption) -> io::Result<()> {
        self.store_record(|meta| Meta { resumption: Some(how), resumes: meta.resumes.saturating_add(1), ..meta })
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

    /// The status of the job.
    pub fn status(&self) -> JobStatus {
        lock(&self.record).meta.status
    }

    /// Replaces the summary (REQ-WD-23). It changes often, so it is not synced.
    pub fn update_summary(&self, summary: &str) -> Result<(), ToolError> {
        let limits = &self.limits;
        within(summary.len(), limits.summary_bytes, "the summary", "summary_bytes")?;
        self.change(|files, dir| {
            self.write(files, dir, STATUS, summary.as_bytes(), Survives::Process)?;
            self.update(|record| record.notes.summary = record::summary(summary.to_owned()));
            self.publish(|| EventDetail::JobSummary { summary: record::summary(summary.to_owned()) });
            Ok(())
        })
    }

    /// Appends a judgment call (REQ-WD-24). A repeated `call` takes effect only once.
    pub fn record_decision(&self, decision: Decision, call: Option<&str>) -> Result<(), ToolError> {
        self.change(|files, dir| {
            let again = |recorded: &Recorded| recorded.call.as_deref() == call && recorded.decision == decision;
            if call.is_some() && files.decisions.iter().any(again) {
                return Ok(());
            }
            let cost = self.cost_of_note(files, record::decision_bytes(&decision), "the decision")?;
            let mut decisions = files.decisions.clone();
            decisions.push(Recorded { decision: decision.clone(), call: call.map(str::to_owned) });
            let json = record::pretty(&decisions).map_err(not_written(DECISIONS))?;
            self.write(files, dir, DECISIONS, &json, Survives::PowerCut)?;
            files.notes += cost;
            self.update(|record| record.notes.decisions = Some(record::decided(&decisions)));
            files.decisions = decisions;
            self.publish(|| EventDetail::JobDecision { decision });
            Ok(())
        })
    }

    /// Appends a question that only a person can answer (REQ-WD-25), on one line. A question that was logged before is
    /// not logged again, so that a repeated call takes effect only once.
    pub fn log_question(&self, question: &str) -> Result<(), ToolError> {
        let question = question.trim().replace("\r\n", " ").replace(['\n', '\r'], " ");
        if question.is_empty() {
            return Err(ToolError::InvalidInput("question must not be empty".to_owned()));
        }
        self.change(|files, dir| {
            let mut questions = self.look(|_, notes| notes.questions.clone()).unwrap_or_default();
            if questions.contains(&question) {
                return Ok(());
            }
            let cost = self.cost_of_note(files, question.len(), "the question")?;
            questions.push(question.clone());
            let text = record::join_questions(&questions);
            self.write(files, dir, QUESTIONS, text.as_bytes(), Survives::PowerCut)?;
            files.notes += cost;
            self.update(|record| record.notes.questions = Some(questions));
            self.publish(|| EventDetail::JobQuestion { question });
            Ok(())
        })
    }

    /// Writes one file under the job's `artifacts/`, with the directories that it needs. `path` is relative to
    /// `artifacts/`, without `..`. All files there count towards the limits.
    pub fn write_artifact(&self, path: &str, contents: &[u8]) -> Result<(), ToolError> {
        let names = artifacts::Names::of(path)?;
        self.change(|files, dir| match artifacts::write(dir, &names, contents, &self.artifacts) {
            Ok(()) => {
                self.put_artifact(files, path, contents);
                Ok(())
            }
            Err(Refused::Full(full)) => {
                if full.first {
                    self.log(&full.to_string());
                }
                Err(ToolError::OverLimit(full.to_string()))
            }
            Err(Refused::Failed(why)) => {
                Err(ToolError::Unavailable(format!("could not write the artifact {path:?}: {why}")))
            }
        })
    }

    /// The quota of the job's `artifacts/`, which every writer there has to use.
    pub fn artifacts(&self) -> &Arc<Quota> {
        &self.artifacts
    }

    /// Submits the result, which must not be empty. The last submission while the job runs is the result. It survives a
    /// later error and a crash, but not a cancel. It is stored with its `call`.
    pub fn submit_result(&self, output: &str, call: Option<&str>) -> Result<(), ToolError> {
        self.check_result(output)?;
        self.change(|_, dir| self.store_submission(dir, output, call))
    }

    /// Whether this `call` submitted this result before, for a session that submits once.
    ///
    /// # Errors
    ///
    /// Returns `InvalidInput` when another call submitted a result, and the errors of [`Self::submit_result`].
    pub fn has_submitted(&self, output: &str, call: &str) -> Result<bool, ToolError> {
        self.check_result(output)?;
        self.change(|_, dir| {
            if !self.has_submission() {
                return Ok(false);
            }
            let stored =
                record::read_submission(dir, &self.limits).map_err(StoreError::io("the result cannot be read"))?;
            match stored {
                Some(first) if first.call.as_deref() == Some(call) && first.output == output => Ok(true),
                _ => Err(ToolError::InvalidInput(
                    "the result was submitted before, and it stays as it is; end your work now".to_owned(),
                )),
            }
        })
    }

    fn check_result(&self, output: &str) -> Result<(), ToolError> {
        if output.trim().is_empty() {
            return Err(ToolError::InvalidInput("the result must not be empty".to_owned()));
        }
        within(output.len(), self.limits.result_bytes, "the result", "result_bytes")
    }

    fn store_submission(&self, dir: &Dir, output: &str, call: Option<&str>) -> Result<(), ToolError> {
        let submission = Submission { output: output.to_owned(), call: call.map(str::to_owned) };
        let json = serde_json::to_vec(&submission).map_err(|e| not_written(SUBMISSION)(e.into()))?;
        replace(dir, SUBMISSION, &json, Survives::PowerCut).map_err(not_written(SUBMISSION))?;
        self.put(SUBMISSION, &json);
        self.update(|record| record.submitted = true);
        Ok(())
    }

    /// Appends a line to the job's log, until the log is full or the job ends. A line that contains newlines or
    /// terminal escapes is written as one line without them.
    pub fn log(&self, line: &str) {
        let line = format!("{} {}", self.context.now(), visible(line));
        let mut log = lock(&self.log);
        let written = log.append(&self.context.jobs, line, |end| match end {
            End::Full(limit) => {
                let cited = Limits::cited("log_bytes");
                format!("(the log reached {cited}, {limit} bytes; what followed was dropped)")
            }
            End::Unwritten => "(a line of the log could not be written; what followed was dropped)".to_owned(),
        });
        self.add(LOG, written);
    }

    /// Appends an entry to the job's `transcript.jsonl`, until it is full or the job ends.
    pub fn transcript(&self, entry: &Entry) {
        let line = |entry: &Entry| {
            // Serializing cannot fail: an entry has only texts, numbers and JSON.
            serde_json::to_string(&Line { at: self.context.now(), entry: entry.clone() }).unwrap_or_default()
        };
        let mut transcript = lock(&self.transcript);
        let written = transcript.append(&self.context.jobs, line(entry), |end| {
            let text = match end {
                End::Full(limit) => format!("the transcript reached limits.transcript_bytes, {limit} bytes"),
                End::Unwritten => "a line of the transcript could not be written, as the host's log says".to_owned(),
            };
            line(&Entry::Truncated { text: format!("{text}; what followed was dropped") })
        });
        self.add(TRANSCRIPT, written);
        self.written.send_replace(transcript.end(&self.context.jobs));
    }

    /// Whether its transcript drops further entries: it reached `limits.transcript_bytes`, or could not be written.
    pub fn is_transcript_over(&self) -> bool {
        lock(&self.transcript).drops_lines()
    }

    /// Makes its transcript survive a power cut.
    ///
    /// # Errors
    ///
    /// Returns an error when the transcript cannot be written.
    pub fn sync_transcript(&self) -> io::Result<()> {
        lock(&self.transcript).sync(&self.context.jobs)
    }

    /// The end of its transcript. It signals each line that is written, and the end of the job.
    pub fn written(&self) -> watch::Receiver<Position> {
        self.written.subscribe()
    }

    /// Ends the job because its work is done: completed with the submitted result, else with `final_text`, else failed.
    /// Returns the status in which the job ended, which differs if it was cancelled before.
    ///
    /// # Errors
    ///
    /// Returns an error when the outcome could not be stored. The job has ended nevertheless: its outcome stays in
    /// memory, and is stored when the file system permits. Returns [`StoreError::Unknown`] when the job's directory is
    /// gone.
    pub fn complete(&self, final_text: Option<&str>) -> Result<JobStatus, StoreError> {
        let text = final_text.filter(|text| !text.trim().is_empty());
        self.finish(text, "the session ended without handing over a result")
    }

    /// Ends the job because its work cannot continue. With a submitted result it is completed nevertheless. Returns and
    /// fails as [`Self::complete`].
    pub fn fail(&self, reason: &str) -> Result<JobStatus, StoreError> {
        self.finish(None, reason)
    }

    /// Ends the job at a caller's request. When this returns, no file of the job changes any more. `None` if it had
    /// ended before.
    pub(crate) fn cancel(&self) -> Option<Result<(), StoreError>> {
        let mut files = lock(&self.files);
        if files.ended {
            return None;
        }
        // The token is cancelled under the lock, so that the work that stops now cannot end the job first.
        self.cancelled.cancel();
        Some(self.end(&mut files, JobStatus::Cancelled, None, None))
    }

    fn finish(&self, text: Option<&str>, reason: &str) -> Result<JobStatus, StoreError> {
        let files = &mut *lock(&self.files);
        if files.ended {
            return Ok(self.status());
        }
        let result = match text {
            _ if self.has_submission() => Ok(UnsavedResult::Submission),
            None => Err(reason.to_owned()),
            Some(text) => within(text.len(), self.limits.result_bytes, "the result", "result_bytes")
                .map(|()| UnsavedResult::Text(text.into()))
                .map_err(|e| e.to_string()),
        };
        let status = if result.is_ok() { JobStatus::Completed } else { JobStatus::Failed };
        let error = result.as_ref().err().cloned();
        self.end(files, status, error, result.ok()).map(|()| status)
    }

    /// Stores the outcome and passes it to the store, which retries a failed write.
    fn end(
        &self,
        files: &mut Files,
        status: JobStatus,
        error: Option<String>,
        result: Option<UnsavedResult>,
    ) -> Result<(), StoreError> {
        files.ended = true;
        lock(&self.log).close();
        lock(&self.transcript).close();
        self.artifacts.close();
        let (mut meta, notes, open) = {
            let record = lock(&self.record);
            (record.meta.clone(), record.notes.clone(), record.open)
        };
        if let Some(used) = &mut meta.usage {
            used.usage = if open { used.usage.and_unknown() } else { used.usage };
            used.queued = false;
        }
        let meta = record::ended(meta, status, error, self.context.now());
        let stored = self.dir().and_then(|dir| {
            if let Err(e) = self.undo_edits(files, &dir, &notes) {
                tracing::warn!(job = %self.id, "cannot undo edits made while the job was running: {e}");
            }
            self.warn_of_edit(files, META);
            record::store_end(&dir, &meta, result.as_ref(), &self.limits)
        });
        if let Some(hold) = &self.hold {
            return self.end_held(hold, files, &meta, &notes, stored.map(drop));
        }
        let gone = matches!(&stored, Err(e) if e.kind() == io::ErrorKind::NotFound);
        let shown = meta.clone();
        if let Some(store) = self.store.upgrade() {
            let summary = notes.summary.map(|text| record::head(&text, record::HEAD_BYTES as usize).to_owned());
            let head = (summary, files.written.get(STATUS).copied());
            let unsaved = result.filter(|_| stored.is_err());
            let ended = EndedJob::new(meta, stored.as_ref().ok().copied());
            store.ended(EndedJob { head: Some(head), unsaved, ..ended }, gone);
        }
        // The record changes after the store has it, so that all methods show the end at the same time.
        self.update(|record| record.meta = shown);
        self.written.send_modify(|_| {});
        if gone {
            return Err(StoreError::Unknown(self.id.to_string()));
        }
        stored.map(drop).map_err(StoreError::io(format!("could not store that the job is {status}")))
    }

    /// Overwrites a person's edits from the time when the job ran, since the files are authoritative after its end.
    fn undo_edits(&self, files: &mut Files, dir: &Dir, notes: &Notes) -> io::Result<()> {
        for file in [STATUS, QUESTIONS, DECISIONS] {
            if !self.warn_of_edit(files, file) {
                continue;
            }
            let bytes = match file {
                STATUS => notes.summary.clone().unwrap_or_default().into_bytes(),
                QUESTIONS => notes.questions.as_deref().map_or_else(String::new, record::join_questions).into_bytes(),
                _ => record::pretty(&files.decisions)?,
            };
            replace(dir, file, &bytes, Survives::PowerCut)?;
        }
        Ok(())
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
            hold.show(&head_of(&record));
        }
        drop(record);
        self.changed.send_replace(());
    }

    /// Signals changes of the record from now on. When it signals the end, the store has it.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The bytes that a note counts, if it is within both limits.
    fn cost_of_note(&self, files: &Files, bytes: usize, what: &str) -> Result<u64, ToolError> {
        let limits = &self.limits;
        within(bytes, limits.note_bytes, what, "note_bytes")?;
        let cost = bytes as u64 + NOTE_COST;
        if files.notes + cost > limits.notes_bytes {
            return Err(ToolError::OverLimit(format!(
                "the job's questions and decisions have reached {}, {} bytes",
                Limits::cited("notes_bytes"),
                limits.notes_bytes
            )));
        }
        Ok(cost)
    }
}

impl transcript::Journal for RunningJob {
    fn write(&self, entry: &Entry) {
        self.transcript(entry);
    }

    fn log(&self, line: &str) {
        Self::log(self, line);
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
