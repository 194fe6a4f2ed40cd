//! The connection to NATS. Each write has a condition, and is settled by the log ([`crate::rules::settle`]).

mod servers;

use std::{
    collections::BTreeSet,
    fmt::Display,
    future::pending,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use async_nats::{
    Client, ConnectOptions, Event, HeaderMap, HeaderValue, Request, RequestErrorKind, ServerError as FromServer,
    StatusCode, header,
    jetstream::{
        self, Context,
        context::{CreateStreamErrorKind, GetStreamErrorKind},
        stream::LastRawMessageErrorKind,
    },
};
use bytes::Bytes;
use futures::{StreamExt as _, executor::block_on};
use guild_telemetry::record;
use serde::Deserialize;
use serde_json::json;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    time::{Instant, sleep, timeout},
};

pub use self::servers::Server;
use crate::{
    error::StoreError,
    rules::{Settled, settle},
    setup::{INBOX, inbox},
    streams::{Capacity, LOG, NAMES, all, check, named},
};

/// The header with the id of a message, which its writer chooses: `HOST#INCARNATION.N`.
pub(crate) const ID: &str = "Guild-Id";
/// The oldest NATS server that is known to keep the promises that this crate relies on.
const MINIMUM: (u64, u64) = (2, 14);
/// The wait for one answer. An election takes longer, and the request is sent again then.
const ANSWER: Duration = Duration::from_secs(2);
/// The waits between two tries, the first and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
/// The messages that one read asks for.
const BATCH: usize = 256;
/// Bytes of a message that a server has to take: NATS' default.
const MAX_PAYLOAD: usize = 1024 * 1024;
/// The interval of pings. A connection is given up after two without an answer: the host of a server that stands still
/// closes no connection, and a host that waits for one is taken for dead after [`crate::rules::Times::silent`].
const PING: Duration = Duration::from_secs(1);
/// The wait for a server's first answer on a new connection, before the next server is tried.
const HANDSHAKE: Duration = Duration::from_secs(3);
/// The wait for a server at start.
const CONNECT: Duration = Duration::from_secs(10);

/// How to reach the servers.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The servers' addresses: `tls://n1:4222`.
    pub servers: Vec<String>,
    /// This host's name, which is its client's name and part of its inbox.
    pub host: String,
    /// The file with this host's credentials: an nkey's seed, or a `.creds` file of a JWT.
    pub credentials: Option<PathBuf>,
    /// The file with the certificate of the authority that signed the servers' certificates.
    pub authority: Option<PathBuf>,
}

/// The connection to the servers. It is cheap to clone, and connects again by itself.
#[derive(Clone)]
pub struct Link {
    client: Client,
    context: Context,
    denials: Denials,
}

/// The subjects to which a server has not let this client publish, and those of answers that it may not hear. The server
/// tells so beside the request, which is not answered.
#[derive(Clone, Default)]
struct Denials(Arc<Mutex<BTreeSet<String>>>);

impl Denials {
    /// The most subjects that are remembered.
    const MOST: usize = 64;

    fn note(&self, event: &Event) {
        let Event::ServerError(FromServer::Other(text)) = event else { return };
        let Some((_, denied)) = text.split_once("Permissions Violation for ") else { return };
        let mut parts = denied.split('"');
        let Some(subject) = parts.next().zip(parts.next()).map(|(_, subject)| subject) else { return };
        // The subjects of answers have a random end.
        let subject = if subject.starts_with(INBOX) { INBOX } else { subject };
        let mut subjects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if subjects.len() >= Self::MOST {
            subjects.clear();
        }
        subjects.insert(subject.to_owned());
    }

    /// The error for a request to a subject that was denied since the last one.
    fn take(&self, subject: &str) -> Option<StoreError> {
        let mut subjects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let why = || StoreError::Denied(format!("it may not publish to {subject}"));
        subjects.remove(subject).then(why)
    }

    /// The error for a client that may not hear the answers to its name.
    fn unheard(&self) -> Option<StoreError> {
        let subjects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let why = "it may not hear the answers to the host of its name; `host` and `credentials` are of two hosts";
        subjects.contains(INBOX).then(|| StoreError::Denied(why.to_owned()))
    }
}

