//! The base toolbox: the tools that every session has in a commission or a meeting, whether its member asks for them or not
//! (REQ-WKR-2, REQ-WKR-9). An operator's rule takes away each of them, and a member that was approved before a tool was part
//! of it waits for another approval.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    manifest::{FILE_TOOLS, Interface, Scope},
    policy::{Capability, Names, ScopeGrants},
};

/// The parts of the base toolbox, as `guild.lock` and `guild approve` name them. Writing notes for all projects is none: that
/// takes an operator's rule.
pub const PARTS: [&str; 8] =
    ["Read", "Grep", "Glob", "lore:write", "worktree:write", "memory:project", "memory:global", "memory:project:write"];

/// Why a part is not there that came with a later host than the one under which a member was approved.
const WAITS: &str = "it came with a later version of the host than the one under which this member was approved; its operator \
                     looks at it with `guild approve`";

/// The base toolbox of a member's sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BaseToolbox {
    /// Those of [`FILE_TOOLS`] that it has. They read the worktree.
    pub tools: Vec<String>,
    /// Which read roots of the worktree they read; `None`: those that the member is granted.
    pub roots: Option<Names>,
    /// Whether documents of the project may be written, but for the records of the hall.
    pub lore_write: bool,
    /// Whether the other files that are checked out may be written.
    pub worktree_write: bool,
    /// Whose notes may be read besides the worker's own.
    pub read: ScopeGrants,
    /// Whose notes may be written besides the worker's own.
    pub write: ScopeGrants,
    /// Why a part is not there, and the line that would change that, by the part's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub denied: BTreeMap<String, String>,
}

impl BaseToolbox {
    /// The base toolbox under rules by which `denial` says why a capability is not allowed. `roots` are the read roots that
    /// they allow.
    pub(crate) fn new(roots: Names, denial: impl Fn(&Capability) -> Option<String>) -> Self {
        let mut denied = BTreeMap::new();
        let mut has = |part: &str, wanted: &[Capability]| match wanted.iter().find_map(&denial) {
            Some(why) => {
                denied.insert(part.to_owned(), why);
                false
            }
            None => true,
        };
        let files = [Capability::Interface(Interface::Files)];
        let tools: Vec<String> = FILE_TOOLS.iter().filter(|tool| has(tool, &files)).map(ToString::to_string).collect();
        let (project, global) = (Capability::MemoryProject, Capability::MemoryGlobal);
        let mut writes = |read: &Capability, write: Capability| {
            has(&write.to_string(), &[Capability::MemoryWrite, read.clone(), write.clone()])
        };
        let write = ScopeGrants {
            project: writes(&project, Capability::MemoryProjectWrite),
            global: writes(&global, Capability::MemoryGlobalWrite),
        };
        Self {
            roots: (!tools.is_empty()).then_some(roots),
            tools,
            lore_write: has("lore:write", &[Capability::LoreWrite]),
            worktree_write: has("worktree:write", &[Capability::WorktreeWrite]),
            read: ScopeGrants { project: has("memory:project", &[project]), global: has("memory:global", &[global]) },
            write,
            denied,
        }
    }

    /// The same without the parts that `is_approved` does not name.
    pub(crate) fn approved(mut self, is_approved: impl Fn(&str) -> bool) -> Self {
        let Self { tools, roots, lore_write, worktree_write, read, write, denied } = &mut self;
        let mut keeps = |part: &str| {
            let keeps = is_approved(part);
            if !keeps {
                denied.entry(part.to_owned()).or_insert_with(|| WAITS.to_owned());
            }
            keeps
        };
        tools.retain(|tool| keeps(tool));
        if !FILE_TOOLS.into_iter().all(&is_approved) {
            *roots = None;
        }
        for (has, part) in [
            (lore_write, "lore:write"),
            (worktree_write, "worktree:write"),
            (&mut read.project, "memory:project"),
            (&mut read.global, "memory:global"),
            (&mut write.project, "memory:project:write"),
        ] {
            *has &= keeps(part);
        }
        write.project &= read.project;
        write.global &= read.global;
        self
    }

    /// The parts that are in both.
    pub(crate) fn and(mut self, then: &Self) -> Self {
        self.tools.retain(|tool| then.tools.contains(tool));
        if then.roots.is_none() {
            self.roots = None;
        }
        self.lore_write &= then.lore_write;
        self.worktree_write &= then.worktree_write;
        self.read.project &= then.read.project;
        self.read.global &= then.read.global;
        self.write.project &= then.write.project;
        self.write.global &= then.write.global;
        self
    }

    /// Whether it has a part of that name.
    pub fn has(&self, part: &str) -> bool {
        match part {
            "lore:write" => self.lore_write,
            "worktree:write" => self.worktree_write,
            "memory:project" => self.read.project,
            "memory:global" => self.read.global,
            "memory:project:write" => self.write.project,
            "memory:global:write" => self.write.global,
            tool => self.tools.iter().any(|has| has == tool),
        }
    }

    /// The parts that wait for an approval.
    pub fn waiting(&self) -> impl Iterator<Item = &str> {
        self.denied.iter().filter(|(_, why)| *why == WAITS).map(|(part, _)| part.as_str())
    }

    /// Whether notes of a scope may be written.
    ///
    /// # Errors
    /// Why not, in a sentence that names the line to change.
    pub fn may_write(&self, scope: Scope) -> Result<(), String> {
        let (may, wanted) = match scope {
            Scope::Worker => return Ok(()),
            Scope::Project => (self.write.project, Capability::MemoryProjectWrite),
            Scope::Global => (self.write.global, Capability::MemoryGlobalWrite),
        };
        if may { Ok(()) } else { Err(self.denial(&wanted)) }
    }

    /// Why a part is not there, in a sentence.
    pub fn denial(&self, wanted: &Capability) -> String {
        let why = self.denied.get(&wanted.to_string());
        let why = why.map_or("the job began without it", String::as_str);
        format!("`{wanted}` is not granted to this member: {why}")
    }
}
