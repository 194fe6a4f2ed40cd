//! Defines the requests of a component (`component.grants`), each of which the operator may refuse.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Fault, NAME_BYTES, has_unseen, unseen};
use crate::manifest::check_host;

/// The requests of a component: the `guild:worker` interfaces that it imports, and the extent to which the component
/// and its sessions need them. `{}` requests the least of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct RequestedGrants {
    /// Writes lines into the job's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<PlainRequest>,
    /// Reads, and optionally writes, the member's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryRequest>,
    /// Reads files under the granted roots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<FilesRequest>,
    /// Reaches the web through the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub web: Option<WebRequest>,
    /// Calls the internal tools on this job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_tools: Option<PlainRequest>,
    /// Reads the job's own status record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<PlainRequest>,
    /// Starts agent sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentRequest>,
    /// Bounds the files below `/job/artifacts`. Without it, the operator's limits apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<ArtifactsRequest>,
    /// Writes documents of a project in a commission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lore: Option<WriteRequest>,
    /// Writes files of a project in a commission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worktree: Option<WriteRequest>,
    /// Reads the hall's workers, commissions and meetings, or manages them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hall: Option<HallRequest>,
}

impl RequestedGrants {
    pub(super) fn check(&self) -> Result<(), Fault> {
        let names = [
            ("component.grants.files.roots", self.files.as_ref().map(|files| &files.roots)),
            ("component.grants.web.hosts", self.web.as_ref().map(|web| &web.hosts)),
        ];
        for (field, names) in names {
            for name in names.into_iter().flatten() {
                if name.trim().is_empty() {
                    let why = format!("`{field}` has an empty name; leave the list out to ask for all");
                    return Err(Fault::at(field, why));
                }
                if has_unseen(name) {
                    return Err(Fault::at(field, unseen(field, name)));
                }
                if name.len() > NAME_BYTES {
                    let why = format!("a name in `{field}` has {} bytes, more than {NAME_BYTES}", name.len());
                    return Err(Fault::at(field, why));
                }
            }
        }
        for host in self.web.iter().flat_map(|web| &web.hosts) {
            const HOSTS: &str = "component.grants.web.hosts";
            check_host(host).map_err(|why| Fault::at(HOSTS, format!("`{HOSTS}`: {why}")))?;
            // The word means `web:search` in guild.toml, and in the output of `guild approve`.
            if host.eq_ignore_ascii_case("search") {
                let why =
                    format!("`{HOSTS}` names \"search\", which is not a host; write `\"search\": true` beside it");
                return Err(Fault::at(HOSTS, why));
            }
        }
        let zero = |n: Option<u64>| n == Some(0);
        if self.artifacts.is_some_and(|artifacts| zero(artifacts.bytes) || zero(artifacts.entries)) {
            let why = "`component.grants.artifacts` has a number of 0; write one above 0";
            return Err(Fault::at("component.grants.artifacts", why));
        }
        Ok(())
    }
}

/// A request without details.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("$comment" = "write {} to ask for it"))]
pub struct PlainRequest {}

/// `lore`: the project's `.lore/`, which every worker of a commission can read; `worktree`: the other files that are
/// checked out for the commission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("$comment" = "write {\"write\": true} to ask for writing"))]
pub struct WriteRequest {
    /// Requests permission to write and change files there.
    pub write: bool,
}

/// `hall`: the workers, commissions and meetings of the hall that the host serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend(
    "$comment" = "write {\"read\": true} to ask for reading; the manager asks for {\"manage\": true} too"
))]
pub struct HallRequest {
    /// Requests permission to read the hall.
    pub read: bool,
    /// Requests permission to create commissions, meetings and pull requests, which is granted only to the manager.
    pub manage: bool,
}

/// `memory`: the member's memory, to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("$comment" = "write {} to ask for reading, or {\"write\": true} to store and delete too"))]
pub struct MemoryRequest {
    /// Requests permission to store and delete memories.
    pub write: bool,
}

/// `files`: reading under the granted roots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("$comment" = "write {} to ask for all read roots, or {\"roots\": [\"NAME\"]} for those"))]
pub struct FilesRequest {
    /// The names of the requested roots, with `*` for any characters; an empty list requests all roots.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<String>,
}

/// `web`: the web, through the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("$comment" = "write {\"hosts\": [\"HOST\"]} to ask for these hosts, or {} for all that are opened"))]
pub struct WebRequest {
    /// The requested hosts, as patterns of `[web]`; an empty list requests all hosts that the operator opened.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Requests the use of the search provider.
    pub search: bool,
}

/// `agent`: agent sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(extend(
    "$comment" = "write {} to ask for it, or {\"ownTools\": true} to give sessions tools of your own too"
))]
pub struct AgentRequest {
    /// Requests permission to give sessions the component's own tools.
    pub own_tools: bool,
}

/// `artifacts`: bounds below the operator's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("$comment" = "write {\"bytes\": N, \"entries\": N}, either or both"))]
pub struct ArtifactsRequest {
    /// Bytes of all files of a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Files and directories of a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
}
