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
        let canary = |source| {
            let token = token(seed, &source);
            let turned = token.bytes().map(|byte| char::from(rot13(byte))).collect();
            let forms = [token.clone(), turned, token.chars().rev().collect()];
            Canary { source, token, forms }
        };
        Self(sources.map(canary).collect())
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
        let all = tokens.len();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), all);
    }
}
