//! Defines the operator's policy: rules for the members that a pattern matches.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{capability::Capability, ids::MemberKey, limits::Limits};

/// The bounds of commissions that follow from an activity of the manager, directly or through other commissions. They
/// are counted together for the user's meeting or commission from which they originate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delegation {
    /// The most levels of commissions that follow from one another. Commissions of the user's own activity have depth
    /// 1.
    pub depth: u32,
    /// The most commissions, including ended ones.
    pub commissions: u32,
    /// The most US dollars that all of them have spent or may still spend.
    pub budget_usd: f64,
}

impl Default for Delegation {
    fn default() -> Self {
        Self { depth: 3, commissions: 20, budget_usd: 50.0 }
    }
}

/// Names that are granted: read roots, or hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Names {
    /// Lists of patterns. A name has to match one pattern of each list, such as the request and the permission. Without
    /// lists, every name is granted.
    pub all_of: Vec<Vec<String>>,
    /// Patterns that the name must not match.
    pub none_of: Vec<String>,
}

impl Names {
    /// Whether a name is granted; `matches(pattern, name)` interprets a pattern.
    pub fn grant(&self, name: &str, matches: impl Fn(&str, &str) -> bool) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        self.all_of.iter().all(|patterns| any(patterns)) && !any(&self.none_of)
    }

    /// The names that are granted by both.
    pub(crate) fn and(mut self, other: Self) -> Self {
        let news = |known: &[String], pattern: &String| !known.contains(pattern);
        self.none_of.extend(other.none_of.into_iter().filter(|p| news(&self.none_of, p)).collect::<Vec<_>>());
        let lists = other.all_of.into_iter().filter(|list| !self.all_of.contains(list)).collect::<Vec<_>>();
        self.all_of.extend(lists);
        self
    }
}

/// The members of a rule: a key, in which `*` stands for any characters, including `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(pub String);

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.replace('*', "x").parse::<MemberKey>() {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(_) => Err(format!(
                "{text:?} is neither a member's key nor a pattern of keys: a directory's name, or two with '/' \
                 between, of letters, digits, '-', '_' or '.'; `*` stands for any characters"
            )),
        }
    }
}

impl Pattern {
    /// The exact key, if the pattern has no `*`.
    pub fn exact(&self) -> Option<&str> {
        (!self.0.contains('*')).then_some(self.0.as_str())
    }

    /// The number of literal characters: a pattern with more is more specific.
    pub fn closeness(&self) -> usize {
        self.0.bytes().filter(|byte| *byte != b'*').count()
    }

    /// Whether the pattern matches a name.
    pub fn matches(&self, name: &str) -> bool {
        wildcard(&self.0, name)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether `name` matches `pattern`, in which `*` stands for any characters. The time grows at most with the product of
/// both lengths.
pub fn wildcard(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.as_bytes(), name.as_bytes());
    let mut last_star = None;
    loop {
        match (pattern, name) {
            ([b'*', rest @ ..], _) => {
                last_star = Some((rest, name));
                pattern = rest;
            }
            ([], []) => return true,
            ([p, rest @ ..], [n, left @ ..]) if p == n => (pattern, name) = (rest, left),
            _ => match last_star {
                Some((rest, [_, left @ ..])) => {
                    last_star = Some((rest, left));
                    (pattern, name) = (rest, left);
                }
                _ => return false,
            },
        }
    }
}

/// One `[member.PATTERN]` of the operator's policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// The members of the rule.
    pub members: Pattern,
    /// `allow`: the members are granted only these capabilities, and the capabilities that another rule allows.
    pub allow: Option<Vec<Capability>>,
    /// `deny`: the capabilities that are denied. It takes precedence over every `allow`.
    pub deny: Vec<Capability>,
    /// `limits`: the limits of the host with the rule's own values.
    pub limits: Option<Box<Limits>>,
}

/// The policy of the operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// The rules in the order of the file. The order has no meaning.
    pub rules: Vec<Rule>,
    /// Whether `guild.toml` has a `[web]`, which opens the web.
    pub web: bool,
    /// `[hall] manager`: the only member that can hold `hall:manage`.
    pub manager: Option<MemberKey>,
    /// `strict_imports`: whether a component that imports an interface without its grant is refused, instead of being
    /// linked with calls that fail.
    pub strict_imports: bool,
}

impl Policy {
    /// The rules for a member.
    pub(crate) fn rules_for(&self, key: &MemberKey) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.members.matches(key.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name) in [("*", ""), ("*", "a/b"), ("a*c", "abc"), ("a*c", "ac"), ("*b*b", "abab"), ("a", "a")] {
            assert!(wildcard(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("a", "ab"), ("a*c", "ab"), ("*b*b", "ab"), ("a*b", "b")] {
            assert!(!wildcard(pattern, name), "{pattern} {name}");
        }
        assert!(!wildcard(&"*a".repeat(200), &"b".repeat(2000)));
    }

    #[test]
    fn a_pattern_is_a_key_or_could_be_one() {
        for sound in ["ann", "team/ann", "*", "team/*", "*/ann", "a*b/c*", "**"] {
            assert!(sound.parse::<Pattern>().is_ok(), "{sound}");
        }
        for unsound in ["", "a?", "[a]", "a/b/c", "../*", "a b", "/"] {
            assert!(
                unsound.parse::<Pattern>().unwrap_err().contains("neither a member's key nor a pattern"),
                "{unsound}"
            );
        }
    }
}