/// The state of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamState {
    /// The stream.
    pub stream: &'static str,
    /// Bytes of its messages.
    pub bytes: u64,
    /// The most bytes, if they are limited.
    pub max_bytes: Option<u64>,
    /// The number of its messages.
    pub messages: u64,
    /// The node that leads it; none in an election, and where there is one node.
    pub leader: Option<String>,
    /// The other nodes that have it, and whether they are up to date.
    pub replicas: Vec<(String, bool)>,
}

/// A stored message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) subject: String,
    pub(crate) sequence: u64,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Bytes,
    /// When it was stored, in nanoseconds since 1970 on the clock of a server.
    pub(crate) stored: i128,
}

impl Message {
    /// The message of an answer to a direct get.
    fn direct(subject: &str, answer: async_nats::Message) -> Option<Self> {
        let headers = answer.headers?;
        let sequence = header_text(&headers, "Nats-Sequence")?.parse().ok()?;
        let stored = header_text(&headers, "Nats-Time-Stamp").and_then(|time| time.parse::<jiff::Timestamp>().ok());
        let subject = header_text(&headers, "Nats-Subject").unwrap_or(subject).to_owned();
        let stored = stored.map_or(0, jiff::Timestamp::as_nanosecond);
        Some(Self { subject, sequence, headers, payload: answer.payload, stored })
    }

    /// The message that a consumer was given.
    pub(crate) fn delivered(message: jetstream::Message) -> Option<Self> {
        let info = message.info().ok()?;
        let (sequence, stored) = (info.stream_sequence, info.published.unix_timestamp_nanos());
        let async_nats::Message { subject, headers, payload, .. } = message.message;
        let headers = headers.unwrap_or_default();
        Some(Self { subject: subject.to_string(), sequence, headers, payload, stored })
    }

    /// The text of one of its headers.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header_text(&self.headers, name)
    }
}

/// A message to be stored.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) stream: &'static str,
    pub(crate) subject: String,
    /// The sequence of the subject's last message; 0 if there is none.
    pub(crate) expected: u64,
    /// The id of the write, which is no other's.
    pub(crate) id: String,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Bytes,
}

/// The fate of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is stored; `is_overtaken` tells whether the subject has a later message.
    Stored { sequence: u64, is_overtaken: bool },
    /// It is not stored, and never will be: the subject has another message in its place.
    Refused,
}

/// An answer to a write, if there was one.
enum Answer {
    Stored(u64),
    /// Nothing is known: the log has to tell.
    Unclear(String),
    /// The server will not store this message.
    Never(StoreError),
}

#[derive(Deserialize)]
struct Acknowledgement {
    seq: Option<u64>,
    error: Option<ServerError>,
}

#[derive(Deserialize)]
struct ServerError {
    code: u16,
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

impl Link {
    /// Connects.
    ///
    /// # Errors
    ///
    /// Returns an error when no server answers, or when the servers deny the credentials.
    pub async fn connect(options: &Options) -> Result<Self, StoreError> {
        let denials = Denials::default();
        let noted = denials.clone();
        let mut connect = ConnectOptions::new()
            .name(&options.host)
            .custom_inbox_prefix(inbox(&options.host))
            .connection_timeout(HANDSHAKE)
            .ping_interval(PING)
            .request_timeout(Some(ANSWER))
            .event_callback(move |event| {
                noted.note(&event);
                async move { tracing::info!("NATS: {event}") }
            });
        if let Some(file) = &options.credentials {
            let named = file.display();
            let unreadable = |e| StoreError::File(format!("the credentials {named} cannot be read: {e}"));
            let strange = |e| StoreError::File(format!("{named} has neither an nkey's seed nor a .creds file: {e}"));
            let text = std::fs::read_to_string(file).map_err(unreadable)?;
            // The seed of an nkey is one word; a `.creds` file has a frame of dashes.
            connect = match text.trim() {
                seed if seed.starts_with("SU") => connect.nkey(seed.to_owned()),
                _ => connect.credentials(&text).map_err(strange)?,
            };
        }
        if let Some(authority) = &options.authority {
            connect = connect.add_root_certificates(authority.clone()).require_tls(true);
        }
        let servers = options.servers.iter().map(|server| server.parse::<async_nats::ServerAddr>());
        let servers: Vec<_> = servers.collect::<Result<_, _>>().map_err(|e| StoreError::Unreachable(e.to_string()))?;
        let failed = |e: &dyn Display| StoreError::Unreachable(e.to_string());
        let thread = connections().map_err(|e| failed(&e))?;
        let connected = thread.spawn(async move { connect.connect(servers).await }).await.map_err(|e| failed(&e))?;
        let client = connected.map_err(|e| match e.kind() {
            async_nats::ConnectErrorKind::AuthorizationViolation | async_nats::ConnectErrorKind::Authentication => {
                StoreError::Denied(e.to_string())
            }
            _ => failed(&e),
        })?;
        let mut context = jetstream::new(client.clone());
        context.set_timeout(ANSWER);
        Ok(Self { client, context, denials })
    }

