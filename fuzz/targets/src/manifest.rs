//! `guild-member.json`, `package.json` and `guild.toml`, and what a member may do by both.

use std::path::Path;

use guild_config::{Config, ConfigError};
use guild_contract::{
    Grants, Manifest, MemberKey, Policy,
    capability::{
        AGENT, Capability, KINDS, MEMORY, MEMORY_WRITE, OWN_TOOLS, SEARCH, WEB,
        grants::{Pattern, Rule, wildcard},
    },
    manifest::{ComponentSpec, Lines, package},
};

use crate::section;

const FILE: &str = "/etc/guild/guild.toml";

/// Sections: the manifest (without a name), `package.json`, `guild.toml`, and `key`.
pub fn run(data: &[u8]) {
    let policy = std::str::from_utf8(&section(data, b"guild.toml")).map_or(Policy::default(), policy);
    let key = String::from_utf8_lossy(&section(data, b"key")).trim().parse();
    let key = key.unwrap_or_else(|_| "team/ann".parse::<MemberKey>().unwrap());
    let (member, package) = (section(data, b""), section(data, b"package.json"));
    if package::is_declared(&package) {
        let both = [Manifest::of(None, Some(&package)), Manifest::of(Some(&member), Some(&package))];
        for (spec, why) in
            both.into_iter().map(|read| (read.as_ref().ok().and_then(|read| read.component.clone()), read.err()))
        {
            assert!(spec.is_some() != why.is_some(), "a package without a component is refused");
            spec.iter().for_each(|spec| grants(&key, spec, &policy));
            assert!(why.is_none_or(|why| !why.text.trim().is_empty()), "a refusal without a reason");
        }
    }
    match Manifest::parse(&member) {
        Ok(manifest) => {
            again(manifest.clone());
            if let Some(spec) = &manifest.component {
                grants(&key, spec, &policy);
            }
        }
        Err(why) => {
            assert!(!why.text.trim().is_empty(), "a refusal without a reason");
            let lines = section(data, b"").iter().filter(|byte| **byte == b'\n').count() + 1;
            assert!((1..=lines).contains(&why.line), "no such line: {}", why.line);
        }
    }
}

/// The policy of a `guild.toml`, where it is sound.
fn policy(text: &str) -> Policy {
    match Config::parse(Path::new(FILE), text) {
        Ok(config) => {
            assert_eq!(config.limits.check(), Ok(()), "a limit without an effect was taken");
            assert!(config.limits.json_depth < 128, "deeper than the parser goes");
            let paths = config.members.iter().chain(config.roots.iter().map(|root| &root.path));
            paths.for_each(|path| assert!(path.is_absolute(), "{} depends on the working directory", path.display()));
            assert_eq!(Config::parse(Path::new(FILE), text).unwrap().policy, config.policy);
            config.policy
        }
        Err(ConfigError::Invalid { line, text: why, .. }) => {
            assert!(
                (1..=text.bytes().filter(|byte| *byte == b'\n').count() + 1).contains(&line),
                "no such line: {line}"
            );
            assert!(!why.trim().is_empty(), "a refusal without a reason");
            Policy::default()
        }
        Err(other) => panic!("a text cannot be missing or unreadable: {other}"),
    }
}

/// A manifest that is written and read again is the same.
fn again(mut manifest: Manifest) {
    // Where it stood is not a part of it, and a number that is no integer may come back as its neighbour.
    manifest.lines = Lines::default();
    manifest.plugin = manifest.plugin.map(|_| serde_json::Value::Null);
    if let Some(component) = &mut manifest.component {
        component.resources.max_budget_usd = None;
        component.config_schema = None;
    }
    if manifest.plugin.is_none() {
        let written = serde_json::to_vec(&manifest).unwrap();
        let read = Manifest::parse(&written).unwrap();
        assert_eq!(Manifest { lines: Lines::default(), ..read }, manifest, "it is not what was written");
    }
}

