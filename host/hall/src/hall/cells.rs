//! What a hall keeps, commissions and meetings alike: each has a name, changes by one change at a time, is stored before anybody
//! is told, and has its record written into its project then.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
};

use cap_std::fs::Dir;
use tokio::sync::{Mutex, MutexGuard, watch};

use super::{Hall, blocking};
use crate::{
    error::HallError,
    events::HallEvent,
    home::Home,
    project::Project,
    store::{self, Kept},
};

/// What a hall keeps.
pub(super) trait InHall: Kept + Clone + PartialEq + Send + Sync + 'static {
    /// What one is called.
    const NOUN: &'static str;

    /// The project's name.
    fn project(&self) -> &str;

    /// Where its record is now.
    fn picture(&self) -> Picture;

    /// What a change has to say to listeners.
    fn event(before: &Self, after: &Self) -> Option<HallEvent>;

    /// One that somebody else made, of which there is a record only. `key` is that of the worker who has this name.
    fn of_record(id: Self::Id, project: &str, text: &str, key: impl Fn(&str) -> String) -> Self;

    /// Where those of its kind are kept.
    fn states(home: &Home) -> Result<Dir, HallError>;
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
    /// Held while it changes.
    change: Mutex<()>,
    pub(super) live: L,
}

impl<T, L: Default> Cell<T, L> {
    fn new(kept: T) -> Arc<Self> {
        Arc::new(Self { now: watch::Sender::new(Arc::new(kept)), change: Mutex::default(), live: L::default() })
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
    pub(super) async fn hold(&self) -> MutexGuard<'_, ()> {
        self.change.lock().await
    }
}

type Named<T, L> = BTreeMap<<T as Kept>::Id, Arc<Cell<T, L>>>;

/// All of a kind, by their names.
pub(super) struct Cells<T: Kept, L>(RwLock<Named<T, L>>);

impl<T: Kept, L: Default> Cells<T, L> {
    pub(super) fn of(kept: Vec<T>) -> Self {
        Self(RwLock::new(kept.into_iter().map(|kept| (kept.id().clone(), Cell::new(kept))).collect()))
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

    pub(super) fn remove(&self, id: &T::Id) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Adds one under the first of these names that is free.
    fn add(&self, name: impl Fn(usize) -> T::Id, kept: impl FnOnce(T::Id) -> T) -> Result<Arc<Cell<T, L>>, HallError> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(id) = (1..).map(name).find(|id| !all.contains_key(id)) else {
            return Err(HallError::Internal("there is no name left".to_owned()));
        };
        let cell = Cell::new(kept(id.clone()));
        all.insert(id, cell.clone());
        Ok(cell)
    }
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
    ) -> Result<Arc<Cell<T, L>>, HallError> {
        let cell = cells.add(name, kept)?;
        let made = cell.now();
        if let Err(e) = self.keep(&made).await {
            cells.remove(made.id());
            return Err(e);
        }
        Ok(cell)
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
    ) -> Result<Arc<T>, HallError> {
        let made = self.make(cells, name, kept).await?.now();
        if let Err(e) = self.picture(&made).await {
            self.forget(cells, made.id()).await;
            return Err(e);
        }
        Ok(made)
    }

    /// Forgets one of which nobody was told.
    pub(super) async fn forget<T: InHall, L: Default>(&self, cells: &Cells<T, L>, id: &T::Id) {
        cells.remove(id);
        let (home, id) = (self.home.clone(), id.clone());
        let forgotten = blocking(move || T::states(&home).map(|dir| store::forget::<T>(&dir, &id)));
        if let Err(e) = forgotten.await {
            tracing::warn!("what is kept of a {} that was not made stays: {e}", T::NOUN);
        }
    }

    /// Changes one; where that fails, it stays as it was.
    pub(super) async fn change<T: InHall, L, V>(
        &self,
        cell: &Cell<T, L>,
        change: impl FnOnce(&mut T) -> Result<V, HallError>,
    ) -> Result<V, HallError> {
        let _one = cell.hold().await;
        self.change_held(cell, change).await
    }

    /// As [`Self::change`], by whoever holds it.
    pub(super) async fn change_held<T: InHall, L, V>(
        &self,
        cell: &Cell<T, L>,
        change: impl FnOnce(&mut T) -> Result<V, HallError>,
    ) -> Result<V, HallError> {
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
        if let Err(e) = self.picture(&after).await {
            tracing::warn!(id = %after.id(), "{e}");
        }
        if let Some(event) = T::event(&before, &after) {
            self.tell(event);
        }
        Ok(value)
    }

    async fn keep<T: InHall>(&self, kept: &Arc<T>) -> Result<(), HallError> {
        let (home, kept) = (self.home.clone(), kept.clone());
        let doing = format!("{} {} cannot be stored", T::NOUN, kept.id());
        blocking(move || store::save(&T::states(&home)?, &*kept).map_err(HallError::io(doing))).await
    }

    async fn picture<T: InHall>(&self, kept: &Arc<T>) -> Result<(), HallError> {
        let (new, kept) = (self.home.new_files()?, kept.clone());
        match kept.picture() {
            Picture::Nowhere => Ok(()),
            Picture::Worktree(dir) => blocking(move || store::write_record(&new, &dir, &*kept)).await,
            Picture::Integration => {
                let project = self.project(kept.project())?;
                let integration = self.projects.integration(&self.home, &project).await?;
                integration.with_files(move |dir| store::write_record(&new, dir, &*kept)).await?
            }
        }
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
    ) -> Result<(), HallError> {
        match project {
            Some(name) => self.look_in(cells, self.project(name)?.as_ref()).await,
            None => {
                for project in self.projects.now(&self.home)?.1.values() {
                    self.look_in(cells, project).await;
                }
            }
        }
        Ok(())
    }

    async fn look_in<T: InHall, L: Default>(&self, cells: &Cells<T, L>, project: &Project) {
        if project.permit.is_err() {
            return;
        }
        // They are in the integration worktree, which is made at its first use.
        if let Err(e) = self.projects.integration(&self.home, project).await {
            tracing::debug!(project = project.name(), "its records of {} cannot be read: {e}", T::RECORDS);
        }
        let dir = self.home.integration(project.name());
        let (known, name): (Vec<T::Id>, _) = (cells.read().keys().cloned().collect(), project.name().to_owned());
        let workers = self.all_workers();
        let read = blocking(move || {
            let key = |name: &str| {
                let found = workers.iter().find(|worker| worker.display_name == name);
                found.map_or_else(|| name.to_owned(), |worker| worker.key.to_string())
            };
            let new = store::recorded::<T>(&dir).unwrap_or_default().into_iter().filter(|id| !known.contains(id));
            let read = |id: T::Id| {
                let text = store::read_record::<T>(&dir, &id).ok().flatten()?;
                Some(T::of_record(id, &name, &text, key))
            };
            Ok(new.filter_map(read).collect::<Vec<_>>())
        });
        let read = read.await.unwrap_or_default();
        let mut all = cells.0.write().unwrap_or_else(PoisonError::into_inner);
        for kept in read {
            all.entry(kept.id().clone()).or_insert_with(|| Cell::new(kept));
        }
    }
}
