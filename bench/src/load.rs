//! A load generator: keep-alive connections on plain sockets that send prepared requests.
//!
//! The generator shares the machine with the measured host, so it does as little as possible for each request: one
//! write, and reads until the announced length has arrived.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use crate::Outcome;

/// A POST of a JSON text to `/mcp`.
pub(crate) fn request(body: &str) -> Bytes {
    request_to("/mcp", body)
}

/// A POST of a JSON text.
pub(crate) fn request_to(path: &str, body: &str) -> Bytes {
    let head = "Host: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\n\
                MCP-Protocol-Version: 2025-06-18\r\nOrigin: http://localhost\r\nContent-Length: ";
    format!("POST {path} HTTP/1.1\r\n{head}{}\r\n\r\n{body}", body.len()).into()
}

/// A GET.
pub(crate) fn get(path: &str) -> Bytes {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into()
}

/// One keep-alive connection.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(256 * 1024) })
    }

    /// Sends a request and returns the answer's body. Any status but 200 is an error.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Outcome<&[u8]> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let mut whole = None;
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the connection was closed".into());
            }
            if whole.is_none() {
                whole = head_and_length(&self.buffer)?;
            }
            if let Some((head, length)) = whole
                && self.buffer.len() >= head + length
            {
                return self.buffer.get(head..head + length).ok_or_else(|| "more than one answer came".into());
            }
        }
    }
}

/// The position and the length of the body, once the head is complete.
fn head_and_length(answer: &[u8]) -> Outcome<Option<(usize, usize)>> {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(answer.get(..end).unwrap_or_default())?;
    if !head.starts_with("HTTP/1.1 200") {
        return Err(format!("not answered with 200: {head}").into());
    }
    let length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .ok_or("the answer has no Content-Length")?;
    Ok(Some((end + 4, length.1.trim().parse()?)))
}

/// A bounded load, which ends after a number of requests or after a time.
#[derive(Clone)]
pub(crate) struct Load {
    /// The requests, which are sent in turn.
    pub(crate) requests: Arc<[Bytes]>,
    /// The number of connections, each with one request at a time.
    pub(crate) connections: usize,
    /// The maximum number of requests.
    pub(crate) count: usize,
    /// The maximum duration.
    pub(crate) time: Duration,
}

impl Load {
    /// Requests per second.
    pub(crate) async fn run(&self, address: SocketAddr) -> Outcome<f64> {
        let next = Arc::new(AtomicUsize::new(0));
        let mut open = Vec::new();
        for _ in 0..self.connections {
            open.push(Connection::open(address).await?);
        }
        let begun = Instant::now();
        let mut tasks = JoinSet::new();
        for mut connection in open {
            let (load, next) = (self.clone(), next.clone());
            tasks.spawn(async move {
                let mut answered = 0_usize;
                while begun.elapsed() < load.time {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    if turn >= load.count {
                        break;
                    }
                    let request = load.requests.get(turn % load.requests.len().max(1)).ok_or("no requests")?;
                    connection.exchange(request).await?;
                    answered += 1;
                }
                Outcome::Ok(answered)
            });
        }
        let mut answered = 0;
        while let Some(done) = tasks.join_next().await {
            answered += done??;
        }
        Ok(answered as f64 / begun.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_measured_by_its_head() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        assert_eq!(head_and_length(answer).unwrap(), Some((38, 5)));
        assert_eq!(head_and_length(b"HTTP/1.1 200 OK\r\n").unwrap(), None);
        assert!(head_and_length(b"HTTP/1.1 404 Not Found\r\n\r\n").is_err());
    }
}
