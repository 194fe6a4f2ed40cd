//! Implements the view of the hall for workers that are granted `hall:read`.

use std::sync::Arc;

use async_trait::async_trait;
use guild_contract::{
    OperationError,
    hall::{CommissionFilter, CommissionView},
};
use guild_session::{
    hall::{HallMeeting, HallView, HallWorker},
    tools::ToolError,
};

use super::Hall;
use crate::{
    commissions::view,
    core::{text::cut, workers::Worker},
    meetings::meeting::Meeting,
};

/// The most commissions in a list.
const MAX_LISTED: usize = 500;
/// The most characters of each text of a commission, in a list and in a single answer.
const LISTED_CHARS: usize = 500;
const READ_CHARS: usize = 32_000;

/// Reads a hall on behalf of a worker.
pub struct HallReader(pub Arc<Hall>);

#[async_trait]
impl HallView for HallReader {
    async fn workers(&self) -> Result<Vec<HallWorker>, ToolError> {
        Ok(self.0.all_workers().into_iter().map(worker).collect())
    }

    async fn commissions(&self, project: Option<&str>) -> Result<Vec<CommissionView>, ToolError> {
        let filter = CommissionFilter { project_name: project.map(str::to_owned), ..CommissionFilter::default() };
        let found = self.0.commissions.matching(&filter).await?;
        Ok(found.iter().take(MAX_LISTED).map(|now| shortened(view::commission(now), LISTED_CHARS)).collect())
    }

    async fn meetings(&self, project: Option<&str>) -> Result<Vec<HallMeeting>, ToolError> {
        let found = self.0.meetings.of(project).await?;
        Ok(found.iter().take(MAX_LISTED).map(|now| meeting(now)).collect())
    }

    async fn commission(&self, id: &str) -> Result<Option<CommissionView>, ToolError> {
        match self.0.commissions.read(id, None).await {
            Ok(read) => Ok(Some(shortened(read.commission, READ_CHARS))),
            Err(OperationError::NotFound(_)) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

fn worker(worker: Worker) -> HallWorker {
    let Worker { key, display_name, display_title, description, can, .. } = worker;
    HallWorker { key: key.to_string(), name: display_name, title: display_title, description, can }
}

fn shortened(view: CommissionView, chars: usize) -> CommissionView {
    CommissionView {
        prompt: cut(view.prompt, chars),
        current_progress: cut(view.current_progress, chars),
        result_summary: cut(view.result_summary, chars),
        ..view
    }
}

fn meeting(now: &Meeting) -> HallMeeting {
    let record = now.record.clone();
    HallMeeting {
        id: now.meeting_id.to_string(),
        project: now.project_name.clone(),
        title: record.title,
        status: now.status.to_string(),
        worker: record.worker,
        agenda: cut(record.agenda, LISTED_CHARS),
        notes: cut(record.body.trim().to_owned(), LISTED_CHARS),
        artifacts: record.linked_artifacts,
        started: now.started().to_owned(),
    }
}
