//! A member in a meeting.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use guild_contract::rpc::RpcError;
use guild_hall::{Attempt, NotWritten};
use guild_jobs::{Accepted, RunningJob};

use super::{
    Member,
    resume::{self, Allowed},
};
use crate::{blocking::blocking, component, work::conversation::Conversation};

/// How long a turn waits for the component of its worker, and for those of its toolboxes.
const LOADING: Duration = Duration::from_secs(20);

impl Member {
    /// The member, ready for the session that writes a meeting's notes.
    ///
    /// # Errors
    /// Why it is not, and whether it may be later.
    pub(crate) async fn writer(
        self: &Arc<Self>,
        attempt: &Attempt,
        job: Arc<RunningJob>,
    ) -> Result<Conversation, NotWritten> {
        let loaded = component::ready(&self.component, self.key(), Instant::now() + LOADING).await;
        loaded.map_err(|e| NotWritten::Now(e.message))?;
        self.conversation(attempt, job).await.map_err(NotWritten::Never)
    }

    /// The member, ready for a session of a meeting: as it and what it was granted are by now.
    ///
    /// # Errors
    /// Why it is not, in a sentence for the user.
    pub(crate) async fn conversation(
        self: &Arc<Self>,
        attempt: &Attempt,
        job: Arc<RunningJob>,
    ) -> Result<Conversation, String> {
        let until = Instant::now() + LOADING;
        component::ready(&self.component, self.key(), until).await.map_err(|e| e.message)?;
        let (member, of) = (self.clone(), job.clone());
        let plan = blocking(move || resume::plan(&member, &of).map_err(RpcError::internal)).await;
        let plan = plan.map_err(|e| e.message)?;
        // What it was opened with may not be what the operator allows by now.
        self.agent(Some(&plan.agent)).map_err(|e| e.message)?;
        let toolboxes = resume::toolboxes(self, &plan.plan, until).await?;
        let Allowed { grants, granted_tools, ceiling } = resume::allowed(self, &plan, Some(attempt));
        let plan = Accepted { granted_tools, ceiling, ..plan };
        let served = (self.data.clone(), self.context_of(Some(attempt)));
        Conversation::new(served, (attempt, job), plan, grants, toolboxes).await
    }
}
