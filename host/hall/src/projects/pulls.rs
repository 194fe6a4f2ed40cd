//! Creates pull requests of a project's `claude/main`, and updates the branch from the default branch, also after the
//! user merged a pull request.
//!
//! Only the user merges: this module does not write the default branch, at `origin` or in the project. Each step can be
//! repeated, so if a host stops between the push, `gh` and the note of the pull request, the next call completes the
//! work: pushed commits are not pushed again, and an open pull request is found. Without the note, a sync compares
//! contents.

use std::{sync::Arc, time::Duration};

use cap_std::fs::Dir;
use futures::future::join_all;
use guild_contract::{
    OperationError,
    hall::{PullRequest, SyncAction, Synced},
};
use guild_fs::durable::{Survives, if_there, read_whole, replace};
use guild_git::{CommitId, Followed, GitError, Proposed, PullState};
use serde::{Deserialize, Serialize};

use super::Projects;
use crate::{
    blocking::{blocking, in_background},
    home::project_list::{Permit, Project},
};

/// The longest wait for a sync. One git run takes at most two minutes.
const SYNC_PATIENCE: Duration = Duration::from_secs(150);
/// GitHub's limit of characters in a title.
const TITLE_CHARS: usize = 256;
/// The most bytes of a body. GitHub's limit is the same number of characters.
const BODY_BYTES: usize = 65_536;
/// The most bytes of a note.
const NOTE_BYTES: u64 = 64 << 10;

/// The note of a pull request, in the form of the original.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    claude_main_tip: String,
    created_at: String,
    pr_url: String,
}

impl Projects {
    /// Pushes `claude/main` of a project, and creates a pull request into the default branch. An open pull request is
    /// updated by the push. `asking` is the requesting activity, which may be running.
    ///
    /// # Errors
    ///
    /// Returns an error when the operator does not permit it, other work is running, there is nothing to merge, or
    /// `origin` or `gh` refuse.
    pub async fn create_pull_request(
        &self,
        project: &str,
        title: &str,
        body: &str,
        asking: Option<&str>,
    ) -> Result<PullRequest, OperationError> {
        check(title, body)?;
        let (project, integration) = self.core.integration(project).await?;
        let name = project.name();
        let permit = project.permit.as_ref().map_err(|why| OperationError::Conflict(why.clone()))?;
        let missing = [("push", permit.push), ("pull_requests", permit.pull_requests)];
        let missing =
            missing.iter().filter(|(_, is_permitted)| !is_permitted).map(|(key, _)| format!("`{key} = true`"));
        let missing: Vec<_> = missing.collect();
        if !missing.is_empty() {
            return Err(OperationError::Conflict(format!(
                "the operator does not permit pull requests of project {name:?}: its [[project]] in guild.toml needs \
                 {}; the host reads the file again at SIGHUP",
                missing.join(" and ")
            )));
        }
        let refused =
            |e: GitError| OperationError::Conflict(format!("no pull request of project {name:?} was created: {e}"));
        let _one = project.shared.pulls.lock().await;
        let active = self.active_work(name, asking);
        if !active.is_empty() {
            return Err(OperationError::Conflict(format!(
                "a pull request of project {name:?} would lack running work; wait for it, or cancel it: {}",
                active.join(", ")
            )));
        }
        let repository = integration.repository();
        let tip = integration.tip().await.map_err(refused)?;
        let origin = repository.origin().await.map_err(refused)?.ok_or_else(|| {
            let path = repository.path().display();
            OperationError::Conflict(format!("{path} has no remote `origin`; add it: git remote add origin URL"))
        })?;
        let seen = origin.fetch().await.map_err(refused)?;
        if repository.contains(&seen.default, &tip).await.map_err(refused)? {
            return Err(OperationError::Conflict(format!(
                "claude/main of project {name:?} has no changes beyond {} at origin, so there is nothing to propose",
                repository.default_branch()
            )));
        }
        origin.push(&tip, seen.integration.as_ref()).await.map_err(refused)?;
        let made = origin.create_pull_request(title, body).await.map_err(refused)?;
        let guild_git::PullRequest { url, existed } = made;
        let note = Note { claude_main_tip: tip.to_string(), created_at: self.core.time(), pr_url: url.clone() };
        let (home, of) = (self.core.home.clone(), name.to_owned());
        blocking(move || keep(&home.pulls()?, &of, &note)).await?;
        tracing::info!(project = name, url, "claude/main was pushed, and has a pull request");
        Ok(PullRequest { url, claude_main_tip: tip.to_string(), existed })
    }

