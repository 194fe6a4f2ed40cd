//! Implements the manager's tools (REQ-WKR-25, REQ-WKR-26), once for its sessions and for its component's import
//! `manager`.
//!
//! The tools work only on the project of the manager's present activity. The manager is the author of the commissions
//! and requests that it creates: people see that, and can change or cancel them (REQ-WKR-27). A call that is repeated
//! after a crash takes effect once: each change of a commission is stored with the call that made it.

mod project;

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use guild_contract::{
    JobId,
    hall::{
        AbandonCommission, AbandonParams, CancelCommission, CancelParams, CommissionFilter, CommissionParams,
        CommissionStatus, CommissionView, CreateCommission, DispatchCommission, NewCommission, NoteCommission,
        NoteParams, Overrides, TimelineEntry,
    },
    operation::Operation,
};
use guild_session::tools::{ToolCall, ToolDefinition, ToolError, Tools, parse};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    commissions::{self, commission::Commission},
    core::{requester::Requester, text::cut, token_scope::with_token, workers::Attempt},
    hall::Hall,
    tools::{answer, define, key, unknown},
};

const CREATE: &str = CreateCommission::ROW.tool_name();
const DISPATCH: &str = DispatchCommission::ROW.tool_name();
const CANCEL: &str = CancelCommission::ROW.tool_name();
const ABANDON: &str = AbandonCommission::ROW.tool_name();
const NOTE: &str = NoteCommission::ROW.tool_name();
const STATUS: &str = "check_commission_status";

/// The reason of a commission that the manager cancels.
const CANCELLED: &str = "Commission cancelled by the manager";
/// The most commissions in a list; further ones are only counted.
const MAX_LISTED: usize = 50;
/// The most characters of each text of a commission.
const TEXT_CHARS: usize = 8000;
/// The number of last entries of a timeline that are shown, and the most characters of each.
const MAX_ENTRIES: usize = 20;
const ENTRY_CHARS: usize = 500;

/// The manager's tools in one of its jobs.
pub struct ManagerTools {
    hall: Arc<Hall>,
    job: JobId,
    /// The manager's activity. Without an activity, the tools only read.
    activity: Option<Attempt>,
}

impl ManagerTools {
    /// The tools of a job of the manager's, which carries out `activity`.
    pub fn new(hall: Arc<Hall>, job: JobId, activity: Option<Attempt>) -> Self {
        Self { hall, job, activity }
    }

    /// The activity, for a tool that needs it.
    fn activity(&self, tool: &str) -> Result<&Attempt, ToolError> {
        self.activity.as_ref().ok_or_else(|| {
            ToolError::InvalidInput(format!(
                "{tool} works on the project of a commission or a meeting, and this job was dispatched without one; \
                 ask the user to commission the manager on the project"
            ))
        })
    }

    /// Refuses a commission of another project, and, for tools that end a commission, the manager's own commission.
    async fn check(&self, tool: &str, id: &str, ends: bool) -> Result<(), ToolError> {
        let Attempt { activity, project, .. } = self.activity(tool)?;
        if ends && activity.id() == id {
            return Err(ToolError::InvalidInput(format!(
                "{id} is your own commission, and its end would end this session; submit its result, or ask the user \
                 to cancel it"
            )));
        }
        let of = self.hall.commissions.read(id, None).await?.commission.project_name;
        if of != *project {
            return Err(ToolError::InvalidInput(format!(
                "{id} belongs to project {of:?}, and you work only on {project:?}; ask the user to commission the \
                 manager there"
            )));
        }
        Ok(())
    }

    /// Removes paths of the host from an error, for sessions and components.
    fn without_paths(&self, mut error: ToolError) -> ToolError {
        if let ToolError::InvalidInput(text)
        | ToolError::NotGranted(text)
        | ToolError::OverLimit(text)
        | ToolError::Unavailable(text) = &mut error
        {
            *text = self.hall.host_paths().hide(text);
        }
        error
    }

    async fn create(&self, input: ManagerCommission, requester: &Requester) -> Result<Value, ToolError> {
        let ManagerCommission { title, worker_name, prompt, dependencies, resource_overrides, dispatch } = input;
        let project_name = self.activity(CREATE)?.project.clone();
        let new = NewCommission {
            project_name,
            title,
            worker_name,
            prompt,
            dependencies: dependencies.unwrap_or_default(),
            resource_overrides: resource_overrides.unwrap_or_default(),
        };
        let made = self.hall.commissions.create(new, requester).await?;
        let mut answer = json!(made);
        if dispatch != Some(false) {
            let id = made.commission_id.as_str();
            let dispatched = match self.hall.commissions.dispatch(id, &again(requester, "dispatch")).await {
                Ok(dispatched) => json!(dispatched),
                // The commission exists, and the manager needs its id.
                Err(e) => {
                    json!({"reason": format!("not dispatched: {}", self.hall.host_paths().hide(&e.to_string()))})
                }
            };
            extend(&mut answer, dispatched);
        }
        Ok(answer)
    }

