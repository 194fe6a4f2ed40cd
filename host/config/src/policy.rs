//! Reads `[member.PATTERN]`: the settings of the members that a pattern matches.

use std::collections::{BTreeMap, BTreeSet};

use guild_contract::{
    Limits,
    capability::{
        Capability,
        grants::{Pattern, Rule},
    },
};

use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use super::{Runtime, agents::runtime, host::pattern::HostPattern, value::Wrong};

/// Settings of the members whose keys PATTERN matches; `*` stands for any characters.
///
/// A member in a group is written `[member."X/Y"]`. Several tables may match one member.
#[derive(Deserialize)]
pub(crate) struct WrittenMember {
    /// The runtime of the members' sessions. Without this key, it is the `agent` of the whole file.
    agent: Option<Spanned<String>>,
    /// The capabilities that are granted if the manifest requests them. Without this key, all are; `[]` grants nothing.
    allow: Option<Vec<Spanned<String>>>,
    /// The capabilities that are not granted. `deny` takes precedence over `allow`. Default: `[]`.
    #[serde(default)]
    deny: Vec<Spanned<String>>,
    /// Limits of the member, each at most the value in `[limits]`.
    #[serde(default)]
    limits: BTreeMap<String, Spanned<Value>>,
    /// `"any"` accepts a manifest whose `mcp` line sets options of its own host. It is valid only in the file of the
    /// user's configuration directory.
    mcp: Option<Spanned<String>>,
    /// `"free"` lets `posture.md` change without `guild approve`: an edit takes effect with the next job.
    posture: Option<Spanned<String>>,
}

/// The result of reading `[member]`.
pub(crate) struct Members {
    /// The rules of the operator's policy.
    pub(crate) rules: Vec<Rule>,
    /// The runtimes of members' sessions.
    pub(crate) agents: BTreeMap<Pattern, Runtime>,
    /// The members whose manifests may have any `mcp` line.
    pub(crate) any_mcp: BTreeSet<Pattern>,
    /// The members whose postures may change.
    pub(crate) free_posture: BTreeSet<Pattern>,
}

/// Reads `[member]` for a host with these limits.
pub(crate) fn members(written: BTreeMap<Pattern, WrittenMember>, limits: &Limits) -> Result<Members, Wrong> {
    let (mut rules, mut agents) = (Vec::new(), BTreeMap::new());
    let (mut any_mcp, mut free_posture) = (BTreeSet::new(), BTreeSet::new());
    for (members, member) in written {
        let name = |of: &str| format!("member.{members}.{of}");
        if let Some(agent) = member.agent {
            agents.insert(members.clone(), runtime(&name("agent"), &agent)?);
        }
        let words = [("mcp", member.mcp, "any", &mut any_mcp), ("posture", member.posture, "free", &mut free_posture)];
        for (key, written, word, all) in words {
            let Some(written) = written else { continue };
            if written.get_ref() != word {
                let why = format!(
                    "{}: {:?} is not a valid value; write {word:?}, or remove the line",
                    name(key),
                    written.get_ref()
                );
                return Err(Wrong::at(written.span(), why));
            }
            all.insert(members.clone());
        }
        let allow = member.allow.map(|names| capabilities(&name("allow"), names)).transpose()?;
        let deny = capabilities(&name("deny"), member.deny)?;
        let limits = own_limits(&name("limits"), member.limits, limits)?;
        rules.push(Rule { members, allow, deny, limits });
    }
    Ok(Members { rules, agents, any_mcp, free_posture })
}

fn capabilities(list: &str, names: Vec<Spanned<String>>) -> Result<Vec<Capability>, Wrong> {
    let read = |name: Spanned<String>| {
        let wrong = |why: String| Wrong::at(name.span(), format!("{list}: {why}"));
        let capability: Capability = name.get_ref().parse().map_err(wrong)?;
        if let Capability::Host(host) = &capability {
            HostPattern::parse(host).map_err(wrong)?;
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
