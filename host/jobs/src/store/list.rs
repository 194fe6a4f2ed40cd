//! Lists jobs (REQ-WD-8).

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
use guild_session::glob::{MAX_GLOB_BYTES, compile};

use super::{
    JobStore,
    index::{Entry, State},
    json,
};
use crate::{
    error::StoreError,
    files::record::{self, HEAD_BYTES, STATUS},
    sync::lock,
};

/// The unfiltered lists.
#[derive(Default)]
pub(super) struct Lists {
    simple: UnfilteredList,
    detailed: UnfilteredList,
    /// Held by the caller that compares all jobs to their files.
    sweep: Mutex<()>,
}

struct UnfilteredList {
    /// The time at which all jobs were last compared to their files for it, in milliseconds.
    swept: AtomicI64,
    /// The list as JSON, and the generation of the store that it shows.
    rendered: Mutex<Option<(u64, Bytes)>>,
}

impl Default for UnfilteredList {
    fn default() -> Self {
        Self { swept: AtomicI64::new(i64::MIN), rendered: Mutex::default() }
    }
}

impl Lists {
    fn of(&self, is_detailed: bool) -> &UnfilteredList {
        if is_detailed { &self.detailed } else { &self.simple }
    }

    /// Makes the next list compare all jobs to their files.
    pub(super) fn invalidate(&self) {
        self.simple.swept.store(i64::MIN, Ordering::Relaxed);
        self.detailed.swept.store(i64::MIN, Ordering::Relaxed);
    }
}

/// The filter of a list of jobs, which matches whole descriptions; `None` for no filter or an empty one.
///
/// # Errors
///
/// Returns an error when the filter is not a glob.
pub fn filter(filter: Option<&str>) -> Result<Option<GlobSet>, StoreError> {
    let Some(filter) = filter.filter(|filter| !filter.is_empty()) else { return Ok(None) };
    if filter.len() > MAX_GLOB_BYTES {
        return Err(StoreError::OverLimit(format!("filter has {} bytes; {MAX_GLOB_BYTES} are allowed", filter.len())));
    }
    let glob = compile(filter, false).map_err(|why| StoreError::Refused(format!("filter is not a glob: {why}")))?;
    Ok(Some(glob))
}

impl JobStore {
    /// The answer of `worker/list`: a [`JobList`] as JSON, newest first.
    ///
    /// Changes by the host show at once. A person's edits of an ended job, and directories that a person adds to or
    /// removes from `jobs/`, show after a second, or after up to five with very many jobs.
    pub fn list(&self, params: &ListParams) -> Result<Bytes, StoreError> {
        let filter = filter(params.filter.as_deref())?;
        let is_detailed = params.detail == Some(Detail::Detailed);
        self.sweep(is_detailed);
        let matches = |entry: &&Arc<Entry>| {
            filter.as_ref().is_none_or(|glob| entry.with_meta(|meta| glob.is_match(&meta.description)))
        };
        // The generation is read before the jobs, so that a change meanwhile makes the list out of date.
        let generation = self.context.generation();
        let entries = self.catalog.read().entries();
        let jobs = entries.iter().filter(matches).map(|entry| entry.listed(is_detailed)).collect();
        let list = json(&JobList { jobs })?;
        if filter.is_none() {
            *lock(&self.lists.of(is_detailed).rendered) = Some((generation, list.clone()));
        }
        Ok(list)
    }

    /// An upper estimate of the bytes of [`Self::list`], before it is made.
    pub fn list_bytes(&self, params: &ListParams) -> u64 {
        // A job takes an id and a status, and in a detailed list a description and the beginning of a summary, as JSON.
        let details = if params.detail == Some(Detail::Detailed) {
            HEAD_BYTES + self.context.limits().description_bytes
        } else {
            0
        };
        (self.catalog.read().len() as u64).saturating_mul(details.saturating_add(128))
    }

    /// The rendered [`Self::list`], if it is up to date and the jobs' files were compared a moment ago. This reads no
    /// files, so it needs no thread that may block.
    pub fn list_now(&self, params: &ListParams) -> Option<Bytes> {
        let list = self.lists.of(params.detail == Some(Detail::Detailed));
        let is_filtered = params.filter.as_deref().is_some_and(|filter| !filter.is_empty());
        if is_filtered || !self.is_swept(&list.swept) {
            return None;
        }
        let rendered = lock(&list.rendered);
        let (generation, list) = rendered.as_ref()?;
        (*generation == self.context.generation()).then(|| list.clone())
    }

    /// Compares the index to `jobs/`, and the listed parts of ended jobs to their files, unless that was done a moment
    /// ago. One caller does it; the others use the result of the last time, if there is one.
    pub(super) fn sweep(&self, is_detailed: bool) {
        // The ledger tells of changes; files do not count where there is one.
        if self.context.ledger.is_some() || !self.ensure_loaded() {
            return;
        }
        let swept = &self.lists.of(is_detailed).swept;
        let _sweep = match self.lists.sweep.try_lock() {
            Ok(sweep) => sweep,
            Err(TryLockError::WouldBlock) if swept.load(Ordering::Relaxed) != i64::MIN => return,
            Err(TryLockError::WouldBlock) => lock(&self.lists.sweep),
            Err(TryLockError::Poisoned(sweep)) => sweep.into_inner(),
        };
        if self.is_swept(swept) {
            return;
        }
        self.search();
        let entries = self.catalog.read().entries();
        for entry in entries.iter().filter(|entry| entry.status() != JobStatus::Running) {
            let _files = lock(&entry.files);
            if self.refresh(entry).is_ok() && is_detailed {
                self.refresh_head(entry);
            }
        }
        self.context.changed();
        swept.store(self.context.millis(), Ordering::Relaxed);
    }

    fn is_swept(&self, swept: &AtomicI64) -> bool {
        self.context.ledger.is_some() || self.freshness()(swept.load(Ordering::Relaxed))
    }

    /// Reads the start of an ended job's summary if the file changed. `entry.files` is held.
    fn refresh_head(&self, entry: &Entry) {
        let jobs = &self.context.jobs;
        let read = match &*lock(&entry.state) {
            State::Running(_) | State::Elsewhere(_) => return,
            State::Ended(ended) => ended.head.as_ref().map(|(_, file)| *file),
        };
        if read.is_none_or(|file| record::fingerprint(jobs, &entry.id, STATUS) != file) {
            let head = record::read_head(jobs, &entry.id);
            entry.update_ended(|ended| ended.head = Some(head));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use cap_tempfile::{TempDir, ambient_authority};
    use guild_contract::Limits;
    use jiff::Timestamp;

    use super::*;
    use crate::StoreOptions;
    use guild_fs::clock::Clock;

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
        assert!(!store.is_swept(&store.lists.simple.swept));
        let _looking = lock(&store.lists.sweep);
        assert_eq!(store.list(&params).unwrap(), last);
    }
}
