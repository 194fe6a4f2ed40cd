//! The server under every protocol: it takes a request, asks the script, and sends the answer the way it was told.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    http::{StatusCode, header},
    response::Response,
};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use serde_json::Value;
use tokio::{net::TcpSocket, sync::Notify, task::JoinHandle, time::timeout};

use crate::script::{End, Received, Reply, Script};

/// Requests that are kept for the test to look at; more are only counted, so that a benchmark does not measure them.
const KEPT: usize = 1024;
/// No request is larger.
const MAX_BODY: usize = 64 * 1024 * 1024;
/// How long a test waits for a request that does not come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A protocol: how an answer and an error look in it.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// Whether it answers at this path, and as a stream.
    fn form(&self, request: &Received) -> Option<Form>;
    /// The content type of a stream.
    fn stream_type(&self) -> &'static str;
    /// The events of a streamed answer, framed.
    fn events(&self, request: &Received, reply: &Reply) -> Vec<String>;
    /// An event that says that the answer failed, framed.
    fn failure(&self, kind: &str) -> String;
    /// An answer in one piece.
    fn whole(&self, request: &Received, reply: &Reply) -> Value;
    /// An error.
    fn error(&self, status: StatusCode, message: &str) -> Value;
}

/// What a request asks for.
pub(crate) enum Form {
    /// An answer of the script, as a stream.
    Stream,
    /// An answer of the script, in one piece.
    Whole,
    /// Something beside, which the script does not know.
    Fixed(Value),
}

/// What was received.
#[derive(Default)]
struct Log {
    kept: Mutex<Vec<Received>>,
    count: AtomicUsize,
    news: Notify,
}

impl Log {
    fn kept(&self) -> Vec<Received> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write(&self, request: &Received) {
        if request.number < KEPT {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        }
        self.news.notify_waiters();
    }
}

/// A fake that runs until it is dropped.
pub struct Provider {
    address: SocketAddr,
    log: Arc<Log>,
    serving: JoinHandle<()>,
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Provider {
    pub(crate) async fn start(protocol: impl Protocol, script: Script) -> Self {
        Self::listen(protocol, script).await.unwrap_or_else(|e| Self::failed(&e))
    }

    #[allow(clippy::panic, reason = "a test that has no loopback address to listen on cannot go on")]
    fn failed(e: &std::io::Error) -> Self {
        panic!("the fake cannot listen on a loopback address: {e}")
    }

    async fn listen(protocol: impl Protocol, script: Script) -> std::io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        // Room for a benchmark that connects everything at once.
        let listener = socket.listen(4096)?;
        let address = listener.local_addr()?;
        let log = Arc::new(Log::default());
        let (protocol, written) = (Arc::new(protocol), log.clone());
        let router = Router::new().fallback(move |request: Request| {
            let (protocol, script, log) = (protocol.clone(), script.clone(), written.clone());
            async move { answer(&*protocol, &script, &log, request).await }
        });
        let serving = tokio::spawn(async move {
            let Err(e) = axum::serve(listener, router).await else { return };
            Self::failed(&e);
        });
        Ok(Self { address, log, serving })
    }

    /// Its base URL, without a path and without a slash at its end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many requests came so far.
    pub fn count(&self) -> usize {
        self.log.count.load(Ordering::Acquire)
    }

    /// The requests so far, in order: the first thousand of them.
    pub fn requests(&self) -> Vec<Received> {
        self.log.kept()
    }

    /// Waits until so many requests came, and returns those that are kept.
    #[allow(clippy::panic, reason = "it fails the test that waits in vain")]
    pub async fn received(&self, count: usize) -> Vec<Received> {
        let arrived = timeout(PATIENCE, async {
            loop {
                let news = self.log.news.notified();
                if self.count() >= count && self.log.kept().len() >= count.min(KEPT) {
                    return self.log.kept();
                }
                news.await;
            }
        });
        arrived.await.unwrap_or_else(|_| panic!("{count} requests were expected, {} came", self.count()))
    }
}

async fn answer(protocol: &impl Protocol, script: &Script, log: &Log, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, MAX_BODY).await.unwrap_or_default();
    let path = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let mut request = Received { number: 0, path, headers: parts.headers, body };
    let form = match protocol.form(&request) {
        None => return json(StatusCode::NOT_FOUND, &protocol.error(StatusCode::NOT_FOUND, "there is no such path")),
        Some(Form::Fixed(value)) => return json(StatusCode::OK, &value),
        Some(form) => form,
    };
    request.number = log.count.fetch_add(1, Ordering::AcqRel);
    log.write(&request);
    let reply = script.reply(&request);
    if let Some(gate) = &reply.before {
        gate.wait().await;
    }
    let mut response = match (&reply.failure, &reply.raw, form) {
        (Some((status, message)), ..) => json(*status, &protocol.error(*status, message)),
        (None, Some((content_type, body)), _) => raw(content_type, body, &reply.end),
        (None, None, Form::Stream) => streamed(protocol, &request, &reply),
        (None, None, _) => json(StatusCode::OK, &protocol.whole(&request, &reply)),
    };
    for (name, value) in &reply.headers {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(*name, value);
        }
    }
    response
}

fn json(status: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// A body as it is, in pieces that are cut anywhere. It may stay open.
fn raw(content_type: &'static str, body: &str, end: &End) -> Response {
    // A large body in pieces of some bytes would take its time.
    let size = if body.len() > 64 * 1024 { 4096 } else { 7 };
    let pieces: Vec<Piece> = body.as_bytes().chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let pieces = stream::iter(pieces);
    let body = match end {
        End::Stalled(_) => Body::from_stream(pieces.chain(stream::pending())),
        _ => Body::from_stream(pieces),
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}

/// One piece of a body; an error breaks the connection.
type Piece = Result<Bytes, std::io::Error>;

fn streamed(protocol: &impl Protocol, request: &Received, reply: &Reply) -> Response {
    let mut events = protocol.events(request, reply);
    let last: Option<Piece> = match &reply.end {
        End::Whole => None,
        End::Broken(after) => {
            events.truncate(*after);
            Some(Err(std::io::Error::other("the script breaks the connection here")))
        }
        End::Early(after) => {
            events.truncate(*after);
            None
        }
        End::Stalled(after) => {
            events.truncate(*after);
            None
        }
        End::Failed(after, kind) => {
            events.truncate(*after);
            Some(Ok(protocol.failure(kind).into()))
        }
    };
    let between = reply.between.clone();
    let pieces = events.into_iter().map(|event| Ok(Bytes::from(event))).chain(last);
    let body = stream::iter(pieces).then(move |piece: Piece| {
        let between = between.clone();
        async move {
            match between {
                Some(gate) => gate.wait().await,
                // What was sent reaches the client before the connection breaks.
                None => tokio::task::yield_now().await,
            }
            piece
        }
    });
    let body = match reply.end {
        End::Stalled(_) => Body::from_stream(body.chain(stream::pending())),
        _ => Body::from_stream(body),
    };
    let mut response = Response::new(body);
    let stream_type = header::HeaderValue::from_static(protocol.stream_type());
    response.headers_mut().insert(header::CONTENT_TYPE, stream_type);
    response
}

/// An event of `text/event-stream`.
pub(crate) fn sse(event: Option<&str>, data: &Value) -> String {
    match event {
        Some(event) => format!("event: {event}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    }
}

/// A text in pieces, as a provider sends it: some characters at a time.
pub(crate) fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(12).map(|piece| piece.iter().collect()).collect()
}
