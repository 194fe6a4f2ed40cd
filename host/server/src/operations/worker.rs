//! Handles the operations of a worker: the six of REQ-WD-3, and those that only this host has.
//!
//! [`guild_contract::rpc`] describes each of them.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use guild_auth::{Audit, Caller, LARGE, Operation};
use guild_contract::{
    JobId,
    json::parsed_bytes,
    json::schema,
    operation::{self as contract, Row},
    rpc::{
        CancelJob, DeleteJob, DispatchJob, Dispatched, JobList, JobLog, JobResult, JobStatusOf, JobTask, ListJobs,
        ListParams, Listed, ReadJobs, ResultView, ResumeJob, RpcError, code,
    },
    usage::ReadUsage,
};
use guild_jobs::{LOG_BYTES, STATES_BYTES};
use guild_roster::{blocking, members::member::Member, to_json};
use serde_json::Value;

use crate::{
    input::{
        json,
        params::{Params, shown},
    },
    operations::openrpc::{self, Shapes},
};

/// An operation of a worker, with its handler.
pub(crate) struct WorkerMethod {
    pub(crate) row: Row,
    /// The entry in an OpenRPC document.
    pub(crate) describe: fn(&mut Shapes) -> openrpc::Method,
    /// The JSON Schema of the parameters: an object without references.
    pub(crate) input: fn() -> Value,
    run: Handler,
}

/// Carries out a method, and notes the id of its job for the audit log.
type Handler = for<'a> fn(&'a Arc<Member>, &'a Caller, Params, &'a Audit) -> BoxFuture<'a, Result<Bytes, RpcError>>;

pub(crate) static DISPATCH: WorkerMethod = WorkerMethod::of::<DispatchJob>(|member, caller, params, audit| {
    Box::pin(async move { Ok(to_json(&dispatch(member, caller, params, audit).await?)) })
});

pub(crate) static LIST: WorkerMethod = WorkerMethod::of::<ListJobs>(|member, caller, params, _| {
    Box::pin(async move { list(member, caller, params.list()?).await })
});

pub(crate) static JOBS: WorkerMethod = WorkerMethod::of::<ReadJobs>(|member, caller, params, _| {
    Box::pin(async move {
        let params = params.typed()?;
        // The states as values, and as JSON in a growing buffer.
        caller.reserve(3 * STATES_BYTES as u64).await?;
        Ok(to_json(&member.states(params).await?))
    })
});

pub(crate) static USAGE: WorkerMethod = WorkerMethod::of::<ReadUsage>(|member, caller, params, _| {
    Box::pin(async move {
        let params = params.typed()?;
        caller.reserve(USAGE_BYTES).await?;
        Ok(to_json(&member.usage(params).await?))
    })
});

pub(crate) static TASK: WorkerMethod = WorkerMethod::of::<JobTask>(|member, caller, params, audit| {
    Box::pin(async move {
        let limits = caller.limits();
        caller.reserve(COPIES * limits.task_bytes.saturating_add(limits.config_bytes)).await?;
        Ok(to_json(&member.task(&job(params, audit)?).await?))
    })
});

pub(crate) static STATUS: WorkerMethod = WorkerMethod::of::<JobStatusOf>(|member, _, params, audit| {
    Box::pin(async move { member.status(&job(params, audit)?).await })
});

pub(crate) static RESULT: WorkerMethod = WorkerMethod::of::<JobResult>(|member, caller, params, audit| {
    Box::pin(async move { Ok(to_json(&result(member, caller, &job(params, audit)?).await?)) })
});

pub(crate) static LOG: WorkerMethod = WorkerMethod::of::<JobLog>(|member, caller, params, audit| {
    Box::pin(async move {
        let params = params.log()?;
        audit.about(&params.job_id);
        // Two pages and a line of each, as lines and as JSON.
        caller.reserve(COPIES * LOG_BYTES as u64).await?;
        Ok(to_json(&member.log(params).await?))
    })
});

pub(crate) static CANCEL: WorkerMethod = WorkerMethod::of::<CancelJob>(|member, _, params, audit| {
    Box::pin(async move { Ok(to_json(&member.cancel(&job(params, audit)?).await?)) })
});

pub(crate) static DELETE: WorkerMethod = WorkerMethod::of::<DeleteJob>(|member, _, params, audit| {
    Box::pin(async move { Ok(to_json(&member.delete(&job(params, audit)?).await?)) })
});

pub(crate) static RESUME: WorkerMethod = WorkerMethod::of::<ResumeJob>(|member, _, params, audit| {
    Box::pin(async move { Ok(to_json(&member.resume(&job(params, audit)?).await?)) })
});

