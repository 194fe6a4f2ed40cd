//! Compares what is known of two versions of something, one thing at a time.

use std::collections::{BTreeMap, BTreeSet};

use guild_contract::text::harmless;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::evidence::characters::{odd, seen, spelled};

/// The values that are known of a thing, by their subject and name, as of a [`Change`].
pub type Attributes = BTreeMap<(&'static str, String), String>;

/// One thing that came, went, or became another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The kind of thing that changed: `flow`, `text`, `host`, `file`, `bytes`,
    /// `identity`, `import`, `function`, `export`, `capability`, `session`, `limit`, `producer`, `package`.
    pub subject: String,
    /// The name of the thing.
    pub name: String,
    /// The old value; none if the thing is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// The new value; none if the thing is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
    /// Whether a line of the change looks like another line and differs, so that it is shown with its code points.
    #[serde(skip)]
    is_alike: bool,
}

impl Change {
    /// The changes from `old` to `new`, sorted by subject and name.
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

    /// The old and the new value, each as a line says it.
    fn bare(&self) -> impl Iterator<Item = String> {
        let values = [&self.old, &self.new].into_iter().flatten();
        values.map(|value| {
            let value = if value.is_empty() { String::new() } else { format!(": {value}") };
            format!("{} {}{value}", self.subject, self.name)
        })
    }

    /// The position among the changes: flows, and texts for models, come first.
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
