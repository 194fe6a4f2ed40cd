//! Reads and writes the formats of a job's files: files of this host, of the original, and files that a person edited.

use std::{collections::BTreeMap, io, sync::Arc};

use cap_std::fs::Dir;
use guild_contract::{Decision, JobId, JobStatus, Limits, Meta, Resumption, rpc::StatusView};
use guild_fs::{
    durable::{Contents, Survives, if_there, read, read_whole, remove_temporary, replace},
    fingerprint::Fingerprint,
};
use guild_session::transcript::Line;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};

use super::{
    journal::Position,
    plan::{Accepted, Sealed},
};

/// The directory of a member that has its jobs.
pub(crate) const JOBS: &str = "jobs";
/// The directory of a member that has this host's copies of jobs that other hosts serve too.
pub(crate) const COPIES: &str = ".jobs";
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
/// What the activation was given: [`GivenActivation`](super::activation::GivenActivation).
pub(crate) const ACTIVATION: &str = "activation.json";
/// The accepted plan.
pub(crate) const PLAN: &str = "plan.json";
/// A result that was submitted while the job runs: [`Submission`].
pub(crate) const SUBMISSION: &str = "submission.json";
/// The result of a completed job.
pub(crate) const RESULT: &str = "result.md";
/// The job's log.
pub(crate) const LOG: &str = "log.txt";
/// The transcript of its sessions.
pub(crate) const TRANSCRIPT: &str = "transcript.jsonl";

/// The most bytes that are read of a whole file, unless a limit allows more. Lowering a limit must not make older files
/// unreadable.
const READABLE_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes after which an error in `meta.json` is cut.
pub(crate) const MAX_ERROR_BYTES: usize = 8 * 1024;
/// Bytes of a summary that a list shows.
pub(crate) const HEAD_BYTES: u64 = 1024;
/// The error of a job that is held back.
pub(crate) const HELD_BACK: &str = "held back: a host ended soon after it had resumed this job alone";
/// JSON can take six bytes for one byte of text.
const JSON_GROWTH: u64 = 6;

/// The most bytes that are read of a JSON file whose texts `limit` bounds.
fn readable(limit: u64) -> u64 {
    limit.saturating_mul(JSON_GROWTH).saturating_add(READABLE_BYTES)
}

/// `submission.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Submission {
    /// The result.
    pub(crate) output: String,
    /// The tool call that submitted it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<String>,
}

/// An element of `decisions.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Recorded {
    /// The decision.
    #[serde(flatten)]
    pub(crate) decision: Decision,
    /// The tool call that recorded it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<String>,
}

/// Bytes of a decision's texts.
pub(crate) fn decision_bytes(decision: &Decision) -> usize {
    decision.question.len() + decision.decision.len() + decision.reasoning.len()
}

/// Indented JSON with a newline at its end.
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

/// A blank summary is no summary.
pub(crate) fn summary(text: String) -> Option<String> {
    if text.trim().is_empty() { None } else { Some(text) }
}

/// An empty list is `None` on the wire.
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

/// Reads `meta.json`; see [`is_transient`] for the error.
///
/// The directory's name is the job's id, even if a copied file has another one.
pub(crate) fn read_meta(jobs: &Dir, id: &JobId, limits: &Limits) -> io::Result<(Meta, Fingerprint)> {
    let (json, state) = read_whole(jobs, path(id, META), readable(limits.description_bytes))?
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is none"))?;
    let mut meta: Meta = serde_json::from_slice(&json)?;
    meta.job_id = id.clone();
    Ok((meta, state))
}

/// Whether a file could not be read for a reason that may pass, such as too many open files, and not because of its
/// type or its contents.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    // The file is a symlink, a directory or a pipe.
    let is_of_the_file = [Errno::LOOP, Errno::ISDIR, Errno::NOTDIR, Errno::NXIO];
    Errno::from_io_error(error).is_some_and(|errno| !is_of_the_file.contains(&errno))
}

