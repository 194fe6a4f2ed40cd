//! Renders the pages of a host as HTML.
//!
//! Each page is a function from answers of operations to a text. Nothing here asks for data or decides: a host's server
//! calls the operations, which every other client can call too. All texts of workers, callers and models are escaped,
//! and have no control characters; Markdown becomes a fixed set of elements.

pub mod assets;
mod chart;
pub mod file;
mod flows;
mod frame;
pub mod hall;
pub mod host;
pub mod job;
pub mod markdown;
pub mod member;
pub mod now;
mod parts;
pub mod sign_in;
mod timeline;
pub mod usage;

pub use frame::{CONTENT_SECURITY_POLICY, refusal};
pub use parts::{CSRF_FIELD, HALL, HOST, SIGN_IN, SIGN_OUT, USAGE, Viewer, job_path, member_path};
