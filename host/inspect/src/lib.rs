//! Reads the imports, exports and function sizes of a component from its bytes, before a host compiles it.

pub mod functions;

use std::collections::{BTreeMap, BTreeSet};

use guild_contract::{
    WIT_PACKAGE, WIT_VERSIONS,
    capability::{
        grants::Grants,
        interfaces::{self, EXPORTS, Link},
    },
    manifest::{ComponentSpec, Interface, World},
};
use wasmparser::{ComponentTypeRef, Encoding, Parser, Payload};

/// The reason that a host cannot load a component for its manifest.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The bytes are not a component.
    #[error("{0}")]
    NotAComponent(String),
    /// The component has an import that this host does not know.
    #[error(
        "the component imports `{0}`, which this host does not have; a plugin can use guild:worker and WASI 0.2 only"
    )]
    UnknownImport(String),
    /// All interfaces that the component needs and the manifest does not request.
    #[error("{}", not_asked(.0))]
    NotAsked(BTreeMap<Interface, String>),
    /// The component needs another version of an interface.
    #[error("the component uses `{name}`; this host has {package}@{host}, which serves {served}")]
    Version {
        /// The interface with its version, as the component spells it.
        name: String,
        /// The package.
        package: &'static str,
        /// The host's version.
        host: String,
        /// The versions that the host serves.
        served: String,
    },
    /// The component lacks an export of its world, or has an export of another world.
    #[error("the manifest says `\"world\": \"{world}\"`, but the component {why}")]
    World {
        /// The world in the manifest.
        world: &'static str,
        /// The mismatch, and the remedy.
        why: String,
    },
    /// Imports that were not granted, if `strict_imports` rejects such components: names as the component spells them,
    /// by reason.
    #[error("the component imports {}", not_granted(.0))]
    NotGranted(BTreeMap<String, BTreeSet<String>>),
}

/// `"log": {}` for each interface, to add to a manifest.
fn not_asked(imports: &BTreeMap<Interface, String>) -> String {
    let lines: Vec<_> = imports.keys().map(|interface| format!("`{}`", interface.kind().line)).collect();
    let add = if lines.len() == 1 { "the line" } else { "the lines" };
    format!(
        "the component imports {}, which its manifest does not ask for; add {add} {} to `component.grants`",
        quoted(imports.values()),
        lines.join(", ")
    )
}

fn not_granted(imports: &BTreeMap<String, BTreeSet<String>>) -> String {
    let refused = |(why, imports): (&String, &BTreeSet<String>)| {
        format!("{}, which `strict_imports = true` in guild.toml refuses: {why}", quoted(imports))
    };
    imports.iter().map(refused).collect::<Vec<_>>().join("; and ")
}

/// Formats names, each in backticks.
fn quoted<T: std::fmt::Display>(names: impl IntoIterator<Item = T>) -> String {
    let mut names = names.into_iter().map(|name| format!("`{name}`"));
    let some: Vec<_> = names.by_ref().take(NAMED).collect();
    match names.count() {
        0 => some.join(", "),
        more => format!("{} and {more} more", some.join(", ")),
    }
}

/// The maximum number of names in an error.
const NAMED: usize = 12;

/// The newest version of WASI 0.2 whose interfaces this host links.
const WASI_VERSION: (u64, u64, u64) = (0, 2, 12);
/// The maximum nesting depth of modules and components.
const MAX_DEPTH: usize = 100;

/// The imports and exports of a component, with names as it spells them and in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// The imports.
    pub imports: Vec<String>,
    /// The exports.
    pub exports: Vec<String>,
}

