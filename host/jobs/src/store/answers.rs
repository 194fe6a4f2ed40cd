//! Status, list and result (REQ-WD-8 to REQ-WD-15): answered from memory where what is there was looked at less
//! than a second ago (five, where very many are asked for in turn), else after a look at the files, which people may have edited.

use std::sync::{
    Arc, Mutex, TryLockError,
    atomic::{AtomicI64, Ordering},
};

use bytes::Bytes;
use globset::GlobSet;
use guild_contract::{
    JobStatus,
    rpc::{Detail, JobList, ListParams, ResultView, StatusView},
};

use crate::{
    artifacts,
    ended::View,
    error::StoreError,
    index::{Entry, State},
    record::{self, META, Parts, STATUS},
    sync::lock,
};

use super::{
    JobStore,
    filter::filter,
    pace::{FRESH_MILLIS, MAX_FRESH_MILLIS},
};

/// All jobs stay fresh for so many times as long as it took to look at them, if that is longer: where there are very
/// many, looking at them must not become all that the host does.
const SWEEP_SHARE: i64 = 20;
/// A list of more jobs is rendered only where blocking is allowed.
const QUICK_LIST: usize = 1000;

/// Lists that were rendered, by detail.
#[derive(Default)]
pub(crate) struct Lists {
    simple: RenderedList,
    detailed: RenderedList,
    /// Held by the one who looks at all jobs.
    sweep: Mutex<()>,
}

struct RenderedList {
    /// When all jobs were looked at last, in milliseconds.
    looked: AtomicI64,
    /// How long what was seen then is fresh, in milliseconds.
    fresh_for: AtomicI64,
    /// The unfiltered list and the generation that it shows.
    rendered: Mutex<Option<(u64, Bytes)>>,
}

impl RenderedList {
    fn was_swept(&self) -> bool {
        self.looked.load(Ordering::Relaxed) != i64::MIN
    }
}

impl Default for RenderedList {
    fn default() -> Self {
        Self { looked: AtomicI64::new(i64::MIN), fresh_for: AtomicI64::new(0), rendered: Mutex::new(None) }
    }
}

impl Lists {
    fn of(&self, detailed: bool) -> &RenderedList {
        if detailed { &self.detailed } else { &self.simple }
    }

    /// The next list looks at all jobs.
    pub(crate) fn forget(&self) {
        self.simple.fresh_for.store(0, Ordering::Relaxed);
        self.detailed.fresh_for.store(0, Ordering::Relaxed);
    }
}

fn is_detailed(params: &ListParams) -> bool {
    params.detail == Some(Detail::Detailed)
}

fn json(value: &impl serde::Serialize) -> Result<Bytes, StoreError> {
    let bytes = serde_json::to_vec(value).map_err(|e| StoreError::io("could not write the answer")(e.into()))?;
    Ok(Bytes::from(bytes))
}

impl JobStore {
    /// [`Self::status`], if what is rendered is what the files say. Of an ended job that was not looked at for a second
    /// it asks for the state of its four files, which is quicker than to hand the question to another thread; it opens
    /// none, and waits for nobody.
    pub fn status_now(&self, id: &str) -> Option<Bytes> {
        if self.catalog.is_stale() {
            return None;
        }
        let entry = self.catalog.read().get(id)?;
        let (meta, parts, json) = match &*lock(&entry.state) {
            State::Ended(ended) => {
                let view = ended.current_view()?;
                if self.is_fresh(ended.looked) {
                    return Some(view.json.clone());
                }
                (ended.stamp?, view.parts, view.json.clone())
            }
            State::Running(job) => return job.json(),
        };
        self.pace.look(self.millis());
        let jobs = &self.shared.jobs;
        if record::stamp_of(jobs, &entry.id, META) != Some(meta) || Parts::look(jobs, &entry.id) != parts {
            return None;
        }
        if let State::Ended(ended) = &mut *lock(&entry.state)
            && ended.current_view().is_some_and(|view| ended.stamp == Some(meta) && view.parts == parts)
        {
            ended.looked = self.millis();
        }
        Some(json)
    }

