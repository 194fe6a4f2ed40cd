//! Loads the members' components in the background, so that a compilation never delays an answer.

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use cap_std::fs::Dir;
use guild_config::{Config, directories};
use guild_contract::{
    Grants, Limits, MemberKey,
    manifest::{ComponentSpec, Lines},
};
use guild_inspect::InspectError;
use guild_sandbox::{Candidate, CompileCache, Effort, LoadError, Plugin, Sandbox, Strategy, Unlisted};
use guild_session::task::TaskError;
use guild_trust::{Approval, Refused, Standing, Trusted};
use tokio::{
    sync::{Semaphore, watch},
    task::spawn_blocking,
};

use crate::{
    discovery::{FoundMember, granted::Granted},
    jobs::interrupted::InterruptedJobs,
    tools::{
        catalogue::Catalogue,
        component::{Component, Loaded},
        schema::check_config_schema,
    },
};

/// A component to load, with the receivers of the result.
pub(crate) struct Load {
    pub(crate) wanted: WantedComponent,
    pub(crate) done: watch::Sender<Component>,
    /// Waits for it with the interrupted jobs; none where the member's jobs are another host's. Then it is not
    /// pinned either: it is not known here which jobs its directory brought along.
    pub(crate) interrupted: Option<Arc<InterruptedJobs>>,
}

/// A member's component, and its grants.
pub(crate) struct WantedComponent {
    pub(crate) key: MemberKey,
    pub(crate) dir: Dir,
    pub(crate) spec: ComponentSpec,
    /// The places in the manifest.
    pub(crate) lines: Lines,
    pub(crate) grants: Arc<Grants>,
    pub(crate) limits: Arc<Limits>,
    /// Whether it may be loaded.
    pub(crate) approval: Arc<Approval>,
    /// The accepted component in service, which is linked anew without reading the file.
    pub(crate) running: Option<Arc<Plugin>>,
}

impl WantedComponent {
    /// The component of a member, as `spec` has it, and what `config` grants it.
    ///
    /// # Errors
    ///
    /// Returns an error when the component cannot be in service.
    pub(crate) fn new(
        member: &FoundMember,
        spec: ComponentSpec,
        config: &Config,
        approval: Arc<Approval>,
    ) -> Result<(Self, Granted), String> {
        let granted = Granted::of(member, &spec, config, &approval)?;
        let wanted = Self {
            key: member.key.clone(),
            dir: member.dir.try_clone().map_err(|e| e.to_string())?,
            spec,
            lines: member.manifest.lines.clone(),
            grants: granted.grants.clone(),
            limits: Arc::new(granted.limits.limits.clone()),
            approval,
            running: None,
        };
        Ok((wanted, granted))
    }
}

/// The reason that a component is not loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotLoaded {
    /// The work did not end, so nothing is known of the component.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The component cannot be in service. The text is a sentence for the operator.
    #[error("{0}")]
    Refused(String),
}

/// A component without its tools, and how it stands with its approval, where it was read for this.
type Begun = (Option<Standing>, Unlisted);

/// How many members have their jobs or their component read at once. Compiling has queues of its own: what is slow
/// there keeps no other from the cache.
const TURNS: usize = 4;

/// Loads the jobs and the components of a host's members.
pub(crate) struct Loader {
    limits: Arc<Limits>,
    is_dev: bool,
    turns: Semaphore,
    /// Who compiles a component, by its effort: one at a time each, since the compiler uses all cores.
    short: Semaphore,
    full: Semaphore,
    /// Made for the first component, so that other requests do not wait for it.
    sandbox: OnceLock<Result<Arc<Sandbox>, String>>,
}

impl Loader {
    pub(crate) fn new(limits: Arc<Limits>, is_dev: bool) -> Self {
        let (turns, short, full) = (Semaphore::new(TURNS), Semaphore::new(1), Semaphore::new(1));
        Self { limits, is_dev, turns, short, full, sandbox: OnceLock::new() }
    }

    /// Runs what blocks on a member's files, when it has a turn. Requests for a member's jobs do not wait for a turn.
    ///
    /// # Errors
    ///
    /// Returns an error when the work did not end.
    pub(crate) async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TaskError> {
        let _turn = self.turns.acquire().await;
        Ok(spawn_blocking(work).await?)
    }

    /// Loads a component, and sends the result.
    pub(crate) async fn load(self: Arc<Self>, Load { wanted, done, interrupted }: Load) {
        let wanted = Arc::new(wanted);
        let decide = |verdict| interrupted.as_ref().map_or((), |interrupted| interrupted.decide(verdict));
        let component = match self.prepare(wanted.clone(), interrupted.clone(), &done).await {
            Ok(loaded) => {
                decide(Ok(()));
                Component::Ready(Arc::new(loaded))
            }
            // The next host loads it, and decides on the interrupted jobs.
            Err(NotLoaded::Task(TaskError::Stopping)) => return,
            Err(why) => {
                let why = why.to_string();
                let (key, file) = (&wanted.key, &wanted.spec.file);
                tracing::error!(member = %key, file, "its component is not in service: {why}");
                decide(Err(format!("its component is not in service: {why}")));
                Component::Failed(why)
            }
        };
        // Nobody waits any more if the host has stopped meanwhile.
        let _ = done.send(component);
    }

