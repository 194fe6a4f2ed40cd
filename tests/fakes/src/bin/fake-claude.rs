//! A fake of the Claude Code CLI: it speaks the stream-json control protocol as version 2.1 does, and says
//! and does what a script tells it.
//!
//! ```text
//! fake-claude SCRIPT FLAGS...
//! ```
//!
//! The script is a JSON object: `log`, the file to which it appends what it was started with and what it receives, one
//! JSON object a line; `steps`, what it does once it has been asked; and, where it is to misbehave, `handshake`
//! (`"failed"`: it does not connect to the host's tools; `"refused"`: it refuses to begin; `"none"`: it says nothing at
//! all; `"lost"`: it does not have the session that it is to resume) and `deaf` (it ignores interrupts). It ignores SIGTERM if it is started so (`trap '' TERM`).
//!
//! Steps, by their `do`:
//! - `answer`: an answer of the model: `id`, `text`, `calls` (`{id, name, input}`, each call's answer is awaited),
//!   `unanswered` (they are not), `early` (the calls come before the end of the answer), `abandoned` (the end never
//!   comes), `model`, `tokens`, `whole` (it is not streamed), `pieces` (in which the text is streamed), `until` (it waits
//!   after them until this file is there), `breaks` (nothing follows them, or if it is `"announced"`,
//!   the end of an abandoned message);
//! - `result`: the session's result, with these `fields`; then it waits for the end of its input, and ends;
//! - `line`: this `text` as it is; `huge`: a line of `bytes`; `message`: this `value`;
//! - `request`: a control request of this `value`, whose answer it awaits;
//! - `stderr`: so many `bytes`, then `text`; `start`: a child that lingers; `hang`: it goes on listening, and says nothing;
//!   `sleep`: it does not even listen; `until`: it waits until this `file` is there; `exit`: it ends with `code`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "that is how it speaks")]
#![allow(clippy::indexing_slicing, reason = "of JSON, where what is not there is null")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a fake that cannot go on ends")]

