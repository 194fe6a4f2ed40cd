//! Compares a pinned member with its present state.

use std::collections::BTreeSet;

use guild_audit::{Attributes, Change};
use guild_contract::{
    capability::{ARTIFACTS, Capability, FILES, KINDS, Kind, WEB},
    manifest::{FILE_NAME, POSTURE, Scope, package},
    text::one_line,
};

use crate::{
    lock::{Asked, Pin},
    signature::Trust,
};

/// The most lines in a sentence.
const IN_A_SENTENCE: usize = 6;
/// The most characters of a name from a component or `guild.trust`.
const CHARS: usize = 120;
/// The name of the attribute that is a hash.
const SHA256: &str = "sha256";
/// The beginning of the line of an import of WASI, after its sign.
const WASI: &str = " import wasi:";
/// The most lines of imports of WASI that are not summarized as one.
const WASI_LINES: usize = 3;
/// The digits of a hash in a sentence.
const DIGITS: usize = 12;

/// The changes of a member since it was pinned, in the words of the audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The attributes that were added, removed or changed.
    pub changes: Vec<Change>,
}

impl Difference {
    /// The changes from `old` to `new`. Without `old`, all attributes of `new` are added.
    pub fn between(old: Option<&Pin>, new: &Pin, trust: &Trust) -> Self {
        let old = old.map(|pin| pin.attributes(trust)).unwrap_or_default();
        Self { changes: Change::between(old, new.attributes(trust)) }
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// A line for each removed or added attribute: see [`Change::lines`]. Many interfaces of WASI are summarized in one
    /// line.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let (wasi, mut lines): (Vec<_>, Vec<_>) = self
            .changes
            .iter()
            .flat_map(Change::lines)
            .partition(|line| line.get(1..).is_some_and(|l| l.starts_with(WASI)));
        for sign in ["-", "+"] {
            let of_sign: Vec<_> = wasi.iter().filter(|line| line.starts_with(sign)).cloned().collect();
            if of_sign.len() <= WASI_LINES {
                lines.extend(of_sign);
                continue;
            }
            let package =
                |line: &String| line.get(1 + WASI.len()..).and_then(|l| l.split('/').next()).map(str::to_owned);
            let packages: BTreeSet<_> = of_sign.iter().filter_map(package).collect();
            let packages = packages.into_iter().collect::<Vec<_>>().join(", ");
            lines.push(format!("{sign}{WASI}* ({} interfaces of {packages})", of_sign.len()));
        }
        lines.into_iter()
    }

    /// A sentence of the first lines and the number of the others, with shortened hashes.
    pub fn sentence(&self) -> String {
        let mut lines: Vec<_> = self.changes.iter().map(brief).flat_map(|change| change.lines()).collect();
        let more = lines.len().saturating_sub(IN_A_SENTENCE);
        lines.truncate(IN_A_SENTENCE);
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        lines.join("; ") + &more
    }
}

/// A change with shortened hashes.
fn brief(change: &Change) -> Change {
    let mut change = change.clone();
    if [SHA256, FILE_NAME, package::FILE_NAME, POSTURE].contains(&change.name.as_str()) {
        let begin = |hash: String| hash.chars().take(DIGITS).chain(['…']).collect();
        (change.old, change.new) = (change.old.map(begin), change.new.map(begin));
    }
    change
}

impl Pin {
    /// The attributes of a pin.
    fn attributes(&self, trust: &Trust) -> Attributes {
        let mut attributes = Attributes::new();
        let mut add = |subject, name: String, value: String| _ = attributes.insert((subject, name), value);
        add("identity", SHA256.to_owned(), self.sha256.clone());
        add("identity", "bytes".to_owned(), self.bytes.to_string());
        if let Some(key) = &self.key {
            add("identity", "signer".to_owned(), signer(key, trust));
        }
        let files = [
            (FILE_NAME, &self.manifest),
            (package::FILE_NAME, &self.package),
            (POSTURE, &self.posture),
            ("mcp", &self.mcp),
        ];
        for (name, value) in files.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            add("identity", name.to_owned(), value.clone());
        }
        for import in &self.imports {
            add("import", one_line(import, CHARS), String::new());
        }
        // The requested parts are already among the attributes.
        for part in self.base.iter().filter(|part| !self.requested.asks_for(part)) {
            add("capability", format!("unasked in commissions: {part}"), String::new());
        }
        self.requested.add_attributes(add);
        attributes
    }
}

