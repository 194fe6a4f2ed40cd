//! Compares two audits.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use guild_contract::text::harmless;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    evidence::characters::{odd, seen, spelled},
    facts::Fact,
    model::{Audit, TextKind},
};

/// What changed from one audit to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The changes, sorted by subject and name; flows, texts and hosts first.
    pub changes: Vec<Change>,
    /// Facts that were not there before: of another name, place or text.
    pub new_facts: Vec<Fact>,
    /// Facts that are no longer there.
    pub gone_facts: Vec<Fact>,
}

/// What is known of something, one thing at a time: by its subject and name, as of a [`Change`].
pub type Attributes = BTreeMap<(&'static str, String), String>;

/// One thing that came, went, or became another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// What kind of thing it is: `flow`, `text`, `host`, `file`, `bytes`,
    /// `identity`, `import`, `function`, `export`, `capability`, `session`, `limit`, `producer`, `package`.
    pub subject: String,
    /// Which one.
    pub name: String,
    /// What it was; none, where it is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// What it is; none, where it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
    /// Whether a line of it looks like another line and differs, so that it is shown with its code points.
    #[serde(skip)]
    is_alike: bool,
}

impl Difference {
    /// What is other in `new` than in `old`.
    pub fn between(old: &Audit, new: &Audit) -> Self {
        let without = |all: &[Fact], others: &[Fact]| {
            let others: BTreeSet<_> = others.iter().collect();
            all.iter().filter(|fact| !others.contains(fact)).cloned().collect::<Vec<_>>()
        };
        Self {
            changes: Change::between(attributes(old), attributes(new)),
            new_facts: without(&new.facts, &old.facts),
            gone_facts: without(&old.facts, &new.facts),
        }
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.new_facts.is_empty() && self.gone_facts.is_empty()
    }
}

impl Change {
    /// What is other in `new` than in `old`, sorted by subject and name.
    pub fn between(old: Attributes, mut new: Attributes) -> Vec<Self> {
        let change = |(subject, name): (&str, String), old, new| Self {
            subject: subject.to_owned(),
            name,
            old,
            new,
            is_alike: false,
        };
        let mut changes = Vec::new();
        for (of, old) in old {
            let new = new.remove(&of);
            if new.as_ref() != Some(&old) {
                changes.push(change(of, Some(old), new));
            }
        }
        changes.extend(new.into_iter().map(|(of, new)| change(of, None, Some(new))));
        changes.sort_by(|a, b| (a.rank(), &a.subject, &a.name).cmp(&(b.rank(), &b.subject, &b.name)));
        let mut looks: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in changes.iter().flat_map(Self::bare) {
            looks.entry(seen(&line)).or_default().insert(line);
        }
        for change in &mut changes {
            let is_alike = |line: String| looks.get(&seen(&line)).is_some_and(|lines| lines.len() > 1);
            let found = change.bare().any(is_alike);
            change.is_alike = found;
        }
        changes
    }

    /// What it was and what it is, each as a line says it.
    fn bare(&self) -> impl Iterator<Item = String> {
        let values = [&self.old, &self.new].into_iter().flatten();
        values.map(|value| {
            let value = if value.is_empty() { String::new() } else { format!(": {value}") };
            format!("{} {}{value}", self.subject, self.name)
        })
    }

    /// What can flow where, and what models are told, are first.
    fn rank(&self) -> usize {
        const FIRST: [&str; 3] = ["flow", "text", "host"];
        FIRST.iter().position(|subject| *subject == self.subject).unwrap_or(FIRST.len())
    }

    /// As a person reads it: what is gone after `- `, what is new after `+ `, each on one line without characters that
    /// steer. Nothing is cut, so that what differs also reads differently.
    pub fn lines(&self) -> Vec<String> {
        let signs = [("-", &self.old), ("+", &self.new)].into_iter().filter(|(_, value)| value.is_some());
        let line = |((sign, _), line): ((&str, _), String)| {
            let line = format!("{sign} {line}").replace(['\n', '\t'], "\u{fffd}");
            let is_plain = odd(&line).is_empty() && !self.is_alike;
            harmless(&if is_plain { line } else { spelled(&line) }).into_owned()
        };
        signs.zip(self.bare()).map(line).collect()
    }
}

