//! Holds the ingress of a host: its address, its present rules, and its shared budgets.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, PoisonError, RwLock},
};

use guild_config::Config;
use guild_contract::{
    SpendError,
    host::{AuditParams, AuditView},
};

use crate::{
    audit_log::Event,
    audit_log::tail::TailError,
    budget::Budget,
    private::PrivateHost,
    rules::{IngressError, Rules},
    sessions::Sessions,
    spend::{Ledger, tomorrow},
    tls::Tls,
};

/// The ingress of a host.
pub struct Ingress {
    rules: RwLock<Arc<Rules>>,
    /// The address at which the host listens.
    address: SocketAddr,
    /// Whether callers must use TLS, for as long as the host runs.
    has_tls: bool,
    /// The memory for requests, in bytes.
    pub(crate) memory: Arc<Budget>,
    ledger: Arc<Ledger>,
    pub(crate) sessions: Sessions,
    /// Set if each request needs the token of a private host, or one of `guild.tokens`.
    pub(crate) private: Option<Arc<PrivateHost>>,
}

impl Ingress {
    /// The ingress of a host that listens at `address`, with the rules of `guild.toml`.
    ///
    /// # Errors
    ///
    /// Returns an error when the certificate, the named audit log or the tokens cannot be read, or every request would
    /// need a token and there is none.
    pub fn open(config: &Config, address: SocketAddr) -> Result<Self, IngressError> {
        let rules = Rules::of(config, address, None)?;
        let has_tls = rules.tls.is_some();
        let memory = Budget::new(config.limits.requests_bytes);
        Ok(Self {
            rules: RwLock::new(Arc::new(rules)),
            address,
            has_tls,
            memory,
            ledger: Ledger::of(config),
            sessions: Sessions::new(address.port()),
            private: None,
        })
    }

    /// Requires the token of a private host.
    #[must_use]
    pub fn with_private(self, host: Arc<PrivateHost>) -> Self {
        Self { private: Some(host), ..self }
    }

    /// The ingress of a host for this machine only, without tokens and audit log.
    pub fn of_this_machine(config: &Config) -> Self {
        Self {
            rules: RwLock::new(Arc::new(Rules::of_this_machine(config))),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            has_tls: false,
            memory: Budget::new(config.limits.requests_bytes),
            ledger: Ledger::of(config),
            sessions: Sessions::new(0),
            private: None,
        }
    }

    /// The present rules.
    pub fn rules(&self) -> Arc<Rules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the rules. Admitted requests keep the rules that admitted them.
    pub fn set_rules(&self, rules: Arc<Rules>) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    /// The bytes of memory that requests hold.
    pub fn memory_in_use(&self) -> u64 {
        self.memory.taken()
    }

    /// The dollars that were spent today, or the reason that they are unknown; and the cap of the host, if it has one.
    pub fn spent_today(&self) -> (Result<f64, String>, Option<f64>) {
        (self.ledger.spent_today(), self.rules().spend.host_usd_per_day)
    }

    /// A page of the audit log; an empty one if there is no log. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when a parameter is invalid or a file cannot be read.
    pub fn audit_page(&self, params: &AuditParams) -> Result<AuditView, TailError> {
        self.rules().log.as_ref().map_or_else(|| Ok(AuditView::default()), |log| log.page(params))
    }

    /// The ledger of the costs of the host's jobs.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// The US dollars that may still be spent today on jobs of this token, or on jobs without a token; `None` if there
    /// is no cap.
    ///
    /// # Errors
    ///
    /// Returns an error when a cap is reached, or there is a cap and the ledger cannot be read.
    pub fn may_spend(&self, token: Option<&str>) -> Result<Option<f64>, SpendError> {
        let rules = self.rules();
        let own = token.and_then(|name| Some((name, rules.cap_of_token(name)?)));
        if own.is_none() && rules.spend.host_usd_per_day.is_none() {
            return Ok(None);
        }
        let (all, of_token) = self.ledger.spent(token).map_err(SpendError::Unreadable)?;
        let host = rules.spend.host_usd_per_day.map(|cap| (cap, all, "the host".to_owned(), "spend.host_usd_per_day"));
        let own = own.map(|(name, (cap, key))| (cap, of_token, format!("the token {name}"), key));
        let mut left = f64::INFINITY;
        for (cap, spent, who, key) in host.into_iter().chain(own) {
            if spent >= cap {
                return Err(SpendError::Cap(format!(
                    "{who} has spent {spent:.2} US dollars today, and {key} = {cap} is reached; try again after {}",
                    tomorrow()
                )));
            }
            left = left.min(cap - spent);
        }
        Ok(Some(left))
    }

    /// Writes a line to the audit log, if there is one.
    pub fn record(&self, event: &Event<'_>) {
        self.rules().record(event);
    }

    /// Prepares the rules of a changed `guild.toml`. The address, and the use of TLS, do not change.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::open`].
    pub fn prepare(&self, config: &Config) -> Result<Rules, IngressError> {
        Rules::of(config, self.address, Some(&self.rules()))
    }

    /// The URL for processes on this machine; the host may listen on all addresses.
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

    /// The certificate, if callers must use TLS.
    pub fn tls(&self) -> Option<Arc<Tls>> {
        if self.has_tls { self.rules().tls.clone() } else { None }
    }

    /// Whether connections need their local address.
    pub fn own_address(&self) -> bool {
        !self.address.ip().is_loopback()
    }
}

#[cfg(test)]
mod tests {
    use guild_config::Spend;

    use super::*;

    #[test]
    fn an_unreadable_ledger_is_not_called_a_reached_cap() {
        let dir = tempfile::tempdir().unwrap();
        let spend = Spend { host_usd_per_day: Some(1.0), ..Spend::default() };
        let config = Config { spend, ..Config::default() };
        let ledger = Ledger::at(dir.path().to_owned(), "ledger.json");
        let ingress = Ingress { ledger, ..Ingress::of_this_machine(&config) };
        assert_eq!(ingress.may_spend(None), Ok(Some(1.0)));
        std::fs::write(dir.path().join("ledger.json"), "[]").unwrap();
        let Err(SpendError::Unreadable(why)) = ingress.may_spend(None) else { panic!("it was read") };
        assert!(why.contains("ledger.json"), "{why}");
    }
}
