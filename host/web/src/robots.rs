//! Parses `robots.txt` (RFC 9309), and checks which paths of a host a robot of our name may read.
//!
//! A group applies if it names `guild`, or else if it names `*`; all groups with one name are merged. The longest
//! pattern that matches a path decides, and `allow` wins a tie. `*` matches anything, `$` at the end the end. The
//! available crates have been unmaintained for years, so none is used.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::sync::OnceCell;

/// The name in groups and in requests.
pub(crate) const AGENT: &str = "guild";

/// The maximum size of a file that is read; RFC 9309 requires at least this much.
pub(crate) const MAX_FILE_BYTES: usize = 500 * 1024;

/// The maximum size of a group's patterns together, since each is compared with each path.
const MAX_PATTERN_BYTES: usize = 32 * 1024;

/// The time after which the rules of a host are read again.
const MAX_AGE: Duration = Duration::from_secs(60 * 60);
/// The maximum number of hosts whose rules are kept.
const MAX_HOSTS: usize = 256;

/// The rules of a host. Without rules all paths are allowed.
#[derive(Debug, Default)]
pub(crate) struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    allow: bool,
    /// The normalised pattern without the `$`.
    pattern: Vec<u8>,
    /// Whether the path must end where the pattern does.
    anchored: bool,
}

impl Rules {
    pub(crate) fn parse(file: &[u8]) -> Self {
        let file = String::from_utf8_lossy(file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file));
        let (mut ours, mut anyones) = (None, None);
        let (mut names_us, mut names_anyone, mut in_names) = (false, false, false);
        for line in file.split(['\n', '\r']) {
            let Some((key, value)) = line.split('#').next().unwrap_or_default().split_once(':') else { continue };
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            match key.as_str() {
                "user-agent" => {
                    if !in_names {
                        (names_us, names_anyone, in_names) = (false, false, true);
                    }
                    let token = value.split(|c: char| !(c.is_ascii_alphabetic() || "-_".contains(c))).next();
                    if token.is_some_and(|token| token.eq_ignore_ascii_case(AGENT)) {
                        names_us = true;
                        ours.get_or_insert_with(Vec::new);
                    }
                    if value == "*" {
                        names_anyone = true;
                        anyones.get_or_insert_with(Vec::new);
                    }
                }
                "allow" | "disallow" => {
                    in_names = false;
                    let add = |group: &mut Option<Vec<Rule>>| {
                        group.get_or_insert_with(Vec::new).extend(Rule::parse(key == "allow", value));
                    };
                    if names_us {
                        add(&mut ours);
                    }
                    if names_anyone {
                        add(&mut anyones);
                    }
                }
                // Other lines, such as sitemaps and delays, are irrelevant here.
                _ => {}
            }
        }
        let mut rules = ours.or(anyones).unwrap_or_default();
        let mut room = MAX_PATTERN_BYTES;
        rules.retain(|rule| {
            let fits = rule.pattern.len() <= room;
            room = room.saturating_sub(rule.pattern.len());
            fits
        });
        Self(rules)
    }

    /// Whether a path with its query may be read.
    pub(crate) fn allow(&self, path: &str) -> bool {
        let path = normal(path);
        let longest = self.0.iter().filter(|rule| rule.matches(&path)).max_by_key(|rule| (rule.length(), rule.allow));
        longest.is_none_or(|rule| rule.allow)
    }
}

impl Rule {
    /// An empty pattern is no rule.
    fn parse(allow: bool, value: &str) -> Option<Self> {
        let (pattern, anchored) = value.strip_suffix('$').map_or((value, false), |pattern| (pattern, true));
        let rooted = pattern.starts_with('/') || pattern.starts_with('*');
        (!value.is_empty()).then(|| Self {
            allow,
            pattern: normal(&if rooted { pattern.to_owned() } else { format!("/{pattern}") }),
            anchored,
        })
    }

    fn length(&self) -> usize {
        self.pattern.len() + usize::from(self.anchored)
    }

    /// Each piece between two `*` is searched from the end of the previous one. The first match is as good as any later
    /// one, except for the last piece of an anchored pattern, which must match at the end.
    fn matches(&self, path: &[u8]) -> bool {
        let mut pieces = self.pattern.split(|byte| *byte == b'*');
        let Some(mut rest) = pieces.next().and_then(|first| path.strip_prefix(first)) else { return false };
        let mut pieces = pieces.peekable();
        if pieces.peek().is_none() {
            return !self.anchored || rest.is_empty();
        }
        while let Some(piece) = pieces.next() {
            if self.anchored && pieces.peek().is_none() {
                return rest.ends_with(piece);
            }
            let found = (0..=rest.len()).find_map(|at| rest.get(at..)?.strip_prefix(piece));
            let Some(behind) = found else { return false };
            rest = behind;
        }
        true
    }
}

