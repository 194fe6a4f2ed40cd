//! The model of the demo of a cluster: it speaks OpenAI's protocol, takes its time, and needs no key.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

/// How long the model thinks about each turn.
pub(super) const THINKS: Duration = Duration::from_secs(2);

/// Starts the model, which ends with this process, and returns its port.
pub(super) fn start() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A host that is killed does not read its answer.
            thread::spawn(move || drop(answer(stream)));
        }
    });
    Ok(port)
}

/// Answers one request.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut length = 0;
    for line in reader.by_ref().lines() {
        let line = line?.to_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let request: Value = serde_json::from_slice(&body)?;
    thread::sleep(THINKS);
    let (delta, reason) = match turn(&request) {
        Some((tool, input)) => {
            let function = json!({"name": tool, "arguments": input.to_string()});
            let call = json!({"index": 0, "id": "call_0", "type": "function", "function": function});
            (json!({"role": "assistant", "tool_calls": [call]}), "tool_calls")
        }
        None => (json!({"role": "assistant", "content": "Done."}), "stop"),
    };
    let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
    let chunk =
        json!({"id": "demo", "object": "chat.completion.chunk", "created": 0, "model": "demo", "choices": [choice]});
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: {chunk}\n\ndata: [DONE]\n\n"
    )
}

/// The tool call of a turn, if it has one: the model searches the handbook, decides, and hands over the passage.
fn turn(request: &Value) -> Option<(&'static str, Value)> {
    let messages = request.get("messages").and_then(Value::as_array)?;
    let of = |role: &'static str| {
        let is_of = move |message: &&Value| message.get("role").and_then(Value::as_str) == Some(role);
        messages.iter().filter(is_of).filter_map(|message| message.get("content")?.as_str())
    };
    let turns =
        messages.iter().filter(|message| message.get("role").and_then(Value::as_str) == Some("assistant")).count();
    let word = of("user").find_map(|text| text.split_once("about the ")?.1.split('?').next())?;
    match turns {
        0 => Some(("Grep", json!({"pattern": word, "output_mode": "content"}))),
        1 => Some((
            "record_decision",
            json!({"question": "Is one passage enough?", "decision": "Yes", "reasoning": "The handbook has no other."}),
        )),
        2 => Some(("submit_result", json!({"output": of("tool").next().unwrap_or("nothing was found")}))),
        _ => None,
    }
}
