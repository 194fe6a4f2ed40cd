//! Parses the names by which requests may call a host.

use std::str::FromStr;

/// A name or an address of `hosts` in `guild.toml`, with a port if only that port is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName {
    /// The name, or the address.
    pub name: String,
    /// The port, if only that port is meant.
    pub port: Option<u16>,
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a host name; write one such as \"guild.example\", or \"guild.example:8443\" for one \
                 port"
            )
        };
        let Called { name, port, bracketed } = Called::read(text).ok_or_else(wrong)?;
        let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.');
        let sound = if bracketed {
            name.parse::<std::net::Ipv6Addr>().is_ok()
        } else {
            !name.is_empty() && name.len() <= 253 && name.bytes().all(plain)
        };
        if sound { Ok(Self { name: name.to_owned(), port }) } else { Err(wrong()) }
    }
}

/// A parsed authority: `host`, `host:port` or `[address]:port`.
pub struct Called<'a> {
    /// The name, or the address without its brackets.
    pub name: &'a str,
    /// The port, if there is one.
    pub port: Option<u16>,
    /// Whether the name was in brackets, like an IPv6 address.
    pub bracketed: bool,
}

impl<'a> Called<'a> {
    /// Parses an authority; `None` if it is invalid.
    pub fn read(authority: &'a str) -> Option<Self> {
        let (name, port, bracketed) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, "")) => (address, None, true),
            Some((address, port)) => (address, Some(port.strip_prefix(':')?), true),
            None => match authority.split_once(':') {
                Some((name, port)) => (name, Some(port), false),
                None => (authority, None, false),
            },
        };
        let port = match port {
            None | Some("") => None,
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => Some(port.parse().ok()?),
            Some(_) => return None,
        };
        Some(Self { name, port, bracketed })
    }
}