/// The state of one of a job's files; an unreadable one counts as absent.
pub(crate) fn fingerprint(jobs: &Dir, id: &JobId, file: &str) -> Option<Fingerprint> {
    Fingerprint::at(jobs, path(id, file)).ok().flatten()
}

/// Reads one of a job's files. An unreadable file is logged and counts as absent, but its fingerprint is returned, so
/// that it is not read again before it changes.
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

/// Whether a file of a job's directory is one of its notes.
pub(crate) fn is_note(file: &str) -> bool {
    [STATUS, QUESTIONS, DECISIONS].contains(&file)
}

/// The start of the summary, as lists show it, and the state of the file that it was read from.
pub(crate) fn read_head(jobs: &Dir, id: &JobId) -> (Option<String>, Option<Fingerprint>) {
    let (contents, state) = read_part(jobs, id, STATUS, HEAD_BYTES);
    (contents.and_then(|c| summary(c.text())), state)
}

/// The files that hold a worker's notes.
const NOTES: [&str; 3] = [STATUS, QUESTIONS, DECISIONS];
/// The states of these files.
pub(crate) type NoteFiles = [Option<Fingerprint>; NOTES.len()];

pub(crate) fn note_files(jobs: &Dir, id: &JobId) -> NoteFiles {
    NOTES.map(|file| fingerprint(jobs, id, file))
}

/// A worker's reports on its job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    pub(crate) summary: Option<String>,
    pub(crate) questions: Option<Vec<String>>,
    pub(crate) decisions: Option<Vec<Decision>>,
}

impl Notes {
    /// Reads the notes of a job that has ended. Decisions that do not parse are replaced by those of `before`, if it is
    /// given.
    pub(crate) fn read(jobs: &Dir, id: &JobId, limits: &Limits, before: Option<&Self>) -> (Self, NoteFiles) {
        let max = readable(limits.notes_bytes);
        let (summary_text, status) = read_part(jobs, id, STATUS, limits.summary_bytes);
        let (questions_text, questions) = read_part(jobs, id, QUESTIONS, max);
        let (decisions_json, decisions) = read_part(jobs, id, DECISIONS, max);
        let decided = decisions_json.and_then(|contents| {
            let parsed = contents.whole().and_then(|bytes| Ok(serde_json::from_slice::<Vec<Decision>>(&bytes)?));
            parsed.map_or_else(
                |e| {
                    tracing::warn!(job = %id, file = DECISIONS, "keeping the last known decisions: {e}");
                    before.and_then(|before| before.decisions.clone())
                },
                some,
            )
        });
        let notes = Self {
            summary: summary_text.and_then(|c| summary(c.text())),
            questions: questions_text.and_then(|c| some(split_questions(&c.text()))),
            decisions: decided,
        };
        (notes, [status, questions, decisions])
    }

    /// Reads the notes of an interrupted job, and its decisions as they were recorded. An error is a reason not to
    /// resume it.
    pub(crate) fn read_interrupted(dir: &Dir, limits: &Limits) -> io::Result<(Self, Vec<Recorded>)> {
        let max = readable(limits.notes_bytes);
        let decisions =
            read_whole(dir, DECISIONS, max)?.map_or(Ok(Vec::new()), |(json, _)| serde_json::from_slice(&json))?;
        let notes = Self {
            summary: read(dir, STATUS, limits.summary_bytes)?.and_then(|c| summary(c.text())),
            questions: read(dir, QUESTIONS, max)?.and_then(|c| some(split_questions(&c.text()))),
            decisions: some(decided(&decisions)),
        };
        Ok((notes, decisions))
    }

    /// The answer of `worker/status` for a job with this record.
    pub(crate) fn view(&self, meta: &Meta) -> StatusView {
        StatusView {
            job_id: meta.job_id.clone(),
            status: meta.status,
            description: meta.description.clone(),
            summary: shown_summary(meta, self.summary.as_deref()),
            questions: self.questions.clone(),
            decisions: self.decisions.clone(),
            error: meta.error.clone(),
            started_at: meta.started_at.clone(),
            completed_at: meta.completed_at.clone(),
            usage: meta.usage.clone(),
            held_back: is_held_back(meta),
            follows: meta.follows.clone(),
        }
    }
}