/// What an audit says.
fn attributes(audit: &Audit) -> Attributes {
    let mut attributes = Attributes::new();
    let mut add = |subject, name: String, value: String| match attributes.entry((subject, name)) {
        Entry::Vacant(free) => _ = free.insert(value),
        // Two of one name, as a compiler of two versions: both count.
        Entry::Occupied(mut taken) => taken.get_mut().extend([", ", &value]),
    };
    let Audit { identity, imports, exports, requested, sessions, limits, flows, texts, hosts, unread, files, .. } =
        audit;
    let claims = &identity.claims;
    let claimed = [
        ("sha256", Some(&identity.sha256)),
        ("name", identity.name.as_ref()),
        ("version", identity.version.as_ref()),
        ("world", identity.world.as_ref()),
        ("claimed name", claims.name.as_ref()),
        ("claimed version", claims.version.as_ref()),
        ("claimed description", claims.description.as_ref()),
        ("claimed authors", claims.authors.as_ref()),
        ("claimed licenses", claims.licenses.as_ref()),
        ("claimed source", claims.source.as_ref()),
        ("claimed homepage", claims.homepage.as_ref()),
        ("claimed revision", claims.revision.as_ref()),
    ];
    for (name, text) in claimed.into_iter().filter_map(|(name, text)| Some((name, text?))) {
        add("identity", name.to_owned(), text.clone());
    }
    add("identity", "bytes".to_owned(), identity.bytes.to_string());
    if let Some(signature) = &identity.signature {
        let detail = signature.detail.as_deref().unwrap_or_default();
        add("identity", "signature".to_owned(), format!("{} {detail}", word(&signature.state)).trim_end().to_owned());
    }
    for flow in flows {
        for from in &flow.from {
            add("flow", format!("{from} to {}", flow.place()), String::new());
        }
    }
    for text in texts {
        // Of data, the offset changes with each build.
        let place = if text.kind == TextKind::Data { "data" } else { text.place.as_str() };
        for line in text.text.lines().filter(|line| !line.trim().is_empty()) {
            add("text", format!("{place}: {line}"), String::new());
        }
    }
    for host in hosts {
        add("host", host.host.clone(), if host.asked { "asked for" } else { "not asked for" }.to_owned());
    }
    for bytes in unread.iter().filter(|bytes| !bytes.accounted) {
        let what = format!("{} bytes of {}, entropy {}", bytes.bytes, bytes.kind, bytes.entropy);
        add("bytes", bytes.begins.clone(), what);
    }
    for file in files {
        add("file", file.path.clone(), format!("{}, {} bytes", word(&file.kind), file.bytes));
    }
    for import in imports {
        add("import", import.name.clone(), word(&import.state));
        for function in &import.functions {
            add("function", format!("{}#{}", import.name, function.name), String::new());
        }
    }
    for export in exports {
        add("export", export.name.clone(), word(&export.state));
    }
    // To name none is to ask for all.
    let names = |key: &str| requested.iter().any(|request| request.key == key);
    let (roots, hosts) = (names("component.grants.files.roots"), names("component.grants.web.hosts"));
    for request in requested {
        let all = match request.grant.as_str() {
            "files" if !roots => ", every root",
            "web" if !hosts => ", every host",
            _ => "",
        };
        add("capability", request.grant.clone(), word(&request.state) + all);
    }
    if let Some(sessions) = sessions {
        for tool in &sessions.tools {
            add("session", format!("tool {}", tool.name), if tool.granted { "granted" } else { "denied" }.to_owned());
        }
        for toolbox in &sessions.toolboxes {
            add("session", format!("toolbox {toolbox}"), "asked".to_owned());
        }
        let mut bound = |name: &str, value: String| add("session", name.to_owned(), value);
        bound("memory", sessions.memory.to_string());
        bound("memory write", sessions.memory_write.to_string());
        bound("artifacts", sessions.artifacts.to_string());
        bound("own tools", sessions.own_tools.to_string());
        bound("max turns", sessions.max_turns.to_string());
        bound("max budget usd", sessions.max_budget_usd.to_string());
        bound("deadline seconds", sessions.deadline_seconds.to_string());
    }
    for limit in limits {
        add("limit", limit.name.clone(), limit.value.to_string());
    }
    for producer in &identity.producers {
        add("producer", format!("{} {}", producer.field, producer.name), producer.version.clone());
    }
    for package in identity.dependencies.iter().flat_map(|list| &list.packages) {
        add("package", format!("{} {} ({})", package.name, package.version, package.source), package.kind.clone());
    }
    attributes
}

/// A state's name, as the JSON has it.
pub(crate) fn word(state: &impl Serialize) -> String {
    serde_json::to_value(state).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
