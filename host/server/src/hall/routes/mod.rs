//! The routes.

mod briefing;
mod commissions;
mod files;
mod meetings;
mod request;
mod system;
mod workspace;

use std::{sync::Arc, time::Instant};

use axum::{
    body::Body,
    http::{HeaderValue, Method, StatusCode, header::CONTENT_TYPE},
    response::Response,
};
use futures::{FutureExt as _, future::BoxFuture};
use guild_auth::{Access, Operation};
use guild_hall::{Hall, HallError, meeting::TurnEvent};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::events;
pub(crate) use commissions::{dispatched, updated};
use request::{Answer, Fields, Reply, Request};
pub(crate) use system::worker;

/// A request, as far as the routes need it.
pub(super) struct Asked<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) body: &'a [u8],
    /// Since when the host answers.
    pub(super) since: Instant,
}

/// What happens in the hall, as a stream. The original's command line asks by POST.
pub(super) const EVENTS: &str = "/system/events/stream/subscribe";

/// A route: by which methods it is asked, what a caller needs to be allowed, and what answers. A part `{NAME}` of its path is
/// whatever stands there, as a field of that name.
struct Route {
    methods: &'static [Method],
    path: &'static str,
    access: Access,
    answer: fn(Request) -> BoxFuture<'static, Answer>,
}

const GET: &[Method] = &[Method::GET];
const POST: &[Method] = &[Method::POST];
const BOTH: &[Method] = &[Method::GET, Method::POST];

/// The rows of the table.
macro_rules! routes {
    ($($methods:ident $path:literal $access:ident $module:ident::$answer:ident;)*) => {
        &[$(Route {
            methods: $methods,
            path: $path,
            access: Access::$access,
            answer: |request| $module::$answer(request).boxed(),
        }),*]
    };
}

/// All routes but [`EVENTS`].
static ROUTES: &[Route] = routes! {
    POST "/commission/request/commission/create" Dispatches commissions::create;
    POST "/commission/request/commission/update" Dispatches commissions::update;
    POST "/commission/request/commission/note" Dispatches commissions::note;
    GET "/commission/request/commission/list" Reads commissions::list;
    GET "/commission/request/commission/read" Reads commissions::read;
    POST "/commission/run/dispatch" Dispatches commissions::dispatch;
    POST "/commission/run/redispatch" Dispatches commissions::redispatch;
    POST "/commission/run/cancel" Ends commissions::cancel;
    POST "/commission/run/abandon" Ends commissions::abandon;
    // The original's command line asks by GET, and it changes what is blocked all the same.
    BOTH "/commission/dependency/project/check" Dispatches commissions::check;
    GET "/commission/dependency/project/graph" Reads commissions::graph;
    POST "/meeting/request/meeting/create" Dispatches meetings::create;
    POST "/meeting/request/meeting/accept" Dispatches meetings::accept;
    POST "/meeting/request/meeting/decline" Dispatches meetings::decline;
    POST "/meeting/request/meeting/defer" Dispatches meetings::defer;
    GET "/meeting/request/meeting/list" Reads meetings::list;
    GET "/meeting/request/meeting/read" Reads meetings::read;
    POST "/meeting/session/message/send" Dispatches meetings::send;
    // The original has no such route: its clients lose a turn that they do not listen to.
    GET "/meeting/session/generation/subscribe" Reads meetings::subscribe;
    POST "/meeting/session/generation/interrupt" Ends meetings::interrupt;
    POST "/meeting/session/meeting/close" Ends meetings::close;
    GET "/meeting/session/meeting/list" Reads meetings::sessions;
    GET "/workspace/artifact/document/list" Reads workspace::list;
    GET "/workspace/artifact/document/read" Reads workspace::read;
    POST "/workspace/artifact/document/write" Dispatches workspace::write;
    GET "/workspace/artifact/image/read" Reads files::image;
    GET "/workspace/artifact/image/meta" Reads files::image_meta;
    GET "/workspace/artifact/mockup/read" Reads files::mockup;
    GET "/workspace/git/lore/status" Reads workspace::status;
    POST "/workspace/git/lore/commit" Dispatches workspace::commit;
    GET "/coordination/review/briefing/read" Reads briefing::read;
    POST "/workspace/git/integration/sync" Dispatches workspace::sync;
    // The original makes them by its manager alone.
    POST "/workspace/git/pr/create" Dispatches workspace::propose;
    GET "/system/packages/worker/list" Reads system::workers;
    GET "/system/config/application/read" Reads system::read;
    POST "/system/config/application/reload" Dispatches system::reload;
    GET "/system/config/application/validate" Reads system::validate;
    GET "/system/config/project/list" Reads system::projects;
    GET "/system/config/project/read" Reads system::project;
    POST "/system/config/project/register" Dispatches system::register;
    POST "/system/config/project/deregister" Dispatches system::deregister;
    POST "/system/config/project/group" Dispatches system::group;
    GET "/system/runtime/daemon/health" Reads system::health;
    GET "/system/models/catalog/list" Reads system::models;
    GET "/heartbeat/{projectName}/status" Reads system::heartbeat;
};

/// Whether a request is answered with a stream of events, which lasts.
pub(super) fn is_stream(path: &str) -> bool {
    path == EVENTS || meetings::STREAMS.contains(&path)
}

