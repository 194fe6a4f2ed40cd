//! `guild members --used`: shows the grants that the jobs of a member have really used, and a rule with these alone.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use guild_config::Config;
use guild_contract::{
    Grants, MemberKey,
    capability::{
        ARTIFACTS, Capability, FILES, KINDS, Kind, MEMORY, MEMORY_WRITE, OWN_TOOLS, SEARCH, WEB,
        grants::{Pattern, Rule},
    },
};
use guild_roster::{
    check::used::{Use, UsedGrants},
    discovery::{FoundMember, granted::Granted},
    jobs::files::OfflineJobs,
};
use guild_trust::Approval;
use jiff::Timestamp;
use serde::Serialize;

use super::rehearse::rehearse;
use crate::{
    args::members::Members,
    failure::Failure,
    local,
    output::{
        harmless, print, print_json,
        table::{Cell, Column, Table},
        tell,
    },
};

/// The use of a member's grants in the output, also with `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    member: MemberKey,
    /// The number of its jobs.
    jobs: usize,
    grants: Vec<ShownGrant>,
    /// The tools that its sessions called, with the number of jobs.
    tools: BTreeMap<String, usize>,
    /// The `allow` of a rule with what was used.
    allow: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownGrant {
    /// The capability, as guild.toml spells it.
    capability: String,
    /// The number of jobs that used it; none where jobs do not record it.
    #[serde(skip_serializing_if = "Option::is_none")]
    jobs: Option<usize>,
    /// The time at which the newest of them was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<Timestamp>,
}

/// `guild members MEMBER --used`, also with `--prove`.
pub(crate) fn used(args: &Members) -> Result<(), Failure> {
    let mut config = local::config(&args.local.policy)?;
    let Some(member) = &args.member else { return Err(Failure::error("name the member whose jobs are read")) };
    let directory = local::member_directory(member, &args.local, &config)?;
    let found = local::member(&directory, &args.local, &config).map_err(Failure::error)?;
    let shown = shown(&found, &config).map_err(|why| Failure::error(harmless(&why)))?;
    if args.json {
        print_json(&shown)?;
    } else {
        table(&shown).print()?;
        print(|out| write_rule(out, &shown))?;
    }
    let Some(most) = args.prove else { return Ok(()) };
    let allow = shown.allow.iter().map(|name| name.parse()).collect::<Result<_, String>>().map_err(Failure::error)?;
    // An `allow` adds to others.
    let of_member = config.policy.rules.iter_mut().filter(|rule| rule.members.matches(found.key.as_str()));
    of_member.for_each(|rule| rule.allow = None);
    let members = Pattern(found.key.to_string());
    config.policy.rules.push(Rule { members, allow: Some(allow), ..Rule::default() });
    rehearse(found, config, usize::try_from(most).unwrap_or(usize::MAX))
}

fn shown(found: &FoundMember, config: &Config) -> Result<Shown, String> {
    let spec = found.manifest.component.as_ref().ok_or("it has no `component`: its own process serves it")?;
    let Granted { grants, .. } = Granted::of(found, spec, config, &Approval::new(config))?;
    let directory = found.dir.try_clone().map_err(|e| e.to_string())?;
    let used = UsedGrants::of(&OfflineJobs::open(directory)?).map_err(|e| format!("its jobs cannot be read: {e}"))?;
    Ok(Shown {
        member: found.key.clone(),
        jobs: used.jobs,
        grants: rows(&grants, &used, config),
        tools: used.tools.iter().map(|(name, of_tool)| (name.clone(), of_tool.jobs)).collect(),
        allow: allow(&grants, &used),
    })
}

/// The kinds that are granted to the component or to its sessions.
fn kinds(grants: &Grants) -> impl Iterator<Item = &'static Kind> {
    let searches = grants.sessions.search && grants.sessions.tools.iter().any(|tool| tool == "WebSearch");
    KINDS.into_iter().filter(move |kind| {
        let of_sessions = [
            (&FILES, grants.roots.is_some()),
            (&WEB, grants.hosts.is_some()),
            (&SEARCH, searches),
            (&MEMORY, grants.memory),
            (&MEMORY_WRITE, grants.sessions.memory),
            (&ARTIFACTS, grants.artifacts),
        ];
        let is_of_sessions = of_sessions.into_iter().any(|(known, is_held)| known == *kind && is_held);
        is_of_sessions || grants.base.has(kind.name) || grants.holds(kind)
    })
}

