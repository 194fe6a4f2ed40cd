//! Bundles the host's context of a job: limits, resources, memories, the hall, and the other shared parts of a host.

use std::{path::Path, sync::Arc};

use guild_auth::Ingress;
use guild_config::{Config, Runtime};
use guild_contract::{Grants, JobId, Limits, MemberKey, capability::MANAGER, rpc::RpcError};
use guild_hall::{Attempt, Hall, hall::HallReader, manager::ManagerTools, memory::Scopes};
use guild_jobs::{MemoryStore, ScopedMemory, memory::Writer};
use guild_session::{activation::Plan, hall::HallView, tools::Tools};
use guild_trust::{Approval, seal::Seals};
use tokio::{runtime::Handle, sync::Semaphore};

use super::{condense, memory_budget::MemoryBudget, resume_trials::Resumptions};
use crate::{
    cluster::Cluster,
    events::Hub,
    resources::{Reach, Resources},
    tools::named_toolboxes::Toolboxes,
};

/// Why a plan of the manager's is refused on the built-in search.
pub(crate) const CANNOT_MANAGE: &str = "the manager cannot work on the runtime `extractive`, which searches and decides nothing; it needs one \
     with a model, `claude` or `api`: set `agent` in guild.toml, for all or in the manager's [member.KEY]";

/// The host's context of a member. When `guild.toml` is read again, another context replaces it as a whole; jobs and
/// requests keep the one that they began with.
#[derive(Clone)]
pub(crate) struct HostContext {
    /// The host's limits; for a member, with its own in place.
    pub(crate) limits: Arc<Limits>,
    /// The configuration.
    pub(crate) config: Arc<Config>,
    /// The approval of members.
    pub(crate) approval: Arc<Approval>,
    /// The read roots, the web, and the runtimes.
    pub(crate) resources: Arc<Resources>,
    /// The interface for requests, with the ledger of spending.
    pub(crate) ingress: Arc<Ingress>,
    /// The seals of jobs that were dispatched here.
    pub(crate) seals: Arc<Seals>,
    /// The order of resuming interrupted jobs.
    pub(crate) resumptions: Arc<Resumptions>,
    /// A permit for each job that may run, over all members of the host.
    pub(crate) permits: Arc<Semaphore>,
    /// The memory budget of running jobs.
    pub(crate) budget: MemoryBudget,
    /// The toolboxes that members name.
    pub(crate) toolboxes: Arc<Toolboxes>,
    /// The hub of events.
    pub(crate) events: Arc<Hub>,
    /// The hall whose commissions the members carry out.
    pub(crate) hall: Option<Arc<Hall>>,
    /// The memories that its workers share.
    pub(crate) shared: Option<Arc<Scopes>>,
    /// The cluster that the host belongs to, if it is in one.
    pub(crate) cluster: Option<Arc<Cluster>>,
}

impl HostContext {
    /// The attempt of a job, if it has one.
    pub(crate) fn attempt_of(&self, job: &JobId) -> Option<Attempt> {
        self.hall.as_ref()?.attempt_of(job.as_str())
    }

    /// The manager's tools in a job of its own; none for a job of anybody else's.
    pub(crate) fn manager(&self, job: &JobId, activity: Option<&Attempt>, grants: &Grants) -> Option<Arc<dyn Tools>> {
        let hall = self.hall.clone().filter(|_| grants.holds(&MANAGER))?;
        Some(Arc::new(ManagerTools::new(hall, job.clone(), activity.cloned())))
    }

    /// The hall, for reading.
    pub(crate) fn view(&self) -> Option<Arc<dyn HallView>> {
        Some(Arc::new(HallReader(self.hall.clone()?)))
    }

    /// Has a plan of the manager's begin a session that knows the hall, where there is one.
    ///
    /// # Errors
    ///
    /// Returns an error when the plan's runtime cannot run a manager.
    pub(crate) async fn brief(
        &self,
        plan: &mut Plan,
        agent: Runtime,
        project: Option<&str>,
        grants: &Grants,
    ) -> Result<(), RpcError> {
        let (Plan::Session(session), true) = (plan, grants.holds(&MANAGER)) else { return Ok(()) };
        if agent == Runtime::Extractive {
            return Err(RpcError::invalid_params(CANNOT_MANAGE));
        }
        let Some(hall) = &self.hall else { return Ok(()) };
        let brief = hall.brief(project).await.map_err(|e| RpcError::internal(e.to_string()))?;
        session.system_prompt.push_str(&format!("\n\n{brief}"));
        Ok(())
    }

    /// The resources that a job of a member reaches.
    ///
    /// # Errors
    ///
    /// Returns an error when an attempt's worktree, or a job's attachments, cannot be read.
    pub(crate) fn reach(
        &self,
        member: &MemberKey,
        attempt: Option<&Attempt>,
        attachments: Option<&Path>,
        grants: &Grants,
    ) -> Result<Reach, String> {
        match (attempt, attachments) {
            (Some(attempt), _) => self.resources.reach_at(attempt, grants, &self.limits),
            (None, Some(attachments)) => self.resources.reach_with(attachments, member, grants, &self.limits),
            (None, None) => Ok(self.resources.reach(Some(member), grants)),
        }
    }

    /// The memories that a job of a member is granted, whose own are `own`. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when memories that are granted cannot be opened.
    pub(crate) fn memory(
        &self,
        member: &MemberKey,
        own: Arc<MemoryStore>,
        attempt: Option<&Attempt>,
        grants: &Grants,
    ) -> Result<ScopedMemory, String> {
        let (Some(attempt), Some(shared)) = (attempt, &self.shared) else {
            let writer = Writer { member: member.clone(), activity: None };
            return Ok(ScopedMemory::from(own).written_by(writer));
        };
        shared.granted(attempt, own, grants).map_err(|e| e.to_string())
    }

    /// Has the memories that workers share be as this context has it: within its limits, and condensed by its runtime.
    pub(crate) fn share(&self) {
        let Some(shared) = &self.shared else { return };
        shared.set_limits(&self.limits);
        if let Some(condenser) = condense::condenser_of_host(&self.resources, &self.ingress, self.config.agent) {
            shared.set_condenser(&condenser, &Handle::current());
        }
    }
}
