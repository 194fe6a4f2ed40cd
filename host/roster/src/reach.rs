//! What a member may do, and what it reaches of what the host has: read roots, the web.
//!
//! [`Granted`] is found once, when a member is opened; what it was granted is frozen with each of its jobs. [`Reach`] is
//! made of it for a job.

use std::sync::Arc;

use guild_contract::{Grants, MemberKey, grants::Verdict, manifest::Interface};
use guild_session::web::Web;

use crate::{
    runtimes::Runtimes,
    sources::{Reader, Sources},
};

/// What a job reaches, with what it was granted.
#[derive(Clone)]
pub(crate) struct Reach {
    pub(crate) grants: Arc<Grants>,
    pub(crate) reader: Reader,
    /// The web of its sessions. Without a provider, or where that is not granted, a search is one of the read roots.
    pub(crate) web: Web,
    /// The web of its component, which reaches the read roots only where it was granted `files`.
    pub(crate) own_web: Web,
}

impl Reach {
    /// What a member's job reaches; nobody's, where it is only to be shown.
    pub(crate) fn new(member: Option<&MemberKey>, grants: Arc<Grants>, sources: &Sources, runtimes: &Runtimes) -> Self {
        let reader = sources.of(member, &grants, runtimes);
        let provided = runtimes.web(&grants);
        let local = || reader.local.clone().map(|local| local as _);
        let web = Web { search: provided.search.clone().or_else(local), fetch: provided.fetch.clone() };
        let own_web = if grants.has(Interface::Files) { web.clone() } else { provided };
        Self { grants, reader, web, own_web }
    }

    /// Why a session cannot be given a tool.
    pub(crate) fn no_tool(&self, tool: &str) -> String {
        match self.grants.details.get(tool) {
            Some(Verdict::Denied(why)) => format!("the tool {tool:?}: {why}"),
            Some(Verdict::Granted) => format!("the tool {tool:?}: there is nothing for it to read"),
            None => format!("the tool {tool:?}; add it to `component.tools` in guild-member.json"),
        }
    }

    /// The read-only tools that its sessions can be given: granted, and with something to read.
    pub(crate) fn tools(&self) -> Vec<String> {
        self.grants.tools.iter().filter(|tool| self.reader.broker.offers(tool, &self.web)).cloned().collect()
    }
}
