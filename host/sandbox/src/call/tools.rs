//! Reads and bounds tools as components define them.

use guild_contract::json::parsed_bytes;
use guild_session::tools::{ToolDefinition, ToolError};
use serde_json::Value;

/// The bytes of a tool in memory besides its texts and schemas.
pub(crate) const TOOL_BYTES: usize = 512;
/// The bytes of a tool's name that an error repeats.
const HEAD_BYTES: usize = 256;

/// A tool as a component defines it: its schemas are texts that are not parsed yet.
#[derive(Clone, Debug)]
pub(crate) struct WrittenTool {
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: String,
    pub(crate) input_schema: String,
    pub(crate) output_schema: Option<String>,
    pub(crate) read_only: bool,
}

impl WrittenTool {
    /// The bytes of all its texts.
    pub(crate) fn text_bytes(&self) -> usize {
        let or_none = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.name.len()
            + or_none(&self.title)
            + self.description.len()
            + self.input_schema.len()
            + or_none(&self.output_schema)
    }

    /// Bytes that it takes of the host's memory once it is read, without copies.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let schemas = [Some(&self.input_schema), self.output_schema.as_ref()];
        let plain = TOOL_BYTES + self.name.len() + self.title.as_ref().map_or(0, String::len) + self.description.len();
        plain as u64 + schemas.into_iter().flatten().map(|schema| parsed_bytes(schema.as_bytes())).sum::<u64>()
    }

    /// Reads its schemas. The error names the tool whose schema is no JSON object.
    pub(crate) fn read(self) -> Result<ToolDefinition, ToolError> {
        let name = self.name.get(..self.name.floor_char_boundary(HEAD_BYTES)).unwrap_or_default();
        let schema = |what: &str, text: &str| {
            serde_json::from_str::<Value>(text)
                .ok()
                .filter(Value::is_object)
                .ok_or_else(|| ToolError::InvalidInput(format!("{what} of the tool {name:?} is no JSON object")))
        };
        Ok(ToolDefinition {
            input_schema: schema("the input schema", &self.input_schema)?,
            output_schema: self.output_schema.as_deref().map(|text| schema("the output schema", text)).transpose()?,
            name: self.name,
            title: self.title,
            description: self.description,
            read_only: self.read_only,
        })
    }
}
