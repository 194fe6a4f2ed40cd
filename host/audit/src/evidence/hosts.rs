//! Finds the hosts of addresses in a text, and tells whether a host passes on what it is sent.

use std::{collections::BTreeMap, sync::LazyLock};

use regex::bytes::Regex;

/// Hosts of one text that are listed.
const LISTED: usize = 200;
/// Addresses that are looked at, so that a file made of nothing but them takes no time.
const LOOKED_AT: usize = 100_000;
/// Characters of an address that are shown.
const SHOWN_BYTES: usize = 160;

/// The hosts that pass on what they are sent; the file says how it is written.
const RELAYS: &str = include_str!("relays.txt");

/// A host that a text names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Where it is named first, in bytes.
    pub offset: usize,
    /// The address as it stands there; a long one is cut.
    pub shown: String,
}

/// An address with a scheme.
static ADDRESS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i-u)(?:https?|wss?|ftp)://(?:[^\s/@\x00-\x20<>]{1,100}@)?(?P<host>[a-z0-9_\-.]{1,253}|\[[0-9a-f:.]{2,45}\])(?:(?::[0-9]{1,5})?(?:/[!-~&&[^<>\x22'`\\]]*)?)",
    )
    .ok()
});

/// The hosts of the addresses in a text, in lower case, by name; at most [`LISTED`].
pub fn hosts(bytes: &[u8]) -> BTreeMap<String, Host> {
    let mut found = BTreeMap::new();
    let Some(address) = ADDRESS.as_ref() else { return found };
    for captures in address.captures_iter(bytes).take(LOOKED_AT) {
        let (Some(whole), Some(name)) = (captures.get(0), captures.name("host")) else { continue };
        let name = String::from_utf8_lossy(name.as_bytes()).trim_matches(['.', '[', ']']).to_ascii_lowercase();
        if !is_host(&name) || found.len() >= LISTED {
            continue;
        }
        found.entry(name).or_insert_with(|| {
            let shown = whole.as_bytes().get(..SHOWN_BYTES).unwrap_or(whole.as_bytes());
            Host { offset: whole.start(), shown: String::from_utf8_lossy(shown).into_owned() }
        });
    }
    found
}

/// Whether what stands after a scheme can be reached: `localhost` and the names of examples and of standards' namespaces
/// cannot, and say nothing.
pub(super) fn is_host(name: &str) -> bool {
    let reserved = ["example", "invalid", "test", "localhost", "local"];
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_example = ["example.com", "example.org", "example.net"].iter().any(|example| is_below(name, example));
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    !is_example && (is_address || (name.contains('.') && !reserved.contains(&last)))
}

/// Whether addresses of a host are names of schemas and namespaces, which programs compare and do not ask.
pub fn is_namespace(name: &str) -> bool {
    const NAMESPACES: [&str; 6] = [
        "json-schema.org",
        "www.w3.org",
        "schemas.openxmlformats.org",
        "schemas.microsoft.com",
        "schemas.xmlsoap.org",
        "purl.org",
    ];
    NAMESPACES.contains(&name)
}

/// Whether a name is this domain, or below it.
fn is_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|front| front.is_empty() || front.ends_with('.'))
}

/// Why what is sent to a host, or to a pattern of hosts, can reach anybody: the pattern has every host, or the hosts of a
/// service that passes on what it is sent. `relays` are further such hosts, which the operator names. None for a host of
/// one party, as far as is known.
pub fn relay(pattern: &str, relays: &[String]) -> Option<String> {
    let name = name_of(pattern);
    let domain = name.strip_prefix("*.").unwrap_or(&name);
    // `*` and `*.com` have hosts of everybody.
    if name == "*" || domain.contains('*') || (name.starts_with("*.") && !domain.contains('.')) {
        return Some("any host".to_owned());
    }
    let has = |listed: &str| is_below(domain, listed) || (name.starts_with("*.") && is_below(listed, domain));
    let mut kind = "";
    for line in RELAYS.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((named, _)) => kind = named,
            None if has(line.trim()) => return Some(kind.to_owned()),
            None => {}
        }
    }
    let named = |relay: &&String| has(name_of(relay).trim_start_matches("*."));
    relays.iter().find(named).map(|_| "a relay, as guild.toml says".to_owned())
}

