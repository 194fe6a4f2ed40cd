//! Lists the handlers of the hall's operations in one table.
//!
//! [`guild_contract::hall`] describes each operation. This module has the functions that carry them out; the server
//! makes its routes, methods and tools from the table.

mod commissions;
mod documents;
mod meetings;
mod projects;

use std::sync::{Arc, LazyLock};

use futures::future::BoxFuture;
use guild_contract::{
    OperationError,
    hall::{
        AbandonCommission, AcceptMeeting, CancelCommission, CheckDependencies, CloseMeeting, CommitDocuments,
        CreateCommission, CreateIssue, CreatePullRequest, DeclineMeeting, DeferMeeting, DeregisterProject,
        DispatchCommission, GroupProject, InterruptTurn, JoinTurn, ListCommissions, ListDocuments, ListIssues,
        ListMeetings, ListModels, ListOpenMeetings, ListProjects, ListWorkers, NoteCommission, OpenMeeting,
        ReadBriefing, ReadCommission, ReadDiff, ReadDocument, ReadGraph, ReadHealth, ReadHeartbeat, ReadImage,
        ReadImageFacts, ReadIssue, ReadLoreStatus, ReadMeeting, ReadMockup, ReadProject, ReadSettings, RebaseProjects,
        RedispatchCommission, RegisterProject, ReloadSettings, SendMessage, SpokenTurn, SyncProjects, TickHeartbeat,
        UpdateCommission, ValidateSettings, WriteDocument,
    },
    json::schema,
    operation::{AnswerKind, Operation, Row},
};
use guild_session::tools::{ToolDefinition, read};
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use crate::{documents::artifact::ArtifactFile, hall::Hall, meetings::Turn};

/// The answer of an operation.
pub enum Reply<T> {
    /// The output.
    Output(T),
    /// The events of a meeting's turn, or the reason that there is no turn.
    Turn(Result<Box<Turn>, OperationError>),
    /// The content of a file.
    File(Box<ArtifactFile>),
}

impl<T> From<T> for Reply<T> {
    fn from(output: T) -> Self {
        Self::Output(output)
    }
}

/// Carries out an operation.
trait Handle: Operation {
    /// Carries out the operation.
    fn handle(
        hall: Arc<Hall>,
        input: Self::Input,
    ) -> impl Future<Output = Result<Reply<Self::Output>, OperationError>> + Send;
}

/// An operation with its handler.
pub struct HallOperation {
    /// The operation's description.
    pub row: Row,
    /// The MCP tool, if the row has one.
    pub tool: Option<ToolDefinition>,
    /// The JSON Schema of the input: an object, without references.
    pub input: Value,
    /// Generates the JSON Schemas of the input and of the output.
    pub shapes: fn(&mut SchemaGenerator) -> (Value, Value),
    run: Run,
}

/// The handler of an operation, with its input and its output as JSON.
type Run = fn(Arc<Hall>, Map<String, Value>) -> BoxFuture<'static, Result<Reply<Value>, OperationError>>;

impl HallOperation {
    fn of<O: Handle>() -> Self {
        Self {
            row: O::ROW,
            tool: O::ROW.tool.map(|_| ToolDefinition::of_operation::<O>()),
            input: schema::input::<O::Input>(),
            shapes: |generator| {
                let input = generator.root_schema_for::<O::Input>().to_value();
                let output = match O::ROW.answer {
                    AnswerKind::Turn => generator.subschema_for::<SpokenTurn>(),
                    AnswerKind::Json | AnswerKind::File => generator.subschema_for::<O::Output>(),
                };
                (input, output.to_value())
            },
            run: |hall, input| {
                Box::pin(async move {
                    let input = read(Value::Object(input)).map_err(OperationError::Invalid)?;
                    Ok(match O::handle(hall, input).await? {
                        Reply::Output(output) => Reply::Output(json!(output)),
                        Reply::Turn(turn) => Reply::Turn(turn),
                        Reply::File(file) => Reply::File(file),
                    })
                })
            },
        }
    }

