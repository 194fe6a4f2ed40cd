//! Commands about jobs: they run, list, show, follow and remove jobs.

pub(crate) mod find;
pub(crate) mod hosted;
pub(crate) mod job_commands;
pub(crate) mod logs;
pub(crate) mod prune;
pub(crate) mod run;
mod status_text;
pub(crate) mod usage;
pub(crate) mod watch;
pub(crate) mod worker;
