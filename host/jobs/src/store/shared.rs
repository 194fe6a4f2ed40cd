//! Serves jobs that other hosts serve too: the ledger decides about them, and tells of them.

use std::{io, mem::replace, sync::Arc};

use cap_std::fs::Dir;
use guild_contract::{EventDetail, JobId, JobStatus, Meta, rpc::CancelView};
use guild_fs::durable::{if_there, open_or_make_dir, read_whole};

use super::{
    DELETED, JobStore, NEW, PruneReport,
    index::{Entry, Index, State},
    recover::Recovered,
};
use crate::{
    Accepted,
    error::{Refused, StoreError},
    files::record::{self, META, Notes, RESULT, SUBMISSION},
    ledger::{Birth, Change, Decision, Head, Hold, Ledger, News},
    running::{
        ended::{EndedJob, end_of},
        held::files_of,
    },
    sync::lock,
};

impl JobStore {
    /// Takes the news of a job. The ledger tells of each job at the start of the host, and then of its changes, in the
    /// order in which they were stored. News may come later than the host knows of the change.
    pub fn hear(&self, id: &JobId, news: News) {
        let entry = self.catalog.read().get(id.as_str());
        let Some(mut head) = news.head else {
            match entry {
                Some(entry) => self.leave(&entry, |index| index.remove(id)),
                // A job that was deleted here was known as deleted until now.
                None => drop(self.catalog.write().unclaim(id)),
            }
            return;
        };
        // Thousands of jobs may wait, and one copy of an id is enough.
        head.meta.job_id = entry.as_ref().map_or(id, |entry| &entry.id).clone();
        let Some(entry) = entry else {
            let mut index = self.catalog.write();
            let Some(news) = index.keep(id, News { head: Some(head), ..news }) else { return };
            if index.knows(id) {
                // The job was made since it was looked for.
                drop(index);
                return self.hear(id, news);
            }
            if let Some(head) = news.head {
                index.insert(Entry::new(State::elsewhere(head)));
                self.context.changed();
            }
            return;
        };
        let is_known = |meta: &Meta| finality(meta.status) > finality(head.meta.status);
        let running = match &*lock(&entry.state) {
            // What this host does is in memory before it is in the ledger.
            State::Running(_) if news.is_held => return,
            State::Running(job) => Some(job.clone()),
            state if state.with_meta(is_known) => return,
            State::Elsewhere(_) | State::Ended(_) => None,
        };
        // This waits for an end that is being stored here, which is told too.
        if running.is_some_and(|job| job.lose()) {
            tracing::warn!(job = %id, "another host has ended the job or taken it over, so its work stops here");
        }
        let before = match &mut *lock(&entry.state) {
            State::Ended(ended) if ended.meta.status == head.meta.status || is_known(&ended.meta) => return,
            State::Elsewhere(job) => {
                job.hear(head);
                None
            }
            // This host has taken the job again.
            State::Running(job) if !job.is_over() => return,
            state @ (State::Running(_) | State::Ended(_)) => Some(replace(state, State::elsewhere(head))),
        };
        if let Some(before) = before {
            self.left(&entry, &before);
        }
        self.context.changed();
    }

    /// Carries out a job that waited, or whose host is dead, which this host holds now. It is resumed as a job that a
    /// host interrupted: completed, continued or failed. The ledger fetches all that was stored before the host took
    /// the job. It blocks.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Lost`] when the job has ended meanwhile, and the reason when the job's files cannot be had, or
    /// the ledger refuses its end. The hold is dropped then.
    pub fn adopt(&self, id: &JobId, hold: Arc<dyn Hold>) -> Result<(), StoreError> {
        let reading = lock(&self.recovery.reading);
        let entry = self.find(id.as_str())?;
        // This host may have held the job before, and not have noticed that it lost it.
        if let Some(job) = self.running(id.as_str()) {
            job.lose();
        }
        let files = lock(&entry.files);
        self.copy(id)?;
        let failed = |e: io::Error| StoreError::io(format!("{META} of the job cannot be read"))(e);
        let (meta, _) = record::read_meta(&self.context.jobs, id, &self.context.limits()).map_err(failed)?;
        if meta.status != JobStatus::Running {
            self.remove_copy(&entry);
            return Err(StoreError::Lost);
        }
        match self.recover_job(&meta, true, Some(hold)) {
            Ok(Recovered::Ended(ended)) => {
                *lock(&entry.state) = State::Ended(ended);
                self.context.changed();
            }
            Ok(resumed) => {
                // The job may end while it is resumed.
                drop((files, reading));
                self.insert_recovered(id, Ok(resumed));
            }
            Err(_) if entry.status() != JobStatus::Running => {
                self.remove_copy(&entry);
                return Err(StoreError::Lost);
            }
            Err(reason) => return Err(StoreError::Unavailable(format!("the job cannot be continued: {reason}"))),
        }
        Ok(())
    }

