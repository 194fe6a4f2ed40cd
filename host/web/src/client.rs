//! Requests: the two clients, one request at a time, and bodies that end.

use std::{
    error::Error,
    sync::{Arc, OnceLock},
    time::Duration,
};

use guild_session::tools::ToolError;
use reqwest::{Client, RequestBuilder, Response, redirect};
use url::Url;

use crate::{
    policy::{Reach, private_address, shown},
    resolver::{NotPublic, Resolver, WithinReach},
    robots::AGENT,
};

/// An idle connection is closed after this.
const IDLE: Duration = Duration::from_secs(10);

/// The clients. They differ in the addresses that they connect to.
pub(crate) struct Clients {
    resolver: Arc<dyn Resolver>,
    public: Made,
    any: Made,
}

/// Made with its first request: reading the system's certificates takes long, and a host may never need it.
type Made = OnceLock<Result<Client, String>>;

impl Clients {
    pub(crate) fn new(resolver: Arc<dyn Resolver>) -> Self {
        Self { resolver, public: Made::new(), any: Made::new() }
    }

    /// A request of the client that connects to the addresses that `reach` allows.
    pub(crate) fn get(&self, url: Url, reach: Reach) -> Result<RequestBuilder, ToolError> {
        let client = match reach {
            Reach::Public => &self.public,
            Reach::Any => &self.any,
        };
        let client = client.get_or_init(|| {
            let client = Client::builder()
                .user_agent(AGENT)
                .no_proxy()
                .referer(false)
                .redirect(redirect::Policy::none())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(2)
                .dns_resolver(WithinReach { resolver: self.resolver.clone(), reach });
            client.build().map_err(|e| format!("[web]: requests cannot be made here: {}", cause(&e)))
        });
        client.as_ref().map(|client| client.get(url)).map_err(|why| ToolError::Unavailable(why.clone()))
    }
}

/// Why a request to `url` failed.
pub(crate) fn failed(url: &Url, error: &reqwest::Error) -> ToolError {
    if let Some(refused) = NotPublic::cause_of(error) {
        return private_address(url, &refused.to_string());
    }
    let what = if error.is_connect() { "could not be reached" } else { "broke off" };
    ToolError::Unavailable(format!("{} {what}: {}", shown(url), cause(error)))
}

/// The innermost cause: the outer ones say only that there is one.
fn cause(error: &reqwest::Error) -> String {
    let causes = std::iter::successors(Some(error as &(dyn Error + 'static)), |error| (*error).source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

/// A body of at most `max_bytes`, after decompression, and whether that is all of it. Reading stops where it is not.
pub(crate) async fn body(mut response: Response, max_bytes: u64) -> Result<(Vec<u8>, bool), reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = usize::try_from(max_bytes).unwrap_or(usize::MAX).saturating_sub(body.len());
        if let Some(fits) = chunk.get(..room).filter(|_| chunk.len() > room) {
            body.extend_from_slice(fits);
            return Ok((body, false));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((body, true))
}
