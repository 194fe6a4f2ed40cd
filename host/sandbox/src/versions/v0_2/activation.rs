//! The activation as the component sees it.

use guild_session::activation::Activation;

use super::{
    bindings::{exports::guild::worker::dispatch, guild::worker::types},
    given,
};

/// What the host knows, in the types of WIT.
pub(super) fn to_wit(activation: &Activation) -> dispatch::Activation {
    dispatch::Activation {
        context: given::meeting(activation)
            .map_or_else(|| dispatch::Context::Commission(commission(activation)), dispatch::Context::Meeting),
        project: given::project(activation),
        posture: activation.posture.clone(),
        scopes: activation.scopes.iter().copied().map(Into::into).collect(),
        memories: given::memories(activation),
        granted_tools: activation.granted_tools.clone(),
        toolbox_tools: given::toolbox_tools(activation),
        bounds: given::bounds(activation),
    }
}

fn commission(activation: &Activation) -> dispatch::Commission {
    dispatch::Commission {
        job: activation.job.to_string(),
        request: given::request(activation),
        attempt: activation.attempt.as_ref().map(|attempt| types::Attempt {
            commission: attempt.commission.clone(),
            number: attempt.number,
            dependencies: attempt.dependencies.clone(),
        }),
    }
}
