//! The hall's configuration, its workers, and how it is.

use std::path::Path;

use guild_config::shell_word;
use guild_hall::HallError;
use serde_json::{Value, json};

use super::request::{Answer, Fields, Request, ok};

pub(super) async fn read(Request { hall, .. }: Request) -> Answer {
    let settings = hall.settings()?;
    ok(json!({"projects": settings.projects(), "maxConcurrentCommissions": settings.commissions()}))
}

pub(super) async fn reload(Request { hall, .. }: Request) -> Answer {
    ok(hall.reload().await?)
}

pub(super) async fn validate(Request { hall, .. }: Request) -> Answer {
    ok(hall.validate().await?)
}

pub(super) async fn projects(Request { hall, .. }: Request) -> Answer {
    ok(json!({"projects": hall.projects()?}))
}

pub(super) async fn project(Request { hall, fields, .. }: Request) -> Answer {
    let name = name(&fields)?;
    let mut settings = hall.project_settings(&name)?;
    settings.description = hall.vision(&name).await.or(settings.description);
    ok(settings)
}

pub(super) async fn register(Request { fields, .. }: Request) -> Answer {
    let (name, path) = (name(&fields)?, fields.text(&["path"])?);
    let (name, path) = (shell_word(Path::new(&name)), shell_word(Path::new(&path)));
    Err(HallError::Conflict(format!(
        "a project is registered by its operator alone: run `guild project add {path} --name {name}`"
    )))
}

pub(super) async fn deregister(Request { hall, fields, .. }: Request) -> Answer {
    let name = name(&fields)?;
    hall.project_settings(&name)?;
    let name = shell_word(Path::new(&name));
    Err(HallError::Conflict(format!(
        "a project is taken away by its operator alone: run `guild project remove {name}`"
    )))
}

pub(super) async fn group(_: Request) -> Answer {
    Err(HallError::Conflict(
        "a project's group is its operator's to change: edit `group` in config.yaml of the hall's home".to_owned(),
    ))
}

pub(super) async fn workers(Request { hall, .. }: Request) -> Answer {
    let workers: Vec<Value> = hall.all_workers().iter().map(worker).collect();
    ok(json!({"workers": workers}))
}

pub(super) async fn health(Request { hall, since, .. }: Request) -> Answer {
    let commissions = json!({"running": hall.running()});
    ok(
        json!({"status": "ok", "meetings": hall.sessions().len(), "commissions": commissions, "uptime": since.elapsed().as_secs()}),
    )
}

/// The models that this host can run. The original tells those at addresses of the user's (`local`) apart; here the one
/// provider of `[api]` has them all.
pub(super) async fn models(Request { hall, .. }: Request) -> Answer {
    ok(json!({"builtin": hall.models().await?, "local": []}))
}

/// A worker, as callers see it.
pub(crate) fn worker(worker: &guild_hall::Worker) -> Value {
    let model = worker.model.as_ref().map(|name| json!({"name": name, "isLocal": false}));
    json!({
        "name": worker.package, "displayName": worker.display_name, "displayTitle": worker.display_title,
        "description": worker.description, "portraitUrl": worker.portrait, "model": model, "agent": worker.agent,
    })
}

fn name(fields: &Fields) -> Result<String, HallError> {
    fields.text(&["name", "projectName"])
}

/// Standing orders, which the dashboard of the original counts. A hall of ours carries none out, whatever a project's
/// `heartbeat.md` says, so it has none.
pub(super) async fn heartbeat(Request { hall, fields, .. }: Request) -> Answer {
    hall.project_settings(&fields.project()?)?;
    ok(json!({
        "hasContent": false, "standingOrderCount": 0, "lastTick": null, "commissionsCreatedLastTick": 0, "intervalMinutes": null,
    }))
}
