//! The history of a run: the requests, answers, effects and faults, with their times.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A time in milliseconds since the run began.
pub(super) type Millis = u64;

/// An answered request to a host, from its first byte to its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Span {
    pub(super) host: String,
    pub(super) began: Millis,
    pub(super) ended: Millis,
}

/// A tool call of a model whose result a later request of the session has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Answered {
    /// The turn of the call.
    pub(super) turn: usize,
    pub(super) tool: String,
    /// Whether the result says that the call was carried out.
    pub(super) is_done: bool,
}

/// Something that happened. A job is known by its `key` to the provider and to the tools, which is the number that its
/// task names, and by its id to callers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub(super) enum Entry {
    /// A dispatch was answered with a job. The span begins with the first request, which may have been repeated.
    Dispatched { span: Span, key: u32, job: String },
    /// A cancel was asked for, and answered with this status, if at all.
    Cancelled { span: Span, job: String, status: Option<String> },
    /// A deletion was asked for, and answered or not.
    Deleted { span: Span, job: String, is_answered: bool },
    /// A host answered that a job has this status, or that there is no such job.
    Seen { span: Span, job: String, status: Option<String> },
    /// A session asked the provider for the answer of a turn. The prompt of its first turn has these jobs' notes.
    Requested { at: Millis, host: String, key: u32, turn: usize, notes: Vec<u32>, answered: Vec<Answered> },
    /// The tool of a turn had its effect.
    Effect { at: Millis, key: u32, turn: usize },
    /// A subscriber, who goes from host to host with the id of its last event, received an event of a job.
    Event { at: Millis, host: String, id: String, kind: String, job: String },
    /// The subscriber was told that it missed events: any of messages after one of the log, up to another.
    Gap { after: u64, upto: u64, host: String },
    /// A fault lasted so long at these hosts.
    Faulted { kind: String, hosts: Vec<String>, began: Millis, ended: Millis },
    /// A job at the end of the run, as a host answered in a round: its status, its result, the contents of its artifacts.
    /// There is no status where the host knows no such job.
    Final { host: String, round: u32, job: String, status: Option<Value>, result: Value, artifacts: Vec<String> },
    /// A message of a job's log: its place, the message that its writer expected to be the last, and who may append
    /// after it. A `rollup` has replaced all messages before it.
    Logged {
        job: String,
        sequence: u64,
        expected: u64,
        writer: String,
        holder: Option<String>,
        epoch: u64,
        is_rollup: bool,
    },
    /// A process or a file that should be gone.
    Left { what: String },
}

/// Writes a history down.
pub(super) struct Recorder {
    begun: Instant,
    entries: Mutex<Vec<Entry>>,
}

impl Recorder {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), entries: Mutex::default() }
    }

    pub(super) fn now(&self) -> Millis {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap()
    }

    /// Times a request to a host.
    pub(super) fn span<T>(&self, host: &str, ask: impl FnOnce() -> T) -> (Span, T) {
        let began = self.now();
        let answer = ask();
        (Span { host: host.to_owned(), began, ended: self.now() }, answer)
    }

    pub(super) fn add(&self, entry: Entry) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Writes a history into a file, one entry a line.
pub(super) fn save(entries: &[Entry], path: &Path) -> io::Result<()> {
    let mut file = io::BufWriter::new(fs::File::create(path)?);
    for entry in entries {
        serde_json::to_writer(&mut file, entry)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}
