//! What jobs and tool calls reach of what the host has: read roots and the web.

use std::sync::Arc;

use guild_agent::Broker;
use guild_contract::{Grants, Limits, MemberKey, manifest::Interface};
use guild_hall::Attempt;
use guild_session::{files::Files, web::Web};

use crate::{
    runtimes::Runtimes,
    sources::{Reader, Sources},
};

/// What a host has that members can be granted: read roots, the web, and what runs sessions.
pub(crate) struct Resources {
    pub(crate) sources: Sources,
    pub(crate) runtimes: Runtimes,
}

impl Resources {
    /// What one job of a member reaches with these grants; without a member, it is only to be shown. The web keeps the pages
    /// that the job has read.
    pub(crate) fn reach(&self, member: Option<&MemberKey>, grants: &Grants) -> Reach {
        self.with_reader(self.sources.of(member, grants, &self.runtimes), grants)
    }

    /// As [`Self::reach`], for a job that works in a place of its own.
    ///
    /// # Errors
    /// Where that cannot be read.
    pub(crate) fn reach_at(&self, attempt: &Attempt, grants: &Grants, limits: &Limits) -> Result<Reach, String> {
        let reader = self.sources.with(attempt, grants, (&self.runtimes, limits));
        Ok(self.with_reader(reader?, grants))
    }

    fn with_reader(&self, Reader { files, broker, local }: Reader, grants: &Grants) -> Reach {
        let provided = self.runtimes.web(grants);
        let search = provided.search.clone().or_else(|| local.map(|local| local as _));
        let web = Web { search, fetch: provided.fetch.clone() };
        let own_web = if grants.has(Interface::Files) { web.clone() } else { provided };
        Reach { files, broker, web, own_web }
    }
}

/// What a job reaches.
#[derive(Clone)]
pub(crate) struct Reach {
    /// The read roots; none where none is granted.
    pub(crate) files: Option<Arc<dyn Files>>,
    /// The read-only tools over them.
    pub(crate) broker: Broker,
    /// The web of its sessions. Without a provider, or where that is not granted, a search is one of the read roots.
    pub(crate) web: Web,
    /// The web of its component, which reaches the read roots only where it was granted `files`.
    pub(crate) own_web: Web,
}

impl Reach {
    /// The read-only tools that its sessions can be given: granted, and with something to read.
    pub(crate) fn tools(&self, grants: &Grants) -> Vec<String> {
        grants.sessions.tools.iter().filter(|tool| self.broker.offers(tool, &self.web)).cloned().collect()
    }
}
