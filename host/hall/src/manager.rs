//! The manager's tools (REQ-WKR-25, REQ-WKR-26): one implementation, which its sessions call, and its component through the
//! import `manager`.
//!
//! They work on the project of the activity that the manager is in, and on no other. What they make has the manager as its
//! author: people see that, and can change or cancel all of it (REQ-WKR-27). A call that comes again after a crash has its
//! effect once: each change of a commission is stored with the call that made it.

mod project;

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use guild_contract::JobId;
use guild_session::tools::{ToolCall, ToolDefinition, ToolError, Tools, parse};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    asker::asked_by,
    commission::{Commission, Entry, Overrides, Status},
    hall::{Dispatched, Filter, Hall, NewCommission, cut},
    tools::{answer, define, is_offered, key},
    view::CommissionView,
    workers::Attempt,
};

const CREATE: &str = "create_commission";
const DISPATCH: &str = "dispatch_commission";
const CANCEL: &str = "cancel_commission";
const ABANDON: &str = "abandon_commission";
const NOTE: &str = "add_commission_note";
const STATUS: &str = "check_commission_status";

/// Why a commission of its ends, where it ends it.
const CANCELLED: &str = "Commission cancelled by the manager";
/// Commissions in a list; the rest is counted.
const MAX_LISTED: usize = 50;
/// Characters of each text of a commission.
const TEXT_CHARS: usize = 8000;
/// Entries of a timeline, the last ones, and characters of each.
const MAX_ENTRIES: usize = 20;
const ENTRY_CHARS: usize = 500;

/// The manager's tools in one of its jobs.
pub struct ManagerTools {
    hall: Arc<Hall>,
    job: JobId,
    /// What it works on. Without one it can look and no more.
    activity: Option<Attempt>,
}

impl ManagerTools {
    /// The tools of a job of the manager's, which `activity` is carried out by.
    pub fn new(hall: Arc<Hall>, job: JobId, activity: Option<Attempt>) -> Self {
        Self { hall, job, activity }
    }

    /// The activity, for a tool that needs one.
    fn activity(&self, tool: &str) -> Result<&Attempt, ToolError> {
        self.activity.as_ref().ok_or_else(|| {
            ToolError::InvalidInput(format!(
                "{tool} works on the project of a commission or a meeting, and this job was dispatched without one; have the \
                 user commission the manager on the project"
            ))
        })
    }

    /// Refuses a commission of another project, and, for what would end it, the one that the manager works on.
    async fn check(&self, tool: &str, id: &str, ends: bool) -> Result<(), ToolError> {
        let Attempt { activity, project, .. } = self.activity(tool)?;
        if ends && activity.id() == id {
            return Err(ToolError::InvalidInput(format!(
                "{id} is the commission that you work on, and would end you with it; submit its result, or have the user cancel it"
            )));
        }
        let of = self.hall.read(id, None).await?.commission.project_name;
        if of != *project {
            return Err(ToolError::InvalidInput(format!(
                "{id} is of project {of:?}, and you work on {project:?} only; have the user commission the manager there"
            )));
        }
        Ok(())
    }

    /// An error as sessions and components get it, whatever tool it is of: without paths of the host.
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

