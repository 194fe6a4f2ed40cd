//! What the operator allows: rules for the members that a pattern matches, and what they can name.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize, Serializer};

use crate::{
    hosts::check_host,
    ids::MemberKey,
    limits::Limits,
    manifest::{Interface, Scope},
    nearest::nearest,
};

/// What an activity of the manager may beget: the commissions that it makes, those that they make, and so on. They are counted
/// together, to the meeting or the commission of the user's that they began with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delegation {
    /// Commissions that follow from one another: those that the user's own activity makes are 1 deep.
    pub depth: u32,
    /// Commissions in all, whatever became of them.
    pub commissions: u32,
    /// US dollars that all of them have spent, and may still spend.
    pub budget_usd: f64,
}

impl Default for Delegation {
    fn default() -> Self {
        Self { depth: 3, commissions: 20, budget_usd: 50.0 }
    }
}

/// Something that can be allowed or denied, as `guild.toml` spells it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// `*`: everything.
    All,
    /// An interface with all that it reaches, as `files`. For sessions it is the same: `files` is Read, Grep and Glob
    /// too, `web` is WebFetch and WebSearch, and `memory` is what is injected into them and their memory tools. Those of the
    /// hall are `hall:read` and `hall:manage`.
    Interface(Interface),
    /// `memory:write`: storing and deleting memories.
    MemoryWrite,
    /// `memory:project`: the memories of the project that a commission is about, of which all its workers are told.
    MemoryProject,
    /// `memory:project:write`: writing them. A worker whose sessions have the web or a toolbox needs a rule that names it.
    MemoryProjectWrite,
    /// `memory:global`: those of all projects and workers.
    MemoryGlobal,
    /// `memory:global:write`: writing them, which always needs a rule that names it.
    MemoryGlobalWrite,
    /// `files:ROOT`: one read root, by its name; `*` stands for any characters.
    Root(String),
    /// `web:HOST`: hosts, by the patterns of `[web]`.
    Host(String),
    /// `web:search`: the search provider.
    Search,
    /// `agent:own-tools`: tools of its own for the sessions that a component starts.
    OwnTools,
    /// `artifacts`: files of a job, written by the component itself below `/job/artifacts` or by `write_artifact`.
    Artifacts,
    /// `lore:write`: the texts of the project that a commission is about, but for its records.
    LoreWrite,
    /// `worktree:write`: all other files that are checked out for a commission.
    WorktreeWrite,
}

impl Capability {
    /// The interface that it belongs to.
    pub(crate) fn interface(&self) -> Option<Interface> {
        match self {
            Self::All | Self::Artifacts | Self::LoreWrite | Self::WorktreeWrite => None,
            Self::Interface(interface) => Some(*interface),
            Self::MemoryWrite
            | Self::MemoryProject
            | Self::MemoryProjectWrite
            | Self::MemoryGlobal
            | Self::MemoryGlobalWrite => Some(Interface::Memory),
            Self::Root(_) => Some(Interface::Files),
            Self::Host(_) | Self::Search => Some(Interface::Web),
            Self::OwnTools => Some(Interface::Agent),
        }
    }