    /// Makes the streams, or checks those that are there. Only an administrator may make them.
    ///
    /// # Errors
    ///
    /// Returns an error when NATS refuses.
    pub async fn create_streams(&self, capacity: &Capacity) -> Result<(), StoreError> {
        for config in all(capacity) {
            let (mut pause, begun) = (PAUSES.0, Instant::now());
            while let Err(e) = self.context.create_stream(config.clone()).await {
                if let Some(denied) = self.denials.take(&format!("$JS.API.STREAM.CREATE.{}", config.name)) {
                    return Err(denied);
                }
                // A stream that is there stays, whatever its size.
                if matches!(e.kind(), CreateStreamErrorKind::JetStream(error)
                    if error.error_code() == jetstream::ErrorCode::STREAM_NAME_EXIST)
                {
                    break;
                }
                // A cluster that has just started has no leader yet.
                if begun.elapsed() > CONNECT {
                    let why = format!("the stream {} cannot be made: {e}", config.name);
                    return Err(match e.kind() {
                        CreateStreamErrorKind::JetStream(_) => StoreError::NoRoom(format!(
                            "{why} ({} bytes at {} servers)",
                            config.max_bytes, config.num_replicas
                        )),
                        _ => StoreError::Unreachable(why),
                    });
                }
                sleep(pause).await;
                pause = PAUSES.1.min(pause * 2);
            }
        }
        self.check_streams().await
    }

    /// Checks that all streams are there and have the shape that this crate relies on.
    ///
    /// # Errors
    ///
    /// Returns an error that names the stream and the setting.
    pub async fn check_streams(&self) -> Result<(), StoreError> {
        let max = self.client.max_payload();
        if max < MAX_PAYLOAD {
            let reason = format!("takes messages of {max} bytes; set `max_payload: 1MB` or more in its configuration");
            return Err(StoreError::Unfit { server: self.client.server_info().server_name, reason });
        }
        for needed in all(&Capacity::default()) {
            let Some(name) = named(&needed.name) else { continue };
            let stream = self.context.get_stream(name).await.map_err(|e| match e.kind() {
                GetStreamErrorKind::JetStream(error)
                    if error.error_code() == jetstream::ErrorCode::STREAM_NOT_FOUND =>
                {
                    StoreError::Missing(name)
                }
                _ => {
                    let unreachable = || StoreError::Unreachable(format!("the stream {name}: {e}"));
                    self.denials.unheard().unwrap_or_else(unreachable)
                }
            })?;
            check(name, &stream.cached_info().config, &needed)?;
        }
        Ok(())
    }

    /// The time at which the stream of logs was made, in microseconds since 1970 and in hexadecimal digits: another stream
    /// has other sequences.
    ///
    /// # Errors
    ///
    /// Returns an error when the stream cannot be asked for.
    pub async fn log_id(&self) -> Result<String, StoreError> {
        let stream = self.context.get_stream(LOG).await;
        let stream = stream.map_err(|e| StoreError::Unreachable(format!("the stream {LOG}: {e}")))?;
        Ok(format!("{:x}", stream.cached_info().created.unix_timestamp_nanos() / 1000))
    }

