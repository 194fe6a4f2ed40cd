//! Checks the dependencies of a commission: other commissions, and artifacts.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use guild_contract::{
    OperationError,
    hall::{Blocker, CommissionId, CommissionStatus, Edge, Graph, Node},
    text::nearest::nearest,
};
use guild_fs::durable::open_directory;

use super::{Commissions, StoredCommission, commission::Commission};
use crate::{blocking::blocking, documents::resolved};

const BLOCKED: &str = "Dependencies not satisfied";
const SATISFIED: &str = "Dependencies satisfied";

/// The commission that a dependency names, by its id or by the path of its record.
fn commission(dependency: &str) -> Option<CommissionId> {
    let path = dependency.trim().trim_start_matches('/');
    let path = path.strip_prefix(".lore/").unwrap_or(path);
    let path = path.strip_prefix("work/").unwrap_or(path);
    match path.strip_prefix("commissions/") {
        Some(file) => file.strip_suffix(".md").unwrap_or(file).parse().ok(),
        None if path.starts_with("commission-") => path.parse().ok(),
        None => None,
    }
}

/// The path from `.lore/` of an artifact that a dependency names.
fn artifact(dependency: &str) -> &str {
    let path = dependency.trim().trim_start_matches('/');
    path.strip_prefix(".lore/").unwrap_or(path)
}

/// Whether an artifact with that path exists below `.lore/`.
fn is_there(worktree: &Path, dependency: &str) -> bool {
    let Ok(path) = resolved(artifact(dependency)) else { return false };
    let lore = open_directory(worktree).and_then(|top| top.open_dir(".lore"));
    let path = path.strip_prefix(".lore/").unwrap_or_default();
    !path.is_empty() && lore.and_then(|lore| lore.symlink_metadata(path)).is_ok()
}

/// The reason why dependent commissions wait for this one; `None` if they need not.
fn why_not(now: &Commission) -> Option<String> {
    let next = match now.status {
        status if status.satisfies() => return None,
        CommissionStatus::Failed | CommissionStatus::Cancelled => "; dispatch it again, or abandon it",
        CommissionStatus::Pending if !now.is_queued() => ", and it was not dispatched",
        _ => "",
    };
    Some(format!("it is {}{next}", now.status))
}

impl Commissions {
    /// The missing dependencies among these, with reasons.
    pub(super) async fn blockers(
        &self,
        project: &str,
        dependencies: &[String],
    ) -> Result<Vec<Blocker>, OperationError> {
        let (mut blockers, mut paths) = (Vec::new(), Vec::new());
        for dependency in dependencies {
            match commission(dependency).map(|id| self.records.get(&id)) {
                Some(Some(stored)) if stored.now().project_name == project => {
                    blockers.extend(why_not(&stored.now()).map(|why| Blocker { dependency: dependency.clone(), why }));
                }
                Some(_) => {
                    let why = "there is no such commission in the project".to_owned();
                    blockers.push(Blocker { dependency: dependency.clone(), why });
                }
                None => paths.push(dependency.clone()),
            }
        }
        if !paths.is_empty() {
            let worktree = self.core.home.integration(project);
            let missing = move || Ok(paths.into_iter().filter(|path| !is_there(&worktree, path)).collect::<Vec<_>>());
            let why = "there is no such document in .lore/ of claude/main".to_owned();
            let missing = blocking(missing).await?.into_iter();
            blockers.extend(missing.map(|dependency| Blocker { dependency, why: why.clone() }));
        }
        Ok(blockers)
    }

