//! The states of a commission, and which leads to which.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Where a commission is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It can be dispatched.
    Pending,
    /// Something that it depends on is not there.
    Blocked,
    /// Its attempt is being prepared.
    Dispatched,
    /// Its attempt is under way.
    InProgress,
    /// Its work is merged.
    Completed,
    /// Its attempt ended without a result, or what it did could not be merged.
    Failed,
    /// Somebody ended it.
    Cancelled,
    /// Nobody will take it up again.
    Abandoned,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Blocked,
        Self::Dispatched,
        Self::InProgress,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Abandoned,
    ];

    /// As it is written in files and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Blocked => "blocked",
            Self::Dispatched => "dispatched",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Abandoned => "abandoned",
        }
    }

    /// Whether this state may be followed by that one.
    pub fn leads_to(self, next: Self) -> bool {
        use Status::{Abandoned, Blocked, Cancelled, Completed, Dispatched, Failed, InProgress, Pending};
        match self {
            Pending => matches!(next, Dispatched | Blocked | Cancelled | Abandoned),
            Blocked => matches!(next, Pending | Cancelled | Abandoned),
            Dispatched => matches!(next, InProgress | Failed | Cancelled),
            InProgress => matches!(next, Completed | Failed | Cancelled),
            Failed | Cancelled => matches!(next, Pending | Abandoned),
            Completed | Abandoned => false,
        }
    }

    /// Whether an attempt is under way, which counts against the caps.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Dispatched | Self::InProgress)
    }

    /// Whether what depends on the commission can go on.
    pub fn satisfies(self) -> bool {
        matches!(self, Self::Completed | Self::Abandoned)
    }

    /// The group in a list: what waits, what runs, what went wrong, what is over.
    pub(crate) fn group(self) -> u8 {
        match self {
            Self::Pending | Self::Blocked => 0,
            Self::Dispatched | Self::InProgress => 1,
            Self::Failed | Self::Cancelled => 2,
            Self::Completed | Self::Abandoned => 3,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Status {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_lead_to_each_other_as_the_specification_has_it() {
        let follows = |from: Status| {
            let next = Status::ALL.into_iter().filter(|next| from.leads_to(*next));
            next.map(Status::as_str).collect::<Vec<_>>().join(" ")
        };
        let table = Status::ALL.map(|from| format!("{from}: {}", follows(from)));
        assert_eq!(
            table,
            [
                "pending: blocked dispatched cancelled abandoned",
                "blocked: pending cancelled abandoned",
                "dispatched: in_progress failed cancelled",
                "in_progress: completed failed cancelled",
                "completed: ",
                "failed: pending abandoned",
                "cancelled: pending abandoned",
                "abandoned: ",
            ]
        );
    }
}
