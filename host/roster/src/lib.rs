//! The members: found, approved, opened, served, and changed while the host runs; their jobs, dispatched, carried out and
//! resumed; their toolboxes, and the events of all of it.

mod blocking;
mod budget;
pub mod catalogue;
mod commissions;
pub mod component;
mod condense;
mod context;
mod data;
pub mod discovery;
pub mod doctor;
mod error;
pub mod events;
pub mod granted;
pub mod host;
mod interrupted;
mod json;
mod loader;
pub mod mcp_line;
pub mod member;
mod neighbours;
pub mod notice;
pub mod offline;
mod opener;
pub mod preview;
mod reach;
mod reconciler;
pub mod reload;
mod resumption;
pub mod roster;
mod runtimes;
mod scanner;
mod schema;
pub mod serving;
mod sources;
mod spend;
pub mod survey;
pub mod takeover;
pub mod toolbox;
mod toolboxes;
mod work;

pub use blocking::blocking;
pub use error::OpenError;
pub use host::{Host, HostOptions, Target};
pub use json::to_json;
pub use member::Member;
pub use offline::end_before_approval;
pub use reload::Reloads;
pub use roster::{MemberEntry, MemberState, Members};

/// The tasks that a host has run in child processes. The main function of a program that has a host passes them to
/// [`guild_confine::serve_if_asked`].
pub const TASKS: &[&guild_confine::Task] = &[
    &guild_extractive::DOCUMENT_TASK,
    &guild_agent::FILES_TASK,
    &guild_sandbox::COMPILE,
    &guild_web::PAGE_TASK,
    &guild_web::SEARCH_TASK,
    &schema::SCHEMA,
];
