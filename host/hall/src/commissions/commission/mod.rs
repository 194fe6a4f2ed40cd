//! A commission: its state, its attempt, its record.

pub mod record;

use std::path::PathBuf;

use cap_std::fs::Dir;
use guild_contract::{
    JobId, OperationError,
    hall::{Author, CommissionId, CommissionStatus, HallEvent, TimelineEntry},
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

/// Calls of the manager's that are remembered of a commission.
const MAX_CALLS: usize = 64;

/// A commission, as it is kept in `state/commissions/<id>.json`, which is authoritative.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Commission {
    /// Its name.
    pub commission_id: CommissionId,
    /// Its project.
    pub project_name: String,
    /// Who works on it: a key of the roster.
    pub worker_name: String,
    /// Where it is.
    pub status: CommissionStatus,
    /// The worktree of its attempt, while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree_dir: Option<PathBuf>,
    /// The branch of its last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_name: Option<String>,
    /// Who made it.
    #[serde(default)]
    pub created_by: Author,
    /// The name of the token with which it was made, and then of that with which it was dispatched last, if there was
    /// one: what the commission spends counts for that token, and what is kept of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Its root and its budget, where the manager made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated: Option<Delegated>,
    /// When its dispatch was asked for, if it was, and it still waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// The attempt under way, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptState>,
    /// Calls of the manager's that have taken effect, the last ones: after a crash one can come again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<String>,
    /// The record in its project.
    pub record: Record,
}

/// The root of a commission that the manager made, and the dollars that count there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delegated {
    /// The meeting or the commission of the user's with which it began.
    pub root: String,
    /// How many commissions lead from there to this one, itself included.
    pub depth: u32,
    /// US dollars that an attempt at it may spend.
    pub budget_usd: f64,
    /// US dollars that attempts at it have spent which have ended.
    #[serde(default)]
    pub spent_usd: f64,
}

/// How far an attempt is. After a crash it goes on from there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptState {
    /// Its job.
    pub job: JobId,
    /// Whether it has a whole checkout, and not `.lore/` alone.
    pub full: bool,
    /// Whether its worktree is there: the record is written there then.
    pub begun: bool,
    /// Why it is to be cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<String>,
    /// Its end. The commit, the merge and the removal of the worktree are left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The state that it leads to: completed, failed or cancelled.
    pub status: CommissionStatus,
    /// Why.
    pub reason: String,
    /// When.
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
        // Without a state nothing can be done with it, and a list without it would hide it.
        let status = status.unwrap_or(CommissionStatus::Abandoned);
        Self::new(id, project.to_owned(), key(&record.worker), status, record)
    }

    fn states(home: &Home) -> Result<Dir, OperationError> {
        home.commissions()
    }
}

impl Commission {
    /// A commission without anything else.
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

    /// The attempt as its worker is given it; `None` where there is no attempt, or its worker cannot be a member.
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
            title: record.title.strip_prefix("Commission: ").unwrap_or(&record.title).to_owned(),
            prompt: record.prompt.clone(),
            dependencies: record.dependencies.clone(),
            overrides: record.resource_overrides.clone(),
            token: self.token.clone(),
            worktree: self.worktree_dir.clone()?,
            checkout: if state.full { Checkout::Full } else { Checkout::Sparse },
            memory_chars,
        })
    }

    /// Moves it to another state, and notes that.
    ///
    /// # Errors
    /// Where this state does not lead to that one.
    pub(crate) fn transition_to(
        &mut self,
        next: CommissionStatus,
        reason: &str,
        time: String,
    ) -> Result<(), OperationError> {
        if !self.status.leads_to(next) {
            return Err(OperationError::Conflict(format!(
                "commission {:?} is {}, from where it cannot become {next}",
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

    /// Whether a call has taken effect before. From now on it has.
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

    /// Notes something.
    pub(crate) fn note(&mut self, event: &str, reason: &str, time: String) {
        let (event, reason) = (event.to_owned(), reason.to_owned());
        self.record.activity_timeline.push(TimelineEntry {
            timestamp: time,
            event,
            reason,
            ..TimelineEntry::default()
        });
    }

    /// US dollars that it has spent and may still spend, where the manager made it.
    pub(crate) fn delegated_usd(&self) -> f64 {
        let Some(delegated) = &self.delegated else { return 0.0 };
        let may_spend = match self.status {
            CommissionStatus::Pending | CommissionStatus::Blocked => true,
            status => status.is_active() && self.attempt.as_ref().is_some_and(|attempt| attempt.end.is_none()),
        };
        delegated.spent_usd + if may_spend { delegated.budget_usd } else { 0.0 }
    }

    /// Whether it begins by itself as soon as it can: its dispatch was asked for.
    pub fn is_queued(&self) -> bool {
        self.asked.is_some() && matches!(self.status, CommissionStatus::Pending | CommissionStatus::Blocked)
    }

    /// When it was made, as far as its record says.
    pub fn created(&self) -> &str {
        self.record.activity_timeline.first().map_or(&self.record.date, |entry| &entry.timestamp)
    }

    /// The time that a list shows: that of its last change of state, else of its creation, else its day.
    pub fn relevant_date(&self) -> &str {
        use CommissionStatus::{Cancelled, Completed, Dispatched, Failed, InProgress};
        let event = match self.status {
            Completed | Failed | Cancelled | Dispatched | InProgress => format!("status_{}", self.status),
            _ => "created".to_owned(),
        };
        let last = self.record.activity_timeline.iter().rfind(|entry| entry.event == event);
        last.map_or(&self.record.date, |entry| &entry.timestamp)
    }

    /// How many attempts were begun.
    pub(crate) fn attempts(&self) -> usize {
        self.record.activity_timeline.iter().filter(|entry| entry.event == "status_dispatched").count()
    }
}
