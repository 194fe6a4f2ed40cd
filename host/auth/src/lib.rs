//! Who may ask, and how much of it.
//!
//! A request passes here before anything is done for it, and again with each method that it asks for:
//!
//! - [`names`]: it calls the host by one of its names, so that no web page can have sent it;
//! - [`tokens`], [`credentials`]: it brings a token that is good, for this member and this method, and that has not been
//!   used too much. A caller on this machine that uses a loopback name needs no token unless
//!   `require_token` is set;
//! - [`private`]: of a host that `guild mcp` started, it brings that host's own token;
//! - [`budget`]: the memory of its requests, together with that of others' requests, is bounded;
//! - [`audit`], [`audit_log`]: what was asked for, and what came of it, is written down.

mod audit;
pub mod audit_log;
pub mod budget;
mod caller;
mod credentials;
mod ingress;
mod names;
mod operation;
pub mod private;
mod refused;
mod rules;
mod spend;
mod subscription;
pub mod tls;
pub mod tokens;

pub use audit::Audit;
pub use budget::Identity;
pub use caller::{Authorized, Caller, Connection, LARGE, Process};
pub use guild_contract::operation::Access;
pub use ingress::Ingress;
pub use names::CalledBy;
pub use operation::Operation;
pub use refused::Refused;
pub use rules::{IngressError, Rules};
pub use spend::Ledger;
pub use subscription::Subscription;