    /// The sequence of the last message of a stream, as its leader has it.
    ///
    /// # Errors
    ///
    /// Returns an error when the stream cannot be asked for, and while it has no leader.
    pub(crate) async fn last_sequence(&self, stream: &str) -> Result<u64, StoreError> {
        let unreachable = |e: String| StoreError::Unreachable(format!("the stream {stream}: {e}"));
        let stream = self.context.get_stream(stream).await.map_err(|e| unreachable(e.to_string()))?;
        let info = stream.cached_info();
        // In an election, a server may answer that has not applied what the last leader has acknowledged.
        match &info.cluster {
            Some(cluster) if cluster.leader.is_none() => Err(unreachable("it has no leader now".to_owned())),
            _ => Ok(info.state.last_sequence),
        }
    }

    /// Whether the leader of a stream has a message of some subjects after a sequence.
    ///
    /// # Errors
    ///
    /// Returns an error when the leader cannot be asked.
    pub(crate) async fn has_after(&self, stream: &str, subjects: &str, sequence: u64) -> Result<bool, StoreError> {
        let unreachable = |e: String| StoreError::Unreachable(format!("the stream {stream}: {e}"));
        let found = self.context.get_stream_no_info(stream).await.map_err(|e| unreachable(e.to_string()))?;
        match found.get_first_raw_message_by_subject(subjects, sequence + 1).await {
            Ok(_) => Ok(true),
            Err(e) if matches!(e.kind(), LastRawMessageErrorKind::NoMessageFound) => Ok(false),
            Err(e) => {
                let denied = self.denials.take(&format!("$JS.API.STREAM.MSG.GET.{stream}"));
                Err(denied.unwrap_or_else(|| unreachable(e.to_string())))
            }
        }
    }

    /// The state of all streams.
    ///
    /// # Errors
    ///
    /// Returns an error when a stream is missing or cannot be asked for.
    pub async fn states(&self) -> Result<Vec<StreamState>, StoreError> {
        let mut states = Vec::new();
        for name in NAMES {
            let unreachable = |e: String| StoreError::Unreachable(format!("the stream {name}: {e}"));
            let stream = self.context.get_stream(name).await.map_err(|e| unreachable(e.to_string()))?;
            let info = stream.cached_info();
            let (leader, replicas) = info.cluster.as_ref().map_or((None, Vec::new()), |cluster| {
                let replicas = cluster.replicas.iter();
                (cluster.leader.clone(), replicas.map(|replica| (replica.name.clone(), replica.current)).collect())
            });
            states.push(StreamState {
                stream: name,
                bytes: info.state.bytes,
                max_bytes: u64::try_from(info.config.max_bytes).ok(),
                messages: info.state.messages,
                leader,
                replicas,
            });
        }
        Ok(states)
    }

    /// Writes a message under its condition, and returns only when its fate is known (rule 3).
    ///
    /// # Errors
    ///
    /// Returns an error when the fate is unknown after `patience`, or when the message can never be stored.
    pub(crate) async fn write(&self, write: &Write, patience: Duration) -> Result<Written, StoreError> {
        let begun = Instant::now();
        let answer = self.write_until(write, patience).await;
        if matches!(answer, Ok(Written::Stored { .. })) {
            record::stored(write.stream, begun.elapsed());
        }
        answer
    }

