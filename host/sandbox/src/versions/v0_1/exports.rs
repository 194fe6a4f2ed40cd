//! Finds and calls the exports of a component.

use guild_contract::{Bounds, manifest::World};
use guild_session::activation::{Activation, Plan, Refusal, SessionPlan};
use wasmtime::{
    Store,
    component::{Instance, InstancePre},
};
use wasmtime_wasi::async_trait;

use super::{
    activation::to_wit,
    bindings::{
        exports::guild::worker::{dispatch, run, toolbox},
        guild::worker::types,
    },
};
use crate::{
    call::{ToolFault, tools::WrittenTool},
    state::State,
};

/// The exports of a component, according to its world.
pub(super) struct Exports {
    dispatch: Option<dispatch::GuestIndices>,
    run: Option<run::GuestIndices>,
    toolbox: Option<toolbox::GuestIndices>,
}

impl Exports {
    pub(super) fn find(pre: &InstancePre<State>, world: World) -> wasmtime::Result<Self> {
        let run = matches!(world, World::AutonomousWorker);
        Ok(Self {
            dispatch: world.exports_dispatch().then(|| dispatch::GuestIndices::new(pre)).transpose()?,
            run: run.then(|| run::GuestIndices::new(pre)).transpose()?,
            toolbox: world.exports_toolbox().then(|| toolbox::GuestIndices::new(pre)).transpose()?,
        })
    }
}

/// The export; an error where the component's world does not have it.
fn found<'a, T>(export: Option<&'a T>, name: &str) -> wasmtime::Result<&'a T> {
    export.ok_or_else(|| wasmtime::Error::msg(format!("the component exports no `{name}`")))
}

#[async_trait]
impl crate::versions::Exports for Exports {
    fn has_run(&self) -> bool {
        self.run.is_some()
    }

    fn has_toolbox(&self) -> bool {
        self.toolbox.is_some()
    }

    async fn activate(
        &self,
        store: &mut Store<State>,
        instance: Instance,
        activation: &Activation,
    ) -> wasmtime::Result<Result<Plan, Refusal>> {
        let dispatch = found(self.dispatch.as_ref(), "dispatch")?.load(&mut *store, &instance)?;
        let answer = dispatch.call_activate(store, &to_wit(activation)).await?;
        Ok(answer.map(Into::into).map_err(|refusal| match refusal {
            dispatch::Refusal::InvalidConfig(why) => Refusal::InvalidConfig(why),
            dispatch::Refusal::Unsupported(why) => Refusal::Unsupported(why),
        }))
    }

    async fn run(
        &self,
        store: &mut Store<State>,
        instance: Instance,
        activation: &Activation,
    ) -> wasmtime::Result<Result<String, String>> {
        let run = found(self.run.as_ref(), "run")?.load(&mut *store, &instance)?;
        run.call_run(store, &to_wit(activation)).await
    }

    async fn list_tools(&self, store: &mut Store<State>, instance: Instance) -> wasmtime::Result<Vec<WrittenTool>> {
        let toolbox = found(self.toolbox.as_ref(), "toolbox")?.load(&mut *store, &instance)?;
        Ok(toolbox.call_list_tools(store).await?.into_iter().map(Into::into).collect())
    }

    async fn call_tool(
        &self,
        store: &mut Store<State>,
        instance: Instance,
        name: &str,
        input: String,
    ) -> wasmtime::Result<Result<String, ToolFault>> {
        let toolbox = found(self.toolbox.as_ref(), "toolbox")?.load(&mut *store, &instance)?;
        let name = name.to_owned();
        let answer = toolbox.call_call_tool(store, &name, &input).await?;
        Ok(answer.map_err(|error| match error {
            toolbox::ToolError::UnknownTool(text) => ToolFault::UnknownTool(text),
            toolbox::ToolError::InvalidInput(text) => ToolFault::InvalidInput(text),
            toolbox::ToolError::Failed(text) => ToolFault::Failed(text),
        }))
    }
}

impl From<types::ToolDefinition> for WrittenTool {
    fn from(tool: types::ToolDefinition) -> Self {
        let types::ToolDefinition { name, title, description, input_schema, output_schema, read_only } = tool;
        Self { name, title, description, input_schema, output_schema, read_only }
    }
}

impl From<dispatch::Plan> for Plan {
    fn from(plan: dispatch::Plan) -> Self {
        match plan {
            dispatch::Plan::OwnRun(bounds) => Self::OwnRun(self::bounds(bounds)),
            dispatch::Plan::Session(session) => Self::Session(SessionPlan {
                system_prompt: session.system_prompt,
                prompt: session.prompt,
                tools: session.tools,
                toolbox_tools: session.toolbox_tools,
                model: session.model,
                bounds: bounds(session.bounds),
            }),
        }
    }
}

/// Bounds as a component writes them.
pub(super) fn bounds(bounds: types::Bounds) -> Bounds {
    Bounds {
        max_turns: bounds.max_turns,
        max_budget_usd: bounds.max_budget_usd,
        deadline_seconds: bounds.deadline_seconds,
    }
}
