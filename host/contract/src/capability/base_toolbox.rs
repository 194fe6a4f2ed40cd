//! Computes the base toolbox: the tools that every session of a commission or a meeting has, even if its member does
//! not request them (REQ-WKR-2, REQ-WKR-9).
//!
//! An operator's rule can remove each of them. A member that was approved before a tool became a part of the toolbox
//! needs another approval for the tool.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use serde::{Deserialize, Serialize};

use crate::{
    capability::{
        FILES, KINDS, Kind, MEMORY_GLOBAL_WRITE, MEMORY_PROJECT_WRITE, Unasked, denial::Denial, policy::Names,
    },
    manifest::{FILE_TOOLS, Scope},
};

/// The parts of the base toolbox, as `guild.lock` and `guild approve` name them: tools and capabilities.
pub fn parts() -> impl Iterator<Item = &'static str> {
    let kinds = KINDS.into_iter().filter(|kind| matches!(kind.unasked, Unasked::Base(_)));
    FILE_TOOLS.into_iter().chain(kinds.map(|kind| kind.name))
}

/// The base toolbox of a member's sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BaseToolbox {
    /// The names of the parts. The tools read the worktree. Writing notes for all projects is a part only if a rule of
    /// the operator names it.
    parts: BTreeSet<String>,
    /// The read roots of the worktree that the tools read; `None` for the roots that the member is granted.
    pub roots: Option<Names>,
    /// The reasons for missing parts, by the parts' names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub denied: BTreeMap<String, Denial>,
}

impl BaseToolbox {
    /// Computes the base toolbox under rules: `denial` returns the reason that the rules do not allow a capability, and
    /// `roots` are the read roots that they allow.
    pub(crate) fn new(roots: Names, denial: impl Fn(&'static Kind) -> Option<String>) -> Self {
        let mut base = Self::default();
        let mut add = |part: &str, denied: Option<String>| match denied {
            None => _ = base.parts.insert(part.to_owned()),
            Some(why) => _ = base.denied.insert(part.to_owned(), Denial::Reason(why)),
        };
        for tool in FILE_TOOLS {
            add(tool, denial(&FILES));
        }
        for kind in KINDS {
            match kind.unasked {
                Unasked::No => {}
                Unasked::Base(needs) | Unasked::Named(needs) => {
                    add(kind.name, needs.iter().copied().chain([kind]).find_map(&denial));
                }
            }
        }
        base.roots = FILE_TOOLS.iter().any(|tool| base.has(tool)).then_some(roots);
        base
    }

    /// Makes a base toolbox of these parts.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        Self { parts: parts.into_iter().map(str::to_owned).collect(), ..Self::default() }
    }

    /// Removes some capabilities, for this reason.
    #[must_use]
    pub fn without(mut self, kinds: &[&Kind], why: &str) -> Self {
        for kind in kinds.iter().filter(|kind| self.parts.remove(kind.name)) {
            self.denied.insert(kind.name.to_owned(), Denial::Reason(why.to_owned()));
        }
        self
    }

    /// Removes the parts that `is_approved` does not name.
    pub(crate) fn approved(mut self, is_approved: impl Fn(&str) -> bool) -> Self {
        for part in parts().filter(|part| !is_approved(part)) {
            self.parts.remove(part);
            self.denied.entry(part.to_owned()).or_insert(Denial::AwaitsApproval);
        }
        if !FILE_TOOLS.into_iter().all(&is_approved) {
            self.roots = None;
        }
        // A member that may not read notes may not write them.
        let reads = |kind: &&Kind| kind.part_of.is_some_and(|whole| self.has(whole.name));
        let unread: Vec<_> = [&MEMORY_PROJECT_WRITE, &MEMORY_GLOBAL_WRITE].into_iter().filter(|k| !reads(k)).collect();
        for kind in unread {
            if self.parts.remove(kind.name) {
                self.denied.insert(kind.name.to_owned(), Denial::AwaitsApproval);
            }
        }
        self
    }

    /// Keeps the parts that both toolboxes have.
    pub(crate) fn and(mut self, then: &Self) -> Self {
        let parts = mem::take(&mut self.parts).into_iter();
        let (held, missing): (_, BTreeSet<String>) = parts.partition(|part| then.parts.contains(part));
        self.parts = held;
        self.denied.extend(missing.into_iter().map(|part| (part, Denial::BeganWithout)));
        if then.roots.is_none() {
            self.roots = None;
        }
        self
    }

    /// Whether the toolbox has a part of that name.
    pub fn has(&self, part: &str) -> bool {
        self.parts.contains(part)
    }

    /// Whether sessions may do what the capability permits.
    pub fn holds(&self, kind: &Kind) -> bool {
        self.has(kind.name)
    }

    /// The names of the parts.
    pub fn held(&self) -> impl Iterator<Item = &'static str> {
        FILE_TOOLS.into_iter().chain(KINDS.map(|kind| kind.name)).filter(|part| self.has(part))
    }

    /// The parts that wait for an approval.
    pub fn waiting(&self) -> impl Iterator<Item = &str> {
        self.denied.iter().filter(|(_, why)| **why == Denial::AwaitsApproval).map(|(part, _)| part.as_str())
    }

    /// Checks whether sessions may write notes of a scope.
    ///
    /// # Errors
    ///
    /// Returns the reason that they may not, in a sentence that names the line to change.
    pub fn may_write(&self, scope: Scope) -> Result<(), String> {
        let wanted = match scope {
            Scope::Worker => return Ok(()),
            Scope::Project => &MEMORY_PROJECT_WRITE,
            Scope::Global => &MEMORY_GLOBAL_WRITE,
        };
        if self.holds(wanted) { Ok(()) } else { Err(self.denial(wanted)) }
    }

    /// The reason that a part is missing, in a sentence.
    pub fn denial(&self, wanted: &Kind) -> String {
        let why = self.denied.get(wanted.name).unwrap_or(&Denial::BeganWithout);
        format!("`{wanted}` is not granted to this {}: {why}", why.whose())
    }
}
