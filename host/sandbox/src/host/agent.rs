//! `agent`: sessions that a component starts, and the tools that it answers itself in them.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use guild_contract::{Bounds, grants::Capability, manifest::Interface};
use guild_jobs::{
    session::{Ending as End, Query, QueryEvent, QueryHandle},
    tools::{ToolDefinition, ToolError, Tools},
};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use wasmtime::component::Resource;
use wasmtime_wasi::{
    async_trait,
    p2::{DynPollable, Pollable, subscribe},
};

use super::Answer;
use crate::{
    bindings::guild::worker::{
        agent::{Ending, Event, Finish, Host, HostSession, Options, Step, ToolCall, Usage},
        types,
    },
    state::{Reach, State},
};

/// Calls to a component's own tools that wait for it at a time; further ones wait in the session.
const CALLS: usize = 16;

/// The host's side of a `session`.
#[allow(unreachable_pub, reason = "the generated bindings re-export it, in a module that is private")]
pub struct SessionState {
    query: QueryHandle,
    calls: mpsc::Receiver<OwnCall>,
    waiting: HashMap<String, oneshot::Sender<Result<Value, ToolError>>>,
    next: Option<Event>,
    ended: bool,
}

/// A call of the session to a tool that the component answers.
struct OwnCall {
    call: ToolCall,
    reply: oneshot::Sender<Result<Value, ToolError>>,
}

/// The component's own tools, as its session sees them.
struct OwnTools {
    definitions: Vec<Arc<ToolDefinition>>,
    calls: mpsc::Sender<OwnCall>,
    ids: AtomicU64,
}

#[async_trait]
impl Tools for OwnTools {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        self.definitions.clone()
    }

    async fn call(&self, call: guild_jobs::tools::ToolCall) -> Result<Value, ToolError> {
        let gone = |_| ToolError::Unavailable("the plugin no longer answers its tools".to_owned());
        let id = self.ids.fetch_add(1, Ordering::Relaxed).to_string();
        let (reply, answer) = oneshot::channel();
        let call = ToolCall { id, name: call.name, input: call.input.to_string() };
        self.calls.send(OwnCall { call, reply }).await.map_err(|_| gone(()))?;
        answer.await.map_err(|_| gone(()))?
    }
}

impl SessionState {
    fn from_query(event: QueryEvent) -> Event {
        match event {
            QueryEvent::Text(text) => Event::Text(text),
            QueryEvent::Finished(end, used) => {
                let (ending, text) = match end.ending {
                    End::Success => (Ending::Success, end.text),
                    End::MaxTurns => (Ending::MaxTurns, end.text),
                    End::MaxBudget => (Ending::MaxBudget, end.text),
                    End::Deadline => (Ending::Deadline, end.text),
                    End::Interrupted => (Ending::Interrupted, end.text),
                    End::Error(why) => (Ending::Error, why),
                };
                let usage = Usage {
                    turns: used.turns,
                    input_tokens: used.input_tokens,
                    cached_tokens: used.cached_tokens,
                    output_tokens: used.output_tokens,
                    cost_usd: used.cost_usd,
                };
                Event::Finished(Finish { ending, text, usage })
            }
        }
    }

    fn take_call(&mut self, call: OwnCall) -> Event {
        self.waiting.insert(call.call.id.clone(), call.reply);
        Event::Call(call.call)
    }

    /// The next event if there is one already. A session that went away without an end has failed.
    fn poll_next(&mut self) -> Option<Event> {
        if let Some(event) = self.next.take() {
            return Some(event);
        }
        if let Ok(call) = self.calls.try_recv() {
            return Some(self.take_call(call));
        }
        match self.query.events.try_recv() {
            Ok(event) => Some(Self::from_query(event)),
            Err(mpsc::error::TryRecvError::Empty) => None,
            Err(mpsc::error::TryRecvError::Disconnected) => Some(lost()),
        }
    }
}

fn lost() -> Event {
    let usage = Usage { turns: 0, input_tokens: 0, cached_tokens: 0, output_tokens: 0, cost_usd: None };
    Event::Finished(Finish { ending: Ending::Error, text: "the session ended without a result".to_owned(), usage })
}

#[async_trait]
impl Pollable for SessionState {
    async fn ready(&mut self) {
        if self.next.is_some() || self.ended {
            return;
        }
        let event = tokio::select! {
            Some(call) = self.calls.recv() => self.take_call(call),
            event = self.query.events.recv() => event.map_or_else(lost, Self::from_query),
        };
        self.next = Some(event);
    }
}