    /// Reads, checks, loads and pins a component, each part when it has a turn; `done` is sent that it has to be
    /// compiled. While it lists its tools, which can take long, it has none.
    pub(crate) async fn prepare(
        self: &Arc<Self>,
        wanted: Arc<WantedComponent>,
        interrupted: Option<Arc<InterruptedJobs>>,
        done: &watch::Sender<Component>,
    ) -> Result<Loaded, NotLoaded> {
        let refused = |wanted: &_, why: &_| NotLoaded::Refused(refusal(wanted, why));
        let queues = [(Effort::Cached, &self.turns), (Effort::Short, &self.short), (Effort::Full, &self.full)];
        let mut begun = None;
        for (effort, queue) in queues {
            if begun.is_some() {
                break;
            }
            if effort == Effort::Short {
                tracing::info!(member = %wanted.key, file = wanted.spec.file, "compiling its component");
                done.send_replace(Component::Loading(Some(Instant::now())));
            }
            let (this, of, interrupted) = (self.clone(), wanted.clone(), interrupted.clone());
            let _turn = queue.acquire().await;
            begun = spawn_blocking(move || this.begin(&of, interrupted, effort)).await.map_err(TaskError::from)??;
        }
        let (standing, unlisted) = begun.ok_or_else(|| refused(&wanted, &LoadError::Later.into()))?;
        let plugin = unlisted.listed().await.map_err(|e| refused(&wanted, &e.into()))?;
        let ended = self.in_turn(move || {
            let loaded = loaded(&wanted, plugin).map_err(Refused::from);
            let loaded = loaded.and_then(|loaded| {
                // It has turned out to load: one that never did can be put right without an approval.
                let approval = wanted.approval.current();
                let Some(standing) = standing else { return Ok(loaded) };
                approval.check_signature(&standing)?;
                interrupted.map_or(Ok(()), |interrupted| pin(&approval, &standing, &interrupted)).map(|()| loaded)
            });
            loaded.map_err(|e| refused(&wanted, &e))
        });
        ended.await?
    }

    /// Reads, checks and compiles a component; or links the one anew that is in service. `None` if the compilation
    /// takes more than this effort. It blocks.
    ///
    /// # Errors
    ///
    /// Returns the reason when the component cannot be in service.
    fn begin(
        &self,
        wanted: &WantedComponent,
        interrupted: Option<Arc<InterruptedJobs>>,
        effort: Effort,
    ) -> Result<Option<Begun>, NotLoaded> {
        let sandbox = self.sandbox.get_or_init(|| sandbox(&self.limits, self.is_dev).map_err(|e| e.to_string()));
        let sandbox = sandbox.as_ref().map_err(|why| NotLoaded::Refused(why.clone()))?;
        if effort == Effort::Cached {
            check_config_schema(&wanted.spec, &wanted.limits).map_err(NotLoaded::Refused)?;
        }
        match Self::begin_with(sandbox, wanted, interrupted, effort) {
            Err(Refused::Load(LoadError::Later)) => Ok(None),
            begun => begun.map(Some).map_err(|why| NotLoaded::Refused(refusal(wanted, &why))),
        }
    }

    fn begin_with(
        sandbox: &Arc<Sandbox>,
        wanted: &WantedComponent,
        interrupted: Option<Arc<InterruptedJobs>>,
        effort: Effort,
    ) -> Result<Begun, Refused> {
        let (grants, limits) = (wanted.grants.clone(), wanted.limits.clone());
        if let Some(running) = &wanted.running {
            return Ok((None, running.linked_anew(&wanted.spec, grants, limits)?));
        }
        let (candidate, standing) = read(wanted)?;
        if let Err(refused) = wanted.approval.admit(&standing) {
            // An approval that comes later finds nothing that a directory without a pin brought along.
            if let (None, Some(interrupted)) = (standing.trusted.pin(), interrupted)
                && let Err(e) = interrupted.end_all_of_a_new_member()
            {
                tracing::warn!(member = %wanted.key, "the jobs that it brought along cannot be read: {e}");
            }
            return Err(refused);
        }
        let linked = sandbox.prepare_unlisted(&wanted.key, &candidate, &wanted.spec, grants, limits, effort)?;
        Ok((Some(standing), linked))
    }

    /// The engine, once a component was loaded.
    pub(crate) fn sandbox(&self) -> Option<&Sandbox> {
        self.sandbox.get()?.as_deref().ok()
    }

