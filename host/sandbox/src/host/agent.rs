//! `agent`: sessions that a component starts, and the tools that it answers itself in them.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use guild_contract::{Bounds, Limits, grants::Capability, manifest::Interface};
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
    held::{Held, Memory},
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
    _memory: Memory,
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

/// A tool as a component defines it. The error names the tool whose schema is no JSON object.
pub(crate) fn definition(tool: types::ToolDefinition) -> Result<ToolDefinition, ToolError> {
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

/// The definitions of a component's own tools, if their schemas are within what a plan may have: that is known before
/// they are read.
fn definitions(tools: Vec<types::ToolDefinition>, max: u64) -> Result<Vec<Arc<ToolDefinition>>, ToolError> {
    let size =
        |tool: &types::ToolDefinition| tool.input_schema.len() + tool.output_schema.as_ref().map_or(0, String::len);
    let bytes = tools.iter().map(size).sum::<usize>();
    if bytes as u64 > max {
        return Err(ToolError::OverLimit(format!(
            "the schemas of the session's own tools have {bytes} bytes; limits.plan_bytes allows {max}"
        )));
    }
    tools.into_iter().map(|tool| definition(tool).map(Arc::new)).collect()
}

/// What a component answers, if it is no longer than a tool's result may be: that is known before it is read.
fn result(json: &str, max: u64) -> Result<Value, ToolError> {
    if json.len() as u64 > max {
        let bytes = json.len();
        return Err(ToolError::OverLimit(format!(
            "the content has {bytes} bytes; limits.tool_result_bytes allows {max}"
        )));
    }
    serde_json::from_str(json).map_err(|e| ToolError::InvalidInput(format!("the content is not JSON: {e}")))
}

impl SessionState {
    async fn start(reach: Reach, options: Options, limits: &Limits, held: &Arc<Held>) -> Result<Self, ToolError> {
        reach.granted(Interface::Agent)?;
        if !options.own_tools.is_empty() {
            let line = r#""agent": { "ownTools": true }"#;
            reach.granted_too(reach.grants.own_tools, &Capability::OwnTools, line)?;
        }
        let sessions = reach.sessions.clone().ok_or(ToolError::NoJob)?;
        let bounds = bounds(options.bounds);
        bounds.check().map_err(ToolError::InvalidInput)?;
        let memory = held.memory(kept_for(&options)).map_err(|_| {
            let limit = limits.memory_bytes;
            ToolError::OverLimit(format!(
                "with what the host keeps for the session, limits.memory_bytes = {limit} is reached"
            ))
        })?;
        let (sender, calls) = mpsc::channel(CALLS);
        let definitions = definitions(options.own_tools, limits.plan_bytes)?;
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
        Ok(Self { query, calls, waiting: HashMap::new(), next: None, ended: false, _memory: memory })
    }
}

/// Bytes that the host keeps for a session for as long as the component has it.
fn kept_for(options: &Options) -> u64 {
    let tools = options.own_tools.iter().map(|tool| tool.name.len() + tool.description.len() + tool.input_schema.len());
    (options.prompt.len() + options.system_prompt.len() + tools.sum::<usize>()) as u64
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
        match SessionState::start(self.reach.clone(), options, &self.limits, &self.held).await {
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
        let waiting = match session.waiting.entry(call) {
            Entry::Occupied(waiting) => waiting,
            Entry::Vacant(none) => {
                let why = format!("no call {:?} waits for an answer", none.key());
                return Ok(Err(types::HostError::InvalidInput(why)));
            }
        };
        let content = match content {
            Ok(json) => match result(&json, self.limits.tool_result_bytes) {
                Ok(value) => Ok(value),
                // It waits still, and can be answered otherwise.
                Err(e) => return Ok(Err(e.into())),
            },
            Err(text) => Err(ToolError::Unavailable(text)),
        };
        // The session may have gone on without the answer, after an interrupt: that is no error of the plugin.
        let _ = waiting.remove().send(content);
        Ok(Ok(()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_exactly_the_limit_is_read_and_one_byte_more_is_not() {
        assert_eq!(result("[1,2]", 5), Ok(serde_json::json!([1, 2])));
        // It is not JSON either, but nobody looked.
        let over = result("[1,2,}", 5).unwrap_err();
        assert!(
            matches!(&over, ToolError::OverLimit(why) if why.contains("limits.tool_result_bytes allows 5")),
            "{over}"
        );
        assert!(matches!(result("[1,}", 5), Err(ToolError::InvalidInput(_))));
    }

    #[test]
    fn the_schemas_of_own_tools_are_summed_before_they_are_read() {
        let tool = |schema: &str| types::ToolDefinition {
            name: "t".to_owned(),
            title: None,
            description: String::new(),
            input_schema: schema.to_owned(),
            output_schema: Some("{}".to_owned()),
            read_only: true,
        };
        assert_eq!(definitions(vec![tool("{}"), tool("{}")], 8).unwrap().len(), 2);
        let over = definitions(vec![tool("{}"), tool("no!")], 8).unwrap_err();
        assert!(matches!(&over, ToolError::OverLimit(why) if why.contains("limits.plan_bytes allows 8")), "{over}");
        assert!(matches!(definitions(vec![tool("no!")], 8), Err(ToolError::InvalidInput(_))));
    }
}