    /// Gives a job that runs here back, so that another host can carry it out, and stops its work. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the job does not run here, or the ledger does not release it.
    pub fn release(&self, id: &JobId, why: &str) -> Result<(), StoreError> {
        let unknown = || StoreError::Unknown(id.to_string());
        let entry = self.catalog.read().get(id.as_str()).ok_or_else(unknown)?;
        let job = self.running(id.as_str()).ok_or_else(unknown)?;
        let head = job.release(why)?;
        self.lose(&entry, head);
        Ok(())
    }

    /// Gives a job back, since its host is about to stop, unless it has ended or is another host's. It blocks.
    pub fn give_back(&self, id: &JobId) {
        match self.release(id, "its host is about to stop") {
            Ok(()) | Err(StoreError::Lost | StoreError::Unknown(_)) => {}
            Err(e) => tracing::warn!(job = %id, "the job waits for the end of this host: {e}"),
        }
    }

    /// Gives a reserved id up, and takes the news that came meanwhile.
    pub(super) fn unclaim(&self, id: &JobId) {
        let kept = self.catalog.write().unclaim(id);
        if let Some(news) = kept {
            self.hear(id, news);
        }
    }

    /// Reads the picture of a job that this host has lost: the ledger may have told of it before the job ran here.
    pub(super) fn look_again(&self, entry: &Arc<Entry>) {
        let Some(ledger) = &self.context.ledger else { return };
        match ledger.decide(&entry.id, &|_| None) {
            Ok((head, _)) if head.meta.status == JobStatus::Running => {}
            Ok((head, _)) => self.hear(&entry.id, News { head: Some(head), is_held: false }),
            Err(Refused::Lost) => self.forget_deleted(entry),
            Err(Refused::Unavailable(why)) => tracing::warn!(job = %entry.id, "the job's end is not known here: {why}"),
        }
    }

    /// Shows a job that ran here as another host's, with the picture that it had here.
    pub(super) fn lose(&self, entry: &Arc<Entry>, head: Head) {
        let before = match &mut *lock(&entry.state) {
            // This host may have taken the job again.
            State::Running(job) if !job.is_over() => return,
            state @ State::Running(_) => replace(state, State::elsewhere(head)),
            State::Elsewhere(_) | State::Ended(_) => return,
        };
        self.left(entry, &before);
        self.context.changed();
    }

    /// Removes the copy of a job that another host has now. Its state here was `before`.
    fn left(&self, entry: &Entry, before: &State) {
        if let State::Running(job) = before {
            // Those who follow the job follow the other host from now on.
            job.signal();
        }
        let _files = lock(&entry.files);
        self.remove_copy(entry);
    }

    /// Removes the copy of a job that this host does not carry out. `entry.files` is held.
    fn remove_copy(&self, entry: &Entry) {
        if matches!(&*lock(&entry.state), State::Elsewhere(_)) {
            self.trash.remove(&self.context.jobs, entry.id.as_str());
        }
    }

    /// Looks for a job that another host began a moment ago, of which the ledger has not told yet. A job is unknown only
    /// if the ledger says so: callers take it for lost.
    pub(super) fn look_for(&self, ledger: &Arc<dyn Ledger>, id: &JobId) -> Result<(), StoreError> {
        let (head, _) = ledger.decide(id, &|_| None).map_err(StoreError::of_ledger(id))?;
        let mut index = self.catalog.write();
        if !index.knows(id) {
            index.insert(Entry::new(State::elsewhere(head)));
        }
        Ok(())
    }

