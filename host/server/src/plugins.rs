//! The members' components: prepared in the background, so that compiling one never delays an answer.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use cap_std::fs::Dir;
use guild_contract::{Grants, Limits, MemberKey, manifest::ComponentSpec};
use guild_sandbox::{Candidate, CompileCache, LoadError, Plugin, Sandbox};
use tokio::sync::watch;

use crate::directories;

/// Where a member's component is.
#[derive(Clone)]
pub(crate) enum Component {
    /// It is being read, checked and compiled.
    Loading,
    /// It is in service.
    Ready(Arc<Plugin>),
    /// It cannot be; the reason.
    Failed(String),
}

/// A component to load, and who waits for it.
pub(crate) struct Load {
    pub(crate) wanted: WantedComponent,
    pub(crate) done: watch::Sender<Component>,
}

/// A member's component, and what it is granted.
pub(crate) struct WantedComponent {
    pub(crate) key: MemberKey,
    pub(crate) dir: Dir,
    pub(crate) spec: ComponentSpec,
    pub(crate) grants: Arc<Grants>,
    pub(crate) limits: Arc<Limits>,
}

impl Load {
    /// A component to load, and where its member sees what became of it.
    pub(crate) fn new(wanted: WantedComponent) -> (Self, watch::Receiver<Component>) {
        let (done, component) = watch::channel(Component::Loading);
        (Self { wanted, done }, component)
    }
}

/// How many components are read and checked at once. Compiling has a lane of its own; one that is slow there must not
/// keep others from the cache.
const LOADERS: usize = 4;

/// Loads components. It blocks.
pub(crate) fn load(limits: &Arc<Limits>, loads: Vec<Load>) {
    let sandbox = sandbox(limits);
    let loaders = loads.len().min(LOADERS);
    let loads = Mutex::new(loads.into_iter());
    let next = || loads.lock().unwrap_or_else(PoisonError::into_inner).next();
    let loader = || {
        while let Some(Load { wanted, done }) = next() {
            let prepared = sandbox.as_ref().map_err(ToString::to_string);
            let prepared = prepared.and_then(|sandbox| prepare(sandbox, &wanted).map_err(|e| e.to_string()));
            // Nobody waits any more where the host has stopped meanwhile.
            let _ = done.send(match prepared {
                Ok(plugin) => Component::Ready(Arc::new(plugin)),
                Err(why) => {
                    let (key, file) = (&wanted.key, &wanted.spec.file);
                    tracing::error!(member = %key, file, "its component is not in service: {why}");
                    Component::Failed(why)
                }
            });
        }
    };
    thread::scope(|scope| {
        for _ in 1..loaders {
            scope.spawn(loader);
        }
        loader();
    });
}

/// The engine of this process's components.
pub(crate) fn sandbox(limits: &Arc<Limits>) -> Result<Arc<Sandbox>, LoadError> {
    let cache = directories::cache().map(|path| CompileCache::open(&path, limits.compile_cache_bytes));
    let cache = match cache {
        Some(Ok(cache)) => cache,
        Some(Err(e)) => {
            tracing::warn!("no compile cache, so each start compiles: {e}");
            CompileCache::none()
        }
        None => CompileCache::none(),
    };
    Sandbox::new(limits.clone(), cache)
}

/// Reads, checks and loads one component.
pub(crate) fn prepare(sandbox: &Arc<Sandbox>, wanted: &WantedComponent) -> Result<Plugin, LoadError> {
    let WantedComponent { dir, spec, grants, limits, .. } = wanted;
    let candidate = Candidate::read(dir, &spec.file, limits.component_bytes)?;
    sandbox.prepare(&candidate, spec, grants.clone(), limits.clone())
}
