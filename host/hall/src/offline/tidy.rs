//! Removes the branches of finished commissions and meetings.
//!
//! A branch is removed if no work is lost: its commission is completed, so that the result is in `claude/main`, or
//! abandoned for good; or the changes of its meeting were merged. The branch of a commission that failed or was
//! cancelled, which can be dispatched again, and the branch of a meeting that could not be merged contain work that is
//! nowhere else: they are removed only on request. The branch of waiting or running work is never removed, nor is a
//! branch of unknown origin.

use std::{collections::BTreeMap, path::Path, time::Duration};

use guild_contract::{
    Limits, OperationError,
    hall::{CommissionId, CommissionStatus, MeetingId, MeetingStatus},
};
use guild_git::{FoundBranch, Repository};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::{
    commissions::commission::Commission,
    home::project_list::{Permit, Project, find_git},
    meetings::meeting::{Meeting, NOT_MERGED},
    offline::register::{list_commissions, list_meetings, read_settings},
};

/// The rule for the branches to remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tidying {
    /// The least time since the end of their commission or meeting.
    pub older_than: Duration,
    /// Whether branches are also removed whose work is nowhere else.
    pub unmerged: bool,
    /// Whether branches are only listed, and not removed.
    pub dry_run: bool,
}

/// The outcome for a branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tidied {
    /// The project's name.
    pub project: String,
    /// The branch.
    pub branch: String,
    /// The last commit, from which git can restore the branch: `git branch NAME COMMIT`.
    pub commit: String,
    /// Whether the branch is removed, or would be.
    pub removed: bool,
    /// The reason.
    pub reason: String,
}

/// The commissions and meetings of existing branches.
pub(crate) struct Owners {
    commissions: BTreeMap<CommissionId, Commission>,
    meetings: BTreeMap<MeetingId, Meeting>,
}

/// Whether a branch can be removed.
enum Verdict {
    /// The branch can be removed without loss, since that time.
    Done(Timestamp, String),
    /// The branch's work is nowhere else, since that time.
    Unmerged(Timestamp, String),
    /// The branch cannot be removed.
    Kept(String),
}

impl Owners {
    pub(crate) fn new(commissions: impl Iterator<Item = Commission>, meetings: impl Iterator<Item = Meeting>) -> Self {
        Self {
            commissions: commissions.map(|one| (one.commission_id.clone(), one)).collect(),
            meetings: meetings.map(|one| (one.meeting_id.clone(), one)).collect(),
        }
    }

    fn verdict(&self, project: &str, found: &FoundBranch, is_merged: bool) -> Verdict {
        if let Some(worktree) = &found.worktree {
            return Verdict::Kept(format!("it is checked out in {}", worktree.display()));
        }
        let unknown = || Verdict::Kept("its commission or meeting is unknown".to_owned());
        let name = found.branch.as_str();
        if let Some(id) = name.strip_prefix("claude/meeting/") {
            let meeting = id.parse().ok().and_then(|id: MeetingId| self.meetings.get(&id));
            return meeting.filter(|one| one.project_name == project).map_or_else(unknown, |meeting| {
                let since = meeting.record.meeting_log.last().map_or(&meeting.record.date, |entry| &entry.timestamp);
                match meeting.status {
                    MeetingStatus::Closed if is_merged || !meeting.record.body.contains(NOT_MERGED) => {
                        Verdict::Done(time(since), "its meeting is closed".to_owned())
                    }
                    MeetingStatus::Closed => Verdict::Unmerged(
                        time(since),
                        "its meeting is closed, and its work is not in claude/main".to_owned(),
                    ),
                    status => Verdict::Kept(format!("its meeting is {status}")),
                }
            });
        }
        let Some(id) = name.strip_prefix("claude/commission/") else { return unknown() };
        let known = |id: &str| {
            let known = id.parse().ok().and_then(|id: CommissionId| self.commissions.get(&id));
            known.filter(|one| one.project_name == project)
        };
        // The branch of a repeated attempt has its number after the id. An id of the same second has one too, and may
        // be another commission's.
        let again = id.rsplit_once('-').and_then(|(id, nth)| {
            let nth = nth.parse().ok().filter(|nth: &usize| *nth > 1)?;
            known(id).filter(|one| one.attempts() >= nth)
        });
        let owners = known(id).into_iter().chain(again);
        // The first verdict to keep the branch decides.
        let verdicts = owners.map(|one| {
            let last = one.record.activity_timeline.iter().rfind(|entry| entry.to.is_some());
            let (since, status) = (time(last.map_or(&one.record.date, |entry| &entry.timestamp)), one.status);
            match status {
                // The branch of an earlier, failed attempt was not merged with the commission.
                CommissionStatus::Completed if one.branch_name.as_deref() == Some(name) => {
                    Verdict::Done(since, "its commission is completed".to_owned())
                }
                CommissionStatus::Abandoned => Verdict::Done(since, "its commission is abandoned".to_owned()),
                _ if is_merged && !status.is_active() => Verdict::Done(since, "its work is in claude/main".to_owned()),
                CommissionStatus::Completed => Verdict::Unmerged(
                    since,
                    "it belongs to an earlier attempt than the one that completed its commission".to_owned(),
                ),
                CommissionStatus::Failed | CommissionStatus::Cancelled => Verdict::Unmerged(
                    since,
                    format!("its commission is {status}, can be dispatched again, and its work is not in claude/main"),
                ),
                status => Verdict::Kept(format!("its commission is {status}")),
            }
        });
        let rank = |verdict: &Verdict| match verdict {
            Verdict::Kept(_) => 0,
            Verdict::Unmerged(..) => 1,
            Verdict::Done(..) => 2,
        };
        verdicts.min_by_key(rank).unwrap_or_else(unknown)
    }
}

