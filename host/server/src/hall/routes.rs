//! The routes. Where clients of the original spell a field in two ways, both are accepted.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Instant};

use axum::{
    body::Body,
    http::{HeaderValue, Method, StatusCode, header::CONTENT_TYPE},
    response::Response,
};
use guild_auth::{Access, Operation};
use guild_config::shell_word;
use guild_hall::{
    Hall, HallError,
    commission::Overrides,
    hall::{Changes, Dispatched, Filter, NewCommission},
};
use serde_json::{Map, Value, json};

use super::events;

/// A request, as far as the routes need it.
pub(super) struct Asked<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) body: &'a [u8],
    /// Since when the host answers.
    pub(super) since: Instant,
}

/// What is asked by POST.
const POSTED: [&str; 11] = [
    "/commission/request/commission/create",
    "/commission/request/commission/update",
    "/commission/request/commission/note",
    "/commission/run/dispatch",
    "/commission/run/redispatch",
    "/commission/run/cancel",
    "/commission/run/abandon",
    "/commission/dependency/project/check",
    "/system/config/project/register",
    "/system/config/project/deregister",
    "/system/config/project/group",
];

/// What happens in the hall, as a stream.
pub(super) const EVENTS: &str = "/system/events/stream/subscribe";

/// What a request does, for the gate, and its name for the audit log, into which no text of a caller's gets.
pub(super) fn operation(method: &Method, path: &str) -> Operation<'static> {
    let access = match path {
        EVENTS => Access::Reads,
        "/commission/run/cancel" | "/commission/run/abandon" => Access::Ends,
        "/commission/dependency/project/check" => Access::Dispatches,
        _ if *method == Method::GET => Access::Reads,
        _ => Access::Dispatches,
    };
    Operation { name: POSTED.into_iter().find(|known| *known == path).unwrap_or("/hall"), access }
}

pub(crate) type Answer = Result<(StatusCode, Value), HallError>;

