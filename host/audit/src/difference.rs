//! Compares two audits.

use std::collections::{BTreeSet, btree_map::Entry};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    change::{Attributes, Change},
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
