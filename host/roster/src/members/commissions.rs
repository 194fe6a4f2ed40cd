//! Serves the hall: lists the members that can be commissioned, and runs the jobs of attempts.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use guild_config::{Config, PermittedProject};
use guild_contract::{
    Decision, Grants, JobId, JobStatus, Manifest, MemberKey, OperationError, Resumption, SpendError,
    capability::{MANAGER, denial::Denial, grants::Verdict},
    hall::{Model, Overrides},
    manifest::CheckoutScope,
    rpc::{DispatchParams, RpcError, code},
};
use guild_git::Checkout;
use guild_hall::{Attempt, NoSession, NotBegun, Outcome, Permit, Worker, WorkerJobs, Workers};
use guild_jobs::{JobStore, RunningJob};
use guild_session::transcript::{Entry, Line};
use tokio_util::sync::CancellationToken;

use super::{
    member::Member,
    roster::{MemberState, Roster},
};
use crate::{answer::blocking, tools::component::Component};

/// How long the work of an ended job may take to stop.
const LAST_WRITE: Duration = Duration::from_secs(30);
/// How long a meeting may take to resume after a restart, before its user is told to try again.
const RESUMPTION: Duration = Duration::from_secs(20);

/// The part of a project that a member needs checked out, by default the documents.
fn checkout(manifest: &Manifest) -> Checkout {
    match manifest.component.as_ref().and_then(|component| component.checkout_scope) {
        Some(CheckoutScope::Full) => Checkout::Full,
        Some(CheckoutScope::Sparse) | None => Checkout::Sparse,
    }
}

/// The projects in which the operator permits work.
pub(crate) fn permits(config: &Config) -> Vec<Permit> {
    let permit = |project: &PermittedProject| {
        let PermittedProject { path, push, pull_requests } = project.clone();
        Permit { path, push, pull_requests }
    };
    config.projects.iter().map(permit).collect()
}

/// The members of a host.
pub(crate) struct Commissions {
    roster: Arc<Roster>,
    /// `guild.toml`, if there is one.
    file: Option<PathBuf>,
}

impl Commissions {
    pub(crate) fn new(roster: Arc<Roster>, file: Option<PathBuf>) -> Self {
        Self { roster, file }
    }

    fn member(&self, key: &MemberKey) -> Option<Arc<Member>> {
        match self.roster.now().state(key.as_str()) {
            Some(MemberState::Ready(member)) => Some(member),
            _ => None,
        }
    }
}

/// The reason that nobody can talk with the worker of a meeting.
#[derive(Debug, thiserror::Error)]
enum NotConversing {
    /// The job has ended, so nobody ever will.
    #[error("the job {0} of the meeting has ended, so nobody can talk in it any more; close the meeting")]
    Ended(JobId),
    /// The worker cannot answer now. The text is a sentence for the user.
    #[error("{0}")]
    Now(String),
}

impl Commissions {
    /// The worker of a meeting that can answer, and its job. After a restart this waits a while until the worker's
    /// component is loaded.
    async fn conversing(&self, meeting: &Attempt) -> Result<(Arc<Member>, Arc<RunningJob>), NotConversing> {
        let member = self.member(&meeting.worker).ok_or_else(|| NotConversing::Now(not_served(&meeting.worker)))?;
        let id = meeting.job.as_str();
        let (store, job) = (member.store().clone(), meeting.job.clone());
        // It waits until the jobs are read at the start of a host.
        let _ = blocking(move || Ok(store.look_up(job.as_str()).is_some())).await;
        let until = tokio::time::Instant::now() + RESUMPTION;
        let (mut component, mut conversing) = (member.component.clone(), member.data.conversing());
        loop {
            let now = component.borrow_and_update().clone();
            conversing.borrow_and_update();
            // In a cluster, the host takes the job a moment after its own start.
            let Some(mut view) = member.store().follow(id) else {
                return Err(NotConversing::Ended(meeting.job.clone()));
            };
            if let Some(job) = member.store().running(id).filter(|_| member.data.is_conversing(id)) {
                return Ok((member, job));
            }
            if let Component::Failed(why) = now {
                return Err(NotConversing::Now(format!(
                    "its worker {} is not in service: {why}. The meeting goes on once it is; without it, end its job with \
                     `guild cancel {id}`, and close it then",
                    meeting.worker
                )));
            }
            // A component that is loaded sends nothing more: its closed channel must not wake this.
            tokio::select! {
                Ok(()) = component.changed() => {}
                Ok(()) = conversing.changed() => {}
                _ = view.changed() => {}
                () = tokio::time::sleep_until(until) => {
                    let why = "the meeting is still being resumed after a restart of the host; try again";
                    return Err(NotConversing::Now(why.to_owned()));
                }
            }
        }
    }
}

