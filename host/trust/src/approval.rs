//! Decides whether a member is still the one that the operator trusts, and records approvals.
//!
//! `guild.lock` in the directory of `guild.toml` pins each member: its component, and the requests of its manifest. The
//! first load pins (trust on first use), unless `require_approval = true`. A member that changed since is not loaded
//! until `guild approve`. A copy of a pinned member is trusted too. `guild.trust` in the same directory has the trusted
//! signing keys.
//!
//! Neither file is read from a member's directory, so no file of a member can make it trusted. If one of them cannot be
//! read, no member is loaded.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd as _, AsRawFd as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use cap_std::fs::{Dir, MetadataExt as _};
use guild_auth::audit_log::{Event, Log, Outcome, Who};
use guild_config::{Config, directory_lock::DirectoryLock, shell_word};
use guild_contract::{
    Grants, Manifest, MemberKey,
    capability::{base_toolbox, grants::Pattern},
    manifest::{ComponentSpec, FILE_NAME, McpCommand, POSTURE, POSTURE_BYTES, SIGNATURE_SUFFIX, package},
    text::hex,
};
use guild_fs::{
    durable::{if_there, open_directory, read_whole},
    fingerprint::Fingerprint,
};
use guild_sandbox::{Candidate, LoadError};
use jiff::{Timestamp, Unit};
use sha2::{Digest as _, Sha256};

use crate::{
    declaration,
    difference::Difference,
    error::FileError,
    lock::{Asked, FILE, How, Lock, Pin, Source},
    probed::Probed,
    signature::{NO_FILE, Signature, Trust},
};

/// The reason that a member's component is not loaded. Each text has the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The component cannot be read, checked or compiled.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// `guild.lock` or `guild.trust` cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The member changed since it was trusted, or `require_approval = true` and it was never approved.
    #[error("member {name} {why}")]
    NotTrusted {
        /// The member.
        name: String,
        /// The reason.
        why: String,
        /// The command that approves the member.
        command: String,
    },
    /// The signature is invalid, or `require_signature = true` and there is none by a trusted key.
    #[error("{0}")]
    Signature(String),
    /// `require_probe = true`, and the member's files were not probed, or a probe of them found canaries.
    #[error("{0}")]
    NotProbed(String),
    /// `guild.toml` is in a member's directory, or the member's directory has no path that a pin could name.
    #[error("{0}")]
    Directory(String),
    /// The member could not be pinned.
    #[error("member {name} could not be pinned in guild.lock: {why}")]
    Unpinned {
        /// The member.
        name: String,
        /// The reason.
        why: io::Error,
    },
}

impl Refused {
    /// The command that approves the member, from any working directory. It names directories, so it is shown to the
    /// operator of the host, and not to its callers.
    pub fn command(&self) -> Option<&str> {
        match self {
            Self::NotTrusted { command, .. } => Some(command),
            _ => None,
        }
    }
}

/// A member's present files, and whether they are trusted.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The member's directory: absolute, without symlinks.
    pub directory: String,
    /// The pin for the present files.
    pub presented: Pin,
    /// Whether the member is trusted.
    pub trusted: Trusted,
    /// The member's signature.
    pub signature: Signature,
    /// The difference between the member's pin and `presented`; all of `presented` if there is no pin.
    pub difference: Difference,
    file: String,
    trust: Trust,
}

/// The trust in a member.
#[derive(Clone, Debug, PartialEq)]
pub enum Trusted {
    /// The member matches its pin.
    Pinned(Pin),
    /// The member has no pin, and matches the pin of this other directory.
    Copy(String),
    /// The member has no pin. Its first load pins it, unless approval is required.
    New,
    /// The member differs from its pin.
    Changed(Pin),
}

impl Trusted {
    /// The pin of the member's directory.
    pub fn pin(&self) -> Option<&Pin> {
        match self {
            Self::Pinned(pin) | Self::Changed(pin) => Some(pin),
            Self::Copy(_) | Self::New => None,
        }
    }
}

impl Standing {
    /// The way in which the member was trusted, else `new` or `changed`.
    pub fn as_str(&self) -> &'static str {
        match &self.trusted {
            Trusted::Pinned(pin) => pin.how.as_str(),
            Trusted::Copy(_) => How::Copied.as_str(),
            Trusted::New => "new",
            Trusted::Changed(_) => "changed",
        }
    }
}

