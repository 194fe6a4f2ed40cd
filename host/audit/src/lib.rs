//! What a component is and what it can do, read from its bytes, its manifest and the operator's policy. Nothing is
//! compiled or run, and no wasmtime is needed.
//!
//! [`Audit`] is what a reviewer reads: [`Audit::of`] takes any
//! bytes, and says the same of the same bytes each time. [`Difference`] is what changed between two audits.

mod audit;
mod claims;
mod difference;
pub mod evidence;
mod findings;
pub mod flows;
mod judge;
mod languages;
pub mod meaning;
pub mod model;
mod package;
mod reach;
mod rules;
mod scan;
mod subject;
mod text;
mod texts;
mod traces;

pub use difference::{Change, Difference, Facts};
pub use model::{Audit, Finding};
pub use rules::{Rule, Severity};
pub use subject::{Member, OfferedTool, Operator, Package, Subject};
