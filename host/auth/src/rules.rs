//! Applies the rules of `guild.toml` for callers, and for the audit log.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use guild_config::{Config, Spend};
use guild_contract::{
    Limits, MemberKey,
    text::{LOGGED_CHARS, one_line},
};
use guild_telemetry::record;

use crate::{
    audit_log::{AuditLogError, Event, Log, Outcome, Who},
    names::Names,
    operation::Operation,
    refused::Refused,
    tls::{Tls, TlsError},
    tokens::credentials::{Credentials, Good, Look},
    tokens::{TokenError, TokenFile},
};

/// The reason that a host does not start with its rules for callers.
#[derive(Debug, thiserror::Error)]
pub enum IngressError {
    /// Other machines can reach the host, but there is no token.
    #[error(
        "{address} can be reached from other machines, so requests need a token, and there is none in {tokens}; make \
         a token with `{command}`"
    )]
    NoToken {
        /// The address of the host.
        address: SocketAddr,
        /// The path of the token file.
        tokens: String,
        /// The command that makes a token.
        command: String,
    },
    /// The tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// The certificate or its key is invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The audit log cannot be written.
    #[error(transparent)]
    AuditLog(#[from] AuditLogError),
}

/// The rules for callers and the audit log.
pub struct Rules {
    pub(crate) names: Names,
    credentials: Arc<Credentials>,
    /// Whether every request needs a token.
    pub(crate) token_required: bool,
    pub(crate) log: Option<Arc<Log>>,
    /// The path of the audit log in `guild.toml`.
    log_path: Option<PathBuf>,
    pub(crate) log_reads: bool,
    pub(crate) tls: Option<Arc<Tls>>,
    /// The limits of requests.
    pub(crate) limits: Arc<Limits>,
    /// The caps on costs in a day.
    pub(crate) spend: Spend,
}

fn no_token(address: SocketAddr, file: &TokenFile) -> IngressError {
    IngressError::NoToken { address, tokens: file.path().display().to_string(), command: file.command("add NAME") }
}

impl Rules {
    /// The rules in `guild.toml` for a host that listens at `address`. Unchanged parts are taken from the rules
    /// `before`.
    pub fn of(config: &Config, address: SocketAddr, before: Option<&Self>) -> Result<Self, IngressError> {
        let options = &config.auth;
        let is_local = address.ip().is_loopback();
        let token_required = options.require_token || !is_local;
        let file = match TokenFile::of(config) {
            Ok(file) => Some(file),
            Err(error) if token_required => return Err(error.into()),
            Err(_) => None,
        };
        let credentials = match before {
            // The used part of the limits still counts.
            Some(before) if before.credentials.is_bounded_by(&config.limits) => before.credentials.clone(),
            _ => Arc::new(Credentials::new(file.clone(), &config.limits)),
        };
        if before.is_some() {
            // An invalid token file also rejects all other changes.
            let tokens = file.as_ref().map_or(Ok(Vec::new()), TokenFile::read)?;
            if let (true, false, Some(file)) = (tokens.is_empty(), is_local, file) {
                return Err(no_token(address, &file));
            }
        } else {
            // The first check is logged only if it fails.
            match (credentials.look().change, file) {
                (Some(Ok(0)), Some(file)) if !is_local => {
                    return Err(no_token(address, &file));
                }
                (Some(Err(error)), _) if token_required => return Err(error.into()),
                (Some(Err(why)), _) => unreadable(&why),
                _ => {}
            }
        }
        let log = match before {
            Some(before) if before.log_path == options.audit_log => before.log.clone(),
            _ => Log::of_host(config)?.map(Arc::new),
        };
        let tls = options.tls.as_ref().map(Tls::open).transpose()?.map(Arc::new);
        let tls = match before {
            // The use of TLS was fixed when the host started.
            Some(before) => before.tls.as_ref().map(|before| tls.unwrap_or_else(|| before.clone())),
            None => tls,
        };
        Ok(Self {
            names: Names::new(options.hosts.clone()),
            credentials,
            token_required,
            log,
            log_path: options.audit_log.clone(),
            log_reads: options.audit_log_reads,
            tls,
            limits: Arc::new(config.limits.clone()),
            spend: config.spend,
        })
    }

