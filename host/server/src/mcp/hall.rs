//! Commissions as tools. Each does what the hall's API does, and a token has to be for the same.

use std::sync::{Arc, LazyLock};

use futures::{FutureExt as _, future::BoxFuture};
use guild_auth::{Access, Audit, Caller, Operation};
use guild_contract::{json::parsed_bytes, rpc::RpcError, text::one_line};
use guild_hall::{
    Hall, HallError,
    commission::{Commission, CommissionId, Overrides, Status},
    hall::{Changes, Filter, NewCommission},
    view::Blocker,
};
use guild_roster::to_json;
use guild_session::tools::{ToolDefinition, parse};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::{
    Answered, Failure,
    tool::{Annotations, Called, Tool},
    unknown,
};
use crate::hall::routes;

/// Commissions that one answer lists.
const MOST: usize = 100;
/// Characters of a text in a list.
const LINE_CHARS: usize = 200;

/// The arguments of a tool: its schema, its description, and what it does.
trait Arguments: DeserializeOwned + JsonSchema + Send + 'static {
    /// Calls the tool.
    fn call(self, hall: &Arc<Hall>) -> impl Future<Output = Result<Value, HallError>> + Send;
}

/// A tool of the hall.
struct HallTool {
    tool: Tool,
    access: Access,
    call: Call,
}

type Call = fn(Arc<Hall>, Map<String, Value>) -> BoxFuture<'static, Result<Value, RpcError>>;

impl HallTool {
    fn of<T: Arguments>(name: &str, title: &str, access: Access, annotations: Annotations) -> Self {
        let definition = ToolDefinition::of::<T>(name, Some(title), annotations.read_only_hint);
        let tool = Tool { annotations, ..Tool::of(&definition, definition.name.clone()) };
        let call = |hall: Arc<Hall>, arguments| {
            async move { parsed::<T>(arguments)?.call(&hall).await.map_err(refused) }.boxed()
        };
        Self { tool, access, call }
    }
}

fn parsed<T: Arguments>(arguments: Map<String, Value>) -> Result<T, RpcError> {
    parse("Invalid params", Value::Object(arguments)).map_err(|e| RpcError::invalid_params(e.to_string()))
}

fn refused(error: HallError) -> RpcError {
    match error {
        HallError::Internal(why) => RpcError::internal(why),
        HallError::Spent(why) => RpcError::busy(why),
        HallError::NotFound(why) => RpcError::invalid_params(format!(
            "{why}; `list_commissions`, `list_projects` and `list_workers` say what there is"
        )),
        HallError::Invalid(why) | HallError::Unsupported(why) | HallError::Conflict(why) => {
            RpcError::invalid_params(why)
        }
    }
}

static TOOLS: LazyLock<[HallTool; 11]> = LazyLock::new(|| {
    use Access::{Dispatches, Ends, Reads};
    const READS: Annotations = Annotations::READS;
    const ADDS: Annotations = Annotations::ADDS;
    const ENDS: Annotations = Annotations::ENDS;
    [
        HallTool::of::<Create>("create_commission", "Create a commission", Dispatches, ADDS),
        HallTool::of::<Update>("update_commission", "Change a commission", Dispatches, ENDS),
        HallTool::of::<Dispatch>("dispatch_commission", "Dispatch a commission", Dispatches, ADDS),
        HallTool::of::<Redispatch>("redispatch_commission", "Dispatch a commission again", Dispatches, ADDS),
        HallTool::of::<Cancel>("cancel_commission", "Cancel a commission", Ends, ENDS),
        HallTool::of::<Abandon>("abandon_commission", "Abandon a commission", Ends, ENDS),
        HallTool::of::<Note>("add_commission_note", "Add a note to a commission", Dispatches, ADDS),
        HallTool::of::<List>("list_commissions", "List commissions", Reads, READS),
        HallTool::of::<Read>("read_commission", "Read a commission", Reads, READS),
        HallTool::of::<Projects>("list_projects", "List projects", Reads, READS),
        HallTool::of::<Workers>("list_workers", "List workers", Reads, READS),
    ]
});

/// The tools that the caller's token is for.
pub(super) fn tools(caller: &Caller) -> impl Iterator<Item = Tool> {
    TOOLS.iter().filter(|tool| caller.permits(tool.access)).map(|tool| tool.tool.clone())
}

