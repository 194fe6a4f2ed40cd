//! Carries out one attempt at a commission: a branch and a worktree, a job of the worker, and the merge of its changes.
//!
//! Each step is stored before the next begins, and can be repeated: after a crash an attempt continues at its last
//! step.

use std::{path::Path, sync::Arc, time::Duration};

use guild_contract::{
    Decision, JobId, OperationError,
    hall::{CommissionStatus, TITLE_PREFIX, label},
    text::one_line,
};
use guild_git::{AttemptBranch, GitError, Integration, Merge};

use super::{
    Commissions, StoredCommission,
    commission::{Commission, End},
    report::note_once,
};
use crate::{
    blocking::blocking,
    core::{
        left_out,
        requester::Requester,
        text::cut,
        workers::{NO_RESULT, NotBegun, Outcome},
    },
    records::{
        log::{self, fitting},
        store,
    },
};

/// The pause of an attempt before it asks a busy host again.
const BUSY: Duration = Duration::from_secs(2);

/// The event that names files that were not committed.
const NOT_COMMITTED: &str = "not_committed";

/// The most characters of a failure's reason in the log.
const REASON_CHARS: usize = 400;

const CANCELLED: &str = "Commission cancelled by user";
const COMPLETED: &str = "Execution completed";

/// The event with the last text of a session that submitted no result, and the most characters of the text in the
/// timeline.
const LAST_TEXT: &str = "last_text";
const LAST_TEXT_CHARS: usize = 16_000;

/// The event of a job that waits for a user to resume it.
const HELD_BACK: &str = "held_back";

impl Commissions {
    /// Cancels a commission. When this returns, the attempt and its session have ended; the worker's changes are on its
    /// branch.
    ///
    /// # Errors
    ///
    /// Returns an error when the commission is over, or ended otherwise in the meantime.
    pub async fn cancel(
        self: &Arc<Self>,
        id: &str,
        reason: Option<&str>,
        requester: &Requester,
    ) -> Result<(), OperationError> {
        let call = requester.call();
        let stored = self.get(id)?;
        let reason = reason.map(str::trim).filter(|reason| !reason.is_empty()).unwrap_or(CANCELLED);
        let time = self.core.time();
        let refused = |status: CommissionStatus| {
            OperationError::Conflict(format!("Cannot cancel commission \"{id}\": current state is \"{status}\""))
        };
        let runs = self
            .records
            .change(&stored, |commission| {
                match (commission.status, commission.is_repeated(call), &mut commission.attempt) {
                    (status, true, _) => Ok(status.is_active()),
                    (CommissionStatus::Pending | CommissionStatus::Blocked, ..) => {
                        commission.transition_to(CommissionStatus::Cancelled, reason, time).map(|()| false)
                    }
                    (status, _, Some(attempt)) if status.is_active() => {
                        attempt.cancel.get_or_insert_with(|| reason.to_owned());
                        Ok(true)
                    }
                    // The attempt has no stored state: it belongs to another host, or to a hall that lost its state.
                    (status, _, None) if status.is_active() => {
                        commission.transition_to(CommissionStatus::Cancelled, reason, time).map(|()| false)
                    }
                    (status, ..) => Err(refused(status)),
                }
            })
            .await?;
        if runs {
            stored.runtime.cancel().cancel();
            let mut now = stored.changes();
            let ended = now.wait_for(|now| !now.status.is_active()).await;
            let status = ended.map_err(|_| OperationError::Internal("the host is stopping".to_owned()))?.status;
            if status != CommissionStatus::Cancelled {
                return Err(refused(status));
            }
            return Ok(());
        }
        let project = stored.now().project_name.clone();
        self.check_dependencies(Some(&project)).await
    }

    /// Resumes all attempts that were running when the last host stopped.
    pub(crate) fn resume(self: &Arc<Self>) {
        for stored in self.records.all() {
            let now = stored.now();
            if now.status.is_active() && now.attempt.is_some() {
                self.spawn_attempt(stored);
            }
        }
    }

