//! Lists the capabilities that a member can be granted in one table, [`KINDS`].
//!
//! A row has a capability's name, the manifest's request for it, the capability that it is a part of, and its users.
//! Manifests, `guild.toml`, approvals, audits and the reference use the rows; the code that enforces a capability calls
//! [`Grants::holds`](crate::Grants::holds).

pub mod base_toolbox;
pub mod denial;
pub mod grants;
pub mod interfaces;
mod policy;

use std::{cmp::Ordering, fmt, str::FromStr};

use serde::{Serialize, Serializer};

pub use policy::Delegation;

use crate::{
    manifest::{ComponentSpec, FILE_TOOLS, Interface, RequestedGrants, Scope, check_host},
    text::nearest::nearest,
};

/// A capability that can be allowed or denied, as `guild.toml` spells it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// `*`: everything.
    All,
    /// One of [`KINDS`].
    Kind(&'static Kind),
    /// `files:ROOT`: one read root, by its name; `*` stands for any characters.
    Root(String),
    /// `web:HOST`: hosts, by the patterns of `[web]`.
    Host(String),
}

/// A capability that is written as one word: a row of [`KINDS`].
pub struct Kind {
    /// The name in `guild.toml`, and in texts for people.
    pub name: &'static str,
    /// The permission in words, for the reference.
    pub what: &'static str,
    /// The capability that this one is a part of: a rule that names the whole includes the part.
    pub part_of: Option<&'static Kind>,
    /// The key of a manifest that requests the capability, below `component`.
    pub key: &'static str,
    /// The line with which a manifest requests the capability.
    pub line: &'static str,
    /// Whether a manifest requests the capability.
    pub is_asked: fn(&RequestedGrants, &[Scope]) -> bool,
    /// The interface by which a component uses the capability; `None` if no import is needed.
    pub import: Option<Interface>,
    /// Whether a component uses the capability only in jobs, not in calls of its tools.
    pub of_jobs: bool,
    /// Whether sessions of a member use the capability.
    pub of_sessions: fn(&ComponentSpec) -> bool,
    /// Whether sessions of commissions and meetings have the capability without a request.
    pub unasked: Unasked,
}

/// Whether sessions of commissions and meetings have a capability that their manifest does not request.
#[derive(Clone, Copy)]
pub enum Unasked {
    /// The sessions do not have it.
    No,
    /// The sessions have it as a part of the base toolbox, if these other capabilities are allowed too.
    Base(&'static [&'static Kind]),
    /// The sessions have it if a rule names it and these other capabilities are allowed too.
    Named(&'static [&'static Kind]),
}

/// All kinds.
pub static KINDS: [&Kind; 19] = [
    &LOG,
    &MEMORY,
    &FILES,
    &WEB,
    &JOB_TOOLS,
    &STATUS,
    &AGENT,
    &HALL,
    &MANAGER,
    &SEARCH,
    &OWN_TOOLS,
    &ARTIFACTS,
    &LORE_WRITE,
    &WORKTREE_WRITE,
    &MEMORY_WRITE,
    &MEMORY_PROJECT,
    &MEMORY_GLOBAL,
    &MEMORY_PROJECT_WRITE,
    &MEMORY_GLOBAL_WRITE,
];

/// The defaults of a kind.
const PLAIN: Kind = Kind {
    name: "",
    what: "",
    part_of: None,
    key: "",
    line: "",
    is_asked: |_, _| false,
    import: None,
    of_jobs: true,
    of_sessions: |_| false,
    unasked: Unasked::No,
};

/// Writes lines into the job's log.
pub static LOG: Kind = Kind {
    name: "log",
    what: "the interface `log`: writing lines into the job's log",
    key: "grants.log",
    line: "\"log\": {}",
    is_asked: |asked, _| asked.log.is_some(),
    import: Some(Interface::Log),
    of_jobs: false,
    ..PLAIN
};

/// Reads the member's memory.
pub static MEMORY: Kind = Kind {
    name: "memory",
    what: "the interface `memory`, notes in the prompts of sessions, and their memory tools",
    key: "grants.memory",
    line: "\"memory\": {}",
    is_asked: |asked, _| asked.memory.is_some(),
    import: Some(Interface::Memory),
    of_jobs: false,
    of_sessions: has_jobs,
    ..PLAIN
};

