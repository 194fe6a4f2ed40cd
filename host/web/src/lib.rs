//! The web, as far as the operator opened it: the one place through which a session or a component reaches it.
//!
//! [`Internet`] is made once for a host and gives each job its part, [`guild_session::web::Web`]. The network policy
//! decides what may be reached; the top of `policy.rs` has the whole rule. A page comes back as text, its main part as
//! Markdown; a search asks the provider that the operator named. Everything has a bound: the bytes of a page after
//! decompression, the seconds for all of it, redirects, pages at a time, and what is kept. Pages and the
//! answers of searches are parsed in a child process, whose time and memory are bounded.

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

/// A job reads at most so many pages at a time; others wait.
const MAX_READS_OF_A_JOB: usize = 8;
/// Pages of a job that are made into text at a time: each may keep a processor busy.
const MAX_CONVERSIONS_OF_A_JOB: usize = 1;
/// The web of a host.
pub struct Internet {
    fetcher: Option<Arc<Fetcher>>,
    search: Option<Arc<dyn Search>>,
}

impl Internet {
    /// The web as `options` open it.
    ///
    /// # Errors
    /// A sentence that names the key of guild.toml whose value is not acceptable, or the key of a provider that is
    /// not there.
    pub fn new(options: &WebOptions) -> Result<Arc<Self>, String> {
        Self::with_resolver(options, Arc::new(SystemResolver))
    }

    /// [`Internet::new`] with another way to find the addresses of names.
    ///
    /// # Errors
    /// As there.
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

    /// The web of one job, as far as `granted` goes: it keeps the pages that the job has read. Pages are read only where
    /// `allow` names any host, and searched for only where there is a provider.
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

/// What of the web a member is granted, out of what the operator opened.
#[derive(Clone, Debug)]
pub struct Granted {
    /// The hosts whose pages it reads; none at all where there is nothing.
    pub hosts: Option<MemberHosts>,
    /// Whether it asks the search provider.
    pub search: bool,
}

impl Granted {
    /// All that the operator opened.
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
