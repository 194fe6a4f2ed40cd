//! `guild mcp`: MCP on stdin and stdout, for clients that start their servers themselves.
//!
//! It relays messages to a host and back. If a host already serves the members, it is that one: a member has one owner, which
//! all its clients share. Otherwise this process is the host until its client ends, and other clients can use it, too.

mod bridge;
mod message;

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use guild_client::{Error, MemberKey, Relay, RelayResponse, Url};
use guild_config::{Config, Runtime, shell_word};
use guild_roster::{OpenError, Reloads, Target, discovery, mcp_line, offline::Owner, takeover::OwnerError};
use guild_server::{ServeError, ServeOptions, listen::Signals, serve_until};
use tokio::{
    io::{BufReader, stdin, stdout},
    sync::{Notify, oneshot},
    task::{JoinHandle, spawn_blocking},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    args::Mcp,
    client::AccessArgs,
    failure::Failure,
    hosted::{Terms, VerifiedHost},
    local::{self, LocalArgs},
    output::{one_line, tell},
};

/// How many times to search for a host that another process was just starting.
const ATTEMPTS: usize = 3;
/// The timeout for this process's own host to stop.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// `guild mcp`.
pub(crate) async fn mcp(args: Mcp) -> Result<(), Failure> {
    let signals = Signals::new().map_err(|e| Failure::error(format!("cannot listen for signals: {e}")))?;
    // While this process is not a host, there is no configuration to reload.
    let hangup = Arc::new(Notify::new());
    let locator = Locator::new(args, hangup.clone())?;
    let mut stop = pin!(signals.ended(&hangup));
    // Errors of members are printed before the first message.
    let found = tokio::select! {
        found = locator.find() => found?,
        () = &mut stop => return Ok(()),
    };
    bridge::run(locator, found, BufReader::new(stdin()), stdout(), stop).await
}

/// Finds the host, or starts it.
struct Locator {
    access: AccessArgs,
    source: Source,
}

enum Source {
    /// The host at a URL.
    Url { url: String, member: Option<MemberKey> },
    /// The host of local members.
    Here(Arc<Here>),
}

/// Local members, and the options for a host of them.
struct Here {
    local: LocalArgs,
    target: Target,
    /// The only member to serve, if one was named.
    member: Option<MemberKey>,
    sources: Vec<PathBuf>,
    agent: Option<Runtime>,
    /// How `guild.toml` is read: for each search for a host, and for reloads if this process is the host.
    reloads: Reloads,
}

/// A host that was found.
struct LocatedHost {
    relay: Relay,
    /// Set if the host is this process.
    own: Option<Own>,
    /// Set if the host is another process that satisfies the terms of the command line.
    verified: Option<VerifiedHost>,
}

impl LocatedHost {
    /// Whether it is still the same host with the same configuration. Only this check notices another host at its address,
    /// or a reload.
    fn is_unchanged(&self) -> bool {
        self.verified.as_ref().is_none_or(VerifiedHost::is_unchanged)
    }
}

/// The host of this process. Dropping this stops it.
struct Own {
    stop: DropGuard,
    served: JoinHandle<Result<(), ServeError>>,
}

impl Own {
    async fn end(self) {
        drop(self.stop);
        match tokio::time::timeout(SHUTDOWN, self.served).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!("the host ended: {error}"),
            Ok(Err(error)) => tracing::warn!("the host ended: {error}"),
            Err(_) => tracing::warn!("the host took too long to end"),
        }
    }
}

impl Locator {
    fn new(args: Mcp, hangup: Arc<Notify>) -> Result<Self, Failure> {
        let Mcp { member, url, access, session, local } = args;
        if let Some(url) = url {
            let parse = |key: String| key.parse().map_err(|e| Failure::error(format!("--member {key}: {e}")));
            let member = member.map(parse).transpose()?;
            return Ok(Self { access, source: Source::Url { url, member } });
        }
        let config = local::config(&local.policy)?;
        let (target, member) = match member {
            Some(member) => {
                let directory = local::member_directory(&member, &local, &config)?;
                mcp_line::check(Some(&directory)).map_err(Failure::error)?;
                let key = local::member(&directory, &local, &config).map_err(Failure::error)?.key;
                (Target::Member(directory), Some(key))
            }
            None => {
                mcp_line::check(None).map_err(Failure::error)?;
                (Target::Members(local::members_directory(local.members.as_deref(), &config)?), None)
            }
        };
        let is_one = member.is_some();
        let (file, members) = (local.policy.config.clone(), local.members.clone());
        let of_command = move |mut config: Config| {
            if is_one {
                config.members = local::members_directory(members.as_deref(), &config).ok();
            }
            // A host that ends with its client is only for this machine.
            config.auth.bind = Ipv4Addr::LOCALHOST.into();
            config.auth.tls = None;
            config
        };
        let read = move || Config::load(file.as_deref()).map(&of_command).map_err(|e| e.to_string());
        let reloads = Reloads { asked: hangup, read: Arc::new(read) };
        let here = Here { local, target, member, sources: session.sources, agent: session.agent, reloads };
        Ok(Self { access, source: Source::Here(Arc::new(here)) })
    }

