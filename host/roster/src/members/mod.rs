//! Opens, loads and owns the members of a host, and keeps their roster up to date.

pub(crate) mod commissions;
pub(crate) mod component_loader;
pub(crate) mod error;
pub mod member;
pub(crate) mod neighbours;
pub(crate) mod opener;
pub(crate) mod reconciler;
pub mod roster;
pub mod takeover;
