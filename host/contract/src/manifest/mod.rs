//! Reads the declaration of a member: `guild-member.json`, Guild Hall's own manifest, with the key `component` that
//! this host adds; or `package.json` with the key `guildHall`; or both. Each form becomes a [`Manifest`].

mod declared;
mod hosts;
mod lines;
mod mcp_line;
pub mod package;
mod requested;
mod shape;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use strum::{IntoStaticStr, VariantArray};

use crate::{
    ids::MemberKey,
    job::bounds::Bounds,
    json::misread::{self, Misread, OBJECT},
    text::{is_steering, nearest::slip, one_line},
};

use declared::Declared;
pub(crate) use hosts::check_host;
pub use lines::{Lines, ManifestError, Place};
pub use mcp_line::Unplain;
pub use requested::{
    AgentRequest, ArtifactsRequest, FilesRequest, HallRequest, MemoryRequest, PlainRequest, RequestedGrants,
    WebRequest, WriteRequest,
};
use shape::Shape;

/// The manifest's file name in a member's directory.
pub const FILE_NAME: &str = "guild-member.json";
/// The file with a member's own text for its sessions.
pub const POSTURE: &str = "posture.md";
/// The most bytes of a posture, which is a prompt. A larger one is a mistake.
pub const POSTURE_BYTES: u64 = 256 * 1024;
/// The suffix of a signature's file after the component's name: `researcher.wasm.minisig`.
pub const SIGNATURE_SUFFIX: &str = ".minisig";
/// The most bytes of a signature's file, which has four lines.
pub const SIGNATURE_BYTES: u64 = 16 * 1024;
/// The most bytes of a manifest.
pub const MANIFEST_BYTES: u64 = 256 * 1024;
/// The capability of a member that accepts dispatched work (REQ-WD-1).
pub const WORKER: &str = "worker";
/// The capability of a member that offers tools.
pub const TOOLS: &str = "tools";
/// The read-only tools that a session can be given (REQ-WD-31). No other built-in tool exists.
pub const SESSION_TOOLS: [&str; 5] = ["Read", "Grep", "Glob", "WebSearch", "WebFetch"];
/// The tools of [`SESSION_TOOLS`] that read only files.
pub const FILE_TOOLS: [&str; 3] = ["Read", "Grep", "Glob"];
/// The keys of [`Manifest`].
const KEYS: [&str; 13] = [
    "name",
    "displayName",
    "displayTitle",
    "description",
    "version",
    "portraitPath",
    "model",
    "posture",
    "transport",
    "mcp",
    "capabilities",
    "plugin",
    "component",
];
/// The most bytes of a file's or a directory's name on usual file systems.
const NAME_BYTES: usize = 255;
/// The schema of `guild-member.json`.
static SHAPE: LazyLock<Shape> = LazyLock::new(Shape::of::<Manifest>);

/// A member's manifest. Unknown keys are ignored, as Guild Hall does, except a probable misspelling of a missing key.
/// Under `component` all unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The member's name. For a package it is the package's name.
    pub name: String,
    /// The display name, by which a commission names its worker (`guildHall.identity.name`).
    pub display_name: String,
    /// The display title, such as "Guild Artificer". [`Self::title`] has the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_title: Option<String>,
    /// A sentence about the member's work.
    pub description: String,
    /// The member's version.
    pub version: String,
    /// The path of the member's picture. The host does not read the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portrait_path: Option<String>,
    /// The preferred model, for people. The operator decides on the model of its sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The text for its sessions if it has no `posture.md`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub posture: Option<String>,
    /// The transport; `http` if `mcp` is present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// The command with which Guild Hall starts the member's endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<McpCommand>,
    /// The capabilities of the member besides tools: `worker` (REQ-WD-1).
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// A plugin of Guild Hall's other kind, which this host does not serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<Value>,
    /// The component that this host runs. A member without a component is served by its own process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<ComponentSpec>,
    /// The lines of the manifest's values in its files.
    #[serde(skip)]
    pub lines: Lines,
}

/// An invalid value, by its path in the manifest.
struct Fault {
    at: &'static str,
    text: String,
}

