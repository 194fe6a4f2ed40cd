//! Who is served now. It changes while the host runs, always as a whole: whoever looked somebody up goes on with what it
//! found, and nobody waits for a change that is being prepared.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, PoisonError, RwLock},
};

use guild_contract::{MemberReport, MemberService};
use tokio::sync::watch;

use crate::{host::MemberState, member::Member, opener::Opened, plugins::Component};

/// The members of a host, by key.
pub type Members = BTreeMap<String, MemberEntry>;

/// What became of a directory that has a manifest.
#[derive(Clone)]
pub struct MemberEntry {
    /// What is in service there.
    pub state: MemberState,
    /// Why what the directory has now is not in service, where what it had before goes on.
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
    pub(crate) fn error(&self) -> Option<String> {
        self.report("").error
    }

    /// What is told of it.
    fn report(&self, key: &str) -> MemberReport {
        let bare = |state, error| MemberReport {
            member: key.to_owned(),
            state,
            version: None,
            sha256: None,
            manifest: None,
            toolboxes_loading: Vec::new(),
            error,
        };
        let report = match &self.state {
            MemberState::Foreign => bare(MemberService::Foreign, None),
            MemberState::Error(why) => bare(MemberService::Error, Some(why.to_string())),
            MemberState::Ready(member) => {
                let version = Some(member.manifest().version.clone());
                match member.component() {
                    Component::Loading(_) => MemberReport { version, ..bare(MemberService::Loading, None) },
                    Component::Failed(why) => MemberReport { version, ..bare(MemberService::Error, Some(why)) },
                    Component::Ready(loaded) => MemberReport {
                        version,
                        sha256: Some(loaded.plugin.sha256().to_owned()),
                        manifest: Some(member.manifest_sha256.clone()),
                        ..bare(MemberService::Ready, None)
                    },
                }
            }
        };
        MemberReport { error: self.refused.as_ref().map(ToString::to_string).or(report.error), ..report }
    }
}

/// Who is served.
pub(crate) struct Roster {
    members: RwLock<Arc<Members>>,
    /// Counts what has changed.
    changes: watch::Sender<u64>,
}

impl Default for Roster {
    fn default() -> Self {
        Self { members: RwLock::default(), changes: watch::channel(0).0 }
    }
}

impl Roster {
    pub(crate) fn entry(&self, key: &str) -> Option<MemberEntry> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub(crate) fn state(&self, key: &str) -> Option<MemberState> {
        self.entry(key).map(|entry| entry.state)
    }

    pub(crate) fn members(&self) -> Arc<Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Who is served from the beginning.
    pub(crate) fn begin(&self, opened: &[Opened]) {
        let members = opened.iter().map(|opened| (opened.path.clone(), opened.state.clone().into())).collect();
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(members);
    }

    /// From now on `path` is as `entry` says; nobody is there where it says nothing.
    pub(crate) fn set(&self, path: &str, entry: Option<MemberEntry>) {
        let old = {
            let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
            // Copied only where somebody still looks at what there was.
            let members = Arc::make_mut(&mut members);
            match entry {
                Some(entry) => members.insert(path.to_owned(), entry),
                None => members.remove(path),
            }
        };
        // Its end may close files: nobody has to wait for that.
        drop(old);
        self.touch();
    }

    /// From now on these members serve in the place of those over the same directories, all of them at once.
    pub(crate) fn renew<'a>(&self, renewed: impl Iterator<Item = &'a Arc<Member>>) {
        let old = {
            let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
            let mut all = (**members).clone();
            for member in renewed {
                if let Some(entry) = all.get_mut(member.key().as_str()) {
                    entry.state = MemberState::Ready(member.clone());
                }
            }
            mem::replace(&mut *members, Arc::new(all))
        };
        drop(old);
        self.touch();
    }

    /// Says that something has changed of what somebody offers.
    pub(crate) fn touch(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    pub(crate) fn report(&self) -> Vec<MemberReport> {
        let report = |(key, entry): (&String, &MemberEntry)| {
            let toolboxes_loading = entry.member().map_or_else(Vec::new, |member| member.toolboxes_loading());
            MemberReport { toolboxes_loading, ..entry.report(key) }
        };
        self.members().iter().map(report).collect()
    }
}
