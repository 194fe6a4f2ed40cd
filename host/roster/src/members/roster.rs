//! Keeps the roster of members in service. It changes as a whole while the host runs: a request keeps the member that
//! it looked up, and no request waits for a change that is being prepared.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, PoisonError, RwLock},
};

use guild_auth::{Ingress, Rules};
use guild_contract::{MemberKey, MemberReport, MemberService};
use tokio::sync::watch;

use super::member::Member;
use crate::tools::{
    component::Component,
    named_toolboxes::{FindOffer, Offer, no_toolbox},
};

/// The state of a directory with a manifest.
#[derive(Clone)]
pub enum MemberState {
    /// It is served.
    Ready(Arc<Member>),
    /// It cannot be served; the reason.
    Error(Arc<str>),
    /// It has no component: another process serves it.
    Foreign,
}

/// The members of a host, by key.
pub type Members = BTreeMap<String, MemberEntry>;

/// The state of a directory with a manifest.
#[derive(Clone)]
pub struct MemberEntry {
    /// The member in service there.
    pub state: MemberState,
    /// Why what the directory has now is not in service, where what it had before is still served.
    pub(crate) refused: Option<Arc<str>>,
}

impl From<MemberState> for MemberEntry {
    fn from(state: MemberState) -> Self {
        Self { state, refused: None }
    }
}

impl MemberEntry {
    /// The member, where it is served.
    pub fn member(&self) -> Option<&Arc<Member>> {
        match &self.state {
            MemberState::Ready(member) => Some(member),
            MemberState::Error(_) | MemberState::Foreign => None,
        }
    }

    /// Why what its directory has now is not in service.
    pub fn error(&self) -> Option<String> {
        self.report("").error
    }

    /// Its entry in the report of members.
    fn report(&self, key: &str) -> MemberReport {
        let (member, component) = (self.member(), self.member().map(|member| member.component()));
        let loaded = component.as_ref().and_then(Component::ready);
        let (state, error) = match (&self.state, &component) {
            (MemberState::Foreign, _) => (MemberService::Foreign, None),
            (MemberState::Error(why), _) => (MemberService::Error, Some(why.to_string())),
            (_, Some(Component::Failed(why))) => (MemberService::Error, Some(why.clone())),
            (_, Some(Component::Ready(_))) => (MemberService::Ready, None),
            (_, Some(Component::Loading(_)) | None) => (MemberService::Loading, None),
        };
        MemberReport {
            member: key.to_owned(),
            state,
            version: member.map(|member| member.manifest().version.clone()),
            sha256: loaded.map(|loaded| loaded.plugin.sha256().to_owned()),
            manifest: member.filter(|_| loaded.is_some()).map(|member| member.manifest_sha256.clone()),
            disk_bytes: member.and_then(|member| member.data.disk_bytes()),
            toolboxes_loading: Vec::new(),
            error: self.refused.as_ref().map(ToString::to_string).or(error),
        }
    }
}

/// One reading of `guild.toml`, in service: who may ask, and who is served with what it grants. A request takes it
/// once, so that what lets it in is what it is served by. Members come and go in it; another reading takes its place as
/// a whole.
pub struct Reading {
    /// The rules for requests.
    pub rules: Arc<Rules>,
    members: RwLock<Arc<Members>>,
}

impl Reading {
    /// The entry of the directory at that path; `None` if there is no member.
    pub fn entry(&self, key: &str) -> Option<MemberEntry> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// The member in service there.
    pub fn state(&self, key: &str) -> Option<MemberState> {
        self.entry(key).map(|entry| entry.state)
    }

    /// All of them, by key.
    pub fn members(&self) -> Arc<Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How all of them are shown.
    pub fn report(&self) -> Vec<MemberReport> {
        let report = |(key, entry): (&String, &MemberEntry)| {
            let toolboxes_loading = entry.member().map_or_else(Vec::new, |member| member.toolboxes_loading());
            MemberReport { toolboxes_loading, ..entry.report(key) }
        };
        self.members().iter().map(report).collect()
    }
}

/// The roster.
pub struct Roster {
    ingress: Arc<Ingress>,
    now: RwLock<Arc<Reading>>,
    /// Counts what has changed.
    changes: watch::Sender<u64>,
}

impl Roster {
    /// Without members yet, with the rules of `ingress`.
    pub fn new(ingress: Arc<Ingress>) -> Self {
        let reading = Reading { rules: ingress.rules(), members: RwLock::default() };
        Self { ingress, now: RwLock::new(Arc::new(reading)), changes: watch::channel(0).0 }
    }

    /// The present roster.
    pub fn now(&self) -> Arc<Reading> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Who is served from the beginning.
    pub fn begin(&self, members: impl Iterator<Item = (String, MemberState)>) {
        let members = members.map(|(path, state)| (path, state.into())).collect();
        *self.now().members.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(members);
    }

    /// From now on `path` is as `entry` says; without one, there is no member.
    pub fn set(&self, path: &str, entry: Option<MemberEntry>) {
        let now = self.now();
        let old = {
            let mut members = now.members.write().unwrap_or_else(PoisonError::into_inner);
            // Copied only where the old map is still in use.
            let members = Arc::make_mut(&mut members);
            match entry {
                Some(entry) => members.insert(path.to_owned(), entry),
                None => members.remove(path),
            }
        };
        // Dropped without the lock, since that may close files.
        drop(old);
        self.touch();
    }

    /// From now on these rules hold, and these members serve in the place of those over the same directories, all of it
    /// at once. Whoever changes the roster otherwise does so at another time.
    pub fn renew<'a>(&self, rules: Rules, renewed: impl Iterator<Item = &'a Arc<Member>>) {
        let mut all = (*self.now().members()).clone();
        for member in renewed {
            if let Some(entry) = all.get_mut(member.key().as_str()) {
                entry.state = MemberState::Ready(member.clone());
            }
        }
        let rules = Arc::new(rules);
        let reading = Arc::new(Reading { rules: rules.clone(), members: RwLock::new(Arc::new(all)) });
        let old = mem::replace(&mut *self.now.write().unwrap_or_else(PoisonError::into_inner), reading);
        self.ingress.set_rules(rules);
        drop(old);
        self.touch();
    }

    /// Counts a change of what a member offers.
    pub fn touch(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Finds what members offer as toolboxes, as long as there is this roster. Members hold it, and the roster holds
    /// them.
    pub(crate) fn offers(self: &Arc<Self>) -> FindOffer {
        let roster = Arc::downgrade(self);
        Box::new(move |key| roster.upgrade()?.offer(key))
    }

    fn offer(&self, key: &MemberKey) -> Option<Offer> {
        Some(match self.now().state(key.as_str())? {
            MemberState::Ready(member) => match member.toolbox() {
                Some(toolbox) => Offer::Toolbox(toolbox.clone()),
                None => Offer::None(no_toolbox(member.manifest().component.as_ref())),
            },
            MemberState::Error(why) => Offer::None(format!("is in state error: {why}")),
            MemberState::Foreign => Offer::None(no_toolbox(None)),
        })
    }
}
