//! A server on a real socket, and an HTTP client that sends a test's requests byte for byte.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use guild_config::Config;
use guild_contract::Limits;
use guild_roster::{Host, HostOptions, Target};
use guild_server::{
    http::Service,
    listen::{Bound, serve},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// A timeout above the duration of any test; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A valid manifest.
pub(crate) fn manifest(name: &str) -> Value {
    json!({
        "name": name, "displayName": name, "description": "Does what it is asked.", "version": "1.2.3",
        "transport": "http", "mcp": {"command": "guild", "args": ["serve", "--member", ".", "--port", "${PORT}"]},
        "capabilities": ["worker"], "component": {"file": "worker.wasm", "world": "worker"},
    })
}

/// A host of one member with this manifest.
pub(crate) async fn host(directory: &Path, manifest: &Value, limits: Limits) -> Arc<Host> {
    fs::write(directory.join("guild-member.json"), manifest.to_string()).unwrap();
    open(Target::Member(directory.to_owned()), limits).await
}

async fn open(target: Target, limits: Limits) -> Arc<Host> {
    let config = Config { limits, ..Config::default() };
    Host::open(
        HostOptions {
            config,
            target,
            sources: Vec::new(),
            agent: None,
            hall: None,
            has_passed_socket: false,
            fakes: None,
        },
        None,
    )
    .await
    .unwrap()
}

/// A server that ends with the test.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<()>,
}

impl Server {
    pub(crate) fn start(host: Arc<Host>) -> Self {
        let bound = Bound::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = bound.address();
        let listener = bound.listen(&host.limits()).unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let (limits, stopped) = (host.limits().clone(), stop.clone().cancelled_owned());
            async move { serve(listener, Service::new(host), &limits, stopped).await }
        });
        Self { address, stop, task }
    }

    /// A server of many members: the path of each, and the text of its manifest.
    pub(crate) async fn of_many(manifests: &[(&str, &str)], limits: Limits) -> Self {
        let members = tempfile::tempdir().unwrap();
        for (path, manifest) in manifests {
            let directory = members.path().join(path);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("guild-member.json"), manifest).unwrap();
        }
        Self::start(open(Target::Members(members.path().to_owned()), limits).await)
    }

    /// A server of one member, `broken`, that cannot be served: enough for tests of HTTP alone.
    pub(crate) async fn of_a_broken_member(limits: Limits) -> Self {
        Self::of_many(&[("broken", "{}")], limits).await
    }

    pub(crate) async fn connect(&self) -> Connection {
        Connection(TcpStream::connect(self.address).await.unwrap())
    }

    /// Posts a body with the headers of Guild Hall.
    pub(crate) async fn post(&self, path: &str, body: &str) -> Reply {
        self.connect().await.post(path, body).await
    }

    /// The JSON response to a body posted to `/mcp`.
    pub(crate) async fn ask(&self, body: &str) -> Value {
        self.post("/mcp", body).await.json()
    }

    /// The response to a method with parameters: its `result`, or its `error`.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Result<Value, Value> {
        let mut answer =
            self.ask(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()).await;
        assert_eq!(answer["jsonrpc"], "2.0");
        assert_eq!(answer["id"], 1);
        if answer["error"].is_null() { Ok(answer["result"].take()) } else { Err(answer["error"].take()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) struct Connection(pub(crate) TcpStream);

impl Connection {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Reply {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Type: application/json\r\n\
             MCP-Protocol-Version: 2025-06-18\r\nOrigin: http://localhost\r\nAccept: */*\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.send(head + body).await;
        self.reply().await
    }

    /// Sends a request's head unchanged, with a `Host` if it has none.
    pub(crate) async fn request(&mut self, head: &str, body: &str) -> Reply {
        let host = if head.contains("\r\nHost:") { "" } else { "Host: localhost\r\n" };
        self.send(format!("{head}\r\n{host}\r\n{body}")).await;
        self.reply().await
    }

    /// Reads one response.
    pub(crate) async fn reply(&mut self) -> Reply {
        timeout(PATIENCE, self.read_reply()).await.expect("no answer")
    }

    async fn read_reply(&mut self) -> Reply {
        let mut bytes = Vec::new();
        let head = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            assert_ne!(self.0.read_buf(&mut bytes).await.unwrap(), 0, "closed before an answer");
        };
        let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, head: text.to_lowercase(), body: String::new() };
        let length = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
        while bytes.len() < head + length {
            assert_ne!(self.0.read_buf(&mut bytes).await.unwrap(), 0, "closed within an answer");
        }
        reply.body = String::from_utf8(bytes.split_off(head)).unwrap();
        reply
    }

    /// Waits until the server has closed the connection.
    pub(crate) async fn closed(&mut self) {
        let mut rest = Vec::new();
        let end = timeout(PATIENCE, self.0.read_to_end(&mut rest)).await.expect("not closed");
        assert!(end.is_err() || rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{rest:?}");
    }
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn json(&self) -> Value {
        assert_eq!((self.status, self.header("content-type")), (200, Some("application/json")), "{}", self.body);
        serde_json::from_str(&self.body).unwrap()
    }
}
