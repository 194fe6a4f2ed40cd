//! Serves jobs as tasks of MCP's extension `io.modelcontextprotocol/tasks`; the job's id is the task's.
//!
//! A task lives as long as its job, including across restarts of the host; callers have the same permissions as for the
//! job. A running job is a working task, a cancelled job a cancelled one. For any other end the task has the result of
//! a call that waited, so a failed job is a completed task whose result has `isError`.

use std::sync::Arc;

use guild_auth::{Audit, Caller};
use guild_contract::{
    JobId, JobStatus,
    rpc::{RpcError, StatusView},
    text::one_line,
};
use guild_fs::clock::rfc3339;
use guild_roster::members::member::Member;
use jiff::Timestamp;
use rmcp::model::{
    CreateTaskResult, DetailedTask, GetTaskResult, JsonObject, MetaObject, Task, TaskPayload, TaskStatus,
};
use serde_json::{Map, Value};

use super::convert;
use crate::{
    input::params::{Params, shown},
    mcp::{Failure, Server, ended},
    operations::worker,
};

/// The suggested interval between two polls of a task.
const POLL_MS: u64 = 2_000;
/// The key in a task's `_meta` with the job's status as in `worker/status`.
const STATUS: &str = "guild/status";
/// The maximum length of a summary, and of a question, in a status message.
const MESSAGE_CHARS: usize = 400;

/// The task of a new job.
pub(super) async fn created(member: &Member, job: &JobId) -> Result<CreateTaskResult, RpcError> {
    let status = status(member, job.as_str()).await?;
    Ok(CreateTaskResult::new(task(&status)))
}

/// Returns the state of a task.
pub(super) async fn get(server: &Server, caller: &Caller, id: &str) -> Result<GetTaskResult, Failure> {
    let (member, job) = find(server, caller, id).await?;
    let key = member.key().as_str();
    let authorized = caller.authorize(key, worker::STATUS.operation())?;
    let asked = async |audit: Audit| {
        audit.about(id);
        status(&member, id).await
    };
    let status = authorized.run(asked).await?;
    let payload = match status.status {
        JobStatus::Running => TaskPayload::Working,
        JobStatus::Cancelled => TaskPayload::Cancelled,
        JobStatus::Completed | JobStatus::Failed => {
            let authorized = caller.authorize(key, worker::RESULT.operation())?;
            let asked = async |audit: Audit| {
                audit.about(id);
                match serde_json::to_value(convert::called(ended(&member, caller, &job).await)) {
                    Ok(Value::Object(result)) => Ok(result),
                    _ => Err(RpcError::internal("the job's result cannot be read")),
                }
            };
            TaskPayload::Completed { result: authorized.run(asked).await? }
        }
    };
    let mut result = GetTaskResult::new(DetailedTask::new(task(&status), payload));
    let mut meta = JsonObject::new();
    meta.insert(STATUS.to_owned(), serde_json::to_value(status).unwrap_or_default());
    result.meta = Some(MetaObject(meta));
    Ok(result)
}

/// Cancels a task's job. A job that has ended is not changed, including a failed job, which is a completed task.
pub(super) async fn cancel(server: &Server, caller: &Caller, id: &str) -> Result<(), Failure> {
    let (member, job) = find(server, caller, id).await?;
    let key = member.key().as_str();
    let authorized = caller.authorize(key, worker::CANCEL.operation())?;
    if member.store().follow(job.as_str()).is_none() {
        return Ok(());
    }
    let mut params = Map::new();
    params.insert("jobId".to_owned(), job.as_str().into());
    let asked = async |audit: Audit| worker::CANCEL.call(&member, caller, Ok(Params::of(params)), &audit).await;
    authorized.run(asked).await?;
    Ok(())
}

/// Accepts a client's input for a task. No job waits for input: its worker goes on by itself and logs its questions. So
/// input has no receiver and is ignored.
pub(super) async fn update(server: &Server, caller: &Caller, id: &str) -> Result<(), Failure> {
    let (member, _) = find(server, caller, id).await?;
    caller.authorize(member.key().as_str(), worker::STATUS.operation())?;
    Ok(())
}

async fn find(server: &Server, caller: &Caller, id: &str) -> Result<(Arc<Member>, JobId), RpcError> {
    server.job(caller, id).await.ok_or_else(|| RpcError::invalid_params(format!("Unknown task: {}", shown(id))))
}

async fn status(member: &Member, id: &str) -> Result<StatusView, RpcError> {
    let status = member.status(id).await?;
    serde_json::from_slice(&status).map_err(|_| RpcError::internal("the job's status cannot be read"))
}

fn task(job: &StatusView) -> Task {
    let status = match job.status {
        JobStatus::Running => TaskStatus::Working,
        JobStatus::Completed | JobStatus::Failed => TaskStatus::Completed,
        JobStatus::Cancelled => TaskStatus::Cancelled,
    };
    // The state of a running job is the present one.
    let updated = job.completed_at.clone().unwrap_or_else(|| rfc3339(Timestamp::now()));
    let task = Task::new(job.job_id.as_str(), status, &job.started_at, updated).with_poll_interval_ms(POLL_MS);
    match message(job) {
        Some(message) => task.with_status_message(message),
        None => task,
    }
}

/// A message for people: the reason of a failure, or the worker's summary and its open questions.
fn message(job: &StatusView) -> Option<String> {
    let error = job.error.as_deref().map(|error| format!("the job failed: {}", one_line(error, MESSAGE_CHARS)));
    let summary = job.summary.as_deref().map(|summary| one_line(summary, MESSAGE_CHARS));
    let questions =
        job.questions.iter().flatten().map(|question| format!("question: {}", one_line(question, MESSAGE_CHARS)));
    let lines: Vec<_> = error.or(summary).into_iter().chain(questions).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}
