//! One attempt at a commission: a branch and a worktree, a job of the worker, and the merge of what it did.
//!
//! Each step is stored before the next begins, and can be done again: after a crash an attempt goes on where it was.

use std::{path::Path, sync::Arc, time::Duration};

use guild_contract::{Decision, JobId, OperationError, hall::CommissionStatus, text::one_line};
use guild_git::{AttemptBranch, GitError, Integration, Merge};

use super::{CommissionCell, Hall, blocking, cut, tools::note_once};
use crate::{
    commission::{Commission, End, record},
    project::Project,
    protected::LORE,
    requester::Requester,
    store,
    workers::{Attempt, NO_RESULT, NotBegun, Outcome, WorkerJobs, Workers},
};

/// How long an attempt waits before it asks a host that was busy again.
const BUSY: Duration = Duration::from_secs(2);

/// The event that names files which were not committed, how many it names, and how long their names are.
const NOT_COMMITTED: &str = "not_committed";
const NAMED: usize = 20;
const NAME_CHARS: usize = 120;

/// Characters of the reason of a failure in the log.
const REASON_CHARS: usize = 400;

const CANCELLED: &str = "Commission cancelled by user";
const COMPLETED: &str = "Execution completed";

/// The event with the last text of a session that submitted no result, and how much of that the timeline has.
const LAST_TEXT: &str = "last_text";
const LAST_TEXT_CHARS: usize = 16_000;

/// The event that says that the job waits for somebody to let it on.
const HELD_BACK: &str = "held_back";

impl Hall {
    /// Cancels a commission. An attempt has ended, and its session, when this returns; what it wrote is on its branch.
    ///
    /// # Errors
    /// Where the commission is over, or ended otherwise meanwhile.
    pub async fn cancel(
        self: &Arc<Self>,
        id: &str,
        reason: Option<&str>,
        requester: &Requester,
    ) -> Result<(), OperationError> {
        let call = requester.call();
        let cell = self.cell(id)?;
        let reason = reason.map(str::trim).filter(|reason| !reason.is_empty()).unwrap_or(CANCELLED);
        let time = self.time();
        let refused = |status: CommissionStatus| {
            OperationError::Conflict(format!("Cannot cancel commission \"{id}\": current state is \"{status}\""))
        };
        let runs = self
            .change(&cell, |commission| {
                match (commission.status, commission.is_repeated(call), &mut commission.attempt) {
                    (status, true, _) => Ok(status.is_active()),
                    (CommissionStatus::Pending | CommissionStatus::Blocked, ..) => {
                        commission.transition_to(CommissionStatus::Cancelled, reason, time).map(|()| false)
                    }
                    (status, _, Some(attempt)) if status.is_active() => {
                        attempt.cancel.get_or_insert_with(|| reason.to_owned());
                        Ok(true)
                    }
                    // An attempt of which nothing is kept: it is another host's, or of one that lost its state.
                    (status, _, None) if status.is_active() => {
                        commission.transition_to(CommissionStatus::Cancelled, reason, time).map(|()| false)
                    }
                    (status, ..) => Err(refused(status)),
                }
            })
            .await?;
        if runs {
            cell.live.cancel().cancel();
            let mut now = cell.changes();
            let ended = now.wait_for(|now| !now.status.is_active()).await;
            let status = ended.map_err(|_| OperationError::Internal("the host is stopping".to_owned()))?.status;
            if status != CommissionStatus::Cancelled {
                return Err(refused(status));
            }
            return Ok(());
        }
        let project = cell.now().project_name.clone();
        self.check_dependencies(Some(&project)).await
    }

