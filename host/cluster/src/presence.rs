//! The presence of hosts: who is alive, and what each can do (rules 4 and 5).
//!
//! Each host writes its card every few seconds, on the condition of its own last card. A host that is silent is declared
//! dead by another one, which replaces the card on the condition that it is still the one it saw; so the dead host
//! learns of it from its next refresh.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_nats::HeaderMap;
use guild_contract::text::one_line;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::{
    runtime::Handle,
    sync::watch,
    task::AbortHandle,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use crate::{
    error::StoreError,
    link::{Link, Message, Write, Written},
    record::Owner,
    rules::{Times, may_begin, may_declare_dead},
    seal::{Key, close, open},
    streams::HOSTS,
};

/// The most characters of a host's name in a message.
const NAME_CHARS: usize = 64;
/// The kind of a card's seal.
const KIND: &str = "host";
/// The kind of the seal of the hall's claim.
const HALL_KIND: &str = "hall";
/// The place of the hall's claim, which is no name of a host.
const HALL: &str = "_hall";
/// The beginning of the subjects of cards.
const PREFIX: &str = "$KV.guild_hosts.";
/// The subjects of all cards.
const ALL: &str = "$KV.guild_hosts.>";

/// A host's statement about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Card {
    /// Where other hosts forward requests to.
    pub url: String,
    /// The version of its binary.
    pub version: String,
    /// The free places of each runtime.
    pub places: BTreeMap<String, u32>,
    /// The names of the roots that it can give to jobs.
    pub roots: Vec<String>,
    /// Whether it serves the hall.
    pub hall: bool,
    /// The members that it serves, with the digests of what was published.
    pub members: BTreeMap<String, String>,
    /// The milliseconds for which it has to be silent before another host declares it dead.
    pub silent_millis: u64,
    /// Digests of its settings, by their names, so that differences between hosts can be named.
    pub settings: BTreeMap<String, String>,
}

impl Card {
    /// How long the host has to be silent before a host with these times declares it dead: as long as either says.
    fn silent(&self, times: &Times) -> Duration {
        times.silent.max(Duration::from_millis(self.silent_millis))
    }
}

/// A card as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    owner: Owner,
    /// The id of the host's state directory, which one process at a time has.
    directory: String,
    /// The host that has declared this one dead, which may be itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dead_by: Option<String>,
    card: Card,
}

/// A host, as another one sees it.
#[derive(Clone, Debug)]
pub struct HostSeen {
    /// The host and its life.
    pub owner: Owner,
    /// Its last card.
    pub card: Card,
    /// The host that has declared it dead; its own name if it has left.
    pub dead_by: Option<String>,
    /// How long no refresh of it was seen.
    pub silent: Duration,
}

/// The name, life and directory of this host.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The host in this life.
    pub owner: Owner,
    /// The id of its state directory. Whoever has the directory's lock knows that earlier lives with the same id are over.
    pub directory: String,
}

struct Other {
    entry: Entry,
    sequence: u64,
    /// When this sequence was first seen.
    seen: Duration,
}

#[derive(Default)]
struct State {
    card: Card,
    /// The sequence of the own last card.
    tail: u64,
    /// When the last acknowledged refresh was sent.
    sent: Duration,
    /// Since when refreshes were acknowledged without a long pause.
    connected: Duration,
    others: BTreeMap<String, Other>,
    /// The names of cards that were not sealed with the cluster's key.
    unsealed: BTreeSet<String>,
    /// When each life was first asked about whose card was not read yet.
    unread: BTreeMap<String, Duration>,
    /// The number of refreshes.
    refreshes: u64,
}

struct Shared {
    link: Link,
    key: Key,
    identity: Identity,
    times: Times,
    state: Mutex<State>,
    /// The reason that this life is over.
    dead: watch::Sender<Option<String>>,
    /// Whether the host is about to stop, and gives its jobs back.
    drains: watch::Sender<bool>,
    /// Changes whenever another host appears, dies or begins a new life.
    changed: watch::Sender<u64>,
}

