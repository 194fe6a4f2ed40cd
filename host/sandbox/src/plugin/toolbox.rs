//! Lists a component's tools once, when it is loaded, and calls each in a fresh instance.

use std::{collections::HashSet, sync::Arc, thread, time::Duration};

use guild_contract::{Limits, json::parsed_bytes};
use guild_session::tools::ToolDefinition;
use guild_telemetry::record;
use serde_json::Value;
use tokio::time;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    call::{ToolFault, ToolScope, tools::WrittenTool},
    engine::queues::{LISTINGS, Listings, Queue},
    error::{CallError, LoadError},
    log::{HostLog, LogSink},
    state::CallContext,
};

use super::{Deadline, Plugin, cut, noted};

/// The export `toolbox` of a component.
pub(crate) struct Toolbox {
    tools: Vec<Arc<ToolDefinition>>,
    calls: Queue,
    listings: Listings,
}

/// A component that is ready to be called, except that its tools are not listed yet.
pub struct Unlisted(pub(crate) Plugin);

/// The bytes of a tool's error that a caller sees.
const FAULT_BYTES: usize = 8 * 1024;
/// The most bytes of a tool's name that agents accept.
const NAME_BYTES: usize = 64;

impl Toolbox {
    /// The export, whose tools are not known yet.
    pub(crate) fn new(calls: Queue, listings: Listings) -> Self {
        Self { tools: Vec::new(), calls, listings }
    }
}

impl Unlisted {
    /// The SHA-256 of its component, in lower-case hexadecimal.
    pub fn sha256(&self) -> &str {
        self.0.sha256()
    }

    /// Lets the component list its tools, and checks them. This does not block, and may wait for other listings.
    ///
    /// # Errors
    /// [`LoadError::Tools`].
    pub async fn listed(self) -> Result<Plugin, LoadError> {
        let guests = self.0.sandbox.guests.clone();
        let listed = AbortOnDropHandle::new(guests.spawn(self.list())).await;
        listed.unwrap_or_else(|_| Err(LoadError::Tools("listing them failed".to_owned())))
    }

    /// Lists the tools like [`Self::listed`], where blocking is allowed.
    ///
    /// # Errors
    /// [`LoadError::Tools`].
    pub fn with_tools(self) -> Result<Plugin, LoadError> {
        let guests = self.0.sandbox.guests.clone();
        // The caller's thread may not be allowed to block on other work.
        thread::scope(|scope| {
            let listing = thread::Builder::new().name("list-tools".to_owned());
            let listing = listing.spawn_scoped(scope, || guests.block_on(self.list()));
            let listing = listing.map_err(|e| LoadError::Tools(format!("no thread to list them: {e}")))?;
            listing.join().unwrap_or_else(|_| Err(LoadError::Tools("listing them failed".to_owned())))
        })
    }

    async fn list(self) -> Result<Plugin, LoadError> {
        let mut plugin = self.0;
        let Some(toolbox) = &plugin.toolbox else { return Ok(plugin) };
        let listed = plugin.list_tools(toolbox).await.map_err(|e| LoadError::Tools(e.to_string()))?;
        let tools = checked(listed, &plugin.limits).map_err(LoadError::Tools)?;
        if let Some(toolbox) = &mut plugin.toolbox {
            toolbox.tools = tools;
        }
        Ok(plugin)
    }
}

impl Plugin {
    /// Whether it exports `toolbox`.
    pub fn is_toolbox(&self) -> bool {
        self.toolbox.is_some()
    }

    /// Its tools, in the component's order, as they were listed when it was loaded. A component without `toolbox` has
    /// none.
    pub fn tools(&self) -> &[Arc<ToolDefinition>] {
        self.toolbox.as_ref().map_or(&[], |toolbox| &toolbox.tools)
    }

    async fn list_tools(&self, toolbox: &Toolbox) -> Result<Vec<WrittenTool>, CallError> {
        let whole = Duration::from_secs(self.limits.list_tools_seconds.into());
        for ((tried_for, _), queue) in LISTINGS.iter().zip(&toolbox.listings) {
            let _permit = queue.permit().await;
            let listing = self.list_tools_here();
            if *tried_for >= whole {
                return listing.await;
            }
            if let Ok(listed) = time::timeout(*tried_for, listing).await {
                return listed;
            }
            tracing::debug!(member = %self.member, "`list-tools` takes long: it starts again in the next queue");
        }
        Err(CallError::Cancelled)
    }

    async fn list_tools_here(&self) -> Result<Vec<WrittenTool>, CallError> {
        let log = LogSink::Host(Arc::new(HostLog::new(self.member.clone(), None)));
        let context = CallContext::new(&self.grants, log);
        let deadline =
            Deadline { seconds: self.limits.list_tools_seconds, source: Limits::cited("list_tools_seconds") };
        let mut call = self.call("list-tools", deadline, Vec::new(), None, context);
        call.bounded(async |store, instance| self.exports.list_tools(store, instance).await).await
    }

