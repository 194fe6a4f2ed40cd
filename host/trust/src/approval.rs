//! Approval: whether a member is still what the operator trusts.
//!
//! `guild.lock` beside `guild.toml` pins each member: its component, and what its manifest asks for. The first load pins
//! (trust on first use), unless `require_approval = true`; what changed since is not loaded until `guild approve`. A copy of
//! what is pinned is what was trusted already, and loads. `guild.trust`, beside it, has the keys whose signatures are
//! believed.
//!
//! Neither file is looked for in a member's directory: what a member brings along cannot make it trusted. Where one of
//! them cannot be read, nothing loads.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, AsRawFd as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use cap_std::fs::{Dir, MetadataExt as _};
use guild_auth::audit_log::{Event, Log, Outcome, Who};
use guild_config::{Config, directory_lock::DirectoryLock, shell_word};
use guild_contract::{
    MemberKey,
    manifest::{ComponentSpec, FILE_NAME},
};
use guild_jobs::durable::open_directory;
use guild_sandbox::{Candidate, LoadError};
use guild_session::fingerprint::Fingerprint;
use jiff::{Timestamp, Unit};

use crate::{
    difference::Difference,
    error::FileError,
    lock::{Asked, FILE, How, Lock, Pin},
    signature::{SUFFIX, Signature, Trust},
};

/// Why a member's component is not loaded. Each text says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It cannot be read, checked or compiled.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// What was trusted cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is not what it was when it was trusted.
    #[error(
        "member {name} is not what it was when it was pinned ({}): {}; if that is meant, its operator \
         approves it with `guild approve`, and restarts its host if that serves it alone",
        how.as_str(), difference.sentence()
    )]
    Changed {
        /// The member.
        name: String,
        /// How it came to be trusted.
        how: How,
        /// What changed.
        difference: Difference,
        /// What approves it.
        command: String,
    },
    /// Nobody approved it, and `require_approval = true`.
    #[error(
        "member {name} was never approved, and `require_approval = true` in guild.toml wants that; its \
         operator looks at it with `guild approve`, which asks before it approves, and restarts its host if that serves it alone"
    )]
    NotApproved {
        /// The member.
        name: String,
        /// What approves it.
        command: String,
    },
    /// It has a signature that is wrong.
    #[error("the signature `{file}{SUFFIX}` of member {name} is bad: {why}")]
    BadSignature {
        /// The member.
        name: String,
        /// The component's file.
        file: String,
        /// What is wrong.
        why: String,
    },
    /// It has no signature by a trusted key, and `require_signature = true`.
    #[error(
        "the component of member {name} {}, and `require_signature = true` in guild.toml wants a signature `{file}{SUFFIX}` by a \
         key of guild.trust",
        if *signed { "is signed by a key that guild.trust does not have" } else { "is not signed" }
    )]
    NotSigned {
        /// The member.
        name: String,
        /// The component's file.
        file: String,
        /// Whether it has a signature, by a key that is not trusted.
        signed: bool,
    },
    /// Its directory is nowhere that a pin could name.
    #[error("member {name}: its directory cannot be pinned: {why}")]
    Directory {
        /// The member.
        name: String,
        /// Why.
        why: String,
    },
    /// The policy is kept in a member's directory.
    #[error(
        "guild.toml is in a member's directory, where guild.lock would be the member's own to write; keep it in a directory of \
         its own"
    )]
    Misplaced,
    /// It could not be pinned.
    #[error("member {name} could not be pinned in guild.lock: {why}")]
    Unpinned {
        /// The member.
        name: String,
        /// Why.
        why: String,
    },
}

impl Refused {
    /// The command that approves the member, wherever it is typed. It names directories, and so is for who operates the
    /// host, and not for its callers.
    pub fn command(&self) -> Option<&str> {
        match self {
            Self::Changed { command, .. } | Self::NotApproved { command, .. } => Some(command),
            _ => None,
        }
    }
}

/// What a member presents to be trusted, and what is to be said about that.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Its directory: absolute, without symlinks.
    pub directory: String,
    /// It as it would be pinned now.
    pub presented: Pin,
    /// Whether it is trusted.
    pub trusted: Trusted,
    /// Its signature.
    pub signature: Signature,
    /// What its pin and `presented` differ in; all that there is, where it has no pin.
    pub difference: Difference,
    file: String,
    trust: Trust,
}

