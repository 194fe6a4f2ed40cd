//! Matches hosts of the web against patterns.
//!
//! Patterns and hosts are compared in the form of the WHATWG URL standard: lower case, international names in Punycode,
//! IPv4 addresses from any spelling (`0x7f.1`, `2130706433`, `0177.0.0.1`) as four decimal numbers, and without a dot
//! at the end.

use url::Host;

/// A pattern of hosts: a host (`example.org`, `192.0.2.1`, `[2001:db8::1]`); `*.` and a domain, for every host below
/// the domain, at any depth, but not the domain itself; or `*` for every host. Each form may end in `:port`; without a
/// port it covers every port.
#[derive(Clone, Debug)]
pub struct HostPattern {
    /// The pattern, as the operator wrote it.
    text: String,
    hosts: Hosts,
    port: Option<u16>,
}

#[derive(Clone, Debug)]
enum Hosts {
    All,
    Below(String),
    One(Host),
}

impl HostPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// Returns a sentence about the syntax of patterns.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "{text:?} is not a pattern of hosts: write a host, \"*.\" and a domain, or \"*\", optionally with :port"
            )
        };
        let (host, port) = match text.rsplit_once(':') {
            // The colons of an IPv6 address without brackets do not separate a port.
            Some((host, _)) if host.contains(':') && !host.ends_with(']') => (text, None),
            Some((host, port)) => (host, Some(port.parse::<u16>().map_err(|_| refused())?)),
            None => (text, None),
        };
        let hosts = match host {
            "*" => Hosts::All,
            _ => match (host.strip_prefix("*."), parse_host(host)) {
                (Some(domain), _) => match parse_host(domain) {
                    Some(Host::Domain(domain)) => Hosts::Below(format!(".{domain}")),
                    _ => return Err(refused()),
                },
                (None, Some(host)) => Hosts::One(host),
                (None, None) => return Err(refused()),
            },
        };
        Ok(Self { text: text.to_owned(), hosts, port })
    }

    /// The pattern, as the operator wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the pattern names one host, without a wildcard.
    pub fn is_one_host(&self) -> bool {
        matches!(self.hosts, Hosts::One(_))
    }

    /// Whether the pattern covers a host at a port.
    pub fn covers(&self, host: &Host, port: u16) -> bool {
        let host_is = match (&self.hosts, host) {
            (Hosts::All, _) => true,
            (Hosts::Below(domain), Host::Domain(host)) => host.len() > domain.len() && host.ends_with(domain.as_str()),
            (Hosts::Below(_), _) => false,
            (Hosts::One(one), host) => one == host,
        };
        host_is && self.port.is_none_or(|own| own == port)
    }
}

/// A host in the form of the URL standard.
fn parse_host(text: &str) -> Option<Host> {
    if text.contains('*') {
        return None;
    }
    if let Ok(address) = text.parse() {
        return Some(Host::Ipv6(address));
    }
    match Host::parse(text).ok()? {
        Host::Domain(domain) => {
            let domain = domain.trim_end_matches('.');
            (!domain.is_empty()).then(|| Host::Domain(domain.to_owned()))
        }
        address => Some(address),
    }
}
