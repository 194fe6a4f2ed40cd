//! Status, list and result (REQ-WD-8 to REQ-WD-15): answered from memory where what is there was looked at less
//! than a second ago, else after a look at the files, which people may have edited.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI64, Ordering},
};

use bytes::Bytes;
use globset::{GlobBuilder, GlobMatcher};
use guild_contract::{
    JobStatus,
    rpc::{Detail, JobList, ListParams, ResultView, StatusView},
};

use crate::{
    artifacts,
    error::StoreError,
    index::{Entry, State, View},
    record::{self, META, Parts, STATUS},
    store::JobStore,
    sync::lock,
};

/// What was looked at so lately, in milliseconds, is fresh.
const FRESH_MILLIS: i64 = 1000;
/// All jobs stay fresh for so many times as long as it took to look at them, if that is longer: where there are very
/// many, looking at them must not become all that the host does.
const SWEEP_SHARE: i64 = 20;
/// A list of more jobs is rendered only where blocking is allowed.
const QUICK_LIST: usize = 1000;
/// Bytes of a filter.
const MAX_FILTER_BYTES: usize = 4096;

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
        self.simple.looked.store(i64::MIN, Ordering::Relaxed);
        self.detailed.looked.store(i64::MIN, Ordering::Relaxed);
    }
}

fn glob(filter: Option<&str>) -> Result<Option<GlobMatcher>, StoreError> {
    let Some(filter) = filter.filter(|filter| !filter.is_empty()) else { return Ok(None) };
    if filter.len() > MAX_FILTER_BYTES {
        return Err(StoreError::OverLimit(format!(
            "filter has {} bytes; {MAX_FILTER_BYTES} are allowed",
            filter.len()
        )));
    }
    let glob = GlobBuilder::new(filter).literal_separator(false).build();
    let glob = glob.map_err(|e| StoreError::Refused(format!("filter is not a glob: {}", e.kind())))?;
    Ok(Some(glob.compile_matcher()))
}

fn is_detailed(params: &ListParams) -> bool {
    params.detail == Some(Detail::Detailed)
}

fn json(value: &impl serde::Serialize) -> Result<Bytes, StoreError> {
    let bytes = serde_json::to_vec(value).map_err(|e| StoreError::io("could not write the answer")(e.into()))?;
    Ok(Bytes::from(bytes))
}

impl JobStore {
    /// [`Self::status`], if it can be answered without I/O: never blocks.
    pub fn status_now(&self, id: &str) -> Option<Bytes> {
        if self.catalog.is_stale() {
            return None;
        }
        let entry = self.catalog.read().get(id)?;
        let job = match &*lock(&entry.state) {
            State::Ended(ended) => {
                let view = ended.current_view().filter(|_| self.is_fresh(ended.looked));
                return view.map(|view| view.json.clone());
            }
            State::Running(job) => job.clone(),
        };
        job.json()
    }

