//! How a job's files are spelled, and how they are read: those of this host, those of the original, and those
//! that a person edited.

use std::{collections::BTreeMap, io, sync::Arc};

use cap_std::fs::Dir;
use guild_contract::{Decision, JobId, JobStatus, Limits, Meta, objects, rpc::StatusView};
use guild_session::{fingerprint::Fingerprint, transcript::Line};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use crate::{
    Accepted, Sealed,
    durable::{Contents, Survives, if_there, read, read_whole, remove_temporary, replace},
    error::StoreError,
};

/// The directory of a member that has its jobs.
pub(crate) const JOBS: &str = "jobs";
/// The prompt.
pub(crate) const TASK: &str = "task.md";
/// The dispatch's `config`.
pub(crate) const CONFIG: &str = "config.json";
/// The authoritative record: [`Meta`].
pub(crate) const META: &str = "meta.json";
/// The worker's own summary.
pub(crate) const STATUS: &str = "status.md";
/// One question a line.
pub(crate) const QUESTIONS: &str = "questions.md";
/// An array of [`Decision`].
pub(crate) const DECISIONS: &str = "decisions.json";
/// The accepted plan.
pub(crate) const PLAN: &str = "plan.json";
/// A result that was handed over while the job runs: [`Submission`].
pub(crate) const SUBMISSION: &str = "submission.json";
/// The result of a completed job.
pub(crate) const RESULT: &str = "result.md";
/// What the job logged.
pub(crate) const LOG: &str = "log.txt";
/// What its sessions did.
pub(crate) const TRANSCRIPT: &str = "transcript.jsonl";

/// Bytes that are read at most of a file that is read whole, where no limit asks for more. A limit that is lowered must
/// not make unreadable what was written before.
const READABLE_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes of an error in `meta.json`; what is longer is cut.
pub(crate) const MAX_ERROR_BYTES: usize = 8 * 1024;
/// Bytes of a summary that a list shows.
pub(crate) const HEAD_BYTES: u64 = 1024;
/// JSON can take six bytes for one.
const JSON_GROWTH: u64 = 6;

/// Bytes of a JSON file that are read at most, where `limit` bounds the texts in it.
fn readable(limit: u64) -> u64 {
    limit.saturating_mul(JSON_GROWTH).saturating_add(READABLE_BYTES)
}

/// `submission.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Submission {
    /// The result.
    pub(crate) output: String,
    /// The tool call that handed it over, where it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<String>,
}

/// An element of `decisions.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Recorded {
    /// The decision.
    #[serde(flatten)]
    pub(crate) decision: Decision,
    /// The tool call that recorded it, where it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<String>,
}

/// Bytes of a decision's texts.
pub(crate) fn decision_bytes(decision: &Decision) -> usize {
    decision.question.len() + decision.decision.len() + decision.reasoning.len()
}

