//! Shell completion and man pages, made from the definition of the command line.
//!
//! Shells complete members and jobs from the directory of members, and projects, commissions and meetings from the
//! hall's home.
//!
//! The shell's script starts `guild` with the present command line. Read errors result in no candidates, since there is
//! nowhere to report them.

use std::{
    cmp::Reverse,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use clap::Command;
use clap_complete::{
    CompleteEnv, PathCompleter, Shell,
    engine::{CompletionCandidate, ValueCompleter},
    env::Shells,
};
use guild_contract::{JobStatus, Limits};
use guild_hall::{commission::Commission, list_commissions, list_meetings, list_projects, meeting::Meeting};
use guild_roster::{
    discovery::FoundMember,
    jobs::files::{OfflineJobs, made_at},
};

use crate::{
    failure::Failure,
    local::{self, PolicyArgs},
    output::{one_line, print},
};

/// The word for the newest job, in place of an id.
pub(crate) const LATEST: &str = "@latest";
/// The variable with which a shell's script requests candidates.
const COMPLETE_VARIABLE: &str = "GUILD_COMPLETE";
/// The maximum number of jobs, commissions or meetings that are offered.
const MAX_CANDIDATES: usize = 100;
/// The maximum length of the description of a job or a member.
const DESCRIPTION_CHARS: usize = 80;

/// Answers a shell's request for candidates and exits, if there is one.
pub(crate) fn answer_if_asked(command: fn() -> Command) {
    CompleteEnv::with_factory(command).var(COMPLETE_VARIABLE).complete();
}

/// `guild completions`: the script that requests candidates from `guild` itself.
pub(crate) fn script(shell: Shell) -> Result<(), Failure> {
    let shells = Shells::builtins();
    let name = shell.to_string();
    let Some(completer) = shells.completer(&name) else {
        return Err(Failure::error(format!("there is no completion script for {name}")));
    };
    let mut script = Vec::new();
    completer.write_registration(COMPLETE_VARIABLE, "guild", "guild", "guild", &mut script)?;
    Ok(print(|out| out.write_all(&script))?)
}

/// Writes a man page of each command of `guild` into a directory.
pub(crate) fn man_pages(guild: Command, directory: &Path) -> Result<(), Failure> {
    let written = clap_mangen::generate_to(guild, directory);
    written.map_err(|e| Failure::error(format!("{}: {e}", directory.display())))
}

/// The keys of members.
pub(crate) fn members() -> Vec<CompletionCandidate> {
    let candidate = |member: FoundMember| {
        let about = one_line(&member.manifest.description, DESCRIPTION_CHARS);
        CompletionCandidate::new(member.key.as_str()).help(Some(about.into()))
    };
    found().into_iter().map(candidate).collect()
}

/// The names of the projects in the hall's home.
pub(crate) fn projects() -> Vec<CompletionCandidate> {
    let projects = hall_home().and_then(|home| list_projects(&home, &[]).ok()).unwrap_or_default();
    projects.into_iter().map(|project| CompletionCandidate::new(project.name).help(Some(project.path.into()))).collect()
}

/// The newest commissions in the hall's home, with their titles.
pub(crate) fn commissions() -> Vec<CompletionCandidate> {
    let mut all = hall_home().and_then(|home| list_commissions(&home).ok()).unwrap_or_default();
    all.sort_by_cached_key(|one| Reverse(one.created().to_owned()));
    let candidate = |one: &Commission| {
        let about = one_line(&format!("{}: {}", one.status, one.record.title), DESCRIPTION_CHARS);
        CompletionCandidate::new(one.commission_id.as_str()).help(Some(about.into()))
    };
    all.iter().take(MAX_CANDIDATES).map(candidate).collect()
}

/// The newest meetings in the hall's home, with their titles.
pub(crate) fn meetings() -> Vec<CompletionCandidate> {
    let mut all = hall_home().and_then(|home| list_meetings(&home).ok()).unwrap_or_default();
    all.sort_by_cached_key(|one| Reverse((one.record.date.clone(), one.meeting_id.to_string())));
    let candidate = |one: &Meeting| {
        let about = one_line(&format!("{}: {}", one.status, one.record.title), DESCRIPTION_CHARS);
        CompletionCandidate::new(one.meeting_id.as_str()).help(Some(about.into()))
    };
    all.iter().take(MAX_CANDIDATES).map(candidate).collect()
}

/// The statuses of ended jobs.
pub(crate) fn ended() -> Vec<CompletionCandidate> {
    JobStatus::ENDED.map(|status| status.as_str().into()).into()
}

/// The newest jobs, with their descriptions.
pub(crate) fn jobs() -> Vec<CompletionCandidate> {
    let limits = Limits::default();
    let members = found().into_iter().filter_map(|member| OfflineJobs::open(member.dir).ok());
    let members: Vec<OfflineJobs> = members.collect();
    let ids_of = |jobs| OfflineJobs::ids(jobs).unwrap_or_default().into_iter().map(move |id| (made_at(&id), id, jobs));
    let mut ids: Vec<_> = members.iter().flat_map(ids_of).collect();
    ids.sort_by_key(|(made, ..)| Reverse(*made));
    let newest = ids.into_iter().take(MAX_CANDIDATES).map(|(_, id, jobs)| {
        let meta = jobs.meta(&id, &limits).ok();
        let about = meta.map(|meta| one_line(&format!("{}: {}", meta.status, meta.description), DESCRIPTION_CHARS));
        CompletionCandidate::new(id.as_str()).help(about.map(Into::into))
    });
    newest.chain([CompletionCandidate::new(LATEST).help(Some("the newest job".into()))]).collect()
}

/// A member: its key, or its directory.
pub(crate) fn member_or_directory(current: &OsStr) -> Vec<CompletionCandidate> {
    member_or(PathCompleter::dir(), current)
}

/// A member, or the file of a component.
pub(crate) fn member_or_file(current: &OsStr) -> Vec<CompletionCandidate> {
    member_or(PathCompleter::any(), current)
}

fn member_or(paths: PathCompleter, current: &OsStr) -> Vec<CompletionCandidate> {
    let begins =
        |member: &CompletionCandidate| member.get_value().as_encoded_bytes().starts_with(current.as_encoded_bytes());
    members().into_iter().filter(begins).chain(paths.complete(current)).collect()
}

/// The hall's home that the command line names, or else the default one.
fn hall_home() -> Option<PathBuf> {
    let line: Vec<OsString> = std::env::args_os().collect();
    let policy = PolicyArgs { config: option(&line, "--config") };
    local::config(&policy).ok()?.hall_home(option(&line, "--home").as_deref())
}

/// The members of the directory that the command line names, or else of the default one.
fn found() -> Vec<FoundMember> {
    let line: Vec<OsString> = std::env::args_os().collect();
    let policy = PolicyArgs { config: option(&line, "--config") };
    let found = local::config(&policy)
        .and_then(|config| local::members_directory(option(&line, "--members").as_deref(), &config))
        .and_then(|directory| local::discovered(&directory));
    found.unwrap_or_default().into_iter().filter_map(|found| found.member.ok()).collect()
}

/// The last value of an option on the command line, as `--name VALUE` or `--name=VALUE`.
fn option(line: &[OsString], name: &str) -> Option<PathBuf> {
    let spaced = line.windows(2).filter_map(|pair| match pair {
        [option, value] if option == name => Some(value.as_os_str()),
        _ => None,
    });
    let joined = line.iter().filter_map(|word| {
        let value = word.to_str()?.strip_prefix(name)?.strip_prefix('=')?;
        Some(OsStr::new(value))
    });
    spaced.chain(joined).last().map(Path::new).map(Path::to_owned)
}