impl Fault {
    fn at(at: &'static str, text: impl Into<String>) -> Self {
        Self { at, text: text.into() }
    }
}

/// The protocol by which Guild Hall calls a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// JSON-RPC over HTTP.
    Http,
}

/// The command with which Guild Hall starts a member. `${PORT}` in `args` is the port to listen on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct McpCommand {
    /// The program.
    pub command: String,
    /// The program's arguments.
    pub args: Vec<String>,
    /// Variables that are added to the program's environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// The manifest's `component` key: the file, its world, and its requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ComponentSpec {
    /// The component's file, relative to the member's directory.
    pub file: String,
    /// The world of `guild:worker` whose exports the component has.
    pub world: World,
    /// The grants that the component requests. The operator may refuse each.
    #[serde(default)]
    pub grants: RequestedGrants,
    /// The read-only tools of [`SESSION_TOOLS`] that the component's sessions may be given.
    #[serde(default)]
    pub tools: Vec<String>,
    /// The keys of members whose tools the component's sessions need (REQ-WKR-2). A dispatch is accepted only if all of
    /// them are present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub toolboxes: Vec<MemberKey>,
    /// The scopes of memories that the component uses in a commission. The member's own memories are always among them,
    /// in any job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<Scope>,
    /// The part of a project that the component needs checked out in a commission (REQ-WKR-2); by default
    /// [`CheckoutScope::Sparse`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkout_scope: Option<CheckoutScope>,
    /// The default bounds of the member's jobs (REQ-WKR-19).
    #[serde(default)]
    pub resources: Bounds,
    /// A JSON Schema for a dispatch's `config`, checked before the component is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_schema: Option<Value>,
}

/// The scope of a memory (REQ-WKR-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr, JsonSchema)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The member's own memories.
    Worker,
    /// The memories of the project that the member works on, for all workers of the project.
    Project,
    /// The memories of all projects and workers.
    Global,
}

impl Scope {
    /// The scope's name in the manifest and the tools.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The part of a project that a worker has checked out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, JsonSchema)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum CheckoutScope {
    /// Only `.lore/`.
    #[default]
    Sparse,
    /// The whole project.
    Full,
}

impl CheckoutScope {
    /// The scope's name in the manifest.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A world of `guild:worker`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantArray, JsonSchema)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// The component checks and plans jobs; the host runs its sessions.
    Worker,
    /// The component carries out its jobs itself.
    AutonomousWorker,
    /// The component offers tools, and accepts no dispatches.
    ToolboxPlugin,
    /// The component plans jobs, and offers tools.
    WorkerToolbox,
}

impl World {
    /// All worlds.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The world's name in `wit/` and in the manifest.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether the world exports `dispatch`, so that its members accept dispatches.
    pub fn exports_dispatch(self) -> bool {
        self != Self::ToolboxPlugin
    }

    /// Whether the world exports `toolbox`, so that its members offer tools.
    pub fn exports_toolbox(self) -> bool {
        matches!(self, Self::ToolboxPlugin | Self::WorkerToolbox)
    }
}

/// An interface of `guild:worker` that a component can import. Its manifest has to request the interface.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum Interface {
    /// Writes lines into the job's log.
    Log,
    /// Reads and writes the member's memory.
    Memory,
    /// Reads files under the granted roots.
    Files,
    /// Reaches the web through the host.
    Web,
    /// Calls the internal tools on this job.
    JobTools,
    /// Reads the job's own status record.
    Status,
    /// Starts agent sessions.
    Agent,
    /// Reads the workers, commissions and meetings of the hall.
    Hall,
    /// Does the manager's work: commissions, meetings and pull requests.
    Manager,
}

