//! The manager's tools on its project besides commissions: pull requests, meetings, and a look at it with git.

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

/// Push `claude/main` and make a pull request of it, for the user to review and to merge. It is refused while other
/// work is under way in the project, and where the operator does not permit it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreatePr {
    /// A short title.
    title: String,
    /// What changed, and why, as Markdown.
    #[serde(default)]
    body: Option<String>,
}

/// Ask the user for a meeting with a worker, which may be you: to present what was found or done, or what is blocked.
/// The user accepts, declines or defers it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct InitiateMeeting {
    /// With whom: the name of a worker.
    worker_name: String,
    /// What it is about, and why the user is needed.
    reason: String,
    /// Paths of artifacts from `.lore/` that belong to it.
    #[serde(default)]
    referenced_artifacts: Option<Vec<String>>,
}

/// The files of the project's integration worktree, on `claude/main`, that differ from the last commit.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GitStatus {}

/// The definition of a look with git.
fn look<T: JsonSchema>(name: &str, title: &str, description: &str) -> Arc<ToolDefinition> {
    let definition = ToolDefinition::of::<T>(name, Some(title), true);
    Arc::new(ToolDefinition { description: description.to_owned(), ..definition })
}

/// The tools. Those that only read need an activity of a project, too.
pub(super) static DEFINITIONS: LazyLock<[Arc<ToolDefinition>; 7]> = LazyLock::new(|| {
    [
        define::<CreatePr>(PULL_REQUEST, "Create pull request", false),
        define::<InitiateMeeting>(MEETING, "Initiate meeting", false),
        define::<GitStatus>(STATUS, "Git status", true),
        look::<LogOptions>(LOG, "Git log", "The last commits of the project's `claude/main`."),
        look::<DiffOptions>(DIFF, "Git diff", "Differences in the project: what is not committed, or between commits."),
        look::<ShowOptions>(SHOW, "Git show", "One commit of the project, with its changes."),
        look::<BranchOptions>(BRANCH, "Git branches", "The branches of the project."),
    ]
});

/// Calls one of them, by which `once` is named so that a call which comes again has its effect once.
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