/// A pattern in small letters, without its port.
fn name_of(pattern: &str) -> String {
    pattern.split(':').next().unwrap_or_default().to_ascii_lowercase()
}

/// Whether a pattern of a manifest, such as `docs.rs`, `*.rust-lang.org` or `*:443`, has this host.
pub fn matches(pattern: &str, host: &str) -> bool {
    let pattern = name_of(pattern);
    match pattern.strip_prefix("*.") {
        Some(domain) => host.strip_suffix(domain).is_some_and(|front| front.ends_with('.')),
        None => pattern == "*" || pattern == host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<String> {
        hosts(text.as_bytes()).into_keys().collect()
    }

    #[test]
    fn addresses_are_found_in_texts_and_in_data() {
        let text = "see https://Docs.rs/x and wss://collect.attacker.dev:8443/in?x=1, http://10.1.2.3/a, http://[2001:db8::1]/";
        assert_eq!(named(text), ["10.1.2.3", "2001:db8::1", "collect.attacker.dev", "docs.rs"]);
        let found = hosts(text.as_bytes());
        assert_eq!(found.get("collect.attacker.dev").unwrap().shown, "wss://collect.attacker.dev:8443/in?x=1,");
        assert_eq!(found.get("collect.attacker.dev").unwrap().offset, 26);
    }

    #[test]
    fn examples_and_this_machine_say_nothing() {
        let text =
            "http://localhost:8080/ https://example.com/a https://api.example.org http://foo.test http://x.invalid";
        assert_eq!(named(text), Vec::<String>::new());
    }

    #[test]
    fn hosts_of_schemas_are_namespaces_and_no_hosts_below_them() {
        assert!(is_namespace("json-schema.org") && !is_namespace("a.json-schema.org") && !is_namespace("w3.org"));
    }

    #[test]
    fn hosts_that_pass_on_what_they_are_sent_are_known() {
        for relayed in [
            "*",
            "*:443",
            "*.com",
            "*.github.io",
            "ann.github.io",
            "pastebin.com",
            "x.ngrok.io",
            "web.archive.org",
            "translate.google.com",
            "dns.google",
            "cloudflare-dns.com:443",
            "*.archive.org",
            "docs.google.com",
        ] {
            assert!(relay(relayed, &[]).is_some(), "{relayed}");
        }
        for of_one in ["docs.rs", "*.rust-lang.org", "api.github.com", "*.wikipedia.org:443", "arxiv.org"] {
            assert_eq!(relay(of_one, &[]), None, "{of_one}");
        }
        let own = ["*.wiki.acme.net".to_owned()];
        assert!(relay("notes.wiki.acme.net", &own).is_some() && relay("*.acme.net", &own).is_some());
    }

    #[test]
    fn each_group_of_relays_has_a_kind_and_a_source() {
        let groups: Vec<_> = RELAYS.lines().filter_map(|line| line.strip_prefix('[')).collect();
        assert!(groups.len() > 5 && groups.iter().all(|group| group.contains("] https://")), "{groups:?}");
        let hosts = RELAYS.lines().filter(|line| !line.starts_with(['#', '[']) && !line.is_empty());
        for host in hosts {
            assert!(
                host.contains('.') && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-".contains(&b)),
                "{host}"
            );
        }
    }

    #[test]
    fn patterns_have_the_hosts_that_they_say() {
        assert!(matches("*.rust-lang.org", "doc.rust-lang.org") && !matches("*.rust-lang.org", "rust-lang.org"));
        assert!(matches("docs.rs", "docs.rs") && matches("docs.rs:443", "docs.rs") && matches("*", "x.y"));
        assert!(!matches("docs.rs", "evil-docs.rs") && !matches("*.docs.rs", "evildocs.rs"));
    }

    #[test]
    fn a_flood_of_hosts_is_bounded() {
        let text: String = (0..5000).map(|n| format!("https://h{n}.attacker.dev/ ")).collect();
        assert_eq!(hosts(text.as_bytes()).len(), LISTED);
    }
}