    async fn create(&self, input: CreateCommission, call: &str) -> Result<Value, ToolError> {
        let CreateCommission { title, worker_name, prompt, dependencies, resource_overrides, dispatch } = input;
        let Attempt { project, activity, .. } = self.activity(CREATE)?.clone();
        let ResourceOverrides { model, max_turns, max_budget_usd } = resource_overrides.unwrap_or_default();
        let new = NewCommission {
            project,
            title,
            worker: worker_name,
            prompt,
            dependencies: dependencies.unwrap_or_default(),
            overrides: Overrides { model, max_turns, max_budget_usd },
            by: Some(activity),
        };
        let made = self.hall.create_once(new, Some(call)).await?;
        let mut answer = json!(made);
        if dispatch != Some(false) {
            let id = made.commission_id.as_str();
            let dispatched = self.hall.dispatch_once(id, Some(&format!("{call} dispatch"))).await;
            let dispatched = match dispatched {
                Ok(dispatched) => said(id, dispatched),
                // It is there, and its id is what the manager goes on with.
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
            let all = self.hall.matching(&Filter { project, ..Filter::default() }).await?;
            let mut shown = Vec::new();
            for now in all.iter().take(MAX_LISTED) {
                let mut view = CommissionView::of(now);
                view.blocked_by = self.hall.blocked_by(now).await?;
                shown.push(line(&view));
            }
            return Ok(list(&all, shown));
        };
        if self.activity.is_some() {
            self.check(STATUS, &id, false).await?;
        }
        let read = self.hall.read(&id, None).await?;
        let (entries, paths) = (read.timeline.len().saturating_sub(MAX_ENTRIES), self.hall.host_paths());
        let entry = |Entry { timestamp, event, reason, .. }| {
            // Why a state changed can be an error of the host. All else was written by workers and people.
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

/// What came of a dispatch.
fn said(id: &str, dispatched: Dispatched) -> Value {
    match dispatched {
        Dispatched::Accepted => json!({"commissionId": id, "status": "accepted"}),
        Dispatched::Queued { reason } => json!({"commissionId": id, "status": "queued", "reason": reason}),
    }
}

/// A commission in a list.
fn line(one: &CommissionView) -> Value {
    json!({
        "commissionId": one.id, "projectName": one.project_name, "title": one.title, "status": one.status,
        "queued": one.queued, "blockedBy": one.blocked_by, "worker": one.worker, "createdBy": one.created_by,
        "dependencies": one.dependencies, "date": one.relevant_date,
    })
}

fn list(all: &[Arc<Commission>], shown: Vec<Value>) -> Value {
    let count = |is: fn(Status) -> bool| all.iter().filter(|one| is(one.status)).count();
    let mut answer = json!({
        "summary": {
            "pending": count(|status| matches!(status, Status::Pending | Status::Blocked)),
            "active": count(Status::is_active),
            "completed": count(|status| status == Status::Completed),
            "failed": count(|status| matches!(status, Status::Failed | Status::Cancelled | Status::Abandoned)),
            "total": all.len(),
        },
        "commissions": shown,
    });
    if let (Some(answer), Some(more)) = (answer.as_object_mut(), all.len().checked_sub(MAX_LISTED).filter(|n| *n > 0)) {
        answer.insert("notShown".to_owned(), more.into());
    }
    answer
}

/// Make a commission for another worker, and have it dispatched: the user sees that you made it, and can change or cancel it.
/// Answers its id, whether it begins now (`accepted`) or waits (`queued`), what it waits for (`blockedBy`), and which bounds were
/// above what the operator allows (`cut`).
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CreateCommission {
    /// A short title.
    title: String,
    /// Who is to do it: the name of a worker.
    worker_name: String,
    /// The whole of what is asked. The worker knows nothing else of what you know.
    prompt: String,
    /// What has to be done first: ids of commissions, and paths of artifacts from `.lore/`.
    #[serde(default)]
    dependencies: Option<Vec<String>>,
    /// In place of the worker's own model and bounds, where the work needs others.
    #[serde(default)]
    resource_overrides: Option<ResourceOverrides>,
    /// `false` to make it without dispatching it.
    #[serde(default)]
    dispatch: Option<bool>,
}

/// In place of the worker's own.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct ResourceOverrides {
    /// The model. One that the worker cannot run is refused, with those that it can.
    model: Option<String>,
    /// Turns of a model.
    max_turns: Option<u32>,
    /// US dollars.
    max_budget_usd: Option<f64>,
}

/// Dispatch a commission that is pending, or blocked: that one begins once all that it waits for is there.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct DispatchCommission {
    /// Its id.
    commission_id: String,
}

/// Cancel a commission that waits or is under way. What was written for it stays on its branch.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CancelCommission {
    /// Its id.
    commission_id: String,
}

/// Give a commission up for good that is not under way: the work was done elsewhere, or is not worth another attempt.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AbandonCommission {
    /// Its id.
    commission_id: String,
    /// Why, for those who look at it later.
    reason: String,
}

/// Add a note to a commission, for the user and for those who look at it later.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AddCommissionNote {
    /// Its id.
    commission_id: String,
    /// The note.
    content: String,
}

/// Look where commissions are: all of them, or one with its progress, its result and what happened. Nothing tells you of a
/// change: look when you need to know.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CheckCommissionStatus {
    /// The id of one. Without it, all are listed.
    #[serde(default)]
    commission_id: Option<String>,
}

static DEFINITIONS: LazyLock<[Arc<ToolDefinition>; 6]> = LazyLock::new(|| {
    [
        define::<CheckCommissionStatus>(STATUS, "Check commission status", true),
        define::<CreateCommission>(CREATE, "Create commission", false),
        define::<DispatchCommission>(DISPATCH, "Dispatch commission", false),
        define::<CancelCommission>(CANCEL, "Cancel commission", false),
        define::<AbandonCommission>(ABANDON, "Abandon commission", false),
        define::<AddCommissionNote>(NOTE, "Add commission note", false),
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
        asked_by(token, self.perform(call)).await.map_err(|error| self.without_paths(error))
    }
}

impl ManagerTools {
    async fn perform(&self, call: ToolCall) -> Result<Value, ToolError> {
        let known = DEFINITIONS.iter().chain(project::DEFINITIONS.iter()).any(|tool| tool.name == call.name);
        if known && call.name != STATUS {
            self.activity(&call.name)?;
        }
        is_offered(self, &call.name)?;
        let once = format!("{} {}", self.job, key(&call));
        if let Some(activity) = &self.activity
            && project::DEFINITIONS.iter().any(|tool| tool.name == call.name)
        {
            return project::call(&self.hall, activity, (&call.name, call.input), &once).await;
        }
        let (input, once) = (call.input, once.as_str());
        match call.name.as_str() {
            CREATE => self.create(parse(CREATE, input)?, once).await,
            DISPATCH => {
                let DispatchCommission { commission_id: id } = parse(DISPATCH, input)?;
                self.check(DISPATCH, &id, false).await?;
                Ok(said(&id, self.hall.dispatch_once(&id, Some(once)).await?))
            }
            CANCEL => {
                let CancelCommission { commission_id: id } = parse(CANCEL, input)?;
                self.check(CANCEL, &id, true).await?;
                self.hall.cancel_once(&id, Some(CANCELLED), Some(once)).await?;
                Ok(answer("The commission is cancelled."))
            }
            ABANDON => {
                let AbandonCommission { commission_id: id, reason } = parse(ABANDON, input)?;
                self.check(ABANDON, &id, true).await?;
                self.hall.abandon_once(&id, &reason, Some(once)).await?;
                Ok(answer("The commission is abandoned."))
            }
            NOTE => {
                let AddCommissionNote { commission_id: id, content } = parse(NOTE, input)?;
                self.check(NOTE, &id, false).await?;
                self.hall.note_once(&id, ("manager_note", &content), Some(once)).await?;
                Ok(answer("The note is added."))
            }
            _ => self.look(parse::<CheckCommissionStatus>(STATUS, input)?.commission_id).await,
        }
    }
}
