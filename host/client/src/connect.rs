//! Connects to a host, and reads its responses and errors.

use std::{borrow::Cow, io, time::Duration};

use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use guild_contract::secret::{Secret, may_carry_key};
use reqwest::{
    Certificate, ClientBuilder, RequestBuilder, Response, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue},
    redirect::Policy,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use sse_stream::{Sse, SseStream};

use crate::Error;

/// The default timeout of a call. Guild Hall's own client has the same.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum size of an event, which can contain a whole result.
pub(crate) const EVENT_BYTES: usize = 16 * 1024 * 1024;
/// How long a stream may be silent. A host sends a keep-alive more often.
pub(crate) const SILENCE: Duration = Duration::from_secs(45);
/// The first pause between two attempts.
pub(crate) const FIRST: Duration = Duration::from_millis(50);
/// The longest pause between two attempts.
const SLOWEST: Duration = Duration::from_secs(2);
/// How much is read of the body of an HTTP error.
const REFUSAL_BYTES: usize = 4 * 1024;
/// The timeout for connecting.
const CONNECT: Duration = Duration::from_secs(10);

/// How to reach a host.
#[derive(Clone, Debug)]
pub struct Options {
    /// The token, if the host requires one.
    pub token: Option<Secret>,
    /// The certificate authorities to trust instead of the system's.
    pub authorities: Option<Authorities>,
    /// The timeout of a call; 30 s by default. A host answers a dispatch within 20 s. For calls of tools, only the host
    /// sets a time limit.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { token: None, authorities: None, timeout: TIMEOUT }
    }
}

/// Certificate authorities.
#[derive(Clone, Debug)]
pub struct Authorities(Vec<Certificate>);

impl Authorities {
    /// All certificates in a PEM file.
    ///
    /// # Errors
    /// If there is none in it.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        let authorities = Certificate::from_pem_bundle(pem).map_err(|e| Error::Authority(e.to_string()))?;
        if authorities.is_empty() {
            return Err(Error::Authority("there is no certificate in it".to_owned()));
        }
        Ok(Self(authorities))
    }
}

/// A result: its JSON as received, and typed.
#[derive(Debug)]
pub struct Reply<T> {
    /// The JSON as received.
    pub json: Box<RawValue>,
    /// The value that was parsed from it.
    pub value: T,
}

impl<T: DeserializeOwned> Reply<T> {
    pub(crate) fn parse(url: &Url, json: Box<RawValue>) -> Result<Self, Error> {
        let value = serde_json::from_str(json.get()).map_err(|e| protocol(url, e.to_string()))?;
        Ok(Self { json, value })
    }
}

/// The next pause: longer by half, up to 2 s.
pub(crate) fn longer(pause: Duration) -> Duration {
    (pause * 3 / 2).min(SLOWEST)
}

/// A client of one endpoint. `timeout` covers a complete response; without it, a response may take forever.
pub(crate) fn client(
    endpoint: &Url,
    options: &Options,
    headers: HeaderMap,
    timeout: Option<Duration>,
) -> Result<reqwest::Client, Error> {
    let mut http = builder(endpoint, options, headers)?;
    if let Some(timeout) = timeout {
        http = http.timeout(timeout);
    }
    http.build().map_err(|e| Error::Address { url: endpoint.to_string(), reason: e.to_string() })
}

/// The settings of all clients.
pub(crate) fn builder(endpoint: &Url, options: &Options, mut headers: HeaderMap) -> Result<ClientBuilder, Error> {
    if let Some(token) = &options.token {
        headers.insert(AUTHORIZATION, authorization(token, endpoint)?);
    }
    // A proxy from the environment could only get in the way, and a redirect could leak the token.
    let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).default_headers(headers);
    let mut http = http.connect_timeout(CONNECT);
    if let Some(Authorities(authorities)) = &options.authorities {
        http = http.tls_certs_only(authorities.iter().cloned());
    }
    Ok(http)
}

/// The header with a token; an error if others could read it on the way.
fn authorization(token: &Secret, endpoint: &Url) -> Result<HeaderValue, Error> {
    if !may_carry_key(endpoint.scheme(), endpoint.host_str().unwrap_or_default()) {
        let why = format!("{endpoint} is on another machine, to which a token goes encrypted only: use https://");
        return Err(Error::Token(why));
    }
    let header = HeaderValue::try_from(format!("Bearer {}", token.expose()));
    let mut header = header.map_err(|_| Error::Token("what is there is none".to_owned()))?;
    header.set_sensitive(true);
    Ok(header)
}

