//! What the shell completes besides words of the command line: members and jobs, read from the directory of members.
//!
//! The shell's script starts `guild` with the line as it stands. What cannot be read completes to nothing: there is nobody
//! to tell.

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
use guild_roster::{
    discovery::FoundMember,
    offline::{OfflineJobs, made_at},
};

use crate::{
    failure::Failure,
    local::{self, PolicyArgs},
    output::{one_line, print},
};

/// The word for the job that was made last, in place of an id.
pub(crate) const LATEST: &str = "@latest";
/// The variable by which a shell's script asks.
const VARIABLE: &str = "GUILD_COMPLETE";
/// More jobs are not offered: nobody chooses among them.
const JOBS: usize = 100;
/// Characters of a job's description, or a member's, that are shown.
const DESCRIPTION_CHARS: usize = 80;

/// Answers a shell that asks, and ends the process then.
pub(crate) fn answer_if_asked(command: fn() -> Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// `guild completions`: the script that asks `guild` itself.
pub(crate) fn script(shell: Shell) -> Result<(), Failure> {
    let shells = Shells::builtins();
    let name = shell.to_string();
    let Some(completer) = shells.completer(&name) else {
        return Err(Failure::error(format!("there is no completion script for {name}")));
    };
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "guild", "guild", "guild", &mut script)?;
    Ok(print(|out| out.write_all(&script))?)
}

/// The keys of members.
pub(crate) fn members() -> Vec<CompletionCandidate> {
    let candidate = |member: FoundMember| {
        let about = one_line(&member.manifest.description, DESCRIPTION_CHARS);
        CompletionCandidate::new(member.key.as_str()).help(Some(about.into()))
    };
    found().into_iter().map(candidate).collect()
}

/// How jobs end.
pub(crate) fn ended() -> Vec<CompletionCandidate> {
    [JobStatus::Completed, JobStatus::Failed, JobStatus::Cancelled].map(|status| status.as_str().into()).into()
}

/// The newest jobs, with what they are about.
pub(crate) fn jobs() -> Vec<CompletionCandidate> {
    let limits = Limits::default();
    let members: Vec<OfflineJobs> =
        found().into_iter().filter_map(|member| OfflineJobs::open(member.dir).ok()).collect();
    let ids = members.iter().flat_map(|jobs| {
        let ids = jobs.ids().unwrap_or_default();
        ids.into_iter().map(move |id| (made_at(&id), id, jobs))
    });
    let mut ids: Vec<_> = ids.collect();
    ids.sort_by_key(|(made, ..)| Reverse(*made));
    let newest = ids.into_iter().take(JOBS).map(|(_, id, jobs)| {
        let about = jobs
            .meta(&id, &limits)
            .ok()
            .map(|meta| one_line(&format!("{}: {}", meta.status, meta.description), DESCRIPTION_CHARS));
        CompletionCandidate::new(id.as_str()).help(about.map(Into::into))
    });
    newest.chain([CompletionCandidate::new(LATEST).help(Some("the newest job".into()))]).collect()
}

/// A member: its key, or its directory.
pub(crate) fn member_or_directory(current: &OsStr) -> Vec<CompletionCandidate> {
    member_or(PathCompleter::dir(), current)
}

/// A member, or a component's file.
pub(crate) fn member_or_file(current: &OsStr) -> Vec<CompletionCandidate> {
    member_or(PathCompleter::any(), current)
}

fn member_or(paths: PathCompleter, current: &OsStr) -> Vec<CompletionCandidate> {
    let begins =
        |member: &CompletionCandidate| member.get_value().as_encoded_bytes().starts_with(current.as_encoded_bytes());
    members().into_iter().filter(begins).chain(paths.complete(current)).collect()
}

/// The members of the directory that the line names, or that a command without `--members` takes.
fn found() -> Vec<FoundMember> {
    let line: Vec<OsString> = std::env::args_os().collect();
    let policy = PolicyArgs { config: option(&line, "--config").into_iter().collect() };
    let found = local::config(&policy)
        .and_then(|config| local::members_directory(option(&line, "--members").as_deref(), &config))
        .and_then(|directory| local::discovered(&directory));
    found.unwrap_or_default().into_iter().filter_map(|found| found.member.ok()).collect()
}

/// The last value of an option of the line, in whichever of its two forms.
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
