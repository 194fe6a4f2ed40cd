//! Handles the operations on documents, and on issues, which are documents too.

use std::sync::Arc;

use guild_contract::{
    OperationError,
    hall::{
        Artifact, ArtifactKind, Artifacts, CommitDocuments, CommitParams, Committed, CreateIssue, DocumentFilter,
        DocumentParams, FileContent, ImageFacts, Issue, IssueCreated, IssueFilter, IssueList, IssueParams,
        ListDocuments, ListIssues, LoreStatus, NewDocument, NewIssue, ProjectParams, ReadDocument, ReadImage,
        ReadImageFacts, ReadIssue, ReadLoreStatus, ReadMockup, WriteDocument, Written,
    },
};

use super::{Handle, Reply, check_limit};
use crate::{Hall, documents::artifact::ArtifactFile};

/// The default for the most documents in a list of recent ones.
const RECENT: usize = 10;

impl Handle for ListDocuments {
    async fn handle(
        hall: Arc<Hall>,
        DocumentFilter { project_name, recent, limit, offset }: DocumentFilter,
    ) -> Result<Reply<Artifacts>, OperationError> {
        check_limit(limit)?;
        let (mut found, default) = match recent {
            true => (hall.documents.recent(&project_name).await?, RECENT),
            false => (hall.documents.list(&project_name).await?, usize::MAX),
        };
        found.artifacts.drain(..offset.min(found.artifacts.len()));
        let most = limit.unwrap_or(default);
        found.more = found.artifacts.len().saturating_sub(most);
        found.artifacts.truncate(most);
        Ok(found.into())
    }
}

impl Handle for ReadDocument {
    async fn handle(
        hall: Arc<Hall>,
        DocumentParams { project_name, path }: DocumentParams,
    ) -> Result<Reply<Artifact>, OperationError> {
        Ok(hall.documents.read(&project_name, &path).await?.into())
    }
}

impl Handle for WriteDocument {
    async fn handle(
        hall: Arc<Hall>,
        NewDocument { project_name, artifact_path, content }: NewDocument,
    ) -> Result<Reply<Written>, OperationError> {
        hall.documents.write(&project_name, &artifact_path, content).await?;
        Ok(Written { success: true }.into())
    }
}

impl Handle for ReadImage {
    async fn handle(hall: Arc<Hall>, params: DocumentParams) -> Result<Reply<FileContent>, OperationError> {
        Ok(Reply::File(Box::new(file(&hall, &params, ArtifactKind::Image).await?)))
    }
}

impl Handle for ReadMockup {
    async fn handle(hall: Arc<Hall>, params: DocumentParams) -> Result<Reply<FileContent>, OperationError> {
        Ok(Reply::File(Box::new(file(&hall, &params, ArtifactKind::Mockup).await?)))
    }
}

impl Handle for ReadImageFacts {
    async fn handle(hall: Arc<Hall>, params: DocumentParams) -> Result<Reply<ImageFacts>, OperationError> {
        let ArtifactFile { artifact, media_type, bytes } = file(&hall, &params, ArtifactKind::Image).await?;
        Ok(ImageFacts {
            relative_path: artifact.relative_path,
            meta: artifact.meta,
            last_modified: artifact.last_modified,
            file_size: bytes.len(),
            mime_type: media_type.to_owned(),
        }
        .into())
    }
}

async fn file(hall: &Hall, params: &DocumentParams, kind: ArtifactKind) -> Result<ArtifactFile, OperationError> {
    hall.documents.file(&params.project_name, &params.path, kind).await
}

impl Handle for ReadLoreStatus {
    async fn handle(
        hall: Arc<Hall>,
        ProjectParams { project_name }: ProjectParams,
    ) -> Result<Reply<LoreStatus>, OperationError> {
        let file_count = hall.documents.loose(&project_name).await?;
        Ok(LoreStatus { has_pending_changes: file_count > 0, file_count }.into())
    }
}

impl Handle for CommitDocuments {
    async fn handle(
        hall: Arc<Hall>,
        CommitParams { project_name, message }: CommitParams,
    ) -> Result<Reply<Committed>, OperationError> {
        let message = message.trim();
        if message.is_empty() {
            return Err(OperationError::Invalid("Commit message is required".to_owned()));
        }
        let committed = hall.documents.commit(&project_name, message).await?;
        let message = if committed { message } else { "Nothing to commit" }.to_owned();
        Ok(Committed { committed, message }.into())
    }
}

impl Handle for CreateIssue {
    async fn handle(
        hall: Arc<Hall>,
        NewIssue { project_name, title, body }: NewIssue,
    ) -> Result<Reply<IssueCreated>, OperationError> {
        Ok(hall.documents.create_issue(&project_name, &title, &body.unwrap_or_default()).await?.into())
    }
}

impl Handle for ListIssues {
    async fn handle(
        hall: Arc<Hall>,
        IssueFilter { project_name, status }: IssueFilter,
    ) -> Result<Reply<IssueList>, OperationError> {
        Ok(hall.documents.issues(&project_name, status.as_deref()).await?.into())
    }
}

impl Handle for ReadIssue {
    async fn handle(
        hall: Arc<Hall>,
        IssueParams { project_name, slug }: IssueParams,
    ) -> Result<Reply<Issue>, OperationError> {
        Ok(hall.documents.issue(&project_name, &slug).await?.into())
    }
}