/// `guild.lock` and `guild.trust` of one directory, with the requirements of `guild.toml`.
#[derive(Debug)]
pub struct Approval {
    directory: Option<PathBuf>,
    /// The real path of `guild.toml`, which may be a symlink.
    leads_to: Option<PathBuf>,
    required: bool,
    signature_required: bool,
    probe_required: bool,
    /// The directory of the member that its author runs by `guild dev`, and that needs no approval and gets no pin.
    dev: Option<String>,
    /// The members whose postures may change.
    free_posture: BTreeSet<Pattern>,
    /// The options of [`Config::policy_option`].
    policy_option: String,
    /// The audit log that `guild.toml` names.
    audit_log: Option<PathBuf>,
    /// The lock that was read last, and the state of its file.
    read: Mutex<Option<(Fingerprint, Arc<Lock>)>>,
    /// The last reported refusal of each directory: the component's SHA-256, and the reason.
    reported: Mutex<BTreeMap<String, (String, String)>>,
    /// The approval that replaces this one after `guild.toml` was read again.
    successor: OnceLock<Arc<Self>>,
}

impl Approval {
    /// Makes an approval with the settings of `guild.toml`.
    pub fn new(config: &Config) -> Self {
        Self {
            directory: config.directory.clone(),
            leads_to: config.file.as_deref().and_then(|file| file.canonicalize().ok()),
            required: config.require_approval,
            signature_required: config.require_signature,
            probe_required: config.require_probe,
            dev: config.dev.as_ref().map(|directory| directory.display().to_string()),
            free_posture: config.free_posture.clone(),
            policy_option: config.policy_option(),
            audit_log: config.auth.audit_log.clone(),
            read: Mutex::default(),
            reported: Mutex::default(),
            successor: OnceLock::new(),
        }
    }

    /// Replaces this approval with another from now on.
    pub fn is_succeeded_by(&self, successor: Arc<Self>) {
        let _ = self.successor.set(successor);
    }

    /// The approval that is in force now: a component may have begun to load under an earlier one.
    pub fn current(self: &Arc<Self>) -> Arc<Self> {
        let mut current = self;
        while let Some(successor) = current.successor.get() {
            current = successor;
        }
        current.clone()
    }

    /// Whether this admits every member that `other` admits.
    pub fn allows_all_of(&self, other: &Self) -> bool {
        self.directory == other.directory
            && self.required <= other.required
            && self.signature_required <= other.signature_required
            && self.probe_required <= other.probe_required
    }

