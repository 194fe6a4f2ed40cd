//! Meetings.
//!
//! What begins a turn is answered with its events. Whatever goes wrong once its fields are there is an `error` event of that
//! stream, as in the original, whose web UI does not look at the status.

use guild_hall::{
    HallError,
    hall::{NewMeeting, Turn},
    meeting::MeetingStatus,
};
use serde_json::json;

use super::{
    super::events,
    request::{Answer, Fields, Reply, Request, done, offset, ok, page},
};

/// The routes that are answered with a stream.
pub(super) const STREAMS: [&str; 4] = [
    "/meeting/request/meeting/create",
    "/meeting/request/meeting/accept",
    "/meeting/session/message/send",
    "/meeting/session/generation/subscribe",
];

/// What was said of a meeting where the original's clients tell it nothing.
const NO_NOTES: &str = "Meeting closed.";

pub(super) async fn create(Request { hall, fields, .. }: Request) -> Answer {
    let missing = |_| HallError::Invalid("Missing required fields: projectName, workerName, prompt".to_owned());
    let new = NewMeeting {
        project: fields.project().map_err(missing)?,
        worker: fields.text(&["workerName", "worker"]).map_err(missing)?,
        agenda: fields.text(&["prompt", "agenda"]).map_err(missing)?,
        overrides: fields.overrides()?.unwrap_or_default(),
    };
    turn(hall.open_meeting(new).await.map(|(_, turn)| turn))
}

pub(super) async fn accept(Request { hall, fields, .. }: Request) -> Answer {
    let (id, project) = (fields.meeting()?, project(&fields));
    let message = fields.maybe(&["message", "content"]);
    let overrides = fields.overrides()?.unwrap_or_default();
    turn(hall.accept_meeting(&id, project.as_deref(), message.as_deref(), overrides).await)
}

pub(super) async fn decline(Request { hall, fields, .. }: Request) -> Answer {
    hall.decline_meeting(&fields.meeting()?, project(&fields).as_deref()).await?;
    done()
}

pub(super) async fn defer(Request { hall, fields, .. }: Request) -> Answer {
    let id = fields.meeting()?;
    let missing = |_| HallError::Invalid("Missing required fields: projectName, deferredUntil".to_owned());
    let until = fields.text(&["deferredUntil"]).map_err(missing)?;
    hall.defer_meeting(&id, project(&fields).as_deref(), &until).await?;
    done()
}

pub(super) async fn send(Request { hall, fields, .. }: Request) -> Answer {
    turn(hall.say(&fields.meeting()?, &fields.text(&["message", "content"])?).await)
}

pub(super) async fn subscribe(Request { hall, fields, .. }: Request) -> Answer {
    let id = fields.meeting()?;
    let after = fields.maybe(&["after"]).map_or(Ok(0), |after| after.parse());
    let after = after.map_err(|_| HallError::Invalid("after is the id of an event, a number".to_owned()))?;
    Ok(events_of(hall.join(&id, after)?))
}

pub(super) async fn interrupt(Request { hall, fields, .. }: Request) -> Answer {
    hall.interrupt(&fields.meeting()?)?;
    done()
}

pub(super) async fn close(Request { hall, fields, .. }: Request) -> Answer {
    let notes = hall.close_meeting(&fields.meeting()?).await?;
    ok(json!({"status": "ok", "notes": if notes.is_empty() { NO_NOTES } else { &notes }}))
}

pub(super) async fn list(Request { hall, fields, .. }: Request) -> Answer {
    // The original has no such view, and the others are of a project.
    if fields.given(&["view"]) == Some("all") {
        let Ok(states) =
            fields.maybe(&["status", "state"]).iter().map(|status| status.parse()).collect::<Result<Vec<_>, _>>()
        else {
            return ok(json!({"meetings": []}));
        };
        return page("meetings", hall.meetings_from(project(&fields).as_deref(), &states, offset(&fields)?).await?);
    }
    let project = fields.project()?;
    match fields.given(&["view"]) {
        Some("artifacts") => ok(json!({"meetings": hall.meeting_artifacts(&project).await?})),
        Some("open") => {
            page("meetings", hall.meetings_from(Some(&project), &[MeetingStatus::Open], offset(&fields)?).await?)
        }
        _ => page("meetings", hall.meetings_from(Some(&project), &[MeetingStatus::Requested], offset(&fields)?).await?),
    }
}

pub(super) async fn read(Request { hall, fields, .. }: Request) -> Answer {
    ok(hall.read_meeting(&fields.meeting()?, project(&fields).as_deref()).await?)
}

pub(super) async fn sessions(Request { hall, .. }: Request) -> Answer {
    ok(json!({"sessions": hall.sessions()}))
}

/// The project, which the original's command line leaves out.
fn project(fields: &Fields) -> Option<String> {
    fields.maybe(&["projectName"])
}

/// The events of a turn, or why there is none.
fn turn(turn: Result<Turn, HallError>) -> Answer {
    Ok(turn.map_or_else(Reply::NoEvents, events_of))
}

fn events_of(turn: Turn) -> Reply {
    Reply::Events(turn.meeting(), events::of_turn(turn))
}
