//! What can be asked of a hall without changing it.

use std::sync::Arc;

use guild_contract::{
    OperationError,
    hall::{
        Blocker, CommissionDetail, CommissionFilter, CommissionList, CommissionPhase, CommissionStatus, CommissionView,
        MeetingStatus, Model, Named, ProjectSettings, ProjectView,
    },
};

use super::{Hall, blocking};
use crate::{
    commission::{AttemptState, Commission},
    store,
    view::{self, Page},
    workers::{Attempt, Worker},
};

impl Hall {
    /// The commissions, in the order of a list, as many as one answer has, with their long texts cut.
    ///
    /// # Errors
    /// Where there is no such project.
    pub async fn list(&self, filter: &CommissionFilter) -> Result<CommissionList, OperationError> {
        let all = self.matching(filter).await?;
        let mut page: Page<CommissionView> = Page::of(&all, filter.offset, filter.limit);
        for (view, now) in page.items.iter_mut().zip(all.iter().skip(filter.offset)) {
            view.blocked_by = self.blocked_by(now).await?;
        }
        Ok(CommissionList { commissions: page.items, more: page.more })
    }

    /// What a commission waits for, where it is blocked.
    ///
    /// # Errors
    /// Where the host is stopping.
    pub async fn blocked_by(&self, now: &Commission) -> Result<Vec<Blocker>, OperationError> {
        match now.status {
            CommissionStatus::Blocked => self.blockers(&now.project_name, &now.record.dependencies).await,
            _ => Ok(Vec::new()),
        }
    }

    /// The commissions as they are, in the order of a list: what waits, what runs, what went wrong, what is over.
    ///
    /// # Errors
    /// Where there is no such project.
    pub async fn matching(&self, filter: &CommissionFilter) -> Result<Vec<Arc<Commission>>, OperationError> {
        self.look(&self.commissions, filter.project_name.as_deref()).await?;
        let status = match &filter.status {
            None => None,
            Some(Named::Known(status)) => Some(*status),
            Some(Named::Unknown(_)) => return Ok(Vec::new()),
        };
        let mut found: Vec<_> = self.commissions.now().collect();
        found.retain(|now| {
            filter.project_name.as_ref().is_none_or(|project| *project == now.project_name)
                && status.is_none_or(|status| status == now.status)
                && filter.worker.as_ref().is_none_or(|worker| *worker == now.record.worker)
        });
        found.sort_by(|a, b| {
            let by_time = a.relevant_date().cmp(b.relevant_date());
            let over = a.status.phase() == CommissionPhase::Over;
            let by_time = if over { by_time.reverse() } else { by_time };
            a.status.phase().cmp(&b.status.phase()).then(by_time)
        });
        Ok(found)
    }

    /// One commission, with the text of its record as it is now.
    ///
    /// # Errors
    /// Where there is none, or it is of another project.
    pub async fn read(&self, id: &str, project: Option<&str>) -> Result<CommissionDetail, OperationError> {
        let missing = || OperationError::NotFound(format!("Commission not found: {id}"));
        let now = self.find(&self.commissions, id, project).await?.ok_or_else(missing)?.now();
        let active = now.worktree_dir.clone().filter(|_| now.status.is_active());
        let places = [active, Some(self.home.integration(&now.project_name))];
        let id = now.commission_id.clone();
        let read = blocking(move || {
            let found =
                places.into_iter().flatten().find_map(|dir| store::read_record::<Commission>(&dir, &id).ok().flatten());
            Ok(found)
        });
        let rendered = || now.record.render(now.status).map_err(OperationError::Internal);
        let raw_content = match read.await? {
            Some(text) => text,
            None => rendered()?,
        };
        let timeline = now.record.activity_timeline.clone();
        let mut commission = view::commission(&now);
        commission.blocked_by = self.blocked_by(&now).await?;
        Ok(CommissionDetail { commission, timeline, raw_content })
    }

