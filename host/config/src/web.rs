//! Reads `[web]`: the hosts that sessions and components may reach, and the search provider.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use guild_contract::secret::may_carry_key;
use serde::Deserialize;
use toml::Spanned;
use url::Url;

use crate::{host::pattern::HostPattern, key_source::KeySource};

use super::value::{Wrong, above_zero, key_source};

/// The largest `page_bytes`: a page is kept in memory while it is read.
const MAX_PAGE_BYTES: u64 = 64 * 1024 * 1024;
/// The largest `page_seconds`.
const MAX_PAGE_SECONDS: u32 = 600;

/// `[web]` of guild.toml. By default no page may be read, and there is no search provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebOptions {
    /// Patterns of hosts that may be read: a host, `*.` and a domain, or `*`, each with an optional `:port`.
    pub allow: Vec<String>,
    /// Patterns of hosts that may not be read, even if `allow` names them.
    pub deny: Vec<String>,
    /// Hosts, with an optional `:port`, that may be at private or loopback addresses. They have to be allowed too.
    pub private: Vec<String>,
    /// Whether pages that a host's `robots.txt` forbids are refused.
    pub robots: bool,
    /// The size of the largest page after decompression: 1 byte to 64 MiB. The page's text is at most as long.
    pub page_bytes: u64,
    /// The seconds for a page or a search: 1 to 600.
    pub page_seconds: u32,
    /// The search provider.
    pub search: Option<SearchOptions>,
}

impl Default for WebOptions {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            private: Vec::new(),
            robots: true,
            page_bytes: 4 * 1024 * 1024,
            page_seconds: 30,
            search: None,
        }
    }
}

impl WebOptions {
    /// Checks the options, without reading a key.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the key of guild.toml whose value is not acceptable.
    pub fn check(&self) -> Result<(), String> {
        self.patterns()?;
        if !(1..=MAX_PAGE_BYTES).contains(&self.page_bytes) {
            return Err(format!("[web] page_bytes: it has to be 1 to {MAX_PAGE_BYTES}, not {}", self.page_bytes));
        }
        if !(1..=MAX_PAGE_SECONDS).contains(&self.page_seconds) {
            return Err(format!("[web] page_seconds: it has to be 1 to {MAX_PAGE_SECONDS}, not {}", self.page_seconds));
        }
        self.search.as_ref().map_or(Ok(()), |search| search.endpoint().map(drop))
    }

    /// The patterns of `allow`, `deny` and `private`.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the key of guild.toml and the pattern.
    pub fn patterns(&self) -> Result<WebPatterns, String> {
        let read = |key: &str, patterns: &[String]| -> Result<Vec<HostPattern>, String> {
            patterns.iter().map(|text| HostPattern::parse(text).map_err(|why| format!("[web] {key}: {why}"))).collect()
        };
        let private = read("private", &self.private)?;
        if let Some(pattern) = private.iter().find(|pattern| !pattern.is_one_host()) {
            return Err(format!(
                "[web] private: {:?} names more than one host; name each host that may be private",
                pattern.as_str()
            ));
        }
        Ok(WebPatterns { allow: read("allow", &self.allow)?, deny: read("deny", &self.deny)?, private })
    }

    /// The time for one page, or one search.
    pub fn page_time(&self) -> Duration {
        Duration::from_secs(self.page_seconds.into())
    }
}

/// The parsed patterns of [`WebOptions`].
#[derive(Clone, Debug)]
pub struct WebPatterns {
    /// The patterns of `allow`.
    pub allow: Vec<HostPattern>,
    /// The patterns of `deny`.
    pub deny: Vec<HostPattern>,
    /// The patterns of `private`; each names one host.
    pub private: Vec<HostPattern>,
}

/// `[web.search]` of guild.toml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchOptions {
    /// A SearXNG instance whose settings let it answer in JSON.
    SearXng {
        /// The instance's address, with or without `/search`. It may be private.
        url: String,
    },
    /// Brave Search.
    Brave {
        /// The address, if it is not Brave's own.
        url: Option<String>,
        /// The source of the key.
        key: KeySource,
    },
}

/// Brave's own address.
const BRAVE_ADDRESS: &str = "https://api.search.brave.com/res/v1/web/search";

