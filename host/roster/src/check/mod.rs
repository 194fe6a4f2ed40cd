//! Checks of what a host would serve, and how, without starting it.

pub mod doctor;
pub mod members;
pub mod planned_host;
