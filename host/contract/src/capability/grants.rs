//! Computes grants: a member may do the things that its manifest requests and the operator's policy allows. Only
//! [`Grants::of`] combines the two.
//!
//! The operator's side is a list of [`Rule`]s, each for the members that a pattern matches. Without any rule a member
//! is granted all its requests, except the web, which has to be opened first. If rules with an `allow` match, only
//! requests that one of them names are granted. A request that any matching `deny` names is never granted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    MemberKey,
    capability::{
        ARTIFACTS, Capability, FILES, KINDS, Kind, MANAGER, MEMORY, MEMORY_PROJECT_WRITE, MEMORY_WRITE, SEARCH,
        Unasked, WEB, base_toolbox::BaseToolbox, denial::Denial,
    },
    manifest::{ComponentSpec, FILE_TOOLS, SESSION_TOOLS, Scope, WebRequest},
};

pub use crate::capability::policy::{Names, Pattern, Policy, Rule, wildcard};

/// The decision on a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "verdict", content = "reason")]
pub enum Verdict {
    /// The request is allowed.
    Granted,
    /// The request is not allowed.
    Denied(Denial),
}

/// The permissions of a member, which are both requested and allowed. They are computed when the member's component is
/// loaded, and do not change while a job runs. They are stored with the job: a resumed job has the permissions that it
/// was granted at its start and that are still granted. Everything else is denied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Grants {
    /// The decisions on requested capabilities and session tools, by their names.
    pub requested: BTreeMap<String, Verdict>,
    /// The permissions of its sessions alone.
    #[serde(flatten)]
    pub sessions: SessionGrants,
    /// Whether sessions may be given memories, and read them.
    pub memory: bool,
    /// The read roots that the component and its sessions may read; `None` for no roots, as without a request for
    /// `files` or for a tool that reads files.
    pub roots: Option<Names>,
    /// The hosts of `[web]` that the component and its sessions may read; `None` for no hosts, as without a request for
    /// `web` or WebFetch.
    pub hosts: Option<Names>,
    /// Whether the job's files may be written.
    pub artifacts: bool,
    /// The tools that the member's sessions have in commissions and meetings even without a request.
    pub base: BaseToolbox,
    /// Whether a component that imports an interface without its grant is refused.
    pub strict_imports: bool,
}

/// The permissions of a member's sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionGrants {
    /// Whether the sessions have the tool that stores memories. It is an internal tool, which needs no request.
    #[serde(rename = "sessionMemory")]
    pub memory: bool,
    /// Whether the sessions' WebSearch uses the search provider. Without it, WebSearch searches the read roots.
    #[serde(rename = "sessionSearch")]
    pub search: bool,
    /// The read-only tools that the sessions may be given, if there are sources for them to read.
    pub tools: Vec<String>,
}

impl Grants {
    /// The grants of the member `key` with the manifest's `spec`, under `policy`.
    pub fn of(key: &MemberKey, spec: &ComponentSpec, policy: &Policy) -> Self {
        let rules = Rules::of(key, policy);
        let asked = &spec.grants;
        let denial = |wanted: &'static Kind| {
            let closed = if *wanted == WEB || wanted.part_of == Some(&WEB) {
                (!policy.web).then(|| no_web(wanted, &asked.web))
            } else if *wanted == MANAGER {
                not_manager(key, policy)
            } else {
                None
            };
            match (closed, rules.denial(wanted)) {
                (Some(closed), Some(denied)) => Some(format!("{closed}; besides, {denied}")),
                (closed, denied) => closed.or(denied),
            }
        };
        let allowed = |kind| denial(kind).is_none();