/// Normalises a path or pattern: other characters than ASCII are percent-encoded, needless encodings are decoded, and
/// the digits of encodings are upper case.
fn normal(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes();
    while let Some((byte, rest)) = bytes.split_first() {
        bytes = rest;
        match (byte, rest.split_at_checked(2)) {
            (b'%', Some((digits, behind))) if digits.iter().all(u8::is_ascii_hexdigit) => {
                let decoded = std::str::from_utf8(digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok());
                match decoded {
                    Some(byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => out.push(byte),
                    _ => out.extend([b'%'].into_iter().chain(digits.iter().map(u8::to_ascii_uppercase))),
                }
                bytes = behind;
            }
            (byte, _) if byte.is_ascii() => out.push(*byte),
            (byte, _) => out.extend(format!("%{byte:02X}").into_bytes()),
        }
    }
    out
}

/// The rules of hosts, by scheme, host and port. Concurrent readers of one host share one request.
#[derive(Default)]
pub(crate) struct RobotsCache(Mutex<HashMap<String, CachedRules>>);

struct CachedRules {
    since: Instant,
    rules: Arc<OnceCell<Rules>>,
}

impl RobotsCache {
    /// The cell for the rules of a host, which is initially empty.
    pub(crate) fn of(&self, host: &str) -> Arc<OnceCell<Rules>> {
        let mut hosts = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        hosts.retain(|_, kept| kept.since.elapsed() < MAX_AGE);
        if hosts.len() >= MAX_HOSTS && !hosts.contains_key(host) {
            let oldest = hosts.iter().min_by_key(|(_, kept)| kept.since).map(|(host, _)| host.clone());
            oldest.and_then(|oldest| hosts.remove(&oldest));
        }
        let new = || CachedRules { since: Instant::now(), rules: Arc::default() };
        hosts.entry(host.to_owned()).or_insert_with(new).rules.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_of_rules_is_bounded() {
        let cache = RobotsCache::default();
        let first = cache.of("http://0.example");
        assert!(Arc::ptr_eq(&first, &cache.of("http://0.example")));
        for host in 1..=MAX_HOSTS {
            cache.of(&format!("http://{host}.example"));
        }
        assert_eq!(cache.0.lock().unwrap().len(), MAX_HOSTS);
        assert!(!Arc::ptr_eq(&first, &cache.of("http://0.example")));
    }

    fn allows(file: &str, path: &str) -> bool {
        Rules::parse(file.as_bytes()).allow(path)
    }

    #[test]
    fn our_own_group_holds_and_else_that_for_all() {
        let file = "user-agent: *\ndisallow: /\n\nUser-Agent: Guild/1.0\nDisallow: /private\n";
        assert!(allows(file, "/page"));
        assert!(!allows(file, "/private/page"));
        assert!(!allows("User-agent: other\nAllow: /\n\nUser-agent: *\nDisallow: /\n", "/page"));
        assert!(allows("User-agent: guildmaster\nDisallow: /\n", "/page"));
        assert!(allows("User-agent: *\nDisallow: /\n\nUser-agent: guild\nCrawl-delay: 3\n", "/page"));
    }

    #[test]
    fn names_that_follow_each_other_share_their_rules_and_groups_of_a_name_are_one() {
        let file = "User-agent: other\nUser-agent: guild\nDisallow: /a\n\nUser-agent: third\nDisallow: /b\n\n\
                    User-agent: guild\nDisallow: /c\n";
        assert!(!allows(file, "/a"));
        assert!(allows(file, "/b"));
        assert!(!allows(file, "/c"));
    }

    #[test]
    fn the_longest_match_decides_and_allow_among_equals() {
        let file = "User-agent: *\nDisallow: /docs\nAllow: /docs/public\nDisallow: /same\nAllow: /same\n";
        assert!(!allows(file, "/docs/x"));
        assert!(allows(file, "/docs/public/x"));
        assert!(allows(file, "/same"));
    }

    #[test]
    fn patterns_match_as_the_standard_says() {
        for (pattern, path, matches) in [
            ("/", "/anything", true),
            ("", "/anything", false),
            ("/fish", "/fish.html?x", true),
            ("/fish", "/Fish", false),
            ("fish", "/fish", true),
            ("/fish/", "/fish", false),
            ("/*.php", "/index.php?x=y", true),
            ("/*.php$", "/a.php/b.php", true),
            ("/*.php$", "/index.php?x=y", false),
            ("/page$", "/page", true),
            ("/page$", "/pages", false),
            ("$", "/", true),
            ("$", "/x", false),
            ("/*?sort=", "/list?sort=up", true),
            ("*/private/*/x", "/a/private/b/x", true),
            ("*/private/*/x", "/a/private/x", false),
            ("/a*b*c$", "/aXbXbXc", true),
            ("/ab*ba$", "/aba", false),
            ("/ü", "/%c3%bc", true),
            ("/%7Ejoe", "/~joe", true),
            ("/a%3cb", "/a%3Cb", true),
            ("/a%2Fb", "/a/b", false),
            ("/100%", "/100%", true),
        ] {
            let file = format!("User-agent: *\nDisallow: {pattern} # comment\n");
            assert_eq!(!allows(&file, path), matches, "{pattern} and {path}");
        }
    }

    #[test]
    fn what_is_no_rule_is_left_out() {
        assert!(allows("", "/page"));
        assert!(allows("<!doctype html><p>disallow: /", "/page"));
        assert!(allows("Disallow: /\n", "/page"));
        assert!(!allows("\u{feff}User-agent: *\r\nDisallow: /page\rSitemap: x", "/page"));
    }

    #[test]
    fn a_hostile_file_is_matched_in_bounded_time() {
        let path = format!("/{}", "a".repeat(4000));
        for pattern in ["*a".repeat(1000), format!("*{}", "a".repeat(2000))] {
            let file = format!("User-agent: *\n{}", format!("Disallow: {pattern}b\n").repeat(200));
            let started = Instant::now();
            assert!(allows(&file, &path));
            assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        }
    }
}
