//! The way in and out of a cluster: directories of members, with `jobs/` and `memory/`, as a host on its own serves them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::Arc,
    time::Duration,
};

use cap_std::fs::Dir;
use guild_contract::{JobId, JobStatus, MemberKey, Meta};
use guild_fs::{
    durable::{open_dir, read_whole},
    tree::walk,
};
use guild_jobs::{
    Accepted, Head,
    memory::shelf::{NotChanged, NoteFiles, Written, file},
};
use tokio::{runtime::Handle, task::block_in_place};

use crate::{
    buckets::memory::Memory,
    error::StoreError,
    link::Link,
    log::{Append, JobName, Logs},
    record::{Content, Needs, Owner, Record},
    rules::Holder,
    streams::MEMORY,
    watch::Jobs,
};

/// The directories of a member's jobs and of its notes.
const JOBS: &str = "jobs";
const NOTES: &str = "memory";
/// The files of a job's record and of its plan.
const META: &str = "meta.json";
const PLAN: &str = "plan.json";
/// The greatest size of a file that is read as a record.
const RECORD_BYTES: u64 = 16 * 1024 * 1024;
/// The greatest size of a note.
const NOTE_BYTES: u64 = 16 * 1024 * 1024;
/// How long an append is tried.
const PATIENCE: Duration = Duration::from_secs(30);

/// The jobs and notes that were copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// The jobs.
    pub jobs: usize,
    /// The notes.
    pub notes: usize,
}

/// The members that were written, and the jobs that were left out.
#[derive(Debug, Default)]
pub struct Exported {
    /// The members.
    pub members: BTreeMap<MemberKey, Copied>,
    /// The jobs that cannot be read, each with the reason.
    pub unreadable: Vec<String>,
}

/// The jobs and notes of a cluster, for a command called `client`.
pub struct Transfer {
    link: Link,
    logs: Logs,
    memory: Memory,
}

impl Transfer {
    /// The jobs and notes at the servers of a connection. It has to be called in a runtime with more than one thread.
    pub fn new(link: Link, client: &str) -> Self {
        let own = Owner::new(client);
        let memory = Memory::start(link.clone(), own.clone(), Arc::new(|_| false), Handle::current());
        Self { memory, logs: Logs::new(link.clone(), own, PATIENCE), link }
    }

    /// Writes all jobs and notes into a directory, which is empty: `MEMBER/jobs/JOB/` and `MEMBER/memory/`. Each job is
    /// as it was at one moment. A job with a damaged log or a missing file is left out.
    ///
    /// # Errors
    ///
    /// Returns an error when the store cannot be reached, or something cannot be written.
    pub async fn export(&self, into: &Dir) -> Result<Exported, StoreError> {
        let Exported { mut members, mut unreadable } = Exported::default();
        let mut jobs = Jobs::latest(self.link.clone());
        while let Some(seen) = jobs.next().await {
            let JobName { member, job: id } = &seen.name;
            let of_job = |why: String| format!("the job {id} of {member}: {why}");
            let job = match self.logs.read_from(&seen.name, seen.sequence).await {
                Err(StoreError::Damaged(why)) => {
                    unreadable.push(of_job(why));
                    continue;
                }
                read => read?,
            };
            // A job that was deleted meanwhile is none.
            if matches!(job.standing.holder, Holder::Unborn | Holder::Gone) {
                continue;
            }
            let path = Path::new(member.as_str()).join(JOBS).join(id.as_str());
            match self.logs.fetch(&job, &|_| true, &made(into, &path)?).await {
                Err(StoreError::Damaged(why)) => {
                    unreadable.push(of_job(why));
                    into.remove_dir_all(&path).map_err(unwritten)?;
                    continue;
                }
                fetched => fetched?,
            }
            members.entry(member.clone()).or_default().jobs += 1;
        }
        for member in self.with_notes().await? {
            let dir = made(into, Path::new(member.as_str()))?;
            let files = NoteFiles::new(&dir, NOTES.into()).map_err(unwritten)?;
            self.memory.shelf(member.as_str(), files).await?;
            let notes = NoteFiles::new(&dir, NOTES.into()).and_then(|files| files.list(&files.dir()?));
            members.entry(member).or_default().notes = notes.map_err(unwritten)?.len();
        }
        Ok(Exported { members, unreadable })
    }

    /// The members that have notes.
    async fn with_notes(&self) -> Result<BTreeSet<MemberKey>, StoreError> {
        let messages = self.link.read(MEMORY, "$KV.guild_memory.>", 1).await?;
        let scopes = messages.iter().filter_map(|message| message.subject.split('.').nth(2));
        let of_members = scopes.filter(|scope| !scope.starts_with('_'));
        Ok(of_members.filter_map(|scope| scope.replace('=', ".").parse().ok()).collect())
    }

