//! Shows what a member is to the host's operator, and carries out the operator's decisions about it.

use std::{collections::BTreeSet, path::PathBuf};

use guild_audit::{Audit, Fact, flows::Flow};
use guild_auth::audit_log::Who;
use guild_config::Config;
use guild_contract::{
    MemberKey,
    capability::grants::Verdict,
    host::{
        ApproveParams, AuditSummary, FactView, FindingsView, FlowView, MemberDetail, MemberLimit, MemoryView,
        ProbeView, ReachView, RequestView, TrustView,
    },
    manifest::{FILE_NAME, package},
    rpc::RpcError,
};
use guild_fs::{clock::SystemClock, durable::read_whole};
use guild_jobs::MemoryStore;
use guild_trust::{Approval, Pin, Probed, Standing, Trusted, directory_path};

use super::Host;
use crate::{
    audit::{self, Installed},
    discovery::{self, FoundMember, granted::Granted},
    jobs::files::end_before_approval,
    members::{member::Member, roster::MemberState},
};

/// The most bytes of a manifest, and of all memories together, that are shown.
const SHOWN_BYTES: u64 = 1024 * 1024;

impl Host {
    /// The answer of `host/member`, with or without the audit. It blocks.
    ///
    /// # Errors
    ///
    /// Returns -32602 for an unknown member, and -32603 when its files cannot be read.
    pub fn inspect_member(&self, key: &str, audit: bool) -> Result<MemberDetail, RpcError> {
        let found = self.found(key)?;
        let context = self.opener.context();
        let approval = context.approval.current();
        let mut detail = MemberDetail {
            member: key.to_owned(),
            manifest: manifest(&found)?,
            posture: found
                .posture()
                .map_err(RpcError::internal)?
                .map(|text| String::from_utf8_lossy(&text).into_owned()),
            requests: Vec::new(),
            limits: Vec::new(),
            trust: None,
            trust_error: None,
            probe: None,
            memories: self.memories(&found)?,
            audit: None,
            audit_error: None,
        };
        let Some(spec) = &found.manifest.component else {
            detail.audit_error = audit.then(|| format!("{} has no component to audit", found.key));
            return Ok(detail);
        };
        let granted = Granted::of(&found, spec, &context.config, &approval).map_err(RpcError::internal)?;
        let view = |(name, verdict): (&str, &Verdict)| {
            let why = match verdict {
                Verdict::Granted => None,
                Verdict::Denied(why) => Some(why.to_string()),
            };
            RequestView { name: name.to_owned(), granted: why.is_none(), why }
        };
        detail.requests = granted.grants.verdicts().map(view).collect();
        let values = serde_json::to_value(&granted.limits.limits).unwrap_or_default();
        let limit = |name: &&str| Some(MemberLimit { name: (*name).to_owned(), value: values.get(*name).cloned()? });
        detail.limits = granted.limits.narrowed.keys().filter_map(limit).collect();
        match approval.look(&found.key, &found.dir, spec, granted.limits.limits.component_bytes) {
            Ok((candidate, standing)) => {
                detail.trust = Some(trust(&standing));
                detail.probe = probe(&standing.presented);
                if audit {
                    match audited(found, granted, &candidate.bytes, &standing, &approval, &context.config) {
                        Ok(audit) => detail.audit = Some(audit),
                        Err(why) => detail.audit_error = Some(why),
                    }
                }
            }
            Err(refused) => {
                let why = refused.to_string();
                detail.audit_error = audit.then(|| why.clone());
                detail.trust_error = Some(why);
            }
        }
        Ok(detail)
    }

    /// Approves a member whose present state has the given hashes, for `who`. It blocks.
    ///
    /// # Errors
    ///
    /// Returns -32602 for an unknown member, or for other hashes; and -32603 when the approval cannot be stored.
    pub fn approve_member(&self, params: &ApproveParams, who: Who<'_>) -> Result<(), RpcError> {
        let found = self.found(&params.member)?;
        let Some(spec) = &found.manifest.component else {
            return Err(RpcError::invalid_params(format!("{} has no component to approve", found.key)));
        };
        let context = self.opener.context();
        let approval = context.approval.current();
        let granted = Granted::of(&found, spec, &context.config, &approval).map_err(RpcError::internal)?;
        let failed = |e: &dyn ToString| RpcError::internal(e.to_string());
        let max = granted.limits.limits.component_bytes;
        let (_, standing) = approval.look(&found.key, &found.dir, spec, max).map_err(|e| failed(&e))?;
        let presented = &standing.presented;
        let shown = (&params.sha256, &params.manifest, &params.package, &params.posture);
        if shown != (&presented.sha256, &presented.manifest, &presented.package, &presented.posture) {
            let why = format!("{} has changed since it was shown; look at it again", found.key);
            return Err(RpcError::invalid_params(why));
        }
        approval.check_signature(&standing).map_err(|e| failed(&e))?;
        if !matches!(standing.trusted, Trusted::Pinned(_)) {
            let is_change = matches!(standing.trusted, Trusted::Changed(_));
            end_before_approval(&found.dir, &context.limits, is_change).map_err(|e| failed(&e))?;
        }
        approval.approve(&standing, None, who).map_err(|e| failed(&e))
    }