    /// Whether a component's file is still what is in service, and may be. It blocks.
    ///
    /// # Errors
    ///
    /// Returns the reason when the component may not be in service.
    pub(crate) fn is_still(
        wanted: &WantedComponent,
        sha256: &str,
        interrupted: &InterruptedJobs,
    ) -> Result<bool, String> {
        let looked = read(wanted).and_then(|(candidate, standing)| {
            let approval = wanted.approval.current();
            approval.admit(&standing)?;
            pin(&approval, &standing, interrupted)?;
            Ok(candidate.hash() == sha256)
        });
        looked.map_err(|e| refusal(wanted, &e))
    }
}

/// The bytes of the compile cache of `guild dev` and `guild test`. The largest components, of Python, have some 60 MB.
const DEV_CACHE_BYTES: u64 = 256 * 1024 * 1024;

/// The engine of this process's components; `is_dev` for `guild dev` and `guild test`, which have a cache of their own.
pub(crate) fn sandbox(limits: &Arc<Limits>, is_dev: bool) -> Result<Arc<Sandbox>, LoadError> {
    let (path, max_bytes) = match is_dev {
        true => (directories::dev_cache(), limits.compile_cache_bytes.min(DEV_CACHE_BYTES)),
        false => (directories::cache(), limits.compile_cache_bytes),
    };
    let cache = path.map(|path| CompileCache::open(&path, max_bytes)).transpose();
    let cache = cache.unwrap_or_else(|e| {
        tracing::warn!("no compile cache, so each start compiles: {e}");
        None
    });
    let strategy = if is_dev { Strategy::Winch } else { Strategy::Cranelift };
    Sandbox::new(limits.clone(), strategy, cache.unwrap_or_else(CompileCache::none))
}

/// Reads one component, and finds whether it is trusted. It refuses only what cannot be read.
pub(crate) fn read(wanted: &WantedComponent) -> Result<(Candidate, Standing), Refused> {
    let WantedComponent { key, dir, spec, limits, approval, .. } = wanted;
    approval.look(key, dir, spec, limits.component_bytes)
}

/// Checks and loads what was read; `compiling` is called with the file where it has to be compiled first.
pub(crate) fn prepare(
    sandbox: &Arc<Sandbox>,
    wanted: &WantedComponent,
    candidate: &Candidate,
    standing: &Standing,
    compiling: &dyn Fn(&str),
) -> Result<Loaded, Refused> {
    wanted.approval.check(standing)?;
    let with = |effort| {
        let (grants, limits) = (wanted.grants.clone(), wanted.limits.clone());
        sandbox.prepare_unlisted(&wanted.key, candidate, &wanted.spec, grants, limits, effort)
    };
    let unlisted = match with(Effort::Cached) {
        Err(LoadError::Later) => {
            compiling(&wanted.spec.file);
            with(Effort::Full)
        }
        found => found,
    };
    Ok(loaded(wanted, unlisted?.with_tools()?)?)
}

/// A component with what is made of its tools once.
pub(crate) fn loaded(wanted: &WantedComponent, plugin: Plugin) -> Result<Loaded, LoadError> {
    let catalogue = Catalogue::of(&wanted.key, &plugin, &wanted.limits).map_err(LoadError::Tools)?;
    Ok(Loaded { plugin: Arc::new(plugin), catalogue: Arc::new(catalogue) })
}

/// Pins what has turned out to load. What the directory of a new member brought along is ended before.
fn pin(approval: &Approval, standing: &Standing, interrupted: &InterruptedJobs) -> Result<(), Refused> {
    if !matches!(standing.trusted, Trusted::Pinned(_))
        && let Err(e) = interrupted.end_all_of_a_new_member()
    {
        let member = &standing.presented.name;
        tracing::warn!(
            member,
            "the member is not pinned in guild.lock, since the jobs that it brought along cannot be read: {e}"
        );
        return Ok(());
    }
    approval.pin(standing)
}

/// Why a component is not loaded, and which line of its manifest asks for what it is refused for, or would.
pub(crate) fn refusal(wanted: &WantedComponent, refused: &Refused) -> String {
    let Refused::Load(LoadError::Inspect(error)) = refused else { return refused.to_string() };
    let key = match error {
        // The file itself is wrong, and not what the manifest says.
        InspectError::NotAComponent(_) => return refused.to_string(),
        InspectError::NotAsked(_) => "component.grants".to_owned(),
        InspectError::NotGranted(refused) => {
            let import = refused.values().flatten().next().map_or("", String::as_str);
            let interface = import.split_once('/').map_or(import, |(_, interface)| interface);
            format!("component.grants.{}", interface.split_once('@').map_or(interface, |(interface, _)| interface))
        }
        InspectError::World { .. } => "component.world".to_owned(),
        InspectError::UnknownImport(_) | InspectError::Version { .. } => "component.file".to_owned(),
    };
    format!("{}: {refused}", wanted.lines.place(&key))
}
