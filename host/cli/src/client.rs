//! Options of the client commands for connecting to a host.

use std::{
    env,
    path::{Path, PathBuf},
};

use clap::Args;
use clap_complete::ArgValueCandidates;
use guild_auth::private;
use guild_client::{Authorities, Error, Options, Url, WorkerHandle};
use guild_config::KeySource;
use guild_contract::{MemberKey, secret::may_carry_key};
use guild_fs::regular_file;
use guild_server::serve::DEFAULT_PORT;

use crate::{
    complete,
    failure::Failure,
    output::{one_line, tell},
};

/// The variable with the token, if no file is given.
const TOKEN_VARIABLE: &str = "GUILD_TOKEN";
/// The variable with the URL of a host.
pub(crate) const URL_VARIABLE: &str = "GUILD_URL";
/// The maximum size of a file of certificate authorities: four times the size of a system's whole collection.
const MAX_CA_BYTES: u64 = 1 << 20;
/// The maximum length of a host's refusal in an error.
const REFUSAL_CHARS: usize = 400;

/// How a client authenticates to a host, and the host to it. A token is never an argument, since every user of the
/// machine can see those.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AccessArgs {
    /// Send the token in this file [default: $GUILD_TOKEN, if set]
    #[arg(long, value_name = "FILE", env = "GUILD_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Trust the certificate authority in this PEM file, and no other
    #[arg(long, value_name = "FILE", env = "GUILD_CA")]
    ca: Option<PathBuf>,
}

/// How to reach a running host.
#[derive(Debug, Args)]
pub(crate) struct Endpoint {
    /// The host's URL, such as http://127.0.0.1:PORT/mcp, or https:// if the host has a certificate [default:
    /// http://127.0.0.1:7433/mcp]
    #[arg(long, value_name = "URL", env = "GUILD_URL")]
    pub(crate) url: Option<String>,
    /// The member's key, which `dispatch` needs if the host serves several members [default: every member]
    #[arg(long, value_name = "KEY", add = ArgValueCandidates::new(complete::members))]
    pub(crate) member: Option<MemberKey>,
    /// How to authenticate to the host
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Print the host's answer as JSON, unchanged
    #[arg(long)]
    pub(crate) json: bool,
}

impl Endpoint {
    /// The host's URL.
    pub(crate) fn url(&self) -> String {
        self.url.clone().unwrap_or_else(default_url)
    }
}

/// The URL at which a host listens by default.
pub(crate) fn default_url() -> String {
    format!("http://127.0.0.1:{DEFAULT_PORT}/mcp")
}

impl AccessArgs {
    /// The options from the environment, for commands that find their host by themselves.
    pub(crate) fn of_environment() -> Self {
        let file = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self { token_file: file("GUILD_TOKEN_FILE"), ca: file("GUILD_CA") }
    }

    /// A client of the endpoint at `url`, which comes from a member's `.owner`.
    pub(crate) fn client_of_owner(&self, url: &str) -> Result<WorkerHandle, Failure> {
        Ok(WorkerHandle::with_options(url, None, &self.options_of_owner(url, None)?)?)
    }

    /// Options for the host at `url`, which comes from a member's `.owner`. Anyone who can write that file can put any
    /// address there, so the token is only sent to this machine and to the host that --url (`named`) or GUILD_URL
    /// names.
    pub(crate) fn options_of_owner(&self, url: &str, named: Option<&str>) -> Result<Options, Failure> {
        let mut options = self.options(url)?;
        let variable = env::var(URL_VARIABLE).ok();
        let is_named = [named, variable.as_deref()].into_iter().flatten().any(|named| is_same_host(named, url));
        if options.token.is_some() && !is_named && !is_here(url) {
            options.token = None;
            tell(format_args!(
                "the token is not sent to {}, which a member's .owner names; to send it there, name that host with \
                 {URL_VARIABLE}",
                one_line(url, 200)
            ));
        }
        Ok(options)
    }

