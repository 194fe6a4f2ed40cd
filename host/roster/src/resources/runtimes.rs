//! Makes the runtimes of agent sessions: one of each on a host, shared by all members, with as many sessions at a time
//! as the operator allows.

use std::{sync::Arc, time::Duration};

use guild_agent::{api::Api, claude::Claude};
use guild_auth::Ingress;
use guild_config::{Config, Runtime, directories};
use guild_contract::{Grants, MemberKey, SpendError};
use guild_extractive::{Extractive, LocalSearch};
use guild_sandbox::{Environment, TellUses};
use guild_scripted::Scripted;
use guild_session::{
    files::Files,
    queue::{FairQueue, QueueLoad},
    session::{AgentRuntime, Wanted},
    web::Web,
};
use guild_web::{Granted, Internet, MemberHosts};

use crate::fakes::Fakes;

/// How long a session may take to end that was cancelled, or is out of time.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// Who waits for a session on a runtime: members take turns.
type Queue = Arc<FairQueue<MemberKey>>;

/// A runtime, and the queue of its sessions.
#[derive(Clone)]
pub(crate) struct Slot {
    pub(crate) runtime: Arc<dyn AgentRuntime>,
    pub(crate) queue: Queue,
}

/// Every runtime, or why it cannot be used.
pub(crate) struct Runtimes {
    extractive: Arc<Extractive>,
    claude: Result<Arc<Claude>, String>,
    api: Result<Arc<Api>, String>,
    scripted: Result<Arc<dyn AgentRuntime>, String>,
    /// In the order of the runtimes above.
    queues: [Queue; 4],
    internet: Option<Arc<Internet>>,
    fakes: Option<Fakes>,
}

impl Runtimes {
    /// Makes what `config` describes, with `fakes` in place of the web and of scripts. A runtime that cannot be made is an error where it is asked for, and not here.
    ///
    /// # Errors
    ///
    /// Returns an error when `[web]` is invalid.
    pub(crate) fn new(config: &Config, fakes: Option<Fakes>) -> Result<Self, String> {
        let Config { extractive, claude, api, scripted, .. } = config;
        let sessions = [extractive.sessions, claude.sessions, api.sessions, scripted.sessions];
        let queues = sessions.map(|sessions| FairQueue::new(sessions, sessions));
        Self::with(config, Arc::new(Extractive::with_limits(&config.limits)), queues, fakes)
    }

    /// The runtimes of `config`, with the existing queues and indexes.
    ///
    /// # Errors
    ///
    /// Returns an error when `[web]` is invalid.
    pub(crate) fn renewed(&self, config: &Config) -> Result<Self, String> {
        Self::with(config, self.extractive.clone(), self.queues.clone(), self.fakes.clone())
    }

    fn with(
        config: &Config,
        extractive: Arc<Extractive>,
        queues: [Queue; 4],
        fakes: Option<Fakes>,
    ) -> Result<Self, String> {
        let scripted = match &fakes {
            Some(fakes) => Ok(fakes.runtime.clone()),
            None => scripted(config).map(|scripted| Arc::new(scripted) as Arc<dyn AgentRuntime>),
        };
        Ok(Self {
            extractive,
            claude: claude(config).map(Arc::new),
            api: Api::new(config.api.options.clone()).map(Arc::new),
            scripted,
            queues,
            internet: config.web.as_ref().map(Internet::new).transpose()?,
            fakes,
        })
    }

    /// Removes what sessions left whose host was killed. It blocks; it is for when the members are owned, so that a
    /// host that was taken over has ended too.
    pub(crate) fn sweep(&self) {
        if let Ok(claude) = &self.claude {
            claude.sweep();
        }
    }

    /// The use of the queues of sessions by runtime.
    pub(crate) fn queue_loads(&self) -> [(&'static str, QueueLoad); 3] {
        // That of scripts, which are for tests, is no figure of a host.
        let [extractive, claude, api, _] = &self.queues;
        [(Runtime::Extractive, extractive), (Runtime::Claude, claude), (Runtime::Api, api)]
            .map(|(runtime, queue)| (runtime.as_str(), queue.load()))
    }

    /// A runtime. The error says why it cannot be used.
    pub(crate) fn get(&self, runtime: Runtime) -> Result<Slot, String> {
        let [extractive, claude, api, scripted] = &self.queues;
        let (runtime, queue): (Arc<dyn AgentRuntime>, _) = match runtime {
            Runtime::Extractive => (self.extractive.clone(), extractive),
            Runtime::Claude => (self.claude.clone()?, claude),
            Runtime::Api => (self.api.clone()?, api),
            Runtime::Scripted => (self.scripted.clone()?, scripted),
        };
        Ok(Slot { runtime, queue: queue.clone() })
    }

    /// [`Self::get`], of a runtime in which a session as `wanted` could start now.
    pub(crate) fn ready(&self, runtime: Runtime, wanted: &Wanted<'_>) -> Result<Slot, String> {
        let slot = self.get(runtime)?;
        slot.runtime.check(wanted)?;
        Ok(slot)
    }

    /// A search of these files, in the indexes that the built-in runtime has of them.
    pub(crate) fn search(&self, files: &Arc<dyn Files>) -> LocalSearch {
        self.extractive.search(files.clone())
    }

    /// The clocks and the random numbers of a component's calls.
    pub(crate) fn environment(&self) -> Environment {
        self.fakes.as_ref().map(|fakes| (fakes.environment)()).unwrap_or_default()
    }

    /// The listener for the capabilities that a member's tools use, if there is one.
    pub(crate) fn tell_uses(&self, key: &MemberKey) -> Option<TellUses> {
        let (used, key) = (self.fakes.as_ref()?.used.clone(), key.clone());
        Some(Arc::new(move |capabilities| used(&key, capabilities)))
    }

    /// The web of one job, as far as it is granted.
    pub(crate) fn web(&self, grants: &Grants) -> Web {
        if let Some(fakes) = &self.fakes {
            return (fakes.web)(grants);
        }
        let Some(internet) = &self.internet else { return Web::default() };
        // Patterns are checked when they are read; an invalid one grants nothing.
        let hosts = grants.hosts.as_ref().and_then(|names| MemberHosts::new(names).ok());
        internet.for_job(&Granted { hosts, search: grants.sessions.search })
    }
}

/// The runtime `claude`, with a directory for its sessions.
pub(crate) fn claude(config: &Config) -> Result<Claude, String> {
    let mut options = config.claude.options.clone();
    options.state = options.state.or_else(directories::claude);
    Claude::new(options)
}

/// The runtime `scripted`, with the sessions of its test file.
pub(crate) fn scripted(config: &Config) -> Result<Scripted, String> {
    let options = &config.scripted.options;
    let file = options.script.as_deref().ok_or(
        "the runtime `scripted` has no script: name a test file with --script FILE, or with `script` in [scripted] of \
         guild.toml",
    )?;
    guild_scripted::read(file, options.case.as_deref()).map(Scripted::new)
}

/// Checks whether sessions on a runtime may begin to spend, for a token if there is one. The result is the amount that
/// they may spend, where something bounds it; the built-in search and a script
/// cost nothing.
///
/// # Errors
///
/// Returns the errors of [`Ingress::may_spend`].
pub(crate) fn may_spend(ingress: &Ingress, agent: Runtime, token: Option<&str>) -> Result<Option<f64>, SpendError> {
    match agent {
        Runtime::Extractive | Runtime::Scripted => Ok(None),
        Runtime::Claude | Runtime::Api => ingress.may_spend(token),
    }
}
