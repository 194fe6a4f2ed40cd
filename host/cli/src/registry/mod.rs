//! Commands for registries: they publish members, install them, and upgrade them.

pub(crate) mod artifact;
pub(crate) mod install;
mod review;
pub(crate) mod upgrade;

use guild_contract::Limits;
use guild_registry::{Pulled, Reference, Registry, RegistryError};

use crate::{
    failure::Failure,
    output::{harmless, progress::Progress},
};

/// Pulls the artifact of a reference. The returned reference has the tag and the digest of the artifact.
async fn pull(reference: Reference, limits: &Limits) -> Result<(Reference, Pulled), Failure> {
    let progress = Progress::start();
    progress.waiting(&format!("pulling {reference}"));
    let registry = Registry::of(&reference)?;
    let reference = registry.resolve(reference).await?;
    let pulled = registry.pull(&reference, limits).await?;
    let digest = Some(pulled.digest.clone());
    Ok((Reference { digest, ..reference }, pulled))
}

impl From<RegistryError> for Failure {
    fn from(error: RegistryError) -> Self {
        Self::error(harmless(&error.to_string()))
    }
}
