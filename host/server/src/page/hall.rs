//! Serves the pages of the hall, and carries out their forms.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, RawQuery, Request},
    http::StatusCode,
    response::Response,
    routing::get,
};
use guild_contract::hall::{
    AbandonCommission, AbandonParams, AcceptMeeting, AcceptMeetingParams, CancelCommission, CancelParams, CloseMeeting,
    CommissionChanges, CommissionParams, CreateCommission, DeclineMeeting, DeferMeeting, DeferMeetingParams,
    DispatchCommission, InterruptTurn, MeetingIdParams, MeetingParams, MessageParams, NewCommission, NewMeeting,
    NoteCommission, NoteParams, OpenMeeting, Overrides, RedispatchCommission, SendMessage, TurnEvent, UpdateCommission,
};
use guild_hall::meetings::Turn;
use guild_page::{
    HALL,
    hall::{self, commission_path, meeting_path},
};
use guild_roster::host::Host;
use tokio::time::timeout;

use super::{
    form::Form,
    hall_views,
    live::{self, View},
    request::{PageRequest, Why},
    see, turn_stream,
};

/// The time for which a form waits for the first event of a turn, which can be an error. The turn goes on.
const FIRST: Duration = Duration::from_secs(5);

/// The routes.
pub(super) fn routes() -> Router<Arc<Host>> {
    Router::new()
        .route(HALL, get(first))
        .route("/page/hall/projects/{project}", get(project).post(create))
        .route("/page/hall/projects/{project}/commissions/{commission}", get(commission).post(act))
        .route("/page/hall/projects/{project}/meetings/{meeting}", get(meeting).post(speak))
}

async fn first(page: PageRequest) -> Response {
    let projects = hall_views::projects(&page).await;
    page.answer(projects.map(|projects| page.show(hall::hall(&page.viewer(), projects.as_ref()))))
}

async fn project(page: PageRequest, Path(project): Path<String>, RawQuery(query): RawQuery) -> Response {
    let query = Form::of(query.unwrap_or_default().as_bytes());
    if query.has("live") {
        return live::live(page, View::Project(project));
    }
    let answer = async {
        let viewer = page.viewer();
        if let Some(path) = query.get("document") {
            let document = hall_views::document(&page, &project, path).await?;
            return Ok(page.show(hall::document::document(&viewer, &project, &document)));
        }
        if let Some(state) = query.get("state") {
            let state = state.parse().map_err(|text| Why { status: StatusCode::BAD_REQUEST, text })?;
            let offset = query.get("offset").and_then(|offset| offset.parse().ok()).unwrap_or_default();
            let column = hall_views::column(&page, &project, state, offset).await?;
            return Ok(page.show(hall::project::one_column(&viewer, &project, &column)));
        }
        Ok(page.show(hall::project::project(&viewer, &hall_views::project(&page, &project).await?)))
    };
    page.answer(answer.await)
}

/// Creates a commission, or opens a meeting.
async fn create(page: PageRequest, Path(project): Path<String>, request: Request) -> Response {
    let answer = async {
        let form = Form::sent(&page, request).await?;
        match form.get("do") {
            Some("commission") => {
                let new = NewCommission {
                    project_name: project.clone(),
                    title: form.text("title"),
                    worker_name: form.text("worker"),
                    prompt: form.text("prompt"),
                    dependencies: form.lines("dependencies"),
                    resource_overrides: Overrides::default(),
                };
                let created = page.call::<CreateCommission>(&page.hall()?, &new).await?;
                Ok(see(&commission_path(&project, created.commission_id.as_str())))
            }
            Some("meeting") => {
                let new = NewMeeting {
                    project_name: project.clone(),
                    worker_name: form.text("worker"),
                    prompt: form.text("agenda"),
                    resource_overrides: Overrides::default(),
                };
                let id = begun(page.turn::<OpenMeeting>(&new).await?).await?;
                Ok(see(&at_answer(&project, &id)))
            }
            _ => Err(no_operation()),
        }
    };
    page.answer(answer.await)
}

