//! The network policy: rules for the addresses that the host may read for sessions and components.
//!
//! The whole rule, in the order in which it is applied. It is applied to the requested address, to the `robots.txt`
//! that is read before it, and again to each redirect ([`crate::fetch`] follows them one by one).
//!
//! 1. **Scheme.** `http` and `https`. A redirect from `https` to `http` is refused.
//! 2. **No credentials** in the address. Requests carry no cookies, no authorisation and no `Referer`.
//! 3. **Hosts.** A host that a pattern of `[web] deny` names is refused; then one that no pattern of `[web] allow`
//!    names is refused. Nothing is allowed by default.
//! 4. **Addresses.** A host is refused if it is, or resolves to, nothing but addresses that are not public
//!    ([`crate::address`]): private, loopback, link-local, the metadata services of clouds, carrier-grade NAT,
//!    multicast, unspecified, documentation, benchmarking, reserved, and IPv6 that carries IPv4. What is connected to
//!    is one of the very addresses that were looked at: the check is in the resolver that the connection is made
//!    with ([`crate::resolver`]), so that there is no second lookup which could answer differently. Proxies named in
//!    the environment are not used, since behind one this check would say nothing.
//! 5. **`[web] private`** names hosts, or hosts with a port, for which rule 4 does not hold. It lifts no other rule:
//!    such a host has to be allowed by rule 3 too. It takes no wildcards.
//! 6. **The member.** Of the hosts that rule 3 leaves, a member reads those that its manifest asks for
//!    (`component.grants.web.hosts`) and that `[member.PATTERN]` of guild.toml allows it (`web:HOST`), by the same
//!    patterns ([`MemberHosts`]).
//!
//! A pattern is a host (`example.org`, `192.0.2.1`, `[2001:db8::1]`), `*.` and a domain (every host below the domain,
//! at any depth, but not the domain itself), or `*` (every host); each may end in `:port`, and covers every port
//! otherwise. Patterns and the hosts of addresses are compared in one form, that of the WHATWG URL standard: lower
//! case, international names in Punycode, IPv4 addresses from any spelling (`0x7f.1`, `2130706433`, `0177.0.0.1`) as
//! four decimal numbers, and no dot at the end.

use guild_config::{HostPattern, WebOptions, WebPatterns};
use guild_contract::capability::grants::Names;
use guild_session::tools::ToolError;
use url::{Host, Url};

use crate::address::not_public;

/// The maximum length of an address, in bytes.
const MAX_URL_BYTES: usize = 4096;

/// The policy in `[web]` of guild.toml.
#[derive(Debug)]
pub(crate) struct Policy {
    allow: Vec<HostPattern>,
    deny: Vec<HostPattern>,
    private: Vec<HostPattern>,
}

/// The addresses at which a host may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Only public addresses: rule 4 applies.
    Public,
    /// All addresses: the operator named the host in `[web] private`.
    Any,
}

impl Policy {
    /// The policy of `[web]`.
    ///
    /// # Errors
    /// The text names the key of guild.toml and the pattern.
    pub(crate) fn new(options: &WebOptions) -> Result<Self, String> {
        let WebPatterns { allow, deny, private } = options.patterns()?;
        Ok(Self { allow, deny, private })
    }

    /// Whether any host is allowed.
    pub(crate) fn allows_any(&self) -> bool {
        !self.allow.is_empty()
    }

    /// Applies rules 3 and 5, and rule 4 for a host that is an address. For a name, the resolver applies rule 4.
    pub(crate) fn check(&self, url: &Url) -> Result<Reach, ToolError> {
        let (host, port) = host_and_port(url)?;
        let shown = shown(url);
        let covers = |pattern: &HostPattern| pattern.covers(&host, port);
        if let Some(pattern) = self.deny.iter().find(|pattern| covers(pattern)) {
            return Err(ToolError::NotGranted(format!(
                "the host {shown} is denied by {:?} in `[web] deny` of guild.toml",
                pattern.as_str()
            )));
        }
        if !self.allow.iter().any(covers) {
            return Err(ToolError::NotGranted(format!(
                "the host {shown} is not allowed; in guild.toml, `[web] allow = [\"{shown}\"]` would allow it"
            )));
        }
        if self.private.iter().any(covers) {
            return Ok(Reach::Any);
        }
        let address = match host {
            Host::Domain(_) => return Ok(Reach::Public),
            Host::Ipv4(address) => address.into(),
            Host::Ipv6(address) => address.into(),
        };
        not_public(address).map_or(Ok(Reach::Public), |what| Err(private_address(url, &format!("it is {what}"))))
    }
}

