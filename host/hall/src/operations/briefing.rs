//! The state of the work on projects, in a few sentences. The original has a model write them; here they are counted.

use std::sync::Arc;

use guild_contract::{
    OperationError,
    hall::{Briefing, CommissionFilter, CommissionStatus, MaybeProjectParams, MeetingStatus, ReadBriefing},
};
use jiff::Timestamp;

use super::{Handle, Reply};
use crate::Hall;

/// The kinds of commissions that a briefing counts, in its order.
const KINDS: [&str; 5] = ["under way", "waiting to be dispatched", "blocked", "failed or cancelled", "completed"];

/// The kind of a commission in this state; abandoned ones are not counted.
fn kind(status: CommissionStatus) -> Option<&'static str> {
    match status {
        CommissionStatus::Dispatched | CommissionStatus::InProgress => Some("under way"),
        CommissionStatus::Pending => Some("waiting to be dispatched"),
        CommissionStatus::Blocked => Some("blocked"),
        CommissionStatus::Failed | CommissionStatus::Cancelled => Some("failed or cancelled"),
        CommissionStatus::Completed => Some("completed"),
        CommissionStatus::Abandoned => None,
    }
}

impl Handle for ReadBriefing {
    async fn handle(
        hall: Arc<Hall>,
        MaybeProjectParams { project_name }: MaybeProjectParams,
    ) -> Result<Reply<Briefing>, OperationError> {
        let briefing = match project_name.filter(|name| name != "all") {
            Some(name) => of_project(&hall, &name).await?,
            None => {
                let mut all = Vec::new();
                for project in hall.projects()? {
                    all.push(format!("{}: {}", project.name, of_project(&hall, &project.name).await?));
                }
                if all.is_empty() { "No project is registered.".to_owned() } else { all.join("\n") }
            }
        };
        Ok(Briefing { briefing, generated_at: Timestamp::now().to_string(), cached: false }.into())
    }
}

async fn of_project(hall: &Hall, name: &str) -> Result<String, OperationError> {
    let filter = CommissionFilter { project_name: Some(name.to_owned()), ..CommissionFilter::default() };
    let commissions = hall.matching(&filter).await?;
    let counts =
        KINDS.map(|wanted| (commissions.iter().filter(|now| kind(now.status) == Some(wanted)).count(), wanted));
    let mut sentences: Vec<String> = sentence("Commissions", counts).into_iter().collect();
    let meetings = hall.meetings_of(Some(name)).await?;
    let counts = [MeetingStatus::Open, MeetingStatus::Requested]
        .map(|status| (meetings.iter().filter(|meeting| meeting.status == status).count(), status.as_str()));
    sentences.extend(sentence("Meetings", counts));
    Ok(if sentences.is_empty() { "Nothing is to be done.".to_owned() } else { sentences.join(" ") })
}

/// A sentence with the count of each kind; `None` where there are none at all.
fn sentence(of: &str, counts: impl IntoIterator<Item = (usize, &'static str)>) -> Option<String> {
    let there = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = there.map(|(count, kind)| format!("{count} {kind}")).collect();
    (!counts.is_empty()).then(|| format!("{of}: {}.", counts.join(", ")))
}