    /// The path of `guild.lock`, which need not exist.
    pub fn file(&self) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.join(FILE))
    }

    /// The pins.
    ///
    /// # Errors
    ///
    /// Returns an error when the lock cannot be read.
    pub fn lock(&self) -> Result<Arc<Lock>, FileError> {
        let Some(directory) = &self.directory else { return Ok(Arc::default()) };
        let unreadable = FileError::unreadable(FILE);
        let Some(dir) = if_there(open_directory(directory)).map_err(unreadable)? else { return Ok(Arc::default()) };
        let now = Fingerprint::at(&dir, FILE).map_err(unreadable)?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, lock)) = &*read
            && Some(*at) == now
        {
            return Ok(lock.clone());
        }
        let (lock, stamp) = Lock::read(&dir)?;
        let lock = Arc::new(lock);
        *read = stamp.map(|stamp| (stamp, lock.clone()));
        Ok(lock)
    }

    /// The grants of the member in a directory, without the parts of the base toolbox that a later host added and that
    /// were not approved. A member that will be pinned at its first use has all parts.
    pub fn narrowed(&self, grants: Grants, dir: &Dir) -> Grants {
        if directory_path(dir).is_ok_and(|directory| self.is_dev(&directory)) {
            return grants;
        }
        // If the lock cannot be read, no member is loaded.
        let Ok(lock) = self.lock() else { return grants.approved_with(|_| false) };
        let pin = directory_path(dir).ok().and_then(|directory| lock.pins.get(&directory).cloned());
        match pin {
            Some(pin) => grants.approved_with(|part| pin.base.contains(part)),
            None if self.required => grants.approved_with(|_| false),
            None => match self.copied(&lock, dir) {
                Some(pin) => grants.approved_with(|part| pin.base.contains(part)),
                None => grants,
            },
        }
    }

    /// The pin of another directory with the same manifest, of which this directory may be a copy.
    fn copied<'a>(&self, lock: &'a Lock, dir: &Dir) -> Option<&'a Pin> {
        let own = |file: &str| declaration::read(dir, file).ok().flatten().map(|text| digest(&text));
        let (manifest, package) = (own(FILE_NAME), own(package::FILE_NAME));
        lock.pins.values().find(|pin| pin.manifest == manifest && pin.package == package)
    }

    /// Reads a member's component of at most `max` bytes, and finds whether it is trusted. This writes nothing, and
    /// does not refuse untrusted members.
    ///
    /// # Errors
    ///
    /// Returns an error when the component, `guild.lock` or `guild.trust` cannot be read, or the directory cannot be
    /// pinned.
    pub fn look(
        &self,
        key: &MemberKey,
        dir: &Dir,
        spec: &ComponentSpec,
        max: u64,
    ) -> Result<(Candidate, Standing), Refused> {
        let directory = directory_path(dir)
            .map_err(|why| Refused::Directory(format!("member {key}: its directory cannot be pinned: {why}")))?;
        self.look_for(key, dir, spec, max, directory)
    }

    /// As [`Self::look`], for files that will be in the directory `directory`, which is absolute and without symlinks.
    ///
    /// # Errors
    ///
    /// As [`Self::look`].
    pub fn look_for(
        &self,
        key: &MemberKey,
        dir: &Dir,
        spec: &ComponentSpec,
        max: u64,
        directory: String,
    ) -> Result<(Candidate, Standing), Refused> {
        let candidate = Candidate::read(dir, &spec.file, max)?;
        self.check_location(&directory)?;
        let trust = self.directory.as_deref().map(Trust::load).transpose()?.unwrap_or_default();
        let signature = Signature::of_member(dir, &spec.file, &candidate.bytes, &trust, self.is_posture_free(key));
        let declaration = |file: &str| {
            let unreadable = |e: io::Error| Refused::Directory(format!("member {key}: {file} cannot be read: {e}"));
            declaration::read(dir, file).map_err(unreadable)
        };
        let (manifest, package) = (declaration(FILE_NAME)?, declaration(package::FILE_NAME)?);
        let presented = Pin {
            name: key.to_string(),
            how: How::FirstUse,
            since: Timestamp::now().round(Unit::Second).unwrap_or_default(),
            sha256: candidate.hash(),
            bytes: candidate.bytes.len() as u64,
            manifest: manifest.as_deref().map(digest),
            package: package.as_deref().map(digest),
            posture: self.presented_posture(key, dir)?,
            mcp: manifest.and_then(|text| Manifest::parse(&text).ok()?.mcp).map(|line| spelled(&line)),
            key: signature.key().map(str::to_owned),
            imports: candidate.outside.imports.iter().cloned().collect(),
            base: base_toolbox::parts().map(str::to_owned).collect(),
            source: None,
            requested: Asked::of(spec),
        };
        let lock = self.lock()?;
        let trusted = self.trusted(&lock, &directory, &presented);
        let difference = Difference::between(trusted.pin(), &presented, &trust);
        let file = spec.file.clone();
        Ok((candidate, Standing { directory, presented, trusted, signature, difference, file, trust }))
    }

    /// The posture's digest for a pin; `None` if the posture may change.
    fn presented_posture(&self, key: &MemberKey, dir: &Dir) -> Result<Option<String>, Refused> {
        if self.is_posture_free(key) {
            return Ok(None);
        }
        let found = read_whole(dir, POSTURE, POSTURE_BYTES);
        let found = found.map_err(|e| Refused::Directory(format!("member {key}: {POSTURE} cannot be read: {e}")))?;
        Ok(Some(posture_digest(found.as_ref().map(|(text, _)| text.as_slice()))))
    }

    fn is_dev(&self, directory: &str) -> bool {
        self.dev.as_deref() == Some(directory)
    }

    fn is_posture_free(&self, key: &MemberKey) -> bool {
        self.free_posture.iter().any(|pattern| pattern.matches(key.as_str()))
    }

    /// Checks that sessions of a member may be given this posture: it was pinned, or may change. Each dispatch calls
    /// this, since it reads the posture.
    ///
    /// # Errors
    ///
    /// Returns an error when the posture has changed, or when `guild.lock` cannot be read.
    pub fn check_posture(&self, key: &MemberKey, dir: &Dir, posture: Option<&[u8]>) -> Result<(), Refused> {
        if self.is_posture_free(key) {
            return Ok(());
        }
        let lock = self.lock()?;
        let Ok(directory) = directory_path(dir) else { return Ok(()) };
        let pinned = lock.pins.get(&directory).and_then(|pin| pin.posture.as_ref());
        if pinned.is_none_or(|pinned| *pinned == posture_digest(posture)) {
            return Ok(());
        }
        let why = format!(
            "has another {POSTURE} than the pinned one; the operator reviews it with `guild approve`, or lets it \
             change: `posture = \"free\"` under [member.{:?}] in guild.toml",
            key.as_str()
        );
        Err(Refused::NotTrusted { name: key.to_string(), why, command: self.command(&directory, key.as_str()) })
    }

    /// Whether a host may load a member. A refusal is written to the audit log, and the command that approves the
    /// member to the host's log: callers do not see it, since it names directories. A host retries refused members;
    /// both lines are written once for each new reason.
    ///
    /// # Errors
    ///
    /// Returns [`Refused`].
    pub fn admit(&self, standing: &Standing) -> Result<(), Refused> {
        let Standing { directory, presented, .. } = standing;
        let checked = self.check(standing);
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let Err(refused) = &checked else {
            reported.remove(directory);
            return checked;
        };
        let now = (presented.sha256.clone(), refused.to_string());
        if reported.insert(directory.clone(), now.clone()) == Some(now) {
            return checked;
        }
        let is_signature = matches!(refused, Refused::Signature(_));
        let event = if is_signature { "signature-refused" } else { "approval-missing" };
        self.record(event, Who::Host, Outcome::Forbidden, presented, directory);
        if let Some(command) = refused.command() {
            tracing::warn!(member = presented.name, "`{command}` shows the changes, and asks for approval");
        }
        checked
    }

    /// Writes one line about a member to the audit log, which a host may have open at the same time.
    fn record(&self, event: &str, who: Who<'_>, outcome: Outcome, pin: &Pin, directory: &str) {
        let Some(log) = Log::named(self.audit_log.as_deref()) else { return };
        let member = Some(pin.name.as_str()).filter(|name| name.parse::<MemberKey>().is_ok());
        let detail = Some(format!("sha256 {} in {directory}", pin.sha256).into());
        log.record(&Event { event, who, member, outcome, detail, ..Event::default() });
    }

    /// Whether a member may be loaded.
    ///
    /// # Errors
    ///
    /// Returns [`Refused`].
    pub fn check(&self, standing: &Standing) -> Result<(), Refused> {
        self.check_signature(standing)?;
        self.check_trust(&standing.trusted, standing)
    }

    fn check_trust(&self, trusted: &Trusted, standing: &Standing) -> Result<(), Refused> {
        let Standing { directory, presented, trust, .. } = standing;
        if self.is_dev(directory) {
            return Ok(());
        }
        let why = match trusted {
            Trusted::Changed(pin) => format!(
                "has changed since it was pinned ({}): {}; if the change is intended, the operator approves it with \
                 `guild approve`, and restarts the host if it serves only this member",
                pin.how.as_str(),
                Difference::between(Some(pin), presented, trust).sentence()
            ),
            Trusted::New if self.required => "was never approved, and `require_approval = true` in guild.toml \
                requires it; the operator reviews it with `guild approve`, which asks before it approves, and \
                restarts the host if it serves only this member"
                .to_owned(),
            Trusted::New | Trusted::Copy(_) => return self.check_probe(standing),
            Trusted::Pinned(_) => return Ok(()),
        };
        Err(Refused::NotTrusted {
            name: presented.name.clone(),
            why,
            command: self.command(&standing.directory, &presented.name),
        })
    }

    /// The command that approves a member, from any working directory.
    fn command(&self, directory: &str, key: &str) -> String {
        let directory = Path::new(directory);
        // The key is the end of the directory's path.
        let members =
            directory.ancestors().nth(key.split('/').count()).filter(|members| members.join(key) == directory);
        let member = match members {
            Some(members) => format!("{key} --members {}", shell_word(members)),
            None => shell_word(directory),
        };
        format!("guild approve {member}{}", self.policy_option)
    }

    /// Checks that a member's signature permits loading it. `guild approve` does not replace a signature.
    ///
    /// # Errors
    ///
    /// Returns the reason when the signature does not permit loading the member.
    pub fn check_signature(&self, standing: &Standing) -> Result<(), Refused> {
        let (name, file) = (&standing.presented.name, &standing.file);
        let state = match &standing.signature {
            Signature::Bad { why } => {
                let text = format!("the signature `{file}{SIGNATURE_SUFFIX}` of member {name} is bad: {why}");
                return Err(Refused::Signature(text));
            }
            Signature::None => "is not signed",
            Signature::Unknown => "is signed by a key that guild.trust does not have",
            Signature::Good { .. } => return Ok(()),
        };
        if !self.signature_required || self.is_dev(&standing.directory) {
            return Ok(());
        }
        Err(Refused::Signature(format!(
            "the component of member {name} {state}, and `require_signature = true` in guild.toml requires a \
             signature `{file}{SIGNATURE_SUFFIX}` by a key of guild.trust"
        )))
    }

    /// Checks that a member was probed as far as that is required before its first load.
    ///
    /// # Errors
    ///
    /// Returns the reason when a probe is required, and there is none, or it found canaries.
    pub fn check_probe(&self, standing: &Standing) -> Result<(), Refused> {
        if !self.probe_required || self.is_dev(&standing.directory) {
            return Ok(());
        }
        let (name, presented) = (&standing.presented.name, &standing.presented);
        let (what, remedy) = match Probed::of(presented) {
            None => ("these files were not probed".to_owned(), "makes one"),
            Some(Probed { found, .. }) if found.canaries > 0 => {
                (format!("the last one found {} canaries that crossed a boundary", found.canaries), "shows them")
            }
            Some(_) => return Ok(()),
        };
        Err(Refused::NotProbed(format!(
            "member {name} needs a probe without canaries before its first load, since guild.toml has \
             `require_probe = true`, and {what}; `guild probe {}` {remedy}",
            shell_word(Path::new(&standing.directory))
        )))
    }

    /// Pins a member that was checked and could be loaded, unless it is pinned already.
    ///
    /// # Errors
    ///
    /// Returns an error when the member is no longer trusted, or cannot be pinned. If the directory of `guild.toml` is
    /// not writable, this is only logged, and each load of the member counts as its first.
    pub fn pin(&self, standing: &Standing) -> Result<(), Refused> {
        let Standing { directory, presented, trusted, .. } = standing;
        let is_pinned = matches!(trusted, Trusted::Pinned(pin) if pin.key == presented.key && pin.is_whole(presented));
        if is_pinned || self.is_dev(directory) {
            return Ok(());
        }
        let name = &presented.name;
        let mut pinned = None;
        let changed = self.change(name, |lock| {
            // Another process may have changed the lock since it was read.
            let trusted = self.trusted(lock, directory, presented);
            self.check_trust(&trusted, standing)?;
            let pin = match trusted {
                Trusted::Pinned(pin) | Trusted::Changed(pin) => {
                    Pin { key: presented.key.clone(), posture: presented.posture.clone().or(pin.posture), ..pin }
                }
                Trusted::Copy(of) => {
                    let base = lock.pins.get(&of).map(|pin| pin.base.clone()).unwrap_or_default();
                    Pin { how: How::Copied, base, ..presented.clone() }
                }
                Trusted::New => Pin { how: How::FirstUse, ..presented.clone() },
            };
            tracing::info!(member = name, directory, sha256 = pin.sha256, "pinned: {}", pin.how.as_str());
            pinned = Some(pin.clone());
            lock.pins.insert(directory.clone(), pin);
            Ok(())
        });
        match changed {
            Err(Refused::Unpinned { why, .. }) if self.directory.is_none() || is_forbidden(&why) => {
                tracing::warn!(
                    member = name,
                    "the member could not be pinned in guild.lock, so changes of it will not be noticed: {why}"
                );
                return Ok(());
            }
            changed => changed?,
        }
        if let Some(pin) = pinned {
            let event = if pin.how == How::FirstUse { "trusted-on-first-use" } else { "pinned" };
            self.record(event, Who::Host, Outcome::Ok, &pin, directory);
        }
        Ok(())
    }

    /// Approves the member as it was shown, for `who`: from now on only that state is loaded. `source` is the artifact
    /// that it is installed from; without one, that of the pin stays if the files are still those of the artifact.
    ///
    /// # Errors
    ///
    /// Returns an error when the change cannot be written, or when a probe is required and missing.
    pub fn approve(&self, standing: &Standing, source: Option<Source>, who: Who<'_>) -> Result<(), Refused> {
        self.check_probe(standing)?;
        let presented = &standing.presented;
        let pinned = standing.trusted.pin();
        let source = source.or_else(|| pinned.filter(|pin| pin.is_same_build(presented))?.source.clone());
        let changed = self.change(&presented.name, |lock| {
            let name = pinned.map_or(&presented.name, |pin| &pin.name).clone();
            let pin = Pin { how: How::Approved, name, source, ..presented.clone() };
            lock.pins.insert(standing.directory.clone(), pin);
            Ok(())
        });
        let outcome = if changed.is_ok() { Outcome::Ok } else { Outcome::Failed };
        self.record("approved", who, outcome, presented, &standing.directory);
        changed
    }

    /// Trusts a member that an operator published in the host's cluster, who has reviewed it there: from now on only that
    /// state is loaded.
    ///
    /// # Errors
    ///
    /// Returns an error when the change cannot be written.
    pub fn published(&self, standing: &Standing) -> Result<(), Refused> {
        let pin = Pin { how: How::Published, ..standing.presented.clone() };
        let changed = self.change(&pin.name, |lock| {
            lock.pins.insert(standing.directory.clone(), pin.clone());
            Ok(())
        });
        let outcome = if changed.is_ok() { Outcome::Ok } else { Outcome::Failed };
        self.record("approved", Who::Host, outcome, &pin, &standing.directory);
        changed
    }

    /// Records in the audit log that a user reviewed a member and did not approve it.
    pub fn refused(&self, standing: &Standing) {
        self.record("approval-refused", by_user(), Outcome::Forbidden, &standing.presented, &standing.directory);
    }

    /// Moves the pins of directories below `from` to directories below `to`. A member that changed on the way still
    /// differs from its pin and is refused.
    ///
    /// # Errors
    ///
    /// Returns an error when the change cannot be written.
    pub fn moved(&self, from: &Path, to: &Path) -> Result<(), Refused> {
        let new = |old: &str| Some(to.join(Path::new(old).strip_prefix(from).ok()?).to_str()?.to_owned());
        let gone = |old: &str| !Path::new(old).exists();
        if !self.lock()?.pins.keys().any(|old| new(old).is_some() && gone(old)) {
            return Ok(());
        }
        self.change(&to.display().to_string(), |lock| {
            let pins = std::mem::take(&mut lock.pins);
            for (old, pin) in pins {
                match new(&old).filter(|_| gone(&old)) {
                    Some(new) => drop(lock.pins.entry(new).or_insert(pin)),
                    None => drop(lock.pins.insert(old, pin)),
                }
            }
            Ok(())
        })
    }

    /// Forgets the pin of a directory; false if there is none.
    ///
    /// # Errors
    ///
    /// Returns an error when the change cannot be written.
    pub fn forget(&self, directory: &str) -> Result<bool, Refused> {
        let mut found = None;
        self.change(directory, |lock| {
            found = lock.pins.remove(directory);
            Ok(())
        })?;
        if let Some(pin) = &found {
            self.record("approval-forgotten", by_user(), Outcome::Ok, pin, directory);
        }
        Ok(found.is_some())
    }

    /// Reads the lock, changes it and writes it, under the lock of the directory. An error of the files names `name`.
    fn change(&self, name: &str, change: impl FnOnce(&mut Lock) -> Result<(), Refused>) -> Result<(), Refused> {
        let unpinned = |why| Refused::Unpinned { name: name.to_owned(), why };
        let nowhere = || io::Error::other("there is no configuration directory; set HOME, or name a guild.toml");
        let directory = self.directory.as_deref().ok_or_else(nowhere).map_err(unpinned)?;
        let held = DirectoryLock::acquire(directory).map_err(unpinned)?;
        // The lock is read again, since two writes can be too close for the file's times to tell them apart.
        let (before, _) = Lock::read(held.dir())?;
        let mut lock = before.clone();
        change(&mut lock)?;
        if lock != before {
            let stamp = lock.write(&held).map_err(unpinned)?;
            *self.read.lock().unwrap_or_else(PoisonError::into_inner) = Some((stamp, Arc::new(lock)));
        }
        Ok(())
    }

    /// The trust in the member of a directory. A pin of the directory itself decides, even if the same member is pinned
    /// in another directory: otherwise an old version could come back from a copy. If approval is required, only an
    /// approved pin vouches for a copy.
    fn trusted(&self, lock: &Lock, directory: &str, presented: &Pin) -> Trusted {
        // A posture that was free when the member was approved has to be approved once it is no longer free.
        let covers = |pin: &Pin| pin.covers(presented) && (!self.required || pin.is_whole(presented));
        let vouches = |pin: &Pin| (!self.required || pin.how == How::Approved) && covers(pin);
        match lock.pins.get(directory) {
            Some(pin) if covers(pin) => Trusted::Pinned(pin.clone()),
            Some(pin) => Trusted::Changed(pin.clone()),
            None => match lock.pins.iter().find(|(_, pin)| vouches(pin)) {
                Some((other, _)) => Trusted::Copy(other.clone()),
                None => Trusted::New,
            },
        }
    }

    /// Refuses a `guild.toml` in the directory of any member, at any depth.
    fn check_location(&self, member: &str) -> Result<(), Refused> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let real = directory.canonicalize().unwrap_or_else(|_| directory.clone());
        let file = self.leads_to.as_deref().unwrap_or(&real);
        // A member can write in its directory. So the check covers every member's directory, and the target of a
        // symlink.
        let inside = [directory, &real, file].into_iter().flat_map(Path::ancestors).any(declaration::is_member_at);
        if !inside && !real.starts_with(member) && !file.starts_with(member) {
            return Ok(());
        }
        let why = "guild.toml is in a member's directory, where guild.lock would be the member's own to write; keep it in a \
                   directory of its own";
        Err(Refused::Directory(why.to_owned()))
    }
}

