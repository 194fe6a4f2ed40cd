//! Offers prompts with instructions about the workers (REQ-WD-39), for clients that ignore a server's instructions.

use guild_auth::Caller;
use guild_contract::rpc::{RpcError, code};
use serde::Serialize;

use super::Server;
use crate::input::params::shown;

/// The name of the only prompt.
const WORKERS: &str = "workers";

/// A prompt that an endpoint offers. None takes arguments.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Prompt {
    pub(crate) name: &'static str,
    /// The title for people.
    pub(crate) title: &'static str,
    /// Its purpose.
    pub(crate) description: &'static str,
}

/// A prompt's text.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Prompted {
    /// The prompt's purpose.
    pub(crate) description: &'static str,
    pub(crate) text: String,
}

const PROMPT: Prompt = Prompt {
    name: WORKERS,
    title: "How to work with the workers",
    description: "The workers, and how to dispatch to them, follow their jobs, relay questions and present results",
};

impl Server {
    /// The prompts; none if there is no worker.
    pub(crate) fn prompts(&self, caller: &Caller) -> Vec<Prompt> {
        self.instructions(caller).map(|_| PROMPT).into_iter().collect()
    }

    /// Returns the prompt with this name.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such prompt.
    pub(crate) fn prompt(&self, caller: &Caller, name: &str) -> Result<Prompted, RpcError> {
        let text = if name == WORKERS { self.instructions(caller) } else { None };
        let text =
            text.ok_or_else(|| RpcError::new(code::INVALID_PARAMS, format!("Unknown prompt: {}", shown(name))))?;
        Ok(Prompted { description: PROMPT.description, text })
    }
}
