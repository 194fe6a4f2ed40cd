//! Adds layers around all routes: request ids, logging, panics, compression.

use std::{sync::Arc, time::Instant};

use axum::{
    Extension, Router,
    body::Body,
    extract::Request,
    http::HeaderValue,
    middleware::{Next, from_fn},
    response::Response,
};
use guild_auth::Connection;
use guild_contract::{
    rpc::RpcError,
    text::{LOGGED_CHARS, one_line},
};
use tower_http::{
    catch_panic::{CatchPanicLayer, ResponseForPanic},
    compression::{
        CompressionLayer,
        predicate::{And, DefaultPredicate, Predicate as _, SizeAbove},
    },
    request_id::{MakeRequestUuid, PropagateRequestIdLayer, RequestId, SetRequestIdLayer},
};
use tracing::{Instrument as _, Level, field::display};

use crate::{
    connections::Activity,
    declined::{HANDLER_FAILED, Shape},
};

/// The header of a request's id, and the most bytes of an id that a client gives.
const ID: &str = "x-request-id";
const ID_BYTES: usize = 64;

/// The minimum size of a compressed response, in bytes.
const COMPRESSED_BYTES: u16 = 32 * 1024;

/// Compresses large answers, except streams of events.
pub(crate) fn compression() -> CompressionLayer<And<DefaultPredicate, SizeAbove>> {
    CompressionLayer::new().compress_when(DefaultPredicate::new().and(SizeAbove::new(COMPRESSED_BYTES)))
}

/// Turns a panic of a handler into a response.
pub(crate) fn panics(shape: Shape) -> CatchPanicLayer<impl ResponseForPanic<ResponseBody = Body>> {
    CatchPanicLayer::custom(move |_| {
        tracing::error!("the handler of a request panicked");
        shape.decline(RpcError::internal(HANDLER_FAILED).into())
    })
}

/// Adds the layers that every request passes, whichever listener it came by, the outermost first. They are one layer,
/// since each layer of a router is boxed, and all boxes of a route are cloned for each request.
pub(crate) fn of_connection(router: Router) -> Router {
    router.layer((
        from_fn(receive),
        SetRequestIdLayer::x_request_id(MakeRequestUuid),
        PropagateRequestIdLayer::x_request_id(),
        from_fn(log),
    ))
}

/// Marks the connection as busy until the response is sent, and removes a request id that is not a plain word of 1 to
/// 64 characters. The request gets a new id.
async fn receive(Extension(activity): Extension<Arc<Activity>>, mut request: Request, next: Next) -> Response {
    let is_word = |id: &HeaderValue| {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        !id.is_empty() && id.len() <= ID_BYTES && id.as_bytes().iter().all(is_plain)
    };
    if request.headers().get(ID).is_some_and(|id| !is_word(id)) {
        request.headers_mut().remove(ID);
    }
    let working = activity.works().await;
    working.until_sent(next.run(request).await)
}

/// Logs each request at the level `debug`. The log lines of its handler have the request's id.
async fn log(request: Request, next: Next) -> Response {
    if !tracing::enabled!(Level::DEBUG) {
        return next.run(request).await;
    }
    let peer = request.extensions().get::<Arc<Connection>>().and_then(|from| from.address()).map(display);
    let id = request.extensions().get::<RequestId>().and_then(|id| id.header_value().to_str().ok());
    let span = tracing::debug_span!("request", id = id.unwrap_or_default());
    let (method, path) = (request.method().clone(), one_line(request.uri().path(), LOGGED_CHARS));
    async {
        let began = Instant::now();
        let response = next.run(request).await;
        let (status, ms) = (response.status().as_u16(), began.elapsed().as_millis());
        tracing::debug!(peer, %method, path, status, ms, "answered over HTTP");
        response
    }
    .instrument(span)
    .await
}

#[cfg(test)]
mod tests {
    use axum::{
        body::to_bytes,
        http::{StatusCode, header::CONTENT_TYPE},
        routing::get,
    };
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_in_the_shape_of_the_route() {
        async fn broken() -> &'static str {
            panic!("a bug")
        }
        for (shape, content_type, body) in [
            (Shape::Text, "text/plain; charset=utf-8", format!("{HANDLER_FAILED}\n")),
            (Shape::Hall, "application/json", format!(r#"{{"error":"{HANDLER_FAILED}"}}"#)),
            (
                Shape::Message,
                "application/json",
                format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":-32603,"message":"{HANDLER_FAILED}"}}}}"#),
            ),
        ] {
            let service = TowerToHyperService::new(Router::new().route("/", get(broken)).layer(panics(shape)));
            let response = service.call(Request::new(Body::empty())).await.unwrap();
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(response.headers()[CONTENT_TYPE], content_type);
            assert_eq!(to_bytes(response.into_body(), 1024).await.unwrap(), body);
        }
    }
}
