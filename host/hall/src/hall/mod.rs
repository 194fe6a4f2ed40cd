//! The hall itself: all that can be asked of it.

mod artifacts;
mod attempt;
mod brief;
mod cells;
mod change;
mod delegation;
mod dependencies;
mod heartbeat;
mod host_paths;
mod inspect;
mod issues;
mod manage;
mod meeting;
mod project_tools;
mod pulls;
mod queue;
mod read;
mod settings;
mod tidy;
mod tools;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, atomic::AtomicBool},
    time::{Duration, Instant},
};

use guild_contract::{Delegation, Limits, OperationError, hall::HallEvent};
use guild_fs::clock::Clock;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::{
    commission::Commission,
    home::Home,
    meeting::Meeting,
    project::{Permit, Project, Projects, lock},
    store,
    workers::{WorkerJobs, Workers},
};

use cells::{Cell, Cells};
pub use manage::HallReader;
pub(crate) use manage::cut;
use meeting::Turns;
pub use meeting::{NewRequest, Turn};

/// Events that a listener may be behind before it loses the oldest.
const EVENTS: usize = 1024;

/// How a hall is opened.
pub struct HallOptions {
    /// Its home.
    pub home: PathBuf,
    /// What the operator permits.
    pub permits: Vec<Permit>,
    /// What an activity of the manager may beget.
    pub delegation: Delegation,
    /// The program git; `None` looks for it on `PATH`.
    pub git: Option<PathBuf>,
    /// What git may take, and the documents of projects.
    pub limits: Arc<Limits>,
    /// The source of the time.
    pub clock: Arc<dyn Clock>,
}

/// A hall: its projects, their commissions and meetings.
pub struct Hall {
    home: Arc<Home>,
    projects: Arc<Projects>,
    clock: Arc<dyn Clock>,
    started: Instant,
    workers: OnceLock<Arc<dyn Workers>>,
    jobs: OnceLock<Arc<dyn WorkerJobs>>,
    commissions: Cells<Commission, Running>,
    meetings: Cells<Meeting, Turns>,
    /// Held while a meeting is opened, so that the caps hold.
    opening: tokio::sync::Mutex<()>,
    /// What an activity of the manager may beget.
    delegation: Mutex<Delegation>,
    /// After what time branches go of what is over, where they do.
    tidy_after: Mutex<Option<Duration>>,
    /// Held while the manager makes a commission, so that its bounds hold.
    delegating: tokio::sync::Mutex<()>,
    /// Held while it is decided which commissions begin.
    scheduling: tokio::sync::Mutex<()>,
    events: broadcast::Sender<Arc<HallEvent>>,
}

/// One commission, as a hall has it.
type CommissionCell = Cell<Commission, Running>;

/// What goes with a commission while the host runs.
#[derive(Default)]
struct Running {
    /// Ends the attempt under way.
    cancel: Mutex<CancellationToken>,
    /// Whether listeners were told that it waits.
    is_queued: AtomicBool,
}

impl Running {
    fn cancel(&self) -> CancellationToken {
        lock(&self.cancel).clone()
    }
}

impl Hall {
    /// Opens a hall, and reads what is kept there. Nothing begins yet. It blocks.
    ///
    /// # Errors
    /// Where another process owns the home, or it cannot be read.
    pub fn open(options: HallOptions) -> Result<Arc<Self>, OperationError> {
        let home = Home::open(&options.home)?;
        home.sweep();
        let mut kept: Vec<Commission> =
            store::load(&home.commissions()?).map_err(OperationError::io("state/commissions"))?;
        let mut meetings: Vec<Meeting> =
            store::load(&home.meetings()?).map_err(OperationError::io("state/meetings"))?;
        let dirs = kept.iter_mut().map(|one| &mut one.worktree_dir);
        for dir in dirs.chain(meetings.iter_mut().map(|one| &mut one.worktree_dir)).flatten() {
            *dir = home.moved_here(dir);
        }
        let projects = Arc::new(Projects::new(options.permits, options.git, options.limits));
        projects.now(&home)?;
        Ok(Arc::new(Self {
            home: Arc::new(home),
            projects,
            clock: options.clock,
            started: Instant::now(),
            workers: OnceLock::new(),
            jobs: OnceLock::new(),
            commissions: Cells::of(kept),
            meetings: Cells::of(meetings),
            opening: tokio::sync::Mutex::default(),
            delegation: Mutex::new(options.delegation),
            tidy_after: Mutex::default(),
            delegating: tokio::sync::Mutex::default(),
            scheduling: tokio::sync::Mutex::default(),
            events: broadcast::Sender::new(EVENTS),
        }))
    }

    /// The time since its start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Its home.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// What happens from now on.
    pub fn events(&self) -> broadcast::Receiver<Arc<HallEvent>> {
        self.events.subscribe()
    }

    /// What the operator permits from now on.
    pub fn permit(&self, permits: Vec<Permit>) {
        self.projects.permit(permits);
    }

    fn tell(&self, event: HallEvent) {
        // Nobody may be listening.
        let _ = self.events.send(Arc::new(event));
    }

    fn time(&self) -> String {
        guild_fs::clock::rfc3339(self.clock.now())
    }

    fn workers(&self) -> Result<&Arc<dyn Workers>, OperationError> {
        self.workers.get().ok_or_else(starting)
    }

    fn jobs(&self) -> Result<&Arc<dyn WorkerJobs>, OperationError> {
        self.jobs.get().ok_or_else(starting)
    }

    /// Whether there is a commission or a meeting of that id.
    pub fn has(&self, id: &str) -> bool {
        self.commissions.named(id).is_some() || self.meetings.named(id).is_some()
    }

    fn cell(&self, id: &str) -> Result<Arc<CommissionCell>, OperationError> {
        let found = self.commissions.named(id);
        found.ok_or_else(|| OperationError::NotFound(format!("Commission \"{id}\" not found in any project")))
    }

    /// A project that `config.yaml` lists.
    fn project(&self, name: &str) -> Result<Arc<Project>, OperationError> {
        let (_, mut projects) = self.projects.now(&self.home)?;
        projects.remove(name).ok_or_else(|| OperationError::NotFound(format!("Project not found: {name}")))
    }
}

fn starting() -> OperationError {
    OperationError::Internal("the host is starting; try again".to_owned())
}

/// Does something that blocks on the file system.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OperationError> + Send + 'static,
) -> Result<T, OperationError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(OperationError::Internal("the host is stopping".to_owned())))
}