fn definition(tool: types::ToolDefinition) -> Result<ToolDefinition, ToolError> {
    let schema = |what: &str, text: &str| {
        serde_json::from_str::<Value>(text)
            .ok()
            .filter(Value::is_object)
            .ok_or_else(|| ToolError::InvalidInput(format!("{what} of the tool {:?} is no JSON object", tool.name)))
    };
    Ok(ToolDefinition {
        input_schema: schema("the input schema", &tool.input_schema)?,
        output_schema: tool.output_schema.as_deref().map(|text| schema("the output schema", text)).transpose()?,
        name: tool.name,
        title: tool.title,
        description: tool.description,
        read_only: tool.read_only,
    })
}

impl SessionState {
    async fn start(reach: Reach, options: Options) -> Result<Self, ToolError> {
        reach.granted(Interface::Agent)?;
        if !options.own_tools.is_empty() {
            let line = r#""agent": { "ownTools": true }"#;
            reach.granted_too(reach.grants.own_tools, &Capability::OwnTools, line)?;
        }
        let sessions = reach.sessions.clone().ok_or(ToolError::NoJob)?;
        let bounds = bounds(options.bounds);
        bounds.check().map_err(ToolError::InvalidInput)?;
        let (sender, calls) = mpsc::channel(CALLS);
        let definitions =
            options.own_tools.into_iter().map(|tool| definition(tool).map(Arc::new)).collect::<Result<_, _>>()?;
        let own_tools = Arc::new(OwnTools { definitions, calls: sender, ids: AtomicU64::new(1) });
        let query = sessions
            .start(Query {
                prompt: options.prompt,
                system_prompt: options.system_prompt,
                tools: options.tools,
                job_tools: options.job_tools,
                own_tools,
                model: options.model,
                bounds,
            })
            .await?;
        Ok(Self { query, calls, waiting: HashMap::new(), next: None, ended: false })
    }
}

/// Bounds as a component writes them.
pub(crate) fn bounds(bounds: types::Bounds) -> Bounds {
    Bounds {
        max_turns: bounds.max_turns,
        max_budget_usd: bounds.max_budget_usd,
        deadline_seconds: bounds.deadline_seconds,
    }
}

impl Host for State {
    async fn query(&mut self, options: Options) -> Answer<Resource<SessionState>> {
        match SessionState::start(self.reach.clone(), options).await {
            Ok(session) => Ok(Ok(self.table.push(session)?)),
            Err(e) => Ok(Err(e.into())),
        }
    }
}

impl HostSession for State {
    async fn subscribe(&mut self, session: Resource<SessionState>) -> wasmtime::Result<Resource<DynPollable>> {
        subscribe(&mut self.table, session)
    }

    async fn next(&mut self, session: Resource<SessionState>) -> Answer<Step> {
        let session = self.table.get_mut(&session)?;
        if session.ended {
            return Ok(Ok(Step::Ended));
        }
        Ok(Ok(match session.poll_next() {
            Some(event) => {
                session.ended = matches!(event, Event::Finished(_));
                Step::Event(event)
            }
            None => Step::Pending,
        }))
    }

    async fn answer(
        &mut self,
        session: Resource<SessionState>,
        call: String,
        content: Result<String, String>,
    ) -> Answer<()> {
        let session = self.table.get_mut(&session)?;
        let content = match content {
            Ok(json) => match serde_json::from_str(&json) {
                Ok(value) => Ok(value),
                Err(e) => return Ok(Err(types::HostError::InvalidInput(format!("the content is not JSON: {e}")))),
            },
            Err(text) => Err(ToolError::Unavailable(text)),
        };
        Ok(match session.waiting.remove(&call) {
            // The session may have gone on without the answer, after an interrupt: that is no error of the plugin.
            Some(reply) => {
                let _ = reply.send(content);
                Ok(())
            }
            None => Err(types::HostError::InvalidInput(format!("no call {call:?} waits for an answer"))),
        })
    }

    async fn interrupt(&mut self, session: Resource<SessionState>) -> wasmtime::Result<()> {
        self.table.get(&session)?.query.interrupt.cancel();
        Ok(())
    }

    async fn drop(&mut self, session: Resource<SessionState>) -> wasmtime::Result<()> {
        self.table.delete(session)?;
        Ok(())
    }
}