    /// Goes on with all attempts that were under way when the last host ended, and begins what can begin. The workers are
    /// known from now on.
    ///
    /// # Errors
    /// Where `config.yaml` cannot be read, or a change cannot be stored.
    pub async fn begin_work<W>(self: &Arc<Self>, workers: Arc<W>) -> Result<(), OperationError>
    where
        W: Workers + WorkerJobs + 'static,
    {
        let _ = self.workers.set(workers.clone());
        let _ = self.jobs.set(workers);
        for cell in self.commissions.all() {
            let now = cell.now();
            if now.status.is_active() && now.attempt.is_some() {
                self.spawn_attempt(cell);
            }
        }
        self.resume_meetings();
        self.keep_tidy();
        self.check_dependencies(None).await
    }

    /// Carries an attempt out, in the background.
    pub(super) fn spawn_attempt(self: &Arc<Self>, cell: Arc<CommissionCell>) {
        let hall = self.clone();
        tokio::spawn(async move {
            let (id, project) = (cell.now().commission_id.clone(), cell.now().project_name.clone());
            if let Err(e) = hall.carry_out(&cell).await {
                let reason = hall.without_paths(e.to_string()).await;
                let end = End { status: CommissionStatus::Failed, reason, time: hall.time() };
                if let Err(e) = hall.end(&cell, end, Came::Nothing).await {
                    tracing::error!(commission = %id, "its end cannot be stored: {e}");
                }
            }
            if let Err(e) = hall.finish(&cell).await {
                tracing::error!(commission = %id, "its end cannot be stored, and is tried again at the next start: {e}");
            }
            if let Err(e) = hall.check_dependencies(Some(&project)).await {
                tracing::error!(commission = %id, "what waits for it cannot begin: {e}");
            }
            // Others may have waited for the cap of all projects.
            if let Err(e) = hall.schedule().await {
                tracing::error!("what waits cannot begin: {e}");
            }
        });
    }