impl Workers for Commissions {
    fn all(&self) -> Vec<Worker> {
        let members = self.roster.now().members();
        let workers =
            members.values().filter_map(|entry| entry.member()).filter(|member| member.manifest().is_worker());
        let worker = |member: &Arc<Member>| {
            let manifest = member.manifest();
            Worker {
                key: member.key().clone(),
                package: manifest.name.clone(),
                display_name: manifest.display_name.clone(),
                display_title: manifest.title().to_owned(),
                description: manifest.description.clone(),
                portrait: manifest.portrait_path.clone(),
                agent: member.agent(None).map(|agent| agent.to_string()).unwrap_or_default(),
                model: member.usual_model(),
                checkout: checkout(manifest),
                manages: member.grants.holds(&MANAGER),
                can: member.grants.granted().map(str::to_owned).collect(),
            }
        };
        workers.map(worker).collect()
    }

    fn models(&self) -> Vec<Model> {
        let all = self.all();
        // Members share the runtimes.
        let by_agent: BTreeMap<&str, &MemberKey> =
            all.iter().map(|worker| (worker.agent.as_str(), &worker.key)).collect();
        let members = by_agent.into_values().filter_map(|key| self.member(key));
        members.flat_map(|member| member.models()).collect()
    }

    fn check_model(&self, worker: &MemberKey, model: &str) -> Result<(), String> {
        // A member that is not in service passes here: it is refused for that reason.
        self.member(worker).map_or(Ok(()), |member| member.check_model(model))
    }

    fn cut(&self, worker: &MemberKey, overrides: &mut Overrides) -> Vec<String> {
        self.member(worker).map(|member| member.cut(overrides)).unwrap_or_default()
    }

    fn check_settings(&self) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        Config::load(Some(file)).map(drop).map_err(|e| e.to_string())
    }

    fn may_spend(&self, worker: &MemberKey, token: Option<&str>) -> Result<(), SpendError> {
        // A member that is not in service passes here: it is refused for that reason.
        self.member(worker).map_or(Ok(()), |member| member.may_spend(token))
    }

    fn budget_usd(&self, worker: &MemberKey, overrides: &Overrides) -> f64 {
        self.member(worker).map_or(0.0, |member| member.budget_usd(overrides))
    }
}

#[async_trait]
impl WorkerJobs for Commissions {
    fn new_job(&self, worker: &MemberKey) -> Result<JobId, OperationError> {
        let member = self.member(worker).ok_or_else(|| OperationError::Conflict(not_served(worker)))?;
        Ok(member.store().new_id())
    }

    async fn spent_usd(&self, attempt: &Attempt) -> f64 {
        let Some(member) = self.member(&attempt.worker) else { return 0.0 };
        let (store, job, budget) = (member.store().clone(), attempt.job.clone(), member.budget_usd(&attempt.overrides));
        let spent = blocking(move || {
            let status = match store.view(job.as_str()) {
                Ok(status) => status,
                // The job may have been deleted meanwhile.
                Err(e) => {
                    let cost = store.cost_of_removed(&job).ok_or(e)?;
                    return Ok(if cost.1 { cost.0 } else { cost.0.max(budget) });
                }
            };
            Ok(status.usage.map_or(0.0, |used| used.usage.cost_usd.unwrap_or(used.usage.known_cost().max(budget))))
        });
        // A job that never began is unknown, and has spent nothing.
        spent.await.unwrap_or(0.0)
    }

