//! How the work on projects stands, in a few sentences. The original has a model write them; here they are counted.

use guild_hall::{
    HallError,
    commission::Status,
    hall::{Filter, Hall},
    meeting::MeetingStatus,
};
use jiff::Timestamp;
use serde_json::json;

use super::request::{Answer, Request, ok};

/// States of commissions, with what is said of each that some are in.
const STATES: [(&[Status], &str); 5] = [
    (&[Status::Dispatched, Status::InProgress], "under way"),
    (&[Status::Pending], "waiting to be dispatched"),
    (&[Status::Blocked], "blocked"),
    (&[Status::Failed, Status::Cancelled], "failed or cancelled"),
    (&[Status::Completed], "completed"),
];

pub(super) async fn read(Request { hall, fields, .. }: Request) -> Answer {
    let briefing = match fields.maybe(&["projectName"]).filter(|name| name != "all") {
        Some(name) => of_project(&hall, &name).await?,
        None => {
            let mut all = Vec::new();
            for project in hall.projects()? {
                all.push(format!("{}: {}", project.name, of_project(&hall, &project.name).await?));
            }
            if all.is_empty() { "No project is registered.".to_owned() } else { all.join("\n") }
        }
    };
    ok(json!({"briefing": briefing, "generatedAt": Timestamp::now().to_string(), "cached": false}))
}

async fn of_project(hall: &Hall, name: &str) -> Result<String, HallError> {
    let commissions = hall.matching(&Filter { project: Some(name.to_owned()), ..Filter::default() }).await?;
    let counts = STATES.iter().map(|(states, said)| {
        (commissions.iter().filter(|commission| states.contains(&commission.status)).count(), *said)
    });
    let mut sentences: Vec<String> = sentence("Commissions", counts).into_iter().collect();
    let meetings = hall.meetings_of(Some(name)).await?;
    let counts = [MeetingStatus::Open, MeetingStatus::Requested]
        .map(|status| (meetings.iter().filter(|meeting| meeting.status == status).count(), status.as_str()));
    sentences.extend(sentence("Meetings", counts));
    Ok(if sentences.is_empty() { "Nothing is to be done.".to_owned() } else { sentences.join(" ") })
}

/// How many there are of each kind; `None` where there are none at all.
fn sentence(of: &str, counts: impl IntoIterator<Item = (usize, &'static str)>) -> Option<String> {
    let there = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = there.map(|(count, said)| format!("{count} {said}")).collect();
    (!counts.is_empty()).then(|| format!("{of}: {}.", counts.join(", ")))
}
