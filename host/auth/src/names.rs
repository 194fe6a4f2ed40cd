//! Checks that requests use a name of this host and come from no other site.
//!
//! A page in a browser can reach any host that its user can reach, under any name that its owner bound to the host's
//! address. But it cannot change the names in `Host` and `Origin`: a request whose names do not belong to this host is
//! refused, regardless of its content. An address in place of a name cannot be bound to another host. Some of a page's
//! requests have no `Origin`; for these the browser states in `Sec-Fetch-Site` that they come from another site.

use std::net::{IpAddr, SocketAddr};

use guild_config::{Called, HostName};
use http::{
    HeaderMap, HeaderName,
    header::{HOST, ORIGIN},
    uri::Authority,
};

/// The kind of name by which a request addressed the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalledBy {
    /// Only names of this machine that have no meaning elsewhere.
    Loopback,
    /// A name or an address that other machines can use, too; or any name, through a proxy.
    Name,
}

/// The header in which a browser states how the page that sends a request is related to this host.
static FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether proxies add a header of this name to forwarded requests: such a request comes from this machine, but its
/// caller may not. The value is not read.
fn is_by_proxy(name: &HeaderName) -> bool {
    // Most headers begin with another letter, and this runs for all headers of each request.
    let name = name.as_str();
    match name.as_bytes().first() {
        Some(b'a') => name.starts_with("ali-cdn-") || name.starts_with("akamai-"),
        Some(b'c') => {
            name.starts_with("cf-")
                || name.starts_with("cloudfront-")
                || matches!(name, "cdn-loop" | "cdn-src-ip" | "client-ip" | "cluster-client-ip")
        }
        Some(b'd') => name == "do-connecting-ip",
        Some(b'f') => name.starts_with("fastly-") || name.starts_with("fly-") || name.starts_with("forwarded"),
        Some(b'h') => name == "http-client-ip",
        Some(b'i') => name == "incap-client-ip",
        Some(b'p') => name == "proxy-client-ip",
        Some(b'r') => matches!(name, "remote-addr" | "remote-ip"),
        Some(b's') => name == "surrogate-capability",
        Some(b't') => name.starts_with("tailscale-") || name == "true-client-ip",
        Some(b'v') => name == "via",
        Some(b'w') => name == "wl-proxy-client-ip",
        Some(b'x') => BY_PROXY_WITH_X.iter().any(|known| match known.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == *known,
        }),
        _ => false,
    }
}

/// Headers that begin with `x-`; `*` matches any rest.
const BY_PROXY_WITH_X: [&str; 31] = [
    "x-akamai-*",
    "x-amz-cf-*",
    "x-appengine-*",
    "x-appgw-*",
    "x-arr-*",
    "x-azure-*",
    "x-client-ip",
    "x-client-real-ip",
    "x-clientip",
    "x-cluster-client-ip",
    "x-coming-from",
    "x-connecting-ip",
    "x-envoy-*",
    "x-fastly-*",
    "x-fd-*",
    "x-forwarded*",
    "x-from",
    "x-from-ip",
    "x-gateway-*",
    "x-nf-client-connection-ip",
    "x-original-*",
    "x-originating-ip",
    "x-proxy*",
    "x-real-*",
    "x-remote-*",
    "x-sucuri-*",
    "x-traefik-*",
    "x-true-client-ip",
    "x-varnish",
    "x-vercel-*",
    "x-via",
];

/// The configured names of a host.
#[derive(Debug, Default)]
pub(crate) struct Names {
    hosts: Vec<HostName>,
}

impl Names {
    pub(crate) fn new(hosts: Vec<HostName>) -> Self {
        Self { hosts }
    }

    /// Checks that a request uses only names of this host, and comes from no other site. `at` is the address that it
    /// was sent to, if that counts as a name.
    pub(crate) fn check(
        &self,
        target: Option<&Authority>,
        headers: &HeaderMap,
        at: Option<SocketAddr>,
    ) -> Result<CalledBy, &'static str> {
        let mut called_by = CalledBy::Loopback;
        let mut check = |authority: &str| match self.knows(authority, at) {
            Some(CalledBy::Loopback) => true,
            Some(CalledBy::Name) => {
                called_by = CalledBy::Name;
                true
            }
            None => false,
        };
        let (mut is_named, mut is_ours) = match target {
            Some(authority) => (true, check(authority.as_str())),
            None => (false, true),
        };
        let (mut is_own_origin, mut has_origin, mut is_own_site, mut by_proxy) = (true, false, true, false);
        // A single loop over all headers, since it runs for each request.
        for (name, value) in headers {
            let text = || value.to_str().unwrap_or_default();
            if *name == HOST {
                is_named = true;
                is_ours &= check(text());
            } else if *name == ORIGIN {
                has_origin = true;
                let authority = text().strip_prefix("http://").or_else(|| text().strip_prefix("https://"));
                is_own_origin &= authority.is_some_and(&mut check);
            } else if *name == FETCH_SITE {
                is_own_site &= matches!(value.as_bytes(), b"none" | b"same-origin");
            } else {
                by_proxy |= is_by_proxy(name);
            }
        }
        match (is_named, is_ours, is_own_origin) {
            (_, false, _) => Err("this host does not have that name; the operator adds names in `hosts` of guild.toml"),
            (false, ..) => Err("a request must name its host"),
            (.., false) => Err("requests from other origins are not answered"),
            // An `Origin` has been checked already.
            _ if !is_own_site && !has_origin => {
                Err("requests that a page of another site makes a browser send are not answered")
            }
            _ if by_proxy => Ok(CalledBy::Name),
            _ => Ok(called_by),
        }
    }

    fn knows(&self, authority: &str, at: Option<SocketAddr>) -> Option<CalledBy> {
        let Called { name, port, bracketed } = Called::read(authority)?;
        if is_loopback(name, bracketed) {
            return Some(CalledBy::Loopback);
        }
        let listed = self.hosts.iter().any(|host| {
            host.name.eq_ignore_ascii_case(name)
                && host.name.contains(':') == bracketed
                && host.port.is_none_or(|wanted| port == Some(wanted))
        });
        let own = at.is_some_and(|at| {
            let address = name.parse::<IpAddr>();
            let usual = matches!(at.port(), 80 | 443);
            address.is_ok_and(|own| own == at.ip().to_canonical() && own.is_ipv6() == bracketed)
                && (port == Some(at.port()) || (port.is_none() && usual))
        });
        (listed || own).then_some(CalledBy::Name)
    }
}