    /// The rules of a host for this machine only, without tokens and audit log.
    pub(crate) fn of_this_machine(config: &Config) -> Self {
        Self {
            names: Names::default(),
            credentials: Arc::new(Credentials::new(None, &config.limits)),
            token_required: false,
            log: None,
            log_path: None,
            log_reads: false,
            tls: None,
            limits: Arc::new(config.limits.clone()),
            spend: config.spend,
        }
    }

    /// Whether these rules have a certificate that differs from that of `before`.
    pub fn has_other_certificate(&self, before: &Self) -> bool {
        self.tls.as_ref().zip(before.tls.as_ref()).is_some_and(|(tls, before)| !tls.is_same(before))
    }

    /// Writes a line to the audit log, if there is one.
    pub fn record(&self, event: &Event<'_>) {
        if let Some(log) = &self.log {
            log.record(event);
        }
    }

    /// Records that a process of another user connected to a Unix socket of this host's user, and was rejected.
    pub fn record_stranger(&self, user: Option<u32>) {
        if let Some(log) = &self.log {
            log.record_refusal(&Event {
                event: "request",
                who: user.map_or(Who::Unknown, Who::User),
                outcome: Outcome::Forbidden,
                detail: Some("a process of another user, at the hall's socket".into()),
                ..Event::default()
            });
        }
    }

    /// The US dollars that a token may spend in a day, and the setting with this cap.
    pub(crate) fn cap_of_token(&self, name: &str) -> Option<(f64, &'static str)> {
        let own = self.tokens().ok().and_then(|good| good.named(name)?.usd_per_day);
        let of_all = || Some((self.spend.token_usd_per_day?, "spend.token_usd_per_day"));
        own.map(|usd| (usd, "its --usd-per-day")).or_else(of_all)
    }

    /// The present tokens. A change is logged.
    pub(crate) fn tokens(&self) -> Result<Good, Refused> {
        let Look { good, change } = self.credentials.look();
        match change {
            None => {}
            Some(Ok(count)) => {
                tracing::info!(count, "the tokens have changed");
                self.record(&Event {
                    event: "tokens-read",
                    detail: Some(format!("{count} tokens").into()),
                    ..Event::default()
                });
            }
            Some(Err(why)) => {
                unreadable(&why);
                self.record(&Event { event: "tokens-read", outcome: Outcome::Failed, ..Event::default() });
            }
        }
        good.ok_or(Refused::Unreadable)
    }

    /// Records and logs that a request was refused. `peer` is its address, where it came by the network.
    pub(crate) fn record_refusal(
        &self,
        peer: Option<SocketAddr>,
        refused: &Refused,
        member: Option<&str>,
        method: Option<Operation<'_>>,
    ) {
        record::denied(refused.reason());
        let name = |text: &str| one_line(text, LOGGED_CHARS);
        tracing::debug!(
            peer = peer.map(display),
            member = member.map(name),
            method = method.map(|method| name(method.name)),
            status = refused.status().as_u16(),
            "refused: {refused}"
        );
        let Some(log) = &self.log else { return };
        log.record_refusal(&Event {
            event: "request",
            who: match refused {
                Refused::NoMemory { token: None } => Who::Local,
                refused => refused.token().map_or(Who::Unknown, Who::Token),
            },
            peer,
            method: method.as_ref().and_then(Operation::known_name),
            member: member.filter(|member| member.parse::<MemberKey>().is_ok()),
            outcome: refused.outcome(),
            status: Some(refused.status().as_u16()),
            ..Event::default()
        });
    }
}

fn unreadable(why: &TokenError) {
    tracing::error!("the tokens cannot be read, and no token is valid until they can be: {why}");
}
