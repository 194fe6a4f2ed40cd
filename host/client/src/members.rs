//! Lists the members of a host and their states.

use guild_contract::{MemberKey, MemberReport};
use reqwest::{StatusCode, header::HeaderMap};

use crate::{Error, Options, Reply, WorkerHandle, connect, endpoint};

/// The maximum size of the answer, for about ten thousand members.
const ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// The host's report of the members that the token permits: whether each is in service, and the error of a directory
/// whose present state is not.
///
/// # Errors
/// See [`Error`].
pub async fn members(url: &str, options: &Options) -> Result<Reply<Vec<MemberReport>>, Error> {
    let url = endpoint::members(url)?;
    let http = connect::client(&url, options, HeaderMap::new(), Some(options.timeout))?;
    let response = http.get(url.clone()).send().await.map_err(|e| connect::failed(e, &url, options.timeout))?;
    Reply::parse(&url, connect::json(&url, response, ANSWER_BYTES, options.timeout).await?)
}

/// Asks whether a host answers. No token is sent.
///
/// # Errors
/// See [`Error`].
pub async fn health(url: &str, options: &Options) -> Result<(), Error> {
    let url = endpoint::health(url)?;
    let options = Options { token: None, ..options.clone() };
    let http = connect::client(&url, &options, HeaderMap::new(), Some(options.timeout))?;
    let mut response = http.get(url.clone()).send().await.map_err(|e| connect::failed(e, &url, options.timeout))?;
    match response.status().is_success() {
        true => Ok(()),
        false => Err(connect::refused(&url, &mut response).await),
    }
}

/// A member that a host serves, with a client for it.
#[derive(Debug)]
pub struct Served {
    /// Its key; `None` if the endpoint does not name it.
    pub member: Option<MemberKey>,
    /// The client of its worker and its tools.
    pub worker: WorkerHandle,
}

/// The members that the host at `url` serves and the token allows, sorted by key. If `url` is the endpoint of one
/// member, only that one, and nothing is sent. All handles share their connections.
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
        // The process serves one worker, and has no report of members.
        Err(Error::Http { status: StatusCode::NOT_FOUND, .. }) => {
            return Ok(vec![Served { member: None, worker: host }]);
        }
        Err(error) => return Err(error),
    };
    // A directory whose name is not a valid key is reported, too, but not served.
    let keys: Vec<MemberKey> = report.iter().filter_map(|report| report.member.parse().ok()).collect();
    let mut all = Vec::with_capacity(keys.len());
    for key in keys {
        let endpoint = endpoint::endpoint(url, Some(&key))?;
        all.push(Served { worker: host.sharing(endpoint), member: Some(key) });
    }
    // A host that was started for one member serves it at /mcp; a host of a directory with one member serves it
    // elsewhere.
    if let [one] = all.as_mut_slice()
        && !one.worker.is_there().await?
    {
        one.worker = host;
    }
    all.sort_by(|one, other| one.member.cmp(&other.member));
    Ok(all)
}
