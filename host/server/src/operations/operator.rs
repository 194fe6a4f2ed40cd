//! Handles the operations on the host itself, at `/host/mcp`: its checks, its limits, and its audit log.
//!
//! [`guild_contract::host`] describes each of them. Only callers with all members and all methods reach them.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use guild_auth::{Audit, Caller, Operation, TailError};
use guild_contract::{
    Limits, MemberKey,
    host::{
        ApproveMember, ApproveParams, Check, CheckHost, DoctorView, ForgetMemory, ForgetParams, LimitNow, LimitsView,
        MemberDone, MemberParams, ReadAudit, ReadCluster, ReadLimits, ReadMember,
    },
    operation as contract,
    rpc::RpcError,
    text::{LOGGED_CHARS, one_line},
};
use guild_roster::{audit::READ_BYTES, blocking, check::doctor::examine, host::Host, to_json};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::{
    input::params::Params,
    operations::openrpc::{self, Shapes},
};

/// The bytes that a page of the audit log takes: as it is read, as lines, and as JSON.
const AUDIT_BYTES: u64 = 4 * 1024 * 1024;
/// The bytes that the state of a cluster takes, as JSON.
const CLUSTER_BYTES: u64 = 1024 * 1024;
/// The bytes that a member takes: as it is read, and as JSON.
const MEMBER_BYTES: u64 = 8 * 1024 * 1024;

/// A check starts other programs and reads directories, so a host runs one at a time.
static CHECKING: Semaphore = Semaphore::const_new(1);

/// An operation on the host, with its handler.
pub(crate) struct HostMethod {
    /// The operation that the gate checks.
    pub(crate) operation: Operation<'static>,
    /// The entry in an OpenRPC document.
    pub(crate) describe: fn(&mut Shapes) -> openrpc::Method,
    pub(crate) run: Handler,
}

/// Carries out a method.
type Handler = for<'a> fn(&'a Arc<Host>, &'a Caller, Params, &'a Audit) -> BoxFuture<'a, Result<Bytes, RpcError>>;

impl HostMethod {
    const fn of<O: contract::Operation>(run: Handler) -> Self {
        let operation = Operation { name: O::ROW.name, access: O::ROW.access };
        Self { operation, describe: |shapes| shapes.of_operation::<O>(), run }
    }
}

pub(crate) static DOCTOR: HostMethod = HostMethod::of::<CheckHost>(|host, _, _, _| {
    Box::pin(async move {
        let busy = |_| RpcError::busy("the host is being checked for another caller; try again in a moment");
        let _one = CHECKING.try_acquire().map_err(busy)?;
        let examination = host.examination();
        let config = examination.config.file.as_ref().map(|file| file.display().to_string());
        let checks = examine(examination, |_| ()).await;
        let usable = !checks.iter().any(Check::is_missing);
        Ok(to_json(&DoctorView { config, usable, checks }))
    })
});

pub(crate) static LIMITS: HostMethod = HostMethod::of::<ReadLimits>(|host, _, _, _| {
    Box::pin(async move {
        let host = host.clone();
        blocking(move || Ok(to_json(&limits(&host)))).await
    })
});

pub(crate) static CLUSTER: HostMethod = HostMethod::of::<ReadCluster>(|host, caller, _, _| {
    Box::pin(async move {
        caller.reserve(CLUSTER_BYTES).await?;
        let none = || RpcError::invalid_params("the host is in no cluster: its guild.toml has no [cluster]");
        Ok(to_json(&host.cluster().await.ok_or_else(none)?))
    })
});

pub(crate) static AUDIT: HostMethod = HostMethod::of::<ReadAudit>(|host, caller, params, _| {
    Box::pin(async move {
        let (host, params) = (host.clone(), params.typed()?);
        caller.reserve(AUDIT_BYTES).await?;
        let read = move || {
            host.ingress().audit_page(&params).map_err(|error| match error {
                TailError::Invalid(why) => RpcError::invalid_params(why),
                error @ TailError::Unreadable { .. } => RpcError::internal(error.to_string()),
            })
        };
        Ok(to_json(&blocking(read).await?))
    })
});

pub(crate) static MEMBER: HostMethod = HostMethod::of::<ReadMember>(|host, caller, params, _| {
    Box::pin(async move {
        let (host, MemberParams { member, audit }) = (host.clone(), params.typed()?);
        // The component is read whole for its hash. An audit reads the other files of the directory, too.
        let others = if audit { READ_BYTES as u64 } else { 0 };
        caller.reserve(MEMBER_BYTES.saturating_add(others).saturating_add(caller.limits().component_bytes)).await?;
        Ok(to_json(&blocking(move || host.inspect_member(&member, audit)).await?))
    })
});

pub(crate) static APPROVE: HostMethod = HostMethod::of::<ApproveMember>(|host, caller, params, audit| {
    Box::pin(async move {
        let (host, caller): (_, Caller) = (host.clone(), caller.clone());
        let params: ApproveParams = params.typed()?;
        if let Ok(member) = params.member.parse::<MemberKey>() {
            audit.of(&format!("{member}, sha256 {}", one_line(&params.sha256, LOGGED_CHARS)));
        }
        blocking(move || {
            host.approve_member(&params, caller.who())?;
            Ok(to_json(&MemberDone { member: params.member }))
        })
        .await
    })
});

pub(crate) static FORGET: HostMethod = HostMethod::of::<ForgetMemory>(|host, _, params, audit| {
    Box::pin(async move {
        let (host, ForgetParams { member, key }) = (host.clone(), params.typed()?);
        if let Ok(member) = member.parse::<MemberKey>() {
            audit.of(&format!("{member}, memory {}", one_line(&key, LOGGED_CHARS)));
        }
        blocking(move || {
            host.forget_memory(&member, &key)?;
            Ok(to_json(&MemberDone { member }))
        })
        .await
    })
});

/// All limits in force. It blocks while the ledger of costs is read.
fn limits(host: &Host) -> LimitsView {
    let values = |limits: &Limits| serde_json::to_value(limits).unwrap_or_default();
    let value = |all: &Value, name: &str| all.get(name).cloned().unwrap_or_default();
    let (now, usual, in_use) = (values(&host.limits()), values(&Limits::default()), host.limits_in_use());
    let limits = Limits::ALL.iter().map(|limit| LimitNow {
        name: limit.name.to_owned(),
        about: limit.about.trim().to_owned(),
        value: value(&now, limit.name),
        default: value(&usual, limit.name),
        in_use: in_use.iter().find(|(name, _)| *name == limit.name).map(|(_, amount)| *amount),
        setting: limit.setting,
    });
    let (spent, cap) = host.ingress().spent_today();
    LimitsView { limits: limits.collect(), spent_today_usd: spent.ok(), host_usd_per_day: cap }
}
