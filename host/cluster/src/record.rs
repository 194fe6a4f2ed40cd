//! The records of a job's log. A job is a directory of files, so most records say what became of a file; the others
//! say who may write.

use std::collections::BTreeMap;

use bytes::Bytes;
use guild_contract::text::hex;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    blobs::Blob,
    error::StoreError,
    rules::{Mark, Standing},
};

/// The version of the records that this host writes, and the newest that it reads.
pub(crate) const VERSION: u32 = 1;

/// A host in one of its lives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Owner {
    /// The host's name.
    pub host: String,
    /// The id of its life, in the order of time.
    pub incarnation: String,
}

impl Owner {
    /// A new life of a host.
    pub fn new(host: &str) -> Self {
        Self { host: host.to_owned(), incarnation: hex(Uuid::now_v7().as_bytes()) }
    }
}

/// The needs of a job: the runtime, the roots and the member that its host has to have.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Needs {
    /// The runtime of its session.
    pub runtime: String,
    /// The names of the roots that it is given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<String>,
    /// Whether it belongs to the hall, and waits for the host that serves that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hall: bool,
    /// The digest of its member as published; empty if any will do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub member: String,
}

impl Needs {
    /// A runtime and nothing else.
    pub fn of(runtime: &str) -> Self {
        Self { runtime: runtime.to_owned(), ..Self::default() }
    }
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// A text in the record itself.
    Text {
        /// The text.
        text: String,
    },
    /// Bytes that are too many, or are no text.
    Blob(Blob),
    /// Bytes of which a blob is made before the record is written.
    #[serde(skip)]
    Bytes(Bytes),
}

impl Content {
    /// A content: a text where it is one.
    pub fn of(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text { text },
            Err(e) => Self::Bytes(e.into_bytes().into()),
        }
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum Record {
    /// The job exists. Its files follow in the same append.
    Born {
        /// What a host needs to carry the job out.
        needs: Needs,
    },
    /// A host holds the job.
    Own {
        /// The host.
        #[serde(flatten)]
        owner: Owner,
        /// The number of the ownership, from 1.
        epoch: u64,
    },
    /// The owner gives the job back.
    Free {
        /// The reason.
        why: String,
    },
    /// A file has this content.
    Put {
        /// Its path in the job's directory.
        file: String,
        /// The whole content.
        #[serde(flatten)]
        content: Content,
    },
    /// A file has more content at its end.
    Add {
        /// Its path.
        file: String,
        /// The new content.
        #[serde(flatten)]
        content: Content,
    },
    /// A file is removed.
    Remove {
        /// Its path.
        file: String,
    },
    /// The job has ended. Its last files precede this in the same append.
    End,
    /// The job is deleted.
    Gone,
}

impl Record {
    /// A record of a whole text file.
    pub fn put(file: &str, text: impl Into<String>) -> Self {
        Self::Put { file: file.to_owned(), content: Content::Text { text: text.into() } }
    }

    /// A record of text at the end of a file.
    pub fn add(file: &str, text: impl Into<String>) -> Self {
        Self::Add { file: file.to_owned(), content: Content::Text { text: text.into() } }
    }

    /// The effect of the record on who may append.
    pub(crate) fn mark(&self) -> Mark<Owner> {
        match self {
            Self::Born { .. } => Mark::Born,
            Self::Own { owner, epoch } => Mark::Own(owner.clone(), *epoch),
            Self::Free { .. } => Mark::Free,
            Self::Put { .. } | Self::Add { .. } | Self::Remove { .. } => Mark::Work,
            Self::End => Mark::End,
            Self::Gone => Mark::Gone,
        }
    }

    /// The content that can be moved to a blob.
    pub(crate) fn content(&mut self) -> Option<&mut Content> {
        match self {
            Self::Put { content, .. } | Self::Add { content, .. } => Some(content),
            _ => None,
        }
    }

    /// About the bytes that the record takes in a message.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Put { file, content: Content::Text { text } }
            | Self::Add { file, content: Content::Text { text } } => quoted(file) + text.len() + 64,
            Self::Put { file, .. } | Self::Add { file, .. } | Self::Remove { file } => quoted(file) + 256,
            _ => 256,
        }
    }
}

/// The bytes of a path as JSON. Components may use control characters in names.
fn quoted(file: &str) -> usize {
    serde_json::to_string(file).map_or(0, |json| json.len())
}

/// Lines of JSON.
pub(crate) fn encode(records: &[Record]) -> Result<Vec<u8>, serde_json::Error> {
    let mut lines = Vec::new();
    for record in records {
        serde_json::to_writer(&mut lines, record)?;
        lines.push(b'\n');
    }
    Ok(lines)
}

