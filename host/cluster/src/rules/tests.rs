//! Searches every course of two hosts with one job: each may dispatch, take, give back, cancel and delete it, crash and begin
//! again, or stand still for as long as it likes; requests are delayed, lost and delivered twice, answers are lost,
//! appends are refused without a cause, and each read may be out of date.

use std::{
    collections::HashSet,
    hash::{BuildHasherDefault, Hash, Hasher},
};

use super::*;

/// The host, its incarnation, and the number of the append.
type Id = (u8, u8, u8);
/// The host and its incarnation.
type Owner = (u8, u8);

/// The content of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Act {
    /// `born`, and `own` in the first epoch.
    Dispatch,
    Take(u8),
    /// A call of a tool that has an effect.
    Call,
    /// The result of the call; or that it was interrupted.
    Answer,
    Complete,
    /// The owner gives the job back.
    Free,
    Cancel,
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Message {
    id: Id,
    /// The sequence that has to be the last.
    expected: u8,
    act: Act,
}

impl Hash for Message {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let act = match self.act {
            Act::Dispatch => 0,
            Act::Call => 1,
            Act::Answer => 2,
            Act::Complete => 3,
            Act::Cancel => 4,
            Act::Delete => 5,
            Act::Free => 6,
            Act::Take(epoch) => 8 + epoch,
        };
        state.write_u64(u64::from_be_bytes([0, 0, 0, self.id.0, self.id.1, self.id.2, self.expected, act]));
    }
}

/// The progress of an owner's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Begun,
    /// The log has the call; its effect may start.
    Called,
    /// The effect has started, or the call was interrupted.
    Started,
    Answered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Nothing,
    /// Holds the job; the log's last message is `tail`.
    Holds {
        tail: u8,
        step: Step,
    },
    /// Waits for an answer.
    Sent {
        message: Message,
        then: Step,
    },
    /// Has no answer, or was refused, and has to look.
    Unsure {
        message: Message,
        then: Step,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Host {
    incarnation: u8,
    appends: u8,
    doing: Doing,
}

/// The faults that may still happen, which bound the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Left {
    crashes: u8,
    timeouts: u8,
    doubles: u8,
    refusals: u8,
    takes: u8,
    cancels: u8,
    frees: u8,
    /// Decisions made from a log that is out of date.
    stale: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    log: Vec<Message>,
    /// Requests on their way.
    network: Vec<Message>,
    hosts: [Host; 2],
    left: Left,
    /// How often the effect of the call at this sequence was started, as one bit for each.
    effects: u16,
    /// Whether callers were told of an end: completed, cancelled.
    told: [bool; 2],
    /// A rule that was broken.
    wrong: Option<&'static str>,
}

/// Faults together in one course.
const FAULTS: Left =
    Left { crashes: 1, timeouts: 1, doubles: 1, refusals: 1, takes: 2, cancels: 1, frees: 0, stale: 0 };

/// A rule that the hosts of a search break, to show that the search would find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// Sends again under the id of another append.
    ResendsAsAnother,
    /// Takes a refusal for a proof that nothing is stored, and an unanswered append for stored.
    TrustsAnswers,
    /// Makes a call without a result again.
    CallsAgain,
    /// Starts the effect before the log has the call.
    StartsEarly,
    /// Appends without a condition.
    Unconditional,
}

fn mark(message: &Message) -> [Option<Mark<Owner>>; 2] {
    let owner = (message.id.0, message.id.1);
    match message.act {
        Act::Dispatch => [Some(Mark::Born), Some(Mark::Own(owner, 1))],
        Act::Take(epoch) => [Some(Mark::Own(owner, u64::from(epoch))), None],
        Act::Call | Act::Answer => [Some(Mark::Work), None],
        Act::Complete | Act::Cancel => [Some(Mark::End), None],
        Act::Free => [Some(Mark::Free), None],
        Act::Delete => [Some(Mark::Gone), None],
    }
}

fn standing(log: &[Message]) -> Standing<Owner> {
    log.iter().flat_map(mark).flatten().fold(Standing::default(), Standing::after)
}

