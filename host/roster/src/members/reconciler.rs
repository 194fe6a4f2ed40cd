//! Reconciles the roster with the members' directories while the host runs.
//!
//! A member in service is replaced only by one that was loaded successfully. After an invalid change the old member
//! stays in service, and the error is shown in the log, as an event, and among the members.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use cap_std::fs::MetadataExt as _;
use guild_contract::EventDetail;
use guild_session::task::TaskError;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    component_loader::Load,
    member::Member,
    opener::{self, Change, Opened, Opener, Prepared, Renewed},
    roster::{MemberEntry, MemberState},
};
use crate::{
    NOTICE,
    discovery::{
        Found, Mark,
        scanner::{Noticed, Scanner},
    },
    jobs::member_data::MemberData,
    tools::component::Component,
};

/// For how long nothing has to happen before a look, since a component is copied in many pieces; and how long is waited
/// for that.
const QUIET: Duration = Duration::from_millis(200);
const MOST: Duration = Duration::from_secs(2);
/// The longest time between two scans: another process may have given up a member, which changes no file.
const SWEEP: Duration = Duration::from_secs(30);
/// The longest time between two scans if the system does not notify of all changes.
const SEARCH: Duration = Duration::from_secs(2);

/// Brings a host's roster up to date. Nothing else writes the roster once the host has started.
pub(crate) struct Reconciler {
    opener: Arc<Opener>,
    /// None while a scan runs, and on a host of one member, whose directory is read once.
    scanner: Option<Scanner>,
    noticed: watch::Receiver<Noticed>,
    known: BTreeMap<String, Known>,
    /// Members that are no longer served and have jobs under way.
    leaving: Vec<Weak<MemberData>>,
    tasks: JoinSet<Done>,
    /// Whether a directory that was busy needs another scan.
    behind: bool,
    /// The reason that the directory of members could not be read.
    unreadable: Option<String>,
    /// Members whose error was logged, and is not resolved.
    failing: BTreeSet<String>,
    /// The operator's new configurations.
    renewals: mpsc::Receiver<Renewal>,
}

/// A new configuration for all members.
pub(crate) struct Renewal {
    pub(crate) prepared: Prepared,
    /// Receives the outcome; after an error nothing has changed.
    pub(crate) done: oneshot::Sender<Result<(), String>>,
}

/// The state of a path besides its entry in the roster.
struct Known {
    /// The state of its directory at the last scan.
    looked: Result<Mark, String>,
    /// Whether it is being opened or loaded, and must not be changed.
    busy: bool,
    /// How it is tried again when it is not busy any more. The retry is for this entry alone: if all were tried again,
    /// several that take long to fail would be tried for ever, each because of the others.
    retry: Retry,
}

/// The result of a task.
enum Done {
    /// A member's first component is in service, or cannot be.
    Loaded {
        path: String,
        /// The event that is published then.
        detail: Option<EventDetail>,
    },
    /// The component of a member that was renewed is in service, or cannot be.
    Renewed {
        path: String,
    },
    Opened(Box<Opened>),
    Changed {
        path: String,
        looked: Result<Mark, String>,
        change: Result<Change, String>,
    },
    /// The directory of a member that left is free.
    Gone,
}

/// The members that are tried again without a change of their files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Retry {
    Nothing,
    /// The members that could not be opened.
    Unopened,
    /// All that is not in service.
    All,
}

impl Reconciler {
    /// For a host that began with these, out of this directory of members.
    pub(crate) fn new(
        opener: Arc<Opener>,
        members: Option<PathBuf>,
        opened: Vec<Opened>,
        renewals: mpsc::Receiver<Renewal>,
    ) -> Self {
        let scanner = members.map(|members| Scanner::new(members, opener.context().config.directory.clone()));
        let (scanner, noticed) =
            scanner.map_or_else(|| (None, watch::channel(0).1), |(scanner, noticed)| (Some(scanner), noticed));
        let mut reconciler = Self {
            opener,
            scanner,
            noticed,
            known: BTreeMap::new(),
            leaving: Vec::new(),
            tasks: JoinSet::new(),
            behind: false,
            unreadable: None,
            failing: BTreeSet::new(),
            renewals,
        };
        for Opened { path, looked, state, .. } in opened {
            let mut known = Known { looked, busy: false, retry: Retry::Nothing };
            if let MemberState::Error(_) = state {
                reconciler.failing.insert(path.clone());
            }
            if let MemberState::Ready(member) = state {
                known.busy = true;
                let path = path.clone();
                reconciler.tasks.spawn(async move {
                    member.loaded().await;
                    Done::Loaded { path, detail: None }
                });
            }
            reconciler.known.insert(path, known);
        }
        reconciler
    }