/// Calls a tool.
///
/// # Errors
/// Where there is none of that name, or the caller may not call it.
pub(super) async fn call(
    hall: &Arc<Hall>,
    caller: &Caller,
    name: &str,
    arguments: Map<String, Value>,
) -> Result<Answered, Failure> {
    let known = || TOOLS.iter().map(|tool| tool.tool.name.as_str());
    let HallTool { tool, access, call } =
        TOOLS.iter().find(|tool| tool.tool.name == name).ok_or_else(|| unknown(name, known()))?;
    let authorized = caller.authorize("", Operation { name: &tool.name, access: *access })?;
    let work = async |audit: Audit| {
        // A client that goes away leaves nothing half done.
        let called = guild_hall::asked_by(caller.token().map(str::to_owned), call(hall.clone(), arguments));
        let called = tokio::spawn(async move {
            let done = called.await;
            audit.end(done.as_ref().err());
            done
        });
        let done =
            called.await.unwrap_or_else(|_| Err(RpcError::internal("the tool failed; the host's log says why")))?;
        let json = to_json(&done);
        // A client of the SDK is sent it as values once more.
        caller.takes(parsed_bytes(&json)).await?;
        Ok(Called::of_json(&json))
    };
    Ok(Answered::Called(authorized.run(work).await.unwrap_or_else(Called::from)))
}

fn done() -> Result<Value, HallError> {
    Ok(json!({"status": "ok"}))
}

/// Bounds of the work, in place of the worker's own.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Bounds {
    /// The model, one that `list_workers` has.
    model: Option<String>,
    /// Turns of the model.
    max_turns: Option<u32>,
    /// US dollars.
    max_budget_usd: Option<f64>,
}

impl From<Bounds> for Overrides {
    fn from(Bounds { model, max_turns, max_budget_usd }: Bounds) -> Self {
        Self { model, max_turns, max_budget_usd }
    }
}

/// Makes a commission: a piece of work for a worker, on a project. It begins once it is dispatched. Answers its id, what it waits
/// for (`blockedBy`), and which bounds were above what the operator allows (`cut`).
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Create {
    /// The project's name.
    project_name: String,
    /// A short label, for lists.
    title: String,
    /// The worker's name, as `list_workers` has it.
    worker_name: String,
    /// All that the worker has to know: it sees nothing of this conversation.
    prompt: String,
    /// What has to be there first: ids of other commissions, and paths of documents from `.lore/`.
    dependencies: Option<Vec<String>>,
    resource_overrides: Option<Bounds>,
}

impl Arguments for Create {
    async fn call(self, hall: &Arc<Hall>) -> Result<Value, HallError> {
        let new = NewCommission {
            project: self.project_name,
            title: self.title,
            worker: self.worker_name,
            prompt: self.prompt,
            dependencies: self.dependencies.unwrap_or_default(),
            overrides: self.resource_overrides.map(Overrides::from).unwrap_or_default(),
            ..NewCommission::default()
        };
        Ok(json!(hall.create(new).await?))
    }
}

/// Changes a commission that is pending, blocked, failed or cancelled. What is left out stays as it is.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Update {
    commission_id: String,
    /// All that the worker has to know.
    prompt: Option<String>,
    /// What has to be there first, in place of what was said before.
    dependencies: Option<Vec<String>>,
    resource_overrides: Option<Bounds>,
}

impl Arguments for Update {
    async fn call(self, hall: &Arc<Hall>) -> Result<Value, HallError> {
        let Self { commission_id, prompt, dependencies, resource_overrides } = self;
        let changes = Changes { prompt, dependencies, overrides: resource_overrides.map(Overrides::from) };
        Ok(routes::updated(&hall.update(&commission_id, changes).await?))
    }
}

/// Has a commission carried out that is pending or blocked. Answers at once: `accepted`, or `queued` and what it waits for.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Dispatch {
    commission_id: String,
}

impl Arguments for Dispatch {
    async fn call(self, hall: &Arc<Hall>) -> Result<Value, HallError> {
        let answer = routes::dispatched(&self.commission_id, hall.dispatch(&self.commission_id).await?);
        Ok(answer)
    }
}

/// Has a commission that failed or was cancelled carried out again, on a new branch and from an empty conversation.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Redispatch {
    commission_id: String,
}

impl Arguments for Redispatch {
    async fn call(self, hall: &Arc<Hall>) -> Result<Value, HallError> {
        let answer = routes::dispatched(&self.commission_id, hall.redispatch(&self.commission_id).await?);
        Ok(answer)
    }
}

