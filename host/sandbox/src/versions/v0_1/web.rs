//! Implements `web`: searches and reads pages, through the host and under the operator's policy.
//!
//! Only jobs and tool calls have it, since a request while a dispatch is checked would leave no trace. Each search and
//! each page is a line of the job's or the host's log, also if it failed.

use guild_contract::capability::{SEARCH, WEB};
use guild_session::{tools::ToolError, web::Web};
use tokio::runtime::Handle;

use super::{
    HostResult,
    bindings::guild::worker::web::{Hit, Host},
    named,
};
use crate::{
    call::on_host,
    log::LogSink,
    state::{CallContext, State},
};

/// The most hits that a component is given.
const MAX_HITS: u32 = 50;
/// The characters of a query, an address or an error in a line of the log.
const LOGGED_CHARS: usize = 500;
/// The error if the host stops meanwhile.
const FAILED: &str = "the web could not be asked";

/// A line of the log about one request, which is written when its outcome is known or its caller is gone.
struct RequestLog {
    log: LogSink,
    asked: String,
    outcome: String,
}

impl RequestLog {
    fn new(context: &CallContext, verb: &str, what: &str) -> Self {
        let asked = format!("web: {verb} {}", beginning(what));
        Self { log: context.log.clone(), asked, outcome: "broke off".to_owned() }
    }

    /// Writes the line, and returns the answer.
    fn close<T>(mut self, answer: Result<T, ToolError>, bytes: fn(&T) -> usize) -> HostResult<T> {
        self.outcome = match &answer {
            Ok(value) => format!("ok, {} bytes", bytes(value)),
            Err(error) => beginning(&error.to_string()),
        };
        Ok(answer.map_err(Into::into))
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        self.log.line(&format!("{}: {}", self.asked, self.outcome));
    }
}

fn beginning(text: &str) -> String {
    match text.char_indices().nth(LOGGED_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn granted(context: &CallContext, function: &'static str) -> Result<(Web, Handle), ToolError> {
    context.granted(&WEB)?;
    context.web.clone().ok_or_else(|| context.no_job(function))
}

async fn search(context: CallContext, query: String, limit: u32) -> Result<Vec<Hit>, ToolError> {
    let (web, host) = granted(&context, "web.search")?;
    context.granted(&SEARCH)?;
    let Some(search) = web.search else {
        return Err(ToolError::NotGranted(
            "there is nothing to search: the operator names a provider with [web.search] in guild.toml, or read roots"
                .to_owned(),
        ));
    };
    named("the query", &query)?;
    let limit = limit.clamp(1, MAX_HITS);
    let hits = on_host(&host, FAILED, async move { search.search(&query, limit).await }).await?;
    Ok(hits.into_iter().map(|hit| Hit { title: hit.title, url: hit.url, snippet: hit.snippet }).collect())
}

async fn fetch(context: CallContext, url: String) -> Result<String, ToolError> {
    let (web, host) = granted(&context, "web.fetch")?;
    let Some(fetch) = web.fetch else {
        return Err(ToolError::NotGranted(
            "no host is allowed: the operator names hosts with `allow` in [web] of guild.toml".to_owned(),
        ));
    };
    named("the address", &url)?;
    let asked = url.clone();
    let answer = on_host(&host, FAILED, async move { fetch.fetch(&url).await }).await;
    if !matches!(answer, Err(ToolError::NotGranted(_) | ToolError::InvalidInput(_))) {
        context.uses.address(&asked);
    }
    answer
}

impl Host for State {
    async fn search(&mut self, query: String, limit: u32) -> HostResult<Vec<Hit>> {
        let line = RequestLog::new(&self.context, "search", &query);
        let size = |hits: &Vec<Hit>| hits.iter().map(|hit| hit.title.len() + hit.url.len() + hit.snippet.len()).sum();
        line.close(search(self.context.clone(), query, limit).await, size)
    }

    async fn fetch(&mut self, url: String) -> HostResult<String> {
        let line = RequestLog::new(&self.context, "fetch", &url);
        line.close(fetch(self.context.clone(), url).await, String::len)
    }
}
