//! The members' components: prepared in the background, so that compiling one never delays an answer.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use cap_std::fs::Dir;
use guild_audit::inspect::InspectError;
use guild_contract::{
    Grants, Limits, MemberKey,
    manifest::{ComponentSpec, FILE_NAME, Lines},
};
use guild_sandbox::{Candidate, CompileCache, LoadError, Plugin, Sandbox};
use tokio::sync::watch;

use crate::{
    approval::{Approval, Refused, Standing, Trusted},
    directories,
    discovery::FoundMember,
    reach::Granted,
    resume::Resumer,
};

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
    /// Waits for it with the jobs that a host left running.
    pub(crate) resumer: Arc<Resumer>,
}

/// A member's component, and what it is granted.
pub(crate) struct WantedComponent {
    pub(crate) key: MemberKey,
    pub(crate) dir: Dir,
    pub(crate) spec: ComponentSpec,
    /// Where the manifest says it.
    pub(crate) lines: Lines,
    pub(crate) grants: Arc<Grants>,
    pub(crate) limits: Arc<Limits>,
}

impl WantedComponent {
    /// The component of `member`, with what it is granted. `dir` is the member's directory.
    pub(crate) fn new(member: &FoundMember, dir: Dir, spec: ComponentSpec, granted: &Granted) -> Self {
        Self {
            key: member.key.clone(),
            dir,
            spec,
            lines: member.manifest.lines.clone(),
            grants: granted.grants.clone(),
            limits: Arc::new(granted.limits.limits.clone()),
        }
    }
}

/// How many components are read and checked at once. Compiling has a lane of its own; one that is slow there must not
/// keep others from the cache.
const LOADERS: usize = 4;

/// Loads components. It blocks.
pub(crate) fn load(limits: &Arc<Limits>, approval: &Approval, loads: Vec<Load>) {
    let sandbox = sandbox(limits);
    let loaders = loads.len().min(LOADERS);
    let loads = Mutex::new(loads.into_iter());
    let next = || loads.lock().unwrap_or_else(PoisonError::into_inner).next();
    let loader = || {
        while let Some(Load { wanted, done, resumer }) = next() {
            let loaded = sandbox.as_ref().map_err(ToString::to_string);
            let loaded = loaded.and_then(|sandbox| {
                prepare_and_pin(sandbox, &wanted, approval, &resumer).map_err(|e| told(&wanted, &e))
            });
            let component = match loaded {
                Ok(plugin) => {
                    resumer.decide(Ok(()));
                    Component::Ready(Arc::new(plugin))
                }
                Err(why) => {
                    let (key, file) = (&wanted.key, &wanted.spec.file);
                    tracing::error!(member = %key, file, "its component is not in service: {why}");
                    resumer.decide(Err(format!("its component is not in service: {why}")));
                    Component::Failed(why)
                }
            };
            // Nobody waits any more where the host has stopped meanwhile.
            let _ = done.send(component);
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

/// Reads one component, and finds whether it is trusted. It refuses only what cannot be read.
pub(crate) fn read(wanted: &WantedComponent, approval: &Approval) -> Result<(Candidate, Standing), Refused> {
    let WantedComponent { key, dir, spec, limits, .. } = wanted;
    let candidate = Candidate::read(dir, &spec.file, limits.component_bytes)?;
    let standing = approval.of(key, dir, spec, &candidate)?;
    Ok((candidate, standing))
}

/// Checks and loads what was read.
pub(crate) fn prepare(
    sandbox: &Arc<Sandbox>,
    wanted: &WantedComponent,
    approval: &Approval,
    candidate: &Candidate,
    standing: &Standing,
) -> Result<Plugin, Refused> {
    approval.check(standing)?;
    Ok(sandbox.prepare(candidate, &wanted.spec, wanted.grants.clone(), wanted.limits.clone())?)
}

/// Prepares a component and pins it, now that it has turned out to load: one that never did can be put right without an
/// approval. What the directory of a new member brought along is ended before.
fn prepare_and_pin(
    sandbox: &Arc<Sandbox>,
    wanted: &WantedComponent,
    approval: &Approval,
    resumer: &Resumer,
) -> Result<Plugin, Refused> {
    let (candidate, standing) = read(wanted, approval)?;
    let plugin = prepare(sandbox, wanted, approval, &candidate, &standing)?;
    if !matches!(standing.trusted, Trusted::Pinned(_))
        && let Err(e) = resumer.end_all_of_a_new_member()
    {
        let member = &standing.presented.name;
        tracing::warn!(member, "it is not pinned in guild.lock, since nobody knows which jobs it brought along: {e}");
        return Ok(plugin);
    }
    approval.pin(&standing)?;
    Ok(plugin)
}

/// Why a component is not loaded, and which line of its manifest asks for what it is refused for, or would.
pub(crate) fn told(wanted: &WantedComponent, refused: &Refused) -> String {
    let Refused::Load(LoadError::Inspect(error)) = refused else { return refused.to_string() };
    let key = match error {
        // The file itself is wrong, and not what the manifest says.
        InspectError::NotAComponent(_) => return refused.to_string(),
        InspectError::NotAsked { .. } => "component.grants".to_owned(),
        InspectError::NotGranted { import, .. } => {
            let interface = import.split_once('/').map_or(import.as_str(), |(_, interface)| interface);
            format!("component.grants.{}", interface.split_once('@').map_or(interface, |(interface, _)| interface))
        }
        InspectError::MissingExport { .. } => "component.world".to_owned(),
        InspectError::UnknownImport(_) | InspectError::Version { .. } => "component.file".to_owned(),
    };
    format!("{FILE_NAME}:{}: {refused}", wanted.lines.of_key(&key))
}
