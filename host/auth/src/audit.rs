//! What is written down of a method: who had it carried out, and what came of it.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use guild_contract::{
    JobId,
    operation::Access,
    rpc::{RpcError, code},
    text::{LOGGED_CHARS, one_line},
};
use tracing::Level;

use crate::{
    audit_log::{Event, Outcome},
    caller::Authorized,
};

impl Authorized {
    /// Has the method carried out, and what came of it written down, where that is to be.
    ///
    /// # Errors
    /// What the method says.
    pub async fn run<T, W>(&self, work: impl FnOnce(Audit) -> W) -> Result<T, RpcError>
    where
        W: Future<Output = Result<T, RpcError>>,
    {
        let audit = self.audit();
        let outcome = work(audit.clone()).await;
        audit.end(outcome.as_ref().err());
        outcome
    }

    fn audit(&self) -> Audit {
        let Self { caller, access, .. } = self;
        let is_audited =
            access.changes() || (matches!(access, Access::Reads | Access::Inspects) && caller.rules.log_reads);
        let began = tracing::enabled!(Level::DEBUG).then(Instant::now);
        Audit((is_audited || began.is_some()).then(|| {
            Arc::new(Entry {
                authorized: self.clone(),
                job: OnceLock::new(),
                tool: OnceLock::new(),
                is_written: AtomicBool::new(false),
                is_audited,
                began,
            })
        }))
    }
}

/// A method that is being carried out, for the audit log. One line is written of it: when its outcome is known, or when
/// the last copy of this is gone, since its caller went away and nobody goes on with it.
///
/// Work that outlives its request has a copy, and with it the place that the request has.
#[derive(Clone)]
pub struct Audit(Option<Arc<Entry>>);

/// The line, as far as it is known.
struct Entry {
    authorized: Authorized,
    job: OnceLock<JobId>,
    tool: OnceLock<String>,
    is_written: AtomicBool,
    /// The audit log has it.
    is_audited: bool,
    /// The host's log has it.
    began: Option<Instant>,
}

impl Audit {
    /// Which job it is about; an id that can be no job's is nobody's.
    pub fn about(&self, job: &str) {
        if let Some(entry) = &self.0
            && let Ok(job) = job.parse()
        {
            let _ = entry.job.set(job);
        }
    }

    /// Which tool is called: one that there is, whose name is not the caller's text.
    pub fn of_tool(&self, name: &str) {
        if let Some(entry) = &self.0 {
            let _ = entry.tool.set(name.to_owned());
        }
    }

    /// What else it is about, in the host's own words or by a name that was checked.
    pub fn of(&self, what: &str) {
        self.of_tool(what);
    }

    /// How it ended, where nobody has said so before.
    pub fn end(&self, error: Option<&RpcError>) {
        let Some(entry) = &self.0 else { return };
        let outcome = match error.map(|error| error.code) {
            None => Outcome::Ok,
            Some(code::BUSY) => Outcome::Busy,
            Some(code::INTERNAL_ERROR) => Outcome::Failed,
            Some(_) => Outcome::Invalid,
        };
        entry.write(outcome, error.map(|error| error.code));
    }
}

impl Entry {
    fn write(&self, outcome: Outcome, code: Option<i32>) {
        if self.is_written.swap(true, Ordering::Relaxed) {
            return;
        }
        let Authorized { caller, member, method, .. } = &self.authorized;
        let who = caller.who();
        if let Some(began) = self.began {
            tracing::debug!(
                method = one_line(method, LOGGED_CHARS),
                member = one_line(member, LOGGED_CHARS),
                job = self.job.get().map(JobId::as_str),
                tool = self.tool.get(),
                caller = %who,
                peer = %caller.from.peer,
                outcome = outcome.as_str(),
                code,
                ms = began.elapsed().as_millis(),
                "request"
            );
        }
        if !self.is_audited {
            return;
        }
        caller.rules.record(&Event {
            event: "request",
            who,
            peer: caller.from.address(),
            method: Some(method),
            // What is of many members has none.
            member: Some(member.as_str()).filter(|member| !member.is_empty()),
            job: self.job.get().map(JobId::as_str),
            detail: self.tool.get().map(|tool| tool.as_str().into()),
            outcome,
            code,
            ..Event::default()
        });
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.write(Outcome::Abandoned, None);
    }
}
