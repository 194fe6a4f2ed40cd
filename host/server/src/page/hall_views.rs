//! Collects the answers that a view of the hall shows.

use guild_contract::hall::Artifact;
use guild_contract::hall::{
    CommissionFilter, CommissionStatus, DiffParams, DocumentParams, ListCommissions, ListMeetings, ListProjects,
    ListWorkers, MeetingFilter, MeetingList, MeetingListView, MeetingParams, MeetingsAnswer, Named, NoParams,
    ProjectList, ProjectParams, ReadCommission, ReadCommissionParams, ReadDiff, ReadDocument, ReadGraph, ReadMeeting,
};
use guild_page::{
    hall::{
        commission::CommissionNow,
        meeting::MeetingNow,
        project::{Column, ProjectNow},
    },
    job_path,
};

use super::request::{PageRequest, Why};
use crate::mcp::Server;

/// The most commissions in a column of the board, and on the page with one column.
const CARDS: usize = 25;
const ONE_COLUMN: usize = 200;
/// The most meetings of a project that are listed.
const MEETINGS: usize = 50;

/// The projects; `None` on a host without a hall.
pub(super) async fn projects(page: &PageRequest) -> Result<Option<ProjectList>, Why> {
    if page.host.hall().is_none() {
        return Ok(None);
    }
    page.call::<ListProjects>(&page.hall()?, &NoParams {}).await.map(Some)
}

/// Collects the data of a project's page.
pub(super) async fn project(page: &PageRequest, name: &str) -> Result<ProjectNow, Why> {
    let hall = page.hall()?;
    let listed = page.call::<ListProjects>(&hall, &NoParams {}).await?;
    let project = listed.projects.into_iter().find(|project| project.name == name);
    let project = project.ok_or_else(|| Why::not_found(format!("the hall has no project {name}")))?;
    let mut columns = Vec::new();
    for status in CommissionStatus::ALL {
        columns.push(of_state(page, &hall, name, *status, 0, CARDS).await?);
    }
    let graph = page.call::<ReadGraph>(&hall, &ProjectParams { project_name: name.to_owned() }).await;
    let meetings = meetings(page, &hall, name).await;
    let workers = page.call::<ListWorkers>(&hall, &NoParams {}).await;
    Ok(ProjectNow {
        project,
        columns,
        graph: graph.map_err(|why| why.text),
        meetings: meetings.map_err(|why| why.text),
        workers: workers.map_err(|why| why.text),
    })
}

/// The commissions of a project in one state.
pub(super) async fn column(
    page: &PageRequest,
    project: &str,
    status: CommissionStatus,
    offset: usize,
) -> Result<Column, Why> {
    of_state(page, &page.hall()?, project, status, offset, ONE_COLUMN).await
}

async fn of_state(
    page: &PageRequest,
    hall: &Server,
    project: &str,
    status: CommissionStatus,
    offset: usize,
    limit: usize,
) -> Result<Column, Why> {
    let filter = CommissionFilter {
        project_name: Some(project.to_owned()),
        status: Some(Named::Known(status)),
        worker: None,
        offset,
        limit: Some(limit),
    };
    Ok(Column { status, list: page.call::<ListCommissions>(hall, &filter).await?, offset })
}

async fn meetings(page: &PageRequest, hall: &Server, project: &str) -> Result<MeetingList, Why> {
    let filter = MeetingFilter {
        project_name: Some(project.to_owned()),
        view: Some(Named::Known(MeetingListView::All)),
        limit: Some(MEETINGS),
        ..MeetingFilter::default()
    };
    match page.call::<ListMeetings>(hall, &filter).await? {
        MeetingsAnswer::Meetings(list) => Ok(list),
        MeetingsAnswer::Records(_) => Ok(MeetingList::default()),
    }
}

/// Collects the data of a commission's page.
pub(super) async fn commission(
    page: &PageRequest,
    project: &str,
    id: &str,
    is_live: bool,
) -> Result<CommissionNow, Why> {
    let hall = page.hall()?;
    let (commission_id, project_name) = (id.to_owned(), Some(project.to_owned()));
    let params = ReadCommissionParams { commission_id: commission_id.clone(), project_name: project_name.clone() };
    let detail = page.call::<ReadCommission>(&hall, &params).await?;
    let commission = &detail.commission;
    let diff = match commission.job.is_some() && !(is_live && commission.status.is_active()) {
        true => {
            let params = DiffParams { commission_id, project_name, file: None };
            Some(page.call::<ReadDiff>(&hall, &params).await.map_err(|why| why.text))
        }
        false => None,
    };
    let job = job(page, commission.job.as_deref()).await;
    Ok(CommissionNow { detail, diff, job })
}

/// Collects the data of a meeting's page.
pub(super) async fn meeting(page: &PageRequest, meeting: &MeetingParams) -> Result<MeetingNow, Why> {
    let detail = page.call::<ReadMeeting>(&page.hall()?, meeting).await?;
    let job = job(page, detail.meeting.job.as_deref()).await;
    Ok(MeetingNow { detail, job })
}

/// A document of a project.
pub(super) async fn document(page: &PageRequest, project: &str, path: &str) -> Result<Artifact, Why> {
    let params = DocumentParams { project_name: project.to_owned(), path: path.to_owned() };
    page.call::<ReadDocument>(&page.hall()?, &params).await
}

/// The page of a job. It can have been deleted.
async fn job(page: &PageRequest, id: Option<&str>) -> Option<String> {
    let roster = Server::Roster(page.reading.clone());
    let (member, id) = roster.job(page.caller(), id?).await?;
    Some(job_path(member.key().as_str(), id.as_str()))
}
