//! The logs of jobs: reads a job, begins it, takes it, ends it, deletes it. What an owner does to a job it holds goes
//! through a [`Writer`](crate::writer::Writer).

use std::{
    collections::BTreeMap,
    io,
    mem::replace,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_nats::{HeaderMap, header};
use bytes::Bytes;
use cap_std::fs::Dir;
use guild_contract::{JobId, MemberKey};
use tokio::time::{Instant, sleep};

use crate::{
    blobs::Blobs,
    error::StoreError,
    link::{Link, Message, Write, Written},
    record::{Content, Folded, Needs, Owner, Record, VERSION, decode, encode},
    rules::{Holder, Standing},
    streams::{LOG, log_subject},
};

/// The header with the version of the records.
const RECORDS: &str = "Guild-Version";
/// The header with the standing after the message, as JSON.
pub(crate) const STANDING: &str = "Guild-Standing";
/// The header with the picture of the job after the message, as JSON.
pub(crate) const HEAD: &str = "Guild-Head";
/// The header with what a host needs to carry the job out, as JSON.
pub(crate) const NEEDS: &str = "Guild-Needs";
/// The header with the events of the message, as a JSON array.
pub(crate) const EVENTS: &str = "Guild-Events";

/// The pause before a server that lags is asked again.
const LAG: Duration = Duration::from_millis(50);
/// Bytes of a text in a record; a longer one is a blob.
const TEXT_BYTES: usize = 256 * 1024;
/// Bytes of the records of one message.
const APPEND_BYTES: usize = 768 * 1024;
/// Bytes of a head. Headers of a message have 64 KiB.
const HEAD_BYTES: usize = 2 * 1024;
/// Bytes of the events of one message.
pub(crate) const EVENTS_BYTES: usize = 48 * 1024;
/// How long a deleted job's last record stays, so that each host learns of it.
const GONE_STAYS: Duration = Duration::from_secs(7 * 24 * 3600);

/// A job of a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobName {
    /// The member.
    pub member: MemberKey,
    /// The job.
    pub job: JobId,
}

impl JobName {
    pub(crate) fn subject(&self) -> String {
        log_subject(&self.member, &self.job)
    }
}

/// Records that are appended together, with what others are to see after them.
#[derive(Clone, Debug, Default)]
pub struct Append {
    /// The records.
    pub records: Vec<Record>,
    /// The picture of the job: JSON of at most 2 KiB. Each append has one, since lists read only the last.
    pub head: String,
    /// The events, each as JSON.
    pub events: Vec<String>,
}

/// The outcome of an attempt to take a job.
#[derive(Debug)]
pub enum Take {
    /// This host holds the job.
    Taken {
        /// The job as it is.
        job: Box<Folded>,
        /// Whether its last holder stopped without giving it back.
        is_interrupted: bool,
    },
    /// Another host was faster.
    Lost,
    /// The job is not free, or there is none.
    NotFree(Standing<Owner>),
}

/// The logs of all jobs, as one life of one host uses them. It is cheap to clone.
#[derive(Clone)]
pub struct Logs {
    link: Link,
    blobs: Blobs,
    own: Owner,
    appends: Arc<AtomicU64>,
    /// Bytes of records that writers have queued.
    queued: Arc<AtomicUsize>,
    patience: Duration,
}

impl Logs {
    /// The logs for the host `own`. A decision whose fate is unknown after `patience` fails.
    pub fn new(link: Link, own: Owner, patience: Duration) -> Self {
        let blobs = Blobs::new(link.clone());
        Self { blobs, link, own, appends: Arc::default(), queued: Arc::default(), patience }
    }

    /// This host.
    pub fn own(&self) -> &Owner {
        &self.own
    }

