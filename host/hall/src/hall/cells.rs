//! What a hall keeps, commissions and meetings alike: each has a name, changes by one change at a time, is stored before anybody
//! is told, and has its record written into its project then.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use cap_std::fs::Dir;
use futures::future::join_all;
use guild_contract::{OperationError, hall::HallEvent};
use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard, watch};

use super::{Hall, blocking};
use crate::{
    home::Home,
    project::Project,
    store::{self, Kept},
    token_scope::current_token,
};

/// The most bytes of the commissions of a project, and of its meetings. All of them are in memory while the host runs.
const PROJECT_BYTES: usize = 64 * 1024 * 1024;
/// The most bytes of them that count for one token, so that a caller leaves room for others.
const TOKEN_BYTES: usize = PROJECT_BYTES / 2;
/// What one of them counts besides its texts.
const ITEM_BYTES: usize = 1024;

/// What a hall keeps.
pub(super) trait InHall: Kept + Clone + PartialEq + Send + Sync + 'static {
    /// What one is called.
    const NOUN: &'static str;

    /// The project's name.
    fn project(&self) -> &str;

    /// The token that it counts for, if there is one.
    fn token(&self) -> Option<&str>;

    /// The bytes of its texts.
    fn bytes(&self) -> usize;

    /// Where its record is now.
    fn picture(&self) -> Picture;

    /// What a change has to say to listeners.
    fn event(_before: &Self, _after: &Self) -> Option<HallEvent> {
        None
    }

    /// One that somebody else made, of which there is a record only. `key` is that of the worker who has this name.
    fn of_record(id: Self::Id, project: &str, text: &str, key: impl Fn(&str) -> String) -> Self;

    /// Where those of its kind are kept.
    fn states(home: &Home) -> Result<Dir, OperationError>;
}

/// Where a record is.
pub(super) enum Picture {
    /// In the integration worktree.
    Integration,
    /// In a worktree of its own.
    Worktree(PathBuf),
    /// Nowhere: its worktree is not there yet.
    Nowhere,
}

/// One that is kept, and what goes with it while the host runs.
pub(super) struct Cell<T, L> {
    now: watch::Sender<Arc<T>>,
    /// Held while it is made, changes, or is forgotten.
    presence: Arc<Mutex<Presence>>,
    pub(super) live: L,
}

/// Whether one is kept.
#[derive(Default)]
pub(super) struct Presence {
    pub(super) is_forgotten: bool,
}

/// One that was just made, which nobody else changes yet.
pub(super) type NewCell<T, L> = (Arc<Cell<T, L>>, OwnedMutexGuard<Presence>);

impl<T, L: Default> Cell<T, L> {
    fn new(kept: T, presence: Arc<Mutex<Presence>>) -> Arc<Self> {
        Arc::new(Self { now: watch::Sender::new(Arc::new(kept)), presence, live: L::default() })
    }
}

impl<T, L> Cell<T, L> {
    /// As it is now.
    pub(super) fn now(&self) -> Arc<T> {
        self.now.borrow().clone()
    }

    /// As it is from now on.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<T>> {
        self.now.subscribe()
    }

    /// Keeps it from changing.
    pub(super) async fn hold(&self) -> MutexGuard<'_, Presence> {
        self.presence.lock().await
    }
}

type Named<T, L> = BTreeMap<<T as Kept>::Id, Arc<Cell<T, L>>>;

/// All of a kind, by their names.
pub(super) struct Cells<T: Kept, L>(RwLock<Named<T, L>>);

impl<T: Kept, L: Default> Cells<T, L> {
    pub(super) fn of(kept: Vec<T>) -> Self {
        Self(RwLock::new(kept.into_iter().map(|kept| (kept.id().clone(), Cell::new(kept, Arc::default()))).collect()))
    }

    fn read(&self) -> RwLockReadGuard<'_, Named<T, L>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// All, in the order of their names.
    pub(super) fn all(&self) -> Vec<Arc<Cell<T, L>>> {
        self.read().values().cloned().collect()
    }

    /// All as they are now, in the order of their names.
    pub(super) fn now(&self) -> impl Iterator<Item = Arc<T>> + use<T, L> {
        self.all().into_iter().map(|cell| cell.now())
    }