    /// The host that serves the members, or one started in this process.
    async fn find(&self) -> Result<LocatedHost, Failure> {
        let here = match &self.source {
            Source::Url { url, member } => {
                let relay = Relay::new(url, member.as_ref(), &self.access.options()?)?;
                return Ok(LocatedHost { relay, own: None, verified: None });
            }
            Source::Here(here) => here,
        };
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let local = here.clone();
            // The configuration may have changed since the last attempt.
            let search = spawn_blocking(move || {
                let config = (local.reloads.read)().map_err(Failure::error)?;
                Ok::<_, Failure>((local.served_at(&config)?, config))
            });
            let (found, config) = search.await.map_err(|e| Failure::error(e.to_string()))??;
            if let Some((base, verified)) = found {
                tracing::info!("the members are served by the host at {base}");
                return Ok(LocatedHost { relay: self.relay(&base, here)?, own: None, verified });
            }
            match here.serve(config).await {
                Ok((base, own)) => {
                    return Ok(LocatedHost { relay: self.relay(&base, here)?, own: Some(own), verified: None });
                }
                // Another process became the owner first.
                Err(error @ ServeError::Open(OpenError::Owner(OwnerError::Served { .. }))) => last = Some(error),
                Err(error) => return Err(Failure::error(error.to_string())),
            }
        }
        Err(Failure::error(last.map_or_else(|| "no host was found".to_owned(), |error| error.to_string())))
    }

    fn relay(&self, base: &str, here: &Here) -> Result<Relay, Failure> {
        Ok(Relay::new(base, here.member.as_ref(), &self.access.options_of_owner(base, None)?)?)
    }
}

impl Here {
    /// The address of the host that serves the members, if there is one, and what it published if the command line sets
    /// terms. It blocks, since a new owner may take a moment to publish that.
    ///
    /// # Errors
    /// If that host does not satisfy the terms.
    fn served_at(&self, config: &Config) -> Result<Option<(String, Option<VerifiedHost>)>, Failure> {
        let terms = Terms::new(&self.local, &self.sources, self.agent, config)?;
        match &self.target {
            Target::Member(directory) => {
                let Some(owner) = Owner::of(&local::open(directory)?).ok().flatten() else { return Ok(None) };
                let Some(base) = base(&owner.url) else { return Ok(None) };
                let member = discovery::single(directory, config.members.as_deref(), config);
                let verified = terms.check(&member.map_err(Failure::error)?, &owner)?;
                Ok(Some((base, verified)))
            }
            Target::Members(directory) => {
                let (mut host, mut elsewhere): (Option<(String, Option<VerifiedHost>)>, _) = (None, Vec::new());
                for found in local::discovered(directory)? {
                    let Ok(member) = found.member else { continue };
                    let Some(owner) = Owner::of(&member.dir).ok().flatten() else { continue };
                    // A host of one member has no endpoint for several.
                    let Some(base) = base(&owner.url).filter(|_| owner.url.contains("/members/")) else {
                        elsewhere.push((member.key, owner));
                        continue;
                    };
                    // The terms hold for all members that are reached through the host.
                    if host.as_ref().is_none_or(|(first, _)| *first == base) {
                        let verified = terms.check(&member, &owner)?;
                        let has_terms = verified.is_some();
                        host.get_or_insert((base, verified));
                        if !has_terms {
                            break;
                        }
                    }
                }
                if host.is_some() {
                    return Ok(host);
                }
                let options = format!("--members {}{}", shell_word(directory), config.policy_option());
                for (key, owner) in elsewhere {
                    tell(format_args!(
                        "{key} is left out, since process {} works on it; `guild mcp --member {key} {options}` goes through that process",
                        owner.pid
                    ));
                }
                Ok(None)
            }
        }
    }

    /// Serves the members on a free port.
    async fn serve(&self, config: Config) -> Result<(String, Own), ServeError> {
        let options = ServeOptions {
            hall: None,
            config,
            target: self.target.clone(),
            port: Some(0),
            sources: self.sources.clone(),
            agent: self.agent,
            reloads: self.reloads.clone(),
        };
        let stopped = CancellationToken::new();
        let stop = stopped.clone().drop_guard();
        let (ready, mut is_ready) = oneshot::channel();
        let mut served = tokio::spawn(async move {
            serve_until(options, stopped.cancelled(), |base, _| drop(ready.send(base.to_owned()))).await
        });
        tokio::select! {
            Ok(base) = &mut is_ready => Ok((base, Own { stop, served })),
            ended = &mut served => match ended {
                Ok(Err(error)) => Err(error),
                Ok(Ok(())) => Err(std::io::Error::other("the host ended before it was ready").into()),
                Err(error) => Err(std::io::Error::other(error).into()),
            },
        }
    }
}

/// The address of a host, from the URL of one of its endpoints; `None` if that is empty.
fn base(endpoint: &str) -> Option<String> {
    endpoint.parse().ok().map(|url: Url| url.origin().ascii_serialization())
}

/// The error for a client whose message the host refused.
fn refusal(response: &RelayResponse, text: &str) -> String {
    let text = guild_client::refusal(text);
    format!("the host answered HTTP {}: {}", response.status, one_line(text.trim(), 400))
}

/// Whether the host does not listen any more, so that another one has to be found.
fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Unreachable { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_found_by_any_of_its_endpoints() {
        for endpoint in ["http://127.0.0.1:1/mcp", "http://127.0.0.1:1/members/a/b/mcp", "http://127.0.0.1:1"] {
            assert_eq!(base(endpoint).unwrap(), "http://127.0.0.1:1");
        }
        assert_eq!(base("https://[::1]:7433/mcp").unwrap(), "https://[::1]:7433");
        assert_eq!(base(""), None);
    }
}
