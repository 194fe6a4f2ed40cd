//! Finds hosts that a text names, and tells whether anybody can have a name or an address on a host.

use std::{collections::BTreeMap, fmt, sync::LazyLock};

use regex::bytes::Regex;

/// Hosts of one text that are listed.
const LISTED: usize = 200;
/// Names that are looked at, so that a file made of nothing but names takes no time.
const LOOKED_AT: usize = 100_000;
/// Characters of an address that are shown.
const SHOWN_BYTES: usize = 160;

/// Hosts on which anybody can register a name, take an address that others can read, or have what is sent forwarded; one
/// in a line, `#` begins a comment. Names below the private suffixes of the Public Suffix List are found without it.
const OPEN: &str = include_str!("open-hosts.txt");

/// A host that a text names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Where it is named first, in bytes.
    pub offset: usize,
    /// The address as it stands there; a long one is cut.
    pub shown: String,
}

// An address with a scheme; or a name alone, of which `Object.is` and `lib.rs` are none (see `is_name`).
static ADDRESS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i-u)(?P<scheme>https?|wss?|ftp)://(?:[^\s/@\x00-\x20<>]{1,100}@)?(?P<host>[a-z0-9_\-.]{1,253}|\[[0-9a-f:.]{2,45}\])(?P<rest>(?::[0-9]{1,5})?(?:/[!-~&&[^<>\x22'`\\]]*)?)|(?P<bare>\b(?:[a-z0-9](?:[a-z0-9\-]{0,61}[a-z0-9])?\.){1,8}[a-z]{2,24}\b)",
    )
    .ok()
});

/// How sure it has to be that a name without a scheme is a host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bare {
    /// A text for people or models: a name of a well-known suffix is a host.
    Text,
    /// Data of a program, which is full of names with dots: only addresses with a scheme count.
    Data,
}

/// The hosts that a text names, in lower case, by name; at most [`LISTED`].
pub fn hosts(bytes: &[u8], bare: Bare) -> BTreeMap<String, Host> {
    let mut found = BTreeMap::new();
    let Some(address) = ADDRESS.as_ref() else { return found };
    for captures in address.captures_iter(bytes).take(LOOKED_AT) {
        let (Some(whole), name) = (captures.get(0), captures.name("host").or(captures.name("bare"))) else { continue };
        let has_scheme = captures.name("scheme").is_some();
        let Some(name) = name else { continue };
        let name = String::from_utf8_lossy(name.as_bytes()).trim_matches(['.', '[', ']']).to_ascii_lowercase();
        let precedes = |places: usize| whole.start().checked_sub(places).and_then(|at| bytes.get(at));
        let is_part = precedes(1).is_some_and(|byte| b"@/\\_-.$".contains(byte));
        let counts = if has_scheme { is_host(&name) } else { bare == Bare::Text && !is_part && is_name(&name) };
        if !counts || found.len() >= LISTED {
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

/// Whether a name with dots is a host's, and not a file's or a program's: its suffix is one of ICANN's, and not one that
/// files and methods have too.
fn is_name(name: &str) -> bool {
    const ALSO_FILES: [&str; 34] = [
        "rs",
        "py",
        "md",
        "sh",
        "cc",
        "pl",
        "ps",
        "so",
        "st",
        "ml",
        "mk",
        "js",
        "ts",
        "zip",
        "mov",
        "is",
        "name",
        "id",
        "in",
        "it",
        "to",
        "do",
        "be",
        "as",
        "at",
        "no",
        "data",
        "call",
        "call",
        "next",
        "map",
        "date",
        "page",
        "foundation",
    ];
    let last = name.rsplit('.').next().unwrap_or_default();
    let suffix = psl::suffix(name.as_bytes());
    is_host(name)
        && (!ALSO_FILES.contains(&last) || name.starts_with("www."))
        && suffix.is_some_and(|suffix| suffix.is_known() && suffix.as_bytes().len() < name.len())
}

/// Whether a name is this domain, or below it.
fn is_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|front| front.is_empty() || front.ends_with('.'))
}

/// The reason that data which is sent to a host, or to a pattern of hosts, can reach anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Open {
    /// The pattern has every host.
    Any,
    /// Anybody can have an address on this host.
    Address(&'static str),
    /// Anybody can register a name below this suffix, as `com`, and the pattern has all of them.
    PublicSuffix(String),
    /// Anybody can register a name below this suffix, which belongs to one party, as `github.io`.
    PrivateSuffix(String),
}

impl fmt::Display for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("it is any host"),
            Self::Address(host) => write!(f, "anybody can have an address on {host}"),
            Self::PublicSuffix(suffix) => write!(f, "anybody can register a name below .{suffix}"),
            Self::PrivateSuffix(suffix) => write!(f, "anybody can register a name below {suffix}"),
        }
    }
}

