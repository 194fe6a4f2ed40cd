//! Keeps what the last probe of a member's present files found, in the host's own directory of the user: an approval
//! shows it, and `require_probe` asks for it.

use std::{fs, io, path::PathBuf};

use guild_config::directories;
use guild_contract::text::hex;
use guild_fs::durable::{Survives, open_directory, replace};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::lock::Pin;

/// The numbers of findings of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    /// Canaries that crossed a boundary.
    pub canaries: usize,
    /// Requests that nothing explains.
    pub unexpected_requests: usize,
    /// Differences between runs.
    pub differences: usize,
    /// Files of a project that programs run.
    pub planted: usize,
    /// Artifacts that do something when they are opened.
    #[serde(default)]
    pub active: usize,
    /// Texts for models that stand nowhere in the member's files.
    pub unknown_texts: usize,
    /// Whether an obedient model took part.
    pub obedient: bool,
}

impl Found {
    /// The number of findings of each kind, with its name for programs and its name for people.
    pub fn kinds(&self) -> [(&'static str, &'static str, usize); 6] {
        [
            ("canary", "canaries", self.canaries),
            ("unexpected-request", "unexpected requests", self.unexpected_requests),
            ("difference", "differences", self.differences),
            ("planted-file", "planted files", self.planted),
            ("active-artifact", "active artifacts", self.active),
            ("unknown-text", "texts that stand nowhere in its files", self.unknown_texts),
        ]
    }
}

/// The last probe of a member's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probed {
    /// The member's key then.
    pub member: String,
    /// The SHA-256 of the component, in lower-case hexadecimal.
    pub component: String,
    /// The SHA-256 of the manifest, as a pin has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// The SHA-256 of the `package.json`, as a pin has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// The SHA-256 of the posture, or `none`, as a pin has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub posture: Option<String>,
    /// The moment: RFC 3339 in UTC.
    pub at: String,
    /// The numbers of findings.
    pub found: Found,
}

impl Probed {
    /// Keeps a probe of these files in place of an earlier one. Where the user has no directory for state, nothing is
    /// kept.
    ///
    /// # Errors
    ///
    /// Returns an error when the file cannot be written.
    pub fn keep(files: &Pin, found: Found) -> io::Result<()> {
        let Some(path) = place(files) else { return Ok(()) };
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let probed = Self {
            member: files.name.clone(),
            component: files.sha256.clone(),
            manifest: files.manifest.clone(),
            package: files.package.clone(),
            posture: files.posture.clone(),
            at: guild_fs::clock::rfc3339(jiff::Timestamp::now()),
            found,
        };
        fs::create_dir_all(directory)?;
        let bytes = serde_json::to_vec_pretty(&probed)?;
        replace(&open_directory(directory)?, &name.to_string_lossy(), &bytes, Survives::Process).map(drop)
    }

    /// The last probe of these files, if they were probed. A posture that may change need not be the one of the probe.
    pub fn of(files: &Pin) -> Option<Self> {
        let probed: Self = serde_json::from_slice(&fs::read(place(files)?).ok()?).ok()?;
        let same =
            (&probed.component, &probed.manifest, &probed.package) == (&files.sha256, &files.manifest, &files.package);
        (same && (files.posture.is_none() || probed.posture == files.posture)).then_some(probed)
    }
}

/// The file of a probe of these files. A posture has none of its own: the last probe counts.
fn place(files: &Pin) -> Option<PathBuf> {
    let Pin { sha256, manifest, package, .. } = files;
    let digest = hex(&Sha256::digest(format!("{sha256} {manifest:?} {package:?}")));
    Some(directories::state()?.join("probes").join(format!("{digest}.json")))
}