    /// How long a decision is tried.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Bytes of records of this host's jobs that are not stored yet.
    pub fn queued_bytes(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    pub(crate) fn queued(&self) -> &Arc<AtomicUsize> {
        &self.queued
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// The blobs of the same cluster.
    pub fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// A job as its log says, which may lack the newest records.
    ///
    /// # Errors
    ///
    /// Returns an error when the log cannot be read.
    pub async fn read(&self, name: &JobName) -> Result<Folded, StoreError> {
        let mut job = Folded::default();
        for message in self.link.read(LOG, &name.subject(), 1).await? {
            self.fold(&mut job, &message)?;
        }
        Ok(job)
    }

    /// A job as its log says at the sequence `least` or later: a server that lags is asked again. Where nothing is known of
    /// the job, it is unborn only if the stream's leader says so too.
    ///
    /// # Errors
    ///
    /// Returns an error when the log cannot be read, or no server has it up to there in time.
    pub async fn read_from(&self, name: &JobName, least: u64) -> Result<Folded, StoreError> {
        let begun = Instant::now();
        loop {
            let job = self.read(name).await?;
            let is_unborn = job.tail == 0 && least == 0 && !self.link.has_after(LOG, &name.subject(), 0).await?;
            if is_unborn || (job.tail > 0 && job.tail >= least) {
                return Ok(job);
            }
            if begun.elapsed() > self.patience {
                let why = format!("the servers that answer lag behind with {}: up to {}", name.subject(), job.tail);
                return Err(StoreError::Unreachable(why));
            }
            sleep(LAG).await;
        }
    }

    /// The records of a message.
    pub(crate) fn records(message: &Message) -> Result<Vec<Record>, StoreError> {
        let version = message.header(RECORDS).and_then(|version| version.parse().ok()).unwrap_or(VERSION);
        decode(&format!("{} at {}", message.subject, message.sequence), version, &message.payload)
    }

    fn fold(&self, job: &mut Folded, message: &Message) -> Result<(), StoreError> {
        for record in Self::records(message)? {
            job.apply(record);
        }
        job.tail = message.sequence;
        job.head = message.header(HEAD).map(str::to_owned);
        Ok(())
    }

    /// Appends once, on the condition that the last message is `expected`. `after` is the job after it.
    async fn append(
        &self,
        name: &JobName,
        expected: u64,
        append: Append,
        after: &After,
    ) -> Result<Written, StoreError> {
        let write = self.prepare(name, expected, append, after).await?;
        self.write(&write, self.patience).await
    }

    /// Tries an append for so long. It may be tried again as it is, and is stored once at most.
    pub(crate) async fn write(&self, write: &Write, patience: Duration) -> Result<Written, StoreError> {
        self.link.write(write, patience).await
    }

    /// Makes an append ready: stores its blobs and gives it its id.
    pub(crate) async fn prepare(
        &self,
        name: &JobName,
        expected: u64,
        append: Append,
        after: &After,
    ) -> Result<Write, StoreError> {
        let invalid = |reason: String| StoreError::Invalid { subject: name.subject(), reason };
        let mut headers = HeaderMap::new();
        let mut set = |name: &'static str, value: &str| {
            // JSON has no line break outside of texts, where it is escaped; a carriage return as well.
            value.parse().map(|value: async_nats::HeaderValue| headers.insert(name, value))
        };
        let standing = serde_json::to_string(&after.standing).map_err(|e| invalid(e.to_string()))?;
        let needs = serde_json::to_string(&after.needs).map_err(|e| invalid(e.to_string()))?;
        let events = format!("[{}]", append.events.join(","));
        if append.head.len() > HEAD_BYTES || events.len() > EVENTS_BYTES + 2 {
            let (head, event) = (append.head.len(), events.len());
            return Err(invalid(format!(
                "its head has {head} bytes of at most {HEAD_BYTES}, its events {event} of at most {EVENTS_BYTES}; use \
                 shorter texts"
            )));
        }
        let version = VERSION.to_string();
        let texts = [(RECORDS, version), (STANDING, standing), (NEEDS, needs), (HEAD, append.head), (EVENTS, events)];
        for (header, text) in texts {
            if !text.is_empty() && text != "[]" {
                set(header, &text).map_err(|e| invalid(format!("{header}: {e}")))?;
            }
        }
        let is_gone = append.records.contains(&Record::Gone);
        // A birth that is not the first message replaces the log.
        if is_gone || (expected > 0 && matches!(append.records.first(), Some(Record::Born { .. }))) {
            headers.insert(header::NATS_ROLLUP, "sub");
        }
        if is_gone {
            headers.insert(header::NATS_MESSAGE_TTL, GONE_STAYS.as_secs().to_string().as_str());
        }
        let payload = self.payload(append.records).await?;
        let number = self.appends.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}#{}.{number}", self.own.host, self.own.incarnation);
        Ok(Write { stream: LOG, subject: name.subject(), expected, id, headers, payload })
    }

