//! Reads and writes the lines of the stream-json protocol that a session needs. Unknown lines and fields are ignored. A
//! line that cannot be read is skipped with a note, unless the session's outcome depends on it.

use std::{borrow::Cow, collections::BTreeMap};

use guild_contract::{Usage, json::replace_lone_surrogates};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Value, json};

use super::redact::Secrets;

/// The model of messages that the CLI makes itself, such as the text of an error.
const SYNTHETIC: &str = "<synthetic>";
/// The most characters of a line that an error shows.
pub(super) const SHOWN_CHARS: usize = 200;

/// A line of the CLI.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Line {
    /// A request of the CLI.
    ControlRequest {
        request_id: String,
        #[serde(default, deserialize_with = "lenient")]
        request: Request,
    },
    /// The CLI no longer waits for an answer.
    ControlCancelRequest { request_id: String },
    /// The CLI's answer to a request of the host.
    ControlResponse { response: Response },
    /// The state of the CLI and its session.
    System(System),
    /// A part of an answer of the model: one block of its content.
    Assistant {
        message: Message,
        #[serde(default)]
        parent_tool_use_id: Option<String>,
    },
    /// A part of the model's answer as it is streamed.
    StreamEvent {
        event: Event,
        #[serde(default)]
        parent_tool_use_id: Option<String>,
        /// At the end of a message that broke off: its blocks that do not count.
        #[serde(default)]
        abandoned_blocks: Option<Value>,
    },
    /// The end of the session.
    Result(Outcome),
    #[serde(other)]
    Other,
}

