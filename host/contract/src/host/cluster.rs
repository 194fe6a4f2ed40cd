//! The state of a cluster of hosts, as each of its hosts sees it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// Result of `guild cluster status --json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    /// The name of the cluster.
    pub name: String,
    /// Its hosts, by name.
    pub hosts: Vec<ClusterHost>,
    /// The jobs that wait or run, by member.
    pub jobs: Vec<ClusterJobs>,
    /// The number of jobs that wait for a host.
    pub waiting: u64,
    /// The time for which the oldest of them has waited; null if none waits.
    pub oldest_waiting_seconds: Option<u64>,
    /// The jobs that the answering host has gone on with after another host had begun them, since it started; null where
    /// no host answers.
    pub takeovers: Option<u64>,
    /// The streams at NATS.
    pub streams: Vec<ClusterStream>,
    /// The settings and components that are not the same at all hosts that are alive.
    pub differences: Vec<ClusterDifference>,
    /// The names of cards that were not written with this cluster's key.
    pub unsealed: Vec<String>,
}

/// A host of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterHost {
    /// The name.
    pub host: String,
    /// Whether it is alive.
    pub state: ClusterHostState,
    /// The seconds since it last refreshed its presence.
    pub silent_seconds: u64,
    /// The host that declared this one dead; null unless it is dead.
    pub dead_by: Option<String>,
    /// The address at which other hosts reach it.
    pub url: String,
    /// The version of its program.
    pub version: String,
    /// The free places of each runtime.
    pub places: BTreeMap<String, u32>,
    /// The members in service.
    pub members: Vec<String>,
    /// Whether it serves the hall.
    pub hall: bool,
}

/// The state of a host of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ClusterHostState {
    /// It refreshes its presence.
    Alive,
    /// It has not refreshed its presence for a while, and will be declared dead.
    Silent,
    /// Another host has declared it dead, and its jobs go to others.
    Dead,
    /// It has left the cluster.
    Left,
}

impl ClusterHostState {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The jobs of a member in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterJobs {
    /// The member's key.
    pub member: String,
    /// The number of its jobs that a host carries out.
    pub running: u64,
    /// The number of its jobs that wait for a host.
    pub waiting: u64,
}

/// A stream at NATS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStream {
    /// The name.
    pub stream: String,
    /// Bytes of its messages.
    pub bytes: u64,
    /// The most bytes; null without a limit.
    pub max_bytes: Option<u64>,
    /// The node that leads it; null in an election, and where there is one node.
    pub leader: Option<String>,
    /// The number of nodes that have it.
    pub replicas: u64,
    /// The nodes that have it and are not up to date.
    pub lagging: Vec<String>,
}

impl ClusterStream {
    /// The part of its limit that it takes, in percent.
    pub fn percent(&self) -> Option<u64> {
        let max = self.max_bytes.filter(|max| *max > 0)?;
        u64::try_from(u128::from(self.bytes) * 100 / u128::from(max)).ok()
    }
}

/// A setting, or a member's component, that is not the same at all hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDifference {
    /// The setting: a key of guild.toml, `version`, a file of the operator's, or `member KEY`.
    pub setting: String,
    /// The groups of hosts that have the same value, the largest first.
    pub groups: Vec<Vec<String>>,
}