    /// The records as lines that one message can hold. Long texts go to blobs first.
    async fn payload(&self, mut records: Vec<Record>) -> Result<Bytes, StoreError> {
        let invalid = |e: serde_json::Error| StoreError::Damaged(format!("a record cannot be written: {e}"));
        // The longest text that stays. It shrinks until the records fit.
        let mut room = TEXT_BYTES;
        loop {
            let contents = records.iter_mut().filter_map(Record::content).filter_map(|content| match content {
                // Bytes cannot stand in a record at all.
                Content::Bytes(_) => Some((usize::MAX, content)),
                Content::Text { text } => Some((text.len(), content)),
                Content::Blob(_) => None,
            });
            let Some((size, largest)) = contents.max_by_key(|(size, _)| *size) else {
                return encode(&records).map(Bytes::from).map_err(invalid);
            };
            if size <= room {
                let lines = encode(&records).map_err(invalid)?;
                if lines.len() <= APPEND_BYTES {
                    return Ok(lines.into());
                }
                room = size - 1;
                continue;
            }
            let bytes = match largest {
                Content::Text { text } => Bytes::from(std::mem::take(text)),
                Content::Bytes(bytes) => std::mem::take(bytes),
                Content::Blob(_) => continue,
            };
            let blob = self.blobs.put(bytes).await?;
            *largest = Content::Blob(blob);
        }
    }

    /// Makes a job of these files. With `hold`, this host holds it from the first moment; otherwise it waits. Returns the
    /// job without its files, or `None` if there is such a job already.
    ///
    /// # Errors
    ///
    /// Returns an error when the job is not stored; if the store was unreachable, it may be stored nevertheless.
    pub async fn begin(
        &self,
        name: &JobName,
        needs: Needs,
        files: BTreeMap<String, Content>,
        hold: bool,
        mut append: Append,
    ) -> Result<Option<Folded>, StoreError> {
        let born = std::iter::once(Record::Born { needs: needs.clone() });
        let puts = files.into_iter().map(|(file, content)| Record::Put { file, content });
        let own = hold.then(|| Record::Own { owner: self.own.clone(), epoch: 1 });
        append.records = born.chain(puts).chain(own).chain(append.records).collect();
        let head = Some(append.head.clone());
        let after = After { standing: after(Standing::default(), &append.records), needs };
        match self.append(name, 0, append, &after).await? {
            Written::Stored { sequence: tail, .. } => {
                let After { standing, needs } = after;
                Ok(Some(Folded { standing, tail, needs, files: BTreeMap::new(), head }))
            }
            Written::Refused => Ok(None),
        }
    }

    /// Takes a job that waits, or whose owner `is_over`: dead, or an earlier life of this host (rule 2). The job is read at
    /// the sequence `least` or later.
    ///
    /// # Errors
    ///
    /// Returns an error when the log cannot be read, or the fate of the claim is unknown.
    pub async fn take(&self, name: &JobName, least: u64, is_over: impl Fn(&Owner) -> bool) -> Result<Take, StoreError> {
        let mut job = self.read_from(name, least).await?;
        let Some(epoch) = job.standing.next_epoch(|owner| is_over(owner)) else {
            return Ok(Take::NotFree(job.standing));
        };
        let own = Record::Own { owner: self.own.clone(), epoch };
        let append = Append { records: vec![own], head: job.head.clone().unwrap_or_default(), events: Vec::new() };
        let after = After::of(&job, &append.records);
        match self.append(name, job.tail, append, &after).await? {
            Written::Stored { sequence, is_overtaken: false } => {
                let before = replace(&mut job.standing, after.standing);
                job.tail = sequence;
                let is_interrupted = matches!(before.holder, Holder::Held(_));
                Ok(Take::Taken { job: Box::new(job), is_interrupted })
            }
            Written::Stored { .. } | Written::Refused => Ok(Take::Lost),
        }
    }