    /// Makes a new job known to all hosts. Its directory is complete.
    pub(super) fn begin_shared(
        &self,
        ledger: &Arc<dyn Ledger>,
        meta: &Meta,
        plan: &Accepted,
        started: &EventDetail,
    ) -> Result<Arc<dyn Hold>, StoreError> {
        let id = &meta.job_id;
        let files = self.job_dir(id).and_then(|dir| files_of(&dir));
        let begun = files.map_err(StoreError::io("could not store the job")).and_then(|files| {
            let event = self.context.event(id, started.clone());
            let birth = Birth { job: id, plan, files, head: Head::new(meta, None), event };
            ledger.begin(birth).map_err(|refused| match refused {
                Refused::Lost => StoreError::Refused(format!("there is a job {id} already")),
                Refused::Unavailable(text) => StoreError::Unavailable(text),
            })
        });
        begun.inspect_err(|_| {
            self.trash.remove(&self.context.jobs, id.as_str());
            self.unclaim(id);
        })
    }

    /// Stores the end of a job that was taken over and had its result already.
    pub(super) fn end_recovered(&self, hold: &Arc<dyn Hold>, dir: &Dir, meta: &Meta) -> Result<(), String> {
        let unreadable = |e: io::Error| format!("its files cannot be read: {e}");
        let mut changes = vec![Change::Put(META.to_owned(), record::pretty(meta).map_err(unreadable)?)];
        let result = read_whole(dir, RESULT, u64::MAX).map_err(unreadable)?;
        changes.extend(result.map(|(result, _)| Change::Put(RESULT.to_owned(), result)));
        changes.push(Change::Remove(SUBMISSION.to_owned()));
        let event = self.context.event(&meta.job_id, end_of(meta));
        let (summary, _) = record::read_head(&self.context.jobs, &meta.job_id);
        let last = Decision { changes, head: Some(Head::new(meta, summary.as_deref())), event };
        hold.end(last).map_err(|refused| refused.to_string())
    }

    /// [`Self::cancel`] of a job that this host does not carry out.
    pub(super) fn cancel_shared(&self, ledger: &Arc<dyn Ledger>, entry: &Arc<Entry>) -> Result<CancelView, StoreError> {
        let id = &entry.id;
        // Texts of the picture may be cut.
        let whole = self.whole_record(entry);
        let decide = |head: &Head| {
            let known = whole.as_ref().filter(|meta| meta.status == head.meta.status).unwrap_or(&head.meta);
            let mut meta = Meta { usage: head.meta.usage.clone(), ..known.clone() };
            match meta.status {
                JobStatus::Running => {
                    // The cost of a request that is under way elsewhere is not known.
                    if let Some(used) = &mut meta.usage {
                        used.usage = if used.queued { used.usage } else { used.usage.and_unknown() };
                        used.queued = false;
                    }
                    meta = record::ended(meta, JobStatus::Cancelled, None, self.context.now());
                }
                JobStatus::Failed => meta.status = JobStatus::Cancelled,
                JobStatus::Completed | JobStatus::Cancelled => return None,
            }
            let changes = vec![Change::Put(META.to_owned(), record::pretty(&meta).ok()?)];
            let event = self.context.event(id, end_of(&meta));
            Some(Decision { changes, head: Some(Head::new(&meta, head.summary.as_deref())), event })
        };
        let (before, is_stored) = ledger.decide(id, &decide).map_err(StoreError::of_ledger(id))?;
        let Some(decided) = decide(&before).filter(|_| is_stored).and_then(|decision| decision.head) else {
            return Ok(CancelView { job_id: id.clone(), status: before.meta.status });
        };
        // A request that follows sees it, also before the ledger has told.
        self.hear(id, News { head: Some(decided), is_held: false });
        Ok(CancelView { job_id: id.clone(), status: JobStatus::Cancelled })
    }

