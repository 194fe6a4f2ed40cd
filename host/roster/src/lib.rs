//! Finds and serves the members of a host, carries out their jobs, and publishes events about both.

mod answer;
pub mod audit;
pub mod check;
mod cluster;
pub mod cluster_view;
pub mod discovery;
pub mod events;
mod fakes;
pub mod host;
pub mod jobs;
pub mod members;
pub mod resources;
pub mod tools;
pub mod trial;

pub use answer::{blocking, to_json};
pub use cluster::directory::running_host;
pub use fakes::{Fakes, Used};
pub use host::{Host, HostOptions, Target, reload::Reloads};
pub use jobs::files::end_before_approval;
pub use jobs::run::run_session;
pub use members::{
    error::OpenError,
    member::Member,
    roster::{MemberEntry, MemberState, Members},
};

/// The tracing target of lines that the log has even where a host logs only warnings.
pub const NOTICE: &str = "guild_roster::notice";

/// The tasks that a host has run in child processes. The main function of a program that has a host passes them to
/// [`guild_confine::serve_if_asked`].
pub const TASKS: &[&guild_confine::Task] = &[
    &guild_extractive::DOCUMENT_TASK,
    &guild_agent::FILES_TASK,
    &guild_sandbox::COMPILE,
    &guild_web::PAGE_TASK,
    &guild_web::SEARCH_TASK,
    &tools::schema::SCHEMA,
];