    /// Removes a memory of a member that this host serves. It blocks.
    ///
    /// # Errors
    ///
    /// Returns -32602 for an unknown member or memory, and -32603 when it cannot be removed.
    pub fn forget_memory(&self, key: &str, memory: &str) -> Result<(), RpcError> {
        let served = self.served(key).ok_or_else(|| unknown(key))?;
        match served.data.memory.delete(memory) {
            Ok(true) => Ok(()),
            Ok(false) => Err(RpcError::invalid_params(format!("{key} has no memory {memory:?}"))),
            Err(e) => Err(RpcError::internal(e.to_string())),
        }
    }

    fn served(&self, key: &str) -> Option<std::sync::Arc<Member>> {
        match self.roster.now().state(key)? {
            MemberState::Ready(member) => Some(member),
            MemberState::Error(_) | MemberState::Foreign => None,
        }
    }

    /// A member in its directory, whether it is in service or not.
    fn found(&self, key: &str) -> Result<FoundMember, RpcError> {
        let valid: MemberKey = key.parse().map_err(|_| unknown(key))?;
        let config = self.config();
        let known = self.roster.now().entry(key).is_some();
        let path = match self.served(key) {
            Some(member) => directory_path(&member.data.dir).ok().map(PathBuf::from),
            None => config.members.as_ref().map(|members| members.join(valid.as_str())),
        };
        let path = path.filter(|_| known).ok_or_else(|| unknown(key))?;
        discovery::single(&path, config.members.as_deref(), &config).map_err(RpcError::internal)
    }

    fn memories(&self, found: &FoundMember) -> Result<Vec<MemoryView>, RpcError> {
        let failed = |e: &dyn ToString| RpcError::internal(format!("its memories cannot be read: {}", e.to_string()));
        let memory = match self.served(found.key.as_str()) {
            Some(member) => member.data.memory.clone(),
            None => {
                let clock = std::sync::Arc::new(SystemClock);
                MemoryStore::to_read(&found.dir, self.limits(), clock).map_err(|e| failed(&e))?
            }
        };
        let (mut shown, mut bytes) = (Vec::new(), 0);
        for entry in memory.list().map_err(|e| failed(&e))? {
            bytes += entry.bytes;
            if bytes > SHOWN_BYTES {
                break;
            }
            // It may be removed meanwhile.
            if let Some(content) = memory.load(&entry.key).map_err(|e| failed(&e))? {
                shown.push(MemoryView { key: entry.key, content, modified: entry.modified });
            }
        }
        Ok(shown)
    }
}

fn unknown(key: &str) -> RpcError {
    RpcError::invalid_params(format!("the host has no member {key:?}; `GET /members` lists them"))
}

fn manifest(found: &FoundMember) -> Result<String, RpcError> {
    let read = |name| read_whole(&found.dir, name, SHOWN_BYTES).ok().flatten();
    let texts: Vec<_> = [FILE_NAME, package::FILE_NAME].into_iter().filter_map(read).collect();
    if texts.is_empty() {
        return Err(RpcError::internal(format!("the manifest of {} cannot be read", found.key)));
    }
    // Where both files are there, both declare the member.
    let texts: Vec<_> = texts.iter().map(|(text, _)| String::from_utf8_lossy(text)).collect();
    Ok(texts.join("\n"))
}

/// The audit of a member with the component `bytes`, as `guild audit` makes it.
fn audited(
    found: FoundMember,
    granted: Granted,
    bytes: &[u8],
    standing: &Standing,
    approval: &Approval,
    config: &Config,
) -> Result<AuditSummary, String> {
    let file = found.manifest.component.as_ref().map(|spec| spec.file.clone()).unwrap_or_default();
    let signature = audit::signature(&standing.signature, config);
    let members: BTreeSet<PathBuf> = config.members.iter().cloned().collect();
    let installed = Installed::read(found, granted, approval, config, &members)?;
    let audit = installed.audit(&file, bytes, Some(&signature), audit::trusted(standing).as_ref(), None);
    Ok(summary(audit))
}

fn summary(audit: Audit) -> AuditSummary {
    let flow = |flow: Flow| FlowView {
        to: flow.place(),
        leaves: flow.leaves,
        relay: flow.relay.is_some(),
        from: flow.from.iter().map(ToString::to_string).collect(),
    };
    let fact = |fact: Fact| FactView {
        name: fact.name.as_str().to_owned(),
        place: fact.place,
        text: fact.text,
        refused: fact.refused,
    };
    AuditSummary {
        reach: audit.reach.into_iter().map(|row| ReachView { label: row.label, items: row.items }).collect(),
        flows: audit.flows.into_iter().map(flow).collect(),
        facts: audit.facts.into_iter().map(fact).collect(),
    }
}

/// The last probe of these files.
fn probe(files: &Pin) -> Option<ProbeView> {
    let Probed { at, component, found, .. } = Probed::of(files)?;
    let view = |(kind, what, count): (&str, &str, usize)| FindingsView {
        kind: kind.to_owned(),
        what: what.to_owned(),
        count: count as u64,
    };
    Some(ProbeView {
        at,
        sha256: component,
        obedient: found.obedient,
        findings: found.kinds().into_iter().map(view).collect(),
    })
}

fn trust(standing: &Standing) -> TrustView {
    let presented = &standing.presented;
    TrustView {
        state: standing.as_str().to_owned(),
        trusted: matches!(standing.trusted, Trusted::Pinned(_)),
        sha256: presented.sha256.clone(),
        manifest: presented.manifest.clone(),
        package: presented.package.clone(),
        posture: presented.posture.clone(),
        difference: standing.difference.lines().collect(),
    }
}
