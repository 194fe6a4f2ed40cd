//! The data of an audit, which every rendering shows and `docs/schema/audit.json` describes.
//!
//! It is the same from run to run: lists are sorted, and nothing depends on the time or the machine. Texts that came
//! with a component are kept as they are but for their length; the code that shows them makes them harmless.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    change::Change,
    facts::{Fact, FactName},
    flows::{Flow, ReachRow},
};

/// The name of this form of an audit. It changes when a field goes or changes its meaning; new fields may come.
pub const FORMAT: &str = "guild-audit/2";

/// All that can be said about a component without running it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Audit {
    /// `guild-audit/2`.
    pub format: String,
    /// What was looked at.
    pub identity: Identity,
    /// What it is made of.
    pub contents: Contents,
    /// What it needs from the host, sorted by name; at most 1,000 are listed.
    pub imports: Vec<Import>,
    /// How many imports there are.
    pub imports_total: u64,
    /// What it offers, sorted by name, and what its world has and it does not; at most 1,000 are listed.
    pub exports: Vec<Export>,
    /// What its manifest asks for, and what became of each request. Empty without a manifest.
    pub requested: Vec<RequestedCapability>,
    /// What its sessions may do. None without a manifest, or where no work is dispatched to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Sessions>,
    /// The limits that hold for it, sorted by name.
    pub limits: Vec<Limit>,
    /// What it can read, where that can go, what it writes and whom its texts reach, in words. Empty without a manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reach: Vec<ReachRow>,
    /// Where something that it reads can go: what leaves this machine first. Empty without a manifest.
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
    /// How many such places there are.
    #[serde(default)]
    pub unread_total: u64,
    /// The files and links in its directory that are neither manifest, posture nor component; at most 10,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<OtherFile>,
    /// What differs from the version that was trusted, where there is one and something does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// What a reviewer should know, in the order of the names.
    pub facts: Vec<Fact>,
}

/// What differs from the version of a member that was trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Since {
    /// Which version that is: `approved, 2026-11-02T10:00:00Z`.
    pub version: String,
    /// What differs.
    pub changes: Vec<Change>,
}

/// A text that models or people will read, or that data holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Text {
    /// What kind of text it is.
    pub kind: TextKind,
    /// Where it stands: a file, a key of the manifest, an offset in the component.
    pub place: String,
    /// The bytes of the whole.
    pub bytes: u64,
    /// The text, with characters that are not shown written as `<U+202E>`, and, unless it is of data, with `·` and `→` for
    /// the blanks and tabs at the end of a line.
    pub text: String,
    /// The bytes that are not shown here; `guild audit --texts=PLACE` shows them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left: u64,
    /// What it has that is not seen, counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<Hidden>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Text {
    /// Whether a text at `place` is meant by `asked`, which is the beginning of a place.
    pub fn is_at(place: &str, asked: &str) -> bool {
        place.starts_with(asked)
    }
}

/// What a text is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TextKind {
    /// The posture: a part of the prompts of its sessions.
    Posture,
    /// A key of the manifest.
    Manifest,
    /// What a tool of its says of itself.
    Tool,
    /// A memory that came along.
    Memory,
    /// A text in the data of its component; source code too.
    Data,
}

/// Characters of a text that are not seen as what they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hidden {
    /// What one is: `a character that is not shown`.
    pub what: String,
    /// How many there are.
    pub count: u64,
}

/// Texts of data that are not listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Folded {
    /// What they are: `lines of CPython, ...`, `runs of fewer than four words`.
    pub what: String,
    /// How many there are.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A host of an address in data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedHost {
    /// Its name, or its address.
    pub host: String,
    /// The address as it stands there first.
    pub shown: String,
    /// Where it stands first.
    pub place: String,
    /// Whether the manifest asks for it.
    pub asked: bool,
    /// Why what is sent there can reach anybody, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<String>,
}