    /// Carries out an attempt in the background.
    pub(super) fn spawn_attempt(self: &Arc<Self>, stored: Arc<StoredCommission>) {
        let commissions = self.clone();
        tokio::spawn(async move {
            let (id, project) = (stored.now().commission_id.clone(), stored.now().project_name.clone());
            if let Err(e) = commissions.carry_out(&stored).await {
                let reason = commissions.core.without_paths(e.to_string()).await;
                let end = End { status: CommissionStatus::Failed, reason, time: commissions.core.time() };
                if let Err(e) = commissions.end(&stored, end, Came::Nothing).await {
                    tracing::error!(commission = %id, "the end of the attempt cannot be stored: {e}");
                }
            }
            if let Err(e) = commissions.finish(&stored).await {
                tracing::error!(commission = %id, "the end of the attempt cannot be stored; the next start retries \
                    it: {e}");
            }
            if let Err(e) = commissions.check_dependencies(Some(&project)).await {
                tracing::error!(commission = %id, "commissions that wait for this one cannot start: {e}");
            }
            // Other commissions may have waited for the cap of all projects.
            if let Err(e) = commissions.schedule().await {
                tracing::error!("waiting commissions cannot start: {e}");
            }
        });
    }

    /// Runs an attempt from its worktree to the end of its job.
    async fn carry_out(&self, stored: &StoredCommission) -> Result<(), OperationError> {
        let jobs = self.core.jobs()?;
        let cancel = stored.runtime.cancel();
        let is_cancelled = || stored.now().attempt.as_ref().and_then(|attempt| attempt.cancel.clone());
        let now = stored.now();
        if now.attempt.as_ref().is_some_and(|attempt| attempt.end.is_some()) {
            return Ok(());
        }
        let project = self.core.project(&now.project_name)?;
        let attempt = now.as_attempt(project.settings.memory_chars());
        let attempt = attempt.ok_or_else(|| {
            OperationError::Internal(format!("the worker {:?} of this commission is not a member", now.worker_name))
        })?;
        if now.status == CommissionStatus::Dispatched {
            if is_cancelled().is_none() {
                self.core.make_worktree(&project, &attempt, now.branch_name.as_deref()).await?;
                self.records
                    .change(stored, |commission| {
                        commission.attempt.iter_mut().for_each(|attempt| attempt.begun = true);
                        Ok(())
                    })
                    .await?;
            }
            let mut held_back = None;
            loop {
                if let Some(reason) = is_cancelled() {
                    return self
                        .end(
                            stored,
                            End { status: CommissionStatus::Cancelled, reason, time: self.core.time() },
                            Came::Nothing,
                        )
                        .await;
                }
                match jobs.begin(&attempt).await {
                    Ok(()) => break,
                    Err(NotBegun::Refused(why)) => return Err(OperationError::Internal(why)),
                    Err(NotBegun::Busy(why)) => {
                        if held_back.as_ref() != Some(&why) {
                            tracing::info!(commission = %now.commission_id, "the attempt waits: {why}");
                            held_back = Some(why);
                        }
                        // A cancellation ends the wait.
                        let _ = tokio::time::timeout(BUSY, cancel.cancelled()).await;
                    }
                }
            }
            let time = self.core.time();
            self.records
                .change(stored, |commission| {
                    commission.transition_to(CommissionStatus::InProgress, "Execution started", time)
                })
                .await?;
        }
        if is_cancelled().is_some() {
            jobs.cancel(&attempt).await;
        } else if let Some(why) = jobs.held_back(&attempt).await {
            let time = self.core.time();
            self.records
                .change(stored, |commission| {
                    note_once(commission, HELD_BACK, &why, time);
                    Ok(())
                })
                .await?;
        }
        let (outcome, decisions) = tokio::select! {
            ended = jobs.ended(&attempt) => ended,
            () = cancel.cancelled() => {
                jobs.cancel(&attempt).await;
                jobs.ended(&attempt).await
            }
        };
        let end = |status, reason: String| End { status, reason, time: self.core.time() };
        let (end, came) = match outcome {
            Outcome::Completed { result, error: None } => {
                (end(CommissionStatus::Completed, COMPLETED.to_owned()), Came::Result(result, decisions))
            }
            Outcome::Completed { result, error: Some(error) } => (
                end(CommissionStatus::Completed, format!("{COMPLETED}; after its result: {error}")),
                Came::Result(result, decisions),
            ),
            Outcome::Failed { error, text } => {
                let reason = if error.is_empty() { NO_RESULT.to_owned() } else { error };
                (end(CommissionStatus::Failed, reason), Came::LastText(text))
            }
            Outcome::Cancelled => {
                let reason = is_cancelled().unwrap_or_else(|| "The job of the attempt was cancelled".to_owned());
                (end(CommissionStatus::Cancelled, reason), Came::Nothing)
            }
        };
        self.end(stored, end, came).await
    }