    /// What `worker/status` answers: a [`StatusView`] as JSON.
    pub fn status(&self, id: &str) -> Result<Bytes, StoreError> {
        self.absorb();
        if let Ok(id) = id.parse() {
            let left_out = lock(&self.left_out).contains_key(&id);
            if left_out {
                self.settle(&id);
            }
        }
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
        let (view, parts) = record::read_view(jobs, &meta, &self.shared.limits, || {
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
            State::Ended(ended) => (ended.stamp, ended.stamp.is_none().then(|| ended.meta.clone())),
        };
        let unsaved = match unsaved {
            Some(meta) => {
                let stamp = self.write_meta(&meta).map_err(StoreError::io("could not store the job's end"));
                match stamp {
                    Ok(stamp) => self.update(entry, |ended| ended.stamp = Some(stamp)),
                    Err(e) => tracing::warn!(job = %id, "{e}"),
                }
                true
            }
            None => false,
        };
        let current = record::stamp_of(jobs, id, META);
        if current.is_none() && !jobs.symlink_metadata(id.as_str()).is_ok_and(|metadata| metadata.is_dir()) {
            if self.catalog.write().remove(id) {
                self.shared.changed();
            }
            return Err(StoreError::Unknown(id.to_string()));
        }
        if unsaved || current == known {
            return Ok(());
        }
        match record::read_meta(jobs, id) {
            Ok((meta, stamp)) if meta.status != JobStatus::Running => {
                let started_at = meta.started_at.clone();
                self.update(entry, |ended| (ended.meta, ended.stamp) = (meta, Some(stamp)));
                let mut index = self.catalog.write();
                if index.get(id.as_str()).is_some() {
                    index.insert(entry.clone(), &started_at);
                }
            }
            outcome => {
                let reason = outcome.err().unwrap_or_else(|| "it says that the job runs, and it does not".to_owned());
                tracing::warn!(job = %id, file = META, "was edited, and what was known before is kept: {reason}");
                self.update(entry, |ended| ended.stamp = current.or(ended.stamp));
            }
        }
        Ok(())
    }

    /// [`Self::list`], if it can be answered without I/O and without much work: never blocks.
    pub fn list_now(&self, params: &ListParams) -> Option<Bytes> {
        let detailed = is_detailed(params);
        if self.catalog.is_stale() || !self.is_swept(detailed) {
            return None;
        }
        let filter = glob(params.filter.as_deref()).ok()?;
        if filter.is_none()
            && let Some(list) = self.rendered(detailed)
        {
            return Some(list);
        }
        if self.catalog.read().len() > QUICK_LIST {
            return None;
        }
        self.render(detailed, filter.as_ref()).ok()
    }

    /// What `worker/list` answers: a [`JobList`] as JSON, newest first.
    pub fn list(&self, params: &ListParams) -> Result<Bytes, StoreError> {
        let filter = glob(params.filter.as_deref())?;
        let detailed = is_detailed(params);
        self.absorb();
        self.sweep(detailed);
        match filter {
            None => self.rendered(detailed).map_or_else(|| self.render(detailed, None), Ok),
            Some(filter) => self.render(detailed, Some(&filter)),
        }
    }

    /// Looks at what a list shows of the ended jobs, if that was a second ago or more.
    fn sweep(&self, detailed: bool) {
        let _sweep = lock(&self.lists.sweep);
        if self.is_swept(detailed) {
            return;
        }
        let began = self.millis();
        if self.watch.is_none() {
            self.catalog.notice_all();
            self.absorb();
        }
        self.retry_left_out();
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
        let fresh_for = ended.saturating_sub(began).saturating_mul(SWEEP_SHARE).max(FRESH_MILLIS);
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

    fn render(&self, detailed: bool, filter: Option<&GlobMatcher>) -> Result<Bytes, StoreError> {
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
        self.absorb();
        let entry = self.find(id)?;
        let _files = lock(&entry.files);
        self.refresh(&entry)?;
        let meta = entry.meta();
        match entry.status() {
            JobStatus::Running => return Err(StoreError::Refused("Job is still running".to_owned())),
            JobStatus::Cancelled => return Err(StoreError::Refused("Job was cancelled".to_owned())),
            JobStatus::Failed => {
                let error = meta.and_then(|meta| meta.error).unwrap_or_else(|| "no reason was recorded".to_owned());
                return Err(StoreError::Refused(format!("Job failed: {error}")));
            }
            JobStatus::Completed => {}
        }
        let output = record::read_result(&self.shared.jobs, &entry.id, self.shared.limits.result_bytes)
            .map_err(StoreError::io("could not read result.md"))?;
        let artifacts = self
            .job_dir(&entry.id)
            .and_then(|dir| artifacts::list(&dir))
            .map_err(StoreError::io("could not list the job's artifacts"))?;
        Ok(ResultView { job_id: entry.id.clone(), output, artifacts: record::some(artifacts) })
    }

    fn millis(&self) -> i64 {
        self.shared.clock.now().as_millisecond()
    }

    fn is_fresh(&self, looked: i64) -> bool {
        self.is_within(FRESH_MILLIS, looked)
    }

    /// Whether that moment is no longer ago; a moment that is still to come, as when the clock was set back, is not.
    fn is_within(&self, millis: i64, moment: i64) -> bool {
        (0..millis).contains(&self.millis().saturating_sub(moment))
    }
}
