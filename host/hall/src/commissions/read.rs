//! Reading commissions.

use std::sync::Arc;

use guild_contract::{
    OperationError,
    hall::{
        Blocker, CommissionDetail, CommissionFilter, CommissionList, CommissionPhase, CommissionStatus, CommissionView,
        Named,
    },
};

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

    /// The dependencies for which a commission waits, where it is blocked.
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

    /// One commission, with the text of its record as it is now.
    ///
    /// # Errors
    /// Where there is none, or it is of another project.
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

    /// Commissions whose attempts are under way.
    pub fn running(&self) -> usize {
        self.records.now().filter(|now| now.status.is_active()).count()
    }

    /// The attempt under way of a job.
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

    /// All commissions as they are now.
    pub(crate) fn now(&self) -> impl Iterator<Item = Arc<Commission>> + use<> {
        self.records.now()
    }

    /// The commissions of a project that are under way.
    pub(crate) fn active(&self, project: &str) -> impl Iterator<Item = String> {
        let active = self.records.now().filter(move |now| now.project_name == project && now.status.is_active());
        active.map(|now| now.commission_id.to_string())
    }
}
