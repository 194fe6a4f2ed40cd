//! Handles the operations on commissions.

use std::sync::Arc;

use guild_contract::{
    OperationError,
    hall::{
        AbandonCommission, AbandonParams, CancelCommission, CancelParams, CheckDependencies, CommissionChanges,
        CommissionCreated, CommissionDetail, CommissionDiff, CommissionDispatched, CommissionFilter, CommissionList,
        CommissionParams, CommissionUpdated, CreateCommission, DiffParams, DispatchCommission, Done, Graph,
        ListCommissions, NewCommission, NoteCommission, NoteParams, Ok as Yes, ProjectParams, ReadCommission,
        ReadCommissionParams, ReadDiff, ReadGraph, RedispatchCommission, UpdateCommission,
    },
};

use super::{Handle, Reply, check_limit};
use crate::{Hall, Requester};

const USER: Requester = Requester::User;

impl Handle for CreateCommission {
    async fn handle(hall: Arc<Hall>, new: NewCommission) -> Result<Reply<CommissionCreated>, OperationError> {
        Ok(hall.commissions.create(new, &USER).await?.into())
    }
}

impl Handle for UpdateCommission {
    async fn handle(hall: Arc<Hall>, changes: CommissionChanges) -> Result<Reply<CommissionUpdated>, OperationError> {
        let CommissionCreated { blocked_by, cut, .. } = hall.commissions.update(changes).await?;
        Ok(CommissionUpdated { status: Yes::Ok, blocked_by, cut }.into())
    }
}

impl Handle for DispatchCommission {
    async fn handle(
        hall: Arc<Hall>,
        CommissionParams { commission_id }: CommissionParams,
    ) -> Result<Reply<CommissionDispatched>, OperationError> {
        Ok(hall.commissions.dispatch(&commission_id, &USER).await?.into())
    }
}

impl Handle for RedispatchCommission {
    async fn handle(
        hall: Arc<Hall>,
        CommissionParams { commission_id }: CommissionParams,
    ) -> Result<Reply<CommissionDispatched>, OperationError> {
        Ok(hall.commissions.redispatch(&commission_id).await?.into())
    }
}

impl Handle for CancelCommission {
    async fn handle(
        hall: Arc<Hall>,
        CancelParams { commission_id, reason }: CancelParams,
    ) -> Result<Reply<Done>, OperationError> {
        hall.commissions.cancel(&commission_id, reason.as_deref(), &USER).await?;
        Ok(Done::default().into())
    }
}

impl Handle for AbandonCommission {
    async fn handle(
        hall: Arc<Hall>,
        AbandonParams { commission_id, reason }: AbandonParams,
    ) -> Result<Reply<Done>, OperationError> {
        hall.commissions.abandon(&commission_id, &reason, &USER).await?;
        Ok(Done::default().into())
    }
}

impl Handle for NoteCommission {
    async fn handle(
        hall: Arc<Hall>,
        NoteParams { commission_id, content }: NoteParams,
    ) -> Result<Reply<Done>, OperationError> {
        hall.commissions.note(&commission_id, &content, &USER).await?;
        Ok(Done::default().into())
    }
}

impl Handle for ListCommissions {
    async fn handle(hall: Arc<Hall>, filter: CommissionFilter) -> Result<Reply<CommissionList>, OperationError> {
        check_limit(filter.limit)?;
        Ok(hall.commissions.list(&filter).await?.into())
    }
}

impl Handle for ReadCommission {
    async fn handle(
        hall: Arc<Hall>,
        ReadCommissionParams { commission_id, project_name }: ReadCommissionParams,
    ) -> Result<Reply<CommissionDetail>, OperationError> {
        Ok(hall.commissions.read(&commission_id, project_name.as_deref()).await?.into())
    }
}

impl Handle for ReadDiff {
    async fn handle(
        hall: Arc<Hall>,
        DiffParams { commission_id, project_name, file }: DiffParams,
    ) -> Result<Reply<CommissionDiff>, OperationError> {
        Ok(hall.commissions.diff(&commission_id, project_name.as_deref(), file.as_deref()).await?.into())
    }
}

impl Handle for CheckDependencies {
    async fn handle(
        hall: Arc<Hall>,
        ProjectParams { project_name }: ProjectParams,
    ) -> Result<Reply<Done>, OperationError> {
        hall.commissions.check_dependencies(Some(&project_name)).await?;
        Ok(Done::default().into())
    }
}

impl Handle for ReadGraph {
    async fn handle(
        hall: Arc<Hall>,
        ProjectParams { project_name }: ProjectParams,
    ) -> Result<Reply<Graph>, OperationError> {
        Ok(hall.commissions.graph(&project_name)?.into())
    }
}
