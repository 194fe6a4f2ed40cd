//! `guild approve`: shows how a member has changed, and pins its present state as trusted.

use std::{
    io::{self, BufRead as _, IsTerminal as _, Write},
    path::Path,
};

use guild_config::Config;
use guild_roster::{
    check::members::survey_one,
    discovery::{FoundMember, granted::Granted},
    jobs::files::Owner,
    resources::serving_options::Serving,
};
use guild_trust::{Approval, Difference, FILE, How, Pin, Probed, Refused, Signature, Standing, Trusted, by_user};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    args::members::Approve,
    audit::first_screen,
    failure::Failure,
    local,
    members::rehearse::rehearse,
    output::{
        BAD, LABEL, harmless, one_line, print, print_json,
        progress::Progress,
        table::{Cell, Column, Table},
        tell,
    },
};

/// A pin in the output of `--list --json`.
#[derive(Serialize)]
struct Listed<'a> {
    directory: &'a str,
    /// Whether the directory still exists.
    exists: bool,
    #[serde(flatten)]
    pin: &'a Pin,
}

/// `guild approve`.
pub(crate) fn approve(args: &Approve) -> Result<(), Failure> {
    let config = local::config(&args.local.policy)?;
    let approval = Approval::new(&config);
    match &args.member {
        None => list(&approval, args.json),
        Some(member) if args.forget => forget(&approval, member),
        Some(member) => {
            let directory = match local::member_directory(member, &args.local, &config) {
                Ok(directory) => directory,
                // A pinned member can also be named by its name in guild.lock.
                Err(unknown) => match pinned(&approval, member)?.as_slice() {
                    [directory] => directory.into(),
                    _ => return Err(unknown),
                },
            };
            let found = local::member(&directory, &args.local, &config).map_err(Failure::error)?;
            let screen = || first_screen(&directory.display().to_string(), &args.local, &config);
            let rehearse = || match args.rehearse {
                None => Ok(()),
                Some(jobs) => {
                    let found = local::member(&directory, &args.local, &config).map_err(Failure::error)?;
                    rehearse(found, config.clone(), usize::try_from(jobs).unwrap_or(usize::MAX))
                }
            };
            approve_member(&approval, found, &config, args.yes, screen, rehearse)
        }
    }
}

fn approve_member(
    approval: &Approval,
    found: FoundMember,
    config: &Config,
    yes: bool,
    screen: impl FnOnce() -> Result<String, Failure>,
    rehearse: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(spec) = &found.manifest.component else {
        return Err(Failure::error(format!("member {} has no `component`: its own process serves it", found.key)));
    };
    let granted = Granted::of(&found, spec, config, approval).map_err(Failure::error)?;
    let max = granted.limits.limits.component_bytes;
    // The state that is shown must be the state that is approved.
    let (_, before) = approval.look(&found.key, &found.dir, spec, max)?;
    let screen = screen()?;
    let name = before.trusted.pin().map_or(found.key.as_str(), |pin| &pin.name).to_owned();
    print(|out| {
        writeln!(out, "{screen}")?;
        write_standing(out, &name, &before)
    })?;
    approval.check_signature(&before)?;
    approval.check_probe(&before)?;
    rehearse()?;
    let (_, standing) = approval.look(&found.key, &found.dir, spec, max)?;
    let digests = |pin: &Pin| (pin.sha256.clone(), pin.manifest.clone(), pin.posture.clone());
    if digests(&before.presented) != digests(&standing.presented) {
        return Err(Failure::error(format!("{} changed during the check; run the command again", found.key)));
    }
    let is_pinned = matches!(standing.trusted, Trusted::Pinned(_));
    if matches!(&standing.trusted, Trusted::Pinned(pin) if pin.how == How::Approved) && standing.difference.is_empty() {
        tell(format_args!("the present state of {name} is already approved"));
        return check_loads(found, config, &name);
    }
    let confirmed =
        if yes { Ok(true) } else { is_confirmed(&format!("Approve {name}?"), &format!("{name} was not approved")) };
    if !matches!(confirmed, Ok(true)) {
        approval.refused(&standing);
        return confirmed.and(Err(Failure::error(format!("{name} was not approved"))));
    }
    if !is_pinned {
        let is_change = matches!(standing.trusted, Trusted::Changed(_));
        let ended = guild_roster::end_before_approval(&found.dir, &config.limits, is_change);
        ended.map_err(|why| Failure::error(format!("{name} was not approved: {why}")))?;
    }
    approval.approve(&standing, None, by_user())?;
    let file = approval.file().unwrap_or_default();
    tell(format_args!("approved {name} in {}", harmless(&file.display().to_string())));
    let gains = standing.trusted.pin().is_some_and(|pin| pin.base != standing.presented.base);
    if !is_pinned || gains {
        tell(next_load(approval, &found));
    }
    check_loads(found, config, &name)
}