    async fn look(&self, id: Option<String>) -> Result<Value, ToolError> {
        let project = self.activity.as_ref().map(|activity| activity.project.clone());
        let Some(id) = id else {
            let all = self
                .hall
                .commissions
                .matching(&CommissionFilter { project_name: project, ..CommissionFilter::default() })
                .await?;
            let mut shown = Vec::new();
            for now in all.iter().take(MAX_LISTED) {
                let mut view = commissions::view::commission(now);
                view.blocked_by = self.hall.commissions.blocked_by(now).await?;
                shown.push(line(&view));
            }
            return Ok(list(&all, shown));
        };
        if self.activity.is_some() {
            self.check(STATUS, &id, false).await?;
        }
        let read = self.hall.commissions.read(&id, None).await?;
        let (entries, paths) = (read.timeline.len().saturating_sub(MAX_ENTRIES), self.hall.host_paths());
        let entry = |TimelineEntry { timestamp, event, reason, .. }| {
            // The reason of a change of state can be an error of the host. Workers and people wrote all other texts.
            let reason = if event.starts_with("status_") { paths.hide(&reason) } else { reason };
            json!({"timestamp": timestamp, "event": event, "reason": cut(reason, ENTRY_CHARS)})
        };
        let timeline: Vec<Value> = read.timeline.into_iter().skip(entries).map(entry).collect();
        let one = read.commission;
        let mut shown = line(&one);
        let more = json!({
            "prompt": cut(one.prompt, TEXT_CHARS),
            "current_progress": cut(one.current_progress, TEXT_CHARS),
            "result_summary": cut(one.result_summary, TEXT_CHARS),
            "linked_artifacts": one.linked_artifacts,
            "timeline": timeline,
        });
        extend(&mut shown, more);
        Ok(shown)
    }
}

/// Adds the fields of an object to another.
fn extend(answer: &mut Value, more: Value) {
    if let (Value::Object(answer), Value::Object(more)) = (answer, more) {
        answer.extend(more);
    }
}

/// Names the second change of one call.
fn again(requester: &Requester, what: &str) -> Requester {
    match requester {
        Requester::User | Requester::StandingOrders => requester.clone(),
        Requester::Manager { activity, call } => {
            Requester::Manager { activity: activity.clone(), call: format!("{call} {what}") }
        }
    }
}

/// The entry of a commission in a list.
fn line(one: &CommissionView) -> Value {
    json!({
        "commissionId": one.id, "projectName": one.project_name, "title": one.title, "status": one.status,
        "queued": one.queued, "blockedBy": one.blocked_by, "worker": one.worker, "createdBy": one.created_by,
        "dependencies": one.dependencies, "date": one.relevant_date,
    })
}

fn list(all: &[Arc<Commission>], shown: Vec<Value>) -> Value {
    let (mut pending, mut active, mut completed, mut failed) = (0, 0, 0, 0);
    for one in all {
        let count = match one.status {
            CommissionStatus::Pending | CommissionStatus::Blocked => &mut pending,
            CommissionStatus::Dispatched | CommissionStatus::InProgress => &mut active,
            CommissionStatus::Completed => &mut completed,
            CommissionStatus::Failed | CommissionStatus::Cancelled | CommissionStatus::Abandoned => &mut failed,
        };
        *count += 1;
    }
    let mut answer = json!({
        "summary": {
            "pending": pending, "active": active, "completed": completed, "failed": failed, "total": all.len(),
        },
        "commissions": shown,
    });
    if let (Some(answer), Some(more)) = (answer.as_object_mut(), all.len().checked_sub(MAX_LISTED).filter(|n| *n > 0)) {
        answer.insert("notShown".to_owned(), more.into());
    }
    answer
}

/// The manager's description of [`CreateCommission`]: its commission is dispatched at once.
const CREATES: &str = "Create a commission for another worker, and dispatch it: the user sees that you created it, \
    and can change or cancel it. Returns its id, whether it starts now (`accepted`) or waits (`queued`), the \
    dependencies that it waits for (`blockedBy`), and the bounds that exceeded the operator's (`cut`).";
/// The manager's description of [`AbandonCommission`], which the manager may decide itself.
const ABANDONS: &str =
    "Abandon a commission that is not running, for good: the work was done elsewhere, or is not worth another attempt.";

