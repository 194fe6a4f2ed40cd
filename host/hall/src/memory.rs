//! Stores the memories that the workers of a hall share (REQ-WKR-9): those of each project, and those of all projects,
//! as directories of notes in the hall's home. A worker's own memories are in its member's directory.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex},
};

use cap_std::fs::Dir;
use guild_contract::{
    Grants, Limits, OperationError,
    capability::{MEMORY_GLOBAL, MEMORY_PROJECT},
    manifest::Scope,
};
use guild_fs::{clock::Clock, durable::open_dir};
use guild_jobs::{
    Condenser, MemoryStore, ScopedMemory,
    memory::{Original, ScopeNotes, Writer},
};
use tokio::runtime::Handle;

use crate::{blocking::lock, core::workers::Attempt, home::project_list::check_name};

const GLOBAL: &str = "memory/global";
const PROJECTS: &str = "memory/projects";
/// The directory in which the original stores a worker's own notes.
const WORKERS: &str = "memory/workers";

/// The shared memories of a home. Each scope has one store in the process, so that two members that write at once lose
/// nothing.
pub struct Scopes {
    home: Dir,
    clock: Arc<dyn Clock>,
    open: Mutex<Open>,
}

struct Open {
    limits: Arc<Limits>,
    condenser: Option<(Condenser, Handle)>,
    /// The stores in use, by their directories.
    stores: BTreeMap<String, Arc<MemoryStore>>,
}

impl Scopes {
    /// Opens the shared memories of the home in that directory, which this process owns. A scope is opened at its first
    /// use.
    ///
    /// # Errors
    ///
    /// Returns an error when the directory cannot be opened.
    pub fn open(home: &Dir, limits: Arc<Limits>, clock: Arc<dyn Clock>) -> Result<Self, OperationError> {
        let home = open_dir(home, ".").map_err(OperationError::io("the hall's home cannot be opened"))?;
        let open = Mutex::new(Open { limits, condenser: None, stores: BTreeMap::new() });
        Ok(Self { home, clock, open })
    }

    /// Changes the limits of later reads and writes.
    pub fn set_limits(&self, limits: &Arc<Limits>) {
        let mut open = lock(&self.open);
        open.limits = limits.clone();
        open.stores.values().for_each(|store| store.set_limits(limits.clone()));
    }

    /// Sets the function that compacts the notes of a scope that has grown too large, each scope separately, and the
    /// runtime for it.
    pub fn set_condenser(&self, condenser: &Condenser, runtime: &Handle) {
        let mut open = lock(&self.open);
        open.condenser = Some((condenser.clone(), runtime.clone()));
        open.stores.values().for_each(|store| store.set_condenser(condenser.clone(), runtime.clone()));
    }

    /// The notes for all projects. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the notes' directory cannot be opened or created.
    pub fn global(&self) -> Result<ScopeNotes, OperationError> {
        self.notes(GLOBAL.to_owned(), Scope::Global)
    }

    /// The notes of a project. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the project's name is invalid, or when the notes' directory cannot be opened or created.
    pub fn project(&self, name: &str) -> Result<ScopeNotes, OperationError> {
        check_name(name)?;
        self.notes(format!("{PROJECTS}/{name}"), Scope::Project)
    }

    /// The memories that a commission or meeting is granted; `own` has the worker's own notes. It blocks.
    ///
    /// The limit is that of the project or else of the worker. A project's own limit also applies to the project's
    /// notes; the notes of the worker and of all projects are compacted by the limits of the worker and of the host, in
    /// every project.
    ///
    /// # Errors
    ///
    /// Returns an error when a scope that is granted cannot be opened.
    pub fn granted(
        &self,
        attempt: &Attempt,
        own: Arc<MemoryStore>,
        grants: &Grants,
    ) -> Result<ScopedMemory, OperationError> {
        let of_host = lock(&self.open).limits.commission_memory_chars;
        let of_worker = own.limits().commission_memory_chars;
        let project = match grants.base.holds(&MEMORY_PROJECT) {
            true => Ok(self.project(&attempt.project)?.sharing(attempt.memory_chars.unwrap_or(of_host))),
            false => Err(grants.base.denial(&MEMORY_PROJECT).into()),
        };
        let global = match grants.base.holds(&MEMORY_GLOBAL) {
            true => Ok(self.global()?.sharing(of_host)),
            false => Err(grants.base.denial(&MEMORY_GLOBAL).into()),
        };
        let worker = attempt.worker_name.as_str();
        // A name that leads to another directory has no file of the original's.
        let original = (!worker.contains('/')).then(|| self.original(&format!("{WORKERS}/{worker}"))).transpose()?;
        let memory = ScopedMemory::new(ScopeNotes::new(own, original).sharing(of_worker), project, global);
        let activity = Some(attempt.activity.id().to_owned());
        let memory = memory.written_by(Writer { member: attempt.worker.clone(), activity });
        Ok(memory.limited_to(attempt.memory_chars.unwrap_or(of_worker)))
    }

    fn notes(&self, path: String, scope: Scope) -> Result<ScopeNotes, OperationError> {
        let original = self.original(&path)?;
        let mut open = lock(&self.open);
        let Open { limits, condenser, stores } = &mut *open;
        let store = match stores.entry(path) {
            Entry::Occupied(store) => store.into_mut(),
            Entry::Vacant(place) => {
                let store = MemoryStore::open_at(&self.home, place.key(), scope, limits.clone(), self.clock.clone());
                let store = store.map_err(OperationError::io(place.key()))?;
                if let Some((condenser, runtime)) = condenser {
                    store.set_condenser(condenser.clone(), runtime.clone());
                }
                place.insert(store)
            }
        };
        Ok(ScopeNotes::new(store.clone(), Some(original)))
    }

    /// The original's file for the scope whose directory is `path`.
    fn original(&self, path: &str) -> Result<Original, OperationError> {
        Original::at(&self.home, format!("{path}.md")).map_err(OperationError::io(path))
    }
}
