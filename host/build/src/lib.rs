//! Builds a member's component from its source: runs the one command of the member's language, and turns its output into
//! a component.
//!
//! The WIT world is derived from the member's manifest, so that authors copy and write no WIT. The files for the tools of a
//! language are written below `.guild/` in the member's directory, which is no part of the member.

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
