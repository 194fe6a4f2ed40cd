//! Reads request bodies within bounds on size, time and memory.

use std::{pin::pin, task::Poll, time::Duration};

use axum::{
    body::{Body, BodyDataStream, HttpBody},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{CONNECTION, CONTENT_TYPE, EXPECT},
    },
};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, poll};
use guild_auth::{Caller, LARGE, Refused};
use guild_contract::json::{has_lone_surrogate, repair_surrogates};
use tokio::time::timeout;

use crate::{declined::Declined, layers::Admitted};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The most bytes of an oversized body that are read and dropped after the answer, and the time limit for it: a client
/// that is still sending would otherwise see a reset connection in place of the answer.
const DISCARD_BYTES: usize = 64 * 1024 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// The refusal of a body with another content type.
pub(crate) fn not_json() -> Declined {
    Declined::invalid(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the content type must be application/json")
}

/// Whether a request declares its body as JSON.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else { return false };
    if value == JSON {
        return true;
    }
    let media_type = value.to_str().ok().and_then(|value| value.split(';').next()).unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("application/json")
}

/// Reads a request's body, or returns the reason that it is not read.
pub(crate) async fn whole(body: Body, headers: &HeaderMap, admitted: &Admitted) -> Result<Bytes, Declined> {
    let Admitted { caller, activity } = admitted;
    let limits = caller.limits();
    let limit = usize::try_from(limits.body_bytes).unwrap_or(usize::MAX);
    let patience = Duration::from_secs(limits.client_seconds.into());
    let mut reading = pin!(read_body(body, limit, caller));
    // The usual case: the body arrived with the head, so there is nothing to time.
    let read = match poll!(&mut reading) {
        Poll::Ready(read) => Ok(read),
        Poll::Pending => activity.waiting(timeout(patience, reading)).await,
    };
    match read {
        Ok(Ok(body)) => Ok(repaired(body, caller).await?),
        Ok(Err(BodyError::TooLarge(rest))) => {
            discard_unless_expected(headers, rest);
            let why = format!("a request's body is at most {limit} bytes");
            Err(closing(Declined::invalid(StatusCode::PAYLOAD_TOO_LARGE, why)))
        }
        Ok(Err(BodyError::NoMemory(refused, rest))) => {
            discard_unless_expected(headers, rest);
            Err(closing(refused.into()))
        }
        Ok(Err(BodyError::Broken)) => Err(Declined::invalid(StatusCode::BAD_REQUEST, "the body is incomplete")),
        Err(_) => Err(closing(Declined::invalid(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))),
    }
}

/// Replaces the lone halves of surrogate pairs in a JSON body.
async fn repaired(body: Bytes, caller: &Caller) -> Result<Bytes, Refused> {
    if !has_lone_surrogate(&body) {
        return Ok(body);
    }
    let mut own = match body.try_into_mut() {
        Ok(own) => own,
        Err(shared) => {
            caller.reserve(shared.len() as u64).await?;
            BytesMut::from(&*shared)
        }
    };
    repair_surrogates(&mut own);
    Ok(own.freeze())
}

enum BodyError {
    /// The rest of a body that exceeds the limit.
    TooLarge(BodyDataStream),
    /// The rest of a body for which there is no memory.
    NoMemory(Refused, BodyDataStream),
    /// The client went away, or sent an invalid body.
    Broken,
}

/// Reads a body of at most `limit` bytes. A body that announces more, or for which there is no memory, is not read at
/// all.
async fn read_body(body: Body, limit: usize, caller: &Caller) -> Result<Bytes, BodyError> {
    let announced = body.size_hint();
    let mut body = body.into_data_stream();
    if announced.lower() > limit as u64 {
        return Err(BodyError::TooLarge(body));
    }
    if let Err(refused) = caller.reserve(announced.lower()).await {
        return Err(BodyError::NoMemory(refused, body));
    }
    let Some(first) = body.next().await else { return Ok(Bytes::new()) };
    let first = first.map_err(|_| BodyError::Broken)?;
    // The usual case: the body has arrived in one piece.
    if announced.exact() == Some(first.len() as u64) {
        return Ok(first);
    }
    let (mut whole, mut counted) = (BytesMut::from(first), announced.lower());
    // The announced length is already counted.
    whole.reserve(usize::try_from(counted).unwrap_or(usize::MAX).saturating_sub(whole.len()));
    loop {
        if whole.len() > limit {
            return Err(BodyError::TooLarge(body));
        }
        // A body of unannounced length grows by doubling.
        if whole.capacity() as u64 > counted.saturating_add(LARGE) {
            if let Err(refused) = caller.reserve(whole.capacity() as u64 - counted).await {
                return Err(BodyError::NoMemory(refused, body));
            }
            counted = whole.capacity() as u64;
        }
        match body.next().await {
            Some(Ok(piece)) => whole.extend_from_slice(&piece),
            Some(Err(_)) => return Err(BodyError::Broken),
            None => return Ok(whole.freeze()),
        }
    }
}

/// Drops the rest of a body, so that a client that is still sending sees its response.
fn discard_unless_expected(headers: &HeaderMap, rest: BodyDataStream) {
    // A client that waits for "100 Continue" has sent no body, and sends none now.
    if !headers.contains_key(EXPECT) {
        tokio::spawn(timeout(DISCARD_TIME, discard(rest)));
    }
}

async fn discard(mut body: BodyDataStream) {
    let mut discarded = 0_usize;
    while let Some(Ok(piece)) = body.next().await {
        discarded = discarded.saturating_add(piece.len());
        if discarded > DISCARD_BYTES {
            return;
        }
    }
}

/// A response after which the connection cannot be reused.
fn closing(declined: Declined) -> Declined {
    declined.with(CONNECTION, HeaderValue::from_static("close"))
}
