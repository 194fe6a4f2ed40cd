//! Combines the documents, meetings, commissions and projects of a hall, and implements the operations that need
//! several of them.

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

pub use brief::HEADING as BRIEF;
pub use reader::HallReader;

/// The options with which a hall is opened.
pub struct HallOptions {
    /// The path of the hall's home.
    pub home: PathBuf,
    /// Whether the service manager passed the hall's socket, which already listens then.
    pub has_passed_socket: bool,
    /// The projects in which the operator permits work.
    pub permits: Vec<Permit>,
    /// The bounds on the manager's delegations.
    pub delegation: Delegation,
    /// The program git; `None` looks for it on `PATH`.
    pub git: Option<PathBuf>,
    /// The limits of git and of the documents of projects.
    pub limits: Arc<Limits>,
    /// The source of the time.
    pub clock: Arc<dyn Clock>,
}

/// A hall. Each part uses the parts before it.
pub struct Hall {
    core: Arc<Core>,
    started: Instant,
    /// The documents of the hall's projects.
    pub documents: Arc<Documents>,
    /// The meetings of the hall.
    pub meetings: Arc<Meetings>,
    /// The commissions of the hall.
    pub commissions: Arc<Commissions>,
    /// The projects of the hall.
    pub projects: Arc<Projects>,
}

impl Hall {
    /// Opens a hall, and reads its stored state. No work starts yet. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when another process owns the home, or it cannot be read.
    pub fn open(options: HallOptions) -> Result<Arc<Self>, OperationError> {
        let home = Home::open(&options.home, options.has_passed_socket)?;
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

    /// Resumes all attempts and meetings that were running when the last host stopped, and starts the work that can
    /// start. The workers are known from now on.
    ///
    /// # Errors
    ///
    /// Returns an error when `config.yaml` cannot be read, or a change cannot be stored.
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

    /// The time since the hall was opened.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// The hall's home.
    pub fn home(&self) -> &Home {
        &self.core.home
    }

    /// Subscribes to the events from now on.
    pub fn events(&self) -> broadcast::Receiver<Arc<HallEvent>> {
        self.core.events()
    }

    /// Replaces the operator's permits.
    pub fn permit(&self, permits: Vec<Permit>) {
        self.core.projects.permit(permits);
    }

    /// Replaces the bounds on the manager's delegations.
    pub fn set_delegation(&self, delegation: Delegation) {
        self.commissions.set_delegation(delegation);
    }

    /// Sets the time after which branches of finished work are removed; with `None` they stay. Branches of failed or
    /// cancelled attempts, and of work that could not be merged, always stay.
    pub fn set_tidy_after(&self, after: Option<Duration>) {
        self.projects.set_tidy_after(after);
    }

    /// Whether there is a commission or a meeting of that id.
    pub fn has(&self, id: &str) -> bool {
        self.commissions.has(id) || self.meetings.has(id)
    }

    /// The attempt of a job; `None` if the job does not belong to a running commission or an open meeting.
    pub fn attempt_of(&self, job: &str) -> Option<Attempt> {
        self.commissions.attempt_of(job).or_else(|| self.meetings.attempt_of(job))
    }

    /// The workers that can be commissioned.
    pub fn all_workers(&self) -> Vec<Worker> {
        self.core.all_workers()
    }

    /// The models that commissions and meetings can request.
    ///
    /// # Errors
    ///
    /// Returns an error when the host is stopping.
    pub async fn models(&self) -> Result<Vec<Model>, OperationError> {
        match self.core.workers().cloned() {
            Ok(workers) => blocking(move || Ok(workers.models())).await,
            Err(_) => Ok(Vec::new()),
        }
    }

    /// The names that replace paths of the host. It blocks.
    pub(crate) fn host_paths(&self) -> crate::core::HostPaths {
        self.core.host_paths()
    }
}
