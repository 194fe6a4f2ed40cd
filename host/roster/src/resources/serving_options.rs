//! Describes the options that a member is served with: its read roots, its runtime, and the `guild.toml` that was read.
//!
//! A host writes it for other processes of the same user, into a file next to the member's `.owner` that other users
//! cannot read, since it has paths of the operator's. A command that goes through that host sees there whether its own
//! options would hold.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use guild_config::{Config, Runtime};
use guild_contract::{Grants, MemberKey};
use serde::{Deserialize, Serialize};

use super::read_roots::{ServedRoot, Sources};

/// How a member is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// The read roots that it is granted.
    pub roots: Vec<ServedRoot>,
    /// The runtime of its sessions.
    pub agent: Runtime,
    /// The `guild.toml` that was read, without symlinks; none where there is none.
    pub config: Option<PathBuf>,
    /// The SHA-256 of its text then.
    pub config_sha256: Option<String>,
    /// Where `guild.lock` is.
    pub lock_directory: Option<PathBuf>,
    /// The directory of members, where its toolboxes are looked for.
    pub members: Option<PathBuf>,
}

impl Serving {
    /// How a host serves a member with what it has.
    ///
    /// # Errors
    ///
    /// Returns an error when `guild.toml` names two runtimes for the member.
    pub(crate) fn of(key: &MemberKey, grants: &Grants, config: &Config, sources: &Sources) -> Result<Self, String> {
        let real =
            |path: &Option<PathBuf>| path.as_ref().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
        Ok(Self {
            roots: sources.places(grants),
            agent: config.agent_of(key)?,
            config: real(&config.file),
            config_sha256: config.sha256.clone(),
            lock_directory: real(&config.directory),
            members: real(&config.members),
        })
    }

    /// The differences between how it is served and how it would be, in words.
    pub fn differences(&self, would: &Self) -> Vec<(Part, String)> {
        let mut differences = Vec::new();
        if self.directories() != would.directories() {
            let text = format!("it reads {}, not {}", listed(&self.directories()), listed(&would.directories()));
            differences.push((Part::Roots, text));
        }
        if self.agent != would.agent {
            differences.push((Part::Agent, format!("its sessions run on {}, not on {}", self.agent, would.agent)));
        }
        let file = |path: &Option<PathBuf>, none: &str| {
            path.as_ref().map_or_else(|| none.to_owned(), |path| path.display().to_string())
        };
        if self.config != would.config {
            let (has, not) = (file(&self.config, "no guild.toml"), file(&would.config, "none"));
            differences.push((Part::Config, format!("it has read {has}, not {not}")));
        } else if self.config_sha256 != would.config_sha256 {
            let text = format!("it read {} before that was changed", file(&self.config, "guild.toml"));
            differences.push((Part::ConfigText, text));
        }
        if self.members != would.members {
            let (has, not) = (file(&self.members, "no directory"), file(&would.members, "none"));
            differences.push((Part::Members, format!("it looks for toolboxes in {has}, not in {not}")));
        }
        differences
    }

    /// The directories that it reads.
    fn directories(&self) -> BTreeSet<&Path> {
        self.roots.iter().map(|root| root.path.as_path()).collect()
    }
}

/// An option in which two hosts can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The read roots.
    Roots,
    /// The runtime.
    Agent,
    /// Which `guild.toml`.
    Config,
    /// The content of the same `guild.toml`, which was changed.
    ConfigText,
    /// Where toolboxes are.
    Members,
}

fn listed(directories: &BTreeSet<&Path>) -> String {
    if directories.is_empty() {
        return "no directory".to_owned();
    }
    directories.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