/// Reads the imports and exports of a component.
///
/// # Errors
///
/// Returns [`InspectError::NotAComponent`] with a text that describes the bytes.
pub fn outside(bytes: &[u8]) -> Result<Outside, InspectError> {
    let not = |why: &str| InspectError::NotAComponent(format!("the file is not a WebAssembly component: {why}"));
    if bytes.starts_with(b"\x7fELF") {
        return Err(not("it is precompiled; use the component itself, which the host compiles"));
    }
    if !bytes.starts_with(b"\0asm") {
        return Err(not("it does not begin like WebAssembly"));
    }
    let mut outside = Outside::default();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(|e| not(e.message()))? {
            Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                return Err(not(
                    "it is a core module; build for wasm32-wasip2, or wrap it with `wasm-tools component new`",
                ));
            }
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(not(&format!("its parts are nested more than {MAX_DEPTH} deep")));
                }
            }
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    let import = import.map_err(|e| not(e.message()))?;
                    if !matches!(import.ty, ComponentTypeRef::Type(..)) {
                        outside.imports.push(import.name.name.to_owned());
                    }
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    outside.exports.push(export.map_err(|e| not(e.message()))?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok(outside)
}

/// The track of `guild:worker` that a component was built for: the major and minor version of its first export or
/// import of that package. `None` if it has none, or one without a version.
pub fn worker_track(outside: &Outside) -> Option<(u64, u64)> {
    let names = outside.exports.iter().chain(&outside.imports);
    let name = names.map(|name| Name::of(name)).find(|name| name.package == WIT_PACKAGE)?;
    name.parsed_version().map(|(major, minor, _)| (major, minor))
}

/// Whether every call of an import traps. The runtimes of some languages pull in such imports.
pub fn is_denied(import: &str) -> bool {
    link(import) == Some(Link::Denied)
}

/// Checks that this host serves the version of an import or export, if it knows the package.
pub fn check_version(import: &str) -> Result<(), InspectError> {
    let name = Name::of(import);
    match name.package {
        WIT_PACKAGE => name.check_version(WIT_PACKAGE, &WIT_VERSIONS),
        _ => name.check_version("wasi", &[WASI_VERSION]),
    }
}

/// The link of an import on this host, if the host has the import in that version.
pub fn known(import: &str) -> Result<Link, InspectError> {
    let unknown = || InspectError::UnknownImport(import.to_owned());
    if !interfaces::knows_package(Name::of(import).package) {
        return Err(unknown());
    }
    check_version(import)?;
    link(import).filter(|link| *link != Link::Exported).ok_or_else(unknown)
}

/// The link of an import or export on this host; `None` if the host does not have it.
pub fn link(name: &str) -> Option<Link> {
    interfaces::link(without_version(name))
}

/// `package/interface` of an import or export.
pub fn without_version(name: &str) -> &str {
    name.split_once('@').map_or(name, |(path, _)| path)
}

/// The interface whose grant an import of `guild:worker` needs.
pub fn interface(import: &str) -> Option<Interface> {
    let name = Name::of(import);
    let found = Interface::ALL.iter().copied().find(|interface| interface.as_str() == name.interface);
    found.filter(|_| name.package == WIT_PACKAGE)
}

/// The exports of a world, by the names of its interfaces.
pub fn exports_of(world: World) -> &'static [&'static str] {
    match world {
        World::Worker => &["dispatch"],
        World::AutonomousWorker => &["dispatch", "run"],
        World::ToolboxPlugin => &["toolbox"],
        World::WorkerToolbox => &["dispatch", "toolbox"],
    }
}

/// Whether an export is the given interface of `guild:worker`.
pub fn is_export(export: &str, interface: &str) -> bool {
    let name = Name::of(export);
    name.package == WIT_PACKAGE && name.interface == interface
}

