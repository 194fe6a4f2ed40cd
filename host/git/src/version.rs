//! Reads and compares versions of git.

use std::fmt;

/// The oldest supported version, which is the first with `merge-tree --write-tree` and `safe.bareRepository`.
pub const OLDEST: Version = Version { major: 2, minor: 38, patch: 0 };

/// A version of git. Ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number; 0 if there is none.
    pub patch: u32,
}

impl Version {
    /// Reads the output of `git version`: `git version 2.39.5 (Apple Git-154)`.
    pub(crate) fn read(said: &str) -> Option<Self> {
        let mut numbers = said.strip_prefix("git version ")?.split(|c: char| !c.is_ascii_digit());
        let mut next = || numbers.next().and_then(|number| number.parse().ok());
        Some(Self { major: next()?, minor: next()?, patch: next().unwrap_or_default() })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}
