//! Holds keys and tokens in a type that does not print them, and decides where they may be sent.

use std::{fmt, net::IpAddr};

/// Whether a key may be sent to a host: encrypted, or without leaving this machine. `host` is spelled as in an address.
pub fn may_carry_key(scheme: &str, host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    scheme == "https" || host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// A key or a token that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl From<String> for Secret {
    fn from(secret: String) -> Self {
        Self(secret)
    }
}

impl Secret {
    /// The key itself, for the request that it authorises.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}
