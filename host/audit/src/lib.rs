//! Audits a component: reads from its bytes, its manifest and the operator's policy what it can do. Nothing is compiled
//! or run, and no wasmtime is needed.
//!
//! [`Audit`] is what a reviewer reads: [`Audit::of`] takes any
//! bytes, and says the same of the same bytes each time. [`Difference`] is what changed between two audits.

mod assemble;
mod bounds;
mod difference;
pub mod evidence;
pub mod flows;
mod judge;
pub mod meaning;
pub mod model;
mod reach;
mod rules;
mod scan;
mod subject;
mod texts;

pub use difference::{Change, Difference, Facts};
pub use model::{Audit, Finding};
pub use rules::{Rule, Severity};
pub use subject::{Member, OfferedTool, Operator, Package, Subject};
