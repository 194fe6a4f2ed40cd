//! Reads and writes `guild.lock`, which pins each member in its approved or first used state.
//!
//! The file is read without a lock, since it is only replaced as a whole. Every change holds the lock of its directory,
//! so that hosts that start at the same time lose no pin.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use cap_std::fs::{Dir, MetadataExt as _};
use guild_config::{
    directory_lock::DirectoryLock,
    text::{check_unshared, line_of},
};
use guild_contract::{
    job::bounds::Bounds,
    manifest::{ArtifactsRequest, ComponentSpec, RequestedGrants, World},
    text::nearest::suggested,
};
use guild_fs::{
    durable::{if_there, read_whole},
    fingerprint::Fingerprint,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::error::FileError;

/// The file's name, in the directory of `guild.toml`.
pub const FILE: &str = "guild.lock";
/// The version of the file's format.
const VERSION: u32 = 1;
/// The greatest size of the file, for some ten thousand members. A pin that would make it larger is not added, so that
/// the file can always be read.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// All users may read the file: a host may run as another user than the one who approves.
const MODE: u32 = 0o644;
const HEADER: &str = "\
# What each member was when it was approved, or first used. `guild approve`, `install` and `upgrade` change it, and so
# does the first load of a member; it stands beside guild.toml.
";

/// The content of `guild.lock`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    version: u32,
    /// The pins, by the directory of the member: absolute, without symlinks. A member's key would be ambiguous: it
    /// differs in a roster and alone, and two rosters may each have a `researcher`.
    #[serde(rename = "member", default)]
    pub pins: BTreeMap<String, Pin>,
}

/// The pinned state of a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The member's key at that time, for people.
    pub name: String,
    /// The way in which the member was trusted.
    pub how: How,
    /// The time of the pin.
    pub since: Timestamp,
    /// SHA-256 of the component, in lower-case hexadecimal.
    pub sha256: String,
    /// Bytes of the component.
    pub bytes: u64,
    /// SHA-256 of the member's `guild-member.json`; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// SHA-256 of the member's `package.json`, if the file declares a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// SHA-256 of the member's posture, or the text `none` without a posture. `None` if the operator let the posture
    /// change when it was pinned (`posture = "free"`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub posture: Option<String>,
    /// The command line of the member's own host: the command, the arguments and the variables of the manifest's `mcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<String>,
    /// The minisign public key of the signature, if it is a key of `guild.trust`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The imports of the component, sorted. They follow from its hash, and are stored so that a change can be shown.
    pub imports: BTreeSet<String>,
    /// The parts of the base toolbox that the member's sessions have in commissions and meetings without a request.
    /// Other parts wait for an approval.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub base: BTreeSet<String>,
    /// The artifact that the member was installed from. It is dropped once another state is approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The requests of the member's manifest.
    pub requested: Asked,
}

/// An artifact of a registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The reference, with the tag that it had, and without a digest.
    pub reference: String,
    /// The digest of the artifact's manifest: `sha256:` and 64 hexadecimal digits.
    pub digest: String,
}

/// The way in which a member was trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// The member was loaded for the first time, with `require_approval = false`.
    FirstUse,
    /// A user approved the member with `guild approve`.
    Approved,
    /// The same component with the same requests was pinned in another directory.
    Copied,
    /// The operator published the member in the host's cluster.
    Published,
}

impl How {
    /// The words for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FirstUse => "first use",
            Self::Approved => "approved",
            Self::Copied => "copied",
            Self::Published => "published",
        }
    }
}

/// The requests of a manifest's `component`. Lists are sorted, since their order has no meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Asked {
    /// `component.world`.
    pub world: World,
    /// `component.tools`.
    #[serde(default)]
    pub tools: BTreeSet<String>,
    /// `component.toolboxes`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub toolboxes: BTreeSet<String>,
    /// `component.scopes`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub scopes: BTreeSet<String>,
    /// `component.checkoutScope`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkout_scope: Option<String>,
    /// `component.grants`.
    #[serde(default)]
    pub grants: RequestedGrants,
    /// `component.resources`.
    #[serde(default)]
    pub resources: Bounds,
}

impl Asked {
    /// The requests of a manifest.
    pub fn of(spec: &ComponentSpec) -> Self {
        let set = |list: &[String]| list.iter().cloned().collect();
        let sorted = |list: &mut Vec<String>| {
            list.sort_unstable();
            list.dedup();
        };
        let mut grants = spec.grants.clone();
        if let Some(files) = &mut grants.files {
            sorted(&mut files.roots);
        }
        if let Some(web) = &mut grants.web {
            sorted(&mut web.hosts);
        }
        // `{}` requests the same as a missing key.
        grants.artifacts = grants.artifacts.filter(|artifacts| *artifacts != ArtifactsRequest::default());
        grants.lore = grants.lore.filter(|lore| lore.write);
        grants.worktree = grants.worktree.filter(|worktree| worktree.write);
        Self {
            world: spec.world,
            tools: set(&spec.tools),
            toolboxes: spec.toolboxes.iter().map(ToString::to_string).collect(),
            scopes: spec.scopes.iter().map(|scope| scope.as_str().to_owned()).collect(),
            checkout_scope: spec.checkout_scope.map(|scope| scope.as_str().to_owned()),
            grants,
            resources: spec.resources,
        }
    }
}