    async fn begin(&self, attempt: &Attempt) -> Result<(), NotBegun> {
        let member = self.member(&attempt.worker).ok_or_else(|| NotBegun::Refused(not_served(&attempt.worker)))?;
        if let Some((wanted, why)) = withheld(&member.grants, member.context.config.policy.web) {
            return Err(NotBegun::Refused(format!(
                "its worker {} asks for `{wanted}`, and does not begin without: {why}",
                attempt.worker
            )));
        }
        let (store, id) = (member.store().clone(), attempt.job.clone());
        let known = blocking(move || Ok(store.look_up(id.as_str()).is_some())).await;
        if known.unwrap_or(false) {
            return Ok(());
        }
        member.may_spend(attempt.token.as_deref()).map_err(|e| match e {
            SpendError::Cap(why) => NotBegun::Refused(why),
            // The next try may be able to read the ledger.
            SpendError::Unreadable(why) => NotBegun::Busy(why),
        })?;
        let params = DispatchParams {
            description: attempt.title.clone(),
            task: attempt.prompt.clone(),
            ..DispatchParams::default()
        };
        match member.dispatch_attempt(params, attempt.clone()).await {
            Ok(_) => Ok(()),
            Err(e) if e.code == code::BUSY => Err(NotBegun::Busy(e.message)),
            Err(e) => Err(NotBegun::Refused(e.message)),
        }
    }

    async fn conversation(&self, meeting: &Attempt) -> Result<Arc<RunningJob>, String> {
        self.conversing(meeting).await.map(|(_, job)| job).map_err(|e| e.to_string())
    }

    async fn say(&self, meeting: &Attempt, message: &str, cancel: &CancellationToken) -> Result<(), String> {
        let (member, job) = self.conversing(meeting).await.map_err(|e| e.to_string())?;
        member.conversation(meeting, job).await.map_err(|e| e.to_string())?.say(message, cancel).await
    }

    async fn write(&self, meeting: &Attempt, system_prompt: &str, prompt: String) -> Result<String, NoSession> {
        let (member, job) = self.conversing(meeting).await.map_err(|e| match e {
            NotConversing::Ended(_) => NoSession::Never(e.to_string()),
            NotConversing::Now(why) => NoSession::Now(why),
        })?;
        member.writer(meeting, job).await?.write(system_prompt, prompt).await
    }

    async fn conclude(&self, meeting: &Attempt, notes: &str) -> Result<Vec<Decision>, String> {
        match self.conversing(meeting).await {
            Ok((_, job)) => {
                let notes = notes.to_owned();
                let ended = blocking(move || Ok(job.complete(Some(&notes))?)).await;
                ended.map_err(|e| format!("the end of its job cannot be stored: {}", e.message))?;
            }
            Err(NotConversing::Ended(_)) => {}
            Err(NotConversing::Now(why)) => return Err(why),
        }
        Ok(self.ended(meeting).await.1)
    }

    async fn transcript(&self, worker: &MemberKey, job: &JobId) -> Result<Vec<Line>, OperationError> {
        let member = self.member(worker).ok_or_else(|| OperationError::Conflict(not_served(worker)))?;
        let (store, job) = (member.store().clone(), job.clone());
        let read = blocking(move || store.transcript(&job).map_err(|e| RpcError::internal(e.to_string())));
        read.await.map_err(|e| OperationError::Internal(format!("its transcript cannot be read: {}", e.message)))
    }

    async fn held_back(&self, attempt: &Attempt) -> Option<String> {
        let member = self.member(&attempt.worker)?;
        let id = attempt.job.as_str();
        // It waits until the jobs are read at the start of a host.
        let (store, job) = (member.store().clone(), attempt.job.clone());
        let _ = blocking(move || Ok(store.look_up(job.as_str()).is_some())).await;
        let job = member.store().follow(id)?;
        (job.resumption() == Some(Resumption::HeldBack)).then(|| {
            format!(
                "its job {id} is held back, since a host ended soon after it had resumed that job alone; `guild resume {id}` \
                 lets it on"
            )
        })
    }

