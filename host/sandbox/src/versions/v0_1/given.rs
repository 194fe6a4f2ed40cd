//! What all versions of an activation have, in the types of WIT.

use guild_session::activation::Activation;

use super::bindings::{exports::guild::worker::dispatch, guild::worker::types};

pub(super) fn project(activation: &Activation) -> Option<dispatch::Project> {
    let project = activation.project.as_ref()?;
    Some(dispatch::Project { name: project.name.clone(), root: project.root.clone() })
}

pub(super) fn memories(activation: &Activation) -> Vec<dispatch::MemoryNote> {
    let notes = activation.memories.iter().map(|note| dispatch::MemoryNote {
        scope: note.scope.into(),
        key: note.key.clone(),
        content: note.content.clone(),
        modified: note.modified.clone(),
        origin: note.origin.as_ref().map(ToString::to_string),
    });
    notes.collect()
}

pub(super) fn toolbox_tools(activation: &Activation) -> Vec<types::ToolDefinition> {
    let tools = activation.toolbox_tools.iter().map(|tool| types::ToolDefinition {
        name: tool.name.clone(),
        title: tool.title.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.to_string(),
        output_schema: tool.output_schema.as_ref().map(ToString::to_string),
        read_only: tool.read_only,
    });
    tools.collect()
}

pub(super) fn bounds(activation: &Activation) -> types::Bounds {
    types::Bounds {
        max_turns: activation.bounds.max_turns,
        max_budget_usd: activation.bounds.max_budget_usd,
        deadline_seconds: activation.bounds.deadline_seconds,
    }
}

/// The meeting, where it is one; else it is a commission.
pub(super) fn meeting(activation: &Activation) -> Option<dispatch::Meeting> {
    let meeting = activation.meeting.as_ref()?;
    Some(dispatch::Meeting {
        id: meeting.id.clone(),
        agenda: meeting.agenda.clone(),
        artifacts: meeting.artifacts.clone(),
    })
}

pub(super) fn request(activation: &Activation) -> types::Request {
    let request = &activation.request;
    types::Request {
        description: request.description.clone(),
        task: request.task.clone(),
        config: request.config.to_string(),
    }
}
