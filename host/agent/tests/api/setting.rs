//! A session on a fake, with tools of the test.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use guild_agent::api::Api;
use guild_config::{ApiOptions, KeySource, Provider};
use guild_contract::Bounds;
use guild_fakes::{Anthropic, Gemini, Ollama, OpenAi, Script};
use guild_session::{
    meter::Meter,
    session::{AgentRuntime as _, NoTools, Session, SessionEnd},
    tools::{ToolCall, ToolDefinition, ToolError, Tools},
    transcript::{Entry, Journal},
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// A model whose price is in the list.
pub(crate) const MODEL: &str = "claude-sonnet-4-5";

/// A transcript in memory.
#[derive(Default)]
pub(crate) struct Transcript(Mutex<Vec<Entry>>, Notify);

impl Transcript {
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.0.lock().unwrap().clone()
    }

    /// Waits until it is so.
    pub(crate) async fn until(&self, holds: impl Fn(&[Entry]) -> bool) {
        let wait = async {
            loop {
                let written = self.1.notified();
                if holds(&self.entries()) {
                    return;
                }
                written.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap();
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        let note = |entry| match entry {
            Entry::Note { text, .. } => Some(text),
            _ => None,
        };
        self.entries().into_iter().filter_map(note).collect()
    }

    pub(crate) fn turns(&self) -> usize {
        self.entries().iter().filter(|entry| matches!(entry, Entry::Turn { .. })).count()
    }
}

impl Journal for Transcript {
    fn write(&self, entry: &Entry) {
        self.0.lock().unwrap().push(entry.clone());
        self.1.notify_one();
    }

    fn log(&self, _line: &str) {}
}

type Answering = dyn Fn(ToolCall) -> BoxFuture<'static, Result<Value, ToolError>> + Send + Sync;

/// Tools that a test answers: `look` only reads, `act` does not.
pub(crate) struct Desk {
    calls: Mutex<Vec<ToolCall>>,
    answering: Box<Answering>,
}

impl Desk {
    /// Tools that answer their input's `value`, or "ok".
    pub(crate) fn new() -> Arc<Self> {
        Self::answering(|call| {
            let value = call.input.get("value").cloned().unwrap_or_else(|| json!("ok"));
            Box::pin(async move { Ok(value) })
        })
    }

    pub(crate) fn answering(
        answering: impl Fn(ToolCall) -> BoxFuture<'static, Result<Value, ToolError>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { calls: Mutex::default(), answering: Box::new(answering) })
    }

    pub(crate) fn calls(&self) -> Vec<ToolCall> {
        self.calls.lock().unwrap().clone()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.id).collect()
    }
}

pub(crate) fn tool(name: &str, read_only: bool) -> ToolDefinition {
    ToolDefinition {
        name: name.to_owned(),
        title: None,
        description: format!("Does {name}."),
        input_schema: json!({"type": "object", "properties": {"value": {"type": "string"}}}),
        output_schema: None,
        read_only,
    }
}

#[async_trait]
impl Tools for Desk {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        vec![Arc::new(tool("look", true)), Arc::new(tool("act", false))]
    }

    async fn call(&self, call: ToolCall) -> Result<Value, ToolError> {
        self.calls.lock().unwrap().push(call.clone());
        (self.answering)(call).await
    }

    fn repeats_safely(&self, _tool: &str) -> bool {
        true
    }
}

pub(crate) const PROVIDERS: [Provider; 4] = [Provider::Anthropic, Provider::OpenAi, Provider::Gemini, Provider::Ollama];

/// A fake provider, and the base URL at which a runtime finds it.
pub(crate) async fn fake_server(provider: Provider, script: impl Into<Script>) -> (guild_fakes::Provider, String) {
    let (server, path) = match provider {
        Provider::Anthropic => (Anthropic::start(script).await, ""),
        Provider::OpenAi => (OpenAi::start(script).await, "/v1"),
        Provider::Gemini => (Gemini::start(script).await, "/v1beta"),
        Provider::Ollama => (Ollama::start(script).await, ""),
    };
    let base = server.url() + path;
    (server, base)
}

pub(crate) fn options(provider: Provider, base: &str) -> ApiOptions {
    ApiOptions {
        base_url: Some(base.to_owned()),
        model: Some(MODEL.to_owned()),
        first_pause: Duration::from_millis(5),
        ..ApiOptions::new(provider)
    }
}

/// A session, and what can be seen of it from outside.
pub(crate) struct Setting {
    pub(crate) session: Session,
    pub(crate) transcript: Arc<Transcript>,
    pub(crate) cancel: CancellationToken,
    pub(crate) meter: Arc<Meter>,
}

pub(crate) fn setting(tools: Arc<dyn Tools>, bounds: Bounds) -> Setting {
    let transcript = Arc::new(Transcript::default());
    let (cancel, meter) = (CancellationToken::new(), Meter::new(bounds));
    let session = Session {
        number: 1,
        system_prompt: "You are a researcher.".to_owned(),
        prompt: "Find it out.".to_owned(),
        converses: false,
        conversation_chars: 400_000,
        model: None,
        tools,
        files: None,
        meter: meter.clone(),
        cancel: cancel.clone(),
        texts: None,
        journal: transcript.clone(),
        history: Vec::new(),
    };
    Setting { session, transcript, cancel, meter }
}

/// A session without tools and with the usual bounds.
pub(crate) fn plain() -> Setting {
    setting(Arc::new(NoTools), Bounds::default())
}

pub(crate) fn with_tools(desk: &Arc<Desk>) -> Setting {
    setting(desk.clone(), Bounds::default())
}

/// Runs a session to its end; no test waits longer than half a minute.
pub(crate) async fn run(options: ApiOptions, session: Session) -> SessionEnd {
    let api = Api::new(options).unwrap();
    tokio::time::timeout(Duration::from_secs(30), api.run(session)).await.unwrap()
}

/// A key in a file.
pub(crate) fn key_file(key: &str) -> (tempfile::TempDir, KeySource) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    std::fs::write(&path, format!("{key}\n")).unwrap();
    (directory, KeySource::File(path))
}
