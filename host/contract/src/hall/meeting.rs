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

/// Where a meeting is.
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
    /// All states.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The name in files and answers.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether this state may be followed by `next`.
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
            .ok_or_else(|| format!("{text:?} is no state of a meeting; the states are {}", names(Self::ALL)))
    }
}

/// A meeting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeetingView {
    /// The name.
    #[serde(rename = "meetingId")]
    pub id: MeetingId,
    /// The title.
    pub title: String,
    /// Where it is.
    pub status: MeetingStatus,
    /// The worker's name for people.
    pub worker: String,
    /// The subject.
    pub agenda: String,
    /// The day when it was asked for or opened: `YYYY-MM-DD`.
    pub date: String,
    /// Until when the user put it off; empty where they did not.
    pub deferred_until: String,
    /// Paths of documents below `.lore/` that belong to it.
    pub linked_artifacts: Vec<String>,
    /// The notes, once it is closed.
    pub notes: String,
    /// The worker's title for people.
    #[serde(rename = "workerDisplayTitle")]
    pub worker_display_title: String,
    /// The project.
    #[serde(rename = "projectName")]
    pub project_name: String,
    /// In place of the worker's own bounds, for each turn. The original has no such field.
    #[serde(default, skip_serializing_if = "Overrides::is_empty")]
    pub resource_overrides: Overrides,
    /// Who asked for it. The original has no such field.
    #[serde(rename = "createdBy", default)]
    pub created_by: Author,
    /// The job of its session: its transcript, meters and log. The original has no such field.
    #[serde(rename = "jobId", default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

/// A meeting, with its conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeetingDetail {
    /// The meeting.
    pub meeting: MeetingView,
    /// The conversation, as Markdown; empty where it is not there any more.
    pub transcript: String,
    /// The conversation in parts.
    pub parsed_messages: Vec<MeetingMessage>,
}

/// A part of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeetingMessage {
    /// `transcript-1` for the first.
    pub id: String,
    /// Who said it.
    pub role: Role,
    /// The text.
    pub content: String,
    /// The tools that the worker called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_uses: Option<Vec<ToolUse>>,
}

/// Who said something.
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

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolUse {
    /// The tool.
    pub name: String,
    /// `complete`.
    pub status: ToolUseStatus,
    /// The answer of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// How far a call of a tool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ToolUseStatus {
    /// It was answered.
    Complete,
}

/// Meetings, or requests for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeetingList {
    /// The meetings, from the asked position on. Long texts are cut.
    pub meetings: Vec<MeetingView>,
    /// How many follow.
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
    /// The records, those of open meetings first.
    pub meetings: Vec<Artifact>,
}

/// A meeting that is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenMeetingView {
    /// The name.
    pub meeting_id: MeetingId,
    /// The project.
    pub project_name: String,
    /// The worker's name for people.
    pub worker_name: String,
    /// When it was opened: RFC 3339 in UTC.
    pub started_at: String,
    /// `open`.
    pub status: MeetingStatus,
}

/// The meetings that are open.
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
        /// Its job.
        session_id: String,
        /// The worker's name for people.
        worker: String,
        /// A sentence for each bound that was above what the operator allows. The original has no such field.
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
        /// The call.
        id: String,
        /// The tool.
        name: String,
        /// Its whole input.
        input: Value,
    },
    /// The answer of a tool.
    ToolResult {
        /// The call.
        tool_use_id: String,
        /// The tool.
        name: String,
        /// The answer, or the error.
        output: String,
        /// Whether it is an error. The original has no such field.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// The turn is over.
    TurnEnd {
        /// US dollars, where the cost is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<f64>,
    },
    /// The conversation no longer fits, and some of it was left out.
    ContextCompacted {
        /// `auto`: nobody asked for it.
        trigger: Trigger,
        /// Tokens before, as far as that is known.
        pre_tokens: u64,
        /// The texts that were left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
    },
    /// The turn is over, and why it was cut short.
    Error {
        /// Why.
        reason: String,
    },
    /// An event of a host of a later version.
    #[serde(other)]
    Unknown,
}

/// What had a conversation shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Trigger {
    /// The host, since it no longer fits.
    Auto,
}

impl TurnEvent {
    /// Whether the event is the last of its turn.
    pub fn is_end(&self) -> bool {
        matches!(self, Self::TurnEnd { .. } | Self::Error { .. })
    }
}

/// A whole turn, for a caller that is not sent its events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpokenTurn {
    /// The meeting.
    pub meeting_id: String,
    /// The worker's text.
    pub text: String,
    /// The tools that were called, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// US dollars, where the cost is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Why the turn was cut short, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A meeting that is to be opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewMeeting {
    /// The project's name.
    pub project_name: String,
    /// The worker's name, as the list of workers has it.
    pub worker_name: String,
    /// The subject: the user's first message.
    pub prompt: String,
    /// Model and bounds in place of the worker's own, for each turn.
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
        "Opens a meeting with a worker on a project, and has the worker answer the subject.",
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