/// Bytes of data that are no text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnreadBytes {
    /// Where they begin.
    pub place: String,
    /// How many they are.
    pub bytes: u64,
    /// What they are: `numbers`, `base64`, `hexadecimal`, `dense bytes`, `a PNG picture`.
    pub kind: String,
    /// Their entropy, in bits a byte.
    pub entropy: f64,
    /// The first of them, in hexadecimal.
    pub begins: String,
    /// Whether their form says what they are.
    pub accounted: bool,
}

/// A file or link in a member's directory that is neither manifest, posture nor component.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct OtherFile {
    /// Its path in the directory.
    pub path: String,
    /// What it is.
    pub kind: OtherKind,
    /// Its bytes; none of a link or a directory.
    pub bytes: u64,
}

/// What a file is that stands next to a member's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OtherKind {
    /// A WebAssembly file.
    Wasm,
    /// A program or a script, or a file that may be executed.
    Program,
    /// A private key.
    PrivateKey,
    /// A symbolic link to something in the directory.
    Link,
    /// A symbolic link that leads out of the directory, or nowhere.
    LinkOut,
    /// Neither a file, a link nor a directory.
    Special,
    /// A text.
    Text,
    /// Some other file.
    Other,
}

/// What was looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The file, as it was named; a member's, relative to its directory.
    pub file: String,
    /// What its bytes are.
    pub kind: Kind,
    /// What is wrong with the bytes, where they are no component that can be loaded.
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
    /// What the component says of itself. Nobody checked it.
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
    /// Its signature, where one was looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
}

/// What a file's bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A WebAssembly component.
    Component,
    /// A core module: it has to be wrapped to be one.
    CoreModule,
    /// A component that was compiled before. A host never loads one from a file.
    Precompiled,
    /// It begins as WebAssembly does, and cannot be read to its end.
    Damaged,
    /// Something else.
    #[default]
    Other,
}

/// What a component says of itself, in its name and metadata sections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Claims {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Who made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authors: Option<String>,
    /// Its licences, as an SPDX expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub licenses: Option<String>,
    /// Where its source is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Its page.
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
    /// Its version; it may be empty.
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
    /// How many packages it lists.
    pub total: u64,
    /// The packages, sorted by name; at most 2,000.
    pub packages: Vec<Package>,
    /// Why it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// One package of a dependency list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Where it comes from: `crates.io`, `git`, `local`, `registry`.
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

/// What is known of a member's signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Signature {
    /// What came of looking.
    pub state: SignatureState,
    /// Whether the operator's policy wants one.
    pub required: bool,
    /// Who signed, or why the signature does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What came of looking for a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SignatureState {
    /// It is signed with a key that the operator trusts.
    Valid,
    /// There is none.
    Missing,
    /// There is one, with a key that the operator does not trust: it is unknown whether it holds.
    Unknown,
    /// There is one, and it does not hold.
    Invalid,
}

/// What a component is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Contents {
    /// Core modules in it.
    pub core_modules: u64,
    /// Components in it.
    pub components: u64,
    /// Functions that its core modules define.
    pub functions: u64,
    /// Linear memories that its core modules define.
    pub memories: u64,
    /// The bytes that these memories have at the start.
    pub memory_bytes: u64,
    /// Tables that its core modules define.
    pub tables: u64,
    /// The elements that these tables have at the start.
    pub table_elements: u64,
    /// Bytes of code.
    pub code_bytes: u64,
    /// Bytes of data.
    pub data_bytes: u64,
    /// Bytes of debug sections: names, and `.debug_*`.
    pub debug_bytes: u64,
    /// The sections by their names, nested ones too: the largest first, at most 60.
    pub sections: Vec<Section>,
    /// Paths of the machine that it was made on; at most 10.
    pub host_paths: Vec<HostPath>,
    /// How many such paths there are, as far as they were counted: up to 1,000.
    pub host_paths_total: u64,
    /// Beginnings of programs within its data; at most 10.
    pub programs: Vec<Program>,
}