/// Reads files under the read roots.
pub static FILES: Kind = Kind {
    name: "files",
    what: "the interface `files`, and Read, Grep and Glob",
    key: "grants.files",
    line: "\"files\": {}",
    is_asked: |asked, _| asked.files.is_some(),
    import: Some(Interface::Files),
    of_jobs: false,
    // WebSearch searches the roots if there is no provider.
    of_sessions: |spec| uses(spec, &FILE_TOOLS) || uses(spec, &["WebSearch"]),
    ..PLAIN
};

/// Reaches the web.
pub static WEB: Kind = Kind {
    name: "web",
    what: "the interface `web`, WebFetch and WebSearch",
    key: "grants.web",
    line: "\"web\": {}",
    is_asked: |asked, _| asked.web.is_some(),
    import: Some(Interface::Web),
    of_jobs: false,
    of_sessions: |spec| uses(spec, &["WebFetch", "WebSearch"]),
    ..PLAIN
};

/// Calls the internal tools.
pub static JOB_TOOLS: Kind = Kind {
    name: "job-tools",
    what: "the interface `job-tools`: a job's summary, questions, decisions, files and result",
    key: "grants.job-tools",
    line: "\"job-tools\": {}",
    is_asked: |asked, _| asked.job_tools.is_some(),
    import: Some(Interface::JobTools),
    ..PLAIN
};

/// Reads the job's own record.
pub static STATUS: Kind = Kind {
    name: "status",
    what: "the interface `status`: reading the job's own record",
    key: "grants.status",
    line: "\"status\": {}",
    is_asked: |asked, _| asked.status.is_some(),
    import: Some(Interface::Status),
    ..PLAIN
};

/// Starts agent sessions.
pub static AGENT: Kind = Kind {
    name: "agent",
    what: "the interface `agent`: sessions that a component starts",
    key: "grants.agent",
    line: "\"agent\": {}",
    is_asked: |asked, _| asked.agent.is_some(),
    import: Some(Interface::Agent),
    ..PLAIN
};

/// Reads the hall.
pub static HALL: Kind = Kind {
    name: "hall:read",
    what: "the interface `hall`: reading the workers, commissions and meetings of the hall",
    key: "grants.hall.read",
    line: "\"hall\": {\"read\": true}",
    is_asked: |asked, _| asked.hall.is_some_and(|hall| hall.read),
    import: Some(Interface::Hall),
    // The manager's sessions read with the tools with which they manage.
    of_sessions: |spec| has_jobs(spec) && spec.asks(&MANAGER),
    ..PLAIN
};

/// Manages the hall.
pub static MANAGER: Kind = Kind {
    name: "hall:manage",
    what: "the interface `manager` and the manager's tools: commissioning other workers, asking for pull requests and \
           meetings; only the member that `[hall] manager` names can hold it",
    key: "grants.hall.manage",
    line: "\"hall\": {\"manage\": true}",
    is_asked: |asked, _| asked.hall.is_some_and(|hall| hall.manage),
    import: Some(Interface::Manager),
    of_sessions: has_jobs,
    ..PLAIN
};

/// Uses the search provider.
pub static SEARCH: Kind = Kind {
    name: "web:search",
    what: "the search provider; without it WebSearch searches the granted read roots",
    part_of: Some(&WEB),
    key: "grants.web.search",
    line: "\"web\": {\"search\": true}",
    is_asked: |asked, _| asked.web.as_ref().is_some_and(|web| web.search),
    import: Some(Interface::Web),
    of_jobs: false,
    ..PLAIN
};

/// Gives a component's own tools to sessions that it starts.
pub static OWN_TOOLS: Kind = Kind {
    name: "agent:own-tools",
    what: "a component's own tools in sessions that it starts",
    part_of: Some(&AGENT),
    key: "grants.agent.ownTools",
    line: "\"agent\": {\"ownTools\": true}",
    is_asked: |asked, _| asked.agent.is_some_and(|agent| agent.own_tools),
    import: Some(Interface::Agent),
    ..PLAIN
};

/// Writes a job's files.
pub static ARTIFACTS: Kind = Kind {
    name: "artifacts",
    what: "writing files of a job, below `/job/artifacts` or with `write_artifact`",
    key: "grants.artifacts",
    line: "\"artifacts\": {}",
    is_asked: |asked, _| asked.artifacts.is_some(),
    of_sessions: has_jobs,
    ..PLAIN
};

