//! Carries out the job of a meeting, which runs nothing between turns: each message of the user is one turn.

use std::{sync::Arc, time::Duration};

use guild_config::Runtime;
use guild_contract::{Bounds, SpendError, Usage, rpc::RpcError};
use guild_hall::{
    NoSession,
    meeting::event::{CONVERSATION, INTERRUPTED},
};
use guild_jobs::{Accepted, Position, RunningJob};
use guild_session::{
    activation::{Plan, SessionPlan},
    meter::{Account, Ending, Meter, Observer},
    session::{NoTools, Session, Wanted},
    tools::{ToolDefinition, Tools},
    transcript::{self, Entry, Journal as _, Line, SUCCESS},
};
use tokio::{
    task::block_in_place,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::Instrument as _;

use super::{Clock, Opened, RunError, Work, permit, run_in_time, run_session, span};
use crate::{answer::blocking, resources::runtimes::Slot};

/// The bounds of a session that writes notes.
const NOTES: Bounds = Bounds { max_turns: Some(1), max_budget_usd: None, deadline_seconds: Some(120) };
/// How long notes wait for a session to be free.
const QUEUED: Duration = Duration::from_secs(120);
/// The interval at which a host that is about to stop looks for the end of a turn.
const LOOK: Duration = Duration::from_millis(200);
/// The ending in the transcript of a turn that was under way when its host ended.
const CUT_OFF: &str = "the host stopped in the middle of this turn, and it was cut off; what was said before is there";

/// The error of a turn in a meeting that is over.
const OVER: &str =
    "the meeting's transcript reached limits.transcript_bytes, or could not be written; close it, and open another";

/// The instructions for every worker in a meeting, besides its component's.
const IN_A_MEETING: &str = "\
# This is a meeting

You are in a meeting with a user of the project, who reads what you write as you write it, answers, and decides. So whatever \
is said above of working alone and in the background, of results to submit and of summaries, does not hold here: say things in \
your answers. When the meeting begins, introduce yourself in a sentence, say in your words what it is about, and ask how to go \
on. Ask where something is unclear.

- `link_artifact`: an artifact that belongs to the meeting.
- `summarize_progress`: what is settled, for the record of the meeting.
- `rename_meeting`: a title by which the user finds the meeting again.
- `propose_followup`: another meeting, which the user accepts or declines.
- `record_decision`: a judgment call that you made yourself. It stands in the notes.

Other tools are as they are described. When the user closes the meeting, notes are written of it, and what you wrote becomes \
part of the project.";

/// A worker's plan of a job, as that of a meeting.
///
/// # Errors
///
/// Returns an error when the worker cannot hold a meeting. The text is a sentence for the user.
pub(crate) fn plan(worker: &str, plan: Plan) -> Result<Plan, String> {
    match plan {
        Plan::OwnRun(_) => Err(format!(
            "{worker} carries its work out itself (its component exports `run`), so nobody can talk with it; commission it \
             instead"
        )),
        Plan::Session(session) | Plan::Conversation(session) => Ok(Plan::Conversation(SessionPlan {
            system_prompt: format!("{}\n\n{IN_A_MEETING}", session.system_prompt.trim_end()),
            ..session
        })),
    }
}

/// Keeps the job of a meeting, which runs nothing by itself, until it ends, or its host is about to stop. `held` is
/// dropped then.
pub(crate) async fn hold(job: Arc<RunningJob>, held: impl Send) {
    let mut changes = job.changes();
    let ended = async { while !job.is_over() && changes.changed().await.is_ok() {} };
    tokio::select! {
        () = ended => {}
        () = give_back(&job) => {}
    }
    drop(held);
}

/// Waits until the host is about to stop, and gives the job back between two turns of the meeting.
async fn give_back(job: &RunningJob) {
    job.recalled().await;
    while block_in_place(|| job.history()).is_ok_and(|lines| is_in_turn(&lines)) {
        sleep(LOOK).await;
    }
    // It gives the job back, and tells so by an error.
    let _ = job.before_turn().await;
}

/// After a restart: marks the turn that was under way as cut off. It blocks.
pub(crate) fn mark_cut_off(job: &RunningJob) {
    match job.history() {
        Ok(lines) if is_in_turn(&lines) => {
            let text = String::new();
            let usage = turn_usage(&lines).and_unknown();
            job.write(&Entry::End { session: CONVERSATION, ending: CUT_OFF.to_owned(), text, usage });
            sync(job);
        }
        Ok(_) => {}
        Err(e) => tracing::error!(job = %job.id(), "its transcript cannot be read: {e}"),
    }
}

/// Whether a turn of the conversation began that has no end.
fn is_in_turn(lines: &[Line]) -> bool {
    let of_turns = lines.iter().rev().filter(|line| line.entry.session() == Some(CONVERSATION));
    of_turns.map(|line| &line.entry).find_map(|entry| match entry {
        Entry::Message { .. } => Some(true),
        Entry::End { .. } => Some(false),
        _ => None,
    }) == Some(true)
}

/// The known usage of the turn under way.
fn turn_usage(lines: &[Line]) -> Usage {
    let begun = lines.iter().rposition(|line| matches!(line.entry, Entry::Message { .. })).unwrap_or(0);
    transcript::account(lines.get(begun..).unwrap_or_default()).usage
}

fn sync(job: &RunningJob) {
    if let Err(e) = job.sync_transcript() {
        tracing::error!(job = %job.id(), "its transcript may not survive a power cut: {e}");
    }
}

/// Gives each call without a result one: that it was interrupted, and whether the model can make it again.
fn settle(job: &RunningJob, lines: &[Line], definitions: &[Arc<ToolDefinition>]) {
    for call in transcript::dangling_calls(lines) {
        let read_only = definitions.iter().any(|tool| tool.name == call.tool && tool.read_only);
        job.write(&call.result(read_only));
    }
}

/// A meeting's worker, ready for a session.
pub(crate) struct Conversation {
    work: Work,
    agent: Runtime,
    slot: Slot,
    plan: SessionPlan,
    ceiling: Bounds,
    toolboxes: Arc<dyn Tools>,
}

impl Conversation {
    /// The worker of a meeting, whose job was accepted in this way.
    ///
    /// # Errors
    ///
    /// Returns an error when no session of the worker can start now.
    pub(crate) async fn new(opened: Opened, accepted: Accepted, toolboxes: Arc<dyn Tools>) -> Result<Self, NoSession> {
        let Accepted { agent, ceiling, plan, .. } = accepted;
        let agent: Runtime = agent.parse().map_err(NoSession::Never)?;
        let Plan::Conversation(plan) = plan else {
            return Err(NoSession::Never("its job is no conversation".to_owned()));
        };
        let work = opened.work(None).await.map_err(NoSession::Now)?;
        let (resources, files, model) = (work.context.resources.clone(), work.reach.files.clone(), plan.model.clone());
        let slot = blocking(move || {
            let wanted = Wanted { model: model.as_deref(), files: files.as_deref(), ..Wanted::default() };
            Ok(resources.runtimes.ready(agent, &wanted))
        });
        let slot = slot.await.map_err(|e| NoSession::Now(e.message))?.map_err(NoSession::Never)?;
        Ok(Self { work, agent, slot, plan, ceiling, toolboxes })
    }

    /// Lets the worker answer a message, and waits for the end of that turn.
    ///
    /// # Errors
    ///
    /// Returns the reason when no turn began.
    pub(crate) async fn say(self, message: &str, cancel: &CancellationToken) -> Result<(), String> {
        let Self { work, agent, slot, plan, ceiling, toolboxes } = self;
        let job = work.job.clone();
        // The turn also ends with its job, and when no listener is left.
        let cancel = cancel.child_token();
        let _ends = {
            let (cancel, job) = (cancel.clone(), job.clone());
            AbortOnDropHandle::new(tokio::spawn(async move {
                let mut written = job.written();
                let is_over = async { while written.changed().await.is_ok() && !job.is_transcript_over() {} };
                tokio::select! {
                    () = job.cancelled().cancelled() => {}
                    () = is_over => {}
                }
                cancel.cancel();
            }))
        };
        let tools = work
            .session_resources()
            .tool_set(CONVERSATION, work.sets(toolboxes), &plan.tools, &cancel)
            .map_err(|e| e.to_string())?;
        let definitions = tools.definitions();
        let begin = Begin {
            plan: plan.clone(),
            runtime: slot.runtime.name(),
            message: message.to_owned(),
            definitions: definitions.clone(),
        };
        let before = {
            let job = job.clone();
            blocking(move || begin.write(&job).map_err(RpcError::internal)).await.map_err(|e| e.message)?
        };
        let Before { at, history, account, seconds } = before;
        let tools = Arc::new(tools.with_conversation(&history));
        let clock = Clock::start(&work, agent, account.clone(), seconds);
        let observer = Arc::new(Turn { clock, before: account });
        let permit = tokio::select! {
            permit = permit(&slot, &job, agent, &work.data.key) => permit,
            () = cancel.cancelled() => Err(RunError::Cancelled),
        };
        let (ending, text, usage) = match permit {
            Err(RunError::Cancelled) => (INTERRUPTED.to_owned(), String::new(), Usage::default()),
            Err(RunError::Failed(why)) => (why, String::new(), Usage::default()),
            Ok(permit) => {
                // Its bounds are those of one turn (REQ-WKR-19), and the time in the queue does not count.
                let bounds = plan.bounds.min(ceiling);
                let meter = Meter::for_job(bounds, &work.context.limits, Account::default(), 0.0, observer);
                let session = Session {
                    number: CONVERSATION,
                    system_prompt: plan.system_prompt,
                    prompt: plan.prompt,
                    converses: true,
                    conversation_chars: work.context.limits.conversation_chars,
                    model: plan.model,
                    tools,
                    files: work.session_resources().readable(&plan.tools),
                    meter: meter.clone(),
                    cancel,
                    texts: None,
                    journal: job.clone(),
                    history,
                };
                let span = span(&work.data.key, &job);
                let end = run_in_time(&*slot.runtime, session).instrument(span).await;
                drop(permit);
                let ending = match &end.ending {
                    Ending::Interrupted => INTERRUPTED.to_owned(),
                    other => meter.reason(other).unwrap_or_else(|| SUCCESS.to_owned()),
                };
                (ending, end.text, meter.account().usage)
            }
        };
        let _ = blocking(move || {
            // A call that was given up has no result yet.
            if let Ok(lines) = job.history_since(at) {
                settle(&job, &lines, &definitions);
            }
            job.write(&Entry::End { session: CONVERSATION, ending, text, usage });
            sync(&job);
            Ok(())
        })
        .await;
        Ok(())
    }

    /// Lets a separate session answer a prompt, without tools, on the account of a meeting.
    ///
    /// # Errors
    ///
    /// Returns the reason when there is no answer.
    pub(crate) async fn write(self, system_prompt: &str, prompt: String) -> Result<String, NoSession> {
        let Self { work, agent, slot, plan, ceiling, .. } = self;
        let job = work.job.clone();
        if agent == Runtime::Extractive {
            return Err(NoSession::Never("the built-in runtime `extractive` only searches".to_owned()));
        }
        let lines = {
            let job = job.clone();
            blocking(move || job.history().map_err(|e| RpcError::internal(e.to_string())))
                .await
                .map_err(|e| NoSession::Now(e.message))?
        };
        let number = lines.iter().filter_map(|line| line.entry.session()).max().unwrap_or(CONVERSATION) + 1;
        let (account, seconds) = (transcript::account(&lines), transcript::seconds(&lines));
        let clock = Clock::start(&work, agent, account.clone(), seconds);
        let observer = Arc::new(Turn { clock, before: account });
        // The notes are written once the ledger can be read again.
        if let Err(SpendError::Unreadable(why)) = observer.may_spend() {
            return Err(NoSession::Now(why));
        }
        let bounds = NOTES.min(ceiling);
        let permit = timeout(QUEUED, permit(&slot, &job, agent, &work.data.key)).await;
        let permit = permit
            .map_err(|_| NoSession::Now("no session could begin in time, as many others were under way".to_owned()))?
            .map_err(|e| NoSession::Never(e.to_string()))?;
        let meter = Meter::for_job(bounds, &work.context.limits, Account::default(), 0.0, observer);
        let session = Session {
            number,
            system_prompt: system_prompt.to_owned(),
            prompt,
            converses: false,
            conversation_chars: 0,
            model: plan.model,
            tools: Arc::new(NoTools),
            files: None,
            meter: meter.clone(),
            cancel: job.cancelled().clone(),
            texts: None,
            journal: job.clone(),
            history: Vec::new(),
        };
        let end = run_session(&*slot.runtime, session).instrument(span(&work.data.key, &job)).await;
        drop(permit);
        match meter.reason(&end.ending) {
            None => Ok(end.text),
            Some(reason) => Err(NoSession::Never(reason)),
        }
    }
}

/// Follows one turn of a meeting, on the account of all of them.
struct Turn {
    clock: Clock,
    before: Account,
}

impl Observer for Turn {
    fn changed(&self, turn: &Account) {
        self.clock.show(&sum(&self.before, turn));
    }

    fn booked(&self, used: &Usage, model: Option<&str>) {
        self.clock.booked(used, model);
    }

    fn may_spend(&self) -> Result<Option<f64>, SpendError> {
        self.clock.may_spend()
    }
}

fn sum(before: &Account, turn: &Account) -> Account {
    let mut sum = before.clone();
    sum.usage.add(&turn.usage);
    sum.models.extend(turn.models.iter().filter(|model| !before.models.contains(model)).cloned());
    sum.open = turn.open;
    sum
}

/// The inputs of a turn's beginning.
struct Begin {
    plan: SessionPlan,
    runtime: &'static str,
    message: String,
    definitions: Vec<Arc<ToolDefinition>>,
}

/// The position of a turn in the transcript, the earlier entries with its message, and their usage and seconds.
struct Before {
    at: Position,
    history: Vec<Entry>,
    account: Account,
    seconds: f64,
}

impl Begin {
    /// Records that the turn begins. It blocks.
    fn write(self, job: &RunningJob) -> Result<Before, String> {
        let read = |e: std::io::Error| format!("its transcript cannot be read: {e}");
        let at = *job.written().borrow();
        let mut lines = job.history().map_err(read)?;
        if lines.iter().any(|line| matches!(line.entry, Entry::Truncated { .. })) {
            return Err(OVER.to_owned());
        }
        // These calls are of a turn in which the host was killed.
        settle(job, &lines, &self.definitions);
        if !lines.iter().any(|line| matches!(line.entry, Entry::Session { session: CONVERSATION, .. })) {
            job.write(&Entry::Session {
                session: CONVERSATION,
                agent: self.runtime.to_owned(),
                model: self.plan.model,
                system_prompt: self.plan.system_prompt,
                prompt: String::new(),
                tools: self.definitions.iter().map(|tool| tool.name.clone()).collect(),
            });
        }
        let (account, seconds) = (transcript::account(&lines), transcript::seconds(&lines));
        job.write(&Entry::Message { session: CONVERSATION, text: self.message });
        sync(job);
        lines.extend(job.history_since(at).map_err(read)?);
        // It is the last that was written, if there was room for it.
        if !lines.last().is_some_and(|line| matches!(line.entry, Entry::Message { .. })) {
            return Err(OVER.to_owned());
        }
        let of_conversation = |entry: &Entry| entry.session() == Some(CONVERSATION);
        Ok(Before {
            at,
            history: lines.into_iter().map(|line| line.entry).filter(of_conversation).collect(),
            account,
            seconds,
        })
    }
}