/// A request for a meeting that is to be accepted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceptMeetingParams {
    /// The meeting's id.
    pub meeting_id: String,
    /// Only where it is one of this project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_name: Option<String>,
    /// The user's first message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Model and bounds in place of the worker's own, for each turn.
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
        Row::new("meeting/accept", Access::Dispatches, "Accepts a request for a meeting, and has the worker begin it.")
            .streams()
            .post("/meeting/request/meeting/accept")
            .tool("accept_meeting", "Accept a meeting")
            .quirks(Quirks { aliases: &[("content", "message")], ..Quirks::NONE });
}

/// A meeting, by its id, of a project where one is named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeetingParams {
    /// The meeting's id.
    pub meeting_id: String,
    /// Only where it is one of this project.
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

/// A request for a meeting that is to be put off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeferMeetingParams {
    /// The meeting's id.
    pub meeting_id: String,
    /// Only where it is one of this project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_name: Option<String>,
    /// Until which day, as `2026-12-01`.
    pub deferred_until: String,
}

/// Defers a request for a meeting.
#[derive(Debug)]
pub struct DeferMeeting;

impl Operation for DeferMeeting {
    type Input = DeferMeetingParams;
    type Output = Done;
    const ROW: Row = Row::new("meeting/defer", Access::Dispatches, "Puts a request for a meeting off.")
        .post("/meeting/request/meeting/defer")
        .tool("defer_meeting", "Put a meeting off")
        .quirks(Quirks { missing: Some("projectName, deferredUntil"), ..Quirks::NONE });
}

/// Which meetings a list has, and from where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeetingFilter {
    /// Only those of this project. Each view but `all` needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_name: Option<String>,
    /// Which meetings; without it, the requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub view: Option<Named<MeetingListView>>,
    /// In the view `all`, only those in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Named<MeetingStatus>>,
    /// How many to skip at the beginning of the list, as after an answer that says `more`.
    #[serde(skip_serializing_if = "is_zero")]
    pub offset: usize,
    /// How many to list at most; fewer where they are long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Which meetings a list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum MeetingListView {
    /// All, of one project or of all projects. The original has no such view.
    All,
    /// The requests.
    Requests,
    /// The open ones.
    Open,
    /// The records of those that are over.
    Artifacts,
}

/// Lists meetings.
#[derive(Debug)]
pub struct ListMeetings;

impl Operation for ListMeetings {
    type Input = MeetingFilter;
    type Output = MeetingsAnswer;
    const ROW: Row = Row::new("meeting/list", Access::Reads, "Lists meetings, and requests for them, newest first.")
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
        Row::new("meeting/read", Access::Reads, "Hands over one meeting, with its conversation and its notes.")
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
    const ROW: Row =
        Row::new("meeting/send", Access::Dispatches, "Says something in an open meeting, and has the worker answer.")
            .streams()
            .post("/meeting/session/message/send")
            .tool("send_message", "Say something in a meeting")
            .quirks(Quirks { aliases: &[("content", "message")], ..Quirks::NONE });
}

/// A turn that is to be listened to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinTurnParams {
    /// The meeting's id.
    pub meeting_id: String,
    /// The id of the last event that was received; without it, the turn is sent from its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
}

/// Listens to the turn under way, or to the last one.
#[derive(Debug)]
pub struct JoinTurn;

impl Operation for JoinTurn {
    type Input = JoinTurnParams;
    type Output = TurnEvent;
    // The original has no such route, and its clients lose a turn that they do not listen to.
    const ROW: Row = Row::new(
        "meeting/subscribe",
        Access::Reads,
        "Answers with the events of the turn that is under way in a meeting, or of the last one.",
    )
    .streams()
    .get("/meeting/session/generation/subscribe");
}

/// A meeting, by its id.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeetingIdParams {
    /// The meeting's id.
    pub meeting_id: String,
}

/// Interrupts the turn under way.
#[derive(Debug)]
pub struct InterruptTurn;

impl Operation for InterruptTurn {
    type Input = MeetingIdParams;
    type Output = Done;
    const ROW: Row = Row::new("meeting/interrupt", Access::Ends, "Interrupts the turn that is under way in a meeting.")
        .post("/meeting/session/generation/interrupt")
        .tool("interrupt_turn", "Interrupt a turn");
}

/// Closes a meeting.
#[derive(Debug)]
pub struct CloseMeeting;

impl Operation for CloseMeeting {
    type Input = MeetingIdParams;
    type Output = MeetingClosed;
    const ROW: Row = Row::new("meeting/close", Access::Ends, "Closes a meeting, and answers with its notes.")
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
    const ROW: Row = Row::new("meeting/sessions", Access::Reads, "Lists the meetings that are open, of all projects.")
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
