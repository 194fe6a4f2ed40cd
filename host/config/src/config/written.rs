//! Defines the written form of `guild.toml`.

use std::{collections::BTreeMap, path::PathBuf};

use guild_contract::{Limits, capability::grants::Pattern};
use serde::Deserialize;
use toml::Spanned;

use crate::{
    agents::{WrittenApi, WrittenClaude, WrittenExtractive, WrittenPrice, WrittenScripted, spend::WrittenSpend},
    audit::WrittenAudit,
    cluster::WrittenCluster,
    hall::{WrittenHall, WrittenProject},
    policy::WrittenMember,
    retention::WrittenRetention,
    web::WrittenWeb,
    webhooks::WrittenWebhook,
};

/// The written form of the file. Its keys are checked before, so that errors here are about types and values.
#[derive(Deserialize)]
pub(crate) struct Written {
    /// The directory of members: for `guild serve` without `--members`, for member keys on the command line, and for
    /// the toolboxes of a host that serves one member.
    pub(crate) members: Option<PathBuf>,
    #[serde(default)]
    pub(crate) roots: Vec<WrittenRoot>,
    /// The runtime of agent sessions: `"extractive"`, `"claude"`, `"api"` or `"scripted"`. Default: `"extractive"`.
    pub(crate) agent: Option<Spanned<String>>,
    /// The runtimes that a dispatch may ask for with its `agent`, besides the member's own. Default: `[]`.
    #[serde(default)]
    pub(crate) dispatch_agents: Vec<Spanned<String>>,
    #[serde(default)]
    pub(crate) member: BTreeMap<Pattern, WrittenMember>,
    /// Whether a component that imports an interface without its grant is refused. Otherwise each call of such an
    /// import returns `not-granted`. Default: `false`.
    #[serde(default)]
    pub(crate) strict_imports: bool,
    pub(crate) extractive: Option<WrittenExtractive>,
    pub(crate) claude: Option<Spanned<WrittenClaude>>,
    pub(crate) api: Option<Spanned<WrittenApi>>,
    pub(crate) scripted: Option<WrittenScripted>,
    #[serde(default)]
    pub(crate) prices: Vec<WrittenPrice>,
    pub(crate) web: Option<Spanned<WrittenWeb>>,
    pub(crate) hall: Option<WrittenHall>,
    pub(crate) audit: Option<WrittenAudit>,
    pub(crate) spend: Option<WrittenSpend>,
    pub(crate) retention: Option<WrittenRetention>,
    pub(crate) cluster: Option<Spanned<WrittenCluster>>,
    #[serde(default)]
    pub(crate) project: Vec<WrittenProject>,
    #[serde(default)]
    pub(crate) webhook: Vec<WrittenWebhook>,
    /// Whether a member is loaded only after `guild approve`. Default: `false`.
    #[serde(default)]
    pub(crate) require_approval: bool,
    /// Whether a member is loaded only with a valid signature by a key of `guild.trust`. Default: `false`.
    #[serde(default)]
    pub(crate) require_signature: bool,
    /// Whether a member is loaded for the first time, and approved, only after `guild probe` found no canary of it
    /// where it may not be. Default: `false`.
    #[serde(default)]
    pub(crate) require_probe: bool,
    /// The port to listen on; 0 takes any free port. `--port` takes precedence. Without both, it is 7433.
    pub(crate) port: Option<u16>,
    /// The limits of the host, by the names in the table of limits.
    pub(crate) limits: Option<Spanned<Limits>>,
}

/// A directory that sessions may read, besides those of `--sources`. Each directory has its own table.
#[derive(Deserialize)]
pub(crate) struct WrittenRoot {
    /// The name by which jobs see the directory; by default the directory's own name. It has no `/`, is not `.` or
    /// `..`, and is unique.
    pub(crate) name: Option<Spanned<String>>,
    /// The directory. A relative path starts at the directory of `guild.toml`.
    pub(crate) path: PathBuf,
}
