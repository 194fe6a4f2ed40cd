//! Implements the tools for artifacts (REQ-WKR-9): the project's documents in `.lore/` of an attempt's worktree.
//! Changes there are committed and merged with the attempt.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use guild_contract::{Grants, capability::LORE_WRITE};
use guild_session::{
    task::blocking,
    tools::{ToolCall, ToolDefinition, ToolError, Tools, parse},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    answer, define, is_offered, lore_write,
    report::{Report, Reports},
    worktree::{Worktree, key},
};
use crate::{
    blocking::in_background,
    files::{FileList, below_lore, in_lore, names, protected::LORE, text},
};

const READ: &str = "read_artifact";
const WRITE: &str = "write_artifact";
const LIST: &str = "list_artifacts";

/// The most bytes of an artifact that are read; the answer to a session is bounded separately.
const MAX_READ_BYTES: u64 = 1 << 20;
/// The most artifacts in a list.
const MAX_LISTED: usize = 1000;

/// The tools for artifacts. The reading tools always exist.
#[derive(Clone)]
pub struct LoreTools {
    worktree: Arc<Worktree>,
    grants: Arc<Grants>,
    reports: Arc<dyn Reports>,
}

impl LoreTools {
    /// The tools on a worktree. Writes are reported.
    pub fn new(worktree: Arc<Worktree>, grants: Arc<Grants>, reports: Arc<dyn Reports>) -> Self {
        Self { worktree, grants, reports }
    }

    /// Writes an artifact.
    ///
    /// # Errors
    ///
    /// Returns an error when writing is not granted, the path is not that of an artifact, a quota is exceeded, or the
    /// job has ended.
    pub async fn write(&self, path: &str, contents: Vec<u8>, call: Option<String>) -> Result<(), ToolError> {
        lore_write(&self.grants)?;
        let (path, worktree) = (in_lore(path), self.worktree.clone());
        let write = move || {
            let names = names(&path)?;
            worktree.write(&names, call.as_deref(), || Ok(contents))?;
            Ok(below_lore(&text(&names)).to_owned())
        };
        self.reports.report(Report::Artifact { path: blocking(write).await? }).await
    }

    /// The path below `.lore/` of an existing artifact.
    pub(super) fn existing(&self, path: &str) -> Result<String, ToolError> {
        let path = in_lore(path);
        let names = names(&path)?;
        if self.worktree.is_file(&names) {
            return Ok(below_lore(&path).to_owned());
        }
        Err(ToolError::InvalidInput(format!("there is no artifact {:?}; {LIST} lists them", below_lore(&path))))
    }

    fn read(&self, path: &str) -> Result<Value, ToolError> {
        let path = in_lore(path);
        let bytes = self.worktree.read(&names(&path)?, MAX_READ_BYTES)?;
        let bytes = bytes.ok_or_else(|| {
            ToolError::InvalidInput(format!("there is no artifact {:?}; {LIST} lists them", below_lore(&path)))
        })?;
        Ok(Value::String(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn list(&self, directory: &str) -> Result<Value, ToolError> {
        let directory = directory.trim_end_matches('/');
        let path = if matches!(directory, "" | "." | LORE) { LORE.to_owned() } else { in_lore(directory) };
        let Some(files) = self.worktree.list(&names(&path)?)? else {
            if path == LORE {
                return Ok(answer("There are no artifacts."));
            }
            return Err(ToolError::InvalidInput(format!("there is no directory {directory:?} among the artifacts")));
        };
        let inside = if path == LORE { String::new() } else { format!("{}/", below_lore(&path)) };
        let FileList { files, truncated } = files;
        let mut lines: Vec<String> = files.iter().take(MAX_LISTED).map(|file| format!("{inside}{file}")).collect();
        match files.len().saturating_sub(MAX_LISTED) {
            0 if lines.is_empty() => lines.push("There are no artifacts.".to_owned()),
            0 => {}
            more => lines.push(format!("({more} more: name a directory)")),
        }
        if truncated {
            lines.push("(there are more than this tool can read: name a directory)".to_owned());
        }
        Ok(Value::String(lines.join("\n")))
    }

    async fn carry_out(self, call: ToolCall) -> Result<Value, ToolError> {
        let key = key(&call);
        let ToolCall { name, input, .. } = call;
        match name.as_str() {
            READ => {
                let ReadArtifact { relative_path } = parse(READ, input)?;
                blocking(move || self.read(&relative_path)).await
            }
            WRITE => {
                let WriteArtifact { relative_path, content } = parse(WRITE, input)?;
                let write = async move { self.write(&relative_path, content.into_bytes(), Some(key)).await };
                in_background(write).await?;
                Ok(answer("The artifact is written."))
            }
            _ => {
                let ListArtifacts { directory } = parse(LIST, input)?;
                blocking(move || self.list(&directory.unwrap_or_default())).await
            }
        }
    }
}

/// Read an artifact: a document of the project below `.lore/`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ReadArtifact {
    /// The path from `.lore/`, as in `list_artifacts`, for instance `specs/plan.md`.
    #[serde(alias = "path")]
    relative_path: String,
}

/// Write an artifact: a document of the project below `.lore/`, for people and for later work. An existing one is
/// replaced.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WriteArtifact {
    /// The path from `.lore/`, without `..`, for instance `reports/crates.md`.
    #[serde(alias = "path")]
    relative_path: String,
    /// The whole text.
    #[serde(alias = "contents")]
    content: String,
}

/// List the artifacts: the documents of the project below `.lore/`, one path on each line.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListArtifacts {
    /// Lists only the artifacts below this directory, for instance `specs`.
    #[serde(default)]
    directory: Option<String>,
}

static DEFINITIONS: LazyLock<[Arc<ToolDefinition>; 3]> = LazyLock::new(|| {
    [
        define::<ReadArtifact>(READ, "Read artifact", true),
        define::<WriteArtifact>(WRITE, "Write artifact", false),
        define::<ListArtifacts>(LIST, "List artifacts", true),
    ]
});

#[async_trait]
impl Tools for LoreTools {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        let is_granted = |tool: &&Arc<ToolDefinition>| self.grants.base.holds(&LORE_WRITE) || tool.read_only;
        DEFINITIONS.iter().filter(is_granted).cloned().collect()
    }

    async fn call(&self, call: ToolCall) -> Result<Value, ToolError> {
        is_offered(self, &call.name)?;
        self.clone().carry_out(call).await
    }

    // A document is written as a whole.
    fn repeats_safely(&self, _tool: &str) -> bool {
        true
    }
}