/// Whether a member is trusted.
#[derive(Clone, Debug, PartialEq)]
pub enum Trusted {
    /// It is what was pinned.
    Pinned(Pin),
    /// It has no pin, and is what is pinned in this other directory.
    Copy(String),
    /// It has no pin; its first load pins it, unless that has to be approved.
    New,
    /// It is not what was pinned.
    Changed(Pin),
}

impl Trusted {
    /// What is pinned of its directory.
    pub fn pin(&self) -> Option<&Pin> {
        match self {
            Self::Pinned(pin) | Self::Changed(pin) => Some(pin),
            Self::Copy(_) | Self::New => None,
        }
    }
}

impl Standing {
    /// In words: how it came to be trusted, `new` or `changed`.
    pub fn as_str(&self) -> &'static str {
        match &self.trusted {
            Trusted::Pinned(pin) => pin.how.as_str(),
            Trusted::Copy(_) => How::Copied.as_str(),
            Trusted::New => "new",
            Trusted::Changed(_) => "changed",
        }
    }
}

/// Who is trusted: `guild.lock` and `guild.trust` of one directory, and what `guild.toml` demands.
#[derive(Debug)]
pub struct Approval {
    directory: Option<PathBuf>,
    /// Where `guild.toml` itself is, if it is a symlink.
    leads_to: Option<PathBuf>,
    required: bool,
    signature_required: bool,
    /// [`Config::policy_option`].
    policy_option: String,
    /// The audit log that `guild.toml` names.
    audit_log: Option<PathBuf>,
    /// What was read last, and which state of the file that was.
    read: Mutex<Option<(Fingerprint, Arc<Lock>)>>,
    /// What was refused last, by its directory: its component's SHA-256, and why.
    told: Mutex<BTreeMap<String, (String, String)>>,
    /// What holds in its place, once `guild.toml` was read again.
    successor: OnceLock<Arc<Self>>,
}

impl Approval {
    /// As `guild.toml` has it.
    pub fn new(config: &Config) -> Self {
        Self {
            directory: config.directory.clone(),
            leads_to: config.file.as_deref().and_then(|file| file.canonicalize().ok()),
            required: config.require_approval,
            signature_required: config.require_signature,
            policy_option: config.policy_option(),
            audit_log: config.auth.audit_log.clone(),
            read: Mutex::default(),
            told: Mutex::default(),
            successor: OnceLock::new(),
        }
    }

    /// Another one holds in its place from now on.
    pub fn is_succeeded_by(&self, successor: Arc<Self>) {
        let _ = self.successor.set(successor);
    }

    /// The one that holds now: a component may have begun to load under an earlier one.
    pub fn current(self: &Arc<Self>) -> Arc<Self> {
        let mut current = self;
        while let Some(successor) = current.successor.get() {
            current = successor;
        }
        current.clone()
    }

    /// Whether whoever may be loaded under `other` may be so under this.
    pub fn allows_all_of(&self, other: &Self) -> bool {
        self.directory == other.directory
            && self.required <= other.required
            && self.signature_required <= other.signature_required
    }

