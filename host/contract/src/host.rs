//! Defines the operations on the host itself, for its operator: checks, limits, and the audit log.
//!
//! Callers read these doc comments in the JSON Schemas that are made from these types.

pub mod cluster;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::IntoStaticStr;

use crate::{
    limits::Setting,
    operation::{Access, Operation, Row},
};

/// The most lines in an answer to `host/audit`.
pub const AUDIT_PAGE: u32 = 200;

/// Parameters of `host/doctor` and `host/limits`, which have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoParams {}

/// Result of `host/doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorView {
    /// The guild.toml in use; null if there is none.
    pub config: Option<String>,
    /// Whether everything that is needed is usable.
    pub usable: bool,
    /// The results, in the order of `guild doctor`.
    pub checks: Vec<Check>,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// The kind of the checked part.
    pub kind: CheckKind,
    /// The name of the checked part.
    pub name: String,
    /// Whether it is usable.
    pub state: CheckState,
    /// Whether jobs of this host need it.
    pub needed: bool,
    /// A description of the part; or the reason that it is not usable, and the thing to install or to set.
    pub detail: String,
}

/// A kind of part that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum CheckKind {
    /// A runtime of agent sessions.
    Runtime,
    /// A key of a provider.
    Key,
    /// The directories that sessions may read.
    Sources,
    /// Pages of the web.
    Web,
    /// The search provider.
    Search,
    /// The programs that work in projects and make pull requests.
    Git,
    /// The hall: its home, its list of projects, its members, its manager.
    Hall,
    /// A project of the hall.
    Project,
    /// The caps on the dollars spent in a day.
    Spend,
    /// The access to the host.
    Auth,
    /// A member, and its component.
    Member,
    /// The cluster of hosts: NATS servers, streams, and differences between hosts.
    Cluster,
    /// A running host.
    Host,
}

impl CheckKind {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The state of a checked part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// It is usable.
    Usable,
    /// It is not usable.
    Unusable,
    /// It is not configured.
    Off,
    /// It runs with other options than it would have if it were started now.
    Differs,
}

impl Check {
    /// A check of a part that is usable, with a description, or unusable, with the reason.
    pub fn new(kind: CheckKind, name: impl fmt::Display, needed: bool, found: Result<String, String>) -> Self {
        let (state, detail) = match found {
            Ok(detail) => (CheckState::Usable, detail),
            Err(why) => (CheckState::Unusable, why),
        };
        Self { kind, name: name.to_string(), state, needed, detail }
    }

    /// A check of a part that is not configured.
    pub fn off(kind: CheckKind, name: impl fmt::Display, detail: impl Into<String>) -> Self {
        Self { kind, name: name.to_string(), state: CheckState::Off, needed: false, detail: detail.into() }
    }

    /// A check of a host that runs with other options than it would have if it were started now.
    pub fn differs(kind: CheckKind, name: impl fmt::Display, detail: impl Into<String>) -> Self {
        Self { state: CheckState::Differs, ..Self::off(kind, name, detail) }
    }

    /// Whether jobs would fail because of it.
    pub fn is_missing(&self) -> bool {
        self.needed && self.state == CheckState::Unusable
    }

    /// The state in a word: an unusable part that jobs need is missing.
    pub fn word(&self) -> &'static str {
        match self.state {
            CheckState::Usable => "usable",
            CheckState::Unusable if self.needed => "missing",
            CheckState::Unusable => "unusable",
            CheckState::Off => "off",
            CheckState::Differs => "differs",
        }
    }
}

/// Result of `host/limits`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitsView {
    /// All limits.
    pub limits: Vec<LimitNow>,
    /// The dollars that were spent today, in UTC, by all hosts with this guild.toml; null if the ledger cannot be read.
    pub spent_today_usd: Option<f64>,
    /// The cap on these dollars, `host_usd_per_day` in `[spend]`; null if there is none.
    pub host_usd_per_day: Option<f64>,
}

/// A limit in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitNow {
    /// The name, as `[limits]` of guild.toml spells it.
    pub name: String,
    /// The bounded quantity.
    pub about: String,
    /// The value: a number.
    pub value: Value,
    /// The value without a guild.toml.
    pub default: Value,
    /// The amount in use now; absent if that is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub in_use: Option<u64>,
    /// The way to set it.
    pub setting: Setting,
}

/// Parameters of `host/audit`. Each filter is the whole text of its field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditParams {
    /// The member of the wanted lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The actor of the wanted lines, such as `token:ci`; the name of a token is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// The event or the method of the wanted lines, such as `token-added` or `worker/dispatch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// The outcome of the wanted lines, such as `forbidden`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The most lines in the answer, from 1 to 200; 50 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 200))]
    pub limit: Option<u32>,
    /// The position to read from, towards older lines: `next` of an earlier answer. The default is the newest line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