    /// Options for the host at `url`, which the user named. If the user has no token, a private host is sent its own.
    pub(crate) fn options(&self, url: &str) -> Result<Options, Failure> {
        let source = match &self.token_file {
            Some(file) => Some(KeySource::File(file.clone())),
            None => env::var_os(TOKEN_VARIABLE)
                .filter(|token| !token.is_empty())
                .map(|_| KeySource::Env(TOKEN_VARIABLE.to_owned())),
        };
        let token = match source {
            Some(source) => Some(source.read().map_err(Error::Token)?),
            None => private_port(url).and_then(private::token),
        };
        let authorities = self.ca.as_deref().map(authorities).transpose()?;
        Ok(Options { token, authorities, ..Options::default() })
    }
}

/// Whether a URL points to this machine.
fn is_here(url: &str) -> bool {
    // A key may be sent without encryption on this machine only.
    url.parse::<Url>().is_ok_and(|url| may_carry_key("http", url.host_str().unwrap_or_default()))
}

/// The port at which a URL's host would be a private one: such a host listens on the loopback address only.
pub(crate) fn private_port(url: &str) -> Option<u16> {
    let url = url.parse::<Url>().ok().filter(|url| url.scheme() == "http" && url.host_str() == Some("127.0.0.1"))?;
    url.port()
}

/// Whether two URLs have the same scheme, host and port.
fn is_same_host(one: &str, other: &str) -> bool {
    let origin = |url: &str| url.parse().ok().map(|url: Url| url.origin());
    origin(one).is_some_and(|one| one.is_tuple() && origin(other) == Some(one))
}

fn authorities(path: &Path) -> Result<Authorities, Failure> {
    let read = regular_file::read(path, MAX_CA_BYTES).map_err(|e| e.to_string());
    let read = read.and_then(|pem| Authorities::from_pem(&pem).map_err(|e| e.to_string()));
    read.map_err(|why| Failure::error(format!("{}: {why}; --ca and GUILD_CA name a PEM file", path.display())))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let hint = match &error {
            Error::Unreachable { .. } => {
                "; start a host with `guild serve`, or name a running host with --url or GUILD_URL".to_owned()
            }
            Error::Http { url, status, .. } if status.as_u16() == 404 => format!(
                "; one member is served at /mcp, several at /members/KEY/mcp (--member KEY). `guild members --url {url}` shows \
                 the keys"
            ),
            Error::Http { status, .. } if status.as_u16() == 401 => {
                "; create a token with `guild token add NAME` on the host's machine, and give it in GUILD_TOKEN or with --token-file FILE"
                    .to_owned()
            }
            _ => String::new(),
        };
        let error = match error {
            Error::Http { url, status, text } => Error::Http { url, status, text: one_line(&text, REFUSAL_CHARS) },
            error => error,
        };
        Self::error(format!("{error}{hint}"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_token_goes_only_to_this_machine_or_a_named_host() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        fs::write(&file, "guild_1234").unwrap();
        let access = AccessArgs { token_file: Some(file), ca: None };
        let sent = |url: &str, named: Option<&str>| access.options_of_owner(url, named).unwrap().token.is_some();
        for here in ["http://127.0.0.1:7433/mcp", "https://localhost:1/members/a/mcp", "http://[::1]:7433/mcp"] {
            assert!(sent(here, None), "{here}");
        }
        for elsewhere in [
            "https://guild.example/mcp",
            "https://127.0.0.1.guild.example/mcp",
            "https://127.0.0.1@guild.example/mcp",
            "https://10.0.0.1/mcp",
            "data:text/plain,nothing",
            "nothing",
        ] {
            assert!(!sent(elsewhere, None), "{elsewhere}");
            assert!(!sent(elsewhere, Some("https://other.example/mcp")), "{elsewhere}");
        }
        assert!(sent("https://guild.example/members/a/mcp", Some("https://guild.example")));
        assert!(!sent("https://guild.example:8443/mcp", Some("https://guild.example/mcp")));
        assert!(!sent("data:a", Some("data:a")));
    }
}
