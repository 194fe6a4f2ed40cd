//! Defines the report on the members of a host, as `GET /members` sends it.
//!
//! Callers read these doc comments too, in the JSON Schema that is made from these types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// What a running host says of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberReport {
    /// Its key.
    pub member: String,
    /// Whether it can be worked with.
    pub state: MemberService,
    /// The version of what is in service, as its manifest says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The SHA-256 of the component that is in service, in lower-case hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The SHA-256 of the manifest that it is in service with, in lower-case hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// The toolboxes that its jobs need and whose components are still being loaded: a dispatch waits for them.
    #[serde(default, rename = "toolboxesLoading", skip_serializing_if = "Vec::is_empty")]
    pub toolboxes_loading: Vec<String>,
    /// Why it is not in service; where it is `ready`, why what its directory has now is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Whether a member can be worked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum MemberService {
    /// It is in service.
    Ready,
    /// Its component is being loaded.
    Loading,
    /// It is not in service.
    Error,
    /// It has no component: another process serves it.
    Foreign,
}

impl MemberService {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
