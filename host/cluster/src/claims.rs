//! The queue: jobs that wait for any host, or whose host is dead. Each host takes those for which it ranks highest, and
//! later the others, so that few claims are lost.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use guild_contract::{JobId, MemberKey};
use sha2::{Digest as _, Sha256};

use tokio::time::sleep;

use crate::{
    error::StoreError,
    log::{JobName, Logs, Take},
    presence::{Card, Presence},
    record::{Folded, Needs, Owner},
    rules::Holder,
    watch::JobSeen,
};

/// How long a host that has a place waits for each host that ranks higher, since that host has taken a job.
const STEP: Duration = Duration::from_millis(200);
/// How long a host that has a place waits at most since its own last claim, however many jobs other hosts take meanwhile.
const MOST_WAIT: Duration = Duration::from_secs(2);
/// How long a host passes over a job that it could not carry out, as one with a file that is missing or a record that it
/// cannot read: after the first time, and at most. Each time takes twice as long as the one before.
const PASSED_OVER: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(5 * 60));
/// How long a job waits for a host with the version of its member and the roots that it began with. Then it goes on with
/// what a host has, as it does at once on a host on its own.
const UNMET: Duration = Duration::from_secs(5 * 60);
/// The jobs of a member that are considered at once, oldest first.
const CONSIDERED: usize = 256;

/// Whether a host with this card has what a job of a member needs, and a free place.
pub fn are_met(needs: &Needs, member: &MemberKey, card: &Card) -> bool {
    has_place(needs, card) && could_be_met(needs, member, card)
}

fn has_place(needs: &Needs, card: &Card) -> bool {
    card.places.get(&needs.runtime).is_some_and(|places| *places > 0)
}

/// Whether a host with this card has what a job of a member needs, once it has a free place.
fn could_be_met(needs: &Needs, member: &MemberKey, card: &Card) -> bool {
    card.places.contains_key(&needs.runtime)
        && needs.roots.iter().all(|root| card.roots.contains(root))
        && (card.hall || !needs.hall)
        && card.members.get(member.as_str()).is_some_and(|digest| needs.member.is_empty() || *digest == needs.member)
}

/// A job that can be taken.
struct Open {
    job: JobId,
    /// Its holder, if it does not wait.
    holder: Option<Box<Owner>>,
    /// When this host first saw that it can be taken.
    since: Instant,
    /// When the message was stored by which it came, in nanoseconds since 1970 on a server's clock.
    stored: i128,
}

/// Jobs of one member with the same needs, in the order of the messages by which they came.
type Line = BTreeMap<u64, Open>;

/// Where a job is in the lines of its member.
struct Place {
    needs: Arc<Needs>,
    sequence: u64,
    /// The last message of its log of which this host has heard.
    heard: u64,
}

#[derive(Default)]
struct State {
    /// The jobs that wait or are held by others. There may be many of few needs.
    members: BTreeMap<MemberKey, BTreeMap<Arc<Needs>, Line>>,
    /// The place of each job above.
    jobs: HashMap<JobName, Place>,
    /// The jobs that this host holds.
    own: HashSet<JobName>,
    /// The number of those above that wait.
    waiting: usize,
    /// The jobs that this host is taking.
    taking: HashSet<JobName>,
    /// The jobs that this host could not carry out: the time of the last attempt, and for how long they are passed over.
    passed_over: HashMap<JobName, (Instant, Duration)>,
    /// When each other host took a job, and when this host last made a claim.
    takes: HashMap<String, Instant>,
    /// The member whose turn was last.
    last: Option<MemberKey>,
    /// Since when this host has a free place, and has lost no claim.
    free: Option<Instant>,
    /// Since when no living host has what jobs of a member need.
    unmet: BTreeMap<(MemberKey, Arc<Needs>), Instant>,
}

/// The jobs that wait or are held by other hosts, as the log tells.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    claims: AtomicU64,
    lost: AtomicU64,
}

/// The number of claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// All claims.
    pub made: u64,
    /// The claims that another host won.
    pub lost: u64,
}

