//! Grants: what a member may do is what its manifest asks for and what the operator's policy allows. [`Grants::of`] is
//! the one place where the two meet.
//!
//! The operator's side is a list of [`Rule`]s, each for the members that a pattern matches. Without any rule a member is
//! granted all that it asks for, but for the web, which has to be opened first. Where rules with an `allow` match, only what
//! one of them names is granted; and what any matching `deny` names is not, whatever else is said.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Serialize, Serializer};

use crate::{
    MemberKey,
    manifest::{ComponentSpec, Interface},
};

/// Something that can be allowed or denied, as `guild.toml` spells it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// `*`: everything.
    All,
    /// An interface with all that it reaches, as `files`. For sessions it is the same: `files` is Read, Grep and Glob
    /// too, `web` is WebFetch and WebSearch, and `memory` is what is injected into them and their memory tools.
    Interface(Interface),
    /// `memory:write`: storing and deleting memories.
    MemoryWrite,
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
}

impl Capability {
    /// The interface that it belongs to.
    fn interface(&self) -> Option<Interface> {
        match self {
            Self::All | Self::Artifacts => None,
            Self::Interface(interface) => Some(*interface),
            Self::MemoryWrite => Some(Interface::Memory),
            Self::Root(_) => Some(Interface::Files),
            Self::Host(_) | Self::Search => Some(Interface::Web),
            Self::OwnTools => Some(Interface::Agent),
        }
    }

    /// Whether it names all of `wanted`.
    fn covers(&self, wanted: &Self) -> bool {
        match self {
            Self::All => true,
            Self::Interface(interface) => wanted.interface() == Some(*interface),
            other => other == wanted,
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Interface(interface) => f.write_str(interface.as_str()),
            Self::MemoryWrite => f.write_str("memory:write"),
            Self::Root(root) => write!(f, "files:{root}"),
            Self::Host(host) => write!(f, "web:{host}"),
            Self::Search => f.write_str("web:search"),
            Self::OwnTools => f.write_str("agent:own-tools"),
            Self::Artifacts => f.write_str("artifacts"),
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
        match text.split_once(':') {
            None if text == "*" => return Ok(Self::All),
            None if text == "artifacts" => return Ok(Self::Artifacts),
            None => {
                if let Some(interface) = Interface::ALL.into_iter().find(|interface| interface.as_str() == text) {
                    return Ok(Self::Interface(interface));
                }
            }
            Some(("memory", "write")) => return Ok(Self::MemoryWrite),
            Some(("files", root)) if !root.is_empty() => return Ok(Self::Root(root.to_owned())),
            Some(("web", "search")) => return Ok(Self::Search),
            Some(("web", host)) if !host.is_empty() => return Ok(Self::Host(host.to_owned())),
            Some(("agent", "own-tools")) => return Ok(Self::OwnTools),
            Some(_) => {}
        }
        let known = Interface::ALL.map(Interface::as_str).join(", ");
        Err(format!(
            "{text:?} cannot be granted; there are {known}, artifacts, memory:write, files:ROOT, web:HOST, web:search, \
             agent:own-tools and *"
        ))
    }
}

/// Which members a rule is for: a key, with `*` for any characters, `/` too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Pattern(pub String);

impl Pattern {
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whom it is for.
    pub members: Pattern,
    /// `allow`: nothing else is granted to them, but what another rule allows.
    pub allow: Option<Vec<Capability>>,
    /// `deny`: it wins over every `allow`.
    pub deny: Vec<Capability>,
}

/// What the operator allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The rules, in their order in the file. The order has no meaning.
    pub rules: Vec<Rule>,
    /// Whether the web is open at all: whether there is a `[web]`.
    pub web: bool,
    /// `strict_imports`: a component that imports what it was not granted is refused, instead of linked so that it cannot.
    pub strict_imports: bool,
}

/// Names that are granted: read roots, or hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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
}

/// What became of a wish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "verdict", content = "reason")]
pub enum Verdict {
    /// Asked for, and allowed.
    Granted,
    /// Asked for, and not allowed: why, and which line of `guild.toml` would allow it.
    Denied(String),
}