    /// Appends to a job that this host need not hold, as its end or its deletion: `decide` makes the append of the job as
    /// it is, at the sequence `least` or later, or `None` where there is nothing to do. It is asked again when others append
    /// meanwhile. Returns the job before the append, and whether it was appended.
    ///
    /// # Errors
    ///
    /// Returns an error when the fate of the append is unknown.
    pub async fn decide(
        &self,
        name: &JobName,
        least: u64,
        decide: impl Fn(&Folded) -> Option<Append>,
    ) -> Result<(Folded, bool), StoreError> {
        let begun = Instant::now();
        loop {
            let job = self.read_from(name, least).await?;
            let Some(append) = decide(&job) else { return Ok((job, false)) };
            let after = After::of(&job, &append.records);
            match self.append(name, job.tail, append, &after).await? {
                Written::Stored { .. } => return Ok((job, true)),
                Written::Refused if begun.elapsed() > self.patience => {
                    let why = format!("others append to {} without a pause", name.subject());
                    return Err(StoreError::Unreachable(why));
                }
                Written::Refused => {}
            }
        }
    }

    /// Replaces the log of a job that has ended by one message with the same files. False if there was nothing to do.
    ///
    /// # Errors
    ///
    /// Returns an error when the log cannot be read or replaced.
    pub async fn compact(&self, name: &JobName) -> Result<bool, StoreError> {
        let messages = self.link.read(LOG, &name.subject(), 1).await?;
        let mut job = Folded::default();
        for message in &messages {
            self.fold(&mut job, message)?;
        }
        if messages.len() < 2 || job.standing.holder != Holder::Ended {
            return Ok(false);
        }
        let mut records = vec![Record::Born { needs: job.needs.clone() }];
        for (file, pieces) in &job.files {
            let content = match pieces.as_slice() {
                [whole @ Content::Blob(_)] => whole.clone(),
                pieces => Content::of(self.content(pieces).await?),
            };
            records.push(Record::Put { file: file.clone(), content });
        }
        records.push(Record::End);
        let append = Append { records, head: job.head.clone().unwrap_or_default(), events: Vec::new() };
        let after = After { standing: job.standing, needs: job.needs };
        Ok(matches!(self.append(name, job.tail, append, &after).await?, Written::Stored { .. }))
    }

    /// The content of one of a job's files.
    ///
    /// # Errors
    ///
    /// Returns an error when a blob is missing or damaged, or cannot be read.
    pub async fn content(&self, pieces: &[Content]) -> Result<Vec<u8>, StoreError> {
        let mut content = Vec::new();
        for piece in pieces {
            match piece {
                Content::Text { text } => content.extend_from_slice(text.as_bytes()),
                Content::Blob(blob) => content.append(&mut self.blobs.get(blob).await?),
                Content::Bytes(bytes) => content.extend_from_slice(bytes),
            }
        }
        Ok(content)
    }

    /// Writes a job's files into a directory, which is that of the job alone; only those that are `wanted`.
    ///
    /// # Errors
    ///
    /// Returns an error when a blob cannot be read or a file cannot be written.
    pub async fn fetch(
        &self,
        job: &Folded,
        wanted: &(dyn Fn(&str) -> bool + Sync),
        into: &Dir,
    ) -> Result<(), StoreError> {
        for (file, pieces) in job.files.iter().filter(|(file, _)| wanted(file)) {
            let failed = |e: io::Error| StoreError::File(format!("the job's file {file} cannot be written: {e}"));
            let content = self.content(pieces).await?;
            if let Some(parent) = Path::new(file).parent() {
                into.create_dir_all(parent).map_err(failed)?;
            }
            into.write(file, content).map_err(failed)?;
        }
        Ok(())
    }
}

/// A job after an append, as its headers tell it.
pub(crate) struct After {
    pub(crate) standing: Standing<Owner>,
    pub(crate) needs: Needs,
}

impl After {
    pub(crate) fn of(job: &Folded, records: &[Record]) -> Self {
        Self { standing: after(job.standing.clone(), records), needs: job.needs.clone() }
    }
}

/// The standing after records.
pub(crate) fn after(standing: Standing<Owner>, records: &[Record]) -> Standing<Owner> {
    records.iter().map(Record::mark).fold(standing, Standing::after)
}

/// Who holds the job, in a sentence for people.
pub(crate) fn describe(standing: &Standing<Owner>) -> String {
    match &standing.holder {
        Holder::Unborn => "there is no such job".to_owned(),
        Holder::Waiting => "the job waits for a host".to_owned(),
        Holder::Held(owner) => format!("the host {} holds the job", owner.host),
        Holder::Ended => "the job has ended".to_owned(),
        Holder::Gone => "the job is deleted".to_owned(),
    }
}
