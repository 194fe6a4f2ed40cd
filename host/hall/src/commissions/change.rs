//! Changes commissions. Each change is stored before it is announced.

use std::sync::Arc;

use guild_contract::{
    OperationError,
    hall::{
        Author, CommissionChanges, CommissionCreated, CommissionId, CommissionStatus, HallEvent, NewCommission, Origin,
        TITLE_PREFIX, TimelineEntry, label,
    },
};

use super::{
    Commissions, StoredCommission, commission::Commission, commission::Record, heartbeat::SOURCE as HEARTBEAT,
};
use crate::{
    core::{
        requester::Requester,
        text::{TEXT_BYTES, check_text},
    },
    records::log::{self, CUT},
};

/// The most bytes of a title.
const TITLE_BYTES: usize = 1024;
/// The most dependencies of a commission.
const DEPENDENCIES: usize = 256;
/// The most bytes of a dependency.
const DEPENDENCY_BYTES: usize = 1024;

/// The source of a commission that the manager created.
const MANAGER: &str = "The manager";

impl Commissions {
    /// Creates a commission. It is pending, or blocked if a dependency is missing, and starts only once it is
    /// dispatched.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project or worker, or a field is not acceptable.
    pub async fn create(
        self: &Arc<Self>,
        new: NewCommission,
        requester: &Requester,
    ) -> Result<CommissionCreated, OperationError> {
        let call = requester.call();
        let activity = match requester {
            Requester::User | Requester::StandingOrders => None,
            Requester::Manager { activity, .. } => Some(activity),
        };
        if let Some(stored) = self.find_call(call) {
            return self.answer_again(&stored).await;
        }
        let title = new.title.trim();
        let title = label(title);
        check_text("title", title, TITLE_BYTES)?;
        // The title becomes the first line of a commit message.
        if title.contains(char::is_control) {
            return Err(OperationError::Invalid("title is one line, without control characters".to_owned()));
        }
        check_text("prompt", &new.prompt, TEXT_BYTES)?;
        check_dependencies(&new.dependencies)?;
        let project = self.core.project(&new.project_name)?;
        // A project that cannot be worked on is reported now, not at the dispatch.
        self.core.projects.integration(&self.core.home, &project).await?;
        self.check_named(&new.project_name, &new.dependencies).await?;
        let worker = self.core.worker(&new.worker_name)?;
        let (overrides, cut) = self.core.allowed(&worker.key, new.resource_overrides)?;
        let budget_usd = self.core.workers()?.budget_usd(&worker.key, &overrides);
        let author = if activity.is_some() { Author::Manager } else { Author::User };
        let source = match requester {
            Requester::User => None,
            Requester::StandingOrders => Some(HEARTBEAT),
            Requester::Manager { .. } => Some(MANAGER),
        };
        let (now, time) = (self.core.clock.now(), self.core.time());
        let entry = |event: &str, reason: &str| TimelineEntry {
            timestamp: time.clone(),
            event: event.to_owned(),
            reason: reason.to_owned(),
            ..TimelineEntry::default()
        };
        let created = [entry("created", "Commission created")];
        let record = Record {
            title: format!("{TITLE_PREFIX}{title}"),
            date: now.strftime("%Y-%m-%d").to_string(),
            source: source.map(|source| Origin { description: source.to_owned() }),
            worker: worker.display_name.clone(),
            worker_display_title: worker.display_title,
            prompt: new.prompt,
            dependencies: new.dependencies,
            resource_overrides: overrides,
            activity_timeline: created.into_iter().chain(cut.iter().map(|cut| entry(CUT, cut))).collect(),
            project_name: new.project_name.clone(),
            ..Record::default()
        };
        // The lock is held until the commission is counted. Nothing waits for a project under it, so that a hanging git
        // of one project does not block the managers of others.
        let one = match activity {
            Some(_) => Some(self.delegating.lock().await),
            None => None,
        };
        if let Some(stored) = self.find_call(call) {
            drop(one);
            return self.answer_again(&stored).await;
        }
        let delegated = match activity.map(|by| (by, self.delegate(by, budget_usd))) {
            Some((_, Ok(delegated))) => Some(delegated),
            Some((by, Err(refusal))) => {
                drop(one);
                return Err(self.refuse(by, refusal).await);
            }
            None => None,
        };
        let made = self.records.create_held(
            |nth| CommissionId::new(&worker.display_name, now, nth),
            |id| Commission {
                created_by: author,
                delegated,
                calls: call.map(str::to_owned).into_iter().collect(),
                ..Commission::new(id, new.project_name, worker.key.to_string(), CommissionStatus::Pending, record)
            },
        );
        let made = made.await?;
        drop(one);
        let id = self.records.export_new(made).await?.commission_id.clone();
        self.answer(&*self.get(id.as_str())?, cut).await
    }

