//! Streams events of a hall, and of turns in meetings, as server-sent events.

use std::{convert::Infallible, sync::Arc};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::stream;
use guild_contract::hall::TurnEvent;
use guild_hall::{Hall, meetings::Turn};
use tokio::{sync::broadcast::error::RecvError, time::timeout};

use crate::events::{KEEP_ALIVE, event_stream};

/// Streams all events from now on. Each event is one piece of the body, as clients of the original require.
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
    event_stream(Body::from_stream(events))
}

/// Streams the events of a turn until its end. The turn continues even if the client reads slowly or goes away.
pub(super) fn of_turn(turn: Turn) -> Body {
    Body::from_stream(stream::unfold(turn, |mut turn| async {
        let piece = match timeout(KEEP_ALIVE, turn.next()).await {
            Err(_) => ": alive\n\n".to_owned(),
            Ok(Some((number, event))) => frame(number, &event),
            Ok(None) => return None,
        };
        Some((Ok::<_, Infallible>(Bytes::from(piece)), turn))
    }))
}

/// Formats an event as one piece, with its number if it has one.
pub(super) fn frame(number: u64, event: &TurnEvent) -> String {
    let json = serde_json::to_string(event).unwrap_or_default();
    if number == 0 { format!("data: {json}\n\n") } else { format!("id: {number}\ndata: {json}\n\n") }
}
