//! `guild mcp`: MCP on stdin and stdout, as clients have it that start their servers themselves.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    thread,
};

use serde_json::{Value, json};

use crate::support::{
    guest,
    host::{self, Home, PATIENCE, wait_for},
};

const NEW: &str = "2026-07-28";

/// A client, and the server that it has started.
struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
    /// What was said besides answers.
    notes: Vec<Value>,
    next: i64,
}

impl Client {
    fn start(home: &Home, arguments: &[&str]) -> Self {
        let mut command = home.guild();
        command.current_dir(home.path(".")).arg("mcp").args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().unwrap();
        let (line, lines) = mpsc::channel();
        thread::spawn(move || {
            for read in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = line.send(read);
            }
        });
        Self { child, stdin, lines, notes: Vec::new(), next: 0 }
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.stdin.as_ref().unwrap(), "{message}").unwrap();
    }

    /// The next line, which has to be a message.
    fn hear(&self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).unwrap();
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        message
    }

    fn request(&mut self, method: &str, params: Value) -> i64 {
        self.next += 1;
        self.say(&json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}));
        self.next
    }

    fn answer(&mut self, id: i64) -> Value {
        loop {
            let heard = self.hear();
            if heard["id"] == id && heard.get("method").is_none() {
                return heard;
            }
            self.notes.push(heard);
        }
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        let mut answer = self.answer(id);
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].take()
    }

    /// Begins as a client of 2025-11-25 does.
    fn open(&mut self) -> Value {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        let initialized = self.ask("initialize", params);
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        initialized
    }

    /// A request of 2026-07-28.
    fn modern(&mut self, method: &str, mut params: Value) -> i64 {
        let mut meta = json!({
            "io.modelcontextprotocol/protocolVersion": NEW,
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        });
        if let Some(more) = params["_meta"].as_object() {
            meta.as_object_mut().unwrap().extend(more.clone());
        }
        params["_meta"] = meta;
        self.request(method, params)
    }

    fn tools(&mut self) -> Vec<String> {
        let listed = self.ask("tools/list", json!({}));
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Closes stdin, and waits for the end, for which nothing may have to be given up: what was logged.
    fn close(mut self) -> String {
        self.stdin = None;
        self.ended()
    }

    /// SIGTERM, with stdin open, and the end.
    fn terminate(mut self) -> String {
        assert!(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success());
        self.ended()
    }

    fn ended(&mut self) -> String {
        let status = wait_for("guild mcp to end", || self.child.try_wait().unwrap());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(status.success() && !said.contains("given up"), "{status}: {said}");
        said
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn dispatch_to(worker: &str, task: &str) -> Value {
    json!({"worker": worker, "description": "d", "task": task})
}

/// The tools for all workers of a roster.
const OF_ROSTER: [&str; 7] = ["workers", "dispatch", "list", "status", "result", "cancel", "delete"];

fn six(prefix: &str) -> Vec<String> {
    ["dispatch", "list", "status", "result", "cancel", "delete"].map(|name| format!("{prefix}__{name}")).to_vec()
}

/// The process that serves a member, and its port.
fn host_of(home: &Home, member: &str) -> (u32, u16) {
    let owner = fs::read(home.path(&format!("members/{member}/.owner"))).unwrap();
    let owner: Value = serde_json::from_slice(&owner).unwrap();
    let port = owner["url"].as_str().unwrap().split(['/', ':']).find_map(|part| part.parse().ok()).unwrap();
    (owner["pid"].as_u64().unwrap().try_into().unwrap(), port)
}

fn is_running(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
    wait_for("the process to end", || (!is_running(pid)).then_some(()));
}

#[test]
fn without_a_host_it_starts_one_that_ends_with_it() {
    let home = Home::new();
    home.quick("one");
    home.quick("two");
    let mut client = Client::start(&home, &["--members", "members"]);
    let initialized = client.open();
    assert_eq!(
        (&initialized["serverInfo"]["name"], &initialized["protocolVersion"]),
        (&json!("guild"), &json!("2025-11-25"))
    );
    assert_eq!(client.tools(), OF_ROSTER);
    let mut arguments = dispatch_to("two", "t");
    arguments["wait"] = true.into();
    let done = client.ask("tools/call", json!({"name": "dispatch", "arguments": arguments}));
    assert_eq!(done["content"][0]["text"], "date", "{done}");
    let (pid, _) = host_of(&home, "two");
    client.close();
    assert!(!is_running(pid) && !home.path("members/two/.owner").exists());
    // The members are the next one's at once.
    let mut next = Client::start(&home, &["--members", "members"]);
    next.open();
    assert_eq!(next.tools(), OF_ROSTER);
}

#[test]
fn it_goes_through_the_host_that_serves_the_members() {
    let home = Home::new();
    home.quick("group/one");
    home.quick("two");
    let host = home.serve_roster(&[]);
    let mut all = Client::start(&home, &["--members", "members"]);
    all.open();
    assert_eq!(all.tools(), OF_ROSTER);
    let made = all.ask("tools/call", json!({"name": "dispatch", "arguments": dispatch_to("two", "t")}));
    host.at("two").ended(made["structuredContent"]["jobId"].as_str().unwrap());

    // One member of it, by its key, its directory, or the host's address.
    let url = format!("http://127.0.0.1:{}", host.port);
    for arguments in [
        &["--member", "group/one", "--members", "members"][..],
        &["--member", "./members/group/one", "--members", "members"],
        &["--url", &url, "--member", "group/one"],
    ] {
        let mut one = Client::start(&home, arguments);
        assert_eq!(one.open()["serverInfo"]["name"], "group/one");
        assert_eq!(one.tools(), six("group--one-dispatch"));
        one.close();
    }
    all.close();
    assert_eq!(host.at("two").call("worker/list", json!({})).unwrap()["jobs"].as_array().unwrap().len(), 1);
}

#[test]
fn clients_that_start_at_once_share_one_host() {
    let home = Home::new();
    home.quick("one");
    home.quick("two");
    let mut clients: Vec<_> = (0..4).map(|_| Client::start(&home, &["--members", "members"])).collect();
    for client in &mut clients {
        client.open();
    }
    assert_eq!(host_of(&home, "one"), host_of(&home, "two"));
    let made = clients[0].ask("tools/call", json!({"name": "dispatch", "arguments": dispatch_to("one", "t")}));
    let id = &made["structuredContent"]["jobId"];
    for client in &mut clients {
        let listed = client.ask("tools/call", json!({"name": "list", "arguments": {}}));
        assert_eq!(&listed["structuredContent"]["jobs"][0]["jobId"], id);
    }
}

#[test]
fn the_host_ends_with_its_last_client_also_where_that_is_killed() {
    let home = Home::new();
    home.quick("worker");
    let mut clients = [(); 2].map(|()| Client::start(&home, &["--members", "members"]));
    clients.iter_mut().for_each(|client| drop(client.open()));
    let (pid, _) = host_of(&home, "worker");
    let [mut first, mut second] = clients;
    kill(first.child.id());
    assert_eq!(second.tools(), OF_ROSTER);
    assert_eq!(host_of(&home, "worker").0, pid);
    kill(second.child.id());
    wait_for("the host to end", || (!is_running(pid)).then_some(()));
    drop((first.stdin.take(), second.stdin.take()));
    let mut next = Client::start(&home, &["--members", "members"]);
    next.open();
    assert_ne!(host_of(&home, "worker").0, pid);
}

#[test]
fn a_client_whose_host_was_killed_goes_on_with_another() {
    let home = Home::new();
    home.quick("worker");
    let mut clients = [(); 2].map(|()| Client::start(&home, &["--members", "members"]));
    clients.iter_mut().for_each(|client| drop(client.open()));
    let (pid, _) = host_of(&home, "worker");
    kill(pid);
    for client in &mut clients {
        // Its connection may not have noticed yet.
        let id = client.request("ping", json!({}));
        client.answer(id);
        assert_eq!(client.tools(), OF_ROSTER);
    }
    assert_ne!(host_of(&home, "worker").0, pid);
}

#[test]
fn the_host_that_it_starts_answers_nobody_but_its_user() {
    let home = Home::new();
    home.quick("worker");
    let mut client = Client::start(&home, &["--members", "members"]);
    client.open();
    let (pid, port) = host_of(&home, "worker");
    let anybody = host::Client::new(port, "/mcp");
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    assert_eq!(anybody.post(&ping).unwrap().0, 401);

    let file = home.path(&format!(".local/state/guild/run/mcp-{port}"));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    let token = fs::read_to_string(&file).unwrap();
    let others = ["cmdline", "environ"].map(|name| fs::read(format!("/proc/{pid}/{name}")).unwrap());
    assert!(!others.iter().any(|seen| String::from_utf8_lossy(seen).contains(&token)));

    let url = format!("http://127.0.0.1:{port}");
    let run: &[&str] = &["run", "worker", "a task", "--members", "members"];
    for arguments in [run, &["list", "--url", &url], &["members", "--url", &url]] {
        let output = home.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(host_of(&home, "worker").0, pid);
    client.close();
    // The token ends with the host.
    wait_for("the token to be removed", || (!file.exists()).then_some(()));
}

#[test]
fn clients_of_the_same_members_share_a_host_and_the_second_continues_when_the_first_is_gone() {
    let home = Home::new();
    home.quick("worker");
    let mut first = Client::start(&home, &["--members", "members"]);
    first.open();
    let mut second = Client::start(&home, &["--members", "members"]);
    second.open();
    let made = first.ask("tools/call", json!({"name": "dispatch", "arguments": dispatch_to("worker", "t")}));
    let id = made["structuredContent"]["jobId"].clone();
    let list = json!({"name": "list", "arguments": {}});
    assert_eq!(second.ask("tools/call", list.clone())["structuredContent"]["jobs"][0]["jobId"], id);
    let host = host_of(&home, "worker");
    first.close();
    assert_eq!(second.ask("tools/call", list)["structuredContent"]["jobs"][0]["jobId"], id);
    assert_eq!(host_of(&home, "worker"), host);
    second.close();
}

#[test]
fn a_notification_while_another_host_is_looked_for_delays_nobody() {
    let home = Home::new();
    home.quick("worker");
    for ends in [Client::close, Client::terminate] {
        let host = home.serve_roster(&[]);
        let mut client = Client::start(&home, &["--members", "members"]);
        client.open();
        assert_eq!(client.tools(), OF_ROSTER);
        host.kill();
        let id = client.request("tools/list", json!({}));
        client.say(&json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}));
        // It may have been on its way when the host died.
        client.answer(id);
        assert_eq!(client.tools(), OF_ROSTER);
        ends(client);
    }
}

#[test]
fn a_session_that_the_host_has_closed_is_opened_anew_at_the_same_host() {
    let mut home = Home::new();
    home.quick("worker");
    let file = home.write("guild.toml", "[limits]\nmcp_sessions = 1\n");
    home.set("GUILD_CONFIG", file.to_str().unwrap());
    let initialize =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let mut first = Client::start(&home, &["--members", "members", "-v"]);
    first.ask("initialize", initialize.clone());
    // There is room for one session, and the first one's is idle.
    let mut second = Client::start(&home, &["--members", "members"]);
    second.ask("initialize", initialize);
    assert_eq!(first.tools(), OF_ROSTER);
    second.close();
    let said = first.close();
    assert!(said.contains("has closed the session; opening it again"), "{said}");
    // It is still the first one's own host: nobody looked for another.
    assert!(!said.contains("is gone") && !said.contains("the members are served by"), "{said}");
}

#[test]
fn the_last_line_needs_no_end() {
    let home = Home::new();
    home.quick("worker");
    let mut client = Client::start(&home, &["--members", "members"]);
    let mut stdin = client.stdin.take().unwrap();
    stdin
        .write_all(b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/list\"}\n{\"jsonrpc\": \"2.0\", \"id\": 2,")
        .unwrap();
    // While half of it has been read, something else happens.
    assert!(client.answer(1)["result"].is_object());
    stdin.write_all(b" \"method\": \"tools/list\"}").unwrap();
    drop(stdin);
    assert!(client.answer(2)["result"].is_object());
    client.close();
}

#[test]
fn a_message_as_long_as_the_limit_is_carried() {
    let home = Home::new();
    home.quick("worker");
    let mut client = Client::start(&home, &["--members", "members"]);
    let mut request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    request.push_str(&" ".repeat((64 << 20) - request.len()));
    writeln!(client.stdin.as_ref().unwrap(), "{request}").unwrap();
    assert!(client.answer(1)["result"].is_object());
    client.close();
}

#[test]
fn a_message_that_has_no_end_is_not_read_for_ever() {
    let home = Home::new();
    home.quick("worker");
    let mut client = Client::start(&home, &["--members", "members"]);
    let mut stdin = client.stdin.take().unwrap();
    let part = vec![b' '; 1024 * 1024];
    while stdin.write_all(&part).is_ok() {}
    let status = wait_for("guild mcp to end", || client.child.try_wait().unwrap());
    let mut said = String::new();
    client.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("longer than 67108864 bytes"), "{said}");
}