impl SearchOptions {
    /// The address of the provider.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the key of guild.toml.
    pub fn endpoint(&self) -> Result<Url, String> {
        match self {
            SearchOptions::SearXng { url } => {
                let mut url = provider_url(url)?;
                if !url.path().ends_with("/search") {
                    url.set_path(&format!("{}/search", url.path().trim_end_matches('/')));
                }
                Ok(url)
            }
            SearchOptions::Brave { url, .. } => {
                let url = provider_url(url.as_deref().unwrap_or(BRAVE_ADDRESS))?;
                if !may_carry_key(url.scheme(), url.host_str().unwrap_or_default()) {
                    let host = url.host_str().unwrap_or_default();
                    return Err(format!("[web.search] url: the key would travel unencrypted to {host}; use https"));
                }
                Ok(url)
            }
        }
    }
}

fn provider_url(text: &str) -> Result<Url, String> {
    let invalid = |why: &str| format!("[web.search] url: {why}");
    let url = Url::parse(text).map_err(|error| invalid(&format!("{text:?} is not an address: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(invalid("it has to be an http or https address"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err(invalid("it has to be an address without user name, password, query and fragment"));
    }
    Ok(url)
}

/// The part of the web that sessions and components may reach. Without this table, the web is closed.
#[derive(Deserialize)]
pub(crate) struct WrittenWeb {
    /// Hosts that may be reached: `example.org`, `*.example.org`, or `*` for all hosts, each optionally with a port.
    /// Default: `[]`.
    allow: Option<Vec<String>>,
    /// Hosts that may not be reached. `deny` takes precedence over `allow`. Default: `[]`.
    deny: Option<Vec<String>>,
    /// Hosts that may be at private or loopback addresses. They have to be allowed too. Default: `[]`.
    private: Option<Vec<String>>,
    /// Whether `robots.txt` is respected. Default: `true`.
    robots: Option<bool>,
    /// Largest size of a page after decompression; a larger page is refused. Default: `4194304`.
    page_bytes: Option<Spanned<u64>>,
    /// Longest time for a page, to its last byte. Default: `30`.
    page_seconds: Option<Spanned<u32>>,
    search: Option<Spanned<WrittenSearch>>,
}

/// The provider of WebSearch. The host may call it regardless of `allow` and `private`.
#[derive(Deserialize)]
pub(crate) struct WrittenSearch {
    /// `"searxng"` or `"brave"`.
    provider: Spanned<String>,
    /// The provider's address. `"searxng"` needs it.
    url: Option<String>,
    /// The environment variable with the key. `"brave"` needs this or `key_file`.
    key_env: Option<Spanned<String>>,
    /// A file with the key, in place of `key_env`.
    key_file: Option<Spanned<PathBuf>>,
}

impl WrittenWeb {
    pub(crate) fn read(web: Spanned<Self>, base: &Path) -> Result<WebOptions, Wrong> {
        let span = web.span();
        let web = web.into_inner();
        let default = WebOptions::default();
        let options = WebOptions {
            allow: web.allow.unwrap_or(default.allow),
            deny: web.deny.unwrap_or(default.deny),
            private: web.private.unwrap_or(default.private),
            robots: web.robots.unwrap_or(default.robots),
            page_bytes: above_zero("web.page_bytes", web.page_bytes, default.page_bytes)?,
            page_seconds: above_zero("web.page_seconds", web.page_seconds, default.page_seconds)?,
            search: web.search.map(|search| read_search(search, base)).transpose()?,
        };
        options.check().map_err(|why| Wrong::at(span, why))?;
        Ok(options)
    }
}

fn read_search(search: Spanned<WrittenSearch>, base: &Path) -> Result<SearchOptions, Wrong> {
    let span = search.span();
    let WrittenSearch { provider, url, key_env, key_file } = search.into_inner();
    let key = key_source("web.search", key_env, key_file, base)?;
    match (provider.get_ref().as_str(), url, key) {
        ("searxng", Some(url), None) => Ok(SearchOptions::SearXng { url }),
        ("searxng", None, _) => {
            Err(Wrong::at(span, "web.search: the provider \"searxng\" is a server of your own: name it with `url`"))
        }
        ("searxng", Some(_), Some(_)) => {
            Err(Wrong::at(span, "web.search: the provider \"searxng\" takes no key; remove it"))
        }
        ("brave", url, Some(key)) => Ok(SearchOptions::Brave { url, key }),
        ("brave", _, None) => Err(Wrong::at(
            span,
            "web.search: the provider \"brave\" needs a key: name the variable with the key in `key_env`, or a file \
             in `key_file`",
        )),
        (other, ..) => {
            let why =
                format!("web.search.provider: {other:?} is not a search provider; the providers are searxng, brave");
            Err(Wrong::at(provider.span(), why))
        }
    }
}
