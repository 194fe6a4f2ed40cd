//! Wraps the routes of a listener in what all requests need: an id, a log line, a gate, an answer after a panic.

use std::{convert::Infallible, panic::AssertUnwindSafe, sync::Arc, time::Instant};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue},
    response::Response,
};
use futures::FutureExt as _;
use guild_auth::Connection;
use guild_contract::{
    rpc::RpcError,
    text::{LOGGED_CHARS, one_line},
};
use hyper::{
    body::Incoming,
    service::{Service, service_fn},
};
use hyper_util::service::TowerToHyperService;
use tower_http::compression::{
    CompressionLayer,
    predicate::{And, DefaultPredicate, Predicate as _, SizeAbove},
};
use tracing::{Instrument as _, Level};
use uuid::Uuid;

use crate::{
    connections::Activity,
    declined::{Declined, HANDLER_FAILED, Shape},
};

/// The header of a request's id, and the most bytes of an id that a client gives.
static ID: HeaderName = HeaderName::from_static("x-request-id");
const ID_BYTES: usize = 64;

/// The minimum size of a compressed response, in bytes.
const COMPRESSED_BYTES: u16 = 32 * 1024;

/// Compresses large answers, except streams of events.
pub(crate) fn compression() -> CompressionLayer<And<DefaultPredicate, SizeAbove>> {
    CompressionLayer::new().compress_when(DefaultPredicate::new().and(SizeAbove::new(COMPRESSED_BYTES)))
}

/// The gate of a listener: every request passes it before it reaches a route.
pub(crate) trait Gate: Send + Sync {
    /// The form of the errors at a path.
    fn shape(&self, path: &str) -> Shape;

    /// Admits a request to a path of this shape. Handlers find its caller among the extensions.
    ///
    /// # Errors
    ///
    /// Returns the reason that the request is rejected.
    fn admit(&self, shape: Shape, from: &Arc<Connection>, request: &mut Request) -> Result<(), Declined>;
}

/// The routes of a listener behind their gate. What all requests need is done here and not in layers of the router,
/// since the router boxes each of its layers, and clones all boxes of a route for each request.
#[derive(Clone)]
pub(crate) struct Routes {
    router: TowerToHyperService<Router>,
    gate: Arc<dyn Gate>,
}

impl Routes {
    pub(crate) fn new(router: Router, gate: Arc<dyn Gate>) -> Self {
        Self { router: TowerToHyperService::new(router), gate }
    }

    /// The routes as a service for one connection. Requests carry the connection's activity as an extension.
    pub(crate) fn service(
        &self,
        from: Connection,
        activity: Arc<Activity>,
    ) -> impl Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send> + use<> {
        let (routes, from) = (self.clone(), Arc::new(from));
        service_fn(move |request: Request<Incoming>| {
            routes.clone().answer(from.clone(), activity.clone(), request.map(Body::new))
        })
    }

    /// Answers a request, and marks the connection as busy until the response is sent.
    async fn answer(
        self,
        from: Arc<Connection>,
        activity: Arc<Activity>,
        mut request: Request,
    ) -> Result<Response, Infallible> {
        let id = id_of(request.headers());
        request.extensions_mut().insert(activity.clone());
        let working = activity.works().await;
        let mut response = match tracing::enabled!(Level::DEBUG) {
            true => self.log(&from, &id, request).await,
            false => self.handle(&from, request).await,
        };
        response.headers_mut().insert(ID.clone(), id);
        Ok(working.until_sent(response))
    }

    /// Handles a request, and logs it. The log lines of its handler have the request's id.
    async fn log(&self, from: &Arc<Connection>, id: &HeaderValue, request: Request) -> Response {
        let span = tracing::debug_span!("request", id = id.to_str().unwrap_or_default());
        let (method, path) = (request.method().clone(), one_line(request.uri().path(), LOGGED_CHARS));
        async {
            let began = Instant::now();
            let response = self.handle(from, request).await;
            let (status, ms) = (response.status().as_u16(), began.elapsed().as_millis());
            tracing::debug!(peer = from.address().map(display), %method, path, status, ms, "answered over HTTP");
            response
        }
        .instrument(span)
        .await
    }

    /// Admits a request, and calls its handler. A panic of the handler becomes an error.
    async fn handle(&self, from: &Arc<Connection>, mut request: Request) -> Response {
        let shape = self.gate.shape(request.uri().path());
        if let Err(declined) = self.gate.admit(shape, from, &mut request) {
            return shape.decline(declined);
        }
        match AssertUnwindSafe(self.router.call(request)).catch_unwind().await {
            Ok(Ok(response)) => response,
            Err(_) => {
                tracing::error!("the handler of a request panicked");
                shape.decline(RpcError::internal(HANDLER_FAILED).into())
            }
        }
    }
}

/// The id that a request brings, if it is a plain word of 1 to 64 characters, or else a new id.
fn id_of(headers: &HeaderMap) -> HeaderValue {
    let is_word = |id: &&HeaderValue| {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        !id.is_empty() && id.len() <= ID_BYTES && id.as_bytes().iter().all(is_plain)
    };
    let new = || HeaderValue::try_from(Uuid::new_v4().to_string()).unwrap_or(HeaderValue::from_static("none"));
    headers.get(&ID).filter(is_word).cloned().unwrap_or_else(new)
}

#[cfg(test)]
mod tests {
    use axum::{
        body::to_bytes,
        http::{StatusCode, header::CONTENT_TYPE},
        routing::get,
    };

    use guild_auth::Ingress;
    use guild_config::Config;

    use super::*;

    /// Admits everybody.
    struct Open(Shape);

    impl Gate for Open {
        fn shape(&self, _: &str) -> Shape {
            self.0
        }

        fn admit(&self, _: Shape, _: &Arc<Connection>, _: &mut Request) -> Result<(), Declined> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_error_in_the_shape_of_the_route() {
        async fn broken() -> &'static str {
            panic!("a bug")
        }
        let ingress = Arc::new(Ingress::of_this_machine(&Config::default()));
        let from = Arc::new(Connection::new(ingress, ([127, 0, 0, 1], 1).into(), None));
        for (shape, content_type, body) in [
            (Shape::Text, "text/plain; charset=utf-8", format!("{HANDLER_FAILED}\n")),
            (Shape::Hall, "application/json", format!(r#"{{"error":"{HANDLER_FAILED}"}}"#)),
            (
                Shape::Message,
                "application/json",
                format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":-32603,"message":"{HANDLER_FAILED}"}}}}"#),
            ),
        ] {
            let routes = Routes::new(Router::new().route("/", get(broken)), Arc::new(Open(shape)));
            let response = routes.handle(&from, Request::new(Body::empty())).await;
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(response.headers()[CONTENT_TYPE], content_type);
            assert_eq!(to_bytes(response.into_body(), 1024).await.unwrap(), body);
        }
    }
}