/// The next step of a host that has free places.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Take this job now, which needs this. Its log has a message of this sequence.
    Take(JobName, Needs, u64),
    /// Nothing is due before this time has passed.
    Wait(Duration),
    /// Nothing can be taken until the queue or the hosts change.
    Nothing,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns of a message of a job's log. `own` is this host, whose jobs are not in the queue.
    pub fn hear(&self, seen: &JobSeen, own: &Owner) {
        let holder = match &seen.standing.holder {
            Holder::Waiting => None,
            Holder::Held(owner) if owner != own => Some(Box::new(owner.clone())),
            held_or_over => {
                let mut state = self.state();
                match held_or_over {
                    Holder::Held(_) => drop(state.own.insert(seen.name.clone())),
                    _ => {
                        state.own.remove(&seen.name);
                        state.passed_over.remove(&seen.name);
                    }
                }
                state.taking.remove(&seen.name);
                drop(state.remove(&seen.name));
                return;
            }
        };
        let mut state = self.state();
        state.own.remove(&seen.name);
        state.taking.remove(&seen.name);
        let before = state.remove(&seen.name);
        let (sequence, open) = match before {
            // Its place in the queue is that of the message by which it came.
            Some((sequence, open)) if open.holder == holder => (sequence, open),
            before => {
                // A job that was given to another host by its caller was nobody else's.
                if let Some(owner) = holder.as_ref().filter(|_| before.is_some()) {
                    state.takes.insert(owner.host.clone(), Instant::now());
                }
                let (job, since, stored) = (seen.name.job.clone(), Instant::now(), seen.stored);
                (seen.sequence, Open { job, holder, since, stored })
            }
        };
        state.insert(seen, sequence, open);
    }

    /// The number of jobs that wait.
    pub fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// When the job that waits longest began to wait, in nanoseconds since 1970 on a server's clock.
    pub fn oldest(&self) -> Option<i128> {
        let state = self.state();
        let first = |line: &Line| line.values().find(|open| open.holder.is_none()).map(|open| open.stored);
        state.members.values().flat_map(BTreeMap::values).filter_map(first).min()
    }

    /// The numbers of jobs that wait, and of those that a host holds, by member.
    pub fn by_member(&self) -> BTreeMap<MemberKey, (u64, u64)> {
        let (state, mut members) = (self.state(), BTreeMap::<MemberKey, (u64, u64)>::new());
        for (member, lines) in &state.members {
            let (waiting, held) = members.entry(member.clone()).or_default();
            for open in lines.values().flat_map(BTreeMap::values) {
                *if open.holder.is_none() { &mut *waiting } else { &mut *held } += 1;
            }
        }
        for name in &state.own {
            members.entry(name.member.clone()).or_default().1 += 1;
        }
        members
    }

    /// The claims so far.
    pub fn claims(&self) -> Claims {
        Claims { made: self.claims.load(Ordering::Relaxed), lost: self.lost.load(Ordering::Relaxed) }
    }

    /// The next job for the host `own` with this card; members take turns. `hosts` are the other hosts that are alive,
    /// and `is_over` tells of an owner's life.
    pub fn next(&self, own: &Owner, card: &Card, hosts: &[(String, Card)], is_over: impl Fn(&Owner) -> bool) -> Next {
        let mut state = self.state();
        if card.places.values().all(|places| *places == 0) {
            state.free = None;
            return Next::Nothing;
        }
        let free = *state.free.get_or_insert_with(Instant::now);
        state.note_unmet(|| hosts.iter().map(|(_, card)| card).chain([card]));
        let mut wait: Option<Duration> = None;
        let after = state.last.clone();
        let is_later = |member: &&MemberKey| after.as_ref().is_none_or(|last| *member > last);
        let (later, earlier): (Vec<_>, Vec<_>) = state.members.keys().partition(is_later);
        let turns: Vec<MemberKey> = later.into_iter().chain(earlier).cloned().collect();
        for member in turns {
            let mut due: Option<(u64, JobName, Needs)> = None;
            for (needs, line) in state.members.get(&member).into_iter().flatten() {
                let least;
                let wanted = match state.is_hopeless(&member, needs) {
                    false => &**needs,
                    true => {
                        least = Needs { member: String::new(), roots: Vec::new(), ..Needs::clone(needs) };
                        &least
                    }
                };
                if !are_met(wanted, &member, card) {
                    continue;
                }
                let others = hosts.iter().filter(|(_, card)| could_be_met(wanted, &member, card));
                let others: Vec<_> = others.map(|(host, card)| (host, has_place(needs, card))).collect();
                let names = line.iter().filter_map(|(sequence, open)| {
                    let name = JobName { member: member.clone(), job: open.job.clone() };
                    let is_free = open.holder.as_ref().is_none_or(|holder| is_over(holder));
                    let passed = state.passed_over.get(&name);
                    let is_passed =
                        state.taking.contains(&name) || passed.is_some_and(|(at, time)| at.elapsed() < *time);
                    (is_free && !is_passed).then_some((*sequence, name, open))
                });
                for (sequence, name, open) in names.take(CONSIDERED) {
                    if due.as_ref().is_some_and(|(first, ..)| *first < sequence) {
                        break;
                    }
                    let own_rank = rank(&own.host, &name);
                    let (mut higher, mut full) = (0, 0);
                    // A job that has waited for long is as new to a host whose sessions have just ended, as they have at
                    // others.
                    let waited = open.since.elapsed().min(free.elapsed());
                    let mut idle = waited;
                    for (host, has_place) in others.iter().filter(|(host, _)| rank(host, &name) > own_rank) {
                        // Its card is some seconds old, so it may have a place by now.
                        if *has_place {
                            higher += 1
                        } else {
                            full = 1
                        }
                        // A host that is taking jobs comes to this one soon.
                        idle = state.takes.get(*host).map_or(idle, |take| idle.min(take.elapsed()));
                    }
                    // While this host takes jobs of its own, those of a host that does so too are left to it.
                    let quiet = state.takes.get(&own.host).map_or(waited, |claim| waited.min(claim.elapsed()));
                    let left = (STEP * (higher + full)).saturating_sub(idle).min(MOST_WAIT.saturating_sub(quiet));
                    if left.is_zero() {
                        due = Some((sequence, name, Needs::clone(needs)));
                        break;
                    }
                    wait = Some(wait.map_or(left, |wait| wait.min(left)));
                }
            }
            if let Some((_, name, needs)) = due {
                state.taking.insert(name.clone());
                state.takes.insert(own.host.clone(), Instant::now());
                state.last = Some(member);
                let heard = state.jobs.get(&name).map_or(0, |place| place.heard);
                return Next::Take(name, needs, heard);
            }
        }
        wait.map_or(Next::Nothing, Next::Wait)
    }

    /// Counts a claim that was won.
    pub fn won(&self, name: &JobName) {
        self.claims.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        state.taking.remove(name);
        state.remove(name);
    }

    /// Counts a claim that another host won. The job is passed over until the log tells of its new holder.
    pub fn lost(&self) {
        self.claims.fetch_add(1, Ordering::Relaxed);
        self.lost.fetch_add(1, Ordering::Relaxed);
        self.state().free = None;
    }

    /// Puts a job back that was not claimed, or whose claim could not be decided.
    pub fn unclaimed(&self, name: &JobName) {
        self.state().taking.remove(name);
    }

    /// Passes over a job for a while, since this host cannot carry it out.
    pub fn pass_over(&self, name: &JobName) {
        let mut state = self.state();
        state.taking.remove(name);
        let before = state.passed_over.get(name).map(|(_, time)| *time);
        let time = before.map_or(PASSED_OVER.0, |time| (time * 2).min(PASSED_OVER.1));
        state.passed_over.insert(name.clone(), (Instant::now(), time));
    }

    /// Lets the wait for higher ranks begin for the jobs of owners whose life is over by now.
    pub fn orphan(&self, is_over: impl Fn(&Owner) -> bool) {
        let mut state = self.state();
        for open in state.members.values_mut().flat_map(BTreeMap::values_mut).flat_map(BTreeMap::values_mut) {
            if open.holder.as_ref().is_some_and(|holder| is_over(holder)) {
                open.since = Instant::now();
            }
        }
    }
}

