//! Sends HTTP requests, and reads bodies up to a maximum size.

use std::{
    error::Error,
    io::{self, Read},
    sync::{Arc, OnceLock},
    time::Duration,
};

use flate2::read::{DeflateDecoder, ZlibDecoder};
use guild_session::tools::ToolError;
use reqwest::{
    Client, RequestBuilder, Response,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderValue},
    redirect,
};
use tokio::task::spawn_blocking;
use url::Url;

use crate::{
    policy::{Reach, private_address, shown},
    resolver::{NotPublic, Resolver, WithinReach},
    robots::AGENT,
};

/// The time after which an idle connection is closed.
const IDLE: Duration = Duration::from_secs(10);
/// The accepted compressions. The client decompresses all but `deflate`, of which it knows only one of two forms.
const ACCEPTED_ENCODINGS: &str = "gzip, deflate";

/// The HTTP clients. They differ in the addresses that they may connect to.
pub(crate) struct Clients {
    resolver: Arc<dyn Resolver>,
    public: Made,
    any: Made,
}

/// A client that is made for its first request: reading the system's certificates is slow, and a host may never need
/// them.
type Made = OnceLock<Result<Client, String>>;

impl Clients {
    pub(crate) fn new(resolver: Arc<dyn Resolver>) -> Self {
        Self { resolver, public: Made::new(), any: Made::new() }
    }

    /// A request through the client that connects to the addresses in `reach`.
    pub(crate) fn get(&self, url: Url, reach: Reach) -> Result<RequestBuilder, ToolError> {
        let client = match reach {
            Reach::Public => &self.public,
            Reach::Any => &self.any,
        };
        let client = client.get_or_init(|| {
            let client = Client::builder()
                .user_agent(AGENT)
                .default_headers(HeaderMap::from_iter([(
                    ACCEPT_ENCODING,
                    HeaderValue::from_static(ACCEPTED_ENCODINGS),
                )]))
                .no_deflate()
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

/// The error for a failed request to `url`.
pub(crate) fn failed(url: &Url, error: &reqwest::Error) -> ToolError {
    if let Some(refused) = NotPublic::cause_of(error) {
        return private_address(url, &refused.to_string());
    }
    let what = if error.is_connect() { "could not be reached" } else { "broke off" };
    ToolError::Unavailable(format!("{} {what}: {}", shown(url), cause(error)))
}

/// The innermost cause, since the outer ones carry no information.
fn cause(error: &reqwest::Error) -> String {
    let causes = std::iter::successors(Some(error as &(dyn Error + 'static)), |error| (*error).source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

/// Whether a response is compressed as `deflate`, which [`body`] decompresses.
pub(crate) fn is_deflated(response: &Response) -> bool {
    response
        .headers()
        .get(CONTENT_ENCODING)
        .is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"deflate"))
}

/// Reads a body of at most `max_bytes` after decompression, and returns whether it is complete.
pub(crate) async fn body(mut response: Response, max_bytes: u64) -> Result<(Vec<u8>, bool), ToolError> {
    let (url, is_deflated) = (response.url().clone(), is_deflated(&response));
    let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failed(&url, &error))? {
        let room = max_bytes.saturating_sub(body.len());
        if let Some(fits) = chunk.get(..room).filter(|_| chunk.len() > room) {
            body.extend_from_slice(fits);
            return Ok((body, false));
        }
        body.extend_from_slice(&chunk);
    }
    if !is_deflated {
        return Ok((body, true));
    }
    let inflated = spawn_blocking(move || inflate(&body, max_bytes)).await;
    let inflated = inflated.unwrap_or_else(|error| Err(io::Error::other(error)));
    inflated.map_err(|why| ToolError::Unavailable(format!("{} could not be decompressed: {why}", shown(&url))))
}

/// Decompresses `deflate`. In HTTP that is zlib's format, but some servers send the raw stream.
fn inflate(body: &[u8], max_bytes: usize) -> io::Result<(Vec<u8>, bool)> {
    let most = u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1);
    let mut inflated = Vec::new();
    if ZlibDecoder::new(body).take(most).read_to_end(&mut inflated).is_err() {
        inflated.clear();
        DeflateDecoder::new(body).take(most).read_to_end(&mut inflated)?;
    }
    let whole = inflated.len() <= max_bytes;
    inflated.truncate(max_bytes);
    Ok((inflated, whole))
}
