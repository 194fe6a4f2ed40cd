//! Changes of commissions: each is stored before anybody is told.

use std::sync::Arc;

use cap_std::fs::Dir;
use guild_contract::{
    MemberKey, OperationError,
    hall::{
        Author, CommissionChanges, CommissionCreated, CommissionId, CommissionStatus, HallEvent, NewCommission, Origin,
        Overrides, TimelineEntry,
    },
};

use super::{
    CommissionCell, Hall,
    cells::{InHall, Picture, check_room},
    heartbeat::SOURCE as HEARTBEAT,
};
use crate::{
    commission::{
        Commission, Record,
        record::{self},
    },
    home::Home,
    requester::Requester,
    workers::Worker,
};

/// The most bytes of a title.
const TITLE_BYTES: usize = 1024;
/// The most bytes of a prompt, a note, an agenda, or a message.
pub(super) const TEXT_BYTES: usize = 1024 * 1024;
/// The most dependencies of a commission.
const DEPENDENCIES: usize = 256;
/// The most bytes of a model's name.
const MODEL_BYTES: usize = 256;
/// The most bytes of a dependency.
const DEPENDENCY_BYTES: usize = 1024;

/// What a commission of the manager's has as its source.
const MANAGER: &str = "The manager";

impl Hall {
    /// Makes a commission. It is pending, or blocked where something that it depends on is not there, and begins only once its
    /// dispatch is asked for.
    ///
    /// # Errors
    /// Where there is no such project or worker, or a field is not acceptable.
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
        if let Some(cell) = self.made_by(call) {
            return self.was_made(&cell).await;
        }
        let title = new.title.trim();
        let title = title.strip_prefix("Commission: ").unwrap_or(title);
        check_text("title", title, TITLE_BYTES)?;
        // It becomes the first line of a commit's message.
        if title.contains(char::is_control) {
            return Err(OperationError::Invalid("title is one line, without control characters".to_owned()));
        }
        check_text("prompt", &new.prompt, TEXT_BYTES)?;
        check_dependencies(&new.dependencies)?;
        let project = self.project(&new.project_name)?;
        // A project that cannot be worked on is told now, not at the dispatch.
        self.projects.integration(&self.home, &project).await?;
        self.check_named(&new.project_name, &new.dependencies).await?;
        let worker = self.worker(&new.worker_name)?;
        let (overrides, cut) = self.allowed(&worker.key, new.resource_overrides)?;
        let budget_usd = self.workers()?.budget_usd(&worker.key, &overrides);
        let author = if activity.is_some() { Author::Manager } else { Author::User };
        let source = match requester {
            Requester::User => None,
            Requester::StandingOrders => Some(HEARTBEAT),
            Requester::Manager { .. } => Some(MANAGER),
        };
        let (now, time) = (self.clock.now(), self.time());
        let entry = |event: &str, reason: &str| TimelineEntry {
            timestamp: time.clone(),
            event: event.to_owned(),
            reason: reason.to_owned(),
            ..TimelineEntry::default()
        };
        let created = [entry("created", "Commission created")];
        let record = Record {
            title: format!("Commission: {title}"),
            date: now.strftime("%Y-%m-%d").to_string(),
            source: source.map(|source| Origin { description: source.to_owned() }),
            worker: worker.display_name.clone(),
            worker_display_title: worker.display_title,
            prompt: new.prompt,
            dependencies: new.dependencies,
            resource_overrides: overrides,
            activity_timeline: created.into_iter().chain(cut.iter().map(|cut| entry(record::CUT, cut))).collect(),
            project_name: new.project_name.clone(),
            ..Record::default()
        };
        // Until it counts. Nothing waits for a project meanwhile: one whose git hangs keeps no manager from another.
        let one = match activity {
            Some(_) => Some(self.delegating.lock().await),
            None => None,
        };
        if let Some(cell) = self.made_by(call) {
            drop(one);
            return self.was_made(&cell).await;
        }
        let delegated = match activity.map(|by| (by, self.delegate(by, budget_usd))) {
            Some((_, Ok(delegated))) => Some(delegated),
            Some((by, Err(refusal))) => {
                drop(one);
                return Err(self.refuse(by, refusal).await);
            }
            None => None,
        };
        let made = self.make_held(
            &self.commissions,
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
        let id = self.picture_made(&self.commissions, made).await?.commission_id.clone();
        self.made(&*self.cell(id.as_str())?, cut).await
    }