impl State {
    /// Notes the needs that no host has any more. These are the cards of all living hosts.
    fn note_unmet<'a, C: Iterator<Item = &'a Card>>(&mut self, cards: impl Fn() -> C) {
        let lines = self.members.iter().flat_map(|(member, lines)| lines.keys().map(move |needs| (member, needs)));
        let unmet = lines.filter(|(member, needs)| !cards().any(|card| could_be_met(needs, member, card)));
        let since = |(member, needs): (&MemberKey, &Arc<Needs>)| {
            let key = (member.clone(), needs.clone());
            let since = self.unmet.get(&key).copied().unwrap_or_else(Instant::now);
            (key, since)
        };
        self.unmet = unmet.map(since).collect();
    }

    /// Whether no host has had what jobs need for long.
    fn is_hopeless(&self, member: &MemberKey, needs: &Arc<Needs>) -> bool {
        self.unmet.get(&(member.clone(), needs.clone())).is_some_and(|since| since.elapsed() >= UNMET)
    }

    fn insert(&mut self, seen: &JobSeen, sequence: u64, open: Open) {
        let JobSeen { name, needs, sequence: heard, .. } = seen;
        self.waiting += usize::from(open.holder.is_none());
        let lines = self.members.entry(name.member.clone()).or_default();
        let known = lines.get_key_value(needs).map(|(needs, _)| needs.clone());
        let needs = known.unwrap_or_else(|| Arc::new(needs.clone()));
        lines.entry(needs.clone()).or_default().insert(sequence, open);
        self.jobs.insert(name.clone(), Place { needs, sequence, heard: *heard });
    }

