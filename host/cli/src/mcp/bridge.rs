//! From lines to messages of a host, and back.
//!
//! A client of 2026-07-28 says with each message what it is; over HTTP part of that stands in headers, too. An older one
//! begins with `initialize`, which opens a session at the host; where that host goes away, another one is found, and told
//! what the client said at first.

use std::{
    collections::HashMap,
    io, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use guild_client::{Coming, Head, Relay};
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
    Found, Place, is_gone,
    message::{Envelope, INITIALIZE, Message, error, one_line},
    refusal,
};
use crate::failure::Failure;

/// How often a message is tried to be carried, where the host goes away before it has it.
const TRIES: usize = 3;
/// The longest message of a client that is read.
const LINE_BYTES: usize = 64 * 1024 * 1024;
/// Messages that wait to be written.
const AHEAD: usize = 64;
/// How long what is under way may take once the client says no more.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// How long a host may take to close a session.
const LAST_WORD: Duration = Duration::from_secs(1);
/// Between two connections on which the host can say something by itself.
const AGAIN: Duration = Duration::from_secs(1);

const INITIALIZED: &str = "notifications/initialized";
const LISTEN: &str = "subscriptions/listen";

/// Carries what is said on `input` to the host, and what it says to `output`, until the input ends or `stop` is ready.
///
/// Whatever waits for the host is a task of its own: the end of the input, and `stop`, are seen at any time.
pub(super) async fn run(
    place: Place,
    found: Found,
    mut input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> Result<(), Failure> {
    let (out, messages) = mpsc::channel(AHEAD);
    let mut writing = tokio::spawn(write(output, messages));
    let bridge = Arc::new(Bridge {
        place,
        host: AsyncMutex::new(Host { found: Some(found), link: None }),
        opening: Mutex::default(),
        under_way: Mutex::default(),
        out,
    });
    let mut carried = JoinSet::new();
    // What the next message comes after.
    let mut turn = CancellationToken::new();
    turn.cancel();
    let mut line = Vec::new();
    let ended = loop {
        let mut rest = (&mut input).take((LINE_BYTES - line.len()) as u64);
        tokio::select! {
            read = rest.read_until(b'\n', &mut line) => {
                // The last line may have no end.
                if read.is_err() || line.is_empty() {
                    break Ok(());
                }
                if line.len() == LINE_BYTES {
                    break Err(Failure::error(format!("a message of the client is longer than {LINE_BYTES} bytes")));
                }
                let message = match Message::read(&mem::take(&mut line)) {
                    Ok(Some(message)) if !bridge.gives_up(&message) => Ok(message),
                    Ok(_) => continue,
                    Err(refused) => Err(refused),
                };
                let before = turn.clone();
                let mut done = None;
                if let Ok(message) = &message && message.comes_first() {
                    turn = CancellationToken::new();
                    done = Some(turn.clone().drop_guard());
                }
                let given_up = message.as_ref().map(|message| bridge.begins(message)).unwrap_or_default();
                let bridge = bridge.clone();
                carried.spawn(async move {
                    before.cancelled().await;
                    match message {
                        Ok(message) => bridge.carry(&message, &given_up).await,
                        Err(refused) => bridge.say(refused.answer()).await,
                    }
                    drop(done);
                });
            }
            Some(_) = carried.join_next() => {}
            () = &mut stop => break Ok(()),
            // Nobody reads what is said.
            _ = &mut writing => break Ok(()),
        }
    };
    bridge.stop_listening();
    if timeout(LAST_ANSWERS, async { while carried.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!("what has no answer {LAST_ANSWERS:?} after the last message is given up");
    }
    carried.shutdown().await;
    bridge.close().await;
    drop(bridge);
    let _ = timeout(LAST_WORD, &mut writing).await;
    ended
}

/// Writes messages, one a line.
async fn write(mut output: impl AsyncWrite + Unpin, mut messages: mpsc::Receiver<String>) -> io::Result<()> {
    while let Some(mut message) = messages.recv().await {
        message.push('\n');
        output.write_all(message.as_bytes()).await?;
        output.flush().await?;
    }
    Ok(())
}

/// The host, as far as it is known.
#[derive(Default)]
struct Host {
    found: Option<Found>,
    /// None where the client has no session there yet.
    link: Option<Arc<Link>>,
}

impl Host {
    /// It is gone.
    async fn lose(&mut self) {
        self.link = None;
        if let Some(Found { relay, own, .. }) = self.found.take() {
            tracing::info!("the host at {} is gone, or another one; it is looked for", relay.endpoint());
            if let Some(own) = own {
                own.end().await;
            }
        }
    }
}

/// What the client has at a host: a session, where it opened one.
struct Link {
    relay: Relay,
    session: OnceLock<Head>,
    listening: Mutex<Option<AbortHandle>>,
}

impl Link {
    fn of(relay: Relay) -> Self {
        Self { relay, session: OnceLock::new(), listening: Mutex::default() }
    }

    async fn send(&self, message: &Message) -> Result<Coming, guild_client::Error> {
        // What opens a session is of none.
        let of_session = self.session.get().filter(|_| !message.is(INITIALIZE));
        let head = message.head.as_ref().or(of_session).cloned().unwrap_or_default();
        self.relay.send(message.text.clone(), &head).await
    }

    /// Remembers the session that an `initialize` has opened.
    fn opened(&self, session: Option<String>, answer: &str) {
        let result = serde_json::from_str::<Value>(answer).ok();
        let version = result.as_ref().and_then(|answer| answer.pointer("/result/protocolVersion")?.as_str());
        if let (Some(id), Some(version)) = (session, version) {
            let _ = self.session.set(Head::of_session(&id, version));
        }
    }

    /// Hears what the host says by itself in the session, until it has ended.
    fn listen(&self, out: mpsc::Sender<String>) {
        let Some(head) = self.session.get().cloned() else { return };
        let relay = self.relay.clone();
        let listening = tokio::spawn(async move {
            while let Ok(mut coming) = relay.listen(&head).await {
                if coming.status != 200 {
                    return;
                }
                while let Ok(Some(message)) = coming.next().await {
                    if out.send(message).await.is_err() {
                        return;
                    }
                }
                sleep(AGAIN).await;
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
    place: Place,
    host: AsyncMutex<Host>,
    /// The client's `initialize`, for a host that has not heard it.
    opening: Mutex<Option<String>>,
    /// Requests that are given up by being dropped, by their ids, and whether they listen.
    under_way: Mutex<HashMap<String, (CancellationToken, bool)>>,
    out: mpsc::Sender<String>,
}

impl Bridge {
    async fn say(&self, message: String) {
        let _ = self.out.send(message).await;
    }

    /// A message is to be carried: what tells that it is given up. A host hears of that by the end of the connection,
    /// or, where there is a session, in a message like any other.
    fn begins(&self, message: &Message) -> CancellationToken {
        let given_up = CancellationToken::new();
        if let (Some(id), Some(_)) = (&message.id, &message.head) {
            lock(&self.under_way).insert(id.clone(), (given_up.clone(), message.is(LISTEN)));
        }
        given_up
    }

    /// Whether a message only gives up a request that is dropped for it.
    fn gives_up(&self, message: &Message) -> bool {
        let given_up = message.cancels.as_ref().and_then(|id| lock(&self.under_way).remove(id));
        given_up.is_some_and(|(given_up, _)| {
            given_up.cancel();
            true
        })
    }

    fn stop_listening(&self) {
        for (given_up, listens) in lock(&self.under_way).values() {
            if *listens {
                given_up.cancel();
            }
        }
    }

    /// Carries a message, and says what is answered.
    async fn carry(&self, message: &Message, given_up: &CancellationToken) {
        let carried = self.try_to_carry(message, given_up).await;
        if let Some(id) = &message.id {
            lock(&self.under_way).remove(id);
        }
        match (carried, &message.id) {
            (Ok(()), _) => {}
            (Err(why), Some(id)) => self.say(error(id, INTERNAL_ERROR, &why)).await,
            (Err(why), None) => tracing::warn!("a notification was not taken: {why}"),
        }
    }

    async fn try_to_carry(&self, message: &Message, given_up: &CancellationToken) -> Result<(), String> {
        let mut gone = "the host went away".to_owned();
        for _ in 0..TRIES {
            let Some(link) = self.link().await? else { continue };
            let Some(sent) = given_up.run_until_cancelled(link.send(message)).await else { return Ok(()) };
            match sent {
                Ok(coming) if coming.status == 404 && message.head.is_none() && link.session.get().is_some() => {
                    gone = "the host has no such session".to_owned();
                    self.lost(&link, false).await;
                }
                Ok(coming) => {
                    let delivered = given_up.run_until_cancelled(self.deliver(&link, message, coming)).await;
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

    /// The host, with a session where the client opened one; `None` where it went away meanwhile. Others wait for what one
    /// finds.
    async fn link(&self) -> Result<Option<Arc<Link>>, String> {
        let mut host = self.host.lock().await;
        if host.found.as_ref().is_some_and(|found| !found.is_as_it_was()) {
            host.lose().await;
        }
        if let Some(link) = &host.link {
            return Ok(Some(link.clone()));
        }
        let relay = match &host.found {
            Some(found) => found.relay.clone(),
            None => {
                let found = self.place.find().await.map_err(|failure| failure.message.unwrap_or_default())?;
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
                host.lose().await;
                Ok(None)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Opens a session as the client did, if it did.
    async fn open(&self, link: &Link) -> Result<(), guild_client::Error> {
        let Some(opening) = lock(&self.opening).clone() else { return Ok(()) };
        let mut coming = link.relay.send(opening, &Head::default()).await?;
        let session = coming.session.take();
        while let Some(answer) = coming.next().await? {
            link.opened(session.clone(), &answer);
        }
        if let Some(head) = link.session.get() {
            let initialized = json!({"jsonrpc": "2.0", "method": INITIALIZED}).to_string();
            link.relay.send(initialized, head).await?;
            link.listen(self.out.clone());
        }
        Ok(())
    }

    /// The host has forgotten the session, or is gone itself.
    async fn lost(&self, link: &Arc<Link>, is_gone: bool) {
        let mut host = self.host.lock().await;
        if !host.link.as_ref().is_some_and(|now| Arc::ptr_eq(now, link)) {
            return;
        }
        if is_gone {
            host.lose().await;
        } else {
            tracing::info!("the host at {} has closed the session; it is opened anew", link.relay.endpoint());
            host.link = None;
        }
    }

    /// Takes leave.
    async fn close(&self) {
        let Host { found, link } = mem::take(&mut *self.host.lock().await);
        if let Some((link, head)) = link.as_ref().and_then(|link| Some((link, link.session.get()?))) {
            let _ = timeout(LAST_WORD, link.relay.end(head)).await;
        }
        if let Some(own) = found.and_then(|found| found.own) {
            own.end().await;
        }
    }

    /// Says what comes back for a message; an error where it had to be answered, and was not.
    async fn deliver(&self, link: &Link, message: &Message, mut coming: Coming) -> Result<(), String> {
        let session = coming.session.take();
        let mut is_answered = message.id.is_none();
        while let Some(text) = coming.next().await.map_err(|e| e.to_string())? {
            let Some(text) = one_line(text) else { continue };
            let answers = serde_json::from_str::<Envelope<'_>>(&text);
            let Ok(answers) = answers else { return Err(refusal(&coming, &text)) };
            // It was refused before its id was read, or has none.
            let is_to_this = message.id.is_some() && answers.id.map(RawValue::get) == message.id.as_deref();
            if coming.status >= 400 && !is_to_this {
                return Err(refusal(&coming, &text));
            }
            if answers.method.is_none() {
                is_answered = true;
                if message.is(INITIALIZE) {
                    link.opened(session.clone(), &text);
                    *lock(&self.opening) = Some(message.text.clone());
                }
            }
            // Nobody waits for an answer to what is none.
            if message.id.is_some() || answers.method.is_some() {
                self.say(text).await;
            }
        }
        if message.is(INITIALIZED) {
            link.listen(self.out.clone());
        }
        if is_answered { Ok(()) } else { Err(format!("the host answered HTTP {} and nothing else", coming.status)) }
    }
}
