//! `guild members --grants` and `--limits`: shows the permissions and limits of members, and their origin.

use std::{
    fmt::Display,
    io::{self, Write},
};

use anstyle::AnsiColor;
use guild_config::Config;
use guild_contract::{
    Bounds, Grants, Limits, Narrowed,
    capability::{
        MEMORY_WRITE,
        grants::{Names, Verdict},
    },
    limits::Limit,
};
use guild_roster::{
    check::{
        members::Surveyed,
        planned_host::{Preview, Searched},
    },
    discovery::{
        FoundMember,
        granted::{Granted, ceiling},
    },
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    failure::Failure,
    output::{self, LABEL, STRONG, count, one_line, print, print_json},
};

/// A member in the output, also with `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    member: String,
    /// The reason if the member is not in service. The grants and limits are then the ones that it would have.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grants: Option<ShownGrants>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Vec<ShownLimit>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownGrants {
    #[serde(flatten)]
    grants: Grants,
    /// The read roots of guild.toml, and whether each is granted.
    read_roots: Vec<ShownRoot>,
    /// The tools that a session can receive: they are granted, and there is something to read.
    session_tools: Vec<String>,
    /// The source that a session's search tool searches.
    searched: Searched,
    /// The bounds of the usage of a job's sessions.
    bounds: Bounds,
    artifacts_bytes: u64,
    artifacts_entries: u64,
}

#[derive(Serialize)]
struct ShownRoot {
    name: String,
    #[serde(flatten)]
    verdict: Verdict,
}

#[derive(Serialize)]
struct ShownLimit {
    name: &'static str,
    value: Value,
    source: String,
}

/// Prints the grants, the limits, or both.
pub(crate) fn show(
    survey: Vec<Surveyed>,
    config: &Config,
    grants: bool,
    limits: bool,
    as_json: bool,
) -> Result<(), Failure> {
    let preview = grants.then(|| Preview::new(config)).transpose().map_err(|e| Failure::error(e.to_string()))?;
    let shown = |Surveyed { found, state, granted, .. }: Surveyed| {
        let member = found.member.as_ref().ok();
        let grants = member.zip(granted.as_ref()).zip(preview.as_ref());
        Shown {
            grants: grants.and_then(|((member, granted), preview)| shown_grants(member, granted, preview)),
            limits: granted.as_ref().filter(|_| limits).map(|granted| shown_limits(granted, config)),
            member: found.path,
            reason: match state {
                Ok(true) => None,
                Ok(false) => Some("it has no component: its own process serves it".to_owned()),
                Err(why) => Some(why),
            },
        }
    };
    let all: Vec<Shown> = survey.into_iter().map(shown).collect();
    let write = |out: &mut dyn Write| all.iter().try_for_each(|member| write_member(out, member));
    Ok(if as_json { print_json(&all) } else { print(write) }?)
}

fn shown_grants(member: &FoundMember, granted: &Granted, preview: &Preview) -> Option<ShownGrants> {
    let spec = member.manifest.component.as_ref()?;
    let Granted { grants, limits } = granted;
    let root = |name: String| {
        let denial = grants.root_denial(&name, &member.key, spec);
        ShownRoot { name, verdict: denial.map_or(Verdict::Granted, Verdict::Denied) }
    };
    let (session_tools, searched) = preview.of(grants);
    Some(ShownGrants {
        read_roots: preview.roots().into_iter().map(root).collect(),
        session_tools,
        searched,
        bounds: ceiling(spec, &limits.limits),
        artifacts_bytes: limits.limits.artifacts_bytes,
        artifacts_entries: limits.limits.artifacts_entries,
        grants: Grants::clone(grants).in_words(),
    })
}

fn shown_limits(granted: &Granted, config: &Config) -> Vec<ShownLimit> {
    let values = json!(granted.limits.limits);
    let source = |name: &str| match granted.limits.narrowed.get(name) {
        Some(Narrowed::Operator(pattern)) => format!("[member.{:?}.limits]", pattern.0),
        Some(Narrowed::Manifest) => "manifest".to_owned(),
        None if config.limits_set.contains(name) => "[limits]".to_owned(),
        None => "default".to_owned(),
    };
    let value = |name: &str| values.get(name).cloned().unwrap_or_default();
    let shown = |limit: &Limit| ShownLimit { name: limit.name, value: value(limit.name), source: source(limit.name) };
    Limits::ALL.iter().map(shown).collect()
}