/// What a member may do: asked for, and allowed. It is made when the member's component is loaded, and does not change
/// while a job runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Grants {
    /// The interfaces that the manifest asks for, and what became of each.
    pub interfaces: BTreeMap<Interface, Verdict>,
    /// Whether memories may be given to a session, and read by one.
    pub memory: bool,
    /// Whether the component may store and delete memories.
    pub memory_write: bool,
    /// Whether sessions have the tool that stores memories. It is one of the internal tools, which need not be asked for.
    pub session_memory: bool,
    /// Which read roots the component and its sessions may read; `None`: none at all.
    pub roots: Option<Names>,
    /// Which hosts the component and its sessions may read, out of those that `[web]` opens; `None`: none at all.
    pub hosts: Option<Names>,
    /// Whether the component may ask the search provider.
    pub search: bool,
    /// Whether sessions that the component starts may be given tools of its own.
    pub own_tools: bool,
    /// Whether the job's files may be written.
    pub artifacts: bool,
    /// The read-only tools that sessions may be given, where there is something for them to read.
    pub tools: Vec<String>,
    /// Whether a component that imports what was not granted is refused.
    pub strict_imports: bool,
}

impl Grants {
    /// What the member `key` may do, whose manifest says `spec`, under `policy`.
    pub fn of(key: &MemberKey, spec: &ComponentSpec, policy: &Policy) -> Self {
        let rules = Rules::of(key, policy);
        let wishes = &spec.grants;
        let interfaces: BTreeMap<_, _> = Interface::ALL
            .into_iter()
            .filter(|interface| wishes.asks(*interface))
            .map(|interface| {
                let denied = if interface == Interface::Web && !policy.web {
                    Some("guild.toml has no [web], which opens the web".to_owned())
                } else {
                    rules.denial(&Capability::Interface(interface))
                };
                (interface, denied.map_or(Verdict::Granted, Verdict::Denied))
            })
            .collect();
        let allowed = |capability: Capability| rules.denial(&capability).is_none();
        let whole = |interface| allowed(Capability::Interface(interface));
        let granted = |interface| interfaces.get(&interface) == Some(&Verdict::Granted);

        let asked_roots = wishes.files.as_ref().map(|files| files.roots.clone()).unwrap_or_default();
        let roots = whole(Interface::Files).then(|| {
            let root = |c: &Capability| if let Capability::Root(root) = c { Some(root.clone()) } else { None };
            rules.names(Interface::Files, asked_roots, root)
        });
        let asked_hosts = wishes.web.as_ref().map(|web| web.hosts.clone()).unwrap_or_default();
        let hosts = (policy.web && whole(Interface::Web)).then(|| {
            let host = |c: &Capability| if let Capability::Host(host) = c { Some(host.clone()) } else { None };
            rules.names(Interface::Web, asked_hosts, host)
        });
        let may_search = allowed(Capability::Search);
        let tool = |tool: &&String| match tool.as_str() {
            "WebFetch" => hosts.is_some(),
            // Without a provider it searches the read roots.
            "WebSearch" => may_search || roots.is_some(),
            _ => roots.is_some(),
        };
        Self {
            memory: whole(Interface::Memory),
            memory_write: granted(Interface::Memory)
                && wishes.memory.is_some_and(|memory| memory.write)
                && allowed(Capability::MemoryWrite),
            session_memory: allowed(Capability::MemoryWrite),
            search: granted(Interface::Web) && wishes.web.as_ref().is_some_and(|web| web.search) && may_search,
            own_tools: granted(Interface::Agent)
                && wishes.agent.is_some_and(|agent| agent.own_tools)
                && allowed(Capability::OwnTools),
            artifacts: allowed(Capability::Artifacts),
            tools: spec.tools.iter().filter(tool).cloned().collect(),
            strict_imports: policy.strict_imports,
            interfaces,
            roots,
            hosts,
        }
    }