        let uses = |tools: &[&str]| spec.tools.iter().any(|tool| tools.contains(&tool.as_str()));
        let reads_files = spec.asks(&FILES) || uses(&FILE_TOOLS) || uses(&["WebSearch"]);
        let reads_web = spec.asks(&WEB) || uses(&["WebFetch"]);
        let asked_roots = asked.files.as_ref().map(|files| files.roots.clone()).unwrap_or_default();
        let roots = (reads_files && allowed(&FILES)).then(|| rules.roots(asked_roots));
        let asked_hosts = asked.web.as_ref().map(|web| web.hosts.clone()).unwrap_or_default();
        let hosts = (reads_web && allowed(&WEB)).then(|| {
            let host = |c: &Capability| if let Capability::Host(host) = c { Some(host.clone()) } else { None };
            rules.names(&WEB, asked_hosts, host)
        });
        let tool_denial = |tool: &str| match tool {
            "WebFetch" => denial(&WEB),
            // Without a provider, WebSearch searches the read roots.
            "WebSearch" if roots.is_some() => None,
            "WebSearch" => denial(&SEARCH),
            _ => denial(&FILES),
        };
        let base = BaseToolbox::new(rules.roots(Vec::new()), |wanted| {
            denial(wanted).or_else(|| rules.unnamed(wanted, spec, policy))
        });
        let kinds = KINDS.into_iter().filter(|kind| spec.asks(kind));
        let requested = kinds
            .map(|kind| (kind.name.to_owned(), denial(kind)))
            .chain(spec.tools.iter().map(|tool| (tool.clone(), tool_denial(tool))))
            .map(|(name, denied)| (name, denied.map_or(Verdict::Granted, |why| Verdict::Denied(Denial::Reason(why)))))
            .collect::<BTreeMap<_, _>>();
        let is_granted = |tool: &&String| requested.get(*tool) == Some(&Verdict::Granted);
        Self {
            sessions: SessionGrants {
                memory: allowed(&MEMORY_WRITE),
                search: allowed(&SEARCH),
                tools: spec.tools.iter().filter(is_granted).cloned().collect(),
            },
            memory: allowed(&MEMORY),
            roots,
            hosts,
            artifacts: allowed(&ARTIFACTS),
            base,
            strict_imports: policy.strict_imports,
            requested,
        }
    }

    /// The grants that both sides have: the grants of a resumed job that began under `then`.
    #[must_use]
    pub fn and(mut self, then: &Self) -> Self {
        let both = |a: Option<Names>, b: &Option<Names>| Some(a?.and(b.clone()?));
        for (name, verdict) in &mut self.requested {
            if *verdict == Verdict::Granted && then.requested.get(name) != Some(&Verdict::Granted) {
                *verdict = Verdict::Denied(Denial::BeganWithout);
            }
        }
        let sessions = &then.sessions;
        Self {
            requested: self.requested,
            sessions: SessionGrants {
                memory: self.sessions.memory && sessions.memory,
                search: self.sessions.search && sessions.search,
                tools: self.sessions.tools.into_iter().filter(|tool| sessions.tools.contains(tool)).collect(),
            },
            memory: self.memory && then.memory,
            roots: both(self.roots, &then.roots),
            hosts: both(self.hosts, &then.hosts),
            artifacts: self.artifacts && then.artifacts,
            base: self.base.and(&then.base),
            strict_imports: self.strict_imports || then.strict_imports,
        }
    }

    /// The grants of a member that was approved with only these parts of the base toolbox. Granted requests of its
    /// manifest are kept.
    #[must_use]
    pub fn approved_with(mut self, parts: impl Fn(&str) -> bool) -> Self {
        let is_granted = |name: &str| self.requested.get(name) == Some(&Verdict::Granted);
        let asked = |part: &str| match Kind::named(part) {
            Some(kind) => kind.is_asked_with(|kind| is_granted(kind.name)),
            None => is_granted(part),
        };
        self.base = self.base.approved(|part| parts(part) || asked(part));
        self
    }

    /// The read-only tools that sessions may be given in a commission or a meeting.
    pub fn activity_tools(&self) -> Vec<String> {
        let has = |tool: &&str| self.base.has(tool) || self.sessions.tools.iter().any(|granted| granted == tool);
        SESSION_TOOLS.into_iter().filter(has).map(str::to_owned).collect()
    }

    /// The requests and the decisions on them, for people: capabilities in the order of their table, then session
    /// tools.
    pub fn verdicts(&self) -> impl Iterator<Item = (&'static str, &Verdict)> {
        let names = KINDS.map(|kind| kind.name).into_iter().chain(SESSION_TOOLS);
        names.filter_map(|name| Some((name, self.requested.get(name)?)))
    }

    /// The granted requests, by name.
    pub fn granted(&self) -> impl Iterator<Item = &'static str> {
        self.verdicts().filter(|(_, verdict)| **verdict == Verdict::Granted).map(|(name, _)| name)
    }

    /// Whether a capability was requested and is granted.
    pub fn holds(&self, kind: &Kind) -> bool {
        self.requested.get(kind.name) == Some(&Verdict::Granted)
    }

    /// Whether a component may read the notes of a scope. It may always read its worker's own notes.
    pub fn reads(&self, scope: Scope) -> bool {
        Kind::of_scope(scope).is_none_or(|kind| self.holds(kind))
    }

    /// A sentence with the reason that the member does not hold a capability, and the change that would grant the
    /// capability.
    pub fn refusal(&self, kind: &Kind) -> String {
        match self.denial(kind) {
            Some(why @ Denial::BeganWithout) => format!("`{kind}` is not granted to this job: {why}"),
            Some(why) => format!("the operator did not grant `{kind}` to this member: {why}"),
            None => format!("the manifest does not ask for `{kind}`; {}", kind.how_to_ask()),
        }
    }

    /// The reason that a read root is not granted to the member `key` with the manifest's `spec`, and the line that
    /// would allow it.
    pub fn root_denial(&self, root: &str, key: &MemberKey, spec: &ComponentSpec) -> Option<Denial> {
        let reason = |why: String| Some(Denial::Reason(why));
        let Some(roots) = &self.roots else {
            let denied = self.requested.iter().find_map(|(name, verdict)| match verdict {
                Verdict::Denied(why)
                    if FILE_TOOLS.contains(&name.as_str()) || name == FILES.name || name == "WebSearch" =>
                {
                    Some(why.clone())
                }
                _ => None,
            });
            return denied.or_else(|| reason("its manifest asks for nothing that reads files".to_owned()));
        };
        if let Some(denied) = roots.none_of.iter().find(|pattern| wildcard(pattern, root)) {
            let denied = Capability::Root(denied.clone()).to_string();
            return reason(format!("{denied:?} in a `deny` of guild.toml names it; remove it to allow the root"));
        }
        let names = |patterns: &[String]| patterns.iter().any(|pattern| wildcard(pattern, root));
        let asked = spec.grants.files.iter().flat_map(|files| &files.roots).cloned().collect::<Vec<_>>();
        if !asked.is_empty() && !names(&asked) {
            let why = "its manifest does not ask for it: `component.grants.files.roots` names only other roots";
            return reason(why.to_owned());
        }
        let allowed = roots.all_of.iter().all(|patterns| names(patterns));
        if allowed { None } else { reason(not_allowed(&Capability::Root(root.to_owned()), key)) }
    }

    /// The grants for people: every reason is its sentence, also in JSON.
    #[must_use]
    pub fn in_words(mut self) -> Self {
        let denied = self.requested.values_mut().filter_map(|verdict| match verdict {
            Verdict::Denied(why) => Some(why),
            Verdict::Granted => None,
        });
        denied.chain(self.base.denied.values_mut()).for_each(|why| *why = Denial::Reason(why.to_string()));
        self
    }

    /// The reason that a requested capability is not granted.
    pub fn denial(&self, kind: &Kind) -> Option<&Denial> {
        match self.requested.get(kind.name) {
            Some(Verdict::Denied(why)) => Some(why),
            _ => None,
        }
    }
}

