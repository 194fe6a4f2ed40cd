//! `guild upgrade` and `guild members --outdated`: newer versions of installed members.

use std::path::{Path, PathBuf};

use guild_config::Config;
use guild_contract::MemberKey;
use guild_registry::{Reference, Registry, RegistryError, Unpacked, write_over};
use guild_roster::discovery::{FoundMember, granted::Granted, single};
use guild_trust::{Approval, Pin, Refused, Source, Standing, Trusted, by_user};
use serde::Serialize;

use super::{install::source, review::Review};
use crate::{
    args::{members::Members, registry::Upgrade},
    failure::Failure,
    local::{self, LocalArgs},
    members::approve::{check_loads, next_load},
    output::{
        print_json,
        progress::Progress,
        table::{Cell, Column, Table},
        tell, tell_error,
    },
};

/// A member that was installed from a registry.
struct Installed {
    key: MemberKey,
    /// The directory of members, and the member's own there: absolute, without symlinks.
    members: PathBuf,
    directory: PathBuf,
    version: String,
    source: Source,
}

impl Installed {
    /// A newer artifact, if the registry has one.
    async fn newer(&self) -> Result<Option<Reference>, RegistryError> {
        let Source { reference, digest } = &self.source;
        let reference: Reference = reference.parse()?;
        Registry::of(&reference)?.newer(&reference, digest, &self.version).await
    }
}

/// The members that were installed from a registry: the named one, or all in the directory of members.
fn installed(
    named: Option<&str>,
    local: &LocalArgs,
    config: &Config,
    approval: &Approval,
) -> Result<Vec<Installed>, Failure> {
    let lock = approval.lock().map_err(Refused::from)?;
    let real = |path: &Path| path.canonicalize().map_err(|e| Failure::error(format!("{}: {e}", path.display())));
    let found = local::one_or_all(named, local, config)?;
    let members = match named {
        Some(named) => real(&local::member_directory(named, local, config)?)?,
        None => real(&local::members_directory(local.members.as_deref(), config)?)?,
    };
    let mut installed = Vec::new();
    // A member that cannot be read has no version, and is listed by `guild members`.
    for FoundMember { key, manifest, .. } in found.into_iter().filter_map(|found| found.member.ok()) {
        let parts = key.as_str().split('/').count();
        let (members, directory) = match named {
            Some(_) => (members.ancestors().nth(parts).unwrap_or(&members).to_owned(), members.clone()),
            None => (members.clone(), members.join(key.as_str())),
        };
        let source = directory.to_str().and_then(|directory| lock.pins.get(directory)?.source.clone());
        let version = manifest.version;
        installed.extend(source.map(|source| Installed { key, members, directory, version, source }));
    }
    match (named, installed.is_empty()) {
        (Some(named), true) => Err(Failure::error(format!(
            "{named} was not installed from a registry, according to guild.lock; `guild install` installs a member"
        ))),
        _ => Ok(installed),
    }
}

