//! Defines the interface between the hall and the workers of a host with their jobs.

use std::{fmt, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use guild_contract::{
    Decision, JobId, MemberKey, OperationError, SpendError,
    hall::{CommissionId, MeetingId, Model, Overrides},
};
use guild_git::Checkout;
use guild_jobs::RunningJob;
use guild_session::transcript::Line;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::files::protected::RECORDS;

/// A worker that can be commissioned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// The worker's key in the roster.
    pub key: MemberKey,
    /// The name of the worker's package.
    pub package: String,
    /// The worker's display name.
    pub display_name: String,
    /// The worker's display title.
    pub display_title: String,
    /// The worker's description.
    pub description: String,
    /// The URL of the worker's picture.
    pub portrait: Option<String>,
    /// The runtime of the worker's sessions.
    pub agent: String,
    /// The model of the worker's sessions, if it is known; the built-in search has none.
    pub model: Option<String>,
    /// The part of a project that the worker needs checked out (REQ-WKR-2).
    pub checkout: Checkout,
    /// Whether the worker is the hall's manager (REQ-WKR-24).
    pub manages: bool,
    /// The worker's grants, by the names of capabilities and tools.
    pub can: Vec<String>,
}

/// The place in which the worker of a meeting works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeetingScope {
    /// A worktree on the meeting's own branch, which is merged when the meeting is closed.
    #[default]
    Activity,
    /// The integration worktree, read-only.
    Project,
}

/// The work of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// A commission, which the worker carries out without a user.
    Commission(CommissionId),
    /// A meeting, in which the worker talks with a user.
    Meeting(MeetingId, MeetingScope),
}

impl Activity {
    /// The name of the commission or the meeting.
    pub fn id(&self) -> &str {
        match self {
            Self::Commission(id) => id.as_str(),
            Self::Meeting(id, _) => id.as_str(),
        }
    }

    /// The commission, if the activity is one.
    pub fn commission(&self) -> Option<&CommissionId> {
        match self {
            Self::Commission(id) => Some(id),
            Self::Meeting(..) => None,
        }
    }

    /// Whether the activity is a meeting.
    pub fn is_meeting(&self) -> bool {
        matches!(self, Self::Meeting(..))
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// One attempt at a commission, or a meeting: the task of a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The commission or the meeting.
    pub activity: Activity,
    /// The number of the attempt, from 1. A meeting has one attempt.
    pub number: u32,
    /// The project's name.
    pub project: String,
    /// The worker's key.
    pub worker: MemberKey,
    /// The worker's display name, under which the original stores its notes.
    pub worker_name: String,
    /// The attempt's job.
    pub job: JobId,
    /// A short label.
    pub title: String,
    /// The prompt.
    pub prompt: String,
    /// The dependencies of a commission; the linked artifacts of a meeting.
    pub dependencies: Vec<String>,
    /// The model and bounds in place of the worker's own.
    pub overrides: Overrides,
    /// The name of the token for which the spending counts, if there is one.
    pub token: Option<String>,
    /// The attempt's worktree, on a branch of its own.
    pub worktree: PathBuf,
    /// The part of the project that is checked out in the worktree.
    pub checkout: Checkout,
    /// The most characters of memories that the session is given, if the project sets it (REQ-WKR-23).
    pub memory_chars: Option<u64>,
}

/// The read root with a project's documents, which exists in each checkout.
const LORE: &str = "lore";

impl Attempt {
    /// The read roots in the worktree, by name: its documents, and the whole project if it is checked out. Hidden files
    /// of a read root are never read, so the documents need their own root, and `.git` has none.
    pub fn roots(&self) -> Vec<(String, PathBuf)> {
        let lore = (LORE.to_owned(), self.worktree.join(".lore"));
        match self.checkout {
            Checkout::Sparse => vec![lore],
            Checkout::Full => vec![(self.project.clone(), self.worktree.clone()), lore],
        }
    }

    /// The directories with the hall's own records in these roots. A report must not cite them, since they contain
    /// earlier reports.
    pub fn records(&self) -> Vec<String> {
        RECORDS.iter().map(|directory| format!("{LORE}/{directory}")).collect()
    }

    /// A sentence about the project's files that are not checked out for the worker, if there are any.
    pub fn absent(&self) -> Option<String> {
        (self.checkout == Checkout::Sparse).then(|| {
            format!(
                "Only the documents in `.lore/` of the project {} are checked out for {}; `\"checkoutScope\": \
                 \"full\"` in its manifest checks out all files.",
                self.project, self.worker
            )
        })
    }

    /// The name of the read root that contains the project.
    pub fn project_root(&self) -> &str {
        match self.checkout {
            Checkout::Sparse => LORE,
            Checkout::Full => &self.project,
        }
    }
}

/// The error of an attempt whose session ended by itself without submitting a result.
pub const NO_RESULT: &str = "Session completed without submitting result";

/// The outcome of an attempt's job. Nothing of the job runs any more.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The job has a result.
    Completed {
        /// The result.
        result: String,
        /// The error that occurred after the result was submitted.
        error: Option<String>,
    },
    /// The job has no result.
    Failed {
        /// The reason; empty if the session ended by itself without submitting a result.
        error: String,
        /// The last text of the session, if it is known.
        text: String,
    },
    /// A caller cancelled the job.
    Cancelled,
}