impl WorkerMethod {
    const fn of<O: contract::Operation>(run: Handler) -> Self {
        Self { row: O::ROW, describe: |shapes| shapes.of_operation::<O>(), input: schema::input::<O::Input>, run }
    }

    /// The operation that the gate checks.
    pub(crate) const fn operation(&self) -> Operation<'static> {
        Operation { name: self.row.name, access: self.row.access }
    }

    /// Carries out the method, and notes the id of its job for the audit log.
    pub(crate) async fn call(
        &self,
        member: &Arc<Member>,
        caller: &Caller,
        params: Result<Params, RpcError>,
        audit: &Audit,
    ) -> Result<Bytes, RpcError> {
        if !member.manifest().is_worker() {
            return Err(RpcError::new(
                code::METHOD_NOT_FOUND,
                format!("Method not found: {}; the member has no capability `worker`", shown(self.row.name)),
            ));
        }
        (self.run)(member, caller, params?, audit).await
    }
}

fn job(params: Params, audit: &Audit) -> Result<String, RpcError> {
    let id = params.job()?;
    audit.about(&id);
    Ok(id)
}

/// The maximum number of copies of a result in memory: as a text, as JSON, as JSON in JSON, as a value, and in growing
/// buffers.
const COPIES: u64 = 8;

/// The most bytes that the sums of `worker/usage` take, as values and as JSON. Its ledgers are read once and dropped.
const USAGE_BYTES: u64 = 4 * 1024 * 1024;

/// Handles `worker/list`, once there is memory for the answer.
pub(crate) async fn list(member: &Member, caller: &Caller, params: ListParams) -> Result<Bytes, RpcError> {
    let store = member.store();
    if let Some(list) = store.list_now(&params) {
        return Ok(list);
    }
    // The list as entries, and as JSON in a growing buffer.
    caller.reserve(store.list_bytes(&params).saturating_mul(3)).await?;
    member.list(params).await
}

/// The jobs of `worker/list`, once there is memory for them.
pub(crate) async fn jobs(member: &Member, caller: &Caller, params: ListParams) -> Result<Vec<Listed>, RpcError> {
    let json = list(member, caller, params).await?;
    caller.reserve(parsed_bytes(&json)).await?;
    let JobList { jobs } = serde_json::from_slice(&json).map_err(|_| RpcError::internal("the list cannot be read"))?;
    Ok(jobs)
}

/// Handles `worker/result`, once there is memory for the answer.
pub(crate) async fn result(member: &Member, caller: &Caller, job: &str) -> Result<ResultView, RpcError> {
    let (store, id) = (member.store().clone(), job.to_owned());
    let read = move |most| match store.result_bytes(&id)? {
        bytes if bytes > most => Ok(Err(bytes)),
        _ => Ok(Ok(store.result(&id)?)),
    };
    within_memory(caller, read, |result| json::string_bytes(&result.output)).await
}

/// Reads data once there is memory for the result made from it. `read`, which may block, gets a maximum of bytes, and
/// fails with the actual size if that is larger; `written` is the size of the result as JSON.
pub(crate) async fn within_memory<T: Send + 'static>(
    caller: &Caller,
    read: impl Fn(u64) -> Result<Result<T, u64>, RpcError> + Send + Sync + 'static,
    written: impl Fn(&T) -> u64,
) -> Result<T, RpcError> {
    let read = Arc::new(read);
    let before = caller.reserved();
    let (mut most, mut ahead) = (LARGE / COPIES, 0);
    let found = loop {
        let read = read.clone();
        match blocking(move || read(most)).await? {
            Ok(found) => break found,
            // Some bytes take more room as JSON, and the data may have grown in the meantime.
            Err(bytes) => most = bytes.saturating_add(bytes / 4),
        }
        let needed = most.saturating_mul(COPIES);
        caller.reserve(needed.saturating_sub(ahead)).await?;
        ahead = needed;
    };
    let needed = written(&found).saturating_mul(COPIES);
    if needed > ahead {
        caller.reserve(needed - ahead).await?;
    } else {
        caller.resize(before.saturating_add(needed), 0)?;
    }
    Ok(found)
}

/// Handles `worker/dispatch`.
pub(crate) async fn dispatch(
    member: &Arc<Member>,
    caller: &Caller,
    params: Params,
    audit: &Audit,
) -> Result<Dispatched, RpcError> {
    let params = params.dispatch()?;
    let audit = audit.clone();
    // The job is logged when it is created, even if its caller has gone away by then.
    let created = move |job: &JobId| {
        audit.about(job.as_str());
        audit.end(None);
    };
    member.dispatch_and(params, caller.token(), created).await
}
