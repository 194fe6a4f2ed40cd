//! What a commission waits for: other commissions, and artifacts.

use std::{path::Path, sync::Arc};

use guild_jobs::durable::open_directory;

use super::{Hall, blocking};
use crate::{
    commission::{CommissionId, Status},
    error::HallError,
    view::{Edge, Graph, Node},
};

const BLOCKED: &str = "Dependencies not satisfied";
const SATISFIED: &str = "Dependencies satisfied";

/// The commission that a dependency names: by its id, or by the path of its record.
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

/// Whether there is an artifact of that path below `.lore/`.
fn is_there(worktree: &Path, dependency: &str) -> bool {
    let path = dependency.trim().trim_start_matches('/');
    let path = path.strip_prefix(".lore/").unwrap_or(path);
    let lore = open_directory(worktree).and_then(|top| top.open_dir(".lore"));
    !path.is_empty() && lore.and_then(|lore| lore.symlink_metadata(path)).is_ok()
}

impl Hall {
    /// Those of these dependencies that are not there.
    pub(super) async fn unmet(&self, project: &str, dependencies: &[String]) -> Result<Vec<String>, HallError> {
        let (mut unmet, mut paths) = (Vec::new(), Vec::new());
        for dependency in dependencies {
            let known = commission(dependency).map(|id| self.commissions.get(&id));
            match known {
                Some(Some(cell)) if cell.now().project_name == project => {
                    if !cell.now().status.satisfies() {
                        unmet.push(dependency.clone());
                    }
                }
                Some(_) => unmet.push(dependency.clone()),
                None => paths.push(dependency.clone()),
            }
        }
        if !paths.is_empty() {
            let worktree = self.home.integration(project);
            let missing = move || Ok(paths.into_iter().filter(|path| !is_there(&worktree, path)).collect::<Vec<_>>());
            unmet.extend(blocking(missing).await?);
        }
        Ok(unmet)
    }

    /// Looks again what commissions wait for, of one project or all, and begins what can begin.
    ///
    /// # Errors
    /// Where a change cannot be stored.
    pub async fn check_dependencies(self: &Arc<Self>, project: Option<&str>) -> Result<(), HallError> {
        for cell in self.commissions.all() {
            let now = cell.now();
            if project.is_some_and(|project| project != now.project_name)
                || !matches!(now.status, Status::Pending | Status::Blocked)
            {
                continue;
            }
            let unmet = self.unmet(&now.project_name, &now.record.dependencies).await?;
            let (next, reason) = match (now.status, unmet.is_empty()) {
                (Status::Pending, false) => (Status::Blocked, BLOCKED),
                (Status::Blocked, true) => (Status::Pending, SATISFIED),
                _ => continue,
            };
            let time = self.time();
            self.change(&cell, |commission| match commission.status == now.status {
                true => commission.become_(next, reason, time),
                // Somebody else changed it meanwhile.
                false => Ok(()),
            })
            .await?;
        }
        self.schedule().await
    }

    /// Which commissions of a project depend on which.
    ///
    /// # Errors
    /// Where there is no such project.
    pub fn graph(&self, project: &str) -> Result<Graph, HallError> {
        self.project(project)?;
        let all: Vec<_> = self.commissions.now().collect();
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