/// Whether a job is held back until a user resumes it.
pub(crate) fn is_held_back(meta: &Meta) -> bool {
    meta.status == JobStatus::Running && meta.resumption == Some(Resumption::HeldBack)
}

/// The summary of a job with this record, as callers see it. The notice that a job is held back precedes the worker's
/// own summary, since clients that know only the status `running` show the summary.
pub(crate) fn shown_summary(meta: &Meta, own: Option<&str>) -> Option<String> {
    if !is_held_back(meta) {
        return own.map(str::to_owned);
    }
    let held_back = format!("{HELD_BACK}; `guild resume {0}` lets it on, `guild cancel {0}` ends it", meta.job_id);
    Some(own.map_or_else(|| held_back.clone(), |own| format!("{held_back}\n\n{own}")))
}

/// The record of a job that was held back and is released. Its earlier resumptions do not count any more. That of a job
/// that another caller has released meanwhile stays.
pub(crate) fn let_on(meta: Meta) -> Meta {
    match meta.resumption {
        Some(Resumption::HeldBack) => Meta { resumption: None, resumes: 0, ..meta },
        _ => meta,
    }
}

/// Decisions without the calls that recorded them.
pub(crate) fn decided(decisions: &[Recorded]) -> Vec<Decision> {
    decisions.iter().map(|recorded| recorded.decision.clone()).collect()
}

/// The fields of `plan.json`, each as it is spelled there.
type Fields = BTreeMap<String, Box<RawValue>>;
/// The field of the seal.
const SEAL: &str = "seal";

/// `plan.json`, with the seal that `seal` makes of the plan.
pub(crate) fn sealed(plan: &Accepted, seal: impl FnOnce(&[u8]) -> Option<String>) -> io::Result<Vec<u8>> {
    let mut fields: Fields = serde_json::from_slice(&pretty(plan)?)?;
    if let Some(seal) = seal(&serde_json::to_vec(&fields)?) {
        fields.insert(SEAL.to_owned(), to_raw_value(&seal)?);
    }
    pretty(&fields)
}

/// Reads the accepted plan; `None` for a job of the original.
pub(crate) fn read_plan(dir: &Dir, limits: &Limits) -> io::Result<Option<Sealed>> {
    let Some((json, _)) = read_whole(dir, PLAN, readable(limits.plan_bytes))? else { return Ok(None) };
    let mut fields: Fields = serde_json::from_slice(&json)?;
    let seal = fields.remove(SEAL).and_then(|seal| serde_json::from_str(seal.get()).ok());
    let text = serde_json::to_vec(&fields)?;
    // Only the sealed text counts, since the file can have a field twice.
    Ok(Some(Sealed { accepted: serde_json::from_slice(&text)?, text, seal }))
}

/// Reads the lines of the transcript from a position on; `None` if there is no transcript. A line that does not parse,
/// such as one that a crash cut, is left out.
pub(crate) fn read_transcript(dir: &Dir, limits: &Limits, at: Position) -> io::Result<Option<Vec<Line>>> {
    // The last line of a full transcript exceeds the limit.
    let max = limits.transcript_bytes.saturating_add(READABLE_BYTES);
    let Some((text, _)) = read_whole(dir, TRANSCRIPT, max)? else { return Ok(None) };
    let text = usize::try_from(at.bytes).ok().and_then(|from| text.get(from..)).unwrap_or_default();
    Ok(Some(text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()))
}

