//! The workers of a host and their jobs, as the hall uses them.

use std::{fmt, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use guild_contract::{
    Decision, JobId, MemberKey, OperationError,
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
    /// Its key in the roster.
    pub key: MemberKey,
    /// The name of its package.
    pub package: String,
    /// Its name for people.
    pub display_name: String,
    /// Its title for people.
    pub display_title: String,
    /// Its description.
    pub description: String,
    /// Where its picture is.
    pub portrait: Option<String>,
    /// The runtime of its sessions.
    pub agent: String,
    /// The model of its sessions, where that is known; the built-in search has none.
    pub model: Option<String>,
    /// The part of a project that it needs checked out (REQ-WKR-2).
    pub checkout: Checkout,
    /// Whether it is the hall's manager (REQ-WKR-24).
    pub manages: bool,
    /// Its grants, by the names of grants and tools.
    pub can: Vec<String>,
}

/// Where the worker of a meeting works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeetingScope {
    /// In a worktree on a branch of the meeting's own, which is merged when it is closed.
    #[default]
    Activity,
    /// In the integration worktree, which it only reads.
    Project,
}

/// The work of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// A commission, which it carries out without a user.
    Commission(CommissionId),
    /// A meeting, in which it talks with a user.
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

    /// The commission, where it is one.
    pub fn commission(&self) -> Option<&CommissionId> {
        match self {
            Self::Commission(id) => Some(id),
            Self::Meeting(..) => None,
        }
    }

    /// Whether it is a meeting.
    pub fn is_meeting(&self) -> bool {
        matches!(self, Self::Meeting(..))
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// One attempt at a commission, or a meeting: what a worker is given to work on.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The commission or the meeting.
    pub activity: Activity,
    /// Which attempt it is, from 1. A meeting has one.
    pub number: u32,
    /// Its project.
    pub project: String,
    /// Who works on it.
    pub worker: MemberKey,
    /// The worker's name for people, by which the original keeps its notes.
    pub worker_name: String,
    /// The attempt's job.
    pub job: JobId,
    /// A short label.
    pub title: String,
    /// The prompt.
    pub prompt: String,
    /// Its dependencies; of a meeting, the artifacts that belong to it.
    pub dependencies: Vec<String>,
    /// In place of the worker's own bounds.
    pub overrides: Overrides,
    /// The name of the token for which it counts what is spent, if there is one.
    pub token: Option<String>,
    /// The attempt's worktree. It is on a branch of its own.
    pub worktree: PathBuf,
    /// The part of the project that is checked out there.
    pub checkout: Checkout,
    /// Characters of memories that the session is given, where the project says so (REQ-WKR-23).
    pub memory_chars: Option<u64>,
}

/// The read root that holds a project's documents. It is there in each checkout.
const LORE: &str = "lore";

impl Attempt {
    /// The read roots in its worktree, by name: its documents, and all of it where all is checked out. Hidden files of
    /// a read root are never read, so the documents need one of their own, and `.git` has none.
    pub fn roots(&self) -> Vec<(String, PathBuf)> {
        let lore = (LORE.to_owned(), self.worktree.join(".lore"));
        match self.checkout {
            Checkout::Sparse => vec![lore],
            Checkout::Full => vec![(self.project.clone(), self.worktree.clone()), lore],
        }
    }

    /// The directories of these roots with the hall's own records. A report that cited them would cite earlier reports.
    pub fn records(&self) -> Vec<String> {
        RECORDS.iter().map(|directory| format!("{LORE}/{directory}")).collect()
    }

    /// A sentence that says which files of the project its worker does not have, where it does not have all of them.
    pub fn absent(&self) -> Option<String> {
        (self.checkout == Checkout::Sparse).then(|| {
            format!(
                "Of the project {} only the documents in `.lore/` are checked out for {}; `\"checkoutScope\": \"full\"` \
                 in its manifest is for all files.",
                self.project, self.worker
            )
        })
    }

    /// The name of the read root that holds its project.
    pub fn project_root(&self) -> &str {
        match self.checkout {
            Checkout::Sparse => LORE,
            Checkout::Full => &self.project,
        }
    }
}

/// Why an attempt failed whose session ended by itself, and submitted no result.
pub const NO_RESULT: &str = "Session completed without submitting result";

/// How the job of an attempt ended. Nothing of it runs any more.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It has a result.
    Completed {
        /// The result.
        result: String,
        /// The error after the result was submitted.
        error: Option<String>,
    },
    /// It has none.
    Failed {
        /// Why; empty where its session ended by itself, and submitted none.
        error: String,
        /// The last text of its session, where that is known.
        text: String,
    },
    /// Somebody ended it.
    Cancelled,
}

