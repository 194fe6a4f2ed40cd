//! `guild members`: lists the members and their states.
//!
//! It checks members as a host does when it starts: it reads manifests, and compiles components or takes them from the
//! cache. The owner is found by its lock. With `--url` it queries a running host, which may serve an earlier state of a
//! directory.

use guild_client::{MemberReport, MemberService, Reply};
use guild_contract::{
    manifest::{Interface, World},
    text::size,
};
use guild_roster::{
    check::members::{Surveyed, survey_all, survey_one},
    discovery::{Found, FoundMember},
    jobs::files::{self, Owner},
};
use guild_trust::Signature;
use jiff::Timestamp;
use serde::Serialize;
use strum::IntoStaticStr;

use super::grants;
use crate::{
    args::members::Members,
    failure::Failure,
    local,
    output::{
        self, one_line, print_json,
        progress::Progress,
        table::{Cell, Column, Table},
        tell,
    },
};

/// A member in the output, also with `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    /// Its key, or its path if that is not a valid key.
    member: String,
    state: State,
    /// The reason if the member cannot be served.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Problems of its manifest that do not keep it from being served.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    /// The process that serves it, or works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// The address of that process.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// When its newest job was made, according to the job's id.
    #[serde(skip)]
    last_job: Option<Timestamp>,
    #[serde(flatten)]
    manifest: Option<ShownManifest>,
    #[serde(flatten)]
    trust: Option<ShownTrust>,
}

/// The trust in a member, from guild.lock and guild.trust.
#[derive(Serialize)]
struct ShownTrust {
    /// The kind of its approval, or `new`, or `changed`.
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

/// The state of a member.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
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
        self.into()
    }
}

/// `guild members`.
pub(crate) fn members(args: &Members) -> Result<(), Failure> {
    let config = local::config(&args.local.policy)?;
    let progress = Progress::start();
    let compiling = |what: &str| progress.compiling(what);
    let survey = match &args.member {
        Some(member) => {
            let directory = local::member_directory(member, &args.local, &config)?;
            let member = local::member(&directory, &args.local, &config).map_err(Failure::error)?;
            vec![survey_one(member, &config, &compiling)]
        }
        None => {
            let directory = local::members_directory(args.local.members.as_deref(), &config)?;
            let survey = survey_all(&directory, &config, &compiling).map_err(|e| Failure::error(e.to_string()))?;
            if survey.is_empty() && !args.json {
                tell(format_args!("no members in {}", directory.display()));
            }
            survey
        }
    };
    drop(progress);
    if args.grants || args.limits {
        return grants::show(survey, &config, args.grants, args.limits, args.json);
    }
    let all: Vec<Shown> = survey.into_iter().map(shown).collect();
    if args.json {
        print_json(&all)?;
    } else {
        table(&all).print()?;
    }
    Ok(())
}

/// `guild members --url`: the members that a running host serves.
pub(crate) async fn served(args: &Members, url: &str) -> Result<(), Failure> {
    let Reply { value, json } = guild_client::members(url, &args.access.options(url)?).await?;
    if args.json {
        print_json(&json)?;
        return Ok(());
    }
    if value.is_empty() {
        tell(format_args!("no members at {}", one_line(url, usize::MAX)));
    }
    served_table(&value).print()?;
    Ok(())
}

fn served_table(members: &[MemberReport]) -> Table {
    let mut table = Table::new(["MEMBER", "STATE", "VERSION", "SHA-256", "DISK"].map(Column::Left));
    for MemberReport { member, state, version, sha256, disk_bytes, error, .. } in members {
        let note = error.as_ref().map(|why| match state {
            MemberService::Ready => format!("a change is not in service: {}", one_line(why, usize::MAX)),
            _ => one_line(why, usize::MAX),
        });
        let cells = [
            Cell::text(member),
            Cell::text(state.as_str()).styled(output::state_style(*state == MemberService::Error)),
            Cell::text(version.as_deref().unwrap_or_default()),
            Cell::text(sha256.as_deref().unwrap_or_default()),
            Cell::text(&disk_bytes.map(size).unwrap_or_default()),
        ];
        table.row(cells, note);
    }
    table
}

fn shown(surveyed: Surveyed) -> Shown {
    let Surveyed { found: Found { path, member }, state, standing, warnings, .. } = surveyed;
    let (state, reason) = match state {
        Ok(true) => (State::Ready, None),
        Ok(false) => (State::Foreign, None),
        Err(reason) => (State::Error, Some(reason)),
    };
    // Without a standing, the state is an error with the reason.
    let trust = standing.map(|it| ShownTrust { approval: it.as_str(), signature: it.signature });
    let mut shown =
        Shown { member: path, state, reason, warnings, pid: None, url: None, last_job: None, manifest: None, trust };
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
    shown.last_job = files::last_made(&dir);
    let (world, grants, tools) = match manifest.component {
        Some(spec) => {
            (Some(spec.world), Interface::ALL.iter().copied().filter(|i| spec.asks(i.kind())).collect(), spec.tools)
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

fn table(members: &[Shown]) -> Table {
    let head = ["MEMBER", "STATE", "VERSION", "CAPABILITIES", "WORLD", "TRUST", "LAST JOB"].map(Column::Left);
    let mut table = Table::new(head).rest("DESCRIPTION");
    let now = Timestamp::now();
    for member in members {
        let manifest = member.manifest.as_ref();
        let text = |text: fn(&ShownManifest) -> &str| Cell::text(manifest.map_or("", text));
        let note = match (&member.reason, member.pid, &member.url) {
            (Some(reason), ..) => Some(one_line(reason, usize::MAX)),
            (None, Some(pid), Some(url)) => Some(format!("process {pid} serves it at {}", one_line(url, usize::MAX))),
            (None, Some(pid), None) => Some(format!("process {pid} works on it")),
            (None, None, _) => None,
        };
        let warnings = member.warnings.iter().map(|warning| format!("warning: {}", one_line(warning, usize::MAX)));
        let note =
            Some(note.into_iter().chain(warnings).collect::<Vec<_>>().join("; ")).filter(|note| !note.is_empty());
        let cells = [
            Cell::text(&member.member),
            Cell::text(member.state.as_str()).styled(output::state_style(member.state == State::Error)),
            text(|manifest| &manifest.version),
            Cell::text(&manifest.map(|manifest| manifest.capabilities.join(",")).unwrap_or_default()),
            text(|manifest| manifest.world.map_or("", |world| world.as_str())),
            Cell::text(member.trust.as_ref().map_or("", |trust| trust.approval)),
            Cell::age(member.last_job, now),
            text(|manifest| &manifest.description),
        ];
        table.row(cells, note);
    }
    table
}
