//! Holds the state that projects, documents, meetings and commissions share: the home, the list of projects, the
//! workers, the events.

mod host_paths;
mod lookup;
pub(crate) mod requester;
pub(crate) mod text;
pub(crate) mod token_scope;
pub(crate) mod workers;
mod worktrees;

use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use guild_contract::{OperationError, hall::HallEvent};
use guild_fs::clock::{Clock, rfc3339};
use guild_git::Integration;
use tokio::sync::broadcast;

use crate::{
    core::workers::{WorkerJobs, Workers},
    home::{
        Home,
        project_list::{Project, ProjectList},
    },
};

pub(crate) use host_paths::HostPaths;
pub(crate) use worktrees::left_out;

/// The number of events by which a subscriber may lag before it loses the oldest.
const EVENTS: usize = 1024;

/// The state that the parts of a hall share.
pub(crate) struct Core {
    pub(crate) home: Arc<Home>,
    pub(crate) projects: Arc<ProjectList>,
    pub(crate) clock: Arc<dyn Clock>,
    workers: OnceLock<Arc<dyn Workers>>,
    jobs: OnceLock<Arc<dyn WorkerJobs>>,
    waiting: OnceLock<Weak<dyn WaitForDocuments>>,
    events: broadcast::Sender<Arc<HallEvent>>,
}

/// Subscribers to changes of a project's documents. The trait is implemented in modules above those that change
/// documents.
#[async_trait]
pub(crate) trait WaitForDocuments: Send + Sync {
    /// Called when documents of a project have changed.
    async fn documents_changed(self: Arc<Self>, project: &str) -> Result<(), OperationError>;
}

impl Core {
    pub(crate) fn new(home: Home, projects: ProjectList, clock: Arc<dyn Clock>) -> Self {
        Self {
            home: Arc::new(home),
            projects: Arc::new(projects),
            clock,
            workers: OnceLock::new(),
            jobs: OnceLock::new(),
            waiting: OnceLock::new(),
            events: broadcast::Sender::new(EVENTS),
        }
    }

    /// Sets the subscriber to changes of documents.
    pub(crate) fn set_waiting(&self, waiting: Weak<dyn WaitForDocuments>) {
        let _ = self.waiting.set(waiting);
    }

    /// Announces that documents of a project have changed.
    ///
    /// # Errors
    ///
    /// Returns an error when a waiting commission cannot start.
    pub(crate) async fn documents_changed(&self, project: &str) -> Result<(), OperationError> {
        match self.waiting.get().and_then(Weak::upgrade) {
            Some(waiting) => waiting.documents_changed(project).await,
            None => Ok(()),
        }
    }

    /// Subscribes to the events from now on.
    pub(crate) fn events(&self) -> broadcast::Receiver<Arc<HallEvent>> {
        self.events.subscribe()
    }

    pub(crate) fn tell(&self, event: HallEvent) {
        // There may be no subscriber.
        let _ = self.events.send(Arc::new(event));
    }

    /// The current time in the format of records.
    pub(crate) fn time(&self) -> String {
        rfc3339(self.clock.now())
    }

    /// A project that `config.yaml` lists.
    pub(crate) fn project(&self, name: &str) -> Result<Arc<Project>, OperationError> {
        let (_, mut projects) = self.projects.now(&self.home)?;
        projects.remove(name).ok_or_else(|| OperationError::NotFound(format!("Project not found: {name}")))
    }

    /// A project with its integration worktree.
    pub(crate) async fn integration(&self, project: &str) -> Result<(Arc<Project>, Arc<Integration>), OperationError> {
        let project = self.project(project)?;
        let integration = self.projects.integration(&self.home, &project).await?;
        Ok((project, integration))
    }
}