/// Why what is sent to a host, or to a pattern of hosts such as `*.github.io`, can reach anybody; none of a host that
/// belongs to one party as far as is known.
pub fn open(pattern: &str) -> Option<Open> {
    let name = pattern.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let is_pattern = name.contains('*');
    let name = name.trim_start_matches("*.");
    if name.is_empty() || name.contains('*') {
        return Some(Open::Any);
    }
    let listed =
        OPEN.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).filter(|line| !line.is_empty());
    if let Some(open) = listed.into_iter().find(|open| is_below(name, open)) {
        return Some(Open::Address(open));
    }
    let suffix = psl::suffix(name.as_bytes())?;
    let is_suffix = suffix.as_bytes().len() == name.len();
    let is_private = suffix.is_known() && suffix.typ() == Some(psl::Type::Private);
    match (is_pattern && is_suffix, is_private) {
        (true, false) => Some(Open::PublicSuffix(name.to_owned())),
        // A name below a private suffix belongs to one party, but anybody can be that party.
        (_, true) => Some(Open::PrivateSuffix(String::from_utf8_lossy(suffix.as_bytes()).into_owned())),
        _ => None,
    }
}

/// Whether a pattern of a manifest, such as `docs.rs`, `*.rust-lang.org` or `*:443`, has this host.
pub fn matches(pattern: &str, host: &str) -> bool {
    let pattern = pattern.split(':').next().unwrap_or_default().to_ascii_lowercase();
    match pattern.strip_prefix("*.") {
        Some(domain) => host.strip_suffix(domain).is_some_and(|front| front.ends_with('.')),
        None => pattern == "*" || pattern == host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str, bare: Bare) -> Vec<String> {
        hosts(text.as_bytes(), bare).into_keys().collect()
    }

    #[test]
    fn addresses_are_found_in_texts_and_in_data() {
        let text = "see https://Docs.rs/x and wss://collect.attacker.dev:8443/in?x=1, http://10.1.2.3/a, http://[2001:db8::1]/";
        assert_eq!(named(text, Bare::Data), ["10.1.2.3", "2001:db8::1", "collect.attacker.dev", "docs.rs"]);
        let found = hosts(text.as_bytes(), Bare::Data);
        assert_eq!(found.get("collect.attacker.dev").unwrap().shown, "wss://collect.attacker.dev:8443/in?x=1,");
        assert_eq!(found.get("collect.attacker.dev").unwrap().offset, 26);
    }

    #[test]
    fn a_name_alone_counts_in_texts_only() {
        let text = "send it to files.attacker.dev or paste.ee, not to lib.rs, Object.is, main.py, notes.md, a.b or ann@mail.com";
        assert_eq!(named(text, Bare::Text), ["files.attacker.dev", "paste.ee"]);
        assert_eq!(named(text, Bare::Data), Vec::<String>::new());
    }

    #[test]
    fn examples_and_this_machine_say_nothing() {
        let text =
            "http://localhost:8080/ https://example.com/a https://api.example.org http://foo.test http://x.invalid";
        assert_eq!(named(text, Bare::Text), Vec::<String>::new());
    }

    #[test]
    fn hosts_that_anybody_can_have_are_known() {
        for open_to_all in
            ["*", "*:443", "*.com", "*.co.uk", "*.github.io", "ann.github.io", "pastebin.com", "x.ngrok.io"]
        {
            assert!(open(open_to_all).is_some(), "{open_to_all}");
        }
        for of_one in ["docs.rs", "*.rust-lang.org", "api.github.com", "*.wikipedia.org:443", "arxiv.org"] {
            assert_eq!(open(of_one), None, "{of_one}");
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
        assert_eq!(hosts(text.as_bytes(), Bare::Data).len(), LISTED);
    }
}
