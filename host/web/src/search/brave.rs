//! Searches with Brave Search: `GET /res/v1/web/search?q=..&count=..` with the key in a header.

use guild_config::KeySource;
use guild_session::{tools::ToolError, web::Hit};
use reqwest::{StatusCode, header::HeaderValue};
use serde::Deserialize;
use tokio::task;

use super::{Provider, Wire, json};

#[derive(Deserialize)]
struct BraveResponse {
    web: Option<Web>,
}

#[derive(Deserialize)]
struct Web {
    #[serde(default)]
    results: Vec<BraveResult>,
}

#[derive(Deserialize)]
struct BraveResult {
    url: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
struct Failure {
    error: FailureOf,
}

#[derive(Deserialize)]
struct FailureOf {
    #[serde(default)]
    code: String,
}

impl Provider {
    pub(super) async fn brave(&self, key: &KeySource, query: &str, limit: usize) -> Result<Vec<Hit>, ToolError> {
        let source = key.clone();
        let key = task::spawn_blocking(move || source.read()).await;
        let key = key.unwrap_or_else(|error| Err(error.to_string())).map_err(|why| self.unavailable(&why))?;
        let mut key = HeaderValue::from_str(key.expose()).map_err(|_| {
            self.unavailable("the key has characters that no key has; see `[web.search]` in guild.toml")
        })?;
        key.set_sensitive(true);
        let request = self.get()?.header("X-Subscription-Token", key).query(&[("q", query)]);
        let (status, body) = self.ask(request.query(&[("count", limit)])).await?;
        let code = || serde_json::from_slice::<Failure>(&body).map(|failure| failure.error.code).unwrap_or_default();
        let why = match status {
            status
                if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
                    || status == StatusCode::UNPROCESSABLE_ENTITY && code().contains("TOKEN") =>
            {
                "it refuses the key: see key_env or key_file of `[web.search]` in guild.toml".to_owned()
            }
            StatusCode::TOO_MANY_REQUESTS => {
                "the requests of its plan are used up for now; search again later".to_owned()
            }
            status if !status.is_success() => {
                let code: String = code().chars().filter(|c| c.is_ascii_graphic()).take(60).collect();
                format!("it answered {status} {code}").trim_end().to_owned()
            }
            _ => return self.hits(Wire::Brave, &body).await,
        };
        Err(self.unavailable(&why))
    }
}

/// The hits in a response, unchanged.
pub(super) fn found(body: &[u8]) -> Result<Vec<Hit>, String> {
    let answer: BraveResponse = json(body)?;
    let found = answer.web.map(|web| web.results).unwrap_or_default().into_iter();
    Ok(found.map(|found| Hit { title: found.title, url: found.url, snippet: found.description }).collect())
}
