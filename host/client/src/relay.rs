//! Relays MCP messages to a host and back, unchanged.

use std::time::Duration;

use ct_codecs::{Base64, Encoder as _};
use futures::{StreamExt as _, stream::BoxStream};
use guild_contract::MemberKey;
use reqwest::{
    Method, Response, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use sse_stream::Sse;

use crate::{
    Error, Options, connect,
    endpoint::{endpoint, is_endpoint},
};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The maximum size of a message.
const MESSAGE_BYTES: usize = 256 * 1024 * 1024;

/// Relays MCP messages to an endpoint.
#[derive(Clone, Debug)]
pub struct Relay {
    http: reqwest::Client,
    endpoint: Url,
}

/// The headers of a message. Empty for a message that opens a session, or needs none.
#[derive(Clone, Debug, Default)]
pub struct Head(HeaderMap);

impl Head {
    /// The headers of a message in a session with that protocol version.
    pub fn of_session(id: &str, version: &str) -> Self {
        Self::of([(SESSION, id), (VERSION, version)])
    }

    /// The headers of a self-describing message, as in protocol version 2026-07-28. `name` is the tool, prompt,
    /// resource or task in the message.
    pub fn of_message(version: &str, method: &str, name: Option<&str>) -> Self {
        let mut head = Self::of([(VERSION, version), (METHOD, method)]);
        head.0.extend(name.and_then(|name| Some((NAME, HeaderValue::try_from(encode(name)).ok()?))));
        head
    }

    /// Values that are not valid in a header are left out.
    fn of(headers: [(HeaderName, &str); 2]) -> Self {
        let valid = headers.into_iter().filter_map(|(name, value)| Some((name, HeaderValue::try_from(value).ok()?)));
        Self(valid.collect())
    }

    /// Whether there are no headers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Encodes a value for a header.
fn encode(value: &str) -> String {
    let is_plain = value.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) && value.trim_matches([' ', '\t']) == value;
    if is_plain && !value.starts_with("=?base64?") {
        return value.to_owned();
    }
    Base64::encode_to_string(value).map(|encoded| format!("=?base64?{encoded}?=")).unwrap_or_default()
}

/// The response to a message.
pub struct RelayResponse {
    /// The HTTP status.
    pub status: u16,
    /// The id of the session that was opened, if any.
    pub session: Option<String>,
    endpoint: Url,
    messages: Messages,
}

enum Messages {
    None,
    One(Response),
    Many(BoxStream<'static, Result<Sse, sse_stream::Error>>),
}

impl Relay {
    /// A relay to the endpoint at `url`. If `url` only names a host, it leads to the endpoint with everything that the
    /// host offers, or everything of `member`.
    ///
    /// # Errors
    /// See [`WorkerHandle::with_options`](crate::WorkerHandle::with_options).
    pub fn new(url: &str, member: Option<&MemberKey>, options: &Options) -> Result<Self, Error> {
        let mut endpoint = endpoint(url, None)?;
        match member {
            Some(key) if endpoint.path() == "/mcp" => endpoint.set_path(&format!("/all/{key}/mcp")),
            Some(key) => return Err(is_endpoint(url, key)),
            None => {}
        }
        let http = connect::client(&endpoint, options, HeaderMap::new(), None)?;
        Ok(Self { http, endpoint })
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &Url {
        &self.endpoint
    }

    /// Sends a message with the headers `head`.
    ///
    /// # Errors
    /// If the host could not be reached, or the connection broke.
    pub async fn send(&self, message: String, head: &Head) -> Result<RelayResponse, Error> {
        self.ask(Method::POST, head, Some(message)).await
    }

    /// Opens the stream of the host's own messages in a session.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn listen(&self, head: &Head) -> Result<RelayResponse, Error> {
        self.ask(Method::GET, head, None).await
    }

    /// Ends a session.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn end(&self, head: &Head) -> Result<(), Error> {
        self.ask(Method::DELETE, head, None).await.map(drop)
    }

    async fn ask(&self, method: Method, head: &Head, body: Option<String>) -> Result<RelayResponse, Error> {
        let accept = if body.is_some() { "application/json, text/event-stream" } else { "text/event-stream" };
        let mut request =
            self.http.request(method, self.endpoint.clone()).header(ACCEPT, accept).headers(head.0.clone());
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let response = request.send().await.map_err(|e| connect::failed(e, &self.endpoint, Duration::ZERO))?;
        let header = |name: HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok());
        let kind = header(CONTENT_TYPE).and_then(|kind| kind.split(';').next()).unwrap_or_default().trim().to_owned();
        let status = response.status();
        let session = header(SESSION).map(str::to_owned);
        let messages = if status.as_u16() == 202 {
            Messages::None
        } else if kind.eq_ignore_ascii_case("text/event-stream") {
            Messages::Many(connect::sse(response, MESSAGE_BYTES))
        } else {
            Messages::One(response)
        };
        Ok(RelayResponse { status: status.as_u16(), session, endpoint: self.endpoint.clone(), messages })
    }
}

impl RelayResponse {
    /// The next message; `None` after the last. It may be a text that is not JSON, with the reason of a refusal.
    ///
    /// # Errors
    /// If the connection broke.
    pub async fn next(&mut self) -> Result<Option<String>, Error> {
        match &mut self.messages {
            Messages::None => Ok(None),
            Messages::One(response) => {
                let text = connect::read_all(&self.endpoint, response, MESSAGE_BYTES, Duration::ZERO).await?;
                self.messages = Messages::None;
                Ok(Some(String::from_utf8_lossy(&text).into_owned()))
            }
            Messages::Many(events) => {
                while let Some(event) = events.next().await {
                    let broken =
                        |e: sse_stream::Error| Error::Broken { url: self.endpoint.clone(), reason: e.to_string() };
                    // An event without data is a keep-alive.
                    if let Some(text) = event.map_err(broken)?.data.filter(|data| !data.is_empty()) {
                        return Ok(Some(text));
                    }
                }
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_message_is_encoded_for_its_header() {
        let name = |name| Head::of_message("2026-07-28", "tools/call", Some(name)).0.remove(NAME).unwrap();
        assert_eq!(name("count"), "count");
        assert_eq!(name("z\u{e4}hle"), "=?base64?esOkaGxl?=");
        assert_eq!(name("=?base64?"), "=?base64?PT9iYXNlNjQ/?=");
        let head = Head::of_message("2026-07-28", "tools/list", None).0;
        assert_eq!(
            (head.len(), &head[VERSION], &head[METHOD]),
            (2, &"2026-07-28".parse().unwrap(), &"tools/list".parse().unwrap())
        );
    }
}
