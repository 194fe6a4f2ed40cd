//! What a host gives its members to work with.

use std::sync::Arc;

use guild_config::Config;
use guild_contract::Limits;
use guild_trust::{Approval, seal::Seals};
use tokio::sync::Semaphore;

use crate::{budget::MemoryBudget, events::Hub, reach::Resources, toolboxes::Toolboxes};

/// What the operator gives a member to work with. Where `guild.toml` is read again, another one replaces it as a whole; jobs and
/// requests keep the one that they began with.
#[derive(Clone)]
pub(crate) struct HostContext {
    /// The host's limits; for a member, with its own in place.
    pub(crate) limits: Arc<Limits>,
    /// What the operator allows.
    pub(crate) config: Arc<Config>,
    /// Whose components are loaded.
    pub(crate) approval: Arc<Approval>,
    /// The read roots, the web, and what runs sessions.
    pub(crate) resources: Arc<Resources>,
    /// What shows that a job was begun here.
    pub(crate) seals: Arc<Seals>,
    /// A permit for each job that may run, over all members of the host.
    pub(crate) permits: Arc<Semaphore>,
    /// The memory for what is kept of running jobs.
    pub(crate) budget: MemoryBudget,
    /// The toolboxes that members name.
    pub(crate) toolboxes: Arc<Toolboxes>,
    /// Where events are published.
    pub(crate) events: Arc<Hub>,
}

impl HostContext {
    /// What a toolbox works with. All of the context would keep the toolboxes of each earlier reading of `guild.toml`.
    pub(crate) fn for_toolbox(&self) -> (Arc<Resources>, Arc<Limits>) {
        (self.resources.clone(), self.limits.clone())
    }
}