/// The hosts that one member may read, among those that `[web]` allows: rule 6. By default all of them.
#[derive(Clone, Debug, Default)]
pub struct MemberHosts {
    all_of: Vec<Vec<HostPattern>>,
    none_of: Vec<HostPattern>,
}

impl MemberHosts {
    /// The hosts that `names` grants.
    ///
    /// # Errors
    /// The text names the invalid pattern.
    pub fn new(names: &Names) -> Result<Self, String> {
        let read = |patterns: &Vec<String>| patterns.iter().map(|text| HostPattern::parse(text)).collect();
        let all_of = names.all_of.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { all_of, none_of: read(&names.none_of)? })
    }

    /// Whether any host may be granted.
    pub(crate) fn any(&self) -> bool {
        self.all_of.iter().all(|patterns| !patterns.is_empty())
    }

    /// Checks an address.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for what is no address of the web, and `NotGranted` for a host that is not granted.
    pub fn check_address(&self, address: &str) -> Result<(), ToolError> {
        self.check(&parse(address)?)
    }

    pub(crate) fn check(&self, url: &Url) -> Result<(), ToolError> {
        let (host, port) = host_and_port(url)?;
        let shown = shown(url);
        let covers = |pattern: &HostPattern| pattern.covers(&host, port);
        if let Some(pattern) = self.none_of.iter().find(|pattern| covers(pattern)) {
            return Err(ToolError::NotGranted(format!(
                "the host {shown} is denied to this member by \"web:{}\" in `deny` of its [member] in guild.toml",
                pattern.as_str()
            )));
        }
        if let Some(others) = self.all_of.iter().find(|patterns| !patterns.iter().any(covers)) {
            let others: Vec<&str> = others.iter().map(|pattern| pattern.as_str()).collect();
            return Err(ToolError::NotGranted(format!(
                "the host {shown} is not granted to this member, which is granted {} only: its manifest asks \
                 for hosts in `component.grants.web.hosts`, and [member] in guild.toml allows them, as \"web:{shown}\"",
                if others.is_empty() { "none".to_owned() } else { others.join(", ") }
            )));
        }
        Ok(())
    }
}

fn host_and_port(url: &Url) -> Result<(Host, u16), ToolError> {
    let host = url.host().map(|host| host.to_owned());
    host.zip(url.port_or_known_default()).ok_or_else(|| ToolError::InvalidInput(format!("{url} names no host")))
}

/// The refusal of rule 4. `why` says what the host is or resolves to.
pub(crate) fn private_address(url: &Url, why: &str) -> ToolError {
    let shown = shown(url);
    ToolError::NotGranted(format!(
        "the host {shown} is not on the public internet: {why}; in guild.toml, `[web] private = [\"{shown}\"]` would \
         allow it"
    ))
}