/// The reason that an attempt did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotBegun {
    /// The host is busy at the moment.
    Busy(String),
    /// The attempt cannot start; the text has the reason.
    Refused(String),
}

/// The reason that a meeting's worker has no session, as a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoSession {
    /// There is no session at the moment.
    #[error("{0}")]
    Now(String),
    /// There will never be a session.
    #[error("{0}")]
    Never(String),
}

/// The reason that workers which only accept commissions cannot be talked with.
const NO_MEETINGS: &str = "these workers hold no meetings";

/// The workers of a host, and the operator's bounds for each.
pub trait Workers: Send + Sync {
    /// The workers in service, by key.
    fn all(&self) -> Vec<Worker>;

    /// Checks the current `guild.toml` without applying it. It blocks.
    ///
    /// # Errors
    ///
    /// Returns the first fault of the file.
    fn check_settings(&self) -> Result<(), String> {
        Ok(())
    }

    /// The models that the sessions of this host can run. It blocks.
    fn models(&self) -> Vec<Model> {
        Vec::new()
    }

    /// Checks that the sessions of a worker can run a model.
    ///
    /// # Errors
    ///
    /// Returns the reason that they cannot, with the models that they can run.
    fn check_model(&self, _worker: &MemberKey, _model: &str) -> Result<(), String> {
        Ok(())
    }

    /// Cuts overrides to the operator's bounds for a worker's jobs. Returns a sentence for each value that was cut.
    fn cut(&self, _worker: &MemberKey, _overrides: &mut Overrides) -> Vec<String> {
        Vec::new()
    }

    /// The US dollars that a job of a worker may spend with these overrides; 0 if its sessions cost nothing.
    fn budget_usd(&self, _worker: &MemberKey, overrides: &Overrides) -> f64 {
        overrides.max_budget_usd.unwrap_or(0.0)
    }

    /// Checks that a worker's session may spend money now, on behalf of that token if there is one.
    ///
    /// # Errors
    ///
    /// Returns an error when a cap on today's spending is reached, or today's spending is not known.
    fn may_spend(&self, _worker: &MemberKey, _token: Option<&str>) -> Result<(), SpendError> {
        Ok(())
    }
}

/// The jobs of the workers. An attempt is an ordinary job of its worker. The job of a meeting is idle between the turns
/// of its conversation.
#[async_trait]
pub trait WorkerJobs: Send + Sync {
    /// Makes an id for a new job.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such worker in service.
    fn new_job(&self, worker: &MemberKey) -> Result<JobId, OperationError>;

    /// The US dollars that the ended job of an attempt has spent; if the amount is not known, the most that it could
    /// spend.
    async fn spent_usd(&self, _attempt: &Attempt) -> f64 {
        0.0
    }

    /// Starts the attempt's job; the job of a meeting stays idle at first. An existing job with that id is left
    /// unchanged.
    async fn begin(&self, attempt: &Attempt) -> Result<(), NotBegun>;

    /// The reason that the host holds the job back until a user resumes it, if there is one.
    async fn held_back(&self, _attempt: &Attempt) -> Option<String> {
        None
    }

    /// Waits until the job has ended and nothing of it runs.
    async fn ended(&self, attempt: &Attempt) -> (Outcome, Vec<Decision>);

    /// Cancels the job. [`Self::ended`] waits for its end.
    async fn cancel(&self, attempt: &Attempt);

    /// The running job of a meeting, once it accepts messages: after a restart this takes a moment.
    ///
    /// # Errors
    ///
    /// Returns the reason that it does not accept messages, as a sentence for the user.
    async fn conversation(&self, _meeting: &Attempt) -> Result<Arc<RunningJob>, String> {
        Err(NO_MEETINGS.to_owned())
    }

    /// Sends the user's message to a meeting's worker, and waits for the end of the turn. All events of the turn,
    /// including its end, are in the job's transcript.
    ///
    /// # Errors
    ///
    /// Returns the reason that no turn began, as a sentence for the user. The transcript is then unchanged.
    async fn say(&self, _meeting: &Attempt, _message: &str, _cancel: &CancellationToken) -> Result<(), String> {
        Err(NO_MEETINGS.to_owned())
    }

    /// Answers a prompt in a separate session without tools, on the account of a meeting.
    ///
    /// # Errors
    ///
    /// Returns the reason that there is no answer.
    async fn write(&self, _meeting: &Attempt, _system_prompt: &str, _prompt: String) -> Result<String, NoSession> {
        Err(NoSession::Never(NO_MEETINGS.to_owned()))
    }

    /// Ends a meeting's job with these notes as its result, and waits until nothing of it runs. Returns the worker's
    /// decisions. A job that has ended already stays unchanged.
    ///
    /// # Errors
    ///
    /// Returns the reason that the job cannot be reached now; it has then not ended.
    async fn conclude(&self, _meeting: &Attempt, _notes: &str) -> Result<Vec<Decision>, String> {
        Err(NO_MEETINGS.to_owned())
    }

    /// The transcript of a meeting's job so far; it is also available after the job has ended.
    ///
    /// # Errors
    ///
    /// Returns an error when the transcript cannot be read.
    async fn transcript(&self, _worker: &MemberKey, _job: &JobId) -> Result<Vec<Line>, OperationError> {
        Ok(Vec::new())
    }
}
