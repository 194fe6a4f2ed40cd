//! Implements `agent`: sessions that a component starts, and the tools that it answers itself in them.

use std::{collections::hash_map::Entry, future::poll_fn, mem, sync::Arc, task::Poll, time::Duration};

use guild_contract::{
    Limits,
    capability::{AGENT, OWN_TOOLS},
    json::parsed_bytes,
};
use guild_session::{
    meter::Ending as End,
    session::{Query, QueryEvent},
    tools::ToolError,
};
use tokio::time;
use wasmtime::component::Resource;

use super::{
    HostResult,
    bindings::guild::worker::{
        agent::{Ending, Event, Finish, Host, HostSession, Options, Step, ToolCall, Usage},
        types,
    },
    exports::bounds,
    head,
};
use crate::{
    call::tools::WrittenTool,
    state::{CallContext, State},
    usage::{Memory, ResourceUsage},
    versions::component_session::{OwnCall, OwnToolResult, OwnTools, SessionEvent, SessionState},
};

/// How long to wait for the memory of dropped sessions that are about to end, and the pause between two attempts.
const GRACE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);
/// The bytes of a name besides its characters.
const NAME_BYTES: usize = 64;
/// The copies of a schema in memory: as it was read, and as it is sent to a model.
const COPIES: u64 = 2;

