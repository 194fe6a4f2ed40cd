//! A web server on the loopback interface, and a resolver with names for it.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test uses some of it")]

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use guild_config::WebOptions;
use guild_session::{tools::ToolError, web::Fetch};
use guild_web::{Granted, Internet, Resolver};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// A request that the server received.
#[derive(Clone, Debug)]
pub struct Request {
    /// The path, with its query.
    pub path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// A response of the server.
#[derive(Clone, Debug)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    Whole(Vec<u8>),
    /// These bytes, again and again with a pause after each, until the client goes away.
    Endless(Vec<u8>, Duration),
    /// A body shorter than its length header.
    CutShort(Vec<u8>),
    /// No response, not even a status.
    Silence,
}

impl Reply {
    pub fn new(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let reply = Self { status: 200, headers: Vec::new(), body: Body::Whole(body.into()) };
        if content_type.is_empty() { reply } else { reply.with("content-type", content_type) }
    }

    pub fn html(body: &str) -> Self {
        Self::new("text/html; charset=utf-8", body)
    }

    pub fn text(body: &str) -> Self {
        Self::new("text/plain", body)
    }

    pub fn json(body: &str) -> Self {
        Self::new("application/json", body)
    }

    pub fn status(status: u16) -> Self {
        Self { status, ..Self::text("this is no page") }
    }

    pub fn redirect(to: &str) -> Self {
        Self::status(302).with("location", to)
    }

    pub fn endless(piece: &[u8], pause: Duration) -> Self {
        Self { body: Body::Endless(piece.to_vec(), pause), ..Self::text("") }
    }

    pub fn cut_short(body: &str) -> Self {
        Self { body: Body::CutShort(body.as_bytes().to_vec()), ..Self::text("") }
    }

    pub fn silence() -> Self {
        Self { body: Body::Silence, ..Self::text("") }
    }

    pub fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub fn with(mut self, header: &str, value: &str) -> Self {
        self.headers.push((header.to_owned(), value.to_owned()));
        self
    }
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

/// A server on a port of its own, which ends with the test.
pub struct Site {
    pub port: u16,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<Request>>>,
    /// The number of replies that could not be written completely.
    abandoned: Arc<AtomicUsize>,
}

impl Site {
    pub async fn start(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), handler).await
    }

    pub async fn start_at(address: SocketAddr, handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let site = Self {
            port: listener.local_addr().unwrap().port(),
            connections: Arc::default(),
            requests: Arc::default(),
            abandoned: Arc::default(),
        };
        let handler: Arc<Handler> = Arc::new(handler);
        let (connections, requests, abandoned) =
            (site.connections.clone(), site.requests.clone(), site.abandoned.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let (handler, requests, abandoned) = (handler.clone(), requests.clone(), abandoned.clone());
                tokio::spawn(async move {
                    if serve(stream, &*handler, &requests).await.is_err() {
                        abandoned.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        site
    }

    /// The URL of this server with a host name or a literal address.
    pub fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.port)
    }

    pub fn at(&self, host: &str) -> String {
        format!("{host}:{}", self.port)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub fn paths(&self) -> Vec<String> {
        self.requests().into_iter().map(|request| request.path).collect()
    }

    /// Waits until a reply could not be written completely.
    pub async fn abandoned(&self) {
        for _ in 0..1000 {
            if self.abandoned.load(Ordering::SeqCst) > 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the server still writes after ten seconds");
    }
}

async fn serve(mut stream: TcpStream, handler: &Handler, requests: &Mutex<Vec<Request>>) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).await? == 0 {
            return Ok(());
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let headers =
        lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_owned(), value.to_owned()));
    let request = Request { path, headers: headers.collect() };
    let reply = handler(&request);
    requests.lock().unwrap().push(request);

    let mut out = format!("HTTP/1.1 {} Some Reason\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        out.push_str(&format!("{name}: {value}\r\n"));
    }
    match reply.body {
        Body::Whole(body) => {
            out.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
            stream.write_all(out.as_bytes()).await?;
            stream.write_all(&body).await?;
        }
        Body::CutShort(body) => {
            out.push_str(&format!("content-length: {}\r\n\r\n", body.len() + 1));
            stream.write_all(out.as_bytes()).await?;
            stream.write_all(&body).await?;
        }
        Body::Endless(piece, pause) => {
            out.push_str("\r\n");
            stream.write_all(out.as_bytes()).await?;
            loop {
                stream.write_all(&piece).await?;
                tokio::time::sleep(pause).await;
            }
        }
        Body::Silence => {
            while stream.read(&mut [0]).await? > 0 {}
            return Err(io::ErrorKind::BrokenPipe.into());
        }
    }
    stream.shutdown().await
}

/// A resolver with these names and their addresses.
#[derive(Default)]
pub struct Names {
    names: HashMap<String, Vec<IpAddr>>,
    asked: Mutex<Vec<String>>,
}

impl Names {
    pub fn of(names: &[(&str, &str)]) -> Arc<Self> {
        let parse = |addresses: &str| addresses.split(' ').map(|address| address.parse().unwrap()).collect();
        let names = names.iter().map(|(name, addresses)| ((*name).to_owned(), parse(addresses))).collect();
        Arc::new(Self { names, asked: Mutex::default() })
    }

    /// The names that were looked up.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl Resolver for Names {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.lock().unwrap().push(host.to_owned());
        self.names.get(host).cloned().ok_or_else(|| io::Error::other(format!("no such name: {host}")))
    }
}

pub fn options(allow: &[&str], private: &[&str]) -> WebOptions {
    let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    WebOptions { allow: own(allow), private: own(private), robots: false, page_seconds: 10, ..WebOptions::default() }
}

/// All hosts are allowed, and this server may be private.
pub fn open_to(site: &Site) -> WebOptions {
    options(&["*"], &[&site.at("127.0.0.1")])
}

/// A job's reader of pages.
pub fn reader(options: &WebOptions) -> Arc<dyn Fetch> {
    Internet::new(options).unwrap().for_job(&Granted::all()).fetch.unwrap()
}

pub fn reader_with(options: &WebOptions, names: &Arc<Names>) -> Arc<dyn Fetch> {
    Internet::with_resolver(options, names.clone()).unwrap().for_job(&Granted::all()).fetch.unwrap()
}

/// The text of the refusal of a page.
pub async fn refusal(reader: &Arc<dyn Fetch>, url: &str) -> String {
    match reader.fetch(url).await {
        Err(ToolError::NotGranted(why)) => why,
        other => panic!("{url} was not refused: {other:?}"),
    }
}

/// The error of a page that could not be read.
pub async fn unavailable(reader: &Arc<dyn Fetch>, url: &str) -> String {
    match reader.fetch(url).await {
        Err(ToolError::Unavailable(why)) => why,
        other => panic!("{url} was answered: {other:?}"),
    }
}