/// The reason that the web is closed: guild.toml has no `[web]`.
fn no_web(wanted: &Kind, request: &Option<WebRequest>) -> String {
    let hosts = request.as_ref().map(|web| web.hosts.as_slice()).filter(|hosts| !hosts.is_empty());
    let add = match hosts {
        _ if *wanted == SEARCH => "[web.search] with a `provider`".to_owned(),
        Some(hosts) => format!("[web] with `allow = {hosts:?}`"),
        None => "[web] with the hosts that may be read in `allow`".to_owned(),
    };
    format!("guild.toml has no [web], which opens the web; add {add} to allow it")
}

/// The reason that a member is not the manager; `None` if it is.
fn not_manager(key: &MemberKey, policy: &Policy) -> Option<String> {
    let manager = policy.manager.as_ref();
    let is = match manager.filter(|manager| *manager != key) {
        Some(manager) => format!("which is {manager}"),
        None if manager.is_some() => return None,
        None => "and there is none".to_owned(),
    };
    Some(format!("only the manager can hold it, {is}; `manager` in [hall] of guild.toml names that member"))
}

/// The reason for a capability that no `allow` names, if there is an `allow`.
fn not_allowed(wanted: &Capability, key: &MemberKey) -> String {
    format!(
        "no `allow` in guild.toml that is for this member names it; add {:?} to `allow` of [member.{:?}] to allow it",
        wanted.to_string(),
        key.as_str()
    )
}

