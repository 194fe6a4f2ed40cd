//! What is known of a job that has ended.

use bytes::Bytes;
use guild_contract::Meta;

use crate::{
    durable::Stamp,
    record::{Owed, Parts},
};

/// What is known of a job that has ended.
pub(crate) struct Ended {
    pub(crate) meta: Meta,
    /// The `meta.json` that `meta` was read from; `None` while it could not be stored.
    pub(crate) stamp: Option<Stamp>,
    /// The result, while `stamp` is `None` and the job is completed.
    pub(crate) owed: Option<Owed>,
    /// What is wrong with its files, and was logged.
    pub(crate) trouble: Option<String>,
    /// The start of the summary, once a detailed list has asked for it, and the file that it was read from.
    pub(crate) head: Option<(Option<String>, Option<Stamp>)>,
    /// The rendered status, once it was asked for; see [`Self::current_view`].
    pub(crate) view: Option<View>,
    /// When the files of `view` were looked at last: milliseconds.
    pub(crate) looked: i64,
}

/// A rendered status.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) json: Bytes,
    /// The `meta.json` that it shows.
    pub(crate) meta: Option<Stamp>,
    pub(crate) parts: Parts,
}

impl Ended {
    pub(crate) fn new(meta: Meta, stamp: Option<Stamp>) -> Self {
        Self { meta, stamp, owed: None, trouble: None, head: None, view: None, looked: i64::MIN }
    }

    /// The rendered status, if it shows the record that is known.
    pub(crate) fn current_view(&self) -> Option<&View> {
        self.view.as_ref().filter(|view| view.meta == self.stamp)
    }
}