    /// What came of making a commission, or of changing it: what it waits for is looked at first.
    async fn made(&self, cell: &CommissionCell, cut: Vec<String>) -> Result<CommissionCreated, OperationError> {
        self.check_blocked(cell).await?;
        let now = cell.now();
        let blocked_by = self.blocked_by(&now).await?;
        let blocked_by = self.with_nearest(&now.project_name, blocked_by).await;
        // A call that comes again is answered as it was, whatever came of the commission since.
        let status =
            if now.status == CommissionStatus::Blocked { CommissionStatus::Blocked } else { CommissionStatus::Pending };
        Ok(CommissionCreated { commission_id: now.commission_id.clone(), status, blocked_by, cut })
    }

    /// Overrides as the jobs of a worker can have them, and what was cut.
    ///
    /// # Errors
    /// A bound that makes no sense, or a model that the worker cannot run.
    pub(super) fn allowed(
        &self,
        worker: &MemberKey,
        mut overrides: Overrides,
    ) -> Result<(Overrides, Vec<String>), OperationError> {
        check_overrides(&overrides)?;
        let workers = self.workers()?;
        overrides.model = overrides.model.filter(|model| !model.trim().is_empty());
        if let Some(model) = &overrides.model {
            check_text("resourceOverrides.model", model, MODEL_BYTES)?;
            let checked = workers.check_model(worker, model);
            checked.map_err(|why| OperationError::Invalid(format!("resourceOverrides.model: {why}")))?;
        }
        let cut = workers.cut(worker, &mut overrides);
        Ok((overrides, cut))
    }

    /// The commission that this call made when it came before.
    fn made_by(&self, call: Option<&str>) -> Option<Arc<CommissionCell>> {
        let call = call?;
        let mut all = self.commissions.all().into_iter();
        all.find(|cell| cell.now().calls.iter().any(|known| known == call))
    }

    /// What came of making a commission, once it is known whether it could be made.
    async fn was_made(&self, cell: &CommissionCell) -> Result<CommissionCreated, OperationError> {
        let id = cell.now().commission_id.clone();
        let is_forgotten = cell.hold().await.is_forgotten;
        match is_forgotten {
            false => {
                let timeline = &cell.now().record.activity_timeline;
                let cut = timeline.iter().filter(|entry| entry.event == record::CUT);
                self.made(cell, cut.map(|entry| entry.reason.clone()).collect()).await
            }
            true => Err(OperationError::NotFound(format!("the commission {id} was not made"))),
        }
    }

