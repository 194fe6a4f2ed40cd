//! Reads the operator's decisions: `guild.toml`, the files next to it, and the host's own directories of the user.

mod agents;
mod audit;
mod auth;
mod cluster;
mod config;
pub mod directories;
pub mod directory_lock;
mod hall;
mod host;
mod key_source;
mod permit;
mod policy;
mod retention;
pub mod text;
mod value;
mod web;
mod webhooks;

pub use agents::{
    RuntimeConfig,
    prices::{Price, Prices, Tokens},
    provider::{Endpoint, Provider, ProviderFacts},
    runtime::Runtime,
    runtime_options::{ApiOptions, ClaudeOptions, ScriptedOptions},
    spend::Spend,
};
pub use auth::{AuthConfig, TlsFiles};
pub use cluster::{CLUSTER_KEY_BYTES, ClusterOptions, check_cluster_name, is_loopback};
pub use config::{
    Config, ConfigError, ReadRoot, VARIABLE,
    changes::{Change, changes},
};
pub use hall::PermittedProject;
pub use host::name::{Called, HostName};
pub use host::pattern::HostPattern;
pub use key_source::KeySource;
pub use permit::PermitError;
pub use text::shell_word;
pub use web::{SearchOptions, WebOptions, WebPatterns};
pub use webhooks::{Webhook, WebhookEvent};
