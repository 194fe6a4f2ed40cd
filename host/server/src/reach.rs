//! What a member may do, and what it reaches of what the host has: read roots, the web.
//!
//! [`Granted`] is found once, when a member is opened; what it was granted is frozen with each of its jobs. [`Reach`] is
//! made of it for a job.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use guild_agent::{Broker, LocalSearch, ReadRoots};
use guild_contract::{
    Bounds, Grants, Limits, MemberKey, MemberLimits,
    grants::{Verdict, wildcard},
    manifest::{ComponentSpec, FILE_NAME, Interface, SESSION_TOOLS, World},
};
use guild_session::{files::Files, meter::session_limits, web::Web};
use guild_web::check_host_pattern;
use serde::Serialize;

use crate::{
    OpenError, config::Config, discovery::FoundMember, host::read_roots, runtimes::Runtimes, serving::ServedRoot,
};

/// What a member may do: what its manifest asks for, and the operator allows.
#[derive(Clone, Debug)]
pub struct Granted {
    /// What it may reach.
    pub grants: Arc<Grants>,
    /// What it may use.
    pub limits: MemberLimits,
}

impl Granted {
    /// What `config` grants a member, whose component is as `spec` says.
    ///
    /// # Errors
    /// Where its manifest asks for what cannot be, with the line.
    pub fn of(member: &FoundMember, spec: &ComponentSpec, config: &Config) -> Result<Self, String> {
        if let Some(web) = &spec.grants.web {
            const HOSTS: &str = "component.grants.web.hosts";
            let checked = web.hosts.iter().try_for_each(|host| check_host_pattern(host));
            checked.map_err(|why| format!("{FILE_NAME}:{}: `{HOSTS}`: {why}", member.manifest.lines.of_key(HOSTS)))?;
        }
        Ok(Self {
            grants: Arc::new(Grants::of(&member.key, spec, &config.policy)),
            limits: MemberLimits::of(&member.key, spec, &config.policy, &config.limits),
        })
    }

    /// Logs what is granted in one line, and each wish that is not.
    pub(crate) fn log(&self, member: &FoundMember, roots: &[String]) {
        let Self { grants, limits } = self;
        let granted: Vec<&str> =
            grants.wishes().filter(|(_, verdict)| **verdict == Verdict::Granted).map(|(name, _)| name).collect();
        let narrowed: Vec<&str> = limits.narrowed.keys().copied().collect();
        let (granted, roots, narrowed) = (granted.join(", "), roots.join(", "), narrowed.join(", "));
        tracing::info!(member = %member.key, granted, roots, narrowed, "granted");
        for (name, why) in self.denied() {
            let line = member.manifest.lines.of_key(&wish_path(name));
            // A tool that there is nothing for is absent, and no more.
            if SESSION_TOOLS.contains(&name) {
                tracing::info!(member = %member.key, "{FILE_NAME}:{line} asks for {name}, which is not granted: {why}");
            } else {
                tracing::warn!(member = %member.key, "{FILE_NAME}:{line} asks for `{name}`, which is not granted: {why}");
            }
        }
    }

    /// What is asked for and not granted, and why.
    pub fn denied(&self) -> impl Iterator<Item = (&str, &str)> {
        self.grants.wishes().filter_map(|(name, verdict)| match verdict {
            Verdict::Denied(why) => Some((name, why.as_str())),
            Verdict::Granted => None,
        })
    }
}

/// What members reach of a host that is started with a configuration.
pub struct Outlook {
    sources: Sources,
    runtimes: Runtimes,
}

/// What answers a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Searched {
    /// The search provider of `[web.search]`.
    Provider,
    /// The read roots that are granted.
    ReadRoots,
    /// There is nothing to search.
    Nothing,
}

impl Outlook {
    /// What `config` has.
    ///
    /// # Errors
    /// Where a host would not start: a read root that cannot be opened, a `[web]` that cannot be.
    pub fn new(config: &Config) -> Result<Self, OpenError> {
        let sources = Sources::new(read_roots(config, Vec::new())?);
        Ok(Self { sources, runtimes: Runtimes::new(config).map_err(OpenError::Config)? })
    }

    /// The names of the read roots.
    pub fn roots(&self) -> Vec<String> {
        self.sources.roots.as_ref().map(Files::roots).unwrap_or_default()
    }

    /// The tools that sessions with these grants can be given, and what their WebSearch searches.
    pub fn of(&self, grants: &Arc<Grants>) -> (Vec<String>, Searched) {
        let reach = Reach::new(None, grants.clone(), &self.sources, &self.runtimes);
        let searched = match (self.runtimes.web(grants).search, &reach.web.search) {
            (Some(_), _) => Searched::Provider,
            (None, Some(_)) => Searched::ReadRoots,
            (None, None) => Searched::Nothing,
        };
        (reach.tools(), searched)
    }
}

/// What the jobs of a member may use at most, where `limits` are its own, its manifest's wishes of turns and dollars among
/// them.
pub fn ceiling(spec: &ComponentSpec, limits: &Limits) -> Bounds {
    let mut most = session_limits(limits);
    if spec.world == World::AutonomousWorker {
        // It may run longer than a session; what sessions it starts are bounded as all are.
        most.deadline_seconds = most.deadline_seconds.max(Some(limits.run_seconds));
    }
    most.min(Bounds { deadline_seconds: spec.resources.deadline_seconds, ..Bounds::default() })
}

