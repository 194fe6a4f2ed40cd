//! Stores the commissions and meetings of a hall. The JSON file in the home is authoritative; the record, a Markdown
//! file in the project, is a copy.
//!
//! One change is made at a time. It is stored before it is announced, and then exported to the project.

pub(crate) mod log;
pub(crate) mod page;
pub(crate) mod store;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
};

use cap_std::fs::Dir;
use futures::future::join_all;
use guild_contract::{OperationError, hall::HallEvent};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard, watch};

use crate::{
    blocking::{blocking, in_background, in_time},
    core::{Core, token_scope::current_token},
    files::{below_lore, in_lore},
    home::{Home, project_list::Project},
};

/// The most bytes of the commissions of a project, and of its meetings. The host keeps all of them in memory.
const PROJECT_BYTES: usize = 64 * 1024 * 1024;
/// The most bytes of records that count for one token, so that other callers have room.
const TOKEN_BYTES: usize = PROJECT_BYTES / 2;
/// The bytes that a record counts besides its texts.
const ITEM_BYTES: usize = 1024;

/// A commission or a meeting, with a file of its own in the home and a record in its project.
pub(crate) trait HallRecord: Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync + 'static {
    /// The type of the name, which is also the name of the record's files.
    type Id: Clone + Display + FromStr + Ord + Send + Sync + 'static;
    /// The state of a record that is kept only while the host runs.
    type Runtime: Default + Send + Sync + 'static;
    /// The noun for a record of this kind.
    const NOUN: &'static str;
    /// The directory of the records, below `.lore/work/`. In older projects it is below `.lore/`.
    const RECORDS: &'static str;

    /// The record's id.
    fn id(&self) -> &Self::Id;

    /// The text of the record.
    ///
    /// # Errors
    ///
    /// Returns an error when YAML cannot express a field.
    fn text(&self) -> Result<String, String>;

    /// The project's name.
    fn project(&self) -> &str;

    /// The token for which the record counts, if there is one.
    fn token(&self) -> Option<&str>;

    /// The bytes of the record's texts.
    fn bytes(&self) -> usize;

    /// The present place of the record.
    fn location(&self) -> RecordLocation;

    /// The event of a change, if the change is announced.
    fn event(_before: &Self, _after: &Self) -> Option<HallEvent> {
        None
    }

    /// Makes a commission or a meeting from a record that another program created. `key` returns the key of the worker
    /// with a display name.
    fn of_record(id: Self::Id, project: &str, text: &str, key: impl Fn(&str) -> String) -> Self;

    /// The directory of the home with the files of its kind.
    fn states(home: &Home) -> Result<Dir, OperationError>;
}

/// The place of a record.
pub(crate) enum RecordLocation {
    /// The integration worktree.
    Integration,
    /// A worktree of its own.
    Worktree(PathBuf),
    /// The record has no place: its worktree does not exist yet.
    None,
}

/// The present state of a commission or a meeting, with the state that is kept only while the host runs.
pub(crate) struct StoredRecord<T: HallRecord> {
    now: watch::Sender<Arc<T>>,
    /// Held while the record is created, changed, or removed.
    presence: Arc<Mutex<Presence>>,
    pub(crate) runtime: T::Runtime,
}

/// Whether a record exists.
#[derive(Default)]
pub(crate) struct Presence {
    pub(crate) is_forgotten: bool,
}

/// A record that was just created, and that no other task can change yet.
pub(crate) type NewRecord<T> = (Arc<StoredRecord<T>>, OwnedMutexGuard<Presence>);

impl<T: HallRecord> StoredRecord<T> {
    fn new(record: T, presence: Arc<Mutex<Presence>>) -> Arc<Self> {
        Arc::new(Self { now: watch::Sender::new(Arc::new(record)), presence, runtime: T::Runtime::default() })
    }

    /// The present state of the record.
    pub(crate) fn now(&self) -> Arc<T> {
        self.now.borrow().clone()
    }

    /// Subscribes to the changes of the record from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<T>> {
        self.now.subscribe()
    }

    /// Prevents changes of the record.
    pub(crate) async fn hold(&self) -> MutexGuard<'_, Presence> {
        self.presence.lock().await
    }
}