/// Answers a request.
pub(super) async fn answer(hall: &Arc<Hall>, asked: Asked<'_>) -> Response {
    // The original's command line asks by POST.
    if asked.path == EVENTS && [Method::GET, Method::POST].contains(asked.method) {
        return events::listen(hall);
    }
    match route(hall, &asked).await {
        Ok((status, value)) => with(status, &value),
        Err(refused) => {
            let status = match &refused {
                HallError::Invalid(_) => StatusCode::BAD_REQUEST,
                HallError::NotFound(_) => StatusCode::NOT_FOUND,
                HallError::Conflict(_) => StatusCode::CONFLICT,
                HallError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            error(status, &refused.to_string())
        }
    }
}

/// An answer that says why there is no other.
pub(super) fn error(status: StatusCode, why: &str) -> Response {
    with(status, &json!({"error": why}))
}

fn with(status: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn route(hall: &Arc<Hall>, asked: &Asked<'_>) -> Answer {
    let is_post = *asked.method == Method::POST;
    // Before the body is looked at: what is not here is not found, whatever it says.
    let is_known = if is_post { POSTED.contains(&asked.path) } else { *asked.method == Method::GET };
    if !is_known {
        return Err(HallError::NotFound(format!("{} {} not found", asked.method, asked.path)));
    }
    let ok = |value: Value| Ok((StatusCode::OK, value));
    let done = || ok(json!({"status": "ok"}));
    let fields = if is_post { Fields::of_body(asked.body)? } else { Fields::of_query(asked.query) };
    let id = || fields.text(&["commissionId"]);
    match (asked.path, is_post) {
        ("/commission/request/commission/create", true) => {
            let missing =
                |_| HallError::Invalid("Missing required fields: projectName, title, workerName, prompt".to_owned());
            let new = NewCommission {
                project: fields.text(&["projectName"]).map_err(missing)?,
                title: fields.text(&["title"]).map_err(missing)?,
                worker: fields.text(&["workerName", "worker"]).map_err(missing)?,
                prompt: fields.text(&["prompt"]).map_err(missing)?,
                dependencies: fields.list("dependencies")?.unwrap_or_default(),
                overrides: fields.overrides()?.unwrap_or_default(),
                ..NewCommission::default()
            };
            let id = hall.create(new).await?;
            Ok((StatusCode::CREATED, json!({"commissionId": id})))
        }
        ("/commission/request/commission/update", true) => {
            let changes = Changes {
                prompt: fields.maybe(&["prompt"]),
                dependencies: fields.list("dependencies")?,
                overrides: fields.overrides()?,
            };
            hall.update(&id()?, changes).await?;
            done()
        }
        ("/commission/request/commission/note", true) => {
            hall.note(&id()?, &fields.text(&["content"])?).await?;
            done()
        }
        ("/commission/run/dispatch", true) => dispatched(&id()?, hall.dispatch(&id()?).await?),
        ("/commission/run/redispatch", true) => dispatched(&id()?, hall.redispatch(&id()?).await?),
        ("/commission/run/cancel", true) => {
            hall.cancel(&id()?, fields.maybe(&["reason"]).as_deref()).await?;
            done()
        }
        ("/commission/run/abandon", true) => {
            hall.abandon(&id()?, &fields.text(&["reason"])?).await?;
            done()
        }
        ("/commission/request/commission/list", false) => {
            let status = fields.maybe(&["status", "state"]).filter(|status| !status.is_empty());
            // The original compares texts: no commission is in a state that there is not.
            let Ok(known) = status.as_deref().map(str::parse).transpose() else {
                return ok(json!({"commissions": []}));
            };
            let filter =
                Filter { project: fields.maybe(&["projectName"]), status: known, worker: fields.maybe(&["worker"]) };
            ok(json!({"commissions": hall.list(&filter).await?}))
        }
        ("/commission/request/commission/read", false) => {
            let project = fields.maybe(&["projectName"]);
            let read = hall.read(&fields.query(&["commissionId"])?, project.as_deref()).await?;
            ok(json!(read))
        }
        ("/commission/dependency/project/check", _) => {
            hall.check_dependencies(Some(&fields.text(&["projectName"])?)).await?;
            done()
        }
        ("/commission/dependency/project/graph", false) => ok(json!(hall.graph(&fields.query(&["projectName"])?)?)),
        ("/system/packages/worker/list", false) => {
            let workers: Vec<Value> = hall.all_workers().iter().map(worker).collect();
            ok(json!({"workers": workers}))
        }
        ("/system/config/project/list", false) => ok(json!({"projects": hall.projects()?})),
        ("/system/config/project/read", false) => {
            ok(json!(hall.project_settings(&fields.query(&["name", "projectName"])?)?))
        }
        ("/system/config/application/read", false) => {
            let projects = hall.projects()?;
            let settings = projects.iter().map(|project| hall.project_settings(&project.name));
            ok(json!({"projects": settings.collect::<Result<Vec<_>, _>>()?}))
        }
        ("/system/config/project/register", true) => {
            let (name, path) = (fields.text(&["name", "projectName"])?, fields.text(&["path"])?);
            let (name, path) = (shell_word(Path::new(&name)), shell_word(Path::new(&path)));
            Err(HallError::Conflict(format!(
                "a project is registered by its operator alone: run `guild project add {path} --name {name}`"
            )))
        }
        ("/system/config/project/deregister", true) => {
            let name = fields.text(&["name", "projectName"])?;
            hall.project_settings(&name)?;
            let name = shell_word(Path::new(&name));
            Err(HallError::Conflict(format!(
                "a project is taken away by its operator alone: run `guild project remove {name}`"
            )))
        }
        ("/system/config/project/group", true) => Err(HallError::Conflict(
            "a project's group is its operator's to change: edit `group` in config.yaml of the hall's home".to_owned(),
        )),
        ("/system/runtime/daemon/health", false) => ok(json!({
            "status": "ok", "meetings": 0, "commissions": {"running": hall.running()}, "uptime": asked.since.elapsed().as_secs()
        })),
        ("/system/models/catalog/list", false) => {
            ok(json!({"builtin": [{"name": "opus"}, {"name": "sonnet"}, {"name": "haiku"}], "local": []}))
        }
        (path, _) => Err(HallError::NotFound(format!("{} {path} not found", asked.method))),
    }
}

pub(crate) fn dispatched(id: &str, dispatched: Dispatched) -> Answer {
    let status = match dispatched {
        Dispatched::Accepted => json!({"status": "accepted", "commissionId": id}),
        Dispatched::Queued { reason } => json!({"status": "queued", "commissionId": id, "reason": reason}),
    };
    Ok((StatusCode::ACCEPTED, status))
}

pub(crate) fn worker(worker: &guild_hall::Worker) -> Value {
    let model = worker.model.as_ref().map(|name| json!({"name": name, "isLocal": false}));
    json!({
        "name": worker.package, "displayName": worker.display_name, "displayTitle": worker.display_title,
        "description": worker.description, "portraitUrl": worker.portrait, "model": model,
    })
}

/// What a request says: the fields of its body, or of its query.
struct Fields {
    fields: Map<String, Value>,
    is_query: bool,
}

impl Fields {
    fn of_body(body: &[u8]) -> Result<Self, HallError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self { fields, is_query: false }),
            _ => Err(HallError::Invalid("Invalid JSON body".to_owned())),
        }
    }

    fn of_query(query: &str) -> Self {
        let pairs: BTreeMap<String, String> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        Self { fields: pairs.into_iter().map(|(key, value)| (key, Value::from(value))).collect(), is_query: true }
    }

    /// The first of these fields that is there.
    fn maybe(&self, names: &[&str]) -> Option<String> {
        let found = names.iter().find_map(|name| self.fields.get(*name)?.as_str());
        found.filter(|text| !text.is_empty()).map(str::to_owned)
    }

    fn text(&self, names: &[&str]) -> Result<String, HallError> {
        let name = names.first().copied().unwrap_or_default();
        let of = if self.is_query { "query parameter" } else { "field" };
        self.maybe(names).ok_or_else(|| HallError::Invalid(format!("Missing required {of}: {name}")))
    }

    fn query(&self, names: &[&str]) -> Result<String, HallError> {
        self.text(names)
    }

    fn list(&self, name: &str) -> Result<Option<Vec<String>>, HallError> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            // The original's command line can send a single one only.
            Some(Value::String(one)) => Ok(Some(vec![one.clone()])),
            Some(list) => serde_json::from_value(list.clone())
                .map(Some)
                .map_err(|_| HallError::Invalid(format!("{name} must be a list of texts"))),
        }
    }

    fn overrides(&self) -> Result<Option<Overrides>, HallError> {
        let Some(found) = self.fields.get("resourceOverrides").filter(|found| !found.is_null()) else {
            return Ok(None);
        };
        serde_json::from_value(found.clone())
            .map(Some)
            .map_err(|e| HallError::Invalid(format!("resourceOverrides: {e}")))
    }
}