    /// Puts the jobs and notes in a member's directory into the cluster. Jobs and notes that the cluster has stay as they
    /// are there. A job that had not ended is taken by a host, where it fails: its plan is sealed for the place that it
    /// comes from. `scratch` is an empty directory.
    ///
    /// # Errors
    ///
    /// Returns an error when something cannot be read or stored. What was stored stays, and the import can be repeated.
    pub async fn import(&self, member: &MemberKey, from: &Dir, scratch: &Dir) -> Result<Copied, StoreError> {
        let mut copied = Copied::default();
        for id in jobs_in(from)? {
            let dir = open_dir(from, Path::new(JOBS).join(id.as_str())).map_err(unread)?;
            let name = JobName { member: member.clone(), job: id };
            copied.jobs += usize::from(self.import_job(&name, &dir).await?);
        }
        if from.is_dir(NOTES) {
            let here = NoteFiles::new(from, NOTES.into()).map_err(unread)?;
            let there = NoteFiles::new(scratch, NOTES.into()).map_err(unwritten)?;
            let shelf = self.memory.shelf(member.as_str(), there).await?;
            let dir = here.dir().map_err(unread)?;
            let origins = here.origins(&dir);
            for (key, _) in here.list(&dir).map_err(unread)? {
                let Some((text, _)) = read_whole(&dir, file(&key), NOTE_BYTES).map_err(unread)? else { continue };
                let text = String::from_utf8(text).map_err(|_| damaged(format!("the note {key} is no text")))?;
                let note = Written { key: &key, text: &text, origin: origins.get(&key).cloned() };
                match block_in_place(|| shelf.put(note, None)) {
                    Ok(()) => copied.notes += 1,
                    Err(NotChanged::Outdated) => {}
                    Err(NotChanged::Failed(e)) => return Err(StoreError::Unreachable(e.to_string())),
                }
            }
        }
        Ok(copied)
    }

    /// Makes a job of the files in a directory; false if the cluster has it.
    async fn import_job(&self, name: &JobName, dir: &Dir) -> Result<bool, StoreError> {
        let meta = read_whole(dir, META, RECORD_BYTES).map_err(unread)?;
        // A directory without a record is no job.
        let Some((meta, _)) = meta else { return Ok(false) };
        let invalid = |what: &str, e: serde_json::Error| damaged(format!("{what} of {} cannot be read: {e}", name.job));
        let meta: Meta = serde_json::from_slice(&meta).map_err(|e| invalid(META, e))?;
        let mut needs = Needs::default();
        if let Some((plan, _)) = read_whole(dir, PLAN, RECORD_BYTES).map_err(unread)? {
            let plan: Accepted = serde_json::from_slice(&plan).map_err(|e| invalid(PLAN, e))?;
            needs.runtime = plan.agent;
        }
        let mut files = BTreeMap::new();
        for found in walk(dir) {
            let found = found.map_err(unread)?;
            if let (true, Some(path)) = (found.kind.is_file(), found.path.to_str())
                && let Some((content, _)) = read_whole(dir, path, u64::MAX).map_err(unread)?
            {
                files.insert(path.to_owned(), Content::of(content));
            }
        }
        let head = serde_json::to_string(&Head::new(&meta, None)).map_err(|e| invalid(META, e))?;
        let end = (meta.status != JobStatus::Running).then_some(Record::End);
        let append = Append { records: end.into_iter().collect(), head, events: Vec::new() };
        Ok(self.logs.begin(name, needs, files, false, append).await?.is_some())
    }
}

/// The jobs in a member's directory, in order.
fn jobs_in(member: &Dir) -> Result<BTreeSet<JobId>, StoreError> {
    if !member.is_dir(JOBS) {
        return Ok(BTreeSet::new());
    }
    let mut jobs = BTreeSet::new();
    for entry in member.read_dir(JOBS).map_err(unread)? {
        let name = entry.map_err(unread)?.file_name();
        jobs.extend(name.to_str().and_then(|name| name.parse().ok()));
    }
    Ok(jobs)
}

/// A directory below another one, which is made if it is missing.
fn made(dir: &Dir, path: &Path) -> Result<Dir, StoreError> {
    dir.create_dir_all(path).and_then(|()| open_dir(dir, path)).map_err(unwritten)
}

fn damaged(why: String) -> StoreError {
    StoreError::Damaged(why)
}

fn unread(e: io::Error) -> StoreError {
    StoreError::File(format!("a job or a note cannot be read: {e}"))
}

fn unwritten(e: io::Error) -> StoreError {
    StoreError::File(format!("a job or a note cannot be written: {e}"))
}
