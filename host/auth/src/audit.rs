//! Writes entries for methods in the audit log and the host's log: the caller and the outcome.

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
    /// Runs the method, and logs its outcome if the method is logged.
    ///
    /// # Errors
    ///
    /// Returns the method's error.
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

/// A running method in the logs. Its line is written when its outcome is known, or when the last copy of this value is
/// dropped because its caller went away and no work continues.
///
/// Work that outlives its request holds a copy, and with it the request's place.
#[derive(Clone)]
pub struct Audit(Option<Arc<Entry>>);

/// The known parts of the line.
struct Entry {
    authorized: Authorized,
    job: OnceLock<JobId>,
    tool: OnceLock<String>,
    is_written: AtomicBool,
    /// Whether the audit log gets the line.
    is_audited: bool,
    /// The start of the method, if the host's log gets the line.
    began: Option<Instant>,
}

impl Audit {
    /// Sets the job. A text that is not a valid id is ignored.
    pub fn about(&self, job: &str) {
        if let Some(entry) = &self.0
            && let Ok(job) = job.parse()
        {
            let _ = entry.job.set(job);
        }
    }

    /// Sets the called tool. It must exist, so that its name is not a caller's text.
    pub fn of_tool(&self, name: &str) {
        if let Some(entry) = &self.0 {
            let _ = entry.tool.set(name.to_owned());
        }
    }

    /// Sets a further subject, in the host's own words or by a name that was checked.
    pub fn of(&self, what: &str) {
        self.of_tool(what);
    }

    /// Logs the outcome, unless it was logged before.
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
                peer = caller.from.address().map(display),
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
            // Endpoints of many members have no member's key.
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
