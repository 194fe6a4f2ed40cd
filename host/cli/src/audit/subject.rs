//! Finds the subject of an audit: a component's file, or a member with its manifest and the operator's policy.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    rc::Rc,
};

use cap_std::fs::{OpenOptions, OpenOptionsExt};
use guild_audit::{
    Audit, Member, OfferedTool, Operator, Package,
    model::{Signature, SignatureState},
};
use guild_config::Config;
use guild_contract::{Limits, MemberKey, manifest::POSTURE};
use guild_fs::durable::open_directory;
use guild_roster::{
    check::members::tools_of,
    discovery::{
        FoundMember,
        granted::{Granted, ceiling},
    },
};
use guild_session::tools::ToolDefinition;
use guild_trust::{self, Approval, Trust, directory_path};

use super::{NO_WAIT, cannot_read, fail, package, read, read_file, unreadable};
use crate::{
    failure::Failure,
    local::{self, LocalArgs},
    output::progress::Progress,
};

/// The subject of an audit.
pub(crate) struct Subject {
    /// The file as the user named it, or as a member's manifest names it.
    file: String,
    bytes: Vec<u8>,
    limits: Limits,
    member: Option<Rc<Owner>>,
    signature: Option<Signature>,
}

/// The member that a component belongs to.
struct Owner {
    found: FoundMember,
    granted: Granted,
    posture: Option<Vec<u8>>,
    memories: Vec<(String, Vec<u8>)>,
    tools: Vec<OfferedTool>,
    others: package::Others,
    operator: Operator,
}

impl Subject {
    /// Finds a subject by its name: an existing file, or else a member.
    pub(crate) fn find(target: &str, local: &LocalArgs, config: &Config) -> Result<Self, Failure> {
        if Path::new(target).is_file() {
            let bytes = read_file(target)?;
            let signature = signature(Path::new(target), &bytes, config, None)?;
            return Ok(Self {
                file: target.to_owned(),
                bytes,
                limits: config.limits.clone(),
                member: None,
                signature: Some(signature),
            });
        }
        let directory = local::member_directory(target, local, config).map_err(unreadable)?;
        let found = local::member(&directory, local, config).map_err(fail)?;
        let Some(spec) = &found.manifest.component else {
            return Err(fail(format!("{} has no component: its own process serves it, not this host", found.key)));
        };
        let path = directory.join(&spec.file);
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(NO_WAIT);
        // A host reports the same reason in the same words.
        let why = |e: std::io::Error| found.component_sha256(&config.limits).err().unwrap_or_else(|| e.to_string());
        let opened = found.dir.open_with(&spec.file, &options).map_err(why);
        let bytes = opened.and_then(|file| read(file.into_std()));
        let bytes = bytes.map_err(|why| cannot_read(&path.display().to_string(), &why))?;
        let signature = signature(&path, &bytes, config, Some(&found.key))?;
        let granted = Granted::of(&found, spec, config, &Approval::new(config)).map_err(fail)?;
        let posture = found.posture().map_err(|why| fail(format!("{}: {POSTURE} {why}", directory.display())))?;
        let memories = package::memories(&found);
        let others = package::other_files(&found, spec, is_loaded(&found, config)?);
        let others = others.map_err(|e| cannot_read(&directory.display().to_string(), &e.to_string()))?;
        let installed = local::members_directory(local.members.as_deref(), config).ok();
        let beside = directory.canonicalize().ok().and_then(|directory| directory.parent().map(Path::to_owned));
        let installed = installed.and_then(|members| members.canonicalize().ok());
        let members: BTreeSet<PathBuf> = beside.into_iter().chain(installed).collect();
        let operator = package::operator(&found, spec, &members, config);
        Ok(Self {
            file: spec.file.clone(),
            bytes,
            limits: granted.limits.limits.clone(),
            member: Some(Rc::new(Owner { found, granted, posture, memories, tools: Vec::new(), others, operator })),
            signature: Some(signature),
        })
    }

    /// Adds the tools of the subject's component, which is compiled for this, and asked in the sandbox.
    pub(crate) fn with_tools(mut self, config: &Config) -> Result<Self, Failure> {
        let Some(owner) = self.member.as_mut().and_then(Rc::get_mut) else {
            return Err(fail("--list-tools needs a member: a file alone has no manifest".to_owned()));
        };
        let progress = Progress::start();
        let tools = tools_of(&owner.found, config, &|what| progress.compiling(what));
        drop(progress);
        let tools = tools.map_err(|why| fail(format!("the tools of {} cannot be listed: {why}", owner.found.key)))?;
        owner.tools = tools.iter().map(|tool| offered(tool)).collect();
        Ok(self)
    }

    /// The same member with the bytes of another file, and the signature next to that file.
    pub(crate) fn with(&self, file: &str, bytes: Vec<u8>, config: &Config) -> Result<Self, Failure> {
        let key = self.member.as_ref().map(|owner| &owner.found.key);
        let signature = signature(Path::new(file), &bytes, config, key)?;
        let (limits, member) = (self.limits.clone(), self.member.clone());
        Ok(Self { file: file.to_owned(), bytes, limits, member, signature: Some(signature) })
    }

    /// The audit of the subject.
    pub(crate) fn audit(&self) -> Audit {
        let member = self.member.as_ref().and_then(|owner| {
            let Owner { found: FoundMember { key, manifest, .. }, operator, .. } = &**owner;
            let package = Package {
                posture: owner.posture.as_deref(),
                memories: &owner.memories,
                tools: &owner.tools,
                files: &owner.others.files,
                documents: &owner.others.documents,
                is_cut: owner.others.is_cut,
            };
            let spec = manifest.component.as_ref()?;
            let (grants, bounds) = (&*owner.granted.grants, ceiling(spec, &self.limits));
            Some(Member { key, manifest, spec, grants, bounds, package, operator })
        });
        Audit::of(&guild_audit::Subject {
            file: &self.file,
            bytes: &self.bytes,
            member,
            limits: &self.limits,
            signature: self.signature.as_ref(),
        })
    }
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
fn is_loaded(member: &FoundMember, config: &Config) -> Result<bool, Failure> {
    let lock = Approval::new(config).lock().map_err(|e| fail(e.to_string()))?;
    Ok(directory_path(&member.dir).is_ok_and(|directory| lock.pins.contains_key(&directory)))
}

/// The state of the signature next to a component.
fn signature(
    component: &Path,
    bytes: &[u8],
    config: &Config,
    member: Option<&MemberKey>,
) -> Result<Signature, Failure> {
    let trust = config.directory.as_deref().map(Trust::load).transpose().map_err(|e| fail(e.to_string()))?;
    let directory = component.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = component.file_name().unwrap_or_default().to_string_lossy();
    let dir = open_directory(directory).map_err(|e| cannot_read(&directory.display().to_string(), &e.to_string()))?;
    let is_free = member.is_some_and(|key| config.free_posture.iter().any(|free| free.matches(key.as_str())));
    let found = guild_trust::Signature::of_member(&dir, &name, bytes, &trust.unwrap_or_default(), is_free);
    let (state, detail) = match found {
        guild_trust::Signature::None => (SignatureState::Missing, None),
        guild_trust::Signature::Good { name, comment, whole, .. } => {
            let of = if whole { "component, manifest and posture" } else { "the component alone" };
            (SignatureState::Valid, Some(format!("of {of}, by {name}: {comment}")))
        }
        guild_trust::Signature::Unknown => (SignatureState::Unknown, None),
        guild_trust::Signature::Bad { why } => (SignatureState::Invalid, Some(why)),
    };
    Ok(Signature { state, required: config.require_signature, detail })
}