/// The user at the command line.
/// The user of this process.
pub fn by_user<'a>() -> Who<'a> {
    Who::User(rustix::process::getuid().as_raw())
}

/// Whether the error means that writing is forbidden, which is permanent and which no plugin can cause.
fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

impl Pin {
    /// Whether `presented` matches this pin. A signed component must be signed by the same key; an unsigned one may
    /// have been signed since.
    fn covers(&self, presented: &Self) -> bool {
        self.sha256 == presented.sha256
            && self.requested == presented.requested
            && self.manifest == presented.manifest
            && self.package == presented.package
            && (self.posture.is_none() || presented.posture.is_none() || self.posture == presented.posture)
            && (self.key.is_none() || self.key == presented.key)
    }

    /// Whether `presented` has the same component and the same manifest.
    fn is_same_build(&self, presented: &Self) -> bool {
        (&self.sha256, &self.manifest, &self.package) == (&presented.sha256, &presented.manifest, &presented.package)
    }

    /// Whether the pin has every fact of `presented`.
    fn is_whole(&self, presented: &Self) -> bool {
        self.posture.is_some() >= presented.posture.is_some()
    }
}

/// SHA-256 in lower-case hexadecimal.
fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The digest of a posture for a pin.
fn posture_digest(posture: Option<&[u8]>) -> String {
    posture.map_or_else(|| NO_FILE.to_owned(), digest)
}

