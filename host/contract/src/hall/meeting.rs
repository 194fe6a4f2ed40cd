//! Defines meetings and the operations on them.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{IntoStaticStr, VariantArray};

use super::{Artifact, Author, Done, MeetingId, Named, Overrides, commission::is_zero};
use crate::{
    operation::{Access, Operation, Quirks, Row},
    text::{named, names},
};

/// The state of a meeting.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum MeetingStatus {
    /// A worker or the hall requests the meeting.
    Requested,
    /// The user and the worker can talk.
    Open,
    /// The meeting is closed.
    Closed,
    /// The user declined the request.
    Declined,
}

impl MeetingStatus {
    /// All states.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The name in files and answers.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether a meeting can change from this state to `next`.
    pub fn leads_to(self, next: Self) -> bool {
        match self {
            Self::Requested => matches!(next, Self::Open | Self::Declined),
            Self::Open => next == Self::Closed,
            Self::Closed | Self::Declined => false,
        }
    }
}

impl FromStr for MeetingStatus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(Self::ALL, text)
            .ok_or_else(|| format!("{text:?} is not a state of a meeting; the states are {}", names(Self::ALL)))
    }
}

/// A meeting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeetingView {
    /// The meeting's id.
    #[serde(rename = "meetingId")]
    pub id: MeetingId,
    /// The title.
    pub title: String,
    /// The state of the meeting.
    pub status: MeetingStatus,
    /// The worker's display name.
    pub worker: String,
    /// The subject.
    pub agenda: String,
    /// The date of the request or of the opening: `YYYY-MM-DD`.
    pub date: String,
    /// The date to which the user deferred the request; empty if it is not deferred.
    pub deferred_until: String,
    /// Paths of the meeting's documents below `.lore/`.
    pub linked_artifacts: Vec<String>,
    /// The notes of a closed meeting.
    pub notes: String,
    /// The worker's display title.
    #[serde(rename = "workerDisplayTitle")]
    pub worker_display_title: String,
    /// The project's name.
    #[serde(rename = "projectName")]
    pub project_name: String,
    /// The bounds of each turn, in place of the worker's own. The original has no such field.
    #[serde(default, skip_serializing_if = "Overrides::is_empty")]
    pub resource_overrides: Overrides,
    /// The requester. The original has no such field.
    #[serde(rename = "createdBy", default)]
    pub created_by: Author,
    /// The job of the session, with its transcript, usage and log. The original has no such field.
    #[serde(rename = "jobId", default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

/// A meeting with its conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeetingDetail {
    /// The meeting.
    pub meeting: MeetingView,
    /// The conversation as Markdown; empty if it is not stored any more.
    pub transcript: String,
    /// The conversation as a list of messages.
    pub parsed_messages: Vec<MeetingMessage>,
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeetingMessage {
    /// The message's id, such as `transcript-1` for the first.
    pub id: String,
    /// The speaker.
    pub role: Role,
    /// The text.
    pub content: String,
    /// The tools that the worker called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_uses: Option<Vec<ToolUse>>,
}

/// The speaker of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Role {
    /// The user.
    User,
    /// The worker.
    Assistant,
    /// The host.
    System,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolUse {
    /// The tool's name.
    pub name: String,
    /// Always `complete`.
    pub status: ToolUseStatus,
    /// The tool's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// The state of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ToolUseStatus {
    /// The call was answered.
    Complete,
}

/// A list of meetings or of requests for meetings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeetingList {
    /// The meetings from the requested offset on. Long texts are cut.
    pub meetings: Vec<MeetingView>,
    /// The number of further meetings.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
}

/// The answer to a list of meetings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum MeetingsAnswer {
    /// The meetings.
    Meetings(MeetingList),
    /// The records of the meetings, in the view `artifacts`.
    Records(MeetingRecords),
}

/// The records of meetings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeetingRecords {
    /// The records, with those of open meetings first.
    pub meetings: Vec<Artifact>,
}

/// An open meeting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenMeetingView {
    /// The meeting's id.
    pub meeting_id: MeetingId,
    /// The project's name.
    pub project_name: String,
    /// The worker's display name.
    pub worker_name: String,
    /// The time of the opening: RFC 3339 in UTC.
    pub started_at: String,
    /// Always `open`.
    pub status: MeetingStatus,
}

/// The open meetings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpenMeetings {
    /// The meetings.
    pub sessions: Vec<OpenMeetingView>,
}

/// The outcome of closing a meeting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeetingClosed {
    /// Always `ok`.
    pub status: super::Ok,
    /// The notes.
    pub notes: String,
}

