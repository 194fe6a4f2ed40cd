//! The server: it finds members, opens their jobs, and answers for them over JSON-RPC and HTTP.
//!
//! A request goes `listen` (connections) -> `http` (what is a request) -> `door` (who may ask) -> `rpc` (JSON-RPC 2.0) ->
//! `methods` (`worker/*` and MCP) -> [`member::Member`], which the command line calls directly. Nothing on that way
//! instantiates a component, but for a dispatch.

pub mod approval;
mod beside;
pub mod config;
mod directories;
mod discover;
pub mod discovery;
pub mod doctor;
pub mod door;
pub mod host;
pub mod http;
mod json;
pub mod listen;
pub mod member;
mod methods;
mod plugins;
mod queue;
pub mod reach;
pub mod resume;
pub mod rpc;
mod runtimes;
pub mod serve;
pub mod takeover;
mod work;

pub use host::{Host, HostOptions, MemberState, OpenError, Target};
pub use member::Member;
pub use serve::{ServeError, ServeOptions, serve};