    /// Runs until it is dropped.
    pub(crate) async fn run(mut self) {
        // A first scan finds changes since the host read the directories.
        self.rescan(Retry::Nothing).await;
        let (mut swept, mut trusted) = (Instant::now(), 0);
        loop {
            let notified = self.scanner.as_ref().is_none_or(Scanner::is_complete);
            tokio::select! {
                Some(done) = self.tasks.join_next() => {
                    let again = match done {
                        Ok(done) => self.take(done),
                        Err(e) => {
                            tracing::error!("a change of a member was given up: {e}");
                            None
                        }
                    };
                    let behind = mem::take(&mut self.behind).then_some(Retry::Nothing);
                    if let Some(again) = again.max(behind) {
                        self.rescan(again).await;
                    }
                }
                Some(renewal) = self.renewals.recv() => {
                    if self.renew(renewal) {
                        // Members that were refused may be acceptable now.
                        self.rescan(Retry::All).await;
                    }
                }
                Ok(()) = self.noticed.changed() => {
                    self.quiet().await;
                    // Later notifications cause another scan.
                    let now = *self.noticed.borrow_and_update();
                    let again = if now == trusted { Retry::Nothing } else { Retry::All };
                    trusted = now;
                    self.rescan(again).await;
                }
                () = sleep_until(swept + if notified { SWEEP } else { SEARCH }) => {
                    self.rescan(Retry::Unopened).await;
                    swept = Instant::now();
                }
            }
        }
    }

    /// Puts what the operator has decided in service, for all members at once; whether it could be.
    fn renew(&mut self, Renewal { prepared: Prepared { context, rules, loads, .. }, done }: Renewal) -> bool {
        let outcome = self.opener.renewed(&context).map(|renewed| {
            self.opener.put_in_service(context, rules, &renewed);
            for load in loads {
                tokio::spawn(self.opener.loader.clone().load(load));
            }
            for Renewed { member, load } in renewed {
                if let Some(load) = load {
                    self.load_renewed(member.key().to_string(), load);
                }
            }
        });
        let is_done = outcome.is_ok();
        // The caller may be gone.
        let _ = done.send(outcome);
        is_done
    }

    fn load_renewed(&mut self, path: String, load: Load) {
        let loader = self.opener.loader.clone();
        self.tasks.spawn(async move {
            loader.load(load).await;
            Done::Renewed { path }
        });
    }

    /// A member that was made while the operator decided anew is renewed before it is in service.
    fn up_to_date(&self, member: Arc<Member>) -> Result<Renewed, String> {
        let context = self.opener.context();
        if Arc::ptr_eq(&member.context.config, &context.config) {
            return Ok(Renewed { member, load: None });
        }
        opener::renewed(&context, &member)
    }

    /// Waits until no change has occurred for a while.
    async fn quiet(&mut self) {
        let most = Instant::now() + MOST;
        while let Ok(Ok(())) = timeout_at(most.min(Instant::now() + QUIET), self.noticed.changed()).await {
            if Instant::now() >= most {
                return;
            }
        }
    }

