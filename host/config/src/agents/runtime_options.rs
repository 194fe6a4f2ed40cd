//! Defines the options of the runtimes as plain data.

use std::{path::PathBuf, time::Duration};

use crate::{
    agents::{
        prices::Prices,
        provider::{Endpoint, Provider},
    },
    key_source::KeySource,
};

/// The options of the runtime `api`: `[api]` in `guild.toml`.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiOptions {
    /// The protocol.
    pub provider: Provider,
    /// The base URL, as the provider's own tools take it (see [`Provider`]); by default the provider's own address.
    pub base_url: Option<String>,
    /// The model of dispatches that ask for none.
    pub model: Option<String>,
    /// The source of the key. By default it is the provider's usual variable (`ANTHROPIC_API_KEY`, `OPENAI_API_KEY`,
    /// `GEMINI_API_KEY`) at the provider's own address, and none at another `base_url`.
    pub key: Option<KeySource>,
    /// The prices of models.
    pub prices: Prices,
    /// The tokens of all models that a job may use before it may no longer ask a model of unknown price. Without it,
    /// such a model is refused.
    pub unknown_cost_tokens: Option<u64>,
    /// Tokens of one answer.
    pub max_output_tokens: u32,
    /// How long one request may take, from the connection to the last byte of the answer.
    pub request: Duration,
    /// How often a request is repeated after a temporary failure.
    pub retries: u32,
    /// The pause before the first repetition, unless the provider asks for another one. It doubles with each
    /// repetition.
    pub first_pause: Duration,
}

impl ApiOptions {
    /// The defaults for a provider: its own address and its usual key, no model.
    pub fn new(provider: Provider) -> Self {
        Self {
            provider,
            base_url: None,
            model: None,
            key: None,
            prices: Prices::default(),
            unknown_cost_tokens: None,
            max_output_tokens: 8192,
            request: Duration::from_secs(600),
            retries: 5,
            first_pause: Duration::from_secs(1),
        }
    }

    /// The address of the provider, and the source of its key.
    ///
    /// # Errors The base URL is invalid, or the key would travel to it unencrypted. The text names the setting.
    pub fn endpoint(&self) -> Result<Endpoint, String> {
        Endpoint::new(self.provider, self.base_url.as_deref(), self.key.clone())
    }
}

/// The options of the runtime `claude`.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaudeOptions {
    /// The CLI: a path, or a name that is looked up on the `PATH`.
    pub command: PathBuf,
    /// The model of sessions that ask for none. `None` is the CLI's own choice.
    pub model: Option<String>,
    /// Whether the CLI, and not the host, serves Read, Grep and Glob to a session that was granted them and has sources
    /// to read. They then work on a copy of the sources. WebSearch and WebFetch are always the host's, since the CLI's
    /// own would not obey its network policy.
    pub builtin_tools: bool,
    /// Whether permissions are bypassed. Otherwise all but an exact list are denied. Neither mode asks a person.
    pub bypass_permissions: bool,
    /// Whether sessions are resumed after a restart of the host. The CLI then keeps them in its configuration
    /// directory, as it always does with sessions that converse.
    pub resume: bool,
    /// How long the CLI may be silent while it does not wait for the host. After that the session has failed.
    pub silence: Duration,
    /// Names of further environment variables that the CLI is given, such as `HTTPS_PROXY`.
    pub environment: Vec<String>,
    /// The prices of turns while a session runs, since the CLI reports its cost only at its end. A turn of a model
    /// without a price counts nothing until then. The CLI's report counts if it is greater.
    pub prices: Prices,
    /// The host's own directory for the scratch directories of sessions, outside of every member. The runtime creates
    /// it, readable by this user only. Without it, scratch directories are made in the system's temporary directory,
    /// and those of a killed host are not removed.
    pub state: Option<PathBuf>,
}

impl ClaudeOptions {
    /// Checks that no options exclude each other.
    ///
    /// # Errors A sentence names the setting.
    pub fn check(&self) -> Result<(), String> {
        if self.builtin_tools && self.bypass_permissions {
            return Err(
                "[claude] builtin_tools = true and permissions = \"bypassPermissions\" exclude each other: with both, \
                 the CLI could read every file of this machine"
                    .to_owned(),
            );
        }
        if self.silence.is_zero() {
            return Err("[claude] silence_seconds must be at least 1".to_owned());
        }
        if let Some(name) = self.environment.iter().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(format!("[claude] environment: {name:?} is not the name of a variable"));
        }
        Ok(())
    }
}
