//! Finds the host that already serves a member, and checks that it serves the member as the command line asks.
//!
//! Otherwise the command fails, and its error names the process, its settings for the member, and the remedy.

use std::{
    env,
    io::ErrorKind,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use cap_std::fs::Dir;
use guild_config::{Config, Runtime, VARIABLE};
use guild_contract::MemberKey;
use guild_roster::{
    check::planned_host::PlannedHost,
    discovery::FoundMember,
    jobs::files::{Note, Owner},
    resources::serving_options::{Part, Serving},
};

use crate::{
    failure::Failure,
    local::LocalArgs,
    output::{harmless, tell},
};

/// How long a new owner may take to publish its settings for a member.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval of checks for these settings.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What a command line requires of the host that runs a member's jobs.
pub(crate) struct Terms {
    /// The host that the command itself would be; `None` if nothing is required.
    planned: Option<PlannedHost>,
    /// The parts in which another host has to agree with it.
    parts: Vec<Part>,
    /// Whether the environment names a `guild.toml`. A host with another one is reported.
    variable: bool,
}

/// A host that satisfied the terms, with the settings that it had published then.
pub(crate) struct VerifiedHost {
    member: Dir,
    note: Note<Serving>,
}

impl VerifiedHost {
    /// Whether the same process still serves the member in the same way.
    pub(crate) fn is_unchanged(&self) -> bool {
        Note::last(&self.member).is_ok_and(|last| last.as_ref() == Some(&self.note))
    }
}

impl Terms {
    /// The terms that the options set. `agent` is for commands that cannot request a runtime with the task.
    ///
    /// # Errors
    ///
    /// Returns an error when a read root cannot be opened.
    pub(crate) fn new(
        local: &LocalArgs,
        sources: &[PathBuf],
        agent: Option<Runtime>,
        config: &Config,
    ) -> Result<Self, Failure> {
        let options = [
            (Part::Roots, !sources.is_empty()),
            (Part::Agent, agent.is_some()),
            (Part::Config, local.policy.config.is_some()),
            (Part::Members, local.members.is_some()),
        ];
        let parts: Vec<Part> = options.into_iter().filter_map(|(part, is_set)| is_set.then_some(part)).collect();
        let variable = local.policy.config.is_none() && env::var_os(VARIABLE).is_some_and(|value| !value.is_empty());
        if parts.is_empty() && !variable {
            return Ok(Self { planned: None, parts, variable });
        }
        let members = local.members.clone().or_else(|| config.members.clone());
        let planned = match PlannedHost::new(&Config { members, ..config.clone() }, sources.to_vec(), agent) {
            Ok(planned) => Some(planned),
            Err(_) if parts.is_empty() => None,
            Err(error) => return Err(Failure::error(error.to_string())),
        };
        Ok(Self { planned, parts, variable })
    }

    /// Checks that the owner of a member satisfies the terms; `None` if there are none. It blocks while a new owner has
    /// not yet published how it serves the member.
    ///
    /// # Errors
    ///
    /// Returns an error when the owner does not satisfy the terms.
    pub(crate) fn check(&self, member: &FoundMember, owner: &Owner) -> Result<Option<VerifiedHost>, Failure> {
        let Some(planned) = &self.planned else { return Ok(None) };
        let has_toolboxes = member.manifest.component.as_ref().is_some_and(|spec| !spec.toolboxes.is_empty());
        // Once the member is found, the directory of members only matters for its toolboxes.
        let is_required = |part: &Part| self.parts.contains(part) && (*part != Part::Members || has_toolboxes);
        if !self.parts.iter().any(is_required) && !self.variable {
            return Ok(None);
        }
        let refused = |why: &str| Failure::error(refusal(&member.key, owner, why));
        let serving = match published(&member.dir, owner) {
            Ok(serving) => serving,
            Err(why) if self.parts.iter().any(is_required) => return Err(refused(&why)),
            Err(_) => return Ok(None),
        };
        let planned = planned.serve(member).map_err(|why| Failure::error(format!("member {}: {why}", member.key)))?;
        let differences = serving.differences(&planned);
        let (others, rest): (Vec<_>, Vec<_>) = differences.into_iter().partition(|(part, _)| is_required(part));
        if !others.is_empty() {
            let others: Vec<String> = others.into_iter().map(|(_, text)| text).collect();
            return Err(refused(&others.join("; ")));
        }
        let is_named = self.variable || self.parts.contains(&Part::Config);
        for (_, text) in rest.iter().filter(|(part, _)| is_named && matches!(part, Part::Config | Part::ConfigText)) {
            tell(harmless(&format!("process {} serves {}: {text}", owner.pid, member.key)));
        }
        let member = member.dir.try_clone().map_err(|e| Failure::error(e.to_string()))?;
        Ok(Some(VerifiedHost { member, note: Note { pid: owner.pid, started: owner.started, serving } }))
    }
}

/// The published settings with which the owner serves the member.
fn published(member: &Dir, owner: &Owner) -> Result<Serving, String> {
    let until = Instant::now() + PUBLISH_TIMEOUT;
    loop {
        match owner.note::<Serving>(member) {
            Ok(Some(serving)) => return Ok(serving),
            Ok(None) if Instant::now() < until && owner.is_alive() => thread::sleep(POLL_INTERVAL),
            Ok(None) => return Err("it does not publish its settings".to_owned()),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                return Err("it belongs to another user, and publishes its settings only to that user".to_owned());
            }
            Err(e) => return Err(format!("its settings cannot be read: {e}")),
        }
    }
}

fn refusal(key: &MemberKey, owner: &Owner, why: &str) -> String {
    let Owner { pid, url, .. } = owner;
    // The process id in the file may meanwhile belong to another process.
    let (who, end) = match owner.is_alive() {
        true => (format!("process {pid} serves {key} at {url}"), format!("End that process (`kill {pid}`)")),
        false => (format!("a process that is not named in its .owner serves {key}"), "End that process".to_owned()),
    };
    let text = format!(
        "{who}, but not with the requested options: {why}. {end} and try again; or omit the option to use the settings \
         of that process; or copy the member's directory, and name the copy"
    );
    harmless(&text).into_owned()
}