/// Whether the jobs of a member record the use of a capability.
fn is_recorded(kind: &Kind) -> bool {
    kind.import.is_some() || [&SEARCH, &MEMORY_WRITE, &OWN_TOOLS].into_iter().any(|known| known == kind)
}

fn rows(grants: &Grants, used: &UsedGrants, config: &Config) -> Vec<ShownGrant> {
    let of = |name: &str| used.capabilities.get(name).copied().unwrap_or_default();
    let row = |capability: String, Use { jobs, last }| ShownGrant { capability, jobs: Some(jobs), last };
    let mut rows = Vec::new();
    for kind in kinds(grants) {
        match is_recorded(kind) {
            true => rows.push(row(kind.name.to_owned(), of(kind.name))),
            false => rows.push(ShownGrant { capability: kind.name.to_owned(), jobs: None, last: None }),
        }
        // Each granted root of guild.toml, and each root and host that a job used.
        let mut parts: BTreeMap<String, Use> = BTreeMap::new();
        if *kind == FILES {
            let names = config.roots.iter().filter_map(|root| root.name.clone());
            parts.extend(names.map(|name| (Capability::Root(name).to_string(), Use::default())));
        }
        if *kind == FILES || *kind == WEB {
            let prefix = format!("{}:", kind.name);
            let of_kind = used.capabilities.iter().filter(|(name, _)| name.starts_with(&prefix));
            parts.extend(of_kind.map(|(name, of_part)| (name.clone(), *of_part)));
        }
        rows.extend(parts.into_iter().map(|(name, of_part)| row(format!("  {name}"), of_part)));
    }
    rows
}

/// A rule's `allow` with what was used, and what jobs do not record.
fn allow(grants: &Grants, used: &UsedGrants) -> Vec<String> {
    let mut allow = Vec::new();
    for kind in kinds(grants) {
        // A component reads `/memory` as files, too, and sessions are given memories without a call.
        if !is_recorded(kind) || *kind == MEMORY {
            allow.push(kind.name.to_owned());
            continue;
        }
        if !used.capabilities.contains_key(kind.name) {
            continue;
        }
        let all = format!("{}:*", kind.name);
        let prefix = format!("{}:", kind.name);
        let parts = used.capabilities.keys().filter(|name| name.starts_with(&prefix));
        let parts: Vec<String> = parts.cloned().collect();
        match parts.is_empty() || parts.contains(&all) {
            true => allow.push(kind.name.to_owned()),
            false => allow.extend(parts),
        }
    }
    allow
}

fn table(shown: &Shown) -> Table {
    let mut table = Table::new([Column::Left("GRANT"), Column::Right("JOBS"), Column::Left("LAST")]);
    for ShownGrant { capability, jobs, last } in &shown.grants {
        let number = match jobs {
            None => Cell::text("not recorded"),
            Some(jobs) => Cell::text(&format!("{jobs} of {}", shown.jobs)),
        };
        table.row([Cell::text(capability), number, Cell::age(*last, Timestamp::now())], None);
    }
    table
}

fn write_rule(out: &mut dyn Write, shown: &Shown) -> io::Result<()> {
    if shown.jobs == 0 {
        tell("the member has no jobs, so nothing was used");
        return Ok(());
    }
    let tools: Vec<String> = shown.tools.iter().map(|(name, jobs)| format!("{name} ({jobs})")).collect();
    if !tools.is_empty() {
        writeln!(out, "\nCalled by sessions: {}", harmless(&tools.join(", ")))?;
    }
    let allow: Vec<String> = shown.allow.iter().map(|name| format!("{name:?}")).collect();
    writeln!(out, "\nA rule with what was used, in place of its `allow`:\n")?;
    writeln!(out, "[member.{:?}]\nallow = [{}]", shown.member.as_str(), harmless(&allow.join(", ")))
}