/// How far a session is by its log. A call without an answer was interrupted.
fn resumed(log: &[Message], broken: Broken) -> Step {
    let has = |act| log.iter().any(|message| message.act == act);
    match (has(Act::Call), has(Act::Answer)) {
        (_, true) => Step::Answered,
        (true, false) if broken == Broken::CallsAgain => Step::Called,
        (true, false) => Step::Started,
        (false, false) => Step::Begun,
    }
}

impl State {
    fn begin(left: Left) -> Self {
        let host = Host { incarnation: 0, appends: 0, doing: Doing::Nothing };
        Self { log: Vec::new(), network: Vec::new(), hosts: [host; 2], left, effects: 0, told: [false; 2], wrong: None }
    }

    /// All states that can follow.
    fn next(&self, broken: Broken, visit: &mut impl FnMut(State)) {
        for host in 0..2 {
            self.act(host, broken, visit);
        }
        for (index, message) in self.network.iter().enumerate() {
            let mut taken = self.clone();
            taken.network.remove(index);
            // The request is delivered once or twice, and its answer is lost, or arrives. A request that is lost is one
            // that stays in the network.
            let refused_without_cause = self.left.refusals > 0;
            for (is_kept, is_answered, is_refused) in
                [(false, true, false), (false, false, false), (true, true, false), (false, true, true)]
            {
                if (is_kept && self.left.doubles == 0) || (is_refused && !refused_without_cause) {
                    continue;
                }
                let mut state = if is_kept { self.clone() } else { taken.clone() };
                state.left.doubles -= u8::from(is_kept);
                state.left.refusals -= u8::from(is_refused);
                let is_met = broken == Broken::Unconditional || usize::from(message.expected) == self.log.len();
                let is_stored = is_met && !is_refused;
                if is_stored {
                    state.store(*message);
                }
                if is_answered {
                    state.answer(message, is_stored, broken);
                }
                visit(state);
            }
        }
    }

    fn store(&mut self, message: Message) {
        let before = standing(&self.log);
        let is_owner = before.holder == Holder::Held((message.id.0, message.id.1));
        if self.log.iter().any(|other| other.id == message.id) {
            self.wrong = Some("an append is stored twice");
        }
        match message.act {
            Act::Call | Act::Answer | Act::Complete | Act::Free if !is_owner => {
                self.wrong = Some("an old owner's append is stored")
            }
            Act::Complete | Act::Cancel if before.is_ended() => self.wrong = Some("a job has two ends"),
            Act::Call if self.log.iter().any(|other| other.act == Act::Call) => {
                self.wrong = Some("a call is made twice");
            }
            _ => {}
        }
        self.log.push(message);
    }

    /// The answer reaches the host, if it still waits for it.
    fn answer(&mut self, message: &Message, is_stored: bool, broken: Broken) {
        let host = usize::from(message.id.0);
        let Doing::Sent { message: waiting, then } = self.hosts[host].doing else { return };
        if waiting != *message {
            return;
        }
        if is_stored {
            let sequence = self.log.len() as u64;
            self.settled(host, waiting, then, Settled::Stored { sequence, is_overtaken: false });
        } else if broken == Broken::TrustsAnswers {
            self.settled(host, waiting, then, Settled::Refused);
        } else {
            self.hosts[host].doing = Doing::Unsure { message: waiting, then };
        }
    }

    /// The host knows the fate of its append.
    fn settled(&mut self, host: usize, message: Message, then: Step, settled: Settled) {
        self.hosts[host].doing = match settled {
            Settled::Unknown => {
                self.network.push(message);
                Doing::Sent { message, then }
            }
            Settled::Refused => {
                if self.log.iter().any(|other| other.id == message.id) {
                    self.wrong = Some("an append that was taken for refused is stored");
                }
                Doing::Nothing
            }
            Settled::Stored { sequence, is_overtaken } => {
                if self.log.get(sequence as usize - 1).map(|stored| stored.id) != Some(message.id) {
                    self.wrong = Some("an acknowledged append is not in the log");
                }
                match message.act {
                    Act::Complete | Act::Cancel => {
                        self.told[usize::from(message.act == Act::Cancel)] = true;
                        Doing::Nothing
                    }
                    Act::Delete | Act::Free => Doing::Nothing,
                    _ if is_overtaken => Doing::Nothing,
                    _ => Doing::Holds { tail: sequence as u8, step: then },
                }
            }
        };
    }

