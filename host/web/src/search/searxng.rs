//! Searches with SearXNG: `GET /search?q=..&format=json`.

use guild_session::{tools::ToolError, web::Hit};
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::{Provider, Wire, json};

#[derive(Deserialize)]
struct SearxngResponse {
    results: Vec<SearxngResult>,
    /// Pairs of an engine and its error.
    #[serde(default)]
    unresponsive_engines: Vec<Vec<Value>>,
}

#[derive(Deserialize)]
struct SearxngResult {
    url: Option<String>,
    title: Option<String>,
    content: Option<String>,
}

impl Provider {
    pub(super) async fn searxng(&self, query: &str) -> Result<Vec<Hit>, ToolError> {
        let (status, body) = self.ask(self.get()?.query(&[("q", query), ("format", "json")])).await?;
        let why = match status {
            StatusCode::FORBIDDEN => {
                "it does not answer in JSON: add `json` to `search.formats` in the settings.yml of SearXNG".to_owned()
            }
            StatusCode::TOO_MANY_REQUESTS => {
                "it limits our requests: let this host's address pass in the limiter.toml of SearXNG".to_owned()
            }
            status if !status.is_success() => format!("it answered {status}"),
            _ => return self.hits(Wire::SearXng, &body).await,
        };
        Err(self.unavailable(&why))
    }
}

/// The hits in a response, unchanged.
pub(super) fn found(body: &[u8]) -> Result<Vec<Hit>, String> {
    let answer: SearxngResponse = json(body)?;
    if answer.results.is_empty() && !answer.unresponsive_engines.is_empty() {
        return Err(format!("no engine answered it: {}", engines(&answer.unresponsive_engines)));
    }
    Ok(answer.results.into_iter().map(hit).collect())
}

fn hit(found: SearxngResult) -> Hit {
    Hit {
        title: found.title.unwrap_or_default(),
        url: found.url.unwrap_or_default(),
        snippet: found.content.unwrap_or_default(),
    }
}

/// `name (error)` of the first few engines.
fn engines(unresponsive: &[Vec<Value>]) -> String {
    let said =
        |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("?").chars().take(60).collect::<String>();
    let shown = unresponsive.iter().take(5).map(|engine| format!("{} ({})", said(engine.first()), said(engine.get(1))));
    shown.collect::<Vec<_>>().join(", ")
}
