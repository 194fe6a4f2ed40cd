//! Resolves the settings of one member.

use std::{cmp::Reverse, collections::BTreeMap};

use guild_contract::{
    MemberKey,
    capability::grants::{Pattern, Rule},
};

use super::Config;
use crate::agents::runtime::Runtime;

impl Config {
    /// The runtime of the member `key`: the runtime of its own table, else of the most specific matching pattern, else
    /// of the whole file.
    ///
    /// # Errors
    ///
    /// Returns an error if two equally specific patterns name different runtimes.
    pub fn agent_of(&self, key: &MemberKey) -> Result<Runtime, String> {
        let rank = |pattern: &Pattern| (pattern.exact().is_some(), pattern.closeness());
        let mut matching: Vec<_> = self.agents.iter().filter(|(pattern, _)| pattern.matches(key.as_str())).collect();
        matching.sort_by_key(|(pattern, _)| Reverse(rank(pattern)));
        let [(closest, agent), others @ ..] = matching.as_slice() else { return Ok(self.agent) };
        let mut as_close = others.iter().take_while(|(pattern, _)| rank(pattern) == rank(closest));
        match as_close.find(|(_, other)| other != agent) {
            Some((other, _)) => Err(format!(
                "guild.toml sets its `agent` twice, in [member.{:?}] and [member.{:?}], and neither is more specific; \
                 write [member.{:?}] with the intended one",
                closest.0,
                other.0,
                key.as_str()
            )),
            None => Ok(**agent),
        }
    }

    /// Keeps the members' own limits of [`Setting::KeyAtStart`](guild_contract::limits::Setting::KeyAtStart) as in the
    /// `running` configuration, including those of a removed table. `self.limits` already has the running host's
    /// values.
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

    /// Sets the runtime of all sessions, if the host was started with the option.
    pub fn with_agent(self, agent: Option<Runtime>) -> Self {
        match agent {
            Some(agent) => Self { agent, agents: BTreeMap::new(), ..self },
            None => self,
        }
    }

    /// The keys of `[member.KEY]` tables whose member does not exist.
    pub fn keys_without_member(&self, is_known: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
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
