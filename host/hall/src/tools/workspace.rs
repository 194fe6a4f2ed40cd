//! Implements the tools that write files of a project (REQ-WKR-2) in an attempt's worktree, unless the operator denies
//! `worktree:write`. They are not called Write and Edit, since other agents' tools with these names reach the whole
//! computer.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use guild_contract::{Grants, capability::WORKTREE_WRITE};
use guild_git::{Checkout, RULES_BYTES, is_rules_file};
use guild_jobs::Names;
use guild_session::{
    task::blocking,
    tools::{ToolCall, ToolDefinition, ToolError, Tools, parse},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    answer, define, is_offered, lore_write,
    worktree::{Worktree, key},
};
use crate::files::{names, protected::LORE, text};

const WRITE: &str = "workspace_write";
const EDIT: &str = "workspace_edit";

/// The most bytes of an edited file, before and after the edit.
const MAX_EDITED_BYTES: usize = 16 << 20;

/// The tools that write files of a project. If the operator denies them, they do not exist.
#[derive(Clone)]
pub struct WorkspaceTools {
    worktree: Arc<Worktree>,
    grants: Arc<Grants>,
    checkout: Checkout,
}

impl WorkspaceTools {
    /// The tools on a worktree with this checkout.
    pub fn new(worktree: Arc<Worktree>, grants: Arc<Grants>, checkout: Checkout) -> Self {
        Self { worktree, grants, checkout }
    }

    /// The names of a path that may be written: checked-out files, and documents if those are granted too.
    fn writable<'a>(&self, path: &'a str) -> Result<Names<'a>, ToolError> {
        let names = names(path)?;
        if names.as_slice().first() == Some(&LORE) {
            lore_write(&self.grants)?;
        } else if self.checkout == Checkout::Sparse {
            // A file that is not checked out would be replaced without having been read.
            return Err(ToolError::InvalidInput(format!(
                "{path:?} is not checked out: only workers whose package has `\"checkoutScope\": \"full\"` have all \
                 files"
            )));
        }
        Ok(names)
    }

    fn call_blocking(&self, call: ToolCall) -> Result<Value, ToolError> {
        let key = key(&call);
        let ToolCall { name, input, .. } = call;
        if name == WRITE {
            let WorkspaceWrite { path, content } = parse(WRITE, input)?;
            self.worktree.write(&self.writable(&path)?, Some(&key), || Ok(content.into_bytes()))?;
            return Ok(answer("The file is written."));
        }
        let edit: WorkspaceEdit = parse(EDIT, input)?;
        let names = self.writable(&edit.path)?;
        let is_rules = names.as_slice().last().is_some_and(|name| is_rules_file(name));
        let most = if is_rules { RULES_BYTES } else { MAX_EDITED_BYTES };
        self.worktree.write(&names, Some(&key), || {
            let before = self.worktree.read(&names, MAX_EDITED_BYTES as u64)?;
            let before = before.ok_or_else(|| {
                ToolError::InvalidInput(format!("there is no file {:?}; {WRITE} creates one", text(&names)))
            })?;
            let before = String::from_utf8(before)
                .map_err(|_| ToolError::InvalidInput(format!("{:?} is not UTF-8 text", text(&names))))?;
            edit.apply(&before, most).map(String::into_bytes)
        })?;
        Ok(answer("The file is changed."))
    }
}

/// Write a file of the project. An existing file is replaced, so read it first. Paths start at the top of the project.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkspaceWrite {
    /// The path from the top of the project, without `..`, for instance `src/main.rs`.
    path: String,
    /// The whole text.
    content: String,
}

/// Change a file of the project: replace a text that occurs once in it with another.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkspaceEdit {
    /// The path from the top of the project, for instance `src/main.rs`.
    path: String,
    /// The text in the file, with enough surrounding lines that it occurs once.
    old: String,
    /// The replacement.
    new: String,
    /// Whether all occurrences of the text are replaced; otherwise there must be exactly one.
    #[serde(default)]
    all: Option<bool>,
}

impl WorkspaceEdit {
    /// The edited text, if it has at most that many bytes.
    fn apply(&self, before: &str, most: usize) -> Result<String, ToolError> {
        let Self { path, old, new, all } = self;
        if old.is_empty() {
            return Err(ToolError::InvalidInput(format!("old must not be empty; {WRITE} writes a whole file")));
        }
        let found = before.matches(old.as_str()).count();
        match found {
            0 => return Err(ToolError::InvalidInput(format!("old does not occur in {path:?}; read the file again"))),
            1 => {}
            _ if *all == Some(true) => {}
            _ => {
                return Err(ToolError::InvalidInput(format!(
                    "old occurs {found} times in {path:?}: add lines around it, or set \"all\": true"
                )));
            }
        }
        let after = (before.len() - found * old.len()).saturating_add(found.saturating_mul(new.len()));
        if after > most {
            return Err(ToolError::OverLimit(format!(
                "{path:?} would have {after} bytes, and the result of an edit has at most {most}"
            )));
        }
        Ok(before.replace(old.as_str(), new))
    }
}

static DEFINITIONS: LazyLock<[Arc<ToolDefinition>; 2]> = LazyLock::new(|| {
    [define::<WorkspaceWrite>(WRITE, "Write file", false), define::<WorkspaceEdit>(EDIT, "Edit file", false)]
});

#[async_trait]
impl Tools for WorkspaceTools {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        if self.grants.base.holds(&WORKTREE_WRITE) { DEFINITIONS.to_vec() } else { Vec::new() }
    }

    async fn call(&self, call: ToolCall) -> Result<Value, ToolError> {
        is_offered(self, &call.name)?;
        let tools = self.clone();
        blocking(move || tools.call_blocking(call)).await
    }

    // An edit that is made twice may change what the first one wrote.
    fn repeats_safely(&self, tool: &str) -> bool {
        tool == WRITE
    }
}
