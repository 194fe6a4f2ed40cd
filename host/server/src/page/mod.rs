//! Serves the pages of a host to browsers.
//!
//! Each view shows the answers of operations of the table, which are called here for the viewer as for every other
//! client; [`guild_page`] renders them. Each form calls one operation, and has the secret of the viewer's session.

mod form;
mod hall;
mod hall_views;
mod live;
mod operator;
mod request;
mod turn_stream;
mod usage;
mod views;

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{Path, RawQuery, Request, State},
    http::{
        HeaderValue, Method, StatusCode,
        header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, LOCATION, SET_COOKIE, X_CONTENT_TYPE_OPTIONS},
        uri::PathAndQuery,
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use guild_auth::{Connection, Refused};
use guild_contract::rpc::{CancelJob, DeleteJob, DispatchJob, JobParams, ResumeJob};
use guild_page::{
    SIGN_IN, SIGN_OUT,
    assets::{ASSETS, Asset},
    job_path, member_path, now, refusal, sign_in,
};
use guild_roster::{host::Host, members::roster::Reading};

use self::{
    form::Form,
    live::View,
    request::{PageRequest, Why},
};
use crate::{
    connections::Activity,
    declined::{Declined, page_response},
};

/// The path below which all pages are, except the first, which is at `/`.
const PAGES: &str = "/page/";

/// Whether a path is that of a page.
pub(crate) fn is_page(path: &str) -> bool {
    path == "/" || path.starts_with(PAGES)
}

/// Whether a page needs no session.
pub(crate) fn is_open(path: &str) -> bool {
    path == SIGN_IN || ASSETS.iter().any(|asset| asset.path == path)
}

/// The refusal of a request without a session, which leads to the form that asks for a token.
pub(crate) fn sign_in_first(request: &Request) -> Declined {
    // A form cannot be sent again after the sign-in.
    let to =
        request.uri().path_and_query().filter(|_| request.method() == Method::GET).map_or("/", PathAndQuery::as_str);
    let to: String = url::form_urlencoded::byte_serialize(to.as_bytes()).collect();
    let location = HeaderValue::try_from(format!("{SIGN_IN}?to={to}")).unwrap_or(HeaderValue::from_static(SIGN_IN));
    Declined::invalid(StatusCode::SEE_OTHER, "sign in first").with(LOCATION, location)
}

/// The routes.
pub(crate) fn routes() -> Router<Arc<Host>> {
    let assets =
        ASSETS.iter().fold(Router::new(), |router, asset| router.route(asset.path, get(|| async { file(asset) })));
    Router::new()
        .route("/", get(first))
        .route(now::LIVE, get(|page: PageRequest| async { live::live(page, View::Now) }))
        .route("/page/jobs/{job}/{*member}", get(job).post(act))
        .route("/page/members/{*member}", get(member).post(dispatch))
        .route(SIGN_IN, get(ask_for_token).post(begin))
        .route(SIGN_OUT, post(end))
        .merge(hall::routes())
        .merge(usage::routes())
        .merge(operator::routes())
        .merge(assets)
}

async fn first(page: PageRequest) -> Response {
    let members = views::members(&page).await;
    page.show(now::now(&page.viewer(), &members))
}

async fn job(page: PageRequest, Path((job, member)): Path<(String, String)>, RawQuery(query): RawQuery) -> Response {
    let query = Form::of(query.unwrap_or_default().as_bytes());
    if query.has("live") {
        return live::live(page, View::Job { member, job });
    }
    let answer = async {
        if let Some(path) = query.get("file") {
            return views::file(&page, &member, &job, path, query.has("raw")).await;
        }
        let shown = views::job(&page, &member, &job).await?;
        Ok(page.show(guild_page::job::job(&page.viewer(), &shown)))
    };
    page.answer(answer.await)
}

/// Cancels, deletes or resumes a job.
async fn act(page: PageRequest, Path((job, member)): Path<(String, String)>, request: Request) -> Response {
    let answer = async {
        let form = Form::sent(&page, request).await?;
        let (server, params) = (page.server(&member)?, JobParams { job_id: job.clone() });
        let to = match form.get("do") {
            Some("cancel") => page.call::<CancelJob>(&server, &params).await.map(|_| job_path(&member, &job))?,
            Some("resume") => page.call::<ResumeJob>(&server, &params).await.map(|_| job_path(&member, &job))?,
            Some("delete") => page.call::<DeleteJob>(&server, &params).await.map(|_| member_path(&member))?,
            _ => return Err(Why { status: StatusCode::BAD_REQUEST, text: "the form names no operation".to_owned() }),
        };
        Ok(see(&to))
    };
    page.answer(answer.await)
}