    /// Carries out the operation for a user. A field that is null counts as missing.
    ///
    /// # Errors
    ///
    /// Returns an error when the input is not acceptable, or the operation was refused.
    pub async fn run(&self, hall: Arc<Hall>, mut input: Map<String, Value>) -> Result<Reply<Value>, OperationError> {
        input.retain(|_, value| !value.is_null());
        (self.run)(hall, input).await
    }

    /// The operation with this JSON-RPC method. Operations that answer with a file or only with events have routes
    /// instead.
    pub fn of_method(name: &str) -> Option<&'static Self> {
        OPERATIONS.iter().find(|operation| operation.row.name == name && operation.is_method())
    }

    /// Whether the operation is a JSON-RPC method.
    pub fn is_method(&self) -> bool {
        match self.row.answer {
            AnswerKind::Json => true,
            AnswerKind::Turn => self.tool.is_some(),
            AnswerKind::File => false,
        }
    }

    /// The operation whose tool has this name, and the tool.
    pub fn of_tool(name: &str) -> Option<(&'static Self, &'static ToolDefinition)> {
        let mut tools = OPERATIONS.iter().filter_map(|operation| Some((operation, operation.tool.as_ref()?)));
        tools.find(|(_, tool)| tool.name == name)
    }
}

/// Refuses a list without items: its reader would never reach the end.
fn check_limit(limit: Option<usize>) -> Result<(), OperationError> {
    if limit == Some(0) { Err(OperationError::Invalid("Invalid limit parameter".to_owned())) } else { Ok(()) }
}

/// All operations of the hall.
pub static OPERATIONS: LazyLock<Vec<HallOperation>> = LazyLock::new(|| {
    vec![
        HallOperation::of::<CreateCommission>(),
        HallOperation::of::<UpdateCommission>(),
        HallOperation::of::<DispatchCommission>(),
        HallOperation::of::<RedispatchCommission>(),
        HallOperation::of::<CancelCommission>(),
        HallOperation::of::<AbandonCommission>(),
        HallOperation::of::<NoteCommission>(),
        HallOperation::of::<ListCommissions>(),
        HallOperation::of::<ReadCommission>(),
        HallOperation::of::<ReadDiff>(),
        HallOperation::of::<CheckDependencies>(),
        HallOperation::of::<ReadGraph>(),
        HallOperation::of::<OpenMeeting>(),
        HallOperation::of::<AcceptMeeting>(),
        HallOperation::of::<DeclineMeeting>(),
        HallOperation::of::<DeferMeeting>(),
        HallOperation::of::<ListMeetings>(),
        HallOperation::of::<ReadMeeting>(),
        HallOperation::of::<SendMessage>(),
        HallOperation::of::<JoinTurn>(),
        HallOperation::of::<InterruptTurn>(),
        HallOperation::of::<CloseMeeting>(),
        HallOperation::of::<ListOpenMeetings>(),
        HallOperation::of::<ListDocuments>(),
        HallOperation::of::<ReadDocument>(),
        HallOperation::of::<WriteDocument>(),
        HallOperation::of::<ReadImage>(),
        HallOperation::of::<ReadImageFacts>(),
        HallOperation::of::<ReadMockup>(),
        HallOperation::of::<ReadLoreStatus>(),
        HallOperation::of::<CommitDocuments>(),
        HallOperation::of::<CreateIssue>(),
        HallOperation::of::<ListIssues>(),
        HallOperation::of::<ReadIssue>(),
        HallOperation::of::<ReadBriefing>(),
        HallOperation::of::<SyncProjects>(),
        HallOperation::of::<RebaseProjects>(),
        HallOperation::of::<CreatePullRequest>(),
        HallOperation::of::<ListWorkers>(),
        HallOperation::of::<ListModels>(),
        HallOperation::of::<ListProjects>(),
        HallOperation::of::<ReadProject>(),
        HallOperation::of::<RegisterProject>(),
        HallOperation::of::<DeregisterProject>(),
        HallOperation::of::<GroupProject>(),
        HallOperation::of::<ReadSettings>(),
        HallOperation::of::<ReloadSettings>(),
        HallOperation::of::<ValidateSettings>(),
        HallOperation::of::<ReadHealth>(),
        HallOperation::of::<ReadHeartbeat>(),
        HallOperation::of::<TickHeartbeat>(),
    ]
});