/// The records of a message.
///
/// # Errors
///
/// Returns an error that names `place` when a record cannot be read, or is of a later version.
pub(crate) fn decode(place: &str, version: u32, lines: &[u8]) -> Result<Vec<Record>, StoreError> {
    if version > VERSION {
        return Err(StoreError::Damaged(format!(
            "{place} has records of version {version}, and this host reads up to {VERSION}; upgrade this host"
        )));
    }
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let records = lines.map(serde_json::from_slice).collect::<Result<_, _>>();
    records.map_err(|e| StoreError::Damaged(format!("{place} has a record that cannot be read: {e}")))
}

/// A job as its log says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Folded {
    /// Who may append.
    pub standing: Standing<Owner>,
    /// The sequence of the last message; 0 if there is none.
    pub tail: u64,
    /// What a host needs to carry the job out.
    pub needs: Needs,
    /// The job's files, by their paths: the contents one after the other.
    pub files: BTreeMap<String, Vec<Content>>,
    /// The last picture of the job.
    pub head: Option<String>,
}

impl Folded {
    /// Adds a record.
    pub(crate) fn apply(&mut self, record: Record) {
        self.standing = std::mem::take(&mut self.standing).after(record.mark());
        match record {
            Record::Born { needs } => self.needs = needs,
            Record::Put { file, content } => {
                self.files.insert(file, vec![content]);
            }
            Record::Add { file, content } => self.files.entry(file).or_default().push(content),
            Record::Remove { file } => {
                self.files.remove(&file);
            }
            Record::Gone => self.files.clear(),
            Record::Own { .. } | Record::Free { .. } | Record::End => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Holder;

    fn owner() -> Owner {
        Owner { host: "a".to_owned(), incarnation: "1".to_owned() }
    }

    #[test]
    fn the_records_of_version_1_stay_readable() {
        let blob = Blob { sha256: "ab".to_owned(), bytes: 3 };
        let records = [
            (Record::Born { needs: Needs::of("api") }, r#"{"record":"born","needs":{"runtime":"api"}}"#),
            (Record::Own { owner: owner(), epoch: 1 }, r#"{"record":"own","host":"a","incarnation":"1","epoch":1}"#),
            (Record::Free { why: "drain".to_owned() }, r#"{"record":"free","why":"drain"}"#),
            (Record::put("task.md", "Look."), r#"{"record":"put","file":"task.md","text":"Look."}"#),
            (
                Record::Put { file: "artifacts/a".to_owned(), content: Content::Blob(blob) },
                r#"{"record":"put","file":"artifacts/a","sha256":"ab","bytes":3}"#,
            ),
            (Record::add("log.txt", "x\n"), r#"{"record":"add","file":"log.txt","text":"x\n"}"#),
            (Record::Remove { file: "status.md".to_owned() }, r#"{"record":"remove","file":"status.md"}"#),
            (Record::End, r#"{"record":"end"}"#),
            (Record::Gone, r#"{"record":"gone"}"#),
        ];
        for (record, line) in records {
            assert_eq!(String::from_utf8(encode(std::slice::from_ref(&record)).unwrap()).unwrap().trim(), line);
            assert_eq!(decode("a log", 1, line.as_bytes()).unwrap(), [record]);
        }
    }

    #[test]
    fn records_of_a_later_version_are_refused_with_what_to_do() {
        let error = decode("the log of job j", 2, b"{}").unwrap_err().to_string();
        assert!(error.contains("version 2") && error.contains("upgrade this host"), "{error}");
    }

    #[test]
    fn a_log_is_a_directory_of_files_and_a_holder() {
        let mut job = Folded::default();
        let records = [
            Record::Born { needs: Needs::default() },
            Record::Own { owner: owner(), epoch: 1 },
            Record::put("status.md", "one"),
            Record::put("status.md", "two"),
            Record::add("log.txt", "a"),
            Record::add("log.txt", "b"),
            Record::put("gone.md", ""),
            Record::Remove { file: "gone.md".to_owned() },
        ];
        records.into_iter().for_each(|record| job.apply(record));
        assert_eq!(job.standing, Standing { holder: Holder::Held(owner()), epoch: 1 });
        let text = |text: &str| Content::Text { text: text.to_owned() };
        assert_eq!(job.files.get("status.md").unwrap(), &[text("two")]);
        assert_eq!(job.files.get("log.txt").unwrap(), &[text("a"), text("b")]);
        assert_eq!(job.files.len(), 2);
    }
}