    /// Makes the place in which an attempt works: a worktree on a branch of its own, or without a branch the integration
    /// worktree. It has a directory for documents, also in a project that has none yet.
    pub(super) async fn make_worktree(
        &self,
        project: &Project,
        attempt: &Attempt,
        branch: Option<&str>,
    ) -> Result<(), OperationError> {
        let failed = |e: &dyn std::fmt::Display| OperationError::Internal(format!("Workspace preparation failed: {e}"));
        let integration = self.projects.integration(&self.home, project).await.map_err(|e| failed(&e))?;
        if let Some(branch) = branch {
            let branch = AttemptBranch::new(branch)?;
            let started = integration.start_attempt(&branch, &attempt.worktree, attempt.checkout).await;
            started.map_err(|e| failed(&e))?;
        }
        match std::fs::create_dir(attempt.worktree.join(LORE)) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(failed(&format!("{LORE}: {e}"))),
            _ => Ok(()),
        }
    }

    /// From the worktree to the end of the job.
    async fn carry_out(&self, cell: &CommissionCell) -> Result<(), OperationError> {
        let jobs = self.jobs()?;
        let cancel = cell.live.cancel();
        let is_cancelled = || cell.now().attempt.as_ref().and_then(|attempt| attempt.cancel.clone());
        let now = cell.now();
        if now.attempt.as_ref().is_some_and(|attempt| attempt.end.is_some()) {
            return Ok(());
        }
        let project = self.project(&now.project_name)?;
        let attempt = Attempt::of(&now, project.settings.memory_chars());
        let attempt = attempt
            .ok_or_else(|| OperationError::Internal(format!("its worker {:?} is no member", now.worker_name)))?;
        if now.status == CommissionStatus::Dispatched {
            if is_cancelled().is_none() {
                self.make_worktree(&project, &attempt, now.branch_name.as_deref()).await?;
                self.change(cell, |commission| {
                    commission.attempt.iter_mut().for_each(|attempt| attempt.begun = true);
                    Ok(())
                })
                .await?;
            }
            loop {
                if let Some(reason) = is_cancelled() {
                    return self
                        .end(
                            cell,
                            End { status: CommissionStatus::Cancelled, reason, time: self.time() },
                            Came::Nothing,
                        )
                        .await;
                }
                match jobs.begin(&attempt).await {
                    Ok(()) => break,
                    Err(NotBegun::Refused(why)) => return Err(OperationError::Internal(why)),
                    Err(NotBegun::Busy(why)) => {
                        tracing::debug!(commission = %now.commission_id, "it waits: {why}");
                        // A cancel ends the waiting.
                        let _ = tokio::time::timeout(BUSY, cancel.cancelled()).await;
                    }
                }
            }
            let time = self.time();
            self.change(cell, |commission| {
                commission.transition_to(CommissionStatus::InProgress, "Execution started", time)
            })
            .await?;
        }
        if is_cancelled().is_some() {
            jobs.cancel(&attempt).await;
        } else if let Some(why) = jobs.held_back(&attempt).await {
            let time = self.time();
            self.change(cell, |commission| {
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
        let end = |status, reason: String| End { status, reason, time: self.time() };
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
                let reason = is_cancelled().unwrap_or_else(|| "Its job was cancelled".to_owned());
                (end(CommissionStatus::Cancelled, reason), Came::Nothing)
            }
        };
        self.end(cell, end, came).await
    }

    /// Stores how an attempt ended. The first end holds.
    async fn end(&self, cell: &CommissionCell, end: End, came: Came) -> Result<(), OperationError> {
        let (spent, time) = (self.spent_usd(&cell.now()).await, self.time());
        self.change(cell, |commission| {
            let Some(attempt) = commission.attempt.as_mut().filter(|attempt| attempt.end.is_none()) else {
                return Ok(());
            };
            attempt.end = Some(end);
            let job = attempt.job.clone();
            commission.delegated.iter_mut().for_each(|delegated| delegated.spent_usd += spent);
            match came {
                Came::Result(result, decisions) => {
                    commission.record.body = record::body(&record::fitting(result), &decisions);
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

    /// What the attempt at a commission of the manager's has spent.
    async fn spent_usd(&self, now: &Commission) -> f64 {
        match (&now.delegated, Attempt::of(now, None), self.jobs()) {
            (Some(_), Some(attempt), Ok(jobs)) => jobs.spent_usd(&attempt).await,
            _ => 0.0,
        }
    }

    /// From the end of the job to the state that people see: commits, merges, and tidies up.
    async fn finish(self: &Arc<Self>, cell: &CommissionCell) -> Result<(), OperationError> {
        let _one = cell.hold().await;
        let now = cell.now();
        let Some(attempt) = now.attempt.as_ref().filter(|_| now.status.is_active()) else { return Ok(()) };
        let Some(mut end) = attempt.end.clone() else { return Ok(()) };
        let (mut tidy, mut conflict) = (true, None);
        if let (true, Some(dir)) = (attempt.begun, &now.worktree_dir) {
            let project = self.project(&now.project_name)?;
            let integration = self.projects.integration(&self.home, &project).await?;
            let left_out = if dir.exists() { left_out(&integration, dir).await } else { None };
            if let Some(left_out) = left_out {
                let time = self.time();
                self.change_held(cell, |commission| {
                    note_once(commission, NOT_COMMITTED, &left_out, time);
                    Ok(())
                })
                .await?;
            }
            // The record that is committed has it.
            let now = cell.now();
            let branch = branch(&now)?;
            let at = (&*integration, &branch, dir.as_path());
            if end.status == CommissionStatus::Completed {
                let failed = |reason: String| End { status: CommissionStatus::Failed, reason, time: self.time() };
                match self.merge(&now, &end, at).await {
                    Ok(Merge::Merged { .. } | Merge::NothingToMerge) => {}
                    Ok(Merge::Conflicts { files }) => {
                        let files = files.join(", ");
                        let why = format!("Squash-merge conflict on non-.lore/ files: {files}; {branch} has the work");
                        conflict = Some(format!("Commission {} failed: {why}", now.commission_id));
                        end = failed(why);
                    }
                    Err(e) => {
                        tracing::warn!(commission = %now.commission_id, "it cannot be merged: {e}");
                        end = failed(self.without_paths(format!("Finalize error: {e}")).await);
                    }
                }
            }
            if end.status != CommissionStatus::Completed {
                let message = format!("Partial work preserved ({}): {}", end.status, now.commission_id);
                if let Err(e) = self.commit(&now, &end, at, &message).await {
                    tracing::warn!(commission = %now.commission_id, "{} stays as it is: {e}", dir.display());
                    tidy = false;
                }
            }
            if tidy && let Err(e) = integration.repository().remove_worktree(dir).await {
                tracing::warn!(commission = %now.commission_id, "{} stays: {e}", dir.display());
            }
        }
        self.change_held(cell, |commission| {
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
            self.ask_manager(&now.project_name, &reason).await;
        }
        Ok(())
    }

    /// Commits what is in the worktree, with the record as it will be.
    async fn commit(
        &self,
        now: &Commission,
        end: &End,
        (integration, branch, dir): (&Integration, &AttemptBranch, &Path),
        message: &str,
    ) -> Result<(), OperationError> {
        if !dir.exists() {
            // It was removed before a crash, and all of it is committed.
            return Ok(());
        }
        let (new, over, to) = (self.home.new_files()?, ended(now, end)?, dir.to_owned());
        blocking(move || store::write_record(&new, &to, &over)).await?;
        integration.repository().commit_all(branch, dir, message).await?;
        Ok(())
    }

    /// Commits what is in the worktree, and merges it.
    async fn merge(
        &self,
        now: &Commission,
        end: &End,
        at: (&Integration, &AttemptBranch, &Path),
    ) -> Result<Merge, OperationError> {
        let id = &now.commission_id;
        self.commit(now, end, at, &format!("Commission completed: {id}")).await?;
        let title = now.record.title.strip_prefix("Commission: ").unwrap_or(&now.record.title);
        let merged = at.0.merge_squash(at.1, &format!("Commission: {id}\n\n{title}")).await;
        merged.map_err(|e: GitError| e.into())
    }
}

/// What the rules of a project leave out of what was written in a worktree, which is removed: a sentence for people. `None`
/// where that is nothing.
pub(super) async fn left_out(integration: &Integration, dir: &Path) -> Option<String> {
    let files = match integration.repository().left_out(dir).await {
        Ok(files) => files,
        Err(e) => {
            // The whole error could name a path of the host, and this is committed.
            tracing::warn!(dir = %dir.display(), "git cannot tell which files are not committed: {e}");
            return Some(format!("Git cannot tell which files are not committed: {}", e.kind()));
        }
    };
    let more = match files.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let named: Vec<String> = files.iter().take(NAMED).map(|file| one_line(file, NAME_CHARS)).collect();
    let why = "The project ignores files that are in the worktree, so they are not committed";
    (!files.is_empty()).then(|| format!("{why}: {}{more}", named.join(", ")))
}

/// The commission as it is once that end is stored.
fn ended(commission: &Commission, end: &End) -> Result<Commission, OperationError> {
    let mut over = commission.clone();
    // An attempt that ended before it was under way was none; the timeline says so by what it lacks.
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

/// What came of an attempt besides what is on its branch.
enum Came {
    /// Its result, and what its worker decided.
    Result(String, Vec<Decision>),
    /// The last text of a session that submitted no result: it can be all that came of the work.
    LastText(String),
    Nothing,
}

/// As much of a last text as a timeline has.
fn beginning(text: &str, job: &JobId) -> String {
    let noted = cut(text.to_owned(), LAST_TEXT_CHARS);
    let rest =
        if noted == text { String::new() } else { format!("\n\n(All of it is in the transcript of the job {job}.)") };
    noted + &rest
}

fn branch(commission: &Commission) -> Result<AttemptBranch, OperationError> {
    Ok(AttemptBranch::new(commission.branch_name.as_deref().unwrap_or_default())?)
}
