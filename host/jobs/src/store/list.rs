//! Lists of jobs (REQ-WD-8): rendered once for as long as nothing changes.

use std::sync::{
    Arc, Mutex, TryLockError,
    atomic::{AtomicI64, Ordering},
};

use bytes::Bytes;
use globset::GlobSet;
use guild_contract::{
    JobStatus,
    rpc::{Detail, JobList, ListParams},
};

use super::{JobStore, filter::filter, json};
use crate::{
    error::StoreError,
    index::{Entry, State},
    record::{self, STATUS},
    sync::lock,
};

/// The unfiltered lists, by detail.
#[derive(Default)]
pub(super) struct Lists {
    simple: CachedList,
    detailed: CachedList,
    /// Held by the one who compares all jobs to their files.
    sweep: Mutex<()>,
}

struct CachedList {
    /// When all jobs were last compared to their files, in milliseconds.
    swept: AtomicI64,
    /// The list, and the generation that it shows.
    rendered: Mutex<Option<(u64, Bytes)>>,
}

impl Default for CachedList {
    fn default() -> Self {
        Self { swept: AtomicI64::new(i64::MIN), rendered: Mutex::new(None) }
    }
}

impl Lists {
    fn of(&self, detailed: bool) -> &CachedList {
        if detailed { &self.detailed } else { &self.simple }
    }

    /// Has the next list compare all jobs to their files.
    pub(super) fn invalidate(&self) {
        for list in [&self.simple, &self.detailed] {
            list.swept.store(i64::MIN, Ordering::Relaxed);
        }
    }
}

fn is_detailed(params: &ListParams) -> bool {
    params.detail == Some(Detail::Detailed)
}

impl JobStore {
    /// [`Self::list`], if that list is there: never blocks.
    pub fn list_now(&self, params: &ListParams) -> Option<Bytes> {
        let detailed = is_detailed(params);
        let filtered = params.filter.as_deref().is_some_and(|filter| !filter.is_empty());
        if filtered || self.catalog.is_stale() || !self.is_swept(detailed) {
            return None;
        }
        self.rendered(detailed)
    }

    /// What `worker/list` answers: a [`JobList`] as JSON, newest first.
    ///
    /// What the host does shows at once. What a person edits in a job that has ended shows after a second, and after up to
    /// five where there are very many jobs.
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

    /// Compares what a list shows of the ended jobs to their files, if that was not done a moment ago. One caller does it;
    /// the others take what was seen the last time, if there was one.
    fn sweep(&self, detailed: bool) {
        let list = self.lists.of(detailed);
        let _sweep = match self.lists.sweep.try_lock() {
            Ok(sweep) => sweep,
            Err(TryLockError::WouldBlock) if list.swept.load(Ordering::Relaxed) != i64::MIN => return,
            Err(_) => lock(&self.lists.sweep),
        };
        if self.is_swept(detailed) {
            return;
        }
        if self.watch.is_none() {
            self.catalog.notice_all();
            self.absorb();
        }
        self.retry();
        let entries = self.catalog.read().entries();
        for entry in entries.iter().filter(|entry| entry.status() != JobStatus::Running) {
            let _files = lock(&entry.files);
            if self.refresh(entry).is_ok() && detailed {
                self.refresh_head(entry);
            }
        }
        list.swept.store(self.context.millis(), Ordering::Relaxed);
    }

    fn is_swept(&self, detailed: bool) -> bool {
        self.is_within(self.fresh_millis(), self.lists.of(detailed).swept.load(Ordering::Relaxed))
    }

    /// Reads the start of an ended job's summary if the file changed. `entry.files` is held.
    fn refresh_head(&self, entry: &Entry) {
        let jobs = self.context.jobs();
        let read = match &*lock(&entry.state) {
            State::Running(_) => return,
            State::Ended(ended) => ended.head.as_ref().map(|(_, file)| *file),
        };
        if read.is_none_or(|file| record::fingerprint(jobs, &entry.id, STATUS) != file) {
            let head = record::read_head(jobs, &entry.id);
            self.update(entry, |ended| ended.head = Some(head));
        }
    }

    /// The unfiltered list, if it was rendered and nothing changed since.
    fn rendered(&self, detailed: bool) -> Option<Bytes> {
        let rendered = lock(&self.lists.of(detailed).rendered);
        let current = rendered.as_ref().filter(|(shown, _)| *shown == self.context.generation());
        current.map(|(_, list)| list.clone())
    }

    fn render(&self, detailed: bool, filter: Option<&GlobSet>) -> Result<Bytes, StoreError> {
        let generation = self.context.generation();
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
