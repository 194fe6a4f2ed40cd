//! Converts an activation into the types of WIT.

use guild_session::activation::Activation;

use super::bindings::{exports::guild::worker::dispatch, guild::worker::types};

/// The whole activation.
pub(super) fn to_wit(activation: &Activation) -> dispatch::Activation {
    let Activation { project, bounds, .. } = activation;
    dispatch::Activation {
        context: context(activation),
        project: project.as_ref().map(|p| dispatch::Project { name: p.name.clone(), root: p.root.clone() }),
        posture: activation.posture.clone(),
        scopes: activation.scopes.iter().copied().map(Into::into).collect(),
        memories: memories(activation),
        granted_tools: activation.granted_tools.clone(),
        toolbox_tools: toolbox_tools(activation),
        bounds: types::Bounds {
            max_turns: bounds.max_turns,
            max_budget_usd: bounds.max_budget_usd,
            deadline_seconds: bounds.deadline_seconds,
        },
    }
}

fn context(activation: &Activation) -> dispatch::Context {
    if let Some(meeting) = &activation.meeting {
        return dispatch::Context::Meeting(dispatch::Meeting {
            id: meeting.id.clone(),
            agenda: meeting.agenda.clone(),
            artifacts: meeting.artifacts.clone(),
        });
    }
    let request = &activation.request;
    dispatch::Context::Commission(dispatch::Commission {
        job: activation.job.to_string(),
        request: types::Request {
            description: request.description.clone(),
            task: request.task.clone(),
            config: request.config.to_string(),
        },
        attempt: activation.attempt.as_ref().map(|attempt| types::Attempt {
            commission: attempt.commission.clone(),
            number: attempt.number,
            dependencies: attempt.dependencies.clone(),
        }),
    })
}

fn memories(activation: &Activation) -> Vec<dispatch::MemoryNote> {
    let notes = activation.memories.iter().map(|note| dispatch::MemoryNote {
        scope: note.scope.into(),
        key: note.key.clone(),
        content: note.content.clone(),
        modified: note.modified.clone(),
        origin: note.origin.as_ref().map(ToString::to_string),
    });
    notes.collect()
}

fn toolbox_tools(activation: &Activation) -> Vec<types::ToolDefinition> {
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
