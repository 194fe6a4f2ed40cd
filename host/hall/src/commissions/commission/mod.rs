//! Defines the stored state of a commission, with its attempts and its record.

pub mod record;

use std::path::PathBuf;

use cap_std::fs::Dir;
use guild_contract::{
    JobId, OperationError,
    hall::{Author, CommissionId, CommissionStatus, HallEvent, TimelineEntry, label},
};
use guild_git::Checkout;
use serde::{Deserialize, Serialize};

pub use record::Record;

use super::Running;
use crate::{
    core::{
        token_scope::current_token,
        workers::{Activity, Attempt},
    },
    home::Home,
    records::{HallRecord, RecordLocation, log},
};

/// The most calls of the manager's that a commission remembers.
const MAX_CALLS: usize = 64;

/// A commission as it is stored in `state/commissions/<id>.json`, which is authoritative.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Commission {
    /// The commission's id.
    pub commission_id: CommissionId,
    /// The project's name.
    pub project_name: String,
    /// The worker's key in the roster.
    pub worker_name: String,
    /// The state of the commission.
    pub status: CommissionStatus,
    /// The worktree of the attempt, while it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree_dir: Option<PathBuf>,
    /// The branch of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_name: Option<String>,
    /// The creator of the commission.
    #[serde(default)]
    pub created_by: Author,
    /// The name of the token with which the commission was created, or later last dispatched, if there was one. The
    /// commission's spending and storage count for that token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The root and the budget of a commission that the manager created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated: Option<Delegated>,
    /// The time at which the dispatch was requested, while the commission still waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// The running attempt, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptState>,
    /// The last calls of the manager's that took effect: a call can be repeated after a crash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<String>,
    /// The record in the project.
    pub record: Record,
}

/// The root of a commission that the manager created, and the dollars that count there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delegated {
    /// The user's meeting or commission from which the delegation started.
    pub root: String,
    /// The number of commissions from the root to this one, inclusive.
    pub depth: u32,
    /// The US dollars that one attempt may spend.
    pub budget_usd: f64,
    /// The US dollars that ended attempts have spent.
    #[serde(default)]
    pub spent_usd: f64,
}

/// The progress of an attempt, which continues from there after a crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptState {
    /// The attempt's job.
    pub job: JobId,
    /// Whether the attempt has a full checkout, and not only `.lore/`.
    pub full: bool,
    /// Whether the attempt's worktree exists: the record is then written there.
    pub begun: bool,
    /// The reason of a requested cancellation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<String>,
    /// The end of the attempt's job. The commit, the merge and the removal of the worktree remain to be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The final state: completed, failed or cancelled.
    pub status: CommissionStatus,
    /// The reason.
    pub reason: String,
    /// The time.
    pub time: String,
}

impl HallRecord for Commission {
    type Id = CommissionId;
    type Runtime = Running;
    const NOUN: &'static str = "commission";
    const RECORDS: &'static str = "commissions";

    fn id(&self) -> &CommissionId {
        &self.commission_id
    }

    fn text(&self) -> Result<String, String> {
        self.record.render(self.status)
    }

    fn project(&self) -> &str {
        &self.project_name
    }

    fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    fn bytes(&self) -> usize {
        let Record { prompt, dependencies, linked_artifacts, activity_timeline, current_progress, body, .. } =
            &self.record;
        let paths = dependencies.iter().chain(linked_artifacts).map(String::len).sum::<usize>();
        prompt.len() + current_progress.len() + body.len() + paths + log::bytes(activity_timeline)
    }

    fn location(&self) -> RecordLocation {
        let begun = self.attempt.as_ref().is_some_and(|attempt| attempt.begun);
        match &self.worktree_dir {
            Some(dir) if begun && self.status.is_active() => RecordLocation::Worktree(dir.clone()),
            _ => RecordLocation::Integration,
        }
    }

    fn event(before: &Self, after: &Self) -> Option<HallEvent> {
        let last = after.record.activity_timeline.last();
        (before.status != after.status).then(|| HallEvent::CommissionStatus {
            commission_id: after.commission_id.clone(),
            status: after.status,
            old_status: before.status,
            from: before.status,
            to: after.status,
            project_name: after.project_name.clone(),
            reason: last.map(|entry| entry.reason.clone()).unwrap_or_default(),
        })
    }

    fn of_record(id: CommissionId, project: &str, text: &str, key: impl Fn(&str) -> String) -> Self {
        let record::Read { record, status } = record::read(text);
        // A commission without a state cannot be changed, and must still be listed.
        let status = status.unwrap_or(CommissionStatus::Abandoned);
        Self::new(id, project.to_owned(), key(&record.worker), status, record)
    }

    fn states(home: &Home) -> Result<Dir, OperationError> {
        home.commissions()
    }
}