    /// Whether it names all of `wanted`.
    pub(crate) fn covers(&self, wanted: &Self) -> bool {
        match self {
            Self::All => true,
            Self::Interface(interface) => wanted.interface() == Some(*interface),
            Self::MemoryProject if *wanted == Self::MemoryProjectWrite => true,
            Self::MemoryGlobal if *wanted == Self::MemoryGlobalWrite => true,
            other => other == wanted,
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Interface(interface) => f.write_str(interface.grant()),
            Self::MemoryWrite => f.write_str("memory:write"),
            Self::MemoryProject => f.write_str("memory:project"),
            Self::MemoryProjectWrite => f.write_str("memory:project:write"),
            Self::MemoryGlobal => f.write_str("memory:global"),
            Self::MemoryGlobalWrite => f.write_str("memory:global:write"),
            Self::Root(root) => write!(f, "files:{root}"),
            Self::Host(host) => write!(f, "web:{host}"),
            Self::Search => f.write_str("web:search"),
            Self::OwnTools => f.write_str("agent:own-tools"),
            Self::Artifacts => f.write_str("artifacts"),
            Self::LoreWrite => f.write_str("lore:write"),
            Self::WorktreeWrite => f.write_str("worktree:write"),
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
        if let Some(interface) = Interface::ALL.into_iter().find(|interface| interface.grant() == text) {
            return Ok(Self::Interface(interface));
        }
        match text.split_once(':') {
            None if text == "*" => return Ok(Self::All),
            None if text == "artifacts" => return Ok(Self::Artifacts),
            None => {}
            Some(("memory", "write")) => return Ok(Self::MemoryWrite),
            Some(("memory", "project")) => return Ok(Self::MemoryProject),
            Some(("memory", "project:write")) => return Ok(Self::MemoryProjectWrite),
            Some(("memory", "global")) => return Ok(Self::MemoryGlobal),
            Some(("memory", "global:write")) => return Ok(Self::MemoryGlobalWrite),
            Some(("lore", "write")) => return Ok(Self::LoreWrite),
            Some(("worktree", "write")) => return Ok(Self::WorktreeWrite),
            Some(("files", root)) if !root.is_empty() => return Ok(Self::Root(root.to_owned())),
            Some(("web", "search")) => return Ok(Self::Search),
            Some(("web", host)) if !host.is_empty() => {
                check_host(host)?;
                return Ok(Self::Host(host.to_owned()));
            }
            Some(("agent", "own-tools")) => return Ok(Self::OwnTools),
            Some(_) => {}
        }
        let interfaces = Interface::ALL.map(Interface::grant);
        let plain = [
            "artifacts",
            "memory:write",
            "memory:project",
            "memory:project:write",
            "memory:global",
            "memory:global:write",
            "web:search",
            "agent:own-tools",
            "lore:write",
            "worktree:write",
        ];
        let hint = match nearest(text, interfaces.into_iter().chain(plain)) {
            Some(candidate) => format!("did you mean {candidate:?}?"),
            None => format!("there are {}, {}, files:ROOT, web:HOST and *", interfaces.join(", "), plain.join(", ")),
        };
        Err(format!("{text:?} cannot be granted; {hint}"))
    }
}

/// Names that are granted: read roots, or hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Names {
    /// One pattern of each of these lists has to match: what was asked for, what is allowed. None: every name.
    pub all_of: Vec<Vec<String>>,
    /// None of these may match.
    pub none_of: Vec<String>,
}

impl Names {
    /// Whether a name is granted, where `matches(pattern, name)` says what a pattern means.
    pub fn grant(&self, name: &str, matches: impl Fn(&str, &str) -> bool) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        self.all_of.iter().all(|patterns| any(patterns)) && !any(&self.none_of)
    }

    /// Those that are granted here and there.
    pub(crate) fn and(mut self, other: Self) -> Self {
        let news = |known: &[String], pattern: &String| !known.contains(pattern);
        self.none_of.extend(other.none_of.into_iter().filter(|p| news(&self.none_of, p)).collect::<Vec<_>>());
        let lists = other.all_of.into_iter().filter(|list| !self.all_of.contains(list)).collect::<Vec<_>>();
        self.all_of.extend(lists);
        self
    }
}

/// Memories that are not a member's own. They are there in commissions only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScopeGrants {
    /// Those of the project.
    pub project: bool,
    /// Those of all projects.
    pub global: bool,
}

impl ScopeGrants {
    /// Whether the notes of a scope are among them. A worker's own always are.
    pub fn has(self, scope: Scope) -> bool {
        match scope {
            Scope::Worker => true,
            Scope::Project => self.project,
            Scope::Global => self.global,
        }
    }
}

