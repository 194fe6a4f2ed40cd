//! Checks the members and the options of a host without starting it.

mod cluster;
pub mod doctor;
pub mod members;
pub mod planned_host;
pub mod used;
