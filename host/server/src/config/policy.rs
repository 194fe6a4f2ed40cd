//! `[member.PATTERN]`: what is said for the members that a pattern matches.

use std::collections::BTreeMap;

use guild_contract::{
    Limits, MemberKey,
    grants::{Capability, Pattern, Rule},
};
use guild_web::check_host_pattern;
use serde::Deserialize;
use serde_json::{Map, Value};
use toml::Spanned;

use super::{Runtime, agents::runtime, value::Wrong};

/// `[member.PATTERN]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberConfig {
    /// `agent`: what runs these members' sessions, where it is not what runs everybody's.
    pub agent: Option<Runtime>,
    /// `allow`: nothing else is granted to them, but what another table allows.
    pub allow: Option<Vec<Capability>>,
    /// `deny`: it wins over every `allow`.
    pub deny: Vec<Capability>,
    /// `limits`: those of `[limits]`, with their own in place.
    pub limits: Option<Box<Limits>>,
}

/// `[member.PATTERN]` as it is written.
#[derive(Deserialize)]
pub(super) struct WrittenMember {
    agent: Option<Spanned<String>>,
    allow: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    deny: Vec<Spanned<String>>,
    #[serde(default)]
    limits: BTreeMap<String, Spanned<Value>>,
}

/// `[member]`, of a host with these limits.
pub(super) fn members(
    written: BTreeMap<String, WrittenMember>,
    limits: &Limits,
) -> Result<BTreeMap<String, MemberConfig>, Wrong> {
    let read = |(key, member): (String, WrittenMember)| {
        let name = |of: &str| format!("member.{key}.{of}");
        let config = MemberConfig {
            agent: member.agent.map(|agent| runtime(&name("agent"), &agent)).transpose()?,
            allow: member.allow.map(|names| capabilities(&name("allow"), names)).transpose()?,
            deny: capabilities(&name("deny"), member.deny)?,
            limits: own_limits(&key, member.limits, limits)?,
        };
        Ok((key, config))
    };
    written.into_iter().map(read).collect()
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
    key: &str,
    written: BTreeMap<String, Spanned<Value>>,
    all: &Limits,
) -> Result<Option<Box<Limits>>, Wrong> {
    let mut own = all.clone();
    for (name, value) in &written {
        // One by one, so that an error has its line.
        let one = Map::from_iter([(name.clone(), value.get_ref().clone())]);
        let narrowed = all.narrowed(&one);
        let narrowed = narrowed.map_err(|why| Wrong::at(value.span(), format!("member.{key}.limits: {why}")))?;
        (own, _) = own.smaller(&narrowed);
    }
    Ok((!written.is_empty()).then(|| Box::new(own)))
}

/// The tables as rules.
pub(super) fn rules(member: &BTreeMap<String, MemberConfig>) -> Vec<Rule> {
    let rule = |(key, member): (&String, &MemberConfig)| Rule {
        members: Pattern(key.clone()),
        allow: member.allow.clone(),
        deny: member.deny.clone(),
        limits: member.limits.clone(),
    };
    member.iter().map(rule).collect()
}

/// What runs the sessions of the member `key`, where a table for it says so: its own table, else the one whose pattern
/// says most of its key.
///
/// # Errors
/// Where two patterns say as much of it, and not the same runtime.
pub(crate) fn agent_of(member: &BTreeMap<String, MemberConfig>, key: &MemberKey) -> Result<Option<Runtime>, String> {
    let mut closest: Option<(Pattern, Runtime)> = None;
    for (name, agent) in member.iter().filter_map(|(name, member)| Some((name, member.agent?))) {
        let pattern = Pattern(name.clone());
        if pattern.exact() == Some(key.as_str()) {
            return Ok(Some(agent));
        }
        if !pattern.matches(key.as_str()) {
            continue;
        }
        match &closest {
            Some((other, _)) if other.closeness() > pattern.closeness() => {}
            Some((other, runtime)) if other.closeness() == pattern.closeness() && *runtime != agent => {
                return Err(format!(
                    "guild.toml says `agent` for it twice, in [member.{:?}] and [member.{name:?}], and neither is \
                     closer; write [member.{:?}] with the one that is meant",
                    other.0,
                    key.as_str()
                ));
            }
            _ => closest = Some((pattern, agent)),
        }
    }
    Ok(closest.map(|(_, agent)| agent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agents(tables: &[(&str, Runtime)]) -> BTreeMap<String, MemberConfig> {
        let table = |agent| MemberConfig { agent: Some(agent), ..MemberConfig::default() };
        tables.iter().map(|(key, agent)| ((*key).to_owned(), table(*agent))).collect()
    }

    #[test]
    fn an_exact_key_wins_and_then_the_closest_pattern() {
        let of = |tables: &[(&str, Runtime)]| agent_of(&agents(tables), &"team/ann".parse().unwrap());
        assert_eq!(of(&[("bob", Runtime::Api)]), Ok(None));
        assert_eq!(of(&[("*", Runtime::Api), ("team/*", Runtime::Claude)]), Ok(Some(Runtime::Claude)));
        let exact = [("team/a*n", Runtime::Api), ("team/ann", Runtime::Extractive), ("*", Runtime::Claude)];
        assert_eq!(of(&exact), Ok(Some(Runtime::Extractive)));
        assert_eq!(of(&[("*ann", Runtime::Api), ("tea*", Runtime::Api)]), Ok(Some(Runtime::Api)));
        let tie = of(&[("*ann", Runtime::Api), ("tea*", Runtime::Claude)]).unwrap_err();
        assert!(tie.contains(r#"write [member."team/ann"]"#), "{tie}");
    }
}
