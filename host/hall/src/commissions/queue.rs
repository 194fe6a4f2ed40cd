//! Schedules dispatched commissions: they start in the order of their creation, within the caps.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use guild_contract::{
    OperationError,
    hall::{Author, CommissionDispatched, CommissionStatus, DispatchStatus, HallEvent},
};
use tokio_util::sync::CancellationToken;

use super::{
    Commissions, StoredCommission,
    commission::{AttemptState, Commission},
};
use crate::{
    blocking::lock,
    core::{requester::Requester, token_scope::current_token},
    records::log::CUT,
};

const DEQUEUED: &str = "Capacity available, dispatching from queue";

impl Commissions {
    /// Requests the start of a pending or blocked commission. A blocked commission starts once its dependencies are
    /// satisfied.
    ///
    /// # Errors
    ///
    /// Returns an error when the commission is in another state, or its worker is not in service.
    pub async fn dispatch(
        self: &Arc<Self>,
        id: &str,
        requester: &Requester,
    ) -> Result<CommissionDispatched, OperationError> {
        let call = requester.call();
        self.ask(id, |commission, time| {
            if commission.is_repeated(call) {
                return Ok(());
            }
            if !matches!(commission.status, CommissionStatus::Pending | CommissionStatus::Blocked) {
                return Err(OperationError::Conflict(format!(
                    "Cannot dispatch commission \"{id}\": status is \"{}\", must be \"pending\" or \"blocked\"",
                    commission.status
                )));
            }
            if call.is_some() && commission.created_by != Author::Manager {
                commission.note("dispatch_asked", "The manager dispatched it", time.clone());
            }
            commission.asked = Some(time);
            Ok(())
        })
        .await
    }

    /// Dispatches a failed or cancelled commission again, on a new branch and with an empty conversation.
    ///
    /// # Errors
    ///
    /// Returns an error when the commission is in another state, or its worker is not in service.
    pub async fn redispatch(self: &Arc<Self>, id: &str) -> Result<CommissionDispatched, OperationError> {
        self.ask(id, |commission, time| {
            if !matches!(commission.status, CommissionStatus::Failed | CommissionStatus::Cancelled) {
                return Err(OperationError::Conflict(format!(
                    "Cannot redispatch commission \"{id}\": status is \"{}\", must be \"failed\" or \"cancelled\"",
                    commission.status
                )));
            }
            commission.record.body.clear();
            commission.record.current_progress.clear();
            commission.transition_to(CommissionStatus::Pending, "Redispatched for retry", time.clone())?;
            commission.asked = Some(time);
            Ok(())
        })
        .await
    }

    async fn ask(
        self: &Arc<Self>,
        id: &str,
        change: impl FnOnce(&mut Commission, String) -> Result<(), OperationError>,
    ) -> Result<CommissionDispatched, OperationError> {
        let stored = self.get(id)?;
        let dispatched = |reason: Option<String>| CommissionDispatched {
            status: if reason.is_some() { DispatchStatus::Queued } else { DispatchStatus::Accepted },
            commission_id: id.to_owned(),
            reason,
        };
        let now = stored.now();
        let (time, token) = (self.core.time(), current_token());
        self.core.check_spend(&now.worker_name, token.as_deref())?;
        self.records
            .change(&stored, |commission| {
                change(commission, time)?;
                commission.token = token;
                let is_here = self.core.worker_of(&commission.worker_name);
                is_here.map(drop).map_err(|e| OperationError::Conflict(format!("Failed to dispatch \"{id}\": {e}")))
            })
            .await?;
        self.check_dependencies(Some(&now.project_name)).await?;
        let now = stored.now();
        let reason = match now.status {
            CommissionStatus::Blocked | CommissionStatus::Pending => {
                // If the dependencies were satisfied since the check, the commission waits for its turn like one that
                // was never blocked.
                let blockers = self.blockers(&now.project_name, &now.record.dependencies).await?;
                if blockers.is_empty() {
                    self.taken()?.full(&now.project_name).unwrap_or_else(|| "It waits for its turn".to_owned())
                } else {
                    let blockers: Vec<String> = blockers.iter().map(ToString::to_string).collect();
                    format!("Dependencies not yet satisfied: {}", blockers.join(", "))
                }
            }
            _ => return Ok(dispatched(None)),
        };
        stored.runtime.is_queued.store(true, Ordering::Relaxed);
        let commission_id = now.commission_id.clone();
        self.core.tell(HallEvent::CommissionQueued { commission_id, reason: reason.clone() });
        Ok(dispatched(Some(reason)))
    }

