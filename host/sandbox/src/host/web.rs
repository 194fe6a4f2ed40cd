//! `web`: searching and reading pages, through the host and under the operator's policy.
//!
//! Only a job has it: what is asked for while a dispatch is checked would leave the machine without a trace.

use guild_contract::manifest::Interface;
use guild_jobs::{tools::ToolError, web::Web};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use super::Answer;
use crate::{
    bindings::guild::worker::web::{Hit, Host},
    state::{Reach, State},
};

/// Hits that a component is given at most.
const MAX_HITS: u32 = 50;

fn granted(reach: &Reach) -> Result<(Web, Handle), ToolError> {
    reach.granted(Interface::Web)?;
    reach.web.clone().ok_or(ToolError::NoJob)
}

/// Does the work where the host does its own; it ends with the call.
async fn on_host<T: Send + 'static>(
    host: &Handle,
    work: impl Future<Output = Result<T, ToolError>> + Send + 'static,
) -> Result<T, ToolError> {
    let done = AbortOnDropHandle::new(host.spawn(work)).await;
    done.unwrap_or_else(|_| Err(ToolError::Unavailable("the web could not be asked".to_owned())))
}

async fn search(reach: Reach, query: String, limit: u32) -> Result<Vec<Hit>, ToolError> {
    let (web, host) = granted(&reach)?;
    let Some(search) = web.search else {
        return Err(ToolError::NotGranted(
            "there is nothing to search: the operator names a provider with [web.search] in guild.toml, or read roots"
                .to_owned(),
        ));
    };
    let limit = limit.clamp(1, MAX_HITS);
    let hits = on_host(&host, async move { search.search(&query, limit).await }).await?;
    Ok(hits.into_iter().map(|hit| Hit { title: hit.title, url: hit.url, snippet: hit.snippet }).collect())
}

async fn fetch(reach: Reach, url: String) -> Result<String, ToolError> {
    let (web, host) = granted(&reach)?;
    let Some(fetch) = web.fetch else {
        return Err(ToolError::NotGranted(
            "no host is allowed: the operator names hosts with `allow` in [web] of guild.toml".to_owned(),
        ));
    };
    on_host(&host, async move { fetch.fetch(&url).await }).await
}

impl Host for State {
    async fn search(&mut self, query: String, limit: u32) -> Answer<Vec<Hit>> {
        Ok(search(self.reach.clone(), query, limit).await.map_err(Into::into))
    }

    async fn fetch(&mut self, url: String) -> Answer<String> {
        Ok(fetch(self.reach.clone(), url).await.map_err(Into::into))
    }
}