    /// Scans the members, and begins to bring the roster up to date.
    async fn rescan(&mut self, again: Retry) {
        let Some(mut scanner) = self.scanner.take() else { return };
        let looked = tokio::task::spawn_blocking(move || {
            let found = scanner.look();
            (scanner, found)
        });
        let (scanner, found) = match looked.await {
            Ok(looked) => looked,
            Err(e) => {
                tracing::error!(
                    "changes of the members' directory are not noticed until a restart: {}",
                    TaskError::from(e)
                );
                return;
            }
        };
        self.scanner = Some(scanner);
        let found = match found {
            Ok(found) => found,
            Err(e) => {
                let why = e.to_string();
                if self.unreadable.as_ref() != Some(&why) {
                    tracing::error!("the members' directory cannot be read, and all stays as it was: {why}");
                }
                return self.unreadable = Some(why);
            }
        };
        self.unreadable = None;
        self.leaving.retain(|data| data.strong_count() > 0);
        let there: BTreeSet<&str> = found.iter().map(|found| found.path.as_str()).collect();
        let gone: Vec<String> = self.known.keys().filter(|path| !there.contains(path.as_str())).cloned().collect();
        // First those that go: what was renamed is at another path now.
        gone.into_iter().for_each(|path| self.remove(path));
        found.into_iter().for_each(|found| self.compare(found, again));
    }

    fn remove(&mut self, path: String) {
        if self.known.get(&path).is_some_and(|known| known.busy) {
            self.behind = true;
            return;
        }
        self.known.remove(&path);
        self.failing.remove(&path);
        let member = self.member(&path);
        self.opener.roster.set(&path, None);
        if let Some(member) = member {
            self.leave(&member);
            tracing::info!(member = path, "removed: it is not served any more, and its jobs go on to their end");
            self.publish(&path, EventDetail::MemberRemoved);
        }
    }

    /// The member that is in service at a path.
    fn member(&self, path: &str) -> Option<Arc<Member>> {
        self.opener.roster.now().entry(path)?.member().cloned()
    }

    /// Stops serving a member. Its work under way still holds it.
    fn leave(&mut self, member: &Arc<Member>) {
        self.leaving.push(Arc::downgrade(&member.data));
        let gone = member.data.gone();
        self.tasks.spawn(async move {
            gone.cancelled().await;
            Done::Gone
        });
    }

    /// Begins the work for a found directory.
    fn compare(&mut self, found: Found, again: Retry) {
        let Some(known) = self.known.get_mut(&found.path) else { return self.open(found) };
        let again = again.max(mem::replace(&mut known.retry, Retry::Nothing));
        let same = match (&known.looked, &found.member) {
            (Ok(before), Ok(now)) => now.mark.is_same(before),
            (Err(before), Err(now)) => before == now,
            _ => false,
        };
        let entry = self.opener.roster.now().entry(&found.path);
        let is_error = |entry: &MemberEntry| matches!(entry.state, MemberState::Error(_));
        let tried = match again {
            Retry::Nothing => false,
            // A manifest with a mistake has it as long as it is the same.
            Retry::Unopened => known.busy || entry.as_ref().is_some_and(is_error) && found.member.is_ok(),
            // An approval can also add to what a member in service has.
            Retry::All => {
                known.busy
                    || entry.as_ref().is_some_and(|entry| {
                        entry.error().is_some()
                            || entry.member().is_some_and(|member| self.opener.is_granted_otherwise(member))
                    })
            }
        };
        if same && !tried {
            return;
        }
        if known.busy {
            known.retry = again;
            self.behind = true;
            return;
        }
        let Some(member) = entry.as_ref().and_then(MemberEntry::member).cloned() else { return self.open(found) };
        let now = match found.member {
            Ok(now) => now,
            Err(why) => {
                if is_removed(&member.data) {
                    self.remove(found.path.clone());
                    return self.open(Found { member: Err(why), ..found });
                }
                return self.refuse(&found.path, Err(why.clone()), why);
            }
        };
        if now.mark.directory != member.data.directory() {
            return self.open(Found { member: Ok(now), ..found });
        }
        // The component may be the same still, and only touched.
        let unchanged = member.manifest_sha256 == now.manifest_sha256();
        let (opener, path) = (self.opener.clone(), found.path);
        self.busy(&path);
        self.tasks.spawn(async move {
            let looked = Ok(now.mark.clone());
            let change = opener.change(&member, now, unchanged).await;
            Done::Changed { path, looked, change }
        });
    }

    fn busy(&mut self, path: &str) {
        if let Some(known) = self.known.get_mut(path) {
            known.busy = true;
        }
    }

