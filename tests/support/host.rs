//! A host as Guild Hall runs it: the `guild` binary as a separate process, called through its socket.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

pub(crate) use guild_fakes::free_port;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::guest;

/// Long enough for a debug build on a loaded machine; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Asks until the answer is there.
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// A separate home directory for the processes of one test: members, configuration, documents.
pub(crate) struct Home {
    dir: TempDir,
    environment: Vec<(String, String)>,
}

impl Home {
    pub(crate) fn new() -> Self {
        let home = Self { dir: tempfile::tempdir().unwrap(), environment: Vec::new() };
        fs::create_dir_all(home.path("members")).unwrap();
        home
    }

    /// A variable for the processes here.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.dir.path().join(relative)
    }

    pub(crate) fn write(&self, relative: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        // Whatever the umask: a host does not believe what others can write.
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode & !0o022)).unwrap();
        path
    }

    /// A copy of the researcher that `cargo xtask guests` installed, under another name.
    pub(crate) fn researcher(&self, name: &str) -> PathBuf {
        self.installed("researcher", "researcher.wasm", name)
    }

    /// A copy of the guild master, under another name.
    pub(crate) fn guild_master(&self, name: &str) -> PathBuf {
        self.installed("guild-master", "guild_master.wasm", name)
    }

    /// A member that comes along, under its own name.
    pub(crate) fn shipped(&self, name: &str) -> PathBuf {
        self.installed(name, &format!("{}.wasm", name.replace('-', "_")), name)
    }

    fn installed(&self, member: &str, component: &str, name: &str) -> PathBuf {
        let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guild-members").join(member);
        for file in ["guild-member.json", "posture.md", component] {
            let content = fs::read(installed.join(file));
            let content = content.unwrap_or_else(|e| panic!("{file}: {e}; `cargo xtask guests` builds it"));
            self.write(&format!("members/{name}/{file}"), content);
        }
        self.edit_manifest(name, |manifest| manifest["name"] = json!(name));
        self.path(&format!("members/{name}"))
    }

    pub(crate) fn edit_manifest(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        let path = self.path(&format!("members/{name}/guild-member.json"));
        let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        edit(&mut manifest);
        fs::write(path, manifest.to_string()).unwrap();
    }

    /// A member whose component is given.
    pub(crate) fn member(&self, name: &str, world: &str, component: &[u8]) -> PathBuf {
        let manifest = json!({
            "name": name, "displayName": name, "description": "made for a test", "version": "0.1.0", "transport": "http",
            "mcp": {"command": "guild", "args": ["serve", "--member", ".", "--port", "${PORT}"]},
            "capabilities": ["worker"], "component": {"file": "guest.wasm", "world": world}
        });
        self.write(&format!("members/{name}/guest.wasm"), component);
        self.write(&format!("members/{name}/guild-member.json"), manifest.to_string());
        self.path(&format!("members/{name}"))
    }

    /// A member whose jobs run until they are cancelled.
    pub(crate) fn endless(&self, name: &str) -> PathBuf {
        self.member(name, "autonomous-worker", &guest::autonomous("(loop (br 0)) (i32.const 0)"))
    }

    /// A member whose jobs complete at once with "date".
    pub(crate) fn quick(&self, name: &str) -> PathBuf {
        let ok = "(i64.store (i32.const 2048) (i64.const 0x65746164)) (i32.store8 (i32.const 4096) (i32.const 0))
                  (i32.store (i32.const 4100) (i32.const 2048)) (i32.store (i32.const 4104) (i32.const 4)) (i32.const 4096)";
        self.member(name, "autonomous-worker", &guest::autonomous(ok))
    }

    /// A member whose jobs fail at once with "date".
    pub(crate) fn failing(&self, name: &str) -> PathBuf {
        let error = "(i64.store (i32.const 2048) (i64.const 0x65746164)) (i32.store8 (i32.const 4096) (i32.const 1))
                  (i32.store (i32.const 4100) (i32.const 2048)) (i32.store (i32.const 4104) (i32.const 4)) (i32.const 4096)";
        self.member(name, "autonomous-worker", &guest::autonomous(error))
    }

    /// A job as a host leaves it, with `meta` in its record. It is never there without its `meta.json`.
    pub(crate) fn job(&self, member: &str, id: &str, meta: Value) {
        let mut all = json!({"jobId": id, "description": format!("what {id} is"), "startedAt": "2026-01-01T00:00:00Z"});
        all.as_object_mut().unwrap().extend(meta.as_object().unwrap().clone());
        let new = self.write(&format!("members/{member}/jobs/{id}/.meta"), all.to_string());
        fs::rename(&new, new.with_file_name("meta.json")).unwrap();
    }

    /// Runs `guild` to its end, in this home's directory.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.guild().current_dir(self.path(".")).args(arguments).output().unwrap()
    }

    /// The `guild` command, in this home: no configuration of the user's is seen, and compiled components are shared
    /// with the other tests.
    pub(crate) fn guild(&self) -> Command {
        self.guild_of(env!("CARGO_BIN_EXE_guild"))
    }

    /// The same with another binary.
    pub(crate) fn guild_of(&self, binary: impl AsRef<OsStr>) -> Command {
        self.set_up(Command::new(binary))
    }

    /// The same where permissions count for root, too.
    pub(crate) fn guild_under_permissions(&self) -> Command {
        if !rustix::process::geteuid().is_root() {
            return self.guild();
        }
        let mut command = Command::new("setpriv");
        for set in ["--bounding-set", "--inh-caps"] {
            command.args([set, "-dac_override,-dac_read_search"]);
        }
        command.arg(env!("CARGO_BIN_EXE_guild"));
        self.set_up(command)
    }

    fn set_up(&self, mut command: Command) -> Command {
        command
            .env("HOME", self.dir.path())
            .env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env_remove("GUILD_CONFIG")
            .env_remove("GUILD_URL")
            .env_remove("RUST_LOG")
            .env_remove("XDG_STATE_HOME")
            .env_remove("CLAUDE_CONFIG_DIR")
            .env_remove("ANTHROPIC_AUTH_TOKEN")
            .env_remove("CLAUDE_CODE_OAUTH_TOKEN")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Starts a host as Guild Hall does: in the member's directory, on the next port that is free.
    pub(crate) fn serve(&self, member: &Path, options: &[&str]) -> Host {
        self.spawn(member, &["--member", "."], options, "/mcp")
    }

    /// Starts a host of all members.
    pub(crate) fn serve_roster(&self, options: &[&str]) -> Host {
        let members = self.path("members");
        self.spawn(self.dir.path(), &["--members", members.to_str().unwrap()], options, "")
    }

    /// A host of a hall, with the members in the `packages/` of its home.
    pub(crate) fn serve_hall(&self, home: &str) -> Host {
        self.spawn(self.dir.path(), &["--hall", self.path(home).to_str().unwrap()], &[], "")
    }

    fn spawn(&self, cwd: &Path, target: &[&str], options: &[&str], endpoint: &str) -> Host {
        for _ in 0..20 {
            let port = free_port();
            let mut command = self.guild();
            command.current_dir(cwd).arg("serve").args(target).args(["--port", &port.to_string()]).args(options);
            let mut host = Host::start(command, port, endpoint);
            if host.is_ready() {
                return host;
            }
            let (status, output) = host.wait();
            // Another test took the port meanwhile: the next one, as Guild Hall does.
            assert_eq!(status.code(), Some(2), "the host did not start: {output}");
        }
        panic!("no port is free");
    }
}