    /// Whether an interface was asked for and is granted.
    pub fn has(&self, interface: Interface) -> bool {
        self.interfaces.get(&interface) == Some(&Verdict::Granted)
    }

    /// Why an interface is not granted that was asked for.
    pub fn denial(&self, interface: Interface) -> Option<&str> {
        match self.interfaces.get(&interface) {
            Some(Verdict::Denied(why)) => Some(why),
            _ => None,
        }
    }
}

/// The rules that are for one member.
struct Rules<'a> {
    key: &'a MemberKey,
    matching: Vec<&'a Rule>,
}

impl<'a> Rules<'a> {
    fn of(key: &'a MemberKey, policy: &'a Policy) -> Self {
        Self { key, matching: policy.rules.iter().filter(|rule| rule.members.matches(key.as_str())).collect() }
    }

    /// What rules with an `allow` allow; none, where there is no such rule.
    fn allowed(&self) -> Option<impl Iterator<Item = &Capability>> {
        let mut lists = self.matching.iter().filter_map(|rule| rule.allow.as_deref()).peekable();
        lists.peek()?;
        Some(lists.flatten())
    }

    fn denied(&self) -> impl Iterator<Item = (&Rule, &Capability)> {
        self.matching.iter().flat_map(|rule| rule.deny.iter().map(|denied| (*rule, denied)))
    }

    /// Why a capability is not allowed, and what would allow it.
    fn denial(&self, wanted: &Capability) -> Option<String> {
        if let Some((rule, denied)) = self.denied().find(|(_, denied)| denied.covers(wanted)) {
            return Some(format!(
                "[member.{:?}] in guild.toml denies it; take {:?} out of its `deny` to allow it",
                rule.members.0,
                denied.to_string()
            ));
        }
        let mut allowed = self.allowed()?;
        // A part of an interface, as one root, lets the interface itself in.
        let lets_in = |allowed: &Capability| {
            let part = matches!(wanted, Capability::Interface(_)) && allowed.interface() == wanted.interface();
            part || allowed.covers(wanted)
        };
        if allowed.any(lets_in) {
            return None;
        }
        Some(format!(
            "no `allow` in guild.toml that is for this member names it; add {:?} to `allow` of [member.{:?}] to allow it",
            wanted.to_string(),
            self.key.as_str()
        ))
    }

