//! The operator's rule that removes branches of finished work.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use super::Projects;
use crate::{
    blocking::lock,
    offline::tidy::{Owners, Tidying, tidy_project},
};

/// How often the rule is applied.
const EVERY: Duration = Duration::from_secs(3600);

impl Projects {
    /// Has branches go from now on once what they are of has been over for so long; `None` has them stay. Those of
    /// attempts that failed or were cancelled, and of what could not be merged, stay in any case.
    pub fn set_tidy_after(&self, after: Option<Duration>) {
        *lock(&self.tidy_after) = after;
    }

    /// Applies the rule at once and then again and again, in the background, for as long as there is the hall.
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
                Err(e) => tracing::warn!(project = project.name(), "its branches cannot be tidied: {e}"),
            }
        }
    }
}

/// `None` once the hall is gone.
async fn tidy_once(all: &Weak<Projects>) -> Option<()> {
    let all = all.upgrade()?;
    let after = *lock(&all.tidy_after);
    if let Some(after) = after {
        all.tidy(after).await;
    }
    Some(())
}
