//! `guild:worker@0.1`: bindings, host functions (one file per interface), and what a component's exports mean.
//!
//! An expected failure is the interface's `host-error`; only abuse (a handle that is not one) or a bug of the host traps.
//! What blocks on storage runs where blocking is allowed.

mod activation;
pub(crate) mod agent;
mod bindings;
mod exports;
mod files;
mod given;
mod job_tools;
mod link;
mod log;
mod memory;
mod status;
mod web;

use wasmtime::component::Linker;

use super::{head, named};
use crate::state::State;

/// What no other version has.
fn add_more(_: &mut Linker<State>) -> wasmtime::Result<()> {
    Ok(())
}

pub(crate) use link::{Bindings, HostResult};
