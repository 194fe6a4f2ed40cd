//! Lists the interfaces that a component can import or export, and how this host treats each, in one table.
//!
//! A host links components by the table, and an audit explains it. An interface that is not in the table is refused.

use crate::{WIT_PACKAGE, manifest::Interface};

/// The treatment of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// An interface of `guild:worker`, which needs its grant.
    Grant,
    /// The interface has only types, and no functions.
    Types,
    /// A component exports the interface if its world has it; a host does not offer it.
    Exported,
    /// An interface of WASI that is linked for every component.
    Linked,
    /// An interface of WASI that is linked so that every call traps, since a plugin has no network.
    Denied,
}

/// The interfaces of WASI 0.2, by their names without versions.
const WASI: &[(&str, Link)] = &[
    ("wasi:cli/environment", Link::Linked),
    ("wasi:cli/exit", Link::Linked),
    ("wasi:cli/stdin", Link::Linked),
    ("wasi:cli/stdout", Link::Linked),
    ("wasi:cli/stderr", Link::Linked),
    ("wasi:cli/terminal-input", Link::Linked),
    ("wasi:cli/terminal-output", Link::Linked),
    ("wasi:cli/terminal-stdin", Link::Linked),
    ("wasi:cli/terminal-stdout", Link::Linked),
    ("wasi:cli/terminal-stderr", Link::Linked),
    ("wasi:clocks/monotonic-clock", Link::Linked),
    ("wasi:clocks/wall-clock", Link::Linked),
    ("wasi:filesystem/preopens", Link::Linked),
    ("wasi:filesystem/types", Link::Linked),
    ("wasi:io/error", Link::Linked),
    ("wasi:io/poll", Link::Linked),
    ("wasi:io/streams", Link::Linked),
    ("wasi:random/insecure", Link::Linked),
    ("wasi:random/insecure-seed", Link::Linked),
    ("wasi:random/random", Link::Linked),
    ("wasi:http/incoming-handler", Link::Denied),
    ("wasi:http/outgoing-handler", Link::Denied),
    ("wasi:http/types", Link::Denied),
    ("wasi:sockets/instance-network", Link::Denied),
    ("wasi:sockets/ip-name-lookup", Link::Denied),
    ("wasi:sockets/network", Link::Denied),
    ("wasi:sockets/tcp", Link::Denied),
    ("wasi:sockets/tcp-create-socket", Link::Denied),
    ("wasi:sockets/udp", Link::Denied),
    ("wasi:sockets/udp-create-socket", Link::Denied),
];

/// The interfaces of `guild:worker` that some world exports, without the package.
pub const EXPORTS: [&str; 3] = ["dispatch", "run", "toolbox"];

/// The treatment of an interface, by `package/interface` without its version; `None` if this host does not have it.
pub fn link(name: &str) -> Option<Link> {
    match name.split_once('/')? {
        (WIT_PACKAGE, "types") => Some(Link::Types),
        (WIT_PACKAGE, interface) if EXPORTS.contains(&interface) => Some(Link::Exported),
        (WIT_PACKAGE, interface) => {
            Interface::ALL.iter().any(|known| known.as_str() == interface).then_some(Link::Grant)
        }
        _ => WASI.iter().find(|(known, _)| *known == name).map(|(_, link)| *link),
    }
}

/// The interfaces of WASI that are linked for every component.
pub fn linked() -> impl Iterator<Item = &'static str> {
    WASI.iter().filter(|(_, link)| *link == Link::Linked).map(|(name, _)| *name)
}

/// Whether a host checks the versions of a package: its own, and the known ones of WASI.
pub fn knows_package(package: &str) -> bool {
    let is_of = |name: &str| name.split_once('/').is_some_and(|(known, _)| known == package);
    package == WIT_PACKAGE || WASI.iter().any(|(name, _)| is_of(name))
}

/// The names of all interfaces, without versions.
pub fn all() -> impl Iterator<Item = String> {
    let worker = Interface::ALL.iter().map(|interface| interface.as_str()).chain(EXPORTS).chain(["types"]);
    let wasi = WASI.iter().map(|(name, _)| (*name).to_owned());
    worker.map(|interface| format!("{WIT_PACKAGE}/{interface}")).chain(wasi)
}