/// What holds of all grants.
fn grants(key: &MemberKey, spec: &ComponentSpec, policy: &Policy) {
    let granted = Grants::of(key, spec, policy);
    for kind in KINDS {
        assert_eq!(granted.requested.contains_key(kind.name), spec.asks(kind), "judged is what is asked for: {kind}");
    }
    assert!(!granted.holds(&MEMORY_WRITE) || (granted.holds(&MEMORY) && granted.memory));
    assert!(!granted.holds(&SEARCH) || (granted.holds(&WEB) && policy.web));
    assert!(!granted.holds(&OWN_TOOLS) || granted.holds(&AGENT));
    assert!(policy.web || (granted.hosts.is_none() && !granted.holds(&WEB)), "a web that was not opened");
    assert!(granted.sessions.tools.iter().all(|tool| spec.tools.contains(tool)), "a tool that was not asked for");
    serde_json::to_string(&granted).unwrap();

    let names = names(spec, policy);
    if let (Some(files), Some(roots)) = (&spec.grants.files, &granted.roots)
        && !files.roots.is_empty()
    {
        for name in names.iter().filter(|name| roots.grant(name, wildcard)) {
            assert!(files.roots.iter().any(|asked| wildcard(asked, name)), "the root {name:?} was not asked for");
        }
    }
    // The order of the rules has no meaning.
    let mut turned = policy.clone();
    turned.rules.reverse();
    let other = Grants::of(key, spec, &turned);
    assert!(within(&other, &granted, &names) && within(&granted, &other, &names), "the order of rules decides");
    // A denial takes away, and adds nothing.
    let denials = policy.rules.iter().flat_map(|rule| rule.deny.iter().chain(rule.allow.iter().flatten())).cloned();
    for denied in denials.take(16).chain(KINDS.map(Capability::Kind)).chain([Capability::All]) {
        let mut less = policy.clone();
        let all = denied == Capability::All;
        less.rules.push(Rule { members: Pattern("*".to_owned()), allow: None, deny: vec![denied], limits: None });
        let less = Grants::of(key, spec, &less);
        assert!(within(&less, &granted, &names), "a denial grants something");
        let none = less.granted().next().is_none() && less.roots.is_none();
        let none = none && less.hosts.is_none() && less.sessions.tools.is_empty() && !less.artifacts && !less.memory;
        assert!(!all || (none && !less.sessions.memory), "all is denied, and something is granted");
    }
}

/// Names to try: those in the manifest and the policy, and some others.
fn names(spec: &ComponentSpec, policy: &Policy) -> Vec<String> {
    let written = policy.rules.iter().flat_map(|rule| rule.allow.iter().flatten().chain(&rule.deny));
    let written = written.filter_map(|capability| match capability {
        Capability::Root(name) | Capability::Host(name) => Some(name.clone()),
        _ => None,
    });
    let requested = &spec.grants;
    let asked =
        requested.files.iter().flat_map(|files| &files.roots).chain(requested.web.iter().flat_map(|web| &web.hosts));
    let some = ["", "docs", "*", "www.example.com"].map(str::to_owned);
    some.into_iter().chain(written).chain(asked.cloned()).take(64).collect()
}

/// Whether `less` grants nothing that `more` does not.
fn within(less: &Grants, more: &Grants, names: &[String]) -> bool {
    let flags = |grants: &Grants| {
        let Grants { sessions, memory, artifacts, .. } = grants;
        [*memory, *artifacts, sessions.memory, sessions.search]
    };
    let each = |of: fn(&Grants) -> &Option<guild_contract::capability::grants::Names>| {
        let has = |grants: &Grants, name: &str| of(grants).as_ref().is_some_and(|names| names.grant(name, wildcard));
        names.iter().all(|name| !has(less, name) || has(more, name))
    };
    KINDS.into_iter().all(|kind| !less.holds(kind) || more.holds(kind))
        && flags(less).into_iter().zip(flags(more)).all(|(less, more)| !less || more)
        && less.sessions.tools.iter().all(|tool| more.sessions.tools.contains(tool))
        && each(|grants| &grants.roots)
        && each(|grants| &grants.hosts)
}
