//! Names the runtimes of agent sessions.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A runtime of agent sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// Built in: search and ranking, no model, no network.
    #[default]
    Extractive,
    /// The Claude Code command line, with the user's own subscription.
    Claude,
    /// A model provider over HTTP.
    Api,
}

impl Runtime {
    /// All runtimes.
    pub const ALL: [Self; 3] = [Self::Extractive, Self::Claude, Self::Api];

    /// Its name in `guild.toml`, on the command line and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Extractive => "extractive",
            Self::Claude => "claude",
            Self::Api => "api",
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Runtime {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|runtime| runtime.as_str() == name).ok_or_else(|| {
            format!("{name:?} is no agent runtime; there are {}", Self::ALL.map(Self::as_str).join(", "))
        })
    }
}
