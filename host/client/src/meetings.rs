//! Meetings of a hall: conversations with a worker, turn by turn.

use std::time::Duration;

use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use sse_stream::Sse;

use crate::{
    Error, Reply,
    connect::{self, FIRST, longer, protocol},
    hall::{Changed, EVENT_BYTES, HallClient, Overrides, SILENCE},
};

/// What a meeting is to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewMeeting {
    /// Its project.
    pub project_name: String,
    /// Its worker: its key, its name for people, or that of its package.
    pub worker_name: String,
    /// What it is about.
    #[serde(rename = "prompt")]
    pub agenda: String,
    /// In place of the worker's own bounds, for each turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_overrides: Option<Overrides>,
}

/// Which meetings a list has. What is `None` is no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeetingFilter {
    /// Those of this project.
    pub project_name: Option<String>,
    /// Those in this state.
    pub status: Option<String>,
}

/// Meetings.
#[derive(Clone, Debug, Deserialize)]
pub struct MeetingList {
    /// Each as its record says.
    pub meetings: Vec<Meeting>,
    /// How many others there are: one answer has no more.
    #[serde(default)]
    pub more: usize,
}

/// A meeting.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meeting {
    /// Its id.
    pub meeting_id: String,
    /// What it is called.
    pub title: String,
    /// Where it is: `requested`, `open`, `closed`, `declined`.
    pub status: String,
    /// The worker's name for people.
    pub worker: String,
    /// What the worker is, for people.
    pub worker_display_title: String,
    /// What it is about.
    pub agenda: String,
    /// The day when it was asked for or opened.
    pub date: String,
    /// Until when it was put off; empty where it was not.
    #[serde(rename = "deferred_until")]
    pub deferred_until: String,
    /// What belongs to it: paths below `.lore/`.
    #[serde(rename = "linked_artifacts")]
    pub linked_artifacts: Vec<String>,
    /// The notes, once it is closed.
    pub notes: String,
    /// Its project.
    pub project_name: String,
    /// `user` or `manager`.
    pub created_by: String,
    /// In place of the worker's own bounds, for each turn.
    #[serde(rename = "resource_overrides")]
    pub resource_overrides: Overrides,
    /// The job of its session.
    pub job_id: Option<String>,
}

/// One meeting, with what was said in it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeetingDetail {
    /// As a list has it.
    pub meeting: Meeting,
    /// What was said, as Markdown.
    #[serde(default)]
    pub transcript: String,
    /// The same in parts.
    #[serde(default)]
    pub parsed_messages: Vec<MeetingMessage>,
}

/// Something that was said in a meeting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MeetingMessage {
    /// `user`, `assistant` or `system`.
    pub role: String,
    /// What.
    pub content: String,
    /// The tools that the worker called.
    pub tool_uses: Vec<MeetingTool>,
}

/// A call of a tool in a meeting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MeetingTool {
    /// The tool.
    pub name: String,
    /// What it answered.
    pub output: String,
}

/// The answer to closing a meeting.
#[derive(Clone, Debug, Deserialize)]
pub struct ClosedMeeting {
    /// What was discussed and decided, as Markdown.
    pub notes: String,
}

/// Something that happens in a turn.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum TurnEvent {
    /// The worker begins.
    Session {
        /// The meeting.
        meeting_id: String,
        /// The worker's name for people.
        #[serde(default)]
        worker: String,
        /// A sentence for each bound that was above what the operator allows.
        #[serde(default)]
        cut: Vec<String>,
    },
    /// A piece of the worker's text.
    TextDelta {
        /// The text.
        text: String,
    },
    /// The worker calls a tool.
    ToolUse {
        /// The tool.
        name: String,
        /// Its input.
        #[serde(default)]
        input: Value,
    },
    /// What a tool answered.
    ToolResult {
        /// The tool.
        name: String,
        /// The answer, or the error.
        output: String,
        /// Whether it is an error.
        #[serde(default)]
        is_error: bool,
    },
    /// What was said no longer fits, and some of it was left out.
    ContextCompacted {},
    /// The turn is over.
    TurnEnd {
        /// US dollars, where the cost is known.
        #[serde(default)]
        cost: Option<f64>,
    },
    /// The turn is over, and why it was cut short.
    Error {
        /// Why.
        reason: String,
    },
    /// Something else.
    #[serde(other)]
    Other,
}