    /// The names of an interface that are granted, out of those that are asked for; `name` reads one.
    fn names(&self, interface: Interface, asked: Vec<String>, name: impl Fn(&Capability) -> Option<String>) -> Names {
        let mut all_of: Vec<_> = [asked].into_iter().filter(|asked| !asked.is_empty()).collect();
        if let Some(allowed) = self.allowed() {
            let allowed: Vec<&Capability> = allowed.collect();
            if !allowed.iter().any(|allowed| allowed.covers(&Capability::Interface(interface))) {
                all_of.push(allowed.into_iter().filter_map(&name).collect());
            }
        }
        Names { all_of, none_of: self.denied().filter_map(|(_, denied)| name(denied)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(component: Value) -> ComponentSpec {
        let mut whole = json!({"file": "x.wasm", "world": "autonomous-worker"});
        whole.as_object_mut().unwrap().extend(component.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    fn rule(members: &str, allow: Option<&[&str]>, deny: &[&str]) -> Rule {
        let read = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<_>>();
        Rule { members: Pattern(members.into()), allow: allow.map(read), deny: read(deny) }
    }

    fn grants(component: Value, rules: Vec<Rule>) -> Grants {
        let policy = Policy { rules, web: true, strict_imports: false };
        Grants::of(&"team/ann".parse().unwrap(), &spec(component), &policy)
    }

    fn roots(grants: &Grants) -> Vec<&'static str> {
        let names = ["docs", "src", "secret"];
        names.into_iter().filter(|n| grants.roots.as_ref().is_some_and(|roots| roots.grant(n, wildcard))).collect()
    }

    #[test]
    fn what_is_not_asked_for_is_not_granted() {
        let grants = grants(json!({"grants": {"log": {}, "memory": {}}}), vec![rule("*", Some(&["*"]), &[])]);
        assert!(grants.has(Interface::Log) && grants.has(Interface::Memory));
        assert!(
            !grants.has(Interface::Files) && !grants.has(Interface::Web) && grants.denial(Interface::Web).is_none()
        );
        assert!(grants.memory && grants.session_memory && !grants.memory_write && !grants.search && !grants.own_tools);
    }

    #[test]
    fn without_a_rule_all_that_is_asked_for_is_granted_but_the_web() {
        let wanted = json!({"grants": {
            "memory": {"write": true}, "files": {"roots": ["docs"]}, "agent": {"ownTools": true},
            "web": {"search": true},
        }, "tools": ["Read", "WebFetch"]});
        let policy = Policy::default();
        let without = Grants::of(&"ann".parse().unwrap(), &spec(wanted), &policy);
        assert!(without.memory_write && without.own_tools && without.artifacts && !without.search);
        assert_eq!(roots(&without), ["docs"]);
        assert_eq!(without.tools, ["Read"]);
        assert!(without.denial(Interface::Web).unwrap().contains("no [web]"));
    }

    #[test]
    fn where_something_is_allowed_nothing_else_is() {
        let wanted = json!({"grants": {"log": {}, "files": {}, "memory": {"write": true}}, "tools": ["Read"]});
        let grants = grants(wanted, vec![rule("team/*", Some(&["log", "files:docs"]), &[])]);
        assert!(grants.has(Interface::Log) && grants.has(Interface::Files));
        assert_eq!(roots(&grants), ["docs"]);
        assert!(!grants.has(Interface::Memory) && !grants.memory && !grants.memory_write && !grants.artifacts);
        assert!(!grants.session_memory);
        let why = grants.denial(Interface::Memory).unwrap();
        assert!(why.contains(r#"add "memory" to `allow` of [member."team/ann"]"#), "{why}");
    }

    #[test]
    fn deny_wins_whatever_allows_it() {
        let wanted =
            json!({"grants": {"files": {}, "web": {"search": true}}, "tools": ["Read", "WebFetch", "WebSearch"]});
        let rules = vec![
            rule("team/ann", Some(&["*"]), &[]),
            rule("*", None, &["files:secret", "web:search"]),
            rule("*n", None, &["web:*.evil.example"]),
        ];
        let some = grants(wanted.clone(), rules);
        assert_eq!(roots(&some), ["docs", "src"]);
        assert!(some.has(Interface::Web) && !some.search);
        assert_eq!(some.hosts.unwrap().none_of, ["*.evil.example"]);

        let none = grants(wanted, vec![rule("team/ann", Some(&["*"]), &[]), rule("*", None, &["files", "web"])]);
        assert!(!none.has(Interface::Files) && none.roots.is_none() && none.hosts.is_none() && none.tools.is_empty());
        let why = none.denial(Interface::Files).unwrap();
        assert!(why.contains(r#"[member."*"]"#) && why.contains(r#"take "files" out of its `deny`"#), "{why}");
    }

    #[test]
    fn a_rule_for_others_says_nothing() {
        let wanted = json!({"grants": {"log": {}}});
        let other = grants(wanted, vec![rule("bob", Some(&[]), &["*"]), rule("team", None, &["log"])]);
        assert!(other.has(Interface::Log));
    }

    #[test]
    fn asked_and_allowed_names_both_have_to_match() {
        let wanted = json!({"grants": {"files": {"roots": ["docs", "src"]}}});
        let both = grants(wanted, vec![rule("*", Some(&["files:docs", "files:secret"]), &[])]);
        assert_eq!(roots(&both), ["docs"]);
    }

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
        ] {
            assert_eq!(text.parse::<Capability>().unwrap().to_string(), text);
        }
        for text in ["", "sockets", "files:", "memory:read", "log:x"] {
            assert!(text.parse::<Capability>().unwrap_err().contains("cannot be granted"), "{text}");
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
}
