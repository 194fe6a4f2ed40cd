//! What a component imports and exports, read from its bytes without compiling or running it.

use guild_contract::{
    WIT_PACKAGE, WIT_VERSION,
    grants::Grants,
    manifest::{ComponentSpec, Interface, World},
};
use wasmparser::{ComponentTypeRef, Encoding, Parser, Payload};

/// Why a component's bytes are not what a host can load for its manifest.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The bytes are no component.
    #[error("{0}")]
    NotAComponent(String),
    /// An import that this host does not know.
    #[error(
        "the component imports `{0}`, which this host does not have; a plugin can use guild:worker and WASI 0.2 only"
    )]
    UnknownImport(String),
    /// An interface that the manifest does not ask for.
    #[error(
        "the component imports `{import}`, which its manifest does not ask for; \
         add the line `\"{}\": {{}}` to `component.grants` in guild-member.json", interface.as_str()
    )]
    NotAsked {
        /// The import as the component spells it.
        import: String,
        /// What to ask for.
        interface: Interface,
    },
    /// An interface of another version.
    #[error("the component uses `{name}`; this host has {package}@{host}, which serves {track} up to {host}")]
    Version {
        /// The interface with its version, as the component spells it.
        name: String,
        /// The package.
        package: &'static str,
        /// The host's version.
        host: String,
        /// The versions that it serves.
        track: String,
    },
    /// The component does not export what its world promises.
    #[error(
        "the manifest says `\"world\": \"{world}\"`, but the component does not export `{export}`; \
         export it, or name the world that it was built for"
    )]
    MissingExport {
        /// The world of the manifest.
        world: &'static str,
        /// The interface that is missing.
        export: &'static str,
    },
    /// An import that was not granted, where `strict_imports` refuses such a component.
    #[error("the component imports `{import}`, which `strict_imports = true` in guild.toml refuses: {why}")]
    NotGranted {
        /// The import as the component spells it.
        import: String,
        /// Why it is not granted.
        why: String,
    },
}

/// The newest WASI 0.2 whose interfaces this host links.
const WASI_VERSION: (u64, u64, u64) = (0, 2, 12);
/// WASI packages that are linked. `wasi:filesystem` sees the preopened directories only.
const WASI_LINKED: [&str; 5] = ["wasi:cli", "wasi:clocks", "wasi:filesystem", "wasi:io", "wasi:random"];
/// WASI packages that language runtimes drag in without using them: every call of theirs traps.
const WASI_DENIED: [&str; 2] = ["wasi:sockets", "wasi:http"];

/// The outside of a component: names of imports and exports as it spells them, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// What it needs from the host.
    pub imports: Vec<String>,
    /// What it offers.
    pub exports: Vec<String>,
}

/// Reads the outside of a component.
///
/// # Errors
/// [`InspectError::NotAComponent`], with a text that says what the bytes are instead.
pub fn outside(bytes: &[u8]) -> Result<Outside, InspectError> {
    let not = |why: &str| InspectError::NotAComponent(format!("the file is no WebAssembly component: {why}"));
    if bytes.starts_with(b"\x7fELF") {
        return Err(not("it is a precompiled one; offer the component itself, the host compiles it"));
    }
    if !bytes.starts_with(b"\0asm") {
        return Err(not("it does not begin as WebAssembly does"));
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
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
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

/// Whether an import is there only because a language's runtime drags it in.
pub fn is_denied(import: &str) -> bool {
    WASI_DENIED.contains(&Name::of(import).package)
}

/// Checks a component's outside against what its manifest says, what it is granted, and what this host has.
///
/// # Errors
/// The first import or export that does not fit: see [`InspectError`].
pub fn check(outside: &Outside, spec: &ComponentSpec, grants: &Grants) -> Result<(), InspectError> {
    let strict = |import: &str, why: &str| match grants.strict_imports {
        true => Err(InspectError::NotGranted { import: import.to_owned(), why: why.to_owned() }),
        false => Ok(()),
    };
    for import in &outside.imports {
        let name = Name::of(import);
        if name.package == WIT_PACKAGE {
            name.check_version(WIT_PACKAGE, WIT_VERSION)?;
            if name.interface == "types" {
                continue;
            }
            let interface = Interface::ALL.into_iter().find(|i| i.as_str() == name.interface);
            let interface = interface.ok_or_else(|| InspectError::UnknownImport(import.clone()))?;
            if !spec.grants.asks(interface) {
                return Err(InspectError::NotAsked { import: import.clone(), interface });
            }
            if let Some(why) = grants.denial(interface) {
                strict(import, why)?;
            }
        } else if WASI_LINKED.contains(&name.package) {
            name.check_version("wasi", WASI_VERSION)?;
        } else if WASI_DENIED.contains(&name.package) {
            name.check_version("wasi", WASI_VERSION)?;
            strict(import, "a plugin has no network")?;
        } else {
            return Err(InspectError::UnknownImport(import.clone()));
        }
    }
    let (world, exports): (_, &[&str]) = match spec.world {
        World::Worker => ("worker", &["dispatch"]),
        World::AutonomousWorker => ("autonomous-worker", &["dispatch", "run"]),
        World::ToolboxPlugin => ("toolbox-plugin", &["toolbox"]),
        World::WorkerToolbox => ("worker-toolbox", &["dispatch", "toolbox"]),
    };
    for export in exports {
        let found = outside
            .exports
            .iter()
            .map(|e| Name::of(e))
            .find(|name| name.package == WIT_PACKAGE && name.interface == *export);
        match found {
            Some(name) => name.check_version(WIT_PACKAGE, WIT_VERSION)?,
            None => return Err(InspectError::MissingExport { world, export }),
        }
    }
    Ok(())
}

/// `package/interface@version`, taken apart.
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

    /// The same track, and not newer than the host's.
    fn check_version(&self, package: &'static str, host: (u64, u64, u64)) -> Result<(), InspectError> {
        let mut parts = self.version.splitn(3, '.').map(str::parse::<u64>);
        let version = match (parts.next(), parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch))) => Some((major, minor, patch)),
            _ => None,
        };
        match version {
            Some((major, minor, patch)) if (major, minor) == (host.0, host.1) && patch <= host.2 => Ok(()),
            _ => Err(InspectError::Version {
                name: self.whole.to_owned(),
                package,
                host: format!("{}.{}.{}", host.0, host.1, host.2),
                track: format!("{}.{}.0", host.0, host.1),
            }),
        }
    }
}
