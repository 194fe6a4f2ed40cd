//! Who is served by a host, and why somebody is not.

use guild_contract::MemberReport;
use reqwest::header::HeaderMap;
use serde_json::value::RawValue;

use crate::{Error, Options, Reply, connect, endpoint};

/// How much of the answer is read: that of some ten thousand members.
const ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// What the host at `url` says of its members, as far as the token is for them: who is in service, and why what is in
/// somebody's directory is not.
///
/// # Errors
/// See [`Error`].
pub async fn members(url: &str, options: &Options) -> Result<Reply<Vec<MemberReport>>, Error> {
    let address = |reason| Error::Address { url: url.to_owned(), reason };
    let url = endpoint::members(url).map_err(address)?;
    let http = connect::client(&url, options, HeaderMap::new(), Some(options.timeout))?;
    let response = http.get(url.clone()).send().await.map_err(|e| connect::failed(e, &url, options.timeout))?;
    let json: Box<RawValue> = connect::json(&url, response, ANSWER_BYTES, options.timeout).await?;
    let value = serde_json::from_str(json.get()).map_err(|e| connect::protocol(&url, e.to_string()))?;
    Ok(Reply { value, json })
}
