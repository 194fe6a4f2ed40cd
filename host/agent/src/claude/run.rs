//! Runs one session: starts the CLI, sends it the task, serves its tools, and ends it.

use std::{process::ExitStatus, sync::Arc, time::Duration};

use guild_confine::Supervised;
use guild_contract::Bounds;
use guild_session::{meter::Ending, session::SessionEnd, tools::ToolDefinition, transcript::Entry};

use super::{
    conversation::Conversation,
    driver::{Driver, Stop},
    flags,
    process::{Lines, Outbox, Process},
    protocol::{Outcome, SHOWN_CHARS},
    retold,
    scratch::Scratch,
};

/// The longest time for the CLI to end after its result.
const EXIT: Duration = Duration::from_secs(5);

impl Conversation {
    /// Runs the session to its end. When this returns, no process of the session is left, and its scratch directory is
    /// removed.
    pub(super) async fn run(self) -> SessionEnd {
        let secrets = self.secrets.clone();
        let this = Arc::new(self);
        let end = this.run_or_restart().await;
        match end.ending {
            Ending::Error(text) => SessionEnd { ending: Ending::Error(secrets.redact(text)), ..end },
            _ => end,
        }
    }

    /// Runs a session, or a turn of a conversation. If the CLI lost it, it restarts.
    async fn run_or_restart(self: Arc<Self>) -> SessionEnd {
        if self.resumed.is_none() {
            if retold::is_begun(&self.session.history) {
                self.note_anew("it had not named its session");
            }
            return self.run_to_end().await.unwrap_or_else(|Lost(end)| end);
        }
        match self.run_to_end().await {
            Ok(end) => end,
            Err(Lost(end)) => {
                let anew = Arc::new(Self { resumed: None, ..Arc::unwrap_or_clone(self) });
                let why = end.ending.reason(anew.session.meter.bounds()).unwrap_or_default();
                anew.note_anew(&anew.secrets.redact(why));
                anew.run_to_end().await.unwrap_or_else(|Lost(end)| end)
            }
        }
    }

    /// Notes in the transcript and in the host's log that the session restarts.
    fn note_anew(&self, why: &str) {
        let name = if self.session.converses { "conversation" } else { "session" };
        tracing::warn!(why, "claude does not have the {name} any more; it restarts from its transcript");
        let text = format!(
            "claude does not have the {name} any more ({why}): it restarts with the part of the transcript that fits into \
             limits.conversation_chars"
        );
        self.session.journal.write(&Entry::Compacted { session: self.session.number, text });
    }

    async fn run_to_end(self: &Arc<Self>) -> Result<SessionEnd, Lost> {
        let left = match self.session.meter.left() {
            Ok(left) => left,
            Err(why) => return Ok(Ending::Error(why).into()),
        };
        if let Some(ending) = reached(&left, self.session.meter.deadline()) {
            return Ok(ending.into());
        }
        let (builtin, served): (Vec<_>, Vec<_>) = self.session.tools.definitions().into_iter().partition(|tool| {
            self.options.builtin_tools && self.session.files.is_some() && flags::is_builtin(&tool.name)
        });
        let builtin: Vec<String> = builtin.iter().map(|tool| tool.name.clone()).collect();
        let prepared = tokio::select! {
            () = self.session.cancel.cancelled() => return Ok(Ending::Interrupted.into()),
            () = self.dropped.cancelled() => return Ok(Ending::Interrupted.into()),
            prepared = self.prepare(!builtin.is_empty()) => prepared,
        };
        let started = match prepared {
            Ok(scratch) => {
                let supervised = self.supervised(&scratch, &builtin, !served.is_empty(), &left);
                supervised
                    .and_then(|supervised| Process::start(supervised, &self.program, scratch, self.secrets.clone()))
            }
            Err(why) => Err(why),
        };
        match started {
            Ok((process, lines, outbox)) => self.converse(process, lines, outbox, served).await,
            Err(why) => Ok(Ending::Error(why).into()),
        }
    }

    /// Makes the scratch directory, with a copy of the sources if the CLI reads them itself.
    async fn prepare(&self, copies: bool) -> Result<Scratch, String> {
        let options = self.options.clone();
        let system_prompt = self.session.system_prompt.clone();
        let files = self.session.files.clone().filter(|_| copies);
        let cancel = self.session.cancel.child_token();
        let stop = cancel.clone().drop_guard();
        let made = tokio::task::spawn_blocking(move || {
            let failed = |e| format!("the session's scratch directory cannot be created: {e}");
            let scratch = Scratch::new(options.state.as_deref(), &system_prompt).map_err(failed)?;
            if let Some(files) = files {
                scratch.copy(&*files, &cancel)?;
            }
            Ok(scratch)
        });
        let made = made.await.map_err(|e| e.to_string())?;
        drop(stop);
        made
    }