    /// What a host can do by itself.
    fn act(&self, index: usize, broken: Broken, visit: &mut impl FnMut(State)) {
        let host = self.hosts[index];
        if host.doing != Doing::Nothing && self.left.crashes > 0 {
            let mut state = self.clone();
            state.left.crashes -= 1;
            state.hosts[index] = Host { incarnation: host.incarnation + 1, appends: 0, doing: Doing::Nothing };
            visit(state);
        }
        match host.doing {
            Doing::Nothing => self.read_and_decide(index, broken, visit),
            Doing::Holds { tail, step } => {
                let mut send = |act, then| visit(self.sent(index, tail, act, then, broken));
                match step {
                    Step::Begun => send(Act::Call, Step::Called),
                    Step::Called => {
                        let mut state = self.clone();
                        state.start_effect();
                        state.hosts[index].doing = Doing::Holds { tail, step: Step::Started };
                        visit(state);
                        return;
                    }
                    Step::Started => send(Act::Answer, Step::Answered),
                    Step::Answered => send(Act::Complete, Step::Answered),
                }
                if self.left.cancels > 0 {
                    send(Act::Cancel, Step::Answered);
                }
                if self.left.frees > 0 && matches!(step, Step::Begun | Step::Answered) {
                    send(Act::Free, step);
                }
            }
            Doing::Sent { message, then } if self.left.timeouts > 0 => {
                let mut state = self.clone();
                state.left.timeouts -= 1;
                if broken == Broken::TrustsAnswers {
                    let sequence = u64::from(message.expected) + 1;
                    state.settled(index, message, then, Settled::Stored { sequence, is_overtaken: false });
                } else {
                    state.hosts[index].doing = Doing::Unsure { message, then };
                }
                visit(state);
            }
            Doing::Sent { .. } => {}
            Doing::Unsure { message, then } => {
                for seen in 0..=self.log.len() {
                    let after = self.log.iter().take(seen).enumerate().skip(usize::from(message.expected));
                    let after = after.map(|(at, other)| (at as u64 + 1, other.id));
                    let mut state = self.clone();
                    let (settled, mut message) = (settle(&message.id, after), message);
                    if settled == Settled::Unknown && broken == Broken::ResendsAsAnother {
                        message.id.2 += 100;
                        message.expected = self.log.len() as u8;
                    }
                    state.settled(index, message, then, settled);
                    visit(state);
                }
            }
        }
    }

    /// A host that holds nothing reads the log, or a part of it, and dispatches, takes, cancels or deletes. Whether the
    /// owner is dead is open at any time: no rule about logs relies on rule 4.
    fn read_and_decide(&self, index: usize, broken: Broken, visit: &mut impl FnMut(State)) {
        let oldest = if self.left.stale > 0 { 0 } else { self.log.len() };
        for seen in oldest..=self.log.len() {
            let log = &self.log[..seen];
            let (standing, tail) = (standing(log), seen as u8);
            let mut now = self.clone();
            now.left.stale -= u8::from(seen < self.log.len());
            let mut send = |act, then| visit(now.sent(index, tail, act, then, broken));
            if standing.holder == Holder::Unborn && index == 0 {
                send(Act::Dispatch, Step::Begun);
            }
            if let Some(epoch) = standing.next_epoch(|_| true).filter(|_| self.left.takes > 0) {
                send(Act::Take(epoch as u8), resumed(log, broken));
            }
            match standing.holder {
                Holder::Waiting | Holder::Held(_) if self.left.cancels > 0 => send(Act::Cancel, Step::Answered),
                Holder::Ended if self.left.cancels > 0 => send(Act::Delete, Step::Answered),
                _ => {}
            }
        }
    }

    fn sent(&self, index: usize, tail: u8, act: Act, then: Step, broken: Broken) -> Self {
        let mut state = self.clone();
        let host = &mut state.hosts[index];
        let message = Message { id: (index as u8, host.incarnation, host.appends), expected: tail, act };
        host.appends += 1;
        host.doing = Doing::Sent { message, then };
        state.left.takes -= u8::from(matches!(act, Act::Take(_)));
        state.left.cancels -= u8::from(matches!(act, Act::Cancel | Act::Delete));
        state.left.frees -= u8::from(act == Act::Free);
        state.network.push(message);
        state.network.sort_unstable();
        if act == Act::Call && broken == Broken::StartsEarly {
            state.start_effect();
        }
        state
    }

