//! Follows a stream: the last message of each subject first, then each new message.

use std::{mem::replace, time::Duration};

use async_nats::jetstream::consumer::{
    DeliverPolicy,
    push::{Ordered, OrderedConfig},
};
use futures::StreamExt as _;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    error::StoreError,
    link::{ID, Link, Message},
    log::{EVENTS, HEAD, JobName, NEEDS, STANDING},
    reads::Reads,
    record::{Needs, Owner},
    rules::Standing,
    streams::{LOG, job_of, subjects},
};

/// The pause before a consumer that failed is made again, and before the leader of a stream is asked again for its end.
const PAUSE: Duration = Duration::from_millis(500);

/// Something that a watch has seen.
#[derive(Debug)]
pub(crate) enum Seen {
    Message(Message),
    /// All messages of before the watch have been seen. This comes once.
    CaughtUp,
}

/// A consumer of a stream, in order and without gaps. It is made again when it fails.
pub(crate) struct Watch {
    link: Link,
    stream: &'static str,
    headers_only: bool,
    policy: DeliverPolicy,
    messages: Option<Ordered>,
    /// Where the watch tells up to which sequence its messages have been handled.
    heard: Option<watch::Sender<u64>>,
    /// The last sequence up to which all messages have been returned.
    returned: u64,
    /// The last sequence of the stream when the consumer was made.
    made_at: u64,
    /// Whether the server with the consumer has no further message. It may lag behind the stream's leader.
    is_last: bool,
    is_caught_up: bool,
}

impl Watch {
    /// Begins with the last message of each subject.
    pub(crate) fn latest(link: Link, stream: &'static str, headers_only: bool) -> Self {
        Self::new(link, stream, headers_only, DeliverPolicy::LastPerSubject)
    }

    /// Begins with the first message after a sequence.
    pub(crate) fn after(link: Link, stream: &'static str, headers_only: bool, sequence: u64) -> Self {
        let policy = DeliverPolicy::ByStartSequence { start_sequence: sequence + 1 };
        Self { returned: sequence, ..Self::new(link, stream, headers_only, policy) }
    }

    /// Tells up to which sequence all messages have been handled.
    pub(crate) fn telling(self, heard: watch::Sender<u64>) -> Self {
        Self { heard: Some(heard), ..self }
    }

    fn new(link: Link, stream: &'static str, headers_only: bool, policy: DeliverPolicy) -> Self {
        Self {
            link,
            stream,
            headers_only,
            policy,
            messages: None,
            heard: None,
            returned: 0,
            made_at: 0,
            is_last: false,
            is_caught_up: false,
        }
    }

    /// The next message; those before it have been handled. Waits as long as the store is away.
    pub(crate) async fn next(&mut self) -> Seen {
        loop {
            if self.is_last && self.returned < self.made_at && self.ends_here().await {
                self.returned = self.made_at;
            }
            let is_behind = self.returned < self.made_at;
            if self.is_last && !is_behind && !self.is_caught_up {
                self.is_caught_up = true;
                return Seen::CaughtUp;
            }
            // Before, the last message of a subject may still be to come, with those of before it gone.
            if let Some(heard) = self.heard.as_ref().filter(|_| self.is_caught_up) {
                heard.send_if_modified(|heard| replace(heard, self.returned) != self.returned);
            }
            let Some(messages) = &mut self.messages else {
                match self.consume().await {
                    Ok(pending) => self.is_last = pending == 0,
                    Err(error) => {
                        tracing::warn!("the stream {} is not followed at the moment: {error}", self.stream);
                        sleep(PAUSE).await;
                    }
                }
                continue;
            };
            let next = if self.is_last && is_behind {
                // The stream may come to end here: the messages of deleted jobs go after a while.
                let Ok(next) = timeout(PAUSE, messages.next()).await else { continue };
                next
            } else {
                messages.next().await
            };
            match next {
                Some(Ok(message)) => {
                    let Some((message, pending)) = Message::delivered(message) else { continue };
                    if message.sequence <= self.returned {
                        // The client makes a consumer that has had no message again from the first of all on.
                        self.messages = None;
                    } else {
                        self.policy = DeliverPolicy::ByStartSequence { start_sequence: message.sequence + 1 };
                        (self.is_last, self.returned) = (pending == 0, message.sequence);
                        return Seen::Message(message);
                    }
                }
                Some(Err(error)) => {
                    tracing::info!("the stream {} is followed anew: {error}", self.stream);
                    self.messages = None;
                }
                None => self.messages = None,
            }
        }
    }

