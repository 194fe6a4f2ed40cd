//! The parts of a member, each of which is a layer of an artifact.

use guild_contract::{
    Limits,
    manifest::{FILE_NAME, MANIFEST_BYTES, POSTURE, POSTURE_BYTES, SIGNATURE_BYTES, SIGNATURE_SUFFIX, package},
};

/// The type of the artifacts.
pub(crate) const ARTIFACT_TYPE: &str = "application/vnd.guild.member.v1";
/// The type of the configs of these artifacts.
pub(crate) const CONFIG_TYPE: &str = "application/vnd.guild.member.config.v1+json";
/// The type of the config of an artifact that is one WebAssembly file.
pub(crate) const WASM_CONFIG_TYPE: &str = "application/vnd.wasm.config.v0+json";
/// The most bytes of a software bill of materials.
const SBOM_BYTES: u64 = 16 * 1024 * 1024;

/// A part of a member: one file, and one layer of an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The component.
    Component,
    /// `guild-member.json`.
    Manifest,
    /// `package.json`, if it declares the member.
    Package,
    /// `posture.md`.
    Posture,
    /// The signature beside the component.
    Signature,
    /// `sbom.cdx.json`: the bill of materials in CycloneDX's format.
    CycloneDx,
    /// `sbom.spdx.json`: the bill of materials in SPDX's format.
    Spdx,
}

impl Part {
    /// All parts, in the order of an artifact's layers.
    pub const ALL: [Self; 7] =
        [Self::Component, Self::Manifest, Self::Package, Self::Posture, Self::Signature, Self::CycloneDx, Self::Spdx];

    /// The media type of the layer.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Component => "application/wasm",
            Self::Manifest => "application/vnd.guild.member.manifest.v1+json",
            Self::Package => "application/vnd.guild.member.package.v1+json",
            Self::Posture => "application/vnd.guild.member.posture.v1+markdown",
            Self::Signature => "application/vnd.guild.member.signature.v1+minisign",
            Self::CycloneDx => "application/vnd.cyclonedx+json",
            Self::Spdx => "application/spdx+json",
        }
    }

    /// The part with a media type.
    pub(crate) fn of_type(media_type: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.media_type() == media_type)
    }

    /// The name of the file, for a member whose component has the name `component`.
    pub(crate) fn file(self, component: &str) -> String {
        match self {
            Self::Component => component.to_owned(),
            Self::Manifest => FILE_NAME.to_owned(),
            Self::Package => package::FILE_NAME.to_owned(),
            Self::Posture => POSTURE.to_owned(),
            Self::Signature => format!("{component}{SIGNATURE_SUFFIX}"),
            Self::CycloneDx => "sbom.cdx.json".to_owned(),
            Self::Spdx => "sbom.spdx.json".to_owned(),
        }
    }

    /// The most bytes of the file.
    pub(crate) fn max_bytes(self, limits: &Limits) -> u64 {
        match self {
            Self::Component => limits.component_bytes,
            Self::Manifest | Self::Package => MANIFEST_BYTES,
            Self::Posture => POSTURE_BYTES,
            Self::Signature => SIGNATURE_BYTES,
            Self::CycloneDx | Self::Spdx => SBOM_BYTES,
        }
    }
}
