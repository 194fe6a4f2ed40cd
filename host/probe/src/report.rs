//! Defines the report of a probe as plain data.

use serde::{Deserialize, Serialize};

use crate::{
    canaries::Source,
    record::{Event, Place},
};

/// The format of a probe.
pub const FORMAT: &str = "guild-probe/1";

/// A token of one source at a place where it may not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Crossing {
    /// The source.
    pub source: Source,
    /// The place.
    pub place: Place,
    /// The name at that place: a tool, a file, the kind of request.
    pub name: String,
    /// The encodings that were undone; empty for a token as it stands.
    pub encoding: String,
    /// Why it may not be there.
    pub why: String,
    /// The text that carries it.
    pub text: String,
    /// The run.
    pub run: String,
    /// The step of the run, from 1.
    pub step: u32,
    /// The number of times that it was seen.
    pub times: u32,
}

/// A request that was made, however often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requested {
    /// The address, or the query of a search.
    pub address: String,
    /// The number of times that it was made.
    pub times: u32,
    /// The words after the host that stand nowhere in what the member was given.
    pub own_words: Vec<String>,
}

/// A request that nothing explains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unexpected {
    /// The address, or the query of a search.
    pub address: String,
    /// Why nobody expects it.
    pub why: String,
    /// The run.
    pub run: String,
    /// The number of times that it was made.
    pub times: u32,
}

/// A text that was seen in some runs only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The runs in which it was seen, in words.
    pub when: String,
    /// The place.
    pub place: Place,
    /// The name at that place.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// A text that stands neither in the member's files nor in what the run gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unknown {
    /// The place that it went to.
    pub place: Place,
    /// The name at that place.
    pub name: String,
    /// Its lines that are unknown, each once.
    pub text: String,
    /// The run in which it came first.
    pub run: String,
}

/// A file of a project that other programs run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Planted {
    /// Its path.
    pub path: String,
    /// The run.
    pub run: String,
}

/// An artifact, or a report, that does something when it is opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Active {
    /// Its name.
    pub name: String,
    /// The thing that it does, in words.
    pub what: String,
    /// The formula, the script, or the address.
    pub text: String,
    /// The run in which it came first.
    pub run: String,
}

/// The number of texts that were seen at a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// The place.
    pub place: Place,
    /// The number of events.
    pub events: usize,
    /// Some of what was there: names, or addresses.
    pub names: Vec<String>,
}

/// One run, for the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunReport {
    /// The name.
    pub name: String,
    /// The time of its clocks.
    pub time: String,
    /// The events, in order.
    pub events: Vec<Event>,
}

/// The parts of the member that a probe did and did not exercise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Coverage {
    /// Exported functions that were called.
    pub exports_called: Vec<String>,
    /// Exported functions that were never called.
    pub exports_not_called: Vec<String>,
    /// Tools that answered at least once.
    pub tools_answered: Vec<String>,
    /// Tools that gave only errors, or were never called.
    pub tools_not_answered: Vec<String>,
    /// Interfaces of the host that its component imports and never called.
    pub imports_not_called: Vec<String>,
    /// Capabilities that were granted and used neither by its component nor by its sessions.
    pub grants_not_seen: Vec<String>,
    /// The steps that could not be played, as sentences.
    pub notes: Vec<String>,
}

/// All that a probe found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// [`FORMAT`].
    pub format: String,
    /// The member's key.
    pub member: String,
    /// The SHA-256 of its component, in hexadecimal digits.
    pub component_sha256: String,
    /// The SHA-256 of its manifest.
    pub manifest_sha256: String,
    /// The seed of all tokens.
    pub seed: u64,
    /// Whether an obedient model took part.
    pub obedient: bool,
    /// The seconds that it took.
    pub seconds: f64,
    /// Tokens that crossed a boundary.
    pub canaries: Vec<Crossing>,
    /// What the member was given in the runs, as sentences.
    pub given: Vec<String>,
    /// The distinct requests of the component, the most frequent first.
    pub requests: Vec<Requested>,
    /// Requests that nothing explains.
    pub unexpected_requests: Vec<Unexpected>,
    /// The texts that were seen in some runs only.
    pub differences: Vec<Difference>,
    /// The texts that were seen with a project only and stand in its files or name its work there, for information.
    pub with_project: Vec<Difference>,
    /// Files of a project that other programs run.
    pub planted: Vec<Planted>,
    /// Artifacts and reports that do something when they are opened.
    pub active: Vec<Active>,
    /// Texts that stand nowhere in the member's files.
    pub unknown_texts: Vec<Unknown>,
    /// The number of texts by place, in order of reach.
    pub seen: Vec<Seen>,
    /// The parts that were and were not exercised.
    pub coverage: Coverage,
    /// The runs.
    pub runs: Vec<RunReport>,
}