    /// The record of a job, if it can be had.
    fn whole_record(&self, entry: &Arc<Entry>) -> Option<Meta> {
        let _files = lock(&entry.files);
        if let State::Ended(ended) = &*lock(&entry.state) {
            return Some(ended.meta.clone());
        }
        let fetched = self.fetch(&entry.id, &|file| file == META).ok()?;
        let read = record::read_meta(&fetched, &entry.id, &self.context.limits());
        self.discard_fetched(&entry.id);
        read.ok().map(|(meta, _)| meta)
    }

    /// Deletes a job whose status `may` be deleted, with its usage written down before.
    pub(super) fn remove_shared(
        &self,
        ledger: &Arc<dyn Ledger>,
        entry: &Arc<Entry>,
        may: impl Fn(JobStatus) -> Result<(), StoreError> + Sync,
    ) -> Result<(), StoreError> {
        let id = &entry.id;
        let decide = |head: &Head| {
            may(head.meta.status).ok()?;
            Some(Decision { changes: Vec::new(), head: None, event: self.context.event(id, EventDetail::JobDeleted) })
        };
        let (before, is_stored) = ledger.decide(id, &decide).map_err(StoreError::of_ledger(id))?;
        if !is_stored {
            may(before.meta.status)?;
        }
        // Another host may have deleted it a moment ago, and has written its usage down.
        if is_stored && let Err(e) = self.note_removed(std::slice::from_ref(&before.meta)) {
            tracing::error!(job = %id, "`guild usage` does not count the deleted job: {e}");
        }
        self.forget_deleted(entry);
        Ok(())
    }

    /// Removes the ended jobs that `is_chosen`.
    pub(super) fn remove_ended_shared(
        &self,
        ledger: &Arc<dyn Ledger>,
        is_chosen: impl Fn(&Meta) -> bool,
    ) -> PruneReport {
        let mut report = PruneReport::default();
        let chosen = |entry: &Arc<Entry>| entry.with_meta(|meta| meta.status != JobStatus::Running && is_chosen(meta));
        // The index is not locked while a job is removed from it.
        let entries = self.catalog.read().entries();
        for entry in entries.iter().filter(|entry| chosen(entry)) {
            let may = |status| match status {
                JobStatus::Running => Err(StoreError::Refused("the job runs".to_owned())),
                _ => Ok(()),
            };
            match self.remove_shared(ledger, entry, may) {
                Ok(()) => report.removed.push(entry.id.clone()),
                Err(StoreError::Unknown(_)) => self.forget_deleted(entry),
                Err(e) => report.failed.push((entry.id.clone(), e.to_string())),
            }
        }
        report
    }

    /// Forgets a job that is deleted, of which the ledger has not told yet. Older news does not bring it back.
    fn forget_deleted(&self, entry: &Arc<Entry>) {
        self.leave(entry, |index| index.take(&entry.id));
    }

    /// Forgets a deleted job, and removes this host's copy of it.
    fn leave(&self, entry: &Arc<Entry>, remove: impl FnOnce(&mut Index) -> bool) {
        let was_there = remove(&mut self.catalog.write());
        let running = {
            let mut state = lock(&entry.state);
            let running = if let State::Running(job) = &*state { Some(job.clone()) } else { None };
            let meta = state.with_meta(Meta::clone);
            *state = State::Ended(Box::new(EndedJob::new(meta, None)));
            running
        };
        if let Some(job) = running {
            job.lose();
        }
        if was_there {
            let id = &entry.id;
            for copy in [id.to_string(), format!("{NEW}{id}"), format!("{DELETED}{id}")] {
                self.trash.remove(&self.context.jobs, &copy);
            }
            self.context.changed();
        }
    }

    /// Reads the notes of a job at another host, unless they are up to date. `entry.files` is held.
    pub(super) fn fetch_notes(&self, entry: &Arc<Entry>) -> Result<(), StoreError> {
        let (status, heard) = match &*lock(&entry.state) {
            State::Elsewhere(job) if job.notes.is_none() => (job.head.meta.status, job.heard),
            _ => return Ok(()),
        };
        if status != JobStatus::Running {
            return self.fetch_ended(entry);
        }
        let fetched = self.fetch(&entry.id, &record::is_note)?;
        let (notes, _) = Notes::read(&fetched, &entry.id, &self.context.limits(), None);
        self.discard_fetched(&entry.id);
        if let State::Elsewhere(job) = &mut *lock(&entry.state)
            && job.heard == heard
        {
            job.notes = Some(Box::new(notes));
        }
        Ok(())
    }

