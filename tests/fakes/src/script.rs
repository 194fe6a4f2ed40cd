//! What a fake answers: the same script for every protocol.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;
use tokio::{sync::Semaphore, time::sleep};

/// A request as the fake got it.
#[derive(Clone, Debug)]
pub struct Received {
    /// Its number, from 0.
    pub number: usize,
    /// Path and query.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body; null where that was no JSON.
    pub body: Value,
}

impl Received {
    /// A header as text, empty where there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Which turn of a session it asks for, from 0: how often the model has answered in it.
    pub fn turn(&self) -> usize {
        let messages = self.body["messages"].as_array().into_iter().flatten();
        messages.filter(|message| message["role"] == "assistant").count()
    }

    /// The tools that are offered, as OpenAI's protocol has them.
    pub fn tool_names(&self) -> BTreeSet<String> {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        tools.filter_map(|tool| tool["function"]["name"].as_str().map(str::to_owned)).collect()
    }
}

/// Holds answers back until it is opened.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Semaphore>);

impl Gate {
    /// A closed gate.
    pub fn closed() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets that many events pass: those that wait, and after them those to come.
    pub fn pass(&self, events: usize) {
        self.0.add_permits(events);
    }

    /// Lets everything pass from now on.
    pub fn open(&self) {
        self.0.close();
    }

    pub(crate) async fn wait(&self) {
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }
}

/// A piece of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Text(String),
    Thinking {
        text: String,
        signature: String,
    },
    Call {
        name: String,
        input: Value,
    },
    /// A call that breaks off within its input.
    CutCall {
        name: String,
        input: String,
    },
}

/// What an answer says that it used. `input` is all of the input, with what was cached and what was written.
#[derive(Clone, Copy, Debug)]
pub struct Tokens {
    /// All tokens of the request.
    pub input: u64,
    /// Of them, those read from the provider's cache.
    pub cached: u64,
    /// Of them, those written to the provider's cache.
    pub cache_write: u64,
    /// The tokens of the answer.
    pub output: u64,
}

impl Default for Tokens {
    fn default() -> Self {
        Self { input: 100, cached: 0, cache_write: 0, output: 10 }
    }
}

/// How the body of a streamed answer ends.
#[derive(Clone, Debug, Default)]
pub(crate) enum End {
    #[default]
    Whole,
    /// The connection breaks after so many events.
    Broken(usize),
    /// The body ends, as if that were all, after so many events.
    Early(usize),
    /// Nothing follows after so many events, and the connection stays.
    Stalled(usize),
    /// An error event comes after so many events.
    Failed(usize, String),
}

/// An answer.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub(crate) parts: Vec<Part>,
    pub(crate) stop: Option<String>,
    pub(crate) tokens: Option<Tokens>,
    pub(crate) no_usage: bool,
    pub(crate) failure: Option<(StatusCode, String)>,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) before: Option<Gate>,
    pub(crate) between: Option<Gate>,
    pub(crate) end: End,
    pub(crate) raw: Option<(&'static str, String)>,
}

impl Reply {
    /// A body that is sent as it is, in pieces that end anywhere, with this content type.
    pub fn raw(content_type: &'static str, body: impl Into<String>) -> Self {
        Self { raw: Some((content_type, body.into())), ..Self::default() }
    }

    /// An answer that says this.
    pub fn text(text: impl Into<String>) -> Self {
        Self::default().and_text(text)
    }

    /// An answer that calls this tool.
    pub fn call(name: &str, input: Value) -> Self {
        Self::default().and_call(name, input)
    }