/// The rules for one member.
struct Rules<'a> {
    key: &'a MemberKey,
    matching: Vec<&'a Rule>,
}

impl<'a> Rules<'a> {
    fn of(key: &'a MemberKey, policy: &'a Policy) -> Self {
        Self { key, matching: policy.rules_for(key).collect() }
    }

    /// The capabilities that rules with an `allow` name; `None` without such a rule.
    fn allowed(&self) -> Option<impl Iterator<Item = &Capability>> {
        let mut lists = self.matching.iter().filter_map(|rule| rule.allow.as_deref()).peekable();
        lists.peek()?;
        Some(lists.flatten())
    }

    fn denied(&self) -> impl Iterator<Item = (&Rule, &Capability)> {
        self.matching.iter().flat_map(|rule| rule.deny.iter().map(|denied| (*rule, denied)))
    }

    /// The reason that a capability is not allowed, and the line that would allow the capability.
    fn denial(&self, wanted: &'static Kind) -> Option<String> {
        let wanted = &Capability::Kind(wanted);
        if let Some((rule, denied)) = self.denied().find(|(_, denied)| denied.covers(wanted)) {
            return Some(format!(
                "[member.{:?}] in guild.toml denies it; take {:?} out of its `deny` to allow it",
                rule.members.0,
                denied.to_string()
            ));
        }
        let mut allowed = self.allowed()?;
        // Allowing a part of an interface, such as one root, allows the interface itself.
        let lets_in = |allowed: &Capability| {
            let is_part = wanted.whole().is_none() && wanted.covers(allowed);
            is_part || allowed.covers(wanted)
        };
        (!allowed.any(lets_in)).then(|| not_allowed(wanted, self.key))
    }

    /// The reason that a capability is not allowed which needs a rule that names it, if there is no such rule. Notes of
    /// all projects are part of every prompt, and notes of a project part of each prompt in the project: text of a web
    /// page or of another member's tool must not reach them through a session unless the operator allows it.
    fn unnamed(&self, wanted: &'static Kind, spec: &ComponentSpec, policy: &Policy) -> Option<String> {
        let why = match wanted.unasked {
            Unasked::Named(_) => "its notes there are given to every worker in every project".to_owned(),
            Unasked::Base(_) if *wanted == MEMORY_PROJECT_WRITE => {
                let uses = |tool: &str| spec.tools.iter().any(|asked| asked == tool);
                let has_web = policy.web
                    && (uses("WebFetch") || uses("WebSearch") || spec.asks(&WEB))
                    && (self.denial(&WEB).is_none() || self.denial(&SEARCH).is_none());
                let reads = match spec.toolboxes.first() {
                    _ if has_web => "the web".to_owned(),
                    Some(toolbox) => format!("the toolbox {toolbox}"),
                    None => return None,
                };
                format!("its sessions have {reads}, and its notes there are given to every worker in the project")
            }
            _ => return None,
        };
        let is_named =
            self.allowed().is_some_and(|mut allowed| allowed.any(|allowed| *allowed == Capability::Kind(wanted)));
        let wanted = wanted.name;
        let others = if self.allowed().is_some() { "" } else { "\"*\", " };
        (!is_named).then(|| {
            format!(
                "{why}; `allow = [{others}{wanted:?}]` under [member.{:?}] in guild.toml permits it",
                self.key.as_str()
            )
        })
    }

    /// The granted read roots among the requested ones.
    fn roots(&self, asked: Vec<String>) -> Names {
        let root = |c: &Capability| if let Capability::Root(root) = c { Some(root.clone()) } else { None };
        self.names(&FILES, asked, root)
    }

