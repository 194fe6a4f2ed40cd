//! `guild doctor`: checks that everything is usable, and reports why the rest is not.

mod running;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use anstyle::AnsiColor;
use guild_config::Config;
use guild_contract::host::{Check, CheckState, DoctorView};
use guild_roster::check::doctor::{Examination, examine};

use crate::{
    args::operator::Doctor,
    failure::{Failure, exit},
    local,
    output::{self, LABEL, harmless, one_line, print, print_json, progress::Progress, tell_error},
};

/// `guild doctor`.
pub(crate) async fn doctor(args: Doctor) -> Result<(), Failure> {
    let config = local::config(&args.local.policy)?;
    let file = config.file.clone();
    let progress = Progress::start();
    let hall = hall(args.hall.as_ref(), &config)?;
    let members = members(&args, hall.as_deref(), &config)?;
    let hosts = running::check(&args, members.as_deref(), &config).await?;
    let examination = Examination {
        members,
        config,
        sources: args.session.sources,
        agent: args.session.agent,
        hall,
        serves_hall: args.hall.is_some(),
        online: args.online,
    };
    let mut checks = examine(examination, move |what| progress.compiling(what)).await;
    checks.extend(hosts);
    let missing: Vec<_> = checks.iter().filter(|check| check.is_missing()).map(named).collect();
    if args.json {
        let config = file.map(|file| file.display().to_string());
        print_json(&DoctorView { config, usable: missing.is_empty(), checks })?;
    } else {
        print(|out| {
            let file =
                file.as_ref().map_or_else(|| "none; the defaults apply".to_owned(), |file| file.display().to_string());
            writeln!(out, "{LABEL}guild.toml{LABEL:#}  {}", harmless(&file))?;
            checks.iter().try_for_each(|check| write_check(out, check))
        })?;
    }
    if missing.is_empty() {
        return Ok(());
    }
    tell_error(format_args!("needed, but not usable: {}", missing.join(", ")));
    Err(Failure::code(exit::ERROR))
}

/// The home of the hall to check: the requested one, or else an existing one.
fn hall(asked: Option<&Option<PathBuf>>, config: &Config) -> Result<Option<PathBuf>, Failure> {
    match asked {
        Some(named) => local::hall_home(named.as_deref(), "--hall", config).map(Some),
        None => Ok(config.hall_home(None).filter(|home| home.is_dir())),
    }
}

/// The directory of members, as `serve` chooses it. It may be missing if none was named.
fn members(args: &Doctor, hall: Option<&Path>, config: &Config) -> Result<Option<PathBuf>, Failure> {
    let local = &args.local;
    let is_named = local.members.is_some() || config.members.is_some();
    // Without --hall, ./guild-members belongs to a host without a hall.
    let packages = || local::members_of_hall(None, hall, config).filter(|packages| packages.is_dir());
    if args.hall.is_some() && !is_named {
        return Ok(packages());
    }
    match local::members_directory(local.members.as_deref(), config) {
        Ok(directory) => Ok(Some(directory)),
        Err(failure) if is_named => Err(failure),
        Err(_) => Ok(packages()),
    }
}

fn named(check: &Check) -> String {
    format!("{} {}", check.kind.as_str(), one_line(&check.name, 80))
}

fn write_check(out: &mut dyn Write, check: &Check) -> io::Result<()> {
    let style = match check.state {
        CheckState::Usable => output::state_style(false),
        CheckState::Unusable if check.needed => output::state_style(true),
        CheckState::Unusable | CheckState::Differs => AnsiColor::Yellow.on_default(),
        CheckState::Off => LABEL,
    };
    let (word, kind) = (check.word(), check.kind.as_str());
    let name = one_line(&check.name, 80);
    writeln!(out, "{style}{word:<9}{style:#} {kind:<8} {name:<20} {}", one_line(&check.detail, usize::MAX))
}