    /// Stores the end of an attempt. The first stored end counts.
    async fn end(&self, stored: &StoredCommission, end: End, came: Came) -> Result<(), OperationError> {
        let (spent, time) = (self.spent_usd(&stored.now()).await, self.core.time());
        self.records
            .change(stored, |commission| {
                let Some(attempt) = commission.attempt.as_mut().filter(|attempt| attempt.end.is_none()) else {
                    return Ok(());
                };
                attempt.end = Some(end);
                let job = attempt.job.clone();
                commission.delegated.iter_mut().for_each(|delegated| delegated.spent_usd += spent);
                match came {
                    Came::Result(result, decisions) => {
                        commission.record.body = log::body(&fitting(result), &decisions);
                    }
                    Came::LastText(text) if !text.trim().is_empty() => {
                        commission.note(LAST_TEXT, &beginning(text.trim(), &job), time);
                    }
                    Came::LastText(_) | Came::Nothing => {}
                }
                Ok(())
            })
            .await
    }

    /// The dollars that the attempt at a commission of the manager's has spent.
    async fn spent_usd(&self, now: &Commission) -> f64 {
        match (&now.delegated, now.as_attempt(None), self.core.jobs()) {
            (Some(_), Some(attempt), Ok(jobs)) => jobs.spent_usd(&attempt).await,
            _ => 0.0,
        }
    }

    /// Finishes an attempt after its job has ended: commits, merges, and removes the worktree.
    async fn finish(self: &Arc<Self>, stored: &StoredCommission) -> Result<(), OperationError> {
        let _one = stored.hold().await;
        let now = stored.now();
        let Some(attempt) = now.attempt.as_ref().filter(|_| now.status.is_active()) else { return Ok(()) };
        let Some(mut end) = attempt.end.clone() else { return Ok(()) };
        let (mut tidy, mut conflict) = (true, None);
        if let (true, Some(dir)) = (attempt.begun, &now.worktree_dir) {
            let project = self.core.project(&now.project_name)?;
            let integration = self.core.projects.integration(&self.core.home, &project).await?;
            let left_out = if dir.exists() { left_out(&integration, dir).await } else { None };
            if let Some(left_out) = left_out {
                let time = self.core.time();
                self.records
                    .change_held(stored, |commission| {
                        note_once(commission, NOT_COMMITTED, &left_out, time);
                        Ok(())
                    })
                    .await?;
            }
            // The committed record contains the note.
            let now = stored.now();
            let branch = branch(&now)?;
            let work = Work { integration: &integration, branch: &branch, dir };
            if end.status == CommissionStatus::Completed {
                let failed = |reason: String| End { status: CommissionStatus::Failed, reason, time: self.core.time() };
                match self.merge(&now, &end, work).await {
                    Ok(Merge::Merged { .. } | Merge::NothingToMerge) => {}
                    Ok(Merge::Conflicts { files }) => {
                        let files = files.join(", ");
                        let why = format!("Squash-merge conflict on non-.lore/ files: {files}; {branch} has the work");
                        conflict = Some(format!("Commission {} failed: {why}", now.commission_id));
                        end = failed(why);
                    }
                    Err(e) => {
                        tracing::warn!(commission = %now.commission_id, "the commission cannot be merged: {e}");
                        end = failed(self.core.without_paths(format!("Finalize error: {e}")).await);
                    }
                }
            }
            if end.status != CommissionStatus::Completed {
                let message = format!("Partial work preserved ({}): {}", end.status, now.commission_id);
                if let Err(e) = self.commit(&now, &end, work, &message).await {
                    tracing::warn!(commission = %now.commission_id, "the changes in {} cannot be committed: {e}", dir.display());
                    tidy = false;
                }
            }
            if tidy && let Err(e) = integration.repository().remove_worktree(dir).await {
                tracing::warn!(commission = %now.commission_id, "the worktree {} cannot be removed: {e}", dir.display());
            }
        }
        self.records
            .change_held(stored, |commission| {
                let over = ended(commission, &end)?;
                *commission = over;
                Ok(())
            })
            .await?;
        if end.status == CommissionStatus::Failed {
            let (id, worker, project) = (&now.commission_id, &now.worker_name, &now.project_name);
            tracing::warn!(commission = %id, worker, project, "the commission failed: {}", one_line(&end.reason, REASON_CHARS));
        }
        if let Some(reason) = conflict {
            self.meetings.ask_manager(&now.project_name, &reason).await;
        }
        Ok(())
    }

