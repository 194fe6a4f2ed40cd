//! Records a worker's reports on its running job: its summary, decisions, questions, artifacts and result.

use std::sync::Arc;

use cap_std::fs::Dir;
use guild_contract::{Decision, EventDetail, Limits};
use guild_fs::durable::{Survives, replace};
use guild_session::tools::ToolError;

use super::{Files, NOTE_COST, RunningJob, not_written, within};
use crate::{
    error::StoreError,
    files::{
        artifacts,
        quota::{Quota, Refused},
        record::{self, DECISIONS, QUESTIONS, Recorded, STATUS, SUBMISSION, Submission},
    },
};

impl RunningJob {
    /// Replaces the summary (REQ-WD-23). It changes often, so it is not synced.
    pub fn update_summary(&self, summary: &str) -> Result<(), ToolError> {
        let limits = &self.limits;
        within(summary.len(), limits.summary_bytes, "the summary", "summary_bytes")?;
        self.change(|files, dir| {
            self.write(files, dir, STATUS, summary.as_bytes(), Survives::Process)?;
            self.update(|record| record.notes.summary = record::summary(summary.to_owned()));
            self.publish(|| EventDetail::JobSummary { summary: record::summary(summary.to_owned()) });
            Ok(())
        })
    }

    /// Appends a judgment call (REQ-WD-24). A repeated `call` takes effect only once.
    pub fn record_decision(&self, decision: Decision, call: Option<&str>) -> Result<(), ToolError> {
        self.change(|files, dir| {
            let again = |recorded: &Recorded| recorded.call.as_deref() == call && recorded.decision == decision;
            if call.is_some() && files.decisions.iter().any(again) {
                return Ok(());
            }
            let cost = self.cost_of_note(files, record::decision_bytes(&decision), "the decision")?;
            let mut decisions = files.decisions.clone();
            decisions.push(Recorded { decision: decision.clone(), call: call.map(str::to_owned) });
            let json = record::pretty(&decisions).map_err(not_written(DECISIONS))?;
            self.write(files, dir, DECISIONS, &json, Survives::PowerCut)?;
            files.notes += cost;
            self.update(|record| record.notes.decisions = Some(record::decided(&decisions)));
            files.decisions = decisions;
            self.publish(|| EventDetail::JobDecision { decision });
            Ok(())
        })
    }

    /// Appends a question that only a person can answer (REQ-WD-25), on one line. A question that was logged before is
    /// not logged again, so that a repeated call takes effect only once.
    pub fn log_question(&self, question: &str) -> Result<(), ToolError> {
        let question = question.trim().replace("\r\n", " ").replace(['\n', '\r'], " ");
        if question.is_empty() {
            return Err(ToolError::InvalidInput("question must not be empty".to_owned()));
        }
        self.change(|files, dir| {
            let mut questions = self.look(|_, notes| notes.questions.clone()).unwrap_or_default();
            if questions.contains(&question) {
                return Ok(());
            }
            let cost = self.cost_of_note(files, question.len(), "the question")?;
            questions.push(question.clone());
            let text = record::join_questions(&questions);
            self.write(files, dir, QUESTIONS, text.as_bytes(), Survives::PowerCut)?;
            files.notes += cost;
            self.update(|record| record.notes.questions = Some(questions));
            self.publish(|| EventDetail::JobQuestion { question });
            Ok(())
        })
    }

    /// Writes one file under the job's `artifacts/`, with the directories that it needs. `path` is relative to
    /// `artifacts/`, without `..`. All files there count towards the limits.
    pub fn write_artifact(&self, path: &str, contents: &[u8]) -> Result<(), ToolError> {
        let names = artifacts::Names::of(path)?;
        self.change(|files, dir| match artifacts::write(dir, &names, contents, &self.artifacts) {
            Ok(()) => {
                self.put_artifact(files, path, contents);
                Ok(())
            }
            Err(Refused::Full(full)) => {
                if full.first {
                    self.log(&full.to_string());
                }
                Err(ToolError::OverLimit(full.to_string()))
            }
            Err(Refused::Failed(why)) => {
                Err(ToolError::Unavailable(format!("could not write the artifact {path:?}: {why}")))
            }
        })
    }

    /// The quota of the job's `artifacts/`, which every writer there has to use.
    pub fn artifacts(&self) -> &Arc<Quota> {
        &self.artifacts
    }

    /// Submits the result, which must not be empty. The last submission while the job runs is the result. It survives a
    /// later error and a crash, but not a cancel. It is stored with its `call`.
    pub fn submit_result(&self, output: &str, call: Option<&str>) -> Result<(), ToolError> {
        self.check_result(output)?;
        self.change(|_, dir| self.store_submission(dir, output, call))
    }

    /// Whether this `call` submitted this result before, for a session that submits once.
    ///
    /// # Errors
    ///
    /// Returns `InvalidInput` when another call submitted a result, and the errors of [`Self::submit_result`].
    pub fn has_submitted(&self, output: &str, call: &str) -> Result<bool, ToolError> {
        self.check_result(output)?;
        self.change(|_, dir| {
            if !self.has_submission() {
                return Ok(false);
            }
            let stored =
                record::read_submission(dir, &self.limits).map_err(StoreError::io("the result cannot be read"))?;
            match stored {
                Some(first) if first.call.as_deref() == Some(call) && first.output == output => Ok(true),
                _ => Err(ToolError::InvalidInput(
                    "the result was submitted before, and it stays as it is; end your work now".to_owned(),
                )),
            }
        })
    }

    fn check_result(&self, output: &str) -> Result<(), ToolError> {
        if output.trim().is_empty() {
            return Err(ToolError::InvalidInput("the result must not be empty".to_owned()));
        }
        within(output.len(), self.limits.result_bytes, "the result", "result_bytes")
    }

    fn store_submission(&self, dir: &Dir, output: &str, call: Option<&str>) -> Result<(), ToolError> {
        let submission = Submission { output: output.to_owned(), call: call.map(str::to_owned) };
        let json = serde_json::to_vec(&submission).map_err(|e| not_written(SUBMISSION)(e.into()))?;
        replace(dir, SUBMISSION, &json, Survives::PowerCut).map_err(not_written(SUBMISSION))?;
        self.put(SUBMISSION, &json);
        self.update(|record| record.submitted = true);
        Ok(())
    }

    /// The bytes that a note counts, if it is within both limits.
    fn cost_of_note(&self, files: &Files, bytes: usize, what: &str) -> Result<u64, ToolError> {
        let limits = &self.limits;
        within(bytes, limits.note_bytes, what, "note_bytes")?;
        let cost = bytes as u64 + NOTE_COST;
        if files.notes + cost > limits.notes_bytes {
            return Err(ToolError::OverLimit(format!(
                "the job's questions and decisions have reached {}, {} bytes",
                Limits::cited("notes_bytes"),
                limits.notes_bytes
            )));
        }
        Ok(cost)
    }
}
