//! The data of an audit, which every rendering shows and `docs/schema/audit.json` describes.
//!
//! It is the same from run to run: lists are sorted, and nothing depends on the time or the machine. Texts that came
//! with a component are kept as they are but for their length; the code that shows them makes them harmless.

mod abilities;
mod contents;
mod identity;
mod texts;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    change::Change,
    facts::{Fact, FactName},
    flows::{Flow, ReachRow},
};

pub use abilities::{
    Export, ExportState, Function, Import, ImportState, Limit, RequestState, RequestedCapability, SessionTool, Sessions,
};
pub use contents::{Contents, HostPath, Program, Section};
pub use identity::{Claims, Dependencies, Identity, Kind, Package, Producer, Runtime, Sbom, Signature, SignatureState};
pub use texts::{Folded, Hidden, NamedHost, OtherFile, OtherKind, Text, TextKind, UnreadBytes};

/// The name of this form of an audit. It changes when a field goes or changes its meaning; new fields may come.
pub const FORMAT: &str = "guild-audit/2";

/// All that can be said about a component without running it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Audit {
    /// `guild-audit/2`.
    pub format: String,
    /// The component that was audited, with its name and digest.
    pub identity: Identity,
    /// The sections, sizes and traces of its file.
    pub contents: Contents,
    /// The interfaces that it imports, sorted by name; at most 1,000 are listed.
    pub imports: Vec<Import>,
    /// The number of imports.
    pub imports_total: u64,
    /// The exports, sorted by name, with those of its world that are missing; at most 1,000 are listed.
    pub exports: Vec<Export>,
    /// The requests of its manifest, each with the policy's answer. Empty without a manifest.
    pub requested: Vec<RequestedCapability>,
    /// The abilities of its sessions. None without a manifest, or where no work is dispatched to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Sessions>,
    /// The limits that hold for it, sorted by name.
    pub limits: Vec<Limit>,
    /// The sources, ways out, outputs and readers of the member, in words. Empty without a manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reach: Vec<ReachRow>,
    /// The flows of what it reads, those that leave this machine first. Empty without a manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<Flow>,
    /// The texts that models or people will read, or that its data holds: those of the posture and the manifest whole, at
    /// most 400 of data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<Text>,
    /// The texts of its data that are not listed, by the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folded: Vec<Folded>,
    /// The hosts of the addresses that its data has, by name; at most 200.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<NamedHost>,
    /// The bytes of its data that are no text: those that nothing accounts for first, then the largest; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<UnreadBytes>,
    /// The number of places with bytes that are no text.
    #[serde(default)]
    pub unread_total: u64,
    /// The files and links in its directory that are neither manifest, posture nor component; at most 10,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<OtherFile>,
    /// The changes since the version that was trusted, if there is one and something changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// The facts for a reviewer, in the order of their names.
    pub facts: Vec<Fact>,
}

/// The changes since the version of a member that was trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Since {
    /// The version: `approved, 2026-11-02T10:00:00Z`.
    pub version: String,
    /// The changes.
    pub changes: Vec<Change>,
}

impl Audit {
    /// Whether the bytes could be read as a component. Where they could not, only the identity and one fact say
    /// something.
    pub fn is_readable(&self) -> bool {
        self.identity.kind == Kind::Component
    }

    /// Whether there is a fact of this name.
    pub fn has(&self, name: FactName) -> bool {
        self.facts.iter().any(|fact| fact.name == name)
    }

    /// Whether a host refuses the member.
    pub fn is_refused(&self) -> bool {
        self.facts.iter().any(|fact| fact.refused)
    }

    /// The JSON Schema of an audit, as `docs/schema/audit.json` has it.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).into()
    }
}