#[derive(Debug, Default, Deserialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
pub(super) enum Request {
    /// A JSON-RPC message for an MCP server of the host.
    McpMessage { server_name: String, message: Value },
    /// The CLI asks whether a tool may be used. The host denies all of these requests.
    CanUseTool,
    #[default]
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
pub(super) struct Response {
    pub subtype: String,
    pub request_id: String,
    #[serde(default, deserialize_with = "lenient")]
    pub error: String,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
pub(super) enum System {
    Init {
        session_id: String,
        #[serde(default)]
        mcp_servers: Vec<McpServer>,
    },
    ApiRetry {
        #[serde(default, deserialize_with = "lenient")]
        attempt: u64,
        #[serde(default, deserialize_with = "lenient")]
        max_retries: u64,
        #[serde(default, deserialize_with = "lenient")]
        error_status: Option<u64>,
        #[serde(default, deserialize_with = "lenient")]
        error: String,
    },
    PermissionDenied {
        #[serde(default, deserialize_with = "lenient")]
        tool_name: String,
    },
    CompactBoundary {},
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
pub(super) struct McpServer {
    pub name: String,
    pub status: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Message {
    pub id: String,
    #[serde(default, deserialize_with = "lenient")]
    pub model: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub content: Vec<Block>,
    #[serde(default, deserialize_with = "lenient")]
    pub usage: Option<Tokens>,
}

impl Message {
    /// Whether the CLI made the message itself.
    pub(super) fn is_synthetic(&self) -> bool {
        self.model.as_deref() == Some(SYNTHETIC)
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.content.iter().filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            Block::Other => None,
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block {
    Text {
        text: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Event {
    MessageStart {
        message: Message,
    },
    /// A block of the message goes on.
    ContentBlockDelta {
        #[serde(default, deserialize_with = "lenient")]
        delta: Delta,
    },
    /// The message's usage so far.
    MessageDelta {
        #[serde(default, deserialize_with = "lenient")]
        usage: Option<Tokens>,
    },
    MessageStop,
    #[serde(other)]
    Other,
}

#[derive(Debug, Default, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Delta {
    TextDelta {
        text: String,
    },
    #[default]
    #[serde(other)]
    Other,
}

/// Tokens as providers count them: `input_tokens` does not include tokens that were read from the cache or written to
/// it. In the counts by model, the CLI spells the names in camel case.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Tokens {
    #[serde(alias = "inputTokens")]
    input_tokens: Option<u64>,
    #[serde(alias = "cacheReadInputTokens")]
    cache_read_input_tokens: Option<u64>,
    #[serde(alias = "cacheCreationInputTokens")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(alias = "outputTokens")]
    output_tokens: Option<u64>,
}

impl Tokens {
    /// Replaces the counts that a later message has.
    pub(super) fn update(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.cache_read_input_tokens = later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation_input_tokens = later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
    }

    /// The tokens as the host counts them.
    pub(super) fn counted(self) -> guild_config::Tokens {
        let [cached, cache_write] =
            [self.cache_read_input_tokens, self.cache_creation_input_tokens].map(Option::unwrap_or_default);
        let input = self.input_tokens.unwrap_or_default().saturating_add(cached).saturating_add(cache_write);
        guild_config::Tokens { input, cached, cache_write, output: self.output_tokens.unwrap_or_default() }
    }

    /// The tokens as usage of unknown cost.
    pub(super) fn usage(self) -> Usage {
        self.counted().usage(None)
    }
}

/// The line `result`.
#[derive(Debug, Deserialize)]
pub(super) struct Outcome {
    pub subtype: String,
    #[serde(default)]
    pub is_error: bool,
    #[serde(default, deserialize_with = "lenient")]
    pub result: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub errors: Vec<Value>,
    /// The cost of the whole session. It includes the time before the session was resumed only if the CLI ended by
    /// itself then, and was not killed.
    #[serde(default, deserialize_with = "lenient")]
    pub total_cost_usd: Option<f64>,
    /// The usage of the session's model in this process.
    #[serde(default, deserialize_with = "lenient")]
    pub usage: Option<Tokens>,
    /// The usage by model, of the same part of the session as the cost, with requests of the CLI's own tools.
    #[serde(default, rename = "modelUsage", deserialize_with = "lenient")]
    pub model_usage: BTreeMap<String, Tokens>,
}

impl Outcome {
    /// The tokens of a session that was not resumed.
    pub(super) fn tokens_of_all_models(&self) -> Option<Usage> {
        let usages = self.model_usage.values().map(|tokens| tokens.usage());
        usages.reduce(|mut all, one| {
            all.add(&one);
            all
        })
    }

    /// The error texts of a failure.
    pub(super) fn errors(&self) -> String {
        let errors = self.errors.iter().map(|error| error.as_str().map_or_else(|| error.to_string(), str::to_owned));
        let texts: Vec<String> = errors.chain(self.result.clone()).filter(|text| !text.trim().is_empty()).collect();
        if texts.is_empty() { self.subtype.clone() } else { plain(texts.join("; ").as_bytes()) }
    }
}

/// Reads an optional field: a value of an unknown form counts as absent.
fn lenient<'de, T: DeserializeOwned + Default, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// A line that cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    /// The reason that the line is invalid, and its beginning, without secrets.
    pub what: String,
    /// Whether the session's outcome depends on it.
    pub is_needed: bool,
}

/// Reads a line.
pub(super) fn parse(line: &str, secrets: &Secrets) -> Result<Line, Unreadable> {
    let read = serde_json::from_str(line);
    // Only a line that fails is repaired, since a line can have megabytes.
    read.or_else(|e| if e.is_syntax() { serde_json::from_str(&repaired(line)) } else { Err(e) }).map_err(|e| {
        let shown: String = secrets.redact(line.to_owned()).chars().take(SHOWN_CHARS).collect();
        let what = if e.is_data() { "a message that this host does not understand" } else { "a line that is not JSON" };
        Unreadable { what: format!("{what} ({e}): {}", plain(shown.as_bytes())), is_needed: is_needed(line) }
    })
}

/// Repairs a line for a strict parser: JavaScript writes half a surrogate pair for a text that was cut within one.
fn repaired(line: &str) -> Cow<'_, str> {
    replace_lone_surrogates(line, |_| char::REPLACEMENT_CHARACTER)
}

/// Whether a session needs a line: its result, and the line that lists its tools.
fn is_needed(line: &str) -> bool {
    let value: Value = serde_json::from_str(&repaired(line)).unwrap_or_default();
    let field = |name| value.get(name).and_then(Value::as_str);
    field("type") == Some("result") || (field("type") == Some("system") && field("subtype") == Some("init"))
}

/// Text of the CLI for an error, without control characters for a terminal.
pub(super) fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// Begins the conversation; `servers` are the MCP servers that the host answers for.
pub(super) fn initialize(request_id: &str, servers: &[&str]) -> String {
    let request = json!({"subtype": "initialize", "hooks": null, "sdkMcpServers": servers});
    json!({"type": "control_request", "request_id": request_id, "request": request}).to_string()
}

/// Asks the CLI to stop.
pub(super) fn interrupt(request_id: &str) -> String {
    json!({"type": "control_request", "request_id": request_id, "request": {"subtype": "interrupt"}}).to_string()
}

/// A message to the agent. `client_composed` keeps the CLI from reading files that the text names, and from taking a
/// text that begins with a slash as a command.
pub(super) fn user(text: &str) -> String {
    let message = json!({"role": "user", "content": text});
    json!({"type": "user", "message": message, "parent_tool_use_id": null, "client_composed": true}).to_string()
}

/// Answers a request.
pub(super) fn success(request_id: &str, response: &Value) -> String {
    let response = json!({"subtype": "success", "request_id": request_id, "response": response});
    json!({"type": "control_response", "response": response}).to_string()
}

/// Refuses a request.
pub(super) fn refuse(request_id: &str, error: &str) -> String {
    let response = json!({"subtype": "error", "request_id": request_id, "error": error});
    json!({"type": "control_response", "response": response}).to_string()
}
