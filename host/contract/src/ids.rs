//! Defines the names of jobs and members, which are checked once when they are parsed.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

// REQ-WD-7, REQ-WD-20. The host accepts ids that the original made (UUIDv4).
/// Names one job, and its directory under the member's `jobs/`: letters, digits, `-` and `_`, 1 to 128 of them.
///
/// The host makes UUIDs, version 7; it also accepts a directory that a person named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^[0-9A-Za-z_-]{1,128}$"))]
pub struct JobId(Arc<str>);

/// The reason that a text is not a [`JobId`] or [`MemberKey`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidId(String);

impl fmt::Display for InvalidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidId {}

fn is_plain(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

impl JobId {
    /// The id as it is written on the wire and on disk.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for JobId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for JobId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        if is_plain(text, 128) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidId("a job id is 1 to 128 letters, digits, '-' or '_'".to_owned()))
        }
    }
}

impl TryFrom<String> for JobId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.0.as_ref().to_owned()
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names one member: the path of its directory under the members' directory, `X` or `X/Y`.
///
/// In names of tools and servers, which cannot contain `/`, the key is `X--Y` ([`MemberKey::flat`]).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct MemberKey(Arc<str>);

impl MemberKey {
    /// The key as it is written: `X` or `X/Y`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key for names without `/`: `X--Y`.
    pub fn flat(&self) -> String {
        self.0.replace('/', "--")
    }

    /// The key for names that allow only letters, digits, `-` and `_`, such as tool names among other members' tools:
    /// `X--Y`, with `_` for each `.`. Keys that differ only in these characters have the same prefix.
    pub fn tool_prefix(&self) -> String {
        self.flat().replace('.', "_")
    }

    /// The name of one of the member's tools among other members' tools: `X--Y__TOOL`.
    pub fn tool(&self, tool: &str) -> String {
        format!("{}__{tool}", self.tool_prefix())
    }

    /// The name of a tool that dispatches to the member, among other members' tools: `X--Y-dispatch__TOOL`.
    pub fn dispatch_tool(&self, tool: &str) -> String {
        format!("{}-dispatch__{tool}", self.tool_prefix())
    }

    /// The MCP server whose tools dispatch to this member (REQ-WD-36): `X-dispatch`.
    pub fn dispatch_server(&self) -> String {
        format!("{}-dispatch", self.flat())
    }
}

impl FromStr for MemberKey {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let part = |part: &str| {
            (1..=128).contains(&part.len())
                && !part.starts_with('.')
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        };
        let sound = match text.split_once('/') {
            None => part(text),
            Some((outer, inner)) => part(outer) && part(inner),
        };
        if sound {
            Ok(Self(text.into()))
        } else {
            Err(InvalidId(format!(
                "a member's key is its directory's name, or two names with '/' between, each of letters, \
                 digits, '-', '_' or '.', and not beginning with '.': {text:?} is not"
            )))
        }
    }
}

impl TryFrom<String> for MemberKey {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<MemberKey> for String {
    fn from(key: MemberKey) -> Self {
        key.0.as_ref().to_owned()
    }
}

impl fmt::Display for MemberKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_id_is_one_plain_file_name() {
        for sound in ["019f4b1c-7a3e-7f00-8000-000000000000", "job_1", "A"] {
            assert_eq!(sound.parse::<JobId>().unwrap().as_str(), sound);
        }
        let long = "x".repeat(129);
        for unsound in ["", ".", "..", "../x", "/etc", "a/b", "a\0b", ".new-1", "a b", "ü", long.as_str()] {
            assert!(unsound.parse::<JobId>().is_err(), "{unsound:?} was taken");
        }
        assert!(serde_json::from_str::<JobId>("\"../x\"").is_err());
    }

    #[test]
    fn a_member_key_has_one_or_two_parts() {
        assert_eq!("a/b".parse::<MemberKey>().unwrap().flat(), "a--b");
        assert_eq!("a/b.c".parse::<MemberKey>().unwrap().tool_prefix(), "a--b_c");
        for unsound in ["", "/", "a/", "/a", "a/b/c", ".git", "a/..", "a\nb"] {
            assert!(unsound.parse::<MemberKey>().is_err(), "{unsound:?} was taken");
        }
    }
}
