//! Where another process serves a member already, a command's work is done there. What the command was told itself has to
//! hold there, or it ends, and says which process that is, how it serves the member, and what to do.

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
    discovery::FoundMember,
    offline::{Note, Owner},
    preview::PlannedHost,
    serving::{Part, Serving},
};

use crate::{
    failure::Failure,
    local::LocalArgs,
    output::{harmless, tell},
};

/// How long a host that has just become the owner may take to tell how it serves.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks.
const POLL: Duration = Duration::from_millis(20);

/// What a command was told of how a member's jobs are carried out.
pub(crate) struct Terms {
    /// A host of its own; none where nothing was said.
    would: Option<PlannedHost>,
    /// What of it has to hold at another one.
    parts: Vec<Part>,
    /// Whether the environment names a `guild.toml`: another one is told of.
    variable: bool,
}

/// What a host told when it was found to hold to the terms.
pub(crate) struct Held {
    member: Dir,
    note: Note<Serving>,
}

impl Held {
    /// Whether that is still so: the same process, which serves the member as it did.
    pub(crate) fn is_so(&self) -> bool {
        Note::last(&self.member).is_ok_and(|last| last.as_ref() == Some(&self.note))
    }
}

impl Terms {
    /// What the options say. `agent` is for a command that cannot ask a host for a runtime.
    ///
    /// # Errors
    /// Where a read root cannot be opened.
    pub(crate) fn new(
        local: &LocalArgs,
        sources: &[PathBuf],
        agent: Option<Runtime>,
        config: &Config,
    ) -> Result<Self, Failure> {
        let said = [
            (Part::Roots, !sources.is_empty()),
            (Part::Agent, agent.is_some()),
            (Part::Config, !local.policy.config.is_empty()),
            (Part::Members, local.members.is_some()),
        ];
        let parts: Vec<Part> = said.into_iter().filter_map(|(part, is_said)| is_said.then_some(part)).collect();
        let variable = local.policy.config.is_empty() && env::var_os(VARIABLE).is_some_and(|value| !value.is_empty());
        if parts.is_empty() && !variable {
            return Ok(Self { would: None, parts, variable });
        }
        let members = local.members.clone().or_else(|| config.members.clone());
        let would = match PlannedHost::new(&Config { members, ..config.clone() }, sources.to_vec(), agent) {
            Ok(would) => Some(would),
            Err(_) if parts.is_empty() => None,
            Err(error) => return Err(Failure::error(error.to_string())),
        };
        Ok(Self { would, parts, variable })
    }

    /// Whether the owner of a member serves it so; none where nothing was said. It blocks while an owner that has just
    /// begun has not told how it serves.
    ///
    /// # Errors
    /// What would not hold, and what to do.
    pub(crate) fn check(&self, member: &FoundMember, owner: &Owner) -> Result<Option<Held>, Failure> {
        let Some(would) = &self.would else { return Ok(None) };
        let has_toolboxes = member.manifest.component.as_ref().is_some_and(|spec| !spec.toolboxes.is_empty());
        // Of a member that is found, its toolboxes are all that is looked for in a directory of members.
        let is_asked = |part: &Part| self.parts.contains(part) && (*part != Part::Members || has_toolboxes);
        if !self.parts.iter().any(is_asked) && !self.variable {
            return Ok(None);
        }
        let refused = |why: &str| Failure::error(refusal(&member.key, owner, why));
        let serving = match told(&member.dir, owner) {
            Ok(serving) => serving,
            Err(why) if self.parts.iter().any(is_asked) => return Err(refused(&why)),
            Err(_) => return Ok(None),
        };
        let would = would.serve(member).map_err(|why| Failure::error(format!("member {}: {why}", member.key)))?;
        let differences = serving.differences(&would);
        let (others, rest): (Vec<_>, Vec<_>) = differences.into_iter().partition(|(part, _)| is_asked(part));
        if !others.is_empty() {
            let others: Vec<String> = others.into_iter().map(|(_, text)| text).collect();
            return Err(refused(&others.join("; ")));
        }
        let is_named = self.variable || self.parts.contains(&Part::Config);
        for (_, text) in rest.iter().filter(|(part, _)| is_named && matches!(part, Part::Config | Part::ConfigText)) {
            tell(harmless(&format!("process {} serves {}: {text}", owner.pid, member.key)));
        }
        let member = member.dir.try_clone().map_err(|e| Failure::error(e.to_string()))?;
        Ok(Some(Held { member, note: Note { pid: owner.pid, started: owner.started, serving } }))
    }
}

/// What the owner says of how it serves.
fn told(member: &Dir, owner: &Owner) -> Result<Serving, String> {
    let until = Instant::now() + PATIENCE;
    loop {
        match owner.note::<Serving>(member) {
            Ok(Some(serving)) => return Ok(serving),
            Ok(None) if Instant::now() < until && owner.is_alive() => thread::sleep(POLL),
            Ok(None) => return Err("it does not say how".to_owned()),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                return Err("it is another user's, and tells only that user how".to_owned());
            }
            Err(e) => return Err(format!("how it does cannot be read: {e}")),
        }
    }
}

fn refusal(key: &MemberKey, owner: &Owner, why: &str) -> String {
    let Owner { pid, url, .. } = owner;
    let text = format!(
        "process {pid} serves {key} at {url}, and not as it is asked for here: {why}. End that process (`kill {pid}`) and \
         try again; or leave the option out, and the work is done as that process does it; or copy the member's \
         directory, and name the copy"
    );
    harmless(&text).into_owned()
}
