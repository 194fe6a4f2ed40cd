//! Finds the subject of an audit: a component's file, or a member with its manifest and the operator's policy.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    rc::Rc,
};

use cap_std::fs::{OpenOptions, OpenOptionsExt};
use guild_audit::{
    Audit, Trusted,
    model::{Signature, Since},
};
use guild_config::Config;
use guild_contract::{Limits, MemberKey};
use guild_fs::durable::open_directory;
use guild_roster::{
    audit::{self, Installed},
    check::members::tools_of,
    discovery::{FoundMember, granted::Granted},
};
use guild_trust::{Approval, Trust};

use super::{NO_WAIT, cannot_read, fail, read, read_file, unreadable};
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
    /// The member that the component belongs to.
    member: Option<Rc<Installed>>,
    signature: Option<Signature>,
    /// The version of the member that guild.lock has.
    trusted: Option<Trusted>,
    /// What differs from that version.
    since: Option<Since>,
}

impl Subject {
    /// Finds a subject by its name: an existing file, or else a member, which is the manager's if `manages`.
    pub(crate) fn find(target: &str, local: &LocalArgs, config: &Config, manages: bool) -> Result<Self, Failure> {
        if Path::new(target).is_file() {
            let bytes = read_file(target)?;
            let signature = signature(Path::new(target), &bytes, config, None)?;
            return Ok(Self {
                file: target.to_owned(),
                bytes,
                limits: config.limits.clone(),
                member: None,
                signature: Some(signature),
                trusted: None,
                since: None,
            });
        }
        let directory = local::member_directory(target, local, config).map_err(unreadable)?;
        let found = local::member(&directory, local, config).map_err(fail)?;
        let installed = local::members_directory(local.members.as_deref(), config).ok();
        let beside = directory.canonicalize().ok().and_then(|directory| directory.parent().map(Path::to_owned));
        let installed = installed.and_then(|members| members.canonicalize().ok());
        let members = beside.into_iter().chain(installed).collect();
        if !manages {
            return Self::of_member(&directory, found, &members, config);
        }
        let mut config = config.clone();
        config.policy.manager = Some(found.key.clone());
        Self::of_member(&directory, found, &members, &config)
    }

    /// A member that was found in a directory. `members` are the directories of members that may offer it toolboxes.
    pub(super) fn of_member(
        directory: &Path,
        found: FoundMember,
        members: &BTreeSet<PathBuf>,
        config: &Config,
    ) -> Result<Self, Failure> {
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
        let file = spec.file.clone();
        let approval = Approval::new(config);
        let granted = Granted::of(&found, spec, config, &approval).map_err(fail)?;
        // What guild.lock has cannot be compared with files that a host would refuse; the audit says why.
        let standing = approval.look(&found.key, &found.dir, spec, granted.limits.limits.component_bytes).ok();
        let standing = standing.as_ref().map(|(_, standing)| standing);
        let (trusted, since) = (standing.and_then(audit::trusted), standing.and_then(audit::since));
        let member = Installed::read(found, granted, &approval, config, members).map_err(fail)?;
        let limits = member.limits().clone();
        Ok(Self { file, bytes, limits, member: Some(Rc::new(member)), signature: Some(signature), trusted, since })
    }

    /// Adds the tools of the subject's component, which is compiled for this, and asked in the sandbox.
    pub(crate) fn with_tools(mut self, config: &Config) -> Result<Self, Failure> {
        let Some(member) = self.member.as_mut().and_then(Rc::get_mut) else {
            return Err(fail("--list-tools needs a member: a file alone has no manifest".to_owned()));
        };
        let progress = Progress::start();
        let tools = tools_of(member.found(), config, &|what| progress.compiling(what));
        drop(progress);
        let tools =
            tools.map_err(|why| fail(format!("the tools of {} cannot be listed: {why}", member.found().key)))?;
        member.offer(tools.iter().map(|tool| &**tool));
        Ok(self)
    }

    /// The same member with the bytes of another file, and the signature next to that file.
    pub(crate) fn with(&self, file: &str, bytes: Vec<u8>, config: &Config) -> Result<Self, Failure> {
        let key = self.member.as_ref().map(|member| &member.found().key);
        let signature = signature(Path::new(file), &bytes, config, key)?;
        let (limits, member) = (self.limits.clone(), self.member.clone());
        let (trusted, since) = (None, None);
        Ok(Self { file: file.to_owned(), bytes, limits, member, signature: Some(signature), trusted, since })
    }

    /// The audit of the subject, compared with `against` or else with the version that guild.lock has. Texts at places
    /// that begin with `whole` are laid out whole.
    pub(crate) fn audit(&self, against: Option<&Trusted>, whole: Option<&str>) -> Audit {
        let (file, bytes, signature) = (&*self.file, &*self.bytes, self.signature.as_ref());
        let trusted = against.or(self.trusted.as_ref());
        let Some(member) = &self.member else {
            let limits = &self.limits;
            return Audit::of(&guild_audit::Subject { file, bytes, member: None, limits, signature, trusted, whole });
        };
        let mut audit = member.audit(file, bytes, signature, trusted, whole);
        audit.since.clone_from(&self.since);
        audit
    }
}

/// The state of the signature next to a component.
fn signature(
    component: &Path,
    bytes: &[u8],
    config: &Config,
    member: Option<&MemberKey>,
) -> Result<Signature, Failure> {
    let directory = component.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = component.file_name().unwrap_or_default().to_string_lossy();
    let dir = open_directory(directory).map_err(|e| cannot_read(&directory.display().to_string(), &e.to_string()))?;
    let trust = config.directory.as_deref().map(Trust::load).transpose().map_err(|e| fail(e.to_string()))?;
    let is_free = member.is_some_and(|key| config.free_posture.iter().any(|free| free.matches(key.as_str())));
    let found = guild_trust::Signature::of_member(&dir, &name, bytes, &trust.unwrap_or_default(), is_free);
    Ok(audit::signature(&found, config))
}
