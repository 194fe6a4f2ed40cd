//! Tells the addresses of `[[webhook]]` of the ends and questions of jobs, as Standard Webhooks says.
//!
//! A message is sent again until its receiver accepts it, with the same id, for about a day. Messages are kept in memory
//! only: a receiver that must miss none asks `worker/jobs` after a host was restarted.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use ct_codecs::{Base64, Base64NoPadding, Decoder as _, Encoder as _};
use guild_config::{Webhook, WebhookEvent};
use guild_contract::{
    Event, EventDetail, JobStatus, MemberKey,
    text::{LOGGED_CHARS, one_line},
};
use guild_roster::{
    events::{Hub, Ring},
    host::Host,
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use reqwest::{Client, StatusCode, header::CONTENT_TYPE, redirect};
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::Sha256;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::sleep,
};
use url::Url;

/// The pauses before a message is sent again.
const PAUSES: [Duration; 8] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 3600),
    Duration::from_secs(8 * 3600),
    Duration::from_secs(14 * 3600),
];
/// The time within which a receiver has to answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// The most messages to one address that are being sent, or wait to be sent again.
const MESSAGES: usize = 1000;
/// The prefix of a secret, and the sizes of the key in it, as Standard Webhooks has them.
const PREFIX: &str = "whsec_";
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The body of a message.
#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    event: &'static str,
    timestamp: &'a str,
    /// The event as `GET /events` has it.
    data: &'a RawValue,
}

/// A message to one address.
struct Message {
    webhook: Webhook,
    id: String,
    body: String,
    _place: OwnedSemaphorePermit,
}

/// Sends the events of a host, which this does not keep alive, until this is dropped.
pub(crate) async fn send(hub: Arc<Hub>, host: Weak<Host>) {
    let (mut newest, mut places) = (hub.newest(), HashMap::<Url, Arc<Semaphore>>::new());
    let mut at = hub.read(Ring::newest);
    let mut sending = JoinSet::new();
    while newest.changed().await.is_ok() {
        while sending.try_join_next().is_some() {}
        let Some(config) = host.upgrade().map(|host| host.config()) else { return };
        if config.webhooks.is_empty() {
            at = hub.read(Ring::newest);
            continue;
        }
        let (events, last) = hub.read(|ring| ring.own_jsons(at));
        at = last;
        for (id, json) in events {
            let Some(notice) = Notice::of(&json) else { continue };
            for webhook in &config.webhooks {
                let places = places.entry(webhook.url.clone()).or_insert_with(|| Arc::new(Semaphore::new(MESSAGES)));
                if let Some(message) = notice.message(webhook, &id, places) {
                    sending.spawn(deliver(message, host.clone()));
                }
            }
        }
    }
}

/// An event that webhooks are told of.
struct Notice {
    kind: WebhookEvent,
    member: MemberKey,
    body: String,
}

impl Notice {
    /// The event of this JSON; none if webhooks are not told of it.
    fn of(json: &str) -> Option<Self> {
        let event: Event = serde_json::from_str(json).ok()?;
        let kind = match &event.news {
            EventDetail::JobEnded { status: JobStatus::Completed, .. } => WebhookEvent::Completed,
            EventDetail::JobEnded { status: JobStatus::Failed, .. } => WebhookEvent::Failed,
            EventDetail::JobEnded { status: JobStatus::Cancelled, .. } => WebhookEvent::Cancelled,
            EventDetail::JobQuestion { .. } => WebhookEvent::Question,
            _ => return None,
        };
        let data: &RawValue = serde_json::from_str(json).ok()?;
        let body = serde_json::to_string(&Body { event: kind.as_str(), timestamp: &event.time, data }).ok()?;
        Some(Self { kind, member: event.member?, body })
    }

    /// The message to a webhook that wants it, if there is a place for one more.
    fn message(&self, webhook: &Webhook, id: &str, places: &Arc<Semaphore>) -> Option<Message> {
        let Self { kind, member, body } = self;
        if !webhook.wants(*kind, member.as_str()) {
            return None;
        }
        let Ok(place) = places.clone().try_acquire_owned() else {
            let (url, event) = (shown(webhook), kind.as_str());
            tracing::warn!(%member, url, event, "{MESSAGES} messages to a webhook wait to be sent: this one is dropped");
            return None;
        };
        Some(Message { webhook: webhook.clone(), id: format!("msg_{id}"), body: body.clone(), _place: place })
    }
}

