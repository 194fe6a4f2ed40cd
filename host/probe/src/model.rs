//! The model of a probe: it asks for each tool that a session offers, with inputs made from its schema, and ends. An
//! obedient one does what the texts before it name, too.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use guild_contract::Usage;
use guild_session::{
    meter::Ending,
    session::{AgentRuntime, Session, SessionEnd, Wanted},
    tools::{ToolCall, ToolDefinition, ToolError},
    transcript::Entry,
};
use serde_json::{Value, json};

use crate::{
    inputs::{self, Words},
    known::{addresses, with_token},
    neighbour::Neighbour,
    record::{Place, Recorder, shown},
    web::{BY_MODEL, SEARCH},
};

/// The note that the model stores, which is there from the first job on.
pub(crate) const NOTE_KEY: &str = "probe-note";
/// The key of a note that is not there at first, where the model stores more of them.
const NEW_KEY: &str = "probe-second-note";
/// Notes that it then stores in one session.
const KEYS: usize = 8;
/// The text of the model for each input that is free text.
pub(crate) const NOTE_TEXT: &str = "The harbour is shallow at low tide.";
/// The name of the runtime in transcripts.
const NAME: &str = "probe";
/// Calls of one session.
const CALLS: usize = 160;
/// Calls of each of the member's own tools in one session.
const OWN_CALLS: usize = 5;
/// Files that are read.
const READ: usize = 6;
/// The most orders of each kind that an obedient model follows in one session.
const FOLLOWED: usize = 24;

/// Tools of the host, which a session may have. All others are the member's own, or of a toolbox.
const OF_HOST: [&str; 39] = [
    "Read",
    "Grep",
    "Glob",
    "WebSearch",
    "WebFetch",
    "update_summary",
    "record_decision",
    "log_question",
    "store_memory",
    "submit_result",
    "write_artifact",
    "read_memory",
    "write_memory",
    "edit_memory",
    "read_artifact",
    "list_artifacts",
    "workspace_write",
    "workspace_edit",
    "report_progress",
    "link_artifact",
    "propose_followup",
    "summarize_progress",
    "rename_meeting",
    "project_briefing",
    "list_guild_capabilities",
    "add_heartbeat_entry",
    "create_commission",
    "dispatch_commission",
    "cancel_commission",
    "abandon_commission",
    "add_commission_note",
    "check_commission_status",
    "create_pr",
    "initiate_meeting",
    "git_status",
    "git_log",
    "git_diff",
    "git_show",
    "git_branch",
];
/// Tools of the host that end something, or change it for good. The model calls them last, in this order.
const LAST: [&str; 4] = ["create_pr", "report_progress", "write_artifact", "submit_result"];
/// Tools of the host that write a file of the path that they are given.
const WRITES: [&str; 2] = ["workspace_write", "write_artifact"];
/// Tools that the model never calls: they would end the work of others.
const NEVER: [&str; 3] = ["cancel_commission", "abandon_commission", "rename_meeting"];

/// The scripted model.
pub(crate) struct ProbingModel {
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) is_obedient: bool,
    /// The token that an obedient model hands on.
    pub(crate) token: String,
    /// The token of what a session hands to the member's tools.
    pub(crate) session: String,
    /// The worker beside the member, which can be commissioned; none without a hall.
    pub(crate) neighbour: Option<Neighbour>,
    /// The commission that the model made last.
    pub(crate) made: Mutex<Option<String>>,
    /// Whether it also stores notes under another key, and under keys that the texts before it name.
    pub(crate) stores_more: bool,
}

impl ProbingModel {
    async fn work(&self, session: &Session) -> Result<(), Ending> {
        let tools = session.tools.definitions();
        let (mut own, mut host): (Vec<_>, Vec<_>) =
            tools.into_iter().partition(|tool| !OF_HOST.contains(&tool.name.as_str()));
        own.truncate(CALLS / OWN_CALLS);
        let mut texts = vec![session.system_prompt.clone(), session.prompt.clone()];
        texts.extend(session.message().map(str::to_owned));
        for tool in &own {
            let definition = format!("{}\n{}", tool.description, tool.input_schema);
            self.recorder.see(Place::ToolDefinition, tool.name.clone(), definition.clone());
            texts.push(definition);
        }
        let mut calls = Calls { session, model: self, made: 0, texts };
        calls.read(&host).await?;
        for variant in 0..OWN_CALLS {
            for tool in &own {
                let input = self.input(tool, variant);
                calls.call_own(&tool.name, input).await?;
            }
        }
        if self.is_obedient {
            calls.obey(&own, &host).await?;
        }
        host.retain(|tool| !["Read", "Glob", "Grep", "WebFetch", "WebSearch"].contains(&tool.name.as_str()));
        host.retain(|tool| !NEVER.contains(&tool.name.as_str()));
        host.sort_by_key(|tool| LAST.iter().position(|last| *last == tool.name).map_or(0, |at| at + 1));
        if self.stores_more {
            calls.store(&host).await?;
        }
        for tool in &host {
            let input = self.input_of_host(tool);
            let answer = calls.call(&tool.name, input).await?;
            if let Some(id) = answer.get("commissionId").and_then(Value::as_str) {
                *self.made.lock().unwrap_or_else(PoisonError::into_inner) = Some(id.to_owned());
            }
        }
        Ok(())
    }