use std::{
    collections::HashMap,
    env, fs,
    io::{BufRead as _, Write as _},
    path::Path,
    process::{Command, ExitCode, exit},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

const SERVER: &str = "worker-internal";
const MODEL: &str = "fake-claude-1";
/// The flags without which the host's sessions would not be what they are; each may have a value after `=`.
const NEEDED: &[&str] = &[
    "-p",
    "--output-format=stream-json",
    "--input-format=stream-json",
    "--verbose",
    "--strict-mcp-config",
    "--setting-sources=",
    "--disable-slash-commands",
    "--permission-mode=",
    "--system-prompt-file=",
    "--tools=",
];

fn main() -> ExitCode {
    // It also supervises itself, for tests whose own program cannot: they have a harness in place of a main function.
    if let Some(code) = guild_confine::serve_if_asked(&[]) {
        return code;
    }
    let mut arguments = env::args().skip(1);
    let first = arguments.next().unwrap_or_default();
    if first == "linger" {
        // A bound, so that a test that fails leaves nothing for long.
        thread::sleep(Duration::from_secs(120));
        return ExitCode::SUCCESS;
    }
    let flags: Vec<String> = arguments.collect();
    if flags == ["--version"] {
        println!("2.1.248 (fake Claude Code)");
        return ExitCode::SUCCESS;
    }
    for needed in NEEDED {
        if !flags.iter().any(|flag| if needed.ends_with('=') { flag.starts_with(needed) } else { flag == needed }) {
            eprintln!("error: the flag {needed} is missing");
            return ExitCode::FAILURE;
        }
    }
    let script: Value = serde_json::from_slice(&fs::read(&first).expect("the script")).expect("JSON");
    let mut fake = FakeClaude::new(script, flags);
    fake.shake_hands();
    fake.play();
    ExitCode::SUCCESS
}

struct FakeClaude {
    script: Value,
    flags: Vec<String>,
    log: fs::File,
    received: Receiver<Value>,
    /// Answers to requests that nobody has taken yet.
    answered: HashMap<String, Value>,
    requests: u64,
    tools: Vec<String>,
    /// What was used so far: input tokens, output tokens.
    used: (u64, u64),
}

impl FakeClaude {
    fn new(script: Value, flags: Vec<String>) -> Self {
        let path = script["log"].as_str().expect("where to log");
        let log = fs::OpenOptions::new().create(true).append(true).open(path).expect("the log");
        let (sender, received) = mpsc::channel();
        let asleep = script["steps"].as_array().is_some_and(|steps| steps.iter().any(|step| step["do"] == "sleep"));
        thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                let Ok(message) = serde_json::from_str::<Value>(&line) else {
                    eprintln!("error: a line that is not JSON");
                    exit(1);
                };
                let asked = message["type"] == "user";
                let _ = sender.send(message);
                if asked && asleep {
                    return;
                }
            }
        });
        let mut fake = Self {
            script,
            flags,
            log,
            received,
            answered: HashMap::new(),
            requests: 0,
            tools: Vec::new(),
            used: (0, 0),
        };
        let environment: Value = env::vars().map(|(name, value)| (name, json!(value))).collect();
        let cwd = env::current_dir().expect("a working directory");
        let system_prompt = fake.flag("--system-prompt-file=").map(|path| fs::read_to_string(path).expect("a file"));
        let started = json!({
            "pid": std::process::id(), "flags": fake.flags, "environment": environment, "cwd": cwd,
            "files": files(&cwd), "systemPrompt": system_prompt,
        });
        fake.write_down(&json!({"started": started}));
        fake
    }

    fn flag(&self, name: &str) -> Option<String> {
        self.flags.iter().find_map(|flag| flag.strip_prefix(name).map(str::to_owned))
    }

    fn write_down(&mut self, value: &Value) {
        self.log.write_all(format!("{value}\n").as_bytes()).expect("the log can be written");
    }

    fn say(&self, value: &Value) {
        let mut out = std::io::stdout().lock();
        // Like the CLI, it does not notice that nobody reads.
        let _ = writeln!(out, "{value}").and_then(|()| out.flush());
    }

    /// The next message; `None` at the end of the input.
    fn listen(&mut self) -> Option<Value> {
        let message = self.received.recv().ok()?;
        self.write_down(&json!({"received": message}));
        if message["request"]["subtype"] == "interrupt" && self.script["deaf"] != true {
            self.say(&json!({"type": "control_response", "response": {
                "subtype": "success", "request_id": message["request_id"], "response": {"still_queued": []},
            }}));
            self.result(&json!({"subtype": "error_during_execution", "is_error": true, "errors": ["interrupted"]}));
        }
        if message["type"] == "control_response" {
            let id = message["response"]["request_id"].as_str().unwrap_or_default();
            self.answered.insert(id.to_owned(), message.clone());
        }
        Some(message)
    }

    /// The next message; at the end of the input it ends, as the CLI does.
    fn next(&mut self) -> Value {
        self.listen().unwrap_or_else(|| exit(0))
    }

    fn wait_for(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.next();
            if wanted(&message) {
                return message;
            }
        }
    }

    /// Sends a control request; its id.
    fn request(&mut self, request: &Value) -> String {
        self.requests += 1;
        let id = format!("request-{}", self.requests);
        self.say(&json!({"type": "control_request", "request_id": id, "request": request}));
        id
    }

    fn answer_to(&mut self, id: &str) -> Value {
        loop {
            if let Some(answer) = self.answered.remove(id) {
                return answer;
            }
            self.next();
        }
    }

    fn mcp(&mut self, message: &Value) -> String {
        self.request(&json!({"subtype": "mcp_message", "server_name": SERVER, "message": message}))
    }

    fn shake_hands(&mut self) {
        let mode = self.script["handshake"].as_str().unwrap_or("connected").to_owned();
        let begin = self.wait_for(|message| message["request"]["subtype"] == "initialize");
        let id = begin["request_id"].clone();
        if mode == "lost"
            && let Some(session) = self.flag("--resume=")
        {
            eprintln!("No conversation found with session ID: {session}");
            exit(1);
        }
        if mode == "none" {
            self.hang();
        }
        if mode == "refused" {
            self.say(&json!({"type": "control_response", "response": {
                "subtype": "error", "request_id": id, "error": "no",
            }}));
            self.hang();
        }
        let serves = begin["request"]["sdkMcpServers"] == json!([SERVER]);
        if serves {
            let client = json!({"name": "fake-claude", "version": "1"});
            let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
            let initialize = self.mcp(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
            self.answer_to(&initialize);
        }
        self.say(&json!({"type": "control_response", "response": {
            "subtype": "success", "request_id": id, "response": {"commands": []},
        }}));
        let asked = self.wait_for(|message| message["type"] == "user");
        assert_eq!(asked["client_composed"], true, "files that a task names would be read");
        let mut servers = json!([]);
        if serves {
            let initialized = self.mcp(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
            self.answer_to(&initialized);
            let list = self.mcp(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
            let list = self.answer_to(&list);
            let tools = list["response"]["response"]["mcp_response"]["result"]["tools"].clone();
            let names = tools.as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str());
            self.tools = names.map(str::to_owned).collect();
            let status = if mode == "failed" { "failed" } else { "connected" };
            servers = json!([{"name": SERVER, "status": status, "source": "sdk"}]);
        }
        let tools: Vec<String> = self.tools.iter().map(|tool| format!("mcp__{SERVER}__{tool}")).collect();
        let session = self.flag("--resume=").unwrap_or_else(|| "11111111-2222-4333-8444-555555555555".to_owned());
        self.say(&json!({
            "type": "system", "subtype": "init", "session_id": session, "tools": tools, "mcp_servers": servers,
            "model": MODEL, "permissionMode": "dontAsk",
        }));
        // Something that a host need not know.
        self.say(&json!({"type": "system", "subtype": "status", "status": "requesting"}));
        self.say(&json!({"type": "rate_limit_event", "anything": {"nested": [1, 2, 3]}}));
    }

    fn play(&mut self) {
        for step in self.script["steps"].as_array().cloned().unwrap_or_default() {
            match step["do"].as_str().unwrap_or_default() {
                "answer" => self.answer(&step),
                "result" => self.result(&step["fields"]),
                "line" => println!("{}", step["text"].as_str().unwrap_or_default()),
                "message" => self.say(&step["value"]),
                "huge" => self.huge(step["bytes"].as_u64().unwrap_or(0)),
                "request" => {
                    let id = self.request(&step["value"]);
                    self.answer_to(&id);
                }
                "stderr" => stderr(&step),
                "start" => self.start(),
                "until" => until(&step["file"]),
                "hang" => self.hang(),
                "sleep" => loop {
                    thread::park();
                },
                "exit" => exit(step["code"].as_i64().and_then(|code| i32::try_from(code).ok()).unwrap_or(0)),
                other => {
                    eprintln!("error: there is no step {other:?}");
                    exit(2);
                }
            }
        }
    }

    fn answer(&mut self, step: &Value) {
        let id = step["id"].as_str().unwrap_or("msg_1");
        let model = step["model"].as_str().unwrap_or(MODEL);
        let count = |name: &str, otherwise| step["tokens"][name].as_u64().unwrap_or(otherwise);
        let (input, output) = (count("input", 100), count("output", 10));
        self.used = (self.used.0 + input, self.used.1 + output);
        let whole = step["whole"] == true;
        let usage = |output: u64| {
            json!({
                "input_tokens": input, "cache_read_input_tokens": count("cached", 0),
                "cache_creation_input_tokens": 0, "output_tokens": output,
            })
        };
        let message = |content: Value| {
            json!({
                "id": id, "type": "message", "role": "assistant", "model": model, "content": content,
                "stop_reason": null, "usage": usage(if whole { output } else { 1 }),
            })
        };
        let event = |event: Value| json!({"type": "stream_event", "event": event, "parent_tool_use_id": null});
        if !whole {
            self.say(&event(json!({"type": "message_start", "message": message(json!([]))})));
        }
        let part =
            |block: Value| json!({"type": "assistant", "message": message(json!([block])), "parent_tool_use_id": null});
        let pieces: Vec<&str> = step["pieces"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !pieces.is_empty() {
            let block = json!({"type": "text", "text": ""});
            self.say(&event(json!({"type": "content_block_start", "index": 0, "content_block": block})));
        }
        for piece in &pieces {
            let delta = json!({"type": "text_delta", "text": piece});
            self.say(&event(json!({"type": "content_block_delta", "index": 0, "delta": delta})));
        }
        if step["until"].is_string() {
            until(&step["until"]);
        }
        if step["breaks"] == "announced" {
            let mut stop = event(json!({"type": "message_stop"}));
            stop["abandoned_blocks"] = json!({"api_message_id": id, "from_block_index": 0});
            self.say(&stop);
        }
        if step["breaks"] == true || step["breaks"] == "announced" {
            return;
        }
        let streamed = pieces.concat();
        if let Some(text) = step["text"].as_str().or((!streamed.is_empty()).then_some(&*streamed)) {
            self.say(&part(json!({"type": "text", "text": text})));
        }
        let calls = step["calls"].as_array().cloned().unwrap_or_default();
        for call in &calls {
            let name = format!("mcp__{SERVER}__{}", call["name"].as_str().unwrap_or_default());
            self.say(&part(json!({"type": "tool_use", "id": call["id"], "name": name, "input": call["input"]})));
        }
        let end = |fake: &Self| {
            if !whole {
                fake.say(&event(json!({"type": "message_delta", "delta": {}, "usage": {"output_tokens": output}})));
                fake.say(&event(json!({"type": "message_stop"})));
            }
        };
        let early = step["early"] == true || step["abandoned"] == true;
        if !early {
            end(self);
        }
        let pending: Vec<String> = calls.iter().map(|call| self.call(call)).collect();
        if step["abandoned"] == true || step["unanswered"] == true {
            return;
        }
        if early {
            self.write_down(&json!({"ending": id}));
            end(self);
        }
        pending.iter().for_each(|id| drop(self.answer_to(id)));
    }

    /// Calls a tool; the request's id.
    fn call(&mut self, call: &Value) -> String {
        let number = self.requests + 1;
        let mut params = json!({"name": call["name"], "arguments": call["input"]});
        if call["id"].is_string() {
            params["_meta"] = json!({"claudecode/toolUseId": call["id"], "progressToken": number});
        }
        self.mcp(&json!({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}))
    }

    /// The result; then it ends as soon as its input does.
    fn result(&mut self, fields: &Value) {
        let (input, output) = self.used;
        let model = json!({"inputTokens": input, "outputTokens": output, "cacheReadInputTokens": 0, "cacheCreationInputTokens": 0});
        let mut result = json!({
            "type": "result", "subtype": "success", "is_error": false, "result": "Done.", "num_turns": 1,
            "total_cost_usd": 0.25, "usage": {"input_tokens": input, "output_tokens": output},
            "modelUsage": {MODEL: model}, "permission_denials": [],
        });
        for (name, value) in fields.as_object().into_iter().flatten() {
            result[name] = value.clone();
        }
        self.say(&result);
        let failed = result["is_error"] == true;
        while let Ok(message) = self.received.recv() {
            self.write_down(&json!({"received": message}));
        }
        exit(i32::from(failed));
    }

    fn huge(&self, bytes: u64) {
        let mut out = std::io::stdout().lock();
        let block = [b' '; 1 << 16];
        let mut left = bytes;
        let _ = out.write_all(b"{\"type\":\"keep_alive\"");
        while left > 0 {
            let now = left.min(block.len() as u64);
            if out.write_all(&block[..usize::try_from(now).unwrap()]).is_err() {
                return;
            }
            left -= now;
        }
        let _ = out.write_all(b"}\n").and_then(|()| out.flush());
    }

    #[allow(clippy::zombie_processes, reason = "it is to outlive this one")]
    fn start(&mut self) {
        let own = env::current_exe().expect("its own path");
        let child = Command::new(own).arg("linger").spawn().expect("a child");
        self.write_down(&json!({"grandchild": child.id()}));
    }

    fn hang(&mut self) {
        while self.listen().is_some() {}
        // Its input has ended, and it does not care.
        loop {
            thread::park();
        }
    }
}

/// Waits until a file is there.
fn until(file: &Value) {
    while !Path::new(file.as_str().unwrap_or_default()).exists() {
        thread::sleep(Duration::from_millis(2));
    }
}

fn stderr(step: &Value) {
    let block = [b'e'; 4096];
    let mut left = step["bytes"].as_u64().unwrap_or(0);
    let mut err = std::io::stderr().lock();
    while left > 0 {
        let now = left.min(block.len() as u64);
        let _ = err.write_all(&block[..usize::try_from(now).unwrap()]);
        left -= now;
    }
    let _ = writeln!(err, "{}", step["text"].as_str().unwrap_or_default());
}

/// The files below a directory, and what is in them.
fn files(dir: &Path) -> Value {
    let mut found = json!({});
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        found[name] = match fs::read_to_string(entry.path()) {
            Ok(text) => json!(text),
            Err(_) => files(&entry.path()),
        };
    }
    found
}