    async fn write_until(&self, write: &Write, patience: Duration) -> Result<Written, StoreError> {
        let (begun, mut pause) = (Instant::now(), PAUSES.0);
        loop {
            let error = match self.send(write).await {
                Answer::Stored(sequence) => return Ok(Written::Stored { sequence, is_overtaken: false }),
                // An earlier try may be stored, or another message in its place.
                Answer::Never(error) => error,
                Answer::Unclear(why) => StoreError::Unreachable(why),
            };
            let settled = match self.read(write.stream, &write.subject, write.expected + 1).await {
                Ok(after) => {
                    let id = |message: &Message| message.header(ID).unwrap_or_default().to_owned();
                    settle(&write.id, after.iter().map(|message| (message.sequence, id(message))))
                }
                Err(_) => Settled::Unknown,
            };
            match settled {
                Settled::Stored { sequence, is_overtaken } => return Ok(Written::Stored { sequence, is_overtaken }),
                Settled::Refused => return Ok(Written::Refused),
                Settled::Unknown if begun.elapsed() > patience || !matches!(error, StoreError::Unreachable(_)) => {
                    return Err(error);
                }
                Settled::Unknown => {}
            }
            sleep(pause).await;
            pause = PAUSES.1.min(pause * 2);
        }
    }

    async fn send(&self, write: &Write) -> Answer {
        let mut headers = write.headers.clone();
        headers.insert(ID, write.id.as_str());
        headers.insert(header::NATS_EXPECTED_STREAM, write.stream);
        headers.insert(header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(write.expected));
        let request = Request::new().headers(headers).payload(write.payload.clone());
        let answer = match self.client.send_request(write.subject.clone(), request).await {
            Ok(answer) => answer,
            Err(e) => match e.kind() {
                RequestErrorKind::MaxPayloadExceeded | RequestErrorKind::InvalidSubject => {
                    return Answer::Never(StoreError::Invalid {
                        subject: write.subject.clone(),
                        reason: e.to_string(),
                    });
                }
                _ => {
                    let denied = self.denials.take(&write.subject).map(Answer::Never);
                    return denied.unwrap_or_else(|| Answer::Unclear(e.to_string()));
                }
            },
        };
        let error = match serde_json::from_slice(&answer.payload) {
            Ok(Acknowledgement { seq: Some(sequence), error: None }) => return Answer::Stored(sequence),
            Ok(Acknowledgement { error: Some(error), .. }) => error,
            _ => return Answer::Unclear("the answer is no acknowledgement".to_owned()),
        };
        let reason = format!("{} ({})", error.description, error.err_code);
        match error.err_code {
            // The limits of the server, of the account, of the stream, and a stream that is not its condition's.
            10_002 | 10_023 | 10_028 | 10_047 | 10_122 => {
                Answer::Never(StoreError::Full { stream: write.stream, reason })
            }
            10_077 if error.description.contains("maximum") => {
                Answer::Never(StoreError::Full { stream: write.stream, reason })
            }
            10_054 | 10_060 | 10_097 | 10_111 | 10_165 | 10_166 => {
                Answer::Never(StoreError::Invalid { subject: write.subject.clone(), reason })
            }
            _ => Answer::Unclear(format!("{} {reason}", error.code)),
        }
    }

    /// The messages of a subject from a sequence on, in order. A server that lags may lack the newest: nothing may be
    /// decided by a read alone.
    ///
    /// # Errors
    ///
    /// Returns an error when no server answers in time.
    pub(crate) async fn read(
        &self,
        stream: &'static str,
        subject: &str,
        from: u64,
    ) -> Result<Vec<Message>, StoreError> {
        let unreachable = |why: String| StoreError::Unreachable(format!("reading {subject}: {why}"));
        let (mut messages, mut from) = (Vec::<Message>::new(), from);
        loop {
            let inbox = self.client.new_inbox();
            let mut answers = self.client.subscribe(inbox.clone()).await.map_err(|e| unreachable(e.to_string()))?;
            let request = json!({"seq": from.max(1), "next_by_subj": subject, "batch": BATCH}).to_string();
            let api = format!("$JS.API.DIRECT.GET.{stream}");
            let asked = self.client.publish_with_reply(api.clone(), inbox, request.into()).await;
            asked.map_err(|e| unreachable(e.to_string()))?;
            let pending = loop {
                let none = |_| self.denials.take(&api).unwrap_or_else(|| unreachable("no answer".to_owned()));
                let answer = timeout(ANSWER, answers.next()).await.map_err(none)?;
                let answer = answer.ok_or_else(|| unreachable("the connection ended".to_owned()))?;
                let number =
                    |name| answer.headers.as_ref().and_then(|headers| header_text(headers, name)?.parse().ok());
                match answer.status {
                    Some(StatusCode::NOT_FOUND) => break 0,
                    // The end of the batch.
                    Some(status) if status.as_u16() == 204 => break number("Nats-Num-Pending").unwrap_or(0_u64),
                    Some(StatusCode::NO_RESPONDERS) => return Err(unreachable("no stream answers".to_owned())),
                    Some(status) if status != StatusCode::OK => {
                        let why = answer.description.unwrap_or_default();
                        return Err(unreachable(format!("{} {why}", status.as_u16())));
                    }
                    _ => {}
                }
                let message = Message::direct(subject, answer).ok_or_else(|| unreachable("no sequence".to_owned()))?;
                from = message.sequence + 1;
                messages.push(message);
            };
            if pending == 0 {
                return Ok(messages);
            }
        }
    }

