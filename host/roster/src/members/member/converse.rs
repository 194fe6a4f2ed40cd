//! Prepares the turns of a member in a meeting.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use guild_contract::rpc::RpcError;
use guild_hall::{Attempt, NoSession};
use guild_jobs::{Accepted, RunningJob};
use guild_session::{session::NoTools, tools::Tools};

use super::{
    Member,
    resume::{self, Allowed},
};
use crate::{
    answer::blocking,
    jobs::run::{Opened, conversation::Conversation},
    tools::component,
};

/// How long a turn waits for the component of its worker, and for those of its toolboxes.
const LOADING: Duration = Duration::from_secs(20);

impl Member {
    /// The member, ready for a session of a meeting: as it and what it was granted are by now.
    ///
    /// # Errors
    ///
    /// Returns the reason when the member is not ready.
    pub(crate) async fn conversation(
        self: &Arc<Self>,
        attempt: &Attempt,
        job: Arc<RunningJob>,
    ) -> Result<Conversation, NoSession> {
        let until = Instant::now() + LOADING;
        let plan = self.planned(&job, until).await?;
        let toolboxes = resume::toolboxes(self, &plan.plan, until).await.map_err(NoSession::Now)?;
        self.session(attempt, job, plan, toolboxes).await
    }

    /// The same for the session that writes a meeting's notes, which uses no tools.
    ///
    /// # Errors
    ///
    /// Returns the reason when the member is not ready.
    pub(crate) async fn writer(
        self: &Arc<Self>,
        attempt: &Attempt,
        job: Arc<RunningJob>,
    ) -> Result<Conversation, NoSession> {
        let plan = self.planned(&job, Instant::now() + LOADING).await?;
        self.session(attempt, job, plan, Arc::new(NoTools)).await
    }

    /// The plan of a meeting's job, once the component is in service.
    async fn planned(self: &Arc<Self>, job: &Arc<RunningJob>, until: Instant) -> Result<Accepted, NoSession> {
        let loaded = component::ready(&self.component, self.key(), until).await;
        loaded.map_err(|e| NoSession::Now(e.message))?;
        let (member, of) = (self.clone(), job.clone());
        let plan = blocking(move || resume::plan(&member, &of).map_err(RpcError::internal)).await;
        let plan = plan.map_err(|e| NoSession::Never(e.message))?;
        // The operator may no longer allow the runtime with which the meeting was opened.
        self.agent(Some(&plan.agent)).map_err(|e| NoSession::Never(e.message))?;
        Ok(plan)
    }

    async fn session(
        &self,
        attempt: &Attempt,
        job: Arc<RunningJob>,
        plan: Accepted,
        toolboxes: Arc<dyn Tools>,
    ) -> Result<Conversation, NoSession> {
        let Allowed { grants, granted_tools, ceiling } = resume::allowed(self, job.id(), &plan, Some(attempt));
        let opened = Opened {
            data: self.data.clone(),
            context: self.context_of(Some(attempt)),
            attempt: Some(attempt.clone()),
            job,
            grants,
            granted_tools,
        };
        Conversation::new(opened, Accepted { ceiling, ..plan }, toolboxes).await
    }
}
