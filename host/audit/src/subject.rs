//! What is audited.

use guild_contract::{
    Bounds, Limits, MemberKey,
    grants::Grants,
    manifest::{ComponentSpec, FILE_NAME, Manifest},
};

use crate::model::Signature;

/// What is to be audited.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The file, as it was named.
    pub file: &'a str,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The member that it belongs to.
    pub member: Option<Member<'a>>,
    /// The limits that hold for it.
    pub limits: &'a Limits,
    /// Its signature, where one was looked for.
    pub signature: Option<&'a Signature>,
}

/// A member, and what it is granted.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Its key.
    pub key: &'a MemberKey,
    /// Its manifest.
    pub manifest: &'a Manifest,
    /// The manifest's `component`.
    pub spec: &'a ComponentSpec,
    /// What became of what it asks for.
    pub grants: &'a Grants,
    /// What its jobs may use at most: the smaller of its manifest and the operator's limits.
    pub bounds: Bounds,
}

/// A key of the manifest, as a finding's place.
pub(crate) fn in_manifest(key: &str) -> String {
    format!("{FILE_NAME}: {key}")
}
