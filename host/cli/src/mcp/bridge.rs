//! Relays messages between an MCP client on stdin and a host.
//!
//! Messages of protocol version 2026-07-28 are self-describing; over HTTP, part of the description is repeated in
//! headers. An older client begins with `initialize`, which opens a session at the host. If that host ends, another one
//! is found, and the client's `initialize` is repeated there.

use std::{
    collections::HashMap,
    io, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use guild_client::{Head, Relay, RelayResponse};
use guild_contract::rpc::code::INTERNAL_ERROR;
use serde_json::{Value, json, value::RawValue};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::{Mutex as AsyncMutex, mpsc},
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    LocatedHost, Locator, is_gone,
    message::{Envelope, INITIALIZE, Message, error, one_line},
    refusal,
};
use crate::failure::Failure;

/// How many times to send a message if the host ends before it is delivered.
const MAX_ATTEMPTS: usize = 3;
/// The maximum size of a client's message, without its newline.
const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;
/// The capacity of the queue of messages to the client.
const QUEUE_CAPACITY: usize = 64;
/// How long requests may take after the client has closed its end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout for closing a session, and for writing the last messages.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before the connection for messages of the host is opened again.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

const INITIALIZED: &str = "notifications/initialized";
const LISTEN: &str = "subscriptions/listen";

