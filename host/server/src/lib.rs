//! The server: what members do, over JSON-RPC, MCP and server-sent events, on HTTP and on stdio.
//!
//! A request goes `listen` (connections) -> `http` (what is a request) -> [`guild_auth`] (who may ask) -> `rpc` (JSON-RPC
//! 2.0) -> `methods` (`worker/*` and MCP) -> [`guild_roster::Member`], which the command line calls directly. Nothing on
//! that way instantiates a component, but for a dispatch.

mod body;
mod connections;
mod declined;
mod events;
pub mod hall;
pub mod http;
mod json;
pub mod listen;
pub mod mcp;
mod methods;
mod openrpc;
mod params;
mod patience;
pub mod rpc;
mod sdk;
pub mod serve;
mod worker;

pub use serve::{ServeError, ServeOptions, serve, serve_until};
