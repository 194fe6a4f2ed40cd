//! What runs agent sessions on this host: one of each runtime, shared by all members, with the places that the operator
//! gave it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use guild_agent::{Extractive, LocalSearch, api::Api, claude::Claude};
use guild_config::{Config, Runtime, directories};
use guild_contract::{Grants, MemberKey};
use guild_session::{
    files::Files,
    queue::FairQueue,
    session::{AgentRuntime, Wanted},
    web::Web,
};
use guild_web::{Granted, Internet, MemberHosts};

/// How long a session may take to end that was cancelled, or is out of time.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// A runtime, and the places of its sessions.
#[derive(Clone)]
pub(crate) struct Slot {
    pub(crate) runtime: Arc<dyn AgentRuntime>,
    pub(crate) places: Arc<FairQueue<MemberKey>>,
}

/// Every runtime, or why it cannot be used.
pub(crate) struct Runtimes {
    slots: BTreeMap<Runtime, Result<Slot, String>>,
    places: BTreeMap<Runtime, Arc<FairQueue<MemberKey>>>,
    extractive: Arc<Extractive>,
    internet: Option<Arc<Internet>>,
    orphans: Option<Claude>,
}

impl Runtimes {
    /// Makes what `config` describes. A runtime that cannot be made is an error where it is asked for, and not here.
    ///
    /// # Errors
    /// Where `[web]` is not acceptable.
    pub(crate) fn new(config: &Config) -> Result<Self, String> {
        let sessions = [
            (Runtime::Extractive, config.extractive.sessions),
            (Runtime::Claude, config.claude.sessions),
            (Runtime::Api, config.api.sessions),
        ];
        let places = sessions.map(|(runtime, sessions)| (runtime, FairQueue::new(sessions, sessions)));
        Self::with(config, Arc::new(Extractive::with_limits(&config.limits)), BTreeMap::from(places))
    }

    /// What `config` describes, with the places and the indexes that there are.
    ///
    /// # Errors
    /// Where `[web]` is not acceptable.
    pub(crate) fn renewed(&self, config: &Config) -> Result<Self, String> {
        Self::with(config, self.extractive.clone(), self.places.clone())
    }

    fn with(
        config: &Config,
        extractive: Arc<Extractive>,
        places: BTreeMap<Runtime, Arc<FairQueue<MemberKey>>>,
    ) -> Result<Self, String> {
        let internet = config.web.as_ref().map(Internet::new).transpose()?;
        let claude = claude(config);
        let orphans = claude.clone().ok();
        let claude = claude.map(|claude| Arc::new(claude) as Arc<dyn AgentRuntime>);
        let api = Api::new(config.api.options.clone()).map(|api| Arc::new(api) as Arc<dyn AgentRuntime>);
        let made = |runtime: Runtime| match runtime {
            Runtime::Extractive => Ok(extractive.clone() as Arc<dyn AgentRuntime>),
            Runtime::Claude => claude.clone(),
            Runtime::Api => api.clone(),
        };
        let slot = |(runtime, places): (&Runtime, &Arc<FairQueue<MemberKey>>)| {
            (*runtime, made(*runtime).map(|runtime| Slot { runtime, places: places.clone() }))
        };
        let slots = places.iter().map(slot).collect();
        Ok(Self { slots, places, extractive, internet, orphans })
    }

    /// Ends what hosts that are gone left of their sessions. It blocks; it is for when the members are owned, so that
    /// whoever was taken over is gone too.
    pub(crate) fn end_orphans(&self) {
        if let Some(claude) = &self.orphans {
            claude.reap_orphans();
        }
    }

    /// A runtime. The error says why it cannot be used.
    pub(crate) fn get(&self, runtime: Runtime) -> Result<&Slot, String> {
        match self.slots.get(&runtime) {
            Some(Ok(slot)) => Ok(slot),
            Some(Err(why)) => Err(why.clone()),
            None => Err(format!("there is no runtime {runtime}")),
        }
    }

    /// [`Self::get`], of a runtime in which a session as `wanted` could start now.
    pub(crate) fn ready(&self, runtime: Runtime, wanted: &Wanted<'_>) -> Result<&Slot, String> {
        let slot = self.get(runtime)?;
        slot.runtime.check(wanted)?;
        Ok(slot)
    }

    /// A search of these files, in the indexes that the built-in runtime has of them.
    pub(crate) fn search(&self, files: &Arc<dyn Files>) -> LocalSearch {
        LocalSearch::new(&self.extractive, files.clone())
    }

    /// The web of one job, as far as it is granted.
    pub(crate) fn web(&self, grants: &Grants) -> Web {
        let Some(internet) = &self.internet else { return Web::default() };
        // Patterns are checked when they are read; one that is not sound grants nothing.
        let hosts = grants.hosts.as_ref().and_then(|names| MemberHosts::new(names).ok());
        internet.for_job(&Granted { hosts, search: grants.session_search })
    }
}

/// The runtime `claude`, with a place for its sessions.
pub(crate) fn claude(config: &Config) -> Result<Claude, String> {
    let mut options = config.claude.options.clone();
    options.state = options.state.or_else(directories::claude);
    Claude::new(options)
}