type ById<T> = BTreeMap<<T as HallRecord>::Id, Arc<StoredRecord<T>>>;

/// All commissions, or all meetings, by their names.
pub(crate) struct RecordStore<T: HallRecord> {
    core: Arc<Core>,
    all: RwLock<ById<T>>,
}

/// The records that are written in their own worktrees at present.
pub(crate) trait LiveRecords: Send + Sync {
    /// The worktree of the record at this path of a project, and its path there, which always has the new layout.
    /// `None` if the path is not that of a record in its own worktree.
    fn worktree_of(&self, project: &str, path: &str) -> Option<(PathBuf, String)>;
}

impl<T: HallRecord> LiveRecords for RecordStore<T> {
    fn worktree_of(&self, project: &str, path: &str) -> Option<(PathBuf, String)> {
        let id = store::record_at::<T>(below_lore(path))?;
        let now = self.get(&id)?.now();
        match now.location() {
            RecordLocation::Worktree(top) if now.project() == project && top.exists() => {
                Some((top, in_lore(&store::record_path::<T>(&id))))
            }
            _ => None,
        }
    }
}

impl<T: HallRecord> RecordStore<T> {
    /// Makes a store of the records that were read at the start.
    pub(crate) fn new(core: Arc<Core>, records: Vec<T>) -> Arc<Self> {
        let all = records.into_iter().map(|record| (record.id().clone(), StoredRecord::new(record, Arc::default())));
        Arc::new(Self { core, all: RwLock::new(all.collect()) })
    }

