//! Carries out the jobs of members, resumes them, bounds them, and reads their files.

pub(crate) mod condense;
pub mod files;
pub(crate) mod host_context;
pub(crate) mod interrupted;
pub(crate) mod member_data;
pub(crate) mod memory_budget;
pub mod own_sessions;
mod resume_trials;
pub(crate) mod run;
