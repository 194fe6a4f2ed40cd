//! Sessions that a worker starts itself, and the errors of host functions.

use crate::{
    agent::{Event, Finish, Session, Step, ToolCall},
    types::HostError,
};

/// Follows a session to its end. `answer` is called for each call to one of the worker's own tools; its error is what
/// the model is told. The agent's texts between are skipped.
pub fn finish(
    session: &Session,
    mut answer: impl FnMut(&ToolCall) -> Result<String, String>,
) -> Result<Finish, HostError> {
    loop {
        match session.next()? {
            Step::Pending => session.subscribe().block(),
            Step::Event(Event::Text(_)) => {}
            Step::Event(Event::Call(call)) => {
                let content = answer(&call);
                session.answer(&call.id, content.as_deref().map_err(String::as_str))?;
            }
            Step::Event(Event::Finished(finish)) => return Ok(finish),
            Step::Ended => return Err(HostError::Unavailable("the session ended without saying how".to_owned())),
        }
    }
}

/// A host function's error as a sentence.
pub fn explain(error: HostError) -> String {
    match error {
        HostError::InvalidInput(text) | HostError::Unavailable(text) => text,
        HostError::NotGranted(text) => format!("not granted: {text}"),
        HostError::OverLimit(text) => format!("over a limit: {text}"),
        HostError::NoJob => "there is no job here".to_owned(),
        HostError::JobEnded => "the job is no longer running".to_owned(),
    }
}