async fn commission(
    page: PageRequest,
    Path((project, commission)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    if Form::of(query.unwrap_or_default().as_bytes()).has("live") {
        return live::live(page, View::Commission { project, commission });
    }
    let shown = hall_views::commission(&page, &project, &commission, false).await;
    page.answer(shown.map(|shown| page.show(hall::commission::commission(&page.viewer(), &shown))))
}

/// Calls an operation on a commission.
async fn act(page: PageRequest, Path((project, commission)): Path<(String, String)>, request: Request) -> Response {
    let answer = async {
        let form = Form::sent(&page, request).await?;
        let (hall, commission_id) = (page.hall()?, commission.clone());
        let text = form.text("text");
        match form.get("do") {
            Some("dispatch") => {
                page.call::<DispatchCommission>(&hall, &CommissionParams { commission_id }).await.map(drop)
            }
            Some("redispatch") => {
                page.call::<RedispatchCommission>(&hall, &CommissionParams { commission_id }).await.map(drop)
            }
            Some("cancel") => {
                page.call::<CancelCommission>(&hall, &CancelParams { commission_id, reason: None }).await.map(drop)
            }
            Some("abandon") => {
                page.call::<AbandonCommission>(&hall, &AbandonParams { commission_id, reason: text }).await.map(drop)
            }
            Some("note") => {
                page.call::<NoteCommission>(&hall, &NoteParams { commission_id, content: text }).await.map(drop)
            }
            Some("update") => {
                let changes = CommissionChanges {
                    commission_id,
                    prompt: Some(form.text("prompt")),
                    dependencies: Some(form.lines("dependencies")),
                    resource_overrides: None,
                };
                page.call::<UpdateCommission>(&hall, &changes).await.map(drop)
            }
            _ => Err(no_operation()),
        }?;
        Ok(see(&commission_path(&project, &commission)))
    };
    page.answer(answer.await)
}

async fn meeting(
    page: PageRequest,
    Path((project, meeting)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let query = Form::of(query.unwrap_or_default().as_bytes());
    let meeting = MeetingParams { meeting_id: meeting, project_name: Some(project) };
    if query.has("live") {
        let after = query.get("after").and_then(|after| after.parse().ok()).unwrap_or_default();
        return page.answer(turn_stream::answer(page.clone(), meeting, after).await);
    }
    let shown = hall_views::meeting(&page, &meeting).await;
    page.answer(shown.map(|shown| page.show(hall::meeting::meeting(&page.viewer(), &shown))))
}

/// Calls an operation on a meeting.
async fn speak(page: PageRequest, Path((project, meeting)): Path<(String, String)>, request: Request) -> Response {
    let answer = async {
        let form = Form::sent(&page, request).await?;
        let (hall, meeting_id, project_name) = (page.hall()?, meeting.clone(), Some(project.clone()));
        match form.get("do") {
            Some("send") => {
                let message = MessageParams { meeting_id, message: form.text("message") };
                begun(page.turn::<SendMessage>(&message).await?).await.map(drop)
            }
            Some("accept") => {
                let message = Some(form.text("message")).filter(|message| !message.trim().is_empty());
                let resource_overrides = Overrides::default();
                let params = AcceptMeetingParams { meeting_id, project_name, message, resource_overrides };
                begun(page.turn::<AcceptMeeting>(&params).await?).await.map(drop)
            }
            Some("decline") => {
                page.call::<DeclineMeeting>(&hall, &MeetingParams { meeting_id, project_name }).await.map(drop)
            }
            Some("defer") => {
                let params = DeferMeetingParams { meeting_id, project_name, deferred_until: form.text("until") };
                page.call::<DeferMeeting>(&hall, &params).await.map(drop)
            }
            Some("interrupt") => page.call::<InterruptTurn>(&hall, &MeetingIdParams { meeting_id }).await.map(drop),
            Some("close") => page.call::<CloseMeeting>(&hall, &MeetingIdParams { meeting_id }).await.map(drop),
            _ => Err(no_operation()),
        }?;
        Ok(see(&at_answer(&project, &meeting)))
    };
    page.answer(answer.await)
}

/// The place of the answer on a meeting's page.
fn at_answer(project: &str, meeting: &str) -> String {
    format!("{}#answer", meeting_path(project, meeting))
}

/// Waits for the first event of a turn, and returns the id of its meeting. A turn that does not begin is a refusal.
async fn begun(mut turn: Turn) -> Result<String, Why> {
    match timeout(FIRST, turn.next()).await {
        Ok(Some((_, TurnEvent::Error { reason }))) => Err(Why { status: StatusCode::CONFLICT, text: reason }),
        _ => Ok(turn.meeting()),
    }
}

fn no_operation() -> Why {
    Why { status: StatusCode::BAD_REQUEST, text: "the form names no operation".to_owned() }
}
