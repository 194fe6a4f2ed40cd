//! The documents of projects, and their branch `claude/main`.

use axum::http::StatusCode;
use guild_hall::HallError;
use serde_json::json;

use super::request::{Answer, Reply, Request, ok};

/// Artifacts in a list of recent ones, where a request does not say.
const RECENT: usize = 10;

pub(super) async fn list(Request { hall, fields, .. }: Request) -> Answer {
    let project = fields.project()?;
    if fields.given(&["recent"]) != Some("true") {
        return ok(hall.artifacts(&project).await?);
    }
    let most = fields.maybe(&["limit"]).map_or(Ok(RECENT), |limit| limit.parse());
    let most = most.ok().filter(|most| *most > 0);
    let most = most.ok_or_else(|| HallError::Invalid("Invalid limit parameter".to_owned()))?;
    ok(hall.recent_artifacts(&project, most).await?)
}

pub(super) async fn read(Request { hall, fields, .. }: Request) -> Answer {
    ok(hall.artifact(&fields.project()?, &fields.text(&["path", "artifactPath"])?).await?)
}

pub(super) async fn write(Request { hall, fields, .. }: Request) -> Answer {
    let project = fields.project()?;
    let path = fields.maybe(&["artifactPath", "path"]);
    // An empty one is a document, too.
    let (Some(path), Some(content)) = (path, fields.given(&["content", "body"])) else {
        return Err(HallError::Invalid("Missing required fields: artifactPath, content".to_owned()));
    };
    hall.write_artifact(&project, &path, content.to_owned()).await?;
    ok(json!({"success": true}))
}

pub(super) async fn status(Request { hall, fields, .. }: Request) -> Answer {
    let count = hall.loose_artifacts(&fields.project()?).await?;
    ok(json!({"hasPendingChanges": count > 0, "fileCount": count}))
}

pub(super) async fn commit(Request { hall, fields, .. }: Request) -> Answer {
    let project = fields.project()?;
    let message = fields.given(&["message"]).map(str::trim).filter(|message| !message.is_empty());
    let message = message.ok_or_else(|| HallError::Invalid("Commit message is required".to_owned()))?;
    match hall.commit_artifacts(&project, message).await? {
        true => ok(json!({"committed": true, "message": message})),
        false => ok(json!({"committed": false, "message": "Nothing to commit"})),
    }
}

pub(super) async fn sync(Request { hall, fields, .. }: Request) -> Answer {
    ok(json!({"results": hall.sync(fields.maybe(&["projectName"]).as_deref()).await?}))
}

pub(super) async fn propose(Request { hall, fields, .. }: Request) -> Answer {
    let (project, title) = (fields.project()?, fields.text(&["title"])?);
    let body = fields.maybe(&["body"]).unwrap_or_default();
    let made = hall.create_pull_request(&project, &title, &body, None).await?;
    Ok(Reply::Json(StatusCode::CREATED, json!(made)))
}