/// Checks that the approved member can be served. This is only done after the approval, since an untrusted component is
/// neither compiled nor run.
pub(crate) fn check_loads(found: FoundMember, config: &Config, name: &str) -> Result<(), Failure> {
    let progress = Progress::start();
    let surveyed = survey_one(found, config, &|what| progress.compiling(what));
    drop(progress);
    surveyed.state.map(drop).map_err(|why| {
        Failure::error(format!(
            "{name} is approved, but its component does not load, so no host serves it: {}",
            harmless(&why)
        ))
    })
}

/// The time at which a host serves the approved state.
pub(crate) fn next_load(approval: &Approval, found: &FoundMember) -> String {
    let owner = Owner::of(&found.dir).ok().flatten();
    let Some(owner) = owner.filter(|owner| !owner.url.is_empty()) else {
        return "no host serves it; the next host that serves it loads it, and so does `guild run`".to_owned();
    };
    let (pid, url) = (owner.pid, harmless(&owner.url));
    let directory = approval.file().and_then(|file| file.parent()?.canonicalize().ok());
    let other = owner.note::<Serving>(&found.dir).ok().flatten().filter(|host| host.lock_directory != directory);
    if let Some(host) = other {
        let has = host.lock_directory.map_or_else(
            || "has no guild.lock".to_owned(),
            |directory| format!("reads {}", directory.join(FILE).display()),
        );
        return format!(
            "process {pid}, which serves it at {url}, {}: the process does not see this approval; approve the member \
             with the guild.toml that the process was started with",
            harmless(&has)
        );
    }
    // A host of a directory watches guild.lock; a host of one member reads it once.
    if owner.url.contains("/members/") {
        format!(
            "process {pid} serves the directory of members at {url}, and loads the member at once; `guild members \
             --url` with that address shows whether the member is in service"
        )
    } else {
        // The process id in the file may meanwhile belong to another process.
        let kill = if owner.is_alive() { format!(" (`kill {pid}`)") } else { String::new() };
        format!(
            "process {pid} serves only this member at {url}, and loads it at its next start: end the process{kill}, \
             and start it again"
        )
    }
}

/// Writes the changes that are about to be approved.
pub(crate) fn write_standing(out: &mut dyn Write, name: &str, standing: &Standing) -> io::Result<()> {
    let mut row =
        |label: &str, value: &str| writeln!(out, "{LABEL}{label:<10}{LABEL:#} {}", one_line(value, usize::MAX));
    row("member", name)?;
    row("directory", &standing.directory)?;
    let pinned = |pin: &Pin| format!("{}, {}", pin.how.as_str(), pin.since);
    let is_same = standing.difference.is_empty();
    match &standing.trusted {
        Trusted::Changed(pin) => row("pinned", &format!("{}; changed since", pinned(pin)))?,
        Trusted::Pinned(pin) if is_same => row("pinned", &format!("{}; unchanged", pinned(pin)))?,
        Trusted::Pinned(pin) if pin.base != standing.presented.base => {
            row("pinned", &format!("{}; unchanged, and this host gives its sessions more", pinned(pin)))?;
        }
        Trusted::Pinned(pin) => row("pinned", &format!("{}; unchanged, and signed since", pinned(pin)))?,
        Trusted::Copy(other) => row("pinned", &format!("not this directory; it is a copy of {other}"))?,
        Trusted::New => row("pinned", "never; the whole member is new")?,
    }
    row("signature", &signature(&standing.signature))?;
    row("probe", &probe(&standing.presented))?;
    write_difference(out, &standing.difference)
}

/// The findings of the last probe of these files, on one line.
fn probe(files: &Pin) -> String {
    let Some(Probed { at, found, .. }) = Probed::of(files) else {
        return "never; `guild probe` shows what it does where nothing can leave".to_owned();
    };
    let counts = found.kinds().into_iter().filter(|(.., number)| *number > 0);
    let counts = counts.map(|(_, what, number)| format!("{number} {what}"));
    let counts = counts.collect::<Vec<_>>().join(", ");
    let obedient = if found.obedient { ", with an obedient model" } else { "" };
    format!("{at}{obedient}: {}", if counts.is_empty() { "nothing found" } else { &counts })
}

