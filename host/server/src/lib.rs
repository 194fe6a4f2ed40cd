//! Serves members over HTTP: JSON-RPC, MCP and server-sent events.
//!
//! A request passes `listen` (connections), `layers` (request id, log), `http` (routes, and [`guild_auth`], which
//! admits callers), `rpc` (JSON-RPC 2.0) and `methods` (`worker/*` and MCP), and reaches [`guild_roster::Member`],
//! which the command line calls directly. The hall's Unix socket has only the routes of `hall`. Only a dispatch and a
//! call of a component's tool instantiate a component.

mod connections;
mod declined;
mod events;
pub mod hall;
pub mod http;
mod input;
mod layers;
pub mod listen;
pub mod mcp;
mod methods;
mod operations;
mod page;
pub mod rpc;
mod sdk;
pub mod serve;

pub use serve::service_manager::PassedSockets;
pub use serve::{ServeError, ServeOptions, serve};