    /// Whether the stream's leader has no message after the last one that was returned.
    async fn ends_here(&mut self) -> bool {
        let first = self.link.has_after(self.stream, self.returned).await;
        let has_more = first.inspect_err(|e| tracing::warn!("the end of the stream {} is not known: {e}", self.stream));
        !has_more.unwrap_or(true)
    }

    /// Makes the consumer, and returns the number of messages that there are for it.
    async fn consume(&mut self) -> Result<u64, StoreError> {
        let unreachable = |e: String| StoreError::Unreachable(format!("following {}: {e}", self.stream));
        let config = OrderedConfig {
            deliver_subject: self.link.inbox(),
            headers_only: self.headers_only,
            filter_subject: subjects(self.stream),
            deliver_policy: self.policy,
            ..OrderedConfig::default()
        };
        self.made_at = self.link.last_sequence(self.stream).await?;
        let made = self.link.context().create_consumer_on_stream(config, self.stream).await;
        let denied = || self.link.denied(&format!("$JS.API.CONSUMER.CREATE.{}", self.stream));
        let consumer = made.map_err(|e| denied().unwrap_or_else(|| unreachable(e.to_string())))?;
        let pending = consumer.cached_info().num_pending;
        self.messages = Some(consumer.messages().await.map_err(|e| unreachable(e.to_string()))?);
        Ok(pending)
    }
}

/// A job as the last message of its log says.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSeen {
    /// The job.
    pub name: JobName,
    /// The sequence of the message, by which others can find its events again.
    pub sequence: u64,
    /// When it was stored, in nanoseconds since 1970 on a server's clock.
    pub stored: i128,
    /// The host that wrote the message.
    pub writer: Owner,
    /// Who may append.
    pub standing: Standing<Owner>,
    /// What a host needs to carry the job out.
    pub needs: Needs,
    /// The picture of the job: JSON.
    pub head: String,
    /// The events of the message: a JSON array; empty if there are none.
    pub events: String,
}

impl JobSeen {
    fn of(message: &Message) -> Option<Self> {
        let (member, job) = job_of(&message.subject)?;
        let (host, life) = message.header(ID)?.rsplit_once('#')?;
        let incarnation = life.split('.').next()?.to_owned();
        Some(Self {
            name: JobName { member, job },
            sequence: message.sequence,
            stored: message.stored,
            writer: Owner { host: host.to_owned(), incarnation },
            standing: serde_json::from_str(message.header(STANDING)?).ok()?,
            needs: message.header(NEEDS).and_then(|needs| serde_json::from_str(needs).ok()).unwrap_or_default(),
            head: message.header(HEAD).unwrap_or_default().to_owned(),
            events: message.header(EVENTS).unwrap_or_default().to_owned(),
        })
    }
}

/// Follows the logs of all jobs by their headers: first the last message of each job, then each new message. That is a
/// host's list of jobs, its queue, and its events.
pub struct Jobs {
    watch: Watch,
}

impl Jobs {
    /// Begins with the last message of each job.
    pub fn latest(link: Link) -> Self {
        Self { watch: Watch::latest(link, LOG, true) }
    }

    /// Tells those who read how far it is.
    pub fn for_readers(self, reads: &Reads) -> Self {
        Self { watch: self.watch.telling(reads.heard()) }
    }

    /// Begins after a message, for the events since.
    pub fn after(link: Link, sequence: u64) -> Self {
        Self { watch: Watch::after(link, LOG, true, sequence) }
    }

    /// The next message; `None` once all messages of before were seen. Waits as long as the store is away.
    pub async fn next(&mut self) -> Option<JobSeen> {
        loop {
            match self.watch.next().await {
                Seen::CaughtUp => return None,
                Seen::Message(message) => match JobSeen::of(&message) {
                    Some(seen) => return Some(seen),
                    None => tracing::warn!(
                        "the message {} of {} has no readable head, and is passed over",
                        message.sequence,
                        message.subject
                    ),
                },
            }
        }
    }
}
