//! The methods of a worker, the six of REQ-WD-3, `worker/log` and `worker/resume`, each described once: JSON-RPC, the tools that
//! are these methods, the gate, the audit log and OpenRPC take it from here.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use guild_auth::{Access, Audit, Caller, LARGE, Operation};
use guild_contract::{
    JobId,
    rpc::{
        CancelView, Deleted, DispatchParams, Dispatched, JobList, JobParams, ListParams, LogParams, LogView,
        ResultView, Resumed, RpcError, StatusView, code, method,
    },
};
use guild_roster::{
    blocking,
    member::{LOG_BYTES, Member},
    to_json,
};

use crate::{
    json,
    openrpc::{self, Shapes},
    params::{Params, shown},
};

/// A method of a worker.
pub(crate) struct WorkerMethod {
    pub(crate) name: &'static str,
    pub(crate) access: Access,
    /// Its entry in an OpenRPC document.
    pub(crate) describe: fn(&mut Shapes) -> openrpc::Method,
    run: Handler,
}

/// Carries a method out, and notes for the audit log which job it is about.
type Handler = for<'a> fn(&'a Arc<Member>, &'a Caller, Params, &'a Audit) -> BoxFuture<'a, Result<Bytes, RpcError>>;

pub(crate) static DISPATCH: WorkerMethod = WorkerMethod {
    name: method::DISPATCH,
    access: Access::Dispatches,
    describe: |shapes| {
        shapes.of_worker::<DispatchParams, Dispatched>(
            (method::DISPATCH, "dispatched"),
            "Accepts a task, and answers with the id of its job. The work follows.",
            "A parameter is missing, of the wrong type or too large; or the member refuses the task. The message says \
             which and why.",
        )
    },
    run: |member, caller, params, audit| {
        Box::pin(async move { Ok(to_json(&dispatch(member, caller, params, audit).await?)) })
    },
};

pub(crate) static LIST: WorkerMethod = WorkerMethod {
    name: method::LIST,
    access: Access::Reads,
    describe: |shapes| {
        shapes.of_worker::<ListParams, JobList>(
            (method::LIST, "list"),
            "Lists the member's jobs, newest first.",
            "`detail` is none of its two words, or `filter` is no glob.",
        )
    },
    run: |member, caller, params, _| Box::pin(async move { list(member, caller, params.list()?).await }),
};

pub(crate) static STATUS: WorkerMethod = WorkerMethod {
    name: method::STATUS,
    access: Access::Reads,
    describe: |shapes| {
        shapes.of_worker::<JobParams, StatusView>(
            (method::STATUS, "status"),
            "Tells how a job is getting on, what it asks and decided, why it failed, and what it used.",
            "The member has no such job.",
        )
    },
    run: |member, _, params, audit| Box::pin(async move { member.status(&job(params, audit)?).await }),
};

pub(crate) static RESULT: WorkerMethod = WorkerMethod {
    name: method::RESULT,
    access: Access::Reads,
    describe: |shapes| {
        shapes.of_worker::<JobParams, ResultView>(
            (method::RESULT, "result"),
            "Hands over the result of a completed job.",
            "The member has no such job; or it is running, was cancelled, or failed.",
        )
    },
    run: |member, caller, params, audit| {
        Box::pin(async move { Ok(to_json(&result(member, caller, &job(params, audit)?).await?)) })
    },
};

pub(crate) static LOG: WorkerMethod = WorkerMethod {
    name: method::LOG,
    access: Access::Inspects,
    describe: |shapes| {
        shapes.of_worker::<LogParams, LogView>(
            (method::LOG, "log"),
            "Tells what the sessions of a job did, word by word, and what its component logged, from some place on.",
            "The member has no such job.",
        )
    },
    run: |member, caller, params, audit| {
        Box::pin(async move {
            let params = params.log()?;
            audit.about(&params.job_id);
            // Two pages and a line of each, as lines and as JSON.
            caller.takes(COPIES * LOG_BYTES as u64).await?;
            Ok(to_json(&member.log(params).await?))
        })
    },
};

pub(crate) static CANCEL: WorkerMethod = WorkerMethod {
    name: method::CANCEL,
    access: Access::Ends,
    describe: |shapes| {
        shapes.of_worker::<JobParams, CancelView>(
            (method::CANCEL, "cancelled"),
            "Ends a running job, or gives a failed one up. Says which it is, where it was completed or cancelled before.",
            "The member has no such job.",
        )
    },
    run: |member, _, params, audit| Box::pin(async move { Ok(to_json(&member.cancel(&job(params, audit)?).await?)) }),
};

