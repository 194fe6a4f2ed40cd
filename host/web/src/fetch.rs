//! Reads a page within bounds, with the network policy and `robots.txt` applied at each redirect.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use guild_config::WebOptions;
use guild_session::tools::ToolError;
use reqwest::{
    Response, StatusCode,
    header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, LOCATION},
};
use tokio::{sync::Semaphore, time};
use url::Url;

use crate::{
    client::{Clients, body, failed, is_deflated},
    page::{self, PageHead, essence, is_readable},
    policy::{MemberHosts, Policy, normal, shown},
    robots::{self, RobotsCache, Rules},
};

/// The maximum number of redirects.
const MAX_REDIRECTS: usize = 10;
/// The number of pages that are read concurrently; further ones wait.
const MAX_READS: usize = 64;
/// The content types that are requested.
const ACCEPTED: &str = "text/html, application/xhtml+xml, text/markdown, text/plain, application/json;q=0.9, */*;q=0.5";

/// Reads pages for all jobs.
pub(crate) struct Fetcher {
    policy: Policy,
    clients: Arc<Clients>,
    page_bytes: u64,
    page_time: Duration,
    /// The rules of hosts, if `robots.txt` is honoured.
    robots: Option<RobotsCache>,
    reads: Semaphore,
    /// Limits the child processes that convert pages to two for each processor.
    conversions: Semaphore,
}

impl Fetcher {
    /// A fetcher with these options; `policy` decides which hosts it may read.
    pub(crate) fn new(policy: Policy, clients: Arc<Clients>, options: &WebOptions) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            policy,
            clients,
            page_bytes: options.page_bytes,
            page_time: options.page_time(),
            robots: options.robots.then(RobotsCache::default),
            reads: Semaphore::new(MAX_READS),
            conversions: Semaphore::new(2 * processors),
        }
    }

    /// Returns a page's text, for a member that may read these hosts. The timeout starts when the page's turn comes;
    /// its conversion to text also waits for a turn among the pages of its job.
    pub(crate) async fn page(
        &self,
        url: Url,
        hosts: &MemberHosts,
        conversions: &Semaphore,
    ) -> Result<String, ToolError> {
        let _turn = self.reads.acquire().await.map_err(|_| closed())?;
        let until = Instant::now() + self.page_time;
        let host = shown(&url);
        let read = async {
            let (head, body) = self.answer(url, hosts).await?;
            let _turn_of_job = conversions.acquire().await.map_err(|_| closed())?;
            let _turn = self.conversions.acquire().await.map_err(|_| closed())?;
            let text = page::read_confined(&head, body, self.page_bytes).await;
            text.map_err(|why| ToolError::Unavailable(format!("the page at {} is not read: {why}", shown(&head.url))))
        };
        time::timeout_at(until.into(), read).await.unwrap_or_else(|_| {
            Err(ToolError::Unavailable(format!(
                "{host} did not answer in full within {} s ([web] page_seconds)",
                self.page_time.as_secs()
            )))
        })
    }

    async fn answer(&self, url: Url, hosts: &MemberHosts) -> Result<(PageHead, Vec<u8>), ToolError> {
        let asked = url.clone();
        let (url, response) = self.follow(url, hosts, self.robots.as_ref()).await?;
        let status = response.status();
        if !status.is_success() {
            return Err(ToolError::Unavailable(format!("{url} was answered with {status}")));
        }
        let header =
            |name| response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let content_type = header(CONTENT_TYPE);
        if !is_readable(content_type.as_deref()) {
            return Err(ToolError::Unavailable(format!(
                "{url} is {}, which is not read: only HTML, text, JSON, XML and Markdown are",
                essence(content_type.as_deref().unwrap_or_default())
            )));
        }
        // A decompressed body no longer has this header.
        let compressed = header(CONTENT_ENCODING).filter(|encoding| encoding != "identity" && !is_deflated(&response));
        if let Some(encoding) = compressed {
            return Err(ToolError::Unavailable(format!("{url} is compressed as {encoding:?}, which is not read")));
        }
        let too_large = || {
            ToolError::OverLimit(format!(
                "the page at {url} is larger than {} bytes, after decompression ([web] page_bytes)",
                self.page_bytes
            ))
        };
        if response.content_length().is_some_and(|length| length > self.page_bytes) {
            return Err(too_large());
        }
        match body(response, self.page_bytes).await {
            Ok((body, true)) => Ok((PageHead { redirected: url != asked, url, content_type }, body)),
            Ok((_, false)) => Err(too_large()),
            Err(error) => Err(error),
        }
    }

    /// Follows redirects, and returns the first other response with its address. The policy, `hosts` and `robots` are
    /// applied at each step.
    async fn follow(
        &self,
        mut url: Url,
        hosts: &MemberHosts,
        robots: Option<&RobotsCache>,
    ) -> Result<(Url, Response), ToolError> {
        for _ in 0..=MAX_REDIRECTS {
            let reach = self.policy.check(&url)?;
            hosts.check(&url)?;
            if let Some(robots) = robots {
                self.ask_robots(&url, hosts, robots).await?;
            }
            let request = self.clients.get(url.clone(), reach)?.header(ACCEPT, ACCEPTED);
            let response = request.send().await.map_err(|error| failed(&url, &error))?;
            match target(&url, response.status(), response.headers().get(LOCATION))? {
                Some(next) => url = next,
                None => return Ok((url, response)),
            }
        }
        Err(ToolError::Unavailable(format!("{} redirects more than {MAX_REDIRECTS} times", shown(&url))))
    }

    /// Refuses a page that the host's `robots.txt` disallows.
    async fn ask_robots(&self, url: &Url, hosts: &MemberHosts, robots: &RobotsCache) -> Result<(), ToolError> {
        let host = url.origin().ascii_serialization();
        let rules = robots.of(&host);
        let rules = rules.get_or_try_init(|| Box::pin(self.read_robots(url, hosts))).await?;
        let path = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        if rules.allow(&path) {
            return Ok(());
        }
        Err(ToolError::NotGranted(format!(
            "robots.txt of the host {} does not let `{}` read {}; in guild.toml, `[web] robots = false` would",
            shown(url),
            robots::AGENT,
            url.path()
        )))
    }

    /// The rules of RFC 9309: without a `robots.txt` all pages may be read; if its existence is unknown, none.
    async fn read_robots(&self, page: &Url, hosts: &MemberHosts) -> Result<Rules, ToolError> {
        let mut url = page.clone();
        url.set_path("/robots.txt");
        url.set_query(None);
        let unknown = |why: String| {
            ToolError::Unavailable(format!(
                "{} is not read, since its robots.txt could not be: {why} ([web] robots)",
                shown(page)
            ))
        };
        let (_, response) = self.follow(url, hosts, None).await?;
        let status = response.status();
        if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
            return Ok(Rules::default());
        }
        if !status.is_success() {
            return Err(unknown(format!("it was answered with {status}")));
        }
        let (file, _) = body(response, robots::MAX_FILE_BYTES as u64).await?;
        Ok(Rules::parse(&file))
    }
}

