//! Audits a member as it is installed: its component with its manifest, the other files of its directory, and the
//! operator's policy.

mod package;

use std::{collections::BTreeSet, path::PathBuf};

use guild_audit::{
    Audit, Member, OfferedTool, Operator, Package, Subject, Trusted,
    model::{Signature, SignatureState, Since},
};
use guild_config::Config;
use guild_contract::{Limits, manifest::POSTURE};
use guild_session::tools::ToolDefinition;
use guild_trust::{Approval, Pin, Standing, directory_path};

use crate::discovery::{
    FoundMember,
    granted::{Granted, ceiling},
};

/// The most bytes that are read besides the component, the manifest, the posture and the memories.
pub const READ_BYTES: usize = package::MAX_TOTAL_BYTES;

/// A member with all that an audit of it reads, except its component.
pub struct Installed {
    found: FoundMember,
    granted: Granted,
    posture: Option<Vec<u8>>,
    memories: Vec<(String, Vec<u8>)>,
    tools: Vec<OfferedTool>,
    others: package::Others,
    operator: Operator,
}

impl Installed {
    /// Reads the directory of a member with these grants. `members` are the directories of members that may offer it
    /// toolboxes. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error, for a person, when the member has no component, or a file cannot be read.
    pub fn read(
        found: FoundMember,
        granted: Granted,
        approval: &Approval,
        config: &Config,
        members: &BTreeSet<PathBuf>,
    ) -> Result<Self, String> {
        let Some(spec) = &found.manifest.component else {
            return Err(format!("{} has no component: its own process serves it, not this host", found.key));
        };
        let directory = directory_path(&found.dir).unwrap_or_else(|_| found.key.to_string());
        let posture = found.posture().map_err(|why| format!("{directory}: {POSTURE} {why}"))?;
        let memories = package::memories(&found);
        let others = package::other_files(&found, spec, is_loaded(&found, approval)?);
        let others = others.map_err(|e| format!("cannot read {directory}: {e}"))?;
        let operator = package::operator(&found, spec, members, config);
        Ok(Self { granted, posture, memories, tools: Vec::new(), others, operator, found })
    }

    /// The member.
    pub fn found(&self) -> &FoundMember {
        &self.found
    }

    /// The limits of the member.
    pub fn limits(&self) -> &Limits {
        &self.granted.limits.limits
    }

    /// Adds the tools that its component offers.
    pub fn offer<'a>(&mut self, tools: impl Iterator<Item = &'a ToolDefinition>) {
        self.tools = tools.map(offered).collect();
    }

    /// The audit of the member with the component `bytes`, whose file is `file`. Facts about what is new compare with
    /// `trusted`; texts at places that begin with `whole` are laid out whole.
    pub fn audit(
        &self,
        file: &str,
        bytes: &[u8],
        signature: Option<&Signature>,
        trusted: Option<&Trusted>,
        whole: Option<&str>,
    ) -> Audit {
        let FoundMember { key, manifest, .. } = &self.found;
        let member = manifest.component.as_ref().map(|spec| {
            let package = Package {
                posture: self.posture.as_deref(),
                memories: &self.memories,
                tools: &self.tools,
                files: &self.others.files,
                documents: &self.others.documents,
                is_cut: self.others.is_cut,
            };
            let (grants, bounds) = (&*self.granted.grants, ceiling(spec, self.limits()));
            Member { key, manifest, spec, grants, bounds, package, operator: &self.operator }
        });
        Audit::of(&Subject { file, bytes, member, limits: self.limits(), signature, trusted, whole })
    }
}

/// What the pinned version of a member imports and asks for; none for a member without a pin.
pub fn trusted(standing: &Standing) -> Option<Trusted> {
    standing.trusted.pin().map(|pin| Trusted { imports: pin.imports.clone(), hosts: hosts(pin) })
}

/// The patterns of hosts that a pinned manifest asks for.
fn hosts(pin: &Pin) -> BTreeSet<String> {
    let asked = &pin.requested;
    let named: BTreeSet<String> = asked.grants.web.iter().flat_map(|web| web.hosts.iter().cloned()).collect();
    let reads_web = asked.grants.web.is_some() || asked.tools.contains("WebFetch");
    if named.is_empty() && reads_web { BTreeSet::from(["*".to_owned()]) } else { named }
}

/// What differs from the pinned version of a member, where it has a pin and something does.
pub fn since(standing: &Standing) -> Option<Since> {
    let pin = standing.trusted.pin().filter(|_| !standing.difference.is_empty())?;
    let version = format!("{}, {}", pin.how.as_str(), pin.since);
    Some(Since { version, changes: standing.difference.changes.clone() })
}

fn offered(tool: &ToolDefinition) -> OfferedTool {
    let schema = |schema: &serde_json::Value| format!("{schema:#}");
    let texts = [
        ("title", tool.title.clone()),
        ("description", Some(tool.description.clone())),
        ("input", Some(schema(&tool.input_schema))),
        ("output", tool.output_schema.as_ref().map(schema)),
    ];
    OfferedTool {
        name: tool.name.clone(),
        texts: texts.into_iter().filter_map(|(of, text)| Some((of, text?))).collect(),
    }
}

/// Whether this host has loaded a member: it has a pin.
fn is_loaded(member: &FoundMember, approval: &Approval) -> Result<bool, String> {
    let lock = approval.lock().map_err(|e| e.to_string())?;
    Ok(directory_path(&member.dir).is_ok_and(|directory| lock.pins.contains_key(&directory)))
}

/// A signature as an audit shows it.
pub fn signature(found: &guild_trust::Signature, config: &Config) -> Signature {
    let (state, detail) = match found {
        guild_trust::Signature::None => (SignatureState::Missing, None),
        guild_trust::Signature::Good { name, comment, whole, .. } => {
            let of = if *whole { "component, manifest and posture" } else { "the component alone" };
            (SignatureState::Valid, Some(format!("of {of}, by {name}: {comment}")))
        }
        guild_trust::Signature::Unknown => (SignatureState::Unknown, None),
        guild_trust::Signature::Bad { why } => (SignatureState::Invalid, Some(why.clone())),
    };
    Signature { state, required: config.require_signature, detail }
}
