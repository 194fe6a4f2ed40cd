//! Defines the report on the members of a host, the answer to `GET /members`.
//!
//! Callers read these doc comments in the JSON Schema that is made from these types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// A running host's report on one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberReport {
    /// The member's key.
    pub member: String,
    /// Whether the member is in service.
    pub state: MemberService,
    /// The version of the member in service, from its manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The SHA-256 of the component in service, in lower-case hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The SHA-256 of the manifest in service, in lower-case hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// The bytes of all files in the member's directory. The host measures them every ten minutes.
    #[serde(default, rename = "diskBytes", skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// The toolboxes that the member's jobs need and whose components are still loading: a dispatch waits for them.
    #[serde(default, rename = "toolboxesLoading", skip_serializing_if = "Vec::is_empty")]
    pub toolboxes_loading: Vec<String>,
    /// The reason that the member is not in service; for a `ready` member, the reason that the current contents of its
    /// directory are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The state of a member's service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum MemberService {
    /// The member is in service.
    Ready,
    /// The member's component is loading.
    Loading,
    /// The member is not in service.
    Error,
    /// The member has no component: another process serves it.
    Foreign,
}

impl MemberService {
    /// All states.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
