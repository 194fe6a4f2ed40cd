//! What happens in a hall, as server-sent events.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{
        HeaderValue,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::Response,
};
use bytes::Bytes;
use futures::stream;
use guild_hall::Hall;
use tokio::{sync::broadcast::error::RecvError, time::timeout};

/// After so long without an event a client is shown that the connection lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// All that happens from now on. Each event is one piece of the body: clients of the original read no other.
pub(super) fn listen(hall: &Arc<Hall>) -> Response {
    let events = stream::unfold(hall.events(), |mut events| async {
        loop {
            let piece = match timeout(KEEP_ALIVE, events.recv()).await {
                Err(_) => ": alive\n\n".to_owned(),
                Ok(Ok(event)) => match serde_json::to_string(&*event) {
                    Ok(json) => format!("data: {json}\n\n"),
                    Err(_) => continue,
                },
                Ok(Err(RecvError::Lagged(missed))) => {
                    tracing::debug!(missed, "a listener of the hall is too slow, and missed events");
                    continue;
                }
                Ok(Err(RecvError::Closed)) => return None,
            };
            return Some((Ok::<_, Infallible>(Bytes::from(piece)), events));
        }
    });
    let mut response = Response::new(Body::from_stream(events));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
