//! Describes a member to others: the report on it, the guidance about it, and its limits.

pub mod guidance;
mod limits;
pub mod report;

pub use limits::{MemberLimits, Narrowed};
pub use report::{MemberReport, MemberService};