    /// The one of that name.
    pub(super) fn get(&self, id: &T::Id) -> Option<Arc<Cell<T, L>>> {
        self.read().get(id).cloned()
    }

    /// The one of that name, if it is one.
    pub(super) fn named(&self, name: &str) -> Option<Arc<Cell<T, L>>> {
        self.get(&name.parse().ok()?)
    }

    /// Adds one under the first of these names that is free.
    fn add(
        &self,
        name: impl Fn(usize) -> T::Id,
        kept: impl FnOnce(T::Id) -> T,
        presence: Arc<Mutex<Presence>>,
    ) -> Result<Arc<Cell<T, L>>, OperationError> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(id) = (1..).map(name).find(|id| !all.contains_key(id)) else {
            return Err(OperationError::Internal("there is no name left".to_owned()));
        };
        let cell = Cell::new(kept(id.clone()), presence);
        all.insert(id, cell.clone());
        Ok(cell)
    }
}

/// Refuses so many bytes more of a kind in a project that keeps too many, of all callers or of the one that asks. What the
/// hall itself notes always has room.
///
/// # Errors
/// What to delete.
pub(super) fn check_room<T: InHall, L: Default>(
    cells: &Cells<T, L>,
    project: &str,
    more: usize,
) -> Result<(), OperationError> {
    let (token, kind) = (current_token(), T::RECORDS);
    let (mut all, mut of_token) = (more, more);
    for now in cells.now().filter(|now| now.project() == project) {
        let bytes = now.bytes() + ITEM_BYTES;
        all += bytes;
        of_token += if now.token() == token.as_deref() { bytes } else { 0 };
    }
    let (whose, bytes, most) = match token {
        _ if all > PROJECT_BYTES => (String::new(), all, PROJECT_BYTES),
        Some(token) if of_token > TOKEN_BYTES => (format!(" that count for the token {token}"), of_token, TOKEN_BYTES),
        _ => return Ok(()),
    };
    Err(OperationError::Conflict(format!(
        "the {kind} of project \"{project}\"{whose} would have {bytes} bytes, and at most {most} are kept; stop the host, \
         and of some that are over delete `state/{kind}/ID.json` in the hall's home and `.lore/work/{kind}/ID.md` on \
         claude/main"
    )))
}

/// How long whoever has other projects to see to waits for one.
const PATIENCE: Duration = Duration::from_secs(5);

/// Does something that goes on when nobody waits for it any more.
async fn in_background<V: Send + 'static>(
    work: impl Future<Output = Result<V, OperationError>> + Send + 'static,
) -> Result<V, OperationError> {
    match tokio::spawn(work).await {
        Ok(done) => done,
        // The host ends, and the caller with it: nobody may take that for a failure.
        Err(e) if e.is_cancelled() => pending().await,
        Err(e) => Err(OperationError::Internal(e.to_string())),
    }
}

/// What is done in a project, if it does not take long.
async fn at_hand<V>(project: &str, work: impl Future<Output = Result<V, OperationError>>) -> Result<V, OperationError> {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| {
        Err(OperationError::Conflict(format!(
            "project {project:?} is busy, or its git hangs: it takes more than {} s, and goes on",
            PATIENCE.as_secs()
        )))
    })
}

impl Hall {
    /// Adds one under the first of these names that is free, and keeps it.
    ///
    /// # Errors
    /// Where it cannot be stored: there is none then.
    pub(super) async fn make<T: InHall, L: Default>(
        &self,
        cells: &Cells<T, L>,
        name: impl Fn(usize) -> T::Id,
        kept: impl FnOnce(T::Id) -> T,
    ) -> Result<Arc<Cell<T, L>>, OperationError> {
        self.make_held(cells, name, kept).await.map(|(cell, _)| cell)
    }

    /// As [`Self::make`], and writes its record.
    ///
    /// # Errors
    /// Where either cannot be stored: there is none then.
    pub(super) async fn make_pictured<T: InHall, L: Default>(
        &self,
        cells: &Cells<T, L>,
        name: impl Fn(usize) -> T::Id,
        kept: impl FnOnce(T::Id) -> T,
    ) -> Result<Arc<T>, OperationError> {
        let made = self.make_held(cells, name, kept).await?;
        self.picture_made(cells, made).await
    }

