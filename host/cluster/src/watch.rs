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
/// The pauses after which a consumer whose server lags is made again.
const LAGS: u32 = 20;

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
    /// The number of pauses in which none of the messages of before came.
    waits: u32,
    is_caught_up: bool,
    /// Whether the store does not answer, which was said.
    is_away: bool,
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
            waits: 0,
            is_caught_up: false,
            is_away: false,
        }
    }

    /// The next message; those before it have been handled. Waits as long as the store is away.
    pub(crate) async fn next(&mut self) -> Seen {
        loop {
            let is_behind = self.returned < self.made_at;
            if !is_behind && self.messages.is_some() && !self.is_caught_up {
                self.is_caught_up = true;
                return Seen::CaughtUp;
            }
            // Before, the last message of a subject may still be to come, with those of before it gone.
            if let Some(heard) = self.heard.as_ref().filter(|_| self.is_caught_up) {
                heard.send_if_modified(|heard| replace(heard, self.returned) != self.returned);
            }
            let Some(messages) = &mut self.messages else {
                match self.consume().await {
                    Ok(()) if self.is_away => tracing::warn!("the stream {} is followed again", self.stream),
                    Err(error) if !self.is_away => {
                        tracing::warn!("the stream {} is not followed at the moment: {error}", self.stream);
                    }
                    _ => {}
                }
                self.is_away = self.messages.is_none();
                if self.is_away {
                    sleep(PAUSE).await;
                }
                continue;
            };
            let next = if is_behind {
                let Ok(next) = timeout(PAUSE, messages.next()).await else {
                    self.look_for_end().await;
                    continue;
                };
                next
            } else {
                messages.next().await
            };
            self.waits = 0;
            match next {
                Some(Ok(message)) => {
                    let Some(message) = Message::delivered(message) else { continue };
                    if message.sequence > self.returned {
                        self.policy = DeliverPolicy::ByStartSequence { start_sequence: message.sequence + 1 };
                        self.returned = message.sequence;
                        return Seen::Message(message);
                    }
                    // The client makes a consumer that has had no message again from the first of all on.
                    self.messages = None;
                    sleep(PAUSE).await;
                }
                Some(Err(error)) => {
                    tracing::info!("the stream {} is followed anew: {error}", self.stream);
                    self.messages = None;
                }
                None => self.messages = None,
            }
        }
    }

    /// Asks the stream's leader, while messages of before the consumer are still to come, whether there are any: those of
    /// deleted jobs go after a while. The server with the consumer may lag; another one is chosen if it does for long.
    async fn look_for_end(&mut self) {
        match self.link.has_after(self.stream, &subjects(self.stream), self.returned).await {
            Ok(false) => self.returned = self.made_at,
            Ok(true) if self.waits < LAGS => self.waits += 1,
            Ok(true) => {
                tracing::warn!("a server lags behind with the stream {}, which is followed anew", self.stream);
                (self.messages, self.waits) = (None, 0);
            }
            Err(error) => tracing::warn!("the end of the stream {} is not known: {error}", self.stream),
        }
    }

    /// Makes the consumer.
    async fn consume(&mut self) -> Result<(), StoreError> {
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
        self.messages = Some(consumer.messages().await.map_err(|e| unreachable(e.to_string()))?);
        Ok(())
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
