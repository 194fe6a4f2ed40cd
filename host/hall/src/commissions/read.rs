//! Lists and reads commissions.

use std::sync::Arc;

use guild_contract::{
    OperationError,
    hall::{
        Blocker, CommissionDetail, CommissionDiff, CommissionFilter, CommissionList, CommissionPhase, CommissionStatus,
        CommissionView, Named,
    },
};
use guild_git::{AttemptBranch, GitError};

use super::{
    Commissions,
    commission::{AttemptState, Commission},
    view,
};
use crate::{
    blocking::blocking,
    core::workers::Attempt,
    records::{page::Page, store},
};

impl Commissions {
    /// The commissions in list order, as many as one answer can hold, with long texts cut.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project.
    pub async fn list(&self, filter: &CommissionFilter) -> Result<CommissionList, OperationError> {
        let all = self.matching(filter).await?;
        let mut page: Page<CommissionView> = Page::of(&all, filter.offset, filter.limit);
        for (view, now) in page.items.iter_mut().zip(all.iter().skip(filter.offset)) {
            view.blocked_by = self.blocked_by(now).await?;
        }
        Ok(CommissionList { commissions: page.items, more: page.more })
    }

    /// The missing dependencies of a blocked commission.
    ///
    /// # Errors
    ///
    /// Returns an error when the host is stopping.
    pub async fn blocked_by(&self, now: &Commission) -> Result<Vec<Blocker>, OperationError> {
        match now.status {
            CommissionStatus::Blocked => self.blockers(&now.project_name, &now.record.dependencies).await,
            _ => Ok(Vec::new()),
        }
    }

    /// The matching commissions in list order: waiting, running, failed, and finished ones.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project.
    pub async fn matching(&self, filter: &CommissionFilter) -> Result<Vec<Arc<Commission>>, OperationError> {
        self.records.discover(filter.project_name.as_deref()).await?;
        let status = match &filter.status {
            None => None,
            Some(Named::Known(status)) => Some(*status),
            Some(Named::Unknown(_)) => return Ok(Vec::new()),
        };
        let mut found: Vec<_> = self.records.now().collect();
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

    /// One commission, with the current text of its record.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such commission, or it belongs to another project.
    pub async fn read(&self, id: &str, project: Option<&str>) -> Result<CommissionDetail, OperationError> {
        let missing = || OperationError::NotFound(format!("Commission not found: {id}"));
        let now = self.records.find(id, project).await?.ok_or_else(missing)?.now();
        let active = now.worktree_dir.clone().filter(|_| now.status.is_active());
        let places = [active, Some(self.core.home.integration(&now.project_name))];
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

    /// The changes of the last attempt, of all files or of one: those on its branch; and while it is under way, those in
    /// its worktree too.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such commission, it belongs to another project, or it has no branch.
    pub async fn diff(
        &self,
        id: &str,
        project: Option<&str>,
        file: Option<&str>,
    ) -> Result<CommissionDiff, OperationError> {
        let missing = || OperationError::NotFound(format!("Commission not found: {id}"));
        let now = self.records.find(id, project).await?.ok_or_else(missing)?.now();
        let conflict = |why: &str| OperationError::Conflict(format!("Commission \"{id}\" has no branch: {why}"));
        let branch = now.branch_name.as_deref().ok_or_else(|| conflict("no attempt has begun"))?;
        let branch = AttemptBranch::new(branch)?;
        let (_, integration) = self.core.integration(&now.project_name).await?;
        if !integration.repository().branch_exists(&branch).await? {
            return Err(conflict(&format!("{branch} was removed")));
        }
        let under_way = now.worktree_dir.as_deref().filter(|_| now.status.is_active());
        let patch = match under_way {
            Some(dir) => integration.changes_so_far(&branch, dir, file).await,
            None => integration.attempt_changes(&branch, file).await,
        };
        let patch = patch.map_err(|error| match error {
            GitError::TooMuchOutput { bytes, .. } => OperationError::Conflict(format!(
                "the changes on {branch} have more than {bytes} bytes; ask for one file with `file`"
            )),
            error => error.into(),
        })?;
        Ok(CommissionDiff { branch: branch.to_string(), under_way: under_way.is_some(), patch })
    }

    /// The number of running attempts.
    pub fn running(&self) -> usize {
        self.records.now().filter(|now| now.status.is_active()).count()
    }

    /// The running attempt of a job.
    pub(crate) fn attempt_of(&self, job: &str) -> Option<Attempt> {
        let is_of = |attempt: &AttemptState| attempt.job.as_str() == job;
        let mut all = self.records.now();
        let now = all.find(|now| now.status.is_active() && now.attempt.as_ref().is_some_and(is_of))?;
        now.as_attempt(self.core.project(&now.project_name).ok()?.settings.memory_chars())
    }

    /// Whether there is a commission of that id.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.records.named(id).is_some()
    }

    /// The current state of all commissions.
    pub(crate) fn now(&self) -> impl Iterator<Item = Arc<Commission>> + use<> {
        self.records.now()
    }

    /// The running commissions of a project.
    pub(crate) fn active(&self, project: &str) -> impl Iterator<Item = String> {
        let active = self.records.now().filter(move |now| now.project_name == project && now.status.is_active());
        active.map(|now| now.commission_id.to_string())
    }
}
