//! Makes canaries: tokens that stand in one source each, so that a token elsewhere says where it came from.

use std::fmt;

use guild_contract::manifest::Scope;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The characters of a token: none of them is mistaken for another, and all are lower case.
const ALPHABET: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz234567890";
/// The characters of a token. Half of them are enough to recognise it.
pub(crate) const LENGTH: usize = 24;
/// The callers that have a canary of their own: further ones share the last.
pub(crate) const CALLERS: u32 = 32;

/// A source that a member can read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "of")]
pub enum Source {
    /// A read root of this name.
    Root(String),
    /// The memories of a scope.
    Memory(Scope),
    /// The files of a project.
    Project(String),
    /// The input of a caller: the task of a job, or the input of a tool call.
    Caller(u32),
    /// The inputs of a session to the member's tools.
    Session,
    /// The answers of the web.
    Web,
    /// A token of the obedient model, which does what texts tell it.
    Model,
    /// One of the others, or an id of the host: which one is not known.
    Unknown,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) => write!(f, "the read root {name:?}"),
            Self::Memory(Scope::Worker) => f.write_str("the member's own memory"),
            Self::Memory(Scope::Project) => f.write_str("the memory of a project"),
            Self::Memory(Scope::Global) => f.write_str("the memory for all projects"),
            Self::Project(name) => write!(f, "the files of the project {name:?}"),
            Self::Caller(number) => write!(f, "what caller {number} handed over"),
            Self::Session => f.write_str("what a session handed to a tool"),
            Self::Web => f.write_str("the answers of the web"),
            Self::Model => f.write_str("the session of an obedient model"),
            Self::Unknown => f.write_str("what it was given"),
        }
    }
}

/// The token of a source.
#[derive(Clone, Debug)]
pub(crate) struct Canary {
    pub(crate) source: Source,
    pub(crate) token: String,
    /// The token as it stands, in rot13, and reversed: the forms in which a tool that turns its input answers.
    pub(crate) forms: [String; 3],
}

impl Canary {
    fn new(token: String, source: Source) -> Self {
        let turned = token.bytes().map(|byte| char::from(rot13(byte))).collect();
        let forms = [token.clone(), turned, token.chars().rev().collect()];
        Self { source, token, forms }
    }
}

/// All canaries of a probe.
#[derive(Clone, Debug)]
pub(crate) struct Canaries(Vec<Canary>);

impl Canaries {
    /// The canaries of these read roots and projects, and of all other sources. The same seed gives the same tokens.
    pub(crate) fn new(seed: u64, roots: &[String], projects: &[&str]) -> Self {
        let roots = roots.iter().cloned().map(Source::Root);
        let projects = projects.iter().map(|name| Source::Project((*name).to_owned()));
        let scopes = [Scope::Worker, Scope::Project, Scope::Global].into_iter().map(Source::Memory);
        let callers = (1..=CALLERS).map(Source::Caller);
        let sources =
            roots.chain(projects).chain(scopes).chain(callers).chain([Source::Session, Source::Web, Source::Model]);
        Self(sources.map(|source| Canary::new(token(seed, &source), source)).collect())
    }

    /// Other tokens for the same sources. Each has letters and digits where the first one has them, and no character in
    /// the same place, so that a program which splits or sorts texts by them does the same.
    pub(crate) fn twin(&self) -> Self {
        let twin = |canary: &Canary| Canary::new(twin(&canary.token), canary.source.clone());
        Self(self.0.iter().map(twin).collect())
    }

    /// These canaries, with those of `twin` for some sources.
    pub(crate) fn with(&self, twin: &Self, is_other: impl Fn(&Source) -> bool) -> Self {
        let chosen = |(one, other): (&Canary, &Canary)| if is_other(&one.source) { other.clone() } else { one.clone() };
        Self(self.0.iter().zip(&twin.0).map(chosen).collect())
    }

    pub(crate) fn all(&self) -> &[Canary] {
        &self.0
    }

    /// The token of a source; empty for a source that has none.
    pub(crate) fn token(&self, source: &Source) -> &str {
        let source = match source {
            Source::Caller(number) => &Source::Caller((*number).clamp(1, CALLERS)),
            other => other,
        };
        self.0.iter().find(|canary| canary.source == *source).map_or("", |canary| &canary.token)
    }
}

/// A letter 13 places further.
pub(crate) fn rot13(byte: u8) -> u8 {
    match byte {
        b'a'..=b'z' => b'a' + (byte - b'a' + 13) % 26,
        other => other,
    }
}

fn token(seed: u64, source: &Source) -> String {
    let digest = Sha256::digest(format!("{seed} {source}"));
    let character = |byte: &u8| ALPHABET.get(usize::from(byte % 32)).copied().unwrap_or(b'a');
    // The first character is a letter, so that a token is a name in any language.
    let letter = digest.first().map_or(b'q', |byte| b'a' + byte % 24);
    [letter].into_iter().chain(digest.iter().skip(1).take(LENGTH - 1).map(character)).map(char::from).collect()
}

fn twin(token: &str) -> String {
    let digest = Sha256::digest(token);
    let other = |(byte, by): (u8, &u8)| {
        let by = 1 + by % 8;
        char::from(match byte {
            b'a'..=b'z' => b'a' + (byte - b'a' + by) % 26,
            b'0'..=b'9' => b'0' + (byte - b'0' + by) % 10,
            other => other,
        })
    };
    token.bytes().zip(digest.iter()).map(other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_its_own_token_and_the_seed_decides_them() {
        let roots = ["handbook".to_owned(), "ledger".to_owned()];
        let (one, again, other) =
            (Canaries::new(1, &roots, &["a"]), Canaries::new(1, &roots, &["a"]), Canaries::new(2, &roots, &["a"]));
        let mut tokens: Vec<&str> = one.all().iter().map(|canary| canary.token.as_str()).collect();
        assert!(tokens.iter().all(|token| token.len() == LENGTH));
        assert_eq!(tokens, again.all().iter().map(|canary| canary.token.as_str()).collect::<Vec<_>>());
        assert_ne!(one.token(&Source::Web), other.token(&Source::Web));
        let (token, twin) = (one.token(&Source::Web), one.twin().token(&Source::Web).to_owned());
        let pairs = token.bytes().zip(twin.bytes());
        assert!(pairs.clone().all(|(a, b)| a != b && a.is_ascii_digit() == b.is_ascii_digit()), "{token} {twin}");
        let all = tokens.len();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), all);
    }
}