    /// What `worker/status` answers: a [`StatusView`] as JSON.
    pub fn status(&self, id: &str) -> Result<Bytes, StoreError> {
        let entry = self.find(id)?;
        if let Some(job) = self.running(id) {
            return job.json().map_or_else(|| json(&job.snapshot()), Ok);
        }
        let _files = lock(&entry.files);
        if let Some(json) = self.status_now(id) {
            return Ok(json);
        }
        self.refresh(&entry)?;
        self.view(&entry)
    }

    /// The rendered status of an ended job, from its files if they changed. `entry.files` is held.
    fn view(&self, entry: &Arc<Entry>) -> Result<Bytes, StoreError> {
        let (meta, stamp, before, current) = match &*lock(&entry.state) {
            State::Running(job) => return json(&job.snapshot()),
            State::Ended(ended) => {
                (ended.meta.clone(), ended.stamp, ended.view.clone(), ended.current_view().is_some())
            }
        };
        let jobs = &self.shared.jobs;
        if let Some(view) = before.as_ref().filter(|_| current)
            && Parts::look(jobs, &entry.id) == view.parts
        {
            self.looked(entry, None);
            return Ok(view.json.clone());
        }
        let (view, parts) = record::read_view(jobs, &meta, &self.shared.limits(), || {
            serde_json::from_slice::<StatusView>(&before?.json).ok()
        });
        let json = json(&view)?;
        self.looked(entry, Some(View { json: json.clone(), meta: stamp, parts }));
        self.views.hold(entry, &json);
        Ok(json)
    }

    /// An ended job was looked at just now, and has a new view perhaps.
    fn looked(&self, entry: &Entry, view: Option<View>) {
        if let State::Ended(ended) = &mut *lock(&entry.state) {
            ended.looked = self.millis();
            if view.is_some() {
                ended.view = view;
            }
        }
    }

    /// Looks whether `meta.json` of an ended job is still what was read. A record that cannot be read, or that says
    /// the job runs again, leaves what is known. A job whose directory is gone is unknown. `entry.files` is held.
    pub(crate) fn refresh(&self, entry: &Arc<Entry>) -> Result<(), StoreError> {
        let (jobs, id) = (&self.shared.jobs, &entry.id);
        let (known, unsaved) = match &*lock(&entry.state) {
            State::Running(_) => return Ok(()),
            State::Ended(ended) => {
                (ended.stamp, ended.stamp.is_none().then(|| (ended.meta.clone(), ended.owed.clone())))
            }
        };
        if let Some((meta, owed)) = &unsaved {
            match self.store_end(meta, owed.as_ref()) {
                Ok(stamp) => {
                    self.update(entry, |ended| (ended.stamp, ended.owed, ended.trouble) = (Some(stamp), None, None));
                }
                Err(e) => self.trouble(entry, format!("its end is stored later: {e}")),
            }
        }
        let current = record::stamp_of(jobs, id, META);
        if current.is_none() && !self.is_there(id) {
            self.forget(id);
            return Err(StoreError::Unknown(id.to_string()));
        }
        if unsaved.is_some() || current == known {
            return Ok(());
        }
        match record::read_meta(jobs, id, &self.shared.limits()) {
            Ok((meta, stamp)) if meta.status != JobStatus::Running => {
                let started_at = meta.started_at.clone();
                self.update(entry, |ended| (ended.meta, ended.stamp, ended.trouble) = (meta, Some(stamp), None));
                let mut index = self.catalog.write();
                if index.get(id.as_str()).is_some() {
                    index.insert(entry.clone(), &started_at);
                }
            }
            outcome => {
                let passing = outcome.as_ref().is_err_and(record::is_of_the_system);
                let reason = match outcome {
                    Ok(_) => "it says that the job runs, and it does not".to_owned(),
                    Err(e) => e.to_string(),
                };
                self.trouble(entry, format!("{META} was edited, and what was known before is kept: {reason}"));
                if !passing && current.is_some() {
                    self.update(entry, |ended| ended.stamp = current);
                }
            }
        }
        Ok(())
    }

