//! Applies the operator's rule that removes branches of finished work.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use super::Projects;
use crate::{
    blocking::lock,
    offline::tidy::{Owners, Tidying, tidy_project},
};

/// The interval between two applications of the rule.
const EVERY: Duration = Duration::from_secs(3600);

impl Projects {
    /// Sets the time after which branches of finished work are removed; with `None` they stay. Branches of failed or
    /// cancelled attempts, and of work that could not be merged, always stay.
    pub fn set_tidy_after(&self, after: Option<Duration>) {
        *lock(&self.tidy_after) = after;
    }

    /// Applies the rule now and then at each interval, in the background, while the hall exists.
    pub(crate) fn keep_tidy(self: &Arc<Self>) {
        let all = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(()) = tidy_once(&all).await {
                tokio::time::sleep(EVERY).await;
            }
        });
    }

    async fn tidy(&self, older_than: Duration) {
        let Ok((_, projects)) = self.core.projects.now(&self.core.home) else { return };
        let tidying = Tidying { older_than, unmerged: false, dry_run: false };
        for project in projects.values().filter(|project| project.permit.is_ok()) {
            let commissions = self.commissions.now().map(|one| (*one).clone());
            let owners = Owners::new(commissions, self.meetings.now().map(|one| (*one).clone()));
            let tidied = match self.core.projects.integration(&self.core.home, project).await {
                Ok(integration) => tidy_project(integration.repository(), project.name(), &owners, tidying).await,
                Err(e) => Err(e),
            };
            match tidied {
                Ok(tidied) => {
                    for gone in tidied.iter().filter(|one| one.removed) {
                        let (branch, commit) = (&gone.branch, &gone.commit);
                        tracing::info!(project = project.name(), branch, commit, "removed a branch: {}", gone.reason);
                    }
                }
                Err(e) => {
                    tracing::warn!(project = project.name(), "the branches of the project cannot be removed: {e}")
                }
            }
        }
    }
}

/// Applies the rule once. Returns `None` once the hall is gone.
async fn tidy_once(all: &Weak<Projects>) -> Option<()> {
    let all = all.upgrade()?;
    let after = *lock(&all.tidy_after);
    if let Some(after) = after {
        all.tidy(after).await;
    }
    Some(())
}