    /// How the work on a project stands, in a few sentences. The original has a model write them; here they are counted.
    ///
    /// # Errors
    /// Where there is no such project.
    pub async fn briefing(&self, project: &str) -> Result<String, OperationError> {
        let filter = CommissionFilter { project_name: Some(project.to_owned()), ..CommissionFilter::default() };
        let commissions = self.matching(&filter).await?;
        let counts = Kind::ALL
            .map(|(kind, name)| (commissions.iter().filter(|now| Kind::of(now.status) == Some(kind)).count(), name));
        let mut sentences: Vec<String> = sentence("Commissions", counts).into_iter().collect();
        let meetings = self.meetings_of(Some(project)).await?;
        let counts = [MeetingStatus::Open, MeetingStatus::Requested]
            .map(|status| (meetings.iter().filter(|meeting| meeting.status == status).count(), status.as_str()));
        sentences.extend(sentence("Meetings", counts));
        Ok(if sentences.is_empty() { "Nothing is to be done.".to_owned() } else { sentences.join(" ") })
    }

    /// The projects, in the order of `config.yaml`.
    ///
    /// # Errors
    /// Where that cannot be read.
    pub fn projects(&self) -> Result<Vec<ProjectView>, OperationError> {
        let (settings, projects) = self.projects.now(&self.home)?;
        let known = settings.projects().iter().filter_map(|settings| projects.get(&settings.name));
        Ok(known.map(|project| project.view()).collect())
    }

    /// What `config.yaml` says of a project.
    ///
    /// # Errors
    /// Where it has none of that name.
    pub fn project_settings(&self, name: &str) -> Result<ProjectSettings, OperationError> {
        Ok(self.project(name)?.settings.clone())
    }

    /// The workers that can be commissioned.
    pub fn all_workers(&self) -> Vec<Worker> {
        self.workers.get().map(|workers| workers.all()).unwrap_or_default()
    }

    /// The models that commissions and meetings can ask for.
    ///
    /// # Errors
    /// Where the host is stopping.
    pub async fn models(&self) -> Result<Vec<Model>, OperationError> {
        match self.workers.get().cloned() {
            Some(workers) => blocking(move || Ok(workers.models())).await,
            None => Ok(Vec::new()),
        }
    }

    /// Commissions whose attempts are under way.
    pub fn running(&self) -> usize {
        self.commissions.now().filter(|now| now.status.is_active()).count()
    }

    /// The attempt of a job; `None` where the job is no attempt of a commission and no meeting, or that is over.
    pub fn attempt_of(&self, job: &str) -> Option<Attempt> {
        let is_of = |attempt: &AttemptState| attempt.job.as_str() == job;
        let mut commissions = self.commissions.now();
        if let Some(now) = commissions.find(|now| now.status.is_active() && now.attempt.as_ref().is_some_and(is_of)) {
            return Attempt::of(&now, self.project(&now.project_name).ok()?.settings.memory_chars());
        }
        let now =
            self.open_meetings().find(|now| now.session.as_ref().is_some_and(|state| state.job.as_str() == job))?;
        Attempt::of_meeting(&now, self.project(&now.project_name).ok()?.settings.memory_chars())
    }
}

/// The kinds of commissions that a briefing counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    UnderWay,
    Waiting,
    Blocked,
    Ended,
    Completed,
}

impl Kind {
    /// All kinds, each with its name for people, in the order of a briefing.
    const ALL: [(Self, &'static str); 5] = [
        (Self::UnderWay, "under way"),
        (Self::Waiting, "waiting to be dispatched"),
        (Self::Blocked, "blocked"),
        (Self::Ended, "failed or cancelled"),
        (Self::Completed, "completed"),
    ];

    /// The kind of a commission in this state; abandoned commissions are not counted.
    fn of(status: CommissionStatus) -> Option<Self> {
        match status {
            CommissionStatus::Dispatched | CommissionStatus::InProgress => Some(Self::UnderWay),
            CommissionStatus::Pending => Some(Self::Waiting),
            CommissionStatus::Blocked => Some(Self::Blocked),
            CommissionStatus::Failed | CommissionStatus::Cancelled => Some(Self::Ended),
            CommissionStatus::Completed => Some(Self::Completed),
            CommissionStatus::Abandoned => None,
        }
    }
}

/// A sentence with the count of each kind; `None` where there are none at all.
fn sentence(of: &str, counts: impl IntoIterator<Item = (usize, &'static str)>) -> Option<String> {
    let there = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = there.map(|(count, kind)| format!("{count} {kind}")).collect();
    (!counts.is_empty()).then(|| format!("{of}: {}.", counts.join(", ")))
}
