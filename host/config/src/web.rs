//! `[web]`: what of the web sessions and components may reach.

use std::path::{Path, PathBuf};

use guild_web::{SearchOptions, WebOptions};
use serde::Deserialize;
use toml::Spanned;

use super::value::{Wrong, above_zero, key_source};

/// What of the web sessions and components may reach. Without this table, nothing.
#[derive(Deserialize)]
pub(crate) struct WrittenWeb {
    /// Hosts that may be reached: `example.org`, `*.example.org`, or `*` for all, each with a port if wanted. Default: `[]`.
    allow: Option<Vec<String>>,
    /// Hosts that may not be reached, whatever `allow` says. Default: `[]`.
    deny: Option<Vec<String>>,
    /// Hosts that may be at private or loopback addresses. They have to be allowed too. Default: `[]`.
    private: Option<Vec<String>>,
    /// Whether `robots.txt` is respected. Default: `true`.
    robots: Option<bool>,
    /// Size of a page after decompression; a larger one is refused. Default: `4194304`.
    page_bytes: Option<Spanned<u64>>,
    /// Time for a page, to its last byte. Default: `30`.
    page_seconds: Option<Spanned<u32>>,
    search: Option<Spanned<WrittenSearch>>,
}

/// The provider of WebSearch. It is asked whatever `allow` and `private` say.
#[derive(Deserialize)]
pub(crate) struct WrittenSearch {
    /// `"searxng"` or `"brave"`.
    provider: Spanned<String>,
    /// Its address. `"searxng"` needs it.
    url: Option<String>,
    /// The environment variable that has the key. `"brave"` needs this or `key_file`.
    key_env: Option<Spanned<String>>,
    /// The file that has the key, in place of `key_env`.
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
            Err(Wrong::at(span, "web.search: the provider \"searxng\" takes no key; leave it out"))
        }
        ("brave", url, Some(key)) => Ok(SearchOptions::Brave { url, key }),
        ("brave", _, None) => Err(Wrong::at(
            span,
            "web.search: the provider \"brave\" needs a key: name the variable that has it with `key_env`, or a file \
             with `key_file`",
        )),
        (other, ..) => {
            let why = format!("web.search.provider: {other:?} is no search provider; there are searxng, brave");
            Err(Wrong::at(provider.span(), why))
        }
    }
}
