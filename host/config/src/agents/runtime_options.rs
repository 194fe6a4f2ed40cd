//! Defines the options of the runtimes as plain data.

use std::{path::PathBuf, time::Duration};

use crate::{
    agents::{
        prices::Prices,
        provider::{Endpoint, Provider},
    },
    key_source::KeySource,
};

/// The options of the runtime `scripted`: `[scripted]` in `guild.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptedOptions {
    /// The test file with what the model does.
    pub script: Option<PathBuf>,
    /// The case of the file; by default the first with sessions.
    pub case: Option<String>,
}

/// The options of the runtime `api`: `[api]` in `guild.toml`.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiOptions {
    /// The protocol.
    pub provider: Provider,
    /// The base URL, in the form that the provider's own tools take (see [`Provider`]); by default the provider's own
    /// address.
    pub base_url: Option<String>,
    /// The model of dispatches whose plan names none.
    pub model: Option<String>,
    /// The source of the key. By default it is the provider's usual variable (`ANTHROPIC_API_KEY`, `OPENAI_API_KEY`,
    /// `GEMINI_API_KEY`) at the provider's own address, and no key at another `base_url`.
    pub key: Option<KeySource>,
    /// The prices of models.
    pub prices: Prices,
    /// The tokens of all models that a job may use before requests to a model of unknown price are refused. Without it,
    /// such requests are always refused.
    pub unknown_cost_tokens: Option<u64>,
    /// The most tokens of one answer.
    pub max_output_tokens: u32,
    /// The longest time of one request, from the connection to the last byte of the answer.
    pub request: Duration,
    /// The number of times that a request is repeated after a temporary failure.
    pub retries: u32,
    /// The pause before the first repetition, unless the provider asks for another pause. It doubles with each
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
    /// # Errors
    ///
    /// Returns an error that names the setting when the base URL is invalid, or when the key would travel to it
    /// unencrypted.
    pub fn endpoint(&self) -> Result<Endpoint, String> {
        Endpoint::new(self.provider, self.base_url.as_deref(), self.key.clone())
    }
}

/// The options of the runtime `claude`.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaudeOptions {
    /// The CLI: a path, or a name that is looked up on the `PATH`.
    pub command: PathBuf,
    /// The model of sessions that name none. With `None`, the CLI chooses the model.
    pub model: Option<String>,
    /// Whether the CLI, and not the host, serves Read, Grep and Glob to a session that was granted them and has sources
    /// to read. The tools then work on a copy of the sources. The host always serves WebSearch and WebFetch, since the
    /// CLI's own tools would not obey the host's network policy.
    pub builtin_tools: bool,
    /// Whether permissions are bypassed. Otherwise all tools outside an exact list are denied. Neither mode asks a
    /// person.
    pub bypass_permissions: bool,
    /// Whether sessions are resumed after a restart of the host. The CLI then keeps them in its configuration
    /// directory, as it always does with sessions that converse.
    pub resume: bool,
    /// The time without output after which the session has failed, unless the CLI waits for the host.
    pub silence: Duration,
    /// Names of further environment variables that the CLI is given, such as `HTTPS_PROXY`.
    pub environment: Vec<String>,
    /// The prices of turns while a session runs, since the CLI reports its cost only at its end. A turn of a model
    /// without a price counts nothing until then. The CLI's report counts if it is greater.
    pub prices: Prices,
    /// The host's own directory for the scratch directories of sessions, outside of every member. The runtime creates
    /// it, readable only by this user. Without it, scratch directories are created in the system's temporary directory,
    /// and those of a killed host are not removed.
    pub state: Option<PathBuf>,
}

impl ClaudeOptions {
    /// Checks that no options exclude each other.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the setting.
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
