//! The hall: projects of the user's, and the commissions that workers carry out on them (REQ-WKR-1 to REQ-WKR-23).
//!
//! This crate knows neither components nor HTTP. A commission is a record; each attempt of it is a job of a member, which
//! the roster carries out.

pub mod memory;
pub mod tools;
