//! Defines the content of `activation.json`: what the activation of a job's component was given.

use guild_session::activation::Activation;
use serde::{Deserialize, Serialize};

/// What the activation of a job's component was given, from which a test can repeat it. The host itself never reads it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GivenActivation<A = Activation> {
    /// When the job was made: RFC 3339 in UTC.
    pub at: String,
    /// The activation.
    #[serde(flatten)]
    pub activation: A,
}