    fn read(&self) -> RwLockReadGuard<'_, ById<T>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// All records, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<StoredRecord<T>>> {
        self.read().values().cloned().collect()
    }

    /// The present states of all records, in the order of their names.
    pub(crate) fn now(&self) -> impl Iterator<Item = Arc<T>> + use<T> {
        self.all().into_iter().map(|stored| stored.now())
    }

    /// The record of that name.
    pub(crate) fn get(&self, id: &T::Id) -> Option<Arc<StoredRecord<T>>> {
        self.read().get(id).cloned()
    }

    /// The record of that name, if the text is a name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<StoredRecord<T>>> {
        self.get(&name.parse().ok()?)
    }

    /// Refuses further bytes in a project that stores too many, for all callers or for the present one. The hall's own
    /// changes are not bounded.
    ///
    /// # Errors
    ///
    /// Returns an error that names the files to delete.
    pub(crate) fn check_room(&self, project: &str, more: usize) -> Result<(), OperationError> {
        let (token, kind) = (current_token(), T::RECORDS);
        let (mut all, mut of_token) = (more, more);
        for now in self.now().filter(|now| now.project() == project) {
            let bytes = now.bytes() + ITEM_BYTES;
            all += bytes;
            of_token += if now.token() == token.as_deref() { bytes } else { 0 };
        }
        let (whose, bytes, most) = match token {
            _ if all > PROJECT_BYTES => (String::new(), all, PROJECT_BYTES),
            Some(token) if of_token > TOKEN_BYTES => {
                (format!(" that count for the token {token}"), of_token, TOKEN_BYTES)
            }
            _ => return Ok(()),
        };
        Err(OperationError::Conflict(format!(
            "the {kind} of project \"{project}\"{whose} would have {bytes} bytes, more than {most}; stop the host, \
             and for some finished ones delete `state/{kind}/ID.json` in the hall's home and \
             `.lore/work/{kind}/ID.md` on claude/main"
        )))
    }

    /// Creates a record under the first of these names that is free, and stores it.
    ///
    /// # Errors
    ///
    /// Returns an error when the record cannot be stored; it then does not exist.
    pub(crate) async fn create(
        &self,
        name: impl Fn(usize) -> T::Id,
        record: impl FnOnce(T::Id) -> T,
    ) -> Result<Arc<StoredRecord<T>>, OperationError> {
        self.create_held(name, record).await.map(|(stored, _)| stored)
    }

    /// Creates a record like [`Self::create`], and exports it.
    ///
    /// # Errors
    ///
    /// Returns an error when the record cannot be stored or exported; it then does not exist.
    pub(crate) async fn create_and_export(
        &self,
        name: impl Fn(usize) -> T::Id,
        record: impl FnOnce(T::Id) -> T,
    ) -> Result<Arc<T>, OperationError> {
        let new = self.create_held(name, record).await?;
        self.export_new(new).await
    }

    /// Creates a record like [`Self::create`]. No other task can change it until the returned guard is dropped.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::create`].
    pub(crate) async fn create_held(
        &self,
        name: impl Fn(usize) -> T::Id,
        record: impl FnOnce(T::Id) -> T,
    ) -> Result<NewRecord<T>, OperationError> {
        let presence = Arc::<Mutex<Presence>>::default();
        // Other tasks that find the record wait until it is stored.
        let mut held = presence.clone().lock_owned().await;
        let stored = self.add(name, record, presence)?;
        let now = stored.now();
        let saved = match self.check_room(now.project(), 0) {
            Ok(()) => self.save(&now).await,
            Err(full) => Err(full),
        };
        if let Err(e) = saved {
            self.forget_held(now.id(), &mut held).await;
            return Err(e);
        }
        Ok((stored, held))
    }

    /// Exports a record that was just created.
    ///
    /// # Errors
    ///
    /// Returns an error when the record cannot be exported; it is then removed.
    pub(crate) async fn export_new(&self, (stored, mut held): NewRecord<T>) -> Result<Arc<T>, OperationError> {
        let now = stored.now();
        if let Err(e) = self.export(&stored).await {
            self.forget_held(now.id(), &mut held).await;
            return Err(e);
        }
        Ok(now)
    }

    /// Adds a record under the first of these names that is free.
    fn add(
        &self,
        name: impl Fn(usize) -> T::Id,
        record: impl FnOnce(T::Id) -> T,
        presence: Arc<Mutex<Presence>>,
    ) -> Result<Arc<StoredRecord<T>>, OperationError> {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let Some(id) = (1..).map(name).find(|id| !all.contains_key(id)) else {
            return Err(OperationError::Internal("there is no free name left".to_owned()));
        };
        let stored = StoredRecord::new(record(id.clone()), presence);
        all.insert(id, stored.clone());
        Ok(stored)
    }

    /// Removes a record that was never announced.
    pub(crate) async fn forget(&self, stored: &StoredRecord<T>) {
        let mut held = stored.hold().await;
        self.forget_held(stored.now().id(), &mut held).await;
    }

    /// Removes a record. Its name is free once its file is deleted.
    async fn forget_held(&self, id: &T::Id, held: &mut Presence) {
        held.is_forgotten = true;
        let (home, file) = (self.core.home.clone(), id.clone());
        let forgotten = blocking(move || T::states(&home).map(|dir| store::forget::<T>(&dir, &file)));
        if let Err(e) = forgotten.await {
            tracing::warn!("the file of a {} whose creation failed cannot be removed: {e}", T::NOUN);
        }
        self.all.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Changes a record. After an error it is unchanged.
    ///
    /// # Errors
    ///
    /// Returns an error when the record was removed in the meantime, the change is refused, or the change cannot be
    /// stored.
    pub(crate) async fn change<V>(
        &self,
        stored: &StoredRecord<T>,
        change: impl FnOnce(&mut T) -> Result<V, OperationError>,
    ) -> Result<V, OperationError> {
        let held = stored.hold().await;
        if held.is_forgotten {
            return Err(OperationError::NotFound(format!("the {} {} was not created", T::NOUN, stored.now().id())));
        }
        self.change_held(stored, change).await
    }

    /// Changes a record like [`Self::change`], for the caller that holds it.
    pub(crate) async fn change_held<V>(
        &self,
        stored: &StoredRecord<T>,
        change: impl FnOnce(&mut T) -> Result<V, OperationError>,
    ) -> Result<V, OperationError> {
        let before = stored.now();
        let mut after = (*before).clone();
        let value = change(&mut after)?;
        if after == *before {
            return Ok(value);
        }
        let after = Arc::new(after);
        self.save(&after).await?;
        stored.now.send_replace(after.clone());
        // The file in the home is authoritative. The next change exports the record again.
        if let Err(e) = in_time(after.project(), self.export(stored)).await {
            tracing::warn!(id = %after.id(), "{e}");
        }
        if let Some(event) = T::event(&before, &after) {
            self.core.tell(event);
        }
        Ok(value)
    }

    async fn save(&self, record: &Arc<T>) -> Result<(), OperationError> {
        let (home, record) = (self.core.home.clone(), record.clone());
        let doing = format!("{} {} cannot be stored", T::NOUN, record.id());
        blocking(move || store::save(&T::states(&home)?, &*record).map_err(OperationError::io(doing))).await
    }

    /// Writes the Markdown of a record. The task continues when its caller stops waiting.
    async fn export(&self, stored: &StoredRecord<T>) -> Result<(), OperationError> {
        let (new, record, now) = (self.core.home.new_files()?, stored.now(), stored.changes());
        match record.location() {
            RecordLocation::None => Ok(()),
            RecordLocation::Worktree(dir) => blocking(move || store::write_record(&new, &dir, &*record)).await,
            RecordLocation::Integration => {
                let (project, core) = (self.core.project(record.project())?, self.core.clone());
                in_background(async move {
                    let integration = core.projects.integration(&core.home, &project).await?;
                    // The record may have changed while other tasks used the worktree.
                    let newest = move |dir: &Path| {
                        let record = now.borrow().clone();
                        match record.location() {
                            RecordLocation::Integration => store::write_record(&new, dir, &*record),
                            RecordLocation::Worktree(_) | RecordLocation::None => Ok(()),
                        }
                    };
                    integration.with_files(newest).await?
                })
                .await
            }
        }
    }

    /// The record with that name, which must belong to the project if one is given. Records that other programs created
    /// are found too.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project.
    pub(crate) async fn find(
        &self,
        id: &str,
        project: Option<&str>,
    ) -> Result<Option<Arc<StoredRecord<T>>>, OperationError> {
        project.map(|name| self.core.project(name)).transpose()?;
        let known = self.named(id);
        if known.is_none() {
            self.discover(project).await?;
        }
        let found = known.or_else(|| self.named(id));
        Ok(found.filter(|stored| project.is_none_or(|project| project == stored.now().project())))
    }

    /// Reads the records of a project or of all projects that this hall did not create: those of the original, of
    /// another machine, or of a person.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project.
    pub(crate) async fn discover(&self, project: Option<&str>) -> Result<(), OperationError> {
        match project {
            Some(name) => self.discover_in(&self.core.project(name)?).await,
            // The projects are independent: a hanging git of one does not delay the others.
            None => {
                let projects = self.core.projects.now(&self.core.home)?.1;
                join_all(projects.values().map(|project| self.discover_in(project))).await;
            }
        }
        Ok(())
    }

    async fn discover_in(&self, project: &Arc<Project>) {
        if project.permit.is_err() {
            return;
        }
        let dir = self.core.home.integration(project.name());
        // The worktree is created at its first use. An existing one is read without a lock: reading does not wait for
        // running work.
        if !dir.exists() {
            let (core, of) = (self.core.clone(), project.clone());
            let opened = async {
                // One task at a time opens a project, so that repeated requests leave at most one task behind.
                let one = project.shared.opening.clone().lock_owned().await;
                in_background(async move {
                    let _one = one;
                    core.projects.integration(&core.home, &of).await.map(drop)
                })
                .await
            };
            if let Err(e) = in_time(project.name(), opened).await {
                return tracing::warn!(
                    project = project.name(),
                    "the {} of the project cannot be read: {e}",
                    T::RECORDS
                );
            }
        }
        let (known, name): (BTreeSet<T::Id>, _) = (self.read().keys().cloned().collect(), project.name().to_owned());
        let workers = self.core.all_workers();
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
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        for record in read {
            all.entry(record.id().clone()).or_insert_with(|| StoredRecord::new(record, Arc::default()));
        }
    }
}
