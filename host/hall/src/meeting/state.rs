//! The states of a meeting, and which leads to which.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Where a meeting is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeetingStatus {
    /// A worker, or the hall, asks the user for it.
    Requested,
    /// The user and the worker can talk.
    Open,
    /// It is over.
    Closed,
    /// The user did not want it.
    Declined,
}

impl MeetingStatus {
    /// Each.
    pub const ALL: [Self; 4] = [Self::Requested, Self::Open, Self::Closed, Self::Declined];

    /// As it is written in files and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Declined => "declined",
        }
    }

    /// Whether this state may be followed by that one.
    pub fn leads_to(self, next: Self) -> bool {
        matches!((self, next), (Self::Requested, Self::Open | Self::Declined) | (Self::Open, Self::Closed))
    }
}

impl fmt::Display for MeetingStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for MeetingStatus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|status| status.as_str() == text);
        known.ok_or_else(|| {
            let all: Vec<&str> = Self::ALL.into_iter().map(Self::as_str).collect();
            format!("{text:?} is no status of a meeting; those are {}", all.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_these_states_follow_each_other() {
        use MeetingStatus::{Closed, Declined, Open, Requested};
        let led: Vec<_> = MeetingStatus::ALL
            .into_iter()
            .flat_map(|from| {
                MeetingStatus::ALL.into_iter().filter(move |to| from.leads_to(*to)).map(move |to| (from, to))
            })
            .collect();
        assert_eq!(led, [(Requested, Open), (Requested, Declined), (Open, Closed)]);
        for status in MeetingStatus::ALL {
            assert_eq!(status.to_string().parse(), Ok(status));
        }
        assert!("done".parse::<MeetingStatus>().unwrap_err().contains("requested, open, closed, declined"));
    }
}