    /// The granted names below a capability among the requested ones; `name` extracts the name of a capability.
    fn names(&self, whole: &'static Kind, asked: Vec<String>, name: impl Fn(&Capability) -> Option<String>) -> Names {
        let mut all_of: Vec<_> = [asked].into_iter().filter(|asked| !asked.is_empty()).collect();
        if let Some(allowed) = self.allowed() {
            let allowed: Vec<&Capability> = allowed.collect();
            if !allowed.iter().any(|allowed| allowed.covers(&Capability::Kind(whole))) {
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
    use crate::capability::{base_toolbox::parts as all_parts, *};

    fn spec(component: Value) -> ComponentSpec {
        let mut whole = json!({"file": "x.wasm", "world": "autonomous-worker"});
        whole.as_object_mut().unwrap().extend(component.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    fn rule(members: &str, allow: Option<&[&str]>, deny: &[&str]) -> Rule {
        let read = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<_>>();
        Rule { members: members.parse().unwrap(), allow: allow.map(read), deny: read(deny), limits: None }
    }

    fn grants(component: Value, rules: Vec<Rule>) -> Grants {
        let policy = Policy { rules, web: true, ..Policy::default() };
        Grants::of(&"team/ann".parse().unwrap(), &spec(component), &policy)
    }

    fn roots(grants: &Grants) -> Vec<&'static str> {
        let names = ["docs", "src", "secret"];
        names.into_iter().filter(|n| grants.roots.as_ref().is_some_and(|roots| roots.grant(n, wildcard))).collect()
    }

    #[test]
    fn what_is_not_asked_for_is_not_granted() {
        let grants = grants(json!({"grants": {"log": {}, "memory": {}}}), vec![rule("*", Some(&["*"]), &[])]);
        assert!(grants.holds(&LOG) && grants.holds(&MEMORY));
        assert!(!grants.holds(&FILES) && !grants.holds(&WEB) && grants.denial(&WEB).is_none());
        assert!(
            grants.memory
                && grants.sessions.memory
                && !grants.holds(&MEMORY_WRITE)
                && !grants.holds(&SEARCH)
                && !grants.holds(&OWN_TOOLS)
        );
    }

    #[test]
    fn without_a_rule_all_that_is_asked_for_is_granted_but_the_web() {
        let wanted = json!({"grants": {
            "memory": {"write": true}, "files": {"roots": ["docs"]}, "agent": {"ownTools": true},
            "web": {"search": true},
        }, "tools": ["Read", "WebFetch"]});
        let policy = Policy::default();
        let without = Grants::of(&"ann".parse().unwrap(), &spec(wanted), &policy);
        assert!(
            without.holds(&MEMORY_WRITE) && without.holds(&OWN_TOOLS) && without.artifacts && !without.holds(&SEARCH)
        );
        assert_eq!(roots(&without), ["docs"]);
        assert_eq!(without.sessions.tools, ["Read"]);
        assert!(without.denial(&WEB).unwrap().to_string().contains("no [web]"));
    }

    #[test]
    fn where_something_is_allowed_nothing_else_is() {
        let wanted = json!({"grants": {"log": {}, "files": {}, "memory": {"write": true}}, "tools": ["Read"]});
        let grants = grants(wanted, vec![rule("team/*", Some(&["log", "files:docs"]), &[])]);
        assert!(grants.holds(&LOG) && grants.holds(&FILES));
        assert_eq!(roots(&grants), ["docs"]);
        assert!(!grants.holds(&MEMORY) && !grants.memory && !grants.holds(&MEMORY_WRITE) && !grants.artifacts);
        assert!(!grants.sessions.memory);
        let why = grants.denial(&MEMORY).unwrap().to_string();
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
        assert!(some.holds(&WEB) && !some.holds(&SEARCH));
        assert_eq!(some.hosts.unwrap().none_of, ["*.evil.example"]);

        let none = grants(wanted, vec![rule("team/ann", Some(&["*"]), &[]), rule("*", None, &["files", "web"])]);
        assert!(!none.holds(&FILES) && none.roots.is_none() && none.hosts.is_none() && none.sessions.tools.is_empty());
        let why = none.denial(&FILES).unwrap().to_string();
        assert!(why.contains(r#"[member."*"]"#) && why.contains(r#"take "files" out of its `deny`"#), "{why}");
    }

    #[test]
    fn what_a_commission_can_reach_is_asked_for_and_can_be_denied_one_by_one() {
        let wanted = json!({
            "scopes": ["worker", "project", "global"],
            "grants": {"lore": {"write": true}, "worktree": {"write": true}, "memory": {}}
        });
        let of = |grants: &Grants| {
            (
                grants.holds(&MEMORY_PROJECT),
                grants.holds(&MEMORY_GLOBAL),
                grants.holds(&LORE_WRITE),
                grants.holds(&WORKTREE_WRITE),
            )
        };
        let all = grants(wanted.clone(), Vec::new());
        assert_eq!(of(&all), (true, true, true, true));
        assert_eq!(
            of(&grants(json!({"grants": {"memory": {}, "lore": {}}}), Vec::new())),
            (false, false, false, false)
        );
        for (denied, expected) in [
            ("memory:project", (false, true, true, true)),
            ("memory:global", (true, false, true, true)),
            ("memory", (false, false, true, true)),
            ("lore:write", (true, true, false, true)),
            ("worktree:write", (true, true, true, false)),
            ("*", (false, false, false, false)),
        ] {
            let some = grants(wanted.clone(), vec![rule("*", None, &[denied])]);
            assert_eq!(of(&some), expected, "{denied}");
            assert_eq!(of(&all.clone().and(&some)), expected, "{denied}");
        }
        let allowed = grants(wanted, vec![rule("*", Some(&["lore:write", "memory:project"]), &[])]);
        assert_eq!(of(&allowed), (true, false, true, false));
        let why = allowed.denial(&WORKTREE_WRITE).unwrap().to_string();
        assert!(why.contains(r#"add "worktree:write" to `allow` of [member."team/ann"]"#), "{why}");
    }

    #[test]
    fn only_the_manager_is_granted_to_manage_and_only_where_no_rule_denies_it() {
        let asked = spec(json!({"grants": {"hall": {"read": true, "manage": true}}}));
        let of = |key: &str, manager: Option<&str>, rules: Vec<Rule>| {
            let manager = manager.map(|key| key.parse().unwrap());
            Grants::of(&key.parse().unwrap(), &asked, &Policy { rules, manager, ..Policy::default() })
        };
        let why = |grants: &Grants| grants.denial(&MANAGER).map(ToString::to_string).unwrap_or_default();
        let granted = of("guild-master", Some("guild-master"), Vec::new());
        assert!(granted.holds(&HALL) && granted.holds(&MANAGER));
        let another = of("copy", Some("guild-master"), vec![rule("*", Some(&["*"]), &[])]);
        assert!(another.holds(&HALL) && !another.holds(&MANAGER));
        assert!(why(&another).contains("only the manager can hold it, which is guild-master"), "{}", why(&another));
        let nobody = of("guild-master", None, Vec::new());
        assert!(why(&nobody).contains("and there is none") && why(&nobody).contains("[hall]"), "{}", why(&nobody));
        for (rules, line) in [
            (vec![rule("*", None, &["hall:manage"])], r#"take "hall:manage" out of its `deny`"#),
            (vec![rule("*", Some(&["hall:read"]), &[])], r#"add "hall:manage" to `allow`"#),
        ] {
            let denied = of("guild-master", Some("guild-master"), rules);
            assert!(denied.holds(&HALL) && why(&denied).contains(line), "{}", why(&denied));
        }
        let was = granted.clone().and(&nobody);
        assert!(was.holds(&HALL) && !was.holds(&MANAGER));
        let silent = Grants::of(
            &"guild-master".parse().unwrap(),
            &spec(json!({"grants": {"hall": {}}})),
            &Policy { manager: Some("guild-master".parse().unwrap()), ..Policy::default() },
        );
        assert!(silent.requested.is_empty());
    }

    #[test]
    fn a_rule_for_others_says_nothing() {
        let wanted = json!({"grants": {"log": {}}});
        let other = grants(wanted, vec![rule("bob", Some(&[]), &["*"]), rule("team", None, &["log"])]);
        assert!(other.holds(&LOG));
    }

    #[test]
    fn what_was_granted_then_and_still_is() {
        let wanted = json!({"grants": {"files": {}, "log": {}, "memory": {"write": true}}, "tools": ["Read"]});
        let then = grants(wanted.clone(), vec![rule("*", None, &["files:src", "log"])]);
        let now = grants(wanted, vec![rule("*", None, &["files:secret", "memory:write"])]);
        let both = now.clone().and(&then);
        assert_eq!(
            (roots(&then), roots(&now), roots(&both)),
            (vec!["docs", "secret"], vec!["docs", "src"], vec!["docs"])
        );
        assert!(both.holds(&FILES) && !both.holds(&LOG) && !both.holds(&MEMORY_WRITE) && !both.sessions.memory);
        // A refusal has the reason, and does not suggest a request that the manifest has.
        assert_eq!(
            (both.denial(&LOG), both.denial(&MEMORY_WRITE)),
            (Some(&Denial::BeganWithout), now.denial(&MEMORY_WRITE))
        );
        assert!(both.denial(&MEMORY_WRITE).is_some() && both.refusal(&LOG).contains("dispatch its task again"));
        assert_eq!((now.clone().and(&now), both.clone().and(&now).roots.is_some()), (now.clone(), true));
        let kept: Grants = serde_json::from_value(json!(both)).unwrap();
        assert_eq!(kept, both);
        let shown = json!(both.in_words());
        assert_eq!(shown["requested"]["log"]["reason"], "the job began without it; dispatch its task again");
        assert_eq!(serde_json::from_value::<Grants>(json!({})).unwrap(), Grants::default());
    }

    #[test]
    fn a_part_that_a_resumed_job_began_without_is_said_to_be_missing_in_the_job() {
        let then = grants(json!({}), vec![rule("*", None, &["lore:write"])]);
        let both = grants(json!({}), Vec::new()).and(&then);
        let why = "`lore:write` is not granted to this job: the job began without it; dispatch its task again";
        assert_eq!(both.base.denial(&LORE_WRITE), why);
        assert!(then.base.denial(&LORE_WRITE).starts_with("`lore:write` is not granted to this member: [member."));
    }

    #[test]
    fn what_nothing_is_asked_for_reads_nothing() {
        let least = grants(json!({"grants": {"log": {}}}), Vec::new());
        assert!(least.roots.is_none() && least.hosts.is_none());
        for (wanted, (reads_files, reads_web)) in [
            (json!({"grants": {"files": {}}}), (true, false)),
            (json!({"grants": {"web": {}}}), (false, true)),
            (json!({"tools": ["Grep"]}), (true, false)),
            (json!({"tools": ["WebSearch"]}), (true, false)),
            (json!({"tools": ["WebFetch"]}), (false, true)),
        ] {
            let some = grants(wanted.clone(), Vec::new());
            assert_eq!((some.roots.is_some(), some.hosts.is_some()), (reads_files, reads_web), "{wanted}");
        }
    }

    #[test]
    fn a_root_that_is_not_granted_is_told_with_the_line_that_would_allow_it() {
        let denial_of = |wanted: Value, rules: Vec<Rule>, root: &str| {
            let spec = spec(wanted.clone());
            grants(wanted, rules).root_denial(root, &"team/ann".parse().unwrap(), &spec)
        };
        let asked = json!({"grants": {"files": {"roots": ["docs", "src"]}}});
        let rules = || vec![rule("*", Some(&["files:docs"]), &["files:s*t"])];
        assert_eq!(denial_of(asked.clone(), rules(), "docs"), None);
        let why = |root: &str| denial_of(asked.clone(), rules(), root).unwrap().to_string();
        assert!(why("src").contains(r#"add "files:src" to `allow` of [member."team/ann"]"#), "{}", why("src"));
        assert!(why("secret").contains(r#""files:s*t" in a `deny`"#), "{}", why("secret"));
        assert!(why("other").contains("`component.grants.files.roots`"), "{}", why("other"));
        let closed = denial_of(asked.clone(), vec![rule("*", None, &["files"])], "docs").unwrap().to_string();
        assert!(closed.contains(r#"take "files" out"#), "{closed}");
        assert!(denial_of(json!({}), Vec::new(), "docs").unwrap().to_string().contains("asks for nothing"));
    }

    #[test]
    fn asked_and_allowed_names_both_have_to_match() {
        let wanted = json!({"grants": {"files": {"roots": ["docs", "src"]}}});
        let both = grants(wanted, vec![rule("*", Some(&["files:docs", "files:secret"]), &[])]);
        assert_eq!(roots(&both), ["docs"]);
    }

    const NOTES: [&str; 2] = ["memory:project:write", "memory:global:write"];

    fn parts(grants: &Grants) -> Vec<&'static str> {
        all_parts().chain(["memory:global:write"]).filter(|part| grants.base.has(part)).collect()
    }

    #[test]
    fn sessions_have_the_base_toolbox_in_commissions_though_nothing_was_asked_for() {
        let nothing = grants(json!({}), Vec::new());
        assert_eq!(parts(&nothing), all_parts().collect::<Vec<_>>());
        assert_eq!(nothing.activity_tools(), FILE_TOOLS);
        // Outside of them, and for the component, there are no read roots.
        assert!(nothing.sessions.tools.is_empty() && nothing.roots.is_none());
        assert!(nothing.requested.is_empty());
    }

    #[test]
    fn a_rule_takes_each_part_of_the_base_toolbox_away() {
        for (denied, gone) in [
            ("files", &["Read", "Grep", "Glob"][..]),
            ("lore:write", &["lore:write"]),
            ("worktree:write", &["worktree:write"]),
            ("memory:project", &["memory:project", "memory:project:write"]),
            ("memory:global", &["memory:global"]),
            ("memory:project:write", &["memory:project:write"]),
            ("memory:write", &["memory:project:write"]),
            ("memory", &["memory:project", "memory:global", "memory:project:write"]),
            ("*", &all_parts().collect::<Vec<_>>()),
        ] {
            let some = grants(json!({"tools": ["Read"]}), vec![rule("team/*", None, &[denied])]);
            let left: Vec<_> = all_parts().filter(|part| !gone.contains(part)).collect();
            assert_eq!(parts(&some), left, "{denied}");
            for part in gone {
                assert!(some.base.denied[*part].to_string().contains("take "), "{denied}: {:?}", some.base.denied);
            }
        }
        // With an `allow`, everything else is denied.
        let some = grants(json!({}), vec![rule("*", Some(&["files:docs", "memory:project", "memory:write"]), &[])]);
        assert_eq!(parts(&some), ["Read", "Grep", "Glob", "memory:project", "memory:project:write"]);
        let roots = some.base.roots.unwrap();
        assert!(roots.grant("docs", wildcard) && !roots.grant("lore", wildcard));
    }

    #[test]
    fn notes_that_would_speak_in_every_prompt_take_a_rule_that_names_them() {
        let may = |wanted: &Value, allow: Option<&[&str]>| {
            let rules = allow.map(|allow| rule("team/ann", Some(allow), &[])).into_iter().collect();
            let some = grants(wanted.clone(), rules);
            NOTES.map(|part| some.base.has(part))
        };
        let plain = json!({"tools": ["Read", "WebSearch"], "toolboxes": []});
        let no_web = Grants::of(&"team/ann".parse().unwrap(), &spec(plain), &Policy::default());
        assert!(no_web.base.holds(&MEMORY_PROJECT_WRITE), "WebSearch searches the read roots where there is no web");
        for wanted in [
            json!({"tools": ["WebFetch"]}),
            json!({"grants": {"web": {}}}),
            json!({"toolboxes": ["forms"], "tools": []}),
        ] {
            assert_eq!(may(&wanted, None), [false, false], "{wanted}");
            assert_eq!(may(&wanted, Some(&["*"])), [false, false], "{wanted}");
            assert_eq!(may(&wanted, Some(&["*", "memory"])), [false, false], "{wanted}");
            assert_eq!(may(&wanted, Some(&["*", NOTES[0]])), [true, false], "{wanted}");
            assert_eq!(may(&wanted, Some(&["*", NOTES[1]])), [false, true], "{wanted}");
        }
        let why = grants(json!({"tools": ["WebFetch"]}), Vec::new()).base.denied[NOTES[0]].to_string();
        assert!(why.contains("have the web") && why.contains(r#"allow = ["*", "memory:project:write"]"#), "{why}");
        assert!(why.contains(r#"[member."team/ann"] in guild.toml"#), "{why}");
        // A member that asks for the memories of all projects may only read them.
        let asked = grants(json!({"scopes": ["global"], "grants": {"memory": {"write": true}}}), Vec::new());
        assert!(asked.holds(&MEMORY_GLOBAL) && asked.base.may_write(Scope::Global).unwrap_err().contains(NOTES[1]));
    }

    #[test]
    fn an_approved_member_gains_nothing_by_an_upgrade_and_keeps_what_it_asked_for() {
        let wanted = json!({"tools": ["Read"], "scopes": ["project"], "grants": {"lore": {"write": true}}});
        let before = grants(wanted.clone(), Vec::new()).approved_with(|_| false);
        assert_eq!(parts(&before), ["Read", "lore:write", "memory:project", "memory:project:write"]);
        assert_eq!(before.base.roots, None);
        assert_eq!(before.base.waiting().collect::<Vec<_>>(), ["Glob", "Grep", "memory:global", "worktree:write"]);
        assert_eq!(parts(&grants(wanted.clone(), Vec::new()).approved_with(|_| true)), all_parts().collect::<Vec<_>>());
    }
}
