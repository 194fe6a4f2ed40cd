//! Reads and writes the files of a job: its record, log, transcript and artifacts.

pub(crate) mod activation;
pub(crate) mod artifacts;
pub(crate) mod attachments;
pub mod follow;
pub(crate) mod journal;
pub(crate) mod plan;
pub mod quota;
pub mod reader;
pub(crate) mod record;
