//! Computes a member's grants and limits: its manifest's requests, as far as the operator allows them.

use std::sync::Arc;

use guild_config::{Config, HostPattern};
use guild_contract::{
    Bounds, Grants, Limits, MemberLimits,
    capability::Kind,
    grants::Verdict,
    manifest::{ComponentSpec, SESSION_TOOLS, World},
};
use guild_session::meter::session_limits;
use guild_trust::Approval;

use super::FoundMember;

/// What a member may do: what its manifest asks for, and the operator allows.
#[derive(Clone, Debug)]
pub struct Granted {
    /// What it may reach.
    pub grants: Arc<Grants>,
    /// What it may use.
    pub limits: MemberLimits,
}

impl Granted {
    /// What `config` grants a member, whose component is as `spec` says, as far as it was approved.
    ///
    /// # Errors
    /// Where its manifest asks for what cannot be, with the line.
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

    /// Logs what is granted in one line, and each request that is not.
    pub(crate) fn log(&self, member: &FoundMember, roots: &[String]) {
        let Self { grants, limits } = self;
        let granted: Vec<&str> = grants.granted().collect();
        let narrowed: Vec<&str> = limits.narrowed.keys().copied().collect();
        let (granted, roots, narrowed) = (granted.join(", "), roots.join(", "), narrowed.join(", "));
        tracing::info!(member = %member.key, granted, roots, narrowed, "granted");
        for (name, why) in self.denied() {
            let place = member.manifest.lines.place(&request_path(name));
            // A tool that there is nothing for is absent, and no more.
            if SESSION_TOOLS.contains(&name) {
                tracing::info!(member = %member.key, "{place} asks for {name}, which is not granted: {why}");
            } else {
                tracing::warn!(member = %member.key, "{place} asks for `{name}`, which is not granted: {why}");
            }
        }
    }

    /// What is asked for and not granted, and why.
    pub fn denied(&self) -> impl Iterator<Item = (&str, &str)> {
        self.grants.verdicts().filter_map(|(name, verdict)| match verdict {
            Verdict::Denied(why) => Some((name, why.as_str())),
            Verdict::Granted => None,
        })
    }
}

/// Why a session cannot be given a tool.
pub(crate) fn no_tool(grants: &Grants, tool: &str) -> String {
    match grants.requested.get(tool) {
        Some(Verdict::Denied(why)) => format!("the tool {tool:?}: {why}"),
        Some(Verdict::Granted) => format!("the tool {tool:?}: there is nothing for it to read"),
        None => format!("the tool {tool:?}; add it to `component.tools` of the manifest"),
    }
}

/// Where a manifest asks for what [`Grants::requested`] names so.
pub(crate) fn request_path(name: &str) -> String {
    format!("component.{}", Kind::named(name).map_or("tools", |kind| kind.key))
}

/// What the jobs of a member may use at most, where `limits` are its own, with the turns and dollars that its manifest
/// asks for.
pub fn ceiling(spec: &ComponentSpec, limits: &Limits) -> Bounds {
    let mut most = session_limits(limits);
    if spec.world == World::AutonomousWorker {
        // It may run longer than a session; what sessions it starts are bounded as all are.
        most.deadline_seconds = most.deadline_seconds.max(Some(limits.run_seconds));
    }
    most.min(Bounds { deadline_seconds: spec.resources.deadline_seconds, ..Bounds::default() })
}
