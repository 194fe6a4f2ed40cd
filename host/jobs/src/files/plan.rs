//! Defines the content of `plan.json`: an accepted dispatch, frozen for the life of its job.

use guild_contract::{Bounds, Grants};
use guild_session::activation::Plan;
use serde::{Deserialize, Serialize};

/// An accepted dispatch, frozen for the life of the job: `plan.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// The runtime of the job's sessions.
    pub agent: String,
    /// The built-in tools that its sessions could be given.
    pub granted_tools: Vec<String>,
    /// The grants of its member.
    pub grants: Grants,
    /// The bounds of the job.
    pub ceiling: Bounds,
    /// The way in which it is carried out.
    #[serde(flatten)]
    pub plan: Plan,
}

/// An accepted dispatch as `plan.json` has it.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// The accepted dispatch.
    pub accepted: Accepted,
    /// The sealed text: all fields of the file except `seal`, byte by byte apart from the space between them.
    pub text: Vec<u8>,
    /// The seal that [`Resume::seal`](crate::Resume::seal) made of it when the job was made, if any.
    pub seal: Option<String>,
}
