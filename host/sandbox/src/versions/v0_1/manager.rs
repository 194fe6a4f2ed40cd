//! Implements `manager`: the tools of the manager's sessions, for its component.

use guild_contract::capability::MANAGER;
use guild_session::tools::{ToolCall, ToolError};
use serde_json::{Value, json};

use super::{
    HostResult,
    bindings::guild::worker::manager::{Dispatched, Host, NewCommission},
};
use crate::{call::on_host, state::State};

/// Calls a tool of the manager on the host's runtime. `function` is its name in WIT. A component that carries its job
/// out is not resumed after a crash, so the number of a call within its job identifies it.
async fn call(state: &mut State, function: &'static str, tool: &str, input: Value) -> Result<Value, ToolError> {
    state.context.granted(&MANAGER)?;
    let (tools, host) = state.context.manager.clone().ok_or_else(|| state.context.no_job(function))?;
    state.manager_calls += 1;
    let call = ToolCall { id: format!("component {}", state.manager_calls), name: tool.to_owned(), input };
    on_host(&host, "the hall could not be asked", async move { tools.call(call).await }).await
}

fn text(answer: &Value, key: &str) -> Option<String> {
    answer.get(key).and_then(Value::as_str).map(str::to_owned)
}

/// The reason that a commission waits, and its bounds that were cut.
fn reason(answer: &Value) -> Option<String> {
    let cut = answer.get("cut").and_then(Value::as_array).into_iter().flatten();
    let all: Vec<String> =
        text(answer, "reason").into_iter().chain(cut.filter_map(|cut| cut.as_str().map(str::to_owned))).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// The result of a dispatch, from the answer of a tool.
fn dispatched(answer: Result<Value, ToolError>) -> HostResult<Dispatched> {
    Ok(answer.map_err(Into::into).map(|answer| Dispatched {
        commission: text(&answer, "commissionId").unwrap_or_default(),
        status: text(&answer, "status").unwrap_or_default(),
        reason: reason(&answer),
    }))
}

fn done(answer: Result<Value, ToolError>) -> HostResult<()> {
    Ok(answer.map(drop).map_err(Into::into))
}

impl Host for State {
    async fn create_commission(&mut self, new: NewCommission) -> HostResult<Dispatched> {
        let NewCommission { title, worker_name, prompt, dependencies, model, max_turns, max_budget_usd, dispatch } =
            new;
        let overrides = json!({"model": model, "maxTurns": max_turns, "maxBudgetUsd": max_budget_usd});
        let input = json!({
            "title": title, "workerName": worker_name, "prompt": prompt, "dependencies": dependencies,
            "resourceOverrides": overrides, "dispatch": dispatch,
        });
        dispatched(call(self, "manager.create-commission", "create_commission", input).await)
    }

    async fn dispatch_commission(&mut self, id: String) -> HostResult<Dispatched> {
        let input = json!({"commissionId": id});
        dispatched(call(self, "manager.dispatch-commission", "dispatch_commission", input).await)
    }

    async fn cancel_commission(&mut self, id: String) -> HostResult<()> {
        let input = json!({"commissionId": id});
        done(call(self, "manager.cancel-commission", "cancel_commission", input).await)
    }

    async fn abandon_commission(&mut self, id: String, reason: String) -> HostResult<()> {
        let input = json!({"commissionId": id, "reason": reason});
        done(call(self, "manager.abandon-commission", "abandon_commission", input).await)
    }

    async fn add_commission_note(&mut self, id: String, content: String) -> HostResult<()> {
        let input = json!({"commissionId": id, "content": content});
        done(call(self, "manager.add-commission-note", "add_commission_note", input).await)
    }

    async fn create_pr(&mut self, title: String, body: String) -> HostResult<String> {
        let made = call(self, "manager.create-pr", "create_pr", json!({"title": title, "body": body})).await;
        Ok(made.map(|made| text(&made, "url").unwrap_or_default()).map_err(Into::into))
    }

    async fn initiate_meeting(
        &mut self,
        worker_name: String,
        reason: String,
        artifacts: Vec<String>,
    ) -> HostResult<String> {
        let input = json!({"workerName": worker_name, "reason": reason, "referencedArtifacts": artifacts});
        let asked = call(self, "manager.initiate-meeting", "initiate_meeting", input).await;
        Ok(asked.map(|asked| text(&asked, "meetingId").unwrap_or_default()).map_err(Into::into))
    }
}