impl Interface {
    /// All interfaces that can be requested.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The interface's name in `wit/`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Whether a name has characters that are invisible, or that change the display of later ones.
fn has_unseen(name: &str) -> bool {
    name.contains(|c: char| c.is_control() || is_steering(c))
}

fn unseen(field: &str, name: &str) -> String {
    let shown: String = name.chars().flat_map(char::escape_default).collect();
    format!("`{field}` has a control character or an invisible character in \"{shown}\"; leave it out")
}

/// Reads one of the files that declare a member, into a `T` and into a JSON value. An error names the line.
fn read<T: DeserializeOwned>(text: &[u8], lines: &Lines, shape: &Shape) -> Result<(T, Value), ManifestError> {
    let file = lines.file;
    misread::check_begin(text).map_err(|why| ManifestError { file, line: 1, text: why.to_owned() })?;
    let value = serde_json::from_slice(text).map_err(|error| ManifestError::of(file, &error))?;
    shape.check(&value).map_err(|(path, why)| ManifestError::at(&lines.place(&path), why))?;
    let found = misread::read(OBJECT, &mut serde_json::Deserializer::from_slice(text)).map_err(|misread| {
        let line = misread.error.line().max(1);
        misread_at(misread, |error| ManifestError { line, ..ManifestError::of(file, &error) })
    })?;
    Ok((found, value))
}

/// Makes an error that names the invalid key; `of` converts serde's error.
fn misread_at(
    Misread { text, path, error }: Misread<serde_json::Error>,
    of: impl FnOnce(serde_json::Error) -> ManifestError,
) -> ManifestError {
    let names_its_key = !error.is_data() || path.is_empty() || error.to_string().contains(" field `");
    let found = of(error);
    match text {
        Some(text) => ManifestError { text, ..found },
        None if names_its_key => found,
        None => ManifestError { text: format!("`{path}`: {}", found.text), ..found },
    }
}

/// Refuses a key of the object at `within` that is probably a misspelling of a missing key of `known`.
fn check_slips(lines: &Lines, within: &str, known: &[&str]) -> Result<(), ManifestError> {
    let (said, unknown): (Vec<&str>, Vec<&str>) = lines.keys(within).partition(|key| known.contains(key));
    let missing = || known.iter().copied().filter(|key| !said.contains(key));
    let full = |key: &str| if within.is_empty() { key.to_owned() } else { format!("{within}.{key}") };
    let slips = unknown.into_iter().filter_map(|key| Some((lines.place(&full(key)), key, slip(key, missing())?)));
    match slips.min_by_key(|(place, ..)| place.line) {
        Some((place, key, meant)) => {
            Err(ManifestError::at(&place, format!("unknown field `{key}`; did you mean `{meant}`?")))
        }
        None => Ok(()),
    }
}

impl Manifest {
    /// Parses and checks a `guild-member.json` without a `package.json`.
    ///
    /// # Errors
    ///
    /// Returns an error for the author of the manifest, which names the line.
    pub fn parse(text: &[u8]) -> Result<Self, ManifestError> {
        Self::with_value(text).map(|(manifest, _)| manifest)
    }

    fn with_value(text: &[u8]) -> Result<(Self, Value), ManifestError> {
        // A text that is not JSON has no lines; its error comes next.
        let text_of_lines = str::from_utf8(text).unwrap_or_default();
        let lines = Lines::of(FILE_NAME, text_of_lines);
        check_slips(&lines, "", &KEYS)?;
        let (manifest, value) = read::<Self>(text, &lines, &SHAPE)?;
        let manifest = Self { lines, ..manifest };
        let manifest = manifest.faultless(|manifest| manifest.check_mcp().and_then(|()| manifest.check()))?;
        Ok((manifest, value))
    }

    /// Parses and checks the declaration of a member: `guild-member.json`, `package.json` for which
    /// [`package::is_declared`] is true, or both. Each of two files supplies the values that the other does not have.
    ///
    /// # Errors
    ///
    /// Returns an error that names the file and the line. If the files differ in a value, the error names the places in
    /// both.
    pub fn of(member: Option<&[u8]>, package: Option<&[u8]>) -> Result<Self, ManifestError> {
        let Some(package) = package else { return Self::parse(member.unwrap_or_default()) };
        let package = package::declared(package)?;
        let begin = package.lines.place("");
        let declared = match member {
            Some(text) => {
                let (Self { lines, .. }, mut value) = Self::with_value(text)?;
                if let Some(keys) = value.as_object_mut() {
                    keys.retain(|key, _| KEYS.contains(&key.as_str()));
                }
                Declared { value, lines, faults: Vec::new() }.with(package)?
            }
            None => package,
        };
        declared.manifest(&begin)
    }

