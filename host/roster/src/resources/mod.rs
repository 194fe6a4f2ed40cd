//! Opens the resources of a host that members are granted: read roots, the web and runtimes, and the part that one job
//! or tool call reaches.

pub(crate) mod read_roots;
pub(crate) mod runtimes;
pub mod serving_options;

use std::{path::Path, sync::Arc};

use guild_agent::Broker;
use guild_contract::{Grants, Limits, MemberKey, capability::FILES};
use guild_extractive::LocalSearch;
use guild_hall::Attempt;
use guild_session::{files::Files, web::Web};

use self::{
    read_roots::{Reader, Sources},
    runtimes::Runtimes,
};

/// The resources that members can be granted: read roots, the web, and the runtimes.
pub(crate) struct Resources {
    pub(crate) sources: Sources,
    pub(crate) runtimes: Runtimes,
}

impl Resources {
    /// What one job of a member reaches with these grants; without a member, it is only to be shown. The web keeps the
    /// pages that the job has read.
    pub(crate) fn reach(&self, member: Option<&MemberKey>, grants: &Grants) -> Reach {
        let reader = self.sources.of(member, grants, &self.runtimes);
        self.with_readers(reader.clone(), reader, grants, &grants.sessions.tools)
    }

    /// Like [`Self::reach`], for a job with its own worktree.
    ///
    /// # Errors
    ///
    /// Returns an error when the attempt's worktree cannot be read.
    pub(crate) fn reach_at(&self, attempt: &Attempt, grants: &Grants, limits: &Limits) -> Result<Reach, String> {
        let (own, sessions) = self.sources.with(attempt, grants, &self.runtimes, limits)?;
        Ok(self.with_readers(own, sessions, grants, &grants.activity_tools()))
    }

    /// Like [`Self::reach`], for a job with attachments in this directory, which its sessions read.
    ///
    /// # Errors
    ///
    /// Returns an error when the directory cannot be opened.
    pub(crate) fn reach_with(
        &self,
        attachments: &Path,
        member: &MemberKey,
        grants: &Grants,
        limits: &Limits,
    ) -> Result<Reach, String> {
        let own = self.sources.of(Some(member), grants, &self.runtimes);
        let sessions = self.sources.with_attachments(attachments, grants, &self.runtimes, limits)?;
        Ok(self.with_readers(own, sessions, grants, &grants.sessions.tools))
    }

    /// Of two readers, that of the component and that of its sessions.
    fn with_readers(&self, own: Reader, sessions: Reader, grants: &Grants, tools: &[String]) -> Reach {
        let provided = self.runtimes.web(grants);
        let or_local = |local: Option<Arc<LocalSearch>>| Web {
            search: provided.search.clone().or_else(|| local.map(|local| local as _)),
            fetch: provided.fetch.clone(),
        };
        let web = or_local(sessions.local);
        let own_web = if grants.holds(&FILES) { or_local(own.local) } else { provided.clone() };
        let tools = tools.iter().filter(|tool| sessions.broker.offers(tool, &web)).cloned().collect();
        Reach { files: own.files, session_files: sessions.files, broker: sessions.broker, tools, web, own_web }
    }
}

/// The resources that a job reaches.
#[derive(Clone)]
pub(crate) struct Reach {
    /// The read roots of its component; none where none is granted.
    pub(crate) files: Option<Arc<dyn Files>>,
    /// Those of its sessions: in a commission or a meeting they read the worktree whether that was asked for or not
    /// (REQ-WKR-2).
    pub(crate) session_files: Option<Arc<dyn Files>>,
    /// The read-only tools over these.
    pub(crate) broker: Broker,
    /// The read-only tools that its sessions can be given: granted, and with something to read.
    pub(crate) tools: Vec<String>,
    /// The web of its sessions. Without a provider, or where that is not granted, a search is one of the read roots.
    pub(crate) web: Web,
    /// The web of its component, which reaches the read roots only where it was granted `files`.
    pub(crate) own_web: Web,
}