/// All sections of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Section {
    /// The name: of a standard section, or a custom one's in quotes.
    pub name: String,
    /// How many there are.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A path of the machine that a component was made on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostPath {
    /// The section that has it.
    pub section: String,
    /// The path; a long one is cut.
    pub path: String,
}

/// What looks like the beginning of a program, within data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Program {
    /// Where it is, in bytes from the file's beginning.
    pub offset: u64,
    /// What it looks like.
    pub form: String,
    /// How many bytes it has, of WebAssembly and of what is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Its beginning, on one line, of what is text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub preview: String,
}

/// Something that a component needs from the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Import {
    /// The import as the component spells it.
    pub name: String,
    /// What became of it.
    pub state: ImportState,
    /// What it is for, in a sentence. None for what this host does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    /// What it can reach on this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<String>,
    /// The grant that it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
    /// Why it is not to be had, and what would change that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The runtimes of languages that import it whether or not the program uses it; those that the producers name, where they
    /// name one.
    pub runtimes: Vec<String>,
    /// Its functions, sorted by name; at most 500 of an import and 20,000 of a component. Empty where the types are not
    /// valid.
    pub functions: Vec<Function>,
}

/// One function of an import.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Function {
    /// Its name, as the component's binary spells it: `read`, `[method]session.next`.
    pub name: String,
    /// What it does, in a sentence. None for what this host does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
}

/// What became of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ImportState {
    /// Asked for and granted.
    Granted,
    /// Asked for and not granted: linked so that every call answers `not-granted`.
    Denied,
    /// Not asked for: a host refuses the component.
    NotAsked,
    /// It needs a grant; there is no manifest that could ask.
    NeedsGrant,
    /// Linked for every component.
    Linked,
    /// Linked so that every call traps.
    LinkedDenied,
    /// This host does not have it, and refuses the component.
    Unknown,
    /// This host has another version, and refuses the component.
    WrongVersion,
}

/// Something that a component offers, or should.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Export {
    /// The export as the component spells it; as the world does, where it is missing.
    pub name: String,
    /// Whether the manifest's world has it.
    pub state: ExportState,
    /// What the host does with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
}

/// An export against the manifest's world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExportState {
    /// The world has it; or there is no manifest, and the host knows it.
    Known,
    /// The world does not have it, and no host calls it.
    Extra,
    /// The world has it, and the component does not.
    Missing,
}

/// Something that a manifest asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestedCapability {
    /// What is asked for, as `guild.toml` spells it: `files`, `files:docs`, `memory:write`.
    pub grant: String,
    /// The manifest's key that asks.
    pub key: String,
    /// What became of it.
    pub state: RequestState,
    /// Why it is denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Who has a use for it: `component`, `sessions`, both or, for a request that is unused, none.
    pub used_by: Vec<String>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RequestState {
    /// Granted.
    Granted,
    /// Granted in part: the operator's policy names less.
    Narrowed,
    /// Not granted.
    Denied,
}

/// What a member's sessions may do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sessions {
    /// The read-only tools that the manifest asks for, and whether they may be given.
    pub tools: Vec<SessionTool>,
    /// The members whose tools they may be given, by their keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub toolboxes: Vec<String>,
    /// Whether the member's memories are shown to them.
    pub memory: bool,
    /// Whether they may store memories.
    pub memory_write: bool,
    /// Whether they may write files among the job's artifacts.
    pub artifacts: bool,
    /// Whether the component may give them tools of its own.
    pub own_tools: bool,
    /// Turns of all sessions of a job: the smaller of the manifest's and the operator's.
    pub max_turns: u32,
    /// US dollars, likewise.
    pub max_budget_usd: f64,
    /// Seconds of a job's work, likewise.
    pub deadline_seconds: u32,
}

/// A tool of sessions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionTool {
    /// Its name.
    pub name: String,
    /// Whether it may be given.
    pub granted: bool,
}

/// One of the limits that hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// Its name, as `guild.toml` spells it.
    pub name: String,
    /// What holds for this component.
    pub value: serde_json::Number,
    /// What holds by default.
    pub default: serde_json::Number,
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