/// An event of a turn: one object with its `type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum TurnEvent {
    /// The meeting's session begins.
    Session {
        /// The meeting.
        meeting_id: String,
        /// The id of the session's job.
        session_id: String,
        /// The worker's display name.
        worker: String,
        /// A sentence for each bound that exceeded the operator's. The original has no such field.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        cut: Vec<String>,
    },
    /// A piece of the worker's text.
    TextDelta {
        /// The text.
        text: String,
    },
    /// The worker calls a tool.
    ToolUse {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
        /// The whole input of the call.
        input: Value,
    },
    /// A tool's answer.
    ToolResult {
        /// The call's id.
        tool_use_id: String,
        /// The tool's name.
        name: String,
        /// The answer, or the error.
        output: String,
        /// Whether the output is an error. The original has no such field.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// The turn ended.
    TurnEnd {
        /// The cost in US dollars, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<f64>,
    },
    /// The conversation exceeded its limit, and a part of it was left out.
    ContextCompacted {
        /// Always `auto`: the host shortened the conversation.
        trigger: Trigger,
        /// The number of tokens before, as far as it is known.
        pre_tokens: u64,
        /// The texts that were left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
    },
    /// The turn was cut short.
    Error {
        /// The reason.
        reason: String,
    },
    /// An event of a later version of the host.
    #[serde(other)]
    Unknown,
}

/// The reason that a conversation was shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Trigger {
    /// The conversation exceeded its limit.
    Auto,
}

impl TurnEvent {
    /// Whether the event is the last of its turn.
    pub fn is_end(&self) -> bool {
        matches!(self, Self::TurnEnd { .. } | Self::Error { .. })
    }
}

/// A whole turn, for a caller that does not receive its events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpokenTurn {
    /// The meeting.
    pub meeting_id: String,
    /// The worker's text.
    pub text: String,
    /// The names of the called tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// The cost in US dollars, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The reason that the turn was cut short, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A meeting to open.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewMeeting {
    /// The project's name.
    pub project_name: String,
    /// The worker's name from the list of workers.
    pub worker_name: String,
    /// The subject, which is the user's first message.
    pub prompt: String,
    /// The model and bounds of each turn, in place of the worker's own.
    #[serde(default, skip_serializing_if = "Overrides::is_empty")]
    pub resource_overrides: Overrides,
}

/// Opens a meeting.
#[derive(Debug)]
pub struct OpenMeeting;

impl Operation for OpenMeeting {
    type Input = NewMeeting;
    type Output = TurnEvent;
    const ROW: Row = Row::new(
        "meeting/create",
        Access::Dispatches,
        "Opens a meeting with a worker on a project. The worker answers the subject.",
    )
    .streams()
    .post("/meeting/request/meeting/create")
    .tool("open_meeting", "Open a meeting")
    .quirks(Quirks {
        missing: Some("projectName, workerName, prompt"),
        aliases: &[("worker", "workerName"), ("agenda", "prompt")],
        ..Quirks::NONE
    });
}

/// A request for a meeting, to accept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceptMeetingParams {
    /// The meeting's id.
    pub meeting_id: String,
    /// If present, the meeting must belong to this project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_name: Option<String>,
    /// The user's first message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The model and bounds of each turn, in place of the worker's own.
    #[serde(default, skip_serializing_if = "Overrides::is_empty")]
    pub resource_overrides: Overrides,
}

/// Accepts a request for a meeting.
#[derive(Debug)]
pub struct AcceptMeeting;

impl Operation for AcceptMeeting {
    type Input = AcceptMeetingParams;
    type Output = TurnEvent;
    const ROW: Row =
        Row::new("meeting/accept", Access::Dispatches, "Accepts a request for a meeting. The worker speaks first.")
            .streams()
            .post("/meeting/request/meeting/accept")
            .tool("accept_meeting", "Accept a meeting")
            .quirks(Quirks { aliases: &[("content", "message")], ..Quirks::NONE });
}

/// The id of a meeting, and optionally its project.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeetingParams {
    /// The meeting's id.
    pub meeting_id: String,
    /// If present, the meeting must belong to this project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_name: Option<String>,
}

/// Declines a request for a meeting.
#[derive(Debug)]
pub struct DeclineMeeting;

impl Operation for DeclineMeeting {
    type Input = MeetingParams;
    type Output = Done;
    const ROW: Row = Row::new("meeting/decline", Access::Dispatches, "Declines a request for a meeting.")
        .post("/meeting/request/meeting/decline")
        .tool("decline_meeting", "Decline a meeting");
}

/// A request for a meeting, to defer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeferMeetingParams {
    /// The meeting's id.
    pub meeting_id: String,
    /// If present, the meeting must belong to this project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_name: Option<String>,
    /// The date to which the request is deferred, such as `2026-12-01`.
    pub deferred_until: String,
}

/// Defers a request for a meeting.
#[derive(Debug)]
pub struct DeferMeeting;

impl Operation for DeferMeeting {
    type Input = DeferMeetingParams;
    type Output = Done;
    const ROW: Row = Row::new("meeting/defer", Access::Dispatches, "Defers a request for a meeting to a later date.")
        .post("/meeting/request/meeting/defer")
        .tool("defer_meeting", "Put a meeting off")
        .quirks(Quirks { missing: Some("projectName, deferredUntil"), ..Quirks::NONE });
}

