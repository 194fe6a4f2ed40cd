//! Commissions.

use axum::http::StatusCode;
use guild_hall::{
    HallError,
    hall::{Changes, Dispatched, Filter, NewCommission},
    view::Made,
};
use serde_json::{Value, json};

use super::request::{Answer, Reply, Request, done, offset, ok, page};

pub(super) async fn create(Request { hall, fields, .. }: Request) -> Answer {
    let missing = |_| HallError::Invalid("Missing required fields: projectName, title, workerName, prompt".to_owned());
    let new = NewCommission {
        project: fields.project().map_err(missing)?,
        title: fields.text(&["title"]).map_err(missing)?,
        worker: fields.text(&["workerName", "worker"]).map_err(missing)?,
        prompt: fields.text(&["prompt"]).map_err(missing)?,
        dependencies: fields.list("dependencies")?.unwrap_or_default(),
        overrides: fields.overrides()?.unwrap_or_default(),
        ..NewCommission::default()
    };
    Ok(Reply::Json(StatusCode::CREATED, json!(hall.create(new).await?)))
}

pub(super) async fn update(Request { hall, fields, .. }: Request) -> Answer {
    let changes = Changes {
        prompt: fields.maybe(&["prompt"]),
        dependencies: fields.list("dependencies")?,
        overrides: fields.overrides()?,
    };
    ok(updated(&hall.update(&fields.commission()?, changes).await?))
}

pub(super) async fn note(Request { hall, fields, .. }: Request) -> Answer {
    hall.note(&fields.commission()?, &fields.text(&["content"])?).await?;
    done()
}

pub(super) async fn dispatch(Request { hall, fields, .. }: Request) -> Answer {
    let id = fields.commission()?;
    accepted(dispatched(&id, hall.dispatch(&id).await?))
}

pub(super) async fn redispatch(Request { hall, fields, .. }: Request) -> Answer {
    let id = fields.commission()?;
    accepted(dispatched(&id, hall.redispatch(&id).await?))
}

pub(super) async fn cancel(Request { hall, fields, .. }: Request) -> Answer {
    hall.cancel(&fields.commission()?, fields.maybe(&["reason"]).as_deref()).await?;
    done()
}

pub(super) async fn abandon(Request { hall, fields, .. }: Request) -> Answer {
    hall.abandon(&fields.commission()?, &fields.text(&["reason"])?).await?;
    done()
}

pub(super) async fn list(Request { hall, fields, .. }: Request) -> Answer {
    // The original compares texts: no commission is in a state that there is not.
    let Ok(status) = fields.maybe(&["status", "state"]).as_deref().map(str::parse).transpose() else {
        return ok(json!({"commissions": []}));
    };
    let (project, worker) = (fields.maybe(&["projectName"]), fields.maybe(&["worker"]));
    let filter = Filter { project, status, worker, offset: offset(&fields)? };
    page("commissions", hall.list(&filter).await?)
}

pub(super) async fn read(Request { hall, fields, .. }: Request) -> Answer {
    let project = fields.maybe(&["projectName"]);
    ok(hall.read(&fields.commission()?, project.as_deref()).await?)
}

pub(super) async fn check(Request { hall, fields, .. }: Request) -> Answer {
    hall.check_dependencies(Some(&fields.project()?)).await?;
    done()
}

pub(super) async fn graph(Request { hall, fields, .. }: Request) -> Answer {
    ok(hall.graph(&fields.project()?)?)
}

fn accepted(dispatched: Value) -> Answer {
    Ok(Reply::Json(StatusCode::ACCEPTED, dispatched))
}

/// What an update is answered with: that it is done, what the commission waits for, and what was cut.
pub(crate) fn updated(made: &Made) -> Value {
    let mut answer = json!(made);
    if let Some(answer) = answer.as_object_mut() {
        answer.remove("commissionId");
        answer.insert("status".to_owned(), "ok".into());
    }
    answer
}

/// What a dispatch is answered with.
pub(crate) fn dispatched(id: &str, dispatched: Dispatched) -> Value {
    match dispatched {
        Dispatched::Accepted => json!({"status": "accepted", "commissionId": id}),
        Dispatched::Queued { reason } => json!({"status": "queued", "commissionId": id, "reason": reason}),
    }
}
