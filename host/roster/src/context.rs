//! What a host gives its members to work with.

use std::sync::Arc;

use guild_config::Config;
use guild_contract::Limits;
use guild_trust::{Approval, seal::Seals};
use tokio::sync::Semaphore;

use crate::{budget::MemoryBudget, events::Hub, runtimes::Runtimes, sources::Sources, toolboxes::Toolboxes};

/// What the operator gives a member to work with. Where `guild.toml` is read again, another one takes its place as a whole;
/// whoever has this one goes on with it.
#[derive(Clone)]
pub(crate) struct HostContext {
    /// The host's limits; for a member, with its own in place.
    pub limits: Arc<Limits>,
    /// What the operator allows.
    pub(crate) config: Arc<Config>,
    /// Whose components are loaded.
    pub(crate) approval: Arc<Approval>,
    /// The read roots.
    pub(crate) sources: Arc<Sources>,
    /// What runs sessions, and the web.
    pub(crate) runtimes: Arc<Runtimes>,
    /// What shows that a job was begun here.
    pub(crate) seals: Arc<Seals>,
    /// A place for each job that may run, over all members of the host.
    pub places: Arc<Semaphore>,
    /// The room for what is kept of running jobs.
    pub kept: MemoryBudget,
    /// Where the toolboxes are that members name.
    pub(crate) toolboxes: Arc<Toolboxes>,
    /// Who is told what happens.
    pub(crate) events: Arc<Hub>,
}
