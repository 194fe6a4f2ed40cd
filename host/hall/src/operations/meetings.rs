//! Handles the operations on meetings.
//!
//! An operation that begins a turn answers with the turn's events. An error is an event of that stream too, as in the
//! original, whose web UI does not read the status.

use std::sync::Arc;

use guild_contract::{
    OperationError,
    hall::{
        AcceptMeeting, AcceptMeetingParams, CloseMeeting, DeclineMeeting, DeferMeeting, DeferMeetingParams, Done,
        InterruptTurn, JoinTurn, JoinTurnParams, ListMeetings, ListOpenMeetings, MeetingClosed, MeetingDetail,
        MeetingFilter, MeetingIdParams, MeetingList, MeetingListView, MeetingParams, MeetingRecords, MeetingStatus,
        MeetingsAnswer, MessageParams, Named, NewMeeting, NoParams, Ok as Yes, OpenMeeting, OpenMeetings, ReadMeeting,
        SendMessage, TurnEvent,
    },
};

use super::{Handle, Reply, check_limit};
use crate::Hall;

/// The notes of a meeting in which nothing was said.
const NO_NOTES: &str = "Meeting closed.";

impl Handle for OpenMeeting {
    async fn handle(hall: Arc<Hall>, new: NewMeeting) -> Result<Reply<TurnEvent>, OperationError> {
        Ok(Reply::Turn(hall.meetings.open(new).await.map(|(_, turn)| Box::new(turn))))
    }
}

impl Handle for AcceptMeeting {
    async fn handle(hall: Arc<Hall>, params: AcceptMeetingParams) -> Result<Reply<TurnEvent>, OperationError> {
        let AcceptMeetingParams { meeting_id, project_name, message, resource_overrides } = params;
        let turn = hall.meetings.accept(&meeting_id, project_name.as_deref(), message.as_deref(), resource_overrides);
        Ok(Reply::Turn(turn.await.map(Box::new)))
    }
}

impl Handle for DeclineMeeting {
    async fn handle(
        hall: Arc<Hall>,
        MeetingParams { meeting_id, project_name }: MeetingParams,
    ) -> Result<Reply<Done>, OperationError> {
        hall.meetings.decline(&meeting_id, project_name.as_deref()).await?;
        Ok(Done::default().into())
    }
}

impl Handle for DeferMeeting {
    async fn handle(
        hall: Arc<Hall>,
        DeferMeetingParams { meeting_id, project_name, deferred_until }: DeferMeetingParams,
    ) -> Result<Reply<Done>, OperationError> {
        hall.meetings.defer(&meeting_id, project_name.as_deref(), &deferred_until).await?;
        Ok(Done::default().into())
    }
}

impl Handle for ListMeetings {
    async fn handle(hall: Arc<Hall>, filter: MeetingFilter) -> Result<Reply<MeetingsAnswer>, OperationError> {
        let MeetingFilter { project_name: project, view, status, offset, limit } = filter;
        check_limit(limit)?;
        let all = matches!(view, Some(Named::Known(MeetingListView::All)));
        if !all && project.is_none() {
            return Err(OperationError::Invalid("Missing required query parameter: projectName".to_owned()));
        }
        let states = match view {
            Some(Named::Known(MeetingListView::Artifacts)) => {
                let project = project.unwrap_or_default();
                let meetings = hall.meetings.artifacts(&project).await?;
                return Ok(MeetingsAnswer::Records(MeetingRecords { meetings }).into());
            }
            Some(Named::Known(MeetingListView::All)) => match status {
                Some(Named::Unknown(_)) => return Ok(MeetingsAnswer::Meetings(MeetingList::default()).into()),
                Some(Named::Known(status)) => vec![status],
                None => Vec::new(),
            },
            Some(Named::Known(MeetingListView::Open)) => vec![MeetingStatus::Open],
            Some(Named::Known(MeetingListView::Requests) | Named::Unknown(_)) | None => vec![MeetingStatus::Requested],
        };
        let page = hall.meetings.list_from(project.as_deref(), &states, offset, limit).await?;
        Ok(MeetingsAnswer::Meetings(MeetingList { meetings: page.items, more: page.more }).into())
    }
}

impl Handle for ReadMeeting {
    async fn handle(
        hall: Arc<Hall>,
        MeetingParams { meeting_id, project_name }: MeetingParams,
    ) -> Result<Reply<MeetingDetail>, OperationError> {
        Ok(hall.meetings.read(&meeting_id, project_name.as_deref()).await?.into())
    }
}

impl Handle for SendMessage {
    async fn handle(
        hall: Arc<Hall>,
        MessageParams { meeting_id, message }: MessageParams,
    ) -> Result<Reply<TurnEvent>, OperationError> {
        Ok(Reply::Turn(hall.meetings.say(&meeting_id, &message).await.map(Box::new)))
    }
}

impl Handle for JoinTurn {
    async fn handle(
        hall: Arc<Hall>,
        JoinTurnParams { meeting_id, after }: JoinTurnParams,
    ) -> Result<Reply<TurnEvent>, OperationError> {
        Ok(Reply::Turn(Ok(Box::new(hall.meetings.join(&meeting_id, after.unwrap_or_default())?))))
    }
}

impl Handle for InterruptTurn {
    async fn handle(
        hall: Arc<Hall>,
        MeetingIdParams { meeting_id }: MeetingIdParams,
    ) -> Result<Reply<Done>, OperationError> {
        hall.meetings.interrupt(&meeting_id)?;
        Ok(Done::default().into())
    }
}

impl Handle for CloseMeeting {
    async fn handle(
        hall: Arc<Hall>,
        MeetingIdParams { meeting_id }: MeetingIdParams,
    ) -> Result<Reply<MeetingClosed>, OperationError> {
        let notes = hall.meetings.close(&meeting_id).await?;
        let notes = if notes.is_empty() { NO_NOTES.to_owned() } else { notes };
        Ok(MeetingClosed { status: Yes::Ok, notes }.into())
    }
}

impl Handle for ListOpenMeetings {
    async fn handle(hall: Arc<Hall>, _: NoParams) -> Result<Reply<OpenMeetings>, OperationError> {
        Ok(OpenMeetings { sessions: hall.meetings.sessions() }.into())
    }
}