/// JSON as people like to read it, with a newline at its end.
pub(crate) fn pretty(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// `questions.md`.
pub(crate) fn join_questions(questions: &[String]) -> String {
    let mut text = questions.join("\n");
    text.push('\n');
    text
}

fn split_questions(text: &str) -> Vec<String> {
    text.lines().map(str::trim_end).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// A summary that says nothing is none.
pub(crate) fn summary(text: String) -> Option<String> {
    if text.trim().is_empty() { None } else { Some(text) }
}

/// `None` for nothing, as the wire has it.
pub(crate) fn some<T>(items: Vec<T>) -> Option<Vec<T>> {
    if items.is_empty() { None } else { Some(items) }
}

/// The start of a text, cut between two characters.
pub(crate) fn head(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

fn path(id: &JobId, file: &str) -> String {
    format!("{id}/{file}")
}

/// Reads `meta.json`. The error says why it cannot serve as the job's record; see [`is_transient`].
///
/// The directory's name is the job's id, also where a copied file says otherwise.
pub(crate) fn read_meta(jobs: &Dir, id: &JobId, limits: &Limits) -> io::Result<(Meta, Fingerprint)> {
    let (json, state) = read_whole(jobs, path(id, META), readable(limits.description_bytes))?
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is none"))?;
    let mut meta: Meta = objects::from_json(&json)?;
    meta.job_id = id.clone();
    Ok((meta, state))
}

/// Whether a file could not be read for a reason that may pass, such as too many open files, and not because of its type
/// or its contents.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    // A symlink, a directory or a pipe that stands in the file's place stays one.
    let is_of_the_file = [Errno::LOOP, Errno::ISDIR, Errno::NOTDIR, Errno::NXIO];
    Errno::from_io_error(error).is_some_and(|errno| !is_of_the_file.contains(&errno))
}

/// The state of one of a job's files; an unreadable one counts as absent.
pub(crate) fn fingerprint(jobs: &Dir, id: &JobId, file: &str) -> Option<Fingerprint> {
    Fingerprint::at(jobs, path(id, file)).ok().flatten()
}

/// Reads one of a job's files. One that cannot be read is logged and counts as absent, but its fingerprint is given, so
/// that it is not tried again before it changes.
fn read_part(jobs: &Dir, id: &JobId, file: &str, max: u64) -> (Option<Contents>, Option<Fingerprint>) {
    match read(jobs, path(id, file), max) {
        Ok(contents) => {
            let state = contents.as_ref().map(|c| c.fingerprint);
            (contents, state)
        }
        Err(e) => {
            tracing::warn!(job = %id, file, "leaving out a file that cannot be read: {e}");
            (None, fingerprint(jobs, id, file))
        }
    }
}

/// The start of the summary, as lists show it, and the state of the file that it was read from.
pub(crate) fn read_head(jobs: &Dir, id: &JobId) -> (Option<String>, Option<Fingerprint>) {
    let (contents, state) = read_part(jobs, id, STATUS, HEAD_BYTES);
    (contents.and_then(|c| summary(c.text())), state)
}

/// The files that have a worker's own words.
const NOTES: [&str; 3] = [STATUS, QUESTIONS, DECISIONS];

/// The worker's own words in the files of a job that has ended.
pub(crate) struct Notes {
    summary: Option<String>,
    questions: Option<Vec<String>>,
    decisions: Option<Vec<Decision>>,
    files: [Option<Fingerprint>; NOTES.len()],
}

impl Notes {
    /// Reads them. Decisions that do not parse are those of `before`, if it is given.
    pub(crate) fn read(jobs: &Dir, id: &JobId, limits: &Limits, before: Option<&Self>) -> Self {
        let notes = readable(limits.notes_bytes);
        let (summary_text, status) = read_part(jobs, id, STATUS, limits.summary_bytes);
        let (questions_text, questions) = read_part(jobs, id, QUESTIONS, notes);
        let (decisions_json, decisions) = read_part(jobs, id, DECISIONS, notes);
        let decided = decisions_json.and_then(|contents| {
            let parsed = contents.whole().and_then(|bytes| Ok(objects::from_json::<Vec<Decision>>(&bytes)?));
            parsed.map_or_else(
                |e| {
                    tracing::warn!(job = %id, file = DECISIONS, "keeping the last known decisions: {e}");
                    before.and_then(|before| before.decisions.clone())
                },
                some,
            )
        });
        Self {
            summary: summary_text.and_then(|c| summary(c.text())),
            questions: questions_text.and_then(|c| some(split_questions(&c.text()))),
            decisions: decided,
            files: [status, questions, decisions],
        }
    }

    /// Whether the files are still those that were read.
    pub(crate) fn are_current(&self, jobs: &Dir, id: &JobId) -> bool {
        self.files == NOTES.map(|file| fingerprint(jobs, id, file))
    }

    /// Roughly what they take of memory.
    pub(crate) fn bytes(&self) -> usize {
        let questions = self.questions.iter().flatten().map(|question| size_of::<String>() + question.len());
        let decisions =
            self.decisions.iter().flatten().map(|decision| size_of::<Decision>() + decision_bytes(decision));
        size_of::<Self>() + self.summary.as_ref().map_or(0, String::len) + questions.chain(decisions).sum::<usize>()
    }

    /// What `worker/status` answers of a job with this record.
    pub(crate) fn view(&self, meta: &Meta) -> StatusView {
        StatusView {
            summary: self.summary.clone(),
            questions: self.questions.clone(),
            decisions: self.decisions.clone(),
            ..bare_view(meta)
        }
    }
}

/// A status of what `meta.json` says, without the worker's own words.
pub(crate) fn bare_view(meta: &Meta) -> StatusView {
    StatusView {
        job_id: meta.job_id.clone(),
        status: meta.status,
        description: meta.description.clone(),
        summary: None,
        questions: None,
        decisions: None,
        error: meta.error.clone(),
        started_at: meta.started_at.clone(),
        completed_at: meta.completed_at.clone(),
        usage: meta.usage.clone(),
    }
}

/// The decisions of an interrupted job. An error is a reason not to resume it.
pub(crate) fn read_decisions(dir: &Dir, limits: &Limits) -> io::Result<Vec<Recorded>> {
    match read_whole(dir, DECISIONS, readable(limits.notes_bytes))? {
        Some((json, _)) => Ok(serde_json::from_slice(&json)?),
        None => Ok(Vec::new()),
    }
}

/// The fields of `plan.json`, each as it is spelled there.
type Fields = BTreeMap<String, Box<RawValue>>;
/// The field of the seal.
const SEAL: &str = "seal";

/// `plan.json`, with what `seal` makes of the plan.
pub(crate) fn sealed(plan: &Accepted, seal: impl FnOnce(&[u8]) -> Option<String>) -> io::Result<Vec<u8>> {
    let mut fields: Fields = serde_json::from_slice(&pretty(plan)?)?;
    if let Some(seal) = seal(&serde_json::to_vec(&fields)?) {
        fields.insert(SEAL.to_owned(), to_raw_value(&seal)?);
    }
    pretty(&fields)
}

/// The accepted plan; `None` for a job of the original.
pub(crate) fn read_plan(dir: &Dir, limits: &Limits) -> io::Result<Option<Sealed>> {
    let Some((json, _)) = read_whole(dir, PLAN, readable(limits.plan_bytes))? else { return Ok(None) };
    let mut fields: Fields = serde_json::from_slice(&json)?;
    let seal = fields.remove(SEAL).and_then(|seal| serde_json::from_str(seal.get()).ok());
    let text = serde_json::to_vec(&fields)?;
    // Nothing counts but what was sealed: a field can come twice in a file.
    Ok(Some(Sealed { accepted: serde_json::from_slice(&text)?, text, seal }))
}

/// The lines of the transcript; `None` if there is none. What is no line of a transcript, as one that a crash cut in
/// two, is left out.
pub(crate) fn read_transcript(dir: &Dir, limits: &Limits) -> io::Result<Option<Vec<Line>>> {
    // The last line of one that is full comes on top.
    let max = limits.transcript_bytes.saturating_add(READABLE_BYTES);
    let Some((text, _)) = read_whole(dir, TRANSCRIPT, max)? else { return Ok(None) };
    Ok(Some(text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()))
}

/// Why a job of this status has no result (REQ-WD-14); `None` where it is completed.
pub(crate) fn no_result(status: JobStatus, error: Option<&str>) -> Option<StoreError> {
    let why = match status {
        JobStatus::Completed => return None,
        JobStatus::Running => "Job is still running".to_owned(),
        JobStatus::Cancelled => "Job was cancelled".to_owned(),
        JobStatus::Failed => format!("Job failed: {}", error.unwrap_or("no reason was recorded")),
    };
    Some(StoreError::Refused(why))
}

/// The result of a completed job, whose directory is `dir`. A completed job without one, as the original could leave it, has an empty one.
pub(crate) fn read_result(dir: &Dir, limits: &Limits) -> io::Result<String> {
    let max = limits.result_bytes.max(READABLE_BYTES);
    let Some((bytes, _)) = read_whole(dir, RESULT, max)? else { return Ok(String::new()) };
    Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

/// A completed job's result that is not in `result.md` yet, because that could not be written.
#[derive(Clone, Debug)]
pub(crate) enum UnsavedResult {
    /// It is in `submission.json`.
    Submission,
    /// It was not submitted, and is nowhere else.
    Text(Arc<str>),
}

impl UnsavedResult {
    /// The result. `dir` is the job's.
    pub(crate) fn read(&self, dir: &Dir, limits: &Limits) -> io::Result<String> {
        match self {
            Self::Submission => read_submission(dir, limits)?
                .ok_or_else(|| io::Error::other(format!("{SUBMISSION}, which held the result, is gone"))),
            Self::Text(text) => Ok(text.as_ref().to_owned()),
        }
    }
}

fn read_submission(dir: &Dir, limits: &Limits) -> io::Result<Option<String>> {
    let Some((json, _)) = read_whole(dir, SUBMISSION, readable(limits.result_bytes))? else { return Ok(None) };
    Ok(Some(serde_json::from_slice::<Submission>(&json)?.output))
}

/// The questions of an interrupted job.
pub(crate) fn read_questions(dir: &Dir, limits: &Limits) -> io::Result<Vec<String>> {
    let contents = read(dir, QUESTIONS, readable(limits.notes_bytes))?;
    Ok(contents.map(|contents| split_questions(&contents.text())).unwrap_or_default())
}

/// The summary of an interrupted job.
pub(crate) fn read_summary(dir: &Dir, limits: &Limits) -> io::Result<Option<String>> {
    Ok(read(dir, STATUS, limits.summary_bytes)?.and_then(|contents| summary(contents.text())))
}

/// What an interrupted job has of a result.
#[derive(Debug)]
pub(crate) enum FoundResult {
    /// None that counts. A `result.md` of the original does not: its agents wrote it bit by bit.
    Nothing,
    /// It was submitted.
    Submission,
    /// `result.md`: the host was killed between its last two writes.
    Result,
}

/// Looks for the result of an interrupted job in `dir`, the job's. An error is of the system, and may pass.
pub(crate) fn find_result(dir: &Dir, id: &JobId, limits: &Limits) -> io::Result<FoundResult> {
    match read_submission(dir, limits) {
        Ok(Some(_)) => return Ok(FoundResult::Submission),
        Ok(None) => {}
        Err(e) if is_transient(&e) => return Err(e),
        Err(e) => tracing::warn!(job = %id, file = SUBMISSION, "ignoring an unreadable file: {e}"),
    }
    let written = || Ok(Fingerprint::at(dir, PLAN)?.is_some() && read(dir, RESULT, 0)?.is_some());
    match written() {
        Ok(written) => Ok(if written { FoundResult::Result } else { FoundResult::Nothing }),
        Err(e) if is_transient(&e) => Err(e),
        Err(e) => {
            tracing::warn!(job = %id, file = RESULT, "ignoring an unreadable file: {e}");
            Ok(FoundResult::Nothing)
        }
    }
}

/// Stores how a job ended, in its directory `dir`. The order matters to a crash: what `meta.json` says is true when it
/// says it, and a submission is removed only when nothing needs it any more. Where it fails, it can be tried again.
pub(crate) fn store_end(
    dir: &Dir,
    meta: &Meta,
    unsaved: Option<&UnsavedResult>,
    limits: &Limits,
) -> io::Result<Fingerprint> {
    if let Some(result) = unsaved {
        let output = result.read(dir, limits)?;
        replace(dir, RESULT, output.as_bytes(), Survives::PowerCut)
            .map_err(|e| io::Error::new(e.kind(), format!("{RESULT}: {e}")))?;
    }
    let stored = store_meta(dir, meta)?;
    if let Err(e) = if_there(dir.remove_file(SUBMISSION)) {
        tracing::warn!(job = %meta.job_id, file = SUBMISSION, "cannot remove a file that is no longer needed: {e}");
    }
    Ok(stored)
}

/// Removes what a crash left of a change of a job that has ended: only these two files of it are written.
pub(crate) fn remove_leftovers(dir: &Dir) -> io::Result<()> {
    [META, RESULT].into_iter().try_for_each(|file| remove_temporary(dir, file))
}

/// Stores a job's record.
pub(crate) fn store_meta(dir: &Dir, meta: &Meta) -> io::Result<Fingerprint> {
    replace(dir, META, &pretty(meta)?, Survives::PowerCut)
}

/// `config.json`: `{}` where none came.
pub(crate) fn config_json(config: &Value) -> io::Result<Vec<u8>> {
    if config.is_null() { Ok(b"{}\n".to_vec()) } else { pretty(config) }
}

/// A job's record when it ends.
pub(crate) fn ended(meta: &Meta, status: JobStatus, error: Option<String>, at: String) -> Meta {
    Meta {
        status,
        error: error.map(|text| head(&text, MAX_ERROR_BYTES).to_owned()),
        completed_at: Some(at),
        ..meta.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_back_one_a_line_as_the_original_wrote_them() {
        assert_eq!(split_questions("one?\r\n\ntwo? \n"), ["one?", "two?"]);
        assert_eq!(split_questions(&join_questions(&["a".into(), "b".into()])), ["a", "b"]);
    }

    #[test]
    fn a_head_ends_between_two_characters() {
        assert_eq!(head("aßc", 2), "a");
        assert_eq!(head("ab", 5), "ab");
    }
}