async fn member(page: PageRequest, Path(member): Path<String>, RawQuery(query): RawQuery) -> Response {
    let query = Form::of(query.unwrap_or_default().as_bytes());
    let offset = query.get("offset").and_then(|offset| offset.parse().ok()).unwrap_or_default();
    let answer = views::member(&page, &member, offset, query.has("audit")).await;
    page.answer(answer.map(|shown| page.show(guild_page::member::member(&page.viewer(), &shown))))
}

/// Dispatches a task to a member; or approves it, or removes one of its memories.
async fn dispatch(page: PageRequest, Path(member): Path<String>, request: Request) -> Response {
    let answer = async {
        let mut form = Form::sent(&page, request).await?;
        if form.has("approve") || form.has("forget") {
            return operator::decide(&page, &member, &form).await.map(|()| see(&member_path(&member)));
        }
        let server = page.server(&member)?;
        let params = match form.get("follows") {
            Some(job) => views::follow_up(&page, &server, job, &form).await?,
            None => form.dispatch()?,
        };
        let dispatched = page.call::<DispatchJob>(&server, &params).await?;
        Ok(see(&job_path(&member, dispatched.job_id.as_str())))
    };
    page.answer(answer.await)
}

async fn ask_for_token(RawQuery(query): RawQuery) -> Response {
    let query = Form::of(query.unwrap_or_default().as_bytes());
    page_response(StatusCode::OK, sign_in::sign_in(own_path(query.get("to")), None))
}

/// Begins a session with a token.
async fn begin(State(host): State<Arc<Host>>, Extension(open): Extension<OpenRequest>, request: Request) -> Response {
    let form = match Form::read(request, &open.activity, &host.limits()).await {
        Ok(form) => form,
        // A client that is still sending cannot use the connection again.
        Err(why) => {
            let response = page_response(why.status, refusal(None, &why.text));
            return ([(CONNECTION, HeaderValue::from_static("close"))], response).into_response();
        }
    };
    let to = own_path(form.get("to"));
    match open.from.sign_in(&open.reading.rules, form.get("token").unwrap_or_default().trim()) {
        Ok(cookie) => with_cookie(see(to), cookie.expose()),
        Err(refused) => {
            let why = match &refused {
                Refused::Unauthorized => "this host has no such token, or it has expired".to_owned(),
                other => other.to_string(),
            };
            page_response(refused.status(), sign_in::sign_in(to, Some(&why)))
        }
    }
}

/// Ends the session.
async fn end(page: PageRequest, request: Request) -> Response {
    let headers = request.headers().clone();
    match Form::sent(&page, request).await {
        Ok(_) => with_cookie(see(SIGN_IN), page.caller().sign_out(&headers).expose()),
        Err(why) => page.answer(Err(why)),
    }
}

/// A request to a page that needs no session.
#[derive(Clone)]
pub(crate) struct OpenRequest {
    pub(crate) from: Arc<Connection>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) reading: Arc<Reading>,
}

/// A path of this host to go on to.
fn own_path(to: Option<&str>) -> &str {
    // `//host` and `/\host` lead to other hosts.
    to.filter(|to| is_page(to.split('?').next().unwrap_or_default())).filter(|to| !to.contains('\\')).unwrap_or("/")
}

fn file(asset: &'static Asset) -> Response {
    let headers = [
        (CONTENT_TYPE, asset.content_type),
        // The path changes with the version.
        (CACHE_CONTROL, "max-age=3600"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, asset.bytes).into_response()
}

fn see(path: &str) -> Response {
    let location = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response()
}

fn with_cookie(mut response: Response, cookie: &str) -> Response {
    if let Ok(mut value) = HeaderValue::try_from(cookie) {
        value.set_sensitive(true);
        response.headers_mut().insert(SET_COOKIE, value);
    }
    response
}