/// Result of `host/audit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditView {
    /// The path of the audit log; null if the host has none.
    pub file: Option<String>,
    /// The matching lines, newest first.
    pub lines: Vec<AuditLine>,
    /// The position for the next request; null at the oldest line. An answer ends after 4 MiB of the log were read, so
    /// it can have no lines and a position.
    pub next: Option<String>,
}

/// A line of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AuditLine {
    /// The time: RFC 3339 in UTC.
    pub time: String,
    /// The kind of event.
    pub event: String,
    /// The actor: `host`, `local`, `unknown`, `token:NAME`, or `user:ID`.
    pub who: String,
    /// The outcome.
    pub outcome: String,
    /// The origin of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The code of the JSON-RPC error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The status of the HTTP response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Further details.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The number of lines before this one that could not be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// The number of refusals before this one that were left out because of their rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suppressed: Option<u64>,
}

impl AuditParams {
    /// Whether a line is wanted.
    pub fn matches(&self, line: &AuditLine) -> bool {
        let is = |wanted: &Option<String>, found: &[Option<&str>]| {
            wanted.as_deref().is_none_or(|wanted| found.contains(&Some(wanted)))
        };
        is(&self.member, &[line.member.as_deref()])
            && is(&self.who, &[Some(&line.who), line.who.strip_prefix("token:")])
            && is(&self.event, &[Some(&line.event), line.method.as_deref()])
            && is(&self.outcome, &[Some(&line.outcome)])
    }
}

/// Parameters of `host/member`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberParams {
    /// The member's key.
    pub member: String,
    /// Whether the answer has the audit of the member, which reads the whole component; false by default.
    #[serde(default)]
    pub audit: bool,
}

/// Result of `host/member`: what a member is, as its directory has it now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemberDetail {
    /// The member's key.
    pub member: String,
    /// The manifest, as the file has it; and `package.json`, if that declares the member too.
    pub manifest: String,
    /// The posture; null if there is none.
    pub posture: Option<String>,
    /// The requests of the manifest, with the operator's answers.
    pub requests: Vec<RequestView>,
    /// The limits that are lower than those of the host.
    pub limits: Vec<MemberLimit>,
    /// Whether the host trusts the member; null if it has no component.
    pub trust: Option<TrustView>,
    /// The reason that this cannot be said; null if it can.
    pub trust_error: Option<String>,
    /// The last `guild probe` of the present files; null if they were not probed.
    pub probe: Option<ProbeView>,
    /// The memories of the member's own, sorted by key.
    pub memories: Vec<MemoryView>,
    /// The result of `guild audit` for the member; null if it was not asked for, or cannot be made.
    pub audit: Option<AuditSummary>,
    /// The reason that there is no audit, though it was asked for; null otherwise.
    pub audit_error: Option<String>,
}

/// The last probe of a member's files, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeView {
    /// The time of the probe: RFC 3339 in UTC.
    pub at: String,
    /// The SHA-256 of the component that was probed.
    pub sha256: String,
    /// Whether a model took part that did what texts told it.
    pub obedient: bool,
    /// The number of findings of each kind.
    pub findings: Vec<FindingsView>,
}

/// The findings of one kind of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FindingsView {
    /// The kind: `canary`, `unexpected-request`, `difference`, `planted-file`, `active-artifact` or `unknown-text`.
    pub kind: String,
    /// The kind in words, in the plural.
    pub what: String,
    /// Their number.
    pub count: u64,
}

/// The result of an audit, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditSummary {
    /// What the member reads, where that can go, what it writes, and who reads its texts.
    pub reach: Vec<ReachView>,
    /// The places that data can go to: those that leave this machine first.
    pub flows: Vec<FlowView>,
    /// The facts for a reviewer.
    pub facts: Vec<FactView>,
}

/// What a member can reach, on one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReachView {
    /// The subject: `reads`, `can send to`, `writes` or `is read by`.
    pub label: String,
    /// What there is.
    pub items: Vec<String>,
}

/// A place that data of a member can go to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowView {
    /// The place, with the members by way of which data gets there, and with what the operator has to do first.
    pub to: String,
    /// Whether it is outside of this machine.
    pub leaves: bool,
    /// Whether anybody can be reached there: any host, or a host that passes on what it is sent.
    pub relay: bool,
    /// What the member reads that can go there.
    pub from: Vec<String>,
}

/// A fact of an audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FactView {
    /// The name, such as `hidden-text`.
    pub name: String,
    /// The place: an import, a key of the manifest, a section.
    pub place: String,
    /// What it is.
    pub text: String,
    /// Whether the host refuses the member for it.
    pub refused: bool,
}