/// This host's presence, which is refreshed until it is dropped.
pub struct Presence {
    shared: Arc<Shared>,
    task: AbortHandle,
}

/// The time on a clock that counts while the machine is suspended.
fn now() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// The cards of a cluster, read once.
#[derive(Clone, Debug, Default)]
pub struct Cards {
    /// The hosts.
    pub hosts: Vec<HostSeen>,
    /// The names of cards that were not sealed with the cluster's key.
    pub unsealed: Vec<String>,
}

/// Reads the cards of all hosts, without being one of them. `now` is the time on the servers' clocks, in nanoseconds since
/// 1970.
///
/// # Errors
///
/// Returns an error when the store cannot be reached.
pub async fn read_cards(link: &Link, key: &Key, now: i128) -> Result<Cards, StoreError> {
    let mut cards = Cards::default();
    for message in link.read(HOSTS, ALL, 1).await?.into_iter().filter(is_card) {
        let silent = u64::try_from((now - message.stored) / 1_000_000).unwrap_or(0);
        match sealed_entry(key, &message) {
            Some(Entry { owner, card, dead_by, .. }) => {
                cards.hosts.push(HostSeen { owner, card, dead_by, silent: Duration::from_millis(silent) });
            }
            None => cards.unsealed.push(name(&message)),
        }
    }
    Ok(cards)
}

/// Whether a message is a card: `nats kv del guild_hosts HOST` leaves an empty message in place of one.
fn is_card(message: &Message) -> bool {
    !message.payload.is_empty() && message.subject != subject(HALL)
}

/// The name of the host of a card that may be anybody's text.
fn name(message: &Message) -> String {
    one_line(message.subject.strip_prefix(PREFIX).unwrap_or_default(), NAME_CHARS)
}

/// The entry of a message; `None` if it is not sealed by the cluster's key.
fn sealed_entry(key: &Key, message: &Message) -> Option<Entry> {
    let host = message.subject.strip_prefix(PREFIX)?;
    open(key, KIND, host, &message.payload).filter(|entry: &Entry| entry.owner.host == host)
}

fn subject(host: &str) -> String {
    format!("{PREFIX}{host}")
}

impl Presence {
    /// Appears in the cluster. An earlier life with the same state directory is over at once; a host of the same name
    /// with another directory has to be silent first.
    ///
    /// # Errors
    ///
    /// Returns an error when such a host is alive, when all hosts have another key, or when the store cannot be reached.
    pub async fn join(
        link: Link,
        key: Key,
        identity: Identity,
        mut card: Card,
        times: Times,
        runtime: &Handle,
    ) -> Result<Self, StoreError> {
        card.silent_millis = u64::try_from(times.silent.as_millis()).unwrap_or(u64::MAX);
        let state = Mutex::new(State { card, ..State::default() });
        let cards = read_cards(&link, &key, 0).await?;
        if cards.hosts.is_empty() && !cards.unsealed.is_empty() {
            return Err(StoreError::OtherKey(cards.unsealed.join(", ")));
        }
        let (dead, drains, changed) = (watch::Sender::new(None), watch::Sender::new(false), watch::Sender::new(0));
        let shared = Shared { link, key, identity, times, state, dead, drains, changed };
        let host = &shared.identity.owner.host;
        let mut last = shared.last(host).await?;
        if let Some((before, Some(entry))) = &last
            && entry.dead_by.is_none()
            && entry.directory != shared.identity.directory
        {
            let silent = entry.card.silent(&times);
            tracing::info!("looking for {} s whether another host named {host} is alive", silent.as_secs());
            sleep(silent).await;
            let now = shared.last(host).await?;
            if now.as_ref().is_some_and(|(now, _)| now != before) {
                return Err(StoreError::SameName(host.clone()));
            }
            last = now;
        }
        let expected = last.map_or(0, |(sequence, _)| sequence);
        let sent = now();
        match shared.write(&shared.own_entry(None), expected, times.stop).await? {
            Written::Stored { sequence, .. } => {
                let mut state = shared.state();
                (state.tail, state.sent, state.connected) = (sequence, sent, sent);
            }
            Written::Refused => return Err(StoreError::SameName(host.clone())),
        }
        shared.look().await?;
        let shared = Arc::new(shared);
        let task = runtime.spawn(shared.clone().run()).abort_handle();
        Ok(Self { shared, task })
    }

