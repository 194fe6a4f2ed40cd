//! Rehearses a member: plays jobs that ran again, while the models and the tools of others answer as they did then.
//!
//! Nothing of it has an effect. The component, its own tools and its prompts are real, and so are the operator's read
//! roots; requests that the component itself makes to the web are refused, and shown.

use std::sync::Arc;

use guild_contract::{JobId, JobStatus, Meta, Usage};
use guild_session::activation::Plan;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    expect::{Expect, Mismatch, Step, without_nulls},
    play::{Extent, Harness},
    record::RecordedJob,
    recording::Recording,
    scenario::{Given, Scenario},
};

/// A job that was played again.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// The job.
    pub id: JobId,
    /// The time at which it was made.
    pub at: Timestamp,
    /// Its label.
    pub description: String,
    /// The differences to what came then, the first one first.
    pub differences: Vec<Mismatch>,
    /// The requests that the component itself made to the web.
    pub requests: Vec<String>,
    /// The characters that models were given to begin with: then, and now.
    pub prompt_chars: (usize, usize),
    /// The usage of its sessions then.
    pub usage: Usage,
}

impl Harness {
    /// Plays a job that ended again, under the configuration of this harness.
    ///
    /// # Errors
    ///
    /// Returns a sentence when the job cannot be played.
    pub async fn rehearse(self: &Arc<Self>, recorded: RecordedJob, meta: &Meta) -> Result<Rehearsal, String> {
        if !matches!(meta.status, JobStatus::Completed | JobStatus::Failed) {
            return Err(format!("the job is {}: only jobs that completed or failed are played again", meta.status));
        }
        let expect = expected(&recorded, meta)?;
        let RecordedJob { id, at, given, scripts, plan, sessions, usage, .. } = recorded;
        // The posture and the grants are those of today.
        let given = Given { job: Some(id.clone()), posture: None, deny: Vec::new(), ..given };
        let scenario = Scenario { given, sessions: scripts };
        let recording = self.play(&scenario, Extent::Job).await?;
        let mut differences = expect.compare(&recording);
        differences.sort_by_key(order);
        let begun = sessions.iter().map(|session| (&session.system_prompt, &session.prompt));
        let then = if sessions.is_empty() { plan_chars(Some(&plan)) } else { begun.map(chars).sum() };
        Ok(Rehearsal {
            id,
            at,
            description: meta.description.clone(),
            differences,
            requests: requests(&recording),
            prompt_chars: (then, prompt_chars(&recording)),
            usage,
        })
    }
}

/// The expectation that everything comes as it came then.
fn expected(recorded: &RecordedJob, meta: &Meta) -> Result<Expect, String> {
    let expect = json!({
        "plan": recorded.plan,
        "sessions": recorded.sessions,
        "calls": recorded.calls,
        "result": recorded.result,
        "error": meta.error,
    });
    serde_json::from_value(without_nulls(expect)).map_err(|e| format!("its record cannot be compared: {e}"))
}

/// The place of a difference in the course of a job.
fn order(difference: &Mismatch) -> usize {
    let Some(Step::Key(first)) = difference.path.first() else { return usize::MAX };
    ["refusal", "plan", "sessions", "calls", "error", "result"]
        .iter()
        .position(|key| key == first)
        .unwrap_or(usize::MAX)
}

/// The requests that the component itself made to the web.
fn requests(recording: &Recording) -> Vec<String> {
    let of_web = recording.host_calls.iter().filter(|call| call.function.starts_with("web."));
    let mut requests: Vec<String> = of_web
        .map(|call| {
            let asked = call.input.get("url").or_else(|| call.input.get("query")).and_then(Value::as_str);
            format!("{} {}", call.function, asked.unwrap_or_default())
        })
        .collect();
    requests.sort();
    requests.dedup();
    requests
}

fn prompt_chars(recording: &Recording) -> usize {
    if recording.sessions.is_empty() {
        return plan_chars(recording.plan.as_ref());
    }
    recording.sessions.iter().map(|session| chars((&session.system_prompt, &session.prompt))).sum()
}

fn plan_chars(plan: Option<&Plan>) -> usize {
    match plan {
        Some(Plan::Session(plan) | Plan::Conversation(plan)) => chars((&plan.system_prompt, &plan.prompt)),
        Some(Plan::OwnRun(_)) | None => 0,
    }
}

fn chars((system, first): (&String, &String)) -> usize {
    system.chars().count() + first.chars().count()
}
