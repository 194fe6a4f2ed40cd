//! A host: the members that it found and owns.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::join_all;
use guild_agent::{Broker, ReadRoots, RootError};
use guild_contract::{Grants, Limits};
use guild_jobs::files::Files;
use tokio::sync::Semaphore;

use crate::{
    config::{Config, Runtime},
    discovery::{self, Found, FoundMember},
    member::{Agents, Means, Member},
    plugins::{self, Load, WantedComponent},
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
    #[error("{0}; it is named by `--sources` or by `[[roots]]` in guild.toml")]
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
}

/// Every member that was found.
pub struct Host {
    limits: Arc<Limits>,
    members: BTreeMap<String, MemberState>,
    single: Option<Arc<Member>>,
}

impl Host {
    /// Finds the members, becomes their owner, opens their jobs and starts loading their components. `address` is where
    /// the host is going to serve them, if it is.
    ///
    /// When it returns, every member answers; jobs and components are still being loaded, and what needs them waits.
    ///
    /// # Errors
    /// See [`OpenError`]. In roster mode a member that cannot be served is in state error, and the others go on.
    pub async fn open(options: HostOptions, address: Option<SocketAddr>) -> Result<Arc<Self>, OpenError> {
        let HostOptions { config, target, sources, agent } = options;
        let limits = Arc::new(config.limits.clone());
        let policy = Arc::new(config.policy());
        let files = read_roots(&config, sources)?.map(|roots| Arc::new(roots) as Arc<dyn Files>);
        let runtimes = Arc::new(Runtimes::new(&config, files.as_ref()).map_err(OpenError::Config)?);
        let places = Arc::new(Semaphore::new(limits.running_jobs as usize));
        let agents = Arc::new(Agents {
            all: agent,
            default: config.agent,
            member: config.member,
            dispatch: config.dispatch_agents,
        });
        let broker = Broker::new(files.clone());
        let means = Means {
            limits: limits.clone(),
            files,
            broker,
            runtimes: runtimes.clone(),
            agents: agents.clone(),
            policy,
            places,
        };
        let mut loads = Vec::new();
        let host = match target {
            Target::Member(path) => {
                let found = discovery::single(&path).map_err(OpenError::Member)?;
                let (key, url) = (found.key.to_string(), url(address, None));
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
                let opened = found.into_iter().map(|found| roster_member(found, &means, address));
                let mut members = BTreeMap::new();
                for (key, state, load) in join_all(opened).await {
                    loads.extend(load);
                    members.insert(key, state);
                }
                for key in agents.member.keys().filter(|key| !members.contains_key(*key)) {
                    tracing::warn!("guild.toml has [member.{key}], and there is no such member");
                }
                Self { limits, members, single: None }
            }
        };
        let blocking = runtimes.clone();
        let ended = tokio::task::spawn_blocking(move || blocking.end_orphans()).await;
        if ended.is_err() {
            tracing::error!("what earlier sessions left could not be ended");
        }
        host.start(loads);
        Ok(Arc::new(host))
    }

    /// Reads jobs and loads components, in the background.
    fn start(&self, loads: Vec<Load>) {
        for (_, state) in self.members() {
            if let MemberState::Ready(member) = state {
                let member = member.clone();
                tokio::task::spawn_blocking(move || member.load_jobs());
            }
        }
        let limits = self.limits.clone();
        tokio::task::spawn_blocking(move || plugins::load(&limits, loads));
    }

    /// Finds the members of a directory and checks each one's component, without becoming anybody's owner. It blocks.
    ///
    /// # Errors
    /// Where the directory cannot be read.
    pub fn survey(path: &Path, config: &Config) -> Result<Vec<Surveyed>, OpenError> {
        let unreadable = |source| OpenError::Members { path: path.to_owned(), source };
        let found = discovery::discover(&discovery::open_directory(path).map_err(unreadable)?).map_err(unreadable)?;
        let limits = Arc::new(config.limits.clone());
        let sandbox = plugins::sandbox(&limits).map_err(|e| e.to_string());
        let policy = config.policy();
        let survey = |found: Found| {
            let state = found.member.as_ref().map_err(Clone::clone).and_then(|member| {
                let Some(spec) = &member.manifest.component else { return Ok(false) };
                crate::member::config_schema(&member.manifest)?;
                let wanted = WantedComponent {
                    key: member.key.clone(),
                    dir: member.dir.try_clone().map_err(|e| e.to_string())?,
                    spec: spec.clone(),
                    grants: Arc::new(Grants::of(&member.key, spec, &policy)),
                    limits: limits.clone(),
                };
                plugins::prepare(sandbox.as_ref().map_err(Clone::clone)?, &wanted).map_err(|e| e.to_string())?;
                Ok(true)
            });
            Surveyed { found, state }
        };
        Ok(found.into_iter().map(survey).collect())
    }

    /// The limits of this host.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The one member of a host that was opened for one.
    pub fn single(&self) -> Option<Arc<Member>> {
        self.single.clone()
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

/// The directories that sessions may read: those of the configuration, and those that were named besides.
pub(crate) fn read_roots(config: &Config, sources: Vec<PathBuf>) -> Result<Option<ReadRoots>, RootError> {
    let roots = config.roots.iter().map(|root| (root.name.clone(), root.path.clone()));
    let roots: Vec<_> = roots.chain(sources.into_iter().map(|path| (None, path))).collect();
    if roots.is_empty() { Ok(None) } else { ReadRoots::open_named(roots).map(Some) }
}

/// Where a member is served: at `/mcp` alone, or under its key in a roster. Empty where the host serves nobody.
fn url(address: Option<SocketAddr>, key: Option<&str>) -> String {
    match (address, key) {
        (None, _) => String::new(),
        (Some(address), None) => format!("http://{address}/mcp"),
        (Some(address), Some(key)) => format!("http://{address}/members/{key}/mcp"),
    }
}

async fn roster_member(
    found: Found,
    means: &Means,
    address: Option<SocketAddr>,
) -> (String, MemberState, Option<Load>) {
    let Found { path, member } = found;
    let state = match member {
        Err(reason) => Err(reason),
        Ok(found) => {
            let url = url(address, Some(found.key.as_str()));
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
    let cloned = found.dir.try_clone().map_err(|e| OpenError::Member(format!("member {}: {e}", found.key)))?;
    let owner = takeover::own(&found.dir, &found.key, &url).await?;
    let grants = Arc::new(Grants::of(&found.key, &spec, &means.policy));
    let limits = means.limits.clone();
    let (load, component) = Load::new(WantedComponent { key: found.key.clone(), dir: cloned, spec, grants, limits });
    let key = found.key.clone();
    let member = Member::open(found, means, component, owner);
    if let (Ok(member), true) = (&member, url.is_empty()) {
        // One task is carried out here. What a host left running is the next host's.
        member.store().leave_running();
    }
    let member = member.map_err(|why| OpenError::Member(format!("member {key}: {why}")))?;
    Ok(Some((member, load)))
}
