//! Searches the web through a provider that the operator configured.
//!
//! The operator trusts the provider: it may have a private address, and the patterns of `[web]` do not apply to it. But
//! its redirects are not followed; they are errors.

mod brave;
mod searxng;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use dom_query::Document;
use guild_config::SearchOptions;
use guild_confine::{Bounds, Task};
use guild_session::{
    tools::ToolError,
    web::{Hit, Search},
};
use reqwest::{RequestBuilder, StatusCode, header::ACCEPT};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{sync::Semaphore, time};
use url::Url;

use crate::{
    client::{Clients, body, failed},
    policy::{Reach, shown},
};

/// The maximum number of hits.
const MAX_HITS: usize = 20;
/// The maximum length of a query, in characters.
const MAX_QUERY_CHARS: usize = 400;
/// The number of concurrent searches; further ones wait.
const MAX_SEARCHES: usize = 16;
/// The maximum size of a response.
const MAX_ANSWER_BYTES: u64 = 4 * 1024 * 1024;
/// The maximum lengths of titles and texts of hits, in characters.
const MAX_TITLE_CHARS: usize = 200;
const MAX_SNIPPET_CHARS: usize = 600;
/// The maximum length of a hit's address, in bytes; a hit with a longer one is left out.
const MAX_URL_BYTES: usize = 2048;

/// The limits of a child process that parses a response.
const BOUNDS: Bounds = Bounds { seconds: 10, memory_bytes: 512 << 20 };

/// Finds the hits in a provider's response. The request is the [`Wire`], then the response's bytes; the reply is the
/// hits, or the reason for their absence.
pub static SEARCH_TASK: Task = Task { name: "search", run };

/// The format of a response.
#[derive(Clone, Copy, Serialize, Deserialize)]
enum Wire {
    SearXng,
    Brave,
}

fn run(request: &[u8]) -> Vec<u8> {
    let hits = || -> Result<Vec<Hit>, String> {
        let (wire, body) = postcard::take_from_bytes(request).map_err(|error| error.to_string())?;
        let found = match wire {
            Wire::SearXng => searxng::found(body)?,
            Wire::Brave => brave::found(body)?,
        };
        Ok(found.into_iter().filter_map(tidy).take(MAX_HITS).collect())
    };
    postcard::to_allocvec(&hits()).unwrap_or_default()
}

/// Parses a provider's response as JSON.
fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("its answer is not what was expected: {error}"))
}

/// A configured provider.
pub(crate) struct Provider {
    options: SearchOptions,
    url: Url,
    clients: Arc<Clients>,
    time: Duration,
    searches: Semaphore,
}

impl Provider {
    /// The provider of `[web.search]`; the error names the key of guild.toml.
    pub(crate) fn new(options: &SearchOptions, clients: Arc<Clients>, time: Duration) -> Result<Self, String> {
        let url = options.endpoint()?;
        if let SearchOptions::Brave { key, .. } = options {
            key.read().map_err(|why| format!("[web.search] {why}"))?;
        }
        Ok(Self { options: options.clone(), url, clients, time, searches: Semaphore::new(MAX_SEARCHES) })
    }

    fn get(&self) -> Result<RequestBuilder, ToolError> {
        Ok(self.clients.get(self.url.clone(), Reach::Any)?.header(ACCEPT, "application/json"))
    }

    /// Sends a request to the provider, and returns the status and the body of the response.
    async fn ask(&self, request: RequestBuilder) -> Result<(StatusCode, Vec<u8>), ToolError> {
        let response = request.send().await.map_err(|error| failed(&self.url, &error))?;
        let status = response.status();
        if status.is_redirection() {
            return Err(
                self.unavailable("it redirects, which is not followed; name its final address in `[web.search] url`")
            );
        }
        match body(response, MAX_ANSWER_BYTES).await {
            Ok((body, true)) => Ok((status, body)),
            Ok((_, false)) => Err(self.unavailable(&format!("its answer is larger than {MAX_ANSWER_BYTES} bytes"))),
            Err(error) => Err(error),
        }
    }