    /// Calls a tool in a fresh instance, within `limits.call_tool_seconds`. The call first waits in a bounded queue
    /// until [`ToolScope::wait_until`]; that time does not count. The inner error is the component's own.
    ///
    /// The caller has checked the input against the tool's schema.
    ///
    /// # Errors
    /// See [`CallError`]. Output that is no JSON is `Invalid`, and output of more than `limits.tool_result_bytes` is
    /// `Limit`.
    pub async fn call_tool(
        self: &Arc<Self>,
        name: &str,
        input: &Value,
        scope: ToolScope,
    ) -> Result<Result<Value, ToolFault>, CallError> {
        let none = || CallError::Invalid { call: CALL_TOOL, why: "the component exports no `toolbox`".to_owned() };
        let toolbox = self.toolbox.as_ref().ok_or_else(none)?;
        let Some(tool) = toolbox.tools.iter().find(|tool| tool.name == name).cloned() else {
            return Ok(Err(ToolFault::UnknownTool(name.to_owned())));
        };
        let permit = time::timeout_at(scope.wait_until.into(), toolbox.calls.permit()).await;
        let Ok(permit) = permit else {
            record::limit_reached("call_tool_wait_seconds");
            return Err(CallError::Busy(self.limits.call_tool_wait_seconds));
        };
        let (this, input) = (self.clone(), input.to_string());
        let called = self.begun_here(CALL_TOOL, async move {
            let _permit = permit;
            this.call_tool_here(&tool, input, scope).await
        });
        let answer = called.await;
        if let Err(error) = &answer {
            tracing::warn!(member = %self.member, tool = name, "{error}");
        }
        answer
    }

    async fn call_tool_here(
        &self,
        tool: &Arc<ToolDefinition>,
        input: String,
        scope: ToolScope,
    ) -> Result<Result<Value, ToolFault>, CallError> {
        let invalid = |why: String| CallError::Invalid { call: CALL_TOOL, why };
        let log = LogSink::Host(Arc::new(HostLog::new(self.member.clone(), Some(tool.clone()))));
        let context = CallContext {
            memory: Some(scope.memory.into()),
            files: scope.files,
            web: Some((scope.web, scope.host)),
            environment: scope.environment,
            ..CallContext::new(&self.grants, log)
        };
        let uses = context.uses.clone();
        let preopens = self.memory_preopen(CALL_TOOL, &context)?;
        let deadline = Deadline { seconds: self.limits.call_tool_seconds, source: "limits.call_tool_seconds" };
        let mut call = self.call(CALL_TOOL, deadline, preopens, None, context);
        let answer =
            call.bounded(async |store, instance| self.exports.call_tool(store, instance, &tool.name, input).await);
        let answer = answer.await;
        if let Some(tell) = scope.tell_uses {
            tell(uses.take());
        }
        let answer = answer?;
        let no_job = call.no_job_note();
        // Its resources are freed before its answer is parsed.
        drop(call);
        match answer {
            Ok(output) => {
                let max = self.limits.tool_result_bytes;
                if output.len() as u64 > max {
                    let (limit, bytes) = (Limits::cited("tool_result_bytes"), output.len());
                    let limit = format!("{limit} = {max} for its output of {bytes} bytes");
                    return Err(CallError::Limit { call: CALL_TOOL, limit });
                }
                let (kept, max) = (parsed_bytes(output.as_bytes()), self.limits.memory_bytes);
                if kept > max {
                    let limit =
                        format!("limits.memory_bytes = {max} for its output, which takes {kept} bytes when it is read");
                    return Err(CallError::Limit { call: CALL_TOOL, limit });
                }
                let output = serde_json::from_str(&output);
                Ok(Ok(output.map_err(|e| invalid(format!("its output is not JSON: {e}")))?))
            }
            Err(ToolFault::UnknownTool(text)) => Ok(Err(ToolFault::UnknownTool(cut(text, FAULT_BYTES)))),
            Err(ToolFault::InvalidInput(text)) => Ok(Err(ToolFault::InvalidInput(cut(text, FAULT_BYTES)))),
            Err(ToolFault::Failed(text)) => Ok(Err(ToolFault::Failed(noted(cut(text, FAULT_BYTES), no_job)))),
        }
    }
}

const CALL_TOOL: &str = "call-tool";

/// The definitions that a component listed, if they can be offered unchanged; the error names the invalid one.
fn checked(listed: Vec<WrittenTool>, limits: &Limits) -> Result<Vec<Arc<ToolDefinition>>, String> {
    if listed.len() > limits.tools as usize {
        let (limit, most) = (Limits::cited("tools"), limits.tools);
        return Err(format!("it has {} tools, more than {limit} = {most}", listed.len()));
    }
    let bytes: usize = listed.iter().map(WrittenTool::text_bytes).sum();
    if bytes as u64 > limits.tools_bytes {
        let (limit, max) = (Limits::cited("tools_bytes"), limits.tools_bytes);
        return Err(format!("the definitions of its tools have {bytes} bytes, more than {limit} = {max}"));
    }
    let kept = listed.iter().map(WrittenTool::memory_bytes).sum::<u64>();
    if kept > limits.memory_bytes {
        let max = limits.memory_bytes;
        return Err(format!(
            "the definitions of its tools take {kept} bytes when they are read, more than limits.memory_bytes = {max}"
        ));
    }
    let mut names = HashSet::new();
    for tool in &listed {
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !(1..=NAME_BYTES).contains(&tool.name.len()) || !tool.name.bytes().all(sound) {
            let name = cut(tool.name.clone(), 2 * NAME_BYTES);
            return Err(format!("a tool's name is 1 to {NAME_BYTES} letters, digits, '-' or '_': {name:?} is not"));
        }
        if !names.insert(&tool.name) {
            return Err(format!("it names the tool {:?} twice", tool.name));
        }
    }
    listed.into_iter().map(|tool| offered(tool).map(Arc::new)).collect()
}

/// A definition whose schemas are those of objects. Clients of MCP refuse all tools if one has another schema.
fn offered(tool: WrittenTool) -> Result<ToolDefinition, String> {
    let tool = tool.read().map_err(|e| e.to_string())?;
    for (what, schema) in [("input", Some(&tool.input_schema)), ("output", tool.output_schema.as_ref())] {
        if schema.is_some_and(|schema| schema.get("type").and_then(Value::as_str) != Some("object")) {
            return Err(format!("the {what} schema of the tool {:?} must say `\"type\": \"object\"`", tool.name));
        }
    }
    Ok(tool)
}