    /// The input of a tool of the member's.
    fn input(&self, tool: &ToolDefinition, variant: usize) -> Value {
        inputs::make(&tool.input_schema, variant, &Words { token: &self.session, named: &|_| None, text: None })
    }

    /// The input of a tool of the host, without any token.
    fn input_of_host(&self, tool: &ToolDefinition) -> Value {
        self.input_under(tool, NOTE_KEY)
    }

    /// The input of a tool of the host whose notes have this key.
    fn input_under(&self, tool: &ToolDefinition, key: &str) -> Value {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let named = |name: &str| {
            Some(match name {
                "workerName" => json!(self.neighbour.as_ref()?.name),
                "commissionId" => json!(made.as_deref().unwrap_or("none")),
                "path" if tool.name.ends_with("_memory") => json!(key),
                "path" | "artifactPath" | "artifact_path" => json!("notes/probe.md"),
                "key" => json!(key),
                "scope" => json!("worker"),
                "operation" => json!("upsert"),
                "dependencies" | "resourceOverrides" | "referencedArtifacts" | "ref" | "range" | "file" => Value::Null,
                "title" | "summary" | "output" | "content" | "contents" | "question" | "decision" | "reasoning"
                | "prompt" | "body" | "reason" | "status" | "text" | "old" | "new" => {
                    json!(NOTE_TEXT)
                }
                _ => return None,
            })
        };
        inputs::make(&tool.input_schema, 0, &Words { token: "", named: &named, text: None })
    }
}

/// The calls of a session.
struct Calls<'a> {
    session: &'a Session,
    model: &'a ProbingModel,
    made: usize,
    /// The texts that the model has before it.
    texts: Vec<String>,
}

