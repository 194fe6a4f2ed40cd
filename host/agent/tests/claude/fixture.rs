//! A directory with a fake CLI in it, and what that wrote down.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use guild_agent::Claude;
use guild_config::{ClaudeOptions, Prices};
use serde_json::{Value, json};

/// How long a condition may take to come true.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until a condition is true.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

/// Whether a process runs.
pub(crate) fn lives(pid: u32) -> bool {
    guild_session::process::start_time(pid).is_some()
}

fn flags_of(started: &Value) -> String {
    started["flags"].as_array().unwrap().iter().filter_map(Value::as_str).map(|flag| format!("{flag}\n")).collect()
}

pub(crate) struct Fixture {
    directory: PathBuf,
    /// Removes it in the end.
    _own: Option<tempfile::TempDir>,
}

impl Fixture {
    /// With a fake that plays this script.
    pub(crate) fn new(script: Value) -> Self {
        let own = tempfile::tempdir().unwrap();
        let fixture = Self { directory: own.path().to_owned(), _own: Some(own) };
        fixture.play(script);
        fixture.replace_command(&fixture.exec());
        fixture
    }

    /// Has the fake play this script when it is started next.
    pub(crate) fn play(&self, mut script: Value) {
        script["log"] = json!(self.directory.join("log.jsonl"));
        fs::write(self.directory.join("script.json"), script.to_string()).unwrap();
    }

    /// One that was made elsewhere.
    pub(crate) fn at(directory: PathBuf) -> Self {
        Self { directory, _own: None }
    }

    fn exec(&self) -> String {
        let fake_server = guild_fakes::fake_claude();
        format!("exec '{}' '{}' \"$@\"", fake_server.display(), self.directory.join("script.json").display())
    }

    /// Has this shell script in place of the CLI.
    pub(crate) fn replace_command(&self, script: &str) {
        // Written by another process: a file that this one has open for writing, and with it any child that another
        // test is just starting, cannot be executed.
        let write = r#"rm -f "$1" && printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod 755 "$1""#;
        let mut shell = Command::new("/bin/sh");
        let written = shell.args(["-c", write, "sh"]).arg(self.command()).arg(script).status().unwrap();
        assert!(written.success());
    }

    /// Has the fake started from this shell script.
    pub(crate) fn wrap(&self, script: &str) {
        self.replace_command(&format!("{script}\n{}", self.exec()));
    }

    /// Has the fake ignore SIGTERM.
    pub(crate) fn trap_sigterm(&self) {
        self.wrap("trap '' TERM");
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn command(&self) -> PathBuf {
        self.directory.join("claude")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    pub(crate) fn options(&self) -> ClaudeOptions {
        guild_confine::set_supervisor(guild_fakes::fake_claude());
        ClaudeOptions {
            command: self.command(),
            model: None,
            builtin_tools: false,
            bypass_permissions: false,
            resume: false,
            silence: PATIENCE,
            environment: Vec::new(),
            prices: Prices::default(),
            state: Some(self.state()),
        }
    }

    pub(crate) fn claude(&self) -> Claude {
        Claude::new(self.options()).unwrap()
    }

    /// What the fake wrote down.
    pub(crate) fn log(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.directory.join("log.jsonl")).unwrap_or_default();
        // The last line may be half there.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn logged(&self, name: &str) -> Vec<Value> {
        self.log().into_iter().filter_map(|line| line.get(name).cloned()).collect()
    }

    /// What the fake was started with.
    pub(crate) fn started(&self) -> Value {
        self.logged("started").remove(0)
    }

    /// Its flags, each with a line end behind it.
    pub(crate) fn flags(&self) -> String {
        self.all_flags().remove(0)
    }

    /// The flags of each start.
    pub(crate) fn all_flags(&self) -> Vec<String> {
        self.logged("started").iter().map(flags_of).collect()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.started()["pid"].as_u64().unwrap().try_into().unwrap()
    }

    /// The process that the fake started, once it has.
    pub(crate) async fn grandchild(&self) -> u32 {
        until(|| !self.logged("grandchild").is_empty()).await;
        self.logged("grandchild")[0].as_u64().unwrap().try_into().unwrap()
    }

    /// What the host answered to control requests, in order.
    pub(crate) fn responses(&self) -> Vec<Value> {
        let received = self.logged("received");
        received
            .into_iter()
            .filter(|line| line["type"] == "control_response")
            .map(|line| line["response"].clone())
            .collect()
    }

    /// What it answered to MCP messages, but for the handshake's first.
    pub(crate) fn answers(&self) -> Vec<Value> {
        let answers = self.responses().into_iter().map(|response| response["response"]["mcp_response"].clone());
        answers
            .filter(|answer| answer["result"]["content"].is_array() || answer["result"]["tools"].is_array())
            .collect()
    }

    /// The request with which the conversation began.
    pub(crate) fn initialized(&self) -> Value {
        let received = self.logged("received");
        received.into_iter().find(|line| line["request"]["subtype"] == "initialize").unwrap()["request"].clone()
    }

    pub(crate) fn was_interrupted(&self) -> bool {
        self.logged("received").iter().any(|line| line["request"]["subtype"] == "interrupt")
    }

    /// What the agent was asked.
    pub(crate) fn user_messages(&self) -> Vec<String> {
        let received = self.logged("received");
        let users = received.into_iter().filter(|line| line["type"] == "user");
        users.map(|line| line["message"]["content"].as_str().unwrap_or_default().to_owned()).collect()
    }
}
