//! Checks running hosts: their members, and their differences from a host that would be started now.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use guild_client::{MemberReport, MemberService, Options, Url};
use guild_config::Config;
use guild_contract::host::{Check, CheckKind as Kind};
use guild_roster::{check::planned_host::PlannedHost, jobs::files::Owner, resources::serving_options::Serving};
use tokio::task::spawn_blocking;

use crate::{args::operator::Doctor, failure::Failure, local};

/// The timeout of a host's answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A running host.
struct Running {
    name: String,
    /// One of its endpoints.
    url: String,
    /// The published settings with which it serves the local members.
    serving: Vec<Serving>,
    /// How a host that is started now would differ.
    differences: BTreeSet<String>,
}

/// Checks the hosts that serve local members, and the host that `--url` names.
pub(super) async fn check(args: &Doctor, members: Option<&Path>, config: &Config) -> Result<Vec<Check>, Failure> {
    let mut running = match members {
        Some(members) => {
            let (members, config) = (members.to_owned(), config.clone());
            // Another check reports read roots that cannot be opened.
            let would = PlannedHost::new(&config, args.session.sources.clone(), args.session.agent).ok();
            spawn_blocking(move || found(&members, would.as_ref()))
                .await
                .map_err(|e| Failure::error(e.to_string()))??
        }
        None => Vec::new(),
    };
    let origin = |url: &str| url.parse().ok().map(|url: Url| url.origin().ascii_serialization());
    if let Some(url) = &args.url
        && !running.iter().any(|running| origin(&running.url) == origin(url))
    {
        let (name, url) = (url.clone(), url.clone());
        running.push(Running { name, url, serving: Vec::new(), differences: BTreeSet::new() });
    }
    let mut checks = Vec::new();
    for Running { name, url, serving, differences } in running {
        let options = args.access.options_of_owner(&url, args.url.as_deref())?;
        let answer = guild_client::members(&url, &Options { timeout: TIMEOUT, ..options }).await;
        let state = match answer {
            Ok(reply) => state(&url, &reply.value, &serving),
            Err(error) => {
                Err(format!("it does not list its members: {}", Failure::from(error).message.unwrap_or_default()))
            }
        };
        checks.push(Check::new(Kind::Host, &name, true, state));
        if !differences.is_empty() {
            let differences: Vec<String> = differences.into_iter().collect();
            let text = format!("it would differ if it were started now: {}", differences.join("; "));
            checks.push(Check::differs(Kind::Host, &name, text));
        }
    }
    Ok(checks)
}

/// Finds the hosts that serve members of a directory. It blocks.
fn found(members: &Path, would: Option<&PlannedHost>) -> Result<Vec<Running>, Failure> {
    let mut running: BTreeMap<u32, Running> = BTreeMap::new();
    for member in local::discovered(members)?.into_iter().filter_map(|found| found.member.ok()) {
        let Some(owner) = Owner::of(&member.dir).ok().flatten().filter(|owner| !owner.url.is_empty()) else { continue };
        let host = running.entry(owner.pid).or_insert_with(|| Running {
            name: format!("process {}", owner.pid),
            url: owner.url.clone(),
            serving: Vec::new(),
            differences: BTreeSet::new(),
        });
        let Some(serving) = owner.note::<Serving>(&member.dir).ok().flatten() else { continue };
        if let Some(Ok(would)) = would.map(|would| would.serve(&member)) {
            // A host of one member only has a directory of members if it needs one.
            let would = Serving { members: serving.members.clone(), ..would };
            let texts = serving.differences(&would).into_iter();
            host.differences.extend(texts.map(|(_, text)| format!("{}: {text}", member.key)));
        }
        host.serving.push(serving);
    }
    Ok(running.into_values().collect())
}

/// A description of a host; an error if one of its members is not in service.
fn state(url: &str, members: &[MemberReport], serving: &[Serving]) -> Result<String, String> {
    let is_out = members.iter().any(|member| member.state == MemberService::Error);
    let members: Vec<String> = members.iter().map(service).collect();
    let mut text =
        format!("at {url}; serves {}", if members.is_empty() { "no member".to_owned() } else { members.join(", ") });
    if !serving.is_empty() {
        let roots = serving.iter().flat_map(|serving| &serving.roots);
        let roots: BTreeSet<String> = roots.map(|root| format!("{} ({})", root.name, root.path.display())).collect();
        let agents: BTreeSet<&str> = serving.iter().map(|serving| serving.agent.as_str()).collect();
        let files: BTreeSet<String> =
            serving.iter().flat_map(|serving| &serving.config).map(|file| file.display().to_string()).collect();
        let listed = |list: BTreeSet<String>, none: &str| match list.is_empty() {
            true => none.to_owned(),
            false => list.into_iter().collect::<Vec<_>>().join(", "),
        };
        text.push_str(&format!(
            "; reads {}; sessions on {}; guild.toml: {}",
            listed(roots, "no directory"),
            agents.into_iter().collect::<Vec<_>>().join(", "),
            listed(files, "none"),
        ));
    }
    if is_out { Err(text) } else { Ok(text) }
}

/// A member and its state at its host.
fn service(member: &MemberReport) -> String {
    let MemberReport { member, state, error, .. } = member;
    match error {
        Some(why) if *state == MemberService::Ready => format!("{member} (ready; a change is not in service: {why})"),
        Some(why) => format!("{member} ({}: {why})", state.as_str()),
        None => format!("{member} ({})", state.as_str()),
    }
}
