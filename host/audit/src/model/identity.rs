//! The data of an audit on the identity of a component: name, digest, claims, toolchain and signature.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The component that was audited, with its name and digest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The file, as it was named; a member's, relative to its directory.
    pub file: String,
    /// The kind of bytes in the file.
    pub kind: Kind,
    /// The reason that the bytes cannot be loaded as a component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in lower-case hexadecimal, as `sha256sum` prints it.
    pub sha256: String,
    /// The member's key. None without a manifest, as the three that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The manifest's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The manifest's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The world that the manifest names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<String>,
    /// The claims of the component about itself. Nobody checked them.
    pub claims: Claims,
    /// The tools that made it, as its producers sections say; at most 200.
    pub producers: Vec<Producer>,
    /// The runtimes of languages that its modules link, whatever its producers sections say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtimes: Vec<Runtime>,
    /// The dependency list that cargo-auditable put in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependencies: Option<Dependencies>,
    /// Sections that hold a software bill of materials; at most 20.
    pub sboms: Vec<Sbom>,
    /// The state of the signature, where one was looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
}

/// The kind of bytes in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A WebAssembly component.
    Component,
    /// A core module: it has to be wrapped to be one.
    CoreModule,
    /// A component that was compiled before. A host never loads one from a file.
    Precompiled,
    /// WebAssembly that cannot be read to its end.
    Damaged,
    /// Something else.
    #[default]
    Other,
}

/// The claims of a component about itself, in its name and metadata sections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Claims {
    /// The claimed name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The claimed version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The claimed description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The claimed authors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authors: Option<String>,
    /// The claimed licences, as an SPDX expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub licenses: Option<String>,
    /// The claimed address of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The claimed address of the home page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub homepage: Option<String>,
    /// The revision of its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// A tool that had a part in making it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Producer {
    /// `language`, `processed-by` or `sdk`.
    pub field: String,
    /// The tool.
    pub name: String,
    /// The version of the tool; it may be empty.
    pub version: String,
}

/// The runtime of a language, linked as a library.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// The language.
    pub language: String,
    /// The library, as the modules that import from it spell it.
    pub library: String,
}

/// An embedded dependency list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dependencies {
    /// The section.
    pub section: String,
    /// The number of packages in the list.
    pub total: u64,
    /// The packages, sorted by name; at most 2,000.
    pub packages: Vec<Package>,
    /// The reason that the list could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// One package of a dependency list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Package {
    /// The name of the package.
    pub name: String,
    /// The version of the package.
    pub version: String,
    /// The origin of the package: `crates.io`, `git`, `local`, `registry`.
    pub source: String,
    /// `runtime` or `build`.
    pub kind: String,
}

/// A section with a software bill of materials. It is named, not read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sbom {
    /// The section.
    pub section: String,
    /// `CycloneDX`, `SPDX`, or `unknown`.
    pub form: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// The signature of a member, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Signature {
    /// The outcome of the check.
    pub state: SignatureState,
    /// Whether the operator's policy requires a signature.
    pub required: bool,
    /// The signer, or the reason that the signature does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The outcome of the check of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SignatureState {
    /// The signature is by a key that the operator trusts.
    Valid,
    /// There is none.
    Missing,
    /// There is one, with a key that the operator does not trust: it is unknown whether it holds.
    Unknown,
    /// There is one, and it does not hold.
    Invalid,
}
