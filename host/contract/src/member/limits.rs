//! Computes the limits of one member: the host's, narrowed by the operator's rules and the manifest.

use std::collections::BTreeMap;

use crate::{
    capability::grants::{Pattern, Policy},
    ids::MemberKey,
    limits::Limits,
    manifest::ComponentSpec,
};

/// The limits of one member.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberLimits {
    /// The limits that apply to the member. Limits of the whole host are the host's.
    pub limits: Limits,
    /// The sources of narrowed limits, by their names.
    pub narrowed: BTreeMap<&'static str, Narrowed>,
}

/// The source of a narrowed limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Narrowed {
    /// The `limits` of a `[member.PATTERN]`.
    Operator(Pattern),
    /// The manifest's `component.grants.artifacts` or `component.resources`.
    Manifest,
}

impl MemberLimits {
    /// Computes the limits of the member `key` with the manifest's `spec` on a host with the limits `all`: the smallest
    /// value of the host, the rules for the member, and its manifest.
    pub fn of(key: &MemberKey, spec: &ComponentSpec, policy: &Policy, all: &Limits) -> Self {
        let mut own = Self { limits: all.clone(), narrowed: BTreeMap::new() };
        for rule in policy.rules_for(key) {
            if let Some(limits) = &rule.limits {
                own.narrow(limits, &Narrowed::Operator(rule.members.clone()));
            }
        }
        let (artifacts, bounds, now) = (spec.grants.artifacts.unwrap_or_default(), spec.resources, &own.limits);
        let asked = Limits {
            artifacts_bytes: artifacts.bytes.unwrap_or(now.artifacts_bytes),
            artifacts_entries: artifacts.entries.unwrap_or(now.artifacts_entries),
            session_turns: bounds.max_turns.unwrap_or(now.session_turns),
            session_budget_usd: bounds.max_budget_usd.unwrap_or(now.session_budget_usd),
            session_seconds: bounds.deadline_seconds.unwrap_or(now.session_seconds),
            // A tighter bound of a `run` becomes the job's own deadline, which is not a limit of guild.toml.
            ..now.clone()
        };
        own.narrow(&asked, &Narrowed::Manifest);
        own
    }

    fn narrow(&mut self, limits: &Limits, by: &Narrowed) {
        let (smaller, names) = self.limits.smaller(limits);
        self.limits = smaller;
        self.narrowed.extend(names.into_iter().map(|name| (name, by.clone())));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::capability::grants::Rule;

    #[test]
    fn the_smallest_of_a_members_limits_holds_and_is_known_by_who_said_it() {
        let all = Limits::default();
        let rule = |members: &str, limits: Limits| Rule {
            members: members.parse().unwrap(),
            limits: Some(Box::new(limits)),
            ..Rule::default()
        };
        let policy = Policy {
            rules: vec![
                rule("*", Limits { tables: 3, note_bytes: 10, ..all.clone() }),
                rule("team/*", Limits { tables: 2, note_bytes: 20, ..all.clone() }),
                rule("bob", Limits { memories: 1, ..all.clone() }),
            ],
            ..Policy::default()
        };
        let asked = json!({"file": "x.wasm", "world": "autonomous-worker",
            "grants": {"artifacts": {"bytes": 7, "entries": u64::MAX}},
            "resources": {"maxTurns": 5, "deadlineSeconds": all.session_seconds + 1}});
        let asked: ComponentSpec = serde_json::from_value(asked).unwrap();
        let own = MemberLimits::of(&"team/ann".parse().unwrap(), &asked, &policy, &all);
        assert_eq!(own.limits, Limits { tables: 2, note_bytes: 10, artifacts_bytes: 7, session_turns: 5, ..all });
        let by = |pattern: &str| Narrowed::Operator(pattern.parse().unwrap());
        let manifest = ["artifacts_bytes", "session_turns"].map(|name| (name, Narrowed::Manifest));
        let said = [("tables", by("team/*")), ("note_bytes", by("*"))].into_iter().chain(manifest);
        assert_eq!(own.narrowed, said.collect());
    }
}
