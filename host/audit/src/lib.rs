//! Audits a component: reads from its bytes, its manifest and the operator's policy what it can do. Nothing is compiled
//! or run, and no wasmtime is needed.
//!
//! [`Audit`] is what a reviewer reads: [`Audit::of`] takes any bytes, and says the same of the same bytes each time. It
//! states facts, the worst that a member can do, and lays texts out for reading; it judges no wording. [`Difference`] is
//! what changed between two audits.

mod assemble;
mod bounds;
mod change;
mod check;
mod difference;
pub mod evidence;
pub mod facts;
pub mod flows;
pub mod meaning;
pub mod model;
mod reach;
mod scan;
pub mod subject;
mod texts;

pub use change::{Attributes, Change};
pub use difference::Difference;
pub use facts::{Fact, FactName};
pub use flows::{Other, Reach};
pub use model::Audit;
pub use scan::data_of;
pub use subject::{Member, OfferedTool, Operator, Package, Subject, Trusted};
