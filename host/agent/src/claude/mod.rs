//! The runtime `claude`: the Claude Code CLI, driven over its stream-json protocol as the Agent SDK drives it.
//!
//! Each session is a child process with its own supervisor, scratch directory and environment. What the session may call
//! is an MCP server on the same pipe: there is no port and no token, and the CLI has no tools of its own unless the operator
//! says so. Its settings, hooks, skills and MCP servers are kept out; its login is used.
//!
//! However a session or its host ends, the CLI ends with it, and so does all that the CLI started
//! ([`guild_confine::Supervised`]): it is asked to stop, then gets SIGTERM, then is killed.

mod conversation;
mod driver;
mod flags;
mod mcp;
mod process;
mod protocol;
mod redact;
mod retold;
mod run;
mod scratch;
mod turns;
mod version;

use std::{collections::BTreeSet, future::pending, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use guild_config::ClaudeOptions;
use guild_fs::own_directory;
use guild_session::{
    meter::Ending,
    session::{AgentRuntime, Session, SessionEnd, Wanted},
    transcript::Entry,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use conversation::Conversation;
use version::Versions;

/// Names by which the CLI takes its newest models, and what may follow them.
const ALIASES: [&str; 3] = ["haiku", "opus", "sonnet"];
const LONG_CONTEXT: &str = "[1m]";
/// A part of the whole names of all models of the CLI, at whichever provider.
const CLAUDE: &str = "claude";

/// The runtime that drives the Claude Code CLI.
#[derive(Clone, Debug)]
pub struct Claude {
    options: Arc<ClaudeOptions>,
    versions: Versions,
}

impl Claude {
    /// A runtime with these options. Whether the CLI is there is looked at later, by [`AgentRuntime::check`].
    ///
    /// # Errors
    /// Options that exclude each other, or a state directory that is not the host's own; the text names the setting.
    pub fn new(options: ClaudeOptions) -> Result<Self, String> {
        options.check()?;
        if let Some(state) = &options.state {
            own_directory::create(state).map_err(|why| format!("the directory for sessions of claude: {why}"))?;
        }
        Ok(Self { options: Arc::new(options), versions: Versions::default() })
    }

    /// Removes the scratch directories of sessions whose host was killed; returns how many. It blocks; call it once at the
    /// start of a host, before its first session. Those of hosts that live are left alone.
    pub fn sweep(&self) -> usize {
        self.options.state.as_deref().map_or(0, scratch::sweep)
    }

    /// What the CLI says about its version. It is asked where that is not known of its executable, and blocks then.
    ///
    /// # Errors
    /// As [`AgentRuntime::check`]: it is not there, or too old.
    pub fn version(&self) -> Result<String, String> {
        self.versions.usable(&self.program()?, &self.options.environment)
    }

    /// Runs a session; the error is why it could not.
    async fn start(&self, session: Session) -> Result<SessionEnd, String> {
        if !session.converses && !session.history.is_empty() {
            self.can_resume(&session.history)?;
        }
        let (resumed, program) = (handle(&session.history), self.program()?);
        // A separate task ends the session's processes also where this future is dropped.
        let dropped = CancellationToken::new();
        let conversation = Conversation::new(self.options.clone(), program, session, resumed, dropped.clone());
        let task = tokio::spawn(conversation.run().in_current_span());
        let _stop = dropped.drop_guard();
        match task.await {
            // The host ends, and this with it: that is no end of the session.
            Err(e) if e.is_cancelled() => pending().await,
            ended => ended.map_err(|e| format!("the session of claude broke off: {e}")),
        }
    }

    /// The CLI's executable file.
    fn program(&self) -> Result<PathBuf, String> {
        let command = &self.options.command;
        // It is started in another directory.
        let found =
            guild_confine::find_program(command).map(|program| std::path::absolute(&program).unwrap_or(program));
        found.ok_or_else(|| {
            let is_name = command.components().count() == 1 && !command.is_absolute();
            let place = if is_name { "on the PATH" } else { "there, or it cannot be executed" };
            format!(
                "the runtime \"claude\" needs the Claude Code CLI, and no program {:?} is {place}: install it \
                 (`npm install -g @anthropic-ai/claude-code`), or name it in guild.toml: [claude] command = \"...\"",
                command.display().to_string()
            )
        })
    }
}

#[async_trait]
impl AgentRuntime for Claude {
    fn name(&self) -> &'static str {
        "claude"
    }

    fn check(&self, _wanted: &Wanted<'_>) -> Result<(), String> {
        self.version()?;
        let sandboxed = self.options.environment.iter().any(|name| name == "IS_SANDBOX")
            && std::env::var_os("IS_SANDBOX").is_some_and(|value| value == "1");
        if self.options.bypass_permissions && rustix::process::geteuid().is_root() && !sandboxed {
            return Err("Claude Code refuses bypassPermissions to root: run the host as another user, or set \
                        [claude] permissions = \"dontAsk\" in guild.toml; in a sandbox, set IS_SANDBOX=1 and \
                        [claude] environment = [\"IS_SANDBOX\"]"
                .to_owned());
        }
        Ok(())
    }

    fn models(&self) -> Vec<String> {
        let own = ALIASES.into_iter().chain(self.options.model.as_deref());
        let priced = self.options.prices.named().into_iter().flatten().filter(|model| model.contains(CLAUDE));
        own.chain(priced).map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn usual_model(&self) -> Option<&str> {
        self.options.model.as_deref()
    }

    fn check_model(&self, model: &str) -> Result<(), String> {
        let ClaudeOptions { model: own, prices, .. } = &*self.options;
        let alias = model.strip_suffix(LONG_CONTEXT).unwrap_or(model);
        if ALIASES.contains(&alias)
            || model.contains(CLAUDE)
            || own.as_deref() == Some(model)
            || prices.is_operators(model)
        {
            return Ok(());
        }
        Err("is no model of the Claude Code CLI; where it is one, give its price under [[prices]] in guild.toml"
            .to_owned())
    }

    fn can_resume(&self, history: &[Entry]) -> Result<(), String> {
        if history.iter().any(|entry| matches!(entry, Entry::Message { .. })) {
            // What the CLI has lost of a conversation, it is told from the transcript.
            return Ok(());
        }
        if !self.options.resume {
            return Err("sessions of claude do not go on after a restart of the host, unless guild.toml has [claude] \
                        resume = true"
                .to_owned());
        }
        handle(history).map(|_| ()).ok_or_else(|| "the host stopped before claude had named its session".to_owned())
    }

    async fn run(&self, session: Session) -> SessionEnd {
        self.start(session).await.unwrap_or_else(|why| Ending::Error(why).into())
    }
}

/// What the CLI called the session, the last time it did.
fn handle(history: &[Entry]) -> Option<String> {
    history.iter().rev().find_map(|entry| match entry {
        Entry::Handle { handle, .. } => Some(handle.clone()),
        _ => None,
    })
}