/// Where in a manifest a wish stands, as [`Grants::wishes`] names it.
pub(crate) fn wish_path(name: &str) -> String {
    match name {
        tool if SESSION_TOOLS.contains(&tool) => "component.tools".to_owned(),
        "agent:own-tools" => "component.grants.agent.ownTools".to_owned(),
        name => format!("component.grants.{}", name.replace(':', ".")),
    }
}

/// The read roots of a host: opened once, and indexed once for those who read the same ones. Each member has readers of
/// its own, so that its searches wait for its own only.
pub(crate) struct Sources {
    roots: Option<ReadRoots>,
    readers: Mutex<BTreeMap<Reading, Reader>>,
}

/// Which member reads roots of which names; no member, where what it reads is only to be shown.
type Reading = (Option<MemberKey>, Vec<String>);

/// Those of a member who read the same roots.
#[derive(Clone)]
pub(crate) struct Reader {
    /// The roots; none where there are none.
    pub(crate) files: Option<Arc<dyn Files>>,
    /// The read-only tools over them.
    pub(crate) broker: Broker,
    local: Option<Arc<LocalSearch>>,
}

impl Sources {
    pub(crate) fn new(roots: Option<ReadRoots>) -> Self {
        Self { roots, readers: Mutex::default() }
    }

    /// The names of those that are granted.
    pub(crate) fn granted(&self, grants: &Grants) -> Vec<String> {
        let names = self.roots.as_ref().map(Files::roots).unwrap_or_default();
        names
            .into_iter()
            .filter(|name| grants.roots.as_ref().is_some_and(|roots| roots.grant(name, wildcard)))
            .collect()
    }

    /// The same, with where they are.
    pub(crate) fn places(&self, grants: &Grants) -> Vec<ServedRoot> {
        let granted = self.granted(grants);
        let all = self.roots.iter().flat_map(ReadRoots::places);
        all.filter(|(name, _)| granted.iter().any(|granted| granted == name))
            .map(|(name, path)| ServedRoot { name: name.to_owned(), path: path.to_owned() })
            .collect()
    }

    /// The names of exact roots that a manifest asks for, and that the host does not have.
    pub(crate) fn missing<'a>(&self, spec: &'a ComponentSpec) -> Vec<&'a str> {
        let known: BTreeSet<String> = self.roots.as_ref().map(Files::roots).unwrap_or_default().into_iter().collect();
        let asked = spec.grants.files.iter().flat_map(|files| &files.roots);
        asked.filter(|name| !name.contains('*') && !known.contains(*name)).map(String::as_str).collect()
    }

    /// Those of a member who read what is granted.
    pub(crate) fn of(&self, member: Option<&MemberKey>, grants: &Grants, runtimes: &Runtimes) -> Reader {
        let names = self.granted(grants);
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = readers.entry((member.cloned(), names)).or_insert_with_key(|(_, names)| {
            let files = self.roots.as_ref().filter(|_| !names.is_empty());
            let files = files.map(|roots| Arc::new(roots.only(names)) as Arc<dyn Files>);
            let local = files.as_ref().map(|files| Arc::new(runtimes.search(files)));
            Reader { broker: Broker::new(files.clone()), files, local }
        });
        reader.clone()
    }
}

/// What a job reaches, with what it was granted.
#[derive(Clone)]
pub(crate) struct Reach {
    pub(crate) grants: Arc<Grants>,
    pub(crate) reader: Reader,
    /// The web of its sessions. Without a provider, or where that is not granted, a search is one of the read roots.
    pub(crate) web: Web,
    /// The web of its component, which reaches the read roots only where it was granted `files`.
    pub(crate) own_web: Web,
}

impl Reach {
    /// What a member's job reaches; nobody's, where it is only to be shown.
    pub(crate) fn new(member: Option<&MemberKey>, grants: Arc<Grants>, sources: &Sources, runtimes: &Runtimes) -> Self {
        let reader = sources.of(member, &grants, runtimes);
        let provided = runtimes.web(&grants);
        let local = || reader.local.clone().map(|local| local as _);
        let web = Web { search: provided.search.clone().or_else(local), fetch: provided.fetch.clone() };
        let own_web = if grants.has(Interface::Files) { web.clone() } else { provided };
        Self { grants, reader, web, own_web }
    }

    /// Why a session cannot be given a tool.
    pub(crate) fn no_tool(&self, tool: &str) -> String {
        match self.grants.details.get(tool) {
            Some(Verdict::Denied(why)) => format!("the tool {tool:?}: {why}"),
            Some(Verdict::Granted) => format!("the tool {tool:?}: there is nothing for it to read"),
            None => format!("the tool {tool:?}; add it to `component.tools` in guild-member.json"),
        }
    }

    /// The read-only tools that its sessions can be given: granted, and with something to read.
    pub(crate) fn tools(&self) -> Vec<String> {
        self.grants.tools.iter().filter(|tool| self.reader.broker.offers(tool, &self.web)).cloned().collect()
    }
}
