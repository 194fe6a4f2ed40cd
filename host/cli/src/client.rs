//! How the client commands reach a host.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use clap::Args;
use guild_client::{Authorities, Error, MemberKey, Options, WorkerHandle};
use guild_jobs::secret::KeySource;

use crate::{failure::Failure, output::one_line};

/// The variable that has the token, where no file does.
const TOKEN_VARIABLE: &str = "GUILD_TOKEN";
/// How much is shown of what a host says to a request that it refuses.
const REFUSAL_CHARS: usize = 400;

/// How a host is told who asks, and how the host is known. A token is never an argument: those are seen by everybody on
/// the machine.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AccessArgs {
    /// Send the token that is in this file [default: $GUILD_TOKEN, where it is set]
    #[arg(long, value_name = "FILE", env = "GUILD_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Trust the certificate authority in this PEM file, and no other
    #[arg(long, value_name = "FILE", env = "GUILD_CA")]
    ca: Option<PathBuf>,
}

impl AccessArgs {
    /// What the environment says, for commands that find their host by themselves.
    pub(crate) fn of_environment() -> Self {
        let file = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self { token_file: file("GUILD_TOKEN_FILE"), ca: file("GUILD_CA") }
    }

    /// A client of the endpoint at `url`, or of a member of the host at `url`.
    pub(crate) fn client(&self, url: &str, member: Option<&MemberKey>) -> Result<WorkerHandle, Failure> {
        Ok(WorkerHandle::with_options(url, member, &self.options()?)?)
    }

    /// How a host is reached.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        let source = match &self.token_file {
            Some(file) => Some(KeySource::File(file.clone())),
            None => env::var_os(TOKEN_VARIABLE)
                .filter(|token| !token.is_empty())
                .map(|_| KeySource::Env(TOKEN_VARIABLE.to_owned())),
        };
        let token = source.map(|source| source.read().map_err(Error::Token)).transpose()?;
        let authorities = self.ca.as_deref().map(authorities).transpose()?;
        Ok(Options { token, authorities, ..Options::default() })
    }
}

fn authorities(path: &Path) -> Result<Authorities, Failure> {
    let read = fs::read(path).map_err(|e| e.to_string());
    let read = read.and_then(|pem| Authorities::from_pem(&pem).map_err(|e| e.to_string()));
    read.map_err(|why| {
        Failure::error(format!("{}: {why}; --ca or GUILD_CA names it, and it is a PEM file", path.display()))
    })
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let hint = match &error {
            Error::Unreachable { .. } => {
                "; start a host with `guild serve`, or name the one that runs with --url or GUILD_URL".to_owned()
            }
            Error::Http { url, status, .. } if status.as_u16() == 404 => format!(
                "; one member is served at /mcp, several at /members/KEY/mcp (--member KEY). `guild members --url {url}` shows \
                 the keys"
            ),
            Error::Http { status, .. } if status.as_u16() == 401 => {
                "; GUILD_TOKEN, or --token-file FILE, has one that `guild token add NAME` made on its machine"
                    .to_owned()
            }
            _ => String::new(),
        };
        let said = match error {
            Error::Http { url, status, text } => Error::Http { url, status, text: one_line(&text, REFUSAL_CHARS) },
            error => error,
        };
        Self::error(format!("{said}{hint}"))
    }
}