#[test]
fn a_client_of_2026_07_28_is_carried_too() {
    let home = Home::new();
    home.member("probe", "autonomous-worker", &guest::built("probe"));
    home.edit_manifest("probe", |manifest| manifest["component"]["grants"] = guest::everything());
    let mut client = Client::start(&home, &["--members", "members"]);
    let id = client.modern("server/discover", json!({}));
    let found = client.answer(id);
    assert_eq!(found["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "guild", "{found}");

    let id = client.modern("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let accepted = client.hear();
    assert_eq!(accepted["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id, "{accepted}");

    let mut arguments = dispatch_to("probe", "summary half\nsleep");
    arguments["wait"] = true.into();
    let id = client.modern("tools/call", json!({"name": "dispatch", "arguments": arguments}));
    let task = client.answer(id)["result"]["taskId"].clone();
    let id = client.modern("tasks/cancel", json!({"taskId": task}));
    assert_eq!(client.answer(id)["result"]["resultType"], "complete");
    let id = client.modern("tasks/get", json!({"taskId": task}));
    assert_eq!(client.answer(id)["result"]["status"], "cancelled");
    let id = client
        .modern("resources/read", json!({"uri": format!("guild://probe/jobs/{}/status", task.as_str().unwrap())}));
    assert!(client.answer(id)["result"]["contents"][0]["text"].as_str().unwrap().contains("cancelled"));
    // Calls that are still open delay nothing.
    client.close();
}

#[test]
fn a_client_that_asks_and_goes_is_a_client_like_any_other() {
    let home = Home::new();
    home.quick("worker");
    let mut client = Client::start(&home, &["--members", "members"]);
    let id = client.modern("server/discover", json!({}));
    assert!(client.answer(id).get("error").is_none());
    client.close();
    // One that says nothing at all, too; and what was asked last is answered.
    Client::start(&home, &["--members", "members"]).close();
    let mut client = Client::start(&home, &["--members", "members"]);
    let id = client.request("tools/list", json!({}));
    client.stdin = None;
    assert!(client.answer(id)["result"]["tools"].is_array());
}

#[test]
fn what_is_no_message_is_answered_and_the_next_one_is_carried() {
    let home = Home::new();
    home.quick("worker");
    let mut client = Client::start(&home, &["--members", "members"]);
    for (bad, code, id) in [
        ("nonsense", -32700, json!(null)),
        ("{\"jsonrpc\":", -32700, json!(null)),
        ("[]", -32600, json!(null)),
        (r#"{"jsonrpc":"2.0","id":5}"#, -32600, json!(5)),
        (r#"{"jsonrpc":"2.0","id":"six","method":6}"#, -32600, json!("six")),
    ] {
        writeln!(client.stdin.as_ref().unwrap(), "{bad}").unwrap();
        let said = client.hear();
        assert_eq!((&said["error"]["code"], &said["id"]), (&json!(code), &id), "{bad}");
    }
    client.open();
    assert_eq!(client.tools(), OF_ROSTER);
    // What only the host can tell has the host's code, and the id.
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (rest, code) in [
        (r#""method":"ping","params":[]"#, -32602),
        (r#""method":"ping","params":{"_meta":"x"}"#, -32602),
        (r#""method":"tools/call","params":{"name":"list","arguments":{"n":1e400}}"#, -32602),
        (r#""method":"ping","result":{}"#, -32600),
        (&format!(r#""method":"ping","params":{{"x":{deep}}}"#), -32600),
    ] {
        writeln!(client.stdin.as_ref().unwrap(), r#"{{"jsonrpc":"2.0","id":99,{rest}}}"#).unwrap();
        let said = client.answer(99);
        assert_eq!(said["error"]["code"], code, "{said}");
    }
    writeln!(client.stdin.as_ref().unwrap(), r#"{{"id":99,"method":"ping"}}"#).unwrap();
    assert_eq!(client.answer(99)["error"]["code"], -32600);
    let cut =
        r#"{"jsonrpc":"2.0","id":99,"method":"tools/call","params":{"name":"list","arguments":{"filter":"\ud83d"}}}"#;
    writeln!(client.stdin.as_ref().unwrap(), "{cut}").unwrap();
    assert!(client.answer(99)["result"]["structuredContent"]["jobs"].is_array());
}

#[test]
fn why_there_is_no_host_is_said_on_stderr() {
    let home = Home::new();
    home.quick("worker");
    let said = |arguments: &[&str]| {
        let output = home.run(&[&["mcp"], arguments].concat());
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&["--members", "nowhere"]).contains("nowhere does not exist"));
    assert!(said(&["--member", "nobody", "--members", "members"]).contains("no member \"nobody\""));
    assert!(said(&["--url", "http://127.0.0.1:1/x/mcp", "--member", "worker"]).contains("leave the member"));
    // A host that is not there is said of each request.
    let mut client = Client::start(&home, &["--url", "http://127.0.0.1:1"]);
    let id = client.request("tools/list", json!({}));
    let answer = client.answer(id);
    let said = answer["error"]["message"].as_str();
    assert!(said.is_some_and(|said| said.contains("cannot connect to")), "{answer}");
}

#[test]
fn a_token_of_the_environment_is_accepted() {
    let mut home = Home::new();
    home.quick("worker");
    let file = home.write("guild.toml", "require_token = true\n");
    home.set("GUILD_CONFIG", file.to_str().unwrap());
    let made = home.run(&["token", "add", "--role", "dispatch", "mine"]);
    let host = home.serve_roster(&[]);
    let mut client = Client::start(&home, &["--members", "members"]);
    let id = client.request("tools/list", json!({}));
    assert!(client.answer(id)["error"]["message"].as_str().unwrap().contains("a valid token is needed"));
    client.close();
    home.set("GUILD_TOKEN", String::from_utf8(made.stdout).unwrap().trim());
    // At the host that it starts itself, too.
    for host in [Some(host), None] {
        let mut client = Client::start(&home, &["--members", "members"]);
        client.open();
        assert_eq!(client.tools(), OF_ROSTER[..5]);
        client.close();
        drop(host);
    }
}