/// Reads the result of a completed job from its directory `dir`. It is empty if there is none, which the original
/// permits.
pub(crate) fn read_result(dir: &Dir, limits: &Limits) -> io::Result<String> {
    let max = limits.result_bytes.max(READABLE_BYTES);
    let Some((bytes, _)) = read_whole(dir, RESULT, max)? else { return Ok(String::new()) };
    Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

/// A completed job's result that could not be written to `result.md` yet.
#[derive(Clone, Debug)]
pub(crate) enum UnsavedResult {
    /// The result is in `submission.json`.
    Submission,
    /// The result was not submitted, and is only in memory.
    Text(Arc<str>),
}

impl UnsavedResult {
    /// The result. `dir` is the job's.
    pub(crate) fn read(&self, dir: &Dir, limits: &Limits) -> io::Result<String> {
        match self {
            Self::Submission => read_submission(dir, limits)?
                .map(|submission| submission.output)
                .ok_or_else(|| io::Error::other(format!("{SUBMISSION}, which held the result, is gone"))),
            Self::Text(text) => Ok(text.as_ref().to_owned()),
        }
    }
}

pub(crate) fn read_submission(dir: &Dir, limits: &Limits) -> io::Result<Option<Submission>> {
    let Some((json, _)) = read_whole(dir, SUBMISSION, readable(limits.result_bytes))? else { return Ok(None) };
    Ok(Some(serde_json::from_slice(&json)?))
}

/// The result of an interrupted job.
#[derive(Debug)]
pub(crate) enum FoundResult {
    /// There is none. A `result.md` of the original does not count, since its agents wrote it piece by piece.
    Nothing,
    /// The result was submitted.
    Submission,
    /// The result is in `result.md`: the host was killed between its last two writes.
    Result,
}

/// Finds the result of an interrupted job in its directory `dir`. An error is a temporary one of the system.
pub(crate) fn find_result(dir: &Dir, id: &JobId, limits: &Limits) -> io::Result<FoundResult> {
    // A file that cannot be read because of its type or content does not count.
    let is_there = |file: &str, found: io::Result<bool>| match found {
        Err(e) if !is_transient(&e) => {
            tracing::warn!(job = %id, file, "ignoring an unreadable file: {e}");
            Ok(false)
        }
        found => found,
    };
    if is_there(SUBMISSION, read_submission(dir, limits).map(|found| found.is_some()))? {
        return Ok(FoundResult::Submission);
    }
    let written = || Ok(Fingerprint::at(dir, PLAN)?.is_some() && read(dir, RESULT, 0)?.is_some());
    Ok(if is_there(RESULT, written())? { FoundResult::Result } else { FoundResult::Nothing })
}

/// Stores the end of a job in its directory `dir`. The order is safe for a crash: `meta.json` is written after the
/// result, and the submission is removed last. It can be repeated after an error.
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

/// Removes the temporary files that a crash left in the directory of an ended job: only these two files of it are
/// written.
pub(crate) fn remove_leftovers(dir: &Dir) -> io::Result<()> {
    [META, RESULT].into_iter().try_for_each(|file| remove_temporary(dir, file))
}

/// Stores a job's record.
pub(crate) fn store_meta(dir: &Dir, meta: &Meta) -> io::Result<Fingerprint> {
    replace(dir, META, &pretty(meta)?, Survives::PowerCut)
}

/// `config.json`: `{}` if the dispatch has none.
pub(crate) fn config_json(config: &Value) -> io::Result<Vec<u8>> {
    if config.is_null() { Ok(b"{}\n".to_vec()) } else { pretty(config) }
}

/// Reads the task and the dispatch's `config` from a job's directory `dir`; an empty `config` is `None`.
pub(crate) fn read_task(dir: &Dir, limits: &Limits) -> io::Result<(String, Option<Map<String, Value>>)> {
    let task = read_whole(dir, TASK, limits.task_bytes.max(READABLE_BYTES))?;
    let task = task.map_or_else(String::new, |(bytes, _)| String::from_utf8_lossy(&bytes).into_owned());
    let config = read_whole(dir, CONFIG, readable(limits.config_bytes))?;
    let config: Option<Map<String, Value>> = config.map(|(json, _)| serde_json::from_slice(&json)).transpose()?;
    Ok((task, config.filter(|config| !config.is_empty())))
}

/// A job's record when it ends.
pub(crate) fn ended(meta: Meta, status: JobStatus, error: Option<String>, at: String) -> Meta {
    let error = error.map(|text| head(&text, MAX_ERROR_BYTES).to_owned());
    Meta { status, error, completed_at: Some(at), resumption: None, ..meta }
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