/// A member in the output of `guild members --outdated`.
#[derive(Serialize)]
struct Outdated {
    member: String,
    /// The installed artifact.
    installed: Source,
    /// The reference of the newer artifact.
    #[serde(skip_serializing_if = "Option::is_none")]
    newer: Option<String>,
    /// The reason if the registry could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// `guild members --outdated`.
pub(crate) async fn outdated(args: &Members) -> Result<(), Failure> {
    let config = local::config(&args.local.policy)?;
    let approval = Approval::new(&config);
    let progress = Progress::start();
    let mut all = Vec::new();
    for member in installed(args.member.as_deref(), &args.local, &config, &approval)? {
        progress.waiting(&format!("asking for newer versions of {}", member.source.reference));
        let (newer, error) = match member.newer().await {
            Ok(None) => continue,
            Ok(newer) => (newer.map(|newer| newer.to_string()), None),
            Err(why) => (None, Some(why.to_string())),
        };
        all.push(Outdated { member: member.key.to_string(), installed: member.source, newer, error });
    }
    drop(progress);
    let has_failed = all.iter().any(|member| member.error.is_some());
    if args.json {
        print_json(&all)?;
    } else if all.is_empty() {
        tell("no newer versions");
    } else {
        table(&all).print()?;
    }
    if has_failed { Err(Failure::error("not every registry could be asked")) } else { Ok(()) }
}

fn table(all: &[Outdated]) -> Table {
    let mut table = Table::new(["MEMBER", "INSTALLED", "NEWER"].map(Column::Left));
    for Outdated { member, installed, newer, error } in all {
        let cells = [member, &installed.reference, newer.as_deref().unwrap_or_default()].map(Cell::text);
        table.row(cells, error.clone());
    }
    table
}

/// `guild upgrade`.
pub(crate) async fn upgrade(args: Upgrade) -> Result<(), Failure> {
    let config = local::config(&args.local.policy)?;
    let approval = Approval::new(&config);
    let (mut has_failed, mut has_newer) = (false, false);
    for member in installed(args.member.as_deref(), &args.local, &config, &approval)? {
        match upgrade_member(&member, &config, &approval, args.yes).await {
            Ok(is_newer) => has_newer |= is_newer,
            Err(why) if args.all => {
                tell_error(format_args!("{}: {}", member.key, why.message.unwrap_or_default()));
                has_failed = true;
            }
            Err(why) => return Err(why),
        }
    }
    if has_failed {
        return Err(Failure::error("not every member was upgraded"));
    }
    if !has_newer {
        tell("no newer versions");
    }
    Ok(())
}

/// Upgrades a member; false if there is no newer version.
async fn upgrade_member(member: &Installed, config: &Config, approval: &Approval, yes: bool) -> Result<bool, Failure> {
    let Installed { key, members, directory, .. } = member;
    let Some(newer) = member.newer().await? else { return Ok(false) };
    let (reference, pulled) = super::pull(newer, &config.limits).await?;
    let source = source(&reference, pulled.digest);
    let failed = |e| Failure::error(format!("{key} was not upgraded: {e}"));
    let find = || single(directory, Some(members), config).map_err(Failure::error);
    let before = find()?;
    if standing(&before, config, approval).is_ok_and(|now| matches!(now.trusted, Trusted::Changed(_))) {
        tell(format_args!("{key} was changed since it was pinned; the upgrade replaces these changes"));
    }
    let unpacked = Unpacked::create(members, key.as_str(), &pulled.files).map_err(failed)?;
    let verbs = ["Upgrade", "upgraded"];
    let review = Review { config, approval, unpacked: &unpacked, members, directory, source: &source, verbs, yes };
    let confirmed = review.confirmed()?;
    drop(unpacked);
    guild_roster::end_before_approval(&before.dir, &config.limits, true)
        .map_err(|why| Failure::error(format!("{key} was not upgraded: {why}")))?;
    // The pin comes last: a member that is written in part differs from its pin, and no host loads it.
    let is_posture_free = confirmed.presented.posture.is_none();
    let keeps = |name: &str| is_posture_free && name == guild_contract::manifest::POSTURE;
    write_over(&before.dir, &pulled.files, &config.limits, keeps).map_err(|e| {
        Failure::error(format!("{key} is upgraded in part, and no host loads it: {e}; run the command again"))
    })?;
    let found = find()?;
    let written = standing(&found, config, approval)?;
    if digests(&written) != digests(&confirmed) {
        return Err(Failure::error(format!("{key} was changed during the upgrade; run the command again")));
    }
    approval.approve(&written, Some(source), by_user())?;
    tell(format_args!("upgraded {key} to {reference}"));
    tell(next_load(approval, &found));
    check_loads(found, config, key.as_str())?;
    Ok(true)
}

/// The state of a member in its place.
fn standing(found: &FoundMember, config: &Config, approval: &Approval) -> Result<Standing, Failure> {
    let none = || Failure::error(format!("{} has no `component`", found.key));
    let spec = found.manifest.component.as_ref().ok_or_else(none)?;
    let max = Granted::of(found, spec, config, approval).map_err(Failure::error)?.limits.limits.component_bytes;
    Ok(approval.look(&found.key, &found.dir, spec, max)?.1)
}

/// The digests that an approval pins.
fn digests(standing: &Standing) -> [Option<&String>; 4] {
    let Pin { sha256, manifest, package, posture, .. } = &standing.presented;
    [Some(sha256), manifest.as_ref(), package.as_ref(), posture.as_ref()]
}
