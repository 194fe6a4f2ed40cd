//! `guild mcp`: MCP on stdin and stdout, for clients that start their servers themselves.
//!
//! It carries messages to a host and back. That is the host which serves the members already, where there is one: a member
//! has one owner, and every client of the same members meets there. Where there is none, this process is it, for as long
//! as its client lives, and can be reached by others that come later.

mod bridge;
mod message;

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use guild_client::{Coming, Error, MemberKey, Relay, Url};
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
    hosted::{Held, Terms},
    local::{self, LocalArgs},
    output::{one_line, tell},
};

/// How often to look for the host again, where it was another's a moment ago.
const LOOKS: usize = 3;
/// How long the host of this process may take to end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// `guild mcp`.
pub(crate) async fn mcp(args: Mcp) -> Result<(), Failure> {
    let signals = Signals::new().map_err(|e| Failure::error(format!("cannot listen for signals: {e}")))?;
    // As long as this process is no host, nobody has anything to read again.
    let hangup = Arc::new(Notify::new());
    let place = Place::new(args, hangup.clone())?;
    let mut stop = pin!(signals.ended(&hangup));
    // What is wrong with the members is told before the first message.
    let found = tokio::select! {
        found = place.find() => found?,
        () = &mut stop => return Ok(()),
    };
    bridge::run(place, found, BufReader::new(stdin()), stdout(), stop).await
}

/// Where the host is, or is to be.
struct Place {
    access: AccessArgs,
    whose: Whose,
}

enum Whose {
    /// Of a host that somebody else runs.
    Url { url: String, member: Option<MemberKey> },
    /// Of the members here.
    Here(Arc<Here>),
}

/// Members that are here, and what a host of them is opened with.
struct Here {
    local: LocalArgs,
    target: Target,
    /// The one member that is meant.
    member: Option<MemberKey>,
    sources: Vec<PathBuf>,
    agent: Option<Runtime>,
    /// How `guild.toml` is read: whenever a host is looked for, and again where this process is it.
    reloads: Reloads,
}

/// A host that was found.
struct Found {
    relay: Relay,
    /// It is this process.
    own: Option<Own>,
    /// It is another one, and serves the members as it is asked for.
    held: Option<Held>,
}

impl Found {
    /// Whether it is the host that was found, and serves as it did then. Where another one has its address by now, or it
    /// was told otherwise, nothing tells so but this.
    fn is_as_it_was(&self) -> bool {
        self.held.as_ref().is_none_or(Held::is_so)
    }
}

/// The host of this process. It stops where this is dropped.
struct Own {
    stop: DropGuard,
    served: JoinHandle<Result<(), ServeError>>,
}

impl Own {
    async fn end(self) {
        drop(self.stop);
        match tokio::time::timeout(LAST_WORDS, self.served).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!("the host ended: {error}"),
            Ok(Err(error)) => tracing::warn!("the host ended: {error}"),
            Err(_) => tracing::warn!("the host took too long to end"),
        }
    }
}

impl Place {
    fn new(args: Mcp, hangup: Arc<Notify>) -> Result<Self, Failure> {
        let Mcp { member, url, access, session, local } = args;
        if let Some(url) = url {
            let parse = |key: String| key.parse().map_err(|e| Failure::error(format!("--member {key}: {e}")));
            let member = member.map(parse).transpose()?;
            return Ok(Self { access, whose: Whose::Url { url, member } });
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
        let (file, members) = (local::policy_file(&local.policy)?.map(Path::to_owned), local.members.clone());
        let of_command = move |mut config: Config| {
            if is_one {
                config.members = local::members_directory(members.as_deref(), &config).ok();
            }
            // Nobody but this machine's own has business with a host that ends with its client.
            config.auth.bind = Ipv4Addr::LOCALHOST.into();
            config.auth.tls = None;
            config
        };
        let read = move || Config::load(file.as_deref()).map(&of_command).map_err(|e| e.to_string());
        let reloads = Reloads { asked: hangup, read: Arc::new(read) };
        let here = Here { local, target, member, sources: session.sources, agent: session.agent, reloads };
        Ok(Self { access, whose: Whose::Here(Arc::new(here)) })
    }

    /// The host that serves the members; one of this process's own where there is none.
    async fn find(&self) -> Result<Found, Failure> {
        let here = match &self.whose {
            Whose::Url { url, member } => {
                let relay = Relay::new(url, member.as_ref(), &self.access.options()?)?;
                return Ok(Found { relay, own: None, held: None });
            }
            Whose::Here(here) => here,
        };
        let mut last = None;
        for _ in 0..LOOKS {
            let looking = here.clone();
            // What the operator says may have changed since the last look.
            let looked = spawn_blocking(move || {
                let config = (looking.reloads.read)().map_err(Failure::error)?;
                Ok::<_, Failure>((looking.served_at(&config)?, config))
            });
            let (found, config) = looked.await.map_err(|e| Failure::error(e.to_string()))??;
            if let Some((base, held)) = found {
                tracing::info!("the members are served by the host at {base}");
                return Ok(Found { relay: self.relay(&base, here)?, own: None, held });
            }
            match here.serve(config).await {
                Ok((base, own)) => {
                    return Ok(Found { relay: self.relay(&base, here)?, own: Some(own), held: None });
                }
                // Somebody else was faster.
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
    /// The address of the host that serves them, if one does, and how it does where that matters. It blocks: an owner has a
    /// moment to say who it is.
    ///
    /// # Errors
    /// Where that host does not serve them as it is asked for.
    fn served_at(&self, config: &Config) -> Result<Option<(String, Option<Held>)>, Failure> {
        let terms = Terms::new(&self.local, &self.sources, self.agent, config)?;
        match &self.target {
            Target::Member(directory) => {
                let Some(owner) = Owner::of(&local::open(directory)?).ok().flatten() else { return Ok(None) };
                let Some(base) = base(&owner.url) else { return Ok(None) };
                let member = discovery::single(directory, config.members.as_deref(), config);
                let held = terms.check(&member.map_err(Failure::error)?, &owner)?;
                Ok(Some((base, held)))
            }
            Target::Members(directory) => {
                let (mut host, mut elsewhere): (Option<(String, Option<Held>)>, _) = (None, Vec::new());
                for found in local::discovered(directory)? {
                    let Ok(member) = found.member else { continue };
                    let Some(owner) = Owner::of(&member.dir).ok().flatten() else { continue };
                    // A host for one member has no endpoint for many.
                    let Some(base) = base(&owner.url).filter(|_| owner.url.contains("/members/")) else {
                        elsewhere.push((member.key, owner));
                        continue;
                    };
                    // All that are reached through it have to be served so.
                    if host.as_ref().is_none_or(|(first, _)| *first == base) {
                        let held = terms.check(&member, &owner)?;
                        let is_asked = held.is_some();
                        host.get_or_insert((base, held));
                        if !is_asked {
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

    /// Serves them, at a port that is free.
    async fn serve(&self, config: Config) -> Result<(String, Own), ServeError> {
        let options = ServeOptions {
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

/// The host's own address, out of that of one of its endpoints; none where that is empty.
fn base(endpoint: &str) -> Option<String> {
    endpoint.parse().ok().map(|url: Url| url.origin().ascii_serialization())
}

/// What a host says that refuses a message, for the client that sent it.
fn refusal(coming: &Coming, text: &str) -> String {
    let text = guild_client::refusal(text);
    format!("the host answered HTTP {}: {}", coming.status, one_line(text.trim(), 400))
}

/// Whether nobody listens any more, so that another host is to be looked for.
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
