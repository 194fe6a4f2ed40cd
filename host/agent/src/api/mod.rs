//! Implements the runtime `api`: sessions on a model provider over HTTP.
//!
//! `protocol/` writes requests and reads answers. This module has the loop on top of it: bounds before each request,
//! tools, retries, the transcript, and the cost of a session. All sessions share one client; a session that waits for
//! its provider holds its messages and one connection, and no thread.

use std::{collections::BTreeSet, mem, sync::OnceLock};

use async_trait::async_trait;
use guild_config::{ApiOptions, Endpoint, KeySource, Provider};
use guild_session::{
    meter::Ending,
    session::{AgentRuntime, Session, SessionEnd, Wanted},
    transcript::Entry,
};

mod chat;
mod conversation;
mod failure;
mod messages;
mod protocol;
mod provider;
mod request;

use conversation::Conversation;
use protocol::{Protocol, Reader};

/// The runtime.
#[derive(Debug)]
pub struct Api {
    options: ApiOptions,
    endpoint: Endpoint,
    /// The client is made with the first request, since reading the system's certificates is most of a host's start.
    client: OnceLock<Result<reqwest::Client, String>>,
}

impl Api {
    /// Makes a runtime without sending a request.
    ///
    /// # Errors
    ///
    /// The base URL is invalid, or the key would travel to it unencrypted. The text names the setting.
    pub fn new(options: ApiOptions) -> Result<Self, String> {
        let endpoint = options.endpoint()?;
        Ok(Self { options, endpoint, client: OnceLock::new() })
    }

    /// The address of the provider.
    pub fn address(&self) -> &str {
        self.endpoint.base.as_str()
    }

    /// The source of the provider's key; `None` for a provider without a key.
    pub fn key_source(&self) -> Option<&KeySource> {
        self.endpoint.key_source.as_ref()
    }

    fn client(&self) -> Result<&reqwest::Client, String> {
        self.client.get_or_init(request::client).as_ref().map_err(Clone::clone)
    }

    fn model<'a>(&'a self, asked: Option<&'a str>) -> Result<&'a str, String> {
        asked.or(self.options.model.as_deref()).filter(|model| !model.is_empty()).ok_or_else(|| {
            "no model is chosen: set `model` under [api] in guild.toml, or ask for one in the dispatch".to_owned()
        })
    }
}

#[async_trait]
impl AgentRuntime for Api {
    fn name(&self) -> &'static str {
        "api"
    }

    fn check(&self, wanted: &Wanted<'_>) -> Result<(), String> {
        self.endpoint.key()?;
        if wanted.later {
            return Ok(());
        }
        let model = self.model(wanted.model)?;
        if self.options.unknown_cost_tokens.is_none() && !self.options.prices.knows(model) {
            return Err(unknown_price(model));
        }
        Ok(())
    }

    fn models(&self) -> Vec<String> {
        let [operators, list] = self.options.prices.named();
        let named = self.options.model.as_deref().into_iter().chain(operators);
        // A provider at another address has other models.
        let list = list.filter(|_| self.options.base_url.is_none());
        let runs = named.chain(list).filter(|model| self.check_model(model).is_ok());
        runs.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn usual_model(&self) -> Option<&str> {
        self.options.model.as_deref()
    }

    fn check_model(&self, model: &str) -> Result<(), String> {
        let ApiOptions { provider, base_url, prices, unknown_cost_tokens, .. } = &self.options;
        let is_listed = prices.knows(model) && !prices.is_operators(model);
        let is_own = || provider.facts().models.is_some_and(|own| model.starts_with(own));
        if base_url.is_none() && is_listed && !is_own() {
            return Err(format!("belongs to another provider than that of [api], which is {}", provider.facts().name));
        }
        if unknown_cost_tokens.is_none() && !prices.knows(model) {
            return Err(
                "has no known price: give it under [[prices]] in guild.toml, or set unknown_cost_tokens under [api]"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn can_resume(&self, history: &[Entry]) -> Result<(), String> {
        if !matches!(history.first(), Some(Entry::Session { .. })) {
            return Err("the transcript does not have the session's beginning".to_owned());
        }
        for entry in history {
            match entry {
                Entry::Turn { content: Some(content), .. } => chat::ModelAnswer::restore(content).map(drop)?,
                Entry::Turn { turn, content: None, .. } => {
                    return Err(format!("the transcript does not have the text of turn {turn}"));
                }
                Entry::Truncated { text } => return Err(format!("the transcript is not whole: {text}")),
                _ => {}
            }
        }
        Ok(())
    }

    async fn run(&self, mut session: Session) -> SessionEnd {
        // The conversation takes these over, since many waiting sessions would keep them twice.
        let (prompt, history) = (mem::take(&mut session.prompt), mem::take(&mut session.history));
        let model = match self.model(session.model.as_deref()) {
            Ok(model) => model,
            Err(text) => return Ending::Error(text).into(),
        };
        let mut conversation = Conversation::new(self, &session, model, prompt);
        let ending = conversation.run(history).await.err().unwrap_or(Ending::Success);
        SessionEnd { ending, text: conversation.text }
    }
}

fn unknown_price(model: &str) -> String {
    format!(
        "the price of {model} is not known: give it under [[prices]] in guild.toml, or set unknown_cost_tokens under \
         [api] to bound jobs by tokens instead of dollars"
    )
}

/// The parts of an answer that tests and fuzz targets compare.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerRead {
    /// The text.
    pub text: String,
    /// The text as it was shown piece by piece.
    pub shown: String,
    /// The number of parts.
    pub parts: usize,
    /// The calls: the name of the tool, and the input if it was received whole.
    pub calls: Vec<(String, Option<serde_json::Map<String, serde_json::Value>>)>,
}

/// Reads an answer from the pieces of its body, as a session does.
///
/// # Errors
///
/// Returns the reason that the answer cannot be used.
pub fn read_answer<'a>(provider: Provider, pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<AnswerRead, String> {
    let mut reader = Reader::new(Protocol::of(provider));
    let mut shown = String::new();
    for piece in pieces {
        shown.push_str(&reader.push(piece).map_err(|failure| failure.text)?);
    }
    let (received, rest) = reader.finish().map_err(|failure| failure.text)?;
    shown.push_str(&rest);
    let answer = received.answer;
    let calls = answer.calls().map(|call| (call.name.clone(), call.input.clone())).collect();
    Ok(AnswerRead { text: answer.text(), shown, parts: answer.parts.len(), calls })
}
