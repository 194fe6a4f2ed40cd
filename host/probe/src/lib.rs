//! Probes a plugin: runs it where nothing can leave, and shows what it does.
//!
//! Each run has a real host in a temporary home, with the real sandbox and the real limits. Its model, its web, its
//! clocks, its random numbers and its remote repository are fakes ([`guild_roster::Fakes`]). All that the member can
//! read has [canaries](canaries), which are looked for in all that left a boundary ([`findings`]); runs that differ in
//! one respect are compared; and texts whose origin is unknown are shown ([`known`]).

mod archives;
mod asks;
mod canaries;
mod encodings;
mod findings;
mod home;
mod inputs;
mod known;
mod model;
mod neighbour;
mod record;
mod report;
mod run;
mod scenarios;
mod web;

use std::{
    fmt::Display,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use guild_config::Config;
use guild_contract::{
    Manifest,
    manifest::{FILE_NAME, POSTURE, package},
};
use guild_roster::discovery::{FoundMember, single};
use guild_trust::{Approval, Found, Pin, Probed};
use jiff::Timestamp;

pub use canaries::Source;
pub use record::{Event, Place};
pub use report::{
    Active, Coverage, Crossing, Difference, FORMAT, Planted, Probe, RunReport, Seen, Unexpected, Unknown,
};

use canaries::Canaries;
use findings::{
    Findings, active,
    crossings::{self, Looked},
    twins::{self, Twins},
};
use home::PROJECT;
use run::{Played, Subject};
use scenarios::Setting;

/// The reason that a member cannot be probed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The directory is no member's, or the member has no component.
    #[error("{why}")]
    Member {
        /// A sentence for the user.
        why: String,
    },
    /// The host of a run does not serve the member.
    #[error("the member cannot be probed: {why}")]
    Host {
        /// The reason.
        why: String,
    },
    /// The member's files changed.
    #[error("{member} changed while it was probed; run the command again")]
    Changed {
        /// The member.
        member: String,
    },
    /// The probe cannot be kept.
    #[error("the probe cannot be kept for `guild approve`: {source}")]
    Kept {
        /// The reason.
        source: io::Error,
    },
    /// The temporary home cannot be made.
    #[error("the temporary home of a run cannot be made: {source}")]
    Home {
        /// The reason.
        source: io::Error,
    },
}

impl ProbeError {
    fn failed(why: impl Display) -> Self {
        Self::Host { why: why.to_string() }
    }
}

/// The options of a probe.
#[derive(Clone, Debug)]
pub struct Options {
    /// The operator's policy: its limits hold, and its names of members.
    pub config: Config,
    /// The member's directory.
    pub directory: PathBuf,
    /// Whether a model takes part that does what texts tell it.
    pub obedient: bool,
    /// The seed of all tokens.
    pub seed: u64,
    /// The time after which no further step begins.
    pub time: Duration,
}

/// Probes a member. `playing` is called with the name of each run that begins, its position and their number.
///
/// # Errors
///
/// Returns a [`ProbeError`] when the member cannot be probed. What the member does is in the probe, whatever it is.
pub async fn probe(options: &Options, playing: impl Fn(&str, usize, usize)) -> Result<Probe, ProbeError> {
    let began = Instant::now();
    let deadline = began + options.time;
    let found = single(&options.directory, None, &options.config).map_err(|why| ProbeError::Member { why })?;
    let directory = options.directory.canonicalize().map_err(|source| ProbeError::Home { source })?;
    let probed = files(&found, &options.config)?;
    let roots = home::roots(&found.manifest);
    let canaries = Canaries::new(options.seed, &roots, &[PROJECT]);
    let settings = scenarios::all(&found.manifest, options.obedient);
    let component = found.manifest.component.as_ref().and_then(|spec| fs::read(directory.join(&spec.file)).ok());
    let component = component.unwrap_or_default();
    let words = asks::words(&component);
    let subject = Subject {
        directory: &directory,
        key: &found.key,
        manifest: &found.manifest,
        canaries: &canaries,
        limits: &options.config.limits,
        words: &words,
    };
    let again: Vec<&Setting> = settings.iter().filter(|setting| twins::is_played(setting, &settings)).collect();
    let number = settings.len() + again.len();
    let mut played = Vec::new();
    for (at, setting) in settings.iter().enumerate() {
        if Instant::now() >= deadline {
            break;
        }
        playing(&setting.name, at, number);
        played.push(run::play(&subject, setting, deadline).await?);
    }
    let mut not_played: Vec<String> = settings.iter().skip(played.len()).map(|setting| setting.name.clone()).collect();
    let runs: Vec<(&Setting, Played)> = settings.iter().zip(played).collect();
    let looked: Vec<Looked<'_>> =
        runs.iter().map(|(setting, run)| Looked { name: &setting.name, events: &run.events }).collect();
    let mut crossings = crossings::of(&looked, &canaries);
    let active = active::of(&looked);
    for (at, setting) in again.into_iter().enumerate() {
        let name = format!("{}, with other tokens", setting.name);
        playing(&name, settings.len() + at, number);
        let first = runs.iter().find(|(one, _)| one.name == setting.name).map(|(_, first)| first);
        let is_played = match first {
            Some(first) => Twins { subject, setting, first, deadline }.look(&mut crossings).await?,
            None => false,
        };
        if !is_played {
            not_played.push(name);
        }
    }
    if files(&found, &options.config)? != probed {
        return Err(ProbeError::Changed { member: found.key.to_string() });
    }
    let files = files_of(&directory, &found.manifest);
    let outside = guild_inspect::outside(&component).unwrap_or_default();
    let imports = outside.imports.iter().filter_map(|import| guild_inspect::interface(import)).collect();
    let findings = Findings {
        runs: &runs,
        crossings,
        active,
        not_played,
        words: &words,
        canaries: &canaries,
        files,
        imports,
        found: &found,
    };
    let probe = findings.probe(options, &probed, began);
    let kept = Probed::keep(
        &probed,
        Found {
            canaries: probe.canaries.len(),
            unexpected_requests: probe.unexpected_requests.len(),
            differences: probe.differences.len(),
            planted: probe.planted.len(),
            active: probe.active.len(),
            unknown_texts: probe.unknown_texts.len(),
            obedient: probe.obedient,
        },
    );
    kept.map_err(|source| ProbeError::Kept { source })?;
    Ok(probe)
}

/// The digests of a member's present files, as a pin has them.
fn files(found: &FoundMember, config: &Config) -> Result<Pin, ProbeError> {
    let spec = found.manifest.component.as_ref().ok_or_else(|| ProbeError::Member {
        why: format!("{} has no `component` in its manifest, so it runs no code here", found.key),
    })?;
    let looked = Approval::new(config).look(&found.key, &found.dir, spec, config.limits.component_bytes);
    let presented = looked.map_err(|why| ProbeError::Member { why: why.to_string() })?.1.presented;
    Ok(Pin { since: Timestamp::UNIX_EPOCH, ..presented })
}

/// The texts of a member: its component, its manifest and its posture.
fn files_of(directory: &Path, manifest: &Manifest) -> Vec<Vec<u8>> {
    let component = manifest.component.iter().map(|spec| spec.file.as_str());
    let names = [FILE_NAME, package::FILE_NAME, POSTURE].into_iter().chain(component);
    let mut files: Vec<Vec<u8>> = names.filter_map(|name| fs::read(directory.join(name)).ok()).collect();
    // The manifest as its readers see it, without the escapes of JSON.
    files.extend([manifest.description.clone(), manifest.posture.clone().unwrap_or_default()].map(String::into_bytes));
    files
}