/// The host of an address as a pattern names it, with its port unless that is the scheme's default.
pub(crate) fn shown(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Normalises an address for comparison: rules 1 and 2, no fragment, no dot at the host's end.
pub(crate) fn parse(text: &str) -> Result<Url, ToolError> {
    let invalid = |why: String| Err(ToolError::InvalidInput(why));
    if text.len() > MAX_URL_BYTES {
        return invalid(format!("the address is longer than {MAX_URL_BYTES} bytes"));
    }
    match Url::parse(text.trim()) {
        Ok(url) => normal(url),
        Err(error) => invalid(format!("{text:?} is no address of a page ({error}); give it whole, with https://")),
    }
}

/// See [`parse`].
pub(crate) fn normal(mut url: Url) -> Result<Url, ToolError> {
    let invalid = |why: String| ToolError::InvalidInput(why);
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid(format!("only http and https addresses can be read, not {}:", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("an address with a user name or a password in it is not read".to_owned()));
    }
    url.set_fragment(None);
    if let Some(host) = url.host_str().and_then(|host| host.strip_suffix('.')) {
        let host = host.trim_end_matches('.').to_owned();
        url.set_host(Some(&host)).map_err(|error| invalid(format!("the address names no host ({error})")))?;
    }
    if url.as_str().len() > MAX_URL_BYTES {
        return Err(invalid(format!("the address is longer than {MAX_URL_BYTES} bytes")));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allow: &[&str], deny: &[&str], private: &[&str]) -> Policy {
        let own = |patterns: &[&str]| patterns.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let (allow, deny, private) = (own(allow), own(deny), own(private));
        Policy::new(&WebOptions { allow, deny, private, ..WebOptions::default() }).unwrap()
    }

    fn check(policy: &Policy, url: &str) -> Result<Reach, ToolError> {
        policy.check(&parse(url)?)
    }

    fn refusal(policy: &Policy, url: &str) -> String {
        match check(policy, url) {
            Err(ToolError::NotGranted(why)) => why,
            other => panic!("{url}: {other:?}"),
        }
    }

    #[test]
    fn nothing_is_allowed_by_default_and_the_refusal_names_the_line() {
        let why = refusal(&policy(&[], &[], &[]), "https://Docs.Example.org/page");
        assert!(why.contains("docs.example.org"), "{why}");
        assert!(why.contains(r#"`[web] allow = ["docs.example.org"]`"#), "{why}");
        let why = refusal(&policy(&[], &[], &[]), "https://example.org:8443/page");
        assert!(why.contains(r#"`[web] allow = ["example.org:8443"]`"#), "{why}");
    }

    #[test]
    fn patterns_cover_what_they_say() {
        for (pattern, url, covered) in [
            ("*", "https://example.org/", true),
            ("*", "http://8.8.8.8/", true),
            ("*:443", "https://example.org/", true),
            ("*:443", "http://example.org/", false),
            ("example.org", "https://example.org/", true),
            ("example.org", "http://example.org:8080/", true),
            ("example.org", "https://www.example.org/", false),
            ("example.org", "https://badexample.org/", false),
            ("example.org", "https://example.org.evil.net/", false),
            ("example.org:8080", "http://example.org:8080/", true),
            ("example.org:8080", "http://example.org/", false),
            ("*.example.org", "https://www.example.org/", true),
            ("*.example.org", "https://a.b.example.org/", true),
            ("*.example.org", "https://example.org/", false),
            ("*.example.org", "https://badexample.org/", false),
            ("EXAMPLE.org.", "https://example.ORG/", true),
            ("example.org", "https://example.org./", true),
            ("bücher.example", "https://xn--bcher-kva.example/", true),
            ("xn--bcher-kva.example", "https://BÜCHER.example/", true),
            ("8.8.8.8", "http://0x08.010.2056/", true),
            ("2606:4700::1111", "https://[2606:4700:0:0::1111]/", true),
            ("[2606:4700::1111]:8443", "https://[2606:4700::1111]:8443/", true),
            ("[2606:4700::1111]:8443", "https://[2606:4700::1111]/", false),
        ] {
            let allowed = check(&policy(&[pattern], &[], &[]), url);
            assert_eq!(allowed.is_ok(), covered, "{pattern} and {url}: {allowed:?}");
            let denied = check(&policy(&["*"], &[pattern], &[]), url);
            assert_eq!(denied.is_err(), covered, "{pattern} and {url}: {denied:?}");
        }
    }

    #[test]
    fn deny_wins_over_allow() {
        let policy = policy(&["*", "tracker.example.org"], &["tracker.example.org"], &["tracker.example.org"]);
        assert!(refusal(&policy, "https://tracker.example.org/").contains(r#""tracker.example.org" in `[web] deny`"#));
        assert_eq!(check(&policy, "https://example.org/"), Ok(Reach::Public));
    }

    #[test]
    fn a_member_reads_what_it_asks_for_and_is_allowed() {
        let own = |patterns: &[&str]| patterns.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let names = Names {
            all_of: vec![own(&["*.example.org", "docs.rs"]), own(&["*.org", "docs.rs:443"])],
            none_of: own(&["ads.example.org"]),
        };
        let hosts = MemberHosts::new(&names).unwrap();
        let check = |url: &str| hosts.check(&parse(url).unwrap());
        for url in ["https://www.example.org/", "https://docs.rs/", "https://WWW.EXAMPLE.ORG./"] {
            assert!(check(url).is_ok(), "{url}");
        }
        for (url, why) in [
            ("http://docs.rs/", "granted *.org, docs.rs:443 only"),
            ("https://rust-lang.org/", "granted *.example.org, docs.rs only"),
            ("https://ads.example.org/", r#""web:ads.example.org" in `deny`"#),
        ] {
            assert!(matches!(check(url), Err(ToolError::NotGranted(text)) if text.contains(why)), "{url}");
        }
        assert!(MemberHosts::default().check(&parse("https://x.example/").unwrap()).is_ok());
        assert!(MemberHosts::new(&Names { all_of: vec![own(&["a*.org"])], none_of: vec![] }).is_err());
    }

    #[test]
    fn a_private_address_is_refused_in_every_spelling() {
        let policy = policy(&["*"], &[], &[]);
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0x7f.1/",
            "http://0177.0.0.01/",
            "http://127.0.0.1./",
            "http://%31%32%37.0.0.1/",
            "http://127。0。0。1/",
            "http://①②⑦.0.0.1/",
            "http://0/",
            "http://[::1]/",
            "http://[::]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[0:0:0:0:0:ffff:169.254.169.254]/",
            "http://[::127.0.0.1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[2002:7f00:1::]/",
            "http://[fd00:ec2::254]/latest/meta-data/",
            "http://169.254.169.254/latest/meta-data/",
            "http://0xa9fea9fe/latest/meta-data/",
            "http://100.100.100.200/",
        ] {
            assert!(refusal(&policy, url).contains("not on the public internet"), "{url}");
        }
    }

    #[test]
    fn private_lifts_the_rule_about_addresses_and_no_other() {
        let some = policy(&["*"], &[], &["127.0.0.1:8888", "intranet.example.org"]);
        assert_eq!(check(&some, "http://127.0.0.1:8888/"), Ok(Reach::Any));
        assert_eq!(check(&some, "http://2130706433:8888/"), Ok(Reach::Any));
        assert_eq!(check(&some, "http://intranet.example.org:3000/"), Ok(Reach::Any));
        let why = refusal(&some, "http://127.0.0.1:9999/");
        assert!(why.contains(r#"`[web] private = ["127.0.0.1:9999"]`"#), "{why}");
        let not_allowed = policy(&[], &[], &["127.0.0.1"]);
        assert!(refusal(&not_allowed, "http://127.0.0.1/").contains("[web] allow"));
    }

    #[test]
    fn only_web_addresses_without_credentials_are_addresses() {
        for text in [
            "ftp://example.org/",
            "file:///etc/passwd",
            "data:text/html,x",
            "gopher://example.org/",
            "javascript:alert(1)",
            "example.org",
            "/page",
            "",
            "https://",
            "https://./",
            "https://user@example.org/",
            "https://user:secret@example.org/",
            "https://:secret@example.org/",
            "http://exa mple.org/",
            "http://[fe80::1%25eth0]/",
            "http://1.2.3.4.5/",
        ] {
            assert!(matches!(parse(text), Err(ToolError::InvalidInput(_))), "{text}: {:?}", parse(text));
        }
        let long = format!("https://example.org/{}", "a".repeat(5000));
        assert!(matches!(parse(&long), Err(ToolError::InvalidInput(_))));
        assert_eq!(parse(" https://Example.org./a#part ").unwrap().as_str(), "https://example.org/a");
    }

    #[test]
    fn a_pattern_that_names_no_hosts_is_refused_with_its_key() {
        for text in [
            "",
            "*.",
            "*.*",
            "a*.org",
            "*example.org",
            "https://example.org",
            "example.org/path",
            "example.org:port",
            "example.org:",
            "*.127.0.0.1",
            "exa mple.org",
            "user@example.org",
            ":80",
            ".",
        ] {
            let error = Policy::new(&WebOptions { allow: vec![text.to_owned()], ..WebOptions::default() }).unwrap_err();
            assert!(error.contains("[web] allow") && error.contains(&format!("{text:?}")), "{text}: {error}");
        }
        for text in ["*", "*.example.org", "*:80"] {
            let error =
                Policy::new(&WebOptions { private: vec![text.to_owned()], ..WebOptions::default() }).unwrap_err();
            assert!(error.contains("[web] private") && error.contains(text), "{error}");
        }
    }
}
