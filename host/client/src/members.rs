//! Who is served by a host, and why somebody is not.

use guild_contract::{MemberKey, MemberReport};
use reqwest::{StatusCode, header::HeaderMap};
use serde_json::value::RawValue;

use crate::{Error, Options, Reply, WorkerHandle, connect, endpoint};

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

/// A member that a host serves, and how it is reached.
#[derive(Debug)]
pub struct Served {
    /// Its key; `None` where the endpoint does not say it.
    pub member: Option<MemberKey>,
    /// Its worker, and its tools.
    pub worker: WorkerHandle,
}

/// All members that the host at `url` serves, as far as the token is for them, sorted by their keys. Where `url` names the
/// endpoint of one member, only that one, and nothing is sent. All handles share their connections.
///
/// # Errors
/// See [`Error`].
pub async fn served(url: &str, options: &Options) -> Result<Vec<Served>, Error> {
    let host = WorkerHandle::with_options(url, None, options)?;
    if !endpoint::is_bare(url) {
        let member = endpoint::events(url).ok().and_then(|(_, member)| member);
        return Ok(vec![Served { member, worker: host }]);
    }
    let report = match members(url, options).await {
        Ok(Reply { value, .. }) => value,
        // A process that serves one worker, and knows of no others.
        Err(Error::Http { status: StatusCode::NOT_FOUND, .. }) => {
            return Ok(vec![Served { member: None, worker: host }]);
        }
        Err(error) => return Err(error),
    };
    // What has no key is a directory whose name can be none: it is not served.
    let keys: Vec<MemberKey> = report.iter().filter_map(|report| report.member.parse().ok()).collect();
    let mut all = Vec::with_capacity(keys.len());
    for key in keys {
        let address = |reason| Error::Address { url: url.to_owned(), reason };
        let endpoint = endpoint::endpoint(url, Some(&key)).map_err(address)?;
        all.push(Served { worker: host.sharing(endpoint), member: Some(key) });
    }
    // A host that was started for one member has it at /mcp, a directory's host with one member in it has it elsewhere.
    if let [one] = all.as_mut_slice()
        && !one.worker.is_there().await?
    {
        one.worker = host;
    }
    all.sort_by(|one, other| one.member.cmp(&other.member));
    Ok(all)
}
