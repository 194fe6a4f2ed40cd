//! Which ended jobs of a member stay.

use std::time::Duration;

/// The rule by which ended jobs of one member are kept. A missing value does not bound anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The longest time since the end of a job.
    pub age: Option<Duration>,
    /// The most ended jobs.
    pub jobs: Option<u32>,
    /// The most bytes of the files of all ended jobs.
    pub bytes: Option<u64>,
}

impl Retention {
    /// Whether the rule could remove a job.
    pub fn bounds_anything(&self) -> bool {
        *self != Self::default()
    }
}