    /// Logs what is wrong with an ended job's files, once for as long as it stays so.
    fn trouble(&self, entry: &Entry, what: String) {
        if let State::Ended(ended) = &mut *lock(&entry.state)
            && ended.trouble.as_ref() != Some(&what)
        {
            tracing::warn!(job = %entry.id, "{what}");
            ended.trouble = Some(what);
        }
    }

    /// [`Self::list`], if it can be answered without I/O and without much work, as what is filtered cannot: never
    /// blocks.
    pub fn list_now(&self, params: &ListParams) -> Option<Bytes> {
        let detailed = is_detailed(params);
        let filtered = params.filter.as_deref().is_some_and(|filter| !filter.is_empty());
        if filtered || self.catalog.is_stale() || !self.is_swept(detailed) {
            return None;
        }
        if let Some(list) = self.rendered(detailed) {
            return Some(list);
        }
        if self.catalog.read().len() > QUICK_LIST {
            return None;
        }
        self.render(detailed, None).ok()
    }

    /// What `worker/list` answers: a [`JobList`] as JSON, newest first.
    ///
    /// What the host does shows at once. What a person edits in a job that has ended shows after a second; after up to
    /// five, and the time that a look at all jobs takes, where there are so many that it takes long.
    pub fn list(&self, params: &ListParams) -> Result<Bytes, StoreError> {
        let filter = filter(params.filter.as_deref())?;
        let detailed = is_detailed(params);
        self.absorb();
        self.sweep(detailed);
        match filter {
            None => self.rendered(detailed).map_or_else(|| self.render(detailed, None), Ok),
            Some(filter) => self.render(detailed, Some(&filter)),
        }
    }

    /// Looks at what a list shows of the ended jobs, if it is no longer fresh. One caller looks; the others make do with
    /// what was seen the last time, if there was one.
    fn sweep(&self, detailed: bool) {
        let _sweep = match self.lists.sweep.try_lock() {
            Ok(sweep) => sweep,
            Err(TryLockError::WouldBlock) if self.lists.of(detailed).was_swept() => return,
            Err(_) => lock(&self.lists.sweep),
        };
        if self.is_swept(detailed) {
            return;
        }
        let began = self.millis();
        if self.watch.is_none() {
            self.catalog.notice_all();
            self.absorb();
        }
        self.retry();
        let entries = self.catalog.read().entries();
        for entry in entries {
            if entry.status() == JobStatus::Running {
                continue;
            }
            let _files = lock(&entry.files);
            if self.refresh(&entry).is_ok() && detailed {
                self.refresh_head(&entry);
            }
        }
        let (list, ended) = (self.lists.of(detailed), self.millis());
        let fresh_for = ended.saturating_sub(began).saturating_mul(SWEEP_SHARE).clamp(FRESH_MILLIS, MAX_FRESH_MILLIS);
        list.fresh_for.store(fresh_for, Ordering::Relaxed);
        list.looked.store(ended, Ordering::Relaxed);
    }

    /// Whether all jobs were looked at lately.
    fn is_swept(&self, detailed: bool) -> bool {
        let list = self.lists.of(detailed);
        self.is_within(list.fresh_for.load(Ordering::Relaxed), list.looked.load(Ordering::Relaxed))
    }

    /// Reads the start of an ended job's summary if the file changed. `entry.files` is held.
    fn refresh_head(&self, entry: &Entry) {
        let jobs = &self.shared.jobs;
        let read = match &*lock(&entry.state) {
            State::Running(_) => return,
            State::Ended(ended) => ended.head.as_ref().map(|(_, stamp)| *stamp),
        };
        if read.is_none_or(|stamp| record::stamp_of(jobs, &entry.id, STATUS) != stamp) {
            let head = record::read_head(jobs, &entry.id);
            self.update(entry, |ended| ended.head = Some(head));
        }
    }

