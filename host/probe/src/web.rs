//! The web of a probe: it answers every host that the member was granted, and records every request.

use std::sync::Arc;

use async_trait::async_trait;
use guild_contract::Grants;
use guild_session::{
    tools::ToolError,
    web::{Fetch, Hit, Search, Web},
};
use guild_web::MemberHosts;

use crate::record::{Place, Recorder};

/// The name of a request that was refused, since its host was not granted.
pub(crate) const REFUSED: &str = "refused";
/// The name of a request of the component that was answered.
pub(crate) const BY_COMPONENT: &str = "fetch";
/// The name of a request that a session's model made with WebFetch.
pub(crate) const BY_MODEL: &str = "WebFetch";
/// The name of a search.
pub(crate) const SEARCH: &str = "search";

/// The text of each page, before its token.
pub(crate) const PAGE: &str = "# Tides\n\nThe harbour is shallow at low tide, reference";

/// The fake web of one run.
pub(crate) struct FakeWeb {
    pub(crate) recorder: Arc<Recorder>,
    /// The token that stands on each page.
    pub(crate) token: String,
}

impl FakeWeb {
    /// The web of a job with these grants.
    pub(crate) fn of(self: &Arc<Self>, grants: &Grants) -> Web {
        let hosts = grants.hosts.as_ref().and_then(|names| MemberHosts::new(names).ok());
        let pages = hosts.map(|hosts| Arc::new(Pages { web: self.clone(), hosts }) as Arc<dyn Fetch>);
        Web { search: grants.sessions.search.then(|| self.clone() as Arc<dyn Search>), fetch: pages }
    }
}

#[async_trait]
impl Search for FakeWeb {
    async fn search(&self, query: &str, limit: u32) -> Result<Vec<Hit>, ToolError> {
        if self.recorder.has_asked(query).is_none() {
            self.recorder.see(Place::Request, SEARCH, query);
        }
        let hit = |n| Hit {
            title: format!("Page {n}"),
            url: format!("https://probe.example/found/{n}"),
            snippet: format!("Harbours and tides, reference {}.", self.token),
        };
        Ok((1..=limit.min(3)).map(hit).collect())
    }
}

/// The pages of one job.
struct Pages {
    web: Arc<FakeWeb>,
    hosts: MemberHosts,
}

#[async_trait]
impl Fetch for Pages {
    async fn fetch(&self, url: &str) -> Result<String, ToolError> {
        let FakeWeb { recorder, token } = &*self.web;
        let checked = self.hosts.check_address(url);
        let name = match checked {
            Err(_) => REFUSED,
            Ok(()) => recorder.has_asked(url).unwrap_or(BY_COMPONENT),
        };
        recorder.see(Place::Request, name, url);
        checked?;
        Ok(format!("{PAGE} {token}.\n"))
    }
}