    /// An error with this status; a status below 400 is a strange answer.
    pub fn status(status: u16) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let message = status.canonical_reason().unwrap_or("overloaded").to_owned();
        Self { failure: Some((status, message)), ..Self::default() }
    }

    /// An answer without anything in it.
    pub fn empty() -> Self {
        Self::default()
    }

    /// And it says this.
    #[must_use]
    pub fn and_text(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Text(text.into()));
        self
    }

    /// And it calls this tool.
    #[must_use]
    pub fn and_call(mut self, name: &str, input: Value) -> Self {
        self.parts.push(Part::Call { name: name.to_owned(), input });
        self
    }

    /// And it calls this tool, but its input breaks off, as at the limit of output tokens.
    #[must_use]
    pub fn and_cut_call(mut self, name: &str, input: &str) -> Self {
        self.parts.push(Part::CutCall { name: name.to_owned(), input: input.to_owned() });
        self
    }

    /// And it thinks this, under a signature.
    #[must_use]
    pub fn and_thinking(mut self, text: &str, signature: &str) -> Self {
        self.parts.push(Part::Thinking { text: text.to_owned(), signature: signature.to_owned() });
        self
    }

    /// Why it stops, in the words of the protocol, where it is not plain from what it says.
    #[must_use]
    pub fn stop(mut self, reason: &str) -> Self {
        self.stop = Some(reason.to_owned());
        self
    }

    /// What it says that it used.
    #[must_use]
    pub fn tokens(mut self, tokens: Tokens) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// It does not say what it used.
    #[must_use]
    pub fn without_usage(mut self) -> Self {
        self.no_usage = true;
        self
    }

    /// The message of an error.
    #[must_use]
    pub fn message(mut self, text: impl Into<String>) -> Self {
        if let Some((_, message)) = &mut self.failure {
            *message = text.into();
        }
        self
    }

    /// A header of the answer.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// How long to wait before another request: seconds, or an HTTP date.
    #[must_use]
    pub fn retry_after(self, value: impl Into<String>) -> Self {
        self.header("retry-after", value)
    }

    /// Nothing of it comes, not even its headers, before the gate lets it pass.
    #[must_use]
    pub fn behind(mut self, gate: &Gate) -> Self {
        self.before = Some(gate.clone());
        self
    }

    /// Nothing of it comes before this time is over.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        let gate = Gate::closed();
        let opened = gate.clone();
        tokio::spawn(async move {
            sleep(time).await;
            opened.open();
        });
        self.behind(&gate)
    }

    /// Its headers come; each of its events waits for the gate to let it pass.
    #[must_use]
    pub fn slowly(mut self, gate: &Gate) -> Self {
        self.between = Some(gate.clone());
        self
    }

    /// The connection breaks after so many events of a streamed answer.
    #[must_use]
    pub fn broken_after(mut self, events: usize) -> Self {
        self.end = End::Broken(events);
        self
    }

    /// The streamed answer ends after so many events, as if that were all.
    #[must_use]
    pub fn ends_after(mut self, events: usize) -> Self {
        self.end = End::Early(events);
        self
    }

    /// The streamed answer stops after so many events and never ends.
    #[must_use]
    pub fn stalls_after(mut self, events: usize) -> Self {
        self.end = End::Stalled(events);
        self
    }

    /// The streamed answer turns into an error of this type after so many events.
    #[must_use]
    pub fn fails_after(mut self, events: usize, kind: &str) -> Self {
        self.end = End::Failed(events, kind.to_owned());
        self
    }

    pub(crate) fn used(&self) -> Option<Tokens> {
        (!self.no_usage).then(|| self.tokens.unwrap_or_default())
    }

    pub(crate) fn has_calls(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Call { .. } | Part::CutCall { .. }))
    }

    /// Why it stops: as it was told, else for its calls or by itself.
    pub(crate) fn reason(&self, calls: &str, done: &str) -> String {
        self.stop.clone().unwrap_or_else(|| if self.has_calls() { calls } else { done }.to_owned())
    }
}

/// What a fake answers to each request.
#[derive(Clone)]
pub struct Script(Arc<dyn Fn(&Received) -> Reply + Send + Sync>);

impl Script {
    pub(crate) fn reply(&self, request: &Received) -> Reply {
        (self.0)(request)
    }
}

impl<F: Fn(&Received) -> Reply + Send + Sync + 'static> From<F> for Script {
    fn from(answer: F) -> Self {
        Self(Arc::new(answer))
    }
}

impl From<Vec<Reply>> for Script {
    /// One reply after the other. A request beyond them is told so, with an error that no client asks again after.
    fn from(replies: Vec<Reply>) -> Self {
        let replies = Mutex::new(VecDeque::from(replies));
        Self::from(move |_: &Received| {
            let next = replies.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop_front();
            next.unwrap_or_else(|| Reply::status(418).message("the script is over"))
        })
    }
}
