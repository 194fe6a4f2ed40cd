//! Credentials for registries, from docker's configuration.

use std::{env, path::PathBuf};

use docker_credential::{CredentialRetrievalError, DockerCredential, get_credential_from_reader};
use guild_fs::{durable::if_there, regular_file};
use oci_client::secrets::RegistryAuth;

use crate::error::RegistryError;

/// The most bytes of docker's configuration.
const CONFIG_BYTES: u64 = 1024 * 1024;
/// The name of Docker Hub in docker's configuration.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";

/// The credentials for a registry. They are in `config.json` of `$DOCKER_CONFIG`, or else of `~/.docker`, or come from the
/// helper that the file names. Without credentials, the access is anonymous.
pub(crate) fn of_registry(registry: &str) -> Result<RegistryAuth, RegistryError> {
    let unusable = |why: String| RegistryError::Credentials { registry: registry.to_owned(), why };
    let Some(file) = config_file() else { return Ok(RegistryAuth::Anonymous) };
    let found = if_there(regular_file::read(&file, CONFIG_BYTES));
    let found = found.map_err(|e| unusable(format!("{}: {e}", file.display())))?;
    let Some(text) = found else { return Ok(RegistryAuth::Anonymous) };
    let server = if registry == "docker.io" { DOCKER_HUB } else { registry };
    match get_credential_from_reader(&*text, server) {
        Ok(DockerCredential::UsernamePassword(user, password)) => Ok(RegistryAuth::Basic(user, password)),
        Ok(DockerCredential::IdentityToken(_)) => {
            let why = "they are an identity token, which guild does not support; use a password or an access token";
            Err(unusable(why.to_owned()))
        }
        Err(CredentialRetrievalError::NoCredentialConfigured) => Ok(RegistryAuth::Anonymous),
        // A helper without credentials for this registry fails with this text.
        Err(CredentialRetrievalError::HelperFailure { stdout, .. }) if stdout.contains("credentials not found") => {
            Ok(RegistryAuth::Anonymous)
        }
        Err(CredentialRetrievalError::ConfigReadError) => Err(unusable(format!("{} is not valid", file.display()))),
        Err(why) => Err(unusable(why.to_string())),
    }
}

/// The path of docker's configuration.
fn config_file() -> Option<PathBuf> {
    let directory = env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let directory = directory.or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker")))?;
    Some(directory.join("config.json"))
}