/// Why an attempt did not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotBegun {
    /// The host has no room at the moment.
    Busy(String),
    /// It cannot begin; the text says why.
    Refused(String),
}

/// Why a meeting's worker has no session, in a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoSession {
    /// It has none at the moment.
    #[error("{0}")]
    Now(String),
    /// Nor will it have one later.
    #[error("{0}")]
    Never(String),
}

/// Why workers that only take commissions cannot be talked with.
const NO_MEETINGS: &str = "these workers hold no meetings";

/// The workers of a host, and what the operator allows each.
pub trait Workers: Send + Sync {
    /// Those that are in service, by key.
    fn all(&self) -> Vec<Worker>;

    /// Reads `guild.toml` as it is now, without putting it in service. It blocks.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
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
    /// Why they cannot, and the models that they can run.
    fn check_model(&self, _worker: &MemberKey, _model: &str) -> Result<(), String> {
        Ok(())
    }

    /// Cuts overrides to what the operator allows the jobs of a worker. A sentence for each that was cut.
    fn cut(&self, _worker: &MemberKey, _overrides: &mut Overrides) -> Vec<String> {
        Vec::new()
    }

    /// US dollars that a job of a worker may spend with these overrides; 0 where its sessions cost nothing.
    fn budget_usd(&self, _worker: &MemberKey, overrides: &Overrides) -> f64 {
        overrides.max_budget_usd.unwrap_or(0.0)
    }

    /// Whether a worker's session may begin to spend, for that token if there is one.
    ///
    /// # Errors
    /// As much was spent today as may be; the sentence says until when.
    fn may_spend(&self, _worker: &MemberKey, _token: Option<&str>) -> Result<(), String> {
        Ok(())
    }
}

/// The jobs of the workers. An attempt is an ordinary job of its worker. The job of a meeting runs nothing between the
/// turns of its conversation.
#[async_trait]
pub trait WorkerJobs: Send + Sync {
    /// An id for a new job.
    ///
    /// # Errors
    /// Where there is no such worker in service.
    fn new_job(&self, worker: &MemberKey) -> Result<JobId, OperationError>;

    /// US dollars that the job of an attempt has spent which has ended; where that is not known, all that it could.
    async fn spent_usd(&self, _attempt: &Attempt) -> f64 {
        0.0
    }

    /// Begins the attempt's job; that of a meeting runs nothing yet. Where a job of that id is there already, it is
    /// left as it is.
    async fn begin(&self, attempt: &Attempt) -> Result<(), NotBegun>;

    /// Why nothing of the job runs until somebody lets it on, if so.
    async fn held_back(&self, _attempt: &Attempt) -> Option<String> {
        None
    }

    /// Waits until the job has ended, and nothing of it runs.
    async fn ended(&self, attempt: &Attempt) -> (Outcome, Vec<Decision>);

    /// Ends the job. [`Self::ended`] tells when it has.
    async fn cancel(&self, attempt: &Attempt);

    /// The running job of a meeting, once it can be talked with: after a restart that takes a moment.
    ///
    /// # Errors
    /// Why it cannot be talked with, in a sentence for the user.
    async fn conversation(&self, _meeting: &Attempt) -> Result<Arc<RunningJob>, String> {
        Err(NO_MEETINGS.to_owned())
    }

    /// Has a meeting's worker answer what the user says, and waits for the end of that turn. All that happens in it is
    /// in the job's transcript, its end too.
    ///
    /// # Errors
    /// Why no turn began, in a sentence for the user. Nothing was written then.
    async fn say(&self, _meeting: &Attempt, _message: &str, _cancel: &CancellationToken) -> Result<(), String> {
        Err(NO_MEETINGS.to_owned())
    }

    /// Has a session of its own, without tools, answer a prompt on the account of a meeting.
    ///
    /// # Errors
    /// Why there is no answer.
    async fn write(&self, _meeting: &Attempt, _system_prompt: &str, _prompt: String) -> Result<String, NoSession> {
        Err(NoSession::Never(NO_MEETINGS.to_owned()))
    }

    /// Ends a meeting's job with this result, and waits until nothing of it runs. Answers its worker's decisions. A job
    /// that has ended already stays as it ended.
    ///
    /// # Errors
    /// Why the job cannot be reached now, so that it has not ended.
    async fn conclude(&self, _meeting: &Attempt, _notes: &str) -> Result<Vec<Decision>, String> {
        Err(NO_MEETINGS.to_owned())
    }

    /// The transcript of a meeting's job so far, also once it has ended.
    ///
    /// # Errors
    /// Where it cannot be read.
    async fn transcript(&self, _worker: &MemberKey, _job: &JobId) -> Result<Vec<Line>, OperationError> {
        Ok(Vec::new())
    }
}
