//! The tools of a session that works on a commission.

pub mod memory;
