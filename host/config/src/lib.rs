//! What the operator decided: `guild.toml`, the files next to it, and the host's own directories of the user.

mod agents;
mod auth;
mod changes;
mod config;
pub mod directories;
pub mod directory_lock;
mod hall;
mod host_name;
mod keys;
mod permit;
mod policy;
mod runtime;
mod spend;
pub mod text;
mod value;
mod web;
mod written;

pub use agents::RuntimeConfig;
pub use auth::{AuthConfig, TlsFiles};
pub use changes::{Change, changes};
pub use config::{Config, ConfigError, ReadRoot, VARIABLE};
pub use hall::PermittedProject;
pub use host_name::{Called, HostName};
pub use permit::PermitError;
pub use runtime::Runtime;
pub use spend::Spend;
pub use text::shell_word;