    /// The display title; by default the name.
    pub fn title(&self) -> &str {
        self.display_title.as_deref().unwrap_or(&self.display_name)
    }

    /// Returns the manifest if `check` finds no fault, else the fault with its place.
    fn faultless(self, check: impl FnOnce(&Self) -> Result<(), Fault>) -> Result<Self, ManifestError> {
        match check(&self) {
            Ok(()) => Ok(self),
            Err(Fault { at, text }) => Err(ManifestError::at(&self.lines.place(at), text)),
        }
    }

    /// Whether the member accepts dispatched work (REQ-WD-2).
    pub fn is_worker(&self) -> bool {
        self.capabilities.iter().any(|c| c == WORKER)
    }

    /// Accepted values that have no effect, each with its line and its remedy.
    pub fn warnings(&self) -> Vec<ManifestError> {
        let Some(component) = &self.component else { return Vec::new() };
        if self.is_worker() || !component.world.exports_dispatch() {
            return Vec::new();
        }
        let said = match self.capabilities.as_slice() {
            [] => "`capabilities` names nothing".to_owned(),
            named => format!("`capabilities` names {}, and not `{WORKER}`", one_line(&named.join(", "), NAME_BYTES)),
        };
        let text = format!(
            "{said}, so no work can be dispatched to this member, although its world `{}` accepts dispatches; write \
             \"capabilities\": [\"{WORKER}\"]",
            component.world.as_str()
        );
        vec![ManifestError::at(&self.lines.place("capabilities"), text)]
    }

    /// Refuses a capability that is probably a misspelling of a missing one. A member without a component may have
    /// capabilities of another host.
    fn check_capabilities(&self) -> Result<(), Fault> {
        let meant = |named: &str| {
            let missing = [WORKER, TOOLS].into_iter().filter(|known| !self.capabilities.iter().any(|c| c == known));
            slip(&named.trim().to_lowercase(), missing)
        };
        let slips = self.capabilities.iter().filter(|_| self.component.is_some());
        match slips.filter_map(|named| Some((named, meant(named)?))).next() {
            None => Ok(()),
            Some((named, meant)) => {
                let why = format!("`capabilities` names {named:?}; did you mean `{meant}`?");
                Err(Fault::at("capabilities", why))
            }
        }
    }