/// Which members a rule is for: a key, with `*` for any characters, `/` too.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(pub String);

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.replace('*', "x").parse::<MemberKey>() {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(_) => Err(format!(
                "{text:?} is no member's key, nor a pattern of keys: a directory's name, or two with '/' between, of \
                 letters, digits, '-', '_' or '.'; `*` stands for any characters"
            )),
        }
    }
}

impl Pattern {
    /// The one key that it is, where it has no `*`.
    pub fn exact(&self) -> Option<&str> {
        (!self.0.contains('*')).then_some(self.0.as_str())
    }

    /// How many characters of a key it says: the more, the closer it is.
    pub fn closeness(&self) -> usize {
        self.0.bytes().filter(|byte| *byte != b'*').count()
    }

    /// Whether a name is meant.
    pub fn matches(&self, name: &str) -> bool {
        wildcard(&self.0, name)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether `name` is as `pattern` says, where `*` stands for any characters. It takes no more than the product of both
/// lengths.
pub fn wildcard(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.as_bytes(), name.as_bytes());
    let mut last_star = None;
    loop {
        match (pattern, name) {
            ([b'*', rest @ ..], _) => {
                last_star = Some((rest, name));
                pattern = rest;
            }
            ([], []) => return true,
            ([p, rest @ ..], [n, left @ ..]) if p == n => (pattern, name) = (rest, left),
            _ => match last_star {
                Some((rest, [_, left @ ..])) => {
                    last_star = Some((rest, left));
                    (pattern, name) = (rest, left);
                }
                _ => return false,
            },
        }
    }
}

/// One `[member.PATTERN]` of the operator's policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// Whom it is for.
    pub members: Pattern,
    /// `allow`: nothing else is granted to them, but what another rule allows.
    pub allow: Option<Vec<Capability>>,
    /// `deny`: it wins over every `allow`.
    pub deny: Vec<Capability>,
    /// `limits`: those of the whole host, with its own in place.
    pub limits: Option<Box<Limits>>,
}

/// What the operator allows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// The rules, in their order in the file. The order has no meaning.
    pub rules: Vec<Rule>,
    /// Whether the web is open at all: whether there is a `[web]`.
    pub web: bool,
    /// `[hall] manager`: the one member that can hold `hall:manage`.
    pub manager: Option<MemberKey>,
    /// `strict_imports`: a component that imports what it was not granted is refused, instead of linked so that it cannot.
    pub strict_imports: bool,
}

impl Policy {
    /// The rules that are for a member.
    pub(crate) fn rules_for(&self, key: &MemberKey) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.members.matches(key.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_reads_as_it_is_written() {
        for text in [
            "*",
            "log",
            "job-tools",
            "memory:write",
            "files:docs",
            "web:*.docs.rs",
            "web:search",
            "artifacts",
            "agent:own-tools",
            "memory:project",
            "memory:project:write",
            "memory:global",
            "memory:global:write",
            "lore:write",
            "worktree:write",
            "hall:read",
            "hall:manage",
        ] {
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
    fn a_star_stands_for_any_characters() {
        for (pattern, name) in [("*", ""), ("*", "a/b"), ("a*c", "abc"), ("a*c", "ac"), ("*b*b", "abab"), ("a", "a")] {
            assert!(wildcard(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("a", "ab"), ("a*c", "ab"), ("*b*b", "ab"), ("a*b", "b")] {
            assert!(!wildcard(pattern, name), "{pattern} {name}");
        }
        assert!(!wildcard(&"*a".repeat(200), &"b".repeat(2000)));
    }

    #[test]
    fn a_pattern_is_a_key_or_could_be_one() {
        for sound in ["ann", "team/ann", "*", "team/*", "*/ann", "a*b/c*", "**"] {
            assert!(sound.parse::<Pattern>().is_ok(), "{sound}");
        }
        for unsound in ["", "a?", "[a]", "a/b/c", "../*", "a b", "/"] {
            assert!(unsound.parse::<Pattern>().unwrap_err().contains("no member's key"), "{unsound}");
        }
    }
}
