//! Lists and reads meetings.

use std::{cmp::Reverse, sync::Arc};

use guild_contract::{
    OperationError,
    hall::{Artifact, MeetingDetail, MeetingMessage, MeetingStatus, MeetingView, OpenMeetingView},
};

use super::{
    Meetings,
    meeting::{Meeting, transcript},
    view,
};
use crate::{
    blocking::blocking,
    documents::artifact,
    records::{
        HallRecord as _,
        page::{PAGE_BYTES, Page},
        store,
    },
};

impl Meetings {
    /// The meetings of a project or of all projects, in one of these states, or in any state if none is given. The
    /// newest come first; deferred requests come last.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project.
    pub async fn list(
        &self,
        project: Option<&str>,
        states: &[MeetingStatus],
    ) -> Result<Page<MeetingView>, OperationError> {
        self.list_from(project, states, 0, None).await
    }

    /// The meetings of [`Self::list`] without the first `offset`, and at most `limit`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::list`].
    pub async fn list_from(
        &self,
        project: Option<&str>,
        states: &[MeetingStatus],
        offset: usize,
        limit: Option<usize>,
    ) -> Result<Page<MeetingView>, OperationError> {
        let mut found = self.of(project).await?;
        found.retain(|now| states.is_empty() || states.contains(&now.status));
        found.sort_by_cached_key(|now| {
            let record = &now.record;
            (record.deferred_until.clone(), Reverse((record.date.clone(), now.started().to_owned())))
        });
        Ok(Page::of(&found, offset, limit))
    }

    /// The records of all meetings of a project, as artifacts: open ones first, then the newest.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project.
    pub async fn artifacts(&self, project: &str) -> Result<Vec<Artifact>, OperationError> {
        let mut found = self.of(Some(project)).await?;
        found.sort_by_cached_key(|now| {
            (now.status != MeetingStatus::Open, Reverse((now.record.date.clone(), now.started().to_owned())))
        });
        let dir = self.core.home.integration(project);
        let paths = blocking(move || Ok(store::recorded::<Meeting>(&dir).unwrap_or_default())).await?;
        let mut bytes = 0;
        let listed = |now: &Arc<Meeting>| {
            let mut artifact = artifact(now, paths.get(&now.meeting_id))?;
            bytes += artifact.content.len();
            if bytes > PAGE_BYTES {
                artifact.content.clear();
            }
            Ok(artifact)
        };
        found.iter().map(listed).collect()
    }

    /// One meeting, with the conversation as far as it is still stored.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such meeting, or it belongs to another project.
    pub async fn read(&self, id: &str, project: Option<&str>) -> Result<MeetingDetail, OperationError> {
        let found = self.records.find(id, project).await?;
        let now = found.ok_or_else(|| OperationError::NotFound(format!("Meeting not found: {id}")))?.now();
        let lines = match (&now.session, now.worker_name.parse(), self.core.jobs().ok()) {
            (Some(session), Ok(worker), Some(jobs)) => jobs.transcript(&worker, &session.job).await,
            _ => Ok(Vec::new()),
        };
        // The job of a closed meeting can be deleted.
        let (of, lines) = (now.clone(), lines.unwrap_or_default());
        let (transcript, parsed_messages) = blocking(move || {
            let messages = transcript::messages(&lines);
            let text = if messages.is_empty() { String::new() } else { transcript::markdown(&of, &messages) };
            Ok((text, messages.into_iter().map(MeetingMessage::from).collect()))
        })
        .await?;
        Ok(MeetingDetail { meeting: view::meeting(&now), transcript, parsed_messages })
    }

    /// The open meetings of all projects, in the order of their names.
    pub fn sessions(&self) -> Vec<OpenMeetingView> {
        self.all_open().map(|now| view::open_meeting(&now)).collect()
    }

    /// The stored meetings of a project or of all projects, newest first.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project.
    pub async fn of(&self, project: Option<&str>) -> Result<Vec<Arc<Meeting>>, OperationError> {
        self.records.discover(project).await?;
        let is_of = |now: &Arc<Meeting>| project.is_none_or(|project| now.project_name == project);
        let mut found: Vec<_> = self.records.now().filter(is_of).collect();
        found.sort_by(|a, b| b.started().cmp(a.started()));
        Ok(found)
    }
}

/// The record of a meeting, which is at this path in the integration worktree if it exists.
fn artifact(meeting: &Meeting, path: Option<&String>) -> Result<Artifact, OperationError> {
    let path = path.cloned().unwrap_or_else(|| store::record_path::<Meeting>(&meeting.meeting_id));
    let text = meeting.text().map_err(OperationError::Internal)?;
    let last = meeting.record.meeting_log.last().and_then(|entry| entry.timestamp.parse().ok());
    Ok(artifact::document(&path, &text, last.unwrap_or_default()))
}