/// The error for a request to `endpoint` that failed.
pub(crate) fn failed(error: reqwest::Error, endpoint: &Url, timeout: Duration) -> Error {
    let url = endpoint.clone();
    // The innermost cause has the information, such as "connection refused".
    let mut cause: &dyn std::error::Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let reason = cause.to_string();
    if error.is_connect() {
        Error::Unreachable { url, reason }
    } else if error.is_timeout() {
        Error::Timeout { url, after: timeout }
    } else {
        Error::Broken { url, reason }
    }
}

/// Reads the body of an answer, and returns whether it is complete: reading stops once it exceeds `max` bytes.
async fn read(response: &mut Response, max: usize) -> reqwest::Result<(Vec<u8>, bool)> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        body.extend_from_slice(&piece);
        if body.len() > max {
            return Ok((body, false));
        }
    }
    Ok((body, true))
}

/// Reads the body of an answer. More than `max` bytes are an error.
pub(crate) async fn read_all(
    url: &Url,
    response: &mut Response,
    max: usize,
    timeout: Duration,
) -> Result<Vec<u8>, Error> {
    match read(response, max).await.map_err(|e| failed(e, url, timeout))? {
        (body, true) => Ok(body),
        (_, false) => Err(protocol(url, format!("with more than {max} bytes"))),
    }
}

/// Parses an answer in JSON of at most `max` bytes. An HTTP error is an error.
pub(crate) async fn json<T: DeserializeOwned>(
    url: &Url,
    mut response: Response,
    max: usize,
    timeout: Duration,
) -> Result<T, Error> {
    if !response.status().is_success() {
        return Err(refused(url, &mut response).await);
    }
    let body = read_all(url, &mut response, max, timeout).await?;
    serde_json::from_slice(&body).map_err(|e| protocol(url, e.to_string()))
}

/// The reason in a host's HTTP error: the body as text; at an endpoint, the message of its JSON-RPC error; in a hall's
/// API, the text of its error.
pub fn refusal(text: &str) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct Refusal<'a> {
        #[serde(borrow)]
        error: Message<'a>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Message<'a> {
        Rpc {
            #[serde(borrow)]
            message: Cow<'a, str>,
        },
        Hall(Cow<'a, str>),
    }
    match serde_json::from_str(text) {
        Ok(Refusal { error: Message::Rpc { message } | Message::Hall(message) }) => message,
        Err(_) => text.into(),
    }
}

/// The error for an answer with an HTTP error.
pub(crate) async fn refused(url: &Url, response: &mut Response) -> Error {
    let (mut text, _) = read(response, REFUSAL_BYTES).await.unwrap_or_default();
    text.truncate(REFUSAL_BYTES);
    let text = refusal(&String::from_utf8_lossy(&text)).trim().to_owned();
    Error::Http { url: url.clone(), status: response.status(), text }
}

/// The error for a response that is not from a host.
pub(crate) fn protocol(url: &Url, reason: impl Into<String>) -> Error {
    Error::Protocol { url: url.clone(), reason: reason.into() }
}

/// Server-sent events.
pub(crate) type Stream = BoxStream<'static, Result<Sse, sse_stream::Error>>;

/// The server-sent events in the response to a request. The timeout covers only the head of the response.
pub(crate) async fn events(url: &Url, request: RequestBuilder, max: usize, timeout: Duration) -> Result<Stream, Error> {
    let request = request.header(ACCEPT, "text/event-stream").send();
    let answered = tokio::time::timeout(timeout, request).await;
    let late = |_| Error::Timeout { url: url.clone(), after: timeout };
    let mut response = answered.map_err(late)?.map_err(|e| failed(e, url, timeout))?;
    match response.status().is_success() {
        true => Ok(sse(response, max)),
        false => Err(refused(url, &mut response).await),
    }
}

/// The server-sent events of an answer. An event with more than about `max` bytes is an error.
pub(crate) fn sse(response: Response, max: usize) -> Stream {
    let pieces = stream::unfold((response, 0_usize, 0_u8), move |(mut response, mut open, mut last)| async move {
        let piece = response.chunk().await.map_err(io::Error::other).transpose()?;
        // `open` is the size of the event so far. It ends with an empty line; a line ends with CR, LF, or both.
        for byte in piece.iter().flatten().copied() {
            let is_empty_line = matches!((last, byte), (b'\n', b'\n' | b'\r') | (b'\r', b'\r'));
            open = if is_empty_line { 0 } else { open + 1 };
            last = byte;
        }
        let too_long = || Err(io::Error::other(format!("an event has more than {max} bytes")));
        Some((if open > max { too_long() } else { piece }, (response, open, last)))
    });
    SseStream::from_bytes_stream(pieces).boxed()
}
