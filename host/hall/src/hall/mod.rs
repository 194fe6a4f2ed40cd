//! The hall itself: all that can be asked of it.

mod artifacts;
mod attempt;
mod brief;
mod change;
mod dependencies;
mod inspect;
mod manage;
mod meeting;
mod pulls;
mod queue;
mod read;
mod settings;
mod tools;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, atomic::AtomicBool},
};

use guild_jobs::Clock;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    commission::{Commission, CommissionId},
    error::HallError,
    events::HallEvent,
    home::Home,
    project::{Permit, Project, Projects, lock},
    store,
    workers::Workers,
};

pub use change::{Changes, NewCommission};
pub use manage::HallReader;
pub(crate) use manage::cut;
use meeting::Meetings;
pub use meeting::{NewMeeting, NewRequest, Turn};
pub use pulls::{PullRequest, Synced};
pub use queue::Dispatched;
pub use read::Filter;

/// Events that a listener may be behind before it loses the oldest.
const EVENTS: usize = 1024;

/// How a hall is opened.
pub struct HallOptions {
    /// Its home.
    pub home: PathBuf,
    /// What the operator permits.
    pub permits: Vec<Permit>,
    /// The program git; `None` looks for it on `PATH`.
    pub git: Option<PathBuf>,
    /// The source of the time.
    pub clock: Arc<dyn Clock>,
}

/// A hall: its projects, their commissions and meetings.
pub struct Hall {
    home: Arc<Home>,
    projects: Projects,
    clock: Arc<dyn Clock>,
    workers: OnceLock<Arc<dyn Workers>>,
    commissions: RwLock<BTreeMap<CommissionId, Arc<Cell>>>,
    meetings: Meetings,
    /// Held while it is decided which commissions begin.
    scheduling: tokio::sync::Mutex<()>,
    events: broadcast::Sender<Arc<HallEvent>>,
}

/// One commission.
struct Cell {
    now: watch::Sender<Arc<Commission>>,
    /// Held while it changes.
    change: tokio::sync::Mutex<()>,
    /// Ends the attempt under way.
    cancel: Mutex<CancellationToken>,
    /// Whether listeners were told that it waits.
    is_queued: AtomicBool,
}

impl Cell {
    fn new(commission: Commission) -> Arc<Self> {
        let now = watch::Sender::new(Arc::new(commission));
        let is_queued = AtomicBool::new(false);
        Arc::new(Self { now, change: tokio::sync::Mutex::default(), cancel: Mutex::default(), is_queued })
    }

    /// As it is now.
    fn now(&self) -> Arc<Commission> {
        self.now.borrow().clone()
    }

    fn cancel(&self) -> CancellationToken {
        lock(&self.cancel).clone()
    }
}

impl Hall {
    /// Opens a hall, and reads what is kept there. Nothing begins yet. It blocks.
    ///
    /// # Errors
    /// Where another process owns the home, or it cannot be read.
    pub fn open(options: HallOptions) -> Result<Arc<Self>, HallError> {
        let home = Home::open(&options.home)?;
        let kept = store::load(&home.commissions()?).map_err(HallError::io("state/commissions"))?;
        let meetings = store::load(&home.meetings()?).map_err(HallError::io("state/meetings"))?;
        let cell = |commission: Commission| (commission.commission_id.clone(), Cell::new(commission));
        let projects = Projects::new(options.permits, options.git);
        projects.now(&home)?;
        Ok(Arc::new(Self {
            home: Arc::new(home),
            projects,
            clock: options.clock,
            workers: OnceLock::new(),
            commissions: RwLock::new(kept.into_iter().map(cell).collect()),
            meetings: Meetings::of(meetings),
            scheduling: tokio::sync::Mutex::default(),
            events: broadcast::Sender::new(EVENTS),
        }))
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
        guild_jobs::rfc3339(self.clock.now())
    }

    fn workers(&self) -> Result<&Arc<dyn Workers>, HallError> {
        self.workers.get().ok_or_else(|| HallError::Internal("the host is starting; try again".to_owned()))
    }

    fn cells(&self) -> RwLockReadGuard<'_, BTreeMap<CommissionId, Arc<Cell>>> {
        self.commissions.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> Vec<Arc<Cell>> {
        self.cells().values().cloned().collect()
    }

    fn cell(&self, id: &str) -> Result<Arc<Cell>, HallError> {
        let found = id.parse::<CommissionId>().ok().and_then(|id| self.cells().get(&id).cloned());
        found.ok_or_else(|| HallError::NotFound(format!("Commission \"{id}\" not found in any project")))
    }

    /// A project that `config.yaml` lists.
    fn project(&self, name: &str) -> Result<Arc<Project>, HallError> {
        let (_, mut projects) = self.projects.now(&self.home)?;
        projects.remove(name).ok_or_else(|| HallError::NotFound(format!("Project not found: {name}")))
    }
}

/// Does something that blocks on the file system.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HallError> + Send + 'static,
) -> Result<T, HallError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(HallError::Internal("the host is stopping".to_owned())))
}