/// How many bytes an answer takes at most while it is made: what is told, the same as values, and its text.
pub(super) fn held(path: &str) -> u64 {
    const MIB: u64 = 1024 * 1024;
    let is =
        |what: &str| ["commission", "meeting", "document"].iter().any(|of| path.ends_with(&format!("/{of}/{what}")));
    if is("list") {
        16 * MIB
    } else if is("read") {
        48 * MIB
    } else {
        0
    }
}

/// Whether a response is a stream of events, and no error in place of it.
pub(super) fn is_of_events(response: &Response) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|of| of == "text/event-stream")
}

/// The route, and the fields that the path has.
fn find<'a>(method: &Method, path: &'a str) -> Option<(&'static Route, Named<'a>)> {
    let mut by_method = ROUTES.iter().filter(|route| route.methods.contains(method));
    by_method.find_map(|route| Some((route, named(route.path, path)?)))
}

/// Fields that a path has, by their names, as the path spells them.
type Named<'a> = Vec<(&'static str, &'a str)>;

/// The fields that a path of a route has; `None` where it is another route's.
fn named<'a>(route: &'static str, path: &'a str) -> Option<Named<'a>> {
    let mut named = Vec::new();
    let mut parts = path.split('/');
    for part in route.split('/') {
        let own = parts.next()?;
        match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            Some(name) => named.push((name, own)),
            None if part == own => {}
            None => return None,
        }
    }
    parts.next().is_none().then_some(named)
}

/// What a request does, for the gate, and its name for the audit log, into which no text of a caller's gets.
pub(super) fn operation(method: &Method, path: &str) -> Operation<'static> {
    let reads = Operation { name: "/hall", access: Access::Reads };
    match find(method, path) {
        Some((route, _)) if route.access == Access::Reads => reads,
        Some((route, _)) => Operation { name: route.path, access: route.access },
        // It is answered that it is not found.
        None => reads,
    }
}

/// Answers a request.
pub(super) async fn answer(hall: &Arc<Hall>, asked: Asked<'_>) -> Response {
    if asked.path == EVENTS && BOTH.contains(asked.method) {
        return events::listen(hall);
    }
    let (about, answered) = route(hall, &asked).await;
    let made = |value: &Value| value["commissionId"].as_str().map(str::to_owned);
    let (mut response, about, refused) = match answered {
        Ok(Reply::Json(status, value)) => (with(status, &value), about.or_else(|| made(&value)), None),
        Ok(Reply::Events(meeting, body)) => (events::stream(body), Some(meeting), None),
        Ok(Reply::NoEvents(refused)) => {
            let event = TurnEvent::Error { reason: refused.to_string() };
            (events::stream(Body::from(events::frame(0, &event))), about, Some(status(&refused)))
        }
        Ok(Reply::File(file)) => (files::shown(*file), about, None),
        Err(refused) => (error(status(&refused), &refused.to_string()), about, Some(status(&refused))),
    };
    // No text of a caller's gets into the audit log: only what there is.
    let about = about.filter(|id| hall.has(id));
    response.extensions_mut().insert(Answered { about, refused });
    response
}

/// What an answer is about, and whether it is a refusal, whatever its status says.
#[derive(Clone)]
pub(super) struct Answered {
    /// The commission or the meeting.
    pub(super) about: Option<String>,
    /// The status of the refusal.
    pub(super) refused: Option<StatusCode>,
}

fn status(refused: &HallError) -> StatusCode {
    match refused {
        HallError::Invalid(_) => StatusCode::BAD_REQUEST,
        HallError::Unsupported(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        HallError::NotFound(_) => StatusCode::NOT_FOUND,
        HallError::Conflict(_) => StatusCode::CONFLICT,
        HallError::Spent(_) => StatusCode::TOO_MANY_REQUESTS,
        HallError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The commission or the meeting that a request names, and its answer.
async fn route(hall: &Arc<Hall>, asked: &Asked<'_>) -> (Option<String>, Answer) {
    let (route, fields) = match of_route(asked) {
        Ok(found) => found,
        Err(e) => return (None, Err(e)),
    };
    // The field that its handler reads, so that the audit log names nothing else.
    let about = match asked.path {
        path if path.starts_with("/commission/") => fields.maybe(&["commissionId"]),
        path if path.starts_with("/meeting/") => fields.maybe(&["meetingId"]),
        _ => None,
    };
    (about, (route.answer)(Request { hall: hall.clone(), fields, since: asked.since }).await)
}

fn of_route(asked: &Asked<'_>) -> Result<(&'static Route, Fields), HallError> {
    // Before the body is looked at: what is not here is not found, whatever it says.
    let not_found = || HallError::NotFound(format!("{} {} not found", asked.method, asked.path));
    let (route, named) = find(asked.method, asked.path).ok_or_else(not_found)?;
    let mut fields = match *asked.method == Method::POST {
        true => Fields::of_body(asked.body, asked.query)?,
        false => Fields::of_query(asked.query),
    };
    for (name, value) in named {
        fields.set(name, &percent_decode_str(value).decode_utf8_lossy());
    }
    Ok((route, fields))
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
