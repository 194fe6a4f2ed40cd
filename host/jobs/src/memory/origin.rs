//! Keeps the origins of notes: their jobs and writers. Origins are kept in a file of their own and not in the text, and
//! are valid only for the stored text: a note that a person wrote or edited has no origin.

use std::{collections::BTreeMap, fmt};

use guild_contract::{JobId, MemberKey};
use serde::{Deserialize, Serialize};

/// The number of writers that a note names; it tells only that there are others.
const WRITERS: usize = 4;

/// The origins of the notes of a scope, by their keys.
pub(super) type Origins = BTreeMap<String, Origin>;

/// A member that wrote a note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// The member.
    pub member: MemberKey,
    /// The id of the commission or meeting in which it wrote, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.activity {
            Some(activity) => write!(f, "{} in {activity}", self.member.as_str()),
            None => f.write_str(self.member.as_str()),
        }
    }
}

/// The writers of a note.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Writers {
    /// The known writers, the last first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    writers: Vec<Writer>,
    /// Whether there are others: people, or more members than are named.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    others: bool,
}

impl Writers {
    /// One known or unknown writer.
    pub(super) fn of(writer: Option<&Writer>) -> Self {
        Self { writers: writer.cloned().into_iter().collect(), others: writer.is_none() }
    }

    /// Adds earlier writers.
    pub(super) fn add(&mut self, earlier: Self) {
        self.others |= earlier.others;
        for writer in earlier.writers {
            if !self.writers.contains(&writer) {
                self.writers.push(writer);
            }
        }
        self.others |= self.writers.len() > WRITERS;
        self.writers.truncate(WRITERS);
    }

    /// The members without their commissions and meetings.
    pub(super) fn members(self) -> Self {
        let mut members = Self { writers: Vec::new(), others: self.others };
        for Writer { member, .. } in self.writers {
            members.add(Self { writers: vec![Writer { member, activity: None }], others: false });
        }
        members
    }
}

impl fmt::Display for Writers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named: Vec<_> = self.writers.iter().map(ToString::to_string).collect();
        match (named.is_empty(), self.others) {
            (true, _) => f.write_str("unknown writers"),
            (false, true) => write!(f, "{} and others", named.join(", ")),
            (false, false) => f.write_str(&named.join(", ")),
        }
    }
}

/// The origin of a note.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// The job that stored it; `None` if the host condensed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) job: Option<JobId>,
    /// The time: RFC 3339 in UTC.
    pub(super) stored: String,
    /// The SHA-256 of the text.
    pub(super) sha256: String,
    /// The writers. Older hosts stored only the job.
    #[serde(flatten)]
    pub(super) writers: Writers,
    /// The last tool calls that wrote to the memory, newest last, as digests of the calls with their inputs. They are
    /// written before the text, so the newest call has taken effect only if the text is the stored one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) calls: Vec<String>,
}

impl Origin {
    /// The writers of the note.
    pub(super) fn writers(&self) -> Writers {
        if self.writers.writers.is_empty() { Writers::of(None) } else { self.writers.clone() }
    }
}

/// Names the writers of the note.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.job {
            None => write!(f, "the host, which condensed notes of {}", self.writers),
            Some(job) if self.writers.writers.is_empty() => write!(f, "job {job}"),
            Some(_) => write!(f, "{}", self.writers),
        }
    }
}