/// Writes documents of a commission's project.
pub static LORE_WRITE: Kind = Kind {
    name: "lore:write",
    what: "in a commission, writing documents in the project's `.lore/`, except its records",
    key: "grants.lore",
    line: "\"lore\": {\"write\": true}",
    is_asked: |asked, _| asked.lore.is_some_and(|lore| lore.write),
    of_sessions: has_jobs,
    unasked: Unasked::Base(&[]),
    ..PLAIN
};

/// Writes the other files of a commission's project.
pub static WORKTREE_WRITE: Kind = Kind {
    name: "worktree:write",
    what: "in a commission, writing the other files that are checked out for it",
    key: "grants.worktree",
    line: "\"worktree\": {\"write\": true}",
    is_asked: |asked, _| asked.worktree.is_some_and(|worktree| worktree.write),
    of_sessions: has_jobs,
    unasked: Unasked::Base(&[]),
    ..PLAIN
};

/// Stores and deletes memories.
pub static MEMORY_WRITE: Kind = Kind {
    name: "memory:write",
    what: "storing and deleting memories, by the component or with `store_memory`",
    part_of: Some(&MEMORY),
    key: "grants.memory.write",
    line: "\"memory\": {\"write\": true}",
    is_asked: |asked, _| asked.memory.is_some_and(|memory| memory.write),
    import: Some(Interface::Memory),
    ..PLAIN
};

/// Reads the memories of a commission's project, which all its workers are given.
pub static MEMORY_PROJECT: Kind = Kind {
    name: "memory:project",
    what: "in a commission, reading notes of its project",
    part_of: Some(&MEMORY),
    key: "scopes",
    line: "\"project\"",
    is_asked: |_, scopes| scopes.contains(&Scope::Project),
    of_sessions: has_jobs,
    unasked: Unasked::Base(&[]),
    ..PLAIN
};

/// Reads the memories of all projects and workers.
pub static MEMORY_GLOBAL: Kind = Kind {
    name: "memory:global",
    what: "in a commission, reading notes for all projects",
    part_of: Some(&MEMORY),
    key: "scopes",
    line: "\"global\"",
    is_asked: |_, scopes| scopes.contains(&Scope::Global),
    of_sessions: has_jobs,
    unasked: Unasked::Base(&[]),
    ..PLAIN
};

/// Writes the memories of a project. A worker whose sessions have the web or a toolbox needs a rule that names this
/// capability.
pub static MEMORY_PROJECT_WRITE: Kind = Kind {
    name: "memory:project:write",
    what: "in a commission, writing notes of its project; see below",
    part_of: Some(&MEMORY_PROJECT),
    unasked: Unasked::Base(&[&MEMORY_WRITE, &MEMORY_PROJECT]),
    ..PLAIN
};

/// Writes the memories of all projects.
pub static MEMORY_GLOBAL_WRITE: Kind = Kind {
    name: "memory:global:write",
    what: "in a commission, writing notes for all projects; see below",
    part_of: Some(&MEMORY_GLOBAL),
    unasked: Unasked::Named(&[&MEMORY_WRITE, &MEMORY_GLOBAL]),
    ..PLAIN
};

fn has_jobs(spec: &ComponentSpec) -> bool {
    spec.world.exports_dispatch()
}

fn uses(spec: &ComponentSpec, tools: &[&str]) -> bool {
    spec.tools.iter().any(|tool| tools.contains(&tool.as_str()))
}

impl Kind {
    /// The kind of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        KINDS.into_iter().find(|kind| kind.name == name)
    }

    /// The kind of the memories of a scope; `None` for a worker's own memories, which it always has.
    pub fn of_scope(scope: Scope) -> Option<&'static Self> {
        match scope {
            Scope::Worker => None,
            Scope::Project => Some(&MEMORY_PROJECT),
            Scope::Global => Some(&MEMORY_GLOBAL),
        }
    }

    /// A sentence about the line with which a manifest requests the capability.
    pub fn how_to_ask(&self) -> String {
        let list = self.key.split('.').next().unwrap_or_default();
        format!("add `{}` to `component.{list}`, and have the operator allow it", self.line)
    }

    /// Whether a member has requested this part of the base toolbox, by itself or with the whole that it belongs to.
    /// `is_asked` returns whether the member requests a kind.
    pub fn is_asked_with(&self, is_asked: impl Fn(&Self) -> bool) -> bool {
        let whole = self.part_of.filter(|whole| !matches!(whole.unasked, Unasked::No));
        is_asked(self) || whole.is_some_and(is_asked)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Kind {}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kind {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(other.name)
    }
}

