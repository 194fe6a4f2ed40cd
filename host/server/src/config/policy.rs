//! `[member.PATTERN]`: what is said for the members that a pattern matches.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use guild_contract::{
    Limits, MemberKey,
    grants::{Capability, Pattern, Rule},
};
use guild_web::check_host_pattern;
use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use super::{Config, Runtime, agents::runtime, value::Wrong};

/// What the members may do and use whose keys PATTERN matches; `*` stands for any characters.
///
/// A member in a group is written `[member."X/Y"]`. Several tables may match one member.
#[derive(Deserialize)]
pub(super) struct WrittenMember {
    /// What the member's sessions run on. Without it, the `agent` of the whole file.
    agent: Option<Spanned<String>>,
    /// What of that which the manifest asks for is granted. Without it, all; `[]` grants nothing.
    allow: Option<Vec<Spanned<String>>>,
    /// What is not granted, whatever `allow` says. Default: `[]`.
    #[serde(default)]
    deny: Vec<Spanned<String>>,
    /// Limits of the member, each at most what `[limits]` says.
    #[serde(default)]
    limits: BTreeMap<String, Spanned<Value>>,
    /// `"any"` accepts whatever the manifest says under `mcp` of its host. Counts in the file of the user's configuration
    /// directory alone.
    mcp: Option<Spanned<String>>,
}

/// `[member]`, read.
pub(super) struct Members {
    /// What they may do.
    pub(super) rules: Vec<Rule>,
    /// What runs the sessions of whom.
    pub(super) agents: BTreeMap<Pattern, Runtime>,
    /// Whose manifests may have any `mcp` line.
    pub(super) any_mcp: BTreeSet<Pattern>,
}

/// `[member]`, of a host with these limits.
pub(super) fn members(written: BTreeMap<Pattern, WrittenMember>, limits: &Limits) -> Result<Members, Wrong> {
    let (mut rules, mut agents, mut any_mcp) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
    for (members, member) in written {
        let name = |of: &str| format!("member.{members}.{of}");
        if let Some(agent) = member.agent {
            agents.insert(members.clone(), runtime(&name("agent"), &agent)?);
        }
        if let Some(mcp) = member.mcp {
            if mcp.get_ref() != "any" {
                let why = format!("{}: {:?} is no rule; write \"any\", or leave it out", name("mcp"), mcp.get_ref());
                return Err(Wrong::at(mcp.span(), why));
            }
            any_mcp.insert(members.clone());
        }
        let allow = member.allow.map(|names| capabilities(&name("allow"), names)).transpose()?;
        let deny = capabilities(&name("deny"), member.deny)?;
        let limits = own_limits(&name("limits"), member.limits, limits)?;
        rules.push(Rule { members, allow, deny, limits });
    }
    Ok(Members { rules, agents, any_mcp })
}

fn capabilities(list: &str, names: Vec<Spanned<String>>) -> Result<Vec<Capability>, Wrong> {
    let read = |name: Spanned<String>| {
        let wrong = |why: String| Wrong::at(name.span(), format!("{list}: {why}"));
        let capability: Capability = name.get_ref().parse().map_err(wrong)?;
        if let Capability::Host(host) = &capability {
            check_host_pattern(host).map_err(wrong)?;
        }
        Ok(capability)
    };
    names.into_iter().map(read).collect()
}

fn own_limits(
    table: &str,
    written: BTreeMap<String, Spanned<Value>>,
    all: &Limits,
) -> Result<Option<Box<Limits>>, Wrong> {
    let is_set = !written.is_empty();
    let mut own = all.clone();
    for (name, value) in written {
        let span = value.span();
        own = own.narrowed(&name, value.into_inner()).map_err(|why| Wrong::at(span, format!("{table}: {why}")))?;
    }
    Ok(is_set.then(|| Box::new(own)))
}