/// Whether the name is a loopback address or `localhost`.
fn is_loopback(name: &str, bracketed: bool) -> bool {
    match name {
        "localhost" | "127.0.0.1" => !bracketed,
        _ => match name.parse::<IpAddr>() {
            Ok(address) => address.is_ipv6() == bracketed && address.is_loopback(),
            Err(_) => !bracketed && name.eq_ignore_ascii_case("localhost"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_by_its_own_names_is_loopback() {
        let none = Names::default();
        for own in ["localhost", "LocalHost:80", "127.0.0.1:5", "127.0.0.2", "[::1]", "[::1]:9", "localhost:"] {
            assert_eq!(none.knows(own, None), Some(CalledBy::Loopback), "{own}");
        }
        for foreign in [
            "",
            "evil.example",
            "localhost.evil.example",
            "localhost@evil.example",
            "127.0.0.1.evil.example",
            "[::1",
            "[::1]x",
            "::1",
            "[localhost]",
            "[127.0.0.1]",
            "[::ffff:127.0.0.1]",
            "10.0.0.1",
            "localhost:80@evil",
            "localhost:x",
            "localhost:99999",
            "0.0.0.0",
            "localhost/",
        ] {
            assert_eq!(none.knows(foreign, None), None, "{foreign}");
        }
    }

    #[test]
    fn a_name_of_hosts_is_known_in_any_spelling_and_with_its_port_only_where_it_has_one() {
        let names =
            Names::new(["Guild.example", "other.example:8443", "[2001:db8::1]"].map(|n| n.parse().unwrap()).into());
        for own in ["guild.example", "GUILD.EXAMPLE:1", "other.example:8443", "[2001:db8::1]:7433"] {
            assert_eq!(names.knows(own, None), Some(CalledBy::Name), "{own}");
        }
        for foreign in [
            "guild.example.evil",
            "xguild.example",
            "other.example",
            "other.example:1",
            "2001:db8::1",
            "guild.example.",
        ] {
            assert_eq!(names.knows(foreign, None), None, "{foreign}");
        }
        for wrong in ["", "http://guild.example", "guild.example/", "*", "a b", "[guild]", "guild:x", "a@b"] {
            assert!(wrong.parse::<HostName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_request_that_a_proxy_passed_on_is_known_by_what_the_proxy_added() {
        let by = |name: &str| is_by_proxy(&name.parse().unwrap());
        for proxy in [
            "Forwarded",
            "Via",
            "X-Forwarded-For",
            "X-Forwarded-Host",
            "X-Forwarded-Proto",
            "X-Forwarded",
            "X-Real-IP",
            "True-Client-IP",
            "CF-Connecting-IP",
            "CF-Connecting-IPv6",
            "Fastly-Client-IP",
            "X-Client-IP",
            "X-Cluster-Client-IP",
            "X-Original-Forwarded-For",
            "X-Envoy-External-Address",
            "Fly-Client-IP",
            "X-Azure-ClientIP",
            "X-Azure-SocketIP",
            "X-Appengine-User-IP",
            "X-Vercel-Forwarded-For",
            "X-ProxyUser-Ip",
            "DO-Connecting-IP",
            "Ali-CDN-Real-IP",
            "CDN-Loop",
            "Client-IP",
            "CloudFront-Viewer-Address",
            "WL-Proxy-Client-IP",
            "Tailscale-User-Login",
        ] {
            assert!(by(proxy), "{proxy}");
        }
        for own in [
            "Accept",
            "Content-Type",
            "Cookie",
            "Traceparent",
            "User-Agent",
            "X-Request-Id",
            "X-Requested-With",
            "X-Api-Key",
            "Mcp-Session-Id",
            "Proxy-Connection",
        ] {
            assert!(!by(own), "{own}");
        }
    }

    #[test]
    fn the_address_that_a_request_was_sent_to_is_a_name_of_the_host() {
        let names = Names::default();
        let at = |address: &str| Some(address.parse().unwrap());
        assert_eq!(names.knows("192.0.2.1:7433", at("192.0.2.1:7433")), Some(CalledBy::Name));
        assert_eq!(names.knows("192.0.2.1:7433", at("[::ffff:192.0.2.1]:7433")), Some(CalledBy::Name));
        assert_eq!(names.knows("[2001:db8::1]:7433", at("[2001:db8::1]:7433")), Some(CalledBy::Name));
        for (foreign, own) in
            [("192.0.2.1", "192.0.2.1:7433"), ("192.0.2.2:7433", "192.0.2.1:7433"), ("x:7433", "192.0.2.1:7433")]
        {
            assert_eq!(names.knows(foreign, at(own)), None, "{foreign}");
        }
        assert_eq!(names.knows("192.0.2.1:7433", None), None);
    }
}
