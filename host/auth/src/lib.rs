//! Authenticates and authorises a host's callers, and limits their requests.
//!
//! A request is checked here before the host works on it, and again for each of its methods:
//!
//! - [`names`]: it uses a name of the host, so that no web page can have sent it;
//! - [`tokens`], [`credentials`]: it has a valid token that permits the member and the method, and is within its
//!   limits. A caller on this machine that uses a loopback name needs no token unless `require_token` is set;
//! - [`sessions`]: a browser has signed in with a token, and has a cookie in its place, for the pages of the host only;
//! - [`private`]: for a host that `guild mcp` started, it has that host's own token;
//! - [`budget`]: the memory of its requests, and of all requests together, is bounded;
//! - [`audit`], [`audit_log`]: the request and its outcome are logged, and `audit_tail` reads them again.

mod audit;
pub mod audit_log;
pub mod budget;
mod caller;
mod ingress;
mod names;
mod operation;
pub mod private;
mod refused;
mod rules;
mod sessions;
mod spend;
mod subscription;
pub mod tls;
pub mod tokens;

pub use audit::Audit;
pub use audit_log::tail::TailError;
pub use budget::Identity;
pub use caller::{Authorized, Browser, Caller, Connection, Cookie, LARGE, Process};
pub use guild_contract::operation::Access;
pub use ingress::Ingress;
pub use names::CalledBy;
pub use operation::Operation;
pub use refused::Refused;
pub use rules::{IngressError, Rules};
pub use spend::Ledger;
pub use subscription::Subscription;