/// Formats an `mcp` line like a shell command, with its variables before it.
fn spelled(line: &McpCommand) -> String {
    let variables = line.env.iter().map(|(name, value)| format!("{name}={}", shell_word(Path::new(value))));
    let words = [&line.command].into_iter().chain(&line.args).map(|word| shell_word(Path::new(word)));
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

/// The path of an open directory, without symlinks, if it still leads there.
///
/// # Errors
///
/// Returns the reason when the directory has no such path.
pub fn directory_path(dir: &Dir) -> Result<String, String> {
    let own = dir.dir_metadata().map_err(|e| e.to_string())?;
    let path = std::fs::read_link(Path::new("/proc/self/fd").join(dir.as_fd().as_raw_fd().to_string()));
    let path = path.map_err(|e| format!("its path cannot be read: {e}"))?;
    let found = std::fs::symlink_metadata(&path);
    let found = found.is_ok_and(|found| {
        use std::os::unix::fs::MetadataExt as _;
        (found.dev(), found.ino()) == (own.dev(), own.ino())
    });
    match path.into_os_string().into_string() {
        Ok(path) if found => Ok(path),
        Ok(_) => Err("it was moved or removed in the meantime".to_owned()),
        Err(_) => Err("its path is not UTF-8".to_owned()),
    }
}
