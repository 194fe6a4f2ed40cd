//! Starts sessions on behalf of a worker, and explains the errors of host functions.

use std::rc::Rc;

use serde_json::Value;

use crate::{
    agent::{self, Ending, Event, Finish, Options, Step, ToolCall, Usage},
    executor::ready,
    types::{Activation, HostError},
};

/// Options of a session with the granted tools among `wanted`, the member's identity, the job's own bounds, and no
/// other tools. Change fields of it for more.
pub fn session_options(activation: &Activation, prompt: &str, wanted: &[&str]) -> Options {
    Options {
        prompt: prompt.to_owned(),
        system_prompt: activation.posture.clone(),
        tools: granted(activation, wanted),
        job_tools: false,
        own_tools: Vec::new(),
        model: None,
        bounds: activation.bounds,
    }
}

/// The granted tools among the `wanted` built-in ones.
pub(crate) fn granted(activation: &Activation, wanted: &[&str]) -> Vec<String> {
    activation.granted_tools.iter().filter(|tool| wanted.contains(&tool.as_str())).cloned().collect()
}

/// An agent session of the worker's own. It runs in the host from the moment it is started, and dropping it cancels it.
///
/// ```no_run
/// # use guild_plugin_sdk::{Activation, Session, explain, outcome, session_options};
/// # async fn ask(activation: &Activation) -> Result<String, String> {
/// let options = session_options(activation, "What is in docs/?", &["Read", "Glob"]);
/// let session = Session::start(&options).map_err(explain)?;
/// outcome(session.finish(async |call| Err(format!("there is no tool {}", call.name))).await)
/// # }
/// ```
pub struct Session {
    inner: Rc<agent::Session>,
}

impl Session {
    /// Starts a session.
    ///
    /// # Errors
    ///
    /// Returns `InvalidInput` for options that are not acceptable, `NotGranted` for a tool that was not granted,
    /// `OverLimit` if the job has no turns, dollars or time left, and `NoJob` during `activate`.
    pub fn start(options: &Options) -> Result<Self, HostError> {
        agent::query(options).map(|inner| Self { inner: Rc::new(inner) })
    }

    /// The next event. The last one is `Event::Finished`; after it there is none. Texts that a plugin does not take in
    /// time are dropped; a call to one of the session's own tools waits for its answer, and the session waits with it.
    pub async fn next(&self) -> Option<Event> {
        loop {
            match self.inner.next() {
                Ok(Step::Pending) => ready(self.inner.clone()).await,
                Ok(Step::Event(event)) => return Some(event),
                Ok(Step::Ended) => return None,
                Err(error) => return Some(Event::Finished(broken(error))),
            }
        }
    }

    /// Answers a call to one of the worker's own tools: its result, or the error for the model.
    ///
    /// # Errors
    ///
    /// Returns `InvalidInput` for a call that does not wait for an answer.
    pub fn answer(&self, call: &ToolCall, content: Result<Value, String>) -> Result<(), HostError> {
        let content = content.map(|value| value.to_string());
        self.inner.answer(&call.id, content.as_deref().map_err(String::as_str))
    }

    /// Asks the session to stop. `Event::Finished` with `Ending::Interrupted` follows, unless it has ended already.
    pub fn interrupt(&self) {
        self.inner.interrupt();
    }

    /// Follows the session to its end. `answer` is called for each call to one of the worker's own tools, one after the
    /// other; the model receives its error. The agent's intermediate texts are skipped.
    pub async fn finish(&self, mut answer: impl AsyncFnMut(&ToolCall) -> Result<Value, String>) -> Finish {
        while let Some(event) = self.next().await {
            match event {
                Event::Text(_) => {}
                Event::Call(call) => {
                    let content = answer(&call).await;
                    if let Err(error) = self.answer(&call, content) {
                        self.interrupt();
                        return broken(error);
                    }
                }
                Event::Finished(finish) => return finish,
            }
        }
        broken(HostError::Unavailable("all events of the session were taken before".to_owned()))
    }
}

/// The end of a session whose events can no longer be read.
fn broken(error: HostError) -> Finish {
    let usage = Usage { turns: 0, input_tokens: 0, cached_tokens: 0, output_tokens: 0, cost_usd: None };
    Finish { ending: Ending::Error, text: explain(error), usage }
}

/// The agent's last text, if the session ended by itself with a text; else the reason that there is none.
pub fn outcome(finish: Finish) -> Result<String, String> {
    let reason = match finish.ending {
        Ending::Success if !finish.text.trim().is_empty() => return Ok(finish.text),
        Ending::Success => "the session ended without a text",
        Ending::MaxTurns => "the session used up its turns",
        Ending::MaxBudget => "the session used up its budget",
        Ending::Deadline => "the session ran out of time",
        Ending::Interrupted => "the session was interrupted",
        Ending::Error => return Err(finish.text),
    };
    Err(reason.to_owned())
}

/// A host function's error as a sentence.
pub fn explain(error: HostError) -> String {
    match error {
        HostError::InvalidInput(text) | HostError::Unavailable(text) => text,
        HostError::NotGranted(text) => format!("not granted: {text}"),
        HostError::OverLimit(text) => format!("over a limit: {text}"),
        HostError::NoJob => {
            "this host function needs a job: call it in `run`, not in `activate` or a tool call".to_owned()
        }
        HostError::JobEnded => "the job is no longer running".to_owned(),
    }
}
