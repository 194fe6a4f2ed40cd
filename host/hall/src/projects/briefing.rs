//! Summarizes the state of the work on a project in a few sentences.

use guild_contract::{
    OperationError,
    hall::{CommissionFilter, CommissionStatus, MeetingStatus},
};

use super::Projects;

impl Projects {
    /// Summarizes the state of the work on a project in a few sentences, from counts. In the original, a model writes
    /// them.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project.
    pub async fn briefing(&self, project: &str) -> Result<String, OperationError> {
        let filter = CommissionFilter { project_name: Some(project.to_owned()), ..CommissionFilter::default() };
        let commissions = self.commissions.matching(&filter).await?;
        let counts = Kind::ALL
            .map(|(kind, name)| (commissions.iter().filter(|now| Kind::of(now.status) == Some(kind)).count(), name));
        let mut sentences: Vec<String> = sentence("Commissions", counts).into_iter().collect();
        let meetings = self.meetings.of(Some(project)).await?;
        let counts = [MeetingStatus::Open, MeetingStatus::Requested]
            .map(|status| (meetings.iter().filter(|meeting| meeting.status == status).count(), status.as_str()));
        sentences.extend(sentence("Meetings", counts));
        Ok(if sentences.is_empty() { "There is nothing to do.".to_owned() } else { sentences.join(" ") })
    }
}

/// The kinds of commissions that a briefing counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    UnderWay,
    Waiting,
    Blocked,
    Ended,
    Completed,
}

impl Kind {
    /// All kinds, each with its name for people, in the order of a briefing.
    const ALL: [(Self, &'static str); 5] = [
        (Self::UnderWay, "under way"),
        (Self::Waiting, "waiting to be dispatched"),
        (Self::Blocked, "blocked"),
        (Self::Ended, "failed or cancelled"),
        (Self::Completed, "completed"),
    ];

    /// The kind of a commission in this state; abandoned commissions are not counted.
    fn of(status: CommissionStatus) -> Option<Self> {
        match status {
            CommissionStatus::Dispatched | CommissionStatus::InProgress => Some(Self::UnderWay),
            CommissionStatus::Pending => Some(Self::Waiting),
            CommissionStatus::Blocked => Some(Self::Blocked),
            CommissionStatus::Failed | CommissionStatus::Cancelled => Some(Self::Ended),
            CommissionStatus::Completed => Some(Self::Completed),
            CommissionStatus::Abandoned => None,
        }
    }
}

/// A sentence with the count of each kind; `None` if all counts are zero.
fn sentence(of: &str, counts: impl IntoIterator<Item = (usize, &'static str)>) -> Option<String> {
    let there = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = there.map(|(count, kind)| format!("{count} {kind}")).collect();
    (!counts.is_empty()).then(|| format!("{of}: {}.", counts.join(", ")))
}
