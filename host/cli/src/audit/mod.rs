//! `guild audit`: reports the abilities of a component without running it.
//!
//! The facts that `--fail-on` names decide the exit code; all formats show the same [`Audit`].

mod difference;
mod html;
mod rows;
mod sarif;
mod subject;
mod text;

use std::{
    collections::BTreeSet,
    fs::File,
    io::{ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use guild_audit::{Audit, Difference, Fact, Trusted, model::FORMAT};
use guild_config::Config;
use guild_roster::discovery::FoundMember;
use serde::Serialize;

use crate::{
    args::members::{Audit as Args, AuditFormat, FailOn},
    failure::{Failure, exit},
    local,
    output::{escaped_json, print},
};
use subject::Subject;

/// The maximum size of a file that is read: more than any sensible limit of a component.
const MAX_BYTES: u64 = 512 * 1024 * 1024;
/// The maximum size of a saved audit that is read: more than this command writes.
const MAX_SAVED_BYTES: usize = 16 * 1024 * 1024;

/// A FIFO in place of a file is opened without waiting for a writer, and then refused.
const NO_WAIT: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// `guild audit`.
pub(crate) fn audit(args: &Args) -> Result<(), Failure> {
    let config = local::config(&args.local.policy).map_err(unreadable)?;
    let mut subject = Subject::find(&args.target, &args.local, &config, args.manages())?;
    if args.list_tools {
        subject = subject.with_tools(&config)?;
    }
    let whole = args.texts.as_deref().filter(|place| !place.is_empty());
    let format = if args.json { AuditFormat::Json } else { args.format };
    let (audit, shown, facts) = match &args.against {
        None => {
            let audit = subject.audit(None, whole);
            (audit.clone(), shown(&audit, format, args)?, audit.facts)
        }
        Some(old) => {
            let old = old_audit(old, args, &subject, &config)?;
            let audit = subject.audit(Some(&Trusted::of(&old)), whole);
            let difference = Difference::between(&old, &audit);
            let shown = difference::shown(&old, &audit, &difference, format, args.all)?;
            (audit, shown, difference.new_facts)
        }
    };
    let names = |on: &FailOn, fact: &Fact| match on {
        FailOn::Refused => fact.refused,
        FailOn::Name(name) => fact.name == *name,
    };
    let has = facts.iter().any(|fact| args.fail_on.iter().any(|on| names(on, fact)));
    let code = match (audit.is_readable(), has) {
        (false, _) => Some(exit::CANNOT_READ),
        (true, true) => Some(exit::FINDINGS),
        (true, false) => None,
    };
    // The verdict holds even if its reader stops early. An audit that could not be written is a failure.
    match print(|out| out.write_all(shown.as_bytes())) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(fail(format!("cannot write to stdout: {error}"))),
        _ => code.map_or(Ok(()), |code| Err(Failure::code(code))),
    }
}

/// The first screen of `guild audit` for a member.
pub(crate) fn first_screen(member: &str, local: &local::LocalArgs, config: &Config) -> Result<String, Failure> {
    let mut audit = Subject::find(member, local, config, false)?.audit(None, None);
    // `guild approve` shows the difference itself, below.
    audit.since = None;
    Ok(text::summary(&audit))
}

/// The first screen of `guild audit` for a member that is not in its place yet. `members` are the directories of its
/// neighbours there, and `trusted` is the member that it replaces.
pub(crate) fn first_screen_before(
    directory: &Path,
    found: FoundMember,
    members: &BTreeSet<PathBuf>,
    trusted: Option<&Trusted>,
    config: &Config,
) -> Result<String, Failure> {
    Ok(text::summary(&Subject::of_member(directory, found, members, config)?.audit(trusted, None)))
}

fn shown(audit: &Audit, format: AuditFormat, args: &Args) -> Result<String, Failure> {
    match format {
        AuditFormat::Text => Ok(match &args.texts {
            Some(place) if place.is_empty() => text::summary(audit) + "\n" + &text::texts(audit, place),
            Some(place) => text::texts(audit, place),
            None if args.all => text::audit(audit),
            None => text::summary(audit),
        }),
        AuditFormat::Json => json(audit),
        AuditFormat::Html => Ok(html::audit(audit)),
        AuditFormat::Sarif => json(&sarif::audit(audit)),
    }
}

/// The audit of `--against`: a saved audit, a component's file, or a member. A file is audited as the same member's, so
/// that only the bytes differ.
fn old_audit(old: &str, args: &Args, subject: &Subject, config: &Config) -> Result<Audit, Failure> {
    if !Path::new(old).is_file() {
        return Ok(Subject::find(old, &args.local, config, args.manages())?.audit(None, None));
    }
    let bytes = read_file(old)?;
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Ok(subject.with(old, bytes, config)?.audit(None, None));
    }
    let cannot = |why: String| fail(format!("{old}: {why}"));
    if bytes.len() > MAX_SAVED_BYTES {
        return Err(cannot(format!(
            "a saved audit has at most {MAX_SAVED_BYTES} bytes; compare with the component's file instead"
        )));
    }
    let saved: Audit = serde_json::from_slice(&bytes)
        .map_err(|e| cannot(format!("it is not an audit that `guild audit --format json` wrote: {e}")))?;
    if saved.format != FORMAT {
        return Err(cannot(format!("its format is {:?}, and this version reads {FORMAT:?}", saved.format)));
    }
    Ok(saved)
}

/// Pretty JSON without control characters: those in data from a component become `\u....`.
fn json(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|e| fail(format!("cannot write JSON: {e}")))?;
    Ok(escaped_json(&text).into_owned() + "\n")
}

/// The failure to find or read the subject of an audit.
fn unreadable(failure: Failure) -> Failure {
    Failure { code: exit::CANNOT_READ, ..failure }
}

/// Reads a file that the user named.
fn read_file(path: &str) -> Result<Vec<u8>, Failure> {
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(NO_WAIT).open(path);
    opened.map_err(|e| e.to_string()).and_then(read).map_err(|why| cannot_read(path, &why))
}

/// Reads an open file, if it is regular and not too large.
fn read(file: File) -> Result<Vec<u8>, String> {
    let found = file.metadata().map_err(|e| e.to_string())?;
    if !found.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(found.len().min(MAX_BYTES)).unwrap_or_default());
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("it is larger than {MAX_BYTES} bytes, and no host loads such a component"));
    }
    Ok(bytes)
}

fn cannot_read(path: &str, why: &str) -> Failure {
    fail(format!("cannot read {path}: {why}"))
}

/// The failure without an audit.
fn fail(why: String) -> Failure {
    Failure { code: exit::CANNOT_READ, message: Some(why) }
}