    /// The number of active commissions and the caps.
    fn taken(&self) -> Result<Taken, OperationError> {
        let (settings, projects) = self.core.projects.now(&self.core.home)?;
        let caps =
            projects.values().map(|project| (project.name().to_owned(), project.settings.commissions())).collect();
        let mut taken = Taken { most: settings.commissions(), caps, all: 0, own: BTreeMap::new() };
        for now in self.records.now().filter(|now| now.status.is_active()) {
            taken.add(&now.project_name);
        }
        Ok(taken)
    }

    /// Starts the commissions that can start.
    ///
    /// # Errors
    ///
    /// Returns an error when `config.yaml` cannot be read, or a change cannot be stored.
    pub(super) async fn schedule(self: &Arc<Self>) -> Result<(), OperationError> {
        let _one = self.scheduling.lock().await;
        let mut waiting: Vec<Arc<StoredCommission>> = self.records.all();
        waiting.retain(|stored| {
            let now = stored.now();
            now.status == CommissionStatus::Pending && now.asked.is_some()
        });
        waiting.sort_by_cached_key(|stored| {
            let now = stored.now();
            (now.created().to_owned(), now.commission_id.clone())
        });
        let mut taken = self.taken()?;
        for stored in waiting {
            let now = stored.now();
            if taken.full(&now.project_name).is_some()
                || !self.blockers(&now.project_name, &now.record.dependencies).await?.is_empty()
            {
                continue;
            }
            match self.begin(&stored).await {
                Ok(began) if began => taken.add(&now.project_name),
                Ok(_) => {}
                Err(e) => tracing::error!(commission = %now.commission_id, "the commission cannot start: {e}"),
            }
        }
        Ok(())
    }

    /// Makes a pending commission active within the caps, and starts its attempt.
    async fn begin(self: &Arc<Self>, stored: &Arc<StoredCommission>) -> Result<bool, OperationError> {
        let now = stored.now();
        let worker = self.core.worker_of(&now.worker_name)?;
        let job = self.core.jobs()?.new_job(&worker.key)?;
        let (id, time) = (&now.commission_id, self.core.time());
        let branch = match now.attempts() {
            0 => format!("claude/commission/{id}"),
            earlier => format!("claude/commission/{id}-{}", earlier + 1),
        };
        let worktree = self.core.home.worktree(&now.project_name, id.as_str());
        let full = worker.checkout == guild_git::Checkout::Full;
        // The operator's bounds may be lower by now.
        let cut = self.core.workers()?.cut(&worker.key, &mut now.record.resource_overrides.clone());
        if stored.runtime.is_queued.swap(false, Ordering::Relaxed) {
            let (commission_id, reason) = (id.clone(), DEQUEUED.to_owned());
            self.core.tell(HallEvent::CommissionDequeued { commission_id, reason });
        }
        let began = self
            .records
            .change(stored, |commission| {
                if commission.status != CommissionStatus::Pending || commission.asked.is_none() {
                    return Ok(false);
                }
                commission.worktree_dir = Some(worktree);
                commission.branch_name = Some(branch);
                commission.attempt = Some(AttemptState { job, full, begun: false, cancel: None, end: None });
                commission.transition_to(CommissionStatus::Dispatched, "Dispatched to worker", time.clone())?;
                cut.iter().for_each(|cut| commission.note(CUT, cut, time.clone()));
                Ok(true)
            })
            .await?;
        if began {
            *lock(&stored.runtime.cancel) = CancellationToken::new();
            self.spawn_attempt(stored.clone());
        }
        Ok(began)
    }
}

/// The numbers of active commissions, and their caps.
struct Taken {
    most: u32,
    caps: BTreeMap<String, u32>,
    all: u32,
    own: BTreeMap<String, u32>,
}

impl Taken {
    fn add(&mut self, project: &str) {
        self.all += 1;
        *self.own.entry(project.to_owned()).or_default() += 1;
    }

    /// The reason that no commission of that project can start now, if there is one.
    fn full(&self, project: &str) -> Option<String> {
        let of = |counts: &BTreeMap<String, u32>| counts.get(project).copied().unwrap_or(0);
        let (own, cap, all, most) = (of(&self.own), of(&self.caps), self.all, self.most);
        if own >= cap {
            Some(format!("Project \"{project}\" concurrent limit reached ({own}/{cap})"))
        } else if all >= most {
            Some(format!("Global concurrent limit reached ({all}/{most})"))
        } else {
            None
        }
    }
}