    /// Where `guild.lock` is, or would be.
    pub fn file(&self) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.join(FILE))
    }

    /// The pins.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn lock(&self) -> Result<Arc<Lock>, FileError> {
        let Some(directory) = &self.directory else { return Ok(Arc::default()) };
        let unreadable = |e: io::Error| FileError::Unreadable { file: FILE, why: e.to_string() };
        let dir = match open_directory(directory) {
            Ok(dir) => dir,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Arc::default()),
            Err(e) => return Err(unreadable(e)),
        };
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

    /// What is to be said about a member whose component is these bytes. It writes nothing and refuses nothing.
    ///
    /// # Errors
    /// Where `guild.lock` or `guild.trust` cannot be read, or the directory is none that can be pinned.
    pub fn of(
        &self,
        key: &MemberKey,
        dir: &Dir,
        spec: &ComponentSpec,
        candidate: &Candidate,
    ) -> Result<Standing, Refused> {
        let directory = place(dir).map_err(|why| Refused::Directory { name: key.to_string(), why })?;
        self.check_place(&directory)?;
        let trust = self.directory.as_deref().map(Trust::load).transpose()?.unwrap_or_default();
        let signature = Signature::beside(dir, &spec.file, &candidate.bytes, &trust);
        let presented = Pin {
            name: key.to_string(),
            how: How::FirstUse,
            since: Timestamp::now().round(Unit::Second).unwrap_or_default(),
            sha256: candidate.hash(),
            bytes: candidate.bytes.len() as u64,
            key: signature.key().map(str::to_owned),
            imports: candidate.outside.imports.iter().cloned().collect(),
            wishes: Asked::of(spec),
        };
        let lock = self.lock()?;
        let trusted = self.trusted(&lock, &directory, &presented);
        let difference = Difference::between(trusted.pin(), &presented, &trust);
        Ok(Standing { directory, presented, trusted, signature, difference, file: spec.file.clone(), trust })
    }

    /// What is to be said about a member, whose component may have `max` bytes.
    ///
    /// # Errors
    /// As [`Self::of`], or where its component cannot be read.
    pub fn look(&self, key: &MemberKey, dir: &Dir, spec: &ComponentSpec, max: u64) -> Result<Standing, Refused> {
        self.of(key, dir, spec, &Candidate::read(dir, &spec.file, max)?)
    }

    /// Whether a member may be loaded, for a host that is about to. That it may not is written into the audit log, and the
    /// command that would help into the host's: callers are not told it, since it names directories. A host tries again
    /// what it refused; both are written once, until something else is refused.
    ///
    /// # Errors
    /// Why not: see [`Refused`].
    pub fn admit(&self, standing: &Standing) -> Result<(), Refused> {
        let Standing { directory, presented, .. } = standing;
        let checked = self.check(standing);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let Err(refused) = &checked else {
            told.remove(directory);
            return checked;
        };
        let now = (presented.sha256.clone(), refused.to_string());
        if told.insert(directory.clone(), now.clone()) == Some(now) {
            return checked;
        }
        let event = match refused {
            Refused::BadSignature { .. } | Refused::NotSigned { .. } => "signature-refused",
            _ => "approval-missing",
        };
        self.record(event, Who::Host, Outcome::Forbidden, presented, directory);
        if let Some(command) = refused.command() {
            tracing::warn!(member = presented.name, "`{command}` shows what would be approved, and asks");
        }
        checked
    }

    /// Writes into the audit log what became of a member. Whoever does so has the file for one line only: it may be a host's
    /// at the same time.
    fn record(&self, event: &str, who: Who<'_>, outcome: Outcome, pin: &Pin, directory: &str) {
        let Some(log) = Log::named(self.audit_log.as_deref()) else { return };
        let member = Some(pin.name.as_str()).filter(|name| name.parse::<MemberKey>().is_ok());
        let detail = Some(format!("sha256 {} in {directory}", pin.sha256).into());
        log.record(&Event { event, who, member, outcome, detail, ..Event::default() });
    }

    /// Whether a member may be loaded.
    ///
    /// # Errors
    /// Why not: see [`Refused`].
    pub fn check(&self, standing: &Standing) -> Result<(), Refused> {
        self.check_signature(standing)?;
        self.check_trust(&standing.trusted, standing)
    }

    fn check_trust(&self, trusted: &Trusted, standing: &Standing) -> Result<(), Refused> {
        let Standing { presented, trust, .. } = standing;
        let name = presented.name.clone();
        let command = || self.command(standing);
        match trusted {
            Trusted::Changed(pin) => {
                let difference = Difference::between(Some(pin), presented, trust);
                Err(Refused::Changed { name, how: pin.how, difference, command: command() })
            }
            Trusted::New if self.required => Err(Refused::NotApproved { name, command: command() }),
            _ => Ok(()),
        }
    }

    /// The command that approves a member, wherever it is typed.
    fn command(&self, Standing { directory, presented, .. }: &Standing) -> String {
        let directory = Path::new(directory);
        let key = &presented.name;
        // A key is the end of its directory's path.
        let members =
            directory.ancestors().nth(key.split('/').count()).filter(|members| members.join(key) == directory);
        let member = match members {
            Some(members) => format!("{key} --members {}", shell_word(members)),
            None => shell_word(directory),
        };
        format!("guild approve {member}{}", self.policy_option)
    }

    /// Whether its signature is as it has to be; `guild approve` does not make up for it.
    ///
    /// # Errors
    /// Why it is not.
    pub fn check_signature(&self, standing: &Standing) -> Result<(), Refused> {
        let (name, file) = (standing.presented.name.clone(), standing.file.clone());
        match &standing.signature {
            Signature::Bad { why } => Err(Refused::BadSignature { name, file, why: why.clone() }),
            Signature::None | Signature::Unknown if self.signature_required => {
                Err(Refused::NotSigned { name, file, signed: standing.signature == Signature::Unknown })
            }
            _ => Ok(()),
        }
    }

    /// Pins what was checked and has turned out to load, where that is not pinned yet.
    ///
    /// # Errors
    /// Where it is no longer trusted by now, or cannot be pinned. Where nothing may be written beside `guild.toml`, that is
    /// only logged: a member that is loaded for the first time then is so each time.
    pub fn pin(&self, standing: &Standing) -> Result<(), Refused> {
        let Standing { directory, presented, trusted, .. } = standing;
        if matches!(trusted, Trusted::Pinned(pin) if pin.key == presented.key) {
            return Ok(());
        }
        let name = &presented.name;
        let mut pinned = None;
        let changed = self.change(|lock| {
            // Others may have changed it since it was read.
            let trusted = self.trusted(lock, directory, presented);
            self.check_trust(&trusted, standing)?;
            let pin = match trusted {
                Trusted::Pinned(pin) | Trusted::Changed(pin) => Pin { key: presented.key.clone(), ..pin },
                Trusted::Copy(_) => Pin { how: How::Copied, ..presented.clone() },
                Trusted::New => Pin { how: How::FirstUse, ..presented.clone() },
            };
            tracing::info!(member = name, directory, sha256 = pin.sha256, "pinned: {}", pin.how.as_str());
            pinned = Some(pin.clone());
            lock.pins.insert(directory.clone(), pin);
            Ok(())
        });
        let why = match changed {
            Ok(()) => {
                if let Some(pin) = pinned {
                    let event = if pin.how == How::FirstUse { "trusted-on-first-use" } else { "pinned" };
                    self.record(event, Who::Host, Outcome::Ok, &pin, directory);
                }
                return Ok(());
            }
            Err(ChangeError::Refused(why)) => return Err(why),
            Err(ChangeError::Write(e)) if !is_forbidden(&e) => {
                return Err(Refused::Unpinned { name: name.clone(), why: e.to_string() });
            }
            Err(ChangeError::Write(e)) => e.to_string(),
            Err(ChangeError::Nowhere) => "there is no configuration directory".to_owned(),
        };
        tracing::warn!(
            member = name,
            "it could not be pinned in guild.lock, so a change of it will not be noticed: {why}"
        );
        Ok(())
    }

    /// Approves what was shown: only that is loaded from now on.
    ///
    /// # Errors
    /// Where it cannot be written down.
    pub fn approve(&self, standing: &Standing) -> Result<(), Refused> {
        let presented = &standing.presented;
        let changed = self.change(|lock| {
            let name = standing.trusted.pin().map_or(&presented.name, |pin| &pin.name).clone();
            let pin = Pin { how: How::Approved, name, ..presented.clone() };
            lock.pins.insert(standing.directory.clone(), pin);
            Ok(())
        });
        let outcome = if changed.is_ok() { Outcome::Ok } else { Outcome::Failed };
        self.record("approved", by_user(), outcome, presented, &standing.directory);
        changed.map_err(|e| e.of(&presented.name))
    }

    /// Forgets the pin of a directory; false where there is none.
    ///
    /// # Errors
    /// Where it cannot be written down.
    pub fn forget(&self, directory: &str) -> Result<bool, Refused> {
        let mut found = None;
        let changed = self.change(|lock| {
            found = lock.pins.remove(directory);
            Ok(())
        });
        if let (Ok(()), Some(pin)) = (&changed, &found) {
            self.record("approval-forgotten", by_user(), Outcome::Ok, pin, directory);
        }
        changed.map(|()| found.is_some()).map_err(|e| e.of(directory))
    }

    /// Reads the lock, changes it and writes it, while nobody else does.
    fn change(&self, change: impl FnOnce(&mut Lock) -> Result<(), Refused>) -> Result<(), ChangeError> {
        let directory = self.directory.as_deref().ok_or(ChangeError::Nowhere)?;
        let held = DirectoryLock::acquire(directory).map_err(ChangeError::Write)?;
        // Anew: two writes can be too close for a file's times to tell them apart.
        let (before, _) = Lock::read(held.dir()).map_err(|e| ChangeError::Refused(e.into()))?;
        let mut lock = before.clone();
        change(&mut lock).map_err(ChangeError::Refused)?;
        if lock != before {
            let stamp = lock.write(&held).map_err(ChangeError::Write)?;
            *self.read.lock().unwrap_or_else(PoisonError::into_inner) = Some((stamp, Arc::new(lock)));
        }
        Ok(())
    }

    /// Whether what a directory presents is trusted. A pin of the directory itself decides, even where the same is pinned
    /// elsewhere: else an old version that lies about in a copy could come back. Where an approval is required, only what
    /// was approved vouches for a copy.
    fn trusted(&self, lock: &Lock, directory: &str, presented: &Pin) -> Trusted {
        let vouches = |pin: &Pin| (!self.required || pin.how == How::Approved) && pin.covers(presented);
        match lock.pins.get(directory) {
            Some(pin) if pin.covers(presented) => Trusted::Pinned(pin.clone()),
            Some(pin) => Trusted::Changed(pin.clone()),
            None => match lock.pins.iter().find(|(_, pin)| vouches(pin)) {
                Some((other, _)) => Trusted::Copy(other.clone()),
                None => Trusted::New,
            },
        }
    }

    /// Refuses a policy in a member's directory, at whatever depth, whichever member that is.
    fn check_place(&self, member: &str) -> Result<(), Refused> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let real = directory.canonicalize().unwrap_or_else(|_| directory.clone());
        let file = self.leads_to.as_deref().unwrap_or(&real);
        let is_member = |directory: &Path| directory.join(FILE_NAME).symlink_metadata().is_ok();
        // Any member's, and not only this one's: what is in there is that member's to write. So is the file that a symlink
        // leads to.
        let inside = [directory, &real, file].into_iter().flat_map(Path::ancestors).any(is_member);
        if inside || real.starts_with(member) || file.starts_with(member) { Err(Refused::Misplaced) } else { Ok(()) }
    }
}

