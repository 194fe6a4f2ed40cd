//! Implements `hall`: reads the hall that the host serves.

use std::sync::Arc;

use guild_contract::{
    capability::HALL,
    hall::{Author, CommissionView, label},
};
use guild_session::{
    hall::{HallMeeting, HallView, HallWorker},
    tools::ToolError,
};

use super::{
    HostResult,
    bindings::guild::worker::hall::{CommissionInfo, Host, MeetingInfo, Worker},
    named,
};
use crate::{
    call::on_host,
    state::{CallContext, State},
};

/// Reads the hall on the host's runtime.
async fn read<T: Send + 'static, F: Future<Output = Result<T, ToolError>> + Send + 'static>(
    context: &CallContext,
    function: &'static str,
    read: impl FnOnce(Arc<dyn HallView>) -> F,
) -> HostResult<T> {
    let hall = context.granted(&HALL).and_then(|()| context.hall(function));
    Ok(match hall {
        Ok((hall, host)) => on_host(&host, "the hall could not be read", read(hall)).await.map_err(Into::into),
        Err(e) => Err(e.into()),
    })
}

impl Host for State {
    async fn workers(&mut self) -> HostResult<Vec<Worker>> {
        read(&self.context, "hall.workers", |hall| async move {
            Ok(hall.workers().await?.into_iter().map(worker).collect())
        })
        .await
    }

    async fn commissions(&mut self, project: Option<String>) -> HostResult<Vec<CommissionInfo>> {
        read(&self.context, "hall.commissions", |hall| async move {
            project.as_deref().map_or(Ok(()), |project| named("the project", project))?;
            Ok(hall.commissions(project.as_deref()).await?.into_iter().map(commission).collect())
        })
        .await
    }

    async fn meetings(&mut self, project: Option<String>) -> HostResult<Vec<MeetingInfo>> {
        read(&self.context, "hall.meetings", |hall| async move {
            project.as_deref().map_or(Ok(()), |project| named("the project", project))?;
            Ok(hall.meetings(project.as_deref()).await?.into_iter().map(meeting).collect())
        })
        .await
    }

    async fn commission(&mut self, id: String) -> HostResult<Option<CommissionInfo>> {
        read(&self.context, "hall.commission", |hall| async move {
            named("the id", &id)?;
            Ok(hall.commission(&id).await?.map(commission))
        })
        .await
    }
}

fn worker(HallWorker { key, name, title, description, can }: HallWorker) -> Worker {
    Worker { key, name, title, description, can }
}

fn commission(one: CommissionView) -> CommissionInfo {
    CommissionInfo {
        id: one.id.to_string(),
        project: one.project_name,
        title: label(&one.title).to_owned(),
        status: one.status.to_string(),
        worker: one.worker,
        by_manager: one.created_by == Author::Manager,
        dependencies: one.dependencies,
        prompt: one.prompt,
        progress: one.current_progress,
        outcome: one.result_summary,
        changed: one.relevant_date,
        job: one.job,
    }
}

fn meeting(one: HallMeeting) -> MeetingInfo {
    let HallMeeting { id, project, title, status, worker, agenda, notes, artifacts, started } = one;
    MeetingInfo { id, project, title, status, worker, agenda, notes, artifacts, started }
}