    /// Writes the record of one that was just made.
    ///
    /// # Errors
    /// Where it cannot be stored: there is none then.
    pub(super) async fn picture_made<T: InHall, L: Default>(
        &self,
        cells: &Cells<T, L>,
        (cell, mut held): NewCell<T, L>,
    ) -> Result<Arc<T>, OperationError> {
        let made = cell.now();
        if let Err(e) = self.picture(&cell).await {
            self.forget_held(cells, made.id(), &mut held).await;
            return Err(e);
        }
        Ok(made)
    }

    /// As [`Self::make`]. Nobody else changes it before what this returns is dropped.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub(super) async fn make_held<T: InHall, L: Default>(
        &self,
        cells: &Cells<T, L>,
        name: impl Fn(usize) -> T::Id,
        kept: impl FnOnce(T::Id) -> T,
    ) -> Result<NewCell<T, L>, OperationError> {
        let presence = Arc::<Mutex<Presence>>::default();
        // Whoever finds it waits until it is stored.
        let mut held = presence.clone().lock_owned().await;
        let cell = cells.add(name, kept, presence)?;
        let made = cell.now();
        let kept = match check_room(cells, made.project(), 0) {
            Ok(()) => self.keep(&made).await,
            Err(full) => Err(full),
        };
        if let Err(e) = kept {
            self.forget_held(cells, made.id(), &mut held).await;
            return Err(e);
        }
        Ok((cell, held))
    }

    /// Forgets one of which nobody was told.
    pub(super) async fn forget<T: InHall, L: Default>(&self, cells: &Cells<T, L>, cell: &Cell<T, L>) {
        let mut held = cell.hold().await;
        self.forget_held(cells, cell.now().id(), &mut held).await;
    }

    /// Its name is free once its file is gone.
    async fn forget_held<T: InHall, L: Default>(&self, cells: &Cells<T, L>, id: &T::Id, held: &mut Presence) {
        held.is_forgotten = true;
        let (home, file) = (self.home.clone(), id.clone());
        let forgotten = blocking(move || T::states(&home).map(|dir| store::forget::<T>(&dir, &file)));
        if let Err(e) = forgotten.await {
            tracing::warn!("what is kept of a {} that was not made stays: {e}", T::NOUN);
        }
        cells.0.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Changes one; where that fails, it stays as it was.
    ///
    /// # Errors
    /// Where it was forgotten meanwhile, what the change has against it, and where it cannot be stored.
    pub(super) async fn change<T: InHall, L, V>(
        &self,
        cell: &Cell<T, L>,
        change: impl FnOnce(&mut T) -> Result<V, OperationError>,
    ) -> Result<V, OperationError> {
        let held = cell.hold().await;
        if held.is_forgotten {
            return Err(OperationError::NotFound(format!("the {} {} was not made", T::NOUN, cell.now().id())));
        }
        self.change_held(cell, change).await
    }

    /// As [`Self::change`], by whoever holds it.
    pub(super) async fn change_held<T: InHall, L, V>(
        &self,
        cell: &Cell<T, L>,
        change: impl FnOnce(&mut T) -> Result<V, OperationError>,
    ) -> Result<V, OperationError> {
        let before = cell.now();
        let mut after = (*before).clone();
        let value = change(&mut after)?;
        if after == *before {
            return Ok(value);
        }
        let after = Arc::new(after);
        self.keep(&after).await?;
        cell.now.send_replace(after.clone());
        // What is kept decides. The next change writes the record again.
        if let Err(e) = at_hand(after.project(), self.picture(cell)).await {
            tracing::warn!(id = %after.id(), "{e}");
        }
        if let Some(event) = T::event(&before, &after) {
            self.tell(event);
        }
        Ok(value)
    }

    async fn keep<T: InHall>(&self, kept: &Arc<T>) -> Result<(), OperationError> {
        let (home, kept) = (self.home.clone(), kept.clone());
        let doing = format!("{} {} cannot be stored", T::NOUN, kept.id());
        blocking(move || store::save(&T::states(&home)?, &*kept).map_err(OperationError::io(doing))).await
    }

    /// Writes a record. It goes on when nobody waits for it any more.
    async fn picture<T: InHall, L>(&self, cell: &Cell<T, L>) -> Result<(), OperationError> {
        let (new, kept, now) = (self.home.new_files()?, cell.now(), cell.changes());
        match kept.picture() {
            Picture::Nowhere => Ok(()),
            Picture::Worktree(dir) => blocking(move || store::write_record(&new, &dir, &*kept)).await,
            Picture::Integration => {
                let (project, projects, home) =
                    (self.project(kept.project())?, self.projects.clone(), self.home.clone());
                in_background(async move {
                    let integration = projects.integration(&home, &project).await?;
                    // It may have changed while others had the worktree.
                    let newest = move |dir: &Path| {
                        let kept = now.borrow().clone();
                        match kept.picture() {
                            Picture::Integration => store::write_record(&new, dir, &*kept),
                            Picture::Worktree(_) | Picture::Nowhere => Ok(()),
                        }
                    };
                    integration.with_files(newest).await?
                })
                .await
            }
        }
    }

    /// The one of that name, where it is one of that project, or of any where none is named. A record that somebody else made
    /// is looked for.
    ///
    /// # Errors
    /// Where there is no such project.
    pub(super) async fn find<T: InHall, L: Default>(
        &self,
        cells: &Cells<T, L>,
        id: &str,
        project: Option<&str>,
    ) -> Result<Option<Arc<Cell<T, L>>>, OperationError> {
        project.map(|name| self.project(name)).transpose()?;
        let known = cells.named(id);
        if known.is_none() {
            self.look(cells, project).await?;
        }
        let found = known.or_else(|| cells.named(id));
        Ok(found.filter(|cell| project.is_none_or(|project| project == cell.now().project())))
    }

    /// Reads the records of a project, and of all where none is named, that nobody here made: of the original, of another
    /// machine, of another hand.
    ///
    /// # Errors
    /// Where there is no such project.
    pub(super) async fn look<T: InHall, L: Default>(
        &self,
        cells: &Cells<T, L>,
        project: Option<&str>,
    ) -> Result<(), OperationError> {
        match project {
            Some(name) => self.look_in(cells, &self.project(name)?).await,
            // Each by itself: one whose git hangs keeps nobody from the others.
            None => {
                let projects = self.projects.now(&self.home)?.1;
                join_all(projects.values().map(|project| self.look_in(cells, project))).await;
            }
        }
        Ok(())
    }

    async fn look_in<T: InHall, L: Default>(&self, cells: &Cells<T, L>, project: &Arc<Project>) {
        if project.permit.is_err() {
            return;
        }
        let dir = self.home.integration(project.name());
        // It is made at its first use. One that is there is read as it is: reading waits for nothing that is under way in it.
        if !dir.exists() {
            let (projects, home, of) = (self.projects.clone(), self.home.clone(), project.clone());
            let opened = async {
                // One at a time, so that those who look again and again leave no more than one behind.
                let one = project.shared.opening.clone().lock_owned().await;
                in_background(async move {
                    let _one = one;
                    projects.integration(&home, &of).await.map(drop)
                })
                .await
            };
            if let Err(e) = at_hand(project.name(), opened).await {
                return tracing::warn!(project = project.name(), "its {} cannot be read: {e}", T::RECORDS);
            }
        }
        let (known, name): (BTreeSet<T::Id>, _) = (cells.read().keys().cloned().collect(), project.name().to_owned());
        let workers = self.all_workers();
        let read = blocking(move || {
            let key = |name: &str| {
                let mut found = workers.iter().filter(|worker| worker.display_name == name);
                match (found.next(), found.next()) {
                    (Some(worker), None) => worker.key.to_string(),
                    _ => name.to_owned(),
                }
            };
            let new = store::recorded::<T>(&dir).unwrap_or_default().into_keys().filter(|id| !known.contains(id));
            let read = |id: T::Id| {
                let text = store::read_record::<T>(&dir, &id).ok().flatten()?;
                Some(T::of_record(id, &name, &text, key))
            };
            Ok(new.filter_map(read).collect::<Vec<_>>())
        });
        let read = read.await.unwrap_or_default();
        let mut all = cells.0.write().unwrap_or_else(PoisonError::into_inner);
        for kept in read {
            all.entry(kept.id().clone()).or_insert_with(|| Cell::new(kept, Arc::default()));
        }
    }
}