    fn supervised(
        &self,
        scratch: &Scratch,
        builtin: &[String],
        serves: bool,
        left: &Bounds,
    ) -> Result<Supervised, String> {
        let mut supervised = Supervised::new(&self.program).map_err(|e| format!("claude cannot be started: {e}"))?;
        let command = &mut supervised.command;
        command.args(flags::arguments(self, &scratch.system_prompt(), builtin, serves, left));
        command.env_clear().envs(flags::environment(&self.options.environment));
        command.env("TMPDIR", scratch.tmp()).current_dir(scratch.work());
        Ok(supervised)
    }

    async fn converse(
        self: &Arc<Self>,
        process: Process,
        lines: Lines,
        outbox: Outbox,
        served: Vec<Arc<ToolDefinition>>,
    ) -> Result<SessionEnd, Lost> {
        let mut driver = Driver::new(self.clone(), process, lines, outbox, served);
        match driver.drive().await {
            Ok(outcome) => {
                let lost = driver.may_have_lost_session();
                let (_, said) = driver.close(Some(&outcome), EXIT).await;
                let end = ended(outcome, said);
                if lost { Err(Lost(end)) } else { Ok(end) }
            }
            Err(stop) => {
                let outcome = driver.stop(&stop).await;
                let patience = if outcome.is_some() || matches!(stop, Stop::Ended) { EXIT } else { Duration::ZERO };
                let lost = matches!(stop, Stop::Ended) && driver.may_have_lost_session();
                let (stderr, skipped) = (driver.stderr(), driver.last_skipped());
                let (status, text) = driver.close(outcome.as_ref(), patience).await;
                let ending = match stop {
                    Stop::Ask(ending) => ending,
                    Stop::Broken(why) => Ending::Error(why),
                    Stop::Ended => {
                        Ending::Error(ended_early(status, &stderr.text(), skipped, &self.secrets.redact(text.clone())))
                    }
                    Stop::Dropped => Ending::Interrupted,
                };
                let end = SessionEnd { ending, text };
                if lost { Err(Lost(end)) } else { Ok(end) }
            }
        }
    }
}

/// The end of a session that the CLI could not resume: it failed before it named its session.
struct Lost(SessionEnd);

/// The bound that is reached before the first turn.
fn reached(left: &Bounds, deadline: std::time::Instant) -> Option<Ending> {
    if left.max_turns == Some(0) {
        // For the CLI, 0 means no bound.
        return Some(Ending::MaxTurns);
    }
    if left.max_budget_usd.is_some_and(|usd| usd <= 0.0) {
        return Some(Ending::MaxBudget);
    }
    (deadline <= std::time::Instant::now()).then_some(Ending::Deadline)
}

/// The end of a session with a result.
fn ended(outcome: Outcome, said: String) -> SessionEnd {
    let ending = match outcome.subtype.as_str() {
        "success" if !outcome.is_error => {
            return SessionEnd { ending: Ending::Success, text: outcome.result.unwrap_or(said) };
        }
        "error_max_turns" => Ending::MaxTurns,
        "error_max_budget_usd" => Ending::MaxBudget,
        // A request to the model's provider failed, and so did its repetitions.
        "success" => Ending::Error(with_hint(format!("claude failed: {}", outcome.errors()))),
        "error_during_execution" => Ending::Error(with_hint(format!("claude broke off: {}", outcome.errors()))),
        other => Ending::Error(format!("claude ended with {other}: {}", outcome.errors())),
    };
    SessionEnd { ending, text: said }
}

/// The error of a session whose CLI ended without a result. It quotes the CLI's last text: stderr, a line that could
/// not be read, or else the model's words.
fn ended_early(status: Option<ExitStatus>, stderr: &str, skipped: Option<String>, said: &str) -> String {
    let how = status.map_or_else(|| "it cannot be ended".to_owned(), |status| status.to_string());
    let skipped = skipped.map(|what| format!("it sent {what}"));
    let mut quoted: Vec<String> =
        Some(stderr.to_owned()).filter(|text| !text.is_empty()).into_iter().chain(skipped).collect();
    if quoted.is_empty() && !said.trim().is_empty() {
        quoted.push(format!("its last words were {:?}", said.chars().take(SHOWN_CHARS).collect::<String>()));
    }
    let text = if quoted.is_empty() { String::new() } else { format!(": {}", quoted.join("; ")) };
    with_hint(format!("claude ended before its result ({how}){text}"))
}

/// Adds a known remedy to an error.
fn with_hint(text: String) -> String {
    let hint = if text.contains("unknown option") {
        "update Claude Code (`claude update`)"
    } else if ["/login", "authenticat", "API key"].iter().any(|word| text.contains(word)) {
        "log in by running `claude` once as the user of the host, or give the host ANTHROPIC_API_KEY"
    } else {
        return text;
    };
    format!("{text}\n({hint})")
}