fn write_member(out: &mut dyn Write, member: &Shown) -> io::Result<()> {
    writeln!(out, "{STRONG}{}{STRONG:#}", one_line(&member.member, usize::MAX))?;
    if let Some(reason) = &member.reason {
        writeln!(out, "  not in service: {}", one_line(reason, usize::MAX))?;
    }
    if let Some(grants) = &member.grants {
        write_grants(out, grants)?;
    }
    for limit in member.limits.iter().flatten() {
        let value = limit.value.as_u64().map_or_else(|| limit.value.to_string(), count);
        writeln!(out, "  {:<26} {value:>13}  {LABEL}{}{LABEL:#}", limit.name, one_line(&limit.source, usize::MAX))?;
    }
    Ok(())
}

fn write_grants(out: &mut dyn Write, shown: &ShownGrants) -> io::Result<()> {
    let grants = &shown.grants;
    for (name, verdict) in grants.verdicts() {
        write_verdict(out, name, verdict)?;
    }
    for root in &shown.read_roots {
        write_verdict(out, &format!("files:{}", root.name), &root.verdict)?;
    }
    let mut row = |label: &str, value: &dyn Display| writeln!(out, "  {LABEL}{label:<18}{LABEL:#} {value}");
    row("hosts", &grants.hosts.as_ref().map_or_else(|| "none".to_owned(), hosts))?;
    row("a search finds", &searches(shown))?;
    let tools = if shown.session_tools.is_empty() { "none".to_owned() } else { shown.session_tools.join(", ") };
    row("session tools", &tools)?;
    let memory = [
        (grants.memory, "given to sessions"),
        (grants.sessions.memory, "stored by sessions"),
        (grants.holds(&MEMORY_WRITE), "written by the component"),
    ];
    let memory: Vec<&str> = memory.into_iter().filter(|(granted, _)| *granted).map(|(_, what)| what).collect();
    row("memory", &if memory.is_empty() { "none".to_owned() } else { memory.join(", ") })?;
    let parts: Vec<&str> = grants.base.held().collect();
    row("in commissions", &if parts.is_empty() { "nothing unasked".to_owned() } else { parts.join(", ") })?;
    if grants.artifacts {
        let (bytes, entries) = (count(shown.artifacts_bytes), count(shown.artifacts_entries));
        row("artifacts", &format_args!("at most {bytes} bytes and {entries} files and directories"))?;
    } else {
        row("artifacts", &"none")?;
    }
    let Bounds { max_turns, max_budget_usd, deadline_seconds } = shown.bounds;
    let bounds = [
        max_turns.map(|turns| format!("{} turns", count(turns.into()))),
        max_budget_usd.map(|usd| format!("{usd:.2} USD")),
        deadline_seconds.map(|seconds| format!("{} s", count(seconds.into()))),
    ];
    row("a job uses at most", &bounds.into_iter().flatten().collect::<Vec<_>>().join(", "))?;
    let refuses = "makes the host refuse the component (strict_imports)";
    row("a denied import", &if grants.strict_imports { refuses } else { "answers `not-granted`" })
}

fn write_verdict(out: &mut dyn Write, name: &str, verdict: &Verdict) -> io::Result<()> {
    let name = one_line(name, usize::MAX);
    match verdict {
        Verdict::Granted => {
            let style = output::state_style(false);
            writeln!(out, "  {name:<18} {style}granted{style:#}")
        }
        Verdict::Denied(why) => {
            let style = AnsiColor::Yellow.on_default();
            writeln!(out, "  {name:<18} {style}denied{style:#}   {}", one_line(&why.to_string(), usize::MAX))
        }
    }
}

/// The searched source, and if that is not the web, the reason.
fn searches(ShownGrants { grants, searched, .. }: &ShownGrants) -> String {
    let why = if grants.sessions.search { "guild.toml has no [web.search]" } else { "`web:search` is not granted" };
    match searched {
        Searched::Provider => "the results of the search provider".to_owned(),
        Searched::ReadRoots => format!("the files in the granted read roots: {why}"),
        Searched::Nothing => format!("nothing: {why}, and no read root is granted"),
    }
}

/// Patterns of hosts as a sentence.
fn hosts(names: &Names) -> String {
    let mut parts = vec!["the hosts of [web]".to_owned()];
    parts.extend(names.all_of.iter().map(|list| match list.as_slice() {
        [] => "and none of them".to_owned(),
        list => format!("of them {}", list.join(" ")),
    }));
    if !names.none_of.is_empty() {
        parts.push(format!("but not {}", names.none_of.join(" ")));
    }
    one_line(&parts.join(", "), usize::MAX)
}
