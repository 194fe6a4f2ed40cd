//! Defines the names of commissions and meetings, which are also the names of their files.

use std::{
    borrow::Cow,
    fmt::{self, Display},
    str::FromStr,
};

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The length of the longest name, which becomes the name of a file and a part of a branch's.
const MAX_BYTES: usize = 128;
/// The most characters of a worker's name or an agenda in a name.
const MAX_PART: usize = 64;

/// Defines a type of names.
macro_rules! names {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as it is written.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                check($what, text)?;
                Ok(Self(text.to_owned()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string"})
            }

            fn inline_schema() -> bool {
                true
            }
        }
    };
}

names! {
    /// Names one commission and its file: `commission-<Worker>-YYYYMMDD-HHMMSS`, in UTC. Other valid file names are
    /// accepted too.
    CommissionId, "a commission's id"
}

names! {
    /// Names one meeting and its file: `audience-<Worker>-YYYYMMDD-HHMMSS`, in UTC, for a meeting that a user opened.
    /// Other valid
    /// file names are accepted too.
    MeetingId, "a meeting's id"
}

impl CommissionId {
    /// The name of a commission for this worker, made at this time as the `nth` of the second, from 1.
    pub fn new(worker: &str, time: Timestamp, nth: usize) -> Self {
        Self(format!("commission-{}-{}", plain(worker, "worker"), second(time, nth)))
    }
}

impl MeetingId {
    /// The name of a meeting with this worker that a user opens.
    pub fn audience(worker: &str, time: Timestamp, nth: usize) -> Self {
        Self(format!("audience-{}-{}", plain(worker, "worker"), second(time, nth)))
    }

    /// The name of a requested meeting with this agenda.
    pub fn request(agenda: &str, time: Timestamp, nth: usize) -> Self {
        let words: Vec<&str> = agenda.split_whitespace().take(6).collect();
        let about = plain(&words.join(" "), "meeting").to_lowercase();
        Self(format!("meeting-request-{}-{about}", second(time, nth)))
    }

    /// The name of a meeting that a worker proposes in another one.
    pub fn followup(worker: &str, time: Timestamp, nth: usize) -> Self {
        Self(format!("followup-{}-{}", plain(worker, "worker"), second(time, nth)))
    }
}

/// A text as part of a name.
fn plain(text: &str, otherwise: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { ' ' }).collect();
    let joined = plain.split_whitespace().collect::<Vec<_>>().join("-");
    if joined.is_empty() { otherwise.to_owned() } else { joined.chars().take(MAX_PART).collect() }
}

fn second(time: Timestamp, nth: usize) -> String {
    let nth = if nth > 1 { format!("-{nth}") } else { String::new() };
    format!("{}{nth}", time.strftime("%Y%m%d-%H%M%S"))
}

fn check(what: &str, text: &str) -> Result<(), String> {
    let is_plain = (1..=MAX_BYTES).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if is_plain {
        return Ok(());
    }
    Err(format!("{what} is 1 to {MAX_BYTES} letters, digits, '-' or '_', and does not begin with '-' or '_'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_worker_and_the_second_and_is_the_name_of_a_file() {
        let time: Timestamp = "2026-04-01T12:00:00Z".parse().unwrap();
        let name = |worker, nth| CommissionId::new(worker, time, nth).to_string();
        assert_eq!(name("Guild Master", 1), "commission-Guild-Master-20260401-120000");
        assert_eq!(name("../é", 2), "commission-worker-20260401-120000-2");
        assert_eq!(MeetingId::audience("Guild Master", time, 2).as_str(), "audience-Guild-Master-20260401-120000-2");
        assert_eq!(MeetingId::followup("Dalton", time, 1).as_str(), "followup-Dalton-20260401-120000");
        let request = MeetingId::request("Which tides, and when? Or none at all", time, 1);
        assert_eq!(request.as_str(), "meeting-request-20260401-120000-which-tides-and-when-or-none");
        let long = "x".repeat(500);
        for id in [name(&long, 3), name("a/b.lock", 1), MeetingId::request(&long, time, 9).to_string()] {
            assert!(id.parse::<CommissionId>().is_ok());
        }
        for bad in ["", ".", "a/b", "a.md", "-x", &"x".repeat(129)] {
            assert!(bad.parse::<CommissionId>().is_err(), "{bad}");
        }
    }
}
