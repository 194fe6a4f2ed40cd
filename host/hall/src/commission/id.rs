//! The names of commissions.

use std::{fmt, str::FromStr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The longest name: it becomes that of a file, and part of a branch's.
const MAX_BYTES: usize = 128;

/// Names one commission, and its file: `commission-<Worker>-YYYYMMDD-HHMMSS`, in UTC. Others that are files' names are as good.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CommissionId(String);

impl CommissionId {
    /// The name of a commission of this worker, that is made at this time, and is the `nth` of the second, from 1.
    pub(crate) fn new(worker: &str, time: Timestamp, nth: usize) -> Self {
        let plain: String = worker.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { ' ' }).collect();
        let worker = plain.split_whitespace().collect::<Vec<_>>().join("-");
        let worker: String = if worker.is_empty() { "worker".to_owned() } else { worker.chars().take(64).collect() };
        let time = time.strftime("%Y%m%d-%H%M%S");
        let nth = if nth > 1 { format!("-{nth}") } else { String::new() };
        Self(format!("commission-{worker}-{time}{nth}"))
    }

    /// The name as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of its record's file.
    pub(crate) fn file(&self) -> String {
        format!("{}.md", self.0)
    }
}

impl fmt::Display for CommissionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for CommissionId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_plain = (1..=MAX_BYTES).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        if is_plain {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("a commission's id is 1 to {MAX_BYTES} letters, digits, '-' or '_', and begins with no '-' or '_'"))
    }
}

impl TryFrom<String> for CommissionId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<CommissionId> for String {
    fn from(id: CommissionId) -> Self {
        id.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_worker_and_the_second_and_is_a_branch_and_a_file() {
        let time: Timestamp = "2026-04-01T12:00:00Z".parse().unwrap();
        let name = |worker, nth| CommissionId::new(worker, time, nth).to_string();
        assert_eq!(name("Guild Master", 1), "commission-Guild-Master-20260401-120000");
        assert_eq!(name("../é", 2), "commission-worker-20260401-120000-2");
        for id in [name(&"x".repeat(500), 3), name("a/b.lock", 1)] {
            assert!(id.parse::<CommissionId>().is_ok());
            assert!(guild_git::AttemptBranch::new(&format!("claude/commission/{id}-12")).is_ok());
        }
        for bad in ["", ".", "a/b", "a.md", "-x", &"x".repeat(129)] {
            assert!(bad.parse::<CommissionId>().is_err(), "{bad}");
        }
    }
}