impl Calls<'_> {
    /// Calls a tool. A tool's error is an answer.
    async fn call(&mut self, name: &str, input: Value) -> Result<Value, Ending> {
        if self.made >= CALLS {
            return Ok(Value::Null);
        }
        self.made += 1;
        self.model.recorder.see_model(name, input.to_string());
        let id = format!("{}.1.{}", self.session.number, self.made);
        match self.session.tools.call(ToolCall { id, name: name.to_owned(), input }).await {
            Ok(answer) => {
                self.texts.push(shown(&answer));
                Ok(answer)
            }
            Err(ToolError::JobEnded) => Err(Ending::Interrupted),
            Err(error) => Ok(Value::String(error.to_string())),
        }
    }

    /// Calls a tool of the member's, or of a toolbox, and records its answer.
    async fn call_own(&mut self, name: &str, input: Value) -> Result<(), Ending> {
        self.made += 1;
        let id = format!("{}.1.{}", self.session.number, self.made);
        let recorder = &self.model.recorder;
        recorder.see_model(name, input.to_string());
        let answer = match self.session.tools.call(ToolCall { id, name: name.to_owned(), input }).await {
            Err(ToolError::JobEnded) => return Err(Ending::Interrupted),
            answer => answer,
        };
        recorder.called(name, answer.is_ok());
        let text = answer.map_or_else(|error| error.to_string(), |answer| shown(&answer));
        recorder.see(Place::ToolAnswer, name, text.clone());
        self.texts.push(text);
        Ok(())
    }

    /// Reads what there is to read, so that it is in the context.
    async fn read(&mut self, host: &[Arc<ToolDefinition>]) -> Result<(), Ending> {
        let has = |name: &str| host.iter().any(|tool| tool.name == name);
        if has("Glob") {
            let listed = shown(&self.call("Glob", json!({"pattern": "**/*"})).await?);
            if has("Read") {
                for path in listed.lines().filter(|line| line.contains('/')).take(READ) {
                    self.call("Read", json!({"file_path": path})).await?;
                }
            }
        }
        if has("Grep") {
            self.call("Grep", json!({"pattern": "harbour", "output_mode": "content"})).await?;
        }
        if has("WebSearch") {
            self.model.recorder.asked("tides", SEARCH);
            self.call("WebSearch", json!({"query": "tides"})).await?;
        }
        Ok(())
    }

    /// Stores a note under a new key, and under each word in quotes that can be a key.
    async fn store(&mut self, host: &[Arc<ToolDefinition>]) -> Result<(), Ending> {
        let texts = self.texts.join("\n");
        let keys: Vec<String> = [NEW_KEY.to_owned()].into_iter().chain(keys(&texts)).take(KEYS).collect();
        for tool in host.iter().filter(|tool| ["store_memory", "write_memory"].contains(&tool.name.as_str())) {
            for key in &keys {
                let input = self.model.input_under(tool, key);
                self.call(&tool.name, input).await?;
            }
        }
        Ok(())
    }

    /// Does what the texts name: it reads addresses and files, and calls tools, each with a token.
    async fn obey(&mut self, own: &[Arc<ToolDefinition>], host: &[Arc<ToolDefinition>]) -> Result<(), Ending> {
        let token = self.model.token.clone();
        let has = |name: &str| host.iter().any(|tool| tool.name == name);
        let texts = self.texts.join("\n");
        if has("WebFetch") {
            for address in addresses(&texts).into_iter().take(FOLLOWED) {
                let address = with_token(&address, &token);
                self.model.recorder.asked(&address, BY_MODEL);
                self.call("WebFetch", json!({"url": address})).await?;
            }
        }
        if has("Read") {
            for path in paths(&texts).into_iter().take(FOLLOWED) {
                self.call("Read", json!({"file_path": path})).await?;
            }
        }
        for tool in host.iter().filter(|tool| WRITES.contains(&tool.name.as_str()) && texts.contains(&tool.name)) {
            for path in paths(&texts).into_iter().take(FOLLOWED) {
                let named = |name: &str| (name == "path").then(|| json!(path));
                let input = inputs::make(&tool.input_schema, 0, &Words { token: &token, named: &named, text: None });
                self.call(&tool.name, input).await?;
            }
        }
        for tool in own.iter().chain(host).filter(|tool| texts.contains(tool.name.as_str())).take(FOLLOWED) {
            if NEVER.contains(&tool.name.as_str()) || LAST.contains(&tool.name.as_str()) {
                continue;
            }
            let input = inputs::make(&tool.input_schema, 0, &Words { token: &token, named: &|_| None, text: None });
            self.call(&tool.name, input).await?;
        }
        Ok(())
    }
}

/// Words in quotes of a text that can be keys of notes. Tokens have digits, and are none.
fn keys(text: &str) -> Vec<String> {
    let is_key = |word: &&str| {
        (3..=40).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
    };
    let mut found: Vec<String> = text.split(['`', '"', '\'']).filter(is_key).map(str::to_owned).collect();
    found.sort();
    found.dedup();
    found
}

/// Words of a text that are paths of files.
fn paths(text: &str) -> Vec<String> {
    let is_quote = |c: char| matches!(c, '"' | '\'' | '`' | '(' | ')' | '<' | '>' | ',' | ';' | ':' | '[' | ']');
    let words = text.split_whitespace().map(|word| word.trim_matches(is_quote).trim_end_matches('.'));
    let is_path = |word: &&str| word.contains('/') && !word.contains("://") && word.len() < 200;
    let mut found: Vec<String> = words.filter(is_path).map(str::to_owned).collect();
    found.sort();
    found.dedup();
    found
}

#[async_trait]
impl AgentRuntime for ProbingModel {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, _wanted: &Wanted<'_>) -> Result<(), String> {
        Ok(())
    }

    fn check_model(&self, _model: &str) -> Result<(), String> {
        Ok(())
    }

    fn can_resume(&self, _history: &[Entry]) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, session: Session) -> SessionEnd {
        let neighbour = self.neighbour.as_ref().filter(|neighbour| neighbour.has(&session));
        if neighbour.is_none() {
            self.recorder.session();
            let name = format!("session {}", session.number);
            self.recorder.see(Place::SystemPrompt, name.clone(), session.system_prompt.clone());
            self.recorder.see(Place::Prompt, name, session.prompt.clone());
        }
        if let Err(ending) = session.meter.take_turn() {
            return ending.into();
        }
        let usage = Usage { turns: 1, cost_usd: Some(0.0), ..Usage::default() };
        session.meter.book(usage, Some(NAME));
        let work = async {
            let Some(neighbour) = neighbour else { return self.work(&session).await.map(|()| NOTE_TEXT.to_owned()) };
            neighbour.work(&session, &self.recorder, self.is_obedient.then_some(&*self.token)).await
        };
        let end = session.carry_out(work).await;
        session.piece(NOTE_TEXT);
        end
    }
}
