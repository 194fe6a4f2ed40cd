//! A host: the members that it found and owns.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use cap_std::fs::Dir;
use futures::future::join_all;
use guild_agent::{ReadRoots, RootError};
use guild_contract::Limits;
use tokio::sync::{Semaphore, watch};

use crate::{
    approval::{Approval, Standing},
    config::{Config, Runtime},
    discovery::{self, Found, FoundMember},
    member::{Means, Member},
    plugins::{self, Component, Load, WantedComponent},
    reach::{Granted, Reach, Sources},
    runtimes::Runtimes,
    takeover::{self, OwnerError},
};

/// Whose jobs a host keeps.
#[derive(Clone, Debug)]
pub enum Target {
    /// Every member in a directory (roster mode).
    Members(PathBuf),
    /// The member that a directory is.
    Member(PathBuf),
}

/// What a host is opened with.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// `guild.toml`.
    pub config: Config,
    /// Whose jobs it keeps.
    pub target: Target,
    /// Read roots beside those of the configuration (`--sources`).
    pub sources: Vec<PathBuf>,
    /// The runtime of its sessions, where it is not the configuration's (`--agent`).
    pub agent: Option<Runtime>,
}

/// Why there is no host.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The members' directory cannot be read.
    #[error("the members' directory {} cannot be read: {source}", path.display())]
    Members {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The one member cannot be served.
    #[error("{0}")]
    Member(String),
    /// Another process owns the one member.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// `guild.toml` says something that cannot be.
    #[error("guild.toml: {0}")]
    Config(String),
    /// A read root cannot be opened.
    #[error("{0}; read roots are named by `--sources` and by `[[roots]]` in guild.toml")]
    Root(#[from] RootError),
}

/// What became of a directory that has a manifest.
#[derive(Clone)]
pub enum MemberState {
    /// It is served.
    Ready(Arc<Member>),
    /// It cannot be served; the reason.
    Error(String),
    /// It has no component: another process serves it.
    Foreign,
}

/// A member as `guild members` shows it.
pub struct Surveyed {
    /// What was found.
    pub found: Found,
    /// `Ok` with whether it has a component; else why it cannot be served.
    pub state: Result<bool, String>,
    /// What it is granted, where it has a component and its manifest is sound.
    pub granted: Option<Granted>,
    /// Whether it is trusted, where its component can be read.
    pub standing: Option<Standing>,
}

/// Every member that was found.
pub struct Host {
    limits: Arc<Limits>,
    members: BTreeMap<String, MemberState>,
    single: Option<Arc<Member>>,
}

impl Host {
    /// Finds the members, becomes their owner, opens their jobs and starts loading their components. `base` is the
    /// address at which the host is going to serve them, as `http://127.0.0.1:7433`, if it is.
    ///
    /// When it returns, every member answers; jobs and components are still being loaded, and what needs them waits.
    ///
    /// # Errors
    /// See [`OpenError`]. In roster mode a member that cannot be served is in state error, and the others go on.
    pub async fn open(options: HostOptions, base: Option<String>) -> Result<Arc<Self>, OpenError> {
        let HostOptions { config, target, sources, agent } = options;
        let approval = Approval::new(&config);
        let limits = Arc::new(config.limits.clone());
        let sources = Arc::new(Sources::new(read_roots(&config, sources)?));
        let runtimes = Arc::new(Runtimes::new(&config).map_err(OpenError::Config)?);
        let config = Arc::new(config.with_agent(agent));
        let places = Arc::new(Semaphore::new(limits.running_jobs as usize));
        let means =
            Means { limits: limits.clone(), config: config.clone(), sources, runtimes: runtimes.clone(), places };
        let mut loads = Vec::new();
        let host = match target {
            Target::Member(path) => {
                let found = discovery::single(&path, config.members.as_deref(), &config).map_err(OpenError::Member)?;
                let (key, url) = (found.key.to_string(), url(base.as_deref(), None));
                let Some((member, load)) = open(found, means, url).await? else {
                    return Err(OpenError::Member(format!(
                        "member {key} has no `component` in its guild-member.json, so there is nothing to serve"
                    )));
                };
                loads.push(load);
                let members = BTreeMap::from([(key, MemberState::Ready(member.clone()))]);
                Self { limits, members, single: Some(member) }
            }
            Target::Members(path) => {
                let unreadable = |source| OpenError::Members { path: path.clone(), source };
                let dir = discovery::open_directory(&path).map_err(unreadable)?;
                let found = discovery::discover(&dir).map_err(unreadable)?;
                let opened = found.into_iter().map(|found| roster_member(found, &means, base.as_deref()));
                let mut members = BTreeMap::new();
                for (key, state, load) in join_all(opened).await {
                    loads.extend(load);
                    members.insert(key, state);
                }
                for key in config.strangers(|key| members.contains_key(key)) {
                    tracing::warn!("guild.toml has [member.{key:?}], and there is no such member");
                }
                Self { limits, members, single: None }
            }
        };
        let blocking = runtimes.clone();
        let ended = tokio::task::spawn_blocking(move || blocking.end_orphans()).await;
        if ended.is_err() {
            tracing::error!("what earlier sessions left could not be ended");
        }
        host.start(approval, loads);
        Ok(Arc::new(host))
    }

    /// Reads jobs and loads components, in the background.
    fn start(&self, approval: Approval, loads: Vec<Load>) {
        for (_, state) in self.members() {
            if let MemberState::Ready(member) = state {
                let member = member.clone();
                tokio::task::spawn_blocking(move || member.load_jobs());
            }
        }
        let limits = self.limits.clone();
        tokio::task::spawn_blocking(move || plugins::load(&limits, &approval, loads));
    }

    /// Finds the members of a directory and checks each one's component, without becoming anybody's owner. It blocks.
    ///
    /// # Errors
    /// Where the directory cannot be read.
    pub fn survey(path: &Path, config: &Config) -> Result<Vec<Surveyed>, OpenError> {
        let unreadable = |source| OpenError::Members { path: path.to_owned(), source };
        let found = discovery::discover(&discovery::open_directory(path).map_err(unreadable)?).map_err(unreadable)?;
        let approval = Approval::new(config);
        let sandbox = plugins::sandbox(&Arc::new(config.limits.clone())).map_err(|e| e.to_string());
        let survey = |found| survey(found, config, &approval, sandbox.as_ref());
        Ok(found.into_iter().map(survey).collect())
    }

    /// [`Host::survey`], of one member.
    pub fn survey_one(member: FoundMember, config: &Config) -> Surveyed {
        let approval = Approval::new(config);
        let sandbox = plugins::sandbox(&Arc::new(config.limits.clone())).map_err(|e| e.to_string());
        let found = Found { path: member.key.to_string(), member: Ok(member) };
        survey(found, config, &approval, sandbox.as_ref())
    }

    /// The limits of this host.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The one member of a host that was opened for one.
    pub fn single(&self) -> Option<&Arc<Member>> {
        self.single.as_ref()
    }

    /// The member of that key, where it is served.
    pub fn member(&self, key: &str) -> Option<Arc<Member>> {
        match self.state(key) {
            Some(MemberState::Ready(member)) => Some(member.clone()),
            _ => None,
        }
    }

    /// What became of the member of that key.
    pub fn state(&self, key: &str) -> Option<&MemberState> {
        self.members.get(key)
    }

    /// Every member that was found, by key.
    pub fn members(&self) -> impl Iterator<Item = (&str, &MemberState)> {
        self.members.iter().map(|(key, state)| (key.as_str(), state))
    }
}

/// Checks a member as a host would that serves it.
fn survey(
    found: Found,
    config: &Config,
    approval: &Approval,
    sandbox: Result<&Arc<guild_sandbox::Sandbox>, &String>,
) -> Surveyed {
    let (mut granted, mut standing) = (None, None);
    let state = found.member.as_ref().map_err(Clone::clone).and_then(|member| {
        let Some(spec) = &member.manifest.component else { return Ok(false) };
        let granted = granted.insert(Granted::of(member, spec, config)?);
        let dir = member.dir.try_clone().map_err(|e| e.to_string())?;
        let wanted = WantedComponent::new(member, dir, spec.clone(), granted);
        // What is wrong with the member itself is told first.
        let read = plugins::read(&wanted, approval).map(|(candidate, found)| (candidate, standing.insert(found)));
        crate::member::config_schema(&member.manifest)?;
        check_directories(&member.dir)?;
        let sandbox = sandbox.map_err(Clone::clone)?;
        read.and_then(|(candidate, standing)| plugins::prepare(sandbox, &wanted, approval, &candidate, standing))
            .map_err(|e| plugins::told(&wanted, &e))?;
        Ok(true)
    });
    Surveyed { found, state, granted, standing }
}

/// A host makes these where they are missing, and opens nothing else in their place.
fn check_directories(member: &Dir) -> Result<(), String> {
    for name in ["jobs", "memory"] {
        match member.symlink_metadata(name) {
            Ok(found) if found.is_dir() => {}
            Ok(found) if found.is_symlink() => {
                return Err(format!("{name} is a symlink, and none is followed; put a directory there"));
            }
            Ok(_) => return Err(format!("{name} is not a directory; remove it, or put a directory there")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{name} cannot be looked at: {error}")),
        }
    }
    Ok(())
}

/// The directories that sessions may read: those of the configuration, and those that were named besides.
pub(crate) fn read_roots(config: &Config, sources: Vec<PathBuf>) -> Result<Option<ReadRoots>, RootError> {
    let roots = config.roots.iter().map(|root| (root.name.clone(), root.path.clone()));
    let roots: Vec<_> = roots.chain(sources.into_iter().map(|path| (None, path))).collect();
    if roots.is_empty() { Ok(None) } else { ReadRoots::open_named(roots).map(Some) }
}

/// Where a member is served: at `/mcp` alone, or under its key in a roster. Empty where the host serves nobody.
fn url(base: Option<&str>, key: Option<&str>) -> String {
    match (base, key) {
        (None, _) => String::new(),
        (Some(base), None) => format!("{base}/mcp"),
        (Some(base), Some(key)) => format!("{base}/members/{key}/mcp"),
    }
}

async fn roster_member(found: Found, means: &Means, base: Option<&str>) -> (String, MemberState, Option<Load>) {
    let Found { path, member } = found;
    let state = match member {
        Err(reason) => Err(reason),
        Ok(found) => {
            let url = url(base, Some(found.key.as_str()));
            open(found, means.clone(), url).await.map_err(|e| e.to_string())
        }
    };
    match state {
        Ok(Some((member, load))) => (path, MemberState::Ready(member), Some(load)),
        Ok(None) => (path, MemberState::Foreign, None),
        Err(reason) => {
            tracing::error!(member = path, "the member is not in service: {reason}");
            (path, MemberState::Error(reason), None)
        }
    }
}

/// Becomes a member's owner and opens it; none where it has no component of its own.
async fn open(found: FoundMember, means: Means, url: String) -> Result<Option<(Arc<Member>, Load)>, OpenError> {
    let Some(spec) = found.manifest.component.clone() else { return Ok(None) };
    let failed = |why: String| OpenError::Member(format!("member {}: {why}", found.key));
    let granted = Granted::of(&found, &spec, &means.config).map_err(failed)?;
    granted.log(&found, &means.sources.granted(&granted.grants));
    for root in means.sources.missing(&spec) {
        tracing::warn!(member = %found.key, "it asks for the read root {root:?}, and there is no such root");
    }
    let cloned = found.dir.try_clone().map_err(|e| failed(e.to_string()))?;
    let owner = takeover::own(&found.dir, &found.key, &url).await?;
    let wanted = WantedComponent::new(&found, cloned, spec, &granted);
    let (done, component) = watch::channel(Component::Loading);
    let reach = Reach::new(granted.grants, &means.sources, &means.runtimes);
    let means = Means { limits: Arc::new(granted.limits.limits), ..means };
    let key = found.key.clone();
    let member = Member::open(found, means, reach, component, owner);
    if let (Ok(member), true) = (&member, url.is_empty()) {
        // One task is carried out here. What a host left running is the next host's.
        member.store().leave_running();
    }
    let member = member.map_err(|why| OpenError::Member(format!("member {key}: {why}")))?;
    let load = Load { wanted, done, resumer: member.resumer.clone() };
    Ok(Some((member, load)))
}
