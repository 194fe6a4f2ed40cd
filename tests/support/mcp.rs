//! MCP as its clients speak it: with sessions, and without.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, TcpStream},
};

use serde_json::{Value, json};

use super::{
    guest,
    host::{Home, Host, PATIENCE},
};

pub(crate) const OLD: &str = "2025-11-25";
pub(crate) const NEW: &str = "2026-07-28";
pub(crate) const BOTH: &str = "application/json, text/event-stream";
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// An answer, read as it comes. It is asked for by HTTP/1.0, so that what comes is what was sent.
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    stream: BufReader<TcpStream>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn text(mut self) -> String {
        let mut text = String::new();
        self.stream.read_to_string(&mut text).unwrap();
        text
    }

    pub(crate) fn bytes(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// The one message that it is, whether as JSON or as an event.
    pub(crate) fn message(mut self) -> Value {
        if self.is_stream() {
            let message = self.next().expect("the stream ended without a message");
            // It is answered when its stream has ended: before that no other may have its id.
            assert_eq!(self.next(), None);
            return message;
        }
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }

    pub(crate) fn next(&mut self) -> Option<Value> {
        self.data().map(|data| serde_json::from_str(&data).unwrap())
    }

    /// The next line of data of a stream.
    pub(crate) fn data(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(data) = line.trim_end().strip_prefix("data:").map(str::trim)
                && !data.is_empty()
            {
                return Some(data.to_owned());
            }
        }
    }

    pub(crate) fn hang_up(&self) {
        self.stream.get_ref().shutdown(Shutdown::Both).unwrap();
    }
}

/// An endpoint, and what goes with each request to it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) port: u16,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Endpoint {
    pub(crate) fn new(host: &Host, path: &str) -> Self {
        Self { port: host.port, path: path.to_owned(), headers: Vec::new() }.with("Accept", BOTH)
    }

    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut with = self.clone();
        with.headers.retain(|(known, _)| known != name);
        with.headers.push((name.to_owned(), value.to_owned()));
        with
    }

    pub(crate) fn without(&self, name: &str) -> Self {
        let mut without = self.clone();
        without.headers.retain(|(known, _)| known != name);
        without
    }

    pub(crate) fn send(&self, method: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let unless_named = |name: &str, value: &str| match self.headers.iter().any(|(known, _)| known == name) {
            true => String::new(),
            false => format!("{name}: {value}\r\n"),
        };
        let host = unless_named("Host", &format!("localhost:{}", self.port));
        let content_type = unless_named("Content-Type", "application/json");
        let headers: String = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        write!(
            stream,
            "{method} {} HTTP/1.0\r\n{host}{content_type}{headers}Content-Length: {}\r\n\r\n{body}",
            self.path,
            body.len()
        )
        .unwrap();
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.read_line(&mut head).unwrap() > 0, "no answer: {head:?}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, stream }
    }

    pub(crate) fn post(&self, message: &Value) -> Answer {
        self.send("POST", &message.to_string())
    }

    /// Begins a session of that version; the endpoint within it.
    pub(crate) fn open(&self, version: &str) -> (Self, Value) {
        let answer = self.post(&initialize(version, json!({})));
        assert_eq!(answer.status, 200);
        let session = answer.header("mcp-session-id").unwrap().to_owned();
        let result = answer.message()["result"].take();
        let within = self.with("Mcp-Session-Id", &session);
        // Clients of the first two versions do not say it again.
        let within = if version < "2025-06-18" { within } else { within.with("MCP-Protocol-Version", version) };
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(within.post(&initialized).status, 202);
        (within, result)
    }

    /// A request in a session, and its result.
    pub(crate) fn ask(&self, method: &str, params: Value) -> Value {
        let answer = self.post(&request(method, params));
        assert_eq!(answer.status, 200, "{}", answer.head);
        assert!(answer.is_stream());
        result(answer.message())
    }

    /// A request of 2026-07-28, as it should be: with its headers and its `_meta`.
    pub(crate) fn modern(&self, method: &str, params: Value) -> Answer {
        self.declaring(method, params, json!({}))
    }

    pub(crate) fn declaring(&self, method: &str, mut params: Value, capabilities: Value) -> Answer {
        let mut endpoint = self.with("MCP-Protocol-Version", NEW).with("Mcp-Method", method);
        for name in ["name", "uri", "taskId"] {
            if let Some(name) = params[name].as_str() {
                endpoint = endpoint.with("Mcp-Name", name);
            }
        }
        let meta = params["_meta"].as_object().cloned().unwrap_or_default();
        params["_meta"] = modern_meta(NEW, capabilities);
        params["_meta"].as_object_mut().unwrap().extend(meta);
        endpoint.post(&request(method, params))
    }

    pub(crate) fn modern_result(&self, method: &str, params: Value) -> Value {
        let answer = self.modern(method, params);
        assert_eq!(answer.status, 200);
        result(answer.message())
    }
}

pub(crate) fn request(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

pub(crate) fn initialize(version: &str, capabilities: Value) -> Value {
    let params = json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"}});
    request("initialize", params)
}

pub(crate) fn modern_meta(version: &str, capabilities: Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities
    })
}

pub(crate) fn knows_tasks() -> Value {
    json!({"extensions": {TASKS: {}}})
}

pub(crate) fn result(mut answer: Value) -> Value {
    assert!(answer.get("error").is_none(), "{answer}");
    assert_eq!(answer["id"], 7, "{answer}");
    answer["result"].take()
}

pub(crate) fn error(answer: Answer) -> (u16, i64, String) {
    let status = answer.status;
    let answer = answer.message();
    let error = &answer["error"];
    (status, error["code"].as_i64().unwrap_or_else(|| panic!("{answer}")), error["message"].to_string())
}

pub(crate) fn names(listed: &Value) -> Vec<&str> {
    listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

pub(crate) fn work() -> Value {
    json!({"description": "d", "task": "t"})
}

pub(crate) fn waiting(task: &str) -> Value {
    json!({"name": "dispatch", "arguments": {"description": "d", "task": task, "wait": true}})
}

/// A member whose jobs do what their task says.
pub(crate) fn probe(home: &Home) {
    home.member("probe", "autonomous-worker", &guest::built("probe"));
    home.edit_manifest("probe", |manifest| manifest["component"]["grants"] = guest::everything());
}

/// A home whose guild.toml says this, for every command there.
pub(crate) fn home(toml: &str) -> Home {
    let mut home = Home::new();
    let file = home.write("guild.toml", toml);
    home.set("GUILD_CONFIG", file.to_str().unwrap());
    home
}

pub(crate) fn token(home: &Home, arguments: &[&str]) -> String {
    let output = home.run(&[&["token", "add"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    format!("Bearer {}", String::from_utf8(output.stdout).unwrap().trim())
}

pub(crate) fn jobs(host: &Host, member: &str) -> Vec<Value> {
    host.at(member).call("worker/list", json!({})).unwrap()["jobs"].as_array().unwrap().clone()
}