    /// Refuses a `guild-member.json` that Guild Hall would refuse.
    fn check_mcp(&self) -> Result<(), Fault> {
        if self.mcp.is_none() && self.plugin.is_none() {
            return Err(Fault::at("", "at least one of `mcp` and `plugin` is needed"));
        }
        match (&self.transport, &self.mcp) {
            (None, Some(_)) => return Err(Fault::at("mcp", "`mcp` needs `\"transport\": \"http\"` beside it")),
            (Some(_), None) => return Err(Fault::at("transport", "`transport` has no effect without `mcp`")),
            _ => {}
        }
        if self.is_worker() && self.mcp.is_none() {
            return Err(Fault::at("capabilities", "capability `worker` needs `mcp`"));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Fault> {
        self.check_capabilities()?;
        for (field, text) in [("name", &self.name), ("version", &self.version)] {
            if text.trim().is_empty() {
                return Err(Fault::at(field, format!("`{field}` must not be empty")));
            }
        }
        if let Some(world) = self.component.as_ref().map(|component| component.world)
            && self.is_worker()
            && !world.exports_dispatch()
        {
            let why = format!(
                "capability `worker` needs a `component.world` that exports `dispatch`, and `{}` does not; name \
                 `tools` instead, or a world to which work can be dispatched",
                world.as_str()
            );
            return Err(Fault::at("capabilities", why));
        }
        if let Some(component) = &self.component
            && self.capabilities.iter().any(|capability| capability == TOOLS)
            && !component.world.exports_toolbox()
        {
            let why = format!(
                "capability `tools` needs a `component.world` that exports `toolbox`, and `{}` does not; leave it out, or name \
                 `toolbox-plugin` or `worker-toolbox`",
                component.world.as_str()
            );
            return Err(Fault::at("capabilities", why));
        }
        self.component.as_ref().map_or(Ok(()), ComponentSpec::check)
    }
}

impl ComponentSpec {
    fn check(&self) -> Result<(), Fault> {
        let plain = !self.file.is_empty()
            && self.file.split('/').all(|part| !matches!(part, "" | "." | ".."))
            && !self.file.contains(['\\', '\0']);
        if !plain {
            let why = format!(
                "`component.file` must be a path inside the member's directory, without `.` or `..`: {:?} is not",
                self.file
            );
            return Err(Fault::at("component.file", why));
        }
        if has_unseen(&self.file) {
            return Err(Fault::at("component.file", unseen("component.file", &self.file)));
        }
        for tool in &self.tools {
            if !SESSION_TOOLS.contains(&tool.as_str()) {
                let why = format!(
                    "`component.tools` names {tool:?}; a session can be given {} and nothing else",
                    SESSION_TOOLS.join(", ")
                );
                return Err(Fault::at("component.tools", why));
            }
        }
        self.grants.check()?;
        let mut named = BTreeSet::new();
        if let Some(twice) = self.toolboxes.iter().find(|key| !named.insert(*key)) {
            let why = format!("`component.toolboxes` names `{twice}` twice; name it once");
            return Err(Fault::at("component.toolboxes", why));
        }
        let bounds = self.resources.check();
        bounds.map_err(|e| Fault::at("component.resources", format!("`component.resources`: {e}")))?;
        self.check_dispatch()
    }

    /// Refuses keys about jobs for a member without jobs.
    fn check_dispatch(&self) -> Result<(), Fault> {
        if self.world.exports_dispatch() {
            return Ok(());
        }
        let said = [
            ("component.tools", !self.tools.is_empty()),
            ("component.toolboxes", !self.toolboxes.is_empty()),
            ("component.resources", self.resources != Bounds::default()),
            ("component.configSchema", self.config_schema.is_some()),
            ("component.scopes", self.scopes.iter().any(|scope| *scope != Scope::Worker)),
            ("component.checkoutScope", self.checkout_scope.is_some()),
            ("component.grants.lore", self.grants.lore.is_some()),
            ("component.grants.worktree", self.grants.worktree.is_some()),
        ];
        let Some((at, _)) = said.into_iter().find(|(_, said)| *said) else { return Ok(()) };
        let world = self.world.as_str();
        let why = format!("`{at}` is about dispatched work, and `{world}` exports no `dispatch`; remove it");
        Err(Fault::at(at, why))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn researcher() -> Value {
        json!({
            "name": "researcher", "displayName": "Researcher", "description": "d", "version": "0.1.0",
            "transport": "http", "mcp": {"command": "guild", "args": ["serve"]}, "capabilities": ["worker"],
            "component": {"file": "researcher.wasm", "world": "worker", "grants": {"log": {}}, "tools": ["Read"]}
        })
    }

    fn parse(value: &Value) -> Result<Manifest, String> {
        Manifest::parse(value.to_string().as_bytes()).map_err(|e| e.to_string())
    }

    #[test]
    fn the_manifest_of_the_researcher_parses() {
        let manifest = parse(&researcher()).unwrap();
        assert!(manifest.is_worker());
        assert!(manifest.component.unwrap().grants.log.is_some());
    }

    #[test]
    fn unknown_keys_are_ignored_but_not_in_component() {
        let mut value = researcher();
        value["homepage"] = json!("x");
        parse(&value).unwrap();
        value["component"]["grant"] = json!({});
        assert!(parse(&value).unwrap_err().contains("unknown field `grant`"));
    }

    #[test]
    fn an_error_names_the_line_and_the_nearest_known_key() {
        // The error, and the line of `at`.
        let error = |component: Value, at: &str| {
            let mut value = researcher();
            value["component"].as_object_mut().unwrap().extend(component.as_object().unwrap().clone());
            let text = serde_json::to_string_pretty(&value).unwrap();
            let line = text.lines().position(|line| line.contains(at)).unwrap() + 1;
            (Manifest::parse(text.as_bytes()).unwrap_err(), line)
        };
        for (component, at, expected) in [
            (json!({"grants": {"file": {}}}), "\"file\": {}", "unknown field `file`; did you mean `files`?"),
            (json!({"grants": {"files": {"root": []}}}), "\"root\"", "unknown field `root`; did you mean `roots`?"),
            (
                json!({"grants": {"log": {"level": 1}}}),
                "\"level\"",
                "unknown field `level`; no keys are allowed there, write {}",
            ),
            (json!({"resources": {"maxTurn": 1}}), "\"maxTurn\"", "unknown field `maxTurn`; did you mean `maxTurns`?"),
            (json!({"world": "workr"}), "\"workr\"", "unknown variant `workr`; did you mean `worker`?"),
            (json!({"xyzzy": 1}), "\"xyzzy\"", "unknown field `xyzzy`; known are file, world, grants"),
            // Known keys with impossible values.
            (json!({"grants": {"artifacts": {"bytes": 0}}}), "\"artifacts\"", "a number of 0"),
            (json!({"tools": ["Bash"]}), "\"tools\"", "\"Bash\""),
            (json!({"file": "../x"}), "\"../x\"", "`component.file`"),
        ] {
            let (error, line) = error(component, at);
            assert!(error.line == line && error.text.contains(expected), "line {line}: {error}");
            assert!(error.to_string().starts_with(&format!("guild-member.json:{line}: ")), "{error}");
        }
    }

    #[test]
    fn a_slip_of_the_pen_at_the_top_is_an_error_where_the_key_is_missing_and_other_keys_are_not() {
        // The researcher's manifest with a renamed key, and the line of that key.
        let renamed = |key: &str, to: &str| {
            let text = serde_json::to_string_pretty(&researcher()).unwrap();
            let text = text.replace(&format!("\n  \"{key}\":"), &format!("\n  \"{to}\":"));
            let line = text.lines().position(|line| line.starts_with(&format!("  \"{to}\":"))).unwrap() + 1;
            (Manifest::parse(text.as_bytes()), line)
        };
        for (key, slip) in [
            ("component", "componnent"),
            ("component", "components"),
            ("description", "descripton"),
            ("displayName", "display_name"),
            ("capabilities", "capability"),
            ("transport", "transprot"),
            ("version", "Version"),
        ] {
            let (parsed, line) = renamed(key, slip);
            let expected = format!("guild-member.json:{line}: unknown field `{slip}`; did you mean `{key}`?");
            assert_eq!(parsed.unwrap_err().to_string(), expected);
            // Beside the right key, a similar one counts as another host's.
            let mut both = researcher();
            both[slip] = json!("x");
            parse(&both).unwrap();
        }
        let mut unserved = researcher();
        unserved.as_object_mut().unwrap().remove("component");
        for own in
            ["comment", "$comment", "login", "origin", "homepage", "engines", "command", "mcpServers", "x.component"]
        {
            unserved[own] = json!({"componnent": 1});
        }
        assert_eq!(parse(&unserved).unwrap().component, None);
    }

    #[test]
    fn the_keys_of_a_manifest_are_all_named() {
        let parsed = parse(&researcher()).unwrap();
        let text = || Some("x".to_owned());
        let full = Manifest {
            display_title: text(),
            portrait_path: text(),
            model: text(),
            posture: text(),
            plugin: Some(json!({})),
            ..parsed
        };
        let written = serde_json::to_value(full).unwrap();
        assert!(written.as_object().unwrap().keys().all(|key| KEYS.contains(&key.as_str())));
        assert_eq!(written.as_object().unwrap().len(), KEYS.len());
    }

    /// Sets (or with null removes) a pointer in the researcher's manifest and returns the error.
    fn error_with(pointer: &str, to: Value) -> String {
        let mut value = researcher();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let object = value.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        if to.is_null() {
            object.remove(key);
        } else {
            object.insert(key.to_owned(), to);
        }
        parse(&value).unwrap_err()
    }

    #[test]
    fn each_rule_of_the_manifest_is_named_when_broken() {
        assert!(error_with("/transport", Value::Null).contains("transport"));
        assert!(error_with("/transport", json!("stdio")).contains("stdio"));
        assert!(error_with("/name", json!("")).contains("`name`"));
        assert!(error_with("/name", Value::Null).contains("`name`"));
        assert!(error_with("/mcp", Value::Null).contains("`mcp`"));
        assert!(error_with("/capabilities", json!("worker")).contains("worker"));
        assert!(error_with("/component/file", json!("../x.wasm")).contains("component.file"));
        assert!(error_with("/component/file", json!("/x.wasm")).contains("component.file"));
        assert!(error_with("/component/tools", json!(["Bash"])).contains("Bash"));
        assert!(error_with("/component/toolboxes", json!(["a/b/c"])).contains("`component.toolboxes[0]`: "));
        assert!(error_with("/component/toolboxes", json!(["mail", "a/b", "mail"])).contains("`mail` twice"));
        assert!(error_with("/component/scopes", json!(["all"])).contains("unknown variant `all`"));
        assert!(error_with("/component/checkoutScope", json!("half")).contains("unknown variant `half`"));
        assert!(error_with("/component/grants", json!({"lore": true})).contains("write {\"write\": true}"));
        assert!(error_with("/component/world", json!("toolbox-plugin")).contains("exports `dispatch`"));
        assert!(error_with("/component/resources", json!({"maxTurns": 0})).contains("maxTurns"));
        assert!(error_with("/component/grants", json!({"sockets": {}})).contains("sockets"));
        assert!(error_with("/component/grants", json!({"log": {"x": 1}})).contains('x'));
    }

    #[test]
    fn what_is_about_commissions_needs_a_world_that_takes_work() {
        let asked = |component: Value| {
            let mut value = researcher();
            value["component"].as_object_mut().unwrap().extend(component.as_object().unwrap().clone());
            value
        };
        let all = json!({"checkoutScope": "full", "scopes": ["worker", "project", "global"],
                         "grants": {"lore": {"write": true}, "worktree": {"write": true}}});
        let component = parse(&asked(all.clone())).unwrap().component.unwrap();
        assert_eq!((component.checkout_scope, component.scopes.len()), (Some(CheckoutScope::Full), 3));
        for key in all.as_object().unwrap().keys() {
            let mut value = asked(json!({key: all[key], "world": "toolbox-plugin", "tools": []}));
            value["capabilities"] = json!(["tools"]);
            let why = parse(&value).unwrap_err();
            assert!(why.contains(&format!("`component.{key}")) && why.contains("exports no `dispatch`"), "{why}");
        }
    }

    #[test]
    fn what_an_operator_is_shown_can_be_told_apart() {
        for (pointer, value, expected) in [
            ("/component/file", json!("a\n  ready.wasm"), "\"a\\n  ready.wasm\""),
            ("/component/file", json!("a\u{202e}b.wasm"), "\\u{202e}"),
            ("/component/grants", json!({"files": {"roots": ["docs\u{200b}"]}}), "\\u{200b}"),
            ("/component/grants", json!({"files": {"roots": ["a".repeat(256)]}}), "256 bytes, more than 255"),
            ("/component/grants", json!({"web": {"hosts": ["search"]}}), "`\"search\": true`"),
            ("/component/grants", json!({"web": {"hosts": ["d\u{43e}cs.rs"]}}), "Punycode"),
            ("/component/grants", json!({"web": {"hosts": ["a".repeat(254)]}}), "at most 253"),
        ] {
            let error = error_with(pointer, value);
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn worker_needs_mcp_even_beside_a_plugin() {
        let mut value = researcher();
        value["plugin"] = json!({"path": "p"});
        value.as_object_mut().unwrap().remove("mcp");
        value.as_object_mut().unwrap().remove("transport");
        assert!(parse(&value).unwrap_err().contains("capability `worker` needs `mcp`"));
    }
}