impl Interface {
    /// The capability that permits importing the interface.
    pub fn kind(self) -> &'static Kind {
        match self {
            Self::Log => &LOG,
            Self::Memory => &MEMORY,
            Self::Files => &FILES,
            Self::Web => &WEB,
            Self::JobTools => &JOB_TOOLS,
            Self::Status => &STATUS,
            Self::Agent => &AGENT,
            Self::Hall => &HALL,
            Self::Manager => &MANAGER,
        }
    }
}

impl ComponentSpec {
    /// Whether the manifest requests a capability.
    pub fn asks(&self, kind: &Kind) -> bool {
        (kind.is_asked)(&self.grants, &self.scopes)
    }
}

impl Capability {
    /// The capability that this one is a part of.
    pub(crate) fn whole(&self) -> Option<&'static Kind> {
        match self {
            Self::All => None,
            Self::Kind(kind) => kind.part_of,
            Self::Root(_) => Some(&FILES),
            Self::Host(_) => Some(&WEB),
        }
    }

    /// Whether a rule that names this capability covers all of `wanted`.
    pub(crate) fn covers(&self, wanted: &Self) -> bool {
        *self == Self::All || self == wanted || wanted.whole().is_some_and(|whole| self.covers(&Self::Kind(whole)))
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Kind(kind) => f.write_str(kind.name),
            Self::Root(root) => write!(f, "files:{root}"),
            Self::Host(host) => write!(f, "web:{host}"),
        }
    }
}

impl Serialize for Capability {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Capability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(kind) = Kind::named(text) {
            return Ok(Self::Kind(kind));
        }
        match text.split_once(':') {
            None if text == "*" => return Ok(Self::All),
            Some(("files", root)) if !root.is_empty() => return Ok(Self::Root(root.to_owned())),
            Some(("web", host)) if !host.is_empty() => {
                check_host(host)?;
                return Ok(Self::Host(host.to_owned()));
            }
            _ => {}
        }
        let names = KINDS.map(|kind| kind.name);
        let hint = match nearest(text, names) {
            Some(candidate) => format!("did you mean {candidate:?}?"),
            None => format!("the capabilities are {}, files:ROOT, web:HOST and *", names.join(", ")),
        };
        Err(format!("{text:?} cannot be granted; {hint}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_reads_as_it_is_written() {
        for text in KINDS.map(|kind| kind.name).into_iter().chain(["*", "files:docs", "web:*.docs.rs"]) {
            assert_eq!(text.parse::<Capability>().unwrap().to_string(), text);
        }
        for text in ["", "sockets", "files:", "memory:read", "log:x", "hall", "manager"] {
            assert!(text.parse::<Capability>().unwrap_err().contains("cannot be granted"), "{text}");
        }
    }

    #[test]
    fn a_host_that_looks_like_another_is_not_named() {
        for (host, why) in [("web:dосs.rs", "Punycode"), (&format!("web:{}", "a".repeat(254)), "at most 253")] {
            assert!(host.parse::<Capability>().unwrap_err().contains(why), "{host}");
        }
    }

    #[test]
    fn a_row_asks_for_itself_and_for_nothing_that_it_is_no_part_of() {
        for kind in KINDS.into_iter().filter(|kind| !kind.key.is_empty()) {
            let said = match kind.key {
                "scopes" => format!("{{\"scopes\": [{}]}}", kind.line),
                _ => format!("{{\"grants\": {{{}}}}}", kind.line),
            };
            let mut spec: serde_json::Value = serde_json::from_str(&said).unwrap();
            spec["file"] = "x.wasm".into();
            spec["world"] = "worker".into();
            let spec: ComponentSpec = serde_json::from_value(spec).unwrap();
            for other in KINDS {
                let is_meant =
                    other == kind || kind.part_of.is_some_and(|whole| other == whole && kind.key != "scopes");
                assert_eq!(spec.asks(other), is_meant, "{kind}: {other}");
            }
        }
    }
}