    /// Answers the creation or change of a commission, after checking its dependencies.
    async fn answer(&self, stored: &StoredCommission, cut: Vec<String>) -> Result<CommissionCreated, OperationError> {
        self.check_blocked(stored).await?;
        let now = stored.now();
        let blocked_by = self.blocked_by(&now).await?;
        let blocked_by = self.with_nearest(&now.project_name, blocked_by).await;
        // A repeated call gets its first answer, whatever happened to the commission since.
        let status =
            if now.status == CommissionStatus::Blocked { CommissionStatus::Blocked } else { CommissionStatus::Pending };
        Ok(CommissionCreated { commission_id: now.commission_id.clone(), status, blocked_by, cut })
    }

    /// The commission that an earlier occurrence of this call created.
    fn find_call(&self, call: Option<&str>) -> Option<Arc<StoredCommission>> {
        let call = call?;
        let mut all = self.records.all().into_iter();
        all.find(|stored| stored.now().calls.iter().any(|known| known == call))
    }

    /// Answers a repeated call once it is known whether the commission could be created.
    async fn answer_again(&self, stored: &StoredCommission) -> Result<CommissionCreated, OperationError> {
        let id = stored.now().commission_id.clone();
        if stored.hold().await.is_forgotten {
            return Err(OperationError::NotFound(format!("the commission {id} was not created")));
        }
        let timeline = &stored.now().record.activity_timeline;
        let cut = timeline.iter().filter(|entry| entry.event == CUT);
        self.answer(stored, cut.map(|entry| entry.reason.clone()).collect()).await
    }

    /// Changes a commission that is not running: one that has not started, or whose attempt failed or was cancelled, so
    /// that the next attempt uses the change (REQ-WKR-27).
    ///
    /// # Errors
    ///
    /// Returns an error when the commission is running or over, or a field is not acceptable.
    pub async fn update(self: &Arc<Self>, changes: CommissionChanges) -> Result<CommissionCreated, OperationError> {
        let CommissionChanges { commission_id, prompt, dependencies, resource_overrides: overrides } = changes;
        let id = commission_id.as_str();
        if let Some(prompt) = &prompt {
            check_text("prompt", prompt, TEXT_BYTES)?;
        }
        check_dependencies(dependencies.as_deref().unwrap_or_default())?;
        let (stored, workers) = (self.get(id)?, self.core.workers()?);
        if let Some(dependencies) = &dependencies {
            self.check_named(&stored.now().project_name, dependencies).await?;
            self.check_cycle(&stored.now().commission_id, dependencies)?;
        }
        let (overrides, cut) = match (overrides, stored.now().worker_name.parse()) {
            (Some(overrides), Ok(worker)) => {
                self.core.allowed(&worker, overrides).map(|(allowed, cut)| (Some(allowed), cut))?
            }
            (overrides, _) => (overrides, Vec::new()),
        };
        let (said, time) = (cut.clone(), self.core.time());
        let more = prompt.as_ref().map_or(0, String::len).saturating_sub(stored.now().record.prompt.len());
        if more > 0 {
            self.records.check_room(&stored.now().project_name, more)?;
        }
        self.records
            .change(&stored, |commission| {
                let status = commission.status;
                if !matches!(
                    status,
                    CommissionStatus::Pending
                        | CommissionStatus::Blocked
                        | CommissionStatus::Failed
                        | CommissionStatus::Cancelled
                ) {
                    let how =
                        if status.is_active() { "Cancel it, update it, and re-dispatch it" } else { "Make another" };
                    return Err(OperationError::Conflict(format!(
                        "Cannot update commission \"{id}\": status is \"{status}\". {how}"
                    )));
                }
                let record = &mut commission.record;
                record.prompt = prompt.unwrap_or_else(|| record.prompt.clone());
                record.dependencies = dependencies.unwrap_or_else(|| record.dependencies.clone());
                record.resource_overrides = overrides.unwrap_or_else(|| record.resource_overrides.clone());
                if let (Some(delegated), Ok(worker)) = (&mut commission.delegated, commission.worker_name.parse()) {
                    delegated.budget_usd = workers.budget_usd(&worker, &commission.record.resource_overrides);
                }
                cut.iter().for_each(|cut| commission.note(CUT, cut, time.clone()));
                Ok(())
            })
            .await?;
        // The commission's dependencies may have changed.
        let project = stored.now().project_name.clone();
        self.check_dependencies(Some(&project)).await?;
        self.answer(&stored, said).await
    }

