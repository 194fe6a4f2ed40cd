//! The branches of finished commissions and meetings that can be removed.
//!
//! A branch goes where its work is not lost by that: a commission is completed, so that its result is in `claude/main`,
//! or abandoned for good; what was written in a meeting was merged. The branch of a commission that failed or was
//! cancelled, which can be dispatched again, and of a meeting that could not be merged has work that is nowhere else:
//! it goes only where that is asked for. A branch of what waits or is under way never goes, nor one of which nothing is
//! known here.

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

/// Which branches are to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tidying {
    /// The time for which their commission or meeting has been over.
    pub older_than: Duration,
    /// Whether branches are removed, too, whose work is nowhere else.
    pub unmerged: bool,
    /// Whether branches are only named, and none is removed.
    pub dry_run: bool,
}

/// The outcome for a branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tidied {
    /// The project.
    pub project: String,
    /// The branch.
    pub branch: String,
    /// Its last commit, by which git can make it again: `git branch NAME COMMIT`.
    pub commit: String,
    /// Whether it is gone, or would be.
    pub removed: bool,
    /// Why.
    pub reason: String,
}

/// The commissions and meetings whose branches there are.
pub(crate) struct Owners {
    commissions: BTreeMap<CommissionId, Commission>,
    meetings: BTreeMap<MeetingId, Meeting>,
}

/// Whether a branch can go.
enum Verdict {
    /// It can, and nothing is lost; since when it could.
    Done(Timestamp, String),
    /// Its work is nowhere else; since when.
    Unmerged(Timestamp, String),
    /// It cannot.
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
        let unknown = || Verdict::Kept("nothing is known here of what it is of".to_owned());
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
        // An attempt after the first has its number behind the id. So has an id of the same second, which may be
        // another's.
        let again = id.rsplit_once('-').and_then(|(id, nth)| {
            let nth = nth.parse().ok().filter(|nth: &usize| *nth > 1)?;
            known(id).filter(|one| one.attempts() >= nth)
        });
        let owners = known(id).into_iter().chain(again);
        // The first that has to keep it decides.
        let verdicts = owners.map(|one| {
            let last = one.record.activity_timeline.iter().rfind(|entry| entry.to.is_some());
            let (since, status) = (time(last.map_or(&one.record.date, |entry| &entry.timestamp)), one.status);
            match status {
                // That of an earlier attempt, which failed, was not merged with it.
                CommissionStatus::Completed if one.branch_name.as_deref() == Some(name) => {
                    Verdict::Done(since, "its commission is completed".to_owned())
                }
                CommissionStatus::Abandoned => Verdict::Done(since, "its commission is abandoned".to_owned()),
                _ if is_merged && !status.is_active() => Verdict::Done(since, "its work is in claude/main".to_owned()),
                CommissionStatus::Completed => Verdict::Unmerged(
                    since,
                    "it is of an earlier attempt than the one that completed its commission".to_owned(),
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

/// A time as records have it; one that makes no sense is of now, so that nothing goes because of it.
fn time(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|_| Timestamp::now())
}

/// Removes the branches of a project that can go.
///
/// # Errors
/// Where git fails. Branches that were removed before stay removed.
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
            (removed, reason) = (false, "somebody changed it meanwhile".to_owned());
        }
        let (branch, commit) = (found.branch.to_string(), found.commit.to_string());
        all.push(Tidied { project: project.to_owned(), branch, commit, removed, reason });
    }
    Ok(all)
}

/// Removes branches of commissions and meetings that are over, of one project or of all that are permitted. A host may
/// serve the hall at the same time: it begins no attempt on a branch of an earlier one.
///
/// # Errors
/// Where there is no such project, or it cannot be worked on.
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
            "project '{name}' not found; `guild project list` shows those there are"
        )));
    }
    let owners = Owners::new(list_commissions(home)?.into_iter(), list_meetings(home)?.into_iter());
    let git = find_git(None, limits).await.map_err(|e| OperationError::Conflict(e.to_string()))?;
    let mut all = Vec::new();
    for known in projects {
        // Of several, one that is not permitted is not touched.
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
