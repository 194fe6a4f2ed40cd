//! Looks up workers by name, and the bounds that the operator allows each.

use std::sync::Arc;

use guild_contract::{MemberKey, OperationError, hall::Overrides};

use super::Core;
use crate::core::{
    text::check_text,
    workers::{Worker, WorkerJobs, Workers},
};

/// The most bytes of a model's name.
const MODEL_BYTES: usize = 256;

impl Core {
    /// Sets the workers, at the end of the host's start.
    pub(crate) fn set_workers(&self, workers: Arc<dyn Workers>, jobs: Arc<dyn WorkerJobs>) {
        let _ = self.workers.set(workers);
        let _ = self.jobs.set(jobs);
    }

    pub(crate) fn workers(&self) -> Result<&Arc<dyn Workers>, OperationError> {
        self.workers.get().ok_or_else(starting)
    }

    pub(crate) fn jobs(&self) -> Result<&Arc<dyn WorkerJobs>, OperationError> {
        self.jobs.get().ok_or_else(starting)
    }

    /// The workers that can be commissioned; empty while the host starts.
    pub(crate) fn all_workers(&self) -> Vec<Worker> {
        self.workers.get().map(|workers| workers.all()).unwrap_or_default()
    }

    /// The worker with that name: a unique key, or else the name of a package or a display name that no other worker
    /// has.
    pub(crate) fn worker(&self, name: &str) -> Result<Worker, OperationError> {
        let all = self.workers()?.all();
        let names: [fn(&Worker) -> &str; 3] =
            [|worker| worker.key.as_str(), |worker| &worker.package, |worker| &worker.display_name];
        for by in names {
            let found: Vec<&Worker> = all.iter().filter(|worker| by(worker) == name).collect();
            match *found {
                [] => {}
                [worker] => return Ok(worker.clone()),
                _ => {
                    let keys: Vec<&str> = found.iter().map(|worker| worker.key.as_str()).collect();
                    return Err(OperationError::Conflict(format!(
                        "Worker \"{name}\" is the name of several workers: name one by its key, {}",
                        keys.join(" or ")
                    )));
                }
            }
        }
        let known: Vec<&str> = all.iter().map(|worker| worker.display_name.as_str()).collect();
        let known = if known.is_empty() {
            "there are no workers".to_owned()
        } else {
            format!("there are {}", known.join(", "))
        };
        Err(OperationError::NotFound(format!("Worker \"{name}\" not found in discovered packages; {known}")))
    }

    /// The worker with that key.
    pub(crate) fn worker_of(&self, key: &str) -> Result<Worker, OperationError> {
        let found = self.workers()?.all().into_iter().find(|worker| worker.key.as_str() == key);
        found.ok_or_else(|| {
            OperationError::Conflict(format!("the worker {key} is not in service; `guild members` shows the reason"))
        })
    }

    /// The overrides within the bounds of a worker's jobs, and a sentence for each value that was cut.
    ///
    /// # Errors
    ///
    /// Returns an error when a bound is invalid, or the worker cannot run the model.
    pub(crate) fn allowed(
        &self,
        worker: &MemberKey,
        mut overrides: Overrides,
    ) -> Result<(Overrides, Vec<String>), OperationError> {
        check_overrides(&overrides)?;
        let workers = self.workers()?;
        overrides.model = overrides.model.filter(|model| !model.trim().is_empty());
        if let Some(model) = &overrides.model {
            check_text("resourceOverrides.model", model, MODEL_BYTES)?;
            let checked = workers.check_model(worker, model);
            checked.map_err(|why| OperationError::Invalid(format!("resourceOverrides.model: {why}")))?;
        }
        let cut = workers.cut(worker, &mut overrides);
        Ok((overrides, cut))
    }

    /// Checks that a worker's session may spend money now.
    pub(crate) fn check_spend(&self, worker: &str, token: Option<&str>) -> Result<(), OperationError> {
        let Ok(key) = worker.parse() else { return Ok(()) };
        Ok(self.workers()?.may_spend(&key, token)?)
    }
}

fn starting() -> OperationError {
    OperationError::Internal("the host is starting; try again".to_owned())
}

fn check_overrides(overrides: &Overrides) -> Result<(), OperationError> {
    let bounds = guild_contract::Bounds {
        max_turns: overrides.max_turns,
        max_budget_usd: overrides.max_budget_usd,
        deadline_seconds: None,
    };
    bounds.check().map_err(|why| OperationError::Invalid(format!("resourceOverrides: {why}")))
}