/// Checks a component's imports and exports against its manifest, its grants, and this host.
///
/// # Errors
///
/// Returns the first mismatch: an import that this host does not have, imports that were not requested or granted, or
/// the exports of another world. See [`InspectError`].
pub fn check(outside: &Outside, spec: &ComponentSpec, grants: &Grants) -> Result<(), InspectError> {
    let (mut not_asked, mut not_granted) = (BTreeMap::new(), BTreeMap::<_, BTreeSet<_>>::new());
    for import in &outside.imports {
        let denied = match known(import)? {
            Link::Linked | Link::Types => None,
            Link::Grant => {
                let interface = interface(import).ok_or_else(|| InspectError::UnknownImport(import.clone()))?;
                if !spec.asks(interface.kind()) {
                    not_asked.insert(interface, import.clone());
                }
                grants.denial(interface.kind()).map(ToString::to_string)
            }
            Link::Denied => Some(NO_NETWORK.to_owned()),
            Link::Exported => return Err(InspectError::UnknownImport(import.clone())),
        };
        if let Some(why) = denied.filter(|_| grants.strict_imports) {
            not_granted.entry(why).or_default().insert(import.clone());
        }
    }
    if !not_asked.is_empty() {
        return Err(InspectError::NotAsked(not_asked));
    }
    if !not_granted.is_empty() {
        return Err(InspectError::NotGranted(not_granted));
    }
    check_exports(outside, spec.world)
}

/// Checks that a component exports everything in its world, and nothing of another world, since no host would call
/// that.
fn check_exports(outside: &Outside, world: World) -> Result<(), InspectError> {
    let found = |interface: &str| outside.exports.iter().find(|name| is_export(name, interface));
    let exported: Vec<&str> = EXPORTS.into_iter().filter(|interface| found(interface).is_some()).collect();
    let wanted = exports_of(world);
    if exported == wanted {
        return wanted.iter().filter_map(|interface| found(interface)).try_for_each(|name| check_version(name));
    }
    let missing: Vec<_> = wanted.iter().filter(|interface| !exported.contains(interface)).collect();
    let more: Vec<_> = exported.iter().filter(|interface| !wanted.contains(interface)).collect();
    let why = match (missing.is_empty(), more.is_empty()) {
        (false, true) => format!("does not export {}", quoted(missing)),
        (true, _) => {
            format!("exports {} too, which this world does not have, so that no host would call it", quoted(more))
        }
        (false, false) => format!("does not export {}, and exports {} instead", quoted(missing), quoted(more)),
    };
    let remedy = match World::ALL.iter().copied().find(|world| exports_of(*world) == exported) {
        Some(fits) => format!("write `\"world\": \"{}\"`, for which it was built", fits.as_str()),
        None if exported.is_empty() => "build it for that world of wit/".to_owned(),
        None => format!("no world has {} together; build it without one of them", quoted(&exported)),
    };
    Err(InspectError::World { world: world.as_str(), why: format!("{why}; {remedy}") })
}

/// The reason for denying sockets and HTTP.
pub const NO_NETWORK: &str = "a plugin has no network";

/// The parts of `package/interface@version`.
struct Name<'a> {
    whole: &'a str,
    package: &'a str,
    interface: &'a str,
    version: &'a str,
}

impl<'a> Name<'a> {
    fn of(whole: &'a str) -> Self {
        let (path, version) = whole.split_once('@').unwrap_or((whole, ""));
        let (package, interface) = path.split_once('/').unwrap_or((path, ""));
        Self { whole, package, interface, version }
    }

    fn parsed_version(&self) -> Option<(u64, u64, u64)> {
        let mut parts = self.version.splitn(3, '.').map(str::parse::<u64>);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch))) => Some((major, minor, patch)),
            _ => None,
        }
    }

    /// Checks that the version is on one of the host's tracks, and not newer than the host's.
    fn check_version(&self, package: &'static str, host: &[(u64, u64, u64)]) -> Result<(), InspectError> {
        let version = self.parsed_version();
        let serves = |served: &&(u64, u64, u64)| {
            version.is_some_and(|(major, minor, patch)| (major, minor) == (served.0, served.1) && patch <= served.2)
        };
        if host.iter().any(|served| serves(&served)) {
            return Ok(());
        }
        let all = |of: fn(&(u64, u64, u64)) -> String| host.iter().map(of).collect::<Vec<_>>().join(" and ");
        Err(InspectError::Version {
            name: self.whole.to_owned(),
            package,
            host: all(|(major, minor, patch)| format!("{major}.{minor}.{patch}")),
            served: all(|(major, minor, patch)| format!("{major}.{minor}.0 up to {major}.{minor}.{patch}")),
        })
    }
}
