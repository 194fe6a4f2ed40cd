//! Makes a member's component from its source: runs the one command of the member's language, and makes a component of
//! what that wrote.
//!
//! The WIT world is derived from the member's manifest, so that authors copy and write no WIT. What the tools of a
//! language need is written below `.guild/` in the member's directory, which is no part of the member.

mod component;
mod error;
mod language;
mod programs;
mod project;
mod template;
mod world;

pub use error::BuildError;
pub use language::Language;
pub use project::{Built, Project};
pub use template::{Kind, new, setup};