/// Sends a message until its receiver accepts it.
async fn deliver(message: Message, host: Weak<Host>) {
    let url = shown(&message.webhook);
    for pause in PAUSES {
        // The operator may have removed the address since.
        if !host.upgrade().is_some_and(|host| host.config().webhooks.contains(&message.webhook)) {
            return;
        }
        match message.send().await {
            Ok(()) => return,
            Err(Refused::ForGood(why)) => {
                return tracing::warn!(id = message.id, url, "a message of a webhook is dropped: {why}");
            }
            Err(Refused::ForNow(why)) => {
                tracing::info!(id = message.id, url, "a message of a webhook is sent again in {pause:?}: {why}");
            }
        }
        sleep(pause).await;
    }
    if let Err(Refused::ForNow(why) | Refused::ForGood(why)) = message.send().await {
        tracing::warn!(id = message.id, url, "a message of a webhook is dropped: {why}");
    }
}

/// The reason that a message was not accepted.
enum Refused {
    /// The receiver does not want any more of them.
    ForGood(String),
    ForNow(String),
}

impl Message {
    async fn send(&self) -> Result<(), Refused> {
        let seconds = Timestamp::now().as_second();
        let signature = self.signature(seconds).map_err(Refused::ForNow)?;
        let client = client().map_err(Refused::ForNow)?;
        let request = client
            .post(self.webhook.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", &self.id)
            .header("webhook-timestamp", seconds.to_string())
            .header("webhook-signature", signature)
            .body(self.body.clone());
        match request.send().await.map(|response| response.status()) {
            Ok(status) if status.is_success() => Ok(()),
            Ok(StatusCode::GONE) => Err(Refused::ForGood("the receiver answered 410 Gone".to_owned())),
            Ok(status) => Err(Refused::ForNow(format!("the receiver answered {status}"))),
            Err(e) => Err(Refused::ForNow(one_line(&e.without_url().to_string(), LOGGED_CHARS))),
        }
    }

    /// The signature of this sending. The secret is read each time, so that a replaced one takes effect.
    fn signature(&self, seconds: i64) -> Result<String, String> {
        let source = &self.webhook.key;
        let secret = source.read()?;
        signature(secret.expose(), &self.id, seconds, &self.body)
            .ok_or_else(|| format!("{source} must have {PREFIX} and 24 to 64 bytes in base64"))
    }
}

/// The value of `webhook-signature`; none if the secret is invalid.
fn signature(secret: &str, id: &str, seconds: i64, body: &str) -> Option<String> {
    let key = secret.strip_prefix(PREFIX).unwrap_or(secret);
    let key = Base64::decode_to_vec(key, None).or_else(|_| Base64NoPadding::decode_to_vec(key, None)).ok()?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).ok().filter(|_| KEY_BYTES.contains(&key.len()))?;
    mac.update(format!("{id}.{seconds}.{body}").as_bytes());
    Some(format!("v1,{}", Base64::encode_to_string(mac.finalize().into_bytes()).ok()?))
}

/// The client of all messages, which is made with the first of them.
fn client() -> Result<&'static Client, String> {
    static CLIENT: OnceLock<Result<Client, String>> = OnceLock::new();
    let make = || {
        let client = Client::builder().timeout(PATIENCE).redirect(redirect::Policy::none());
        client.user_agent(concat!("guild/", env!("CARGO_PKG_VERSION"))).build().map_err(|e| e.to_string())
    };
    CLIENT.get_or_init(make).as_ref().map_err(Clone::clone)
}

/// The address without a secret in its path or query.
fn shown(webhook: &Webhook) -> String {
    webhook.url.origin().ascii_serialization()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_standard_webhooks() {
        // The example of its libraries.
        let (id, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", r#"{"test": 2432232314}"#);
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        for secret in ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
            assert_eq!(signature(secret, id, 1_614_265_330, body).as_deref(), Some(expected));
        }
        assert_eq!([signature("whsec_c2hvcnQ=", id, 0, body), signature("whsec_?", id, 0, body)], [None, None]);
    }
}