/// A key's name, given by the operator.
fn signer(key: &str, trust: &Trust) -> String {
    match trust.name(key) {
        Some(name) => format!("{} ({key})", one_line(name, CHARS)),
        None => key.to_owned(),
    }
}

impl Asked {
    /// Whether the manifest requests a part of the base toolbox.
    fn asks_for(&self, part: &str) -> bool {
        match Kind::named(part) {
            Some(kind) => kind.is_asked_with(|kind| self.asks(kind)),
            None => self.tools.contains(part),
        }
    }

    fn asks(&self, kind: &Kind) -> bool {
        let scopes: Vec<_> =
            [Scope::Project, Scope::Global].into_iter().filter(|scope| self.scopes.contains(scope.as_str())).collect();
        (kind.is_asked)(&self.grants, &scopes)
    }

    /// Adds each request. Capabilities are spelled as in `guild.toml`.
    fn add_attributes(&self, mut add: impl FnMut(&'static str, String, String)) {
        add("identity", "world".to_owned(), self.world.as_str().to_owned());
        let grants = &self.grants;
        // Every job may write artifacts: a manifest only bounds them.
        for kind in KINDS.into_iter().filter(|kind| **kind != ARTIFACTS && self.asks(kind)) {
            // An empty list requests all.
            let all = match kind {
                kind if *kind == FILES && grants.files.as_ref().is_some_and(|files| files.roots.is_empty()) => {
                    "every root"
                }
                kind if *kind == WEB && grants.web.as_ref().is_some_and(|web| web.hosts.is_empty()) => "every host",
                _ => "",
            };
            add("capability", kind.name.to_owned(), all.to_owned());
        }
        for root in grants.files.iter().flat_map(|files| &files.roots) {
            add("capability", Capability::Root(root.clone()).to_string(), String::new());
        }
        for host in grants.web.iter().flat_map(|web| &web.hosts) {
            add("capability", Capability::Host(host.clone()).to_string(), String::new());
        }
        let artifacts = grants.artifacts.unwrap_or_default();
        let bounds = [
            ("artifacts.bytes", artifacts.bytes.map(|n| n.to_string())),
            ("artifacts.entries", artifacts.entries.map(|n| n.to_string())),
            ("maxTurns", self.resources.max_turns.map(|n| n.to_string())),
            ("maxBudgetUsd", self.resources.max_budget_usd.map(|usd| usd.to_string())),
            ("deadlineSeconds", self.resources.deadline_seconds.map(|n| n.to_string())),
        ];
        for (name, bound) in bounds.into_iter().filter_map(|(name, bound)| Some((name, bound?))) {
            add("capability", name.to_owned(), bound);
        }
        let lists = [("tool", &self.tools), ("toolbox", &self.toolboxes)];
        for (of, name) in lists.into_iter().flat_map(|(of, names)| names.iter().map(move |name| (of, name))) {
            add("capability", format!("{of} {name}"), String::new());
        }
        // A member's own memories are not a capability, but naming them in the manifest is still a change.
        if self.scopes.contains(Scope::Worker.as_str()) {
            add("capability", "scope worker".to_owned(), String::new());
        }
        if let Some(scope) = &self.checkout_scope {
            add("capability", "checkoutScope".to_owned(), scope.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use guild_contract::{Manifest, manifest::ComponentSpec};
    use proptest::{collection::vec, option, prelude::*, sample::select};
    use serde_json::{Value, json};

    use super::*;
    use crate::lock::tests::pin;

    /// A capability that is missing or has some of its keys.
    fn request(keys: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Option<Value>> {
        let keys: Vec<_> = keys.into_iter().map(|(key, of)| option::of(of).prop_map(move |v| (key, v))).collect();
        let object = keys.prop_map(|keys| {
            keys.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect::<Value>()
        });
        option::of(object).boxed()
    }

    /// Similar names: of few characters, long ones with another end, and ones with keywords.
    fn names() -> BoxedStrategy<Value> {
        let long = select(vec!['a', 'b']).prop_map(|end| format!("{}.{end}", "x".repeat(240)));
        let words = select(vec!["search", "SEARCH", "*", "a  b", "files", "own-tools", "xn--a", "\u{430}"]);
        let name = prop_oneof!["[ab.*:\u{200b}\n]{1,3}", long, words.prop_map(str::to_owned)];
        vec(name, 0..3).prop_map(|names| json!(names)).boxed()
    }

    fn number() -> BoxedStrategy<Value> {
        (1..4_u32).prop_map(|n| json!(n)).boxed()
    }

    /// The requests of valid manifests.
    fn asked() -> impl Strategy<Value = Option<ComponentSpec>> {
        let yes_or_no = || any::<bool>().prop_map(|yes| json!(yes)).boxed();
        let grants = [
            ("log", request(vec![])),
            ("memory", request(vec![("write", yes_or_no())])),
            ("files", request(vec![("roots", names())])),
            ("web", request(vec![("hosts", names()), ("search", yes_or_no())])),
            ("job-tools", request(vec![])),
            ("status", request(vec![])),
            ("agent", request(vec![("ownTools", yes_or_no())])),
            ("artifacts", request(vec![("bytes", number()), ("entries", number())])),
            ("lore", request(vec![("write", yes_or_no())])),
            ("worktree", request(vec![("write", yes_or_no())])),
            ("hall", request(vec![("read", yes_or_no()), ("manage", yes_or_no())])),
        ];
        let grants: Vec<_> = grants.into_iter().map(|(name, of)| of.prop_map(move |value| (name, value))).collect();
        let grants = grants.prop_map(|all| {
            all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<Value>()
        });
        let bounds = vec![("maxTurns", number()), ("maxBudgetUsd", number()), ("deadlineSeconds", number())];
        let bounds = request(bounds).prop_map(|bounds| bounds.unwrap_or_else(|| json!({})));
        let tools = vec(select(vec!["Read", "Grep", "WebSearch", "WebFetch"]), 0..3);
        let world = select(vec!["worker", "autonomous-worker"]);
        let scopes = vec(select(vec!["worker", "project", "global"]), 0..3);
        let checkout = select(vec![json!(null), json!("sparse"), json!("full")]);
        let commissions = (scopes, checkout);
        (grants, bounds, tools, world, commissions).prop_map(|(grants, resources, tools, world, (scopes, checkout))| {
            let manifest = json!({
                "name": "a", "displayName": "a", "description": "", "version": "1", "transport": "http",
                "mcp": {"command": "guild", "args": []}, "component": {"file": "a.wasm", "world": world,
                "grants": grants, "tools": tools, "resources": resources, "scopes": scopes, "checkoutScope": checkout},
            });
            Manifest::parse(manifest.to_string().as_bytes()).ok()?.component
        })
    }

    proptest! {
        #[test]
        fn different_requests_are_shown_as_lines_that_differ((a, b) in (asked(), asked())) {
            let (Some(a), Some(b)) = (a, b) else { return Ok(()) };
            let (was, is) = (pin(&a), pin(&b));
            let difference = Difference::between(Some(&was), &is, &Trust::default());
            prop_assert_eq!(difference.is_empty(), was.requested == is.requested, "{:?}", difference);
            let mut seen = BTreeSet::new();
            prop_assert!(difference.lines().all(|line| seen.insert(line.trim_start_matches(['+', '-']).to_owned())), "{:?}", difference);
        }
    }

    #[test]
    fn the_end_of_a_long_host_is_shown() {
        let of = |end: &str| -> ComponentSpec {
            let host = format!("{}.{end}", "docs-".repeat(40));
            let spec = json!({"file": "a.wasm", "world": "worker", "grants": {"web": {"hosts": [host]}}});
            serde_json::from_value(spec).unwrap()
        };
        let difference = Difference::between(Some(&pin(&of("example"))), &pin(&of("evil")), &Trust::default());
        assert!(difference.lines().any(|line| line.starts_with('+') && line.ends_with(".evil")), "{difference:?}");
    }

    #[test]
    fn to_name_no_root_any_more_reads_as_all_of_them() {
        let of = |roots: Value| -> ComponentSpec {
            let spec = json!({"file": "a.wasm", "world": "worker", "grants": {"files": {"roots": roots}}});
            serde_json::from_value(spec).unwrap()
        };
        let (one, all) = (pin(&of(json!(["docs"]))), pin(&of(json!([]))));
        let lines: Vec<_> = Difference::between(Some(&one), &all, &Trust::default()).lines().collect();
        assert_eq!(lines, ["- capability files", "+ capability files: every root", "- capability files:docs"]);
    }
}
