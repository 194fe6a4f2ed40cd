//! Whether sessions may begin to spend.

use guild_auth::Ingress;
use guild_config::Runtime;

/// Whether sessions of that runtime may begin to spend, for that token if there is one: how much, where something bounds it.
/// The built-in search costs nothing.
///
/// # Errors
/// As much was spent today as may be; the sentence says until when.
pub(crate) fn may_spend(ingress: &Ingress, agent: Runtime, token: Option<&str>) -> Result<Option<f64>, String> {
    match agent {
        Runtime::Extractive => Ok(None),
        Runtime::Claude | Runtime::Api => ingress.may_spend(token),
    }
}
