//! The hall: its documents, meetings, commissions and projects, and what needs more than one of them.

mod brief;
mod project_tools;
mod reader;
mod tools;

use std::{
    path::PathBuf,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use guild_contract::{
    Delegation, Limits, OperationError,
    hall::{HallEvent, Model},
};
use guild_fs::clock::Clock;
use tokio::sync::broadcast;

use crate::{
    blocking::blocking,
    commissions::{Commissions, commission::Commission},
    core::{
        Core, WaitForDocuments,
        workers::{Attempt, Worker, WorkerJobs, Workers},
    },
    documents::Documents,
    home::{
        Home,
        project_list::{Permit, ProjectList},
    },
    meetings::{Meetings, meeting::Meeting},
    projects::Projects,
    records::{RecordStore, store},
};

pub use reader::HallReader;

/// How a hall is opened.
pub struct HallOptions {
    /// Its home.
    pub home: PathBuf,
    /// The projects in which the operator permits work.
    pub permits: Vec<Permit>,
    /// How much an activity of the manager may delegate.
    pub delegation: Delegation,
    /// The program git; `None` looks for it on `PATH`.
    pub git: Option<PathBuf>,
    /// The limits of git and of the documents of projects.
    pub limits: Arc<Limits>,
    /// The source of the time.
    pub clock: Arc<dyn Clock>,
}

/// A hall. Each part uses those before it.
pub struct Hall {
    core: Arc<Core>,
    started: Instant,
    /// The documents of its projects.
    pub documents: Arc<Documents>,
    /// Its meetings.
    pub meetings: Arc<Meetings>,
    /// Its commissions.
    pub commissions: Arc<Commissions>,
    /// Its projects.
    pub projects: Arc<Projects>,
}

impl Hall {
    /// Opens a hall, and reads what is kept there. Nothing begins yet. It blocks.
    ///
    /// # Errors
    /// Where another process owns the home, or it cannot be read.
    pub fn open(options: HallOptions) -> Result<Arc<Self>, OperationError> {
        let home = Home::open(&options.home)?;
        home.sweep();
        let mut commissions: Vec<Commission> =
            store::load(&home.commissions()?).map_err(OperationError::io("state/commissions"))?;
        let mut meetings: Vec<Meeting> =
            store::load(&home.meetings()?).map_err(OperationError::io("state/meetings"))?;
        let dirs = commissions.iter_mut().map(|one| &mut one.worktree_dir);
        for dir in dirs.chain(meetings.iter_mut().map(|one| &mut one.worktree_dir)).flatten() {
            *dir = home.moved_here(dir);
        }
        let projects = ProjectList::new(options.permits, options.git, options.limits);
        projects.now(&home)?;
        let core = Arc::new(Core::new(home, projects, options.clock));
        let (commissions, meetings) =
            (RecordStore::new(core.clone(), commissions), RecordStore::new(core.clone(), meetings));
        let documents = Arc::new(Documents::new(core.clone(), [commissions.clone(), meetings.clone()]));
        let meetings = Arc::new(Meetings::new(core.clone(), meetings));
        let commissions = Arc::new(Commissions::new(
            core.clone(),
            commissions,
            documents.clone(),
            meetings.clone(),
            options.delegation,
        ));
        let waiting: Weak<Commissions> = Arc::downgrade(&commissions);
        core.set_waiting(waiting as Weak<dyn WaitForDocuments>);
        let projects = Arc::new(Projects::new(core.clone(), meetings.clone(), commissions.clone()));
        Ok(Arc::new(Self { core, started: Instant::now(), documents, meetings, commissions, projects }))
    }

    /// Goes on with all attempts and meetings that were under way when the last host ended, and begins what can begin.
    /// The workers are known from now on.
    ///
    /// # Errors
    /// Where `config.yaml` cannot be read, or a change cannot be stored.
    pub async fn begin_work<W>(&self, workers: Arc<W>) -> Result<(), OperationError>
    where
        W: Workers + WorkerJobs + 'static,
    {
        self.core.set_workers(workers.clone(), workers);
        self.commissions.resume();
        self.meetings.resume();
        self.projects.keep_tidy();
        self.commissions.check_dependencies(None).await
    }

    /// The time since its start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Its home.
    pub fn home(&self) -> &Home {
        &self.core.home
    }

    /// The events from now on.
    pub fn events(&self) -> broadcast::Receiver<Arc<HallEvent>> {
        self.core.events()
    }

    /// Changes what the operator permits, from now on.
    pub fn permit(&self, permits: Vec<Permit>) {
        self.core.projects.permit(permits);
    }

    /// Changes how much an activity of the manager may delegate, from now on.
    pub fn set_delegation(&self, delegation: Delegation) {
        self.commissions.set_delegation(delegation);
    }

    /// Has branches removed from now on once the work that they are of has been over for so long; `None` has them stay.
    /// Those of attempts that failed or were cancelled, and of work that could not be merged, stay in any case.
    pub fn set_tidy_after(&self, after: Option<Duration>) {
        self.projects.set_tidy_after(after);
    }

    /// Whether there is a commission or a meeting of that id.
    pub fn has(&self, id: &str) -> bool {
        self.commissions.has(id) || self.meetings.has(id)
    }

    /// The attempt of a job; `None` where the job is no attempt of a commission and no meeting, or that is over.
    pub fn attempt_of(&self, job: &str) -> Option<Attempt> {
        self.commissions.attempt_of(job).or_else(|| self.meetings.attempt_of(job))
    }

    /// The workers that can be commissioned.
    pub fn all_workers(&self) -> Vec<Worker> {
        self.core.all_workers()
    }

    /// The models that commissions and meetings can ask for.
    ///
    /// # Errors
    /// Where the host is stopping.
    pub async fn models(&self) -> Result<Vec<Model>, OperationError> {
        match self.core.workers().cloned() {
            Ok(workers) => blocking(move || Ok(workers.models())).await,
            Err(_) => Ok(Vec::new()),
        }
    }

    /// The names that stand for paths of the host. It blocks.
    pub(crate) fn host_paths(&self) -> crate::core::HostPaths {
        self.core.host_paths()
    }
}