    /// Changes the card, which the next refresh has.
    pub fn tell(&self, change: impl FnOnce(&mut Card)) {
        change(&mut self.shared.state().card);
    }

    /// Whether this host may begin a request to a model, a call with an effect, or a job (rule 5).
    pub fn may_begin(&self) -> bool {
        !*self.shared.drains.borrow() && self.is_heard()
    }

    /// Waits until a job of this host may ask a model for a turn. False once the host is about to stop, and gives its
    /// jobs back.
    pub async fn may_go_on(&self) -> bool {
        let mut drains = self.shared.drains.subscribe();
        loop {
            if *drains.borrow_and_update() {
                return false;
            }
            if self.is_heard() {
                return true;
            }
            let _ = timeout(self.shared.times.refresh, drains.changed()).await;
        }
    }

    /// Has the jobs of this host given back at the end of their turns, since it is about to stop. It begins nothing more.
    pub fn drain(&self) {
        self.shared.drains.send_replace(true);
    }

    /// Waits until this host is about to stop.
    pub async fn drains(&self) {
        let _ = self.shared.drains.subscribe().wait_for(|drains| *drains).await;
    }

    /// Whether this life is not over, and its last refresh was acknowledged a short time ago.
    pub fn is_heard(&self) -> bool {
        self.shared.dead.borrow().is_none()
            && may_begin(now().saturating_sub(self.shared.state().sent), &self.shared.times)
    }

    /// Whether an owner's life is over, so that others may take its jobs.
    pub fn is_over(&self, owner: &Owner) -> bool {
        let own = &self.shared.identity.owner;
        if self.shared.dead.borrow().is_some() || owner == own {
            return false;
        }
        if owner.host == own.host {
            return true;
        }
        let (silent, now) = (self.shared.times.silent, now());
        let mut state = self.shared.state();
        let seen = state.others.get(&owner.host);
        match seen.map(|other| (other.entry.owner.incarnation.cmp(&owner.incarnation), &other.entry.dead_by)) {
            Some((Ordering::Greater, _)) => true,
            Some((Ordering::Equal, dead_by)) => dead_by.is_some(),
            // A life that has just begun has a card that was not read yet, unless it was removed.
            Some((Ordering::Less, _)) | None => {
                let first = *state.unread.entry(owner.incarnation.clone()).or_insert(now);
                now.saturating_sub(first.max(state.connected)) >= silent
            }
        }
    }

    /// The names of cards that were not sealed with the cluster's key.
    pub fn unsealed(&self) -> Vec<String> {
        self.shared.state().unsealed.iter().cloned().collect()
    }

    /// The other hosts.
    pub fn others(&self) -> Vec<HostSeen> {
        let now = now();
        let seen = |other: &Other| HostSeen {
            owner: other.entry.owner.clone(),
            card: other.entry.card.clone(),
            dead_by: other.entry.dead_by.clone(),
            silent: now.saturating_sub(other.seen),
        };
        self.shared.state().others.values().map(seen).collect()
    }

    /// This host, as its own refreshes show it.
    pub fn own(&self) -> HostSeen {
        let (state, owner) = (self.shared.state(), self.shared.identity.owner.clone());
        let dead_by = self.shared.dead.borrow().is_some().then(|| owner.host.clone());
        HostSeen { owner, card: state.card.clone(), dead_by, silent: now().saturating_sub(state.sent) }
    }

    /// This host's card.
    pub fn card(&self) -> Card {
        self.shared.state().card.clone()
    }

