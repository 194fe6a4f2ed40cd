//! The baseline of HTTP: axum with one handler, in a separate process.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use axum::{
    Router,
    http::{HeaderValue, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
    serve::ListenerExt,
};
use bytes::Bytes;
use guild_contract::rpc::JobList;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::{Outcome, tools::Bare};

/// The argument that makes this process a baseline.
pub(crate) const COMMAND: &str = "baseline";

/// The work of a baseline for each request.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Returns prepared bytes.
    Bytes,
    /// Serializes a list of jobs.
    List,
    /// Calls the named tool of a component in bare wasmtime.
    Tool,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::List => "list",
            Self::Tool => "tool",
        }
    }
}

/// The process of a baseline, which ends when this is dropped.
pub(crate) struct Baseline {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl Baseline {
    /// Starts a baseline that answers like `given`, or with the given component.
    pub(crate) fn start(kind: Kind, given: &[u8], scratch: &Path) -> Outcome<Self> {
        let file = scratch.join(kind.name());
        std::fs::write(&file, given)?;
        let mut process = Command::new(std::env::current_exe()?)
            .args([COMMAND, kind.name()])
            .arg(&file)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().ok_or("the baseline has no stdout")?).read_line(&mut line)?;
        Ok(Self { process, address: line.trim().parse()? })
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The whole answer with a list.
#[derive(Serialize, Deserialize)]
struct Answer {
    jsonrpc: String,
    id: u64,
    result: JobList,
}

/// Runs a baseline: `baseline bytes|list|tool FILE`. It prints its address, and serves until it is killed.
pub(crate) async fn serve(arguments: &[String]) -> Outcome<()> {
    let [kind, file] = arguments else { return Err("baseline KIND FILE".into()) };
    let answer = Bytes::from(std::fs::read(file)?);
    let handler = if kind == Kind::List.name() {
        let answer: Arc<Answer> = Arc::new(serde_json::from_slice(&answer)?);
        post(move || async move { serde_json::to_vec(&*answer).map(json).unwrap_or_default() })
    } else if kind == Kind::Tool.name() {
        let bare = Arc::new(Bare::new(&answer)?);
        post(move |request: Bytes| async move {
            match bare.answer(&request).await {
                Ok(answer) => json(answer),
                Err(error) => error.to_string().into_response(),
            }
        })
    } else {
        post(move || async move { json(answer) })
    };
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    Ok(axum::serve(listener, Router::new().route("/mcp", handler)).await?)
}

fn json(body: impl Into<Bytes>) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body.into()).into_response()
}
