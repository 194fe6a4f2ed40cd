//! Holds the parts of an ended job that stay in memory.

use std::sync::Arc;

use guild_contract::{EventDetail, Meta};
use guild_fs::fingerprint::Fingerprint;

use crate::files::record::{NoteFiles, Notes, UnsavedResult};

/// The state of an ended job in the store.
pub(crate) struct EndedJob {
    pub(crate) meta: Meta,
    /// The `meta.json` that `meta` was read from; `None` while it could not be stored.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// The result, while `fingerprint` is `None` and the job is completed.
    pub(crate) unsaved: Option<UnsavedResult>,
    /// The last warning about its files, which is logged once.
    pub(crate) warning: Option<String>,
    /// The start of the summary, once a detailed list has asked for it, and the file that it was read from.
    pub(crate) head: Option<(Option<String>, Option<Fingerprint>)>,
    /// The worker's notes, once a status has asked for them, and the files that they were read from.
    pub(crate) notes: Option<Arc<(Notes, NoteFiles)>>,
    /// When `notes` and `meta` were last compared to the files, in milliseconds.
    pub(crate) checked: i64,
}

impl EndedJob {
    pub(crate) fn new(meta: Meta, fingerprint: Option<Fingerprint>) -> Self {
        Self { meta, fingerprint, unsaved: None, warning: None, head: None, notes: None, checked: i64::MIN }
    }
}

/// The event of the end of a job, from its record.
pub(crate) fn end_of(meta: &Meta) -> EventDetail {
    EventDetail::JobEnded { status: meta.status, error: meta.error.clone() }
}