    fn remove(&mut self, name: &JobName) -> Option<(u64, Open)> {
        let Place { needs, sequence, .. } = self.jobs.remove(name)?;
        let lines = self.members.get_mut(&name.member)?;
        let line = lines.get_mut(&needs)?;
        let open = line.remove(&sequence)?;
        if line.is_empty() {
            lines.remove(&needs);
        }
        if lines.is_empty() {
            self.members.remove(&name.member);
        }
        self.waiting -= usize::from(open.holder.is_none());
        Some((sequence, open))
    }
}

/// A job that this host has taken.
pub struct Taken<P> {
    /// The job.
    pub name: JobName,
    /// The job as its log says.
    pub job: Box<Folded>,
    /// Whether its last holder stopped without giving it back.
    pub is_interrupted: bool,
    /// The place that was reserved for it.
    pub place: P,
}

/// Takes the next job for which this host has a place by its card, and for which `reserve` finds it; `None` if none can
/// be taken now. It may wait for hosts that rank higher.
///
/// # Errors
///
/// Returns an error when the fate of a claim is unknown. The job stays in the queue then.
pub async fn take_next<P>(
    queue: &Queue,
    logs: &Logs,
    presence: &Presence,
    reserve: impl Fn(&MemberKey, &Needs) -> Option<P>,
) -> Result<Option<Taken<P>>, StoreError> {
    loop {
        if !presence.may_begin() {
            return Ok(None);
        }
        let alive = presence.others().into_iter().filter(|host| host.dead_by.is_none());
        let hosts: Vec<_> = alive.map(|host| (host.owner.host, host.card)).collect();
        match queue.next(logs.own(), &presence.card(), &hosts, |owner| presence.is_over(owner)) {
            Next::Nothing => return Ok(None),
            Next::Wait(time) => sleep(time).await,
            Next::Take(name, needs, heard) => {
                // A session that began here meanwhile may have the place.
                let Some(place) = reserve(&name.member, &needs) else {
                    queue.unclaimed(&name);
                    return Ok(None);
                };
                match logs.take(&name, heard, |owner| presence.is_over(owner)).await {
                    Ok(Take::Taken { job, is_interrupted }) => {
                        queue.won(&name);
                        return Ok(Some(Taken { name, job, is_interrupted, place }));
                    }
                    Ok(Take::Lost | Take::NotFree(_)) => queue.lost(),
                    Err(StoreError::Damaged(why)) => {
                        tracing::error!(job = %name.job, "this host cannot carry the job out: {why}");
                        queue.pass_over(&name);
                    }
                    Err(error) => {
                        queue.unclaimed(&name);
                        return Err(error);
                    }
                }
            }
        }
    }
}

