//! Those who carry commissions out, as the hall sees them.

use std::path::PathBuf;

use async_trait::async_trait;
use guild_contract::{Decision, JobId, MemberKey};
use guild_git::Checkout;

use crate::{
    commission::{Commission, CommissionId, Overrides},
    error::HallError,
};

/// A worker that can be commissioned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its key in the roster.
    pub key: MemberKey,
    /// The name of its package.
    pub package: String,
    /// Its name for people.
    pub display_name: String,
    /// What it is, for people.
    pub display_title: String,
    /// What it does.
    pub description: String,
    /// Where its picture is.
    pub portrait: Option<String>,
    /// The model that it prefers.
    pub model: Option<String>,
    /// What of a project it needs checked out (REQ-WKR-2).
    pub checkout: Checkout,
    /// What it was granted, by the names of grants and tools.
    pub can: Vec<String>,
}

/// One attempt at a commission: what a worker is given to work on.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The commission.
    pub commission: CommissionId,
    /// Which attempt it is, from 1.
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
    /// What is asked.
    pub prompt: String,
    /// What it builds on.
    pub dependencies: Vec<String>,
    /// In place of the worker's own bounds.
    pub overrides: Overrides,
    /// The attempt's worktree. It is on a branch of its own.
    pub worktree: PathBuf,
    /// What is checked out there.
    pub checkout: Checkout,
    /// Characters of memories that the session is given, where the project says so (REQ-WKR-23).
    pub memory_chars: Option<u64>,
}

/// The read root that holds a project's documents. It is there in each checkout.
const LORE: &str = "lore";

impl Attempt {
    /// What the worker of a commission is given; `None` where there is no attempt, or its worker cannot be a member.
    pub(crate) fn of(commission: &Commission, memory_chars: Option<u64>) -> Option<Self> {
        let state = commission.attempt.as_ref()?;
        let record = &commission.record;
        Some(Self {
            commission: commission.commission_id.clone(),
            number: u32::try_from(commission.attempts()).unwrap_or(u32::MAX),
            project: commission.project_name.clone(),
            worker: commission.worker_name.parse().ok()?,
            worker_name: record.worker.clone(),
            job: state.job.clone(),
            title: record.title.strip_prefix("Commission: ").unwrap_or(&record.title).to_owned(),
            prompt: record.prompt.clone(),
            dependencies: record.dependencies.clone(),
            overrides: record.resource_overrides.clone(),
            worktree: commission.worktree_dir.clone()?,
            checkout: if state.full { Checkout::Full } else { Checkout::Sparse },
            memory_chars,
        })
    }

    /// What it reads of its worktree, by name: its documents, and all of it where all is checked out. Hidden files of a read
    /// root are never read, so the documents need one of their own, and `.git` has none.
    pub fn roots(&self) -> Vec<(String, PathBuf)> {
        let lore = (LORE.to_owned(), self.worktree.join(".lore"));
        match self.checkout {
            Checkout::Sparse => vec![lore],
            Checkout::Full => vec![(self.project.clone(), self.worktree.clone()), lore],
        }
    }

    /// The name of the read root that holds its project.
    pub fn project_root(&self) -> &str {
        match self.checkout {
            Checkout::Sparse => LORE,
            Checkout::Full => &self.project,
        }
    }
}

/// How the job of an attempt ended. Nothing of it runs any more.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It has a result.
    Completed {
        /// The result.
        result: String,
        /// What went wrong after the result was submitted.
        error: Option<String>,
    },
    /// It has none.
    Failed {
        /// Why.
        error: String,
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

/// The workers of a host. An attempt is an ordinary job of one.
#[async_trait]
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

    /// An id for a new job.
    ///
    /// # Errors
    /// Where there is no such worker in service.
    fn new_job(&self, worker: &MemberKey) -> Result<JobId, HallError>;

    /// Begins the attempt's job. Where a job of that id is there already, it is left as it is.
    async fn begin(&self, attempt: &Attempt) -> Result<(), NotBegun>;

    /// Waits until the job has ended, and nothing of it runs.
    async fn ended(&self, attempt: &Attempt) -> (Outcome, Vec<Decision>);

    /// Ends the job. [`Self::ended`] tells when it has.
    async fn cancel(&self, attempt: &Attempt);
}