/// A request of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestView {
    /// The capability, or the tool of sessions.
    pub name: String,
    /// Whether it is granted.
    pub granted: bool,
    /// The reason that it is denied; null if it is granted.
    pub why: Option<String>,
}

/// A limit of a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemberLimit {
    /// The name, as `[limits]` of guild.toml spells it.
    pub name: String,
    /// The value: a number.
    pub value: Value,
}

/// Whether a host trusts a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrustView {
    /// How it was trusted, such as `approved` or `first-use`; else `new` or `changed`.
    pub state: String,
    /// Whether it matches what is trusted.
    pub trusted: bool,
    /// The SHA-256 of the component.
    pub sha256: String,
    /// The SHA-256 of the manifest; null if there is none but in `package.json`.
    pub manifest: Option<String>,
    /// The SHA-256 of `package.json`; null if it declares nothing.
    pub package: Option<String>,
    /// The SHA-256 of the posture; null if there is none.
    pub posture: Option<String>,
    /// The changes since it was trusted: a line for each removed (`-`) and added (`+`) fact.
    pub difference: Vec<String>,
}

/// A memory of a member's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryView {
    /// The key.
    pub key: String,
    /// The text.
    pub content: String,
    /// The time at which it was written: RFC 3339 in UTC.
    pub modified: String,
}

/// Parameters of `host/approve`: what is approved, by the hashes that `host/member` returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApproveParams {
    /// The member's key.
    pub member: String,
    /// The SHA-256 of the component.
    pub sha256: String,
    /// The SHA-256 of the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// The SHA-256 of `package.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// The SHA-256 of the posture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub posture: Option<String>,
}

/// Parameters of `host/forget`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForgetParams {
    /// The member's key.
    pub member: String,
    /// The key of the memory.
    pub key: String,
}

/// Result of `host/approve` and `host/forget`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberDone {
    /// The member's key.
    pub member: String,
}

/// Reads what a member is.
#[derive(Debug)]
pub struct ReadMember;

impl Operation for ReadMember {
    type Input = MemberParams;
    type Output = MemberDetail;
    const ROW: Row = Row::new(
        "host/member",
        Access::Inspects,
        "Returns a member's manifest, posture, grants, own limits and memories, and whether the host trusts it, with the \
         difference from what it trusts.",
    )
    .refuses("The host has no such member.");
}

/// Approves a member.
#[derive(Debug)]
pub struct ApproveMember;

impl Operation for ApproveMember {
    type Input = ApproveParams;
    type Output = MemberDone;
    const ROW: Row = Row::new(
        "host/approve",
        Access::Approves,
        "Approves the present state of a member, as `guild approve` does: from now on only that state is loaded.",
    )
    .refuses("The host has no such member; or the hashes are not those of its present state.");
}

/// Removes a memory.
#[derive(Debug)]
pub struct ForgetMemory;

impl Operation for ForgetMemory {
    type Input = ForgetParams;
    type Output = MemberDone;
    const ROW: Row = Row::new("host/forget", Access::Approves, "Removes a memory of a member's own.")
        .refuses("The host serves no such member, or it has no such memory.");
}

/// Checks the host.
#[derive(Debug)]
pub struct CheckHost;

impl Operation for CheckHost {
    type Input = NoParams;
    type Output = DoctorView;
    const ROW: Row = Row::new(
        "host/doctor",
        Access::Inspects,
        "Runs the checks of `guild doctor` for this host: its runtimes, keys, read roots, web, projects, access and \
         members. No provider is asked.",
    );
}

/// Reads the limits.
#[derive(Debug)]
pub struct ReadLimits;

impl Operation for ReadLimits {
    type Input = NoParams;
    type Output = LimitsView;
    const ROW: Row = Row::new(
        "host/limits",
        Access::Inspects,
        "Returns all limits in force, with what is in use now where that is counted.",
    );
}

/// Reads the state of the cluster.
#[derive(Debug)]
pub struct ReadCluster;

impl Operation for ReadCluster {
    type Input = NoParams;
    type Output = cluster::ClusterView;
    const ROW: Row = Row::new(
        "host/cluster",
        Access::Inspects,
        "Returns the state of the host's cluster as the host sees it: hosts, jobs, streams, and differences between \
         hosts.",
    )
    .refuses("The host is in no cluster.");
}

/// Reads the audit log.
#[derive(Debug)]
pub struct ReadAudit;

impl Operation for ReadAudit {
    type Input = AuditParams;
    type Output = AuditView;
    const ROW: Row = Row::new(
        "host/audit",
        Access::Inspects,
        "Returns lines of the audit log, newest first, page by page, also of rotated files.",
    )
    .refuses("`limit` is not from 1 to 200; or `before` is not from this log, or its file was removed.");
}