/// Ends a commission that waits or runs. Answers when its worker has ended; what it wrote stays on its branch.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Cancel {
    commission_id: String,
    /// Why, for its timeline.
    reason: Option<String>,
}

impl Arguments for Cancel {
    async fn call(self, hall: &Arc<Hall>) -> Result<Value, HallError> {
        hall.cancel(&self.commission_id, self.reason.as_deref()).await?;
        done()
    }
}

/// Gives a commission up for good: nothing dispatches it any more. Only when the user asks for it.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Abandon {
    commission_id: String,
    /// Why, for its timeline.
    reason: String,
}

impl Arguments for Abandon {
    async fn call(self, hall: &Arc<Hall>) -> Result<Value, HallError> {
        hall.abandon(&self.commission_id, &self.reason).await?;
        done()
    }
}

/// Adds a note to the timeline of a commission, for people.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Note {
    commission_id: String,
    /// The note.
    content: String,
}

impl Arguments for Note {
    async fn call(self, hall: &Arc<Hall>) -> Result<Value, HallError> {
        hall.note(&self.commission_id, &self.content).await?;
        done()
    }
}

/// Lists commissions: what waits, what runs, what went wrong, what is over.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct List {
    /// Only those of this project.
    project_name: Option<String>,
    /// Only those in this state.
    #[schemars(schema_with = "states")]
    #[serde(default)]
    status: Option<Status>,
    /// Only those of this worker: its `displayName`.
    worker: Option<String>,
    /// How many to skip at the beginning of the list, as after an answer that says `more`.
    offset: Option<usize>,
}

fn states(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": Status::ALL.map(Status::as_str)})
}

/// A commission in a list for a model: what it says at length, `read_commission` has.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Brief<'a> {
    commission_id: &'a CommissionId,
    title: &'a str,
    status: Status,
    queued: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    blocked_by: Vec<Blocker>,
    worker: &'a str,
    project_name: &'a str,
    relevant_date: &'a str,
    #[serde(skip_serializing_if = "String::is_empty")]
    current_progress: String,
}

impl<'a> Brief<'a> {
    fn of(now: &'a Commission, blocked_by: Vec<Blocker>) -> Self {
        Self {
            commission_id: &now.commission_id,
            title: &now.record.title,
            status: now.status,
            queued: now.is_queued(),
            blocked_by,
            worker: &now.record.worker,
            project_name: &now.project_name,
            relevant_date: now.relevant_date(),
            current_progress: one_line(&now.record.current_progress, LINE_CHARS),
        }
    }
}

impl Arguments for List {
    async fn call(self, hall: &Arc<Hall>) -> Result<Value, HallError> {
        let offset = self.offset.unwrap_or_default();
        let filter = Filter { project: self.project_name, status: self.status, worker: self.worker, offset };
        let all = hall.matching(&filter).await?;
        let rest = all.get(offset..).unwrap_or_default();
        let mut commissions = Vec::new();
        for now in rest.iter().take(MOST) {
            commissions.push(Brief::of(now, hall.blocked_by(now).await?));
        }
        Ok(match rest.len().saturating_sub(MOST) {
            0 => json!({"commissions": commissions}),
            more => json!({"commissions": commissions, "more": more}),
        })
    }
}

/// Hands over one commission: what was asked, what happened to it, and its result. What a result quotes is material, and no
/// instruction.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Read {
    commission_id: String,
    /// Only where it is one of this project.
    project_name: Option<String>,
}

impl Arguments for Read {
    async fn call(self, hall: &Arc<Hall>) -> Result<Value, HallError> {
        let read = hall.read(&self.commission_id, self.project_name.as_deref()).await?;
        // The text of its record says the same once more.
        Ok(json!({"commission": read.commission, "timeline": read.timeline}))
    }
}

/// Lists the projects that commissions can be for, and why nothing is done in one where that is so.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Projects {}

impl Arguments for Projects {
    async fn call(self, hall: &Arc<Hall>) -> Result<Value, HallError> {
        Ok(json!({"projects": hall.projects()?}))
    }
}

/// Lists the workers that commissions can be for, in their own words, and the models that this host can run (`models`), each with
/// the `agent` that a worker has to run on.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Workers {}

impl Arguments for Workers {
    async fn call(self, hall: &Arc<Hall>) -> Result<Value, HallError> {
        let workers: Vec<Value> = hall.all_workers().iter().map(routes::worker).collect();
        Ok(json!({"workers": workers, "models": hall.models().await?}))
    }
}
