//! What changed between a member as it was pinned and as it is.

use std::{collections::BTreeSet, fmt};

use guild_contract::{
    grants::Capability,
    manifest::{Interface, World},
    text::{harmless, one_line},
};
use serde::Serialize;

use super::{
    lock::{Asked, Pin},
    signature::Trust,
};

/// How many lines a sentence names.
const IN_A_SENTENCE: usize = 4;
/// How many characters of a name that a component or `guild.trust` has one line shows.
const CHARS: usize = 120;

/// What changed, a line for each thing that is gone or new.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The lines, what is gone before what is new in its place.
    pub lines: Vec<Line>,
}

/// One thing that is gone or new.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Whether it is new; else it is gone.
    pub added: bool,
    /// What it is, as `import guild:worker/web@0.1.0`: without control characters. What a manifest asks for is whole, so
    /// that two wishes never read the same.
    pub text: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.added { '+' } else { '-' }, self.text)
    }
}

impl Difference {
    /// What is new in `new` against `old`; all of it, where there is no `old`.
    pub fn between(old: Option<&Pin>, new: &Pin, trust: &Trust) -> Self {
        let mut difference = Self::default();
        let none = BTreeSet::new();
        let component = |pin: &Pin| format!("component sha256 {}, {} bytes", pin.sha256, pin.bytes);
        if old.is_none_or(|old| old.sha256 != new.sha256) {
            difference.replace(old.map(component), Some(component(new)));
        }
        let import = |name: &str| format!("import {}", one_line(name, CHARS));
        difference.sets(import, old.map_or(&none, |old| &old.imports), &new.imports);
        let wishes = |pin: &Pin| pin.wishes.words();
        let asks = |wish: &str| format!("asks for {}", harmless(wish));
        difference.sets(asks, &old.map(wishes).unwrap_or_default(), &wishes(new));
        let signer = |pin: &Pin| pin.key.as_deref().map(|key| format!("signed by {}", signer(key, trust)));
        if old.is_none_or(|old| old.key != new.key) {
            difference.replace(old.and_then(signer), signer(new));
        }
        difference
    }

    fn replace(&mut self, was: Option<String>, is: Option<String>) {
        let lines = [(false, was), (true, is)];
        self.lines.extend(lines.into_iter().filter_map(|(added, text)| text.map(|text| Line { added, text })));
    }

    fn sets(&mut self, told: impl Fn(&str) -> String, was: &BTreeSet<String>, is: &BTreeSet<String>) {
        self.lines.extend(was.difference(is).map(|text| Line { added: false, text: told(text) }));
        self.lines.extend(is.difference(was).map(|text| Line { added: true, text: told(text) }));
    }

    /// In a sentence: the first lines, and how many more there are.
    pub fn sentence(&self) -> String {
        let first: Vec<_> = self.lines.iter().take(IN_A_SENTENCE).map(|line| line.brief()).collect();
        match self.lines.len().saturating_sub(IN_A_SENTENCE) {
            0 => first.join("; "),
            more => format!("{}; and {more} more", first.join("; ")),
        }
    }
}

impl Line {
    /// With a hash's first digits only.
    fn brief(&self) -> String {
        let is_hash = |word: &str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let hash = self.text.split([' ', ',']).find(|word| is_hash(word));
        let brief =
            |hash: &str| self.to_string().replace(hash, &hash.chars().take(12).chain(['…']).collect::<String>());
        hash.map_or_else(|| self.to_string(), brief)
    }
}

/// A key by the name that the operator gave it.
fn signer(key: &str, trust: &Trust) -> String {
    match trust.name(key) {
        Some(name) => format!("{} ({key})", one_line(name, CHARS)),
        None => key.to_owned(),
    }
}

impl Asked {
    /// Each thing that is asked for in a few words; what `guild.toml` can allow or deny as it is spelled there.
    pub fn words(&self) -> BTreeSet<String> {
        let mut words = BTreeSet::new();
        let world = match self.world {
            World::Worker => "worker",
            World::AutonomousWorker => "autonomous-worker",
            World::ToolboxPlugin => "toolbox-plugin",
            World::WorkerToolbox => "worker-toolbox",
        };
        words.insert(format!("the world {world}"));
        let grants = &self.grants;
        let mut asks = |capability: Capability| {
            words.insert(capability.to_string());
        };
        for interface in [Interface::Log, Interface::Memory, Interface::JobTools, Interface::Status, Interface::Agent] {
            if grants.asks(interface) {
                asks(Capability::Interface(interface));
            }
        }
        if grants.memory.is_some_and(|memory| memory.write) {
            asks(Capability::MemoryWrite);
        }
        if grants.agent.is_some_and(|agent| agent.own_tools) {
            asks(Capability::OwnTools);
        }
        if let Some(files) = &grants.files {
            if files.roots.is_empty() {
                asks(Capability::Interface(Interface::Files));
            }
            files.roots.iter().cloned().for_each(|root| asks(Capability::Root(root)));
        }
        if let Some(web) = &grants.web {
            if web.hosts.is_empty() {
                asks(Capability::Interface(Interface::Web));
            }
            web.hosts.iter().cloned().for_each(|host| asks(Capability::Host(host)));
            if web.search {
                asks(Capability::Search);
            }
        }
        let artifacts = grants.artifacts.unwrap_or_default();
        let bounds = [
            ("artifacts.bytes", artifacts.bytes.map(|n| n.to_string())),
            ("artifacts.entries", artifacts.entries.map(|n| n.to_string())),
            ("maxTurns", self.resources.max_turns.map(|n| n.to_string())),
            ("maxBudgetUsd", self.resources.max_budget_usd.map(|usd| usd.to_string())),
            ("deadlineSeconds", self.resources.deadline_seconds.map(|n| n.to_string())),
        ];
        words.extend(bounds.into_iter().filter_map(|(name, bound)| Some(format!("{name} of {}", bound?))));
        let lists = [("tool", &self.tools), ("toolbox", &self.toolboxes), ("scope", &self.scopes)];
        words
            .extend(lists.into_iter().flat_map(|(of, names)| names.iter().map(move |name| format!("the {of} {name}"))));
        words.extend(self.checkout_scope.iter().map(|scope| format!("a checkout of {scope}")));
        words
    }
}

