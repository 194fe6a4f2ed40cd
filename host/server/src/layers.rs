//! The layers around all routes: request ids, the log, panics, compression.

use std::{sync::Arc, time::Instant};

use axum::{
    Extension, Router,
    extract::Request,
    http::StatusCode,
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
};
use guild_auth::Connection;
use guild_contract::text::{LOGGED_CHARS, one_line};
use tower_http::{
    catch_panic::CatchPanicLayer,
    compression::{
        CompressionLayer,
        predicate::{And, DefaultPredicate, Predicate as _, SizeAbove},
    },
    request_id::{MakeRequestUuid, PropagateRequestIdLayer, RequestId, SetRequestIdLayer},
};
use tracing::Level;

use crate::connections::Activity;

/// The least size of an answer that is compressed, for a client that accepts it.
const COMPRESSED_BYTES: u16 = 32 * 1024;

/// Compresses large answers, but for streams of events, and images.
pub(crate) fn compression() -> CompressionLayer<And<DefaultPredicate, SizeAbove>> {
    CompressionLayer::new().compress_when(DefaultPredicate::new().and(SizeAbove::new(COMPRESSED_BYTES)))
}

/// Adds the layers that every request passes, whichever listener it came by.
pub(crate) fn of_connection(router: Router) -> Router {
    router
        .layer(CatchPanicLayer::custom(|_| {
            let why = "the host could not answer; its log says why\n";
            (StatusCode::INTERNAL_SERVER_ERROR, why).into_response()
        }))
        .layer(from_fn(log))
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
        .layer(from_fn(work))
}

/// Marks the connection as one with a request under way, until the answer is sent.
async fn work(Extension(activity): Extension<Arc<Activity>>, request: Request, next: Next) -> Response {
    let working = activity.works().await;
    working.until_sent(next.run(request).await)
}

/// Logs each request, where the level of the log asks for it.
async fn log(request: Request, next: Next) -> Response {
    if !tracing::enabled!(Level::DEBUG) {
        return next.run(request).await;
    }
    let peer = request.extensions().get::<Arc<Connection>>().map(|from| from.peer());
    let id = request.extensions().get::<RequestId>().and_then(|id| id.header_value().to_str().ok());
    let id = one_line(id.unwrap_or_default(), LOGGED_CHARS);
    let (method, path) = (request.method().clone(), one_line(request.uri().path(), LOGGED_CHARS));
    let began = Instant::now();
    let response = next.run(request).await;
    let (status, ms) = (response.status().as_u16(), began.elapsed().as_millis());
    tracing::debug!(?peer, id, %method, path, status, ms, "answered over HTTP");
    response
}