/// A host that runs.
pub(crate) struct Host {
    child: Child,
    pub(crate) port: u16,
    endpoint: String,
    /// What its clients bring as a token.
    pub(crate) token: Option<String>,
    output: Arc<Mutex<String>>,
    closed: Mutex<mpsc::Receiver<()>>,
}

impl Host {
    /// Starts the process; it may not be ready yet.
    pub(crate) fn start(mut command: Command, port: u16, endpoint: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = Arc::new(Mutex::new(String::new()));
        let (done, closed) = mpsc::channel();
        let pipes: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for pipe in pipes {
            let (output, done) = (output.clone(), done.clone());
            thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    let mut output = output.lock().unwrap();
                    output.push_str(&line);
                    output.push('\n');
                }
                drop(done);
            });
        }
        Self { child, port, endpoint: endpoint.to_owned(), token: None, output, closed: Mutex::new(closed) }
    }

    /// Waits until this process says that clients can connect; false if it ended instead.
    pub(crate) fn is_ready(&mut self) -> bool {
        let address = format!("http://127.0.0.1:{}", self.port);
        wait_for("the host to be ready", || {
            if self.child.try_wait().unwrap().is_some() {
                return Some(false);
            }
            self.output().contains(&address).then_some(true)
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    /// Waits until this process has printed `part`: what it prints reaches a test later than what it answers.
    pub(crate) fn prints(&self, part: &str) {
        wait_for(part, || self.output().contains(part).then_some(()));
    }

    /// Waits for the end; its status, and all that it printed.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let status = wait_for("the host to end", || self.child.try_wait().unwrap());
        let _ = self.closed.lock().unwrap().recv();
        (status, self.output())
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Writes to its stdin.
    pub(crate) fn types(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// SIGTERM, and its end.
    pub(crate) fn stop(self) -> (ExitStatus, String) {
        self.signal("-TERM");
        self.wait()
    }

    /// Whether its process is gone.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// For one member of a roster.
    pub(crate) fn at(&self, member: &str) -> Client {
        let client = Client::new(self.port, &format!("/members/{member}/mcp"));
        Client { token: self.token.clone(), ..client }
    }

    /// What it says of its members.
    pub(crate) fn members(&self) -> Vec<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let token = self.token.iter().map(|token| format!("Authorization: Bearer {token}\r\n")).collect::<String>();
        write!(stream, "GET /members HTTP/1.1\r\nHost: localhost\r\n{token}Connection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        serde_json::from_str(body).unwrap()
    }

    /// For the one member of the host.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.port, &self.endpoint)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn outcome(mut answer: Value) -> Result<Value, RpcError> {
    match answer.get("error") {
        None => Ok(answer["result"].take()),
        Some(error) => Err(RpcError {
            code: error["code"].as_i64().unwrap(),
            message: error["message"].as_str().unwrap().to_owned(),
        }),
    }
}

/// One member's endpoint, and a client as lenient as Guild Hall's own.
#[derive(Clone)]
pub(crate) struct Client {
    port: u16,
    path: String,
    pub(crate) token: Option<String>,
}

/// A JSON-RPC error.
#[derive(Debug, PartialEq)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
}

impl Client {
    pub(crate) fn new(port: u16, path: &str) -> Self {
        Self { port, path: path.to_owned(), token: None }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}{}", self.port, self.path)
    }

    /// One POST on a new connection: status and body.
    pub(crate) fn post(&self, body: &str) -> std::io::Result<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let token = self.token.iter().map(|token| format!("Authorization: Bearer {token}\r\n")).collect::<String>();
        write!(
            stream,
            "POST {} HTTP/1.1\r\nHost: localhost:{}\r\nContent-Type: application/json\r\nOrigin: http://localhost\r\n{token}\
             MCP-Protocol-Version: 2025-06-18\r\nAccept: */*\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            self.path,
            self.port,
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or(std::io::ErrorKind::InvalidData)?;
        Ok((status, body.to_owned()))
    }

    pub(crate) fn call(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let (status, body) = self.post(&request.to_string()).unwrap();
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}"));
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(1)));
        outcome(answer)
    }

    /// One request that has a call for each of these, and what came of each.
    pub(crate) fn batch(&self, method: &str, params: &[Value]) -> Vec<Result<Value, RpcError>> {
        let call = |params| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let (status, body) = self.post(&params.iter().map(call).collect::<Value>().to_string()).unwrap();
        assert_eq!(status, 200, "{body}");
        let answers: Vec<Value> = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}"));
        assert_eq!(answers.len(), params.len(), "{body}");
        answers.into_iter().map(outcome).collect()
    }

    pub(crate) fn dispatch(&self, params: Value) -> Result<String, RpcError> {
        self.call("worker/dispatch", params).map(|r| r["jobId"].as_str().unwrap().to_owned())
    }

    /// Dispatches a task with a description, which must be accepted.
    pub(crate) fn start(&self, description: &str) -> String {
        self.dispatch(json!({"description": description, "task": description})).unwrap()
    }

    pub(crate) fn status(&self, id: &str) -> Result<Value, RpcError> {
        self.call("worker/status", json!({"jobId": id}))
    }

    pub(crate) fn result(&self, id: &str) -> Result<Value, RpcError> {
        self.call("worker/result", json!({"jobId": id}))
    }

    pub(crate) fn cancel(&self, id: &str) -> Result<Value, RpcError> {
        self.call("worker/cancel", json!({"jobId": id}))
    }

    pub(crate) fn delete(&self, id: &str) -> Result<Value, RpcError> {
        self.call("worker/delete", json!({"jobId": id}))
    }

    /// Polls until the job is no longer running; its last status.
    pub(crate) fn ended(&self, id: &str) -> Value {
        wait_for("the job to end", || {
            let status = self.status(id).unwrap();
            (status["status"] != "running").then_some(status)
        })
    }
}
