//! Names the runtimes of agent sessions.

use std::str::FromStr;

use guild_contract::text::{named, names};
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// A runtime of agent sessions.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// The built-in runtime: search and ranking, without a model and without a network.
    #[default]
    Extractive,
    /// The Claude Code command line, with the user's own subscription.
    Claude,
    /// A model provider over HTTP.
    Api,
    /// A script in place of a model, for tests.
    Scripted,
}

impl Runtime {
    /// All runtimes.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The runtime's name in `guild.toml`, on the command line and on the wire.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl FromStr for Runtime {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        named(Self::ALL, name)
            .ok_or_else(|| format!("{name:?} is not an agent runtime; the runtimes are {}", names(Self::ALL)))
    }
}