/// Relays messages from `input` to the host, and the host's messages to `output`, until the input ends or `stop` is
/// ready.
///
/// Each message waits for the host in a task of its own, so the end of the input and `stop` are noticed at any time.
pub(super) async fn run(
    locator: Locator,
    found: LocatedHost,
    mut input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> Result<(), Failure> {
    let (out, messages) = mpsc::channel(QUEUE_CAPACITY);
    let mut writing = tokio::spawn(write(output, messages));
    let bridge = Arc::new(Bridge {
        locator,
        host: AsyncMutex::new(Host { found: Some(found), link: None }),
        opening: Mutex::default(),
        pending: Mutex::default(),
        out,
    });
    let mut tasks = JoinSet::new();
    // Cancelled when the last message with priority was delivered.
    let mut turn = CancellationToken::new();
    turn.cancel();
    let mut line = Vec::new();
    let ended = loop {
        let mut rest = (&mut input).take((MAX_LINE_BYTES + 1 - line.len()) as u64);
        tokio::select! {
            read = rest.read_until(b'\n', &mut line) => {
                // The last line may lack a newline.
                if read.is_err() || line.is_empty() {
                    break Ok(());
                }
                if line.len() > MAX_LINE_BYTES && !line.ends_with(b"\n") {
                    break Err(Failure::error(format!("a message of the client is longer than {MAX_LINE_BYTES} bytes")));
                }
                let message = match Message::read(mem::take(&mut line)) {
                    Ok(Some(message)) if !bridge.cancels(&message) => Ok(message),
                    Ok(_) => continue,
                    Err(refused) => Err(refused),
                };
                let before = turn.clone();
                let mut done = None;
                if let Ok(message) = &message && message.comes_first() {
                    turn = CancellationToken::new();
                    done = Some(turn.clone().drop_guard());
                }
                let cancellation = message.as_ref().map(|message| bridge.register(message)).unwrap_or_default();
                let bridge = bridge.clone();
                tasks.spawn(async move {
                    before.cancelled().await;
                    match message {
                        Ok(message) => bridge.relay(&message, &cancellation).await,
                        Err(refused) => bridge.send_to_client(refused.answer()).await,
                    }
                    drop(done);
                });
            }
            Some(_) = tasks.join_next() => {}
            () = &mut stop => break Ok(()),
            // The output is closed.
            _ = &mut writing => break Ok(()),
        }
    };
    bridge.stop_listening();
    if timeout(DRAIN_TIMEOUT, async { while tasks.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!("requests without an answer {DRAIN_TIMEOUT:?} after the last message are given up");
    }
    tasks.shutdown().await;
    bridge.close().await;
    drop(bridge);
    let _ = timeout(CLOSE_TIMEOUT, &mut writing).await;
    ended
}

/// Writes messages, one per line.
async fn write(mut output: impl AsyncWrite + Unpin, mut messages: mpsc::Receiver<String>) -> io::Result<()> {
    while let Some(mut message) = messages.recv().await {
        message.push('\n');
        output.write_all(message.as_bytes()).await?;
        output.flush().await?;
    }
    Ok(())
}

/// The present host.
#[derive(Default)]
struct Host {
    found: Option<LocatedHost>,
    /// `None` until the client's session is opened there.
    link: Option<Arc<Link>>,
}

impl Host {
    /// Forgets a host that is gone or was replaced.
    fn lose(&mut self) -> Option<LocatedHost> {
        self.link = None;
        let lost = self.found.take();
        if let Some(LocatedHost { relay, .. }) = &lost {
            tracing::info!("the host at {} is gone or was replaced; looking for a host", relay.endpoint());
        }
        lost
    }
}

/// A connection to a host, with the client's session if it opened one.
struct Link {
    relay: Relay,
    session: OnceLock<Head>,
    listening: Mutex<Option<AbortHandle>>,
}

impl Link {
    fn of(relay: Relay) -> Self {
        Self { relay, session: OnceLock::new(), listening: Mutex::default() }
    }

    async fn send(&self, message: &Message) -> Result<RelayResponse, guild_client::Error> {
        // The message that opens a session does not belong to one.
        let of_session = self.session.get().filter(|_| !message.is(INITIALIZE));
        let head = message.head.as_ref().or(of_session).cloned().unwrap_or_default();
        self.relay.send(message.text.clone(), &head).await
    }

    /// Stores the session that an `initialize` has opened.
    fn opened(&self, session: Option<String>, answer: &str) {
        let result = serde_json::from_str::<Value>(answer).ok();
        let version = result.as_ref().and_then(|answer| answer.pointer("/result/protocolVersion")?.as_str());
        if let (Some(id), Some(version)) = (session, version) {
            let _ = self.session.set(Head::of_session(&id, version));
        }
    }

    /// Relays the host's own messages in the session until the session ends.
    fn listen(&self, out: mpsc::Sender<String>) {
        let Some(head) = self.session.get().cloned() else { return };
        let relay = self.relay.clone();
        let listening = tokio::spawn(async move {
            while let Ok(mut response) = relay.listen(&head).await {
                if response.status != 200 {
                    return;
                }
                while let Ok(Some(message)) = response.next().await {
                    if out.send(message).await.is_err() {
                        return;
                    }
                }
                sleep(RECONNECT_DELAY).await;
            }
        });
        let before = lock(&self.listening).replace(listening.abort_handle());
        if let Some(before) = before {
            before.abort();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(listening) = lock(&self.listening).take() {
            listening.abort();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Bridge {
    locator: Locator,
    host: AsyncMutex<Host>,
    /// The client's `initialize`, to be repeated at another host.
    opening: Mutex<Option<String>>,
    /// Pending requests by id, which are cancelled by closing their connection, and whether they listen.
    pending: Mutex<HashMap<String, (CancellationToken, bool)>>,
    out: mpsc::Sender<String>,
}

impl Bridge {
    async fn send_to_client(&self, message: String) {
        let _ = self.out.send(message).await;
    }

    /// Registers a message, and returns the token that cancels it. Without a session, closing the connection cancels it
    /// at the host; in a session, the client's cancellation is relayed like any other message.
    fn register(&self, message: &Message) -> CancellationToken {
        let cancellation = CancellationToken::new();
        if let (Some(id), Some(_)) = (&message.id, &message.head) {
            lock(&self.pending).insert(id.clone(), (cancellation.clone(), message.is(LISTEN)));
        }
        cancellation
    }

    /// Cancels the request that the message cancels, if closing the connection does that, and returns whether it did.
    fn cancels(&self, message: &Message) -> bool {
        let cancellation = message.cancels.as_ref().and_then(|id| lock(&self.pending).remove(id));
        cancellation.is_some_and(|(cancellation, _)| {
            cancellation.cancel();
            true
        })
    }

    fn stop_listening(&self) {
        for (cancellation, listens) in lock(&self.pending).values() {
            if *listens {
                cancellation.cancel();
            }
        }
    }

    /// Relays a message and its answers.
    async fn relay(&self, message: &Message, cancellation: &CancellationToken) {
        let relayed = self.try_to_relay(message, cancellation).await;
        if let Some(id) = &message.id {
            lock(&self.pending).remove(id);
        }
        match (relayed, &message.id) {
            (Ok(()), _) => {}
            (Err(why), Some(id)) => self.send_to_client(error(id, INTERNAL_ERROR, &why)).await,
            (Err(why), None) => tracing::warn!("the host did not take a notification: {why}"),
        }
    }

    async fn try_to_relay(&self, message: &Message, cancellation: &CancellationToken) -> Result<(), String> {
        let mut gone = "the host is gone".to_owned();
        for _ in 0..MAX_ATTEMPTS {
            let Some(link) = self.link().await? else { continue };
            let Some(sent) = cancellation.run_until_cancelled(link.send(message)).await else { return Ok(()) };
            match sent {
                Ok(response) if response.status == 404 && message.head.is_none() && link.session.get().is_some() => {
                    gone = "the host has no such session".to_owned();
                    self.lost(&link, false).await;
                }
                Ok(response) => {
                    let delivered = cancellation.run_until_cancelled(self.deliver(&link, message, response)).await;
                    return delivered.unwrap_or(Ok(()));
                }
                Err(error) if is_gone(&error) => {
                    gone = error.to_string();
                    self.lost(&link, true).await;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Err(gone)
    }

    /// The connection to the host, with a session if the client opened one; `None` if the host ended in between.
    /// Concurrent calls wait for the first one.
    async fn link(&self) -> Result<Option<Arc<Link>>, String> {
        let mut host = self.host.lock().await;
        let is_changed = host.found.as_ref().is_some_and(|found| !found.is_unchanged());
        // A private host ends with its last client, so this remains one until the search has ended.
        let _before = if is_changed { host.lose() } else { None };
        if let Some(link) = &host.link {
            return Ok(Some(link.clone()));
        }
        let relay = match &host.found {
            Some(found) => found.relay.clone(),
            None => {
                let found = self.locator.find().await.map_err(|failure| failure.message.unwrap_or_default())?;
                host.found.insert(found).relay.clone()
            }
        };
        let link = Arc::new(Link::of(relay));
        match self.open(&link).await {
            Ok(()) => {
                host.link = Some(link.clone());
                Ok(Some(link))
            }
            Err(error) if is_gone(&error) => {
                host.lose();
                Ok(None)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Repeats the client's `initialize`, if it sent one.
    async fn open(&self, link: &Link) -> Result<(), guild_client::Error> {
        let Some(opening) = lock(&self.opening).clone() else { return Ok(()) };
        let mut response = link.relay.send(opening, &Head::default()).await?;
        let session = response.session.take();
        while let Some(answer) = response.next().await? {
            link.opened(session.clone(), &answer);
        }
        if let Some(head) = link.session.get() {
            let initialized = json!({"jsonrpc": "2.0", "method": INITIALIZED}).to_string();
            link.relay.send(initialized, head).await?;
            link.listen(self.out.clone());
        }
        Ok(())
    }

    /// Forgets a session that the host has closed, or the host if it is gone.
    async fn lost(&self, link: &Arc<Link>, is_gone: bool) {
        let mut host = self.host.lock().await;
        if !host.link.as_ref().is_some_and(|now| Arc::ptr_eq(now, link)) {
            return;
        }
        if is_gone {
            host.lose();
        } else {
            tracing::info!("the host at {} has closed the session; opening it again", link.relay.endpoint());
            host.link = None;
        }
    }

    /// Closes the session, and ends the use of the host.
    async fn close(&self) {
        let Host { found, link } = mem::take(&mut *self.host.lock().await);
        if let Some((link, head)) = link.as_ref().and_then(|link| Some((link, link.session.get()?))) {
            let _ = timeout(CLOSE_TIMEOUT, link.relay.end(head)).await;
        }
        if let Some(found) = found {
            found.end().await;
        }
    }

    /// Relays the response to a message. A request without an answer is an error.
    async fn deliver(&self, link: &Link, message: &Message, mut response: RelayResponse) -> Result<(), String> {
        let session = response.session.take();
        let mut is_answered = message.id.is_none();
        while let Some(text) = response.next().await.map_err(|e| e.to_string())? {
            let Some(text) = one_line(text) else { continue };
            let answers = serde_json::from_str::<Envelope<'_>>(&text);
            let Ok(answers) = answers else { return Err(refusal(&response, &text)) };
            // The host refused the message before it read the id, or the message has none.
            let is_to_this = message.id.is_some() && answers.id.map(RawValue::get) == message.id.as_deref();
            if response.status >= 400 && !is_to_this {
                let (Some(id), Some(refused)) = (message.id.as_ref().filter(|_| response.status == 400), answers.error)
                else {
                    return Err(refusal(&response, &text));
                };
                // The host did not accept it as a message. The error's code says why.
                self.send_to_client(error(id, refused.code, &refused.message)).await;
                return Ok(());
            }
            if answers.method.is_none() {
                is_answered = true;
                if message.is(INITIALIZE) {
                    link.opened(session.clone(), &text);
                    *lock(&self.opening) = Some(message.text.clone());
                }
            }
            // The answer to a message without an id is dropped.
            if message.id.is_some() || answers.method.is_some() {
                self.send_to_client(text).await;
            }
        }
        if message.is(INITIALIZED) {
            link.listen(self.out.clone());
        }
        if is_answered { Ok(()) } else { Err(format!("the host answered HTTP {} and nothing else", response.status)) }
    }
}
