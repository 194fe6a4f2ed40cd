//! Reads the keys about access to the host: addresses, names, TLS, and the audit log.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

use serde::Deserialize;
use toml::Spanned;

use super::value::Wrong;
use crate::host::name::HostName;

/// The settings about callers. The default allows clients on this machine only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthConfig {
    /// `bind`: the address to listen on.
    pub bind: IpAddr,
    /// `require_token`: whether requests from this machine need a token too. Requests from other machines always do.
    pub require_token: bool,
    /// `behind_proxy`: whether a proxy on another machine speaks TLS with the callers, so that this host need not.
    pub behind_proxy: bool,
    /// `hosts`: names by which requests may call the host, besides the names of this machine.
    pub hosts: Vec<HostName>,
    /// `[tls]`.
    pub tls: Option<TlsFiles>,
    /// `audit_log`: the file of the audit log; `None` is the usual place.
    pub audit_log: Option<PathBuf>,
    /// `audit_log_reads`: whether the audit log also records reads.
    pub audit_log_reads: bool,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            require_token: false,
            behind_proxy: false,
            hosts: Vec::new(),
            tls: None,
            audit_log: None,
            audit_log_reads: false,
        }
    }
}

/// `[tls]`: two PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// `certificate`: the host's certificate, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// `key`: the certificate's private key.
    pub key: PathBuf,
}

/// The written form of [`AuthConfig`].
#[derive(Deserialize)]
pub(crate) struct WrittenAuth {
    /// The address to listen on. An address that other machines can reach needs `[tls]` or `behind_proxy`. Default:
    /// `"127.0.0.1"`.
    bind: Option<Spanned<String>>,
    /// Whether processes of this machine need a token too. All other callers always do. The key is mandatory if `hosts`
    /// is not empty and `bind` is a loopback address. Default: `false`.
    require_token: Option<bool>,
    /// Whether a proxy on another machine speaks TLS in place of this host. Default: `false`.
    behind_proxy: Option<bool>,
    /// Names by which requests may call the host, besides localhost and loopback addresses. Default: `[]`.
    #[serde(default)]
    hosts: Vec<Spanned<String>>,
    tls: Option<WrittenTls>,
    /// The file of the audit log. Without this key, it is `guild/audit.jsonl` in `$XDG_STATE_HOME` or `~/.local/state`.
    audit_log: Option<PathBuf>,
    /// Whether the audit log also records `worker/list`, `worker/status` and `worker/result`. Default: `false`.
    audit_log_reads: Option<bool>,
}

/// The host's TLS certificate: two PEM files.
#[derive(Deserialize)]
pub(crate) struct WrittenTls {
    /// The certificate, followed by the intermediate certificates. A relative path starts at the directory of
    /// `guild.toml`.
    certificate: PathBuf,
    /// The certificate's private key. A relative path starts at the directory of `guild.toml`.
    key: PathBuf,
}

impl WrittenAuth {
    /// Checks the written settings. Relative paths start at `base`, the directory of `guild.toml`.
    pub(crate) fn read(self, base: &Path) -> Result<AuthConfig, Wrong> {
        let default = AuthConfig::default();
        let mut hosts = Vec::new();
        let first = self.hosts.first().map(Spanned::span);
        for host in self.hosts {
            let name = host.get_ref().parse().map_err(|why| Wrong::at(host.span(), format!("hosts: {why}")))?;
            hosts.push(name);
        }
        let tls = self.tls.map(|tls| TlsFiles { certificate: base.join(tls.certificate), key: base.join(tls.key) });
        let behind_proxy = self.behind_proxy.unwrap_or(default.behind_proxy);
        let bind = match self.bind {
            None => default.bind,
            Some(bind) => {
                let encrypted = tls.is_some() || behind_proxy;
                parse_bind(bind.get_ref(), encrypted).map_err(|text| Wrong::at(bind.span(), text))?
            }
        };
        if let (Some(first), true, None) = (first, bind.is_loopback(), self.require_token) {
            let why = "hosts: callers that use such a name come through a proxy on this machine, and need a token; \
                decide whether calls to localhost or 127.0.0.1 need one too: write require_token = true if a proxy \
                may make such calls, or require_token = false if only this machine's own processes make them";
            return Err(Wrong::at(first, why.to_owned()));
        }
        Ok(AuthConfig {
            bind,
            require_token: self.require_token.unwrap_or(default.require_token),
            behind_proxy,
            hosts,
            tls,
            audit_log: self.audit_log.map(|path| base.join(path)),
            audit_log_reads: self.audit_log_reads.unwrap_or(default.audit_log_reads),
        })
    }
}

/// Reads `bind`. A name other than `localhost` is not looked up, since its address could change.
fn parse_bind(bind: &str, encrypted: bool) -> Result<IpAddr, String> {
    if bind == "localhost" {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let address: IpAddr = bind
        .parse()
        .map_err(|_| format!("bind: {bind:?} is not an address; write one such as \"127.0.0.1\", without a port"))?;
    if address.is_loopback() || encrypted {
        return Ok(address);
    }
    Err(format!(
        "bind: {bind} can be reached from other machines, and tokens and tasks must not travel in the clear: give the \
         host a certificate with [tls], or write behind_proxy = true if a proxy in front of the host speaks TLS; or \
         bind \"127.0.0.1\""
    ))
}
