//! Keeps what the last probe of a component found, in the host's own directory: `guild approve` shows it.

use std::{fs, io, path::PathBuf};

use guild_config::directories;
use guild_fs::durable::{Survives, open_directory, replace};
use serde::{Deserialize, Serialize};

use crate::report::Probe;

/// What the last probe of a component with its manifest found, in numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// The format of the probe.
    pub format: String,
    /// The member's key then.
    pub member: String,
    /// The SHA-256 of its component.
    pub component_sha256: String,
    /// The SHA-256 of its manifest.
    pub manifest_sha256: String,
    /// The moment: RFC 3339 in UTC.
    pub at: String,
    /// Whether an obedient model took part.
    pub obedient: bool,
    /// The number of tokens that crossed a boundary.
    pub canaries: usize,
    /// The number of requests that nothing explains.
    pub unexpected_requests: usize,
    /// The number of differences between runs.
    pub differences: usize,
    /// The number of files that other programs run.
    pub planted: usize,
    /// The number of texts that stand nowhere in the member's files.
    pub unknown_texts: usize,
}

/// Keeps a probe. Where the user has no directory for state, nothing is kept.
///
/// # Errors
///
/// Returns an error when the file cannot be written.
pub fn keep(probe: &Probe) -> io::Result<()> {
    let Some(path) = place(&probe.component_sha256, &probe.manifest_sha256) else { return Ok(()) };
    let kept = Kept {
        format: probe.format.clone(),
        member: probe.member.clone(),
        component_sha256: probe.component_sha256.clone(),
        manifest_sha256: probe.manifest_sha256.clone(),
        at: guild_fs::clock::rfc3339(jiff::Timestamp::now()),
        obedient: probe.obedient,
        canaries: probe.canaries.len(),
        unexpected_requests: probe.unexpected_requests.len(),
        differences: probe.differences.len(),
        planted: probe.planted.len(),
        unknown_texts: probe.unknown_texts.len(),
    };
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    fs::create_dir_all(directory)?;
    let bytes = serde_json::to_vec_pretty(&kept)?;
    replace(&open_directory(directory)?, &name.to_string_lossy(), &bytes, Survives::Process).map(drop)
}

/// What the last probe of this component with this manifest found, if it was probed.
pub fn last(component_sha256: &str, manifest_sha256: &str) -> Option<Kept> {
    let kept: Kept = serde_json::from_slice(&fs::read(place(component_sha256, manifest_sha256)?).ok()?).ok()?;
    (kept.component_sha256 == component_sha256 && kept.manifest_sha256 == manifest_sha256).then_some(kept)
}

fn place(component_sha256: &str, manifest_sha256: &str) -> Option<PathBuf> {
    let short = |digest: &str| digest.get(..16).map(str::to_owned);
    let name = format!("{}-{}.json", short(component_sha256)?, short(manifest_sha256)?);
    Some(directories::state()?.join("probes").join(name))
}