    /// Starts the effect of the job's call.
    fn start_effect(&mut self) {
        if self.effects > 0 {
            self.wrong = Some("an effect is started twice for a call");
        }
        self.effects += 1;
    }

    /// Leaves out differences that change nothing: the order of requests, and requests that nobody waits for and that
    /// cannot be stored any more.
    fn forget(&mut self) {
        let (last, hosts) = (self.log.len(), self.hosts);
        let waits = |request: &Message| matches!(hosts[usize::from(request.id.0)].doing, Doing::Sent { message, .. } if message == *request);
        self.network.retain(|request| usize::from(request.expected) >= last || waits(request));
        self.network.sort_unstable();
    }

    fn check(&self) -> Option<&'static str> {
        let end = self.log.iter().find_map(|message| match message.act {
            Act::Complete => Some(0),
            Act::Cancel => Some(1),
            _ => None,
        });
        let is_as_told = (0..2).all(|outcome| !self.told[outcome] || end == Some(outcome));
        self.wrong.or((!is_as_told).then_some("a caller was told another end than the log has"))
    }
}

/// A hash that is faster than the standard library's, for keys that no attacker chooses.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
}

/// The states of a search, the ends that were reached, and the first broken rule.
fn search(left: Left, broken: Broken) -> (usize, HashSet<Act>, Option<&'static str>) {
    let mut seen: HashSet<State, BuildHasherDefault<Mix>> = HashSet::default();
    let (mut open, mut reached) = (vec![State::begin(left)], HashSet::new());
    seen.insert(State::begin(left));
    while let Some(state) = open.pop() {
        if let Some(wrong) = state.check() {
            return (seen.len(), reached, Some(wrong));
        }
        reached.extend(state.log.last().map(|message| message.act));
        state.next(broken, &mut |mut next| {
            next.forget();
            if !seen.contains(&next) {
                seen.insert(next.clone());
                open.push(next);
            }
        });
    }
    (seen.len(), reached, None)
}

#[test]
fn no_course_of_two_hosts_breaks_a_promise() {
    // More faults of one kind are searched without others, which would multiply the states.
    let pauses = Left { crashes: 0, timeouts: 3, doubles: 0, refusals: 0, stale: 1, ..FAULTS };
    let crashes = Left { crashes: 2, timeouts: 0, refusals: 0, ..FAULTS };
    let stale = Left { timeouts: 0, doubles: 0, refusals: 0, stale: 2, ..FAULTS };
    let drains = Left { doubles: 0, refusals: 0, frees: 1, ..FAULTS };
    let (mut states, mut reached) = (0, HashSet::new());
    for left in [FAULTS, pauses, crashes, stale, drains] {
        let (seen, ends, wrong) = search(left, Broken::Nothing);
        assert_eq!(wrong, None, "{left:?}");
        println!("{seen} states of {left:?}");
        states += seen;
        reached.extend(ends);
    }
    assert!(states > 1_000_000, "only {states} states: the search is cut short");
    assert!([Act::Complete, Act::Cancel, Act::Delete, Act::Free, Act::Take(3)].iter().all(|act| reached.contains(act)));
}

#[test]
fn the_search_finds_each_rule_that_is_broken() {
    for broken in [
        Broken::ResendsAsAnother,
        Broken::TrustsAnswers,
        Broken::CallsAgain,
        Broken::StartsEarly,
        Broken::Unconditional,
    ] {
        assert!(search(FAULTS, broken).2.is_some(), "{broken:?}");
    }
}

#[test]
fn silence_counts_on_the_clock_of_a_host_that_was_connected_all_that_time() {
    let (times, seconds) = (Times::default(), Duration::from_secs);
    assert!(may_declare_dead(seconds(30), seconds(30), &times));
    assert!(!may_declare_dead(seconds(29), seconds(300), &times));
    // An outage of NATS silences all hosts: nobody was connected, and nobody is declared dead.
    assert!(!may_declare_dead(seconds(300), seconds(29), &times));
    assert!(may_begin(seconds(19), &times));
    assert!(!may_begin(seconds(20), &times));
    assert!(times.stop < times.silent, "a host stops before another may take its jobs");
}