    /// Begins to open what was found. The roster is unchanged meanwhile.
    fn open(&mut self, found: Found) {
        let directory = found.member.as_ref().ok().and_then(|found| found.mark.directory);
        let leaving = directory.and_then(|directory| {
            let all = self.leaving.iter().filter_map(Weak::upgrade);
            all.into_iter().find(|data| data.directory() == Some(directory))
        });
        let (path, looked) = (found.path.clone(), found.member.as_ref().map(|found| found.mark.clone()));
        let looked = looked.map_err(Clone::clone);
        self.known.insert(path, Known { looked, busy: true, retry: Retry::Nothing });
        let opener = self.opener.clone();
        self.tasks.spawn(async move {
            let opened = match (leaving, found) {
                (Some(data), Found { path, member }) if data.key.as_str() != path => {
                    let why = format!(
                        "jobs of {} are under way in its directory, which had that name; it comes into service when they have \
                         ended",
                        data.key
                    );
                    let looked = member.map(|found| found.mark);
                    Opened { path, looked, state: MemberState::Error(why.into()), load: None }
                }
                (data, found) => opener.open_found(found, data).await,
            };
            Done::Opened(Box::new(opened))
        });
    }

    /// Takes in what a task has done; whether another look is due for it.
    fn take(&mut self, done: Done) -> Option<Retry> {
        let path = match done {
            Done::Gone => return Some(Retry::Unopened),
            Done::Opened(opened) => {
                let path = opened.path.clone();
                self.opened(*opened);
                path
            }
            Done::Loaded { path, detail } => {
                self.loaded(&path, detail);
                path
            }
            Done::Renewed { path } => {
                if let Some(member) = self.member(&path) {
                    match member.component() {
                        Component::Failed(error) => self.publish(&path, EventDetail::MemberError { error }),
                        _ => self.publish(&path, EventDetail::MemberChanged),
                    }
                    self.opener.roster.touch();
                }
                path
            }
            Done::Changed { path, looked, change } => {
                self.changed(&path, looked, change);
                path
            }
        };
        self.note(path);
        None
    }

    /// Logs that an error of a member is over, where one was logged before.
    fn note(&mut self, path: String) {
        let Some(entry) = self.opener.roster.now().entry(&path) else { return };
        if entry.member().is_some_and(|member| matches!(member.component(), Component::Loading(_))) {
            // It is not known yet.
            return;
        }
        if entry.error().is_some() {
            self.failing.insert(path);
        } else if self.failing.remove(&path) {
            let is_served = entry.member().is_some();
            let now = if is_served { "it is in service" } else { "it has no component, and is not served here" };
            tracing::info!(target: NOTICE, member = path, "its error is resolved: {now}");
        }
    }

    fn opened(&mut self, Opened { path, looked, mut state, mut load }: Opened) {
        if !self.known.contains_key(&path) {
            return;
        }
        if let MemberState::Ready(member) = &state {
            match self.up_to_date(member.clone()) {
                Ok(renewed) => {
                    load = renewed.load.or(load);
                    renewed.member.enter_service();
                    state = MemberState::Ready(renewed.member);
                }
                Err(why) => state = MemberState::Error(why.into()),
            }
        }
        let Some(known) = self.known.get_mut(&path) else { return };
        known.busy = false;
        let before = self.member(&path);
        if let (Some(before), MemberState::Error(why)) = (&before, &state)
            && !is_removed(&before.data)
        {
            return self.refuse(&path, looked, why.to_string());
        }
        self.place(&path, looked, state.clone());
        let MemberState::Ready(member) = state else { return };
        self.busy(&path);
        let detail = if before.is_some() { EventDetail::MemberChanged } else { EventDetail::MemberAdded };
        let loader = self.opener.loader.clone();
        tokio::task::spawn_blocking(move || member.load_jobs());
        self.tasks.spawn(async move {
            if let Some(load) = load {
                loader.load(load).await;
            }
            Done::Loaded { path, detail: Some(detail) }
        });
    }

