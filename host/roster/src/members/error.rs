//! Defines the errors that keep a host from starting.

use std::{io, path::PathBuf};

use guild_agent::RootError;

use super::takeover::OwnerError;

/// The error of opening a host.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The members' directory cannot be read.
    #[error("the members' directory {} cannot be read: {source}", path.display())]
    Members {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The one member cannot be served.
    #[error("{0}")]
    Member(String),
    /// Another process owns the one member.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// `guild.toml` is invalid.
    #[error("guild.toml: {0}")]
    Config(String),
    /// The hall cannot be opened.
    #[error("{0}")]
    Hall(String),
    /// The host cannot be in its cluster.
    #[error("{0}")]
    Cluster(String),
    /// A read root cannot be opened.
    #[error("{0}; read roots are named by `--sources` and by `[[roots]]` in guild.toml")]
    Root(#[from] RootError),
}