    /// The last message of a subject, with the same caution as for [`Self::read`].
    ///
    /// # Errors
    ///
    /// Returns an error when no server answers in time.
    pub(crate) async fn last(&self, stream: &'static str, subject: &str) -> Result<Option<Message>, StoreError> {
        let unreachable = |why: String| StoreError::Unreachable(format!("reading {subject}: {why}"));
        let request = json!({"last_by_subj": subject}).to_string();
        let answer = self.client.request(format!("$JS.API.DIRECT.GET.{stream}"), request.into()).await;
        let answer = answer.map_err(|e| unreachable(e.to_string()))?;
        match answer.status {
            Some(StatusCode::NOT_FOUND) => Ok(None),
            Some(status) if status != StatusCode::OK => Err(unreachable(status.to_string())),
            _ => Message::direct(subject, answer).map(Some).ok_or_else(|| unreachable("no sequence".to_owned())),
        }
    }

    /// Removes the messages of a subject before a sequence, which hosts may not do.
    ///
    /// # Errors
    ///
    /// Returns an error when the servers do not let this client do it, or do not answer.
    pub(crate) async fn purge(&self, stream: &'static str, subject: &str, before: u64) -> Result<(), StoreError> {
        let denied = |e: &dyn std::fmt::Display| {
            StoreError::Denied(format!("removing {subject} from {stream} needs the administrator's credentials: {e}"))
        };
        let found = self.context.get_stream(stream).await.map_err(|e| denied(&e))?;
        found.purge().filter(subject).sequence(before).await.map(drop).map_err(|e| denied(&e))
    }

    /// The name of the server that this host is connected to.
    pub fn server(&self) -> String {
        self.client.server_info().server_name
    }

    pub(crate) fn inbox(&self) -> String {
        self.client.new_inbox()
    }

    /// The error for a request to this subject that was not answered, if the servers have denied it.
    pub(crate) fn denied(&self, subject: &str) -> Option<StoreError> {
        self.denials.take(subject)
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }
}

/// The thread of this process' connections. A connection that is made anew needs threads that may block, for names and
/// certificates. Those of the host's own runtime may all be waiting for this very connection.
fn connections() -> io::Result<&'static Handle> {
    static THREAD: OnceLock<&Handle> = OnceLock::new();
    if let Some(handle) = THREAD.get() {
        return Ok(handle);
    }
    // It is never dropped, which a caller on another runtime could not do.
    let runtime: &Runtime = Box::leak(Box::new(Builder::new_current_thread().enable_all().build()?));
    thread::Builder::new().name("nats".to_owned()).spawn(move || runtime.block_on(pending::<()>()))?;
    // Where two begin at once, there are two threads, of which one has nothing to do.
    Ok(THREAD.get_or_init(|| runtime.handle()))
}

/// A header's value.
fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(HeaderValue::as_str)
}

/// Waits for a future that needs the runtime's clock, on a thread that may block.
pub(crate) fn wait<T>(runtime: &Handle, future: impl Future<Output = T>) -> T {
    let _context = runtime.enter();
    block_on(future)
}