    /// Refuses dependencies that can never be satisfied: a commission that the project does not have, and a path that
    /// leads out of `.lore/`. A missing document can still be written.
    ///
    /// # Errors
    ///
    /// Returns the first such dependency, and the nearest existing one.
    pub(super) async fn check_named(&self, project: &str, dependencies: &[String]) -> Result<(), OperationError> {
        if dependencies.iter().all(|dependency| commission(dependency).is_none()) {
            return dependencies.iter().try_for_each(|dependency| resolved(artifact(dependency)).map(drop));
        }
        // Records that other programs wrote are read first.
        self.records.discover(Some(project)).await?;
        let known: Vec<Arc<Commission>> = self.records.now().collect();
        for dependency in dependencies {
            let Some(id) = commission(dependency) else {
                resolved(artifact(dependency))?;
                continue;
            };
            match known.iter().find(|now| now.commission_id == id) {
                Some(now) if now.project_name == project => {}
                Some(now) => {
                    return Err(OperationError::Invalid(format!(
                        "dependencies: {id} belongs to project \"{}\", and a commission can only wait for commissions \
                         of its own project",
                        now.project_name
                    )));
                }
                None => {
                    let own = known.iter().filter(|now| now.project_name == project);
                    let near = nearest(id.as_str(), own.map(|now| now.commission_id.as_str()));
                    let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
                    return Err(OperationError::Invalid(format!(
                        "dependencies: there is no commission {id} in project \"{project}\"{near}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Refuses dependencies of a commission that themselves wait for it.
    pub(super) fn check_cycle(&self, id: &CommissionId, dependencies: &[String]) -> Result<(), OperationError> {
        let (mut waits, mut seen) =
            (dependencies.iter().filter_map(|on| commission(on)).collect::<Vec<_>>(), BTreeSet::new());
        while let Some(next) = waits.pop() {
            if next == *id {
                return Err(OperationError::Invalid(format!("dependencies: {id} would wait for itself")));
            }
            let Some(stored) = self.records.get(&next).filter(|_| seen.insert(next)) else { continue };
            waits.extend(stored.now().record.dependencies.iter().filter_map(|on| commission(on)));
        }
        Ok(())
    }

    /// Adds the nearest document to each dependency on a missing document.
    pub(super) async fn with_nearest(&self, project: &str, mut blockers: Vec<Blocker>) -> Vec<Blocker> {
        if blockers.iter().all(|blocker| commission(&blocker.dependency).is_some()) {
            return blockers;
        }
        let Ok(known) = self.documents.paths(project).await else { return blockers };
        for blocker in blockers.iter_mut().filter(|blocker| commission(&blocker.dependency).is_none()) {
            if let Some(near) = nearest(artifact(&blocker.dependency), known.iter().map(String::as_str)) {
                blocker.why.push_str(&format!("; did you mean {near}?"));
            }
        }
        blockers
    }

    /// Checks the dependencies of the commissions of one project or all projects, and starts the commissions that can
    /// start.
    ///
    /// # Errors
    ///
    /// Returns an error when a change cannot be stored.
    pub async fn check_dependencies(self: &Arc<Self>, project: Option<&str>) -> Result<(), OperationError> {
        for stored in self.records.all() {
            if project.is_none_or(|project| project == stored.now().project_name) {
                self.check_blocked(&stored).await?;
            }
        }
        self.schedule().await
    }

    /// Checks the dependencies of a commission.
    pub(super) async fn check_blocked(&self, stored: &StoredCommission) -> Result<(), OperationError> {
        let now = stored.now();
        if !matches!(now.status, CommissionStatus::Pending | CommissionStatus::Blocked) {
            return Ok(());
        }
        let blockers = self.blockers(&now.project_name, &now.record.dependencies).await?;
        let (next, reason) = match (now.status, blockers.is_empty()) {
            (CommissionStatus::Pending, false) => (CommissionStatus::Blocked, BLOCKED),
            (CommissionStatus::Blocked, true) => (CommissionStatus::Pending, SATISFIED),
            _ => return Ok(()),
        };
        let time = self.core.time();
        self.records
            .change(stored, |commission| match commission.status == now.status {
                true => commission.transition_to(next, reason, time),
                // Another caller changed the commission in the meantime.
                false => Ok(()),
            })
            .await
    }

    /// The dependencies between the commissions of a project.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project.
    pub fn graph(&self, project: &str) -> Result<Graph, OperationError> {
        self.core.project(project)?;
        let all: Vec<_> = self.records.now().collect();
        let own = all.iter().filter(|commission| commission.project_name == project);
        let mut graph = Graph::default();
        for commission in own.clone() {
            graph.nodes.push(Node {
                id: commission.commission_id.clone(),
                title: commission.record.title.clone(),
                status: commission.status,
                worker: Some(commission.record.worker.clone()).filter(|worker| !worker.is_empty()),
                project_name: project.to_owned(),
            });
        }
        for to in own {
            let named = to.record.dependencies.iter().filter_map(|dependency| self::commission(dependency));
            let known = named.filter(|id| graph.nodes.iter().any(|node| node.id == *id));
            let edges = known.map(|from| Edge { from, to: to.commission_id.clone() });
            graph.edges.extend(edges.collect::<Vec<_>>());
        }
        Ok(graph)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_names_a_commission_by_its_id_or_by_its_record() {
        let id = "commission-Dalton-20260401-120000";
        for spelled in [
            id.to_owned(),
            format!("commissions/{id}.md"),
            format!("work/commissions/{id}.md"),
            format!(".lore/work/commissions/{id}.md"),
            format!(" {id} "),
        ] {
            assert_eq!(commission(&spelled).map(|id| id.to_string()).as_deref(), Some(id), "{spelled}");
        }
        for other in ["specs/a.md", "a.md", "../x", "", "commissions/"] {
            assert_eq!(commission(other), None, "{other}");
        }
    }
}