/// A number that is the same at all hosts, so that each job has its own order of hosts.
fn rank(host: &str, name: &JobName) -> [u8; 8] {
    let mut digest = Sha256::new();
    for part in [host, name.member.as_str(), name.job.as_str()] {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    let digest = digest.finalize();
    std::array::from_fn(|index| digest.get(index).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Standing;

    fn owner(host: &str) -> Owner {
        Owner { host: host.to_owned(), incarnation: "1".to_owned() }
    }

    fn card(runtime: &str) -> Card {
        let members = ["x", "y", "z"].map(|member| (member.to_owned(), String::new()));
        Card { places: BTreeMap::from([(runtime.to_owned(), 1)]), members: members.into(), ..Card::default() }
    }

    fn seen(member: &str, job: &str, sequence: u64, holder: Holder<Owner>) -> JobSeen {
        JobSeen {
            name: JobName { member: member.parse().unwrap(), job: job.parse().unwrap() },
            sequence,
            stored: sequence.into(),
            writer: owner("x"),
            standing: Standing { holder, epoch: 1 },
            needs: Needs::of("api"),
            head: String::new(),
            events: String::new(),
        }
    }

    impl Queue {
        /// Lets the host have had a place for so long without a claim, as long as all jobs have been there.
        fn waited(&self, time: Duration) {
            let (mut state, since) = (self.state(), Instant::now().checked_sub(time).unwrap());
            state.free = Some(since);
            state.takes.remove("a");
            let lines = state.members.values_mut().flat_map(BTreeMap::values_mut);
            lines.flat_map(BTreeMap::values_mut).for_each(|open| open.since = since);
        }
    }

    fn take(queue: &Queue, hosts: &[(String, Card)], is_over: bool) -> Option<String> {
        match queue.next(&owner("a"), &card("api"), hosts, |_| is_over) {
            Next::Take(name, ..) => Some(name.job.to_string()),
            _ => None,
        }
    }

    /// Whether `b` ranks higher than `a` for a job of the member `x`.
    fn is_for_b(job: &str) -> bool {
        let name = seen("x", job, 1, Holder::Waiting).name;
        rank("b", &name) > rank("a", &name)
    }

    #[test]
    fn members_take_turns_each_with_its_oldest_job() {
        let queue = Queue::default();
        for (member, job, sequence) in [("x", "x1", 1), ("x", "x2", 2), ("x", "x3", 3), ("y", "y1", 4), ("y", "y2", 5)]
        {
            queue.hear(&seen(member, job, sequence, Holder::Waiting), &owner("a"));
        }
        assert_eq!(queue.waiting(), 5);
        let order: Vec<_> = std::iter::from_fn(|| take(&queue, &[], false)).collect();
        assert_eq!(order, ["x1", "y1", "x2", "y2", "x3"]);
        queue.won(&seen("x", "x1", 1, Holder::Waiting).name);
        queue.hear(&seen("y", "y1", 6, Holder::Held(owner("b"))), &owner("a"));
        assert_eq!(queue.waiting(), 3);
    }

    #[test]
    fn a_job_is_for_hosts_that_have_what_it_needs() {
        let queue = Queue::default();
        let mut job = seen("x", "x1", 1, Holder::Waiting);
        job.needs.roots = vec!["data".to_owned()];
        job.needs.hall = true;
        queue.hear(&job, &owner("a"));
        assert_eq!(take(&queue, &[], false), None);
        assert!(!are_met(&job.needs, &job.name.member, &card("claude")));
        let full = Card { roots: vec!["data".to_owned()], hall: true, ..card("api") };
        assert!(are_met(&job.needs, &job.name.member, &full));
        assert!(!are_met(&job.needs, &job.name.member, &Card { places: BTreeMap::new(), ..full }));
    }

    #[test]
    fn a_job_goes_on_without_the_version_and_the_roots_that_no_host_has_had_for_long() {
        let queue = Queue::default();
        let needs = Needs { member: "old".to_owned(), roots: vec!["docs".to_owned()], ..Needs::of("api") };
        queue.hear(&JobSeen { needs, ..seen("x", "x1", 1, Holder::Waiting) }, &owner("a"));
        let with = |version: &str, roots: &[&str]| {
            let roots = roots.iter().map(|root| (*root).to_owned()).collect();
            Card { roots, members: BTreeMap::from([("x".to_owned(), version.to_owned())]), ..card("api") }
        };
        let next = |hosts: &[Card]| {
            let hosts: Vec<_> = hosts.iter().map(|card| ("b".to_owned(), card.clone())).collect();
            queue.next(&owner("a"), &with("new", &[]), &hosts, |_| false)
        };
        let later = || {
            let mut state = queue.state();
            state.unmet.values_mut().for_each(|since| *since = since.checked_sub(UNMET).unwrap());
        };
        assert_eq!(next(&[]), Next::Nothing);
        later();
        assert_eq!(next(&[with("old", &["docs"])]), Next::Nothing, "a host has both");
        assert_eq!(next(&[with("old", &[]), with("new", &["docs"])]), Next::Nothing, "no host has both since just now");
        later();
        assert!(matches!(next(&[]), Next::Take(name, ..) if name.job.as_str() == "x1"));
    }

    #[test]
    fn a_job_that_cannot_be_carried_out_keeps_no_other_one_waiting() {
        let queue = Queue::default();
        for (job, sequence) in [("x1", 1), ("x2", 2)] {
            queue.hear(&seen("x", job, sequence, Holder::Waiting), &owner("a"));
        }
        let first = seen("x", "x1", 3, Holder::Waiting);
        assert_eq!(take(&queue, &[], false), Some("x1".to_owned()));
        queue.pass_over(&first.name);
        queue.hear(&first, &owner("a"));
        assert_eq!(take(&queue, &[], false), Some("x2".to_owned()));
        assert_eq!(take(&queue, &[], false), None);
        queue.state().passed_over.values_mut().for_each(|(at, time)| *at = at.checked_sub(*time).unwrap());
        assert_eq!(take(&queue, &[], false), Some("x1".to_owned()), "it is tried again");
        for _ in 0..20 {
            queue.pass_over(&first.name);
        }
        assert_eq!(queue.state().passed_over.get(&first.name).unwrap().1, PASSED_OVER.1);
    }

    #[test]
    fn a_job_of_another_host_can_be_taken_once_that_host_is_over() {
        let queue = Queue::default();
        queue.hear(&seen("x", "x1", 1, Holder::Held(owner("b"))), &owner("a"));
        assert_eq!(take(&queue, &[], false), None);
        assert_eq!(queue.waiting(), 0);
        assert_eq!(take(&queue, &[], true), Some("x1".to_owned()));
        queue.lost();
        assert_eq!(take(&queue, &[], true), None, "a lost job waits until the log tells more");
        queue.hear(&seen("x", "x1", 2, Holder::Held(owner("c"))), &owner("a"));
        assert_eq!(take(&queue, &[], true), Some("x1".to_owned()));
        queue.hear(&seen("x", "x1", 3, Holder::Ended), &owner("a"));
        assert_eq!(take(&queue, &[], true), None);
        assert_eq!(queue.claims(), Claims { made: 1, lost: 1 });
    }

    #[test]
    fn jobs_are_counted_by_member_and_the_oldest_that_waits_is_known() {
        let queue = Queue::default();
        for (member, job, sequence, holder) in [
            ("x", "x1", 7, Holder::Waiting),
            ("x", "x2", 3, Holder::Held(owner("b"))),
            ("x", "x3", 5, Holder::Held(owner("a"))),
            ("y", "y1", 9, Holder::Waiting),
            ("z", "z1", 2, Holder::Held(owner("a"))),
        ] {
            queue.hear(&seen(member, job, sequence, holder), &owner("a"));
        }
        let counts =
            |queue: &Queue| queue.by_member().into_iter().map(|(key, counts)| (key.to_string(), counts)).collect();
        let counted: Vec<(String, (u64, u64))> = counts(&queue);
        assert_eq!(counted, [("x".to_owned(), (1, 2)), ("y".to_owned(), (1, 0)), ("z".to_owned(), (0, 1))]);
        assert_eq!(queue.oldest(), Some(7));
        queue.hear(&seen("z", "z1", 10, Holder::Ended), &owner("a"));
        queue.hear(&seen("x", "x3", 11, Holder::Waiting), &owner("a"));
        let counted: Vec<(String, (u64, u64))> = counts(&queue);
        assert_eq!(counted, [("x".to_owned(), (2, 1)), ("y".to_owned(), (1, 0))]);
    }

    #[test]
    fn hosts_whose_sessions_end_at_once_share_the_jobs_that_have_waited_for_long() {
        let queue = Queue::default();
        for job in 0..20 {
            queue.hear(&seen("x", &format!("j{job}"), job, Holder::Waiting), &owner("a"));
        }
        let full = Card { places: BTreeMap::from([("api".to_owned(), 0)]), ..card("api") };
        let hosts = [("b".to_owned(), full.clone())];
        queue.waited(STEP * 2);
        assert_eq!(queue.next(&owner("a"), &full, &hosts, |_| false), Next::Nothing);
        // The other host's card does not say yet that it has places.
        let next = queue.next(&owner("a"), &card("api"), &hosts, |_| false);
        let Next::Take(name, ..) = next else { panic!("{next:?}") };
        assert!(rank("a", &name) > rank("b", &name));
    }

    #[test]
    fn a_host_with_a_place_waits_a_while_at_most_though_another_takes_job_after_job() {
        let queue = Queue::default();
        let job = (0..).map(|nth| format!("j{nth}")).find(|job| is_for_b(job)).unwrap();
        queue.hear(&seen("x", &job, 1, Holder::Waiting), &owner("a"));
        let hosts = [("b".to_owned(), card("api"))];
        // A job that `b` was given by its caller was nobody else's.
        queue.waited(STEP * 2);
        queue.hear(&seen("x", "given", 2, Holder::Held(owner("b"))), &owner("a"));
        assert_eq!(take(&queue, &hosts, false).as_ref(), Some(&job));
        queue.unclaimed(&seen("x", &job, 1, Holder::Waiting).name);
        queue.waited(STEP * 2);
        queue.hear(&seen("x", "taken", 3, Holder::Waiting), &owner("a"));
        queue.hear(&seen("x", "taken", 4, Holder::Held(owner("b"))), &owner("a"));
        assert_eq!(take(&queue, &hosts, false), None);
        queue.waited(MOST_WAIT);
        assert_eq!(take(&queue, &hosts, false).as_ref(), Some(&job));
        // The other host was about to take it.
        queue.lost();
        queue.unclaimed(&seen("x", &job, 1, Holder::Waiting).name);
        assert_eq!(take(&queue, &hosts, false), None);
    }

    #[test]
    fn a_host_that_takes_jobs_for_long_leaves_those_of_another_that_does_so_too() {
        let queue = Queue::default();
        let (others, own): (Vec<_>, Vec<_>) = (0..20).map(|nth| format!("j{nth}")).partition(|job| is_for_b(job));
        let (others, own) = (others.first().unwrap(), own.first().unwrap());
        for (job, sequence) in [(others, 1), (own, 2), (&"taken".to_owned(), 3)] {
            queue.hear(&seen("x", job, sequence, Holder::Waiting), &owner("a"));
        }
        let hosts = [("b".to_owned(), card("api"))];
        queue.waited(MOST_WAIT * 2);
        queue.state().takes.insert("a".to_owned(), Instant::now());
        queue.hear(&seen("x", "taken", 4, Holder::Held(owner("b"))), &owner("a"));
        assert_eq!(take(&queue, &hosts, false).as_ref(), Some(own));
        assert_eq!(take(&queue, &hosts, false), None, "the other host comes to its own job soon");
    }

    #[test]
    fn hosts_with_places_share_the_jobs_by_rank_without_a_wait() {
        let queue = Queue::default();
        for job in 0..100 {
            queue.hear(&seen("x", &format!("j{job}"), job, Holder::Waiting), &owner("a"));
        }
        let hosts = [("b".to_owned(), card("api"))];
        let own = std::iter::from_fn(|| take(&queue, &hosts, false)).take_while(|_| true);
        // A job for which `b` ranks higher waits a moment, so the first jobs are taken out of order.
        let first: Vec<_> = own.take(20).collect();
        assert_eq!(first.len(), 20);
        assert!(first.iter().filter(|job| !is_for_b(job)).count() >= 15, "{first:?}");
    }
}