    /// The unfiltered list, if it was rendered and nothing changed since.
    fn rendered(&self, detailed: bool) -> Option<Bytes> {
        let generation = self.shared.generation.load(Ordering::Acquire);
        let rendered = lock(&self.lists.of(detailed).rendered);
        rendered.as_ref().filter(|(shown, _)| *shown == generation).map(|(_, list)| list.clone())
    }

    fn render(&self, detailed: bool, filter: Option<&GlobSet>) -> Result<Bytes, StoreError> {
        let generation = self.shared.generation.load(Ordering::Acquire);
        let entries = self.catalog.read().entries();
        let wanted = |entry: &&Arc<Entry>| {
            filter.is_none_or(|glob| entry.has_description(|description| glob.is_match(description)))
        };
        let jobs = entries.iter().filter(wanted).map(|entry| entry.listed(detailed)).collect();
        let list = json(&JobList { jobs })?;
        if filter.is_none() {
            *lock(&self.lists.of(detailed).rendered) = Some((generation, list.clone()));
        }
        Ok(list)
    }

    /// What `worker/result` answers. Refused unless the job is completed (REQ-WD-14).
    pub fn result(&self, id: &str) -> Result<ResultView, StoreError> {
        let entry = self.find(id)?;
        let _files = lock(&entry.files);
        self.refresh(&entry)?;
        let meta = entry.meta();
        if let Some(refused) = record::no_result(entry.status(), meta.as_ref().and_then(|meta| meta.error.as_deref())) {
            return Err(refused);
        }
        let owed = match &*lock(&entry.state) {
            State::Ended(ended) => ended.owed.clone(),
            State::Running(_) => None,
        };
        let limits = &self.shared.limits();
        let dir = self.job_dir(&entry.id).map_err(StoreError::io("could not read the job"))?;
        let output = match owed {
            Some(owed) => owed.read(&dir, limits),
            None => record::read_result(&dir, limits),
        };
        let output = output.map_err(StoreError::io("could not read result.md"))?;
        let artifacts = artifacts::list(&dir, &entry.id, limits.artifacts_entries);
        Ok(ResultView { job_id: entry.id.clone(), output, artifacts: record::some(artifacts) })
    }

    fn millis(&self) -> i64 {
        self.shared.clock.now().as_millisecond()
    }

    fn is_fresh(&self, looked: i64) -> bool {
        self.is_within(self.pace.fresh_millis(), looked)
    }

    /// Whether that moment is no longer ago; a moment that is still to come, as when the clock was set back, is not.
    fn is_within(&self, millis: i64, moment: i64) -> bool {
        (0..millis).contains(&self.millis().saturating_sub(moment))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use cap_tempfile::{TempDir, ambient_authority};
    use guild_contract::Limits;
    use jiff::Timestamp;

    use super::*;
    use crate::{Clock, StoreOptions};

    /// Seconds since 1970.
    #[derive(Default)]
    struct Seconds(AtomicU64);

    impl Clock for Seconds {
        fn now(&self) -> Timestamp {
            Timestamp::from_second(self.0.load(Ordering::Relaxed) as i64).unwrap()
        }
    }

    #[test]
    fn while_one_looks_at_all_jobs_the_others_get_the_last_list() {
        let dir = TempDir::new(ambient_authority()).unwrap();
        let clock = Arc::new(Seconds::default());
        let options = StoreOptions { limits: Arc::new(Limits::default()), clock: clock.clone() };
        let store = JobStore::open(&dir, options).unwrap();
        let params = ListParams { detail: None, filter: None };
        let last = store.list(&params).unwrap();
        clock.0.fetch_add(60, Ordering::Relaxed);
        assert_eq!(store.list_now(&params), None);
        let _looking = lock(&store.lists.sweep);
        assert_eq!(store.list(&params).unwrap(), last);
    }
}
