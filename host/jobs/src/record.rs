//! How a job's files are spelled, and how they are read: those of this host, those of the original, and those
//! that a person edited.

use guild_contract::{Decision, JobId, JobStatus, Limits, Meta, rpc::StatusView};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use cap_std::fs::Dir;

use crate::durable::{Contents, Stamp, read, stamp};

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

/// Bytes of `meta.json` that are read at most: far more than the host writes.
const MAX_META_BYTES: u64 = 64 * 1024;
/// Bytes of an error in `meta.json`; what is longer is cut.
pub(crate) const MAX_ERROR_BYTES: usize = 8 * 1024;
/// Bytes of a summary that a list shows.
pub(crate) const HEAD_BYTES: u64 = 1024;
/// JSON can take six bytes for one.
const JSON_GROWTH: u64 = 6;

/// `submission.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Submission {
    /// The result.
    pub(crate) output: String,
}

/// JSON as people like to read it, with a newline at its end.
pub(crate) fn pretty(value: &impl Serialize) -> std::io::Result<Vec<u8>> {
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

/// Reads `meta.json`. The error says why it cannot serve as the job's record.
///
/// The directory's name is the job's id, also where a copied file says otherwise.
pub(crate) fn read_meta(jobs: &Dir, id: &JobId) -> Result<(Meta, Stamp), String> {
    let contents = read(jobs, path(id, META), MAX_META_BYTES)
        .map_err(|e| format!("{META}: {e}"))?
        .ok_or_else(|| format!("there is no {META}"))?;
    let stamp = contents.stamp;
    let bytes = contents.whole().map_err(|e| format!("{META}: {e}"))?;
    let mut meta: Meta = serde_json::from_slice(&bytes).map_err(|e| format!("{META}: {e}"))?;
    meta.job_id = id.clone();
    Ok((meta, stamp))
}

/// The state of one of a job's files; an unreadable one counts as absent.
pub(crate) fn stamp_of(jobs: &Dir, id: &JobId, file: &str) -> Option<Stamp> {
    stamp(jobs, path(id, file)).ok().flatten()
}

/// Reads one of a job's files. One that cannot be read is logged and counts as absent, but its stamp is given, so
/// that it is not tried again before it changes.
fn read_part(jobs: &Dir, id: &JobId, file: &str, max: u64) -> (Option<Contents>, Option<Stamp>) {
    match read(jobs, path(id, file), max) {
        Ok(contents) => {
            let stamp = contents.as_ref().map(|c| c.stamp);
            (contents, stamp)
        }
        Err(e) => {
            tracing::warn!(job = %id, file, "cannot be read and is left out: {e}");
            (None, stamp_of(jobs, id, file))
        }
    }
}

/// The start of the summary, as lists show it, and the state of the file that it was read from.
pub(crate) fn read_head(jobs: &Dir, id: &JobId) -> (Option<String>, Option<Stamp>) {
    let (contents, stamp) = read_part(jobs, id, STATUS, HEAD_BYTES);
    (contents.and_then(|c| summary(c.text())), stamp)
}

/// The states of the files that a status is made of, besides `meta.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    status: Option<Stamp>,
    questions: Option<Stamp>,
    decisions: Option<Stamp>,
}

impl Parts {
    pub(crate) fn look(jobs: &Dir, id: &JobId) -> Self {
        let stamp = |file| stamp_of(jobs, id, file);
        Self { status: stamp(STATUS), questions: stamp(QUESTIONS), decisions: stamp(DECISIONS) }
    }
}

/// Reads what `worker/status` answers for a job that has ended. Decisions that do not parse are those of the view
/// `before`, if there is one.
pub(crate) fn read_view(
    jobs: &Dir,
    meta: &Meta,
    limits: &Limits,
    before: impl FnOnce() -> Option<StatusView>,
) -> (StatusView, Parts) {
    let id = &meta.job_id;
    let notes = limits.notes_bytes.saturating_mul(JSON_GROWTH);
    let (summary_text, status) = read_part(jobs, id, STATUS, limits.summary_bytes);
    let (questions_text, questions) = read_part(jobs, id, QUESTIONS, notes);
    let (decisions_json, decisions) = read_part(jobs, id, DECISIONS, notes);
    let decided = decisions_json.and_then(|contents| {
        let parsed = contents.whole().and_then(|bytes| Ok(serde_json::from_slice::<Vec<Decision>>(&bytes)?));
        parsed.map_or_else(
            |e| {
                tracing::warn!(job = %id, file = DECISIONS, "does not parse; what was known before is kept: {e}");
                before().and_then(|view| view.decisions)
            },
            some,
        )
    });
    let view = StatusView {
        summary: summary_text.and_then(|c| summary(c.text())),
        questions: questions_text.and_then(|c| some(split_questions(&c.text()))),
        decisions: decided,
        ..bare_view(meta)
    };
    (view, Parts { status, questions, decisions })
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
    }
}

/// The result of a completed job. A completed job without one, as the original could leave it, has an empty one.
pub(crate) fn read_result(jobs: &Dir, id: &JobId, max: u64) -> std::io::Result<String> {
    let Some(contents) = read(jobs, path(id, RESULT), max)? else { return Ok(String::new()) };
    contents.whole().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// What a crashed host left of a running job's result, where there is one: a submission, or the result itself
/// where the host was killed between its last two writes. `None` also for a `result.md` of the original, whose
/// agents wrote it bit by bit.
pub(crate) fn read_left_result(jobs: &Dir, id: &JobId, limits: &Limits) -> Option<String> {
    let max = limits.result_bytes.saturating_mul(JSON_GROWTH).saturating_add(1024);
    let (submission, _) = read_part(jobs, id, SUBMISSION, max);
    let submitted = submission.and_then(|contents| {
        let parsed = contents.whole().and_then(|bytes| Ok(serde_json::from_slice::<Submission>(&bytes)?));
        parsed.map_err(|e| tracing::warn!(job = %id, file = SUBMISSION, "is left out: {e}")).ok()
    });
    if let Some(submission) = submitted {
        return Some(submission.output);
    }
    stamp_of(jobs, id, PLAN)?;
    stamp_of(jobs, id, RESULT)?;
    let output = read_result(jobs, id, limits.result_bytes);
    output.map_err(|e| tracing::warn!(job = %id, file = RESULT, "is left out: {e}")).ok()
}

/// `config.json`: `{}` where none came.
pub(crate) fn config_json(config: &Value) -> std::io::Result<Vec<u8>> {
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
