//! Wraps the answers of a listener in what all requests need: an id, a log line, a gate, an answer after a panic.

use std::{convert::Infallible, panic::AssertUnwindSafe, sync::Arc, time::Instant};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue},
    response::Response,
};
use futures::FutureExt as _;
use guild_auth::{Caller, Connection};
use guild_contract::{
    rpc::RpcError,
    text::{LOGGED_CHARS, one_line},
};
use guild_telemetry::{record, trace};
use hyper::{
    body::Incoming,
    service::{Service, service_fn},
};
use tower_http::compression::{
    CompressionLayer,
    predicate::{And, DefaultPredicate, Predicate as _, SizeAbove},
};
use tower_service::Service as _;
use tracing::{Instrument as _, Span, field::Empty};
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

/// The requests of a listener: which it admits, and their answers.
pub(crate) trait Listener: Send + Sync + 'static {
    /// The findings about an admitted request.
    type Admission: Send;

    /// The form of the errors at a path.
    fn shape(&self, path: &str) -> Shape;

    /// The gate: admits a request to a path of this shape.
    ///
    /// # Errors
    ///
    /// Returns the reason that the request is rejected.
    fn admit(&self, shape: Shape, from: &Arc<Connection>, request: &Request) -> Result<Self::Admission, Declined>;

    /// Answers an admitted request.
    fn answer(
        &self,
        admission: Self::Admission,
        activity: Arc<Activity>,
        request: Request,
    ) -> impl Future<Output = Response> + Send;
}

/// An admitted request's caller and connection. The handlers of routes find it among the extensions.
#[derive(Clone)]
pub(crate) struct Admitted {
    pub(crate) caller: Caller,
    pub(crate) activity: Arc<Activity>,
}

/// Answers a request by a router.
pub(crate) async fn route(router: &Router, request: Request) -> Response {
    match router.clone().call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// A listener with what all its requests need around it. These are no layers of a router, which boxes each of its
/// layers, and clones all boxes of a route for each request.
pub(crate) struct Layers<L>(Arc<L>);

impl<L> Clone for Layers<L> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<L: Listener> Layers<L> {
    pub(crate) fn new(listener: Arc<L>) -> Self {
        Self(listener)
    }

    /// The service for one connection.
    pub(crate) fn service(
        &self,
        from: Connection,
        activity: Arc<Activity>,
    ) -> impl Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send> + use<L> {
        let (layers, from) = (self.clone(), Arc::new(from));
        service_fn(move |request: Request<Incoming>| {
            layers.clone().answer(from.clone(), activity.clone(), request.map(Body::new))
        })
    }

    /// Answers a request, and marks the connection as busy until the response is sent.
    async fn answer(
        self,
        from: Arc<Connection>,
        activity: Arc<Activity>,
        request: Request,
    ) -> Result<Response, Infallible> {
        let id = id_of(request.headers());
        let shape = self.0.shape(request.uri().path());
        let working = activity.works().await;
        let mut response = match trace::is_on() {
            // Boxed, so that a connection that waits for its client takes little memory.
            true => Box::pin(self.log(&from, activity, &id, shape, request)).await,
            false => Box::pin(self.handle(&from, activity, shape, request)).await,
        };
        record::request(shape.name(), response.status().as_u16());
        response.headers_mut().insert(ID.clone(), id);
        Ok(working.until_sent(response))
    }

    /// Handles a request, and logs it. The log lines of its handler have the request's id.
    async fn log(
        &self,
        from: &Arc<Connection>,
        activity: Arc<Activity>,
        id: &HeaderValue,
        shape: Shape,
        request: Request,
    ) -> Response {
        let (method, path) = (request.method().clone(), one_line(request.uri().path(), LOGGED_CHARS));
        let span = tracing::debug_span!(
            "request",
            id = id.to_str().unwrap_or_default(),
            otel.kind = "server",
            otel.name = %format_args!("{method} {}", shape.name()),
            http.request.method = %method,
            url.path = &*path,
            http.response.status_code = Empty,
        );
        let traceparent = request.headers().get(trace::TRACEPARENT).and_then(|value| value.to_str().ok());
        trace::continue_trace(&span, traceparent);
        async {
            let began = Instant::now();
            let response = self.handle(from, activity, shape, request).await;
            let (status, ms) = (response.status().as_u16(), began.elapsed().as_millis());
            // OpenTelemetry has signed numbers only.
            Span::current().record("http.response.status_code", i64::from(status));
            tracing::debug!(peer = from.address().map(display), %method, path, status, ms, "answered over HTTP");
            response
        }
        .instrument(span)
        .await
    }

    /// Admits a request, and calls its handler. A panic of the handler becomes an error.
    async fn handle(
        &self,
        from: &Arc<Connection>,
        activity: Arc<Activity>,
        shape: Shape,
        request: Request,
    ) -> Response {
        let admission = match self.0.admit(shape, from, &request) {
            Ok(admission) => admission,
            Err(declined) => return shape.decline(declined),
        };
        match AssertUnwindSafe(self.0.answer(admission, activity, request)).catch_unwind().await {
            Ok(response) => response,
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
    };

    use guild_auth::Ingress;
    use guild_config::Config;

    use super::*;

    /// A listener with a bug.
    struct Broken(Shape);

    impl Listener for Broken {
        type Admission = ();

        fn shape(&self, _: &str) -> Shape {
            self.0
        }

        fn admit(&self, _: Shape, _: &Arc<Connection>, _: &Request) -> Result<(), Declined> {
            Ok(())
        }

        async fn answer(&self, (): (), _: Arc<Activity>, _: Request) -> Response {
            panic!("a bug")
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_error_in_the_shape_of_the_route() {
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
            let layers = Layers::new(Arc::new(Broken(shape)));
            let response = layers.handle(&from, Arc::new(Activity::new()), shape, Request::new(Body::empty())).await;
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(response.headers()[CONTENT_TYPE], content_type);
            assert_eq!(to_bytes(response.into_body(), 1024).await.unwrap(), body);
        }
    }
}