    /// Updates `claude/main` from the default branch, in one project or in all. If pushing is permitted, this is the
    /// default branch of `origin`, which is fetched; otherwise it is the project's own, and the network is not used.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project. Failures of single projects are in their entries.
    pub async fn sync(self: &Arc<Self>, project: Option<&str>) -> Result<Vec<Synced>, OperationError> {
        let projects = match project {
            Some(name) => vec![self.core.project(name)?],
            None => self.core.projects.now(&self.core.home)?.1.into_values().collect(),
        };
        // The projects are independent: a hanging git or `origin` of one does not delay the others.
        Ok(join_all(projects.into_iter().map(|project| self.sync_in_time(project))).await)
    }

    async fn sync_in_time(self: &Arc<Self>, project: Arc<Project>) -> Synced {
        let name = project.name().to_owned();
        let projects = self.clone();
        let work = in_background(async move { projects.sync_project(&project).await });
        let done = match tokio::time::timeout(SYNC_PATIENCE, work).await {
            Ok(done) => done,
            Err(_) => Err(OperationError::Conflict(format!(
                "the sync takes more than {} s, and continues in the background; git or the origin may hang",
                SYNC_PATIENCE.as_secs()
            ))),
        };
        match done {
            Ok((action, reason)) => Synced { project: name, action, reason, error: None },
            Err(e) => {
                let reason = e.to_string();
                tracing::warn!(project = name, "claude/main cannot be updated from the default branch: {reason}");
                Synced { project: name, action: SyncAction::Error, reason: reason.clone(), error: Some(reason) }
            }
        }
    }

    async fn sync_project(self: &Arc<Self>, project: &Project) -> Result<(SyncAction, String), OperationError> {
        let name = project.name();
        let permit = match &project.permit {
            Ok(permit) => permit,
            Err(why) => return Ok((SyncAction::Skip, why.clone())),
        };
        let waits = || {
            let active = self.active_work(name, None);
            (!active.is_empty()).then(|| (SyncAction::Skip, format!("active activities: {}", active.join(", "))))
        };
        if let Some(waits) = waits() {
            return Ok(waits);
        }
        let _one = project.shared.pulls.lock().await;
        let integration = self.core.projects.integration(&self.core.home, project).await?;
        let failed = |e: GitError| OperationError::Conflict(e.to_string());
        let repository = integration.repository();
        let origin = if permit.push { repository.origin().await.map_err(failed)? } else { None };
        let (default, pushed) = match &origin {
            Some(origin) => {
                let seen = origin.fetch().await.map_err(failed)?;
                (seen.default, seen.integration)
            }
            None => (repository.local_default().await.map_err(failed)?, None),
        };
        let branch = match &origin {
            Some(_) => format!("origin/{}", repository.default_branch()),
            None => repository.default_branch().to_owned(),
        };
        let (home, of) = (self.core.home.clone(), name.to_owned());
        let note = blocking(move || read(&home.pulls()?, &of)).await?;
        let proposed = match &note {
            Some(note) => self.proposed(note, permit, origin.as_ref()).await,
            None => None,
        };
        let begin = || waits().is_none();
        let followed = integration.follow(&default, proposed.as_ref(), pushed.as_ref(), begin).await.map_err(failed)?;
        if note.is_some() && proposed.as_ref().is_none_or(|proposed| followed.is_over(proposed)) {
            let (home, of) = (self.core.home.clone(), name.to_owned());
            blocking(move || forget(&home.pulls()?, &of)).await?;
        }
        let url = note.map(|note| note.pr_url).unwrap_or_default();
        let done = match followed {
            Followed::Refused => waits().unwrap_or_else(|| (SyncAction::Skip, "active activities".to_owned())),
            Followed::Current => (SyncAction::Noop, "already current".to_owned()),
            Followed::Ahead => (SyncAction::Noop, format!("claude/main is ahead of {branch}")),
            Followed::Open => (SyncAction::Skip, format!("the pull request is open; merge it, and sync again: {url}")),
            Followed::Reset => (SyncAction::Reset, format!("{branch} has all changes of claude/main")),
            Followed::Forwarded => {
                (SyncAction::Rebase, format!("{branch} has new commits, and claude/main had no changes of its own"))
            }
            Followed::Rebased { commits } => (
                SyncAction::Rebase,
                format!("the pull request is merged; {commits} newer commits are on top of {branch} now"),
            ),
            Followed::Merged => (
                SyncAction::Merge,
                format!("{branch} and claude/main both have new commits; {branch} was merged into claude/main"),
            ),
            Followed::Conflicts { files } => {
                return Err(OperationError::Conflict(format!(
                    "claude/main and {branch} changed the same places of {}; nothing was changed. Merge it by hand, and sync \
                     again: git -C {} merge {default}",
                    files.join(", "),
                    integration.dir().display()
                )));
            }
        };
        // Documents may have changed.
        self.commissions.check_dependencies(Some(name)).await?;
        Ok(done)
    }

