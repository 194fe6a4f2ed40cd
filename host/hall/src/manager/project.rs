//! Implements the manager's tools on its project besides commissions: pull requests, meetings, and reading with git.

use std::sync::{Arc, LazyLock};

use guild_contract::hall::Author;
use guild_session::tools::{ToolDefinition, ToolError, parse};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    core::workers::Attempt,
    hall::Hall,
    meetings::NewRequest,
    projects::inspect::{BranchOptions, DiffOptions, LogOptions, ShowOptions},
    tools::define,
};

const PULL_REQUEST: &str = "create_pr";
const MEETING: &str = "initiate_meeting";
const STATUS: &str = "git_status";
const LOG: &str = "git_log";
const DIFF: &str = "git_diff";
const SHOW: &str = "git_show";
const BRANCH: &str = "git_branch";

/// Push `claude/main` and create a pull request for it, for the user to review and to merge. It is refused while other
/// work runs in the project, and if the operator does not permit it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreatePr {
    /// A short title.
    title: String,
    /// The changes and their reasons, as Markdown.
    #[serde(default)]
    body: Option<String>,
}

/// Request a meeting of the user with a worker, or with yourself: to present findings or results, or a problem. The
/// user accepts, declines or defers the request.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct InitiateMeeting {
    /// The name of the worker for the meeting.
    worker_name: String,
    /// The subject, and the reason why the user is needed.
    reason: String,
    /// Paths of artifacts from `.lore/` that belong to the meeting.
    #[serde(default)]
    referenced_artifacts: Option<Vec<String>>,
}

/// The files of the project's integration worktree, on `claude/main`, that differ from the last commit.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GitStatus {}

/// The definition of a tool that reads with git.
fn look<T: JsonSchema>(name: &str, title: &str, description: &str) -> Arc<ToolDefinition> {
    let definition = ToolDefinition::of::<T>(name, Some(title), true);
    Arc::new(ToolDefinition { description: description.to_owned(), ..definition })
}

/// The tools. Even the reading tools need an activity with a project.
pub(super) static DEFINITIONS: LazyLock<[Arc<ToolDefinition>; 7]> = LazyLock::new(|| {
    [
        define::<CreatePr>(PULL_REQUEST, "Create pull request", false),
        define::<InitiateMeeting>(MEETING, "Initiate meeting", false),
        define::<GitStatus>(STATUS, "Git status", true),
        look::<LogOptions>(LOG, "Git log", "The last commits of the project's `claude/main`."),
        look::<DiffOptions>(
            DIFF,
            "Git diff",
            "Differences in the project: uncommitted changes, or changes between commits.",
        ),
        look::<ShowOptions>(SHOW, "Git show", "One commit of the project, with its changes."),
        look::<BranchOptions>(BRANCH, "Git branches", "The branches of the project."),
    ]
});

/// Calls one of the tools. `once` names the call, so that a repeated call takes effect once.
pub(super) async fn call(
    hall: &Arc<Hall>,
    activity: &Attempt,
    name: &str,
    input: Value,
    once: &str,
) -> Result<Value, ToolError> {
    let project = activity.project.as_str();
    match name {
        PULL_REQUEST => {
            let CreatePr { title, body } = parse(PULL_REQUEST, input)?;
            let (body, asking) = (body.unwrap_or_default(), Some(activity.activity.id()));
            let made = hall.projects.create_pull_request(project, &title, &body, asking).await?;
            Ok(json!(made))
        }
        MEETING => {
            let InitiateMeeting { worker_name, reason, referenced_artifacts } = parse(MEETING, input)?;
            let asked = hall.meetings.request(NewRequest {
                project: project.to_owned(),
                worker: worker_name,
                reason,
                artifacts: referenced_artifacts.unwrap_or_default(),
                author: Author::Manager,
                follows: None,
                call: Some(once.to_owned()),
            });
            Ok(json!({"meetingId": asked.await?, "status": "requested"}))
        }
        STATUS => {
            let GitStatus {} = parse(STATUS, input)?;
            Ok(json!(hall.projects.git_status(project).await?))
        }
        LOG => Ok(json!(hall.projects.git_log(project, &parse(LOG, input)?).await?)),
        DIFF => Ok(Value::String(hall.projects.git_diff(project, &parse(DIFF, input)?).await?)),
        SHOW => Ok(json!(hall.projects.git_show(project, &parse(SHOW, input)?).await?)),
        _ => Ok(json!(hall.projects.git_branch(project, parse(BRANCH, input)?).await?)),
    }
}
