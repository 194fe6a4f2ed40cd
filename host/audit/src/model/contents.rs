//! The data of an audit on the sections of a component's file, and the traces in them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The sections, sizes and traces of a component's file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Contents {
    /// Core modules in it.
    pub core_modules: u64,
    /// Components in it.
    pub components: u64,
    /// Functions that its core modules define.
    pub functions: u64,
    /// Linear memories that its core modules define.
    pub memories: u64,
    /// The bytes that these memories have at the start.
    pub memory_bytes: u64,
    /// Tables that its core modules define.
    pub tables: u64,
    /// The elements that these tables have at the start.
    pub table_elements: u64,
    /// Bytes of code.
    pub code_bytes: u64,
    /// Bytes of data.
    pub data_bytes: u64,
    /// Bytes of debug sections: names, and `.debug_*`.
    pub debug_bytes: u64,
    /// The sections by their names, nested ones too: the largest first, at most 60.
    pub sections: Vec<Section>,
    /// Paths of the machine that it was made on; at most 10.
    pub host_paths: Vec<HostPath>,
    /// The number of such paths, as far as they were counted: up to 1,000.
    pub host_paths_total: u64,
    /// Beginnings of programs within its data; at most 10.
    pub programs: Vec<Program>,
}

/// All sections of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Section {
    /// The name: of a standard section, or a custom one's in quotes.
    pub name: String,
    /// The number of sections of this name.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A path of the machine that a component was made on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostPath {
    /// The section that has it.
    pub section: String,
    /// The path; a long one is cut.
    pub path: String,
}

/// The beginning of a program, or of a key, within data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Program {
    /// The offset in bytes from the file's beginning.
    pub offset: u64,
    /// The kind of program or key.
    pub form: String,
    /// The number of its bytes, of WebAssembly and of text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The first characters on one line, of text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub preview: String,
}
