//! The options of the runtimes, as plain data.

use std::{path::PathBuf, time::Duration};

use crate::{
    key_source::KeySource,
    prices::Prices,
    provider::{Endpoint, Provider},
};

/// How the runtime asks its provider: `[api]` in `guild.toml`.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiOptions {
    /// The protocol.
    pub provider: Provider,
    /// Where it is spoken, as the provider's own tools take it (see [`Provider`]); the provider's own address where it
    /// is not said.
    pub base_url: Option<String>,
    /// The model where a dispatch does not ask for one.
    pub model: Option<String>,
    /// The key. Where it is not said, it is the provider's usual variable (`ANTHROPIC_API_KEY`, `OPENAI_API_KEY`,
    /// `GEMINI_API_KEY`) at the provider's own address, and none at another `base_url`.
    pub key: Option<KeySource>,
    /// What models cost.
    pub prices: Prices,
    /// Tokens that a job may have used, of all its models, before a model whose price is not known is asked again.
    /// Without it, such a model is refused.
    pub unknown_cost_tokens: Option<u64>,
    /// Tokens of one answer.
    pub max_output_tokens: u32,
    /// How long one request may take, from the connection to the last byte of the answer.
    pub request: Duration,
    /// How often a request is repeated after a temporary failure.
    pub retries: u32,
    /// The pause before the first repetition, where the provider does not say how long to wait; it doubles each time.
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

    /// Where requests go, and with which key.
    ///
    /// # Errors
    /// A base URL that is none, or one to which the key would travel unencrypted; the sentence names the setting.
    pub fn endpoint(&self) -> Result<Endpoint, String> {
        Endpoint::new(self.provider, self.base_url.as_deref(), self.key.clone())
    }
}

/// How sessions of Claude Code are run.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaudeOptions {
    /// The CLI: a path, or a name that is looked up on the `PATH`.
    pub command: PathBuf,
    /// The model, where a session asks for none; where this is `None` too, the CLI's own choice.
    pub model: Option<String>,
    /// Whether the CLI serves Read, Grep and Glob itself where a session was granted them and has sources to read, in
    /// place of the host. They then work on a copy of the sources. WebSearch and WebFetch are always the host's: the
    /// CLI's own would not obey its network policy.
    pub builtin_tools: bool,
    /// Whether permissions are bypassed, rather than denied but for an exact list. Neither asks anybody.
    pub bypass_permissions: bool,
    /// Whether sessions are resumed after a restart of the host. The CLI then keeps them in its configuration directory, as
    /// it always does with sessions that converse.
    pub resume: bool,
    /// How long the CLI may say nothing while it is not the host's turn; the session has failed then.
    pub silence: Duration,
    /// Names of further environment variables that the CLI is given, such as `HTTPS_PROXY`.
    pub environment: Vec<String>,
    /// What turns cost while a session runs: the CLI says only at its end what it cost. A turn of a model without a price
    /// counts nothing until then, and what the CLI says in the end holds where it is more.
    pub prices: Prices,
    /// A directory of the host's own, outside of every member, where sessions have their scratch directories. The runtime
    /// creates it, readable by this user only. Without it, scratch directories are made where temporary files are, and
    /// those of a killed host are not removed.
    pub state: Option<PathBuf>,
}

impl ClaudeOptions {
    /// Checks that no options exclude each other.
    ///
    /// # Errors
    /// A sentence that names the setting.
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
