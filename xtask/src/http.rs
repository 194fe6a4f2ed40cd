//! JSON-RPC over HTTP in the form of Guild Hall's client, on a plain TCP connection.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

use serde_json::{Value, json};

/// The errors of a call.
#[derive(Debug)]
pub(crate) enum CallError {
    /// No process listens yet.
    Refused,
    /// Any other error, as a text.
    Other(String),
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            _ => Self::Other(error.to_string()),
        }
    }
}

/// Calls a method of the endpoint on `port` and returns its result.
pub(crate) fn call(port: u16, method: &str, params: &Value, timeout: Duration) -> Result<Value, CallError> {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    connection.set_read_timeout(Some(timeout))?;
    write!(
        connection,
        "POST /mcp HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Type: application/json\r\nAccept: */*\r\n\
         MCP-Protocol-Version: 2025-06-18\r\nOrigin: http://localhost\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    let other = |what: &str| CallError::Other(format!("{method} was answered with {what}: {answer}"));
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| other("no HTTP"))?;
    if !head.starts_with("HTTP/1.1 200") {
        return Err(other("an HTTP error"));
    }
    let mut answer: Value = serde_json::from_str(body).map_err(|_| other("no JSON"))?;
    match answer.get("error") {
        Some(error) => Err(CallError::Other(format!("{method}: {error}"))),
        None => Ok(answer.get_mut("result").map(Value::take).unwrap_or_default()),
    }
}
