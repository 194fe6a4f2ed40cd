//! Catalogues a component's tools, with their compiled schemas.

use std::{collections::HashMap, iter, sync::Arc};

use guild_contract::{Limits, MemberKey};
use guild_sandbox::Plugin;
use guild_session::tools::ToolDefinition;
use serde_json::Value;

use super::schema::{self, Schema};

/// The tools of a component, listed and compiled once, when it was loaded. The order is the component's.
pub struct Catalogue {
    /// Each, as its component lists it.
    pub tools: Vec<Arc<ToolDefinition>>,
    /// The same ones, as sessions are offered them: called by the member's prefix and their names.
    offered: Vec<Arc<ToolDefinition>>,
    pub(crate) schemas: HashMap<String, Schemas>,
}

/// The schemas of a tool's input and output.
pub(crate) struct Schemas {
    pub(crate) input: Schema,
    pub(crate) output: Option<Schema>,
}

impl Catalogue {
    /// The tools of a component that is the member's of that key.
    ///
    /// # Errors
    ///
    /// Returns the name of a tool with an invalid schema.
    pub fn of(key: &MemberKey, plugin: &Plugin, limits: &Limits) -> Result<Self, String> {
        let tools = plugin.tools().to_vec();
        let all = tools.iter().flat_map(|tool| [Some(&tool.input_schema), tool.output_schema.as_ref()]);
        let room = schema::pattern_bytes(all.flatten());
        let name = |what: &str, tool: &str| format!("the {what} schema of the tool {tool:?}");
        let mut quick = schema::QUICK_WEIGHTS;
        let mut of = |what: &str, tool: &ToolDefinition, schema: &Value| {
            Schema::of(schema, room, &mut quick).map_err(|why| format!("{}: {why}", name(what, &tool.name)))
        };
        let of_tool = |tool: &Arc<ToolDefinition>| {
            let input = of("input", tool, &tool.input_schema)?;
            let output = tool.output_schema.as_ref().map(|schema| of("output", tool, schema)).transpose()?;
            Ok((tool.name.clone(), Schemas { input, output }))
        };
        let schemas: HashMap<_, _> = tools.iter().map(of_tool).collect::<Result<_, String>>()?;
        let named = schemas.iter().flat_map(|(tool, Schemas { input, output })| {
            let output = output.as_ref().map(|schema| (name("output", tool), schema));
            iter::once((name("input", tool), input)).chain(output)
        });
        schema::check_all(named, limits)?;
        let offered =
            |tool: &Arc<ToolDefinition>| Arc::new(ToolDefinition { name: key.tool(&tool.name), ..(**tool).clone() });
        Ok(Self { offered: tools.iter().map(offered).collect(), tools, schemas })
    }

    /// The names of its tools.
    pub fn names(&self) -> Vec<String> {
        self.tools.iter().map(|tool| tool.name.clone()).collect()
    }

    /// Each tool, and how sessions are offered it.
    pub fn offered(&self) -> impl Iterator<Item = (&Arc<ToolDefinition>, &Arc<ToolDefinition>)> {
        self.tools.iter().zip(&self.offered)
    }
}