    async fn ended(&self, attempt: &Attempt) -> (Outcome, Vec<Decision>) {
        let Some(member) = self.member(&attempt.worker) else {
            return (failed(not_served(&attempt.worker)), Vec::new());
        };
        let id = attempt.job.as_str();
        // It waits until the jobs are read at the start of a host.
        let (store, job) = (member.store().clone(), attempt.job.clone());
        let _ = blocking(move || Ok(store.look_up(job.as_str()).is_some())).await;
        if let Some(job) = member.store().follow(id) {
            job.ended().await;
        }
        if let Some(work) = member.data.under_way(id) {
            // A host call that blocks cannot be interrupted; nothing that it writes is outside of the job by then.
            let _ = tokio::time::timeout(LAST_WRITE, work.cancelled()).await;
        }
        let (store, job) = (member.store().clone(), attempt.job.clone());
        let read = blocking(move || Ok(outcome(&store, &job))).await;
        read.unwrap_or_else(|e| (failed(e.message), Vec::new()))
    }

    async fn cancel(&self, attempt: &Attempt) {
        let Some(member) = self.member(&attempt.worker) else { return };
        // It waits until the jobs are read at the start of a host.
        let (store, job) = (member.store().clone(), attempt.job.clone());
        if let Ok(false) = blocking(move || Ok(store.look_up(job.as_str()).is_some())).await {
            return;
        }
        if let Err(e) = member.cancel(attempt.job.as_str()).await {
            tracing::warn!(activity = %attempt.activity, job = %attempt.job, "its job cannot be cancelled: {}", e.message);
        }
    }
}

/// What a member asks for and the operator withholds, with the reason: no worker begins a commission with a part of its
/// tools (REQ-WKR-13). On a host without `[web]` there is no web for anybody to be granted, and whoever asks for it
/// goes without.
fn withheld(grants: &Grants, has_web: bool) -> Option<(&str, &Denial)> {
    let is_of_web = |wanted: &str| wanted.starts_with("web") || ["WebFetch", "WebSearch"].contains(&wanted);
    grants.verdicts().find_map(|(wanted, verdict)| match verdict {
        Verdict::Denied(why) if has_web || !is_of_web(wanted) => Some((wanted, why)),
        _ => None,
    })
}

fn not_served(worker: &MemberKey) -> String {
    format!("its worker {worker} is not in service; `guild members` says why")
}

/// An attempt that has no job whose session could have said something.
fn failed(error: String) -> Outcome {
    Outcome::Failed { error, text: String::new() }
}

/// The last text of a job's sessions; empty if its transcript has none. It blocks.
fn last_text(store: &JobStore, job: &JobId) -> String {
    let lines = store.transcript(job).unwrap_or_default();
    let last = lines.into_iter().rev().find_map(|line| match line.entry {
        Entry::End { text, .. } => Some(text),
        _ => None,
    });
    last.unwrap_or_default()
}

/// The outcome of a job, and its worker's decisions. It blocks.
fn outcome(store: &JobStore, job: &JobId) -> (Outcome, Vec<Decision>) {
    let gone = |error: String| (failed(error), Vec::new());
    let status = match store.view(job.as_str()) {
        Ok(status) => status,
        Err(e) => return gone(format!("its job {job} is gone: {e}")),
    };
    let error = status.error;
    let outcome = match status.status {
        JobStatus::Completed => match store.result(job.as_str()) {
            Ok(result) => Outcome::Completed { result: result.output, error },
            Err(e) => failed(format!("its result cannot be read: {e}")),
        },
        JobStatus::Cancelled => Outcome::Cancelled,
        JobStatus::Failed | JobStatus::Running => {
            Outcome::Failed { error: error.unwrap_or_default(), text: last_text(store, job) }
        }
    };
    (outcome, status.decisions.unwrap_or_default())
}
