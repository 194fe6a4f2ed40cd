//! Decides whether a member is still the one that the operator trusts, and whether a job was dispatched on this host.

mod approval;
mod declaration;
mod difference;
mod error;
mod lock;
mod probed;
pub mod seal;
mod signature;

pub use approval::{Approval, Refused, Standing, Trusted, by_user, directory_path};
pub use declaration::{declares, is_member, is_member_at};
pub use difference::Difference;
pub use error::FileError;
pub use lock::{Asked, FILE, How, Lock, Pin, Source};
pub use probed::{Found, Probed};
pub use signature::{Signature, TRUST_FILE, Trust, digests_beside, write_beside};