pub(crate) static DELETE: WorkerMethod = WorkerMethod {
    name: method::DELETE,
    access: Access::Ends,
    describe: |shapes| {
        shapes.of_worker::<JobParams, Deleted>(
            (method::DELETE, "deleted"),
            "Removes a completed or cancelled job, with all its files.",
            "The member has no such job; or it is running; or it failed and was not cancelled.",
        )
    },
    run: |member, _, params, audit| Box::pin(async move { Ok(to_json(&member.delete(&job(params, audit)?).await?)) }),
};

pub(crate) static RESUME: WorkerMethod = WorkerMethod {
    name: method::RESUME,
    access: Access::Dispatches,
    describe: |shapes| {
        shapes.of_worker::<JobParams, Resumed>(
            (method::RESUME, "resumed"),
            "Lets a job on that is held back, as one that was resumed alone when a host ended is.",
            "The member has no such job; or it is not held back.",
        )
    },
    run: |member, _, params, audit| Box::pin(async move { Ok(to_json(&member.resume(&job(params, audit)?).await?)) }),
};

impl WorkerMethod {
    /// What the gate is asked about.
    pub(crate) const fn operation(&self) -> Operation<'static> {
        Operation { name: self.name, access: self.access }
    }

    /// Carries it out, and notes for the audit log which job it is about.
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
                format!("Method not found: {}; the member has no capability `worker`", shown(self.name)),
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

/// How many copies there are of what is being made an answer, at most: as a text, as JSON, as JSON in JSON, as a value, and
/// in buffers that grow.
const COPIES: u64 = 8;

/// `worker/list`, once there is memory for the answer.
pub(crate) async fn list(member: &Member, caller: &Caller, params: ListParams) -> Result<Bytes, RpcError> {
    let store = member.store();
    if let Some(list) = store.list_now(&params) {
        return Ok(list);
    }
    // As entries, and as JSON in a buffer that grows.
    caller.takes(store.list_bytes(&params).saturating_mul(3)).await?;
    member.list(params).await
}

/// `worker/result`, once there is memory for the answer.
pub(crate) async fn result(member: &Member, caller: &Caller, job: &str) -> Result<ResultView, RpcError> {
    let (store, id) = (member.store().clone(), job.to_owned());
    let read = move |most| match store.result_bytes(&id)? {
        bytes if bytes > most => Ok(Err(bytes)),
        _ => Ok(Ok(store.result(&id)?)),
    };
    within_memory(caller, read, |result| json::string_bytes(&result.output)).await
}

/// Reads something once there is memory for the answer that is made of it. `read`, which may block, does so where it has at
/// most so many bytes, and says else how many it has; `written` says how many it has as JSON.
pub(crate) async fn within_memory<T: Send + 'static>(
    caller: &Caller,
    read: impl Fn(u64) -> Result<Result<T, u64>, RpcError> + Send + Sync + 'static,
    written: impl Fn(&T) -> u64,
) -> Result<T, RpcError> {
    let (read, before) = (Arc::new(read), caller.held());
    let (mut most, mut ahead) = (LARGE / COPIES, 0);
    let found = loop {
        let read = read.clone();
        match blocking(move || read(most)).await? {
            Ok(found) => break found,
            // Some of it is written with more bytes; and it may have grown since.
            Err(bytes) => most = bytes.saturating_add(bytes / 4),
        }
        let needed = most.saturating_mul(COPIES);
        caller.takes(needed.saturating_sub(ahead)).await?;
        ahead = needed;
    };
    let needed = written(&found).saturating_mul(COPIES);
    if needed > ahead {
        caller.takes(needed - ahead).await?;
    } else {
        caller.holds(before.saturating_add(needed))?;
    }
    Ok(found)
}

/// `worker/dispatch`.
pub(crate) async fn dispatch(
    member: &Arc<Member>,
    caller: &Caller,
    params: Params,
    audit: &Audit,
) -> Result<Dispatched, RpcError> {
    let params = params.dispatch()?;
    let audit = audit.clone();
    // The job is written down with its beginning, also where its caller has gone away by then.
    let created = move |job: &JobId| {
        audit.about(job.as_str());
        audit.end(None);
    };
    member.dispatch_and(params, caller.token(), created).await
}