/// An event of a session, as WIT has it.
fn to_wit(event: SessionEvent) -> Event {
    match event {
        SessionEvent::Call(OwnCall { id, name, input }) => Event::Call(ToolCall { id, name, input }),
        SessionEvent::Query(QueryEvent::Text(text)) => Event::Text(text),
        SessionEvent::Query(QueryEvent::Finished(end, used)) => {
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

/// Refuses a request that is larger than a plan may be.
fn within_plan(options: &Options, tools: &[WrittenTool], max: u64) -> Result<(), ToolError> {
    let tools = tools.iter().map(WrittenTool::text_bytes).sum::<usize>();
    let bytes = options.prompt.len() + options.system_prompt.len() + tools;
    if bytes as u64 > max {
        return Err(ToolError::OverLimit(format!(
            "the session's prompts and tools have {bytes} bytes; {} allows {max}",
            Limits::cited("plan_bytes")
        )));
    }
    Ok(())
}

/// Bytes that the host keeps for a session until it ends.
fn kept_for(options: &Options, tools: &[WrittenTool]) -> u64 {
    let names = options.tools.iter().chain(&options.model).map(|name| NAME_BYTES + name.len()).sum::<usize>();
    let tools = tools.iter().map(WrittenTool::memory_bytes).sum::<u64>();
    (options.prompt.len() + options.system_prompt.len() + names) as u64 + COPIES * tools
}

fn memory_is_full(what: &str, limits: &Limits) -> ToolError {
    let limit = limits.memory_bytes;
    ToolError::OverLimit(format!("with what the host keeps for {what}, limits.memory_bytes = {limit} is reached"))
}

/// Takes memory for a session. Sessions that were just dropped are about to free theirs.
async fn memory(bytes: u64, limits: &Limits, usage: &Arc<ResourceUsage>) -> Result<Memory, ToolError> {
    let until = time::Instant::now() + GRACE;
    loop {
        match usage.memory(bytes) {
            Ok(memory) => return Ok(memory),
            Err(_) if bytes < limits.memory_bytes && time::Instant::now() < until => time::sleep(PAUSE).await,
            Err(_) => return Err(memory_is_full("the session", limits)),
        }
    }
}

/// A component's answer, if it is within the size of a tool's result and there is memory for it. Both are checked
/// before it is parsed.
fn result(json: &str, limits: &Limits, usage: &Arc<ResourceUsage>) -> OwnToolResult {
    let (bytes, max) = (json.len(), limits.tool_result_bytes);
    if bytes as u64 > max {
        return Err(ToolError::OverLimit(format!(
            "the content has {bytes} bytes; {} allows {max}",
            Limits::cited("tool_result_bytes")
        )));
    }
    let memory = usage.memory(parsed_bytes(json.as_bytes())).map_err(|_| memory_is_full("the content", limits))?;
    let read = serde_json::from_str(json).map_err(|e| ToolError::InvalidInput(format!("the content is not JSON: {e}")));
    Ok((read?, memory))
}

/// Starts a session.
async fn start(
    context: CallContext,
    mut options: Options,
    limits: &Limits,
    usage: &Arc<ResourceUsage>,
) -> Result<SessionState, ToolError> {
    context.granted(&AGENT)?;
    let tools: Vec<WrittenTool> = mem::take(&mut options.own_tools).into_iter().map(Into::into).collect();
    if !tools.is_empty() {
        context.granted(&OWN_TOOLS)?;
    }
    let sessions = context.sessions.clone().ok_or_else(|| context.no_job("agent.query"))?;
    let bounds = bounds(options.bounds);
    bounds.check().map_err(ToolError::InvalidInput)?;
    within_plan(&options, &tools, limits.plan_bytes)?;
    // The memory is taken before any part of the request is parsed.
    let memory = Arc::new(memory(kept_for(&options, &tools), limits, usage).await?);
    let definitions = tools.into_iter().map(|tool| tool.read().map(Arc::new));
    let definitions = definitions.collect::<Result<_, _>>()?;
    let (own_tools, calls) = OwnTools::new(definitions, memory.clone());
    let query = sessions
        .start(Query {
            prompt: options.prompt,
            system_prompt: options.system_prompt,
            tools: options.tools,
            job_tools: options.job_tools,
            own_tools: Arc::new(own_tools),
            model: options.model,
            bounds,
        })
        .await?;
    Ok(SessionState::new(query, calls, memory))
}

impl Host for State {
    async fn query(&mut self, options: Options) -> HostResult<Resource<SessionState>> {
        match start(self.context.clone(), options, &self.limits, &self.usage).await {
            Ok(session) => Ok(Ok(self.table.push(session)?)),
            Err(e) => Ok(Err(e.into())),
        }
    }

    async fn wait(&mut self, sessions: Vec<Resource<SessionState>>) -> wasmtime::Result<Vec<u32>> {
        if sessions.is_empty() {
            return Ok(Vec::new());
        }
        poll_fn(|context| {
            let mut ready = Vec::new();
            for (session, position) in sessions.iter().zip(0..) {
                if self.table.get_mut(session)?.poll_ready(context).is_ready() {
                    ready.push(position);
                }
            }
            if ready.is_empty() { Poll::Pending } else { Poll::Ready(Ok(ready)) }
        })
        .await
    }
}

impl HostSession for State {
    async fn next(&mut self, session: Resource<SessionState>) -> HostResult<Step> {
        let session = self.table.get_mut(&session)?;
        if session.ended {
            return Ok(Ok(Step::Ended));
        }
        Ok(Ok(session.next().map_or(Step::Pending, |event| Step::Event(to_wit(event)))))
    }

    async fn answer(
        &mut self,
        session: Resource<SessionState>,
        call: String,
        content: Result<String, String>,
    ) -> HostResult<()> {
        let session = self.table.get_mut(&session)?;
        let waiting = match session.waiting.entry(call) {
            Entry::Occupied(waiting) => waiting,
            Entry::Vacant(none) => {
                let why = format!("no call {:?} waits for an answer", head(none.key()));
                return Ok(Err(types::HostError::InvalidInput(why)));
            }
        };
        let content = match content {
            Ok(json) => match result(&json, &self.limits, &self.usage) {
                Ok(answer) => Ok(answer),
                // The call still waits, and can get another answer.
                Err(e) => return Ok(Err(e.into())),
            },
            Err(text) => Err(ToolError::Unavailable(text)),
        };
        // After an interrupt the session may have continued without the answer, which is no error of the plugin.
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
    use crate::call::tools::TOOL_BYTES;

    fn usage(limits: &Limits) -> Arc<ResourceUsage> {
        ResourceUsage::new(limits, Arc::default(), None)
    }

    #[test]
    fn an_answer_of_exactly_the_limit_is_read_and_one_byte_more_is_not() {
        let limits = Limits { tool_result_bytes: 5, ..Limits::default() };
        let usage = usage(&limits);
        assert_eq!(result("[1,2]", &limits, &usage).unwrap().0, serde_json::json!([1, 2]));
        // It is not JSON either, but the size is checked first.
        let over = result("[1,2,}", &limits, &usage).err().unwrap();
        assert!(
            matches!(&over, ToolError::OverLimit(why) if why.contains("the fixed limit tool_result_bytes allows 5")),
            "{over}"
        );
        assert!(matches!(result("[1,}", &limits, &usage), Err(ToolError::InvalidInput(_))));
        let little = Limits { memory_bytes: 200, ..Limits::default() };
        let over = result("[1,2]", &little, &self::usage(&little)).err().unwrap();
        assert!(matches!(&over, ToolError::OverLimit(why) if why.contains("limits.memory_bytes = 200")), "{over}");
    }

    fn options() -> Options {
        Options {
            prompt: "ab".to_owned(),
            system_prompt: "c".to_owned(),
            tools: Vec::new(),
            job_tools: false,
            own_tools: Vec::new(),
            model: None,
            bounds: types::Bounds { max_turns: None, max_budget_usd: None, deadline_seconds: None },
        }
    }

    fn tool(schema: &str) -> WrittenTool {
        WrittenTool {
            name: "t".to_owned(),
            title: Some("title".to_owned()),
            description: String::new(),
            input_schema: schema.to_owned(),
            output_schema: Some("{}".to_owned()),
            read_only: true,
        }
    }

    #[test]
    fn all_that_a_session_says_of_its_tools_is_summed_before_it_is_read() {
        let two = [tool("{}"), tool("no!")];
        assert_eq!(within_plan(&options(), &two, 24), Ok(()));
        let over = within_plan(&options(), &two, 23).unwrap_err();
        assert!(
            matches!(&over, ToolError::OverLimit(why) if why.contains("the fixed limit plan_bytes allows 23")),
            "{over}"
        );
        assert!(matches!(two[1].clone().read(), Err(ToolError::InvalidInput(_))));
    }

    #[test]
    fn a_schema_is_kept_as_what_it_takes_once_it_is_read() {
        let plain = kept_for(&options(), &[tool("{}")]);
        let many = format!("{{\"enum\":[{}]}}", vec!["{\"a\":0}"; 1000].join(","));
        let more = kept_for(&options(), &[tool(&many)]) - plain;
        assert!(more > 50 * many.len() as u64, "{more} bytes for {} of text", many.len());
        let title = WrittenTool { title: Some("t".repeat(1000)), ..tool("{}") };
        assert!(title.memory_bytes() > 1000 + TOOL_BYTES as u64);
    }

    #[tokio::test]
    async fn memory_that_is_given_back_in_a_moment_is_waited_for() {
        let limits = Limits { memory_bytes: 1000, ..Limits::default() };
        let usage = usage(&limits);
        let first = memory(900, &limits, &usage).await.unwrap();
        let second = memory(900, &limits, &usage);
        tokio::pin!(second);
        assert!(time::timeout(Duration::ZERO, second.as_mut()).await.is_err());
        drop(first);
        drop(second.await.unwrap());
        assert!(memory(1001, &limits, &usage).await.is_err());
    }
}