/// A commission that the manager creates.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ManagerCommission {
    /// A short title.
    title: String,
    /// The name of the worker who is to carry it out.
    worker_name: String,
    /// The whole task. The worker does not know anything else that you know.
    prompt: String,
    /// The dependencies: ids of commissions, and paths of artifacts from `.lore/`.
    #[serde(default)]
    dependencies: Option<Vec<String>>,
    /// The model and bounds in place of the worker's own, if the work needs others.
    #[serde(default)]
    resource_overrides: Option<Overrides>,
    /// `false` to create the commission without dispatching it.
    #[serde(default)]
    dispatch: Option<bool>,
}

/// Read the state of commissions: of all of them, or of one with its progress, its result and its timeline. You are not
/// notified of changes: call this tool when you need the state.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CheckCommissionStatus {
    /// The id of one commission. Without it, all are listed.
    #[serde(default)]
    commission_id: Option<String>,
}

/// The tool of an operation.
fn of<O: Operation>() -> Arc<ToolDefinition> {
    Arc::new(ToolDefinition::of_operation::<O>())
}

static DEFINITIONS: LazyLock<[Arc<ToolDefinition>; 6]> = LazyLock::new(|| {
    [
        define::<CheckCommissionStatus>(STATUS, "Check commission status", true),
        Arc::new(ToolDefinition::of_row::<ManagerCommission>(&CreateCommission::ROW, CREATES)),
        of::<DispatchCommission>(),
        of::<CancelCommission>(),
        Arc::new(ToolDefinition::of_row::<AbandonParams>(&AbandonCommission::ROW, ABANDONS)),
        of::<NoteCommission>(),
    ]
});

#[async_trait]
impl Tools for ManagerTools {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        let of_project = self.activity.iter().flat_map(|_| project::DEFINITIONS.iter());
        let all = DEFINITIONS.iter().filter(|tool| tool.read_only || self.activity.is_some()).chain(of_project);
        all.cloned().collect()
    }

    async fn call(&self, call: ToolCall) -> Result<Value, ToolError> {
        let token = self.activity.as_ref().and_then(|activity| activity.token.clone());
        with_token(token, self.perform(call)).await.map_err(|error| self.without_paths(error))
    }

    fn repeats_safely(&self, _tool: &str) -> bool {
        true
    }
}

impl ManagerTools {
    async fn perform(&self, call: ToolCall) -> Result<Value, ToolError> {
        let known = DEFINITIONS.iter().chain(project::DEFINITIONS.iter()).any(|tool| tool.name == call.name);
        if known && call.name != STATUS {
            self.activity(&call.name)?;
        }
        let definition = self.definitions().into_iter().find(|tool| tool.name == call.name);
        let definition = definition.ok_or_else(|| unknown(&call.name))?;
        if let Value::Object(input) = &call.input {
            definition.check(input)?;
        }
        let once = format!("{} {}", self.job, key(&call));
        if let Some(activity) = &self.activity
            && project::DEFINITIONS.iter().any(|tool| tool.name == call.name)
        {
            return project::call(&self.hall, activity, &call.name, call.input, &once).await;
        }
        let input = call.input;
        let requester = match &self.activity {
            Some(attempt) => Requester::Manager { activity: attempt.activity.clone(), call: once },
            None => Requester::User,
        };
        match call.name.as_str() {
            CREATE => self.create(parse(CREATE, input)?, &requester).await,
            DISPATCH => {
                let CommissionParams { commission_id: id } = parse(DISPATCH, input)?;
                self.check(DISPATCH, &id, false).await?;
                Ok(json!(self.hall.commissions.dispatch(&id, &requester).await?))
            }
            CANCEL => {
                let CancelParams { commission_id: id, reason } = parse(CANCEL, input)?;
                self.check(CANCEL, &id, true).await?;
                let reason = reason.map_or_else(|| CANCELLED.to_owned(), |reason| format!("{CANCELLED}: {reason}"));
                self.hall.commissions.cancel(&id, Some(&reason), &requester).await?;
                Ok(answer("The commission is cancelled."))
            }
            ABANDON => {
                let AbandonParams { commission_id: id, reason } = parse(ABANDON, input)?;
                self.check(ABANDON, &id, true).await?;
                self.hall.commissions.abandon(&id, &reason, &requester).await?;
                Ok(answer("The commission is abandoned."))
            }
            NOTE => {
                let NoteParams { commission_id: id, content } = parse(NOTE, input)?;
                self.check(NOTE, &id, false).await?;
                self.hall.commissions.note(&id, &content, &requester).await?;
                Ok(answer("The note is added."))
            }
            _ => self.look(parse::<CheckCommissionStatus>(STATUS, input)?.commission_id).await,
        }
    }
}
