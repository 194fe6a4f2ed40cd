//! Decides what a host may do with a job, as pure functions of what it has read. Everything else in this crate asks
//! here; the test below searches every course that two hosts can take.
//!
//! 1. Whatever decides about a job is appended to its log, on the condition that the log's last message is the one that
//!    the decision was made from. Nothing is decided by a read.
//! 2. The host of the last `own` holds the job, until `free`, `end` or another `own` ([`Standing`]). A host takes a job
//!    by an `own` on the condition of the last message that it has read ([`Standing::next_epoch`]): so it has read exactly
//!    what was acknowledged.
//! 3. An append that was refused or not answered proves nothing: NATS refuses some without a cause, and an answer can
//!    be lost. The log tells ([`settle`]).
//! 4. A host is dead when another host has replaced its presence by a statement of its death, on the condition of the
//!    last refresh that was seen. That host must have seen no refresh for [`Times::silent`] on its own clock, while its own
//!    refreshes were acknowledged all that time ([`may_declare_dead`]). No wall clock and no clock of a server is part
//!    of it.
//! 5. A host whose last acknowledged refresh was sent more than [`Times::stop`] ago begins nothing ([`may_begin`]).
//! 6. A tool that has an effect is called once the log has the call. A call in a log without its result is told to the
//!    model as interrupted, and is not made again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The bounds of silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How long a host has to be silent before another declares it dead.
    pub silent: Duration,
    /// How long after its last acknowledged refresh a host still begins something. It is shorter than `silent`.
    pub stop: Duration,
    /// The interval between two refreshes.
    pub refresh: Duration,
}

impl Default for Times {
    /// An election of NATS takes up to 12 s without an acknowledged write, so a host that is well is not silent for
    /// longer than that.
    fn default() -> Self {
        Self { silent: Duration::from_secs(30), stop: Duration::from_secs(20), refresh: Duration::from_secs(5) }
    }
}

/// A record, as far as it decides who may append. `O` is the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark<O> {
    /// The job exists, and waits.
    Born,
    /// An owner holds the job, in this epoch.
    Own(O, u64),
    /// The job waits again.
    Free,
    /// Anything that decides nothing: a file that was written, a line of the transcript.
    Work,
    /// The job has ended.
    End,
    /// The job and its files are deleted. The record replaces the whole log, so that it may be the first.
    Gone,
}

/// Who may append to a job's log, after its messages so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Holder<O> {
    /// Nobody: there is no such job yet.
    Unborn,
    /// Nobody: the job waits for an owner.
    Waiting,
    /// The owner.
    Held(O),
    /// Nobody: the job has ended.
    Ended,
    /// Nobody: the job is deleted.
    Gone,
}

/// The holder of a job, and how many owners it has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Standing<O> {
    /// Who may append.
    pub holder: Holder<O>,
    /// The number of the last ownership; 0 before the first.
    pub epoch: u64,
}

impl<O> Default for Standing<O> {
    fn default() -> Self {
        Self { holder: Holder::Unborn, epoch: 0 }
    }
}

impl<O> Standing<O> {
    /// The standing after a record. Records that a correct host cannot have appended change nothing.
    #[must_use]
    pub fn after(mut self, mark: Mark<O>) -> Self {
        match (&self.holder, mark) {
            (Holder::Unborn, Mark::Born) | (Holder::Held(_), Mark::Free) => self.holder = Holder::Waiting,
            (Holder::Waiting | Holder::Held(_), Mark::Own(owner, epoch)) if epoch > self.epoch => {
                self = Self { holder: Holder::Held(owner), epoch };
            }
            (Holder::Waiting | Holder::Held(_), Mark::End) => self.holder = Holder::Ended,
            (Holder::Ended | Holder::Unborn, Mark::Gone) => self.holder = Holder::Gone,
            _ => {}
        }
        self
    }

    /// The epoch in which a host may take the job, if it may: the job waits, or `is_over` says that its owner is dead or
    /// is an earlier incarnation of the same host.
    pub fn next_epoch(&self, is_over: impl FnOnce(&O) -> bool) -> Option<u64> {
        match &self.holder {
            Holder::Waiting => Some(self.epoch + 1),
            Holder::Held(owner) if is_over(owner) => Some(self.epoch + 1),
            _ => None,
        }
    }

    /// Whether the job has an end, which is final.
    pub fn is_ended(&self) -> bool {
        matches!(self.holder, Holder::Ended | Holder::Gone)
    }
}

/// The fate of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    /// The log has it.
    Stored {
        /// Its sequence.
        sequence: u64,
        /// Whether somebody else has appended since: the job is no longer the writer's.
        is_overtaken: bool,
    },
    /// The log has another message in its place, so it is not stored, and never will be.
    Refused,
    /// Neither. The same message has to be sent again, on the same condition; so it cannot be stored twice.
    Unknown,
}

/// What the log says about the append `id`, from the messages `after` the one that it expected to be the last. The list
/// may be out of date, and then lacks the newest.
pub fn settle<I: PartialEq>(id: &I, after: impl IntoIterator<Item = (u64, I)>) -> Settled {
    let mut after = after.into_iter();
    match after.next() {
        None => Settled::Unknown,
        Some((sequence, first)) if first == *id => Settled::Stored { sequence, is_overtaken: after.next().is_some() },
        Some(_) => Settled::Refused,
    }
}

/// Whether a host may declare another dead. All are durations before now, on the clock of the host that decides.
///
/// - `unseen`: since it last saw a refresh of the other host.
/// - `connected`: since when its own refreshes were acknowledged without a pause of more than [`Times::stop`].
pub fn may_declare_dead(unseen: Duration, connected: Duration, times: &Times) -> bool {
    unseen >= times.silent && connected >= times.silent
}

/// Whether a host may begin a request to a model, a tool call with an effect, or a job. `since_sent` is the time since
/// it sent the last refresh that was acknowledged, on a clock that counts while the machine is suspended.
pub fn may_begin(since_sent: Duration, times: &Times) -> bool {
    since_sent < times.stop
}

#[cfg(test)]
mod tests;
