//! Where a host is asked, and by which rules.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, PoisonError, RwLock},
};

use guild_config::Config;
use guild_contract::Limits;

use crate::{
    audit_log::Event,
    rules::{IngressError, Rules},
    shares::Shares,
    tls::Tls,
};

/// Where a host is asked: its address, and the rules that hold now.
pub struct Ingress {
    rules: RwLock<Arc<Rules>>,
    /// Where the host listens.
    address: SocketAddr,
    /// Whether callers have to speak TLS, for as long as the host runs.
    has_tls: bool,
    /// The bytes that may be held for requests.
    pub(crate) memory: Arc<Shares>,
}

impl Ingress {
    /// That of a host that listens at `address`, as `guild.toml` has it.
    ///
    /// # Errors
    /// Where the certificate, the named audit log or the tokens cannot be read, or there is no token and nobody could
    /// come in without.
    pub fn open(config: &Config, address: SocketAddr) -> Result<Self, IngressError> {
        let rules = Rules::of(config, address, None)?;
        let has_tls = rules.tls.is_some();
        let memory = Shares::new(config.limits.requests_bytes);
        Ok(Self { rules: RwLock::new(Arc::new(rules)), address, has_tls, memory })
    }

    /// That of a host for this machine only, without tokens and without an audit log.
    pub fn of_this_machine(limits: &Limits) -> Self {
        Self {
            rules: RwLock::new(Arc::new(Rules::of_this_machine(limits))),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            has_tls: false,
            memory: Shares::new(limits.requests_bytes),
        }
    }

    /// The rules that hold now.
    pub fn rules(&self) -> Arc<Rules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has other rules hold from now on. A request that was let in goes on by those that it was let in by.
    pub fn set_rules(&self, rules: Arc<Rules>) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    /// Writes a line into the audit log, where there is one.
    pub fn record(&self, event: &Event<'_>) {
        self.rules().record(event);
    }

    /// What another `guild.toml` says, ready to apply. The address, and whether it is TLS, do not change.
    ///
    /// # Errors
    /// As where a host starts with it.
    pub fn prepare(&self, config: &Config) -> Result<Rules, IngressError> {
        Rules::of(config, self.address, Some(&self.rules()))
    }

    /// Where this machine's own processes reach it, which may listen on all addresses.
    pub fn url(&self) -> String {
        let ip = match self.address.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        format!("{}://{}", self.scheme(), SocketAddr::new(ip, self.address.port()))
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.has_tls { "https" } else { "http" }
    }

    /// The certificate, where callers have to speak TLS.
    pub fn tls(&self) -> Option<Arc<Tls>> {
        if self.has_tls { self.rules().tls.clone() } else { None }
    }

    /// Whether connections have to say which address they lead to.
    pub fn own_address(&self) -> bool {
        !self.address.ip().is_loopback()
    }
}