/// The filter and the offset for a list of meetings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeetingFilter {
    /// Lists only the meetings of this project. Every view except `all` needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_name: Option<String>,
    /// The view; `requests` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub view: Option<Named<MeetingListView>>,
    /// In the view `all`, lists only the meetings in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Named<MeetingStatus>>,
    /// The number of meetings to skip at the beginning of the list, after an answer with `more`.
    #[serde(skip_serializing_if = "is_zero")]
    pub offset: usize,
    /// The most meetings to list; an answer has fewer if they are long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The view of a list of meetings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum MeetingListView {
    /// All meetings, of one project or of all projects. The original has no such view.
    All,
    /// The requests for meetings.
    Requests,
    /// The open meetings.
    Open,
    /// The records of all meetings, open ones first; `status`, `offset` and `limit` do not apply.
    Artifacts,
}

/// Lists meetings.
#[derive(Debug)]
pub struct ListMeetings;

impl Operation for ListMeetings {
    type Input = MeetingFilter;
    type Output = MeetingsAnswer;
    const ROW: Row = Row::new("meeting/list", Access::Reads, "Lists meetings and requests for meetings, newest first.")
        .answers_mebibytes(16)
        .get("/meeting/request/meeting/list")
        .tool("list_meetings", "List meetings")
        .quirks(Quirks { aliases: &[("state", "status")], ..Quirks::NONE });
}

/// Reads a meeting.
#[derive(Debug)]
pub struct ReadMeeting;

impl Operation for ReadMeeting {
    type Input = MeetingParams;
    type Output = MeetingDetail;
    const ROW: Row =
        Row::new("meeting/read", Access::Reads, "Returns one meeting, with its conversation and its notes.")
            .answers_mebibytes(48)
            .get("/meeting/request/meeting/read")
            .tool("read_meeting", "Read a meeting");
}

/// A message in an open meeting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessageParams {
    /// The meeting's id.
    pub meeting_id: String,
    /// The user's message.
    pub message: String,
}

/// Sends a message in a meeting.
#[derive(Debug)]
pub struct SendMessage;

impl Operation for SendMessage {
    type Input = MessageParams;
    type Output = TurnEvent;
    const ROW: Row = Row::new(
        "meeting/send",
        Access::Dispatches,
        "Sends the user's message in an open meeting. The worker answers it.",
    )
    .streams()
    .post("/meeting/session/message/send")
    .tool("send_message", "Say something in a meeting")
    .quirks(Quirks { aliases: &[("content", "message")], ..Quirks::NONE });
}

/// The turn of a meeting, to receive its events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinTurnParams {
    /// The meeting's id.
    pub meeting_id: String,
    /// The id of the last received event. By default, the turn is sent from its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
}

/// Streams the running turn, or the last one.
#[derive(Debug)]
pub struct JoinTurn;

impl Operation for JoinTurn {
    type Input = JoinTurnParams;
    type Output = TurnEvent;
    // The original has no such route, and its clients lose a turn that they do not listen to.
    const ROW: Row = Row::new(
        "meeting/subscribe",
        Access::Reads,
        "Streams the events of a meeting's running turn, or of its last turn.",
    )
    .streams()
    .get("/meeting/session/generation/subscribe");
}

/// The id of a meeting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeetingIdParams {
    /// The meeting's id.
    pub meeting_id: String,
}

/// Interrupts the running turn.
#[derive(Debug)]
pub struct InterruptTurn;

impl Operation for InterruptTurn {
    type Input = MeetingIdParams;
    type Output = Done;
    const ROW: Row = Row::new("meeting/interrupt", Access::Ends, "Interrupts the running turn of a meeting.")
        .post("/meeting/session/generation/interrupt")
        .tool("interrupt_turn", "Interrupt a turn");
}

/// Closes a meeting.
#[derive(Debug)]
pub struct CloseMeeting;

impl Operation for CloseMeeting {
    type Input = MeetingIdParams;
    type Output = MeetingClosed;
    const ROW: Row = Row::new("meeting/close", Access::Ends, "Closes a meeting, and returns its notes.")
        .slow()
        .post("/meeting/session/meeting/close")
        .tool("close_meeting", "Close a meeting");
}

/// Lists the open meetings.
#[derive(Debug)]
pub struct ListOpenMeetings;

impl Operation for ListOpenMeetings {
    type Input = super::NoParams;
    type Output = OpenMeetings;
    const ROW: Row = Row::new("meeting/sessions", Access::Reads, "Lists the open meetings of all projects.")
        .get("/meeting/session/meeting/list");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_these_states_follow_each_other() {
        use MeetingStatus::{Closed, Declined, Open, Requested};
        let pairs =
            MeetingStatus::ALL.iter().copied().flat_map(|from| MeetingStatus::ALL.iter().map(move |to| (from, *to)));
        let led: Vec<_> = pairs.filter(|(from, to)| from.leads_to(*to)).collect();
        assert_eq!(led, [(Requested, Open), (Requested, Declined), (Open, Closed)]);
        for &status in MeetingStatus::ALL {
            assert_eq!(status.to_string().parse(), Ok(status));
        }
        assert!("done".parse::<MeetingStatus>().unwrap_err().contains("requested, open, closed, declined"));
    }
}