    fn loaded(&mut self, path: &str, detail: Option<EventDetail>) {
        let Some(known) = self.known.get_mut(path) else { return };
        known.busy = false;
        let Some(member) = self.member(path) else { return };
        match (member.component(), detail) {
            (Component::Failed(error), _) => self.publish(path, EventDetail::MemberError { error }),
            (_, Some(detail)) => {
                tracing::info!(member = path, "it is in service");
                self.publish(path, detail);
            }
            (_, None) => {}
        }
        self.opener.roster.touch();
    }

    fn changed(&mut self, path: &str, looked: Result<Mark, String>, change: Result<Change, String>) {
        let mut load = None;
        let change = change.and_then(|change| match change {
            Change::Another(member) => {
                let renewed = self.up_to_date(member)?;
                load = renewed.load;
                Ok(Change::Another(renewed.member))
            }
            other => Ok(other),
        });
        let Some(known) = self.known.get_mut(path) else { return };
        known.busy = false;
        match change {
            Err(why) => self.refuse(path, looked, why),
            Ok(Change::Nothing) => {
                known.looked = looked;
                let entry = self.opener.roster.now().entry(path);
                if let Some(entry) = entry.filter(|entry| entry.refused.is_some()) {
                    // The invalid change was reverted.
                    self.opener.roster.set(path, Some(entry.state.into()));
                    self.publish(path, EventDetail::MemberChanged);
                }
            }
            Ok(Change::Foreign) => self.place(path, looked, MemberState::Foreign),
            Ok(Change::Another(member)) => {
                member.enter_service();
                self.place(path, looked, MemberState::Ready(member));
                if let Some(load) = load {
                    self.load_renewed(path.to_owned(), load);
                }
            }
        }
    }

    /// Replaces the earlier state of a directory by the new one. For a component still to be loaded no event is
    /// published yet.
    fn place(&mut self, path: &str, looked: Result<Mark, String>, state: MemberState) {
        let Some(known) = self.known.get_mut(path) else { return };
        known.looked = looked;
        let (before, entry) = (self.opener.roster.now().entry(path), MemberEntry::from(state));
        self.opener.roster.set(path, Some(entry.clone()));
        let (known, before) = before.map_or((None, None), |before| (before.error(), before.member().cloned()));
        if let Some(before) = &before
            && entry.member().is_none_or(|member| !Arc::ptr_eq(&member.data, &before.data))
        {
            self.leave(before);
        }
        match (entry.error(), entry.member()) {
            (Some(error), _) if known.as_ref() == Some(&error) => {}
            (Some(error), _) => {
                tracing::error!(member = path, "it is not in service: {error}");
                self.publish(path, EventDetail::MemberError { error });
            }
            (None, Some(member)) if member.component().ready().is_some() => {
                let version = &member.manifest().version;
                tracing::info!(member = path, version, "changed: the new one is in service");
                self.publish(path, EventDetail::MemberChanged);
            }
            (None, Some(_)) => {}
            (None, None) => {
                tracing::info!(member = path, "it has no component, and is not served here");
                if before.is_some() {
                    self.publish(path, EventDetail::MemberRemoved);
                }
            }
        }
    }

    /// Notes that the new state of a directory cannot be in service; the earlier one is still served.
    fn refuse(&mut self, path: &str, looked: Result<Mark, String>, error: String) {
        let Some(known) = self.known.get_mut(path) else { return };
        known.looked = looked;
        let Some(before) = self.opener.roster.now().entry(path) else { return };
        let known = before.error();
        self.failing.insert(path.to_owned());
        let refused = Some(error.as_str().into());
        self.opener.roster.set(path, Some(MemberEntry { refused, ..before }));
        if known.as_ref() != Some(&error) {
            tracing::error!(
                member = path,
                "its change is not in service, and what was there before is still served: {error}"
            );
            self.publish(path, EventDetail::MemberError { error });
        }
    }

    /// Publishes the new state of a member.
    fn publish(&self, path: &str, detail: EventDetail) {
        // A path that is no key is no member.
        if let Ok(key) = path.parse() {
            self.opener.context().events.member(key, detail);
        }
    }
}

/// Whether a directory that is open is nowhere any more.
fn is_removed(data: &MemberData) -> bool {
    data.dir.dir_metadata().is_ok_and(|found| found.nlink() == 0)
}