/// Whoever is at the command line.
fn by_user<'a>() -> Who<'a> {
    Who::User(rustix::process::getuid().as_raw())
}

/// Why the lock was not changed.
enum ChangeError {
    /// There is no configuration directory.
    Nowhere,
    /// It could not be written.
    Write(io::Error),
    /// It must not be.
    Refused(Refused),
}

impl ChangeError {
    fn of(self, name: &str) -> Refused {
        let why = match self {
            Self::Refused(why) => return why,
            Self::Nowhere => "there is no configuration directory; set HOME, or name a guild.toml".to_owned(),
            Self::Write(e) => e.to_string(),
        };
        Refused::Unpinned { name: name.to_owned(), why }
    }
}

/// Whether nothing may be written there, which does not pass and which no plugin can bring about.
fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

impl Pin {
    /// Whether what is presented is what was pinned. What was signed has to be signed by the same key; what was not, may
    /// be now.
    fn covers(&self, presented: &Self) -> bool {
        self.sha256 == presented.sha256
            && self.wishes == presented.wishes
            && (self.key.is_none() || self.key == presented.key)
    }
}

/// Where a directory is, that is open: its path without symlinks, as the system tells it, and still leading there.
pub fn place(dir: &Dir) -> Result<String, String> {
    let own = dir.dir_metadata().map_err(|e| e.to_string())?;
    let path = std::fs::read_link(Path::new("/proc/self/fd").join(dir.as_fd().as_raw_fd().to_string()));
    let path = path.map_err(|e| format!("the system does not tell where it is: {e}"))?;
    let found = std::fs::symlink_metadata(&path);
    let found = found.is_ok_and(|found| {
        use std::os::unix::fs::MetadataExt as _;
        (found.dev(), found.ino()) == (own.dev(), own.ino())
    });
    match path.into_os_string().into_string() {
        Ok(path) if found => Ok(path),
        Ok(_) => Err("it was moved or removed meanwhile".to_owned()),
        Err(_) => Err("its path is no UTF-8".to_owned()),
    }
}