    /// Changes whenever another host appears, dies or begins a new life.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    /// Waits until this life is over, and tells why: another host has declared it dead. The host then drops all its jobs
    /// without storing anything, and joins with a new life.
    pub async fn died(&self) -> String {
        let mut dead = self.shared.dead.subscribe();
        match dead.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    /// Claims the hall, which one host of the cluster serves.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::HallServed`] when another host serves it, and an error when the store cannot be reached.
    pub async fn claim_hall(&self) -> Result<(), StoreError> {
        let Shared { link, key, identity, times, .. } = &*self.shared;
        let own = &identity.owner;
        let invalid = |e: serde_json::Error| StoreError::Invalid { subject: subject(HALL), reason: e.to_string() };
        loop {
            let last = link.last(HOSTS, &subject(HALL)).await?;
            let before: Option<Owner> = last.as_ref().and_then(|last| open(key, HALL_KIND, HALL, &last.payload));
            if let Some(before) = before.filter(|before| before != own && !self.is_over(before)) {
                return Err(StoreError::HallServed(before.host));
            }
            let write = Write {
                stream: HOSTS,
                subject: subject(HALL),
                expected: last.map_or(0, |last| last.sequence),
                id: format!("{}#{}.hall", own.host, own.incarnation),
                headers: HeaderMap::new(),
                payload: close(key, HALL_KIND, HALL, own).map_err(invalid)?,
            };
            if let Written::Stored { .. } = link.write(&write, times.stop).await? {
                self.tell(|card| card.hall = true);
                return Ok(());
            }
        }
    }

    /// Leaves the cluster: what this host still holds may be taken by others at once.
    ///
    /// # Errors
    ///
    /// Returns an error when the store cannot be reached; others take over after the silence then.
    pub async fn leave(&self) -> Result<(), StoreError> {
        self.task.abort();
        let _ = self.shared.dead.send_replace(Some("the host has left".to_owned()));
        let (own, tail) = (self.shared.identity.owner.host.clone(), self.shared.state().tail);
        let entry = self.shared.own_entry(Some(own.clone()));
        if self.shared.write(&entry, tail, self.shared.times.stop).await? == Written::Refused
            // A refresh that was under way was stored.
            && let Some((sequence, Some(last))) = self.shared.last(&own).await?
            && last.owner == self.shared.identity.owner
        {
            self.shared.write(&entry, sequence, self.shared.times.stop).await?;
        }
        Ok(())
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own_entry(&self, dead_by: Option<String>) -> Entry {
        let Identity { owner, directory } = self.identity.clone();
        Entry { owner, directory, dead_by, card: self.state().card.clone() }
    }

    async fn write(&self, entry: &Entry, expected: u64, patience: Duration) -> Result<Written, StoreError> {
        let host = &entry.owner.host;
        let invalid = |e: serde_json::Error| StoreError::Invalid { subject: subject(host), reason: e.to_string() };
        let number = {
            let mut state = self.state();
            state.refreshes += 1;
            state.refreshes
        };
        let own = &self.identity.owner;
        let write = Write {
            stream: HOSTS,
            subject: subject(host),
            expected,
            id: format!("{}#{}.p{number}", own.host, own.incarnation),
            headers: HeaderMap::new(),
            payload: close(&self.key, KIND, host, entry).map_err(invalid)?,
        };
        self.link.write(&write, patience).await
    }

    /// The last entry of a host, with its sequence.
    async fn last(&self, host: &str) -> Result<Option<(u64, Option<Entry>)>, StoreError> {
        let last = self.link.last(HOSTS, &subject(host)).await?;
        Ok(last.map(|message| (message.sequence, sealed_entry(&self.key, &message))))
    }

    async fn run(self: Arc<Self>) {
        let mut ticks = interval(self.times.refresh);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is at once.
        ticks.tick().await;
        while self.dead.borrow().is_none() {
            ticks.tick().await;
            if let Err(error) = self.refresh().await {
                tracing::warn!("this host's presence is not refreshed: {error}");
                continue;
            }
            if let Err(error) = self.look().await {
                tracing::warn!("the presence of other hosts is not read: {error}");
                continue;
            }
            self.declare().await;
        }
    }

    /// Writes the own card.
    async fn refresh(&self) -> Result<(), StoreError> {
        let (sent, tail) = (now(), self.state().tail);
        match self.write(&self.own_entry(None), tail, self.times.stop).await? {
            Written::Stored { sequence, .. } => {
                let mut state = self.state();
                if sent.saturating_sub(state.sent) > self.times.stop {
                    state.connected = sent;
                }
                (state.tail, state.sent) = (sequence, sent);
            }
            Written::Refused => match self.last(&self.identity.owner.host).await? {
                // An earlier refresh whose fate was unknown, or a message that no host of this cluster wrote.
                Some((sequence, Some(entry))) if entry.owner == self.identity.owner && entry.dead_by.is_none() => {
                    self.state().tail = sequence;
                }
                Some((sequence, None)) => {
                    tracing::warn!(
                        "the presence of this host was overwritten by a message without the cluster's seal; \
                         somebody else has its NATS credentials"
                    );
                    self.state().tail = sequence;
                }
                Some((_, Some(entry))) => {
                    let why = match entry.dead_by {
                        Some(by) => format!("the host {by} has declared this host dead, since it was silent"),
                        None => format!(
                            "a later life of this host has begun at {}; where that is another machine, its `guild.cluster` \
                             is a copy of this one's: remove it there, and give that host a name of its own",
                            entry.card.url
                        ),
                    };
                    tracing::error!("{why}; its jobs are dropped");
                    self.dead.send_replace(Some(why));
                }
                None => {}
            },
        }
        Ok(())
    }

    /// Reads the other hosts' cards.
    async fn look(&self) -> Result<(), StoreError> {
        let messages = self.link.read(HOSTS, ALL, 1).await?;
        let (seen, mut changes) = (now(), 0);
        let mut state = self.state();
        let before = std::mem::take(&mut state.unsealed);
        for message in messages.into_iter().filter(is_card) {
            let Some(entry) = sealed_entry(&self.key, &message) else {
                let name = name(&message);
                if !before.contains(&name) {
                    tracing::warn!(
                        "the card of the host {name} is not sealed with this cluster's key, and is not believed"
                    );
                }
                state.unsealed.insert(name);
                continue;
            };
            if entry.owner.host == self.identity.owner.host {
                continue;
            }
            let before = state.others.get(&entry.owner.host);
            // A server that lags may answer with an older card.
            if before.is_some_and(|before| before.sequence >= message.sequence) {
                continue;
            }
            let is_change = before.is_none_or(|before| {
                before.entry.owner != entry.owner || before.entry.dead_by.is_some() != entry.dead_by.is_some()
            });
            changes += u64::from(is_change);
            state.others.insert(entry.owner.host.clone(), Other { entry, sequence: message.sequence, seen });
        }
        drop(state);
        if changes > 0 {
            self.changed.send_modify(|changed| *changed += changes);
        }
        Ok(())
    }

    /// Declares silent hosts dead.
    async fn declare(&self) {
        let silent: Vec<(Entry, u64)> = {
            let (now, state) = (now(), self.state());
            let connected = now.saturating_sub(state.connected);
            let is_silent = |other: &&Other| {
                let times = Times { silent: other.entry.card.silent(&self.times), ..self.times };
                other.entry.dead_by.is_none() && may_declare_dead(now.saturating_sub(other.seen), connected, &times)
            };
            state.others.values().filter(is_silent).map(|other| (other.entry.clone(), other.sequence)).collect()
        };
        for (mut entry, sequence) in silent {
            let host = entry.owner.host.clone();
            entry.dead_by = Some(self.identity.owner.host.clone());
            match self.write(&entry, sequence, self.times.stop).await {
                Ok(Written::Stored { sequence, .. }) => {
                    tracing::warn!("the host {host} was silent and is declared dead; its jobs go to others");
                    let mut state = self.state();
                    state.others.insert(host, Other { entry, sequence, seen: now() });
                    drop(state);
                    self.changed.send_modify(|changed| *changed += 1);
                }
                // It has refreshed its presence, or another host was faster.
                Ok(Written::Refused) => {}
                Err(error) => tracing::warn!("the host {host} is silent, and cannot be declared dead: {error}"),
            }
        }
    }
}
