//! Implements the runtime `claude`: the Claude Code CLI, driven over its stream-json protocol like by the Agent SDK.
//!
//! Each session is a child process with its own supervisor, scratch directory and environment. The tools of the session
//! are served by an MCP server on the same pipe, without a port or a token. The CLI has no tools of its own unless the
//! operator allows them. Its settings, hooks, skills and MCP servers are kept out; its login is used.
//!
//! When a session or its host ends in any way, the CLI and all processes that it started end too
//! ([`guild_confine::Supervised`]): the CLI is asked to stop, then gets SIGTERM, then is killed.

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

/// The CLI's names for its newest models, which a suffix may follow.
const ALIASES: [&str; 3] = ["haiku", "opus", "sonnet"];
const LONG_CONTEXT: &str = "[1m]";
/// A part of the full name of each model of the CLI, at every provider.
const CLAUDE: &str = "claude";

/// The runtime that drives the Claude Code CLI.
#[derive(Clone, Debug)]
pub struct Claude {
    options: Arc<ClaudeOptions>,
    versions: Versions,
}

impl Claude {
    /// Makes a runtime with these options. [`AgentRuntime::check`] looks for the CLI later.
    ///
    /// # Errors
    ///
    /// The options exclude each other, or the state directory is not the host's own. The text names the setting.
    pub fn new(options: ClaudeOptions) -> Result<Self, String> {
        options.check()?;
        if let Some(state) = &options.state {
            own_directory::create(state).map_err(|why| format!("the directory for sessions of claude: {why}"))?;
        }
        Ok(Self { options: Arc::new(options), versions: Versions::default() })
    }

    /// Removes the scratch directories of sessions whose host was killed; returns their number. It blocks; call it once
    /// at the start of a host, before its first session. Directories of live hosts are kept.
    pub fn sweep(&self) -> usize {
        self.options.state.as_deref().map_or(0, scratch::sweep)
    }

    /// The CLI's version. If the version of the executable is not known yet, this runs the CLI and blocks.
    ///
    /// # Errors
    ///
    /// Returns the error of [`AgentRuntime::check`] when the CLI is missing or too old.
    pub fn version(&self) -> Result<String, String> {
        self.versions.usable(&self.program()?, &self.options.environment)
    }

    /// Runs a session; the error has the reason that it could not begin.
    async fn start(&self, session: Session) -> Result<SessionEnd, String> {
        if !session.converses && !session.history.is_empty() {
            self.can_resume(&session.history)?;
        }
        let (resumed, program) = (handle(&session.history), self.program()?);
        // A separate task ends the session's processes even if this future is dropped.
        let dropped = CancellationToken::new();
        let conversation = Conversation::new(self.options.clone(), program, session, resumed, dropped.clone());
        let task = tokio::spawn(conversation.run().in_current_span());
        let _stop = dropped.drop_guard();
        match task.await {
            // The host stops and this future with it, which does not end the session.
            Err(e) if e.is_cancelled() => pending().await,
            ended => ended.map_err(|e| format!("the session of claude broke off: {e}")),
        }
    }

    /// The CLI's executable file.
    fn program(&self) -> Result<PathBuf, String> {
        let command = &self.options.command;
        // The CLI is started in another directory.
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
        Err("is not a known model of the Claude Code CLI; if it is one, give its price under [[prices]] in guild.toml"
            .to_owned())
    }

    fn can_resume(&self, history: &[Entry]) -> Result<(), String> {
        // The CLI is told from the transcript what it does not have.
        if self.options.resume || history.iter().any(|entry| matches!(entry, Entry::Message { .. })) {
            return Ok(());
        }
        Err("sessions of claude do not continue after a restart of the host, unless guild.toml has [claude] resume = \
             true"
            .to_owned())
    }

    async fn run(&self, session: Session) -> SessionEnd {
        self.start(session).await.unwrap_or_else(|why| Ending::Error(why).into())
    }
}

/// The CLI's last id of the session.
fn handle(history: &[Entry]) -> Option<String> {
    history.iter().rev().find_map(|entry| match entry {
        Entry::Handle { handle, .. } => Some(handle.clone()),
        _ => None,
    })
}