impl Default for Lock {
    fn default() -> Self {
        Self { version: VERSION, pins: BTreeMap::new() }
    }
}

impl Lock {
    /// Reads the lock of a directory; a missing file is an empty lock.
    pub(crate) fn read(dir: &Dir) -> Result<(Self, Option<Fingerprint>), FileError> {
        let unreadable = FileError::unreadable(FILE);
        if let Some(found) = if_there(dir.symlink_metadata(FILE)).map_err(unreadable)? {
            if found.is_symlink() {
                let why = "it is a symlink, which is not followed; replace it with the file itself";
                return Err(unreadable(io::Error::other(why)));
            }
            check_unshared(found.mode()).map_err(unreadable)?;
        }
        let found = read_whole(dir, FILE, MAX_BYTES).map_err(unreadable)?;
        let Some((bytes, stamp)) = found else { return Ok((Self::default(), None)) };
        let text = str::from_utf8(&bytes).map_err(|e| unreadable(io::Error::other(e)))?;
        Ok((Self::parse(text)?, Some(stamp)))
    }

    fn parse(text: &str) -> Result<Self, FileError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: Spanned<u32>,
        }
        let wrong = |offset: usize, why: &str| FileError::Invalid {
            file: FILE,
            line: line_of(text, offset),
            text: why.lines().collect::<Vec<_>>().join(" "),
        };
        let invalid = |e: toml::de::Error| {
            let why = suggested(e.message()).unwrap_or_else(|| e.message().to_owned());
            wrong(e.span().unwrap_or_default().start, &why)
        };
        // The version is read first, since another version may have other keys.
        let Versioned { version } = toml::from_str(text).map_err(invalid)?;
        if *version.get_ref() != VERSION {
            let why = format!(
                "version {} is not supported by this host, which supports version {VERSION}",
                version.get_ref()
            );
            return Err(wrong(version.span().start, &why));
        }
        toml::from_str(text).map_err(invalid)
    }

    /// Replaces the lock in the directory that `held` locks.
    pub(crate) fn write(&self, held: &DirectoryLock) -> io::Result<Fingerprint> {
        held.replace(FILE, self.text()?.as_bytes(), MODE)
    }

    fn text(&self) -> io::Result<String> {
        let text = HEADER.to_owned() + &toml::to_string_pretty(self).map_err(io::Error::other)?;
        if text.len() as u64 > MAX_BYTES {
            let why =
                "it would be larger than 16 MiB; `guild approve --list` shows its pins, and `--forget` removes one";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        Ok(text)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use guild_contract::Manifest;
    use serde_json::json;

    use super::*;

    /// A pin of a component with these requests.
    pub(crate) fn pin(spec: &ComponentSpec) -> Pin {
        Pin {
            name: "a".into(),
            how: How::FirstUse,
            since: Timestamp::UNIX_EPOCH,
            sha256: "00".into(),
            bytes: 8,
            manifest: None,
            package: None,
            posture: None,
            mcp: None,
            key: None,
            imports: BTreeSet::new(),
            base: BTreeSet::new(),
            source: None,
            requested: Asked::of(spec),
        }
    }

    fn lock() -> Lock {
        let manifest = json!({
            "name": "a", "displayName": "a", "description": "", "version": "1", "transport": "http",
            "mcp": {"command": "guild", "args": []}, "component": {"file": "a.wasm", "world": "worker",
            "grants": {"log": {}, "memory": {"write": true}, "files": {"roots": ["b", "a", "b"]}, "job-tools": {},
            "web": {"search": true}, "agent": {"ownTools": true}, "artifacts": {"bytes": 7}},
            "tools": ["Read", "Grep"], "resources": {"maxTurns": 3, "maxBudgetUsd": 0.1}}
        });
        let spec = Manifest::parse(manifest.to_string().as_bytes()).unwrap().component.unwrap();
        let source = Source { reference: "a.example/a:1".into(), digest: "sha256:00".into() };
        let imports = ["guild:worker/log@0.1.0".to_owned()].into();
        let pin = Pin { imports, source: Some(source), ..pin(&spec) };
        Lock { pins: [("/srv/\"odd\"\n name".to_owned(), pin)].into(), ..Lock::default() }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let lock = lock();
        let text = lock.text().unwrap();
        assert_eq!(Lock::parse(&text).unwrap(), lock, "{text}");
        assert!(text.contains("how = \"first-use\"") && text.contains("since = \"1970-01-01T00:00:00Z\""), "{text}");
    }

    #[test]
    fn a_lock_that_is_not_understood_is_an_error_with_its_line() {
        let text = lock().text().unwrap();
        let cases = [
            (String::new(), 1, "version"),
            (text.replace("version = 1", "version = 2"), 3, "version 2"),
            (text.replace("bytes = 8", "bytes = 8\nshape = 1"), 11, "`shape`"),
            (text.replace("sha256 = ", "sha265 = "), 9, "did you mean `sha256`?"),
            (text.replace("how = \"first-use\"", "how = \"guessed\""), 7, "guessed"),
            (format!("{text}x"), text.lines().count() + 1, "key"),
        ];
        for (text, line, named) in cases {
            let error = Lock::parse(&text).unwrap_err().to_string();
            let begin = format!("guild.lock:{line}: ");
            assert!(error.starts_with(&begin) && error.contains(named), "{begin} {named}: {error}\n{text}");
        }
    }
}