impl HallClient {
    /// Meetings: the newest first, and those that were put off last.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn meetings(&self, filter: &MeetingFilter) -> Result<Reply<MeetingList>, Error> {
        let MeetingFilter { project_name, status } = filter;
        let query = [("view", Some("all")), ("projectName", project_name.as_deref()), ("status", status.as_deref())];
        self.get("meeting/request/meeting/list", &query).await
    }

    /// One meeting of a project.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read_meeting(&self, id: &str, project: &str) -> Result<Reply<MeetingDetail>, Error> {
        let query = [("meetingId", Some(id)), ("projectName", Some(project))];
        self.get("meeting/request/meeting/read", &query).await
    }

    /// Says no to a meeting that is asked for.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn decline_meeting(&self, id: &str) -> Result<Reply<Changed>, Error> {
        self.post("meeting/request/meeting/decline", &json!({"meetingId": id})).await
    }

    /// Puts a meeting that is asked for off until a day, such as `2026-12-01`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn defer_meeting(&self, id: &str, until: &str) -> Result<Reply<Changed>, Error> {
        self.post("meeting/request/meeting/defer", &json!({"meetingId": id, "deferredUntil": until})).await
    }

    /// Ends the turn under way, if there is one. The meeting goes on.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn interrupt_turn(&self, id: &str) -> Result<Reply<Changed>, Error> {
        self.post("meeting/session/generation/interrupt", &json!({"meetingId": id})).await
    }

    /// Closes a meeting. It answers once the notes are written, which may take minutes.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn close_meeting(&self, id: &str) -> Result<Reply<ClosedMeeting>, Error> {
        self.patient().post("meeting/session/meeting/close", &json!({"meetingId": id})).await
    }

    /// Opens a meeting. Its first turn begins.
    ///
    /// # Errors
    /// See [`Error`]. What the hall has against it is an event.
    pub async fn open_meeting(&self, new: &NewMeeting) -> Result<TurnEvents, Error> {
        self.turn("meeting/request/meeting/create", None, &json!(new)).await
    }

    /// Opens a meeting that is asked for, with these overrides in place of the worker's own bounds. Its first turn begins, with
    /// `message` where there is one.
    ///
    /// # Errors
    /// As of [`Self::open_meeting`].
    pub async fn accept_meeting(
        &self,
        id: &str,
        message: Option<&str>,
        overrides: Option<&Overrides>,
    ) -> Result<TurnEvents, Error> {
        let body = json!({"meetingId": id, "message": message.unwrap_or_default(), "resourceOverrides": overrides});
        self.turn("meeting/request/meeting/accept", Some(id), &body).await
    }

    /// Says something in an open meeting. A turn begins.
    ///
    /// # Errors
    /// As of [`Self::open_meeting`].
    pub async fn say(&self, id: &str, message: &str) -> Result<TurnEvents, Error> {
        let body = json!({"meetingId": id, "message": message});
        self.turn("meeting/session/message/send", Some(id), &body).await
    }

    /// The turn under way, or else the last one, behind the event with the number `after`; all of it behind 0. Nothing is
    /// sent before the first call of [`TurnEvents::next`].
    pub fn join_turn(&self, id: &str, after: u64) -> TurnEvents {
        TurnEvents {
            hall: self.clone(),
            meeting: Some(id.to_owned()),
            after,
            now: None,
            is_joined: true,
            is_empty: true,
            is_over: false,
            pause: None,
        }
    }

    async fn turn(&self, path: &str, meeting: Option<&str>, body: &Value) -> Result<TurnEvents, Error> {
        let url = self.url(path)?;
        let request = self.http.post(url.clone()).json(body);
        let now = connect::events(&url, request, EVENT_BYTES, self.patient().timeout).await?;
        Ok(TurnEvents {
            meeting: meeting.map(str::to_owned),
            now: Some(now),
            is_joined: false,
            ..self.join_turn("", 0)
        })
    }
}

/// The events of a turn. The turn goes on without them.
///
/// A connection that breaks before the end of the turn is made again, and goes on behind the last event.
pub struct TurnEvents {
    hall: HallClient,
    /// The meeting, once its id is known.
    meeting: Option<String>,
    /// The number of the last event.
    after: u64,
    now: Option<connect::Stream>,
    /// Whether the connection is one that joined a turn, and not the one that began it.
    is_joined: bool,
    /// Whether no event came from this connection.
    is_empty: bool,
    is_over: bool,
    pause: Option<Duration>,
}

impl TurnEvents {
    /// Waits for the next event; `None` behind the end of the turn. Where the host was restarted in between, no event may
    /// tell of the end. Dropping the future is safe.
    ///
    /// # Errors
    /// See [`Error`]. After one that [may pass](Error::may_pass), the next call waits briefly, and joins the turn again.
    pub async fn next(&mut self) -> Result<Option<Reply<TurnEvent>>, Error> {
        while !self.is_over {
            self.connect().await?;
            let Some(stream) = &mut self.now else { continue };
            let url = &self.hall.base;
            let reason = match tokio::time::timeout(SILENCE, stream.next()).await {
                Ok(Some(Ok(Sse { data: Some(data), id, .. }))) => {
                    let json = RawValue::from_string(data).map_err(|e| protocol(url, e.to_string()))?;
                    let reply: Reply<TurnEvent> = Reply::parse(url, json)?;
                    (self.is_empty, self.pause) = (false, None);
                    self.after = id.and_then(|id| id.parse().ok()).unwrap_or(self.after);
                    match &reply.value {
                        TurnEvent::Session { meeting_id, .. } => self.meeting = Some(meeting_id.clone()),
                        TurnEvent::TurnEnd { .. } | TurnEvent::Error { .. } => self.is_over = true,
                        _ => {}
                    }
                    return Ok(Some(reply));
                }
                // A keep-alive.
                Ok(Some(Ok(_))) => continue,
                // There is no more of this turn.
                Ok(None) if self.is_joined && self.is_empty => {
                    self.is_over = true;
                    continue;
                }
                Ok(None) => "the host ended it".to_owned(),
                Ok(Some(Err(e))) => e.to_string(),
                Err(_) => format!("nothing came for {} s", SILENCE.as_secs()),
            };
            self.now = None;
            if self.meeting.is_none() {
                self.is_over = true;
                return Err(Error::Broken { url: url.clone(), reason });
            }
        }
        Ok(None)
    }

    /// Joins the turn, if there is no connection.
    async fn connect(&mut self) -> Result<(), Error> {
        let (None, Some(meeting)) = (&self.now, &self.meeting) else { return Ok(()) };
        if let Some(pause) = self.pause {
            tokio::time::sleep(pause).await;
        }
        self.pause = Some(self.pause.map_or(FIRST, longer));
        let mut url = self.hall.url("meeting/session/generation/subscribe")?;
        url.query_pairs_mut().append_pair("meetingId", meeting).append_pair("after", &self.after.to_string());
        let request = self.hall.http.get(url.clone());
        self.now = Some(connect::events(&url, request, EVENT_BYTES, self.hall.timeout).await?);
        (self.is_joined, self.is_empty) = (true, true);
        Ok(())
    }
}