    /// Adds a note to a commission's timeline.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such commission, or its timeline is full.
    pub async fn note(&self, id: &str, content: &str, requester: &Requester) -> Result<(), OperationError> {
        let call = requester.call();
        let event = if call.is_some() { "manager_note" } else { "user_note" };
        check_text("content", content, TEXT_BYTES)?;
        let stored = self.get(id)?;
        self.records.check_room(&stored.now().project_name, content.len())?;
        let time = self.core.time();
        let is_new = self
            .records
            .change(&stored, |commission| {
                let is_new = !commission.is_repeated(call);
                if is_new {
                    log::check_room(&commission.record.activity_timeline, content)?;
                    commission.note(event, content, time);
                }
                Ok(is_new)
            })
            .await?;
        if !is_new {
            return Ok(());
        }
        let commission_id = stored.now().commission_id.clone();
        self.core.tell(HallEvent::CommissionManagerNote { commission_id, content: content.to_owned() });
        Ok(())
    }

    /// Abandons a commission for good.
    ///
    /// # Errors
    ///
    /// Returns an error when the commission is running or over.
    pub async fn abandon(
        self: &Arc<Self>,
        id: &str,
        reason: &str,
        requester: &Requester,
    ) -> Result<(), OperationError> {
        let call = requester.call();
        check_text("reason", reason, TEXT_BYTES)?;
        let stored = self.get(id)?;
        let time = self.core.time();
        self.records
            .change(&stored, |commission| {
                let status = commission.status;
                if commission.is_repeated(call) {
                    return Ok(());
                }
                if status.is_active() {
                    let why = "it has an active session. Cancel it first.";
                    return Err(OperationError::Conflict(format!("Cannot abandon commission \"{id}\": {why}")));
                }
                if status == CommissionStatus::Abandoned {
                    return Ok(());
                }
                if !status.leads_to(CommissionStatus::Abandoned) {
                    return Err(OperationError::Conflict(format!(
                        "Cannot abandon commission \"{id}\": current state is \"{status}\""
                    )));
                }
                let by = if call.is_some() { "Abandoned by the manager: " } else { "" };
                commission.transition_to(CommissionStatus::Abandoned, &format!("{by}{reason}"), time)
            })
            .await?;
        let project = stored.now().project_name.clone();
        self.check_dependencies(Some(&project)).await
    }
}

fn check_dependencies(dependencies: &[String]) -> Result<(), OperationError> {
    if dependencies.len() > DEPENDENCIES {
        return Err(OperationError::Invalid(format!(
            "dependencies has {} items, more than {DEPENDENCIES}",
            dependencies.len()
        )));
    }
    dependencies.iter().try_for_each(|item| check_text("dependencies", item, DEPENDENCY_BYTES))
}
