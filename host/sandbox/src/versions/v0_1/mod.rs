//! Serves `guild:worker@0.1`: bindings, host functions (one file per interface), and the conversion of a component's
//! exports.
//!
//! An expected failure is the interface's `host-error`; only abuse (an invalid handle) or a bug of the host traps. Work
//! that blocks on storage runs where blocking is allowed.

mod activation;
mod agent;
mod bindings;
mod exports;
mod files;
mod hall;
mod job_tools;
mod link;
mod log;
mod manager;
mod memory;
mod status;
mod web;

pub(crate) use link::Bindings;

use super::{head, named};
use link::HostResult;