#[cfg(test)]
mod tests {
    use guild_contract::{Manifest, manifest::ComponentSpec};
    use jiff::Timestamp;
    use proptest::{collection::vec, option, prelude::*, sample::select};
    use serde_json::{Value, json};

    use super::{super::lock::How, *};

    fn pin(spec: &ComponentSpec) -> Pin {
        Pin {
            name: "a".into(),
            how: How::FirstUse,
            since: Timestamp::UNIX_EPOCH,
            sha256: "00".into(),
            bytes: 8,
            key: None,
            imports: BTreeSet::new(),
            wishes: Asked::of(spec),
        }
    }

    /// A wish that is there or not, with its keys there or not.
    fn wish(keys: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Option<Value>> {
        let keys: Vec<_> = keys.into_iter().map(|(key, of)| option::of(of).prop_map(move |v| (key, v))).collect();
        let object = keys.prop_map(|keys| {
            keys.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect::<Value>()
        });
        option::of(object).boxed()
    }

    /// Names that are like each other: of few characters, long with another end, with what is a word elsewhere.
    fn names() -> BoxedStrategy<Value> {
        let long = select(vec!['a', 'b']).prop_map(|end| format!("{}.{end}", "x".repeat(240)));
        let words = select(vec!["search", "SEARCH", "*", "a  b", "files", "own-tools", "xn--a", "\u{430}"]);
        let name = prop_oneof!["[ab.*:\u{200b}\n]{1,3}", long, words.prop_map(str::to_owned)];
        vec(name, 0..3).prop_map(|names| json!(names)).boxed()
    }

    fn number() -> BoxedStrategy<Value> {
        (1..4_u32).prop_map(|n| json!(n)).boxed()
    }

    /// What sound manifests ask for.
    fn asked() -> impl Strategy<Value = Option<ComponentSpec>> {
        let yes_or_no = || any::<bool>().prop_map(|yes| json!(yes)).boxed();
        let grants = [
            ("log", wish(vec![])),
            ("memory", wish(vec![("write", yes_or_no())])),
            ("files", wish(vec![("roots", names())])),
            ("web", wish(vec![("hosts", names()), ("search", yes_or_no())])),
            ("job-tools", wish(vec![])),
            ("status", wish(vec![])),
            ("agent", wish(vec![("ownTools", yes_or_no())])),
            ("artifacts", wish(vec![("bytes", number()), ("entries", number())])),
        ];
        let grants: Vec<_> = grants.into_iter().map(|(name, of)| of.prop_map(move |value| (name, value))).collect();
        let grants = grants.prop_map(|all| {
            all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<Value>()
        });
        let bounds = vec![("maxTurns", number()), ("maxBudgetUsd", number()), ("deadlineSeconds", number())];
        let bounds = wish(bounds).prop_map(|bounds| bounds.unwrap_or_else(|| json!({})));
        let tools = vec(select(vec!["Read", "Grep", "WebSearch", "WebFetch"]), 0..3);
        let world = select(vec!["worker", "autonomous-worker"]);
        (grants, bounds, tools, world).prop_map(|(grants, resources, tools, world)| {
            let manifest = json!({
                "name": "a", "displayName": "a", "description": "", "version": "1", "transport": "http",
                "mcp": {"command": "guild", "args": []}, "component": {"file": "a.wasm", "world": world,
                "grants": grants, "tools": tools, "resources": resources},
            });
            Manifest::parse(manifest.to_string().as_bytes()).ok()?.component
        })
    }

    proptest! {
        #[test]
        fn different_wishes_are_shown_as_lines_that_differ((a, b) in (asked(), asked())) {
            let (Some(a), Some(b)) = (a, b) else { return Ok(()) };
            let (was, is) = (pin(&a), pin(&b));
            let difference = Difference::between(Some(&was), &is, &Trust::default());
            prop_assert_eq!(difference.lines.is_empty(), was.wishes == is.wishes, "{:?}", difference);
            let texts: BTreeSet<&str> = difference.lines.iter().map(|line| line.text.as_str()).collect();
            prop_assert_eq!(texts.len(), difference.lines.len(), "{:?}", difference);
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
        assert!(difference.lines.iter().any(|line| line.added && line.text.ends_with(".evil")), "{difference:?}");
    }
}