    /// Commits the files of the worktree, with the final record.
    async fn commit(
        &self,
        now: &Commission,
        end: &End,
        Work { integration, branch, dir }: Work<'_>,
        message: &str,
    ) -> Result<(), OperationError> {
        if !dir.exists() {
            // The worktree was removed before a crash, and all of its files are committed.
            return Ok(());
        }
        let (new, over, to) = (self.core.home.new_files()?, ended(now, end)?, dir.to_owned());
        blocking(move || store::write_record(&new, &to, &over)).await?;
        integration.repository().commit_all(branch, dir, message).await?;
        Ok(())
    }

    /// Commits the files of the worktree, and merges them.
    async fn merge(&self, now: &Commission, end: &End, work: Work<'_>) -> Result<Merge, OperationError> {
        let id = &now.commission_id;
        self.commit(now, end, work, &format!("Commission completed: {id}")).await?;
        let title = label(&now.record.title);
        let merged = work.integration.merge_squash(work.branch, &format!("{TITLE_PREFIX}{id}\n\n{title}")).await;
        merged.map_err(|e: GitError| e.into())
    }
}

/// The branch of an attempt with its worktree, and the branch into which it is merged.
#[derive(Clone, Copy)]
struct Work<'a> {
    integration: &'a Integration,
    branch: &'a AttemptBranch,
    dir: &'a Path,
}

/// The commission with this end.
fn ended(commission: &Commission, end: &End) -> Result<Commission, OperationError> {
    let mut over = commission.clone();
    // An attempt can end before it was in progress; the timeline then lacks that state.
    if over.status == CommissionStatus::Dispatched && end.status == CommissionStatus::Completed {
        over.status = CommissionStatus::InProgress;
    }
    over.transition_to(end.status, &end.reason, end.time.clone())?;
    over.worktree_dir = None;
    over.attempt.iter_mut().for_each(|attempt| {
        attempt.begun = false;
        attempt.end = Some(end.clone());
    });
    Ok(over)
}

/// The outcome of an attempt besides the files on its branch.
enum Came {
    /// The result, and the worker's decisions.
    Result(String, Vec<Decision>),
    /// The last text of a session that submitted no result, which may be the only outcome.
    LastText(String),
    Nothing,
}

/// The beginning of a last text, for the timeline.
fn beginning(text: &str, job: &JobId) -> String {
    let noted = cut(text.to_owned(), LAST_TEXT_CHARS);
    let rest = if noted == text {
        String::new()
    } else {
        format!("\n\n(The whole text is in the transcript of the job {job}.)")
    };
    noted + &rest
}

fn branch(commission: &Commission) -> Result<AttemptBranch, OperationError> {
    Ok(AttemptBranch::new(commission.branch_name.as_deref().unwrap_or_default())?)
}