/// A description of a signature on one line.
fn signature(signature: &Signature) -> String {
    match signature {
        Signature::None => "none".to_owned(),
        Signature::Good { key, name, comment, whole } => {
            let of = if *whole { "component, manifest and posture" } else { "the component alone" };
            format!("good, of {of}, by {name} ({key}): {comment}")
        }
        Signature::Unknown => "by a key that guild.trust does not have".to_owned(),
        Signature::Bad { why } => format!("bad: {why}"),
    }
}

fn write_difference(out: &mut dyn Write, difference: &Difference) -> io::Result<()> {
    difference.lines().try_for_each(|line| {
        let style = if line.starts_with('+') { anstyle::AnsiColor::Green.on_default() } else { BAD };
        writeln!(out, "{style}{line}{style:#}")
    })
}

/// Asks for confirmation on the terminal. `undone` says what is not done without an answer.
pub(crate) fn is_confirmed(question: &str, undone: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::error(format!(
            "{undone}: there is no terminal to ask on; --yes accepts the state that is shown above"
        )));
    }
    let mut err = io::stderr();
    let mut answer = String::new();
    // If stderr is closed, the question is not shown, and no answer is accepted.
    let asked = write!(err, "{question} [y/N] ").and_then(|()| err.flush());
    asked.and_then(|()| io::stdin().lock().read_line(&mut answer)).map_err(|e| Failure::error(e.to_string()))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// `--list`.
fn list(approval: &Approval, json: bool) -> Result<(), Failure> {
    let lock = approval.lock().map_err(Refused::from)?;
    let pins = lock.pins.iter().map(|(directory, pin)| {
        let exists = Path::new(directory).is_dir();
        Listed { directory, exists, pin }
    });
    let pins: Vec<_> = pins.collect();
    if json {
        print_json(&pins)?;
    } else if pins.is_empty() {
        let file = approval.file().unwrap_or_default();
        tell(format_args!("no member is pinned in {}", harmless(&file.display().to_string())));
    } else {
        table(&pins).print()?;
    }
    Ok(())
}

fn table(pins: &[Listed<'_>]) -> Table {
    let mut table = Table::new(["MEMBER", "PINNED BY", "SINCE", "SHA-256", "SIGNED", "DIRECTORY"].map(Column::Left));
    for Listed { directory, exists, pin } in pins {
        let hash: String = pin.sha256.chars().take(12).collect();
        let gone = if *exists { "" } else { " (gone)" };
        let cells = [
            Cell::text(&pin.name),
            Cell::text(pin.how.as_str()),
            Cell::age(Some(pin.since), Timestamp::now()),
            Cell::both(one_line(&hash, 12), one_line(&pin.sha256, 64)),
            Cell::text(if pin.key.is_some() { "signed" } else { "" }),
            Cell::text(&format!("{directory}{gone}")),
        ];
        table.row(cells, None);
    }
    table
}

/// `--forget`.
fn forget(approval: &Approval, member: &str) -> Result<(), Failure> {
    let path = Path::new(member).canonicalize().ok().and_then(|path| path.into_os_string().into_string().ok());
    let lock = approval.lock().map_err(Refused::from)?;
    let itself = [Some(member.to_owned()), path].into_iter().flatten().find(|path| lock.pins.contains_key(path));
    let found = itself.map_or_else(|| pinned(approval, member), |path| Ok(vec![path]))?;
    let file = approval.file().unwrap_or_default();
    let file = file.display();
    match found.as_slice() {
        [directory] => {
            approval.forget(directory)?;
            tell(format_args!("forgot {} in {file}", one_line(directory, usize::MAX)));
            Ok(())
        }
        [] => Err(Failure::error(format!("{file} has no pin of {member}; `guild approve --list` shows them"))),
        several => {
            Err(Failure::error(format!("{member} is pinned more than once; name one of {}", several.join(", "))))
        }
    }
}

/// The directories of the pins with that name.
fn pinned(approval: &Approval, name: &str) -> Result<Vec<String>, Failure> {
    let lock = approval.lock().map_err(Refused::from)?;
    let named = lock.pins.iter().filter(|(_, pin)| pin.name == name);
    Ok(named.map(|(directory, _)| directory.clone()).collect())
}

impl From<Refused> for Failure {
    fn from(why: Refused) -> Self {
        Self::error(harmless(&why.to_string()))
    }
}
