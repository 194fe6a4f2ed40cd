//! Defines the events of a host, as `GET /events` sends them.
//!
//! Callers read these doc comments in the JSON Schema that is made from these types.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};

use crate::{
    ids::{JobId, MemberKey},
    job::{Decision, JobStatus},
    text::{named, names},
};

/// The most bytes of each text in an event.
pub const TEXT_BYTES: usize = 1024;

/// An event of a host. Each text is cut after its first KiB; `worker/status` has the whole texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The time of the event: RFC 3339 in UTC.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// The member that the event is about; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub member: Option<MemberKey>,
    /// The job that the event is about; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "JobId")]
    pub job_id: Option<JobId>,
    /// The event's kind and details.
    #[serde(flatten)]
    pub news: EventDetail,
    /// Whether a text was cut; absent if none was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// The kind of an event, with its details.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, EnumDiscriminants)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[strum_discriminants(
    name(Kind),
    doc = "The kind of an event.",
    allow(missing_docs, reason = "the variants are those of `EventDetail`"),
    derive(Hash, strum::Display, IntoStaticStr, VariantArray),
    strum(serialize_all = "kebab-case")
)]
pub enum EventDetail {
    /// A job was created. It may wait for its turn.
    JobStarted {
        /// The label of the dispatch.
        description: String,
    },
    /// The host resumed a job that a stop of the host had interrupted.
    JobResumed {
        /// The label of the dispatch.
        description: String,
    },
    /// The worker changed its progress text.
    JobSummary {
        /// The progress text; null if the worker removed it.
        summary: Option<String>,
    },
    /// The worker has a question for a person.
    JobQuestion {
        /// The question.
        question: String,
    },
    /// The worker made a decision on its own.
    JobDecision {
        /// The decision and its reason.
        decision: Decision,
    },
    /// A job ended, or a failed job was cancelled.
    JobEnded {
        /// The final status.
        status: JobStatus,
        /// The reason of the job's failure; null if it did not fail.
        error: Option<String>,
    },
    /// A job was deleted with all its files.
    JobDeleted,
    /// The host now serves a new member.
    MemberAdded,
    /// The host now serves a member's changed directory.
    MemberChanged,
    /// The host does not serve the member any more.
    MemberRemoved,
    /// The current contents of a member's directory cannot be served. The version that was in service stays in service.
    MemberError {
        /// The reason.
        error: String,
    },
    /// Events are missing here: the host does not keep them any more.
    Gap {
        /// The most events that may be missing; null if the number is unknown because the host restarted.
        missed: Option<u64>,
    },
}

impl Kind {
    /// All kinds.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The kind's name on the wire.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(Self::ALL, text)
            .ok_or_else(|| format!("{text:?} is not a kind of event; the kinds are {}", names(Self::ALL)))
    }
}

impl EventDetail {
    /// The kind of the event.
    pub fn kind(&self) -> Kind {
        self.into()
    }

    /// Cuts each text to [`TEXT_BYTES`], and returns whether any was cut.
    #[must_use]
    pub fn cut(mut self) -> (Self, bool) {
        let mut truncated = false;
        let mut cut = |text: &mut String| {
            if text.len() > TEXT_BYTES {
                // The kept part is copied, so that the memory of the long text is freed.
                *text = text.get(..text.floor_char_boundary(TEXT_BYTES)).unwrap_or_default().to_owned();
                truncated = true;
            }
        };
        match &mut self {
            Self::JobStarted { description: text }
            | Self::JobResumed { description: text }
            | Self::JobSummary { summary: Some(text) }
            | Self::JobQuestion { question: text }
            | Self::JobEnded { error: Some(text), .. }
            | Self::MemberError { error: text } => cut(text),
            Self::JobDecision { decision } => {
                [&mut decision.question, &mut decision.decision, &mut decision.reasoning].into_iter().for_each(cut);
            }
            Self::JobSummary { summary: None }
            | Self::JobEnded { error: None, .. }
            | Self::JobDeleted
            | Self::MemberAdded
            | Self::MemberChanged
            | Self::MemberRemoved
            | Self::Gap { .. } => {}
        }
        (self, truncated)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_one_flat_object_that_names_its_kind() {
        let event = Event {
            time: "2026-01-01T00:00:00Z".into(),
            member: Some("team/ann".parse().unwrap()),
            job_id: Some("j".parse().unwrap()),
            news: EventDetail::JobEnded { status: JobStatus::Completed, error: None },
            truncated: false,
        };
        let spelled = json!({"time": "2026-01-01T00:00:00Z", "member": "team/ann", "jobId": "j", "kind": "job-ended",
            "status": "completed", "error": null});
        assert_eq!(serde_json::to_value(&event).unwrap(), spelled);
        assert_eq!(serde_json::from_value::<Event>(spelled).unwrap(), event);
        for kind in Kind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(*kind));
        }
        assert!("ended".parse::<Kind>().unwrap_err().contains("job-started, job-resumed"));
    }

    #[test]
    fn each_kind_is_called_as_its_news_are_spelled() {
        let text = String::new;
        let news = [
            EventDetail::JobStarted { description: text() },
            EventDetail::JobResumed { description: text() },
            EventDetail::JobSummary { summary: None },
            EventDetail::JobQuestion { question: text() },
            EventDetail::JobDecision { decision: Decision { question: text(), decision: text(), reasoning: text() } },
            EventDetail::JobEnded { status: JobStatus::Failed, error: None },
            EventDetail::JobDeleted,
            EventDetail::MemberAdded,
            EventDetail::MemberChanged,
            EventDetail::MemberRemoved,
            EventDetail::MemberError { error: text() },
            EventDetail::Gap { missed: None },
        ];
        let kinds: Vec<Kind> = news.iter().map(EventDetail::kind).collect();
        assert_eq!(kinds, Kind::ALL);
        for news in news {
            assert_eq!(serde_json::to_value(&news).unwrap()["kind"], news.kind().as_str());
        }
    }

    #[test]
    fn texts_are_cut_between_characters_and_it_is_said() {
        let (news, truncated) = EventDetail::JobQuestion { question: "é".repeat(TEXT_BYTES) }.cut();
        assert_eq!((news, truncated), (EventDetail::JobQuestion { question: "é".repeat(TEXT_BYTES / 2) }, true));
        let whole = EventDetail::JobSummary { summary: Some("x".repeat(TEXT_BYTES)) };
        assert_eq!(whole.clone().cut(), (whole, false));
    }
}
