//! Passes requests for the hall on to the host of the cluster that serves it, and its answers and streams back.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use axum::{
    body::Body,
    extract::Request,
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode,
        header::{CONNECTION, HOST, ORIGIN, TRANSFER_ENCODING},
    },
    response::{IntoResponse as _, Response},
};
use guild_config::is_loopback;
use guild_contract::{rpc::RpcError, text::one_line};
use guild_roster::host::Host;
use reqwest::{Certificate, Client, Url, redirect};

use crate::declined::{Declined, Shape};

/// How long a connection to the other host is tried.
const PATIENCE: Duration = Duration::from_secs(5);
/// The header of a request that was passed on, which is not passed on again.
const FORWARDED: HeaderName = HeaderName::from_static("guild-forwarded");
/// The headers that belong to one connection, or to the host that a client called.
const OF_CONNECTION: [HeaderName; 4] = [CONNECTION, HOST, ORIGIN, TRANSFER_ENCODING];
/// The most characters of the reason that the other host cannot be reached.
const WHY_CHARS: usize = 200;

/// Passes requests on.
pub(crate) struct Forwarder {
    authority: Option<PathBuf>,
    /// The client of all requests, which is made with the first of them.
    client: OnceLock<Result<Client, String>>,
}

impl Forwarder {
    /// A forwarder that trusts the certificates of other hosts by the authority of `[cluster]`, besides the system's.
    pub(crate) fn new(host: &Host) -> Self {
        let authority = host.config().cluster.as_ref().and_then(|cluster| cluster.ca.clone());
        Self { authority, client: OnceLock::new() }
    }

    /// Passes a request on, and returns the answer as it comes.
    pub(crate) async fn forward(
        &self,
        at: Result<(String, String), String>,
        shape: Shape,
        request: Request,
    ) -> Response {
        match self.answer(at, request).await {
            Ok(response) => response,
            Err(why) => shape.decline(Declined::new(StatusCode::SERVICE_UNAVAILABLE, RpcError::busy(why))),
        }
    }

    async fn answer(&self, at: Result<(String, String), String>, request: Request) -> Result<Response, String> {
        let (host, url) = at?;
        let client = self.client.get_or_init(|| client(self.authority.as_deref())).as_ref().map_err(Clone::clone)?;
        // The request has its caller's token.
        if !is_private(&url) {
            return Err(format!(
                "the host {host} serves the hall at {url}, which is not encrypted; set `url` in [cluster] of its guild.toml \
                 to an https:// address"
            ));
        }
        let (parts, body) = request.into_parts();
        if parts.headers.contains_key(FORWARDED) {
            return Err(format!("the host {host} serves the hall now, and not this one; ask again"));
        }
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut headers = of_message(parts.headers);
        headers.insert(FORWARDED, HeaderValue::from_static("1"));
        let asked = client
            .request(parts.method, format!("{}{path}", url.trim_end_matches('/')))
            .headers(headers)
            .body(reqwest::Body::wrap_stream(body.into_data_stream()));
        let answer = asked.send().await.map_err(|e| {
            let cause = e.source().map_or_else(|| e.to_string(), ToString::to_string);
            let why = one_line(&cause, WHY_CHARS);
            format!(
                "the host {host}, which serves the hall, cannot be reached: {why}; attempts and meetings wait for it"
            )
        })?;
        let (status, headers) = (answer.status(), of_message(answer.headers().clone()));
        Ok((status, headers, Body::from_stream(answer.bytes_stream())).into_response())
    }
}

/// Whether nobody else hears a request to this address: it is encrypted, or does not leave the machine.
fn is_private(url: &str) -> bool {
    url.parse::<Url>().is_ok_and(|url| url.scheme() == "https" || is_loopback(&url))
}

/// The headers of a message without those of its connection.
fn of_message(mut headers: HeaderMap) -> HeaderMap {
    for name in &OF_CONNECTION {
        headers.remove(name);
    }
    headers
}

fn client(authority: Option<&Path>) -> Result<Client, String> {
    let mut builder = Client::builder().connect_timeout(PATIENCE).redirect(redirect::Policy::none()).no_proxy();
    if let Some(file) = authority {
        let unreadable = |e: &dyn std::fmt::Display| format!("`ca` in [cluster], {}: {e}", file.display());
        let pem = fs::read(file).map_err(|e| unreadable(&e))?;
        let certificates = Certificate::from_pem_bundle(&pem).map_err(|e| unreadable(&e))?;
        builder = certificates.into_iter().fold(builder, reqwest::ClientBuilder::add_root_certificate);
    }
    builder.build().map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sent_to_another_machine_under_encryption_only() {
        let addresses = [
            ("https://a.example.org:7433", true),
            ("http://127.0.0.1:7433/", true),
            ("http://[::1]:7433", true),
            ("http://localhost:7433", true),
            ("http://10.0.0.5:7433", false),
            ("http://localhost.example.org", false),
            ("", false),
        ];
        for (address, expected) in addresses {
            assert_eq!(is_private(address), expected, "{address}");
        }
    }
}
