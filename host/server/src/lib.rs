//! The server: it finds members, opens their jobs, and answers for them over JSON-RPC and HTTP.
//!
//! A request goes `listen` (connections) -> `http` (what is a request) -> `door` (who may ask) -> `rpc` (JSON-RPC 2.0) ->
//! `methods` (`worker/*` and MCP) -> [`member::Member`], which the command line calls directly. Nothing on that way
//! instantiates a component, but for a dispatch.

pub mod approval;
mod beside;
mod condense;
pub mod config;
mod declined;
mod directories;
mod discover;
pub mod discovery;
pub mod doctor;
pub mod door;
mod events;
mod home;
pub mod host;
pub mod http;
mod json;
mod kept;
pub mod listen;
pub mod mcp;
pub mod mcp_line;
pub mod member;
mod methods;
mod once_more;
mod opener;
mod plugins;
pub mod reach;
mod reconciler;
pub mod reload;
pub mod resume;
mod roster;
pub mod rpc;
mod runtimes;
mod scanner;
mod schema;
pub mod seal;
pub mod serve;
pub mod serving;
pub mod takeover;
mod toolbox;
mod toolboxes;
mod work;

pub use host::{Host, HostOptions, MemberState, OpenError, Target};
pub use member::Member;
pub use reload::Reloads;
pub use roster::{MemberEntry, Members};
pub use serve::{ServeError, ServeOptions, serve, serve_until};

/// The tasks that a host has run in child processes. The main function of a program that has a host hands them to
/// [`guild_confine::serve_if_asked`].
pub const TASKS: &[&guild_confine::Task] = &[
    &guild_agent::DOCUMENT_TASK,
    &guild_agent::FILES_TASK,
    &guild_sandbox::COMPILE,
    &guild_web::PAGE_TASK,
    &guild_web::SEARCH_TASK,
    &schema::SCHEMA,
];
