//! What changed between a member as it was pinned and as it is.

use std::{collections::BTreeSet, fmt};

use guild_contract::{
    grants::Capability,
    manifest::{Interface, World},
};
use serde::Serialize;

use super::{
    lock::{Asked, Pin},
    signature::Trust,
};

/// How many lines a sentence names.
const IN_A_SENTENCE: usize = 4;
/// How many characters of what a manifest or a component says one line shows.
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
    /// What it is, as `import guild:worker/web@0.1.0`: without control characters, and not long.
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
        difference.sets("import", old.map_or(&none, |old| &old.imports), &new.imports);
        let wishes = |pin: &Pin| pin.wishes.words();
        difference.sets("asks for", &old.map(wishes).unwrap_or_default(), &wishes(new));
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

    fn sets(&mut self, what: &str, was: &BTreeSet<String>, is: &BTreeSet<String>) {
        let line = |added| move |text: &String| Line { added, text: format!("{what} {}", shown(text)) };
        self.lines.extend(was.difference(is).map(line(false)));
        self.lines.extend(is.difference(was).map(line(true)));
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
        Some(name) => format!("{} ({key})", shown(name)),
        None => key.to_owned(),
    }
}

/// What a manifest, a component or a file says: on one line, not long, and without what steers a terminal.
fn shown(text: &str) -> String {
    let steers = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut shown: String = text.chars().take(CHARS).map(|c| if steers(c) { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(CHARS).is_some() {
        shown.push('…');
    }
    shown
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