    /// The pull request of a note, and its outcome. `None` if the note is invalid.
    async fn proposed(&self, note: &Note, permit: &Permit, origin: Option<&guild_git::Origin>) -> Option<Proposed> {
        let tip = CommitId::parse(&note.claude_main_tip)?;
        let state = match origin.filter(|_| permit.pull_requests) {
            Some(origin) => origin.pull_request_state(&note.pr_url).await,
            None => PullState::Unknown,
        };
        Some(Proposed { tip, state })
    }

    /// The running work in a project, except for one activity: the changes of its attempts are on no branch of the
    /// project yet, and are merged as the difference from `claude/main` at their start.
    fn active_work(&self, project: &str, except: Option<&str>) -> Vec<String> {
        let ids = self.commissions.active(project).chain(self.meetings.active(project));
        ids.filter(|id| Some(id.as_str()) != except).collect()
    }
}

fn check(title: &str, body: &str) -> Result<(), OperationError> {
    if title.trim().is_empty() {
        return Err(OperationError::Invalid("Missing required field: title".to_owned()));
    }
    if title.chars().count() > TITLE_CHARS || title.contains(char::is_control) {
        return Err(OperationError::Invalid(format!("title is one line of at most {TITLE_CHARS} characters")));
    }
    if body.len() > BODY_BYTES || body.contains('\0') {
        return Err(OperationError::Invalid(format!("body has at most {BODY_BYTES} bytes, and no zero byte")));
    }
    Ok(())
}

/// The file of a project's pull request.
fn file(project: &str) -> String {
    format!("{project}.json")
}

/// Stores a note. It survives a power cut.
fn keep(dir: &Dir, project: &str, note: &Note) -> Result<(), OperationError> {
    let json = serde_json::to_vec_pretty(note).map_err(std::io::Error::from);
    let kept = json.and_then(|json| replace(dir, &file(project), &json, Survives::PowerCut));
    kept.map(drop).map_err(OperationError::io(format!("{} was created, and cannot be noted", note.pr_url)))
}

/// The note; `None` if there is none, or if it cannot be read. A sync works without it.
fn read(dir: &Dir, project: &str) -> Result<Option<Note>, OperationError> {
    let file = file(project);
    let found = read_whole(dir, &file, NOTE_BYTES).map_err(OperationError::io(format!("state/pr-pending/{file}")))?;
    Ok(found.and_then(|(json, _)| {
        let note = serde_json::from_slice(&json);
        note.inspect_err(|e| tracing::warn!("state/pr-pending/{file} is ignored: {e}")).ok()
    }))
}

fn forget(dir: &Dir, project: &str) -> Result<(), OperationError> {
    let file = file(project);
    if_there(dir.remove_file(&file)).map(drop).map_err(OperationError::io(format!("state/pr-pending/{file}")))
}
