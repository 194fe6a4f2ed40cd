//! `guild members`: who is there, and in what state.
//!
//! It looks as a host does when it starts: manifests are read, and components are compiled, or taken from the cache.
//! The owner is told by its lock. With `--url` it asks a host that runs, which may serve what a directory had before.

use std::io;

use guild_client::{MemberReport, MemberService, Reply};
use guild_contract::manifest::{Interface, World};
use guild_jobs::Owner;
use guild_server::{
    Host,
    approval::Signature,
    discovery::{Found, FoundMember},
    host::Surveyed,
};
use serde::Serialize;

use crate::{
    args::Members,
    failure::Failure,
    grants, house,
    output::{self, one_line, print, print_json, tell},
    progress::Progress,
};

/// What a member is, for people and, with `--json`, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    /// Its key, or its path where that can be no key.
    member: String,
    state: State,
    /// Why it cannot be served.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The process that serves it, or works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// Where that process answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(flatten)]
    manifest: Option<ShownManifest>,
    #[serde(flatten)]
    trust: Option<ShownTrust>,
}

/// What guild.lock and guild.trust say of it.
#[derive(Serialize)]
struct ShownTrust {
    /// How it came to be trusted, or `new`, or `changed`.
    approval: &'static str,
    signature: Signature,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownManifest {
    name: String,
    display_name: String,
    description: String,
    version: String,
    capabilities: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    world: Option<World>,
    /// The interfaces of `guild:worker` that it asks for.
    grants: Vec<Interface>,
    /// The tools that its sessions may be given.
    tools: Vec<String>,
}

/// Whether a member can be worked with.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// It can be served.
    Ready,
    /// A host serves it, or a process works on it.
    Owned,
    /// It has no component: its own process serves it, not this host.
    Foreign,
    /// It cannot be served.
    Error,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Owned => "owned",
            Self::Foreign => "foreign",
            Self::Error => "error",
        }
    }
}

/// `guild members`.
pub(crate) fn members(args: &Members) -> Result<(), Failure> {
    let config = house::config(&args.house.policy)?;
    let progress = Progress::start();
    let compiling = |what: &str| progress.compiling(what);
    let survey = match &args.member {
        Some(member) => {
            let directory = house::member_directory(member, &args.house, &config)?;
            let member = house::member(&directory, &args.house, &config).map_err(Failure::error)?;
            vec![Host::survey_one(member, &config, &compiling)]
        }
        None => {
            let directory = house::members_directory(args.house.members.as_deref(), &config)?;
            let survey = Host::survey(&directory, &config, &compiling).map_err(|e| Failure::error(e.to_string()))?;
            if survey.is_empty() && !args.json {
                tell(format_args!("no members in {}", directory.display()));
            }
            survey
        }
    };
    drop(progress);
    if args.grants || args.limits {
        return grants::show(survey, &config, (args.grants, args.limits), args.json);
    }
    let all: Vec<Shown> = survey.into_iter().map(shown).collect();
    if args.json {
        print_json(&all)?;
    } else {
        print(|out| all.iter().try_for_each(|member| write_member(out, member)))?;
    }
    Ok(())
}

/// `guild members --url`: what a running host serves, which may be what a directory had before.
pub(crate) async fn served(args: &Members, url: &str) -> Result<(), Failure> {
    let Reply { value, json } = guild_client::members(url, &args.access.options()?).await?;
    if args.json {
        print_json(&json)?;
        return Ok(());
    }
    if value.is_empty() {
        tell(format_args!("no members at {}", one_line(url, usize::MAX)));
    }
    print(|out| value.iter().try_for_each(|member| write_served(out, member)))?;
    Ok(())
}

fn write_served(out: &mut dyn io::Write, member: &MemberReport) -> io::Result<()> {
    let MemberReport { member, state, version, sha256, error, .. } = member;
    let style = output::state_style(*state == MemberService::Error);
    write!(out, "{:<24} {style}{:<8}{style:#}", one_line(member, usize::MAX), state.as_str())?;
    write!(out, " {:<8} {}", one_line(version.as_deref().unwrap_or("-"), 20), sha256.as_deref().unwrap_or("-"))?;
    writeln!(out)?;
    match error {
        Some(why) if *state == MemberService::Ready => {
            writeln!(out, "  a change is not in service: {}", one_line(why, usize::MAX))
        }
        Some(why) => writeln!(out, "  {}", one_line(why, usize::MAX)),
        None => Ok(()),
    }
}

fn shown(surveyed: Surveyed) -> Shown {
    let Surveyed { found: Found { path, member }, state, standing, .. } = surveyed;
    let (state, reason) = match state {
        Ok(true) => (State::Ready, None),
        Ok(false) => (State::Foreign, None),
        Err(reason) => (State::Error, Some(reason)),
    };
    // Where it cannot be told, the state is an error, with that reason.
    let trust = standing.map(|it| ShownTrust { approval: it.as_str(), signature: it.signature });
    let mut shown = Shown { member: path, state, reason, pid: None, url: None, manifest: None, trust };
    if let Ok(member) = member {
        add_manifest(&mut shown, member);
    }
    shown
}

fn add_manifest(shown: &mut Shown, FoundMember { dir, manifest, .. }: FoundMember) {
    if let Ok(Some(owner)) = Owner::of(&dir) {
        if shown.state == State::Ready {
            shown.state = State::Owned;
        }
        shown.pid = Some(owner.pid);
        shown.url = Some(owner.url).filter(|url| !url.is_empty());
    }
    let (world, grants, tools) = match manifest.component {
        Some(spec) => {
            (Some(spec.world), Interface::ALL.into_iter().filter(|i| spec.grants.asks(*i)).collect(), spec.tools)
        }
        None => (None, Vec::new(), Vec::new()),
    };
    shown.manifest = Some(ShownManifest {
        name: manifest.name,
        display_name: manifest.display_name,
        description: manifest.description,
        version: manifest.version,
        capabilities: manifest.capabilities,
        world,
        grants,
        tools,
    });
}

fn write_member(out: &mut dyn io::Write, member: &Shown) -> io::Result<()> {
    let style = output::state_style(member.state == State::Error);
    write!(out, "{:<24} {style}{:<8}{style:#}", one_line(&member.member, usize::MAX), member.state.as_str())?;
    if let Some(manifest) = &member.manifest {
        let capabilities = manifest.capabilities.join(",");
        write!(out, " {:<8} {:<8}", one_line(&manifest.version, 20), one_line(&capabilities, 40))?;
        match manifest.world {
            Some(world) => write!(out, " {:<17}", world.as_str())?,
            None => write!(out, " {:<17}", "-")?,
        }
        write!(out, " {:<10}", member.trust.as_ref().map_or("-", |trust| trust.approval))?;
        write!(out, " {}", one_line(&manifest.description, 80))?;
    }
    writeln!(out)?;
    match (&member.reason, member.pid, &member.url) {
        (Some(reason), ..) => writeln!(out, "  {}", one_line(reason, usize::MAX)),
        (None, Some(pid), Some(url)) => writeln!(out, "  process {pid} serves it at {}", one_line(url, usize::MAX)),
        (None, Some(pid), None) => writeln!(out, "  process {pid} works on it"),
        _ => Ok(()),
    }
}