impl Config {
    /// What runs the sessions of the member `key`: what its own table says, else the one whose pattern says most of its
    /// key, else what runs everybody's.
    ///
    /// # Errors
    /// Where two patterns say as much of it, and not the same runtime.
    pub(crate) fn agent_of(&self, key: &MemberKey) -> Result<Runtime, String> {
        let rank = |pattern: &Pattern| (pattern.exact().is_some(), pattern.closeness());
        let mut matching: Vec<_> = self.agents.iter().filter(|(pattern, _)| pattern.matches(key.as_str())).collect();
        matching.sort_by_key(|(pattern, _)| Reverse(rank(pattern)));
        let [(closest, agent), others @ ..] = matching.as_slice() else { return Ok(self.agent) };
        let mut as_close = others.iter().take_while(|(pattern, _)| rank(pattern) == rank(closest));
        match as_close.find(|(_, other)| other != agent) {
            Some((other, _)) => Err(format!(
                "guild.toml says `agent` for it twice, in [member.{:?}] and [member.{:?}], and neither is closer; write \
                 [member.{:?}] with the one that is meant",
                closest.0,
                other.0,
                key.as_str()
            )),
            None => Ok(**agent),
        }
    }

    /// Keeps the members' own limits of [`Limits::AT_START`] as a host runs with them: also of a table that is gone.
    /// `self.limits` are as the host runs with them already.
    pub(super) fn keep_own_limits(&mut self, running: &Self) {
        let rules = &mut self.policy.rules;
        for before in running.policy.rules.iter().filter(|rule| rule.limits.is_some()) {
            if !rules.iter().any(|rule| rule.members == before.members) {
                rules.push(Rule { members: before.members.clone(), ..Rule::default() });
            }
        }
        for rule in rules {
            let before = running.policy.rules.iter().find(|before| before.members == rule.members);
            match (&mut rule.limits, before.and_then(|before| before.limits.as_deref())) {
                (None, None) => {}
                (own, before) => {
                    let own = own.get_or_insert_with(|| Box::new(self.limits.clone()));
                    own.keep_at_start(before.unwrap_or(&running.limits));
                }
            }
        }
    }

    /// With `agent` as what runs everybody's sessions, where whoever starts the host says so.
    pub(crate) fn with_agent(self, agent: Option<Runtime>) -> Self {
        match agent {
            Some(agent) => Self { agent, agents: BTreeMap::new(), ..self },
            None => self,
        }
    }

    /// The keys of `[member.KEY]` for whom there is no member.
    pub(crate) fn strangers(&self, is_known: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
        self.policy.rules.iter().filter_map(|rule| rule.members.exact()).filter(move |key| !is_known(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_key_wins_and_then_the_closest_pattern() {
        let of = |tables: &[(&str, Runtime)]| {
            let agents = tables.iter().map(|(key, agent)| (key.parse().unwrap(), *agent)).collect();
            Config { agent: Runtime::Claude, agents, ..Config::default() }.agent_of(&"team/ann".parse().unwrap())
        };
        assert_eq!(of(&[("bob", Runtime::Api)]), Ok(Runtime::Claude));
        assert_eq!(of(&[("*", Runtime::Api), ("team/*", Runtime::Extractive)]), Ok(Runtime::Extractive));
        let exact = [("team/a*n", Runtime::Api), ("team/ann", Runtime::Extractive), ("*", Runtime::Claude)];
        assert_eq!(of(&exact), Ok(Runtime::Extractive));
        assert_eq!(of(&[("*ann", Runtime::Api), ("tea*", Runtime::Api)]), Ok(Runtime::Api));
        let tied = [("*ann", Runtime::Api), ("tea*", Runtime::Claude)];
        let tie = of(&tied).unwrap_err();
        assert!(tie.contains(r#"write [member."team/ann"]"#), "{tie}");
        for closer in ["team/ann", "team/*"] {
            assert_eq!(of(&[&tied[..], &[(closer, Runtime::Extractive)]].concat()), Ok(Runtime::Extractive));
        }
    }
}
