//! Computes a member's grants and limits: its manifest's requests, as far as the operator allows them.

use std::sync::Arc;

use guild_config::{Config, HostPattern};
use guild_contract::{
    Bounds, Grants, Limits, MemberLimits,
    capability::{Kind, denial::Denial, grants::Verdict},
    manifest::{ComponentSpec, SESSION_TOOLS, World},
};
use guild_session::meter::session_limits;
use guild_trust::Approval;

use super::FoundMember;

/// The permissions of a member: the requests of its manifest that the operator allows.
#[derive(Clone, Debug)]
pub struct Granted {
    /// Its grants.
    pub grants: Arc<Grants>,
    /// Its limits.
    pub limits: MemberLimits,
}

impl Granted {
    /// The grants of `config` to a member with the component `spec`, restricted to approved parts.
    ///
    /// # Errors
    ///
    /// Returns an error when the member's manifest has an impossible request. The text names the line.
    pub fn of(
        member: &FoundMember,
        spec: &ComponentSpec,
        config: &Config,
        approval: &Approval,
    ) -> Result<Self, String> {
        if let Some(web) = &spec.grants.web {
            const HOSTS: &str = "component.grants.web.hosts";
            let checked = web.hosts.iter().try_for_each(|host| HostPattern::parse(host).map(drop));
            checked.map_err(|why| format!("{}: `{HOSTS}`: {why}", member.manifest.lines.place(HOSTS)))?;
        }
        Ok(Self {
            grants: Arc::new(approval.narrowed(Grants::of(&member.key, spec, &config.policy), &member.dir)),
            limits: MemberLimits::of(&member.key, spec, &config.policy, &config.limits),
        })
    }

    /// Logs the grants in one line, and each denied request.
    pub(crate) fn log(&self, member: &FoundMember, roots: &[String]) {
        let Self { grants, limits } = self;
        let granted: Vec<&str> = grants.granted().collect();
        let narrowed: Vec<&str> = limits.narrowed.keys().copied().collect();
        let (granted, roots, narrowed) = (granted.join(", "), roots.join(", "), narrowed.join(", "));
        tracing::info!(member = %member.key, granted, roots, narrowed, "granted");
        for (name, why) in self.denied() {
            let place = member.manifest.lines.place(&request_path(name));
            // A tool without sources is absent, which is no denial.
            if SESSION_TOOLS.contains(&name) {
                tracing::info!(member = %member.key, "{place} asks for {name}, which is not granted: {why}");
            } else {
                tracing::warn!(member = %member.key, "{place} asks for `{name}`, which is not granted: {why}");
            }
        }
    }

    /// The denied requests, with the reasons.
    pub fn denied(&self) -> impl Iterator<Item = (&str, &Denial)> {
        self.grants.verdicts().filter_map(|(name, verdict)| match verdict {
            Verdict::Denied(why) => Some((name, why)),
            Verdict::Granted => None,
        })
    }
}

/// The reason that a session cannot be given a tool.
pub fn no_tool(grants: &Grants, tool: &str) -> String {
    match grants.requested.get(tool) {
        Some(Verdict::Denied(why)) => format!("the tool {tool:?}: {why}"),
        Some(Verdict::Granted) => format!("the tool {tool:?}: there is nothing for it to read"),
        None => format!("the tool {tool:?}; add it to `component.tools` of the manifest"),
    }
}

/// The path in a manifest of a request that [`Grants::requested`] names.
pub(crate) fn request_path(name: &str) -> String {
    format!("component.{}", Kind::named(name).map_or("tools", |kind| kind.key))
}

/// The bounds of a member's jobs: its own `limits`, with the turns and dollars of its manifest.
pub fn ceiling(spec: &ComponentSpec, limits: &Limits) -> Bounds {
    let mut most = session_limits(limits);
    if spec.world == World::AutonomousWorker {
        // It may run longer than a session; its own sessions are bounded like all others.
        most.deadline_seconds = most.deadline_seconds.max(Some(limits.run_seconds));
    }
    most.min(Bounds { deadline_seconds: spec.resources.deadline_seconds, ..Bounds::default() })
}