/// The target of a redirect; none if the response is no redirect.
fn target(url: &Url, status: StatusCode, location: Option<&HeaderValue>) -> Result<Option<Url>, ToolError> {
    let redirects = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = location.filter(|_| redirects) else { return Ok(None) };
    let refused =
        |why: String| ToolError::Unavailable(format!("{} redirects to where it is not followed: {why}", shown(url)));
    let location = String::from_utf8_lossy(location.as_bytes());
    let next = url.join(&location).map_err(|error| refused(format!("{location:?} is no address ({error})")))?;
    let next = normal(next).map_err(|error| refused(error.to_string()))?;
    if url.scheme() == "https" && next.scheme() == "http" {
        return Err(refused(format!("{next} is not encrypted; ask for it itself, if it is meant")));
    }
    Ok(Some(next))
}

fn closed() -> ToolError {
    ToolError::Unavailable("the host is stopping".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(from: &str, to: &str) -> Result<Option<String>, ToolError> {
        let location = HeaderValue::from_str(to).unwrap();
        let next = target(&Url::parse(from).unwrap(), StatusCode::FOUND, Some(&location))?;
        Ok(next.map(String::from))
    }

    #[test]
    fn a_redirect_leads_to_an_address_of_the_web_and_never_out_of_encryption() {
        let followed = |from, to| redirect(from, to).unwrap().unwrap();
        assert_eq!(followed("https://example.org/a/b", "c?d#e"), "https://example.org/a/c?d");
        assert_eq!(followed("http://example.org/a", "//Other.org./"), "http://other.org/");
        assert_eq!(followed("http://example.org/a", "https://example.org/a"), "https://example.org/a");
        for to in
            ["http://example.org/", "ftp://example.org/", "file:///etc/passwd", "https://a:b@example.org/", "http://"]
        {
            assert!(matches!(redirect("https://example.org/", to), Err(ToolError::Unavailable(_))), "{to}");
        }
        let location = HeaderValue::from_static("/elsewhere");
        let url = Url::parse("https://example.org/").unwrap();
        assert_eq!(target(&url, StatusCode::OK, Some(&location)), Ok(None));
        assert_eq!(target(&url, StatusCode::NOT_MODIFIED, Some(&location)), Ok(None));
        assert_eq!(target(&url, StatusCode::FOUND, None), Ok(None));
    }
}