/// Parses a time of a record; an invalid time becomes the present, so that no branch is removed because of it.
fn time(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|_| Timestamp::now())
}

/// Removes the branches of a project that can be removed.
///
/// # Errors
///
/// Returns an error when git fails. Branches that were removed before stay removed.
pub(crate) async fn tidy_project(
    repository: &Repository,
    project: &str,
    owners: &Owners,
    tidying: Tidying,
) -> Result<Vec<Tidied>, OperationError> {
    let merged = repository.merged_commits().await?;
    let age = SignedDuration::try_from(tidying.older_than).unwrap_or(SignedDuration::MAX);
    let now = Timestamp::now();
    let mut all = Vec::new();
    for found in repository.attempt_branches().await? {
        let verdict = owners.verdict(project, &found, merged.contains(found.commit.as_str()));
        let is_old = |since: Timestamp| now.duration_since(since) >= age;
        let (mut removed, mut reason) = match verdict {
            Verdict::Kept(why) => (false, why),
            Verdict::Done(since, why) | Verdict::Unmerged(since, why) if !is_old(since) => {
                (false, format!("{why}, since {}", since.strftime("%Y-%m-%d")))
            }
            Verdict::Unmerged(_, why) if !tidying.unmerged => (false, format!("{why}; --unmerged removes it")),
            Verdict::Done(_, why) | Verdict::Unmerged(_, why) => (true, why),
        };
        if removed && !tidying.dry_run && !repository.remove_branch(&found.branch, &found.commit).await? {
            (removed, reason) = (false, "another process changed it in the meantime".to_owned());
        }
        let (branch, commit) = (found.branch.to_string(), found.commit.to_string());
        all.push(Tidied { project: project.to_owned(), branch, commit, removed, reason });
    }
    Ok(all)
}

/// Removes branches of finished commissions and meetings, of one project or of all permitted projects. A host may serve
/// the hall at the same time: it starts no attempt on a branch of an earlier one.
///
/// # Errors
///
/// Returns an error when there is no such project, or it cannot be worked on.
pub async fn tidy(
    home: &Path,
    project: Option<&str>,
    permits: &[Permit],
    limits: &Limits,
    tidying: Tidying,
) -> Result<Vec<Tidied>, OperationError> {
    let settings = read_settings(home)?;
    let known = settings.projects().iter().filter(|known| project.is_none_or(|name| known.name == name));
    let projects: Vec<_> = known.map(|known| Project::new(known.clone(), permits)).collect();
    if let (Some(name), []) = (project, projects.as_slice()) {
        return Err(OperationError::NotFound(format!(
            "project '{name}' not found; `guild project list` shows the projects"
        )));
    }
    let owners = Owners::new(list_commissions(home)?.into_iter(), list_meetings(home)?.into_iter());
    let git = find_git(None, limits).await.map_err(|e| OperationError::Conflict(e.to_string()))?;
    let mut all = Vec::new();
    for known in projects {
        // Among all projects, one that is not permitted is not touched.
        if project.is_none() && known.permit.is_err() {
            continue;
        }
        let name = known.name();
        let unusable = |e: &dyn std::fmt::Display| OperationError::Conflict(format!("project {name:?}: {e}"));
        known.usable().map_err(|e| unusable(&e))?;
        let path = Path::new(&known.settings.path);
        let repository = Repository::open(&git, path, known.settings.default_branch.as_deref()).await;
        let repository = repository.map_err(|e| unusable(&e))?;
        all.extend(tidy_project(&repository, name, &owners, tidying).await.map_err(|e| unusable(&e))?);
    }
    Ok(all)
}