    /// The hits in a response, which a child process parses.
    async fn hits(&self, wire: Wire, body: &[u8]) -> Result<Vec<Hit>, ToolError> {
        let failed = |error: postcard::Error| self.unavailable(&format!("its answer was not read: {error}"));
        let mut request = postcard::to_allocvec(&wire).map_err(failed)?;
        request.extend_from_slice(body);
        let hits = guild_confine::run(&SEARCH_TASK, BOUNDS, request).await;
        let hits = hits.map_err(|why| self.unavailable(&format!("its answer was not read: {why}")))?;
        let hits: Result<Vec<Hit>, String> = postcard::from_bytes(&hits).map_err(failed)?;
        hits.map_err(|why| self.unavailable(&why))
    }

    fn unavailable(&self, why: &str) -> ToolError {
        ToolError::Unavailable(format!("the search provider at {}: {why}", shown(&self.url)))
    }
}

#[async_trait]
impl Search for Provider {
    async fn search(&self, query: &str, limit: u32) -> Result<Vec<Hit>, ToolError> {
        let query = query.trim();
        if query.is_empty() || query.chars().count() > MAX_QUERY_CHARS {
            return Err(ToolError::InvalidInput(format!("a query has 1 to {MAX_QUERY_CHARS} characters")));
        }
        let limit = usize::try_from(limit).unwrap_or(MAX_HITS).min(MAX_HITS);
        if limit == 0 {
            return Ok(Vec::new());
        }
        let _turn = self.searches.acquire().await.map_err(|_| self.unavailable("the host is stopping"))?;
        let ask = async {
            match &self.options {
                SearchOptions::SearXng { .. } => self.searxng(query).await,
                SearchOptions::Brave { key, .. } => self.brave(key, query, limit).await,
            }
        };
        let found = time::timeout(self.time, ask).await.unwrap_or_else(|_| {
            Err(self.unavailable(&format!("it did not answer within {} s ([web] page_seconds)", self.time.as_secs())))
        })?;
        Ok(found.into_iter().take(limit).collect())
    }
}

/// Cleans a hit for a session: plain text within limits, and the address of a page.
fn tidy(hit: Hit) -> Option<Hit> {
    let url = Url::parse(&hit.url).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    let url = String::from(url);
    let title = plain(&hit.title, MAX_TITLE_CHARS);
    let title = if title.is_empty() { url.clone() } else { title };
    (url.len() <= MAX_URL_BYTES).then(|| Hit { title, snippet: plain(&hit.snippet, MAX_SNIPPET_CHARS), url })
}

/// Converts HTML to one line of plain text.
fn plain(html: &str, max_chars: usize) -> String {
    // Markup and entities need room, too, but within a limit.
    let html: String = html.chars().take(max_chars * 8).collect();
    let text = Document::fragment(html).text();
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default().trim_end()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_is_plain_text_within_bounds() {
        let hit = tidy(Hit {
            title: "<b>Wasm</b> &amp; you\n <script>alert(1)</script>".to_owned(),
            url: "https://Example.org/a b".to_owned(),
            snippet: format!("a &lt;b&gt; <strong>c</strong>\u{7}\t{}", "x".repeat(5000)),
        })
        .unwrap();
        assert!(hit.title.starts_with("Wasm & you") && !hit.title.contains('<'), "{}", hit.title);
        assert_eq!(hit.url, "https://example.org/a%20b");
        assert!(hit.snippet.starts_with("a <b> c xxx") && hit.snippet.ends_with('…'), "{}", hit.snippet);
        assert_eq!(hit.snippet.chars().count(), MAX_SNIPPET_CHARS + 1);
    }

    #[test]
    fn a_hit_that_is_no_page_is_left_out() {
        for url in ["", "magnet:?xt=x", "javascript:alert(1)", "/relative"] {
            let hit = Hit { title: String::new(), url: url.to_owned(), snippet: String::new() };
            assert_eq!(tidy(hit), None, "{url}");
        }
    }
}