    /// Copies the files of a job that ended at another host. `entry.files` is held.
    pub(super) fn fetch_ended(&self, entry: &Arc<Entry>) -> Result<(), StoreError> {
        let (summary, status) = match &*lock(&entry.state) {
            State::Elsewhere(job) if job.head.meta.status != JobStatus::Running => {
                (job.head.summary.clone(), job.head.meta.status)
            }
            _ => return Ok(()),
        };
        self.copy(&entry.id)?;
        let read = record::read_meta(&self.context.jobs, &entry.id, &self.context.limits());
        let (meta, fingerprint) = read.map_err(StoreError::io(format!("{META} of the job cannot be read")))?;
        let mut state = lock(&entry.state);
        // The ledger may have told of the same end meanwhile. Only a job with another one has other files.
        if matches!(&*state, State::Elsewhere(job) if job.head.meta.status == status) {
            let head = Some((summary, record::fingerprint(&self.context.jobs, &entry.id, record::STATUS)));
            *state = State::Ended(Box::new(EndedJob { head, ..EndedJob::new(meta, Some(fingerprint)) }));
        }
        Ok(())
    }

    /// Copies all files of a job that this host does not carry out, as they are now.
    pub(super) fn fetch_all(&self, entry: &Arc<Entry>) -> Result<(), StoreError> {
        if !matches!(&*lock(&entry.state), State::Elsewhere(_)) {
            return Ok(());
        }
        let _files = lock(&entry.files);
        self.fetch_ended(entry)?;
        match &*lock(&entry.state) {
            State::Elsewhere(_) => {}
            State::Running(_) | State::Ended(_) => return Ok(()),
        }
        self.copy(&entry.id)
    }

    /// Copies all files of a job into its directory here, in place of an earlier copy.
    fn copy(&self, id: &JobId) -> Result<(), StoreError> {
        let (jobs, last) = (&self.context.jobs, format!("{DELETED}{id}"));
        let fetched = self.fetch(id, &|_| true)?;
        // Those who read the last copy have it until the next one.
        self.trash.remove(jobs, &last);
        let copied = if_there(jobs.rename(id.as_str(), jobs, &last))
            .and_then(|_| fetched.rename(id.as_str(), jobs, id.as_str()));
        self.discard_fetched(id);
        copied.map_err(StoreError::io("the job cannot be copied to this host"))
    }

    pub(super) fn discard_fetched(&self, id: &JobId) {
        self.trash.remove(&self.context.jobs, &format!("{NEW}{id}"));
    }

    /// Fetches files of a job into a directory of its name, in a temporary directory; [`Self::discard_fetched`] follows.
    pub(super) fn fetch(&self, id: &JobId, wanted: &(dyn Fn(&str) -> bool + Sync)) -> Result<Dir, StoreError> {
        let Some(ledger) = &self.context.ledger else { return Err(StoreError::Unknown(id.to_string())) };
        let (jobs, name) = (&self.context.jobs, format!("{NEW}{id}"));
        self.discard_fetched(id);
        let made = open_or_make_dir(jobs, &name).and_then(|dir| Ok((open_or_make_dir(&dir, id.as_str())?, dir)));
        let (into, dir) = made.map_err(StoreError::io("the job cannot be copied to this host"))?;
        ledger.fetch(id, wanted, &into).map_err(|refused| {
            let entry = self.catalog.read().get(id.as_str());
            if let Some(entry) = entry.filter(|_| refused == Refused::Lost) {
                self.forget_deleted(&entry);
            }
            StoreError::of_ledger(id)(refused)
        })?;
        Ok(dir)
    }
}

/// Orders statuses as a job can have them one after the other.
fn finality(status: JobStatus) -> u8 {
    match status {
        JobStatus::Running => 0,
        JobStatus::Failed => 1,
        JobStatus::Completed | JobStatus::Cancelled => 2,
    }
}
