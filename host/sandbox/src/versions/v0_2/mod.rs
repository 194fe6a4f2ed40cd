//! `guild:worker@0.2`, beside 0.1: what differs are the types of an activation, and that there are `hall` and `manager`. All else
//! is the same source, compiled against this version's types.

mod activation;
#[path = "../v0_1/agent.rs"]
pub(crate) mod agent;
mod bindings;
#[path = "../v0_1/exports.rs"]
mod exports;
#[path = "../v0_1/files.rs"]
mod files;
#[path = "../v0_1/given.rs"]
mod given;
mod hall;
#[path = "../v0_1/job_tools.rs"]
mod job_tools;
#[path = "../v0_1/link.rs"]
mod link;
#[path = "../v0_1/log.rs"]
mod log;
mod manager;
#[path = "../v0_1/memory.rs"]
mod memory;
#[path = "../v0_1/status.rs"]
mod status;
#[path = "../v0_1/web.rs"]
mod web;

use wasmtime::component::{HasSelf, Linker};

use super::{head, named};
use crate::state::State;

/// What 0.1 does not have.
fn add_more(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    use bindings::guild::worker as wit;
    wit::hall::add_to_linker::<State, HasSelf<State>>(linker, |s| s)?;
    wit::manager::add_to_linker::<State, HasSelf<State>>(linker, |s| s)
}

pub(crate) use link::{Bindings, HostResult};
