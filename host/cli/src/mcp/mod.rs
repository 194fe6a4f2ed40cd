//! `guild mcp`: MCP on stdin and stdout, for clients that start their servers themselves.
//!
//! The command relays messages to a host and back. If a host already serves the members, that host is used: a member
//! has one owner, which all its clients share. Otherwise the command starts a private host, which ends with its last
//! client.

mod bridge;
mod message;
mod start;

use std::{fs::File, pin::pin, sync::Arc};

use guild_auth::private::{Joined, Lease, lock_start};
use guild_client::{Error, MemberKey, Relay, RelayResponse, Url};
use guild_config::{Config, shell_word};
use guild_roster::{Target, discovery, jobs::files::Owner};
use guild_server::listen::Signals;
use tokio::{
    io::{BufReader, stdin, stdout},
    sync::Notify,
    task::spawn_blocking,
};

use self::start::{HostCommand, StartedHost};
use crate::{
    args::operator::Mcp,
    client::{AccessArgs, private_port},
    failure::Failure,
    jobs::hosted::{Terms, VerifiedHost},
    local::{self, LocalArgs},
    output::{log::LogArgs, one_line, tell},
};

/// `guild mcp`.
pub(crate) async fn mcp(args: Mcp, log: LogArgs) -> Result<(), Failure> {
    let mut signals = Signals::new().map_err(|e| Failure::error(format!("cannot listen for signals: {e}")))?;
    let hangup = Arc::new(Notify::new());
    let locator = Locator::new(args, log, hangup.clone())?;
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

/// Local members, and the command that starts a host of them.
struct Here {
    local: LocalArgs,
    /// The only member to serve, if one was named.
    member: Option<MemberKey>,
    command: HostCommand,
}

/// A host that was found.
struct LocatedHost {
    relay: Relay,
    /// Set if the host satisfies the terms of the command line.
    verified: Option<VerifiedHost>,
    /// The lease of the host, if it is private.
    joined: Joined,
    /// Set if this process started it.
    started: Option<StartedHost>,
}

impl LocatedHost {
    /// Whether it is still the same host with the same configuration. Only this check notices another host at its
    /// address, or a reload.
    fn is_unchanged(&self) -> bool {
        self.verified.as_ref().is_none_or(VerifiedHost::is_unchanged)
    }

    /// Ends the use of the host. If this process started it and no other client uses it, its end is awaited.
    async fn end(self) {
        let is_unused = if let Joined::Client(lease) = self.joined { lease.end() } else { false };
        if let Some(started) = self.started.filter(|_| is_unused) {
            started.ended().await;
        }
    }
}

/// The outcome of a search for a host.
enum Search {
    /// A host serves the members.
    Found(RunningHost),
    /// No host serves the members, and no other process starts one while this lock is held.
    NotFound(File),
}

/// A host that already serves the members.
struct RunningHost {
    base: String,
    joined: Joined,
    /// Its published settings, if the command line sets terms.
    verified: Option<VerifiedHost>,
}

impl Locator {
    fn new(args: Mcp, log: LogArgs, hangup: Arc<Notify>) -> Result<Self, Failure> {
        let Mcp { member, url, access, session, local } = args;
        if let Some(url) = url {
            let parse = |key: String| key.parse().map_err(|e| Failure::error(format!("--member {key}: {e}")));
            let member = member.map(parse).transpose()?;
            return Ok(Self { access, source: Source::Url { url, member } });
        }
        let config = local::config(&local.policy)?;
        let members = local::members_directory(local.members.as_deref(), &config);
        let (target, toolboxes, member) = match member {
            Some(member) => {
                let directory = local::member_directory(&member, &local, &config)?;
                let key = local::member(&directory, &local, &config).map_err(Failure::error)?.key;
                // If guild.toml names the directory, each host reads it there.
                let named = local.members.is_some() || config.members.is_none();
                (Target::Member(directory), members.ok().filter(|_| named), Some(key))
            }
            None => (Target::Members(members?), None, None),
        };
        let (sources, agent, config) = (session.sources, session.agent, local.policy.config.clone());
        let command = HostCommand { target, toolboxes, sources, agent, config, log, hangup };
        Ok(Self { access, source: Source::Here(Arc::new(Here { local, member, command })) })
    }

    /// The host that serves the members, or a host that this process starts.
    async fn find(&self) -> Result<LocatedHost, Failure> {
        let here = match &self.source {
            Source::Url { url, member } => {
                let relay = Relay::new(url, member.as_ref(), &self.access.options(url)?)?;
                return Ok(LocatedHost { relay, verified: None, joined: Joined::NotPrivate, started: None });
            }
            Source::Here(here) => here,
        };
        let _start = match here.clone().search().await? {
            Search::Found(running) => return self.join(running, here),
            Search::NotFound(start) => start,
        };
        // A host that is ending releases the members before the new one gives up waiting for them.
        match here.command.start().await {
            Ok((started, lease)) => {
                let relay = self.relay(&started.base, here)?;
                Ok(LocatedHost { relay, verified: None, joined: Joined::Client(lease), started: Some(started) })
            }
            // Another process may have started a host of the members meanwhile.
            Err(why) => match here.clone().look().await {
                Ok(Some(running)) => self.join(running, here),
                Ok(None) | Err(_) => Err(why),
            },
        }
    }

    fn join(&self, running: RunningHost, here: &Here) -> Result<LocatedHost, Failure> {
        let RunningHost { base, joined, verified } = running;
        tracing::info!("the members are served by the host at {base}");
        Ok(LocatedHost { relay: self.relay(&base, here)?, verified, joined, started: None })
    }

    fn relay(&self, base: &str, here: &Here) -> Result<Relay, Failure> {
        Ok(Relay::new(base, here.member.as_ref(), &self.access.options_of_owner(base, None)?)?)
    }
}

impl Here {
    /// Looks for a host; if there is none, again once no other process is starting one.
    ///
    /// # Errors
    ///
    /// Returns an error when the host that serves the members does not satisfy the terms, or no host could be started.
    async fn search(self: Arc<Self>) -> Result<Search, Failure> {
        if let Some(found) = self.clone().look().await? {
            return Ok(Search::Found(found));
        }
        let here = self.clone();
        let start = blocking(move || {
            let (Target::Member(directory) | Target::Members(directory)) = &here.command.target;
            lock_start(directory).map_err(|e| Failure::error(format!("cannot start a host: {e}")))
        })
        .await?;
        Ok(match self.look().await? {
            Some(found) => Search::Found(found),
            None => Search::NotFound(start),
        })
    }

    /// The host that serves the members.
    ///
    /// # Errors
    ///
    /// Returns an error when the host that serves the members does not satisfy the terms.
    async fn look(self: Arc<Self>) -> Result<Option<RunningHost>, Failure> {
        blocking(move || {
            // The configuration may have changed since the last search.
            let mut config = local::config(&self.local.policy)?;
            if self.member.is_some() {
                config.members = local::members_directory(self.local.members.as_deref(), &config).ok();
            }
            self.running(&config)
        })
        .await
    }

    /// The host that serves the members, unless it is ending. The call blocks, since a new owner may take a moment to
    /// publish its settings.
    ///
    /// # Errors
    ///
    /// Returns an error when the host that serves the members does not satisfy the terms.
    fn running(&self, config: &Config) -> Result<Option<RunningHost>, Failure> {
        let terms = Terms::new(&self.local, &self.command.sources, self.command.agent, config)?;
        match &self.command.target {
            Target::Member(directory) => {
                let Some(owner) = Owner::of(&local::open(directory)?).ok().flatten() else { return Ok(None) };
                let Some(base) = base(&owner.url) else { return Ok(None) };
                let Some(joined) = join(&base)? else { return Ok(None) };
                let member = discovery::single(directory, config.members.as_deref(), config);
                let verified = terms.check(&member.map_err(Failure::error)?, &owner)?;
                Ok(Some(RunningHost { base, joined, verified }))
            }
            Target::Members(directory) => {
                let (mut host, mut elsewhere): (Option<RunningHost>, _) = (None, Vec::new());
                for found in local::discovered(directory)? {
                    let Ok(member) = found.member else { continue };
                    let Some(owner) = Owner::of(&member.dir).ok().flatten() else { continue };
                    // A host of one member has no endpoint for several.
                    let Some(base) = base(&owner.url).filter(|_| owner.url.contains("/members/")) else {
                        elsewhere.push((member.key, owner));
                        continue;
                    };
                    match &host {
                        // The terms hold for all members that are reached through the host.
                        Some(first) if first.base == base => drop(terms.check(&member, &owner)?),
                        Some(_) => {}
                        None => {
                            let Some(joined) = join(&base)? else { continue };
                            let verified = terms.check(&member, &owner)?;
                            let has_terms = verified.is_some();
                            host = Some(RunningHost { base, joined, verified });
                            if !has_terms {
                                break;
                            }
                        }
                    }
                }
                if host.is_some() {
                    return Ok(host);
                }
                let options = format!("--members {}{}", shell_word(directory), config.policy_option());
                for (key, owner) in elsewhere {
                    tell(format_args!(
                        "{key} is left out, since process {} works on it; `guild mcp --member {key} {options}` goes \
                         through that process",
                        owner.pid
                    ));
                }
                Ok(None)
            }
        }
    }
}

/// Runs blocking work.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    spawn_blocking(work).await.map_err(|e| Failure::error(e.to_string()))?
}

/// The address of a host, from the URL of one of its endpoints; `None` if that is empty.
fn base(endpoint: &str) -> Option<String> {
    endpoint.parse().ok().map(|url: Url| url.origin().ascii_serialization())
}

/// Begins to use the host at `base`; `None` if that is a private host that is ending.
fn join(base: &str) -> Result<Option<Joined>, Failure> {
    let joined = private_port(base).map_or(Ok(Joined::NotPrivate), Lease::join);
    let joined = joined.map_err(|e| Failure::error(format!("cannot use the host at {base}: {e}")))?;
    Ok(Some(joined).filter(|joined| !matches!(joined, Joined::Ending)))
}

/// The error for a client whose message the host refused.
fn refusal(response: &RelayResponse, text: &str) -> String {
    let text = guild_client::refusal(text);
    format!("the host answered HTTP {}: {}", response.status, one_line(text.trim(), 400))
}

/// Whether the host no longer listens, so that another one must be found.
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
