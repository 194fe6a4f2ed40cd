//! Implements the tools with which a session reads the state of its project and the hall's workers, and adds to the
//! project's heartbeat.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use guild_contract::{
    Grants, OperationError,
    capability::{HALL, LORE_WRITE, MEMORY_PROJECT_WRITE},
    text::one_line,
};
use guild_session::tools::{ToolCall, ToolDefinition, ToolError, Tools, parse};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::Hall;
use crate::{
    commissions::heartbeat_file::STANDING_ORDERS,
    core::workers::{Activity, Attempt, Worker},
    tools::{answer, define, is_offered},
};

const BRIEFING: &str = "project_briefing";
const WORKERS: &str = "list_guild_capabilities";
const ADD: &str = "add_heartbeat_entry";

/// The most characters of an entry.
const ENTRY_CHARS: usize = 2000;
/// The most characters of a worker's line in a list.
const WORKER_CHARS: usize = 300;

/// The tools of one session. The reading tools need `hall:read`. The writing tool needs `lore:write`, and also
/// `memory:project:write`, because the manager receives the entry like a worker receives a project's note.
pub(super) struct ProjectTools {
    hall: Arc<Hall>,
    project: String,
    activity: Activity,
    reads: bool,
    writes: bool,
}

impl ProjectTools {
    /// The tools of a session of an attempt or a meeting that these grants allow.
    pub(super) fn new(hall: Arc<Hall>, attempt: &Attempt, grants: &Grants) -> Self {
        let reads = grants.holds(&HALL);
        let writes = grants.base.holds(&LORE_WRITE) && grants.base.holds(&MEMORY_PROJECT_WRITE);
        Self { hall, project: attempt.project.clone(), activity: attempt.activity.clone(), reads, writes }
    }

    async fn add(&self, AddHeartbeatEntry { prompt, section }: AddHeartbeatEntry) -> Result<Value, ToolError> {
        let entry = one_line(&prompt, usize::MAX);
        let chars = entry.chars().count();
        if chars == 0 || chars > ENTRY_CHARS {
            return Err(ToolError::InvalidInput(format!(
                "prompt has 1 to {ENTRY_CHARS} characters, and this has {chars}"
            )));
        }
        let added =
            self.hall.commissions.add_heartbeat_entry(&self.project, section.heading(), entry, &self.activity).await;
        if let Err(e) = added {
            return Err(self.refused(e).await);
        }
        Ok(answer(&format!("The entry is in \"{}\" of the heartbeat file.", section.heading())))
    }

    /// Converts an error of the hall, without paths of the host.
    async fn refused(&self, error: OperationError) -> ToolError {
        ToolError::Unavailable(self.hall.core.without_paths(error.to_string()).await)
    }
}

/// Summarize the state of the work on your project: the numbers of commissions and meetings in each state.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProjectBriefing {}

/// List the workers of the hall: for each, the name for commissions, the title, and the description.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListGuildCapabilities {}

/// Add an entry to your project's `.lore/heartbeat.md`, which the manager reads when the user requests a tick. It takes
/// effect at once, regardless of the outcome of your own work.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AddHeartbeatEntry {
    /// The entry: one line in plain language.
    prompt: String,
    /// The section for the entry: standing orders are carried out, the other sections inform the manager.
    section: Section,
}

/// A section of the heartbeat file that gets entries.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[schemars(inline)]
enum Section {
    #[serde(rename = "Standing Orders")]
    StandingOrders,
    #[serde(rename = "Watch Items")]
    WatchItems,
    #[serde(rename = "Context Notes")]
    ContextNotes,
}

impl Section {
    fn heading(self) -> &'static str {
        match self {
            Self::StandingOrders => STANDING_ORDERS,
            Self::WatchItems => "Watch Items",
            Self::ContextNotes => "Context Notes",
        }
    }
}

static DEFINITIONS: LazyLock<[Arc<ToolDefinition>; 3]> = LazyLock::new(|| {
    [
        define::<ProjectBriefing>(BRIEFING, "Project briefing", true),
        define::<ListGuildCapabilities>(WORKERS, "List guild capabilities", true),
        define::<AddHeartbeatEntry>(ADD, "Add heartbeat entry", false),
    ]
});

#[async_trait]
impl Tools for ProjectTools {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        let is_granted = |tool: &&Arc<ToolDefinition>| if tool.read_only { self.reads } else { self.writes };
        DEFINITIONS.iter().filter(is_granted).cloned().collect()
    }

    async fn call(&self, call: ToolCall) -> Result<Value, ToolError> {
        is_offered(self, &call.name)?;
        match call.name.as_str() {
            BRIEFING => {
                let ProjectBriefing {} = parse(BRIEFING, call.input)?;
                match self.hall.projects.briefing(&self.project).await {
                    Ok(briefing) => Ok(Value::String(briefing)),
                    Err(e) => Err(self.refused(e).await),
                }
            }
            WORKERS => {
                let ListGuildCapabilities {} = parse(WORKERS, call.input)?;
                Ok(Value::String(list(&self.hall.all_workers())))
            }
            _ => self.add(parse(ADD, call.input)?).await,
        }
    }
}

/// The workers, one on each line, each with a unique name.
fn list(workers: &[Worker]) -> String {
    if workers.is_empty() {
        return "No guild workers discovered.".to_owned();
    }
    let line = |worker: &Worker| {
        let Worker { key, display_name, display_title, description, .. } = worker;
        let is_shared = workers.iter().filter(|other| other.display_name == *display_name).count() > 1;
        let name = if is_shared { key.as_str() } else { display_name };
        one_line(&format!("{name} ({display_title}) - {description}"), WORKER_CHARS)
    };
    workers.iter().map(line).collect::<Vec<_>>().join("\n")
}
