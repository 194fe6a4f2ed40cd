//! Members as artifacts of OCI registries: packed, pushed, pulled, and put in place.
//!
//! An artifact has one layer for each file of a member. Each kind of file has a fixed name, so no path of an artifact is
//! ever followed. `docs/publishing.md` has the media types. No function here decides about trust.

mod artifact;
mod client;
mod credentials;
mod error;
mod layout;
mod part;
mod reference;
mod unpacked;
mod versions;

pub use artifact::{Artifact, MemberFiles};
pub use client::{Pulled, Registry};
pub use error::RegistryError;
pub use part::Part;
pub use reference::Reference;
pub use unpacked::{Unpacked, write_over};
