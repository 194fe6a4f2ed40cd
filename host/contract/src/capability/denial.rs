//! Defines the reasons for which something is not granted.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The reason that something is not granted. Its text says what would change that.
///
/// A job's files have [`Self::BeganWithout`] and [`Self::AwaitsApproval`] by name, so that their texts can change. A
/// surface for callers has the texts.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Denial {
    /// The job is resumed and began without it; its member received it later.
    #[error("the job began without it; dispatch its task again")]
    BeganWithout,
    /// A later version of the host than the one under which the member was approved added it.
    #[error(
        "a later version of the host than the one under which this member was approved added it; the operator reviews \
         it with `guild approve`"
    )]
    AwaitsApproval,
    /// The host or a rule of the operator does not allow it. The sentence names the line that would allow it.
    #[error("{0}")]
    #[serde(untagged)]
    Reason(String),
}

impl Denial {
    /// The subject that lacks the grant: a job, or its member.
    pub(crate) fn whose(&self) -> &'static str {
        match self {
            Self::BeganWithout => "job",
            Self::AwaitsApproval | Self::Reason(_) => "member",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reason_is_stored_as_its_sentence_and_the_others_by_name() {
        for (denial, stored) in [
            (Denial::BeganWithout, "began-without"),
            (Denial::AwaitsApproval, "awaits-approval"),
            (
                Denial::Reason("[member.\"ann\"] in guild.toml denies it".to_owned()),
                "[member.\"ann\"] in guild.toml denies it",
            ),
        ] {
            assert_eq!(json!(denial), json!(stored));
            assert_eq!(serde_json::from_value::<Denial>(json!(stored)).unwrap(), denial);
        }
    }
}