    /// Changes a commission that is not under way: one that has not begun, or one whose attempt failed or was cancelled, so that
    /// the next attempt has the change (REQ-WKR-27).
    ///
    /// # Errors
    /// Where it is under way or over, or a field is not acceptable.
    pub async fn update(self: &Arc<Self>, changes: CommissionChanges) -> Result<CommissionCreated, OperationError> {
        let CommissionChanges { commission_id, prompt, dependencies, resource_overrides: overrides } = changes;
        let id = commission_id.as_str();
        if let Some(prompt) = &prompt {
            check_text("prompt", prompt, TEXT_BYTES)?;
        }
        check_dependencies(dependencies.as_deref().unwrap_or_default())?;
        let (cell, workers) = (self.cell(id)?, self.workers()?);
        if let Some(dependencies) = &dependencies {
            self.check_named(&cell.now().project_name, dependencies).await?;
            self.check_cycle(&cell.now().commission_id, dependencies)?;
        }
        let (overrides, cut) = match (overrides, cell.now().worker_name.parse()) {
            (Some(overrides), Ok(worker)) => {
                self.allowed(&worker, overrides).map(|(allowed, cut)| (Some(allowed), cut))?
            }
            (overrides, _) => (overrides, Vec::new()),
        };
        let (said, time) = (cut.clone(), self.time());
        let more = prompt.as_ref().map_or(0, String::len).saturating_sub(cell.now().record.prompt.len());
        if more > 0 {
            check_room(&self.commissions, &cell.now().project_name, more)?;
        }
        self.change(&cell, |commission| {
            let status = commission.status;
            if !matches!(
                status,
                CommissionStatus::Pending
                    | CommissionStatus::Blocked
                    | CommissionStatus::Failed
                    | CommissionStatus::Cancelled
            ) {
                let how = if status.is_active() { "Cancel it, update it, and re-dispatch it" } else { "Make another" };
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
            cut.iter().for_each(|cut| commission.note(record::CUT, cut, time.clone()));
            Ok(())
        })
        .await?;
        // It may wait for something else now.
        let project = cell.now().project_name.clone();
        self.check_dependencies(Some(&project)).await?;
        self.made(&cell, said).await
    }

    /// Adds a note.
    ///
    /// # Errors
    /// Where there is no such commission, or its timeline is full.
    pub async fn note(&self, id: &str, content: &str, requester: &Requester) -> Result<(), OperationError> {
        let call = requester.call();
        let event = if call.is_some() { "manager_note" } else { "user_note" };
        check_text("content", content, TEXT_BYTES)?;
        let cell = self.cell(id)?;
        check_room(&self.commissions, &cell.now().project_name, content.len())?;
        let time = self.time();
        let is_new = self
            .change(&cell, |commission| {
                let is_new = !commission.is_repeated(call);
                if is_new {
                    record::check_room(&commission.record.activity_timeline, content)?;
                    commission.note(event, content, time);
                }
                Ok(is_new)
            })
            .await?;
        if !is_new {
            return Ok(());
        }
        let commission_id = cell.now().commission_id.clone();
        self.tell(HallEvent::CommissionManagerNote { commission_id, content: content.to_owned() });
        Ok(())
    }

    /// Gives a commission up for good.
    ///
    /// # Errors
    /// Where it runs, or is over.
    pub async fn abandon(
        self: &Arc<Self>,
        id: &str,
        reason: &str,
        requester: &Requester,
    ) -> Result<(), OperationError> {
        let call = requester.call();
        check_text("reason", reason, TEXT_BYTES)?;
        let cell = self.cell(id)?;
        let time = self.time();
        self.change(&cell, |commission| {
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
        let project = cell.now().project_name.clone();
        self.check_dependencies(Some(&project)).await
    }

    /// The worker of that name: its key, which is its alone; else the name of its package, or its name for people, where no
    /// other worker says that it has the same.
    pub(super) fn worker(&self, name: &str) -> Result<Worker, OperationError> {
        let all = self.workers()?.all();
        let names: [fn(&Worker) -> &str; 3] =
            [|worker| worker.key.as_str(), |worker| &worker.package, |worker| &worker.display_name];
        for by in names {
            let found: Vec<&Worker> = all.iter().filter(|worker| by(worker) == name).collect();
            match *found {
                [] => {}
                [worker] => return Ok(worker.clone()),
                _ => {
                    let keys: Vec<&str> = found.iter().map(|worker| worker.key.as_str()).collect();
                    return Err(OperationError::Conflict(format!(
                        "Worker \"{name}\" is the name of several: say which by its key, {}",
                        keys.join(" or ")
                    )));
                }
            }
        }
        let known: Vec<&str> = all.iter().map(|worker| worker.display_name.as_str()).collect();
        let known =
            if known.is_empty() { "there is none".to_owned() } else { format!("there are {}", known.join(", ")) };
        Err(OperationError::NotFound(format!("Worker \"{name}\" not found in discovered packages; {known}")))
    }

    /// The worker with that key.
    pub(super) fn worker_of(&self, key: &str) -> Result<Worker, OperationError> {
        let found = self.workers()?.all().into_iter().find(|worker| worker.key.as_str() == key);
        found.ok_or_else(|| {
            OperationError::Conflict(format!("its worker {key} is not in service; `guild members` says why"))
        })
    }
}

impl InHall for Commission {
    const NOUN: &'static str = "commission";

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
        prompt.len() + current_progress.len() + body.len() + paths + record::bytes(activity_timeline)
    }

    fn picture(&self) -> Picture {
        let begun = self.attempt.as_ref().is_some_and(|attempt| attempt.begun);
        match &self.worktree_dir {
            Some(dir) if begun && self.status.is_active() => Picture::Worktree(dir.clone()),
            _ => Picture::Integration,
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

pub(super) fn check_text(field: &str, text: &str, max: usize) -> Result<(), OperationError> {
    if text.trim().is_empty() {
        return Err(OperationError::Invalid(format!("Missing required field: {field}")));
    }
    if text.len() > max {
        return Err(OperationError::Invalid(format!("{field} has {} bytes, more than {max}", text.len())));
    }
    Ok(())
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

fn check_overrides(overrides: &Overrides) -> Result<(), OperationError> {
    let bounds = guild_contract::Bounds {
        max_turns: overrides.max_turns,
        max_budget_usd: overrides.max_budget_usd,
        deadline_seconds: None,
    };
    bounds.check().map_err(|why| OperationError::Invalid(format!("resourceOverrides: {why}")))
}
