//! Web access of sessions and components, within the operator's policy.
//!
//! [`Internet`] is made once for a host and gives each job its part, [`guild_session::web::Web`]. The network policy
//! decides which hosts may be reached; the top of `policy.rs` has the whole rule. A page is returned as text, its main
//! part as Markdown; a search goes to the operator's provider. Everything is bounded: the size of a page after
//! decompression, the total time, redirects, concurrent pages, and the cache. Pages and search results are parsed in a
//! child process with bounded time and memory.

mod address;
mod cache;
mod client;
mod fetch;
mod page;
mod policy;
mod resolver;
mod robots;
mod search;

use std::sync::Arc;

use async_trait::async_trait;
use guild_config::WebOptions;
use guild_session::{
    tools::ToolError,
    web::{Fetch, Search, Web},
};
use tokio::sync::Semaphore;

pub use page::PAGE_TASK;
pub use policy::MemberHosts;
pub use resolver::Resolver;
pub use search::SEARCH_TASK;

use cache::Cache;
use client::Clients;
use fetch::Fetcher;
use policy::Policy;
use resolver::SystemResolver;
use search::Provider;

/// The number of pages that a job reads concurrently; further ones wait.
const MAX_READS_OF_A_JOB: usize = 8;
/// The number of a job's pages that are converted concurrently: each can keep a processor busy.
const MAX_CONVERSIONS_OF_A_JOB: usize = 1;
/// The web access of a host.
pub struct Internet {
    fetcher: Option<Arc<Fetcher>>,
    search: Option<Arc<dyn Search>>,
}

impl Internet {
    /// The web access that `options` allow.
    ///
    /// # Errors
    /// The text names the key of guild.toml whose value is invalid, or a provider's missing key.
    pub fn new(options: &WebOptions) -> Result<Arc<Self>, String> {
        Self::with_resolver(options, Arc::new(SystemResolver))
    }

    /// [`Internet::new`] with another resolver.
    ///
    /// # Errors
    /// See [`Internet::new`].
    pub fn with_resolver(options: &WebOptions, resolver: Arc<dyn Resolver>) -> Result<Arc<Self>, String> {
        let policy = Policy::new(options)?;
        let clients = Arc::new(Clients::new(resolver));
        let search = options
            .search
            .as_ref()
            .map(|search| Provider::new(search, clients.clone(), options.page_time()))
            .transpose()?;
        let fetcher = policy.allows_any().then(|| Arc::new(Fetcher::new(policy, clients, options)));
        Ok(Arc::new(Self { fetcher, search: search.map(|search| Arc::new(search) as Arc<dyn Search>) }))
    }

    /// The web access of one job within its grants; it caches the pages that the job has read. There are pages only if
    /// `allow` names any host, and a search only if there is a provider.
    pub fn for_job(&self, granted: &Granted) -> Web {
        let hosts = granted.hosts.as_ref().filter(|hosts| hosts.any());
        let pages = |(fetcher, hosts): (&Arc<Fetcher>, &MemberHosts)| -> Arc<dyn Fetch> {
            Arc::new(Pages {
                fetcher: fetcher.clone(),
                hosts: hosts.clone(),
                cache: Cache::default(),
                reads: Semaphore::new(MAX_READS_OF_A_JOB),
                conversions: Semaphore::new(MAX_CONVERSIONS_OF_A_JOB),
            })
        };
        Web {
            search: self.search.clone().filter(|_| granted.search),
            fetch: self.fetcher.as_ref().zip(hosts).map(pages),
        }
    }
}

/// The web access that a member is granted within the operator's policy.
#[derive(Clone, Debug)]
pub struct Granted {
    /// The hosts whose pages it may read; none without a value.
    pub hosts: Option<MemberHosts>,
    /// Whether it may use the search provider.
    pub search: bool,
}

impl Granted {
    /// Everything that the operator allows.
    pub fn all() -> Self {
        Self { hosts: Some(MemberHosts::default()), search: true }
    }
}

/// The pages of one job.
struct Pages {
    fetcher: Arc<Fetcher>,
    hosts: MemberHosts,
    cache: Cache,
    reads: Semaphore,
    conversions: Semaphore,
}

#[async_trait]
impl Fetch for Pages {
    async fn fetch(&self, url: &str) -> Result<String, ToolError> {
        let url = policy::parse(url)?;
        if let Some(text) = self.cache.get(url.as_str()) {
            return Ok(text);
        }
        let read = async {
            let _turn = self.reads.acquire().await.map_err(|error| ToolError::Unavailable(error.to_string()))?;
            self.fetcher.page(url.clone(), &self.hosts, &self.conversions).await
        };
        let text = read.await.inspect_err(|error| {
            if let ToolError::NotGranted(why) = error {
                tracing::warn!("a page was not read: {why}");
            }
        })?;
        self.cache.put(url.as_str(), &text);
        Ok(text)
    }
}
