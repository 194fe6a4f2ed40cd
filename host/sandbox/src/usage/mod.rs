//! Counts the resources of a Store: memory of the component and of the host on its behalf, and open files.
//!
//! Memory is one sum: linear memories and tables, which the engine asks the [`Limiter`](DROP) for, and the host's
//! memory for the component's open streams, listings and sessions. Open files are also the process's, so all components
//! together may have no more than half of those.

pub(crate) mod limiter;

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use guild_contract::Limits;
use guild_telemetry::record;
use rustix::process::{Resource, getrlimit};
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;

use crate::log::LogSink;

/// Counts the resources of one Store against its limits.
pub(crate) struct ResourceUsage {
    memory: AtomicU64,
    max_memory: u64,
    files: AtomicU64,
    max_files: u64,
    /// Open files of all Stores.
    all_files: Arc<AtomicU64>,
    /// The limit of memory or tables that was reached last; cleared when such a request succeeds.
    refused: Mutex<Option<Reached>>,
    /// The log of reached limits, each of which is logged once.
    log: Option<LogSink>,
    reported: Mutex<Vec<&'static str>>,
}

/// A reached limit. It is the error if the component has to be ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} = {max}", Limits::cited(.name))]
pub(crate) struct Reached {
    pub(crate) name: &'static str,
    pub(crate) max: u64,
}

/// Memory of the host that counts as the component's until this is dropped.
pub(crate) struct Memory {
    usage: Arc<ResourceUsage>,
    bytes: u64,
}

/// A permit for an open file, until this is dropped.
pub(crate) struct OpenFilePermit(Arc<ResourceUsage>);

/// Adds to a sum, if that stays within the limit.
fn add(sum: &AtomicU64, more: u64, max: u64) -> bool {
    let added = |sum: u64| sum.checked_add(more).filter(|sum| *sum <= max);
    sum.fetch_update(Ordering::AcqRel, Ordering::Acquire, added).is_ok()
}

impl ResourceUsage {
    pub(crate) fn new(limits: &Limits, all_files: Arc<AtomicU64>, log: Option<LogSink>) -> Arc<Self> {
        Arc::new(Self {
            memory: AtomicU64::new(0),
            max_memory: limits.memory_bytes,
            files: AtomicU64::new(0),
            max_files: limits.open_files.into(),
            all_files,
            refused: Mutex::default(),
            log,
            reported: Mutex::default(),
        })
    }

    /// Takes memory that is not freed while the Store lives.
    pub(crate) fn grow(&self, bytes: u64) -> bool {
        let fits = add(&self.memory, bytes, self.max_memory);
        self.note(Reached { name: "memory_bytes", max: self.max_memory }, fits);
        fits
    }

    /// Takes memory of the host; the error is the one that the component gets.
    pub(crate) fn memory(self: &Arc<Self>, bytes: u64) -> Result<Memory, ErrorCode> {
        let fits = self.grow(bytes);
        fits.then(|| Memory { usage: self.clone(), bytes }).ok_or(ErrorCode::InsufficientMemory)
    }

    /// Takes a permit for an open file; the error is the one that the component gets.
    pub(crate) fn open(self: &Arc<Self>) -> Result<OpenFilePermit, ErrorCode> {
        if !add(&self.files, 1, self.max_files) {
            self.report(&self.too_many_files());
            return Err(ErrorCode::Quota);
        }
        let file = OpenFilePermit(self.clone());
        let all = self.all_files.fetch_add(1, Ordering::AcqRel);
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 2;
        // Dropping `file` gives the permit back.
        if all >= most { Err(ErrorCode::Busy) } else { Ok(file) }
    }

    /// The limit of open files, for calls that cannot return an error code.
    pub(crate) fn too_many_files(&self) -> Reached {
        Reached { name: "open_files", max: self.max_files }
    }

    /// Records that a limit was reached, or forgets it because a later request succeeded.
    pub(crate) fn note(&self, limit: Reached, granted: bool) {
        if !granted {
            record::limit_reached(limit.name);
            self.report(&limit);
        }
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if !granted {
            *refused = Some(limit);
        } else if refused.as_ref() == Some(&limit) {
            *refused = None;
        }
    }

    /// Logs once that a limit was reached, even if the call does not fail for it.
    fn report(&self, limit: &Reached) {
        let Some(log) = &self.log else { return };
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if !reported.contains(&limit.name) {
            reported.push(limit.name);
            log.line(&format!("host: refused what is beyond {limit}"));
        }
    }

    /// The limit of memory or tables that was reached last, if nothing of that kind was granted since.
    pub(crate) fn refused(&self) -> Option<Reached> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.usage.memory.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl Drop for OpenFilePermit {
    fn drop(&mut self) {
        self.0.files.fetch_sub(1, Ordering::AcqRel);
        self.0.all_files.fetch_sub(1, Ordering::AcqRel);
    }
}