impl Commission {
    /// Makes a commission with defaults for all other fields.
    pub(crate) fn new(
        id: CommissionId,
        project: String,
        worker: String,
        status: CommissionStatus,
        record: Record,
    ) -> Self {
        Self {
            commission_id: id,
            project_name: project,
            worker_name: worker,
            status,
            worktree_dir: None,
            branch_name: None,
            created_by: Author::User,
            token: current_token(),
            delegated: None,
            asked: None,
            attempt: None,
            calls: Vec::new(),
            record,
        }
    }

    /// The attempt as its worker receives it; `None` if there is no attempt, or the worker's name is not a member's
    /// key.
    pub(crate) fn as_attempt(&self, memory_chars: Option<u64>) -> Option<Attempt> {
        let state = self.attempt.as_ref()?;
        let record = &self.record;
        Some(Attempt {
            activity: Activity::Commission(self.commission_id.clone()),
            number: u32::try_from(self.attempts()).unwrap_or(u32::MAX),
            project: self.project_name.clone(),
            worker: self.worker_name.parse().ok()?,
            worker_name: record.worker.clone(),
            job: state.job.clone(),
            title: label(&record.title).to_owned(),
            prompt: record.prompt.clone(),
            dependencies: record.dependencies.clone(),
            overrides: record.resource_overrides.clone(),
            token: self.token.clone(),
            worktree: self.worktree_dir.clone()?,
            checkout: if state.full { Checkout::Full } else { Checkout::Sparse },
            memory_chars,
        })
    }

    /// Changes the state, and notes the change in the timeline.
    ///
    /// # Errors
    ///
    /// Returns an error when the present state cannot change to that one.
    pub(crate) fn transition_to(
        &mut self,
        next: CommissionStatus,
        reason: &str,
        time: String,
    ) -> Result<(), OperationError> {
        if !self.status.leads_to(next) {
            return Err(OperationError::Conflict(format!(
                "commission {:?} is {}, and cannot change from that state to {next}",
                self.commission_id.as_str(),
                self.status
            )));
        }
        let from = std::mem::replace(&mut self.status, next);
        self.record.activity_timeline.push(TimelineEntry {
            timestamp: time,
            event: format!("status_{next}"),
            reason: reason.to_owned(),
            from: Some(from.to_string()),
            to: Some(next.to_string()),
        });
        if next != CommissionStatus::Pending && next != CommissionStatus::Blocked {
            self.asked = None;
        }
        Ok(())
    }

    /// Whether a call took effect before; from now on it counts as such.
    pub(crate) fn is_repeated(&mut self, call: Option<&str>) -> bool {
        let Some(call) = call else { return false };
        if self.calls.iter().any(|known| known == call) {
            return true;
        }
        if self.calls.len() >= MAX_CALLS {
            self.calls.remove(0);
        }
        self.calls.push(call.to_owned());
        false
    }

    /// Adds an entry to the timeline.
    pub(crate) fn note(&mut self, event: &str, reason: &str, time: String) {
        let (event, reason) = (event.to_owned(), reason.to_owned());
        self.record.activity_timeline.push(TimelineEntry {
            timestamp: time,
            event,
            reason,
            ..TimelineEntry::default()
        });
    }

    /// The US dollars that a commission of the manager's has spent and may still spend.
    pub(crate) fn delegated_usd(&self) -> f64 {
        let Some(delegated) = &self.delegated else { return 0.0 };
        let may_spend = match self.status {
            CommissionStatus::Pending | CommissionStatus::Blocked => true,
            status => status.is_active() && self.attempt.as_ref().is_some_and(|attempt| attempt.end.is_none()),
        };
        delegated.spent_usd + if may_spend { delegated.budget_usd } else { 0.0 }
    }

    /// Whether the commission starts by itself as soon as it can, because its dispatch was requested.
    pub fn is_queued(&self) -> bool {
        self.asked.is_some() && matches!(self.status, CommissionStatus::Pending | CommissionStatus::Blocked)
    }

    /// The creation time, if the record has it.
    pub fn created(&self) -> &str {
        self.record.activity_timeline.first().map_or(&self.record.date, |entry| &entry.timestamp)
    }

    /// The time for lists: the last change of state, else the creation time, else the date.
    pub fn relevant_date(&self) -> &str {
        use CommissionStatus::{Cancelled, Completed, Dispatched, Failed, InProgress};
        let event = match self.status {
            Completed | Failed | Cancelled | Dispatched | InProgress => format!("status_{}", self.status),
            _ => "created".to_owned(),
        };
        let last = self.record.activity_timeline.iter().rfind(|entry| entry.event == event);
        last.map_or(&self.record.date, |entry| &entry.timestamp)
    }

    /// The number of attempts so far.
    pub(crate) fn attempts(&self) -> usize {
        self.record.activity_timeline.iter().filter(|entry| entry.event == "status_dispatched").count()
    }
}
